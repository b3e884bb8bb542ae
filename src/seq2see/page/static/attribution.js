/** Where an answer comes from: the logit lens (which layer decides) and saliency (which token read matters). */

import { recorder } from "./edits.js";
import { logSum } from "./search.js";
import { argmax, softmax } from "./tensors.js";

/** @typedef {import("./model.js").Transformer} Transformer */
/** @typedef {import("./tensors.js").Tensor} Tensor */
/** @typedef {import("./answer.js").Run} Run */

/** The token that each layer of the decoder would choose at each step, if it were the last layer. */
export function lens(/** @type {Transformer} */ model, /** @type {Run} */ run) {
  const count = model.config.decoder_layers;
  const names = [`decoder.embedding.${model.config.embedding_norm ? "normed" : "sum"}`, ...Array.from({ length: count }, (_, n) => `decoder.layers.${n}.feed_forward_norm.out`)];
  return names.map((name, index) => {
    const { shape: [rows, width], data } = softmax(model.output(model.lastNorm(/** @type {Tensor} */ (run.values.get(name)))));
    const ids = Array.from({ length: rows }, (_, row) => argmax(data.subarray(row * width, (row + 1) * width)));
    return { after: index ? index - 1 : null, ids, probabilities: ids.map((id, row) => data[row * width + id]) };
  });
}

/** The log-odds of each chosen token, log P/(1 − P): its logit less log Σ exp of all others. */
function logOdds(/** @type {Tensor} */ { shape: [rows, width], data }, /** @type {number[]} */ chosen) {
  return Array.from({ length: rows }, (_, row) => {
    const logits = data.slice(row * width, (row + 1) * width);
    const own = logits[chosen[row]];
    logits[chosen[row]] = -Infinity;
    return own - logSum(logits);
  });
}

const STRETCH = 1e-6; // relative length by which an embedding is stretched; the numbers are float64 here

/**
 * |gradient × embedding| of each token’s log-odds, as shares. The gradient times the embedding x is the slope along x: how much
 * the log-odds grow if x is stretched a little. One run measures it for all steps at once.
 * `pause` is awaited between the runs, and stops them by returning false.
 * @returns {Promise<{first: number, source: number[][], target: number[][]}|null>}
 */
export async function saliency(/** @type {Transformer} */ model, /** @type {Run} */ run, /** @type {() => Promise<boolean>} */ pause) {
  const { sourceIds, targetIds, outputIds, edits } = run;
  const record = recorder(edits, null);
  /** @type {any} */ let memory;
  const odds = (/** @type {string} */ name, /** @type {number} */ token) => {
    model.Numbers = /** @type {any} */ (Float64Array);
    model.keep = (given, value) => {
      const found = record(given, value);
      if (given !== name || token < 0) return found;
      const width = found.shape[1];
      return { shape: found.shape, data: found.data.map((x, index) => (Math.floor(index / width) === token ? x * (1 + STRETCH) : x)) };
    };
    try {
      if (!memory || name.startsWith("encoder")) {
        const read = model.encode(sourceIds);
        memory ??= read;
        return logOdds(model.decode(targetIds, read).logits, outputIds);
      }
      return logOdds(model.decode(targetIds, memory).logits, outputIds);
    } finally {
      model.Numbers = Float32Array;
    }
  };
  const before = odds("", -1);
  const tokens = [...sourceIds.map((_, index) => ["encoder", index]), ...targetIds.map((_, index) => ["decoder", index])];
  /** @type {number[][]} */ const slopes = [];
  for (const [half, index] of tokens) {
    if (!(await pause())) return null;
    slopes.push(odds(`${half}.embedding.scaled`, Number(index)).map((after, t) => Math.abs(after - before[t]) / STRETCH));
  }
  const shares = outputIds.map((_, t) => {
    const total = slopes.reduce((sum, slope) => sum + slope[t], 0) || 1;
    return slopes.map((slope) => slope[t] / total);
  });
  return { first: 0, source: shares.map((row) => row.slice(0, sourceIds.length)), target: shares.map((row) => row.slice(sourceIds.length)) };
}
