"""Several Transformers of one shape that answer together: at each step their probabilities are averaged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from seq2see.config import ModelConfig
from seq2see.errors import UserError
from seq2see.kernels.layers import FastTransformer
from seq2see.kernels.shared import DecoderCache
from seq2see.model.decoder import Decoder
from seq2see.model.encoder import Encoder
from seq2see.model.masks import EVERYTHING, Mask
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

    def __init__(self, config: ModelConfig, members: Sequence[Transformer]) -> None:
        Observable.__init__(self)
        self.config, self.members = config, nn.ModuleList(members)
        for member in self.all[config.members - config.backward :]:
            member.backward = True  # type: ignore[assignment]

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
        together.backward = True  # type: ignore[assignment]
        return together

    @property
    def encoder(self) -> Encoder:  # type: ignore[override]
        """The first member's."""
        return self.all[0].encoder

    @property
    def decoder(self) -> Decoder:  # type: ignore[override]
        """The first member's."""
        return self.all[0].decoder

    def empty_cache(self) -> DecoderCache:
        """Begin to decode with nothing remembered."""
        return EnsembleCache([member.empty_cache() for member in self.ahead if isinstance(member, FastTransformer)])

    def encode(self, source: Tensor, mask: Mask = EVERYTHING) -> Tensor:
        """Map source ids (…, S) to the memories of the members that read ahead, (…, M, S, D)."""
        return torch.stack([member.encode(source, mask) for member in self.ahead], dim=-3)

    def decode(
        self, target: Tensor, memory: Tensor, memory_mask: Mask = EVERYTHING, cache: DecoderCache | None = None
    ) -> Tensor:
        """Map target ids (…, T) and memories (…, M, S, D) to log-probabilities (…, T, V)."""
        memories = zip(self.ahead, memory.unbind(-3), strict=True)
        if not isinstance(cache, EnsembleCache):
            return averaged([member.decode(target, own, memory_mask) for member, own in memories])
        logits = [
            member.decode(target, own, memory_mask, of_member)  # type: ignore[call-arg]
            for (member, own), of_member in zip(memories, cache.members, strict=True)
        ]
        cache.length = cache.members[0].length
        return averaged(logits)


def averaged(logits: Sequence[Tensor]) -> Tensor:
    """Return the log of the mean of the probabilities of these logits."""
    each = torch.stack([one.float().log_softmax(-1) for one in logits])  # (M, …, V)
    return each.logsumexp(0) - math.log(len(logits))


def is_written(network: Transformer) -> bool:
    """Whether a network computes as it stands in ``model/``, and so keeps nothing between two steps."""
    one = network.all[0] if isinstance(network, Ensemble) else network
    return not isinstance(one, FastTransformer)


def reads_backward(network: Transformer) -> bool:
    """Whether a network reads and writes from right to left, as some members of an ensemble do."""
    return bool(getattr(network, "backward", False))


def member_of(network: Transformer, number: int = 0) -> Transformer:
    """Return a member that reads from left to right, to look into it; a single network is its only member."""
    if not isinstance(network, Ensemble):
        if number:
            raise UserError(f"`member` is {number}, but this model is no ensemble: its only member is 0, the default.")
        return network
    if not 0 <= number < len(network.all):
        raise UserError(f"`member` is {number}, but the ensemble has members 0 to {len(network.all) - 1}.")
    if number >= len(network.ahead):
        raise UserError(
            f"Member {number} reads and writes from right to left: a trace shows the members 0 to "
            f"{len(network.ahead) - 1}."
        )
    return network.all[number]
