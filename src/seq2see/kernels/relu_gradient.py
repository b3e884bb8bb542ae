"""The gradient of relu on a GPU, and its sum over the rows, which is the bias's gradient: a kernel of our own."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from seq2see.kernels.add_norm import add_up

ROWS, COLUMNS = 4, 512  # that a program reads at a time
PROGRAMS = (
    264  # for the same columns: with a d_ff of 2048, eight for each multiprocessor of an H200; any number is right
)
WARPS = 2


@triton.jit  # type: ignore[untyped-decorator]
def _mask(hidden, back, out, sums, T, F: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Mask some columns of many rows, and add them up."""
    place = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    added = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(tl.program_id(1) * ROWS, T, tl.num_programs(1) * ROWS):
        at = start + tl.arange(0, ROWS)
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
    (T, F), programs = back.shape, min(PROGRAMS, triton.cdiv(len(back), ROWS))
    out, sums = torch.empty_like(back), torch.empty(programs, F, dtype=torch.float32, device=back.device)
    _mask[triton.cdiv(F, COLUMNS), programs](hidden, back, out, sums, T, F, ROWS, COLUMNS, num_warps=WARPS)
    return out, add_up(sums, back.dtype)
