"""Pairs of a Hugging Face dataset, by its name or folder; the ``datasets`` library is imported when needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from seq2see.errors import UserError, installed, suggest

PREFIX = "hf:"
HEAD = 20  # rows from which the columns of texts are found
BYTES_A_ROW = 200  # of both texts together, about
FORM = f"{PREFIX}NAME:CONFIG:SPLIT:SOURCE:TARGET, all but the name optional, such as hf:opus_books:en-fr"


@dataclass(frozen=True)
class Named:
    """A dataset as it is named on the command line: ``hf:opus_books:en-fr`` or ``hf:opus_books:en-fr:train:fr:en``."""

    name: str
    config: str = ""
    split: str = ""
    source: str = ""
    target: str = ""

    @classmethod
    def of(cls, text: str) -> Named:
        """Read ``hf:NAME:CONFIG:SPLIT:SOURCE:TARGET``."""
        parts = text.removeprefix(PREFIX).split(":")
        if len(parts) > 5 or not parts[0] or (len(parts) > 3 and bool(parts[3]) != bool((parts[4:] or [""])[0])):
            raise UserError(f"{text!r} names no dataset: {FORM} was expected.")
        return cls(*parts)


def rows_of(text: str) -> tuple[list[str], Iterator[tuple[int, list[str] | str]]]:
    """Open a dataset: the names of its two columns, and its rows, counted from 1, or why a row has no texts."""
    named = Named.of(text)
    rows = _opened(text, named)
    head = list(islice(rows, HEAD))  # a text may be missing in the first row
    if not head:
        raise UserError(f"{text} has no rows: pairs were expected.")
    # A dataset for translation has one column that holds both texts by language.
    column = next((key for row in head for key, value in row.items() if isinstance(value, Mapping)), None)
    looked_at = head if column is None else [row[column] or {} for row in head]
    keys = dict.fromkeys(key for row in looked_at for key in row)
    known = [key for key in keys if any(isinstance(row.get(key), str) for row in looked_at)]
    names = _columns(text, named, known, column is not None)

    def cells() -> Iterator[tuple[int, list[str] | str]]:
        for number, row in enumerate(rows, 1):
            texts = row if column is None else row[column] or {}
            if all(isinstance(texts.get(name), str) for name in names):
                yield number, [texts[name] for name in names]
            else:
                yield number, f"has no texts under {names[0]!r} and {names[1]!r}"

    return names, cells()


def size_of(text: str) -> int:
    """Return about how many bytes of text a dataset has."""
    return len(_opened(text, Named.of(text))) * BYTES_A_ROW


def _columns(text: str, named: Named, known: list[str], by_language: bool) -> list[str]:
    """Choose two columns: the requested ones, else source and target, else the only two."""
    if named.source:
        for name in (named.source, named.target):
            if name not in known:
                raise UserError(f"{text} has no texts {name!r}. {suggest(name, known)}")
        return [named.source, named.target]
    if {"source", "target"} <= set(known):
        return ["source", "target"]
    if by_language:  # the config of a dataset for translation gives the direction: en-fr
        known = sorted(known, key=lambda code: named.config.find(code) if code in named.config else len(named.config))
    if len(known) != 2:
        example = [*known, "SOURCE", "TARGET"][:2]
        raise UserError(
            f"{text} has {len(known)} columns of text ({', '.join(known) or 'none'}), and two were expected: name them, "
            f"as in {PREFIX}{named.name}:{named.config}:{named.split}:{':'.join(example)}."
        )
    return known


def _opened(text: str, named: Named) -> Any:
    """Load one split of a dataset; an error of the library becomes a UserError that quotes it."""
    installed("datasets", f"{text} is a Hugging Face dataset, which")
    import datasets

    folder = Path(named.name)
    try:
        if (folder / "dataset_dict.json").is_file() or (folder / "dataset_info.json").is_file():
            found = datasets.load_from_disk(named.name)
        else:
            found = datasets.load_dataset(named.name, named.config or None)
    except Exception as error:  # many kinds: no such dataset, no network, no such config
        said = " ".join(str(error).split())
        raise UserError(
            f"{text} could not be loaded ({said[:300]}{'…' * (len(said) > 300)}). {FORM} was expected, and a network "
            "connection if it is not on this machine yet."
        ) from None
    if not hasattr(found, "keys"):  # a single split
        return found
    split = named.split or ("train" if "train" in found else next(iter(found)))
    if split not in found:
        raise UserError(f"{text} has no split {split!r}. {suggest(split, found)}")
    return found[split]
