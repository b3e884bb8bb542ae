"""Part 6 of 11, layer normalisation: each position to mean 0 and variance 1."""

import torch
from torch import Tensor


def layer_norm(x: Tensor, gain: Tensor, bias: Tensor, epsilon: float = 1e-5) -> Tensor:
    """Bring the numbers of each position to mean 0 and variance 1, then stretch and shift them (section 3.1).

        LayerNorm(x) = gain · (x − mean) / √(variance + ε) + bias

    x: (…, D). Mean and variance are those of the D numbers of one position: sum them up and divide by D.
    gain and bias: (D,), learned
    Returns (…, D).
    """
    mean = x.mean(dim=-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(dim=-1, keepdim=True)
    return gain * (x - mean) / torch.sqrt(variance + epsilon) + bias
