"""Checkpoints: all that an interrupted run needs to continue, in one safetensors file."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from seq2see.errors import FolderError
from seq2see.files import plain_file, write_atomically

MODEL, RUN = "model/", "run/"  # prefixes of the names of the weights, and of everything else


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run after ``step`` steps."""

    step: int
    weights: dict[str, Tensor]
    run: dict[str, Tensor]  # optimiser moments, random state
    notes: dict[str, str]


def path_of(folder: Path, step: int) -> Path:
    """Return the path of the checkpoint of a step."""
    return folder / f"checkpoint-{step:09d}.safetensors"


def steps_in(folder: Path) -> list[int]:
    """List the steps that have a checkpoint file, lowest first."""
    names = (
        re.fullmatch(r"checkpoint-(\d{1,18})\.safetensors", path.name)
        for path in folder.glob("checkpoint-*")
        if path.is_file()
    )
    return sorted(int(match[1]) for match in names if match)


def write(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint whole, with a digest of its numbers, or not at all."""
    tensors = {
        **{MODEL + name: tensor for name, tensor in checkpoint.weights.items()},
        **{RUN + name: tensor for name, tensor in checkpoint.run.items()},
    }
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    header = {"step": str(checkpoint.step), "notes": json.dumps(checkpoint.notes)}
    header["digest"] = _digest(header, tensors)
    write_atomically(path_of(folder, checkpoint.step), save(tensors, header))


def read(folder: Path, step: int) -> Checkpoint:
    """Read a checkpoint; a damaged one is a FolderError."""
    path = path_of(folder, step)
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


def prune(folder: Path, keep: Iterable[int]) -> None:
    """Delete all checkpoints except those of these steps."""
    keep = set(keep)
    for step in steps_in(folder):
        if step not in keep:
            path_of(folder, step).unlink(missing_ok=True)


def average(all_weights: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Return the mean of several checkpoints' weights (section 6.1)."""
    return {
        name: torch.stack([weights[name].double() for weights in all_weights]).mean(0).to(all_weights[0][name].dtype)
        for name in all_weights[0]
    }
