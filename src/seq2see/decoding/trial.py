"""Measures from which number of inputs torch is the faster engine on this machine, on a large request, and stores it.

CTranslate2 has a cost per input. Torch has a cost per step and a lower one per input, so it is faster if many
inputs share a step. Both give the same answers, so no work of the trial is lost.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from pathlib import Path

from seq2see.config import ModelConfig
from seq2see.decoding.engines import Engine
from seq2see.errors import FolderError
from seq2see.files import cache_folder, write_atomically
from seq2see.machine import cores, free_cores, processor

FEW = 256  # with fewer inputs the choice is not worth a look-up
WORTH = 1536  # inputs from which a trial pays
#: Inputs of each engine's turns. The first turn is a warm-up and does not count.
SIZES = (8, 32, 128, 512, 2048)
LONG = 0.5  # no larger turn follows one of more seconds


def torch_from(config: ModelConfig) -> float | None:
    """Return the number of inputs from which torch is faster for models of this shape; None if not measured."""
    with suppress(OSError, ValueError):
        return float(_note(config).read_text(encoding="ascii"))
    return None


def turns(
    engines: dict[str, Callable[[], Engine]],
    rows: Sequence[int],
    lengths: Mapping[int, int],
    config: ModelConfig,
) -> Iterator[tuple[Engine, list[int]]]:
    """Give some of the rows to CTranslate2 and torch in turn, and store from which number of inputs torch is faster.

    The caller answers the rows before it requests the next turn: that time is measured.
    """
    # On a busy machine, wall time measures the other processes; CPU time measures the cost of a row.
    clock = time.perf_counter if free_cores() == cores() else time.process_time
    drawn = iter(random.Random(0).sample(rows, min(len(rows), len(engines) * sum(SIZES))))
    left = len(rows)
    took: dict[str, list[tuple[int, float]]] = {name: [] for name in engines}
    for size in SIZES:
        left -= size * len(engines)
        if left < 0 or any(seconds > LONG for turn in took.values() for _, seconds in turn[1:]):
            break
        for name, make in engines.items():
            part, engine = sorted(islice(drawn, size), key=lengths.__getitem__), make()
            started = clock()
            yield engine, part
            took[name].append((size, clock() - started))
    with suppress(OSError, FolderError):  # without a writable cache it only takes longer
        found = _crossing(_line(took["ctranslate2"]), _line(took["torch"]))
        write_atomically(_note(config), str(found).encode("ascii"))


def _line(turns: list[tuple[int, float]]) -> tuple[float, float]:
    """Return the seconds per request and per input, from the two largest turns that count."""
    *_, (few, sooner), (many, later) = (0, 0.0), *turns[1:]
    for_each = max(0.0, later - sooner) / (many - few)
    return max(0.0, later - for_each * many), for_each


def _crossing(first: tuple[float, float], second: tuple[float, float]) -> float:
    """Return the number of inputs from which the second line is lower; infinity if it never is."""
    return max(0.0, (second[0] - first[0]) / (first[1] - second[1])) if second[1] < first[1] else math.inf


def _note(config: ModelConfig) -> Path:
    """Return the file of the result for this machine, these versions and this shape."""
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
    """Return the processor's name with its distinguishing features."""
    told = processor()
    names = ("model name", "CPU part", "CPU implementer", "flags", "Features")
    return (
        "\n".join(told[name] for name in names if name in told) or platform.processor() or platform.machine()
    )
