"""The training loop: a generator of steps."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from seq2see import devices
from seq2see.config import Config, TrainingConfig
from seq2see.data.batching import Batch, PackedBatch, Ragged
from seq2see.data.cuts import are_sentences
from seq2see.data.epochs import TrainingPairs
from seq2see.data.shards import Shards
from seq2see.data.variation import Vary
from seq2see.decoding.both_ways import engine_of
from seq2see.decoding.hypothesis import Special
from seq2see.decoding.torch_engine import threads_of
from seq2see.errors import UserError
from seq2see.evaluation.confidence import Confidence
from seq2see.evaluation.evaluate import Evaluation, Pair, evaluate, is_clearly_better
from seq2see.files import LOCK, Lock, remove_leftovers
from seq2see.inspection.alignment import Sharpness, sharpness
from seq2see.kernels.registry import network_of
from seq2see.machine import free_cores
from seq2see.model.transformer import Transformer
from seq2see.storage import folder
from seq2see.storage.folder import Tokenizers
from seq2see.storage.weights import placed, put_weights, weights_bytes, weights_of
from seq2see.training import checkpoint, distributed
from seq2see.training.checkpoint import (
    CHECKPOINTS,
    Checkpoint,
    Checkpoints,
    check_out,
    continued,
    halved,
    keep_log,
    tidy,
)
from seq2see.training.learner import Learner
from seq2see.training.schedule import ENOUGH_RIGHT, Course, between_checkpoints, has_line, learning_rate, steps_of

SAMPLES = 3  # answers kept with each line of the table
EARLY = (1, 2, 5, 10, 20, 50, 100, 200, 500)  # first steps after which a watched run has a line
TIMED, LEAST_TIMED = 3, 1.0  # steps that are timed together before the first one, and their seconds at least
STILL = 1.2  # times the steps after which the rate fell, beyond which the best line says that more would come
ASIDE = 0.1  # share of a budget for lines of the table and checkpoints


@dataclass(frozen=True)
class Line:
    """One line of the training table."""

    step: int
    epoch: float
    loss: float  # teacher-forced, on the training batches since the last line (smoothed if training is)
    validation_loss: float  # teacher-forced, on held-out pairs, not smoothed
    exact_match: float  # free-running, on held-out pairs
    learning_rate: float
    seconds: float
    bleu: float | None = None  # free-running, if the held-out pairs are sentences
    likeness: float = 0.0  # of the free-running answers to the right ones, from 0 to 1: chrF, or 1 - CER
    samples: list[tuple[str, str, str]] = field(default_factory=list)  # source, expected, given
    attention: Sharpness | None = None  # on the first held-out pair

    @property
    def score(self) -> float:
        """The score by which a training is watched, from 0 to 1: likeness counts where few answers are exact."""
        return (self.exact_match + self.likeness) / 2


@dataclass(frozen=True)
class Step:
    """The result of one step. ``float(loss)`` waits for the device, so read it only now and then."""

    step: int
    loss: Tensor
    line: Line | None


def watched(pairs: Sequence[Pair], most: int) -> list[Pair]:
    """Draw the held-out pairs that each line of the table answers: files are often sorted, so not the first ones."""
    if len(pairs) <= most:
        return list(pairs)
    chosen = np.random.default_rng(0).permutation(len(pairs))[:most]
    return [pairs[place] for place in sorted(chosen.tolist())]


class Trainer:
    """A model, its optimiser and its data; ``steps`` trains, ``finish`` averages and returns the model.

    With a folder it writes checkpoints there, and with ``resume`` it goes on from the last one: batches depend on
    the step alone, and the checkpoint holds everything else, so the outcome is the same to the bit.

    Under torchrun every process has a trainer of its own, and all take the same steps. Only the first one writes,
    measures the lines of the table and calls ``finish``.
    """

    def __init__(
        self,
        config: Config,
        tokenizers: Tokenizers,
        train: Sequence[Pair] | Shards,
        validation: Sequence[Pair],
        out: Path | None = None,
        resume: bool = False,
        device: str = "cpu",
        say: Callable[[str], None] = lambda text: None,
        start: dict[str, Tensor] | None = None,
        ids: tuple[Ragged, Ragged] | None = None,
        teacher: Transformer | None = None,
        vary: Vary | None = None,
    ) -> None:
        """Prepare the training; ``ids`` are those of the training pairs, if they are tokenized already."""
        self.config, self.tokenizers, self.out, self.say = config, tokenizers, out, say
        self.device = torch.device(device)
        self.validation = watched(validation, config.training.evaluate_on)
        self.early = False  # whether the run is watched, so that the first steps have lines, too
        self.sentences = bool(self.validation) and are_sentences(self.validation)
        self.pairs = TrainingPairs(config, (tokenizers.source, tokenizers.target), train, ids, vary)
        self.data, settings = self.pairs.digest, config.training
        self.batches = self.pairs.batches(settings)

        torch.manual_seed(settings.seed)
        self.model = placed(network_of(config.model), self.device)
        if start is not None:
            put_weights(self.model, start, "the model to start from")
        shown = settings if self.pairs.are_aligned else settings.but(guided=0.0, guided_memory=0.0)
        self.learner = Learner(self.model, shown, tokenizers.target.pad, teacher)
        self.engine = engine_of(self.model, Special.of(tokenizers))
        #: Threads of a CPU, fixed for the whole run: another number could change the last bits of sums.
        self.threads = torch.get_num_threads() if distributed.size() > 1 else min(torch.get_num_threads(), free_cores())
        #: whether a batch is tried before the first step; not under torchrun, where each process would try
        self.tries = self.device.type == "cuda" and distributed.size() == 1
        self.step = 0
        self.taken = 0  # batches, by all processes
        self.seconds = 0.0
        self.total, self.count = torch.zeros((), device=self.device), 0  # of the losses since the last line
        self.checkpoints = Checkpoints(out)
        self.course = Course()
        self.snapshots: dict[int, dict[str, Tensor]] = {}  # the weights that will be averaged, by step
        if out is not None and distributed.first():
            self._open(out, resume)
        if distributed.size() > 1:
            self._agree()

    def steps(self) -> Iterator[Step]:
        """Train to the end and yield after each step; a caller who stops earlier can save a checkpoint and resume."""
        running = self._steps()
        try:
            while True:
                with threads_of(self.threads):  # only for the step: the caller may use another number
                    step = next(running, None)
                if step is None:
                    return
                yield step
        finally:
            self.checkpoints.settle()  # no checkpoint is half written when the caller continues

    def _steps(self) -> Iterator[Step]:
        if self.tries and not self.ended:
            self._find_room()
        if self.step == 0 and self.config.training.steps == TrainingConfig().steps:
            self._fit_to_budget()
        started = time.perf_counter() - self.seconds
        while not self.ended:
            loss = self._learn()
            self.total, self.count = self.total + loss, self.count + 1
            self.seconds = time.perf_counter() - started

            line, evaluates = None, self._evaluates(self.step)
            if evaluates or self._saves(self.step):
                mean = float(self.total) / self.count
                if not math.isfinite(mean):  # before a checkpoint is written
                    raise self._diverged(f"the loss is {mean}")
                if evaluates:
                    line = self._line(mean)
                    self.total, self.count = torch.zeros_like(self.total), 0
                if self._saves(self.step):  # a line may be the best so far
                    self._snapshot()
                    self.save()
            yield Step(self.step, loss, line)

    def _fit_to_budget(self) -> None:
        """Measure the speed once, before the first step, and set the number of steps by the budget.

        The number stays in the folder, so that a resumed training takes the same steps.
        """
        settings = self.config.training
        if settings.budget is None:
            return
        each, took, count = 0.0, 0.0, TIMED
        while took < min(LEAST_TIMED, settings.budget / 20):
            each = self.learner.seconds_of(lambda number: self._batches(number * self._at_once), count)
            took, count = distributed.from_first(each * count), 2 * count
        self._set(steps=distributed.from_first(steps_of((1 - ASIDE) * settings.budget, each)))

    @property
    def _at_once(self) -> int:
        """Batches of one step, by all processes."""
        return self.config.training.accumulate * distributed.size()

    def _batches(self, taken: int) -> list[Batch | PackedBatch]:
        """Return the batches of this process in the step that begins after so many batches."""
        own = range(taken + distributed.rank(), taken + self._at_once, distributed.size())
        return [self.batches.at(number) for number in own]

    def _learn(self) -> Tensor:
        """Take one step; return its loss, which is still on the device."""
        settings, batches = self.config.training, self._batches(self.taken)
        self.step, self.taken = self.step + 1, self.taken + self._at_once
        self.course = self.course.at(self.step, settings)
        distributed.seed(settings.seed, self.step)
        try:
            return self.learner.learn(batches, self._rate())
        except RuntimeError as error:
            if not devices.is_full(error):
                raise
            advice = "End other programs there and continue with `resume`, or set training.batch_tokens lower."
            raise devices.full(f"step {self.step:,}", advice) from None

    def _find_room(self) -> None:
        """Try the largest batch before the first step, and halve the batches until one fits the GPU's memory.

        A step then sums the gradients of more batches, so that it learns from as many tokens.
        """
        while not self._has_room():
            devices.release()
            settings, largest = self.config.training, self.batches.largest(self.taken)
            smaller = halved(settings)
            one = isinstance(largest, Batch) and len(largest.source) == 1
            packed = settings.layout == "packed" and smaller.batch_tokens <= self.pairs.longest(settings)
            if one or packed:
                advice = "Set training.batch_tokens or the model smaller, or use `device` cpu."
                raise devices.full(f"a batch of {settings.batch_tokens:,} tokens", advice)
            self.say(
                f"A batch of {settings.batch_tokens:,} tokens does not fit the GPU's memory: a step takes "
                f"{smaller.accumulate} of {smaller.batch_tokens:,}."
            )
            self._set(batch_tokens=smaller.batch_tokens, accumulate=smaller.accumulate)
            self.learner.settings = self.learner.settings.but(
                batch_tokens=smaller.batch_tokens, accumulate=smaller.accumulate
            )
            self.taken *= 2
            self.batches = self.pairs.batches(self.config.training)
        devices.release()

    def _has_room(self) -> bool:
        try:
            self.learner.try_out([self.batches.largest(self.taken)])
        except RuntimeError as error:
            if not devices.is_full(error):
                raise
            return False
        return True

    def _weights(self) -> dict[str, Tensor]:
        """Return copies of the weights after checking that all are finite; a loss shows only the weights of the step
        before.
        """
        weights = self.learner.weights()
        if not all(bool(tensor.isfinite().all()) for tensor in weights.values()):
            raise self._diverged("some weights are not finite")
        return weights

    def _diverged(self, what: str) -> UserError:
        settings = self.config.training
        rate = self._rate()
        self.checkpoints.finish()
        steps = checkpoint.steps_in(self.out / CHECKPOINTS) if self.out is not None else []
        kept = f" {self.out} keeps the checkpoint of step {steps[-1]:,}." if steps else ""
        return UserError(
            f"The training has diverged: at step {self.step:,} {what}. Train again with a lower "
            f"training.learning_rate (it was {rate:.2g} there), a longer training.warmup (now {settings.warmup:,}) or "
            f"a smaller training.clip (now {settings.clip:g}; 0 does not clip).{kept}"
        )

    def _set(self, **settings: int) -> None:
        self.config = replace(self.config, training=self.config.training.but(**settings))
        if self.out is not None and distributed.first():
            folder.write_atomically(self.out / folder.CONFIG, self.config.to_toml().encode())

    def _line(self, loss: float) -> Line | None:
        """Measure and write a line of the table in the first process; the others receive its score."""
        line = self.measured(loss) if distributed.first() else None
        score, on_held_out, right = distributed.from_first(
            (0.0, 0.0, False) if line is None else (line.score, line.validation_loss, line.exact_match == 1.0)
        )
        before, settings = self.course, self.config.training
        right = right and len(self.validation) >= ENOUGH_RIGHT
        self.course = before.after(self.step, score, on_held_out, right, settings)
        if self.course.why != before.why and distributed.first():
            self.say(self.course.told(self.step, len(self.validation)))
        if self.out is not None and line is not None:
            with (self.out / folder.LOG).open("a", encoding="utf-8") as log:
                log.write(json.dumps(asdict(line)) + "\n")
        return line

    def measured(self, loss: float = math.nan) -> Line:
        """Answer the held-out pairs as the model stands; the course of the training is as without it."""
        scores = self._answered()
        return Line(
            step=self.step,
            epoch=self.taken / self.batches.per_epoch,
            loss=loss,
            validation_loss=scores.loss,
            exact_match=scores.exact_match,
            learning_rate=self._rate(),
            seconds=self.seconds,
            bleu=scores.bleu().score if self.sentences else None,
            likeness=self._likeness(scores),
            samples=scores.answers[:SAMPLES],
            attention=sharpness(self.model, self.tokenizers, *self.validation[0]) if self.validation else None,
        )

    @property
    def waits(self) -> str:
        """Return what the first step waits for, besides its own work."""
        if self.learner.compiles:
            return "compiling the step, once on this machine"
        return "" if self.learner.built is None else "building kernels, once on this machine"

    @property
    def last_step(self) -> int:
        """The last step: that of the settings, or sooner if the answers stop improving."""
        return self.course.end(self.config.training)

    def _rate(self) -> float:
        """Return the learning rate of the present step."""
        return learning_rate(self.step, self.config.training, self.config.model.d_model, self.course)

    @property
    def would_go_on(self) -> bool:
        """Whether the budget ended a watched training that still became better."""
        return self.course.why == "budget" and self.course.step > STILL * self.course.falls

    @property
    def ended(self) -> bool:
        """Whether all steps are done, or patience has run out."""
        return self.step >= self.last_step or self._out_of_patience()

    def finish(self) -> Transformer:
        """Return the model ready for use: the average of the last checkpoints, or the best one by held-out score.

        For a run that was stopped early, it is the best model so far with patience, and else the last one.
        """
        self.checkpoints.finish()
        averaged = [weights for step, weights in self.snapshots.items() if self._in_average(step)]
        if not self.ended and not self.config.training.patience:
            averaged = []
        average = checkpoint.average(averaged or [self._weights()])
        put_weights(self.model, average, "the averaged checkpoints")
        best = self.snapshots.get(self.course.step)
        if self.ended and averaged and best is not None:
            before = self._answered()
            if self.course.score > (before.exact_match + self._likeness(before)) / 2:
                put_weights(self.model, best, "the averaged checkpoints")
                if is_clearly_better(self._answered(), before, self.sentences):
                    self.say(f"The model of step {self.course.step:,} is better on the held-out pairs, and is kept.")
                else:
                    put_weights(self.model, average, "the averaged checkpoints")
        return self.model.eval()

    def _likeness(self, scores: Evaluation) -> float:
        """Return how much the answers are like the right ones, from 0 to 1."""
        return scores.chrf().score / 100 if self.sentences else max(0.0, 1.0 - scores.character_error_rate)

    def _answered(self) -> Evaluation:
        """Answer the held-out pairs with the present weights."""
        return evaluate(
            self.model, self.tokenizers, self.validation, engine=self.engine, rules=self.config.decoding, in_brief=True
        )

    def write(self, card: str, confidence: Confidence | None = None) -> None:
        """Write the finished model folder and delete the checkpoints."""
        assert self.out is not None
        self.checkpoints.finish()
        data = weights_bytes(weights_of(self.model))
        folder.write(self.out, self.config, self.tokenizers, data, card, confidence=confidence)
        (self.out / LOCK).unlink(missing_ok=True)
        tidy(self.out)

    # --- checkpoints -------------------------------------------------------------------------------------------

    def _out_of_patience(self) -> bool:
        return 0 < self.config.training.patience <= self.course.lines_since

    def _evaluates(self, step: int) -> bool:
        """Whether the table has a line after this step."""
        early = self.early and step in EARLY
        return early or has_line(step, self.config.training) or step == self.last_step

    def _saves(self, step: int) -> bool:
        """Whether a checkpoint is written after this step: at the best line so far too; with patience at every line."""
        always = step in (self.last_step, self.course.step) or self._in_average(step)
        return always or step % between_checkpoints(self.config.training) == 0

    def _in_average(self, step: int) -> bool:
        """Whether the weights after this step are part of the final average."""
        return self.course.averages(step, self.config.training)

    def _snapshot(self) -> None:
        """Keep the weights if they are part of the average or the best so far; drop those that no longer are."""
        self.snapshots = {step: kept for step, kept in self.snapshots.items() if self._stays(step)}
        if self._stays(self.step):
            self.snapshots[self.step] = self._weights()

    def _stays(self, step: int) -> bool:
        """Whether the weights after this step are needed at the end."""
        return self._in_average(step) or step == self.course.step

    def save(self, at_once: bool = False) -> None:
        """Keep a checkpoint of this step; it is written in the background, or ``at_once``."""
        if self.out is None:
            return
        self.checkpoints.finish()  # one at a time; an error in writing the last one is raised here
        notes = {
            "threads": str(self.threads),
            "data": self.data,
            "batches": str(self.taken),
            "seconds": repr(self.seconds),
            "losses": json.dumps([float(self.total), self.count]),
            "course": json.dumps(asdict(self.course)),
            "averaged": json.dumps(list(self.snapshots)),
        }
        run = distributed.gathered(self.learner.state())
        state = Checkpoint(self.step, self._weights(), run, notes)
        if distributed.first():
            self.checkpoints.write(state, dict(self.snapshots))
        if at_once:
            self.checkpoints.finish()
            distributed.wait()

    def _open(self, out: Path, resume: bool) -> None:
        """Prepare the folder: a new one, or an unfinished one to continue."""
        check_out(out, resume)
        self.lock = Lock(out)
        remove_leftovers(out)
        remove_leftovers(out / CHECKPOINTS)
        if (out / folder.CONFIG).exists():
            asked, self.config = self.config, continued(out, folder.read_config(out), self.config)
            if asked.training.batch_tokens != self.config.training.batch_tokens:
                self.batches = self.pairs.batches(self.config.training)
            self._resume()
        else:
            folder.write_tokenizers(out, self.tokenizers)
            folder.write_atomically(out / folder.CONFIG, self.config.to_toml().encode())
        keep_log(out, self.step)

    def _agree(self) -> None:
        """Continue from the step of the first process, with its data and settings."""
        mine = self.data
        self.config, self.data, self.course, step = distributed.from_first(
            (self.config, self.data, self.course, self.step)
        )
        if self.data != mine:
            raise UserError(f"Process {distributed.rank()} has other pairs than process 0: give all the same files.")
        if step and not distributed.first():
            assert self.out is not None
            self._restore(checkpoint.read(self.out / CHECKPOINTS, step))

    def _resume(self) -> None:
        """Continue from the newest valid checkpoint."""
        found = self.checkpoints.newest(self.data, self.say)
        if found is None:
            self.say("There is no valid checkpoint yet: starting from the beginning.")
            return
        state, self.snapshots = found
        self.course = Course(**json.loads(state.notes["course"]))
        self._restore(state)
        self.say(f"Resuming from step {state.step:,}.")

    def _restore(self, state: Checkpoint) -> None:
        put_weights(self.model, state.weights, "the checkpoint")
        self.learner.restore(state.run)
        self.step = state.step
        self.taken = int(state.notes["batches"])
        self.seconds = float(state.notes["seconds"])
        total, self.count = json.loads(state.notes["losses"])
        self.total = torch.full_like(self.total, total)
        self.threads = int(state.notes["threads"])
