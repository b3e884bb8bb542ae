"""Equation 1 for packed batches on a GPU, and its gradients: kernels of our own, in Triton.

The sentences of a packed batch are in order, so each query sees one span of keys. A block of queries reads the keys
from the first span's beginning to the last one's end, and nothing else. A library's kernel would give each short
sentence a large block of its own.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 64  # queries, or keys, of one program
STEP = 32  # keys, or queries, that they are multiplied with at a time
WIDE = 128  # numbers of a head in 16 bits; with wider ones, blocks and steps are smaller
WARPS = 4
STAGES = 3


@triton.jit  # type: ignore[untyped-decorator]
def read_rows(x, row, head, at, count, WIDTH: tl.constexpr, ALL: tl.constexpr):  # type: ignore[no-untyped-def]
    """Read some rows of a head, (rows, ALL). Rows after the last and numbers after WIDTH are 0."""
    place = tl.arange(0, ALL)
    inside = (at < count)[:, None]
    if WIDTH < ALL:
        inside = inside & (place < WIDTH)[None, :]
    return tl.load(x + at[:, None].to(tl.int64) * row + (head + place)[None, :], mask=inside, other=0.0)


@triton.jit  # type: ignore[untyped-decorator]
def write_rows(x, value, row, head, at, count, WIDTH: tl.constexpr, ALL: tl.constexpr):  # type: ignore[no-untyped-def]
    """Write some rows of a head."""
    place = tl.arange(0, ALL)
    inside = (at < count)[:, None]
    if WIDTH < ALL:
        inside = inside & (place < WIDTH)[None, :]
    to = x + at[:, None].to(tl.int64) * row + (head + place)[None, :]
    tl.store(to, value.to(x.dtype.element_ty), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _attend(  # type: ignore[no-untyped-def]
    q, k, v, first, end, z, logs, T, S, q_row, q_head, k_row, k_head, v_row, v_head, z_row, SCALE: tl.constexpr,
    K: tl.constexpr, V: tl.constexpr, K_ALL: tl.constexpr, V_ALL: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Let a block of queries gather from their keys, with a softmax that is corrected on the way.

    ``logs`` becomes the log₂ of the sum that each softmax divides by.
    """
    head, start = tl.program_id(0), tl.program_id(1) * BLOCK
    at = start + tl.arange(0, BLOCK)
    query = read_rows(q, q_row, head * q_head, at, T, K, K_ALL)
    low, high = tl.load(first + at, mask=at < T, other=0), tl.load(end + at, mask=at < T, other=0)
    largest = tl.full([BLOCK], -1e30, tl.float32)  # finite: the first block may have none of a query's keys
    total = tl.zeros([BLOCK], tl.float32)
    gathered = tl.zeros([BLOCK, V_ALL], tl.float32)
    for begin in range(tl.load(first + start), tl.load(end + tl.minimum(start + BLOCK, T) - 1), STEP):
        keys = begin + tl.arange(0, STEP)
        key = read_rows(k, k_row, head * k_head, keys, S, K, K_ALL)
        value = read_rows(v, v_row, head * v_head, keys, S, V, V_ALL)
        scores = tl.dot(query, tl.trans(key), input_precision="ieee") * SCALE
        seen = (keys[None, :] >= low[:, None]) & (keys[None, :] < high[:, None])
        scores = tl.where(seen, scores, -float("inf"))
        larger = tl.maximum(largest, tl.max(scores, 1))
        weights, old = tl.exp2(scores - larger[:, None]), tl.exp2(largest - larger)
        total = total * old + tl.sum(weights, 1)
        gathered = gathered * old[:, None] + tl.dot(weights.to(value.dtype), value, input_precision="ieee")
        largest = larger
    write_rows(z, gathered / total[:, None], z_row, head * V, at, T, V, V_ALL)
    tl.store(logs + head * T + at, largest + tl.log2(total), mask=at < T)


@triton.jit  # type: ignore[untyped-decorator]
def _to_queries(  # type: ignore[no-untyped-def]
    q, k, v, first, end, z, logs, dz, dq, shares, T, S, q_row, q_head, k_row, k_head, v_row, v_head, z_row, dz_row,
    dz_head, dq_row, SCALE: tl.constexpr, UNSCALED: tl.constexpr,
    K: tl.constexpr, V: tl.constexpr, K_ALL: tl.constexpr, V_ALL: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Find the gradient of a block of queries. ``shares`` becomes Σ z·dz, which the softmax's gradient needs."""
    head, start = tl.program_id(0), tl.program_id(1) * BLOCK
    at = start + tl.arange(0, BLOCK)
    query = read_rows(q, q_row, head * q_head, at, T, K, K_ALL)
    back = read_rows(dz, dz_row, head * dz_head, at, T, V, V_ALL)
    low, high = tl.load(first + at, mask=at < T, other=0), tl.load(end + at, mask=at < T, other=0)
    log = tl.load(logs + head * T + at, mask=at < T, other=0.0)
    answer = read_rows(z, z_row, head * V, at, T, V, V_ALL)
    share = tl.sum(answer.to(tl.float32) * back.to(tl.float32), 1)
    tl.store(shares + head * T + at, share, mask=at < T)
    gathered = tl.zeros([BLOCK, K_ALL], tl.float32)
    for begin in range(tl.load(first + start), tl.load(end + tl.minimum(start + BLOCK, T) - 1), STEP):
        keys = begin + tl.arange(0, STEP)
        key = read_rows(k, k_row, head * k_head, keys, S, K, K_ALL)
        value = read_rows(v, v_row, head * v_head, keys, S, V, V_ALL)
        scores = tl.dot(query, tl.trans(key), input_precision="ieee") * SCALE
        seen = (keys[None, :] >= low[:, None]) & (keys[None, :] < high[:, None])
        weights = tl.where(seen, tl.exp2(scores - log[:, None]), 0.0)
        pull = tl.dot(back, tl.trans(value), input_precision="ieee")
        change = (weights * (pull - share[:, None])).to(key.dtype)
        gathered += tl.dot(change, key, input_precision="ieee")
    write_rows(dq, gathered * UNSCALED, dq_row, head * K, at, T, K, K_ALL)


@triton.jit  # type: ignore[untyped-decorator]
def _to_keys(  # type: ignore[no-untyped-def]
    q, k, v, first, end, first_query, end_query, logs, dz, shares, dk, dv, T, S, q_row, q_head, k_row, k_head, v_row,
    v_head, dz_row, dz_head, dk_row, dv_row, SCALE: tl.constexpr, UNSCALED: tl.constexpr,
    K: tl.constexpr, V: tl.constexpr, K_ALL: tl.constexpr, V_ALL: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Find the gradients of a block of keys and values: as ``_to_queries``, with rows and columns exchanged."""
    head, start = tl.program_id(0), tl.program_id(1) * BLOCK
    keys = start + tl.arange(0, BLOCK)
    key = read_rows(k, k_row, head * k_head, keys, S, K, K_ALL)
    value = read_rows(v, v_row, head * v_head, keys, S, V, V_ALL)
    to_key, to_value = tl.zeros([BLOCK, K_ALL], tl.float32), tl.zeros([BLOCK, V_ALL], tl.float32)
    stop = tl.load(end_query + tl.minimum(start + BLOCK, S) - 1)
    for begin in range(tl.load(first_query + start), stop, STEP):
        at = begin + tl.arange(0, STEP)
        query = read_rows(q, q_row, head * q_head, at, T, K, K_ALL)
        back = read_rows(dz, dz_row, head * dz_head, at, T, V, V_ALL)
        low, high = tl.load(first + at, mask=at < T, other=0), tl.load(end + at, mask=at < T, other=0)
        log = tl.load(logs + head * T + at, mask=at < T, other=0.0)
        share = tl.load(shares + head * T + at, mask=at < T, other=0.0)
        scores = tl.dot(key, tl.trans(query), input_precision="ieee") * SCALE  # (keys, queries)
        seen = (keys[:, None] >= low[None, :]) & (keys[:, None] < high[None, :])
        weights = tl.where(seen, tl.exp2(scores - log[None, :]), 0.0)
        to_value += tl.dot(weights.to(back.dtype), back, input_precision="ieee")
        pull = tl.dot(value, tl.trans(back), input_precision="ieee")
        change = (weights * (pull - share[None, :])).to(query.dtype)
        to_key += tl.dot(change, query, input_precision="ieee")
    write_rows(dk, to_key * UNSCALED, dk_row, head * K, keys, S, K, K_ALL)
    write_rows(dv, to_value, dv_row, head * V, keys, S, V, V_ALL)


def _sizes(q: Tensor, v: Tensor) -> dict[str, int]:
    """Return the constants of a kernel's compilation."""
    K, V = q.shape[-1], v.shape[-1]
    k_all, v_all = (max(16, triton.next_power_of_2(width)) for width in (K, V))
    narrower = max(1, max(k_all, v_all) // WIDE) * max(1, q.element_size() // 2)
    block, step = max(16, BLOCK // narrower), max(16, STEP // narrower)
    return {
        "K": K, "V": V, "K_ALL": k_all, "V_ALL": v_all, "BLOCK": block, "STEP": step,
        "num_warps": WARPS, "num_stages": STAGES,
    }  # fmt: skip


def _strides(q: Tensor, k: Tensor, v: Tensor) -> tuple[int, ...]:
    return (*q.stride()[:2], *k.stride()[:2], *v.stride()[:2])


def _scales(K: int) -> tuple[float, float]:
    return math.log2(math.e) / math.sqrt(K), 1 / math.sqrt(K)


def _rows(x: Tensor) -> Tensor:
    """Return (T, H, K) with the numbers of a head contiguous; usually they are already."""
    return x if x.stride(-1) == 1 else x.contiguous()


def attend(q: Tensor, k: Tensor, v: Tensor, first: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """Return the answers (T, H, V) and the log₂ of the softmax's sums (H, T)."""
    q, k, v = _rows(q), _rows(k), _rows(v)
    (T, H, K), S, V = q.shape, len(k), v.shape[-1]
    z = torch.empty(T, H, V, dtype=q.dtype, device=q.device)
    logs = torch.empty(H, T, dtype=torch.float32, device=q.device)
    sizes = _sizes(q, v)
    _attend[H, triton.cdiv(T, sizes["BLOCK"])](
        q, k, v, first, end, z, logs, T, S, *q.stride()[:2], *k.stride()[:2], *v.stride()[:2], H * V,
        math.log2(math.e) / math.sqrt(K), **sizes,
    )  # fmt: skip
    return z, logs


def backward(
    q: Tensor, k: Tensor, v: Tensor, first: Tensor, end: Tensor, first_query: Tensor, end_query: Tensor,
    z: Tensor, logs: Tensor, dz: Tensor, dq: Tensor, dk: Tensor, dv: Tensor,
) -> None:  # fmt: skip
    """Write the gradients of q, k and v to ``dq``, ``dk`` and ``dv``, in which each row of a head is contiguous."""
    q, k, v, dz = _rows(q), _rows(k), _rows(v), _rows(dz)
    shares = torch.empty_like(logs)
    to_queries(q, k, v, first, end, z, logs, dz, shares, dq)
    to_keys(q, k, v, first, end, first_query, end_query, logs, dz, shares, dk, dv)


def to_queries(
    q: Tensor, k: Tensor, v: Tensor, first: Tensor, end: Tensor, z: Tensor, logs: Tensor, dz: Tensor, shares: Tensor,
    dq: Tensor,
) -> None:  # fmt: skip
    """Write the gradient of q, and ``shares`` (H, T)."""
    (T, H, K), S, V = q.shape, len(k), v.shape[-1]
    sizes, strides, scales = _sizes(q, v), _strides(q, k, v), _scales(K)
    _to_queries[H, triton.cdiv(T, sizes["BLOCK"])](
        q, k, v, first, end, z, logs, dz, dq, shares, T, S, *strides, H * V, *dz.stride()[:2], dq.stride(0), *scales,
        **sizes,
    )  # fmt: skip


def to_keys(
    q: Tensor, k: Tensor, v: Tensor, first: Tensor, end: Tensor, first_query: Tensor, end_query: Tensor,
    logs: Tensor, dz: Tensor, shares: Tensor, dk: Tensor, dv: Tensor,
) -> None:  # fmt: skip
    """Write the gradients of k and v."""
    (T, H, K), S = q.shape, len(k)
    sizes, strides, scales = _sizes(q, v), _strides(q, k, v), _scales(K)
    _to_keys[H, triton.cdiv(S, sizes["BLOCK"])](
        q, k, v, first, end, first_query, end_query, logs, dz, shares, dk, dv, T, S, *strides, *dz.stride()[:2],
        dk.stride(0), dv.stride(0), *scales, **sizes,
    )  # fmt: skip
