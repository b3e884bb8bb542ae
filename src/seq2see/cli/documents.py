"""``seq2see predict --format``: a whole document, with a progress bar, and gone on with after an interruption."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from seq2see.cli.output import Refusals, complain, in_json, progress_bar
from seq2see.errors import UserError

if TYPE_CHECKING:
    from seq2see.answering.translation import Translated
    from seq2see.cli.answering import Job
    from seq2see.documents.formats import Document

WINDOW = 2048  # sentences that are translated together, and then written to the unfinished file


def translate(
    job: Job,
    form: str,
    texts: list[str] | None,
    file: Path | None,
    out: Path | None,
    resume: bool,
) -> None:
    """Translate each text, or a file, or standard input."""
    from seq2see.answering import translation

    model, glossary = job.model, job.asked.options.terms
    given = [*texts] if texts is not None else [_content(file)]
    name = (
        "the text"
        if texts is not None
        else "standard input"
        if file is None or str(file) == "-"
        else str(file)
    )
    read = []
    for text in given:
        try:
            read.append(translation.read(text, form))
        except UserError as error:
            raise UserError(f"{name}: {error}") from None
    if not any(document.sentences for document in read):
        complain("there are no words in it, so it is left as it is.")
    settings = [
        form,
        *map(str, (job.rules, None if glossary is None else glossary.terms, model.path, model.card)),
    ]
    unfinished = _Unfinished(out, resume, hashlib.sha256("\0".join([*settings, *given]).encode()).hexdigest())
    refused = 0
    with unfinished:
        for document in read:
            found = _translated(job, document, unfinished)
            refused += sum(one.error is not None for one in found)
            unfinished.add(
                document.written([one.text for one in found]) + ("\n" if texts is not None else "")
            )
    if refused:
        complain(f"{refused:,} sentences could not be translated, and were left as they are.")
        raise typer.Exit(1)


def _content(file: Path | None) -> str:
    """Read a document; line ends stay as they are."""
    if file is not None and str(file) != "-" and not file.is_file():
        raise UserError(f"There is no file {str(file)!r}: a document was expected.")
    data = sys.stdin.buffer.read() if file is None or str(file) == "-" else file.read_bytes()
    if b"\0" in data[:65536] and not data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise UserError(
            f"{file or 'standard input'} is binary data, not text: a document in UTF-8 was expected."
        )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{file or 'standard input'} is not UTF-8 text (byte {error.start + 1:,}): convert it first."
        ) from None


def _translated(job: Job, document: Document, unfinished: _Unfinished) -> list[Translated]:
    """Translate the sentences of a document window by window, and say what had to be done."""
    from seq2see.answering import translation

    for note in document.notes:
        complain(note)
    sentences, notes, refusals = document.sentences, Refusals("sentence"), Refusals("sentence")
    found = unfinished.taken(len(sentences))
    with _bar(len(sentences), len(found)) as show:
        while len(found) < len(sentences):
            window = sentences[len(found) : len(found) + WINDOW]
            new = translation.translate(window, job.model.texts, job.rules, job.asked.options.terms)
            unfinished.keep(new)
            found += new
            show(len(found))
    for number, one in enumerate(found, 1):
        if one.error is not None:
            refusals.add(number, one.error)
        elif one.remarks:
            notes.add(number, "; ".join(one.remarks) + ".")
    refusals.close("they were left as they are")
    notes.close("look at the numbers and names of the document", "answered with a remark")
    return found


@contextmanager
def _bar(total: int, before: int) -> Iterator[Callable[[int], None]]:
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    started = time.perf_counter()
    with progress_bar("sentences") as bar:
        task = bar.add_task("translating", total=total, completed=before, speed="")

        def show(done: int) -> None:
            speed = (done - before) / (time.perf_counter() - started)
            bar.update(task, completed=done, speed=f"{speed:,.0f}/s")

        yield show


class _Unfinished:
    """The sentences that are done, in NAME.part beside NAME until the document is whole; then NAME appears at once."""

    def __init__(self, path: Path | None, resume: bool, digest: str) -> None:
        self.path, self.resume, self.digest = path, resume, digest
        self.direct = path is None or (path.exists() and not path.is_file() and not path.is_dir())
        self.part = Path(f"{path}.part")
        self.whole: list[str] = []
        self.done: list[Translated] = []

    def __enter__(self) -> _Unfinished:
        if self.direct:
            return self
        assert self.path is not None
        if self.path.is_dir():
            raise UserError(f"{str(self.path)!r} cannot be written: it is a folder.")
        if self.part.exists() and not self.resume:
            raise UserError(
                f"{str(self.part)!r} is there, of a run that was interrupted: go on with --resume, or remove it."
            )
        try:
            if self.part.exists():
                self._read()
            else:
                self.part.write_text(in_json({"document": self.digest}) + "\n", encoding="utf-8")
            self.file = self.part.open("a", encoding="utf-8")
        except OSError as error:
            raise UserError(f"{str(self.path)!r} cannot be written: {error.strerror or error}.") from None
        return self

    def _read(self) -> None:
        """Read what an interrupted run has done; a last line that is not whole is cut off."""
        from seq2see.answering.translation import Translated

        data = self.part.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        lines = whole.decode("utf-8", errors="replace").splitlines()
        try:
            if json.loads(lines[0]) != {"document": self.digest}:
                raise ValueError
            for line in lines[1:]:
                text, remarks, error = json.loads(line)
                self.done.append(Translated(text, (), tuple(remarks), error))
        except (ValueError, IndexError, TypeError):
            raise UserError(
                f"{self.part} is of another document, another model or other options: give those of the interrupted run, "
                "or remove it."
            ) from None
        with self.part.open("rb+") as file:
            file.truncate(len(whole))

    def taken(self, count: int) -> list[Translated]:
        """Return the sentences of the next document that are done already."""
        taken, self.done = self.done[:count], self.done[count:]
        return taken

    def keep(self, found: list[Translated]) -> None:
        """Write sentences to the unfinished file, so that they outlive this process."""
        if not self.direct:
            for one in found:
                self.file.write(in_json([one.text, one.remarks, one.error]) + "\n")
            self.file.flush()

    def add(self, text: str) -> None:
        """Add a whole document."""
        self.whole.append(text)

    def __exit__(self, kind: object, value: object, traceback: object) -> None:
        if self.direct:
            if kind is None and self.path is None:
                sys.stdout.flush()
                sys.stdout.buffer.write("".join(self.whole).encode())
            elif kind is None and self.path is not None:
                self.path.write_bytes("".join(self.whole).encode())
            return
        self.file.close()
        if kind is KeyboardInterrupt:
            complain(f"Stopped; {self.part} holds the sentences so far, and --resume goes on.")
        if kind is None:
            from seq2see.files import write_atomically

            assert self.path is not None
            write_atomically(self.path, "".join(self.whole).encode())
            self.part.unlink()
        elif isinstance(value, UserError):
            self.part.unlink()
