"""Fit the confidence of answers on held-out pairs, and measure it on others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from seq2see.config import DecodingConfig
from seq2see.data.pairs import Pair
from seq2see.decoding.engines import Engine
from seq2see.evaluation.confidence import FEWEST, GOOD_CHRF, Confidence, Measured, figures_of, fit, probability
from seq2see.evaluation.familiar import Familiar
from seq2see.evaluation.metrics import sentence_chrf
from seq2see.storage.folder import Tokenizers

ROWS = 512  # sources that are answered together
MOST = 5000  # sources that are enough to fit, and to measure
FOLDS = 5
HEADING = "## Confidence"
THRESHOLDS = (0.5, 0.8, 0.9, 0.95, 0.99)

Observed = tuple[list[float], bool, bool]  # the figures of an answer, whether it is complete, whether it is right


def observe(
    engine: Engine,
    tokenizers: Tokenizers,
    rules: DecodingConfig,
    pairs: Sequence[Pair],
    chrf: float | None,
    progress: Callable[[int], None] = lambda done: None,
) -> list[Observed]:
    """Answer each source once. An answer is right if it equals any target of its source, or is near enough by chrF."""
    targets: dict[str, list[str]] = {}
    for source, target in pairs:
        targets.setdefault(source, []).append(target)
    texts = list(targets)[:: -(-len(targets) // MOST) or 1]
    rows = tokenizers.source.encode_batch(texts)
    order = sorted(range(len(texts)), key=lambda i: len(rows[i]))  # neighbours of one length need no padding
    found: list[Observed] = []
    for first in range(0, len(order), ROWS):
        part = order[first : first + ROWS]
        for i, [*hypotheses] in zip(part, engine.search([rows[i] for i in part], rules), strict=True):
            if not hypotheses:
                continue
            [best] = hypotheses
            answer, known = tokenizers.target.decode(best.ids), targets[texts[i]]
            right = answer in known or (chrf is not None and max(sentence_chrf(answer, one) for one in known) >= chrf)
            found.append((figures_of(best.log_probabilities), best.finished, right))
        progress(len(found))
    return found


def calibrated(
    observed: Sequence[Observed], others: Sequence[Observed] | None, familiar: Familiar, chrf: float | None
) -> Confidence | None:
    """Fit a confidence on some answers and measure it on others; None if there are too few to fit it.

    Without others, each fifth of the answers is measured with a fit on the other four.
    """
    ended = [one for one in observed if one[1]]
    if len(ended) < FEWEST or others == []:
        return None
    weights = _fitted(ended, chrf)
    if others is None:
        parts = [observed[fold::FOLDS] for fold in range(FOLDS)]
        found, others = [], [one for part in parts for one in part]
        for fold, part in enumerate(parts):
            rest = [one for other, some in enumerate(parts) if other != fold for one in some if one[1]]
            found += _confidences(_fitted(rest, chrf), part)
    else:
        found = _confidences(weights, others)
    measured = Measured.of(found, [finished and right for _, finished, right in others])
    return Confidence(
        "exact" if chrf is None else "chrf",
        GOOD_CHRF if chrf is None else chrf,
        weights,
        len(ended),
        measured,
        familiar,
    )


def _fitted(observed: Sequence[Observed], chrf: float | None) -> list[float]:
    return fit([figures for figures, _, _ in observed], [right for *_, right in observed], chrf is None)


def _confidences(weights: Sequence[float], observed: Sequence[Observed]) -> list[float]:
    return [probability(weights, figures) if finished else 0.0 for figures, finished, _ in observed]


def answered_above(confidence: Confidence) -> list[tuple[float, float, float]]:
    """Return, for some thresholds, the share of inputs that is answered and the share of right answers among them."""
    rows = []
    for threshold in THRESHOLDS:
        bins = [one for one in confidence.measured.bins if one[0] >= threshold]
        count = sum(size for *_, size in bins)
        if count:
            right = sum(share * size for _, share, size in bins) / count
            rows.append((threshold, count / confidence.measured.pairs, right))
    return rows


def section(confidence: Confidence, picture: bool, command: str = "") -> str:
    """Write the part of a card about the confidence."""
    measured = confidence.measured
    exact = confidence.criterion == "exact"
    right = "are right" if exact else f"have a chrF of {confidence.threshold:g} or more"
    lines = [
        HEADING,
        "",
        f"An answer's confidence is {confidence.meaning}. It is fitted on {confidence.fitted_on:,} held-out sources and "
        f"measured on {measured.pairs:,} answers that it was not fitted on, of which {measured.right:.1%} {right}.",
        "",
        "| | |",
        "|---|---|",
        f"| expected calibration error, 10 bins | {measured.error:.2%} |",
    ]
    for share in (0.5, 0.8, 0.9):
        wrong = next((risk for coverage, risk in measured.risk if coverage >= share), None)
        if wrong is not None:
            lines.append(f"| wrong among the surest {share:.0%} | {wrong:.2%} |")
    if picture:
        lines += ["", "![How often answers are right, by their confidence](reliability.png)"]
    if command:
        lines += ["", "Fitted by:", "", f"    {command}"]
    return "\n".join([*lines, ""])


def with_section(card: str, part: str) -> str:
    """Put the part about the confidence at the end of a card, in the place of an older one."""
    before, found, after = card.partition(HEADING)
    rest = after.partition("\n## ")[2] if found else ""
    return "\n".join([before.rstrip(), "", part, *([f"## {rest}"] if rest else [])])
