"""Pairs of texts: from tables, files or a Hugging Face dataset, with every bad row listed, and split without leaks."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time
from decimal import Decimal
from itertools import chain, islice
from pathlib import Path
from typing import Any, cast

import numpy as np

from seq2see.data.formats import Chosen, checked, inflected, opened, positions, read_parallel, read_table
from seq2see.errors import UserError, counted, installed, shown, suggest
from seq2see.tokenizers.symbols import joined
from seq2see.tokenizers.tokenizer import fold

HUB = "hf:"
HUB_HEAD = 20  # rows from which the columns of texts are found
BYTES_A_ROW = 200  # of both texts together, about
FORM = f"{HUB}NAME:CONFIG:SPLIT:SOURCE:TARGET, all but the name optional, such as hf:opus_books:en-fr"


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
        parts = text.removeprefix(HUB).split(":")
        if len(parts) > 5 or not parts[0] or (len(parts) > 3 and bool(parts[3]) != bool((parts[4:] or [""])[0])):
            raise UserError(f"{text!r} names no dataset: {FORM} was expected.")
        return cls(*parts)


def hub_rows(text: str) -> tuple[list[str], Iterator[tuple[int, list[str] | str]]]:
    """Open a dataset: the names of its two columns, and its rows, counted from 1, or why a row has no texts."""
    named = Named.of(text)
    rows = _loaded(text, named)
    head = list(islice(rows, HUB_HEAD))  # a text may be missing in the first row
    if not head:
        raise UserError(f"{text} has no rows: pairs were expected.")
    # A dataset for translation has one column that holds both texts by language.
    column = next((key for row in head for key, value in row.items() if isinstance(value, Mapping)), None)
    looked_at = head if column is None else [row[column] or {} for row in head]
    keys = dict.fromkeys(key for row in looked_at for key in row)
    known = [key for key in keys if any(isinstance(row.get(key), str) for row in looked_at)]
    names = _hub_columns(text, named, known, column is not None)

    def cells() -> Iterator[tuple[int, list[str] | str]]:
        for number, row in enumerate(rows, 1):
            texts = row if column is None else row[column] or {}
            if all(isinstance(texts.get(name), str) for name in names):
                yield number, [texts[name] for name in names]
            else:
                yield number, f"has no texts under {names[0]!r} and {names[1]!r}"

    return names, cells()


def hub_size(text: str) -> int:
    """Return about how many bytes of text a dataset has."""
    return len(_loaded(text, Named.of(text))) * BYTES_A_ROW


def _hub_columns(text: str, named: Named, known: list[str], by_language: bool) -> list[str]:
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
            f"as in {HUB}{named.name}:{named.config}:{named.split}:{':'.join(example)}."
        )
    return known


def _loaded(text: str, named: Named) -> Any:
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


# --- datasets of the Hub ----------------------------------------------------------------------------------------------


Pair = tuple[str, str]
MIDNIGHT = time()


@dataclass(frozen=True)
class Fault:
    """A row that cannot be used, by its line number, and why."""

    line: int
    reason: str

    def __str__(self) -> str:
        return f"line {self.line:,}: {self.reason}"


@dataclass
class Corpus:
    """The pairs of a file, the line that each is on, and the rows that were skipped."""

    name: str
    pairs: list[Pair] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    header: list[str] = field(default_factory=list)  # the names of the two columns, if they have names
    columns: int = 2
    taken: str = ""  # which columns are used, if there are more than two

    def sample(self, most: int) -> Corpus:
        """Return a copy with at most this number of pairs, sampled evenly."""
        step = -(-len(self.pairs) // most)
        return self if step <= 1 else replace(self, pairs=self.pairs[::step], lines=self.lines[::step])


def corpus_of(
    data: Any,
    columns: tuple[str, str] | None = None,
    strict: bool = False,
    or_two: bool = False,
    prepare: Callable[[str], str] = fold,
    join: Callable[[Any], Any] = joined,
) -> Corpus:
    """Collect the pairs of files, tables or lists; see ``paths_in``, ``pairs_in`` and ``tidied``.

    With ``or_two``, ``columns`` does not apply to a file of two columns.
    """
    if paths := paths_in(data):
        return read_pairs(paths, strict, prepare, columns, or_two)
    pairs = tidied(pairs_in(data, columns), prepare, join=join)
    return Corpus("the given pairs", pairs, list(range(1, len(pairs) + 1)))


def paths_in(data: Any) -> list[Path]:
    """Return the named files: one path, or a pair of paths; None if ``data`` is something else."""
    if isinstance(data, str | os.PathLike):
        if isinstance(data, str) and not data.startswith(HUB) and not Path(data.split(",")[0]).exists():
            raise UserError(f"There is no file {shown(data)}: pairs of texts were expected, or a file of pairs.")
        return paths_of(str(data))
    if isinstance(data, tuple) and len(data) == 2 and all(isinstance(part, str | os.PathLike) for part in data):
        return paths_of(*map(str, data))
    return []


def paths_of(*texts: str) -> list[Path]:
    """Return one file, or two parallel ones: ``A B``, or ``A,B`` if no file has that name."""
    paths: list[Path] = []
    for text in texts:
        whole = Path(text).exists() or text.startswith(HUB)
        paths += [Path(text)] if whole else [Path(part) for part in text.split(",")]
    if len(paths) > 2:
        raise UserError(
            f"{len(paths)} files were given: one of pairs was expected, or two parallel ones (A B, or A,B)."
        )
    return paths


def pairs_in(data: Any, columns: tuple[str, str] | None = None) -> Iterable[Pair]:
    """Return the pairs of a table: a dict, a frame of pandas or polars, a dataset, a list of dicts or of longer tuples.

    None of these libraries is imported. Anything else is returned unchanged, for ``tidied`` to check.
    """
    if isinstance(data, Mapping) and any(hasattr(part, "column_names") for part in data.values()):
        raise UserError(f"The data has the splits {', '.join(map(str, data))}: give one of them, as in data['train'].")
    names = list(data) if isinstance(data, Mapping) else getattr(data, "column_names", None)
    if names is None and hasattr(data, "columns") and hasattr(data, "__getitem__"):
        names = list(data.columns)
    if names is not None:
        if len(names) == 1 and isinstance(next(iter(data[names[0]]), None), Mapping):
            return pairs_in(list(data[names[0]]), columns)  # a dataset for translation: both texts in one column
        two = _two_of(names, columns, lambda: [str(next(iter(data[name]), "")) for name in names])
        source, target = ([[*map(as_text, data[name])] for name in part] for part in two)
        counts = [f"{len(column):,}" for column in (*source, *target)]
        if len(set(counts)) > 1:
            raise UserError(f"The columns have {' and '.join(counts)} rows: pairs were expected.")
        return zip(map(_cell, zip(*source, strict=True)), map(_cell, zip(*target, strict=True)), strict=True)
    if isinstance(data, str) or not isinstance(data, Iterable):
        return cast("Iterable[Pair]", data)
    rows = iter(data)
    first = list(islice(rows, 1))
    if first and isinstance(first[0], Mapping):
        keys = _two_of(list(first[0]), columns, lambda: list(map(str, first[0].values())))
        return (
            tuple(_cell([as_text(row.get(key)) for key in part]) for part in keys) if isinstance(row, Mapping) else row
            for row in chain(first, rows)
        )
    if first and isinstance(first[0], tuple | list) and (columns is not None or len(first[0]) > 2):
        return _by_number(chain(first, rows), first[0], columns)
    return chain(first, rows)


def as_text(value: Any) -> Any:
    """Return a number or a date of a table as text, as in a file of JSON; a text, and whatever else, stays as it is."""
    if isinstance(value, str):
        return value
    value = value.as_py() if hasattr(value, "as_py") else value.item() if hasattr(value, "item") else value
    if isinstance(value, datetime) and value.time() == MIDNIGHT:
        return value.date().isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool) and value == value:
        return str(value)
    return value


def _cell(cells: Sequence[Any]) -> Any:
    """Return the text of a row's cells: a text and its features are joined."""
    return cells[0] if len(cells) == 1 else joined(cells)


def _by_number(rows: Iterable[Any], first: Sequence[Any], columns: tuple[str, str] | None) -> Iterator[Pair]:
    """Return the pairs of rows without names: ``columns`` has the numbers of their columns."""
    width = len(first)
    if columns is None:
        example = tuple((inflected([], [list(map(str, first))]) or "1+2,3").split(","))
        raise UserError(
            f"Pair 1 is {first!r:.60}: two texts were expected, (source, target). For rows of more texts number the "
            f"columns from 1: columns={example!r} adds features to the source, columns=('1', '2') takes two."
        )
    asked = [str(one) for one in checked(columns)]
    if not "".join(asked).replace("+", "").replace(" ", "").isdecimal():
        raise UserError(
            f"`columns` is {columns!r}, but the data has no named columns: give numbers from 1 to {width}, such as "
            "columns=('1', '2'), or leave it out."
        )
    sides = [positions(one, [], width, "the first row") for one in asked]

    def pairs() -> Iterator[Pair]:
        for number, row in enumerate(rows, 1):
            if not isinstance(row, tuple | list) or len(row) != width:
                raise UserError(f"Pair {number:,} is {row!r:.60}: {width} texts were expected, as in the first row.")
            source, target = (_cell([row[place] for place in side]) for side in sides)
            yield source, target

    return pairs()


def _two_of(
    names: Sequence[Any], columns: tuple[str, str] | None, first: Callable[[], Sequence[str]]
) -> tuple[Sequence[Any], Sequence[Any]]:
    """Choose the columns of the source and of the target: the requested ones, else those with such names, else the
    only two. ``first`` returns the first row.
    """
    if columns is not None:
        texts = list(map(str, names))
        source, target = (positions(str(one), texts, len(texts), "the data") for one in checked(columns))
        return [names[place] for place in source], [names[place] for place in target]
    if "source" in names and "target" in names:
        return ["source"], ["target"]
    if len(names) != 2:
        example = tuple(map(str, names[:2])) if len(names) > 2 else ("source", "target")
        if named := inflected(list(map(str, names)), [first()]):
            example = tuple(named.split(","))
        raise UserError(
            f"The data has {counted(len(names), 'column')} ({', '.join(map(str, names)) or 'none'}), and two were "
            f"expected: say which they are, as in columns={example!r}."
        )
    return [names[0]], [names[1]]


def tidied(
    pairs: Iterable[Pair], prepare: Callable[[str], str] = fold, first: int = 1, join: Callable[[Any], Any] = joined
) -> list[Pair]:
    """Prepare pairs (source, target); anything else is an error. Its message counts the pairs from ``first``.

    ``join`` makes one text of a source that is a word and its features.
    """
    if isinstance(pairs, str) or not isinstance(pairs, Iterable):
        raise UserError(f"Pairs of texts were expected, but {shown(repr(pairs))} was given.")
    good = []
    for number, pair in enumerate(pairs, first):
        if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
            raise UserError(f"Pair {number:,} is {pair!r:.60}: two texts were expected, (source, target).")
        given = join(pair[0])
        for text in (given, pair[1]):
            if not isinstance(text, str):
                raise UserError(
                    f"Pair {number:,} holds {text!r:.60} of type {type(text).__name__}: a text was expected."
                )
            try:
                text.encode()
            except UnicodeEncodeError:
                raise UserError(f"Pair {number:,} holds half a character (a lone surrogate): {text!r:.60}.") from None
        source, target = prepare(given), prepare(pair[1])
        if not source.strip():
            raise UserError(f"Pair {number:,} has an empty source, {pair[0]!r:.60}: a text was expected.")
        good.append((source, target))
    return good


def read_pairs(
    paths: Sequence[Path],
    strict: bool = False,
    prepare: Callable[[str], str] = fold,
    columns: tuple[str, str] | None = None,
    or_two: bool = False,
) -> Corpus:
    """Read pairs from one file of any format, from two parallel files, or from a Hugging Face dataset.

    Files in gzip or xz are unpacked. A file with more than two columns needs ``columns``, by name or number. A bad row is
    skipped and listed in ``faults``; with ``strict`` it is an error. Both texts pass through ``prepare``.
    """
    corpus = Corpus(name_of(paths))
    for line, pair in stream(paths, corpus, prepare, columns, or_two):
        if isinstance(pair, tuple):
            corpus.pairs.append(pair)
            corpus.lines.append(line)
        elif strict:
            raise UserError(
                f"{corpus.name}, line {line:,}: {pair}. Correct it, or leave `strict` out to skip such rows."
            )
        else:
            corpus.faults.append(Fault(line, pair))
    if not corpus.pairs:
        why = f": {corpus.faults[0]}" if corpus.faults else ", only a header" if corpus.header else ""
        raise UserError(
            f"{corpus.name} has no pair that can be used ({counted(len(corpus.faults), 'bad row')}{why}): rows of a "
            "source and a target were expected, with a tab between (.tsv), a comma (.csv), as JSON (.jsonl, .json), as "
            ".parquet or .xlsx, or two parallel files."
        )
    return corpus


def name_of(paths: Sequence[Path]) -> str:
    """Name a corpus by its files, or by the dataset that it is."""
    return ", ".join(str(path) if is_hub(path) else path.name for path in paths)


def is_hub(path: Path) -> bool:
    """Whether this names a Hugging Face dataset, ``hf:NAME``, and not a file."""
    return str(path).startswith(HUB)


def stream(
    paths: Sequence[Path],
    corpus: Corpus,
    prepare: Callable[[str], str] = fold,
    columns: tuple[str, str] | None = None,
    or_two: bool = False,
) -> Iterator[tuple[int, Pair | str]]:
    """Yield each line number with its pair or the reason why it has none; store header and columns in ``corpus``."""
    if len(paths) not in (1, 2):
        raise UserError(f"{len(paths)} files were given: one of pairs was expected, or two parallel ones.")
    hub_named = any(map(is_hub, paths))
    if columns is not None and not or_two and (hub_named or len(paths) == 2):
        how = "are named as in hf:NAME:CONFIG:SPLIT:SOURCE:TARGET" if hub_named else "are one in each file"
        raise UserError(f"`columns` is {columns!r}, but the columns of {corpus.name} {how}: leave it out.")
    if hub_named:
        if len(paths) == 2:
            raise UserError(f"{paths[0]} and {paths[1]} were given: a Hugging Face dataset holds both sides.")
        corpus.header, rows = hub_rows(str(paths[0]))
        chosen = Chosen.first_two()
    elif len(paths) == 2:
        rows, chosen = read_parallel(*paths), Chosen.first_two()
    else:
        rows, chosen = opened(read_table(paths[0]), corpus.name, columns, or_two)
        corpus.columns, corpus.header, corpus.taken = chosen.width, chosen.names, chosen.told
    for line, row in rows:
        yield line, _pair(row, chosen, prepare)


def _pair(row: list[str] | str, chosen: Chosen, prepare: Callable[[str], str]) -> Pair | str:
    """Return the two texts of a row, or what is wrong with it."""
    if isinstance(row, str):
        return row
    if len(row) != chosen.width:
        if not any(cell.strip() for cell in row):
            return "is empty"
        if len(row) == 1:
            return f"has one side only ({shown(row[0])})"
        return f"has {len(row)} columns where most rows have {chosen.width}"
    source, target = map(prepare, chosen.texts(row))
    if not source and not target:
        return "is empty"
    if not source or not target:
        return f"has an empty {'target' if source else 'source'} ({shown(source or target)} is the other side)"
    return source, target


# --- splitting -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Splits:
    """The pairs for training, for validation while training, and for the final test."""

    train: list[Pair]
    validation: list[Pair]
    test: list[Pair]


def hold_out(
    pairs: Sequence[Pair], share: float = 0.1, most: int = 1000, seed: int = 1
) -> tuple[list[Pair], list[Pair]]:
    """Split pairs into (training, held out) by their source, so that no held-out source occurs in training."""
    sources = list(dict.fromkeys(source for source, _ in pairs))
    count = min(most, max(1, int(len(sources) * share)))
    chosen = np.random.default_rng(seed).permutation(len(sources))[:count]
    held = {sources[index] for index in chosen.tolist()}
    return [pair for pair in pairs if pair[0] not in held], [pair for pair in pairs if pair[0] in held]


def split(
    pairs: Sequence[Pair],
    validation: Sequence[Pair] | None = None,
    test: Sequence[Pair] | None = None,
    seed: int = 1,
    unseen: bool = False,
) -> Splits:
    """Split by source text into training, validation (5 %, at most 1,000 sources) and test (10 %, at most 1,000).

    Given parts are used as they are: sources that occur in two parts stay in both, unless ``unseen`` removes
    them from the training. A part that is split off here shares no source with the training.
    """
    train = list(pairs)
    if unseen:
        train = without(without(train, test or ()), validation or ())
    if test is None:
        train, test = hold_out(train, 0.1, seed=seed)
    if validation is None:
        train, validation = hold_out(train, 0.05, seed=seed)
    if not train:
        raise UserError(
            f"Nothing is left to learn from: of {counted(len(pairs), 'pair')} some are set aside for validation and "
            "test. Give pairs with at least 3 different sources."
        )
    return Splits(train, list(validation), list(test))


def seen_in(sources: Collection[str], held: Sequence[Pair]) -> int:
    """Count the pairs of ``held`` whose source is among ``sources``."""
    return sum(source in sources for source, _ in held)


def without(pairs: Sequence[Pair], held: Iterable[Pair]) -> list[Pair]:
    """Return the pairs whose source is not among those of ``held``."""
    sources = {source for source, _ in held}
    return [pair for pair in pairs if pair[0] not in sources]
