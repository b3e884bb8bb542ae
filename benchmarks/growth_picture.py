"""The picture of growth: time above, memory below, against length, batch and width."""

from __future__ import annotations

from collections.abc import Callable

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from benchmarks.growth import KINDS, LAYERS, OUTPUT, Point, Size, doubling
from seq2see.inspection.style import SMALL, SOFT, TEXT, categories, dress, new_figure

LABELS = {"source": "source tokens", "batch": "sentences in a batch", "d_model": "d_model"}
ROWS: tuple[tuple[str, Callable[[Point], float]], ...] = (
    ("seconds of one core", lambda point: point.seconds),
    ("tensors at the peak, MB", lambda point: point.megabytes),
)


def plot_growth(points: list[Point]) -> Figure:
    """Draw seconds and megabytes on logarithmic axes; each line says what its last doubling costs."""
    axes = list(dict.fromkeys(point.axis for point in points))
    figure = new_figure(2.9 * len(axes) + 0.6, 5.0)
    grid = figure.subplots(2, len(axes), sharex="col", sharey="row", squeeze=False)
    for column, axis in enumerate(axes):
        for row, (label, value) in enumerate(ROWS):
            ax = dress(grid[row][column], grid=True)
            ax.set(xscale="log", yscale="log")
            for kind, colour in zip(KINDS, categories(len(KINDS)), strict=True):
                some = [point for point in points if (point.axis, point.kind) == (axis, kind) and value(point)]
                x = [getattr(point.size, axis) for point in some]
                ax.plot(x, [value(point) for point in some], "o-", color=colour, linewidth=1.6, markersize=3.5)
                ax.annotate(
                    f"×{doubling(some, value):.1f}", (x[-1], value(some[-1])), xytext=(5, 0),
                    textcoords="offset points", color=colour, fontsize=SMALL, va="center", annotation_clip=False,
                )  # fmt: skip
            ax.set_xticks([getattr(point.size, axis) for point in points if point.axis == axis])
            ax.xaxis.set_minor_locator(NullLocator())
            ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
            ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
            if column == 0:
                ax.set_ylabel(label)
            if row == 1:
                ax.set_xlabel(LABELS[axis])
            ax.margins(x=0.12)
    for kind, colour in zip(KINDS, categories(len(KINDS)), strict=True):
        name = f"answering a batch, {OUTPUT} tokens each" if kind == "decoding" else "one training step"
        grid[0][0].plot([], [], "o-", color=colour, linewidth=1.6, markersize=3.5, label=name)
    grid[0][0].legend(frameon=False, fontsize=SMALL, loc="upper left")
    middle = Size()
    figure.suptitle(
        f"What a doubling costs: {LAYERS}+{LAYERS} layers; where not varied, {middle.source} source tokens, "
        f"{middle.batch} sentences, d_model {middle.d_model}",
        fontsize=TEXT,
    )
    figure.supxlabel("×1.9: the factor for the last doubling, left to right", fontsize=SMALL, color=SOFT)
    return figure
