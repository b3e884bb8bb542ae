"""The commands and snippets of README.md and docs/training.md run as printed; make understands its targets."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seq2see.cli import app

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
TRAINING = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README + TRAINING, re.DOTALL)
COMMANDS = [line for kind, block in BLOCKS if kind == "sh" for line in block.splitlines() if line.startswith("seq2see")]
SNIPPETS = [block for kind, block in BLOCKS if kind == "python"]

#: Training takes minutes at full length; the command is run as printed with these added.
SHORTER = ["--steps", "3", "--count", "100", "--years", "2000", "--set", "training.batch_tokens=400",
           "--set", "training.evaluate_on=5"]  # fmt: skip


def test_commands_run_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(COMMANDS) >= 6
    commands = [shlex.split(command) for command in COMMANDS]
    for words in commands:
        words += SHORTER if words[1] == "train" else []
        words += ["--sample", "20"] if words[1] == "evaluate" else []
    said = []
    for words in commands:
        done = CliRunner().invoke(app, words[1:])
        assert done.exit_code == 0, (words, done.exception)
        said.append(done.stdout)
    for words, text in zip(commands, said, strict=True):
        assert text.strip() or (tmp_path / words[-1]).exists(), words
    printed = "".join(said[1:4])
    assert f"```text\n{said[0]}```" in README
    assert f"```text\n{printed}```" in README


def test_the_readme_can_be_read_at_one_sitting() -> None:
    assert len(README.splitlines()) < 150


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
@pytest.mark.parametrize("steps", [2, pytest.param(200, marks=pytest.mark.heavy)])
def test_snippets_run(number: int, steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As printed in `make verify`; `make test` trains for fewer steps."""
    monkeypatch.chdir(tmp_path)
    snippet = SNIPPETS[number].replace('"steps": 200', f'"steps": {steps}')
    exec(compile(snippet, f"README snippet {number}", "exec"), {})


def test_one_snippet_trains() -> None:
    assert sum('"steps": 200' in snippet for snippet in SNIPPETS) == 1


def test_linked_files_exist() -> None:
    for target in re.findall(r"\]\(((?!https?:)[^)#]+)", README):
        assert (ROOT / target).exists(), target


def test_commands_table_lists_every_command() -> None:
    table = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    import typer.main

    from seq2see.cli import app

    names = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    assert set(re.findall(r"^\| `seq2see (\w+)", table, re.MULTILINE)) == names


@pytest.mark.parametrize("target", ["demo", "test", "verify", "soak", "bench", "site"])
def test_make_understands_its_targets(target: str) -> None:
    done = subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_first_ten_minutes_are_as_printed(tmp_path: Path) -> None:
    """Each command after a $ prints what stands below it, up to the next one."""
    text = (ROOT / "docs" / "first-ten-minutes.md").read_text(encoding="utf-8")
    steps = "".join(re.findall(r"```text\n(.*?)```", text, re.DOTALL)).removeprefix("$ ").split("\n$ ")
    paths = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = os.environ | {"PATH": paths, "COLUMNS": "100000"}
    assert len(steps) == 10
    for step in steps:
        command, _, printed = step.partition("\n")
        both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        done = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=env, text=True, check=False, **both)  # type: ignore[call-overload]
        form = re.escape(printed.strip()).replace("…", ".*")
        assert re.fullmatch(form, done.stdout.strip(), re.DOTALL), (command, done.stdout)
