"""Sines and cosines as other toolkits order them: their models are imported with their own positions."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from seq2see.model.positions import sinusoids

FIRST = {"fairseq": 2, "opennmt": 1}  # the number of the first position
FOREIGN = ("halves", *FIRST)


def foreign_sinusoids(position: Tensor, d_model: int, order: str) -> Tensor:
    """Encode positions (…) as (…, D): all sines before all cosines.

    ``halves``, as in Marian, are the paper's numbers. ``fairseq`` and ``opennmt`` have the exponent i / (d_model/2 − 1).
    They count positions from 2 and from 1, in float32.
    """
    if order not in FIRST:
        ours = sinusoids(position, d_model)
        return torch.cat([ours[..., 0::2], ours[..., 1::2]], dim=-1)  # (…, D)
    rate = math.log(10000) / (d_model // 2 - 1)
    frequencies = torch.exp(torch.arange(d_model // 2, dtype=torch.float32) * -rate)  # (D/2,)
    angles = (position + FIRST[order]).float()[..., None] * frequencies  # (…, D/2)
    return torch.cat([torch.sin(angles), torch.cos(angles)], dim=-1)  # (…, D)


def table_of(length: int, d_model: int, order: str = "paper") -> Tensor:
    """Return the encoding of positions 0 … length−1 in any order, (length, D), in float32."""
    at = torch.arange(length)
    return (foreign_sinusoids(at, d_model, order) if order in FOREIGN else sinusoids(at, d_model)).float()
