"""The paper's Figures 1 and 2 and the encoder stack, drawn from the configuration of an actual model.

Text does not shrink with its box: your own Axes should be as large as the default one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Circle, FancyBboxPatch

from seq2see.config import ModelConfig
from seq2see.inspection.style import FAINT, INK, MIST, PAPER, SMALL, SOFT, TEXT, TINY, Point, canvas, line, tint

ATTENTION, NORM, FEED_FORWARD, EMBEDDING, LINEAR, SOFTMAX, FRAME = (
    tint("#E69F00", 0.38),
    tint("#F0E442", 0.50),
    tint("#56B4E9", 0.42),
    tint("#CC79A7", 0.35),
    tint("#0072B2", 0.22),
    tint("#009E73", 0.30),
    MIST,
)
BOX, LOW = 0.56, 0.32  # heights of a box and of a low one
WIDE = 2.2


# --- what all pictures are made of ---------------------------------------------------------------------------------


def _text(ax: Axes, x: float, y: float, text: str, size: float = TEXT, **more: Any) -> None:
    ax.text(x, y, text, fontsize=size, **{"ha": "center", "va": "center", "color": INK, **more})


def _note(ax: Axes, x: float, y: float, text: str, side: str = "left", size: float = SMALL) -> None:
    _text(ax, x, y, text, size, ha=side, color=SOFT, linespacing=1.25, zorder=5)


def _round(ax: Axes, left: float, bottom: float, width: float, height: float, colour: str, **more: Any) -> None:
    """Draw a rectangle with round corners."""
    usual = {"boxstyle": "round,pad=0,rounding_size=0.07", "edgecolor": INK, "linewidth": 0.8, "zorder": 3}
    ax.add_patch(FancyBboxPatch((left, bottom), width, height, facecolor=colour, **{**usual, **more}))


def _box(ax: Axes, x: float, y: float, width: float, height: float, text: str, colour: str, detail: str = "") -> None:
    """Draw a box whose bottom middle is (x, y), with a text and a smaller line under it."""
    _round(ax, x - width / 2, y, width, height, colour)
    middle = y + height / 2
    _text(ax, x, middle + (0.095 if detail else 0.0), text, zorder=5)
    if detail:
        _text(ax, x, middle - 0.125, detail, TINY, alpha=0.8, zorder=5)


def _raised(ax: Axes, x: float, y: float, gap: float, box: tuple[float, float, str, str], detail: str = "") -> float:
    """Draw an arrow up from (x, y) to a box (width, height, text, colour) above a gap; return the top of the box."""
    line(ax, [(x, y), (x, y + gap)])
    _box(ax, x, y + gap, *box, detail)
    return y + gap + box[1]


def _plus(ax: Axes, x: float, y: float) -> None:
    ax.add_patch(Circle((x, y), 0.11, facecolor=PAPER, edgecolor=INK, linewidth=0.8, zorder=4))
    ax.plot([x - 0.065, x + 0.065], [y, y], color=INK, linewidth=0.9, zorder=5)
    ax.plot([x, x], [y - 0.065, y + 0.065], color=INK, linewidth=0.9, zorder=5)


# --- Figure 1 ------------------------------------------------------------------------------------------------------


def _fan(ax: Axes, x: float, y: float, top: float, memory: Sequence[Point]) -> None:
    """Draw V, K and Q from a line at (x, y) into an attention box. V and K come from the memory, if there is one."""
    arm, bend = 0.62, y + 0.10
    if not memory:
        for place in (x - arm, x + arm):
            line(ax, [(x, y), (x, bend), (place, bend), (place, top)])
        line(ax, [(x, y), (x, top)])
    else:
        line(ax, [(x, y), (x, bend), (x + arm, bend), (x + arm, top)])
        for place in (x - arm, x):
            line(ax, [*memory, (place, memory[-1][1]), (place, top)])
    for place, name in ((x - arm, "V"), (x, "K"), (x + arm, "Q")):
        _text(ax, place + 0.055, top - 0.115, name, TINY, ha="left", color=SOFT, zorder=5)


def _sublayer(
    ax: Axes, x: float, y: float, side: int, pre: bool, text: str, detail: str, memory: Sequence[Point] = ()
) -> float:
    """Draw a sub-layer with its Add & Norm above (x, y) and the residual on one side; return where the line ends.

    The norm stands where the configuration puts it: after the sum (post) or before the sub-layer (pre).
    """
    attention = text != "Feed Forward"
    branch = y + (0.14 if pre else 0.10)
    if pre:
        start = _raised(ax, x, y, 0.30, (WIDE, LOW, "Norm", NORM))
    else:
        start = y + (0.16 if attention else 0.0)
        line(ax, [(x, y), (x, start)], arrow=False)
    bottom = start + (0.42 if attention else 0.32)
    if attention:
        _fan(ax, x, start, bottom, memory)
    else:
        line(ax, [(x, start), (x, bottom)])
    _box(ax, x, bottom, WIDE, BOX, text, ATTENTION if attention else FEED_FORWARD, detail)
    outside = x + side * (WIDE / 2 + 0.25)
    if pre:
        add = bottom + BOX + 0.27
        line(ax, [(x, bottom + BOX), (x, add - 0.11)])
        line(ax, [(x, branch), (outside, branch), (outside, add), (x + side * 0.11, add)])
        _plus(ax, x, add)
        return add + 0.11
    norm = bottom + BOX + 0.16
    line(ax, [(x, bottom + BOX), (x, norm)], arrow=False)
    line(ax, [(x, branch), (outside, branch), (outside, norm + LOW / 2), (x + side * WIDE / 2, norm + LOW / 2)])
    _box(ax, x, norm, WIDE, LOW, "Add & Norm", NORM)
    return norm + LOW


def _details(config: ModelConfig) -> tuple[str, str]:
    heads = f"{config.heads} heads" if config.heads > 1 else "1 head"
    width = f"{config.d_k}" if config.d_k == config.d_v else f"{config.d_k}, values {config.d_v}"
    return f"{heads} of {width}", f"{config.d_model} → {config.d_ff} → {config.d_model}, {config.activation}"


def _positions(ax: Axes, x: float, y: float, side: int, config: ModelConfig) -> None:
    """Draw the circle that stands for the positional encoding, beside the sum at (x, y)."""
    centre, learned = x + side * 0.62, config.positions == "learned"
    ax.add_patch(Circle((centre, y), 0.17, facecolor=PAPER, edgecolor=INK, linewidth=0.8, zorder=4))
    if learned:
        _text(ax, centre, y, "P", SMALL, zorder=5)
    else:
        angle = np.linspace(-np.pi, np.pi, 50)
        ax.plot(centre + 0.11 * angle / np.pi, y + 0.075 * np.sin(angle), color=INK, linewidth=0.9, zorder=5)
    line(ax, [(centre - side * 0.17, y), (x + side * 0.11, y)])
    kind = "Learned\npositions" if learned else "Positional\nencoding"
    _note(ax, centre + side * 0.25, y, kind, "right" if side < 0 else "left")


def _entrance(ax: Axes, x: float, side: int, label: str, name: str, vocabulary: int, config: ModelConfig) -> float:
    """Draw the input of a stack, embedding plus positions, up to its first layer; return where that begins."""
    _text(ax, x, 0.20, label)
    y = _raised(ax, x, 0.32, 0.23, (WIDE, BOX, name, EMBEDDING), f"{vocabulary:,} × {config.d_model}")
    line(ax, [(x, y), (x, 1.36)])
    _plus(ax, x, 1.47)
    _positions(ax, x, 1.47, side, config)
    y = 1.58
    if config.embedding_norm:
        y = _raised(ax, x, y, 0.27, (WIDE, LOW, "Norm", NORM))
    line(ax, [(x, y), (x, y + 0.34)], arrow=False)
    return y + 0.34


def _layer(ax: Axes, x: float, floor: float, top: float, side: int, count: int) -> None:
    """Draw the grey frame that stands for a layer, and how often it repeats."""
    left = x - (1.58 if side < 0 else 1.32)
    style = {"boxstyle": "round,pad=0,rounding_size=0.14", "edgecolor": FAINT, "linewidth": 1.0}
    _round(ax, left, floor - 0.06, 2.9, top - floor + 0.06, FRAME, zorder=1, gid="layer", **style)
    _text(ax, x + side * 1.98, (floor + top) / 2, f"{count} ×", 13, gid="repeat")


def _last_norm(ax: Axes, x: float, y: float, top: float, pre: bool) -> float:
    """Draw the final norm of a pre-norm stack; return where the line ends."""
    return _raised(ax, x, y, top + 0.2 - y, (WIDE, LOW, "Norm", NORM)) if pre else top


def plot_architecture(config: ModelConfig, ax: Axes | None = None) -> Axes:
    """Draw the whole model (Figure 1): both stacks, how often their layers repeat, where the norms stand."""
    pre = config.norm == "pre"
    attention, feed_forward = _details(config)
    left, right, more = 2.4, 5.8, 0.27 + LOW if config.embedding_norm else 0.0
    ax = canvas(ax, 8.2, (10.45 if pre else 8.8) + more)

    floor = _entrance(ax, left, -1, "Inputs", "Input Embedding", config.source_vocabulary, config)
    y = _sublayer(ax, left, floor, -1, pre, "Multi-Head Attention", attention)
    y = _sublayer(ax, left, y, -1, pre, "Feed Forward", feed_forward)
    top = y + 0.2
    _layer(ax, left, floor, top, -1, config.encoder_layers)
    memory_top = _last_norm(ax, left, y, top, pre)
    line(ax, [(left, y), (left, top)], arrow=False)

    _entrance(ax, right, 1, "Outputs (shifted right)", "Output Embedding", config.target_vocabulary, config)
    y = _sublayer(ax, right, floor, 1, pre, "Masked Multi-Head Attention", attention)
    turn = (left + right) / 2
    height = y + (0.30 + LOW if pre else 0.16) + 0.22
    memory = [(left, memory_top), (left, memory_top + 0.28), (turn, memory_top + 0.28), (turn, height)]
    y = _sublayer(ax, right, y, 1, pre, "Multi-Head Attention", attention, memory)
    _note(ax, turn - 0.08, memory_top + 0.40, "memory", "right")
    y = _sublayer(ax, right, y, 1, pre, "Feed Forward", feed_forward)
    top = y + 0.2
    _layer(ax, right, floor, top, 1, config.decoder_layers)
    line(ax, [(right, y), (right, top)], arrow=False)

    y = _last_norm(ax, right, y, top, pre)
    linear = f"{config.d_model} → {config.target_vocabulary:,}"
    y = _raised(ax, right, y, 0.25, (WIDE, BOX, "Linear", LINEAR), linear)
    y = _raised(ax, right, y, 0.22, (WIDE, LOW, "Softmax", SOFTMAX))
    line(ax, [(right, y), (right, y + 0.24)])
    _text(ax, right, y + 0.36, "Output Probabilities")
    text = "\n".join(_caption(config))
    _text(ax, left - 1.58, y + 0.3, text, SMALL, ha="left", va="top", color=SOFT, linespacing=1.6)
    return ax


def _caption(config: ModelConfig) -> list[str]:
    """Return the settings that the boxes do not show."""
    lines = [
        f"every line carries vectors of d_model = {config.d_model}",
        f"norm {'before each sub-layer' if config.norm == 'pre' else 'after each sum'} ({config.norm}-norm)",
        f"dropout {config.dropout:g} on sub-layers and embedding sums" if config.dropout else "no dropout",
    ]
    if config.share_embeddings:
        lines.append("one embedding table for inputs and outputs")
    if config.share_output:
        lines.append(f"the linear layer is the output embedding{' with a bias' if config.output_bias else ''}")
    if not config.scale_embeddings:
        lines.append("embeddings are not scaled by √d_model")
    if config.positions not in ("paper", "learned"):
        counted = {"fairseq": ", counted from 2", "opennmt": ", counted from 1"}.get(config.positions, "")
        lines.append(f"positions: all sines, then all cosines{counted}")
    return lines


# --- Figure 2 ------------------------------------------------------------------------------------------------------


def plot_attention_block(config: ModelConfig, ax: Axes | None = None) -> Axes:
    """Draw scaled dot-product attention (Figure 2, left), softmax(Q·Kᵀ / √d_k)·V, with one head's shapes."""
    assert config.d_k is not None
    ax = canvas(ax, 5.3, 4.85)
    x, value, note, wide, low, gap = 1.3, 2.7, 3.3, 1.5, 0.38, 0.3
    for place, name, shape in (
        (x - 0.4, "Q", f"T × {config.d_k}"),
        (x + 0.4, "K", f"S × {config.d_k}"),
        (value, "V", f"S × {config.d_v}"),
    ):
        _text(ax, place, 0.47, name, TEXT + 1)
        _note(ax, place, 0.25, shape, "center", TINY)
    y = 0.95
    for place in (x - 0.4, x + 0.4):
        line(ax, [(place, 0.62), (place, y)])
    for text, colour, meaning in (
        ("MatMul", LINEAR, "scores Q·Kᵀ, T × S"),
        ("Scale", NORM, f"÷ √{config.d_k} = ÷ {math.sqrt(config.d_k):.4g}"),
        ("Mask (opt.)", EMBEDDING, "−∞ where a query may not look"),
        ("SoftMax", SOFTMAX, "weights: every row sums to 1"),
    ):
        _box(ax, x, y, wide, low, text, colour)
        _note(ax, note, y + low / 2, meaning)
        line(ax, [(x, y + low), (x, y + low + gap)])
        y += low + gap
    line(ax, [(value, 0.62), (value, y)])
    centre = (x + value) / 2
    _box(ax, centre, y, value - x + 0.7, low, "MatMul", LINEAR)
    _note(ax, note, y + low / 2, f"weights · V, T × {config.d_v}")
    line(ax, [(centre, y + low), (centre, y + low + gap)])
    _text(ax, centre, y + low + gap + 0.13, "Z", TEXT + 1)
    return ax


def _deck(ax: Axes, x: float, y: float, width: float, height: float, text: str, colour: str, cards: int) -> None:
    """Draw a box as the first of several, one behind the other."""
    for card in reversed(range(cards)):
        shift, edge = 0.3 * card / max(1, cards - 1), 0.8 if card == 0 else 0.45
        order = 3 - 0.1 * card / cards
        _round(ax, x - width / 2 + shift, y + shift, width, height, colour, linewidth=edge, zorder=order, gid="card")
    _text(ax, x, y + height / 2, text, zorder=5)


def plot_multi_head(config: ModelConfig, ax: Axes | None = None) -> Axes:
    """Draw multi-head attention (Figure 2, right): h projections and attentions, joined by W^O."""
    d, h, d_k, d_v = config.d_model, config.heads, config.d_k, config.d_v
    assert d_v is not None
    cards = min(h, 8)  # more cards could not be told apart
    ax = canvas(ax, 7.1, 5.2)
    centre = 2.35
    for x, name in ((0.95, "V"), (centre, "K"), (3.75, "Q")):
        _text(ax, x, 0.3, name, TEXT + 1)
        line(ax, [(x, 0.44), (x, 0.8)])
        _deck(ax, x, 0.8, 1.0, 0.4, "Linear", LINEAR, cards)
        line(ax, [(x, 1.2), (x, 2.0)])
    _deck(ax, centre, 2.0, 3.8, 0.6, "Scaled Dot-Product Attention", ATTENTION, cards)
    y = _raised(ax, centre, 2.6, 0.75, (2.2, 0.4, "Concat", NORM))
    y = _raised(ax, centre, y, 0.4, (2.2, 0.4, "Linear", LINEAR))
    line(ax, [(centre, y), (centre, y + 0.4)])
    values = "" if d_k == d_v else f"\n(values → {d_v})"
    for y, text in (
        (1.15, f"each head projects {d} → {d_k}{values}"),
        (2.45, f"h = {h} head{'s' if h > 1 else ''}, each gives T × {d_v}"),
        (3.55, f"{h} × {d_v} = {h * d_v}"),
        (4.35, f"$W^O$: {h * d_v} → {d}"),
    ):
        _note(ax, 4.78, y, text)
    return ax
