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

/** @type {Record<string, string[]>} */
export const SUBLAYERS = { encoder: ["self_attention", "feed_forward"], decoder: ["self_attention", "cross_attention", "feed_forward"] };

/** What comes to a sub-layer, before any norm of its own. */
export function before(/** @type {string} */ half, /** @type {number} */ layer, /** @type {string} */ sublayer) {
  const index = SUBLAYERS[half].indexOf(sublayer);
  if (index) return `${half}.layers.${layer}.${SUBLAYERS[half][index - 1]}_norm.out`;
  return layer === 0 ? `${half}.embedding.sum` : `${half}.layers.${layer - 1}.feed_forward_norm.out`;
}

/** What a sub-layer reads. */
export function inputTo(/** @type {Trace} */ trace, /** @type {string} */ half, /** @type {number} */ layer, /** @type {string} */ sublayer) {
  return trace.json.norm === "pre" ? `${half}.layers.${layer}.${sublayer}_norm.normed` : before(half, layer, sublayer);
}

/** What an attention’s projection reads. */
function inputOf(/** @type {Trace} */ trace, /** @type {import("./data.js").Kind} */ kind, /** @type {number} */ layer, /** @type {string} */ role) {
  if (kind === "cross" && role !== "q") return "encoder.memory";
  return inputTo(trace, kind === "encoder" ? "encoder" : "decoder", layer, kind === "cross" ? "cross_attention" : "self_attention");
}

const ROLES = ["q", "k", "v", "scores", "scaled", "masked", "weights", "z", "w_q.*", "w_k.*", "w_v.*"];

/** The names that the arithmetic of one head needs. */
export function needed(/** @type {Trace} */ trace, /** @type {import("./data.js").Kind} */ kind, /** @type {number} */ layer) {
  return [...ROLES.map((role) => `${attention(kind, layer)}.${role}`), inputOf(trace, kind, layer, "q"), inputOf(trace, kind, layer, "k")];
}

const range = (/** @type {number} */ n) => Array.from({ length: n }, (_, index) => index);
const row = (/** @type {import("./data.js").Matrix} */ matrix, /** @type {number} */ r) => range(matrix.cols).map((c) => matrix.at(r, c));

/**
 * Write a cell's arithmetic out; the last line's value is the cell's.
 * @returns {{title: string, symbol: string, sentence: string, lines: Line[], value: number}}
 */
export function arithmetic(/** @type {Trace} */ trace, /** @type {Cell} */ cell) {
  const { symbol, sentence, exact } = trace.tensor(cell.name, cell.head);
  const value = trace.matrix(cell.name, cell.head).at(cell.row, cell.col);
  const labels = trace.labels(cell.name, cell.head);
  const at = place(cell.name);
  const dims = !at || ["q", "k", "v", "z", "out"].includes(at.role);
  const quoted = (/** @type {string} */ token) => `‘${visible(token).trim()}’`;
  const title = `${quoted(labels.rows[cell.row])} × ${dims ? `dimension ${cell.col}` : quoted(labels.cols[cell.col])}`;
  if (at && at.role !== "out" && !trace.has(`${attention(at.kind, at.layer)}.q`, cell.head)) {
    return { title, symbol, sentence, value, lines: [{ say: "In one of 256 shades, since this model is large. Pin the cell, and the numbers that it is made of are fetched.", sum: symbol, value }] };
  }
  const lines = at ? inAttention(trace, cell, at.kind, at.layer, at.role) : elsewhere(trace, cell);
  const last = lines.at(-1);
  const near = exact ? 1e-4 : 2e-2; // numbers of 16 bits do not add up as exactly
  if (last?.value !== undefined && last.value !== value && Math.abs(last.value - value) > near * Math.max(1, Math.abs(value))) {
    lines.push({ say: "This head is off: another number has been put in its place.", sum: symbol, value });
  } else if (last) last.value = value;
  return { title, symbol, sentence, lines, value };
}

/** A vector times a column of a matrix, plus its bias. @returns {Line[]} */
function linear(/** @type {Trace} */ trace, /** @type {string} */ say, /** @type {number[]} */ x, /** @type {string} */ matrix, /** @type {number} */ column, /** @type {string} */ name) {
  const line = products(say, [name, "w"], x, row(trace.matrix(`${matrix}.weight`), column), `${name}·w`);
  const bias = trace.tensor(`${matrix}.bias`).data[column];
  return [line, { say: "Plus the bias:", sum: `${six(line.value ?? 0)} + ${six(bias)}`, value: (line.value ?? 0) + bias }];
}

/** @returns {Line[]} */
function layerNorm(/** @type {Trace} */ trace, /** @type {number[]} */ x, /** @type {string} */ norm, /** @type {number} */ c) {
  const mean = x.reduce((a, b) => a + b, 0) / x.length;
  const variance = x.reduce((a, b) => a + (b - mean) ** 2, 0) / x.length;
  const unit = (x[c] - mean) / Math.sqrt(variance + 1e-5);
  const lines = [
    { say: `The mean μ of the ${x.length} numbers of this row:`, sum: "μ", value: mean },
    { say: "Their variance:", sum: "σ²", value: variance },
    { say: "This number less the mean, over the standard deviation:", sum: `(${six(x[c])} − μ) / √(σ² + 0.00001)`, value: unit },
  ];
  if (!trace.has(`${norm}.weight`)) return [...lines, { say: "Times a learned γ, plus a learned β." }];
  const [gain, bias] = [trace.tensor(`${norm}.weight`).data[c], trace.tensor(`${norm}.bias`).data[c]];
  return [...lines, { say: "Times γ, plus β, both learned:", sum: `${six(unit)} · ${six(gain)} + ${six(bias)}`, value: unit * gain + bias }];
}

/** @type {Record<string, (x: number) => number>} */
const ACTIVATIONS = { relu: (x) => Math.max(0, x), swish: (x) => x / (1 + Math.exp(-x)) };

/** Feed-forward, sums and norms. @returns {Line[]|null} null where the numbers are not at hand */
function between(/** @type {Trace} */ trace, /** @type {Cell} */ { name, row: r, col: c }) {
  const [half, , number_, part, role] = name.split(".");
  const layer = Number(number_);
  const pre = trace.json.norm === "pre";
  const own = (/** @type {string} */ other) => row(trace.matrix(other), r);
  if (name === "encoder.memory" || name === "decoder.out") {
    const last = `${half}.layers.${trace.layers(half === "encoder" ? "encoder" : "cross") - 1}.feed_forward_norm.out`;
    return pre && trace.has(last) ? layerNorm(trace, own(last), `${half}.norm`, c) : null;
  }
  if (part === "feed_forward") {
    const [matrix, input] = role === "hidden" ? ["w_1", inputTo(trace, half, layer, part)] : ["w_2", `${half}.layers.${layer}.feed_forward.hidden`];
    if (!trace.has(input) || !trace.has(`${half}.layers.${layer}.feed_forward.${matrix}.weight`)) return null;
    const lines = linear(trace, `The vector times column ${c} of ${matrix === "w_1" ? "W₁" : "W₂"}:`, own(input), `${half}.layers.${layer}.feed_forward.${matrix}`, c, matrix === "w_1" ? "x" : "h");
    if (role === "out") return lines;
    const sum = lines[1].value ?? 0;
    const kind = trace.json.activation;
    return [...lines, { say: kind === "relu" ? "What is negative becomes 0:" : `Through ${kind}:`, sum: kind === "relu" ? `max(0, ${six(sum)})` : `${kind}(${six(sum)})`, value: (ACTIVATIONS[kind] ?? (() => trace.matrix(name).at(r, c)))(sum) }];
  }
  if (!part?.endsWith("_norm")) return null;
  const sublayer = part.replace("_norm", "");
  const [x, y] = [before(half, layer, sublayer), `${half}.layers.${layer}.${sublayer}.out`];
  const norm = `${half}.layers.${layer}.${part}.norm`;
  if (role === "normed") return trace.has(x) ? layerNorm(trace, own(x), norm, c) : null;
  if (role === "out" && !pre) return trace.has(`${half}.layers.${layer}.${part}.sum`) ? layerNorm(trace, own(`${half}.layers.${layer}.${part}.sum`), norm, c) : null;
  if (!trace.has(x) || !trace.has(y)) return null;
  const [a, b] = [trace.matrix(x).at(r, c), trace.matrix(y).at(r, c)];
  return [{ say: "What came to the sub-layer, plus what it made of it:", sum: `${six(a)} + ${six(b)}`, value: a + b }];
}

/** @returns {Line[]} */
function elsewhere(/** @type {Trace} */ trace, /** @type {Cell} */ cell) {
  const { name, row: r, col: c } = cell;
  const [half, part, role] = name.split(".");
  if (part !== "embedding") return between(trace, cell) ?? [{ say: trace.tensor(name).sentence, sum: trace.tensor(name).symbol, value: trace.matrix(name).at(r, c) }];
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
  if (role === "out") return mixed(trace, base, r, c);
  const of = (/** @type {string} */ other) => trace.matrix(`${base}.${other}`, head);
  if (["q", "k", "v"].includes(role)) return projected(trace, base, inputOf(trace, kind, layer, role), role, head, r, c);
  if (role === "z") {
    const labels = trace.labels(`${base}.weights`, head).cols.map(visible);
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
  return [...lines, softmax(masked, c, trace.labels(`${base}.weights`, head).cols.map(visible))];
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

/** All heads side by side, times a column of W^O. @returns {Line[]} */
function mixed(/** @type {Trace} */ trace, /** @type {string} */ base, /** @type {number} */ r, /** @type {number} */ c) {
  const { sentence, symbol } = trace.tensor(`${base}.out`);
  if (!trace.has(`${base}.z`) || !trace.has(`${base}.w_o.weight`)) return [{ say: sentence, sum: symbol, value: trace.matrix(`${base}.out`).at(r, c) }];
  const z = range(trace.heads).flatMap((head) => row(trace.matrix(`${base}.z`, head), r));
  return linear(trace, `All heads’ outputs side by side, times column ${c} of W^O:`, z, `${base}.w_o`, c, "z");
}

/** @returns {Line[]} */
function projected(/** @type {Trace} */ trace, /** @type {string} */ base, /** @type {string} */ input, /** @type {string} */ role, /** @type {number} */ head, /** @type {number} */ r, /** @type {number} */ c) {
  const matrix = trace.matrix(`${base}.${role}`, head);
  const column = head * matrix.cols + c;
  const weight = `${base}.w_${role}.weight`;
  if (!trace.has(input) || !trace.has(weight, head)) return [{ say: trace.tensor(`${base}.${role}`, head).sentence, sum: role, value: matrix.at(r, c) }];
  const at = trace.owns(weight, head) ? c : column;
  const bias = trace.tensor(`${base}.w_${role}.bias`, head).data[at];
  const line = products(`The position’s vector times column ${column} of W^${role.toUpperCase()} (head ${head}, dimension ${c}):`, ["x", "w"],
    row(trace.matrix(input), r), row(trace.matrix(weight, head), at), "x·w");
  return [line, { say: "Plus the bias:", sum: `${six(line.value ?? 0)} + ${six(bias)}`, value: (line.value ?? 0) + bias }];
}
