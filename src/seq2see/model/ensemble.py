"""Several Transformers of one shape that answer together: at each step their probabilities are averaged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from seq2see.config import ModelConfig
from seq2see.errors import UserError
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
    contains those of the M members, (B, M, S, D).

    The last ``config.backward`` members read and write from right to left. They have no part in these probabilities: a
    search asks them by themselves (``decoding.both_ways``).
    """

    def __init__(self, config: ModelConfig, members: Sequence[Transformer] = ()) -> None:
        """Make new members, or take the given ones."""
        Observable.__init__(self)
        self.config = config
        alone = replace(config, members=1, backward=0)
        self.members = nn.ModuleList(members or [Transformer(alone) for _ in range(config.members)])
        for member in self.all[config.members - config.backward :]:
            member.backward = True

    @property
    def all(self) -> list[Transformer]:
        """The members."""
        return [member for member in self.members if isinstance(member, Transformer)]

    @property
    def ahead(self) -> list[Transformer]:
        """The members that read and write from left to right."""
        return self.all[: self.config.members - self.config.backward]

    @property
    def behind(self) -> Transformer | None:
        """The members that read and write from right to left, as a network of their own with the same weights."""
        some = self.all[len(self.ahead) :]
        if len(some) < 2:
            return some[0] if some else None
        together = Ensemble(replace(self.config, members=len(some), backward=0), some)
        together.backward = True
        return together

    @property
    def encoder(self) -> Encoder:  # type: ignore[override]
        """The first member's."""
        return self.all[0].encoder

    @property
    def decoder(self) -> Decoder:  # type: ignore[override]
        """The first member's."""
        return self.all[0].decoder

    def member(self, number: int = 0) -> Transformer:
        """Return one member that reads from left to right, to look into it."""
        if not 0 <= number < len(self.all):
            raise UserError(f"`member` is {number}, but the ensemble has members 0 to {len(self.all) - 1}.")
        if number >= len(self.ahead):
            raise UserError(
                f"Member {number} reads and writes from right to left: a trace shows the members 0 to "
                f"{len(self.ahead) - 1}."
            )
        return self.all[number]

    def empty_cache(self) -> DecoderCache:
        """Begin to decode with nothing remembered."""
        return EnsembleCache([member.empty_cache() for member in self.ahead])

    def encode(self, source: Tensor, mask: Mask = EVERYTHING, place: int | Tensor = 0) -> Tensor:
        """Map source ids (…, S) to the memories of the members that read ahead, (…, M, S, D)."""
        return torch.stack([member.encode(source, mask, place) for member in self.ahead], dim=-3)

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
        caches = cache.members if isinstance(cache, EnsembleCache) else [None] * len(self.ahead)
        logits = [
            member.decode(target, own, memory_mask, of_member, mask, place)
            for member, own, of_member in zip(self.ahead, memory.unbind(-3), caches, strict=True)
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
