// What can go wrong with OPFS, in words that say what to do. Pure.

import { size } from "./format.js";

/** A problem that the benchmark itself noticed; its message is already in words. */
export class BenchProblem extends Error {
  constructor(name, message) {
    super(message);
    this.name = name;
  }
}

export const problems = {
  insecureContext: () =>
    new BenchProblem("Unsupported", "This browser offers OPFS to secure pages only. Open the page from 127.0.0.1, localhost or https."),
  noDirectory: () =>
    new BenchProblem("Unsupported", "This browser has no origin private file system (OPFS). Chromium has it from version 86, Firefox from 111, Safari from 15.2."),
  noSyncAccess: () =>
    new BenchProblem("Unsupported", "This browser's OPFS has no synchronous access (createSyncAccessHandle). Chromium has it from version 102, Firefox from 111, Safari from 15.2."),
  alreadyRunning: () =>
    new BenchProblem("AlreadyRunning", "Another tab of this browser is running the benchmark on the same files. Wait for it, or close it."),
  quotaTooSmall: (needed, left) =>
    new BenchProblem("QuotaExceededError", `A pass writes a file of ${size(needed)}, and the browser grants this page ${size(left)} more. Choose smaller n or s, or free space on the profile's disk.`),
  shortWrite: (written, expected) =>
    new BenchProblem("ShortWrite", `The browser wrote ${written} of ${expected} bytes without an error. The profile's disk is probably full.`),
};

/** `{name, message}` of any error of a run. */
export function explain(error) {
  const said = error?.message || String(error);
  const name = error?.name || "Error";
  if (error instanceof BenchProblem) return { name, message: said };
  const words = {
    QuotaExceededError:
      "The browser's storage for this page is full. Choose smaller n or s, or free space on the profile's disk.",
    SecurityError:
      "The browser refuses OPFS to this page. Private windows and blocked site data do that: use an ordinary window and allow this site to store data.",
    NotAllowedError:
      "The browser doesn't let this page use OPFS. Allow this site to store data, and use an ordinary window.",
    NoModificationAllowedError:
      "A file of the benchmark is open elsewhere. Close other tabs that run it, and try again.",
    NotFoundError:
      "A file of the benchmark disappeared while it was running. Clearing site data does that; so do two runs at once.",
  }[name];
  return { name, message: words ? `${words} (${said})` : `The benchmark stopped: ${name}: ${said}` };
}
