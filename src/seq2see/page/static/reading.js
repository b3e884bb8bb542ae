/**
 * How a text is prepared for a model, and which texts a model was made for: the rules of answering/answerer.py. A text that is
 * refused may be shown to the model all the same.
 */

/** @typedef {import("./tokenizer.js").Tokenizer} Tokenizer */

const BLANKS = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"; // as in Python
const WHITE = new RegExp(`[${BLANKS}]+`, "u");

/** White space folded: each run is one space, with none at the ends. */
export const spaced = (/** @type {string} */ text) => text.split(WHITE).filter(Boolean).join(" ");

/** Write a text in Unicode NFC, white space folded: texts are trained on in this form. */
export const fold = (/** @type {string} */ text) => spaced(text.normalize("NFC"));

const DIGIT = /^\p{Nd}$/u;
/** Digits that Unicode does not count among the decimal ones: the first of each run, its value, and how many there are. */
const OTHER_DIGITS = [[0x1369, 1, 9], [0x19da, 1, 1], [0x24f5, 1, 9], [0x24ff, 0, 1], [0x2776, 1, 9], [0x2780, 1, 9], [0x278a, 1, 9], [0x10a40, 1, 4], [0x10e60, 1, 9], [0x11052, 1, 9]];

/** What a character of a date becomes: a digit 0 to 9, nothing if it is invisible, or itself. */
function plain(/** @type {string} */ letter) {
  if (letter <= "\x7f") return letter;
  if (/^\p{Cf}$/u.test(letter)) return "";
  const code = /** @type {number} */ (letter.codePointAt(0));
  if (DIGIT.test(letter)) {
    let zero = code; // Unicode has decimal digits in runs of ten
    while (DIGIT.test(String.fromCodePoint(zero - 1))) zero -= 1;
    return String((code - zero) % 10);
  }
  const run = OTHER_DIGITS.find(([first, , many]) => code >= first && code < first + many);
  return run ? String(code - run[0] + run[1]) : letter;
}

const LONGEST_DATE = 80; // characters

/** Write a date as `human-dates` reads it: lower case, digits 0 to 9, no invisible marks, white space folded. */
export const foldDate = (/** @type {string} */ text) => spaced([...[...text].slice(0, 4 * LONGEST_DATE).join("").normalize("NFKC").toLowerCase()].map(plain).join("").normalize("NFC"));

/** Signs that mean the same, as keyboards and word processors write them. @type {Record<string, string>} */
const SAME = { ...same("’‘‛\x60´ʼ′", "'"), ...same("“”„‟«»″", '"'), ...same("‐‑‒–—―−", "-"), "…": "...", "'": "’", '"': "”", "-": "–" };

function same(/** @type {string} */ signs, /** @type {string} */ as) {
  return Object.fromEntries([...signs].map((sign) => [sign, as]));
}

/** Whether a character is a mark that combines with the one before: such marks are sorted, a light one before a heavy one. */
const combines = (/** @type {string} */ mark) => `${mark}\u0334`.normalize("NFD") !== `${mark}\u0334` || `\u0345${mark}`.normalize("NFD") !== `\u0345${mark}`;

/** A text without accents and other marks. */
export const withoutAccents = (/** @type {string} */ text) => [...text.normalize("NFKD")].filter((mark) => !combines(mark)).join("").normalize("NFC");

/** Other ways to write a character, the nearest first. */
function others(/** @type {string} */ letter) {
  const compatible = letter.normalize("NFKC");
  return [letter, compatible, withoutAccents(compatible), SAME[letter] ?? letter]
    .flatMap((one) => [one, one.toLowerCase(), one.toUpperCase(), one.toUpperCase().toLowerCase()]);
}

/** Write characters or symbols that a model has never seen in those that it knows; others stay as they are. */
function foldUnknown(/** @type {Tokenizer} */ tokenizer, /** @type {string} */ text) {
  const known = (/** @type {string} */ some) => tokenizer.parts(some).every((part) => tokenizer.ids.has(part));
  if (!tokenizer.lookedUp || tokenizer.unknown !== undefined || known(text)) return text;
  return tokenizer.parts(text).map((part) => (known(part) ? part : (others(part).find(known) ?? part))).join(tokenizer.separator);
}

const FEATURE = /^ <[^<>\s]+>$/u;
const NAME_OR_BRACKET = new RegExp(`[^;,|()${BLANKS}]+|[()]`, "gu");

/** Write a word and the features that follow it after tabs as one text: walk, V;PST become walk <V> <PST>. */
function withFeatures(/** @type {string} */ text) {
  const [word, ...cells] = text.split("\t");
  const names = cells.flatMap((cell) => cell.match(NAME_OR_BRACKET) ?? []);
  return word + names.map((name) => ` <${name.replaceAll("<", "‹").replaceAll(">", "›")}>`).join("");
}

/** Return a text as a model reads it. */
export function prepared(/** @type {string} */ task, /** @type {Tokenizer} */ tokenizer, /** @type {string} */ text) {
  if (task === "dates") return text;
  if (task === "human-dates") return foldDate(text);
  if (task === "imported") return foldUnknown(tokenizer, text);
  const features = text.includes("\t") && tokenizer.names.some((name) => FEATURE.test(name));
  return foldUnknown(tokenizer, fold(features ? withFeatures(text) : text));
}

/** Say why a model was not made for a text, or nothing. */
export function faultOf(/** @type {string} */ task, /** @type {string} */ text) {
  if (task === "dates") return dateFault(text);
  if (task !== "human-dates") return "";
  if (!spaced(text)) return "The line is empty: a date was expected, such as 5 January 1845.";
  return [...text].length > LONGEST_DATE ? `‘${text.slice(0, 40)}…’ is too long for a date: at most ${LONGEST_DATE} characters are read.` : "";
}

export const MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];
const EXPECTED = "an ISO date of the years 1000 to 9999 was expected, such as 1845-01-05";

/** Say why a text is no date, or nothing. */
export function dateFault(/** @type {string} */ text) {
  if (!spaced(text)) return `The line is empty: ${EXPECTED}.`;
  const parts = /^([0-9]{4})-([0-9]{2})-([0-9]{2})$/.exec(text);
  if (!parts) return `‘${text.slice(0, 40)}’ ${formFault(text)}: ${EXPECTED}.`;
  const [year, month, day] = parts.slice(1).map(Number);
  if (year < 1000) return `‘${text}’ is of the year ${year}: ${EXPECTED}.`;
  if (month < 1 || month > 12) return `‘${text}’ has a month ${parts[2]}, but months go from 01 to 12: ${EXPECTED}.`;
  const last = new Date(Date.UTC(year, month, 0)).getUTCDate();
  return day >= 1 && day <= last ? "" : `‘${text}’ does not exist, ${MONTHS[month - 1]} ${year} has ${last} days: ${EXPECTED}.`;
}

function formFault(/** @type {string} */ text) {
  if (text.length > 40) return "is too long";
  if (new RegExp(`^${WHITE.source}|${WHITE.source}$`, "u").test(text)) return "has white space around it";
  if (/^[0-9]{4}[^0-9][0-9]{2}[^0-9][0-9]{2}$/.test(text)) return `has ‘${text[4]}’ between its parts instead of ‘-’`;
  if (/^[0-9]+-[0-9]+-[0-9]+$/.test(text)) return `has ${text.split("-").map((part) => part.length).join("-")} digits instead of 4-2-2`;
  return "is not of the form YYYY-MM-DD";
}
