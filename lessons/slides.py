"""Make the slides of the lessons: `python lessons/slides.py [FILE]` writes one HTML page, for a screen or for paper.

Arrow keys, the space bar and clicks turn the pages; printing puts each slide on a page of its own.
"""

import json
import re
import sys
from html import escape
from pathlib import Path

STYLE = """
body { margin: 0; font: 2.2vmin/1.4 system-ui, sans-serif; color: #1b1f24; background: #fff; }
section { box-sizing: border-box; width: 100vw; height: 100vh; padding: 6vmin; display: none; flex-direction: column;
  gap: 3vmin; align-items: center; justify-content: center; text-align: center; }
section:target, body:not(:has(:target)) section:first-of-type { display: flex; }
h1 { font-size: 6vmin; margin: 0; } p { font-size: 3.4vmin; margin: 0; max-width: 40em; }
img { max-width: 88vw; max-height: 62vh; object-fit: contain; }
footer { color: #667; font-size: 2vmin; }
@media print { @page { size: A4 landscape; margin: 0; } section { display: flex; break-after: page; } }
"""
TURN = """
const turn = (by) => {
  const at = Number(location.hash.slice(2)) || 1;
  location.hash = "s" + Math.min(document.querySelectorAll("section").length, Math.max(1, at + by));
};
addEventListener("keydown", ({ key }) => {
  if (["ArrowRight", "ArrowDown", "PageDown", " "].includes(key)) turn(1);
  if (["ArrowLeft", "ArrowUp", "PageUp"].includes(key)) turn(-1);
});
addEventListener("click", () => turn(1));
"""


def slides_of(path: Path) -> list[tuple[str, str, str]]:
    """Return the title and the question of a lesson, and then each of its pictures, below the heading that it has."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    title, _, question = ("".join(cells[0]["source"])).partition("\n\n")
    slides, heading = [(title.lstrip("# "), re.sub(r"\*", "", question), "")], title.lstrip("# ")
    for cell in cells[1:]:
        found = (
            re.findall(r"^## (.+)$", "".join(cell["source"]), re.MULTILINE) if cell["cell_type"] == "markdown" else []
        )
        heading = re.sub(r"[*`]", "", found[-1]) if found else heading
        for output in cell.get("outputs", []):
            if picture := output.get("data", {}).get("image/png"):
                said = cell["metadata"]["mystnb"]["image"]["alt"]
                source = f'<img alt="{escape(said)}" src="data:image/png;base64,{"".join(picture).strip()}">'
                slides.append((heading, "", source))
    return slides


def page() -> str:
    """Return all slides as one page."""
    slides = [one for path in sorted(Path(__file__).parent.glob("[01]*.ipynb")) for one in slides_of(path)]
    sections = [
        f'<section id="s{number}"><h1>{escape(title)}</h1><p>{escape(said)}</p>{picture}<footer>{number}</footer>'
        "</section>"
        for number, (title, said, picture) in enumerate(slides, 1)
    ]
    head = f'<meta charset="utf-8"><title>The Transformer, in pictures</title><style>{STYLE}</style>'
    body = "\n".join([*sections, f"<script>{TURN}</script>"])
    return f'<!doctype html>\n<html lang="en">\n<head>{head}</head>\n<body>\n{body}\n</body>\n</html>\n'


if __name__ == "__main__":
    file = Path(sys.argv[1] if len(sys.argv) > 1 else "slides.html")
    file.write_text(page(), encoding="utf-8")
    print(f"Written: {file}")
