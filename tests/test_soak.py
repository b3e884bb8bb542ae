"""`make soak` in its short form; and each kind of proof sees a product that is broken on purpose."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def soak(*options: str, broken: str = "") -> subprocess.CompletedProcess[str]:
    """Run the proofs in a process of their own, after a line that may break the product."""
    code = f"{broken}\nimport sys\nfrom soak.__main__ import main\nsys.exit(main({list(options)!r}))"
    return subprocess.run([sys.executable, "-c", code], cwd=HERE, capture_output=True, text=True, check=False)


def test_the_short_form_finds_nothing() -> None:
    done = soak("--scale", "0.001", "--jobs", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ")][1:]
    assert [row.split()[1] for row in rows] == ["load", "crashes", "inputs", "folders", "data", "clients"]


#: One line that breaks the product, the kind that must see it, how much of it that needs, and what it must say.
BROKEN = {
    "no fsync": (
        "import os, seq2see.files as files; files.synchronise = os.fsync = lambda *_: None",
        "crashes", "0.02", "was not on the disk|does not go on",
    ),
    "no rename": (
        "import pathlib, seq2see.files as files\n"
        "files.write_atomically.__code__ = (lambda path, data: (path.parent.mkdir(parents=True, exist_ok=True), "
        "path.write_bytes(data)) and None).__code__",
        "crashes", "0.05", "differs from that without a crash|does not go on|was not on the disk",
    ),
    "answers of another month": (
        "import seq2see.seq2seq as one; old = one.Seq2Seq.predict\n"
        "one.Seq2Seq.predict = lambda self, *given, **more: [text.replace('May', 'June') for text in old(self, *given, **more)]",
        "inputs", "0.001", "became 'June",
    ),
    "no check of a folder's weights": (
        "import seq2see.folder as folder; folder.check_weights = lambda *_: None\n"
        "import seq2see.config as config; config.ModelConfig.__post_init__ = lambda self: None",
        "folders", "0.05", "folders, (crashed|hung|leaked)",
    ),
    "no check of an export": (
        "import seq2see.decoding.layout as layout; layout.check = lambda *_: None\n"
        "import seq2see.decoding.engines as engines; engines.files_of = lambda *_: {}",
        "folders", "0.1", "folders, (crashed|wrong)",
    ),
    "zlib's errors": (
        "import seq2see.data.formats as formats; formats.UNREADABLE = ()",
        "data", "0.2", "data, crashed",
    ),
    "heads without end": (
        "import seq2see.serve.server as server; server.Connection.data_received = server.HttpToolsProtocol.data_received\n"
        "server.Connection.look_after = lambda self, now: None",
        "clients", "0.001", "clients, (hung|leaked)",
    ),
    "a leak": (
        "import seq2see.serve.guard as guard; kept = []; old = guard.Guard.__call__\n"
        "def call(self, *given):\n kept.append(bytearray(1 << 20)); return old(self, *given)\n"
        "guard.Guard.__call__ = call",
        "load", "0.001", "load, leaked",
    ),
}  # fmt: skip


@pytest.mark.heavy
@pytest.mark.parametrize("name", BROKEN)
def test_each_kind_sees_a_broken_product(name: str) -> None:
    broken, kind, scale, message = BROKEN[name]
    done = soak("--scale", scale, "--kinds", kind, broken=broken)
    assert done.returncode == 1, done.stdout + done.stderr
    assert __import__("re").search(message, done.stdout), done.stdout + done.stderr
