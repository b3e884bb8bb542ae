"""Scores of whole answers against references, by sacreBLEU, which is imported when first used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 1000


@dataclass(frozen=True)
class Score:
    """A score from 0 to 100, and its signature, for comparison with others."""

    score: float
    signature: str


def bleu(answers: Sequence[str], references: Sequence[str]) -> Score:
    """Return corpus BLEU as sacreBLEU computes it: 13a tokens, cased."""
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU()
    score = metric.corpus_score(list(answers), [list(references)]).score
    return Score(float(score), f"BLEU|{metric.get_signature()}")


def chrf(answers: Sequence[str], references: Sequence[str]) -> Score:
    """Return corpus chrF2: overlap of character n-grams up to 6."""
    from sacrebleu.metrics.chrf import CHRF

    metric = CHRF()
    score = metric.corpus_score(list(answers), [list(references)]).score
    return Score(float(score), f"chrF2|{metric.get_signature()}")


def sentence_chrf(answer: str, reference: str) -> float:
    """Return the chrF2 of one answer: unlike BLEU, it suits single sentences."""
    from sacrebleu.metrics.chrf import CHRF

    return float(CHRF().sentence_score(answer, [reference]).score)


@dataclass(frozen=True)
class Comparison:
    """Two systems on the same sentences: their scores, and how often each wins on resampled sets."""

    metric: str
    a: float
    b: float
    interval: tuple[float, float]  # of B − A, 95 %
    p_value: float  # of a difference as large by chance
    signature: str

    @property
    def clear(self) -> bool:
        """Whether the difference is unlikely to be chance, at the 5 % level."""
        return self.p_value < 0.05


def compare_bleu(a: Sequence[str], b: Sequence[str], references: Sequence[str], seed: int = 12345) -> Comparison:
    """Compare two systems by BLEU with paired bootstrap resampling (Koehn, 2004)."""
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU()
    statistics = []
    for answers in (a, b):
        rows = metric._extract_corpus_statistics(list(answers), [list(references)])
        statistics.append(np.array(rows))  # (sentences, 10): counts whose sums give corpus BLEU
    metric.corpus_score(list(a), [list(references)])  # the signature needs a scored corpus

    def of(rows: np.ndarray) -> float:
        return float(metric._compute_score_from_stats(rows.sum(0).tolist()).score)

    return _compare("BLEU", statistics, of, f"BLEU|{metric.get_signature()}", seed)


def compare_exact(a: Sequence[str], b: Sequence[str], references: Sequence[str], seed: int = 12345) -> Comparison:
    """Compare two systems by the share of answers right to the letter, with paired bootstrap resampling."""
    statistics = [
        np.array([[given == expected] for given, expected in zip(answers, references, strict=True)])
        for answers in (a, b)
    ]
    return _compare("exact match", statistics, lambda rows: 100 * float(rows.mean()), "exact match", seed)


def _compare(
    metric: str, statistics: list[np.ndarray], of: Callable[[np.ndarray], float], signature: str, seed: int
) -> Comparison:
    first, second = statistics
    real = of(second) - of(first)
    random = np.random.default_rng(seed)
    differences = []
    for _ in range(RESAMPLES):
        chosen = random.integers(0, len(first), len(first))
        differences.append(of(second[chosen]) - of(first[chosen]))
    found = np.array(differences)
    # As in sacreBLEU: how often the resampled difference, shifted to mean zero, is as large as the real one.
    p_value = (np.sum(np.abs(found - found.mean()) >= abs(real)) + 1) / (RESAMPLES + 1)
    low, high = np.percentile(found, [2.5, 97.5])
    return Comparison(
        metric,
        of(first),
        of(second),
        (float(low), float(high)),
        float(p_value),
        f"{signature}|bs:{RESAMPLES}|rs:{seed}",
    )
