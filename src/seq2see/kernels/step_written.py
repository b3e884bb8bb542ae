"""The operations of a decoding step as PyTorch has them, on any device. ``step_kernels`` has the same as kernels of ours.

R is the number of rows: sentences × beams. Each row has one new position.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"": lambda x: x, "relu": F.relu, "gelu": F.gelu, "swish": F.silu}


def embed(
    ids: Tensor, position: Tensor, table: Tensor, places: Tensor, scale: float, norm: nn.LayerNorm | None
) -> Tensor:
    """Map ids (R,), all at one position (1,), to vectors (R, D)."""
    x = table[ids] * scale + places[position]
    return x if norm is None else norm(x)


def product(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    norm: nn.LayerNorm | None = None,
    activation: str = "",
    residual: Tensor | None = None,
    residual_norm: nn.LayerNorm | None = None,
) -> Tensor:
    """Return activation(norm(x)·Wᵀ + b) + residual_norm(residual), (R, N); what is not given is left out."""
    y = ACTIVATIONS[activation](F.linear(x if norm is None else norm(x), weight, bias))
    if residual is None:
        return y
    return y + (residual if residual_norm is None else residual_norm(residual))


def add_norm(x: Tensor, y: Tensor, norm: nn.LayerNorm) -> tuple[Tensor, Tensor]:
    """Return x + y and norm(x + y), (R, D) each."""
    total = x + y
    return total, norm(total)


def attend_past(qkv: Tensor, k: Tensor, v: Tensor, position: Tensor, rows: Tensor, beam: int) -> Tensor:
    """Put the new keys and values into the buffers (R, L, H, K), and let each row gather from its past: (R, H·V).

    qkv (R, H·(2K + V)) holds the new queries, keys and values; rows (R, L) says in which row each position lies.
    """
    R, L, H, K = k.shape
    q, new_k, new_v = torch.split(qkv, [H * K, H * K, H * v.shape[-1]], dim=-1)
    k.index_copy_(1, position, new_k.view(R, 1, H, K))
    v.index_copy_(1, position, new_v.view(R, 1, H, -1))
    places = torch.arange(L, device=k.device)
    return _attend(q, k[rows, places], v[rows, places], (places <= position)[None])


def attend_source(q: Tensor, k: Tensor, v: Tensor, real: Tensor, beam: int) -> Tensor:
    """Let each row (R, H·K) gather from its sentence's source (B, S, H, K), where it is real (B, S): (R, H·V)."""
    sentence = torch.arange(len(q), device=q.device) // beam
    return _attend(q, k[sentence], v[sentence], real[sentence])


def _attend(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    R, _, H, K = k.shape
    scores = torch.einsum("rhk,rshk->rhs", q.view(R, H, K), k) / math.sqrt(K)
    weights = scores.masked_fill(~seen[:, None], -math.inf).softmax(-1)
    return torch.einsum("rhs,rshk->rhk", weights, v).flatten(1)
