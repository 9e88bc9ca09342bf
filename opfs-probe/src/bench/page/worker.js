// The dedicated worker that the benchmark runs in: synchronous file access exists nowhere else.
//
// It hears {do: "connect", token} and {do: "run", config}, and says {kind: "probe" | "progress" |
// "result" | "problem", …}.

import { connect } from "/v1/client.js";
import { derive } from "./derived.js";
import { markdown } from "./markdown.js";
import { peakBytes } from "./plan.js";
import { explain, problems } from "./problems.js";
import { smallestStep } from "./statistics.js";
import { removeStaleFiles, runAll } from "./workloads.js";

const SCHEMA = "opfs-bench.result/1";
const LOCK = "opfs-bench";
const CLOCK_READINGS = 200_000;

// A probe binds the browser's whole process tree before it welcomes us; a busy machine takes a while.
const CONNECT_TIMEOUT_MS = 10_000;

let client = null;

self.addEventListener("message", ({ data }) => {
  if (data.do === "connect") client = find(data.token);
  if (data.do === "run") run(data.config);
});

async function find(token) {
  const found = await connect({
    token,
    client: "opfs-bench/1",
    meta: { user_agent: navigator.userAgent, origin: location.origin },
    timeout: CONNECT_TIMEOUT_MS,
  });
  tell("probe", { connected: found.connected, problem: found.problem, coverageGaps: found.coverageGaps });
  return found;
}

async function run(config) {
  const probe = await client;
  try {
    const { result, syncs } = await alone(() => measure(config, probe));
    const sent = probe.result("opfs-bench", result);
    await probe.close();
    tell("result", { result, syncs, sent, probeProblem: probe.problem });
  } catch (error) {
    const problem = explain(error);
    const sent = probe.result("opfs-bench-error", problem);
    await probe.close();
    tell("problem", { ...problem, sent });
  }
}

/** Two runs in one browser would measure each other. */
async function alone(work) {
  if (!navigator.locks) return work();
  return navigator.locks.request(LOCK, { ifAvailable: true }, (lock) => {
    if (!lock) throw problems.alreadyRunning();
    return work();
  });
}

async function measure(config, probe) {
  const root = await openRoot();
  await removeStaleFiles(root);
  const storage = await estimate();
  const needed = peakBytes(config);
  if (storage.quota_bytes !== null && storage.quota_bytes - storage.usage_bytes < needed) {
    throw problems.quotaTooSmall(needed, Math.max(0, storage.quota_bytes - storage.usage_bytes));
  }
  const about = {
    schema: SCHEMA,
    user_agent: navigator.userAgent,
    platform: navigator.platform,
    hardware_concurrency: navigator.hardwareConcurrency,
    timestamp: new Date().toISOString(),
    clock_resolution_us: clockResolution(),
    cross_origin_isolated: self.crossOriginIsolated,
    storage,
    config,
  };
  const { rows, syncs } = await runAll(config, root, probe, (progress) => tell("progress", progress));
  const result = { ...about, workloads: rows, derived: derive(config, rows) };
  return { result: { ...result, markdown: markdown(result) }, syncs };
}

async function openRoot() {
  if (!self.isSecureContext) throw problems.insecureContext();
  if (!navigator.storage?.getDirectory) throw problems.noDirectory();
  if (!self.FileSystemFileHandle?.prototype.createSyncAccessHandle) throw problems.noSyncAccess();
  return navigator.storage.getDirectory();
}

/** What the browser says of its storage; null where it says nothing. */
async function estimate() {
  const { usage, quota } = (await navigator.storage.estimate?.()) ?? {};
  return { usage_bytes: usage ?? null, quota_bytes: quota ?? null };
}

function clockResolution() {
  const readings = new Float64Array(CLOCK_READINGS);
  for (let i = 0; i < readings.length; i++) readings[i] = performance.now();
  return smallestStep(readings) * 1000;
}

function tell(kind, message) {
  self.postMessage({ kind, ...message });
}
