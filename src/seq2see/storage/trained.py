"""What a model was trained on, in some kilobytes: digests of its sources, and the digest of its teacher.

So an evaluation can tell that it scores pairs of the training, and a resumed training that its teacher is another one.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import numpy as np

from seq2see.errors import FolderError
from seq2see.files import parsed, read_text
from seq2see.storage.folder import TRAINED

LARGEST = 2**20  # bytes
KEPT = 8192  # sources whose digest is kept
ROWS_AT_ONCE = 50_000


@dataclass(frozen=True)
class Trained:
    """Digests of the sources of a training, as ids; of many sources, those of one in ``every``."""

    sources: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint32))
    every: int = 1
    teacher: str = ""  # empty if there was none

    @classmethod
    def of(cls, values: np.ndarray, offsets: np.ndarray, teacher: str = "") -> Trained:
        """Keep the digests of rows of ids, which stand end to end."""
        every = max(1, -(-(len(offsets) - 1) // KEPT))
        return cls(np.unique(np.concatenate(_digests(values, offsets, every))), every, teacher)

    def seen(self, rows: Sequence[Sequence[int]]) -> int:
        """Return how many rows of ids are among the sources; an estimate if only one in ``every`` is kept."""
        offsets = np.cumsum([0, *map(len, rows)])
        values = np.fromiter(chain.from_iterable(rows), np.int64, int(offsets[-1]))
        found = np.concatenate(_digests(values, offsets, self.every))
        return min(len(rows), self.every * int(np.isin(found, self.sources).sum()))

    def to_json(self) -> str:
        """Return the text of the file."""
        packed = base64.b64encode(self.sources.astype("<u4").tobytes()).decode("ascii")
        return json.dumps({"teacher": self.teacher, "every": self.every, "sources": packed})

    @classmethod
    def read(cls, path: Path) -> Trained | None:
        """Read the file of a model folder; None if there is none."""
        if not (path / TRAINED).exists():
            return None
        form = parsed(read_text(path / TRAINED, LARGEST), TRAINED)
        try:
            sources = np.frombuffer(base64.b64decode(form["sources"], validate=True), "<u4")
            every, teacher = form["every"], form["teacher"]
            if type(every) is int and 0 < every < 2**32 and isinstance(teacher, str):
                return cls(sources.astype(np.uint32), every, teacher)
        except (TypeError, KeyError, ValueError):
            pass
        raise FolderError(f"{TRAINED} of {path.name} cannot be read: remove it. Only warnings need it.")


def _digests(values: np.ndarray, offsets: np.ndarray, every: int) -> list[np.ndarray]:
    """Return a digest of each row, or of one in ``every``: those whose digest is divisible by it."""
    found = [np.zeros(0, np.uint32)]
    for first in range(0, len(offsets) - 1, ROWS_AT_ONCE):
        ends = np.asarray(offsets[first : first + ROWS_AT_ONCE + 1]).astype(np.int64)
        begun, ids = ends - ends[0], np.asarray(values[ends[0] : ends[-1]]).astype(np.uint64)
        places = np.arange(len(ids)) - np.repeat(begun[:-1], np.diff(begun))
        parts = _mixed(ids + np.uint64(1) + (places.astype(np.uint64) << np.uint64(32)))
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(parts, dtype=np.uint64)])
        rows = _mixed(sums[begun[1:]] - sums[begun[:-1]])
        kept = rows[rows % np.uint64(every) == 0]
        found.append((kept >> np.uint64(32)).astype(np.uint32))
    return found


def _mixed(numbers: np.ndarray) -> np.ndarray:
    """Spread numbers evenly over 64 bits (splitmix64)."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        numbers = (numbers ^ (numbers >> np.uint64(shift))) * np.uint64(factor)
    mixed: np.ndarray = numbers ^ (numbers >> np.uint64(31))
    return mixed
