/** The paper’s Figure 1, drawn for this model: each box leads to its numbers, its equation and its code. */

import { h, roving, svg, thousands } from "./dom.js";
import { FORMULAS } from "./formulas.js";
import { goTo, Panel } from "./section.js";
import { change, view } from "./state.js";

/** @typedef {{name: string, place: string, text: string, line: number}} Place */
/** @typedef {{config: Record<string, any>, parameters: number, code: Record<string, Place[]>}} Network */
/** @typedef {{title: string, says: string, panel: string, code: string[], formulas: string[], set?: Partial<import("./state.js").View>}} Box */
/** @typedef {"encoder"|"decoder"} Half */

const ATTENTIONS = {
  "encoder.self_attention": { title: "Multi-head attention of the encoder", panel: "encoder", kind: "encoder", says: "Every source position gathers from all others (sections 3.2.2, 3.2.3)." },
  "decoder.self_attention": { title: "Masked multi-head attention", panel: "decoder", kind: "decoder", says: "Every target position gathers from itself and from what came before (section 3.2.3)." },
  "decoder.cross_attention": { title: "Multi-head attention over the memory", panel: "cross", kind: "cross", says: "Queries of the decoder meet keys and values of the encoder (section 3.2.3)." },
};

/** What a box stands for. @returns {Box|null} */
function boxOf(/** @type {string} */ id, /** @type {Record<string, any>} */ config) {
  const [half, part] = id.split(".");
  const side = half === "encoder" ? "source" : "target";
  const attention = ATTENTIONS[/** @type {keyof typeof ATTENTIONS} */ (id)];
  if (attention) {
    const kind = /** @type {import("./data.js").Kind} */ (attention.kind);
    const masked = id === "decoder.self_attention";
    return { ...attention, code: masked ? ["mask", "attention"] : ["attention"], formulas: [masked ? "mask" : "attention"], set: { kind } };
  }
  if (part === "tokens") return { title: half === "encoder" ? "Inputs" : "Outputs, shifted right", says: half === "encoder" ? "The text, cut into tokens." : "The answer so far, behind <sos>: at each place the decoder has read what comes before.", panel: "tokens", code: ["tokens"], formulas: [] };
  if (part === "embedding") return { title: `${half === "encoder" ? "Input" : "Output"} embedding`, says: `Each token’s row of a learned table${config.scale_embeddings ? ", times √d_model" : ""} (section 3.4).`, panel: "embedding", code: ["embedding"], formulas: ["embedding"], set: { side } };
  if (part === "positions") return { title: "Positional encoding", says: config.positions === "learned" ? "A learned vector for each position is added (section 3.5)." : "Sines and cosines of the position are added, lest order be lost (section 3.5).", panel: "embedding", code: ["positions"], formulas: ["positions"], set: { side } };
  if (part === "feed_forward") return { title: `Feed-forward network of the ${half}`, says: "The same two layers at every position, by itself (section 3.3).", panel: "layer", code: ["feed_forward"], formulas: ["feed_forward"], set: { part: id } };
  if (part === "norm" && config.norm === "pre") return { title: `Last norm of the ${half}`, says: "Where norms stand before the sub-layers, each stack ends with one.", panel: "layer", code: [`${half}.norm`], formulas: ["norm"], set: { part: id } };
  if (part === "embedding_norm") return { title: "Norm of the embedding", says: "The sum of embedding and position is normalised, as in BART.", panel: "embedding", code: ["embedding.norm"], formulas: ["norm"], set: { side } };
  if (part?.endsWith("_norm")) {
    return {
      title: config.norm === "pre" ? "Norm, and add" : "Add & norm", panel: "layer", code: [config.norm], formulas: [config.norm], set: { part: id },
      says: `Around the ${{ self: "self-attention", cross: "cross-attention", feed: "feed-forward network" }[part.split("_")[0]]} of the ${half}: the residual connection and layer normalisation (section 3.1).`,
    };
  }
  if (id === "linear") return { title: "Linear", says: `One number for each token that might come next${config.share_output ? ": the output embedding, used once more" : ""} (section 3.4).`, panel: "probabilities", code: ["linear"], formulas: ["linear"] };
  if (id === "softmax") return { title: "Softmax", says: "The numbers become probabilities (section 3.4).", panel: "probabilities", code: ["softmax"], formulas: ["softmax"] };
  return null;
}

// --- the drawing: y grows upwards from 0, so every coordinate is negative ---

const WIDTH = 450;
const BOX = 150; // width of a box
const X = { encoder: 125, decoder: 325 };
const SIDE = { encoder: -1, decoder: 1 };

class Drawing {
  constructor(/** @type {Record<string, any>} */ config) {
    this.config = config;
    this.frames = svg("g");
    this.lines = svg("g");
    this.boxes = svg("g");
    this.top = 0;
  }

  line(/** @type {[number, number][]} */ points, arrow = true) {
    const d = points.map(([x, y], index) => `${index ? "L" : "M"}${x} ${y}`).join(" ");
    this.lines.append(svg("path", { d, class: "wire", ...(arrow ? { "marker-end": "url(#arrow)" } : {}) }));
  }

  text(/** @type {number} */ x, /** @type {number} */ y, /** @type {string} */ words, name = "word") {
    this.boxes.append(svg("text", { x, y, class: name }, words));
  }

  /** A shape that works as a button. */
  button(/** @type {string} */ id, /** @type {any[]} */ ...shapes) {
    const box = boxOf(id, this.config);
    const go = () => openBox(id, this.config);
    this.boxes.append(svg("g", {
      class: "box", tabindex: 0, role: "button", "data-box": id, "aria-label": `${box?.title}: its numbers, equation and code`, onclick: go,
      onkeydown: (/** @type {KeyboardEvent} */ event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        event.stopPropagation();
        go();
      },
    }, ...shapes));
  }

  /** A box standing on y. @returns {number} its upper edge */
  box(/** @type {string} */ id, /** @type {number} */ x, /** @type {number} */ y, /** @type {string} */ colour, /** @type {string[]} */ ...words) {
    const height = 10 + 15 * words.length;
    this.button(id, svg("rect", { x: x - BOX / 2, y: y - height, width: BOX, height, rx: 5, class: colour }),
      ...words.map((word, index) => svg("text", { x, y: y - height + 16.5 + 15 * index }, word)));
    return y - height;
  }

  plus(/** @type {number} */ x, /** @type {number} */ y) {
    this.boxes.append(svg("circle", { cx: x, cy: y, r: 7, class: "round" }), svg("path", { d: `M${x - 4} ${y}H${x + 4}M${x} ${y - 4}V${y + 4}`, class: "wire" }));
  }

  /** A text’s way in. @returns {number} */
  entrance(/** @type {Half} */ half) {
    const [x, side] = [X[half], SIDE[half]];
    const words = half === "encoder" ? "Inputs" : "Outputs (shifted right)";
    this.button(`${half}.tokens`, svg("rect", { x: x - BOX / 2, y: -22, width: BOX, height: 20, rx: 5, class: "clear" }), svg("text", { x, y: -8 }, words));
    this.line([[x, -23], [x, -36]]);
    const top = this.box(`${half}.embedding`, x, -38, "box-embedding", half === "encoder" ? "Input Embedding" : "Output Embedding");
    const y = top - 24;
    this.line([[x, top], [x, y + 9]]);
    this.plus(x, y);
    const centre = x + side * 46;
    this.line([[centre - side * 12, y], [x + side * 9, y]]);
    const wave = this.config.positions === "learned" ? svg("text", { x: centre, y: y + 4.5 }, "P") : svg("path", { d: `M${centre - 8} ${y} q4 -9 8 0 t8 0`, class: "wire" });
    const words2 = this.config.positions === "learned" ? ["Learned", "Positions"] : ["Positional", "Encoding"];
    const at = centre + side * 17;
    this.button(`${half}.positions`, svg("rect", { x: Math.min(centre - side * 14, at + side * 58), y: y - 17, width: 89, height: 34, rx: 5, class: "clear" }), svg("circle", { cx: centre, cy: y, r: 12, class: "round" }), wave,
      ...words2.map((word, index) => svg("text", { x: at, y: y - 2 + 13 * index, class: side < 0 ? "end" : "start" }, word)));
    if (this.config.embedding_norm) {
      this.line([[x, y - 7], [x, y - 22]]);
      const above = this.box(`${half}.embedding_norm`, x, y - 24, "box-norm", "Norm");
      this.line([[x, above], [x, above - 16]], false);
      return above - 16;
    }
    this.line([[x, y - 7], [x, y - 30]], false);
    return y - 30;
  }

  /** A sub-layer within its residual connection, the norm where this model has it. @returns {number} */
  sublayer(/** @type {Half} */ half, /** @type {string} */ name, /** @type {number} */ y, /** @type {((y: number) => [number, number][])|null} */ memory, /** @type {string[]} */ ...words) {
    const [x, side, pre] = [X[half], SIDE[half], this.config.norm === "pre"];
    const outside = x + side * (BOX / 2 + 13);
    const branch = y - 8;
    let start = y;
    if (pre) {
      this.line([[x, y], [x, y - 16]]);
      start = this.box(`${half}.${name}_norm`, x, y - 18, "box-norm", "Norm");
    }
    const fans = name !== "feed_forward";
    const turn = start - (pre ? 8 : 14);
    const bottom = start - (fans ? (pre ? 26 : 32) : pre ? 16 : 22);
    this.line([[x, start], [x, fans ? turn : bottom]], !fans);
    if (fans) {
      const arms = memory ? [x + 45] : [x - 45, x, x + 45];
      for (const arm of arms) this.line(arm === x ? [[x, turn], [x, bottom]] : [[x, turn], [arm, turn], [arm, bottom]]);
      if (memory) {
        this.line([...memory(turn - 8), [x, turn - 8], [x, bottom]]);
        this.line([[x - 45, turn - 8], [x - 45, bottom]]);
      }
    }
    const top = this.box(`${half}.${name}`, x, bottom - 2, name === "feed_forward" ? "box-feed" : "box-attention", ...words);
    if (pre) {
      const add = top - 18;
      this.line([[x, top], [x, add + 9]]);
      this.line([[x, branch], [outside, branch], [outside, add], [x + side * 9, add]]);
      this.plus(x, add);
      this.line([[x, add - 7], [x, add - 12]], false);
      return add - 12;
    }
    const norm = this.box(`${half}.${name}_norm`, x, top - 6, "box-norm", "Add & Norm");
    this.line([[x, top], [x, top - 6]], false);
    this.line([[x, branch], [outside, branch], [outside, norm + 12.5], [x + side * (BOX / 2 + 2), norm + 12.5]]);
    this.line([[x, norm], [x, norm - 8]], false);
    return norm - 8;
  }

  /** The frame of a layer, and the number of its repetitions. */
  frame(/** @type {Half} */ half, /** @type {number} */ bottom, /** @type {number} */ top) {
    const [x, side] = [X[half], SIDE[half]];
    const left = x - BOX / 2 - (side < 0 ? 22 : 10);
    this.frames.append(svg("rect", { x: left, y: top, width: BOX + 32, height: bottom - top, rx: 9, class: "frame" }));
    this.text(side < 0 ? 15 : WIDTH - 15, (bottom + top) / 2, `${this.config[`${half}_layers`]}×`, "times");
  }

  /** The norm that a pre-norm stack ends with. @returns {number} */
  last(/** @type {Half} */ half, /** @type {number} */ y) {
    if (this.config.norm !== "pre") return y;
    this.line([[X[half], y], [X[half], y - 16]]);
    return this.box(`${half}.norm`, X[half], y - 18, "box-norm", "Norm");
  }

  /** @returns {SVGElement} */
  picture() {
    const floor = this.entrance("encoder");
    let y = this.sublayer("encoder", "self_attention", floor, null, "Multi-Head", "Attention");
    y = this.sublayer("encoder", "feed_forward", y, null, "Feed Forward");
    this.frame("encoder", floor + 8, y - 4);
    const memory = this.last("encoder", y);
    const turn = (X.encoder + X.decoder) / 2;
    const wire = (/** @type {number} */ height) => /** @type {[number, number][]} */ ([[X.encoder, memory], [X.encoder, memory - 18], [turn, memory - 18], [turn, height]]);
    this.entrance("decoder");
    y = this.sublayer("decoder", "self_attention", floor, null, "Masked Multi-Head", "Attention");
    y = this.sublayer("decoder", "cross_attention", y, wire, "Multi-Head", "Attention");
    y = this.sublayer("decoder", "feed_forward", y, null, "Feed Forward");
    this.frame("decoder", floor + 8, y - 4);
    y = this.last("decoder", y);
    this.line([[X.decoder, y], [X.decoder, y - 16]]);
    y = this.box("linear", X.decoder, y - 18, "box-linear", "Linear");
    this.line([[X.decoder, y], [X.decoder, y - 10]]);
    y = this.box("softmax", X.decoder, y - 12, "box-softmax", "Softmax");
    this.line([[X.decoder, y], [X.decoder, y - 12]]);
    this.text(X.decoder, y - 20, "Output Probabilities");
    const top = y - 38;
    const marker = svg("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 6, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, svg("path", { d: "M0 0.8 L7 4 L0 7.2 Z", class: "tip" }));
    const picture = svg("svg", { class: "figure", viewBox: `0 ${top} ${WIDTH} ${-top}`, width: WIDTH, height: -top, role: "group", "aria-label": "Figure 1 of the paper, for this model" },
      svg("defs", {}, marker), this.frames, this.lines, this.boxes);
    roving(picture, ".box");
    return picture;
  }
}

/** Open a box: the page scrolls to its numbers, and the side panel shows its equation and its code. */
function openBox(/** @type {string} */ id, /** @type {Record<string, any>} */ config) {
  const box = boxOf(id, config);
  if (!box) return;
  change({ box: id, pin: null, ...box.set });
  goTo(box.panel);
}

/** @returns {Panel} */
export function figurePanel(/** @type {Network} */ network) {
  const { config } = network;
  const update = () => {
    for (const box of panel.element.querySelectorAll("[data-box]")) box.classList.toggle("chosen", box.getAttribute("data-box") === view.box);
  };
  const facts = [
    [config.d_model, "numbers in every vector on the way, d_model"], [config.heads, `heads of ${config.d_k} numbers in every attention`], [config.d_ff, "numbers in the middle of a feed-forward network"],
    [config.target_vocabulary, "tokens that might come next"], [network.parameters, config.members > 1 ? `numbers learned in all ${config.members} members` : "numbers learned in all"],
  ];
  const make = () => [h("div", { className: "figure-row" }, h("div", { className: "drawing" }, new Drawing(config).picture()),
    h("dl", { className: "facts" }, ...facts.map(([n, says]) => h("div", {}, h("dt", {}, thousands(n)), h("dd", {}, says)))))];
  const panel = new Panel("figure", "The model", `Figure 1 of the paper, as this model is built: ${config.encoder_layers} layers on the left, ${config.decoder_layers} on the right, the norm ${config.norm === "pre" ? "before each sub-layer" : "after each sum"}. A box leads to its numbers, its equation and the lines that compute it.`,
    make, update, true);
  return panel;
}

/** What the side shows of a box. @returns {(Node|false)[]} */
export function aboutBox(/** @type {Network} */ { config, code }) {
  const box = boxOf(view.box, config);
  if (!box) return [];
  const back = () => {
    /** @type {any} */ (document.getElementById("map")).open = true;
    document.getElementById("figure")?.scrollIntoView({ block: "nearest" });
    /** @type {SVGElement|null} */ (document.querySelector(`[data-box="${CSS.escape(view.box)}"]`))?.focus({ preventScroll: true });
  };
  return [
    h("h2", {}, box.title), h("p", { className: "sentence" }, box.says),
    ...box.formulas.flatMap((name) => FORMULAS[name](config)),
    ...box.code.flatMap((name) => code[name] ?? []).map(listing),
    h("p", { className: "ways" }, h("button", { type: "button", className: "quiet", onclick: back }, "Back to the drawing"),
      h("button", { type: "button", className: "quiet", title: "Esc", onclick: () => change({ box: "" }) }, "Close")),
  ];
}

function listing(/** @type {Place} */ { name, place, text, line }) {
  return h("figure", { className: "listing" }, h("figcaption", {}, h("code", { className: "place" }, place), h("small", {}, name)),
    h("pre", { tabIndex: 0, "aria-label": `Code of ${name}` }, h("code", {}, ...text.split("\n").map((words, index) => h("span", { className: index === line ? "here" : "" }, `${words}\n`)))));
}
