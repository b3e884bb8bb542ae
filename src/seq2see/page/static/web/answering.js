/** Answers texts with a model, in the calling thread. The worker of `load` uses it, and so does `load` where there is no worker. */

import { Reader } from "../reader.js";
import { fold, prepared } from "../reading.js";
import { partsOf } from "../sentences.js";
import { readWeights } from "../weights.js";
import { Judge, probability, unmarked } from "./confidence.js";
import { monthsOf, readDate } from "./human.js";

/** @typedef {import("./seq2see.d.ts").Answer} Answer */
/** @typedef {import("./seq2see.d.ts").Options} Options */
/** @typedef {import("./seq2see.d.ts").About} About */

const NONE = { output: null, error: null, confidence: null, remark: null, logProbability: null, finished: true, tokens: [], alternatives: [] };

/** A model that answers in this thread. */
export class Answering {
  /** @param {any} model the content of model.json @param {ArrayBuffer} weights @param {Judge|null} judge */
  constructor(model, weights, judge) {
    this.reader = new Reader(model, readWeights(weights));
    this.judge = judge;
    this.months = model.months ? monthsOf(model.months) : null;
    /** @type {About} */ this.about = { ...model.about, sentences: Boolean(model.words) };
  }

  /** Load a model from its folder. @returns {Promise<Answering>} */
  static async from(/** @type {string} */ folder) {
    const [about, weights] = await Promise.all(["model.json", "model.safetensors"].map((name) => bytesOf(new URL(name, folder))));
    const model = JSON.parse(new TextDecoder().decode(about));
    return new Answering(model, weights, model.confidence ? await Judge.of(model.confidence) : null);
  }

  /** @returns {Answer} */
  answer(/** @type {string} */ input, /** @type {Options} */ { beam, nBest = 1, order, attention = false } = {}) {
    const { source, target, about: { decoding } } = this.reader;
    if (typeof input !== "string") return { ...NONE, input: String(input), error: `The input must be a string, but it is of type ${typeof input}.` };
    if (/\p{Surrogate}/u.test(input)) return { ...NONE, input, error: "The text has a lone surrogate, which UTF-8 cannot represent." };
    let read;
    try {
      read = this.reader.read(input, false);
    } catch (error) {
      return { ...NONE, input, error: /** @type {Error} */ (error).message };
    }
    const found = this.reader.search(read.ids, beam ?? decoding.beam, nBest);
    const total = (/** @type {number[]} */ values) => values.reduce((sum, value) => sum + value, 0);
    const [best, ...others] = found;
    const { remark, unlike } = this.remarkOn(input, read.text, read.ids.length - 2);
    /** @type {Answer} */ const answer = {
      ...NONE, input, output: target.decode(best.ids), remark, finished: best.finished, logProbability: total(best.values),
      confidence: this.judge && !unlike ? probability(this.judge.fitted.weights, best.values, best.finished) : null,
      tokens: target.tokens(best.ids).map((token, n) => ({ token, probability: Math.exp(best.values[n]) })),
      alternatives: others.map(({ ids, values, score }) => ({ output: target.decode(ids), logProbability: total(values), score })),
    };
    if (this.months) Object.assign(answer, readDate(this.months, input, /** @type {string} */ (answer.output), order));
    if (attention) {
      const weights = this.reader.attention(read.ids, best.ids).map(({ shape: [heads, rows, cols], data }) => {
        const row = (/** @type {number} */ start) => [...data.subarray(start, start + cols)];
        return Array.from({ length: heads }, (_, head) => Array.from({ length: rows }, (__, t) => row((head * rows + t) * cols)));
      });
      const { spans } = read;
      answer.attention = { source: source.tokens(read.ids).map((token, n) => ({ token, span: spans[n] })), target: target.tokens(best.ids), weights };
    }
    return answer;
  }

  /** Say how a text was read, and how it differs from the texts of the training. */
  remarkOn(/** @type {string} */ input, /** @type {string} */ text, /** @type {number} */ length) {
    const { source, about: { task, words } } = this.reader;
    if (task === "dates" || task === "human-dates") return { remark: null, unlike: false };
    const changed = source.lookedUp && text !== (task === "imported" ? input : fold(input)) ? `The input was read as ‘${text}’.` : "";
    const bare = words ? unmarked(input) : input;
    const unlike = this.judge?.whyNot(bare === input ? text : prepared(task, source, bare), length) ?? "";
    return { remark: [changed, unlike].filter(Boolean).join(" ") || null, unlike: unlike !== "" };
  }

  translate(/** @type {string} */ text, /** @type {Options} */ options = {}) {
    const { words } = this.reader.about;
    if (!words) throw new Error("This model does not translate whole texts: use `answer`.");
    return partsOf(text, words).map((part) => (typeof part === "string" ? part : (this.answer(part.source, options).output ?? part.source))).join("");
  }
}

/** Return the bytes of a file. Node reads a file: address from the disk; all others are fetched. @returns {Promise<ArrayBuffer>} */
async function bytesOf(/** @type {URL} */ url) {
  const fail = (/** @type {string} */ why) => new Error(`${url.href} cannot be read: ${why}. Give the address of a folder that seq2see export --to web wrote.`);
  if (url.protocol === "file:" && /** @type {any} */ (globalThis).process) {
    const { readFile } = await import(/* @vite-ignore */ /* webpackIgnore: true */ `${"node:"}fs/promises`);
    const { buffer, byteOffset, byteLength } = await readFile(url).catch((/** @type {any} */ error) => Promise.reject(fail(error.code)));
    return buffer.slice(byteOffset, byteOffset + byteLength);
  }
  const answer = await fetch(url);
  if (!answer.ok) throw fail(`${answer.status} ${answer.statusText}`);
  return answer.arrayBuffer();
}
