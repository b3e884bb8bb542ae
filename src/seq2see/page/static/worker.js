/** The worker in which the model runs, so that the page stays responsive. It takes the weights, then answers requests and trains. */

import { Answerer } from "./answer.js";
import { folderOf, Trainer } from "./trainer.js";
import { fromBase85, inflate, readWeights } from "./weights.js";

/** @type {((answerer: Answerer) => void)} */ let ready;
/** @type {((error: Error) => void)} */ let failed;
/** @type {Promise<Answerer>} */ const answerer = new Promise((resolve, reject) => { [ready, failed] = [resolve, reject]; });
answerer.catch(() => {}); // the reply to each request reports the error
/** @type {Uint8Array<ArrayBuffer>[]} */ const parts = [];

/** Let the worker receive other messages. A message to itself takes less time than a timer. */
const { port1, port2 } = new MessageChannel();
/** @type {(() => void)[]} */ const waiting = [];
port2.onmessage = () => waiting.shift()?.();
const pause = () => new Promise((/** @type {(value: void) => void} */ resolve) => {
  waiting.push(resolve);
  port1.postMessage(0);
});

/** Take a part of the weights. The last part comes with the model’s description: then all parts are joined. */
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

const OFTEN = 80; // milliseconds between two reports of the answer so far

/** Answer one request. The tensors are transferred to the page, not copied. */
async function reply(/** @type {number} */ id, /** @type {import("./answer.js").Request} */ request) {
  let last = performance.now();
  const tell = (/** @type {string} */ partial) => {
    if (performance.now() - last < OFTEN) return;
    last = performance.now();
    self.postMessage({ id, partial });
  };
  try {
    const json = await (await answerer).describe(request, tell);
    /** @type {any} */ (self).postMessage({ id, json }, json.tensors.map((/** @type {any} */ tensor) => tensor.data.buffer));
  } catch (error) {
    self.postMessage({ id, error: /** @type {Error} */ (error).message });
  }
}

/** @type {Trainer|undefined} */ let trainer;
let learning = false;
const PORTION = 60; // milliseconds of training between two looks for requests
const REPORT = 400; // milliseconds between two reports
const TRY = 100; // steps between two trials on the held-out pairs

/** Report the progress of training to the page. */
const report = (/** @type {any} */ more = {}) => trainer && self.postMessage({ progress: { step: trainer.learner.steps, loss: trainer.loss, learning, ...more } });

/** Train until all steps of the plan are done or the reader pauses. */
async function learn(/** @type {Trainer} */ mine) {
  let last = 0;
  while (learning && mine.learner.steps < mine.plan.steps) {
    const began = performance.now();
    while (learning && mine.learner.steps < mine.plan.steps && performance.now() - began < PORTION) {
      mine.step();
      if (mine.learner.steps % TRY === 0) report({ right: await mine.right(pause) });
    }
    if (performance.now() - last > REPORT) {
      last = performance.now();
      report();
    }
    await pause();
  }
  learning = false;
  report({ right: await mine.right(pause), done: mine.learner.steps >= mine.plan.steps });
}

/** Carry out an order of the page about training: begin, continue, pause, take one step, change the rate, or return the model’s files. */
async function obey(/** @type {any} */ { about, plan, on, once, rate, card }) {
  if (plan) {
    trainer = new Trainer(about, plan);
    ready(trainer.answerer);
    self.postMessage({ begun: { config: trainer.about.config, task: trainer.about.task, parameters: [...trainer.weights.values()].reduce((sum, { data }) => sum + data.length, 0), tried: trainer.tried, apart: trainer.apart, texts: trainer.tried.slice(0, 5).map(([text]) => text) } });
  }
  if (!trainer) return;
  if (rate) trainer.plan.rate = rate;
  if (card !== undefined) self.postMessage({ files: folderOf(trainer, card), about: trainer.about });
  if (once) {
    trainer.step();
    report();
  }
  if (on === undefined || on === learning) return;
  learning = on;
  if (on) learn(trainer);
}

self.onmessage = ({ data }) => (data.request ? reply(data.id, data.request) : data.train ? obey(data.train) : take(data));
