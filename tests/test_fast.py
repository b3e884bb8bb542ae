"""Every fast body of equation 1, every form of a projection: the same numbers as what is written, and no other cases."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conftest import small_model
from seq2see.config import ModelConfig, TrainingConfig
from seq2see.data.batching import spans_of
from seq2see.kernels import layers, operators
from seq2see.kernels.layers import FastAddNorm, SideBySide, products
from seq2see.kernels.shared import PackedMask
from seq2see.kernels.step import prepare
from seq2see.model.attention import written_attention
from seq2see.model.masks import Mask
from seq2see.training.learner import compiling_pays

SIZES = [(1, 1, 4, 4), (1, 8, 2, 3), (4, 3, 5, 7), (70, 2, 4, 4)]  # B, H, d_k, d_v
SHAPES = {"one query": (1, 6), "many queries": (6, 6), "few last queries": (3, 6), "packed": (256, 256)}  # T, S
MASKS = [
    "everything", "causal", "keys", "causal keys", "sentences", "causal sentences", "sentences spans",
    "causal sentences spans", "keys sentences",
]  # fmt: skip


def makes_sense(shape: str, mask: str) -> bool:
    """Whether such a case can be made: a packed batch has no padded rows, and only it has spans."""
    return "keys" not in mask if shape == "packed" else "spans" not in mask


CASES = [case for case in itertools.product(SHAPES, MASKS) if makes_sense(*case)]


def mask_of(name: str, B: int, T: int, S: int) -> Mask:
    """Draw a mask that leaves every query a key."""
    parts = name.split()
    causal = "causal" in parts
    of_query, of_key = (torch.arange(n) * 4 // n for n in (T, S))
    keys = torch.arange(S) < torch.randint(1, S + 1, (B, 1))
    if "sentences" in parts:
        keys = torch.ones(B, S, dtype=torch.bool)
        keys[:, 1] = False  # the first sentence has another key
    real = keys if "keys" in parts else None
    if "sentences" not in parts:
        return Mask(causal, real)
    spans = spans_of(of_query, of_key, causal) if "spans" in parts else None
    return PackedMask(causal, real, sentences=(of_query, of_key), spans=spans)


def drawn(shape: str, mask: str, size: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor, Mask]:
    """Draw queries, keys, values and a mask."""
    (B, H, K, V), (T, S) = size, SHAPES[shape]
    batch = () if shape == "packed" else (B,)
    q, k, v = torch.randn(*batch, T, H, K), torch.randn(*batch, S, H, K), torch.randn(*batch, S, H, V)
    return q, k, v, mask_of(mask, B, T, S)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize(("shape", "mask"), CASES)
def test_attention_equals_what_is_written(shape: str, mask: str, size: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    q, k, v, drawn_mask = drawn(shape, mask, size)
    expected = written_attention(q, k, v, drawn_mask)
    torch.testing.assert_close(operators.fast_attention(q, k, v, drawn_mask), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("triton", [False, True])
@pytest.mark.parametrize(("shape", "mask"), CASES)
def test_our_kernel_is_for_spans_of_a_packed_batch_on_a_gpu(
    shape: str, mask: str, triton: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`benchmarks/gpu_check.py kernels` compares the numbers of our own kernels, on a GPU or in Triton's interpreter."""
    q, _, _, drawn_mask = drawn(shape, mask, SIZES[2])
    monkeypatch.setattr(operators, "HAS_TRITON", triton)
    assert not operators.has_own_kernel(q, drawn_mask)  # it is on a CPU
    on_a_gpu: Any = SimpleNamespace(is_cuda=True, dim=q.dim)
    assert operators.has_own_kernel(on_a_gpu, drawn_mask) == (triton and "spans" in mask)
    padded = replace(drawn_mask, keys=torch.ones(1, dtype=torch.bool))
    assert not operators.has_own_kernel(on_a_gpu, padded)
    in_rows: Any = SimpleNamespace(is_cuda=True, dim=lambda: 4)
    assert not operators.has_own_kernel(in_rows, drawn_mask)


# --- projections -----------------------------------------------------------------------------------------------------


def test_every_form_of_a_projection_gives_the_same_numbers() -> None:
    torch.manual_seed(0)
    matrices = [nn.Linear(6, width) for width in (3, 4, 5)]
    x = torch.randn(2, 7, 6)
    expected = [matrix(x) for matrix in matrices]
    whole = SideBySide(*matrices)
    for training, laid in ((False, None), (True, None), (False, whole)):
        for found, right in zip(products(x, matrices, training, laid), expected, strict=True):
            torch.testing.assert_close(found, right)
    for part in (matrices[1:], matrices[:1]):  # a part of what lies side by side
        assert all(map(torch.equal, products(x, part, True, whole), products(x, part, True)))


def test_relu_within_a_product_gives_the_same_numbers_and_gradients() -> None:
    torch.manual_seed(0)
    linear, x, back = nn.Linear(6, 5), torch.randn(7, 6, requires_grad=True), torch.randn(7, 5)
    inputs = x, linear.weight, linear.bias
    found, right = operators.linear_relu(*inputs), linear(x).relu()
    torch.testing.assert_close(found, right)
    for one, other in zip(
        torch.autograd.grad(found, inputs, back), torch.autograd.grad(right, inputs, back), strict=True
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    ("cuda", "shape", "training", "own"),
    [
        (True, (3, 320), True, True),
        (True, (3, operators.SMALL), True, False),
        (False, (3, 320), True, False),
        (True, (2, 3, 320), True, False),
        (True, (3, 320), False, False),
    ],
)
def test_our_norm_is_for_training_of_packed_batches_on_a_gpu(
    cuda: bool, shape: tuple[int, ...], training: bool, own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`benchmarks/gpu_check.py kernels` compares its numbers."""
    x: Any = SimpleNamespace(is_cuda=cuda, shape=shape, dim=lambda: len(shape))
    for triton in (True, False):
        monkeypatch.setattr(operators, "HAS_TRITON", triton)
        assert operators.has_own_norm(x, training) is (own and triton)


def test_our_norm_leaves_the_values_to_a_recorder(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, seen = FastAddNorm(ModelConfig(d_model=4, heads=2, dropout=0.3)), {}
    monkeypatch.setattr(layers, "has_own_norm", lambda x, training: training)
    monkeypatch.setattr(layers, "normed_sum", lambda x, h, norm, dropout: norm(x + h + dropout))
    x = torch.randn(3, 4)
    torch.testing.assert_close(layer(x, torch.sin), layer.norm(x + x.sin() + 0.3))
    layer.recorder = lambda path, value: seen.setdefault(path, value)
    layer(x, torch.sin)
    assert [*seen] == ["sum", "out"]
    layer.recorder = None
    torch.testing.assert_close(layer.eval()(x, torch.sin), layer.norm(x + x.sin()))


def test_a_prepared_model_is_the_same_model() -> None:
    model, prepared = small_model(), small_model()
    prepare(prepared)
    assert [*model.state_dict()] == [*prepared.state_dict()]
    for layer in (*prepared.encoder.layers, *prepared.decoder.layers):
        assert layer.self_attention.whole is not None
    assert all(layer.cross_attention.whole is None for layer in prepared.decoder.layers)
    source, target = torch.tensor([[1, 2, 3]]), torch.tensor([[1, 5]])
    torch.testing.assert_close(prepared(source, target), model(source, target))


OPERATORS = (
    "add_norm", "add_norm_backward", "attend_packed", "attend_packed_backward", "linear_relu", "relu_gradient",
    "smoothed_loss", "smoothed_loss_backward",
)  # fmt: skip


def test_every_operator_is_there_when_fast_is_imported() -> None:
    """A compiled step from the cache on disk calls them by name in a process that has traced nothing."""
    defined = {
        name
        for path in Path(operators.__file__).parent.glob("*.py")
        for name in re.findall(r"custom_op\(\s*\"seq2see::(\w+)", path.read_text(encoding="utf-8"))
    }
    assert defined == set(OPERATORS)
    program = f"import torch, seq2see.kernels.registry\nfor name in {OPERATORS}: getattr(torch.ops.seq2see, name)"
    subprocess.run([sys.executable, "-c", program], check=True)


# --- what a small model's step takes, and what is built before a step ----------------------------------------------


@pytest.mark.parametrize(
    ("width", "settings", "pays"),
    [
        (512, {"steps": 3000}, True),
        (512, {"steps": 300}, False),
        (512, {"steps": 2000}, False),
        (512, {"steps": 2000, "r_drop": 1.0}, True),
        (512, {"steps": 2000, "accumulate": 2}, True),
        (512, {"budget": 180.0}, True),
        (512, {"budget": 179.0, "steps": 10**6}, False),
        (operators.SMALL, {"steps": 10**6}, False),
    ],
)
def test_a_step_is_compiled_if_the_training_is_long(width: int, settings: dict[str, Any], pays: bool) -> None:
    """The base model has 63 million parameters, and compiling takes as long as it saves in some two minutes."""
    config = ModelConfig.of(source_vocabulary=37_000, target_vocabulary=37_000, d_model=width, heads=8)
    assert compiling_pays(config, TrainingConfig.of(batch_tokens=40_960, **settings)) is pays
