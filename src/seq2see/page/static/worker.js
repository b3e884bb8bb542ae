/** The model at work beside the page: takes the weights, then answers requests, so that the page never waits for arithmetic. */

import { Answerer } from "./answer.js";
import { fromBase85, inflate, readWeights } from "./weights.js";

/** @type {((answerer: Answerer) => void)} */ let ready;
/** @type {((error: Error) => void)} */ let failed;
/** @type {Promise<Answerer>} */ const answerer = new Promise((resolve, reject) => { [ready, failed] = [resolve, reject]; });
answerer.catch(() => {}); // each request reports it
/** @type {Uint8Array<ArrayBuffer>[]} */ const parts = [];

/** Let other messages come in. A timer would wait longer. */
const { port1, port2 } = new MessageChannel();
/** @type {(() => void)[]} */ const waiting = [];
port2.onmessage = () => waiting.shift()?.();
const pause = () => new Promise((/** @type {(value: void) => void} */ resolve) => {
  waiting.push(resolve);
  port1.postMessage(0);
});

/** Put the weights together when their last part has come. */
async function take(/** @type {{model?: any, part?: string}} */ { model, part }) {
  try {
    if (part) parts.push(fromBase85(part));
    if (!model) return;
    const packed = new Uint8Array(await new Blob(parts).arrayBuffer()).slice(0, model.packed);
    parts.length = 0;
    ready(new Answerer(model, readWeights(await inflate(packed))));
  } catch (error) {
    failed(/** @type {Error} */ (error));
  }
}

const OFTEN = 80; // milliseconds between two reports of what is written so far

/** Answer one request; the numbers are handed over, not copied. */
async function reply(/** @type {number} */ id, /** @type {import("./answer.js").Request} */ request) {
  let last = performance.now();
  const tell = (/** @type {string} */ partial) => {
    if (performance.now() - last < OFTEN) return;
    last = performance.now();
    self.postMessage({ id, partial });
  };
  try {
    const json = await (await answerer).describe(request, pause, tell);
    /** @type {any} */ (self).postMessage({ id, json }, json.tensors.map((/** @type {any} */ tensor) => tensor.data.buffer));
  } catch (error) {
    self.postMessage({ id, error: /** @type {Error} */ (error).message });
  }
}

self.onmessage = ({ data }) => (data.request ? reply(data.id, data.request) : take(data));
