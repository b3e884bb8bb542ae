"""A static site: the page of each model, and a project's documents, lessons and code as pages, with a search over all."""

from __future__ import annotations

import io
import json
import re
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass, field
from html import escape, unescape
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from markdown_it import MarkdownIt
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_for_filename
from pygments.util import ClassNotFound

from seq2see.errors import UserError
from seq2see.files import plain_file, whole_or_nothing
from seq2see.page import STATIC

DOCUMENTS = (
    "README.md",
    "docs/*.md",
    "lessons/README.md",
    "RESULTS.md",
    "benchmarks/README.md",
    "CHANGELOG.md",
)
LESSONS = "lessons/*.ipynb"
#: Pictures that are published, and how their bytes begin. A picture that can hold a script (SVG) is not among them.
PICTURES = {
    ".png": (b"\x89PNG\r\n\x1a\n",),
    ".jpg": (b"\xff\xd8\xff",),
    ".jpeg": (b"\xff\xd8\xff",),
    ".gif": (b"GIF87a", b"GIF89a"),
    ".webp": (b"RIFF",),
}
LARGEST_PICTURE = 2**24  # bytes
SHOWN = ".html"  # the ending of what a browser shows
MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
CODE = HtmlFormatter(linenos="inline", lineanchors="L", anchorlinenos=True, nowrap=False)


@dataclass
class Page:
    """One page of the site: where it stands, its title, its HTML, and its plain text for the search."""

    path: str
    title: str
    body: str
    text: str = ""
    kind: str = ""


@dataclass
class Site:
    """All files of a site by their paths; ``root`` is the project that documents are read from."""

    root: Path | None
    pages: dict[str, Page] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)

    def add_documents(self) -> None:
        """Add the project's documents and lessons, then the code and the pictures that they link to."""
        if self.root is None:
            return
        for pattern in DOCUMENTS:
            for path in sorted(self.root.glob(pattern)):
                self._document(path)
        for path in sorted(self.root.glob(LESSONS)):
            self._lesson(path)
        linked: set[str] = set()
        while todo := [
            page for path, page in self.pages.items() if path not in linked
        ]:  # a link may bring a page along
            for page in todo:
                page.body = self._relinked(page)
                linked.add(page.path)

    def _document(self, path: Path) -> None:
        name = path.relative_to(self.root or path).as_posix()
        text = path.read_text(encoding="utf-8")
        title = next((line[2:] for line in text.splitlines() if line.startswith("# ")), path.stem)
        body = _anchored(MARKDOWN.render(text))
        self.pages[_shown(name)] = Page(_shown(name), _words(title), body, _said(body), "Documents")

    def _lesson(self, path: Path) -> None:
        name = path.relative_to(self.root or path).as_posix()
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        body = "\n".join(_cell(cell) for cell in cells)
        text = "\n".join("".join(cell["source"]) for cell in cells)
        title = next((line[2:] for line in text.splitlines() if line.startswith("# ")), path.stem)
        note = f'<p class="sentence">The notebook <code>{escape(name)}</code>, with its outputs.</p>'
        self.pages[_shown(name)] = Page(_shown(name), _words(title), note + _anchored(body), text, "Lessons")

    def _relinked(self, page: Page) -> str:
        """Let links to documents lead to their pages, and bring along the pictures and the code that are linked."""

        def link(match: re.Match[str]) -> str:
            attribute, address = match[1], unquote(urlsplit(match[2]).path)
            if urlsplit(match[2]).scheme or not address:
                return match[0]
            target = normpath(PurePosixPath(page.path).parent / address)
            anchor = f"#{urlsplit(match[2]).fragment}" if urlsplit(match[2]).fragment else ""
            found = self._found(target)
            if found is None:
                return f'{attribute}="" data-gone' if attribute == "src" else "data-gone"
            return f'{attribute}="{_address(page.path, found)}{anchor}"'

        linked = re.sub(r'(href|src)="([^"]*)"', link, page.body)
        return re.sub(r"<a data-gone[^<>]*+>([^<]*+(?:<(?!/?a[ >])[^<]*+)*+)</a>", r"\1", linked)

    def _found(self, target: str) -> str | None:
        """Return the path in the site of a file of the project, which is added to the site if need be."""
        if _shown(target) in self.pages:
            return _shown(target)
        if target in self.files:
            return target
        file = (self.root or Path()) / target
        if self.root is None or target.startswith("..") or not file.is_file():
            return (
                "lessons/README.html" if target == "lessons" and "lessons/README.html" in self.pages else None
            )
        if not file.resolve().is_relative_to(self.root.resolve()):
            return None
        if file.suffix.lower() in {*PICTURES, ".svg"}:
            data = picture(self.root, target)
            if data is None:
                return None
            self.files[target] = data
            return target
        if file.suffix == ".md":
            self._document(file)
        else:
            try:
                code = highlight(file.read_text(encoding="utf-8"), get_lexer_for_filename(file.name), CODE)
            except (ClassNotFound, UnicodeDecodeError):
                return None
            self.pages[_shown(target)] = Page(
                _shown(target), target, f"<h1>{escape(target)}</h1>{code}", "", "Code"
            )
        return _shown(target)

    def add_model(self, name: str, title: str, page: str, card: str, folder: Path | None = None) -> None:
        """Add the page of a model, as it is, and its card with the pictures of its folder."""
        self.files[f"{name}.html"] = page.encode()

        def shown(match: re.Match[str]) -> str:
            target = normpath(unquote(unescape(match[1])))
            data = None if folder is None else picture(folder, target)
            if data is None:
                return f"<em>{match[2]}</em>"  # its words stay
            self.files[f"models/{name}/{target}"] = data
            return f'<img src="{quote(name)}/{quote(target)}" alt="{match[2]}">'

        told = re.sub(r'<img src="([^"]*+)" alt="([^"]*+)"[^<>]*+>', shown, _anchored(MARKDOWN.render(card)))
        body = f'<p><a href="../{quote(name)}.html">Open the page of this model</a></p>{told}'
        self.pages[f"models/{name}.html"] = Page(f"models/{name}.html", title, body, _said(body), "Models")

    def write(self, out: Path) -> list[str]:
        """Write the site into a new or empty folder, and return the links that lead nowhere."""
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise UserError(f"{out} is not an empty folder: name one that is not there yet.")
        models = [page for page in self.pages.values() if page.kind == "Models"]
        self.pages["index.html"] = Page(
            "index.html", "seq2see", _front(models, self.pages, self.files), "", ""
        )
        found = dict(self.files)
        found["style.css"] = (STATIC / "style.css").read_bytes()
        found["site.css"] = (STATIC / "site" / "site.css").read_bytes() + CODE.get_style_defs(
            ".highlight"
        ).encode()
        found["search.js"] = (STATIC / "site" / "search.js").read_bytes()
        found["index.js"] = _index(self.pages.values()).encode()
        found |= {path: _whole(page, self.pages).encode() for path, page in self.pages.items()}
        dead = _dead(found)
        with whole_or_nothing(out) as made:
            for path, data in found.items():
                (made / path).parent.mkdir(parents=True, exist_ok=True)
                (made / path).write_bytes(data)
        return dead


def picture(folder: Path, target: str) -> bytes | None:
    """Return a picture of a folder, or None if it is none that may be published.

    The text that names it may be a stranger's. Only a plain file in the folder itself, reached without a link, of a kind
    that holds nothing but pixels, is read.
    """
    path = PurePosixPath(target)
    kinds = PICTURES.get(path.suffix.lower())
    if kinds is None or path.is_absolute() or ".." in path.parts or "\0" in target or "\\" in target:
        return None
    file = folder / path
    try:
        if any(one.is_symlink() for one in (file, *file.parents[: len(path.parts) - 1])):
            return None
        plain_file(file, LARGEST_PICTURE)
        data = file.read_bytes()
    except (OSError, UserError):
        return None
    return data if data.startswith(kinds) else None


def _shown(name: str) -> str:
    """Return the path of the page of a file: documents lose their ending, code keeps it."""
    path = PurePosixPath(name)
    return str(path.with_suffix(SHOWN)) if path.suffix in {".md", ".ipynb", SHOWN} else f"{name}{SHOWN}"


def _address(origin: str, target: str) -> str:
    return quote(str(relpath(target, str(PurePosixPath(origin).parent))))


def _said(html: str) -> str:
    """Return what a page says, without its tags: the search shows parts of it."""
    return unescape(re.sub(r"<[^<>]*+>", " ", html))


def _words(title: str) -> str:
    return re.sub(r"[*`_]|\[([^\[\]]*+)\]\([^()]*+\)", r"\1", title)


def _anchored(html: str) -> str:
    """Give headings ids as GitHub does, so that links to them work."""

    def named(match: re.Match[str]) -> str:
        words = re.sub(r"<[^<>]*+>", "", match[2]).lower()
        name = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        return f'<{match[1]} id="{escape(name)}">{match[2]}</{match[1]}>'

    return re.sub(r"<(h[1-4])>([^<\n]*+(?:<(?!/?h[1-4]>)[^<\n]*+)*+)</h[1-4]>", named, html)


def _cell(cell: dict[str, Any]) -> str:
    source = "".join(cell["source"])
    if cell["cell_type"] != "code":
        return _with_formulas(source)
    code: str = highlight(source, get_lexer_for_filename("cell.py"), HtmlFormatter())
    return code + "\n".join(_output(output) for output in cell.get("outputs", []))


def _with_formulas(text: str) -> str:
    """Render Markdown whose formulas, between dollar signs, become pictures."""
    formulas: list[str] = []

    def kept(match: re.Match[str]) -> str:
        formulas.append(match[1] or match[2])
        return f"\ue000{len(formulas) - 1}\ue001"

    html: str = MARKDOWN.render(re.sub(r"\$\$([^$]+)\$\$|\$([^$\n]+)\$", kept, text))
    return re.sub("\ue000(\\d+)\ue001", lambda match: _formula(formulas[int(match[1])]), html)


def _formula(latex: str) -> str:
    """Draw a formula; one that cannot be drawn stays as it is written."""
    from matplotlib.mathtext import math_to_image

    drawn = io.BytesIO()
    try:
        math_to_image(f"${' '.join(latex.split())}$", drawn, dpi=72, format="svg")
    except ValueError:
        return f"<code>{escape(latex)}</code>"
    data = b64encode(drawn.getvalue()).decode()
    return f'<img class="math" alt="{escape(latex)}" src="data:image/svg+xml;base64,{data}">'


def _output(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    said = {kind: "".join(text) for kind, text in data.items() if isinstance(text, list | str)}
    if "image/png" in said:
        words = escape(said.get("text/plain", "a picture"))
        return f'<img class="output" alt="{words}" src="data:image/png;base64,{said["image/png"].strip()}">'
    if "text/markdown" in said:
        return f'<div class="output">{MARKDOWN.render(said["text/markdown"])}</div>'
    text = said.get("text/plain") or "".join(output.get("text", ""))
    return f'<pre class="output">{escape(text)}</pre>' if text else ""


def _size(count: int) -> str:
    """Write a number of bytes for people."""
    return f"{count / 1e6:.0f} MB" if count >= 1e6 else f"{count / 1e3:.0f} KB"


def _front(models: list[Page], pages: dict[str, Page], files: dict[str, bytes]) -> str:
    """Return the first page: the models, then everything else by kind."""
    cards = "".join(
        f'<li><a href="{quote(page.path.removeprefix("models/"))}"><b>{escape(page.title)}</b> runs in your browser, '
        f"{_size(len(files[page.path.removeprefix('models/')]))}</a>"
        f'<a class="card-link" href="{quote(page.path)}">its card</a></li>'
        for page in models
    )
    groups = []
    for kind in ("Documents", "Lessons"):
        links = [
            f'<li><a href="{quote(page.path)}">{escape(page.title)}</a></li>'
            for page in pages.values()
            if page.kind == kind
        ]
        groups += [f"<h2>{kind}</h2><ul>{''.join(links)}</ul>"] if links else []
    return (
        "<h1>See every number of a Transformer</h1>"
        "<p>The encoder and decoder of Attention Is All You Need, with models that run in your browser: type a text, "
        f'take the answer apart, switch heads off.</p><ul class="models">{cards}</ul>{"".join(groups)}'
    )


def _whole(page: Page, pages: dict[str, Page]) -> str:
    """Return a page with its head, the links to the others and the search."""
    up = "../" * page.path.count("/")
    wanted = (
        "README.html",
        "docs/page.html",
        "lessons/README.html",
        "docs/paper-to-code.html",
        "RESULTS.html",
        "benchmarks/README.html",
    )
    names = ("Read me", "The page", "Lessons", "The paper and the code", "Results", "Benchmarks")
    links = [
        f'<a href="{up}{path}">{name}</a>' for path, name in zip(wanted, names, strict=True) if path in pages
    ]
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(page.title)} · seq2see</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="{up}style.css">
<link rel="stylesheet" href="{up}site.css">
<script defer src="{up}index.js"></script>
<script defer src="{up}search.js"></script>
</head>
<body class="site" data-up="{up}">
<header><a class="home" href="{up}index.html">seq2see</a><nav aria-label="Site">{" ".join(links)}</nav>
<form role="search" id="search">
<input type="search" aria-label="Search this site" placeholder="Search" autocomplete="off"><ol aria-live="polite"></ol>
</form></header>
<main>{page.body}</main>
</body>
</html>
"""


def _index(pages: Iterable[Page]) -> str:
    """Return what the search looks through, as a script: it works from a disk too, where a page may fetch nothing."""
    entries = [
        {"path": page.path, "title": page.title, "text": re.sub(r"\s+", " ", page.text)}
        for page in pages
        if page.path != "index.html"
    ]
    return f"const PAGES = {json.dumps(entries, ensure_ascii=False)};\n"


class _Links(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect what a tag links to and how it is named."""
        for name, value in attrs:
            if name in {"href", "src"} and value is not None and (tag, name) != ("form", "href"):
                self.links.append(value)
            if name in {"id", "name"} and value:
                self.anchors.add(value)


def _without_scripts(html: str) -> str:
    first, *others = html.split("<script")
    return first + "".join(one.partition("</script>")[2] for one in others)


def _dead(files: dict[str, bytes]) -> list[str]:
    """Return the links within a site that lead nowhere, as “page: link”."""
    read: dict[str, _Links] = {}
    for path, data in files.items():
        if path.endswith(SHOWN) and path in files and len(data) < 2**24:
            read[path] = _Links()
            read[path].feed(_without_scripts(data.decode()))
    dead = []
    for path, found in read.items():
        for link in found.links:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = normpath(PurePosixPath(path).parent / unquote(parts.path)) if parts.path else path
            known = target in files and (
                not parts.fragment or target not in read or unquote(parts.fragment) in read[target].anchors
            )
            if not link or not known:
                dead.append(f"{path}: {link}")
    return dead
