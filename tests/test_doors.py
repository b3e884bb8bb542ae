"""Every file is opened behind a gate: a hostile file, folder or number is refused in a sentence, at every door."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import seq2see
from seq2see.data.pairs import read_pairs
from seq2see.errors import UserError
from test_columns import PAIRS, sheet

ROOT = Path(seq2see.__file__).parent

#: Functions that refuse devices, pipes, links out of a model folder, and files that are too large.
GATES = {"plain_file", "given_file", "foreign", "weights_head"}
#: Calls that open a file, wherever the name comes from.
OPENERS = {
    "open", "read_text", "read_bytes", "safe_open", "load_file", "memmap", "fromfile", "ZipFile", "load_dataset",
    "load_from_disk", "from_pretrained", "scan_parquet", "read_parquet", "read_excel", "Translator", "InferenceSession",
    "from_file", "loadtxt", "genfromtxt",
}  # fmt: skip
#: Calls that open a file if they are those of the module before the dot.
OF_MODULES = {("np", "load"), ("torch", "load"), ("onnx", "load"), ("tarfile", "open"), ("json", "load")}
#: Methods with the name of an opener that open no file.
NO_FILE = {("package", "open"), ("packed", "open"), ("builder", "open")}
#: Functions that open a file without a gate, and why.
NAMED = {
    "what belongs to the package, or to one that is installed": """documents.languages kernels.operators.version
        learn.cases learn.cases.texts_of
        page.single_file.bare page.single_file.single_file page.site.Site.write page.web._months
        page.web.program tasks.human_dates._months""",
    "what this process has just written": """cli.lines.Unfinished._read
        cli.lines.Unfinished.__enter__ files.synchronise
        interchange.to_huggingface._logits_of interchange.to_onnx.OnnxModel.__init__ sklearn.TextToText.__getstate__
        sklearn.TextToText.__setstate__""",
    "what a caller has taken through a gate": """files.digest interchange.legacy.marian.Arrays.array
        decoding.ctranslate2_engine.CTranslate2Engine._translator cli.lines.count_lines""",
    "the system": """cli.__init__._open_closed cli.__init__._run cli.output.hang_up machine._others machine.processor
        files.Lock.__init__""",
    "inputs of predict, read line by line, may come from a pipe": "cli.lines._opened",
    "the datasets library reads its own folders": "data.pairs._loaded",
    "a student's own files, which run as he wrote them": """learn.folder._kept learn.folder.function_of
        learn.folder.review""",
    "in a process with limits, after data.tables.read": """data.tables._check_archive data.tables._parquet
        data.tables._sheet data.tables._span""",
}


def name_of(node: ast.AST) -> tuple[str, str]:
    """Return the name before the last dot of what is called, and the one after it."""
    if isinstance(node, ast.Name):
        return "", node.id
    if isinstance(node, ast.Attribute):
        return name_of(node.value)[1], node.attr
    return "", ""


def writes(call: ast.Call) -> bool:
    """Whether a call of ``open`` names a mode that only writes."""
    given = [*call.args, *(one.value for one in call.keywords if one.arg == "mode")]
    modes = [one.value for one in given if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    return any(set(mode) <= set("wxabt") and set(mode) & set("wxa") for mode in modes)


def opens(call: ast.Call) -> bool:
    """Whether a call opens a file for reading."""
    before, name = name_of(call.func)
    if (before, name) in OF_MODULES:
        return True
    if name not in OPENERS or (before, name) in NO_FILE or (name == "open" and writes(call)):
        return False
    gate = isinstance(call.func, ast.Name) and name == "read_text"  # that of files
    return not gate and not (before == "self" and not call.args)


def functions(tree: ast.AST, above: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Yield each function or method with its name; the functions inside are parts of it."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from functions(node, f"{above}.{node.name}")
        else:
            yield f"{above}.{getattr(node, 'name', '')}".rstrip("."), node


def unguarded(root: Path) -> set[str]:
    """Return the functions that open a file and call no gate."""
    found = set()
    for path in root.rglob("*.py"):
        module = ".".join(path.relative_to(root).with_suffix("").parts)
        for name, node in functions(ast.parse(path.read_text(encoding="utf-8"))):
            calls = [one for one in ast.walk(node) if isinstance(one, ast.Call)]
            if any(map(opens, calls)) and not any(name_of(one.func)[1] in GATES for one in calls):
                found.add(module + name)
    return found


def test_every_file_is_opened_behind_a_gate() -> None:
    assert unguarded(ROOT) == {name for names in NAMED.values() for name in names.split()}


@pytest.mark.parametrize(
    "opening", ["path.open()", "open(path)", "path.read_text()", "np.load(path)", "safe_open(path)"]
)
def test_a_door_without_a_gate_is_seen(opening: str, tmp_path: Path) -> None:
    file = tmp_path / "some.py"
    file.write_text(f"def read(path):\n    return {opening}\n")
    assert unguarded(tmp_path) == {"some.read"}
    file.write_text(f"def read(path):\n    plain_file(path)\n    return {opening}\n")
    assert not unguarded(tmp_path)


# --- tables: what a library of others parses -----------------------------------------------------------------------


def in_a_process(*arguments: str | Path, folder: Path | None = None) -> tuple[int, str]:
    """Run the command with at most 6 GB: a door that is open fails the test, and not this machine."""
    limit = "import resource as r; r.setrlimit(r.RLIMIT_DATA, (6 * 10**9,) * 2); from seq2see.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", limit, *map(str, arguments)], capture_output=True, text=True, timeout=300, cwd=folder
    )  # fmt: skip
    return done.returncode, " ".join(done.stderr.split())


def packed_sheet(path: Path, cell: str, more: bytes = b"") -> None:
    """Write a spreadsheet with a cell of this text, and more XML after its rows."""
    sheet(path, [("a", "b"), *PAIRS, ("x", cell)])
    with zipfile.ZipFile(path) as old:
        parts = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for part, data in parts.items():
            new.writestr(part, data.replace(b"</sheetData>", more + b"</sheetData>"))


def far_apart(path: Path) -> None:
    packed_sheet(path, "y", b'<row r="1048576"><c r="XFD1048576" t="inlineStr"><is><t>x</t></is></c></row>')


def many_equal(path: Path) -> None:
    polars = pytest.importorskip("polars")
    polars.DataFrame({"a": "a text", "b": "another"}).select(polars.all().repeat_by(2_000_000).explode()).write_parquet(
        path, compression="zstd"
    )


@pytest.mark.parametrize(
    ("name", "make", "message"),
    [
        ("far.xlsx", far_apart, "its cells span 1,048,576 rows and 16,384 columns"),
        ("equal.parquet", many_equal, "and would have 2,000,000 rows"),
    ],
)
def test_a_small_table_cannot_ask_for_much(
    name: str, make: Callable[[Path], None], message: str, tmp_path: Path
) -> None:
    pytest.importorskip("fastexcel")
    make(tmp_path / name)
    status, said = in_a_process("doctor", tmp_path / name)
    assert (status, message in said, "Traceback" in said) == (2, True, False), said


def test_what_passes_the_checks_meets_the_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that takes all memory, all time, panics or aborts: one sentence each."""

    (tmp_path / "a.parquet").write_text("x")
    for fault, why in {
        "raise BaseException('a panic')": "a panic",
        "import os; os.abort()": "or it is damaged",
        "x = bytearray(3 * 10**9)": "MemoryError",
        "import resource as r; r.setrlimit(r.RLIMIT_CPU, (1, 2))\nwhile True: pass": "takes more than 60 seconds",
    }.items():
        (tmp_path / "polars.py").write_text(fault)
        monkeypatch.syspath_prepend(tmp_path)
        with pytest.raises(UserError, match=f"a.parquet cannot be read as .parquet: .*{why}"):
            read_pairs([tmp_path / "a.parquet"])


# --- model folders, text files, numbers ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    path.write_text("".join(f"{n}\t{n * 7 % 100}\n" for n in range(300)))
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, pairs: Path) -> Path:
    path = tmp_path_factory.mktemp("models") / "model"
    seq2see.fit(pairs, training={"steps": 2}, out=path, progress=False, preset="document", tokenizer="characters")
    return path


def wide(path: Path) -> None:
    config = path / "config.toml"
    config.write_text(re.sub("d_model = .*", "d_model = 8192", config.read_text()))


def linked(path: Path) -> None:
    (path / "model.safetensors").rename(path.parent / "elsewhere")
    (path / "model.safetensors").symlink_to(path.parent / "elsewhere")


@pytest.mark.parametrize("option", ["--teacher", "--from"])
@pytest.mark.parametrize(("change", "message"), [(wide, "does not fit together"), (linked, "a link out")])
def test_every_door_of_a_model_folder_has_its_gate(
    option: str, change: Callable[[Path], None], message: str, model: Path, pairs: Path, tmp_path: Path
) -> None:
    change(Path(shutil.copytree(model, tmp_path / "theirs")))
    status, said = in_a_process("train", pairs, option, tmp_path / "theirs", "--out", tmp_path / "out")
    assert (status, message in said, (tmp_path / "out").exists()) == (2, True, False), said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--teacher", "MODEL", "--unlabelled", "FIFO"], "fifo' is a device or a pipe"),
        (["--columns", "1" * 5000 + ",2"], "--columns names column 111111111…, but"),
        (["--steps", "9" * 30], "must be between 1 and 1,000,000,000"),
        (["--ensemble", "2", "--distil", "--out", "MODEL"], "already holds a finished model"),
        (["--set", "decoding.beam=1048576"], "must be between 1 and 100"),
    ],
)
def test_a_training_refuses_before_it_writes(
    arguments: list[str], message: str, model: Path, pairs: Path, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "fifo")
    before = sorted(model.parent.rglob("*"))
    names = {"MODEL": str(model), "FIFO": str(tmp_path / "fifo")}
    given = ["--out", "out", "--tokenizer", "characters"]
    given = [*(given[:2] if "--teacher" in arguments else given), *(names.get(one, one) for one in arguments)]
    status, said = in_a_process("train", pairs, *given, folder=tmp_path)
    assert (status, message in said, "Traceback" in said) == (2, True, False), said
    assert not (tmp_path / "out").exists()
    assert sorted(model.parent.rglob("*")) == before


def test_a_log_is_read_behind_a_gate(model: Path, tmp_path: Path) -> None:
    theirs = Path(shutil.copytree(model, tmp_path / "theirs"))
    (theirs / "log.jsonl").unlink()
    (tmp_path / "secret").write_text("secret\n")
    (theirs / "log.jsonl").symlink_to(tmp_path / "secret")
    status, said = in_a_process("watch", theirs)
    assert (status, "log.jsonl is a link out of its folder" in said) == (2, True), said


def test_a_beam_is_bounded_at_every_door(model: Path, tmp_path: Path) -> None:
    theirs = Path(shutil.copytree(model, tmp_path / "theirs"))
    config = theirs / "config.toml"
    config.write_text(config.read_text().replace("beam = 1 ", "beam = 1048576 "))
    for arguments in (["--model", theirs], ["--model", model, "--beam", "1048576"]):
        status, said = in_a_process("predict", *arguments, "17")
        assert (status, "1048576; it must be between 1 and 100" in said) == (2, True), said
    for name in ("beam", "n_best"):
        with pytest.raises(UserError, match="1048576"):
            seq2see.load(model).answers(["17"], **{name: 1048576})


# --- what a folder remembers ---------------------------------------------------------------------------------------


def test_a_run_keeps_its_teacher(model: Path, pairs: Path, tmp_path: Path) -> None:
    given: dict[str, Any] = {"out": tmp_path / "out", "training": {"steps": 4}, "progress": False, "preset": "document"}

    def stop(step: Any) -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        seq2see.fit(pairs, teacher=model, on_step=stop, **given)
    other = seq2see.load(model)
    with torch.no_grad():
        next(iter(other.transformer.parameters())).add_(1)
    for teacher in (other, None):
        with pytest.raises(UserError, match="was started with another teacher, but now there is"):
            seq2see.fit(pairs, teacher=teacher, resume=True, **given)
    seq2see.fit(pairs, teacher=model, resume=True, **given)


def test_an_evaluation_names_pairs_of_the_training(
    model: Path, pairs: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [tuple(line.split("\t")) for line in pairs.read_text().splitlines()]
    held = re.search(r"([\d,]+) for training", (model / "card.md").read_text())
    assert held is not None
    told = f"{held[1]} of 300 pairs have a source that the model was trained on"
    loaded = seq2see.load(model)
    loaded.evaluate(rows)
    assert told in caplog.text
    loaded.save(tmp_path / "copy")
    status, said = in_a_process("evaluate", pairs, "--model", tmp_path / "copy")
    assert (status, told in said) == (0, True), said
    caplog.clear()
    loaded.evaluate([(f"{n} {n}", f"{n}") for n in range(1000, 1050)])
    assert "trained on" not in caplog.text


def test_an_ensemble_is_distilled_from_pairs_that_are_read_once() -> None:
    pairs = ((f"{n}", f"{n * 7 % 100}") for n in range(300))
    made = seq2see.fit(
        pairs, ensemble=2, distil=True, training={"steps": 2}, progress=False, preset="document", device="cpu"
    )
    assert made.config.model.members == 1
