/** The beam as a tree: every prefix that was kept open, step by step; a branch can be followed. */

import { h, number, svg, visible } from "./dom.js";
import { change, view } from "./state.js";

/** @typedef {{step: number, parent: number|null, id: number, token: string, log_probability: number}} Node */
/** @typedef {import("./data.js").Trace} Trace */

export const WIDTHS = [2, 3, 4, 8];
const GAP = 46;
const ROW = 42;

/** The nodes from the root to one. @returns {Node[]} */
function path(/** @type {Node[]} */ nodes, /** @type {Node} */ node) {
  const above = node.parent === null ? [] : path(nodes, nodes[node.parent]);
  return [...above, node];
}

/** Draw the tree; `live` lets a branch be chosen. @returns {SVGElement} */
function tree(/** @type {Trace} */ trace, /** @type {Node[]} */ nodes, /** @type {boolean} */ live) {
  /** @type {Map<number, number>} */ const filled = new Map();
  const places = nodes.map((node) => {
    const rank = filled.get(node.step) ?? 0;
    filled.set(node.step, rank + 1);
    return { x: (node.step + 0.5) * GAP, y: (rank + 0.5) * ROW + 8 };
  });
  const steps = Math.max(...nodes.map(({ step }) => step)) + 1;
  const rows = Math.max(...filled.values());
  const onAnswer = (/** @type {Node} */ node) => path(nodes, node).every(({ id, step }) => trace.steps[step]?.id === id);
  const picture = svg("svg", { width: steps * GAP, height: rows * ROW + 16, viewBox: `0 0 ${steps * GAP} ${rows * ROW + 16}`, role: "group", "aria-label": "Prefixes kept open, step by step" });
  nodes.forEach((node, index) => {
    if (node.parent === null) return;
    const [from, to] = [places[node.parent], places[index]];
    picture.append(svg("path", { class: onAnswer(node) ? "branch answer" : "branch", d: `M${from.x + 9} ${from.y} C${from.x + 26} ${from.y} ${to.x - 26} ${to.y} ${to.x - 9} ${to.y}` }));
  });
  nodes.forEach((node, index) => {
    const { x, y } = places[index];
    const choose = () => change({ prefix: onAnswer(node) ? [] : path(nodes, node).map(({ id }) => id) });
    const written = path(nodes, node).map(({ token }) => token).join("");
    const label = `${written}: log P ${number(node.log_probability, 3)}`;
    picture.append(svg("g", {
      class: `${onAnswer(node) ? "node answer" : "node"}${live ? " live" : ""}`, ...(live ? {
        tabindex: 0, role: "button", "aria-label": `follow ${label}`, onclick: choose,
        onkeydown: (/** @type {KeyboardEvent} */ event) => event.key === "Enter" && choose(),
      } : {}),
    }, svg("title", {}, label), svg("text", { x, y: y + 5 }, visible(node.token)),
    svg("text", { x, y: y + 16, class: "score" }, node.log_probability > -0.05 ? "0.0" : number(node.log_probability, 1))));
  });
  return picture;
}

/** @returns {import("./panels.js").Panel} */
export function beamPanel(/** @type {Trace} */ trace, /** @type {boolean} */ live, /** @type {(beam: number) => Promise<Node[]>} */ fetchBeams) {
  const place = h("div", { className: "scroll beams" });
  const buttons = h("div", { className: "choice", role: "group", "aria-label": "beam" }, h("span", {}, "beam"),
    ...WIDTHS.map((width) => h("button", { type: "button", value: width, onclick: () => change({ beam: view.beam === width ? 1 : width }) }, width)));
  const build = async () => {
    for (const button of buttons.querySelectorAll("button")) button.setAttribute("aria-pressed", String(Number(button.value) === view.beam));
    const nodes = live ? (view.beam > 1 ? await fetchBeams(view.beam) : []) : trace.json.beams;
    place.replaceChildren(...(nodes.length ? [tree(trace, nodes, live)] : []));
  };
  build();
  return {
    element: h("section", { id: "beams", className: "panel", "aria-labelledby": "beams-title" }, h("h2", { id: "beams-title" }, "Beam search"),
      h("p", { className: "sentence" }, `Instead of the likeliest token, the likeliest beginnings are kept open (section 6.1). Each shows its last token and its log-probability.${live ? " Follow one, and all panels show it." : ""}`),
      live && buttons, place),
    update: (changed) => {
      if (changed.has("beam")) build();
    },
  };
}
