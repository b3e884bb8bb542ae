"""``python -m benchmarks NAME``: measure ours beside its peers."""

from __future__ import annotations

import json
import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seq2see.cli.output import complain, console, say
from seq2see.errors import UserError, suggest

if TYPE_CHECKING:
    from benchmarks.measure import Line


OTHERS = ("busy", "engines", "gpu-file", "growth", "interchange", "all")  # names that are no single line


def bench(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="cold-start, dates-10000, dates-training, base-batch32, base-batch1, documents, serve-load, page, "
            "page-file, page-play, human-dates, preparation, busy (busy-training, busy-dates, busy-en-fr), or all of "
            "them; or engines, growth, interchange or gpu-file.",
        ),
    ] = "all",
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Turns that each contestant takes.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    most: Annotated[
        int, typer.Option("--most", metavar="N", min=1, help="With engines: inputs at most, up to 100,000.")
    ] = 10_000,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="With growth: draw it, .png, .svg or .pdf.")
    ] = None,
    lines: Annotated[
        int, typer.Option("--lines", metavar="N", min=1, help="With gpu-file: lines of the file.")
    ] = 1_000_000,
    beams: Annotated[str, typer.Option("--beams", help="With gpu-file: widths of the beam.")] = "1,4",
    store: Annotated[
        bool,
        typer.Option(
            "--store",
            help="With gpu-file: store the figures. With interchange: measure speed, and write it into "
            "docs/bring-your-model.md.",
        ),
    ] = False,
) -> None:
    """Measure ours beside its peers, in turns, in one process, on the same work.

    Medians, with the spread of the rounds. A peer that is not installed is named and left out.

    [dim]python -m benchmarks dates-10000[/dim]

    [dim]python -m benchmarks growth --plot growth.png[/dim]

    `engines` runs every engine and `auto` on 1 to 10,000 inputs of three models.

    `interchange` compares imported models with `transformers`, on 500 inputs a family and 100 a setting, and their speed.
    """
    if plot is not None and name != "growth":
        raise UserError(f"--plot draws growth, but {name!r} is measured: python -m benchmarks growth --plot {plot}")
    if plot is not None and (plot.suffix not in (".png", ".svg", ".pdf") or not plot.parent.is_dir()):
        raise UserError(f"--plot is {plot}: a .png, .svg or .pdf file in a folder that exists was expected.")
    if name == "gpu-file":
        _gpu_file(lines, beams, store)
        return
    if name == "growth":
        _growth(min(rounds, 3), as_json, plot)
        return
    if name == "engines":
        from benchmarks.grid import grid, shown

        complain("measuring engines …")
        found = grid(rounds, most)
        for text in [json.dumps(found)] if as_json else shown(found):
            say(text)
        return
    if name == "interchange":
        from benchmarks import interchange as them

        records = []
        parts = (
            (them.speed(), them.settings())
            if store
            else (them.speed(), them.published(), them.interchange(), them.settings())
        )
        for record in chain(*parts):
            records.append(record)
            say(json.dumps(record) if as_json else ", ".join(f"{key} {value}" for key, value in record.items()))
        if store:
            them.store(records)
        return
    from benchmarks import busy, cpu, documents, human_dates, load, page, page_file, preparation, training

    known = {
        **cpu.LINES,
        **documents.LINES,
        **training.LINES,
        **load.LINES,
        **page.LINES,
        **page_file.LINES,
        **human_dates.LINES,
        **preparation.LINES,
        **busy.LINES,
    }
    chosen = [line for line in known if name == "all" or line == name or line.startswith(f"{name}-")]
    if not chosen:
        raise UserError(f"There is no benchmark {name!r}. {suggest(name, [*known, *OTHERS])}")
    for one in chosen:
        complain(f"measuring {one} …")
        line = known[one](rounds)
        if as_json:
            print(json.dumps(line.record()), flush=True)
        else:
            _show(line)


def _gpu_file(count: int, beams: str, store: bool) -> None:
    """Measure a file on a GPU."""
    from benchmarks import gpu_file
    from seq2see import devices

    if not any(map(devices.is_cuda, devices.found())):
        raise UserError("gpu-file needs a GPU, and PyTorch sees none.")
    gpu_file.measure(count, [int(beam) for beam in beams.split(",")], store)


def _growth(rounds: int, as_json: bool, plot: Path | None) -> None:
    """Measure growth, size by size, and draw it if asked to."""
    from rich.table import Table

    from benchmarks.growth import growth, record

    complain("measuring growth …")
    points = []
    table = Table(title="growth: " + record([])["work"], title_justify="left", title_style="bold")
    for column in ("varied", "work", "source", "batch", "d_model", "seconds", "peak MB"):
        table.add_column(column, justify="left" if column in ("varied", "work") else "right")
    for point in growth(rounds):
        points.append(point)
        size = point.size
        table.add_row(
            point.axis, point.kind, str(size.source), str(size.batch), str(size.d_model), f"{point.seconds:.3f}",
            f"{point.megabytes:.1f}"
        )  # fmt: skip
    if as_json:
        print(json.dumps(record(points)), flush=True)
    else:
        console.print(table)
    if plot is not None:
        from benchmarks.growth_picture import plot_growth

        plot_growth(points).savefig(plot, dpi=160)


def _show(line: Line) -> None:
    from rich.table import Table

    from benchmarks.measure import machine

    here = machine()
    table = Table(title=f"{line.name}: {line.work}", title_justify="left", title_style="bold")
    table.add_column("who")
    for column in (f"{line.unit}/s", "seconds", "spread", "ours is", "at best", "of the limit"):
        table.add_column(column, justify="right")
    for row in line.rows():
        limit = "" if row["of_limit"] is None else f"{row['of_limit']:.0%}"
        table.add_row(
            row["who"], f"{row['per_second']:,.1f}", f"{row['seconds']:.3f}", f"{row['spread']:.0%}",
            f"{row['ours_is']:.2f}×", f"{row['ours_is_at_best']:.2f}×", limit,
        )  # fmt: skip
    console.print(table)
    packages = ", ".join(f"{package} {version}" for package, version in here["packages"].items())
    for text in (
        f"wanted: {line.target}; {line.agree}",
        *line.notes,
        *(f"left out, not installed: {peer}" for peer in line.left_out),
        f"{here['cpu']}, {here['cores']} cores, load {here['load']:.1f}; python {here['python']}, {packages}",
    ):
        say(text)


def main() -> None:
    """Run the command; a user's error is one message and status 2."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
    app.command()(bench)
    try:
        app(prog_name="python -m benchmarks")
    except UserError as error:
        complain(str(error), last=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
