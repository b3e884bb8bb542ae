/** The model at work beside the page: takes the weights, then answers requests, so that the page never waits for arithmetic. */

import { Answerer } from "./answer.js";
import { folderOf, Trainer } from "./trainer.js";
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

/** @type {Trainer|undefined} */ let trainer;
let learning = false;
const PORTION = 60; // milliseconds of learning, then requests are answered
const REPORT = 400; // milliseconds between two reports
const TRY = 100; // steps between two trials on pairs that were kept

/** Tell the page how far it has come. */
const report = (/** @type {any} */ more = {}) => trainer && self.postMessage({ progress: { step: trainer.learner.steps, loss: trainer.loss, learning, ...more } });

/** Learn until the plan is done or the reader stops it. */
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

/** Do what the page says of training. */
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
