"""How the commands speak: answers on standard output, everything else on standard error."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

console = Console(highlight=False)
aside = Console(stderr=True, highlight=False)


def complain(message: str) -> None:
    """Say what is wrong, on standard error."""
    aside.print("seq2see:", message, markup=False, soft_wrap=True)


def progress_bar(unit: str) -> Progress:
    """Return a progress bar on standard error that leaves nothing behind; silent where nobody watches."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TextColumn("{task.fields[speed]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=aside,
        transient=True,
        disable=not sys.stderr.isatty(),
    )
