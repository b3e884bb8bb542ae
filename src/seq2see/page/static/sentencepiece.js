/**
 * Tokenizers of SentencePiece: a text is written anew by a map of characters, spaces are folded, each becomes a ▁, and the pieces
 * are cut by unigram or BPE.
 */

import { OTHERS, Tokenizer, bytesOf, fromBytes, pattern, split } from "./tokenizer.js";

/** @typedef {import("./tokenizer.js").Encoding} Encoding */
/** @typedef {import("./tokenizer.js").Piece} Piece */

/** A character, and the range of the text that it stands for. @typedef {{sign: string, from: number, to: number}} Sign */

/** The characters of a text as they are. @returns {Sign[]} */
const signsOf = (/** @type {string} */ text, /** @type {number} */ start) => [...text].map((sign, n) => ({ sign, from: start + n, to: start + n + 1 }));

const textOf = (/** @type {Sign[]} */ signs) => signs.map(({ sign }) => sign).join("");

const LONGEST_TOGETHER = 5; // bytes of a character with its marks that are looked up together
const WHITE_SIGN = /^\p{White_Space}$/u;

/**
 * The map of characters that SentencePiece compiles: a trie of bytes in an array (a double array), and texts that end with a 0.
 * A unit of the trie has the byte that leads to it in its lowest bits, whether an entry ends here in bit 8, and how far on its
 * children stand from bit 10 on.
 */
class CharacterMap {
  constructor(/** @type {string} */ base64) {
    const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
    const view = new DataView(bytes.buffer);
    const size = view.getUint32(0, true);
    this.units = Uint32Array.from({ length: size / 4 }, (_, n) => view.getUint32(4 + 4 * n, true));
    this.texts = bytes.subarray(4 + size);
    this.words = new Intl.Segmenter("und", { granularity: "grapheme" });
  }

  /** What the shortest entry that a text begins with is written as; nothing if there is none. @returns {string|null} */
  entry(/** @type {Uint8Array} */ bytes) {
    const offset = (/** @type {number} */ unit) => (unit >>> 10) << ((unit & 512) >>> 6);
    let place = offset(this.units[0]);
    for (const byte of bytes) {
      place ^= byte;
      const unit = this.units[place];
      if (byte === 0 || unit === undefined || (unit & 0x800000ff) >>> 0 !== byte) return null;
      place ^= offset(unit);
      if (unit & 256) {
        const from = this.units[place] & 0x7fffffff;
        return new TextDecoder().decode(this.texts.subarray(from, this.texts.indexOf(0, from)));
      }
    }
    return null;
  }

  /** Write signs anew: a character with its marks together, if they are few bytes, else each by itself. @returns {Sign[]} */
  apply(/** @type {Sign[]} */ signs) {
    const utf8 = new TextEncoder();
    let place = 0;
    return [...this.words.segment(textOf(signs))].flatMap(({ segment }) => {
      const old = signs.slice(place, (place += [...segment].length));
      const bytes = utf8.encode(segment);
      const whole = bytes.length <= LONGEST_TOGETHER ? this.entry(bytes) : null;
      if (whole !== null) return replaced(old, whole);
      return old.flatMap((one) => {
        const found = this.entry(utf8.encode(one.sign));
        return found === null ? [one] : replaced([one], found);
      });
    });
  }
}

/** New characters for old ones: each stands for the old one in its place, and those beyond for the last. @returns {Sign[]} */
const replaced = (/** @type {Sign[]} */ old, /** @type {string} */ text) => [...text].map((sign, n) => ({ ...old[Math.min(n, old.length - 1)], sign }));

/** Remove white space at both ends. @returns {Sign[]} */
function stripped(/** @type {Sign[]} */ signs, /** @type {boolean} */ left, /** @type {boolean} */ right) {
  const black = signs.map(({ sign }) => !WHITE_SIGN.test(sign));
  const first = black.indexOf(true);
  if (first < 0) return left || right ? [] : signs;
  return signs.slice(left ? first : 0, right ? black.lastIndexOf(true) + 1 : undefined);
}

/** Write each match of a pattern as another text, which stands for the last character of the match. @returns {Sign[]} */
function exchanged(/** @type {Sign[]} */ signs, /** @type {RegExp} */ by, /** @type {string} */ text) {
  /** @type {Sign[]} */ const found = [];
  let place = 0; // in characters
  let end = 0; // the same in UTF-16
  const whole = textOf(signs);
  for (const match of whole.matchAll(by)) {
    const [before, inside] = [[...whole.slice(end, match.index)].length, [...match[0]].length];
    if (!inside) continue;
    const last = signs[place + before + inside - 1];
    found.push(...signs.slice(place, place + before), ...[...text].map((sign) => ({ ...last, sign })));
    place += before + inside;
    end = match.index + match[0].length;
  }
  return [...found, ...signs.slice(place)];
}

/** @typedef {(signs: Sign[]) => Sign[]} Step */

/** A pattern that matches a text itself. */
const literal = (/** @type {string} */ text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

/** The steps of a normalizer of the `tokenizers` library. @returns {Step[]} */
function stepsOf(/** @type {any} */ normalizer) {
  if (normalizer === null) return [];
  if (normalizer.type === "Sequence") return normalizer.normalizers.flatMap(stepsOf);
  if (normalizer.type === "Precompiled") {
    const map = new CharacterMap(normalizer.precompiled_charsmap);
    return [(signs) => map.apply(signs)];
  }
  if (normalizer.type === "Strip") return [(signs) => stripped(signs, normalizer.strip_left, normalizer.strip_right)];
  const { String: plain, Regex: regex } = normalizer.pattern;
  const by = regex ? pattern(regex) : new RegExp(literal(plain), "gu");
  return [(signs) => exchanged(signs, by, normalizer.content)];
}

/** Cut at spaces as Metaspace does: a space becomes ▁, and each piece begins with one. @returns {Sign[][]} */
function spacesCut(/** @type {Sign[]} */ signs, /** @type {any} */ { replacement, prepend_scheme: scheme, split }) {
  const marked = signs.map((one) => (one.sign === " " ? { ...one, sign: replacement } : one));
  const first = marked[0];
  if (!first) return [];
  if (first.sign !== replacement && (scheme === "always" || (scheme === "first" && first.from === 0))) marked.unshift({ ...first, sign: replacement });
  if (!split) return [marked];
  /** @type {Sign[][]} */ const found = [];
  for (const one of marked) {
    if (one.sign === replacement || !found.length) found.push([one]);
    else found[found.length - 1].push(one);
  }
  return found;
}

/** Say what of a normalizer is not known here, or nothing. */
function unknownStep(/** @type {any} */ normalizer) {
  if (normalizer === null) return "";
  if (normalizer.type === "Sequence") return normalizer.normalizers.map(unknownStep).find(Boolean) ?? "";
  if (normalizer.type === "Precompiled" && !globalThis.Intl?.Segmenter) return "this browser does not tell characters with their marks apart";
  return ["Precompiled", "Strip", "Replace"].includes(normalizer.type) ? "" : `its normalizer is ${normalizer.type}`;
}

/** Say what of a tokenizer.json is not known here, or nothing. The rules are those of `live.why_not` in Python. */
function unknownOfOthers(/** @type {any} */ { normalizer, pre_tokenizer: cutter, post_processor: frame, model, added_tokens: added }) {
  if (frame?.type !== "TemplateProcessing" || cutter?.type !== "Metaspace" || !["BPE", "Unigram"].includes(model.type)) return "its tokenizer is not a SentencePiece one";
  if (added.some((/** @type {any} */ { normalized, lstrip, rstrip, single_word: single }) => normalized || lstrip || rstrip || single)) return "its special tokens are looked for in another way";
  if (model.type === "BPE" && (model.dropout || model.continuing_subword_prefix || model.end_of_word_suffix || model.ignore_merges || !model.fuse_unk)) return "its merges follow other rules";
  return unknownStep(normalizer);
}

const ENDS = /^[\x1c-\x1f\p{White_Space}]+|[\x1c-\x1f\p{White_Space}]+$/gu;

export class SentencePiece extends Tokenizer {
  /** @param {any} json what tokenizer.json holds @param {number} size how many tokens the model has; those beyond are unknown */
  constructor(json, size) {
    super(json, unknownOfOthers(json));
    const { padding, normalizer, pre_tokenizer: cutter, post_processor: frame, added_tokens: added, model } = json;
    const parts = frame.single.map((/** @type {any} */ part) => (part.SpecialToken ? frame.special_tokens[part.SpecialToken.id].ids : null));
    const place = parts.indexOf(null); // of the text
    this.before = parts.slice(0, place).flat();
    this.after = parts.slice(place + 1).flat();
    this.pad = padding.pad_id;
    this.start = this.before[0] ?? this.pad;
    this.end = this.after[0] ?? this.pad;
    this.forced = this.before.slice(1);
    this.size = size;
    for (const { content, id } of added) {
      this.ids.set(content, id);
      this.names[id] = content;
    }
    this.unknown = model.unk_id ?? this.ids.get(model.unk_token);
    this.silent = new Set([...this.before, ...this.after, this.start, this.pad, ...added.filter((/** @type {any} */ { special }) => special).map((/** @type {any} */ { id }) => id)]);
    this.bytes = model.byte_fallback;
    this.steps = stepsOf(normalizer);
    this.metaspace = cutter;
    /** @type {Set<string>} */ this.given = new Set(added.map((/** @type {any} */ { content }) => content));
    this.finds = this.given.size ? new RegExp([...this.given].sort((a, b) => b.length - a.length).map(literal).join("|"), "gu") : null;
  }

  /** Special tokens are found first. The rest is normalised, and cut at spaces. @returns {Piece[]} */
  pieces(/** @type {string} */ text) {
    const whole = [{ text, start: 0 }];
    return (this.finds ? split(whole, this.finds, false) : whole).flatMap((piece) => {
      if (this.given.has(piece.text)) return [piece];
      const signs = this.steps.reduce((found, step) => step(found), signsOf(piece.text, piece.start));
      return spacesCut(signs, this.metaspace).map((some) => ({ text: textOf(some), start: some[0].from, signs: some }));
    });
  }

  merged(/** @type {Piece} */ piece, /** @type {Encoding} */ into) {
    if (piece.signs) super.merged(piece, into);
    else this.put(into, this.id(piece.text), piece, 0, [...piece.text].length);
  }

  likeliest(/** @type {Piece} */ piece, /** @type {Encoding} */ into) {
    if (piece.signs) super.likeliest(piece, into);
    else this.put(into, this.id(piece.text), piece, 0, [...piece.text].length);
  }

  put(/** @type {Encoding} */ into, /** @type {number} */ id, /** @type {Piece} */ piece, /** @type {number} */ from, /** @type {number} */ to) {
    super.put(into, id < this.size ? id : /** @type {number} */ (this.unknown), piece, from, to);
  }

  /** Bytes, if the model has them all; else the unknown token. */
  rare(/** @type {string} */ text) {
    const bytes = this.bytes ? bytesOf(text) : [];
    return bytes.length && bytes.every((byte) => this.ids.has(byte)) ? bytes : [this.names[/** @type {number} */ (this.unknown)]];
  }

  /** ▁ is a space, but not in the first token, where it was put; nothing white stands at the ends. */
  decode(/** @type {number[]} */ ids) {
    const { replacement, prepend_scheme: scheme } = this.metaspace;
    const tokens = this.tokens(ids.filter((id) => !this.silent.has(id)));
    const written = (/** @type {string} */ token, /** @type {boolean} */ first) => token.replaceAll(replacement, first && scheme !== "never" ? "" : " ");
    const text = this.bytes ? fromBytes(tokens, written) : tokens.map((token, n) => written(token, n === 0)).join("");
    return text.replace(ENDS, "");
  }
}

OTHERS.push(SentencePiece);
