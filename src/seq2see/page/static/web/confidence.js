/** Computes the confidence of an answer from the model’s confidence.json, as evaluation/confidence.py, familiar.py and documents/languages.py do. */

import { inflate } from "../weights.js";

/** Statistics of the inputs of the training. @typedef {{longest: number, letters: string, table: string, most: number}} Familiar */
/** @typedef {{weights: number[], familiar: Familiar, language: string, languages: Record<string, string[]>}} Fitted  languages: the most frequent words of each language */

const [LOWEST, HIGHEST] = [-60, -1e-7]; // log-probabilities are limited to this range
const STEP = 8; // a byte of the table holds the logarithm of a count, in steps of 1/8
const NEW = 5 * STEP; // for a sequence that never occurred in the training
const [LEAST, SHARE] = [2, 0.25]; // a text counts as foreign from this many words of another language on, and from this share of its words
const MARK = /\{ ?\p{Nd}+ ?\}/gu;
const EMOJI = /[\u{1f1e6}-\u{1f1ff}]{2}|[\u{1f000}-\u{1faff}☀-➿⬀-⯿]\ufe0f?[\u{1f3fb}-\u{1f3ff}]?(?:\u200d[\u{1f000}-\u{1faff}☀-➿]\ufe0f?[\u{1f3fb}-\u{1f3ff}]?)*/gu;
const WORD = /[\p{L}\p{Nl}\p{No}]+(?:['’][\p{L}\p{Nl}\p{No}]+)?/gu;

/** log(p / (1 − p)) of a log-probability. */
function odds(/** @type {number} */ given) {
  const value = Math.min(HIGHEST, Math.max(LOWEST, given));
  return value - Math.log(-Math.expm1(value));
}

/** Return the probability that an answer is right, from the log-probabilities of its tokens. It is 0 for an answer that was cut off. */
export function probability(/** @type {number[]} */ weights, /** @type {number[]} */ values, /** @type {boolean} */ finished) {
  if (!finished) return 0;
  const [total, length] = [values.reduce((sum, value) => sum + value, 0), Math.max(1, values.length)];
  const unsure = values.filter((value) => value < Math.log(0.5)).length / length;
  const figures = [odds(total), odds(Math.min(0, ...values)), Math.max(LOWEST, total / length), Math.log(length), unsure];
  return 1 / (1 + Math.exp(-figures.reduce((sum, figure, n) => sum + weights[n + 1] * figure, weights[0])));
}

const CRC = Array.from({ length: 256 }, (_, byte) => {
  let found = byte;
  for (let bit = 0; bit < 8; bit += 1) found = found & 1 ? (found >>> 1) ^ 0xedb88320 : found >>> 1;
  return found;
});

/** Return the CRC-32 of bytes, which zip files use too. */
function crc32(/** @type {Uint8Array} */ bytes) {
  let found = 0xffffffff;
  for (const byte of bytes) found = CRC[(found ^ byte) & 255] ^ (found >>> 8);
  return (found ^ 0xffffffff) >>> 0;
}

/** Judges how familiar a text is to one model. */
export class Judge {
  /** @param {Fitted} fitted @param {Uint8Array} table the logarithms of the counts of character sequences */
  constructor(fitted, table) {
    this.fitted = fitted;
    this.table = table;
    this.letters = new Set(fitted.familiar.letters);
  }

  /** @returns {Promise<Judge>} */
  static async of(/** @type {Fitted} */ fitted) {
    const packed = Uint8Array.from(atob(fitted.familiar.table), (letter) => letter.charCodeAt(0));
    return new Judge(fitted, new Uint8Array(await inflate(packed)));
  }

  /** Return the mean of −log2 P(character | the two characters before it), in bits. */
  surprise(/** @type {string} */ text) {
    const signs = [" ", " ", ...text, " "];
    const encoder = new TextEncoder();
    const found = (/** @type {string[]} */ some) => this.table[crc32(encoder.encode(some.join(""))) % this.table.length];
    let total = 0;
    for (let place = 0; place + 2 < signs.length; place += 1) {
      const [before, here] = [found(["\0", ...signs.slice(place, place + 2)]), found(signs.slice(place, place + 3))];
      total += before ? Math.max(0, before - here) : NEW;
      total += here ? 0 : NEW;
    }
    return total / STEP / (signs.length - 2);
  }

  /** Say how a text differs from the inputs of the training, or return an empty string. `length` counts its tokens without <sos> and <eos>. */
  whyNot(/** @type {string} */ text, /** @type {number} */ length) {
    const { longest, most } = this.fitted.familiar;
    if (length > longest) return `The input has ${length} tokens, but the longest of the training has ${longest}.`;
    const strange = this.letters.size ? [...text].find((letter) => !this.letters.has(letter)) : undefined;
    if (strange) return `The input has ‘${strange}’ (U+${strange.codePointAt(0)?.toString(16).toUpperCase().padStart(4, "0")}), which no input of the training has.`;
    if (this.surprise(text) > most) return "The input differs from those of the training: its sequences of characters are unusual.";
    return this.foreign(text);
  }

  /** Say that a text is not in the language that the model reads, or return an empty string. Words that both languages share do not count. */
  foreign(/** @type {string} */ text) {
    const { language, languages } = this.fitted;
    if (!language) return "";
    const words = (text.toLowerCase().match(WORD) ?? []).map((word) => word.replace("’", "'"));
    const found = Object.fromEntries(Object.entries(languages).map(([name, some]) => [name, words.filter((word) => some.includes(word))]));
    const best = Object.keys(found).reduce((most, name) => (found[name].length > found[most].length ? name : most));
    const against = found[best].filter((word) => !languages[language].includes(word)).length;
    const speaks = found[language].filter((word) => !languages[best].includes(word)).length;
    const clear = against >= LEAST && against > 2 * speaks && found[best].length >= SHARE * words.length;
    return clear && best !== language ? `The input does not look like ${language}: its words are ${best}.` : "";
  }
}

/** Return a text without the placeholders and emoji that a model only copies. */
export const unmarked = (/** @type {string} */ text) => text.replaceAll(MARK, "").replaceAll(EMOJI, "");
