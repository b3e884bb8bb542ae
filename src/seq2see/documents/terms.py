"""A glossary: terms that must be translated in one way, or must not be translated."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from seq2see.errors import UserError, shown
from seq2see.files import given_text
from seq2see.tokenizers.tokenizer import fold

LARGEST = 2**24  # bytes of a file
MOST = 100_000  # terms


@dataclass(frozen=True)
class Term:
    """A term in a sentence: its position, and its translation; None if it must stay."""

    first: int
    last: int
    target: str | None


class Glossary:
    """Terms and their translations; a term without one stays as it is.

    >>> glossary = Glossary({"hard drive": "disque dur", "Seq2See": None})
    >>> [(term.first, term.target) for term in glossary.found("Seq2See is on the Hard Drive.")]
    [(0, None), (18, 'disque dur')]
    """

    def __init__(self, terms: Mapping[str, str | None] | Iterable[tuple[str, str | None]]) -> None:
        self.terms: dict[str, str | None] = {}
        for number, (term, target) in enumerate(terms.items() if isinstance(terms, Mapping) else terms, 1):
            self._add(term, target, f"Term {number:,}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Glossary) and other.terms == self.terms

    def __hash__(self) -> int:
        return hash(tuple(self.terms.items()))

    def _add(self, term: str, target: str | None, where: str) -> None:
        if not isinstance(term, str) or not (target is None or isinstance(target, str)):
            raise UserError(f"{where} of `glossary` is {term!r:.40} → {target!r:.40}: two texts were expected.")
        term, target = fold(term), fold(target or "") or None
        if not any(map(str.isalnum, term)):
            raise UserError(f"{where} of `glossary` is {shown(term)}: a term with a letter or a digit was expected.")
        if target == term:
            target = None
        key = term.casefold()
        if key in self.terms and self.terms[key] != target:
            said = [shown(one) if one else "itself" for one in (self.terms[key], target)]
            raise UserError(
                f"{where} of `glossary` contradicts an earlier one: {shown(term)} must become {said[0]} and {said[1]}."
            )
        self.terms[key] = target
        if len(self.terms) > MOST:
            raise UserError(f"The glossary has more than {MOST:,} terms.")

    @classmethod
    def read(cls, path: Path) -> Glossary:
        """Read a file with a term in each line, a tab, and its translation; without one the term stays as it is."""
        text = given_text(path, "a glossary (in each line a term, a tab and its translation)", LARGEST)
        made = cls({})
        for number, line in enumerate(text.splitlines(), 1):
            columns = line.split("\t")
            if not line.strip() or line.startswith("#"):
                continue
            if len(columns) > 2:
                raise UserError(
                    f"Line {number:,} of `glossary` has {len(columns)} columns: a term and its translation were expected."
                )
            made._add(columns[0], columns[1] if len(columns) == 2 else None, f"Line {number:,}")
        if not made.terms:
            raise UserError(
                f"{str(path)!r} has no terms: a term, a tab and its translation were expected in each line."
            )
        return made

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        longest_first = sorted(self.terms, key=len, reverse=True)
        return re.compile(
            "(?<!\\w)(?:" + "|".join(re.escape(term).replace("\\ ", "\\s+") for term in longest_first) + ")(?!\\w)",
            re.IGNORECASE,
        )

    def found(self, sentence: str) -> list[Term]:
        """Return the terms of a sentence in order; the longest match wins."""
        found = []
        for match in self._pattern.finditer(sentence) if self.terms else ():
            key = fold(match[0]).casefold()
            if key in self.terms:  # case folding may turn one letter into two
                found.append(Term(match.start(), match.end(), self.terms[key]))
        return found
