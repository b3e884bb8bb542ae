"""Attention: equation 1 with its two bodies, masks as data, caches, and many heads (section 3.2)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from importlib.util import find_spec

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, FlexKernelOptions, flex_attention

from seq2see.config import ModelConfig
from seq2see.model.sublayers import Observable


@dataclass(frozen=True)
class Mask:
    """Which query may attend to which key. True means may.

    A mask is data, so that the kernel can be chosen by it. ``causal`` hides the keys after a query's own
    position, the last query standing at the last key (so one new query may see every cached key). ``keys``
    hides padding. ``sentences`` keeps the sentences of a packed batch apart, and ``blocks`` says the same to
    FlexAttention. ``rows`` says where a row's keys lie if not in its own. Every query must be left at least one
    key: batching sees to that.
    """

    causal: bool = False
    keys: Tensor | None = None  # (B, S)
    sentences: tuple[Tensor, Tensor] | None = (
        None  # (T,) and (S,): the sentence of each query and of each key
    )
    blocks: BlockMask | None = None
    rows: Tensor | None = None  # (B, S): the row of k and v in which each key and value is

    def select(self, rows: Tensor) -> Mask:
        """Keep these rows of the batch, in this order."""
        assert self.rows is None, "keys and values must be gathered first"
        return self if self.keys is None else replace(self, keys=self.keys[rows])

    def gathered(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Mask]:
        """Return the keys and values of each row, (B, S, H, K), and the mask that is left."""
        places = torch.arange(k.shape[1], device=k.device)
        return k[self.rows, places], v[self.rows, places], replace(self, rows=None)

    def allowed(self, T: int, S: int, device: torch.device) -> Tensor | None:
        """Return the mask as booleans that broadcast to (…, H, T, S), or None if everything is allowed."""
        assert self.rows is None, "keys and values must be gathered first"
        parts = []
        if self.causal and T > 1:
            parts.append(torch.ones(T, S, dtype=torch.bool, device=device).tril(S - T))  # (T, S)
        if self.keys is not None:
            parts.append(self.keys[..., None, None, :])  # (B, 1, 1, S)
        if self.sentences is not None:
            of_query, of_key = self.sentences
            parts.append(of_query[:, None] == of_key)  # (T, S)
        return reduce(torch.logical_and, parts) if parts else None


#: FlexAttention need not jump: a row's blocks are neighbours. (Rows are not "guaranteed safe" in its sense: a
#: query's first block may hold none of its keys.)
BLOCKS: FlexKernelOptions = {"BLOCKS_ARE_CONTIGUOUS": True}
HAS_TRITON = find_spec("triton") is not None
EVERYTHING = Mask()
CAUSAL = Mask(causal=True)


@dataclass(frozen=True)
class PackedMasks:
    """What holds the sentences of a packed batch together: three masks, and each token's place in its sentence."""

    source: Mask
    target: Mask
    cross: Mask
    source_place: Tensor  # (S,)
    target_place: Tensor  # (T,)


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


def fused_attention(q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
    """The same equation by PyTorch's kernels, or ours for one query on a GPU; a test holds the two equal."""
    T, S = q.shape[-3], k.shape[-3]
    if mask.rows is not None:
        if q.is_cuda and T == 1 and mask.keys is not None and HAS_TRITON:
            from seq2see.model.kernels import one_query_attention

            return one_query_attention(q, k, v, mask.rows, mask.keys)
        k, v, mask = mask.gathered(k, v)
    if T == 1 and k.stride(-1) > 1:  # the rows of the batch lie side by side: see columns.py
        q, k, v = (x.movedim(0, -1) for x in (q, k, v))  # (1 or S, H, K, B)
        scores = (q.contiguous() / math.sqrt(q.shape[-2]) * k).sum(-2)  # (S, H, B)
        if mask.keys is not None:
            scores = scores.masked_fill(~mask.keys.T[:, None], -math.inf)
        z = (scores.softmax(0)[:, :, None] * v).sum(0)  # (H, K, B)
        return z.movedim(-1, 0)[:, None]  # (B, 1, H, K)
    q, k, v = (x.transpose(-3, -2) for x in (q, k, v))  # (…, H, T, K)
    if mask.blocks is not None:
        z = flex_attention(q[None], k[None], v[None], block_mask=mask.blocks, kernel_options=BLOCKS)[0]
    else:
        plain_causal = mask.causal and mask.keys is None and mask.sentences is None and T == S and T > 1
        z = F.scaled_dot_product_attention(
            q, k, v, attn_mask=None if plain_causal else mask.allowed(T, S, q.device), is_causal=plain_causal
        )
    return z.transpose(-3, -2)  # (…, T, H, K)


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
