"""How Sphinx builds the project's site: documents, lessons and cards where they stand, and the code that they link to."""

from __future__ import annotations

import json
import posixpath
import re
import tomllib
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, get_lexer_for_filename
from pygments.util import ClassNotFound
from sphinx.addnodes import download_reference, pending_xref
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "build" / "site"  # models.py writes the live pages there, below models/
CARD = "src/seq2see/models/{}/card"
MODELS = ("dates", "human-dates", "en-fr", "en-de", "fr-en")
SOURCE = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Source"]
COLAB = SOURCE.replace("https://github.com/", "https://colab.research.google.com/github/")
SMALL = 3_000_000  # bytes of a live page that is opened without being asked for

project = html_title = "seq2see"
root_doc = "docs/site/contents"
extensions = ["myst_nb"]
include_patterns = [
    f"{root_doc}.md", "README.md", "RESULTS.md", "results/*.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md",
    "docs/*.md", "lessons/*.md", "lessons/*.ipynb", "benchmarks/README.md", "src/seq2see/models/*/card.md",
]  # fmt: skip
exclude_patterns = [".*", "build", "site", "runs", "tests", "deploy", "scratch", "carry", "**/__pycache__"]
templates_path = ["templates"]
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_extra_path = [str(PAGES)]
html_additional_pages = {"index": "landing.html"}
html_theme = "furo"
html_copy_source = html_show_copyright = html_show_sourcelink = html_use_index = False
html_math_renderer = "mathml"
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1f55b5", "color-brand-content": "#1f55b5"},
    "dark_css_variables": {"color-brand-primary": "#8fb4ff", "color-brand-content": "#8fb4ff"},
}
pygments_dark_style = "a11y-high-contrast-dark"
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
nb_execution_mode = "off"  # the outputs are stored; tests/test_lessons.py runs the notebooks
nb_render_markdown_format = "gfm"
nb_number_source_lines = False
nb_code_prompt_show = "Show the {type}"
nb_code_prompt_hide = "Hide the {type}"


class CodeLinks(SphinxTransform):
    """Let links to files and folders of the project lead to pages that show them, instead of to downloads."""

    default_priority = 400

    def apply(self) -> None:
        """Replace the links of one document."""
        here = posixpath.dirname(self.env.docname)
        kinds = (download_reference, pending_xref, nodes.reference)  # the last in what a notebook has put out
        for node in [node for node in self.document.findall(nodes.Element) if isinstance(node, kinds)]:
            target = str(node.get("reftarget", node.get("refuri", "")))
            path = posixpath.normpath(posixpath.join(here, target))
            is_code = (ROOT / path).is_dir() or (not isinstance(node, pending_xref) and (ROOT / path).is_file())
            if not target or node.get("refdomain") or not is_code:
                continue
            overview = f"{path}/README"
            if overview not in self.env.found_docs:
                self.env.seq2see_code.add(overview := path)  # type: ignore[attr-defined]
            address = posixpath.relpath(f"{overview}.html", here or ".")
            node.replace_self(nodes.reference("", "", *node.children, internal=True, refuri=address))


def listing(folder: Path) -> str:
    """Return a list of the files of a folder."""
    names = sorted(path.name for path in folder.iterdir() if path.is_file())
    return f"<ul>{''.join(f'<li><code>{escape(name)}</code></li>' for name in names)}</ul>"


def code_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Make a page of each file that a document links to."""
    form = HtmlFormatter(linenos="inline", lineanchors="L", anchorlinenos=True)
    for path in sorted(app.env.seq2see_code):  # type: ignore[attr-defined]
        if (ROOT / path).is_dir():
            yield path, {"title": path, "body": f"<h1>{escape(path)}</h1>{listing(ROOT / path)}"}, "page.html"
            continue
        try:
            lexer = get_lexer_for_filename(path)
        except ClassNotFound:
            lexer = TextLexer()
        code = highlight((ROOT / path).read_text(encoding="utf-8"), lexer, form)
        body = (
            f'<h1>{escape(path)}</h1><div class="whole-file" tabindex="0" role="region" aria-label="Code">{code}</div>'
        )
        yield path, {"title": path, "body": body}, "page.html"


def complete(app: Sphinx, docname: str, source: list[str]) -> None:
    """List the lessons below their overview, put the live page into them and on each card, below what the model does."""
    if docname == "lessons/README":
        source[0] += "\n\n```{toctree}\n:hidden:\n:glob:\n\n[01]*\nmatrices\nteaching\n```\n"
    if re.match(r"lessons/\d", docname):  # JSON, so the frame must not hold double quotes
        notebook = json.loads(source[0])
        notebook["cells"][0]["source"] += [f"\n\n[Open in Colab]({COLAB}/blob/main/{docname}.ipynb)"]
        source[0] = json.dumps(notebook, ensure_ascii=False)
        frame = frame_of("dates", "../models/dates.html#VIEW", 0).replace('"', "'")
        source[0] = re.sub(
            r"<!-- live ([\w.&=~-]+) -->", lambda match: frame.replace("VIEW", escape(match[1])), source[0]
        )
    for name in MODELS:
        if docname == CARD.format(name):
            size = (PAGES / "models" / f"{name}.html").stat().st_size
            head, said, rest = source[0].split("\n\n", 2)
            address = posixpath.relpath(f"models/{name}.html", posixpath.dirname(docname))
            frame = frame_of(name, address, size)
            source[0] = f"{head}\n\n{said}\n\n{frame}\n\n{rest}"


def frame_of(name: str, address: str, size: int) -> str:
    """Return the frame of a live page; a large one waits for a click."""
    link = f'<a href="{address}">Open {name} in a page of its own</a>'
    if size < SMALL:
        inside = f'<iframe src="{address}" title="{name}, live" loading="lazy"></iframe>'
    else:
        words = f"Start {name} here: it loads {size / 1e6:.0f} MB, and then runs in your browser"
        inside = f'<button type="button" data-open="{address}">{words}</button>'
    return f'<div class="live" data-name="{name}">{inside}<p>{link}</p></div>'


def context(app: Sphinx, pagename: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Make the landing page the home of all pages, and tell it what it shows; mend what axe finds wrong with the rest."""
    context["master_doc"] = "index"
    for key in ("furo_navigation_tree", "body"):
        text = context.get(key) or ""
        text = text.replace('role="heading"', 'role="heading" aria-level="2"')
        context[key] = re.sub(r"<th([^>]*)><p></p></th>", r"<td\1></td>", text)  # an empty head says nothing
    if pagename == "index":
        context["furo_hide_toc"] = True
        context["live"] = frame_of("dates", "models/dates.html", 0)
        does = json.loads((PAGES / "models.json").read_text(encoding="utf-8"))
        sizes = {name: (PAGES / "models" / f"{name}.html").stat().st_size / 1e6 for name in MODELS}
        context["models"] = [
            (name, f"{CARD.format(name)}.html", does[name], f"{sizes[name]:.1f} MB") for name in MODELS
        ]


def inline_math(self: Any, node: nodes.math) -> None:
    """Write a formula as MathML, which browsers show without a script."""
    self.body.append(convert(node.astext()))
    raise nodes.SkipNode


def block_math(self: Any, node: nodes.math_block) -> None:
    """Write a formula that stands alone."""
    self.body.append(f'<div class="formula">{convert(node.astext(), display="block")}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Tell Sphinx of all this."""
    app.add_html_math_renderer("mathml", (inline_math, None), (block_math, None))
    app.add_transform(CodeLinks)
    app.connect("builder-inited", lambda app: setattr(app.env, "seq2see_code", set()))
    app.connect("html-collect-pages", code_pages)
    app.connect("source-read", complete)
    app.connect("html-page-context", context, priority=900)
    return {"parallel_read_safe": False}
