"""Which engine is faster on this machine: tried on the first inputs of a large request, and remembered.

Both engines give the same answers, so that nothing that is tried is lost.
"""

from __future__ import annotations

import hashlib
import json
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from seq2see.config import ModelConfig
from seq2see.decoding.engines import Engine
from seq2see.errors import FolderError
from seq2see.files import cache_folder, write_atomically
from seq2see.machine import cores, free_cores

WORTH = 1536  # inputs from which torch can be the faster one, and a trial pays
SHARE = 32  # a turn takes one part in so many of the inputs
LONGEST, SHORTEST = 512, 32  # inputs of a turn
ROUNDS = 2  # turns of each engine; the best counts, since the first ones warm up

Turn = tuple[Engine, list[int]]


def fastest(config: ModelConfig) -> str | None:
    """Return the engine that was found to be the faster one for models of this shape; None if it was never tried."""
    with suppress(OSError):
        name = _note(config).read_text(encoding="ascii")
        return name if name in ("torch", "ctranslate2") else None
    return None


def turns(
    engines: dict[str, Callable[[], Engine]],
    rows: Sequence[int],
    lengths: Mapping[int, int],
    config: ModelConfig,
) -> Iterator[Turn]:
    """Give the first rows to each engine in turn and note which one took less time for a token; give no others.

    The caller answers the rows before it asks for the next turn: that is the time that is taken.
    """
    # Beside others' work the time on the clock says how much they did, and that of this process what a row costs.
    clock = time.perf_counter if free_cores() == cores() else time.process_time
    size = _turn(len(rows))
    best: dict[str, float] = {}
    first = 0
    for _ in range(ROUNDS):
        for name, make in engines.items():
            part, engine = list(rows[first : first + size]), make()
            first += size
            started = clock()
            yield engine, part
            took = (clock() - started) / sum(lengths[row] for row in part)
            best[name] = min(took, best.get(name, took))
    with suppress(OSError, FolderError):  # a folder that cannot be written costs time, nothing else
        write_atomically(_note(config), min(best, key=lambda name: best[name]).encode())


def taken(engines: int, rows: int) -> int:
    """Return how many rows the trial of so many engines takes."""
    return ROUNDS * engines * _turn(rows)


def _turn(rows: int) -> int:
    return max(SHORTEST, min(LONGEST, rows // SHARE))


def _note(config: ModelConfig) -> Path:
    """Return the file that remembers the outcome, for this machine, these versions and this shape."""
    shape = {name: value for name, value in asdict(config).items() if name != "dropout"}
    machine = [_processor(), cores(), *map(_version, ("seq2see", "torch", "ctranslate2"))]
    key = hashlib.sha256(json.dumps([shape, machine], sort_keys=True).encode()).hexdigest()
    return cache_folder() / "speeds" / key[:32]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _processor() -> str:
    """Name the processor, and all that tells it from others of its name."""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        told = ("model name", "CPU part", "CPU implementer", "flags", "Features")
        return "\n".join(sorted({line for line in lines if line.startswith(told)}))
    return platform.processor() or platform.machine()
