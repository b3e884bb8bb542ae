"""How sure an answer is: the probability that it is right, fitted on held-out pairs and measured on others.

The model's own probabilities tell right answers from wrong ones, but they are too high or too low. A logistic
regression on five figures of an answer corrects that (Platt, 1999): the log-odds of the whole answer and of
its least likely token, the mean log-probability of a token, the logarithm of the length, and the share of
tokens with a probability below one half. "Right" means equal to the target. For sentences, where many answers
are good, it means a chrF of at least ``threshold`` against the target.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, expm1, isfinite, log
from pathlib import Path
from typing import Any

from seq2see.errors import FolderError
from seq2see.evaluation.familiar import Familiar
from seq2see.files import parsed, read_text
from seq2see.storage.folder import CONFIDENCE

FORMAT = 1
LARGEST = 2**21  # bytes
FIGURES = 5
FEWEST = 50  # held-out pairs from which a confidence can be fitted
GOOD_CHRF = 40.0
BINS = 10
RIDGE = 10.0  # strength of the prior, the model's own probability: about that of ten pairs
ROUNDS = 100
HALF = log(0.5)
LOWEST, HIGHEST = -60.0, -1e-7  # log-probabilities are clipped to these


def figures_of(log_probabilities: Sequence[float]) -> list[float]:
    """Return the figures of an answer by the log-probabilities of its tokens."""
    total, length = sum(log_probabilities), max(1, len(log_probabilities))
    unsure = sum(value < HALF for value in log_probabilities) / length
    worst = min(log_probabilities, default=0.0)
    return [_odds(total), _odds(worst), max(LOWEST, total / length), log(length), unsure]


def _odds(log_probability: float) -> float:
    """Return log(p / (1 − p))."""
    value = min(HIGHEST, max(LOWEST, log_probability))
    return value - log(-expm1(value))


@dataclass(frozen=True)
class Measured:
    """How good the confidence is on pairs that were not used for the fit."""

    pairs: int
    right: float  # share
    error: float  # expected calibration error
    bins: list[tuple[float, float, int]]  # mean confidence, share of right answers, count
    risk: list[tuple[float, float]]  # share of inputs answered, share of wrong ones among them; the surest first

    @classmethod
    def of(cls, confidences: Sequence[float], right: Sequence[bool]) -> Measured:
        """Measure on some answers: in ten bins of equal width, and for several shares of answered inputs."""
        parts: list[list[tuple[float, bool]]] = [[] for _ in range(BINS)]
        for confidence, good in zip(confidences, right, strict=True):
            parts[min(BINS - 1, int(confidence * BINS))].append((confidence, good))
        bins = [
            (sum(c for c, _ in part) / len(part), sum(good for _, good in part) / len(part), len(part))
            for part in parts
            if part
        ]
        count = max(1, len(right))
        error = sum(abs(mean - share) * size for mean, share, size in bins) / count
        surest = [good for _, good in sorted(zip(confidences, right, strict=True), key=lambda one: -one[0])]
        risk, wrong, step = [], 0, max(1, count // 50)
        for place, good in enumerate(surest, 1):
            wrong += not good
            if place % step == 0 or place == len(surest):
                risk.append((place / count, wrong / place))
        return cls(len(right), sum(right) / count, error, bins, risk)


@dataclass(frozen=True)
class Confidence:
    """The content of a folder's confidence.json."""

    criterion: str  # exact or chrf
    threshold: float  # of chrF
    weights: list[float]  # the constant, then one for each figure
    fitted_on: int
    measured: Measured
    familiar: Familiar

    def __call__(self, log_probabilities: Sequence[float], finished: bool = True) -> float:
        """Return the probability that an answer is right; 0 for an incomplete one."""
        return probability(self.weights, figures_of(log_probabilities)) if finished else 0.0

    @property
    def meaning(self) -> str:
        """What the probability is about."""
        if self.criterion == "exact":
            return "the probability that the whole answer is right"
        return f"the probability that the answer has a chrF of at least {self.threshold:g} against a good translation"

    def to_json(self) -> str:
        """Write confidence.json."""
        form = {"format": FORMAT, **vars(self), "measured": vars(self.measured), "familiar": self.familiar.to_json()}
        return json.dumps(form, ensure_ascii=False, indent=1) + "\n"

    @classmethod
    def of_json(cls, form: Any) -> Confidence:
        """Read confidence.json; invalid content is an error."""
        try:
            if form["format"] != FORMAT:
                raise FolderError(
                    f"confidence.json has the format {str(form['format'])[:20]}, and {FORMAT} was expected: fit it again "
                    "with `seq2see calibrate`."
                )
            weights = [float(one) for one in form["weights"]]
            measured = Measured(
                int(form["measured"]["pairs"]),
                float(form["measured"]["right"]),
                float(form["measured"]["error"]),
                [(float(a), float(b), int(c)) for a, b, c in form["measured"]["bins"]],
                [(float(a), float(b)) for a, b in form["measured"]["risk"]],
            )
            threshold, fitted_on = float(form["threshold"]), int(form["fitted_on"])
            numbers = [*weights, threshold, measured.right, measured.error]
            good = (
                form["criterion"] in ("exact", "chrf")
                and len(weights) == 1 + FIGURES
                and all(isfinite(one) and abs(one) < 1e6 for one in numbers)
            )
        except (TypeError, KeyError, ValueError, OverflowError):
            good = False
        if not good:
            raise FolderError("confidence.json cannot be read: fit it again with `seq2see calibrate`, or delete it.")
        return cls(form["criterion"], threshold, weights, fitted_on, measured, Familiar.of_json(form.get("familiar")))


def read_confidence(path: Path) -> Confidence | None:
    """Read the confidence of a model folder, if it has one."""
    if not (path / CONFIDENCE).exists():
        return None
    return Confidence.of_json(parsed(read_text(path / CONFIDENCE, LARGEST), CONFIDENCE))


def probability(weights: Sequence[float], figures: Sequence[float]) -> float:
    """Return the logistic function of the weighted figures."""
    value = weights[0] + sum(weight * one for weight, one in zip(weights[1:], figures, strict=True))
    return 1 / (1 + exp(-value)) if value > -700 else 0.0


def fit(figures: Sequence[Sequence[float]], right: Sequence[bool], believed: bool = True) -> list[float]:
    """Fit the weights of a logistic regression, with Platt's targets, by Newton's method.

    If ``believed``, the prior of the weights is the model's own probability of the answer, else zero.
    """
    import numpy as np

    x = np.array(figures, dtype=np.float64)
    own = x[:, 0] if believed else np.zeros(len(x))
    mean, scale = x.mean(0), x.std(0)
    scale[scale < 1e-9] = np.inf  # a constant figure carries no information
    x = np.hstack([np.ones((len(x), 1)), (x - mean) / scale])
    y = np.array(right, dtype=np.float64)
    good, bad = y.sum(), len(y) - y.sum()
    target = np.where(y > 0, (good + 1) / (good + 2), 1 / (bad + 2))
    ridge = np.diag([RIDGE] * (1 + FIGURES)) if believed else np.diag([1e-9, *[1.0] * FIGURES])
    w = np.zeros(1 + FIGURES)
    for _ in range(ROUNDS):
        p = 1 / (1 + np.exp(-np.clip(x @ w + own, -500, 500)))
        slope = x.T @ (p - target) + ridge @ w
        curve = (x * (p * (1 - p) + 1e-12)[:, None]).T @ x + ridge
        step = np.linalg.solve(curve, slope)
        step *= min(1.0, 5.0 / max(1e-12, float(np.abs(step).max())))
        w = w - step
        if np.abs(step).max() < 1e-9:
            break
    weights = w[1:] / scale
    constant = float(w[0] - weights @ mean)
    weights[0] += believed
    return [constant, *map(float, weights)]
