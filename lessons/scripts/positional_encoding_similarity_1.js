// How alike black and brown are by OpenAI's vectors, without positions. It needs a key.
const { cosine, openaiVectors } = require("./vectors.js");

openaiVectors(["black", "brown"]).then(([black, brown]) =>
  console.log(`cosine_similarity(black, brown) = ${cosine(black, brown).toFixed(4)}`),
);
