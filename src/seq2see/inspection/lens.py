"""The logit lens: what each layer of the decoder would say, were it the last."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from seq2see.inspection.trace import Trace


@dataclass(frozen=True)
class Layer:
    """The likeliest next token at every step, read off after one layer."""

    after: int | None  # the number of the layer; None is before the first
    ids: Tensor  # (T,)
    probabilities: Tensor  # (T,)


@torch.no_grad()
def logit_lens(trace: Trace) -> list[Layer]:
    """Apply the output projection after every layer of the decoder.

    In a pre-norm model the norm that its stack ends with comes first, as it does after the last layer.
    """
    decoder, output = trace.transformer.decoder, trace.transformer.output
    count = len(decoder.layers)
    names = ["decoder.embedding.sum", *(f"decoder.layers.{n}.feed_forward_norm.out" for n in range(count))]
    found = []
    for after, name in zip([None, *range(count)], names, strict=True):
        logits = output(decoder.norm(trace[name])).float()  # (T, V)
        best = logits.softmax(-1).max(-1)
        found.append(Layer(after, best.indices, best.values))
    return found
