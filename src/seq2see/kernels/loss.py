"""Cross-entropy with label smoothing on a GPU, and its gradient: kernels of our own, in Triton.

The logits of a batch are its largest tensor by far. Each kernel reads them once.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

STEP = 2048  # logits that a program reads at a time
WARPS = 4


@triton.jit  # type: ignore[untyped-decorator]
def _losses(  # type: ignore[no-untyped-def]
    x, right, losses, logs, pad, V: tl.constexpr, SMOOTHING: tl.constexpr, STEP: tl.constexpr
):
    """Find the loss of one row, and the log of the sum that its softmax divides by."""
    row = tl.program_id(0).to(tl.int64)
    token = tl.load(right + row)
    wanted = tl.load(x + row * V + token).to(tl.float32)
    largest, total = -1e30, 0.0
    plain = tl.zeros([STEP], tl.float32)
    for start in range(0, V, STEP):
        at = start + tl.arange(0, STEP)
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
def _gradient(  # type: ignore[no-untyped-def]
    x, right, logs, back, dx, pad, V: tl.constexpr, SMOOTHING: tl.constexpr, STEP: tl.constexpr
):
    """Find the gradient of one row's logits: the softmax less what was wanted, times the gradient of its loss."""
    row = tl.program_id(0).to(tl.int64)
    token, log = tl.load(right + row), tl.load(logs + row)
    scale = tl.where(token == pad, 0.0, tl.load(back + row))
    for start in range(0, V, STEP):
        at = start + tl.arange(0, STEP)
        values = tl.load(x + row * V + at, mask=at < V, other=0.0).to(tl.float32)
        wanted = tl.where(at == token, 1 - SMOOTHING + SMOOTHING / V, SMOOTHING / V)
        change = scale * (tl.exp(values - log) - wanted)
        tl.store(dx + row * V + at, change.to(dx.dtype.element_ty), mask=at < V)


def losses(x: Tensor, right: Tensor, pad: int, smoothing: float) -> tuple[Tensor, Tensor]:
    """Return the loss of each row and the log of its softmax's sum, (T,) each."""
    x = x.contiguous()
    T, V = x.shape
    each, logs = (torch.empty(T, dtype=torch.float32, device=x.device) for _ in range(2))
    _losses[(T,)](x, right, each, logs, pad, V, smoothing, STEP, num_warps=WARPS)
    return each, logs


def gradient(x: Tensor, right: Tensor, logs: Tensor, back: Tensor, pad: int, smoothing: float) -> Tensor:
    """Return the gradient of the logits (T, V); ``back`` (T,) is that of the losses."""
    x, back = x.contiguous(), back.contiguous()
    T, V = x.shape
    dx = torch.empty_like(x)
    _gradient[(T,)](x, right, logs, back, dx, pad, V, smoothing, STEP, num_warps=WARPS)
    return dx
