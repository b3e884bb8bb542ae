"""Pictures of the way from text to vectors, and on to queries, keys and values.

Each function draws on the Axes that it is given, or on one of its own, whose unit is an inch, and returns it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike

from seq2see.errors import UserError, suggest
from seq2see.inspection.style import (
    CATEGORIES,
    FAINT,
    INK,
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
    canvas,
    line,
    longest,
    readable_on,
    text_width,
    tint,
)

CHOSEN = CATEGORIES[4]
TOKEN = tint(CATEGORIES[5], 0.3)
LEGIBLE = 8  # the most columns of a matrix whose cells show their numbers


def plot_tokens(
    rows: Mapping[str, tuple[Sequence[str], Sequence[int]]], pad: str = "<pad>", ax: Axes | None = None
) -> Axes:
    """Draw texts as tokens, each in a box above its id. Padding is hatched.

    ``rows`` names each text and gives its tokens and ids: ``{"source": (["<sos>", "1"], [65, 1])}``.
    """
    widths = [[max(0.28, text_width(token) + 0.14) for token in tokens] for tokens, _ in rows.values()]
    margin, step, gap = longest(list(rows)) + 0.3, 0.8, 0.05
    ax = canvas(ax, margin + max(sum(row) + gap * len(row) for row in widths) + 0.15, step * len(rows) + 0.05)
    for index, (name, (tokens, ids)) in enumerate(rows.items()):
        x, y = margin, step * (len(rows) - index) - 0.4
        ax.text(margin - 0.12, y + 0.15, name, ha="right", va="center", fontsize=TEXT, color=SOFT)
        for token, number, width in zip(tokens, ids, widths[index], strict=True):
            special, padding = token.startswith("<") and token.endswith(">"), token == pad
            ax.add_patch(
                Rectangle(
                    (x, y),
                    width,
                    0.3,
                    facecolor=MIST if special else TOKEN,
                    edgecolor=FAINT if padding else SOFT,
                    linewidth=0.7,
                    hatch="////" if padding else None,
                )
            )
            _text(ax, x + width / 2, y + 0.15, as_text(token), SOFT if special else INK, TEXT)
            _text(ax, x + width / 2, y - 0.13, str(number), SOFT, SMALL)
            x += width + gap
    return ax


def plot_lookup(table: ArrayLike, vocabulary: Sequence[str], token: str, ax: Axes | None = None) -> Axes:
    """Draw the embedding table (V, D) and the row that a token picks (section 3.4). A large table is abridged."""
    values = as_array(table)
    if token not in vocabulary:
        raise UserError(f"There is no token {token!r} in the vocabulary. {suggest(token, vocabulary)}")
    number = list(vocabulary).index(token)
    rows, columns = _excerpt(len(values), 3, 3, number), _excerpt(values.shape[1], 6, 2)
    norm, (width, height) = around_zero(values), (0.52, 0.27)
    widths = [0.34 if column is None else width for column in columns]
    heads = longest([vocabulary[row] for row in rows if row is not None], SMALL)
    entrance = max(0.5, text_width(token, TEXT + 1) + 0.3)
    left, top, low = entrance + heads + 1.25, height * len(rows) + 1.1, 0.5
    right = left + sum(widths)
    ax = canvas(ax, right + 0.65, top + 0.5)

    def strip(row: int, y: float) -> None:
        x = left
        for column, cell in zip(columns, widths, strict=True):
            if column is None:
                _text(ax, x + cell / 2, y - height / 2, "…", SOFT, TEXT)
            else:
                _matrix(ax, values[row : row + 1, column : column + 1], x, y, (cell, height), norm, numbers=True)
            x += cell

    for index, row in enumerate(rows):
        y = top - height * (index + 0.5)
        if row is None:
            for x in (left - 0.5 - heads / 2, left - 0.17, left + width / 2, right - width / 2):
                _text(ax, x, y, "⋮", SOFT, TEXT)
            continue
        strip(row, y + height / 2)
        colour = CHOSEN if row == number else INK
        ax.text(left - 0.5, y, as_text(vocabulary[row]), ha="right", va="center", fontsize=SMALL, color=colour)
        ax.text(left - 0.08, y, str(row), ha="right", va="center", fontsize=SMALL, color=SOFT)
    _heading(ax, left, top + 0.08, "E", f"{len(values):,} tokens × {values.shape[1]}")

    chosen = top - height * (rows.index(number) + 0.5)
    strip(number, low + height / 2)
    for y in (chosen, low):
        ax.add_patch(
            Rectangle((left, y - height / 2), right - left, height, fill=False, edgecolor=CHOSEN, linewidth=1.4)
        )
    ax.add_patch(Rectangle((0.15, chosen - 0.16), entrance - 0.1, 0.32, facecolor=TOKEN, edgecolor=SOFT, linewidth=0.7))
    _text(ax, 0.1 + entrance / 2, chosen, as_text(token), INK, TEXT + 1)
    line(ax, [(entrance + 0.05, chosen), (left - 0.6 - heads, chosen)])
    ax.text(left - 0.12, low, f"E[{number}]", ha="right", va="center", fontsize=TEXT, color=INK)
    line(ax, [(right, chosen), (right + 0.35, chosen), (right + 0.35, low), (right + 0.02, low)])
    return ax


def plot_embedding_sum(
    scaled: ArrayLike, positions: ArrayLike, total: ArrayLike, tokens: Sequence[str], ax: Axes | None = None
) -> Axes:
    """Draw √d_model · E[id] + PE(pos) = X, three matrices (S, D) with a row for each token (sections 3.4, 3.5)."""
    parts = [as_array(scaled), as_array(positions), as_array(total)]
    rows, columns = parts[0].shape
    norm, cell = around_zero(*parts), (min(0.2, 3.2 / columns), 0.22)
    margin, gap, width = longest(tokens, SMALL) + 0.25, 0.55, columns * cell[0]
    top = rows * cell[1] + 0.15
    ax = canvas(ax, margin + 3 * width + 2 * gap + 0.2, top + 0.42)
    _row_tokens(ax, tokens, margin - 0.08, top, cell[1])
    names = (rf"$\sqrt{{{columns}}}$ · E[id]", "PE(pos)", "X")
    for index, (part, name, sign) in enumerate(zip(parts, names, "+= ", strict=True)):
        left = margin + index * (width + gap)
        _matrix(ax, part, left, top, cell, norm)
        _heading(ax, left, top + 0.06, name)
        _text(ax, left + width + gap / 2, top - rows * cell[1] / 2, sign, INK, 15)
    shape = f"each {rows} × {columns}"
    ax.text(left + width, top + 0.07, shape, ha="right", va="bottom", fontsize=SMALL, color=SOFT)
    return ax


def plot_projection(
    x: ArrayLike, q: ArrayLike, k: ArrayLike, v: ArrayLike, tokens: Sequence[str], ax: Axes | None = None
) -> Axes:
    """Draw how one head makes q, k and v of every token: X (S, D) times W^Q, W^K and W^V (section 3.2.2)."""
    matrix, parts = as_array(x), [as_array(q), as_array(k), as_array(v)]
    rows, columns = matrix.shape
    height, gap, margin = 0.25, 0.45, longest(tokens, SMALL) + 0.25
    own = columns * min(0.22, 3.4 / columns)
    widths = [0.42 * part.shape[1] if part.shape[1] <= LEGIBLE else 2.6 for part in parts]
    top = rows * height + 0.15
    ax = canvas(ax, margin + own + sum(widths) + 3 * gap + 0.2, top + 1.0)
    _row_tokens(ax, tokens, margin - 0.08, top, height)
    _matrix(ax, matrix, margin, top, (own / columns, height), around_zero(matrix))
    _heading(ax, margin, top + 0.06, "X", f"{rows} × {columns}")
    norm, left, bus = around_zero(*parts), margin + own + gap, top + 0.8
    for part, width, name in zip(parts, widths, "QKV", strict=True):
        size = part.shape[1]
        _matrix(ax, part, left, top, (width / size, height), norm, numbers=size <= LEGIBLE)
        _heading(ax, left, top + 0.06, name, f"{rows} × {size}")
        end = left + max(0.62 * width, 0.9)
        start = [(end, bus)] if name != "V" else [(margin + own / 2, top + 0.04), (margin + own / 2, bus), (end, bus)]
        line(ax, [*start, (end, top + 0.04)])
        ax.text(end + 0.09, bus - 0.3, f"$W^{name}$", va="center", fontsize=TEXT + 1, color=INK)
        left += width + gap
    return ax


def _matrix(
    ax: Axes, values: Array, left: float, top: float, cell: tuple[float, float], norm: Normalize, numbers: bool = False
) -> None:
    """Draw a matrix with its upper left corner at (left, top)."""
    width, height = cell
    x = left + width * np.arange(values.shape[1] + 1)
    y = top - height * np.arange(values.shape[0] + 1)
    ax.pcolormesh(x, y, values, cmap=SIGNED, norm=norm, edgecolors=PAPER, linewidth=0.6 if width > 0.1 else 0.0)
    if numbers:
        for (row, column), value in np.ndenumerate(values):
            colour = readable_on(SIGNED(norm(value)))
            _text(ax, left + width * (column + 0.5), top - height * (row + 0.5), as_number(value), colour, TINY)


def _text(ax: Axes, x: float, y: float, text: str, colour: str, size: float) -> None:
    ax.text(x, y, text, ha="center", va="center", fontsize=size, color=colour)


def _row_tokens(ax: Axes, tokens: Sequence[str], x: float, top: float, height: float) -> None:
    for row, token in enumerate(tokens):
        ax.text(x, top - height * (row + 0.5), as_text(token), ha="right", va="center", fontsize=SMALL, color=INK)


def _heading(ax: Axes, x: float, y: float, name: str, shape: str = "") -> None:
    """Name a matrix, with its shape in a softer tone."""
    ax.text(x, y, name, va="baseline", fontsize=TEXT + 1, color=INK)
    ax.text(x + text_width(name, TEXT + 1) + 0.08, y, shape, va="baseline", fontsize=SMALL, color=SOFT)


def _excerpt(count: int, first: int, last: int, around: int | None = None) -> list[int | None]:
    """Choose indices to show: the first, the last, those around one of them, and None where some are left out."""
    wanted = {*range(first), *range(count - last, count)}
    if around is not None:
        wanted |= {around - 1, around, around + 1}
    shown: list[int | None] = []
    expected = 0
    for index in sorted(index for index in wanted if 0 <= index < count):
        if index == expected + 1:
            shown.append(expected)  # an ellipsis in place of a single index would save nothing
        elif index > expected:
            shown.append(None)
        shown.append(index)
        expected = index + 1
    return shown
