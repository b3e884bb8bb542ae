/** A matrix as a picture: an enlarged canvas with one pixel for each cell, a grid for the keyboard, a table on request. */

import { announce, h, number, visible } from "./dom.js";
import { place } from "./data.js";
import { current, hover, pin, view } from "./state.js";

/** @typedef {import("./data.js").Cell} Cell */

/** @type {Set<Heat>} */
export const heats = new Set();

/** @returns {number[][]} colours of the theme, from the style sheet */
function stops(/** @type {string} */ name) {
  const style = getComputedStyle(document.documentElement);
  return style.getPropertyValue(name).trim().split(/\s+/).map((hex) =>
    [1, 3, 5].map((index) => Number.parseInt(hex.slice(index, index + 2), 16)));
}

const LEAST = 12; // pixels of a cell that has a name
const TALLEST = 560; // pixels; a taller matrix scrolls

const NAMED = 8; // pixels of a cell that is large enough to label
const MARGIN = 14; // pixels for the tokens beside a small map

const EVERY = [1, 2, 4, 8, 16, 32, 64, 128]; // every how many dimensions a number is shown
const SHADES = 1020; // four for each value of a byte

/** @type {Map<string, Uint8ClampedArray>} */
const scales = new Map();

/** Forget the colours after the theme has changed. */
export function forgetColours() {
  scales.clear();
}

/** The colours of a scale from 0 to SHADES, three numbers each. They are kept, because reading the style sheet for each matrix is slow. */
function scale(/** @type {string} */ name) {
  const known = scales.get(name);
  if (known) return known;
  const colours = stops(name);
  const found = new Uint8ClampedArray(3 * (SHADES + 1));
  for (let shade = 0; shade <= SHADES; shade += 1) {
    const at = (shade / SHADES) * (colours.length - 1);
    const index = Math.min(colours.length - 2, Math.floor(at));
    found.set(colours[index].map((low, channel) => low + (colours[index + 1][channel] - low) * (at - index)), 3 * shade);
  }
  scales.set(name, found);
  return found;
}

/**
 * Paint a matrix, one pixel for each cell: shares from 0 to 1, or numbers with a sign, of which `darkest` has the strongest shade.
 * A cell that is hidden or −∞ stays transparent.
 */
export function paintCells(/** @type {HTMLCanvasElement} */ canvas, /** @type {import("./data.js").Matrix} */ { rows, cols, at }, /** @type {number|null} */ darkest = null, /** @type {(row: number, col: number) => boolean} */ hidden = () => false) {
  const colours = scale(darkest === null ? "--shares" : "--signed");
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const image = context.createImageData(Math.max(1, cols), Math.max(1, rows));
  for (let row = 0; row < rows; row += 1) {
    for (let col = 0; col < cols; col += 1) {
      const x = at(row, col);
      if (x === -Infinity || hidden(row, col)) continue;
      const shade = 3 * Math.round(SHADES * Math.min(1, Math.max(0, darkest === null ? x : 0.5 + x / darkest / 2)));
      const pixel = 4 * (row * cols + col);
      for (let channel = 0; channel < 3; channel += 1) image.data[pixel + channel] = colours[shade + channel];
      image.data[pixel + 3] = 255;
    }
  }
  context.putImageData(image, 0, 0);
}

/** Describe one cell in words. */
export function spoken(/** @type {import("./data.js").Trace} */ trace, /** @type {Cell} */ cell) {
  const labels = trace.labels(cell.name, cell.head);
  const value = number(trace.matrix(cell.name, cell.head).at(cell.row, cell.col), 2);
  const row = labels.says[cell.row];
  const at = place(cell.name);
  if (!at) return `${trace.tensor(cell.name, cell.head).symbol}: ${row}, dimension ${cell.col}, ${value}`;
  const where = cell.head < 0 ? `layer ${at.layer}:` : `layer ${at.layer}, head ${cell.head}:`;
  if (at.role === "weights") return `${where} ${row}, attends to ‘${labels.cols[cell.col].trim()}’, ${value}`;
  const col = ["q", "k", "v", "z", "out"].includes(at.role) ? `dimension ${cell.col}` : `‘${labels.cols[cell.col].trim()}’`;
  return `${where} ${trace.tensor(cell.name, cell.head).symbol} of ${row} and ${col}, ${value}`.replace(" and dimension", ", dimension");
}

/** The largest absolute value of a matrix; masked cells do not count. */
export function largestOf(/** @type {import("./data.js").Matrix} */ { rows, cols, at }) {
  let largest = 1e-9;
  for (let row = 0; row < rows; row += 1) {
    for (let col = 0; col < cols; col += 1) {
      const x = Math.abs(at(row, col));
      if (x < Infinity) largest = Math.max(largest, x);
    }
  }
  return largest;
}

const WIDE = 128; // columns
const SAMPLE = 4000; // sampled numbers of a large matrix: sorting all of them takes too long

/** The number of the darkest shade. In a wide matrix a few outliers would make all others pale: 99 of 100 numbers are below it. */
export function usualOf(/** @type {import("./data.js").Matrix} */ matrix, largest = largestOf(matrix)) {
  const { rows, cols, at } = matrix;
  if (cols < WIDE) return largest;
  const count = Math.min(rows * cols, SAMPLE);
  const some = Float32Array.from({ length: count }, (_, n) => {
    const place = Math.floor((n / count) * rows * cols);
    return Math.abs(at(Math.floor(place / cols), place % cols));
  }).sort();
  return Math.max(some[Math.floor(0.99 * (count - 1))], 1e-9);
}

export class Heat {
  /**
   * @param {import("./data.js").Trace} trace
   * @param {string} name
   * @param {{head?: number, box?: number, most?: number, labels?: boolean, title?: string, about?: string, steps?: boolean, largest?: number}} [options]  largest: the number of the darkest shade, else that of the matrix
   */
  constructor(trace, name, options = {}) {
    const { head = -1, box = 300, most = 18, labels = true, title, about, steps = false, largest } = options;
    this.trace = trace;
    this.name = name;
    this.head = head;
    this.steps = steps;
    this.matrix = trace.matrix(name, head);
    this.shares = name.endsWith(".weights");
    this.most = this.shares ? 1 : largestOf(this.matrix);
    this.darkest = this.shares ? 1 : (largest ?? usualOf(this.matrix, this.most)); // signed numbers are shaded relative to it
    this.scaled = largest !== undefined; // the caller chose the scale and says so
    this.labels = trace.labels(name, head);
    const { rows, cols } = this.matrix;
    const tokens = labels && this.labels.cols[0] !== "0"; // a cell for two tokens is square, and large enough for their names
    const px = tokens ? Math.max(LEAST, Math.min(most, Math.floor(box / cols))) : labels ? Math.max(1, Math.min(most, Math.floor(box / cols))) : Math.max(cols > 100 ? 1.5 : 2, Math.min(most, (box - 1 - MARGIN) / cols));
    const py = labels ? Math.max(LEAST, Math.min(most, px)) : px;
    this.tall = labels ? rows * py : 0; // of the part that may scroll
    this.cursor = { row: 0, col: 0 };
    this.canvas = h("canvas", { width: cols, height: rows, "aria-hidden": "true" });
    this.pinMark = h("i", { className: "mark pinned", hidden: true });
    this.hoverMark = h("i", { className: "mark", hidden: true });
    this.rowMark = h("i", { className: "row-mark", hidden: true });
    this.veil = h("i", { className: "veil", hidden: true });
    this.plane = h("div", {
      className: "plane", tabIndex: 0, role: "application", "aria-roledescription": "matrix",
      "aria-label": `${about ?? title ?? trace.tensor(name, head).symbol}${head < 0 ? "" : `, head ${head}`}: ${rows} by ${cols}, arrows move, Enter pins`,
      "data-name": name, "data-head": head,
      onpointermove: (/** @type {PointerEvent} */ event) => hover(this.cellAt(event)),
      onpointerleave: () => hover(null),
      onclick: (/** @type {PointerEvent} */ event) => this.choose(this.cellAt(event)),
      onkeydown: (/** @type {KeyboardEvent} */ event) => this.key(event),
      onblur: () => hover(null),
    }, this.canvas, this.veil, this.rowMark, this.pinMark, this.hoverMark);
    this.plane.style.width = `${cols * px}px`;
    this.plane.style.height = `${rows * py}px`;
    const corner = labels ? h("div", { className: "labelled" }, this.colLabels(px), this.rowLabels(py), this.plane) : h("div", { className: "labelled small" }, this.axis("cols", px), this.axis("rows", px), this.plane);
    this.table = h("div", { className: "numbers", hidden: true, tabIndex: 0, role: "group", "aria-label": `${about ?? title} as numbers` });
    this.element = h("figure", { className: "heat" },
      title !== undefined && h("figcaption", {}, h("b", {}, title), h("span", { className: "size" }, `${rows} × ${cols}`), this.scaleNote(),
        h("button", { className: "link", type: "button", "aria-expanded": "false", "aria-label": `view ${about ?? title} as table`, onclick: (/** @type {any} */ e) => this.toggleTable(e.currentTarget) }, "table")),
      this.frame = h("div", { className: "scroll" }, corner), this.table);
    if (this.tall > TALLEST) this.frame.classList.add("tall");
    heats.add(this);
    this.paint();
    this.update();
  }

  /** The shades, in numbers. */
  scaleNote() {
    if (this.shares || this.scaled) return null;
    return h("span", { className: "size", title: "the numbers of the strongest shades" }, `±${number(this.darkest, 2)}${this.most > this.darkest ? `, at most ${number(this.most, 1)}` : ""}`);
  }

  colLabels(/** @type {number} */ px) {
    const { cols } = this.labels;
    const dims = cols[0] === "0";
    const room = 7 * String(cols.length - 1).length + 5;
    const every = dims ? (EVERY.find((n) => n * px >= room) ?? 256) : px < 7 ? Infinity : 1;
    return h("div", { className: "cols", "aria-hidden": "true" }, ...cols.flatMap((label, index) => {
      if (dims && index % every) return [];
      const span = h("span", { className: !dims && label.trim().length > 2 ? "long" : "" }, every === Infinity ? "" : visible(label));
      span.style.width = `${px * (dims ? Math.min(every, cols.length - index) : 1)}px`;
      if (dims && every > 1) span.style.textAlign = "left";
      return [span];
    }));
  }

  /** What stands beside a small map: its tokens, or, where they have no space, what its rows and columns are. */
  axis(/** @type {"rows"|"cols"} */ side, /** @type {number} */ px) {
    const down = side === "rows";
    const kind = place(this.name)?.kind;
    const names = down && kind !== "encoder" ? this.trace.steps.map(({ token }) => token) : this.trace.tokens(kind === "decoder" ? "target" : "source");
    const fits = px >= NAMED && names.every((name) => name.trim().length < 2 || /^<.+>$/.test(name));
    const words = down ? (kind === "encoder" ? "looks ↓" : "writes ↓") : "is looked at →";
    return h("div", { className: `${side} axis`, "aria-hidden": "true" }, ...(fits ? names.map((name) => {
      const span = h("span", {}, /^<s/.test(name) ? "▸" : /^<.+>$/.test(name) ? "∎" : visible(name));
      span.style[down ? "height" : "width"] = `${px}px`;
      if (down) span.style.lineHeight = `${px}px`;
      return span;
    }) : [h("span", { className: "words" }, words)]));
  }

  rowLabels(/** @type {number} */ py) {
    return h("div", { className: "rows", "aria-hidden": "true" }, ...this.labels.rows.map((label) => {
      const span = h("span", {}, visible(label));
      span.style.height = span.style.lineHeight = `${py}px`;
      return span;
    }));
  }

  /** @returns {Cell} */
  cell(/** @type {number} */ row, /** @type {number} */ col) {
    return { name: this.name, head: this.head, row, col };
  }

  cellAt(/** @type {PointerEvent} */ event) {
    const { rows, cols } = this.matrix;
    const frame = this.plane.getBoundingClientRect();
    const within = (/** @type {number} */ x, /** @type {number} */ most) => Math.min(most - 1, Math.max(0, Math.floor(x * most)));
    return this.cell(within((event.clientY - frame.top) / frame.height, rows), within((event.clientX - frame.left) / frame.width, cols));
  }

  /** Pin a cell; the whole page then shows its layer, head and row. */
  choose(/** @type {Cell} */ cell) {
    const at = place(this.name);
    this.cursor = { row: cell.row, col: cell.col };
    announce(`pinned: ${spoken(this.trace, cell)}`);
    if (!at) return pin(cell);
    const byQuery = !["k", "v"].includes(at.role);
    const row = !byQuery ? {} : at.kind === "encoder" ? { query: cell.row } : { step: cell.row };
    return pin(cell, { kind: at.kind, layer: at.layer, ...(this.head < 0 ? {} : { head: this.head }), ...row });
  }

  key(/** @type {KeyboardEvent} */ event) {
    /** @type {Record<string, [number, number]>} */
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const { rows, cols } = this.matrix;
    if (moves[event.key]) {
      const [down, right] = moves[event.key];
      this.cursor.row = Math.min(rows - 1, Math.max(0, this.cursor.row + down));
      this.cursor.col = Math.min(cols - 1, Math.max(0, this.cursor.col + right));
      hover(this.cell(this.cursor.row, this.cursor.col));
      announce(spoken(this.trace, this.cell(this.cursor.row, this.cursor.col)));
    } else if (event.key === "Enter") this.choose(this.cell(this.cursor.row, this.cursor.col));
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Paint the cells. A masked cell stays transparent and shows the hatching behind it. */
  paint() {
    const masked = this.shares && place(this.name)?.kind === "decoder";
    paintCells(this.canvas, this.matrix, this.shares ? null : this.darkest, masked ? (row, col) => col > row : undefined);
  }

  /** Move the marks to the selection. */
  update() {
    const { rows, cols } = this.matrix;
    const mark = (/** @type {any} */ element, /** @type {Cell|null} */ cell) => {
      const here = cell !== null && cell.name === this.name && cell.head === this.head && cell.row < rows && cell.col < cols;
      element.hidden = !here;
      if (here && cell) put(element, cell.row / rows, cell.col / cols, 1 / rows, 1 / cols);
    };
    const now = current();
    mark(this.pinMark, view.pin);
    mark(this.hoverMark, now === view.pin ? null : now);
    if (!this.steps) return;
    const at = place(this.name);
    const row = at?.kind === "encoder" ? view.query : view.step;
    this.rowMark.hidden = row >= rows;
    put(this.rowMark, row / rows, 0, 1 / rows, 1);
    this.veil.hidden = at?.kind === "encoder" || row >= rows - 1;
    put(this.veil, (row + 1) / rows, 0, 1 - (row + 1) / rows, 1);
    if (this.tall > TALLEST) this.frame.scrollTop = ((row + 0.5) / rows) * this.tall - TALLEST / 2;
  }

  toggleTable(/** @type {HTMLElement} */ button) {
    this.table.hidden = !this.table.hidden;
    button.setAttribute("aria-expanded", String(!this.table.hidden));
    if (this.table.hidden || this.table.firstChild) return;
    const { rows, cols, at } = this.matrix;
    const range = (/** @type {number} */ n) => Array.from({ length: n }, (_, index) => index);
    this.table.append(h("table", { "data-name": this.name, "data-head": this.head },
      h("thead", {}, h("tr", {}, h("td"), ...range(cols).map((col) => h("th", { scope: "col" }, visible(this.labels.cols[col]))))),
      h("tbody", {}, ...range(rows).map((row) => h("tr", {}, h("th", { scope: "row" }, visible(this.labels.rows[row])),
        ...range(cols).map((col) => h("td", {}, number(at(row, col)))))))));
  }
}

/** @param {HTMLElement} element @param {number} top @param {number} left @param {number} height @param {number} width */
function put(element, top, left, height, width) {
  element.style.top = `${100 * top}%`;
  element.style.left = `${100 * left}%`;
  element.style.height = `${100 * height}%`;
  element.style.width = `${100 * width}%`;
}
