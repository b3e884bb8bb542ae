"""What a kind of proof has tried, and the faults that it has found."""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from pathlib import Path

FAULTS = ("lost", "wrong", "leaked", "hung", "crashed")
KEPT = 40  # faults that are told in words; the others are counted
SILENCE = 15  # seconds between two lines of progress


class Tally:
    """Counts of one kind of proof."""

    def __init__(self, kind: str, scale: float = 1.0, seed: int = 1) -> None:
        self.kind, self.scale = kind, scale
        self.draw = random.Random(f"{kind} {seed}")
        self.tried: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.told: list[str] = []
        self.remarks: list[str] = []
        self.began = self.spoke = time.monotonic()

    def share(self, full: int, least: int = 1) -> int:
        """Return how many of something are tried at this scale."""
        return max(least, round(full * self.scale))

    def add(self, what: str, outcome: str, count: int = 1) -> None:
        """Note something that went as promised."""
        self.tried[what] += count
        self.outcomes[outcome] += count
        if time.monotonic() - self.spoke > SILENCE:
            self.spoke = time.monotonic()
            print(f"soak: {self}", file=sys.stderr, flush=True)

    def fault(self, sort: str, message: str) -> None:
        """Note something that did not."""
        assert sort in FAULTS
        self.faults[sort] += 1
        if len(self.told) < KEPT:
            self.told.append(f"{self.kind}, {sort}: {' '.join(message.split())[:600]}")
            print(f"soak: {self.told[-1]}", file=sys.stderr, flush=True)

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return time.monotonic() - self.began

    def __str__(self) -> str:
        return (
            f"{self.kind}, {self.seconds:.0f} s: {_listed(self.tried)}; {_listed(self.outcomes)}; "
            f"{sum(self.faults.values())} faults"
        )

    def write(self, path: Path) -> None:
        """Store it for the process that prints the table."""
        names = ("kind", "tried", "outcomes", "faults", "told", "remarks", "seconds")
        path.write_text(json.dumps({name: getattr(self, name) for name in names}), encoding="utf-8")


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())


def table(records: list[dict]) -> str:
    """Draw the table of all kinds in Markdown."""
    rows = [
        "| kind | tried | outcome | " + " | ".join(FAULTS) + " | minutes |",
        "|---|---|---|" + "---|" * (len(FAULTS) + 1),
    ]
    for one in records:
        faults = " | ".join(str(one["faults"].get(sort, 0)) for sort in FAULTS)
        tried, outcomes = (_listed(Counter(one[name])) for name in ("tried", "outcomes"))
        rows.append(f"| {one['kind']} | {tried} | {outcomes} | {faults} | {one['seconds'] / 60:.1f} |")
    return "\n".join(rows)
