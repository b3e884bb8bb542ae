"""Attention of one query a row over cached keys, as one GPU kernel: a step of decoding is six to twelve of them.

PyTorch's kernels are made for many queries, and leave most of a GPU idle for one. This one reads each key and value once,
where it lies, and those that the mask hides not at all. It needs Triton, which comes with PyTorch for CUDA.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 16  # keys that a program reads at a time
WARPS = 1


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
        seen = (
            tl.load(keys + row * keys_stride + place, mask=place < S, other=0) != 0
        )  # what is hidden is never read
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


def one_query_attention(q: Tensor, k: Tensor, v: Tensor, rows: Tensor, keys: Tensor) -> Tensor:
    """Map q (R, 1, H, K) and k, v (N, S, H, K) to (R, 1, H, K).

    rows (R, S) says in which of the N rows each key lies, and keys (R or 1, S) which may be seen: the first always.
    """
    R, _, H, K = q.shape
    S, V = k.shape[1], v.shape[-1]
    z = torch.empty(R, 1, H, V, dtype=q.dtype, device=q.device)
    _attend[R, H](
        q, k, v, rows, keys, z, S, H, q.stride(0), q.stride(2), S if len(keys) > 1 else 0,
        1 / math.sqrt(K), K, V, triton.next_power_of_2(K), triton.next_power_of_2(V), BLOCK, num_warps=WARPS,
    )  # fmt: skip
    return z
