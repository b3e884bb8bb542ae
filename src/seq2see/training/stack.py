"""The members of an ensemble as one: their weights lie in one piece, and one product computes for all of them.

A small model does not fill a GPU, and each of its kernels takes little longer for five models than for one.
"""

from __future__ import annotations

import copy
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from seq2see.data.batching import Batch
from seq2see.model.attention import MultiHeadAttention
from seq2see.model.ensemble import Ensemble
from seq2see.model.masks import Mask

STEP = 4  # widths of batches are multiples of this, so that few graphs serve all of them


class Rows(NamedTuple):
    """A padded batch of which both sides have one width: ids (B, W), and which of the source are real."""

    source: Tensor
    keys: Tensor
    target_in: Tensor
    target_out: Tensor

    @classmethod
    def of(cls, batch: Batch, batch_tokens: int, pads: tuple[int, int]) -> Rows:
        """Widen a batch to a multiple of ``STEP``, and to as many rows as a batch of this width can have."""
        longest = max(batch.source.shape[1], batch.target_in.shape[1] + 1)
        width = -(-longest // STEP) * STEP
        rows = max(len(batch.source), batch_tokens // max(1, width - STEP + 1))
        source = _widened(batch.source, rows, width, pads[0])
        real = batch.source_mask.keys
        if real is None:
            real = torch.ones_like(batch.source, dtype=torch.bool)
        keys = _widened(real, rows, width, 0)
        keys[len(real) :, 0] = True  # every query must see a key, also where there is no text
        target_in, target_out = (
            _widened(ids, rows, width, pads[1]) for ids in (batch.target_in, batch.target_out)
        )
        return cls(source, keys, target_in, target_out)

    def twice(self) -> Rows:
        """Return the same texts twice in one batch."""
        return Rows(*(part.repeat(2, 1) for part in self))


def _widened(ids: Tensor, rows: int, width: int, fill: int) -> Tensor:
    return nn.functional.pad(ids, (0, width - ids.shape[1], 0, rows - len(ids)), value=fill)


class Stack:
    """The weights of all members by name, (M, …) each. The members' own weights become views of them."""

    def __init__(self, ensemble: Ensemble, dtype: torch.dtype = torch.float32) -> None:
        self.dtype = dtype
        self.one = copy.deepcopy(ensemble.all[0]).to(
            dtype
        )  # the code for all; its own weights are never read
        for module in self.one.modules():
            if isinstance(module, MultiHeadAttention):
                module.written = True
        self.weights: dict[str, Tensor] = {}
        named = [dict(member.named_parameters()) for member in ensemble.all]
        for name in named[0]:
            whole = torch.stack([parameters[name].detach() for parameters in named])
            for parameters, part in zip(named, whole, strict=True):
                parameters[name].data = part
            self.weights[name] = whole.requires_grad_()

    def logits(self, rows: Rows) -> Tensor:
        """Return the logits of all members, (M, B·W, V)."""

        def of_one(weights: dict[str, Tensor]) -> Tensor:
            logits: Tensor = functional_call(
                self.one, weights, (rows.source, rows.target_in, Mask(keys=rows.keys))
            )
            return logits.flatten(0, 1)

        cast = {name: whole.to(self.dtype) for name, whole in self.weights.items()}
        return torch.vmap(of_one, randomness="different")(cast)

    def clip(self, most: float) -> None:
        """Scale the gradients of each member so that their norm is at most ``most``."""
        found = [whole.grad for whole in self.weights.values() if whole.grad is not None]
        norms = torch.stack([gradient.flatten(1).norm(dim=1) for gradient in found]).norm(dim=0)  # (M,)
        factors = (most / (norms + 1e-6)).clamp(max=1.0)
        for gradient in found:
            gradient.mul_(factors.view(-1, *[1] * (gradient.dim() - 1)))
