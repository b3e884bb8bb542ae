"""Answer many lines window by window, write the answers, and resume after an interruption."""

from __future__ import annotations

import itertools
import json
import math
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from io import TextIOWrapper
from pathlib import Path
from typing import IO, TYPE_CHECKING

from seq2see.answering.answer import NoText, told
from seq2see.cli.output import Refusals, complain, in_json, progress_bar, tell_warnings
from seq2see.cli.unfinished import Unfinished
from seq2see.errors import ORDERS, UserError, counted, shown

if TYPE_CHECKING:
    from seq2see.answering.answer import Answer
    from seq2see.answering.options import Options
    from seq2see.config import DecodingConfig
    from seq2see.inspection.alignment import Alignment
    from seq2see.seq2seq import Seq2Seq

MANY = 8192  # inputs, of a file whose length is not known
COMPARED = 4  # last lines of an interrupted run that are compared with new answers
#: Line breaks and tabs become spaces, and characters that a terminal would obey are escaped.
ONE_LINE = ORDERS | dict.fromkeys(map(ord, "\n\r\t"), " ")
LONGEST = 4_000_004  # most bytes of a line; no model takes as many characters
PACKED = 3  # estimated ratio of a text to its gzip or xz file
HEAD = 8192  # bytes that tell whether a file is text
FIRST = 100  # lines that tell whether a file has the columns that --columns names

RECORDS = (".jsonl", ".ndjson")
TEXT_KEYS = ("input", "source", "text")  # of a JSON object, the first that is there

UNFINISHED = "The answer was cut at the limit of tokens: --max-length raises it."


@dataclass(frozen=True)
class Asked:
    """The model, the options and the output format of a run, as values that can be sent to another process."""

    model: str
    options: Options
    device: str = "auto"
    engine: str = "auto"
    threads: int | None = None
    raw: bool = False
    as_json: bool = False
    align: bool = False

    def job(self, characters: float = 0) -> Job:
        """Load the model on a device that suits this amount of text, and check the options against it."""
        from seq2see import machine
        from seq2see.seq2seq import load

        tell_warnings()
        machine.use(self.threads)
        device = chosen(self.model, self.device, self.engine, characters)
        job = Job(load(self.model, device, self.engine), self)
        assert job.rules.beam >= self.options.n_best
        job.model.answerer.allowed(self.options)  # made early, so that an error comes before anything is read
        return job


def loaded(model: str, device: str, engine: str = "auto", characters: float = math.inf) -> Seq2Seq:
    """Load a model on a device that suits this amount of text, and report the choice if there was one."""
    from seq2see.seq2seq import load

    return load(model, chosen(model, device, engine, characters), engine)


def chosen(model: str, device: str, engine: str, characters: float) -> str:
    """Return a device that suits this amount of text, and report the choice if there was one."""
    from seq2see import devices
    from seq2see.storage import folder

    if device == "auto" and engine in ("auto", "torch"):
        shape = folder.read_config(folder.find(model)).model
        where = devices.choose(device, devices.answering(shape, characters), devices.found)
        if where.said:
            complain(where.said)
        device = where.device
    return "cpu" if device == "auto" else device


def characters_in(*paths: Path | None) -> float:
    """Estimate the characters of some files; the size of a pipe is unknown."""
    files = [path for path in paths if path is not None and path.is_file()]
    return float(sum(path.stat().st_size * (PACKED if path.suffix in (".gz", ".xz") else 1) for path in files))


class NoColumns(NoText):
    """A line without the columns that --columns names."""


@dataclass(frozen=True)
class Job:
    """A loaded model with its request."""

    model: Seq2Seq
    asked: Asked

    @property
    def rules(self) -> DecodingConfig:
        """The rules of the search."""
        return self.asked.options.rules(self.model.config.decoding)

    def windows(self, inputs: Iterable[str]) -> Iterator[list[Answer]]:
        """Answer inputs, some thousands together, with probabilities only if they are shown."""
        return self.model.answerer.windows(inputs, replace(self.asked.options, probabilities=self.asked.as_json))

    def engine_name(self, inputs: int = MANY) -> str:
        """Return the name of the engine for this number of inputs."""
        options = self.asked.options
        network = self.model.network
        return network.engine_for(inputs, self.rules.beam, options.n_best, options.is_constrained).name

    def lines(self, answers: list[Answer]) -> Iterator[str]:
        """Format each answer as a line, with scores, alternatives and alignment after tabs."""
        asked = self.asked
        if not (asked.as_json or asked.raw or asked.align or asked.options.n_best > 1):
            for answer in answers:
                yield "" if answer.error is not None else _in_one_line(str(answer.output))
            return
        good = [answer for answer in answers if answer.error is None]
        aligned = iter(self.model.align(good) if self.asked.align else ())
        for answer in answers:
            alignment = next(aligned, None) if answer.error is None else None
            if self.asked.as_json:
                record = _record(self.model, answer, self.asked, alignment)
                yield in_json(record)
            elif answer.error is not None:
                yield ""
            else:
                best = self.model.answerer.raw(answer) if self.asked.raw else str(answer.output)
                columns = [best]
                if asked.options.n_best > 1:
                    columns.append(f"{answer.score:.4f}")
                    for other in answer.alternatives:
                        columns += [other.output, f"{other.score:.4f}"]
                columns += [] if alignment is None else [alignment.pharaoh]
                yield "\t".join(map(_in_one_line, columns))


def _in_one_line(text: str) -> str:
    """Return a text without line breaks and tabs. Most texts have none, which is checked first."""
    return text if text.isprintable() else text.translate(ONE_LINE)


def answer_all(
    job: Job,
    inputs: Iterable[str],
    place: str,
    out: Writer | TextIOWrapper,
    watch: Watch | nullcontext[None],
    unsure: Unsure,
    done: tuple[int, int] = (0, 0),
    tell: Callable[[str], None] = complain,
) -> tuple[int, int]:
    """Answer window by window, so that memory stays bounded; return how many were answered and refused.

    ``done`` has the two counts of an earlier run.
    """
    answered, refused = done
    refusals, cut, remarks, repairs = (Refusals(place, tell) for _ in range(4))
    with watch as bar:
        if bar is not None:
            bar(answered + refused)
        for answers in job.windows(inputs):
            for number, answer in enumerate(answers, answered + refused + 1):
                if answer.withheld is not None:
                    unsure.add(number, answer)
                elif answer.error is not None:
                    refused += 1
                    refusals.add(number, answer.error)
                    continue
                else:
                    if not answer.finished:
                        cut.add(number, UNFINISHED)
                    if answer.remark is not None:
                        remarks.add(number, answer.remark)
                answered += 1
                if answer.repairs:
                    times = Counter(answer.repairs).items()
                    said = [one if count == 1 else f"{one} ({count:,} times)" for one, count in times]
                    repairs.add(number, "; ".join(said) + ".")
            out.write("".join([line + "\n" for line in job.lines(answers)]))
            out.flush()
            if bar is not None:
                bar(len(answers))
    in_answers = job.asked.as_json
    refusals.close("the answers say why" if in_answers else "--json says why for each")
    cut.close('"finished" says which' if in_answers else "--json says which", "cut")
    remarks.close('"remark" says why' if in_answers else "--json says why", "remarked on")
    unsure.close(answered)
    repairs.close('"repairs" says which' if in_answers else "--json says which", "answered with a remark")
    return answered, refused


class Unsure:
    """Counts answers with too low a confidence, and lists them in a file."""

    def __init__(self, path: Path | None, least: float | None, tell: Callable[[str], None] = complain) -> None:
        self.path, self.least, self.count, self.tell = path, least, 0, tell
        self.rows: list[str] = []

    def __enter__(self) -> Unsure:
        return self

    def add(self, number: int, answer: Answer) -> None:
        """Record one answer."""
        self.count += 1
        if self.path is not None:
            sure = "" if answer.confidence is None else f"{answer.confidence:.4f}"
            cells = (str(number), sure, answer.input, str(answer.withheld))
            self.rows.append("\t".join(cell.translate(ONE_LINE) for cell in cells) + "\n")

    def close(self, answered: int) -> None:
        """Say how many there were."""
        if self.least is not None:
            where = f"; {self.path} lists them" if self.path is not None and self.count else ""
            self.tell(
                f"{answered - self.count:,} of {answered:,} answers have a confidence of {self.least:g} or more; "
                f"{self.count:,} were withheld{where}."
            )

    def __exit__(self, kind: object, value: object, traceback: object) -> None:
        if self.path is not None and kind is None:
            from seq2see.files import write_atomically

            write_atomically(self.path, "".join(self.rows).encode("utf-8", errors="replace"))


def skip(job: Job, inputs: Iterator[str], out: Writer) -> tuple[int, int]:
    """Pass over the inputs that an interrupted run has answered; return how many it answered and refused."""
    from seq2see.errors import InputError

    refused, last = 0, deque[str](maxlen=COMPARED)
    for _ in range(out.lines):
        text = next(inputs, None)
        if text is None:
            raise UserError(f"{out.part} has {out.lines:,} lines, more than the input: it belongs to another input.")
        try:
            job.model.answerer.check(text)
        except InputError:
            refused += 1
        last.append(text)
    for number, (text, line) in enumerate(zip(last, out.last, strict=True), out.lines - len(last) + 1):
        if not _same(job, text, line):
            raise UserError(
                f"{out.part} belongs to another input, another model or other options (line {number:,} "
                "would now differ): give those of the interrupted run, or remove it."
            )
    return out.lines - refused, refused


def _same(job: Job, text: str, line: str) -> bool:
    """Whether the model would write this line now, apart from rounding differences."""
    now = next(job.lines(next(job.windows([text]))))
    if job.asked.as_json:
        try:
            (form_now, now), (form_then, line) = _fixed(now), _fixed(line)
        except (ValueError, AttributeError, TypeError, KeyError):  # not a line of ours
            return False
        if form_now != form_then:
            return False
    else:  # a link may depend on the last digits of a weight, and a score ends with such digits
        if job.asked.align:
            now, line = (text.rpartition("\t")[0] for text in (now, line))
        if job.asked.options.n_best > 1:
            now, line = ("\t".join(text.split("\t")[::2]) for text in (now, line))
    if job.engine_name().endswith("bfloat16"):
        from difflib import SequenceMatcher

        # a word may depend on the other lines of its batch
        return SequenceMatcher(None, now, line).ratio() > 0.5
    return now == line


def _fixed(line: str) -> tuple[object, str]:
    """Return the structure and the texts of a JSON answer, which do not depend on the other lines of its batch."""
    record = json.loads(line)
    others = [alternative["output"] for alternative in record.get("alternatives", [])]
    texts = [record.get(name, "") for name in ("output", "raw", "error")]
    return (sorted(record), record["input"], len(others)), "\t".join([*texts, *others])


def _record(model: Seq2Seq, answer: Answer, asked: Asked, alignment: Alignment | None) -> dict[str, object]:
    """Describe an answer as an object of JSON."""
    record = told(answer, True, asked.options.n_best > 1)
    if answer.error is not None:
        return record
    if asked.raw:
        record["raw"] = model.answerer.raw(answer)
    if alignment is not None:
        if alignment.source != answer.input:
            record["read"] = alignment.source  # the text that the spans refer to
        record["alignment"] = [
            {
                "source": {"number": link.source, "word": source, "span": link.source_span},
                "target": {"number": link.target, "word": target, "span": link.target_span},
                "weight": link.weight,
            }
            for link, (source, target) in zip(alignment.links, alignment.words(), strict=True)
        ]
    return record


def lines_of(path: Path | None, columns: Sequence[str] = ()) -> Iterator[str]:
    """Read the inputs of a file or of standard input, one per line; gzip and xz are unpacked.

    A line of a .jsonl file is a JSON text, or an object with the text under "input", "source" or "text".
    ``columns`` chooses others, by name in an object and by number in a line with tabs. Invalid UTF-8 is kept,
    so that its line can be refused. A file of binary data is refused as a whole.
    """
    from seq2see.data import formats

    if columns and (path is None or formats.kind_of(path) not in RECORDS):
        _check_numbers(columns, path)
    if path is None or str(path) == "-":
        _check_text(sys.stdin.buffer, "Standard input")
        yield from _with_some((_in_cells(text, columns) for text in _texts(sys.stdin.buffer)), columns)
        return
    if path.is_dir() or not path.exists():
        raise UserError(f"There is no file {str(path)!r}: a text file with one input a line was expected.")
    number, read = 0, _in_record if formats.kind_of(path) in RECORDS else _in_cells

    def texts(file: IO[bytes]) -> Iterator[str]:
        nonlocal number
        for line in _texts(file):
            number += 1
            yield read(line, columns)

    try:
        # A path that is not a regular file may be a pipe, which can be opened only once.
        with formats.unpacked(path) if path.is_file() else path.open("rb") as file:
            _check_text(file, path.name)
            yield from _with_some(texts(file), columns)
    except formats.UNREADABLE as error:
        raise UserError(f"{path.name} cannot be read beyond line {number:,}: {error}.") from None


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


def _check_numbers(columns: Sequence[str], path: Path | None) -> None:
    """Refuse --columns that no line can have: names, a target after a comma, the cells of a CSV file."""
    from seq2see.data import formats

    asked = "+".join(columns)
    if "," in asked:
        raise UserError(
            f"--columns is {asked}: the columns of the source were expected, as in --columns "
            f"{asked.split(',')[0]}. predict reads no target."
        )
    if not all(column.isdecimal() and int(column) for column in columns):
        raise UserError(
            f"--columns is {asked}: numbers from 1 on were expected, as in --columns 1+2, for lines with tabs. Names are "
            "for .jsonl files."
        )
    if path is not None and formats.kind_of(path) == ".csv":
        raise UserError(
            f"--columns is {asked}, but {path.name} is a CSV file: lines with tabs or a .jsonl file were expected."
        )


def _with_some(texts: Iterator[str], columns: Sequence[str]) -> Iterator[str]:
    """Return the inputs; if none of the first lines has the columns that --columns names, say so once."""
    head = list(itertools.islice(texts, FIRST if columns else 0))
    lacking = [text for text in head if isinstance(text, NoColumns)]
    if lacking and len(lacking) == len(head):
        raise UserError(lacking[0].reason)
    return itertools.chain(head, texts)


def _in_cells(line: str, columns: Sequence[str]) -> str:
    """Return some columns of a line with tabs, or the line."""
    if not columns or isinstance(line, NoText):
        return line
    cells = line.split("\t")
    if not all(1 <= int(column) <= len(cells) for column in columns):
        told = f"a number from 1 to {len(cells)} was expected for each, as the line has {counted(len(cells), 'column')}"
        return NoColumns(f"--columns is {'+'.join(columns)}: {told}.")
    return "\t".join(cells[int(column) - 1] for column in columns)


def _in_record(line: str, columns: Sequence[str] = ()) -> str:
    """Return the text in a line of JSON."""
    if isinstance(line, NoText):
        return line
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return NoText(f"{shown(line)} is not JSON: a text or an object was expected.")
    if columns and isinstance(found, dict):
        cells = [found.get(name) for name in columns]
        if all(isinstance(cell, str) for cell in cells):
            return "\t".join(map(str, cells))
        return NoColumns(f"The line has no text {' or '.join(columns)}, which --columns names.")
    texts: list[str] = []
    if isinstance(found, dict):
        texts = [name for name, value in found.items() if isinstance(value, str)]
        found = next((found[name] for name in TEXT_KEYS if name in found), None)
    if isinstance(found, str):
        return found
    others = f" --columns {shown('+'.join(texts[:2]))} reads others." if texts else ""
    return NoText(f'The line has no text: a JSON text was expected, or one under "input", "source" or "text".{others}')


class Watch:
    """A progress bar with a speed and the time left. Its first count is what was done before; it has no speed."""

    def __init__(self, task: str, unit: str, total: Callable[[], int | None]) -> None:
        self.task, self.unit, self.total = task, unit, total

    def __enter__(self) -> Callable[[int], None] | None:
        self.bar = progress_bar(self.unit) if sys.stderr.isatty() else None
        if self.bar is None:
            return None
        task = self.bar.add_task(self.task, total=self.total(), speed="")
        self.bar.start()
        started, first, done = time.perf_counter(), -1, 0

        def advance(count: int) -> None:
            nonlocal first, done
            first = count if first < 0 else first
            done += count
            speed = (done - first) / (time.perf_counter() - started)
            assert self.bar is not None
            self.bar.update(task, completed=done, speed=f"{speed:,.0f}/s" if done > first else "")

        return advance

    def __exit__(self, kind: object, value: object, traceback: object) -> None:
        if self.bar is not None:
            self.bar.stop()


def count_lines(path: Path | None) -> int | None:
    """Count the lines of a file; None if it is a pipe or packed."""
    if path is None or not path.is_file() or path.suffix in (".gz", ".xz"):
        return None
    with path.open("rb") as file:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))


class Writer(Unfinished):
    """Standard output, or a file with one answer per line."""

    def __init__(self, path: Path | None, resume: bool) -> None:
        super().__init__(path, resume, COMPARED)

    def __enter__(self) -> Writer:
        if self.path is None:
            self.file = sys.stdout
        elif self.direct:
            try:
                self.file = self.path.open("w", encoding="utf-8", newline="\n")
            except OSError as error:
                raise UserError(f"{str(self.path)!r} cannot be written: {error.strerror or error}.") from None
        else:
            self.open()
        return self

    def write(self, text: str) -> None:
        """Write some text."""
        assert self.file is not None
        self.file.write(text)

    def flush(self) -> None:
        """Pass what is written to the system, so that it survives the end of this process."""
        assert self.file is not None
        self.file.flush()

    def __exit__(self, kind: object, value: object, traceback: object) -> None:
        if not self.direct:
            self.close(kind, value, "answers")
        elif self.path is not None and self.file is not None:
            self.file.close()
