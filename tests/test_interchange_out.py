"""Models of ours in the forms of others and back: Hugging Face, CTranslate2, ONNX, and the Hub."""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import warnings
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_flatten, tree_unflatten
from typer.testing import CliRunner

import seq2see
from conftest import sweep
from seq2see.cli import app
from seq2see.config import Config, DecodingConfig, ModelConfig, TrainingConfig
from seq2see.decoding.hypothesis import Special
from seq2see.decoding.search import beam_search, greedy
from seq2see.errors import FolderError, UserError
from seq2see.interchange import reading, to_ctranslate2, to_huggingface, to_onnx
from seq2see.interchange.checks import Compared
from seq2see.interchange.imported import NEVER
from seq2see.interchange.legacy import ctranslate2 as from_ctranslate2
from seq2see.interchange.reading import import_model
from seq2see.kernels.registry import network_of
from seq2see.model.transformer import Transformer
from seq2see.seq2seq import Seq2Seq
from seq2see.storage.folder import Tokenizers, find, shipped_models
from seq2see.tokenizers.tokenizer import Tokenizer

DATES = ["1845-01-05", "2025-09-03", "1426-08-10", "1969-07-20"]
TOKENIZER = Tokenizer.characters(["<sos>", "<pad>", "<eos>", *"abcdefghij"])  # M2M100 wants 1 for padding


def small(**settings: Any) -> Seq2Seq:
    """A random model of ours whose norms and biases are not 1 and 0."""
    torch.manual_seed(4)
    shape = dict(source_vocabulary=13, target_vocabulary=13, d_model=16, heads=4, d_ff=24, encoder_layers=2,
                 decoder_layers=2, max_length=40)  # fmt: skip
    config = ModelConfig.of(**{**shape, **settings})
    model = network_of(config)
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    rules = DecodingConfig(length_ratio=0.0, length_offset=20)
    return Seq2Seq(
        Config("pairs", config, TrainingConfig(), rules), Tokenizers.one(TOKENIZER), model.eval(), engine="torch"
    )


def to_hf(model: Seq2Seq, out: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of transformers about itself
        return to_huggingface.export(out, model.config, model.transformer, model.tokenizers)


SHAPES: list[dict[str, Any]] = [
    {}, {"norm": "pre"}, {"positions": "halves", "activation": "gelu"}, {"output_bias": True, "norm": "pre"},
    {"share_embeddings": False, "share_output": False}, {"norm": "pre", "share_embeddings": False},
    {"norm": "pre", "share_embeddings": False, "share_output": False}, {"positions": "learned", "embedding_norm": True},
    {"positions": "learned", "embedding_norm": True, "norm": "pre", "scale_embeddings": False},
    {"positions": "fairseq", "norm": "pre"}, {"scale_embeddings": False},
]  # fmt: skip
LIGHT = ({}, {"norm": "pre", "share_embeddings": False}, {"positions": "learned", "embedding_norm": True})
#: All shapes; those that are not in ``LIGHT`` in ``make verify``.
ALL = [pytest.param(shape, marks=[] if shape in LIGHT else pytest.mark.heavy) for shape in SHAPES]


@pytest.mark.parametrize("settings", ALL, ids=str)
def test_a_model_goes_to_hugging_face_and_back(settings: dict[str, Any], tmp_path: Path) -> None:
    model = small(**settings)
    compared = to_hf(model, tmp_path / "theirs")
    assert compared.largest < 1e-5
    assert compared.same_tokens == compared.tokens > 50
    if model.config.model.positions in ("paper", "halves"):  # the others put languages around a text
        import_model(str(tmp_path / "theirs"), tmp_path / "ours")
        back = seq2see.load(tmp_path / "ours", engine="torch")
        texts = ["abc", "jihgfedcba", "a"]
        assert back.predict(texts) == model.predict(texts)
        first, second = (m.log_probabilities([("abc", "cab")])[0] for m in (back, model))
        assert first == pytest.approx(second, abs=1e-5)


@pytest.mark.parametrize(("tokenizer", "unknown"), [
    (Tokenizer.words(["a b a b"]), {"unk_token": "<unk>"}), (Tokenizer.characters(), {}),
])  # fmt: skip
def test_the_files_of_a_tokenizer_name_its_tokens(
    tokenizer: Tokenizer, unknown: dict[str, str], tmp_path: Path
) -> None:
    to_huggingface._write_tokenizer(tmp_path, tokenizer, 77)
    assert json.loads((tmp_path / "tokenizer_config.json").read_text()) == {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<sos>", "eos_token": "<eos>", "pad_token": "<pad>",
        "model_max_length": 77, "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"], **unknown,
    }  # fmt: skip
    assert (tmp_path / "tokenizer.json").read_text(encoding="utf-8") == tokenizer.to_json()


@pytest.mark.parametrize(("rules", "told"), [
    ({}, {"num_beams": 1}), ({"forced_end": True}, {"num_beams": 1, "forced_eos_token_id": 2}),
    ({"beam": 4, "stopping": "full", "length_penalty": 0.5},
     {"num_beams": 4, "length_penalty": 0.5, "early_stopping": True}),
    ({"beam": 2, "length_penalty": 0.5}, {"num_beams": 2, "length_penalty": 0.5, "early_stopping": False}),
    ({"suppressed": (4, 5), "other_ends": (6,), "min_length": 3},
     {"num_beams": 1, "bad_words_ids": [[4], [5]], "eos_token_id": [2, 6], "min_length": 4}),
    ({"first_suppressed": (4,), "no_repeat": 2, "no_repeat_source": 3, "repetition_penalty": 1.5},
     {"num_beams": 1, "begin_suppress_tokens": [4], "no_repeat_ngram_size": 2, "encoder_no_repeat_ngram_size": 3,
      "repetition_penalty": 1.5}),
])  # fmt: skip
def test_the_rules_of_the_search_are_told_to_hugging_face(rules: dict[str, Any], told: dict[str, Any]) -> None:
    model = small()
    config = replace(model.config, decoding=DecodingConfig.of(length_ratio=2.0, length_offset=3, **rules))
    longest = config.decoding.limit(config.model.max_length, config.model.max_length) + 1
    pad, start, end = (getattr(model.tokenizers.target, name) for name in ("pad", "start", "end"))
    ids = {"pad_token_id": pad, "bos_token_id": start, "decoder_start_token_id": start, "eos_token_id": end}
    assert to_huggingface._generation(config, model.tokenizers) == {**ids, "max_length": longest, **told}


@pytest.mark.parametrize(("family", "shared", "vocabulary", "tied"), [
    ("marian", False, 11, True), ("bart", False, 13, False), ("bart", True, 13, True),
])  # fmt: skip
def test_the_shape_is_told_to_hugging_face(family: str, shared: bool, vocabulary: int, tied: bool) -> None:
    shape = ModelConfig.of(
        source_vocabulary=13 if shared else 11, target_vocabulary=13, d_model=12, heads=3, d_ff=17, encoder_layers=2,
        decoder_layers=4, max_length=40, share_embeddings=shared, share_output=True, dropout=0.25, activation="gelu",
        scale_embeddings=False,
    )  # fmt: skip
    tokenizers = Tokenizers.one(Tokenizer.characters([*"abcdefgh", "<eos>", "<sos>", "<pad>"]))
    assert to_huggingface._config(shape, tokenizers, family, "Name") == {
        "model_type": family, "architectures": ["Name"], "vocab_size": vocabulary, "decoder_vocab_size": 13,
        "encoder_vocab_size": 13 if shared else 11, "d_model": 12, "encoder_layers": 2, "decoder_layers": 4,
        "encoder_attention_heads": 3, "decoder_attention_heads": 3, "encoder_ffn_dim": 17, "decoder_ffn_dim": 17,
        "max_position_embeddings": 40, "activation_function": "gelu", "dropout": 0.25, "scale_embedding": False,
        "share_encoder_decoder_embeddings": shared, "tie_word_embeddings": tied, "is_encoder_decoder": True,
        "eos_token_id": 8, "bos_token_id": 9, "decoder_start_token_id": 9, "pad_token_id": 10, "torch_dtype": "float32",
    }  # fmt: skip


def test_a_token_that_is_never_written_does_not_hide_a_difference() -> None:
    compared = Compared(1, 1e-4)
    compared.logits(torch.tensor([[2.0, NEVER]]), torch.tensor([[2.01, NEVER]]))
    assert compared.largest == pytest.approx(0.005, rel=1e-3)
    assert not compared.same


def test_a_difference_is_refused_and_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(to_huggingface, "order_of", lambda config: torch.arange(config.d_model))
    with pytest.raises(FolderError, match="does not answer like this one"):
        to_hf(small(), tmp_path / "theirs")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "settings",
    [{"positions": "opennmt"}, {"d_k": 3}, {"norm": "pre", "positions": "fairseq", "share_output": False}],
    ids=str,
)
def test_what_hugging_face_cannot_say_is_refused(settings: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UserError):
        to_hf(small(**settings), tmp_path / "theirs")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("settings", ALL, ids=str)
def test_a_model_goes_to_ctranslate2_and_back(settings: dict[str, Any], tmp_path: Path) -> None:
    model = small(**settings)
    model.save(tmp_path / "ours")
    parity = to_ctranslate2.export(tmp_path / "ours", model.transformer, model.tokenizers, rules=model.config.decoding)
    assert parity.same_answers == parity.inputs
    import_model(str(tmp_path / "ours/ctranslate2"), tmp_path / "back")
    back = seq2see.load(tmp_path / "back", engine="torch")
    theirs, ours = back.config.model, model.config.model
    for name in ("norm", "activation", "embedding_norm", "scale_embeddings", "heads", "max_length", "positions"):
        assert getattr(theirs, name) == getattr(ours, name), name
    source = torch.tensor([[0, 4, 5, 6, 2]])
    target = torch.tensor([[0, 7, 8]])
    assert torch.allclose(back.transformer(source, target), model.transformer(source, target), atol=1e-5)


def test_a_narrower_half_comes_back_from_ctranslate2(tmp_path: Path) -> None:
    """Our models have no such half, so that one is made by hand; what comes back has units of zeros."""
    model = small()
    for layer in model.transformer.decoder.layers:
        layer.feed_forward.w_1, layer.feed_forward.w_2 = torch.nn.Linear(16, 9), torch.nn.Linear(9, 16)
    rules = model.config.decoding
    small().save(tmp_path / "ours")
    to_ctranslate2.export(tmp_path / "ours", model.transformer, model.tokenizers, rules=rules)
    import_model(str(tmp_path / "ours/ctranslate2"), tmp_path / "back")
    back = seq2see.load(tmp_path / "back", engine="torch")
    assert back.config.model.d_ff == 24
    source, target = torch.tensor([[0, 4, 5, 6, 2]]), torch.tensor([[0, 7, 8]])
    assert torch.allclose(back.transformer(source, target), model.transformer(source, target), atol=1e-5)


@pytest.mark.parametrize(
    ("given", "source", "target", "unknown"),
    [
        ({}, ([], []), (["<s>"], ["</s>"]), "<unk>"),
        ({"bos_token": "B", "eos_token": "E", "unk_token": "U"}, ([], []), (["B"], ["E"]), "U"),
        ({"bos_token": "B", "decoder_start_token": "D"}, ([], []), (["D"], ["</s>"]), "<unk>"),
        (
            {"bos_token": "B", "add_source_bos": True, "add_source_eos": True},
            (["B"], ["</s>"]),
            (["B"], ["</s>"]),
            "<unk>",
        ),
        ({"add_source_bos": True}, (["<s>"], []), (["<s>"], ["</s>"]), "<unk>"),
    ],
)
def test_the_settings_of_a_ctranslate2_folder_say_which_tokens_frame_a_text(
    given: dict[str, object],
    source: tuple[list[str], list[str]],
    target: tuple[list[str], list[str]],
    unknown: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shutil.copytree(find("dates") / "ctranslate2", tmp_path / "made")
    (tmp_path / "made" / "config.json").write_text(json.dumps(given))
    asked: list[object] = []
    framed = SimpleNamespace(of_others=lambda engine, before, after, *more: asked.append((before, after)))
    monkeypatch.setattr(from_ctranslate2, "Tokenizer", framed)
    monkeypatch.setattr(from_ctranslate2, "_engine", lambda names, special, unknown, spm: asked.append(unknown))
    from_ctranslate2.read_ctranslate2(tmp_path / "made")
    assert asked == [unknown, unknown, source, target]


def test_shipped_dates_come_back_from_ctranslate2(tmp_path: Path) -> None:
    model = seq2see.load("dates", engine="torch")
    assert model.path is not None
    import_model(str(model.path / "ctranslate2"), tmp_path / "back")
    back = seq2see.load(tmp_path / "back", engine="torch")
    spaced = [" ".join(["<sos>", *text, "<eos>"]) for text in DATES]
    rows = back.answers(spaced, beam=1)
    assert [row.ids for row in rows] == [row.ids for row in model.answers(DATES)]


@pytest.mark.heavy
def test_onnx_answers_as_ours(tmp_path: Path) -> None:
    model = small(norm="pre", positions="learned", embedding_norm=True, encoder_layers=1, decoder_layers=1)
    compared = to_onnx.export(tmp_path / "onnx", model.config, model.transformer, model.tokenizers)
    assert compared.largest < 1e-5
    assert compared.same_tokens == compared.tokens > 50
    assert sorted(path.name for path in (tmp_path / "onnx").iterdir()) == [
        "decoder.onnx", "encoder.onnx", "onnx.json", "tokenizer.json",
    ]  # fmt: skip


class Session:
    """Stands in for ``onnxruntime``, where seconds matter: it runs the network that was to be exported."""

    exported: dict[str, dict[str, Any]]

    def __init__(self, path: str, options: Any, providers: list[str]) -> None:
        assert (options.log_severity_level, providers) == (3, ["CPUExecutionProvider"])
        self.graph = self.exported[Path(path).name]

    def run(self, wanted: None, feeds: dict[str, Any]) -> list[Any]:
        """Return all outputs, as ``onnxruntime`` does if none is named."""
        assert {*feeds} == {*self.graph["input_names"]}
        given = [torch.from_numpy(feeds[name]) for name in self.graph["input_names"]]
        _, form = tree_flatten(self.graph["arguments"])
        with torch.no_grad():
            found, _ = tree_flatten(self.graph["network"](*tree_unflatten(given, form)))
        assert len(found) == len(self.graph["output_names"])
        return [one.numpy() for one in found]


@pytest.fixture
def without_onnx(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    """Keep what would be exported to ONNX, and run it as it is."""
    Session.exported = {}

    def export(network: Any, arguments: Any, path: str, **settings: Any) -> None:
        Path(path).touch()
        Session.exported[Path(path).name] = dict(network=network, arguments=arguments, **settings)

    monkeypatch.setattr(torch.onnx, "export", export)
    monkeypatch.setattr("onnxruntime.InferenceSession", Session)
    return Session.exported


ONNX = dict(norm="pre", positions="learned", embedding_norm=True, d_k=3, d_v=5, encoder_layers=1)


def test_the_graphs_of_onnx_compute_as_ours(without_onnx: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    model = small(**ONNX)
    config = replace(model.config, decoding=model.config.decoding.but(suppressed=(4, 7)))
    model.transformer.train()
    compared = to_onnx.export(tmp_path / "onnx", config, model.transformer, model.tokenizers)
    assert (compared.inputs, compared.same_tokens) == (16, compared.tokens)
    assert compared.largest < 1e-5
    assert compared.tokens > 50
    assert model.transformer.training
    assert json.loads((tmp_path / "onnx/onnx.json").read_text()) == {
        "start": 0, "end": 2, "pad": 1, "forced": [], "suppressed": [4, 7], "decoder_layers": 2, "heads": 4, "d_k": 3,
        "d_v": 5, "max_length": 40,
    }  # fmt: skip
    assert Tokenizer.load(tmp_path / "onnx/tokenizer.json").encode("abc") == TOKENIZER.encode("abc")
    few = to_onnx.export(tmp_path / "few", config, model.transformer, model.tokenizers, ["abc", "jihgfedcba"])
    assert few.inputs == 2
    assert few.same


def test_the_graphs_of_onnx_take_batches_of_any_size(without_onnx: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    model = small(**ONNX)
    to_onnx.export(tmp_path / "onnx", model.config, model.transformer, model.tokenizers)
    names = ["k_0", "v_0", "k_1", "v_1"]
    encoder, decoder = without_onnx["encoder.onnx"], without_onnx["decoder.onnx"]
    assert encoder["output_names"] == [f"source_{name}" for name in names]
    assert decoder["output_names"] == ["logits", *(f"all_{name}" for name in names)]
    free = {"batch", "source_length", "past"}
    sizes: dict[str, int] = {}
    for graph in (encoder, decoder):
        assert (graph["dynamo"], graph["external_data"], graph["verbose"]) == (True, False, False)
        given, form = tree_flatten(graph["arguments"])
        shapes = [{} if one is None else one for one in form.flatten_up_to(graph["dynamic_shapes"])]
        for name, tensor, shape in zip(graph["input_names"], given, shapes, strict=True):
            fixed = [size for place, size in enumerate(tensor.shape) if place not in shape]
            kinds = {"token": [1], "position": [1], "source": [], "real": []}
            assert fixed == kinds.get(name, [4, 3 if "_k_" in name else 5]), name
            for place, dimension in shape.items():
                assert sizes.setdefault(dimension.__name__, tensor.shape[place]) == tensor.shape[place], name
    assert {*sizes} == free
    assert len({*sizes.values()}) == len(free)
    assert min(sizes.values()) > 1  # a size of 1 would be taken to be fixed


def test_a_difference_in_onnx_is_refused_and_nothing_is_written(
    without_onnx: dict[str, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small(**ONNX)
    asked = to_onnx.OnnxModel.logits
    monkeypatch.setattr(to_onnx.OnnxModel, "logits", lambda *given: asked(*given) * 1.001)
    with pytest.raises(FolderError, match="does not answer like this one"):
        to_onnx.export(tmp_path / "onnx", model.config, model.transformer, model.tokenizers)
    assert not list(tmp_path.iterdir())


def test_a_model_of_the_hub_is_downloaded_without_code_and_written_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def snapshot_download(name: str, allow_patterns: object, local_dir: Path) -> str:
        asked.append((name, allow_patterns, local_dir.name))
        if name == "me/none":
            raise OSError("gone\nand more")
        return str(local_dir)

    found = SimpleNamespace(write=lambda out, origin: asked.append((out, origin)), notes=["a note"])
    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(snapshot_download=snapshot_download))
    errors = SimpleNamespace(HfHubHTTPError=RuntimeError, HFValidationError=ValueError)
    monkeypatch.setitem(sys.modules, "huggingface_hub.errors", errors)
    monkeypatch.setattr(reading, "find_spec", lambda name: errors)
    monkeypatch.setattr(reading, "read", lambda path, languages: found)
    out = tmp_path / "small"
    assert import_model("hf:me/small", out) == (out, ["a note"])
    assert asked == [("me/small", reading.FILES, "model"), (out, "hf:me/small")]
    assert not any(name.endswith(".py") for name in reading.FILES)
    with pytest.raises(UserError, match=r"^me/none could not be downloaded \(gone\)\.$"):
        import_model("hf:me/none", tmp_path / "none")


def test_a_model_is_exported_compared_and_uploaded_under_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    class HfApi:
        def create_repo(self, name: str, **settings: object) -> str:
            asked.append((name, settings))
            if name == "me/none":
                raise OSError("gone\nand more")
            return f"https://example.org/{name}"

        def upload_folder(self, repo_id: str, folder_path: Path, commit_message: str) -> None:
            asked.append((repo_id, (folder_path / "model.safetensors").read_text()))

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(HfApi=HfApi))
    errors = {"HfHubHTTPError": RuntimeError, "HFValidationError": ValueError, "LocalTokenNotFoundError": KeyError}
    monkeypatch.setitem(sys.modules, "huggingface_hub.errors", SimpleNamespace(**errors))
    monkeypatch.setattr(reading, "find_spec", lambda name: errors)

    def export(out: Path, config: Config, transformer: Transformer, tokenizers: Tokenizers, card: str) -> str:
        out.mkdir()
        (out / "model.safetensors").write_text(card)
        return "the same 12 tokens"

    monkeypatch.setattr(to_huggingface, "export", export)
    run = CliRunner().invoke
    done = run(app, ["push", "hf:me/small", "--model", "dates", "--private"])
    assert done.exit_code == 0, done.exception
    assert done.stdout == "https://example.org/me/small: the same 12 tokens.\n"
    card = seq2see.load("dates").card
    assert asked == [("me/small", {"private": True, "exist_ok": True}), ("me/small", card)]
    assert str(run(app, ["push", "hf:me/none"]).exception) == "me/none could not be uploaded (gone)."
    assert asked[2] == ("me/none", {"private": False, "exist_ok": True})
    for wrong in ("me/small", "hf:"):
        assert f"{wrong!r} is not a place to upload to" in str(run(app, ["push", wrong]).exception)
    monkeypatch.setattr(reading, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="huggingface_hub is not installed"):
        reading.push(Path(), "me/small")


# --- the Hub ---------------------------------------------------------------------------------------------------


class Hub(BaseHTTPRequestHandler):
    """A stand-in for the Hub: it keeps what is uploaded, and hands it out."""

    files: dict[str, bytes]

    def log_message(self, *_: Any) -> None:
        pass

    def _answer(self, body: Any, headers: dict[str, str] | None = None, code: int = 200) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(code)
        for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            data = b""
            while size := int(self.rfile.readline(), 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return data
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def do_POST(self) -> None:
        body = self._body()
        if self.path == "/api/repos/create":
            self._answer({"url": f"http://{self.headers['Host']}/me/small", "name": "me/small", "id": "me/small"})
        elif "/preupload/" in self.path:
            files = json.loads(body)["files"]
            self._answer(
                {"files": [{"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in files]}
            )
        elif "/commit/" in self.path:
            for line in body.decode().splitlines():
                entry = json.loads(line)
                if entry["key"] == "file":
                    self.files[entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
            self._answer({"commitUrl": f"http://{self.headers['Host']}/me/small/commit/1", "commitOid": "1" * 40,
                          "success": True})  # fmt: skip
        else:
            self._answer({}, code=200 if "validate" in self.path else 404)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        if path.startswith("/api/models/me/small/tree"):
            self._answer(
                [
                    {"type": "file", "path": name, "size": len(data), "oid": "2" * 40}
                    for name, data in self.files.items()
                ]
            )
        elif path.startswith("/api/models/me/small"):
            siblings = [{"rfilename": name} for name in self.files]
            self._answer({"id": "me/small", "modelId": "me/small", "sha": "1" * 40, "siblings": siblings, "tags": [],
                          "private": False, "downloads": 0})  # fmt: skip
        elif path.startswith("/me/small/resolve/") and path.split("/", 5)[5] in self.files:
            data = self.files[path.split("/", 5)[5]]
            self._answer(data, {"ETag": f'"{len(data):040}"', "X-Repo-Commit": "1" * 40})
        else:
            self._answer({"error": "not found"}, {"X-Error-Code": "RepoNotFound"}, 404)


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "seq2see", *arguments], capture_output=True, text=True, env={**os.environ, **environment}
    )


@pytest.mark.heavy
def test_a_model_is_pushed_and_imported_again(tmp_path: Path) -> None:
    Hub.files = {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        there = {"HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "HF_TOKEN": "hf_stand_in",
                 "HF_HOME": str(tmp_path / "home"), "HF_HUB_DISABLE_XET": "1"}  # fmt: skip
        pushed = command("push", "hf:me/small", "--model", "dates", **there)
        assert pushed.returncode == 0, pushed.stderr
        assert "tokens" in pushed.stdout
        assert {"config.json", "model.safetensors", "tokenizer.json", "generation_config.json"} <= Hub.files.keys()
        found = command("import", "hf:me/small", "--out", str(tmp_path / "back"), **there)
        assert found.returncode == 0, found.stderr
        missing = command("import", "hf:me/none", "--out", str(tmp_path / "none"), **there)
        assert missing.returncode == 2
        assert "could not be downloaded" in missing.stderr
    finally:
        server.shutdown()
        server.server_close()
    assert seq2see.load(tmp_path / "back", engine="torch").predict(DATES, beam=1) == seq2see.load("dates").predict(
        DATES
    )


def test_the_page_of_the_docs_runs_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parent.parent / "docs/bring-your-model.md").read_text(encoding="utf-8")
    commands = [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    assert len(commands) == 7
    for line in commands:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            done = CliRunner().invoke(app, shlex.split(line)[1:], catch_exceptions=False)
        assert done.exit_code == 0, line
    assert (tmp_path / "page.html").stat().st_size > 10_000
    assert (tmp_path / "dates-again/ctranslate2/model.bin").is_file()


def test_an_imported_model_learns_on(tmp_path: Path) -> None:
    to_hf(small(), tmp_path / "theirs")
    import_model(str(tmp_path / "theirs"), tmp_path / "ours")
    start = seq2see.load(tmp_path / "ours", engine="torch")
    before = start.log_probabilities([("abc", "cba")])[0]
    pairs = [(text, text[::-1]) for text in ("abc", "bcd", "cde", "def", "efg", "fgh", "ghi", "hij")] * 8
    learned = seq2see.fit(pairs, start=start, training={"steps": 12, "learning_rate": 0.01, "warmup": 3})
    assert sum(learned.log_probabilities([("abc", "cba")])[0]) > sum(before)
    assert learned.config.model.positions == "halves"


def test_two_vocabularies_go_to_a_family_of_one(tmp_path: Path) -> None:
    """Pre-norm models become Pegasus, which has one vocabulary: the smaller one is filled up."""
    torch.manual_seed(4)
    sides = Tokenizers(TOKENIZER, Tokenizer.characters(["<pad>", "<sos>", "<eos>", *"xyz"]))
    config = ModelConfig.of(source_vocabulary=13, target_vocabulary=6, d_model=16, heads=4, d_ff=24, encoder_layers=2,
                            decoder_layers=2, max_length=40, norm="pre", share_embeddings=False)  # fmt: skip
    model = network_of(config).eval()
    rules = DecodingConfig(length_ratio=0.0, length_offset=20)
    ours = Seq2Seq(Config("pairs", config, TrainingConfig(), rules), sides, model, engine="torch")
    assert to_hf(ours, tmp_path / "theirs").largest < 1e-5
    import_model(str(tmp_path / "theirs"), tmp_path / "ours")
    back = seq2see.load(tmp_path / "ours", engine="torch")
    assert back.config.model.target_vocabulary == 6
    assert back.predict(["abc", "jihgfedcba", "a"]) == ours.predict(["abc", "jihgfedcba", "a"])
    refused = back.answers(["q"])[0]  # a tokenizer of characters has no token for what it does not know
    assert refused.output is None
    assert "cannot be split" in str(refused.error)


# --- every model that ships -------------------------------------------------------------------------------------


#: Texts of people for each model that ships. What is not the same is told with the text.
ASKED: dict[str, list[str]] = {
    "dates": DATES,
    "human-dates": ["le 3 janvier 1845", "3rd of march 2021", "12. oktober 1969", "dec 24 1999"],
    "en-fr": ["Where is the station?", "A man is reading a letter at the window.", "It is raining, and 27 dogs bark."],
    "en-de": ["Where is the station?", "A man is reading a letter at the window.", "It is raining, and 27 dogs bark."],
    "fr-en": ["Où est la gare ?", "Un homme lit une lettre à la fenêtre.", "Il pleut, et 27 chiens aboient."],
}


def by_huggingface(model: Seq2Seq, place: Path, texts: list[str], beam: int) -> list[str]:
    """Their tokenizers, their model, their ``generate``, and no line of ours."""
    import transformers

    assert to_hf(model, place).same
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cutter = transformers.AutoTokenizer.from_pretrained(place)
        own = place / "target" if (place / "target").is_dir() else place
        writer = transformers.AutoTokenizer.from_pretrained(own)
        theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(place)
        found = []
        for text in texts:
            asked = cutter(text, return_tensors="pt", return_token_type_ids=False)
            limit = model.config.decoding.limit(asked["input_ids"].shape[1], model.config.model.max_length)
            rows = theirs.generate(**asked, num_beams=beam, max_length=limit + 1)
            found += writer.batch_decode(rows, skip_special_tokens=True)
    return [text.strip() for text in found]


def by_ctranslate2(model: Seq2Seq, place: Path, texts: list[str], beam: int) -> list[str]:
    """The engine of CTranslate2 in a copy of the folder."""
    model.save(place)
    parity = to_ctranslate2.export(place, model.transformer, model.tokenizers, rules=model.config.decoding)
    assert parity.same_tokens == parity.tokens
    through = seq2see.load(place, engine="ctranslate2")
    assert through.network.engine_for(len(texts), beam).name.startswith("ctranslate2")
    return through.predict(texts, beam=beam)


def by_onnx(model: Seq2Seq, place: Path, texts: list[str], beam: int) -> list[str]:
    """Greedy answers by onnxruntime, token by token."""
    assert beam == 1
    assert to_onnx.export(place, model.config, model.transformer, model.tokenizers).same
    graphs, rules, found = to_onnx.OnnxModel(place), model.config.decoding, []
    target = model.tokenizers.target
    for text in texts:
        source = model.tokenizers.source.encode(text)
        ids = [target.start]
        while ids[-1] != target.end and len(ids) <= rules.limit(len(source), model.config.model.max_length):
            ids.append(int(graphs.logits([source], [ids])[0, -1].argmax()))
        found.append(target.decode(ids[1:]))
    return found


def check_form(name: str, form: Any, beam: int, place: Path) -> None:
    model = seq2see.load(name, engine="torch")
    plain = model.answerer.folded if name == "human-dates" else str  # its texts are folded by its command
    texts = [plain(text) for text in ASKED[name]]
    source, special = model.tokenizers.source, Special.of(model.tokenizers)
    rules, rows = model.config.decoding.but(beam=beam), source.encode_batch(texts)
    if beam == 1:
        ids = [answer.ids for answer in greedy(model.transformer, rows, special, rules)]
    else:
        ids = [best[0].ids for best in beam_search(model.transformer, rows, special, rules)]
    assert form(model, place, texts, beam) == model.tokenizers.target.decode_batch(ids)


def test_the_models_that_ship_are_those_that_are_tried() -> None:
    assert sorted(ASKED) == shipped_models()


@pytest.mark.parametrize("form", [by_huggingface, by_ctranslate2])
@pytest.mark.parametrize("name", ["dates", "human-dates"])
def test_models_of_dates_answer_the_same_in_other_programs(name: str, form: Any, tmp_path: Path) -> None:
    check_form(name, form, 1, tmp_path / "theirs")


@pytest.mark.heavy  # ONNX's exporter alone takes ten seconds and more
@pytest.mark.parametrize(
    ("form", "beam"), [(by_huggingface, 1), (by_ctranslate2, 1), (by_ctranslate2, 4), (by_onnx, 1)]
)
@pytest.mark.parametrize("name", ASKED)
def test_every_model_that_ships_answers_the_same_in_every_form(name: str, form: Any, beam: int, tmp_path: Path) -> None:
    check_form(name, form, beam, tmp_path / "theirs")


PROGRAMS = re.findall(
    r"```python\n(.*?)```",
    (Path(__file__).parents[1] / "docs/bring-your-model.md").read_text(encoding="utf-8"),
    re.DOTALL,
)


@pytest.mark.parametrize("form", sweep(["hf", "onnx"], 1))
def test_the_programs_of_the_documentation_run(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that read an exported model in transformers and in onnxruntime."""
    assert len(PROGRAMS) == 2
    model = seq2see.load("dates", engine="torch")
    if form == "hf":
        to_hf(model, tmp_path / "dates-hf")
    else:
        to_onnx.export(tmp_path / "dates-onnx", model.config, model.transformer, model.tokenizers)
    monkeypatch.chdir(tmp_path)
    program = PROGRAMS[["hf", "onnx"].index(form)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of the libraries about themselves
        exec(compile(program, "docs/bring-your-model.md", "exec"), {})
    assert capsys.readouterr().out.strip() == program.rstrip().rsplit("# ", 1)[1]


@pytest.mark.parametrize("data", ['["a", 3]', '{"a": 1}', '"abc"', "[null]"])
def test_a_vocabulary_of_ctranslate2_is_a_list_of_tokens(tmp_path: Path, data: str) -> None:
    (tmp_path / "shared_vocabulary.json").write_text(data)
    with pytest.raises(FolderError, match="The source vocabulary is not a list of tokens"):
        from_ctranslate2._vocabularies(tmp_path, (3, 3), {})
    (tmp_path / "shared_vocabulary.json").write_text('["a", "b"]')
    assert from_ctranslate2._vocabularies(tmp_path, (3, 4), {}) == [
        ["a", "b", "<unk>"],
        ["a", "b", "<unk>", "unused 0"],
    ]
