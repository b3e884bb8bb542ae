"""The page with one trace as a single file that opens from disk, without a server or a network."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

from seq2see.seq2seq import Seq2Seq
from seq2see.serve.tracing import describe_model, describe_trace

STATIC = Path(__file__).parent / "static"
BEAM = 4  # prefixes in the saved tree
ENTRY = 'import "seq2see/main.js";'


def single_file(name: str, model: Seq2Seq, text: str) -> str:
    """Write everything into one page: styles, modules, and the trace of a text.

    Modules are data: URLs behind an import map, since a file may not import another file.
    """
    saved = {"model": describe_model(name, model), "trace": describe_trace(model, text, beam=BEAM)}
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
    page = page.replace('<link rel="stylesheet" href="style.css">\n', "")
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
