"""Pairs of texts: taken from tables or read from files, with every bad row named, and split so that nothing leaks."""

from __future__ import annotations

import csv
import gzip
import json
import lzma
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from seq2see.data import hub
from seq2see.errors import UserError, counted, shown, suggest
from seq2see.text.tokenizer import fold

Pair = tuple[str, str]

LONGEST_LINE = 20_000  # characters; a sentence has some 100, and one such line would fill a whole batch
UNPACKED = 1_000_000  # bytes that any packed file may have
UNPACKED_TIMES = 100  # how many times its size a packed file may have beyond that
HEAD = 1000  # rows that tell how many columns a file has

#: Words that head a column. A first row is a header only if both its cells are such words.
HEADERS = {
    "source", "target", "src", "tgt", "trg", "input", "output", "from", "to", "question", "answer", "x", "y",
    "en", "de", "fr", "es", "it", "nl", "pt", "ru", "eng", "deu", "ger", "fra", "fre", "spa", "ita", "nld", "por", "rus",
    "english", "german", "french", "spanish", "italian", "dutch", "portuguese", "russian", "chinese", "japanese",
}  # fmt: skip


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
    header: list[str] = field(default_factory=list)
    columns: int = 2

    def sample(self, most: int) -> Corpus:
        """Return the same with at most so many pairs, taken from everywhere."""
        step = -(-len(self.pairs) // most)
        return self if step <= 1 else replace(self, pairs=self.pairs[::step], lines=self.lines[::step])


def corpus_of(data: Any, columns: tuple[str, str] | None = None, strict: bool = False) -> Corpus:
    """Gather pairs from whatever a program holds them in: files, tables, or pairs; see ``paths_in`` and ``pairs_in``."""
    if paths := paths_in(data):
        if columns is not None:
            raise UserError(
                f"`columns` is {columns!r}, but of a file the first two columns are read: leave it out."
            )
        return read_pairs(paths, strict)
    pairs = tidied(pairs_in(data, columns))
    return Corpus("the given pairs", pairs, list(range(1, len(pairs) + 1)))


def paths_in(data: Any) -> list[Path]:
    """Return the files that are named: one path, or a pair of paths; nothing if ``data`` is something else."""
    if isinstance(data, str | os.PathLike):
        if (
            isinstance(data, str)
            and not data.startswith(hub.PREFIX)
            and not Path(data.split(",")[0]).exists()
        ):
            raise UserError(
                f"There is no file {shown(data)}: pairs of texts were expected, or a file of pairs."
            )
        return paths_of(str(data))
    if (
        isinstance(data, tuple)
        and len(data) == 2
        and all(isinstance(part, str | os.PathLike) for part in data)
    ):
        return paths_of(*map(str, data))
    return []


def paths_of(*texts: str) -> list[Path]:
    """Turn what was given into one file, or two parallel ones: ``A B``, or ``A,B`` where no file has that name."""
    paths: list[Path] = []
    for text in texts:
        whole = Path(text).exists() or text.startswith(hub.PREFIX)
        paths += [Path(text)] if whole else [Path(part) for part in text.split(",")]
    if len(paths) > 2:
        raise UserError(
            f"{len(paths)} files were given: one of pairs was expected, or two parallel ones (A B, or A,B)."
        )
    return paths


def pairs_in(data: Any, columns: tuple[str, str] | None = None) -> Iterable[Pair]:
    """Return the pairs of a table with named columns: a dict, a frame of pandas or polars, a dataset, a list of dicts.

    None of these libraries is imported. Anything else is returned as it is; ``tidied`` says what is wrong with it.
    """
    if isinstance(data, Mapping) and any(hasattr(part, "column_names") for part in data.values()):
        raise UserError(
            f"The data has the splits {', '.join(map(str, data))}: give one of them, as in data['train']."
        )
    names = list(data) if isinstance(data, Mapping) else getattr(data, "column_names", None)
    if names is None and hasattr(data, "columns") and hasattr(data, "__getitem__"):
        names = list(data.columns)
    if names is not None:
        if len(names) == 1 and isinstance(next(iter(data[names[0]]), None), Mapping):
            return pairs_in(
                list(data[names[0]]), columns
            )  # a dataset for translation: both texts in one column
        source, target = (list(data[name]) for name in _two_of(names, columns))
        if len(source) != len(target):
            raise UserError(
                f"The columns have {len(source):,} and {len(target):,} rows: pairs were expected."
            )
        return zip(source, target, strict=True)
    if isinstance(data, str) or not isinstance(data, Iterable):
        return cast("Iterable[Pair]", data)
    rows = iter(data)
    first = list(islice(rows, 1))
    if not first or not isinstance(first[0], Mapping):
        if columns is not None:
            raise UserError(f"`columns` is {columns!r}, but the data has no named columns: leave it out.")
        return chain(first, rows)
    keys = _two_of(list(first[0]), columns)
    return (
        tuple(row.get(key) for key in keys) if isinstance(row, Mapping) else row  # type: ignore[misc]
        for row in chain(first, rows)
    )


def _two_of(names: Sequence[Any], columns: tuple[str, str] | None) -> Sequence[Any]:
    """Choose two columns: those that are asked for, else source and target, else the only two."""
    if columns is not None:
        if isinstance(columns, str) or len(columns) != 2:
            raise UserError(
                f"`columns` is {columns!r}: two names were expected, of the source and of the target."
            )
        for name in columns:
            if name not in names:
                raise UserError(
                    f"`columns` names {name!r}, which is not there. {suggest(str(name), map(str, names))}"
                )
        return columns
    if "source" in names and "target" in names:
        return "source", "target"
    if len(names) != 2:
        example = tuple(map(str, names[:2])) if len(names) > 2 else ("source", "target")
        raise UserError(
            f"The data has {counted(len(names), 'column')} ({', '.join(map(str, names)) or 'none'}), and two were "
            f"expected: say which they are, as in columns={example!r}."
        )
    return names


def tidied(pairs: Iterable[Pair], prepare: Callable[[str], str] = fold, first: int = 1) -> list[Pair]:
    """Prepare the pairs (source, target) of a program; anything that is no pair of texts is an error.

    Its message counts the pairs from ``first`` on.
    """
    if isinstance(pairs, str) or not isinstance(pairs, Iterable):
        raise UserError(f"Pairs of texts were expected, but {shown(repr(pairs))} was given.")
    good = []
    for number, pair in enumerate(pairs, first):
        if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
            raise UserError(f"Pair {number:,} is {pair!r:.60}: two texts were expected, (source, target).")
        for text in pair:
            if not isinstance(text, str):
                raise UserError(
                    f"Pair {number:,} holds {text!r:.60} of type {type(text).__name__}: a text was expected."
                )
            try:
                text.encode()
            except UnicodeEncodeError:
                raise UserError(
                    f"Pair {number:,} holds half a character (a lone surrogate): {text!r:.60}."
                ) from None
        source, target = prepare(pair[0]), prepare(pair[1])
        if not source.strip():
            raise UserError(f"Pair {number:,} has an empty source, {pair[0]!r:.60}: a text was expected.")
        good.append((source, target))
    return good


def read_pairs(paths: Sequence[Path], strict: bool = False, prepare: Callable[[str], str] = fold) -> Corpus:
    """Read pairs from a TSV, CSV or JSON-lines file, from two parallel files, or from a Hugging Face dataset.

    Files in gzip or xz are unpacked. Columns beyond the second are ignored if all rows have them, as in Tatoeba's
    exports. A bad row is skipped and listed in ``faults``; with ``strict`` it is an error. Both texts pass through
    ``prepare``.
    """
    corpus = Corpus(name_of(paths))
    for line, pair in stream(paths, corpus, prepare):
        if isinstance(pair, tuple):
            corpus.pairs.append(pair)
            corpus.lines.append(line)
        elif strict:
            raise UserError(f"{corpus.name}, line {line:,}: {pair}. Mend it, or let such rows be skipped.")
        else:
            corpus.faults.append(Fault(line, pair))
    if not corpus.pairs:
        why = f": {corpus.faults[0]}" if corpus.faults else ", only a header" if corpus.header else ""
        raise UserError(
            f"{corpus.name} has no pair that can be used ({counted(len(corpus.faults), 'bad row')}{why}): rows of a "
            "source and a target were expected, with a tab between (.tsv), a comma (.csv), as JSON lines (.jsonl), or "
            "two parallel files."
        )
    return corpus


def name_of(paths: Sequence[Path]) -> str:
    """Name a corpus by its files, or by the dataset that it is."""
    return ", ".join(str(path) if is_hub(path) else path.name for path in paths)


def is_hub(path: Path) -> bool:
    """Whether this names a Hugging Face dataset, ``hf:NAME``, and not a file."""
    return str(path).startswith(hub.PREFIX)


def stream(
    paths: Sequence[Path], corpus: Corpus, prepare: Callable[[str], str] = fold
) -> Iterator[tuple[int, Pair | str]]:
    """Yield each line number with its pair, or with the reason why it has none; note header and columns in ``corpus``."""
    if len(paths) not in (1, 2):
        raise UserError(f"{len(paths)} files were given: one of pairs was expected, or two parallel ones.")
    if any(map(is_hub, paths)):
        if len(paths) == 2:
            raise UserError(f"{paths[0]} and {paths[1]} were given: a Hugging Face dataset holds both sides.")
        corpus.header, rows = hub.rows_of(str(paths[0]))
    else:
        rows = _parallel(paths[0], paths[1]) if len(paths) == 2 else _of_kind(paths[0])
        rows = _with_columns(rows, corpus)
    may_be_header = len(paths) == 1 and not corpus.header
    for line, row in rows:
        if isinstance(row, list) and may_be_header:
            may_be_header = False
            if _is_header(row):
                corpus.header = row
                continue
        yield line, _pair(row, corpus.columns, prepare)


Row = tuple[int, list[str] | str]  # the line number, and either the cells or why there are none


def _pair(row: list[str] | str, columns: int, prepare: Callable[[str], str]) -> Pair | str:
    """Return the two texts of a row, or what is wrong with it."""
    if isinstance(row, str):
        return row
    if len(row) != columns:
        if not any(cell.strip() for cell in row):
            return "is empty"
        if len(row) == 1:
            return f"has one side only ({shown(row[0])})"
        return f"has {len(row)} columns where most rows have {columns}"
    source, target = prepare(row[0]), prepare(row[1])
    if not source and not target:
        return "is empty"
    if not source or not target:
        return (
            f"has an empty {'target' if source else 'source'} ({shown(source or target)} is the other side)"
        )
    return source, target


def _is_header(row: list[str]) -> bool:
    first, second = (cell.strip().lower() for cell in row[:2]) if len(row) > 1 else ("", "")
    return first in HEADERS and second in HEADERS and first != second


def _with_columns(rows: Iterator[Row], corpus: Corpus) -> Iterator[Row]:
    """Find out how many columns the file has: as many as most of its first rows."""
    head = list(islice(rows, HEAD))
    counts = Counter(len(row) for _, row in head if isinstance(row, list) and len(row) > 1)
    corpus.columns = counts.most_common(1)[0][0] if counts else 2
    return chain(head, rows)


# --- the formats ---------------------------------------------------------------------------------------------------


def _of_kind(path: Path) -> Iterator[Row]:
    """Read the rows of one file, in the format that its name ends with; any other is read as tab-separated."""
    kind = Path(path.stem).suffix.lower() if path.suffix.lower() in (".gz", ".xz") else path.suffix.lower()
    lines = _lines(path)
    if kind == ".csv":
        return _csv(lines)
    if kind in (".jsonl", ".ndjson", ".json"):
        return _json(lines)
    return ((number, _problem(line) or str(line).split("\t")) for number, line in lines)


def _problem(line: str | bytes) -> str:
    """Say why a line is no text; ``_lines`` yields such a line as bytes."""
    if isinstance(line, str):
        return ""
    if len(line) > LONGEST_LINE:
        return f"has more than {LONGEST_LINE:,} characters"
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"is not UTF-8 text (byte {error.start + 1} is 0x{line[error.start]:02X})"
    raise AssertionError("a good line is yielded as text")


def _csv(lines: Iterator[tuple[int, str | bytes]]) -> Iterator[Row]:
    """Read comma-separated rows, or semicolons where the first line has no comma; a quoted cell may hold line breaks."""
    bad: list[Row] = []
    number = 0

    def texts() -> Iterator[str]:
        nonlocal number
        for number, line in lines:
            if isinstance(line, str):
                yield line + "\n"
            else:
                bad.append((number, _problem(line)))

    stream = texts()
    head = next(stream, "")
    reader = csv.reader(
        chain([head], stream), delimiter=";" if ";" in head and "," not in head else ",", strict=True
    )
    while True:
        try:
            row: list[str] | str | None = next(reader, None)
        except csv.Error as error:
            unclosed = "end of data" in str(error) or "field larger" in str(error)
            row = "opens a quote that is never closed" if unclosed else f"is not CSV ({error})"
        yield from bad
        bad.clear()
        if row is None:
            return
        yield number, row or "is empty"


def _json(lines: Iterator[tuple[int, str | bytes]]) -> Iterator[Row]:
    """Read one object a line, by its keys source and target, or else by the first two keys of the first object."""
    keys: list[str] = []
    for number, line in lines:
        if problem := _problem(line) or ("" if str(line).strip() else "is empty"):
            yield number, problem
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):  # brackets within brackets, thousands of them
            record = None
        if not isinstance(record, dict):
            yield number, "is not a JSON object"
            continue
        if not keys:
            keys = ["source", "target"] if {"source", "target"} <= record.keys() else list(record)[:2]
        if len(keys) < 2 or not all(isinstance(record.get(key), str) for key in keys):
            wanted = " and ".join(repr(key) for key in keys) if len(keys) == 2 else "'source' and 'target'"
            yield number, f"has no texts under the keys {wanted}"
            keys = keys if len(keys) == 2 else []
            continue
        if any(not _is_whole(record[key]) for key in keys):
            yield number, "has half a character (a lone surrogate)"
            continue
        yield number, [record[key] for key in keys]


def _is_whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _parallel(first: Path, second: Path) -> Iterator[Row]:
    """Read two files line by line, the same sentence on the same line."""
    for one, two in zip_longest(_lines(first), _lines(second)):
        if one is None or two is None:
            shorter, longer = (first, second) if one is None else (second, first)
            count = (two or one)[0] - 1
            raise UserError(
                f"{shorter.name} ends after line {count:,}, but {longer.name} goes on: parallel files have the same "
                "sentence on the same line, so from some line on these two are shifted. Align them first."
            )
        problem = next((f"{text} of {path.name}" for path, text in
                        ((first, _problem(one[1])), (second, _problem(two[1]))) if text), "")  # fmt: skip
        yield one[0], problem or [str(one[1]), str(two[1])]


def _lines(path: Path) -> Iterator[tuple[int, str | bytes]]:
    """Number the lines of a file from 1; a line that is too long or not UTF-8 is yielded as bytes, perhaps cut short."""
    if not path.is_file():
        what = "a folder" if path.is_dir() else "no file"
        raise UserError(f"{str(path)!r} is {what}: a file of pairs was expected.")
    if path.stat().st_size == 0:
        raise UserError(f"{path.name} is empty: a row for each pair was expected.")
    most = 4 * LONGEST_LINE  # bytes of a line: no more is read at a time, however long it is
    number = 0
    try:
        most_unpacked = max(UNPACKED, UNPACKED_TIMES * path.stat().st_size)
        read = 0
        with _opened(path) as file:
            while data := file.readline(most):
                number += 1
                whole = data.endswith(b"\n") or len(data) < most
                read += len(data)
                while not whole:
                    rest = file.readline(most)
                    whole = rest.endswith(b"\n") or len(rest) < most
                    read += len(rest)
                if read > most_unpacked:
                    raise UserError(
                        f"{path.name} unpacks to more than {UNPACKED_TIMES} times its size (at line {number:,}), as no "
                        "text does: unpack it first if it is meant so."
                    )
                if number == 1:
                    data = data.removeprefix(b"\xef\xbb\xbf")
                    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
                        raise UserError(f"{path.name} is UTF-16 text: save it as UTF-8.")
                yield number, _decoded(data)
    except (EOFError, lzma.LZMAError, gzip.BadGzipFile, zlib.error, OSError) as error:
        raise UserError(f"{path.name} cannot be read on after line {number:,}: {error}.") from None


def _decoded(data: bytes) -> str | bytes:
    data = data.removesuffix(b"\n").removesuffix(b"\r")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return data
    return text if len(text) <= LONGEST_LINE else data


def _opened(path: Path) -> IO[bytes]:
    """Open a file, and unpack it if its first bytes are those of gzip or xz."""
    with path.open("rb") as file:
        magic = file.read(6)
    if magic.startswith(b"\x1f\x8b"):
        return cast("IO[bytes]", gzip.open(path, "rb"))
    if magic == b"\xfd7zXZ\x00":
        return lzma.open(path, "rb")
    if magic.startswith(b"PK\x03\x04"):
        raise UserError(f"{path.name} is a zip archive: unpack it, and give the file of pairs in it.")
    return path.open("rb")


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
) -> Splits:
    """Split by source text into training, validation (5 %, at most 1,000 sources) and test (10 %, at most 1,000).

    A part that is given is taken as it is. Pairs that share a source with it are left out of the training.
    """
    train = without(without(pairs, test or ()), validation or ())
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


def without(pairs: Sequence[Pair], held: Iterable[Pair]) -> list[Pair]:
    """Return the pairs whose source is not among those of ``held``."""
    sources = {source for source, _ in held}
    return [pair for pair in pairs if pair[0] not in sources]
