// A picture of the positional encoding: `node positional_encoding_simple.js [PICTURE.svg]`.
const fs = require("fs");
const { D_MODEL, positionalEncoding } = require("./vectors.js");

const picture = process.argv[2] ?? "positional_encoding.svg";
const rows = Array.from({ length: 100 }, (_, position) => positionalEncoding(position));
const colours = ["#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd"];
const lines = [64, 65, 128, 129, 192].map((column, n) => {
  const points = rows.map((row, position) => `${20 + 4.6 * position},${(200 - 150 * row[column]).toFixed(1)}`);
  const name = `<text x="${20 + 96 * n}" y="30" fill="${colours[n]}">dimension ${column}</text>`;
  return `<polyline points="${points.join(" ")}" fill="none" stroke="${colours[n]}"/>${name}`;
});
const cells = rows.flatMap((row, position) =>
  row.filter((_, i) => i % 4 === 0 || i % 4 === 1).map((x, i) => {
    const pale = Math.round(255 * (1 - Math.abs(x)));
    const colour = x < 0 ? `rgb(255,${pale},${pale})` : `rgb(${pale},${pale},255)`;
    return `<rect x="${520 + 2 * i}" y="${50 + 3 * position}" width="2" height="3" fill="${colour}"/>`;
  }),
);
const title = `<text x="520" y="30">100 positions, ${D_MODEL} dimensions (every second pair)</text>`;
const size = 'width="1052" height="380" font-family="sans-serif" font-size="13"';
fs.writeFileSync(picture, `<svg xmlns="http://www.w3.org/2000/svg" ${size}>${lines.join("")}${title}${cells.join("")}</svg>\n`);
console.log(`Written: ${picture}`);
