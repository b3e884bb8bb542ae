"""A model with its examples, and tables whose empty cells it fills in as their filled ones show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from seq2see.answering import examples
from seq2see.answering.answer import Answer
from seq2see.answering.answerer import Input
from seq2see.answering.examples import LEAST, Pairs
from seq2see.answering.options import Options
from seq2see.errors import UserError, counted, shown, suggest
from seq2see.inspection.trace import Trace
from seq2see.seq2seq import Seq2Seq

BETWEEN = " | "  # the cells of a row that are read together
CANDIDATES, FOLLOWING = 3, 8  # rows that may be asked about; rows that are answered again to see what follows


class Like(Seq2Seq):
    """A model that answers as its examples show."""

    pairs: Pairs

    def answers(
        self, texts: Iterable[Input], options: Options | None = None, *, probabilities: bool = True, **given: Any
    ) -> list[Answer]:
        """Answer many texts by the examples."""
        asked = replace(Options.of(options, given), like=self.pairs)
        return super().answers(texts, asked, probabilities=probabilities)

    def trace(
        self, text: Input, target: str | None = None, edit: dict[str, Any] | None = None, member: int = 0
    ) -> Trace:
        """Answer one text by one order of the examples, and keep every number on the way."""
        read = examples.draws(self.pairs, self.answerer.text_of(text), self.config.model.max_length)[0]
        return super().trace(read, target, edit, member)


def like(pairs: Any, model: str = examples.TASK, device: str = "cpu", engine: str = "auto") -> Like:
    """Return a model that answers as some pairs of an input and its output show.

    Its answers do not depend on the order of the pairs. ``engine="int8"`` is about twice as fast for many texts.

    >>> import seq2see
    >>> try:
    ...     seq2see.like([("Ann Jones", "Jones, Ann"), ("Ann Jones", "A. Jones")])
    ... except seq2see.UserError as error:
    ...     print(error)
    The example 'Ann Jones' becomes 'Jones, Ann', and then 'A. Jones': keep one of them.
    """
    given = examples.pairs_of(pairs)
    made = Like.load(model, device, engine)
    assert isinstance(made, Like)
    examples.check_model(made.config.task)
    made.pairs = given
    return made


@dataclass(frozen=True)
class Unsure:
    """A row whose cell stays empty."""

    row: int  # its number, from 1; as the file counts them, if the table is one
    input: str
    answer: Answer


@dataclass(frozen=True)
class Filled:
    """A table whose empty cells are filled in, as far as the answers are sure."""

    table: Any  # a new one, of the kind that was given
    column: str
    filled: int
    unsure: list[Unsure]
    question: str  # which row to fill in next; empty if no answer would help


def fill(
    table: Any,
    column: str | None = None,
    using: Sequence[str] = (),
    *,
    model: str = examples.TASK,
    min_confidence: float | None = LEAST,
    rows: Sequence[int] = (),
) -> Filled:
    """Fill in the empty cells of a column as its filled ones show, from the other columns or those that are named.

    The table is a frame of pandas or polars, or a dict of columns; it does not change. A cell stays empty if the
    confidence of its answer is below ``min_confidence``; ``unsure`` lists these cells, and ``question`` says which of
    them to fill in by hand. ``rows`` are the numbers of the rows, if they are not 1, 2 …

    >>> import seq2see
    >>> try:
    ...     seq2see.fill({"name": ["Ann Jones", "Bo Li"], "short": [None, None]}, "short")
    ... except seq2see.UserError as error:
    ...     print(str(error).partition(":")[0])
    The column 'short' has no filled cell
    """
    names = [str(name) for name in (table if isinstance(table, Mapping) else table.columns)]
    values = {name: [_text(value) for value in table[name]] for name in names}
    column, using = chosen(values, column, using)
    wanted = values[column]
    texts = [BETWEEN.join(row) if any(row) else "" for row in zip(*(values[name] for name in using), strict=True)]
    pairs = examples.pairs_of([(text, cell) for text, cell in zip(texts, wanted, strict=True) if cell and text])
    empty = [n for n, (text, cell) in enumerate(zip(texts, wanted, strict=True)) if text and not cell]
    made = _fast(pairs, model)
    answers = dict(zip(empty, made.answers([texts[n] for n in empty], min_confidence=min_confidence), strict=True))
    cells = [cell or (answers[n].output if n in answers else None) or None for n, cell in enumerate(wanted)]
    numbers = rows or range(1, len(texts) + 1)
    unsure = [Unsure(numbers[n], texts[n], answer) for n, answer in answers.items() if answer.output is None]
    whole: Any
    if isinstance(table, Mapping):
        whole = {**table, column: cells}
    elif hasattr(table, "with_columns"):
        whole = table.with_columns(type(table[column])(column, cells))
    else:
        whole = table.assign(**{column: cells})
    return Filled(whole, column, len(empty) - len(unsure), unsure, _question(made, unsure, min_confidence))


def chosen(values: Mapping[str, Sequence[str]], column: str | None, using: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return the column to fill in, which may be the only one with some empty cells, and those to read."""
    for name in filter(None, [column, *using]):
        if name not in values:
            raise UserError(f"The table has no column {shown(name)}. {suggest(name, values)}")
    begun = [name for name, cells in values.items() if any(cells) and not all(cells)]
    if column is None and len(begun) != 1:
        told = f"{len(begun)} columns have ({', '.join(begun)})" if begun else "no column has"
        raise UserError(f"One column with filled cells and empty ones was expected, but {told}: name it with `column`.")
    column = column or begun[0]
    if column not in begun:
        raise UserError(
            f"The column {shown(column)} has no {'empty' if any(values[column]) else 'filled'} cell: one was expected in "
            "which some cells are filled in and others are empty."
        )
    using = list(using) or [name for name in values if name != column]
    if column in using or not using:
        raise UserError(f"The column {shown(column)} cannot be filled in from itself: name another with `using`.")
    return column, using


def _text(value: Any) -> str:
    """Return the text of a cell; an empty one may be None or not a number."""
    if value is None or value != value:
        return ""
    return str(int(value) if isinstance(value, float) and value.is_integer() else value).strip()


def _fast(pairs: Pairs, model: str) -> Like:
    """Return a model that answers in eight bits, if this machine can."""
    try:
        return like(pairs, model, engine="int8")
    except UserError:
        return like(pairs, model)


def _question(model: Like, unsure: Sequence[Unsure], least: float | None) -> str:
    """Ask for the row whose answer would make most others sure."""
    best, told = -1, ""
    some = unsure[:CANDIDATES] if least else []
    for one, two in zip(some, model.answers([one.input for one in some], n_best=2), strict=True):
        others = [other.input for other in unsure if other.input != one.input][:FOLLOWING]
        readings = list(dict.fromkeys(filter(None, [two.output, *(other.output for other in two.alternatives)])))[:2]
        if len(readings) < 2 or not all(reading.strip() for reading in readings):
            continue
        follow = 0
        for reading in readings if others else ():
            with_it = Options(like=(*model.pairs, (one.input, reading)), min_confidence=least)
            follow += sum(answer.output is not None for answer in model.answerer.answer(others, with_it))
        if follow > best:
            best = follow
            then = f": {follow // 2} of {counted(len(others), 'other')} would then be sure" if follow > 1 else ""
            told = f"Is {shown(one.input)} {shown(readings[0])} or {shown(readings[1])}? Fill in row {one.row}{then}."
    return told
