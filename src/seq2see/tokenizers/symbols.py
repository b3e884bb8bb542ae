"""Texts of symbols (rows of phones or tags, words with features, `walk <V> <PST>`), and the forms of Unicode."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

SEPARATORS = " |;,-_/+·."  # tried in this order
MOST_SYMBOLS = 512  # most different symbols; a language has more words
ONCE = 0.3  # largest share of symbols that occur once; of the words of a text, about half do
LOOKED_AT = 20_000  # texts from which the kind of a side is found
FEATURE_PATTERN = r" <[^<>\s]+>"
FEATURE = re.compile(FEATURE_PATTERN)
PARTS = re.compile(rf"{FEATURE_PATTERN}|[\s\S]")
NAME_OR_BRACKET = re.compile(r"[^;,|\s()]+|[()]")  # of a cell of features
NUMBER = re.compile(r"[0-9]{2,}")
MARKS = 256  # consecutive combining marks that are composed together


def decomposed(text: str) -> str:
    """Return a text in Unicode NFD: letters, marks and jamo are separate."""
    return text if text.isascii() else unicodedata.normalize("NFD", text)


def composed(text: str) -> str:
    """Return a text in Unicode NFC.

    Composing a run of combining marks takes quadratic time, since they are sorted. No script has runs of more than a
    few, so a longer run is composed in parts.
    """
    if not any(map(unicodedata.combining, set(text))):
        return unicodedata.normalize("NFC", text)
    parts, start, run = [], 0, 0
    for place, character in enumerate(text):
        run = run + 1 if unicodedata.combining(character) else 0
        if run > MARKS:
            parts.append(unicodedata.normalize("NFC", text[start:place]))
            start, run = place, 0
    return "".join([*parts, unicodedata.normalize("NFC", text[start:])])


def cut(text: str, separator: str) -> list[str]:
    """Split a text into its symbols; there is none between two separators."""
    return [symbol for symbol in text.split(separator) if symbol]


def separator_of(texts: Sequence[str]) -> str | None:
    """Return the separator of the symbols of these texts, if they consist of symbols.

    They do if there are at most a few hundred different ones, most occur more than once, and none is a number, since
    there are always more numbers.
    """
    looked_at = texts[:: max(1, len(texts) // LOOKED_AT)]
    for separator in SEPARATORS:
        least = 2 if separator == " " else 3
        if median(text.count(separator) + 1 for text in looked_at) >= least and _are_symbols(looked_at, separator):
            return separator
    return None


def _are_symbols(texts: Sequence[str], separator: str) -> bool:
    counts: Counter[str] = Counter()
    for text in texts:
        symbols = cut(text, separator)
        if separator.join(symbols) != text:
            return False
        counts.update(symbols)
        if len(counts) > MOST_SYMBOLS:
            return False
    once = sum(count == 1 for count in counts.values())
    return once <= ONCE * len(counts) and not any(map(NUMBER.fullmatch, counts))


def have_features(texts: Sequence[str]) -> bool:
    """Whether nearly all of these texts end with a feature, a name in angle brackets after a space."""
    looked_at = texts[:: max(1, len(texts) // LOOKED_AT)]
    ending = sum(text.endswith(">") and FEATURE.search(text) is not None for text in looked_at)
    return bool(looked_at) and ending >= 0.99 * len(looked_at)


def features_of(cell: str) -> str:
    """Write a cell of features, ``V;PST;3``, as symbols in angle brackets that follow a text: `` <V> <PST> <3>``.

    Nested features are split too, and their brackets are symbols: ``PSS(2,PL)`` becomes `` <PSS> <(> <2> <PL> <)>``. So
    every name is one symbol, wherever it stands.
    """
    names = NAME_OR_BRACKET.findall(cell)
    return "".join(f" <{name.replace('<', '‹').replace('>', '›')}>" for name in names)


def with_features(cells: Sequence[str]) -> str:
    """Write a text and the cells of features after it as one text: ``walk`` and ``V;PST`` become `walk <V> <PST>`."""
    return cells[0] + "".join(map(features_of, cells[1:]))


def joined(given: Any) -> Any:
    """Return a text and its features as one text, from a tuple, a list or the values of a dict.

    Anything else is returned unchanged, for the caller to check.
    """
    cells = list(given.values()) if isinstance(given, Mapping) else given
    several = isinstance(cells, tuple | list) and len(cells) > 1
    return with_features(cells) if several and all(isinstance(cell, str) for cell in cells) else given
