/** Saves a panel as a picture: as PNG, and as SVG if it is a drawing. */

import { announce, byId, h } from "./dom.js";
import { download } from "./download.js";
import { view } from "./state.js";

const SCALE = 2; // pixels of the picture for each pixel of the page
const COLOURS = ["--paper", "--raised", "--ink", "--soft", "--line", "--accent", "--tint", "--hatch", "--other", "--sans", "--serif", "--mono",
  "--box-attention", "--box-norm", "--box-feed", "--box-embedding", "--box-linear", "--box-softmax", "--frame"];
/** A picture does not scroll and has no buttons. */
const ADDED = ".panel { margin: 0 !important; padding: 24px !important; border: 0 !important; } .scroll, .numbers { overflow: visible !important; max-width: none !important; } .save { display: none !important; }";

/** What a picture shows: the model, the text and its answer. */
const credit = () => `${view.model ? `${view.model}: ` : ""}${byId("text").value} → ${byId("answer").textContent} · seq2see`;

/** The name of a file: the model, the text and the panel. */
function named(/** @type {HTMLElement} */ panel, /** @type {string} */ ending) {
  const text = byId("text").value.replaceAll(/[^\p{L}\p{N}]+/gu, "-").slice(0, 40);
  return `${[view.model, text, panel.id].filter(Boolean).join("-")}.${ending}`;
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
  canvas.toBlob((/** @type {Blob} */ blob) => download(named(panel, "png"), blob));
}

const KEPT = ["fill", "stroke", "stroke-width", "stroke-linecap", "stroke-linejoin", "stroke-dasharray", "opacity", "fill-opacity", "font-family", "font-size", "font-weight", "font-style", "text-anchor", "text-decoration-line"];

/** A colour in a form that every program reads: mixtures are computed. */
function plain(/** @type {string} */ colour) {
  if (colour === "none" || colour.startsWith("url")) return colour;
  const context = h("canvas", { width: 1, height: 1 }).getContext("2d");
  context.fillStyle = colour;
  context.fillRect(0, 0, 1, 1);
  const [r, g, b, a] = context.getImageData(0, 0, 1, 1).data;
  return a === 0 ? "none" : `#${[r, g, b].map((part) => part.toString(16).padStart(2, "0")).join("")}`;
}

/** Say beside the buttons why nothing was saved. */
function say(/** @type {HTMLElement} */ panel, /** @type {string} */ text) {
  announce(text);
  const place = panel.querySelector(".save-note");
  if (place) place.textContent = text;
}

/** Save a drawing with its styles written into it, so that it needs no style sheet. */
function saveSvg(/** @type {HTMLElement} */ panel) {
  const drawing = panel.querySelector("svg");
  if (!drawing) return say(panel, "There is no drawing here yet.");
  const copy = /** @type {SVGElement} */ (drawing.cloneNode(true));
  const [ours, theirs] = [drawing, copy].map((root) => [root, ...root.querySelectorAll("*")]);
  ours.forEach((element, index) => {
    const style = getComputedStyle(element);
    for (const name of KEPT) {
      const value = style.getPropertyValue(name);
      if (value) theirs[index].setAttribute(name, name === "fill" || name === "stroke" ? plain(value) : value);
    }
    for (const name of ["class", "tabindex", "role", "aria-label", "aria-pressed", "data-box"]) theirs[index].removeAttribute(name);
  });
  const paper = getComputedStyle(document.documentElement).getPropertyValue("--paper");
  const back = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  const [x, y, width, height] = (copy.getAttribute("viewBox") ?? "").split(" ");
  for (const [name, value] of Object.entries({ x, y, width, height, fill: plain(paper) })) back.setAttribute(name, value);
  copy.prepend(back, Object.assign(document.createElementNS("http://www.w3.org/2000/svg", "title"), { textContent: credit() }));
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  return download(named(panel, "svg"), new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" }));
}

/** The buttons beside a panel’s title. */
export function saveButtons(/** @type {string} */ title, /** @type {boolean} */ drawing) {
  const button = (/** @type {string} */ kind, /** @type {(panel: HTMLElement) => any} */ save) =>
    h("button", { type: "button", className: "link", "aria-label": `save ${title} as ${kind}`, onclick: (/** @type {any} */ event) => save(event.currentTarget.closest(".panel")) }, kind);
  return h("span", { className: "save" }, h("span", { className: "save-note" }), button("PNG", savePng), drawing && button("SVG", saveSvg));
}
