"""What every layer is built from: observation, Add & Norm, the feed-forward network (sections 3.1 and 3.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch.nn.functional as F
from torch import Tensor, nn

from seq2see.config import ModelConfig


class Recorder(Protocol):
    """Sees a named value as it is computed, and returns it or another in its place."""

    def __call__(self, path: str, x: Tensor) -> Tensor:
        """Take the value at ``path``, such as ``encoder.layers.0.self_attention.weights``."""
        ...


class Observable(nn.Module):
    """A module whose intermediate values have names that a recorder can see and replace.

    Without a recorder ``keep`` returns its argument: it costs nothing and ``torch.compile`` removes it.
    """

    recorder: Recorder | None = None
    path: str = ""

    def keep(self, name: str, x: Tensor) -> Tensor:
        """Show ``x`` to the recorder, if one is attached, and return what it returns."""
        if self.recorder is None:
            return x
        return self.recorder(f"{self.path}.{name}" if self.path else name, x)


class AddNorm(Observable):
    """Residual connection and layer normalisation around a sub-layer (section 3.1).

    post: LayerNorm(x + Dropout(Sublayer(x)))        pre: x + Dropout(Sublayer(LayerNorm(x)))
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.post = config.norm == "post"

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Map (…, T, D) to (…, T, D)."""
        if self.post:
            x = self.keep("sum", x + self.dropout(sublayer(x)))
            return self.keep("out", self.norm(x))
        y = self.keep("normed", self.norm(x))
        return self.keep("out", x + self.dropout(sublayer(y)))


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "swish": F.silu}


class FeedForward(Observable):
    """The same two-layer network at every position: FFN(x) = max(0, x·W₁ + b₁)·W₂ + b₂ (section 3.3, eq. 2).

    The configuration may name another activation than the paper's max(0, ·), which is ReLU.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.w_1 = nn.Linear(config.d_model, config.d_ff)
        self.w_2 = nn.Linear(config.d_ff, config.d_model)
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, x: Tensor) -> Tensor:
        """Map (…, T, D) to (…, T, D)."""
        hidden = self.keep("hidden", self.activation(self.w_1(x)))  # (…, T, F)
        return self.keep("out", self.w_2(hidden))  # (…, T, D)
