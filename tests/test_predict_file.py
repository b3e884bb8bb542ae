"""Files of any length: order kept, whole or marked unfinished, and gone on with after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

import seq2see
from seq2see.answering.answer import Alternative, Answer
from seq2see.answering.network import WINDOW
from seq2see.answering.options import Options
from seq2see.cli import answering as command
from seq2see.cli import app, lines
from seq2see.errors import UserError
from seq2see.tasks.dates import all_ordinals, pairs_of
from test_cli import run

PAIRS = pairs_of(all_ordinals()[::150])  # 21,915 dates: three windows
EXPECTED = "".join(f"{target}\n" for _, target in PAIRS)


@pytest.fixture
def many(tmp_path: Path) -> Path:
    path = tmp_path / "in.txt"
    path.write_text("".join(f"{source}\n" for source, _ in PAIRS))
    return path


def test_many_windows_keep_their_order(many: Path, tmp_path: Path) -> None:
    assert len(PAIRS) > 2 * WINDOW
    done = run("predict", "--file", str(many), "--out", str(tmp_path / "out.txt"), "--verbose")
    assert done.returncode == 0
    assert done.stderr == "seq2see: answered by ctranslate2, float32\n"
    assert (tmp_path / "out.txt").read_text() == EXPECTED
    assert not (tmp_path / "out.txt.part").exists()


def test_a_repair_of_many_sentences_of_a_line_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    repaired = Answer(
        "x", "y", repairs=["a second search was made", "a number was inserted"] * 2 + ["a second search was made"]
    )
    monkeypatch.setattr(command.Job, "windows", lambda self, inputs: iter([[repaired]]))
    job, told = command.Asked("dates", Options(beam=1)).job(), list[str]()
    with lines.Unfinished(None, False) as out:
        command.answer_all(job, ["x"], "line", out, command.Unsure(None, None), tell=told.append)
    assert told == ["line 1: a second search was made (3 times); a number was inserted (2 times)."]


def test_a_document_and_the_name_of_a_file_are_remarked_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("page.html").write_text("<p>Hello.</p>\n")
    invoke = CliRunner().invoke
    done = invoke(app, ["predict", "--model", "en-fr", "--file", "page.html"])
    assert "page.html is read as lines of text: with --format html only its words change." in done.stderr
    done = invoke(app, ["predict", "--model", "en-fr", "--file", "page.html", "--format", "html"])
    assert done.stderr == ""
    Path("lines.txt").write_text("Hello.\n")
    assert invoke(app, ["predict", "--model", "en-fr", "--file", "lines.txt"]).stderr == ""
    done = invoke(app, ["predict", "--model", "en-fr", "lines.txt"])
    assert "'lines.txt' is answered as a text: --file reads the file of that name." in done.stderr
    assert "is answered as a text" not in invoke(app, ["predict", "--model", "en-fr", "Hello."]).stderr


def test_a_killed_run_is_gone_on_with(tmp_path: Path) -> None:
    out = tmp_path / "out.txt"
    part = tmp_path / "out.txt.part"
    process = subprocess.Popen([sys.executable, "-m", "seq2see", "predict", "--out", str(out)], stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write("".join(f"{source}\n" for source, _ in PAIRS[: WINDOW + 5]).encode())
    process.stdin.flush()  # it waits for more lines, with one window written
    deadline = time.monotonic() + 60
    while not (part.exists() and part.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdin.close()
    assert not out.exists()
    written = part.read_text()
    assert written
    assert EXPECTED.startswith(written)
    part.write_text(written + "Janu")  # the kill may fall within a line

    source = tmp_path / "in.txt"
    source.write_text("".join(f"{source}\n" for source, _ in PAIRS))
    refused = run("predict", "--file", str(source), "--out", str(out))
    assert refused.returncode == 2
    assert "continue with --resume" in refused.stderr
    done = run("predict", "--file", str(source), "--out", str(out), "--resume")
    assert done.returncode == 0
    assert out.read_text() == EXPECTED
    assert not part.exists()


def test_refused_lines_of_the_first_part_count_in_the_end(tmp_path: Path) -> None:
    source, out = tmp_path / "in.txt", tmp_path / "out.jsonl"
    source.write_text("1845-01-05\nnonsense\n2025-09-03\n1845-01-06\n")
    whole = run("predict", "--file", str(source), "--out", str(out), "--json")
    assert whole.returncode == 1
    first, second, third, _ = out.read_text().splitlines(keepends=True)
    (tmp_path / "out.jsonl.part").write_text(first + second + third)
    done = run("predict", "--file", str(source), "--out", str(out), "--json", "--resume")
    assert done.returncode == 1
    assert done.stderr == "seq2see: 3 answered, 1 refused.\n"
    assert [json.loads(line)["input"] for line in out.read_text().splitlines()] == source.read_text().split()


@pytest.mark.parametrize(
    ("part", "message"),
    [("January 6, 1845\n", "belongs to another input"), ("January 5, 1845\n\n\n", "more than the input")],
)
def test_a_part_of_something_else_is_not_gone_on_with(tmp_path: Path, part: str, message: str) -> None:
    source, out = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("1845-01-05\n2025-09-03\n")
    (tmp_path / "out.txt.part").write_text(part)
    done = run("predict", "--file", str(source), "--out", str(out), "--resume")
    assert done.returncode == 2
    assert message in done.stderr
    assert (tmp_path / "out.txt.part").read_text() == part
    assert not out.exists()


def job(model: Any = None, n_best: int = 1, **written: bool) -> command.Job:
    return command.Job(model or seq2see.load("dates"), command.Asked("dates", Options(n_best=n_best), **written))


def json_form(**options: Any) -> command.Job:
    return job(as_json=True, **options)


def test_json_of_another_model_is_not_gone_on_with(tmp_path: Path) -> None:
    """As strict as plain output, in each of the last lines, but for the digits of the probabilities."""
    source, out, part = (tmp_path / name for name in ("in.txt", "out.jsonl", "out.jsonl.part"))
    source.write_text("1845-01-05\nnonsense\n2025-09-03\n")
    rows = list(json_form().lines(next(json_form().windows(["1845-01-05", "nonsense"]))))
    resume = ["predict", "--file", str(source), "--out", str(out), "--json", "--resume"]
    part.write_text("".join(line + "\n" for line in rows).replace("January 5", "May 5"))
    refused = CliRunner().invoke(app, resume)
    assert isinstance(refused.exception, UserError)
    assert "another model or other options (line 1 would now differ)" in str(refused.exception)
    assert "May 5" in part.read_text()
    part.write_text("".join(line + "\n" for line in rows).replace('"log_probability": -', '"log_probability": -9'))
    done = CliRunner().invoke(app, resume)
    assert isinstance(done.exception, SystemExit)
    assert done.exit_code == 1  # of the refused line
    assert len(out.read_text().splitlines()) == 3


@pytest.mark.parametrize("options", [dict(n_best=2), dict(raw=True), dict(align=True)])
def test_json_of_other_options_is_not_gone_on_with(options: dict[str, Any]) -> None:
    text, plain, other = "1845-01-05", json_form(), json_form(**options)
    mine, theirs = next(plain.lines(next(plain.windows([text])))), next(other.lines(next(other.windows([text]))))
    assert command._same(plain, text, mine)
    assert command._same(other, text, theirs)
    assert not command._same(plain, text, theirs)
    assert not command._same(other, text, mine)
    assert not command._same(plain, text, "January 5, 1845")
    assert not command._same(plain, "1845-01-06", mine)


@pytest.mark.parametrize("align", [False, True])
def test_the_digits_of_a_score_do_not_keep_a_run_from_being_gone_on_with(align: bool) -> None:
    asked = job(n_best=2, align=align)
    cells = next(asked.lines(next(asked.windows(["1845-01-05"])))).split("\t")
    assert [float(cells[1]), float(cells[3])] == sorted([float(cells[1]), float(cells[3])], reverse=True)
    moved = [*cells[:3], "-9.8765", *cells[4:]]
    assert command._same(asked, "1845-01-05", "\t".join(moved))
    other = [*cells[:2], "May 5, 1845", *cells[3:]]
    assert not command._same(asked, "1845-01-05", "\t".join(other))


def test_an_answer_is_one_line_and_one_column_whatever_is_in_it() -> None:
    model: Any = SimpleNamespace(answerer=SimpleNamespace(raw=lambda answer: f"<sos>{answer.output}<eos>"))
    answers = [Answer("x", "one\ntwo\r\tthree", alternatives=[Alternative("a\tb\n", -1.0, -0.5)], score=-0.1)]
    form = job(model, 2)
    assert list(form.lines(answers)) == ["one two  three\t-0.1000\ta b \t-0.5000"]
    form = job(model, 2, raw=True)
    assert list(form.lines(answers)) == ["<sos>one two  three<eos>\t-0.1000\ta b \t-0.5000"]
    form = job(model, 2, as_json=True)
    assert json.loads(next(form.lines(answers)))["output"] == "one\ntwo\r\tthree"


@pytest.mark.parametrize(("form", "why"), [([], "--json says why for each"), (["--json"], "the answers say why")])
def test_many_refused_lines_are_counted_not_listed(form: list[str], why: str) -> None:
    done = CliRunner().invoke(app, ["predict", "1845-01-05", *("nonsense" for _ in range(13)), *form])
    assert done.exit_code == 1
    told = done.stderr.splitlines()
    assert [line.split(":")[1] for line in told[:10]] == [f" input {n}" for n in range(2, 12)]
    assert told[10:] == [f"seq2see: … and 3 more inputs were refused; {why}.", "seq2see: 1 answered, 13 refused."]
    assert len(done.stdout.splitlines()) == 14


def test_resume_needs_a_file_to_go_on_with() -> None:
    refused = CliRunner().invoke(app, ["predict", "1845-01-05", "--resume"])
    assert "--resume continues a file" in str(refused.exception)


def test_lines_lose_their_ends_and_the_first_one_a_byte_order_mark() -> None:
    given = "\ufeffa b\r\n\ufeffc\n\n d \r\r\nlast".encode()
    assert [*lines._texts(BytesIO(given))] == ["a b", "\ufeffc", "", " d \r", "last"]


def test_who_types_is_answered_line_by_line() -> None:
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "seq2see", "predict"]
    with subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as typing:
        assert typing.stdout is not None
        assert typing.stderr is not None
        assert "Type a text and press Enter" in typing.stderr.readline()
        for text, answer in (("1845-01-05", "January 5, 1845"), ("2025-09-03", "September 3, 2025")):
            os.write(ours, f"{text}\n".encode())
            assert typing.stdout.readline() == f"{answer}\n"
        os.write(ours, b"\x04")  # Ctrl-D
        assert typing.wait() == 0
    os.close(ours)
    os.close(theirs)


def test_a_device_is_written_to_and_not_replaced() -> None:
    assert run("predict", "1845-01-05", "--out", "/dev/null").returncode == 0
    assert not Path("/dev/null").is_file()
