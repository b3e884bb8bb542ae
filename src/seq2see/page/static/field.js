/** The field for the text: it grows with the text, and the model in this file answers while the reader types. */

import { inside } from "./backend.js";
import { byId } from "./dom.js";

const PAUSE = 300; // milliseconds after a key until the text is answered

/** Let the field be as high as its text, where the browser does not do that itself. */
export function fitText() {
  if (CSS.supports("field-sizing", "content")) return;
  const { style } = byId("text");
  style.height = "auto";
  style.height = `${byId("text").scrollHeight}px`;
}

/** Listen to the field. A server is asked at the end of a text, not while it is typed. */
export function setUpField(/** @type {(text: string, midway?: boolean) => void} */ ask) {
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
    if (inside) pausing = window.setTimeout(() => ask(text.value, true), PAUSE);
  });
  text.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return; // with Shift it is a new line
    event.preventDefault();
    byId("ask").requestSubmit();
  });
}
