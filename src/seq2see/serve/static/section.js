/** What all panels are made of. */

import { h } from "./dom.js";
import { saveButtons } from "./picture.js";

/** @typedef {{element: HTMLElement, update?: (changed: Set<string>) => void}} Panel */

export const flowWidth = () => document.getElementById("flow")?.clientWidth ?? 700;

/** @returns {HTMLElement} */
export function section(/** @type {string} */ id, /** @type {string} */ title, /** @type {string} */ sentence, /** @type {any[]} */ ...children) {
  return framed(id, title, sentence, false, children);
}

/** A panel whose drawing can be saved as SVG. @returns {HTMLElement} */
export function drawn(/** @type {string} */ id, /** @type {string} */ title, /** @type {string} */ sentence, /** @type {any[]} */ ...children) {
  return framed(id, title, sentence, true, children);
}

/** @returns {HTMLElement} */
function framed(/** @type {string} */ id, /** @type {string} */ title, /** @type {string} */ sentence, /** @type {boolean} */ drawing, /** @type {any[]} */ children) {
  return h("section", { id, className: "panel", "aria-labelledby": `${id}-title` },
    h("div", { className: "title" }, h("h2", { id: `${id}-title`, tabIndex: -1 }, title), saveButtons(title, drawing)),
    h("p", { className: "sentence" }, sentence), ...children);
}

/** Do something when an element comes near, once: what a large model has not sent is fetched when it is looked at. */
export function whenSeen(/** @type {HTMLElement} */ element, /** @type {() => void} */ act) {
  const eyes = new IntersectionObserver((entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    eyes.disconnect();
    act();
  }, { rootMargin: "300px" });
  eyes.observe(element);
}

/** Go to a panel: the eyes, and whoever works by keyboard. */
export function goTo(/** @type {string} */ id) {
  const panel = document.getElementById(id);
  panel?.scrollIntoView();
  document.getElementById(`${id}-title`)?.focus({ preventScroll: true });
}
