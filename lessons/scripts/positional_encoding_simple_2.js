// The positions of black (2) and brown (10) in “The black cat sat on the couch and the brown dog slept on the rug”.
//
// With the paper's exponent, and with the introduction's, which is taken twice.
const { D_MODEL, positionalEncoding, shown } = require("./vectors.js");

for (const [name, doubled] of [["the paper's exponent", false], ["the exponent taken twice", true]]) {
  console.log(`With ${name}:`);
  for (const position of [2, 10]) {
    console.log(`PE(${position}) = ${shown(positionalEncoding(position, D_MODEL, doubled))}`);
  }
}
