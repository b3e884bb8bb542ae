"""docs/paper-to-code.md cannot rot: its links, names, test names and commands are those of the project."""

from __future__ import annotations

import ast
import re
import shlex
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
MAP = ROOT / "docs" / "paper-to-code.md"
LINK = re.compile(r"\[([^\]]+)\]\(((?!https?:)[^)#]+)(#[^)]*)?\)")  # text, target, anchor


@cache
def names_of(path: Path) -> set[str]:
    """The names that a module defines: ``AddNorm``, ``AddNorm.forward``, ``PRESETS``."""
    found: set[str] = set()

    def add(body: list[ast.stmt], within: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found.add(within + node.name)
            if isinstance(node, ast.ClassDef):
                add(node.body, f"{node.name}.")
            if isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                found.update(within + t.id for t in targets if isinstance(t, ast.Name))

    add(ast.parse(path.read_text(encoding="utf-8")).body, "")
    return found


def links() -> list[tuple[str, Path, str]]:
    text = MAP.read_text(encoding="utf-8")
    return [(name, (MAP.parent / target).resolve(), anchor) for name, target, anchor in LINK.findall(text)]


def spans() -> list[str]:
    return re.findall(r"`([^`]+)`", MAP.read_text(encoding="utf-8"))


def test_every_link_leads_to_what_it_names() -> None:
    assert len(links()) > 100
    for name, path, anchor in links():
        assert path.exists(), f"{name}: {path} does not exist"
        if path.suffix == ".py":
            assert name.strip("`") in names_of(path), f"{path.name} has no {name}"
            assert not anchor, f"{name}: a line number would be wrong after the next edit"


def test_every_test_that_is_named_exists() -> None:
    known = {name for path in ROOT.glob("tests/test_*.py") for name in names_of(path)}
    named = [span for span in spans() if re.fullmatch(r"test_\w+", span) and span != "test_"]
    assert len(named) > 60
    assert not [name for name in named if name not in known]


def test_every_number_of_the_documents_is_on_the_map() -> None:
    documents = [name for name in names_of(ROOT / "tests/test_documents.py") if name.startswith("test_00")]
    allowed = {"test_001_4ba290f5064f991a_black_is_at_2_and_brown_at_10_counted_from_1"}  # a detail of another
    assert not set(documents) - set(spans()) - allowed


def test_every_command_that_is_named_exists() -> None:
    import typer.main

    from seq2see.cli import app

    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    named = [shlex.split(span)[1:] for span in spans() if span.startswith("seq2see ")]
    assert len(named) > 10
    for name, *arguments in named:
        assert name in commands, name
        options = {option for parameter in commands[name].params for option in parameter.opts}
        assert {word.split("=")[0] for word in arguments if word.startswith("--")} <= options, (name, arguments)


def test_every_section_equation_figure_and_table_has_its_row() -> None:
    first, second = MAP.read_text(encoding="utf-8").split("# What five tutorials promise\n")
    rows = re.findall(r"^\| ([^|]+) \|", first, re.MULTILINE)
    sections = ["1 ", "3 ", "3.1 ", "3.2.1 ", "3.2.2 ", "3.2.3 ", "3.3 ", "3.4 ", "3.5 ", "4 ", "5.1 ", "5.2 ", "5.3 "]
    parts = ["5.4 ", "6.1 ", "6.2 ", "6.3 ", "7 ", "(1) ", "(2) ", "(3) ", "PE(pos, 2i)", "1, the", "2 left", "2 right"]
    for start in [*sections, *parts, "3 to 5", "1, cost", "2, ", "3, ", "4, "]:
        assert any(row.startswith(start) for row in rows), start
    assert re.findall(r"^### (\w)\. ", second, re.MULTILINE) == list("ABCDE")
