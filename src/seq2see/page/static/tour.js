/** The caption above the bar: a tour in six stops, and claims with their proof. The reader guesses or acts, then the page shows. */

import { askTrace, inside } from "./backend.js";
import { announce, byId, exact, h, number, percent, thousands } from "./dom.js";
import { gatesOf, lookOf, odds, signOf } from "./needs.js";
import { stop as rest } from "./scrubber.js";
import { change, drawnRow, view } from "./state.js";

/** @typedef {import("./data.js").Trace} Trace */
/** @typedef {import("./state.js").View} View */
/** @typedef {(string|Node)[]} Parts */
/**
 * `asks` ends in a question with `choices`; after a guess the view becomes that of `show`, and `then` is said of it. `target` is what the reader should look at.
 * @typedef {{title: string, asks: (trace: Trace) => Parts, choices: string[], set: Partial<View>, show: (trace: Trace) => Partial<View>, then: (trace: Trace) => Parts, target: string}} Stop
 */
/**
 * One sentence, one action, one number. `say` gives what the sentence says of the trace of `set`, and `count` measures the number.
 * @typedef {{title: string, says: (trace: Trace) => Parts, action: string, set: Partial<View>, show: Partial<View>, count: (trace: Trace) => Promise<string>, target: string}} Claim
 */

const PAPER = "https://arxiv.org/abs/1706.03762";
const TEXT = "1845-01-05";
export const ANSWER = "January 5, 1845";
const COPIES = { key: "cross.1.3", layer: 1, head: 3 }; // the head that copies
const LOOKS = { key: "cross.0.2", layer: 0, head: 2 }; // the head that looks at the month when the first letter is written
const [DAY, EIGHT] = [8, 12]; // the steps at which the day and the 8 of the year are written
const [KEY, HYPHEN] = [2, 5]; // the places of that 8 and of the first hyphen in the date
const TEN = [TEXT, "2025-09-03", "1426-08-10", "1999-12-31", "2000-02-29", "1066-10-14", "1789-07-14", "1969-07-20", "3141-05-09", "9876-04-30"];
/** What every stop begins with. @type {Partial<View>} */
export const BASE = { text: TEXT, prefix: [], muted: [], patches: [], against: "", anyway: false, pin: null, drawn: "", zoom: "", step: EIGHT, puzzle: 0, tour: 0, claim: "", shows: "needs", all: false };

const em = (/** @type {string} */ text) => h("em", {}, text);
const gateOf = (/** @type {Trace} */ trace, /** @type {string} */ key) => /** @type {import("./needs.js").Gate} */ (gatesOf(trace).find((gate) => gate.key === key));
/** Where a token of the source stands behind the sign that a head looks at most, with its share. */
const looking = (/** @type {Trace} */ trace, /** @type {string} */ key, /** @type {number} */ step) => lookOf(trace, gateOf(trace, key), step);
/** The probability that a letter keeps without a gate. */
const kept = (/** @type {Trace} */ trace, /** @type {string} */ key, /** @type {number} */ step) => odds(Math.exp(trace.steps[step].log_probability - trace.fall(key, step)));
/** How many characters of an answer are other than those of the right one. */
const wrong = (/** @type {string} */ output) => [...output.padEnd(ANSWER.length)].filter((letter, place) => letter !== ANSWER[place]).length;
const drawnOn = (/** @type {number} */ s, length = TEXT.length + 2) => `${COPIES.layer}.${COPIES.head}.${DAY}~${Array.from({ length }, (_, at) => (at === s ? 1000 : 0)).join("~")}`;

/** @type {Stop[]} */
export const STOPS = [
  {
    title: "It writes one letter after the other", target: `[data-gate="${COPIES.key}"]`,
    asks: () => ["This is a ", h("a", { href: PAPER, target: "_blank", rel: "noreferrer" }, "Transformer"), ". It has read a date and written ", em("January 5, 1"), ". Which character of the date does it need to go on?"],
    choices: ["1", "8", "5"], set: { step: EIGHT - 1, shows: "looks" }, show: () => ({ step: EIGHT, shows: "needs" }),
    then: (trace) => [`The ${signOf(trace.source[looking(trace, COPIES.key, EIGHT).token].token)}: gate ${COPIES.head} of layer ${COPIES.layer} fetches it. With that gate closed, the 8 falls from ${percent(Math.exp(trace.steps[EIGHT].log_probability))} to ${kept(trace, COPIES.key, EIGHT)}.`],
  },
  {
    title: "To look is not to need", target: `[data-gate="${LOOKS.key}"]`,
    asks: (trace) => [`Its first letter is J, and head ${LOOKS.head} of layer ${LOOKS.layer} looks at the month’s 1 with ${percent(looking(trace, LOOKS.key, 0).share)} of its attention. Would the J be lost without that head?`],
    choices: ["Yes", "No"], set: { step: 0, shows: "looks" }, show: () => ({ shows: "needs" }),
    then: (trace) => [`No: without it J keeps ${kept(trace, LOOKS.key, 0)}. Without head ${COPIES.head} of layer ${COPIES.layer} it falls to ${kept(trace, COPIES.key, 0)}. Thick blue threads say where it looks, red ones what it needs.`],
  },
  {
    title: "What is written can be enough", target: ".wrote",
    asks: () => ["It has written ", em("Janu"), ". What does it need for the next letter?"],
    choices: ["The date", "Only what it has written"], set: { step: 3 }, show: () => ({ step: 4 }),
    then: (trace) => [`Only what it has written: with all gates to the date closed at once, a keeps ${kept(trace, "cross", 4)}. The red threads come from the left, where it looks back.`],
  },
  {
    title: "It reads what it has written", target: ".candidates",
    asks: (trace) => [`J has ${percent(trace.steps[0].top[0].probability)}. We make it write M instead. How will it go on?`],
    choices: ["Manuary 5, 1845", "March 5, 1845", "January 5, 1845"], set: { step: 0 }, show: (trace) => ({ prefix: [trace.steps[0].top.find(({ token }) => token === "M")?.id ?? 0], step: 1 }),
    then: (trace) => [`“${trace.output}”: it reads its own M, and goes on from there. What was forced is underlined in the bar.`],
  },
  {
    title: "Attention is arithmetic", target: ".drawable",
    asks: () => [`What head ${COPIES.head} of layer ${COPIES.layer} seeks is a list of numbers, q; what each character offers is another, k. Which k fits best when the 8 is to be written?`],
    choices: ["That of the 1", "That of the 8", "That of the hyphen"], set: { step: EIGHT }, show: () => ({ zoom: `${COPIES.layer}.${COPIES.head}.${KEY}` }),
    then: (trace) => [`That of the 8: its match becomes a share of ${percent(looking(trace, COPIES.key, EIGHT).share)}. Every number is the model’s own. Pull a bar, and see what it would write.`],
  },
  {
    title: "Your guess", target: "#answer",
    asks: () => [`Close head ${COPIES.head} of layer ${COPIES.layer}, which fetched the 8: what will happen?`],
    choices: ["Only the 8 goes wrong", "The month goes wrong too", "Nothing"], set: { step: EIGHT }, show: () => ({ muted: [COPIES.key] }),
    then: (trace) => [trace.json.muted.length ? `“${trace.output}”: ${wrong(trace.output)} of ${ANSWER.length} characters are other ones, since it fetched the J and the 1 as well. ` : "", inside ? "Now type a date of your own, " : "Now type a date of your own and press Enter, ",
      h("button", { type: "button", className: "link", onclick: () => { goToStop(0); byId("learn-start").click(); } }, "train it from nothing"), ", or go on with ", h("button", { type: "button", className: "link", onclick: () => byId("puzzle-start").click() }, "the puzzles"), ": which head could you close unnoticed?"],
  },
];

/** How many of some requests are answered as the model itself answers. @returns {Promise<number>} */
async function counted(/** @type {any[]} */ requests, /** @type {(found: any, n: number) => boolean|Promise<boolean>} */ isRight) {
  let count = 0;
  for (const [n, request] of requests.entries()) count += Number(await isRight(await askTrace({ model: view.model, names: [], ...request }), n));
  return count;
}

/** @type {Record<string, Claim>} */
export const CLAIMS = {
  need: {
    title: "Attention is not need", target: `[data-gate="${LOOKS.key}"]`, set: { step: 0, shows: "looks" }, show: { muted: [LOOKS.key], shows: "needs" }, action: "Close it",
    says: (trace) => [`To write J, head ${LOOKS.head} of layer ${LOOKS.layer} looks at the month’s 1 with ${percent(looking(trace, LOOKS.key, 0).share)} of its attention, and the J does not need it.`],
    count: async () => {
      const [closed] = [await askTrace({ model: view.model, names: [], input: TEXT, effects: [LOOKS.key, COPIES.key] })];
      return `Without it the log-probability of J falls by ${number(closed.effects[LOOKS.key][0], 3)}; without head ${COPIES.head} of layer ${COPIES.layer} by ${number(closed.effects[COPIES.key][0], 2)}.`;
    },
  },
  copy: {
    title: "This head copies the day", target: `[data-gate="${COPIES.key}"]`, set: { step: DAY }, show: { drawn: drawnOn(KEY), zoom: `${COPIES.layer}.${COPIES.head}.${KEY}` }, action: "Make it look at the 8",
    says: () => [`When the day is written, head ${COPIES.head} of layer ${COPIES.layer} looks at a digit, and that digit is what the model writes.`],
    count: async (trace) => {
      const digits = trace.source.flatMap(({ token }, s) => (/^\d$/.test(token) ? [s] : []));
      const right = await counted(digits.map((s) => ({ input: TEXT, drawn: drawnRow(drawnOn(s)) })), ({ steps }, n) => steps[DAY]?.token === trace.source[digits[n]].token);
      return `It writes the digit that the head is made to look at for ${right} of the ${digits.length} digits of the date.`;
    },
  },
  place: {
    title: "Positions alone carry the hyphen", target: ".reads.text", set: {}, show: { patches: [`encoder.embedding.scaled~-1~${HYPHEN}~-1~1`], against: TEXT }, action: "Put the first digit there",
    says: () => ["Give the first hyphen the vector of the year’s first digit, and leave it only its place: the answer stays right."],
    count: async () => {
      /** @type {string[]} */ const own = [];
      await counted(TEN.map((input) => ({ input })), ({ output }) => Boolean(own.push(output)));
      const right = await counted(TEN.map((input) => ({ input, patches: [{ input, name: "encoder.embedding.scaled", head: -1, row: HYPHEN, col: -1, fromRow: 1 }] })), ({ output }, n) => output === own[n]);
      return `${right} of ten dates are answered as before.`;
    },
  },
};

let last = ""; // what was shown last
let guess = -1;
let told = ""; // the number of a claim, once it is measured
let replaced = ""; // the text that has replaced another one in the field

/** What a stop shows. @returns {Partial<View>} */
export const viewOf = (/** @type {number} */ stop) => ({ ...BASE, ...STOPS[stop - 1].set, tour: stop });
/** What a claim shows. @returns {Partial<View>} */
export const claimView = (/** @type {string} */ claim) => ({ ...BASE, ...CLAIMS[claim].set, claim });

/** Note that a text is about to replace the one in the field. */
export function noteText(/** @type {string} */ text) {
  replaced = view.text && text !== view.text ? text : "";
}

/** Say that the date was replaced, as long as it stands there. */
export const noted = () => (replaced && replaced === view.text ? h("p", { className: "noted" }, `The date above is now ${replaced}.`) : "");

/** Go to a stop; 0 ends the tour. What still plays would run on to another step. */
export function goToStop(/** @type {number} */ stop) {
  rest();
  noteText(stop ? TEXT : view.text);
  if (stop === view.tour) last = ""; // it begins again
  change(stop ? viewOf(stop) : { tour: 0, claim: "", muted: [], prefix: [], patches: [], against: "", drawn: "", zoom: "", shows: "needs" });
  if (stop) scrollTo(0, 0);
  else byId("text").focus({ preventScroll: true });
}

/** Let what is spoken of pulse. */
function pulse(/** @type {string} */ selector) {
  for (const each of document.querySelectorAll(".pulses")) each.classList.remove("pulses");
  document.querySelector(selector)?.classList.add("pulses");
}

const button = (/** @type {string} */ name, /** @type {string} */ text, /** @type {() => void} */ act, more = {}) => h("button", { type: "button", className: `quiet ${name}`, onclick: act, ...more }, text);

/** What the caption holds at a stop. */
function stopParts(/** @type {Trace} */ trace, /** @type {Stop} */ stop) {
  const end = view.tour === STOPS.length;
  const done = guess >= 0;
  const choose = (/** @type {number} */ n) => () => {
    guess = n;
    change(stop.show(trace));
    showTour(trace);
    byId("tour").querySelector(".next")?.focus({ preventScroll: true });
  };
  return [
    h("p", { className: "count" }, `${view.tour} of ${STOPS.length}`),
    h("p", { className: done ? "task done" : "asks" }, h("h2", { id: "tour-title" }, stop.title), noted(), " ", ...(done ? [`You said: ${stop.choices[guess]}. `, ...stop.then(trace)] : stop.asks(trace))),
    h("div", { className: "ways" }, ...(done ? [] : stop.choices.map((text, n) => button("guess", text, choose(n)))),
      done && (end ? button("next", "End", () => goToStop(0)) : button("next", "Next", () => goToStop(view.tour + 1))), button("back", "Back", () => goToStop(view.tour - 1), { disabled: view.tour === 1 }),
      h("button", { type: "button", className: "link skip-tour", onclick: () => goToStop(0) }, "Leave the tour")),
  ];
}

/** What the caption holds for a claim. */
function claimParts(/** @type {Trace} */ trace, /** @type {Claim} */ claim) {
  const act = async () => {
    guess = 0;
    change(claim.show);
    const mine = view.claim;
    const found = await claim.count(trace).catch((/** @type {Error} */ { message }) => message);
    if (mine !== view.claim) return;
    told = found;
    announce(found);
    showTour(trace);
  };
  const others = Object.keys(CLAIMS);
  const next = others[(others.indexOf(view.claim) + 1) % others.length];
  return [
    h("p", { className: "asks" }, h("h2", { id: "tour-title" }, `${claim.title}.`), " ", ...claim.says(trace)), h("p", { className: "task done" }, told || (guess < 0 ? "" : "…")),
    h("div", { className: "ways" }, guess < 0 && button("next", claim.action, act), button("other", "Another claim", () => change(claimView(next))), h("button", { type: "button", className: "link skip-tour", onclick: () => goToStop(0) }, "To the page")),
  ];
}

/** Show the stop or the claim of the view, or nothing. */
export function showTour(/** @type {Trace} */ trace) {
  const card = byId("tour");
  const [stop, claim] = [STOPS[view.tour - 1], CLAIMS[view.claim]];
  card.hidden = !stop && !claim;
  document.body.classList.toggle("touring", !card.hidden);
  const mine = `${view.tour}${view.claim}`;
  const moved = mine !== last;
  if (moved) [guess, told, last] = [-1, "", mine];
  if (card.hidden) return pulse("no-such-element");
  const held = card.contains(document.activeElement) ? document.activeElement?.className : null;
  card.replaceChildren(...(stop ? stopParts(trace, stop) : claimParts(trace, claim)).filter((each) => each instanceof Node));
  if (held) /** @type {HTMLElement|null} */ (card.querySelector(`[class="${held}"]`))?.focus({ preventScroll: true });
  if (guess >= 0 || claim) pulse(stop ? stop.target : claim.target);
  else pulse("no-such-element");
  if (!moved) return undefined;
  announce(card.querySelector("p:not(.count)")?.textContent ?? "");
  if (!card.contains(document.activeElement) && document.activeElement?.id !== "text") card.querySelector("button")?.focus({ preventScroll: true });
  return undefined;
}

/** The gallery of claims: a button each. */
export const gallery = () => Object.entries(CLAIMS).map(([name, { title }]) => h("button", { type: "button", className: "link", onclick: () => {
  rest();
  scrollTo(0, 0);
  change(claimView(name));
} }, title));
