/** The tour: a few stops over the page as it is, for a reader who has never seen a Transformer. */

import { attention } from "./data.js";
import { inside } from "./backend.js";
import { announce, byId, h, thousands } from "./dom.js";
import { play, stop as rest } from "./scrubber.js";
import { change, view } from "./state.js";

/** @typedef {import("./data.js").Trace} Trace */
/** @typedef {import("./state.js").View} View */
/** @typedef {{title: string, says: (trace: Trace, model: import("./figure.js").Network) => (string|Node)[], set: Partial<View>, at: string, spot?: string, plays?: [number, number]}} Stop  at: the panel; spot: what is marked in it */

const PAPER = "https://arxiv.org/abs/1706.03762";
const HEAD = /** @type {const} */ ({ kind: "cross", layer: 1, head: 3 }); // it copies
const KEY = `${HEAD.kind}.${HEAD.layer}.${HEAD.head}`;
const WEIGHTS = `${attention(HEAD.kind, HEAD.layer)}.weights`;
/** What every stop begins with. @type {Partial<View>} */
const BASE = { text: "1845-01-05", prefix: [], muted: [], patches: [], against: "", anyway: false, pin: null, box: "", step: 0, beam: 3, ...HEAD };

const percent = (/** @type {number} */ share) => `${Math.round(100 * share)} %`;
/** The share that the head gives to a source token at a step. */
const share = (/** @type {Trace} */ trace, /** @type {number} */ step, /** @type {number} */ key) => percent(trace.matrix(WEIGHTS, HEAD.head).at(step, key));
const em = (/** @type {string} */ text) => h("em", {}, text);

/** @type {Stop[]} */
export const STOPS = [
  {
    title: "A date goes in, words come out",
    says: (_, model) => ["This is a Transformer, the network of ", h("a", { href: PAPER, target: "_blank", rel: "noreferrer" }, "Attention Is All You Need"), `. It is tiny: ${thousands(model.parameters)} numbers, and every one of them can be looked at below.`, " Nobody told it what a month is. It saw pairs of dates and words, and found out. Here it writes ", em("January 5, 1845"), ", one character after the other."],
    set: {}, at: "", spot: "#scrub", plays: [0, 15],
  },
  {
    title: "To write, it looks back at what it read",
    says: () => ["It has written ", em("January 5, 1"), " and must write the next digit of the year. So it looks at the date again. Each little map is one ", em("head"), ": a pair of eyes. A row is a moment of writing, a column is a character of the date, and the darker the square, the longer the look."],
    set: { step: 12 }, at: "cross", spot: `[data-head="${KEY}"]`,
  },
  {
    title: "This head copies",
    says: (trace) => ["Follow the line while the year is written. To write 8, this head spends ", share(trace, 12, 2), " of its look on the 8 of the date; to write 4, ", share(trace, 13, 3), " on the 4. To begin with J, it looks at the month, ", share(trace, 0, 7), " at its 1. Where there is nothing to fetch, inside ", em("January"), ", it rests on the end of the text. Nobody gave it this task either."],
    set: { step: 12 }, at: "head", spot: "#head .arcs", plays: [11, 14],
  },
  {
    title: "A look is arithmetic",
    says: (trace) => ["Here is one look, worked out. What the head seeks is a ", em("query"), ", four numbers; what each character offers is a ", em("key"), ", four numbers. Multiply them pair by pair and add up: the better they match, the higher the score. Softmax turns the scores into shares that sum to 1; the 8 gets ", share(trace, 12, 2), ". In these shares the head mixes what the characters carry, and hands the mixture on. Point at any square of this page, and it explains itself like this one."],
    set: { step: 12, pin: { name: WEIGHTS, head: HEAD.head, row: 12, col: 2 } }, at: "head", spot: "#arithmetic",
  },
  {
    title: "Switch it off",
    says: (trace) => ["Now this one head is off, and all others are as before. The answer becomes ", em(trace.output), ". The form is still right: a month, a day, a comma, a year. But the month and the first two digits of the year are wrong: this head used to fetch them, and now they are guessed. The day and the last two digits still come, through other heads. That is what a head does: it fetches, from the right place, what the next character needs."],
    set: { muted: [KEY], step: 12 }, at: "cross", spot: `[data-head="${KEY}"]`,
  },
  {
    title: "What else might have come",
    says: (trace) => ["The head is on again. At each step the model gives a probability to every character it knows; here ", em(trace.steps[0]?.token ?? ""), " has nearly all of it. Choose another, say O, and the model must go on from there: ", em("October 5, 1845"), ", a month that begins with O, and the rest as before."],
    set: { step: 0 }, at: "probabilities", spot: "#probabilities .bars",
  },
  {
    title: "Several beginnings at once",
    says: () => ["The likeliest character now may lead to a worse answer later. A beam search keeps a few beginnings open and compares whole answers. The number below each beginning says how likely it is: 0 is certain, and each 2.3 below it is ten times less likely. A box is an answer that has ended; its number takes its length into account. This model is so sure that the others fall far behind. Follow any branch to see all panels change."],
    set: {}, at: "beams", spot: "#beams .beams",
  },
  {
    title: "Your turn",
    says: () => ["Type a date of your own: ", inside ? "the model runs in this page and answers while you type" : "press Enter, and every panel answers", ". Then switch heads off until you find the one that writes the day. Or try 2000-02-30, a day that does not exist, and see what the model makes of it."],
    set: {}, at: "", spot: "#ask",
  },
];

let last = 0; // the stop that was shown last

/** What a stop shows. @returns {Partial<View>} */
export const viewOf = (/** @type {number} */ stop) => ({ ...BASE, ...STOPS[stop - 1].set, tour: stop });

/** Go to a stop; 0 ends the tour. What still plays would run on to another step. */
export function goToStop(/** @type {number} */ stop) {
  const ended = view.tour === STOPS.length && stop === 0;
  rest();
  change(stop ? viewOf(stop) : { tour: 0, muted: [], pin: null });
  if (stop) byId("tour").querySelector(".next")?.focus({ preventScroll: true });
  else if (ended) byId("text").focus();
}

/** In the card the arrows turn its pages; elsewhere they move through the answer. */
function turn(/** @type {KeyboardEvent} */ event) {
  const to = view.tour + ({ ArrowLeft: -1, ArrowRight: 1 }[event.key] ?? 0);
  if (to === view.tour) return;
  event.preventDefault();
  event.stopPropagation();
  if (to >= 1 && to <= STOPS.length) goToStop(to);
}

const still = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

/** Scroll to what a stop is about, and mark it. */
function point(/** @type {Stop} */ { at, spot, plays }) {
  const go = (/** @type {ScrollBehavior} */ behavior) => {
    const target = spot ? document.querySelector(spot) : null;
    for (const old of document.querySelectorAll(".spot")) if (old !== target) old.classList.remove("spot");
    target?.classList.add("spot");
    const place = at && target && byId(at).contains(target) ? target : at ? byId(at) : document.body;
    scrollTo({ top: place === document.body ? 0 : place.getBoundingClientRect().top + scrollY - byId("scrub").offsetHeight - 90, behavior });
  };
  go(still() ? "auto" : "smooth");
  stay(() => go("auto"));
  if (plays && !still()) play(...plays);
}

const SETTLING = 4000; // milliseconds in which panels above may still grow
const ARRIVED = 800; // milliseconds after which a smooth scroll has ended

/** Keep the place for a while although panels above it are filled later, unless the reader moves. */
function stay(/** @type {() => void} */ again) {
  const began = performance.now();
  let over = false;
  const look = () => !over && performance.now() - began > ARRIVED && again();
  const eyes = new ResizeObserver(look);
  eyes.observe(byId("flow"));
  setTimeout(look, ARRIVED + 50);
  const end = () => {
    over = true;
    eyes.disconnect();
  };
  setTimeout(end, SETTLING);
  for (const kind of ["wheel", "touchstart", "pointerdown", "keydown"]) addEventListener(kind, end, { once: true, passive: true });
}

/** Show the stop of the view, or nothing. */
export function showTour(/** @type {Trace} */ trace, /** @type {import("./figure.js").Network} */ model) {
  const card = byId("tour");
  const stop = STOPS[view.tour - 1];
  card.hidden = !stop;
  card.onkeydown = turn;
  document.body.classList.toggle("touring", Boolean(stop));
  if (!stop) {
    last = 0;
    for (const old of document.querySelectorAll(".spot")) old.classList.remove("spot");
    return;
  }
  const moved = last !== view.tour;
  const held = card.contains(document.activeElement) ? document.activeElement?.className : null;
  const button = (/** @type {string} */ name, /** @type {string} */ text, /** @type {number} */ to) => h("button", { type: "button", className: `quiet ${name}`, disabled: to < 0, onclick: () => goToStop(to) }, text);
  const end = view.tour === STOPS.length;
  card.replaceChildren(
    h("p", { className: "count" }, `${view.tour} of ${STOPS.length}`), h("h2", { id: "tour-title" }, stop.title), h("p", {}, ...stop.says(trace, model)),
    h("div", { className: "ways" }, button("back", "Back", view.tour > 1 ? view.tour - 1 : -1), button("next", end ? "Start" : "Next", end ? 0 : view.tour + 1), !end && h("button", { type: "button", className: "link skip-tour", onclick: () => goToStop(0) }, "Skip the tour")));
  if (held) /** @type {HTMLElement|null} */ (card.querySelector(`[class="${held}"]`))?.focus({ preventScroll: true });
  document.documentElement.style.setProperty("--tour", `${card.offsetHeight}px`);
  last = view.tour;
  if (!moved) return;
  announce(`${stop.title}. ${card.querySelectorAll("p")[1].textContent}`);
  requestAnimationFrame(() => setTimeout(() => view.tour === last && point(stop), 60)); // the panels near it are filled first
}
