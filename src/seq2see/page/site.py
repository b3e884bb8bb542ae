"""A static site of one's own models: a first page, the live page of each, and its card with its pictures."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html import escape, unescape
from pathlib import Path, PurePosixPath
from posixpath import normpath
from urllib.parse import quote, unquote

from markdown_it import MarkdownIt

from seq2see.errors import UserError
from seq2see.files import plain_file, whole_or_nothing
from seq2see.page import STATIC
from seq2see.page.describe import what_it_does

#: Pictures that are published, and how their bytes begin. A picture that can hold a script (SVG) is not among them.
PICTURES = {
    ".png": (b"\x89PNG\r\n\x1a\n",),
    ".jpg": (b"\xff\xd8\xff",),
    ".jpeg": (b"\xff\xd8\xff",),
    ".gif": (b"GIF87a", b"GIF89a"),
    ".webp": (b"RIFF",),
}
LARGEST_PICTURE = 2**24  # bytes
HOME = "index.html"  # where the live pages link to
MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


@dataclass
class Site:
    """All files of a site by their paths."""

    files: dict[str, bytes] = field(default_factory=dict)
    models: list[str] = field(default_factory=list)  # their entries on the first page

    def add_model(self, name: str, page: str, card: str, folder: Path | None = None) -> None:
        """Add the page of a model, unchanged, and its card with the pictures of its folder."""
        self.files[f"{name}.html"] = page.encode()

        def shown(match: re.Match[str]) -> str:
            target = normpath(unquote(unescape(match[1])))
            data = None if folder is None else picture(folder, target)
            if data is None:
                return f"<em>{match[2]}</em>"  # the text of the link stays
            self.files[f"models/{name}/{target}"] = data
            return f'<img src="{quote(name)}/{quote(target)}" alt="{match[2]}">'

        told = re.sub(r'<img src="([^"]*+)" alt="([^"]*+)"[^<>]*+>', shown, MARKDOWN.render(card))
        links = f'<p><a href="../{quote(name)}.html">Open the page of this model</a></p>'
        self.files[f"models/{name}.html"] = _whole(name, links + told, "../")
        size = len(self.files[f"{name}.html"])
        self.models.append(
            f'<li><a href="{quote(name)}.html"><b>{escape(name)}</b> runs in your browser, '
            f"{f'{size / 1e6:.0f} MB' if size >= 1e6 else f'{size / 1e3:.0f} KB'}</a><p>{escape(what_it_does(card))}</p>"
            f'<a href="models/{quote(name)}.html">its card</a></li>'
        )

    def write(self, out: Path) -> None:
        """Write the site into a new or empty folder."""
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise UserError(f"{out} is not an empty folder: name one that is not there yet.")
        front = (
            "<h1>See every number of a Transformer</h1><p>These models run in your browser: type a text, take the "
            f'answer apart, switch heads off.</p><ul class="models">{"".join(self.models)}</ul>'
        )
        style = b"".join((STATIC / name).read_bytes() for name in ("style.css", "site.css"))
        with whole_or_nothing(out) as made:
            for path, data in {**self.files, HOME: _whole("Models", front, ""), "style.css": style}.items():
                (made / path).parent.mkdir(parents=True, exist_ok=True)
                (made / path).write_bytes(data)


def picture(folder: Path, target: str) -> bytes | None:
    """Return a picture of a folder, or None if it may not be published.

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


def _whole(title: str, body: str, up: str) -> bytes:
    """Return a page of text with its head and the link home."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)} · seq2see</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="{up}style.css">
</head>
<body class="site">
<header><a class="home" href="{up}{HOME}">seq2see</a></header>
<main>{body}</main>
</body>
</html>
""".encode()
