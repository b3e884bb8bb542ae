"""``seq2see learn``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seq2see.cli.output import say


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(learn)


def learn(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Your folder; a new one at first.")],
    train: Annotated[bool, typer.Option("--train", help="Train your functions, if all are right.")] = False,
    seconds: Annotated[int, typer.Option("--seconds", min=1, help="Seconds of that training.")] = 110,
) -> None:
    """Write a Transformer yourself, in eleven functions.

    The first call writes a file for each function, with its equation and its shapes. The next ones compare what you
    have written with the values that the shipped model `dates` records, and give a hint for each known mistake. Your
    files are never overwritten. In the end your functions write dates, and learn to write them. The status is 1 while
    one of them is wrong.

    [dim]seq2see learn build[/dim]
    """
    from seq2see.learn.folder import review, together, write_stubs

    missing = write_stubs(folder)
    again = f"`seq2see learn {folder}`"
    if missing:
        say(f"New in {folder}: {', '.join(f'{name}.py' for name in missing)}.")
    states: dict[str, str] = {}
    for verdict, tries in review(folder):
        states[verdict.part] = verdict.state
        say(f"{verdict!r}" + (f" (try {tries})" if verdict.state == "wrong" and tries > 1 else ""))
    right = list(states.values()).count("right")
    if right < len(states):
        after = next(name for name, state in states.items() if state != "right")
        say(f"\n{right} of {len(states)} are right. Next: write {folder / after}.py, then run {again} again.")
        raise typer.Exit(int("wrong" in states.values()))
    say(f"\nAll {right} are right.")
    for line in together(folder, seconds if train else None):
        say(line)
