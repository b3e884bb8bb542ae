"""Every engine and ``auto`` over many numbers of inputs and three models: is ``auto`` ever slower than the best one?"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from benchmarks.cpu import LETTERS, SOURCE, random_model
from benchmarks.documents import different_sentences
from benchmarks.measure import machine, take_turns
from seq2see.decoding.engines import EXACT
from seq2see.errors import UserError
from seq2see.seq2seq import Seq2Seq, load
from seq2see.tasks.dates import all_ordinals, pairs_of

COUNTS = (1, 10, 100, 1_000, 10_000)
LONGEST = 20.0  # seconds that one engine may take for a number of inputs; where it takes longer, it takes no more


def grid(rounds: int, most: int = COUNTS[-1], models: tuple[str, ...] = ("dates", "en-fr", "base")) -> dict[str, Any]:
    """Measure all cells; return them with the ratio of ``auto`` to the best engine in each, and the worst."""
    cells = [cell for name in models for cell in _cells(name, rounds, most)]
    judged = [cell for cell in cells if cell["auto_to_best"] is not None]
    worst = max(judged, key=lambda cell: cell["auto_to_best"], default=None)
    return {"name": "engines", "work": "texts in and out, greedy or the model's own beam, models loaded before",
            "wanted": "auto takes at most 1.05 times the seconds of the best engine", "cells": cells, "worst": worst,
            "machine": machine()}  # fmt: skip


def _cells(name: str, rounds: int, most: int) -> Iterator[dict[str, Any]]:
    with _opened(name) as opened:
        models = {engine: opened(engine) for engine in EXACT}
        slow: set[str] = set()
        for count in [*COUNTS, *([100_000] if most > COUNTS[-1] else [])]:
            if count > most:
                return
            texts = _texts(name, count)
            contestants = {who: _answering(model, texts) for who, model in models.items() if who not in slow}
            if "auto" not in contestants or len(contestants) < 2:
                return
            seconds = take_turns(contestants, rounds if count < 10_000 else min(rounds, 3))
            best = {who: min(column) for who, column in seconds.items()}
            slow |= {who for who, took in best.items() if 10 * took > LONGEST}
            others = min(took for who, took in best.items() if who != "auto")
            yield {
                "model": name,
                "inputs": count,
                "answered_by": models["auto"].network.engine_for(count, models["auto"].config.decoding.beam).name,
                "per_second": {who: count / statistics.median(column) for who, column in seconds.items()},
                "spread": {
                    who: (max(column) - min(column)) / statistics.median(column) for who, column in seconds.items()
                },
                "auto_to_best": best["auto"] / others,  # of the best rounds, which others disturb least
            }


def _answering(model: Seq2Seq, texts: list[str]) -> Callable[[], object]:
    return lambda: model.predict(texts)


@contextmanager
def _opened(name: str) -> Iterator[Callable[[str], Seq2Seq]]:
    """Give a function that loads a model with an engine. Exports are kept in a folder of this run."""
    before = os.environ.get("XDG_CACHE_HOME")
    with tempfile.TemporaryDirectory() as cache:
        os.environ["XDG_CACHE_HOME"] = cache
        try:
            if name == "base":
                with random_model("float32") as (_, path):
                    yield lambda engine: load(path, engine=engine)
                return
            _exported(load(name))
            yield lambda engine: load(name, engine=engine)
        finally:
            if before is None:
                del os.environ["XDG_CACHE_HOME"]
            else:
                os.environ["XDG_CACHE_HOME"] = before


def _exported(model: Seq2Seq) -> None:
    """Let a model that ships without an export get one, as its first large use does."""
    model.network.engine_for(10**6)


def _texts(name: str, count: int) -> list[str]:
    if name == "dates":
        chosen = np.random.default_rng(3).choice(all_ordinals(), count, replace=False)
        return [source for source, _ in pairs_of(chosen)]
    if name == "en-fr":
        sentences = different_sentences()  # equal ones are answered once
        return (sentences * -(-count // len(sentences)))[:count]
    if name != "base":
        raise UserError(f"There is no model {name!r} in this benchmark: dates, en-fr or base was expected.")
    numbers = np.random.default_rng(5).integers(0, len(LETTERS), (count, SOURCE))
    return ["".join(LETTERS[number] for number in row) for row in numbers.tolist()]


def shown(found: dict[str, Any]) -> Iterator[str]:
    """Write the cells as lines."""
    for cell in found["cells"]:
        speeds = ", ".join(f"{who} {speed:,.1f}/s" for who, speed in cell["per_second"].items())
        yield (f"{cell['model']} × {cell['inputs']:,}: {speeds}; auto is {cell['answered_by']} and takes "
               f"{cell['auto_to_best']:.2f} of the best's seconds")  # fmt: skip
    worst, here = found["worst"], found["machine"]
    if worst is not None:
        yield f"worst: {worst['auto_to_best']:.2f} ({worst['model']} × {worst['inputs']:,}); wanted: {found['wanted']}"
    yield f"{here['cpu']}, {here['cores']} cores, load {here['load']}"
