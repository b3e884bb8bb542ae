/**
 * Products of matrices, several times as fast as in tensors.js: a loop in WebAssembly that multiplies four numbers at once.
 *
 * `linear` of tensors.js says what is computed, and this computes the same. The loop is put together here, instruction by
 * instruction, because a page that opens from a disk can fetch no other file. Where it cannot run, `linear` does the work.
 */

import { linear, rowsOf } from "./tensors.js";

/** @typedef {import("./tensors.js").Tensor} Tensor */

/** A whole number in two bytes, 7 bits in each. */
const two = (/** @type {number} */ n) => [(n & 127) | 128, n >> 7];
const get = (/** @type {number} */ variable) => [0x20, variable];
const set = (/** @type {number} */ variable) => [0x21, variable];
const number = (/** @type {number} */ n) => [0x41, n]; // less than 64
const [PLUS, TIMES, LESS] = [0x6a, 0x6c, 0x48];
const further = (/** @type {number} */ variable, /** @type {number[]} */ by) => [...get(variable), ...by, PLUS, ...set(variable)];
/** Do something, and again while one variable is less than another. */
const repeat = (/** @type {number} */ variable, /** @type {number} */ end, /** @type {number[][]} */ ...body) => [0x03, 0x40, ...body.flat(), ...get(variable), ...get(end), LESS, 0x0d, 0, 0x0b];
/** An instruction on 16 bytes at once. */
const wide = (/** @type {number} */ code, /** @type {number[]} */ ...rest) => [0xfd, ...two(code), ...rest];
const section = (/** @type {number} */ id, /** @type {number[]} */ ...bytes) => [id, ...two(bytes.length), ...bytes];

/** Four numbers of 32 bits in 16 bytes: how to load them, and weights, to fill, add and multiply them, take one out, add and store it. */
const SINGLE = { bytes: 4, load: wide(0, 2, 0), weights: wide(0, 2, 0), zero: [0x43, 0, 0, 0, 0, ...wide(19)], plus: wide(228), times: wide(230), lane: 31, add: 0x92, store: [0x38, 2] };
/** Two numbers of 64 bits, with which slopes are measured. Weights have 32 bits here too, and become longer when they are loaded. */
const DOUBLE = { bytes: 8, load: wide(0, 3, 0), weights: [...wide(93, 2, 0), ...wide(95)], zero: [0x44, 0, 0, 0, 0, 0, 0, 0, 0, ...wide(20)], plus: wide(240), times: wide(242), lane: 33, add: 0xa0, store: [0x39, 3] };

/**
 * The loop as a program. Its variables are places in memory and counts of bytes; x and w go on from row to row.
 *
 *     for each four rows of w, the weights:                 w, up to end
 *       for each row of x:                                  x, up to xEnd
 *         for each 16 bytes of the row:                     x, up to rowEnd
 *           s0 … s3 += those of x times those of each of the four rows
 *         to[0 … 3] = the sums of the numbers of s0 … s3
 */
function program(/** @type {typeof SINGLE} */ { bytes, load, weights, zero, plus, times, lane, add, store }) {
  const [xStart, xEnd, width, wStart, end, wWidth, toStart, toWidth, x, rowEnd, to, w, w0, w1, w2, w3, value, s0, s1, s2, s3] = Array.from({ length: 21 }, (_, n) => n);
  const [rows, sums] = [[w0, w1, w2, w3], [s0, s1, s2, s3]];
  const lanes = Array.from({ length: 16 / bytes }, (_, n) => n);
  const begin = rows.flatMap((row, n) => [...get(n ? rows[n - 1] : w), ...(n ? [...get(wWidth), PLUS] : []), ...set(row), ...zero, ...set(sums[n])]);
  const inner = repeat(x, rowEnd, get(x), load, set(value), rows.flatMap((row, n) => [...get(sums[n]), ...get(value), ...get(row), ...weights, ...times, ...plus, ...set(sums[n]), ...further(row, number((16 / bytes) * 4))]), further(x, number(16)));
  const keep = sums.flatMap((sum, n) => [...get(to), ...lanes.flatMap((k) => [...get(sum), ...wide(lane, k), ...(k ? [add] : [])]), ...store, n * bytes]);
  const body = [
    ...get(wStart), ...set(w),
    ...repeat(w, end, get(xStart), set(x), get(toStart), set(to),
      repeat(x, xEnd, get(x), get(width), [PLUS], set(rowEnd), begin, inner, keep, further(to, get(toWidth))),
      further(w, [...get(wWidth), ...number(4), TIMES]), further(toStart, number(4 * bytes))),
    0x0b,
  ];
  const [INT, WIDE] = [0x7f, 0x7b];
  const code = [2, 8, INT, 5, WIDE, ...body]; // 8 whole numbers and 5 times 16 bytes besides the 8 parameters
  return Uint8Array.from([
    0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, ...section(1, 1, 0x60, 8, ...Array(8).fill(INT), 0), ...section(2, 1, 1, 109, 1, 109, 2, 0, 1),
    ...section(3, 1, 0), ...section(7, 1, 1, 102, 0, 0), ...section(10, 1, ...two(code.length), ...code),
  ]);
}

const AT_ONCE = 64; // rows of x in one call: they stay in the processor’s cache
const LITTLE = 2 ** 15; // pairs of numbers to multiply: with fewer, the way there and back would take longer
const ROOM = 2 ** 17; // numbers of a matrix that is no weight: the keys or the values of a head
const WIDEST = 2 ** 12; // numbers of its row and of a row of the result
const PAGE = 2 ** 16;
const full = (/** @type {number} */ n) => 4 * Math.ceil(n / 4); // a multiple of 4

/** A program and its memory: rows of x and their products stand first, then there is room for a matrix, then come the weights. */
class Bench {
  constructor(/** @type {Tensor[]} */ weights) {
    const widest = weights.reduce((most, { shape: [out, width] }) => Math.max(most, full(out) + width), WIDEST);
    this.room = 8 * AT_ONCE * widest;
    const size = weights.reduce((sum, { shape: [out, width] }) => sum + 4 * full(out) * width, this.room + 4 * ROOM);
    const memory = new WebAssembly.Memory({ initial: Math.ceil(size / PAGE) });
    const made = (/** @type {typeof SINGLE} */ kind) => /** @type {(...places: number[]) => void} */ (new WebAssembly.Instance(new WebAssembly.Module(program(kind)), { m: { m: memory } }).exports.f);
    this.memory = memory.buffer;
    this.single = made(SINGLE);
    this.double = made(DOUBLE);
    let place = this.room + 4 * ROOM;
    for (const tensor of weights) {
      const data = new Float32Array(this.memory, place, tensor.data.length);
      data.set(tensor.data);
      tensor.data = data;
      place += 4 * full(tensor.shape[0]) * tensor.shape[1];
    }
  }

  /** Put the rows of a matrix at a place in memory, each filled up with zeros to a multiple of four numbers. */
  put(/** @type {any} */ numbers, /** @type {number} */ width, /** @type {number} */ place) {
    const wide = full(width);
    const to = new numbers.constructor(this.memory, place, (numbers.length / width) * wide);
    if (wide === width) return to.set(numbers);
    to.fill(0);
    for (let row = 0; row * width < numbers.length; row += 1) to.set(numbers.subarray(row * width, (row + 1) * width), row * wide);
    return undefined;
  }

  /** x·Wᵀ + b. What is too small, or too large for the room, is computed as tensors.js does it. @returns {Tensor} */
  linear(/** @type {Tensor} */ x, /** @type {Tensor} */ weight, /** @type {Tensor|undefined} */ bias = undefined) {
    const [out, width] = weight.shape;
    const [high, wide, rows] = [full(out), full(width), rowsOf(x)];
    const single = x.data instanceof Float32Array;
    const here = weight.data.buffer === this.memory;
    const fits = single && rows * weight.data.length >= LITTLE && high * wide <= ROOM && high + wide <= WIDEST;
    if (!here && !fits) return linear(x, weight, bias);
    if (!here) this.put(weight.data, width, this.room);
    const from = here ? weight.data.byteOffset : this.room;
    const Numbers = /** @type {any} */ (x.data.constructor);
    const bytes = Numbers.BYTES_PER_ELEMENT;
    const found = new Numbers(rows * out);
    for (let row = 0; row < rows; row += AT_ONCE) {
      const some = Math.min(AT_ONCE, rows - row);
      const to = some * wide * bytes;
      this.put(x.data.subarray(row * width, (row + some) * width), width, 0);
      (single ? this.single : this.double)(0, to, wide * bytes, from, from + 4 * high * wide, 4 * wide, to, high * bytes);
      const sums = new Numbers(this.memory, to, some * high);
      for (let r = 0; r < some; r += 1) {
        for (let o = 0; o < out; o += 1) found[(row + r) * out + o] = sums[r * high + o] + (bias ? bias.data[o] : 0);
      }
    }
    return { shape: [...x.shape.slice(0, -1), out], data: found };
  }
}

/** A `linear` that is fast with these weights: the large matrices move into the memory of its program. @returns {typeof linear} */
export function fastLinear(/** @type {Map<string, Tensor>} */ weights) {
  const large = [...weights.values()].filter(({ shape, data }) => shape.length === 2 && shape[1] % 4 === 0 && data.length >= LITTLE);
  if (!large.length) return linear;
  try {
    const bench = new Bench(large);
    return (x, weight, bias) => bench.linear(x, weight, bias);
  } catch {
    return linear; // this browser has no such memory, or may not run programs
  }
}
