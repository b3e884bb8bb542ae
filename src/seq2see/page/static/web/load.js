/** Loads a model for a page or a Node program. The model runs in a worker if one can be started. */

import { Answering } from "./answering.js";

/** Return the address of a folder, with a slash at its end. */
async function folderOf(/** @type {string|URL} */ given) {
  const text = String(given).replace(/\/?$/u, "/");
  if (/^[a-z][a-z\d+.-]+:/iu.test(text)) return text;
  if (typeof document !== "undefined" || typeof location !== "undefined") return new URL(text, globalThis.document?.baseURI ?? location.href).href;
  const { pathToFileURL } = await import(/* @vite-ignore */ /* webpackIgnore: true */ `${"node:"}url`);
  return new URL(pathToFileURL(text).href.replace(/\/?$/u, "/")).href;
}

/** Start a worker of the browser or of Node. Return null if there are no workers, or if the page may not start one. @returns {Promise<any>} */
async function newWorker() {
  try {
    if (typeof Worker !== "undefined") return new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
    const { Worker: Thread } = await import(/* @vite-ignore */ /* webpackIgnore: true */ `${"node:"}worker_threads`);
    return new Thread(new URL("./worker.js", import.meta.url));
  } catch {
    return null;
  }
}

/** Return a function that sends requests to a worker. An idle worker does not keep Node running. */
function caller(/** @type {any} */ worker) {
  /** @type {Map<number, {resolve: (found: any) => void, reject: (error: Error) => void}>} */ const waiting = new Map();
  let requests = 0;
  const settle = (/** @type {any} */ { id, found, error }) => {
    const asked = waiting.get(id);
    waiting.delete(id);
    if (!waiting.size) worker.unref?.();
    if (error === undefined) asked?.resolve(found);
    else asked?.reject(new Error(error));
  };
  const fail = (/** @type {any} */ { message }) => {
    for (const { reject } of waiting.values()) reject(new Error(`The model’s worker has failed: ${message}`));
    waiting.clear();
  };
  if (worker.on) worker.on("message", settle).on("error", fail);
  else Object.assign(worker, { onmessage: (/** @type {MessageEvent} */ { data }) => settle(data), onerror: fail });
  return (/** @type {string} */ order, /** @type {any} */ given) => new Promise((/** @type {(found: any) => void} */ resolve, reject) => {
    worker.ref?.();
    waiting.set((requests += 1), { resolve, reject });
    worker.postMessage({ id: requests, order, given });
  });
}

/** @type {typeof import("./seq2see.d.ts").load} */
export async function load(url = new URL(".", import.meta.url), { worker: wanted = true } = {}) {
  const folder = await folderOf(url);
  const worker = wanted ? await newWorker() : null;
  if (worker) {
    const ask = caller(worker);
    try {
      const about = await ask("load", folder);
      return { about, answer: (text, options) => ask("answer", [text, options]), translate: (text, options) => ask("translate", [text, options]), close: () => void worker.terminate() };
    } catch (error) {
      worker.terminate();
      if (!/^The model’s worker/.test(/** @type {Error} */ (error).message)) throw error;
    }
  }
  const model = await Answering.from(folder);
  return { about: model.about, answer: async (text, options) => model.answer(text, options), translate: async (text, options) => model.translate(text, options), close: () => {} };
}
