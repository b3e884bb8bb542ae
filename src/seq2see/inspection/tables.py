"""Recorded values as labelled tables and files, and one attention weight written out step by step."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import inf, sqrt
from typing import Any, BinaryIO, TextIO

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from seq2see.errors import UserError, harmless, suggest
from seq2see.inspection.glossary import Head, entry_of
from seq2see.inspection.trace import Edit, Trace, mute_head, names_of
from seq2see.model.transformer import Transformer

ATTENTIONS = {
    "encoder": "encoder.layers.{}.self_attention",
    "decoder": "decoder.layers.{}.self_attention",
    "cross": "decoder.layers.{}.cross_attention",
}
MOST_COLUMNS = 80  # the most columns shown in a terminal; files hold all


def visible(token: str) -> str:
    """Make a token visible in a table: white space becomes a sign."""
    return {" ": "␣", "\n": "↵", "\t": "⇥"}.get(token) or harmless(token).replace("\n", "↵")


# --- labels --------------------------------------------------------------------------------------------


def axes_of(trace: Trace, name: str) -> list[list[str]]:
    """Return the labels along each dimension of a value: tokens, heads, or Dim 1, Dim 2, …"""
    shape = trace[name].shape
    labels: dict[str, Callable[[int], list[str]]] = {
        "S": lambda size: trace.source_tokens,
        "T": lambda size: trace.target_tokens,
        "V": lambda size: trace.tokenizers.target.tokens(range(size)),
        "H": lambda size: [f"head {head}" for head in range(size)],
    }
    letters = [letter for letter in entry_of(name).shape if letter != "…"]
    return [
        labels[letter](size) if letter in labels else [f"Dim {number}" for number in range(1, size + 1)]
        for letter, size in zip(letters, shape, strict=True)
    ]


@dataclass(frozen=True)
class Table:
    """A matrix whose rows and columns have names."""

    name: str
    head: int | None
    rows: list[str]
    columns: list[str]
    values: np.ndarray  # (rows, columns)

    @property
    def title(self) -> str:
        """The name, and the head if each head has its own table."""
        return self.name if self.head is None else f"{self.name}, head {self.head}"


def tables_of(trace: Trace, name: str) -> list[Table]:
    """Cut a value into tables: one for each head, or a single one if the value has no heads."""
    values, axes = array_of(trace, name), axes_of(trace, name)
    letters = [letter for letter in entry_of(name).shape if letter != "…"]
    if "H" in letters:
        axis = letters.index("H")
        rows, columns = (labels for index, labels in enumerate(axes) if index != axis)
        return [Table(name, head, rows, columns, values.take(head, axis)) for head in range(values.shape[axis])]
    if values.ndim == 1:
        return [Table(name, None, axes[0], ["id"], values[:, None])]
    return [Table(name, None, axes[0], axes[1], values)]


def array_of(trace: Trace, name: str) -> np.ndarray:
    """Return a value as a numpy array."""
    value = trace[name].cpu()
    array: np.ndarray = (value.float() if value.is_floating_point() else value).numpy()
    return array


# --- the terminal --------------------------------------------------------------------------------------


def print_table(console: Console, table: Table) -> None:
    """Print a table in blocks of as many columns as fit into the terminal."""
    entry = entry_of(table.name)
    console.print()
    console.print(Text.assemble((table.title, "bold"), f"   {entry.symbol}"))
    if not table.head:  # the sentence is printed once, not for every head
        console.print(Text(f"{entry.sentence} Section {entry.section} of the paper.", "dim"))
    columns = [visible(label) for label in table.columns[:MOST_COLUMNS]]
    numbered = not any(label.startswith("Dim ") or label == "id" for label in columns)
    rows = [visible(label) for label in table.rows]
    first = len(str(len(rows))) + max(map(len, rows)) + 4
    for digits in (4, 3, 2, 4):  # fewer digits, if that spares another block
        cells = [[_cell(x, digits) for x in row] for row in table.values[:, :MOST_COLUMNS]]
        widths = [max(map(len, column)) + 1 for column in zip(columns, *cells, strict=True)]
        if first + sum(widths) <= console.width:
            break
    fitting = max(1, (console.width - first) // max(widths)) if first + sum(widths) > console.width else len(columns)
    for start in range(0, len(columns), fitting):
        block = slice(start, start + fitting)
        grid = RichTable(box=SIMPLE_HEAD, padding=0, pad_edge=False)
        grid.add_column("", justify="right", style="dim")
        grid.add_column("", style="bold")
        for index, label in enumerate(columns[block], start):
            header = Text(f"{index}\n", "dim") + Text(label, "bold") if numbered else Text(label)
            grid.add_column(header, justify="right", no_wrap=True)
        for index, (label, line) in enumerate(zip(rows, cells, strict=True)):
            grid.add_row(str(index), Text(label), *line[block])
        console.print(grid)
    left = len(table.columns) - len(columns)
    if left:
        console.print(f"… and {left:,} more columns: --format csv, json and npz have all.")


def _cell(x: Any, digits: int = 4) -> str:
    if isinstance(x, np.integer):
        return str(x)
    return "-inf" if x == -inf else f"{x:.{digits}f}"


# --- files ---------------------------------------------------------------------------------------------


def write_csv(trace: Trace, names: Iterable[str], out: TextIO) -> None:
    """Write one line for each number: name, head, row, row_token, column, column_token, value."""
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["name", "head", "row", "row_token", "column", "column_token", "value"])
    for name in names:
        for table in tables_of(trace, name):
            head = "" if table.head is None else table.head
            for row, row_token in enumerate(table.rows):
                for column, column_token in enumerate(table.columns):
                    value = table.values[row, column].item()
                    writer.writerow([name, head, row, row_token, column, column_token, value])


def write_json(trace: Trace, names: Iterable[str], out: TextIO) -> None:
    """Write the text, the answer, and each value with its axes. JSON has no infinity, so −∞ becomes "-Infinity"."""
    values = {
        name: {
            "symbol": entry_of(name).symbol,
            "shape": list(trace[name].shape),
            "letters": entry_of(name).letters,
            "axes": axes_of(trace, name),
            "values": _finite(array_of(trace, name).tolist()),
        }
        for name in names
    }
    document = {
        "text": trace.text,
        "output": trace.output,
        "source_tokens": trace.source_tokens,
        "target_tokens": trace.target_tokens,
        "output_tokens": trace.output_tokens,
        "values": values,
    }
    json.dump(document, out, ensure_ascii=False, allow_nan=False)
    out.write("\n")


def _finite(x: Any) -> Any:
    if isinstance(x, list):
        return [_finite(y) for y in x]
    return "-Infinity" if x == -inf else x


def write_npz(trace: Trace, names: Iterable[str], out: BinaryIO) -> None:
    """Write the arrays by name, and the tokens that label them. ``numpy.load`` reads the file without pickle."""
    arrays = {name: array_of(trace, name) for name in names}
    labels = {
        "source_tokens": trace.source_tokens,
        "target_tokens": trace.target_tokens,
        "output_tokens": trace.output_tokens,
    }
    np.savez_compressed(out, **arrays, **labels)  # type: ignore[arg-type] # the stubs mistake the names for options


# --- one cell ------------------------------------------------------------------------------------------


def attention_name(trace_names: Iterable[str], attention: str, layer: int) -> str:
    """Name one attention of a model: ``("cross", 1)`` is ``decoder.layers.1.cross_attention``."""
    if attention not in ATTENTIONS:
        raise UserError(f"There is no attention {attention!r}. {suggest(attention, ATTENTIONS)}")
    pattern = f"{ATTENTIONS[attention]}.weights"
    layers = sum(fnmatchcase(name, pattern.format("*")) for name in trace_names)
    _within("layer", layer, [f"{number}" for number in range(layers)], f"of {attention} attention")
    return ATTENTIONS[attention].format(layer)


def muting(transformer: Transformer, heads: Sequence[Head]) -> dict[str, Edit]:
    """Return the edits that switch some heads off."""
    found: dict[str, list[int]] = {}
    names = names_of(transformer) if heads else []
    for attention, layer, head in heads:
        found.setdefault(f"{attention_name(names, attention, layer)}.z", []).append(head)
    return {name: mute_head(*numbers) for name, numbers in found.items()}


def _within(what: str, index: int, known: list[str], where: str) -> None:
    if not 0 <= index < len(known):
        raise UserError(f"There is no {what} {index} {where}: known are {', '.join(known)}.")


@dataclass(frozen=True)
class Explanation:
    """The calculation of one attention weight, line by line; ``value`` is the weight."""

    lines: list[str]
    value: float

    def __str__(self) -> str:
        return "\n".join(self.lines)


def explain(trace: Trace, attention: str, layer: int, head: int, row: int, col: int) -> Explanation:
    """Write out the calculation of one weight: q·k term by term, ÷ √d_k, mask, softmax over its row (eq. 1)."""
    name = attention_name(trace.names, attention, layer)
    weights = array_of(trace, f"{name}.weights")  # (H, T, S)
    heads, queries, keys = axes_of(trace, f"{name}.weights")
    where = f"in {name}"
    _within("head", head, [str(number) for number in range(len(heads))], where)
    _within("row", row, [f"{number} {visible(token)}" for number, token in enumerate(queries)], where)
    _within("column", col, [f"{number} {visible(token)}" for number, token in enumerate(keys)], where)

    def cell(role: str) -> float:
        return float(array_of(trace, f"{name}.{role}")[head, row, col])

    q = array_of(trace, f"{name}.q")[row, head].astype(float)  # (K,)
    k = array_of(trace, f"{name}.k")[col, head].astype(float)
    masked = array_of(trace, f"{name}.masked")[head, row].astype(float)  # (S,)
    powers = np.exp(masked - masked.max())  # (S,)
    root = sqrt(len(q))
    value = float(weights[head, row, col])
    lines = [
        f"{name}, head {head}: what {row} {visible(queries[row])!r} takes of {col} {visible(keys[col])!r}",
        "",
        f"1. The query of {row} times the key of {col}, number by number:",
        *_products(q, k),
        *_result("q·k", float(q @ k), cell("scores")),
        "",
        f"2. Divided by √d_k = √{len(q)} = {root:.6g}:",
        *_result(f"{cell('scores'):.6f} / {root:.6g}", cell("scores") / root, cell("scaled")),
        "",
        f"3. The mask: this query may {'not ' if masked[col] == -inf else ''}look there.",
        *_result("masked", -inf if masked[col] == -inf else cell("scaled"), masked[col]),
        "",
        f"4. Softmax over row {row}: e to each number less the row's largest, over their sum:",
        *_softmax(masked, keys, col),
        *_result(f"{powers[col]:.6f} / {powers.sum():.6f}", float(powers[col] / powers.sum()), value),
    ]  # fmt: skip
    return Explanation(lines, value)


def _products(q: np.ndarray, k: np.ndarray, a_line: int = 4) -> Iterator[str]:
    terms = [f"{_factor(x)}·{_factor(y)}" for x, y in zip(q, k, strict=True)]
    for start in range(0, len(terms), a_line):
        yield "   " + ("  " if start == 0 else "+ ") + " + ".join(terms[start : start + a_line])


def _factor(x: float) -> str:
    return f"({x:.4f})" if x < 0 else f"{x:.4f}"


def _softmax(masked: np.ndarray, keys: list[str], col: int) -> Iterator[str]:
    width = max(len(visible(key)) for key in keys)
    largest = masked.max()
    powers = np.exp(masked - largest)
    for index, (key, x, power) in enumerate(zip(keys, masked, powers, strict=True)):
        mark = "→" if index == col else " "
        difference = f"({'−∞' if x == -inf else f'{x:.6f}'} − {largest:.6f})".replace("− -", "+ ")
        yield f" {mark} {index:>3} {visible(key):{width}}  e^{difference:<24} = {power:.6f}"
    yield f"   {'':>3} {'':{width}}  {'sum':<26} = {powers.sum():.6f}"


def _result(sum_: str, computed: float, recorded: float) -> list[str]:
    """End a step with its result. The model recorded the same number, unless an edit has replaced it."""
    if recorded == computed or abs(recorded - computed) <= 1e-5 * max(1.0, abs(recorded)):
        return [f"   {sum_} = {recorded:.6f}"]
    return [f"   {sum_} = {computed:.6f}", f"   but an edit has put another number in its place: {recorded:.6f}"]
