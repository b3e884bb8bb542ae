"""Gradient saliency: how much each token read matters to each token written, to first order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from seq2see.errors import UserError
from seq2see.inspection.trace import Edit, Recording, Trace, attached
from seq2see.model.transformer import at_rest

SOURCE, TARGET = "encoder.embedding.scaled", "decoder.embedding.scaled"


@dataclass(frozen=True)
class Saliency:
    """Each step's shares of what was read: a row of ``source`` and the same row of ``target`` sum to 1."""

    source: Tensor  # (T, S)
    target: Tensor  # (T, T): the answer's own beginning; 0 after the step


class _Leaves(Recording):
    """A recording that differentiates by the token embeddings."""

    def __init__(self, edit: Mapping[str, Edit]) -> None:
        super().__init__(edit)
        self.inputs: dict[str, Tensor] = {}

    def __call__(self, path: str, x: Tensor) -> Tensor:
        x = super().__call__(path, x)
        if path in (SOURCE, TARGET):
            x = self.inputs[path] = x.detach().requires_grad_()
        return x


def saliency(trace: Trace, step: int | None = None) -> Saliency:
    """Return |∇·x| for every token's embedding x, as shares, at every step or at one, (1, S) and (1, T).

    ∇ is the gradient of the chosen token's log-odds, log P/(1 − P). It is that of log P divided by 1 − P, so the shares
    are those of log P, but they do not drown in rounding where the model is sure.
    """
    if step is not None and not 0 <= step < len(trace.output_ids):
        raise UserError(f"There is no step {step}: the answer has {len(trace.output_ids)}, counted from 0.")
    transformer, leaves = trace.transformer, _Leaves(trace.edit)
    device = next(transformer.parameters()).device
    source, target, output = (
        torch.tensor(ids, device=device) for ids in (trace.source_ids, trace.target_ids, trace.output_ids)
    )
    with at_rest(transformer), torch.enable_grad(), attached(transformer, leaves):
        logits = transformer(source, target).double()  # (T, V)
        others = logits.scatter(1, output[:, None], -inf).logsumexp(-1)  # (T,)
        odds = logits.gather(1, output[:, None])[:, 0] - others  # (T,)
        steps = range(len(odds)) if step is None else [step]
        inputs = [leaves.inputs[SOURCE], leaves.inputs[TARGET]]
        rows = [_products(odds[t], inputs) for t in steps]
    both = torch.stack(rows)  # (steps, S + T)
    shares = both / both.sum(-1, keepdim=True).clamp_min(torch.finfo(both.dtype).tiny)
    return Saliency(shares[:, : len(source)], shares[:, len(source) :])


def _products(odds: Tensor, inputs: list[Tensor]) -> Tensor:
    """Return |∇·x| of every row of the inputs, (S + T,)."""
    # what an edit has cut off matters nothing
    gradients = torch.autograd.grad(
        odds, inputs, retain_graph=True, allow_unused=True, materialize_grads=True
    )
    return torch.cat(
        [(gradient * x.detach()).sum(-1).abs() for gradient, x in zip(gradients, inputs, strict=True)]
    )
