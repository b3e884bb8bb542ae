"""Which position may attend to which, as data (section 3.2.3): padding, later positions, other sentences."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor


class Spans(NamedTuple):
    """For each query of a packed batch the keys that it sees, and for each key the queries that see it, as int32.

    Sentences are in order, so both are spans, from a first position to one past the last. Neither end ever decreases.
    """

    first_key: Tensor  # (T,)
    end_key: Tensor  # (T,)
    first_query: Tensor  # (S,)
    end_query: Tensor  # (S,)


@dataclass(frozen=True)
class Mask:
    """Which query may attend to which key. True means may.

    A mask is data, so that a fast body of attention can be chosen by it. Each part may be absent:

    - ``causal`` hides the keys after a query's own position. The last query is at the last key, so one new query sees
    every cached key. - ``keys`` hides padding. - ``sentences`` keeps the sentences of a packed batch apart. ``spans``
    is the same for a GPU's kernel, with ``causal`` included.

    Every query must be left at least one key: batching guarantees it.
    """

    causal: bool = False
    keys: Tensor | None = None  # (B, S)
    #: (T,) and (S,): the sentence of each query and of each key
    sentences: tuple[Tensor, Tensor] | None = None
    spans: Spans | None = None

    def select(self, rows: Tensor) -> Mask:
        """Keep these rows of the batch, in this order."""
        return self if self.keys is None else replace(self, keys=self.keys[rows])

    def allowed(self, T: int, S: int, device: torch.device) -> Tensor | None:
        """Return the mask as booleans that broadcast to (…, H, T, S), or None if everything is allowed."""
        parts = []
        if self.causal and T > 1:
            parts.append(torch.ones(T, S, dtype=torch.bool, device=device).tril(S - T))  # (T, S)
        if self.keys is not None:
            parts.append(self.keys[..., None, None, :])  # (B, 1, 1, S)
        if self.sentences is not None:
            of_query, of_key = self.sentences
            parts.append(of_query[:, None] == of_key)  # (T, S)
        return reduce(torch.logical_and, parts) if parts else None


EVERYTHING = Mask()
CAUSAL = Mask(causal=True)


@dataclass(frozen=True)
class PackedMasks:
    """The three masks of a packed batch, and each token's place in its sentence."""

    source: Mask
    target: Mask
    cross: Mask
    source_place: Tensor  # (S,)
    target_place: Tensor  # (T,)
