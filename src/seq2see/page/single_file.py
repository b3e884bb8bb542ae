"""Writes the page and one trace into a single HTML file that needs no server and no network; notebooks show it too."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any

from seq2see.inspection.effect import names_of_gates
from seq2see.inspection.trace import Trace
from seq2see.page import STATIC, WORKER
from seq2see.page.describe import describe, describe_network
from seq2see.page.wire import packed

BEAM = 4  # width of the beam search whose tree is saved
LARGEST = 3_000_000  # bytes of the page of a large model's trace
OWN = 400_000  # bytes of the page itself
HEIGHT = 720  # of the frame in a notebook, in pixels
ENTRY = 'import "seq2see/main.js";'
ALSO = ("lens",)
QUOTED = {ord(sign): f"%{ord(sign):02X}" for sign in "%#\n"}  # characters with a meaning in a URL

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


@dataclass(frozen=True)
class Inside:
    """A model that runs in the page: the description for its worker, its weights as text, and the worker's script."""

    about: dict[str, Any]
    weights: list[str]
    worker: str


def single_file(model: dict[str, Any], trace: Trace, inside: Inside | None = None, home: str | None = None) -> str:
    """Return one page with styles, modules and a trace; ``model`` is what ``describe_model`` returns.

    A file on disk may not import another file, so the modules are data: URLs behind an import map. With a model
    inside, the page answers any text. It then holds of the trace only what is seen first, and computes the rest.
    On a site, ``home`` is the address that the page's name links to.
    """
    saved: dict[str, Any] = {
        "model": {key: value for key, value in model.items() if key != "card"}, "more": [],
    }  # fmt: skip
    if inside is not None:
        saved |= {"trace": describe(trace, ["*.weights"], compact=True), "inside": inside.about}
    else:
        # The weights stay at home, and what the answer needs travels with the trace.
        names = ["*"] if model["small"] else ["*.weights"]
        gates = names_of_gates(trace.transformer)
        saved["trace"] = describe(trace, names, BEAM, compact=not model["small"], also=ALSO, closed=gates)
        if not model["small"]:
            saved["more"] = _within(LARGEST - len(json.dumps(saved)) - OWN, trace)
    imports = _escaped({"imports": {f"seq2see/{path.name}": _url(path) for path in _modules()}})
    style = re.sub(r"/\*.*?\*/", "", (STATIC / "style.css").read_text(encoding="utf-8"))
    style = re.sub(r"\s*([{};])\s*|(:) ", r"\1\2", style)  # spaces that mean nothing
    scripts = " ".join(_digest(script) for script in (imports, ENTRY))
    programs = " 'wasm-unsafe-eval'" if inside is not None else ""  # the products of matrices (fast.js)
    policy = (
        f"default-src 'none'; script-src {scripts} data:{programs}; style-src {_digest(style)}; img-src data:; "
        "worker-src blob:"
    )
    head = [
        f'<meta http-equiv="content-security-policy" content="{policy}">',
        f"<style>{style}</style>",
        f'<script type="importmap">{imports}</script>',
    ]
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    page = re.sub(r'<link rel="(stylesheet|preload|modulepreload)" [^>]*>\n', "", page)
    page = page.replace('<script type="module" src="main.js"></script>', "\n".join(head))
    if home is not None:
        page = page.replace("<h1>seq2see</h1>", f'<h1><a href="{escape(home)}" target="_top">seq2see</a></h1>')
    # The page begins before the weights are read.
    body = [
        f'<script type="application/json" id="saved">{_escaped(saved)}</script>',
        f'<script type="module" async>{ENTRY}</script>',
    ]
    if inside is not None:
        assert not re.search(r"</script|<!--", inside.worker, re.IGNORECASE)
        body.insert(1, f'<script type="text/plain" id="worker">{inside.worker}</script>')
        body += [f'<script type="text/plain" class="weights">{part}</script>' for part in inside.weights]
    return page.replace("</body>", "\n".join([*body, "</body>"]))


def _within(room: int, trace: Trace) -> list[dict[str, Any]]:
    """Return the exact numbers of a large model's trace, head by head and then the vectors, as far as there is room."""
    heads = range(trace.transformer.config.heads)
    found = []
    for make in (*(partial(packed, trace, OF_A_HEAD, head=head) for head in heads), partial(packed, trace, VECTORS)):
        part = make()
        room -= len(part["data"])
        if room < 0:
            break
        found.append(part)
    return found


def _escaped(value: Any) -> str:
    """Write JSON for a script element, which a "<" in a token of the model could end."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def _modules() -> list[Path]:
    """Return the page's modules; those of the worker are in its script."""
    return sorted(path for path in STATIC.glob("*.js") if path.name not in WORKER or path.name == "weights.js")


def _url(path: Path) -> str:
    """Return a module as a data: URL; it imports the other modules by their names in the import map."""
    code = re.sub(r'from "\./(\w+\.js)"', r'from "seq2see/\1"', bare(path))
    code = re.sub(r"^//.*\n", "", code, flags=re.MULTILINE)
    code = re.sub(r"([{(\[,;])\n", r"\1", code)  # a line break takes three characters in a URL
    return "data:text/javascript;charset=utf-8," + code.translate(QUOTED)


def bare(path: Path) -> str:
    """Return a module without its types, explanations and indentation, which are in the package."""
    code = re.sub(r"/\*\*.*?\*/ ?", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    code = re.sub(r"\n\s+", "\n", code)
    code = "\n".join(map(_uncommented, code.split("\n")))
    assert all(line.count("`") % 2 == 0 for line in code.split("\n")), f"{path.name} has a text of many lines"
    return code


def _uncommented(line: str) -> str:
    """Return a line without the comment at its end; text that looks like a comment within a string stays."""
    before, mark, _ = line.partition(" // ")
    return before.rstrip() if mark and all(before.count(sign) % 2 == 0 for sign in '"`') else line


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
