"""Splits a text into sentences, by rules on a few words around each mark.

No library was suitable: pySBD takes quadratic time and is not maintained, others need a model. These rules read a text
once. They are made for languages of the Latin, Greek and Cyrillic scripts; the full stops of Chinese and Japanese end
sentences too.
"""

from __future__ import annotations

import re
from bisect import bisect_right

Span = tuple[int, int]  # first character, one past the last

#: What may end a sentence: marks, then closing quotes and brackets; then white space or the end of the text.
END = re.compile(
    r"(?<![.!?…‼⁇⁈⁉])[.!?…‼⁇⁈⁉]++[\"'“”’»›)\]*_]*+(?:\s»(?=\s|$))?(?=\s|$)|[。！？]++[」』”’）]*+"
)
OPENERS = "\"'“”‘«‹([{¿¡*_-–—"  # what may precede the first letter of a sentence
#: A token before a full stop, read backwards: letters and stops (U.S, e.g, Dr), or digits.
TOKEN = re.compile(r"[^\W\d_]++(?:\.[^\W\d_]++)*+|\d++")

#: Abbreviations that nearly always occur within a sentence, in lower case.
NEVER = frozenset(
    "mr mrs ms mx dr prof rev fr hon st ste mt ft gen col lt sgt maj capt cpt cmdr adm gov sen rep pres supt insp "
    "messrs mme mlle mgr vs viz cf e.g i.e eg ie ca approx fig figs eq vol vols ed eds p pp ch art al op "
    "mrd mio bzw z.b d.h u.a z.t vgl nr hr abs bd hrsg sog str tel v".split()
)
#: These do not end a sentence before a number (No. 5, Jan. 3) or a capitalised word that is not a usual beginning.
BEFORE_NUMBERS = frozenset(
    "no nos sec para art chap pt jan feb mar apr jun jul aug sep sept oct nov dec ext".split()
)
#: These may end a sentence: they do if a usual first word follows.
EITHER = frozenset(
    "inc ltd co corp llc plc bros jr sr etc a.m p.m u.s u.k u.n e.u u.s.a d.c b.c a.d ph.d m.d b.a m.a b.sc m.sc "
    "ave blvd rd dept est usw".split()
)
#: Words that often begin a sentence and are not the second part of a name.
STARTERS = frozenset(
    "the a an this that these those there here he she it we they you i his her its our their my your in on at by "
    "for from with after before when while if as since because although but and or so then now however what who "
    "where why how which do does did is are was were have has had will would can could should may might must not no "
    "yes all some many most each every both one two three another such to please let thank thanks today yesterday "
    "tomorrow nobody nothing everyone everything only even just also still later".split()
)
MONTHS = frozenset(
    "januar februar märz april mai juni juli august september oktober november dezember".split()
)
#: The marks that close a quotation, by the one that opens it.
CLOSED_BY = {'"': '"', "“": "”", "«": "»", "„": "“”", "»": "«"}
QUOTE = re.compile('["“”«»„]')
LONGEST_JOINED = 300  # most characters of sentences that are joined because they share a quotation
FIRST_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")


#: The lists of words, for the page, which splits sentences itself.
WORDS = {
    "never": sorted(NEVER),
    "before_numbers": sorted(BEFORE_NUMBERS),
    "either": sorted(EITHER),
    "starters": sorted(STARTERS),
    "months": sorted(MONTHS),
}


def split(text: str) -> list[Span]:
    """Return the span of each sentence of a paragraph, without the white space around it.

    >>> text = "Dr. A. B. Smith paid $3.50. He left at 5 p.m. on Jan. 3."
    >>> [text[first:last] for first, last in split(text)]
    ['Dr. A. B. Smith paid $3.50.', 'He left at 5 p.m. on Jan. 3.']
    """
    without_capitals = not any(map(str.isupper, text))
    spans, first = list[Span](), 0
    for found in END.finditer(text):
        if found.end() == len(text):
            break
        rest = (
            found.end()
            + len(text[found.end() : found.end() + 64])
            - len(text[found.end() : found.end() + 64].lstrip())
        )
        if rest < len(text) and _ends(text, found, rest, without_capitals, first):
            spans.append((first, found.end()))
            first = rest
    spans.append((first, len(text)))
    return [span for one in spans if (span := _trimmed(text, one))]


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
    return [span for one in spans if (span := _trimmed(text, one))]


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


def _trimmed(text: str, span: Span) -> Span | None:
    part = text[span[0] : span[1]]
    if not part.strip():
        return None
    return span[0] + len(part) - len(part.lstrip()), span[1] - len(part) + len(part.rstrip())


def _ends(text: str, found: re.Match[str], rest: int, without_capitals: bool, first: int) -> bool:
    """Whether a mark ends a sentence; ``rest`` is where the next word begins."""
    if found[0][0] in "。！？":
        return True
    after = text[rest : rest + 40].lstrip(OPENERS)
    if after[:1].islower() and not without_capitals:
        return False  # “Stop!” he said.
    if not after[:1].isalnum() and text[rest] in ".,;:!?…":
        return False
    if not found[0].startswith(".") or found[0].startswith(".."):
        return True
    return _stop_ends(text, found.start(), after, without_capitals, first)


def _stop_ends(text: str, place: int, after: str, without_capitals: bool, first: int) -> bool:
    """Whether a single full stop ends a sentence, or belongs to the word before it."""
    found = TOKEN.match(text[max(first, place - 24) : place][::-1])
    if found is None:
        return True
    token, start = found[0][::-1], place - found.end()
    word = token.lower()
    next_word = FIRST_WORD.match(after)
    starts = next_word is not None and next_word[0].lower() in STARTERS
    if token.isdigit():
        # 1. at the start is the number of an item, and 3. Mai is a date.
        in_front = not text[first:start].strip("([ \t*_-–•")
        return not in_front and not (next_word is not None and next_word[0].lower() in MONTHS)
    if word in NEVER:
        return False
    if word in BEFORE_NUMBERS:
        # "No." alone is an answer.
        alone = not text[first:start].strip("\"'“‘«( ")
        return (alone and word == "no") or not (after[:1].isdigit() or (word != "no" and not starts))
    if word in EITHER:
        return starts and not without_capitals
    if len(word) == 1 and (token.isupper() or without_capitals):
        # An initial, J. R. R. Tolkien, unless it is between a small word and a usual beginning: vitamin C. The
        return starts and len(after) > 1 and after[1:2] != "."
    return True
