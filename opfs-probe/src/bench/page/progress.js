// Progress: one bar a workload. Nothing moves while a pass is being timed, because drawing takes
// the processor from what is measured.

import { fixed } from "./format.js";

export class Progress {
  #status;
  #bars = new Map();

  /** Shows an empty bar for every workload. */
  constructor(list, status, workloads, passes) {
    this.#status = status;
    list.replaceChildren(...workloads.map(({ name }) => this.#bar(name, passes)));
  }

  /** Shows what the worker reports: a pass that starts, or a workload that is done. */
  show({ workload, pass, done, of, total_ms: total }) {
    const { bar, state } = this.#bars.get(workload);
    bar.value = done;
    state.textContent = pass === "done" ? `median ${fixed(total, 1)} ms` : pass;
    if (pass === "done") return;
    this.#status.textContent = `${workload}: ${pass} (pass ${done + 1} of ${of})`;
    if (done === 0) document.title = `${this.#place(workload)} ${workload} – OPFS benchmark`;
  }

  /** The last word on a run. */
  finish(text) {
    this.#status.textContent = text;
    document.title = `${text} – OPFS benchmark`;
  }

  /** "2/6": which of the workloads. The title changes only here: browsers store titles, and sync. */
  #place(workload) {
    return `${[...this.#bars.keys()].indexOf(workload) + 1}/${this.#bars.size}`;
  }

  #bar(name, passes) {
    const item = document.createElement("li");
    const label = Object.assign(document.createElement("span"), { textContent: name, className: "name" });
    const bar = Object.assign(document.createElement("progress"), { max: passes, value: 0 });
    bar.setAttribute("aria-label", name);
    const state = Object.assign(document.createElement("span"), { textContent: "waiting", className: "hint" });
    item.append(label, bar, state);
    this.#bars.set(name, { bar, state });
    return item;
  }
}
