"""Long work on a client's input stops when the client no longer waits for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

Part = TypeVar("Part")
_nobody_waits: ContextVar[Callable[[], bool] | None] = ContextVar("nobody_waits", default=None)


class Stopped(Exception):  # noqa: N818 - a state, not a fault
    """The work has run out of time, or its client has disconnected."""


@contextmanager
def stopped_when(nobody_waits: Callable[[], bool]) -> Iterator[None]:
    """Stop the work of this thread at its next ``go_on`` once ``nobody_waits()`` is true."""
    token = _nobody_waits.set(nobody_waits)
    try:
        yield
    finally:
        _nobody_waits.reset(token)


def wanted(parts: Iterable[Part]) -> Iterator[Part]:
    """Yield the parts of some work as long as somebody waits for it."""
    for part in parts:
        go_on()
        yield part


def go_on() -> None:
    """Raise ``Stopped`` if nobody waits for this work any more."""
    nobody_waits = _nobody_waits.get()
    if nobody_waits is not None and nobody_waits():
        raise Stopped
