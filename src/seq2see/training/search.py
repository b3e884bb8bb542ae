"""Tries what the rules leave open: several trainings begin, the better half goes on, until one is left and ends.

Each trial is a training that is stopped and resumed, so the best one goes on and does not begin anew. Trials are
compared at the same part of the same budget, so the outcome depends on the seed and the machine alone.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

from seq2see import devices
from seq2see.data.cuts import cuts_of
from seq2see.data.recipe import Facts, Rule, choose
from seq2see.errors import UserError, counted
from seq2see.files import read_text, write_atomically
from seq2see.storage import folder
from seq2see.training.job import Display, TrainingJob
from seq2see.training.journey import carry_out
from seq2see.training.loop import Step
from seq2see.training.options import TrainOptions
from seq2see.training.prepare import RawSplits, prepare

TRIALS = 8
#: The part of a whole training after which the better half of the trials goes on. With TRIALS, all parts that are
#: trained are 1.75 whole trainings: 8/16, 4/16, 2/8 and the last 3/4.
PARTS = (1 / 16, 1 / 8, 1 / 4)
TRAININGS = 1.75
TABLE = "search.json"
#: What rules leave open: a setting, and what it is tried with instead. A number in a tuple multiplies.
OPEN: dict[str, Sequence[Any]] = {
    "tokenizer": ["characters", "bpe"],
    "model.layers": [(0.5,), (2,)],
    "model.d_model": [(0.5,), (2,)],
    "training.batch_tokens": [(0.5,), (2,), (4,)],
    "training.learning_rate": [(0.5,), (2,)],
    "model.dropout": [0.1, 0.2, 0.3],
    "model.positions": ["rotary"],
    "training.r_drop": [0.0, 1.0, 5.0],
    "training.label_smoothing": [0.0, 0.1],
    "training.chained": [0.0, 1.0],
    "training.swapped": [0.0, 0.3],
}
DEEPEST, WIDEST = 12, 1024


@dataclass
class Trial:
    """A training that differs from the recipe, and how far it has come."""

    name: str
    changes: dict[str, Any] = field(default_factory=dict)
    part: float = 0.0  # of its training that is done
    score: float = -1.0  # then, as a training is watched by
    exact: float = 0.0  # the share of right answers to held-out pairs
    loss: float = float("inf")  # held out

    def told(self) -> str:
        """Say what is changed."""
        return ", ".join(f"{name} {value if not isinstance(value, tuple) else f'× {value[0]:g}'}"
                         for name, value in self.changes.items()) or "as the rules choose"  # fmt: skip

    def rules(self) -> tuple[Rule, ...]:
        """Return the rule that makes the changes of settings."""
        changes = {name: value for name, value in self.changes.items() if name != "tokenizer"}
        return (Rule("search", partial(_changed, changes), TABLE),) if changes else ()


def _changed(changes: Mapping[str, Any], facts: Facts) -> dict[str, Any]:
    """Return settings that differ from those that the rules choose for these facts."""
    recipe, found = choose(facts), dict[str, Any]()
    chosen = {f"model.{name}": value for name, value in recipe.model.items()}
    chosen |= {f"training.{name}": value for name, value in recipe.training.items()}
    for name, value in changes.items():
        if name == "model.layers":
            for side in ("encoder_layers", "decoder_layers"):
                found[f"model.{side}"] = max(1, min(DEEPEST, round(chosen[f"model.{side}"] * value[0])))
        elif name == "model.d_model":
            found[name] = max(32, min(WIDEST, int(chosen[name] * value[0])))
            found["model.d_ff"] = found[name] * chosen["model.d_ff"] // chosen[name]
        else:
            found[name] = type(chosen[name])(chosen[name] * value[0]) if isinstance(value, tuple) else value
    return found


def trials_of(data: RawSplits, options: TrainOptions, count: int) -> list[Trial]:
    """Draw what is tried: the recipe itself, another cut of the texts, more layers, then random changes."""
    drawn, kinds = Random(options.seed), cuts_of(data.corpus.pairs, options.tokenizer, options.vocabulary).kinds
    axes = {name: list(values) for name, values in OPEN.items()}
    axes["tokenizer"] = [kind for kind in axes["tokenizer"] if kinds != (kind, kind)]
    if options.tokenizer is not None or options.start is not None or options.teacher is not None:
        axes.pop("tokenizer")
    asked = [f"{part}.{name}" for part, settings in options.settings.items() for name in settings]
    axes = {name: values for name, values in axes.items() if name not in asked}
    found: list[dict[str, Any]] = [{}]
    found += [{"tokenizer": kind} for kind in axes.get("tokenizer", [])]
    found += [{"model.layers": (2,)}] if "model.layers" in axes else []
    while len(found) < count:
        names = drawn.sample(sorted(axes), min(len(axes), drawn.randint(1, 3)))
        changes = {name: drawn.choice(axes[name]) for name in sorted(names)}
        if changes not in found:
            found.append(changes)
    return [Trial(f"{number:02}", changes) for number, changes in enumerate(found[:count])]


def beside_of(out: Path) -> Path:
    """Return the folder of the trials for the model of another folder."""
    return out.with_name(f"{out.name}-search")


def searched(
    seconds: float, read: Callable[[], RawSplits], options: TrainOptions, display: Display, count: int = TRIALS
) -> TrainingJob | None:
    """Try several trainings within some seconds, and carry out the best one to its end, into ``options.out``."""
    out = options.out
    if out is None:
        raise UserError("`search` keeps what it tries: name a folder with `out`.")
    for given, why in ((options.preset, "preset"), (options.members > 1 or None, "ensemble")):
        if given is not None:
            raise UserError(f"`search` tries settings that the data leave open: leave `{why}` out.")
    if any(options.settings["training"].get(name) is not None for name in ("steps", "budget")):
        raise UserError("`search` says how long to train: leave `steps` and `budget` out.")
    if (out / folder.WEIGHTS).is_file():
        return carry_out(read, options, display)
    read, tried = cache(read), beside_of(out)
    done = tried / TABLE
    if tried.exists() and not options.resume:
        raise UserError(f"{tried} holds the trials of a search: continue it with `resume`, or name another folder.")
    trials = trials_of(read(), options, count)
    if done.is_file():
        trials = [Trial(**_as_trial(row)) for row in json.loads(read_text(done, folder.LARGEST_LOG))]
    tried.mkdir(parents=True, exist_ok=True)

    def of(trial: Trial) -> TrainOptions:
        where = tried / trial.name
        return replace(
            options, out=where, resume=where.exists(), rules=options.rules + trial.rules(),
            tokenizer=trial.changes.get("tokenizer", options.tokenizer),
            training={**options.settings["training"], "budget": seconds / TRAININGS},
        )  # fmt: skip

    going = trials
    for part in PARTS:
        waiting = [trial for trial in going if trial.part < part]
        if waiting:
            display.say(f"{counted(len(waiting), 'trial')} until {part:.0%} of a training.")
        for trial, line in zip(waiting, _advanced(read, [of(trial) for trial in waiting], part), strict=True):
            trial.part, trial.score, trial.exact, trial.loss = part, *line
            display.say(f"{trial.exact:7.2%} right, held-out loss {trial.loss:.4f}: {trial.told()}")
        write_atomically(done, (json.dumps([vars(trial) for trial in trials], indent=1) + "\n").encode())
        going = sorted(going, key=lambda trial: (-trial.score, trial.loss, trial.name))[: max(1, len(going) // 2)]
    best = of(going[0])
    if not out.exists():
        shutil.copytree(str(best.out), out)
    display.say(f"The best goes on to its end: {going[0].told()}.")
    job = carry_out(read, replace(best, out=out, resume=True), display, by_parts=False)
    if job is None or job.result is not None:
        shutil.move(done, out / TABLE)
        shutil.rmtree(tried)
    return job


def _as_trial(row: dict[str, Any]) -> dict[str, Any]:
    """Read a row of the table; a list is a factor, which JSON has no tuple for."""
    changes = {name: tuple(value) if isinstance(value, list) else value for name, value in row["changes"].items()}
    return {**row, "changes": changes}


def _advanced(
    read: Callable[[], RawSplits], several: Sequence[TrainOptions], part: float
) -> list[tuple[float, float, float]]:
    """Let trainings go on until a part of each is done; beside each other on a GPU, in turn on a CPU."""
    data = read()
    if len(several) < 2 or not devices.is_cuda(prepare(data, replace(several[0], out=None, resume=False)).device):
        return [_until(part, data, options) for options in several]
    with get_context("spawn").Pool(len(several)) as pool:
        return pool.map(partial(_until, part, data), several)


def _until(part: float, data: RawSplits, options: TrainOptions) -> tuple[float, float, float]:
    """Train until a part is done; return the score then, the share of right answers, and the held-out loss."""
    job = TrainingJob(prepare(data, options), options, lambda said: None)
    trainer = job.trainer

    def show(step: Step) -> None:
        if step.step >= part * trainer.last_step:
            raise KeyboardInterrupt

    if trainer.step < part * trainer.last_step:
        job.train(show)
    line = trainer.measured()
    return line.score, line.exact_match, line.validation_loss
