"""``seq2see train`` and ``seq2see presets``: they read options and show progress; ``training.journey`` does the work."""

from __future__ import annotations

import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from statistics import mean, pstdev
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from seq2see import devices, machine
from seq2see.cli.data import are_dates, run_name
from seq2see.cli.evaluate import parse_years
from seq2see.cli.options import Columns, Threads, Years
from seq2see.cli.output import aside, complain, console, hush, progress_bar, say
from seq2see.config import PAPER_VOCABULARY
from seq2see.errors import UserError

if TYPE_CHECKING:
    from seq2see.data.pairs import Corpus
    from seq2see.training.job import TrainingJob
    from seq2see.training.loop import Line, Step, Trainer
    from seq2see.training.options import TrainOptions
    from seq2see.training.prepare import RawSplits

#: Options that apply only to one kind of data.
FOR_PAIRS = (
    "columns", "tokenizer", "vocabulary", "validation", "test", "strict", "start", "distil", "teacher",
    "unlabelled", "unseen", "search", "rules",
)  # fmt: skip
FOR_DATES = ("years", "count")
LONG = 10.0  # seconds of preparation from which its speed is printed
SAMPLE = 60  # characters of a sample text under a line of the table
LOOKED_AT = 50_000  # pairs that are checked before a training; `seq2see doctor` checks all


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(train)
    app.command()(presets)


def train(
    ctx: typer.Context,
    data: Annotated[list[str], Argument(metavar="dates|FILE…", help="What to learn: generated dates, or pairs in a "
                    "TSV, CSV, JSON, Parquet or Excel file, or in two parallel files; .gz and .xz too.")],
    out: Annotated[Path | None, Option("--out", "-o", metavar="DIR",
                   help="The model folder to write; runs/NAME if not given.")] = None,
    tokenizer: Annotated[str | None, Option("--tokenizer", metavar="KIND",
                         help="characters, symbols, features, words, bpe, unigram, bytes or FILE.json; or "
                         "one for each side, such as characters,symbols; chosen by the data if not given.")] = None,
    vocabulary: Annotated[int | None, Option("--vocabulary", metavar="N", min=8,
                          help="Most tokens; chosen by the data if not given.")] = None,
    preset: Annotated[str | None, Option("--preset", "-p",
                      help="A shape of the paper, see `seq2see presets`; by the data if not given.")] = None,
    start: Annotated[Path | None, Option("--from", metavar="DIR",
                     help="Train this model further: its tokenizer, shape and weights.")] = None,
    ensemble: Annotated[int, Option("--ensemble", metavar="N", min=1, max=64,
                        help="Train N models together and average their probabilities.")] = 1,
    distil: Annotated[bool, Option("--distil", help="With --ensemble: train one model on the ensemble's "
                      "probabilities; the ensemble is kept in DIR-ensemble.")] = False,
    teacher: Annotated[Path | None, Option("--teacher", metavar="DIR",
                       help="Learn from the probabilities of this model or ensemble too, with its tokenizers.")] = None,
    unlabelled: Annotated[Path | None, Option("--unlabelled", metavar="FILE",
                          help="More sources, one per line, which the teacher answers.")] = None,
    steps: Annotated[int | None, Option("--steps", min=1, help="Take exactly so many optimiser steps.")] = None,
    budget: Annotated[str | None, Option("--budget", metavar="TIME", help="Train for at most this long: 90s, 30m "
                      "or 1h. It ends sooner when nothing more comes. 15 minutes on a CPU, 10 on a GPU.")] = None,
    search: Annotated[str | None, Option("--search", metavar="TIME", help="Try several choices that the rules leave "
                      "open, as long as this in all, and carry the best one to its end.")] = None,
    rules: Annotated[Path | None, Option("--rules", metavar="FILE", help="A TOML file with rules of yours, which "
                     "overrule those that choose the settings.")] = None,
    settings: Annotated[list[str] | None, Option("--set", metavar="KEY=VALUE",
                        help="Any setting, such as model.norm=pre.")] = None,
    validation: Annotated[str | None, Option("--validation", metavar="FILE",
                          help="Pairs to score on during the training; some of the data if not given.")] = None,
    test: Annotated[str | None, Option("--test", metavar="FILE",
                    help="Pairs for the final score; some of the data if not given.")] = None,
    unseen: Annotated[bool, Option("--unseen", help="Remove the sources of --validation and --test from the "
                      "training.")] = False,
    columns: Columns = None,
    strict: Annotated[bool, Option("--strict", help="Refuse a file with a bad row.")] = False,
    years: Years = None,
    count: Annotated[int | None, Option("--count", metavar="N", min=1, help="Dates to train on; 100,000.")] = None,
    seed: Annotated[int, Option("--seed", min=0,
                    help="Seed of the weights, the batches and dropout; the split does not change.")] = 1,
    device: Annotated[str, Option("--device", help="auto, cpu, cuda (an NVIDIA GPU) or mps (Apple's). auto takes a GPU "
                      "from d_model 128 or 200,000 pairs on.")] = "auto",
    threads: Threads = None,
    resume: Annotated[bool, Option("--resume", help="Continue an unfinished training; the result is bit for "
                      "bit the same.")] = False,
    log: Annotated[str | None, Option("--log", metavar="TRACKER",
                   help="Write the table to a tracker, too: tensorboard, wandb or mlflow.")] = None,
    watch: Annotated[bool, Option("--watch",
                     help="Show the run on a page while it trains; the address is printed.")] = False,
) -> None:  # fmt: skip
    """Train a model and write it as a folder that predict, evaluate and trace take with --model.

    For a file of pairs no option is needed. Its texts are read in Unicode NFC with white space folded; bad
    rows are named and skipped. Pairs for validation and for the final test are split off by their source and
    never used for training; given files are used as they are. Ctrl-C leaves a checkpoint; --resume continues
    from the last one and gives the same weights as an uninterrupted run. A finished training is not changed.
    Under torchrun many processes train one model together.

    [dim]seq2see train mine.tsv[/dim]

    [dim]seq2see train mine.csv --columns english,french[/dim]

    [dim]seq2see train train.en train.fr --test test.en,test.fr --tokenizer bpe --vocabulary 8000[/dim]

    [dim]seq2see train dates --out small-years --years 1000-2025 --count 10000 --set model.norm=pre[/dim]
    """
    from seq2see.config import parse_overrides
    from seq2see.data.formats import checked
    from seq2see.data.pairs import paths_of
    from seq2see.data.recipe import rules_in, seconds_in
    from seq2see.storage import folder
    from seq2see.training import distributed, journey, trackers
    from seq2see.training.options import LoadedModel, TrainOptions, beside_of, sources_of
    from seq2see.training.prepare import RawSplits
    from seq2see.training.search import searched

    chosen = parse_overrides(settings or [])
    given = {"seed": seed, "steps": steps, "budget": None if budget is None else seconds_in(budget)}
    training = {name: value for name, value in given.items() if value is not None} | chosen["training"]
    devices.check(device)
    machine.use(threads)
    device, restarted = distributed.join(device)
    if not distributed.first():
        hush()
    dates = are_dates(data)
    where = out or Path("runs") / ("dates" if dates else run_name(paths_of(*data)))
    _check_kind(ctx, dates)
    if distil and distributed.size() > 1:
        raise UserError("--distil trains twice, which torchrun cannot: train --ensemble first, then --teacher.")
    options = TrainOptions(
        out=where, resume=resume or restarted, tokenizer=tokenizer, vocabulary=vocabulary,
        preset=preset, model=chosen["model"], training=training, decoding=chosen["decoding"],
        unseen=unseen, device=device,
        start=None if start is None else LoadedModel.read(start),
        teacher=None if teacher is None else LoadedModel.read(teacher),
        unlabelled=[] if unlabelled is None else sources_of(unlabelled), members=ensemble, distil=distil,
        rules=() if rules is None else rules_in(rules),
    )  # fmt: skip
    begun = beside_of(where) if distil else where
    if resume and not (begun / folder.CONFIG).is_file():
        complain(f"{begun} has no training to resume: a new one starts.")
    display = _OnTerminal(watch, None if log is None else trackers.known(log))

    def read() -> RawSplits:
        with aside.status("Reading …"):
            both = tuple(data) if len(data) == 2 else data[0]
            by = None if columns is None else checked(columns)
            found: RawSplits = RawSplits.read(both, validation, test, options.seed, by, strict, unseen)
        _check_sides(found.corpus)
        display.corpus = found.corpus
        return found

    if dates:
        done = _with_dates(options, parse_years(years or "1000-9999"), count or 100_000, display)
    else:
        way = journey.carry_out if search is None else partial(searched, seconds_in(search))
        done = way(read, options, display)
    distributed.leave()
    if done is None:
        complain(f"{where} holds a finished model: there is nothing to resume.")
    elif not done.trainer.ended:
        complain(f"Stopped after step {done.trainer.step:,}; the same command with --resume continues.")
        raise typer.Exit(130)


def _check_kind(ctx: typer.Context, dates: bool) -> None:
    """Refuse options for the other kind of data."""
    for name in FOR_PAIRS if dates else FOR_DATES:
        if ctx.params[name]:
            raise UserError(
                f"`{name}` is for files of pairs; dates have their own tokens and splits."
                if dates
                else "--years and --count are for dates; a file of pairs is taken as it is."
            )


def _with_dates(options: TrainOptions, years: tuple[int, int], count: int, display: _OnTerminal) -> TrainingJob | None:
    """Train on generated dates; None if the training was finished before."""
    from seq2see.training import journey
    from seq2see.training.job import TrainingJob
    from seq2see.training.prepare import prepare_dates

    if options.finished("dates"):
        return None
    with aside.status("Making dates …"):
        setup = prepare_dates(options, years, count)
        if setup.where.said:
            complain(setup.where.said)
        made = TrainingJob(setup, options, complain)
    return journey.finish(made, display)


class _OnTerminal:
    """Shows a training as a command does: a table, a bar, a page that is watched."""

    signals: tuple[signal.Signals, ...] = (signal.SIGINT, signal.SIGTERM)

    def __init__(self, watch: bool, log: str | None) -> None:
        from seq2see.training import distributed

        self.watch, self.log, self.first = watch, log, distributed.first()
        self.corpus: Corpus | None = None  # the pairs; none of dates
        self.started = time.perf_counter()
        many = f"torchrun --nproc-per-node {distributed.size()} -m " if distributed.size() > 1 else ""
        self.command = f"{many}seq2see {shlex.join(word for word in sys.argv[1:] if word != '--resume')}"

    def say(self, text: str) -> None:
        complain(text)

    @contextmanager
    def busy(self, text: str) -> Iterator[Callable[[str], None]]:
        with aside.status(text) as status:
            yield status.update

    def introduce(self, job: TrainingJob) -> None:
        if self.corpus is None:
            return
        setup, took = job.setup, time.perf_counter() - self.started
        if took > LONG and not setup.taught:  # a teacher's answers take most of the time
            rate = setup.different / took
            complain(f"{setup.different:,} pairs were read and cut in {took:,.0f} s, {rate:,.0f} a second.")
        _introduce(self.corpus, job)

    @contextmanager
    def steps(self, job: TrainingJob) -> Iterator[Callable[[Step], None]]:
        trainer = job.trainer
        trainer.early = self.watch
        from seq2see.training.trackers import tracked

        followed = tracked(self.log, trainer) if self.log and self.first else nullcontext()
        page = _page(trainer) if self.watch and self.first else nullcontext()
        with page, followed as board, _table(trainer, job.setup.recipe is not None, board) as show:
            yield show

    def tested(self, job: TrainingJob) -> None:
        _tell(job)


def _check_sides(corpus: Corpus) -> None:
    """Refuse columns that seem to be swapped."""
    from seq2see.data.doctor import languages_of, misnamed

    if wrong := misnamed(corpus, languages_of(corpus.pairs[:2000])):
        raise UserError(f"{wrong}. Swap them, or the names, and train again.")


def _introduce(corpus: Corpus, job: TrainingJob) -> None:
    """Print the faults of the data, the split, the choices and the expected time."""
    from seq2see.data.doctor import in_words, inspect, seconds_of

    findings = [finding for finding in inspect(corpus.sample(LOOKED_AT)).faults if "cannot be used" not in finding.text]
    for finding in findings:
        complain(f"{finding.text}: {finding.advice}.")
    if findings or corpus.faults:
        complain("`seq2see doctor` says more.")
    setup, trainer, settings = job.setup, job.trainer, job.setup.config.training
    say(f"{setup.name}: {setup.counts}, {setup.apart}.")
    if job.options.start is None:
        say(f"Cut into {setup.cuts}. Chosen: {setup.recipe}. `seq2see doctor --why` gives the reasons.")
    size = f"{trainer.model.parameter_count():,} parameters"
    if settings.budget is None and settings.warmup >= settings.steps:
        complain(
            f"The learning rate rises for {settings.warmup:,} steps, so it does not fall in {settings.steps:,}: set "
            "training.warmup lower, or train for longer."
        )
    more = " more" if trainer.step else ""
    if settings.budget is not None:
        most = in_words(max(0.0, settings.budget - trainer.seconds))
        say(f"{size}, at most {most}{more} (--budget); less when nothing more comes.")
    elif setup.device == "cpu":
        left = (trainer.last_step - trainer.step) / settings.steps * setup.config.model.members
        time_left = f"about {in_words(left * seconds_of(setup.config))}{more}"
        say(f"{size}, {settings.steps:,} steps, {time_left}.")
    else:
        say(f"{size}, {settings.steps:,} steps.")


@contextmanager
def _page(trainer: Trainer) -> Iterator[None]:
    """Show the run on a page during the training."""
    from seq2see.serve.live import watched

    assert trainer.out is not None
    with watched(trainer.out) as address:
        complain(f"watch it at {address} (afterwards: seq2see watch {trainer.out})")
        yield


@contextmanager
def _table(trainer: Trainer, samples: bool, board: Callable[[Line], None] | None) -> Iterator[Callable[[Step], None]]:
    """Return a function that shows each step in a bar, and the lines of the table above it."""
    header = f"{'step':>8} {'epoch':>7} {'loss':>10} {'held-out loss':>14} {'exact match':>12} {'seconds':>8}"
    console.print(f"[bold]{header}{' {:>6}'.format('BLEU') * trainer.sentences}[/bold]")
    with progress_bar("steps") as bar:
        total = trainer.last_step
        task = bar.add_task(trainer.waits or "training", total=total, completed=trainer.step, speed="")

        def show(step: Step) -> None:
            speed = f"{step.step / max(trainer.seconds, 1e-9):,.1f}/s"
            total = trainer.last_step
            bar.update(task, description="training", total=total, completed=step.step, speed=speed)
            if step.line is None:
                return
            if board is not None:
                board(step.line)
            shown = bar.console if sys.stdout.isatty() and not bar.disable else console
            shown.print(_row(step.line))
            for source, expected, answer in step.line.samples if samples else []:
                right = "" if answer == expected else f"   (right: {_begun(expected)})"
                say(f"         {_begun(source)} → {_begun(answer)}{right}", style="dim", on=shown)

        yield show


def _begun(text: str) -> str:
    """Return the beginning of a long text: an untrained model repeats a word hundreds of times."""
    return text if len(text) <= SAMPLE else f"{text[: SAMPLE - 1]}…"


def _row(line: Line) -> str:
    return (
        f"{line.step:8,} {line.epoch:7.2f} {line.loss:10.5f} {line.validation_loss:14.6f} "
        f"{line.exact_match:12.2%} {line.seconds:8.1f}" + ("" if line.bleu is None else f" {line.bleu:6.2f}")
    )


def _tell(job: TrainingJob) -> None:
    """Print what the test found, and how to use the model."""
    from seq2see.training import report

    trainer, scores = job.trainer, report.scores_of(job)
    if job.result is not None and (several := job.result.members):
        each = ", ".join(f"{share:.2%}" for share in several)
        backward = trainer.config.model.backward
        last = "the last" if backward == 1 else f"the last {backward}"
        turned = f"; {last} from right to left" if backward else ""
        say(f"Members on the held-out pairs: {each} (mean {mean(several):.2%}, spread {pstdev(several):.2%}{turned}).")
    say(report.tested(job))
    if trainer.sentences:
        found = scores.bleu()
        say(f"BLEU {found.score:.2f} ({found.signature})")
    for told in filter(None, (report.unfitted(job), report.outcome(job))):
        say(told)
    if report.is_useless(job):
        say(f"Written to {trainer.out}. It has learned nothing that can be used: `seq2see doctor` checks the data.")
        return
    say(f"Written to {trainer.out}. Use it:")
    example = "1845-01-05" if trainer.config.task == "dates" else job.setup.test[0][0]
    words = ["--model", str(trainer.out), *(["--"] if example.startswith("-") else []), example]
    # Users copy the command, so it is printed without line breaks.
    console.print(f"  seq2see predict {shlex.join(words)}", markup=False, soft_wrap=True)


def presets(vocabulary: Annotated[int, Option(min=4, help="Tokens, shared by both sides.")] = PAPER_VOCABULARY) -> None:
    """List the presets, with the parameters of every row of the paper's Table 3 beside the paper's figure."""
    from rich.table import Table

    from seq2see.config import PRESETS, ModelConfig

    table = Table(box=None, pad_edge=False)
    for name in ("preset", "parameters", "paper", "", "what"):
        table.add_column(name, justify="left" if name in ("preset", "what") else "right")
    for name, entry in PRESETS.items():
        size = 68 if name == "document" else vocabulary
        sizes: dict[str, Any] = {"source_vocabulary": size, "target_vocabulary": size}
        parameters, paper = ModelConfig.of(**{**sizes, **entry.model}).parameters, entry.paper_millions
        figures = ("", "") if paper is None else (f"{paper} M", f"{parameters / paper / 1e6 - 1:+.1%}")
        table.add_row(name, f"{parameters:,}", *figures, entry.about)
    console.print(table)
    say(
        f"\nCounted with {vocabulary:,} shared tokens (document: its 68). The paper speaks of about 37,000, but its size "
        "column implies 41,000: 7.33 M a layer from 20.9 M. `--vocabulary 37000` shows the difference.",
        style="dim",
    )
