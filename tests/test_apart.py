"""A search in a process of its own: the same answers and errors, Ctrl-C and kills as without it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import seq2see
from seq2see.answering.options import Options
from seq2see.cli import answering, apart
from seq2see.errors import UserError
from seq2see.seq2seq import Seq2Seq
from test_predict_file import EXPECTED, PAIRS

#: `seq2see predict`, as if there were a GPU and the file were large; the process searches on the CPU.
COMMAND = """
import sys
from functools import partial
from seq2see.cli import answering, apart, main
from seq2see.seq2seq import without_weights

def loaded(model, device, engine):
    found = without_weights(model, device, engine)
    found.network.apart = apart.Apart(partial(apart._engine, model, "cpu", engine))
    print(found.network.apart.process.pid, flush=True)
    return found

if __name__ == "__main__":
    answering.chosen, answering.WORTH_A_PROCESS, apart.loaded = lambda *given: "cuda", 0, loaded
    answering.WINDOW_OF_A_GPU = 100
    main()
"""


@pytest.fixture(scope="module")
def engine() -> Iterator[apart.Apart]:
    made = apart.Apart(partial(apart._engine, "dates", "cpu", "auto"))
    yield made
    made.process.kill()


def test_windows_of_a_gpu_grow() -> None:
    """The first one is tokenized at once; no input is lost."""
    inputs = [str(number) for number in range(70)]
    windows = [*answering._growing(iter(inputs), 16)]
    assert [len(window) for window in windows] == [2, 4, 8, 16, 16, 16, 8]
    assert [text for window in windows for text in window] == inputs
    assert [*answering._growing(iter(inputs[:3]), 1)] == [["0"], ["1"], ["2"]]


class Fails:
    """An engine whose calls fail."""

    name = "fails"

    def ids(self, kind: str, *more: object) -> None:
        raise UserError("no room") if kind == "user" else KeyError(lambda: "not to be sent")


def started(tmp_path: Path, *words: str) -> subprocess.Popen[str]:
    script = tmp_path / "command.py"
    script.write_text(COMMAND)
    return subprocess.Popen(
        [sys.executable, str(script), "predict", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C reaches both processes
    )


def waited(there: Any) -> bool:
    deadline = time.monotonic() + 60
    while not there() and time.monotonic() < deadline:
        time.sleep(0.05)
    return bool(there())


def is_gone(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_another_process_gives_the_same_answers(engine: apart.Apart) -> None:
    model = seq2see.load("dates")
    here = model.network.engine_for(1)
    rows = model.tokenizers.source.encode_batch([source for source, _ in PAIRS[:60]])
    assert (engine.name, engine.draft) == (here.name, engine)
    assert engine.ids(rows) == here.ids(rows)
    assert [[one.ids for one in row] for row in engine.search(rows[:3])] == [
        [one.ids for one in row] for row in here.search(rows[:3])
    ]
    with ThreadPoolExecutor(8) as pool:  # more threads than ways
        assert [*pool.map(engine.ids, [[row] for row in rows])] == [[ids] for ids in here.ids(rows)]


def test_an_error_in_the_other_process_is_raised_here(engine: apart.Apart) -> None:
    with pytest.raises(RuntimeError, match="TypeError: 'int' object is not iterable"):
        engine.ids(3)  # type: ignore[arg-type]
    fails: Any = Fails
    failing = apart.Apart(fails)
    with pytest.raises(UserError, match="no room"):
        failing.ids("user")  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="KeyError"):
        failing.ids("other")  # type: ignore[arg-type]
    failing.process.kill()
    with pytest.raises(UserError, match=r"ended with status -9: the memory may"):
        failing.ids("user")  # type: ignore[arg-type]
    dies: Any = partial(os._exit, 3)
    with pytest.raises(UserError, match="ended with status 3"):
        apart.Apart(dies)
    with pytest.raises(UserError, match="There is no model 'nothing'"):
        apart.Apart(partial(apart._engine, "nothing", "cpu", "auto"))


@pytest.mark.parametrize(
    ("options", "form", "device", "size", "apart_"),
    [
        ({}, {}, "cuda", answering.WORTH_A_PROCESS, True),
        ({"beam": 4}, {"as_json": True}, "cuda:1", answering.WORTH_A_PROCESS, True),
        ({}, {}, "cuda", answering.WORTH_A_PROCESS - 1, False),
        ({}, {}, "cpu", answering.WORTH_A_PROCESS, False),
        ({}, {"align": True}, "cuda", answering.WORTH_A_PROCESS, False),
        ({"prefix": "J"}, {}, "cuda", answering.WORTH_A_PROCESS, False),
        ({"glossary": {"a": "b"}}, {}, "cuda", answering.WORTH_A_PROCESS, False),
    ],
)
def test_a_large_file_on_a_gpu_gets_a_process(
    monkeypatch: pytest.MonkeyPatch, options: Any, form: Any, device: str, size: int, apart_: bool
) -> None:
    asked, model = list[tuple[str, str]](), seq2see.load("dates")
    for module, name in (("cli.apart", "loaded"), ("seq2seq", "load")):
        monkeypatch.setattr(
            f"seq2see.{module}.{name}",
            lambda _, device, engine, name=name: asked.append((name, device)) or model,
        )
    answering.Asked("dates", Options(**options), device, **form).job(size)
    assert asked == [("loaded" if apart_ else "load", device)]


def test_the_weights_are_not_read_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "Apart", lambda make: make)
    model = apart.loaded("dates", "cuda", "auto")
    assert model.network._transformer is None
    assert model.device == "cuda"
    assert model.network.engine_for(1).args == ("dates", "cuda", "auto")  # type: ignore[attr-defined]
    assert Seq2Seq.load("dates").network.apart is None


def test_ctrl_c_ends_both_processes_and_the_run_is_continued(tmp_path: Path) -> None:
    source, out, part = (tmp_path / name for name in ("in.txt", "out.txt", "out.txt.part"))
    texts = [source for source, _ in PAIRS[:3000]]
    texts[20] = "nonsense"
    source.write_text("\n".join(texts))
    first = started(tmp_path, "--out", str(out))
    assert first.stdin is not None
    first.stdin.write("\n".join(texts[:2000]))
    first.stdin.flush()  # it waits for more lines
    assert waited(lambda: part.exists() and part.stat().st_size > 5000)  # all imports are done
    os.killpg(first.pid, signal.SIGINT)
    said, errors = first.communicate(timeout=60)
    assert first.returncode == 130
    assert f"Stopped; {part} holds the answers so far, and --resume continues." in errors
    assert "Traceback" not in errors
    assert waited(lambda: is_gone(int(said)))

    second = started(tmp_path, "--file", str(source), "--out", str(out), "--resume")
    errors = second.communicate(timeout=60)[1]
    assert second.returncode == 1
    assert errors.endswith("seq2see: 2,999 answered, 1 refused.\n")
    expected = EXPECTED.splitlines()[:3000]
    assert out.read_text().splitlines() == [*expected[:20], "", *expected[21:]]


def test_the_other_process_ends_when_the_command_is_killed(tmp_path: Path) -> None:
    process = started(tmp_path)  # it waits for lines
    assert process.stdout is not None
    number = int(process.stdout.readline())
    assert not is_gone(number)
    process.kill()
    assert waited(lambda: is_gone(number))
    assert "Traceback" not in process.communicate()[1]
