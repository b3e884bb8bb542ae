"""Part 2 of 11, positions: where a token stands, as sines and cosines."""

import torch
from torch import Tensor


def positions(length: int, d_model: int) -> Tensor:
    """Return the paper's encoding of the positions 0, 1, …, length − 1 (section 3.5).

        PE(pos, 2i)     = sin(pos / 10000^(2i/d_model))
        PE(pos, 2i + 1) = cos(pos / 10000^(2i/d_model))

    2i and 2i + 1 count the columns: a sine and its cosine stand side by side.
    Returns (length, d_model), one row for each position.
    """
    even = torch.arange(0, d_model, 2)
    angles = torch.arange(length)[:, None] / 10000 ** (even / d_model)
    return torch.stack([torch.sin(angles), torch.cos(angles)], dim=-1).flatten(1)
