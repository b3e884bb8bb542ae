"""Texts that are a row of symbols, such as phones or tags, and texts that end with features: `walk <V> <PST>`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from statistics import median

SEPARATORS = " |;,-_/+·."  # tried in this order
MOST_SYMBOLS = 512  # different ones; a language has more words than that
UNSEEN = 0.001  # share of symbols that occur once, which estimates how many more there are outside the data
LOOKED_AT = 20_000  # texts that tell what a side is made of
FEATURE_PATTERN = r" <[^<>\s]+>"
FEATURE = re.compile(FEATURE_PATTERN)
PARTS = re.compile(rf"{FEATURE_PATTERN}|[\s\S]")
NUMBER = re.compile(r"[0-9]{2,}")


def cut(text: str, separator: str) -> list[str]:
    """Cut a text into its symbols; two separators in a row have none between."""
    return [symbol for symbol in text.split(separator) if symbol]


def separator_of(texts: Sequence[str]) -> str | None:
    """Return what stands between the symbols of these texts, if they are made of symbols.

    They are, if a few hundred different ones make up all texts, hardly any occurs only once, and none is a number, since
    there are always more numbers.
    """
    looked_at = texts[:: max(1, len(texts) // LOOKED_AT)]
    for separator in SEPARATORS:
        least = 2 if separator == " " else 3
        if median(text.count(separator) + 1 for text in looked_at) >= least and _are_symbols(
            looked_at, separator
        ):
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
    return once <= UNSEEN * counts.total() and not any(map(NUMBER.fullmatch, counts))


def have_features(texts: Sequence[str]) -> bool:
    """Whether nearly all of these texts end with a feature, a name in angle brackets after a space."""
    looked_at = texts[:: max(1, len(texts) // LOOKED_AT)]
    ending = sum(text.endswith(">") and FEATURE.search(text) is not None for text in looked_at)
    return bool(looked_at) and ending >= 0.99 * len(looked_at)


def features_of(cell: str) -> str:
    """Write a cell of features, ``V;PST;3``, as symbols in angle brackets that follow a text: `` <V> <PST> <3>``."""
    names = re.split(r"[;,|\s]+", cell.strip())
    return "".join(f" <{name.replace('<', '‹').replace('>', '›')}>" for name in names if name)
