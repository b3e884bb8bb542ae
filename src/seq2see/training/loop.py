"""The training loop: a generator of steps that the command line, a page or a test can watch."""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from seq2see import folder
from seq2see.config import Config
from seq2see.data.batching import Batches, Ragged
from seq2see.data.packing import PackedBatches
from seq2see.data.plan import are_sentences
from seq2see.data.recut import RecutBatches, Side
from seq2see.data.shards import Shards
from seq2see.decoding.hypothesis import Special
from seq2see.decoding.torch_engine import TorchEngine
from seq2see.errors import FolderError, UserError
from seq2see.evaluate import Pair, evaluate
from seq2see.folder import Tokenizers
from seq2see.inspection.sharpness import Sharpness, sharpness
from seq2see.metrics import bleu
from seq2see.model.transformer import Transformer
from seq2see.model.weights import put_weights, weights_bytes, weights_of
from seq2see.training import checkpoint, distributed
from seq2see.training.checkpoint import Checkpoint
from seq2see.training.learner import Learner
from seq2see.training.schedule import learning_rate

CHECKPOINTS, LOG, SHARDS = "checkpoints", "log.jsonl", ".shards"
SAMPLES = 3  # answers kept with each line of the table
TIMED = (20, 100)  # steps between which the speed is taken, where a run is given seconds instead of steps
LINES = 5  # of the table of such a run
ASIDE = 0.1  # of its time, for those lines and for checkpoints
OFF = 0.05  # of its time, by which it may miss its end before the number of steps is set anew
AVERAGED = 0.75  # of a run, before which no checkpoint is part of the final average
SHARING = ("accumulate", "sharded")  # settings that may change with the number of processes


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
    bleu: float | None = None  # free-running, where the held-out pairs are sentences
    samples: list[tuple[str, str, str]] = field(default_factory=list)  # source, expected, given
    attention: Sharpness | None = None  # on the first held-out pair


@dataclass(frozen=True)
class Step:
    """What happened in one step. ``float(loss)`` waits for the device, so look at it now and then only."""

    step: int
    loss: Tensor
    line: Line | None


@dataclass(frozen=True)
class Best:
    """The line with the best free-running score so far, and how many lines have come since."""

    step: int = 0
    score: float = -1.0
    lines_since: int = 0

    def after(self, step: int, score: float) -> Best:
        """Return the best after one more line; of equals the later, which has learned longer."""
        return Best(step, score) if score >= self.score else replace(self, lines_since=self.lines_since + 1)


def _digest(source: Ragged, target: Ragged) -> str:
    arrays = (source.values, source.offsets, target.values, target.offsets)
    return hashlib.blake2b(b"".join(array.tobytes() for array in arrays), digest_size=16).hexdigest()


class Trainer:
    """A model, its optimiser and its data; ``steps`` trains, ``finish`` averages and returns the model.

    With a folder it writes checkpoints there, and with ``resume`` it goes on from the last one: batches depend on
    the step alone, and the checkpoint holds everything else, so the outcome is the same to the bit.

    Under torchrun every process has a trainer of its own, and all take the same steps. Only the first one writes,
    has lines of the table and ends with ``finish``.
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
    ) -> None:
        self.config, self.tokenizers, self.out, self.say = config, tokenizers, out, say
        self.device = torch.device(device)
        self.validation = list(validation)[: config.training.evaluate_on]
        self.sentences = bool(self.validation) and are_sentences(self.validation)
        self.pads = (tokenizers.source.pad, tokenizers.target.pad)
        if isinstance(train, Shards):
            source, target = train.source, train.target
        else:
            source = Ragged.of(tokenizers.source.encode_batch([source for source, _ in train]))
            target = Ragged.of(tokenizers.target.encode_batch([target for _, target in train]))
        for side, rows in (("source", source), ("target", target)):
            if rows.lengths.max() > config.model.max_length:
                raise UserError(
                    f"The longest {side} text has {rows.lengths.max():,} tokens, but model.max_length is "
                    f"{config.model.max_length:,}: set it higher, or leave such texts out."
                )
        self.data = train.digest if isinstance(train, Shards) else _digest(source, target)
        settings = config.training
        self.batches: Batches | PackedBatches | RecutBatches = self._arranged(source, target)
        if settings.bpe_dropout:
            if isinstance(train, Shards):
                raise UserError(
                    "training.bpe_dropout cuts texts anew, which a corpus on disk cannot be: set it to 0."
                )
            self.batches = RecutBatches(self._sides(train), self._arranged, settings.seed)

        torch.manual_seed(settings.seed)
        self.model = Transformer(config.model).to(self.device)
        if start is not None:
            put_weights(self.model, start, "the model to start from")
        sharded = settings.sharded and distributed.size() > 1
        self.learner = Learner(copy.deepcopy(self.model) if sharded else self.model, settings, self.pads[1])
        if sharded and not distributed.first():  # which keeps a whole one to evaluate
            self.model.to("meta")
        special = Special.of(tokenizers)
        self.engine = TorchEngine(self.model, special)
        self.step = 0
        self.taken = 0  # batches, by all processes
        self.seconds = 0.0
        self.writer = ThreadPoolExecutor(1)
        self.saved: Future[None] = Future()  # the last checkpoint, on its way to the disk
        self.saved.set_result(None)
        self.best = Best()
        self.snapshots: dict[int, dict[str, Tensor]] = {}  # the weights that will be averaged, by step
        if out is not None and distributed.first():
            self._open(out, resume)
        if distributed.size() > 1:
            self._agree()

    def _arranged(self, source: Ragged, target: Ragged) -> Batches | PackedBatches:
        settings = self.config.training
        kind = PackedBatches if settings.layout == "packed" else Batches
        return kind(source, target, self.pads, settings.batch_tokens, settings.seed)

    def _sides(self, train: Sequence[Pair]) -> tuple[Side, Side]:
        settings, longest = self.config.training, self.config.model.max_length
        source, target = (
            Side(
                texts, tokenizer, settings.bpe_dropout, settings.seed, min(longest, settings.batch_tokens - 1)
            )
            for texts, tokenizer in zip(
                zip(*train, strict=True), (self.tokenizers.source, self.tokenizers.target), strict=True
            )
        )
        return source, target

    def steps(self) -> Iterator[Step]:
        """Train to the end, yielding after each step; stop asking and the run can be resumed later."""
        try:
            yield from self._steps()
        finally:
            wait([self.saved])  # nobody who stops asking should find a checkpoint half on its way

    def _steps(self) -> Iterator[Step]:
        settings = self.config.training
        started = time.perf_counter() - self.seconds
        timed: float | None = None
        since: tuple[int, float] | None = (
            None  # the step and the time when the number of steps was last looked at
        )
        total, count = torch.zeros((), device=self.device), 0
        while self.step < settings.steps and not self._out_of_patience():
            last = self.taken + settings.accumulate * distributed.size()
            own = range(self.taken + distributed.rank(), last, distributed.size())
            batches = [self.batches.at(number) for number in own]
            self.step, self.taken = self.step + 1, last
            distributed.seed(settings.seed, self.step)
            loss = self.learner.learn(batches, learning_rate(self.step, settings, self.config.model.d_model))
            total, count = total + loss, count + 1
            if settings.seconds is not None and self.step in TIMED:
                float(loss)  # wait for the device
                now = distributed.from_first(time.perf_counter() - started)
                if self.step == TIMED[1] and timed is not None:
                    self._fit_into(settings.seconds - now, (now - timed) / (TIMED[1] - TIMED[0]))
                    settings, since = self.config.training, (self.step, now)
                timed = now
            self.seconds = time.perf_counter() - started

            line = None
            if self.step % settings.evaluate_every == 0 or self.step == settings.steps:
                line = self._line(float(total) / count)
                total, count = torch.zeros((), device=self.device), 0
                # of a few steps the line itself would take most of the time
                if since is not None and self.step - since[0] > settings.evaluate_every // 2:
                    now = distributed.from_first(time.perf_counter() - started)
                    self._keep_to_time(now, (now - since[1]) / (self.step - since[0]))
                    settings, since = self.config.training, (self.step, now)
            if self._saves(self.step):
                self._snapshot()
                self.save()
            yield Step(self.step, loss, line)

    def _fit_into(self, seconds: float, each: float) -> None:
        """Set the number of steps by the time that is left and the time that one takes; a resumed run keeps it."""
        steps = self.step + max(1, int((1 - ASIDE) * seconds / each))
        self._set(
            steps=steps, evaluate_every=-(-steps // LINES), checkpoint_every=max(1, steps // (4 * LINES))
        )

    def _keep_to_time(self, now: float, each: float) -> None:
        """Set the number of steps anew if the run has become slower or faster, and no checkpoint is averaged yet."""
        settings = self.config.training
        assert settings.seconds is not None
        late = now + (settings.steps - self.step) * each - settings.seconds
        if self.step < AVERAGED * settings.steps and abs(late) > OFF * settings.seconds:
            steps = self.step + int((settings.seconds - now) / each)
            self._set(steps=max(steps, int(self.step / AVERAGED) + 1))

    def _set(self, **settings: int) -> None:
        self.config = replace(self.config, training=self.config.training.but(**settings))
        if self.out is not None and distributed.first():
            folder.write_atomically(self.out / folder.CONFIG, self.config.to_toml().encode())

    def _line(self, loss: float) -> Line | None:
        """Measure and write a line of the table, in the first process; the others hear the score."""
        if self.learner.model is not self.model:
            weights = self.learner.weights()
            if distributed.first():
                put_weights(self.model, weights, "the sharded model")
        line = self._measured(loss) if distributed.first() else None
        score = 0.0 if line is None else line.exact_match if line.bleu is None else line.bleu
        self.best = self.best.after(self.step, distributed.from_first(score))
        if self.out is not None and line is not None:
            with (self.out / LOG).open("a", encoding="utf-8") as log:
                log.write(json.dumps(asdict(line)) + "\n")
        return line

    def _measured(self, loss: float) -> Line:
        scores = evaluate(self.model, self.tokenizers, self.validation, engine=self.engine)
        return Line(
            step=self.step,
            epoch=self.taken / self.batches.per_epoch,
            loss=loss,
            validation_loss=scores.loss,
            exact_match=scores.exact_match,
            learning_rate=learning_rate(self.step, self.config.training, self.config.model.d_model),
            seconds=self.seconds,
            bleu=bleu([a[2] for a in scores.answers], [a[1] for a in scores.answers]).score
            if self.sentences
            else None,
            samples=scores.answers[:SAMPLES],
            attention=sharpness(self.model, self.tokenizers, *self.validation[0])
            if self.validation
            else None,
        )

    def finish(self) -> Transformer:
        """Average the last checkpoints into the model, and return it ready for use."""
        self.saved.result()
        put_weights(self.model, checkpoint.average(list(self.snapshots.values())), "the averaged checkpoints")
        return self.model.eval()

    def write(self, card: str) -> None:
        """Write the finished model folder and drop the checkpoints, which it no longer needs."""
        assert self.out is not None
        self.saved.result()
        data = weights_bytes(weights_of(self.model))
        folder.write(self.out, self.config, self.tokenizers, data, card)
        shutil.rmtree(self.out / SHARDS, ignore_errors=True)
        shutil.rmtree(self.out / CHECKPOINTS)  # with what a killed process may have left there

    # --- checkpoints -------------------------------------------------------------------------------------------

    def _out_of_patience(self) -> bool:
        return 0 < self.config.training.patience <= self.best.lines_since

    def _saves(self, step: int) -> bool:
        """Whether a checkpoint is written after this step: with patience at every line, so that the best one is kept."""
        settings = self.config.training
        every = settings.evaluate_every if settings.patience else settings.checkpoint_every
        return step % every == 0 or step == settings.steps

    def _in_average(self, step: int) -> bool:
        """Whether the weights after this step are part of the final average."""
        settings = self.config.training
        if settings.patience:
            return step == self.best.step
        before = (settings.steps - 1) // settings.checkpoint_every  # checkpoints before the last
        others = min(settings.average - 1, before)
        earliest = (before - others + 1) * settings.checkpoint_every if others else settings.steps
        # In a short run the last few checkpoints may reach back to when the model knew nothing: of the last quarter only.
        return self._saves(step) and step >= max(earliest, AVERAGED * settings.steps)

    def _snapshot(self) -> None:
        if self._in_average(self.step):
            if self.config.training.patience:
                self.snapshots.clear()
            self.snapshots[self.step] = self.learner.weights()

    def save(self, at_once: bool = False) -> None:
        """Keep a checkpoint of this very moment; it is written while training goes on, unless it must be at once."""
        if self.out is None:
            return
        self.saved.result()  # one at a time; what went wrong with the last one is told here
        notes = {
            "data": self.data,
            "batches": str(self.taken),
            "seconds": repr(self.seconds),
            "best": json.dumps(asdict(self.best)),
        }
        run = distributed.gathered(self.learner.state())
        state = Checkpoint(self.step, self.learner.weights(), run, notes)
        if distributed.first():
            self.saved = self.writer.submit(_write, self.out / CHECKPOINTS, state, set(self.snapshots))
        if at_once:
            self.saved.result()
            distributed.wait()

    def _open(self, out: Path, resume: bool) -> None:
        """Prepare the folder: a new one, or an unfinished one to go on with."""
        if str(out) in folder.shipped_models():
            raise FolderError(f"{out} is the name of a model that ships: choose another, such as ./my-{out}.")
        if (out / folder.WEIGHTS).exists():
            raise FolderError(
                f"{out} already holds a finished model: name another folder with --out, or remove it."
            )
        if out.exists() and not out.is_dir():
            raise FolderError(f"{out} is a file; a folder for the model was expected.")
        unfinished = (out / folder.CONFIG).exists()
        if unfinished and not resume:
            raise FolderError(
                f"{out} holds an unfinished training: go on with --resume, or name another folder."
            )
        others = [path for path in out.iterdir() if not path.name.startswith(".")] if out.exists() else []
        if others and not unfinished:
            raise FolderError(
                f"{out} is not empty and not a training of ours: name another folder with --out."
            )
        if unfinished:
            if self.config.training.seconds is not None:
                before = folder.read_config(out).training
                fitted = {
                    name: getattr(before, name) for name in ("steps", "evaluate_every", "checkpoint_every")
                }
                self.config = replace(self.config, training=self.config.training.but(**fitted))
            self._same_config(out)
            self._resume(out / CHECKPOINTS)
        else:
            folder.write_atomically(out / folder.CONFIG, self.config.to_toml().encode())
            folder.write_tokenizers(out, self.tokenizers)
        log = out / LOG
        lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
        kept = [line for line in lines if line.endswith("}") and json.loads(line)["step"] <= self.step]
        folder.write_atomically(log, "".join(line + "\n" for line in kept).encode())

    def _agree(self) -> None:
        """Go on from where the first process does, with the same data and settings."""
        mine = self.data
        self.config, self.data, self.best, step = distributed.from_first(
            (self.config, self.data, self.best, self.step)
        )
        if self.data != mine:
            raise UserError(
                f"Process {distributed.rank()} has other pairs than process 0: give all of them the same files."
            )
        if step and not distributed.first():
            assert self.out is not None
            self._restore(checkpoint.read(self.out / CHECKPOINTS, step))

    def _same_config(self, out: Path) -> None:
        before, now = folder.read_config(out), self.config
        for old, new in ((before.model, now.model), (before.training, now.training)):
            for key, value in asdict(old).items():
                if key not in SHARING and asdict(new)[key] != value:
                    raise UserError(
                        f"{out} was started with {old.section}.{key} = {value}, but now it is {asdict(new)[key]}: "
                        "resume with the settings of the start, or train into another folder."
                    )

    def _resume(self, where: Path) -> None:
        """Go on from the newest checkpoint that is whole and whose companions in the average are whole."""
        whole: dict[int, Checkpoint] = {}
        steps = checkpoint.steps_in(where)
        for step in steps:
            try:
                whole[step] = checkpoint.read(where, step)
            except FolderError as error:
                self.say(f"{error}; an earlier one is used.")
        for step in sorted(whole, reverse=True):
            self.best = Best(**json.loads(whole[step].notes.get("best", "{}")))
            companions = [s for s in range(1, step + 1) if self._in_average(s)]
            if all(s in whole for s in companions):
                self._restore(whole[step])
                self.snapshots = {s: whole[s].weights for s in companions}
                self.say(f"Going on from step {step:,}.")
                checkpoint.prune(where, (s for s in whole if s <= step))
                return
        self.best = Best()
        self.say("There is no whole checkpoint yet: starting from the beginning.")
        checkpoint.prune(where, keep=())

    def _restore(self, state: Checkpoint) -> None:
        if state.notes["data"] != self.data:
            raise UserError(
                f"{self.out} was started on other data: resume with the same, or train into another folder."
            )
        put_weights(self.model, state.weights, "the checkpoint")
        self.learner.restore(state.weights, state.run)
        self.step = state.step
        self.taken = int(state.notes.get("batches", state.step * self.config.training.accumulate))
        self.seconds = float(state.notes["seconds"])


def _write(where: Path, state: Checkpoint, averaged: set[int]) -> None:
    """Write a checkpoint; of the others, keep the last one and those that will be averaged."""
    checkpoint.write(where, state)
    others = [step for step in checkpoint.steps_in(where) if step != state.step]
    checkpoint.prune(where, {state.step, *others[-1:], *(step for step in others if step in averaged)})
