// Announces windows to opfs-probe, from any page or worker, in any browser on the same machine:
//
//     import { connect } from "http://127.0.0.1:PORT/v1/client.js";
//     const probe = await connect();
//     await probe.window("save", { calls: 100 }, async () => { … });
//     probe.close();
//
// While a window is open, the probe counts every sync call of this browser for it. A window's work
// starts only once the probe has answered that it counts, so keep clocks inside the function.
//
// Nothing here fails a page: where no probe answers, or it goes away, every call does nothing, and
// `connected` and `problem` say so. (A page that may run on a machine without a probe keeps its own
// copy of this file and passes `url`, or imports it with `import(…).catch(() => null)`.)

const PROTOCOL_VERSION = 1;
const CONNECT_TIMEOUT_MS = 2_000;
const ANSWER_TIMEOUT_MS = 30_000;
const CLOSE_TIMEOUT_MS = 5_000;

/** What the probe refused, with the protocol's `code` for it. */
export class ProbeError extends Error {
  constructor(code, message) {
    super(message);
    this.name = "ProbeError";
    this.code = code;
  }
}

/** One named window. It can be entered again after it ended. */
class Window {
  constructor(id, name, parent, attrs) {
    this.id = id;
    this.name = name;
    this.parent = parent;
    this.attrs = attrs;
    /** Sync calls, and nanoseconds in them, by the last answer to an end; null until there is one. */
    this.syncCalls = null;
    this.syncNs = null;
  }
}

class Client {
  #socket = null;
  #connected = false;
  #stopped = false;
  #problem = null;
  #waiting = new Map();
  #lastId = 0;

  /** The session that the windows belong to, once welcomed. */
  session = null;
  /** Kinds of sync that the probe can't see here, in its words. */
  coverageGaps = [];
  /** Whether the probe has said that its history has this session safely. */
  stored = false;

  get connected() {
    return this.#connected;
  }

  /** Why nothing is announced, or what the probe last refused, in words; null if all is well. */
  get problem() {
    return this.#problem;
  }

  /**
   * A window to enter later, perhaps many times: pass it to `begin` or `window` in a name's place.
   * `parent` is a window or an id. `id` is made up unless given.
   */
  define(name, { parent = null, attrs, id } = {}) {
    return new Window(id ?? `w${++this.#lastId}`, name, parent?.id ?? parent, attrs);
  }

  /**
   * Enters a window, by name or again, and gives it once the probe counts for it. `calls` is how
   * many operations the work is going to make; it adds up when a window is entered again. Rejects
   * with a ProbeError if the probe refuses.
   */
  async begin(nameOrWindow, { calls, ...options } = {}) {
    const window = nameOrWindow instanceof Window ? nameOrWindow : this.define(nameOrWindow, options);
    const { id, name, parent, attrs } = window;
    await this.#ask({ op: "begin", id, name, parent, calls, attrs: options.attrs ?? attrs });
    return window;
  }

  /**
   * Ends a window and gives the probe's answer, with `sync_calls` and `sync_ns`; null where no probe
   * answers. Give `calls` here only if `begin` could not know them.
   */
  async end(window, { calls, attrs } = {}) {
    const answer = await this.#ask({ op: "end", id: window.id, calls, attrs });
    if (answer) {
      window.syncCalls = answer.sync_calls ?? null;
      window.syncNs = answer.sync_ns ?? null;
    }
    return answer;
  }

  /**
   * Runs `work` inside a window and gives what it gives. The work runs, and only its own errors
   * come out, whatever the probe says; a refusal is kept in `problem`.
   */
  async window(nameOrWindow, options, work) {
    const window = nameOrWindow instanceof Window ? nameOrWindow : this.define(nameOrWindow, options);
    const begun = await this.#attempt(() => this.begin(window, options));
    try {
      return await work(window);
    } finally {
      if (begun) await this.#attempt(() => this.end(window));
    }
  }

  /** Hands over data to keep with the session; false where no probe is there to take it. */
  result(name, data) {
    if (!this.#connected) return false;
    this.#socket.send(JSON.stringify({ op: "result", name, data }));
    return true;
  }

  /** Takes leave, once everything sent has arrived. Open windows end as aborted. */
  async close() {
    if (!this.#socket || this.#socket.readyState > 1) return this.#stop(null);
    const socket = this.#socket;
    this.#stop(null);
    await new Promise((resolve) => {
      const timer = setTimeout(resolve, CLOSE_TIMEOUT_MS);
      socket.addEventListener("close", () => {
        clearTimeout(timer);
        resolve();
      });
    });
  }

  /** Called once, by `connect`. Resolves whatever happens. */
  open({ url, token, client, meta, timeout }) {
    return new Promise((resolve) => {
      const stop = (problem) => {
        clearTimeout(timer);
        this.#stop(problem);
        resolve(this);
      };
      const timer = setTimeout(() => stop(`no probe answered at ${url} within ${timeout} ms`), timeout);
      try {
        this.#socket = new WebSocket(url);
      } catch (error) {
        stop(`no connection to ${url || "a probe"}: ${error.message}`);
        return;
      }
      let opened = false;
      this.#socket.addEventListener("open", () => {
        opened = true;
        this.#socket.send(JSON.stringify({ op: "hello", v: PROTOCOL_VERSION, client, token: token ?? undefined, meta }));
      });
      this.#socket.addEventListener("close", () => {
        stop(opened ? "the probe closed the connection" : `no probe answered at ${url}`);
      });
      this.#socket.addEventListener("message", ({ data }) => {
        const message = parse(data);
        if (message?.op === "welcome" && !this.#connected) {
          clearTimeout(timer);
          this.#connected = this.#socket.readyState === 1;
          this.session = message.session ?? null;
          this.coverageGaps = message.coverage_gaps ?? [];
          resolve(this);
        } else if (message?.op === "error" && !this.#connected) {
          stop(`the probe refused: ${message.message} (${message.code})`);
        } else {
          this.#hear(message);
        }
      });
    });
  }

  #hear(message) {
    if (message?.op === "stored") {
      this.stored = true;
    } else if (message?.op === "ack") {
      this.#settle(message.id, ({ resolve }) => resolve(message));
    } else if (message?.op === "error") {
      const error = new ProbeError(message.code, message.message);
      this.#problem = inWords(error);
      this.#settle(message.id, ({ reject }) => reject(error));
    }
    // Anything else is from a newer protocol, and none of our business.
  }

  /** Sends a request and waits for its answer; null where no probe answers. */
  async #ask(request) {
    if (!this.#connected) return null;
    const text = JSON.stringify(request);
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => this.#stop("the probe stopped answering"), ANSWER_TIMEOUT_MS);
      const queue = this.#waiting.get(request.id) ?? [];
      this.#waiting.set(request.id, [...queue, { resolve, reject, timer }]);
      this.#socket.send(text);
    });
  }

  /** Answers the oldest request about a window: the probe answers each window's in their order. */
  #settle(id, answer) {
    const [oldest, ...rest] = this.#waiting.get(id) ?? [];
    if (!oldest) return;
    if (rest.length) this.#waiting.set(id, rest);
    else this.#waiting.delete(id);
    clearTimeout(oldest.timer);
    answer(oldest);
  }

  async #attempt(announce) {
    try {
      await announce();
      return true;
    } catch (error) {
      this.#problem = inWords(error);
      return false;
    }
  }

  /** From here on every call does nothing; those under way get null. */
  #stop(problem) {
    if (this.#stopped) return;
    this.#stopped = true;
    this.#connected = false;
    this.#problem = problem ?? this.#problem;
    for (const id of [...this.#waiting.keys()]) {
      while (this.#waiting.has(id)) this.#settle(id, ({ resolve }) => resolve(null));
    }
    if (this.#socket && this.#socket.readyState <= 1) this.#socket.close();
  }
}

let latest = null;

/**
 * Connects to the probe that served this module, or to `url` (ws://127.0.0.1:PORT/v1/windows).
 * Always gives a client. `token` is needed unless the page is the probe's own; `client` names the
 * program and its version; `meta` is taken and, so far, not kept;
 * `timeout` is how many milliseconds the connection may take, 2000 unless given.
 */
export function connect({ url = ownUrl(), token, client = "opfs-probe-client/1", meta, timeout = CONNECT_TIMEOUT_MS } = {}) {
  latest = new Client().open({ url, token, client, meta, timeout });
  return latest;
}

// The same for a page that needs one connection only: the latest, or one made at first use.

/** See `Client.begin`. */
export async function begin(name, options) {
  return (await (latest ?? connect())).begin(name, options);
}

/** See `Client.end`. */
export async function end(window, options) {
  return (await (latest ?? connect())).end(window, options);
}

/** See `Client.window`. */
async function announce(name, options, work) {
  return (await (latest ?? connect())).window(name, options, work);
}
export { announce as window };

function ownUrl() {
  const { protocol, host } = new URL(import.meta.url);
  if (!host) return "";
  return `${protocol === "https:" ? "wss" : "ws"}://${host}/v1/windows`;
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function inWords(error) {
  return error instanceof ProbeError
    ? `the probe refused: ${error.message} (${error.code})`
    : `not announced: ${error.message}`;
}
