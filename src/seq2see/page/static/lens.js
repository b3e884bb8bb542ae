/** The logit lens: the token that each layer of the decoder would choose if it were the last layer. */

import { h, percent, visible } from "./dom.js";
import { Panel, whenSeen } from "./section.js";
import { change, view } from "./state.js";

/** @typedef {import("./data.js").Trace} Trace */
/** @typedef {{after: number|null, ids: number[], tokens: string[], probabilities: number[]}} Layer */

/** A probability in a few characters. */
const sure = (/** @type {number} */ p) => (p >= 0.995 ? "" : p < 0.005 ? "0" : `.${String(Math.round(100 * p)).padStart(2, "0")}`);

/** @returns {HTMLElement} */
function lensTable(/** @type {Trace} */ trace) {
  const body = trace.json.lens.map((/** @type {Layer} */ { after, ids, tokens, probabilities }) =>
    h("tr", {}, h("th", { scope: "row" }, after === null ? "before" : `after layer ${after}`), ...ids.map((id, t) => {
      const cell = h("td", { "data-step": t, title: percent(probabilities[t]), className: id === trace.steps[t].id ? "right" : "" }, h("span", {}, visible(tokens[t])), h("small", {}, sure(probabilities[t])));
      cell.style.setProperty("--p", `${Math.round(100 * probabilities[t])}%`);
      cell.addEventListener("click", () => change({ step: t }));
      return cell;
    })));
  return h("table", { className: "lens" },
    h("thead", {}, h("tr", {}, h("th", { scope: "row" }, "reads"), ...trace.target.map(({ token }) => h("th", { scope: "col" }, visible(token))))), h("tbody", {}, ...body));
}

/** @returns {Panel} */
export function lensPanel(/** @type {Trace} */ trace, /** @type {import("./panels.js").FetchMore} */ fetchMore) {
  const place = h("div", { className: "scroll", tabIndex: 0, role: "group", "aria-label": "The logit lens" });
  place.style.minHeight = `${44 * (trace.layers("cross") + 2) + 16}px`; // numbers that arrive later must not move the page
  const update = () => {
    for (const cell of place.querySelectorAll("td[data-step]")) cell.classList.toggle("now", Number(cell.dataset.step) === view.step);
  };
  const build = async () => {
    const why = trace.json.lens ? undefined : await fetchMore([], { also: ["lens"] });
    if (why) place.replaceChildren(h("p", { className: "sentence" }, why));
    if (!trace.json.lens) return;
    place.replaceChildren(lensTable(trace));
    update();
  };
  const make = () => {
    if (trace.json.lens) build();
    else whenSeen(place, build);
    return [place];
  };
  return new Panel("lens", "What each layer would say", "The “logit lens”: the output projection applied after every layer, as if it were the last. Bold is what was answered. The number is the probability, where it is not about 1.",
    make, (changed) => changed.has("step") && update());
}
