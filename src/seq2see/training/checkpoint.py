"""Checkpoints: all that an interrupted run needs to continue, in one safetensors file; and the folder of a training."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from seq2see.config import Config, TrainingConfig
from seq2see.data.batching import BLOCK
from seq2see.errors import FolderError, UserError
from seq2see.files import plain_file, write_atomically
from seq2see.storage import folder

CHECKPOINTS, SHARDS = "checkpoints", ".shards"
SHARING = ("accumulate",)  # settings that may change with the number of processes
MODEL, RUN = "model/", "run/"  # prefixes of the names of the weights, and of everything else


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run after ``step`` steps."""

    step: int
    weights: dict[str, Tensor]
    run: dict[str, Tensor]  # optimiser moments, random state
    notes: dict[str, str]


def path_of(where: Path, step: int) -> Path:
    """Return the path of the checkpoint of a step."""
    return where / f"checkpoint-{step:09d}.safetensors"


def steps_in(where: Path) -> list[int]:
    """List the steps that have a checkpoint file, lowest first."""
    names = (
        re.fullmatch(r"checkpoint-(\d{1,18})\.safetensors", path.name)
        for path in where.glob("checkpoint-*")
        if path.is_file()
    )
    return sorted(int(match[1]) for match in names if match)


def write(where: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint whole, with a digest of its numbers, or not at all."""
    tensors = {
        **{MODEL + name: tensor for name, tensor in checkpoint.weights.items()},
        **{RUN + name: tensor for name, tensor in checkpoint.run.items()},
    }
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    header = {"step": str(checkpoint.step), "notes": json.dumps(checkpoint.notes)}
    header["digest"] = _digest(header, tensors)
    write_atomically(path_of(where, checkpoint.step), save(tensors, header))


def read(where: Path, step: int) -> Checkpoint:
    """Read a checkpoint; a damaged one is a FolderError."""
    path = path_of(where, step)
    plain_file(path)
    try:
        with safe_open(path, "pt") as file:
            header: dict[str, str] = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    except (SafetensorError, OSError, ValueError) as error:
        raise FolderError(f"{path.name} is damaged ({error})") from None
    if header.get("step") != str(step) or header.get("digest") != _digest(header, tensors):
        raise FolderError(f"{path.name} is damaged (its numbers do not match their digest)")
    return Checkpoint(
        step=step,
        weights={n.removeprefix(MODEL): x for n, x in tensors.items() if n.startswith(MODEL)},
        run={n.removeprefix(RUN): x for n, x in tensors.items() if n.startswith(RUN)},
        notes=json.loads(header["notes"]),
    )


def _digest(header: dict[str, str], tensors: dict[str, Tensor]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    digest.update(json.dumps([header.get("step"), header.get("notes")]).encode())
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}".encode())
        digest.update(tensors[name].flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def prune(where: Path, keep: Iterable[int]) -> None:
    """Delete all checkpoints except those of these steps."""
    keep = set(keep)
    for step in steps_in(where):
        if step not in keep:
            path_of(where, step).unlink(missing_ok=True)


def average(all_weights: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Return the mean of several checkpoints' weights (section 6.1)."""
    return {
        name: torch.stack([weights[name].double() for weights in all_weights]).mean(0).to(all_weights[0][name].dtype)
        for name in all_weights[0]
    }


class Checkpoints:
    """The checkpoints of a training, which are written in the background; without a folder there are none."""

    def __init__(self, out: Path | None) -> None:
        self.out, self.where = out, None if out is None else out / CHECKPOINTS
        self.writer = ThreadPoolExecutor(1)
        self.last = 0  # the step of the last one, which is deleted after two newer ones
        self.saved: Future[None] = Future()  # the writing of the last one
        self.saved.set_result(None)

    def finish(self) -> None:
        """Wait for the last one; an error in writing it is raised here."""
        self.saved.result()

    def settle(self) -> None:
        """Wait until none is half written."""
        wait([self.saved])

    def write(self, state: Checkpoint, averaged: dict[int, dict[str, Tensor]]) -> None:
        """Write one in the background; keep only the last ones and those that will be averaged."""
        assert self.where is not None
        self.saved = self.writer.submit(self._write, self.where, state, averaged)

    def _write(self, where: Path, state: Checkpoint, averaged: dict[int, dict[str, Tensor]]) -> None:
        there = steps_in(where)
        for step, weights in averaged.items():
            if step not in there and step != state.step:
                write(where, Checkpoint(step, weights, {}, {}))
        write(where, state)
        prune(where, {state.step, self.last, *averaged})
        self.last = state.step

    def newest(self, data: str, say: Callable[[str], None]) -> tuple[Checkpoint, dict[int, dict[str, Tensor]]] | None:
        """Return the newest valid checkpoint, and the weights that are averaged with it, which must be valid too."""
        assert self.where is not None
        valid: dict[int, Checkpoint] = {}
        for step in steps_in(self.where):
            try:
                valid[step] = read(self.where, step)
            except FolderError as error:
                say(f"{error}; an earlier one is used.")
        for step in sorted((step for step in valid if valid[step].run), reverse=True):  # some have only weights
            notes = valid[step].notes
            if not {"course", "averaged"} <= notes.keys():
                raise UserError(
                    f"{self.out} was begun by an earlier version of seq2see, whose trainings cannot be continued: train "
                    "into another folder."
                )
            averaged = json.loads(notes["averaged"])
            if all(one in valid for one in averaged):
                if notes["data"] != data:
                    raise UserError(
                        f"{self.out} was started on other data: resume with the same, or train into another folder."
                    )
                self.last = step
                prune(self.where, (one for one in valid if one <= step))
                return valid[step], {one: valid[one].weights for one in averaged}
        prune(self.where, keep=())
        return None


# --- the folder of a training ----------------------------------------------------------------------------------------


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


def keep_log(out: Path, step: int) -> None:
    """Drop the lines of the log after a step, and those that cannot be read."""
    log = out / folder.LOG
    if log.exists():
        plain_file(log, folder.LARGEST_LOG)
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    kept = [line for line in text.splitlines() if 0 < _step_of(line) <= step]
    folder.write_atomically(log, "".join(line + "\n" for line in kept).encode())


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
