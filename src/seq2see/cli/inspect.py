"""``seq2see trace`` and ``inspect``: what is inside a model and its folder."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from seq2see.cli.output import complain, console, say
from seq2see.cli.predict import Member, ModelName
from seq2see.errors import UserError, suggest

if TYPE_CHECKING:
    from seq2see.inspection.trace import Trace

REFUSED = 3  # exit status of a trial that refuses the folder with a message
#: The program of the trial: no core dump, messages on standard output, and at most 8 GiB of memory if the system has
#: limits.
TRIAL = f"""
import sys
try:
    import resource
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
except (ImportError, ValueError, OSError):  # Windows has no limits, macOS none of memory
    pass
import seq2see
from seq2see.storage.folder import check_sums, find
try:
    files = check_sums(find(sys.argv[1]))
    model = seq2see.load(sys.argv[1], engine=sys.argv[2])
    text = "1845-01-05" if model.config.task == "dates" else next(
        token for token in model.tokenizers.source.vocabulary() if token.isalnum()
    )
    model.answers([text])
    print(repr(model).strip("<>"))
    print(f"{{files}} files are those that SHA256SUMS lists." if files else "It has no SHA256SUMS to compare with.")
except seq2see.UserError as error:
    print(error)
    sys.exit({REFUSED})
"""
FORMATS = ["table", "csv", "json", "npz"]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(trace)
    app.command()(inspect)


def inspect(
    path: Annotated[Path, typer.Argument(metavar="DIR", help="A model folder, perhaps from somebody else.")],
    seconds: Annotated[int, typer.Option("--seconds", min=1, help="Seconds in which it must load.")] = 60,
) -> None:
    """Try a model folder in a separate process: a crash, a hang or too much memory becomes a message.

    Every file of the folder is checked, the model is loaded by each of its engines, and its shape is printed.
    If the folder has a list of checksums, SHA256SUMS, its files must match the list.

    [dim]seq2see inspect downloads/some-model[/dim]
    """
    from seq2see.storage import folder

    find = folder.find(path)
    for engine in ("auto", "torch"):
        command = [sys.executable, "-c", TRIAL, str(find), engine]
        try:
            tried = subprocess.run(command, capture_output=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            raise UserError(f"{path} does not load within {seconds} s: do not use it.") from None
        said = tried.stdout.decode(errors="replace").strip()
        if tried.returncode == REFUSED:
            raise UserError(said)
        if tried.returncode:
            how = f"signal {-tried.returncode}" if tried.returncode < 0 else f"status {tried.returncode}"
            raise UserError(f"{path} crashes the process that loads it ({how}): do not use it.")
    say(said)
    say("The folder is complete, and loading and answering work.")


def trace(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text to answer.")],
    model: ModelName = "dates",
    name: Annotated[
        str | None, typer.Option("--name", "-n", metavar="GLOB", help="The values to show: a name or a glob of names.")
    ] = None,
    format: Annotated[
        str, typer.Option("--format", "-f", metavar="|".join(FORMATS), help="Format of the values.")
    ] = "table",
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write to this file.")] = None,
    explain: Annotated[
        str | None,
        typer.Option(
            metavar="LAYER.HEAD.ROW.COL", help="Write out one attention weight step by step; all numbers count from 0."
        ),
    ] = None,
    attention: Annotated[
        str, typer.Option(metavar="encoder|decoder|cross", help="The attention that --explain and --mute refer to.")
    ] = "encoder",
    mute: Annotated[
        list[str] | None, typer.Option(metavar="LAYER.HEAD", help="Switch a head off. May be given several times.")
    ] = None,
    member: Member = 0,
) -> None:
    """Answer a text and show every number on the way.

    Without --name it shows the answer step by step and lists the names of all values with their meaning.
    With --name it shows the values as tables, with tokens as labels and one table for each head.

    [dim]seq2see trace 1845-01-05[/dim]

    [dim]seq2see trace 1845-01-05 --name 'encoder.layers.0.self_attention.weights'[/dim]

    [dim]seq2see trace 1845-01-05 --name '*.cross_attention.weights' --format csv --out cross.csv[/dim]

    [dim]seq2see trace 1845-01-05 --explain 0.2.3.7 --attention cross[/dim]

    [dim]seq2see trace 1845-01-05 --mute 0.2 --mute 1.0[/dim]
    """
    if format not in FORMATS:
        raise UserError(f"There is no format {format!r}. {suggest(format, FORMATS)}")
    if format == "npz" and out is None:
        raise UserError("npz is a binary format: name the file with --out FILE.")
    if explain is not None and (name is not None or format != "table"):
        raise UserError("--explain writes out one weight in words and cannot be combined with --name or --format.")
    cell = None if explain is None else _numbers("--explain", "LAYER.HEAD.ROW.COL", explain)
    muted = [_numbers("--mute", "LAYER.HEAD", pair) for pair in mute or []]
    from seq2see.inspection.tables import muting
    from seq2see.kernels.ensemble import member_of
    from seq2see.seq2seq import load

    loaded = load(model)
    heads = [(attention, layer, head) for layer, head in muted]
    edit = muting(member_of(loaded.transformer, member), heads)
    traced = loaded.trace(text, edit=edit, member=member)
    if (several := loaded.config.model.members) > 1:
        [together] = loaded.answers([text], whole=True)
        complain(f"This is member {member} of {several}. Together they answer: {together.output}")
    names = traced.names if name is None else traced.match(name)
    remark = (
        f"with {' and '.join(mute or [])} of {attention} attention muted; without muting: "
        f"{loaded.trace(text, member=member).output}"
        if muted
        else ""
    )
    _write(traced, names, format, out, cell, attention, remark, listing=name is None)


def _numbers(option: str, form: str, text: str) -> list[int]:
    """Read numbers that are separated by dots."""
    parts = text.split(".")
    if len(parts) != form.count(".") + 1 or not all(part.isdecimal() and part.isascii() for part in parts):
        example = ".".join("0231"[: form.count(".") + 1])
        raise UserError(f"{option} is {text!r}: {form} was expected, counted from 0, such as {example}.")
    return [int(part) for part in parts]


def _write(
    traced: Trace,
    names: list[str],
    format: str,
    out: Path | None,
    cell: list[int] | None,
    attention: str,
    remark: str,
    listing: bool,
) -> None:
    """Write the result to standard output, or into a file in one piece."""
    from seq2see.inspection import tables
    from seq2see.storage.folder import write_atomically

    if format == "npz":
        assert out is not None
        binary = io.BytesIO()
        tables.write_npz(traced, names, binary)
        write_atomically(out, binary.getvalue())
        return
    stream = sys.stdout if out is None else io.StringIO()
    screen = console if out is None else Console(file=stream, width=console.width, highlight=False, emoji=False)
    if format == "csv":
        tables.write_csv(traced, names, stream)
    elif format == "json":
        tables.write_json(traced, names, stream)
    elif cell is not None:
        explanation = tables.explain(traced, attention, cell[0], cell[1], cell[2], cell[3])
        say(str(explanation), on=screen)
    elif listing:
        _print_answer(screen, traced, remark)
        _print_names(screen, traced)
    else:
        for name in names:
            for table in tables.tables_of(traced, name):
                tables.print_table(screen, table)
    if isinstance(stream, io.StringIO):
        assert out is not None
        write_atomically(out, stream.getvalue().encode())


def _print_answer(screen: Console, traced: Trace, remark: str) -> None:
    """Show the answer and the probability of each step."""
    from seq2see.inspection.tables import visible

    screen.print()
    screen.print(Text.assemble(traced.text, "  →  ", (traced.output, "bold"), (f"   {remark}", "dim")))
    table = Table("step", "chosen", "probability", "log P", "entropy", "other likely tokens", box=SIMPLE_HEAD)
    for column in table.columns[2:5]:
        column.justify = "right"
    several = 3 if screen.width > 85 else 2  # one line each, also in a terminal of 80 columns
    for number, step in enumerate(traced.steps(top=4)):
        others = [f"{visible(token)} {share:.1e}" for token, share in step.top if token != step.token][:several]
        table.add_row(
            str(number),
            Text(visible(step.token), "bold"),
            f"{step.probability:.6f}",
            f"{step.log_probability:.1e}",
            f"{step.entropy:.1e}",
            Text("   ".join(others), "dim"),
        )
    screen.print(table)


def _print_names(screen: Console, traced: Trace) -> None:
    """List the names in groups; the names that all layers share are listed once."""
    from seq2see.inspection.glossary import entry_of

    groups: dict[str, list[str]] = {}
    for name in traced.names:
        place, dot, _ = entry_of(name).pattern.rpartition(".")
        groups.setdefault(place + dot, []).append(name)
    for place, names in groups.items():
        layers = sorted({part for name in names for part in name.split(".") if part.isdecimal()}, key=int)
        screen.print()
        title = f"{place}…" if place else "the output"
        screen.print(Text.assemble((title, "bold"), f"   * = {', '.join(layers)}" if layers else ""))
        table = Table(box=None, show_header=False, padding=(0, 0, 0, 2))
        shown: set[str] = set()
        for name in names:
            entry = entry_of(name)
            if entry.pattern not in shown:
                shown.add(entry.pattern)
                letters = ", ".join(letter for letter in entry.shape if letter != "…")
                sizes = "×".join(str(size) for size in traced[name].shape)
                role = Text(name.rpartition(".")[2], "bold")
                shape = Text.assemble(f"({letters})", (f" {sizes}", "dim"))
                table.add_row(role, Text(entry.symbol), shape, Text(f"§{entry.section}", "dim"), entry.sentence)
        screen.print(table)
    screen.print(
        f"\n{len(traced.names)} values. `--name encoder.embedding.sum` or `--name '*.weights'` shows some, "
        "`--explain 0.0.1.2` writes out one weight.",
        markup=False,
    )
