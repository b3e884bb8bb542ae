"""The products x·W of attention in three forms, chosen by name. All give the same numbers.

- ``separate``: one product after the other.
- ``joined``: one product with the matrices put together for it. In training there are many more rows than columns, and
  one wide product is faster than several narrow ones.
- ``side by side``: one product with matrices that are adjacent in memory. In decoding with few rows, a product takes
  little longer than its launch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seq2see.model.fast.operators import SMALL, linear_relu

ProductForm = Literal["separate", "joined", "side by side"]


class SideBySide:
    """Some matrices as views of one piece of memory, not for training."""

    def __init__(self, *matrices: nn.Linear) -> None:
        self.widths = [matrix.out_features for matrix in matrices]
        self.weight = self._laid(matrices, "weight")
        self.bias = self._laid(matrices, "bias")

    def _laid(self, matrices: Sequence[nn.Linear], name: str) -> Tensor:
        whole = torch.cat([getattr(matrix, name).detach() for matrix in matrices])
        for matrix, part in zip(matrices, torch.split(whole, self.widths), strict=True):
            setattr(matrix, name, nn.Parameter(part, requires_grad=False))
        return whole


def form_of(matrices: Sequence[nn.Linear], training: bool, whole: SideBySide | None) -> ProductForm:
    """Return the name of the form; ``whole`` is given if some of these matrices are side by side."""
    if len(matrices) == 1:
        return "separate"
    if whole is not None and len(matrices) == len(whole.widths):
        return "side by side"
    return "joined" if training else "separate"


def products(
    x: Tensor, matrices: Sequence[nn.Linear], training: bool, whole: SideBySide | None
) -> Sequence[Tensor]:
    """Multiply x (…, D) by each matrix and add its bias: (…, H·K) each."""
    form = form_of(matrices, training, whole)
    if form == "separate":
        return [matrix(x) for matrix in matrices]
    if form == "side by side":
        assert whole is not None
        return torch.split(F.linear(x, whole.weight, whole.bias), whole.widths, dim=-1)
    weight = torch.cat([matrix.weight for matrix in matrices])
    bias = torch.cat([matrix.bias for matrix in matrices])
    return torch.split(F.linear(x, weight, bias), [matrix.out_features for matrix in matrices], dim=-1)


def activated(x: Tensor, linear: nn.Linear, activation: Callable[[Tensor], Tensor], training: bool) -> Tensor:
    """Return f(x·Wᵀ + b). In training of packed batches on a GPU, x (T, D) and relu, it is one kernel, if D is large."""
    if training and x.is_cuda and x.dim() == 2 and x.shape[-1] > SMALL and activation is F.relu:
        hidden: Tensor = linear_relu(x, linear.weight, linear.bias)
        return hidden
    return activation(linear(x))
