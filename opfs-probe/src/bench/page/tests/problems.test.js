import assert from "node:assert/strict";
import { test } from "node:test";
import { explain, problems } from "../problems.js";

test("a browser's own errors are said in words, with what it said", () => {
  const { name, message } = explain(new DOMException("no space", "QuotaExceededError"));
  assert.equal(name, "QuotaExceededError");
  assert.match(message, /storage for this page is full.*\(no space\)/);
  assert.match(explain(new DOMException("x", "SecurityError")).message, /Private windows/);
});

test("what the benchmark noticed itself is said as it is", () => {
  assert.deepEqual(explain(problems.shortWrite(1, 2)), {
    name: "ShortWrite",
    message: "The browser wrote 1 of 2 bytes without an error. The profile's disk is probably full.",
  });
});

test("anything else keeps its name and message", () => {
  assert.deepEqual(explain(new TypeError("boom")), { name: "TypeError", message: "The benchmark stopped: TypeError: boom" });
  assert.equal(explain("odd").message, "The benchmark stopped: Error: odd");
});
