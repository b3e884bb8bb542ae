/** Writes out the calculation of one cell with the model's own numbers. */

import { attention, place } from "./data.js";
import { number, visible } from "./dom.js";

/** @typedef {import("./data.js").Trace} Trace */
/** @typedef {import("./data.js").Cell} Cell */
/** @typedef {{say: string, head?: string[], rows?: string[][], strong?: number, sum?: string, value?: number, about?: boolean}} Line  about: the model has another last digit than these terms */

const NEAR = 1e-4; // sums in another order differ in the last digits of their 32 bits

const six = (/** @type {number} */ x) => number(x, 6);

/** Whether a sum equals the model’s number; the model may have added in another order. */
const near = (/** @type {number} */ sum, /** @type {number} */ value) => sum === value || Math.abs(sum - value) <= NEAR * Math.max(1, Math.abs(value));

/** End a line in the model’s own number, unless another has been put in its place. @returns {Line} */
function recorded(/** @type {Line} */ line, /** @type {number} */ value) {
  if (line.value === undefined || !near(line.value, value)) return line;
  return { ...line, value, about: six(line.value) !== six(value) };
}

/** Terms of Σ aᵢ·bᵢ. @returns {Line} */
function products(/** @type {string} */ say, /** @type {string[]} */ names, /** @type {number[]} */ a, /** @type {number[]} */ b, /** @type {string} */ sum, labels = a.map((_, i) => String(i))) {
  const value = a.reduce((total, x, index) => total + x * b[index], 0);
  const rows = a.map((x, index) => [labels[index], six(x), six(b[index]), six(x * b[index])]);
  return { say, head: ["", names[0], names[1], "product"], rows, sum, value };
}

/** @type {Record<string, string[]>} */
export const SUBLAYERS = { encoder: ["self_attention", "feed_forward"], decoder: ["self_attention", "cross_attention", "feed_forward"] };

/** The input of a sub-layer, before any norm of its own. */
export function before(/** @type {Trace} */ trace, /** @type {string} */ half, /** @type {number} */ layer, /** @type {string} */ sublayer) {
  const index = SUBLAYERS[half].indexOf(sublayer);
  if (index) return `${half}.layers.${layer}.${SUBLAYERS[half][index - 1]}_norm.out`;
  return layer === 0 ? `${half}.embedding.${trace.json.embedding_norm ? "normed" : "sum"}` : `${half}.layers.${layer - 1}.feed_forward_norm.out`;
}

/** The value that a sub-layer reads. */
export function inputTo(/** @type {Trace} */ trace, /** @type {string} */ half, /** @type {number} */ layer, /** @type {string} */ sublayer) {
  return trace.json.norm === "pre" ? `${half}.layers.${layer}.${sublayer}_norm.normed` : before(trace, half, layer, sublayer);
}

/** The value that a projection of an attention reads. */
function inputOf(/** @type {Trace} */ trace, /** @type {import("./data.js").Kind} */ kind, /** @type {number} */ layer, /** @type {string} */ role) {
  if (kind === "cross" && role !== "q") return "encoder.memory";
  return inputTo(trace, kind === "encoder" ? "encoder" : "decoder", layer, kind === "cross" ? "cross_attention" : "self_attention");
}

const ROLES = ["q", "k", "v", "scores", "scaled", "masked", "weights", "z", ...["w_q", "w_k", "w_v"].flatMap((matrix) => [`${matrix}.weight`, `${matrix}.bias`])];

/** The names that the arithmetic of one head needs. */
export function needed(/** @type {Trace} */ trace, /** @type {import("./data.js").Kind} */ kind, /** @type {number} */ layer) {
  return [...ROLES.map((role) => `${attention(kind, layer)}.${role}`), inputOf(trace, kind, layer, "q"), inputOf(trace, kind, layer, "k")];
}

const parameters = (/** @type {string} */ module) => [`${module}.weight`, `${module}.bias`];

/**
 * The parts of a value between the attentions: values of the same row, and the norm or the matrix that is applied to them.
 * @returns {{of: string[], norm?: string, matrix?: string}|null}
 */
function recipe(/** @type {Trace} */ trace, /** @type {string} */ name) {
  const [half, , number_, part, role] = name.split(".");
  const [layer, base] = [Number(number_), `${half}.layers.${number_}`];
  const pre = trace.json.norm === "pre";
  if (name === `${half}.embedding.normed`) return { of: [`${half}.embedding.sum`], norm: `${half}.embedding.norm` };
  if (name === "encoder.memory" || name === "decoder.out") {
    return pre ? { of: [`${half}.layers.${trace.layers(half === "encoder" ? "encoder" : "cross") - 1}.feed_forward_norm.out`], norm: `${half}.norm` } : null;
  }
  if (!SUBLAYERS[half]?.includes(part?.replace("_norm", ""))) return null;
  if (part === "feed_forward") {
    return role === "hidden" ? { of: [inputTo(trace, half, layer, part)], matrix: `${base}.feed_forward.w_1` } : { of: [`${base}.feed_forward.hidden`], matrix: `${base}.feed_forward.w_2` };
  }
  const sublayer = part.replace("_norm", "");
  const [x, y] = [before(trace, half, layer, sublayer), `${base}.${sublayer}.out`];
  if (role === "normed") return { of: [x], norm: `${base}.${part}.norm` };
  return role === "out" && !pre ? { of: [`${base}.${part}.sum`], norm: `${base}.${part}.norm` } : { of: [x, y] };
}

/**
 * The values to fetch before a cell’s calculation can be written out; one column of a matrix is enough.
 * @returns {{names: string[], more: {head?: number, column?: number}}}
 */
export function lacking(/** @type {Trace} */ trace, /** @type {Cell} */ { name, head, col }) {
  const at = place(name);
  const absent = (/** @type {string[]} */ names) => names.filter((other) => !trace.exact(other, head, col));
  if (at && at.role !== "out") {
    const names = needed(trace, at.kind, at.layer);
    return { names: absent(names).length ? names : [], more: { head } }; // all of them, as in the request of the head’s own panel
  }
  const base = at && attention(at.kind, at.layer);
  const [half, part] = name.split(".");
  const made = recipe(trace, name);
  if (base) return { names: absent([name, `${base}.z`, ...parameters(`${base}.w_o`)]), more: { column: col } };
  if (part === "embedding" && !made) return { names: absent([name, ...["embedded", "scaled", "positions"].map((role) => `${half}.embedding.${role}`)]), more: {} };
  return { names: absent([name, ...(made?.of ?? []), ...[made?.norm, made?.matrix].flatMap((module) => (module ? parameters(module) : []))]), more: { column: col } };
}

const range = (/** @type {number} */ n) => Array.from({ length: n }, (_, index) => index);
const row = (/** @type {import("./data.js").Matrix} */ matrix, /** @type {number} */ r) => range(matrix.cols).map((c) => matrix.at(r, c));

/** Why a number is not what its terms come to. */
function replaced(/** @type {Trace} */ trace, /** @type {Cell} */ { name, head, row: r }) {
  const { muted, drawn, patches } = trace.json;
  const at = place(name);
  if (at && drawn?.attention === at.kind && drawn.layer === at.layer && drawn.head === head && drawn.row === r && at.role === "weights") return "You have drawn this row";
  if (at && muted.some((/** @type {any[]} */ [kind, layer, one]) => kind === at.kind && layer === at.layer && one === head)) return "This head is off";
  return patches?.length ? "Numbers were taken over from another run" : "The model was edited here";
}

/**
 * Write out the calculation of a cell; the last line gives the cell's value. `absent` says why numbers may be missing.
 * @returns {{title: string, symbol: string, sentence: string, lines: Line[], value: number}}
 */
export function arithmetic(/** @type {Trace} */ trace, /** @type {Cell} */ cell, /** @type {string} */ absent) {
  const { symbol, sentence } = trace.tensor(cell.name, cell.head);
  const value = trace.matrix(cell.name, cell.head).at(cell.row, cell.col);
  const labels = trace.labels(cell.name, cell.head);
  const at = place(cell.name);
  const dims = !at || ["q", "k", "v", "z", "out"].includes(at.role);
  const title = `${labels.says[cell.row]}${dims ? `, dimension ${cell.col}` : `, looks at ‘${labels.cols[cell.col].trim()}’`}`;
  if (at && at.role !== "out" && !trace.has(`${attention(at.kind, at.layer)}.q`, cell.head)) {
    return { title, symbol, sentence, value, lines: [{ say: `In one of 256 shades, since this model is large. ${absent}`, sum: symbol, value }] };
  }
  const lines = (at ? inAttention(trace, cell, at.kind, at.layer, at.role) : elsewhere(trace, cell)) ?? [{ say: absent, sum: symbol, value }];
  lines.push(recorded(/** @type {Line} */ (lines.pop()), value));
  if (lines.at(-1)?.value !== value) lines.push({ say: `${replaced(trace, cell)}: another number has been put in its place.`, sum: symbol, value });
  return { title, symbol, sentence, lines, value };
}

/** A vector times a column of a matrix, plus its bias. @returns {Line[]|null} */
function linear(/** @type {Trace} */ trace, /** @type {string} */ say, /** @type {number[]} */ x, /** @type {string} */ matrix, /** @type {number} */ column, /** @type {string} */ name) {
  const found = trace.column(matrix, column);
  if (!found) return null;
  const line = products(say, [name, "w"], x, found.weights, `${name}·w`);
  const { bias } = found;
  return [line, { say: "Plus the bias:", sum: `${six(line.value ?? 0)} + ${six(bias)}`, value: (line.value ?? 0) + bias }];
}

/** @returns {Line[]|null} */
function layerNorm(/** @type {Trace} */ trace, /** @type {number[]} */ x, /** @type {string} */ norm, /** @type {number} */ c) {
  if (!parameters(norm).every((name) => trace.has(name))) return null;
  const mean = x.reduce((a, b) => a + b, 0) / x.length;
  const variance = x.reduce((a, b) => a + (b - mean) ** 2, 0) / x.length;
  const unit = (x[c] - mean) / Math.sqrt(variance + 1e-5);
  const lines = [
    { say: `The mean μ of the ${x.length} numbers of this row:`, sum: "μ", value: mean },
    { say: "Their variance:", sum: "σ²", value: variance },
    { say: "This number less the mean, over the standard deviation:", sum: `(${six(x[c])} − μ) / √(σ² + 0.00001)`, value: unit },
  ];
  const [gain, bias] = [trace.tensor(`${norm}.weight`).data[c], trace.tensor(`${norm}.bias`).data[c]];
  return [...lines, { say: "Times γ, plus β, both learned:", sum: `${six(unit)} · ${six(gain)} + ${six(bias)}`, value: unit * gain + bias }];
}

/** @type {Record<string, (x: number) => number>} */
const ACTIVATIONS = { relu: (x) => Math.max(0, x), swish: (x) => x / (1 + Math.exp(-x)) };

/** Feed-forward, sums and norms. @returns {Line[]|null} null where the numbers are not at hand */
function between(/** @type {Trace} */ trace, /** @type {Cell} */ { name, row: r, col: c }) {
  const made = recipe(trace, name);
  if (!made) return [{ say: trace.tensor(name).sentence, sum: trace.tensor(name).symbol, value: trace.matrix(name).at(r, c) }];
  if (!made.of.every((other) => trace.has(other))) return null;
  const x = row(trace.matrix(made.of[0]), r);
  if (made.norm) return layerNorm(trace, x, made.norm, c);
  if (!made.matrix) {
    const y = trace.matrix(made.of[1]).at(r, c);
    return [{ say: "What came to the sub-layer, plus what it made of it:", sum: `${six(x[c])} + ${six(y)}`, value: x[c] + y }];
  }
  const wide = made.matrix.endsWith("w_1");
  const lines = linear(trace, `The vector times column ${c} of ${wide ? "W₁" : "W₂"}:`, x, made.matrix, c, wide ? "x" : "h");
  if (!lines || !wide) return lines;
  const sum = lines[1].value ?? 0;
  const kind = trace.json.activation;
  return [...lines, { say: kind === "relu" ? "What is negative becomes 0:" : `Through ${kind}:`, sum: kind === "relu" ? `max(0, ${six(sum)})` : `${kind}(${six(sum)})`, value: (ACTIVATIONS[kind] ?? (() => trace.matrix(name).at(r, c)))(sum) }];
}

/** @returns {Line[]|null} null where the numbers are not at hand */
function elsewhere(/** @type {Trace} */ trace, /** @type {Cell} */ cell) {
  const { name, row: r, col: c } = cell;
  const [half, part, role] = name.split(".");
  if (part !== "embedding" || role === "normed") return between(trace, cell);
  if (!["embedded", "scaled", "positions"].every((other) => trace.has(`${half}.embedding.${other}`))) return null;
  const value = (/** @type {string} */ other) => trace.matrix(`${half}.embedding.${other}`).at(r, c);
  const d = trace.json.d_model;
  const token = trace[half === "encoder" ? "source" : "target"][r];
  if (role === "scaled") {
    return [
      { say: `‘${visible(token.token)}’ has the number ${token.id}: row ${token.id} of the embedding table, column ${c}.`, sum: `E[${token.id}, ${c}]`, value: value("embedded") },
      trace.json.scale_embeddings ? { say: `Times √d_model = √${d}:`, sum: `${six(value("embedded"))} · ${six(Math.sqrt(d))}`, value: value("embedded") * Math.sqrt(d) }
        : { say: "This model does not scale it:", sum: six(value("embedded")), value: value("embedded") },
    ];
  }
  if (role === "positions") {
    const kind = trace.json.positions;
    if (kind === "learned") return [{ say: `Position ${r}, dimension ${c} of the encoding.`, sum: `PE(${r}, ${c})`, value: value("positions") }];
    const interleaved = kind === "paper";
    const i = interleaved ? Math.floor(c / 2) : c % (d / 2); // the number of the pair of sine and cosine
    const wave = (interleaved ? c % 2 : c >= d / 2) ? "cos" : "sin";
    const first = { fairseq: 2, opennmt: 1 }[/** @type {string} */ (kind)] ?? 0; // these two count from here
    const [pos, top, bottom] = first ? [r + first, i, d / 2 - 1] : [r, 2 * i, d];
    const angle = pos / 10000 ** (top / bottom);
    const where = interleaved ? ` = 2·${i}${c % 2 ? " + 1" : ""}` : `, pair ${i}`;
    return [
      { say: `Position ${r}${first ? `, counted as ${pos}` : ""}, dimension ${c}${where}: a ${wave === "sin" ? "sine" : "cosine"}.`, sum: `${pos} / 10000^(${top}/${bottom})`, value: angle },
      { say: "Of that angle:", sum: `${wave} ${six(angle)}`, value: wave === "sin" ? Math.sin(angle) : Math.cos(angle) },
    ];
  }
  if (role === "sum") return [{ say: "Token plus position:", sum: `${six(value("scaled"))} + ${six(value("positions"))}`, value: value("scaled") + value("positions") }];
  return [{ say: trace.tensor(name).sentence, sum: trace.tensor(name).symbol, value: trace.matrix(name).at(r, c) }];
}

/** @returns {Line[]|null} null where the numbers are not at hand */
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
  const score = of("scores").at(r, c);
  const product = products("The query times the key, number by number:", ["q", "k"], q, row(of("k"), c), "q·k");
  const lines = [recorded(product, score)];
  if (role === "scores") return lines;
  lines.push(recorded({ say: `Divided by √d_k = √${q.length}:`, sum: `${six(score)} / ${six(root)}`, value: score / root }, of("scaled").at(r, c)));
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

/** All heads side by side, times a column of W^O. @returns {Line[]|null} */
function mixed(/** @type {Trace} */ trace, /** @type {string} */ base, /** @type {number} */ r, /** @type {number} */ c) {
  if (!trace.column(`${base}.w_o`, c) || !range(trace.heads).every((head) => trace.has(`${base}.z`, head))) return null;
  const z = range(trace.heads).flatMap((head) => row(trace.matrix(`${base}.z`, head), r));
  return linear(trace, `All heads’ outputs side by side, times column ${c} of W^O:`, z, `${base}.w_o`, c, "z");
}

/** @returns {Line[]|null} */
function projected(/** @type {Trace} */ trace, /** @type {string} */ base, /** @type {string} */ input, /** @type {string} */ role, /** @type {number} */ head, /** @type {number} */ r, /** @type {number} */ c) {
  const matrix = trace.matrix(`${base}.${role}`, head);
  const column = head * matrix.cols + c;
  const weight = `${base}.w_${role}.weight`;
  if (!trace.has(input) || !trace.has(weight, head)) return null;
  const at = trace.owns(weight, head) ? c : column;
  const bias = trace.tensor(`${base}.w_${role}.bias`, head).data[at];
  const line = products(`The position’s vector times column ${column} of W^${role.toUpperCase()} (head ${head}, dimension ${c}):`, ["x", "w"],
    row(trace.matrix(input), r), row(trace.matrix(weight, head), at), "x·w");
  return [line, { say: "Plus the bias:", sum: `${six(line.value ?? 0)} + ${six(bias)}`, value: (line.value ?? 0) + bias }];
}
