"""``seq2see export`` and ``seq2see compress``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seq2see.cli.output import say
from seq2see.cli.predict import ModelName
from seq2see.errors import UserError


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(export)
    app.command()(compress)


def export(
    model: ModelName = "dates",
    format: Annotated[str, typer.Option("--format", metavar="NAME", help="ctranslate2.")] = "ctranslate2",
    quantization: Annotated[
        str,
        typer.Option("--quantization", "-q", metavar="TYPE", help="float32, or int8: smaller and faster."),
    ] = "float32",
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", metavar="FILE", help="Inputs to check it on; made up if not given."),
    ] = None,
) -> None:
    """Write a model for another engine into its folder, checked against ours token by token.

    In float32 every answer must be the same; of int8 the agreement is told.

    [dim]seq2see export --model my-dates --quantization int8[/dim]
    """
    if format != "ctranslate2":
        raise UserError(f"--format is {format!r}: 'ctranslate2' was expected.")
    from importlib.util import find_spec

    if find_spec("ctranslate2") is None:
        raise UserError("The package ctranslate2 is not installed: pip install ctranslate2.")
    from seq2see import folder
    from seq2see.interchange.to_ctranslate2 import export as write
    from seq2see.seq2seq import load

    loaded = load(model, engine="torch")
    inputs: list[str] = []
    if file is not None:
        if not file.is_file():
            raise UserError(
                f"There is no file {str(file)!r}: a text file with one input a line was expected."
            )
        inputs = file.read_text(encoding="utf-8").splitlines()
        for text in inputs:
            loaded.check(text)
    path = folder.find(model)
    parity = write(path, loaded.transformer, loaded.tokenizers, quantization, inputs, loaded.config.decoding)
    say(f"{path / format}: {quantization}; {parity}.")


def compress(
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="The smaller model folder to make.")
    ],
    model: ModelName = "dates",
) -> None:
    """Write a model folder with weights of eight bits: a quarter of the size, at next to no loss.

    Each row of each matrix is rounded to 255 steps of its own size. The folder is used as any other; `seq2see
    evaluate FILE --compare A B` says what the rounding costs.

    [dim]seq2see compress --model runs/mine --out mine-small[/dim]
    """
    from seq2see import folder
    from seq2see.model.weights import in_eight_bits, weights_bytes, weights_of
    from seq2see.seq2seq import load

    if out.exists():
        raise UserError(f"{out} is there already: name a folder that is not.")
    before = folder.weights_path(folder.find(model)).stat().st_size
    loaded = load(model, engine="torch")
    data = weights_bytes(in_eight_bits(weights_of(loaded.transformer)))
    folder.write(out, loaded.config, loaded.tokenizers, data, loaded.card)
    say(f"{out}: {before / 1e6:,.1f} MB became {len(data) / 1e6:,.1f} MB.")
