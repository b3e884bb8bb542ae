/** Where answers come from: the server, the model in this file, or, in a file without a model, the one answer that was saved. */

import { byId, nextTask } from "./dom.js";
import { partsOf } from "./sentences.js";
import { toBase85 } from "./weights.js";

/** @typedef {{resolve: (json: any) => void, reject: (error: Error) => void, onText?: (text: string) => void}} Waiting */

/** What a single file holds: a model’s description and one trace. Null on a server’s page. */
export const saved = byId("saved") ? JSON.parse(byId("saved").textContent) : null;
/** Whether a model is in this file. */
export const inside = saved !== null && saved.inside !== undefined;
/** This page as it was opened, before anything was changed; only that of a small model can be sent on with other weights. */
const opened = inside && saved.model.small ? document.documentElement.outerHTML : "";
/** Whether a model can be asked: on a server or in this file. */
export const live = saved === null || inside;

/** @type {Map<number, Waiting>} */ const waiting = new Map();
/** @type {Worker|undefined} */ let worker;
/** @type {Worker|undefined} */ let trained; // a network that is trained here
let requests = 0;

/** Start the model of this file in a worker. The weights are sent in parts, so that the page stays responsive. */
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
  const found = inside ? new Worker(URL.createObjectURL(new Blob([byId("worker").textContent], { type: "text/javascript" }))) : new Worker("worker.js", { type: "module" });
  const fail = (/** @type {string} */ why) => {
    for (const { reject } of waiting.values()) reject(new Error(why));
    waiting.clear();
  };
  found.onmessage = ({ data: { id, json, error, partial } }) => {
    if (id === undefined) return undefined; // a report about training
    const asked = waiting.get(id);
    if (partial !== undefined) return void asked?.onText?.(partial);
    waiting.delete(id);
    if (error === undefined) asked?.resolve(json);
    else asked?.reject(new Error(error));
    return undefined;
  };
  found.onerror = (event) => fail(`The model in this page has failed: ${event.message}.`);
  return found;
}

/** Begin to train a network in a worker; it answers from then on. `about` describes the model whose shape it has, and `tell` gets its reports. */
export function train(/** @type {any} */ about, /** @type {any} */ plan, /** @type {(report: any) => void} */ tell) {
  trained?.terminate();
  trained = made();
  trained.addEventListener("message", ({ data }) => data.id === undefined && tell(data));
  const order = (/** @type {any} */ what) => trained?.postMessage({ train: what });
  order({ about, plan });
  return order;
}

/** Whether a network that is trained here answers. */
export const isTrained = () => trained !== undefined;

/** End the training: the file’s own model, or the server, answers again. */
export function forgetTraining() {
  trained?.terminate();
  trained = undefined;
}

/** Start to load the model of this file, if there is one. */
export function wake() {
  if (!inside || worker) return;
  worker = made();
  begin();
}

/** Ask the server; a refusal becomes an error. */
async function post(/** @type {string} */ path, /** @type {any} */ body, /** @type {AbortSignal|undefined} */ signal = undefined) {
  const answer = await fetch(path, body && { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), signal });
  if (!answer.ok) throw new Error((await answer.json()).error);
  return answer;
}

/** @returns {Promise<any>} */
const fetchJson = async (/** @type {string} */ path, /** @type {any} */ body) => (await post(path, body)).json();

/** @type {Map<string, any>} */ const known = new Map(); // sentences that the model of this file has translated
const KNOWN = 1000;
const LESS = "This file translates each line by itself, mends no numbers and does not say how sure it is: seq2see serve does.";

/** Translate a text by the model of this file, a sentence after the other. */
async function translateInside(/** @type {any} */ { model, input }, /** @type {(line: any) => void} */ onLine, /** @type {AbortSignal} */ signal) {
  if (!known.size && saved.trace) known.set(saved.trace.text, saved.trace); // the file holds the first answer
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
  const answer = await post("api/text", body, signal);
  const reader = /** @type {ReadableStream} */ (answer.body).pipeThrough(new TextDecoderStream()).getReader();
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
  if (!inside && !trained) return fetchJson("api/trace", body);
  wake();
  const id = (requests += 1);
  return new Promise((resolve, reject) => {
    waiting.set(id, { resolve, reject, onText });
    (trained ?? worker)?.postMessage({ id, request: body });
  });
}

/** A page file whose model is one that was trained here; `text` is answered when it opens. @returns {Promise<Blob>} */
export async function pageFile(/** @type {any} */ model, /** @type {any} */ about, /** @type {Uint8Array<ArrayBuffer>} */ weights, /** @type {string} */ text, /** @type {string} */ own) {
  const page = opened || (await (await post("api/page", { model: own })).text()).replace(/^<!doctype html>\s*/i, "");
  const small = new Uint8Array(await new Response(new Blob([weights]).stream().pipeThrough(new CompressionStream("deflate"))).arrayBuffer());
  const held = JSON.stringify({ model, more: [], trace: { text }, inside: { ...about, packed: small.length } }).replaceAll("<", "\\u003c");
  const file = page.replace(/<script type="text\/plain" class="weights">[^<]*(<\/script>)?/g, "").replace(/<h1><a [^>]*>(.*?)<\/a>/, "<h1>$1")
    .replace(/(id="saved">)[^<]*/, (_, before) => before + held).replace("</body>", () => `<script type="text/plain" class="weights">${toBase85(small)}</script></body>`);
  return new Blob([`<!doctype html>\n${file}`], { type: "text/html" });
}

/** The models, and what the server takes at once. @returns {Promise<{models: any[], limits: {body: number}}>} */
export async function listModels() {
  return saved ? { models: [saved.model], limits: { body: Infinity } } : fetchJson("api/models", null);
}
