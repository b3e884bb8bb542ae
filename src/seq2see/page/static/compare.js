/** Two answers side by side: their tokens aligned, the heads that moved, and numbers taken from one run into the other. */

import { attention, KINDS } from "./data.js";
import { h, named, number, visible } from "./dom.js";
import { ramp } from "./heat.js";
import { Panel } from "./section.js";
import { change, view } from "./state.js";

/** @typedef {import("./data.js").Trace} Trace */
/** @typedef {import("./data.js").Kind} Kind */
/** @typedef {[number, number]} Pair  a place in one text and its partner in the other */

/** Align two lists of tokens with the fewest changes: pairs of places, in order. @returns {Pair[]} */
export function align(/** @type {string[]} */ a, /** @type {string[]} */ b) {
  const cost = Array.from({ length: a.length + 1 }, (_, i) => Array.from({ length: b.length + 1 }, (_, j) => (i && j ? 0 : i + j)));
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

/** The pairs of rows and of columns of an attention. A row of the decoder is known by what it writes. */
function pairsOf(/** @type {Trace} */ before, /** @type {Trace} */ after, /** @type {Kind} */ kind) {
  const source = align(before.tokens("source"), after.tokens("source"));
  const read = align(before.tokens("target"), after.tokens("target"));
  const written = align(before.steps.map(({ token }) => token), after.steps.map(({ token }) => token));
  return { rows: kind === "encoder" ? source : written, cols: kind === "decoder" ? read : source };
}

/** A small picture of numbers from −1 to 1, or of shares. @returns {HTMLElement} */
function picture(/** @type {number[][]} */ values, /** @type {boolean} */ signed, /** @type {number} */ box, /** @type {string} */ label) {
  const [rows, cols] = [values.length, values[0]?.length ?? 0];
  const canvas = h("canvas", { width: Math.max(1, cols), height: Math.max(1, rows), role: "img", "aria-label": label });
  const context = canvas.getContext("2d");
  const image = context.createImageData(Math.max(1, cols), Math.max(1, rows));
  values.flat().forEach((x, index) => image.data.set([...ramp(signed, signed ? 0.5 + x / 2 : x), 255], 4 * index));
  context.putImageData(image, 0, 0);
  const size = Math.max(2, Math.min(14, box / Math.max(1, cols)));
  canvas.style.width = `${cols * size}px`;
  canvas.style.height = `${rows * size}px`;
  return canvas;
}

/** The weights of a head at the pairs: before, after, and the difference. */
function paired(/** @type {Trace} */ before, /** @type {Trace} */ after, /** @type {Kind} */ kind, /** @type {number} */ layer, /** @type {number} */ head, /** @type {{rows: Pair[], cols: Pair[]}} */ { rows, cols }) {
  const name = `${attention(kind, layer)}.weights`;
  const [a, b] = [before.matrix(name, head), after.matrix(name, head)];
  const was = rows.map(([row]) => cols.map(([col]) => a.at(row, col)));
  const is = rows.map(([, row]) => cols.map(([, col]) => b.at(row, col)));
  const moved = was.map((line, r) => line.map((x, c) => is[r][c] - x));
  const mean = moved.reduce((sum, line) => sum + line.reduce((all, x) => all + Math.abs(x), 0) / 2, 0) / Math.max(1, rows.length);
  return { was, is, moved, mean };
}

/** All heads, those whose weights moved most first. */
function movedHeads(/** @type {Trace} */ before, /** @type {Trace} */ after) {
  return KINDS.flatMap((kind) => {
    const pairs = pairsOf(before, after, kind);
    const layers = Math.min(before.layers(kind), after.layers(kind));
    return Array.from({ length: layers * before.heads }, (_, n) => {
      const [layer, head] = [Math.floor(n / before.heads), n % before.heads];
      return { kind, layer, head, pairs, ...paired(before, after, kind, layer, head, pairs) };
    });
  }).sort((x, y) => y.mean - x.mean);
}

/** Two answers, token under token. */
function sideBySide(/** @type {Trace} */ before, /** @type {Trace} */ after, /** @type {string[]} */ names) {
  const pairs = align(before.steps.map(({ token }) => token), after.steps.map(({ token }) => token));
  /** @type {(number|null)[][]} */ const columns = [];
  let [i, j] = [0, 0];
  for (const [a, b] of [...pairs, [before.steps.length, after.steps.length]]) {
    while (i < a) columns.push([(i += 1) - 1, null]);
    while (j < b) columns.push([null, (j += 1) - 1]);
    if (a < before.steps.length && b < after.steps.length) columns.push([(i += 1) - 1, (j += 1) - 1]);
  }
  const word = (/** @type {Trace} */ trace, /** @type {number|null} */ t) => (t === null ? null : trace.steps[t].token);
  const line = (/** @type {number} */ side, /** @type {Trace} */ trace) => h("tr", {}, h("th", { scope: "row" }, names[side]), h("td", { className: "said" }, ...columns.map((column) => {
    const token = word(trace, column[side]);
    const other = word(side ? before : after, column[1 - side]);
    return h("span", { className: token === other ? "" : token === null ? "gap" : "moved" }, token === null ? "·" : token === "<eos>" ? "" : token);
  })), h("td", { className: "n" }, number(trace.logProbability)));
  return h("table", { className: "compare" }, h("thead", {}, h("tr", {}, h("td"), h("th", { scope: "col" }, "answer"), h("th", { scope: "col" }, "log P"))), h("tbody", {}, line(0, before), line(1, after)));
}

/** The chosen head in both runs, and the difference. */
function chosenMaps(/** @type {Trace} */ before, /** @type {Trace} */ after) {
  const pairs = pairsOf(before, after, view.kind);
  const { was, is, moved } = paired(before, after, view.kind, view.layer, view.head, pairs);
  const largest = Math.max(1e-9, ...moved.flat().map(Math.abs));
  const figure = (/** @type {string} */ name, /** @type {number[][]} */ values, /** @type {boolean} */ signed) => h("figure", { className: "pair" }, h("figcaption", {}, name), picture(values, signed, 230, `${name} of ${view.kind} layer ${view.layer}, head ${view.head}`));
  return h("div", { className: "equation" }, figure("before", was, false), figure("now", is, false), figure(`difference, ±${number(largest, 2)}`, moved.map((line) => line.map((x) => x / largest)), true));
}

/** @returns {HTMLElement[]} */
export function comparison(/** @type {Trace} */ before, /** @type {Trace} */ after) {
  const names = before.json.text === after.json.text ? ["before", "now"] : [before.json.text, after.json.text];
  const heads = movedHeads(before, after);
  const chosen = h("div");
  const show = () => chosen.replaceChildren(h("h3", {}, `${view.kind} · layer ${view.layer} · head ${view.head}`), chosenMaps(before, after));
  show();
  return [
    sideBySide(before, after, names),
    h("p", { className: "sentence" }, "Heads whose weights moved most, as the mean change of a row (0 none, 1 all of it). Tokens are aligned; those without a partner are left out. Brown: looked at less, blue: more."),
    h("ol", { className: "moved-heads" }, ...heads.slice(0, 24).map(({ kind, layer, head, moved, mean }) => h("li", {},
      h("button", { type: "button", className: "link", onclick: () => { change({ kind, layer, head }); show(); } }, picture(moved, true, 84, `difference of ${kind} layer ${layer}, head ${head}`), h("span", {}, `${kind} ${layer}.${head}`)), h("span", { className: "p" }, mean.toFixed(3))))),
    chosen,
  ];
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
  const all = values(trace);
  const [given] = view.patches;
  const [name = "encoder.memory", head = "-1", row = "-1"] = given ? given.split("~") : [];
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
    const side = what.value.startsWith("encoder") ? "source" : "target";
    const partner = align(trace.tokens(side), other.tokens(side)).find(([mine]) => mine === Number(rows.value));
    change({ patches: [[what.value, heads.value, rows.value, -1, partner ? partner[1] : rows.value].join("~")] });
  };
  return h("form", { className: "patch", onsubmit: submit }, h("span", {}, `Take from ‘${other.json.text}’:`), what, heads, rows, h("button", { className: "quiet" }, "Take over"),
    given && h("button", { type: "button", className: "link", onclick: () => change({ patches: [] }) }, "undo"));
}

/** The panel with the field for the other text; the comparison is written into it. @returns {Panel} */
export function comparePanel() {
  const input = h("input", { id: "against", value: view.against, "aria-label": "Text to compare with", placeholder: "another text", autocomplete: "off", spellcheck: false });
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    change({ against: input.value, patches: [] });
  };
  const panel = new Panel("compare", "Compare", "Edit the text, force a token or switch a head off: which probabilities and heads moved.",
    () => [h("form", { onsubmit: submit }, input, h("button", { className: "quiet" }, "Compare")), h("div", { id: "patching" }), h("p", { id: "compare-error", role: "alert" }), h("div", { id: "difference" })]);
  panel.fill();
  return panel;
}
