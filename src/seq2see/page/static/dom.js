/** Small helpers to build the page. */

/**
 * Make an element: properties, `on…` listeners, attributes with a hyphen or an unknown name, then children.
 * @param {string} tag
 * @param {Record<string, any>} [properties]
 * @param {...(Node|string|number|null|undefined|false)} children
 * @returns {any}
 */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key in element && !key.includes("-")) /** @type {any} */ (element)[key] = value;
    else element.setAttribute(key, String(value));
  }
  append(element, children);
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

/**
 * Make an SVG element.
 * @param {string} tag
 * @param {Record<string, any>} [attributes]
 * @param {...(Node|string)} children
 * @returns {any}
 */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, String(value));
  }
  append(element, children);
  return element;
}

/** @param {Element} element @param {any[]} children */
function append(element, children) {
  for (const child of children) {
    if (child !== null && child !== undefined && child !== false) element.append(/** @type {any} */ (child));
  }
}

/** Make a group one stop of the Tab key; within it the arrow keys move. */
export function roving(/** @type {Element} */ group, /** @type {string} */ items) {
  const all = () => /** @type {HTMLElement[]} */ ([...group.querySelectorAll(items)]);
  const reach = (/** @type {HTMLElement|undefined} */ chosen) => all().forEach((item) => item.setAttribute("tabindex", item === chosen ? "0" : "-1"));
  reach(all()[0]);
  group.addEventListener("keydown", (event) => {
    const { key } = /** @type {KeyboardEvent} */ (event);
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[key];
    const place = all().indexOf(/** @type {HTMLElement} */ (document.activeElement));
    if (!by || place < 0) return;
    all()[Math.max(0, Math.min(all().length - 1, place + by))].focus();
    event.preventDefault();
    event.stopPropagation();
  });
  group.addEventListener("focusin", ({ target }) => reach(/** @type {HTMLElement} */ (target)));
}

/** @param {string} id @returns {any} */
export function byId(id) {
  return document.getElementById(id);
}

/** Write a number for people: a true minus, −∞, and an exponent where digits would be zeros. */
export function number(/** @type {number} */ x, digits = 4) {
  if (x === -Infinity) return "−∞";
  const small = x !== 0 && Math.abs(x) < 0.5 * 10 ** -digits;
  return (small ? x.toExponential(1) : x.toFixed(digits)).replaceAll("-", "−");
}

/** Write a whole number with commas. The browser’s own function first loads the rules of a language, which takes 0.3 s. */
export function thousands(/** @type {number} */ n) {
  return String(n).replaceAll(/\B(?=(\d{3})+$)/g, ",");
}

/** Write a probability as a percentage: values near 1 and near 0 are written as > 99.9% and < 0.1%. In 32 bits what is near 1 may be 1. */
export function percent(/** @type {number} */ p) {
  if (p >= 0.9995) return "> 99.9%";
  return p >= 0.0005 || p === 0 ? `${(100 * p).toFixed(1)}%` : "< 0.1%";
}

/** Write a log-probability, in nats. */
export const nats = (/** @type {number} */ x) => (Math.abs(x) < 0.005 ? "0.00" : number(x, 2));

/** Make an invisible token visible. */
export function visible(/** @type {string} */ token) {
  return { " ": "␣", "\n": "↵", "\t": "⇥" }[token] ?? token;
}

const SUBSCRIPTS = "₀₁₂₃₄₅₆₇₈₉";

/** Tokens as names: one that occurs again carries its position, so that no two have the same name. @returns {string[]} */
export function named(/** @type {string[]} */ tokens) {
  /** @type {Map<string, number>} */ const counts = new Map();
  for (const token of tokens) counts.set(token, (counts.get(token) ?? 0) + 1);
  return tokens.map((token, index) => visible(token) + ((counts.get(token) ?? 0) > 1 ? [...String(index)].map((digit) => SUBSCRIPTS[Number(digit)]).join("") : ""));
}

/** Show every character of a token: many sub-word tokens begin with a space, and another token has no space. */
export function exact(/** @type {string} */ token) {
  return visible(token).replace(/^ /, "␣");
}

/** Let the page do other things first. */
export const nextTask = () => new Promise((/** @type {(value: void) => void} */ resolve) => { setTimeout(resolve); });

/** Announce a message to screen readers. */
export function announce(/** @type {string} */ text) {
  byId("live").textContent = text;
}

/** @type {Map<string, boolean>} */ const drawn = new Map();

/** A character drawn as a small picture, as bytes. */
function looks(/** @type {string} */ letter) {
  const canvas = h("canvas", { width: 20, height: 20 });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.font = "16px sans-serif";
  context.fillText(letter, 1, 16);
  return String(context.getImageData(0, 0, 20, 20).data);
}

/** Whether the fonts here have all characters of a text: a missing character is drawn as an empty box, always the same. */
export function canShow(/** @type {string} */ text) {
  const foreign = [...text].filter((letter) => letter > "\u2fff");
  for (const letter of foreign) if (!drawn.has(letter)) drawn.set(letter, looks(letter) !== looks("\u{10ffff}") && looks(letter) !== looks("\u2fe0"));
  return foreign.every((letter) => drawn.get(letter));
}
