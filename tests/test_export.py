"""CTranslate2 exports: each expressible shape answers as ours, others are refused, nothing is half done."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import seq2see
from conftest import sweep
from seq2see.cli import app
from seq2see.config import Config, ModelConfig, TrainingConfig
from seq2see.decoding import engines
from seq2see.decoding.ctranslate2_engine import CTranslate2Engine
from seq2see.decoding.hypothesis import Special, with_beam
from seq2see.decoding.search import beam_search, greedy
from seq2see.errors import FolderError, UserError
from seq2see.interchange.to_ctranslate2 import export
from seq2see.kernels.registry import network_of
from seq2see.model.transformer import Transformer
from seq2see.seq2seq import Seq2Seq
from seq2see.storage import folder
from seq2see.storage.folder import Tokenizers
from seq2see.tokenizers.tokenizer import END, PAD, START, UNKNOWN, Tokenizer

SOURCE = Tokenizer.characters([PAD, START, END, *"abcdefgh"])  # 11 tokens
TARGET = Tokenizer.characters([UNKNOWN, PAD, START, END, *"stuvwxyz "])  # 13 tokens: other ids for the same specials
SPECIAL = Special(TARGET.start, TARGET.end, SOURCE.pad)


def model_of(seed: int = 1, **settings: object) -> Transformer:
    """A random model that listens to its source, so that its answers differ, and some end."""
    torch.manual_seed(seed)
    shape = {"source_vocabulary": 11, "target_vocabulary": 13, "d_model": 12, "heads": 3, "d_ff": 17,
             "encoder_layers": 2, "decoder_layers": 3, "max_length": 64, "share_embeddings": False,
             "share_output": False, **settings}  # fmt: skip
    model = network_of(ModelConfig.of(**shape)).eval()
    with torch.no_grad():
        for layer in model.decoder.layers:
            layer.cross_attention.w_q.weight *= 4
            layer.cross_attention.w_v.weight *= 4
        model.encoder.embedding.table.weight *= 4
        model.output.weight *= 4
        if model.output.bias is not None:
            model.output.bias[SPECIAL.end] += 1.0
        for parameter in model.parameters():  # no gain is 1 and no bias 0
            parameter += 0.05 * torch.randn_like(parameter)
    return model


def folder_of(path: Path, model: Transformer, tokenizers: Tokenizers = Tokenizers(SOURCE, TARGET)) -> Path:  # noqa: B008
    Seq2Seq(Config("pairs", model.config, TrainingConfig()), tokenizers, model).save(path)
    return path


@pytest.mark.parametrize("settings", [
    {}, {"norm": "pre"}, {"activation": "gelu"}, {"activation": "swish", "norm": "pre"},
    {"positions": "halves"}, {"positions": "learned"}, {"share_output": True},
    {"encoder_layers": 1, "decoder_layers": 3, "d_ff": 9},
], ids=str)  # fmt: skip
def test_every_shape_answers_as_ours(tmp_path: Path, settings: dict[str, object]) -> None:
    model = model_of(**settings)
    parity = export(folder_of(tmp_path, model), model, Tokenizers(SOURCE, TARGET))
    assert parity.same_answers == parity.inputs > 20
    assert parity.same_tokens == parity.tokens > parity.inputs
    assert 0 < parity.largest_difference < 1e-3


@pytest.fixture
def any_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """On some CPUs eight bits do not suit small models."""
    monkeypatch.setattr("seq2see.interchange.to_ctranslate2.WRONG", math.inf)


@pytest.mark.usefixtures("any_rounding")
def test_shared_embeddings(tmp_path: Path) -> None:
    one = Tokenizers.one(SOURCE)
    model = model_of(target_vocabulary=11, share_embeddings=True, share_output=True)
    parity = export(folder_of(tmp_path, model, one), model, one)
    assert parity.same_answers == parity.inputs
    assert (tmp_path / "ctranslate2" / "shared_vocabulary.json").exists()
    for quantization in ("int8", "float32"):  # in the place of the export that is there
        export(tmp_path, model, one, quantization)
        assert json.loads((tmp_path / "ctranslate2" / engines.NOTE).read_text())["quantization"] == quantization
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("seed", sweep([0, 1, 3], 1))
@pytest.mark.parametrize("beam", [1, 2, 4])
def test_greedy_and_beam_find_what_our_search_finds(tmp_path: Path, seed: int, beam: int) -> None:
    model = model_of(seed)
    export(folder_of(tmp_path, model), model, Tokenizers(SOURCE, TARGET))
    engine = CTranslate2Engine(
        tmp_path / "ctranslate2", (SOURCE.vocabulary(), TARGET.vocabulary()), SPECIAL, model.config
    )
    sources = SOURCE.encode_batch(["a", "bcd", "hgfedcba" * 2, "aa", "e", "habefg", "cccccc", "db"])
    plain = greedy(model, sources, SPECIAL)
    expected = plain if beam == 1 else [row[0] for row in beam_search(model, sources, SPECIAL, with_beam(beam))]
    assert len({tuple(answer.ids) for answer in expected}) > 2
    found = [answers[0] for answers in engine.search(sources, with_beam(beam))]
    alone = [engine.ids([source], with_beam(beam))[0] for source in sources]
    assert [answer.ids for answer in found] == alone
    # it may stop while a likelier answer goes on; random models are sure of nothing
    other = [row for row, (a, b) in enumerate(zip(found, expected, strict=True)) if a.ids != b.ids]
    assert len(other) <= (beam > 1)
    expected = [found[row] if row in other else answer for row, answer in enumerate(expected)]
    assert all(a.score > b.score - 1e-4 for a, b in zip(found, plain, strict=True))
    for a, b in zip(found, expected, strict=True):
        assert a.log_probabilities == pytest.approx(b.log_probabilities, abs=1e-4)
        assert a.score == pytest.approx(b.score, abs=1e-4)
        assert a.finished == b.finished


@pytest.mark.usefixtures("any_rounding")
def test_int8_is_told_and_does_not_touch_the_model(tmp_path: Path) -> None:
    model = model_of()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    parity = export(folder_of(tmp_path, model), model, Tokenizers(SOURCE, TARGET), "int8")
    assert parity.largest_difference > 1e-3  # it is rounded, and that is seen
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    note = json.loads((tmp_path / "ctranslate2" / "seq2see.json").read_text())
    assert note["quantization"] == "int8"
    assert note["parity"] == str(parity)


@pytest.mark.parametrize("settings", [{"d_k": 5, "d_v": 5}, {"d_v": 7}])
def test_heads_that_cannot_be_expressed_are_refused(tmp_path: Path, settings: dict[str, object]) -> None:
    model = model_of(**settings)
    with pytest.raises(UserError, match="CTranslate2 supports only heads of d_model / heads = 12/3"):
        export(folder_of(tmp_path, model), model, Tokenizers(SOURCE, TARGET))
    assert not [path for path in tmp_path.iterdir() if "ctranslate2" in path.name]


def test_a_conversion_that_answers_otherwise_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from seq2see.interchange import to_ctranslate2 as ctranslate2

    model = model_of()
    export(folder_of(tmp_path, model), model, Tokenizers(SOURCE, TARGET))
    before = (tmp_path / "ctranslate2" / "model.bin").read_bytes()
    monkeypatch.setitem(ctranslate2.ACTIVATIONS, "relu", ctranslate2.ACTIVATIONS["swish"])
    with pytest.raises(FolderError, match="does not answer like this one"):
        export(tmp_path, model, Tokenizers(SOURCE, TARGET))
    assert (tmp_path / "ctranslate2" / "model.bin").read_bytes() == before
    assert not list(tmp_path.glob(".ctranslate2*"))


def test_an_export_in_a_folder_that_does_not_ship_is_never_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CTranslate2 trusts what it reads: junk would crash it, and other weights would answer."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    copy = Path(shutil.copytree(folder.find("dates"), tmp_path / "dates"))
    for file in (copy / "ctranslate2").iterdir():
        file.write_bytes(b"junk")
    assert seq2see.load(copy).network.engine_for(1).name == "torch, float32"
    made = seq2see.load(copy, engine="ctranslate2")
    assert made.network.engine_for(1).name == "ctranslate2, float32"
    assert made("1845-01-05") == "January 5, 1845"
    (kept,) = (tmp_path / "cache/seq2see/exports").iterdir()
    assert kept.parent.stat().st_mode & 0o077 == 0
    assert seq2see.load(copy).network.export == kept / "ctranslate2"
    (kept / "ctranslate2/model.bin").write_bytes(b"cut")
    assert seq2see.load(copy).network.export is None  # and it is made again
    assert seq2see.load(copy, engine="ctranslate2")("1845-01-05") == "January 5, 1845"
    kept.parent.chmod(0o777)  # anybody could have written there
    assert seq2see.load(copy).network.export is None


def test_two_processes_may_make_an_export_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = folder_of(tmp_path / "mine", model_of())
    code = f"import seq2see; print(seq2see.load({str(path)!r}, engine='ctranslate2').network.engine_for(1).name)"
    both = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in "ab"]
    assert [process.communicate(timeout=120)[0] for process in both] == ["ctranslate2, float32\n"] * 2
    (kept,) = (tmp_path / "cache/seq2see/exports").iterdir()
    assert [one.name for one in kept.iterdir()] == ["ctranslate2"]

    def written_meanwhile(*given: object, **more: object) -> None:
        monkeypatch.setattr(engines, "ready_export", ready)
        raise FileExistsError("the other process was first")

    ready = engines.ready_export
    monkeypatch.setattr(engines, "ready_export", lambda *given: None)
    monkeypatch.setattr("seq2see.interchange.to_ctranslate2.export", written_meanwhile)
    assert seq2see.load(path, engine="ctranslate2").network.export == kept / "ctranslate2"


def test_the_command_says_where_the_export_is_and_how_far_it_agrees(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["export", "--model", str(folder_of(tmp_path, model_of()))])
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith(f"{tmp_path / 'ctranslate2'}: float32; ")
    assert "agree, and the log-probabilities differ by at most" in done.stdout


def test_a_missing_package_is_named_with_the_extra_that_brings_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seq2see.errors.find_spec", lambda name: name != "onnxscript" or None)
    done = CliRunner().invoke(app, ["export", "--to", "onnx", "--out", "x"])
    said = "--to onnx needs the package onnxscript, which is not installed: pip install 'seq2see[onnx]'."
    assert str(done.exception) == said


def test_no_folder_is_named_for_an_export_that_stays_in_the_model_s_own() -> None:
    done = CliRunner().invoke(app, ["export", "--model", "dates", "there"])
    assert isinstance(done.exception, UserError)
    assert str(done.exception).startswith("there was given as the folder to write, but the CTranslate2 format")
    assert str(folder.find("dates")) in str(done.exception)
