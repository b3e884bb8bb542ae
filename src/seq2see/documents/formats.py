"""Documents of six formats as runs of words: text, HTML, Markdown, subtitles, PO and JSON.

A document is a list of parts whose concatenation is its text: strings that stay, and runs whose words are translated.
So nothing of a document can be lost.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from seq2see.documents.runs import MOST_TAGS, DocumentPart, Sentence, tagged
from seq2see.errors import UserError, counted, shown, suggest
from seq2see.stopping import go_on

_ENDS = r"\n\r\v\f\x1c-\x1e\x85\u2028\u2029"  # Python's line ends
BREAK = re.compile(f"[{_ENDS}]")
LINE = re.compile(rf"[^{_ENDS}]*+(?:\r\n|[{_ENDS}])|[^{_ENDS}]++")
ROW = re.compile(r"[^\r\n]*+(?:\r\n|\n|\r)|[^\r\n]++")  # a line of a format whose lines have a meaning
#: What precedes the words of a line: indentation, quotation, the mark or number of an item.
FRONT = re.compile(r"[\s>]*(?:(?:[-*•·–—▪◦‣]|\d{1,3}[.)]|\(?[a-z\d]\)|\[[ xX]?\])\s+)*")
ITEM = re.compile(r"[\s>]*(?:[-*•·–—▪◦‣]|\d{1,3}[.)]|\(?[a-z\d]\)|\[[ xX]?\])\s")
WRAPPED = 50  # least width of a text that is wrapped to fit a page
TIMES = re.compile(r"\d{1,3}:\d\d:\d\d[,.]\d{1,3} +--> +\d{1,3}:\d\d:\d\d[,.]\d{1,3}[^\r\n]*$")
STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"')
#: A character of JSON with a backslash; a pair of surrogates is one.
JSON_ESCAPE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\(?:u[0-9a-fA-F]{4}|.)")
#: A string of a PO file, with the word before it.
ENTRY = re.compile(rf"\s*+(msgctxt|msgid_plural|msgid|msgstr(?:\[\d++\])?)?+\s*+({STRING.pattern})\s*+")
PO_ESCAPE = re.compile(r"\\(?:[0-7]{1,3}|x[0-9a-fA-F]{1,2}|.)")
PO_SIGNS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "\\": "\\", '"': '"'}
PO_WRITTEN = {ord(sign): f"\\{letter}" for letter, sign in PO_SIGNS.items()}
ENDED = re.compile(r"[.!?…:;][\"'”’»)\]*_]*$")


@dataclass(frozen=True)
class Document:
    """A document to translate: parts that stay, and sentences."""

    parts: list[str | Sentence]
    notes: tuple[str, ...] = ()  # remarks, one sentence each

    @property
    def sentences(self) -> list[Sentence]:
        """Return the sentences to translate."""
        return [part for part in self.parts if isinstance(part, Sentence)]

    def written(self, answers: Sequence[str]) -> str:
        """Return the document with an answer in the place of each sentence."""
        remaining = iter(answers)
        return "".join(part if isinstance(part, str) else next(remaining) for part in self.parts)


def check_format(form: str) -> str:
    """Return the name of a format, or raise if there is none of this name."""
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
    waiting = ["\ufeff"] if text.startswith("\ufeff") else []  # adjacent strings that stay, before they are joined
    left = 0
    for part in FORMATS[form](text.removeprefix("\ufeff"), notes):
        go_on()
        for piece in [part] if isinstance(part, str) else part.parts():
            if isinstance(piece, Sentence) and not piece.read().has_words:
                piece = piece.unchanged()
            elif isinstance(piece, Sentence) and len(piece.pairs) + len(piece.fixed) > MOST_TAGS:
                left += 1
                piece = piece.unchanged()
            if isinstance(piece, str):
                waiting.append(piece)
            else:
                parts += ["".join(waiting), piece] if any(waiting) else [piece]
                waiting = []
    if any(waiting):
        parts.append("".join(waiting))
    if left:
        notes.append(f"{counted(left, 'sentence')} with more than {MOST_TAGS} tags each stayed as written.")
    return Document(parts, tuple(notes))


def plain(text: str, notes: list[str]) -> Iterator[DocumentPart]:
    """Read plain text: a run is a line, or several lines that were wrapped to fit a page."""
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


def _block(lines: list[str]) -> Iterator[DocumentPart]:
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
    """Whether a line was wrapped: the next word had no room, or a small letter follows."""
    words, before = after.split(), line.rstrip()
    if ITEM.match(after) or not words[0].strip(">"):
        return False
    full = widest >= WRAPPED and len(before) + 1 + len(words[0]) > widest
    letter = after.lstrip(" \t>")[:1]
    return full or (letter.islower() and not ENDED.search(before) and len(before) >= WRAPPED // 2)


def _lines(lines: list[str]) -> Iterator[DocumentPart]:
    """Read lines that belong together; the text before and after their words stays."""
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


def subtitles(text: str, notes: list[str]) -> Iterator[DocumentPart]:
    """Read SubRip: numbers, times, lines. A sentence may span several cues; a line with a dash belongs to another
    speaker.
    """
    lines = ROW.findall(text)
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
            front = re.match(r"\s*+(?:\{\\[^}]*+\}|[-–—]\s*+(?=\S))*+\s*+", line)
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
        raise UserError("There is no time such as 00:00:01,000 --> 00:00:04,000: the file has no subtitles.")
    if words:
        yield tagged(words, breaks)
    yield between


def _stray(lines: Sequence[str], number: int) -> bool:
    """Whether a line after an empty one has words, where a subtitle must begin."""
    if number >= len(lines) or lines[number - 1].strip() or not lines[number].strip():
        return False
    ahead = lines[number + 1].strip() if number + 1 < len(lines) else ""
    return not (lines[number].strip().isdigit() and TIMES.match(ahead))


def _is_new(before: str, after: str) -> bool:
    """Whether the next subtitle begins a new sentence."""
    return bool(ENDED.search(re.sub(r"<[^<>]*>", "", before))) or not after.lstrip("<>/ibu…. \"'")[:1].islower()


def messages(text: str, notes: list[str]) -> Iterator[DocumentPart]:
    """Read a PO file: an empty msgstr becomes the translation of its msgid; existing ones stay."""
    entry: dict[str, Spelled] = {}
    last = ""
    lines = ROW.findall(text)
    found = [ENTRY.fullmatch(line) for line in lines]
    if text.strip() and not any(one is not None and one[1] == "msgid" for one in found):
        raise UserError("There is no msgid in it: the file is not a PO file.")
    for number, (line, one) in enumerate(zip(lines, found, strict=True)):
        go_on()
        if one is None or not (one[1] or last):
            if line.strip() and not line.lstrip().startswith("#"):
                raise UserError(f"Line {number + 1:,} is {shown(line.strip())}: a line of a PO file was expected.")
            yield line
            continue
        read = Spelled.of(one[2][1:-1], PO_ESCAPE, _po_sign, lambda text: text.translate(PO_WRITTEN))
        if one[1] is None:
            entry[last] = entry[last].with_(read)
            yield line
            continue
        last = one[1]
        if last in ("msgid", "msgctxt") and any(name.startswith("msgstr") for name in entry):
            entry = {}
        entry[last] = read
        source = entry.get("msgid")
        if last not in ("msgstr", "msgstr[0]"):
            source = entry.get("msgid_plural", source)
        if last.startswith("msgstr") and source is not None and source.text and _is_empty(found, number):
            yield line[: one.start(2) + 1]
            yield from source.parts()
            yield line[one.end(2) - 1 :]
        else:
            yield line


def _is_empty(found: Sequence[re.Match[str] | None], number: int) -> bool:
    """Whether a string of a PO file is empty, including its continuation lines."""
    one = found[number]
    while one is not None and one[2] == '""':
        number += 1
        one = found[number] if number < len(found) else None
        if one is None or one[1] is not None:
            return True
    return False


def _po_sign(written: str) -> str:
    """Return the character of an escape in a PO file; an unknown escape is itself."""
    rest = written[1:]
    if rest[0] in "01234567":
        return chr(int(rest, 8))
    if rest[0] == "x" and len(rest) > 1:
        return chr(int(rest[1:], 16))
    return PO_SIGNS.get(rest, written)


@dataclass(frozen=True)
class Spelled:
    """The text of a string literal, and the spelling of each character that ``escape`` would write differently."""

    text: str
    odd: dict[int, str]
    escape: Callable[[str], str]

    @classmethod
    def of(
        cls, raw: str, pattern: re.Pattern[str], sign: Callable[[str], str], escape: Callable[[str], str]
    ) -> Spelled:
        """Read the content of quotes; ``sign`` returns the character of a match of ``pattern``."""
        parts, odd, length, at = list[str](), dict[int, str](), 0, 0
        for found in pattern.finditer(raw):
            plain_part, one = raw[at : found.start()], sign(found[0])
            length += len(plain_part)
            parts += [plain_part, one]
            if escape(one) != found[0]:
                odd |= {length: found[0]} | {length + n: "" for n in range(1, len(one))}
            length, at = length + len(one), found.end()
        text = "".join([*parts, raw[at:]])
        bare = [*zip(_places(parts), parts[::2], strict=True), (length, raw[at:])]
        for first, part in bare:  # a character that is usually escaped may be unescaped
            if escape(part) != part:
                odd |= {first + n: one for n, one in enumerate(part) if escape(one) != one}
        return cls(text, odd, escape)

    def with_(self, other: Spelled) -> Spelled:
        """Return this string and another one after it."""
        odd = self.odd | {len(self.text) + place: raw for place, raw in other.odd.items()}
        return replace(self, text=self.text + other.text, odd=odd)

    def raw(self, first: int, last: int) -> str:
        """Return a part of the string as it is written."""
        if not self.odd:
            return self.escape(self.text[first:last])
        return "".join(
            self.odd[place] if place in self.odd else self.escape(self.text[place]) for place in range(first, last)
        )

    def parts(self) -> Iterator[DocumentPart]:
        """Read its words as plain text; all else is written as it was."""
        at = 0
        for part in plain(self.text, []):
            if isinstance(part, str):
                yield self.raw(at, at + len(part))
                at += len(part)
            else:
                run, at = replace(part, escape=self.escape).spelled_as(self.raw, at)
                yield run


def _places(parts: Sequence[str]) -> list[int]:
    """Return the start of every second part, from the first on."""
    return [0, *accumulate(map(len, parts))][: len(parts) : 2]


def values(text: str, notes: list[str]) -> Iterator[DocumentPart]:
    """Read JSON: all strings are translated except keys, names, addresses and codes."""
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"The document is not JSON: {error}.") from None
    ascii_only = text.isascii() and "\\u" in text

    def escape(part: str) -> str:
        return json.dumps(part, ensure_ascii=ascii_only)[1:-1]

    at = place = left = 0
    while (place := text.find('"', place)) >= 0:
        go_on()
        found = STRING.match(text, place)
        assert found is not None  # the document is JSON
        place = found.end()
        if re.compile(r"\s*+:").match(text, place):  # a key
            continue
        value = Spelled.of(found[0][1:-1], JSON_ESCAPE, lambda written: str(json.loads(f'"{written}"')), escape)
        if re.search("[\0\ud800-\udfff]", value.text):
            left += 1
            continue
        if is_prose(value.text):
            yield text[at : found.start() + 1]
            yield from value.parts()
            at = found.end() - 1
    yield text[at:]
    if left:
        notes.append(f"{counted(left, 'string')} with half a character or a NUL stayed as written.")


def is_prose(value: str) -> bool:
    """Whether a string is for people: a single word is, unless it is written like an identifier."""
    if " " in value.strip():
        return any(map(str.isalpha, value))
    return re.fullmatch(r"[^\W\d_]+(?:['’-][^\W\d_]+)*[.!?…:]*", value.strip()) is not None and not re.fullmatch(
        r"[a-z]+[A-Z]\w*|[a-z]{2}(?:-[A-Z]{2})?", value.strip()
    )


def _web(text: str, notes: list[str]) -> Iterator[DocumentPart]:
    """Read HTML. Other texts do without the module, which takes time to import."""
    from seq2see.documents.markup import web

    return web(text, notes)


def _markdown(text: str, notes: list[str]) -> Iterator[DocumentPart]:
    """Read Markdown."""
    from seq2see.documents.markdown import markdown

    return markdown(text, notes)


#: How each format is read.
FORMATS: dict[str, Callable[[str, list[str]], Iterator[DocumentPart]]] = {
    "text": plain,
    "html": _web,
    "markdown": _markdown,
    "srt": subtitles,
    "po": messages,
    "json": values,
}
