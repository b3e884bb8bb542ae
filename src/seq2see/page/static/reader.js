/** A model that reads a text and writes its answer. The page and the exported module share it. */

import { fastLinear } from "./fast.js";
import { Transformer } from "./model.js";
import { faultOf, prepared, spaced } from "./reading.js";
import { answersOf, beamNodes, divisor, greedy, limitOf, logSum } from "./search.js";
import { tokenizerOf } from "./tokenizer.js";

/** @typedef {import("./search.js").Found} Found */
/** @typedef {import("./tensors.js").Tensor} Tensor */

const keepNothing = (/** @type {string} */ name, /** @type {Tensor} */ value) => value;

export class Reader {
  /** @param {any} model what is known of the model: config, decoding, task, tokenizers @param {Map<string, Tensor>} weights */
  constructor(model, weights) {
    this.about = model;
    this.model = new Transformer(model.config, weights, fastLinear(weights));
    this.source = tokenizerOf(model.tokenizers.source, model.config.source_vocabulary);
    this.target = model.tokenizers.target ? tokenizerOf(model.tokenizers.target, model.config.target_vocabulary) : this.source;
  }

  /** Read a text, or throw an error that says why the model cannot take it. `anyway` lets texts through that it was not made for. */
  read(/** @type {string} */ input, /** @type {boolean} */ anyway) {
    const { task } = this.about;
    const text = prepared(task, this.source, input);
    const fault = (!anyway && faultOf(task, input)) || (!spaced(text) && "The line is empty: a text was expected.") || this.source.fault(text);
    if (fault) throw new Error(fault);
    const found = this.source.encode(text);
    const longest = this.model.config.max_length;
    if (found.ids.length > longest) throw new Error(`The text has ${found.ids.length} tokens, but this model takes at most ${longest}: cut it up.`);
    return { text, ...found };
  }

  /** The most tokens that the answer to a source may have. */
  limit(/** @type {number[]} */ ids) {
    return limitOf(this.about.decoding, ids.length, this.about.config.max_length);
  }

  /** Answer a text without recording values. */
  says(/** @type {string} */ input) {
    const { ids } = this.read(input, true);
    this.model.keep = keepNothing;
    return this.target.decode(greedy(this.model, this.model.encode(ids), this.target, this.about.decoding, this.limit(ids)));
  }

  /** The `count` best answers to a source that a beam of this width finds, best first, with the log-probability of each token. @returns {Found[]} */
  search(/** @type {number[]} */ ids, beam = 1, count = 1) {
    const { decoding } = this.about;
    const [limit, k] = [this.limit(ids), Math.max(beam, count)];
    this.model.keep = keepNothing;
    const memory = this.model.encode(ids);
    if (k > 1) return answersOf(beamNodes(this.model, memory, this.target, decoding, limit, k, String), this.target, decoding, limit, k).slice(0, count);
    /** @type {number[]} */ const values = [];
    const found = greedy(this.model, memory, this.target, decoding, limit, [], true, (so, logits) => {
      const forced = (decoding.forced_end && so.length === limit) || so.length <= this.target.forced.length;
      values.push(forced ? 0 : logits[so[so.length - 1]] - logSum(logits));
    });
    const score = values.reduce((sum, value) => sum + value, 0) / divisor(decoding, found.length);
    return [{ ids: found, values, score, finished: found.at(-1) === this.target.end }];
  }

  /** The weights of cross-attention in each layer, (H, T, S), when the model writes an answer. @returns {Tensor[]} */
  attention(/** @type {number[]} */ source, /** @type {number[]} */ answer) {
    /** @type {Tensor[]} */ const found = [];
    this.model.keep = (name, value) => {
      if (name.endsWith("cross_attention.weights")) found.push(value);
      return value;
    };
    this.model.decode([this.target.start, ...answer.slice(0, -1)], this.model.encode(source));
    return found;
  }
}
