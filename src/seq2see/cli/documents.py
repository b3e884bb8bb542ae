"""``seq2see predict --format``: translate a whole document, with a progress bar, and resume after an interruption."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from seq2see.cli.answering import Watch
from seq2see.cli.output import Refusals, complain, in_json
from seq2see.cli.unfinished import Unfinished
from seq2see.errors import UserError
from seq2see.files import LARGEST_TEXT, given_file

if TYPE_CHECKING:
    from seq2see.answering.translation import Translated
    from seq2see.cli.answering import Job
    from seq2see.documents.formats import Document

WINDOW = 2048  # sentences that are translated and stored together


def translate(job: Job, form: str, texts: list[str] | None, file: Path | None, out: Path | None, resume: bool) -> None:
    """Translate each text, or a file, or standard input."""
    from seq2see.answering import translation

    model, glossary = job.model, job.asked.options.terms
    given = [*texts] if texts is not None else [_content(file)]
    name = "the text" if texts is not None else "standard input" if file is None or str(file) == "-" else str(file)
    read = []
    for text in given:
        try:
            read.append(translation.read(text, form))
        except UserError as error:
            raise UserError(f"{name}: {error}") from None
    if not any(document.sentences for document in read):
        complain("there are no words in it, so it is left as it is.")
    settings = [form, *map(str, (job.rules, None if glossary is None else glossary.terms, model.path, model.card))]
    unfinished = _Sentences(out, resume, hashlib.sha256("\0".join([*settings, *given]).encode()).hexdigest())
    refused = 0
    with unfinished:
        for document in read:
            found = _translated(job, document, unfinished)
            refused += sum(one.error is not None for one in found)
            unfinished.add(document.written([one.text for one in found]) + ("\n" if texts is not None else ""))
    if refused:
        complain(f"{refused:,} sentences could not be translated and are unchanged.")
        raise typer.Exit(1)


def _content(file: Path | None) -> str:
    """Read a document; line ends stay as they are."""
    if file is None or str(file) == "-":
        data = sys.stdin.buffer.read()
    else:
        given_file(file, "a document", LARGEST_TEXT)
        data = file.read_bytes()
    if b"\0" in data[:65536] and not data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise UserError(f"{file or 'standard input'} is binary data, not text: a document in UTF-8 was expected.")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{file or 'standard input'} is not UTF-8 text (byte {error.start + 1:,}): convert it first."
        ) from None


def _translated(job: Job, document: Document, unfinished: _Sentences) -> list[Translated]:
    """Translate the sentences of a document window by window, and report repairs and refusals."""
    options = replace(job.asked.options, probabilities=False)
    for note in document.notes:
        complain(note)
    sentences, notes, refusals = document.sentences, Refusals("sentence"), Refusals("sentence")
    found = unfinished.taken(len(sentences))
    with Watch("translating", "sentences", lambda: len(sentences)) as bar:
        show = bar or (lambda count: None)
        show(len(found))
        while len(found) < len(sentences):
            window = sentences[len(found) : len(found) + WINDOW]
            new = job.model.answerer.searched(window, options)
            unfinished.keep(new)
            found += new
            show(len(new))
    for number, one in enumerate(found, 1):
        if one.error is not None:
            refusals.add(number, one.error)
        elif one.remarks:
            notes.add(number, "; ".join(one.remarks) + ".")
    refusals.close("they were left as they are")
    notes.close("check the numbers and names of the document", "answered with a remark")
    return found


class _Sentences(Unfinished):
    """The file of finished sentences, after a line that identifies the document; at the end the document itself."""

    def __init__(self, path: Path | None, resume: bool, digest: str) -> None:
        super().__init__(path, resume)
        self.head = in_json({"document": digest})
        self.whole: list[str] = []
        self.done: list[Translated] = []

    def __enter__(self) -> None:
        if self.direct:
            return
        self.open()
        if not self.last:
            self._write([self.head])
            return
        from seq2see.answering.translation import Translated

        head, *lines = self.last
        try:
            if head != self.head:
                raise ValueError
            for line in lines:
                text, remarks, error = json.loads(line)
                self.done.append(Translated(text, (), tuple(remarks), error))
        except (ValueError, TypeError):
            assert self.file is not None
            self.file.close()
            raise UserError(
                f"{self.part} belongs to another document, another model or other options: give those of "
                "the interrupted run, or remove it."
            ) from None

    def _write(self, lines: Iterable[str]) -> None:
        assert self.file is not None
        self.file.writelines(f"{line}\n" for line in lines)
        self.file.flush()

    def taken(self, count: int) -> list[Translated]:
        """Return the finished sentences of the next document."""
        taken, self.done = self.done[:count], self.done[count:]
        return taken

    def keep(self, found: list[Translated]) -> None:
        """Write sentences to the unfinished file, so that they survive the end of this process."""
        if not self.direct:
            self._write(in_json([one.text, one.remarks, one.error]) for one in found)

    def add(self, text: str) -> None:
        """Add a whole document."""
        self.whole.append(text)

    def __exit__(self, kind: object, value: object, traceback: object) -> None:
        data = "".join(self.whole).encode()
        if self.direct:
            if kind is None and self.path is None:
                sys.stdout.flush()
                sys.stdout.buffer.write(data)
            elif kind is None and self.path is not None:
                self.path.write_bytes(data)
            return
        assert self.file is not None
        if kind is None:  # the sentences become the document, in one step
            from seq2see.files import write_atomically

            assert self.path is not None
            self.file.close()
            write_atomically(self.path, data)
            self.part.unlink()
        else:
            self.close(kind, value, "sentences")
