"""The masks of a packed batch: sentences end to end in one row, kept apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from seq2see.model.masks import Mask


class Spans(NamedTuple):
    """For each query of a packed batch the keys that it sees, and for each key the queries that see it, as int32.

    Sentences are in order, so both are spans, from a first position to one past the last. Neither end ever decreases.
    """

    first_key: Tensor  # (T,)
    end_key: Tensor  # (T,)
    first_query: Tensor  # (S,)
    end_query: Tensor  # (S,)


@dataclass(frozen=True, kw_only=True)
class PackedMask(Mask):
    """A mask that also hides the keys of other sentences."""

    sentences: tuple[Tensor, Tensor]  # (T,) and (S,): the sentence of each query and of each key
    spans: Spans | None = None  # the same for a GPU's kernel, with ``causal`` included

    def allowed(self, T: int, S: int, device: torch.device) -> Tensor | None:
        """Return what is allowed as booleans that broadcast to (…, H, T, S)."""
        of_query, of_key = self.sentences
        together, others = of_query[:, None] == of_key, super().allowed(T, S, device)  # (T, S)
        return together if others is None else others & together


@dataclass(frozen=True)
class PackedMasks:
    """The three masks of a packed batch, and each token's place in its sentence."""

    source: PackedMask
    target: PackedMask
    cross: PackedMask
    source_place: Tensor  # (S,)
    target_place: Tensor  # (T,)
