import assert from "node:assert/strict";
import { test } from "node:test";
import { medianIndex, percentile, smallestStep, summarise } from "../statistics.js";

test("percentiles are nearest-rank", () => {
  const eight = [1, 2, 3, 4, 5, 6, 7, 8];
  assert.equal(percentile(eight, 50), 4);
  assert.equal(percentile(eight, 90), 8);
  assert.equal(percentile(eight, 99), 8);
  const hundred = Array.from({ length: 100 }, (_, index) => index + 1);
  assert.deepEqual([50, 90, 99, 100].map((percent) => percentile(hundred, percent)), [50, 90, 99, 100]);
  assert.equal(percentile([7], 1), 7);
});

test("the median of an even number of values is the lower one in the middle", () => {
  assert.equal(medianIndex([30, 10, 20]), 2);
  assert.equal(medianIndex([40, 10, 30, 20]), 3);
  assert.equal(medianIndex([5]), 0);
  assert.equal(medianIndex([9, 9, 9]), 1);
});

const pass = (total_ms, latencies, started_epoch_ms = 1000) => ({
  total_ms,
  latencies: Float64Array.from(latencies),
  started_epoch_ms,
  finished_epoch_ms: started_epoch_ms + total_ms,
});

test("a row describes the median run, in call order and in sorted order", () => {
  const series = { name: "small-append", kind: "write", bytesPerCall: 4096, totalBytes: 16384 };
  const runs = [pass(9, [1, 1, 1, 1]), pass(2, [0.5, 0.1, 0.3, 0.2]), pass(1, [0.25, 0.25, 0.25, 0.25])];
  const row = summarise(series, pass(3, [1, 1, 1, 1], 500), runs);
  assert.equal(row.median_run, 2);
  assert.equal(row.calls, 4);
  assert.deepEqual([row.total_ms, row.total_min_ms, row.total_max_ms], [2, 1, 9]);
  assert.equal(row.mean_us, 500);
  assert.equal(row.ops_per_s, 2000);
  assert.equal(row.mb_per_s, 8.192);
  assert.deepEqual([row.p50_us, row.p90_us, row.p99_us, row.max_us, row.first_call_us], [200, 500, 500, 500, 500]);
  assert.deepEqual(row.runs.map((run) => run.first_call_us), [1000, 500, 250]);
  assert.deepEqual(row.warm_up, { started_epoch_ms: 500, finished_epoch_ms: 503 });
});

test("what isn't measured is null", () => {
  const series = { name: "new-file: close", kind: "file", bytesPerCall: null, totalBytes: null };
  const row = summarise(series, pass(0, [0]), [pass(0, [0])]);
  assert.equal(row.mb_per_s, null);
  assert.equal(row.ops_per_s, null);
  assert.equal(row.bytes_per_call, null);
});

test("a clock's resolution is its smallest step forward", () => {
  assert.equal(smallestStep([1, 1, 6, 6, 8, 8, 20]), 2);
});
