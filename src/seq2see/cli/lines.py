"""Files of lines: inputs are read one a line, and a file of answers gets its name when it is complete."""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Any

from seq2see.answering.answer import NoText
from seq2see.cli.output import complain
from seq2see.errors import UserError, counted, shown

LONGEST = 4_000_004  # most bytes of a line; no model takes as many characters
PACKED = 3  # estimated ratio of a text to its gzip or xz file
HEAD = 8192  # bytes that tell whether a file is text

RECORDS = (".jsonl", ".ndjson")
TEXT_KEYS = ("input", "source", "text")  # of a JSON object, the first that is there


# --- inputs --------------------------------------------------------------------------------------------------------


def lines_of(path: Path | None, columns: Sequence[str] = ()) -> Iterator[str]:
    """Read the inputs of a file or of standard input, one per line; gzip and xz are unpacked.

    A line of a .jsonl file is a JSON text, or an object with the text under "input", "source" or "text".
    ``columns`` chooses others, by name in an object and by number in a line with tabs. Invalid UTF-8 is kept,
    so that its line can be refused. A file of binary data is refused as a whole.
    """
    from seq2see.data import formats

    is_standard = path is None or str(path) == "-"
    records = path is not None and formats.kind_of(path) in RECORDS
    if not records and not all(column.isdecimal() and int(column) for column in columns):
        raise UserError(
            f"--columns is {'+'.join(columns)}: numbers of the source's columns were expected, from 1 on, as in "
            "--columns 1+2, for lines with tabs. Names are for .jsonl files."
        )
    if path is not None and not is_standard and (path.is_dir() or not path.exists()):
        raise UserError(f"There is no file {str(path)!r}: a text file with one input a line was expected.")
    name = "Standard input" if path is None or is_standard else path.name
    number, read = 0, _in_record if records else _in_cells
    try:
        with _opened(None if is_standard else path) as file:
            _check_text(file, name)
            for line in _texts(file):
                number += 1
                yield line if isinstance(line, NoText) else read(line, columns)
    except formats.UNREADABLE as error:
        raise UserError(f"{name} cannot be read beyond line {number:,}: {error}.") from None


def _opened(path: Path | None) -> Any:
    """Open a file of lines. A path that is not a regular file may be a pipe, which can be opened only once."""
    from seq2see.data import formats

    if path is None:
        return nullcontext(sys.stdin.buffer)
    return formats.unpacked(path) if path.is_file() else path.open("rb")


def _check_text(file: IO[bytes], name: str) -> None:
    """Refuse binary data by the first lines: most of them have a NUL byte or invalid UTF-8, and some a NUL byte.

    If a text has only some such lines, they are refused one by one.
    """
    head = file.peek(HEAD)[:HEAD] if hasattr(file, "peek") else b""
    lines = head.split(b"\n")
    lines = lines[:-1] or lines  # the last one may be cut
    foreign = sum(b"\0" in line or "\ufffd" in line.decode("utf-8", "replace") for line in lines)
    if b"\0" in head and 2 * foreign > len(lines):
        raise UserError(f"{name} is binary data, not text: one input a line was expected, in UTF-8.")


def _texts(file: IO[bytes]) -> Iterator[str]:
    for number in itertools.count():
        line = file.readline(LONGEST)
        if not line:
            return
        if len(line) == LONGEST and not line.endswith(b"\n"):
            while len(rest := file.readline(LONGEST)) == LONGEST and not rest.endswith(b"\n"):
                pass  # the rest is not kept in memory
            yield NoText(f"The line has more than {LONGEST - 1:,} bytes: cut it up, or use --format text.")
            continue
        text = line.decode("utf-8", errors="surrogateescape").removesuffix("\n").removesuffix("\r")
        yield text if number else text.removeprefix("\ufeff")  # a byte order mark does not belong to the text


def _in_cells(line: str, columns: Sequence[str]) -> str:
    """Return some columns of a line with tabs, or the line."""
    cells = line.split("\t") if columns else []
    if any(int(column) > len(cells) for column in columns):
        had = counted(len(cells), "column")
        return NoText(f"--columns is {'+'.join(columns)}: the line has {had}, and a number of each was expected.")
    return "\t".join(cells[int(column) - 1] for column in columns) if columns else line


def _in_record(line: str, columns: Sequence[str] = ()) -> str:
    """Return the text in a line of JSON."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return NoText(f"{shown(line)} is not JSON: a text or an object was expected.")
    if isinstance(found, str):
        return found
    texts = {key: text for key, text in found.items() if isinstance(text, str)} if isinstance(found, dict) else {}
    wanted = columns or [key for key in TEXT_KEYS if key in texts][:1]
    if wanted and all(key in texts for key in wanted):
        return "\t".join(texts[key] for key in wanted)
    if columns:
        return NoText(f"The line has no text {' or '.join(columns)}, which --columns names.")
    others = f" --columns {shown('+'.join([*texts][:2]))} reads others." if texts else ""
    return NoText(f'The line has no text: a JSON text was expected, or one under "input", "source" or "text".{others}')


def count_lines(path: Path | None) -> int | None:
    """Count the lines of a file; None if it is a pipe or packed."""
    if path is None or not path.is_file() or path.suffix in (".gz", ".xz"):
        return None
    with path.open("rb") as file:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))


def characters_in(*paths: Path | None) -> float:
    """Estimate the characters of some files; the size of a pipe is unknown."""
    files = [path for path in paths if path is not None and path.is_file()]
    return float(sum(path.stat().st_size * (PACKED if path.suffix in (".gz", ".xz") else 1) for path in files))


# --- answers -------------------------------------------------------------------------------------------------------


class Unfinished:
    """Lines that are written to NAME.part, survive the end of this process, and are continued by --resume.

    Without a name, or if the name is a device such as /dev/null, output is ``direct``, without such a file. At the end
    the lines become the file, or what ``whole`` makes of them.
    """

    def __init__(
        self,
        path: Path | None,
        resume: bool,
        what: str = "answers",
        kept: int | None = None,
        whole: Callable[[], bytes] | None = None,
    ) -> None:
        self.path, self.resume, self.what, self.whole = path, resume, what, whole
        self.direct = path is None or (path.exists() and not path.is_file() and not path.is_dir())
        self.part = Path(f"{path}.part")
        self.lines = 0  # complete lines of an interrupted run
        self.last = deque[str](maxlen=kept)  # of these, the last ones, or all
        self.file: IO[str] = sys.stdout

    def __enter__(self) -> Unfinished:
        if self.path is None:
            return self
        if self.path.is_dir():
            raise UserError(f"{str(self.path)!r} cannot be written: it is a folder.")
        if not self.direct and self.part.exists() and not self.resume:
            raise UserError(
                f"{str(self.part)!r} exists, from an interrupted run: continue with --resume, or remove it."
            )
        try:
            if not self.direct and self.part.exists():
                self._read()
            place, mode = (self.path, "w") if self.direct else (self.part, "a")
            self.file = place.open(mode, encoding="utf-8", newline="\n")
        except OSError as error:
            raise UserError(f"{str(self.path)!r} cannot be written: {error.strerror or error}.") from None
        return self

    def _read(self) -> None:
        """Read the lines of an interrupted run, and remove an incomplete last line."""
        complete = 0
        with self.part.open("rb+") as file:
            for line in file:
                if line.endswith(b"\n"):
                    self.lines, complete = self.lines + 1, complete + len(line)
                    self.last.append(line.decode("utf-8", errors="replace").removesuffix("\n"))
            file.truncate(complete)

    def write(self, text: str) -> None:
        """Write some lines, so that they survive the end of this process."""
        self.file.write(text)
        self.file.flush()

    def __exit__(self, kind: object, value: object, traceback: object) -> None:
        """Give a complete file its name. After a user's error the same run would fail again: remove it."""
        data = self.whole() if self.whole is not None and kind is None else None
        if data is not None and self.path is None:
            sys.stdout.flush()
            sys.stdout.buffer.write(data)
        if self.path is None:
            return
        if kind is None and not self.direct:  # the bytes are on the disk before the name changes
            os.fsync(self.file.fileno())
        self.file.close()
        if data is not None and self.direct:
            self.path.write_bytes(data)
        if self.direct:
            return
        if kind is KeyboardInterrupt:
            complain(f"Stopped; {self.part} holds the {self.what} so far, and --resume continues.")
        if data is not None:
            from seq2see.files import write_atomically

            write_atomically(self.path, data)
            self.part.unlink()
        elif kind is None:
            self.part.replace(self.path)
        elif isinstance(value, UserError) and not self.lines:
            self.part.unlink()
