"""Decoding on a GPU: every shape is fixed, so that a step is one CUDA graph and the host has nothing to do.

Keys and values lie in buffers of full length. The keys of the source are computed once a sentence. Beams are not
copied when they branch: each remembers in which row every position of its past was written.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import fields

import torch
from torch import Tensor

from seq2see.decoding.hypothesis import LENGTH_PENALTY, Hypothesis, Special
from seq2see.decoding.search import Beams, length_penalty, limits_of
from seq2see.model.attention import Cache, Mask, MultiHeadAttention
from seq2see.model.decoder import DecoderCache, DecoderLayer
from seq2see.model.transformer import Transformer

LOOK_EVERY = 8  # steps between looks at whether all sentences are done; each look waits for the device
BEAM_FIELDS = tuple(field.name for field in fields(Beams))
ROUND = 16  # lengths are rounded up to multiples of this, so that few shapes occur


class StaticCache(Cache):
    """Keys and values in buffers of a fixed length; new ones are written at the position that is decoded."""

    def __init__(self, k: Tensor, v: Tensor, position: Tensor, ancestors: Tensor | None) -> None:
        super().__init__(grows=True)
        self.k, self.v = k, v  # (R, L, H, K)
        self.position = position  # (1,)
        self.ancestors = ancestors  # (R, L): the row in which each position of a beam's past was written
        self.columns = torch.arange(k.shape[1], device=k.device)

    def keys_values(self, attention: MultiHeadAttention, source: Tensor) -> tuple[Tensor, Tensor]:
        """Write the new position's and return all."""
        assert self.k is not None
        assert self.v is not None
        k, v = attention.keys_values(source)  # (R, 1, H, K)
        self.k.index_copy_(1, self.position, k)
        self.v.index_copy_(1, self.position, v)
        if self.ancestors is None:
            return self.k, self.v
        return self.k[self.ancestors, self.columns], self.v[self.ancestors, self.columns]


class GraphSearch:
    """Greedy or beam search over a fixed number of sentences of fixed lengths."""

    def __init__(
        self,
        model: Transformer,
        special: Special,
        sentences: int,
        source_length: int,
        length: int,
        beam: int,
        compiled: bool,
    ) -> None:
        self.model, self.special, self.beam, self.length = model, special, beam, length
        parameter = next(model.parameters())
        device, dtype, c = parameter.device, parameter.dtype, model.config
        assert c.d_k is not None
        assert c.d_v is not None
        rows = sentences * beam
        self.source = torch.full((sentences, source_length), special.pad, device=device)
        self.source_real = torch.ones(sentences, source_length, dtype=torch.bool, device=device)
        self.limits = torch.ones(sentences, dtype=torch.long, device=device)
        self.position = torch.zeros(1, dtype=torch.long, device=device)
        self.columns = torch.arange(length, device=device)
        self.own = torch.arange(rows, device=device)[:, None].expand(rows, length)
        self.ancestors = self.own.clone()
        self.last = torch.full((rows, 1), special.start, device=device)
        self.memory_real = torch.ones(rows, source_length, dtype=torch.bool, device=device)

        def buffer(positions: int, width: int) -> Tensor:
            return torch.zeros(rows, positions, c.heads, width, dtype=dtype, device=device)

        self.cache = DecoderCache(c.decoder_layers)
        self.cache.length = self.position
        self.cache.layers = []
        for _ in range(c.decoder_layers):
            ancestors = self.ancestors if beam > 1 else None
            own = StaticCache(buffer(length, c.d_k), buffer(length, c.d_v), self.position, ancestors)
            cross = Cache(grows=False)
            cross.k, cross.v = buffer(source_length, c.d_k), buffer(source_length, c.d_v)
            self.cache.layers.append((own, cross))

        self.beams = Beams.start(self.limits, length, beam, special.pad)
        step = self._beam_step if beam > 1 else self._greedy_step
        if compiled:
            step = torch.compile(
                step, fullgraph=True, dynamic=False, options={"coordinate_descent_tuning": True}
            )
        self.begin = _captured(self._begin, device)
        self.step = _captured(step, device)

    @torch.no_grad()
    def search(self, sources: Sequence[Sequence[int]]) -> list[list[Hypothesis]]:
        """Answer at most as many sources as there is room for."""
        count, width = len(sources), self.source.shape[1]
        rows = [*sources, *[sources[-1]] * (len(self.source) - count)]
        ids = torch.tensor([[*row, *[self.special.pad] * (width - len(row))] for row in rows])
        lengths = torch.tensor([len(row) for row in rows])
        self.source.copy_(ids)
        self.source_real.copy_(torch.arange(width) < lengths[:, None])
        self.limits.copy_(limits_of(self.model, rows).clamp(max=self.length))
        self.begin()
        for t in range(self.length):
            self.step()
            if t % LOOK_EVERY == LOOK_EVERY - 1 and bool(self.beams.finished(self.position - 1).all()):
                break
        return self.beams.select(torch.arange(count, device=self.source.device)).hypotheses()

    def _begin(self) -> None:
        """Read the source, compute its keys and values once, and clear what the last search has left."""
        memory = self.model.encode(self.source, Mask(keys=self.source_real))
        for layer, (_, cross) in zip(self.model.decoder.layers, self.cache.layers, strict=True):
            assert isinstance(layer, DecoderLayer)
            k, v = layer.cross_attention.keys_values(memory)  # (B, S, H, K)
            assert cross.k is not None
            assert cross.v is not None
            cross.k.copy_(k.repeat_interleave(self.beam, 0))
            cross.v.copy_(v.repeat_interleave(self.beam, 0))
        self.memory_real.copy_(self.source_real.repeat_interleave(self.beam, 0))
        self.position.zero_()
        self.last.fill_(self.special.start)
        self.ancestors.copy_(self.own)
        self._put(Beams.start(self.limits, self.length, self.beam, self.special.pad))

    def _put(self, beams: Beams) -> None:
        for name in BEAM_FIELDS:
            getattr(self.beams, name).copy_(getattr(beams, name))

    def _logits(self) -> Tensor:
        """Decode one position of every row, (R, V), and move on to the next."""
        past = Mask(keys=(self.columns <= self.position)[None])
        logits = self.model.decode(self.last, self.last, Mask(keys=self.memory_real), self.cache, past)
        return logits[:, -1]

    def _beam_step(self) -> None:
        t = self.position.clone()
        beams, parent, token = self.beams.advance(self._logits(), t, self.special.end, LENGTH_PENALTY)
        self._put(beams)
        first_row = torch.arange(0, len(self.last), self.beam, device=t.device)[:, None]
        rows = (first_row + parent).flatten()  # (R,)
        self.ancestors.copy_(torch.where(self.columns <= t, self.ancestors[rows], self.own))
        self.last.copy_(token.flatten()[:, None])

    def _greedy_step(self) -> None:
        """Take the likeliest token; what beam search would do with one beam, without its detours."""
        t, b = self.position.clone(), self.beams
        logits = self._logits().float()  # (B, V)
        best, token = logits.max(-1, keepdim=True)  # (B, 1)
        value = best - logits.logsumexp(-1, keepdim=True)
        open_ = b.done_score == -torch.inf  # (B, 1)
        token = torch.where(open_, token, self.special.pad)
        value = torch.where(open_, value, 0.0)
        b.done_ids.index_copy_(2, t, token[:, :, None])
        b.done_values.index_copy_(2, t, value[:, :, None])
        b.total.add_(value)
        b.done_length.add_(open_)
        ended = open_ & (token == self.special.end)
        b.done_ended.logical_or_(ended)
        stops = ended | (open_ & (b.limits <= t + 1)[:, None])
        b.done_score.copy_(torch.where(stops, b.total / length_penalty(t + 1, LENGTH_PENALTY), b.done_score))
        self.last.copy_(token)


def _captured(function: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """Return the function as a CUDA graph, captured at its first use; on a CPU, as it is."""
    if device.type != "cuda":
        return function
    graph: torch.cuda.CUDAGraph | None = None

    def run() -> None:
        nonlocal graph
        if graph is None:
            stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                function()
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                function()
        else:
            graph.replay()

    return run


class GraphDecoder:
    """A model ready for fast search on a GPU; shapes are captured when they first occur."""

    def __init__(
        self, model: Transformer, special: Special, compiled: bool = False, dtype: torch.dtype | None = None
    ) -> None:
        self.model = model if dtype is None else copy.deepcopy(model).to(dtype).eval()
        self.special, self.compiled = special, compiled
        self.searches: dict[tuple[int, int, int, int], GraphSearch] = {}

    def search(self, sources: Sequence[Sequence[int]], beam: int = 1) -> list[list[Hypothesis]]:
        """Answer some sources together."""
        sentences = 1 << (len(sources) - 1).bit_length()
        longest = max(len(source) for source in sources)
        width = min(-(-longest // ROUND) * ROUND, self.model.config.max_length)
        length = -(-int(limits_of(self.model, sources).max()) // ROUND) * ROUND
        length = min(length, self.model.config.max_length)
        key = (sentences, width, length, beam)
        if key not in self.searches:
            self.searches[key] = GraphSearch(self.model, self.special, *key, self.compiled)
        return self.searches[key].search(sources)
