/** What a head does, measured: how much of its attention goes to the token itself, to a neighbour, to the token that is copied … */

import { attention } from "./data.js";

/** @typedef {import("./data.js").Trace} Trace */
/** @typedef {import("./data.js").Kind} Kind */
/** The attention that went to such places, what even attention would give them, and the rows that have such a place. @typedef {{sum: number, even: number, rows: number}} Measure */
/** By habit. @typedef {Record<string, Measure>} Habits */

/** Which columns belong to a habit, by row. @returns {Record<string, (row: number) => number[]>} */
function placesOf(/** @type {Trace} */ trace, /** @type {Kind} */ kind, /** @type {number} */ rows, /** @type {number} */ cols) {
  const within = (/** @type {number[]} */ places) => places.filter((col) => col >= 0 && col < cols);
  const keys = trace.tokens(kind === "decoder" ? "target" : "source");
  const signs = keys.flatMap((token, s) => (/^[^\p{L}\p{N}<]+$/u.test(token) ? [s] : []));
  const ends = keys.flatMap((token, s) => (/^<.+>$/.test(token) ? [s] : []));
  const seen = (/** @type {number[]} */ places) => (/** @type {number} */ t) => (kind === "decoder" ? places.filter((s) => s <= t) : places);
  const marks = { "looks at signs": seen(signs), "looks at signs and ends": seen([...signs, ...ends]) };
  if (kind !== "cross") {
    return {
      ...marks, "looks two back": (t) => within([t - 2]), "looks three back": (t) => within([t - 3]),
      "looks at what is near": (t) => within(kind === "encoder" ? [t - 1, t, t + 1] : [t - 2, t - 1, t]).filter((s) => kind === "encoder" || s <= t),
      "looks at itself": (t) => [t], "looks at the previous token": (t) => within([t - 1]), "looks at the next token": (t) => within([t + 1]),
      "looks at the start": (t) => (t > 1 ? [0] : []), "looks at the end": (t) => (kind === "encoder" && t < cols - 2 ? [cols - 1] : []),
    };
  }
  const source = trace.tokens("source");
  const along = (/** @type {number} */ t) => Math.round((t / Math.max(1, rows - 1)) * (cols - 1));
  return {
    ...marks, copies: (t) => source.flatMap((token, s) => (token === trace.steps[t]?.token ? [s] : [])), "looks at the start": () => [0], "looks at the end": () => [cols - 1],
    aligns: (t) => within([along(t) - 1, along(t), along(t) + 1]),
  };
}

/** Add what a head does in one trace to what was measured before. */
export function measure(/** @type {Habits} */ habits, /** @type {Trace} */ trace, /** @type {Kind} */ kind, /** @type {number} */ layer, /** @type {number} */ head) {
  const A = trace.matrix(`${attention(kind, layer)}.weights`, head);
  for (const [name, places] of Object.entries(placesOf(trace, kind, A.rows, A.cols))) {
    const found = (habits[name] ??= { sum: 0, even: 0, rows: 0 });
    for (let row = 0; row < A.rows; row += 1) {
      const columns = places(row);
      if (!columns.length) continue;
      found.sum += columns.reduce((sum, col) => sum + A.at(row, col), 0);
      found.even += columns.length / (kind === "decoder" ? row + 1 : A.cols);
      found.rows += 1;
    }
  }
  return habits;
}

const ENOUGH = 0.35; // of the attention
const MORE = 0.2; // than even attention gives

/** The habit that stands out most, with its mean share; “mixed” if none does. @returns {{name: string, share: number}} */
export function labelOf(/** @type {Habits} */ habits) {
  let best = { name: "mixed", share: 0, over: MORE };
  for (const [name, { sum, even, rows }] of Object.entries(habits)) {
    if (rows < 2 || sum / rows < ENOUGH || (sum - even) / rows <= best.over) continue;
    best = { name, share: sum / rows, over: (sum - even) / rows };
  }
  return best;
}
