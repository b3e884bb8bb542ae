"""The training loop: a generator of steps."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from seq2see import devices
from seq2see.config import Config, TrainingConfig
from seq2see.data.batching import Batch, Batches, Ragged
from seq2see.data.cuts import are_sentences
from seq2see.data.packing import BLOCK, PackedBatch, PackedBatches, sizes_of
from seq2see.data.places import with_copies, with_places
from seq2see.data.recut import FreshBatches, Side
from seq2see.data.shards import Shards
from seq2see.data.variation import Copies, Vary, varied
from seq2see.decoding.both_ways import engine_of
from seq2see.decoding.cpu import threads_of
from seq2see.decoding.hypothesis import Special
from seq2see.errors import FolderError, UserError
from seq2see.evaluation.confidence import Confidence
from seq2see.evaluation.evaluate import Evaluation, Pair, evaluate
from seq2see.evaluation.metrics import compare_bleu, compare_exact
from seq2see.files import LOCK, Lock, plain_file, remove_leftovers
from seq2see.inspection.alignment import Sharpness, sharpness
from seq2see.kernels.registry import network_of
from seq2see.machine import free_cores
from seq2see.model.transformer import Transformer
from seq2see.storage import folder
from seq2see.storage.folder import Tokenizers
from seq2see.storage.weights import placed, put_weights, weights_bytes, weights_of
from seq2see.tokenizers.folding import slots_of
from seq2see.training import checkpoint, distributed
from seq2see.training.checkpoint import Checkpoint
from seq2see.training.learner import Learner
from seq2see.training.schedule import ENOUGH_RIGHT, Course, has_line, is_watched, learning_rate, steps_of

CHECKPOINTS, SHARDS = "checkpoints", ".shards"
#: Pairs that are varied at a time. The first step waits only for these; the others are varied in the background.
VARIED_AT_ONCE = 100_000
CHANCE = 0.003  # largest probability of chance with which the best line replaces the average: it is one of many lines
SAMPLES = 3  # answers kept with each line of the table
SLOW = 0.5  # seconds from which writing a checkpoint is slow
RESTS = 5  # the pause after a slow one, in multiples of its time
EARLY = (1, 2, 5, 10, 20, 50, 100, 200, 500)  # first steps after which a watched run has a line
NOT_AVERAGED = 0.75  # first share of the steps, whose checkpoints are not part of the final average
SHARING = ("accumulate",)  # settings that may change with the number of processes
SNAPSHOTS = 20  # weights kept while the rate of a watched training falls; the last `average` ones are averaged
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


def _digest(source: Ragged, target: Ragged) -> str:
    arrays = (source.values, source.offsets, target.values, target.offsets)
    return hashlib.blake2b(b"".join(array.tobytes() for array in arrays), digest_size=16).hexdigest()


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
        self.config, self.tokenizers, self.out, self.say, self.vary = config, tokenizers, out, say, vary
        self.device = torch.device(device)
        self.validation = watched(validation, config.training.evaluate_on)
        self.early = False  # whether the run is watched, so that the first steps have lines, too
        self.sentences = bool(self.validation) and are_sentences(self.validation)
        self.pads = (tokenizers.source.pad, tokenizers.target.pad)
        both = (tokenizers.source, tokenizers.target)
        if config.model.backward and any((len(one.before), len(one.after)) != (1, 1) for one in both):
            raise UserError(
                "model.backward turns texts between their start and end tokens, but this tokenizer has others: set it "
                "to 0."
            )
        if isinstance(train, Shards):
            source, target = train.source, train.target
        elif ids is not None:
            source, target = ids
        else:
            source = Ragged.cut(tokenizers.source, [source for source, _ in train])
            target = Ragged.cut(tokenizers.target, [target for _, target in train])
        for side, rows in (("source", source), ("target", target)):
            if rows.lengths.max() > config.model.max_length:
                raise UserError(
                    f"The longest {side} text has {rows.lengths.max():,} tokens, but model.max_length is "
                    f"{config.model.max_length:,}: set it higher, or leave such texts out."
                )
        self.data = train.digest if isinstance(train, Shards) else _digest(source, target)
        settings = config.training
        if settings.bpe_dropout and isinstance(train, Shards):
            raise UserError(
                "training.bpe_dropout splits the texts differently in each epoch, but this corpus is on disk as ids: "
                "set it to 0."
            )
        if settings.invented:
            vocabularies = tokenizers.source.vocabulary(), tokenizers.target.vocabulary()
            target = with_copies(source, target, vocabularies)
        elif settings.guided or settings.guided_memory:
            target = with_places(source, target)
        recut = self._sides(train) if settings.bpe_dropout and not isinstance(train, Shards) else None
        self.as_read, self.recut = (source, target), recut
        #: of the words that are exchanged in each epoch
        self.copies = Copies(train) if settings.swapped and not isinstance(train, Shards) else None
        self._arrange()

        torch.manual_seed(settings.seed)
        self.model = placed(network_of(config.model), self.device)
        if start is not None:
            put_weights(self.model, start, "the model to start from")
        shown = settings if target.places is not None else settings.but(guided=0.0, guided_memory=0.0)
        self.learner = Learner(self.model, shown, self.pads[1], teacher)
        special = Special.of(tokenizers)
        self.engine = engine_of(self.model, special)
        #: Threads of a CPU, fixed for the whole run: another number could change the last bits of sums.
        self.threads = torch.get_num_threads() if distributed.size() > 1 else min(torch.get_num_threads(), free_cores())
        #: whether a batch is tried before the first step; not under torchrun, where each process would try
        self.tries = self.device.type == "cuda" and distributed.size() == 1
        self.step = 0
        self.taken = 0  # batches, by all processes
        self.seconds = 0.0
        self.total, self.count = torch.zeros((), device=self.device), 0  # of the losses since the last line
        self.writer = ThreadPoolExecutor(1)
        self.whole = 0  # the step of the last checkpoint, kept until the second next one
        self.rested = 0.0  # earliest time of the next checkpoint, by the clock of this process
        self.saved: Future[None] = Future()  # the writing of the last checkpoint
        self.saved.set_result(None)
        self.course = Course()
        self.snapshots: dict[int, dict[str, Tensor]] = {}  # the weights that will be averaged, by step
        if out is not None and distributed.first():
            self._open(out, resume)
        if distributed.size() > 1:
            self._agree()

    def _longest(self) -> int:
        """Return the most tokens of a text after pairs are changed, joined or split differently."""
        return min(self.config.model.max_length, self.config.training.batch_tokens - 1)

    def _arrange(self) -> None:
        """Make the batches by the present settings."""
        settings, (source, target) = self.config.training, self.as_read
        #: of a packed batch: one size for the whole run, since a step is compiled for it
        self.sizes = sizes_of(source, target, settings.batch_tokens, self._longest())
        self.batches: Batches | PackedBatches | FreshBatches
        slots = settings.unseen and slots_of(self.tokenizers.source) and slots_of(self.tokenizers.target)
        if settings.bpe_dropout or settings.chained or settings.invented or self.copies or slots or self.vary:
            parts = 1 if self.recut is not None else -(-len(source.lengths) // VARIED_AT_ONCE)
            self.batches = FreshBatches(partial(self._part, self.as_read, self.recut, parts), self._arranged, parts)
        else:
            self.batches = self._arranged(source, target)

    def _arranged(self, source: Ragged, target: Ragged) -> Batches | PackedBatches:
        settings = self.config.training
        if settings.layout == "padded":
            return Batches(source, target, self.pads, settings.batch_tokens, settings.seed)
        return PackedBatches(source, target, self.pads, settings.batch_tokens, settings.seed, self.sizes)

    def _part(
        self, as_read: tuple[Ragged, Ragged], recut: tuple[Side, Side] | None, parts: int, number: int
    ) -> tuple[Ragged, Ragged]:
        """Return the pairs of a part of an epoch: some are changed, and others are joined.

        With BPE-dropout an epoch has one part, and its words are split first.
        """
        settings, sides = self.config.training, as_read
        if recut is not None:
            draws = (np.random.default_rng([settings.seed, number, side]) for side in (0, 1))
            source, target = (side.at(draw) for side, draw in zip(recut, draws, strict=True))
            sides = source, target
        elif parts > 1:
            epoch, part = divmod(number, parts)
            mixed = np.random.default_rng([settings.seed, epoch, 3]).permutation(len(as_read[0].lengths))
            sides = as_read[0].taken(mixed[part::parts]), as_read[1].taken(mixed[part::parts])
        longest = self._longest()
        tokenizers = self.tokenizers.source, self.tokenizers.target
        return varied(sides, tokenizers, settings, number, longest, self.vary, self.copies)

    def _sides(self, train: Sequence[Pair]) -> tuple[Side, Side]:
        settings, longest = self.config.training, self.config.model.max_length
        source, target = (
            Side(texts, tokenizer, settings.bpe_dropout, settings.seed, min(longest, settings.batch_tokens - 1))
            for texts, tokenizer in zip(
                zip(*train, strict=True), (self.tokenizers.source, self.tokenizers.target), strict=True
            )
        )
        return source, target

    def steps(self) -> Iterator[Step]:
        """Train to the end and yield after each step; a caller who stops earlier can save a checkpoint and resume
        later.
        """
        running = self._steps()
        try:
            while True:
                with threads_of(self.threads):  # only for the step: the caller may use another number
                    step = next(running, None)
                if step is None:
                    return
                yield step
        finally:
            wait([self.saved])  # no checkpoint is half written when the caller continues

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
                mean = self._finite(float(self.total) / self.count)
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
            packed = settings.layout == "packed" and smaller.batch_tokens <= self._longest_read()
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
            self._arrange()
        devices.release()

    def _has_room(self) -> bool:
        try:
            self.learner.try_out([self.batches.largest(self.taken)])
        except RuntimeError as error:
            if not devices.is_full(error):
                raise
            return False
        return True

    def _longest_read(self) -> int:
        """Return the tokens of the longest text, after pairs are joined or split differently."""
        settings = self.config.training
        if settings.bpe_dropout or settings.chained or self.copies or self.vary:
            return self._longest()
        return int(max(side.lengths.max() for side in self.as_read))

    def _finite(self, loss: float) -> float:
        """Return a finite loss; any other ends the training, before a checkpoint is written."""
        if math.isfinite(loss):
            return loss
        raise UserError(self._diverged(f"the loss is {loss}"))

    def _weights(self) -> dict[str, Tensor]:
        """Return copies of the weights after checking that all are finite; a loss shows only the weights of the step
        before.
        """
        weights = self.learner.weights()
        if not all(bool(tensor.isfinite().all()) for tensor in weights.values()):
            raise UserError(self._diverged("some weights are not finite"))
        return weights

    def _diverged(self, what: str) -> str:
        settings = self.config.training
        rate = self._rate()
        self.saved.result()
        steps = checkpoint.steps_in(self.out / CHECKPOINTS) if self.out is not None else []
        kept = f" {self.out} keeps the checkpoint of step {steps[-1]:,}." if steps else ""
        return (
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
            self.say(self._told())
        if self.out is not None and line is not None:
            with (self.out / folder.LOG).open("a", encoding="utf-8") as log:
                log.write(json.dumps(asdict(line)) + "\n")
        return line

    def _told(self) -> str:
        """Say why a watched training ends soon."""
        course = self.course
        why = (
            f"all {len(self.validation):,} held-out pairs are right"
            if course.why == "solved"
            else "neither the answers to the held-out pairs nor their loss have become better since step "
            f"{max(course.step, course.low):,}"
        )
        return f"At step {self.step:,} {why}: the learning rate falls to zero until step {course.last:,}."

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
        self.saved.result()
        averaged = [weights for step, weights in self.snapshots.items() if self._in_average(step)]
        if not self.ended and not self.config.training.patience:
            averaged = []
        average = checkpoint.average(averaged or [self._weights()])
        self._take(average)
        best = self.snapshots.get(self.course.step)
        if self.ended and averaged and best is not None:
            before = self._answered()
            if self.course.score > (before.exact_match + self._likeness(before)) / 2:
                self._take(best)
                if is_clearly_better(self._answered(), before, self.sentences):
                    self.say(f"The model of step {self.course.step:,} is better on the held-out pairs, and is kept.")
                else:
                    self._take(average)
        return self.model.eval()

    def _likeness(self, scores: Evaluation) -> float:
        """Return how much the answers are like the right ones, from 0 to 1."""
        return scores.chrf().score / 100 if self.sentences else max(0.0, 1.0 - scores.character_error_rate)

    def _answered(self) -> Evaluation:
        """Answer the held-out pairs with the present weights."""
        return evaluate(
            self.model, self.tokenizers, self.validation, engine=self.engine, rules=self.config.decoding, in_brief=True
        )

    def _take(self, weights: dict[str, Tensor]) -> None:
        put_weights(self.model, weights, "the averaged checkpoints")

    def write(self, card: str, confidence: Confidence | None = None) -> None:
        """Write the finished model folder and delete the checkpoints."""
        assert self.out is not None
        self.saved.result()
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
        settings = self.config.training
        every = settings.evaluate_every if settings.patience else settings.checkpoint_every
        if is_watched(settings):
            every = max(1, settings.steps // SNAPSHOTS)
        return step % every == 0 or step == self.last_step or step == self.course.step or self._in_average(step)

    def _in_average(self, step: int) -> bool:
        """Whether the weights after this step are part of the final average."""
        settings, last = self.config.training, self.last_step
        if settings.patience:
            return step == self.course.step
        if is_watched(settings):
            first = self.course.falls
            every = max(1, (last - first) // SNAPSHOTS)
            return 0 < first < step and (last - step) % every == 0 and step > last - settings.average * every
        before = (last - 1) // settings.checkpoint_every  # checkpoints before the last
        others = min(settings.average - 1, before)
        earliest = (before - others + 1) * settings.checkpoint_every if others else last
        # In a short run the last few checkpoints may include an untrained model.
        regular = step % settings.checkpoint_every == 0 or step == last
        return regular and step >= max(earliest, NOT_AVERAGED * last)

    def _snapshot(self) -> None:
        """Keep the weights if they are part of the average or the best so far; drop those that no longer are."""
        self.snapshots = {step: kept for step, kept in self.snapshots.items() if self._stays(step)}
        if self._stays(self.step):
            self.snapshots[self.step] = self._weights()

    def _stays(self, step: int) -> bool:
        """Whether the weights after this step are needed at the end."""
        return self._in_average(step) or step == self.course.step

    def save(self, at_once: bool = False) -> None:
        """Keep a checkpoint of this step; it is written in the background, or ``at_once``.

        A slow disk would delay the training. So after a checkpoint that took long to write, the next ones are skipped
        for a multiple of that time. The next one then includes the weights to be averaged.
        """
        if self.out is None:
            return
        rests = time.monotonic() < self.rested and distributed.size() == 1
        if rests and not at_once and self.step < self.last_step:
            return
        self.saved.result()  # one at a time; an error in writing the last one is raised here
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
            self.saved = self.writer.submit(self._write, self.out / CHECKPOINTS, state, dict(self.snapshots))
        if at_once:
            self.saved.result()
            distributed.wait()

    def _write(self, where: Path, state: Checkpoint, averaged: dict[int, dict[str, Tensor]]) -> None:
        """Write a checkpoint; keep only the last one and those that will be averaged."""
        started = time.monotonic()
        there = checkpoint.steps_in(where)
        for step, weights in averaged.items():
            if step not in there and step != state.step:
                checkpoint.write(where, Checkpoint(step, weights, {}, {}))
        checkpoint.write(where, state)
        checkpoint.prune(where, {state.step, self.whole, *averaged})
        self.whole = state.step
        took = time.monotonic() - started
        self.rested = time.monotonic() + (RESTS * took if took > SLOW else 0.0)

    def _open(self, out: Path, resume: bool) -> None:
        """Prepare the folder: a new one, or an unfinished one to continue."""
        check_out(out, resume)
        self.lock = Lock(out)
        remove_leftovers(out)
        remove_leftovers(out / CHECKPOINTS)
        if (out / folder.CONFIG).exists():
            asked, self.config = self.config, continued(out, folder.read_config(out), self.config)
            if asked.training.batch_tokens != self.config.training.batch_tokens:
                self._arrange()
            self._resume(out / CHECKPOINTS)
        else:
            folder.write_tokenizers(out, self.tokenizers)
            folder.write_atomically(out / folder.CONFIG, self.config.to_toml().encode())
        log = out / folder.LOG
        if log.exists():
            plain_file(log, folder.LARGEST_LOG)
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        kept = [line for line in text.splitlines() if 0 < _step_of(line) <= self.step]
        folder.write_atomically(log, "".join(line + "\n" for line in kept).encode())

    def _agree(self) -> None:
        """Continue from the step of the first process, with its data and settings."""
        mine = self.data
        self.config, self.data, self.course, step = distributed.from_first(
            (self.config, self.data, self.course, self.step)
        )
        if self.data != mine:
            raise UserError(
                f"Process {distributed.rank()} has other pairs than process 0: give all of them the same files."
            )
        if step and not distributed.first():
            assert self.out is not None
            self._restore(checkpoint.read(self.out / CHECKPOINTS, step))

    def _resume(self, where: Path) -> None:
        """Continue from the newest valid checkpoint; those that are averaged with it must be valid too."""
        whole: dict[int, Checkpoint] = {}
        steps = checkpoint.steps_in(where)
        for step in steps:
            try:
                whole[step] = checkpoint.read(where, step)
            except FolderError as error:
                self.say(f"{error}; an earlier one is used.")
        for step in sorted((step for step in whole if whole[step].run), reverse=True):  # some have only weights
            if "course" not in whole[step].notes:
                raise UserError(
                    f"{self.out} was begun by an earlier version of seq2see, whose trainings cannot be continued: train "
                    "into another folder."
                )
            self.course = Course(**json.loads(whole[step].notes["course"]))
            noted = whole[step].notes.get("averaged")
            companions = json.loads(noted) if noted else [s for s in range(1, step + 1) if self._stays(s)]
            if all(s in whole for s in companions):
                self._restore(whole[step])
                self.whole = step
                self.snapshots = {s: whole[s].weights for s in companions}
                self.say(f"Resuming from step {step:,}.")
                checkpoint.prune(where, (s for s in whole if s <= step))
                return
        self.course = Course()
        self.say("There is no valid checkpoint yet: starting from the beginning.")
        checkpoint.prune(where, keep=())

    def _restore(self, state: Checkpoint) -> None:
        if state.notes["data"] != self.data:
            raise UserError(
                f"{self.out} was started on other data: resume with the same, or train into another folder."
            )
        put_weights(self.model, state.weights, "the checkpoint")
        self.learner.restore(state.run)
        self.step = state.step
        self.taken = int(state.notes.get("batches", state.step * self.config.training.accumulate))
        self.seconds = float(state.notes["seconds"])
        total, self.count = json.loads(state.notes.get("losses", "[0, 0]"))
        self.total = torch.full_like(self.total, total)
        self.threads = int(state.notes.get("threads", self.threads))


def is_clearly_better(new: Evaluation, old: Evaluation, sentences: bool) -> bool:
    """Whether chance does not explain that ``new`` has better answers to the same pairs (paired bootstrap)."""
    compare = compare_bleu if sentences else compare_exact
    found = compare(old.given, new.given, old.expected)
    return found.b > found.a and found.p_value < CHANCE


def check_out(out: Path, resume: bool) -> None:
    """Refuse a folder that a training cannot write to; nothing is written yet."""
    if str(out) in folder.shipped_models():
        raise FolderError(f"{out} is the name of a model that ships: choose another, such as ./my-{out}.")
    if out.exists() and not out.is_dir():
        raise FolderError(f"{out} is a file; a folder for the model was expected.")
    names = {path.name for path in out.iterdir() if not path.name.startswith(".")} if out.exists() else set()
    folder.refuse_finished(out)
    begun = folder.CONFIG in names
    if begun and not resume:
        raise FolderError(
            f"{out} holds an unfinished training: continue it with `resume`, or name another folder with `out`."
        )
    # The tokenizers are written before the config. A run that ended in between has learned nothing, and starts again.
    if names - folder.TOKENIZER_FILES and not begun:
        raise FolderError(f"{out} is not empty and not a training: name another folder with `out`.")


def halved(settings: TrainingConfig) -> TrainingConfig:
    """Return settings with batches of half the size, and twice as many per step."""
    half = settings.batch_tokens // 2
    if settings.layout == "packed":
        half = half // BLOCK * BLOCK
    return settings.but(batch_tokens=max(half, 8), accumulate=2 * settings.accumulate)


def tidy(out: Path) -> None:
    """Remove what a finished training no longer needs, and what a killed process may have left."""
    for name in (SHARDS, CHECKPOINTS):
        shutil.rmtree(out / name, ignore_errors=True)


def _step_of(line: str) -> int:
    """Return the step of a line of the log; 0 if the line is incomplete or invalid."""
    try:
        step = json.loads(line)["step"]
    except (ValueError, RecursionError, TypeError, KeyError):
        return 0
    return step if type(step) is int else 0


def continued(out: Path, before: Config, now: Config) -> Config:
    """Return the config of a resumed training; settings other than those of its start are refused."""
    if before.training.budget is not None and before.training.budget == now.training.budget:
        now = replace(now, training=now.training.but(steps=before.training.steps))
    less = now.training
    while less.batch_tokens > before.training.batch_tokens and less.accumulate < before.training.accumulate:
        less = halved(less)  # as at the start, when a batch did not fit the GPU's memory
    if less.batch_tokens == before.training.batch_tokens:
        now = replace(now, training=less)
    differing = [] if before.task == now.task else [("task", before.task, now.task)]
    for old, new in ((before.model, now.model), (before.training, now.training)):
        then, asked = asdict(old), asdict(new)
        differing += [
            (f"{old.section}.{key}", value, asked[key])
            for key, value in then.items()
            if key not in SHARING and asked[key] != value
        ]
    for name, value, other in differing:
        raise UserError(
            f"{out} was started with {name} = {value}, but now it is {other}: resume with the settings and the data "
            "of the start, or train into another folder."
        )
    return now
