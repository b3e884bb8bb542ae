"""Reads a model.bin, CTranslate2's file of weights. Every length in it is checked."""

from __future__ import annotations

import struct
from math import prod
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seq2see.errors import FolderError, shown
from seq2see.files import plain_file
from seq2see.interchange.imported import LARGEST_WEIGHTS, foreign

VERSION = 6  # the newest that is read
FLOAT32, INT8, INT16 = 0, 1, 2
SIZES = {FLOAT32: 4, INT8: 1, INT16: 2, 3: 4, 4: 2, 5: 2}  # bytes; then int32, float16 and bfloat16
TYPES = {0: np.float32, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16, 5: None}  # 5 is bfloat16


class Array(NamedTuple):
    """An array of a model.bin: its type, its shape, and the byte at which it begins."""

    kind: int
    shape: tuple[int, ...]
    place: int


class Contents(NamedTuple):
    """The table of contents of a model.bin: its arrays, its aliases, and the end of the last array."""

    version: int
    specification: str
    revision: int
    arrays: dict[str, Array]
    aliases: dict[str, str]
    end: int


def contents(path: Path, name: str) -> Contents:
    """Read the table of contents of a model.bin; every length is checked. Messages call the file ``name``."""
    plain_file(path)
    with path.open("rb") as file:
        try:
            return _contents(file, path.stat().st_size)
        except (UnicodeDecodeError, FolderError) as error:
            raise FolderError(f"{name} is not a model of CTranslate2 ({error}): copy or download it again.") from None


def _contents(file: IO[bytes], size: int) -> Contents:
    def taken(length: int) -> bytes:
        data = file.read(length)
        if len(data) != length:
            raise FolderError("it ends too early")
        return data

    def take(form: str) -> tuple[int, ...]:
        return struct.unpack(f"<{form}", taken(struct.calcsize(f"<{form}")))

    def text() -> str:
        return taken(take("H")[0]).decode().removesuffix("\0")

    (version,) = take("I")
    if not 2 <= version <= VERSION:
        raise FolderError(f"it has version {version}, but 2 to {VERSION} are supported")
    specification, (revision, count) = text(), take("II")
    arrays: dict[str, Array] = {}
    for _ in range(count):
        name = text()
        shape = take(f"{take('B')[0]}I")
        kind, length = take("BI")
        if version < 4:  # the size of a number, and how many there are
            kind, length = {4: FLOAT32, 1: INT8, 2: INT16}.get(kind, -1), kind * length
        known = kind in SIZES and length == prod(shape) * SIZES[kind] and file.tell() + length <= size
        if not known or name in arrays:
            raise FolderError(f"{shown(name)} has a size that does not match its shape, or occurs twice")
        arrays[name] = Array(kind, shape, file.tell())
        file.seek(length, 1)
    aliases: dict[str, str] = {}
    for _ in range(take("I")[0] if version >= 3 else 0):
        alias = text()
        aliases[alias] = text()
    return Contents(version, specification, revision, arrays, aliases, file.tell())


class Variables:
    """The named arrays of a model.bin, mapped into memory."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise FolderError(f"{path.parent.name} has no {path.name}: the folder is incomplete.")
        real = foreign(path, LARGEST_WEIGHTS)
        if not real.stat().st_size:
            raise FolderError(f"{path.name} is empty: copy or download it again.")
        _, self.spec, _, self.places, self.aliases, _ = contents(real, path.name)
        self.data = np.memmap(real, dtype=np.uint8, mode="r")

    def __contains__(self, name: str) -> bool:
        return name in self.places or name in self.aliases

    def array(self, name: str) -> Tensor:
        """Return an array in its stored type."""
        name = self.aliases.get(name, name)
        if name not in self.places:
            raise FolderError(f"The model has no {name!r}: a Transformer with an encoder and a decoder was expected.")
        kind, shape, place = self.places[name]
        raw = self.data[place : place + SIZES[kind] * prod(shape)]
        dtype = TYPES[kind]
        if dtype is None:
            return torch.from_numpy(raw.view(np.int16).copy()).view(torch.bfloat16).reshape(shape)
        return torch.from_numpy(raw.copy().view(dtype)).reshape(shape)

    def numbers(self, name: str) -> Tensor:
        """Return a matrix or a vector in floating point; quantized numbers are converted back."""
        name = self.aliases.get(name, name)
        x = self.array(name)
        if x.dtype == torch.int8:
            return x.float() / self.array(f"{name}_scale").float().reshape(-1, *[1] * (x.ndim - 1))
        if x.dtype == torch.int16:
            return x.float() / self.array(f"{name}_scale").float()
        return x

    def setting(self, name: str, default: int) -> int:
        """Return a setting, which the file stores as an array of one number, or else the default."""
        return int(self.array(name).reshape(-1)[0]) if name in self else default
