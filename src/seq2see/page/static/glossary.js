/** The glossary: terms that the answers of a model of sentences must hold. The server enforces it; a page file does not. */

import { saved } from "./backend.js";
import { byId } from "./dom.js";

/** Read a term a line, as term = translation; a term alone stays as it is. @returns {Record<string, string|null>|undefined} */
export function glossaryOf(/** @type {string} */ text) {
  /** @type {Map<string, string|null>} */ const terms = new Map();
  for (const line of text.split("\n")) {
    const at = line.indexOf("=");
    const term = (at < 0 ? line : line.slice(0, at)).trim();
    const target = (at < 0 ? "" : line.slice(at + 1).trim()) || null;
    if (!term && target) throw new Error(`The glossary has no term before “= ${target}”: write term = translation.`);
    if (terms.has(term) && terms.get(term) !== target) throw new Error(`The glossary has “${term}” twice, with two translations: leave one out.`);
    if (term) terms.set(term, target);
  }
  return terms.size ? Object.fromEntries(terms) : undefined;
}

/** The terms that the reader has written; none for a model without sentences. */
export const writtenTerms = () => (byId("glossary").hidden ? "" : byId("terms").value.trim());

/** Show the field for models of sentences, with the terms of the view. */
export function showGlossary(/** @type {boolean} */ sentences, /** @type {string} */ terms) {
  byId("glossary").hidden = saved !== null || !sentences;
  if (byId("terms").value.trim() !== terms) byId("terms").value = terms;
  if (terms) byId("glossary").open = true;
}
