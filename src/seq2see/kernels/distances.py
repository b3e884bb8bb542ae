"""Positions as distances, in self-attention instead of in the embedding: rotary, and relative biases as in T5.

Each replaces the self-attention of every layer; ``registry.network_of`` puts it there. The table of positions that the
embedding adds is zero. In a packed batch the places of two tokens of one sentence differ by their distance, so their
places in the batch serve as positions.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seq2see.config import RELATIVE_BUCKETS as BUCKETS
from seq2see.config import ModelConfig
from seq2see.kernels.layers import SelfAttention
from seq2see.kernels.shared import Cache, PackedMask
from seq2see.model.masks import EVERYTHING, Mask

EXACT, FARTHEST = 16, 512  # of relative distances: those of a direction with a bucket each, and where the last begins


def places_of(mask: Mask, T: int, before: int, device: torch.device) -> Tensor:
    """Return the place of each query in its sentence, (T,), with ``before`` tokens in the cache."""
    at = torch.arange(before, before + T, device=device)
    if not isinstance(mask, PackedMask):
        return at
    if mask.spans is not None:
        return at - mask.spans.first_key
    return at - torch.searchsorted(mask.sentences[0], mask.sentences[0])


def turned(x: Tensor, at: Tensor) -> Tensor:
    """Turn each pair (i, i + K/2) of x (…, T, H, K) by the angle at / 10000^(2i/K) (Su et al., 2021), in float32.

    The product of a turned query and a turned key depends on their distance, not on their places.
    """
    half = x.shape[-1] // 2
    rates = torch.exp(torch.arange(half, device=x.device, dtype=torch.float32) * (-math.log(10000) / half))
    angles = at.float()[:, None, None] * rates  # (T, 1, K/2)
    cos, sin = torch.cos(angles), torch.sin(angles)
    first, second = x[..., :half].float(), x[..., half:].float()
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1).to(x.dtype)


class RotaryAttention(SelfAttention):
    """Self-attention whose queries and keys are turned by their places."""

    causal: bool

    def begin(self, config: ModelConfig) -> None:
        """Take on what the config has: nothing is learned here."""

    def forward(self, x: Tensor, source: Tensor, mask: Mask = EVERYTHING, cache: Cache | None = None) -> Tensor:
        """Let each position of x (…, T, D) gather from all: (…, T, D)."""
        q, k, v = self.project(x, self.w_q, self.w_k, self.w_v)  # (…, T, H, K)
        before = 0 if cache is None or cache.k is None else cache.k.shape[-3]
        at = places_of(mask, q.shape[-3], before, x.device)
        q, k = turned(q, at), turned(k, at)
        k, v = (k, v) if cache is None else cache.extended(k, v)
        return self.gathered(q, k, v, mask)


def bucket_of(distance: Tensor, causal: bool) -> Tensor:
    """Return the bucket of each distance, key minus query: exact near zero, logarithmic further away.

    Half of the buckets are for each direction, as in T5; a causal mask leaves one direction, which has them all.
    """
    count = BUCKETS if causal else BUCKETS // 2
    exact = 2 * EXACT if causal else EXACT
    far = (-distance).clamp(min=0) if causal else distance.abs()
    share = torch.log(far.clamp(min=1).float() / exact) / math.log(FARTHEST / exact)
    bucket = torch.where(far < exact, far, (exact + share * (count - exact)).long().clamp(max=count - 1))
    return bucket if causal else bucket + count * (distance > 0)


class RelativeAttention(SelfAttention):
    """Self-attention whose scores have a learned bias for each distance and head."""

    causal: bool
    distances: nn.Parameter

    def begin(self, config: ModelConfig) -> None:
        """Take on the biases, (BUCKETS, H), which are zero at first."""
        self.distances = nn.Parameter(torch.zeros(BUCKETS, config.heads))

    def biases(self, T: int, S: int) -> Tensor:
        """Return the bias of each query and key, (H, T, S); the last query is at the last key."""
        device = self.distances.device
        distance = torch.arange(S, device=device) - torch.arange(S - T, S, device=device)[:, None]  # (T, S)
        return self.distances[bucket_of(distance, self.causal)].permute(2, 0, 1)

    def gathered(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        """Map q (…, T, H, K) and k, v (…, S, H, K) to (…, T, D)."""
        q, k, v = self.keep("q", q), self.keep("k", k), self.keep("v", v)
        T, S = q.shape[-3], k.shape[-3]
        bias, allowed = self.keep("biases", self.biases(T, S)), mask.allowed(T, S, q.device)
        if self.recorder is None:
            seen = (bias if allowed is None else bias.masked_fill(~allowed, -math.inf)).to(q.dtype)
            q, k, v = (x.transpose(-3, -2) for x in (q, k, v))  # (…, H, T, K)
            z = F.scaled_dot_product_attention(q, k, v, attn_mask=seen).transpose(-3, -2)
        else:
            z = self.keep("z", self._written(q, k, v, bias, allowed))
        return self.keep("out", self.w_o(z.flatten(-2)))  # (…, T, D)

    def _written(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor, allowed: Tensor | None) -> Tensor:
        """Equation 1 step by step, with the biases added to the scaled scores."""
        scores = self.keep("scores", torch.einsum("...thk,...shk->...hts", q, k))
        scaled = self.keep("scaled", scores / math.sqrt(q.shape[-1])) + bias
        masked = self.keep("masked", scaled if allowed is None else scaled.masked_fill(~allowed, -math.inf))
        return torch.einsum("...hts,...shk->...thk", self.keep("weights", masked.softmax(-1)), v)


#: What self-attention becomes for these values of model.positions.
DISTANCES: dict[str, type[RotaryAttention | RelativeAttention]] = {
    "rotary": RotaryAttention,
    "relative": RelativeAttention,
}
