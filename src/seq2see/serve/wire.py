"""Numbers on their way to the page: bytes end to end behind a manifest that says what and where each is."""

from __future__ import annotations

import zlib
from base64 import b64encode
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

import numpy as np

from seq2see.errors import UserError
from seq2see.inspection.glossary import entry_of
from seq2see.inspection.tables import array_of
from seq2see.inspection.trace import Trace

#: Parameters up to which a model sends everything at once, as float32. A larger one sends attention as bytes, and
#: the rest when it is looked at.
SMALL = 100_000
ALIGNED = 4  # bytes
MIXING = (".w_o", ".w_1", ".w_2")  # the matrices of which a column may be asked for
_entry = cache(entry_of)
QUICKLY = 1  # the level of compression: the way is short


def packed(
    traced: Trace,
    names: Sequence[str],
    compact: bool = False,
    head: int | None = None,
    column: int | None = None,
) -> dict[str, Any]:
    """Lay the values and parameters that the globs match end to end, little-endian, in base64.

    ``compact`` writes whole attentions as bytes (255 is a share of 1), all else as float16, and compresses the lot.
    ``head`` leaves out the other heads of what is by head; ``column`` leaves out the other columns of the matrices that
    mix a whole vector, W^O, W₁ and W₂, with their biases.
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
    return {
        "tensors": manifest,
        "data": b64encode(zlib.compress(data, QUICKLY)).decode(),
        "encoding": "deflate",
    }


def _wanted(traced: Trace, names: Sequence[str]) -> Iterator[tuple[str, np.ndarray, str, str]]:
    def asked(name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in names)

    for name in filter(asked, traced.names):
        entry = _entry(name)
        yield name, array_of(traced, name), entry.symbol, entry.sentence
    for name, parameter in traced.transformer.named_parameters():
        if asked(name):
            array: np.ndarray = parameter.detach().cpu().float().numpy()
            yield name, array, name.rpartition(".")[2], "A parameter, learned in training."


def _of_head(traced: Trace, name: str, array: np.ndarray, head: int) -> tuple[np.ndarray, bool]:
    """Return one head's part of an array, and whether it has such parts."""
    parts = name.split(".")
    if name in traced.values:
        letters = [letter for letter in _entry(name).shape if letter != "…"]
        return (array.take(head, letters.index("H")), True) if "H" in letters else (array, False)
    if len(parts) > 1 and parts[-2] in {"w_q", "w_k", "w_v"}:
        return array.reshape(traced.transformer.config.heads, -1, *array.shape[1:])[head], True
    return array, False


def _column(name: str, array: np.ndarray, column: int) -> np.ndarray:
    """Return what makes one number of a product: a row here, since PyTorch keeps the matrix transposed."""
    if column >= len(array):
        raise UserError(f"There is no column {column} of {name}: columns are 0 to {len(array) - 1}.")
    return array[column : column + 1]


def _written(name: str, array: np.ndarray, compact: bool, own: bool) -> np.ndarray:
    if not compact or name.endswith(".ids"):
        return np.ascontiguousarray(array, dtype="<f4")
    if name.endswith(".weights") and not own:
        return (array * 255).round().astype(np.uint8)
    return np.ascontiguousarray(array, dtype="<f2")
