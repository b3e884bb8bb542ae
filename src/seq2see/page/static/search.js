/** Greedy and beam search (section 6.1), with the rules of the model’s config. */

import { argmax, largestOf } from "./tensors.js";

/** @typedef {import("./model.js").Transformer} Transformer */
/** @typedef {import("./model.js").Cache} Cache */
/** @typedef {import("./tensors.js").Tensor} Tensor */
/** @typedef {import("./tensors.js").Numbers} Numbers */
/** forced: what every answer begins with, such as its language. @typedef {{start: number, end: number, forced?: number[]}} Special */
/** @typedef {{length_penalty: number, penalty: string, length_ratio: number, length_offset: number, max_length: number|null, stopping: string, suppressed: number[], forced_end: boolean}} Rules */
/** A beginning of an answer. @typedef {{ids: number[], total: number, parent: number|null, cache?: Cache, logits?: Numbers}} Prefix */
/** An answer: its ids, their log-probabilities, its score in the beam, and whether it ended. @typedef {{ids: number[], values: number[], score: number, finished: boolean}} Found */
/** A node of the tree. With a score it is an end. @typedef {{step: number, parent: number|null, id: number, token: string, log_probability: number, score?: number}} Node */

/** The most tokens of an answer. */
export function limitOf(/** @type {Rules} */ rules, /** @type {number} */ source, /** @type {number} */ longest) {
  return Math.min(Math.trunc(rules.length_ratio * source) + rules.length_offset, longest - 1, rules.max_length ?? Infinity);
}

/** The length penalty: a log-probability is divided by it. */
export const divisor = (/** @type {Rules} */ rules, /** @type {number} */ length) => (rules.penalty === "paper" ? (5 + length) / 6 : length) ** rules.length_penalty;

/** log Σ exp of a row. */
export function logSum(/** @type {Numbers} */ row) {
  const largest = largestOf(row);
  let sum = 0;
  for (let i = 0; i < row.length; i += 1) sum += Math.exp(row[i] - largest);
  return largest + Math.log(sum);
}

/** The last row of logits. @returns {Numbers} */
const lastRow = (/** @type {Tensor} */ { shape: [rows, width], data }) => data.slice((rows - 1) * width);

/** The token that step t must take: one that every answer begins with, or the end where an answer must end. */
const mustBe = (/** @type {Rules} */ rules, /** @type {Special} */ special, /** @type {number} */ t, /** @type {boolean} */ last) => (rules.forced_end && last ? special.end : special.forced?.[t]);

/** The logits of a step with −∞ for what may not come: tokens that the rules suppress, and all but the one that it must take. */
function allowed(/** @type {Numbers} */ logits, /** @type {Rules} */ rules, /** @type {number|undefined} */ must) {
  const found = logits.slice();
  for (const id of rules.suppressed) found[id] = -Infinity;
  if (must !== undefined) found.fill(-Infinity).fill(0, must, must + 1);
  return found;
}

/**
 * Take the likeliest token at each step, after some that are forced. Without `cached` every step reads all tokens again, so that
 * an edit of a position sees the values of all positions. `onToken` is told of each token, and of the logits that it was chosen by.
 * @returns {number[]}
 */
export function greedy(/** @type {Transformer} */ model, /** @type {Tensor} */ memory, /** @type {Special} */ special, /** @type {Rules} */ rules, /** @type {number} */ limit, /** @type {number[]} */ prefix = [], cached = true, /** @type {(ids: number[], logits: Numbers) => void} */ onToken = () => {}) {
  const ids = [...prefix];
  /** @type {Cache|undefined} */ let cache;
  while (ids.length < limit && ids.at(-1) !== special.end) {
    const read = [special.start, ...ids].slice(cached && cache ? cache.length : 0);
    const { logits, cache: next } = model.decode(read, memory, cached ? cache : undefined);
    cache = next;
    const row = lastRow(logits);
    ids.push(argmax(allowed(row, rules, mustBe(rules, special, ids.length, ids.length + 1 === limit))));
    onToken(ids, row);
  }
  return ids;
}

/** The largest numbers of a row and their places, largest first. @returns {number[]} */
export function likeliest(/** @type {Numbers} */ row, /** @type {number} */ count) {
  /** @type {number[]} */ const best = [];
  for (let id = 0; id < row.length; id += 1) {
    if (best.length === count && !(row[id] > row[best[count - 1]])) continue;
    let place = best.length;
    while (place > 0 && row[id] > row[best[place - 1]]) place -= 1;
    best.splice(place, 0, id);
    if (best.length > count) best.pop();
  }
  return best;
}

/**
 * Keep the k likeliest beginnings at each step, and describe every one that was kept, in the order in which it was found.
 * The search is done when k answers have ended and the likeliest of all beginnings was among them (or as the rules say).
 * Without `cached` every step reads all tokens again, as in `greedy`.
 * @returns {Node[]}
 */
export function beamNodes(/** @type {Transformer} */ model, /** @type {Tensor} */ memory, /** @type {Special} */ special, /** @type {Rules} */ rules, /** @type {number} */ limit, /** @type {number} */ k, /** @type {(id: number) => string} */ name, cached = true) {
  /** @type {Node[]} */ const nodes = [];
  /** @type {Prefix[]} */ let open = [{ ids: [], total: 0, parent: null }];
  /** @type {number[]} */ let done = []; // the scores of the best k answers that have ended
  let settled = false;
  const add = (/** @type {Prefix} */ { ids, total, parent }, /** @type {number|undefined} */ score) => nodes.push({
    step: ids.length - 1, parent, id: ids[ids.length - 1], token: name(ids[ids.length - 1]), log_probability: total, ...(score === undefined ? {} : { score }),
  }) - 1;
  for (let t = 0; t < limit && open.length && !(settled && done.length === k); t += 1) {
    const places = new Map();
    const grown = grow(model, memory, special, rules, t + 1 === limit, open, 2 * k, cached);
    const score = (/** @type {Prefix} */ prefix) => prefix.total / divisor(rules, t + 1);
    const ends = (/** @type {Prefix} */ { ids }) => ids[t] === special.end;
    const stops = grown.filter((prefix, rank) => (ends(prefix) && rank < k) || t + 1 === limit);
    const best = [...done, ...stops.map(score)].sort((a, b) => b - a).slice(0, k);
    open = grown.filter((prefix) => !ends(prefix)).slice(0, k);
    for (const prefix of open) places.set(prefix, add(prefix, undefined));
    for (const prefix of stops) if (ends(prefix) && best.includes(score(prefix))) add(prefix, score(prefix));
    for (const prefix of open) prefix.parent = places.get(prefix);
    done = best;
    const beaten = open.length > 0 && done.length === k && score(open[0]) <= done[k - 1];
    settled ||= rules.stopping === "full" || (rules.stopping === "beaten" ? beaten : stops.includes(grown[0]));
  }
  return nodes;
}

/**
 * The k best answers in a tree of beginnings, best first. Beginnings that the limit cut off compete with those that have ended.
 * @returns {Found[]}
 */
export function answersOf(/** @type {Node[]} */ nodes, /** @type {Special} */ special, /** @type {Rules} */ rules, /** @type {number} */ limit, /** @type {number} */ k) {
  const scoreOf = (/** @type {Node} */ { step, score, log_probability: total }) => score ?? (step + 1 === limit ? total / divisor(rules, limit) : undefined);
  const ends = nodes.flatMap((node) => {
    const score = scoreOf(node);
    return score === undefined ? [] : [{ node, score }];
  });
  return ends.sort((a, b) => b.score - a.score).slice(0, k).map(({ node, score }) => {
    /** @type {number[]} */ const ids = [];
    /** @type {number[]} */ const values = [];
    for (let at = /** @type {Node|null} */ (node); at;) {
      const before = /** @type {Node|null} */ (at.parent === null ? null : nodes[at.parent]);
      ids.unshift(at.id);
      values.unshift(at.log_probability - (before?.log_probability ?? 0));
      at = before;
    }
    return { ids, values, score, finished: node.id === special.end };
  });
}

/** Read what is new of each open beginning, and return the likeliest ways to go on, likeliest first. @returns {Prefix[]} */
function grow(/** @type {Transformer} */ model, /** @type {Tensor} */ memory, /** @type {Special} */ special, /** @type {Rules} */ rules, /** @type {boolean} */ last, /** @type {Prefix[]} */ open, /** @type {number} */ count, /** @type {boolean} */ cached) {
  const found = open.flatMap((prefix) => {
    const { logits, cache } = cached ? model.decode([prefix.ids.at(-1) ?? special.start], memory, prefix.cache) : { ...model.decode([special.start, ...prefix.ids], memory), cache: undefined };
    const all = lastRow(logits);
    const must = mustBe(rules, special, prefix.ids.length, last);
    const row = allowed(all, rules, must);
    const sum = must !== undefined ? 0 : logSum(all); // tokens that are ruled out keep their probability
    return likeliest(row, count).filter((id) => row[id] > -Infinity).map((id) => ({ ids: [...prefix.ids, id], total: prefix.total + (row[id] - sum), parent: prefix.parent, cache }));
  });
  return found.sort((a, b) => b.total - a.total).slice(0, count);
}
