/** The few operations that a Transformer is made of, on typed arrays. A tensor is its shape and its numbers, row by row. */

/** Numbers of 32 bits. Where slopes are measured they are of 64, which is all the same to the code. @typedef {Float32Array} Numbers */
/** @typedef {{shape: number[], data: Numbers}} Tensor */

/** The largest number of a row. */
export function largestOf(/** @type {Numbers} */ row) {
  let largest = -Infinity;
  for (let i = 0; i < row.length; i += 1) if (row[i] > largest) largest = row[i];
  return largest;
}

/** The place of the largest number of a row, the first of several. */
export const argmax = (/** @type {Numbers} */ row) => Math.max(0, row.indexOf(largestOf(row)));

/** The number of rows of a tensor if all dimensions but the last are taken together. */
export const rowsOf = (/** @type {Tensor} */ x) => x.data.length / (x.shape.at(-1) ?? 1);

/** As many numbers of the kind of x. @returns {Numbers} */
const like = (/** @type {Tensor} */ x, size = x.data.length) => new /** @type {any} */ (x.data.constructor)(size);

/** A tensor of the same shape whose numbers are f of those of x. @returns {Tensor} */
export function map(/** @type {Tensor} */ x, /** @type {(value: number, index: number) => number} */ f) {
  const [from, to] = [x.data, like(x)];
  for (let i = 0; i < from.length; i += 1) to[i] = f(from[i], i);
  return { shape: x.shape, data: to };
}

/** @returns {Tensor} */
export const add = (/** @type {Tensor} */ x, /** @type {Tensor} */ y) => map(x, (value, index) => value + y.data[index]);

/** Some rows of a matrix, one below the other. @returns {Tensor} */
export function pick(/** @type {Tensor} */ table, /** @type {number[]} */ rows) {
  const width = table.shape[1];
  const data = like(table, rows.length * width);
  rows.forEach((row, index) => data.set(table.data.subarray(row * width, (row + 1) * width), index * width));
  return { shape: [rows.length, width], data };
}

/** x, and y below it: (S, …) and (T, …) become (S + T, …). @returns {Tensor} */
export function below(/** @type {Tensor} */ x, /** @type {Tensor} */ y) {
  const data = like(x, x.data.length + y.data.length);
  data.set(x.data);
  data.set(y.data, x.data.length);
  return { shape: [x.shape[0] + y.shape[0], ...x.shape.slice(1)], data };
}

/** The nth matrix of several: of (N, R, C) an (R, C). @returns {Tensor} */
export function part(/** @type {Tensor} */ { shape: [, rows, cols], data }, /** @type {number} */ n) {
  return { shape: [rows, cols], data: data.subarray(n * rows * cols, (n + 1) * rows * cols) };
}

/** Several matrices as one tensor: N of (R, C) become (N, R, C). @returns {Tensor} */
export function stacked(/** @type {Tensor[]} */ matrices) {
  const [first] = matrices;
  const data = like(first, matrices.length * first.data.length);
  matrices.forEach((matrix, n) => data.set(matrix.data, n * first.data.length));
  return { shape: [matrices.length, ...first.shape], data };
}

/** The first two dimensions in the other order: (A, B, C) becomes (B, A, C). @returns {Tensor} */
export function swapped(/** @type {Tensor} */ x) {
  const [A, B, C] = x.shape;
  const data = like(x);
  for (let a = 0; a < A; a += 1) {
    for (let b = 0; b < B; b += 1) data.set(x.data.subarray((a * B + b) * C, (a * B + b + 1) * C), (b * A + a) * C);
  }
  return { shape: [B, A, C], data };
}

/** The columns of a matrix as rows. @returns {Tensor} */
export function transposed(/** @type {Tensor} */ x) {
  const [rows, cols] = x.shape;
  const data = like(x);
  for (let row = 0; row < rows; row += 1) for (let col = 0; col < cols; col += 1) data[col * rows + row] = x.data[row * cols + col];
  return { shape: [cols, rows], data };
}

/**
 * Write x·Wᵀ + b for every row of x. PyTorch stores W as (out, in), so that each number of the result is a row of x times a row of W.
 * Eight rows of W are read together: the processor then has eight sums to work on at once.
 */
export function products(/** @type {Numbers} */ from, /** @type {Numbers} */ w, /** @type {Numbers} */ b, /** @type {Numbers} */ to, /** @type {number} */ rows, /** @type {number} */ width, /** @type {number} */ out) {
  const eights = out - (out % 8);
  for (let o = 0; o < eights; o += 8) {
    const w0 = o * width;
    const w1 = w0 + width;
    const w2 = w1 + width;
    const w3 = w2 + width;
    const w4 = w3 + width;
    const w5 = w4 + width;
    const w6 = w5 + width;
    const w7 = w6 + width;
    for (let row = 0; row < rows; row += 1) {
      const start = row * width;
      const place = row * out + o;
      let s0 = b[o], s1 = b[o + 1], s2 = b[o + 2], s3 = b[o + 3], s4 = b[o + 4], s5 = b[o + 5], s6 = b[o + 6], s7 = b[o + 7];
      for (let i = 0; i < width; i += 1) {
        const value = from[start + i];
        s0 += value * w[w0 + i];
        s1 += value * w[w1 + i];
        s2 += value * w[w2 + i];
        s3 += value * w[w3 + i];
        s4 += value * w[w4 + i];
        s5 += value * w[w5 + i];
        s6 += value * w[w6 + i];
        s7 += value * w[w7 + i];
      }
      to[place] = s0;
      to[place + 1] = s1;
      to[place + 2] = s2;
      to[place + 3] = s3;
      to[place + 4] = s4;
      to[place + 5] = s5;
      to[place + 6] = s6;
      to[place + 7] = s7;
    }
  }
  for (let o = eights; o < out; o += 1) {
    for (let row = 0; row < rows; row += 1) {
      let sum = 0;
      for (let i = 0; i < width; i += 1) sum += from[row * width + i] * w[o * width + i];
      to[row * out + o] = sum + b[o];
    }
  }
}

/** x·Wᵀ + b. @returns {Tensor} */
export function linear(/** @type {Tensor} */ x, /** @type {Tensor} */ weight, /** @type {Tensor|undefined} */ bias = undefined) {
  const [out, width] = weight.shape;
  const rows = rowsOf(x);
  const to = like(x, rows * out);
  products(x.data, weight.data, bias ? bias.data : like(x, out), to, rows, width, out);
  return { shape: [...x.shape.slice(0, -1), out], data: to };
}

/** Softmax of each row: e to each number less the largest, over their sum. @returns {Tensor} */
export function softmax(/** @type {Tensor} */ x) {
  const width = x.shape.at(-1) ?? 1;
  const data = x.data.slice();
  for (let start = 0; start < data.length; start += width) {
    const row = data.subarray(start, start + width);
    const largest = largestOf(row);
    let total = 0;
    for (let i = 0; i < width; i += 1) total += row[i] = Math.exp(row[i] - largest);
    for (let i = 0; i < width; i += 1) row[i] /= total;
  }
  return { shape: x.shape, data };
}

export const EPSILON = 1e-5; // what PyTorch adds to the variance

/** Bring each row to mean 0 and variance 1, then times γ, plus β. @returns {Tensor} */
export function layerNorm(/** @type {Tensor} */ x, /** @type {Tensor} */ gain, /** @type {Tensor} */ bias) {
  const width = x.shape.at(-1) ?? 1;
  const data = x.data.slice();
  for (let start = 0; start < data.length; start += width) {
    const row = data.subarray(start, start + width);
    let mean = 0;
    for (let i = 0; i < width; i += 1) mean += row[i] / width;
    let variance = 0;
    for (let i = 0; i < width; i += 1) variance += (row[i] - mean) ** 2 / width;
    const unit = 1 / Math.sqrt(variance + EPSILON);
    for (let i = 0; i < width; i += 1) row[i] = (row[i] - mean) * unit * gain.data[i] + bias.data[i];
  }
  return { shape: x.shape, data };
}

/** The error function: 2/√π · e^(−x²) · Σ 2ⁿ·x^(2n+1) / (1·3·5 … (2n+1)), whose terms have one sign. */
function erf(/** @type {number} */ x) {
  if (Math.abs(x) > 6) return Math.sign(x);
  let [term, sum] = [x, x];
  for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(sum); n += 1) {
    term *= (2 * x * x) / (2 * n + 1);
    sum += term;
  }
  return (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * sum;
}

/** @type {Record<string, (x: number) => number>} */
export const ACTIVATIONS = {
  relu: (x) => Math.max(0, x),
  gelu: (x) => (x * (1 + erf(x / Math.SQRT2))) / 2,
  swish: (x) => x / (1 + Math.exp(-x)),
};
