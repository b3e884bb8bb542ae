"""Finds the language of a text by the short words that nearly every sentence has.

This is enough to notice that a text is not in the language that a model reads. A text with too few of these words stays
undecided.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

LIST = Path(__file__).with_name("languages.txt")
#: The commonest short words of each language.
WORDS = {
    language: frozenset(words.split())
    for language, words in (line.split("\t") for line in LIST.read_text(encoding="utf-8").splitlines())
}
LEAST = 2  # least words of a language
SHARE = 0.25  # of all words
CLEAR = 0.3  # bits per character between the language that surprises a model least and the next one
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")


def other_than(own: str, text: str) -> str | None:
    """Return the language of a text that is not in the language ``own``; None if it may be.

    Words of both languages do not count.
    """
    words = [word.replace("’", "'") for word in _WORD.findall(text.lower())]
    found = {language: [word for word in words if word in some] for language, some in WORDS.items()}
    best = max(found, key=lambda language: len(found[language]))
    against = sum(word not in WORDS[own] for word in found[best])
    speaks = sum(word not in WORDS[best] for word in found[own])
    clear = against >= LEAST and against > 2 * speaks and len(found[best]) >= SHARE * len(words)
    return best if clear and best != own else None


def read_by(surprise: Callable[[str], float]) -> str | None:
    """Return the language whose words surprise a model least; None if that is not clear."""
    found = sorted((surprise(" ".join(sorted(words))), language) for language, words in WORDS.items())
    return found[0][1] if found[1][0] - found[0][0] > CLEAR else None
