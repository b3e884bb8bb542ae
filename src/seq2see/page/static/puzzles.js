/** Twelve puzzles on the live page, the first eleven in the order of the lessons. The reader acts, and the page checks the numbers. */

import { askTrace, isTrained } from "./backend.js";
import { Trace, attention, place } from "./data.js";
import { announce, byId, h, number, percent } from "./dom.js";
import { stop as rest } from "./scrubber.js";
import { goTo } from "./section.js";
import { BEAMS, change, drawnRow, view } from "./state.js";
import { BASE, noted, noteText } from "./tour.js";

/** Whether a puzzle is solved, and the message about a wrong attempt. @typedef {{solved: boolean, says?: string}} Judgement */
/**
 * `asks` is the puzzle in one sentence, `where` the panel in which the reader acts, `choices` what may be answered, `then` is said when it is solved, and `solution` finds a view that solves it, or acts.
 * @typedef {{topic: string, asks: string, hint: string, then: (trace: Trace) => string, set: Partial<import("./state.js").View>, where?: string, choices?: string[], solution: (trace: Trace) => Partial<import("./state.js").View>|void|Promise<Partial<import("./state.js").View>|void>, judge: (trace: Trace, chosen: string) => Judgement|Promise<Judgement>}} Puzzle
 */

const TEXT = "1845-01-05";
const ANSWER = "January 5, 1845";
const OTHER = "1945-01-05";
const STRANGE = "2000-13-01";
const BEAMED = ["2025-09-03", "September 3, 2225"];
export const ENOUGH = 5; // heads that can be off while ten dates stay right
const TEN = [["1845-01-05", ANSWER], ["2025-09-03", "September 3, 2025"], ["1426-08-10", "August 10, 1426"], ["1999-12-31", "December 31, 1999"], ["2000-02-29", "February 29, 2000"], ["1066-10-14", "October 14, 1066"], ["1789-07-14", "July 14, 1789"], ["1969-07-20", "July 20, 1969"], ["3141-05-09", "May 9, 3141"], ["9876-04-30", "April 30, 9876"]];
const SEVEN = { text: "1845-07-05", output: "July 5, 1745", layer: 1, head: 3, row: 9 }; // where the 8 of the year is written
const GATE = "cross.1.3";
const SPARE = ["encoder.1.0", "encoder.1.1", "encoder.0.3", "cross.0.0", "cross.1.1"]; // five heads that ten dates do not need

const letters = (/** @type {Trace} */ trace) => trace.source.map(({ token }) => token).filter((token) => !/^<.+>$/.test(token));
const heads = (/** @type {string[]} */ muted) => muted.map((key) => {
  const [kind, layer, head] = key.split(".");
  return { attention: kind, layer: Number(layer), head: Number(head) };
});
const ask = (/** @type {any} */ more) => askTrace({ model: view.model, names: [], ...more });
/** The step at which the model is least sure. */
const leastSure = (/** @type {Trace} */ { steps }) => steps.reduce((found, { entropy }, t) => (entropy > steps[found].entropy ? t : found), 0);
const untouched = () => !view.muted.length && !view.patches.length && !view.prefix.length;

/** The answers that a beam of some width finds. @returns {Promise<string[]>} */
async function answersOf(/** @type {string} */ input, /** @type {number} */ beam) {
  if (beam < 2) return [];
  /** @type {any[]} */ const nodes = (await ask({ input, beam })).beams;
  return nodes.filter(({ score }) => score !== undefined).map((node) => {
    let said = "";
    for (let at = nodes[node.parent]; at; at = nodes[at.parent]) said = at.token + said;
    return said;
  });
}

let learned = { first: 0, loss: 0 }; // the losses of a training on this page

/** @type {Puzzle[]} */
export const PUZZLES = [
  {
    topic: "The output", asks: "Make it write June 5, 1845 by choosing a single other character.",
    hint: "January and June part at the second character: go there, and choose the u in the list of probabilities.", where: "probabilities", set: { step: 0 },
    solution: (trace) => ({ prefix: [trace.steps[0].id, trace.steps[1].top.find(({ token }) => token === "u")?.id ?? 0], step: 1 }),
    judge: (trace) => ({ solved: trace.json.text === TEXT && trace.output === "June 5, 1845" && view.prefix.length === 2 && !view.muted.length && !view.patches.length, says: view.prefix.length ? `It goes on: “${trace.output}”.` : "" }),
    then: () => "It reads its own answer: after “Ju” the rest of January would make no word, and day and year stay.",
  },
  {
    topic: "Embeddings", asks: "A character has the same vector wherever it stands: type a date that is read with only two different vectors.",
    hint: "One of the two is the hyphen’s. The other must be a digit of which a whole date can be made.", where: "embedding", set: {},
    solution: () => ({ text: "1111-11-11" }),
    judge: (trace) => ({ solved: new Set(letters(trace)).size === 2, says: `‘${trace.json.text}’ needs ${new Set(letters(trace)).size}.` }),
    then: (trace) => `${trace.json.text} is ten characters and two vectors. What tells its eight digits apart is not in them: that is the puzzle of the positions.`,
  },
  {
    topic: "Attention", asks: "To write the 8 of 1845 this head looks at the 8. Drag its row of shares, with a finger, the mouse or the arrow keys, so that the model writes 7.",
    hint: "The month has a 7. In the row “softmax” pull the bar of the 8 down, and the bar of the 7 up.", set: { text: SEVEN.text, step: SEVEN.row, zoom: `${SEVEN.layer}.${SEVEN.head}.2` },
    solution: async (trace) => {
      for (let s = 0; s < trace.source.length; s += 1) {
        const drawn = `${SEVEN.layer}.${SEVEN.head}.${SEVEN.row}~${trace.source.map((_, at) => (at === s ? 1000 : 0)).join("~")}`;
        if ((await ask({ input: SEVEN.text, drawn: drawnRow(drawn) })).output === SEVEN.output) return { drawn };
      }
    },
    judge: (trace) => ({ solved: view.drawn !== "" && trace.json.text === SEVEN.text && trace.steps[SEVEN.row]?.token === "7" && view.drawn.startsWith(`${SEVEN.layer}.${SEVEN.head}.${SEVEN.row}~`) && untouched(), says: view.drawn ? `It writes “${trace.output}”.` : "" }),
    then: (trace) => `“${trace.output}”. The head hands on what it looks at, and the rest of the network writes it: shares decide what is copied.`,
  },
  {
    topic: "Positions", asks: `Type a date of the very same characters as ${TEXT} whose answer is another one.`,
    hint: "Let two digits of the year change places.", where: "embedding", set: {},
    solution: () => ({ text: "1854-01-05" }),
    judge: (trace) => ({ solved: letters(trace).sort().join("") === [...TEXT].sort().join("") && trace.json.text !== TEXT && trace.output !== ANSWER, says: trace.json.text === TEXT ? "" : `‘${trace.json.text}’ has other characters.` }),
    then: (trace) => `“${trace.output}”: the same vectors, but each has waves of its place added to it, and so the order counts.`,
  },
  {
    topic: "Masks", asks: "Choose a cell of the decoder’s self-attention in which a token would look at what is written only after it.",
    hint: "Rows write, columns are read. Right of the diagonal the cells are hatched: choose one of them.", where: "decoder", set: {},
    solution: () => ({ pin: { name: "decoder.layers.0.self_attention.weights", head: 0, row: 3, col: 5 } }),
    judge: () => {
      const at = view.pin && place(view.pin.name);
      const own = at?.kind === "decoder" && ["weights", "masked", "scaled", "scores"].includes(at.role);
      return { solved: Boolean(own && view.pin && view.pin.col > view.pin.row), says: !view.pin ? "" : own ? "This cell is allowed: the token looks back, or at itself." : "This cell is not of the decoder’s self-attention." };
    },
    then: () => "Its score is replaced by −∞ before softmax, and its share is exactly 0. Else it could copy in training what it should learn to write.",
  },
  {
    topic: "Feed-forward", asks: "Choose a number of a hidden layer that ReLU has made zero.",
    hint: "In the panel of the layers choose “feed-forward” and a pale cell of h.", where: "layer", set: { part: "encoder.feed_forward" },
    solution: async () => {
      const name = "encoder.layers.0.feed_forward.hidden";
      const hidden = (await Trace.of(await ask({ input: TEXT, names: [name] }))).matrix(name);
      for (let col = 0; col < hidden.cols; col += 1) if (hidden.at(3, col) === 0) return { pin: { name, head: -1, row: 3, col } };
    },
    judge: (trace) => {
      const { pin } = view;
      const hidden = pin?.name.endsWith("feed_forward.hidden") && trace.has(pin.name);
      const value = pin && hidden ? trace.matrix(pin.name).at(pin.row, pin.col) : NaN;
      return { solved: value === 0, says: !pin ? "" : hidden ? `This one is ${number(value, 4)}.` : "This cell is not of a hidden layer." };
    },
    then: () => "What came in there was negative. Hidden numbers that are zero say nothing: for each position others speak.",
  },
  {
    topic: "The output", asks: `There is no thirteenth month: find the character of the answer to ${STRANGE} of which the model is least sure.`,
    hint: "Move through the answer and watch the probabilities by the vector. It must decide on a month when it writes its first letter.", set: { text: STRANGE, anyway: true, step: 12 },
    solution: (trace) => ({ step: leastSure(trace) }),
    judge: (trace) => {
      const sure = trace.steps[view.step]?.top[0].probability ?? 0;
      return { solved: trace.json.text === STRANGE && untouched() && view.step === leastSure(trace), says: `Here its choice has ${percent(sure)}.` };
    },
    then: (trace) => `${trace.steps[view.step].top.slice(0, 2).map(({ token, probability }) => `‘${token}’ ${percent(probability)}`).join(", ")}. After that it is sure again: it goes on from its own word.`,
  },
  {
    topic: "Cross-attention", asks: "Make it write January 5, 1945 by taking over a single position of the encoder’s output from the other date.",
    hint: "Under “Compare” take the encoder’s output, the memory, at the position of the 8.", where: "compare", set: { against: OTHER },
    solution: () => ({ patches: ["encoder.memory~-1~2~-1~2"] }),
    judge: (trace) => {
      const [name, , row] = (view.patches[0] ?? "").split("~");
      const one = view.patches.length === 1 && name === "encoder.memory" && Number(row) >= 0 && !view.muted.length && !view.prefix.length && trace.json.text === TEXT;
      return { solved: one && trace.output === "January 5, 1945", says: view.patches.length ? (one ? `It still writes “${trace.output}”.` : "More than one position, or another value, was taken over.") : "" };
    },
    then: () => "One vector was exchanged, and one digit. The decoder knows of the date only what the memory holds, position by position.",
  },
  {
    topic: "Beam search", asks: `Find the narrowest beam whose tree holds the answer ‘${BEAMED[1]}’.`,
    hint: "Choose a width in the panel of the beam search, and look for an end with this answer. Then try a narrower one.", where: "beams", set: { text: BEAMED[0], beam: 1, step: 0 },
    solution: async () => {
      for (const beam of BEAMS) if ((await answersOf(BEAMED[0], beam)).includes(BEAMED[1])) return { beam };
    },
    judge: async (trace) => {
      if (trace.json.text !== BEAMED[0] || view.beam < 2) return { solved: false };
      const has = async (/** @type {number} */ beam) => (await answersOf(BEAMED[0], beam)).includes(BEAMED[1]);
      const [here, narrower] = [await has(view.beam), await has(BEAMS[BEAMS.indexOf(view.beam) - 1])];
      return { solved: here && !narrower, says: here ? "A narrower beam holds it too." : "This beam does not hold it." };
    },
    then: () => `A beam of ${view.beam} keeps it open, and the right answer still has the best score: a wider beam finds more, not better ones.`,
  },
  {
    topic: "Heads", asks: `Switch off at least ${ENOUGH} of the 24 heads, the 8 gates here or the 16 in the encoder’s and decoder’s own attention below, so that ten dates are still answered rightly.`,
    hint: "The encoder’s second layer and the gates of layer 0 are needed least. Each card of a head has a switch.", where: "encoder", set: {},
    solution: () => ({ muted: SPARE }),
    judge: async () => {
      if (!view.muted.length) return { solved: false };
      const found = await Promise.all(TEN.map(([input, right]) => ask({ input, muted: heads(view.muted) }).then(({ output }) => output === right)));
      const right = found.filter(Boolean).length;
      return { solved: view.muted.length >= ENOUGH && right === TEN.length, says: `${view.muted.length} ${view.muted.length === 1 ? "head is" : "heads are"} off, and ${right} of ${TEN.length} dates are right.` };
    },
    then: () => `${view.muted.length} heads are off, and all ten dates are right. Up to seven can be: many heads do the same, or nothing that dates need.`,
  },
  {
    topic: "Heads", asks: "Gate 3 of layer 1 is about to be closed: which digit will the year 1845 begin with then?",
    hint: "It is a digit of the date, and neither the first nor the second one of the year.", set: { step: 11 }, choices: ["0", "1", "4", "5", "8"],
    solution: async () => void (chosen = /, (\d)/.exec((await ask({ input: TEXT, muted: heads([GATE]) })).output)?.[1] ?? ""),
    judge: async (_, chosen) => {
      if (!chosen) return { solved: false };
      const { output } = await ask({ input: TEXT, muted: heads([GATE]) });
      const solved = /, (\d)/.exec(output)?.[1] === chosen;
      if (solved) change({ muted: [GATE] }, true);
      return { solved, says: `Not ${chosen}.` };
    },
    then: () => "The gate is closed, and the answer above is another one. The vector lacks what this head brought, so another digit is the likeliest. It need not be one that another head looks at.",
  },
  {
    topic: "Learning", asks: "Let it forget everything, and learn until its loss is half of what it began with.",
    hint: "“Forget everything”, then “Learn”. The curve has a logarithmic scale.", where: "learn", set: {},
    solution: () => {
      byId("learn-start").click();
      for (const name of ["Forget everything", "Learn"]) [...byId("learn").querySelectorAll("button")].find((each) => each.textContent === name)?.click();
    },
    judge: () => ({ solved: learned.first > 0 && learned.loss < learned.first / 2, says: learned.first ? `The loss was ${number(learned.first, 3)} and is ${number(learned.loss, 3)}.` : "" }),
    then: () => `The loss was ${number(learned.first, 3)} and is ${number(learned.loss, 3)}: each step moves every number a little against its slope.`,
  },
];


/** The view that a puzzle begins with. @returns {Partial<import("./state.js").View>} */
export const puzzleView = (/** @type {number} */ n) => ({ ...BASE, beam: 3, all: Boolean(PUZZLES[n - 1].where) && n < PUZZLES.length, ...PUZZLES[n - 1].set, puzzle: n, tour: 0 });

/** @type {Set<number>} */ const solved = new Set();
/** Those whose solution was shown. @type {Set<number>} */ const given = new Set();
let [last, hinted, chosen, says, judged] = [0, false, "", "", 0];
/** @type {Trace|null} */ let shown = null;
/** Is told of the next answer that belongs to the view. @type {(trace: Trace) => void} */ let resume = () => {};

/** Go to a puzzle; 0 leaves the puzzles. */
export function goToPuzzle(/** @type {number} */ n) {
  rest();
  noteText((n && puzzleView(n).text) || view.text);
  change(n ? puzzleView(n) : { puzzle: 0, muted: [], prefix: [], patches: [], drawn: "", zoom: "", anyway: false, ...(view.text === STRANGE ? { text: TEXT } : {}) });
}

/** Whether a trace answers the current view, not an earlier one. */
const isOf = (/** @type {Trace} */ { json }) => json.text === view.text && json.muted.length === view.muted.length && (json.patches?.length ?? 0) === view.patches.length && JSON.stringify(json.drawn ?? null) === JSON.stringify(drawnRow()) && json.forced === view.prefix.length;

/** Show the puzzle of the view, or nothing, and judge what the reader has done. */
export async function showPuzzle(/** @type {Trace} */ trace) {
  const card = byId("puzzle");
  const puzzle = isTrained() && view.puzzle !== PUZZLES.length ? undefined : PUZZLES[view.puzzle - 1]; // only the last one is about a network that learns
  shown = trace;
  card.hidden = !puzzle;
  document.body.classList.toggle("puzzling", Boolean(puzzle));
  if (!puzzle) {
    last = 0;
    return;
  }
  const moved = last !== view.puzzle;
  if (moved) [hinted, chosen, says, last] = [false, "", "", view.puzzle];
  draw(puzzle, trace);
  if (moved) announce(`Puzzle ${view.puzzle}, ${puzzle.topic}. ${card.querySelector(".noted")?.textContent ?? ""} ${puzzle.asks}`);
  if (isOf(trace)) resume(trace);
  if (solved.has(view.puzzle) || !isOf(trace)) return;
  const mine = (judged += 1);
  const { puzzle: n } = view;
  const found = await puzzle.judge(trace, chosen);
  if (mine !== judged || n !== view.puzzle) return;
  says = found.solved ? "" : (found.says ?? "");
  if (found.solved) solved.add(n);
  draw(puzzle, shown);
  if (!found.solved) return;
  announce(`Solved. ${puzzle.then(shown)}`);
  card.scrollIntoView({ block: "nearest" });
}

function draw(/** @type {Puzzle} */ puzzle, /** @type {Trace} */ trace) {
  const card = byId("puzzle");
  const n = view.puzzle;
  const done = solved.has(n);
  const held = card.contains(document.activeElement) ? document.activeElement?.textContent : null;
  const button = (/** @type {string} */ text, /** @type {() => void} */ act, more = {}) => h("button", { type: "button", className: "quiet", onclick: act, ...more }, text);
  const again = () => showPuzzle(trace);
  const { where } = puzzle;
  card.replaceChildren(...[
    h("p", { className: "count" }, `${n} of ${PUZZLES.length}, ${solved.size} solved`), h("h2", { id: "puzzle-title" }, puzzle.topic), noted(), h("p", { className: "asks" }, puzzle.asks),
    !done && puzzle.choices && h("div", { className: "ways", role: "group", "aria-label": "Your answer" }, ...puzzle.choices.map((one) => button(one, () => {
      chosen = one;
      again();
    }, { "aria-pressed": String(chosen === one) }))),
    done ? h("p", { className: "task done" }, given.has(n) ? "One solution. " : "✓ Solved. ", puzzle.then(trace)) : h("p", { className: "task", role: "status" }, says),
    hinted && !done && h("p", { className: "hint" }, puzzle.hint),
    h("div", { className: "ways" },
      button("Back", () => goToPuzzle(n - 1), { disabled: n === 1 || isTrained() }), button(n === PUZZLES.length ? "End" : "Next", () => goToPuzzle(n === PUZZLES.length ? 0 : n + 1), { className: done ? "quiet next" : "quiet" }),
      !done && !hinted && button("Hint", () => {
        hinted = true;
        again();
      }),
      !done && hinted && button("Show the solution", async () => {
        given.add(n);
        goToPuzzle(n);
        // what an attempt has changed is undone first
        const start = shown && isOf(shown) ? shown : await new Promise((/** @type {(trace: Trace) => void} */ resolve) => { resume = resolve; });
        if (view.puzzle !== n) return;
        change((await puzzle.solution(start)) ?? {});
        if (chosen) again();
      }),
      where && button("Show me where", () => (where === "learn" ? byId("learn-start").click() : goTo(where))),
      button("Begin again", () => {
        solved.delete(n);
        given.delete(n);
        [hinted, chosen, says] = [false, "", ""];
        goToPuzzle(n);
        again();
      }),
      h("button", { type: "button", className: "link skip-tour", onclick: () => goToPuzzle(0) }, "Leave the puzzles")),
  ].filter((each) => each instanceof Node));
  if (held) [...card.querySelectorAll("button")].find((each) => each.textContent === held)?.focus({ preventScroll: true });
}

/** Record the loss of a training on this page. */
export function noteLoss(/** @type {number} */ step, /** @type {number} */ loss) {
  if (!Number.isFinite(loss)) return;
  learned = step <= 1 || !learned.first || loss > learned.first ? { first: loss, loss } : { ...learned, loss };
  if (shown && view.puzzle) showPuzzle(shown);
}

/** Forget the losses: a new training begins. */
export function forgetLoss() {
  learned = { first: 0, loss: 0 };
}
