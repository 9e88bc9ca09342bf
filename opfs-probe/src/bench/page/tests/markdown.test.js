import assert from "node:assert/strict";
import { test } from "node:test";
import { derive } from "../derived.js";
import { markdown } from "../markdown.js";

const config = { preset: "quick", n: 2000, s: 4096, chunks: [65536, 1048576], r: 3, m: 200, workloads: [] };

const row = (name, kind, calls, bytes, total, [p50, p99, first], firsts = [first], megabytes = null) => ({
  name, kind, calls, bytes_per_call: bytes, total_ms: total, total_min_ms: total - 0.5, total_max_ms: total + 1,
  mean_us: (total / calls) * 1000, ops_per_s: (calls / total) * 1000, mb_per_s: megabytes === null ? null : megabytes / (total / 1000),
  p50_us: p50, p90_us: p50, p99_us: p99, max_us: 15750, first_call_us: first, runs: firsts.map((first_call_us) => ({ first_call_us })),
});

const rows = [
  row("small-append", "write", 2000, 4096, 51, [10, 15, 385], [340, 400, 385], 8.192),
  row("small-overwrite", "write", 2000, 4096, 25.4, [10, 15, 15], [15, 15, 15], 8.192),
  row("chunked-append (1 MiB)", "write", 8, 1048576, 2.925, [160, 670, 635], [495, 635, 600], 8.192),
  row("append+flush", "write", 2000, 4096, 10284, [5490, 6290, 5915], [4925, 5915, 5000], 8.192),
  row("new-file: create+open", "file", 200, null, 338.6, [1670, 1970, 1955]),
  row("new-file: first write", "file", 200, 4096, 73, [360, 420, 395], [395], 0.8192),
  row("new-file: close", "file", 200, null, 99.2, [485, 605, 530]),
  row("new-file: delete", "file", 200, null, 96, [465, 615, 445]),
  row("new-file: full cycle", "file", 200, 4096, 607, [3000, 3405, 2930], [2930], 0.8192),
];

const derived = [
  "Fixed per-call floor (small-overwrite, size never changes): 12.7 µs/call mean, 10.0 µs p50",
  "Size-growing write (small-append): 25.5 µs/call mean, 10.0 µs p50",
  "Extra cost per call when the write grows the file (append − overwrite): 12.8 µs mean, 0.0 µs p50",
  "Same 8.2 MB in 8 × 1 MiB calls: 2.9 ms (2801 MB/s) vs 51.0 ms for 2,000 × 4 KiB; the small calls are 17.4× slower for the same bytes",
  "flush() after every write adds 5116.5 µs/call on top of small-append (append+flush: 5142.0 µs/call mean)",
  "small-append: first call into the fresh file 385.0 µs vs p50 10.0 / p99 15.0 µs; across runs 340.0–400.0 µs (far above p99)",
  "chunked-append (1 MiB): first call into the fresh file 635.0 µs vs p50 160.0 / p99 670.0 µs; across runs 495.0–635.0 µs",
  "append+flush: first call into the fresh file 5915.0 µs vs p50 5490.0 / p99 6290.0 µs; across runs 4925.0–5915.0 µs",
  "new-file: 3.0 ms per file (329 files/s) = create+open 1.7 + first write 0.4 + close 0.5 + delete 0.5 ms",
  "new-file without delete (what populating OPFS pays per file): 2.6 ms",
  "First write into a new file (4 KiB): 365.0 µs vs 25.5 µs per small-append call",
];

test("derived lines, all workloads", () => {
  assert.deepEqual(derive(config, rows), derived);
});

test("derived lines speak only of what ran", () => {
  assert.deepEqual(derive(config, []), []);
  assert.deepEqual(derive(config, rows.slice(1, 2)), derived.slice(0, 1));
  assert.deepEqual(derive(config, rows.slice(4)), [...derived.slice(8, 10), "First write into a new file (4 KiB): 365.0 µs"]);
});

test("small calls can also be faster", () => {
  const [line] = derive(config, [{ ...rows[0], total_ms: 2 }, { ...rows[2], total_ms: 3 }]).filter((text) => text.startsWith("Same"));
  assert.match(line, /the small calls are 1\.5× faster/);
});

test("the Markdown section", () => {
  const result = {
    user_agent: "Mozilla/5.0 (X11)", platform: "Linux x86_64", hardware_concurrency: 16, timestamp: "2026-09-16T03:20:09.457Z",
    clock_resolution_us: 5.000000074505806, cross_origin_isolated: true, storage: { usage_bytes: 40_000, quota_bytes: 10737418240 },
    config, workloads: [rows[0], rows[4]], derived: derived.slice(1, 2),
  };
  assert.equal(markdown(result), `**OPFS \`FileSystemSyncAccessHandle.write()\` per-call overhead benchmark**

Environment:
- User agent: \`Mozilla/5.0 (X11)\`
- Platform: Linux x86_64; hardwareConcurrency: 16
- Timestamp: 2026-09-16T03:20:09.457Z
- performance.now() resolution in the worker: 5.0 µs (crossOriginIsolated: true)
- navigator.storage.estimate(): 0.0 MB used of 10737 MB
- Config: preset=quick, N=2000, S=4096 B, chunks=64 KiB / 1 MiB, R=3, M=200

Median run of R=3 (by total time) after one warm-up pass; latency percentiles are per call; "1st call" is call number 1 of that run (for the append workloads, the first write into the freshly created file):

| Workload | Calls | Bytes/call | Total (ms) | Total min–max (ms) | ops/s | MB/s | p50 (µs) | p90 (µs) | p99 (µs) | max (µs) | 1st call (µs) |
|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|
| small-append | 2,000 | 4,096 | 51.0 | 50.5–52.0 | 39,216 | 160.6 | 10.0 | 10.0 | 15.0 | 15750.0 | 385.0 |
| new-file: create+open | 200 | – | 338.6 | 338.1–339.6 | 591 | – | 1670.0 | 1670.0 | 1970.0 | 15750.0 | 1955.0 |

Derived:
- ${derived[1]}
`);
});

test("a coarse clock shows its resolution in whole microseconds, an unknown quota a dash", () => {
  const text = markdown({
    clock_resolution_us: 20.000001, cross_origin_isolated: false, storage: { usage_bytes: null, quota_bytes: null },
    config, workloads: [], derived: [],
  });
  assert.match(text, /20 µs \(crossOriginIsolated: false\)/);
  assert.match(text, /estimate\(\): – MB used of – MB/);
});
