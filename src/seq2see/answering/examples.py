"""Answers by examples: a model reads some pairs and a question in one text, and writes what the question becomes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import exp, log
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from seq2see.answering.answer import Alternative, Answer
from seq2see.errors import InputError, UserError, counted, shown
from seq2see.files import given_text

if TYPE_CHECKING:
    from seq2see.evaluation.confidence import Confidence

TASK = "examples"  # of a model that reads examples, and the name of the one that ships
BECOMES, NEXT, QUESTION = "␟", "␞", "␝"  # between input and output, before the next example, before the question
ARROW = "=>"
ORDERS = 3  # of the examples, which vote
SURE = 0.97  # probability of an answer from which one order suffices
DOUBT = "One example has many readings: show two or more."
LEAST = 0.9  # confidence from which a cell of a table is filled in
LIKELY = 0.2  # share of the votes from which another answer is named

Pair = tuple[str, str]
Pairs = tuple[Pair, ...]


# --- what is given -------------------------------------------------------------------------------------------------


def pairs_of(given: Any) -> Pairs:
    """Return examples, checked, each once: pairs of texts, or a dict of inputs and outputs."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise UserError(f"`like` is {given!r:.60}: pairs of texts were expected, as in [('Ann Jones', 'Jones, Ann')].")
    found: dict[str, str] = {}
    for number, pair in enumerate(given.items() if isinstance(given, Mapping) else given, 1):
        good = isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(text, str) for text in pair)
        if not good or not all(text.strip() for text in pair):
            raise UserError(
                f"Example {number} is {pair!r:.60}: an input and its output were expected, two texts, none of them empty."
            )
        for text in pair:
            check_signs(text)
        before, after = pair
        if found.setdefault(before, after) != after:
            raise UserError(
                f"The example {shown(before)} becomes {shown(found[before])}, and then {shown(after)}: keep one of them."
            )
    if not found:
        raise UserError("There is no example: one pair of an input and its output was expected at least.")
    return tuple(found.items())


def read(values: Sequence[str]) -> list[Pair]:
    """Read the examples of a command: ``INPUT => OUTPUT``, or a file with such lines, or with tabs."""
    found: list[Pair] = []
    for value in values:
        if ARROW in value or "\t" in value:
            found.append(_cut(value, "`like`"))
            continue
        if not Path(value).is_file():
            raise UserError(
                f"`like` is {shown(value)}, which has no arrow and is no file: an example was expected, as in "
                "'Ann Jones => Jones, Ann', or a file with one in each line."
            )
        lines = given_text(Path(value), "a text file with one example in each line").splitlines()
        found += [_cut(line, f"Line {n} of {value}") for n, line in enumerate(lines, 1) if line.strip()]
    return found


def _cut(text: str, place: str) -> Pair:
    sign = "\t" if "\t" in text else ARROW
    before, *after = text.split(sign)
    if len(after) != 1:
        had = "no arrow" if not after else counted(len(after), "tab" if sign == "\t" else "arrow")
        raise UserError(
            f"{place} is {shown(text)}, which has {had}: INPUT => OUTPUT was expected, or a tab between the two."
        )
    return before.strip(), after[0].strip()


def check_signs(text: str) -> None:
    """Refuse a text with one of the signs between examples."""
    if sign := next((one for one in (BECOMES, NEXT, QUESTION) if one in text), ""):
        raise InputError(f"{shown(text)} has the sign {sign} (U+{ord(sign):04X}), which separates examples: remove it.")


def check(text: str) -> None:
    """Refuse a source without examples."""
    if QUESTION not in text:
        raise InputError(f"{shown(text)} comes without examples: give some with `like`.")


def check_model(task: str) -> None:
    """Refuse examples for a model that does not read any."""
    if task != TASK:
        raise UserError(f"`like` is for a model that reads examples, as {TASK} does; the task of this model is {task}.")


# --- what the model reads ------------------------------------------------------------------------------------------


def source(pairs: Sequence[Pair], question: str) -> str:
    """Return what the model reads."""
    return NEXT.join(f"{before}{BECOMES}{after}" for before, after in pairs) + QUESTION + question


def draws(pairs: Pairs, question: str, longest: int) -> list[str]:
    """Return some sources with the examples in different orders; where not all of them fit, with different ones.

    The orders do not depend on the order in which the examples were given.
    """
    check_signs(question)
    fixed = sorted(pairs, key=lambda pair: (crc32("\t".join(pair).encode()), pair))
    found: dict[str, None] = {}
    for number in range(ORDERS):
        first = number * len(fixed) // ORDERS
        room, some = longest - 2 - len(question.encode()), list[Pair]()  # each sign is one token, as each byte is
        for pair in fixed[first:] + fixed[:first]:
            size = len("".join(pair).encode()) + 2
            if size <= room:
                room -= size
                some.append(pair)
        if some:
            found[source(some, question)] = None
    if not found:
        size = min(len("".join(pair).encode()) for pair in pairs) + len(question.encode())
        raise InputError(
            f"{shown(question)} and the shortest example have {size:,} bytes, but this model reads at most "
            f"{longest - 4:,}: give shorter ones."
        )
    return [*found]


# --- the answers ---------------------------------------------------------------------------------------------------


def answered(
    asked: Sequence[tuple[Pairs, str]],
    longest: int,
    search: Callable[[list[str]], list[Answer]],
    confidence: Confidence | None,
) -> list[Answer]:
    """Answer questions by their examples. One order of the examples answers; if it is not sure, others vote, too."""
    sources: dict[tuple[Pairs, str], list[str]] = {}
    found: dict[tuple[Pairs, str], list[Answer]] = {}
    for one in dict.fromkeys(asked):
        try:
            sources[one] = draws(*one, longest)
        except InputError as error:
            found[one] = [Answer(one[1], None, error=str(error))]
    first = search([some[0] for some in sources.values()])
    for one, answer in zip(sources, first, strict=True):
        found[one] = [answer]
    unsure = [one for one, some in sources.items() if len(some) > 1 and (found[one][0].probability or 0.0) < SURE]
    others = [text for one in unsure for text in sources[one][1:]]
    more = iter(search(others))
    for one in unsure:
        found[one] += [next(more) for _ in sources[one][1:]]
    told = {one: _voted(confidence, *one, answers) for one, answers in found.items()}
    return [told[one] for one in asked]


def _voted(confidence: Confidence | None, pairs: Pairs, question: str, answers: Sequence[Answer]) -> Answer:
    """Return the answer with the largest mean probability."""
    votes: dict[str, float] = {}
    for answer in answers:
        for output, value in (
            (answer.output, answer.log_probability),
            *((other.output, other.log_probability) for other in answer.alternatives),
        ):
            if output is not None and value is not None:
                votes[output] = votes.get(output, 0.0) + exp(value) / len(answers)
    if not votes:
        return replace(answers[0], input=question)
    best, *others = sorted(votes, key=lambda output: -votes[output])
    agreeing = [answer for answer in answers if answer.output == best]
    winner = max(agreeing or answers, key=lambda answer: answer.log_probability or 0.0)
    share = votes[best] / sum(votes.values()) if len(answers) > 1 else 1.0
    sure = None
    if confidence is not None:
        sure = confidence(figures(winner, share), winner.finished)
    remarks = [DOUBT] if len(pairs) == 1 else []
    if others and votes[others[0]] > LIKELY * sum(votes.values()):
        remarks.append(f"Another reading of the examples gives {shown(others[0])}.")
    values = {output: log(max(votes[output], 1e-300)) for output in votes}
    return replace(
        winner, input=question, output=best, log_probability=values[best], confidence=sure, score=values[best],
        remark=" ".join(remarks) or None, alternatives=[Alternative(one, values[one], values[one]) for one in others],
    )  # fmt: skip


def figures(answer: Answer, share: float) -> list[float]:
    """Return the log-probabilities by which the confidence is judged: of the tokens, then of the share of the votes."""
    return [*(log(max(token.probability, 1e-30)) for token in answer.tokens), log(share)]
