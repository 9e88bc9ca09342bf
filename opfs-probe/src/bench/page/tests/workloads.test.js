import assert from "node:assert/strict";
import { test } from "node:test";
import { connect } from "../client.js";
import { readQuery } from "../plan.js";
import { removeStaleFiles, runAll } from "../workloads.js";

/** An OPFS root in memory that writes down what is done to it. */
class FakeRoot {
  files = new Map();
  log = [];
  room = Infinity;

  async *keys() {
    yield* this.files.keys();
  }
  async getFileHandle(name) {
    assert.ok(!this.files.has(name), `${name} is fresh`);
    this.files.set(name, 0);
    this.log.push(`create ${name}`);
    const root = this;
    return {
      async createSyncAccessHandle() {
        return {
          write(bytes, { at }) {
            const written = Math.min(bytes.length, root.room - at);
            root.files.set(name, Math.max(root.files.get(name), at + written));
            root.log.push(`write ${bytes.length} at ${at}`);
            return written;
          },
          flush: () => root.log.push("flush"),
          close: () => root.log.push(`close ${root.files.get(name)}`),
        };
      },
    };
  }
  async removeEntry(name) {
    assert.ok(this.files.delete(name), `${name} is there`);
    this.log.push("remove");
  }
}

/** A client that logs its windows beside the file calls. */
function recorder(log) {
  return {
    define: (name, { parent = null } = {}) => ({ name, parent, syncCalls: null, path: parent ? `${parent.path} › ${name}` : name }),
    async window(nameOrWindow, options, work) {
      const window = typeof nameOrWindow === "string" ? this.define(nameOrWindow, options) : nameOrWindow;
      log.push(`begin ${window.path}${options.calls ? ` (${options.calls})` : ""}`);
      const value = await work(window);
      log.push("end");
      window.syncCalls = 21;
      return value;
    },
  };
}

const run = async (query, root = new FakeRoot(), client = recorder(root.log)) => {
  const { config } = readQuery(new URLSearchParams(query));
  const reports = [];
  return { root, reports, ...(await runAll(config, root, client, (report) => reports.push(report))) };
};

test("a write pass: a fresh file around the loop, inside the pass", async () => {
  const { root, rows, syncs, reports } = await run("workloads=append%2Bflush&n=2&s=10&r=1");
  const pass = (name) => [
    `begin append+flush › ${name}`, `create opfs-bench append+flush ${name}`, `begin append+flush › ${name} › loop (2)`,
    "write 10 at 0", "flush", "write 10 at 10", "flush", "end", "close 20", "remove", "end",
  ];
  assert.deepEqual(root.log, ["begin append+flush", ...pass("warm-up"), ...pass("run 1"), "end"]);
  assert.deepEqual(rows.map(({ name, calls, bytes_per_call }) => [name, calls, bytes_per_call]), [["append+flush", 2, 10]]);
  assert.deepEqual(syncs, { "append+flush": { calls: 4, syncCalls: 42 } });
  assert.deepEqual(reports.map(({ pass, done, of }) => [pass, done, of]), [["warm-up", 0, 2], ["run 1", 1, 2], ["done", 2, 2]]);
});

test("an overwritten file has its size before the loop", async () => {
  const { root } = await run("workloads=small-overwrite&n=2&s=10&r=1");
  const loop = root.log.indexOf("begin small-overwrite › run 1 › loop (2)");
  assert.deepEqual(root.log.slice(loop - 1, loop + 5), ["write 10 at 0", root.log[loop], "write 10 at 0", "write 10 at 0", "end", "close 10"]);
});

test("chunks end in a rest, so that the bytes are the same", async () => {
  const { root } = await run("workloads=chunked-append&n=25&s=1&chunks=10&r=1");
  assert.deepEqual(root.log.filter((line) => line.startsWith("write")).slice(0, 3), ["write 10 at 0", "write 10 at 10", "write 5 at 20"]);
});

test("new-file: four windows under the loop, each entered once a file", async () => {
  const { root, rows, syncs } = await run("workloads=new-file&m=2&s=10&r=1");
  const loop = "new-file › run 1 › loop";
  const file = (number) => [
    `begin ${loop} › create+open (1)`, `create opfs-bench new-file run 1 ${number}`, "end", `begin ${loop} › first write (1)`, "write 10 at 0", "end",
    `begin ${loop} › close (1)`, "close 10", "end", `begin ${loop} › delete (1)`, "remove", "end",
  ];
  const start = root.log.indexOf("begin new-file › run 1");
  assert.deepEqual(root.log.slice(start), ["begin new-file › run 1", `begin ${loop} (2)`, ...file(1), ...file(2), "end", "end", "end"]);
  assert.deepEqual(rows.map(({ name }) => name), ["create+open", "first write", "close", "delete", "full cycle"].map((step) => `new-file: ${step}`));
  assert.deepEqual(rows.map((row) => row.bytes_per_call), [null, 10, null, null, 10]);
  const [create, write, close, remove, cycle] = rows.map((row) => row.total_ms);
  assert.ok(Math.abs(create + write + close + remove - cycle) < 1e-9);
  assert.deepEqual(syncs["new-file: full cycle"], { calls: 4, syncCalls: 42 });
});

test("it runs the same without a probe, then without counts", async () => {
  const client = await connect({});
  const { rows, syncs, root } = await run("n=3&s=10&r=2&m=2&chunks=20", new FakeRoot(), client);
  assert.equal(rows.length, 9);
  assert.ok(Object.values(syncs).every((count) => count === null));
  assert.equal(root.files.size, 0);
});

test("a disk that fills up is said in words, and the file is gone", async () => {
  const root = new FakeRoot();
  root.room = 15;
  for (const workload of ["small-append", "new-file"]) {
    await assert.rejects(run(`workloads=${workload}&n=2&s=${workload === "new-file" ? 20 : 10}&r=1&m=1`, root), { name: "ShortWrite" });
    assert.equal(root.files.size, 0, workload);
  }
});

test("stale files go, others stay", async () => {
  const root = new FakeRoot();
  root.files = new Map([["opfs-bench new-file run 1 7", 1], ["somebody's", 1]]);
  await removeStaleFiles(root);
  assert.deepEqual([...root.files.keys()], ["somebody's"]);
});
