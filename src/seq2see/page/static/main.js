/** The page: asks the model, builds the panels, handles keys. */

import { lacking } from "./arithmetic.js";
import { askTrace, inside, listModels, live, saved, wake } from "./backend.js";
import { beamPanel } from "./beams.js";
import { KINDS, place, Trace } from "./data.js";
import { announce, byId, h, percent, visible } from "./dom.js";
import { figurePanel } from "./figure.js";
import { forgetColours, heats } from "./heat.js";
import { layerPanel } from "./layer.js";
import { lensPanel } from "./lens.js";
import * as panels from "./panels.js";
import { saliencyPanel } from "./saliency.js";
import { fillAll, Panel } from "./section.js";
import { change, fit, framed, fromAddress, hover, onChange, pin, view } from "./state.js";

/** @typedef {import("./figure.js").Network & {name: string, examples: string[], small: boolean}} Model */

const AT_ONCE = ["*.weights"]; // of a large model; other values are fetched when the reader looks at them

/** @type {Model[]} */ let models = [];
/** @type {Trace|null} */ let trace = null;
/** @type {Panel[]} */ let shown = [];
/** @type {{of: Model, panel: Panel}|undefined} */ let drawing; // the same for all texts
/** @type {Map<string, Promise<Trace>>} */ const cache = new Map();
/** @type {number|undefined} */ let playing;
let asked = 0;
let typed = false; // whether the reader has entered a text

const chosenModel = () => models.find(({ name }) => name === view.model) ?? models[0];

/** @returns {Promise<Trace>} */
function getTrace(/** @type {string} */ input, /** @type {number[]} */ prefix, /** @type {string[]} */ muted) {
  const { small } = chosenModel();
  const body = { model: view.model, input, prefix, muted: heads(muted), names: small ? ["*"] : AT_ONCE, compact: !small };
  const key = JSON.stringify(body);
  if (!cache.has(key)) {
    if (cache.size > 8) cache.clear();
    const first = inside && !trace && input === saved.trace.text && !prefix.length && !muted.length; // the file holds what is seen first
    cache.set(key, first ? fromFile() : askTrace(body).then((json) => Trace.of(json)));
    cache.get(key)?.catch(() => cache.delete(key));
  }
  return /** @type {Promise<Trace>} */ (cache.get(key));
}

const heads = (/** @type {string[]} */ muted) => muted.map((key) => {
  const [attention, layer, head] = key.split(".");
  return { attention, layer: Number(layer), head: Number(head) };
});

/** The request that the shown trace answers; the view may already ask for another. */
const questionOf = (/** @type {Trace} */ { json }) => ({
  model: json.model, input: json.text, muted: json.muted.map((/** @type {[string, number, number]} */ [attention, layer, head]) => ({ attention, layer, head })),
});

/** @type {Map<string, Promise<void>>} */ const coming = new Map(); // two may ask for the same

/**
 * Fetch values that were left out of a trace at first, with exact numbers, so that written-out sums are right. The result is
 * dropped if another trace has replaced this one.
 * @returns {panels.FetchMore}
 */
const fetchInto = (/** @type {Trace} */ into) => async (names, more = {}) => {
  if (into !== trace || !live) return undefined;
  const prefix = into.steps.map(({ id }) => id);
  const body = { ...questionOf(into), prefix, names, ...more };
  const key = JSON.stringify(body);
  const add = async () => {
    try {
      await into.add(await askTrace(body));
      if (into === trace) showAside();
    } catch (error) {
      if (into === trace) byId("error").textContent = /** @type {Error} */ (error).message;
    }
  };
  if (!coming.has(key)) coming.set(key, add().finally(() => coming.delete(key)));
  return coming.get(key);
};

const showAside = () => trace && panels.showAside(byId("arithmetic"), trace, chosenModel(), live);

/** Fetch the prefixes that a beam keeps open. @returns {(beam: number) => Promise<import("./beams.js").Node[]>} */
const fetchBeamsOf = (/** @type {Trace} */ of) => async (beam) => {
  const body = { ...questionOf(of), names: [], beam };
  return (await askTrace(body)).beams;
};

async function fromFile() {
  const found = await Trace.of(saved.trace);
  for (const more of saved.more) await found.add(more);
  return found;
}

/** Ask for the trace of the view, and rebuild the page. */
async function load() {
  const mine = (asked += 1);
  stop();
  byId("text").value = view.text;
  if (!view.text && !typed) return; // there is no example, and the reader has entered nothing yet
  try {
    const found = live ? await getTrace(view.text, view.prefix, view.muted) : (trace ?? (await fromFile()));
    if (mine !== asked) return;
    trace = found;
    byId("error").textContent = "";
    document.body.classList.remove("stale");
    clamp(trace);
    build(trace);
    announce(`Answer: ${trace.output}`);
    if (inside && chosenModel().small && !trace.exact("encoder.memory")) fetchInto(trace)(["*"]); // the file holds shades
    explain();
    await compare(mine);
  } catch (error) {
    if (mine !== asked) return;
    byId("error").textContent = /** @type {Error} */ (error).message;
    document.body.classList.add("stale");
  }
}

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
  byId("answer").textContent = found.output;
  byId("ask").classList.toggle("wordy", found.json.text.length + found.output.length > 44);
  document.title = `${found.json.text} → ${found.output} · seq2see`;
  const model = chosenModel();
  const fetchMore = fetchInto(found);
  if (drawing?.of !== model) drawing = { of: model, panel: figurePanel(model) };
  const tall = new Map(shown.map(({ element }) => [element.id, element.offsetHeight]));
  shown = [
    drawing.panel, panels.tokensPanel(found), panels.embeddingPanel(found, fetchMore), ...KINDS.map((kind) => panels.headsPanel(found, kind, live)),
    panels.headPanel(found, fetchMore), layerPanel(found, fetchMore), panels.probabilitiesPanel(found, live),
    beamPanel(found, live, fetchBeamsOf(found)), lensPanel(found, fetchMore), saliencyPanel(found, fetchMore, model.small),
    ...(live ? [comparePanel()] : []),
  ];
  // a reader who has scrolled down stays there, although panels above are filled later
  for (const { element, filled } of shown) if (!filled && tall.has(element.id)) element.style.minHeight = `${tall.get(element.id)}px`;
  const flow = byId("flow");
  if (flow.firstChild !== drawing.panel.element) flow.replaceChildren(drawing.panel.element);
  while (flow.lastChild !== drawing.panel.element) flow.lastChild.remove();
  flow.append(...shown.slice(1).map(({ element }) => element));
  buildScrubber(found);
  buildRemark();
  showAside();
  const within = held?.closest(".panel")?.id;
  shown.find(({ element }) => element.id === within)?.fill();
  refocus(held);
  drawing.panel.update(new Set());
  fillAll(shown);
}

const special = (/** @type {string} */ token) => /^<.+>$/.test(token);

/** Show a sign in place of <eos> where it would be cut, because it must not make all other tokens wider. */
function shorten(/** @type {HTMLElement} */ wide) {
  wide.classList.remove("brief");
  wide.classList.toggle("brief", [...wide.querySelectorAll(".chip.special")].some((chip) => chip.scrollWidth > chip.clientWidth));
}

function buildScrubber(/** @type {Trace} */ found) {
  const slider = h("input", { type: "range", id: "step", min: "0", max: String(found.steps.length - 1), "aria-label": "Step of the answer", oninput: () => change({ step: Number(slider.value) }) });
  const part = 100 / found.steps.length; // so that the thumb is under its token
  slider.style.width = `calc(${100 - part}% + 16px)`;
  slider.style.marginLeft = `calc(${part / 2}% - 8px)`;
  const longest = Math.max(...found.steps.map(({ token }) => (special(token) ? 1 : token.trim().length)));
  const wide = h("div");
  wide.style.minWidth = `calc(${found.steps.length} * (${longest}ch + 6px))`; // a long answer scrolls
  byId("scrub").replaceChildren(
    h("button", { type: "button", id: "play", className: "play", "aria-label": "Play", onclick: toggle }, "▶"),
    h("div", { className: "track" }, wide));
  wide.append(
      h("ol", { className: "chips" }, ...found.steps.map(({ token, log_probability }, t) => h("li", {},
        h("button", { type: "button", className: `chip${t < found.json.forced ? " forced" : ""}${special(token) ? " special" : ""}`, "data-step": t, title: `P = ${percent(Math.exp(log_probability))}`, onclick: () => change({ step: t }) }, visible(token))))),
      slider);
  byId("scrub").hidden = false;
  new ResizeObserver(() => shorten(wide)).observe(wide);
  showStep();
}

function showStep() {
  const slider = byId("step");
  if (!slider || !trace) return;
  slider.value = String(view.step);
  slider.setAttribute("aria-valuetext", `step ${view.step}: ${visible(trace.steps[view.step].token)}`);
  for (const chip of document.querySelectorAll(".chip")) {
    const t = Number(/** @type {HTMLElement} */ (chip).dataset.step);
    chip.classList.toggle("future", t > view.step);
    if (t === view.step) {
      chip.setAttribute("aria-current", "step");
      const track = /** @type {HTMLElement} */ (chip.closest(".track"));
      if (track.scrollWidth > track.clientWidth) track.scrollLeft = ((t + 0.5) / trace.steps.length) * track.scrollWidth - track.clientWidth / 2;
    } else chip.removeAttribute("aria-current");
  }
}

/** List the manual changes and offer to undo them. */
function buildRemark() {
  const remarks = [];
  const undo = (/** @type {string} */ text, /** @type {any} */ changes) => h("span", { className: "changed" }, text, " ", h("button", { type: "button", className: "link", onclick: () => change(changes) }, "undo"));
  if (view.prefix.length) remarks.push(undo(`${view.prefix.length} ${view.prefix.length === 1 ? "token" : "tokens"} forced`, { prefix: [] }));
  if (view.muted.length) remarks.push(undo(`${view.muted.length} ${view.muted.length === 1 ? "head" : "heads"} off`, { muted: [] }));
  byId("remark").replaceChildren(...remarks);
}

function comparePanel() {
  const input = h("input", { id: "against", value: view.against, "aria-label": "Text to compare with", placeholder: "another text", autocomplete: "off", spellcheck: false });
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    change({ against: input.value });
  };
  const panel = new Panel("compare", "Compare", "Edit the text, force a token or switch a head off: which probabilities and heads moved.",
    () => [h("form", { onsubmit: submit }, input, h("button", { className: "quiet" }, "Compare")), h("p", { id: "compare-error", role: "alert" }), h("div", { id: "difference" })]);
  panel.fill(); // the comparison is written into this panel
  return panel;
}

/** Fill the comparison: with another text if there is one, otherwise with the unchanged answer. */
async function compare(mine = asked) {
  const place = byId("difference");
  if (!place || !trace || !live) return;
  const touched = view.prefix.length || view.muted.length;
  if (!view.against && !touched) {
    place.replaceChildren();
    byId("compare-error").textContent = "";
    return;
  }
  try {
    const other = await getTrace(view.against || view.text, [], []);
    if (mine !== asked) return;
    place.replaceChildren(...(view.against ? panels.comparison(trace, other) : panels.comparison(other, trace)));
    byId("compare-error").textContent = "";
  } catch (error) {
    if (mine !== asked) return;
    byId("compare-error").textContent = /** @type {Error} */ (error).message;
    place.replaceChildren();
  }
}

// --- navigation ---

function stop() {
  clearInterval(playing);
  playing = undefined;
  const button = byId("play");
  if (button) {
    button.textContent = "▶";
    button.setAttribute("aria-label", "Play");
  }
}

function toggle() {
  if (playing !== undefined || !trace) return stop();
  const last = trace.steps.length - 1;
  if (view.step >= last) change({ step: 0 });
  playing = window.setInterval(() => (view.step < last ? change({ step: view.step + 1 }) : stop()), 650);
  byId("play").textContent = "❚❚";
  byId("play").setAttribute("aria-label", "Pause");
  return undefined;
}

function onKey(/** @type {KeyboardEvent} */ event) {
  const target = /** @type {HTMLElement} */ (event.target);
  if (!trace || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") {
    pin(null, view.pin ? {} : { box: "" });
    hover(null);
    return;
  }
  if (target.matches("input:not([type=range]), select, textarea")) return;
  if (event.key === " " && target.matches("button, summary")) return;
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
    byId("model").value = view.model;
    showExamples(chosenModel());
  }
  if (["model", "text", "prefix", "muted"].some((key) => changed.has(key))) {
    load();
    return;
  }
  if (!trace) return;
  if (changed.has("kind") && view.layer >= trace.layers(view.kind)) {
    change({ layer: 0 });
  }
  for (const panel of shown) panel.update(changed);
  for (const heat of heats) {
    if (heat.element.isConnected) heat.update();
    else heats.delete(heat);
  }
  if (changed.has("step")) showStep();
  if (changed.has("against")) compare();
  if (["hover", "pin", "box"].some((key) => changed.has(key))) showAside();
  if (changed.has("pin")) explain();
});

/** Start with a new text. The forced tokens belonged to the old text. Muted heads stay muted, to be tried on many texts. */
function ask(/** @type {string} */ text) {
  const before = asked;
  typed = true;
  change({ text, prefix: [], pin: null, step: 0 });
  if (!text && asked === before) load(); // the text was refused before: ask again
}

async function start() {
  document.addEventListener("keydown", onKey);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    forgetColours();
    heats.forEach((heat) => heat.paint());
  });
  window.addEventListener("hashchange", () => {
    const wanted = fromAddress();
    const model = models.find(({ name }) => name === wanted.model) ?? chosenModel();
    const text = (model.name !== view.model && model.examples[0]) || view.text; // if the address names no text
    change({ ...wanted, model: model.name, text: (live && wanted.text) || text });
  });
  models = await listModels();
  byId("ask").addEventListener("submit", (/** @type {Event} */ event) => {
    event.preventDefault();
    ask(byId("text").value);
  });
  // the address holds the view, so the link that skips to the numbers must not change it
  document.querySelector(".skip")?.addEventListener("click", (event) => {
    event.preventDefault();
    byId("flow").focus();
  });
  const wanted = fromAddress();
  const model = models.find(({ name }) => name === wanted.model) ?? models[0];
  byId("model").replaceChildren(...models.map(({ name }) => h("option", { selected: name === model.name }, name)));
  byId("model").addEventListener("change", () => {
    const chosen = models.find(({ name }) => name === byId("model").value) ?? models[0];
    change({ model: chosen.name, text: chosen.examples[0] ?? view.text, prefix: [], muted: [], pin: null, against: "", step: 0 });
  });
  byId("model-choice").hidden = saved !== null;
  if (!live) {
    byId("text").readOnly = true;
    byId("go").hidden = true;
    byId("examples").textContent = `A saved answer${saved.model.name ? ` of the model “${saved.model.name}”` : ""}: seq2see serve opens a page that answers.`;
    byId("linked").hidden = framed;
  }
  const text = live ? wanted.text || saved?.trace.text || model.examples[0] || "" : saved.trace.text;
  change({ ...wanted, model: model.name, text, ...(live ? {} : { prefix: [], muted: [], against: "" }) });
  requestAnimationFrame(() => setTimeout(wake)); // what the file holds is painted first
}

function showExamples(/** @type {Model} */ model) {
  byId("examples").replaceChildren(...model.examples.map((example) => h("button", { type: "button", className: "link", onclick: () => ask(example) }, example)));
}

start().catch((error) => {
  byId("error").textContent = error.message;
});
