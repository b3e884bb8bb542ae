/** Which head does what: each is switched off once, and the answer’s log-probability says how much it was needed. */

import { headsOf } from "./data.js";
import { h, nats, visible } from "./dom.js";
import { Panel, whenSeen } from "./section.js";
import { change, view } from "./state.js";

/** @typedef {import("./data.js").Trace} Trace */
/** @typedef {import("./data.js").Head} Head */
/** How much the log-probability of the answer falls without a head, in all and by token. @typedef {Head & {fall: number, falls: number[]}} Effect */

/** @typedef {{name: string, task: string, small: boolean, examples: string[], does?: string, puzzles?: boolean}} Model  puzzles: whether the tour and the puzzles hold for it */

/** What a head is ranked by: what the whole answer loses without it, or the token of the current step. */
const lossOf = (/** @type {Effect} */ { fall, falls }, /** @type {boolean} */ token) => (token ? falls[view.step] : fall);

function effectRow(/** @type {Effect} */ { kind, layer, head, falls }, /** @type {number} */ fall, /** @type {number} */ most, /** @type {Trace} */ trace) {
  const bar = h("i");
  bar.style.width = `${100 * Math.max(0, fall / most)}%`;
  const worst = falls.indexOf(Math.max(...falls));
  return h("tr", {}, h("th", { scope: "row" }, h("button", { type: "button", className: "link", onclick: () => change({ kind, layer, head, step: worst }) }, `${kind} · layer ${layer} · head ${head}`)),
    h("td", { className: "n" }, nats(fall)), h("td", {}, h("span", { className: "bar" }, bar)),
    h("td", {}, falls[worst] > 0.01 ? `‘${visible(trace.steps[worst].token).trim()}’ (step ${worst})` : "—"));
}

/** Shade the cards of the heads: the more the answer needs a head, the stronger. */
function shadeCards(/** @type {Effect[]} */ effects, /** @type {boolean} */ token, /** @type {number} */ most) {
  for (const effect of effects) {
    const { kind, layer, head } = effect;
    const fall = lossOf(effect, token);
    const card = /** @type {HTMLElement|null} */ (document.querySelector(`[data-head="${kind}.${layer}.${head}"]`));
    card?.style.setProperty("--need", `${Math.round(100 * Math.max(0, fall / most))}%`);
    card?.classList.add("ranked");
  }
}

/**
 * @param {Trace} trace
 * @param {Model} model
 * @param {{off: (head: Head) => Promise<Trace>, current: () => boolean}} ask
 * @returns {Panel}
 */
export function rankingPanel(trace, model, ask) {
  const place = h("div", { className: "scroll" });
  const state = h("p", { className: "sentence progress", role: "status" });
  /** @type {Effect[]} */ let effects = [];
  let token = false; // whether heads are ranked by the token of the current step
  const choice = h("div", { className: "choice", role: "group", "aria-label": "ranked by", hidden: true }, h("span", {}, "ranked by"),
    ...["the whole answer", "this token"].map((words, index) => h("button", { type: "button", "aria-pressed": String(!index), onclick: () => {
      token = index > 0;
      show();
    } }, words)));
  const show = () => {
    choice.hidden = false;
    const written = trace.steps[view.step]?.token ?? "";
    [...choice.querySelectorAll("button")].forEach((button, index) => button.setAttribute("aria-pressed", String(token === index > 0)));
    choice.lastChild.textContent = `this token, ‘${visible(written).trim()}’`;
    const most = Math.max(1e-9, ...effects.map((effect) => lossOf(effect, token)));
    const sorted = [...effects].sort((a, b) => lossOf(b, token) - lossOf(a, token));
    place.replaceChildren(h("table", { className: "ranking" }, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "head"), h("th", { scope: "col", colSpan: 2 }, "log P falls by"), h("th", { scope: "col" }, "most at"))),
      h("tbody", {}, ...sorted.slice(0, 12).map((effect) => effectRow(effect, lossOf(effect, token), most, trace)))));
    shadeCards(effects, token, most);
  };
  const rank = async () => {
    effects = [];
    const heads = headsOf(trace);
    for (const each of heads) {
      const off = await ask.off(each);
      if (!ask.current()) return;
      const falls = trace.steps.map(({ log_probability: before }, t) => before - off.steps[t].log_probability);
      effects.push({ ...each, falls, fall: falls.reduce((a, b) => a + b, 0) });
      state.textContent = `${effects.length} of ${heads.length} heads switched off …`;
    }
    state.textContent = `All ${heads.length} heads, each switched off once, with this text. The answer is held fixed.`;
    show();
  };
  const button = (/** @type {string} */ text, /** @type {() => any} */ act) => h("button", { type: "button", className: "quiet", onclick: act }, text);
  const make = () => {
    if (model.small) place.style.minHeight = `${30 * (Math.min(12, headsOf(trace).length) + 1) + 16}px`; // content that appears later must not move the page
    if (model.small) whenSeen(place, rank);
    return [h("div", { className: "ways" }, button("Switch each head off once", rank)), state, choice, place];
  };
  return new Panel("ranking", "Which head does what", "Each head is switched off once. The more log P, the logarithm of the answer’s probability, falls, the more this answer needs the head.",
    make, (changed) => changed.has("step") && effects.length === headsOf(trace).length && show());
}
