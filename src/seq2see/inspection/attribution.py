"""Where an answer comes from: gradient saliency (which input token matters) and the logit lens (which layer decides)."""

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
    """The share of each input token at each step. Row t of ``source`` and of ``target`` sum to 1 together."""

    source: Tensor  # (T, S)
    target: Tensor  # (T, T): the tokens of the answer so far; 0 for later tokens


class _Leaves(Recording):
    """A recording whose token embeddings are leaves of the graph, so that one can differentiate by them."""

    def __init__(self, edit: Mapping[str, Edit]) -> None:
        super().__init__(edit)
        self.inputs: dict[str, Tensor] = {}

    def __call__(self, path: str, x: Tensor) -> Tensor:
        x = super().__call__(path, x)
        if path in (SOURCE, TARGET):
            x = self.inputs[path] = x.detach().requires_grad_()
        return x


def saliency(trace: Trace, step: int | None = None) -> Saliency:
    """Return |∇·x| for the embedding x of every token, as shares: of every step, or of one step as (1, S) and (1, T).

    ∇ is the gradient of the log-odds of the chosen token, log P/(1 − P). This gradient equals that of log P divided by
    1 − P, so the shares are those of log P. Unlike log P it keeps its precision where P is near 1.
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
    # An input that an edit has cut off has no gradient: its share is 0.
    gradients = torch.autograd.grad(
        odds, inputs, retain_graph=True, allow_unused=True, materialize_grads=True
    )
    return torch.cat(
        [(gradient * x.detach()).sum(-1).abs() for gradient, x in zip(gradients, inputs, strict=True)]
    )


@dataclass(frozen=True)
class Layer:
    """The likeliest next token at every step, computed after one layer."""

    after: int | None  # the number of the layer; None means before the first layer
    ids: Tensor  # (T,)
    probabilities: Tensor  # (T,)


@torch.no_grad()
def logit_lens(trace: Trace) -> list[Layer]:
    """Apply the output projection after every layer of the decoder: the logit lens.

    In a pre-norm model the final norm of the stack is applied first, as it is after the last layer.
    """
    decoder, output = trace.transformer.decoder, trace.transformer.output
    count = len(decoder.layers)
    read = "normed" if trace.transformer.config.embedding_norm else "sum"  # what layer 0 reads
    names = [
        f"decoder.embedding.{read}",
        *(f"decoder.layers.{n}.feed_forward_norm.out" for n in range(count)),
    ]
    found = []
    for after, name in zip([None, *range(count)], names, strict=True):
        logits = output(decoder.norm(trace[name])).float()  # (T, V)
        best = logits.softmax(-1).max(-1)
        found.append(Layer(after, best.indices, best.values))
    return found
