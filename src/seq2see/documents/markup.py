"""HTML and Markdown as runs of words; everything else is written back as it was, to the last character."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import pairwise

from seq2see.documents.runs import TAG, Builder, Run
from seq2see.errors import UserError, shown

Part = str | Run

#: Elements that stand within a sentence.
INLINE = frozenset(
    "a abbr acronym b bdi bdo big cite data del dfn em font i ins label mark q s small span strike strong sub sup "
    "time tt u".split()
)
#: Elements whose words are not for people, or not in a language, within a sentence and as a block.
CODE_INLINE = frozenset("code kbd samp var math".split())
CODE = frozenset("script style pre textarea svg template noscript object iframe canvas".split())
ALONE_INLINE = frozenset("img wbr input".split())
VOID = frozenset("area base br col embed hr img input link meta param source track wbr".split())
#: Elements that may end without an end tag.
OPTIONAL = frozenset(
    "html head body p li dt dd option optgroup thead tbody tfoot tr td th colgroup rp rt".split()
)


def escaped(text: str) -> str:
    """Write what HTML would take for a tag as &lt; and the like."""
    return html.escape(text, quote=False)


class _Events(HTMLParser):
    """Notes where each tag, text and comment of a document begins: what lies between two beginnings is one of them."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=False)
        self.starts = [0]
        for found in re.finditer("\n", text):
            self.starts.append(found.end())
        self.events: list[tuple[int, str, str, bool]] = []  # place, kind, name, whether its words stay
        self.feed(text)
        rest = self.rawdata
        if self.cdata_elem is not None:
            raise UserError(f"<{self.cdata_elem}> has no end: the HTML is broken.")
        if re.match(r"<(?:[/!?]|[A-Za-z])", rest):
            line = text.count("\n", 0, len(text) - len(rest)) + 1
            raise UserError(f"Line {line:,}: {shown(rest, 30)} does not end with >: the HTML is broken.")
        self.close()

    def _note(self, kind: str, name: str = "", stays: bool = False) -> None:
        line, column = self.getpos()
        self.events.append((self.starts[line - 1] + column, kind, name, stays))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        stays = given.get("translate") == "no" or "notranslate" in (given.get("class") or "").split()
        self._note("open", tag, stays)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._note("alone", tag)

    def handle_endtag(self, tag: str) -> None:
        self._note("close", tag)

    def handle_data(self, data: str) -> None:
        self._note("words")

    def handle_entityref(self, name: str) -> None:
        self._note("words")

    def handle_charref(self, name: str) -> None:
        self._note("words")

    def handle_comment(self, data: str) -> None:
        self._note("comment")

    def handle_decl(self, decl: str) -> None:
        self._note("block")

    def unknown_decl(self, data: str) -> None:
        self._note("block")

    def handle_pi(self, data: str) -> None:
        self._note("block")


def web(text: str, notes: list[str]) -> Iterator[Part]:
    """Read HTML: tags, comments, scripts and code stay; words between block elements are a run."""
    events = _Events(text).events
    notes += _unbalanced(text, events)
    builder, inside = Builder(escaped), list[str]()  # the elements whose words stay, one in another
    held = ""
    ends = [*(event[0] for event in events), len(text)]
    if ends[0]:
        yield text[: ends[0]]
    for (place, kind, name, stays), (_, end) in zip(events, pairwise(ends), strict=True):
        raw = text[place:end]
        if inside:
            held += raw
            if kind == "open" and name == inside[-1]:
                inside.append(name)
            elif kind == "close" and name == inside[-1]:
                inside.pop()
            if not inside:
                if name in CODE_INLINE or name in INLINE:
                    builder.held(held)
                else:
                    yield from _flushed(builder)
                    builder = Builder(escaped)
                    yield held
                held = ""
        elif kind == "open" and name not in VOID and (stays or name in CODE or name in CODE_INLINE):
            inside, held = [name], raw
        elif kind == "words":
            _add_words(builder, raw)
        elif kind in ("open", "close") and name in INLINE:
            (builder.open if kind == "open" else builder.close)(name, raw)
        elif kind == "comment" or name in ALONE_INLINE or (kind == "alone" and name in INLINE):
            builder.held(raw)
        else:
            yield from _flushed(builder)
            builder = Builder(escaped)
            yield raw
    yield from _flushed(builder)
    yield held


def _add_words(builder: Builder, raw: str) -> None:
    """Add words; the end of a line is a break, since HTML takes it for a space, and so is &nbsp;."""
    text = html.unescape(raw)
    if raw.startswith("&") and raw != text:
        if text == "\xa0":
            builder.line(raw)
            return
        if not text or (unicodedata.category(text[0])[0] == "S" and text not in "<>"):  # ©, →: no words
            builder.held(raw)
            return
    for number, part in enumerate(re.split(r"([ \t]*[\r\n]\s*)", text)):
        if number % 2:
            builder.line(part)
        elif part:
            builder.words(part)


def _flushed(builder: Builder) -> Iterator[Part]:
    if builder.parts:
        yield builder.run()


def _unbalanced(text: str, events: list[tuple[int, str, str, bool]]) -> list[str]:
    """Name the first tag without its partner; it stays where it is."""
    stack: list[tuple[str, int]] = []
    for place, kind, name, _ in events:
        line = text.count("\n", 0, place) + 1 if kind in ("open", "close") else 0
        if kind == "open" and name not in VOID:
            stack.append((name, line))
        elif kind == "close" and name not in VOID:
            while stack and stack[-1][0] != name and stack[-1][0] in OPTIONAL:
                stack.pop()
            if not stack or stack[-1][0] != name:
                if name in OPTIONAL:
                    continue
                return [f"Line {line:,}: </{name}> closes nothing; it was left where it is."]
            stack.pop()
    left = [(name, line) for name, line in stack if name not in OPTIONAL]
    return [f"Line {line:,}: <{name}> is never closed; it was left where it is." for name, line in left[:1]]


#: What has a meaning within a line of Markdown, in the order in which it is tried.
SPECIAL = re.compile(
    r"(?P<escape>\\[!-/:-@\[-`{-~])|(?P<code>(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`))"
    r"|(?P<auto><(?:[A-Za-z][\w+.-]*:[^<>\s]*|[\w.+-]+@[\w.-]+)>)"
    r"|(?P<image>!\[[^\]\n]*\](?:\([^)\n]*\)|\[[^\]\n]*\]))|(?P<note>\[\^[^\]\n]+\])"
    r"|(?P<link>\[(?=[^\[\]\n]*\](?:\(|\[)))|(?P<target>\](?:\([^()\n]*(?:\([^()\n]*\)[^()\n]*)*\)|\[[^\]\n]*\]))"
    r"|(?P<strong>\*\*|__)|(?P<strike>~~)|(?P<emphasis>\*|_)|(?P<entity>&(?:#\d+|#x[\da-fA-F]+|\w+);)"
    rf"|(?P<math>\$\$?[^$\s][^$\n]*\$\$?)|(?P<tag>{re.sub(r'[?]P<[a-z]+>', '', TAG.pattern)})|(?P<hard> {{2,}}$|\\$)",
    re.MULTILINE,
)


def markdown(text: str, notes: list[str]) -> Iterator[Part]:
    """Read Markdown: markdown-it finds the paragraphs, headings, items and cells; code, links and marks stay."""
    from markdown_it import MarkdownIt

    front = re.match(r"---\r?\n.*?\r?\n---\r?\n", text, re.DOTALL)
    start = front.end() if front else 0
    yield text[:start]
    lines = re.findall(r"[^\n]*\n|[^\n]+$", text[start:])
    if "\r" in text.replace("\r\n", "\n"):
        raise UserError("The Markdown has line ends of two kinds: write it with one kind.")
    places = [start]
    for line in lines:
        places.append(places[-1] + len(line))
    at = start
    for token in MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text[start:]):
        if token.type != "inline" or token.map is None or not token.content.strip():
            continue
        found = _found(token.content, text, places, token.map[0], at)
        if found is None:  # not as it is written, such as a cell with an escaped |: it stays
            continue
        first, last, content, breaks = found
        yield text[at:first]
        start = 0
        for number, end in enumerate([*breaks, ""], 1):
            hard = "  " in end.split("\n")[0] or content[number - 1].endswith("\\")
            if hard or number == len(content):  # a line that must end there ends a run
                yield _line(content[start:number], breaks[start : number - 1])
                yield end
                start = number
        at = last
    yield text[at:]


def _found(
    content: str, text: str, places: list[int], line: int, at: int
) -> tuple[int, int, list[str], list[str]] | None:
    """Find the lines of a paragraph in the text: where it begins and ends, its lines, and what is between them."""
    place, first = max(at, places[min(line, len(places) - 1)]), -1
    words, breaks, end = list[str](), list[str](), 0
    for number, part in enumerate(content.split("\n")):
        part = part.strip(" \t\r")
        limit = places[min(line + number + 1, len(places) - 1)]
        found = text.find(part, place, limit)
        if found < 0:
            return None
        if first < 0:
            first = found
        else:
            breaks.append(text[end:found])
        words.append(part)
        place = end = found + len(part)
    return first, end, words, breaks


def _line(lines: list[str], breaks: list[str]) -> Run:
    """Read the lines of a paragraph: emphasis and links are pairs, code, pictures and addresses are held."""
    builder = Builder()
    open_marks: list[str] = []
    for number, line in enumerate(lines):
        if number:
            builder.line(breaks[number - 1])
        at = 0
        for found in SPECIAL.finditer(line):
            kind, raw = (
                next(name for name, value in found.groupdict().items() if value and name != "ticks"),
                found[0],
            )
            if kind in ("emphasis", "strong", "strike") and not _is_mark(line, found, raw in open_marks):
                continue
            builder.words(line[at : found.start()])
            at = found.end()
            tag = TAG.fullmatch(raw) if kind == "tag" else None
            if kind in ("emphasis", "strong", "strike"):
                if raw in open_marks:
                    open_marks.remove(raw)
                    builder.close(raw, raw)
                else:
                    open_marks.append(raw)
                    builder.open(raw, raw)
            elif kind == "link":
                builder.open("[", raw)
            elif kind == "target":
                builder.close("[", raw)
            elif tag is not None and not tag["rest"].endswith("/"):
                (builder.close if tag["end"] else builder.open)(tag["name"].lower(), raw)
            else:
                builder.held(raw)
        builder.words(line[at:])
    return builder.run()


def _is_mark(line: str, found: re.Match[str], is_open: bool) -> bool:
    """Whether stars or underscores stand at a word as Markdown wants it: snake_case and 2 * 3 have none."""
    before, after = line[: found.start()][-1:], line[found.end() :][:1]
    if is_open:
        return bool(before) and not before.isspace() and not (found[0][0] == "_" and after.isalnum())
    return bool(after) and not after.isspace() and not (found[0][0] == "_" and before.isalnum())
