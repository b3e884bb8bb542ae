"""Attention: equation 1, written out; many heads; the keys and values that decoding keeps (section 3.2)."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seq2see.config import ModelConfig
from seq2see.model.fused import fused_attention
from seq2see.model.masks import EVERYTHING, Mask
from seq2see.model.sublayers import Observable

Keep = Callable[[str, Tensor], Tensor]


def written_attention(q: Tensor, k: Tensor, v: Tensor, mask: Mask, keep: Keep = lambda name, x: x) -> Tensor:
    """Scaled dot-product attention, softmax(Q·Kᵀ / √d_k)·V, step by step (section 3.2.1, eq. 1).

    Maps q (…, T, H, K) and k, v (…, S, H, K) to (…, T, H, K); ``keep`` sees each step by name.
    """
    scores = keep("scores", torch.einsum("...thk,...shk->...hts", q, k))  # (…, H, T, S)
    scaled = keep("scaled", scores / math.sqrt(q.shape[-1]))
    allowed = mask.allowed(q.shape[-3], k.shape[-3], q.device)
    masked = keep("masked", scaled if allowed is None else scaled.masked_fill(~allowed, -math.inf))
    weights = keep("weights", masked.softmax(-1))
    return torch.einsum("...hts,...shk->...thk", weights, v)  # (…, T, H, K)


class MultiHeadAttention(Observable):
    """h attentions side by side, each in a learned subspace of its own (section 3.2.2).

    MultiHead(Q, K, V) = Concat(head₁, …, head_h)·W^O,  head_i = Attention(Q·W_i^Q, K·W_i^K, V·W_i^V)
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        assert config.d_k is not None
        assert config.d_v is not None
        self.heads = config.heads
        self.w_q = nn.Linear(config.d_model, config.heads * config.d_k)
        self.w_k = nn.Linear(config.d_model, config.heads * config.d_k)
        self.w_v = nn.Linear(config.d_model, config.heads * config.d_v)
        self.w_o = nn.Linear(config.heads * config.d_v, config.d_model)

    def split(self, x: Tensor) -> Tensor:
        """Cut the last dimension into heads: (…, T, H·K) to (…, T, H, K)."""
        return x.view(*x.shape[:-1], self.heads, -1)

    def project(self, x: Tensor, *matrices: nn.Linear) -> list[Tensor]:
        """Multiply (…, T, D) by several matrices and cut into heads, (…, T, H, K) each.

        In training there are many more rows than columns, and one wide product is faster than several narrow ones.
        """
        if not self.training:
            return [self.split(matrix(x)) for matrix in matrices]
        weight = torch.cat([matrix.weight for matrix in matrices])
        bias = torch.cat([matrix.bias for matrix in matrices])
        parts = torch.split(F.linear(x, weight, bias), [matrix.out_features for matrix in matrices], dim=-1)
        return [self.split(part) for part in parts]

    def keys_values(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Project what is attended to, (…, S, D), to keys and values (…, S, H, K)."""
        k, v = self.project(source, self.w_k, self.w_v)
        return k, v

    def forward(
        self, x: Tensor, source: Tensor, mask: Mask = EVERYTHING, cache: Cache | None = None
    ) -> Tensor:
        """Let each position of x (…, T, D) gather from source (…, S, D): (…, T, D)."""
        if x is source:
            q, k, v = self.project(x, self.w_q, self.w_k, self.w_v)  # (…, T, H, K)
            k, v = (k, v) if cache is None else cache.extended(k, v)  # (…, S, H, K)
        else:
            (q,) = self.project(x, self.w_q)
            k, v = self.keys_values(source) if cache is None else cache.once(self, source)
        q, k, v = self.keep("q", q), self.keep("k", k), self.keep("v", v)
        if self.recorder is None:
            z = fused_attention(q, k, v, mask)  # (…, T, H, K)
        else:
            z = self.keep("z", written_attention(q, k, v, mask, self.keep))
        return self.keep("out", self.w_o(z.flatten(-2)))  # (…, T, D)


class Cache:
    """The keys and values that one attention has computed before; decoding need not compute them again."""

    def __init__(self) -> None:
        self.k: Tensor | None = None
        self.v: Tensor | None = None

    def extended(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add the keys and values of new positions, and return all: self-attention's past grows with each step."""
        if self.k is not None and self.v is not None:
            k, v = torch.cat([self.k, k], dim=-3), torch.cat([self.v, v], dim=-3)
        self.k, self.v = k, v
        return k, v

    def once(self, attention: MultiHeadAttention, source: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys and values of the source: in cross-attention the first step's serve all."""
        if self.k is None or self.v is None:
            self.k, self.v = attention.keys_values(source)
        return self.k, self.v

    def select(self, rows: Tensor) -> None:
        """Keep these rows of the batch, in this order."""
        if self.k is not None and self.v is not None:
            self.k, self.v = self.k.index_select(0, rows), self.v.index_select(0, rows)
