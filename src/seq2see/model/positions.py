"""The position of a token: positional encodings, and the embedding they are added to (sections 3.4 and 3.5)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from seq2see.config import ModelConfig
from seq2see.model.sublayers import Observable


def sinusoids(position: Tensor, d_model: int) -> Tensor:
    """Encode positions (…) as sines and cosines (…, D) (section 3.5), in float64.

    PE(pos, 2i) = sin(pos / 10000^(2i/d_model))        PE(pos, 2i+1) = cos(pos / 10000^(2i/d_model))
    """
    even = torch.arange(0, d_model, 2, dtype=torch.float64)  # 2i: (D/2,)
    angles = position.double()[..., None] / 10000 ** (even / d_model)  # (…, D/2)
    return torch.stack([torch.sin(angles), torch.cos(angles)], dim=-1).flatten(-2)  # (…, D)


def position_table(length: int, d_model: int) -> Tensor:
    """Return the encoding of positions 0 … length−1, (length, D), in float32, for a model to keep."""
    return sinusoids(torch.arange(length), d_model).float()


class Embedding(Observable):
    """Token ids to vectors with their positions: √d_model·E[id] + PE(pos), then dropout (3.4, 3.5)."""

    positions: Tensor

    def __init__(self, config: ModelConfig, vocabulary: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, config.d_model)
        self.scale = math.sqrt(config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        if config.positions == "learned":
            self.positions = nn.Parameter(torch.empty(config.max_length, config.d_model))
        else:
            table = position_table(config.max_length, config.d_model)
            self.register_buffer("positions", table, persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        """Map ids (…, T) to (…, T, D)."""
        ids = self.keep("ids", ids)
        embedded = self.keep("embedded", self.table(ids))  # (…, T, D)
        scaled = self.keep("scaled", embedded * self.scale)
        positions = self.keep("positions", self.positions[: ids.shape[-1]])  # (T, D)
        return self.keep("sum", self.dropout(scaled + positions))
