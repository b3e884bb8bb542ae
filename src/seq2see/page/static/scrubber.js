/** The bar that stays visible: the answer token by token, a slider, and the answer before and after a change. */

import { byId, h, nats, percent, visible } from "./dom.js";
import { change, view } from "./state.js";
import { term } from "./terms.js";

/** @typedef {import("./data.js").Trace} Trace */

/** @type {Trace|undefined} */ let trace;
/** @type {number|undefined} */ let playing;
/** @type {ResizeObserver|undefined} */ let watched;
let overflows = false; // whether the answer is longer than the bar
const PACE = 650; // milliseconds for each step while playing

const special = (/** @type {string} */ token) => /^<.+>$/.test(token);

/** Show a sign in place of <eos> where it would be cut, because it must not make all other tokens wider. */
function shorten(/** @type {HTMLElement} */ wide) {
  wide.classList.remove("brief");
  wide.classList.toggle("brief", [...wide.querySelectorAll(".chip.special")].some((chip) => chip.scrollWidth > chip.clientWidth));
}

/** Build the scrubber of a trace. */
export function buildScrubber(/** @type {Trace} */ found) {
  trace = found;
  const slider = h("input", { type: "range", id: "step", min: "0", max: String(found.steps.length - 1), "aria-label": "Step of the answer", oninput: () => change({ step: Number(slider.value) }) });
  const part = 100 / found.steps.length; // so that the thumb is under its token
  slider.style.width = `calc(${100 - part}% + 16px)`;
  slider.style.marginLeft = `calc(${part / 2}% - 8px)`;
  const longest = Math.max(...found.steps.map(({ token }) => (special(token) ? 1 : token.trim().length)));
  const wide = h("div");
  wide.style.minWidth = `calc(${found.steps.length} * max(24px, ${longest}ch + 6px))`; // a long answer scrolls
  byId("scrub").replaceChildren(
    h("button", { type: "button", id: "play", className: "play", "aria-label": "Play", onclick: toggle }, "▶"),
    h("div", { className: "track", dir: "auto" }, wide), h("p", { id: "versus", hidden: true }));
  wide.append(
      h("ol", { className: "chips" }, ...found.steps.map(({ token, log_probability }, t) => h("li", {},
        h("button", { type: "button", className: `chip${t < view.prefix.length ? " forced" : ""}${special(token) ? " special" : ""}`, "data-step": t, title: `P = ${percent(Math.exp(log_probability))}`, onclick: () => change({ step: t }) }, visible(token))))),
      slider);
  new ResizeObserver(() => {
    shorten(wide);
    overflows = wide.scrollWidth > wide.parentElement.clientWidth;
    centre();
  }).observe(wide);
  watched ??= new ResizeObserver(() => document.documentElement.style.setProperty("--bar", `${byId("dock").offsetHeight}px`)); // scrolling to a panel leaves room for the bar
  watched.observe(byId("dock"));
  showStep();
}

/** Move to the step of the view. */
export function showStep() {
  const slider = byId("step");
  if (!slider || !trace) return;
  slider.value = String(view.step);
  slider.setAttribute("aria-valuetext", `step ${view.step}: ${visible(trace.steps[view.step].token)}`);
  for (const chip of document.querySelectorAll(".chip")) {
    const t = Number(/** @type {HTMLElement} */ (chip).dataset.step);
    chip.classList.toggle("future", t > view.step);
    /** @type {HTMLElement} */ (chip).tabIndex = t === view.step ? 0 : -1;
    if (t === view.step) {
      if (document.activeElement?.classList.contains("chip")) /** @type {HTMLElement} */ (chip).focus({ preventScroll: true });
      chip.setAttribute("aria-current", "step");
    } else chip.removeAttribute("aria-current");
  }
  centre();
}

/** Scroll a long answer to its current step. A short one is not measured, because measuring makes the browser lay out the page. */
function centre() {
  if (!overflows || !trace) return;
  const track = /** @type {HTMLElement} */ (byId("scrub").querySelector(".track"));
  track.scrollLeft = ((view.step + 0.5) / trace.steps.length) * track.scrollWidth - track.clientWidth / 2;
}

/** Show what the answer was before a change, beside what it is; `held` is the log-probability that the first answer has after it. */
export function showVersus(/** @type {Trace|null} */ before, /** @type {Trace} */ after, why = "", /** @type {number|undefined} */ held = undefined) {
  const place = byId("versus");
  place.hidden = before === null;
  if (!before) return;
  const log = held === undefined ? [] : [" (", term("log P"), ` of ${before.output}: ${nats(before.logProbability)} → ${nats(held)})`];
  if (before.output === after.output) place.replaceChildren(h("span", {}, `${why}: `), h("b", {}, after.output), " is unchanged", ...log);
  else place.replaceChildren(h("span", {}, `${why}: `), h("s", {}, before.output), " ", h("span", { className: "arrow" }, "→"), " ", h("b", {}, after.output), ...log);
}

/** Stop playing. */
export function stop() {
  clearInterval(playing);
  playing = undefined;
  const button = byId("play");
  if (button) {
    button.textContent = "▶";
    button.setAttribute("aria-label", "Play");
  }
}

/** Play some steps, and rest at one of them. */
export function play(/** @type {number} */ from, /** @type {number} */ to, rests = () => to) {
  stop();
  change({ step: from });
  playing = window.setInterval(() => {
    if (view.step < to) return change({ step: view.step + 1 });
    stop();
    return change({ step: rests() });
  }, PACE);
  byId("play").textContent = "❚❚";
  byId("play").setAttribute("aria-label", "Pause");
}

/** Play the answer, or stop. */
export function toggle() {
  if (playing !== undefined || !trace) return stop();
  const last = trace.steps.length - 1;
  return play(view.step >= last ? 0 : view.step, last);
}
