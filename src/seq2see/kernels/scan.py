"""One pass over all logits on a GPU, to choose a token: a kernel of our own, in Triton."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

GROUP = 8  # parts of a row of logits that one program reads


@triton.jit  # type: ignore[untyped-decorator]
def _scan(x, maxima, logs, V, parts, PART: tl.constexpr, GROUP: tl.constexpr):  # type: ignore[no-untyped-def]
    """Find the maximum and log Σ exp of some parts of a row."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1) * GROUP + tl.arange(0, GROUP)
    place = part[:, None] * PART + tl.arange(0, PART)[None, :]
    values = tl.load(x + row * V + place, mask=place < V, other=-float("inf")).to(tl.float32)
    maximum = tl.max(values, 1)
    finite = tl.where(maximum == -float("inf"), 0.0, maximum)  # a whole part may be excluded
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
