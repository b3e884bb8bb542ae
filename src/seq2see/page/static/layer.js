/** The values between the attentions: residual sums, layer norms, the feed-forward network. */

import { before, inputTo, SUBLAYERS } from "./arithmetic.js";
import { h } from "./dom.js";
import { Heat } from "./heat.js";
import { flowWidth, inSlices, Panel, whenSeen } from "./section.js";
import { change, view } from "./state.js";

/** @typedef {import("./data.js").Trace} Trace */
/** @typedef {{name: string, title: string, sign: string}} Figure  sign stands before it */

/** @type {Record<string, string>} */
const NAMES = { self_attention_norm: "self-attention", cross_attention_norm: "cross-attention", feed_forward: "feed-forward", feed_forward_norm: "feed-forward, add & norm", norm: "last norm" };

/** The parts that one half has. @returns {string[]} */
function parts(/** @type {Trace} */ trace, /** @type {string} */ half) {
  const inner = SUBLAYERS[half].flatMap((sublayer) => (sublayer === "feed_forward" ? [sublayer, `${sublayer}_norm`] : [`${sublayer}_norm`]));
  return trace.json.norm === "pre" ? [...inner, "norm"] : inner;
}

const layersOf = (/** @type {Trace} */ trace, /** @type {string} */ half) => trace.layers(half === "encoder" ? "encoder" : "cross");

/** The matrices of one part, in the order of computation. @returns {Figure[]} */
function figures(/** @type {Trace} */ trace, /** @type {string} */ half, /** @type {string} */ part, /** @type {number} */ layer) {
  const base = `${half}.layers.${layer}`;
  if (part === "norm") {
    return [{ name: `${half}.layers.${layersOf(trace, half) - 1}.feed_forward_norm.out`, title: "x", sign: "" }, { name: half === "encoder" ? "encoder.memory" : "decoder.out", title: "LN(x)", sign: "→" }];
  }
  if (part === "feed_forward") {
    return [{ name: inputTo(trace, half, layer, part), title: "x", sign: "" }, { name: `${base}.feed_forward.hidden`, title: "h", sign: "→" }, { name: `${base}.feed_forward.out`, title: "FFN(x)", sign: "→" }];
  }
  const sublayer = part.replace("_norm", "");
  const [x, y] = [{ name: before(trace, half, layer, sublayer), title: "x", sign: "" }, { name: `${base}.${sublayer}.out`, title: "y", sign: "+" }];
  if (trace.json.norm === "pre") return [x, { name: `${base}.${part}.normed`, title: "LN(x)", sign: "→" }, { ...y, sign: "→" }, { name: `${base}.${part}.out`, title: "x + y", sign: "→" }];
  return [x, y, { name: `${base}.${part}.sum`, title: "x + y", sign: "=" }, { name: `${base}.${part}.out`, title: "LN(x + y)", sign: "→" }];
}

/** @type {Record<string, string>} */
const SAYS = {
  post: "What came in plus what the sub-layer made of it; then every row is brought to mean 0 and variance 1.",
  pre: "Every row is brought to mean 0 and variance 1 before the sub-layer reads it; what the sub-layer makes of it is added to what came in.",
  norm: "Every row of what the stack has come to is brought to mean 0 and variance 1.",
};

/** @returns {Panel} */
export function layerPanel(/** @type {Trace} */ trace, /** @type {import("./panels.js").FetchMore} */ fetchMore) {
  const choosers = h("div", { className: "choosers" });
  const says = h("p", { className: "sentence" });
  const body = h("div", { className: "equation" });
  body.style.minHeight = `${12 * trace.source.length + 60}px`; // numbers that arrive later must not move the page
  const selection = () => {
    const [half, part] = view.part.split(".");
    const known = half === "encoder" || half === "decoder" ? half : "encoder";
    return { half: known, part: parts(trace, known).includes(part) ? part : "feed_forward", layer: Math.min(view.layer, layersOf(trace, known) - 1) };
  };
  const build = async () => {
    const { half, part, layer } = selection();
    const group = (/** @type {string} */ name, /** @type {any[]} */ options, /** @type {any} */ chosen, /** @type {(option: any) => any} */ set, /** @type {(option: any) => any} */ word = (option) => option) =>
      h("div", { className: "choice", role: "group", "aria-label": `${name} of this panel` }, h("span", {}, name), ...options.map((option) =>
        h("button", { type: "button", "aria-pressed": String(option === chosen), onclick: () => change(set(option)) }, word(option))));
    const held = document.activeElement?.textContent;
    const within = choosers.contains(document.activeElement);
    choosers.replaceChildren(
      group("stack", ["encoder", "decoder"], half, (option) => ({ part: `${option}.${parts(trace, option).includes(part) ? part : "feed_forward"}` })),
      group("part", parts(trace, half), part, (option) => ({ part: `${half}.${option}` }), (option) => NAMES[option]),
      ...(part === "norm" ? [] : [group("layer", Array.from({ length: layersOf(trace, half) }, (_, n) => n), layer, (option) => ({ layer: option }))]));
    if (within) /** @type {HTMLElement|undefined} */ ([...choosers.querySelectorAll("button")].find((button) => button.textContent === held))?.focus();
    says.textContent = part === "feed_forward" ? `Each row by itself: widened, ${trace.json.activation === "relu" ? "cut off below 0" : `bent by ${trace.json.activation}`}, narrowed again.`
      : SAYS[part === "norm" ? part : trace.json.norm];
    const wanted = figures(trace, half, part, layer);
    const norm = part === "norm" ? `${half}.norm` : `${half}.layers.${layer}.${part}.norm`;
    const names = [...wanted.map(({ name }) => name), ...(part === "feed_forward" ? [] : [`${norm}.weight`, `${norm}.bias`])];
    const missing = names.filter((name) => !trace.has(name));
    if (missing.length) {
      body.replaceChildren(h("p", {}, "Fetching the numbers of this part …"));
      await fetchMore(missing);
      const now = selection();
      if (now.half !== half || now.part !== part || now.layer !== layer || missing.some((name) => !trace.has(name))) return; // another answer may have replaced this one
    }
    const box = flowWidth() >= 700 ? (flowWidth() - 300) / 3 : Math.max(150, flowWidth() - 70);
    inSlices(body, wanted.map(({ name, title, sign }) => () => h("div", { className: "term" },
      sign && h("b", { className: "sign" }, sign), new Heat(trace, name, { box, most: 12, title, about: name }).element)), true);
  };
  const make = () => {
    if (trace.has("encoder.layers.0.feed_forward.hidden")) build();
    else whenSeen(body, build);
    return [choosers, says, body];
  };
  return new Panel("layer", "Between the attentions", "Residual sums, layer norms and the feed-forward network (sections 3.1, 3.3).",
    make, (changed) => (changed.has("part") || changed.has("layer")) && build());
}
