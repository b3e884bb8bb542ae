/** Text to ids and back, by a tokenizer.json of the `tokenizers` library: characters, words, and sub-words by BPE, unigram or WordPiece. */

/** @typedef {{ids: number[], spans: [number, number][]}} Encoding  spans: the characters that each id stands for */
/** @typedef {import("./sentencepiece.js").Sign} Sign */
/** start: its first character in the whole text; signs: its characters, where they are not those of the text. @typedef {{text: string, start: number, signs?: Sign[]}} Piece */

const [START, END, PAD, UNKNOWN] = ["<sos>", "<eos>", "<pad>", "<unk>"];

const SPACES = /\p{White_Space}+/gu;
const WORDS = /[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]+/gu;
const LONGEST_WORD = 100; // a longer one is unknown

/** Characters are counted as Unicode counts them, as in Python: an emoji is one. */
const characters = (/** @type {string} */ text) => [...text];

/** A pattern of the library as one of JavaScript: there \s and \w follow Unicode. */
export function pattern(/** @type {string} */ source) {
  const translated = source.replaceAll("\\s\\S", "\\p{Any}").replaceAll("\\s", "\\p{White_Space}").replaceAll("\\S", "\\P{White_Space}")
    .replaceAll("\\w", "\\p{L}\\p{M}\\p{N}\\p{Pc}");
  return new RegExp(translated, "gu");
}

/** Cut pieces where a pattern matches; a match is a piece of its own, or is removed. @returns {Piece[]} */
export function split(/** @type {Piece[]} */ pieces, /** @type {RegExp} */ by, /** @type {boolean} */ removed) {
  return pieces.flatMap(({ text, start }) => {
    /** @type {Piece[]} */ const found = [];
    let end = 0; // of what is cut off, in UTF-16
    let place = start; // the same in characters
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
  /** @param {any} json what tokenizer.json holds @param {string} why what of it is not known here */
  constructor(json, why = unknown(json)) {
    if (why) throw new Error(`The page cannot cut text as this model does: ${why}.`);
    this.lower = json.normalizer?.type === "Lowercase";
    const { type, pretokenizers } = json.pre_tokenizer;
    /** @type {{by: RegExp, removed: boolean}[]} */ this.splits = type === "Metaspace" ? [] : type === "Whitespace" ? [{ by: SPACES, removed: true }, { by: WORDS, removed: false }]
      : (type === "Sequence" ? pretokenizers : [json.pre_tokenizer]).map((/** @type {any} */ each) => ({ by: pattern(each.pattern.Regex), removed: each.behavior === "Removed" }));
    this.spaced = json.decoder === null; // words are joined by spaces
    this.kind = json.model.type;
    this.byCharacters = this.kind === "WordLevel" && !this.spaced && !this.lower;
    const { vocab } = json.model;
    /** @type {Map<string, number>} */ this.ids = new Map(Array.isArray(vocab) ? vocab.map(([token], index) => [token, index]) : Object.entries(vocab));
    /** How likely each token is; of a unigram model only. @type {number[]} */ this.scores = Array.isArray(vocab) ? vocab.map(([, score]) => score) : [];
    this.names = [...this.ids.keys()].sort((a, b) => this.id(a) - this.id(b));
    this.longest = this.names.reduce((most, name) => Math.max(most, characters(name).length), 0);
    this.least = this.scores.reduce((least, score) => Math.min(least, score), Infinity);
    /** The rank of each merge of two tokens. @type {Map<string, number>} */
    this.merges = new Map((json.model.merges ?? []).map((/** @type {[string, string]} */ pair, /** @type {number} */ rank) => [pair.join("\0"), rank]));
    this.start = this.id(START);
    this.end = this.id(END);
    this.pad = this.id(PAD);
    this.unknown = this.ids.get(UNKNOWN);
    /** Ids before and after a text, and what an answer is made to begin with. */
    this.before = [this.start];
    this.after = [this.end];
    /** @type {number[]} */ this.forced = [];
    this.silent = new Set([this.start, this.end, this.pad]);
  }

  /** The tokens of characters that have none: their bytes. */
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

  /** Say which character of a text has no token, or nothing. */
  fault(/** @type {string} */ text) {
    if (this.kind === "BPE" || this.kind === "Unigram" || this.unknown !== undefined) return "";
    const index = characters(text).findIndex((character) => !this.ids.has(character));
    const character = characters(text)[index];
    return index < 0 ? "" : `‘${text}’ has ‘${character}’ (U+${character.codePointAt(0)?.toString(16).toUpperCase().padStart(4, "0")}) at character ${index + 1}, which this model’s vocabulary does not have.`;
  }

  /** Cut a text where tokens may not reach across. @returns {Piece[]} */
  pieces(/** @type {string} */ text) {
    const lowered = this.lower ? characters(text).map((character) => character.toLowerCase()).join("") : text;
    return this.splits.reduce((found, { by, removed }) => split(found, by, removed), /** @type {Piece[]} */ ([{ text: lowered, start: 0 }]));
  }

  /** Turn a text into ids, <sos> first and <eos> last, or what else its tokenizer puts there. @returns {Encoding} */
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

  /** Byte-pair encoding of one piece: begin with characters, and merge the pair that was learned first, as long as there is one. */
  merged(/** @type {Piece} */ piece, /** @type {Encoding} */ into) {
    /** @type {{token: string, from: number, to: number}[]} */ let parts = [];
    characters(piece.text).forEach((character, from) => {
      const known = this.ids.has(character);
      for (const token of known ? [character] : this.rare(character)) {
        const last = parts.at(-1);
        if (!known && last && token === this.names[/** @type {number} */ (this.unknown)] && last.token === token) last.to = from + 1; // neighbours without a token are one
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

  /** Unigram: of all ways to cut a piece into tokens, the one whose tokens are likeliest together, found from left to right. */
  likeliest(/** @type {Piece} */ piece, /** @type {Encoding} */ into) {
    const signs = characters(piece.text);
    const none = this.least - 10; // of a character that has no token
    /** The best way to each place: its score, where its last token begins, and whether that is one. @type {{score: number, from: number, known: boolean}[]} */
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
      if (!known && parts[0] && !parts[0].known) parts[0].from = from; // neighbours without a token are one
      else parts.unshift({ from, to, known });
    }
    for (const { from, to, known } of parts) {
      const token = signs.slice(from, to).join("");
      for (const each of known ? [token] : this.rare(token)) this.put(into, this.id(each), piece, from, to);
    }
  }

  /** WordPiece: the longest token that a word begins with, then the longest that goes on, which is written with ## before it. */
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

  /** Name each id. */
  tokens(/** @type {number[]} */ ids) {
    return ids.map((id) => this.names[id]);
  }

  /** Turn ids into plain text; special tokens say nothing. */
  decode(/** @type {number[]} */ ids) {
    const tokens = this.tokens(ids.filter((id) => !this.silent.has(id)));
    if (this.spaced) return tokens.join(" ");
    if (this.kind === "WordPiece") return tokens.map((token, n) => tidied(n && !token.startsWith("##") ? ` ${token}` : n ? token.slice(2) : token)).join("");
    return this.kind === "WordLevel" ? tokens.join("") : fromBytes(tokens);
  }
}

/** The tokens of the bytes of a text in UTF-8. */
export const bytesOf = (/** @type {string} */ text) => [...new TextEncoder().encode(text)].map((byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`);

/** No space before a mark and before the end of a contraction, as the library does it. */
const tidied = (/** @type {string} */ token) => TIDY.reduce((text, [from, to]) => text.replaceAll(from, to), token);
const TIDY = [[" .", "."], [" ?", "?"], [" !", "!"], [" ,", ","], [" ' ", "'"], [" n't", "n't"], [" 'm", "'m"], [" do not", " don't"], [" 's", "'s"], [" 've", "'ve"], [" 're", "'re"]];

/** Join tokens; a run of bytes becomes the characters that they spell in UTF-8, or a sign for each byte if they spell none. */
export function fromBytes(/** @type {string[]} */ tokens, /** @type {(token: string, first: boolean) => string} */ written = (token) => token) {
  let text = "";
  let count = 0; // of the tokens and runs of bytes that are written
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

/** A tokenizer.json for the characters of some texts, without the part that `special` writes. */
export function fitted(/** @type {string[]} */ texts) {
  const letters = [...new Set(texts.flatMap((text) => [...text]))].sort();
  const vocab = Object.fromEntries([...letters, START, END, PAD].map((token, id) => [token, id]));
  const cutter = { type: "Split", pattern: { Regex: "[\\s\\S]" }, behavior: "Isolated", invert: false };
  return { padding: null, added_tokens: [], normalizer: null, pre_tokenizer: cutter, decoder: { type: "Fuse" }, model: { type: "WordLevel", vocab, unk_token: UNKNOWN } };
}

/** What the library puts around a text: <sos> and <eos>. */
export function special(/** @type {any} */ { model: { vocab } }) {
  const token = (/** @type {string} */ id) => ({ SpecialToken: { id, type_id: 0 } });
  const known = (/** @type {string} */ id) => [id, { id, ids: [vocab[id]], tokens: [id] }];
  const text = (/** @type {string} */ id, /** @type {number} */ type) => ({ Sequence: { id, type_id: type } });
  return { type: "TemplateProcessing", single: [token(START), text("A", 0), token(END)], pair: [text("A", 0), text("B", 1)], special_tokens: Object.fromEntries([known(END), known(START)]) };
}

/** Say what of a tokenizer.json is not known here, or nothing. */
function unknown(/** @type {any} */ { padding, normalizer, pre_tokenizer: cutter, model, added_tokens: added }) {
  const cutters = cutter?.type === "Sequence" ? cutter.pretokenizers : [cutter];
  if (padding !== null || added.length) return "its tokenizer is of another program";
  if (normalizer !== null && normalizer.type !== "Lowercase") return `its texts are prepared by ${normalizer.type}`;
  if (cutter?.type !== "Whitespace" && !cutters.every((/** @type {any} */ each) => each?.type === "Split" && each.pattern.Regex && ["Isolated", "Removed"].includes(each.behavior) && !each.invert)) return "words are found in another way";
  if (!["WordLevel", "BPE", "Unigram", "WordPiece"].includes(model.type)) return `its sub-words are ${model.type}`;
  return "";
}

/** The classes for tokenizers of other programs. A module puts its own here; a page without such a model does without the module. @type {(new (json: any, size: number) => Tokenizer)[]} */
export const OTHERS = [];

/** Make a tokenizer, ours or of another program; the model has `size` tokens. @returns {Tokenizer} */
export function tokenizerOf(/** @type {any} */ json, /** @type {number} */ size) {
  const [Other] = OTHERS;
  return json.padding !== null && Other ? new Other(json, size) : new Tokenizer(json);
}
