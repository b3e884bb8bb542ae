"""Part 3 of 11, scaled dot-product attention: the heart of the Transformer."""

from collections.abc import Callable

import torch
from torch import Tensor


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, softmax: Callable[[Tensor], Tensor]) -> Tensor:
    """Let each query gather from the values whose keys it fits (section 3.2.1, equation 1).

        Attention(Q, K, V) = softmax(Q·Kᵀ / √d_k)·V

    q: (…, T, d_k), one row for each of T positions that look
    k: (…, S, d_k) and v: (…, S, d_v), one row for each of S positions that are looked at
    mask: None, or (…, T, S) with True where a query may look; where it is False the share must be 0
    softmax: the function of part 1
    Returns (…, T, d_v).

    k.transpose(-2, -1) is Kᵀ, whatever dimensions stand before the last two.
    """
    scores = q @ k.transpose(-2, -1) / k.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return softmax(scores) @ v
