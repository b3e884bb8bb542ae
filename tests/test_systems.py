"""The product runs without what only Unix has: fcntl, resource, pwd, termios, and the calls that Windows lacks."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from seq2see import files

ABSENT = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty")
#: What ``os`` lacks on Windows, of what a program is tempted to use.
CALLS = ("fork", "getuid", "geteuid", "getloadavg", "pread", "pwrite", "register_at_fork", "sched_getaffinity",
         "statvfs", "sysconf")  # fmt: skip
#: Other libraries ask which system they run on: they are imported first.
OTHERS = "import multiprocessing, torch, typer, rich.console, uvicorn"
#: Begins a program.
WITHOUT = f"""
import sys
import asyncio, subprocess, tempfile
import os
import fcntl
for name in {ABSENT}:
    sys.modules[name] = None
for name in {CALLS}:
    delattr(os, name)


class msvcrt:  # Windows' lock of one byte
    LK_NBLCK = 2

    @staticmethod
    def locking(handle, mode, count, lock=fcntl.lockf, flags=fcntl.LOCK_EX | fcntl.LOCK_NB):
        assert mode == 2
        lock(handle, flags, count, os.lseek(handle, 0, os.SEEK_CUR))


sys.modules["msvcrt"] = msvcrt
del fcntl
"""


def run(program: str, *arguments: str, before: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", before + WITHOUT + program, *arguments]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=300)
    assert "Traceback" not in done.stderr, done.stderr
    return done


SMALL = ["--steps", "3", "--set", "model.d_model=16", "--set", "model.encoder_layers=1", "--set",
         "model.decoder_layers=1", "--set", "training.evaluate_on=5"]  # fmt: skip


def test_every_module_can_be_imported_and_commands_run(tmp_path: Path) -> None:
    data, out, page = tmp_path / "pairs.tsv", tmp_path / "model", tmp_path / "page.html"
    data.write_text("".join(f"{n}\t{n * 7}\n" for n in range(100)), encoding="utf-8")
    commands = [
        ["predict", "1845-01-05"],
        ["evaluate", "dates", "--sample", "20", "--at-least", "1"],
        ["see", "1845-01-05", "--html", str(page)],
        ["train", str(data), "--out", str(out), *SMALL],
        ["train", str(data), "--out", str(out), *SMALL, "--resume"],
    ]
    done = run(
        f"""
import importlib, pkgutil, seq2see
for module in pkgutil.walk_packages(seq2see.__path__, "seq2see."):
    if module.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(module.name)
    except ImportError as error:
        if error.name not in ("triton", "huggingface_hub", "transformers", "onnx", "ray", "interegular"):
            raise
for command in {commands}:
    sys.argv = ["seq2see", *command]
    try:
        seq2see.cli.main()
    except SystemExit as end:
        assert not end.code, (command, end.code)
sys.argv = ["trial", {str(out)!r}, "torch"]
exec(seq2see.cli.inspect.TRIAL)  # what `inspect` runs in a process of its own
""",
        before=OTHERS,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("January 5, 1845\n")
    assert done.stdout.endswith("It has no SHA256SUMS to compare with.\n")
    assert "</html>" in page.read_text(encoding="utf-8")
    assert (out / "model.safetensors").is_file()


#: Other packages cannot be found.
SIX_ONLY = """
import sys


class Without:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        absent = ("ctranslate2", "sacrebleu", "markdown_it", "pygments", "matplotlib", "fastapi", "uvicorn", "httptools")
        return None if name.split(".")[0] in absent else self.finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.finder, name)


sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
from seq2see.cli import main
for words in COMMANDS:
    sys.argv = words
    try:
        main()
    except SystemExit as end:
        assert not end.code, (words, end.code)
"""


def test_six_packages_suffice_to_predict_and_to_train(tmp_path: Path) -> None:
    data, out = tmp_path / "pairs.tsv", tmp_path / "model"
    data.write_text("".join(f"{n}\t{n * 7}\n" for n in range(100)), encoding="utf-8")
    commands = [
        ["seq2see", "predict", "1845-01-05", "--verbose"],
        ["seq2see", "train", str(data), "--out", str(out), *SMALL],
    ]
    program = SIX_ONLY.replace("COMMANDS", repr(commands))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("January 5, 1845\n")
    assert "answered by torch" in done.stderr
    assert (out / "model.safetensors").is_file()


TAKES = """
import subprocess
from pathlib import Path
from seq2see.errors import FolderError
from seq2see.files import Lock

try:
    held = Lock(Path(sys.argv[1]))
except FolderError as error:
    print(error)
if len(sys.argv) == 2:
    second = [sys.executable, "-c", sys.orig_argv[2], sys.argv[1], "second"]
    print(subprocess.run(second, capture_output=True, text=True).stdout.replace(str(os.getpid()), "FIRST"))
"""


def test_two_processes_do_not_share_a_folder(tmp_path: Path) -> None:
    assert run(TAKES, str(tmp_path / "folder")).stdout.startswith("Process FIRST is at work in ")


@pytest.mark.parametrize("alive", [True, False])
def test_on_windows_a_process_is_asked_about_and_not_ended(alive: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Kernel:
        closed = 0

        def OpenProcess(self, rights: int, inherit: bool, process: int) -> int:  # noqa: N802
            return 5

        def GetExitCodeProcess(self, handle: int, status: object) -> int:  # noqa: N802
            ctypes.cast(status, ctypes.POINTER(ctypes.c_ulong))[0] = 259 if alive else 1  # type: ignore[arg-type]
            return 1

        def CloseHandle(self, handle: int) -> None:  # noqa: N802
            self.closed += 1

    class Windll:
        kernel32 = Kernel()

    monkeypatch.setattr(ctypes, "windll", Windll, raising=False)
    monkeypatch.setattr(os, "kill", lambda *_: pytest.fail("os.kill ends a process on Windows"))
    monkeypatch.setattr(sys, "platform", "win32")
    found = files._runs(1234)
    monkeypatch.undo()
    assert found is alive
    assert Windll.kernel32.closed == 1


def test_commands_speak_utf8_where_the_system_has_another_habit() -> None:
    """Windows gives a pipe the encoding of its region."""
    habit = {**os.environ, "PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"}
    command = [sys.executable, "-m", "seq2see", "predict", "--only", "é", "--json", "x"]
    done = subprocess.run(command, capture_output=True, env=habit)
    assert done.returncode == 2
    assert "é" in done.stderr.decode("utf-8"), done.stderr
