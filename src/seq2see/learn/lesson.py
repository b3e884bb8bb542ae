"""Functions that the lessons share: they show numbers as tables, functions as source code, and the live page."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from typing import Any

import torch
from IPython.display import Markdown
from matplotlib_inline.backend_inline import set_matplotlib_formats

from seq2see.inspection.style import as_number
from seq2see.inspection.tables import visible
from seq2see.page.live import live_page
from seq2see.page.single_file import HEIGHT
from seq2see.seq2seq import load

set_matplotlib_formats("retina")
torch.set_num_threads(1)  # small models: a second thread costs more than it brings


def table(columns: Sequence[Any], rows: Sequence[Sequence[Any]], digits: int = 4) -> Markdown:
    """Show rows of texts and numbers under the names of their columns."""
    numeric = [bool(rows) and all(isinstance(row[i], int | float) for row in rows) for i in range(len(columns))]
    lines = [
        "| " + " | ".join(_cell(column, digits) for column in columns) + " |",
        "|" + "|".join("---:" if right else ":---" for right in numeric) + "|",
        *("| " + " | ".join(_cell(cell, digits) for cell in row) + " |" for row in rows),
    ]
    return Markdown("\n".join(lines))


def matrix(
    values: Any, rows: Sequence[Any] = (), columns: Sequence[Any] = (), digits: int = 4, corner: str = ""
) -> Markdown:
    """Show a matrix. Rows and columns without names are counted from 0."""
    values = torch.as_tensor(values).detach()
    heads = rows or range(len(values))
    lines = [[f"**{_cell(head, digits)}**", *line] for head, line in zip(heads, values.tolist(), strict=True)]
    return table([corner, *(columns or range(values.shape[1]))], lines, digits)


def numbers(text: str, columns: int) -> torch.Tensor:
    """Read a table of numbers from text."""
    return torch.tensor([float(number) for number in text.split()]).view(-1, columns)


@dataclass(frozen=True)
class live:  # noqa: N801, since a lesson calls it like the functions here
    """The live page of the model ``dates`` in a frame, beginning with a view: what stands behind # in an address."""

    view: str

    def _repr_html_(self) -> str:
        page = _page().replace("<html ", f'<html data-view="{escape(self.view)}" ', 1)
        return f'<iframe srcdoc="{escape(page)}" title="dates, live" width="100%" height="{HEIGHT}"></iframe>'


@cache
def _page() -> str:
    return live_page("dates", load("dates"), "1845-01-05")


def code(*objects: Any) -> Markdown:
    """Show the source code of functions, and the files that hold it."""
    parts = []
    for thing in objects:
        path = f"src/{thing.__module__.replace('.', '/')}.py"
        lines = textwrap.dedent(inspect.getsource(thing)).rstrip()
        parts.append(f"`{thing.__qualname__}` in [{path}](../{path})\n\n```python\n{lines}\n```")
    return Markdown("\n\n".join(parts))


def check(answer: Any, right: Any, hint: str, digits: int = 3) -> Markdown:
    """Say whether the answer to an exercise is right. Numbers need be right to a few digits; ``...`` is no answer yet."""
    if answer is ...:
        return Markdown("Replace the dots by your answer, and run the cell again.")
    given, wanted = (_plain(value, digits) for value in (answer, right))
    return Markdown("**✓ Right.**" if given == wanted else f"Not yet. {hint}")


def _plain(value: Any, digits: int) -> Any:
    """Return a value in a form that compares: tensors, arrays and tuples as lists, numbers rounded."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(one, digits) for one in value]
    return round(float(value), digits) if isinstance(value, int | float) else value


def _cell(value: Any, digits: int) -> str:
    if isinstance(value, float):
        return as_number(value, digits)
    text = visible(str(value))
    return text if "`" in text or text.startswith("**") else escape(text).replace("|", "\\|")
