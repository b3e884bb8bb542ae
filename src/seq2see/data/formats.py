"""Rows of texts from files of many formats, and which of their columns are the source and the target."""

from __future__ import annotations

import csv
import gzip
import json
import lzma
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import IO, Any, cast

from seq2see.data import tables
from seq2see.data.tables import LONGEST_LINE, UNPACKED, UNPACKED_TIMES
from seq2see.errors import UserError, shown, suggest
from seq2see.files import given_file
from seq2see.tokenizers.symbols import with_features

LARGEST_WHOLE = 2**28  # bytes of a JSON file that is one array, which is read at once
TABLES = (".parquet", ".xlsx", ".xls", ".xlsb", ".ods")
PACKED = (".gz", ".xz")
UNREADABLE = (EOFError, lzma.LZMAError, gzip.BadGzipFile, zlib.error, OSError)  # errors of a broken file

Row = tuple[int, list[str] | str]  # the line number, and either the cells or the reason why there are none


@dataclass
class Table:
    """The rows of a file. ``names`` are the names of its columns, if the format has them; ``texts`` are those
    of the columns of texts.
    """

    rows: Iterator[Row]
    names: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)


class _Number(str):
    """A number as it is written."""

    __slots__ = ()


def kind_of(path: Path) -> str:
    """Return the format by the ending of a file's name, packed or not."""
    return Path(path.stem).suffix.lower() if path.suffix.lower() in PACKED else path.suffix.lower()


def read_table(path: Path) -> Table:
    """Read the rows of one file in the format of its ending; any other file is read as tab-separated."""
    kind = kind_of(path)
    if kind in TABLES:
        _check_file(path)
        names, texts, rows = tables.read(path, kind)
        return Table(rows, names, texts)
    if kind in (".jsonl", ".ndjson", ".json"):
        return _json(path)
    lines = _lines(path)
    if kind == ".csv":
        return Table(_csv(lines))
    return Table((number, _problem(line) or str(line).split("\t")) for number, line in lines)


def _problem(line: str | bytes) -> str:
    """Return why a line is not text; ``_lines`` yields such a line as bytes."""
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
    """Read comma-separated rows, or semicolons if the first line has no comma; a quoted cell may contain line breaks."""
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
    reader = csv.reader(chain([head], stream), delimiter=";" if ";" in head and "," not in head else ",", strict=True)
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


# --- JSON ----------------------------------------------------------------------------------------------------------


def _json(path: Path) -> Table:
    """Read one object or array per line, or a file that is one array of them.

    The keys of an object name the columns. A nested object, as in ``{"translation": {"en": …}}``, is used in
    the place of the outer one. Numbers are read as texts.
    """
    lines = _lines(path)
    blank = []
    for number, line in lines:
        if isinstance(line, str) and not line.strip():
            blank.append((number, line))
            continue
        first = _parsed(line) if isinstance(line, str) else None
        inner = first if isinstance(first, list) else list(first.values()) if isinstance(first, dict) else []
        whole = any(isinstance(one, list) for one in inner) or (
            isinstance(first, list) and any(isinstance(one, dict) for one in inner)
        )
        opens = line[:1] in ("[", "{", b"[", b"{")
        if whole or (first is None and opens and _next_is_no_json(lines)):
            return _whole(path)
        break
    # The file is opened again, since its first lines are read.
    table = Table(iter(()))
    rows = ((number, _cells_of_line(line, table)) for number, line in _lines(path))
    head = []
    for row in rows:
        head.append(row)
        if isinstance(row[1], list):
            break
    table.rows = chain(head, rows)
    return table


def _next_is_no_json(lines: Iterator[tuple[int, str | bytes]]) -> bool:
    """Whether a file continues with part of an array or object: then its first line is not a bad row."""
    following = next(lines, None)
    return following is None or not isinstance(following[1], str) or _parsed(following[1]) is None


def _parsed(text: str) -> Any:
    """Return a JSON value with its numbers as texts; None if it is not JSON."""
    try:
        return json.loads(text, parse_int=_Number, parse_float=_Number, parse_constant=_refused)
    except (ValueError, RecursionError):  # thousands of nested brackets
        return None


def _refused(name: str) -> None:
    raise ValueError(name)


def _cells_of_line(line: str | bytes, table: Table) -> list[str] | str:
    if problem := _problem(line) or ("" if str(line).strip() else "is empty"):
        return problem
    return _cells(_parsed(str(line)), table)


def _cells(record: Any, table: Table) -> list[str] | str:
    """Return the texts of one record, or what is wrong with it. The first object sets the names of the ``table``."""
    names = table.names
    if isinstance(record, dict):
        inner = [value for value in record.values() if isinstance(value, Mapping)]
        if len(inner) == 1:  # a dataset for translation: both texts in one column
            record = inner[0]
        if not names:
            names += [key for key, value in record.items() if isinstance(value, str)]
            if len(names) < 2:
                names.clear()
                return "has no texts under the keys 'source' and 'target'"
            table.texts += [name for name in names if not isinstance(record[name], _Number)]
        cells = [record.get(name) for name in names]
    elif isinstance(record, list) and not names and len(record) > 1:
        cells = record
    else:
        return "is not a JSON object" if names or not isinstance(record, list) else "is not an array of texts"
    # A column that is not used may be missing.
    texts = [cell if isinstance(cell, str) else "" for cell in cells]
    return texts if all(map(_is_whole, texts)) else "has half a character (a lone surrogate)"


def _whole(path: Path) -> Table:
    """Read a file that is one JSON array of records, an object with one, or an object of columns."""
    if path.stat().st_size > LARGEST_WHOLE:
        raise UserError(
            f"{path.name} is one JSON array of more than {LARGEST_WHOLE:,} bytes: write one record per line (.jsonl)."
        )
    with unpacked(path) as file:
        data = file.read(LARGEST_WHOLE + 1)
    try:
        found = json.loads(data.decode("utf-8-sig"), parse_int=_Number, parse_float=_Number, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path.name} is not JSON that can be read ({error}).") from None
    if isinstance(found, dict):
        columns = {name: value for name, value in found.items() if isinstance(value, list)}
        if len(columns) == 1:
            [found] = columns.values()
        elif columns and len(set(map(len, columns.values()))) == 1:
            found = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if not isinstance(found, list):
        raise UserError(f"{path.name} has no array of records: one was expected, or one record per line.")
    table = Table(iter(()))
    table.rows = iter([(number, _cells(record, table)) for number, record in enumerate(found, 1)])
    return table


def _is_whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def read_parallel(first: Path, second: Path) -> Iterator[Row]:
    """Read two files line by line, the same sentence on the same line."""
    for one, two in zip_longest(_lines(first), _lines(second)):
        if one is None or two is None:
            shorter, longer = (first, second) if one is None else (second, first)
            count = (two or one)[0] - 1
            raise UserError(
                f"{shorter.name} ends after line {count:,}, but {longer.name} has more: parallel files have "
                "the same sentence on the same line, so these two are shifted somewhere. Align them first."
            )
        problem = next((f"{text} of {path.name}" for path, text in
                        ((first, _problem(one[1])), (second, _problem(two[1]))) if text), "")  # fmt: skip
        yield one[0], problem or [str(one[1]), str(two[1])]


def _lines(path: Path) -> Iterator[tuple[int, str | bytes]]:
    """Number the lines of a file from 1; a line that is too long or not UTF-8 is yielded as bytes, perhaps cut short."""
    _check_file(path)
    most = 4 * LONGEST_LINE  # most bytes of a line that are read at a time
    number = 0
    try:
        most_unpacked = max(UNPACKED, UNPACKED_TIMES * path.stat().st_size)
        read = 0
        with unpacked(path) as file:
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
                        f"{path.name} unpacks to more than {UNPACKED_TIMES} times its size (at line "
                        f"{number:,}), more than any text: unpack it first if this is right."
                    )
                if number == 1:
                    data = data.removeprefix(b"\xef\xbb\xbf")
                    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
                        raise UserError(f"{path.name} is UTF-16 text: save it as UTF-8.")
                yield number, _decoded(data)
    except UNREADABLE as error:
        raise UserError(f"{path.name} cannot be read beyond line {number:,}: {error}.") from None


def _check_file(path: Path) -> None:
    if given_file(path, "a file of pairs") == 0:
        raise UserError(f"{path.name} is empty: a row for each pair was expected.")


def _decoded(data: bytes) -> str | bytes:
    data = data.removesuffix(b"\n").removesuffix(b"\r")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return data
    return text if len(text) <= LONGEST_LINE else data


def unpacked(path: Path) -> IO[bytes]:
    """Open a file, and unpack it if its first bytes are those of gzip or xz."""
    given_file(path, "a file of texts")
    with path.open("rb") as file:
        magic = file.read(6)
    if magic.startswith(b"\x1f\x8b"):
        return cast("IO[bytes]", gzip.open(path, "rb"))
    if magic == b"\xfd7zXZ\x00":
        return lzma.open(path, "rb")
    if magic.startswith(b"PK\x03\x04"):
        raise UserError(f"{path.name} is a zip archive: unpack it, and give the file in it.")
    return path.open("rb")


# --- columns ----------------------------------------------------------------------------------------------------------


LONGEST_NUMBER = 9  # digits of a column
HEAD = 1000  # rows from which the number of columns is found
NUMBER = re.compile(r"[-+]?[0-9]+([.,][0-9]+)?")
NAME = re.compile(r"[^\W\d][\w .()/-]{0,39}")
FEATURES = re.compile(r"[^\s;|]+([;|][^\s;|]+)+")  # V;PST;3 or Case=Dat|Number=Sing
NOTE = re.compile(r"CC[- ]BY|tatoeba\.org", re.IGNORECASE)  # the third column of Tatoeba's exports

#: Usual names of columns. A first row is a header if two of its cells are such names.
HEADERS = {
    "source", "target", "src", "tgt", "trg", "input", "output", "from", "to", "question", "answer", "x", "y",
    "en", "de", "fr", "es", "it", "nl", "pt", "ru", "eng", "deu", "ger", "fra", "fre", "spa", "ita", "nld", "por", "rus",
    "english", "german", "french", "spanish", "italian", "dutch", "portuguese", "russian", "chinese", "japanese",
    "id", "idx", "lemma", "form", "features", "tags", "pronunciation", "phonemes", "phones", "grapheme", "graphemes",
    "source_text", "target_text", "input_text", "output_text",
}  # fmt: skip


def checked(columns: Any) -> tuple[str, str]:
    """Return the two requested columns: ``("english", "french")``, or the command's ``english,french``."""
    if isinstance(columns, str) and columns.count(",") == 1:
        source, _, target = columns.partition(",")
        columns = (source.strip(), target.strip())
    if not isinstance(columns, tuple | list) or len(columns) != 2 or not all(map(str, columns)):
        raise UserError(
            f"`columns` is {columns!r:.60}: two names or numbers were expected, of the source and of the target."
        )
    if columns[0] == columns[1]:
        raise UserError(f"`columns` names {shown(str(columns[0]))} as the source and as the target: name two columns.")
    return columns[0], columns[1]


@dataclass(frozen=True)
class Chosen:
    """The positions of the texts in a row; each is followed by its columns of features."""

    width: int
    source: list[int]
    target: list[int]
    names: list[str] = field(default_factory=list)  # of the two, if they have names
    told: str = ""

    @classmethod
    def first_two(cls) -> Chosen:
        """The only two columns."""
        return cls(2, [0], [1])

    def texts(self, row: Sequence[str]) -> tuple[str, str]:
        """Return the source and the target of a row."""
        if self.width == 2 and len(self.source) == len(self.target) == 1:
            return row[self.source[0]], row[self.target[0]]
        source, target = (with_features([row[place] for place in places]) for places in (self.source, self.target))
        return source, target


def opened(table: Table, name: str, columns: tuple[str, str] | None, or_two: bool) -> tuple[Iterator[Row], Chosen]:
    """Return the rows of a table without its header, and the positions of the texts in them."""
    head = list(islice(table.rows, HEAD))
    cells = [row for _, row in head if isinstance(row, list)]
    counts = Counter(len(row) for row in cells if len(row) > 1)
    width = len(table.names) or (counts.most_common(1)[0][0] if counts else 2)
    names = table.names
    asked = None if columns is None else checked(columns)
    if not names and cells and (is_header(cells, width) or _is_named(cells[0], asked)):
        names = [cell.strip() for cell in cells[0]]
        place = next(place for place, (_, row) in enumerate(head) if isinstance(row, list))
        del head[place]
    if asked is not None and or_two and width == 2:
        asked = None
    if asked is not None:
        source, target = (positions(str(one), names, width, name) for one in asked)
    else:
        source, target = ([place] for place in _two(table, names, width, name, cells))
    both = [names[places[0]] for places in (source, target)] if names else []
    told = " → ".join(
        "+".join(repr(names[place]) if names else str(place + 1) for place in places) for places in (source, target)
    )
    return chain(head, table.rows), Chosen(width, source, target, both, told if width > 2 else "")


def is_header(rows: Sequence[Sequence[str]], width: int) -> bool:
    """Whether the first row is a header: two of its cells are usual names, or it is above numbers."""
    first = [cell.strip() for cell in rows[0]]
    known = [cell.lower() for cell in first if cell.lower() in HEADERS]
    if len(first) != width or len(set(first)) < width:
        return False
    if len(set(known)) >= 2:
        return True
    below = [row for row in rows[1:] if len(row) == width]
    return (
        len(below) >= 3
        and all(map(NAME.fullmatch, first))
        and any(all(NUMBER.fullmatch(row[place].strip()) for row in below) for place in range(width))
    )


def _is_named(first: Sequence[str], asked: tuple[str, str] | None) -> bool:
    """Whether a row names the requested columns."""
    cells = {cell.strip() for cell in first}
    return asked is not None and all(
        part in cells and not part.isdecimal() for one in asked for part in _parts(str(one), list(cells))
    )


def _parts(one: str, names: Sequence[str]) -> list[str]:
    """Return a column and the columns of features after it: ``lemma+tags``."""
    return [one] if one in names else [part.strip() for part in one.split("+")]


def positions(one: str, names: list[str], width: int, name: str) -> list[int]:
    """Return the positions of the requested columns, given by name or by number."""
    places = []
    for part in _parts(one, names):
        if part in names:
            places.append(names.index(part))
        elif part.isdecimal():
            if len(part) > LONGEST_NUMBER or not 1 <= int(part) <= width:
                number = part if len(part) <= LONGEST_NUMBER else f"{part[:LONGEST_NUMBER]}…"
                raise UserError(f"`columns` names column {number}, but {name} has {width}, counted from 1.")
            places.append(int(part) - 1)
        elif names:
            raise UserError(f"`columns` names {shown(part)}, which {name} does not have. {suggest(part[:100], names)}")
        else:
            raise UserError(
                f"`columns` names {shown(part)}, but {name} has no header: give numbers, 1 to {width}, as in "
                "`columns` 1,2."
            )
    return places


def inflected(names: list[str], full: Sequence[Sequence[str]]) -> str:
    """Return the columns of an inflection table, ``lemma+features,form``; empty if it is something else."""
    labels = names or [str(place + 1) for place in range(len(full[0]) if full else 0)]
    tagged = [
        label
        for place, label in enumerate(labels)
        if full and sum(FEATURES.fullmatch(row[place].strip()) is not None for row in full) > len(full) / 2
    ]
    if len(labels) != 3 or len(tagged) != 1:
        return ""
    lemma, form = (label for label in labels if label not in tagged)
    return f"{lemma}+{tagged[0]},{form}"


def _two(table: Table, names: list[str], width: int, name: str, cells: Sequence[Sequence[str]]) -> tuple[int, int]:
    """Choose the columns if the choice is clear: named source and target, the only two, or the only two with texts."""
    if "source" in names and "target" in names:
        return names.index("source"), names.index("target")
    if width == 2:
        return 0, 1
    if len(table.texts) == 2:
        source, target = (names.index(one) for one in table.texts)
        return source, target
    full = [row for row in cells if len(row) == width]
    if width == 3 and not names and all(NOTE.search(row[2]) for row in full):
        return 0, 1
    listed = f"({', '.join(names)})" if names else f"(the first row is {' | '.join(full[0])[:80]})"
    example = inflected(names, full) or (",".join(names[-2:]) if names else "1,2")
    raise UserError(
        f"{name} has {width} columns {listed}, and two were expected: say which are the source and the target, by name "
        f"or number, as in `columns` {example}."
    )
