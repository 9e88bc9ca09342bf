// The results as tables, and ways to take them along.

import { fixed } from "./format.js";
import { COLUMNS, environment } from "./markdown.js";

const TABLES = [
  { kind: "write", caption: "Writes, median run" },
  { kind: "file", caption: "New files, median run" },
];

const SYNC_HEADING = "Syncs/call";

/** Shows a result, and the sync counts where a probe gave them. */
export function showResults(section, { result, syncs }) {
  const tables = TABLES.map(({ kind, caption }) => {
    const rows = result.workloads.filter((row) => row.kind === kind);
    return rows.length ? table(caption, rows, syncs) : "";
  });
  section.querySelector("#tables").replaceChildren(...tables);
  section.querySelector("#derived").replaceChildren(...result.derived.map((line) => element("li", line)));
  section.querySelector("#environment").replaceChildren(
    ...environment(result).flatMap(([label, value]) => [element("dt", label), element("dd", value.replaceAll("`", ""))]),
  );
  section.hidden = false;
}

/** Puts text on the clipboard; false where the browser won't have it. */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

/** Offers a result as a file named after its time. */
export function download(result) {
  const url = URL.createObjectURL(new Blob([JSON.stringify(result, null, 2)], { type: "application/json" }));
  const name = `opfs-bench-${result.timestamp.replaceAll(":", "-")}.json`;
  Object.assign(document.createElement("a"), { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

function table(caption, rows, syncs) {
  const [name, calls, ...times] = COLUMNS;
  const columns = [name, calls, [SYNC_HEADING, (row) => syncsPerCall(syncs[row.name])], ...times];
  const box = element("div");
  box.className = "scroll";
  box.tabIndex = 0;
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", caption);
  const grid = element("table");
  grid.createCaption().textContent = caption;
  const head = grid.createTHead().insertRow();
  for (const [heading] of columns) {
    const cell = element("th", heading);
    cell.scope = "col";
    head.append(cell);
  }
  const body = grid.createTBody();
  for (const row of rows) {
    const line = body.insertRow();
    columns.forEach(([, show], index) => {
      const cell = element(index ? "td" : "th", show(row));
      if (!index) cell.scope = "row";
      line.append(cell);
    });
  }
  box.append(grid);
  return box;
}

function syncsPerCall(count) {
  return count ? fixed(count.syncCalls / count.calls, 2) : "–";
}

function element(name, text = "") {
  return Object.assign(document.createElement(name), { textContent: text });
}
