"""Part 4 of 11, the mask of the decoder: no look at later tokens, none at padding."""

import torch
from torch import Tensor


def mask(ids: Tensor, pad: int) -> Tensor:
    """Say for each token which tokens it may look at (section 3.2.3).

        mask[t, s] = True if s ≤ t and ids[s] is not padding, else False

    ids: (…, T), the tokens that the decoder reads; ``pad`` is the id of padding
    Returns (…, T, T) of booleans: row t has what position t may look at.
    """
    length = ids.shape[-1]
    earlier = torch.ones(length, length, dtype=torch.bool).tril()
    return earlier & (ids != pad)[..., None, :]
