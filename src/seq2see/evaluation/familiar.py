"""Whether a text resembles the training texts of a model: by its length, its characters and their order.

The order is judged by counts of trigrams and bigrams of characters, kept as one byte each in a hash table.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, isfinite, log2
from typing import Any

from seq2see.errors import FolderError

LEARNED_FROM = 100_000  # texts
LARGEST = 2**16  # entries of the table
STEP = 8  # a byte holds a logarithm of a count in steps of 1/8
NEW = 5 * STEP  # for what was never seen
LETTERS = 60_000  # characters that are listed
RARE = 0.01  # share of held-out texts with a new character, from which new characters are ignored
USUAL = 0.99  # share of held-out texts that count as familiar


@dataclass(frozen=True)
class Familiar:
    """Statistics of the training sources."""

    longest: int  # in tokens
    letters: frozenset[str]  # empty if new ones are usual
    table: bytes
    most: float  # bits per character above which a text is unfamiliar

    @classmethod
    def learn(cls, texts: Sequence[str], longest: int, held_out: Sequence[str]) -> Familiar:
        """Learn from texts; ``held_out`` shows how surprising a text of the same kind can be."""
        chosen = texts[:: max(1, len(texts) // LEARNED_FROM)]
        counts: Counter[bytes] = Counter()
        for text in chosen:
            counts.update(_threes(text))
            counts.update(_twos(text))
        size = 256
        while size < min(LARGEST, 4 * len(counts)):
            size *= 2
        table = [0] * size
        for three, count in counts.items():
            table[zlib.crc32(three) % size] += count
        packed = bytes(min(255, round(STEP * log2(count + 1))) for count in table)
        letters = frozenset(letter for text in texts for letter in text)
        new = sum(not letters.issuperset(text) for text in held_out)
        if new > RARE * len(held_out) or len(letters) > LETTERS:
            letters = frozenset()
        learned = cls(longest, letters, packed, 0.0)
        found = sorted(map(learned.surprise, held_out or chosen))
        return cls(longest, letters, packed, found[ceil(USUAL * len(found)) - 1] if found else 0.0)

    def surprise(self, text: str) -> float:
        """Return the mean of −log2 P(character | the two before it), in bits."""
        size, table = len(self.table), self.table
        total = 0
        threes, twos = _threes(text), _twos(text)
        for three, two in zip(threes, twos, strict=True):
            before, here = table[zlib.crc32(two) % size], table[zlib.crc32(three) % size]
            total += max(0, before - here) if before else NEW
            total += 0 if here else NEW
        return total / STEP / len(threes)

    def why_not(self, text: str, length: int, surprise: bool = True) -> str:
        """Return a sentence if a text differs from the training texts; None if it resembles them."""
        if length > self.longest:
            return f"The input has {length:,} tokens, but the longest of the training has {self.longest:,}."
        if self.letters and not self.letters.issuperset(text):
            new = next(letter for letter in text if letter not in self.letters)
            return f"The input has {new!r} (U+{ord(new):04X}), which no input of the training has."
        if surprise and self.surprise(text) > self.most:
            return "The input differs from those of the training: its sequences of characters are unusual."
        return ""

    def to_json(self) -> dict[str, Any]:
        """Return a form that JSON can hold."""
        return {
            "longest": self.longest,
            "letters": "".join(sorted(self.letters)),
            "table": base64.b64encode(zlib.compress(self.table, 9)).decode(),
            "most": self.most,
        }

    @classmethod
    def of_json(cls, form: Any) -> Familiar:
        """Read what ``to_json`` made; anything else is an error."""
        try:
            longest, letters, most = form["longest"], form["letters"], float(form["most"])
            unpacked = zlib.decompressobj()
            table = unpacked.decompress(base64.b64decode(form["table"], validate=True), LARGEST)
            good = type(longest) is int and isinstance(letters, str) and isfinite(most) and len(table) > 0
        except (TypeError, KeyError, ValueError, OverflowError, zlib.error, binascii.Error):
            good = False
        if not good:
            raise FolderError("confidence.json does not describe the inputs of the training correctly.")
        return cls(longest, frozenset(letters), table, most)


def _threes(text: str) -> list[bytes]:
    """Return each character with the two before it; a text begins after two spaces and ends with one."""
    whole = f"  {text} "
    return [whole[place : place + 3].encode() for place in range(len(whole) - 2)]


def _twos(text: str) -> list[bytes]:
    """Return the two characters before each, marked so that they differ from every trigram."""
    whole = f"  {text}"
    return [b"\0" + whole[place : place + 2].encode() for place in range(len(whole) - 1)]
