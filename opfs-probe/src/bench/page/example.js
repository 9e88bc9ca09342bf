// An ordinary page that saves notes, and asks the probe what that made the browser sync.

import { connect } from "/v1/client.js";

const NOTES = 20;
const token = new URLSearchParams(location.search).get("token");
const probe = await connect({ token, client: "opfs-probe-example/1" });
const database = await openNotes();

document.getElementById("save").addEventListener("click", async () => {
  const notes = await probe.begin("save notes", { calls: NOTES });
  await saveNotes(NOTES);
  const answer = await probe.end(notes);
  say(answer ? `${answer.sync_calls} sync calls for ${NOTES} notes.` : `Saved; nothing counted: ${probe.problem}.`);
});

async function saveNotes(count) {
  for (let number = 1; number <= count; number++) {
    const transaction = database.transaction("notes", "readwrite", { durability: "strict" });
    transaction.objectStore("notes").put(`Note ${number}`, number);
    await new Promise((resolve, reject) => {
      transaction.oncomplete = resolve;
      transaction.onabort = () => reject(transaction.error);
    });
  }
}

function openNotes() {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open("opfs-probe-example", 1);
    request.onupgradeneeded = () => request.result.createObjectStore("notes");
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

function say(text) {
  document.getElementById("answer").textContent = text;
}
