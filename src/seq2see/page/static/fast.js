/**
 * Products of matrices, several times as fast as in tensors.js: a loop in WebAssembly that multiplies four numbers at once.
 *
 * `linear` of tensors.js says what is computed, and this computes the same. `program` writes the loop in the instructions of
 * WebAssembly, and their bytes are put together when the page begins, because a page that opens from a disk can fetch no other
 * file. Where it cannot run, `linear` does the work.
 */

import { linear, rowsOf } from "./tensors.js";

/** @typedef {import("./tensors.js").Tensor} Tensor */

/**
 * The instructions of WebAssembly that the loop needs, by their names in the specification, and their codes. A code above 0xff is
 * of 16 bytes at once: 0xfd stands before it, and it is written as a number of two bytes.
 */
const CODES = {
  "local.get": 0x20, "local.set": 0x21, "i32.const": 0x41, "f32.const": 0x43, "f64.const": 0x44, "i32.add": 0x6a, "i32.mul": 0x6c, "i32.lt_s": 0x48,
  "f32.add": 0x92, "f64.add": 0xa0, "f32.store": 0x38, "f64.store": 0x39, loop: 0x03, br_if: 0x0d, end: 0x0b,
  "v128.load": 0x1000, "v128.load64_zero": 0x105d, "f64x2.promote_low_f32x4": 0x105f, "f32x4.splat": 0x1013, "f64x2.splat": 0x1014,
  "f32x4.add": 0x10e4, "f64x2.add": 0x10f0, "f32x4.mul": 0x10e6, "f64x2.mul": 0x10f2, "f32x4.extract_lane": 0x101f, "f64x2.extract_lane": 0x1021,
};

/** A whole number in two bytes, 7 bits in each. */
const two = (/** @type {number} */ n) => [(n & 127) | 128, n >> 7];
/** An instruction and what it is given. */
const op = (/** @type {keyof typeof CODES} */ name, /** @type {number[]} */ ...given) => (CODES[name] > 0xff ? [0xfd, ...two(CODES[name] & 0xff), ...given] : [CODES[name], ...given]);
const get = (/** @type {number} */ variable) => op("local.get", variable);
const set = (/** @type {number} */ variable) => op("local.set", variable);
const number = (/** @type {number} */ n) => op("i32.const", n); // less than 64
const further = (/** @type {number} */ variable, /** @type {number[]} */ by) => [...get(variable), ...by, ...op("i32.add"), ...set(variable)];
const NOTHING = 0x40; // a loop has no result
/** Do something, and again while one variable is less than another. */
const repeat = (/** @type {number} */ variable, /** @type {number} */ end, /** @type {number[][]} */ ...body) => [...op("loop", NOTHING), ...body.flat(), ...get(variable), ...get(end), ...op("i32.lt_s"), ...op("br_if", 0), ...op("end")];

/** Four numbers of 32 bits in 16 bytes: how to load them, and weights, to fill, add and multiply them, take one out, add and store it. */
const SINGLE = {
  bytes: 4, load: op("v128.load", 2, 0), weights: op("v128.load", 2, 0), zero: [...op("f32.const", 0, 0, 0, 0), ...op("f32x4.splat")], plus: op("f32x4.add"), times: op("f32x4.mul"),
  lane: (/** @type {number} */ n) => op("f32x4.extract_lane", n), add: op("f32.add"), store: (/** @type {number} */ place) => op("f32.store", 2, place),
};
/** Two numbers of 64 bits, with which slopes are measured. Weights have 32 bits here too, and become longer when they are loaded. */
const DOUBLE = {
  bytes: 8, load: op("v128.load", 3, 0), weights: [...op("v128.load64_zero", 2, 0), ...op("f64x2.promote_low_f32x4")], zero: [...op("f64.const", 0, 0, 0, 0, 0, 0, 0, 0), ...op("f64x2.splat")], plus: op("f64x2.add"), times: op("f64x2.mul"),
  lane: (/** @type {number} */ n) => op("f64x2.extract_lane", n), add: op("f64.add"), store: (/** @type {number} */ place) => op("f64.store", 3, place),
};

/** The kinds of values. */
const [INT, WIDE] = [0x7f, 0x7b];
/** A part of a program: its number, its length, its bytes. */
const section = (/** @type {number} */ id, /** @type {number[]} */ ...bytes) => [id, ...two(bytes.length), ...bytes];

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
  const begin = rows.flatMap((row, n) => [...get(n ? rows[n - 1] : w), ...(n ? [...get(wWidth), ...op("i32.add")] : []), ...set(row), ...zero, ...set(sums[n])]);
  const inner = repeat(x, rowEnd, get(x), load, set(value), rows.flatMap((row, n) => [...get(sums[n]), ...get(value), ...get(row), ...weights, ...times, ...plus, ...set(sums[n]), ...further(row, number((16 / bytes) * 4))]), further(x, number(16)));
  const keep = sums.flatMap((sum, n) => [...get(to), ...lanes.flatMap((k) => [...get(sum), ...lane(k), ...(k ? add : [])]), ...store(n * bytes)]);
  const body = [
    ...get(wStart), ...set(w),
    ...repeat(w, end, get(xStart), set(x), get(toStart), set(to),
      repeat(x, xEnd, get(x), get(width), op("i32.add"), set(rowEnd), begin, inner, keep, further(to, get(toWidth))),
      further(w, [...get(wWidth), ...number(4), ...op("i32.mul")]), further(toStart, number(4 * bytes))),
    ...op("end"),
  ];
  const code = [2, 8, INT, 5, WIDE, ...body]; // 8 whole numbers and 5 times 16 bytes besides the 8 parameters
  return Uint8Array.from([
    0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, // "\0asm", version 1
    ...section(1, 1, 0x60, 8, ...Array(8).fill(INT), 0), // one type: a function of 8 whole numbers that returns nothing
    ...section(2, 1, 1, 109, 1, 109, 2, 0, 1), // it is given a memory, m.m, of one page at least
    ...section(3, 1, 0), ...section(7, 1, 1, 102, 0, 0), // it has one function, of that type, which is called f
    ...section(10, 1, ...two(code.length), ...code),
  ]);
}

const AT_ONCE = 64; // rows of x in one call: they stay in the processor’s cache
const LITTLE = 2 ** 15; // multiplications; below this, copying takes longer than it saves
const ROOM = 2 ** 17; // numbers of a matrix that is no weight: the keys or the values of a head
const WIDEST = 2 ** 12; // numbers of a row of it plus a row of the result
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
    return linear; // this browser lacks the memory, or WebAssembly is forbidden
  }
}
