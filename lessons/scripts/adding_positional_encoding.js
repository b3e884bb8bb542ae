// pc(black) = y(black)·√d_model + PE(2): what a model reads for the word black at position 2.
const { added, blackAndBrown, positionalEncoding, shown } = require("./vectors.js");

blackAndBrown().then(([black]) => console.log(`pc(black) = ${shown(added(black, positionalEncoding(2)), 4)}`));
