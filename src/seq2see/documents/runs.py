"""A document as runs of words between fixed parts, and the sentences of these runs.

A run is a stretch of text that belongs together, such as a paragraph. It has tags in pairs (<b>…</b>), breaks (a line
end within a sentence), and fixed parts (code). A sentence is translated without its tags; they are put around the words
of the answer that correspond to the words they enclosed.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from operator import attrgetter, itemgetter
from typing import TypeVar

from seq2see.config import REPAIRS, Repair
from seq2see.documents import sentences
from seq2see.documents.kept import Read, nearest_gap
from seq2see.documents.sentences import MARKS, STOPS, Span

#: A tag such as <b>, </a>, <0> or <br/>; "a < b" is none.
TAG = re.compile(r"<(?P<end>/?)(?P<name>[A-Za-z][\w:-]*|\d+)(?P<rest>(?:\s[^<>]*)?/?)>")
CLAUSE = re.compile(
    rf"[;:,—–](?=\s)|\s[-–—](?=\s)|[،؛、，；：]|(?<![{STOPS}])[{STOPS}]++[\"'”’»)\]]*+(?=\s)|[{MARKS}]+"
)

Escape = Callable[[str], str]
Spelling = tuple[int, int, str]  # characters that the document writes differently from ``Escape``: &eacute;
MOST_TAGS = 100  # of a sentence; a sentence with more is not translated


@dataclass(frozen=True)
class Pair:
    """A tag and its end tag, around some text of a run. A tag without a partner encloses nothing."""

    first: int
    last: int
    open: str
    close: str
    opened: int = field(default=0, compare=False)  # the indices of the two among all tags of the run
    closed: int = field(default=0, compare=False)

    def is_within(self, other: Pair) -> bool:
        """Whether another pair encloses this one."""
        return other.opened < self.opened and self.closed < other.closed


@dataclass(frozen=True)
class Break:
    """A space of a run that is written differently, such as a line end."""

    place: int
    text: str


@dataclass(frozen=True)
class Stretch:
    """Some text with its tags, breaks and fixed parts; positions are relative to it."""

    text: str
    pairs: tuple[Pair, ...] = ()
    breaks: tuple[Break, ...] = ()
    fixed: tuple[Span, ...] = ()
    escape: Escape = field(default=str, compare=False)
    spelled: tuple[Spelling, ...] = field(default=(), compare=False)

    @property
    def is_bare(self) -> bool:
        """Whether there are only words, as in most texts."""
        return not (self.pairs or self.breaks or self.fixed or self.spelled)


@dataclass(frozen=True)
class Sentence(Stretch):
    """A unit of translation."""

    def read(self, repairs: tuple[Repair, ...] = REPAIRS) -> Read:
        """Return the sentence as a model with these repairs reads it."""
        if repairs not in self._read:
            self._read[repairs] = Read.of(
                self.text, self.fixed, breaks=[one.place for one in self.breaks], repairs=repairs
            )
        return self._read[repairs]

    @cached_property
    def _read(self) -> dict[tuple[Repair, ...], Read]:
        return {}

    def written(self, answer: str, read: Read, links: Sequence[tuple[Span, Span]] = ()) -> str:
        """Return the answer with the tags, breaks and fixed parts of the sentence.

        ``links`` maps words of the source (first span) to words of the answer (second span).
        """
        if not self.pairs and not self.breaks and not read.items:
            return self.escape(read.cased(answer))
        return _Writer(self, answer, read, links).written()

    def unchanged(self) -> str:
        """Return the sentence as it is in its document."""
        pieces = [(*tag[:3], 0, tag[-1]) for tag in _tags(enumerate(self.pairs))]
        # position, whether it is a tag or replaces characters, order there, how many characters it replaces, itself
        pieces += [(one.place, 1, 0, 1, one.text) for one in self.breaks]
        pieces += [(first, 1, 0, last - first, self.text[first:last]) for first, last in self.fixed]
        pieces += [(first, 1, 0, last - first, text) for first, last, text in self.spelled]
        parts, at = list[str](), 0
        for place, _, _, length, text in sorted(pieces):
            parts += [self.escape(self.text[at:place]), text]
            at = place + length
        return "".join([*parts, self.escape(self.text[at:])])

    def halves(self) -> list[Sentence]:
        """Cut a long sentence in two, after a clause or else between words; a pair across the cut is in both parts."""
        middle = len(self.text) // 2
        ends = (found.end() for found in CLAUSE.finditer(self.text))
        marks = [place for place in ends if middle // 2 < place < middle + middle // 2]
        gaps = marks or [found.start() for found in re.finditer(r"\s", self.text)]
        fixed = [span for span in self.fixed if span[1] - span[0] < len(self.text)]
        gaps = [gap for gap in gaps if not any(first < gap < last for first, last in fixed)]
        cut = min(gaps or [middle], key=lambda place: abs(place - middle))
        across = [pair for pair in self.pairs if pair.first < cut < pair.last]
        parts = [replace(pair, last=cut) for pair in across] + [replace(pair, first=cut) for pair in across]
        pairs = sorted([*(pair for pair in self.pairs if pair not in across), *parts], key=_first)
        whole = replace(self, pairs=tuple(pairs))
        return [whole.part(0, cut, until=0), whole.part(cut, len(self.text))]

    def part(self, first: int, last: int, since: float = -1, until: float = inf) -> Sentence:
        """Return a part of the sentence, without tags that reach beyond it: the caller handles those.

        Of the tags that enclose nothing, those at its ends are in the part after the tag ``since`` and before ``until``.
        """
        if self.is_bare:
            return Sentence(self.text[first:last], escape=self.escape)
        pairs = [
            pair
            for pair in _from(self.pairs, first, last, _first)
            if pair.last <= last
            and (pair.last > first or pair.opened > since)
            and (pair.first < last or pair.opened < until)
        ]
        breaks = [one for one in _from(self.breaks, first, last, _place) if one.place < last]
        return Sentence(
            self.text[first:last],
            tuple(replace(pair, first=pair.first - first, last=pair.last - first) for pair in pairs),
            tuple(replace(one, place=one.place - first) for one in breaks),
            tuple((a - first, b - first) for a, b in _from(self.fixed, first, last, _begin) if b <= last),
            self.escape,
            tuple((a - first, b - first, text) for a, b, text in _from(self.spelled, first, last, _begin) if b <= last),
        )


_first, _place, _begin = attrgetter("first"), attrgetter("place"), itemgetter(0)
T = TypeVar("T")


#: Position of a tag, 0, its order there, the number of its pair, which of the two it is, itself.
Tag = tuple[int, int, int, int, str, str]


def _tags(pairs: Iterable[tuple[int, Pair]]) -> list[Tag]:
    """Return all tags of some pairs in their order."""
    found = [
        (place, 0, order, number, kind, text)
        for number, pair in pairs
        for place, order, kind, text in (
            (pair.first, pair.opened, "open", pair.open),
            (pair.last, pair.closed, "close", pair.close),
        )
        if text
    ]
    return sorted(found, key=itemgetter(0, 2))


def _from(found: Sequence[T], first: int, last: int, place: Callable[[T], int]) -> Sequence[T]:
    """Return the items of a sorted list that begin within a span, by bisection: a text may have a hundred thousand."""
    return found[bisect_left(found, first, key=place) : bisect_right(found, last, key=place)]


@dataclass(frozen=True)
class TextRun(Stretch):
    """A stretch of text in which sentences are found."""

    def parts(self) -> Iterator[str | Sentence]:
        """Split the run into sentences and the text between them."""
        text = _covered(self.text, self.fixed)
        spans = sentences.around_quotes(text, sentences.split(text))
        inside: set[int] = set()
        around: list[tuple[int, int]] = []  # the open pairs: where they close, and their numbers
        for number, pair in sorted(enumerate(self.pairs), key=lambda one: one[1].opened):
            while around and around[-1][0] < pair.opened:
                around.pop()
            place = bisect_left(spans, (pair.first + 1,)) - 1
            first, last = spans[place] if place >= 0 else (0, 0)
            if pair.first == pair.last:  # it encloses nothing
                is_inside = first < pair.first < last or bool(around and around[-1][1] in inside)
            else:
                is_inside = first <= pair.first < pair.last <= last and (pair.first, pair.last) != (first, last)
            if is_inside:
                inside.add(number)
            around.append((pair.closed, number))
        # A tag outside of sentences stays in its place; a tag across sentences opens and closes in each.
        marks = _tags((number, pair) for number, pair in enumerate(self.pairs) if number not in inside)
        kept = Sentence(**{**vars(self), "pairs": tuple(self.pairs[number] for number in sorted(inside))})
        at, done = 0, 0  # of the text, and of the marks
        for first, last in [*spans, (len(self.text), len(self.text))]:
            end = bisect_right(marks, first, done, key=itemgetter(0))
            yield from self._gap(at, first, marks[done:end])
            start, done = first, end
            since = marks[done - 1][2] if done and marks[done - 1][0] == first else -1
            while done < len(marks) and marks[done][0] < last:
                # a tag of another sentence: the text before and after it is translated separately
                place = marks[done][0]
                yield kept.part(start, place, since, marks[done][2])
                while done < len(marks) and marks[done][0] == place:
                    yield marks[done][-1]
                    done += 1
                start, since = place, marks[done - 1][2]
            if start < last:
                yield kept.part(start, last, since)
            at = last

    def _gap(self, first: int, last: int, marks: Sequence[Tag]) -> Iterator[str]:
        """Yield the parts between two sentences: white space, breaks and tags."""
        if self.is_bare:
            yield self.escape(self.text[first:last])
            return
        instead = {one.place: (one.place + 1, one.text) for one in _from(self.breaks, first, last, _place)}
        instead |= {a: (b, text) for a, b, text in _from(self.spelled, first, last, itemgetter(0))}
        remaining = deque(marks)
        while first < last:
            while remaining and remaining[0][0] <= first:
                yield remaining.popleft()[-1]
            end, text = instead.get(first, (first + 1, None))
            yield self.escape(self.text[first]) if text is None else text
            first = end
        yield from (mark[-1] for mark in remaining)

    def spelled_as(self, raw: Callable[[int, int], str], at: int) -> tuple[TextRun, int]:
        """Return the run with the spelling of its document, and its end there.

        ``raw`` returns a part of the document; the run begins at ``at``.
        """
        marks = _tags(enumerate(self.pairs))
        marks += [(one.place, 1, 0, number, "break", one.text) for number, one in enumerate(self.breaks)]
        pairs, breaks = list(self.pairs), list(self.breaks)
        spelled, place = list[Spelling](), 0

        def words(last: int) -> None:
            nonlocal place, at
            for sign in self.text[place:last]:
                written = raw(at, at + 1)
                if written != self.escape(sign):
                    spelled.append((place, place + 1, written))
                place, at = place + 1, at + 1

        for first, length, _, number, kind, text in sorted(marks, key=itemgetter(0, 1, 2)):
            words(first)
            end = at + len(text)
            if kind == "break":
                breaks[number] = replace(breaks[number], text=raw(at, end))
            elif kind == "open":
                pairs[number] = replace(pairs[number], open=raw(at, end))
            else:
                pairs[number] = replace(pairs[number], close=raw(at, end))
            place, at = first + length, end
        words(len(self.text))
        return replace(self, pairs=tuple(pairs), breaks=tuple(breaks), spelled=tuple(spelled)), at


DocumentPart = str | TextRun  # what stays, and what is translated


def _covered(text: str, fixed: Sequence[Span]) -> str:
    """Hide punctuation within fixed parts, so that no sentence ends in them."""
    if not fixed:
        return text
    parts, at = list[str](), 0
    for first, last in fixed:
        parts += [text[at:first], "x" * (last - first)]
        at = last
    return "".join([*parts, text[at:]])


class _Writer:
    """Puts the tags, breaks and hidden parts of a sentence into its answer."""

    def __init__(self, sentence: Sentence, answer: str, read: Read, links: Sequence[tuple[Span, Span]]) -> None:
        self.sentence, self.answer, self.read, self.links = sentence, answer, read, links
        self.special = [
            (first, last, item if fixed else sentence.escape(item)) for first, last, item, fixed in read.marks(answer)
        ]
        taken = set[int]()
        for one in sentence.breaks:
            share = read.place(one.place) / max(1, len(read.text))
            spaces = [i for i, sign in enumerate(answer) if sign == " " and i not in taken]
            if spaces:
                place = min(spaces, key=lambda i: abs(i - share * len(answer)))
                taken.add(place)
                self.special.append((place, place + 1, one.text))
            else:
                self.special.append((len(answer), len(answer), one.text))
        self.special.sort()

    def written(self) -> str:
        return self._within(0, len(self.answer), list(self.sentence.pairs))

    def _plain(self, first: int, last: int) -> str:
        parts, at = list[str](), first
        for start, end, text in self.special:
            if first <= start and (end <= last) and (start < last or (start == end == last == len(self.answer))):
                parts += [self._words(at, start), text]
                at = end
        return "".join([*parts, self._words(at, last)])

    def _words(self, first: int, last: int) -> str:
        return self.sentence.escape(self.read.cased(self.answer[first:last]))

    def _within(self, low: int, high: int, pairs: list[Pair]) -> str:
        """Write a part of the answer with the pairs within it, the outer ones first."""
        outer = [pair for pair in pairs if not any(pair.is_within(other) for other in pairs)]
        placed = sorted((*self._span(pair, low, high), number) for number, pair in enumerate(outer))
        parts, at = list[str](), low
        for first, last, number in placed:
            pair = outer[number]
            first, last = max(first, at), max(last, at)
            inner = [one for one in pairs if one.is_within(pair)]
            parts += [self._plain(at, first), pair.open, self._within(first, last, inner), pair.close]
            at = last
        return "".join([*parts, self._plain(at, high)])

    def _span(self, pair: Pair, low: int, high: int) -> Span:
        """Return the words of the answer that come from the words within a pair."""
        first, last = self.read.place(pair.first), self.read.place(pair.last)
        if first == last:
            return self._spot(first, pair.open.startswith("</"), low, high)
        if (inside := self._inside(first, last, low, high)) is not None:
            return inside
        found = [
            target
            for source, target in self.links
            if source[0] < last and first < source[1] and low <= target[0] and target[1] <= high
        ]
        words = [span for span in found if any(map(str.isalnum, self.answer[slice(*span)]))] or found
        if not words:
            place = min(max(nearest_gap(self.answer, first / max(1, len(self.read.text))), low), high)
            return self._outside(place, place)
        start, end = min(span[0] for span in words), max(span[1] for span in words)
        # Signs at the ends of words stay with them: <b>Note:</b> becomes <b>Attention :</b>.
        inner = self.read.text[first:last]
        for sign in reversed(re.match(r"[^\w\s]*", inner)[0] if start > low else ""):  # type: ignore[index]
            start -= self.answer[low:start].endswith(sign)
        for sign in reversed(re.match(r"[^\w\s]*+", inner[::-1])[0]):  # type: ignore[index]
            after = re.compile(rf"\s?{re.escape(sign)}").match(self.answer, end, high)
            end = after.end() if after else end
        return self._outside(start, end)

    def _inside(self, first: int, last: int, low: int, high: int) -> Span | None:
        """Find the letters of a pair that encloses a part of a word, H<sub>2</sub>O, if the answer has that word, too.

        Letters after a number stay with that number, 21<sup>e</sup>, and a number after letters stays a number,
        Notiz<sup>1</sup>. Of several such words it is the one with the same number, or else the one at about the same
        place.
        """
        text = self.read.text
        around = [span for word in re.finditer(r"\w+", text) if (span := word.span())[0] <= first < last <= span[1]]
        if not around or around[0] == (first, last):
            return None
        start, end = around[0]
        before, inner, after = (re.escape(text[slice(*span)]) for span in ((start, first), (first, last), (last, end)))
        patterns = [rf"(?<!\w){before}({inner}){after}(?!\w)"]
        ordinal = before.isdigit() and inner.isalpha() and not after
        if ordinal:
            patterns.append(rf"(?<!\w){before}([^\W\d_]*)(?!\w)")
        elif before.isalpha() and inner.isdigit() and not after:
            patterns.append(rf"(?<=[^\W\d_])({inner})(?!\w)")
        for pattern in patterns:
            there, here = ([found.span(1) for found in re.finditer(pattern, one)] for one in (text, self.answer))
            if len(there) == len(here):
                here = [here[there.index((first, last))]]
            share = start / max(1, len(text)) * len(self.answer)
            for span in sorted(here, key=lambda span: abs(span[0] - share)):
                if low <= span[0] and span[1] <= high:
                    return self._outside(*span)
        ends = [target[1] for source, target in self.links if source[0] < last and start < source[1]]
        if ordinal and ends:  # a word says the number: no part of it is raised
            place = min(max(max(ends), low), high)
            return self._outside(place, place)
        return None

    def _spot(self, place: int, ends: bool, low: int, high: int) -> Span:
        """Return where a tag without a partner goes: to the word it touches; of two words, an end tag takes the first."""
        near = [(source, target) for source, target in self.links if low <= target[0] and target[1] <= high]
        text = self.read.text
        before, after = (side.strip() == side != "" for side in (text[:place][-1:], text[place:][:1]))
        if before and (ends or not after):
            found = [(place - source[1], target[1]) for source, target in near if source[1] <= place]
        else:
            found = [(source[0] - place, target[0]) for source, target in near if source[0] >= place]
        share = nearest_gap(self.answer, place / max(1, len(self.read.text)))
        spot = min(found)[1] if found else min(max(share, low), high)
        return self._outside(spot, spot)

    def _outside(self, first: int, last: int) -> Span:
        """Move the ends of a span out of replaced parts."""
        for start, end, _ in self.special:
            if start < first < end:
                first = start
            if start < last < end:
                last = end
        return first, last


class Builder:
    """Collects the words, tags and fixed parts of a run in order."""

    def __init__(self, escape: Escape = str) -> None:
        self.escape = escape
        self.parts: list[tuple[str, str, str]] = []  # kind, name or spelling, text

    @property
    def has_words(self) -> bool:
        """Whether there are any words."""
        return any(kind == "words" for kind, _, _ in self.parts)

    def add(self, kind: str, text: str, name: str = "") -> None:
        """Add words, a fixed part, a tag to open or close, or a break: a line end, which is a space between words.

        ``name`` is that of a tag, or how the document writes words, if not as ``escape`` does.
        """
        self.parts.append((kind, name, text))

    def add_tag(self, tag: re.Match[str]) -> None:
        """Add a tag that ``TAG`` has found."""
        kind = "fixed" if tag["rest"].endswith("/") else "close" if tag["end"] else "open"
        self.add(kind, tag[0], tag["name"].lower())

    def run(self) -> TextRun:
        """Return the run."""
        matched = self._matched()
        plain, length = list[str](), 0
        pairs, breaks, fixed, stack = list[Pair](), list[Break](), list[Span](), list[tuple[int, str, int]]()
        spelled = list[Spelling]()
        for number, (kind, name, text) in enumerate(self.parts):
            if kind == "break":
                breaks.append(Break(length, text))
                text = " "
            elif kind == "open" and number in matched:
                stack.append((length, text, number))
                continue
            elif kind == "close" and number in matched:
                first, opening, opened = stack.pop()
                pairs.append(Pair(first, length, opening, text, opened, number))
                continue
            elif kind in ("open", "close"):
                pairs.append(Pair(length, length, text, "", number, number))
                continue
            elif kind != "words":
                fixed.append((length, length + len(text)))
            elif name and text:
                spelled.append((length, length + len(text), name))
            plain.append(text)
            length += len(text)
        pairs.sort(key=lambda pair: (pair.first, -pair.last, pair.opened))
        return TextRun("".join(plain), tuple(pairs), tuple(breaks), tuple(fixed), self.escape, tuple(spelled))

    def _matched(self) -> set[int]:
        """Return the indices of matching tags, properly nested."""
        stack, found, waiting = list[tuple[str, int]](), set[int](), Counter[str]()
        for number, (kind, name, _) in enumerate(self.parts):
            if kind == "open":
                stack.append((name, number))
                waiting[name] += 1
            elif kind == "close" and waiting[name]:
                while True:
                    other, opened = stack.pop()
                    waiting[other] -= 1
                    if other == name:
                        break
                found |= {opened, number}
        return found


def tagged(lines: Sequence[str], breaks: Sequence[str] = ()) -> TextRun:
    """Read some lines with tags among their words, and the text between the lines."""
    if len(lines) == 1 and not TAG.search(lines[0]):
        return TextRun(lines[0])
    builder = Builder()
    for line, before in zip(lines, ["", *breaks], strict=True):
        if before:
            builder.add("break", before)
        at = 0
        for tag in TAG.finditer(line):
            builder.add("words", line[at : tag.start()])
            builder.add_tag(tag)
            at = tag.end()
        builder.add("words", line[at:])
    return builder.run()
