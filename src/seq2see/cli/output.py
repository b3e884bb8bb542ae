"""Output of the commands: answers on standard output, everything else on standard error."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn, cast

from seq2see.errors import harmless

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

NAMED = 10  # bad rows or refused inputs that are listed; the others are counted


@cache
# positional only: a cache would treat _made(stderr=True) as another call
def _made(stderr: bool, /) -> Console:
    from rich.console import Console

    class Speaking(Console):
        def on_broken_pipe(self) -> None:
            hang_up()

    return Speaking(stderr=stderr, highlight=False, emoji=False)  # a text may contain ":cat:"


class _WhenUsed:
    """A console that is made when first used: an answer needs none, and rich takes longer to import than to answer."""

    def __init__(self, stderr: bool) -> None:
        self._stderr = stderr

    def __getattr__(self, name: str) -> Any:
        return getattr(_made(self._stderr), name)


console = cast("Console", _WhenUsed(stderr=False))
aside = cast("Console", _WhenUsed(stderr=True))


def hush() -> None:
    """Silence this process, because another one prints."""
    for stderr in (False, True):
        _made(stderr).quiet = True


def complain(message: str, last: bool = False) -> None:
    """Print an error on standard error; the ``last`` message of a process is printed even if it is silenced."""
    if last:
        _made(True).quiet = False
    say(f"seq2see: {message}", on=aside)


@cache
def tell_warnings() -> None:
    """Print the warnings that the package logs as those of a command, each of them once."""
    import logging

    told = set[str]()

    class Teller(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if (message := record.getMessage()) not in told:
                told.add(message)
                complain(message)

    logging.getLogger("seq2see").addHandler(Teller(logging.WARNING))


def say(message: str, style: str = "", on: Console = console) -> None:
    """Print a message without markup: wrapped at words on a terminal, in one line otherwise."""
    on.print(harmless(message), style=style, markup=False, soft_wrap=not on.is_terminal)


def in_json(value: object) -> str:
    """Write JSON in one line. A number that JSON cannot express, NaN or an infinity, becomes null."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), ensure_ascii=False, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Refusals:
    """Prints on standard error why the first inputs were refused or cut, and counts the others."""

    def __init__(self, place: str, tell: Callable[[str], None] = complain) -> None:
        self.place, self.count, self.tell = place, 0, tell

    def add(self, number: int, reason: str) -> None:
        """Record one input."""
        self.count += 1
        if self.count <= NAMED:
            self.tell(f"{self.place} {number}: {reason}")

    def close(self, why: str, verb: str = "refused") -> None:
        """Print how many more there were, and where to read ``why``."""
        if self.count > NAMED:
            more = self.count - NAMED
            were = f"{self.place}s were" if more > 1 else f"{self.place} was"
            self.tell(f"… and {more:,} more {were} {verb}; {why}.")


def complain_of(messages: list[str], what: str) -> None:
    """Print the first messages on standard error, and count the others."""
    for message in messages[:NAMED]:
        complain(message)
    if len(messages) > NAMED:
        complain(f"{len(messages) - NAMED:,} more {what}.")


def hang_up() -> NoReturn:
    """Exit quietly, because the reader of a pipe has closed it, as in ``seq2see predict … | head``."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(141)


@contextmanager
def progress(task: str, unit: str, total: Callable[[], int | None], done: int = 0) -> Iterator[Callable[[int], None]]:
    """Show a bar with a speed on a terminal; what the block gets adds to the count, and ``done`` was done before."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    with progress_bar(unit) as bar:
        number, started, now = bar.add_task(task, total=total(), completed=done, speed=""), time.perf_counter(), 0

        def advance(count: int) -> None:
            nonlocal now
            now += count
            speed = now / max(time.perf_counter() - started, 1e-9)
            bar.update(number, completed=done + now, speed=f"{speed:,.0f}/s")

        yield advance


def progress_bar(unit: str) -> Progress:
    """Return a progress bar on standard error that erases itself; without a terminal it prints nothing."""
    from rich import progress as columns
    from rich.constrain import Constrain

    class Bar(columns.Progress):
        def get_renderables(self) -> Iterator[Any]:
            """Leave room for the ^C that a terminal shows: on the last line it would be erased instead of the bar."""
            return (Constrain(one, aside.width - 4) for one in super().get_renderables())

    return Bar(
        columns.TextColumn("{task.description}"),
        columns.BarColumn(),
        columns.MofNCompleteColumn(),
        columns.TextColumn(unit),
        columns.TextColumn("{task.fields[speed]}"),
        columns.TimeElapsedColumn(),
        columns.TextColumn("left"),
        columns.TimeRemainingColumn(),
        console=_made(True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
