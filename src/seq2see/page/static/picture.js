/** Saves a panel as a picture. */

import { byId, h } from "./dom.js";
import { download } from "./download.js";
import { view } from "./state.js";

const SCALE = 2; // pixels of the picture for each pixel of the page
const COLOURS = ["--paper", "--raised", "--ink", "--soft", "--line", "--accent", "--tint", "--hatch", "--other", "--look", "--need", "--plus", "--minus", "--frame", "--sans", "--serif", "--mono"];
/** A picture does not scroll and has no buttons. */
const ADDED = ".panel { margin: 0 !important; padding: 24px !important; border: 0 !important; } .scroll, .numbers { overflow: visible !important; max-width: none !important; } .save { display: none !important; }";

/** What a picture shows: the model, the text and its answer. */
const credit = () => `${view.model ? `${view.model}: ` : ""}${byId("text").value} → ${byId("answer").textContent} · seq2see`;

/** The name of a file: the model, the text and the panel. */
function named(/** @type {HTMLElement} */ panel) {
  const text = byId("text").value.replaceAll(/[^\p{L}\p{N}]+/gu, "-").slice(0, 40);
  return `${[view.model, text, panel.id].filter(Boolean).join("-")}.png`;
}

const escaped = (/** @type {string} */ text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll('"', "&quot;");

/** Write a panel as an SVG that contains the HTML, in the current colours. */
function framed(/** @type {HTMLElement} */ panel, /** @type {number} */ width, /** @type {number} */ height) {
  const copy = /** @type {HTMLElement} */ (panel.cloneNode(true));
  copy.append(h("p", { className: "credit" }, credit()));
  const painted = panel.querySelectorAll("canvas");
  copy.querySelectorAll("canvas").forEach((canvas, index) => {
    const image = h("img", { src: painted[index].toDataURL() });
    image.style.cssText = "display: block; width: 100%; height: 100%; image-rendering: pixelated;";
    canvas.replaceWith(image);
  });
  const style = getComputedStyle(document.documentElement);
  const colours = COLOURS.map((name) => `${name}: ${style.getPropertyValue(name)}`).join("; ");
  const rules = [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules]).map((rule) => rule.cssText).join("\n");
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" style="${escaped(colours)}"><style>${escaped(rules + ADDED)}</style>`
    + `<foreignObject width="100%" height="100%"><div xmlns="http://www.w3.org/1999/xhtml" style="font: 16px/1.55 var(--sans); font-variant-numeric: tabular-nums lining-nums; color: var(--ink); background: var(--paper); min-height: 100%">`
    + `${new XMLSerializer().serializeToString(copy)}</div></foreignObject></svg>`;
}

/** Save a panel as it looks. */
async function savePng(/** @type {HTMLElement} */ panel) {
  const frame = panel.getBoundingClientRect();
  const within = [...panel.querySelectorAll(".scroll, .numbers")].map((part) => part.getBoundingClientRect().left - frame.left + part.scrollWidth);
  const width = Math.ceil(Math.max(frame.width, ...within)) + 48;
  const height = Math.ceil(frame.height) + 24 + 40; // and the line that says what it shows
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(framed(panel, width, height))}`;
  await image.decode();
  const canvas = h("canvas", { width: width * SCALE, height: height * SCALE });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  canvas.toBlob((/** @type {Blob} */ blob) => download(named(panel), blob));
}

/** The button beside a panel’s title. */
export const saveButton = (/** @type {string} */ title) => h("span", { className: "save" }, h("button", {
  type: "button", className: "link", "aria-label": `save ${title} as PNG`, onclick: (/** @type {any} */ event) => savePng(event.currentTarget.closest(".panel")),
}, "PNG"));
