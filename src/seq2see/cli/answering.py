"""Answer many lines window by window, write the answers, and resume after an interruption."""

from __future__ import annotations

import math
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING

from seq2see.answering.answer import told
from seq2see.cli.lines import Unfinished
from seq2see.cli.output import Refusals, complain, in_json, tell_warnings
from seq2see.errors import ORDERS, UserError

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
#: What depends on the other lines of a batch: the digits of a number, and which words belong together.
UNSTABLE = re.compile(
    r'-?(?<!\d)\d++(?:\.\d++(?:e[-+]\d++)?|e[-+]\d++)|"(?:alignment|read)": .*|\t\d++-\d++(?: \d++-\d++)*+$'
)
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

        tell_warnings()
        machine.use(self.threads)
        job = Job(loaded(self.model, self.device, self.engine, characters), self)
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
        aligned = iter(self.model.align(good) if asked.align else ())
        for answer in answers:
            alignment = next(aligned, None) if answer.error is None else None
            if asked.as_json:
                yield in_json(_record(self.model, answer, asked, alignment))
            elif answer.error is not None:
                yield ""
            else:
                columns = [self.model.answerer.raw(answer) if asked.raw else str(answer.output)]
                if asked.options.n_best > 1:
                    columns.append(f"{answer.score:.4f}")
                    for other in answer.alternatives:
                        columns += [other.output, f"{other.score:.4f}"]
                columns += [] if alignment is None else [alignment.pharaoh]
                yield "\t".join(map(_in_one_line, columns))


def _in_one_line(text: str) -> str:
    """Return a text without line breaks and tabs. Most texts have none, which is checked first."""
    return text if text.isprintable() else text.translate(ONE_LINE)


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


def answer_all(
    job: Job,
    inputs: Iterable[str],
    place: str,
    out: Unfinished | TextIOWrapper,
    unsure: Unsure,
    bar: AbstractContextManager[Callable[[int], None]] | None = None,
    done: tuple[int, int] = (0, 0),
    tell: Callable[[str], None] = complain,
) -> tuple[int, int]:
    """Answer window by window, so that memory stays bounded; return how many were answered and refused.

    ``done`` has the two counts of an earlier run.
    """
    answered, refused = done
    refusals, cut, remarks, repairs = (Refusals(place, tell) for _ in range(4))
    with bar or nullcontext(lambda count: None) as advance:
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
            advance(len(answers))
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

    def add(self, number: int, answer: Answer) -> None:
        """Record one answer."""
        self.count += 1
        sure = "" if answer.confidence is None else f"{answer.confidence:.4f}"
        cells = (str(number), sure, answer.input, str(answer.withheld))
        self.rows += ["\t".join(cell.translate(ONE_LINE) for cell in cells) + "\n"] if self.path is not None else []

    def close(self, answered: int) -> None:
        """Say how many there were, and write the list."""
        if self.path is not None:
            from seq2see.files import write_atomically

            write_atomically(self.path, "".join(self.rows).encode("utf-8", errors="replace"))
        if self.least is not None:
            where = f"; {self.path} lists them" if self.path is not None and self.count else ""
            self.tell(
                f"{answered - self.count:,} of {answered:,} answers have a confidence of {self.least:g} or more; "
                f"{self.count:,} were withheld{where}."
            )


def skip(job: Job, inputs: Iterator[str], out: Unfinished) -> tuple[int, int]:
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
    """Whether the model would write this line now, apart from what depends on the other lines of its batch."""
    now, line = (UNSTABLE.sub("#", one) for one in (next(job.lines(next(job.windows([text])))), line))
    if job.engine_name().endswith("bfloat16"):  # a word may depend on the other lines, too
        from difflib import SequenceMatcher

        return SequenceMatcher(None, now, line).ratio() > 0.5
    return now == line
