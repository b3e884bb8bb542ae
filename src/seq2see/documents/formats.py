"""Documents of six formats as runs of words: text, HTML, Markdown, subtitles, PO and JSON.

A document is a list of parts that, written one after the other, are its text again: strings that stay, and runs whose
words are translated. So nothing of a document can be lost.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from seq2see.documents.runs import Run, Sentence, tagged
from seq2see.errors import UserError, shown, suggest

Part = str | Run

BREAK = re.compile(r"[\r\n]")
LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+$")
#: What stands before the words of a line: indentation, quotation, the mark or number of an item.
FRONT = re.compile(r"[\s>]*(?:(?:[-*•·–—▪◦‣]|\d{1,3}[.)]|\(?[a-z\d]\)|\[[ xX]?\])\s+)*")
ITEM = re.compile(r"[\s>]*(?:[-*•·–—▪◦‣]|\d{1,3}[.)]|\(?[a-z\d]\)|\[[ xX]?\])\s")
WRAPPED = 50  # the least width of a text whose lines are broken to fit a page
TIMES = re.compile(r"\d{1,3}:\d\d:\d\d[,.]\d{1,3} +--> +\d{1,3}:\d\d:\d\d[,.]\d{1,3}[^\r\n]*$")
STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
ENDED = re.compile(r"[.!?…:;][\"'”’»)\]*_]*$")


@dataclass(frozen=True)
class Document:
    """A document to translate: parts that stay, and sentences."""

    parts: list[str | Sentence]
    notes: tuple[str, ...] = ()  # what is odd about it, a sentence each

    @property
    def sentences(self) -> list[Sentence]:
        """Return what is translated."""
        return [part for part in self.parts if isinstance(part, Sentence)]

    def written(self, answers: Sequence[str]) -> str:
        """Return the document with an answer in the place of each sentence."""
        remaining = iter(answers)
        return "".join(part if isinstance(part, str) else next(remaining) for part in self.parts)


def check_format(form: str) -> str:
    """Return the name of a format if there is one of this name."""
    if form not in FORMATS:
        raise UserError(f"There is no format {form!r}. {suggest(form, FORMATS)}")
    return form


def read(text: str, form: str = "text") -> Document:
    """Read a document of a format."""
    check_format(form)
    if "\0" in text:
        raise UserError("The document is binary data, not text: it has a NUL character.")
    notes: list[str] = []
    parts: list[str | Sentence] = []
    for part in FORMATS[form](text, notes):
        for piece in [part] if isinstance(part, str) else part.parts():
            if isinstance(piece, Sentence) and not piece.read().has_words:
                piece = piece.unchanged()
            if isinstance(piece, str) and parts and isinstance(parts[-1], str):
                parts[-1] += piece
            elif piece:
                parts.append(piece)
    return Document(parts, tuple(notes))


def plain(text: str, notes: list[str]) -> Iterator[Part]:
    """Read plain text: a line is a run, and so are lines that were broken to fit the width of a page."""
    if text and not text.isspace() and not BREAK.search(text):
        yield from _lines([text])
        return
    block: list[str] = []
    for line in [*LINE.findall(text), ""]:
        if line.strip():
            block.append(line)
            continue
        yield from _block(block)
        block = []
        yield line


def _block(lines: list[str]) -> Iterator[Part]:
    """Read lines without an empty one between them."""
    widest = max((len(line.rstrip()) for line in lines), default=0)
    together: list[str] = []
    for line in lines:
        if together and not _goes_on(together[-1], line, widest):
            yield from _lines(together)
            together = []
        together.append(line)
    if together:
        yield from _lines(together)


def _goes_on(line: str, after: str, widest: int) -> bool:
    """Whether a line ends only because the page does: the next word had no room, or a small letter follows."""
    words, before = after.split(), line.rstrip()
    if ITEM.match(after) or not words[0].strip(">"):
        return False
    full = widest >= WRAPPED and len(before) + 1 + len(words[0]) > widest
    letter = after.lstrip(" \t>")[:1]
    return full or (letter.islower() and not ENDED.search(before) and len(before) >= WRAPPED // 2)


def _lines(lines: list[str]) -> Iterator[Part]:
    """Read lines that belong together; what stands before and after their words stays."""
    words, breaks = list[str](), list[str]()
    for number, line in enumerate(lines):
        front = FRONT.match(line) if not number else re.match(r"[\s>]*", line)
        assert front is not None
        end = len(line.rstrip())
        first = min(front.end(), end)
        if number:
            breaks[-1] += line[:first]
        else:
            yield line[:first]
        words.append(line[first:end])
        breaks.append(line[end:])
    yield tagged(words, breaks[:-1])
    yield breaks[-1]


def subtitles(text: str, notes: list[str]) -> Iterator[Part]:
    """Read SubRip: numbers, times, lines. A sentence may reach over cues; a line with a dash is another speaker's."""
    lines = LINE.findall(text)
    words: list[str] = []
    breaks: list[str] = []  # before each of the words
    between, number, seen = "", 0, False
    while number < len(lines):
        line = lines[number]
        ahead = lines[number + 1].strip() if number + 1 < len(lines) else ""
        if line.strip("\ufeff \t\r\n").isdigit() and TIMES.match(ahead):
            between += line + lines[number + 1]
            number, seen, new = number + 2, True, True
            continue
        if line.strip("\ufeff \t\r\n"):
            if not seen:
                where, what = (number + 2, ahead) if "-->" in ahead else (number + 1, line.strip())
                raise UserError(
                    f"Line {where:,} is {shown(what)}: subtitles begin with a number, and under it a line "
                    "such as 00:00:01,000 --> 00:00:04,000. Use the format text for other texts."
                )
            if new and not between.rstrip(" \t").endswith(("\n", "\r")):
                raise UserError(f"Line {number + 1:,} has words where times of a subtitle were expected.")
            front = re.match(r"\s*(?:\{\\[^}]*\}|[-–—]\s*(?=\S))*\s*", line)
            assert front is not None
            first, end = front.end(), len(line.rstrip())
            dash = bool(re.search(r"[-–—]\s*$", line[:first]))
            if words and not dash and not (new and _is_new(words[-1], line[first:end])):
                breaks.append(between + line[:first])
            else:
                if words:
                    yield tagged(words, breaks)
                yield between + line[:first]
                words, breaks = list[str](), list[str]()
            words.append(line[first:end])
            between, new = line[end:], False
        else:
            between += line
        number += 1
        if seen and _stray(lines, number):
            raise UserError(
                f"Line {number + 1:,} is {shown(lines[number].strip())}: after an empty line the number and the times "
                "of the next subtitle were expected, such as 00:00:01,000 --> 00:00:04,000."
            )
    if not seen and text.strip():
        raise UserError("There is no time such as 00:00:01,000 --> 00:00:04,000: the file is no subtitles.")
    if words:
        yield tagged(words, breaks)
    yield between


def _stray(lines: Sequence[str], number: int) -> bool:
    """Whether a line after an empty one has words, though a subtitle must begin there."""
    if number >= len(lines) or lines[number - 1].strip() or not lines[number].strip():
        return False
    ahead = lines[number + 1].strip() if number + 1 < len(lines) else ""
    return not (lines[number].strip().isdigit() and TIMES.match(ahead))


def _is_new(before: str, after: str) -> bool:
    """Whether the words of the next subtitle begin a sentence of their own."""
    return (
        bool(ENDED.search(re.sub(r"<[^<>]*>", "", before))) or not after.lstrip("<>/ibu…. \"'")[:1].islower()
    )


def messages(text: str, notes: list[str]) -> Iterator[Part]:
    """Read a PO file: an empty msgstr becomes the translation of its msgid; those that are there stay."""
    entry: dict[str, str] = {}
    last = ""
    lines = LINE.findall(text)
    if text.strip() and not any(line.startswith("msgid") for line in lines):
        raise UserError("There is no msgid in it: the file is no PO file.")
    number = 0
    while number < len(lines):
        line = lines[number]
        found = re.match(r'(msgctxt|msgid|msgid_plural|msgstr(?:\[\d+\])?)\s+("(?:[^"\\]|\\.)*")\s*$', line)
        more = re.match(r'\s*("(?:[^"\\]|\\.)*")\s*$', line)
        if found:
            last = found[1]
            if last in ("msgid", "msgctxt") and "msgstr" in "".join(entry):
                entry = {}
            entry[last] = _unquoted(found[2], number)
        elif more and last:
            entry[last] += _unquoted(more[1], number)
        elif line.strip() and not line.startswith("#"):
            raise UserError(
                f"Line {number + 1:,} is {shown(line.strip())}: a line of a PO file was expected."
            )
        ahead = lines[number + 1] if number + 1 < len(lines) else ""
        if found and last.startswith("msgstr") and not entry[last] and not ahead.lstrip().startswith('"'):
            source = entry.get("msgid", "")
            if last not in ("msgstr", "msgstr[0]"):
                source = entry.get("msgid_plural", source)
            if source:
                quote = line.index('"')
                yield line[: quote + 1]
                yield from _quoted(source, _po_escaped)
                yield line[line.rindex('"') :]
                number += 1
                continue
        yield line
        number += 1


def _unquoted(text: str, number: int) -> str:
    try:
        return str(json.loads(re.sub(r"\\([^\"\\/bfnrtu])", r"\\\\\1", text).replace("\t", "\\t")))
    except ValueError:
        raise UserError(f"Line {number + 1:,} has a string that cannot be read: {shown(text)}.") from None


def _po_escaped(text: str) -> str:
    for sign, written in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\t", "\\t"), ("\r", "\\r")):
        text = text.replace(sign, written)
    return text


def _quoted(text: str, escape: Callable[[str], str]) -> Iterator[Part]:
    """Read a text within a string: its words as plain text, and all that is written escaped."""
    for part in plain(text, []):
        if isinstance(part, str):
            yield escape(part)
        else:
            pairs = tuple(replace(one, open=escape(one.open), close=escape(one.close)) for one in part.pairs)
            breaks = tuple(replace(one, text=escape(one.text)) for one in part.breaks)
            yield replace(part, pairs=pairs, breaks=breaks, escape=escape)


def values(text: str, notes: list[str]) -> Iterator[Part]:
    """Read JSON: the strings are translated but for keys, and for names, addresses and codes."""
    try:
        json.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise UserError(f"The document is not JSON: {error}.") from None
    ascii_only = text.isascii() and "\\u" in text

    def escape(part: str) -> str:
        return json.dumps(part, ensure_ascii=ascii_only)[1:-1]

    at = 0
    for found in STRING.finditer(text):
        value = json.loads(found[0])
        is_key = re.match(r"\s*:", text[found.end() : found.end() + 1000]) is not None
        if is_key or not is_prose(value):
            continue
        yield text[at : found.start() + 1]
        yield from _quoted(value, escape)
        at = found.end() - 1
    yield text[at:]


def is_prose(value: str) -> bool:
    """Whether a string of a program is for people: one word is, unless it is written as a name in a program is."""
    if " " in value.strip():
        return any(map(str.isalpha, value))
    return re.fullmatch(
        r"[^\W\d_]+(?:['’-][^\W\d_]+)*[.!?…:]*", value.strip()
    ) is not None and not re.fullmatch(r"[a-z]+[A-Z]\w*|[a-z]{2}(?:-[A-Z]{2})?", value.strip())


def _markup(name: str) -> Callable[[str, list[str]], Iterator[Part]]:
    def read_it(text: str, notes: list[str]) -> Iterator[Part]:
        from seq2see.documents import markup

        yield from getattr(markup, name)(text, notes)

    return read_it


#: How each format is read.
FORMATS: dict[str, Callable[[str, list[str]], Iterator[Part]]] = {
    "text": plain,
    "html": _markup("web"),
    "markdown": _markup("markdown"),
    "srt": subtitles,
    "po": messages,
    "json": values,
}
