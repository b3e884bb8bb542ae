"""The lessons, executed top to bottom as a reader would, each number asserted in place.

``python tests/test_lessons.py [NAME …]`` stores their outputs again, after a change to a lesson or to code it shows.
"""

from __future__ import annotations

import ast
import base64
import io
import itertools
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
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
from playwright.sync_api import BrowserContext, expect

from conftest import PATIENCE, sweep
from seq2see.learn.lesson import check, live

LESSONS = Path(__file__).parent.parent / "lessons"
SOURCE = tomllib.loads((LESSONS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Source"]
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
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KernelManager]:
    """A kernel that many lessons share, since importing PyTorch takes longer than most of them."""
    made = KernelManager(kernel_name="python3")
    made.start_kernel(cwd=str(tmp_path_factory.mktemp("empty")))
    yield made
    made.shutdown_kernel(now=True)


def execute(name: str, folder: str, kernel: KernelManager | None = None) -> NotebookNode:
    """Run a lesson in an empty folder, by this very Python: in a fresh kernel, or in one that has forgotten."""
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
        resources={"metadata": {"path": folder}},
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
def test_a_lesson_runs_from_top_to_bottom(name: str, tmp_path: Path, kernel: KernelManager) -> None:
    done = execute(name, str(tmp_path), kernel)
    assert all(output.output_type != "error" for cell in code_cells(done) for output in cell.outputs)
    assert all(output.get("name") != "stderr" for cell in code_cells(done) for output in cell.outputs)
    assert [kinds_of(cell) for cell in code_cells(done)] == [kinds_of(cell) for cell in code_cells(read(name))]
    assert shown_sources(done) == shown_sources(read(name)), stale(name)


#: Trainings that `make test` makes a tenth as long: it leaves out what only the whole training reaches.
LONG = ("07-training-on-dates", "11-why-it-is-made-so")
STEPS = re.compile(r"^(steps) = (\d+)$", re.MULTILINE)


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


@pytest.mark.parametrize("name", NAMES)
def test_the_cells_of_a_lesson_hold_and_show_what_is_stored(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process, in an empty folder, without drawing, which takes most of the time; `make verify` has a kernel."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("matplotlib_inline.backend_inline.set_matplotlib_formats", lambda *formats: None)
    torch.manual_seed(0)
    stored, names, sources = code_cells(read(name)), dict[str, Any](), []
    for cell in stored:
        shown = Shown()
        names["display"] = shown.display
        if name in LONG and "trained" in cell.metadata.get("tags", []):
            continue
        shorter = STEPS.sub(lambda found: f"{found[1]} = {int(found[2]) // 10}", cell.source)
        shown.run(shorter if name in LONG else cell.source, names)
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
    assert f'"git+{SOURCE}"' in install.source
    assert "seq2see[train] @ {home}" in install.source
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
def test_an_answer_may_be_a_list_a_tuple_an_array_or_a_tensor(kind: Any) -> None:
    assert "Right" in check(kind([1.0, 0.33333]), [1, 1 / 3], "").data
    assert "Not yet" in check(kind([1.0, 0.4]), [1, 1 / 3], "").data
    assert "Right" in check(np.float64(0.5), 0.5, "").data


def views() -> list[str]:
    """What the live places show; the ones that say most first."""
    found = {m[1] for name in NAMES for cell in read(name).cells if (m := LIVE.fullmatch(cell.source))}
    return sorted(found, key=lambda view: ("puzzle" in view, -len(view), view))


@pytest.mark.parametrize("view", sweep(views(), 5))
def test_a_live_place_shows_the_live_page(view: str, context_of: Callable[..., BrowserContext]) -> None:
    """As a notebook shows it: a frame without an address, in a page that may load nothing."""
    page = context_of(viewport={"width": 1280, "height": 900}, offline=True, reduced_motion="reduce").new_page()
    page.set_default_timeout(PATIENCE)
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.set_content(live(view)._repr_html_())
    frame = page.frame_locator("iframe")
    expect(frame.locator("#answer")).not_to_be_empty()
    wanted = dict(part.split("=") for part in view.split("&"))
    if "puzzle" in wanted:
        expect(frame.locator("#puzzle")).to_contain_text(f"{wanted['puzzle']} of 12")
    else:
        expect(frame.locator("#puzzle")).to_be_hidden()
        expect(frame.locator("#text")).to_have_value(wanted.get("text", "1845-01-05"))
    if "muted" in wanted:
        expect(frame.locator("#answer")).to_have_text("October 5, 5745")
    if "zoom" in wanted:
        expect(frame.get_by_text("softmax", exact=True).first).to_be_visible()
    assert not faults
    page.close()


def test_the_slides_turn_and_print(context_of: Callable[..., BrowserContext], tmp_path: Path) -> None:
    file = tmp_path / "slides.html"
    made = subprocess.run([sys.executable, LESSONS / "slides.py", file], capture_output=True, text=True, check=True)
    assert made.stdout == f"Written: {file}\n"
    page = context_of(offline=True).new_page()
    page.goto(file.as_uri())
    assert page.locator("section").count() > 3 * len(NAMES)
    expect(page.locator("section:visible h1")).to_have_text("1. From text to numbers")
    for key, shown in (("ArrowRight", "2"), ("ArrowRight", "3"), ("ArrowLeft", "2")):
        page.keyboard.press(key)
        expect(page.locator("section:visible footer")).to_have_text(shown)
    page.emulate_media(media="print")
    expect(page.locator("section:visible")).to_have_count(page.locator("section").count())
    page.close()


def test_the_kit_has_three_questions_with_answers_for_each_lesson_and_links_that_lead_somewhere() -> None:
    text = (LESSONS / "teaching.md").read_text(encoding="utf-8")
    for name in NAMES:
        title = read(name).cells[0].source.split("\n")[0].lstrip("# ")
        questions = re.search(rf"^### {re.escape(title)}\n((?:\d\. .+\n)+)", text, re.MULTILINE)
        assert questions
        assert re.findall(r"^(\d)\. \*.+\?\* .+[.)]$", questions[1], re.MULTILINE) == ["1", "2", "3"], title
    minutes = [tuple(map(int, found)) for found in re.findall(r"^\| (\d+)–(\d+) \|", text, re.MULTILINE)]
    assert (minutes[0][0], minutes[-1][1]) == (0, 120)
    assert all(before[1] == after[0] for before, after in itertools.pairwise(minutes))
    for file in ("teaching.md", "matrices.md", "README.md", "build/README.md"):
        for link in re.findall(r"\]\(((?!https?:)[^)#\s]+)", (LESSONS / file).read_text(encoding="utf-8")):
            assert ((LESSONS / file).parent / link).exists(), link


def test_the_products_of_the_page_on_matrices_are_right() -> None:
    text = (LESSONS / "matrices.md").read_text(encoding="utf-8")
    found = re.findall(r"\\begin\{pmatrix\} (.+?) \\end", text)
    a, first, b, product, tall, wide = (
        torch.tensor([[int(n) for n in row.split("&")] for row in one.split(r"\\")]) for one in found
    )
    assert torch.equal(a, first)
    assert torch.equal(a @ b, product)
    assert torch.equal(tall, b)
    assert torch.equal(tall.T, wide)


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
        with TemporaryDirectory() as folder:
            notebook = execute(name, folder)
        shrink(notebook)
        nbformat.write(notebook, LESSONS / f"{name}.ipynb")
        print(name)


if __name__ == "__main__":
    main()
