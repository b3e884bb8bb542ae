"""README commands and snippets, run as printed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)
COMMANDS = [
    line
    for kind, block in BLOCKS
    if kind == "sh"
    for line in block.splitlines()
    if line.startswith("seq2see")
]
SNIPPETS = [block for kind, block in BLOCKS if kind == "python"]

#: Training takes minutes at full length; the command is run as printed with these added.
SHORTER = [
    "--steps",
    "3",
    "--count",
    "200",
    "--set",
    "training.batch_tokens=400",
    "--set",
    "training.evaluate_on=5",
]


def test_commands_run_one_after_the_other(tmp_path: Path) -> None:
    assert len(COMMANDS) >= 6
    for command in COMMANDS:
        words = shlex.split(command)
        words += SHORTER if words[1] == "train" else []
        words += ["--sample", "20"] if words[1] == "evaluate" else []
        done = subprocess.run([sys.executable, "-m", *words], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        assert done.stdout.strip() or (tmp_path / words[-1]).exists(), command


def test_answers_are_printed_as_the_readme_says() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "seq2see", "predict", "1845-01-05", "2025-09-03"],
        capture_output=True,
        text=True,
    )
    assert f"```text\n{done.stdout}```" in README


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_snippets_run(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(SNIPPETS[number], f"README snippet {number}", "exec"), {})


def test_linked_files_exist() -> None:
    for target in re.findall(r"\]\(((?!https?:)[^)#]+)", README):
        assert (ROOT / target).exists(), target


def test_commands_table_lists_every_command() -> None:
    import typer.main

    from seq2see.cli import app

    names = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    assert set(re.findall(r"^\| `seq2see (\w+)", README, re.MULTILINE)) == names
