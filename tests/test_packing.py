"""Packed batches: every pair once, and the losses of padded ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import create_mask

from conftest import small_model
from seq2see.data.batching import Batches, Ragged
from seq2see.data.packing import BLOCK, SMALL_BLOCK, PackedBatches, blocks_of


def corpus(seed: int = 0, pairs: int = 60) -> tuple[Ragged, Ragged]:
    random = np.random.default_rng(seed)
    return tuple(
        Ragged.of([[1, *random.integers(3, 11, random.integers(1, 9)).tolist(), 2] for _ in range(pairs)])
        for _ in "ab"
    )  # type: ignore[return-value]


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_packed_losses_equal_padded_ones(norm: str) -> None:
    """The same 60 pairs, once padded and once packed, in float32."""
    model = small_model(norm=norm)
    source, target = corpus()
    padded = Batches(source, target, (0, 0), 10**9, seed=0).everything()
    logits = model(padded.source, padded.target_in, padded.source_mask)
    expected = F.cross_entropy(logits.flatten(0, 1), padded.target_out.flatten(), ignore_index=0)
    expected.backward()
    gradients = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()

    packed = PackedBatches(source, target, (0, 0), 640, seed=0).batch(
        np.random.default_rng(1).permutation(60)
    )
    loss = F.cross_entropy(
        model.forward_packed(packed.source, packed.target_in, packed.masks()),
        packed.target_out,
        ignore_index=0,
    )
    loss.backward()
    assert packed.tokens == padded.tokens
    torch.testing.assert_close(loss, expected, atol=1e-5, rtol=1e-5)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name], atol=1e-5, rtol=1e-4)


def test_an_epoch_holds_every_pair_once_within_the_size() -> None:
    source, target = corpus(pairs=500)
    batches = PackedBatches(source, target, (0, 0), 128, seed=3)
    for epoch in range(2):
        rows = batches.order(epoch)
        assert sorted(np.concatenate(rows).tolist()) == list(range(500))
        for chosen in rows:
            assert (batches.lengths[:, chosen].sum(1) < 128).all()
            assert batches.batch(chosen).source.shape == (128,)


def test_batches_depend_on_seed_and_step_alone() -> None:
    source, target = corpus(pairs=200)
    forward = PackedBatches(source, target, (0, 0), 128, seed=3)
    seen = [forward.at(step).target_in for step in range(40)]
    other = PackedBatches(source, target, (0, 0), 128, seed=3)
    for step in (39, 2, 20, 2):
        assert torch.equal(other.at(step).target_in, seen[step])


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("block", [BLOCK, SMALL_BLOCK])
def test_blocks_say_what_the_sentences_say(causal: bool, block: int) -> None:
    """The blocks that FlexAttention is given cover all that the plain mask allows, and no less."""
    source, target = corpus(pairs=150)
    batch = PackedBatches(source, target, (0, 0), 1024, seed=0).batch(np.arange(120))
    of_query, of_key = batch.rows[6], batch.rows[6 if causal else 2]
    blocks = blocks_of(of_query, of_key, block, causal)
    masks = batch.masks()
    plain = (masks.target if causal else masks.cross).allowed(1024, 1024, torch.device("cpu"))
    allowed = create_mask(blocks.mask_mod, 1, 1, 1024, 1024, device="cpu")[0, 0]
    assert plain is not None
    assert torch.equal(allowed, plain)
    needed = plain.view(1024 // block, block, 1024 // block, block).any(3).any(1)
    assert torch.equal(blocks.to_dense()[0, 0].bool(), needed)


def test_a_compiled_step_is_compiled_once() -> None:
    model = small_model()
    source, target = corpus(pairs=300)
    batches = PackedBatches(source, target, (0, 0), 256, seed=0)
    compiled = torch.compile(model.forward_packed, backend="eager", fullgraph=True, dynamic=False)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for step in range(3):
            batch = batches.at(step)
            logits = compiled(batch.source, batch.target_in, batch.masks())
            torch.testing.assert_close(
                logits, model.forward_packed(batch.source, batch.target_in, batch.masks())
            )
