/** The panels, top to bottom: each builds its element from a trace and follows the selection. */

import { arithmetic, needed } from "./arithmetic.js";
import { takeOverCell } from "./compare.js";
import { attention, KINDS, TITLES } from "./data.js";
import { exact, h, nats, number, percent, roving, svg, visible } from "./dom.js";
import { takeAlong } from "./download.js";
import { Heat, usualOf } from "./heat.js";
import { flowWidth, goTo, inSlices, Panel, whenSeen } from "./section.js";
import { change, current, pin, view } from "./state.js";
import { term } from "./terms.js";

/** @typedef {import("./data.js").Trace} Trace */
/** @typedef {import("./data.js").Kind} Kind */
/** Fetches values that were left out at first. The result is the reason if that fails. @typedef {(names: string[], more?: {head?: number, also?: string[], effects?: string[], step?: number, column?: number}) => Promise<string|undefined>} FetchMore */

/** @returns {Panel} */
export function tokensPanel(/** @type {Trace} */ trace) {
  const line = (/** @type {string} */ name, /** @type {import("./data.js").Token[]} */ tokens) => h("div", { className: "tokens" },
    h("h3", {}, name), h("ol", {}, ...tokens.map(({ token, id, span }) =>
      h("li", { title: span[1] > span[0] ? `characters ${span[0]} to ${span[1] - 1}` : "stands for no character" },
        h("span", { className: token.startsWith("<") && token.length > 2 ? "token special" : "token" }, exact(token)), h("small", {}, id)))));
  return new Panel("tokens", "Tokens", "A text is cut into tokens, and each has a number. The decoder reads its own answer, one place later.",
    () => [line("The encoder reads", trace.source), line("The decoder reads", trace.target)]);
}

/** @returns {Panel} */
export function embeddingPanel(/** @type {Trace} */ trace, /** @type {FetchMore} */ fetchMore) {
  const body = h("div", { className: "equation" });
  body.style.minHeight = `${12 * trace.source.length + 60}px`; // numbers that arrive later must not move the page
  const choice = sideChoice();
  const shades = h("p", { className: "sentence scale" });
  const build = async () => {
    const { side } = view;
    const half = side === "source" ? "encoder" : "decoder";
    for (const button of choice.children) button.setAttribute("aria-pressed", String(button.value === side));
    const normed = trace.json.embedding_norm ? ["normed"] : [];
    if (!trace.has(`${half}.embedding.sum`)) await fetchMore(["embedded", "scaled", "positions", "sum", ...normed].map((role) => `${half}.embedding.${role}`));
    if (side !== view.side || !trace.has(`${half}.embedding.sum`)) return; // another answer may have replaced this one
    // the three matrices stand on one line if there is space for them, otherwise each has its own line
    const box = Math.max(150, Math.min(230, flowWidth() >= 700 ? (flowWidth() - 290) / 3 : flowWidth() - 70));
    const term = (/** @type {string} */ sign, /** @type {string} */ role, /** @type {string} */ title) => () =>
      h("div", { className: "term" }, sign && h("b", { className: "sign" }, sign), new Heat(trace, `${half}.embedding.${role}`, { box, most: 14, title, largest }).element);
    const largest = Math.max(...["scaled", "positions", "sum"].map((role) => usualOf(trace.matrix(`${half}.embedding.${role}`)))); // one scale for the whole equation
    shades.textContent = `One scale for all three: the strongest shades are ±${number(largest, 2)}.`;
    inSlices(body, [term("", "scaled", trace.json.scale_embeddings ? "√d · E[x]" : "E[x]"), term("+", "positions", "PE"), term("=", "sum", "X"), ...normed.map((role) => term("→", role, "LN(X)"))], true);
  };
  const make = () => {
    if (trace.has("encoder.embedding.sum")) build();
    else whenSeen(body, build);
    return [choice, body, shades];
  };
  return new Panel("embedding", "From numbers to vectors", `Each token’s row of the embedding table${trace.json.scale_embeddings ? ", times √d" : ""}, plus the encoding of its position${trace.json.embedding_norm ? ", then normalised" : ""}: what layer 0 reads (sections 3.4, 3.5).`,
    make, (changed) => changed.has("side") && build());
}

function sideChoice() {
  return h("div", { className: "choice", role: "group", "aria-label": "Which side" }, ...["source", "target"].map((side) =>
    h("button", { type: "button", value: side, onclick: () => change({ side: /** @type {"source"|"target"} */ (side) }) }, side)));
}

/** @type {Record<Kind, string>} */
const SENTENCES = {
  encoder: "Every source position looks at all others. A row is a query, its shares of the columns sum to 1.",
  decoder: "Every target position looks at itself and at what came before; the rest is masked (hatched).",
  cross: "Every target position looks at the source: where the next token comes from.",
};

/** The focusable elements of a card. @returns {HTMLElement[]} */
const stopsIn = (/** @type {HTMLElement} */ card) => [.../** @type {NodeListOf<HTMLElement>} */ (card.querySelectorAll("button, .plane"))];

/** All heads of one kind as small maps. @returns {Panel} */
export function headsPanel(/** @type {Trace} */ trace, /** @type {Kind} */ kind, /** @type {boolean} */ live) {
  /** @type {HTMLElement[]} */ const cards = [];
  const update = () => {
    for (const card of cards) {
      card.classList.toggle("chosen", card.dataset.head === `${view.kind}.${view.layer}.${view.head}`);
    }
    // one head of the panel is reached by the Tab key; , and . lead to the others
    const reached = cards.find((card) => card.classList.contains("chosen")) ?? cards[0];
    const held = cards.find((card) => card !== reached && card.contains(document.activeElement));
    const place = held ? stopsIn(held).indexOf(/** @type {HTMLElement} */ (document.activeElement)) : -1;
    for (const card of cards) for (const stop of stopsIn(card)) stop.tabIndex = card === reached ? 0 : -1;
    if (place >= 0 && view.kind === kind) stopsIn(reached)[place]?.focus({ preventScroll: true });
  };
  const make = () => {
    const layers = Array.from({ length: trace.layers(kind) }, (_, layer) => () => {
      const row = Array.from({ length: trace.heads }, (_, head) => headCard(trace, kind, layer, head, live));
      cards.push(...row);
      update();
      return h("div", { className: "layer" }, h("h3", {}, `layer ${layer}`), h("div", { className: trace.heads > 6 && inOneRow(trace) ? "cards many" : "cards" }, ...row));
    });
    return [mapKey(trace, kind), ...layers];
  };
  return new Panel(kind, TITLES[kind], SENTENCES[kind], make, update);
}

/** What the small maps show: their rows, their columns and their shades. */
function mapKey(/** @type {Trace} */ trace, /** @type {Kind} */ kind) {
  const { rows, cols } = trace.labels(`${attention(kind, 0)}.weights`, 0);
  const ramp = h("i", { className: "ramp", "aria-hidden": "true" });
  ramp.style.background = `linear-gradient(90deg, ${getComputedStyle(document.documentElement).getPropertyValue("--shares").trim().split(/\s+/).join(", ")})`;
  const ends = (/** @type {string[]} */ names) => `${names[0].trim()} … ${names[names.length - 1].trim()}`;
  const key = h("p", { className: "map-key" }, h("span", {}, "↓ ", h("b", {}, "rows"), kind === "encoder" ? " look: " : " read → write: ", h("code", {}, ends(rows))),
    h("span", {}, "→ ", h("b", {}, "columns"), " are looked at: ", h("code", {}, ends(cols))), h("span", {}, "share 0 ", ramp, " 1"),
    kind === "encoder" && h("span", {}, "below a map: what the head looks at on average over many texts, such as ", term("sign", "signs"), ", or ", term("mixed")));
  roving(key, ".explained");
  return key;
}

const GAP = 10; // between the cards of a full row
const LEAST = 88; // the least width in pixels for the name of a head and its switch

/** The width of a card with which all heads of a layer stand side by side; 0 if there is no space for that. */
function inOneRow(/** @type {Trace} */ trace) {
  const width = (flowWidth() - GAP * (trace.heads - 1)) / trace.heads;
  return width < LEAST ? 0 : width;
}

function headCard(/** @type {Trace} */ trace, /** @type {Kind} */ kind, /** @type {number} */ layer, /** @type {number} */ head, /** @type {boolean} */ live) {
  const key = `${kind}.${layer}.${head}`;
  const off = view.muted.includes(key);
  const box = Math.min(150, inOneRow(trace) || (trace.heads > 4 ? 92 : 132));
  const heat = new Heat(trace, `${attention(kind, layer)}.weights`, { head, box, most: 12, labels: false, steps: true, about: `${TITLES[kind]}, layer ${layer}` });
  const toggle = () => change({ muted: off ? view.muted.filter((other) => other !== key) : [...view.muted, key] });
  return h("div", { className: off ? "card off" : "card", "data-head": key },
    h("div", { className: "card-head" },
      h("button", { type: "button", className: "link name", onclick: () => change({ kind, layer, head }) }, `head ${head}`),
      live && h("button", { type: "button", className: "switch", role: "switch", "aria-checked": String(!off), "aria-label": `${kind} layer ${layer}, head ${head}`, onclick: toggle }, off ? "off" : "on")),
    heat.element);
}

/** One head from queries to output. @returns {Panel} */
export function headPanel(/** @type {Trace} */ trace, /** @type {FetchMore} */ fetchMore) {
  const body = h("div", { className: "steps" });
  const arcs = h("div", { className: "scroll arcs", tabIndex: 0, role: "group", "aria-label": "Lines to the keys" });
  const choosers = h("div", { className: "choosers" });
  const showArcs = () => {
    const picture = arcDiagram(trace);
    arcs.replaceChildren(picture);
    const width = Number(picture.getAttribute("width"));
    if (width > flowWidth()) requestAnimationFrame(() => { arcs.scrollLeft = Number(picture.dataset.at) - flowWidth() / 2; }); // the chosen query stays visible
  };
  const build = async () => {
    const base = attention(view.kind, view.layer);
    const { head } = view;
    const held = choosers.contains(document.activeElement) ? document.activeElement?.getAttribute("aria-label") : null;
    choosers.replaceChildren(...chooserButtons(trace));
    if (held) choosers.querySelector(`[aria-label="${CSS.escape(held)}"]`)?.focus();
    showArcs();
    if (!trace.has(`${base}.q`, head)) {
      body.replaceChildren(h("p", {}, "Fetching the numbers of this head …"));
      await fetchMore(needed(trace, view.kind, view.layer), { head });
      if (base !== attention(view.kind, view.layer) || head !== view.head || !trace.has(`${base}.q`, head)) return; // another answer may have replaced this one
    }
    inSlices(body, stages(trace, base), true);
  };
  const make = () => {
    build();
    return [choosers, arcs, body];
  };
  const follow = (/** @type {Set<string>} */ changed) => {
    if (["kind", "layer", "head"].some((key) => changed.has(key))) build();
    else if (changed.has("step") || changed.has("query")) showArcs();
  };
  return new Panel("head", "One head, step by step", "Queries meet keys; the scores become shares; the shares weigh the values: softmax(Q·Kᵀ / √d_k)·V (equation 1).", make, follow);
}

function chooserButtons(/** @type {Trace} */ trace) {
  const group = (/** @type {string} */ name, /** @type {(string|number)[]} */ options, /** @type {"kind"|"layer"|"head"} */ key) =>
    h("div", { className: "choice", role: "group", "aria-label": name }, h("span", {}, name), ...options.map((option) =>
      h("button", { type: "button", "aria-label": `${name} ${option}`, "aria-pressed": String(view[key] === option), onclick: () => change(/** @type {any} */ ({ [key]: option })) }, option)));
  const numbers = (/** @type {number} */ n) => Array.from({ length: n }, (_, index) => index);
  return [group("attention", KINDS, "kind"), group("layer", numbers(trace.layers(view.kind)), "layer"), group("head", numbers(trace.heads), "head")];
}

function stages(/** @type {Trace} */ trace, /** @type {string} */ base) {
  const tokens = flowWidth() >= 700 ? 200 : Math.max(170, Math.min(260, flowWidth() - 70)); // three on a line, or one on each
  const heat = (/** @type {string} */ role, /** @type {string} */ title, box = tokens) =>
    new Heat(trace, `${base}.${role}`, { head: view.head, box, most: 16, title, steps: !["k", "v"].includes(role) }).element;
  const few = Math.max(64, Math.min(140, flowWidth() - 70));
  const stage = (/** @type {string} */ name, /** @type {string} */ says, /** @type {() => any[]} */ figures) => () =>
    h("div", { className: "stage" }, h("h3", {}, name), h("p", {}, says), h("div", { className: "equation" }, ...figures()));
  return [
    stage("Queries and keys", "What each position looks for, and what each can be found by.", () => [heat("q", "Q", few), heat("k", "K", few)]),
    stage("Scores", "Every query times every key, divided by √d_k so that softmax does not saturate.", () => [heat("scores", "Q·Kᵀ"), heat("scaled", "Q·Kᵀ/√d_k"),
      view.kind === "decoder" && heat("masked", "masked")]),
    stage("Weights", "Softmax of each row: the query’s shares of the keys.", () => [heat("weights", "A")]),
    stage("Values and output", "The values’ mean under these shares: what this head hands on.", () => [heat("v", "V", few), heat("z", "Z = A·V", few)]),
  ];
}

/** Tokens side by side, each as wide as its text. */
function spread(/** @type {string[]} */ tokens) {
  let width = 0;
  const [least, around] = flowWidth() < 500 ? [18, 3] : [40, 16]; // a date fits on the screen of a telephone
  const middles = tokens.map((token) => {
    const wide = Math.max(least, 9 * visible(token).trim().length + around);
    width += wide;
    return width - wide / 2;
  });
  return { middles, width };
}

/** The current query and its lines to the keys. */
function arcDiagram(/** @type {Trace} */ trace) {
  const name = `${attention(view.kind, view.layer)}.weights`;
  const A = trace.matrix(name, view.head);
  const { rows, cols, says } = trace.labels(name, view.head);
  const row = Math.min(A.rows - 1, view.kind === "encoder" ? view.query : view.step);
  const written = view.kind === "encoder" ? rows : trace.steps.map(({ token }) => visible(token)); // as in the bar above
  const [queries, keys] = [spread(written), spread(cols)];
  const width = Math.max(queries.width, keys.width) + 20;
  const middle = (/** @type {number} */ own) => (width > flowWidth() ? 10 : (width - own) / 2); // both rows start at the left, so that related tokens are near
  const from = queries.middles[row] + middle(queries.width);
  const at = (/** @type {number} */ s) => keys.middles[s] + middle(keys.width);
  const mean = cols.reduce((sum, _, s) => sum + A.at(row, s) * at(s), 0); // where it looks, on average
  const picture = svg("svg", { viewBox: `0 0 ${width} 156`, width, height: 156, "data-at": (from + mean) / 2, role: "img", "aria-label": `What the position that ${says[row]} attends to` });
  for (let s = 0; s < A.cols; s += 1) {
    const share = A.at(row, s);
    if (share < 0.005) continue;
    const to = at(s);
    picture.append(svg("path", { d: `M${from} 118 C${from} 75 ${to} 75 ${to} 34`, class: "arc", pathLength: 1, "stroke-width": (0.8 + 7 * share).toFixed(2), opacity: (0.25 + 0.75 * share).toFixed(2) }));
  }
  cols.forEach((token, s) => {
    const share = A.at(row, s);
    picture.append(svg("text", { x: at(s), y: 24, class: share > 0.1 ? "key strong" : "key" }, visible(token)));
    if (share > 0.1) picture.append(svg("text", { x: at(s), y: 8, class: "share" }, share.toFixed(2)));
  });
  // the label stays within the picture
  const half = 4 * says[row].length;
  if (view.kind !== "encoder") picture.append(svg("text", { x: Math.min(Math.max(from, half), Math.max(half, width - half)), y: 150, class: "share" }, says[row]));
  written.forEach((token, t) => picture.append(svg("text", {
    x: queries.middles[t] + middle(queries.width), y: 134, class: t === row ? "query strong" : "query",
    onclick: () => change(view.kind === "encoder" ? { query: t } : { step: t }),
  }, visible(token))));
  return picture;
}

/** What might come next. @returns {Panel} */
export function probabilitiesPanel(/** @type {Trace} */ trace, /** @type {boolean} */ live) {
  const body = h("div", { className: "bars" });
  const build = () => {
    const at = Math.min(view.step, trace.steps.length - 1); // while a model learns, the view follows a newer answer
    const step = trace.steps[at];
    const before = trace.steps.slice(0, at).map(({ id }) => id);
    const list = (/** @type {import("./data.js").Choice[]} */ choices) => h("ol", {}, ...choices.map((choice) => {
      const bar = h("i");
      bar.style.width = `${100 * choice.probability}%`;
      const chosen = choice.id === step.id;
      const row = [h("span", { className: "token" }, exact(choice.token)), h("span", { className: "bar" }, bar), h("span", { className: "p", title: "softmax of the logit" }, percent(choice.probability)), h("span", { className: "p logit", title: "logit, out of the linear layer" }, number(choice.logit, 2))];
      return h("li", { className: chosen ? "chosen" : "" }, live
        ? h("button", { type: "button", "aria-pressed": String(chosen), title: chosen ? "chosen" : "choose this token instead", onclick: () => !chosen && change({ prefix: [...before, choice.id] }) }, ...row)
        : h("div", { className: "row" }, ...row));
    }));
    body.replaceChildren(
      h("p", { className: "so-far" }, h("span", { className: "past" }, trace.target.slice(1, at + 1).map(({ token }) => token).join("") || "at the beginning"), " … ",
        h("b", {}, visible(step.token)), h("small", {}, `probability ${percent(Math.exp(step.log_probability))} · log P ${nats(step.log_probability)} · entropy ${nats(step.entropy)} nats`)),
      list(step.top.slice(0, 8)), step.top.length > 8 && h("details", {}, h("summary", {}, `${step.top.length - 8} more`), list(step.top.slice(8))));
  };
  const make = () => {
    build();
    return [body];
  };
  return new Panel("probabilities", "What comes next", `The likeliest tokens at this step: the probability of each, and the logit that softmax makes it of.${live ? " Choose another, and the model goes on from there." : ""}`,
    make, (changed) => changed.has("step") && build());
}

const TO_PIN = "Pin the cell, and the numbers that it is made of are fetched.";
const LEFT_OUT = "The matrices of a model as large as this are left out of a saved file: seq2see serve writes this number out.";

/** The side panel: the calculation of the cell under the pointer or pinned, */
export function showAside(/** @type {HTMLElement} */ aside, /** @type {Trace} */ trace, /** @type {boolean} */ live) {
  const cell = current();
  aside.classList.toggle("empty", cell === null);
  aside.classList.toggle("pinned", view.pin !== null);
  if (cell === null || !trace.has(cell.name, cell.head)) {
    aside.replaceChildren(h("h2", {}, "The arithmetic"), h("p", { className: "sentence" }, "Point at any cell of any matrix to see how its number came about. Click to pin it."));
    return;
  }
  const { title, symbol, sentence, lines, value } = arithmetic(trace, cell, live ? (cell === view.pin ? "Fetching the numbers that it is made of …" : TO_PIN) : LEFT_OUT);
  const what = cell.head < 0 ? cell.name : `${cell.name}, head ${cell.head}`;
  const unpin = view.pin && h("button", { type: "button", className: "link unpin", onclick: () => pin(null) }, "unpin");
  aside.replaceChildren(
    h("div", { className: "aside-head" }, h("h2", {}, "The arithmetic"), unpin),
    h("p", { className: "cell-title" }, h("b", {}, symbol), `: ${title}`),
    h("p", { className: "sentence" }, sentence, h("br"), h("code", {}, what)),
    ...lines.map((line) => h("div", { className: "sum" }, h("p", {}, line.say), line.rows && termsTable(line),
      line.sum !== undefined && h("p", { className: "result" }, h("span", {}, line.sum), line.about ? " ≈ " : " = ", h("b", {}, number(line.value ?? value, 6))))),
    ...(view.pin && trace.exact(cell.name, cell.head) ? [takeAlong(trace, cell)] : []), ...(view.pin ? takeOverCell(trace, cell) : []));
}

/** The list of panels. The entries are buttons that scroll, not links, because the address holds the view. */
export function contents() {
  const list = h("nav", { id: "contents", "aria-label": "On this page" }, h("h3", {}, "On this page"), h("ol", {}, ...[...document.querySelectorAll("#flow .panel")].map((panel) =>
    h("li", {}, h("button", { type: "button", className: "link", onclick: () => goTo(panel.id) }, panel.querySelector("h2")?.textContent ?? "")))));
  roving(list, "button");
  return list;
}

function termsTable(/** @type {import("./arithmetic.js").Line} */ line) {
  return h("div", { className: "terms", tabIndex: 0, role: "group", "aria-label": line.say }, h("table", {}, h("thead", {}, h("tr", {}, ...(line.head ?? []).map((name) => (name ? h("th", { scope: "col" }, name) : h("td"))))),
    h("tbody", {}, ...(line.rows ?? []).map((row, index) => h("tr", { className: index === line.strong ? "strong" : "" }, ...row.map((text, column) => h(column ? "td" : "th", {}, text)))))));
}
