"""Numbers on their way to the page: what is sent small is the same within what it says, and head by head."""

from __future__ import annotations

import base64
import json
import re
import zlib
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

import seq2see
from seq2see.config import ModelConfig
from seq2see.errors import UserError
from seq2see.inspection.tables import array_of
from seq2see.inspection.trace import Trace, record
from seq2see.model.transformer import Transformer
from seq2see.page.describe import describe, describe_model
from seq2see.page.single_file import _uncommented, single_file
from seq2see.page.wire import packed
from seq2see.seq2seq import Seq2Seq
from seq2see.serve.forms import HeadName, TraceRequest
from seq2see.serve.traces import Tracer, describe_trace
from seq2see.storage.folder import Tokenizers
from seq2see.tokenizers.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def model() -> Seq2Seq:
    return seq2see.load("dates")


@pytest.fixture(scope="module")
def trace(model: Seq2Seq) -> Trace:
    return model.trace("1845-01-05")


def tensors(sent: dict[str, Any]) -> dict[str, np.ndarray]:
    data = base64.b64decode(sent["data"])
    if sent.get("encoding") == "deflate":
        data = zlib.decompress(data)
    return {
        entry["name"]: np.frombuffer(
            data, entry["dtype"], int(np.prod(entry["shape"])), offset=entry["offset"]
        ).reshape(entry["shape"])
        for entry in sent["tensors"]
    }


def test_compact_attention_is_in_bytes_and_the_rest_in_half_precision(trace: Trace) -> None:
    sent = packed(trace, ["*.weights", "*.masked", "*.embedding.*", "output.weight"], compact=True)
    found = tensors(sent)
    for name in (name for name in trace.names if name.endswith(".weights")):
        assert found[name].dtype == np.uint8
        np.testing.assert_allclose(found[name] / 255, array_of(trace, name), atol=0.5 / 255 + 1e-7)
    name = "decoder.layers.0.self_attention.masked"
    assert found[name].dtype == np.float16
    np.testing.assert_allclose(found[name], array_of(trace, name), rtol=1e-3)  # −∞ included
    assert found["encoder.embedding.ids"].tolist() == trace.source_ids  # an id may be beyond half precision
    assert found["output.weight"].shape == (68, 16)
    assert {entry["offset"] % 4 for entry in sent["tensors"]} == {0}


def test_one_head_is_sent_by_itself(trace: Trace) -> None:
    base = "decoder.layers.1.cross_attention"
    sent = packed(trace, [f"{base}.*", "encoder.memory"], compact=True, head=2)
    found = tensors(sent)
    for role in ("q", "k", "v", "z"):
        np.testing.assert_allclose(found[f"{base}.{role}"], array_of(trace, f"{base}.{role}")[:, 2], atol=4e-3)
    for role in ("scores", "weights"):
        assert found[f"{base}.{role}"].dtype == np.float16
        np.testing.assert_allclose(found[f"{base}.{role}"], array_of(trace, f"{base}.{role}")[2], rtol=1e-3, atol=1e-6)
    w_q = trace.transformer.decoder.layers[1].cross_attention.w_q
    np.testing.assert_allclose(found[f"{base}.w_q.weight"], w_q.weight[8:12].detach(), rtol=1e-3)
    np.testing.assert_allclose(found[f"{base}.w_q.bias"], w_q.bias[8:12].detach(), rtol=1e-3)
    heads = {entry["name"]: entry.get("head") for entry in sent["tensors"]}
    assert heads[f"{base}.q"] == heads[f"{base}.w_k.weight"] == 2
    assert heads["encoder.memory"] is None
    assert found["encoder.memory"].shape == (12, 16)


def test_one_column_of_a_matrix_is_sent_by_itself(trace: Trace) -> None:
    base = "decoder.layers.1.feed_forward"
    sent = packed(trace, [f"{base}.*", "decoder.layers.1.feed_forward_norm.norm.weight"], column=5)
    found = tensors(sent)
    layer = trace.transformer.decoder.layers[1]
    for name, linear in (("w_1", layer.feed_forward.w_1), ("w_2", layer.feed_forward.w_2)):
        np.testing.assert_array_equal(found[f"{base}.{name}.weight"], linear.weight[5:6].detach())
        np.testing.assert_array_equal(found[f"{base}.{name}.bias"], linear.bias[5:6].detach())
    assert found["decoder.layers.1.feed_forward_norm.norm.weight"].shape == (16,)  # no matrix
    columns = {entry["name"] for entry in sent["tensors"] if entry.get("column") == 5}
    assert columns == {f"{base}.{matrix}.{part}" for matrix in ("w_1", "w_2") for part in ("weight", "bias")}


def test_what_is_not_there_is_told(model: Seq2Seq) -> None:
    with pytest.raises(UserError, match="There is no head 4: heads are 0 to 3"):
        describe_trace(Tracer(model), TraceRequest(input="1845-01-05", head=4))
    with pytest.raises(UserError, match=r"There is no column 16 of .*: columns are 0 to 15"):
        describe_trace(Tracer(model), TraceRequest(input="1845-01-05", names=["*.w_o.weight"], column=16))


def test_a_text_that_the_model_was_not_made_for_is_answered_when_asked_for(model: Seq2Seq) -> None:
    with pytest.raises(UserError, match="February 2000 has 29 days"):
        describe_trace(Tracer(model), TraceRequest(input="2000-02-30", names=[]))
    told = describe_trace(Tracer(model), TraceRequest(input="2000-02-30", names=[], anyway=True))
    assert told["output"].endswith(", 2000")
    with pytest.raises(UserError, match="which this model's vocabulary does not have"):
        describe_trace(Tracer(model), TraceRequest(input="2000-02-3ü", names=[], anyway=True))


def test_a_long_glob_is_refused_before_it_is_compiled() -> None:
    assert TraceRequest(input="1845-01-05", names=["*" * 100]).names == ["*" * 100]
    with pytest.raises(ValidationError, match="at most 100 characters"):
        TraceRequest(input="1845-01-05", names=["*" * 101])


def test_a_trace_is_told_with_the_settings_that_the_page_computes_with(model: Seq2Seq) -> None:
    told = describe(model.trace("1845-01-05"), names=[])
    assert {*told} == {
        "text", "output", "finished", "forced", "muted", "d_model", "positions", "scale_embeddings", "embedding_norm",
        "norm", "activation", "source", "target", "steps", "beams", "tensors", "data",
    }  # fmt: skip
    assert (told["text"], told["output"], told["finished"]) == ("1845-01-05", "January 5, 1845", True)
    assert (told["forced"], told["muted"], told["beams"]) == (0, [], [])
    shape = ("d_model", "positions", "scale_embeddings", "embedding_norm", "norm", "activation")
    assert {name: told[name] for name in shape} == {name: getattr(model.config.model, name) for name in shape}
    assert told["source"][1] == {"token": "1", "id": model.tokenizers.source.encode("1")[1], "span": [0, 1]}


def test_a_head_that_is_muted_twice_is_told_once(model: Seq2Seq) -> None:
    head = HeadName(attention="cross", layer=1, head=2)
    told = describe_trace(Tracer(model), TraceRequest(input="1845-01-05", names=[], muted=[head, head]))
    assert told["muted"] == [["cross", 1, 2]]


def test_the_lens_is_told_when_asked_for(model: Seq2Seq) -> None:
    plain = describe_trace(Tracer(model), TraceRequest(input="1845-01-05", names=[]))
    assert "lens" not in plain
    told = describe_trace(Tracer(model), TraceRequest(input="1845-01-05", names=[], also=["lens"]))
    assert [layer["after"] for layer in told["lens"]] == [None, 0, 1]
    assert told["lens"][-1]["ids"] == [step["id"] for step in told["steps"]]
    json.dumps(told, allow_nan=False)


def test_a_base_size_trace_of_64_by_64_is_small_at_first() -> None:
    """As many heads and positions as the base model has; its width plays no part in what is sent at once."""
    letters = Tokenizer.characters(["<pad>", "<sos>", "<eos>", "<unk>", *map(chr, range(0x100, 0x200))])
    config = ModelConfig.of(
        source_vocabulary=letters.size, target_vocabulary=letters.size, d_model=32, d_ff=32, max_length=64
    )
    torch.manual_seed(1)
    text = "".join(map(chr, range(0x110, 0x110 + 62)))
    trace = record(Transformer(config).eval(), Tokenizers(letters, letters), text, text + text[:1])
    weights = [name for name in trace.names if name.endswith(".weights")]
    assert {tuple(trace[name].shape) for name in weights} == {(8, 64, 64)}
    assert len(weights) == 18
    sent = json.dumps(describe(trace, ["*.weights"], compact=True), ensure_ascii=False).encode()
    assert len(sent) < 400_000  # 590 kB of weights as bytes before they are compressed
    assert len(json.dumps(describe(trace, ["*.weights"])["data"])) > 3_000_000  # as float32


def test_the_file_of_a_large_model_holds_each_head_by_itself(model: Seq2Seq, trace: Trace) -> None:
    about = {**describe_model("dates", model.config, model.card, model.path), "small": False}
    saved = json.loads(re.findall(r'id="saved">(.*)</script>', single_file(about, trace))[0])
    assert "card" not in saved["model"]
    vectors, *heads = saved["more"]
    assert len(heads) == 4
    np.testing.assert_array_equal(tensors(vectors)["encoder.memory"], array_of(trace, "encoder.memory"))
    base = "decoder.layers.1.cross_attention"
    for head, sent in enumerate(heads):
        found = tensors(sent)
        assert {name.rpartition(".")[2] for name in found} == {*"qkvz", "scores", "scaled", "masked", "weights"}
        np.testing.assert_array_equal(found[f"{base}.q"], array_of(trace, f"{base}.q")[:, head])
        np.testing.assert_array_equal(found[f"{base}.weights"], array_of(trace, f"{base}.weights")[head])


@pytest.mark.parametrize(
    ("line", "bare"),
    [
        ("let a = 1; // one", "let a = 1;"),
        ('get("https://a // b")', 'get("https://a // b")'),
        ('say("a"); // b', 'say("a");'),
        ("say(`a // b`)", "say(`a // b`)"),
        ("a // b // c", "a"),
        ("let a = 1;", "let a = 1;"),
    ],
)
def test_a_script_loses_its_comments_and_nothing_else(line: str, bare: str) -> None:
    assert _uncommented(line) == bare
