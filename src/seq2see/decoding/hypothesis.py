"""What a search takes and returns, whichever engine runs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    from torch import Tensor

LENGTH_PENALTY = 0.6  # α of section 6.1
EXTRA_LENGTH = 50  # "maximum output length during inference to input length + 50"


@dataclass(frozen=True)
class Special:
    """The ids that start, end and pad a sequence."""

    start: int
    end: int
    pad: int


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


@overload
def length_penalty(length: int, alpha: float = LENGTH_PENALTY) -> float: ...
@overload
def length_penalty(length: Tensor, alpha: float = LENGTH_PENALTY) -> Tensor: ...
def length_penalty(length: int | Tensor, alpha: float = LENGTH_PENALTY) -> float | Tensor:
    """Return ((5 + length) / 6)^α, by which a log-probability is divided (Wu et al., 2016, eq. 14)."""
    penalty: float | Tensor = ((5 + length) / 6) ** alpha
    return penalty


def limit(source_length: int, max_length: int) -> int:
    """Return the most tokens that the answer to a source of so many tokens may have."""
    return min(source_length + EXTRA_LENGTH, max_length - 1)
