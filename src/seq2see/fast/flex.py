"""Equation 1 by PyTorch's FlexAttention, for packed batches: blocks between two sentences are skipped."""

from __future__ import annotations

from torch import Tensor
from torch.nn.attention.flex_attention import FlexKernelOptions, flex_attention

from seq2see.masks import Mask

#: The blocks of a row are neighbours, so the kernel need not look each one up. (Rows are not "guaranteed safe" in
#: FlexAttention's sense: the first block of a query may hold none of its keys.)
OPTIONS: FlexKernelOptions = {"BLOCKS_ARE_CONTIGUOUS": True}


def packed_attention(q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
    """Map q (T, H, K) and k, v (S, H, K) to (T, H, K)."""
    q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))  # (1, H, T, K)
    z = flex_attention(q, k, v, block_mask=mask.blocks, kernel_options=OPTIONS)
    return z[0].transpose(0, 1)  # (T, H, K)
