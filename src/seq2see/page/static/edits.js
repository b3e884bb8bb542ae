/** Replaces values that the model computes: heads that are off, values of another run, rows that the reader has drawn. */

/** @typedef {import("./tensors.js").Tensor} Tensor */
/**
 * Which numbers are replaced, and by what. −1 stands for all heads, rows or columns. Numbers of another run come from the same
 * place there, or from another row of it.
 * @typedef {{name: string, head: number, row: number, col: number, value?: number, from?: Tensor, fromRow?: number}} Edit
 */
/** A head. @typedef {{attention: "encoder"|"decoder"|"cross", layer: number, head: number}} Head */
/** The shares of one row of a head. @typedef {Head & {row: number, shares: number[]}} Drawn */

const moduleOf = (/** @type {Head["attention"]} */ attention, /** @type {number} */ layer) => (attention === "encoder" ? `encoder.layers.${layer}.self_attention` : `decoder.layers.${layer}.${attention === "cross" ? "cross" : "self"}_attention`);

/** Where the numbers of a row stand in a value that may have heads: roles by position are (T, H, K), the others (H, T, S). */
function layout(/** @type {string} */ name, /** @type {number[]} */ shape) {
  if (shape.length === 1) return { heads: 1, rows: shape[0], cols: 1, at: (/** @type {number} */ h, /** @type {number} */ row) => row };
  if (shape.length === 2) return { heads: 1, rows: shape[0], cols: shape[1], at: (/** @type {number} */ h, /** @type {number} */ row, /** @type {number} */ col) => row * shape[1] + col };
  const byPosition = /\.(q|k|v|z)$/.test(name);
  const [rows, heads, cols] = byPosition ? shape : [shape[1], shape[0], shape[2]];
  return {
    heads, rows, cols,
    at: (/** @type {number} */ h, /** @type {number} */ row, /** @type {number} */ col) => (byPosition ? row * heads + h : h * rows + row) * cols + col,
  };
}

/** The value with an edit, as a copy: it may share its memory with other values. Places that one of two runs lacks stay as they are. @returns {Tensor} */
export function edited(/** @type {Tensor} */ value, /** @type {Edit} */ { name, head, row, col, value: number, from, fromRow }) {
  const to = layout(name, value.shape);
  const giver = from ? layout(name, from.shape) : to;
  const data = value.data.slice();
  const shift = row >= 0 && (fromRow ?? -1) >= 0 ? /** @type {number} */ (fromRow) - row : 0;
  const range = (/** @type {number} */ chosen, /** @type {number} */ size) => (chosen < 0 ? Array.from({ length: size }, (_, index) => index) : chosen < size ? [chosen] : []);
  for (const h of range(head, to.heads)) {
    for (const r of range(row, to.rows)) {
      for (const c of range(col, to.cols)) {
        if (!from) data[to.at(h, r, c)] = number ?? 0;
        else if (r + shift < giver.rows && c < giver.cols) data[to.at(h, r, c)] = from.data[giver.at(h, r + shift, c)];
      }
    }
  }
  return { shape: value.shape, data };
}

/** A head that is off has the output 0. @returns {Edit} */
export function muted(/** @type {Head} */ { attention, layer, head }) {
  return { name: `${moduleOf(attention, layer)}.z`, head, row: -1, col: -1, value: 0 };
}

/** A row of a head whose shares the reader has drawn. @returns {Edit} */
export function rowDrawn(/** @type {Drawn} */ { attention, layer, head, row, shares }) {
  const data = new Float32Array((head + 1) * shares.length);
  data.set(shares, head * shares.length);
  return { name: `${moduleOf(attention, layer)}.weights`, head, row, col: -1, from: { shape: [head + 1, 1, shares.length], data }, fromRow: 0 };
}

/** Whether an edit does the same at every position, so that the model may use its cache of keys and values. */
export const everywhere = (/** @type {Edit} */ { row, from }) => row < 0 && !from;

/** A `keep` that applies edits and then records each value. @returns {import("./model.js").Keep} */
export function recorder(/** @type {Edit[]} */ edits, /** @type {Map<string, Tensor>|null} */ into) {
  return (name, value) => {
    const found = edits.filter((edit) => edit.name === name).reduce(edited, value);
    into?.set(name, found);
    return found;
  };
}
