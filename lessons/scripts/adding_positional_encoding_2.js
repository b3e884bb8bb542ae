// How alike black at position 2 and brown at position 10 are: words, positions, and the sums that a model reads.
const { D_MODEL, added, blackAndBrown, cosine, positionalEncoding } = require("./vectors.js");

blackAndBrown().then(([black, brown]) => {
  for (const [name, here, there, doubled] of [
    ["the paper's exponent", 2, 10, false],
    ["the exponent taken twice", 2, 10, true],
    ["position 2 for both", 2, 2, false],
  ]) {
    const pe = [here, there].map((position) => positionalEncoding(position, D_MODEL, doubled));
    const numbers = [cosine(black, brown), cosine(...pe), cosine(added(black, pe[0]), added(brown, pe[1]))];
    const [words, positions, sums] = numbers.map((x) => x.toFixed(4));
    console.log(`words ${words}  positions ${positions}  sums ${sums}  with ${name}`);
  }
});
