"""Pictures of numbers: attention, positions, training and confidence, each from plain arrays and lists of tokens.

A function draws on the Axes that it is given, or on one of its own, and returns it, so that
``plot_….figure.savefig("x.svg")`` saves it; those that need several Axes return their Figure.
Nothing here touches pyplot or its global state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colorbar import Colorbar
from matplotlib.colors import Colormap, Normalize, to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, Locator, LogLocator, MaxNLocator, NullFormatter, PercentFormatter
from numpy.typing import ArrayLike

from seq2see.evaluation.confidence import Confidence
from seq2see.inspection.style import (
    CATEGORIES,
    FAINT,
    INK,
    MAGNITUDE,
    MIST,
    PAPER,
    SIGNED,
    SMALL,
    SOFT,
    TEXT,
    TINY,
    Array,
    around_zero,
    as_array,
    as_number,
    as_text,
    as_texts,
    canvas,
    categories,
    dress,
    longest,
    new_axes,
    new_figure,
    readable_on,
)

FAINTEST = 0.02  # lines of smaller weights are not drawn, because nobody would see them


def _digits(values: Array) -> int:
    """Return the number of decimals that shows three figures of the largest number."""
    reach = np.abs(values[np.isfinite(values)]).max(initial=0.0)
    return 2 if reach < 10 else 1 if reach < 100 else 0


# --- attention ---------------------------------------------------------------------------------------------


def _colour_bar(ax: Axes, label: str) -> None:
    """Put a slim colour scale to the right of a heatmap, exactly as high as the heatmap."""
    bar = ax.figure.colorbar(ax.images[0], cax=ax.inset_axes((1.02, 0, 0.025, 1)))
    _quiet(bar, label)


def _quiet(bar: Colorbar, label: str) -> None:
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=SMALL, length=0, colors=INK)
    bar.set_label(label, fontsize=SMALL, color=SOFT)


def _label_tokens(ax: Axes, rows: Sequence[str], columns: Sequence[str], size: float = SMALL) -> None:
    """Label rows and columns with tokens, the columns above. If a word is too wide, column labels are vertical."""
    ax.set_xticks(range(len(columns)), as_texts(columns), fontsize=size)
    ax.set_yticks(range(len(rows)), as_texts(rows), fontsize=size)
    ax.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False, pad=2, colors=INK)
    figure = ax.get_figure(root=True)
    assert figure is not None
    room = ax.get_position().width * figure.get_figwidth() / max(1, len(columns))
    for label in ax.get_xticklabels() if longest(columns, size) > 0.9 * room else ():
        if len(label.get_text()) > 2:
            label.set(rotation=90, va="bottom")


def _named(ax: Axes, rows: str, columns: str, bar: str = "") -> Axes:
    """Name the rows and the columns, and the colours with a bar."""
    ax.set_ylabel(rows, fontsize=TEXT, color=SOFT)
    ax.set_xlabel(columns, fontsize=TEXT, color=SOFT)
    ax.xaxis.set_label_position("top")
    if bar:
        _colour_bar(ax, bar)
    return ax


def _heatmap(ax: Axes, values: Array, cmap: Colormap, norm: Normalize) -> None:
    ax.imshow(values, cmap=cmap, norm=norm, aspect="auto")
    for spine in ax.spines.values():
        spine.set(color=FAINT, linewidth=0.8)


def _numbers(ax: Axes, values: Array, size: float = SMALL) -> None:
    """Write each number in its cell."""
    image, digits = ax.images[0], _digits(values)
    for (row, column), value in np.ndenumerate(values):
        colour = readable_on(image.to_rgba(value)) if np.isfinite(value) else SOFT  # type: ignore[arg-type]
        ax.text(column, row, as_number(value, digits), ha="center", va="center", fontsize=size, color=colour)


def _sized(ax: Axes | None, queries: Sequence[str], keys: Sequence[str], cell: float, size: float = SMALL) -> Axes:
    """Return the given Axes, or a new one with cells of about this many inches and room for the labels."""
    if ax is not None:
        return ax
    above = longest(keys, size) if longest(keys, size) > cell else 0.12
    height = max(1.0, len(queries) * cell)  # the name of the axis needs an inch
    return new_axes(len(keys) * cell + longest(queries, size) + 0.95, height + above + 0.45)


def plot_attention(
    weights: ArrayLike, queries: Sequence[str], keys: Sequence[str], numbers: bool = False, ax: Axes | None = None
) -> Axes:
    """Draw one head's attention weights (T, S): each row is a query and sums to 1 (section 3.2.1)."""
    values = as_array(weights)
    shrunk = max(0.12, min(0.3, 8 / max(values.shape)))  # a large matrix gets smaller cells, so that it fits on a page
    ax = _sized(ax, queries, keys, 0.38 if numbers else shrunk)
    _heatmap(ax, values, MAGNITUDE, Normalize(0, 1))
    _label_tokens(ax, queries, keys)
    if numbers:
        _numbers(ax, values, TINY)
    return _named(ax, "query", "key", "weight")


def plot_scores(
    scores: ArrayLike, queries: Sequence[str], keys: Sequence[str], label: str = "q · k", ax: Axes | None = None
) -> Axes:
    """Draw the grid of dot products (T, S) with the number in each cell. Masked cells, −∞, are hatched."""
    values = as_array(scores)
    ax = _sized(ax, queries, keys, 0.44)
    _heatmap(ax, values, SIGNED, around_zero(values))
    _hatch(ax, ~np.isfinite(values))
    _numbers(ax, values)
    _label_tokens(ax, queries, keys)
    return _named(ax, "query", "key", label)


def _hatch(ax: Axes, cells: np.ndarray[Any, Any]) -> None:
    for row, column in np.argwhere(cells):
        ax.add_patch(
            Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=MIST, edgecolor=FAINT, hatch="////", linewidth=0)
        )


def plot_causal_mask(tokens: Sequence[str], ax: Axes | None = None) -> Axes:
    """Draw which token may attend to which in masked self-attention: none to a later one (section 3.2.3)."""
    count = len(tokens)
    ax = _sized(ax, tokens, tokens, min(0.68, max(0.4, longest(tokens) + 0.1)), TEXT)
    allowed = np.tril(np.ones((count, count)))
    ax.imshow(np.where(allowed, 1.0, np.nan), cmap=MAGNITUDE, norm=Normalize(0, 4), aspect="auto")
    _hatch(ax, allowed == 0)
    for row, column in np.ndindex(count, count):
        text, colour = ("✓", INK) if allowed[row, column] else ("−∞", SOFT)
        ax.text(column, row, text, ha="center", va="center", fontsize=TEXT, color=colour)
    ax.set_xticks(np.arange(0.5, count - 1), minor=True)
    ax.set_yticks(np.arange(0.5, count - 1), minor=True)
    ax.grid(which="minor", color=PAPER, linewidth=1.5)
    ax.tick_params(which="minor", length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)
    _label_tokens(ax, tokens, tokens, TEXT)
    return _named(ax, "this token …", "… may look at")


def plot_attention_grid(weights: ArrayLike, queries: Sequence[str], keys: Sequence[str]) -> Figure:
    """Draw the weights of all layers and heads (L, H, T, S) as a Figure: a row for each layer, a column for each head."""
    values = as_array(weights)
    layers, heads, T, S = values.shape
    cell = 0.15
    width, height = max(1.0, S * cell), max(1.0, T * cell)
    figure = new_figure(
        heads * (width + 0.2) + longest(queries, TINY) + 0.95, layers * (height + 0.2) + longest(keys, TINY) + 0.45
    )
    all_axes = figure.subplots(layers, heads, squeeze=False)
    for (layer, head), ax in np.ndenumerate(all_axes):
        _heatmap(ax, values[layer, head], MAGNITUDE, Normalize(0, 1))
        _label_tokens(ax, queries, keys, TINY)
        ax.tick_params(labeltop=layer == 0, labelleft=head == 0)
        if layer == 0:
            ax.set_title(f"head {head}", fontsize=TEXT, color=INK)
        if head == 0:
            ax.set_ylabel(f"layer {layer}", fontsize=TEXT, color=INK)
    bar = figure.colorbar(all_axes[0, 0].images[0], ax=all_axes, aspect=12 * layers, fraction=0.05, pad=0.012)
    _quiet(bar, "weight")
    return figure


def plot_attention_lines(
    weights: ArrayLike, queries: Sequence[str], keys: Sequence[str], query: int | None = None, ax: Axes | None = None
) -> Axes:
    """Draw the heads (H, T, S) as lines from queries on the left to keys on the right, like the paper's appendix.

    A head has a colour, and a line is as opaque as its weight. With ``query`` only that row's lines are
    drawn, and beside each key stands a strip with the weight that each head gives it.
    """
    values = as_array(weights)
    heads = len(values)
    colours = categories(heads)
    rows, step = max(len(queries), len(keys)), 0.24
    label = longest([*queries, *keys]) + 0.2
    strip = 0.13 * heads if query is not None else 0.0
    left, right = label + 0.1, label + 2.5
    height = rows * step + 0.55
    ax = canvas(ax, right + strip + label + 0.25, height)

    def at(index: int) -> float:
        return height - 0.5 - step * (index + 0.5)

    for head, colour in enumerate(colours):
        x = (left + right + strip) / 2 + 0.21 * (head - (heads - 1) / 2)
        ax.add_patch(Rectangle((x - 0.09, height - 0.3), 0.18, 0.18, facecolor=colour, linewidth=0))
        ink = readable_on(to_rgba(colour))
        ax.text(x, height - 0.21, str(head), ha="center", va="center", fontsize=TINY, color=ink)
    for index, token in enumerate(queries):
        ink, weight = (INK, "normal") if query is None else (INK, "bold") if index == query else (SOFT, "normal")
        place = (left - 0.08, at(index))
        ax.text(*place, as_text(token), ha="right", va="center", fontsize=TEXT, color=ink, fontweight=weight)
    for index, token in enumerate(keys):
        ax.text(right + strip + 0.08, at(index), as_text(token), va="center", fontsize=TEXT, color=INK)
    for (head, row, column), value in sorted(np.ndenumerate(values), key=lambda entry: entry[1]):
        if query not in (None, row) or value < FAINTEST:
            continue
        colour, alpha = colours[head], min(1.0, float(value))
        ax.plot([left, right], [at(row), at(column)], color=colour, alpha=alpha, linewidth=1.6)
        if query is not None:
            corner = (right + 0.03 + 0.13 * head, at(column) - 0.09)
            ax.add_patch(Rectangle(corner, 0.13, 0.18, facecolor=colour, alpha=alpha, linewidth=0))
    return ax


# --- positions ---------------------------------------------------------------------------------------------


def plot_positions(table: ArrayLike, ax: Axes | None = None) -> Axes:
    """Draw an encoding (length, D) as a heatmap: a row for each position, a column for each dimension (section 3.5)."""
    values = as_array(table)
    ax = ax or new_axes(6.2, 3.6)
    _heatmap(ax, values, SIGNED, Normalize(-1, 1))
    dress(ax)
    ax.set_xlabel("dimension")
    ax.set_ylabel("position")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(8, integer=True))
    _colour_bar(ax, "")
    ax.child_axes[0].set_yticks((-1, 0, 1))
    return ax


def plot_position_curves(
    table: ArrayLike,
    positions: ArrayLike | None = None,
    dimensions: Sequence[int] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw some dimensions of an encoding (length, D) as waves over the position, each slower than the last.

    ``positions`` gives the position of each row; the default is 0, 1, 2 … A finer table makes smoother waves.
    """
    values = as_array(table)
    width = values.shape[1]
    at = np.arange(len(values)) if positions is None else as_array(positions)
    if dimensions is None:
        dimensions = sorted({min(width - 1, 2 * round(width * share / 2)) for share in (0, 1 / 8, 1 / 4, 3 / 8)})
    ax = dress(ax or new_axes(6.2, 3.0), grid=True)
    for dimension, colour in zip(dimensions, categories(len(dimensions)), strict=True):
        ax.plot(at, values[:, dimension], color=colour, linewidth=1.5, label=f"dimension {dimension}")
    ax.set(xlim=(at[0], at[-1]), ylim=(-1.08, 1.08), yticks=(-1, 0, 1))
    ax.set_xlabel("position")
    _legend(ax, len(dimensions))
    return ax


def _legend(ax: Axes, columns: int) -> None:
    """Put the legend above the picture, where it hides nothing."""
    ax.legend(loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=columns, frameon=False, fontsize=SMALL,
              labelcolor=INK, handlelength=1.4, columnspacing=1.4, borderpad=0.2)  # fmt: skip


# --- training ----------------------------------------------------------------------------------------------


def _plain_log(ax: Axes) -> None:
    """Write the ticks of a logarithmic axis as 0.01, 0.1, 1."""
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.tick_params(which="minor", length=0)


def _log_ticks(low: float, high: float) -> Locator:
    """Return ticks for a logarithmic axis, so that even a short axis shows several."""
    decades = np.log10(high / low)
    if decades < 1:
        return MaxNLocator(5, steps=[1, 2, 5, 10])
    return LogLocator(subs=(1.0, 2.0, 5.0) if decades < 2 else (1.0,))


def plot_training(lines: Sequence[Mapping[str, float]]) -> Figure:
    """Draw the records of a log.jsonl as a Figure: losses above, the share of right answers below."""
    steps = [record["step"] for record in lines]
    figure = new_figure(6.2, 4.4)
    losses, matches = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    for ax, key, name, colour in (
        # Label smoothing and R-Drop add terms to the training loss, so the two losses are not comparable.
        (losses, "loss", "training, with label smoothing and R-Drop if any", CATEGORIES[0]),
        (losses, "validation_loss", "validation, nats per token", CATEGORIES[1]),
        (matches, "exact_match", "exact match", CATEGORIES[2]),
    ):
        values = [record[key] for record in lines]
        dress(ax, grid=True).plot(steps, values, color=colour, linewidth=1.6, marker="o", markersize=2.5, label=name)
    losses.set_yscale("log")
    losses.yaxis.set_major_locator(_log_ticks(*losses.get_ylim()))
    _plain_log(losses)
    losses.set_ylabel("loss per token")
    _legend(losses, 2)
    matches.set_ylim(-0.04, 1.04)
    matches.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    matches.set_ylabel("exact match")
    matches.set_xlabel("step")
    matches.xaxis.set_major_formatter(FuncFormatter(lambda step, _: f"{step:,.0f}"))
    figure.align_ylabels()
    return figure


# --- confidence --------------------------------------------------------------------------------------------


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
