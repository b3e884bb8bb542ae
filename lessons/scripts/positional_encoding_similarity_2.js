// How alike the positions 2 and 10 are: with the paper's exponent, and with the introduction's, which is taken twice.
const { D_MODEL, cosine, positionalEncoding } = require("./vectors.js");

for (const [name, doubled] of [["the paper's exponent", false], ["the exponent taken twice", true]]) {
  const [two, ten] = [2, 10].map((position) => positionalEncoding(position, D_MODEL, doubled));
  console.log(`cosine_similarity(pos(2), pos(10)) = ${cosine(two, ten).toFixed(10)} with ${name}`);
}
