"""Two GPU kernels for decoding, where PyTorch's own need several passes over memory.

Attention of one query a row over cached keys: PyTorch's kernels are made for many queries, and leave most of a GPU idle
for one. This one reads each key and value once, where it lies, and those that the mask hides not at all. And the choice
of a token: one look at all logits. They need Triton, which comes with PyTorch for CUDA.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

MANY = 1024  # programs that fill a GPU: each then takes a few keys at a time, otherwise many
GROUP = 8  # parts of a row of logits that one program reads


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


def one_query_attention(q: Tensor, k: Tensor, v: Tensor, rows: Tensor, keys: Tensor) -> Tensor:
    """Map q (R, 1, H, K), k (N, S, H, K) and v (N, S, H, V) to (R, 1, H, V).

    rows (R, S) says in which of the N rows each key lies, and keys (R or 1, S) which may be seen: the first always.
    All but q are contiguous.
    """
    R, _, H, K = q.shape
    S, V = k.shape[1], v.shape[-1]
    z = torch.empty(R, 1, H, V, dtype=q.dtype, device=q.device)
    block, warps = (16, 1) if R * H >= MANY else (64, 2)
    _attend[R, H](
        q, k, v, rows, keys, z, S, H, q.stride(0), q.stride(2), S if len(keys) > 1 else 0,
        1 / math.sqrt(K), K, V, triton.next_power_of_2(K), triton.next_power_of_2(V), block, num_warps=warps,
    )  # fmt: skip
    return z


@triton.jit  # type: ignore[untyped-decorator]
def _scan(x, maxima, logs, V, parts, PART: tl.constexpr, GROUP: tl.constexpr):  # type: ignore[no-untyped-def]
    """Find the maximum and log Σ exp of some parts of a row."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1) * GROUP + tl.arange(0, GROUP)
    place = part[:, None] * PART + tl.arange(0, PART)[None, :]
    values = tl.load(x + row * V + place, mask=place < V, other=-float("inf")).to(tl.float32)
    maximum = tl.max(values, 1)
    finite = tl.where(maximum == -float("inf"), 0.0, maximum)  # all of a part may be forbidden
    log = finite + tl.log(tl.sum(tl.exp(values - finite[:, None]), 1))
    tl.store(maxima + row * parts + part, maximum, mask=part < parts)
    tl.store(logs + row * parts + part, log, mask=part < parts)


def scan(x: Tensor, part: int) -> tuple[Tensor, Tensor]:
    """Cut each row of x (…, V) into parts; return the maximum and log Σ exp of each, (…, parts), in float32."""
    V = x.shape[-1]
    rows, parts = x.numel() // V, triton.cdiv(V, part)
    maxima, logs = (torch.empty(*x.shape[:-1], parts, device=x.device) for _ in range(2))
    _scan[rows, triton.cdiv(parts, GROUP)](x.contiguous(), maxima, logs, V, parts, part, GROUP, num_warps=1)
    return maxima, logs
