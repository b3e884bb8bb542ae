/** What a token needed: the heads without which it is less likely, in numbers and in a sentence. */

import { attention } from "./data.js";
import { exact, h, percent, thousands, visible } from "./dom.js";
import { view } from "./state.js";

/** @typedef {import("./data.js").Trace} Trace */
/** A head of the decoder: it looks back at what is written, or across at the text. @typedef {{kind: "decoder"|"cross", layer: number, head: number, key: string}} Gate */
/** @typedef {{gate: Gate, token: number, share: number, fall: number}} Look */

export const PALE = 0.01; // a fall of the log-probability below which a token does not need a head

/** The text of a token on the stage. */
export const signOf = (/** @type {string} */ token) => (/^<s/.test(token) ? "▸" : /^<.+>$/.test(token) ? "∎" : visible(token).trim() || "␣");

/** A probability that may be very small, as people say it. */
export const odds = (/** @type {number} */ p) => (p >= 0.001 ? percent(p) : p > 1e-12 ? `1 in ${thousands(Number((1 / p).toPrecision(2)))}` : "nothing");

/** The heads of the decoder, layer by layer. @returns {Gate[]} */
export const gatesOf = (/** @type {Trace} */ trace) => Array.from({ length: trace.layers("cross") }, (_, layer) => /** @type {const} */ (["decoder", "cross"]).flatMap((kind) =>
  Array.from({ length: trace.heads }, (__, head) => ({ kind, layer, head, key: `${kind}.${layer}.${head}` })))).flat();

/** What may be closed to see what an answer needs: each head, and all heads that look at the text. */
export function namesOf(/** @type {Trace} */ trace) {
  const encoder = Array.from({ length: trace.layers("encoder") * trace.heads }, (_, n) => `encoder.${Math.floor(n / trace.heads)}.${n % trace.heads}`);
  return ["cross", ...gatesOf(trace).map(({ key }) => key), ...encoder];
}

/** Whether the reader has made the model write a token that it would not have chosen. */
export const isForced = (/** @type {Trace} */ trace, /** @type {number} */ step) => step < trace.json.forced && trace.steps[step].top[0].id !== trace.steps[step].id;

/** Where a gate looks most when the token of a step is written. @returns {Look} */
export function lookOf(/** @type {Trace} */ trace, /** @type {Gate} */ gate, /** @type {number} */ step) {
  const A = trace.matrix(`${attention(gate.kind, gate.layer)}.weights`, gate.head);
  let token = 0;
  for (let s = 1; s < A.cols; s += 1) if (A.at(step, s) > A.at(step, token)) token = s;
  return { gate, token, share: A.at(step, token), fall: trace.fall(gate.key, step) };
}

/** The open gates, the most needed first. */
export const ranked = (/** @type {Trace} */ trace, /** @type {number} */ step, gates = gatesOf(trace)) =>
  gates.filter(({ key }) => !view.muted.includes(key)).map((gate) => lookOf(trace, gate, step)).sort((a, b) => b.fall - a.fall);

/** How much more than usual each token of the source is looked at, by the mean of all heads: what a word is linked to. @returns {number[]} */
export function linksOf(/** @type {Trace} */ trace, /** @type {number} */ step) {
  const heads = gatesOf(trace).filter(({ kind }) => kind === "cross").map(({ layer, head }) => trace.matrix(`${attention("cross", layer)}.weights`, head));
  const mean = (/** @type {number} */ row, /** @type {number} */ col) => heads.reduce((sum, A) => sum + A.at(row, col), 0) / heads.length;
  const { rows, cols } = heads[0];
  const above = trace.source.map(({ token }, s) => {
    if (/^<.+>$/.test(token)) return 0;
    const usual = trace.steps.reduce((sum, _, t) => sum + mean(t, s), 0) / rows + 0.01 / cols;
    return mean(step, s) / usual;
  });
  const most = Math.max(...above, 1e-9);
  return above.map((x) => x / most);
}

/** The step that tells most: whose letter needs a gate to the text most. Without that knowledge, the first one. */
export function mostTelling(/** @type {Trace} */ trace) {
  const across = gatesOf(trace).filter(({ kind }) => kind === "cross");
  const falls = trace.steps.map(({ token }, t) => (/^<.+>$/.test(token) || isForced(trace, t) ? 0 : Math.max(...across.map(({ key }) => trace.fall(key, t) || 0))));
  return falls.indexOf(Math.max(...falls));
}

const named = (/** @type {Gate} */ { layer, head }) => `head ${head} of layer ${layer}`;
/** Which token a gate looks at, in words. */
const looks = (/** @type {Trace} */ trace, /** @type {Look} */ { gate: { kind }, token, share }) => `${kind === "cross" ? "looks at" : "looks back at"} ‘${signOf(trace[kind === "cross" ? "source" : "target"][token].token)}’ (${percent(share)})`;

/** Say in one or two sentences why the model writes the token of a step. @returns {(string|Node)[]} */
export function saying(/** @type {Trace} */ trace, /** @type {number} */ t) {
  const { token, log_probability: log, top } = trace.steps[t];
  const ends = /^<.+>$/.test(token);
  const b = (/** @type {string} */ text) => h("b", {}, exact(text));
  if (isForced(trace, t)) return ["You chose ", b(token), `; the model gives it ${odds(Math.exp(log))} here. By itself it would write `, b(top[0].token), ` (${percent(top[0].probability)}).`];
  const what = ends ? ["To end here"] : ["To write ", b(token)];
  const [most, ...others] = ranked(trace, t);
  if (!most) return [...what, ", nothing comes through: all gates are closed."];
  if (view.shows === "looks" || Number.isNaN(most.fall)) {
    const across = [most, ...others].filter(({ gate }) => gate.kind === "cross").sort((x, y) => y.share - x.share);
    return across.length ? [...what, `, ${named(across[0].gate)} ${looks(trace, across[0])}, more than any other gate looks at one place of the text. Whether that matters is another question.`] : [...what, ", it reads nothing of the text: those gates are closed."];
  }
  const falls = (/** @type {Look} */ { fall }) => `${ends ? "the end" : `‘${visible(token).trim() || "␣"}’`} falls from ${percent(Math.exp(log))} to ${odds(Math.exp(log - fall))}`;
  if (most.fall < PALE) {
    const resting = [most, ...others].filter(({ gate }) => gate.kind === "cross").sort((x, y) => y.share - x.share)[0];
    const so = trace.target.slice(1, t + 1).map((one) => one.token).join("");
    const alone = trace.fall("cross", t) < PALE;
    return [h("span", {}, "No gate alone matters for ", ends ? "the end" : b(token), ": "), alone && so.trim() ? h("span", {}, "what is written, ", h("em", {}, so), ", is enough") : "any one of them can be missed",
      resting ? `; ${named(resting.gate)} rests on ‘${signOf(trace.source[resting.token].token)}’.` : "."];
  }
  const across = others.find(({ gate, fall }) => gate.kind === "cross" && fall >= PALE);
  return [...what, `, it needs ${named(most.gate)} most, which ${looks(trace, most)}: without it ${falls(most)}.`, most.gate.kind === "decoder" && across ? ` Of the text it needs ${named(across.gate)}, which ${looks(trace, across)}.` : ""];
}
