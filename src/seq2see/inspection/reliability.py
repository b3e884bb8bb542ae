"""Pictures of how far a model's confidence can be trusted."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from seq2see.evaluation.confidence import Confidence
from seq2see.inspection.style import CATEGORIES, FAINT, SMALL, SOFT, dress, new_figure


def plot_reliability(confidence: Confidence) -> Figure:
    """Draw accuracy against confidence, and the error rate against the share of inputs answered."""
    measured = confidence.measured
    figure = new_figure(7.4, 3.6)
    by_confidence, by_coverage = figure.subplots(1, 2)
    by_confidence.plot([0, 1], [0, 1], color=FAINT, linewidth=1, zorder=1)
    means, shares, counts = zip(*measured.bins, strict=True)
    sizes = [20 + 180 * count / max(counts) for count in counts]
    by_confidence.plot(means, shares, color=CATEGORIES[0], linewidth=1.2, zorder=2)
    by_confidence.scatter(means, shares, s=sizes, color=CATEGORIES[0], alpha=0.8, linewidths=0, zorder=3)
    dress(by_confidence, grid=True)
    by_confidence.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
    by_confidence.set_xlabel("confidence")
    by_confidence.set_ylabel("right" if confidence.criterion == "exact" else f"chrF ≥ {confidence.threshold:g}")
    by_confidence.set_title(
        f"expected calibration error {measured.error:.1%}, {measured.pairs:,} answers",
        loc="left",
        fontsize=SMALL,
        color=SOFT,
    )
    coverage, risk = zip(*measured.risk, strict=True)
    by_coverage.plot(coverage, risk, color=CATEGORIES[1], linewidth=1.6)
    dress(by_coverage, grid=True)
    by_coverage.set(xlim=(0, 1.02), ylim=(0, max(0.01, *risk) * 1.08))
    by_coverage.set_xlabel("inputs answered, the surest first")
    by_coverage.set_ylabel("wrong among them")
    by_coverage.set_title("what abstaining buys", loc="left", fontsize=SMALL, color=SOFT)
    for axis in (by_confidence.xaxis, by_confidence.yaxis, by_coverage.xaxis, by_coverage.yaxis):
        axis.set_major_formatter(PercentFormatter(1.0, decimals=0 if axis is not by_coverage.yaxis else None))
    return figure
