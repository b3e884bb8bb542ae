"""`make soak` in its short form; and each kind of proof sees a product that is broken on purpose."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

import pytest

HERE = Path(__file__).parent


def soak(*options: str, first: str = "") -> subprocess.CompletedProcess[str]:
    """Run the proofs in a process of their own, after some lines of code."""
    code = f"{dedent(first)}\nimport sys\nfrom soak.__main__ import main\nsys.exit(main({list(options)!r}))"
    return subprocess.run([sys.executable, "-c", code], cwd=HERE, capture_output=True, text=True, check=False)


@pytest.mark.heavy  # each kind of harm has tests of its own
def test_the_short_form_finds_nothing() -> None:
    done = soak("--scale", "0.001", "--jobs", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ")][1:]
    assert [row.split()[1] for row in rows] == [
        "load", "crashes", "inputs", "imports", "folders", "hostile", "disks", "data", "clients",
    ]  # fmt: skip


class Broken(NamedTuple):
    """Lines that break the product, the kind of proof that must see it, how much of it, and what it must say."""

    lines: str
    kind: str
    scale: str
    says: str


BROKEN = {
    "nothing is sent to the disk": Broken(
        """
        import os, types, seq2see.files as files
        files.os = types.SimpleNamespace(**{**vars(os), "fsync": lambda handle: None})
        """,
        "crashes", "0.002", "was not on the disk",
    ),
    "files are written in their place": Broken(
        """
        import os, signal, time, seq2see.storage.folder, seq2see.files as files, seq2see.training.checkpoint as checkpoint
        def write(path, data):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                file.write(data[: len(data) // 2])
                file.flush()
                os.fsync(file.fileno())
                path.parent.chmod(0o755)  # an operation before which the process may be killed
                file.write(data[len(data) // 2 :])
                file.flush()
                os.fsync(file.fileno())
        seq2see.storage.folder.write_atomically = files.write_atomically = checkpoint.write_atomically = write
        """,
        "crashes", "0.06", "differs from that without a crash|does not go on",
    ),
    "another answer": Broken(
        """
        from seq2see.seq2seq import Seq2Seq
        right = Seq2Seq.predict
        Seq2Seq.predict = lambda self, *given: [text.replace("May", "June") for text in right(self, *given)]
        """,
        "inputs", "0.002", "became 'June",
    ),
    "a config may say anything": Broken(
        """
        import seq2see.storage.folder as folder, seq2see.config as config
        folder.check_weights = lambda *given: None
        config.ModelConfig.__post_init__ = lambda self: None
        """,
        "folders", "0.05", "folders, (crashed|hung|leaked)",
    ),
    "an import raises what it likes": Broken(
        """
        import contextlib, seq2see.interchange.reading as reading
        reading.guarded = lambda path: contextlib.nullcontext()
        """,
        "imports", "0.15", "imports, crashed",
    ),
    "errors of packed files": Broken(
        """
        import seq2see.data.formats as formats
        formats.UNREADABLE = (KeyError,)
        """,
        "data", "0.3", "data, crashed",
    ),
    "heads without end": Broken(
        """
        from seq2see.serve.server import Connection, HttpToolsProtocol
        Connection.data_received = HttpToolsProtocol.data_received
        Connection.look_after = lambda self, now: None
        """,
        "clients", "0.001", "clients, (hung|leaked)",
    ),
    "a leak": Broken(
        """
        from seq2see.serve.guard import Guard
        kept, right = [], Guard.__call__
        def call(self, *given):
            kept.append(b"x" * (1 << 20))
            return right(self, *given)
        Guard.__call__ = call
        """,
        "load", "0.01", "load, leaked",
    ),
}  # fmt: skip


@pytest.mark.heavy
@pytest.mark.parametrize("name", BROKEN)
def test_each_kind_sees_a_broken_product(name: str) -> None:
    broken = BROKEN[name]
    done = soak("--scale", broken.scale, "--kinds", broken.kind, first=broken.lines)
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(broken.says, done.stdout), done.stdout + done.stderr
