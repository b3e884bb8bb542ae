"""The page with one trace as a single file that opens from disk, without a server or a network."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any

from seq2see.inspection.trace import Trace
from seq2see.seq2seq import Seq2Seq
from seq2see.serve.tracing import describe, describe_model, describe_network
from seq2see.serve.wire import packed

STATIC = Path(__file__).parent / "static"
BEAM = 4  # prefixes in the saved tree
HEIGHT = 720  # pixels in a notebook
ENTRY = 'import "seq2see/main.js";'
ALSO = ("lens", "saliency")

#: What a large model's file holds: whole attentions as shades, and, as exact as they are, so that what the page adds up
#: comes out right, the vectors, the norms' γ and β, and of each head its own numbers. Matrices are left out: they are the
#: model.
VECTORS = [
    "*.embedding.embedded", "*.embedding.scaled", "*.embedding.positions", "*.embedding.sum",
    "*_attention.out", "*.feed_forward.hidden", "*.feed_forward.out", "*_norm.sum", "*_norm.normed", "*_norm.out",
    "encoder.memory", "decoder.out", "*norm.weight", "*norm.bias",
]  # fmt: skip
OF_A_HEAD = [f"*_attention.{role}" for role in ("q", "k", "v", "scores", "scaled", "masked", "weights", "z")]


def single_file(name: str, model: Seq2Seq, text: str) -> str:
    """Write everything into one page: styles, modules, and the trace of a text."""
    return _page(describe_model(name, model), model.trace(text))


def in_notebook(trace: Trace) -> str:
    """Frame the page with a trace, for a notebook."""
    network = {**describe_network(trace.transformer.config), "name": "", "examples": []}
    return f'<iframe srcdoc="{escape(_page(network, trace))}" width="100%" height="{HEIGHT}" style="border: 0"></iframe>'


def _page(network: dict[str, Any], trace: Trace) -> str:
    """Put a trace into the page; modules are data: URLs behind an import map, since a file may not import another."""
    if network["small"]:
        told, more = describe(trace, beam=BEAM, also=ALSO), []
    else:
        told = describe(trace, ["*.weights"], BEAM, compact=True, also=ALSO)
        heads = range(trace.transformer.config.heads)
        more = [packed(trace, VECTORS), *(packed(trace, OF_A_HEAD, head=head) for head in heads)]
    saved = {"model": network, "trace": told, "more": more}
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
    # "<" would let a token of the model end the script element
    data = json.dumps(saved, ensure_ascii=False).replace("<", "\\u003c")
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    page = re.sub(r'<link rel="(stylesheet|preload|modulepreload)" [^>]*>\n', "", page)
    page = page.replace('<script type="module" src="main.js"></script>', "\n".join(head))
    return page.replace("</body>", f'<script type="application/json" id="saved">{data}</script>\n</body>')


def _modules() -> list[Path]:
    return sorted(STATIC.glob("*.js"))


def _url(path: Path) -> str:
    """Turn a module into a data: URL that imports the others by the names of the import map."""
    code = re.sub(r'from "\./(\w+\.js)"', r'from "seq2see/\1"', path.read_text(encoding="utf-8"))
    return "data:text/javascript;base64," + b64encode(code.encode()).decode()


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
