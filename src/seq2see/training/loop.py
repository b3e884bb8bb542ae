"""The training loop: a generator of steps that the command line, a page or a test can watch."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from seq2see import folder
from seq2see.config import Config
from seq2see.data.batching import Batch, Batches, Ragged
from seq2see.data.packing import PackedBatches
from seq2see.data.plan import are_sentences
from seq2see.errors import FolderError, UserError
from seq2see.evaluate import Pair, evaluate
from seq2see.folder import Tokenizers
from seq2see.metrics import bleu
from seq2see.model.transformer import Transformer
from seq2see.model.weights import put_weights, weights_bytes, weights_of
from seq2see.training import checkpoint
from seq2see.training.checkpoint import Checkpoint
from seq2see.training.learner import Learner
from seq2see.training.schedule import learning_rate

CHECKPOINTS, LOG = "checkpoints", "log.jsonl"
SAMPLES = 3  # answers kept with each line of the table


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


@dataclass(frozen=True)
class Step:
    """What happened in one step. ``float(loss)`` waits for the device, so look at it now and then only."""

    step: int
    loss: Tensor
    line: Line | None


class Trainer:
    """A model, its optimiser and its data; ``steps`` trains, ``finish`` averages and returns the model.

    With a folder it writes checkpoints there, and with ``resume`` it goes on from the last one: batches depend on
    the step alone, and the checkpoint holds everything else, so the outcome is the same to the bit.
    """

    def __init__(
        self,
        config: Config,
        tokenizers: Tokenizers,
        train: Sequence[Pair],
        validation: Sequence[Pair],
        out: Path | None = None,
        resume: bool = False,
        device: str = "cpu",
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.config, self.tokenizers, self.out, self.say = config, tokenizers, out, say
        self.device = torch.device(device)
        self.validation = list(validation)[: config.training.evaluate_on]
        self.sentences = bool(self.validation) and are_sentences(self.validation)
        self.pads = (tokenizers.source.pad, tokenizers.target.pad)
        source = Ragged.of(tokenizers.source.encode_batch([source for source, _ in train]))
        target = Ragged.of(tokenizers.target.encode_batch([target for _, target in train]))
        for side, rows in (("source", source), ("target", target)):
            if rows.lengths.max() > config.model.max_length:
                raise UserError(
                    f"The longest {side} text has {rows.lengths.max():,} tokens, but model.max_length is "
                    f"{config.model.max_length:,}: set it higher, or leave such texts out."
                )
        arrays = (source.values, source.offsets, target.values, target.offsets)
        self.data = hashlib.blake2b(b"".join(array.tobytes() for array in arrays), digest_size=16).hexdigest()
        settings = config.training
        self.batches: Batches | PackedBatches
        if settings.layout == "packed":
            self.batches = PackedBatches(source, target, self.pads, settings.batch_tokens, settings.seed)
        else:
            self.batches = Batches(source, target, self.pads, settings.batch_tokens, settings.seed)

        torch.manual_seed(settings.seed)
        self.model = Transformer(config.model).to(self.device)
        self.learner = Learner(self.model, settings, self.pads[1])
        self.step = 0
        self.seconds = 0.0
        self.snapshots: dict[int, dict[str, Tensor]] = {}  # the weights that will be averaged, by step
        if out is not None:
            self._open(out, resume)

    def steps(self) -> Iterator[Step]:
        """Train to the end, yielding after each step; stop asking and the run can be resumed later."""
        settings = self.config.training
        started = time.perf_counter() - self.seconds
        total, count = torch.zeros((), device=self.device), 0
        while self.step < settings.steps:
            batch = self.batches.at(self.step)
            if isinstance(batch, Batch):
                batch = batch.to(self.device)
            self.step += 1
            loss = self.learner.learn(batch, learning_rate(self.step, settings, self.config.model.d_model))
            total, count = total + loss, count + 1
            self.seconds = time.perf_counter() - started

            line = None
            if self.step % settings.evaluate_every == 0 or self.step == settings.steps:
                line = self._line(float(total) / count)
                total, count = torch.zeros((), device=self.device), 0
            if self.step % settings.checkpoint_every == 0 or self.step == settings.steps:
                self._snapshot()
                self.save()
            yield Step(self.step, loss, line)

    def _line(self, loss: float) -> Line:
        scores = evaluate(self.model, self.tokenizers, self.validation)
        line = Line(
            step=self.step,
            epoch=self.step / self.batches.per_epoch,
            loss=loss,
            validation_loss=scores.loss,
            exact_match=scores.exact_match,
            learning_rate=learning_rate(self.step, self.config.training, self.config.model.d_model),
            seconds=self.seconds,
            bleu=bleu([a[2] for a in scores.answers], [a[1] for a in scores.answers]).score
            if self.sentences
            else None,
            samples=scores.answers[:SAMPLES],
        )
        if self.out is not None:
            with (self.out / LOG).open("a", encoding="utf-8") as log:
                log.write(json.dumps(asdict(line)) + "\n")
        return line

    def finish(self) -> Transformer:
        """Average the last checkpoints into the model, and return it ready for use."""
        put_weights(self.model, checkpoint.average(list(self.snapshots.values())), "the averaged checkpoints")
        return self.model.eval()

    def write(self, card: str) -> None:
        """Write the finished model folder and drop the checkpoints, which it no longer needs."""
        assert self.out is not None
        data = weights_bytes(weights_of(self.model))
        folder.write(self.out, self.config, self.tokenizers, data, card)
        shutil.rmtree(self.out / CHECKPOINTS)  # with what a killed process may have left there

    # --- checkpoints -------------------------------------------------------------------------------------------

    def _in_average(self, step: int) -> bool:
        """Whether the weights after this step are part of the final average."""
        settings = self.config.training
        regular = step % settings.checkpoint_every == 0 or step == settings.steps
        last = [settings.steps, *range((settings.steps - 1) // settings.checkpoint_every, 0, -1)][
            : settings.average
        ]
        earliest = settings.steps if len(last) == 1 else last[-1] * settings.checkpoint_every
        return regular and step >= earliest

    def _snapshot(self) -> None:
        if self._in_average(self.step):
            self.snapshots[self.step] = weights_of(self.model)

    def save(self) -> None:
        """Write a checkpoint of this very moment."""
        if self.out is None:
            return
        notes = {"data": self.data, "seconds": repr(self.seconds)}
        where = self.out / CHECKPOINTS
        checkpoint.write(where, Checkpoint(self.step, weights_of(self.model), self.learner.state(), notes))
        others = [step for step in checkpoint.steps_in(where) if step != self.step]
        checkpoint.prune(
            where, {self.step, *others[-1:], *(step for step in others if self._in_average(step))}
        )

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
            self._same_config(out)
            self._resume(out / CHECKPOINTS)
        else:
            folder.write_atomically(out / folder.CONFIG, self.config.to_toml().encode())
            folder.write_tokenizers(out, self.tokenizers)
        log = out / LOG
        lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
        kept = [line for line in lines if line.endswith("}") and json.loads(line)["step"] <= self.step]
        folder.write_atomically(log, "".join(line + "\n" for line in kept).encode())

    def _same_config(self, out: Path) -> None:
        before, now = folder.read_config(out), self.config
        for old, new in ((before.model, now.model), (before.training, now.training)):
            for key, value in asdict(old).items():
                if asdict(new)[key] != value:
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
        every = self.config.training.checkpoint_every
        for step in sorted(whole, reverse=True):
            companions = [s for s in (*range(every, step, every), step) if self._in_average(s)]
            if all(s in whole for s in companions):
                self._restore(whole[step])
                self.snapshots = {s: whole[s].weights for s in companions}
                self.say(f"Going on from step {step:,}.")
                checkpoint.prune(where, (s for s in whole if s <= step))
                return
        self.say("There is no whole checkpoint yet: starting from the beginning.")
        checkpoint.prune(where, keep=())

    def _restore(self, state: Checkpoint) -> None:
        if state.notes["data"] != self.data:
            raise UserError(
                f"{self.out} was started on other data: resume with the same, or train into another folder."
            )
        put_weights(self.model, state.weights, "the checkpoint")
        self.learner.restore(state.run)
        self.step = state.step
        self.seconds = float(state.notes["seconds"])
