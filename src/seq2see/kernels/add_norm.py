"""LayerNorm(x + Dropout(h)) of section 3.1 in training on a GPU, and its gradients: kernels of our own, in Triton.

Each kernel reads and writes every row once. The dropout mask is drawn again for the gradients, from the same seed, so
it is not stored.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from seq2see.kernels.dropout import CHANCES, drops, kept_chances
from seq2see.kernels.packed import read_rows, write_rows

NUMBERS = 1024  # of the rows that a program reads at a time
PROGRAMS = 1056  # of the gradients: eight for each multiprocessor of an H200; any number is right
WARPS = 2
COLUMNS, STEP = 8, 256  # of the sums of these programs that are added up at a time


@triton.jit  # type: ignore[untyped-decorator]
def kept(seed, at, KEPT: tl.constexpr, ALL: tl.constexpr, ROWS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Draw which numbers of some rows dropout keeps, (ROWS, ALL): 128 random bits serve eight numbers side by side."""
    eighths = at[:, None] * (ALL // 8) + tl.arange(0, ALL // 8)[None, :]
    a, b, c, d = tl.randint4x(tl.load(seed), eighths)
    four = tl.join(tl.join(a, b), tl.join(c, d)).to(tl.uint32, bitcast=True)
    return tl.reshape(tl.join(four & 0xFFFF, four >> 16), [ROWS, ALL]) < KEPT


@triton.jit  # type: ignore[untyped-decorator]
def _forward(  # type: ignore[no-untyped-def]
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
def _backward(  # type: ignore[no-untyped-def]
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
def _add_up(sums, out, N, WIDTH: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr):  # type: ignore[no-untyped-def]
    """Add up some columns of N rows."""
    place, rows = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS), tl.arange(0, STEP)
    added = tl.zeros([STEP, COLUMNS], tl.float32)
    for start in range(0, N, STEP):
        at = start + rows
        inside = (at < N)[:, None] & (place < WIDTH)[None, :]
        added += tl.load(sums + at[:, None] * WIDTH + place[None, :], mask=inside, other=0.0)
    tl.store(out + place, tl.sum(added, 0).to(out.dtype.element_ty), mask=place < WIDTH)


def _sizes(x: Tensor, dropout: float) -> dict[str, Any]:
    """Return the constants of a kernel's compilation."""
    D = x.shape[-1]
    width, chances = max(8, triton.next_power_of_2(D)), kept_chances(dropout)
    return {
        "KEPT": chances, "MORE": CHANCES / chances, "D": D, "ALL": width, "ROWS": max(1, NUMBERS // width),
        "num_warps": WARPS,
    }  # fmt: skip


def add_up(sums: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the sum over the rows of ``sums`` (N, W), rounded to ``dtype`` (W,)."""
    N, W = sums.shape
    out = torch.empty(W, dtype=dtype, device=sums.device)
    _add_up[(triton.cdiv(W, COLUMNS),)](sums, out, N, W, COLUMNS, STEP, num_warps=4)
    return out


def forward(
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
    """Do what ``forward`` does, with a seed that is given."""
    x, h, sizes = x.contiguous(), h.contiguous(), _sizes(x, dropout)
    out, total = torch.empty_like(x), torch.empty_like(x)
    means, scales = (torch.empty(len(x), dtype=torch.float32, device=x.device) for _ in range(2))
    _forward[(triton.cdiv(len(x), sizes["ROWS"]),)](
        x, h, weight, bias, seed, out, total, means, scales, len(x), eps, **sizes
    )
    return out, total, means, scales, seed


def backward(
    back: Tensor, total: Tensor, means: Tensor, scales: Tensor, seed: Tensor, weight: Tensor, dropout: float
) -> list[Tensor]:
    """Return the gradients of x (T, D), of h if it is another one, and of weight and bias in one piece (2, D)."""
    back, sizes = back.contiguous(), _sizes(back, dropout)
    (T, D), programs = back.shape, min(PROGRAMS, triton.cdiv(len(back), sizes["ROWS"]))
    of_rows = [torch.empty_like(back) for _ in range(2 if drops(dropout) else 1)]
    sums = torch.empty(programs, 2 * D, dtype=torch.float32, device=back.device)
    _backward[(programs,)](back, total, means, scales, weight, seed, of_rows[0], of_rows[-1], sums, T, **sizes)
    of_weights = add_up(sums, weight.dtype).view(2, D)
    return [*of_rows, of_weights]
