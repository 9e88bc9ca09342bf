// The form: what to run, as the same parameters that the page's address takes.

import { PRESETS, WORKLOADS } from "./plan.js";
import { size } from "./format.js";

const EXPLAINED = {
  "small-append": "S bytes at the end of a growing file, N times",
  "small-overwrite": "the same S bytes again, N times",
  "chunked-append": "the bytes of small-append in larger calls",
  "append+flush": "small-append with flush() after every write",
  "new-file": "create, write, close and delete M files",
};

/** Fills the form's lists and its fields from parameters, and keeps fields and preset in step. */
export function prepareForm(form, parameters) {
  const preset = form.elements.preset;
  for (const name of Object.keys(PRESETS)) preset.append(new Option(name, name));
  form.querySelector("#workloads").append(...WORKLOADS.map(choice));
  preset.addEventListener("change", () => fill(form, PRESETS[preset.value]));

  const chosen = parameters.get("preset") ?? "quick";
  preset.value = Object.hasOwn(PRESETS, chosen) ? chosen : "quick";
  fill(form, PRESETS[preset.value]);
  for (const name of ["n", "s", "chunks", "r", "m"]) {
    if (parameters.has(name)) form.elements[name].value = parameters.get(name);
  }
  const workloads = parameters.get("workloads")?.split(",").map((name) => name.trim().replace("append flush", "append+flush"));
  if (workloads) {
    for (const box of form.elements.workload) {
      box.checked = workloads.some((name) => name === box.value || name.startsWith(`${box.value} (`));
    }
  }
}

/** The form's state as parameters, for `readQuery`. */
export function formParameters(form) {
  const names = ["preset", "n", "s", "chunks", "r", "m"];
  const parameters = new URLSearchParams(names.map((name) => [name, form.elements[name].value]));
  const workloads = [...form.elements.workload].filter((box) => box.checked).map((box) => box.value);
  parameters.set("workloads", workloads.join(","));
  return parameters;
}

/** While a run lasts nothing can be changed. */
export function lockForm(form, locked) {
  for (const field of form.querySelectorAll("input, select, button[type=submit]")) field.disabled = locked;
}

function fill(form, { n, s, chunks, r, m }) {
  const values = { n, s: size(s), chunks: chunks.map(size).join(", "), r, m };
  for (const [name, value] of Object.entries(values)) form.elements[name].value = value;
}

function choice(name) {
  const label = document.createElement("label");
  const box = Object.assign(document.createElement("input"), { type: "checkbox", name: "workload", value: name, checked: true });
  const title = Object.assign(document.createElement("span"), { textContent: name, className: "name" });
  const hint = Object.assign(document.createElement("span"), { textContent: EXPLAINED[name], className: "hint" });
  label.append(box, title, hint);
  return label;
}
