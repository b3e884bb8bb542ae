"""Splits a text into sentences, by rules on a few words around each mark.

No library was suitable: sentencex (November 2026) splits 26 of the 30 hard cases of our tests as people do, must be told
the language, and needs a wheel for each Python; pySBD takes quadratic time; others need a model. These rules read a text
once. Their words are those of languages of the Latin script; their marks are those of all scripts.
"""

from __future__ import annotations

import re
from bisect import bisect_right

Span = tuple[int, int]  # first character, one past the last

#: Marks that end a sentence if white space follows, and those of scripts that use them for nothing else: together the
#: property Sentence_Terminal of Unicode, and the ellipsis.
STOPS = ".!?…․‼‽⁇⁈⁉⳹⳺⳻⸮⸼⹓⹔\u2e60\u2e61﹒﹖﹗．"
RANGES = (
    "589 61d-61f 6d4 700-702 7f9 837 839 83d-83e 964-965 104a-104b 1362 1367-1368 166e 1735-1736 17d4-17d5 1803 1809 "
    "1944-1945 1aa8-1aab 1b4e-1b4f 1b5a-1b5b 1b5e-1b5f 1b7d-1b7f 1c3b-1c3c 1c7e-1c7f 3002 a4ff a60e-a60f a6f3 a6f7 "
    "a876-a877 a8ce-a8cf a92f a9c8-a9c9 aa5d-aa5f aaf0-aaf1 abeb fe12 fe15-fe16 ff01 ff1f ff61 10a56-10a57 "
    "10f55-10f59 10f86-10f89 11047-11048 110be-110c1 11141-11143 111c5-111c6 111cd 111de-111df 11238-11239 "
    "1123b-1123c 112a9 113d4-113d5 1144b-1144c 115c2-115c3 115c9-115d7 11641-11642 1173c-1173e 11944 11946 "
    "11a42-11a43 11a9b-11a9c 11c41-11c42 11ef7-11ef8 11f43-11f44 16a6e-16a6f 16af5 16b37-16b38 16b44 16d6e-16d6f "
    "16e98 1bc9f 1da88 "
)
#: The same for a [set] of a regular expression.
MARKS = re.sub("[0-9a-f]+", lambda number: chr(int(number[0], 16)), RANGES).replace(" ", "")
#: What may end a sentence: marks, then closing quotes and brackets; a semicolon is the question mark of Greek.
END = re.compile(
    rf"(?<![{STOPS}])(?:[{STOPS}]++|(?<=[\u0370-\u03ff\u1f00-\u1fff]);)[\"'“”’»›)\]*_]*+(?:\s»(?=\s|$))?(?=\s|$)"
    rf"|(?P<own>[{MARKS}])[{MARKS}{STOPS}]*+[」』”’）»›]*+(?:[\"')\]*_]++(?=\s|$))?"
)
OPENERS = "\"'“”‘«‹([{¿¡*_-–—"  # what may precede the first letter of a sentence
#: A token before a full stop, read backwards: letters and stops (U.S, e.g, Dr), or digits.
TOKEN = re.compile(r"[^\W\d_]++(?:\.[^\W\d_]++)*+|\d++")

#: Abbreviations that nearly always occur within a sentence; those that do not end one before a number (No. 5) or a
#: capitalised word that is no usual beginning; those that end one if a usual first word follows; these first words,
#: which are not the second part of a name; months, before which German has a full stop. For the page, too.
WORDS = {
    "never": (
        "mr mrs ms mx dr prof rev fr hon st ste mt ft gen col lt sgt maj capt cpt cmdr adm gov sen rep pres supt insp "
        "messrs mme mlle mgr vs viz cf e.g i.e eg ie ca approx fig figs eq vol vols ed eds p pp ch art al op mrd mio "
        "bzw z.b d.h u.a z.t vgl nr hr abs bd hrsg sog str tel v"
    ).split(),
    "before_numbers": "no nos sec para art chap pt jan feb mar apr jun jul aug sep sept oct nov dec ext".split(),
    "either": (
        "inc ltd co corp llc plc bros jr sr etc a.m p.m u.s u.k u.n e.u u.s.a d.c b.c a.d ph.d m.d b.a m.a b.sc m.sc "
        "ave blvd rd dept est usw"
    ).split(),
    "starters": (
        "the a an this that these those there here he she it we they you i his her its our their my your in on at by "
        "for from with after before when while if as since because although but and or so then now however what who "
        "where why how which do does did is are was were have has had will would can could should may might must not "
        "no yes all some many most each every both one two three another such to please let thank thanks today "
        "yesterday tomorrow nobody nothing everyone everything only even just also still later"
    ).split(),
    "months": "januar februar märz april mai juni juli august september oktober november dezember".split(),
}
NEVER, BEFORE_NUMBERS, EITHER, STARTERS, MONTHS = map(frozenset, WORDS.values())
#: The marks that close a quotation, by the one that opens it.
CLOSED_BY = {'"': '"', "“": "”", "«": "»", "„": "“”", "»": "«"}
QUOTE = re.compile('["“”«»„]')
LONGEST_JOINED = 300  # most characters of sentences that are joined because they share a quotation
SPACE = re.compile(r"\s{0,64}")
FIRST_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")


def split(text: str) -> list[Span]:
    """Return the span of each sentence of a paragraph, without the white space around it.

    >>> text = "Dr. A. B. Smith paid $3.50. He left at 5 p.m. on Jan. 3."
    >>> [text[first:last] for first, last in split(text)]
    ['Dr. A. B. Smith paid $3.50.', 'He left at 5 p.m. on Jan. 3.']
    """
    small, spans, first = not any(map(str.isupper, text)), list[Span](), 0
    for found in END.finditer(text):
        rest = SPACE.match(text, found.end()).end()  # type: ignore[union-attr]
        if rest < len(text) and _ends(text, found, rest, small, first):
            spans.append((first, found.end()))
            first = rest
    return _trimmed(text, [*spans, (first, len(text))])


def around_quotes(text: str, spans: list[Span]) -> list[Span]:
    """Adjust the spans of sentences so that no quotation loses one of its marks.

    Marks around whole sentences stay outside. Other sentences that share a quotation become one, unless it is long.

    >>> text = '“I came. I saw.” He said, "Yes. I did."'
    >>> [text[first:last] for first, last in around_quotes(text, split(text))]
    ['I came.', 'I saw.', 'He said, "Yes. I did."']
    """
    quotations = _quotations(text) if QUOTE.search(text) else []
    if not quotations:
        return spans
    firsts = [first for first, _ in spans]
    for opening, closing in quotations:
        one, other = (bisect_right(firsts, place) - 1 for place in (opening, closing))
        if one < 0 or closing >= spans[other][1]:
            continue
        if spans[one][0] == opening and spans[other][1] == closing + 1:
            spans[other] = (spans[other][0], closing)
            spans[one] = (opening + 1, spans[one][1])
        elif one != other and spans[other][1] - spans[one][0] <= LONGEST_JOINED:
            whole = (spans[one][0], spans[other][1])
            spans[one : other + 1] = [whole] + [(whole[1], whole[1])] * (other - one)
            firsts[one : other + 1] = [whole[0]] + [whole[1]] * (other - one)
    return _trimmed(text, spans)


def _quotations(text: str) -> list[Span]:
    """Return the positions of the opening and the closing mark of each quotation."""
    found, opened = list[Span](), None
    for place in (mark.start() for mark in QUOTE.finditer(text)):
        if opened is not None and text[place] in CLOSED_BY[text[opened]]:
            found.append((opened, place))
            opened = None
        elif text[place] in CLOSED_BY:
            opened = place
    return found


def _trimmed(text: str, spans: list[Span]) -> list[Span]:
    """Leave out the white space around each span, and spans without anything else."""
    parts = ((first, last, text[first:last]) for first, last in spans)
    return [(last - len(part.lstrip()), first + len(part.rstrip())) for first, last, part in parts if part.strip()]


def _ends(text: str, found: re.Match[str], rest: int, small: bool, first: int) -> bool:
    """Whether a mark ends a sentence that began at ``first``; ``rest`` is where the next word begins.

    A single full stop may belong to the word before it. ``small`` says that the text has no capitals.
    """
    if found["own"]:
        return True
    after = text[rest : rest + 40].lstrip(OPENERS)
    if after[:1].islower() and not small:
        return False  # “Stop!” he said.
    if not after[:1].isalnum() and text[rest] in ".,;:!?…":
        return False
    place = found.start()
    before = TOKEN.match(text[max(first, place - 24) : place][::-1])
    if found[0][0] != "." or found[0].startswith("..") or before is None:
        return True
    token, start = before[0][::-1], place - before.end()
    word, next_word = token.lower(), FIRST_WORD.match(after)
    following = next_word[0].lower() if next_word else ""
    starts, front = following in STARTERS, text[first:start]
    if token.isdigit():  # 1. at the start is the number of an item, and 3. Mai is a date
        return bool(front.strip("([ \t*_-–•")) and following not in MONTHS
    if word in NEVER:
        return False
    if word in BEFORE_NUMBERS:  # "No." alone is an answer
        alone = word == "no" and not front.strip("\"'“‘«( ")
        return alone or not (after[:1].isdigit() or (word != "no" and not starts))
    if word in EITHER:
        return starts and not small
    # An initial, J. R. R. Tolkien, unless it is between a small word and a usual beginning: vitamin C. The
    is_initial = len(word) == 1 and (token.isupper() or small)
    return not is_initial or (starts and len(after) > 1 and after[1] != ".")
