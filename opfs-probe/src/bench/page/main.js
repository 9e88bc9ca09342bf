// The page: joins the form, the worker, the progress and the results.

import { formParameters, lockForm, prepareForm } from "./form.js";
import { passNames, plan, readQuery } from "./plan.js";
import { Progress } from "./progress.js";
import { copy, download, showResults } from "./results.js";

const find = (id) => document.getElementById(id);
const form = find("form");
const parameters = new URLSearchParams(location.search);
const query = readQuery(parameters);

let worker = null;
let progress = null;
let shown = null;

prepareForm(form, parameters);
form.addEventListener("submit", (event) => {
  event.preventDefault();
  const { config, problems } = readQuery(formParameters(form));
  showProblems(problems);
  if (config) run(config);
});
find("cancel").addEventListener("click", () => {
  finish("Cancelled");
  startWorker();
});
find("copy").addEventListener("click", async () => {
  const done = await copy(shown.markdown);
  find("copied").textContent = done ? "Copied." : "The browser refused the clipboard; the JSON has the Markdown too.";
});
find("download").addEventListener("click", () => download(shown));

showProblems(query.problems);
startWorker();
if (query.autorun && query.config) setTimeout(() => run(query.config), query.settleSeconds * 1000);
if (query.autorun && !query.config) refuse(query.problems.join(" "));

/** A worker, and with it a connection to the probe, serves one run. */
function startWorker() {
  worker?.terminate();
  worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module", name: "opfs-bench" });
  worker.addEventListener("message", ({ data }) => hear(data));
  worker.addEventListener("error", (event) => {
    fail("WorkerError", `The benchmark's worker could not run: ${event.message || "one of its modules didn't load"}`);
    tellProbe("WorkerError", event.message || "a module didn't load").then(leave);
  });
  worker.postMessage({ do: "connect", token: query.token });
}

function run(config) {
  if (progress) return;
  if (shown) startWorker();
  lockForm(form, true);
  showProblems([]);
  find("results").hidden = true;
  find("cancel").hidden = false;
  find("progress").hidden = false;
  progress = new Progress(find("bars"), find("status"), plan(config), passNames(config).length);
  worker.postMessage({ do: "run", config });
}

function hear(message) {
  if (message.kind === "probe") showProbe(message);
  if (message.kind === "progress") progress?.show(message);
  if (message.kind === "result") {
    shown = message.result;
    showResults(find("results"), message);
    find("summary").textContent = summary(message);
    finish("Done");
    if (query.autorun) leave(message.sent);
    else find("results-title").focus();
  }
  if (message.kind === "problem") {
    fail(message.name, message.message);
    startWorker();
    if (query.autorun) leave(message.sent);
  }
}

function finish(text) {
  progress?.finish(text);
  progress = null;
  find("cancel").hidden = true;
  lockForm(form, false);
}

function fail(name, message) {
  showProblems([message]);
  finish(`Stopped: ${name}`);
}

/** Closes the page if asked to, but never with a result that nobody has. */
function leave(sent) {
  if (query.close && sent) window.close();
}

/** A run that was asked for by address and can't start: whoever waits for its result hears why. */
async function refuse(message) {
  document.title = "Not run – OPFS benchmark";
  leave(await tellProbe("BadParameters", message));
}

async function tellProbe(name, message) {
  if (!query.autorun) return false;
  const { connect } = await import("/v1/client.js");
  const probe = await connect({ token: query.token, client: "opfs-bench/1" });
  const sent = probe.result("opfs-bench-error", { name, message });
  await probe.close();
  return sent;
}

function showProblems(problems) {
  const section = find("problems");
  section.replaceChildren(...problems.map((text) => Object.assign(document.createElement("p"), { textContent: text })));
  section.hidden = problems.length === 0;
}

function showProbe({ connected, problem, coverageGaps }) {
  const badge = find("probe");
  badge.dataset.state = connected ? "connected" : "absent";
  badge.textContent = connected ? "A probe answers: syncs are counted." : `Without sync counts: ${problem}.`;
  if (connected && coverageGaps.length) badge.textContent += ` It can't see ${coverageGaps.join("; ")}.`;
}

function summary({ result, syncs, sent, probeProblem }) {
  const counted = Object.values(syncs).some((count) => count !== null);
  const sentences = [`Median of ${result.config.r} runs by total time, after one warm-up.`];
  if (counted) sentences.push("Syncs/call are all sync calls of this browser while the timed loops ran.");
  else sentences.push("No probe counted, so there are no syncs per call.");
  if (!result.cross_origin_isolated) sentences.push("The page isn't cross-origin isolated, so its clock is coarse.");
  if (counted && !sent) sentences.push("The probe didn't get the result.");
  if (counted && probeProblem) sentences.push(`One thing went wrong: ${probeProblem}.`);
  return sentences.join(" ");
}
