/** Saves a tensor: as NPZ for NumPy, and as the Python that computes it. */

import { attention } from "./data.js";
import { announce, h } from "./dom.js";
import { view } from "./state.js";

/** @typedef {import("./data.js").Trace} Trace */
/** @typedef {import("./data.js").Cell} Cell */

export function download(/** @type {string} */ name, /** @type {Blob} */ blob) {
  const address = URL.createObjectURL(blob);
  h("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
  announce(`saved ${name}`);
}

/** The array file of NumPy: a head that says type and shape, then the numbers. @returns {Uint8Array<ArrayBuffer>} */
function npy(/** @type {number[]} */ shape, /** @type {Float32Array} */ data) {
  const says = `{'descr': '<f4', 'fortran_order': False, 'shape': (${shape.join(", ")}${shape.length === 1 ? "," : ""}), }`;
  const head = `${says}${" ".repeat(63 - ((10 + says.length) % 64))}\n`;
  const bytes = new Uint8Array(10 + head.length + 4 * data.length);
  bytes.set([0x93, ...new TextEncoder().encode("NUMPY"), 1, 0, head.length & 255, head.length >> 8]);
  bytes.set(new TextEncoder().encode(head), 10);
  bytes.set(new Uint8Array(Float32Array.from(data).buffer), 10 + head.length);
  return bytes;
}

/** The check sum of ZIP files. */
function crc(/** @type {Uint8Array} */ bytes) {
  let sum = ~0;
  for (const byte of bytes) {
    sum ^= byte;
    for (let bit = 0; bit < 8; bit += 1) sum = (sum >>> 1) ^ (sum & 1 ? 0xedb88320 : 0);
  }
  return ~sum >>> 0;
}

/** A ZIP file of members that are not compressed. @returns {Blob} */
export function zipped(/** @type {[string, Uint8Array<ArrayBuffer>][]} */ files) {
  /** Numbers of 2 and 4 bytes, the least significant byte first. */
  const fields = (/** @type {[number, number][]} */ ...all) => Uint8Array.from(all.flatMap(([size, value]) => Array.from({ length: size }, (_, n) => (value >>> (8 * n)) & 255)));
  /** @type {Uint8Array<ArrayBuffer>[]} */ const members = [];
  /** @type {Uint8Array<ArrayBuffer>[]} */ const listed = [];
  let place = 0;
  for (const [name, data] of files) {
    const title = new TextEncoder().encode(name);
    /** @type {[number, number][]} */ const common = [[2, 20], [2, 0x800], [2, 0], [2, 0], [2, 0x21], [4, crc(data)], [4, data.length], [4, data.length], [2, title.length], [2, 0]];
    const local = fields([4, 0x04034b50], ...common);
    members.push(local, title, data);
    listed.push(fields([4, 0x02014b50], [2, 20], ...common, [2, 0], [2, 0], [2, 0], [4, 0], [4, place]), title);
    place += local.length + title.length + data.length;
  }
  const size = listed.reduce((sum, part) => sum + part.length, 0);
  return new Blob([...members, ...listed, fields([4, 0x06054b50], [2, 0], [2, 0], [2, files.length], [2, files.length], [4, size], [4, place], [2, 0])]);
}

/** The Python that computes a tensor. */
export function python(/** @type {Trace} */ trace, /** @type {Cell} */ { name, head }) {
  const quoted = JSON.stringify;
  const { muted, forced, text } = trace.json;
  const looked = view.member ? [`member=${view.member}`] : [];
  /** What is done to each value. @type {Map<string, string[]>} */ const edits = new Map();
  const act = (/** @type {string} */ value, /** @type {string} */ call) => edits.set(value, [...(edits.get(value) ?? []), call]);
  for (const [kind, layer, one] of muted) act(`${attention(kind, layer)}.z`, `mute_head(${one})`);
  for (const { input, name: value, ...places } of trace.json.patches ?? []) {
    const chosen = [["head", places.head], ["row", places.row], ["col", places.col], ["from_row", places.fromRow]].filter(([, place]) => place >= 0).map(([key, place]) => `, ${key}=${place}`);
    act(value, `TakeOver(model.trace(${[quoted(input), ...looked].join(", ")})[${quoted(value)}], ${quoted(value)}${chosen.join("")})`);
  }
  const { drawn } = trace.json;
  if (drawn) {
    const value = `${attention(drawn.attention, drawn.layer)}.weights`;
    act(value, `TakeOver(torch.tensor([${drawn.shares.join(", ")}]).expand(${trace.heads}, 1, -1), ${quoted(value)}, head=${drawn.head}, row=${drawn.row}, from_row=0)`);
  }
  const edit = [...edits].map(([value, calls]) => `${quoted(value)}: ${calls.length > 1 ? `all_of(${calls.join(", ")})` : calls[0]}`);
  const used = ["TakeOver", "all_of", "mute_head"].filter((each) => edit.some((line) => line.includes(`${each}(`)));
  const settings = [...looked, ...(forced ? [`target=${quoted(trace.output)}`] : []), ...(edit.length ? [`edit={${edit.join(", ")}}`] : [])];
  const byPosition = /\.(q|k|v|z)$/.test(name);
  return [
    ...(drawn ? ["import torch"] : []), "import seq2see", ...(used.length ? [`from seq2see.inspection.trace import ${used.join(", ")}`] : []),
    `model = seq2see.load(${quoted(view.model)})`, `trace = model.trace(${[quoted(text), ...settings].join(", ")})`,
    `trace[${quoted(name)}]${head < 0 ? "" : byPosition ? `[:, ${head}]` : `[${head}]`}`,
  ].join("\n");
}

/** The ways to take the tensor of a cell along. @returns {HTMLElement} */
export function takeAlong(/** @type {Trace} */ trace, /** @type {Cell} */ cell) {
  const file = `${view.model}-${cell.name}${cell.head < 0 ? "" : `-head-${cell.head}`}`;
  const button = (/** @type {string} */ text, /** @type {(event: any) => any} */ act) => h("button", { type: "button", className: "link", onclick: act }, text);
  const { shape, data } = trace.tensor(cell.name, cell.head);
  const copy = async (/** @type {any} */ event) => {
    await navigator.clipboard.writeText(python(trace, cell));
    event.target.textContent = "copied";
    announce("copied");
  };
  return h("p", { className: "take" }, "This tensor: ", button("NPZ", () => download(`${file}.npz`, zipped([[`${cell.name}.npy`, npy(shape, data)]]))), " ", button("copy as Python", copy));
}
