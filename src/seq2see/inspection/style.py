"""The look of every picture: colours, font sizes, new figures, lines, and tokens and numbers as text."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize, to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import FancyArrowPatch
from matplotlib.path import Path
from matplotlib.textpath import text_to_path

Array = np.ndarray[Any, np.dtype[np.float64]]
Point = tuple[float, float]

INK, SOFT, FAINT, MIST, PAPER = "#1f2328", "#667085", "#d0d5dd", "#f4f5f7", "#ffffff"
TEXT, SMALL, TINY = 9.0, 7.5, 6.5

#: Okabe and Ito's eight colours, which people with the common kinds of colour-blindness can tell apart. Yellow is last,
#: because it is faint on white.
CATEGORIES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#000000", "#F0E442")

#: The shades of shares from 0 to 1 and of numbers with a sign. The page's ``style.css`` has the same, so that a reader of
#: both sees one colour for one quantity.
SHARES = ("#f3f2ee", "#c3d3f1", "#7a9fe0", "#2f63c0", "#12306e")
SIGNS = ("#8f4a12", "#e3b583", "#f6f4ef", "#8cc7b7", "#0f6b57")
MAGNITUDE = LinearSegmentedColormap.from_list("shares", SHARES)
SIGNED = LinearSegmentedColormap.from_list("signs", SIGNS)


def categories(count: int) -> list[str]:
    """Return as many distinct colours as asked for."""
    if count <= len(CATEGORIES):
        return list(CATEGORIES[:count])
    return [to_hex(colour) for colour in colormaps["viridis"](np.linspace(0.0, 0.95, count))]


def tint(colour: str, strength: float = 0.25) -> str:
    """Mix a colour with white."""
    red, green, blue = (1 - strength * (1 - part) for part in to_rgb(colour))
    return to_hex((red, green, blue))


def new_figure(width: float, height: float) -> Figure:
    """Make a figure, in inches. pyplot does not keep it, so Python frees it after its last use."""
    figure = Figure(figsize=(width, height), layout="constrained", facecolor=PAPER)
    figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08)  # type: ignore[union-attr, call-arg]
    return figure


def png(figure: Figure) -> bytes:
    """Return a figure as PNG."""
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=160)
    return data.getvalue()


def new_axes(width: float, height: float) -> Axes:
    """Make an Axes in a new figure, in inches."""
    return new_figure(width, height).add_subplot()


def dress(ax: Axes, grid: bool = False) -> Axes:
    """Give an Axes the house style: two thin spines, small ticks, perhaps a faint grid."""
    for side, spine in ax.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set(color=FAINT, linewidth=0.8)
    ax.tick_params(colors=INK, labelsize=SMALL, length=3, width=0.6, color=FAINT)
    for axis in (ax.xaxis, ax.yaxis):
        axis.label.set(fontsize=TEXT, color=INK)
    ax.title.set(fontsize=TEXT, color=INK)
    ax.set_axisbelow(True)
    if grid:
        ax.grid(color=FAINT, linewidth=0.5, alpha=0.7)
    return ax


def canvas(ax: Axes | None, width: float, height: float) -> Axes:
    """Prepare an empty sheet of ``width`` × ``height`` units. In a new figure a unit is an inch."""
    if ax is None:
        ax = Figure(figsize=(width, height), facecolor=PAPER).add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, width), ylim=(0, height), aspect="equal")
    ax.axis("off")
    return ax


def line(ax: Axes, points: Sequence[Point], arrow: bool = True, radius: float = 0.09) -> None:
    """Draw a line through points, with rounded corners and an arrowhead at its end."""
    path: list[Point] = [points[0]]
    codes = [Path.MOVETO]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        path += [_towards(corner, before, radius), corner, _towards(corner, after, radius)]
        codes += [Path.LINETO, Path.CURVE3, Path.CURVE3]
    path.append(points[-1])
    codes.append(Path.LINETO)
    ax.add_patch(
        FancyArrowPatch(
            path=Path(path, codes),
            arrowstyle="-|>,head_length=3.6,head_width=1.7" if arrow else "-",
            mutation_scale=1.0,
            linewidth=0.9,
            color=INK,
            fill=arrow,
            zorder=2.5,
            shrinkA=0,
            shrinkB=0,
            capstyle="butt",
            joinstyle="miter",
        )
    )


def _towards(start: Point, end: Point, distance: float) -> Point:
    length = math.dist(start, end)
    share = min(1.0, distance / length)
    return start[0] + share * (end[0] - start[0]), start[1] + share * (end[1] - start[1])


def as_text(token: str) -> str:
    """Return a token as text in which white space is visible and no character starts mathematics."""
    for character, sign in ((" ", "␣"), ("\t", "⇥"), ("\n", "↵"), ("\r", "␍"), ("\u00a0", "⍽"), ("$", r"\$")):
        token = token.replace(character, sign)
    return token or "∅"


def text_width(token: str, size: float = TEXT) -> float:
    """Return the width of a token as shown, in inches."""
    width: float = text_to_path.get_text_width_height_descent(as_text(token), FontProperties(size=size), False)[0]
    return width / 72


def longest(tokens: Sequence[str], size: float = TEXT) -> float:
    """Return the width of the widest token as shown, in inches."""
    return max((text_width(token, size) for token in tokens), default=0.0)


def as_texts(tokens: Sequence[str]) -> list[str]:
    """Show each token as ``as_text`` does."""
    return [as_text(token) for token in tokens]


def as_number(value: float, digits: int = 2) -> str:
    """Write a number with a true minus sign; −0.00 is 0.00, and −∞ is itself."""
    if np.isinf(value):
        return "−∞" if value < 0 else "∞"
    text = f"{value:.{digits}f}"
    return text.lstrip("-") if float(text) == 0 else text.replace("-", "−")


def as_array(x: Any) -> Array:
    """Return an array from a tensor, with or without a gradient, or from anything that numpy accepts."""
    return np.asarray(x.detach().cpu() if hasattr(x, "detach") else x, dtype=np.float64)


def around_zero(*arrays: Array) -> Normalize:
    """Map zero to the middle of a diverging colour map."""
    finite = np.concatenate([x[np.isfinite(x)].ravel() for x in arrays])
    reach = float(np.abs(finite).max(initial=0.0)) or 1.0
    return Normalize(-reach, reach)


def readable_on(colour: tuple[float, float, float, float]) -> str:
    """Choose ink or paper for a text on a colour, whichever contrasts more (WCAG's relative luminance)."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour[:3]]
    return INK if float(np.dot(linear, (0.2126, 0.7152, 0.0722))) > 0.2 else PAPER
