"""Part 11 of 11, one step of training: each weight moves a little, so that the right answer becomes likelier."""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor
from torch.optim import Optimizer


def training_step(
    model: Callable[[Tensor, Tensor], Tensor], optimiser: Optimizer, source: Tensor, target: Tensor, pad: int
) -> float:
    """Take one step on a batch of pairs, and return its loss (section 5, with teacher forcing).

        loss = mean of −log P(right token | source, right tokens before it), over all tokens but padding

    model(source, ids): logits (B, T, V) for the token after each of the ids (B, T)
    optimiser: has zero_grad() and step(); gradients are those of loss.backward()
    source: (B, S); target: (B, T + 1), the right answers, from <sos> to <eos> and then padding, whose id is ``pad``
    Returns the loss as a number.

    The model reads all of the target but its last token, and has to predict all of it but its first.
    F.cross_entropy(logits, right, ignore_index=…) takes logits (N, V) and right ids (N,); it does the softmax itself.
    """
    logits = model(source, target[:, :-1])
    right = target[:, 1:]
    loss = F.cross_entropy(logits.flatten(0, 1), right.flatten(), ignore_index=pad)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    return loss.item()
