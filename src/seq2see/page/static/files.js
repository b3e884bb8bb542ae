/** Files: a file that is dropped on the page is translated, and the translation can be saved. */

import { saved } from "./backend.js";
import { announce, byId, h, thousands } from "./dom.js";
import { view } from "./state.js";

/** How a file is read, by the end of its name. */
const FORMATS = /** @type {Record<string, string>} */ ({ txt: "text", text: "text", md: "markdown", markdown: "markdown", html: "html", htm: "html", srt: "srt", po: "po", pot: "po", json: "json" });
const NAMES = /** @type {Record<string, string>} */ ({ text: "plain text", markdown: "Markdown", html: "HTML", srt: "subtitles", po: "PO", json: "JSON" });
const KNOWN = ["txt", "md", "html", "srt", "po", "json"];

let named = ""; // the file that the text is from

/** Read a file as a text and its format, or throw an error that says what is wrong with it. */
async function contentOf(/** @type {File} */ file, /** @type {number} */ most) {
  const ending = file.name.split(".").at(-1)?.toLowerCase() ?? "";
  const format = FORMATS[ending];
  if (!format) throw new Error(`${file.name} cannot be translated: a file that ends in ${KNOWN.join(", ")} was expected.`);
  if (file.size > most) throw new Error(`${file.name} has ${thousands(file.size)} bytes, and this server takes ${thousands(most)} at most: cut it up, or use seq2see predict --format ${format}.`);
  const bytes = new Uint8Array(await file.arrayBuffer());
  if (bytes.subarray(0, 65536).includes(0)) throw new Error(`${file.name} is binary data, not text: a text in UTF-8 was expected.`);
  try {
    return { text: new TextDecoder("utf-8", { fatal: true }).decode(bytes), format };
  } catch {
    throw new Error(`${file.name} is not UTF-8 text: convert it first.`);
  }
}

/**
 * Set up opening, dropping and saving files. `ask` gets a text and its format; `refuse` an error; `translated` is
 * what the page shows.
 * @param {{ask: (text: string, format: string) => void, refuse: (error: Error) => void, translated: () => string, most: number}} page
 */
export function setUpFiles({ ask, refuse, translated, most }) {
  const take = async (/** @type {File|undefined} */ file) => {
    if (!file) return;
    try {
      const { text, format } = await contentOf(file, most);
      named = file.name;
      ask(text, format);
    } catch (error) {
      refuse(/** @type {Error} */ (error));
    }
  };
  const place = document.querySelector(".ask");
  const over = (/** @type {boolean} */ is) => place?.classList.toggle("over", is);
  const wanted = (/** @type {any} */ event) => !byId("opening").hidden && event.dataTransfer?.types.includes("Files");
  for (const [name, is] of /** @type {[string, boolean][]} */ ([["dragover", true], ["dragleave", false], ["drop", false]])) {
    place?.addEventListener(name, (event) => {
      if (!wanted(event)) return;
      event.preventDefault();
      over(is);
      if (name === "drop") take(/** @type {DragEvent} */ (event).dataTransfer?.files[0]);
    });
  }
  byId("file").addEventListener("change", () => {
    take(byId("file").files[0]);
    byId("file").value = ""; // the same file may be chosen again
  });
  byId("copy").addEventListener("click", async () => {
    await navigator.clipboard.writeText(translated());
    byId("copy").textContent = "Copied";
    announce("copied");
    setTimeout(() => { byId("copy").textContent = "Copy"; }, 2000);
  });
  byId("download").addEventListener("click", () => {
    const link = h("a", { href: URL.createObjectURL(new Blob([translated()], { type: "text/plain;charset=utf-8" })), download: fileName() });
    link.click();
    URL.revokeObjectURL(link.href);
  });
}

/** The name of the translated file: page.html becomes page.fr.html with en-fr. */
function fileName() {
  const [, language = "translated"] = /^[a-z]{2,3}-([a-z]{2,3})$/.exec(view.model) ?? [];
  const ending = Object.keys(FORMATS).find((each) => FORMATS[each] === view.form) ?? "txt";
  const [, stem, end] = /^(.*)\.([^.]*)$/.exec(named) ?? ["", "text", ending];
  return `${stem}.${language}.${end}`;
}

/** Show the buttons of a model of sentences, and the format of the text. */
export function showTools(/** @type {boolean} */ sentences, /** @type {() => void} */ asText) {
  byId("tools").hidden = !sentences;
  byId("opening").hidden = !sentences || saved !== null; // a page file reads plain text only
  if (!view.form) named = "";
  byId("kind").replaceChildren(...(view.form ? [`${named ? `${named}, ` : ""}read as ${NAMES[view.form] ?? view.form}`] : []), ...(view.form && view.form !== "text" ? [" · ", h("button", { type: "button", className: "link", onclick: asText }, "read as plain text")] : []));
}
