/** Answers a text and describes every number on the way, as the server’s /api/trace does. */

import { everywhere, muted, recorder, rowDrawn } from "./edits.js";
import { Reader } from "./reader.js";
import { faultOf } from "./reading.js";
import { beamNodes, greedy, likeliest, logSum } from "./search.js";
import { argmax, largestOf, softmax } from "./tensors.js";

/** @typedef {import("./tensors.js").Tensor} Tensor */
/** @typedef {import("./tokenizer.js").Tokenizer} Tokenizer */
/** @typedef {import("./edits.js").Edit} Edit */
/** @typedef {import("./edits.js").Head} Head */
/** Numbers taken from the run on another text. @typedef {{input: string, name: string, head: number, row: number, col: number, fromRow?: number}} Patch */
/** @typedef {{model?: string, input: string, prefix?: number[], muted?: Head[], patches?: Patch[], drawn?: import("./edits.js").Drawn, names?: string[], beam?: number, also?: string[], effects?: string[], anyway?: boolean}} Request */
/** @typedef {{text: string, sourceIds: number[], spans: [number, number][], targetIds: number[], outputIds: number[], forced: number, edits: Edit[], values: Map<string, Tensor>}} Run */

const TOP = 20; // likeliest tokens listed at each step
const KINDS = { encoder: "encoder_layers", decoder: "decoder_layers", cross: "decoder_layers" };
const KEPT = 4; // runs that are remembered, because the page asks for more of them when the reader opens a part

/** The token that each layer of the decoder would choose at each step, if it were the last layer. */
function lens(/** @type {import("./model.js").Transformer} */ model, /** @type {Run} */ run) {
  const count = model.config.decoder_layers;
  const names = [`decoder.embedding.${model.config.embedding_norm ? "normed" : "sum"}`, ...Array.from({ length: count }, (_, n) => `decoder.layers.${n}.feed_forward_norm.out`)];
  return names.map((name, index) => {
    const { shape: [rows, width], data } = softmax(model.output(model.lastNorm(/** @type {Tensor} */ (run.values.get(name)))));
    const ids = Array.from({ length: rows }, (_, row) => argmax(data.subarray(row * width, (row + 1) * width)));
    return { after: index ? index - 1 : null, ids, probabilities: ids.map((id, row) => data[row * width + id]) };
  });
}

/** The heads that a name stands for: cross.1.3 is one, cross.1 a layer of them, cross all. @returns {Head[]} */
function headsOf(/** @type {any} */ config, /** @type {string} */ name) {
  const [kind, layer, head] = name.split(".");
  const range = (/** @type {string|undefined} */ one, /** @type {number} */ count) => (one === undefined ? Array.from({ length: count }, (_, n) => n) : [Number(one)]);
  const attention = /** @type {Head["attention"]} */ (kind);
  return range(layer, config[KINDS[attention]]).flatMap((n) => range(head, config.heads).map((one) => ({ attention, layer: n, head: one })));
}

/** The log-probability of each token of an answer. */
function logsOf(/** @type {Tensor} */ { shape: [, width], data }, /** @type {number[]} */ ids) {
  return ids.map((id, t) => {
    const row = data.subarray(t * width, (t + 1) * width);
    const largest = largestOf(row); // subtracting the largest first keeps a log-probability near 0 exact
    return row[id] - largest - logSum(row.map((x) => x - largest));
  });
}

export class Answerer extends Reader {
  /** @param {any} model what the page’s file says of the model: config, decoding, task, tokenizers, glossary @param {Map<string, Tensor>} weights */
  constructor(model, weights) {
    super(model, weights);
    /** @type {Map<string, Run>} */ this.runs = new Map();
  }

  /** Answer a text, and run the model once more on the text and the answer, all positions at once, to keep every value. @returns {Run} */
  run(/** @type {Request} */ { input, prefix = [], muted: off = [], patches = [], drawn: row, anyway = false }, /** @type {(text: string) => void} */ onText = () => {}) {
    const { text, ids: sourceIds, spans } = this.read(input, anyway);
    const question = JSON.stringify([text, off, patches, row]);
    const known = this.runs.get(JSON.stringify([question, prefix])); // a request for more of an answer forces the whole answer
    if (known) return known;
    const edits = [...off.map(muted), ...patches.map((patch) => this.donated(patch)), ...(row ? [rowDrawn(row)] : [])];
    const { start, end, forced } = this.target;
    const { decoding } = this.about;
    /** @type {Map<string, Tensor>} */ const values = new Map();
    this.model.keep = recorder(edits, values);
    const memory = this.model.encode(sourceIds);
    const limit = this.limit(sourceIds);
    this.model.keep = recorder(edits, null);
    const outputIds = greedy(this.model, memory, { start, end, forced }, decoding, limit, prefix, edits.every(everywhere), (ids) => onText(this.target.decode(ids)));
    const targetIds = [start, ...outputIds.slice(0, -1)];
    this.model.keep = recorder(edits, values);
    values.set("probabilities", softmax(this.model.decode(targetIds, memory).logits));
    /** @type {Run} */ const run = { text, sourceIds, spans, targetIds, outputIds, forced: prefix.length, edits, values };
    if (this.runs.size >= 2 * KEPT) [...this.runs.keys()].slice(0, 2).forEach((key) => this.runs.delete(key));
    for (const ids of [prefix, outputIds]) this.runs.set(JSON.stringify([question, ids]), run);
    return run;
  }

  /** The edit that takes numbers from the run on another text. @returns {Edit} */
  donated(/** @type {Patch} */ { input, name, head, row, col, fromRow }) {
    const from = this.run({ input }).values.get(name);
    if (!from) throw new Error(`There is no value ${name} to copy.`);
    return { name, head, row, col, from, fromRow };
  }

  /** Answer a request of the page. `onText` is told what is written so far. @returns {Promise<any>} */
  async describe(/** @type {Request} */ request, /** @type {(text: string) => void} */ onText = () => {}) {
    const { names = ["*"], beam = 1, also = [], muted: off = [], patches = [] } = request;
    const run = this.run(request, onText);
    const { end } = this.target;
    /** @type {any} */ const found = {
      model: request.model, text: run.text, output: this.target.decode(run.outputIds), finished: run.outputIds.at(-1) === end,
      forced: request.prefix?.length ?? 0, muted: off.map(({ attention, layer, head }) => [attention, layer, head]), patches, drawn: request.drawn,
      source: tokens(this.source, run.sourceIds, run.spans), target: tokens(this.target, run.targetIds, this.targetSpans(run.targetIds)),
      steps: this.steps(run), beams: beam > 1 ? this.beams(run, beam) : [], tensors: this.tensors(run, names),
    };
    const unfit = request.anyway ? faultOf(this.about.task, request.input) : "";
    if (unfit) found.unfit = unfit;
    if (request.effects?.length) found.effects = this.effects(run, request.effects);
    for (const key of ["d_model", "positions", "scale_embeddings", "embedding_norm", "norm", "activation"]) found[key] = this.about.config[key];
    if (also.includes("lens")) found.lens = lens(this.model, run).map((layer) => ({ ...layer, tokens: this.target.tokens(layer.ids) }));
    return found;
  }

  /** How much the log-probability of each token falls when the heads of a name are closed and the answer is held. @returns {Record<string, number[]>} */
  effects(/** @type {Run} */ { sourceIds, targetIds, outputIds, edits, values }, /** @type {string[]} */ names) {
    const before = logsOf(/** @type {Tensor} */ (values.get("logits")), outputIds);
    return Object.fromEntries(names.map((name) => {
      const closed = headsOf(this.about.config, name);
      this.model.keep = recorder([...edits, ...closed.map(muted)], null);
      const again = edits.length > 0 || closed.some(({ attention }) => attention === "encoder");
      const memory = again ? this.model.encode(sourceIds) : /** @type {Tensor} */ (values.get("encoder.memory"));
      return [name, logsOf(this.model.decode(targetIds, memory).logits, outputIds).map((log, t) => before[t] - log)];
    }));
  }

  /** The range of characters of the answer that each token covers. */
  targetSpans(/** @type {number[]} */ ids) {
    const ends = [0, ...ids.map((_, index) => [...this.target.decode(ids.slice(0, index + 1))].length)];
    return ids.map((_, index) => /** @type {[number, number]} */ ([ends[index], ends[index + 1]]));
  }

  /** Each step: the chosen token, and the likeliest tokens. */
  steps(/** @type {Run} */ { outputIds, values }) {
    const { shape: [, width], data } = /** @type {Tensor} */ (values.get("logits"));
    const shares = /** @type {Tensor} */ (values.get("probabilities")).data;
    const named = this.target.tokens(outputIds);
    const logs = logsOf(/** @type {Tensor} */ (values.get("logits")), outputIds);
    return outputIds.map((id, t) => {
      const row = data.subarray(t * width, (t + 1) * width);
      const largest = largestOf(row);
      const sum = logSum(row.map((x) => x - largest));
      const entropy = row.reduce((total, x, n) => total - shares[t * width + n] * Math.max(x - largest - sum, -1e30), 0);
      const best = likeliest(row, TOP);
      return {
        id, token: named[t], log_probability: logs[t], entropy,
        top: best.map((one) => ({ id: one, token: this.target.names[one], probability: shares[t * width + one], logit: row[one] })),
      };
    });
  }

  beams(/** @type {Run} */ run, /** @type {number} */ beam) {
    const { start, end, forced } = this.target;
    this.model.keep = recorder(run.edits, null);
    const limit = this.limit(run.sourceIds);
    return beamNodes(this.model, this.model.encode(run.sourceIds), { start, end, forced }, this.about.decoding, limit, beam, (id) => this.target.names[id], run.edits.every(everywhere));
  }

  /** The values and parameters whose names match, with their entries in the glossary. */
  tensors(/** @type {Run} */ run, /** @type {string[]} */ names) {
    const globs = names.map((name) => new RegExp(`^${name.replaceAll(".", "\\.").replaceAll("*", ".*")}$`));
    const asked = (/** @type {string} */ name) => globs.some((glob) => glob.test(name));
    const found = [];
    for (const [name, { shape, data }] of run.values) {
      const [symbol, sentence] = this.about.glossary[name.replace(/\.\d+\./, ".*.")];
      if (asked(name)) found.push({ name, shape, data: new Float32Array(data), symbol, sentence });
    }
    for (const [name, { shape, data }] of this.model.weights) {
      if (asked(name)) found.push({ name, shape, data: new Float32Array(data), symbol: name.split(".").at(-1), sentence: "A parameter, learned in training." });
    }
    return found;
  }
}

function tokens(/** @type {Tokenizer} */ tokenizer, /** @type {number[]} */ ids, /** @type {[number, number][]} */ spans) {
  const named = tokenizer.tokens(ids);
  return ids.map((id, index) => ({ token: named[index], id, span: spans[index] }));
}
