// What is going to run: presets, the parameters that change them, and the list of workloads they
// come to. Pure: text in, a plan or complaints out.

import { size } from "./format.js";

export const PRESETS = {
  quick: { n: 2000, s: 4096, chunks: [65536, 1048576], r: 3, m: 200 },
  full: { n: 10000, s: 4096, chunks: [65536, 1048576], r: 5, m: 1000 },
};

/** In the order they run and are reported. */
export const WORKLOADS = ["small-append", "small-overwrite", "chunked-append", "append+flush", "new-file"];

export const NEW_FILE_STEPS = ["create+open", "first write", "close", "delete"];

const MEBIBYTE = 1024 * 1024;

/** Inclusive. They keep a slip of the finger from filling a disk or a browser's memory. */
export const LIMITS = {
  n: [1, 1_000_000],
  s: [1, 64 * MEBIBYTE],
  r: [1, 100],
  m: [1, 100_000],
  chunk: [1, 256 * MEBIBYTE],
  chunkCount: 8,
  fileBytes: 4096 * MEBIBYTE,
  settle: [0, 3600],
};

const PARAMETERS = ["preset", "n", "s", "r", "m", "chunks", "workloads", "autorun", "close", "settle", "token"];

/**
 * Reads a page's query. Gives `{config, autorun, close, settleSeconds, token, problems}`; `config`
 * is null as soon as there is one problem, because half-understood parameters would measure
 * something nobody asked for.
 */
export function readQuery(parameters) {
  const problems = [];
  for (const name of new Set(parameters.keys())) {
    if (!PARAMETERS.includes(name)) {
      problems.push(`There is no parameter “${name}”; there are ${PARAMETERS.join(", ")}.`);
    } else if (parameters.getAll(name).length > 1) {
      problems.push(`“${name}” is given more than once.`);
    }
  }
  const autorun = readSwitch(parameters, "autorun", problems);
  const close = readSwitch(parameters, "close", problems);
  const settleSeconds = readNumber(parameters, "settle", 0, LIMITS.settle, problems);
  const config = readConfig(parameters, problems);
  const token = parameters.get("token") || null;
  return { config: problems.length ? null : config, autorun, close, settleSeconds, token, problems };
}

/** Every workload of a config, `chunked-append` once for each chunk size, in running order. */
export function plan(config) {
  const fileBytes = config.n * config.s;
  const workloads = config.workloads.map((name) => {
    if (name === "new-file") {
      return { name, kind: "file", calls: config.m, bytesPerCall: config.s };
    }
    const chunk = config.chunks.find((bytes) => name === chunkedName(bytes));
    const bytesPerCall = Math.min(chunk ?? config.s, fileBytes);
    return {
      name,
      kind: "write",
      calls: Math.ceil(fileBytes / bytesPerCall),
      bytesPerCall,
      totalBytes: fileBytes,
      overwrites: name === "small-overwrite",
      flushes: name === "append+flush",
    };
  });
  return workloads;
}

/** The most that a run has in OPFS at any moment: every pass deletes its file before the next. */
export function peakBytes(config) {
  return Math.max(0, ...plan(config).map((workload) => workload.totalBytes ?? workload.bytesPerCall));
}

/** "warm-up", "run 1", "run 2", … */
export function passNames(config) {
  return ["warm-up", ...Array.from({ length: config.r }, (_, index) => `run ${index + 1}`)];
}

/** "4096", "4 KiB", "4KiB" or "1MiB" in bytes; null for anything else. */
export function parseSize(text) {
  const match = /^(\d{1,12})\s*(B|KiB|MiB)?$/i.exec(text.trim());
  if (!match) return null;
  const unit = { b: 1, kib: 1024, mib: MEBIBYTE }[(match[2] ?? "B").toLowerCase()];
  return Number(match[1]) * unit;
}

function chunkedName(bytes) {
  return `chunked-append (${size(bytes)})`;
}

function readConfig(parameters, problems) {
  const name = parameters.get("preset") ?? "quick";
  if (!Object.hasOwn(PRESETS, name)) {
    problems.push(`There is no preset “${name}”; there are ${Object.keys(PRESETS).join(" and ")}.`);
    return null;
  }
  const preset = PRESETS[name];
  const config = {
    preset: name,
    n: readNumber(parameters, "n", preset.n, LIMITS.n, problems),
    s: readSize(parameters, "s", preset.s, LIMITS.s, problems),
    chunks: readChunks(parameters, preset.chunks, problems),
    r: readNumber(parameters, "r", preset.r, LIMITS.r, problems),
    m: readNumber(parameters, "m", preset.m, LIMITS.m, problems),
  };
  config.workloads = readWorkloads(parameters, config.chunks, problems);
  if (config.n * config.s > LIMITS.fileBytes) {
    problems.push(`n × s is ${size(config.n * config.s)} a file; ${size(LIMITS.fileBytes)} is the most.`);
  }
  for (const bytes of config.chunks) {
    if (config.workloads.includes(chunkedName(bytes)) && (config.n * config.s) / bytes > LIMITS.n[1]) {
      problems.push(`Chunks of ${size(bytes)} would take more than ${LIMITS.n[1]} calls a file.`);
    }
  }
  const same = (key) => String(config[key]) === String(preset[key]);
  if (!["n", "s", "chunks", "r", "m"].every(same)) config.preset = "custom";
  return config;
}

function readSwitch(parameters, name, problems) {
  const text = parameters.get(name) ?? "0";
  if (text !== "0" && text !== "1") problems.push(`“${name}” is 0 or 1, not “${text}”.`);
  return text === "1";
}

function readNumber(parameters, name, fallback, [least, most], problems) {
  const text = parameters.get(name);
  if (text === null) return fallback;
  const value = /^\d{1,12}$/.test(text.trim()) ? Number(text) : NaN;
  if (value >= least && value <= most) return value;
  problems.push(`“${name}” is a whole number from ${least} to ${most}, not “${text}”.`);
  return fallback;
}

function readSize(parameters, name, fallback, [least, most], problems) {
  const text = parameters.get(name);
  if (text === null) return fallback;
  const value = parseSize(text);
  if (value !== null && value >= least && value <= most) return value;
  problems.push(`“${name}” is a size from ${size(least)} to ${size(most)}, such as 4096 or 4 KiB, not “${text}”.`);
  return fallback;
}

function readChunks(parameters, fallback, problems) {
  const text = parameters.get("chunks");
  if (text === null) return fallback;
  const [least, most] = LIMITS.chunk;
  const chunks = text.split(",").map(parseSize);
  if (chunks.some((value) => value === null || value < least || value > most)) {
    problems.push(`“chunks” is a list of sizes up to ${size(most)}, such as 64KiB,1MiB, not “${text}”.`);
  } else if (new Set(chunks).size !== chunks.length) {
    problems.push(`“chunks” names a size twice: “${text}”.`);
  } else if (chunks.length > LIMITS.chunkCount) {
    problems.push(`“chunks” names ${chunks.length} sizes; ${LIMITS.chunkCount} are the most.`);
  } else {
    return chunks;
  }
  return fallback;
}

function readWorkloads(parameters, chunks, problems) {
  const expand = (name) => (name === "chunked-append" ? chunks.map(chunkedName) : [name]);
  const known = WORKLOADS.flatMap(expand);
  const text = parameters.get("workloads");
  if (text === null) return known;
  if (text.trim() === "") {
    problems.push("Choose at least one workload.");
    return [];
  }
  const chosen = new Set();
  for (const part of text.split(",")) {
    // An unescaped + in a query reads as a space.
    const name = part.trim() === "append flush" ? "append+flush" : part.trim();
    const names = expand(name);
    if (names.every((one) => known.includes(one))) names.forEach((one) => chosen.add(one));
    else problems.push(`There is no workload “${name}”; there are ${WORKLOADS.join(", ")}.`);
  }
  return known.filter((name) => chosen.has(name));
}
