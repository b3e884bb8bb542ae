"""``seq2see predict --format``: translate a whole document, with a progress bar, and resume after an interruption."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from seq2see.cli.lines import Unfinished
from seq2see.cli.output import Refusals, complain, in_json, progress
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
    try:
        read = [translation.read(text, form) for text in given]
    except UserError as error:
        raise UserError(f"{name}: {error}") from None
    if not any(document.sentences for document in read):
        complain("there are no words in it, so it is left as it is.")
    settings = [form, *map(str, (job.rules, None if glossary is None else glossary.terms, model.path, model.card))]
    digest = hashlib.sha256("\0".join([*settings, *given]).encode()).hexdigest()
    whole, refused = list[str](), 0
    with Unfinished(out, resume, "sentences", whole=lambda: "".join(whole).encode()) as unfinished:
        done = _begun(unfinished, in_json({"document": digest}))
        for document in read:
            found = _translated(job, document, done, unfinished)
            refused += sum(one.error is not None for one in found)
            whole.append(document.written([one.text for one in found]) + ("\n" if texts is not None else ""))
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


def _begun(unfinished: Unfinished, head: str) -> Iterator[Translated]:
    """Return the sentences of an interrupted run; the first line of its file identifies the document."""
    from seq2see.answering.translation import Translated

    if not unfinished.lines:
        _keep(unfinished, [head])
        return iter(())
    try:
        if unfinished.last[0] != head:
            raise ValueError
        rows = [json.loads(line) for line in [*unfinished.last][1:]]
        return iter([Translated(text, (), tuple(remarks), error) for text, remarks, error in rows])
    except (ValueError, TypeError):
        raise UserError(
            f"{unfinished.part} belongs to another document, another model or other options: give those of "
            "the interrupted run, or remove it."
        ) from None


def _keep(unfinished: Unfinished, lines: Sequence[str]) -> None:
    if not unfinished.direct:
        unfinished.write("".join(f"{line}\n" for line in lines))


def _translated(job: Job, document: Document, done: Iterator[Translated], unfinished: Unfinished) -> list[Translated]:
    """Translate the sentences of a document window by window, and report repairs and refusals."""
    options = replace(job.asked.options, probabilities=False)
    for note in document.notes:
        complain(note)
    sentences, notes, refusals = document.sentences, Refusals("sentence"), Refusals("sentence")
    found = [one for _, one in zip(sentences, done, strict=False)]
    with progress("translating", "sentences", lambda: len(sentences), len(found)) as advance:
        while len(found) < len(sentences):
            new = job.model.answerer.searched(sentences[len(found) : len(found) + WINDOW], options)
            _keep(unfinished, [in_json([one.text, one.remarks, one.error]) for one in new])
            found += new
            advance(len(new))
    for number, one in enumerate(found, 1):
        if one.error is not None:
            refusals.add(number, one.error)
        elif one.remarks:
            notes.add(number, "; ".join(one.remarks) + ".")
    refusals.close("they were left as they are")
    notes.close("check the numbers and names of the document", "answered with a remark")
    return found
