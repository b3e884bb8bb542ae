// How alike two words are: `node cosine_similarity_node.js [WORD WORD]`, by OpenAI's vectors or by counting in words.txt.
//
// What is counted is which words stand in one line: king and queen have the same neighbours, king and bread few. These are
// not OpenAI's numbers, which know far more text (the introduction prints 0.5905 for king and queen).
const { NO_KEY, cosine, countedVectors, openaiVectors, setting } = require("./vectors.js");

const [one = "king", other = "queen"] = process.argv.slice(2);
const say = (b, x, y) => console.log(`Cosine similarity between '${one}' and '${b}': ${cosine(x, y).toFixed(4)}`);
if (setting("OPENAI_API_KEY")) {
  openaiVectors([one, other]).then(([a, b]) => say(other, a, b));
} else {
  console.log(`${NO_KEY} Counted in the lines of words.txt instead:`);
  const [a, b, bread] = countedVectors(one, other, "bread");
  say(other, a, b);
  say("bread", a, bread);
}
