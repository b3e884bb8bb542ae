"""``seq2see predict`` and ``seq2see demo``."""

from __future__ import annotations

import itertools
import json
import math
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from seq2see.cli.output import Refusals, complain, console, in_json, progress_bar
from seq2see.errors import ORDERS, UserError

if TYPE_CHECKING:
    from seq2see.answer import Answer
    from seq2see.config import DecodingConfig
    from seq2see.decoding.allowed import Automaton
    from seq2see.inspection.alignment import Alignment
    from seq2see.seq2seq import Seq2Seq
    from seq2see.text.terms import Glossary

WINDOW = 8192  # inputs held in memory at a time, and sorted by length
COMPARED = 4  # last lines of an interrupted run that must be as they would be now
#: What ends a line or a column becomes a space, and what a terminal would take as an order is escaped.
ONE_LINE = ORDERS | dict.fromkeys(map(ord, "\n\r\t"), " ")
HELD = 2**24  # characters of inputs held in memory at a time
LONGEST = 4_000_004  # bytes of a line that are read; so many are more characters than any model takes
DOCUMENT_DATES = ["1845-01-05", "1845-01-06", "1426-08-10", "2025-09-03"]

UNFINISHED = (
    "The answer did not come to its end within the most tokens that it may have: --max-length allows more."
)

ModelName = Annotated[
    str, typer.Option("--model", "-m", metavar="NAME|DIR", help="A model that ships, or a model folder.")
]

Threads = Annotated[
    int | None,
    typer.Option(
        "--threads", metavar="N", min=1, help="Of the CPU; without it, as many as there are free cores."
    ),
]

Device = Annotated[str, typer.Option("--device", help="cpu, or cuda: through torch, on the GPU.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(predict)
    app.command()(demo)


def predict(
    texts: Annotated[list[str] | None, typer.Argument(metavar="TEXT…", help="What to answer.")] = None,
    dates: Annotated[str | None, typer.Option("--dates", help="Dates with commas between: a,b,c.")] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE",
            help="One input a line, or with --format a document; - for standard input.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the answers here.")
    ] = None,
    model: ModelName = "dates",
    beam: Annotated[
        int | None,
        typer.Option("--beam", "-b", min=1, help="Prefixes kept open; 1 is greedy; by the model."),
    ] = None,
    n_best: Annotated[
        int, typer.Option("--n-best", "-n", min=1, help="Answers to each input, best first.")
    ] = 1,
    length_penalty: Annotated[
        float | None,
        typer.Option(
            "--length-penalty", metavar="A", help="More prefers longer answers in a beam; by the model."
        ),
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option("--max-length", metavar="N", min=1, help="Tokens of an answer at most; by the model."),
    ] = None,
    order: Annotated[
        str | None,
        typer.Option("--order", metavar="day|month", help="With human-dates: what is first in 03/04/2020."),
    ] = None,
    min_confidence: Annotated[
        float | None,
        typer.Option(
            "--min-confidence",
            metavar="P",
            min=0,
            max=1,
            help="Give only answers that are right with this probability; the others are withheld.",
        ),
    ] = None,
    withheld: Annotated[
        Path | None,
        typer.Option(
            "--withheld",
            metavar="FILE",
            help="List what was withheld: number, confidence, input, answer, with tabs between.",
        ),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="F",
            help="A whole document goes in and comes out: text, html, markdown, srt, po or json.",
        ),
    ] = None,
    glossary: Annotated[
        Path | None,
        typer.Option(
            "--glossary", metavar="FILE", help="A term, a tab and its translation a line; a term alone stays."
        ),
    ] = None,
    only: Annotated[
        Path | None, typer.Option("--only", metavar="FILE", help="Answer only with lines of this file.")
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(
            "--pattern", metavar="REGEX", help="Answer only what this expression matches as a whole."
        ),
    ] = None,
    prefix: Annotated[
        str | None, typer.Option("--prefix", metavar="TEXT", help="Answer only what begins with this.")
    ] = None,
    whole: Annotated[
        bool, typer.Option("--whole", help="Take each text as it is, even if the model is one of sentences.")
    ] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="Show <sos>, <eos> and <pad>, as the documents do.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a line, with probabilities.")
    ] = False,
    align: Annotated[
        bool,
        typer.Option(
            "--align",
            help="Add which word comes from which: SOURCE-TARGET numbers; with --json, words and places.",
        ),
    ] = False,
    engine: Annotated[
        str,
        typer.Option("--engine", metavar="NAME", help="auto, torch, or ctranslate2 (of an exported model)."),
    ] = "auto",
    device: Device = "cpu",
    compiled: Annotated[
        bool,
        typer.Option("--compile", help="For a million lines on a GPU: compile each shape first, ½ minute."),
    ] = False,
    threads: Threads = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an interrupted --out after its last whole line.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Say which engine answers, on standard error.")
    ] = False,
) -> None:
    """Answer texts: from the command line, a file, or standard input.

    One line comes out for each that goes in, in order; a line break or a tab within an answer becomes a space
    (in JSON it stays). A text that the model cannot take gets an empty line (an "error" in JSON), and the first
    ten are explained on standard error. Exit status: 0 if all were answered, 1 if some were refused, 2 if none
    could be. An interrupted run leaves FILE.part beside --out FILE.

    With --min-confidence a line is empty (in JSON it has an "error") where the answer is less sure, or where the
    input is unlike those that the model was trained on. That is no refusal: the exit status stays 0.
    A model whose config says [decoding] sentences = true cuts each text into sentences, and sees to it that
    numbers, addresses and placeholders come through; --whole turns this off. With --format, the input is one
    document of which only the words change.

    --align adds a tab and the word alignment from cross-attention in the Pharaoh form: 0-0 1-2 says that word 0
    of the answer comes from word 0 of the input, and 2 from 1. A word is letters or digits in a row; a sign is a
    word of its own.

    [dim]seq2see predict 1845-01-05 2025-09-03[/dim]

    [dim]seq2see predict --file dates.txt --out words.txt[/dim]

    [dim]seq2see predict 1845-01-05 --align --json[/dim]

    [dim]seq2see predict --model en-fr --format html --file page.html --out page.fr.html[/dim]
    """
    given = [texts is not None, dates is not None, file is not None]
    if sum(given) > 1:
        raise UserError("Texts were given in more than one way: use one of TEXT…, --dates and --file.")
    if not any(given) and sys.stdin.isatty():
        raise UserError(
            "There is nothing to answer: give texts, --dates=a,b,c or --file F, or pipe lines in."
        )
    if resume and (out is None or texts is not None or dates is not None):
        raise UserError("--resume goes on with a file of answers: it needs --out, and --file or piped lines.")
    if out is not None and file is not None and out.exists() and file.exists() and out.samefile(file):
        raise UserError(f"--file and --out are both {str(out)!r}: the answers would replace the questions.")
    if withheld is not None and min_confidence is None:
        raise UserError("--withheld lists answers that are less sure than --min-confidence: give both.")
    if form is not None:
        clashes = {"--json": as_json, "--align": align, "--raw": raw, "--n-best": n_best > 1, "--whole": whole,
                   "--dates": dates, "--only": only, "--pattern": pattern, "--prefix": prefix}  # fmt: skip
        if clash := next((name for name, given in clashes.items() if given), None):
            raise UserError(
                f"--format writes a document, for which {clash} has no meaning: leave one of them out."
            )
        from seq2see.text.documents import check_format

        check_format(form)
    from seq2see import machine
    from seq2see.seq2seq import load
    from seq2see.text.terms import Glossary

    machine.use(threads)
    loaded = load(model, device, engine, compiled)
    rules = loaded.rules(beam, length_penalty, max_length, n_best)
    terms = None if glossary is None else Glossary.read(glossary)
    if form is not None:
        from seq2see.cli.documents import translate

        if verbose:
            complain(f"answered by {loaded.engine_for(WINDOW, rules.beam).name}")
        translate(loaded, form, rules, terms, texts, file, out, resume)
        return
    held = loaded.allowed(None if only is None else _list(only), pattern, prefix)
    shape = Form(loaded, rules, n_best, raw, as_json, align, order, min_confidence, held, terms, whole)
    if verbose:
        complain(f"answered by {shape.engine_name(1 if texts else WINDOW)}")
    unsure = Unsure(withheld, min_confidence)
    with _Writer(out, resume) as writer, unsure:
        if texts is not None or dates is not None:
            inputs: Iterable[str] = texts if texts is not None else str(dates).split(",")
            answered, refused = _answer_all(shape, inputs, "input", writer, nullcontext(), unsure)
        else:
            bar = _Watch(file)
            answered, refused = _answer_all(shape, _lines(file), "line", writer, bar, unsure)
        if refused + answered == 0:
            raise UserError("The input is empty: there is nothing to answer.")
    if refused:
        complain(f"{answered:,} answered, {refused:,} refused.")
        raise typer.Exit(1 if answered else 2)


@dataclass(frozen=True)
class Form:
    """A model and how its answers are asked for and written."""

    model: Seq2Seq
    rules: DecodingConfig
    n_best: int
    raw: bool
    as_json: bool
    align: bool
    order: str | None = None
    min_confidence: float | None = None
    held: Automaton | None = None
    glossary: Glossary | None = None
    whole: bool = False

    def answers(self, window: list[str]) -> list[Answer]:
        """Answer some inputs, with probabilities only if they are shown."""
        return self.model.answers(
            window,
            self.rules.beam,
            self.n_best,
            probabilities=self.as_json,
            length_penalty=self.rules.length_penalty,
            max_length=self.rules.max_length,
            order=self.order,
            min_confidence=self.min_confidence,
            whole=self.whole,
            only=self.held,
            glossary=self.glossary,
        )

    def engine_name(self, inputs: int) -> str:
        """Name the engine that answers so many inputs."""
        return self.model.engine_for(inputs, self.rules.beam, self.n_best, self.held is not None).name

    def lines(self, answers: list[Answer]) -> Iterator[str]:
        """Write each answer as a line: its alternatives and its alignment follow after tabs."""
        good = [answer for answer in answers if answer.error is None]
        aligned = iter(self.model.align(good) if self.align else ())
        for answer in answers:
            alignment = next(aligned, None) if answer.error is None else None
            if self.as_json:
                record = _record(self.model, answer, self.n_best, self.raw, alignment)
                yield in_json(record)
            elif answer.error is not None:
                yield ""
            else:
                best = self.model.raw(answer) if self.raw else str(answer.output)
                others = [alternative.output for alternative in answer.alternatives]
                columns = [best, *others, *([] if alignment is None else [alignment.pharaoh])]
                yield "\t".join(column.translate(ONE_LINE) for column in columns)


def _answer_all(
    form: Form,
    inputs: Iterable[str],
    place: str,
    out: _Writer,
    watch: _Watch | nullcontext[None],
    unsure: Unsure,
) -> tuple[int, int]:
    """Answer window by window, so that memory stays bounded; return how many were answered and refused."""
    remaining = iter(inputs)
    answered, refused = _skip(form, remaining, out)
    refusals, cut, remarks, repairs = (Refusals(place) for _ in range(4))
    with watch as bar:
        if bar is not None:
            bar(answered + refused)
        while window := _window(remaining):
            answers = form.answers(window)
            for answer, line in zip(answers, form.lines(answers), strict=True):
                if answer.error is None or answer.withheld is not None:
                    answered += 1
                    if answer.withheld is not None:
                        unsure.add(answered + refused, answer)
                    elif not answer.finished:
                        cut.add(answered + refused, UNFINISHED)
                    if answer.remark is not None and answer.withheld is None:
                        remarks.add(answered + refused, answer.remark)
                    if answer.repairs:
                        repairs.add(answered + refused, "; ".join(answer.repairs) + ".")
                else:
                    refused += 1
                    refusals.add(answered + refused, answer.error)
                out.write(line + "\n")
            out.flush()
            if bar is not None:
                bar(len(window))
    refusals.close("the answers say why" if form.as_json else "--json says why for each")
    cut.close('"finished" says which' if form.as_json else "--json says which", "cut")
    remarks.close('"remark" says why' if form.as_json else "--json says why", "remarked on")
    unsure.close(answered)
    repairs.close('"repairs" says which' if form.as_json else "--json says which", "answered with a remark")
    return answered, refused


class Unsure:
    """Counts answers that are less sure than was asked for, and lists them in a file."""

    def __init__(self, path: Path | None, least: float | None) -> None:
        self.path, self.least, self.count = path, least, 0
        self.rows: list[str] = []

    def __enter__(self) -> Unsure:
        return self

    def add(self, number: int, answer: Answer) -> None:
        """Take note of one."""
        self.count += 1
        if self.path is not None:
            sure = "" if answer.confidence is None else f"{answer.confidence:.4f}"
            cells = (str(number), sure, answer.input, str(answer.withheld))
            self.rows.append("\t".join(cell.translate(ONE_LINE) for cell in cells) + "\n")

    def close(self, answered: int) -> None:
        """Say how many there were."""
        if self.least is not None:
            where = f"; {self.path} lists them" if self.path is not None and self.count else ""
            complain(
                f"{answered - self.count:,} of {answered:,} answers have a confidence of {self.least:g} or more; "
                f"{self.count:,} were withheld{where}."
            )

    def __exit__(self, kind: object, value: object, traceback: object) -> None:
        if self.path is not None and kind is None:
            from seq2see.files import write_atomically

            write_atomically(self.path, "".join(self.rows).encode("utf-8", errors="replace"))


def _window(inputs: Iterator[str]) -> list[str]:
    """Take the inputs that are answered together: not too many, and not too much text."""
    window, size = list[str](), 0
    while len(window) < WINDOW and size < HELD and (text := next(inputs, None)) is not None:
        window.append(text)
        size += len(text)
    return window


def _skip(form: Form, inputs: Iterator[str], out: _Writer) -> tuple[int, int]:
    """Pass over the inputs that an interrupted run has answered; return how many it answered and refused."""
    from seq2see.errors import InputError

    refused, last = 0, deque[str](maxlen=COMPARED)
    for _ in range(out.lines):
        text = next(inputs, None)
        if text is None:
            raise UserError(
                f"{out.part} has {out.lines:,} lines, more than the input: it is of another input."
            )
        try:
            form.model.check(text)
        except InputError:
            refused += 1
        last.append(text)
    for number, (text, line) in enumerate(zip(last, out.last, strict=True), out.lines - len(last) + 1):
        if not _same(form, text, line):
            raise UserError(
                f"{out.part} is of another input, another model or other options (line {number:,} would now differ): "
                "give those of the interrupted run, or remove it."
            )
    return out.lines - refused, refused


def _same(form: Form, text: str, line: str) -> bool:
    """Whether a line is what the model would write now, but for what the last digits may depend on."""
    now = next(form.lines(form.answers([text])))
    if form.as_json:
        try:
            (form_now, now), (form_then, line) = _fixed(now), _fixed(line)
        except (ValueError, AttributeError, TypeError, KeyError):  # not a line of ours
            return False
        if form_now != form_then:
            return False
    elif form.align:  # a link may hang on the last digits of a weight
        now, line = (text.rpartition("\t")[0] for text in (now, line))
    if form.engine_name(WINDOW).endswith("bfloat16"):
        from difflib import SequenceMatcher

        # a word may hang on the other lines of its batch
        return SequenceMatcher(None, now, line).ratio() > 0.5
    return now == line


def _fixed(line: str) -> tuple[object, str]:
    """Return the form and the texts of a JSON answer: what the other lines of its batch do not change."""
    record = json.loads(line)
    others = [alternative["output"] for alternative in record.get("alternatives", [])]
    texts = [record.get(name, "") for name in ("output", "raw", "error")]
    return (sorted(record), record["input"], len(others)), "\t".join([*texts, *others])


def _record(
    model: Seq2Seq, answer: Answer, n_best: int, raw: bool, alignment: Alignment | None
) -> dict[str, object]:
    if answer.error is not None:
        refusal: dict[str, object] = {
            "input": answer.input.encode(errors="replace").decode(),
            "error": answer.error,
        }
        if answer.withheld is None:
            return refusal
        return {**refusal, "withheld": answer.withheld, "confidence": answer.confidence}
    record: dict[str, object] = {
        "input": answer.input,
        "output": answer.output,
        "finished": answer.finished,
        **({} if answer.confidence is None else {"confidence": answer.confidence}),
        **({} if answer.remark is None else {"remark": answer.remark}),
        "log_probability": answer.log_probability,
        "tokens": [{"token": token.token, "probability": token.probability} for token in answer.tokens],
    }
    if answer.repairs:
        record["repairs"] = answer.repairs
    if raw:
        record["raw"] = model.raw(answer)
    if n_best > 1:
        record["alternatives"] = [
            {"output": alternative.output, "log_probability": alternative.log_probability}
            for alternative in answer.alternatives
        ]
    if alignment is not None:
        if alignment.source != answer.input:
            record["read"] = alignment.source  # the text that the spans are of
        record["alignment"] = [
            {
                "source": {"number": link.source, "word": source, "span": link.source_span},
                "target": {"number": link.target, "word": target, "span": link.target_span},
                "weight": link.weight,
            }
            for link, (source, target) in zip(alignment.links, alignment.words(), strict=True)
        ]
    return record


def _list(path: Path) -> list[str]:
    """Read the answers that are allowed, one a line."""
    if not path.is_file():
        raise UserError(
            f"There is no file {str(path)!r}: a text file with one allowed answer a line was expected."
        )
    try:
        lines = path.read_bytes().decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise UserError(f"{str(path)!r} is not UTF-8 text: one allowed answer a line was expected.") from None
    return [line for line in lines if line.strip()]


def _lines(path: Path | None) -> Iterator[str]:
    """Read lines from a file or standard input; bytes that are not UTF-8 stay, so that their line can be refused."""
    if path is not None and str(path) != "-" and (path.is_dir() or not path.exists()):
        raise UserError(f"There is no file {str(path)!r}: a text file with one input a line was expected.")
    with path.open("rb") if path is not None and str(path) != "-" else sys.stdin.buffer as file:
        for number in itertools.count():
            line = file.readline(LONGEST)
            if not line:
                return
            if len(line) == LONGEST and not line.endswith(b"\n"):
                while len(rest := file.readline(LONGEST)) == LONGEST and not rest.endswith(b"\n"):
                    pass  # the rest of a line that is refused for its length is not held in memory
            text = line.decode("utf-8", errors="surrogateescape").removesuffix("\n").removesuffix("\r")
            yield text if number else text.removeprefix("\ufeff")  # a byte order mark is no part of the text


class _Watch:
    """A progress bar over the lines of a file: how many a second, how long still."""

    def __init__(self, path: Path | None) -> None:
        self.path = path

    def __enter__(self) -> Callable[[int], None] | None:
        self.bar = progress_bar("lines") if sys.stderr.isatty() else None
        if self.bar is None:
            return None
        total = _count_lines(self.path) if self.path is not None and self.path.is_file() else None
        task = self.bar.add_task("answering", total=total, speed="")
        self.bar.start()
        started, first, done = time.perf_counter(), -1, 0

        def advance(count: int) -> None:
            nonlocal first, done
            first = count if first < 0 else first  # what an earlier run has done says nothing of our speed
            done += count
            speed = (done - first) / (time.perf_counter() - started)
            assert self.bar is not None
            self.bar.update(task, completed=done, speed=f"{speed:,.0f}/s" if done > first else "")

        return advance

    def __exit__(self, kind: object, value: object, traceback: object) -> None:
        if self.bar is not None:
            self.bar.stop()


def _count_lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))


class _Writer:
    """Standard output, or a file that appears under its name only when it is whole; until then it is NAME.part."""

    def __init__(self, path: Path | None, resume: bool) -> None:
        self.path, self.resume = path, resume
        self.lines = 0  # that an interrupted run has written, whole ones only
        self.last = deque[str](maxlen=COMPARED)  # of these
        # A device such as /dev/null is written to, never replaced.
        self.direct = path is None or (path.exists() and not path.is_file() and not path.is_dir())
        self.part = Path(f"{path}.part")

    def __enter__(self) -> _Writer:
        try:
            self.file = self._open()
        except OSError as error:
            raise UserError(f"{str(self.path)!r} cannot be written: {error.strerror}.") from None
        return self

    def _open(self) -> TextIO:
        if self.path is None:
            return sys.stdout
        if self.direct:
            return self.path.open("w", encoding="utf-8")
        if self.path.is_dir():
            raise UserError(f"{str(self.path)!r} cannot be written: it is a folder.")
        if not self.part.exists():
            return self.part.open("x", encoding="utf-8")
        if not self.resume:
            raise UserError(
                f"{str(self.part)!r} is there, of a run that was interrupted: go on with --resume, or remove it."
            )
        whole = 0
        with self.part.open("rb+") as file:
            for line in file:
                if line.endswith(b"\n"):
                    self.lines, whole = self.lines + 1, whole + len(line)
                    self.last.append(line.decode("utf-8", errors="replace").removesuffix("\n"))
            file.truncate(whole)
        return self.part.open("a", encoding="utf-8")

    def write(self, text: str) -> None:
        """Write some text."""
        self.file.write(text)

    def flush(self) -> None:
        """Hand what is written to the system, so that it outlives this process."""
        self.file.flush()

    def __exit__(self, kind: object, value: object, traceback: object) -> None:
        if self.path is None:
            return
        if kind is None and not self.direct:  # the name is given to what is on the disk
            self.file.flush()
            os.fsync(self.file.fileno())
        self.file.close()
        if self.direct:
            return
        if kind is KeyboardInterrupt:
            complain(f"Stopped; {self.part} holds the answers so far, and --resume goes on.")
        if kind is None:
            self.part.replace(self.path)
        elif isinstance(value, UserError) and not self.lines:
            self.part.unlink()  # the same run would fail again: there is nothing to go on with


def _at_least(probability: float | None) -> str:
    """Write a probability, rounded down, in the digits that float32 holds beside 1."""
    assert probability is not None
    return f"{math.floor(probability * 1e5) / 1e5:.3%}"


def demo() -> None:
    """Show the model that ships at work: four dates, how sure it is, and what to try next."""
    from rich.table import Table

    from seq2see.folder import find, parameter_count
    from seq2see.seq2seq import load

    model = load("dates")
    table = Table(title="ISO dates into words, letter by letter", title_justify="left", title_style="bold")
    table.add_column("you say")
    table.add_column("it answers", style="bold")
    table.add_column("sure", justify="right")
    table.add_column("least sure of", justify="center")
    for answer in model.answers(DOCUMENT_DATES):
        least = min(answer.tokens, key=lambda token: token.probability)
        table.add_row(
            answer.input,
            answer.output,
            _at_least(answer.probability),
            f"{least.token!r} {_at_least(least.probability)}",
        )
    console.print()
    console.print(table)
    shape = model.config.model
    console.print(
        f"A Transformer of {parameter_count(find('dates')):,} parameters: {shape.encoder_layers}+"
        f"{shape.decoder_layers} layers, {shape.heads} heads, d_model {shape.d_model}.\n"
    )
    console.print("[bold]Try next[/bold]")
    for command, what in (
        ("seq2see predict 1999-12-31", "any date of the years 1000-9999"),
        ("seq2see predict 1999-12-31 --json", "the same with probabilities"),
        ("seq2see trace 1999-12-31", "every number on the way"),
        ("seq2see train dates --out my-dates", "train it yourself, in minutes"),
        ("seq2see --help", "all commands"),
    ):
        console.print(f"  {command:36} [dim]{what}[/dim]")
