"""The keys and values that decoding keeps, (B, S, H, K), so that no step computes them again."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Pair = tuple[Tensor, Tensor]  # keys and values


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
