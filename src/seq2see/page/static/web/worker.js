/** Runs a model in a worker of a browser or of Node. A request is {id, order, given}; the reply is {id, found} or {id, error}. */

import { Answering } from "./answering.js";

/** @type {any} */ const port = "WorkerGlobalScope" in globalThis ? globalThis : (await import(`${"node:"}worker_threads`)).parentPort;
/** @type {Promise<any>|undefined} */ let model;

const obey = async (/** @type {any} */ { id, order, given }) => {
  try {
    if (order === "load") model = Answering.from(given);
    const known = await model;
    port.postMessage({ id, found: order === "load" ? known.about : known[order](...given) });
  } catch (error) {
    port.postMessage({ id, error: /** @type {Error} */ (error).message });
  }
};
if (port.on) port.on("message", obey);
else port.onmessage = (/** @type {MessageEvent} */ { data }) => obey(data);
