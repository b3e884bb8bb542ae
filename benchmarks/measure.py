"""How a benchmark is run and told: turns, medians, ratios, and what it was run on."""

from __future__ import annotations

import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from seq2see.machine import cores, instructions, processor

PACKAGES = ("seq2see", "torch", "ctranslate2", "transformers", "tokenizers")


@dataclass
class Line:
    """One measured line: seconds of each contestant, ours first."""

    name: str
    work: str
    unit: str
    amount: float  # units of work in one round
    seconds: dict[str, list[float]]
    target: str
    left_out: list[str] = field(default_factory=list)
    agree: str = ""
    limit: float | None = None  # the fewest seconds that the arithmetic allows here
    notes: list[str] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)  # figures beside the seconds, for machines

    def median(self, who: str) -> float:
        """Return the median of a contestant's rounds, in seconds."""
        return statistics.median(self.seconds[who])

    def rows(self) -> list[dict[str, Any]]:
        """Return a row a contestant: its speed, its spread, and how many times faster ours is."""
        if not self.seconds:  # what it needs is not installed
            return []
        first = next(iter(self.seconds))
        ours, best = self.median(first), min(self.seconds[first])
        return [
            {
                "who": who,
                "seconds": self.median(who),
                "spread": (max(rounds) - min(rounds)) / self.median(who),
                "per_second": self.amount / self.median(who),
                "ours_is": self.median(who) / ours,
                "ours_is_at_best": min(rounds) / best,  # the best round of each: a busy machine disturbs it least
                "of_limit": None if self.limit is None else self.limit / self.median(who),
            }
            for who, rounds in self.seconds.items()
        ]

    def record(self) -> dict[str, Any]:
        """Return everything as JSON can hold it."""
        return {**asdict(self), "rows": self.rows(), "machine": machine()}


def take_turns(
    contestants: Mapping[str, Callable[[], object]], rounds: int, warm: bool = False, telling: bool = False
) -> dict[str, list[float]]:
    """Run every contestant once to warm up, unless they are ``warm``, then all in turn, round by round.

    Turns that take minutes are told on standard error as they end.
    """
    for run in contestants.values() if not warm else ():
        run()
    seconds: dict[str, list[float]] = {who: [] for who in contestants}
    for _ in range(rounds):
        for who, run in contestants.items():
            started = time.perf_counter()
            run()
            seconds[who].append(time.perf_counter() - started)
            if telling:
                print(f"  {who}: {seconds[who][-1]:.1f} s", file=sys.stderr, flush=True)
    return seconds


def machine() -> dict[str, Any]:
    """Describe what this was run on."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {
        "cpu": _cpu(),
        "cores": cores(),
        "load": load,
        "python": platform.python_version(),
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu() -> str:
    """Name the processor and the instructions that matter here."""
    told = processor()
    if not told:
        return platform.processor() or platform.machine()
    known = instructions()
    flags = [flag for flag in ("amx_bf16", "avx512_bf16", "avx512f", "avx2", "asimddp", "i8mm") if flag in known]
    return f"{told.get('model name') or platform.machine()} ({', '.join(flags) or 'no vector flags known'})"
