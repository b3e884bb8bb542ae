"""Many files: a file of answers for each, none lost and none doubled, here and on a Ray cluster."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from conftest import small_disk
from seq2see.answering.options import Options
from seq2see.cli import app, parts
from seq2see.cli.answering import Asked
from seq2see.errors import UserError
from seq2see.tasks.dates import all_ordinals, pairs_of
from test_cli import run

DATES = ["1845-01-05", "1845-01-06", "1426-08-10", "2025-09-03"]
WORDS = ["January 5, 1845", "January 6, 1845", "August 10, 1426", "September 3, 2025"]


@pytest.fixture
def given(tmp_path: Path) -> Path:
    """Three parts: packed JSON, packed lines, and lines with one that is no date."""
    folder = tmp_path / "parts"
    folder.mkdir()
    records = [{"input": DATES[0]}, DATES[1], {"id": 7, "text": DATES[2]}]
    (folder / "a.jsonl.gz").write_bytes(
        gzip.compress("".join(json.dumps(record) + "\n" for record in records).encode())
    )
    (folder / "b.txt.xz").write_bytes(lzma.compress("".join(f"{date}\n" for date in DATES).encode()))
    (folder / "c").write_text(f"{DATES[3]}\nnonsense\n")
    return folder


def predict(*arguments: object) -> str:
    """Run the command; return what a user's error says, or else the exit status."""
    done = CliRunner().invoke(app, ["predict", *map(str, arguments)])
    if isinstance(done.exception, UserError):
        return str(done.exception)
    assert isinstance(done.exception, SystemExit | None), done.exception
    return str(done.exit_code)


def text_of(path: Path) -> str:
    return (gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()).decode()


def listed(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)


def test_each_part_has_its_answers(given: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run("predict", "--file", str(given / "*"), "--out", str(out))
    assert done.returncode == 1
    assert done.stderr.splitlines()[0].startswith("seq2see: c: line 2: 'nonsense' is not of the form")
    assert done.stderr.splitlines()[-1] == "seq2see: 8 answered, 1 refused."
    assert text_of(out / "a.txt.gz") == listed(*WORDS[:3])
    assert text_of(out / "b.txt.gz") == listed(*WORDS)
    assert text_of(out / "c.txt") == listed(WORDS[3], "")
    names = {path.name for path in out.iterdir()}
    assert names == {"a.txt.gz", "b.txt.gz", "c.txt", parts.NOTE, ".lock"}


def test_finished_parts_are_passed_over_and_half_written_ones_never_count(given: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert predict("--file", given / "*.*", "--out", out, "--json") == "0"
    before = (out / "a.jsonl.gz").stat().st_ino, (out / "b.jsonl.gz").read_bytes()
    (out / "b.jsonl.gz").unlink()
    (out / f".b.jsonl.gz.x{parts.HALF}").write_bytes(before[1][:20])
    assert predict("--file", given / "*.*", "--out", out, "--json") == "0"
    assert ((out / "a.jsonl.gz").stat().st_ino, (out / "b.jsonl.gz").read_bytes()) == before
    assert not list(out.glob(f".*{parts.HALF}"))


def test_a_part_that_cannot_be_read_does_not_stop_the_others(given: Path, tmp_path: Path) -> None:
    whole = (given / "a.jsonl.gz").read_bytes()
    (given / "a.jsonl.gz").write_bytes(whole[:-9])
    out = tmp_path / "out"
    assert "1 of 2 parts could not be answered" in predict("--file", given / "*.*", "--out", out)
    assert not (out / "a.txt.gz").exists()
    assert text_of(out / "b.txt.gz") == listed(*WORDS)
    (given / "a.jsonl.gz").write_bytes(whole)
    assert predict("--file", given / "*.*", "--out", out) == "0"
    assert text_of(out / "a.txt.gz") == listed(*WORDS[:3])


def test_a_line_without_a_text_is_refused_and_keeps_its_place(tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text('{"input": "1845-01-05"}\n{\n{"answer": 1}\n[1]\n"2025-09-03"\n')
    assert predict("--file", source, "--out", out, "--json") == "1"
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert [one.get("output") for one in found] == [WORDS[0], None, None, None, WORDS[3]]
    assert found[1]["error"] == "'{' is not JSON: a text or an object was expected."
    assert all("The line has no text" in one["error"] for one in found[2:4])


def test_bad_orders_are_told_in_one_sentence(given: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    other.mkdir()
    (other / "mine.txt").write_text("")
    assert predict("--file", given / "b*", "--out", out) == "0"
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{unused.getsockname()[1]}"
        monkeypatch.setattr("seq2see.errors.find_spec", lambda name: SimpleNamespace())
        for arguments, message in (
            (["--file", given / "x*", "--out", out], "No file matches"),
            (["--file", given / "*.*", "--ray"], "it needs --file"),
            (["--file", given / "*.*", "--out", given / "c"], "a folder was expected"),
            (["--file", given / "b*", "--out", out, "--beam", "3"], "another model or of other options"),
            (["--file", given / "b*", "--out", out, "--resume"], "--resume is for one file"),
            (["--file", given / "*.*", "--out", out, "--ray", nobody], f"No Ray cluster can be reached at {nobody}"),
            (["--file", given / "*.*", "--out", out, "--ray", "x", "y"], "--ray takes one ADDRESS"),
        ):  # fmt: skip
            assert message in predict(*arguments)
    monkeypatch.setattr("seq2see.errors.find_spec", lambda name: None)
    assert "--ray needs the package ray" in predict("--file", given / "*.*", "--out", out, "--ray")
    (given / "b.txt").write_text(listed(DATES[0]))
    (given / "b.txt.gz").write_bytes(b"")
    assert "would both have their answers in b.txt.gz" in predict("--file", given / "b*", "--out", out)
    (given / "b.txt.gz").unlink()
    (given / "b.txt.xz").write_bytes(lzma.compress(DATES[0].encode()))
    assert "the answers to another file than" in predict("--file", given / "b*xz", "--out", out)


# --- a cluster -----------------------------------------------------------------------------------------------------


class FakeData:
    """Rows of Ray Data that are mapped here, one after the other; a worker dies of the row with ``kills`` in its path."""

    def __init__(self, kills: str = "") -> None:
        self.kills, self.settings = kills, SimpleNamespace()
        self.DataContext = SimpleNamespace(get_current=lambda: self.settings)

    def from_items(self, rows: list[dict[str, str]], override_num_blocks: int) -> FakeData:
        assert override_num_blocks == len(rows)  # a row is a block, which one worker answers
        self.rows = rows
        return self

    def map(self, worker: Any, fn_constructor_args: tuple[Asked], **told: object) -> FakeData:
        self.worker, self.told = worker(*fn_constructor_args), told
        return self

    def iter_rows(self) -> Iterator[dict[str, Any]]:
        return (self.worker(row) for row in self.rows if not self.kills or self.kills not in row["path"])


def fake_ray(cores: int, kills: str = "") -> Any:
    return SimpleNamespace(cluster_resources=lambda: {"CPU": float(cores)}, data=FakeData(kills))


def asked(**options: Any) -> Asked:
    return Asked("dates", Options(), **options)


def test_a_file_is_a_row_and_a_lost_one_is_told(given: Path, tmp_path: Path) -> None:
    some = parts._parts(str(given / "*"), tmp_path, False)
    ray = fake_ray(2, kills="b.txt")
    found = list(parts._reports(ray, asked(threads=1), some))
    assert [(one.part.path.name, one.answered, one.refused, one.error) for one in found] == [
        ("a.jsonl.gz", 3, 0, ""), ("c", 1, 1, ""), ("b.txt.xz", 0, 0, "its worker died 4 times"),
    ]  # fmt: skip
    assert found[1].said[0].startswith("line 2: 'nonsense' is not")
    assert text_of(tmp_path / "c.txt") == listed(WORDS[3], "")
    assert ray.data.told == {"concurrency": (1, 2), "num_cpus": 1, "num_gpus": 0, "max_task_retries": 3}
    assert ray.data.settings.max_errored_blocks == -1
    with pytest.raises(UserError, match="has no GPU"):
        list(parts._reports(ray, asked(device="cuda"), some))
    with pytest.raises(UserError, match="no machine with 3 cores"):
        list(parts._reports(ray, asked(threads=3), some))


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """A Ray cluster of this machine with two cores, whatever it has."""
    if find_spec("ray") is None:
        pytest.skip('Ray is not installed: pip install "seq2see[ray]", as `make verify` does.')
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", f"--port={port}",
               "--num-cpus=2", "--include-dashboard=false", "--disable-usage-stats"]  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        head = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + 120
            while not listens(port):
                assert head.poll() is None, "Ray did not start."
                assert time.monotonic() < deadline, "Ray did not begin to listen."
                time.sleep(0.2)
            yield f"127.0.0.1:{port}"
        finally:
            head.terminate()
            head.wait(60)


def listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five parts of some seconds each."""
    folder = tmp_path_factory.mktemp("large")
    pairs = pairs_of(all_ordinals()[::20])
    for number in range(5):
        lines = "".join(json.dumps({"input": source}) + "\n" for source, _ in pairs[number::5])
        (folder / f"p{number}.jsonl.gz").write_bytes(gzip.compress(lines.encode(), 1))
        (folder / f"p{number}.expected").write_text("".join(f"{target}\n" for _, target in pairs[number::5]))
    return folder


def expected(large: Path) -> dict[str, str]:
    return {f"p{number}.txt.gz": (large / f"p{number}.expected").read_text() for number in range(5)}


def answers(out: Path) -> dict[str, str]:
    return {path.name: text_of(path) for path in out.glob("*.txt.gz")}


def writing(out: Path, deadline: float = 120) -> list[int]:
    """Wait until a part is half written; return the processes that hold a half-written file."""
    until = time.monotonic() + deadline
    while time.monotonic() < until:
        halves = {str(path) for path in out.glob(f".*{parts.HALF}") if path.stat().st_size > 10_000}
        found = []
        for handle in Path("/proc").glob("[0-9]*/fd/*") if halves else ():
            try:
                found += [int(handle.parts[2])] * (str(handle.readlink()) in halves)
            except OSError:
                continue
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("no part was ever half written")


@pytest.mark.heavy
def test_a_cluster_gives_the_same_answers_and_a_killed_worker_loses_and_doubles_nothing(
    cluster: str, large: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "seq2see", "predict", "--file", str(large / "*.gz"), "--out", str(out)]
    with subprocess.Popen([*command, "--ray", cluster], stderr=subprocess.PIPE, text=True) as process:
        killed = writing(out)[0]
        assert killed != process.pid
        os.kill(killed, signal.SIGKILL)
        assert "seq2see:" not in process.communicate(timeout=300)[1]  # Ray alone remarks on something
    assert process.returncode == 0
    assert answers(out) == expected(large)
    assert not list(out.glob(f".*{parts.HALF}"))


def test_a_worker_that_is_stopped_leaves_no_answers(
    given: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(form: object, lines: object, place: str, out: Any, *rest: object, **more: object) -> None:
        out.write("January")
        raise KeyboardInterrupt

    monkeypatch.setattr(parts, "answer_all", stopped)
    assert predict("--file", given / "c*", "--out", tmp_path / "out") == "130"
    assert {path.name for path in (tmp_path / "out").iterdir()} == {parts.NOTE, ".lock"}


@pytest.mark.parametrize("packed", [False, True])
def test_a_part_that_finds_the_disk_full_has_no_answers(tmp_path: Path, packed: bool) -> None:
    lines = listed(*(f"{1000 + number}-01-05" for number in range(4000))).encode()
    (tmp_path / "a.txt").write_bytes(lines)
    pattern = tmp_path / "a*"
    if packed:
        (tmp_path / "a.txt.gz").write_bytes(gzip.compress(lines))
        (tmp_path / "a.txt").unlink()
    out = tmp_path / "out"
    with small_disk(5000):
        assert "1 of 1 part could not be answered" in predict("--file", pattern, "--out", out)
    assert {path.name for path in out.iterdir()} == {parts.NOTE, ".lock"}
    assert predict("--file", pattern, "--out", out) == "0"
    assert len(text_of(out / f"a.txt{'.gz' if packed else ''}").splitlines()) == 4000


@pytest.mark.heavy
def test_a_killed_run_goes_on_with_the_parts_that_are_not_whole(cluster: str, large: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "seq2see", "predict", "--file", str(large / "*.gz"), "--out", str(out)]
    with subprocess.Popen([*command, "--ray", cluster], stderr=subprocess.DEVNULL) as process:
        until = time.monotonic() + 120
        while not answers(out) and time.monotonic() < until:
            time.sleep(0.05)
        writing(out)
        process.kill()
    before = {path.name: path.stat().st_ino for path in out.glob("*.txt.gz")}
    assert 0 < len(before) < 5
    done = run("predict", "--file", str(large / "*.gz"), "--out", str(out), "--ray", cluster)
    assert (done.returncode, done.stderr.count("Answered already")) == (0, 1)
    assert answers(out) == expected(large)
    assert {name: (out / name).stat().st_ino for name in before} == before
    assert not list(out.glob(f".*{parts.HALF}"))
