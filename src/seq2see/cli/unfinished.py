"""Files of answers that get their names when they are complete; until then they are NAME.part."""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path
from typing import IO, BinaryIO

from seq2see.cli.output import complain
from seq2see.errors import UserError


class Unfinished:
    """Lines that are written to NAME.part, survive the end of this process, and are continued by --resume.

    Without a name, or if the name is a device such as /dev/null, output is ``direct``, without such a file.
    """

    def __init__(self, path: Path | None, resume: bool, kept: int | None = None) -> None:
        self.path, self.resume = path, resume
        self.direct = path is None or (path.exists() and not path.is_file() and not path.is_dir())
        self.part = Path(f"{path}.part")
        self.lines = 0  # complete lines of an interrupted run
        self.last = deque[str](maxlen=kept)  # of these, the last ones, or all
        self.file: IO[str] | None = None

    def open(self) -> None:
        """Create the unfinished file, or continue it after its last complete line."""
        assert self.path is not None
        if self.path.is_dir():
            raise UserError(f"{str(self.path)!r} cannot be written: it is a folder.")
        if self.part.exists() and not self.resume:
            raise UserError(
                f"{str(self.part)!r} exists, from an interrupted run: continue with --resume, or remove it."
            )
        try:
            if self.part.exists():
                with self.part.open("rb+") as file:
                    self._read(file)
            self.file = self.part.open("a", encoding="utf-8", newline="\n")
        except OSError as error:
            raise UserError(f"{str(self.path)!r} cannot be written: {error.strerror or error}.") from None

    def _read(self, file: BinaryIO) -> None:
        """Read the lines of an interrupted run, and remove an incomplete last line."""
        whole = 0
        for line in file:
            if line.endswith(b"\n"):
                self.lines, whole = self.lines + 1, whole + len(line)
                self.last.append(line.decode("utf-8", errors="replace").removesuffix("\n"))
        file.truncate(whole)

    def close(self, kind: object, value: object, what: str) -> None:
        """Rename a complete file to its final name. After a user's error the same run would fail again: remove it."""
        assert self.file is not None
        assert self.path is not None
        if kind is None:  # the bytes are on the disk before the name changes
            self.file.flush()
            os.fsync(self.file.fileno())
        self.file.close()
        if kind is KeyboardInterrupt:
            complain(f"Stopped; {self.part} holds the {what} so far, and --resume continues.")
        if kind is None:
            self.part.replace(self.path)
        elif isinstance(value, UserError) and not self.lines:
            self.part.unlink()
