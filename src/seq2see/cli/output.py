"""How the commands speak: answers on standard output, everything else on standard error."""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress


@cache
def _made(stderr: bool) -> Console:
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, emoji=False)  # ":cat:" may be in a text


class _WhenUsed:
    """A console that is made when first used: an answer needs none, and rich takes longer to import than to answer."""

    def __init__(self, stderr: bool) -> None:
        self._stderr = stderr

    def __getattr__(self, name: str) -> Any:
        return getattr(_made(self._stderr), name)


console = cast("Console", _WhenUsed(stderr=False))
aside = cast("Console", _WhenUsed(stderr=True))


def hush() -> None:
    """Say nothing any more, for another process speaks."""
    for stderr in (False, True):
        _made(stderr).quiet = True


def complain(message: str, last: bool = False) -> None:
    """Say what is wrong, on standard error; the ``last`` word of a process is heard in any case."""
    if last:
        _made(True).quiet = False
    aside.print("seq2see:", message, markup=False, soft_wrap=True)


def progress_bar(unit: str) -> Progress:
    """Return a progress bar on standard error that leaves nothing behind; silent where nobody watches."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TextColumn("{task.fields[speed]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=_made(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
