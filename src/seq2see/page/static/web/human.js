/** Interprets an answer of the human-dates model as tasks/human_dates.py does: it is a date, or the reason why there is none. */

import { foldDate, withoutAccents } from "../reading.js";

/** The names of a month, and a pattern that finds them inside other words. @typedef {{names: Set<string>, within: RegExp}} Month */
/** A date in ISO 8601 or the reason why there is none, and all dates that the text may mean. @typedef {{output: string|null, error: string|null, readings: string[]}} Reading */

/** @type {Record<string, string>} */
const REASONS = { "no year": "has no year", "no day": "names no single day", "no date": "is not a date" };
const ORDERS = ["day", "month"];
const LETTER = /[\p{L}\p{Nl}\p{No}]/u;
const WORDS = /[^\s\d!-/:-@[-\x60{-~\u00a1-\u00bf\u2000-\u206f\u3000-\u303f]+/gu;
/** Words in which character recognition has read a letter as a digit: 0ct, n0vember, ju1y. */
const MISREAD = /(?<![\p{L}\p{N}_])(?=[\d_]*[\p{L}\p{Nl}\p{No}](?:[\d_]+[\p{L}\p{Nl}\p{No}])*[\p{L}\p{Nl}\p{No}])(?=[\p{L}\p{Nl}\p{No}_]*\d)[\p{L}\p{N}_]+/gu;
/** @type {Record<string, string>} */
const AS_LETTERS = { 0: "o", 1: "l", 3: "e", 5: "s", 8: "b" };
const TIME = /\d?\d:\d\d(?::\d\d)?/gu;
/** Numbers, including those in which character recognition has read a digit as a letter: l2, 2o20, s. */
const NUMBERS = /(?<![a-zа-я\d])(?:\d[\doоl|izsbg]*|[oоl|izsbg](?:\d[\doоl|izsbg]*)?)(?![a-zа-я])|\d+/gu;

/** Prepare the names of the twelve months. @returns {Month[]} */
export function monthsOf(/** @type {string[][]} */ names) {
  return names.map((some) => {
    // Scripts without capitals may write words without spaces. A full stop or a space within a name may be missing.
    const forms = some.filter((name) => name === name.toUpperCase() || !/^\p{L}+$/u.test(name));
    const written = (/** @type {string} */ name) => [...name].map((sign) => (sign === " " || sign === "." ? "[\\s._-]*" : sign.replace(/[\^$\\.*+?()[\]{}|/-]/u, "\\$&"))).join("");
    return { names: new Set(some), within: new RegExp(forms.map(written).join("|"), "u") };
  });
}

const days = (/** @type {number} */ year, /** @type {number} */ month) => (month === 2 ? ((year % 4 === 0 && year % 100 !== 0) || year % 400 === 0 ? 29 : 28) : [4, 6, 9, 11].includes(month) ? 30 : 31);

/** Interpret an answer of the model. `order` says whether 03/04/2020 begins with the day or the month. @returns {Reading} */
export function readDate(/** @type {Month[]} */ months, /** @type {string} */ text, /** @type {string} */ answer, /** @type {string|undefined} */ order) {
  const shown = `‘${[...text].slice(0, 40).join("")}${[...text].length > 40 ? "…" : ""}’`;
  const refused = (/** @type {string} */ why, /** @type {string[]} */ readings = []) => ({ output: null, error: `${shown} ${why}.`, readings });
  if (REASONS[answer]) return refused(`${REASONS[answer]}: a date was expected, such as 5 January 1845`);
  const readings = answer.split(" or ");
  const parts = readings.map((reading) => /^(\d{4})-(\d{2})-(\d{2})$/.exec(reading));
  if (readings.length > 2 || parts.includes(null)) return refused("could not be read as a date");
  if (readings.length === 2 && !order) return refused(`can be ${readings[0]} (day first) or ${readings[1]} (month first): give the order, day or month`, readings);
  const chosen = readings.length === 2 ? ORDERS.indexOf(/** @type {string} */ (order)) : 0;
  const [year, month, day] = /** @type {RegExpExecArray} */ (parts[chosen]).slice(1).map(Number);
  if (month < 1 || month > 12 || day < 1 || day > days(year, month)) return refused(`would be ${readings[chosen]}, a day that does not exist`);
  if (!namesMonth(months, text, month, day)) return refused(`would be ${readings[chosen]}, but that month is not in the text, neither by a name that is known nor as a number`);
  return { output: readings[chosen], error: null, readings };
}

/** Whether a text mentions a month: by one of its names, or as a number beside the day and the year. */
function namesMonth(/** @type {Month[]} */ months, /** @type {string} */ written, /** @type {number} */ month, /** @type {number} */ day) {
  const folded = foldDate(written);
  if (!LETTER.test(folded)) return true;
  const text = /^[\x00-\x7f]*$/.test(folded) ? folded : withoutAccents(folded);
  const { names, within } = months[month - 1];
  const words = [...(text.match(WORDS) ?? []), ...(text.match(MISREAD) ?? []).map((word) => word.replaceAll(/[01358]/g, (digit) => AS_LETTERS[digit]))];
  if (words.some((word) => names.has(word)) || within.test(text)) return true;
  const numbers = text.replaceAll(TIME, " ").match(NUMBERS) ?? [];
  const whole = numbers.filter((number) => /^\d+$/.test(number));
  if (whole.some((number) => number.length >= 6)) return true; // 20240229
  const here = whole.filter((number) => Number(number) === month).length;
  if (numbers.length >= 3 && (whole.length < numbers.length || here > Number(month === day))) return true;
  return words.some((word) => [...names].some((name) => resembles([...word], [...name])));
}

const single = (/** @type {string[]} */ letters) => letters.join("").replaceAll(/(.)\1/gu, "$1");
const same = (/** @type {string[]} */ a, /** @type {string[]} */ b) => a.length === b.length && a.every((letter, n) => letter === b[n]);

/** Whether a word is an abbreviated name, or a name with one mistake: a missing, additional or different letter, or two swapped ones. */
function resembles(/** @type {string[]} */ word, /** @type {string[]} */ name) {
  if (word.length >= 3 && same(word, name.slice(0, word.length))) return true; // Decemb.
  if (name.length >= 5 && word.join("").includes(name.join(""))) return true; // a space is missing
  if (Math.abs(word.length - name.length) > 1) return false;
  if (word.length > name.length && single(word) === single(name)) return true;
  if (name.length < 3) return false;
  let first = 0;
  while (first < Math.min(word.length, name.length) && word[first] === name[first]) first += 1;
  const [a, b] = [word.slice(first), name.slice(first)];
  if (same(a.slice(0, 2), b.slice(0, 2).reverse()) && same(a.slice(2), b.slice(2))) return true;
  return name.length >= 4 && (same(a.slice(1), b.slice(1)) || same(a.slice(1), b) || same(a, b.slice(1)));
}
