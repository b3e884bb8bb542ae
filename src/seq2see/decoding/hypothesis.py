"""What a search takes and returns, whichever engine runs it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seq2see.config import DecodingConfig
from seq2see.storage.folder import Tokenizers

PAPER = (
    DecodingConfig()
)  # greedy, and with a wider beam a length penalty of 0.6, input length + 50 (section 6.1)


MOST_PHRASES = 8  # that one answer must hold; their subsets are states of a search


def with_beam(beam: int) -> DecodingConfig:
    """Return the paper's rules with this beam width."""
    return PAPER.but(beam=beam)


@dataclass(frozen=True)
class Special:
    """The ids that start, end and pad a sequence, and those that every answer begins with, such as a language."""

    start: int
    end: int
    pad: int
    forced: tuple[int, ...] = ()

    @classmethod
    def of(cls, tokenizers: Tokenizers) -> Special:
        """Return those of a model's tokenizers."""
        target = tokenizers.target
        return cls(target.start, target.end, tokenizers.source.pad, tuple(target.before[1:]))


@dataclass(frozen=True)
class Hypothesis:
    """One answer: its ids after ``<sos>`` (``<eos>`` included if it came to an end) and their log-probabilities."""

    ids: list[int]
    log_probabilities: list[float]
    score: float  # what beam search ranks by: log-probability ÷ length penalty
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
