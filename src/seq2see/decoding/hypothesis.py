"""The inputs and results of a search, for every engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seq2see.config import DecodingConfig
from seq2see.storage.folder import Tokenizers

PAPER = DecodingConfig()  # greedy; for a wider beam a length penalty of 0.6; at most input length + 50 (section 6.1)


MOST_PHRASES = 8  # most phrases that one answer must contain; their subsets are states of a search


def with_beam(beam: int) -> DecodingConfig:
    """Return the paper's rules with this beam width."""
    return PAPER.but(beam=beam)


@dataclass(frozen=True)
class Special:
    """The ids that start, end and pad a sequence, and the first ids of every answer, such as a language."""

    start: int
    end: int
    pad: int
    forced: tuple[int, ...] = ()

    @classmethod
    def of(cls, tokenizers: Tokenizers) -> Special:
        """Return the special ids of a model's tokenizers."""
        target = tokenizers.target
        return cls(target.start, target.end, tokenizers.source.pad, tuple(target.before[1:]))


@dataclass(frozen=True)
class Hypothesis:
    """One answer: its ids after ``<sos>`` (``<eos>`` included if it has ended) and their log-probabilities."""

    ids: list[int]
    log_probabilities: list[float]
    score: float  # rank in a beam search: log-probability ÷ length penalty
    finished: bool

    @property
    def log_probability(self) -> float:
        """Log-probability of the whole answer."""
        return sum(self.log_probabilities)


@dataclass(frozen=True)
class Phrase:
    """The ways to write one phrase, as ids: anywhere in an answer, and at its start only."""

    anywhere: Sequence[Sequence[int]]
    at_start: Sequence[Sequence[int]] = ()
