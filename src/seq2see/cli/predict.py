"""``seq2see predict`` and ``seq2see demo``."""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from seq2see.cli.output import complain, console, progress_bar
from seq2see.errors import UserError

if TYPE_CHECKING:
    from seq2see.seq2seq import Answer, Seq2Seq

WINDOW = 4096  # inputs held in memory at a time
DOCUMENT_DATES = ["1845-01-05", "1845-01-06", "1426-08-10", "2025-09-03"]

ModelName = Annotated[
    str, typer.Option("--model", "-m", metavar="NAME|DIR", help="A model that ships, or a model folder.")
]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(predict)
    app.command()(demo)


def predict(
    texts: Annotated[list[str] | None, typer.Argument(metavar="TEXT…", help="What to answer.")] = None,
    dates: Annotated[str | None, typer.Option("--dates", help="Dates with commas between: a,b,c.")] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", metavar="FILE", help="One input a line; - for standard input."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the answers here.")
    ] = None,
    model: ModelName = "dates",
    beam: Annotated[int, typer.Option("--beam", "-b", min=1, help="Prefixes kept open; 1 is greedy.")] = 1,
    n_best: Annotated[
        int, typer.Option("--n-best", "-n", min=1, help="Answers to each input, best first.")
    ] = 1,
    raw: Annotated[
        bool, typer.Option("--raw", help="Show <sos>, <eos> and <pad>, as the documents do.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a line, with probabilities.")
    ] = False,
) -> None:
    """Answer texts: from the command line, a file, or standard input.

    One line comes out for each that goes in, in order. A text that the model cannot take is explained on
    standard error and gets an empty line (an "error" in JSON). Exit status: 0 if all were answered,
    1 if some were refused, 2 if none could be.

    [dim]seq2see predict 1845-01-05 2025-09-03[/dim]

    [dim]seq2see predict --file dates.txt --out words.txt[/dim]
    """
    given = [texts is not None, dates is not None, file is not None]
    if sum(given) > 1:
        raise UserError("Texts were given in more than one way: use one of TEXT…, --dates and --file.")
    if not any(given) and sys.stdin.isatty():
        raise UserError(
            "There is nothing to answer: give texts, --dates=a,b,c or --file F, or pipe lines in."
        )
    if n_best > 1:
        beam = max(beam, n_best)
    from seq2see.seq2seq import load

    loaded = load(model)
    if texts is not None or dates is not None:
        inputs: Iterable[str] = texts if texts is not None else str(dates).split(",")
        place = "input"
    else:
        inputs = _lines(file)
        place = "line"
    with _writer(out) as write:
        answered, refused = _answer_all(loaded, inputs, place, write, beam, n_best, raw, as_json)
    if refused:
        complain(f"{answered:,} answered, {refused:,} refused.")
        raise typer.Exit(1 if answered else 2)
    if not answered:
        raise UserError("The input is empty: there is nothing to answer.")


def _answer_all(
    model: Seq2Seq,
    inputs: Iterable[str],
    place: str,
    out: TextIO,
    beam: int,
    n_best: int,
    raw: bool,
    as_json: bool,
) -> tuple[int, int]:
    """Answer window by window, so that memory stays bounded; return how many were answered and refused."""
    answered = refused = 0
    remaining = iter(inputs)
    with progress_bar("lines") as bar:
        task = bar.add_task("answering", total=None, speed="", visible=place == "line")
        while window := list(itertools.islice(remaining, WINDOW)):
            for answer in model.answers(window, beam, n_best):
                if answer.error is None:
                    answered += 1
                else:
                    refused += 1
                    complain(f"{place} {answered + refused}: {answer.error}")
                out.write(_shown(model, answer, n_best, raw, as_json) + "\n")
            bar.advance(task, len(window))
    return answered, refused


def _shown(model: Seq2Seq, answer: Answer, n_best: int, raw: bool, as_json: bool) -> str:
    """Write one answer; with n_best, its alternatives follow on the same line after tabs."""
    if as_json:
        return json.dumps(_record(model, answer, n_best, raw), ensure_ascii=False)
    if answer.output is None:
        return ""
    best = model.raw(answer) if raw else answer.output
    return "\t".join([best, *(alternative.output for alternative in answer.alternatives)])


def _record(model: Seq2Seq, answer: Answer, n_best: int, raw: bool) -> dict[str, object]:
    if answer.error is not None:
        return {"input": answer.input, "error": answer.error}
    record: dict[str, object] = {
        "input": answer.input,
        "output": answer.output,
        "log_probability": answer.log_probability,
        "tokens": [{"token": token.token, "probability": token.probability} for token in answer.tokens],
    }
    if raw:
        record["raw"] = model.raw(answer)
    if n_best > 1:
        record["alternatives"] = [
            {"output": alternative.output, "log_probability": alternative.log_probability}
            for alternative in answer.alternatives
        ]
    return record


def _lines(path: Path | None) -> Iterator[str]:
    """Read lines from a file or standard input; a line that is not UTF-8 is an error with its number."""
    if path is not None and str(path) != "-" and not path.is_file():
        raise UserError(f"There is no file {str(path)!r}: a text file with one input a line was expected.")
    with path.open("rb") if path is not None and str(path) != "-" else sys.stdin.buffer as file:
        for number, line in enumerate(file, 1):
            try:
                yield line.decode("utf-8").removesuffix("\n").removesuffix("\r")
            except UnicodeDecodeError as error:
                raise UserError(
                    f"Line {number} is not UTF-8 text (byte {error.start + 1} of it): convert the file first."
                ) from None


class _writer:  # noqa: N801 - used like open()
    """Standard output, or a file that appears under its name only when it is whole."""

    def __init__(self, path: Path | None) -> None:
        self.path = path

    def __enter__(self) -> TextIO:
        if self.path is None:
            return sys.stdout
        try:
            self.temporary = tempfile.NamedTemporaryFile(
                "w", encoding="utf-8", dir=self.path.parent, prefix=f".{self.path.name}.", delete=False
            )
        except OSError as error:
            raise UserError(f"{str(self.path)!r} cannot be written: {error.strerror}.") from None
        return self.temporary.file  # type: ignore[return-value]

    def __exit__(self, kind: object, value: object, traceback: object) -> None:
        if self.path is None:
            return
        self.temporary.close()
        if kind is None:
            Path(self.temporary.name).chmod(0o644)
            Path(self.temporary.name).replace(self.path)
        else:
            Path(self.temporary.name).unlink()


def demo() -> None:
    """Show the model that ships at work: four dates, how sure it is, and what to try next."""
    from rich.table import Table

    from seq2see.seq2seq import load

    model = load("dates")
    table = Table(title="ISO dates into words, letter by letter", title_justify="left", title_style="bold")
    table.add_column("you say")
    table.add_column("it answers", style="bold")
    table.add_column("sure", justify="right")
    table.add_column("least sure of", justify="center")
    for answer in model.answers(DOCUMENT_DATES):
        least = min(answer.tokens, key=lambda token: token.probability)
        table.add_row(
            answer.input,
            answer.output,
            f"{answer.probability:.4%}",
            f"{least.token!r} {least.probability:.4%}",
        )
    console.print()
    console.print(table)
    shape = model.config.model
    console.print(
        f"A Transformer of {model.transformer.parameter_count():,} parameters: {shape.encoder_layers}+"
        f"{shape.decoder_layers} layers, {shape.heads} heads, d_model {shape.d_model}.\n"
    )
    console.print("[bold]Try next[/bold]")
    for command, what in (
        ("seq2see predict 1999-12-31", "any date of the years 1000-9999"),
        ("seq2see predict 1999-12-31 --json", "the same with probabilities"),
        ("seq2see trace 1999-12-31", "every number on the way"),
        ("seq2see train dates --out my-dates", "train it yourself, in minutes"),
        ("seq2see --help", "all commands"),
    ):
        console.print(f"  {command:36} [dim]{what}[/dim]")
