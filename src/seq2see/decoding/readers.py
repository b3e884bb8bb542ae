"""How a search reads: padded batches, and readers that compute the logits of the next token."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import torch
from torch import Tensor

from seq2see.decoding.hypothesis import Special
from seq2see.kernels.ensemble import Ensemble, is_written
from seq2see.kernels.layers import FastTransformer
from seq2see.model.masks import EVERYTHING, Mask
from seq2see.model.transformer import Transformer


def padded(rows: Sequence[Sequence[int]], pad: int, device: torch.device | None = None) -> tuple[Tensor, Mask]:
    """Stack rows of ids into (B, S), with the mask that hides the padding."""
    lengths = [len(row) for row in rows]
    longest = max(lengths)
    ids = stacked(rows, longest, pad).to(device)
    if min(lengths) == longest:
        return ids, EVERYTHING
    return ids, Mask(keys=torch.arange(longest, device=device) < torch.tensor(lengths, device=device)[:, None])


def kept(mask: Mask, rows: Tensor) -> Mask:
    """Keep these rows of a batch's mask, in this order."""
    return mask if mask.keys is None else Mask(mask.causal, mask.keys[rows])


def stacked(rows: Sequence[Sequence[int]], width: int, pad: int) -> Tensor:
    """Stack rows of ids into (B, width); going through one list and an array is faster than a tensor of lists."""
    every, flat = list[int](), array("q")
    for row in rows:
        every += row
        every += [pad] * (width - len(row))
    flat.fromlist(every)
    return torch.frombuffer(flat, dtype=torch.long).view(len(rows), width)


class CachedReader:
    """Reads only new tokens, and keeps the keys and values of earlier ones."""

    def __init__(self, model: Transformer, memory: Tensor, mask: Mask, beam: int = 1) -> None:
        assert isinstance(model, FastTransformer | Ensemble)
        self.model, self.memory, self.mask, self.beam = model, memory, mask, beam
        self.cache = model.empty_cache()
        self.rows = len(memory) * beam

    def read(self, new: Tensor) -> Tensor:
        """Read the new tokens of each row, (R, n), and return the logits of the next, (R, V).

        At the first step all beams of a source are equal: new is (B, n), and one of them is computed.
        """
        first = self.cache.length == 0 and self.beam > 1
        logits = self.model.decode(new, self.memory, self.mask, self.cache)[:, -1]
        if first:
            spread = torch.arange(len(logits), device=logits.device).repeat_interleave(self.beam)
            logits, self.mask = logits[spread], kept(self.mask, spread)
            self.cache.select(spread)
        return logits

    def select(self, rows: Tensor) -> None:
        """Keep these rows, in this order; a row stays among those of its source.

        So the keys and values of the sources move only when there are fewer of them. The memory is in the cache by now.
        """
        fewer = len(rows) < self.rows
        self.cache.select(rows, sources=fewer)
        if fewer:
            self.mask, self.rows = kept(self.mask, rows), len(rows)


class WrittenReader:
    """Reads all tokens again from the start at each step: a network as it is written keeps nothing between two steps.

    An edit of values then sees all positions so far.
    """

    def __init__(self, model: Transformer, memory: Tensor, mask: Mask = EVERYTHING, beam: int = 1) -> None:
        self.model, self.memory, self.mask, self.beam = model, memory, mask, beam
        self.so_far = torch.empty(len(memory), 0, dtype=torch.long, device=memory.device)

    def read(self, new: Tensor) -> Tensor:
        """Read the new tokens of each row, (R, n), and return the logits of the next, (R, V).

        At the first step all beams of a source are equal: new is (B, n), and one of them is computed.
        """
        first = self.so_far.shape[1] == 0 and self.beam > 1
        self.so_far = torch.cat([self.so_far, new], 1)
        logits = self.model.decode(self.so_far, self.memory, self.mask)[:, -1]
        if first:
            spread = torch.arange(len(logits), device=logits.device).repeat_interleave(self.beam)
            self.select(spread)
            logits = logits[spread]
        return logits

    def select(self, rows: Tensor) -> None:
        """Keep these rows, in this order."""
        self.memory, self.so_far, self.mask = self.memory[rows], self.so_far[rows], kept(self.mask, rows)


def reader_of(
    model: Transformer, sources: Sequence[Sequence[int]], special: Special, beam: int = 1
) -> tuple[CachedReader | WrittenReader, Tensor]:
    """Return a reader of some sources, with one row per beam, and the first token of each source, (B, 1)."""
    source, mask = padded(sources, special.pad, next(model.parameters()).device)
    starts = torch.full((len(source), 1), special.start, device=source.device)
    return reading(model, model.encode(source, mask), mask, beam), starts


def reading(model: Transformer, memory: Tensor, mask: Mask = EVERYTHING, beam: int = 1) -> CachedReader | WrittenReader:
    """Return the reader for a network, which has read its sources."""
    return (WrittenReader if is_written(model) else CachedReader)(model, memory, mask, beam)


class WholeReader:
    """Reads one answer again from its start at each step, without a batch dimension.

    An edit of values then sees all positions so far, in the shapes of a trace.
    """

    def __init__(self, model: Transformer, memory: Tensor) -> None:
        self.model, self.memory = model, memory  # (S, D)
        self.so_far = torch.empty(0, dtype=torch.long, device=memory.device)

    def read(self, new: Tensor) -> Tensor:
        """Read all tokens so far and the new ones, (1, n), and return the logits of the next, (1, V)."""
        self.so_far = torch.cat([self.so_far, new[0]])
        return self.model.decode(self.so_far, self.memory)[-1:]

    def select(self, rows: Tensor) -> None:
        """Keep the only row."""


Reader = CachedReader | WrittenReader | WholeReader
