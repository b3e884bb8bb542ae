/** Where the sentences of a text begin and end, by the rules of seq2see’s documents/sentences.py, whose lists of words the file holds. */

/** @typedef {{never: string[], before_numbers: string[], either: string[], starters: string[], months: string[]}} Words */

const STOPS = String.raw`.!?…․‼‽⁇⁈⁉⳹⳺⳻⸮⸼⹓⹔\u2e60\u2e61﹒﹖﹗．`;
const OWN = String.raw`(?![${STOPS}])\p{STerm}`; // of scripts that put no space behind a sentence, or have marks of their own
const END = new RegExp(String.raw`(?<![${STOPS}])(?:[${STOPS}]+|(?<=[\u0370-\u03ff\u1f00-\u1fff]);)["'“”’»›)\]*_]*(?:\s»(?=\s|$))?(?=\s|$)|${OWN}[\p{STerm}…]*[」』”’）»›]*(?:["')\]*_]+(?=\s|$))?`, "gu");
const IS_OWN = new RegExp(`^${OWN}`, "u");
const OPENERS = /^["'“”‘«‹([{¿¡*_–—-]+/u; // what may stand before the first letter of a sentence
const TOKEN = /\p{L}+(?:\.\p{L}+)*$|\p{Nd}+$/u; // before a full stop: letters and stops (U.S, e.g, Dr), or digits
const FIRST = /^\p{L}+(?:['’]\p{L}+)?/u;
const LOWER = /^\p{Ll}/u;
const ALNUM = /^[\p{L}\p{N}]/u;
/** What stands before the words of a line: indentation, quotation, the mark or number of an item. */
const FRONT = /^[\s>]*(?:(?:[-*•·–—▪◦‣]|\d{1,3}[.)]|\(?[a-z\d]\)|\[[ xX]?\])\s+)*/u;

/** Cut a line into sentences, without the white space around them. @returns {[number, number][]} */
export function split(/** @type {string} */ text, /** @type {Words} */ words) {
  const small = !/\p{Lu}/u.test(text);
  /** @type {[number, number][]} */ const spans = [];
  let first = 0;
  for (const { 0: mark, index } of text.matchAll(END)) {
    const end = index + mark.length;
    const rest = end + (/^\s*/u.exec(text.slice(end, end + 64))?.[0].length ?? 0);
    if (rest < text.length && ends(text, mark, index, rest, small, first, words)) {
      spans.push([first, end]);
      first = rest;
    }
  }
  spans.push([first, text.length]);
  return spans.flatMap(([from, to]) => {
    const part = text.slice(from, to);
    return part.trim() ? [/** @type {[number, number]} */ ([to - part.trimStart().length, from + part.trimEnd().length])] : [];
  });
}

/** Whether a mark ends a sentence; `rest` is where the next word begins. */
function ends(/** @type {string} */ text, /** @type {string} */ mark, /** @type {number} */ place, /** @type {number} */ rest, /** @type {boolean} */ small, /** @type {number} */ first, /** @type {Words} */ words) {
  if (IS_OWN.test(mark)) return true;
  const after = text.slice(rest, rest + 40).replace(OPENERS, "");
  if (LOWER.test(after) && !small) return false; // “Stop!” he said.
  if (!ALNUM.test(after) && ".,;:!?…".includes(text[rest])) return false;
  if (!mark.startsWith(".") || mark.startsWith("..")) return true;
  const token = TOKEN.exec(text.slice(Math.max(first, place - 24), place));
  if (!token) return true;
  const word = token[0].toLowerCase();
  const before = text.slice(first, place - token[0].length);
  const next = FIRST.exec(after)?.[0].toLowerCase();
  const starts = next !== undefined && words.starters.includes(next);
  // 1. at the start is the number of an item, and 3. Mai is a date
  if (/^\p{Nd}/u.test(word)) return before.replaceAll(/[([ \t*_–•-]/gu, "") !== "" && !(next && words.months.includes(next));
  if (words.never.includes(word)) return false;
  if (words.before_numbers.includes(word)) {
    const alone = before.replaceAll(/["'“‘«( ]/gu, "") === ""; // “No.” is an answer if it is all there is
    return (alone && word === "no") || !(/^\p{Nd}/u.test(after) || (word !== "no" && !starts));
  }
  if (words.either.includes(word)) return starts && !small;
  if ([...word].length === 1 && (/^\p{Lu}/u.test(token[0]) || small)) return starts && after.length > 1 && after[1] !== "."; // an initial
  return true;
}

/** Cut a text into sentences and what stays between them: together they are the text. @returns {(string|{source: string})[]} */
export function partsOf(/** @type {string} */ text, /** @type {Words} */ words) {
  /** @type {(string|{source: string})[]} */ const parts = [];
  const stay = (/** @type {string} */ more) => {
    if (typeof parts.at(-1) === "string") parts[parts.length - 1] += more;
    else if (more) parts.push(more);
  };
  for (const line of text.match(/[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+$/gu) ?? []) {
    let at = Math.min(FRONT.exec(line)?.[0].length ?? 0, line.trimEnd().length);
    stay(line.slice(0, at));
    const rest = line.slice(at);
    const start = at;
    for (const [first, last] of split(rest, words)) {
      stay(line.slice(at, start + first));
      const source = rest.slice(first, last);
      if (/\p{L}/u.test(source)) parts.push({ source });
      else stay(source);
      at = start + last;
    }
    stay(line.slice(at));
  }
  return parts;
}
