"""Training from Python: ``seq2see.fit``."""

from __future__ import annotations

import logging
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seq2see.config import TrainingConfig
from seq2see.errors import UserError, installed
from seq2see.seq2seq import Seq2Seq, load

if TYPE_CHECKING:
    from seq2see.config import ModelConfig
    from seq2see.data.variation import Vary
    from seq2see.training.job import TrainingJob
    from seq2see.training.loop import Step
    from seq2see.training.options import LoadedModel


def _as_loaded(model: Seq2Seq | str | os.PathLike[str] | None) -> LoadedModel | None:
    """Return a model to start from, or to learn from."""
    from seq2see.storage.weights import weights_of
    from seq2see.training.options import LoadedModel

    if isinstance(model, Seq2Seq):
        return LoadedModel(model.config, model.tokenizers, weights_of(model.transformer))
    return None if model is None else LoadedModel.read(Path(model))


class _OnStandardError:
    """Shows a training that Python asked for: messages as warnings, and a bar or lines on standard error."""

    command = "seq2see.fit"
    signals: tuple[signal.Signals, ...] = (signal.SIGINT,)

    def __init__(self, progress: bool, on_step: Callable[[Step], None] | None) -> None:
        self.progress, self.on_step = progress, on_step
        self.say = logging.getLogger("seq2see").warning
        self.job: TrainingJob | None = None  # the last one
        self.history: list[dict[str, object]] = []
        self.failed = False  # whether ``on_step`` raised an exception

    def busy(self, text: str) -> AbstractContextManager[Callable[[str], None]]:
        return nullcontext(lambda text: None)

    def introduce(self, job: TrainingJob) -> None:
        self.job = job
        self.history.clear()
        if self.progress:
            print(f"{job.setup.name}: {job.setup.counts}, {job.setup.apart}.", file=sys.stderr)

    @contextmanager
    def steps(self, job: TrainingJob) -> Iterator[Callable[[Step], None]]:
        with _progress_bar(job, self.progress) as show:

            def after(step: Step) -> None:
                show(step)
                if step.line is not None:
                    self.history.append(asdict(step.line))
                self.failed = True
                if self.on_step is not None:
                    self.on_step(step)
                self.failed = False

            yield after

    def tested(self, job: TrainingJob) -> None:
        from seq2see.training import report

        if self.progress:
            print("\n".join(filter(None, [report.tested(job), report.outcome(job)])), file=sys.stderr)

    def model(self) -> Seq2Seq:
        """Return the last model, as trained so far."""
        from seq2see.training import report

        assert self.job is not None
        made = self.job.model(report.card(self.job, self.command))
        made.history = self.history
        return made


@contextmanager
def _progress_bar(job: TrainingJob, visible: bool) -> Iterator[Callable[[Step], None]]:
    """Return a function that shows each step on standard error: as a bar, or only the scores without a terminal."""
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = ("training", MofNCompleteColumn(), "steps", TextColumn("{task.description}"), TimeElapsedColumn(), "left")
    console = Console(stderr=True)
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True,
                  disable=not (visible and sys.stderr.isatty())) as bar:  # fmt: skip
        task = bar.add_task(job.trainer.waits, total=job.trainer.last_step, completed=job.trainer.step)
        told = ""

        def show(step: Step) -> None:
            nonlocal told
            steps = job.trainer.last_step
            bar.update(task, description=told, total=steps, completed=step.step)
            if step.line is not None:
                told = f"validation loss {step.line.validation_loss:.4f}, {step.line.exact_match:.1%} right"
                bar.update(task, description=told)
                if visible and not sys.stderr.isatty():
                    print(f"step {step.step:,} of {steps:,}: {told}", file=sys.stderr, flush=True)

        yield show


def fit(
    data: Any,
    validation: Any = None,
    test: Any = None,
    *,
    columns: tuple[str, str] | None = None,
    tokenizer: str | tuple[str, str] | None = None,
    vocabulary: int | None = None,
    preset: str | None = None,
    budget: float | str | None = None,
    search: float | str | None = None,
    rules: str | os.PathLike[str] | None = None,
    model: ModelConfig | dict[str, Any] | None = None,
    training: TrainingConfig | dict[str, Any] | None = None,
    decoding: dict[str, Any] | None = None,
    seed: int | None = None,
    device: str = "auto",
    ensemble: int = 1,
    distil: bool = False,
    teacher: Seq2Seq | str | os.PathLike[str] | None = None,
    unlabelled: Sequence[str] | str | os.PathLike[str] = (),
    unseen: bool = False,
    vary: Vary | None = None,
    start: Seq2Seq | str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    progress: bool = True,
    on_step: Callable[[Step], None] | None = None,
) -> Seq2Seq:
    """Train a model on pairs of texts, and test it on pairs that are held out.

    >>> import seq2see
    >>> pairs = [(f"{n:03}", f"{n:03}"[::-1]) for n in range(1000)]
    >>> reverse = seq2see.fit(pairs, training={"steps": 2})
    >>> len(reverse.predict(["123", "456"]))
    2

    A table needs two columns, or ``columns`` names two:

    >>> table = {"id": range(9), "en": [f"day {n}" for n in range(9)], "fr": [f"jour {n}" for n in range(9)]}
    >>> seen = []
    >>> model = seq2see.fit(table, columns=("en", "fr"), training={"steps": 2}, on_step=seen.append)
    >>> [step.step for step in seen]
    [1, 2]

    Args:
        data: pairs (source, target) in a list, a tuple or a generator; a dict of columns, a list of dicts, a frame of
            pandas or polars, a ``datasets.Dataset``; a path to a file that ``seq2see train`` reads, or a pair of paths
            to parallel files.
        validation: pairs for the scores during the training, in any of these forms; 5 % of the sources if not given.
        test: pairs for the scores in the card; 10 % of the sources if not given. Parts that are split off share no source
            with the training; given ones may (see ``unseen``).
        columns: the columns of the source and of the target, for data with more than two; ``("lemma+tags", "form")``
            joins a word and its features.
        tokenizer: characters, symbols (with a separator: ``symbols:-``), features, words, bpe, unigram, bytes, or a
            file of the tokenizers library, FILE.json; or a pair of them, for the source and the target. The data decide
            if it is not given, as they do for the following.
        vocabulary: the largest number of tokens.
        preset: a shape of the paper, by name; ``seq2see presets`` lists them.
        budget: the longest time for the steps, in seconds or as ``"30m"``; 15 minutes on a CPU, 10 on a GPU. A training
            ends sooner when the answers to held-out pairs stop improving.
        search: a time in which several trainings begin with other choices than the rules'; the better half of them goes
            on, again and again, and the best one is carried to its end. The table of what was tried stays in ``out``.
        rules: a TOML file with rules of yours, which overrule those that choose the settings.
        model: settings that override the preset's; or a ``ModelConfig``, which is used as it is, with the vocabularies
            of the tokenizers.
        training: settings that override the chosen ones, such as ``{"steps": 500}``, which takes exactly so many; or a
            ``TrainingConfig``, which is used as it is.
        decoding: settings of the search that the model uses unless a request says otherwise, such as ``{"beam": 5}``.
        seed: the seed of the weights, the batches and dropout; the split stays the same.
        device: cpu, cuda, mps (a GPU of Apple's), or auto, which takes an NVIDIA GPU from d_model 128 or 200,000
            pairs on.
        ensemble: the number of models to train together, with different seeds; their probabilities are averaged.
        distil: train one model on the ensemble, and return that one; the ensemble is written to ``out`` +
            ``-ensemble``.
        teacher: a model, an ensemble or its folder, whose tokenizers are used. The new model also learns from its
            probabilities; for short texts the teacher also answers invented sources.
        unlabelled: more sources, which the teacher answers; or a file with one per line.
        unseen: remove the sources of the given validation and test pairs from the training.
        vary: a function that gets the pairs of each epoch and a ``random.Random``, and returns them changed, in order,
            and perhaps more of them. It draws from this generator alone, so that a resumed training sees the same.
        start: a model to train further, or its folder: its tokenizers, shape and weights, with a lower learning rate.
        out: a folder for checkpoints and for the finished model.
        resume: continue the unfinished training in ``out``, to the same weights as without the interruption; a finished
            one is loaded.
        progress: show a bar on a terminal, else a line for each line of the table; and the parts and the test score.
        on_step: called with each ``Step``; its ``line`` holds the scores of a line of the table.

    The model's ``history`` has the lines of the table: steps, losses and scores on the validation pairs.

    Ctrl-C ends the training early: the model so far is returned with a warning, and its card has the number of steps.
    An exception in ``on_step`` is raised, with the model so far as its attribute ``model``. Both leave a checkpoint in
    ``out``.
    """
    installed("torch", "Training")
    from seq2see.data.recipe import rules_in, seconds_in
    from seq2see.training.journey import carry_out
    from seq2see.training.options import TrainOptions, sources_of
    from seq2see.training.prepare import RawSplits
    from seq2see.training.search import searched

    if ensemble < 1:
        raise UserError(f"`ensemble` is {ensemble}: the number of models was expected, 1 or more.")
    own: dict[str, Any] = {} if seed is None else {"seed": seed}
    if budget is not None:
        own["budget"] = seconds_in(budget)
    chosen = training or {}
    options = TrainOptions(
        out=None if out is None else Path(out),
        resume=resume,
        tokenizer=tokenizer,
        vocabulary=vocabulary,
        preset=preset,
        model=model or {},
        decoding=decoding or {},
        training=chosen.but(**own) if isinstance(chosen, TrainingConfig) else {**chosen, **own},
        unseen=unseen,
        device=device,
        start=_as_loaded(start),
        teacher=_as_loaded(teacher),
        unlabelled=sources_of(unlabelled),
        members=ensemble,
        distil=distil,
        vary=vary,
        rules=() if rules is None else rules_in(Path(rules)),
    )
    display = _OnStandardError(progress, on_step)
    try:
        job = (carry_out if search is None else partial(searched, seconds_in(search)))(
            lambda: RawSplits.read(data, validation, test, options.seed, columns, unseen=unseen), options, display
        )
    except Exception as error:
        if display.failed:
            error.model = display.model()  # type: ignore[attr-defined]
            error.add_note("The model as trained so far is the attribute `model` of this exception.")
        raise
    if job is None:
        return load(Path(out or ""), device)
    if job.result is None:
        message = f"fit was interrupted after step {job.trainer.step:,}: the model is not tested."
        warnings.warn(message, stacklevel=2)
    return display.model()
