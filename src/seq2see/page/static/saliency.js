/** Which tokens read matter to a token written: by gradients, and by attention. */

import { attention } from "./data.js";
import { h, percent, svg, visible } from "./dom.js";
import { Panel, whenSeen } from "./section.js";
import { view } from "./state.js";

/** @typedef {import("./data.js").Trace} Trace */
/** @typedef {{token: string, saliency: number, attention: number}} Bar */

const HIGH = 84; // height of the largest bar

/** A row of the last layer’s attention, the mean of its heads. @returns {number[]} */
function looked(/** @type {Trace} */ trace, /** @type {"decoder"|"cross"} */ kind, /** @type {number} */ step) {
  const name = `${attention(kind, trace.layers(kind) - 1)}.weights`;
  const heads = Array.from({ length: trace.heads }, (_, head) => trace.matrix(name, head));
  return Array.from({ length: heads[0].cols }, (_, s) => heads.reduce((sum, A) => sum + A.at(step, s), 0) / heads.length);
}

/** @returns {Bar[][]} source and answer so far */
function bars(/** @type {Trace} */ trace, /** @type {{source: number[], target: number[]}} */ row, /** @type {number} */ step) {
  const side = (/** @type {string[]} */ tokens, /** @type {number[]} */ saliency, /** @type {number[]} */ weights) =>
    tokens.map((token, index) => ({ token, saliency: saliency[index], attention: weights[index] }));
  return [
    side(trace.tokens("source"), row.source, looked(trace, "cross", step)),
    side(trace.tokens("target").slice(0, step + 1), row.target, looked(trace, "decoder", step)),
  ];
}

/** Two rows of bars: saliency upwards, attention downwards, the tokens between them. */
function drawing(/** @type {Bar[][]} */ groups) {
  const wide = (/** @type {string} */ token) => Math.max(25, 9 * visible(token).length + 8);
  const middle = HIGH + 48;
  const scale = HIGH / Math.max(...groups.flat().flatMap((bar) => [bar.saliency, bar.attention]));
  const picture = svg("svg", { height: 2 * middle, role: "img", "aria-label": "Saliency above, attention below, for each token that was read" });
  let x = 4;
  groups.forEach((group, index) => {
    const begins = x;
    picture.append(svg("text", { x: x + 2, y: 12, class: "group" }, index ? "the answer so far" : "the source"));
    for (const { token, saliency, attention: weight } of group) {
      const width = wide(token);
      const centre = x + width / 2;
      picture.append(svg("text", { x: centre, y: middle + 5, class: "token" }, visible(token)));
      const part = (/** @type {number} */ share, /** @type {string} */ name, /** @type {number} */ y, /** @type {number} */ words) => {
        picture.append(svg("rect", { x: centre - 9, y, width: 18, height: scale * share, rx: 2, class: name }, svg("title", {}, `${visible(token)}: ${name} ${percent(share)}`)));
        if (share >= 0.05) picture.append(svg("text", { x: centre, y: words, class: "share" }, String(Math.round(100 * share))));
      };
      part(saliency, "saliency", middle - 16 - scale * saliency, middle - 20 - scale * saliency);
      part(weight, "attention", middle + 14, middle + 26 + scale * weight);
      x += width;
    }
    x = Math.max(x, begins + 120) + 36; // the name of a group of one token has space too
  });
  picture.setAttribute("width", String(x - 32));
  picture.setAttribute("viewBox", `0 0 ${x - 32} ${2 * middle}`);
  return picture;
}

function numbers(/** @type {Bar[][]} */ groups) {
  return h("details", {}, h("summary", {}, "as numbers"), h("table", { className: "shares" },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "token"), h("th", { scope: "col" }, "saliency"), h("th", { scope: "col" }, "attention"))),
    ...groups.map((group) => h("tbody", {}, ...group.map(({ token, saliency, attention: weight }) =>
      h("tr", {}, h("th", { scope: "row" }, visible(token)), h("td", {}, percent(saliency)), h("td", {}, percent(weight))))))));
}

/** @returns {Panel} */
export function saliencyPanel(/** @type {Trace} */ trace, /** @type {import("./panels.js").FetchMore} */ fetchMore, /** @type {boolean} */ small) {
  const says = h("p", { className: "so-far" });
  const place = h("div", { className: "scroll origins", tabIndex: 0, role: "group", "aria-label": "Saliency and attention" });
  const below = h("div");
  let seen = false;
  const build = async () => {
    seen = true;
    const { step } = view;
    if (!trace.saliency.has(step)) {
      if (!place.firstChild) place.append(h("p", { className: "sentence" }, "Measuring …"));
      const why = await fetchMore([], { also: ["saliency"], ...(small ? {} : { step }) });
      if (why) return void place.replaceChildren(h("p", { className: "sentence" }, why));
    }
    const row = trace.saliency.get(step);
    if (!row || step !== view.step) return undefined;
    const open = below.querySelector("details")?.open ?? false;
    const groups = bars(trace, row, step);
    says.replaceChildren(h("span", { className: "past" }, trace.target.slice(1, step + 1).map(({ token }) => token).join("") || "at the beginning"), " … ", h("b", {}, visible(trace.steps[step].token)));
    place.replaceChildren(drawing(groups));
    below.replaceChildren(numbers(groups));
    /** @type {HTMLDetailsElement} */ (below.firstChild).open = open;
    return undefined;
  };
  const make = () => {
    if (trace.saliency.size) build();
    else whenSeen(place, build);
    return [says, h("p", { className: "legend" }, h("i", { className: "saliency" }), "saliency, %", h("i", { className: "attention" }), "attention, %"), place, below];
  };
  return new Panel("saliency", "What the answer owes to each token", "Above: |gradient × embedding| of this token’s log-odds, as shares of all that was read (those of its log-probability are the same). Below: where the last layer’s heads look, on average. The two often disagree: attention says where a layer looks, not why the answer is what it is, and a gradient says only what a small change would do. Neither is an explanation.",
    make, (changed) => changed.has("step") && seen && build(), true);
}
