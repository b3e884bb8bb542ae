/**
 * The flight of one letter: threads leave the tokens that are read, as thick as the attention, pass through the heads of the
 * cross-attention as gates, and merge into the vector whose bars become the next letter.
 */

import { arithmetic, needed } from "./arithmetic.js";
import { askTrace } from "./backend.js";
import { attention } from "./data.js";
import { byId, exact, h, number, percent, roving, visible } from "./dom.js";
import { change, drawnRow, view } from "./state.js";
import { term } from "./terms.js";

/** @typedef {import("./data.js").Trace} Trace */
/** @typedef {import("./ranking.js").Model} Model */
/** @typedef {import("./panels.js").FetchMore} FetchMore */
/** @typedef {{layer: number, head: number}} Gate */
/** What one moment shows: the share that each gate gives to each token, the vector, its scale. @typedef {{shares: number[][], vector: number[], span: number}} Moment */
/** @typedef {{x: number, y: number}} Point */
/** @typedef {{gate: number, token: number, share: number, from: Point, to: Point}} Thread */

const TAKES = 560; // milliseconds of one flight
const FAINT = 0.02; // a share below which a thread is not drawn
const CANDIDATES = 4;
const STAYS = 700; // milliseconds at a letter; a step of playing is shorter

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

/** How much more than usual each token of the source is looked at, by the mean of all heads: what a word is linked to. @returns {number[]} */
function linksOf(/** @type {Trace} */ trace, /** @type {number} */ step) {
  const heads = Array.from({ length: trace.layers("cross") * trace.heads }, (_, n) => trace.matrix(`${attention("cross", Math.floor(n / trace.heads))}.weights`, n % trace.heads));
  const mean = (/** @type {number} */ row, /** @type {number} */ col) => heads.reduce((sum, A) => sum + A.at(row, col), 0) / heads.length;
  const { rows, cols } = heads[0];
  const above = trace.source.map(({ token }, s) => {
    if (/^<.+>$/.test(token)) return 0;
    const usual = trace.steps.reduce((sum, _, t) => sum + mean(t, s), 0) / rows + 0.01 / cols;
    return mean(step, s) / usual;
  });
  const most = Math.max(...above, 1e-9);
  return above.map((x) => x / most);
}

/** The colours of the theme; they are kept, because asking for them in each frame makes the browser compute all styles. @type {Record<string, string>|undefined} */
let colours;
function themed() {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries(["accent", "soft", "other", "line"].map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

/** The text of a token on the stage. */
const signOf = (/** @type {string} */ token) => (/^<s/.test(token) ? "▸" : /^<.+>$/.test(token) ? "∎" : visible(token).trim() || "␣");

/** Whether the focus came from the keyboard, not from a click. */
const byKeys = (/** @type {FocusEvent} */ { target }) => /** @type {Element} */ (target).matches(":focus-visible");

class Flight {
  /** @param {Trace} trace @param {Model} model @param {boolean} live @param {FetchMore} fetchMore */
  constructor(trace, model, live, fetchMore) {
    this.trace = trace;
    this.model = model;
    this.live = live;
    this.fetchMore = fetchMore;
    /** @type {HTMLElement[]} */ this.tokens = [];
    /** @type {HTMLElement[]} */ this.buttons = [];
    /** @type {Thread[]} */ this.drawn = [];
    /** @type {any} */ this.placed = null; // where everything stands
    /** @type {any} */ this.stage = null;
    /** @type {any} */ this.canvas = null;
    /** @type {any} */ this.bars = null;
    /** @type {any} */ this.next = null;
    /** @type {Gate[]} */ this.gates = Array.from({ length: trace.layers("cross") * trace.heads }, (_, n) => ({ layer: Math.floor(n / trace.heads), head: n % trace.heads }));
    this.lit = -1; // the gate that is pointed at
    this.litToken = -1;
    this.phase = 1;
    this.began = 0;
    this.frame = 0;
    this.now = this.moment(view.step);
    this.before = this.now;
  }

  isOpen(/** @type {number} */ gate) {
    return !view.muted.includes(this.key(gate));
  }

  key(/** @type {number} */ gate) {
    return `cross.${this.gates[gate].layer}.${this.gates[gate].head}`;
  }

  /** @returns {Moment} */
  moment(/** @type {number} */ step) {
    const row = Math.min(step, this.trace.steps.length - 1);
    const shares = this.gates.map(({ layer, head }) => {
      const A = this.trace.matrix(`${attention("cross", layer)}.weights`, head);
      return Array.from({ length: A.cols }, (_, s) => A.at(row, s));
    });
    if (!this.trace.has("decoder.out")) return { shares, vector: [], span: 1 };
    const out = this.trace.matrix("decoder.out");
    let span = 1e-9;
    for (let t = 0; t < out.rows; t += 1) for (let d = 0; d < out.cols; d += 1) span = Math.max(span, Math.abs(out.at(t, d)));
    return { shares, vector: Array.from({ length: out.cols }, (_, d) => out.at(row, d)), span };
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
      shares: now.shares.map((row, g) => row.map((share, s) => mix(before.shares[g]?.[s] ?? 0, share, t))),
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
    return {
      width: frame.width, height: frame.height, tokens: this.tokens.map((token) => of(token)), tops: this.buttons.map((gate) => of(gate, false)), bottoms: this.buttons.map((gate) => of(gate)),
      vector: { x: vector.left - frame.left, y: vector.top - frame.top, width: vector.width, height: vector.height },
      leave: (next.left < vector.right ? next.bottom : vector.bottom) - frame.top, // on a telephone the list is below the vector
      chip: chip ? Math.min(frame.width - 8, Math.max(8, of(chip).x)) : frame.width / 2,
    };
  }

  /** @returns {Thread[]} */
  threads(/** @type {Moment} */ { shares }, /** @type {ReturnType<Flight["places"]>} */ { tokens, tops }) {
    return shares.flatMap((row, gate) => row.flatMap((share, token) => (share < FAINT ? [] : [{ gate, token, share, from: tokens[token], to: tops[gate] }])));
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
    this.drawn = this.threads(moment, place);
    const strength = this.gates.map((_, gate) => Math.max(...moment.shares[gate]));
    for (const thread of this.drawn) this.drawThread(pen, thread, colour);
    this.drawMerge(pen, place, strength, colour);
    this.drawVector(pen, place.vector, moment, colour);
    if (this.phase < 1) this.drawPulses(pen, place, colour);
    this.landing(pen, place, colour);
  }

  drawThread(/** @type {CanvasRenderingContext2D} */ pen, /** @type {Thread} */ { gate, token, share, from, to }, /** @type {Record<string, string>} */ colour) {
    const open = this.isOpen(gate);
    const lit = this.lit < 0 && this.litToken < 0 ? 1 : gate === this.lit || token === this.litToken ? 1 : 0.14;
    pen.strokeStyle = !open ? colour.soft : gate === this.lit || token === this.litToken ? colour.other : colour.accent;
    pen.globalAlpha = (open ? 0.12 + 0.78 * share : 0.35) * lit;
    pen.lineWidth = open ? 0.7 + 9 * share : 0.8 + 1.5 * share;
    pen.setLineDash(open ? [] : [2, 5]);
    const middle = (from.y + to.y) / 2;
    pen.beginPath();
    pen.moveTo(from.x, from.y);
    pen.bezierCurveTo(from.x, middle, to.x, middle, to.x, to.y);
    pen.stroke();
    pen.setLineDash([]);
    pen.globalAlpha = 1;
  }

  /** The threads from the gates to the vector. */
  drawMerge(/** @type {CanvasRenderingContext2D} */ pen, /** @type {ReturnType<Flight["places"]>} */ { bottoms, vector }, /** @type {number[]} */ strength, /** @type {Record<string, string>} */ colour) {
    bottoms.forEach((from, gate) => {
      if (!this.isOpen(gate)) return;
      const to = this.entrance(vector, gate);
      pen.strokeStyle = gate === this.lit ? colour.other : colour.accent;
      pen.globalAlpha = (this.lit < 0 || gate === this.lit ? 1 : 0.2) * (0.12 + 0.4 * strength[gate]);
      pen.lineWidth = 0.7 + 5 * strength[gate];
      pen.beginPath();
      pen.moveTo(from.x, from.y);
      pen.bezierCurveTo(from.x, (from.y + to.y) / 2, to.x, (from.y + to.y) / 2, to.x, to.y);
      pen.stroke();
      pen.globalAlpha = 1;
    });
  }

  /** Where what a gate lets through enters the vector. @returns {Point} */
  entrance(/** @type {{x: number, y: number, width: number}} */ { x, y, width }, /** @type {number} */ gate) {
    return { x: x + (width * (gate + 1)) / (this.gates.length + 1), y };
  }

  drawVector(/** @type {CanvasRenderingContext2D} */ pen, /** @type {{x: number, y: number, width: number, height: number}} */ { x, y, width, height }, /** @type {Moment} */ { vector, span }, /** @type {Record<string, string>} */ colour) {
    const middle = y + height / 2;
    pen.fillStyle = colour.line;
    pen.fillRect(x, middle - 0.5, width, 1);
    const wide = width / Math.max(1, vector.length);
    vector.forEach((value, d) => {
      const tall = (value / span) * (height / 2 - 2);
      pen.fillStyle = value < 0 ? colour.other : colour.accent;
      pen.fillRect(x + d * wide, tall > 0 ? middle - tall : middle, Math.max(0.8, wide - (wide > 4 ? 2 : 0)), Math.abs(tall));
    });
  }

  /** The moving dots: from the tokens to the gates, from the gates to the vector, from the vector to the answer. */
  drawPulses(/** @type {CanvasRenderingContext2D} */ pen, /** @type {ReturnType<Flight["places"]>} */ place, /** @type {Record<string, string>} */ colour) {
    const dot = (/** @type {Point} */ { x, y }, /** @type {number} */ size) => {
      pen.beginPath();
      pen.arc(x, y, size, 0, 7);
      pen.fill();
    };
    pen.fillStyle = colour.accent;
    const first = within(this.phase, 0.05, 0.5);
    const second = within(this.phase, 0.42, 0.75);
    for (const { gate, share, from, to } of this.threads(this.now, place)) {
      if (!this.isOpen(gate) || share < 0.12 || first <= 0 || first >= 1) continue;
      for (const late of [0, 0.09, 0.18]) if (first > late) dot(along(from, to, ease(first - late)), 1.5 + 3.5 * share - 8 * late * share);
    }
    this.gates.forEach((_, gate) => {
      const strength = Math.max(...this.now.shares[gate]);
      if (this.isOpen(gate) && strength > 0.12 && second > 0 && second < 1) dot(along(place.bottoms[gate], this.entrance(place.vector, gate), ease(second)), 1.5 + 3 * strength);
    });
  }

  /** The line from the vector to the letter that it becomes, as far as it has come. */
  landing(/** @type {CanvasRenderingContext2D} */ pen, /** @type {ReturnType<Flight["places"]>} */ { vector, leave, chip, height }, /** @type {Record<string, string>} */ colour) {
    const third = within(this.phase, 0.7, 1);
    if (third <= 0) return;
    const from = { x: vector.x + vector.width / 2, y: leave };
    const to = { x: chip, y: height };
    pen.strokeStyle = colour.accent;
    pen.globalAlpha = 0.55;
    pen.lineWidth = 2;
    pen.beginPath();
    for (let t = 0; t <= ease(third) + 1e-6; t += 1 / 24) {
      const { x, y } = along(from, to, t);
      if (t) pen.lineTo(x, y);
      else pen.moveTo(x, y);
    }
    pen.stroke();
    pen.globalAlpha = 1;
  }

  /** The largest share that an open gate gives to a character at this step, and whether one gives more to the beginning or the end. */
  strongest() {
    let [best, ends] = [{ gate: -1, token: -1, share: 0 }, 0];
    this.now.shares.forEach((row, gate) => row.forEach((share, token) => {
      if (!this.isOpen(gate)) return;
      if (/^<.+>$/.test(this.trace.source[token].token)) ends = Math.max(ends, share);
      else if (share > best.share) best = { gate, token, share };
    }));
    return { ...best, less: best.share < ends };
  }

  /** Say in one sentence what happens, shade the tokens that the letter is linked to, and list the likeliest tokens. */
  say() {
    const step = this.trace.steps[Math.min(view.step, this.trace.steps.length - 1)];
    const { gate, token, share, less } = this.strongest();
    const ends = /^<.+>$/.test(step.token);
    const place = gate < 0 ? "" : `head ${this.gates[gate].head} of layer ${this.gates[gate].layer} looks at ‘${visible(this.trace.source[token].token).trim()}’ with ${percent(share)} of its attention${less ? " (▸ and ∎ do not count)" : ""}`;
    byId("flight-says").replaceChildren(ends ? "Here the answer ends." : h("span", {}, "To write ", h("b", {}, exact(step.token)), place ? `, ${place}.` : ", nothing comes through."));
    this.nameGates();
    const links = ends ? [] : linksOf(this.trace, view.step);
    this.askWhy(links.indexOf(Math.max(...links)));
    this.tokens.forEach((button, s) => button.style.setProperty("--link", `${Math.round(100 * (links[s] ?? 0) ** 2)}%`));
    this.next.replaceChildren(...step.top.slice(0, CANDIDATES).map((/** @type {import("./data.js").Choice} */ { id, token: name, probability }) => {
      const bar = h("i");
      bar.style.width = `${100 * probability}%`;
      const before = this.trace.steps.slice(0, view.step).map((one) => one.id);
      const chosen = id === step.id;
      return h("li", { className: chosen ? "chosen" : "" }, h("button", {
        type: "button", disabled: !this.live, tabIndex: chosen ? 0 : -1, "aria-pressed": String(chosen), title: chosen ? "chosen" : "write this instead", onclick: () => !chosen && change({ prefix: [...before, id] }),
      }, h("span", { className: "token" }, exact(name)), h("span", { className: "bar" }, bar), h("small", {}, percent(probability))));
    }));
  }

  /** Name each gate by what its head looks at most to write this letter: for another letter it looks elsewhere. */
  nameGates() {
    this.buttons.forEach((button, gate) => {
      const row = this.now.shares[gate];
      const token = row.indexOf(Math.max(...row));
      const sign = signOf(this.trace.source[token].token);
      const share = `${Math.round(100 * row[token])}%`;
      const { layer, head } = this.gates[gate];
      const open = this.isOpen(gate);
      button.setAttribute("aria-label", `Gate: head ${head} of layer ${layer}, ${open ? `${share} of its attention on ‘${sign}’` : "closed"}`);
      const small = button.querySelector("small");
      if (small) small.textContent = open ? `${share} on ‘${sign}’` : "closed";
    });
  }

  /** Explain a letter that the text does not have by the digit that it is linked to most, when the reader stays at this letter. */
  askWhy(/** @type {number} */ place) {
    const { steps, source } = this.trace;
    clearTimeout(waiting);
    waiting = 0; // nor does an answer that is still awaited say anything
    byId("flight-why").textContent = "";
    const step = Math.min(view.step, steps.length - 1);
    const copied = source.some(({ token }) => token === steps[step].token);
    if (this.live && this.model.small && !copied && /^\d$/.test(source[place]?.token ?? "")) waiting = window.setTimeout(() => this.sayWhy(step, place), STAYS);
  }

  /** Put other digits in the place of one, and say which letter the model would write then. */
  async sayWhy(/** @type {number} */ step, /** @type {number} */ place) {
    const { steps, source, json: { text } } = this.trace;
    const [{ token: digit, span: [from] }, { token: written }] = [source[place], steps[step]];
    const prefix = steps.slice(0, step).map(({ id }) => id);
    const mine = waiting;
    const say = (/** @type {string} */ why) => { byId("flight-why").textContent = `‘${visible(written)}’ is not in ‘${text}’, so it is not copied. ${why}`; };
    let tried = 0;
    for (let by = 1; by < 10; by += 1) {
      const other = String((Number(digit) + by) % 10);
      const input = [...text].map((sign, at) => (at === from ? other : sign)).join("");
      const found = await askTrace({ ...this.trace.question, input, prefix, names: [], anyway: true }).catch(() => null);
      if (flight !== this || mine !== waiting) return;
      const letter = found?.steps[step]?.token;
      if (letter === undefined || found.unfit) continue; // there is no such date
      if (letter !== written) return say(`It follows from the shaded ${digit}: if that were ${other}, the model would write ‘${visible(letter)}’ here.`);
      tried += 1;
    }
    if (tried) say(`No other digit in place of the shaded ${digit} changes it: it continues ‘${steps.slice(0, step).map(({ token }) => token).join("")}’.`);
  }

  /** Build the stage. */
  build() {
    const { trace } = this;
    this.canvas = h("canvas", { "aria-hidden": "true" });
    this.tokens = trace.source.map(({ token }, s) => h("button", {
      type: "button", className: /^<.+>$/.test(token) ? "special" : "", title: "zoom into what is fetched from here", "aria-label": `${visible(token).trim()}: zoom in`,
      onclick: () => this.zoomTo(s), onpointerenter: () => this.light(-1, s), onpointerleave: () => this.light(-1, -1), onfocus: (/** @type {FocusEvent} */ event) => byKeys(event) && this.light(-1, s), onblur: () => this.light(-1, -1),
    }, signOf(token)));
    const few = this.gates.length <= 8;
    this.buttons = this.gates.map(({ layer, head }, gate) => {
      const open = this.isOpen(gate);
      return h("button", {
        type: "button", ...(this.live ? { role: "switch", "aria-checked": String(open) } : {}), className: "gate", disabled: !this.live, "data-gate": this.key(gate),
        title: open ? "close this gate: the head is switched off" : "open this gate again",
        onclick: () => change({ muted: open ? [...view.muted, this.key(gate)] : view.muted.filter((other) => other !== this.key(gate)) }),
        onpointerenter: () => this.light(gate, -1), onpointerleave: () => this.light(-1, -1), onfocus: (/** @type {FocusEvent} */ event) => byKeys(event) && this.light(gate, -1), onblur: () => this.light(-1, -1),
      }, h("b", {}, open ? head : "✕"), few && h("small"));
    });
    const layers = Array.from({ length: trace.layers("cross") }, (_, layer) => h("div", { className: "gate-layer" }, h("span", {}, `layer ${layer}`),
      h("div", {}, ...this.buttons.slice(layer * trace.heads, (layer + 1) * trace.heads))));
    this.bars = h("div", { className: "vector", role: "img", "aria-label": "The vector that becomes the next token" });
    this.next = h("ol", { className: "candidates", "aria-label": "What might come next" });
    const reads = h("div", { className: `reads${trace.source.length > 24 ? " many" : ""}`, role: "group", "aria-label": "What it reads" }, ...this.tokens);
    const gates = h("div", { className: `gates${few ? "" : " many"}`, role: "group", "aria-label": "Heads of the cross-attention, as gates" }, ...layers);
    this.stage = h("div", { className: "sky", onclick: (/** @type {PointerEvent} */ event) => this.hit(event) }, this.canvas, reads, gates, h("div", { className: "becomes" }, this.bars, this.next));
    roving(reads, "button");
    roving(gates, "button");
    roving(this.next, "button");
    byId("stage").replaceChildren(this.stage);
    this.say();
    this.draw();
    if (!trace.has("decoder.out")) this.fetchMore(["decoder.out"]).then(() => flight === this && this.arrived());
  }

  /** Draw again after numbers have arrived. */
  arrived() {
    this.now = this.moment(view.step);
    if (!this.next.contains(document.activeElement)) this.say(); // a share may have been rounded before
    this.draw();
  }

  light(/** @type {number} */ gate, /** @type {number} */ token) {
    [this.lit, this.litToken] = [gate, token];
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
      for (let t = 0; t <= 1; t += 1 / 24) {
        const { x, y } = along(from, to, t);
        const far = Math.hypot(x - at.x, y - at.y) - 4 * share;
        if (far < best.far) best = { far, gate, token };
      }
    }
    if (best.gate >= 0) this.zoomTo(best.token, best.gate);
  }

  /** Open the thread from a token: through the gate that looks at it most, unless one is given. */
  zoomTo(/** @type {number} */ token, gate = this.now.shares.map((row) => row[token]).reduce((best, share, g, all) => (share > all[best] ? g : best), 0)) {
    const { layer, head } = this.gates[gate];
    change({ zoom: `${layer}.${head}.${token}`, kind: "cross", layer, head });
  }
}

/** @type {Flight|undefined} */ let flight;
let waiting = 0; // the timer of the sentence that says why
byId("flight-key").append("Gates are the ", term("head", "heads"), " of each ", term("layer"), "; bars are the ", term("vector"), " that becomes the next ", term("token"), ".");
roving(byId("flight-key"), ".explained");
let inSight = true; // a flight that nobody sees does not move
new IntersectionObserver((entries) => { inSight = entries[entries.length - 1].isIntersecting; }).observe(byId("stage"));
new ResizeObserver(() => flight?.draw()).observe(byId("stage")); // what was drawn while a zoom hid the stage had no room

/** Build the stage for a trace. The shares move from the ones that were shown to the new ones. */
export function buildFlight(/** @type {Trace} */ trace, /** @type {Model} */ model, /** @type {boolean} */ live, /** @type {FetchMore} */ fetchMore) {
  const held = byId("stage").contains(document.activeElement) ? document.activeElement?.getAttribute("data-gate") : null;
  const before = flight?.trace.source.length === trace.source.length && flight.gates.length === trace.layers("cross") * trace.heads ? flight.shown() : undefined;
  flight = new Flight(trace, model, live, fetchMore);
  byId("flight").hidden = false;
  flight.build();
  if (before) {
    [flight.now, flight.phase] = [before, 1];
    flight.fly();
  }
  if (held) /** @type {HTMLElement|null} */ (document.querySelector(`[data-gate="${held}"]`))?.focus({ preventScroll: true });
  showZoom();
}

/** Follow the view. */
export function followFlight(/** @type {Set<string>} */ changed) {
  if (!flight) return;
  if (changed.has("step")) flight.fly();
  if (changed.has("zoom") && !still() && "startViewTransition" in document) {
    name(true);
    document.startViewTransition(showZoom).finished.finally(() => name(false)); // tokens, gate and vector move to their new places
  } else if (changed.has("zoom") || changed.has("step")) showZoom();
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

/** Zoom into one thread: what the head seeks and what the tokens offer, the scores, the shares, the mixture, the arithmetic. */
async function showZoom() {
  const place = byId("zoom");
  const [layer, head, token] = view.zoom.split(".").map(Number);
  const found = flight;
  const open = found !== undefined && view.zoom !== "" && layer < found.trace.layers("cross") && head < found.trace.heads && token < found.trace.source.length;
  byId("flight").classList.toggle("zoomed", open);
  place.hidden = !open;
  if (!open || !found) return place.replaceChildren();
  const { trace } = found;
  const base = attention("cross", layer);
  const wanted = needed(trace, "cross", layer);
  if (!trace.has(`${base}.q`, head) || !trace.exact(`${base}.weights`, head)) {
    place.replaceChildren(h("p", { className: "sentence" }, "Fetching the numbers of this head …"));
    const why = await found.fetchMore(wanted, { head });
    if (found !== flight || view.zoom !== `${layer}.${head}.${token}`) return undefined;
    if (why || !trace.has(`${base}.q`, head)) return place.replaceChildren(h("p", { className: "sentence" }, why ?? "These numbers are not in this file."), back());
  }
  const at = (/** @type {string} */ role) => trace.matrix(`${base}.${role}`, head);
  const [q, k, v, z, scaled, weights] = ["q", "k", "v", "z", "scaled", "weights"].map(at);
  const row = Math.min(view.step, q.rows - 1);
  const order = Array.from({ length: k.rows }, (_, s) => s);
  const most = order.length > 14 ? 8 : 14;
  const kept = new Set([token, ...[...order].sort((a, b) => weights.at(row, b) - weights.at(row, a)).slice(0, most - 1)]);
  const columns = order.length > 14 ? order.filter((s) => kept.has(s)) : order;
  const largest = (/** @type {import("./data.js").Matrix} */ { rows, cols, at: x }) => Math.max(1e-9, ...Array.from({ length: rows * cols }, (_, n) => Math.abs(x(Math.floor(n / cols), n % cols))));
  const span = { q: largest(q), k: largest(k), v: largest(v), scaled: Math.max(1e-9, ...columns.map((s) => Math.abs(scaled.at(row, s)))) };
  /** Numbers as bars, from a line at zero upwards or downwards. */
  const bits = (/** @type {number[]} */ values, /** @type {number} */ scale) => h("span", { className: "bits", "aria-hidden": "true" }, ...values.map((value) => {
    const bit = h("i", { className: value < 0 ? "minus" : "" });
    bit.style.setProperty("--tall", `${Math.round((50 * Math.abs(value)) / scale)}%`);
    return bit;
  }));
  const vector = (/** @type {import("./data.js").Matrix} */ matrix, /** @type {number} */ r, /** @type {number} */ scale) => bits(Array.from({ length: matrix.cols }, (_, d) => matrix.at(r, d)), scale);
  const line = (/** @type {string} */ name, /** @type {string} */ says, /** @type {(s: number) => any} */ cell) => h("tr", {}, h("th", { scope: "row" }, h("b", {}, name), h("small", {}, says)),
    ...columns.map((s) => h("td", { className: s === token ? "strong" : "", onclick: () => change({ zoom: `${layer}.${head}.${s}` }) }, cell(s))));
  const bar = (/** @type {number} */ share, /** @type {string} */ text) => {
    const inner = h("i");
    inner.style.setProperty("--tall", `${Math.round(100 * share)}%`);
    return h("span", { className: "column" }, inner, h("small", {}, text));
  };
  const shares = h("tr", { className: found.live ? "drawable" : "" }, h("th", { scope: "row" }, h("b", {}, "softmax"), h("small", {}, `shares of attention${found.live ? ": drag the bars" : ""}`)),
    ...columns.map((s) => h("td", { className: s === token ? "strong" : "", ...(found.live ? { role: "slider", tabIndex: 0, "aria-label": `Share of ‘${visible(trace.source[s].token).trim()}’, position ${s}`, "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": Math.round(100 * weights.at(row, s)) } : {}) }, bar(weights.at(row, s), asShare(weights.at(row, s))))));
  if (found.live) drawable(shares, columns, `${layer}.${head}.${row}`, Array.from({ length: weights.cols }, (_, s) => weights.at(row, s)), found);
  const cell = { name: `${base}.weights`, head, row, col: token };
  const { lines } = arithmetic(trace, cell, "");
  const said = trace.labels(cell.name, head).says[row].replace(",", " and");
  place.replaceChildren(
    h("div", { className: "zoom-head" }, h("h2", { tabIndex: -1 }, `Head ${head} of layer ${layer}, where it ${said}`), back()),
    h("div", { className: "zoom-flow" },
      h("figure", { className: "seeks" }, vector(q, row, span.q), h("figcaption", {}, h("b", {}, "q"), " what it seeks")),
      h("div", { className: "scroll", tabIndex: 0, role: "group", "aria-label": "One column for each token" }, h("table", { className: "unfold" }, h("thead", {}, h("tr", {}, h("td"), ...columns.map((s) => h("th", { scope: "col", className: s === token ? "strong" : "" },
        h("button", { type: "button", "aria-pressed": String(s === token), onclick: () => change({ zoom: `${layer}.${head}.${s}` }) }, signOf(trace.source[s].token)))))),
      h("tbody", {},
        line("k", "what each token offers", (s) => vector(k, s, span.k)),
        line("q·k ÷ √d", "how well they match", (s) => h("span", { className: "column" }, bits([scaled.at(row, s)], span.scaled), h("small", {}, number(scaled.at(row, s), 1)))),
        shares,
        line("v", "what each token carries, as strong as its share", (s) => {
          const carried = vector(v, s, span.v);
          carried.style.opacity = String(0.12 + 0.88 * weights.at(row, s));
          return carried;
        })))),
      h("figure", { className: "seeks" }, vector(z, row, span.v), h("figcaption", {}, h("b", {}, "z"), " what it hands on"))),
    h("details", { open: true }, h("summary", {}, `The share of ‘${visible(trace.source[token].token).trim()}’, worked out`), h("div", { className: "sums" }, ...lines.filter((one) => one.rows || one.sum !== undefined).map((one) => h("div", { className: "sum" }, h("p", {}, one.say),
      one.rows && h("div", { className: "terms", tabIndex: 0, role: "group", "aria-label": one.say }, h("table", {}, h("thead", {}, h("tr", {}, ...(one.head ?? []).map((name) => (name ? h("th", { scope: "col" }, name) : h("td"))))), h("tbody", {}, ...one.rows.map((cells, n) => h("tr", { className: n === one.strong ? "strong" : "" }, ...cells.map((text, c) => h(c ? "td" : "th", {}, text))))))),
      one.sum !== undefined && h("p", { className: "result" }, h("span", {}, one.sum), one.about ? " ≈ " : " = ", h("b", {}, number(one.value ?? weights.at(row, token), 4))))))));
  if (document.activeElement === document.body || byId("stage").contains(document.activeElement)) place.querySelector("h2")?.focus({ preventScroll: true });
  return undefined;
}

/** A share below its bar: on a telephone there is no space for decimals. */
const asShare = (/** @type {number} */ share) => (matchMedia("(max-width: 600px)").matches ? `${Math.round(100 * share)}%` : percent(share));

/**
 * Let the reader draw the shares of a row, with a pointer over its bars or with the arrow keys on one of them. The answer follows
 * while the pointer is down, and the view when it is released.
 */
function drawable(/** @type {HTMLElement} */ bars, /** @type {number[]} */ columns, /** @type {string} */ place, /** @type {number[]} */ given, /** @type {Flight} */ of) {
  const cells = /** @type {HTMLElement[]} */ ([...bars.querySelectorAll("td")]);
  let shares = [...given];
  let [last, asking] = [-1, false];
  const written = () => `${place}~${shares.map((share) => Math.round(1000 * share)).join("~")}`;
  const any = () => shares.some((share) => share >= 0.001);
  /** Ask what would be written, one request after the other. */
  const follow = async () => {
    if (asking || !any()) return;
    asking = true;
    for (let asked = ""; flight === of && asked !== written() && any();) {
      asked = written();
      const json = await askTrace({ ...of.trace.question, drawn: drawnRow(asked), prefix: view.prefix, names: [], ...(view.anyway ? { anyway: true } : {}) }).catch(() => null);
      if (json && flight === of) byId("answer").textContent = json.output;
    }
    asking = false;
  };
  const paint = () => {
    const total = shares.reduce((sum, share) => sum + share, 0) || 1;
    columns.forEach((s, n) => {
      /** @type {HTMLElement} */ (cells[n].querySelector("i")).style.setProperty("--tall", `${100 * shares[s]}%`);
      /** @type {HTMLElement} */ (cells[n].querySelector("small")).textContent = asShare(shares[s] / total);
    });
    follow();
  };
  const draw = (/** @type {PointerEvent} */ { clientX, clientY }) => {
    const boxes = cells.map((cell) => /** @type {HTMLElement} */ (cell.querySelector(".column")).getBoundingClientRect());
    const n = boxes.reduce((best, { left, width }, at) => (Math.abs(left + width / 2 - clientX) < Math.abs(boxes[best].left + boxes[best].width / 2 - clientX) ? at : best), 0);
    const { top } = boxes[n];
    const tall = Number.parseFloat(getComputedStyle(/** @type {HTMLElement} */ (cells[n].querySelector(".column"))).gridTemplateRows); // pixels of a whole bar
    const share = Math.min(1, Math.max(0, 1 - (clientY - top) / tall));
    // a fast pointer skips columns
    for (let at = last < 0 ? n : last; ; at += Math.sign(n - at)) {
      shares[columns[at]] = share;
      if (at === n) break;
    }
    last = n;
    paint();
  };
  const end = () => {
    if (last < 0) return;
    last = -1;
    if (any()) change({ drawn: written() });
    else {
      shares = [...given];
      paint();
    }
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
    const s = columns[cells.indexOf(/** @type {HTMLElement} */ (event.target))];
    const to = { ArrowUp: shares[s] + 0.1, ArrowRight: shares[s] + 0.1, ArrowDown: shares[s] - 0.1, ArrowLeft: shares[s] - 0.1, Home: 0, End: 1 }[event.key];
    if (s === undefined || to === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    // the other shares shrink or grow in proportion
    const share = Math.min(1, Math.max(0, to));
    const rest = 1 - shares[s];
    shares = shares.map((other, at) => (at === s ? share : rest > 0.001 ? (other * (1 - share)) / rest : (1 - share) / (shares.length - 1)));
    change({ drawn: written() });
  });
}

const back = () => h("button", { type: "button", className: "quiet", title: "Esc", onclick: () => change({ zoom: "" }) }, "Back to the flight");
