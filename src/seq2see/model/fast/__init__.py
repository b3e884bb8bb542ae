"""Code for speed: fast bodies of equation 1, their table, caches, projections, a norm, a loss.

``model.attention.written_attention`` defines the result. Each body here computes the same numbers faster in some cases.
A test compares every body with the written equation in all cases that the table assigns to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seq2see.model.fast import operators
from seq2see.model.fast.cache import Layout
from seq2see.model.fast.columns import column_attention
from seq2see.model.fast.operators import HAS_TRITON as HAS_TRITON
from seq2see.model.fast.operators import SMALL as SMALL
from seq2see.model.fast.sdpa import pytorch_attention
from seq2see.model.masks import Mask, MaskPart

MANY_ROWS = 64  # with fewer rows, the layout ``rows`` is faster
NARROW_SOURCE = 96  # source tokens × d_k: with a wider source, the layout ``rows`` is faster


#: (B, 1, H, K), or (T, H, K) without a batch, or (B, T, H, K)
Shape = Literal["one query", "packed", "many queries"]


def span_attention(q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
    """Map q (T, H, K) and k, v (S, H, K) to (T, H, K) by our own kernel."""
    assert mask.spans is not None
    if torch.compiler.is_compiling():
        z: Tensor = operators.attend_packed(q, k, v, *mask.spans)[0]
        return z
    found: Tensor = operators.AttendPacked.apply(q, k, v, *mask.spans)  # type: ignore[no-untyped-call]
    return found


class Body(NamedTuple):
    """A body of equation 1 and the cases that it is right for."""

    attend: Callable[[Tensor, Tensor, Tensor, Mask], Tensor]
    layout: Layout | None  # the layout of the cache; None: any
    needs: tuple[MaskPart, ...]  # the parts that the mask must have
    takes: tuple[MaskPart, ...]  # the parts that it may have as well
    shape: Shape | None  # the shape of the queries; None: any
    triton: bool = False  # whether it runs only on a GPU with Triton

    def admits(self, layout: Layout, shape: Shape, parts: tuple[MaskPart, ...], triton: bool) -> bool:
        """Whether this body is right for a case of ``case_of``."""
        return (
            self.layout in (None, layout)
            and self.shape in (None, shape)
            and all(part in parts for part in self.needs)
            and all(part in self.needs or part in self.takes for part in parts)
            and (triton or not self.triton)
        )


#: Which body is taken when: the first that admits the case. The last one admits every case. A row names the body, the
#: layout, the parts that the mask must have and those that it may have, and the shape of the queries.
TABLE: dict[str, Body] = {
    "columns": Body(column_attention, "columns", (), ("keys",), "one query"),
    "spans": Body(span_attention, "rows", ("sentences", "spans"), ("causal",), "packed", triton=True),
    "sdpa": Body(pytorch_attention, None, (), get_args(MaskPart), None),
}


def case_of(q: Tensor, mask: Mask, layout: Layout) -> tuple[Layout, Shape, tuple[MaskPart, ...], bool]:
    """Return the key of the table: the cache's layout, the shape of q, the parts of the mask, whether Triton runs."""
    T = q.shape[-3]
    shape: Shape = "packed" if q.dim() == 3 else "one query" if T == 1 else "many queries"
    return layout, shape, mask.parts(T), HAS_TRITON and q.is_cuda


def body_of(q: Tensor, mask: Mask, layout: Layout) -> str:
    """Return the name of the first body of the table that admits the case."""
    case = case_of(q, mask, layout)
    for name, body in TABLE.items():
        if body.admits(*case):
            return name
    raise AssertionError("the last body admits every case")


def fast_attention(q: Tensor, k: Tensor, v: Tensor, mask: Mask, layout: Layout = "rows") -> Tensor:
    """Map q (…, T, H, K) and k, v (…, S, H, K) to (…, T, H, K) by the body that the table names."""
    return TABLE[body_of(q, mask, layout)].attend(q, k, v, mask)


def summed_loss(logits: Tensor, right: Tensor, pad: int, smoothing: float, written: bool = False) -> Tensor:
    """Return the sum of the cross-entropies of logits (T, V) with smoothed labels (T,), leaving out padding.

    ``written`` uses no kernel of ours.
    """
    if HAS_TRITON and logits.is_cuda and not written:
        each: Tensor = operators.smoothed_loss(logits, right, pad, smoothing)[0]  # (T,)
        return each.sum()
    return F.cross_entropy(
        logits.float(), right, ignore_index=pad, label_smoothing=smoothing, reduction="sum"
    )


def has_own_norm(x: Tensor, training: bool) -> bool:
    """Whether ``normed_sum`` is for x: in training of packed batches (T, D) on a GPU with Triton, if D is large."""
    return HAS_TRITON and training and x.is_cuda and x.dim() == 2 and x.shape[-1] > SMALL


def normed_sum(x: Tensor, h: Tensor, norm: nn.LayerNorm, dropout: float) -> Tensor:
    """Return LayerNorm(x + Dropout(h)) by our own kernel."""
    out: Tensor = operators.add_norm(x, h, norm.weight, norm.bias, dropout, norm.eps)[0]
    return out


def decoding_layout(device: torch.device, rows: int, source_length: int, d_k: int) -> Layout:
    """Return the layout that decodes this number of rows fastest.

    PyTorch's kernels process one row and one head at a time. On a CPU that is slow for many rows of narrow heads.
    """
    narrow = rows >= MANY_ROWS and source_length * d_k <= NARROW_SOURCE
    return "columns" if device.type == "cpu" and narrow else "rows"
