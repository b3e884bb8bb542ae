/** Reads the weights of a model: a safetensors file, with numbers of 32, 16 or 8 bits. */

/** @typedef {import("./tensors.js").Tensor} Tensor */

const STEP = "/step"; // a matrix of 8 bits has a step for each row: a number is its byte times the step

/** A number of 16 bits: sign, 5 of exponent, 10 of fraction. */
export function half(/** @type {number} */ bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return exponent ? sign * 2 ** (exponent - 25) * (1024 + fraction) : sign * fraction * 2 ** -24;
}

/** Read a safetensors file; the bytes of rounded matrices come as the numbers that they stand for. @returns {Map<string, Tensor>} */
export function readWeights(/** @type {ArrayBuffer} */ file) {
  const length = Number(new DataView(file).getBigUint64(0, true));
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(file, 8, length)));
  const part = (/** @type {string} */ name) => {
    const [first, last] = head[name].data_offsets;
    return file.slice(8 + length + first, 8 + length + last); // a copy, since numbers must begin at a multiple of their size
  };
  /** @type {Map<string, Tensor>} */ const found = new Map();
  for (const [name, entry] of Object.entries(head)) {
    if (name === "__metadata__" || name.endsWith(STEP)) continue;
    const { dtype, shape } = /** @type {{dtype: string, shape: number[]}} */ (entry);
    found.set(name, { shape, data: numbers(dtype, part(name), dtype === "I8" ? new Float32Array(part(name + STEP)) : null) });
  }
  return found;
}

/** @returns {Float32Array} */
function numbers(/** @type {string} */ dtype, /** @type {ArrayBuffer} */ bytes, /** @type {Float32Array|null} */ steps) {
  if (dtype === "F32") return new Float32Array(bytes);
  if (dtype === "F16") return Float32Array.from(new Uint16Array(bytes), half);
  if (dtype !== "I8" || !steps) throw new Error(`Weights of type ${dtype} cannot be read here: F32, F16 or I8 was expected.`);
  const given = new Int8Array(bytes);
  const found = new Float32Array(given.length);
  const width = given.length / steps.length;
  for (let row = 0, i = 0; row < steps.length; row += 1) {
    for (const end = i + width; i < end; i += 1) found[i] = given[i] * steps[row];
  }
  return found;
}

/** The 85 characters that stand for the digits of base 85: none of them means anything in HTML or in a text of JSON. */
const DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%()*+,-./:;=?@[]^_{}";

/** Read base 85: five characters are four bytes, the most significant first. @returns {Uint8Array<ArrayBuffer>} */
export function fromBase85(/** @type {string} */ text) {
  const values = new Uint8Array(128);
  for (let digit = 0; digit < 85; digit += 1) values[DIGITS.charCodeAt(digit)] = digit;
  const bytes = new Uint8Array((text.length / 5) * 4);
  for (let from = 0, to = 0; from < text.length; from += 5, to += 4) {
    let word = 0;
    for (let i = 0; i < 5; i += 1) word = word * 85 + values[text.charCodeAt(from + i)];
    bytes[to] = word >>> 24;
    bytes[to + 1] = word >>> 16;
    bytes[to + 2] = word >>> 8;
    bytes[to + 3] = word;
  }
  return bytes;
}

/** Write bytes in base 85, filled up with zeros to a multiple of four. */
export function toBase85(/** @type {Uint8Array} */ bytes) {
  let text = "";
  for (let from = 0; from < bytes.length; from += 4) {
    let word = 0;
    for (let i = 0; i < 4; i += 1) word = word * 256 + (bytes[from + i] ?? 0);
    let digits = "";
    for (let i = 0; i < 5; i += 1) {
      digits = DIGITS[word % 85] + digits;
      word = Math.floor(word / 85);
    }
    text += digits;
  }
  return text;
}

/** Unpack what zlib has compressed. @returns {Promise<ArrayBuffer>} */
export async function inflate(/** @type {Uint8Array<ArrayBuffer>} */ bytes) {
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).arrayBuffer();
}
