"""``seq2see train`` and ``seq2see presets``."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seq2see.cli.evaluate import parse_years
from seq2see.cli.output import aside, complain, console, progress_bar
from seq2see.errors import UserError

if TYPE_CHECKING:
    from seq2see.training.loop import Line, Trainer

HELD_OUT = 10_000  # dates kept for validation, and as many for the final test


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(train)
    app.command()(presets)


def train(
    data: Annotated[str, typer.Argument(metavar="dates", help="What to learn: dates are generated.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="The model folder to make.")] = Path(
        "runs/dates"
    ),
    preset: Annotated[
        str, typer.Option("--preset", "-p", help="Shape and recipe: see `seq2see presets`.")
    ] = "document",
    steps: Annotated[int | None, typer.Option("--steps", min=1, help="Optimiser steps.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any setting, such as model.norm=pre."),
    ] = None,
    years: Annotated[
        str, typer.Option("--years", metavar="A-B", help="Only dates of these years.")
    ] = "1000-9999",
    count: Annotated[int, typer.Option("--count", metavar="N", min=1, help="Dates to learn from.")] = 100_000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Start of every random choice.")] = 1,
    device: Annotated[str, typer.Option("--device", help="cpu or cuda.")] = "cpu",
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an unfinished training, to the bit.")
    ] = False,
) -> None:
    """Train a model and write it as a folder that predict, evaluate and trace take with --model.

    Dates for validation and for the final test are never trained on. Ctrl-C leaves a checkpoint;
    --resume goes on from the last one and gives the same weights as if nothing had happened.

    [dim]seq2see train dates --out my-dates[/dim]

    [dim]seq2see train dates --out small-years --years 1000-2025 --count 10000 --set model.norm=pre[/dim]
    """
    if data != "dates":
        raise UserError(f"{data!r} cannot be trained on: 'dates' was expected.")
    first, last = parse_years(years)
    from seq2see.config import Config, ModelConfig, TrainingConfig, parse_overrides
    from seq2see.config import preset as find_preset
    from seq2see.data.dates import all_ordinals, splits
    from seq2see.folder import Tokenizers
    from seq2see.text.tokenizer import Tokenizer
    from seq2see.training.loop import Trainer

    recipe, chosen = find_preset(preset), parse_overrides(settings or [])
    available = len(all_ordinals(first, last))
    held_out = min(HELD_OUT, available // 10)
    if count > available - 2 * held_out:
        raise UserError(
            f"--count is {count:,}, but the years {first}-{last} leave {available - 2 * held_out:,} dates to learn from "
            f"({held_out:,} each are held out for validation and test)."
        )
    tokenizers = Tokenizers.one(Tokenizer.characters())
    vocabulary = {"source_vocabulary": tokenizers.source.size, "target_vocabulary": tokenizers.target.size}
    given: dict[str, Any] = {"seed": seed} | ({} if steps is None else {"steps": steps})
    config = Config(
        "dates",
        ModelConfig.of(**{**recipe.model, **vocabulary, **chosen["model"]}),
        TrainingConfig.of(**{**recipe.training, **given, **chosen["training"]}),
    )
    with aside.status(f"Making {count:,} dates …"):
        pairs, validation, test = splits(count, held_out, held_out, seed, (first, last))
        trainer = Trainer(config, tokenizers, pairs, validation, out, resume, _device(device), complain)
    if not _run(trainer):
        complain(f"Stopped after step {trainer.step:,}; the same command with --resume goes on.")
        raise typer.Exit(130)
    _finish(trainer, test, count)


def _device(name: str) -> str:
    import torch

    if name != "cpu" and not (name.split(":")[0] == "cuda" and torch.cuda.is_available()):
        raise UserError(f"--device is {name!r}: 'cpu' was expected, or 'cuda' where PyTorch sees a GPU.")
    return name


def _run(trainer: Trainer) -> bool:
    """Train with a table and a bar; return False if interrupted, with a checkpoint written."""
    interrupted = False

    def interrupt(number: int, frame: object) -> None:
        nonlocal interrupted
        if interrupted:
            raise KeyboardInterrupt
        interrupted = True

    before = signal.signal(signal.SIGINT, interrupt)
    total = trainer.config.training.steps
    header = f"{'step':>8} {'epoch':>7} {'loss':>10} {'held-out loss':>14} {'exact match':>12} {'seconds':>8}"
    console.print(f"[bold]{header}[/bold]")
    try:
        with progress_bar("steps") as bar:
            task = bar.add_task("training", total=total, completed=trainer.step, speed="")
            for step in trainer.steps():
                bar.update(
                    task, completed=step.step, speed=f"{step.step / max(trainer.seconds, 1e-9):,.1f}/s"
                )
                if step.line is not None:
                    (bar.console if sys.stdout.isatty() and not bar.disable else console).print(
                        _row(step.line)
                    )
                if interrupted and step.step < total:
                    trainer.save()
                    return False
    finally:
        signal.signal(signal.SIGINT, before)
    return True


def _row(line: Line) -> str:
    return (
        f"{line.step:8,} {line.epoch:7.2f} {line.loss:10.5f} {line.validation_loss:14.6f} "
        f"{line.exact_match:12.2%} {line.seconds:8.1f}"
    )


def _finish(trainer: Trainer, test: list[tuple[str, str]], count: int) -> None:
    """Average, test on dates never seen, and write the folder."""
    from seq2see.evaluate import evaluate
    from seq2see.training.card import model_card

    model = trainer.finish()
    with aside.status("Testing …"):
        scores = evaluate(model, trainer.tokenizers, test)
    command = " ".join(["seq2see", *(word for word in sys.argv[1:] if word != "--resume")])
    trainer.write(
        model_card(trainer.config, model.parameter_count(), count, scores, trainer.seconds, command)
    )
    console.print(
        f"Test: {scores.exact:,} of {scores.pairs:,} dates never seen are right ({scores.exact_match:.2%}), "
        f"after {trainer.seconds:.0f} s of training."
    )
    console.print(
        f"Written to {trainer.out}. Use it: seq2see predict --model {trainer.out} 1845-01-05", markup=False
    )


def presets(
    vocabulary: Annotated[
        int, typer.Option("--vocabulary", min=4, help="Tokens, shared by both sides.")
    ] = 41_000,
) -> None:
    """List the presets, with the parameters of every row of the paper's Table 3 beside the paper's figure."""
    from rich.table import Table

    from seq2see.config import PRESETS, ModelConfig
    from seq2see.model.transformer import count_parameters

    table = Table(box=None, pad_edge=False)
    for name, justify in (
        ("preset", "left"),
        ("parameters", "right"),
        ("paper", "right"),
        ("", "right"),
        ("what", "left"),
    ):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for name, entry in PRESETS.items():
        size = 68 if name == "document" else vocabulary
        config = ModelConfig.of(**{"source_vocabulary": size, "target_vocabulary": size, **entry.model})
        parameters = count_parameters(config)
        paper = entry.paper_millions
        table.add_row(
            name,
            f"{parameters:,}",
            "" if paper is None else f"{paper} M",
            "" if paper is None else f"{parameters / paper / 1e6 - 1:+.1%}",
            entry.about,
        )
    console.print(table)
    console.print(
        f"\nCounted with {vocabulary:,} shared tokens (document: its 68). The paper speaks of about 37,000, but its size "
        "column implies 41,000:\n7.33 M a layer from 20.9 M. `--vocabulary 37000` shows the difference.",
        style="dim",
    )
