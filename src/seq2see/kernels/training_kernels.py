"""The kernels of a training step on a GPU, in Triton: attention of packed sentences, Add & Norm, relu, the loss.

Each has its gradients.

The sentences of a packed batch are in order, so each query sees one span of keys. A block of queries reads the keys
from the first span's beginning to the last one's end, and nothing else. A library's kernel would give each short
sentence a large block of its own.

The kernels of Add & Norm (section 3.1) read and write every row once. The dropout mask is drawn again for the
gradients, from the same seed, so it is not stored. The logits of a batch are its largest tensor by far: each kernel of
the loss reads them once.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from seq2see.kernels.shared import CHANCES, drops, kept_chances

BLOCK = 64  # queries, or keys, of one program
STEP = 32  # keys, or queries, that they are multiplied with at a time
WIDE = 128  # numbers of a head in 16 bits; with wider ones, blocks and steps are smaller
WARPS = 4
STAGES = 3
LOGITS_STEP = 2048  # logits that a program reads at a time
RELU_ROWS, RELU_COLUMNS = 4, 512  # that a program reads at a time
RELU_PROGRAMS = (
    264  # for the same columns: with a d_ff of 2048, eight for each multiprocessor of an H200; any number is right
)
NUMBERS = 1024  # of the rows that a program reads at a time
PROGRAMS = 1056  # of the gradients: eight for each multiprocessor of an H200; any number is right
FEW_WARPS = 2
SUM_COLUMNS, SUM_STEP = 8, 256  # of the sums of these programs that are added up at a time


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


def attend_backward(
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


# --- Add & Norm -------------------------------------------------------------------------------------------------------


@triton.jit  # type: ignore[untyped-decorator]
def kept(seed, at, KEPT: tl.constexpr, ALL: tl.constexpr, ROWS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Draw which numbers of some rows dropout keeps, (ROWS, ALL): 128 random bits serve eight numbers side by side."""
    eighths = at[:, None] * (ALL // 8) + tl.arange(0, ALL // 8)[None, :]
    a, b, c, d = tl.randint4x(tl.load(seed), eighths)
    four = tl.join(tl.join(a, b), tl.join(c, d)).to(tl.uint32, bitcast=True)
    return tl.reshape(tl.join(four & 0xFFFF, four >> 16), [ROWS, ALL]) < KEPT


@triton.jit  # type: ignore[untyped-decorator]
def _norm_forward(  # type: ignore[no-untyped-def]
    x, h, weight, bias, seed, out, total, means, scales, T, EPS: tl.constexpr, KEPT: tl.constexpr, MORE: tl.constexpr,
    D: tl.constexpr, ALL: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Normalise some rows of the sum. ``total`` becomes the sum, ``means`` and ``scales`` how it was normalised."""
    at, place = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, ALL)
    added = read_rows(h, D, 0, at, T, D, ALL).to(tl.float32)
    if MORE > 1:
        added = tl.where(kept(seed, at, KEPT, ALL, ROWS), added * MORE, 0.0)
    rounded = (read_rows(x, D, 0, at, T, D, ALL) + added).to(total.dtype.element_ty)
    write_rows(total, rounded, D, 0, at, T, D, ALL)
    value = rounded.to(tl.float32)
    mean = tl.sum(value, 1) / D
    value = tl.where((place < D)[None, :], value - mean[:, None], 0.0)
    scale = tl.rsqrt(tl.sum(value * value, 1) / D + EPS)
    tl.store(means + at, mean, mask=at < T)
    tl.store(scales + at, scale, mask=at < T)
    gain = tl.load(weight + place, mask=place < D, other=0.0).to(tl.float32)
    shift = tl.load(bias + place, mask=place < D, other=0.0).to(tl.float32)
    write_rows(out, value * scale[:, None] * gain[None, :] + shift[None, :], D, 0, at, T, D, ALL)


@triton.jit  # type: ignore[untyped-decorator]
def _norm_backward(  # type: ignore[no-untyped-def]
    back, total, means, scales, weight, seed, dx, dh, sums, T, KEPT: tl.constexpr, MORE: tl.constexpr,
    D: tl.constexpr, ALL: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Find the gradients of x and h in many rows, and the sums over them that are the gradients of weight and bias."""
    place = tl.arange(0, ALL)
    gain = tl.load(weight + place, mask=place < D, other=0.0).to(tl.float32)
    to_weight, to_bias = tl.zeros([ROWS, ALL], tl.float32), tl.zeros([ROWS, ALL], tl.float32)
    for start in range(tl.program_id(0) * ROWS, T, tl.num_programs(0) * ROWS):
        at = start + tl.arange(0, ROWS)
        pull = read_rows(back, D, 0, at, T, D, ALL).to(tl.float32)
        value = read_rows(total, D, 0, at, T, D, ALL).to(tl.float32)
        mean, scale = (tl.load(means + at, mask=at < T, other=0.0), tl.load(scales + at, mask=at < T, other=0.0))
        value = (value - mean[:, None]) * scale[:, None]
        to_weight += pull * value
        to_bias += pull
        pull = pull * gain[None, :]
        along = tl.sum(pull * value, 1) / D
        change = (pull - (tl.sum(pull, 1) / D)[:, None] - value * along[:, None]) * scale[:, None]
        write_rows(dx, change, D, 0, at, T, D, ALL)
        if MORE > 1:
            change = tl.where(kept(seed, at, KEPT, ALL, ROWS), change * MORE, 0.0)
            write_rows(dh, change, D, 0, at, T, D, ALL)
    sums += tl.program_id(0) * 2 * D + place
    tl.store(sums, tl.sum(to_weight, 0), mask=place < D)
    tl.store(sums + D, tl.sum(to_bias, 0), mask=place < D)


@triton.jit  # type: ignore[untyped-decorator]
def _add_up(sums, out, N, WIDTH: tl.constexpr, SUM_COLUMNS: tl.constexpr, SUM_STEP: tl.constexpr):  # type: ignore[no-untyped-def]
    """Add up some columns of N rows."""
    place, rows = tl.program_id(0) * SUM_COLUMNS + tl.arange(0, SUM_COLUMNS), tl.arange(0, SUM_STEP)
    added = tl.zeros([SUM_STEP, SUM_COLUMNS], tl.float32)
    for start in range(0, N, SUM_STEP):
        at = start + rows
        inside = (at < N)[:, None] & (place < WIDTH)[None, :]
        added += tl.load(sums + at[:, None] * WIDTH + place[None, :], mask=inside, other=0.0)
    tl.store(out + place, tl.sum(added, 0).to(out.dtype.element_ty), mask=place < WIDTH)


def _norm_sizes(x: Tensor, dropout: float) -> dict[str, Any]:
    """Return the constants of a kernel's compilation."""
    D = x.shape[-1]
    width, chances = max(8, triton.next_power_of_2(D)), kept_chances(dropout)
    return {
        "KEPT": chances, "MORE": CHANCES / chances, "D": D, "ALL": width, "ROWS": max(1, NUMBERS // width),
        "num_warps": FEW_WARPS,
    }  # fmt: skip


def add_up(sums: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the sum over the rows of ``sums`` (N, W), rounded to ``dtype`` (W,)."""
    N, W = sums.shape
    out = torch.empty(W, dtype=dtype, device=sums.device)
    _add_up[(triton.cdiv(W, SUM_COLUMNS),)](sums, out, N, W, SUM_COLUMNS, SUM_STEP, num_warps=4)
    return out


def norm_forward(
    x: Tensor, h: Tensor, weight: Tensor, bias: Tensor, dropout: float, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return LayerNorm(x + Dropout(h)) for x and h (T, D), and what its gradients need.

    This is the sum (T, D), its rows' means and 1/deviations (T,), and the seed. It is drawn by PyTorch's generator.
    """
    if drops(dropout):
        seed = torch.randint(2**62, (1,), device=x.device)
    else:
        seed = torch.empty(1, dtype=torch.int64, device=x.device)
    return normed(x, h, weight, bias, seed, dropout, eps)


def normed(
    x: Tensor, h: Tensor, weight: Tensor, bias: Tensor, seed: Tensor, dropout: float, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Do what ``norm_forward`` does, with a seed that is given."""
    x, h, sizes = x.contiguous(), h.contiguous(), _norm_sizes(x, dropout)
    out, total = torch.empty_like(x), torch.empty_like(x)
    means, scales = (torch.empty(len(x), dtype=torch.float32, device=x.device) for _ in range(2))
    _norm_forward[(triton.cdiv(len(x), sizes["ROWS"]),)](
        x, h, weight, bias, seed, out, total, means, scales, len(x), eps, **sizes
    )
    return out, total, means, scales, seed


def norm_backward(
    back: Tensor, total: Tensor, means: Tensor, scales: Tensor, seed: Tensor, weight: Tensor, dropout: float
) -> list[Tensor]:
    """Return the gradients of x (T, D), of h if it is another one, and of weight and bias in one piece (2, D)."""
    back, sizes = back.contiguous(), _norm_sizes(back, dropout)
    (T, D), programs = back.shape, min(PROGRAMS, triton.cdiv(len(back), sizes["ROWS"]))
    of_rows = [torch.empty_like(back) for _ in range(2 if drops(dropout) else 1)]
    sums = torch.empty(programs, 2 * D, dtype=torch.float32, device=back.device)
    _norm_backward[(programs,)](back, total, means, scales, weight, seed, of_rows[0], of_rows[-1], sums, T, **sizes)
    of_weights = add_up(sums, weight.dtype).view(2, D)
    return [*of_rows, of_weights]


# --- relu -------------------------------------------------------------------------------------------------------------


@triton.jit  # type: ignore[untyped-decorator]
def _mask(hidden, back, out, sums, T, F: tl.constexpr, RELU_ROWS: tl.constexpr, RELU_COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Mask some columns of many rows, and add them up."""
    place = tl.program_id(0) * RELU_COLUMNS + tl.arange(0, RELU_COLUMNS)
    added = tl.zeros([RELU_ROWS, RELU_COLUMNS], tl.float32)
    for start in range(tl.program_id(1) * RELU_ROWS, T, tl.num_programs(1) * RELU_ROWS):
        at = start + tl.arange(0, RELU_ROWS)
        inside = (at < T)[:, None] & (place < F)[None, :]
        to = at[:, None].to(tl.int64) * F + place[None, :]
        value, seen = tl.load(back + to, inside, other=0.0), tl.load(hidden + to, inside, other=0.0)
        value = tl.where(seen > 0, value, 0.0)
        tl.store(out + to, value.to(out.dtype.element_ty), inside)
        added += value.to(tl.float32)
    tl.store(sums + tl.program_id(1) * F + place, tl.sum(added, 0), place < F)


def masked(hidden: Tensor, back: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``back`` (T, F) where ``hidden`` is above 0 and else 0, and its sum over the rows (F,)."""
    hidden, back = hidden.contiguous(), back.contiguous()
    (T, F), programs = back.shape, min(RELU_PROGRAMS, triton.cdiv(len(back), RELU_ROWS))
    out, sums = torch.empty_like(back), torch.empty(programs, F, dtype=torch.float32, device=back.device)
    _mask[triton.cdiv(F, RELU_COLUMNS), programs](
        hidden, back, out, sums, T, F, RELU_ROWS, RELU_COLUMNS, num_warps=FEW_WARPS
    )
    return out, add_up(sums, back.dtype)


# --- the loss ---------------------------------------------------------------------------------------------------------


@triton.jit  # type: ignore[untyped-decorator]
def _losses(  # type: ignore[no-untyped-def]
    x, right, losses, logs, pad, V: tl.constexpr, SMOOTHING: tl.constexpr, LOGITS_STEP: tl.constexpr
):
    """Find the loss of one row, and the log of the sum that its softmax divides by."""
    row = tl.program_id(0).to(tl.int64)
    token = tl.load(right + row)
    wanted = tl.load(x + row * V + token).to(tl.float32)
    largest, total = -1e30, 0.0
    plain = tl.zeros([LOGITS_STEP], tl.float32)
    for start in range(0, V, LOGITS_STEP):
        at = start + tl.arange(0, LOGITS_STEP)
        values = tl.load(x + row * V + at, mask=at < V, other=-float("inf")).to(tl.float32)
        larger = tl.maximum(largest, tl.max(values, 0))
        total = total * tl.exp(largest - larger) + tl.sum(tl.exp(values - larger), 0)
        plain += tl.where(at < V, values, 0.0)
        largest = larger
    log = largest + tl.log(total)
    loss = log - (1 - SMOOTHING) * wanted - SMOOTHING / V * tl.sum(plain, 0)
    tl.store(losses + row, tl.where(token == pad, 0.0, loss))
    tl.store(logs + row, log)


@triton.jit  # type: ignore[untyped-decorator]
def _loss_gradient(  # type: ignore[no-untyped-def]
    x, right, logs, back, dx, pad, V: tl.constexpr, SMOOTHING: tl.constexpr, LOGITS_STEP: tl.constexpr
):
    """Find the gradient of one row's logits: the softmax less what was wanted, times the gradient of its loss."""
    row = tl.program_id(0).to(tl.int64)
    token, log = tl.load(right + row), tl.load(logs + row)
    scale = tl.where(token == pad, 0.0, tl.load(back + row))
    for start in range(0, V, LOGITS_STEP):
        at = start + tl.arange(0, LOGITS_STEP)
        values = tl.load(x + row * V + at, mask=at < V, other=0.0).to(tl.float32)
        wanted = tl.where(at == token, 1 - SMOOTHING + SMOOTHING / V, SMOOTHING / V)
        change = scale * (tl.exp(values - log) - wanted)
        tl.store(dx + row * V + at, change.to(dx.dtype.element_ty), mask=at < V)


def losses(x: Tensor, right: Tensor, pad: int, smoothing: float) -> tuple[Tensor, Tensor]:
    """Return the loss of each row and the log of its softmax's sum, (T,) each."""
    x = x.contiguous()
    T, V = x.shape
    each, logs = (torch.empty(T, dtype=torch.float32, device=x.device) for _ in range(2))
    _losses[(T,)](x, right, each, logs, pad, V, smoothing, LOGITS_STEP, num_warps=WARPS)
    return each, logs


def loss_gradient(x: Tensor, right: Tensor, logs: Tensor, back: Tensor, pad: int, smoothing: float) -> Tensor:
    """Return the gradient of the logits (T, V); ``back`` (T,) is that of the losses."""
    x, back = x.contiguous(), back.contiguous()
    T, V = x.shape
    dx = torch.empty_like(x)
    _loss_gradient[(T,)](x, right, logs, back, dx, pad, V, smoothing, LOGITS_STEP, num_warps=WARPS)
    return dx
