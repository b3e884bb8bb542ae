"""Equation 1 for one query a row on a GPU, over keys that lie in buffers: a kernel of our own, in Triton.

PyTorch's kernels are made for many queries and leave most of a GPU idle for one. This kernel reads each key and value
once, where it lies, and does not read those that the mask hides.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from seq2see.masks import Mask

FILLS_A_GPU = 1024  # programs; with so many, each takes a few keys at a time, otherwise many


@triton.jit  # type: ignore[untyped-decorator]
def _attend(  # type: ignore[no-untyped-def]
    q, k, v, rows, keys, z, S, heads, q_row, q_head, keys_stride, SCALE: tl.constexpr,
    K: tl.constexpr, V: tl.constexpr, K_ALL: tl.constexpr, V_ALL: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Let one row's head gather from its keys, BLOCK of them at a time, with a softmax that is corrected on the way."""
    row, head = tl.program_id(0), tl.program_id(1)
    in_k, in_v = tl.arange(0, K_ALL), tl.arange(0, V_ALL)
    query = tl.load(q + row * q_row + head * q_head + in_k, mask=in_k < K, other=0.0).to(tl.float32) * SCALE
    largest, total = -float("inf"), 0.0
    gathered = tl.zeros([V_ALL], tl.float32)
    for start in range(0, S, BLOCK):
        place = start + tl.arange(0, BLOCK)
        # what is hidden is never read
        seen = tl.load(keys + row * keys_stride + place, mask=place < S, other=0) != 0
        at = tl.load(rows + row * S + place, mask=seen, other=0).to(tl.int64) * S + place
        key = tl.load(
            k + (at[:, None] * heads + head) * K + in_k[None, :],
            mask=seen[:, None] & (in_k < K)[None, :],
            other=0.0,
        )
        value = tl.load(
            v + (at[:, None] * heads + head) * V + in_v[None, :],
            mask=seen[:, None] & (in_v < V)[None, :],
            other=0.0,
        )
        scores = tl.where(seen, tl.sum(query[None, :] * key.to(tl.float32), 1), -float("inf"))
        larger = tl.maximum(largest, tl.max(scores, 0))
        weights, old = tl.exp(scores - larger), tl.exp(largest - larger)
        total = total * old + tl.sum(weights, 0)
        gathered = gathered * old + tl.sum(weights[:, None] * value.to(tl.float32), 0)
        largest = larger
    out = z + (row * heads + head) * V + in_v
    tl.store(out, (gathered / total).to(z.dtype.element_ty), mask=in_v < V)


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
    """Map q (R, 1, H, K), k (N, S, H, K) and v (N, S, H, V) to (R, 1, H, V).

    The mask has ``rows`` (R, S), the row of the N in which each key lies, and ``keys`` (R or 1, S), which may be seen:
    the first always. All but q are contiguous.
    """
    rows, keys = mask.rows, mask.keys
    assert rows is not None
    assert keys is not None
    R, _, H, K = q.shape
    S, V = k.shape[1], v.shape[-1]
    z = torch.empty(R, 1, H, V, dtype=q.dtype, device=q.device)
    block, warps = (16, 1) if R * H >= FILLS_A_GPU else (64, 2)
    _attend[R, H](
        q, k, v, rows, keys, z, S, H, q.stride(0), q.stride(2), S if len(keys) > 1 else 0,
        1 / math.sqrt(K), K, V, triton.next_power_of_2(K), triton.next_power_of_2(V), block, num_warps=warps,
    )  # fmt: skip
    return z
