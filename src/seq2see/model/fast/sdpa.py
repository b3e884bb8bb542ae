"""Equation 1 by PyTorch's scaled_dot_product_attention, for every case."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from seq2see.model.masks import Mask


def pytorch_attention(q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
    """Map q (…, T, H, K) and k, v (…, S, H, K) to (…, T, H, K)."""
    T, S = q.shape[-3], k.shape[-3]
    # PyTorch has a faster kernel for a mask that is causal and nothing else. It places the first query at the first key.
    causal = mask.parts(T) == ("causal",) and T == S
    allowed = None if causal else mask.allowed(T, S, q.device)
    q, k, v = (x.transpose(-3, -2) for x in (q, k, v))  # (…, H, T, K)
    z = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed, is_causal=causal)
    return z.transpose(-3, -2)  # (…, T, H, K)
