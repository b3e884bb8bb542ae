"""Both directions: the engine of a network, and what it says of given answers, also if it reads from right to left.

Some members of an ensemble read and write from right to left. Each direction proposes answers, and both judge all of
them. A search from left to right decides the first letters before it has written the last ones, so both directions make
different mistakes (Liu et al., 2016).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from seq2see.config import DecodingConfig
from seq2see.decoding.allowed import Automaton
from seq2see.decoding.hypothesis import PAPER, Hypothesis, Special
from seq2see.decoding.readers import padded
from seq2see.decoding.torch_engine import TorchEngine
from seq2see.devices import in_halves
from seq2see.kernels.ensemble import Ensemble, reads_backward
from seq2see.model.transformer import Transformer, at_rest

PROPOSED = 3  # answers by each direction; with 2 to 5, three development sets had the same score
AT_ONCE = 128  # answers that are judged together


def turned(ids: Sequence[int]) -> list[int]:
    """Return a text from right to left; its first and last id, start and end, stay where they are."""
    return [ids[0], *ids[-2:0:-1], ids[-1]]


def engine_of(network: Transformer, special: Special) -> TorchEngine:
    """Return the engine that searches with a network."""
    if isinstance(network, Ensemble) and network.config.backward:
        return BothWays(network, special)
    return Backward(network, special) if reads_backward(network) else TorchEngine(network, special)


@torch.inference_mode()
def log_probabilities(
    network: Transformer, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], special: Special
) -> list[list[float]]:
    """Return the log-probability of each id of each target after its first, in the order of the target."""
    if reads_backward(network):
        sources, targets = [turned(ids) for ids in sources], [turned(ids) for ids in targets]
    device = next(network.parameters()).device
    found: list[list[float]] = [[] for _ in targets]

    def judged(rows: Sequence[int]) -> list[list[float]]:
        source, mask = padded([sources[row] for row in rows], special.pad, device)
        target, _ = padded([targets[row] for row in rows], special.end, device)
        logits = network(source, target[:, :-1], mask).float()  # (B, T, V)
        values: list[list[float]] = logits.log_softmax(-1).gather(-1, target[:, 1:, None])[..., 0].tolist()
        return values

    # Texts are sorted by length, to save padding.
    order = sorted(range(len(targets)), key=lambda row: len(targets[row]))
    with at_rest(network):
        for first in range(0, len(order), AT_ONCE):
            rows = order[first : first + AT_ONCE]
            for row, values in zip(rows, in_halves(judged, rows, "the tokens of a pair"), strict=True):
                own = values[: len(targets[row]) - 1]
                found[row] = [*own[-2::-1], own[-1]] if reads_backward(network) else own
    return found


class _Searching(TorchEngine):
    """An engine with a search of its own."""

    def ids(
        self, sources: Sequence[Sequence[int]], rules: DecodingConfig = PAPER, allowed: Automaton | None = None
    ) -> list[list[int]]:
        """Return the best answer's ids to each source."""
        return [row[0].ids if row else [] for row in self.search(sources, rules, 1, allowed)]


class Backward(_Searching):
    """Searches with a network that reads and writes from right to left; its answers are turned back."""

    def search(
        self,
        sources: Sequence[Sequence[int]],
        rules: DecodingConfig = PAPER,
        n_best: int = 1,
        allowed: Automaton | None = None,
    ) -> list[list[Hypothesis]]:
        """Return the ``n_best`` answers to each source; nothing can be demanded of them."""
        assert allowed is None
        answers = super().search([turned(ids) for ids in sources], rules, n_best)
        return [[_turned_back(answer) for answer in some] for some in answers]


def _turned_back(answer: Hypothesis) -> Hypothesis:
    """Turn an answer, which has no start, and no end if it is not finished."""
    inner = len(answer.ids) - answer.finished
    ids, values = answer.ids, answer.log_probabilities
    return Hypothesis(
        ids[:inner][::-1] + ids[inner:], values[:inner][::-1] + values[inner:], answer.score, answer.finished
    )


class BothWays(_Searching):
    """Searches in both directions, and ranks all answers by the mean of both log-probabilities ÷ length penalty."""

    def __init__(self, network: Ensemble, special: Special) -> None:
        super().__init__(network, special)
        behind = network.behind
        assert behind is not None
        self.behind = Backward(behind, special)

    def search(
        self,
        sources: Sequence[Sequence[int]],
        rules: DecodingConfig = PAPER,
        n_best: int = 1,
        allowed: Automaton | None = None,
    ) -> list[list[Hypothesis]]:
        """Return the ``n_best`` answers to each source, best first, with their log-probabilities from left to right.

        If only some answers are allowed, those who write from left to right propose them. An answer that was cut at its
        limit is given only if no other was found.
        """
        wide = rules.but(beam=max(rules.beam, n_best, PROPOSED))
        ahead = super().search(sources, wide, wide.beam, allowed)
        behind = self.behind.search(sources, wide, wide.beam) if allowed is None else [[] for _ in sources]
        mine, theirs = (
            [{tuple(one.ids): one.log_probabilities for one in some if one.finished} for some in proposed]
            for proposed in (ahead, behind)
        )
        for network, known, others in ((self.original, mine, theirs), (self.behind.original, theirs, mine)):
            missing = [(row, ids) for row, some in enumerate(others) for ids in some if ids not in known[row]]
            answers = [(self.special.start, *ids) for _, ids in missing]
            found = log_probabilities(network, [sources[row] for row, _ in missing], answers, self.special)
            for (row, ids), values in zip(missing, found, strict=True):
                known[row][ids] = values
        ranked = [
            [Hypothesis([*ids], some[ids], _score(some[ids], others[ids], rules), True) for ids in some]
            for some, others in zip(mine, theirs, strict=True)
        ]
        return [
            sorted(some, key=lambda answer: -answer.score)[:n_best] or cut[:n_best]
            for some, cut in zip(ranked, ahead, strict=True)
        ]


def _score(one: Sequence[float], other: Sequence[float], rules: DecodingConfig) -> float:
    """Return the rank of an answer: the mean of its log-probabilities in both directions ÷ length penalty."""
    return float((sum(one) + sum(other)) / 2 / rules.divisor(len(one)))
