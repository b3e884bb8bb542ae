"""What others may have put into a model folder or a data file is refused in a sentence, before any harm."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import shutil
import signal
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner, Result

import seq2see
from conftest import sweep
from seq2see import files
from seq2see.cli import app
from seq2see.cli.output import in_json
from seq2see.config import Config, ModelConfig, TrainingConfig
from seq2see.data.pairs import read_pairs
from seq2see.errors import FolderError, UserError, harmless
from seq2see.kernels.registry import network_of
from seq2see.page.describe import describe_model
from seq2see.seq2seq import Seq2Seq
from seq2see.storage import folder
from seq2see.storage.folder import Tokenizers
from seq2see.tokenizers import limits
from seq2see.tokenizers.tokenizer import Tokenizer, fold


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder.find("dates"), tmp_path / "copy"))


def setting(path: Path, text: str) -> None:
    name = text.split(" ")[0]
    lines = [line for line in (path / "config.toml").read_text().splitlines() if not line.startswith(f"{name} ")]
    lines.insert(lines.index("[model]") + 1, text)
    (path / "config.toml").write_text("\n".join(lines))


# --- the folder ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("d_ff = 1000000000", "between 1 and 1,048,576"),
        ("d_ff = 1000000", "describes a model of .* parameters, its model.safetensors holds 18,692"),
        ("max_length = 1000000000", "between 2 and 1,048,576"),
        (f"d_ff = {'9' * 5000}", "not valid TOML"),
        (f"{'a.' * 20_000}a = 1", "a line of more than 8,000 characters"),
        ('"\\u001b]0;owned\\u0007" = 1', r"no setting model\.\\x1b\]0;owned"),
    ],
    ids=lambda text: str(text)[:20],
)  # fmt: skip
def test_a_config_cannot_ask_for_the_moon(copy: Path, text: str, message: str) -> None:
    setting(copy, text)
    with pytest.raises(UserError, match=message) as found:
        seq2see.load(copy)
    assert len(str(found.value)) < 1500


@pytest.mark.parametrize("name", ["config.toml", "tokenizer.json", "model.safetensors"])
@pytest.mark.parametrize("target", ["/dev/zero", "secret"])
def test_links_out_of_the_folder_are_not_followed(copy: Path, tmp_path: Path, name: str, target: str) -> None:
    (tmp_path / "secret").write_bytes((copy / name).read_bytes())
    (copy / name).unlink()
    (copy / name).symlink_to(target if target.startswith("/") else tmp_path / target)
    with pytest.raises(UserError, match=r"link out of its folder|not a model folder|no tokenizer|no model.safetensors"):
        seq2see.load(copy)


def test_a_card_that_links_elsewhere_is_not_shown(copy: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("TOP SECRET")
    for name in ("card.md", "log.jsonl"):
        (copy / name).unlink()
        (copy / name).symlink_to(tmp_path / "secret")
    model = seq2see.load(copy)
    assert model.card == ""
    assert "SECRET" not in json.dumps(describe_model("copy", model.config, model.card, model.path))


FIRST = "decoder.embedding.table.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({FIRST: torch.ones(100, 1, dtype=torch.int8), f"{FIRST}/step": torch.ones(1, 100)}, "one for each row"),
        ({FIRST: torch.ones(7, 3, dtype=torch.int8), f"{FIRST}/step": torch.ones(5, 2)}, "one for each row"),
        ({FIRST: torch.ones(68, 16, dtype=torch.int64)}, "numbers of type 'I64'"),
        ({"\x1b]0;owned": torch.zeros(3)}, r"\\x1b\]0;owned"),
    ],
)
def test_weights_that_do_not_belong_are_refused(copy: Path, change: dict[str, Any], message: str) -> None:
    save_file({**load_file(copy / "model.safetensors"), **change}, copy / "model.safetensors")
    with pytest.raises(FolderError, match=message):
        seq2see.load(copy, engine="torch")


def head(form: object, data: bytes = bytes(8)) -> bytes:
    text = json.dumps(form).encode() if not isinstance(form, bytes) else form
    return len(text).to_bytes(8, "little") + text + data


def entry(*shape: int, offsets: tuple[int, int] = (0, 8)) -> dict[str, Any]:
    return {"dtype": "F32", "shape": list(shape), "data_offsets": list(offsets)}


@pytest.mark.parametrize(
    "data",
    [
        b"", (2**63).to_bytes(8, "little"), head({"a": entry(2), "b": entry(2)}), head({"a": entry(3)}),
        head({"a": entry(2**40, offsets=(0, 2**42))}), head(b"[" * 200_000), head({"a": {"dtype": "F32"}}),
        head({"a": entry(2)}, bytes(9)), head({"a": entry(-2, offsets=(0, -8))}), head([1]), head(b"9" * 5000),
        head({"a": {**entry(2), "dtype": {}}}),
    ],
)  # fmt: skip
def test_a_head_must_describe_the_file_to_its_last_byte(copy: Path, data: bytes) -> None:
    (copy / "model.safetensors").write_bytes(data)
    with pytest.raises(FolderError, match=r"model\.safetensors"):
        seq2see.load(copy)


def test_a_sparse_file_is_not_read(copy: Path) -> None:
    os.truncate(copy / "model.safetensors", 1 << 40)
    with pytest.raises(FolderError, match="does not match the number of bytes"):
        seq2see.load(copy)


# --- tokenizers ----------------------------------------------------------------------------------------


def split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def grown(count: int, length: int) -> dict[str, Any]:
    one = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * length}
    return {"type": "Sequence", "normalizers": [one] * count}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.update(pre_tokenizer=split("^(a+)+$")), "may take very long"),
        (lambda f: f.update(normalizer=grown(1, 1000)), "more than 4 characters"),
        (lambda f: f.update(normalizer=grown(99, 1)), "at most 16"),
        (lambda f: f.update(model={"type": "Pickle", "vocab": {}}), "'Pickle' is not known"),
        (lambda f: f["model"].update(type=["WordLevel"]), "has the wrong type"),
        (lambda f: f.update(padding={"strategy": {"Fixed": 10**9}}), "padded to more than 65,536"),
        (lambda f: f["model"]["vocab"].update({"5": 2**31}), "each once"),
        (lambda f: f["post_processor"]["special_tokens"]["<sos>"].update(ids=[10**6]), "beyond its vocabulary"),
        (
            lambda f: f.update(normalizer={"type": "Precompiled", "precompiled_charsmap": "/////w=="}),
            "map of characters",
        ),
    ],
)
def test_a_tokenizer_cannot_hang_or_fell_the_library(
    copy: Path, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    form = json.loads((copy / "tokenizer.json").read_text())
    change(form)
    (copy / "tokenizer.json").write_text(json.dumps(form))
    with pytest.raises(FolderError, match=message):
        Tokenizer.load(copy / "tokenizer.json")


QUICK = ("", "a+", "a?b?c+", "a+|b*|c{2,}", r"\p{L}+", r"\P{^L}\++", "[a+*]+", "[]+*]x", "(?:a|b)c+", "(?i)a+", "(?=a)b+",
         "(?!a)b+", "a" * limits.PATTERN)  # fmt: skip
NOT_QUICK = ("a+b+", "a|b*c*", "a{2,}b+", "(a)*", "(a)+", "(a)?", "(a){2}", "a++", "a*+", "a?*", "a{2}{3}", "(?<n>a)",
             "(?#a)", "(?>a)", "[[a]", "a" * (limits.PATTERN + 1), 5, None)  # fmt: skip


def test_a_pattern_of_a_stranger_repeats_once_at_most() -> None:
    assert [pattern for pattern in QUICK if not limits._is_quick(pattern)] == []
    assert [pattern for pattern in NOT_QUICK if limits._is_quick(pattern)] == []


def test_marks_without_end_are_composed_in_time() -> None:
    """Sorting 200,000 marks took more than four minutes."""
    marks = "\u0301\u0323" * 100_000
    assert len(fold("a" + marks)) > 100_000
    for text in ("a\u0323\u0301" * 400, "e\u0301" + "x" * 300, "\u1100\u1161" * 200):
        assert fold(text) == unicodedata.normalize("NFC", text)


# --- data files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [gzip.compress, lzma.compress])
def test_a_corrupt_packed_file_is_named_with_its_line(tmp_path: Path, packed: Callable[[bytes], bytes]) -> None:
    lines = b"".join(f"{n * n}\t{n}\n".encode() for n in range(20_000))
    data = bytearray(packed(lines))
    data[len(data) // 2 : len(data) // 2 + 9] = b"\xff" * 9
    path = tmp_path / "pairs.tsv"
    path.write_bytes(data)
    with pytest.raises(UserError, match="cannot be read beyond line"):
        read_pairs([path])
    path.write_bytes(packed(lines)[:-2000])
    with pytest.raises(UserError, match="cannot be read beyond line"):
        read_pairs([path])


def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv.gz"
    path.write_bytes(gzip.compress(b"a\tb\n" * 400_000))
    with pytest.raises(UserError, match="more than 100 times its size"):
        read_pairs([path])


def test_rows_that_are_no_text_are_named_and_the_others_kept(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    good = [json.dumps({"source": str(n), "target": str(n)}) for n in range(3)]
    path.write_text("\n".join([*good, "[" * 15_000, '{"source": "\\ud800", "target": "x"}', good[0]]))
    found = read_pairs([path])
    assert len(found.pairs) == 4
    assert [(fault.line, fault.reason[:20]) for fault in found.faults] == [
        (4, "is not a JSON object"),
        (5, "has half a character"),
    ]


# --- terminals, JSON -----------------------------------------------------------------------------------


def test_no_order_reaches_a_terminal() -> None:
    assert harmless("a\x1b]0;owned\x07\x9b31m\u2028b\tc\nd") == "a\\x1b]0;owned\\x07\\x9b31m\\u2028b\tc\nd"
    assert harmless("schön 🏳️‍🌈\u00a0") == "schön 🏳️‍🌈\u00a0"


def test_json_has_no_nan() -> None:
    assert in_json({"a": [float("nan"), 1.5], "b": (float("inf"),)}) == '{"a": [null, 1.5], "b": [null]}'


# --- saving --------------------------------------------------------------------------------------------


def made(letters: str, seed: int) -> Seq2Seq:
    tokenizer = Tokenizer.characters(["<pad>", "<sos>", "<eos>", *letters])
    config = ModelConfig.of(source_vocabulary=tokenizer.size, target_vocabulary=tokenizer.size, d_model=16, heads=2,
                            d_ff=32, encoder_layers=1, decoder_layers=1, max_length=16)  # fmt: skip
    torch.manual_seed(seed)
    return Seq2Seq(Config("pairs", config, TrainingConfig()), Tokenizers.one(tokenizer), network_of(config).eval())


def state(path: Path) -> str:
    return (path / "tokenizer.json").read_text() + (path / "model.safetensors").read_bytes().hex()


def _end_before(number: int) -> None:
    """Kill this process before an operation on a file, counted from 1."""
    count = 0

    def hook(event: str, given: tuple[Any, ...]) -> None:
        nonlocal count
        if event in {"os.rename", "os.remove", "os.mkdir", "os.chmod", "os.rmdir", "os.link"}:
            count += 1
            if count == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


@pytest.mark.parametrize("exchange", sweep([True, False], 1))
def test_a_save_over_a_model_is_one_or_the_other_at_every_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: bool
) -> None:
    """A hook ends the process before each operation on a file, as a kill would."""
    if not exchange:
        monkeypatch.setattr(files, "_exchanged", lambda one, other: False)
    old, new, path = made("abcdefgh", 1), made("hgfedcba", 2), tmp_path / "model"
    old.save(tmp_path / "old")
    new.save(tmp_path / "new")
    known = {state(tmp_path / "old"), state(tmp_path / "new")}
    for crash_at in range(1, 100):
        shutil.rmtree(path, ignore_errors=True)
        old.save(path)
        (path / "notes.txt").write_text("mine")
        if (child := os.fork()) == 0:
            try:
                _end_before(crash_at)
                new.save(path, overwrite=True)
                os._exit(0)
            finally:
                os._exit(1)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code in (0, -signal.SIGKILL)
        if code == 0:
            break
        # Without an exchange of names there is a moment at which the folder is away, whole, under another name.
        places = [path] if path.exists() else [] if exchange else list(tmp_path.glob(".model.*/old"))
        assert places
        assert state(places[0]) in known
        assert (places[0] / "notes.txt").read_text() == "mine"
    else:
        raise AssertionError("the save never ended")
    assert crash_at > 8
    assert state(path) == state(tmp_path / "new")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["model", "new", "old"]  # nothing is left behind


def test_leftovers_of_killed_writers_are_removed(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    dead = int(ended.stdout)
    (tmp_path / f".model.safetensors.{dead}.seq2see-abcdefgh").write_bytes(b"half")
    (tmp_path / f".folder.{dead}.seq2see-abcdefgh").mkdir()
    (tmp_path / f".mine.{os.getpid()}.seq2see-abcdefgh").write_bytes(b"at work")
    (tmp_path / ".notes.99999.markdown").write_text("")
    files.write_atomically(tmp_path / "card.md", b"card")
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {f".mine.{os.getpid()}.seq2see-abcdefgh", ".notes.99999.markdown", "card.md"}


def test_the_digest_of_a_large_file_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(files, "REMEMBERED", 4)
    (tmp_path / "large").write_bytes(b"12345")
    first = files.digest(tmp_path / "large")
    (note,) = (tmp_path / "cache/seq2see/digests").iterdir()
    note.write_text("00" * 32)
    assert files.digest(tmp_path / "large") == bytes(32)
    note.write_text("rubbish")
    assert files.digest(tmp_path / "large") == first
    (tmp_path / "large").write_bytes(b"123456")
    assert files.digest(tmp_path / "large") != first


def test_inspect_tries_a_folder_in_another_process(copy: Path) -> None:
    def inspected() -> Result:
        return CliRunner().invoke(app, ["inspect", str(copy)])

    done = inspected()
    assert (done.exit_code, done.stderr) == (0, "")
    assert "18,692 parameters" in done.stdout
    assert "9 files are those that SHA256SUMS lists" in done.stdout
    setting(copy, "d_ff = 1000000")
    assert "'config.toml' of copy is not the file that SHA256SUMS lists" in str(inspected().exception)
    (copy / folder.CHECKSUMS).unlink()
    broken = inspected().exception
    assert isinstance(broken, UserError)  # status 2, without a traceback
    assert "does not fit together" in str(broken)


def test_two_processes_do_not_train_in_one_folder(tmp_path: Path) -> None:
    lock = files.Lock(tmp_path)
    code = f"from pathlib import Path; from seq2see import files; files.Lock(Path({str(tmp_path)!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"Process {os.getpid()} is at work in" in done.stderr
    del lock
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_pipe_is_no_file(copy: Path) -> None:
    (copy / "tokenizer.json").unlink()
    os.mkfifo(copy / "tokenizer.json")
    with pytest.raises(UserError, match=r"no tokenizer\.json"):
        seq2see.load(copy)
