/** Where answers come from: the server, the model in this file, or, in a file without a model, the one answer that was saved. */

import { byId, nextTask } from "./dom.js";
import { partsOf } from "./sentences.js";

/** @typedef {{resolve: (json: any) => void, reject: (error: Error) => void, onText?: (text: string) => void}} Waiting */

/** What a single file holds: a model’s description and one trace. Null on a server’s page. */
export const saved = byId("saved") ? JSON.parse(byId("saved").textContent) : null;
/** Whether a model is in this file. */
export const inside = saved !== null && saved.inside !== undefined;
/** Whether there is somebody to ask. */
export const live = saved === null || inside;

/** @type {Map<number, Waiting>} */ const waiting = new Map();
/** @type {Worker|undefined} */ let worker;
/** @type {Worker|undefined} */ let trained; // a network that is trained here
let requests = 0;

/** Start the model of this file beside the page. Its weights are handed over in parts, so that the page stays quick meanwhile. */
async function begin() {
  if (document.readyState === "loading") await new Promise((resolve) => { document.addEventListener("DOMContentLoaded", resolve, { once: true }); });
  for (const part of document.querySelectorAll("script.weights")) {
    worker?.postMessage({ part: part.textContent });
    part.remove();
    await nextTask();
  }
  worker?.postMessage({ model: saved.inside });
}

function made() {
  const found = new Worker(URL.createObjectURL(new Blob([byId("worker").textContent], { type: "text/javascript" })));
  const fail = (/** @type {string} */ why) => {
    for (const { reject } of waiting.values()) reject(new Error(why));
    waiting.clear();
  };
  found.onmessage = ({ data: { id, json, error, partial } }) => {
    if (id === undefined) return undefined; // it is about training
    const asked = waiting.get(id);
    if (partial !== undefined) return void asked?.onText?.(partial);
    waiting.delete(id);
    if (error === undefined) asked?.resolve(json);
    else asked?.reject(new Error(error));
    return undefined;
  };
  found.onerror = (event) => fail(`The model in this file has failed: ${event.message}.`);
  return found;
}

/** Begin to train a network of the same kind beside the page, which from then on answers in place of the file’s own. `tell` gets its reports. */
export function train(/** @type {any} */ plan, /** @type {(report: any) => void} */ tell) {
  trained?.terminate();
  trained = made();
  trained.addEventListener("message", ({ data }) => data.id === undefined && tell(data));
  const order = (/** @type {any} */ what) => trained?.postMessage({ train: what });
  order({ about: saved.inside, plan });
  return order;
}

/** Whether a network that is trained here answers. */
export const isTrained = () => trained !== undefined;

/** Let the file’s own model answer again. */
export function forgetTraining() {
  trained?.terminate();
  trained = undefined;
}

/** Let the model of this file begin to load, if there is one. */
export function wake() {
  if (!inside || worker) return;
  worker = made();
  begin();
}

/** @returns {Promise<any>} */
async function fetchJson(/** @type {string} */ path, /** @type {any} */ body) {
  const answer = await fetch(path, body && { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  const json = await answer.json();
  if (!answer.ok) throw new Error(json.error);
  return json;
}

/** @type {Map<string, any>} */ const known = new Map(); // sentences that the model of this file has translated
const KNOWN = 1000;
const LESS = "This file translates each line by itself, mends no numbers and does not say how sure it is: seq2see serve does.";

/** Translate a text by the model of this file, a sentence after the other. */
async function translateInside(/** @type {any} */ { model, input }, /** @type {(line: any) => void} */ onLine, /** @type {AbortSignal} */ signal) {
  if (!known.size && saved.trace) known.set(saved.trace.text, saved.trace); // the file holds what is seen first
  if (known.size > KNOWN) known.clear();
  const parts = partsOf(input, saved.inside.words);
  const sources = parts.flatMap((part) => (typeof part === "string" ? [] : [part.source]));
  onLine({ parts, notes: sources.length > 1 ? [LESS] : [] });
  for (const source of sources) {
    let said;
    try {
      const found = known.get(source) ?? await askTrace({ model, input: source, names: [] }, (draft) => !signal.aborted && onLine({ draft }));
      known.set(source, found);
      said = { output: found.output, finished: found.finished, parts: [{ read: source, ids: [] }] };
    } catch (error) {
      said = { output: source, error: /** @type {Error} */ (error).message };
    }
    if (signal.aborted) return;
    onLine({ sentences: [said] });
  }
}

/** Translate a text sentence by sentence; `onLine` gets the lines of the answer as they come. */
export async function askText(/** @type {any} */ body, /** @type {(line: any) => void} */ onLine, /** @type {AbortSignal} */ signal) {
  if (inside) return translateInside(body, onLine, signal);
  const answer = await fetch("api/text", { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), signal });
  if (!answer.ok || !answer.body) throw new Error((await answer.json()).error);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    const lines = (rest + value).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) onLine(JSON.parse(line));
  }
  return undefined;
}

/** Answer a text and describe the numbers that the request names; `onText` is told what is written so far. @returns {Promise<any>} */
export function askTrace(/** @type {any} */ body, /** @type {((text: string) => void)|undefined} */ onText = undefined) {
  if (!inside) return fetchJson("api/trace", body);
  wake();
  const id = (requests += 1);
  return new Promise((resolve, reject) => {
    waiting.set(id, { resolve, reject, onText });
    (trained ?? worker)?.postMessage({ id, request: body });
  });
}

/** The models, and what the server takes at once. @returns {Promise<{models: any[], limits: {body: number}}>} */
export async function listModels() {
  return saved ? { models: [saved.model], limits: { body: Infinity } } : fetchJson("api/models", null);
}
