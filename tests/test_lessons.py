"""The lessons, executed top to bottom as a reader would, each number asserted in place.

``python tests/test_lessons.py [NAME …]`` stores their outputs again, after a change to a lesson or to code it shows.
"""

from __future__ import annotations

import ast
import base64
import importlib
import io
import re
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pytest
import torch
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from nbformat import NotebookNode
from PIL import Image

LESSONS = Path(__file__).parent.parent / "lessons"
NAMES = [
    "01-text-to-ids",
    "02-embeddings-and-similarity",
    "03-attention-by-hand",
    "04-positions",
    "05-heads-and-masks",
    "06-layers",
    "07-training-on-dates",
    "08-english-to-french",
    "09-writing",
    "10-what-the-heads-do",
    "11-why-it-is-made-so",
]
LARGEST = 300_000  # bytes
PUZZLES = LESSONS.parent / "src" / "seq2see" / "page" / "static" / "puzzles.js"
#: A path of the machine on which a notebook was run: /home/…, C:\…, or any file below a root folder.
MACHINE = re.compile(r"(?<![\w.:/<])/(?:home|root|tmp|usr|opt|var|work|Users|mnt|private)/|\b[A-Z]:\\")


#: A cell that shows the live page.
LIVE = re.compile(r'live\("([\w.&=~-]+)"\)')


def read(name: str) -> NotebookNode:
    return nbformat.read(LESSONS / f"{name}.ipynb", as_version=4)


#: Leaves nothing of a lesson to the next one but what is imported.
FORGOTTEN = (
    "%reset -f\nimport matplotlib.pyplot, torch\nmatplotlib.pyplot.close('all')\ntorch.manual_seed(0)\n%reset -f"
)


@pytest.fixture(scope="module")
def kernel() -> Iterator[KernelManager]:
    """A kernel that many lessons share, since importing PyTorch takes longer than most of them."""
    made = KernelManager(kernel_name="python3")
    made.start_kernel(cwd=str(LESSONS))
    yield made
    made.shutdown_kernel(now=True)


def execute(name: str, kernel: KernelManager | None = None) -> NotebookNode:
    """Run a lesson in the folder of the lessons, by this very Python: in a fresh kernel, or in one that has forgotten."""
    notebook = read(name)
    for cell in code_cells(notebook):
        cell.outputs, cell.execution_count = [], None
    if kernel is not None:
        notebook.cells.insert(0, nbformat.v4.new_code_cell(FORGOTTEN))
    client = NotebookClient(
        notebook,
        km=kernel,
        timeout=300,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(LESSONS)}},
    )
    try:
        client.execute()
    finally:
        if kernel is not None and client.kc is not None:
            client.kc.stop_channels()
    if kernel is not None:
        del notebook.cells[0]
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return notebook


def code_cells(notebook: NotebookNode) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def texts(notebook: NotebookNode) -> list[str]:
    """All that a notebook's outputs say, pictures aside."""
    found = []
    for cell in code_cells(notebook):
        for output in cell.outputs:
            found += [output.text] if output.output_type == "stream" else []
            found += [text for kind, text in output.get("data", {}).items() if kind.startswith("text/")]
    return found


def shown_sources(notebook: NotebookNode) -> list[str]:
    return [text for text in texts(notebook) if "```python" in text]


def test_these_are_the_lessons() -> None:
    assert sorted(path.stem for path in LESSONS.glob("*.ipynb")) == NAMES
    readme = (LESSONS / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"\]\(([^)]+)\.ipynb\)", readme) == NAMES


def kinds_of(cell: NotebookNode) -> list[str]:
    """Return the kinds of a cell's outputs; what is printed comes in one piece or in several, as time will have it."""
    kinds = [output.output_type for output in cell.outputs]
    return [kind for before, kind in zip([None, *kinds], kinds, strict=False) if not before == kind == "stream"]


def stale(name: str) -> str:
    return f"{name} shows code that has changed: python tests/test_lessons.py {name}"


@pytest.mark.heavy
@pytest.mark.parametrize("name", NAMES)
def test_a_lesson_runs_from_top_to_bottom(name: str, kernel: KernelManager) -> None:
    done = execute(name, kernel)
    assert all(output.output_type != "error" for cell in code_cells(done) for output in cell.outputs)
    assert all(output.get("name") != "stderr" for cell in code_cells(done) for output in cell.outputs)
    assert [kinds_of(cell) for cell in code_cells(done)] == [kinds_of(cell) for cell in code_cells(read(name))]
    assert shown_sources(done) == shown_sources(read(name)), stale(name)


#: The trainings and the heads that these show are tested elsewhere.
LONG = ("07-training-on-dates", "09-what-the-heads-do", "10-why-it-is-made-so")


class Shown(list[tuple[str, str]]):
    """The kinds and the texts of what a cell shows. It takes the place of the standard output."""

    def write(self, text: str) -> None:
        if self and self[-1][0] == "stream":
            text = self.pop()[1] + text
        self.append(("stream", text))

    def flush(self) -> None:
        pass

    def display(self, thing: object, kind: str = "display_data") -> None:
        self.append((kind, str(getattr(thing, "data", thing))))

    def run(self, source: str, names: dict[str, Any]) -> None:
        """Run a cell, and show the value of its last line."""
        tree = ast.parse(source)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        with redirect_stdout(self):  # type: ignore[type-var]
            exec(compile(tree, "cell", "exec"), names)
            value = last and eval(compile(ast.Expression(last.value), "cell", "eval"), names)
        if value is not None:
            self.display(value, "execute_result")


@pytest.mark.parametrize("name", [name for name in NAMES if name not in LONG])
def test_the_cells_of_a_lesson_hold_and_show_what_is_stored(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process and without drawing, which takes most of the time; `make verify` runs lessons in a kernel."""
    monkeypatch.chdir(LESSONS)
    monkeypatch.syspath_prepend(LESSONS)
    monkeypatch.setattr("matplotlib_inline.backend_inline.set_matplotlib_formats", lambda *formats: None)
    torch.manual_seed(0)
    stored, names, sources = code_cells(read(name)), dict[str, Any](), []
    for cell in stored:
        shown = Shown()
        names["display"] = shown.display
        shown.run(cell.source, names)
        assert [kind for kind, _ in shown] == kinds_of(cell), cell.source
        sources += [text for _, text in shown if "```python" in text]
    plt.close("all")
    assert sources == shown_sources(read(name)), stale(name)


@pytest.mark.parametrize("name", NAMES)
def test_a_lesson_is_stored_as_a_reader_wants_it(name: str) -> None:
    stored = read(name)
    assert (LESSONS / f"{name}.ipynb").stat().st_size < LARGEST
    assert stored.metadata.kernelspec.name == "python3"
    assert 10 <= len(stored.cells) <= 52
    assert [cell.execution_count for cell in code_cells(stored)] == list(range(1, len(code_cells(stored)) + 1))
    assert "assert " in "".join(cell.source for cell in code_cells(stored))
    for text in texts(stored):
        assert not MACHINE.search(text), text
    for text in [*texts(stored), *(cell.source for cell in stored.cells)]:
        for link in re.findall(r"\]\(((?!https?:)[^)#\s]+)\)", text):
            assert (LESSONS / link).exists(), link


def is_folded(cell: NotebookNode) -> bool:
    """Whether the code of a cell is folded, on the site and in JupyterLab."""
    tags = {*cell.metadata.get("tags", [])} & {"hide-cell", "hide-input"}
    assert bool(tags) == bool(cell.metadata.get("jupyter", {}).get("source_hidden"))
    return bool(tags)


@pytest.mark.parametrize("name", NAMES)
def test_a_lesson_begins_with_a_question_and_a_picture_and_ends_with_an_exercise_and_a_puzzle(name: str) -> None:
    first, install, picture, *others = read(name).cells
    assert is_folded(install)
    assert '"pip", "install"' in install.source
    assert re.fullmatch(r"# \d+\. [^\n]+\n\n\*\*.+\?\*\*|# \d+\. [^\n]+\n\n\*+gare\*.+\?\*\*", first.source)
    assert is_folded(picture)
    assert "image/png" in picture.outputs[0].data
    said = [cell.source for cell in others]
    lives = [index for index, text in enumerate(said) if LIVE.fullmatch(text)]
    formula = next(index for index, text in enumerate(said) if "$" in text)
    exercise = next(index for index, text in enumerate(said) if text.startswith("## Your turn"))
    assert lives[0] < formula < exercise < lives[1] == len(said) - 2
    for cell in code_cells(read(name)):
        if any("image/png" in output.get("data", {}) for output in cell.outputs):
            assert len(cell.metadata.mystnb.image.alt) > 30
        if LIVE.fullmatch(cell.source):
            assert is_folded(cell)
            assert cell.outputs[0].data["text/html"] == f"<!-- live {LIVE.fullmatch(cell.source)[1]} -->"
        if not is_folded(cell):
            assert not re.search(r"^\s*(assert |torch\.testing\.|import |from )", cell.source, re.MULTILINE), (
                cell.source
            )
    asked, solved = others[exercise + 1], others[exercise + 2]
    assert "= ..." in asked.source
    assert "Replace the dots" in asked.outputs[0].data["text/markdown"]
    assert 'assert "Right" in check(' in solved.source
    assert 'assert "Not yet" in check(' in solved.source
    number, topic = re.match(r"## Puzzle (\d+): (.+)", said[lives[1] - 1]).groups()
    assert said[lives[1]] == f'live("puzzle={number}")'
    assert int(number) == int(name[:2])
    assert re.findall(r'topic: "([^"]+)"', PUZZLES.read_text(encoding="utf-8"))[int(number) - 1] == topic


@pytest.mark.parametrize("kind", [list, tuple, np.array, torch.tensor])
def test_an_answer_may_be_a_list_a_tuple_an_array_or_a_tensor(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(LESSONS)
    check = importlib.import_module("lesson").check
    assert "Right" in check(kind([1.0, 0.33333]), [1, 1 / 3], "").data
    assert "Not yet" in check(kind([1.0, 0.4]), [1, 1 / 3], "").data
    assert "Right" in check(np.float64(0.5), 0.5, "").data


def shrink(notebook: NotebookNode) -> None:
    """Reduce the pictures to 256 colours, and a live page to its view, so that the repository stays small."""
    for cell in code_cells(notebook):
        for output in cell.outputs:
            if found := LIVE.fullmatch(cell.source):
                output.data["text/html"] = f"<!-- live {found[1]} -->"  # the site puts its page here
            if "image/png" in output.get("data", {}):
                picture, data = (Image.open(io.BytesIO(base64.b64decode(output.data["image/png"]))), io.BytesIO())
                picture.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(data, "png", optimize=True)
                output.data["image/png"] = base64.b64encode(data.getvalue()).decode()


def main() -> None:
    for name in sys.argv[1:] or NAMES:
        notebook = execute(name)
        shrink(notebook)
        nbformat.write(notebook, LESSONS / f"{name}.ipynb")
        print(name)


if __name__ == "__main__":
    main()
