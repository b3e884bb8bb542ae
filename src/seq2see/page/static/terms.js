/** Words that a newcomer does not know, each with its explanation in one sentence. */

import { h } from "./dom.js";

const SAYS = {
  head: "A head gives each token that was read a share of its attention, and hands on what it finds there, mixed in these shares.",
  layer: "A layer is one round of looking and computing; the next layer works on its results.",
  vector: "A vector is a list of numbers, drawn as bars: a positive number points up, a negative one down.",
  token: "A token is a piece of text that the model reads or writes at once: a character, a word or a part of a word.",
  sign: "A sign is a token without letters and digits, such as a hyphen, a comma or a space.",
  mixed: "A head is mixed if, over many texts, no kind of place gets much more of its attention than others.",
  "log P": "log P is the logarithm of a probability: 0 means certain, and 0.7 less means half as likely.",
};

let count = 0;

/** A word that explains itself: pointing at it shows the sentence, a click, a tap or Enter opens it, Esc closes it. */
export function term(/** @type {keyof typeof SAYS} */ word, /** @type {string} */ shown = word) {
  const note = h("span", { id: `term-${(count += 1)}`, className: "explanation", popover: "auto" }, SAYS[word]);
  const button = h("button", { type: "button", className: "explained", title: SAYS[word], popoverTargetElement: note }, shown);
  note.addEventListener("toggle", () => {
    const { left, bottom } = button.getBoundingClientRect();
    note.style.left = `${Math.max(8, Math.min(left, document.documentElement.clientWidth - note.offsetWidth - 8)) + scrollX}px`;
    note.style.top = `${bottom + scrollY + 6}px`;
  });
  return h("span", {}, button, note);
}
