/**
 * Turns text into ids and ids into text, as the `tokenizers` library does with the same tokenizer.json. It knows characters,
 * words, symbols, features, and the sub-words of BPE, unigram and WordPiece models.
 */

/** @typedef {{ids: number[], spans: [number, number][]}} Encoding  spans: the range of characters that each id covers */
/** @typedef {import("./sentencepiece.js").Sign} Sign */
/** A part of a text. start: the place of its first character in the whole text; signs: its characters, if a normaliser has changed them. @typedef {{text: string, start: number, signs?: Sign[]}} Piece */

const [START, END, PAD, UNKNOWN] = ["<sos>", "<eos>", "<pad>", "<unk>"];

const SPACES = /\p{White_Space}+/gu;
const WORDS = /[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]+/gu;
const LONGEST_WORD = 100; // characters; WordPiece treats a longer word as unknown

/** Split a text into code points, which Python counts too: an emoji is usually one. */
const characters = (/** @type {string} */ text) => [...text];

/** Translate a regular expression of the library into JavaScript. In the library, \s and \w follow Unicode. */
export function pattern(/** @type {string} */ source) {
  const translated = source.replaceAll("\\s\\S", "\\p{Any}").replaceAll("\\s", "\\p{White_Space}").replaceAll("\\S", "\\P{White_Space}")
    .replaceAll("\\w", "\\p{L}\\p{M}\\p{N}\\p{Pc}");
  return new RegExp(translated, "gu");
}

/** Make a pattern that finds a text as it is written. */
const literally = (/** @type {string} */ text) => new RegExp(text.replace(/[\\^$.*+?()[\]{}|/]/gu, "\\$&"), "gu");

/** Split pieces wherever a pattern matches. A match becomes a piece of its own, or is removed. @returns {Piece[]} */
export function split(/** @type {Piece[]} */ pieces, /** @type {RegExp} */ by, /** @type {boolean} */ removed) {
  return pieces.flatMap(({ text, start }) => {
    /** @type {Piece[]} */ const found = [];
    let end = 0; // where the part that was split off ends, in UTF-16 units
    let place = start; // the same place, in characters of the whole text
    const cut = (/** @type {number} */ to, /** @type {boolean} */ kept) => {
      const part = text.slice(end, to);
      if (part && kept) found.push({ text: part, start: place });
      place += characters(part).length;
      end = to;
    };
    for (const match of text.matchAll(by)) {
      cut(match.index, true);
      cut(match.index + match[0].length, !removed);
    }
    cut(text.length, true);
    return found;
  });
}

export class Tokenizer {
  /** @param {any} json the content of tokenizer.json @param {string} why the part of it that is not supported, if any */
  constructor(json, why = unknown(json)) {
    if (why) throw new Error(`The page cannot tokenize text as this model does: ${why}.`);
    this.lower = json.normalizer?.type === "Lowercase";
    const { type, pretokenizers } = json.pre_tokenizer;
    /** @type {{by: RegExp, removed: boolean}[]} */ this.splits = type === "Metaspace" ? [] : type === "Whitespace" ? [{ by: SPACES, removed: true }, { by: WORDS, removed: false }]
      : (type === "Sequence" ? pretokenizers : [json.pre_tokenizer]).map((/** @type {any} */ each) => ({ by: each.pattern.Regex ? pattern(each.pattern.Regex) : literally(each.pattern.String), removed: each.behavior === "Removed" }));
    this.spaced = json.decoder === null; // whether an answer is its words with spaces between them
    this.kind = json.model.type;
    /** What stands between two tokens of an answer: the separator of symbols, or nothing. @type {string} */ this.separator = json.pre_tokenizer.pattern?.String ?? "";
    this.lookedUp = this.kind === "WordLevel" && !this.spaced && !this.lower; // whether each part of a text is a token: a character, a symbol, a feature
    const { vocab } = json.model;
    /** @type {Map<string, number>} */ this.ids = new Map(Array.isArray(vocab) ? vocab.map(([token], index) => [token, index]) : Object.entries(vocab));
    /** The log-probability of each token, for a unigram model. @type {number[]} */ this.scores = Array.isArray(vocab) ? vocab.map(([, score]) => score) : [];
    this.names = [...this.ids.keys()].sort((a, b) => this.id(a) - this.id(b));
    this.longest = this.names.reduce((most, name) => Math.max(most, characters(name).length), 0);
    this.least = this.scores.reduce((least, score) => Math.min(least, score), Infinity);
    /** The rank of each merge of two tokens: the lower, the earlier it was learned. @type {Map<string, number>} */
    this.merges = new Map((json.model.merges ?? []).map((/** @type {[string, string]} */ pair, /** @type {number} */ rank) => [pair.join("\0"), rank]));
    this.start = this.id(START);
    this.end = this.id(END);
    this.pad = this.id(PAD);
    this.unknown = this.ids.get(UNKNOWN);
    /** The ids that stand before and after each text; `forced` holds those that each answer must begin with. */
    this.before = [this.start];
    this.after = [this.end];
    /** @type {number[]} */ this.forced = [];
    this.silent = new Set([this.start, this.end, this.pad]);
  }

  /** Return the tokens for text that has none of its own: its bytes, or the unknown token. */
  rare(/** @type {string} */ text) {
    return bytesOf(text);
  }

  /** Add a token and the characters from one place of a piece to another. */
  put(/** @type {Encoding} */ into, /** @type {number} */ id, /** @type {Piece} */ { start, signs }, /** @type {number} */ from, /** @type {number} */ to) {
    into.ids.push(id);
    into.spans.push(signs ? [signs[from].from, signs[to - 1].to] : [start + from, start + to]);
  }

  id(/** @type {string} */ token) {
    return /** @type {number} */ (this.ids.get(token));
  }

  /** Return a message that names the first character or symbol without a token, or an empty string. */
  fault(/** @type {string} */ text) {
    if (this.kind === "BPE" || this.kind === "Unigram" || this.unknown !== undefined) return "";
    const parts = this.parts(text);
    const index = parts.findIndex((part) => !this.ids.has(part));
    if (index < 0) return "";
    const part = parts[index];
    const what = this.separator || characters(part).length > 1 ? `the symbol ‘${part.trim()}’`
      : `‘${part}’ (U+${part.codePointAt(0)?.toString(16).toUpperCase().padStart(4, "0")}) at character ${index + 1}`;
    return `‘${text}’ has ${what}, which this model’s vocabulary does not have.`;
  }

  /** Split a text into the names of its tokens, for a tokenizer that looks them up. */
  parts(/** @type {string} */ text) {
    return this.pieces(text).map((piece) => piece.text);
  }

  /** Split a text into pieces; no token crosses from one piece into the next. @returns {Piece[]} */
  pieces(/** @type {string} */ text) {
    const lowered = this.lower ? characters(text).map((character) => character.toLowerCase()).join("") : text;
    return this.splits.reduce((found, { by, removed }) => split(found, by, removed), /** @type {Piece[]} */ ([{ text: lowered, start: 0 }]));
  }

  /** Turn a text into ids, with the tokenizer’s special ids around it: usually <sos> and <eos>. @returns {Encoding} */
  encode(/** @type {string} */ text) {
    /** @type {Encoding} */ const found = { ids: [...this.before], spans: this.before.map(() => [0, 0]) };
    for (const piece of this.pieces(text)) {
      if (this.kind === "BPE") this.merged(piece, found);
      else if (this.kind === "Unigram") this.likeliest(piece, found);
      else if (this.kind === "WordPiece") this.spelled(piece, found);
      else this.put(found, this.ids.get(piece.text) ?? /** @type {number} */ (this.unknown), piece, 0, characters(piece.text).length);
    }
    found.ids.push(...this.after);
    for (const _ of this.after) found.spans.push([0, 0]);
    return found;
  }

  /** Encode a piece by BPE: start with its characters, and repeatedly merge the pair of neighbours that was learned first. */
  merged(/** @type {Piece} */ piece, /** @type {Encoding} */ into) {
    /** @type {{token: string, from: number, to: number}[]} */ let parts = [];
    characters(piece.text).forEach((character, from) => {
      const known = this.ids.has(character);
      for (const token of known ? [character] : this.rare(character)) {
        const last = parts.at(-1);
        if (!known && last && token === this.names[/** @type {number} */ (this.unknown)] && last.token === token) last.to = from + 1; // adjacent unknown characters become one token
        else parts.push({ token, from, to: from + 1 });
      }
    });
    for (;;) {
      const ranks = parts.slice(1).map(({ token }, index) => this.merges.get(`${parts[index].token}\0${token}`) ?? Infinity);
      const best = ranks.reduce((least, rank, index) => (rank < (ranks[least] ?? Infinity) ? index : least), -1);
      if (best < 0) break;
      const [left, right] = [parts[best], parts[best + 1]];
      parts = [...parts.slice(0, best), { token: left.token + right.token, from: left.from, to: right.to }, ...parts.slice(best + 2)];
    }
    for (const { token, from, to } of parts) this.put(into, this.id(token), piece, from, to);
  }

  /** Encode a piece by a unigram model: of all ways to split it, take the one with the highest total score (Viterbi search). */
  likeliest(/** @type {Piece} */ piece, /** @type {Encoding} */ into) {
    const signs = characters(piece.text);
    const none = this.least - 10; // the score of a character without a token
    /** The best split that ends at each place: its score, where its last token begins, and whether the vocabulary has that token. @type {{score: number, from: number, known: boolean}[]} */
    const best = [{ score: 0, from: 0, known: true }];
    const offer = (/** @type {number} */ from, /** @type {number} */ to, /** @type {number} */ score, /** @type {boolean} */ known) => {
      if (!best[to] || best[from].score + score > best[to].score) best[to] = { score: best[from].score + score, from, known };
    };
    for (let from = 0; from < signs.length; from += 1) {
      let token = "";
      for (let to = from + 1; to <= Math.min(signs.length, from + this.longest); to += 1) {
        token += signs[to - 1];
        const id = this.ids.get(token);
        if (id !== undefined && id < this.scores.length) offer(from, to, this.scores[id], true);
      }
      if (!this.ids.has(signs[from])) offer(from, from + 1, none, false);
    }
    /** @type {{from: number, to: number, known: boolean}[]} */ const parts = [];
    for (let to = signs.length; to > 0; to = best[to].from) {
      const { from, known } = best[to];
      if (!known && parts[0] && !parts[0].known) parts[0].from = from; // adjacent unknown characters become one token
      else parts.unshift({ from, to, known });
    }
    for (const { from, to, known } of parts) {
      const token = signs.slice(from, to).join("");
      for (const each of known ? [token] : this.rare(token)) this.put(into, this.id(each), piece, from, to);
    }
  }

  /** Encode a word by WordPiece: take the longest token at its start, then the longest at the start of the rest. Tokens within a word begin with ##. */
  spelled(/** @type {Piece} */ { text, start }, /** @type {Encoding} */ into) {
    const signs = characters(text);
    /** @type {Encoding} */ const found = { ids: [], spans: [] };
    for (let from = 0; from < signs.length && signs.length <= LONGEST_WORD;) {
      let to = signs.length;
      const name = () => (from ? "##" : "") + signs.slice(from, to).join("");
      while (to > from && !this.ids.has(name())) to -= 1;
      if (to === from) break;
      found.ids.push(this.id(name()));
      found.spans.push([start + from, start + to]);
      from = to;
    }
    const whole = found.spans.at(-1)?.[1] === start + signs.length;
    into.ids.push(...(whole ? found.ids : [/** @type {number} */ (this.unknown)]));
    into.spans.push(...(whole ? found.spans : [/** @type {[number, number]} */ ([start, start + signs.length])]));
  }

  /** Return the token of each id. */
  tokens(/** @type {number[]} */ ids) {
    return ids.map((id) => this.names[id]);
  }

  /** Turn ids into text, without the special tokens. */
  decode(/** @type {number[]} */ ids) {
    const tokens = this.tokens(ids.filter((id) => !this.silent.has(id)));
    if (this.spaced) return tokens.join(" ");
    if (this.kind === "WordPiece") return tokens.map((token, n) => tidied(n && !token.startsWith("##") ? ` ${token}` : n ? token.slice(2) : token)).join("");
    return this.kind === "WordLevel" ? tokens.join(this.separator) : fromBytes(tokens);
  }
}

/** Return the tokens of the UTF-8 bytes of a text. */
export const bytesOf = (/** @type {string} */ text) => [...new TextEncoder().encode(text)].map((byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`);

/** Remove the space before punctuation and contractions, as the library does. */
const tidied = (/** @type {string} */ token) => TIDY.reduce((text, [from, to]) => text.replaceAll(from, to), token);
const TIDY = [[" .", "."], [" ?", "?"], [" !", "!"], [" ,", ","], [" ' ", "'"], [" n't", "n't"], [" 'm", "'m"], [" do not", " don't"], [" 's", "'s"], [" 've", "'ve"], [" 're", "'re"]];

/** Join tokens. A run of byte tokens is decoded as UTF-8; if it is not valid UTF-8, each byte becomes U+FFFD. */
export function fromBytes(/** @type {string[]} */ tokens, /** @type {(token: string, first: boolean) => string} */ written = (token) => token) {
  let text = "";
  let count = 0; // the tokens and runs of bytes written so far
  /** @type {number[]} */ let bytes = [];
  const flush = () => {
    if (bytes.length) count += 1;
    try {
      text += new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(Uint8Array.from(bytes));
    } catch {
      text += "\ufffd".repeat(bytes.length);
    }
    bytes = [];
  };
  for (const token of tokens) {
    const byte = /^<0x([0-9A-F]{2})>$/.exec(token);
    if (byte) bytes.push(Number.parseInt(byte[1], 16));
    else {
      flush();
      text += written(token, count === 0);
      count += 1;
    }
  }
  flush();
  return text;
}

/** Make a tokenizer.json for the characters of some texts, without the post-processor, which `special` makes. */
export function fitted(/** @type {string[]} */ texts) {
  const letters = [...new Set(texts.flatMap((text) => [...text]))].sort();
  const vocab = Object.fromEntries([...letters, START, END, PAD].map((token, id) => [token, id]));
  const cutter = { type: "Split", pattern: { Regex: "[\\s\\S]" }, behavior: "Isolated", invert: false };
  return { padding: null, added_tokens: [], normalizer: null, pre_tokenizer: cutter, decoder: { type: "Fuse" }, model: { type: "WordLevel", vocab, unk_token: UNKNOWN } };
}

/** Make the post-processor that puts <sos> and <eos> around a text. */
export function special(/** @type {any} */ { model: { vocab } }) {
  const token = (/** @type {string} */ id) => ({ SpecialToken: { id, type_id: 0 } });
  const known = (/** @type {string} */ id) => [id, { id, ids: [vocab[id]], tokens: [id] }];
  const text = (/** @type {string} */ id, /** @type {number} */ type) => ({ Sequence: { id, type_id: type } });
  return { type: "TemplateProcessing", single: [token(START), text("A", 0), token(END)], pair: [text("A", 0), text("B", 1)], special_tokens: Object.fromEntries([known(END), known(START)]) };
}

/** Name the part of a tokenizer.json that is not supported here, or return an empty string. */
function unknown(/** @type {any} */ { padding, normalizer, pre_tokenizer: cutter, model, added_tokens: added }) {
  const cutters = cutter?.type === "Sequence" ? cutter.pretokenizers : [cutter];
  if (padding !== null || added.length) return "another program wrote its tokenizer";
  if (normalizer !== null && normalizer.type !== "Lowercase") return `its normalizer is ${normalizer.type}`;
  if (cutter?.type !== "Whitespace" && !cutters.every((/** @type {any} */ each) => each?.type === "Split" && (each.pattern.Regex || each.pattern.String) && ["Isolated", "Removed"].includes(each.behavior) && !each.invert)) return "its pre-tokenizer is not supported";
  if (!["WordLevel", "BPE", "Unigram", "WordPiece"].includes(model.type)) return `its sub-word model is ${model.type}`;
  return "";
}

/** The classes for tokenizers that other programs wrote. sentencepiece.js adds its class; a page that does not need it leaves that module out. @type {(new (json: any, size: number) => Tokenizer)[]} */
export const OTHERS = [];

/** Make the tokenizer of a model with `size` tokens, whichever program wrote it. @returns {Tokenizer} */
export function tokenizerOf(/** @type {any} */ json, /** @type {number} */ size) {
  const [Other] = OTHERS;
  return json.padding !== null && Other ? new Other(json, size) : new Tokenizer(json);
}
