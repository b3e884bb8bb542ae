/** A text that a model of sentences translates: sentences are shown as they arrive, and each can be inspected. */

import { byId, h, percent, thousands } from "./dom.js";
import { fitLength, lightText } from "./field.js";
import { change, view } from "./state.js";

/** What the model read and wrote. @typedef {{read: string, ids?: number[]}} Part */
/** @typedef {{source: string, output?: string, draft?: string, finished?: boolean, confidence?: number, remark?: string, repairs?: string[], terms?: number, error?: string, parts?: Part[]}} Sentence */

const UNSURE = 0.5; // below this confidence a sentence is more likely wrong than right

/** Whether a sentence needs checking: low or unknown confidence, or it was repaired, cut or refused. */
const isUnsure = (/** @type {Sentence} */ { confidence, finished, error, repairs = [], remark }) =>
  Boolean(error || repairs.length || finished === false || (confidence === undefined ? remark : confidence < UNSURE));

/** What is to be said of a sentence, in the words of `predict`. @returns {string[]} */
export function saidOf(/** @type {Sentence} */ { source, finished, confidence, remark, error, repairs = [], terms, parts = [] }) {
  const read = parts.length === 1 && parts[0].read !== source.trim() ? [`The model reads “${parts[0].read}”.`] : [];
  return [
    ...(error ? [`${error} It was left as it is.`] : []),
    ...(finished === false ? ["The answer was cut: it did not come to its end."] : []),
    ...(confidence === undefined ? [] : [`confidence ${percent(confidence)}: of 100 answers with this confidence about ${Math.round(100 * confidence)} are right`]),
    ...(remark ? [remark] : []), ...repairs, ...read,
    ...(parts.length > 1 ? [`It is long, so that it was translated in ${parts.length} parts; the first one is shown below.`] : []),
    ...(terms === undefined ? [] : [`${terms} ${terms === 1 ? "term" : "terms"} of the glossary in it`]),
  ];
}

/** A text and the part of it that is translated so far. */
export class Translation {
  /** @param {() => void} changed is called when sentences have come */
  constructor(changed) {
    this.changed = changed;
    /** @type {(string|Sentence)[]} */ this.pieces = []; // a string stays
    /** @type {Sentence[]} */ this.sentences = [];
    /** @type {string[]} */ this.notes = [];
    this.done = 0;
    this.error = "";
    /** @type {(() => void)[]} */ this.waiting = [];
  }

  /** Take a line of the answer. */
  take(/** @type {any} */ { parts, notes = [], sentences = [], error, draft }) {
    if (parts) {
      this.pieces = parts;
      this.notes = notes;
      this.sentences = parts.filter((/** @type {any} */ part) => typeof part !== "string");
    }
    for (const found of sentences) Object.assign(this.sentences[(this.done += 1) - 1], found);
    if (draft) this.sentences[this.done].draft = draft; // what is written of the next one
    this.error = error ?? "";
    for (const resolve of this.waiting.splice(0)) resolve();
    if (this.pieces.length) this.changed();
  }

  get whole() {
    return this.pieces.length > 0 && this.done === this.sentences.length;
  }

  /** Wait for a sentence, of which there may be none. @returns {Promise<Sentence|undefined>} */
  async sentence(/** @type {number} */ index) {
    for (;;) {
      const found = this.sentences[Math.min(index, this.sentences.length - 1)];
      if (this.error && found?.output === undefined) throw new Error(this.error);
      if (found?.output !== undefined || this.whole) return found;
      await new Promise((/** @type {(value: void) => void} */ resolve) => { this.waiting.push(resolve); });
    }
  }

  /** The text in the other language. */
  get text() {
    return this.pieces.map((piece) => (typeof piece === "string" ? piece : (piece.output ?? piece.source))).join("");
  }

  /** Whether it is more than one sentence in a line. */
  get isLong() {
    return this.sentences.length > 1 || this.pieces.some((piece) => typeof piece === "string" && piece.includes("\n"));
  }
}

/** Light the sentence of the text that is chosen in its answer, where there are several. */
function lightSentence(/** @type {Translation} */ { pieces, sentences }) {
  const text = byId("text").value;
  let place = 0;
  for (const piece of sentences.length > 1 ? pieces : []) {
    const words = typeof piece === "string" ? piece : piece.source;
    const at = text.indexOf(words, place);
    if (at < 0) break; // a file’s markup is not all in its pieces
    if (piece === sentences[view.sentence]) return lightText([[at, at + words.length]]);
    place = at + words.length;
  }
  return lightText([]);
}

/** Show the translation so far. `instead` replaces the chosen sentence: the answer of an edited model. */
export function showText(/** @type {Translation} */ translation, instead = "") {
  const place = byId("answer");
  const held = place.contains(document.activeElement);
  let number = -1;
  place.replaceChildren(...translation.pieces.map((piece) => (typeof piece === "string" ? piece : shown(piece, (number += 1), instead))));
  place.classList.remove("writing");
  lightSentence(translation);
  const long = translation.isLong;
  byId("ask").classList.toggle("long", long);
  fitLength();
  if (held) place.querySelector(".phrase.chosen")?.focus({ preventScroll: true });
  const { sentences, done } = translation;
  const unsure = sentences.filter((one) => one.output !== undefined && isUnsure(one)).length;
  const many = thousands(sentences.length);
  const said = !translation.whole ? `${thousands(done)} of ${many} sentences are translated …` : long ? `${many} ${sentences.length === 1 ? "sentence" : "sentences"}${unsure ? `, ${thousands(unsure)} to look at again: unsure or mended` : ""}` : "";
  byId("progress").replaceChildren(...[translation.error, said, ...translation.notes].filter(Boolean).map((each) => h("span", {}, each)));
  byId("download").hidden = !translation.whole;
  byId("copy").hidden = !translation.whole || !navigator.clipboard; // a page over plain HTTP has no clipboard
}

/** One sentence of the answer. */
function shown(/** @type {Sentence} */ sentence, /** @type {number} */ number, /** @type {string} */ instead) {
  if (sentence.output === undefined) return h("span", { className: "coming" }, sentence.draft ? `${sentence.draft} …` : sentence.source);
  const chosen = number === view.sentence;
  const unsure = isUnsure(sentence);
  const said = saidOf(sentence);
  const choose = () => change({ sentence: number, prefix: [], patches: [], pin: null, step: 0 });
  return h("span", {
    className: `phrase${chosen ? " chosen" : ""}${unsure ? " unsure" : ""}`, role: "button", tabIndex: chosen ? 0 : -1, "aria-pressed": chosen,
    title: said.join(" · "), "aria-description": said.join(". "), onclick: choose,
    onkeydown: (/** @type {KeyboardEvent} */ event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      event.stopPropagation();
      choose();
    },
  }, (chosen && instead) || sentence.output);
}
