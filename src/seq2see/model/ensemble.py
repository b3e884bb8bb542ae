"""Several Transformers of one shape that answer together: at each step their probabilities are averaged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from seq2see.config import ModelConfig
from seq2see.model.decoder import Decoder
from seq2see.model.encoder import Encoder
from seq2see.model.fast.cache import DecoderCache
from seq2see.model.masks import CAUSAL, EVERYTHING, Mask
from seq2see.model.sublayers import Observable
from seq2see.model.transformer import Transformer


class EnsembleCache(DecoderCache):
    """One cache for each member."""

    def __init__(self, members: Sequence[DecoderCache]) -> None:
        super().__init__([pair for member in members for pair in member.layers])
        self.members = members


class Ensemble(Transformer):
    """P(next | source, so far) = the mean of the members' probabilities.

    It is used like one Transformer. The logits are log-probabilities, which a softmax does not change. A memory
    contains those of all members, (B, M, S, D).
    """

    def __init__(self, config: ModelConfig) -> None:
        Observable.__init__(self)
        self.config = config
        self.members = nn.ModuleList(Transformer(replace(config, members=1)) for _ in range(config.members))

    @property
    def all(self) -> list[Transformer]:
        """The members."""
        return [member for member in self.members if isinstance(member, Transformer)]

    @property
    def encoder(self) -> Encoder:  # type: ignore[override]
        """The first member's."""
        return self.all[0].encoder

    @property
    def decoder(self) -> Decoder:  # type: ignore[override]
        """The first member's."""
        return self.all[0].decoder

    def member(self, number: int = 0) -> Transformer:
        """Return one member, to look into it."""
        return self.all[number]

    def empty_cache(self) -> DecoderCache:
        """Begin to decode with nothing remembered."""
        return EnsembleCache([member.empty_cache() for member in self.all])

    def encode(self, source: Tensor, mask: Mask = EVERYTHING, place: int | Tensor = 0) -> Tensor:
        """Map source ids (…, S) to the memories of all members, (…, M, S, D)."""
        return torch.stack([member.encode(source, mask, place) for member in self.all], dim=-3)

    def decode(
        self,
        target: Tensor,
        memory: Tensor,
        memory_mask: Mask = EVERYTHING,
        cache: DecoderCache | None = None,
        mask: Mask = CAUSAL,
        place: int | Tensor = 0,
    ) -> Tensor:
        """Map target ids (…, T) and memories (…, M, S, D) to log-probabilities (…, T, V)."""
        caches = cache.members if isinstance(cache, EnsembleCache) else [None] * len(self.members)
        logits = [
            member.decode(target, own, memory_mask, of_member, mask, place)
            for member, own, of_member in zip(self.all, memory.unbind(-3), caches, strict=True)
        ]
        if isinstance(cache, EnsembleCache):
            cache.length = cache.members[0].length
        return averaged(logits)


def averaged(logits: Sequence[Tensor]) -> Tensor:
    """Return the log of the mean of the probabilities of these logits."""
    each = torch.stack([one.float().log_softmax(-1) for one in logits])  # (M, …, V)
    return each.logsumexp(0) - math.log(len(logits))


def network_of(config: ModelConfig) -> Transformer:
    """Make the network of a config: a Transformer, or several."""
    return Transformer(config) if config.members == 1 else Ensemble(config)
