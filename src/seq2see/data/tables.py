"""Rows of Parquet files and spreadsheets. Libraries of others parse them, in a process of its own with limits.

A small file may ask such a library for any amount of memory, and a broken one may end its process. So what the file
declares is checked first; then a child process parses it, with at most 2 GB of memory and a limited time (on Linux and
other systems with ``resource``; elsewhere the checks alone hold). It writes one row a line, in JSON.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from seq2see.errors import UserError, missing
from seq2see.files import given_file

LONGEST_LINE = 20_000  # characters; a sentence has about 100, and one such line would fill a whole batch
UNPACKED = 1_000_000  # bytes that any packed file may have
UNPACKED_TIMES = 100  # largest ratio of a larger file to its packed size
ROWS_AT_ONCE = 50_000  # of a Parquet file
MOST_ENTRIES, MOST_CELLS = 10_000, 2**24  # files in a spreadsheet; cells of a sheet, empty ones included
MEMORY = 2 * 10**9  # bytes of the process that parses
SECONDS, BYTES_A_SECOND = 60, 2**18  # of its processors: for any file, and more for a large one
CELL = re.compile(rb"\br=[\"']([A-Z]{0,3})([0-9]{1,9})[\"']")  # <row r="7">, <c r="B7">
CHUNK, OVERLAP = 2**20, 32


def read(path: Path, kind: str) -> tuple[list[str], list[str], Iterator[tuple[int, list[str] | str]]]:
    """Return the names of all columns, those of the columns of texts, and the rows with their numbers."""
    lines = _lines(path, kind, given_file(path, "a table"))
    head = next(lines)
    return head["names"], head["texts"], enumerate(lines, head["first"])


def _lines(path: Path, kind: str, size: int) -> Iterator[Any]:
    """Yield what the process writes; an error there, and its death, become a UserError."""
    command = [sys.executable, "-P", "-m", "seq2see.data.tables", str(path), kind]
    known = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "POLARS_MAX_THREADS": "2"}
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**os.environ, **known}
    )  # fmt: skip
    assert child.stdout is not None
    read, most = 0, max(UNPACKED, UNPACKED_TIMES * size)
    try:
        for line in child.stdout:
            read += len(line)
            if read > most:
                raise _refused(path, kind, f"it unpacks to more than {UNPACKED_TIMES} times its size")
            found = json.loads(line)
            if found is None:
                return
            if isinstance(found, dict) and "error" in found:
                raise UserError(found["error"]) if found["ours"] else _refused(path, kind, found["error"])
            yield found
        status = child.wait()
        slow = status == -getattr(signal, "SIGXCPU", 0)
        why = (
            f"it takes more than {_seconds(size)} seconds"
            if slow
            else f"it needs more than {MEMORY / 1e9:g} GB of memory, or it is damaged"
        )
        raise _refused(path, kind, why)
    finally:
        child.kill()
        child.stdout.close()
        child.wait()


def _refused(path: Path, kind: str, why: str) -> UserError:
    return UserError(f"{path.name} cannot be read as {kind}: {why}. Save it again, or as .tsv.")


def _seconds(size: int) -> int:
    return SECONDS + size // BYTES_A_SECOND


# --- in the process of its own -------------------------------------------------------------------------------------


def main(path: Path, kind: str) -> None:
    """Write the names, the rows and a last line, or an error."""
    size = path.stat().st_size
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    _limit(size)
    try:
        for line in _parquet(path, size) if kind == ".parquet" else _sheet(path, size):
            print(json.dumps(line, ensure_ascii=False))
        print("null", flush=True)
    except BrokenPipeError:
        os._exit(0)  # the reader has enough
    except BaseException as error:  # a panic of a library in Rust is no Exception
        ours = isinstance(error, UserError)
        if isinstance(error, ImportError):
            ours, error = True, missing(error.name or "polars", path.name)
        said = str(error) if ours else " ".join(f"{error}".split())[:200] or type(error).__name__
        print(json.dumps({"error": said.rstrip(".") + "." * ours, "ours": ours}), flush=True)


def _limit(size: int) -> None:
    """Limit the memory and the time of this process, if the system can."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (_seconds(size), _seconds(size) + 5))


def _parquet(path: Path, size: int) -> Iterator[Any]:
    import polars

    lazy = polars.scan_parquet(path)
    schema = lazy.collect_schema()
    inner = [kind for kind in schema.values() if isinstance(kind, polars.Struct)]
    kinds = dict(inner[0].to_schema()) if len(inner) == 1 else dict(schema)
    count = lazy.select(polars.len()).collect().item()
    if count > max(UNPACKED, UNPACKED_TIMES * size):
        raise ValueError(f"it has {size:,} bytes and would have {count:,} rows")
    texts = [name for name, kind in kinds.items() if kind == polars.String]
    yield {"names": list(kinds), "texts": texts, "first": 1}
    for first in range(0, count, ROWS_AT_ONCE):
        yield from map(_cells, lazy.slice(first, ROWS_AT_ONCE).collect().iter_rows())


def _sheet(path: Path, size: int) -> Iterator[Any]:
    import polars

    if zipfile.is_zipfile(path):
        _check_archive(path, size)
    frame = polars.read_excel(path, infer_schema_length=0)
    yield {"names": frame.columns, "texts": [], "first": 2}  # the names are row 1 of a sheet
    yield from map(_cells, frame.iter_rows())


def _check_archive(path: Path, size: int) -> None:
    """Refuse a spreadsheet that would unpack to far more than it is, or whose cells span far more than it holds."""
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        unpacked = sum(entry.file_size for entry in entries)
        if len(entries) > MOST_ENTRIES or unpacked > max(UNPACKED, UNPACKED_TIMES * size):
            raise ValueError(f"it has {size:,} bytes and would unpack to {len(entries):,} files of {unpacked:,} bytes")
        for entry in entries:
            if entry.filename.lower().startswith("xl/worksheets/"):
                rows, columns = _span(archive, entry)
                if rows * columns > MOST_CELLS:
                    raise ValueError(
                        f"its cells span {rows:,} rows and {columns:,} columns, and at most {MOST_CELLS:,} cells are read"
                    )


def _span(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> tuple[int, int]:
    """Return the largest row and the largest column that a sheet names."""
    rows = columns = 1
    with archive.open(entry) as file:
        text = b""
        while chunk := file.read(CHUNK):
            text = text[-OVERLAP:] + chunk
            for letters, number in set(CELL.findall(text)):
                rows = max(rows, int(number))
                if letters:
                    columns = max(columns, _column(letters))
    return rows, columns


def _column(letters: bytes) -> int:
    """Return the number of a column: 1 for A, 28 for AB."""
    number = 0
    for letter in letters:
        number = 26 * number + letter - 64
    return number


def _cells(row: tuple[Any, ...]) -> list[str] | str:
    inner = [value for value in row if isinstance(value, Mapping)]
    values = list(inner[0].values()) if len(inner) == 1 else row  # a struct of translations
    cells = ["" if cell is None else str(cell) for cell in values]
    return cells if sum(map(len, cells)) <= LONGEST_LINE else f"has more than {LONGEST_LINE:,} characters"


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
