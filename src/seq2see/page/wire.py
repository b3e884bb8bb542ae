"""The wire format of the page: all tensors as one block of bytes, and a manifest with the place and shape of each."""

from __future__ import annotations

import zlib
from base64 import b64encode
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

from seq2see.errors import UserError
from seq2see.inspection.glossary import entry_of
from seq2see.inspection.tables import array_of
from seq2see.inspection.trace import Trace, globbed

ALIGNED = 4  # bytes
MIXING = (".w_o", ".w_1", ".w_2")  # matrices of which the page may ask for a single column
_entry = cache(entry_of)
QUICKLY = 1  # compression level: on a short connection, compressing well takes longer than it saves


def packed(
    traced: Trace, names: Sequence[str], compact: bool = False, head: int | None = None, column: int | None = None
) -> dict[str, Any]:
    """Write the values and parameters that the globs match into one block, little-endian, in base64.

    ``compact`` writes whole attentions as bytes (255 is a share of 1) and everything else as float16, and compresses the
    block. ``head`` keeps one head of each value that has heads. ``column`` keeps one column of each matrix that mixes a
    whole vector (W^O, W₁ and W₂) and the bias of that column.
    """
    manifest: list[dict[str, Any]] = []
    data = bytearray()
    for name, whole, symbol, sentence in _wanted(traced, names):
        array, own = (whole, False) if head is None else _of_head(traced, name, whole, head)
        single = column is not None and name.rpartition(".")[0].endswith(MIXING)
        if column is not None and single:
            array = _column(name, array, column)
        numbers = _written(name, array, compact, own)
        manifest.append({
            "name": name, "shape": list(array.shape), "dtype": numbers.dtype.name, "offset": len(data),
            "symbol": symbol, "sentence": sentence, **({"head": head} if own else {}),
            **({"column": column} if single else {}),
        })  # fmt: skip
        data += numbers.tobytes()
        data += bytes(-len(data) % ALIGNED)
    if not compact:
        return {"tensors": manifest, "data": b64encode(data).decode()}
    return {"tensors": manifest, "data": b64encode(zlib.compress(data, QUICKLY)).decode(), "encoding": "deflate"}


def _wanted(traced: Trace, names: Sequence[str]) -> Iterator[tuple[str, np.ndarray, str, str]]:
    asked = globbed(names)
    for name in filter(asked, traced.names):
        entry = _entry(name)
        yield name, array_of(traced, name), entry.symbol, entry.sentence
    for name, parameter in traced.transformer.named_parameters():
        if asked(name):
            array: np.ndarray = parameter.detach().cpu().float().numpy()
            yield name, array, name.rpartition(".")[2], "A parameter, learned in training."


def _of_head(traced: Trace, name: str, array: np.ndarray, head: int) -> tuple[np.ndarray, bool]:
    """Return one head's part of an array and True, or the whole array and False if it has no heads."""
    parts = name.split(".")
    if name in traced.values:
        letters = [letter for letter in _entry(name).shape if letter != "…"]
        return (array.take(head, letters.index("H")), True) if "H" in letters else (array, False)
    if len(parts) > 1 and parts[-2] in {"w_q", "w_k", "w_v"}:
        return array.reshape(traced.transformer.config.heads, -1, *array.shape[1:])[head], True
    return array, False


def _column(name: str, array: np.ndarray, column: int) -> np.ndarray:
    """Return the weights of one output number: a row of the array, because PyTorch stores the matrix transposed."""
    if column >= len(array):
        raise UserError(f"There is no column {column} of {name}: columns are 0 to {len(array) - 1}.")
    return array[column : column + 1]


def _written(name: str, array: np.ndarray, compact: bool, own: bool) -> np.ndarray:
    if not compact or name.endswith(".ids"):
        return np.ascontiguousarray(array, dtype="<f4")
    if name.endswith(".weights") and not own:
        return (array * 255).round().astype(np.uint8)
    return np.ascontiguousarray(array, dtype="<f2")
