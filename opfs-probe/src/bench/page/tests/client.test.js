import assert from "node:assert/strict";
import { afterEach, test } from "node:test";

/** A socket whose other end is the test: `answer` gets each message and `hear` speaks to the client. */
class FakeSocket extends EventTarget {
  static latest = null;
  static answer = () => {};
  static open = true;
  readyState = 0;
  sent = [];

  constructor(url) {
    super();
    if (!url) throw new SyntaxError("no url");
    this.url = url;
    FakeSocket.latest = this;
    queueMicrotask(() => {
      if (!FakeSocket.open) return this.die();
      this.readyState = 1;
      this.dispatchEvent(new Event("open"));
    });
  }
  send(text) {
    const message = JSON.parse(text);
    this.sent.push(message);
    FakeSocket.answer(message, this);
  }
  hear(message) {
    queueMicrotask(() => this.dispatchEvent(new MessageEvent("message", { data: typeof message === "string" ? message : JSON.stringify(message) })));
  }
  close() {
    this.readyState = 2;
    queueMicrotask(() => this.die());
  }
  die() {
    this.readyState = 3;
    this.dispatchEvent(new Event("close"));
  }
}

globalThis.WebSocket = FakeSocket;
const { begin, connect, end, ProbeError, window } = await import("../client.js");

const url = "ws://127.0.0.1:1/v1/windows";
const welcome = { op: "welcome", v: 1, session: "s7", coverage_gaps: ["aio"] };
let ended = 0;

function probe({ op, id }, socket) {
  if (op === "hello") socket.hear(welcome);
  if (op === "begin") socket.hear({ op: "ack", id, monotonic_ns: 1 });
  if (op === "end") socket.hear({ op: "ack", id, monotonic_ns: 2, sync_calls: 21 * ++ended, sync_ns: 5 });
}

afterEach(() => {
  FakeSocket.answer = probe;
  FakeSocket.open = true;
  ended = 0;
});
FakeSocket.answer = probe;

test("hello says who is there, and the welcome is kept", async () => {
  const client = await connect({ url, token: "t", client: "me/1", meta: { a: 1 } });
  assert.deepEqual(FakeSocket.latest.sent, [{ op: "hello", v: 1, client: "me/1", token: "t", meta: { a: 1 } }]);
  assert.deepEqual([client.connected, client.problem, client.session, client.coverageGaps], [true, null, "s7", ["aio"]]);
});

test("windows nest, and an end gives the counts", async () => {
  const client = await connect({ url });
  const outer = await client.begin("outer", { attrs: { k: "v" } });
  const inner = await client.begin("inner", { parent: outer, calls: 3, id: "mine" });
  const answer = await client.end(inner, { calls: 4 });
  await client.end(outer);
  assert.equal(answer.sync_calls, 21);
  assert.deepEqual([inner.syncCalls, inner.syncNs, outer.syncCalls], [21, 5, 42]);
  assert.deepEqual(FakeSocket.latest.sent.slice(1), [
    { op: "begin", id: outer.id, name: "outer", parent: null, attrs: { k: "v" } },
    { op: "begin", id: "mine", name: "inner", parent: outer.id, calls: 3 },
    { op: "end", id: "mine", calls: 4 },
    { op: "end", id: outer.id },
  ]);
});

test("a window is entered again with its id and name", async () => {
  const client = await connect({ url });
  const step = client.define("step", { parent: "p" });
  for (let file = 0; file < 2; file++) await client.window(step, { calls: 1 }, () => {});
  const begins = FakeSocket.latest.sent.filter(({ op }) => op === "begin");
  assert.deepEqual(begins, Array(2).fill({ op: "begin", id: step.id, name: "step", parent: "p", calls: 1 }));
  assert.equal(step.syncCalls, 42);
});

test("work starts only after the probe's answer, and its value and errors come out", async () => {
  const order = [];
  FakeSocket.answer = (message, socket) => {
    order.push(message.op);
    probe(message, socket);
  };
  const client = await connect({ url });
  assert.equal(await client.window("w", {}, () => order.push("work") && 5), 5);
  await assert.rejects(client.window("w", {}, () => { throw new TypeError("mine"); }), TypeError);
  assert.deepEqual(order, ["hello", "begin", "work", "end", "begin", "end"]);
});

test("a refusal rejects begin with its code, but not the work of window", async () => {
  FakeSocket.answer = ({ op, id }, socket) => {
    if (op === "hello") socket.hear(welcome);
    else socket.hear({ op: "error", id, code: "limit", message: "too many" });
  };
  const client = await connect({ url });
  await assert.rejects(client.begin("w"), (error) => error instanceof ProbeError && error.code === "limit");
  assert.equal(await client.window("w", {}, () => "done"), "done");
  assert.match(client.problem, /too many \(limit\)/);
  assert.equal(client.connected, true);
  assert.ok(!FakeSocket.latest.sent.some(({ op }) => op === "end"), "a window that never began isn't ended");
});

test("two requests about one window are answered in their order", async () => {
  const client = await connect({ url });
  const w = client.define("w");
  const [begun, answer] = await Promise.all([client.begin(w), client.end(w)]);
  assert.equal(begun, w);
  assert.equal(answer.sync_calls, 21);
});

test("where no probe answers, everything does nothing", async () => {
  FakeSocket.open = false;
  const client = await connect({ url });
  assert.equal(client.connected, false);
  assert.match(client.problem, /no probe answered at ws:/);
  const w = await client.begin("w");
  assert.equal(await client.end(w), null);
  assert.equal(await client.window("w", {}, () => 7), 7);
  assert.equal(client.result("r", {}), false);
  await client.close();
});

test("a probe that never welcomes is given up on", async () => {
  FakeSocket.answer = () => {};
  const client = await connect({ url, timeout: 5 });
  assert.match(client.problem, /within 5 ms/);
});

test("no address, no trouble", async () => {
  const client = await connect({});
  assert.equal(client.connected, false);
  assert.match(client.problem, /no connection to a probe/);
});

test("a refused hello is said in words", async () => {
  FakeSocket.answer = (_, socket) => socket.hear({ op: "error", id: null, code: "unauthorized", message: "a token is needed" });
  const client = await connect({ url });
  assert.equal(client.connected, false);
  assert.match(client.problem, /a token is needed \(unauthorized\)/);
});

test("a socket that dies releases whoever waits, and everything after does nothing", async () => {
  const client = await connect({ url });
  FakeSocket.answer = () => {};
  const waiting = client.begin("w");
  FakeSocket.latest.die();
  const w = await waiting;
  assert.equal(await client.end(w), null);
  assert.deepEqual([client.connected, client.problem], [false, "the probe closed the connection"]);
});

test("unknown, unasked and broken messages are ignored; stored is kept", async () => {
  const client = await connect({ url });
  for (const message of [{ op: "news" }, "{", "null", { op: "ack", id: "nobody" }, { op: "stored", session: "s7" }]) FakeSocket.latest.hear(message);
  await client.window("w", {}, () => {});
  assert.deepEqual([client.connected, client.problem, client.stored], [true, null, true]);
});

test("close waits until the socket is closed, and is no problem", async () => {
  const client = await connect({ url });
  client.result("r", { a: 1 });
  await client.close();
  await client.close();
  assert.equal(FakeSocket.latest.readyState, 3);
  assert.deepEqual(FakeSocket.latest.sent.at(-1), { op: "result", name: "r", data: { a: 1 } });
  assert.deepEqual([client.connected, client.problem], [false, null]);
});

test("the module's own begin, end and window use the latest connection", async () => {
  await connect({ url });
  const w = await begin("w");
  assert.equal((await end(w)).sync_calls, 21);
  assert.equal(await window("v", {}, () => 3), 3);
});
