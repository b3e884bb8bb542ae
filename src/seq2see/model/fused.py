"""Attention by fast kernels: the same equation as ``written_attention``, and a test holds the two equal."""

from __future__ import annotations

import math
from importlib.util import find_spec

import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import FlexKernelOptions, flex_attention

from seq2see.model.masks import Mask

#: FlexAttention need not jump: a row's blocks are neighbours. (Rows are not "guaranteed safe" in its sense: a
#: query's first block may hold none of its keys.)
BLOCKS: FlexKernelOptions = {"BLOCKS_ARE_CONTIGUOUS": True}
HAS_TRITON = find_spec("triton") is not None


def fused_attention(q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
    """Map q (…, T, H, K) and k, v (…, S, H, K) to (…, T, H, K), by the kernel that suits them."""
    T, S = q.shape[-3], k.shape[-3]
    if mask.rows is not None:
        if q.is_cuda and T == 1 and mask.keys is not None and HAS_TRITON:
            from seq2see.model.kernels import one_query_attention

            return one_query_attention(q, k, v, mask.rows, mask.keys)
        k, v, mask = mask.gathered(k, v)
    if T == 1 and k.stride(-1) > 1:  # the rows of the batch lie side by side: see columns.py
        return _by_columns(q, k, v, mask)
    q, k, v = (x.transpose(-3, -2) for x in (q, k, v))  # (…, H, T, K)
    if mask.blocks is not None:
        z = flex_attention(q[None], k[None], v[None], block_mask=mask.blocks, kernel_options=BLOCKS)[0]
    else:
        plain_causal = mask.causal and mask.keys is None and mask.sentences is None and T == S and T > 1
        z = F.scaled_dot_product_attention(
            q, k, v, attn_mask=None if plain_causal else mask.allowed(T, S, q.device), is_causal=plain_causal
        )
    return z.transpose(-3, -2)  # (…, T, H, K)


def _by_columns(q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
    """One query a row, (B, 1, H, K), in steps that each take all rows at once."""
    q, k, v = (x.movedim(0, -1) for x in (q, k, v))  # (1 or S, H, K, B)
    q = q.contiguous() * (
        math.log2(math.e) / math.sqrt(q.shape[-2])
    )  # powers of 2 are faster than those of e
    scores = q[:, :, 0] * k[:, :, 0]  # (S, H, B)
    for i in range(1, q.shape[-2]):  # adding up in place takes less memory than one sum of products
        scores.addcmul_(q[:, :, i], k[:, :, i])
    if mask.keys is not None:
        scores.masked_fill_(~mask.keys.T[:, None], -math.inf)
    powers = scores.sub_(scores.amax(0)).exp2_()
    z = (powers[:, :, None] * v).sum(0) / powers.sum(0)[:, None]  # (H, K, B)
    return z.movedim(-1, 0)[:, None]
