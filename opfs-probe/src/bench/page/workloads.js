// The workloads: what is timed, and the windows around it. Every pass has a fresh file of its own,
// in the root of OPFS: a directory in between would add to what a browser does for each file.

import { problems } from "./problems.js";
import { NEW_FILE_STEPS, passNames, plan } from "./plan.js";
import { summarise } from "./statistics.js";

const FILE_PREFIX = "opfs-bench ";
const FILL = 0xa5;

/** Removes what an aborted run left behind. */
export async function removeStaleFiles(root) {
  const stale = [];
  for await (const name of root.keys()) if (name.startsWith(FILE_PREFIX)) stale.push(name);
  for (const name of stale) await root.removeEntry(name, { recursive: true });
}

/**
 * Runs every workload of a config and gives `{rows, syncs}`: the result's rows, and by row name the
 * probe's `{calls, syncCalls}` over all passes, where it counted. `report` hears of each pass as it
 * starts and of each workload as it ends.
 */
export async function runAll(config, root, client, report) {
  const rows = [];
  const syncs = {};
  for (const workload of plan(config)) {
    const run = workload.kind === "file" ? runNewFilePass : runWritePass;
    const names = passNames(config);
    const passes = [];
    await client.window(workload.name, {}, async (parent) => {
      for (const [index, name] of names.entries()) {
        report({ workload: workload.name, pass: name, done: index, of: names.length });
        const pass = client.define(name, { parent });
        const loop = client.define("loop", { parent: pass });
        passes.push(await client.window(pass, {}, () => run(workload, fileName(workload, name), root, client, loop)));
      }
    });
    for (const series of workload.kind === "file" ? newFileSeries(workload, passes) : [{ ...workload, passes }]) {
      const [warmUp, ...runs] = series.passes;
      rows.push(summarise(series, warmUp, runs));
      syncs[series.name] = addUp(series.passes);
    }
    report({ workload: workload.name, pass: "done", done: names.length, of: names.length, total_ms: rows.at(-1).total_ms });
  }
  return { rows, syncs };
}

/** One pass over one file: created before and deleted after its loop, inside its pass window. */
async function runWritePass(workload, name, root, client, loop) {
  const { calls, bytesPerCall, totalBytes, overwrites, flushes } = workload;
  const record = new Uint8Array(bytesPerCall).fill(FILL);
  const lastRecord = record.subarray(0, totalBytes - (calls - 1) * bytesPerCall);
  const latencies = new Float64Array(calls);
  const step = overwrites ? 0 : bytesPerCall;

  const file = await root.getFileHandle(name, { create: true });
  try {
    const access = await file.createSyncAccessHandle();
    try {
      if (overwrites) access.write(record, { at: 0 });
      let started;
      let finished;
      await client.window(loop, { calls }, () => {
        const position = { at: 0 };
        let written = 0;
        started = performance.now();
        for (let call = 0; call < calls; call++) {
          const bytes = call === calls - 1 ? lastRecord : record;
          const before = performance.now();
          written += access.write(bytes, position);
          if (flushes) access.flush();
          latencies[call] = performance.now() - before;
          position.at += step;
        }
        finished = performance.now();
        if (written !== totalBytes) throw problems.shortWrite(written, totalBytes);
      });
      return { ...interval(started, finished), total_ms: finished - started, latencies, counted: loop };
    } finally {
      access.close();
    }
  } finally {
    await root.removeEntry(name);
  }
}

/** One pass over many files, each created, written, closed and deleted, with a window a step. */
async function runNewFilePass(workload, name, root, client, loop) {
  const { calls, bytesPerCall } = workload;
  const record = new Uint8Array(bytesPerCall).fill(FILL);
  const start = { at: 0 };
  const steps = NEW_FILE_STEPS.map((step) => ({
    latencies: new Float64Array(calls),
    window: client.define(step, { parent: loop }),
  }));
  const timed = ({ latencies, window }, index, work) =>
    client.window(window, { calls: 1 }, async () => {
      const before = performance.now();
      await work();
      latencies[index] = performance.now() - before;
    });
  const [create, write, close, remove] = steps;

  let started;
  let finished;
  await client.window(loop, { calls }, async () => {
    started = performance.now();
    for (let index = 0; index < calls; index++) {
      const path = `${name} ${index + 1}`;
      let access;
      let written;
      try {
        await timed(create, index, async () => {
          const file = await root.getFileHandle(path, { create: true });
          access = await file.createSyncAccessHandle();
        });
        await timed(write, index, () => {
          written = access.write(record, start);
        });
        if (written !== bytesPerCall) throw problems.shortWrite(written, bytesPerCall);
      } catch (error) {
        access?.close();
        await root.removeEntry(path).catch(() => {});
        throw error;
      }
      await timed(close, index, () => access.close());
      await timed(remove, index, () => root.removeEntry(path));
    }
    finished = performance.now();
  });
  return { ...interval(started, finished), steps, counted: loop };
}

/** The rows of new-file: one for each step, and one for the four together. */
function newFileSeries({ kind, bytesPerCall, calls }, passes) {
  const series = (step, bytes, pick) => ({
    name: `new-file: ${step}`,
    kind,
    bytesPerCall: bytes,
    totalBytes: bytes === null ? null : bytes * calls,
    passes: passes.map((pass) => {
      const { latencies, window } = pick(pass);
      return { ...pass, latencies, counted: window, total_ms: latencies.reduce((sum, value) => sum + value, 0) };
    }),
  });
  const wholeCycle = ({ steps, counted }) => ({
    latencies: Float64Array.from({ length: calls }, (_, index) => steps.reduce((sum, step) => sum + step.latencies[index], 0)),
    window: counted,
  });
  return [
    ...NEW_FILE_STEPS.map((step, index) => series(step, step === "first write" ? bytesPerCall : null, (pass) => pass.steps[index])),
    series("full cycle", bytesPerCall, wholeCycle),
  ];
}

/** The probe's count over the passes; null unless it counted for every one of them. */
function addUp(passes) {
  const counts = passes.map((pass) => pass.counted.syncCalls);
  if (counts.includes(null)) return null;
  return {
    calls: passes.reduce((sum, pass) => sum + pass.latencies.length, 0),
    syncCalls: counts.reduce((sum, count) => sum + count, 0),
  };
}

function interval(started, finished) {
  return {
    started_epoch_ms: performance.timeOrigin + started,
    finished_epoch_ms: performance.timeOrigin + finished,
  };
}

function fileName(workload, pass) {
  return `${FILE_PREFIX}${workload.name} ${pass}`;
}
