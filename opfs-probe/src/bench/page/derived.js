// What follows from the rows taken together, one sentence each. Pure.

import { fixed, grouped, megabytes, size } from "./format.js";

/** A first call this many times the 99th percentile is worth pointing at. */
const FAR_ABOVE = 2;

/** The sentences that the rows at hand allow; a workload that didn't run is in none of them. */
export function derive(config, rows) {
  const row = (name) => rows.find((one) => one.name === name);
  const append = row("small-append");
  return [
    ...aboutGrowth(append, row("small-overwrite")),
    ...aboutChunks(config, append, rows.filter(isChunked)),
    ...aboutFlush(append, row("append+flush")),
    ...rows.filter(growsFreshFile).map(aboutFirstCall),
    ...aboutNewFiles(config, append, row),
  ];
}

const us = (value) => `${fixed(value, 1)} µs`;
const isChunked = ({ name }) => name.startsWith("chunked-append");
const growsFreshFile = (row) => row.kind === "write" && row.name !== "small-overwrite";

function aboutGrowth(append, overwrite) {
  const lines = [];
  if (overwrite) {
    lines.push(`Fixed per-call floor (small-overwrite, size never changes): ${us(overwrite.mean_us)}/call mean, ${us(overwrite.p50_us)} p50`);
  }
  if (append) {
    lines.push(`Size-growing write (small-append): ${us(append.mean_us)}/call mean, ${us(append.p50_us)} p50`);
  }
  if (append && overwrite) {
    const mean = us(append.mean_us - overwrite.mean_us);
    const p50 = us(append.p50_us - overwrite.p50_us);
    lines.push(`Extra cost per call when the write grows the file (append − overwrite): ${mean} mean, ${p50} p50`);
  }
  return lines;
}

function aboutChunks(config, append, chunked) {
  if (!append) return [];
  const small = `${grouped(append.calls)} × ${size(append.bytes_per_call)}`;
  return chunked.map((row) => {
    const calls = `${grouped(row.calls)} × ${size(row.bytes_per_call)} calls`;
    return (
      `Same ${megabytes(config.n * config.s, 1)} MB in ${calls}: ${fixed(row.total_ms, 1)} ms (${fixed(row.mb_per_s, 0)} MB/s)` +
      ` vs ${fixed(append.total_ms, 1)} ms for ${small}; the small calls are ${comparison(append.total_ms, row.total_ms)} for the same bytes`
    );
  });
}

function comparison(small, large) {
  return small < large ? `${fixed(large / small, 1)}× faster` : `${fixed(small / large, 1)}× slower`;
}

function aboutFlush(append, flushed) {
  if (!append || !flushed) return [];
  const extra = us(flushed.mean_us - append.mean_us);
  return [`flush() after every write adds ${extra}/call on top of small-append (append+flush: ${us(flushed.mean_us)}/call mean)`];
}

function aboutFirstCall(row) {
  const firsts = row.runs.map((run) => run.first_call_us);
  const range = `${fixed(Math.min(...firsts), 1)}–${us(Math.max(...firsts))}`;
  const note = row.first_call_us > FAR_ABOVE * row.p99_us ? " (far above p99)" : "";
  return (
    `${row.name}: first call into the fresh file ${us(row.first_call_us)}` +
    ` vs p50 ${fixed(row.p50_us, 1)} / p99 ${us(row.p99_us)}; across runs ${range}${note}`
  );
}

function aboutNewFiles(config, append, row) {
  const cycle = row("new-file: full cycle");
  if (!cycle) return [];
  const milliseconds = (name) => row(`new-file: ${name}`).mean_us / 1000;
  const [create, write, close, remove] = ["create+open", "first write", "close", "delete"].map(milliseconds);
  const parts = `create+open ${fixed(create, 1)} + first write ${fixed(write, 1)} + close ${fixed(close, 1)} + delete ${fixed(remove, 1)} ms`;
  const versus = append ? ` vs ${us(append.mean_us)} per small-append call` : "";
  return [
    `new-file: ${fixed(cycle.mean_us / 1000, 1)} ms per file (${grouped(cycle.ops_per_s)} files/s) = ${parts}`,
    `new-file without delete (what populating OPFS pays per file): ${fixed(create + write + close, 1)} ms`,
    `First write into a new file (${size(config.s)}): ${us(write * 1000)}${versus}`,
  ];
}
