"""``seq2see train`` and ``seq2see presets``."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seq2see.cli.data import are_dates, paths_of, read, run_name
from seq2see.cli.evaluate import parse_years
from seq2see.cli.output import NAMED, aside, complain, console, hush, progress_bar, say
from seq2see.config import PAPER_VOCABULARY
from seq2see.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

    from seq2see.config import Preset
    from seq2see.data.pairs import Corpus
    from seq2see.data.shards import Survey
    from seq2see.training.loop import Line, Trainer

HELD_OUT = 10_000  # dates kept for validation, and as many for the final test
SHAPE = ("d_model", "heads", "d_ff", "encoder_layers", "decoder_layers")  # of a preset, whatever the data are


@dataclass(frozen=True)
class Views:
    """Where a run is shown besides the terminal."""

    page: bool
    tensorboard: bool


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(train)
    app.command()(presets)


def train(
    data: Annotated[
        list[str],
        typer.Argument(
            metavar="dates|FILE…",
            help="What to learn: dates are generated; else pairs in a TSV, CSV or JSON-lines file, or in two parallel "
            "files; .gz and .xz too.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="DIR", help="The model folder to make; runs/NAME if not given."),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option("--tokenizer", metavar="KIND", help="characters, words, bpe or unigram; by the data."),
    ] = None,
    vocabulary: Annotated[
        int | None, typer.Option("--vocabulary", metavar="N", min=8, help="Tokens at most; by the data.")
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option("--preset", "-p", help="Shape and recipe: see `seq2see presets`; by the data."),
    ] = None,
    start: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="DIR", help="Learn on from this model: its tokenizer, shape and weights."
        ),
    ] = None,
    steps: Annotated[int | None, typer.Option("--steps", min=1, help="Optimiser steps.")] = None,
    seconds: Annotated[
        float | None,
        typer.Option("--seconds", min=1.0, help="Train for about so long, instead of a number of steps."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any setting, such as model.norm=pre."),
    ] = None,
    validation: Annotated[
        str | None,
        typer.Option("--validation", metavar="FILE", help="Pairs to watch; some of the data if not given."),
    ] = None,
    test: Annotated[
        str | None,
        typer.Option(
            "--test", metavar="FILE", help="Pairs for the final score; some of the data if not given."
        ),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse a file with a bad row.")] = False,
    years: Annotated[
        str | None, typer.Option("--years", metavar="A-B", help="Only dates of these years; 1000-9999.")
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", metavar="N", min=1, help="Dates to learn from; 100,000.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Start of every random choice.")] = 1,
    device: Annotated[str, typer.Option("--device", help="cpu or cuda.")] = "cpu",
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an unfinished training, to the bit.")
    ] = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write the table for TensorBoard too, into DIR/tensorboard.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show the run on a page while it goes on; the address is printed.")
    ] = False,
) -> None:
    """Train a model and write it as a folder that predict, evaluate and trace take with --model.

    A file of pairs needs no other option. Its texts are read in Unicode NFC with white space folded; bad rows are
    named and skipped. Pairs for validation and for the final test are split off by their source and never trained
    on. Ctrl-C leaves a checkpoint; --resume goes on from the last one and gives the same weights as if nothing
    had happened; where the training is finished, it changes nothing. Under torchrun many processes train one model
    together.

    [dim]seq2see train mine.tsv[/dim]

    [dim]seq2see train train.en train.fr --test test.en,test.fr --tokenizer bpe --vocabulary 8000[/dim]

    [dim]seq2see train dates --out small-years --years 1000-2025 --count 10000 --set model.norm=pre[/dim]
    """
    from seq2see.config import ModelConfig, parse_overrides
    from seq2see.config import preset as find_preset

    chosen = parse_overrides(settings or [])
    recipe = find_preset(preset or "document")
    if steps is not None and seconds is not None:
        raise UserError("--steps and --seconds both say how long to train: give one of them.")
    said = {"seed": seed, "steps": steps, "seconds": seconds}
    chosen["training"] = {name: value for name, value in said.items() if value is not None} | chosen[
        "training"
    ]
    device, again = _joined(_device(device))
    resume = resume or again
    dates = are_dates(data)
    where = out or Path("runs") / ("dates" if dates else run_name(paths_of(*data)))
    asked = {"model": dict(chosen["model"]), "training": chosen["training"]}
    if preset is not None and start is None:
        shape = ModelConfig.of(**recipe.model)
        asked["model"] = {name: getattr(shape, name) for name in SHAPE} | asked["model"]
    if resume and _finished(where, "dates" if dates else "pairs", asked, tokenizer):
        return
    if dates:
        for name, value in (("--tokenizer", tokenizer), ("--vocabulary", vocabulary), ("--validation", validation),
                            ("--test", test), ("--strict", strict or None), ("--from", start)):  # fmt: skip
            if value is not None:
                raise UserError(f"{name} is for files of pairs; dates have their own tokens and splits.")
        first, last = parse_years(years or "1000-9999")
        _dates(
            recipe,
            chosen,
            (first, last),
            count or 100_000,
            seed,
            where,
            resume,
            device,
            Views(watch, tensorboard),
        )
        return
    if years is not None or count is not None:
        raise UserError("--years and --count are for dates; a file of pairs is taken as it is.")
    from seq2see.data.shards import is_large, survey

    paths = paths_of(*data)
    wanted = dict(tokenizer=tokenizer, vocabulary=vocabulary, preset=preset, device=device, **chosen)
    weights = None if start is None else _from(start, wanted)
    given = {
        name: None if text is None else read(text, strict=strict).pairs
        for name, text in (("validation", validation), ("test", test))
    }
    found = survey(paths, seed, given["validation"], given["test"], strict) if is_large(paths) else None
    corpus = read(*data, strict=strict) if found is None else found.corpus
    _pairs(corpus, found, given, wanted, seed, where, resume, device, Views(watch, tensorboard), weights)


def _joined(device: str) -> tuple[str, bool]:
    """Join the others if torchrun has started some, of which the first speaks; say whether it has done so before."""
    from seq2see.training import distributed

    device, again = distributed.join(device)
    if not distributed.first():
        hush()
    return device, again


def _finished(out: Path, task: str, asked: dict[str, dict[str, Any]], tokenizer: str | None) -> bool:
    """Whether the training to resume is at its end already, by the word of the first process.

    Then there is nothing to do: a script that resumes may be started once more than needed. What was asked for must
    be what the folder says; of its data it says nothing.
    """
    from seq2see.folder import WEIGHTS
    from seq2see.training import distributed

    finished = distributed.first() and (out / WEIGHTS).is_file()
    if finished:
        _same_as(out, task, asked, tokenizer)
    finished = distributed.from_first(finished)
    if finished:
        complain(f"{out} holds a finished model: there is nothing left to resume.")
        distributed.leave()
    return finished


def _same_as(out: Path, task: str, asked: dict[str, dict[str, Any]], tokenizer: str | None) -> None:
    """Refuse to take a finished model for that of a training with other settings."""
    from dataclasses import asdict

    from seq2see.folder import read_config, read_tokenizers
    from seq2see.training.loop import SHARING

    config, kind = read_config(out), read_tokenizers(out).target.kind
    fitted = () if config.training.seconds is None else ("steps", "evaluate_every", "checkpoint_every")
    differing = [] if task == config.task else [("task", config.task, task)]
    differing += [] if tokenizer in (None, kind) else [("tokenizer", kind, tokenizer)]
    for part in (config.model, config.training):
        then, now = asdict(part), asdict(part.but(**asked[part.section]))
        differing += [(f"{part.section}.{key}", value, now[key]) for key, value in then.items()
                      if key not in (*SHARING, *fitted) and now[key] != value]  # fmt: skip
    if differing:
        name, before, after = differing[0]
        raise UserError(
            f"{out} already holds a finished model, trained with {name} = {before}, but now it is {after}: "
            "train into another folder."
        )


def _dates(
    recipe: Preset,
    chosen: dict[str, dict[str, Any]],
    years: tuple[int, int],
    count: int,
    seed: int,
    out: Path,
    resume: bool,
    device: str,
    views: Views,
) -> None:
    """Train on dates that are generated."""
    from seq2see.config import Config, ModelConfig, TrainingConfig
    from seq2see.data.dates import all_ordinals, splits
    from seq2see.data.plan import fast_on
    from seq2see.folder import Tokenizers
    from seq2see.text.tokenizer import Tokenizer
    from seq2see.training.loop import Trainer

    first, last = years
    available = len(all_ordinals(first, last))
    held_out = min(HELD_OUT, available // 10)
    if count > available - 2 * held_out:
        raise UserError(
            f"--count is {count:,}, but the years {first}-{last} leave {available - 2 * held_out:,} dates to learn from "
            f"({held_out:,} each are held out for validation and test)."
        )
    tokenizers = Tokenizers.one(Tokenizer.characters())
    vocabulary = {"source_vocabulary": tokenizers.source.size, "target_vocabulary": tokenizers.target.size}
    config = Config(
        "dates",
        ModelConfig.of(**{**recipe.model, **vocabulary, **chosen["model"]}),
        TrainingConfig.of(**{**recipe.training, **fast_on(device), **chosen["training"]}),
    )
    with aside.status(f"Making {count:,} dates …"):
        pairs, validation, test = splits(count, held_out, held_out, seed, (first, last))
        trainer = Trainer(config, tokenizers, pairs, validation, out, resume, device, complain)
    _train(trainer, test, count, "1845-01-05", views)


def _pairs(
    corpus: Corpus,
    found: Survey | None,
    given: dict[str, list[tuple[str, str]] | None],
    wanted: dict[str, Any],
    seed: int,
    out: Path,
    resume: bool,
    device: str,
    views: Views,
    weights: dict[str, Tensor] | None,
) -> None:
    """Train on the pairs of a file: look at them, choose what fits, train, test."""
    from seq2see.data.doctor import in_words, seconds_of
    from seq2see.data.pairs import split
    from seq2see.folder import CONFIG, read_tokenizers
    from seq2see.training import distributed
    from seq2see.training.loop import SHARDS, Trainer
    from seq2see.workshop import prepare, prepare_large

    _look(corpus)
    if resume and (out / CONFIG).is_file():
        wanted["tokenizers"] = read_tokenizers(out)
    with aside.status("Preparing …"):
        if not distributed.first():  # which makes the tokenizers for all, and shards that the others find
            wanted["tokenizers"] = distributed.from_first(None)
        if found is None:
            ready = prepare(split(corpus.pairs, seed=seed, **given), **wanted)
        else:
            ready = prepare_large(found, out / SHARDS, **wanted)
        if distributed.first():
            distributed.from_first(ready.tokenizers)
        parts = ready.splits
        trainer = Trainer(
            ready.config,
            ready.tokenizers,
            ready.train,
            parts.validation,
            out,
            resume,
            device,
            complain,
            weights,
        )
    if ready.shards is not None and ready.shards.dropped:
        complain(f"{ready.shards.dropped:,} pairs are too long and left out.")
    if ready.dropped:
        line_of = dict(zip(corpus.pairs, corpus.lines, strict=True))
        lines = sorted(line_of[pair] for pair in ready.dropped if pair in line_of)
        named = ", ".join(f"{line:,}" for line in lines[:NAMED])
        complain(
            f"{len(ready.dropped):,} pairs are too long and left out (lines {named}{' …' * (len(lines) > NAMED)})."
        )
    counts = (
        f"{len(ready.train):,} to learn from, {len(parts.validation):,} to watch, {len(parts.test):,} to test"
    )
    say(f"{corpus.name}: {counts}, no source in two parts.")
    if weights is None:
        say(f"Chosen: {ready.plan}")
    size = f"{trainer.model.parameter_count():,} parameters, {ready.config.training.steps:,} steps"
    if ready.config.training.seconds is not None:
        size = f"{trainer.model.parameter_count():,} parameters, {ready.config.training.seconds:,.0f} s"
    estimate = f", about {in_words(seconds_of(ready.config))}" if device == "cpu" else ""
    say(f"{size}{estimate}.")
    extra = (
        f"\nData: {corpus.name}, {counts}, split by source with seed {seed}; tokenizer {ready.plan.tokenizer}, preset "
        f"{ready.plan.preset}.\n"
    )
    _train(trainer, parts.test, len(ready.train), parts.test[0][0], views, extra, samples=True)


def _from(start: Path, wanted: dict[str, Any]) -> dict[str, Tensor]:
    """Take over tokenizer, shape and weights of a model, and a lower learning rate, unless another is set."""
    from seq2see.folder import find, read_config, read_tokenizers, weights_path
    from seq2see.model.weights import read_weights
    from seq2see.workshop import further

    for name in ("tokenizer", "vocabulary"):
        if wanted[name] is not None:
            raise UserError(
                f"--{name} is {wanted[name]!r}, but --from takes the tokenizer of {start}: leave it out."
            )
    path = find(start)
    wanted["tokenizers"] = read_tokenizers(path)
    wanted["model"], wanted["training"] = further(read_config(path), wanted["model"], wanted["training"])
    return read_weights(weights_path(path))


def _look(corpus: Corpus) -> None:
    """Say in short what the doctor would say; swapped columns are not trained on."""
    from seq2see.data.doctor import inspect, languages_of, misnamed

    if wrong := misnamed(corpus, languages_of(corpus.pairs[:2000])):
        raise UserError(f"{wrong}. Swap them, or the names, and train again.")
    for fault in corpus.faults[:NAMED]:
        complain(f"{corpus.name}, {fault}: skipped.")
    if len(corpus.faults) > NAMED:
        complain(f"{len(corpus.faults) - NAMED:,} more bad rows are skipped.")
    findings = [finding for finding in inspect(corpus).faults if "cannot be used" not in finding.text]
    for finding in findings:
        complain(f"{finding.text}: {finding.advice}.")
    if findings or corpus.faults:
        complain("`seq2see doctor` says more.")


def _train(
    trainer: Trainer,
    test: list[tuple[str, str]],
    count: int,
    example: str,
    views: Views,
    extra: str = "",
    samples: bool = False,
) -> None:
    """Run to the end, test and write; an interrupted run leaves a checkpoint."""
    from seq2see.training import distributed

    with _page(trainer) if views.page and distributed.first() else nullcontext():
        board = _board(trainer.out) if views.tensorboard and trainer.out and distributed.first() else None
        ended = _run(trainer, samples, board)
        if ended and distributed.first():
            _finish(trainer, test, count, example, extra)
    distributed.leave()
    if not ended:
        complain(f"Stopped after step {trainer.step:,}; the same command with --resume goes on.")
        raise typer.Exit(130)


@contextmanager
def _page(trainer: Trainer) -> Iterator[None]:
    """Show the run in a browser meanwhile."""
    from seq2see.serve.live import watched

    assert trainer.out is not None
    with watched(trainer.out) as address:
        complain(f"watch it at {address} (afterwards: seq2see watch {trainer.out})")
        yield


def _device(name: str) -> str:
    import torch

    if name != "cpu" and not (name.split(":")[0] == "cuda" and torch.cuda.is_available()):
        raise UserError(f"--device is {name!r}: 'cpu' was expected, or 'cuda' where PyTorch sees a GPU.")
    return name


def _board(out: Path) -> Callable[[Line], None]:
    """Return what writes a line of the table where TensorBoard finds it."""
    from importlib.util import find_spec

    if find_spec("tensorboard") is None:
        raise UserError('--tensorboard needs its package: pip install "seq2see[tensorboard]".')
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(out / "tensorboard"))

    def write(line: Line) -> None:
        for name in ("loss", "validation_loss", "exact_match", "bleu", "learning_rate"):
            if (value := getattr(line, name)) is not None:
                writer.add_scalar(name, value, line.step)
        writer.flush()

    return write


def _run(trainer: Trainer, samples: bool, board: Callable[[Line], None] | None) -> bool:
    """Train with a table and a bar; return False if interrupted, with a checkpoint written."""
    from seq2see.training import distributed

    interrupted = False

    def interrupt(number: int, frame: object) -> None:
        nonlocal interrupted
        if interrupted and distributed.size() == 1:  # torchrun knows by itself how to end those who linger
            raise KeyboardInterrupt
        interrupted = True

    before = {sort: signal.signal(sort, interrupt) for sort in (signal.SIGINT, signal.SIGTERM)}
    header = f"{'step':>8} {'epoch':>7} {'loss':>10} {'held-out loss':>14} {'exact match':>12} {'seconds':>8}"
    if trainer.sentences:
        header += f" {'BLEU':>6}"
    console.print(f"[bold]{header}[/bold]")
    try:
        with progress_bar("steps") as bar:
            task = bar.add_task(
                "training", total=trainer.config.training.steps, completed=trainer.step, speed=""
            )
            for step in trainer.steps():
                total = trainer.config.training.steps
                bar.update(
                    task,
                    total=total,
                    completed=step.step,
                    speed=f"{step.step / max(trainer.seconds, 1e-9):,.1f}/s",
                )
                if step.line is not None:
                    if board is not None:
                        board(step.line)
                    shown = bar.console if sys.stdout.isatty() and not bar.disable else console
                    shown.print(_row(step.line))
                    for sample in step.line.samples if samples else []:
                        say(_sample(*sample), style="dim", on=shown)
                if distributed.any_of(interrupted) and step.step < total:
                    trainer.save(at_once=True)
                    return False
    finally:
        for sort, handler in before.items():
            signal.signal(sort, handler)
    return True


def _row(line: Line) -> str:
    return (
        f"{line.step:8,} {line.epoch:7.2f} {line.loss:10.5f} {line.validation_loss:14.6f} "
        f"{line.exact_match:12.2%} {line.seconds:8.1f}" + ("" if line.bleu is None else f" {line.bleu:6.2f}")
    )


def _sample(source: str, expected: str, given: str) -> str:
    """Show one answer under a line of the table, and the right one if it is another."""
    return f"         {source} → {given}" + ("" if given == expected else f"   (right: {expected})")


def _finish(trainer: Trainer, test: list[tuple[str, str]], count: int, example: str, extra: str) -> None:
    """Average, test on pairs never seen, and write the folder."""
    from seq2see.evaluate import evaluate
    from seq2see.metrics import bleu
    from seq2see.training import distributed
    from seq2see.training.card import model_card

    model = trainer.finish()
    with aside.status("Testing …"):
        scores = evaluate(model, trainer.tokenizers, test)
    many = f"torchrun --nproc-per-node {distributed.size()} -m " if distributed.size() > 1 else ""
    command = " ".join([many + "seq2see", *(word for word in sys.argv[1:] if word != "--resume")])
    trainer.write(
        model_card(trainer.config, model.parameter_count(), count, scores, trainer.seconds, command, extra)
    )
    what = "dates" if trainer.config.task == "dates" else "pairs"
    say(
        f"Test: {scores.exact:,} of {scores.pairs:,} {what} never seen are right ({scores.exact_match:.2%}), "
        f"after {trainer.seconds:.0f} s of training."
    )
    if trainer.sentences:
        found = bleu([given for _, _, given in scores.answers], [right for _, right, _ in scores.answers])
        say(f"BLEU {found.score:.2f} ({found.signature})")
    say(f"Written to {trainer.out}. Use it:")
    # never broken into lines by us: it is there to be copied
    console.print(
        f"  seq2see predict --model {trainer.out} {shlex.quote(example)}", markup=False, soft_wrap=True
    )


def presets(
    vocabulary: Annotated[
        int, typer.Option("--vocabulary", min=4, help="Tokens, shared by both sides.")
    ] = PAPER_VOCABULARY,
) -> None:
    """List the presets, with the parameters of every row of the paper's Table 3 beside the paper's figure."""
    from rich.table import Table

    from seq2see.config import PRESETS, ModelConfig

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
        parameters = config.parameters
        paper = entry.paper_millions
        table.add_row(
            name,
            f"{parameters:,}",
            "" if paper is None else f"{paper} M",
            "" if paper is None else f"{parameters / paper / 1e6 - 1:+.1%}",
            entry.about,
        )
    console.print(table)
    say(
        f"\nCounted with {vocabulary:,} shared tokens (document: its 68). The paper speaks of about 37,000, but its size "
        "column implies 41,000: 7.33 M a layer from 20.9 M. `--vocabulary 37000` shows the difference.",
        style="dim",
    )
