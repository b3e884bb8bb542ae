"""``seq2see bench``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from seq2see.cli.output import complain, console
from seq2see.errors import UserError, suggest

if TYPE_CHECKING:
    from seq2see.benchmarks.measure import Line


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(bench)


def bench(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="cold-start, dates-10000, base-batch32, base-batch1, serve-load, page, or all of them.",
        ),
    ] = "all",
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Turns that each contestant takes.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Measure ours beside its peers, in turns, in one process, on the same work.

    Medians, with the spread of the rounds. A peer that is not installed is named and left out.

    [dim]seq2see bench dates-10000[/dim]
    """
    from seq2see.benchmarks import cpu, load, page

    lines = {**cpu.LINES, **load.LINES, **page.LINES}
    if name != "all" and name not in lines:
        raise UserError(f"There is no benchmark {name!r}. {suggest(name, [*lines, 'all'])}")
    for chosen in lines if name == "all" else [name]:
        complain(f"measuring {chosen} …")
        line = lines[chosen](rounds)
        if as_json:
            print(json.dumps(line.record()), flush=True)
        else:
            _show(line)


def _show(line: Line) -> None:
    from rich.table import Table

    from seq2see.benchmarks.measure import machine

    here = machine()
    table = Table(title=f"{line.name}: {line.work}", title_justify="left", title_style="bold")
    table.add_column("who")
    for column in (f"{line.unit}/s", "seconds", "spread", "ours is", "of the limit"):
        table.add_column(column, justify="right")
    for row in line.rows():
        limit = "" if row["of_limit"] is None else f"{row['of_limit']:.0%}"
        table.add_row(
            row["who"], f"{row['per_second']:,.1f}", f"{row['seconds']:.3f}", f"{row['spread']:.0%}",
            f"{row['ours_is']:.2f}×", limit,
        )  # fmt: skip
    console.print(table)
    packages = ", ".join(f"{package} {version}" for package, version in here["packages"].items())
    for text in (
        f"wanted: {line.target}; {line.agree}",
        *line.notes,
        *(f"left out, not installed: {peer}" for peer in line.left_out),
        f"{here['cpu']}, {here['cores']} cores, load {here['load']:.1f}; python {here['python']}, {packages}",
    ):
        console.print(text, markup=False)
