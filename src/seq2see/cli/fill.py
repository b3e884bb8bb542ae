"""``seq2see fill``."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seq2see.answering.examples import LEAST, TASK
from seq2see.cli.output import Refusals, complain, say
from seq2see.cli.predict import ModelName
from seq2see.errors import UserError, installed, shown
from seq2see.files import given_file, write_atomically

if TYPE_CHECKING:
    from seq2see.by_example import Filled

KINDS = (".csv", ".tsv", ".parquet")  # that are written


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(fill)


def fill(
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="A CSV, Excel or Parquet file, or one with tabs.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="Write the filled table here: .csv, .tsv or .parquet.")
    ],
    column: Annotated[
        str | None,
        typer.Option("--column", metavar="NAME", help="Fill this column. Default: the only one with some empty cells."),
    ] = None,
    using: Annotated[
        list[str] | None, typer.Option("--using", metavar="NAME", help="Read this column. Default: all others.")
    ] = None,
    min_confidence: Annotated[
        float, typer.Option("--min-confidence", metavar="P", min=0, max=1, help="Leave a cell empty below this.")
    ] = LEAST,
    model: ModelName = TASK,
) -> None:
    """Fill a column of a table as its filled cells show.

    A cell whose answer is not sure stays empty, and standard error lists it and says which one to fill in by hand: after
    that answer others may follow. TABLE itself never changes.

    [dim]seq2see fill people.csv --column short --using name --out filled.csv[/dim]
    """
    from seq2see.by_example import fill as filled
    from seq2see.data.formats import read_table

    if out.suffix.lower() not in KINDS:
        raise UserError(f"--out is {str(out)!r}: a file was expected that ends in {', '.join(KINDS)}.")
    if out.exists():
        raise UserError(f"{out} exists already: name a new file, since no table is overwritten.")
    read = read_table(table)
    numbers, rows = [], list[list[str]]()
    for number, cells in read.rows:
        if cells == "is empty":
            continue
        if isinstance(cells, str):
            raise UserError(f"Row {number:,} of {table.name} {cells}.")
        if any(cells):
            numbers.append(number)
            rows.append(cells)
    names = read.names or (rows.pop(0) if rows else [])
    numbers = numbers[len(numbers) - len(rows) :]
    if not rows:
        raise UserError(f"{table.name} has no rows below its names of columns: some were expected.")
    if wrong := next((n for n, cells in zip(numbers, rows, strict=True) if len(cells) > len(names)), 0):
        raise UserError(f"Row {wrong:,} of {table.name} has more cells than there are columns ({len(names)}).")
    if len(set(names)) < len(names):
        raise UserError(f"Two columns of {table.name} have one name: give each its own.")
    columns = {name: [row[n] if n < len(row) else "" for row in rows] for n, name in enumerate(names)}
    found = filled(columns, column, using or (), model=model, min_confidence=min_confidence, rows=numbers)
    _write(out, table, found)
    empty = Refusals("row", complain)
    for one in found.unsure:
        perhaps = f", perhaps {shown(one.answer.withheld)}" if one.answer.withheld else f": {one.answer.error}"
        empty.add(one.row, f"{shown(one.input)} stays empty{perhaps}")
    empty.close("--min-confidence decides", "left empty")
    if found.question:
        complain(found.question)
    count = found.filled + len(found.unsure)
    say(f"{out}: {found.filled:,} of {count:,} empty cells of {shown(found.column)} are filled.")


def _write(out: Path, table: Path, found: Filled) -> None:
    kind, columns = out.suffix.lower(), found.table
    if kind == ".parquet":
        installed("polars", out.name)
        import polars

        frame = polars.DataFrame(columns)
        if table.suffix.lower() == kind:  # other columns keep their types; it was parsed within bounds before
            given_file(table, "a Parquet file")
            frame = polars.read_parquet(table).with_columns(frame[found.column])
        data = io.BytesIO()
        frame.write_parquet(data)
        write_atomically(out, data.getvalue())
        return
    text = io.StringIO(newline="")
    writer: Any = csv.writer(text, delimiter="\t" if kind == ".tsv" else ",", lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([["" if cell is None else cell for cell in row] for row in zip(*columns.values(), strict=True)])
    write_atomically(out, text.getvalue().encode())
