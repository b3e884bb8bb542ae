"""Compare a student's function with what the shipped model records, and tell what is wrong with it."""

from __future__ import annotations

import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from seq2see.errors import UserError, suggest
from seq2see.learn.cases import PARTS, Case, Function, ToldError, seen
from seq2see.learn.mistakes import MISTAKES

MARKS = {"right": "✓", "wrong": "✗", "to do": "·"}
Outcome = Tensor | BaseException


@dataclass(frozen=True)
class Verdict:
    """What was found about a part: "right", "wrong" or "to do", and a sentence."""

    part: str
    state: str
    words: str

    def __repr__(self) -> str:
        return f"{MARKS[self.state]} {self.part}: {self.words}"


def check(function: Function) -> Verdict:
    """Compare a function with the part of its name, such as ``softmax``.

    >>> import torch
    >>> def softmax(x):
    ...     return torch.softmax(x, dim=-2)
    >>> check(softmax)
    ✗ softmax: Its shares add up to 1 in another direction than along the last dimension: which numbers belong to one row?
    """
    name = getattr(function, "__name__", type(function).__name__)
    if name not in PARTS:
        raise UserError(
            f"There is no part {name!r}: a function with the name of a part was expected. {suggest(name, PARTS)}"
        )
    cases = PARTS[name](seen())
    outcomes = [outcome(case, function) for case in cases]
    for error in outcomes:
        if isinstance(error, NotImplementedError) and not error.args:
            return Verdict(name, "to do", "to do")
    if all(_fault(case, found) is None for case, found in zip(cases, outcomes, strict=True)):
        return Verdict(name, "right", f"gives {cases[0].name}, as the model does.")
    for mistake in MISTAKES[name]:
        if any(_same(outcomes, [outcome(case, way) for case in cases]) for way in mistake.ways):
            return Verdict(name, "wrong", mistake.hint)
    case, found = next(pair for pair in zip(cases, outcomes, strict=True) if _fault(*pair))
    words = crash(found, {code_file(function)}) if isinstance(found, BaseException) else _fault(case, found)
    return Verdict(name, "wrong", f"{words}")


def code_file(function: Function) -> str:
    """Return the file in which a function was written."""
    code = getattr(function, "__code__", None)
    return code.co_filename if code else ""


def outcome(case: Case, function: Function) -> Outcome:
    """Return what a function gives for a case, or the error that it ends with."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a student's, which a later message would hide
        try:
            result = case.call(function)
            if result is None:
                return ToldError("It returns nothing: is there a line with return?")
            return torch.as_tensor(result).detach()
        except (Exception, SystemExit) as error:
            return error


def _same(these: list[Outcome], those: list[Outcome]) -> bool:
    """Whether a function ends as another one does in all cases: with the same numbers, or with an error."""
    return all(
        isinstance(a, Tensor) and isinstance(b, Tensor) and _close(a, b, equal_nan=True)
        if isinstance(a, Tensor) or isinstance(b, Tensor)
        else True
        for a, b in zip(these, those, strict=True)
    ) and any(isinstance(a, Tensor) for a in these)


def _close(a: Tensor, b: Tensor, equal_nan: bool = False) -> bool:
    return a.shape == b.shape and torch.allclose(a.double(), b.double(), 1e-4, 1e-4, equal_nan)


def _fault(case: Case, found: Outcome) -> str | None:
    """Return what is wrong with an outcome, or None."""
    if isinstance(found, BaseException):
        return str(found)
    expected = case.expected
    if found.shape != expected.shape:
        return f"Its shape is {tuple(found.shape)}, and {tuple(expected.shape)} was expected ({case.name})."
    if (found.dtype == torch.bool) != (expected.dtype == torch.bool):
        return f"Its numbers are {str(found.dtype)[6:]}, and {str(expected.dtype)[6:]} was expected ({case.name})."
    if _close(found, expected):
        return None
    if not found.isfinite().all():
        return f"It gives nan or inf, which are no numbers, for {case.name}: is something divided by 0, or ∞ by ∞?"
    place = tuple((found.double() - expected.double()).abs().flatten().argmax().unsqueeze(0).tolist())
    place = tuple(int(x) for x in torch.unravel_index(torch.tensor(place[0]), expected.shape))
    where, given, wanted = ", ".join(map(str, place)), found[place].item(), expected[place].item()
    return f"Not yet: at [{where}] it gives {given:.5g}, and the model {wanted:.5g} ({case.name})."


def crash(error: BaseException, files: set[str]) -> str:
    """Tell an error in a sentence, with the last line of the student's files that it went through."""
    if isinstance(error, ToldError):
        return f"{error}"
    said = (
        f"{type(error).__name__}: {str(error).strip().splitlines()[0]}" if str(error).strip() else type(error).__name__
    )
    if isinstance(error, SyntaxError):
        return f"{_name(error.filename or '')}, line {error.lineno}, is not Python: {error.msg}."
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
    if not frames:
        return f"It could not be called: {said}"
    return f"{_name(frames[-1].filename)}, line {frames[-1].lineno}, `{frames[-1].line}` ends with {said}"


def _name(file: str) -> str:
    """Name a file as a student does; a cell of a notebook has a made-up path."""
    return "The cell" if file.startswith("<") or "ipykernel" in file else Path(file).name
