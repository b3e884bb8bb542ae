/** One trace: its tokens, its steps, and its tensors by name. */

import { named, visible } from "./dom.js";
import { half, inflate } from "./weights.js";

/** @typedef {{token: string, id: number, span: [number, number]}} Token */
/** @typedef {{id: number, token: string, probability: number, logit: number}} Choice */
/** @typedef {{id: number, token: string, log_probability: number, entropy: number, top: Choice[]}} Step */
/** @typedef {{shape: number[], data: Float32Array, symbol: string, sentence: string, exact: boolean}} Tensor */
/** @typedef {{rows: number, cols: number, at: (row: number, col: number) => number}} Matrix */
/** @typedef {{name: string, head: number, row: number, col: number}} Cell  head is −1 where there is none */
/** @typedef {"encoder"|"decoder"|"cross"} Kind */

/** @type {Kind[]} */
export const KINDS = ["encoder", "decoder", "cross"];

/** @type {Record<Kind, string>} */
export const TITLES = {
  encoder: "Encoder self-attention",
  decoder: "Masked decoder self-attention",
  cross: "Cross-attention",
};

/** The module of one attention. */
export function attention(/** @type {Kind} */ kind, /** @type {number} */ layer) {
  return kind === "encoder" ? `encoder.layers.${layer}.self_attention`
    : `decoder.layers.${layer}.${kind === "cross" ? "cross" : "self"}_attention`;
}

/** Which attention a name belongs to, or null. @returns {{kind: Kind, layer: number, role: string}|null} */
export function place(/** @type {string} */ name) {
  const found = /^(encoder|decoder)\.layers\.(\d+)\.(self|cross)_attention\.(\w+)$/.exec(name);
  if (!found) return null;
  const kind = /** @type {Kind} */ (found[3] === "cross" ? "cross" : found[1]);
  return { kind, layer: Number(found[2]), role: found[4] };
}

const BY_POSITION = ["q", "k", "v", "z"]; // (T, H, K); the others are (H, T, S)

/** @returns {Uint8Array<ArrayBuffer>} */
function fromBase64(/** @type {string} */ text) {
  const quick = /** @type {any} */ (Uint8Array).fromBase64;
  if (quick) return quick.call(Uint8Array, text);
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i += 1) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

/** @returns {Float32Array} */
function numbers(/** @type {ArrayBuffer} */ buffer, /** @type {string} */ dtype, /** @type {number} */ offset, /** @type {number} */ size) {
  if (dtype === "float32") return new Float32Array(buffer, offset, size);
  const shades = dtype === "uint8";
  const given = shades ? new Uint8Array(buffer, offset, size) : new Uint16Array(buffer, offset, size);
  const found = new Float32Array(size);
  for (let i = 0; i < size; i += 1) found[i] = shades ? given[i] / 255 : half(given[i]);
  return found;
}

export class Trace {
  /** @param {any} json what /api/trace answers, or the model in this file */
  constructor(json) {
    this.json = json;
    /** @type {Token[]} */ this.source = json.source;
    /** @type {Token[]} */ this.target = json.target;
    /** @type {Step[]} */ this.steps = json.steps;
    /** @type {string} */ this.output = json.output;
    /** By name, or by name#head, name@column where only that head or column was sent. @type {Map<string, Tensor>} */ this.tensors = new Map();
    /** How much the log-probability of each token falls without a head, such as cross.1.3. @type {Map<string, number[]>} */ this.effects = new Map();
  }

  /** How much the log-probability of the token of a step falls without a head; NaN where that is not known. */
  fall(/** @type {string} */ name, /** @type {number} */ step) {
    return this.effects.get(name)?.[step] ?? NaN;
  }

  /** @returns {Promise<Trace>} */
  static async of(/** @type {any} */ json) {
    const trace = new Trace(json);
    await trace.add(json);
    return trace;
  }

  /** Take more tensors in, and whatever else was asked for. @param {any} json */
  async add(json) {
    const bytes = fromBase64(json.data ?? "");
    const buffer = json.encoding === "deflate" ? await inflate(bytes) : bytes.buffer;
    for (const { name, shape, dtype, offset, symbol, sentence, head, column, data } of json.tensors) {
      const size = shape.reduce((/** @type {number} */ a, /** @type {number} */ b) => a * b, 1);
      // the model in this file hands its numbers over as they are
      const tensor = { shape, data: data ?? numbers(buffer, dtype, offset, size), symbol, sentence, exact: data !== undefined || dtype === "float32" };
      this.tensors.set(`${name}${head === undefined ? "" : `#${head}`}${column === undefined ? "" : `@${column}`}`, tensor);
    }
    if (json.lens) this.json.lens = json.lens;
    for (const [name, falls] of Object.entries(json.effects ?? {})) this.effects.set(name, falls);
  }

  /** Whether a tensor has been received: the whole tensor, or the part of a head. */
  has(/** @type {string} */ name, head = -1) {
    return this.tensors.has(name) || this.tensors.has(`${name}#${head}`);
  }

  /** Whether the part of a head was received separately. */
  owns(/** @type {string} */ name, /** @type {number} */ head) {
    return this.tensors.has(`${name}#${head}`);
  }

  /** Whether a tensor has been received with exact numbers, not as shades. */
  exact(/** @type {string} */ name, head = -1, column = -1) {
    const found = this.tensors.get(`${name}#${head}`) ?? this.tensors.get(name) ?? this.tensors.get(`${name}@${column}`);
    return found !== undefined && found.exact;
  }

  /** One column of a matrix that maps vectors, and its bias; null where they have not come. @returns {{weights: number[], bias: number}|null} */
  column(/** @type {string} */ matrix, /** @type {number} */ column) {
    const [weight, bias] = [`${matrix}.weight`, `${matrix}.bias`];
    const [one, its] = [this.tensors.get(`${weight}@${column}`), this.tensors.get(`${bias}@${column}`)];
    if (one && its) return { weights: [...one.data], bias: its.data[0] };
    if (!this.has(weight) || !this.has(bias)) return null;
    const { rows, cols, at } = this.matrix(weight); // PyTorch stores it transposed
    return column < rows ? { weights: Array.from({ length: cols }, (_, index) => at(column, index)), bias: this.tensor(bias).data[column] } : null;
  }

  /** @returns {Tensor} */
  tensor(/** @type {string} */ name, head = -1) {
    const found = this.tensors.get(`${name}#${head}`) ?? this.tensors.get(name);
    if (!found) throw new Error(`no tensor ${name}`);
    return found;
  }

  layers(/** @type {Kind} */ kind) {
    let count = 0;
    while (this.has(`${attention(kind, count)}.weights`)) count += 1;
    return count;
  }

  get heads() {
    return this.tensor("decoder.layers.0.cross_attention.weights").shape[0];
  }

  /** One matrix of a tensor: all of it, or a head's. @returns {Matrix} */
  matrix(/** @type {string} */ name, head = -1) {
    const { shape, data } = this.tensor(name, head);
    if (shape.length === 1) return { rows: shape[0], cols: 1, at: (row) => data[row] };
    if (shape.length === 2) return { rows: shape[0], cols: shape[1], at: (row, col) => data[row * shape[1] + col] };
    if (BY_POSITION.includes(name.split(".").at(-1) ?? "")) {
      const [rows, heads, cols] = shape;
      return { rows, cols, at: (row, col) => data[(row * heads + head) * cols + col] };
    }
    const [, rows, cols] = shape;
    return { rows, cols, at: (row, col) => data[(head * rows + row) * cols + col] };
  }

  /** @returns {string[]} */
  tokens(/** @type {"source"|"target"} */ side) {
    return this[side].map((token) => token.token);
  }

  /**
   * What the rows and the columns of a matrix stand for, and what is said of each row. A position of the decoder reads one token
   * and writes the next.
   * @returns {{rows: string[], cols: string[], says: string[]}}
   */
  labels(/** @type {string} */ name, head = -1) {
    const at = place(name);
    const { shape } = this.tensor(name, head);
    const dims = Array.from({ length: shape.at(-1) ?? 0 }, (_, index) => String(index));
    const own = at ? at.kind === "encoder" || (at.kind === "cross" && (at.role === "k" || at.role === "v")) : name.startsWith("encoder");
    const reads = named(this.tokens(own ? "source" : "target"));
    const says = reads.map((token) => `‘${token.trim()}’`);
    const queries = !name.includes(".embedding.") && !(at && (at.role === "k" || at.role === "v"));
    const byDimension = !at || ["q", "k", "v", "z", "out"].includes(at.role);
    const cols = byDimension ? dims : named(this.tokens(at.kind === "decoder" ? "target" : "source"));
    if (own || !queries) return { rows: reads, cols, says };
    const writes = this.steps.map(({ token }) => visible(token));
    return { cols, rows: reads.map((token, t) => `${token} → ${writes[t].trim()}`), says: reads.map((token, t) => `reads ‘${token.trim()}’, writes ‘${writes[t].trim()}’`) };
  }

  /** The request that this trace answers; the view may already ask for another. */
  get question() {
    const { model, ensemble, text, muted, patches, drawn } = this.json;
    return {
      model, ...(ensemble?.member ? { member: ensemble.member } : {}), input: text, muted: muted.map((/** @type {[string, number, number]} */ [kind, layer, head]) => ({ attention: kind, layer, head })),
      ...(patches?.length ? { patches } : {}), ...(drawn ? { drawn } : {}),
    };
  }

  /** Log-probability of the whole answer. */
  get logProbability() {
    return this.steps.reduce((sum, step) => sum + step.log_probability, 0);
  }
}
