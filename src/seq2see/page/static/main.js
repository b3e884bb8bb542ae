/** The page: asks the model, builds the panels, handles keys. */

import { lacking } from "./arithmetic.js";
import { askText, askTrace, forgetTraining, inside, isTrained, listModels, live, saved, wake } from "./backend.js";
import { beamPanel } from "./beams.js";
import { comparePanel, patchForm, showComparison } from "./compare.js";
import { KINDS, place, Trace } from "./data.js";
import { announce, byId, canShow, h, percent, roving, visible } from "./dom.js";
import { fitLength, fitText, setUpField } from "./field.js";
import { buildFlight, followFlight, redrawFlight } from "./flight.js";
import { setUpFiles, showTools } from "./files.js";
import { mostTelling } from "./needs.js";
import { glossaryOf, showGlossary, writtenTerms } from "./glossary.js";
import { forgetColours, heats } from "./heat.js";
import { layerPanel } from "./layer.js";
import { lensPanel } from "./lens.js";
import * as panels from "./panels.js";
import { goToPuzzle, PUZZLES, puzzleView, showPuzzle } from "./puzzles.js";
import { buildScrubber, play, showStep, showVersus, stop, toggle } from "./scrubber.js";
import { fillAll, goTo, Panel, updateAll } from "./section.js";
import { address, change, drawnRow, fit, framed, fromAddress, hover, isLinked, onChange, panelOfLink, pin, view } from "./state.js";
import { saidOf, showText, Translation } from "./texts.js";
import { CLAIMS, claimView, gallery, goToStop, showTour, STOPS, viewOf } from "./tour.js";
import { setUpTraining } from "./training.js";

/** @typedef {{config: Record<string, any>, parameters: number, name: string, task: string, small: boolean, examples: string[], does?: string, puzzles?: boolean, sentences?: boolean, inside?: any}} Model  puzzles: whether the tour and the puzzles hold for it; inside: what training in the page must know of it, on a server’s page */

const AT_ONCE = ["*.weights"]; // of a large model; other values are fetched when the reader looks at them

/** @type {Model[]} */ let models = [];
/** @type {Model|null} */ let learned = null; // the one that is trained here, while it answers
/** @type {Model|null} */ let offered = null; // the one that can be trained here
/** @type {Trace|null} */ let trace = null;
/** @type {Panel[]} */ let shown = [];
/** @type {Map<string, Promise<Trace>>} */ const cache = new Map();
/** @type {{key: string, translation: Translation, leave: AbortController}|null} */ let whole = null; // the text, by a model of sentences
/** @type {import("./texts.js").Sentence|undefined} */ let looked; // the sentence of it that is shown inside
let asked = 0;
/** @type {string|null} */ let answered = null; // the text of the view that the shown answer belongs to
let opensAt = panelOfLink();
let typed = false; // whether the reader has entered a text
let begins = false; // whether the address names no view: the answer is then played once
let typing = false; // whether the reader is still typing

const chosenModel = () => learned ?? models.find(({ name }) => name === view.model) ?? models[0];

/** @returns {Promise<Trace>} */
function getTrace(/** @type {string} */ input, /** @type {number[]} */ prefix, /** @type {string[]} */ muted, /** @type {string[]} */ patches = [], drawn = drawnRow("")) {
  const { small } = chosenModel();
  const body = { ...chosen(), input, prefix, muted: heads(muted), names: small ? ["*"] : AT_ONCE, compact: !small, ...anyway(), ...taken(patches), ...(drawn ? { drawn } : {}) };
  const key = JSON.stringify(body);
  if (!cache.has(key)) {
    if (cache.size > 8) cache.clear();
    const first = inside && saved.trace.steps && !trace && !isTrained() && input === saved.trace.text && !prefix.length && !muted.length && !patches.length && !drawn; // the file holds the first answer
    cache.set(key, first ? fromFile() : askTrace(body, input === view.text && !whole ? writing(asked) : undefined).then((json) => Trace.of(json)));
    cache.get(key)?.catch(() => cache.delete(key));
  }
  return /** @type {Promise<Trace>} */ (cache.get(key));
}

/** Which network is asked. */
const chosen = () => ({ model: view.model, ...(view.member ? { member: view.member } : {}) });

/** Whether the reader wants to see what the model does with a text that it was not made for. */
const anyway = () => (view.anyway ? { anyway: true } : {});

/** Show an answer while it is being written, unless another is asked for meanwhile. */
const writing = (/** @type {number} */ mine) => (/** @type {string} */ text) => {
  if (mine !== asked) return;
  answered = view.text; // the part that is there
  showAge();
  byId("answer").textContent = text;
  byId("answer").classList.add("writing");
};

const heads = (/** @type {string[]} */ muted) => muted.map((key) => {
  const [attention, layer, head] = key.split(".");
  return { attention, layer: Number(layer), head: Number(head) };
});

/** What is taken over from the run on the other text. */
const taken = (/** @type {string[]} */ patches) => (patches.length && view.against ? {
  patches: patches.map((patch) => {
    const [name, head, row, col, fromRow] = patch.split("~");
    return { input: view.against, name, head: Number(head), row: Number(row), col: Number(col), fromRow: Number(fromRow) };
  }),
} : {});

/** @type {Map<string, Promise<string|undefined>>} */ const coming = new Map(); // two may ask for the same

/**
 * Fetch values that were left out of a trace at first, with exact numbers, so that written-out sums are right. The result is
 * dropped if another trace has replaced this one.
 * @returns {panels.FetchMore}
 */
const fetchInto = (/** @type {Trace} */ into) => async (names, more = {}) => {
  if (into !== trace || !live) return undefined;
  const prefix = into.steps.map(({ id }) => id);
  const body = { ...into.question, prefix, names, ...more, ...anyway() };
  const key = JSON.stringify(body);
  const add = async () => {
    try {
      await into.add(await askTrace(body));
      if (into === trace) {
        showAside();
        redrawFlight();
        showTour(into); // a share may have been rounded before, and what is needed is known now
      }
      return undefined;
    } catch (error) {
      const { message } = /** @type {Error} */ (error);
      if (into === trace && !more.also) byId("error").textContent = message; // the panel shows the reason itself
      return message;
    }
  };
  if (!coming.has(key)) coming.set(key, add().finally(() => coming.delete(key)));
  return coming.get(key);
};

const showAside = () => trace && panels.showAside(byId("arithmetic"), trace, live);

/** Fetch the prefixes that a beam keeps open. @returns {(beam: number) => Promise<import("./beams.js").Node[]>} */
const fetchBeamsOf = (/** @type {Trace} */ of) => async (beam) => {
  const body = { ...of.question, names: [], beam, ...anyway() };
  return (await askTrace(body)).beams;
};

async function fromFile() {
  const found = await Trace.of(saved.trace);
  for (const more of saved.more) await found.add(more);
  return found;
}

/** Whether the text is translated sentence by sentence. */
const bySentences = () => Boolean(chosenModel().sentences) && live;

/** Whether the reader has changed how the model answers. */
const isTouched = () => view.prefix.length > 0 || view.muted.length > 0 || view.patches.length > 0 || view.drawn !== "";

/** The translation of the text of the view; a translation of another text is aborted. */
function translated() {
  const body = { model: view.model, input: view.text, format: view.form || "text", glossary: glossaryOf(view.terms) };
  const key = JSON.stringify(body);
  if (whole?.key === key && !whole.translation.error) return whole.translation;
  whole?.leave.abort();
  const leave = new AbortController();
  const translation = new Translation(() => {
    if (whole?.translation !== translation) return;
    answered = view.text; // the part that is there
    showAge();
    showText(translation, isTouched() ? (trace?.output ?? "") : "");
    if (translation.whole && translation.sentences.length > 1) announce(`${translation.sentences.length} sentences are translated.`);
  });
  whole = { key, translation, leave };
  const broken = () => translation.whole || translation.error || translation.take({ error: "The server broke the answer off: ask again." });
  askText(body, (line) => translation.take(line), leave.signal).then(broken, ({ message }) => translation.take({ error: message }));
  return translation;
}

/** Find the text whose numbers are shown: the chosen sentence, or the whole text. */
async function look(/** @type {number} */ mine) {
  showTools(bySentences(), () => change({ form: "" }));
  byId("linked").textContent = isLinked() ? "The address holds the whole view: copy it to show somebody what you see." : "The address holds the view, but not the text, which is too long for it.";
  if (!bySentences()) {
    whole?.leave.abort();
    [whole, looked] = [null, undefined];
    byId("ask").classList.remove("long");
    return;
  }
  const again = whole?.translation;
  const translation = translated();
  if (again === translation) showText(translation);
  const found = await translation.sentence(view.sentence);
  if (mine !== asked) return;
  if (!found) {
    byId("answer").textContent = translation.text;
    byId("remark").replaceChildren();
    throw new Error("There are no words in it, so it was left as it is.");
  }
  if (found.error) throw new Error(found.error);
  looked = found;
  fit({ sentence: translation.sentences.indexOf(found) });
}

/** The trace without the reader’s changes. */
const plainTrace = () => (looked?.parts ? getTrace(looked.parts[0].read, looked.parts[0].ids ?? [], []) : getTrace(view.text, [], []));

/** The trace of the view. */
const wantedTrace = () => (isTouched() ? getTrace(looked?.parts?.[0].read ?? view.text, view.prefix, view.muted, view.patches, drawnRow()) : plainTrace());

/** Fade an answer that belongs to another text than the one in the field, and say to which. */
function showAge() {
  const old = answered !== null && byId("text").value !== answered;
  document.body.classList.toggle("stale", old);
  if (old) byId("answer").dataset.of = [...(answered ?? "")].slice(0, 40).join("");
  else delete byId("answer").dataset.of;
}

/** Ask for the trace of the view, and rebuild the page. */
async function load() {
  const mine = (asked += 1);
  stop();
  if (byId("text").value !== view.text) byId("text").value = view.text;
  showAge();
  showGlossary(Boolean(chosenModel().sentences), view.terms);
  if (!view.text && !typed) return; // there is no example, and the reader has entered nothing yet
  try {
    // the answer may be there before its numbers: meanwhile the panels show those of another
    byId("flow").toggleAttribute("data-waiting", bySentences());
    await look(mine);
    if (mine !== asked) return;
    const found = live ? await wantedTrace() : (trace ?? (await fromFile()));
    if (mine !== asked) return;
    trace = found;
    byId("error").textContent = "";
    answered = view.text;
    showAge();
    clamp(trace);
    build(trace);
    byId("flow").removeAttribute("data-waiting");
    if (begins && !isStill()) setTimeout(() => trace === found && play(0, found.steps.length - 1, () => mostTelling(found)), 700);
    begins = false;
    announce(trace.json.unfit ? `Not to be trusted: ${trace.output}. ${trace.json.unfit}` : `Answer: ${trace.output}`);
    if (inside && chosenModel().small && !trace.exact("encoder.memory")) fetchInto(trace)(["*"]); // the file holds attention rounded to 256 shades
    if (opensAt) goTo(opensAt);
    opensAt = "";
    explain();
    await Promise.all([compare(mine), sayVersus(mine)]);
  } catch (error) {
    if (mine !== asked) return;
    byId("flow").removeAttribute("data-waiting");
    if (typing) setTimeout(() => mine === asked && refuse(/** @type {Error} */ (error)), PATIENCE); // what is half typed is no mistake
    else refuse(/** @type {Error} */ (error));
  }
}

const PATIENCE = 1200; // milliseconds after which a text is no longer half typed

/** Say why a text is not answered. */
function refuse(/** @type {Error} */ { message }) {
  byId("error").textContent = message;
  // curious readers type such texts
  if (chosenModel().task === "dates" && /^[0-9A-Za-z, -]+$/.test(view.text) && view.text.length < 40) {
    byId("error").append(" ", h("button", { type: "button", className: "link", onclick: () => change({ anyway: true }) }, "Show the model anyway"));
  }
}

const isStill = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

const isCount = (/** @type {number} */ x) => Number.isInteger(x) && x >= 0;

/** Whether a trace may have such a cell. Values that have not been fetched yet are checked later. */
function mayHave(/** @type {Trace} */ found, /** @type {import("./data.js").Cell} */ { name, head, row, col }) {
  const at = place(name);
  const byHead = at !== null && at.role !== "out";
  if (!isCount(row) || !isCount(col) || !(byHead ? isCount(head) && head < found.heads : head === -1)) return false;
  if (!found.has(name, head)) return live && /^[a-z_0-9.]+$/.test(name) && !/\.(weight|bias)$/.test(name); // no glob, no parameter
  const { rows, cols } = found.matrix(name, head);
  return row < rows && col < cols;
}

/** Fetch the values for the calculation of the pinned cell. A pin without a cell is removed. */
async function explain() {
  const [found, cell] = [trace, view.pin];
  if (!found || !cell) return;
  const has = () => found.has(cell.name, cell.head) && mayHave(found, cell);
  if (!found.has(cell.name, cell.head)) await fetchInto(found)([cell.name], cell.head < 0 ? {} : { head: cell.head });
  const { names, more } = lacking(found, cell);
  if (names.length && has()) await fetchInto(found)(names, more);
  if (found === trace && cell === view.pin && !has()) pin(null);
}

/** Keep the selection within the trace, which may have another length. */
function clamp(/** @type {Trace} */ found) {
  const within = (/** @type {number} */ x, /** @type {number} */ n) => Math.min(x, n - 1);
  fit({
    layer: within(view.layer, found.layers(view.kind)), head: within(view.head, found.heads), step: within(view.step, found.steps.length),
    query: within(view.query, found.source.length), pin: view.pin && mayHave(found, view.pin) ? view.pin : null,
  });
}

/** Keep the place of a keyboard user: move the focus to the element that replaces the focused one. */
function refocus(/** @type {Element|null} */ held) {
  const label = held?.getAttribute("aria-label");
  const bars = held?.closest("#probabilities");
  const heir = label ? document.querySelector(`[aria-label="${CSS.escape(label)}"]`) : bars && document.querySelector("#probabilities .chosen button");
  if (held && !held.isConnected) /** @type {HTMLElement|null} */ (heir)?.focus({ preventScroll: true });
}

function build(/** @type {Trace} */ found) {
  const held = document.activeElement;
  heats.clear();
  if (whole) showText(whole.translation, isTouched() ? found.output : "");
  else {
    byId("answer").textContent = found.output;
    byId("answer").classList.remove("writing");
    fitLength();
  }
  fitText();
  byId("ask").classList.toggle("unfit", Boolean(found.json.unfit));
  document.title = `${found.json.text} → ${found.output} · seq2see`;
  const model = chosenModel();
  const fetchMore = fetchInto(found);
  if (view.all) buildNumbers(found, fetchMore);
  else byId("flow").replaceChildren(...(shown = []));
  buildScrubber(found);
  buildFlight(found, model, live, fetchMore);
  buildRemark(found);
  showAside();
  byId("tour-start").hidden = byId("puzzle-start").hidden = byId("claims").hidden = !hasTour();
  showTour(found);
  showPuzzle(found);
  const within = held?.closest(".panel")?.id;
  shown.find(({ element }) => element.id === within)?.fill();
  refocus(held);
}

/** Unfold all numbers: the panels, and the map that leads to them. */
function buildNumbers(/** @type {Trace} */ found, fetchMore = fetchInto(found)) {
  const tall = new Map(shown.map(({ element }) => [element.id, element.offsetHeight]));
  shown = [
    panels.tokensPanel(found), panels.embeddingPanel(found, fetchMore), ...KINDS.map((kind) => panels.headsPanel(found, kind, live)),
    panels.headPanel(found, fetchMore), layerPanel(found, fetchMore), panels.probabilitiesPanel(found, live),
    beamPanel(found, live, fetchBeamsOf(found)), lensPanel(found, fetchMore),
    ...(live ? [comparePanel()] : []),
  ];
  // a reader who has scrolled down stays there, although panels above are filled later
  for (const { element, filled } of shown) if (!filled && tall.has(element.id)) element.style.minHeight = `${tall.get(element.id)}px`;
  byId("flow").replaceChildren(...shown.map(({ element }) => element));
  byId("contents").replaceWith(panels.contents());
  fillAll(shown);
}

/** List the manual changes and offer to undo them. */
function buildRemark(/** @type {Trace} */ found) {
  const remarks = looked ? sentenceChooser() : [];
  const { finished, confidence, remark } = found.json;
  if (found.json.unfit) remarks.push(h("span", { className: "warning" }, `Not to be trusted: ${found.json.unfit} It has learned nothing about such texts, and must write something.`));
  const said = looked && !isTouched() ? saidOf(looked) : saidOf({ source: "", finished, confidence, remark });
  remarks.push(...said.map((each) => h("span", each.startsWith("confidence") ? { className: "sure" } : {}, each)));
  remarks.push(...aboutMember(found));
  const undo = (/** @type {string} */ text, /** @type {any} */ changes) => h("span", { className: "changed" }, text, " ", h("button", { type: "button", className: "link", onclick: () => change(changes) }, "undo"));
  if (view.prefix.length) remarks.push(undo(`${view.prefix.length} ${view.prefix.length === 1 ? "token" : "tokens"} forced`, { prefix: [] }));
  if (view.patches.length) remarks.push(undo("numbers taken over", { patches: [] }));
  if (view.drawn) remarks.push(undo("a row drawn", { drawn: "" }));
  if (view.muted.length) remarks.push(undo(`${view.muted.length} ${view.muted.length === 1 ? "head" : "heads"} off`, { muted: [] }));
  byId("remark").replaceChildren(...remarks);
}

/** Which member of an ensemble is shown, and what all of them answer. @returns {HTMLElement[]} */
function aboutMember(/** @type {Trace} */ { json, output }) {
  const ensemble = json.ensemble ?? saved?.model.ensemble;
  if (!ensemble) return [];
  const { member, members, output: theirs, confidence } = ensemble;
  if (looked && json.ensemble && !isTouched()) return [h("span", {}, `The numbers are those of member ${member}, which reads what all ${members} members together have answered.`)];
  if (theirs === undefined) return [h("span", {}, `This is member ${member} of ${members}; the ensemble may answer otherwise.`)];
  if (theirs !== output) return [h("span", {}, `Member ${member} writes this. All ${members} members together answer: `, h("b", {}, theirs), confidence === undefined ? "" : `, with confidence ${percent(confidence)}.`)];
  const same = h("span", {}, `Member ${member} of ${members}; together they give the same answer.`);
  return confidence === undefined ? [same] : [same, h("span", { className: "sure" }, saidOf({ source: "", confidence })[0])];
}

/** Which sentence is shown inside, and the way to its neighbours. @returns {HTMLElement[]} */
function sentenceChooser() {
  const many = whole?.translation.sentences.length ?? 0;
  if (many < 2) return [];
  const to = (/** @type {number} */ by, /** @type {string} */ sign, /** @type {string} */ name) => h("button", {
    type: "button", className: "quiet", disabled: !whole?.translation.sentences[view.sentence + by], "aria-label": name,
    onclick: () => change({ sentence: view.sentence + by, prefix: [], patches: [], pin: null, step: 0 }),
  }, sign);
  return [h("span", { className: "which" }, to(-1, "‹", "Sentence before"), h("b", {}, `Sentence ${view.sentence + 1} of ${many}`), to(1, "›", "Next sentence"))];
}

/** Say what a change has done: to the answer, and to the probability of the original one, which is held. */
async function sayVersus(/** @type {number} */ mine) {
  showVersus(null, /** @type {Trace} */ (trace));
  if (!live || !isTouched()) return;
  const [after, before] = [trace, await plainTrace()];
  const edited = view.muted.length || view.patches.length || view.drawn;
  const held = edited ? Trace.of(await askTrace({ .../** @type {Trace} */ (after).question, prefix: before.steps.map(({ id }) => id), names: [], ...anyway() })) : null;
  if (mine !== asked || after === null) return;
  const why = view.patches.length ? "numbers taken over" : view.drawn ? "a row drawn" : view.muted.length ? `${view.muted.length} ${view.muted.length === 1 ? "head" : "heads"} off` : "forced";
  showVersus(before, after, why, (await held)?.logProbability);
}

/** Fill the comparison: with another text if there is one, otherwise with the unchanged answer. */
async function compare(mine = asked) {
  const place = byId("difference");
  if (!place || !trace || !live) return;
  byId("patching").replaceChildren();
  if (!view.against && !isTouched()) {
    place.replaceChildren();
    byId("compare-error").textContent = "";
    return;
  }
  try {
    const other = await (view.against ? getTrace(view.against, [], []) : plainTrace());
    const plain = isTouched() && view.against ? await plainTrace() : other; // without any change
    if (mine !== asked) return;
    if (view.against) {
      byId("patching").replaceChildren(patchForm(trace, other));
      showAside(); // a pinned cell can be taken over
    }
    const [left, right] = view.against && !isTouched() ? [trace, other] : [plain, trace];
    showComparison(place, left, right);
    byId("compare-error").textContent = "";
  } catch (error) {
    if (mine !== asked) return;
    byId("compare-error").textContent = /** @type {Error} */ (error).message;
    place.replaceChildren();
  }
}

// --- navigation ---

function onKey(/** @type {KeyboardEvent} */ event) {
  const target = /** @type {HTMLElement} */ (event.target);
  if (!trace || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape" && document.querySelector(":popover-open")) return; // the browser closes it
  if (event.key === "Escape" && view.zoom) {
    change({ zoom: "" });
    return;
  }
  if (event.key === "Escape") {
    if (!view.pin && (view.tour || view.claim)) goToStop(0);
    pin(null);
    hover(null);
    return;
  }
  if (target.matches("input:not([type=range]), select, textarea")) return;
  if (event.key === "Enter" && target === document.body) {
    event.preventDefault();
    byId("text").select();
    return;
  }
  if (event.key === " " && target.matches("button:not(.chip), summary")) return;
  const cycle = (/** @type {number} */ x, /** @type {number} */ by, /** @type {number} */ n) => (x + by + n) % n;
  const move = (/** @type {number} */ by) => change({ step: Math.max(0, Math.min((trace?.steps.length ?? 1) - 1, view.step + by)) });
  const layers = trace.layers(view.kind);
  /** @type {Record<string, () => void>} */
  const keys = {
    " ": toggle,
    ArrowLeft: () => move(-1),
    ArrowRight: () => move(1),
    "[": () => change({ layer: cycle(view.layer, -1, layers) }),
    "]": () => change({ layer: cycle(view.layer, 1, layers) }),
    ",": () => change({ head: cycle(view.head, -1, trace?.heads ?? 1) }),
    ".": () => change({ head: cycle(view.head, 1, trace?.heads ?? 1) }),
  };
  if (!keys[event.key]) return;
  event.preventDefault();
  keys[event.key]();
  if (event.key !== " ") announce(`${view.kind}, layer ${view.layer}, head ${view.head}, step ${view.step}: ${visible(trace.steps[view.step].token)}`);
}

onChange((changed) => {
  if (changed.has("model") && live) {
    byId("model").value = (learned ? offered : chosenModel())?.name;
    offerMembers();
    showExamples(chosenModel());
    offerTraining();
  }
  if (changed.has("member")) byId("member").value = String(view.member);
  if (["model", "member", "text", "terms", "form", "sentence", "prefix", "muted", "patches", "drawn", "anyway"].some((key) => changed.has(key))) {
    load();
    return;
  }
  if (!trace) return;
  if (view.step >= trace.steps.length) fit({ step: trace.steps.length - 1 }); // an untrained network may write a shorter answer
  if (changed.has("kind") && view.layer >= trace.layers(view.kind)) {
    change({ layer: 0 });
  }
  if (changed.has("all")) unfold();
  followFlight(changed);
  updateAll(shown, changed);
  if (changed.has("step")) showStep();
  if (changed.has("against")) compare();
  if (view.tour || view.claim || changed.has("tour") || changed.has("claim")) showTour(trace);
  if ((view.puzzle && ["pin", "step", "zoom", "beam"].some((key) => changed.has(key))) || changed.has("puzzle")) showPuzzle(trace);
  if (changed.has("hover") || changed.has("pin")) showAside();
  if (changed.has("pin")) explain();
  if (changed.has("pin") && view.pin) requestAnimationFrame(uncover);
});

/** Follow the fold of all numbers. */
function unfold() {
  byId("all").open = view.all;
  if (view.all && trace && !shown.length) {
    buildNumbers(trace);
    showAside();
    explain();
    compare();
  }
}

/** On a narrow screen the arithmetic covers the lower part: scroll until the pinned cell is above it. */
function uncover() {
  const aside = byId("arithmetic");
  const mark = [...document.querySelectorAll(".mark.pinned:not([hidden])")].find((each) => {
    const { top, bottom } = each.getBoundingClientRect();
    return bottom > 0 && top < innerHeight;
  });
  if (!mark || getComputedStyle(aside).position !== "fixed") return;
  const covered = mark.getBoundingClientRect().bottom + 24 - aside.getBoundingClientRect().top;
  if (covered > 0) scrollBy(0, covered);
}

/** The tour and the puzzles say what was measured of one model. */
const hasTour = (model = chosenModel()) => live && Boolean(model.puzzles);

/** How many members of a model can be looked into: those that write from left to right. */
const traceable = (/** @type {Model} */ { config }) => config.members - config.backward;

/** Offer the members of an ensemble. */
function offerMembers(count = traceable(chosenModel())) {
  byId("member-choice").hidden = saved !== null || count < 2;
  byId("member").replaceChildren(...Array.from({ length: count }, (_, number) => h("option", {}, String(number))));
}

/** Leave out of a view what a model does not have. */
function without(/** @type {Partial<import("./state.js").View>} */ wanted, /** @type {Model} */ model) {
  if (Number(wanted.tour) > STOPS.length || !hasTour(model)) wanted.tour = 0;
  if (!(wanted.claim && wanted.claim in CLAIMS) || !hasTour(model)) wanted.claim = "";
  if (Number(wanted.puzzle) > PUZZLES.length || !hasTour(model)) wanted.puzzle = 0;
  if (saved) wanted.member = saved.model.ensemble?.member ?? 0; // the only one that is in the file
  else if (Number(wanted.member) >= traceable(model)) wanted.member = 0;
  return wanted;
}

/** Start with a new text. The forced tokens belonged to the old text. Muted heads stay muted, to be tried on many texts. */
function ask(/** @type {string} */ text, midway = false, form = text ? view.form : "") {
  const before = asked;
  const again = typing && !midway; // the reason for a refusal is shown now
  [typed, typing] = [true, midway];
  const same = text === view.text && text === answered && !midway;
  change({ text, terms: writtenTerms(), form, sentence: 0, prefix: [], patches: [], pin: null, step: 0, zoom: "", anyway: false, tour: 0, claim: "" }, midway);
  if ((!text || again) && asked === before) load(); // the text was refused before: ask again
  else if (same && asked === before && trace && !isStill()) play(0, trace.steps.length - 1, () => (trace ? mostTelling(trace) : 0)); // the same text again: play the answer
}

async function start() {
  document.addEventListener("keydown", onKey);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    forgetColours();
    heats.forEach((heat) => heat.paint());
    redrawFlight();
  });
  addEventListener("resize", redrawFlight);
  window.addEventListener("hashchange", () => {
    const wanted = fromAddress();
    const model = models.find(({ name }) => name === wanted.model) ?? chosenModel();
    const text = (model.name !== view.model && model.examples[0]) || view.text; // if the address names no text
    change({ ...without(wanted, model), model: model.name, text: (live && wanted.text) || text });
  });
  const { models: listed, limits } = await listModels();
  models = listed;
  setUpField(ask, showAge);
  setUpFiles({ ask: (text, form) => ask(text, false, form), refuse, translated: () => whole?.translation.text ?? "", most: limits.body });
  roving(byId("answer"), ".phrase");
  // the address holds the view, so the link that skips to the numbers must not change it
  document.querySelector(".skip")?.addEventListener("click", (event) => {
    event.preventDefault();
    change({ all: true });
    byId("flow").focus();
  });
  byId("all").addEventListener("toggle", () => change({ all: byId("all").open }));
  byId("go").hidden = inside; // typing answers
  const wanted = fromAddress();
  const model = models.find(({ name }) => name === wanted.model) ?? models[0];
  byId("claims").append(...gallery());
  roving(byId("claims"), "button");
  byId("tour-start").addEventListener("click", () => goToStop(1));
  byId("puzzle-start").addEventListener("click", () => goToPuzzle(1));
  begins = !address();
  const toLearn = address() === "learn";
  document.body.classList.toggle("embedded", parent !== window); // the page around it introduces it
  without(wanted, model);
  byId("model").replaceChildren(...models.map(({ name }) => h("option", { selected: name === model.name }, name)));
  byId("model").addEventListener("change", () => {
    const chosen = models.find(({ name }) => name === byId("model").value) ?? models[0];
    learned = null;
    change({ model: chosen.name, member: 0, text: chosen.examples[0] ?? view.text, terms: "", form: "", sentence: 0, prefix: [], muted: [], patches: [], pin: null, against: "", step: 0 });
  });
  byId("member").addEventListener("change", () => change({ member: Number(byId("member").value) }));
  byId("model-choice").hidden = saved !== null;
  if (!live) {
    byId("text").readOnly = byId("invite").hidden = true;
    byId("go").hidden = true;
    byId("examples").textContent = `A saved answer${saved.model.name ? ` of the model “${saved.model.name}”` : ""}: seq2see serve opens a page that answers.`;
    byId("linked").hidden = framed;
  }
  if (wanted.tour && live && !/step=|muted=|zoom=|prefix=/.test(address())) Object.assign(wanted, viewOf(wanted.tour)); // a link that names the stop alone
  if (wanted.claim && address() === `claim=${wanted.claim}`) Object.assign(wanted, claimView(wanted.claim));
  if (wanted.puzzle && !wanted.tour && address() === `puzzle=${wanted.puzzle}`) Object.assign(wanted, puzzleView(wanted.puzzle));
  const text = live ? wanted.text || saved?.trace.text || model.examples[0] || "" : saved.trace.text;
  byId("all").open = Boolean(wanted.all);
  change({ ...wanted, model: model.name, text, ...(live ? {} : { prefix: [], muted: [], against: "" }) });
  requestAnimationFrame(() => setTimeout(wake)); // the saved answer is painted first
  offerTraining();
  if (toLearn) byId("learn-start").click();
}

/** Offer to train a network like the chosen one, unless one is being trained. */
function offerTraining() {
  if (learned || offered === chosenModel()) return;
  offered = chosenModel();
  forgetTraining();
  cache.clear(); // it holds answers of the network that was trained
  setUpTraining(offered, { use: useModel, glance, recall, settle });
}

/** Let another model answer from now on: one that is trained here, or the original again. */
function useModel(/** @type {Model} */ model, /** @type {string} */ text) {
  learned = isTrained() ? model : null;
  cache.clear();
  [trace, answered] = [null, null];
  showExamples(model);
  change({ model: model.name, text, prefix: [], muted: [], patches: [], pin: null, against: "", step: 0, zoom: "", anyway: false, tour: 0, claim: "" }, true);
  load();
}

/** Show an answer of a model that is being trained, and how it came about. */
function recall(/** @type {Trace} */ found) {
  const before = trace;
  trace = found;
  fit({ step: Math.min(view.step, found.steps.length - 1), prefix: [] });
  byId("answer").textContent = found.output;
  buildScrubber(found);
  buildFlight(found, chosenModel(), live, async () => undefined);
  if (found.json.finished !== before?.json.finished) buildRemark(found); // a screen reader speaks each remark
}

/** The current answer of a model that is being trained. */
async function glance() {
  const mine = asked;
  const json = await askTrace({ model: view.model, input: view.text, muted: heads(view.muted), names: ["*.weights", "decoder.out"], anyway: true });
  if (mine !== asked) return null;
  const found = await Trace.of(json);
  return mine === asked ? found : null;
}

/** Rebuild the whole page after training has stopped. */
function settle() {
  cache.clear();
  load();
}

function showExamples(/** @type {Model} */ model) {
  byId("does").textContent = model.does ?? "";
  byId("examples").replaceChildren(...model.examples.filter(canShow).map((example) => h("button", { type: "button", className: "link", onclick: () => ask(example, false, "") }, example)));
}

start().catch((error) => {
  byId("error").textContent = error.message;
});
