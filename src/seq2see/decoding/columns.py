"""Caches for many rows of narrow heads on a CPU.

Kernels that take one row and one head at a time are slow where each holds only a few numbers. Here the rows of the batch
lie side by side in memory, so that whole columns are multiplied at once; attention sees it by the strides.
"""

from __future__ import annotations

import torch
from torch import Tensor

from seq2see.model.attention import Cache, MultiHeadAttention
from seq2see.model.decoder import DecoderCache
from seq2see.model.transformer import Transformer

NARROW = 96  # source tokens × d_k up to which columns are faster than PyTorch's kernel
MANY = 64  # rows from which they are


class ColumnCache(Cache):
    """Keys and values in memory as (S, H, K, B), for the model (B, S, H, K)."""

    def extended(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add the keys and values of new positions, and return all."""
        k, v = k.movedim(0, -1), v.movedim(0, -1)
        if self.k is None or self.v is None:
            self.k, self.v = k.contiguous(), v.contiguous()
        else:
            self.k, self.v = torch.cat([self.k, k]), torch.cat([self.v, v])
        return self.k.movedim(-1, 0), self.v.movedim(-1, 0)

    def once(self, attention: MultiHeadAttention, source: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys and values of the source, computed at the first call."""
        if self.k is None or self.v is None:
            return self.extended(*attention.keys_values(source))
        return self.k.movedim(-1, 0), self.v.movedim(-1, 0)

    def select(self, rows: Tensor) -> None:
        """Keep these rows of the batch, in this order."""
        if self.k is not None and self.v is not None:
            self.k, self.v = self.k.index_select(-1, rows), self.v.index_select(-1, rows)


def fitting_cache(model: Transformer, rows: int, source_length: int) -> DecoderCache:
    """Return an empty cache of the kind that is faster for so many rows of this model."""
    cache, config = model.new_cache(), model.config
    assert config.d_k is not None
    on_cpu = next(model.parameters()).device.type == "cpu"
    if on_cpu and rows >= MANY and config.d_k * source_length <= NARROW:
        cache.layers = [(ColumnCache(), ColumnCache()) for _ in cache.layers]
    return cache
