/** The parts that all panels share. */

import { h, nextTask } from "./dom.js";
import { heats } from "./heat.js";
import { saveButton } from "./picture.js";

export const flowWidth = () => document.getElementById("flow")?.clientWidth ?? 700;

const AT_ONCE = 25; // milliseconds of work, then the page may do something else

/** Call `act` on each item, and let the page do other work in between. Stop if `goesOn` then says no; return whether all was done. */
export async function unhurried(/** @type {any[]} */ items, /** @type {(item: any) => any} */ act, /** @type {() => boolean} */ goesOn) {
  let end = performance.now() + AT_ONCE;
  for (const [index, item] of items.entries()) {
    act(item);
    if (index === items.length - 1 || performance.now() < end) continue;
    await nextTask();
    if (!goesOn()) return false;
    end = performance.now() + AT_ONCE;
  }
  return true;
}

/** A node, or a function that makes one when its turn comes. @typedef {Node|(() => Node)} Part */

/** Which call fills an element at present, and the least height that the element had before. @type {WeakMap<any, {turn: symbol, least: string}>} */
const filling = new WeakMap();

/**
 * Append parts, `anew` in place of others. They are made one by one, and the page may do other work in between.
 * If the element is filled again meanwhile, this call stops.
 */
export async function inSlices(/** @type {any} */ place, /** @type {Part[]} */ parts, anew = false) {
  const mine = { turn: Symbol("turn"), least: filling.get(place)?.least ?? place.style.minHeight };
  filling.set(place, mine);
  if (anew) {
    place.style.minHeight = `${place.offsetHeight}px`; // the content below must not move
    place.replaceChildren();
  }
  const put = (/** @type {Part} */ part) => place.append(typeof part === "function" ? part() : part);
  if (!(await unhurried(parts, put, () => filling.get(place) === mine))) return;
  filling.delete(place);
  if (anew) place.style.minHeight = mine.least;
}

/**
 * A panel. Its title appears at once; its content appears when it comes into sight or when the page is idle. A panel in sight
 * follows each step at once, the others when they come into sight or when the selection rests.
 */
export class Panel {
  /**
   * @param {string} id
   * @param {string} title
   * @param {string} sentence
   * @param {() => any[]} make what stands below the sentence
   * @param {(changed: Set<string>) => any} [follow] follows the selection
   */
  constructor(id, title, sentence, make, follow = () => {}) {
    this.make = make;
    this.follow = follow;
    this.filled = false;
    this.inSight = true; // until the observer says otherwise
    /** What has changed since it followed. @type {Set<string>} */ this.owed = new Set();
    this.element = h("section", { id, className: "panel", "aria-labelledby": `${id}-title`, "data-waiting": "" },
      h("div", { className: "title" }, h("h2", { id: `${id}-title`, tabIndex: -1 }, title), saveButton(title)),
      h("p", { className: "sentence" }, sentence));
  }

  fill() {
    if (this.filled) return;
    this.filled = true;
    this.grow(this.make().filter(Boolean));
  }

  /** Append what was made. */
  async grow(/** @type {Part[]} */ parts) {
    await inSlices(this.element, parts);
    this.element.style.minHeight = "";
    delete this.element.dataset.waiting;
  }

  update(/** @type {Set<string>} */ changed) {
    if (!this.filled) return;
    for (const key of changed) this.owed.add(key);
    if (this.inSight || [...changed].some((key) => key !== "step")) this.catchUp(); // other changes are few, and may change its height
  }

  /** Follow all changes so far. */
  catchUp() {
    if (!this.owed.size) return;
    const changed = this.owed;
    this.owed = new Set();
    this.follow(changed);
    for (const heat of heats) if (this.element.contains(heat.element)) heat.update();
  }
}

const REST = 1000; // milliseconds after the last change; a step of playing is shorter
let resting = 0;

/** Let panels follow a change: those in sight now, the others one by one after the last of many changes. */
export function updateAll(/** @type {Panel[]} */ panels, /** @type {Set<string>} */ changed) {
  for (const heat of heats) if (!heat.element.isConnected) heats.delete(heat);
  for (const panel of panels) panel.update(changed);
  clearTimeout(resting);
  const next = () => {
    const panel = panels.find(({ owed, element }) => owed.size && element.isConnected);
    if (!panel) return;
    panel.catchUp();
    whenIdle(next);
  };
  resting = window.setTimeout(next, REST);
}

/** @type {IntersectionObserver|undefined} */ let watching;
/** @type {IntersectionObserver|undefined} */ let sight;

const whenIdle = (/** @type {() => void} */ act) => ("requestIdleCallback" in window ? requestIdleCallback(act, { timeout: 500 }) : setTimeout(act, 30));

/** Fill panels: the visible ones now, the others one by one when the page is idle or when they come near. */
export function fillAll(/** @type {Panel[]} */ panels) {
  watching?.disconnect();
  sight?.disconnect();
  for (const panel of panels) {
    const { top, bottom } = panel.element.getBoundingClientRect();
    if (top < innerHeight && bottom > 0) panel.fill();
  }
  const eyes = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) if (isIntersecting) panels.find(({ element }) => element === target)?.fill();
  }, { rootMargin: "400px" });
  watching = eyes;
  for (const { element, filled } of panels) if (!filled) eyes.observe(element);
  sight = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      const panel = /** @type {Panel} */ (panels.find(({ element }) => element === target));
      panel.inSight = isIntersecting;
      if (isIntersecting) panel.catchUp();
    }
  });
  for (const { element } of panels) sight.observe(element);
  const next = () => {
    const panel = panels.find(({ element }) => "waiting" in element.dataset);
    if (!panel || watching !== eyes) return; // newer panels have replaced these
    panel.fill();
    whenIdle(next);
  };
  requestAnimationFrame(() => setTimeout(() => whenIdle(next))); // the visible panels are painted first
}

/** Do something once, when an element comes near: the values of a large model are fetched then. */
export function whenSeen(/** @type {HTMLElement} */ element, /** @type {() => void} */ act) {
  const eyes = new IntersectionObserver((entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    eyes.disconnect();
    act();
  }, { rootMargin: "300px" });
  eyes.observe(element);
}

/** Scroll to a panel and move the focus there. It stays there while the panels above it are filled, until the reader acts. */
export function goTo(/** @type {string} */ id) {
  const acted = new AbortController();
  for (const kind of ["wheel", "touchstart", "pointerdown", "keydown"]) addEventListener(kind, () => acted.abort(), { capture: true, signal: acted.signal });
  const settle = (/** @type {number} */ looks) => {
    if (acted.signal.aborted) return;
    document.getElementById(id)?.scrollIntoView();
    if (looks || document.querySelector("#flow [data-waiting]")) setTimeout(() => settle(Math.max(0, looks - 1)), 100);
  };
  settle(5);
  document.getElementById(`${id}-title`)?.focus({ preventScroll: true });
}
