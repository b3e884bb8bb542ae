"""``seq2see trace``, ``inspect`` and ``plot``: what is inside a model and its folder, in numbers and in pictures."""

from __future__ import annotations

import io
import subprocess
import sys
from dataclasses import dataclass
from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer import Argument, Option

from seq2see.cli.options import Member, ModelName
from seq2see.cli.output import complain, console, say
from seq2see.errors import UserError, suggest

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

    from seq2see.config import ModelConfig
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
PICTURES = ["png", "svg", "pdf"]
DATE = "1845-01-05"
VARIANTS = ["paper", "halves"]
#: The kinds of picture.
KINDS = {
    "positions": "positional encoding as a heatmap",
    "position-curves": "some of its dimensions as waves",
    "scores": "the grid of dot products q·k",
    "mask": "which token may look at which, for any --text",
    "attention": "the weights of one head",
    "attention-grid": "the weights of all layers and heads",
    "attention-lines": "the heads as coloured lines, as in the appendix",
    "architecture": "the whole model, Figure 1 of the paper",
    "attention-block": "scaled dot-product attention, Figure 2 left",
    "multi-head": "multi-head attention, Figure 2 right",
    "training": "loss and exact match by step, from a training's log",
}


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(trace)
    app.command()(inspect)
    kinds = "\n".join(f"[bold]{name:20}[/bold] {about}" for name, about in KINDS.items())
    app.command(help=f"{cleandoc(plot.__doc__ or '')}\n\n\b\n{kinds}")(plot)


def inspect(
    path: Annotated[Path, Argument(metavar="DIR", help="A model folder, perhaps from somebody else.")],
    seconds: Annotated[int, Option("--seconds", min=1, help="Seconds in which it must load.")] = 60,
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


# --- numbers -------------------------------------------------------------------------------------------------------


def trace(
    text: Annotated[str, Argument(metavar="TEXT", help="The text to answer.")],
    model: ModelName = "dates",
    name: Annotated[str | None, Option("--name", "-n", metavar="GLOB",
                    help="The values to show: a name or a glob of names.")] = None,
    format: Annotated[str, Option("--format", "-f", metavar="|".join(FORMATS), help="Format of the values.")] = "table",
    out: Annotated[Path | None, Option("--out", "-o", metavar="FILE", help="Write to this file.")] = None,
    explain: Annotated[str | None, Option(metavar="LAYER.HEAD.ROW.COL",
                       help="Write out one attention weight step by step; all numbers count from 0.")] = None,
    attention: Annotated[str, Option(metavar="encoder|decoder|cross",
                         help="The attention that --explain and --mute refer to.")] = "encoder",
    mute: Annotated[list[str] | None, Option(metavar="LAYER.HEAD",
                    help="Switch a head off. May be given several times.")] = None,
    member: Member = 0,
) -> None:  # fmt: skip
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
    from seq2see.inspection import tables
    from seq2see.kernels.ensemble import member_of
    from seq2see.seq2seq import load
    from seq2see.storage.folder import write_atomically

    loaded = load(model)
    edit = tables.muting(member_of(loaded.transformer, member), [(attention, layer, head) for layer, head in muted])
    traced = loaded.trace(text, edit=edit, member=member)
    if (several := loaded.config.model.members) > 1:
        [together] = loaded.answers([text], whole=True)
        complain(f"This is member {member} of {several}. Together they answer: {together.output}")
    names = traced.names if name is None else traced.match(name)
    if format == "npz":
        assert out is not None
        binary = io.BytesIO()
        tables.write_npz(traced, names, binary)
        write_atomically(out, binary.getvalue())
        return
    stream = sys.stdout if out is None else io.StringIO()
    screen = console if out is None else Console(file=stream, width=console.width, highlight=False, emoji=False)
    if format in ("csv", "json"):
        (tables.write_csv if format == "csv" else tables.write_json)(traced, names, stream)
    elif cell is not None:
        say(str(tables.explain(traced, attention, cell[0], cell[1], cell[2], cell[3])), on=screen)
    elif name is None:
        plain = loaded.trace(text, member=member).output if muted else ""
        off = f"with {' and '.join(mute or [])} of {attention} attention muted; without muting: {plain}"
        _print_answer(screen, traced, off if muted else "")
        _print_names(screen, traced)
    else:
        for table in (table for one in names for table in tables.tables_of(traced, one)):
            tables.print_table(screen, table)
    if out is not None and isinstance(stream, io.StringIO):
        write_atomically(out, stream.getvalue().encode())


def _numbers(option: str, form: str, text: str) -> list[int]:
    """Read numbers that are separated by dots."""
    parts = text.split(".")
    if len(parts) != form.count(".") + 1 or not all(part.isdecimal() and part.isascii() for part in parts):
        example = ".".join("0231"[: form.count(".") + 1])
        raise UserError(f"{option} is {text!r}: {form} was expected, counted from 0, such as {example}.")
    return [int(part) for part in parts]


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
        figures = f"{step.probability:.6f}", f"{step.log_probability:.1e}", f"{step.entropy:.1e}"
        table.add_row(str(number), Text(visible(step.token), "bold"), *figures, Text("   ".join(others), "dim"))
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
        patterns: dict[str, str] = {}
        for name in names:
            patterns.setdefault(entry_of(name).pattern, name)
        for name in patterns.values():
            entry = entry_of(name)
            letters = ", ".join(letter for letter in entry.shape if letter != "…")
            shape = Text.assemble(f"({letters})", (f" {'×'.join(map(str, traced[name].shape))}", "dim"))
            role = Text(name.rpartition(".")[2], "bold")
            table.add_row(role, Text(entry.symbol), shape, Text(f"§{entry.section}", "dim"), entry.sentence)
        screen.print(table)
    screen.print(
        f"\n{len(traced.names)} values. `--name encoder.embedding.sum` or `--name '*.weights'` shows some, "
        "`--explain 0.0.1.2` writes out one weight.",
        markup=False,
    )


# --- pictures ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """The options of a picture. Each kind uses those that it needs."""

    kind: str
    text: str | None
    model: str
    preset: str | None
    attention: str
    layer: int
    head: int
    query: int | None
    length: int
    d_model: int
    variant: str
    log: Path | None

    def config(self) -> ModelConfig:
        """Return the configuration to draw: that of a preset, or that of the model."""
        from seq2see.config import ModelConfig, preset
        from seq2see.storage.folder import find, read_config

        if self.preset is not None:
            return ModelConfig.of(**preset(self.preset).model)
        return read_config(find(self.model)).model

    def encoded(self, at: Tensor) -> Tensor:
        """Encode some positions, whole or fractional, by the requested variant."""
        from seq2see.kernels.layers import foreign_sinusoids
        from seq2see.model.positions import sinusoids

        if self.variant not in VARIANTS:
            raise UserError(f"There is no variant {self.variant!r}. {suggest(self.variant, VARIANTS)}")
        if self.d_model % 2:
            raise UserError(f"--d-model is {self.d_model}, but it must be even: sines and cosines come in pairs.")
        return (
            foreign_sinusoids(at, self.d_model, "halves") if self.variant == "halves" else sinusoids(at, self.d_model)
        )

    def values(self, role: str) -> tuple[Trace, Tensor, list[str], list[str]]:
        """Answer the text; return one role of the requested attention, (H, T, S), and the tokens of rows and columns."""
        from seq2see.inspection.tables import attention_name, axes_of
        from seq2see.seq2seq import load

        trace = load(self.model).trace(self.text or DATE)
        name = f"{attention_name(trace.names, self.attention, self.layer)}.{role}"
        _, queries, keys = axes_of(trace, name)
        heads = len(trace[name])
        if not 0 <= self.head < heads:
            raise UserError(f"There is no head {self.head}: heads are 0 to {heads - 1}.")
        if self.query is not None and not 0 <= self.query < len(queries):
            raise UserError(f"--query is {self.query}, but the tokens are 0 to {len(queries) - 1}.")
        return trace, trace[name], queries, keys


def drawn(asked: Asked) -> Figure:
    """Draw a picture."""
    import torch

    from seq2see.inspection import architecture, plots
    from seq2see.inspection.style import text_width
    from seq2see.inspection.tables import ATTENTIONS

    title = ""
    match asked.kind:
        case "positions":
            ax = plots.plot_positions(asked.encoded(torch.arange(asked.length)).float())
        case "position-curves":
            at = torch.linspace(0, asked.length - 1, 20 * asked.length)
            ax = plots.plot_position_curves(asked.encoded(at), at)
        case "mask":
            text = asked.text or "YOUR CAT IS A LOVELY CAT"
            if not (words := text.split() if " " in text else list(text)):
                raise UserError("--text has no words: give some words, or leave it out for an example.")
            ax = plots.plot_causal_mask(words)
        case "scores" | "attention":
            _, values, queries, keys = asked.values("scores" if asked.kind == "scores" else "weights")
            draw = plots.plot_scores if asked.kind == "scores" else plots.plot_attention
            ax = draw(values[asked.head], queries, keys)
            title = f"{asked.attention} attention, layer {asked.layer}, head {asked.head}"
        case "attention-lines":
            _, values, queries, keys = asked.values("weights")
            ax = plots.plot_attention_lines(values, queries, keys, asked.query)
        case "attention-grid":
            trace, _, queries, keys = asked.values("weights")
            names = trace.match(f"{ATTENTIONS[asked.attention].format('*')}.weights")
            return plots.plot_attention_grid(torch.stack([trace[name] for name in names]), queries, keys)
        case "training":
            return plots.plot_training(_log(asked))
        case kind:
            ax = getattr(architecture, f"plot_{kind.replace('-', '_')}")(asked.config())
    figure = cast("Figure", ax.get_figure(root=True))
    if title:
        ax.set_title(title, loc="left", fontsize=9, pad=10)
        # the picture of a few tokens would be narrower than its title
        figure.set_figwidth(max(figure.get_figwidth(), text_width(title) + 0.9))
    return figure


def _log(asked: Asked) -> list[dict[str, float]]:
    """Read the log of a training."""
    import json

    from seq2see.files import given_text
    from seq2see.storage.folder import LARGEST_LOG, find

    path = asked.log or find(asked.model) / "log.jsonl"
    text = given_text(path, "the log.jsonl that a training writes", LARGEST_LOG)
    try:
        records: list[dict[str, float]] = [json.loads(record) for record in text.splitlines()]
        wrong = not records or any(not {"step", "loss", "validation_loss", "exact_match"} <= set(r) for r in records)
    except (ValueError, TypeError):
        wrong = True
    if wrong:
        raise UserError(f"{str(path)!r} is not the log of a training. Give the log.jsonl that `seq2see train` writes.")
    return records


def plot(
    kind: Annotated[str, Argument(metavar="KIND", help="The kind of picture: see the list above.")],
    out: Annotated[Path | None, Option("--out", "-o", metavar="FILE",
                   help="A .png, .svg or .pdf; the default is KIND.png.")] = None,
    text: Annotated[str | None, Option("--text", "-t", help=f"The text to answer (default {DATE}), or one "
                    "token.")] = None,
    model: ModelName = "dates",
    preset: Annotated[str | None, Option(metavar="NAME",
                      help="Draw the architecture of a preset instead of a model.")] = None,
    attention: Annotated[str, Option(metavar="encoder|decoder|cross", help="The attention to draw.")] = "encoder",
    layer: Annotated[int | None, Option(min=0, help="The layer, from 0.")] = None,
    head: Annotated[int | None, Option(min=0, help="The head, from 0; for `attention` without a layer and a "
                    "head, the one that the answer needs most.")] = None,
    query: Annotated[int | None, Option(min=0, help="attention-lines: show only this query token, from 0.")] = None,
    length: Annotated[int, Option(min=2, help="Number of positions.")] = 64,
    d_model: Annotated[int, Option(min=2, help="Width of the positions.")] = 128,
    variant: Annotated[str, Option(metavar="paper|halves", help="The positional encoding.")] = "paper",
    log: Annotated[Path | None, Option(metavar="FILE",
                   help="The log.jsonl of a training; the default is that of the model.")] = None,
) -> None:  # fmt: skip
    """Draw a picture: of the numbers in a model, of the model itself, or of its training.

    [dim]seq2see plot attention --text 1845-01-05 --attention cross --layer 1 --head 2[/dim]

    [dim]seq2see plot architecture --preset base --out figure-1.svg[/dim]
    """
    if kind not in KINDS:
        raise UserError(f"There is no picture {kind!r}. {suggest(kind, KINDS)}")
    path = out or Path(f"{kind}.png")
    form = path.suffix.removeprefix(".").lower()
    if form not in PICTURES:
        raise UserError(f"--out is {str(path)!r}: its name must end in .png, .svg or .pdf.")
    if text == "":
        raise UserError("--text is empty: leave it out for an example, or give a text.")
    where = attention, layer or 0, head or 0
    if kind == "attention" and layer is None and head is None:
        where = _telling(model, text or DATE, attention)
    asked = Asked(kind, text, model, preset, *where, query, length, d_model, variant, log)
    _save(drawn(asked), path, form)
    say(str(path))


def _telling(model: str, text: str, attention: str) -> tuple[str, int, int]:
    """Return the head of an attention that the answer needs most: without it the log-probability falls furthest."""
    from seq2see.inspection.effect import effects, heads_of
    from seq2see.inspection.tables import ATTENTIONS
    from seq2see.seq2seq import load

    if attention not in ATTENTIONS:
        raise UserError(f"There is no attention {attention!r}. {suggest(attention, ATTENTIONS)}")
    trace = load(model).trace(text)
    names = [f"{kind}.{layer}.{head}" for kind, layer, head in heads_of(trace.transformer, attention)]
    falls = effects(trace, names)
    return heads_of(trace.transformer, max(names, key=lambda name: sum(falls[name])))[0]


def _save(figure: Figure, path: Path, form: str) -> None:
    """Write a picture in one piece, without a date in it: the same picture is always the same bytes."""
    from matplotlib import rc_context

    from seq2see.storage.folder import write_atomically

    undated = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[form]
    data = io.BytesIO()
    with rc_context({"svg.hashsalt": "seq2see"}):
        figure.savefig(data, format=form, dpi=160, metadata=undated)
    write_atomically(path, data.getvalue())
