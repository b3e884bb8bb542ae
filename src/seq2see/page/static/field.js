/** The field for the text: it grows with the text, and the model in this file answers while the reader types. */

import { inside } from "./backend.js";
import { byId, h } from "./dom.js";

const PAUSE = 300; // milliseconds after a key until the text is answered

/** Let the field be as high as its text, where the browser does not do that itself. */
export function fitText() {
  if (CSS.supports("field-sizing", "content")) return;
  const { style } = byId("text");
  style.height = "auto";
  style.height = `${byId("text").scrollHeight}px`;
}

/** Write a long text and its answer in a smaller font, so that the flight below stays visible. */
export function fitLength() {
  const many = byId("text").value.length + byId("answer").textContent.length;
  byId("ask").classList.toggle("wordy", many > 44);
  byId("ask").classList.toggle("wordier", many > 160);
}

/** Highlight parts of the text, each from its first character to the one after its last, counted in UTF-16. */
export function lightText(/** @type {[number, number][]} */ ranges) {
  const { value } = byId("text");
  let end = 0;
  /** @type {(string|HTMLElement)[]} */ const parts = [];
  for (const [first, last] of [...ranges].sort(([a], [b]) => a - b)) {
    if (first < end || last <= first) continue;
    parts.push(value.slice(end, first), h("mark", {}, value.slice(first, last)));
    end = last;
  }
  byId("mirror").replaceChildren(...(parts.length ? [...parts, value.slice(end)] : []));
  byId("mirror").scrollTop = byId("text").scrollTop;
}

/** Listen to the field. A server is asked at the end of a text, not while it is typed. `changed` is told of every key. */
export function setUpField(/** @type {(text: string, midway?: boolean) => void} */ ask, /** @type {() => void} */ changed) {
  /** @type {number|undefined} */ let pausing;
  const text = byId("text");
  byId("ask").addEventListener("submit", (/** @type {Event} */ event) => {
    event.preventDefault();
    clearTimeout(pausing);
    ask(text.value);
  });
  text.addEventListener("input", () => {
    clearTimeout(pausing);
    fitText();
    lightText([]);
    changed();
    if (inside) pausing = window.setTimeout(() => ask(text.value, true), PAUSE);
  });
  text.addEventListener("scroll", () => { byId("mirror").scrollTop = text.scrollTop; });
  text.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return; // Shift+Enter begins a new line
    event.preventDefault();
    byId("ask").requestSubmit();
  });
}
