/** Trains a network in the worker: draws its numbers, makes or takes pairs, learns in small portions, and tries itself on pairs that it has never seen. */

import { Answerer } from "./answer.js";
import { batchOf, drawn, Learner, randomOf, rateOf } from "./learn.js";
import { dateFault, fold, MONTHS } from "./reading.js";
import { fitted, special } from "./tokenizer.js";

/** A text and its answer. @typedef {[string, string]} Pair */
/** `pairs` are the reader’s own, or null for dates; `examples` is how many dates there are to learn from. @typedef {{heads: number, rate: number, steps: number, examples: number, pairs: Pair[]|null, seed: number}} Plan */

const SETTINGS = { beta1: 0.9, beta2: 0.98, epsilon: 1e-9, clip: 1, label_smoothing: 0 };
export const BATCH = 32; // pairs in one step
const TRIED = 200; // pairs that are kept from learning
const WARMUP = 0.12; // share of the steps in which the rate rises

/** A date and its words; `random` chooses among all dates of the years 1000 to 9999. @returns {Pair} */
function datePair(/** @type {() => number} */ random) {
  for (;;) {
    const [year, month, day] = [1000 + Math.floor(9000 * random()), 1 + Math.floor(12 * random()), 1 + Math.floor(31 * random())];
    const text = `${year}-${String(month).padStart(2, "0")}-${String(day).padStart(2, "0")}`;
    if (!dateFault(text)) return [text, `${MONTHS[month - 1]} ${day}, ${year}`];
  }
}

/** Put things into another order. */
function shuffled(/** @type {any[]} */ items, /** @type {() => number} */ random) {
  const found = [...items];
  for (let last = found.length - 1; last > 0; last -= 1) {
    const other = Math.floor((last + 1) * random());
    [found[last], found[other]] = [found[other], found[last]];
  }
  return found;
}

export class Trainer {
  /** @param {any} about what the page’s file says of its model, whose shape is taken over @param {Plan} plan */
  constructor(about, plan) {
    this.plan = plan;
    this.random = randomOf(plan.seed);
    const { pairs } = plan;
    /** @type {Pair[]} */ this.tried = [];
    /** @type {Pair[]|null} */ this.pairs = null; // none: each date is made on the spot
    if (pairs) {
      const mixed = shuffled(pairs.map((pair) => /** @type {Pair} */ (pair.map(fold))), this.random);
      const apart = Math.min(TRIED, Math.floor(mixed.length / 10));
      this.tried = apart ? mixed.slice(0, apart) : mixed;
      this.pairs = mixed.slice(apart);
    } else {
      const seen = randomOf(plan.seed + 1);
      this.tried = Array.from({ length: TRIED }, () => datePair(seen));
      const kept = new Set(this.tried.map(([text]) => text));
      if (plan.examples) this.pairs = Array.from({ length: plan.examples }, () => this.newDate(kept));
      this.kept = kept;
    }
    this.apart = !pairs || this.tried.length < pairs.length; // whether it is tried on pairs that it does not learn from
    const tokenizers = pairs ? { source: fitted(pairs.map(([text]) => fold(text))), target: fitted(pairs.map(([, answer]) => fold(answer))) } : about.tokenizers;
    const size = (/** @type {any} */ { model }) => Object.keys(model.vocab).length;
    const { d_model: wide } = about.config;
    const longest = Math.max(about.config.max_length, ...(pairs ?? []).flat().map((text) => [...text].length + 2));
    const config = {
      ...about.config, heads: plan.heads, d_k: wide / plan.heads, d_v: wide / plan.heads, max_length: longest,
      ...(pairs ? { source_vocabulary: size(tokenizers.source), target_vocabulary: size(tokenizers.target) } : {}),
    };
    this.about = { ...about, config, tokenizers, task: pairs ? "pairs" : about.task };
    this.weights = drawn(config, this.random);
    this.answerer = new Answerer(this.about, this.weights);
    this.learner = new Learner(config, this.weights, SETTINGS);
    this.loss = NaN;
  }

  /** @returns {Pair} */
  newDate(/** @type {Set<string>} */ kept) {
    for (;;) {
      const pair = datePair(this.random);
      if (!kept.has(pair[0])) return pair;
    }
  }

  /** What is learned from in one step. */
  batch() {
    const { source, target } = this.answerer;
    const next = () => (this.pairs ? this.pairs[Math.floor(this.pairs.length * this.random())] : this.newDate(this.kept ?? new Set()));
    const chosen = Array.from({ length: Math.min(BATCH, this.pairs?.length ?? BATCH) }, next);
    return batchOf(chosen.map(([text]) => source.encode(text).ids), chosen.map(([, answer]) => target.encode(answer).ids), this.pads());
  }

  /** The id that fills up. Sources are told apart by their lengths, so that one id does for both sides. */
  pads() {
    return this.answerer.target.pad;
  }

  /** Take one step. */
  step() {
    const { steps, rate } = this.plan;
    const next = this.learner.steps + 1;
    this.loss = this.learner.step(this.batch(), this.pads(), rateOf(next, steps, Math.max(1, Math.round(WARMUP * steps)), rate));
    this.answerer.runs.clear();
  }

  /** How many of the pairs that were kept are answered rightly. `pause` is awaited now and then. */
  async right(/** @type {() => Promise<void>} */ pause) {
    let count = 0;
    for (const [index, [text, answer]] of this.tried.entries()) {
      if (this.answerer.says(text) === answer) count += 1;
      if (index % 8 === 7) await pause();
    }
    return count;
  }
}

/** The files of the model’s folder, which `seq2see.load` opens. @returns {Record<string, string|Uint8Array>} */
export function folderOf(/** @type {Trainer} */ { about, weights, learner, plan }, /** @type {string} */ card) {
  const { config, tokenizers, task } = about;
  const written = (/** @type {any} */ value) => (typeof value === "string" ? JSON.stringify(value) : String(value));
  const known = Object.entries(config).filter(([, value]) => ["string", "number", "boolean"].includes(typeof value));
  const toml = [`task = ${written(task)}`, "", "[model]", ...known.map(([key, value]) => `${key} = ${written(value)}`), "", "[training]", `steps = ${Math.max(1, learner.steps)}`, `learning_rate = ${plan.rate}`, ""].join("\n");
  const whole = (/** @type {any} */ form) => JSON.stringify({ version: "1.0", truncation: null, ...form, post_processor: special(form) });
  return {
    "config.toml": toml, "card.md": card, "model.safetensors": safetensors(weights),
    ...(tokenizers.target ? { "source-tokenizer.json": whole(tokenizers.source), "target-tokenizer.json": whole(tokenizers.target) } : { "tokenizer.json": whole(tokenizers.source) }),
  };
}

/** Write weights as a safetensors file. @returns {Uint8Array} */
function safetensors(/** @type {Map<string, import("./tensors.js").Tensor>} */ weights) {
  /** @type {Record<string, any>} */ const head = {};
  let end = 0;
  for (const [name, { shape, data }] of weights) {
    head[name] = { dtype: "F32", shape, data_offsets: [end, end + 4 * data.length] };
    end += 4 * data.length;
  }
  let text = JSON.stringify(head);
  text += " ".repeat((8 - (text.length % 8)) % 8);
  const file = new Uint8Array(8 + text.length + end);
  new DataView(file.buffer).setBigUint64(0, BigInt(text.length), true);
  file.set(new TextEncoder().encode(text), 8);
  for (const [name, { data }] of weights) file.set(new Uint8Array(data.buffer, data.byteOffset, 4 * data.length), 8 + text.length + head[name].data_offsets[0]);
  return file;
}
