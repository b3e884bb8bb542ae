"""Equation 1 for one query per row, with the rows of the batch side by side in memory.

Kernels that process one row and one head at a time are slow if these are small. Here each operation processes whole
columns, that is all rows at once.
"""

from __future__ import annotations

import math

from torch import Tensor

from seq2see.model.masks import Mask


def column_attention(q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
    """Map q (B, 1, H, K) and k, v (B, S, H, K) to (B, 1, H, K)."""
    q, k, v = (x.movedim(0, -1) for x in (q, k, v))  # (1 or S, H, K, B)
    q = q.contiguous() * (math.log2(math.e) / math.sqrt(q.shape[-2]))  # 2^x is computed faster than e^x
    scores = q[:, :, 0] * k[:, :, 0]  # (S, H, B)
    for i in range(1, q.shape[-2]):  # adding in place takes less memory than a sum over all products
        scores.addcmul_(q[:, :, i], k[:, :, i])
    if mask.keys is not None:
        scores.masked_fill_(~mask.keys.T[:, None], -math.inf)
    powers = scores.sub_(scores.amax(0)).exp2_()
    z = (powers[:, :, None] * v).sum(0) / powers.sum(0)[:, None]  # (H, K, B)
    return z.movedim(-1, 0)[:, None]  # (B, 1, H, K)
