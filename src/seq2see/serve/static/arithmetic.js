/** How one cell came about, written out with the model's own numbers. */

import { attention, place } from "./data.js";
import { number, visible } from "./dom.js";

/** @typedef {import("./data.js").Trace} Trace */
/** @typedef {import("./data.js").Cell} Cell */
/** @typedef {{say: string, head?: string[], rows?: string[][], strong?: number, sum?: string, value?: number}} Line */

const six = (/** @type {number} */ x) => number(x, 6);

/** Terms of Σ aᵢ·bᵢ. @returns {Line} */
function products(/** @type {string} */ say, /** @type {string[]} */ names, /** @type {number[]} */ a, /** @type {number[]} */ b, /** @type {string} */ sum, labels = a.map((_, i) => String(i))) {
  const value = a.reduce((total, x, index) => total + x * b[index], 0);
  const rows = a.map((x, index) => [labels[index], six(x), six(b[index]), six(x * b[index])]);
  return { say, head: ["", names[0], names[1], "product"], rows, sum, value };
}

/** What an attention's projection reads. */
function inputOf(/** @type {Trace} */ trace, /** @type {import("./data.js").Kind} */ kind, /** @type {number} */ layer, /** @type {string} */ role) {
  if (kind === "cross" && role !== "q") return "encoder.memory";
  const half = kind === "encoder" ? "encoder" : "decoder";
  const own = kind === "cross" ? "cross" : "self";
  if (trace.json.norm === "pre") return `${half}.layers.${layer}.${own}_attention_norm.normed`;
  if (kind === "cross") return `decoder.layers.${layer}.self_attention_norm.out`;
  return layer === 0 ? `${half}.embedding.sum` : `${half}.layers.${layer - 1}.feed_forward_norm.out`;
}

/** The names that the arithmetic of one attention needs. */
export function needed(/** @type {Trace} */ trace, /** @type {import("./data.js").Kind} */ kind, /** @type {number} */ layer) {
  return [`${attention(kind, layer)}.*`, inputOf(trace, kind, layer, "q"), inputOf(trace, kind, layer, "k")];
}

const range = (/** @type {number} */ n) => Array.from({ length: n }, (_, index) => index);
const row = (/** @type {import("./data.js").Matrix} */ matrix, /** @type {number} */ r) => range(matrix.cols).map((c) => matrix.at(r, c));

/**
 * Write a cell's arithmetic out; the last line's value is the cell's.
 * @returns {{title: string, symbol: string, sentence: string, lines: Line[], value: number}}
 */
export function arithmetic(/** @type {Trace} */ trace, /** @type {Cell} */ cell) {
  const { symbol, sentence } = trace.tensor(cell.name);
  const value = trace.matrix(cell.name, cell.head).at(cell.row, cell.col);
  const labels = trace.labels(cell.name);
  const at = place(cell.name);
  const lines = at ? inAttention(trace, cell, at.kind, at.layer, at.role) : elsewhere(trace, cell);
  const last = lines.at(-1);
  if (last?.value !== undefined && last.value !== value && Math.abs(last.value - value) > 1e-4 * Math.max(1, Math.abs(value))) {
    lines.push({ say: "This head is off: another number has been put in its place.", sum: symbol, value });
  } else if (last) last.value = value;
  const column = at && !["q", "k", "v", "z", "out"].includes(at.role) ? `‘${visible(labels.cols[cell.col])}’` : `dimension ${cell.col}`;
  const title = `‘${visible(labels.rows[cell.row])}’ × ${column}`;
  return { title, symbol, sentence, lines, value };
}

/** @returns {Line[]} */
function elsewhere(/** @type {Trace} */ trace, /** @type {Cell} */ { name, row: r, col: c }) {
  const [half, , role] = name.split(".");
  const value = (/** @type {string} */ other) => trace.matrix(`${half}.embedding.${other}`).at(r, c);
  const d = trace.json.d_model;
  const token = trace[half === "encoder" ? "source" : "target"][r];
  if (role === "scaled") {
    return [
      { say: `‘${visible(token.token)}’ has the number ${token.id}: row ${token.id} of the embedding table, column ${c}.`, sum: `E[${token.id}, ${c}]`, value: value("embedded") },
      { say: `Times √d_model = √${d}:`, sum: `${six(value("embedded"))} · ${six(Math.sqrt(d))}`, value: value("embedded") * Math.sqrt(d) },
    ];
  }
  if (role === "positions") {
    if (trace.json.positions !== "paper") return [{ say: `Position ${r}, dimension ${c} of the encoding.`, sum: `PE(${r}, ${c})`, value: value("positions") }];
    const even = c - (c % 2);
    const wave = c % 2 ? "cos" : "sin";
    const angle = r / 10000 ** (even / d);
    return [
      { say: `Position ${r}, dimension ${c} = 2·${even / 2}${c % 2 ? " + 1" : ""}: a ${wave === "sin" ? "sine" : "cosine"}.`, sum: `${r} / 10000^(${even}/${d})`, value: angle },
      { say: "Of that angle:", sum: `${wave} ${six(angle)}`, value: wave === "sin" ? Math.sin(angle) : Math.cos(angle) },
    ];
  }
  if (role === "sum") return [{ say: "Token plus position:", sum: `${six(value("scaled"))} + ${six(value("positions"))}`, value: value("scaled") + value("positions") }];
  return [{ say: trace.tensor(name).sentence, sum: trace.tensor(name).symbol, value: trace.matrix(name).at(r, c) }];
}

/** @returns {Line[]} */
function inAttention(/** @type {Trace} */ trace, /** @type {Cell} */ { head, row: r, col: c }, /** @type {import("./data.js").Kind} */ kind, /** @type {number} */ layer, /** @type {string} */ role) {
  const base = attention(kind, layer);
  const of = (/** @type {string} */ other) => trace.matrix(`${base}.${other}`, head);
  if (["q", "k", "v"].includes(role)) return projected(trace, base, inputOf(trace, kind, layer, role), role, head, r, c);
  if (role === "z") {
    const labels = trace.labels(`${base}.weights`).cols.map(visible);
    const values = range(of("v").rows).map((s) => of("v").at(s, c));
    return [products("Each key’s value, in proportion to its weight:", ["A", "v"], row(of("weights"), r), values, "Σ A·v", labels)];
  }
  const q = row(of("q"), r);
  const root = Math.sqrt(q.length);
  const lines = [products("The query times the key, number by number:", ["q", "k"], q, row(of("k"), c), "q·k")];
  if (role === "scores") return lines;
  const score = of("scores").at(r, c);
  lines.push({ say: `Divided by √d_k = √${q.length}:`, sum: `${six(score)} / ${six(root)}`, value: score / root });
  if (role === "scaled") return lines;
  const masked = row(of("masked"), r);
  if (kind === "decoder") {
    lines.push(masked[c] === -Infinity ? { say: "The mask: a token may not look at what comes after it.", sum: "M", value: -Infinity }
      : { say: "The mask: this token may look there.", sum: "M", value: masked[c] });
  }
  if (role === "masked") return lines;
  return [...lines, softmax(masked, c, trace.labels(`${base}.weights`).cols.map(visible))];
}

/** @returns {Line} */
function softmax(/** @type {number[]} */ xs, /** @type {number} */ c, /** @type {string[]} */ labels) {
  const largest = Math.max(...xs);
  const powers = xs.map((x) => Math.exp(x - largest));
  const total = powers.reduce((a, b) => a + b, 0);
  return {
    say: "Softmax over the row: e to each number less the largest, over their sum.",
    head: ["", "score", "e^(score − max)", "share"],
    rows: xs.map((x, index) => [labels[index], six(x), six(powers[index]), six(powers[index] / total)]),
    strong: c, sum: `${six(powers[c])} / ${six(total)}`, value: powers[c] / total,
  };
}

/** @returns {Line[]} */
function projected(/** @type {Trace} */ trace, /** @type {string} */ base, /** @type {string} */ input, /** @type {string} */ role, /** @type {number} */ head, /** @type {number} */ r, /** @type {number} */ c) {
  const width = trace.matrix(`${base}.${role}`, head).cols;
  const column = head * width + c;
  const value = trace.matrix(`${base}.${role}`, head).at(r, c);
  if (!trace.has(input) || !trace.has(`${base}.w_${role}.weight`)) return [{ say: trace.tensor(`${base}.${role}`).sentence, sum: role, value }];
  const bias = trace.tensor(`${base}.w_${role}.bias`).data[column];
  const line = products(`The position’s vector times column ${column} of W^${role.toUpperCase()} (head ${head}, dimension ${c}):`, ["x", "w"],
    row(trace.matrix(input), r), row(trace.matrix(`${base}.w_${role}.weight`), column), "x·w");
  return [line, { say: "Plus the bias:", sum: `${six(line.value ?? 0)} + ${six(bias)}`, value: (line.value ?? 0) + bias }];
}
