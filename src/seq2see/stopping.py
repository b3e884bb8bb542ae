"""Long work on what a stranger sent asks now and then whether somebody still waits for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_nobody_waits: ContextVar[Callable[[], bool] | None] = ContextVar("nobody_waits", default=None)


class Stopped(Exception):  # noqa: N818 - a state, not a fault
    """Nobody waits for the work any more: its time is over, or its client has left."""


@contextmanager
def stopped_when(nobody_waits: Callable[[], bool]) -> Iterator[None]:
    """Let the work of this thread stop at its next ``go_on`` once ``nobody_waits``."""
    token = _nobody_waits.set(nobody_waits)
    try:
        yield
    finally:
        _nobody_waits.reset(token)


def go_on() -> None:
    """Return if somebody waits for this work, and raise ``Stopped`` otherwise."""
    nobody_waits = _nobody_waits.get()
    if nobody_waits is not None and nobody_waits():
        raise Stopped
