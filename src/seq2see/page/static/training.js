/** Trains a network before the reader’s eyes: everything is forgotten, then learned anew, from dates or from pairs of the reader’s own. */

import { forgetTraining, pageFile, saved, train } from "./backend.js";
import { attention, Trace } from "./data.js";
import { announce, byId, h, number, roving, svg, thousands } from "./dom.js";
import { download, zipped } from "./download.js";
import { paintCells } from "./heat.js";
import { forgetLoss, noteLoss } from "./puzzles.js";
import { view } from "./state.js";

/** @typedef {import("./main.js").Model} Model */
/** @typedef {{use: (model: Model, text: string) => void, glance: () => Promise<Trace|null>, recall: (trace: Trace) => void, settle: () => void}} Hooks  use: let a model answer; glance: what it says now; recall: show what it said; settle: show everything again */
/** What the model said after some steps. @typedef {{step: number, trace: Trace}} Frame */

const STEPS = { dates: 800, pairs: 2000 };
const LEAST_PAIRS = 8;
const FRAMES = 60; // of the filmstrip
const ROMAN = /** @type {[number, string][]} */ ([[1000, "M"], [900, "CM"], [500, "D"], [400, "CD"], [100, "C"], [90, "XC"], [50, "L"], [40, "XL"], [10, "X"], [9, "IX"], [5, "V"], [4, "IV"], [1, "I"]]);
const roman = (/** @type {number} */ n) => ROMAN.reduce(({ left, text }, [value, letters]) => ({ left: left % value, text: text + letters.repeat(Math.floor(left / value)) }), { left: n, text: "" }).text;
const WORDS = "apple banana cherry drum eagle forest garden house island jungle kettle lemon mountain night orange paper queen river stone tree umbrella village window yellow zebra bread cloud dance flower green happy light music ocean planet quiet rain silver table water winter summer spring autumn morning evening friend school street train black white small large child mother father sister brother dog cat horse bird fish sand snow wind fire earth glass gold iron letter number picture story".split(" ");
const pig = (/** @type {string} */ word) => word.replace(/^([^aeiou]*)(.*)$/, (_, before, rest) => `${rest}${before || "w"}ay`);

/** Pairs to begin with. @type {Record<string, () => [string, string][]>} */
const SAMPLES = {
  "Roman numerals": () => Array.from({ length: 400 }, (_, n) => [String(n + 1), roman(n + 1)]),
  "Pig Latin": () => WORDS.map((word) => [word, pig(word)]),
};

/** Read a pair a line, parted by a tab or by “=”. @returns {[string, string][]} */
export function pairsOf(/** @type {string} */ text) {
  return text.split("\n").flatMap((line) => {
    const [source, ...rest] = line.split(line.includes("\t") ? "\t" : "=");
    const target = rest.join("=").trim();
    return source.trim() && target ? [/** @type {[string, string]} */ ([source.trim(), target])] : [];
  });
}

/** Seconds as people say them: exact ones would change at every glance. */
export const spokenTime = (/** @type {number} */ seconds) => (seconds < 90 ? `${Math.max(5, 5 * Math.round(seconds / 5))} s` : `${Math.round(seconds / 60)} min`);

const MEASURED = 20; // steps after which the speed is known

/** Draw the losses so far, on a logarithmic scale. */
function curve(/** @type {{step: number, loss: number}[]} */ losses, /** @type {number} */ steps) {
  const [left, wide, tall] = [44, 350, 132];
  const x = (/** @type {number} */ step) => left + (step / steps) * (wide - left - 14);
  const y = (/** @type {number} */ loss) => 18 + (tall - 52) * (1 - (Math.log10(Math.min(10, Math.max(loss, 1e-4))) + 4) / 5);
  const points = losses.map(({ step, loss }) => `${x(step).toFixed(1)},${y(loss).toFixed(1)}`).join(" ");
  const last = losses.at(-1);
  return svg("svg", { viewBox: `0 0 ${wide} ${tall}`, role: "img", class: "curve", "aria-label": last ? `The loss, ${number(last.loss, 4)} after ${last.step} steps` : "The loss" },
    ...[1, 0.1, 0.01, 0.001, 0.0001].flatMap((at) => [svg("line", { x1: left, x2: x(steps), y1: y(at), y2: y(at), class: "grid" }), svg("text", { x: left - 4, y: y(at) + 3, class: "end" }, String(at))]),
    ...[0, steps / 2, steps].map((at) => svg("text", { x: x(at), y: tall - 20, class: "middle" }, thousands(at))),
    svg("text", { x: left, y: 9 }, "loss (each line is a tenth of the one above)"), svg("text", { x: x(steps / 2), y: tall - 6, class: "middle" }, "steps"), svg("polyline", { points }));
}

export function setUpTraining(/** @type {Model} */ own, /** @type {Hooks} */ hooks) {
  const place = byId("learn");
  const about = saved ? saved.inside : own.inside;
  const offered = Boolean(about && own.small && !(about.config.members > 1));
  place.hidden = true; // until it is asked for
  document.body.classList.remove("training");
  byId("learn-start").hidden = !offered;
  if (!offered) return place.replaceChildren();
  const original = saved?.trace.text ?? own.examples[0] ?? "";
  /** @type {((what: any) => void)|null} */ let order = null;
  /** @type {any} */ let begun = null;
  /** @type {{step: number, loss: number}[]} */ let losses = [];
  /** Where and when it began to learn, the last time. @type {{step: number, at: number}|null} */ let since = null;
  let sum = ""; // how far it has come
  /** @type {Model} */ let now = own; // the model that is trained
  /** @type {Frame[]} */ let frames = [];
  let pulled = -1; // the frame that the reader has pulled back to
  let [learning, looking, right, steps, most, asPage] = [false, false, -1, 0, STEPS.dates, false];
  const dates = own.task === "dates";
  const button = (/** @type {string} */ text, /** @type {() => void} */ act, more = {}) => h("button", { type: "button", className: "quiet", onclick: act, ...more }, text);
  const select = (/** @type {string} */ name, /** @type {[number, string][]} */ options, /** @type {number} */ chosen) => {
    const made = h("select", { "aria-label": name }, ...options.map(([value, text]) => h("option", { value, selected: value === chosen }, text)));
    return { made, element: h("label", { className: "choice" }, `${name} `, made) };
  };
  const heads = select("heads", [[1, "1"], [2, "2"], [4, "4"], [8, "8"]], own.config.heads);
  const examples = select("examples", [[0, "new dates all the time"], [10000, "10,000 dates"], [1000, "1,000 dates"], [100, "100 dates"]], 0);
  const rate = h("input", { type: "range", min: "-3.5", max: "-1.5", step: "0.1", value: "-2.3", "aria-label": "learning rate", oninput: () => {
    said.textContent = number(10 ** Number(rate.value), 4);
    order?.({ rate: 10 ** Number(rate.value) });
  } });
  const said = h("output", {}, number(10 ** -2.3, 4));
  const state = h("p", { className: "sentence", role: "status" });
  const drawing = h("div", { className: "curves" });
  const maps = h("div", { className: "fog", "aria-hidden": "true" });
  const field = h("textarea", { rows: 6, "aria-label": "Pairs of your own", placeholder: "1987 = MCMLXXXVII\n2024 = MMXXIV", spellcheck: false, oninput: () => count() });
  const counted = h("span", {});
  const count = () => { counted.textContent = `${thousands(pairsOf(field.value).length)} pairs`; };

  /** How long the rest takes at the speed since it was let learn, as far as that is known. */
  const left = () => {
    const done = steps - (since?.step ?? steps);
    return since && learning && done >= MEASURED ? ` About ${spokenTime(((most - steps) * (performance.now() - since.at)) / done / 1000)} left.` : "";
  };
  const tell = () => {
    const kept = begun?.apart ? "that it has never seen" : "that it learns from";
    const tried = right < 0 ? "" : ` ${right} of ${begun.tried.length} ${begun.task === "dates" ? "dates" : "texts"} ${kept} are right.`;
    sum = !order ? "" : losses.length ? `Step ${thousands(steps)} of ${thousands(most)}, loss ${number(losses.at(-1)?.loss ?? 0, 4)}.${tried}` : "Everything is forgotten: its numbers are drawn at random. Let it learn.";
    state.textContent = sum + left();
    go.textContent = learning ? "Pause" : "Learn";
    for (const each of [go, once, back, save, send]) each.disabled = !order;
    if (steps >= most) [go.disabled, once.disabled] = [true, true];
    drawing.replaceChildren(...(losses.length ? [curve(losses, most)] : []));
    document.body.classList.toggle("learning", learning);
  };
  /** Go back to a frame of the film; the last one is what the model says now. */
  const pull = (/** @type {number} */ n) => {
    pulled = n === frames.length - 1 && learning ? -1 : n;
    hooks.recall(frames[n].trace);
    show(frames[n].trace);
    showFilm();
  };
  const film = h("ol", { className: "film", "aria-label": "What it said while it learned" });
  roving(film, "button");
  const showFilm = () => {
    const now = pulled < 0 ? frames.length - 1 : pulled;
    const held = film.contains(document.activeElement);
    film.replaceChildren(...frames.map(({ step: at, trace }, n) => h("li", {}, h("button", { type: "button", tabIndex: n === now ? 0 : -1, "aria-pressed": String(n === now), onclick: () => pull(n), onfocus: () => n !== now && pull(n) }, h("small", {}, `step ${thousands(at)}`), h("span", {}, trace.output || "nothing")))));
    const current = /** @type {HTMLElement|undefined} */ (film.children[now]);
    if (current) film.scrollLeft = current.offsetLeft - film.clientWidth / 2;
    if (held) current?.querySelector("button")?.focus({ preventScroll: true });
  };
  /** Keep what it says, if that is new. */
  const take = (/** @type {Trace|null} */ trace) => {
    if (!trace || frames.at(-1)?.trace.output === trace.output) return;
    frames.push({ step: steps, trace });
    if (frames.length > FRAMES) frames = frames.filter((_, n) => n === 0 || n % 2 === frames.length % 2 || n > FRAMES / 2);
    showFilm();
  };
  /** Show every head that looks at the text: a fog at first. */
  const show = (/** @type {Trace|null} */ trace) => {
    if (!trace) return;
    maps.replaceChildren(...Array.from({ length: trace.layers("cross") * trace.heads }, (_, n) => {
      const matrix = trace.matrix(`${attention("cross", Math.floor(n / trace.heads))}.weights`, n % trace.heads);
      const canvas = h("canvas", { width: matrix.cols, height: matrix.rows });
      paintCells(canvas, matrix);
      return h("figure", {}, canvas, h("figcaption", {}, `layer ${Math.floor(n / trace.heads)}, head ${n % trace.heads}`));
    }));
  };
  const look = async () => {
    if (looking || pulled >= 0) return;
    looking = true;
    const found = await hooks.glance().catch(() => null);
    if (found && pulled < 0) {
      hooks.recall(found);
      show(found);
    }
    take(found);
    looking = false;
  };
  const keep = async (/** @type {Record<string, any>} */ files, /** @type {any} */ made) => {
    if (asPage) download("model.html", await pageFile(now, made, files["model.safetensors"], view.text, own.name));
    else download("model.zip", zipped(Object.entries(files).map(([name, data]) => [name, typeof data === "string" ? new TextEncoder().encode(data) : data])));
  };
  const listen = (/** @type {any} */ { begun: told, progress, files, about: made }) => {
    if (told) {
      begun = told;
      now = { ...own, inside: undefined, does: told.task === "dates" ? own.does : `It learns pairs of texts. Below the field are ${told.apart ? "some that it does not learn from" : "some of them"}.`, name: told.task === "dates" ? own.name : "yours", task: told.task, config: told.config, parameters: told.parameters, puzzles: false, examples: told.task === "dates" ? own.examples : told.texts };
      hooks.use(now, told.task === "dates" ? original : told.texts[0]);
    }
    if (files) keep(files, made).catch(({ message }) => { state.textContent = message; });
    if (!progress) return;
    steps = progress.step;
    noteLoss(progress.step, progress.loss);
    if (Number.isFinite(progress.loss)) losses.push({ step: progress.step, loss: progress.loss });
    if (progress.right !== undefined) right = progress.right;
    const was = learning;
    learning = progress.learning;
    since = learning ? (since ?? { step: steps, at: performance.now() }) : null;
    tell();
    if (learning) look();
    else {
      if (was) announce(state.textContent);
      hooks.settle();
      look();
    }
  };
  const forget = (/** @type {[string, string][]|null} */ pairs) => {
    forgetLoss();
    [losses, frames, pulled, learning, right, steps, most] = [[], [], -1, false, -1, 0, pairs ? STEPS.pairs : STEPS.dates];
    showFilm();
    order = train(about, { heads: Number(heads.made.value), rate: 10 ** Number(rate.value), steps: most, examples: Number(examples.made.value), pairs, seed: Math.floor(2 ** 31 * Math.random()) }, listen);
    tell();
  };
  const own_ = () => {
    const pairs = pairsOf(field.value);
    if (pairs.length < LEAST_PAIRS) {
      state.textContent = `There are ${pairs.length} pairs, and at least ${LEAST_PAIRS} are needed: write one a line, as text = answer.`;
      return;
    }
    forget(pairs);
  };
  const go = button("Learn", () => {
    learning = !learning;
    pulled = -1;
    order?.({ on: learning });
    tell();
  });
  const once = button("One step", () => order?.({ once: true }));
  const back = button("Back to the trained model", () => {
    forgetTraining();
    [order, begun, losses, frames, pulled, learning, right, steps] = [null, null, [], [], -1, false, -1, 0];
    maps.replaceChildren();
    showFilm();
    tell();
    place.hidden = true;
    document.body.classList.remove("training");
    hooks.use(own, original);
  });
  const saving = (/** @type {string} */ name, /** @type {boolean} */ page) => button(name, () => {
    asPage = page;
    order?.({ card: `# A model trained in a page\n\n${sum}\n` });
  });
  const [save, send] = [saving("Download the model", false), saving("Download as a page", true)];
  place.replaceChildren(
    h("p", { className: "asks" }, h("h2", {}, "Train it here"), h("span", { className: "sentence" }, `Forget everything, and all ${thousands(own.parameters)} numbers are drawn at random. Then let it learn, from gibberish to what is right.`)),
    state, film,
    h("div", { className: "ways" }, ...(dates ? [button("Forget everything", () => forget(null), { className: "quiet strong" })] : []), go, once, back, save, send),
    h("details", {}, h("summary", {}, "Settings, loss and maps"),
      h("div", { className: "settings" }, h("label", { className: "choice" }, "learning rate ", rate, said), heads.element, ...(dates ? [examples.element] : [])), h("div", { className: "seen" }, drawing, maps)),
    h("details", {}, h("summary", {}, "Pairs of your own"), h("p", { className: "sentence" }, "One pair a line, as text = answer: a few hundred are enough for a simple rule. A tenth of them is kept to try it on."),
      h("div", { className: "ways" }, ...Object.entries(SAMPLES).map(([name, make]) => button(name, () => {
        field.value = make().map((pair) => pair.join(" = ")).join("\n");
        count();
      })), counted), field, h("div", { className: "ways" }, button("Forget everything, and take these pairs", own_))));
  byId("learn-start").onclick = () => {
    place.hidden = false;
    document.body.classList.add("training");
    setTimeout(() => scrollTo(0, 0)); // the stage stays in sight
    place.querySelector("button.quiet")?.focus({ preventScroll: true });
  };
  return tell();
}
