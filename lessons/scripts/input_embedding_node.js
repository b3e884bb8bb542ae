// The vector that OpenAI gives to a text: `node input_embedding_node.js [TEXT]`. It needs a key.
const { openaiVectors, shown } = require("./vectors.js");

const text = process.argv.slice(2).join(" ") || "The black cat sat on the couch and the brown dog slept on the couch";
openaiVectors([text]).then(([vector]) => console.log(`${vector.length} numbers: ${shown(vector, 3)}`));
