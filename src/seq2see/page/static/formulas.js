/** The paper’s equations in MathML. */

import { h } from "./dom.js";

const MATH = "http://www.w3.org/1998/Math/MathML";

/** @typedef {Node|string} Part a node, or a name: letters are set as variables, the rest as operators */

/** @returns {Element} */
function m(/** @type {string} */ tag, /** @type {Part[]} */ ...parts) {
  const element = document.createElementNS(MATH, tag);
  element.append(...parts);
  return element;
}

/** @returns {Node[]} */
const read = (/** @type {Part[]} */ parts) => parts.map((part) => {
  if (typeof part !== "string") return part;
  return m(/^[\p{L}]/u.test(part) ? "mi" : /^\d/.test(part) ? "mn" : "mo", part);
});
const row = (/** @type {Part[]} */ ...parts) => m("mrow", ...read(parts));
const sub = (/** @type {Part} */ x, /** @type {Part} */ i) => m("msub", ...read([x, i]));
const sup = (/** @type {Part} */ x, /** @type {Part} */ i) => m("msup", ...read([x, i]));
const over = (/** @type {Part} */ a, /** @type {Part} */ b) => m("mfrac", ...read([a, b]));
const root = (/** @type {Part[]} */ ...parts) => m("msqrt", ...read(parts));

/** @returns {HTMLElement} */
function formula(/** @type {Part[]} */ ...parts) {
  const math = m("math", ...read(parts));
  math.setAttribute("displaystyle", "true");
  return h("div", { className: "formula" }, math);
}

const d = () => sub("d", "model");

/** Equation 1, or a head of it. */
export const attentionFormula = () => formula("Attention", "(", "Q", ",", "K", ",", "V", ")", "=", "softmax", "(",
  over(row("Q", sup("K", "T")), root(sub("d", "k"))), ")", "V");

/** @type {Record<string, (config: Record<string, any>) => HTMLElement[]>} */
export const FORMULAS = {
  tokens: () => [],
  embedding: ({ scale_embeddings }) => [formula("x", "=", ...(scale_embeddings ? [root(d()), "·"] : []), "E", "[", "id", "]")],
  positions: ({ positions }) => (positions === "learned" ? [formula("PE", "(", "pos", ")", "=", "P", "[", "pos", "]")] : positions !== "paper" ? inHalves({ fairseq: "2", opennmt: "1" }[/** @type {string} */ (positions)]) : [
    formula(sub("PE", row("pos", ",", "2", "i")), "=", "sin", "(", over("pos", sup("10000", row("2", "i", "/", d()))), ")"),
    formula(sub("PE", row("pos", ",", "2", "i", "+", "1")), "=", "cos", "(", over("pos", sup("10000", row("2", "i", "/", d()))), ")"),
  ]),
  attention: () => [
    formula("MultiHead", "=", "Concat", "(", sub("head", "1"), ",", "…", ",", sub("head", "h"), ")", sup("W", "O")),
    formula(sub("head", "i"), "=", "softmax", "(", over(row(sub("Q", "i"), m("msubsup", ...read(["K", "i", "T"]))), root(sub("d", "k"))), ")", sub("V", "i")),
  ],
  mask: () => [
    formula("MultiHead", "=", "Concat", "(", sub("head", "1"), ",", "…", ",", sub("head", "h"), ")", sup("W", "O")),
    formula(sub("head", "i"), "=", "softmax", "(", over(row(sub("Q", "i"), m("msubsup", ...read(["K", "i", "T"]))), root(sub("d", "k"))), "+", "M", ")", sub("V", "i")),
    formula(sub("M", row("t", ",", "s")), "=", "−", "∞", m("mtext", "\u2003where\u2003"), "s", ">", "t"),
  ],
  post: () => [formula("LayerNorm", "(", "x", "+", "Sublayer", "(", "x", ")", ")"), norm()],
  pre: () => [formula("x", "+", "Sublayer", "(", "LayerNorm", "(", "x", ")", ")"), norm()],
  norm: () => [norm()],
  feed_forward: ({ activation }) => [activation === "relu"
    ? formula("FFN", "(", "x", ")", "=", "max", "(", "0", ",", "x", sub("W", "1"), "+", sub("b", "1"), ")", sub("W", "2"), "+", sub("b", "2"))
    : formula("FFN", "(", "x", ")", "=", activation, "(", "x", sub("W", "1"), "+", sub("b", "1"), ")", sub("W", "2"), "+", sub("b", "2"))],
  linear: ({ share_output, output_bias }) => [formula("z", "=", "y", sup(share_output ? "E" : "W", "T"), ...(share_output && !output_bias ? [] : ["+", "b"]))],
  softmax: () => [formula("P", "(", "j", ")", "=", over(sup("e", sub("z", "j")), row(sub("∑", "k"), sup("e", sub("z", "k")))))],
};

/** All sines before all cosines; those of fairseq and OpenNMT do not count from 0, and have another exponent. */
function inHalves(/** @type {string|undefined} */ first) {
  const half = () => over(d(), "2");
  const angle = () => over(first ? row("pos", "+", first) : "pos", sup("10000", first ? row("i", "/", "(", half(), "−", "1", ")") : row("2", "i", "/", d())));
  return [
    formula(sub("PE", row("pos", ",", "i")), "=", "sin", "(", angle(), ")"),
    formula(sub("PE", row("pos", ",", half(), "+", "i")), "=", "cos", "(", angle(), ")"),
  ];
}

function norm() {
  return formula("LayerNorm", "(", "x", ")", "=", "γ", over(row("x", "−", "μ"), root(sup("σ", "2"), "+", "ε")), "+", "β");
}
