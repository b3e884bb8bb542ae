"""Items that a translation must keep: addresses, placeholders, code, numbers, emoji.

Addresses, placeholders and code are hidden from the model behind marks, {1}, {2}, …, that it copies. It reads numbers
and emoji, because the grammar depends on them. Afterwards the answer is checked for all of them.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

from seq2see.config import REPAIRS, Repair
from seq2see.documents.sentences import MARKS, STOPS, Span

_DOMAINS = "com|org|net|edu|gov|io|info|eu|fr|de|uk|ch|be|at|it|es|nl|ca|us|app|dev|ai|tv|me|jp|cn|ru|pl|se"
#: What is hidden, in the order in which it is tried. Each reads a text once: it matches only where its repetition
#: begins, and repetitions do not backtrack.
HIDDEN = re.compile(
    r"(?P<address>\b(?:https?|ftp)://[^\s<>\"“”«»]++|\bmailto:\S++|(?<![\w.+-])[\w.+-]++@[\w-]++(?:\.[\w-]++)++"
    rf"|(?<![\w-])(?<![\w-]\.)[\w-]++(?:\.[\w-]++)*\.(?:{_DOMAINS})\b(?:/[^\s<>\"“”«»]*+)?)"
    r"|(?P<placeholder>\{\{[^{}\n]*+\}\}|\$?\{[^{}\n]*+\}|\$\w++\$|%\([\w.]++\)[a-zA-Z]"
    r"|(?<![\d%])%(?:\d++\$)?+[-+0#]*+\d*+(?:\.\d++)?+(?:ll?|h)?+[sdiufxXgeco@](?![A-Za-z])"
    r"|(?<!\w)&\w++;|</?[A-Za-z\d][^<>\n]*+>|\[\[[^\[\]\n]*+\]\])"
    r"|(?P<code>(?<!\w)`[^`\n]++`|(?<![\w/])(?:~|\.{1,2})?/[\w.-]++(?:/[\w.-]++)++/?|\b[A-Z]:\\[\w\\.-]++"
    r"|(?<![\w.\\-])[\w.-]*+\\[\w\\.$-]*[\w\\$]"
    r"|\b[a-zA-Z][^\W_]*+_\w++(?:\(\))?|\b\w++\(\))"
    r"|(?P<sign>(?<!\d)\d*+[¼-¾⅐-⅞]|(?<!\w)[A-Za-z]++[²³⁰-₉]++\w*+|[¥₩₪₫₱-₿]\s?[\d.,]*\d|(?<=\s)\|(?=\s))"
    r"|(?P<label>(?<![\w-])[A-Z]++\d{2}[A-Z\d]*+(?![\w-]))"
    r"|(?P<handle>(?<![\w&])[@#][A-Za-z]\w++)"
    r"|(?P<digits>(?<![\w.,])(?:\+|\(\d++\)[ -]?)?\d++(?:[ ./-]\(?\d++\)?)+(?![\w]|[.,]\d))"
)
#: Every match contains one of these characters; a sentence without them is skipped.
TRIGGER = re.compile(r"[@{%$&<\[`\\_#/|¼-¾⅐-⅞²³⁰-₉¥₩₪₫₱-₿]|[A-Z]\d\d|\.[\w-]|\w\(\)|\d[ -]\(?\d|\) ?-?\d")
LEAST_DIGITS = 7  # least digits of a phone number or a date; a shorter one is an ordinary number
TRAILING = ".,;:!?'’)]}*_"  # signs that end a sentence or a bracket, not an address
#: A number with its separators: a space or an apostrophe only before three digits (6'2 is not 62).
NUMBER = re.compile(r"\d{1,3}(?:[ \u00a0\u202f'’]\d{3})+(?!\d)(?:[.,]\d+)*|\d+(?:[.,]\d+)*")
GROUPED = re.compile(r"\d{1,3}([.,' ’\u00a0\u202f])\d{3}(?:\1\d{3})+")  # thousands and millions
EMOJI = re.compile(
    "[\U0001f1e6-\U0001f1ff]{2}|[\U0001f000-\U0001faff☀-➿⬀-⯿]️?[\U0001f3fb-\U0001f3ff]?"
    "(?:‍[\U0001f000-\U0001faff☀-➿]️?[\U0001f3fb-\U0001f3ff]?)*"
)
MARK = re.compile(r"\{ ?(\d+) ?\}")
ITEM = re.compile(f"{MARK.pattern}|{NUMBER.pattern}|{EMOJI.pattern}")
#: Every such item contains one of these characters; most sentences have none and are skipped.
ANY_ITEM = re.compile("[\\d\U0001f000-\U0001faff☀-➿⬀-⯿]")
#: Times of day, which languages count to 12 or to 24: 3:30 pm is 15 h 30 or 15.30 Uhr.
AFTERNOON = re.compile(r"(?<![\d.,:])(\d{1,2})(?::\d\d)?\s?p\.?\s?m(?!\w)", re.IGNORECASE)
LATE = re.compile(r"(?<![\d.,:])(1[3-9]|2[0-3])(?::[0-5]\d|\s?h(?:eures?\b|(?![a-z]))|(?:\.[0-5]\d)?\s?Uhr\b)")
LATER = re.compile(r"\bp\.?\s?m\b|noon|evening|night|soir|midi|nuit|nachmittag|abend|nacht", re.IGNORECASE)
#: Signs of currencies, which an answer may write as words.
CURRENCIES = {
    sign: (re.compile(rf"\{sign}\s?\d|\d\s?\{sign}"), re.compile(rf"\{sign}|{names}", re.IGNORECASE))
    for sign, names in {"€": "eur", "£": "pound|livre|pfund|sterling|gbp", "$": "dollar|usd"}.items()
}
QUOTES = re.compile('["“”„‟«»‹›]')
OPENED, CLOSED = re.compile(r"(?<!\w)['‘‚](?=\S)"), re.compile(r"['’‘](?!\w)")  # a quotation in single marks
#: Small numbers as words, in English, French and German: an answer may use the words.
IN_WORDS = {
    str(number): re.compile(rf"\b(?:{names})\b", re.IGNORECASE)
    for number, names in {
        1: "one|une?|ein(?:e[nmrs]?|s)?", 2: "two|deux|zwei", 3: "three|trois|drei", 4: "four|quatre|vier",
        5: "five|cinq|fünf", 6: "six|sechs", 7: "seven|sept|sieben", 8: "eight|huit|acht", 9: "nine|neuf|neun",
        10: "ten|dix|zehn", 11: "eleven|onze|elf", 12: "twelve|douze|zwölf",
    }.items()
}  # fmt: skip
#: Parts of an hour as words, and those counted from the next hour.
PARTS = {"15": r"quart|quarter|viertel", "30": r"demie?|half|halb", "45": r"quart|quarter|viertel|dreiviertel"}
TO_NEXT = re.compile(r"\b(?:halb|viertel vor|dreiviertel|quarter to|moins le quart)\b", re.IGNORECASE)
PAST = re.compile(r"(?<![\d.,:])(\d{1,2})[:.](15|30|45)(?!\d)")
FULL = re.compile(r"(?<![\d.,:])(\d{1,2})(?::|\s?[hH]\s?)00(?![\d:])")  # 8:00 is 8 heures
EARLY = re.compile(r"(?<![\d.,:])0(?=\d(?::|\s?[hH]\s?)\d\d(?![\d:]))")  # 02h30 is 2:30
CLOCK = re.compile(r"(?<![\d.,:])(\d{1,2})\.(\d\d)(?=\s?Uhr\b)")
LEADING, TRAILED = re.compile(r"(?:\{\d+\})+(?=[^\s{])"), re.compile(r"(?<=[^\s}])(?:\{\d+\})+$")
TAIL = re.compile(f"[ {STOPS}{MARKS}]*+")  # of a text, read backwards
LONG = re.compile(r"\S{500,}")  # a longer word is data, such as a picture in base64, and is hidden


def hidden_spans(text: str, also: Iterable[Span] = ()) -> list[Span]:
    """Return the spans that are hidden from the model: those of the document (``also``), addresses and code."""
    long = [match.span() for match in LONG.finditer(text)] if len(text) >= 500 else []
    spans = sorted([*long, *(span for span in also if not _overlaps(span, long))])
    if not TRIGGER.search(text):
        return spans
    taken = [*spans, (len(text), len(text))]
    # A span that is hidden as a whole is skipped: the expression would be slow on it.
    for start, end in zip([0, *(last for _, last in long)], [*(first for first, _ in long), len(text)], strict=True):
        for found in HIDDEN.finditer(text, start, end):
            first, last = found.span()
            if found.lastgroup == "address":
                last = first + len(_address(found[0]))
            if found.lastgroup == "digits" and sum(map(str.isdigit, found[0])) < LEAST_DIGITS:
                continue
            if not _overlaps((first, last), taken):
                spans.append((first, last))
    return sorted(spans)


def _overlaps(span: Span, others: Sequence[Span]) -> bool:
    """Whether a span overlaps one of others, which are sorted and disjoint."""
    place = bisect_left(others, span)
    return any(span[0] < last and first < span[1] for first, last in others[max(0, place - 1) : place + 1])


def _address(text: str) -> str:
    """Leave out what follows an address: a full stop, or a bracket that was opened before it."""
    while text and text[-1] in TRAILING and not (text[-1] == ")" and text.count("(") >= text.count(")")):
        text = text[:-1]
    return text


def unmarked(text: str) -> str:
    """Return the text that a model reads without what it only copies: marks and emoji."""
    return EMOJI.sub("", MARK.sub("", text)) if ANY_ITEM.search(text) else text


@dataclass(frozen=True)
class Read:
    """A sentence as the model reads it: hidden spans are marks."""

    text: str
    items: tuple[str, ...] = ()  # the hidden texts of {1}, {2}, …
    places: tuple[Span, ...] = ()  # their positions in the sentence
    fixed: frozenset[int] = frozenset()  # those that come from the document: they are written as they are
    moves: tuple[tuple[int, int, int], ...] = ()  # replaced spans, and the lengths of their replacements
    #: Whether the sentence is in capitals: the model reads small letters, and the answer is written in capitals.
    shouts: bool = False
    repairs: tuple[Repair, ...] = REPAIRS

    @classmethod
    def of(
        cls,
        sentence: str,
        also: Iterable[Span] = (),
        instead: Mapping[Span, str | None] | None = None,
        breaks: Iterable[int] = (),
        repairs: tuple[Repair, ...] = REPAIRS,
    ) -> Read:
        """Hide what must be hidden, and replace some spans by other words (``instead``).

        Without the repair ``marks`` only ``also`` is hidden. A span across a line end (``breaks``) is not hidden: the
        line end would be lost.
        """
        also, instead = frozenset(also), instead or {}
        spans = hidden_spans(sentence, also) if "marks" in repairs else sorted(also)
        places = sorted(breaks)
        spans = [one for one in spans if one in also or bisect_left(places, one[0]) == bisect_left(places, one[1])]
        if not spans and not instead:
            return cls(sentence, repairs=repairs)._quiet()
        parts, moves, at, number = list[str](), list[tuple[int, int, int]](), 0, 0
        for first, last in sorted([*spans, *instead]):
            if (first, last) not in instead:
                number += 1
            new = instead.get((first, last)) or f"{{{number}}}"
            parts += [sentence[at:first], new]
            moves.append((first, last, len(new)))
            at = last
        fixed = frozenset(number for number, span in enumerate(spans) if span in also)
        items = tuple(sentence[first:last] for first, last in spans)
        text = "".join([*parts, sentence[at:]])
        return cls(text, items, tuple(spans), fixed, tuple(moves), repairs=repairs)._quiet()

    def _quiet(self) -> Read:
        """Turn capitals into small letters, if all letters are capitals: most scripts have none."""
        if "capitals" not in self.repairs or any(one.isalpha() and not one.isupper() for one in self.text):
            return self
        if len(re.findall(r"[^\W\d_]{2,}", self.text)) < 2:
            return self
        if len(self.text.lower()) != len(self.text):
            return self
        small = re.sub(r"\bi\b", "I", self.text.lower())
        first = next(place for place, sign in enumerate(small) if sign.isalpha())
        return replace(self, text=small[:first] + small[first].upper() + small[first + 1 :], shouts=True)

    def cased(self, words: str) -> str:
        """Write words of an answer in capitals, if the sentence was."""
        return words.upper() if self.shouts else words

    @property
    def has_words(self) -> bool:
        """Whether there is anything to translate: a letter that is not hidden."""
        return any(map(str.isalpha, self.text))

    def place(self, place: int) -> int:
        """Map a position of the sentence to the text that the model reads."""
        number = bisect_left(self.moves, (place,))  # replacements before it
        if number and self.moves[number - 1][1] > place:  # within a replacement
            place, number = self.moves[number - 1][0], number - 1
        return place + self._shifts[number]

    @cached_property
    def _shifts(self) -> list[int]:
        """The shift of positions after each number of replacements."""
        return [0, *accumulate(length - (last - first) for first, last, length in self.moves)]

    def missing(self, answer: str) -> list[str]:
        """Return the marks, numbers and emoji that an answer lacks, in the order of the text.

        Without the repair ``numbers`` these are only the marks.
        """
        wanted = needed(self.text, len(self.items))
        if "numbers" not in self.repairs:
            marks = Counter(item for item in wanted if item.startswith("{"))
            return list((marks - Counter(needed(answer, len(self.items)))).elements())
        if not wanted:
            return []
        said = needed(answer, len(self.items))
        lacking = Counter(wanted)
        lacking.subtract(said)
        found, hours = [], other_hours(self.text)
        for item in wanted:
            if lacking[item] > 0:
                lacking[item] -= 1
                other = hours.get(item, "")
                # 6 pm is 18 h, but 18 h is 6 only in the evening
                if lacking[other] < 0 and (int(other) > int(item) or LATER.search(answer)):
                    lacking[other] += 1
                elif not self._is_in_words(item, answer):
                    found.append(item)
        for hour in AFTERNOON.findall(self.text):  # 6 pm is 18 h, not 6 or six
            late, told = hours.get(hour), hour in said or self._is_in_words(hour, answer)
            if late and told and late not in said and late not in found and not LATER.search(answer):
                found.append(late)
        signs = [sign for sign, (used, _) in CURRENCIES.items() if used.search(self.text)]
        return [*found, *(sign for sign in signs if not CURRENCIES[sign][1].search(answer))]

    def _is_in_words(self, item: str, answer: str) -> bool:
        """Whether an answer has a number of the text as a word: three, half past two."""
        if item in IN_WORDS and IN_WORDS[item].search(answer):
            return True
        times = PAST.findall(self.text)
        if any(part == item for _, part in times):
            return re.search(rf"\b(?:{PARTS[item]})\b", answer, re.IGNORECASE) is not None
        next_hour = IN_WORDS.get(str(int(item) % 12 + 1)) if item.isdigit() else None
        at = any(hour == item for hour, _ in times) and TO_NEXT.search(answer) and next_hour
        return bool(at and at.search(answer))

    def has_lost_quotes(self, answer: str) -> bool:
        """Whether a quotation of the text has lost one of its marks."""
        before = len(QUOTES.findall(self.text)) if "quotes" in self.repairs else 0
        if before == 0 or before % 2 == 1:
            return False
        after = len(QUOTES.findall(answer))
        return after % 2 == 1 or (after == 0 and not _is_quoted(answer))

    def closed_up(self, answer: str) -> str:
        """Remove a space between words and parts of the document at an end of the answer, if the text has none there."""
        if not self.fixed:
            return answer
        before, after = LEADING.match(self.text), TRAILED.search(self.text)
        if before and self._are_fixed(before[0]) and answer.startswith(f"{before[0]} "):
            answer = before[0] + answer[len(before[0]) :].lstrip(" ")
        if after and self._are_fixed(after[0]) and answer.endswith(f" {after[0]}"):
            answer = answer[: -len(after[0])].rstrip(" ") + after[0]
        return answer

    def _are_fixed(self, marks: str) -> bool:
        return all(int(number) - 1 in self.fixed for number in MARK.findall(marks))

    def marks(self, answer: str) -> list[tuple[int, int, str, bool]]:
        """Return the first occurrence of each mark in an answer, its hidden text, and whether it comes from the
        document.
        """
        found, seen = [], set[int]()
        for match in MARK.finditer(answer):
            number = int(match[1])
            if 1 <= number <= len(self.items) and number not in seen:
                seen.add(number)
                found.append((*match.span(), self.items[number - 1], number - 1 in self.fixed))
        return found


def _is_quoted(text: str) -> bool:
    """Whether a line has a quotation in single marks: an opening one, at least one character, a closing one."""
    for line in text.split("\n"):
        first = OPENED.search(line)
        if first is not None and CLOSED.search(line, first.end() + 1):
            return True
    return False


def needed(text: str, marks: int = 0) -> list[str]:
    """Return the marks, numbers (only their digits) and emoji of a text, in order."""
    found: list[str] = []
    if not ANY_ITEM.search(text):
        return found
    text = FULL.sub(r"\1", EARLY.sub("", CLOCK.sub(r"\1:\2", text)))
    for match in ITEM.finditer(text):
        if match[1] is not None and 1 <= int(match[1]) <= marks:
            found.append(f"{{{match[1]}}}")
        elif match[0][0].isdigit() or match[1] is not None:
            found += ["".join(filter(str.isdigit, match[0]))]
        else:
            found.append(match[0].rstrip("️"))
    return found


def other_hours(text: str) -> dict[str, str]:
    """Return the hours of a text that another language may write differently, and how."""
    after = {hour: str(int(hour) + 12) for hour in AFTERNOON.findall(text) if 0 < int(hour) < 12}
    return after | {hour: str(int(hour) - 12) for hour in LATE.findall(text)}


def regrouped(answer: str, text: str) -> str:
    """Use one separator for the thousands of a large number, if the text does: 12,345,678, not 12.345,678."""
    if not GROUPED.search(text):
        return answer
    grouped = {re.sub(r"\D", "", one) for one in NUMBER.findall(text) if GROUPED.fullmatch(one)}

    def one_sign(match: re.Match[str]) -> str:
        signs = re.findall(r"\D", match[0])
        mixed = len(set(signs)) > 1 and re.sub(r"\D", "", match[0]) in grouped
        return re.sub(r"\D", signs[0], match[0]) if mixed else match[0]

    return NUMBER.sub(one_sign, answer)


def spellings(item: str, text: str) -> list[str]:
    """Return the spellings of an item in an answer: a number may have other separators."""
    if not item.isdigit():
        return [item]
    written = next((one for one in NUMBER.findall(text) if "".join(filter(str.isdigit, one)) == item), item)
    # 1,234.50 is 1.234,50 or 1 234,50 elsewhere
    swapped = written.translate(str.maketrans(",.", ".,"))
    spaced = written.replace(",", " ").replace(".", ",")
    other = [other_hours(text)[item]] if item in other_hours(text) else []
    if other and item in AFTERNOON.findall(text):  # 7 pm is 19 in languages that count to 24
        return [*other, written]
    return list(dict.fromkeys([written, spaced, swapped, *other, item if len(item) == len(written) else written]))


def repaired(answer: str, missing: Sequence[str], read: Read) -> str:
    """Insert a missing item into an answer: in the place of a number that the text does not have, or near its own
    place.
    """
    answer = MARK.sub(r"{\1}", answer)  # nothing is inserted at a space within a mark
    for item in missing:
        strange = Counter(needed(answer, len(read.items)))
        strange.subtract(needed(read.text, len(read.items)))
        spelled = spellings(item, read.text)[0]
        wrong = [
            match.span()
            for match in NUMBER.finditer(answer)
            if strange["".join(filter(str.isdigit, match[0]))] > 0 and not MARK.match(answer, match.start() - 1)
        ]
        if not wrong and item.isdigit() and item not in needed(read.text):  # the hour of an afternoon
            early = other_hours(read.text)
            twelve = {item, *(one for one, other in early.items() if other == item)} - {item}
            wrong = [match.span() for match in NUMBER.finditer(answer) if match[0] in twelve][-1:]
        if item.isdigit() and len(wrong) == 1:
            first, last = wrong[0]
            answer = answer[:first] + spelled + answer[last:]
            continue
        share = max(0, read.text.find(spelled)) / max(1, len(read.text))
        at = nearest_gap(answer, share)
        before, after = answer[:at].rstrip(" "), answer[at:]
        answer = f"{before}{' ' if before else ''}{spelled}{'' if not after or after[0] in ' .,;!?' else ' '}{after}"
    return answer


def nearest_gap(text: str, share: float) -> int:
    """Return the gap between words, or before the last punctuation, that is nearest to a fraction of the text."""
    end = len(text) - TAIL.match(text[::-1]).end()  # type: ignore[union-attr]
    gaps = [0, *(match.start() for match in re.finditer(r"(?<!\s)\s++(?=\w)", text)), end]
    return min(gaps, key=lambda gap: abs(gap - share * len(text)))


def loops(answer: str, source: str = "") -> bool:
    """Whether an answer repeats something three times or more in a row, unlike its source."""
    often = _repeats(answer)
    return often > 2 and often > _repeats(source)


def _repeats(text: str) -> int:
    """Return the longest series of repetitions of one to eight words, or of a letter."""
    words = re.findall(r"\w+|[^\w\s]", text.lower())
    most = max((len(run[0]) - 1 for run in re.finditer(r"([^\W\d_])\1{3,}", text)), default=0)
    if len(words) - len(set(words)) < 2:  # no word occurs three times
        return most
    for size in range(1, 9):
        run = 0
        for place in range(size, len(words)):
            run = run + 1 if words[place] == words[place - size] else 0
            if run >= size and (size > 1 or words[place].isalnum()):
                most = max(most, 1 + run // size)
    return most
