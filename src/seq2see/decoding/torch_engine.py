"""The torch engine: every device, every beam, any number of answers, and models edited in memory."""

from __future__ import annotations

import itertools
import math
import platform
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from threading import Lock
from typing import TypeVar

import torch

from seq2see import devices, machine
from seq2see.config import DISTANCES, DecodingConfig
from seq2see.decoding.allowed import Automaton
from seq2see.decoding.engines import LARGE, SMALL
from seq2see.decoding.graphs import MEMORY_SHARE, GraphDecoder
from seq2see.decoding.hypothesis import PAPER, Hypothesis, Special
from seq2see.decoding.search import beam_search, greedy, greedy_ids
from seq2see.kernels.ensemble import is_written
from seq2see.model.sublayers import Observable
from seq2see.model.transformer import Transformer, at_rest

_without, _lock, _found_on = 0, Lock(), True


@contextmanager
def threads_of(count: int) -> Iterator[None]:
    """Run every matrix product on this number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def without_onednn() -> Iterator[None]:
    """Turn oneDNN off on ARM, where it prepares each product again, which takes longer.

    All threads share one switch. The first thread that enters turns it off; the last that leaves turns it on again.
    """
    global _without, _found_on
    if platform.machine() not in ("aarch64", "arm64"):
        yield
        return
    with _lock:
        if _without == 0:
            _found_on = bool(torch.backends.mkldnn.enabled)
            torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
        _without += 1
    try:
        yield
    finally:
        with _lock:
            _without -= 1
            if _without == 0:
                torch.backends.mkldnn.enabled = _found_on  # type: ignore[assignment]


# --- settings of PyTorch on a CPU -------------------------------------------------------------------------------------


LANES = 2  # searches at a time on a GPU: one computes while another waits for the host
WORTH_A_LANE = 128  # batches before a second lane, which has to capture all shapes again
TRIED_AGAIN = 64  # batches after which a large one is tried again, if the memory was full
ONE_THREAD = 2**14  # rows × d_model of one step; with fewer numbers one thread is faster than two
PART_OF_A_THREAD = 80_000  # rows × d_model of a thread's piece: enough that the call's overhead is small

T = TypeVar("T")


@dataclass
class Lane:
    """Graphs for one search at a time, and the number of searches that use them or wait for them."""

    graphs: GraphDecoder
    users: int = 0


class TorchEngine:
    """Searches with the model itself."""

    def __init__(self, transformer: Transformer, special: Special) -> None:
        self.original, self.special = transformer, special
        weight = next(transformer.parameters())
        self.kind, self.on_gpu = (weight.dtype, weight.device), weight.device.type == "cuda"
        #: An ensemble, a written network or one with distances has no graphs: a GPU searches with it step by step.
        config = transformer.config
        self.has_graphs = (
            self.on_gpu and config.members == 1 and config.positions not in DISTANCES and not is_written(transformer)
        )
        self.narrow = (
            self.has_graphs
            and weight.dtype == torch.float32
            and transformer.config.d_model >= LARGE
            # on a CPU bfloat16 would make an answer depend on its batch
            and torch.cuda.is_bf16_supported(including_emulation=False)
        )
        self.where: list[int] = []  # the weights in memory
        self.lanes: list[Lane] = []
        self.room = math.inf  # rows × source tokens of the largest batch that fits the GPU's memory
        self.batches = 0
        self.turn = Lock()  # one thread changes the lanes
        kind = "written" if is_written(transformer) else "torch"
        self.name = f"{kind}, {'bfloat16' if self.narrow else str(weight.dtype).removeprefix('torch.')}"

    def fits(self, transformer: Transformer) -> bool:
        """Whether this engine belongs to this network in its present state."""
        weight = next(transformer.parameters())
        return self.original is transformer and self.kind == (weight.dtype, weight.device)

    @contextmanager
    def _lane(self) -> Iterator[GraphDecoder]:
        """Lend the graphs that the fewest searches use. After many batches, a search that would wait gets new ones.

        Graphs follow the model's weights, and are rebuilt if those have moved in memory.
        """
        with self.turn:
            where = [weight.data_ptr() for weight in self.original.parameters()]
            if where != self.where:
                self.where, self.lanes = where, []
            lane = min(self.lanes, key=lambda lane: lane.users, default=None)
            waits = lane is not None and lane.users > 0 and self.batches >= WORTH_A_LANE
            if lane is None or (waits and len(self.lanes) < LANES):
                dtype = torch.bfloat16 if self.narrow else None
                lane = Lane(GraphDecoder(self.original, self.special, dtype))
                self.lanes.append(lane)
                for each in self.lanes:
                    each.graphs.share = MEMORY_SHARE / len(self.lanes)
            lane.users += 1
        try:
            yield lane.graphs
        finally:
            with self.turn:
                lane.users -= 1

    def _forget(self) -> bool:
        """Release the buffers of all shapes, if there are several."""
        several = [lane.graphs.forget() for lane in self.lanes]
        return any(several)

    def ids(
        self, sources: Sequence[Sequence[int]], rules: DecodingConfig = PAPER, allowed: Automaton | None = None
    ) -> list[list[int]]:
        """Return the best answer's ids to each source."""
        if self._uses_graphs():
            return self._in_room(self._by_graphs(GraphDecoder.ids, rules), sources, rules.beam, allowed)
        if rules.beam > 1:
            return [row[0].ids if row else [] for row in self.search(sources, rules, 1, allowed)]

        def found(part: Sequence[Sequence[int]], allowed: Automaton | None) -> list[list[int]]:
            return greedy_ids(self.original, part, self.special, rules, allowed)

        return self._shared_out(found, sources, 1, allowed)

    def search(
        self,
        sources: Sequence[Sequence[int]],
        rules: DecodingConfig = PAPER,
        n_best: int = 1,
        allowed: Automaton | None = None,
    ) -> list[list[Hypothesis]]:
        """Return the ``n_best`` answers to each source, best first, with the log-probability of each token."""
        if self._uses_graphs():
            rows = self._in_room(self._by_graphs(GraphDecoder.search, rules), sources, rules.beam, allowed)
            return [row[:n_best] for row in rows]

        def found(part: Sequence[Sequence[int]], allowed: Automaton | None) -> list[list[Hypothesis]]:
            if rules.beam == 1:
                return [[one] for one in greedy(self.original, part, self.special, rules, allowed)]
            return [row[:n_best] for row in beam_search(self.original, part, self.special, rules, allowed)]

        return self._shared_out(found, sources, rules.beam, allowed)

    def _uses_graphs(self) -> bool:
        """Whether a copy of the model answers: not while a recorder is attached, which may edit values."""
        watched = any(m.recorder is not None for m in self.original.modules() if isinstance(m, Observable))
        return self.has_graphs and not watched

    def _by_graphs(
        self, ask: Callable[..., list[T]], rules: DecodingConfig
    ) -> Callable[[Sequence[Sequence[int]], Automaton | None], list[T]]:
        """Return a search with the graphs of a lane."""

        def found(part: Sequence[Sequence[int]], automaton: Automaton | None) -> list[T]:
            with self._lane() as graphs:
                return ask(graphs, part, rules, automaton)

        return found

    def _in_room(
        self,
        found: Callable[[Sequence[Sequence[int]], Automaton | None], list[T]],
        sources: Sequence[Sequence[int]],
        beam: int,
        allowed: Automaton | None,
    ) -> list[T]:
        """Search within the GPU's memory.

        A batch that does not fit is tried again without the buffers of other shapes, then halved, and so are later ones
        of its size. After some batches a large one is tried again: other programs may have left the GPU.
        """
        self.batches += 1
        if self.batches % TRIED_AGAIN == 0:
            self.room = math.inf
        longest = max(map(len, sources))
        most = max(1, int(min(len(sources), self.room / (beam * longest))))

        def part(rows: Sequence[int]) -> list[T]:
            some = sources[rows[0] : rows[-1] + 1]
            automaton = allowed if allowed is None or len(rows) == len(sources) else allowed.select(rows)
            try:
                return found(some, automaton)
            except RuntimeError as error:
                if not devices.is_full(error):
                    raise
                if not self._forget():
                    self.room = len(rows) * beam * longest / 2
                    raise
            devices.release()
            return part(rows)

        parts = [range(len(sources))[first : first + most] for first in range(0, len(sources), most)]
        what = f"the search for an answer to {longest:,} tokens with a beam of {beam}"
        return [answer for rows in parts for answer in devices.in_halves(part, rows, what)]

    def _shared_out(
        self,
        found: Callable[[Sequence[Sequence[int]], Automaton | None], list[T]],
        sources: Sequence[Sequence[int]],
        beam: int = 1,
        allowed: Automaton | None = None,
    ) -> list[T]:
        """Search step by step, on a CPU with as many threads as pay.

        The products of a small model are too small to be shared by threads. Instead each thread searches for
        some sources.
        """
        config = self.original.config
        numbers, most = len(sources) * beam * config.d_model, torch.get_num_threads()
        with at_rest(self.original), without_onednn() if self.kind[0] == torch.float32 else nullcontext():
            if self.kind[1].type != "cpu":
                return self._in_room(found, sources, beam, allowed)
            if config.d_model >= SMALL:
                alone = config.d_model < LARGE and numbers < ONE_THREAD
                with threads_of(1 if alone else min(most, machine.free_cores())):
                    return found(sources, allowed)
            each = min(most, machine.workers())
            each = each if numbers >= each * ONE_THREAD else 1
            count = each * math.ceil(numbers / (each * PART_OF_A_THREAD))
            cuts = [len(sources) * part // count for part in range(count + 1)]
            parts = [
                (sources[first:end], None if allowed is None else allowed.select(range(first, end)))
                for first, end in itertools.pairwise(cuts)
                if first < end
            ]
            with threads_of(1):
                if each == 1:
                    return [answer for part in parts for answer in found(*part)]
                with ThreadPoolExecutor(each, initializer=torch.set_num_threads, initargs=(1,)) as pool:
                    rows = pool.map(found, *zip(*parts, strict=True))
                    return [answer for answers in rows for answer in answers]
