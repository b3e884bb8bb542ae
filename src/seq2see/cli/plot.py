"""``seq2see plot``: every picture, as PNG, SVG or PDF."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seq2see.cli.output import say
from seq2see.cli.predict import ModelName
from seq2see.errors import UserError, suggest

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

    from seq2see.config import ModelConfig
    from seq2see.inspection.trace import Trace

FORMATS = ["png", "svg", "pdf"]
DATE = "1845-01-05"
VARIANTS = ["paper", "halves"]


@dataclass(frozen=True)
class Asked:
    """The options of the command line. Each kind of picture uses those that it needs."""

    text: str | None
    model: str
    preset: str | None
    attention: str
    layer: int
    head: int
    query: int | None
    length: int
    d_model: int | None
    variant: str
    log: Path | None

    def trace(self) -> Trace:
        """Answer the text and record every number."""
        from seq2see.seq2seq import load

        return load(self.model).trace(self.text or DATE)

    def config(self) -> ModelConfig:
        """Return the configuration to draw: that of a preset, or that of the model."""
        from seq2see.config import ModelConfig, preset
        from seq2see.storage.folder import find, read_config

        if self.preset is not None:
            return ModelConfig.of(**preset(self.preset).model)
        return read_config(find(self.model)).model

    def positions(self) -> Tensor:
        """Compute the requested positional encoding."""
        import torch

        return self.encoded(torch.arange(self.length)).float()

    def encoded(self, at: Tensor) -> Tensor:
        """Encode some positions, whole or fractional, by the requested variant."""
        from seq2see.kernels.layers import foreign_sinusoids
        from seq2see.model.positions import sinusoids

        if self.variant not in VARIANTS:
            raise UserError(f"There is no variant {self.variant!r}. {suggest(self.variant, VARIANTS)}")
        if self.variant == "halves":
            return foreign_sinusoids(at, self.width(128), self.variant)
        return sinusoids(at, self.width(128))

    def width(self, default: int) -> int:
        """Return d_model, checked: sines and cosines come in pairs."""
        width = default if self.d_model is None else self.d_model
        if width % 2:
            raise UserError(f"--d-model is {width}, but it must be even: sines and cosines come in pairs.")
        return width

    def values(self, trace: Trace, role: str) -> tuple[Tensor, list[str], list[str]]:
        """Return one role of the requested attention, (H, T, S), and the tokens of its rows and columns."""
        from seq2see.inspection.tables import attention_name, axes_of

        name = f"{attention_name(trace.names, self.attention, self.layer)}.{role}"
        _, queries, keys = axes_of(trace, name)
        heads = len(trace[name])
        if not 0 <= self.head < heads:
            raise UserError(f"There is no head {self.head}: heads are 0 to {heads - 1}.")
        return trace[name], queries, keys

    @property
    def title(self) -> str:
        """Name the head."""
        return f"{self.attention} attention, layer {self.layer}, head {self.head}"


def _positions(asked: Asked) -> Figure:
    from seq2see.inspection.plots import plot_positions

    return _figure(plot_positions(asked.positions()))


def _position_curves(asked: Asked) -> Figure:
    import torch

    from seq2see.inspection.plots import plot_position_curves

    at = torch.linspace(0, asked.length - 1, 20 * asked.length)
    return _figure(plot_position_curves(asked.encoded(at), at))


def _scores(asked: Asked) -> Figure:
    from seq2see.inspection.plots import plot_scores

    scores, queries, keys = asked.values(asked.trace(), "scores")
    return _figure(plot_scores(scores[asked.head], queries, keys), asked.title)


def _mask(asked: Asked) -> Figure:
    from seq2see.inspection.plots import plot_causal_mask

    text = asked.text or "YOUR CAT IS A LOVELY CAT"
    words = text.split() if " " in text else list(text)
    if not words:
        raise UserError("--text has no words: give some words, or leave it out for an example.")
    return _figure(plot_causal_mask(words))


def _attention(asked: Asked) -> Figure:
    from seq2see.inspection.plots import plot_attention

    weights, queries, keys = asked.values(asked.trace(), "weights")
    return _figure(plot_attention(weights[asked.head], queries, keys), asked.title)


def _attention_grid(asked: Asked) -> Figure:
    import torch

    from seq2see.inspection.plots import plot_attention_grid
    from seq2see.inspection.tables import ATTENTIONS

    trace = asked.trace()
    _, queries, keys = asked.values(trace, "weights")
    names = trace.match(f"{ATTENTIONS[asked.attention].format('*')}.weights")
    return plot_attention_grid(torch.stack([trace[name] for name in names]), queries, keys)


def _attention_lines(asked: Asked) -> Figure:
    from seq2see.inspection.plots import plot_attention_lines

    weights, queries, keys = asked.values(asked.trace(), "weights")
    if asked.query is not None and not 0 <= asked.query < len(queries):
        raise UserError(f"--query is {asked.query}, but the tokens are 0 to {len(queries) - 1}.")
    return _figure(plot_attention_lines(weights, queries, keys, asked.query))


def _architecture(asked: Asked) -> Figure:
    from seq2see.inspection.architecture import plot_architecture

    return _figure(plot_architecture(asked.config()))


def _attention_block(asked: Asked) -> Figure:
    from seq2see.inspection.architecture import plot_attention_block

    return _figure(plot_attention_block(asked.config()))


def _multi_head(asked: Asked) -> Figure:
    from seq2see.inspection.architecture import plot_multi_head

    return _figure(plot_multi_head(asked.config()))


def _training(asked: Asked) -> Figure:
    import json

    from seq2see.files import given_text
    from seq2see.inspection.plots import plot_training
    from seq2see.storage.folder import LARGEST_LOG, find

    path = asked.log or find(asked.model) / "log.jsonl"
    text = given_text(path, "the log.jsonl that a training writes", LARGEST_LOG)
    try:
        records = [json.loads(record) for record in text.splitlines()]
        wrong = not records or any(not {"step", "loss", "validation_loss", "exact_match"} <= set(r) for r in records)
    except (ValueError, TypeError):
        wrong = True
    if wrong:
        raise UserError(f"{str(path)!r} is not the log of a training. Give the log.jsonl that `seq2see train` writes.")
    return plot_training(records)


KINDS: dict[str, tuple[str, Callable[[Asked], Figure]]] = {
    "positions": ("positional encoding as a heatmap", _positions),
    "position-curves": ("some of its dimensions as waves", _position_curves),
    "scores": ("the grid of dot products q·k", _scores),
    "mask": ("which token may look at which, for any --text", _mask),
    "attention": ("the weights of one head", _attention),
    "attention-grid": ("the weights of all layers and heads", _attention_grid),
    "attention-lines": ("the heads as coloured lines, as in the appendix", _attention_lines),
    "architecture": ("the whole model, Figure 1 of the paper", _architecture),
    "attention-block": ("scaled dot-product attention, Figure 2 left", _attention_block),
    "multi-head": ("multi-head attention, Figure 2 right", _multi_head),
    "training": ("loss and exact match by step, from a training's log", _training),
}


def _figure(ax: Axes, title: str = "") -> Figure:
    figure = ax.get_figure(root=True)
    assert figure is not None
    if title:
        from seq2see.inspection.style import text_width

        ax.set_title(title, loc="left", fontsize=9, pad=10)
        # the picture of a few tokens would be narrower than its title
        figure.set_figwidth(max(figure.get_figwidth(), text_width(title) + 0.9))
    return figure


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    kinds = "\n".join(f"[bold]{name:20}[/bold] {about}" for name, (about, _) in KINDS.items())
    app.command(help=f"{inspect.cleandoc(plot.__doc__ or '')}\n\n\b\n{kinds}")(plot)


def plot(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="The kind of picture: see the list above.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="A .png, .svg or .pdf; the default is KIND.png.")
    ] = None,
    text: Annotated[
        str | None, typer.Option("--text", "-t", help=f"The text to answer (default {DATE}), or one token.")
    ] = None,
    model: ModelName = "dates",
    preset: Annotated[
        str | None, typer.Option(metavar="NAME", help="Draw the architecture of a preset instead of a model.")
    ] = None,
    attention: Annotated[str, typer.Option(metavar="encoder|decoder|cross", help="The attention to draw.")] = "encoder",
    layer: Annotated[int, typer.Option(min=0, help="The layer, from 0.")] = 0,
    head: Annotated[int, typer.Option(min=0, help="The head, from 0.")] = 0,
    query: Annotated[
        int | None, typer.Option(min=0, help="attention-lines: show only this query token, from 0.")
    ] = None,
    length: Annotated[int, typer.Option(min=2, help="Number of positions.")] = 64,
    d_model: Annotated[int | None, typer.Option(min=2, help="Width of the positions; the default is 128.")] = None,
    variant: Annotated[str, typer.Option(metavar="paper|halves", help="The positional encoding.")] = "paper",
    log: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The log.jsonl of a training; the default is that of the model.")
    ] = None,
) -> None:
    """Draw a picture: of the numbers in a model, of the model itself, or of its training.

    [dim]seq2see plot attention --text 1845-01-05 --attention cross --layer 1 --head 2[/dim]

    [dim]seq2see plot architecture --preset base --out figure-1.svg[/dim]
    """
    if kind not in KINDS:
        raise UserError(f"There is no picture {kind!r}. {suggest(kind, KINDS)}")
    path = out or Path(f"{kind}.png")
    format = path.suffix.removeprefix(".").lower()
    if format not in FORMATS:
        raise UserError(f"--out is {str(path)!r}: its name must end in .png, .svg or .pdf.")
    if text == "":
        raise UserError("--text is empty: leave it out for an example, or give a text.")
    asked = Asked(text, model, preset, attention, layer, head, query, length, d_model, variant, log)
    _save(KINDS[kind][1](asked), path, format)
    say(str(path))


def _save(figure: Figure, path: Path, format: str) -> None:
    """Write a picture in one piece, without a date in it: the same picture is always the same bytes."""
    import io

    from matplotlib import rc_context

    from seq2see.storage.folder import write_atomically

    undated = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[format]
    data = io.BytesIO()
    with rc_context({"svg.hashsalt": "seq2see"}):
        figure.savefig(data, format=format, dpi=160, metadata=undated)
    write_atomically(path, data.getvalue())
