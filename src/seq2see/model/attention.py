"""Attention: equation 1, written out, and many heads (section 3.2)."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from seq2see.config import ModelConfig
from seq2see.model.fast import fast_attention
from seq2see.model.fast.cache import Cache
from seq2see.model.fast.projections import SideBySide, products
from seq2see.model.masks import EVERYTHING, Mask
from seq2see.model.sublayers import Observable

Keep = Callable[[str, Tensor], Tensor]


def written_attention(q: Tensor, k: Tensor, v: Tensor, mask: Mask, keep: Keep = lambda name, x: x) -> Tensor:
    """Scaled dot-product attention, softmax(Q·Kᵀ / √d_k)·V, step by step (section 3.2.1, eq. 1).

    Maps q (…, T, H, K) and k, v (…, S, H, K) to (…, T, H, K); ``keep`` sees each step by name. ``fast_attention``
    computes the same without the steps.
    """
    scores = keep("scores", torch.einsum("...thk,...shk->...hts", q, k))  # (…, H, T, S)
    scaled = keep("scaled", scores / math.sqrt(q.shape[-1]))
    allowed = mask.allowed(q.shape[-3], k.shape[-3], q.device)
    masked = keep("masked", scaled if allowed is None else scaled.masked_fill(~allowed, -math.inf))
    weights = keep("weights", masked.softmax(-1))
    return torch.einsum("...hts,...shk->...thk", weights, v)  # (…, T, H, K)


def strayed(q: Tensor, k: Tensor, mask: Mask, places: Tensor) -> Tensor:
    """Return -log of the weight that the first head gives to the key at ``places`` (…, T), summed; -1 counts as 0."""
    scores = torch.einsum("...tk,...sk->...ts", q[..., 0, :], k[..., 0, :]) / math.sqrt(q.shape[-1])
    allowed = mask.allowed(q.shape[-3], k.shape[-3], q.device)
    if allowed is not None:
        scores = scores.masked_fill(~(allowed.squeeze(-3) if allowed.dim() > 2 else allowed), -math.inf)
    found = scores.float().log_softmax(-1).gather(-1, places.clamp(min=0)[..., None]).squeeze(-1)
    return -found.masked_fill(places < 0, 0.0).sum()


class MultiHeadAttention(Observable):
    """h parallel attentions, each in its own learned subspace (section 3.2.2).

    MultiHead(Q, K, V) = Concat(head₁, …, head_h)·W^O, head_i = Attention(Q·W_i^Q, K·W_i^K, V·W_i^V)
    """

    guided: bool = False  # whether training guides its first head: then ``asked`` keeps q and k
    asked: tuple[Tensor, Tensor] | None = None
    whole: SideBySide | None = None  # W^Q, W^K and W^V in one piece of memory, for decoding on a GPU

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
        """Multiply (…, T, D) by some matrices, add their biases and cut into heads, (…, T, H, K) each."""
        return [self.split(product) for product in products(x, matrices, self.training, self.whole)]

    def keys_values(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Project the source of attention, (…, S, D), to keys and values (…, S, H, K)."""
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
            k, v = self.keys_values(source) if cache is None else cache.once(self.keys_values, source)
        q, k, v = self.keep("q", q), self.keep("k", k), self.keep("v", v)
        if self.guided and self.training:
            self.asked = q, k
        if self.recorder is None:
            z = fast_attention(q, k, v, mask)  # (…, T, H, K)
        else:
            z = self.keep("z", written_attention(q, k, v, mask, self.keep))
        return self.keep("out", self.w_o(z.flatten(-2)))  # (…, T, D)
