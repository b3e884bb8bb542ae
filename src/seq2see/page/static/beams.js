/** The beam search as a tree: every prefix that was kept, step by step. The reader can follow a branch. */

import { exact, h, nats, number, roving, svg } from "./dom.js";
import { inSlices, Panel, whenSeen } from "./section.js";
import { BEAMS, change, view } from "./state.js";

/** @typedef {{step: number, parent: number|null, id: number, token: string, log_probability: number, score?: number}} Node  with a score it is an end */
/** @typedef {import("./data.js").Trace} Trace */

const ROW = 46;
const short = (/** @type {number} */ x) => (x > -0.05 ? "0.0" : number(x, 1));

/** The ids and the text from the root to each node, and whether the answer begins so. A parent stands before its children. */
function beginnings(/** @type {Trace} */ trace, /** @type {Node[]} */ nodes) {
  /** @type {{ids: () => number[], text: string, answer: boolean}[]} */ const found = [];
  for (const { parent, id, step, token } of nodes) {
    const above = parent === null ? { ids: () => [], text: "", answer: true } : found[parent];
    found.push({ ids: () => [...above.ids(), id], text: above.text + token, answer: above.answer && trace.steps[step]?.id === id });
  }
  return found;
}

/** A curve that starts and ends horizontally. */
function bend(/** @type {number} */ x, /** @type {number} */ y, /** @type {number} */ right, /** @type {number} */ low) {
  const half = (x + right) / 2;
  return `M${x} ${y} C${half} ${y} ${half} ${low} ${right} ${low}`;
}

/** The tree as an empty drawing, and its parts; `live` lets a branch be chosen. @returns {{picture: SVGElement, parts: (() => SVGElement)[]}} */
function tree(/** @type {Trace} */ trace, /** @type {Node[]} */ nodes, /** @type {boolean} */ live) {
  /** @type {Map<number, number>} */ const filled = new Map();
  const steps = Math.max(...nodes.map(({ step }) => step)) + 1;
  const longest = nodes.reduce((most, node) => Math.max(most, node.score === undefined ? exact(node.token).length : 1), 1);
  const GAP = Math.max(46, 9 * longest + 28); // words need more space than letters
  const arm = (/** @type {Node} */ node) => (node.score === undefined ? 4.5 * exact(node.token).length + 5 : 9);
  const places = nodes.map((node) => {
    const rank = filled.get(node.step) ?? 0;
    filled.set(node.step, rank + 1);
    return { x: (node.step + 0.5) * GAP, y: (rank + 0.5) * ROW + 8 };
  });
  const rows = Math.max(...filled.values());
  const begun = beginnings(trace, nodes);
  const picture = svg("svg", { width: steps * GAP, height: rows * ROW + 16, viewBox: `0 0 ${steps * GAP} ${rows * ROW + 16}`, role: "group", "aria-label": "Prefixes kept open, step by step" });
  const branch = (/** @type {Node} */ node, /** @type {number} */ index) => {
    if (node.parent === null) return [];
    const [from, to] = [places[node.parent], places[index]];
    return [svg("path", { class: begun[index].answer ? "branch answer" : "branch", d: bend(from.x + arm(nodes[node.parent]), from.y, to.x - arm(node), to.y) })];
  };
  const drawn = (/** @type {Node} */ node, /** @type {number} */ index) => {
    const { x, y } = places[index];
    const { ids, text, answer } = begun[index];
    const choose = () => change({ prefix: answer ? [] : ids() });
    const ends = node.score !== undefined;
    const label = `${text}: log P ${nats(node.log_probability)}${ends ? `, score ${nats(node.score ?? 0)}, an end` : ""}`;
    return svg("g", {
      class: `node${answer ? " answer" : ""}${ends ? " end" : ""}${live ? " live" : ""}`, ...(live ? {
        tabindex: index ? -1 : 0, role: "button", "aria-label": `follow ${label}`, onclick: choose,
        onkeydown: (/** @type {KeyboardEvent} */ event) => event.key === "Enter" && choose(),
      } : {}),
    }, svg("title", {}, label), ...(ends ? [svg("rect", { x: x - 8, y: y - 9, width: 16, height: 16, rx: 3, class: "stop" })] : []),
    svg("text", { x, y: y + 5 }, ends ? "∎" : exact(node.token)),
    svg("text", { x, y: y + 19, class: "score" }, short(node.score ?? node.log_probability)));
  };
  if (live) roving(picture, ".node");
  return { picture, parts: nodes.map((node, index) => () => svg("g", {}, ...branch(node, index), drawn(node, index))) };
}

/** Show a tree, or nothing where there is none. */
async function show(/** @type {HTMLElement} */ place, /** @type {Trace} */ trace, /** @type {Node[]} */ nodes, /** @type {boolean} */ live) {
  if (!nodes.length) return void place.replaceChildren();
  const { picture, parts } = tree(trace, nodes, live);
  place.replaceChildren(picture);
  await inSlices(picture, parts);
  return undefined;
}

/** @returns {Panel} */
export function beamPanel(/** @type {Trace} */ trace, /** @type {boolean} */ live, /** @type {(beam: number) => Promise<Node[]>} */ fetchBeams) {
  const place = h("div", { className: "scroll beams", tabIndex: 0, role: "group", "aria-label": "The tree" });
  const buttons = h("div", { className: "choice", role: "group", "aria-label": "beam" }, h("span", {}, "beam"),
    ...BEAMS.slice(1).map((width) => h("button", { type: "button", value: width, onclick: () => change({ beam: view.beam === width ? 1 : width }) }, width)));
  const press = () => {
    for (const button of buttons.querySelectorAll("button")) button.setAttribute("aria-pressed", String(Number(button.value) === view.beam));
  };
  const build = async () => {
    press();
    const { beam } = view;
    try {
      const nodes = live ? (beam > 1 ? await fetchBeams(beam) : []) : trace.json.beams;
      if (!live || beam === view.beam) await show(place, trace, nodes, live);
    } catch (error) {
      if (beam === view.beam) place.replaceChildren(h("p", { role: "alert" }, /** @type {Error} */ (error).message));
    }
  };
  const make = () => {
    press();
    if (live) whenSeen(place, build);
    else build();
    return [live && buttons, place];
  };
  return new Panel("beams", "Beam search", `Instead of the likeliest token, the likeliest beginnings are kept open (section 6.1). Each shows its last token and its log-probability; ∎ is an end, with the score that answers are ranked by: log-probability over length penalty.${live ? " Follow one, and all panels show it." : ""}`,
    make, (changed) => changed.has("beam") && build());
}
