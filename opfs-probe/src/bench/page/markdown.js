// The result as a section of a Markdown report. Pure.

import { fixed, grouped, megabytes, resolution, size } from "./format.js";

/** Heading and cell of each column of the results, shared with the page's own table. */
export const COLUMNS = [
  ["Workload", (row) => row.name],
  ["Calls", (row) => grouped(row.calls)],
  ["Bytes/call", (row) => grouped(row.bytes_per_call)],
  ["Total (ms)", (row) => fixed(row.total_ms, 1)],
  ["Total min–max (ms)", (row) => `${fixed(row.total_min_ms, 1)}–${fixed(row.total_max_ms, 1)}`],
  ["ops/s", (row) => grouped(row.ops_per_s)],
  ["MB/s", (row) => fixed(row.mb_per_s, 1)],
  ["p50 (µs)", (row) => fixed(row.p50_us, 1)],
  ["p90 (µs)", (row) => fixed(row.p90_us, 1)],
  ["p99 (µs)", (row) => fixed(row.p99_us, 1)],
  ["max (µs)", (row) => fixed(row.max_us, 1)],
  ["1st call (µs)", (row) => fixed(row.first_call_us, 1)],
];

/** What was measured where, as [label, value] pairs, shared with the page. */
export function environment(result) {
  const { usage_bytes, quota_bytes } = result.storage;
  return [
    ["User agent", `\`${result.user_agent}\``],
    ["Platform", `${result.platform}; hardwareConcurrency: ${result.hardware_concurrency}`],
    ["Timestamp", result.timestamp],
    [
      "performance.now() resolution in the worker",
      `${resolution(result.clock_resolution_us)} µs (crossOriginIsolated: ${result.cross_origin_isolated})`,
    ],
    ["navigator.storage.estimate()", `${megabytes(usage_bytes, 1)} MB used of ${megabytes(quota_bytes, 0)} MB`],
    ["Config", describe(result.config)],
  ];
}

/** A config in one line. */
export function describe(config) {
  const chunks = config.chunks.map(size).join(" / ");
  return `preset=${config.preset}, N=${config.n}, S=${config.s} B, chunks=${chunks}, R=${config.r}, M=${config.m}`;
}

/** From the bold title to the derived lines; the heading above is for whoever joins browsers. */
export function markdown(result) {
  const cells = (values) => `| ${values.join(" | ")} |`;
  return [
    "**OPFS `FileSystemSyncAccessHandle.write()` per-call overhead benchmark**",
    "",
    "Environment:",
    ...environment(result).map(([label, value]) => `- ${label}: ${value}`),
    "",
    `Median run of R=${result.config.r} (by total time) after one warm-up pass; latency percentiles are per call; ` +
      '"1st call" is call number 1 of that run (for the append workloads, the first write into the freshly created file):',
    "",
    cells(COLUMNS.map(([heading]) => heading)),
    `|---|${"---:|".repeat(COLUMNS.length - 1)}`,
    ...result.workloads.map((row) => cells(COLUMNS.map(([, cell]) => cell(row)))),
    "",
    "Derived:",
    ...result.derived.map((line) => `- ${line}`),
    "",
  ].join("\n");
}
