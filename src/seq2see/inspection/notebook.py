"""What a notebook shows of an answer, a model and the history of its training: plain HTML, without a script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from seq2see.errors import FolderError
from seq2see.files import parsed, read_text
from seq2see.storage.folder import LARGEST_LOG, LOG

WIDTH, HEIGHT, EDGE = 360, 110, 6  # of a curve, in pixels
SURE = 0.999  # probability of a token from which it is not coloured


class History(list[dict[str, Any]]):
    """The lines of a training's table: each has its step, losses and scores. A notebook shows their curve."""

    @classmethod
    def read(cls, path: Path) -> History:
        """Read the log that lies in a model folder; empty if there is none, or if it is no log."""
        try:
            lines = [parsed(line, LOG) for line in read_text(path / LOG, LARGEST_LOG).splitlines()]
        except (FolderError, OSError):
            return cls()
        needed = ("step", "loss", "validation_loss", "exact_match")
        records = (line for line in lines if isinstance(line, dict))
        return cls(line for line in records if all(type(line.get(name)) in (int, float) for name in needed))

    def _repr_html_(self) -> str:
        return history(self)


def answer(one: Any) -> str:
    """Show an answer: its letters coloured by how unsure the model was of each token, its confidence, its remark."""
    given = f"<code dir='auto'>{escape(one.input)}</code> → "
    if one.output is None:
        return f"<div>{given}<em>{escape(str(one.error))}</em></div>"
    shown = (
        "".join(_token(token.token, token.probability) for token in one.tokens) if one.tokens else escape(one.output)
    )
    if one.tokens and "".join(token.token for token in one.tokens).strip() != one.output:
        shown = escape(one.output)  # sub-words are written otherwise, and repairs have no tokens
    said = [] if one.confidence is None else [f"right with a probability of {one.confidence:.1%}"]
    said += [escape(text) for text in (one.remark, *one.repairs) if text]
    others = "".join(
        f"<li dir='auto'>{escape(other.output)} <small>{_log(other.log_probability)}</small></li>"
        for other in one.alternatives
    )
    beside = f" <small>({'; '.join(said)})</small>" if said else ""
    below = f"<ol start=2>{others}</ol>" if others else ""
    return f"<div>{given}<b dir='auto'>{shown}</b>{beside}{below}</div>"


def _token(token: str, probability: float) -> str:
    if probability >= SURE or token.startswith("<"):
        return "" if token.startswith("<") else escape(token)
    colour = f"rgba(235,120,20,{1 - probability:.2f})"
    return f"<span title='{probability:.1%}' style='background:{colour}'>{escape(token)}</span>"


def _log(log_probability: float) -> str:
    return f"log P {log_probability:.2f}"


def model(one: Any) -> str:
    """Show a model: its size, how it cuts, and the curve of its training if it is known."""
    shape = one.config.model
    rows = {
        "parameters": f"{shape.parameters:,}",
        "layers, heads, d_model": f"{shape.encoder_layers}+{shape.decoder_layers}, {shape.heads}, {shape.d_model}",
        "tokens": f"{one.tokenizers.source.kind} → {one.tokenizers.target.kind}",
        "answers on": one.device,
        "confidence": "not fitted" if one.confidence is None else f"fitted on {one.confidence.fitted_on:,} pairs",
    }
    if one.config.model.members > 1:
        rows["members"] = str(one.config.model.members)
    cells = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows.items())
    name = one.path.name if one.path else one.config.task
    return f"<div><b>{escape(name)}</b><table>{cells}</table>{history(one.history)}</div>"


def history(lines: Sequence[Mapping[str, Any]]) -> str:
    """Show the lines of a training: the share of right answers and the validation loss over the steps."""
    if not lines:
        return ""
    last, steps = lines[-1], [float(line["step"]) for line in lines]
    losses = [float(line["validation_loss"]) for line in lines]
    highest = max(losses) or 1.0
    curves = (
        ("right", "#1a7f5a", [float(line["exact_match"]) for line in lines]),
        ("loss", "#b5540a", [loss / highest for loss in losses]),
    )
    drawn = "".join(
        f"<polyline fill='none' stroke='{colour}' stroke-width='2' points='{_points(steps, values)}'>"
        f"<title>{name}</title></polyline>"
        for name, colour, values in curves
    )
    return (
        f"<figure style='margin:0'><svg width='{WIDTH}' height='{HEIGHT}' role='img' aria-label='The training'>"
        f"{drawn}</svg><figcaption><span style='color:#1a7f5a'>{last['exact_match']:.1%} right</span>, "
        f"<span style='color:#b5540a'>validation loss {last['validation_loss']:.4f}</span> after step {last['step']:,}"
        "</figcaption></figure>"
    )


def _points(steps: Sequence[float], values: Sequence[float]) -> str:
    """Return the points of a curve; values from 0 to 1 fill the height."""
    width, height = WIDTH - 2 * EDGE, HEIGHT - 2 * EDGE
    return " ".join(
        f"{EDGE + width * step / steps[-1]:.1f},{EDGE + height * (1 - value):.1f}"
        for step, value in zip(steps, values, strict=True)
    )
