"""Model folders: whole or explained."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import seq2see
from conftest import small_disk
from seq2see import files
from seq2see.errors import UserError
from seq2see.storage import folder
from seq2see.storage.weights import write_weights


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder.find("dates"), tmp_path / "copy"))


def test_a_copy_of_a_folder_is_the_same_model(copy: Path) -> None:
    assert seq2see.load(copy)("1845-01-05") == "January 5, 1845"
    assert seq2see.load(str(copy))("2025-09-03") == "September 3, 2025"


def test_saved_and_loaded_is_the_same(tmp_path: Path) -> None:
    model = seq2see.load("dates")
    model.save(tmp_path / "saved")
    again = seq2see.load(tmp_path / "saved")
    for a, b in zip(model.transformer.parameters(), again.transformer.parameters(), strict=True):
        assert torch.equal(a, b)
    assert (again.config, again.card) == (model.config, model.card)
    assert sorted(path.name for path in (tmp_path / "saved").iterdir()) == [
        "card.md", "config.toml", "model.safetensors", "tokenizer.json",
    ]  # fmt: skip


def test_two_tokenizers_are_two_files(tmp_path: Path) -> None:
    small = {"d_model": 8, "heads": 2, "d_ff": 8, "encoder_layers": 1, "decoder_layers": 1}
    model = seq2see.fit([(str(n), "x" * (n % 5)) for n in range(50)], model=small, training={"steps": 1})
    seq2see.load("dates").save(tmp_path)
    model.save(tmp_path, overwrite=True)  # over a model with one tokenizer
    assert (tmp_path / "source-tokenizer.json").exists()
    assert seq2see.load(tmp_path).predict(["12"]) == model.predict(["12"])


def break_weights(path: Path, change: str) -> None:
    weights = load_file(path / "model.safetensors")
    name = "encoder.layers.0.self_attention.w_q.weight"
    if change == "shape":
        weights[name] = torch.zeros(3, 3)
    elif change == "missing":
        del weights[name]
    else:
        weights["more"] = torch.zeros(1)
    save_file(weights, path / "model.safetensors")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("shape", r"w_q\.weight is \(3, 3\) in the file, but \(16, 16\) by the config"),
        ("missing", r"w_q\.weight is missing"),
        ("more", "holds more, which the model does not have"),
    ],
)
def test_weights_that_do_not_fit_are_named(copy: Path, change: str, message: str) -> None:
    break_weights(copy, change)
    with pytest.raises(UserError, match=message):
        seq2see.load(copy)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("model.safetensors", b"junk", "cannot be read as safetensors"),
        ("model.safetensors", None, "no model.safetensors"),
        ("tokenizer.json", None, "no tokenizer.json"),
        ("tokenizer.json", b"{}", "not a tokenizer"),
        ("config.toml", None, "not a model folder"),
        ("config.toml", b"[model]\nheads = -1\n", "at least 1"),
        ("config.toml", b"\xff\xfe", "config.toml"),
    ],
)
def test_broken_folders_are_explained(copy: Path, file: str, content: bytes | None, message: str) -> None:
    (copy / file).unlink()
    if content is not None:
        (copy / file).write_bytes(content)
    with pytest.raises(UserError, match=message):
        seq2see.load(copy)


def test_tokenizer_of_another_model_is_noticed(copy: Path) -> None:
    config = (copy / "config.toml").read_text().replace("source_vocabulary = 68", "source_vocabulary = 70")
    (copy / "config.toml").write_text(config)
    with pytest.raises(UserError, match="70 source tokens, its tokenizer has 68"):
        seq2see.load(copy)


def test_unknown_names_are_suggested() -> None:
    with pytest.raises(UserError, match="Did you mean 'dates'"):
        seq2see.load("date")


def test_a_folder_is_never_pickle() -> None:
    for path in Path(seq2see.__file__).parent.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        if path.name == "tensors.py":  # other toolkits' files; nothing that is pickled there is run
            assert "weights_only=True" in source
            assert "weights_only=False" not in source
            continue
        assert "import pickle" not in source
        assert "torch.load" not in source
        assert "torch.save" not in source


def test_a_compressed_folder_is_a_quarter_and_answers_the_same(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from seq2see.cli import app

    done = CliRunner().invoke(app, ["compress", "--model", "dates", "--out", str(tmp_path / "small")])
    assert done.exit_code == 0, done.output
    small, whole = seq2see.load(tmp_path / "small"), seq2see.load("dates")
    days = [f"{year}-{month:02}-28" for year in (1000, 1845, 9999) for month in range(1, 13)]
    assert small.predict(days) == whole.predict(days)
    before, after = (folder.weights_path(path).stat().st_size for path in (folder.find("dates"), tmp_path / "small"))
    assert after < 0.5 * before  # narrow rows: their steps weigh more than in a large model
    assert folder.parameter_count(tmp_path / "small") == folder.parameter_count(folder.find("dates"))
    for a, b in zip(small.transformer.parameters(), whole.transformer.parameters(), strict=True):
        assert (a - b).abs().max() <= b.abs().max() / 127
    refused = CliRunner().invoke(app, ["compress", "--out", str(tmp_path)])
    assert isinstance(refused.exception, UserError)
    damaged = {n: x for n, x in load_file(tmp_path / "small" / folder.WEIGHTS).items() if not n.endswith("/step")}
    save_file(damaged, tmp_path / "small" / folder.WEIGHTS)
    with pytest.raises(UserError, match="lacks"):
        seq2see.load(tmp_path / "small")


@pytest.mark.parametrize("name", folder.shipped_models())
def test_the_checksums_of_the_models_that_ship(name: str) -> None:
    path = folder.find(name)
    assert (path / folder.CHECKSUMS).read_text() == folder.checksums(path), "python tests/test_folder.py"


@pytest.mark.parametrize("change", ["changed", "gone", "another"])
def test_checksums_tell_a_file_that_is_not_the_one_that_was_shipped(copy: Path, change: str) -> None:
    assert folder.check_sums(copy) == len(folder.checksums(copy).splitlines()) > 5
    if change == "changed":
        (copy / "ctranslate2/model.bin").write_bytes((copy / "ctranslate2/model.bin").read_bytes()[:-1] + b"x")
    elif change == "gone":
        (copy / "ctranslate2/model.bin").unlink()
    else:
        (copy / folder.CHECKSUMS).write_text(f"{'0' * 64}  ../../../etc/passwd\n")
    with pytest.raises(UserError, match=r"model\.bin' of copy is not" if change != "another" else "passwd' of copy"):
        folder.check_sums(copy)
    seq2see.load("dates").save(copy, overwrite=True)  # another model has no checksums of the old one
    assert folder.check_sums(copy) == 0


@pytest.mark.parametrize("size", [0, 7, 100, 81_920])
def test_a_full_disk_leaves_no_file_behind(tmp_path: Path, size: int) -> None:
    weights = {f"w{n}": torch.arange(10_000, dtype=torch.float32) for n in range(3)}
    path = tmp_path / "model.safetensors"
    for write in (lambda: write_weights(path, weights), lambda: files.write_atomically(path, bytes(100_000))):
        with small_disk(size), pytest.raises(UserError, match=r"could not be written to .*: File too large\.$"):
            write()
        assert list(tmp_path.iterdir()) == []
    write_weights(path, weights)
    assert all(torch.equal(tensor, weights[name]) for name, tensor in load_file(path).items())
    before = path.read_bytes()
    with small_disk(size), pytest.raises(UserError):
        files.write_atomically(path, bytes(100_000))
    assert path.read_bytes() == before  # the old file is whole
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_takes_only_some_bytes_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(files.os, "write", lambda handle, data: write(handle, bytes(data[:1000])))
    data = random.Random(0).randbytes(12_345)
    files.write_atomically(tmp_path / "a", data)
    assert (tmp_path / "a").read_bytes() == data
    monkeypatch.setattr(files.os, "write", lambda handle, data: write(handle, bytes(data[:-1])) + 1)
    with pytest.raises(UserError, match="the disk did not keep all bytes"):
        files.write_atomically(tmp_path / "b", data)
    monkeypatch.setattr(files.os, "write", lambda handle, data: 0)
    with pytest.raises(UserError, match="No space left on device"):
        files.write_atomically(tmp_path / "b", data)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_what_is_carried_over_leaves_out_names_temporary_files_and_what_is_new(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for path in (old / "inner", old / "begun", new):
        path.mkdir(parents=True)
    for name in ("card.md", "left", "changed", "inner/file"):
        (old / name).write_text("old")
    (old / "link").symlink_to("card.md")
    with files.replacing(old / "begun") as temporary:
        (new / "changed").write_text("new")
        files.carry_over(old, new, {"left"})
        assert temporary.exists()
    found = {str(path.relative_to(new)) for path in new.rglob("*")}
    assert found == {"begun", "card.md", "changed", "inner", "inner/file", "link"}
    assert (new / "changed").read_text() == "new"
    assert (new / "link").is_symlink()
    assert (new / "inner/file").samefile(old / "inner/file")


@pytest.mark.parametrize("exchange", [True, False])
def test_a_folder_is_replaced_whole_also_where_names_cannot_be_exchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: bool
) -> None:
    if not exchange:
        monkeypatch.setattr(files, "_exchanged", lambda one, other: False)

    def names(place: Path) -> list[str]:
        return [one.name for one in place.iterdir()]

    path = tmp_path / "model"
    path.mkdir(mode=0o750)
    (path / "old").write_text("old")
    monkeypatch.chdir(path)
    with files.replacing(path) as new:
        (new / "new").write_text("new")
        assert names(path) == ["old"]
    assert names(path) == names(Path()) == ["new"]
    assert path.stat().st_mode & 0o777 == 0o750

    def fail() -> None:
        with files.replacing(path) as new:
            (new / "half").write_text("half")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert names(path) == ["new"]
    assert names(tmp_path) == ["model"]


def test_a_reason_is_never_none() -> None:
    assert files.reason(OSError("1000 requested and 0 written")) == "1000 requested and 0 written"
    assert files.reason(OSError()) == "OSError"
    assert files.reason(FileNotFoundError(2, "No such file or directory")) == "No such file or directory"


if __name__ == "__main__":
    for shipped in map(folder.find, folder.shipped_models()):
        (shipped / folder.CHECKSUMS).write_text(folder.checksums(shipped))
