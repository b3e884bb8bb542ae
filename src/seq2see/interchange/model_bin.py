"""Reads the table of contents of a model.bin, CTranslate2's file of weights."""

from __future__ import annotations

import struct
from math import prod
from pathlib import Path
from typing import IO, NamedTuple

from seq2see.errors import FolderError, shown
from seq2see.files import plain_file

VERSION = 6  # the newest that is read
FLOAT32, INT8, INT16 = 0, 1, 2
SIZES = {FLOAT32: 4, INT8: 1, INT16: 2, 3: 4, 4: 2, 5: 2}  # bytes; then int32, float16 and bfloat16


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
            raise FolderError(
                f"{name} is not a model of CTranslate2 ({error}): copy or download it again."
            ) from None


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
