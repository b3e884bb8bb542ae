"""Part 1 of 11, softmax: scores become shares."""

import torch
from torch import Tensor


def softmax(x: Tensor) -> Tensor:
    """Turn each row of scores into shares: none is negative, and the sum of a row is 1 (section 3.2.1).

        softmax(x)_i = exp(x_i) / (exp(x_1) + … + exp(x_n))

    x: (…, n), where a row is the last dimension. A score may be −∞: its share is 0.
    Returns (…, n).

    exp(1000) is too large for a computer, so a row with the score 1000 needs a thought. The same number,
    subtracted from all scores of a row, changes no share.
    """
    shares = torch.exp(x - x.max(dim=-1, keepdim=True).values)
    return shares / shares.sum(dim=-1, keepdim=True)
