// What the scripts share: positions, cosines, and word vectors from OpenAI or counted in words.txt. No package is needed.
const fs = require("fs");
const path = require("path");

const D_MODEL = 512;
const MODEL = "text-embedding-3-small";
const NO_KEY =
  "There is no OPENAI_API_KEY, neither in the environment nor in a file .env here (a line OPENAI_API_KEY=sk-…).";

/** PE(position): the paper's, or with its exponent taken twice, as the introduction computes it. */
function positionalEncoding(position, dModel = D_MODEL, doubled = false) {
  const numbers = [];
  for (let even = 0; even < dModel; even += 2) {
    const angle = position / 10000 ** ((doubled ? 2 * even : even) / dModel);
    numbers.push(Math.sin(angle), Math.cos(angle));
  }
  return numbers;
}

const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);

/** The cosine of the angle between two vectors. */
const cosine = (a, b) => dot(a, b) / Math.sqrt(dot(a, a)) / Math.sqrt(dot(b, b));

/** What a model reads: the word's vector times √d_model, plus the position's. */
const added = (word, position) => word.map((y, i) => y * Math.sqrt(word.length) + position[i]);

function end(message) {
  console.error(message);
  process.exit(1);
}

/** A setting from the environment or from .env. */
function setting(name) {
  const lines = fs.existsSync(".env") ? fs.readFileSync(".env", "utf8").split(/\r?\n/) : [];
  const line = lines.map((text) => text.replace(/^export /, "")).find((text) => text.split("=")[0].trim() === name);
  return process.env[name] || (line && line.slice(line.indexOf("=") + 1).trim().replace(/^["']|["']$/g, ""));
}

/** Ask OpenAI for the vectors of some texts. Without a key, end with a word about it. */
async function openaiVectors(texts, dimensions) {
  const key = setting("OPENAI_API_KEY") || end(NO_KEY);
  const address = `${setting("OPENAI_BASE_URL") || "https://api.openai.com/v1"}/embeddings`;
  const answer = await fetch(address, {
    method: "POST",
    headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/json" },
    body: JSON.stringify({ input: texts, model: MODEL, ...(dimensions && { dimensions }) }),
    signal: AbortSignal.timeout(20_000),
  }).catch((error) => end(`${address} cannot be reached: ${error.cause?.message ?? error.message}.`));
  if (!answer.ok) end(`${address} refused the request: status ${answer.status}.`);
  const { data } = await answer.json();
  return data.sort((a, b) => a.index - b.index).map((item) => item.embedding);
}

/**
 * In how many lines of words.txt each other word stands beside each of some words: words used alike are near. A word
 * that most lines have, such as *the*, says nothing and is not counted.
 */
function countedVectors(...words) {
  const text = fs.readFileSync(path.join(__dirname, "words.txt"), "utf8").trim();
  const lines = text.split(/\r?\n/).map((line) => new Set(line.split(" ")));
  const having = (...some) => lines.filter((line) => some.every((word) => line.has(word))).length;
  const all = [...new Set(lines.flatMap((line) => [...line]))].sort();
  const counted = all.filter((word) => 2 * having(word) <= lines.length);
  for (const word of words) {
    if (!counted.includes(word)) end(`words.txt has no '${word}': give words that it has, such as king, queen and bread.`);
  }
  return words.map((word) => counted.map((other) => (other === word ? 0 : having(word, other))));
}

/** Two vectors of length 1 in place of OpenAI's for black and brown: with their cosine, 0.5690, and no meaning. */
function madeVectors() {
  const unit = (v) => v.map((x) => x / Math.sqrt(dot(v, v)));
  const black = unit(Array.from({ length: D_MODEL }, (_, i) => Math.sin(i * i + 1)));
  const other = Array.from({ length: D_MODEL }, (_, i) => Math.cos(i * i + i));
  const shared = dot(black, other);
  const rest = unit(other.map((x, i) => x - shared * black[i]));
  return [black, black.map((x, i) => 0.569 * x + Math.sqrt(1 - 0.569 ** 2) * rest[i])];
}

/** The vectors of black and brown, 512 numbers each; without a key, made ones. */
async function blackAndBrown() {
  if (setting("OPENAI_API_KEY")) return openaiVectors(["black", "brown"], D_MODEL);
  console.error(`${NO_KEY} Made vectors with the same cosine stand for black and brown.`);
  return madeVectors();
}

/** The first and the last numbers of a vector. */
function shown(numbers, count = 8) {
  const written = (part) => part.map((x) => x.toExponential(8).replace(/e([+-])(\d)$/, "e$10$2")).join(", ");
  return `[${written(numbers.slice(0, count))}, …, ${written(numbers.slice(-count))}]`;
}

module.exports = {
  D_MODEL, NO_KEY, positionalEncoding, cosine, added, setting, openaiVectors, countedVectors, blackAndBrown, shown,
};
