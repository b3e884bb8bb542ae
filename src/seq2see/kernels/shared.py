"""What kernels share: masks of packed batches, the keys and values that decoding keeps, the rounding of dropout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from seq2see.model.masks import Mask

CHANCES = 2**16  # each number is kept or not by 16 random bits
Pair = tuple[Tensor, Tensor]  # keys and values


class Spans(NamedTuple):
    """For each query of a packed batch the keys that it sees, and for each key the queries that see it, as int32.

    Sentences are in order, so both are spans, from a first position to one past the last. Neither end ever decreases.
    """

    first_key: Tensor  # (T,)
    end_key: Tensor  # (T,)
    first_query: Tensor  # (S,)
    end_query: Tensor  # (S,)


@dataclass(frozen=True, kw_only=True)
class PackedMask(Mask):
    """A mask that also hides the keys of other sentences."""

    sentences: tuple[Tensor, Tensor]  # (T,) and (S,): the sentence of each query and of each key
    spans: Spans | None = None  # the same for a GPU's kernel, with ``causal`` included

    def allowed(self, T: int, S: int, device: torch.device) -> Tensor | None:
        """Return what is allowed as booleans that broadcast to (…, H, T, S)."""
        of_query, of_key = self.sentences
        together, others = of_query[:, None] == of_key, super().allowed(T, S, device)  # (T, S)
        return together if others is None else others & together


@dataclass(frozen=True)
class PackedMasks:
    """The three masks of a packed batch, and each token's place in its sentence."""

    source: PackedMask
    target: PackedMask
    cross: PackedMask
    source_place: Tensor  # (S,)
    target_place: Tensor  # (T,)


class Cache:
    """The earlier keys and values of one attention."""

    def __init__(self) -> None:
        self.k: Tensor | None = None
        self.v: Tensor | None = None

    def extended(self, k: Tensor, v: Tensor) -> Pair:
        """Add the keys and values of new positions, and return all: the past of self-attention grows at each step."""
        if self.k is not None and self.v is not None:
            k, v = torch.cat([self.k, k], dim=-3), torch.cat([self.v, v], dim=-3)
        self.k, self.v = k, v
        return k, v

    def once(self, keys_values: Callable[[Tensor], Pair], source: Tensor) -> Pair:
        """Return the keys and values of the source: cross-attention computes them at the first step only."""
        if self.k is None or self.v is None:
            return self.extended(*keys_values(source))
        return self.k, self.v

    def select(self, rows: Tensor) -> None:
        """Keep these rows of the batch, in this order."""
        if self.k is not None and self.v is not None:
            self.k, self.v = self.k.index_select(0, rows), self.v.index_select(0, rows)


class DecoderCache:
    """The memory of a decoder between two steps: a pair of caches for each layer, and their number of positions."""

    def __init__(self, layers: list[tuple[Cache, Cache]], length: int = 0) -> None:
        self.layers, self.length = layers, length

    @classmethod
    def empty(cls, layers: int) -> DecoderCache:
        """Begin with nothing."""
        return cls([(Cache(), Cache()) for _ in range(layers)])

    def select(self, rows: Tensor, sources: bool = True) -> None:
        """Keep these rows of the batch, in this order; without ``sources`` only those of the answers."""
        for own, cross in self.layers:
            own.select(rows)
            if sources:
                cross.select(rows)


def kept_chances(dropout: float) -> int:
    """Return in how many of ``CHANCES`` cases a number is kept."""
    return round((1 - dropout) * CHANCES)


def drops(dropout: float) -> bool:
    """Whether this rate drops anything, so that h has another gradient than x."""
    return kept_chances(dropout) < CHANCES
