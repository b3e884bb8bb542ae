/** The page of a training run: it fetches new lines of the log and draws them. */

import { byId, h, number, svg } from "../dom.js";

/**
 * @typedef {{source: string[], target: string[], tokens: Record<string, number[][]>}} Sharpness
 * @typedef {{step: number, epoch: number, loss: number|null, validation_loss: number|null, exact_match: number,
 *   learning_rate: number, seconds: number, bleu?: number|null, samples?: [string, string, string][],
 *   attention?: Sharpness|null}} Line
 * @typedef {{name: string, className: string, value: (line: Line) => number|null|undefined, text: (x: number) => string}} Series
 * @typedef {{id: string, title: string, note?: string, log?: boolean, least?: number, most?: number, tick: (x: number) => string, series: Series[]}} Chart
 */

const EVERY = 1000; // milliseconds between two requests
const PACE = 350; // milliseconds for each line while playing

/** @type {Line[]} */
let lines = [];
/** @type {any} */
let run = null;
/** @type {number|null} the chosen line of the log; null follows the run */
let chosen = null;
/** @type {number|null} the line under the pointer */
let pointed = null;
let playing = 0;

const share = (/** @type {number} */ x) => `${(100 * x).toFixed(2)}%`;
/** Write a number at an axis in at most six characters: 0.005, but 5e−4. */
const short = (/** @type {number} */ x) => (x !== 0 && Math.abs(x) < 0.001 ? x.toExponential(1).replace(".0", "") : String(Number(x.toPrecision(2)))).replace("-", "−");
const mean = (/** @type {number[]} */ xs) => xs.reduce((a, b) => a + b, 0) / xs.length;
const spread = (/** @type {string} */ kind) => (/** @type {Line} */ line) => line.attention && mean(line.attention.tokens[kind].flat());
const tokens = (/** @type {number} */ x) => `${x.toFixed(2)} tokens`;

/** @type {Chart[]} */
const CHARTS = [
  { id: "chart-loss", title: "Loss per token", note: "The training loss includes label smoothing and R-Drop, if they are used. The held-out loss is in nats.", log: true, tick: short, series: [
    { name: "training", className: "first", value: (line) => line.loss, text: (x) => number(x, 5) },
    { name: "held out", className: "second", value: (line) => line.validation_loss, text: (x) => number(x, 5) },
  ] },
  { id: "chart-score", title: "Generated answers", least: 0, most: 1, tick: (x) => `${Math.round(100 * x)}%`, series: [
    { name: "exact match", className: "first", value: (line) => line.exact_match, text: share },
    { name: "BLEU", className: "second", value: (line) => (typeof line.bleu === "number" ? line.bleu / 100 : null), text: (x) => (100 * x).toFixed(2) },
  ] },
  { id: "chart-rate", title: "Learning rate", least: 0, tick: short, series: [
    { name: "learning rate", className: "first", value: (line) => line.learning_rate, text: (x) => Number(x.toPrecision(4)).toString().replace("-", "−") },
  ] },
  { id: "chart-spread", title: "Tokens that a head spreads over", least: 1, tick: short, series: [
    { name: "cross-attention", className: "first", value: spread("cross"), text: tokens },
    { name: "encoder", className: "second", value: spread("encoder"), text: tokens },
    { name: "decoder", className: "third", value: spread("decoder"), text: tokens },
  ] },
];

const shown = () => Math.min(pointed ?? chosen ?? lines.length - 1, lines.length - 1);

/** Write seconds for people. */
function time(/** @type {number} */ seconds) {
  if (seconds < 100) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

// --- curves ----------------------------------------------------------------------------------------

/** @returns {number[]} the values at which grid lines are drawn */
function ticks(/** @type {number} */ low, /** @type {number} */ high, /** @type {boolean} */ log) {
  if (log) {
    const powers = Array.from({ length: Math.ceil(high) - Math.floor(low) + 1 }, (_, i) => Math.floor(low) + i);
    const steps = powers.length > 3 ? [1] : powers.length > 2 ? [1, 3] : [1, 2, 5];
    return powers.flatMap((power) => steps.map((step) => power + Math.log10(step))).filter((x) => x >= low - 1e-9 && x <= high + 1e-9);
  }
  const size = 10 ** Math.floor(Math.log10((high - low) / 3));
  const step = [1, 2, 5, 10].map((x) => x * size).find((x) => (high - low) / x <= 4.5) ?? high - low;
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, i) => (first + i) * step);
}

/** Redraw a whole chart, which is fast enough for a few hundred points. */
function draw(/** @type {Chart} */ chart) {
  const figure = byId(chart.id);
  const series = chart.series
    .map((each) => ({ ...each, values: lines.map((line) => each.value(line)) }))
    .filter((each) => each.values.some((x) => typeof x === "number"));
  figure.hidden = !series.length;
  if (!series.length) return;
  const now = shown();
  const scale = (/** @type {number} */ x) => (chart.log ? Math.log10(Math.max(x, 1e-12)) : x);
  const all = series.flatMap((each) => each.values.filter((x) => typeof x === "number").map((x) => scale(/** @type {number} */ (x))));
  const low = chart.least ?? Math.min(...all);
  let high = chart.most ?? Math.max(...all);
  if (high - low < 1e-9) high = low + (chart.log ? 0.1 : Math.abs(low) || 1);

  const width = Math.max(200, figure.clientWidth), height = figure.querySelector("svg")?.clientHeight || 200;
  const box = { left: 46, right: width - 10, top: 8, bottom: height - 24 };
  const end = Math.max(run.steps, lines[lines.length - 1].step);
  // the steps have a logarithmic scale, because the first ones change most
  const x = (/** @type {number} */ step) => box.left + (Math.log(Math.max(step, 1)) / Math.log(Math.max(end, 2))) * (box.right - box.left);
  const y = (/** @type {number} */ value) => box.bottom - ((value - low) / (high - low)) * (box.bottom - box.top);

  const parts = ticks(low, high, Boolean(chart.log)).flatMap((at) => [
    svg("line", { class: "grid", x1: box.left, x2: box.right, y1: y(at), y2: y(at) }),
    svg("text", { x: box.left - 8, y: y(at) + 4, "text-anchor": "end" }, chart.tick(chart.log ? 10 ** at : at)),
  ]);
  let free = -Infinity; // where the previous number ends
  for (const at of [...Array(9).keys()].flatMap((power) => [1, 2, 5].map((digit) => digit * 10 ** power)).filter((step) => step <= end)) {
    const half = 3.5 * at.toLocaleString("en").length + 4;
    if (x(at) - half < free || (at > 1 && x(at) + half > box.right + 10)) continue;
    free = x(at) + half;
    parts.push(svg("text", { x: x(at), y: height - 6, "text-anchor": at === 1 ? "start" : "middle" }, at.toLocaleString("en")));
  }
  parts.push(svg("line", { class: "cursor", x1: x(lines[now].step), x2: x(lines[now].step), y1: box.top, y2: box.bottom }));
  for (const each of series) {
    let path = "", pen = "M";
    each.values.forEach((value, index) => {
      if (typeof value !== "number") { pen = "M"; return; } // a value that is not a number leaves a gap
      path += `${pen}${x(lines[index].step).toFixed(1)},${y(scale(value)).toFixed(1)}`;
      pen = "L";
    });
    parts.push(svg("path", { class: `curve ${each.className}`, d: path, "data-points": each.values.filter((v) => typeof v === "number").length }));
    const value = each.values[now];
    if (typeof value === "number") parts.push(svg("circle", { class: each.className, cx: x(lines[now].step), cy: y(scale(value)), r: 3.5 }));
  }
  const said = series.map((each) => {
    const value = each.values[now];
    return { ...each, said: typeof value === "number" ? each.text(value) : "not a number" };
  });
  const nearest = (/** @type {PointerEvent} */ event) => {
    const frame = picture.getBoundingClientRect();
    const step = Math.max(end, 2) ** (((event.clientX - frame.left) * (width / frame.width) - box.left) / (box.right - box.left));
    return lines.reduce((best, line, index) => (Math.abs(Math.log(line.step / step)) < Math.abs(Math.log(lines[best].step / step)) ? index : best), 0);
  };
  const picture = svg("svg", {
    viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `${chart.title} at step ${lines[now].step}: ${said.map((each) => `${each.name} ${each.said}`).join(", ")}`,
    onpointermove: (/** @type {PointerEvent} */ event) => { if (event.pointerType === "mouse") point(nearest(event)); },
    onpointerleave: () => point(null),
    onclick: (/** @type {PointerEvent} */ event) => choose(nearest(event)),
  }, ...parts);
  figure.replaceChildren(
    h("figcaption", {}, h("h3", {}, chart.title), h("ul", { className: "legend" }, ...said.map((each) =>
      h("li", {}, h("i", { className: each.className }), each.name, h("b", { "data-series": each.name }, each.said))))),
    picture, chart.note ? h("p", { className: "note" }, chart.note) : "");
}

// --- answers ---------------------------------------------------------------------

/** Mark the characters in which an answer differs from the right one. */
function marked(/** @type {string} */ given, /** @type {string} */ expected) {
  return [...given].map((letter, index) => (letter === expected[index] ? letter : h("span", { className: "wrong" }, letter)));
}

function answers() {
  const samples = lines[shown()].samples ?? [];
  byId("samples").hidden = !lines.some((line) => line.samples?.length);
  byId("answers").replaceChildren(h("table", { className: "plain" },
    h("thead", {}, h("tr", {}, ...["text", "its answer", "the right answer", ""].map((text) => h("th", { scope: "col" }, text)))),
    h("tbody", {}, ...samples.map(([source, expected, given]) => h("tr", {},
      h("td", { className: "text" }, source), h("td", { className: "text" }, ...marked(given.trimEnd(), expected)),
      h("td", { className: "text" }, expected),
      h("td", { className: `verdict ${given === expected ? "right" : ""}` }, given === expected ? "✓" : "✗",
        h("span", { className: "unseen" }, given === expected ? "right" : "wrong")))))));
}

// --- the selected line -------------------------------------------------------------------------------

function point(/** @type {number|null} */ index) {
  if (index === pointed) return;
  pointed = index;
  render();
}

/** Show one line of the log; null follows the run. */
function choose(/** @type {number|null} */ index) {
  chosen = index;
  pointed = null;
  history.replaceState(null, "", index === null ? location.pathname : `#step=${lines[index].step}`);
  render();
}

function play(/** @type {boolean} */ on) {
  clearInterval(playing);
  playing = 0;
  if (on && lines.length > 1) {
    if (shown() === lines.length - 1) choose(0);
    playing = setInterval(() => {
      const next = shown() + 1;
      if (next >= lines.length - 1) play(false);
      choose(next >= lines.length - 1 ? null : next);
    }, PACE);
  }
  byId("play").textContent = playing ? "❚❚" : "▶";
  byId("play").setAttribute("aria-label", playing ? "Pause" : "Play");
}

function render() {
  if (!lines.length) return;
  const now = shown(), line = lines[now];
  byId("run").hidden = byId("scrub").hidden = false;
  const slider = byId("line");
  slider.max = lines.length - 1;
  slider.value = now;
  slider.setAttribute("aria-valuetext", `step ${line.step}`);
  byId("where").textContent = `step ${line.step.toLocaleString("en")}, ${time(line.seconds)}`;
  byId("latest").setAttribute("aria-pressed", String(chosen === null));
  CHARTS.forEach(draw);
  answers();
}

function state() {
  byId("name").textContent = run.name;
  document.title = `seq2see: training ${run.name}`;
  const last = lines[lines.length - 1];
  const done = last?.step ?? 0;
  byId("progress").value = done / run.steps;
  byId("progress").hidden = run.finished;
  const where = `step ${done.toLocaleString("en")} of ${run.steps.toLocaleString("en")}`;
  const left = last ? `, ${time(last.seconds)} so far, about ${time((last.seconds / done) * (run.steps - done))} left` : "";
  const pace = last ? (last.seconds / done) * run.evaluate_every : Infinity;
  const silent = run.quiet > Math.max(60, 5 * pace) ? ` No new line for ${time(run.quiet)}: the training may have stopped.` : "";
  const text = !run.finished && done >= run.steps ? `Training: all ${run.steps.toLocaleString("en")} steps are done; the model is being tested.${silent}` : run.finished ? `Finished: ${where}, ${time(last?.seconds ?? 0)}.`
    : last ? `Training: ${where}${left}.${silent}` : `Training: the first line of the log follows after ${run.evaluate_every.toLocaleString("en")} steps.${silent}`;
  if (byId("state").textContent !== text) byId("state").textContent = text;
}

/** Describe the model until there is a line of the log to draw. */
function waiting() {
  const place = byId("waiting");
  place.hidden = lines.length > 0;
  if (place.hidden || place.firstChild) return;
  const fact = (/** @type {string|number} */ n, /** @type {string} */ says) => h("div", {}, h("dt", {}, typeof n === "number" ? n.toLocaleString("en") : n), h("dd", {}, says));
  const { model } = run;
  place.append(
    h("p", { className: "sentence" }, "The curves and answers appear with the first line of the log."),
    h("dl", { className: "facts" }, fact(model.parameters, "numbers are learned"), fact(`${model.encoder_layers} + ${model.decoder_layers}`, "layers of encoder and decoder"),
      fact(model.d_model, "numbers in every vector, d_model"), fact(model.heads, "heads in every attention"), fact(model.target_vocabulary, "tokens that may be written"), fact(run.steps, "steps in all")));
}

async function ask() {
  try {
    const response = await fetch(`../api/run?known=${lines.length}`);
    if (!response.ok) throw new Error("This server shows no training run.");
    run = await response.json();
  } catch (error) {
    byId("error").textContent = run
      ? "The training process has ended. To see the run again, use `seq2see watch FOLDER`."
      : String(error instanceof TypeError ? "The server does not answer." : /** @type {any} */ (error).message);
    if (run) setTimeout(ask, 5 * EVERY);
    return;
  }
  byId("error").textContent = "";
  const before = lines.length;
  lines = [...lines.slice(0, run.first), ...run.lines];
  state();
  waiting();
  if (before === 0 && lines.length) {
    const step = Number(new URLSearchParams(location.hash.slice(1)).get("step"));
    const index = lines.findIndex((line) => line.step === step);
    if (index >= 0) chosen = index;
  }
  if (run.lines.length || run.first < before) render();
  if (!run.finished) setTimeout(ask, EVERY);
}

byId("line").addEventListener("input", (/** @type {any} */ event) => {
  play(false);
  choose(Number(event.target.value));
});
byId("latest").addEventListener("click", () => choose(null));
byId("play").addEventListener("click", () => play(!playing));
document.addEventListener("keydown", (event) => {
  const at = /** @type {HTMLElement} */ (event.target);
  if (event.key === "Escape") { play(false); choose(null); }
  if (event.key === " " && !at.closest("button, summary, input")) { event.preventDefault(); play(!playing); }
});
addEventListener("resize", render);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", render);
for (const chart of CHARTS) byId("curves").append(h("figure", { className: "chart", id: chart.id }));
ask();
