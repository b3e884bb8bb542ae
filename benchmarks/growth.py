"""How time and memory grow with the length of the source, the batch, and the width of the model."""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from benchmarks.measure import machine
from seq2see.config import ModelConfig, TrainingConfig
from seq2see.data.batching import Batch
from seq2see.decoding.hypothesis import Special
from seq2see.decoding.torch_engine import TorchEngine
from seq2see.kernels.registry import network_of
from seq2see.model.masks import EVERYTHING
from seq2see.training.learner import Learner

OUTPUT, VOCABULARY, LAYERS = 32, 4000, 3
SPECIAL = Special(start=1, end=2, pad=0)
KINDS = ("decoding", "training step")


@dataclass(frozen=True)
class Size:
    """One point: how long, how many, how wide."""

    source: int = 32
    batch: int = 32
    d_model: int = 128


AXES: dict[str, tuple[int, ...]] = {
    "source": (16, 32, 64, 128, 256),
    "batch": (1, 2, 8, 32, 128),
    "d_model": (32, 64, 128, 256, 512),
}


@dataclass(frozen=True)
class Point:
    """What one kind of work took at one size: seconds of one core, and memory of all tensors at its peak."""

    axis: str
    kind: str
    size: Size
    seconds: float
    megabytes: float


def growth(rounds: int, axes: dict[str, tuple[int, ...]] | None = None) -> Iterator[Point]:
    """Measure one size after the other, everything else at its middle value.

    On one thread, in seconds of its core: they stay the same where others use the machine.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for kind in KINDS:
            _work(kind, Size(8, 1, 32))()  # what torch sets up once is no part of any size
        yield from _points(rounds, axes or AXES)
    finally:
        torch.set_num_threads(threads)


def _points(rounds: int, axes: dict[str, tuple[int, ...]]) -> Iterator[Point]:
    for axis, values in axes.items():
        for value in values:
            size = replace(Size(), **{axis: value})
            for kind in KINDS:
                megabytes = peak_megabytes(kind, size)
                work = _work(kind, size)
                work()
                seconds = min(_timed(work) for _ in range(rounds))
                yield Point(axis, kind, size, seconds, megabytes)


def _work(kind: str, size: Size) -> Callable[[], object]:
    """Make a model and return one search, or one step, on random ids; every answer has 32 tokens."""
    torch.manual_seed(1)
    shape = ModelConfig(
        source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY, d_model=size.d_model, heads=4,
        d_ff=4 * size.d_model, encoder_layers=LAYERS, decoder_layers=LAYERS, dropout=0.0, share_output=False,
        max_length=max(size.source, OUTPUT + 1),
    )  # fmt: skip
    model = network_of(shape)
    source = torch.randint(3, VOCABULARY, (size.batch, size.source))
    if kind == "decoding":
        with torch.no_grad():
            model.output.bias[SPECIAL.end] = -math.inf
        engine = TorchEngine(model.eval(), SPECIAL)
        rows = source.tolist()
        # A model decodes up to 50 tokens more than it reads, and no more than it has positions for.
        model.config = replace(model.config, max_length=OUTPUT + 1)
        return lambda: engine.ids(rows)
    target = torch.randint(3, VOCABULARY, (size.batch, OUTPUT + 1))
    batch = Batch(source, target[:, :-1], target[:, 1:], EVERYTHING, size.batch * OUTPUT)
    learner = Learner(model, TrainingConfig(), SPECIAL.pad)
    return lambda: float(learner.learn([batch], 1e-4))


def _timed(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


class Tally(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of all tensors made within it that are still alive; what a kernel needs inside is not seen."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now, self.peak = 0, 0
        self.alive: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do what is asked, and count what comes out."""
        result = func(*args, **(kwargs or {}))
        tree_map_only(torch.Tensor, self._count, result)
        return result

    def _count(self, x: torch.Tensor) -> None:
        memory = x.untyped_storage()
        place, size = memory.data_ptr(), memory.nbytes()
        if size and place not in self.alive:  # views share the memory of another
            self.alive.add(place)
            self.now += size
            self.peak = max(self.peak, self.now)
            weakref.finalize(memory, self._forget, place, size)

    def _forget(self, place: int, size: int) -> None:
        self.alive.discard(place)
        self.now -= size


def peak_megabytes(kind: str, size: Size) -> float:
    """Make a model and run once; return the memory of all tensors at its peak."""
    with Tally() as tally:
        _work(kind, size)()
    return float(tally.peak) / 2**20


def doubling(points: list[Point], value: Callable[[Point], float]) -> float:
    """Return by how much a value grows, over the last two sizes of an axis, each time the size is doubled."""
    one, two = points[-2:]
    times = getattr(two.size, two.axis) / getattr(one.size, one.axis)
    return float((value(two) / value(one)) ** (1 / math.log2(times)))


def record(points: list[Point]) -> dict[str, Any]:
    """Return everything as JSON can hold it."""
    grows = {}
    for axis in dict.fromkeys(point.axis for point in points):
        for kind in KINDS:
            some = [point for point in points if (point.axis, point.kind) == (axis, kind)]
            grows[f"{kind}, {axis}"] = {
                "seconds": doubling(some, lambda point: point.seconds),
                "megabytes": doubling(some, lambda point: point.megabytes),
            }
    return {
        "name": "growth",
        "work": f"{LAYERS}+{LAYERS} layers, {VOCABULARY:,} tokens, {OUTPUT} output tokens, torch, float32, one thread",
        "points": [asdict(point) for point in points],
        "a_doubling_costs": grows,
        "machine": machine(),
    }
