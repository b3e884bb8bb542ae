/**
 * The stage: how one token comes about. A stream runs down through the layers. In each layer gates to its left look back at what is
 * written, and gates to its right look at the text; what they fetch joins the stream, which ends in the vector of the next token.
 */

import { askTrace } from "./backend.js";
import { attention } from "./data.js";
import { byId, exact, h, percent, roving, visible } from "./dom.js";
import { gatesOf, isForced, linksOf, lookOf, namesOf, PALE, saying, signOf } from "./needs.js";
import { goTo } from "./section.js";
import { change, view } from "./state.js";
import { term } from "./terms.js";
import { showZoom } from "./zoom.js";

/** @typedef {import("./data.js").Trace} Trace */
/** @typedef {import("./main.js").Model} Model */
/** @typedef {import("./panels.js").FetchMore} FetchMore */
/** @typedef {import("./needs.js").Gate} Gate */
/** What one moment shows: the share that each gate gives to each token, how much it is needed, the vector, its scale. @typedef {{shares: number[][], needs: number[], vector: number[], span: number}} Moment */
/** @typedef {{x: number, y: number}} Point */
/** @typedef {{gate: number, token: number, share: number, from: Point, to: Point}} Thread */
/** @typedef {ReturnType<Flight["places"]>} Places */

const TAKES = 560; // milliseconds of one flight
const FAINT = 0.02; // a share below which a thread is not drawn
const CANDIDATES = 4;
const LIKELY = 0.001; // a probability below which a candidate has no bar
const STAYS = 700; // milliseconds at a letter; a step of playing is shorter
const GREAT = 10; // a fall of the log-probability with the thickest thread
const JOIN = 24; // pixels from a gate down to where it joins the stream
const FEW = 16; // gates with room for a number in their label

const still = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
const ease = (/** @type {number} */ t) => (t < 0.5 ? 2 * t * t : 1 - (2 - 2 * t) ** 2 / 2);
const mix = (/** @type {number} */ a, /** @type {number} */ b, /** @type {number} */ t) => a + (b - a) * t;
/** The progress from 0 to 1 of a part of the flight that lasts from one share of it to another. */
const within = (/** @type {number} */ t, /** @type {number} */ from, /** @type {number} */ to) => Math.min(1, Math.max(0, (t - from) / (to - from)));

/** A point of the curve that leaves and arrives upright. @returns {Point} */
function along(/** @type {Point} */ { x: x0, y: y0 }, /** @type {Point} */ { x: x1, y: y1 }, /** @type {number} */ t) {
  const middle = (y0 + y1) / 2;
  const u = 1 - t;
  return { x: u * u * u * x0 + 3 * u * u * t * x0 + 3 * u * t * t * x1 + t * t * t * x1, y: u * u * u * y0 + 3 * u * u * t * middle + 3 * u * t * t * middle + t * t * t * y1 };
}

/** The colours of the theme; they are kept, because asking for them in each frame makes the browser compute all styles. @type {Record<string, string>|undefined} */
let colours;
function themed() {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries(["look", "need", "soft", "plus", "minus", "line"].map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

/** Whether the focus came from the keyboard, not from a click. */
const byKeys = (/** @type {FocusEvent} */ { target }) => /** @type {Element} */ (target).matches(":focus-visible");

class Flight {
  /** @param {Trace} trace @param {Model} model @param {boolean} live @param {FetchMore} fetchMore */
  constructor(trace, model, live, fetchMore) {
    this.trace = trace;
    this.model = model;
    this.live = live;
    this.fetchMore = fetchMore;
    this.gates = gatesOf(trace);
    /** The tokens of the text, and those that are written. @type {{cross: HTMLElement[], decoder: HTMLElement[]}} */ this.tokens = { cross: [], decoder: [] };
    /** @type {HTMLElement[]} */ this.buttons = [];
    /** @type {Thread[]} */ this.drawn = [];
    /** @type {any} */ this.placed = null; // where everything stands
    /** @type {any} */ this.stage = null;
    /** @type {any} */ this.canvas = null;
    /** @type {any} */ this.bars = null;
    /** @type {any} */ this.next = null;
    this.lit = -1; // the gate that is pointed at
    this.litToken = -1; // the token of the text that is pointed at
    this.phase = 1;
    this.began = 0;
    this.frame = 0;
    this.now = this.moment(view.step);
    this.before = this.now;
  }

  get step() {
    return Math.min(view.step, this.trace.steps.length - 1);
  }

  isOpen(/** @type {number} */ gate) {
    return !view.muted.includes(this.gates[gate].key);
  }

  /** Whether it is known what the answer needs. */
  get isKnown() {
    return this.trace.effects.has(this.gates[0].key);
  }

  /** Whether the stage shows what the token needs, not only where the gates look. A forced token was not chosen for a need. */
  get byNeed() {
    return view.shows === "needs" && this.isKnown && !isForced(this.trace, this.step);
  }

  /** @returns {Moment} */
  moment(/** @type {number} */ step) {
    const row = Math.min(step, this.trace.steps.length - 1);
    const shares = this.gates.map(({ kind, layer, head }) => {
      const A = this.trace.matrix(`${attention(kind, layer)}.weights`, head);
      return Array.from({ length: A.cols }, (_, s) => A.at(row, s));
    });
    const needs = this.gates.map(({ key }) => Math.max(0, this.trace.fall(key, row) || 0));
    if (!this.trace.has("decoder.out")) return { shares, needs, vector: [], span: 1 };
    const out = this.trace.matrix("decoder.out");
    let span = 1e-9;
    for (let t = 0; t < out.rows; t += 1) for (let d = 0; d < out.cols; d += 1) span = Math.max(span, Math.abs(out.at(t, d)));
    return { shares, needs, vector: Array.from({ length: out.cols }, (_, d) => out.at(row, d)), span };
  }

  /** Fly to the step of the view. */
  fly() {
    this.before = this.shown();
    this.now = this.moment(view.step);
    this.say();
    if (still() || !inSight) {
      cancelAnimationFrame(this.frame);
      this.phase = 1;
      this.draw();
      return;
    }
    this.began = performance.now();
    this.phase = 0;
    this.placed = null;
    cancelAnimationFrame(this.frame);
    const tick = (/** @type {number} */ now) => {
      this.phase = Math.min(1, Math.max(0, (now - this.began) / TAKES));
      this.draw(true);
      if (this.phase < 1 && flight === this) this.frame = requestAnimationFrame(tick);
    };
    this.frame = requestAnimationFrame(tick);
  }

  /** What is seen at this moment, between two steps. @returns {Moment} */
  shown() {
    const t = ease(within(this.phase, 0, 0.5));
    const u = ease(within(this.phase, 0.45, 0.8));
    const { before, now } = this;
    return {
      shares: now.shares.map((row, g) => row.map((share, s) => mix(before.shares[g]?.[s] ?? 0, share, t))), needs: now.needs.map((need, g) => mix(before.needs[g] ?? 0, need, t)),
      vector: now.vector.map((x, d) => mix(before.vector[d] ?? 0, x, u)), span: now.span,
    };
  }

  /** Where tokens, gates and the vector stand on the stage. */
  places() {
    const frame = this.stage.getBoundingClientRect();
    const of = (/** @type {Element} */ element, bottom = true) => {
      const { left, width, top, height } = element.getBoundingClientRect();
      return { x: left + width / 2 - frame.left, y: (bottom ? top + height : top) - frame.top };
    };
    const vector = this.bars.getBoundingClientRect();
    const next = this.next.getBoundingClientRect();
    const chip = document.querySelector(`.chip[data-step="${view.step}"]`);
    const stream = of(this.stage.querySelector(".block"), false);
    const bottoms = this.buttons.map((gate) => of(gate));
    return {
      width: frame.width, height: frame.height, stream,
      tokens: { cross: this.tokens.cross.map((token) => of(token)), decoder: this.tokens.decoder.map((token) => of(token)) },
      tops: this.buttons.map((gate) => of(gate, false)), bottoms, joins: bottoms.map(({ y }) => ({ x: stream.x, y: y + JOIN })),
      vector: { x: vector.left - frame.left, y: vector.top - frame.top, width: vector.width, height: vector.height },
      leave: (next.left < vector.right ? next.bottom : vector.bottom) - frame.top, // on a telephone the list is below the vector
      chip: chip ? Math.min(frame.width - 8, Math.max(8, of(chip).x)) : frame.width / 2,
    };
  }

  /** @returns {Thread[]} */
  threads(/** @type {Moment} */ { shares }, /** @type {Places} */ { tokens, tops }) {
    return shares.flatMap((row, gate) => row.flatMap((share, token) => (share < FAINT || !tokens[this.gates[gate].kind][token] ? [] : [{ gate, token, share, from: tokens[this.gates[gate].kind][token], to: tops[gate] }])));
  }

  /** Whether a gate is muted: it is not needed, or, where that is not shown, it looks back. */
  isPale(/** @type {number} */ gate, /** @type {number[]} */ needs) {
    return this.byNeed ? needs[gate] < PALE : this.gates[gate].kind === "decoder";
  }

  /** Draw this moment. While something flies, everything else stays where it is. */
  draw(again = false) {
    const place = (this.placed = (again && this.placed) || this.places());
    const { canvas } = this;
    const dense = Math.min(2, window.devicePixelRatio || 1);
    if (canvas.width !== Math.round(place.width * dense) || canvas.height !== Math.round(place.height * dense)) {
      canvas.width = Math.round(place.width * dense);
      canvas.height = Math.round(place.height * dense);
    }
    const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    pen.setTransform(dense, 0, 0, dense, 0, 0);
    pen.clearRect(0, 0, place.width, place.height);
    const colour = (colours ??= themed());
    const moment = this.shown();
    pen.lineCap = "round";
    this.drawStream(pen, place, colour);
    this.drawn = this.threads(moment, place).sort((a, b) => Number(this.isPale(b.gate, moment.needs)) - Number(this.isPale(a.gate, moment.needs)));
    for (const thread of this.drawn) this.drawThread(pen, thread, moment.needs, colour);
    this.drawJoins(pen, place, moment, colour);
    this.drawVector(pen, place.vector, moment, colour);
    if (this.phase < 1) this.drawPulses(pen, place, colour);
    this.landing(pen, place, colour);
    pen.globalAlpha = 1;
  }

  curve(/** @type {CanvasRenderingContext2D} */ pen, /** @type {Point} */ from, /** @type {Point} */ to) {
    const middle = (from.y + to.y) / 2;
    pen.beginPath();
    pen.moveTo(from.x, from.y);
    pen.bezierCurveTo(from.x, middle, to.x, middle, to.x, to.y);
    pen.stroke();
  }

  /** The stream: from the token that was written last down to the vector. */
  drawStream(/** @type {CanvasRenderingContext2D} */ pen, /** @type {Places} */ { stream, tokens, vector }, /** @type {Record<string, string>} */ colour) {
    [pen.strokeStyle, pen.lineWidth, pen.globalAlpha] = [colour.soft, 3, 0.4];
    const last = tokens.decoder[this.step];
    if (last) this.curve(pen, last, stream);
    this.curve(pen, stream, { x: vector.x + vector.width / 2, y: vector.y });
  }

  drawThread(/** @type {CanvasRenderingContext2D} */ pen, /** @type {Thread} */ { gate, token, share, from, to }, /** @type {number[]} */ needs, /** @type {Record<string, string>} */ colour) {
    const open = this.isOpen(gate);
    const isLit = gate === this.lit || (this.gates[gate].kind === "cross" && token === this.litToken);
    const pale = this.isPale(gate, needs) && !isLit;
    pen.strokeStyle = !open || pale ? colour.soft : colour.look;
    pen.globalAlpha = (!open ? 0.35 : pale ? 0.08 + 0.2 * share : 0.15 + 0.75 * share) * (this.lit < 0 && this.litToken < 0 ? 1 : isLit ? 1 : 0.2);
    pen.lineWidth = !open ? 0.8 + 1.5 * share : pale ? 0.7 + 2 * share : 0.7 + 9 * share;
    pen.setLineDash(open ? [] : [2, 5]);
    this.curve(pen, from, to);
    pen.setLineDash([]);
  }

  /** How strong the thread below a gate is, from 0 to 1: by how much it is needed, or by how much it looks at one place. */
  strength(/** @type {number} */ gate, /** @type {Moment} */ { shares, needs }) {
    return this.byNeed ? Math.sqrt(Math.min(1, needs[gate] / GREAT)) : (this.gates[gate].kind === "cross" ? 0.6 : 0.15) * Math.max(...shares[gate]);
  }

  /** The threads from the gates to the stream. */
  drawJoins(/** @type {CanvasRenderingContext2D} */ pen, /** @type {Places} */ { bottoms, joins }, /** @type {Moment} */ moment, /** @type {Record<string, string>} */ colour) {
    bottoms.forEach((from, gate) => {
      if (!this.isOpen(gate)) return;
      const strength = this.strength(gate, moment);
      const pale = this.isPale(gate, moment.needs);
      pen.strokeStyle = pale ? colour.soft : this.byNeed ? colour.need : colour.look;
      pen.globalAlpha = (this.lit < 0 || gate === this.lit ? 1 : 0.25) * (pale ? 0.22 : 0.35 + 0.6 * strength);
      pen.lineWidth = pale ? 0.8 : 1 + 9 * strength;
      this.curve(pen, from, joins[gate]);
    });
  }

  drawVector(/** @type {CanvasRenderingContext2D} */ pen, /** @type {{x: number, y: number, width: number, height: number}} */ { x, y, width, height }, /** @type {Moment} */ { vector, span }, /** @type {Record<string, string>} */ colour) {
    const middle = y + height / 2;
    pen.globalAlpha = 1;
    pen.fillStyle = colour.line;
    pen.fillRect(x, middle - 0.5, width, 1);
    const wide = width / Math.max(1, vector.length);
    vector.forEach((value, d) => {
      const tall = (value / span) * (height / 2 - 2);
      pen.fillStyle = value < 0 ? colour.minus : colour.plus;
      pen.fillRect(x + d * wide, tall > 0 ? middle - tall : middle, Math.max(0.8, wide - (wide > 4 ? 2 : 0)), Math.abs(tall));
    });
  }

  /** The moving dots: from the tokens to the gates, from the gates to the stream. */
  drawPulses(/** @type {CanvasRenderingContext2D} */ pen, /** @type {Places} */ place, /** @type {Record<string, string>} */ colour) {
    const dot = (/** @type {Point} */ { x, y }, /** @type {number} */ size) => {
      pen.beginPath();
      pen.arc(x, y, size, 0, 7);
      pen.fill();
    };
    pen.globalAlpha = 1;
    const first = within(this.phase, 0.05, 0.5);
    const second = within(this.phase, 0.42, 0.75);
    const moves = (/** @type {number} */ gate) => this.isOpen(gate) && !this.isPale(gate, this.now.needs);
    pen.fillStyle = colour.look;
    for (const { gate, share, from, to } of this.threads(this.now, place)) {
      if (!moves(gate) || share < 0.12 || first <= 0 || first >= 1) continue;
      for (const late of [0, 0.09, 0.18]) if (first > late) dot(along(from, to, ease(first - late)), 1.5 + 3.5 * share - 8 * late * share);
    }
    pen.fillStyle = this.byNeed ? colour.need : colour.look;
    this.gates.forEach((_, gate) => {
      if (moves(gate) && second > 0 && second < 1) dot(along(place.bottoms[gate], place.joins[gate], ease(second)), 1.5 + 4 * this.strength(gate, this.now));
    });
  }

  /** The line from the vector to the token that it becomes, as far as it has come. */
  landing(/** @type {CanvasRenderingContext2D} */ pen, /** @type {Places} */ { vector, leave, chip, height }, /** @type {Record<string, string>} */ colour) {
    const third = within(this.phase, 0.7, 1);
    if (third <= 0) return;
    const from = { x: vector.x + vector.width / 2, y: leave };
    const to = { x: chip, y: height };
    [pen.strokeStyle, pen.globalAlpha, pen.lineWidth] = [colour.soft, 0.55, 2];
    pen.beginPath();
    for (let t = 0; t <= ease(third) + 1e-6; t += 1 / 24) {
      const { x, y } = along(from, to, t);
      if (t) pen.lineTo(x, y);
      else pen.moveTo(x, y);
    }
    pen.stroke();
  }

  /** Say in a sentence what happens, shade the tokens that the letter is linked to, and list the likeliest tokens. */
  say() {
    const { trace, step: t } = this;
    const step = trace.steps[t];
    byId("flight-says").replaceChildren(h("span", {}, ...saying(trace, t)));
    this.nameGates();
    this.tokens.decoder.forEach((token, s) => {
      token.classList.toggle("later", s > t);
      token.classList.toggle("last", s === t);
    });
    const ends = /^<.+>$/.test(step.token);
    const links = ends || isForced(trace, t) ? [] : linksOf(trace, t);
    this.askWhy(links.indexOf(Math.max(...links)));
    this.tokens.cross.forEach((button, s) => button.style.setProperty("--link", `${Math.round(100 * (links[s] ?? 0) ** 2)}%`));
    const before = trace.steps.slice(0, view.step).map((one) => one.id);
    const choose = (/** @type {import("./data.js").Choice} */ { id, token }, /** @type {any[]} */ ...more) => h("button", {
      type: "button", disabled: !this.live, tabIndex: id === step.id ? 0 : -1, "aria-pressed": String(id === step.id), "aria-label": more.length ? undefined : `write ${exact(token)} instead`, title: id === step.id ? "chosen" : "write this instead",
      onclick: () => id !== step.id && change({ prefix: [...before, id] }),
    }, h("span", { className: "token" }, exact(token)), ...more);
    const listed = step.top.slice(0, CANDIDATES);
    const shown = listed.filter(({ id, probability }) => probability >= LIKELY || id === step.id);
    const others = listed.filter((one) => !shown.includes(one));
    this.next.replaceChildren(...shown.map((one) => {
      const bar = h("i");
      bar.style.width = `${100 * one.probability}%`;
      return h("li", { className: one.id === step.id ? "chosen" : "" }, choose(one, h("span", { className: "bar" }, bar), h("small", {}, percent(one.probability))));
    }), ...(others.length && this.live ? [h("li", { className: "instead" }, h("small", {}, "or make it write"), ...others.map((one) => choose(one)))] : []));
  }

  /** Name each gate by what it looks at most to write this letter: for another letter it looks elsewhere. */
  nameGates() {
    this.buttons.forEach((button, gate) => {
      const { kind, layer, head } = this.gates[gate];
      const { token, share, fall } = lookOf(this.trace, this.gates[gate], this.step);
      const sign = signOf(this.trace[kind === "cross" ? "source" : "target"][token].token);
      const [open, part] = [this.isOpen(gate), `${Math.round(100 * share)}%`];
      const needed = this.byNeed && fall >= PALE;
      const worth = this.byNeed ? (needed ? `, needed: log P falls by ${fall.toFixed(2)} without it` : ", not needed") : "";
      button.setAttribute("aria-label", `${kind === "cross" ? "Gate" : "Looking back"}: head ${head} of layer ${layer}, ${open ? `${part} of its attention on ‘${sign}’${worth}` : "closed"}`);
      button.classList.toggle("needed", open && needed);
      button.classList.toggle("pale", open && this.isPale(gate, this.now.needs));
      const amount = needed ? `−${fall.toFixed(1)}` : this.byNeed ? "" : part;
      const short = this.gates.length > FEW && needed; // one of the two fits
      button.querySelector("small")?.replaceChildren(...(open ? [short ? "" : h("span", {}, this.gates.length > FEW ? sign : `‘${sign}’`), " ", amount] : ["closed"]));
    });
  }

  /** Explain a letter that the text does not have by the digit that it is linked to most, when the reader stays at this letter. */
  askWhy(/** @type {number} */ place) {
    const { steps, source } = this.trace;
    clearTimeout(waiting);
    waiting = 0; // nor does an answer that is still awaited say anything
    byId("flight-why").textContent = "";
    const copied = source.some(({ token }) => token === steps[this.step].token);
    const { step } = this;
    if (this.live && this.model.small && !copied && /^\d$/.test(source[place]?.token ?? "")) waiting = window.setTimeout(() => this.sayWhy(step, place), STAYS);
  }

  /** Put other digits in the place of one, and say which letter the model would write then. */
  async sayWhy(/** @type {number} */ step, /** @type {number} */ place) {
    const { steps, source, json: { text } } = this.trace;
    const [{ token: digit, span: [from] }, { token: written }] = [source[place], steps[step]];
    const prefix = steps.slice(0, step).map(({ id }) => id);
    const mine = waiting;
    const say = (/** @type {string} */ why) => { byId("flight-why").textContent = why; };
    let tried = 0;
    for (let by = 1; by < 10; by += 1) {
      const other = String((Number(digit) + by) % 10);
      const input = [...text].map((sign, at) => (at === from ? other : sign)).join("");
      const found = await askTrace({ ...this.trace.question, input, prefix, names: [], anyway: true }).catch(() => null);
      if (flight !== this || mine !== waiting) return;
      const letter = found?.steps[step]?.token;
      if (letter === undefined || found.unfit) continue; // there is no such date
      if (letter !== written) return say(`The text has no ‘${visible(written)}’. If the shaded ${digit} were ${other}, the model would write ‘${visible(letter)}’ here.`);
      tried += 1;
    }
    if (tried) say(`No other digit in place of the shaded ${digit} changes the ‘${visible(written)}’.`);
  }

  /** Build the stage. */
  build() {
    const { trace } = this;
    this.canvas = h("canvas", { "aria-hidden": "true" });
    const light = (/** @type {number} */ gate, /** @type {number} */ token) => () => {
      [this.lit, this.litToken] = [gate, token];
      this.draw();
    };
    const lighting = (/** @type {number} */ gate, /** @type {number} */ token) => ({ onpointerenter: light(gate, token), onpointerleave: light(-1, -1), onfocus: (/** @type {FocusEvent} */ event) => byKeys(event) && light(gate, token)(), onblur: light(-1, -1) });
    const special = (/** @type {string} */ token) => (/^<.+>$/.test(token) ? "special" : "");
    this.tokens.cross = trace.source.map(({ token }, s) => h("button", {
      type: "button", className: special(token), title: "zoom into what is fetched from here", "aria-label": `${visible(token).trim()}: zoom in`, onclick: () => this.zoomTo(s), ...lighting(-1, s),
    }, signOf(token)));
    this.tokens.decoder = trace.target.map(({ token }) => h("span", { className: special(token) }, signOf(token)));
    const few = this.gates.length <= FEW;
    this.buttons = this.gates.map(({ key, head }, gate) => {
      const open = this.isOpen(gate);
      return h("button", {
        type: "button", ...(this.live ? { role: "switch", "aria-checked": String(open) } : {}), className: "gate", disabled: !this.live, "data-gate": key,
        title: open ? "close this gate: the head is switched off" : "open this gate again",
        onclick: () => change({ muted: open ? [...view.muted, key] : view.muted.filter((other) => other !== key) }), ...lighting(gate, -1),
      }, h("b", {}, open ? head : "✕"), h("small"));
    });
    const layers = Array.from({ length: trace.layers("cross") }, (_, layer) => {
      const side = (/** @type {Gate["kind"]} */ kind) => h("div", { className: `heads ${kind}` }, ...this.buttons.filter((__, gate) => this.gates[gate].layer === layer && this.gates[gate].kind === kind));
      const open = () => {
        change({ part: "decoder.feed_forward", layer, all: true });
        goTo("layer");
      };
      return h("div", { className: "gate-layer" }, side("decoder"), h("div", { className: "block" }, h("span", {}, `layer ${layer}`), h("button", { type: "button", className: "feed", title: "the feed-forward network of this layer, in numbers", onclick: open }, "feed-forward")), side("cross"));
    });
    this.bars = h("div", { className: "vector", role: "img", "aria-label": "The vector that becomes the next token" });
    this.next = h("ol", { className: "candidates", "aria-label": "What might come next" });
    const many = (/** @type {any[]} */ tokens) => (tokens.length > 24 ? " many" : "");
    const wrote = h("div", { className: `reads wrote${many(trace.target)}`, dir: "auto", role: "group", "aria-label": "What it has written" }, ...this.tokens.decoder);
    const reads = h("div", { className: `reads text${many(trace.source)}`, dir: "auto", role: "group", "aria-label": "What it reads" }, ...this.tokens.cross);
    const maps = h("button", { type: "button", className: "link", title: "the maps of the encoder", onclick: () => { change({ all: true }); goTo("encoder"); } }, "read by the encoder");
    const gates = h("div", { className: `gates${few ? "" : " many"}`, role: "group", "aria-label": "Heads of the decoder, as gates" }, ...layers);
    this.stage = h("div", { className: "sky", onclick: (/** @type {PointerEvent} */ event) => this.hit(event) }, this.canvas,
      h("div", { className: "inputs" }, h("div", {}, h("small", {}, "written so far"), wrote), h("div", {}, h("small", {}, "the text, ", maps), reads)), gates,
      h("div", { className: "becomes" }, h("small", {}, "the vector of the next token"), this.bars, this.next));
    roving(reads, "button");
    roving(gates, "button");
    roving(this.next, "button");
    byId("stage").replaceChildren(this.stage);
    showLegend();
    this.say();
    this.draw();
    if (!trace.has("decoder.out")) this.fetchMore(["decoder.out"]).then(() => flight === this && this.arrived());
    if (this.live && this.model.small && !this.isKnown) this.find();
  }

  /** Close each head once, the answer held: some at a time, so that the page can say how far it is. */
  async find() {
    const names = namesOf(this.trace).filter((name) => this.model.small || !name.startsWith("encoder"));
    const some = this.model.small ? names.length : 8;
    for (let done = 0; done < names.length; done += some) {
      if (!this.model.small) byId("finding").replaceChildren(h("progress", { max: names.length, value: done, "aria-label": "gates closed" }), ` ${done} of ${names.length}`);
      const why = await this.fetchMore([], { effects: names.slice(done, done + some) });
      if (flight !== this) return;
      if (why) byId("finding").textContent = why;
      if (why) return;
    }
    showLegend();
    this.arrived();
    if (!this.next.contains(document.activeElement)) this.say();
  }

  /** Draw again after numbers have arrived. */
  arrived() {
    this.now = this.moment(view.step);
    if (!this.next.contains(document.activeElement)) this.say(); // a share may have been rounded before
    this.draw();
  }

  /** Zoom into the thread under the pointer. */
  hit(/** @type {PointerEvent} */ event) {
    if (/** @type {Element} */ (event.target).closest("button")) return;
    const frame = this.stage.getBoundingClientRect();
    const at = { x: event.clientX - frame.left, y: event.clientY - frame.top };
    let best = { far: 10, gate: -1, token: -1 };
    for (const { gate, token, share, from, to } of this.drawn) {
      if (!this.isOpen(gate)) continue;
      const pale = this.isPale(gate, this.now.needs);
      for (let t = 0; t <= 1; t += 1 / 24) {
        const { x, y } = along(from, to, t);
        const far = Math.hypot(x - at.x, y - at.y) - (pale ? 0 : 4 * share);
        if (far < best.far) best = { far, gate, token };
      }
    }
    if (best.gate >= 0) this.zoomTo(best.token, best.gate);
  }

  /** Open the thread from a token: through the gate that looks at it most, unless one is given. */
  zoomTo(/** @type {number} */ token, gate = this.now.shares.map((row, g) => (this.gates[g].kind === "cross" ? row[token] : -1)).reduce((best, share, g, all) => (share > all[best] ? g : best), 0)) {
    const { kind, layer, head } = this.gates[gate];
    change({ zoom: `${kind === "cross" ? "" : "decoder."}${layer}.${head}.${token}`, kind, layer, head });
  }
}

/** @type {Flight|undefined} */ let flight;
let waiting = 0; // the timer of the sentence that says why
byId("flight-key").append("Gates are the ", term("head", "heads"), " of each ", term("layer"), ": those on the left look back at what is written, those on the right at the text. Layers, heads and steps count from 0. The bars are the ", term("vector"), " that becomes the next ", term("token"), ".");
roving(byId("flight-key"), ".explained");
let inSight = true; // a flight that nobody sees does not move
new IntersectionObserver((entries) => { inSight = entries[entries.length - 1].isIntersecting; }).observe(byId("stage"));
new ResizeObserver(() => flight?.draw()).observe(byId("stage")); // what was drawn while a zoom hid the stage had no room

/** The switch above the stage, and what the threads mean. */
function showLegend() {
  if (!flight) return;
  const { isKnown, live, model, gates } = flight;
  const option = (/** @type {import("./state.js").View["shows"]} */ shows, /** @type {string} */ words) => h("button", { type: "button", value: shows, "aria-pressed": String(view.shows === shows), onclick: () => change({ shows }) }, words);
  const held = byId("legend").contains(document.activeElement) ? /** @type {HTMLButtonElement} */ (document.activeElement).value : "";
  const says = view.shows === "looks" ? [h("i", { className: "look" }), "where each gate looks. To look is not to need."]
    : isKnown ? [h("i", { className: "need" }), "needed: without the gate, ", term("log P", "log P"), " of this token falls by that much", h("span", { className: "fine" }, " (0.7 halves it)"), ". ", h("i", { className: "look" }), "where it looks"]
      : live && model.small ? [h("i", { className: "look" }), "where each gate looks"] : live ? [h("button", { type: "button", className: "quiet", onclick: () => flight?.find() }, `Close each of the ${gates.length} gates once`)] : ["this file does not hold what the answer needs"];
  byId("legend").replaceChildren(h("div", { className: "choice", role: "group", "aria-label": "What the threads show" }, option("needs", "what it needs"), option("looks", "where it looks")), h("span", { id: "finding" }, ...says));
  if (held) byId("legend").querySelector(`[value="${held}"]`)?.focus({ preventScroll: true });
}

/** Build the stage for a trace. The shares move from the ones that were shown to the new ones. */
export function buildFlight(/** @type {Trace} */ trace, /** @type {Model} */ model, /** @type {boolean} */ live, /** @type {FetchMore} */ fetchMore) {
  const held = byId("stage").contains(document.activeElement) ? document.activeElement?.getAttribute("data-gate") : null;
  const before = flight?.trace.source.length === trace.source.length && flight.gates.length === gatesOf(trace).length ? flight.shown() : undefined;
  flight = new Flight(trace, model, live, fetchMore);
  byId("flight").classList.remove("empty");
  flight.build();
  if (before) {
    [flight.now, flight.phase] = [before, 1];
    flight.fly();
  }
  if (held) /** @type {HTMLElement|null} */ (document.querySelector(`[data-gate="${held}"]`))?.focus({ preventScroll: true });
  openZoom();
}

/** Zoom into the thread of the view, or out. */
const openZoom = () => flight && showZoom(flight.trace, flight.live, flight.fetchMore, () => flight?.trace);

/** Follow the view. */
export function followFlight(/** @type {Set<string>} */ changed) {
  if (!flight) return;
  if (changed.has("step")) flight.fly();
  if (changed.has("shows")) {
    showLegend();
    flight.arrived();
  }
  if (changed.has("zoom") && !still() && "startViewTransition" in document) {
    name(true);
    document.startViewTransition(openZoom).finished.finally(() => name(false)); // tokens, gate and vector move to their new places
  } else if (changed.has("zoom") || changed.has("step")) openZoom();
}

/** Name the elements that are the same before and after zooming, so that the browser animates between them. */
function name(/** @type {boolean} */ on) {
  document.documentElement.classList.toggle("zooming", on);
}

/** Draw anew, after the window or the theme has changed, or numbers have come. */
export function redrawFlight() {
  colours = undefined;
  flight?.arrived();
}
