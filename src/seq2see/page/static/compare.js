/** Two answers side by side, their tokens aligned, and numbers taken from one run into the other. */

import { h, named, visible } from "./dom.js";
import { Panel } from "./section.js";
import { change, view } from "./state.js";

/** @typedef {import("./data.js").Trace} Trace */
/** @typedef {import("./data.js").Kind} Kind */
/** @typedef {[number, number]} Pair  a place in one text and its partner in the other */

/** Align two lists of tokens with the fewest changes: pairs of places, in order. @returns {Pair[]} */
export function align(/** @type {string[]} */ a, /** @type {string[]} */ b) {
  const cost = Array.from({ length: a.length + 1 }, (_, i) => Float64Array.from({ length: b.length + 1 }, (_, j) => (i && j ? 0 : i + j)));
  for (let i = 1; i <= a.length; i += 1) {
    for (let j = 1; j <= b.length; j += 1) cost[i][j] = Math.min(cost[i - 1][j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1.5), cost[i - 1][j] + 1, cost[i][j - 1] + 1);
  }
  /** @type {Pair[]} */ const pairs = [];
  let [i, j] = [a.length, b.length];
  while (i && j) {
    if (cost[i][j] === cost[i - 1][j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1.5)) pairs.unshift([(i -= 1), (j -= 1)]);
    else if (cost[i][j] === cost[i - 1][j] + 1) i -= 1;
    else j -= 1;
  }
  return pairs;
}

/** The first characters of a text, as its label. */
const brief = (/** @type {string} */ text) => (text.length > 24 ? `${text.slice(0, 24)}…` : text);

const namesOf = (/** @type {Trace} */ before, /** @type {Trace} */ after) => (before.json.text === after.json.text ? ["before", "now"] : [before.json.text, after.json.text]);

/** Two answers, token under token. */
function sideBySide(/** @type {Trace} */ before, /** @type {Trace} */ after, /** @type {Pair[]} */ pairs) {
  const names = namesOf(before, after);
  /** @type {(number|null)[][]} */ const columns = [];
  let [i, j] = [0, 0];
  for (const [a, b] of [...pairs, [before.steps.length, after.steps.length]]) {
    while (i < a) columns.push([(i += 1) - 1, null]);
    while (j < b) columns.push([null, (j += 1) - 1]);
    if (a < before.steps.length && b < after.steps.length) columns.push([(i += 1) - 1, (j += 1) - 1]);
  }
  const word = (/** @type {Trace} */ trace, /** @type {number|null} */ t) => (t === null ? null : trace.steps[t].token);
  const line = (/** @type {number} */ side, /** @type {Trace} */ trace) => h("tr", {}, h("th", { scope: "row", title: names[side] }, brief(names[side])), h("td", { className: "said" }, ...columns.map((column) => {
    const token = word(trace, column[side]);
    const other = word(side ? before : after, column[1 - side]);
    return h("span", { className: token === other ? "" : token === null ? "gap" : "moved" }, token === null ? "·" : token === "<eos>" ? "" : token);
  })));
  return h("table", { className: "compare" }, h("thead", {}, h("tr", {}, h("td"), h("th", { scope: "col" }, "answer"))), h("tbody", {}, line(0, before), line(1, after)));
}

/** Write the comparison of two answers into an element. */
export function showComparison(/** @type {HTMLElement} */ place, /** @type {Trace} */ before, /** @type {Trace} */ after) {
  const [was, is] = [before, after].map(({ steps }) => steps.map(({ token }) => token));
  place.replaceChildren(sideBySide(before, after, align(was, is)));
}

// --- patching ---

/** The values that can be taken over, by name. @returns {[string, string, boolean][]} name, words, whether it has heads */
function values(/** @type {Trace} */ trace) {
  const layers = (/** @type {Kind} */ kind) => Array.from({ length: trace.layers(kind) }, (_, n) => n);
  return [
    ["encoder.embedding.sum", "the embeddings of the source", false],
    ...layers("encoder").flatMap((n) => /** @type {[string, string, boolean][]} */ ([[`encoder.layers.${n}.self_attention.z`, `encoder layer ${n}: what heads hand on`, true], [`encoder.layers.${n}.feed_forward_norm.out`, `encoder layer ${n}: its result`, false]])),
    ["encoder.memory", "the memory: all that the encoder says", false],
    ...layers("cross").flatMap((n) => /** @type {[string, string, boolean][]} */ ([
      [`decoder.layers.${n}.self_attention.z`, `decoder layer ${n}: what heads hand on`, true], [`decoder.layers.${n}.cross_attention.weights`, `cross-attention ${n}: where heads look`, true],
      [`decoder.layers.${n}.cross_attention.z`, `cross-attention ${n}: what heads hand on`, true], [`decoder.layers.${n}.feed_forward_norm.out`, `decoder layer ${n}: its result`, false],
    ])),
  ];
}

/** A form that takes numbers of the run on another text into this one. @returns {HTMLElement} */
export function patchForm(/** @type {Trace} */ trace, /** @type {Trace} */ other) {
  compared = [trace, other];
  const all = values(trace);
  const [given] = view.patches;
  const [name = "encoder.memory", head = "-1", row = "-1"] = given && all.some(([value]) => given.startsWith(`${value}~`)) ? given.split("~") : [];
  const option = (/** @type {string} */ value, /** @type {string} */ text, /** @type {string} */ chosen) => h("option", { value, selected: value === chosen }, text);
  const what = h("select", { "aria-label": "Value to take over" }, ...all.map(([value, text]) => option(value, text, name)));
  const heads = h("select", { "aria-label": "Head to take over" });
  const rows = h("select", { "aria-label": "Position to take over" });
  const fill = (/** @type {string} */ chosenHead, /** @type {string} */ chosenRow) => {
    const byHead = all.find(([value]) => value === what.value)?.[2] ?? false;
    heads.disabled = !byHead;
    heads.replaceChildren(option("-1", "all heads", chosenHead), ...(byHead ? Array.from({ length: trace.heads }, (_, n) => option(String(n), `head ${n}`, chosenHead)) : []));
    const side = what.value.startsWith("encoder") ? "source" : "target";
    const names = side === "source" ? named(trace.tokens("source")) : trace.steps.map(({ token }, t) => `step ${t}: ${visible(token)}`);
    rows.replaceChildren(option("-1", "all positions", chosenRow), ...names.map((token, n) => option(String(n), token, chosenRow)));
  };
  what.addEventListener("change", () => fill("-1", "-1"));
  fill(head, row);
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    takeOver(what.value, Number(heads.value), Number(rows.value), -1);
  };
  return h("form", { className: "patch", onsubmit: submit }, h("span", {}, `Take from ‘${brief(other.json.text)}’:`), what, heads, rows, h("button", { className: "quiet" }, "Take over"),
    given && h("button", { type: "button", className: "link", onclick: () => change({ patches: [] }) }, "undo"));
}

/** The run that is shown and the one that it is compared with. @type {[Trace, Trace]|undefined} */ let compared;

/** Where a row has its partner in the other run. */
function partnerOf(/** @type {string} */ name, /** @type {number} */ row) {
  if (!compared || row < 0) return row;
  const side = name.startsWith("encoder") || /cross_attention\.[kv]$/.test(name) ? "source" : "target";
  const [mine, theirs] = compared.map((trace) => trace.tokens(side));
  return align(mine, theirs).find(([here]) => here === row)?.[1] ?? row;
}

/** Take over numbers of the other run; −1 stands for all. */
const takeOver = (/** @type {string} */ name, /** @type {number} */ head, /** @type {number} */ row, /** @type {number} */ col) => change({ patches: [[name, head, row, col, partnerOf(name, row)].join("~")] });

/** Buttons that take a pinned cell, its row or its whole matrix from the other run. @returns {HTMLElement[]} */
export function takeOverCell(/** @type {Trace} */ trace, /** @type {import("./data.js").Cell} */ { name, head, row, col }) {
  if (!view.against || compared?.[0] !== trace) return [];
  const button = (/** @type {string} */ text, /** @type {number} */ r, /** @type {number} */ c) => h("button", { type: "button", className: "link", onclick: () => takeOver(name, head, r, c) }, text);
  return [h("p", { className: "take" }, `Take from ‘${brief(compared[1].json.text)}’: `, button("this cell", row, col), " ", button("this row", row, -1), " ", button(head < 0 ? "the whole matrix" : "this head", -1, -1))];
}

/** The panel with the field for the other text; the comparison is written into it. @returns {Panel} */
export function comparePanel() {
  const input = h("input", { id: "against", value: view.against, "aria-label": "Text to compare with", placeholder: "another text", autocomplete: "off", spellcheck: false });
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    change({ against: input.value, patches: [] });
  };
  const panel = new Panel("compare", "Compare", "Edit the text, force a token or switch a head off: what changes in the answer.",
    () => [h("form", { onsubmit: submit }, input, h("button", { className: "quiet" }, "Compare")), h("div", { id: "patching" }), h("p", { id: "compare-error", role: "alert" }), h("div", { id: "difference" })]);
  panel.fill();
  return panel;
}
