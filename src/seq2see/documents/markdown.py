"""Markdown as runs of words; everything else is written back unchanged."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

from seq2see.documents.runs import TAG, Builder, DocumentPart, TextRun
from seq2see.errors import UserError
from seq2see.stopping import go_on

#: Inline syntax of Markdown that needs no look-ahead; backquotes and brackets are handled separately.
SPECIAL = re.compile(
    r"(?P<escape>\\[!-/:-@\[-`{-~])|(?P<ticks>`++)"
    r"|(?P<auto><(?:[A-Za-z][\w+.-]*+:[^<>\s]*+|[\w.+-]++@[\w.-]++)>)|(?P<square>!?\[|\])"
    r"|(?P<strong>\*\*|__)|(?P<strike>~~)|(?P<emphasis>\*|_)|(?P<entity>&(?:#\d++|#x[\da-fA-F]++|\w++);)"
    rf"|(?P<math>\$\$?[^$\s][^$\n]*+\$\$?)|(?P<tag>{re.sub(r'[?]P<[a-z]+>', '', TAG.pattern)})"
    r"|(?P<hard>(?<! ) {2,}+$|\\$)"
)


def specials(line: str) -> Iterator[tuple[int, int, str]]:
    """Find the inline syntax of a line of Markdown: its start, its end and its kind."""
    ticks = _ticks(line)
    brackets = _Brackets(line)
    at = 0
    while found := SPECIAL.search(line, at):
        first, at, kind = found.start(), found.end(), found.lastgroup or ""
        if kind == "ticks":
            if first not in ticks:
                continue
            kind, at = "code", ticks[first]
        elif kind == "square":
            kind, at = brackets.read(first, found[0])
            if not kind:
                continue
        yield first, at, kind


def _ticks(line: str) -> dict[int, int]:
    """Return the end of each span of code by its beginning: the next run of as many backquotes ends it."""
    ends: dict[int, tuple[int, int]] = {}
    found: dict[int, int] = {}
    for run in reversed(list(re.finditer(r"`++", line))):
        length = run.end() - run.start()
        if length in ends:
            found[run.start()] = ends[length][1]
        ends[length] = run.span()
    return found


class _Brackets:
    """Finds the partners of brackets in a line, in one pass for each kind."""

    def __init__(self, line: str) -> None:
        self.line = line
        self.places: dict[str, list[int]] = {"[": [], "]": [], ")": []}
        for found in re.finditer(r"[\[\])]", line):
            self.places[found[0]].append(found.start())
        self.partner: dict[int, int] = {}  # of a round bracket with at most one level of others inside
        stack: list[tuple[int, int]] = []  # position, and depth of the brackets within it
        for found in re.finditer(r"[()]", line):
            if found[0] == "(":
                stack.append((found.start(), 0))
            elif stack:
                place, depth = stack.pop()
                if depth <= 1:
                    self.partner[place] = found.start()
                if stack:
                    stack[-1] = (stack[-1][0], max(stack[-1][1], depth + 1))

    def next(self, sign: str, place: int) -> int:
        """Return the next position of a sign, or -1."""
        places = self.places[sign]
        number = bisect_right(places, place - 1)
        return places[number] if number < len(places) else -1

    def read(self, first: int, opening: str) -> tuple[str, int]:
        """Return what a bracket begins or ends, and its end; None if it is only a sign."""
        line, at = self.line, first + len(opening)
        if opening == "]":
            if line.startswith("(", at):
                end = self.partner.get(at, -1)
            else:
                end = self.next("]", at + 1) if line.startswith("[", at) else -1
            return ("target", end + 1) if end >= 0 else ("", at)
        end = self.next("]", at)
        if opening == "![":
            if end < 0 or not line.startswith(("(", "["), end + 1):
                return "", at
            close = self.next(")" if line[end + 1] == "(" else "]", end + 2)
            return ("image", close + 1) if close >= 0 else ("", at)
        if line.startswith("^", at) and end > at + 1:
            return "note", end + 1
        inner = self.next("[", at)
        is_link = end >= 0 and not 0 <= inner < end and line.startswith(("(", "["), end + 1)
        return ("link", at) if is_link else ("", at)


def markdown(text: str, notes: list[str]) -> Iterator[DocumentPart]:
    """Read Markdown: markdown-it finds the paragraphs, headings, items and cells; code, links and marks stay."""
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
    for token in _blocks(text[start:]):
        go_on()
        if token.type != "inline" or token.map is None or not token.content.strip():
            continue
        found = _found(token.content, text, places, token.map[0], at)
        if found is None:  # not found as written, such as a cell with an escaped |: it stays
            continue
        first, last, content, breaks = found
        yield text[at:first]
        start = 0
        for number, end in enumerate([*breaks, ""], 1):
            hard = "  " in end.split("\n")[0] or content[number - 1].endswith("\\")
            if hard or number == len(content):  # a hard line break ends a run
                yield _line(content[start:number], breaks[start : number - 1])
                yield end
                start = number
        at = last
    yield text[at:]


def _blocks(text: str) -> list[Any]:
    """Return the blocks of Markdown. Inline syntax is not parsed, since ``_line`` reads it."""
    from markdown_it import MarkdownIt

    def waited_for(state: Any, first: int, last: int, silent: bool) -> bool:
        go_on()
        return False

    reader = MarkdownIt("commonmark").enable("table")
    reader.core.ruler.enableOnly(["normalize", "block"])
    reader.block.ruler.before("table", "waited_for", waited_for)
    return reader.parse(text)


def _found(
    content: str, text: str, places: list[int], line: int, at: int
) -> tuple[int, int, list[str], list[str]] | None:
    """Find a paragraph in the text: its start and end, its lines, and what is between them."""
    place, first = max(at, places[line]), -1
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


def _line(lines: list[str], breaks: list[str]) -> TextRun:
    """Read the lines of a paragraph: emphasis and links are pairs, code, pictures and addresses are fixed."""
    builder = Builder()
    open_marks: list[str] = []
    for number, line in enumerate(lines):
        if number:
            builder.add("break", breaks[number - 1])
        at = 0
        for first, last, kind in specials(line):
            raw = line[first:last]
            is_mark = kind in ("emphasis", "strong", "strike")
            if is_mark and not _is_mark(line, first, last, raw in open_marks):
                continue
            builder.add("words", line[at:first])
            at = last
            tag = TAG.fullmatch(raw) if kind == "tag" else None
            if is_mark and raw in open_marks:
                open_marks.remove(raw)
                builder.add("close", raw, raw)
            elif is_mark:
                open_marks.append(raw)
                builder.add("open", raw, raw)
            elif kind in ("link", "target"):
                builder.add("open" if kind == "link" else "close", raw, "[")
            elif tag is not None:
                builder.add_tag(tag)
            else:
                builder.add("fixed", raw)
        builder.add("words", line[at:])
    return builder.run()


def _is_mark(line: str, first: int, last: int, is_open: bool) -> bool:
    """Whether stars or underscores are emphasis by the rules of Markdown: not in snake_case and 2 * 3."""
    before, after, sign = line[max(0, first - 1) : first], line[last : last + 1], line[first]
    if is_open:
        return bool(before) and not before.isspace() and not (sign == "_" and after.isalnum())
    return bool(after) and not after.isspace() and not (sign == "_" and before.isalnum())
