"""Errors that the user can correct, with messages for the user."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from importlib.util import find_spec
from unicodedata import bidirectional


class UserError(Exception):
    """The user gave something that cannot be used: the message says what was given, what was expected, and what to do.

    The command line prints the message without a traceback and exits with status 2. An argument is named in
    backquotes, `vocabulary`; the command line shows it as its option, --vocabulary.

    >>> import seq2see
    >>> try:
    ...     seq2see.load("date")
    ... except seq2see.UserError as error:
    ...     print(error)
    There is no model 'date': neither a folder nor a model that ships. Did you mean 'dates'?
    """


class ConfigError(UserError):
    """A configuration key or value that the schema does not know."""


class FolderError(UserError):
    """A model folder that is missing, incomplete or inconsistent."""


class InputError(UserError):
    """One input text that the model cannot take, and why."""


class RefusedInputs(UserError):  # noqa: N818 - it is a verdict on some inputs of many, not on the call
    """Some inputs of a batch were refused; ``outputs`` holds the answers to the others, in order.

    >>> import seq2see
    >>> try:
    ...     seq2see.load("dates").predict(["1845-01-05", ""], strict=True)
    ... except seq2see.RefusedInputs as error:
    ...     print(error.outputs, list(error.reasons))
    ['January 5, 1845', None] [1]
    """

    def __init__(self, reasons: dict[int, str], outputs: list[str | None]) -> None:
        self.reasons = reasons
        self.outputs = outputs
        lines = [f"input {index + 1}: {reason}" for index, reason in reasons.items()]
        super().__init__("\n".join([f"{len(reasons)} of {len(outputs)} inputs were refused:", *lines]))


class EightBitsError(UserError):
    """A model answers wrongly in eight bits on this CPU."""


class FullMemoryError(UserError):
    """There is no room in the memory of a GPU."""


class MissingPackageError(UserError, ImportError):
    """Something needs a package that is not installed."""


#: The extras of pyproject.toml, and the packages that each brings for a job that most users do not have.
EXTRAS = {
    "train": ("torch", "sacrebleu", "matplotlib"),
    "tables": ("polars", "fastexcel"),
    "huggingface": ("transformers", "huggingface_hub", "datasets"),
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
    "ray": ("ray",),
}


def missing(package: str, what: str = "This") -> MissingPackageError:
    """Return the error for something that needs a package which is not installed; it says what to install."""
    extra = next((extra for extra, brings in EXTRAS.items() if package in brings), None)
    told = package if extra is None else f"'seq2see[{extra}]'"
    return MissingPackageError(f"{what} needs the package {package}, which is not installed: pip install {told}.")


def installed(package: str, what: str = "This") -> None:
    """Refuse what needs a package that is not installed."""
    if find_spec(package) is None:
        raise missing(package, what)


def suggest(given: str, known: Iterable[str]) -> str:
    """Return a closing sentence that names the nearest known word, or all of them."""
    known = sorted(known)
    near = difflib.get_close_matches(given, known, n=1)
    return f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(known)}."


def shown(text: str, limit: int = 40) -> str:
    """Quote a text for a message: shortened, control characters escaped, apart from letters of another direction."""
    if len(text) > limit:
        return f"{isolated(repr(text[: limit - 10]))}… ({len(text):,} characters)"
    return isolated(repr(text))


def isolated(text: str) -> str:
    """Return a text with letters from right to left between isolates, so that what is around it keeps its order."""
    if text.isascii() or not any(bidirectional(one) in ("R", "AL") for one in text):
        return text
    return f"\u2068{text}\u2069"


#: Characters that a terminal obeys: control characters and line separators, except tab and line feed.
ORDERS = {
    number: chr(number).encode("unicode_escape").decode()
    for number in (*range(9), *range(11, 32), *range(127, 160), 0x2028, 0x2029)
}


def harmless(text: str) -> str:
    """Return a text with every character escaped that would move the cursor or change the terminal."""
    return text if text.isprintable() else text.translate(ORDERS)


def printable(text: str) -> str:
    """Return a text with every character escaped that is neither visible nor a plain space."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: 1 pair, 2,000 pairs."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
