import assert from "node:assert/strict";
import { test } from "node:test";
import { parseSize, passNames, peakBytes, plan, PRESETS, readQuery } from "../plan.js";

const read = (query) => readQuery(new URLSearchParams(query));

test("nothing asked for is the quick preset, all workloads, and no autorun", () => {
  const { config, autorun, close, settleSeconds, token, problems } = read("");
  assert.deepEqual(problems, []);
  assert.deepEqual({ autorun, close, settleSeconds, token }, { autorun: false, close: false, settleSeconds: 0, token: null });
  assert.deepEqual(config, {
    preset: "quick", n: 2000, s: 4096, chunks: [65536, 1048576], r: 3, m: 200,
    workloads: ["small-append", "small-overwrite", "chunked-append (64 KiB)", "chunked-append (1 MiB)", "append+flush", "new-file"],
  });
});

test("parameters change a preset, which is then custom", () => {
  const { config, autorun, close, settleSeconds, token } = read("preset=full&n=20&s=1KiB&r=1&m=2&chunks=4096,8+KiB&autorun=1&close=1&settle=7&token=abc");
  assert.deepEqual({ ...config, workloads: config.workloads.length }, { preset: "custom", n: 20, s: 1024, chunks: [4096, 8192], r: 1, m: 2, workloads: 6 });
  assert.deepEqual({ autorun, close, settleSeconds, token }, { autorun: true, close: true, settleSeconds: 7, token: "abc" });
  assert.equal(read("preset=full").config.r, PRESETS.full.r);
  assert.equal(read("n=2000&s=4KiB").config.preset, "quick");
});

test("workloads are chosen by name, run in their usual order, and chunked-append means every size", () => {
  const chosen = (query) => read(query).config.workloads;
  assert.deepEqual(chosen("workloads=new-file,chunked-append"), ["chunked-append (64 KiB)", "chunked-append (1 MiB)", "new-file"]);
  assert.deepEqual(chosen("workloads=chunked-append+(1+MiB)"), ["chunked-append (1 MiB)"]);
  assert.deepEqual(chosen("workloads=append+flush"), ["append+flush"], "an unescaped plus");
  assert.deepEqual(chosen("workloads=append%2Bflush"), ["append+flush"]);
});

test("bad parameters are named, and nothing is to run", () => {
  const bad = {
    "n=0": /“n”.*from 1/, "n=-5": /“n”/, "n=1e3": /“n”/, "n=": /“n”/, "r=101": /“r”/, "m=2.5": /“m”/, "s=4KB": /“s”/,
    "preset=slow": /no preset “slow”.*quick and full/, "chunks=64KiB,x": /“chunks”/, "chunks=1024,1KiB": /twice/,
    "chunks=1,2,3,4,5,6,7,8,9": /9 sizes/, "workloads=": /at least one workload/, "workloads=append": /no workload “append”/,
    "autorun=yes": /“autorun” is 0 or 1/, "runs=3": /no parameter “runs”/, "n=1&n=2": /more than once/,
    "n=1000000&s=64MiB": /a file/, "chunks=1": /more than 1000000 calls/, "settle=4000": /“settle”/,
    "workloads=chunked-append+(2+KiB)": /no workload/,
  };
  for (const [query, words] of Object.entries(bad)) {
    const { config, problems } = read(query);
    assert.equal(config, null, query);
    assert.match(problems.join("\n"), words, query);
  }
  assert.equal(read("n=0&r=0&x=1").problems.length, 3);
});

test("sizes are read with and without unit", () => {
  assert.deepEqual(["4096", "4096 B", "4KiB", "4 kib", " 1MiB "].map(parseSize), [4096, 4096, 4096, 4096, 1048576]);
  assert.deepEqual(["", "KiB", "4 KB", "-1", "1.5KiB", "0x10"].map(parseSize), [null, null, null, null, null, null]);
});

test("chunked workloads write the same bytes, in whole calls and a rest", () => {
  const byName = Object.fromEntries(plan(read("").config).map((workload) => [workload.name, workload]));
  assert.equal(byName["chunked-append (64 KiB)"].calls, 125);
  assert.equal(byName["chunked-append (1 MiB)"].calls, 8);
  assert.equal(byName["chunked-append (1 MiB)"].totalBytes, 8_192_000);
  assert.equal(byName["append+flush"].flushes, true);
  assert.equal(byName["small-overwrite"].overwrites, true);
  assert.deepEqual(byName["new-file"], { name: "new-file", kind: "file", calls: 200, bytesPerCall: 4096 });
});

test("a chunk larger than the file is the file", () => {
  const [workload] = plan(read("n=20&workloads=chunked-append&chunks=1MiB").config);
  assert.deepEqual([workload.calls, workload.bytesPerCall], [1, 81920]);
});

test("passes and the space they need", () => {
  assert.deepEqual(passNames({ r: 2 }), ["warm-up", "run 1", "run 2"]);
  assert.equal(peakBytes(read("").config), 8_192_000);
  assert.equal(peakBytes(read("workloads=new-file").config), 4096);
});
