/** One thread of the stage from inside: what the head seeks and what the tokens offer, the scores, the shares, the mixture. The reader may draw the shares. */

import { arithmetic, needed } from "./arithmetic.js";
import { askTrace } from "./backend.js";
import { attention } from "./data.js";
import { byId, h, number, percent, visible } from "./dom.js";
import { signOf } from "./needs.js";
import { change, drawnRow, view } from "./state.js";

/** @typedef {import("./data.js").Trace} Trace */
/** @typedef {import("./data.js").Matrix} Matrix */
/** @typedef {import("./arithmetic.js").Line} Line */

/** Numbers as bars, from a line at zero upwards or downwards. */
function bits(/** @type {number[]} */ values, /** @type {number} */ scale) {
  return h("span", { className: "bits", "aria-hidden": "true" }, ...values.map((value) => {
    const bit = h("i", { className: value < 0 ? "minus" : "" });
    bit.style.setProperty("--tall", `${Math.min(50, Math.round((50 * Math.abs(value)) / scale))}%`);
    return bit;
  }));
}

const rowOf = (/** @type {Matrix} */ matrix, /** @type {number} */ r) => Array.from({ length: matrix.cols }, (_, d) => matrix.at(r, d));

/** A step of a calculation. */
const written = (/** @type {Line} */ line, /** @type {number} */ value) => h("div", { className: "sum" }, h("p", {}, line.say),
  line.rows && h("div", { className: "terms", tabIndex: 0, role: "group", "aria-label": line.say }, h("table", {}, h("thead", {}, h("tr", {}, ...(line.head ?? []).map((name) => (name ? h("th", { scope: "col" }, name) : h("td"))))), h("tbody", {}, ...line.rows.map((cells, n) => h("tr", { className: n === line.strong ? "strong" : "" }, ...cells.map((text, c) => h(c ? "td" : "th", {}, text))))))),
  line.sum !== undefined && h("p", { className: "result" }, h("span", {}, line.sum), line.about ? " ≈ " : " = ", h("b", {}, number(line.value ?? value, 4))));

/** A share below its bar: on a telephone there is no space for decimals. */
const asShare = (/** @type {number} */ share) => (matchMedia("(max-width: 600px)").matches ? `${Math.round(100 * share)}%` : percent(share));

const back = () => h("button", { type: "button", className: "quiet", title: "Esc", onclick: () => change({ zoom: "" }) }, "Back to the stage");

/** Shares that the reader draws: they sum to 1, and where one is pulled, the others yield in proportion. */
class Shares {
  constructor(/** @type {number[]} */ given) {
    this.now = [...given];
    this.held = [...given]; // when the current pull began
  }

  grip() {
    this.held = [...this.now];
  }

  pull(/** @type {number} */ s, /** @type {number} */ to) {
    const share = Math.min(1, Math.max(0, to));
    const rest = 1 - this.held[s];
    this.now = this.held.map((other, at) => (at === s ? share : rest > 0.001 ? (other * (1 - share)) / rest : (1 - share) / (this.held.length - 1)));
  }
}

/**
 * Show the thread of the view, or nothing. `current` says which trace the stage shows.
 * @param {Trace} trace
 * @param {boolean} live
 * @param {import("./panels.js").FetchMore} fetchMore
 * @param {() => Trace|undefined} current
 */
export async function showZoom(trace, live, fetchMore, current) {
  const place = byId("zoom");
  const found = /^(decoder\.)?(\d+)\.(\d+)\.(\d+)$/.exec(view.zoom);
  const kind = found?.[1] ? "decoder" : "cross";
  const [layer, head, token] = (found ?? []).slice(2).map(Number);
  const side = kind === "cross" ? trace.source : trace.target;
  const open = found !== null && layer < trace.layers("cross") && head < trace.heads && token < side.length;
  byId("flight").classList.toggle("zoomed", open);
  place.hidden = !open;
  if (!open) return place.replaceChildren();
  const base = attention(kind, layer);
  if (!trace.has(`${base}.q`, head) || !trace.exact(`${base}.weights`, head)) {
    place.replaceChildren(h("p", { className: "sentence" }, "Fetching the numbers of this head …"));
    const [asked, why] = [view.zoom, await fetchMore(needed(trace, kind, layer), { head })];
    if (trace !== current() || view.zoom !== asked) return undefined;
    if (why || !trace.has(`${base}.q`, head)) return place.replaceChildren(h("p", { className: "sentence" }, why ?? "These numbers are not in this file."), back());
  }
  const [q, k, v, z, scaled, weights] = ["q", "k", "v", "z", "scaled", "weights"].map((role) => trace.matrix(`${base}.${role}`, head));
  const row = Math.min(view.step, q.rows - 1);
  const given = rowOf(weights, row);
  const { drawn } = trace.json;
  const isDrawn = kind === "cross" && drawn && drawn.layer === layer && drawn.head === head && drawn.row === row;
  const order = Array.from({ length: kind === "cross" ? k.rows : row + 1 }, (_, s) => s);
  const most = order.length > 14 ? 8 : 14;
  const kept = new Set([token, ...[...order].sort((a, b) => given[b] - given[a]).slice(0, most - 1)]);
  const columns = order.length > 14 ? order.filter((s) => kept.has(s)) : order;
  const largest = (/** @type {Matrix} */ { rows, cols, at: x }) => Math.max(1e-9, ...Array.from({ length: rows * cols }, (_, n) => Math.abs(x(Math.floor(n / cols), n % cols))));
  const span = { q: largest(q), k: largest(k), v: largest(v), scaled: Math.max(1e-9, ...columns.map((s) => Math.abs(scaled.at(row, s)))) };
  const to = (/** @type {number} */ s) => ({ zoom: `${kind === "cross" ? "" : "decoder."}${layer}.${head}.${s}` });
  const line = (/** @type {string} */ name, /** @type {string} */ says, /** @type {(s: number) => any} */ cell) => h("tr", {}, h("th", { scope: "row" }, h("b", {}, name), h("small", {}, says)),
    ...columns.map((s) => h("td", { className: s === token ? "strong" : "", onclick: () => change(to(s)) }, cell(s))));
  const draws = live && kind === "cross";
  const shares = h("tr", { className: draws ? "drawable" : "" }, h("th", { scope: "row" }, h("b", {}, "softmax"), h("small", { className: "whose" }, "")),
    ...columns.map((s) => h("td", { className: s === token ? "strong" : "", ...(draws ? { role: "slider", tabIndex: 0, "aria-label": `Share of ‘${visible(side[s].token).trim()}’, position ${s}`, "aria-valuemin": 0, "aria-valuemax": 100 } : {}) }, h("span", { className: "column" }, h("i"), h("small")))));
  const carried = columns.map((s) => bits(rowOf(v, s), span.v));
  const mixed = h("figure", { className: "seeks" });
  const sum = h("div");
  const strongest = rowOf(z, row).reduce((best, x, d, all) => (Math.abs(x) > Math.abs(all[best]) ? d : best), 0);
  /** Show shares, and what follows from them: the values in these shares, their sum z, and one number of it worked out. */
  const paint = (/** @type {number[]} */ now, /** @type {boolean} */ byHand) => {
    [...shares.querySelectorAll("td")].forEach((cell, n) => {
      cell.querySelector("i").style.setProperty("--tall", `${100 * now[columns[n]]}%`);
      cell.querySelector("small").textContent = asShare(now[columns[n]]);
      if (draws) cell.setAttribute("aria-valuenow", String(Math.round(100 * now[columns[n]])));
      carried[n].style.opacity = String(0.12 + 0.88 * now[columns[n]]);
    });
    shares.querySelector(".whose").textContent = byHand ? "shares drawn by you" : `shares of attention${draws ? ": drag the bars" : ""}`;
    const mixture = Array.from({ length: v.cols }, (_, d) => order.reduce((total, s) => total + now[s] * v.at(s, d), 0));
    mixed.replaceChildren(bits(mixture, span.v), h("figcaption", {}, h("b", {}, "z"), " what it hands on"));
    sum.replaceChildren(written({
      say: `Number ${strongest} of z: each value in proportion to its share${byHand ? ", drawn by you" : ""}`, head: ["", "share", "v", "product"], strong: columns.indexOf(token),
      rows: columns.map((s) => [signOf(side[s].token), number(now[s], 4), number(v.at(s, strongest), 4), number(now[s] * v.at(s, strongest), 4)]), sum: "Σ share·v", about: columns.length < order.length, value: mixture[strongest],
    }, 0));
  };
  const cell = { name: `${base}.weights`, head, row, col: token };
  const { lines } = arithmetic(trace, cell, "");
  const said = trace.labels(cell.name, head).says[row].replace(",", " and");
  const off = view.muted.includes(`${kind}.${layer}.${head}`);
  place.replaceChildren(
    h("div", { className: "zoom-head" }, h("h2", { tabIndex: -1 }, `Head ${head} of layer ${layer}, where it ${said}`), back()),
    off ? h("p", { className: "sentence" }, "This head is closed: what it would hand on counts for nothing.") : "",
    h("div", { className: "zoom-flow" },
      h("figure", { className: "seeks" }, bits(rowOf(q, row), span.q), h("figcaption", {}, h("b", {}, "q"), " what it seeks")),
      h("div", { className: "scroll", tabIndex: 0, role: "group", "aria-label": "One column for each token" }, h("table", { className: "unfold" }, h("thead", {}, h("tr", {}, h("td"), ...columns.map((s) => h("th", { scope: "col", className: s === token ? "strong" : "" },
        h("button", { type: "button", "aria-pressed": String(s === token), onclick: () => change(to(s)) }, signOf(side[s].token)))))),
      h("tbody", {},
        line("k", "what each token offers", (s) => bits(rowOf(k, s), span.k)),
        line("q·k ÷ √d", "how well they match", (s) => h("span", { className: "column" }, bits([scaled.at(row, s)], span.scaled), h("small", {}, number(scaled.at(row, s), 1)))),
        shares,
        line("v", "what each token carries, as strong as its share", (s) => carried[columns.indexOf(s)])))),
      mixed),
    h("details", { open: true }, h("summary", {}, `The share of ‘${visible(side[token].token).trim()}’, and what comes of it`), h("div", { className: "sums" }, ...lines.filter((one) => one.rows || one.sum !== undefined).map((one) => written(one, weights.at(row, token))), sum)));
  paint(given, Boolean(isDrawn));
  if (draws) drawable(shares, columns, `${layer}.${head}.${row}`, given, paint, trace, () => trace === current());
  if (document.activeElement === document.body || byId("stage").contains(document.activeElement)) place.querySelector("h2")?.focus({ preventScroll: true });
  return undefined;
}

/**
 * Let the reader draw the shares of a row, with a pointer over its bars or with the arrow keys on one of them. All that follows from
 * them is shown while the pointer is down, the answer too; the view follows when it is released.
 */
function drawable(/** @type {HTMLElement} */ bars, /** @type {number[]} */ columns, /** @type {string} */ place, /** @type {number[]} */ given, /** @type {(now: number[], byHand: boolean) => void} */ paint, /** @type {Trace} */ trace, /** @type {() => boolean} */ isCurrent) {
  const cells = /** @type {HTMLElement[]} */ ([...bars.querySelectorAll("td")]);
  const shares = new Shares(given);
  let [last, asking] = [-1, false];
  const row = () => `${place}~${shares.now.map((share) => Math.round(1000 * share)).join("~")}`;
  /** Ask what would be written, one request after the other. */
  const follow = async () => {
    if (asking) return;
    asking = true;
    for (let asked = ""; isCurrent() && asked !== row();) {
      asked = row();
      const json = await askTrace({ ...trace.question, drawn: drawnRow(asked), prefix: view.prefix, names: [], ...(view.anyway ? { anyway: true } : {}) }).catch(() => null);
      if (json && isCurrent()) byId("answer").textContent = json.output;
    }
    asking = false;
  };
  const pull = (/** @type {number} */ n, /** @type {number} */ share) => {
    shares.pull(columns[n], share);
    paint(shares.now, true);
    follow();
  };
  const draw = (/** @type {PointerEvent} */ { clientX, clientY }) => {
    const boxes = cells.map((cell) => /** @type {HTMLElement} */ (cell.querySelector(".column")).getBoundingClientRect());
    const n = boxes.reduce((best, { left, width }, at) => (Math.abs(left + width / 2 - clientX) < Math.abs(boxes[best].left + boxes[best].width / 2 - clientX) ? at : best), 0);
    const tall = Number.parseFloat(getComputedStyle(/** @type {HTMLElement} */ (cells[n].querySelector(".column"))).gridTemplateRows); // pixels of a whole bar
    if (n !== last) shares.grip();
    last = n;
    pull(n, 1 - (clientY - boxes[n].top) / tall);
  };
  const end = () => {
    if (last < 0) return;
    last = -1;
    change({ drawn: row() });
  };
  bars.addEventListener("pointerdown", (event) => {
    if (event.button || !(/** @type {Element} */ (event.target).closest("td"))) return;
    event.preventDefault();
    bars.setPointerCapture(event.pointerId);
    draw(event);
  });
  bars.addEventListener("pointermove", (event) => last >= 0 && draw(event));
  bars.addEventListener("pointerup", end);
  bars.addEventListener("pointercancel", end);
  bars.addEventListener("keydown", (event) => {
    const n = cells.indexOf(/** @type {HTMLElement} */ (event.target));
    const now = shares.now[columns[n]];
    const wanted = { ArrowUp: now + 0.1, ArrowRight: now + 0.1, ArrowDown: now - 0.1, ArrowLeft: now - 0.1, Home: 0, End: 1 }[event.key];
    if (n < 0 || wanted === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    shares.grip();
    pull(n, wanted);
    change({ drawn: row() });
  });
}
