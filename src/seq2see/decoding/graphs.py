"""Decoding on a GPU: every shape is fixed, so that several steps are one CUDA graph and the host has little to do.

Keys and values are in buffers of full length. Those of the source are computed once for each sentence. Beams
are not copied when they branch: each remembers in which beam every position of its past was written. When
half of the sentences are done, the others move to buffers of half the size, down to 32 sentences. The buffers
fit sources of many lengths, so that few shapes occur.
"""

from __future__ import annotations

import copy
import gc
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from threading import Lock
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from seq2see import devices
from seq2see.config import DecodingConfig
from seq2see.decoding.allowed import Automaton
from seq2see.decoding.hypothesis import PAPER, Hypothesis, Special
from seq2see.decoding.readers import stacked
from seq2see.decoding.rule import LogitsRules, TokenMask, power_of_two, sizes_of
from seq2see.decoding.search import LOGITS_PART, Beams, likeliest, limits_of
from seq2see.errors import UserError
from seq2see.kernels import step_written
from seq2see.kernels.layers import FastAttention
from seq2see.kernels.step import DecoderStep, Parts, form_of, prepare
from seq2see.machine import uncollected
from seq2see.model.decoder import DecoderLayer
from seq2see.model.masks import Mask
from seq2see.model.transformer import Transformer

STEPS_OF_MANY_ROWS = 2  # steps in one graph: long steps need no more, since the next graph is launched while one runs
LOOK_EVERY = 8  # steps after which the host checks which sentences are done
MANY_ROWS = 32  # rows from which a step is long
SMALLEST_SEARCH = 32  # sentences; a smaller search does not shrink any more
SHARED_WIDTH = 64  # least source tokens of a search that takes over sentences
LENGTH_STEP = 8  # lengths are rounded up to multiples of this (long ones of more), so that few shapes occur
MEMORY_SHARE = 0.4  # share of the GPU's memory for the buffers of all shapes
BEAM_FIELDS = tuple(field.name for field in fields(Beams))
#: The rules that are part of a graph: all except those given by its shape and its sentences.
BUILT_IN = tuple(
    field.name
    for field in fields(DecodingConfig)
    if field.name not in ("beam", "length_ratio", "length_offset", "max_length", "sentences", "repairs")
)

T = TypeVar("T")
Key = tuple[Any, ...]  # sentences, source tokens, answer tokens, beams, and the rules that are part of a graph


class GraphSearch:
    """Greedy or beam search over a fixed number of sentences of fixed lengths."""

    def __init__(
        self,
        model: Transformer,
        special: Special,
        sentences: int,
        source_length: int,
        length: int,
        rules: DecodingConfig,
        before: Callable[[], None],
        gate: TokenMask | None = None,
        captured: Callable[[Callable[[], None]], Callable[[], None]] = lambda function: function,
    ) -> None:
        self.model, self.special, self.length, self.before = model, special, length, before
        self.rules, self.beam = rules, rules.beam
        beam = rules.beam
        parameter = next(model.parameters())
        device, dtype, c = parameter.device, parameter.dtype, model.config
        self.rule = LogitsRules(special, rules, device, gate)
        self.source = torch.full((sentences, source_length), special.pad, device=device)
        self.limits = torch.ones(sentences, dtype=torch.long, device=device)
        self.first_state = torch.zeros(sentences, dtype=torch.long, device=device)  # of the gate
        self.position = torch.zeros(1, dtype=torch.long, device=device)
        self.columns = torch.arange(length, device=device)
        self.last = torch.full((sentences, beam), special.start, device=device)
        number = torch.arange(sentences * beam, dtype=torch.int32, device=device)  # of each row
        self.own = (number % beam).view(sentences, beam, 1)
        # The beam in which each position of a beam's past was written; ``rows`` says the same as numbers of rows.
        self.ancestors = self.own.repeat(1, 1, length)
        self.rows = number[:, None].repeat(1, length)
        self.first = (number - number % beam)[:, None]
        self.real = torch.ones(sentences, source_length, dtype=torch.bool, device=device)

        def buffers(rows: int, positions: int) -> tuple[Tensor, Tensor]:
            shape = (rows, positions, c.heads)
            k, v = (torch.zeros(*shape, width or 0, dtype=dtype, device=device) for width in (c.d_k, c.d_v))
            return k, v

        layers, rows = range(c.decoder_layers), sentences * beam
        self.past = [buffers(rows, length) for _ in layers]  # keys and values
        self.read = [buffers(sentences, source_length) for _ in layers]
        self.beams = Beams.start(self.limits, length, beam, special.pad)
        self.choose: Callable[[Tensor], None] = self._choose_beams if beam > 1 else self._choose_one
        self.step = DecoderStep(model, form_of(rows))
        self.divisors = rules.divisor(torch.arange(1, length + 1, device=device, dtype=torch.float32))
        self.by_kernels = self.step.do is not step_written and self._can_choose()
        self.chunk = math.gcd(length, LOOK_EVERY)
        self.together = math.gcd(self.chunk, STEPS_OF_MANY_ROWS) if rows > MANY_ROWS else self.chunk
        self.open = torch.ones(sentences, dtype=torch.bool, device=device)
        self.begin, self.steps, self.look = map(captured, (self._begin, self._steps, self._look))

    def start(self, laid: Laid) -> None:
        """Read sources that were laid out for a search of this size."""
        if laid.states is not None:
            self.first_state.copy_(laid.states)
        self.source.copy_(laid.source)
        self.real.copy_(laid.real)
        self.limits.copy_(laid.limits)
        self.begin()

    def take_over(self, other: GraphSearch, rows: Tensor) -> None:
        """Continue these sentences of another search in buffers of this size, which may be longer."""
        rows = F.pad(rows, (0, len(self.source) - len(rows)), value=int(rows[-1])).to(self.source.device)
        self.position.copy_(other.position)
        self.real.zero_()
        for mine, theirs in zip(self._state(), other._state(), strict=True):
            taken = theirs[rows]
            mine[tuple(map(slice, taken.shape))].copy_(taken)
        self._point()

    def _state(self) -> list[Tensor]:
        """Return the state of a search, (B, …) for each tensor."""
        B = len(self.source)
        past = [x.view(B, self.beam, *x.shape[1:]) for own in self.past for x in own]
        read = [x for cross in self.read for x in cross]
        beams = [getattr(self.beams, name) for name in BEAM_FIELDS]  # the limits among them
        return [*past, *read, *beams, self.source, self.real, self.ancestors, self.last]

    def advance(self, count: int) -> Tensor:
        """Run some steps; return which of the first sentences are still open."""
        for _ in range(self.chunk // self.together):
            self.steps()
        self.look()
        return self.open[:count].cpu().nonzero()[:, 0]

    def _look(self) -> None:
        self.open.copy_(~self.beams.finished(self.position - 1))

    def answers(self, count: int) -> Callable[[], list[list[Hypothesis]]]:
        """Copy the results of the first sentences from the GPU; return a function that makes answers of them."""
        beams = self.beams.select(slice(count))
        return Beams(**{name: getattr(beams, name).to("cpu", copy=True) for name in BEAM_FIELDS}).hypotheses

    def ids(self, count: int) -> Callable[[], list[list[int]]]:
        """Do the same for the ids of the best answers only."""
        found = self.beams.done_ids[:count, 0], self.beams.done_length[:count, 0]
        ids, lengths = (x.to("cpu", copy=True) for x in found)  # the next search uses the same buffers

        def rows() -> list[list[int]]:
            some = ids[:, : int(lengths.max())].tolist()  # most of the buffer is unused
            return [row[:length] for row, length in zip(some, lengths.tolist(), strict=True)]

        return rows

    def _begin(self) -> None:
        """Read the source, compute its keys and values once, and clear the state of the last search."""
        self.before()
        memory = self.step.encode(self.source, Mask(keys=self.real))
        for layer, (all_k, all_v) in zip(self.model.decoder.layers, self.read, strict=True):
            assert isinstance(layer, DecoderLayer)
            assert isinstance(layer.cross_attention, FastAttention)
            k, v = layer.cross_attention.keys_values(memory)  # (B, S, H, K)
            all_k.copy_(k)
            all_v.copy_(v)
        self.position.zero_()
        self.last.fill_(self.special.start)
        self.ancestors.copy_(self.own.expand_as(self.ancestors))
        self._point()
        self._put(Beams.start(self.limits, self.length, self.beam, self.special.pad, self.first_state))

    def _point(self) -> None:
        """Set in which rows the past of each beam is, for attention."""
        self.rows.copy_(self.first + self.ancestors.flatten(0, 1))

    def _put(self, beams: Beams) -> None:
        for name in BEAM_FIELDS:
            getattr(self.beams, name).copy_(getattr(beams, name))

    def _steps(self) -> None:
        for _ in range(self.together):
            caches = [*zip(self.past, self.read, strict=True)]
            last = self.last.flatten()
            logits, parts = self.step(last, self.position, caches, self.rows, self.real, self.beam)  # (R, V)
            if self.by_kernels:
                self._choose_by_kernels(logits, parts)
            else:
                self.position.add_(1)
                self.choose(logits)

    def _can_choose(self) -> bool:
        """Whether our kernels choose the tokens: no rule restricts the answers, and the sizes fit."""
        if self.beam == 1 or not self.rule.idle:
            return self.rule.idle
        from seq2see.kernels.choose_kernels import can_grow

        return can_grow(self.beam, self.length, self.model.config.target_vocabulary, LOGITS_PART)

    def _choose_by_kernels(self, logits: Tensor, parts: Parts | None) -> None:
        """Do what ``choose`` does, in one kernel or two."""
        from seq2see.kernels import choose_kernels
        from seq2see.kernels.choose_kernels import scan

        parts = parts or (*scan(logits, LOGITS_PART), LOGITS_PART)
        if self.beam == 1:
            special = self.special
            choose_kernels.choose_one(
                logits, parts, self.position, self.last, self.beams, self.divisors, special.end, special.pad
            )
            return
        choose_kernels.grow(
            logits, parts, self.position, self.last, self.ancestors, self.rows, self.beams, self.divisors,
            self.special.end, self.rules.stopping,
        )  # fmt: skip

    def _source(self) -> Tensor | None:
        """Return the sources for the rules, if one needs them."""
        return torch.where(self.real, self.source, -1) if self.rule.needs_source else None

    def _choose_beams(self, logits: Tensor) -> None:
        t = self.position - 1
        beams, parent, token = self.beams.advance(logits, t, self.rules, self.rule, self._source())
        self._put(beams)
        past = self.ancestors.gather(1, parent[:, :, None].expand_as(self.ancestors))
        self.ancestors.copy_(torch.where(self.columns <= t, past, self.own))
        self._point()
        self.last.copy_(token)

    def _choose_one(self, logits: Tensor) -> None:
        """Take the likeliest token: beam search with one beam, in fewer operations."""
        t, b = self.position - 1, self.beams
        total = None
        if not self.rule.idle:
            logits, total = self.rule.allowed(logits, t, b.limits, b.state[:, 0], b.done_ids[:, 0], self._source())
        value, token = likeliest(logits, 1, total)  # (B, 1)
        if self.rule.gate is not None:
            b.state.copy_(self.rule.after(b.state[:, 0], token[:, 0], t)[:, None])
        open_ = b.done_score == -torch.inf  # (B, 1)
        self.last.copy_(token)
        token = torch.where(open_, token, self.special.pad)
        value = torch.where(open_, value, 0.0)
        b.done_ids.index_copy_(2, t, token[:, :, None])
        b.done_values.index_copy_(2, t, value[:, :, None])
        b.total.add_(value)
        b.done_length.add_(open_)
        ended = open_ & self.rule.ended(token)
        b.done_ended.logical_or_(ended)
        stops = ended | (open_ & (b.limits <= t + 1)[:, None])
        b.settled.logical_or_(stops[:, 0])
        b.done_score.copy_(torch.where(stops, b.total / self.rules.divisor(t + 1), b.done_score))


@dataclass(frozen=True)
class Laid:
    """Some sources as tensors of a search's size, still on the CPU."""

    source: Tensor  # (B, S)
    real: Tensor  # (B, S)
    limits: Tensor  # (B,)
    states: Tensor | None  # (B,): the first of the gate

    @classmethod
    def of(
        cls,
        model: Transformer,
        special: Special,
        sources: Sequence[Sequence[int]],
        width: int,
        rules: DecodingConfig,
        allowed: Automaton | None,
    ) -> Laid:
        """Lay sources out; the last is repeated up to a power of two. The rules limit their answers."""
        rows = [*sources, *[sources[-1]] * (power_of_two(len(sources)) - len(sources))]
        states = None
        if allowed is not None:
            states = torch.from_numpy(allowed.starts_of(len(sources)))
            states = F.pad(states, (0, len(rows) - len(states)), value=int(states[-1]))
        lengths = torch.tensor([len(row) for row in rows])
        limits = limits_of(model, rows, rules=rules, allowed=allowed)
        return cls(stacked(rows, width, special.pad), torch.arange(width) < lengths[:, None], limits, states)


class Captured:
    """Turns functions into CUDA graphs, each at its second use, since one use does not pay.

    They are called on a stream of their own, since the default one cannot be captured. If the GPU has no memory
    left for graphs, functions stay as they are. The graphs share memory: their results are in buffers outside of
    it, and one graph runs at a time. ``torch.cuda.graph`` would release all free memory before each capture and
    allocate it again.
    """

    def __init__(self) -> None:
        self.pool = torch.cuda.graph_pool_handle()
        self.full = False

    def __call__(self, function: Callable[[], None]) -> Callable[[], None]:
        """Return the function as one that becomes a graph."""
        graph: torch.cuda.CUDAGraph | None = None
        uses = 0

        def run() -> None:
            nonlocal graph, uses
            uses += 1
            if graph is not None:
                graph.replay()
                return
            function()
            if uses > 1 and not self.full:  # the first call has prepared this thread
                graph = self._graph(function)

        return run

    def _graph(self, function: Callable[[], None]) -> torch.cuda.CUDAGraph | None:
        """Capture the function without running it; return None if there is no memory for the graph."""
        graph = torch.cuda.CUDAGraph()
        with uncollected():  # a graph that is freed meanwhile would spoil this one
            graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")  # others may use the GPU meanwhile
            try:
                function()
            except RuntimeError as error:
                if not devices.is_full(error):
                    raise
                self.full = True
            finally:
                graph.capture_end()
        return None if self.full else graph


class GraphDecoder:
    """A copy of a model for fast search on a GPU; it follows the model's parameters.

    Shapes are captured when they occur again. One search runs at a time, since searches share buffers; another
    decoder may search meanwhile, on its own stream.
    """

    def __init__(self, model: Transformer, special: Special, dtype: torch.dtype | None = None) -> None:
        self.original, self.special = model, special
        self.searches: dict[Key, GraphSearch] = {}
        self.gates: dict[Key, TokenMask] = {}
        self.share = MEMORY_SHARE
        self.lock, self.device = Lock(), next(model.parameters()).device
        self.stream = None
        if self.device.type == "cuda":
            self.stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        self.captured: Callable[[Callable[[], None]], Callable[[], None]] = lambda function: function
        with self._alone():
            if self.device.type == "cuda":
                self.captured = Captured()
            self.model = copy.deepcopy(model).to(dtype).eval()
            prepare(self.model)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let one thread at a time work, on the model's device, without gradients."""
        with ExitStack() as stack:
            for context in (self.lock, torch.inference_mode(False), torch.no_grad()):
                stack.enter_context(context)
            if self.stream is not None:
                stack.enter_context(torch.cuda.device(self.device))
                self.stream.wait_stream(torch.cuda.current_stream())  # it may still write the weights
                stack.enter_context(torch.cuda.stream(self.stream))
            try:
                yield
            except RuntimeError as error:
                if "C compiler" not in str(error):
                    raise
                raise UserError(
                    "The GPU's kernels are built at their first use, which needs a C compiler, but none was "
                    "found: install gcc, or name one in the environment variable CC."
                ) from error

    def search(
        self, sources: Sequence[Sequence[int]], rules: DecodingConfig = PAPER, allowed: Automaton | None = None
    ) -> list[list[Hypothesis]]:
        """Answer some sources together."""
        return self._found(sources, rules, GraphSearch.answers, allowed)

    def ids(
        self, sources: Sequence[Sequence[int]], rules: DecodingConfig = PAPER, allowed: Automaton | None = None
    ) -> list[list[int]]:
        """Return the ids of the best answers only, which is faster."""
        return self._found(sources, rules, GraphSearch.ids, allowed)

    def _found(
        self,
        sources: Sequence[Sequence[int]],
        rules: DecodingConfig,
        read: Callable[[GraphSearch, int], Callable[[], list[T]]],
        allowed: Automaton | None,
    ) -> list[T]:
        """Search, one at a time; the work on the CPU is done before and after, while another search may run."""
        longest, most = self.model.config.max_length, max(len(source) for source in sources)
        needed = 0 if allowed is None else allowed.room(rules, longest)

        def lengths(tokens: int) -> tuple[int, int]:
            """Return the source and answer lengths of a search, for sources of this number of tokens."""
            width = min(_rounded(tokens), longest)
            return width, min(_rounded(max(rules.limit(width, longest), needed)), longest)

        width, length = lengths(most)
        laid = Laid.of(self.model, self.special, sources, width, rules, allowed)
        found: list[tuple[list[int], Callable[[], list[T]]]] = []
        with self._alone():
            gate = None if allowed is None else self._gate(allowed, rules)
            search = self._of(len(laid.source), width, length, rules, gate)
            search.start(laid)
            numbers = [*range(len(sources))]  # the source of each row
            while True:
                rows = search.advance(len(numbers))
                size = max(power_of_two(len(rows)), SMALLEST_SEARCH)
                if len(rows) and size >= len(search.source):
                    continue
                # This includes sentences that are still open. Their final answers replace these later.
                found.append((numbers, read(search, len(numbers))))
                if not len(rows):
                    break
                shared = lengths(max(SHARED_WIDTH, power_of_two(width)))
                smaller = self._of(size, *shared, rules, gate)
                smaller.take_over(search, rows)
                search, numbers = smaller, [numbers[row] for row in rows.tolist()]
        answers = {number: one for some, taken in found for number, one in zip(some, taken(), strict=True)}
        return [answers[number] for number in range(len(sources))]

    def _gate(self, allowed: Automaton, rules: DecodingConfig) -> TokenMask:
        """Return the constraints as tensors, in the memory of an earlier automaton of this size."""
        vocabulary = self.model.config.target_vocabulary
        near = allowed.must_hurry(rules, self.model.config.max_length)
        key = (*sizes_of(allowed, vocabulary), bool(allowed.level.any()), near)
        if key not in self.gates:
            self.gates[key] = TokenMask(allowed, vocabulary, self.device, near)
        else:
            self.gates[key].put(allowed)
        return self.gates[key]

    def _of(
        self, sentences: int, width: int, length: int, rules: DecodingConfig, gate: TokenMask | None = None
    ) -> GraphSearch:
        """Return the search for these numbers of sentences, source tokens, answer tokens and beams."""
        shape = (sentences, width, length, rules.beam)
        built_in = (getattr(rules, name) for name in BUILT_IN)
        key = (*shape, *built_in, gate and (*gate.sizes, gate.levels, gate.near))
        if key not in self.searches:
            self._make_room(key)
            search = GraphSearch(self.model, self.special, *shape[:3], rules, self._follow, gate, self.captured)
        else:
            search = self.searches.pop(key)
        self.searches[key] = search  # ordered by last use
        return search

    def _make_room(self, key: Key) -> None:
        """Drop the least recently used shapes until another one fits."""
        c, kept = self.model.config, [*self.searches]
        assert c.d_k is not None
        assert c.d_v is not None
        size = next(self.model.parameters()).element_size()
        a_token = c.decoder_layers * c.heads * (c.d_k + c.d_v) * size  # in bytes
        room = (
            self.share * torch.cuda.get_device_properties(self.device).total_memory
            if self.device.type == "cuda"
            else math.inf
        )
        while kept and a_token * sum(b * (k * t + s) for b, s, t, k, *_ in (*kept, key)) > room:
            del self.searches[kept.pop(0)]
            # a search and its graphs refer to each other, so only the garbage collector frees them
            gc.collect()
            if self.device.type == "cuda":
                torch.cuda.empty_cache()  # graphs allocate from the GPU, not from PyTorch's cache

    def forget(self) -> bool:
        """Release the buffers of all shapes when no search runs; return whether there was more than one."""
        with self.lock:
            several = len(self.searches) > 1
            self.searches.clear()
            self.gates.clear()
            if isinstance(self.captured, Captured):
                self.captured = Captured()  # PyTorch refuses a capture into a pool whose graphs are all gone
        return several

    def _follow(self) -> None:
        """Copy the present weights: they may have been trained or edited."""
        torch._foreach_copy_([*self.model.parameters()], [*self.original.parameters()])


def _rounded(length: int) -> int:
    """Round up to a multiple of at least an eighth of the number."""
    step = max(LENGTH_STEP, power_of_two(length) // 8)
    return -(-length // step) * step
