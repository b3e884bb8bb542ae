/** The tour: a short story in five stops about the flight above, for a reader who has never seen a Transformer. At each stop the reader acts. */

import { attention } from "./data.js";
import { inside } from "./backend.js";
import { announce, byId, exact, h, percent, thousands } from "./dom.js";
import { play, stop as rest } from "./scrubber.js";
import { change, view } from "./state.js";
import { term } from "./terms.js";

/** @typedef {import("./data.js").Trace} Trace */
/** @typedef {import("./state.js").View} View */
/**
 * `act` is what the reader is asked to do, `done` whether it was done, `then` what is said after that.
 * @typedef {{title: string, says: (trace: Trace, model: import("./figure.js").Network) => (string|Node)[], act: (trace: Trace) => (string|Node)[], done: (trace: Trace) => boolean, then: (trace: Trace) => (string|Node)[], set: Partial<View>, plays?: [number, number]}} Stop
 */

const PAPER = "https://arxiv.org/abs/1706.03762";
const TEXT = "1845-01-05";
const ANSWER = "January 5, 1845";
const [STEP, KEY] = [12, 2]; // the moment at which the 8 of the year is written, and the place of the 8 in the date
/** What every stop begins with. @type {Partial<View>} */
export const BASE = { text: TEXT, prefix: [], muted: [], patches: [], against: "", anyway: false, pin: null, box: "", drawn: "", zoom: "", step: STEP, puzzle: 0 };

const em = (/** @type {string} */ text) => h("em", {}, text);

/** The head that looks most at the 8 while it is written, and how much. */
function fetcher(/** @type {Trace} */ trace) {
  let best = { layer: 0, head: 0, share: 0 };
  for (let layer = 0; layer < trace.layers("cross"); layer += 1) {
    for (let head = 0; head < trace.heads; head += 1) {
      const share = trace.matrix(`${attention("cross", layer)}.weights`, head).at(Math.min(STEP, trace.steps.length - 1), KEY);
      if (share > best.share) best = { layer, head, share };
    }
  }
  return best;
}

/** How many characters of an answer are other than those of the right one. */
const wrong = (/** @type {string} */ output) => [...output.padEnd(ANSWER.length)].filter((letter, place) => letter !== ANSWER[place]).length;

/** @type {Stop[]} */
export const STOPS = [
  {
    title: "It writes, and looks back",
    says: (_, model) => ["This is a Transformer, the network of ", h("a", { href: PAPER, target: "_blank", rel: "noreferrer" }, "Attention Is All You Need"), `, with only ${thousands(model.parameters)} numbers in it. Nobody told it what a month is: it has seen pairs of dates and words. It writes one character after the other. For each, threads run from the date it has read, the thicker the more it looks there.`],
    act: () => ["Fly to the moment at which the year’s 8 is written: choose the ", em("8"), " in the row of the answer, or drag the slider."],
    done: () => view.step === STEP, then: (trace) => [`The thickest thread from the 8 of the date leads to head ${fetcher(trace).head} of layer ${fetcher(trace).layer}: it looks there with ${percent(fetcher(trace).share)} of its attention.`],
    set: { step: 0 }, plays: [0, 11],
  },
  {
    title: "A head is a gate",
    says: (trace) => {
      const { layer, head, share } = fetcher(trace);
      const open = view.muted.length ? "" : ` To write 8, head ${head} of layer ${layer} spends ${percent(share)} of its attention on the 8.`;
      return ["Each gate is a ", em("head"), `: it looks somewhere and lets through what it finds there.${open} Below, everything merges into one `, term("vector"), ", and its bars become the next character."];
    },
    act: (trace) => [`Close gate ${fetcher(trace).head} of layer ${fetcher(trace).layer}, and watch the answer.`],
    done: () => view.muted.length > 0,
    then: (trace) => [wrong(trace.output) ? `Its threads, dashed, now end there, and the answer becomes “${trace.output}”: ${wrong(trace.output)} of ${ANSWER.length} characters are other ones. What a head fetches is missing without it.` : `The answer is still “${trace.output}”: the other heads make up for this one. Close another.`],
    set: {},
  },
  {
    title: "Attention is arithmetic",
    says: () => ["All gates are open again. What the head seeks is a ", em("query"), ", a few numbers; what each character offers is a ", em("key"), ". The better they match, the higher the score; softmax makes shares of the scores; and in these shares the head mixes what the characters carry."],
    act: () => ["Zoom in: choose the ", em("8"), " in the upper row, or any thread."],
    done: () => view.zoom !== "", then: () => ["From left to right and from top to bottom: query, keys, scores, shares, mixture. Every number is the model’s own."],
    set: {},
  },
  {
    title: "It could have written something else",
    says: (trace) => ["Each character has a probability, and the likeliest is written: here ", em(exact(trace.steps[0]?.top[0].token ?? "")), ". The model reads what it has written as well, so that one other character may change everything after it."],
    act: () => ["Make it begin otherwise: choose another character in the list by the vector."],
    done: () => view.prefix.length > 0, then: (trace) => [`It goes on from there: “${trace.output}”.`],
    set: { step: 0 },
  },
  {
    title: "Your turn",
    says: () => ["Further down are all numbers on the way, and a map that leads to each. Now it is your date: ", inside ? "the model runs in this page and answers as soon as the date is complete." : "press Enter, and everything answers."],
    act: () => ["Type a date of your own, such as your birthday."],
    done: (trace) => trace.json.text !== TEXT, then: (trace) => [`“${trace.output}”, each letter written as you have seen it.`],
    set: {},
  },
];

/** The last words of the tour, and where to go from there. */
const farewell = () => h("p", {}, "That is the tour: a Transformer writes one character after the other, and its heads fetch what each one needs. Go on with ",
  h("button", { type: "button", className: "link", onclick: () => byId("puzzle-start").click() }, "the puzzles"), ", or ",
  h("button", { type: "button", className: "link", onclick: () => { goToStop(0); byId("learn-start").click(); } }, "train it here"), ".");

let last = 0; // the stop that was shown last
let told = false; // whether the reader was told what acting has done

/** What a stop shows. @returns {Partial<View>} */
export const viewOf = (/** @type {number} */ stop) => ({ ...BASE, ...STOPS[stop - 1].set, tour: stop });

let replaced = ""; // the text that has replaced another one in the field

/** Note that a text is about to replace the one in the field. */
export function noteText(/** @type {string} */ text) {
  replaced = view.text && text !== view.text ? text : "";
}

/** Say that the date was replaced, as long as it stands there. */
export const noted = () => (replaced && replaced === view.text ? h("p", { className: "noted" }, `The date above is now ${replaced}.`) : "");

/** Go to a stop; 0 ends the tour. What still plays would run on to another step. */
export function goToStop(/** @type {number} */ stop) {
  const ended = view.tour === STOPS.length && stop === 0;
  rest();
  noteText(stop ? TEXT : view.text);
  change(stop ? viewOf(stop) : { tour: 0, muted: [], prefix: [], drawn: "", zoom: "" });
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

/** Show the stop of the view, or nothing. */
export function showTour(/** @type {Trace} */ trace, /** @type {import("./figure.js").Network} */ model) {
  const card = byId("tour");
  const stop = STOPS[view.tour - 1];
  card.hidden = !stop;
  card.onkeydown = turn;
  if (!stop) {
    last = 0;
    return;
  }
  const moved = last !== view.tour;
  const held = card.contains(document.activeElement) ? document.activeElement?.className : null;
  const button = (/** @type {string} */ name, /** @type {string} */ text, /** @type {number} */ to) => h("button", { type: "button", className: `quiet ${name}`, disabled: to < 0, onclick: () => goToStop(to) }, text);
  const [end, done] = [view.tour === STOPS.length, stop.done(trace)];
  card.replaceChildren(
    h("p", { className: "count" }, `${view.tour} of ${STOPS.length}`), h("h2", { id: "tour-title" }, stop.title), noted(), h("p", {}, ...stop.says(trace, model)),
    h("p", { className: done ? "task done" : "task" }, ...(done ? ["✓ ", ...stop.then(trace)] : stop.act(trace))), end ? farewell() : "",
    h("div", { className: "ways" }, button("back", "Back", view.tour > 1 ? view.tour - 1 : -1), button("next", end ? "End" : "Next", end ? 0 : view.tour + 1), !end && h("button", { type: "button", className: "link skip-tour", onclick: () => goToStop(0) }, "Leave the tour")));
  if (held) /** @type {HTMLElement|null} */ (card.querySelector(`[class="${held}"]`))?.focus({ preventScroll: true });
  if (done && !told && !moved) announce(card.querySelector(".task")?.textContent ?? "");
  told = done;
  last = view.tour;
  if (!moved) return;
  announce([...card.querySelectorAll("h2, p:not(.count)")].map((each) => each.textContent).join(" "));
  card.scrollIntoView({ block: "nearest", behavior: still() ? "auto" : "smooth" });
  if (stop.plays && !still() && !done) play(...stop.plays);
}
