"""The position of a token: positional encodings, and the embedding they are added to (sections 3.4 and 3.5)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from seq2see.config import ModelConfig
from seq2see.model.sublayers import Observable

FIRST = {"fairseq": 2, "opennmt": 1}  # the number of the first position, if not 0


def sinusoids(position: Tensor, d_model: int, order: str = "paper") -> Tensor:
    """Encode positions (…) as sines and cosines (…, D) (section 3.5), in float64.

    PE(pos, 2i) = sin(pos / 10000^(2i/d_model))        PE(pos, 2i+1) = cos(pos / 10000^(2i/d_model))

    In the order ``halves`` all sines come before all cosines, as in Marian. ``fairseq`` and ``opennmt``
    have this order too, but the exponent i / (d_model/2 − 1). They count positions from 2 and from 1, in float32.
    """
    if order in FIRST:
        rate = math.log(10000) / (d_model // 2 - 1)
        frequencies = torch.exp(torch.arange(d_model // 2, dtype=torch.float32) * -rate)  # (D/2,)
        angles = (position + FIRST[order]).float()[..., None] * frequencies  # (…, D/2)
        return torch.cat([torch.sin(angles), torch.cos(angles)], dim=-1)  # (…, D)
    even = torch.arange(0, d_model, 2, dtype=torch.float64)  # 2i: (D/2,)
    angles = position.double()[..., None] / 10000 ** (even / d_model)  # (…, D/2)
    sines, cosines = torch.sin(angles), torch.cos(angles)
    if order == "halves":
        return torch.cat([sines, cosines], dim=-1)  # (…, D)
    return torch.stack([sines, cosines], dim=-1).flatten(-2)  # (…, D)


def position_table(length: int, d_model: int, order: str = "paper") -> Tensor:
    """Return the encoding of positions 0 … length−1, (length, D), in float32, for a model to keep."""
    return sinusoids(torch.arange(length), d_model, order).float()


class Embedding(Observable):
    """Token ids to vectors with their positions: √d_model·E[id] + PE(pos), then dropout (3.4, 3.5).

    Imported models may leave out the √d_model, or normalise the sum.
    """

    positions: Tensor

    def __init__(self, config: ModelConfig, vocabulary: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, config.d_model)
        self.scale = math.sqrt(config.d_model) if config.scale_embeddings else 1.0
        self.norm = nn.LayerNorm(config.d_model) if config.embedding_norm else None
        self.dropout = nn.Dropout(config.dropout)
        if config.positions == "learned":
            self.positions = nn.Parameter(torch.empty(config.max_length, config.d_model))
        else:
            table = position_table(config.max_length, config.d_model, config.positions)
            self.register_buffer("positions", table, persistent=False)

    def forward(self, ids: Tensor, place: int | Tensor = 0) -> Tensor:
        """Map ids (…, T) to (…, T, D); ``place`` is the position of the first, or of each (T,) in a packed batch."""
        ids = self.keep("ids", ids)
        embedded = self.keep("embedded", self.table(ids))  # (…, T, D)
        scaled = self.keep("scaled", embedded * self.scale)
        places = place if isinstance(place, Tensor) else slice(place, place + ids.shape[-1])
        positions = self.keep("positions", self.positions[places])  # (T, D)
        if self.norm is None:
            return self.keep("sum", self.dropout(scaled + positions))
        x = self.keep("sum", scaled + positions)
        return self.keep("normed", self.dropout(self.norm(x)))
