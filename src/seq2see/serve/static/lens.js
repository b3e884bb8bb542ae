/** The logit lens: what each layer of the decoder would say, were it the last. */

import { h, percent, visible } from "./dom.js";
import { change, view } from "./state.js";

/** @typedef {import("./data.js").Trace} Trace */

const TABLES = ["output.weight", "decoder.embedding.table.weight", "encoder.embedding.table.weight"]; // shared ones are sent once

/** The likeliest next token by one vector. @returns {{id: number, probability: number}} */
function read(/** @type {Trace} */ trace, /** @type {number[]} */ x) {
  const W = trace.matrix(TABLES.find((name) => trace.has(name)) ?? "");
  const bias = trace.has("output.bias") ? trace.tensor("output.bias").data : null;
  const logits = Array.from({ length: W.rows }, (_, id) => x.reduce((sum, value, i) => sum + value * W.at(id, i), bias ? bias[id] : 0));
  const largest = Math.max(...logits);
  const total = logits.reduce((sum, y) => sum + Math.exp(y - largest), 0);
  return { id: logits.indexOf(largest), probability: 1 / total };
}

/** @returns {import("./panels.js").Panel|null} null where the numbers for it are not at hand */
export function lensPanel(/** @type {Trace} */ trace, /** @type {string[]} */ vocabulary) {
  if (trace.json.norm !== "post" || !TABLES.some((name) => trace.has(name)) || !trace.has("decoder.layers.0.feed_forward_norm.out")) return null;
  const names = ["decoder.embedding.sum"];
  for (let layer = 0; layer < trace.layers("cross"); layer += 1) names.push(`decoder.layers.${layer}.feed_forward_norm.out`);
  const steps = trace.steps.map((_, t) => t);
  const body = names.map((name, index) => {
    const matrix = trace.matrix(name);
    return h("tr", {}, h("th", { scope: "row" }, index ? `after layer ${index - 1}` : "before"), ...steps.map((t) => {
      const { id, probability } = read(trace, Array.from({ length: matrix.cols }, (_, i) => matrix.at(t, i)));
      const cell = h("td", { "data-step": t, title: percent(probability), className: id === trace.steps[t].id ? "right" : "" }, h("span", {}, visible(vocabulary[id] ?? String(id))));
      cell.style.setProperty("--p", `${Math.round(100 * probability)}%`);
      cell.addEventListener("click", () => change({ step: t }));
      return cell;
    }));
  });
  const table = h("table", { className: "lens" },
    h("thead", {}, h("tr", {}, h("td"), ...trace.target.map(({ token }) => h("th", { scope: "col" }, visible(token))))), h("tbody", {}, ...body));
  const update = () => {
    for (const cell of table.querySelectorAll("td[data-step]")) cell.classList.toggle("now", Number(cell.dataset.step) === view.step);
  };
  update();
  return {
    element: h("section", { id: "lens", className: "panel", "aria-labelledby": "lens-title" }, h("h2", { id: "lens-title" }, "What each layer would say"),
      h("p", { className: "sentence" }, "The “logit lens”: the output projection applied after every layer, as if it were the last. Bold is what was answered, the shade is how sure. Where a head looks and what a layer would say are two things; neither explains the answer by itself."),
      h("div", { className: "scroll" }, table)),
    update: (changed) => changed.has("step") && update(),
  };
}
