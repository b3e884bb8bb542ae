"""Writes the page and one trace into a single HTML file that needs no server and no network; notebooks show it too."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any

from seq2see.inspection.trace import Trace
from seq2see.page import STATIC
from seq2see.page.describe import describe, describe_network
from seq2see.page.wire import packed

BEAM = 4  # width of the beam search whose tree is saved
HEIGHT = 720  # of the frame in a notebook, in pixels
ENTRY = 'import "seq2see/main.js";'
ALSO = ("lens", "saliency")

#: The file of a large model holds whole attentions as bytes, which is enough for shades. The vectors, the γ and β of the
#: norms and the numbers of each head are exact, so that the sums on the page come out right. The weight matrices are left
#: out, because they are as large as the model itself.
VECTORS = [
    "*.embedding.embedded", "*.embedding.scaled", "*.embedding.positions", "*.embedding.sum", "*.embedding.normed",
    "*_attention.out", "*.feed_forward.hidden", "*.feed_forward.out", "*_norm.sum", "*_norm.normed", "*_norm.out",
    "encoder.memory", "decoder.out", "*norm.weight", "*norm.bias",
]  # fmt: skip
OF_A_HEAD = [f"*_attention.{role}" for role in ("q", "k", "v", "scores", "scaled", "masked", "weights", "z")]


class PageTrace(Trace):
    """A trace that a notebook shows as the page."""

    def _repr_html_(self) -> str:
        model = {**describe_network(self.transformer.config), "name": "", "examples": []}
        page = escape(single_file(model, self))
        return f'<iframe srcdoc="{page}" width="100%" height="{HEIGHT}" style="border: 0"></iframe>'


def single_file(model: dict[str, Any], trace: Trace) -> str:
    """Return one page with styles, modules and a trace; ``model`` is what ``describe_model`` returns.

    A file on disk may not import another file, so the modules are data: URLs behind an import map.
    """
    if model["small"]:
        described, more = describe(trace, beam=BEAM, also=ALSO), []
    else:
        described = describe(trace, ["*.weights"], BEAM, compact=True, also=ALSO)
        heads = range(trace.transformer.config.heads)
        more = [packed(trace, VECTORS), *(packed(trace, OF_A_HEAD, head=head) for head in heads)]
    saved = {"model": model, "trace": described, "more": more}
    imports = json.dumps({"imports": {f"seq2see/{path.name}": _url(path) for path in _modules()}})
    style = (STATIC / "style.css").read_text(encoding="utf-8")
    scripts = " ".join(_digest(script) for script in (imports, ENTRY))
    policy = f"default-src 'none'; script-src {scripts} data:; style-src {_digest(style)}; img-src data:"
    head = [
        f'<meta http-equiv="content-security-policy" content="{policy}">',
        f"<style>{style}</style>",
        f'<script type="importmap">{imports}</script>',
        f'<script type="module">{ENTRY}</script>',
    ]
    # A token of the model that contains "<" could end the script element.
    data = json.dumps(saved, ensure_ascii=False).replace("<", "\\u003c")
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    page = re.sub(r'<link rel="(stylesheet|preload|modulepreload)" [^>]*>\n', "", page)
    page = page.replace('<script type="module" src="main.js"></script>', "\n".join(head))
    return page.replace("</body>", f'<script type="application/json" id="saved">{data}</script>\n</body>')


def _modules() -> list[Path]:
    return sorted(STATIC.glob("*.js"))


def _url(path: Path) -> str:
    """Return a module as a data: URL; it imports the other modules by their names in the import map."""
    code = re.sub(r'from "\./(\w+\.js)"', r'from "seq2see/\1"', path.read_text(encoding="utf-8"))
    return "data:text/javascript;base64," + b64encode(code.encode()).decode()


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
