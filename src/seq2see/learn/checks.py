"""Compare a student's function with what the shipped model records, and tell what is wrong with it."""

from __future__ import annotations

import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from seq2see.errors import UserError, suggest
from seq2see.learn.cases import MISTAKES, PARTS, Case, cases, written
from seq2see.learn.network import Function, ToldError

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
        suggestion = suggest(name, PARTS)
        raise UserError(f"There is no part {name!r}: a function with the name of a part was expected. {suggestion}")
    todo = cases()[name]
    found = [outcome(case, function) for case in todo]
    if any(isinstance(error, NotImplementedError) and not error.args for error in found):
        return Verdict(name, "to do", "to do")
    faults = [fault(case, result) for case, result in zip(todo, found, strict=True)]
    if not any(faults):
        return Verdict(name, "right", f"gives {todo[0].name}, as the model does.")
    for hint, *changes in MISTAKES[name].values():
        if any(same(found, [outcome(case, written(name, *change)) for case in todo]) for change in changes):
            return Verdict(name, "wrong", hint)
    error, words = next((error, words) for error, words in zip(found, faults, strict=True) if words)
    return Verdict(name, "wrong", crash(error, {code_file(function)}) if isinstance(error, BaseException) else words)


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


def same(these: list[Outcome], those: list[Outcome]) -> bool:
    """Whether a function ends as another one does in all cases: with the same numbers, or with an error."""
    pairs = list(zip(these, those, strict=True))
    return any(isinstance(a, Tensor) for a in these) and all(
        close(a, b)
        if isinstance(a, Tensor) and isinstance(b, Tensor)
        else isinstance(a, Tensor) is isinstance(b, Tensor)
        for a, b in pairs
    )


def close(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have the same numbers, in float32's digits."""
    return a.shape == b.shape and torch.allclose(a.double(), b.double(), 1e-4, 1e-4, equal_nan=True)


def fault(case: Case, found: Outcome) -> str:
    """Return what is wrong with an outcome, or nothing."""
    if isinstance(found, BaseException):
        return str(found) or type(found).__name__
    expected = case.expected
    if found.shape != expected.shape:
        return f"Its shape is {tuple(found.shape)}, and {tuple(expected.shape)} was expected ({case.name})."
    if (found.dtype == torch.bool) != (expected.dtype == torch.bool):
        return f"Its numbers are {str(found.dtype)[6:]}, and {str(expected.dtype)[6:]} was expected ({case.name})."
    if close(found, expected):
        return ""
    if not found.isfinite().all():
        return f"It gives nan or inf, which are no numbers, for {case.name}: is something divided by 0, or ∞ by ∞?"
    place = torch.unravel_index((found.double() - expected.double()).abs().argmax(), expected.shape)
    where = ", ".join(str(int(x)) for x in place)
    given, wanted = found[place].item(), expected[place].item()
    return f"Not yet: at [{where}] it gives {given:.5g}, and the model {wanted:.5g} ({case.name})."


def crash(error: BaseException, files: set[str]) -> str:
    """Tell an error in a sentence, with the last line of the student's files that it went through."""
    if isinstance(error, ToldError):
        return str(error)
    if isinstance(error, SyntaxError):
        return f"{_name(error.filename or '')}, line {error.lineno}, is not Python: {error.msg}."
    said = ": ".join([type(error).__name__, *str(error).strip().splitlines()[:1]])
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
    if not frames:
        return f"It could not be called: {said}"
    return f"{_name(frames[-1].filename)}, line {frames[-1].lineno}, `{frames[-1].line}` ends with {said}"


def _name(file: str) -> str:
    """Name a file as a student does; a cell of a notebook has a made-up path."""
    return "The cell" if file.startswith("<") or "ipykernel" in file else Path(file).name
