"""Attention: equation 1, written out, and many heads (section 3.2)."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from seq2see.config import ModelConfig
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
    """h parallel attentions, each in its own learned subspace (section 3.2.2).

    MultiHead(Q, K, V) = Concat(head₁, …, head_h)·W^O, head_i = Attention(Q·W_i^Q, K·W_i^K, V·W_i^V)
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

    def forward(self, x: Tensor, source: Tensor, mask: Mask = EVERYTHING) -> Tensor:
        """Let each position of x (…, T, D) gather from source (…, S, D): (…, T, D)."""
        q = self.keep("q", self.split(self.w_q(x)))  # (…, T, H, K)
        k = self.keep("k", self.split(self.w_k(source)))  # (…, S, H, K)
        v = self.keep("v", self.split(self.w_v(source)))  # (…, S, H, K)
        z = self.keep("z", written_attention(q, k, v, mask, self.keep))  # (…, T, H, K)
        return self.keep("out", self.w_o(z.flatten(-2)))  # (…, T, D)
