"""Fast bodies of equation 1, of a norm and of the loss, and which one runs when.

``model.attention.written_attention`` defines the result. Each body here computes the same numbers faster in some cases.
A test compares every body with the written equation in all its cases.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seq2see.kernels import operators
from seq2see.kernels.masks import PackedMask
from seq2see.kernels.operators import HAS_TRITON as HAS_TRITON
from seq2see.kernels.operators import SMALL as SMALL
from seq2see.model.masks import Mask


def fast_attention(q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
    """Map q (…, T, H, K) and k, v (…, S, H, K) to (…, T, H, K), by our own kernel or by PyTorch's."""
    return (span_attention if has_own_kernel(q, mask) else pytorch_attention)(q, k, v, mask)


def has_own_kernel(q: Tensor, mask: Mask) -> bool:
    """Whether ``span_attention`` is for this: sentences end to end, (T, H, K), on a GPU with Triton."""
    if not HAS_TRITON or not q.is_cuda or q.dim() != 3 or mask.keys is not None:
        return False
    return isinstance(mask, PackedMask) and mask.spans is not None


def pytorch_attention(q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
    """Map q (…, T, H, K) and k, v (…, S, H, K) to (…, T, H, K) by PyTorch's function, in every case."""
    T, S = q.shape[-3], k.shape[-3]
    # PyTorch has a faster kernel for a mask that is causal and nothing else. It places the first query at the first key.
    alone = mask.causal and mask.keys is None and not isinstance(mask, PackedMask)
    causal = alone and T > 1 and T == S  # T first: an export leaves S open
    allowed = None if causal else mask.allowed(T, S, q.device)
    q, k, v = (x.transpose(-3, -2) for x in (q, k, v))  # (…, H, T, K)
    z = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed, is_causal=causal)
    return z.transpose(-3, -2)  # (…, T, H, K)


def span_attention(q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
    """Map q (T, H, K) and k, v (S, H, K) to (T, H, K) by our own kernel."""
    assert isinstance(mask, PackedMask)
    assert mask.spans is not None
    if torch.compiler.is_compiling():
        z: Tensor = operators.attend_packed(q, k, v, *mask.spans)[0]
        return z
    found: Tensor = operators.AttendPacked.apply(q, k, v, *mask.spans)  # type: ignore[no-untyped-call]
    return found


def summed_loss(logits: Tensor, right: Tensor, pad: int, smoothing: float, written: bool = False) -> Tensor:
    """Return the sum of the cross-entropies of logits (T, V) with smoothed labels (T,), leaving out padding.

    ``written`` uses no kernel of ours.
    """
    if HAS_TRITON and logits.is_cuda and not written:
        each: Tensor = operators.smoothed_loss(logits, right, pad, smoothing)[0]  # (T,)
        return each.sum()
    return F.cross_entropy(logits.float(), right, ignore_index=pad, label_smoothing=smoothing, reduction="sum")


def has_own_norm(x: Tensor, training: bool) -> bool:
    """Whether ``normed_sum`` is for x: in training of packed batches (T, D) on a GPU with Triton, if D is large."""
    return HAS_TRITON and training and x.is_cuda and x.dim() == 2 and x.shape[-1] > SMALL


def normed_sum(x: Tensor, h: Tensor, norm: nn.LayerNorm, dropout: float) -> Tensor:
    """Return LayerNorm(x + Dropout(h)) by our own kernel."""
    out: Tensor = operators.add_norm(x, h, norm.weight, norm.bias, dropout, norm.eps)[0]
    return out
