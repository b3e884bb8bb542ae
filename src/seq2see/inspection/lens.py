"""The logit lens: which token each layer of the decoder would choose."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from seq2see.inspection.trace import Trace


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
    names = [f"decoder.embedding.{read}", *(f"decoder.layers.{n}.feed_forward_norm.out" for n in range(count))]
    found = []
    for after, name in zip([None, *range(count)], names, strict=True):
        logits = output(decoder.norm(trace[name])).float()  # (T, V)
        best = logits.softmax(-1).max(-1)
        found.append(Layer(after, best.indices, best.values))
    return found
