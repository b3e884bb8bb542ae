"""Reads tensors by name from safetensors and PyTorch files. They are memory-mapped, and no pickled code runs."""

from __future__ import annotations

import argparse
import pickle
import zipfile
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy._core import multiarray
from safetensors import SafetensorError, safe_open
from torch import Tensor

from seq2see.errors import FolderError, shown
from seq2see.interchange.imported import LARGEST_WEIGHTS, Renamed, foreign, read_json

#: The types in fairseq's checkpoints beside tensors: settings, and numbers of NumPy. None of them runs code.
PLAIN: list[Any] = [
    argparse.Namespace,
    (multiarray._reconstruct, "numpy.core.multiarray._reconstruct"),
    (multiarray.scalar, "numpy.core.multiarray.scalar"),
    np.ndarray,
    np.dtype,
    *(type(np.dtype(kind)) for kind in ("f2", "f4", "f8", "i1", "i4", "i8", "u1", "u4", "u8", "?")),
]


def from_safetensors(paths: Iterable[Path]) -> Renamed:
    """Return the tensors of one or several safetensors files, mapped into memory."""
    readers: dict[str, Callable[[], Tensor]] = {}
    for path in paths:
        try:
            file: Any = safe_open(foreign(path, LARGEST_WEIGHTS), framework="pt")
            readers |= {name: partial(file.get_tensor, name) for name in file.keys()}  # noqa: SIM118 (it is no dict)
        except (SafetensorError, OSError) as error:
            raise FolderError(
                f"{path.name} cannot be read as safetensors ({error}): copy or download it again."
            ) from None
    return Renamed(readers)


def from_pytorch(path: Path) -> Any:
    """Read a file that ``torch.save`` wrote, without running what is pickled in it."""
    try:
        real = foreign(path, LARGEST_WEIGHTS)
        mapped = zipfile.is_zipfile(real)  # the older format cannot be mapped
        with torch.serialization.safe_globals(PLAIN):
            return torch.load(real, map_location="cpu", weights_only=True, mmap=mapped)
    except pickle.UnpicklingError as error:
        what = str(error).split("GLOBAL ")[-1].split(" ")[0] if "GLOBAL " in str(error) else "unknown objects"
        raise FolderError(
            f"{path.name} contains more than tensors and settings ({shown(what, 100)}). Reading that would run code, so "
            "it is refused: save only the weights, preferably as safetensors."
        ) from None
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, AttributeError) as error:
        reason = shown(str(error), 200) if str(error) else type(error).__name__
        raise FolderError(f"{path.name} cannot be read ({reason}): copy or download it again.") from None


def of_folder(path: Path) -> Mapping[str, Tensor]:
    """Return the weights of a Hugging Face folder: safetensors if there are some, else PyTorch's files."""
    for name in ("model.safetensors", "pytorch_model.bin"):
        if (path / name).is_file():
            return _files([path / name])
        index = path / f"{name}.index.json"
        if index.is_file():
            homes = read_json(index).get("weight_map")
            if not isinstance(homes, dict) or not all(isinstance(home, str) and home for home in homes.values()):
                raise FolderError(f"{index.name} has no weight_map: download it again.")
            files = [path / Path(home).name for home in sorted(set(homes.values()))]
            for file in files:
                if not file.is_file():
                    raise FolderError(f"{path.name} has no {shown(file.name)}: the folder is incomplete.")
            return _files(files)
    raise FolderError(f"{path.name} has no weights: neither model.safetensors nor pytorch_model.bin was found.")


def _files(paths: list[Path]) -> Mapping[str, Tensor]:
    if paths[0].suffix == ".safetensors":
        return from_safetensors(paths)
    found: dict[str, Tensor] = {}
    for path in paths:
        read = from_pytorch(path)
        if not isinstance(read, dict) or not all(isinstance(value, Tensor) for value in read.values()):
            raise FolderError(
                f"{path.name} does not contain named tensors only: save only the weights, preferably as safetensors."
            )
        found |= read
    return found
