"""Rotary and relative positions: equal to what the equations say, in every way the model is run, or refused."""

from __future__ import annotations

import copy
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from seq2see.config import Config, ModelConfig, TrainingConfig
from seq2see.data.batching import PackedBatches, Ragged
from seq2see.decoding.hypothesis import PAPER, Special
from seq2see.decoding.search import beam_search, greedy
from seq2see.errors import ConfigError, UserError
from seq2see.interchange import to_huggingface, to_onnx
from seq2see.interchange.to_ctranslate2 import export, numbers_of, specification
from seq2see.kernels.distances import RelativeAttention, RotaryAttention, bucket_of
from seq2see.kernels.registry import network_of, with_kernels, without_kernels
from seq2see.model.masks import CAUSAL, Mask
from seq2see.model.sublayers import Observable
from seq2see.model.transformer import Transformer
from seq2see.page import live
from seq2see.seq2seq import Seq2Seq
from seq2see.storage.folder import Tokenizers
from seq2see.tokenizers.tokenizer import END, PAD, START, Tokenizer

BOTH = pytest.mark.parametrize("positions", ["rotary", "relative"])
TOKENIZER = Tokenizer.characters([PAD, START, END, *"abcdefghijklmnopq"])


def model_of(positions: str, **settings: object) -> Transformer:
    """A random model whose biases are not zero."""
    torch.manual_seed(4)
    shape = {"source_vocabulary": 20, "target_vocabulary": 20, "d_model": 24, "heads": 3, "d_ff": 32, "encoder_layers": 2,
             "decoder_layers": 2, "dropout": 0.0, "max_length": 64, "positions": positions, **settings}  # fmt: skip
    model = network_of(ModelConfig.of(**shape)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("distances"):
                parameter.normal_()
    return model


def written(attention: RotaryAttention | RelativeAttention, x: Tensor, causal: bool) -> Tensor:
    """The equations for one sentence (T, D), number by number."""
    T, H = len(x), attention.heads
    q, k, v = (w(x).view(T, H, -1) for w in (attention.w_q, attention.w_k, attention.w_v))
    K = q.shape[-1]
    z = torch.zeros(T, H, K)
    for h in range(H):
        for t in range(T):
            scores = []
            for s in range(t + 1 if causal else T):
                if isinstance(attention, RotaryAttention):  # Re(q̂·conj(k̂)·e^(i(t−s)θ)), pairs as complex numbers
                    score = 0.0
                    for i in range(K // 2):
                        a, b = (complex(float(y[h, i]), float(y[h, i + K // 2])) for y in (q[t], k[s]))
                        angle = (t - s) * 10000 ** (-2 * i / K)
                        score += (a * b.conjugate() * complex(math.cos(angle), math.sin(angle))).real
                    scores.append(score / math.sqrt(K))
                else:
                    bucket = int(bucket_of(torch.tensor(s - t), causal))
                    scores.append(float(q[t, h] @ k[s, h]) / math.sqrt(K) + float(attention.distances[bucket, h]))
            weights = torch.tensor(scores).softmax(0)
            z[t, h] = sum(weight * v[s, h] for s, weight in enumerate(weights))  # type: ignore[assignment]
    return attention.w_o(z.flatten(1))


@BOTH
def test_it_computes_what_the_equations_say(positions: str) -> None:
    model = model_of(positions)
    x = torch.randn(7, 24)
    for half, mask in ((model.encoder, Mask()), (model.decoder, CAUSAL)):
        attention = half.layers[1].self_attention
        assert isinstance(attention, RotaryAttention | RelativeAttention)
        with torch.no_grad():
            expected = written(attention, x, mask.causal)
            torch.testing.assert_close(attention(x, x, mask), expected, atol=1e-5, rtol=1e-4)


@BOTH
def test_steps_beams_packed_batches_and_recorders_agree(positions: str) -> None:
    model = model_of(positions)
    assert model.parameter_count() == model.config.parameters
    source, target = torch.randint(3, 20, (2, 9)), torch.randint(3, 20, (2, 6))
    keys = torch.ones(2, 9, dtype=torch.bool)
    keys[1, 5:] = False
    with torch.no_grad():
        whole = model(source, target, Mask(keys=keys))
        memory, cache = model.encode(source, Mask(keys=keys)), model.empty_cache()  # type: ignore[operator]
        steps = [model.decode(target[:, t : t + 1], memory, Mask(keys=keys), cache) for t in range(6)]  # type: ignore[call-arg]
        torch.testing.assert_close(torch.cat(steps, 1), whole, atol=1e-5, rtol=1e-4)
        alone = model(source[1:, :5], target[1:])
        torch.testing.assert_close(whole[1:], alone, atol=1e-5, rtol=1e-4)
        seen: list[str] = []
        for module in model.modules():
            if isinstance(module, Observable):
                module.recorder = lambda path, x: (seen.append(path), x)[1]
        torch.testing.assert_close(model(source[0], target[0]), whole[0], atol=1e-5, rtol=1e-4)
        assert "decoder.layers.1.self_attention.weights" in seen
        for module in model.modules():
            if isinstance(module, Observable):
                module.recorder = None
        rows = [source[0].tolist(), source[1, :5].tolist()]
        targets = [[1, *row, 2] for row in target.tolist()]
        batch = PackedBatches(Ragged.of(rows), Ragged.of(targets), (0, 0), 128, 1).batch(torch.arange(2).numpy())
        masks = batch.masks()
        memory = model.encode(batch.source, masks.source, masks.source_place)  # type: ignore[call-arg]
        packed = model.decode(batch.target_in, memory, masks.cross, None, masks.target, masks.target_place)  # type: ignore[call-arg]
        begun = torch.cat([torch.ones(2, 1, dtype=torch.long), target], 1)
        torch.testing.assert_close(packed[:7], model(source[0], begun[0]), atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(packed[7:14], model(source[1, :5], begun[1]), atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(
            without_kernels(copy.deepcopy(model))(source[0], target[0]), whole[0], atol=1e-5, rtol=1e-4
        )
        assert with_kernels(copy.deepcopy(model)).encoder.layers[0].self_attention.__class__ in (
            RotaryAttention, RelativeAttention,
        )  # fmt: skip


@BOTH
def test_a_folder_keeps_them_and_every_search_answers(positions: str, tmp_path: Path) -> None:
    model = model_of(positions)
    tokenizers = Tokenizers(TOKENIZER, TOKENIZER)
    Seq2Seq(Config("pairs", model.config, TrainingConfig()), tokenizers, model).save(tmp_path / "m")
    again = Seq2Seq.load(tmp_path / "m")
    special, source = Special.of(tokenizers), [TOKENIZER.encode("abcd")]
    rules = PAPER.but(max_length=8)
    assert greedy(again.transformer, source, special, rules)[0].ids == greedy(model, source, special, rules)[0].ids
    assert beam_search(model, source, special, rules.but(beam=2))
    assert again.predict(["abcd", "q"]) == again.predict(["abcd", "q"])


@BOTH
def test_what_does_not_have_them_says_so(positions: str, tmp_path: Path) -> None:
    model, tokenizers = model_of(positions), Tokenizers(TOKENIZER, TOKENIZER)
    config = Config("pairs", model.config, TrainingConfig())
    with pytest.raises(UserError, match=f"{positions} positions"):
        to_huggingface.export(tmp_path / "hf", config, model, tokenizers)
    assert f"{positions} positions" in (live.why_not(tokenizers, config.decoding, positions) or "")
    if positions == "relative":
        with pytest.raises(UserError, match="relative positions"):
            specification(numbers_of(model), model.config, tokenizers)
        with pytest.raises(UserError, match="relative positions"):
            Seq2Seq(config, tokenizers, model, engine="ctranslate2").predict(["abc"])


def test_ctranslate2_turns_queries_and_keys_as_ours(tmp_path: Path) -> None:
    model, tokenizers = model_of("rotary"), Tokenizers(TOKENIZER, TOKENIZER)
    Seq2Seq(Config("pairs", model.config, TrainingConfig()), tokenizers, model).save(tmp_path / "m")
    parity = export(tmp_path / "m", model, tokenizers)
    assert parity.same_tokens == parity.tokens > parity.inputs
    assert 0 < parity.largest_difference < 1e-4
    theirs, ours = (Seq2Seq.load(tmp_path / "m", engine=engine) for engine in ("ctranslate2", "torch"))
    for texts in (["abcd", "q", "xyz"], ["abcd", "q", "xyz" * 30]):  # of several lengths, in one batch; also long ones
        for one, other in zip(theirs.answers(texts), ours.answers(texts), strict=True):
            assert one.ids == other.ids
            assert one.log_probability == pytest.approx(other.log_probability, abs=1e-4)
            for token, its in zip(one.tokens, other.tokens, strict=True):
                assert token.probability == pytest.approx(its.probability, abs=1e-4)


@BOTH
def test_onnx_answers_as_ours(positions: str, tmp_path: Path) -> None:
    model, tokenizers = model_of(positions), Tokenizers(TOKENIZER, TOKENIZER)
    compared = to_onnx.export(tmp_path / "onnx", Config("pairs", model.config, TrainingConfig()), model, tokenizers)
    assert compared.largest < 1e-3


def test_a_head_of_an_odd_width_cannot_be_turned() -> None:
    with pytest.raises(ConfigError, match="must be even"):
        ModelConfig(d_model=6, heads=2, positions="rotary")


@BOTH
def test_order_matters_without_a_table_of_positions(positions: str) -> None:
    model = model_of(positions)
    with torch.no_grad():
        one, two = model.encode(torch.tensor([3, 4, 5])), model.encode(torch.tensor([5, 4, 3]))
    assert not torch.allclose(one[0], two[2], atol=1e-3)
    assert not model.encoder.embedding.positions.any()
