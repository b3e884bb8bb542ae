/** The selection that all panels share. The address bar holds it, so that a view can be linked. */

/** @typedef {import("./data.js").Cell} Cell */
/** @typedef {import("./data.js").Kind} Kind */

/**
 * @typedef {object} View
 * @property {string} model
 * @property {number} member of an ensemble, which one is looked into
 * @property {string} text
 * @property {string} against another text to compare with
 * @property {string} terms the glossary, a term a line
 * @property {string} form the format of the text, if it is from a file
 * @property {number} sentence which one of the text is looked into
 * @property {number[]} prefix ids that the answer must begin with
 * @property {string[]} muted heads that are off, as kind.layer.head
 * @property {Kind} kind
 * @property {number} layer
 * @property {number} head
 * @property {number} step
 * @property {number} query row of encoder attention; in the decoder the step is the row
 * @property {number} beam width of the tree; 1 shows none
 * @property {"source"|"target"} side whose embedding is shown
 * @property {string} part the value shown between the attentions, as stack.part
 * @property {string[]} patches what is taken over from the run on the other text, as name~head~row~col~fromRow
 * @property {string} drawn shares that the reader gave a row of the cross-attention, as layer.head.row~share~share…; none if empty
 * @property {string} zoom the thread of the stage that is opened, as layer.head.token, with decoder. before it where a head looks back; none if empty
 * @property {"needs"|"looks"} shows what the threads of the stage show
 * @property {boolean} all whether all numbers are unfolded
 * @property {number} tour the stop of the tour, from 1; 0 if there is none
 * @property {string} claim the claim of the gallery that is shown; none if empty
 * @property {number} puzzle the puzzle, from 1; 0 if there is none
 * @property {boolean} anyway whether a text is shown to the model that it was not made for
 * @property {Cell|null} pin
 */

/** @type {View} */
export const view = {
  model: "", member: 0, text: "", terms: "", form: "", sentence: 0, against: "", prefix: [], muted: [], patches: [], kind: "cross", layer: 0, head: 0, step: 0, query: 0, beam: 3,
  side: "source", part: "encoder.feed_forward", drawn: "", zoom: "", shows: "needs", all: false, tour: 0, claim: "", puzzle: 0, anyway: false, pin: null,
};

/** @type {Cell|null} */
let hovered = null;
let started = false; // the first view is no page to go back to
/** @type {((changed: Set<string>) => void)[]} */
const listeners = [];

export function onChange(/** @type {(changed: Set<string>) => void} */ listener) {
  listeners.push(listener);
}

/** Changes that the browser’s Back undoes. The others, such as a step, are too small and too many. */
const BIG = ["model", "member", "text", "terms", "form", "sentence", "against", "prefix", "muted", "patches", "drawn", "beam", "zoom", "tour", "claim", "puzzle", "anyway"];

/** Change the view, write it to the address, and tell the listeners what changed. A `passing` change is not a page of the history. */
export function change(/** @type {Partial<View>} */ changes, passing = false) {
  const changed = new Set(Object.keys(changes).filter((key) =>
    JSON.stringify(/** @type {any} */ (view)[key]) !== JSON.stringify(/** @type {any} */ (changes)[key])));
  if (!changed.size) return;
  Object.assign(view, changes);
  if ((view.pin || view.against) && !view.all) { // what is shown among all numbers
    view.all = true;
    changed.add("all");
  }
  if (!("drawn" in changes) && ["model", "text", "sentence"].some((key) => changed.has(key))) view.drawn = ""; // another text has other columns
  write(!passing && view.text !== "" && started && BIG.some((key) => changed.has(key)));
  started ||= view.text !== "";
  for (const listener of listeners) listener(changed);
}

/** Adapt the view to a new answer. The listeners of the previous answer are not told. */
export function fit(/** @type {Partial<View>} */ changes) {
  Object.assign(view, changes);
  write();
}

/** The cell to explain: the one under the pointer, otherwise the pinned one. */
export function current() {
  return hovered ?? view.pin;
}

/** Preview a cell, or stop. */
export function hover(/** @type {Cell|null} */ cell) {
  if (JSON.stringify(cell) === JSON.stringify(hovered)) return;
  hovered = cell;
  for (const listener of listeners) listener(new Set(["hover"]));
}

/** Pin a cell, and let the selection follow it. */
export function pin(/** @type {Cell|null} */ cell, /** @type {Partial<View>} */ also = {}) {
  hovered = null;
  change({ pin: cell, ...also });
  for (const listener of listeners) listener(new Set(["hover"]));
}

const LONGEST = 8000; // characters of a text in an address

/** Whether the address holds the text: a browser does not take any length. */
export const isLinked = () => view.text.length <= LONGEST;

/** A frame in a notebook has no address of its own: what it begins with stands in the page. */
export const framed = location.protocol === "about:";
export const address = () => location.hash.slice(1) || (document.documentElement.dataset.view ?? "");

export const BEAMS = [1, 2, 3, 4, 8]; // the widths that the page offers
const LISTS = ["prefix", "muted"];
const NUMBERS = ["layer", "head", "step", "query", "beam", "tour", "puzzle", "sentence", "member"];
/** @type {View} */
const START = structuredClone(view);

function write(page = false) {
  const words = new URLSearchParams();
  for (const [key, value] of Object.entries(/** @type {Record<string, any>} */ (view))) {
    if (JSON.stringify(value) === JSON.stringify(/** @type {any} */ (START)[key]) || (key === "text" && !isLinked())) continue;
    if (key === "pin") words.set(key, value ? [value.name, value.head, value.row, value.col].join("~") : "");
    else words.set(key, key === "patches" ? value.join("|") : LISTS.includes(key) ? value.join("~") : String(value));
  }
  const now = `#${words}`;
  if (!framed && now !== location.hash) history[page ? "pushState" : "replaceState"](null, "", now);
}

/** The row that the reader has drawn, or null: its shares sum to 1. @returns {{attention: "cross", layer: number, head: number, row: number, shares: number[]}|null} */
export function drawnRow(drawn = view.drawn) {
  if (!drawn) return null;
  const [place, ...given] = drawn.split("~");
  const [layer, head, row] = place.split(".").map(Number);
  const total = given.reduce((sum, share) => sum + Number(share), 0);
  return { attention: "cross", layer, head, row, shares: given.map((share) => Number(share) / total) };
}

/** The panel that a link opens the page at, by the box of the paper’s Figure 1; none if empty. */
export function panelOfLink() {
  const [half, part = half] = (new URLSearchParams(address()).get("box") ?? "").split(".");
  /** @type {Record<string, string>} */ const known = { tokens: "tokens", embedding: "embedding", positions: "embedding", linear: "probabilities", softmax: "probabilities", self_attention: half, cross_attention: "cross", feed_forward: "layer" };
  return known[part] ?? (part.endsWith("norm") ? "layer" : "");
}

/** Read the view from the address. @returns {Partial<View>} */
export function fromAddress() {
  /** @type {any} */ const found = structuredClone(START);
  for (const [key, value] of new URLSearchParams(address())) {
    if (!(key in START)) continue;
    if (key === "pin") {
      const [name, head, row, col] = value.split("~");
      found.pin = name ? { name, head: Number(head), row: Number(row), col: Number(col) } : null;
    } else if (NUMBERS.includes(key)) found[key] = Math.max(0, Math.trunc(Number(value)) || 0);
    else if (key === "prefix") found.prefix = value ? value.split("~").map(Number).filter(Number.isInteger) : [];
    else if (key === "muted") found.muted = value ? value.split("~") : [];
    else if (key === "patches") found.patches = value.split("|").filter((patch) => /^[a-z_0-9.]+(~-?\d+){4}$/.test(patch));
    else if (key === "anyway" || key === "all") found[key] = value === "true";
    else found[key] = value;
  }
  if (!["encoder", "decoder", "cross"].includes(found.kind)) found.kind = START.kind;
  found.beam = BEAMS.findLast((width) => width <= found.beam) ?? START.beam;
  if (found.side !== "target") found.side = "source";
  if (panelOfLink()) found.all = true;
  if (panelOfLink() === "layer") found.part = new URLSearchParams(address()).get("box");
  if (found.shows !== "looks") found.shows = "needs";
  if (!/^(decoder\.)?\d+\.\d+\.\d+$/.test(found.zoom)) found.zoom = "";
  if (!/^\d+\.\d+\.\d+(~\d+)*~[1-9]\d*(~\d+)*$/.test(found.drawn)) found.drawn = "";
  return found;
}
