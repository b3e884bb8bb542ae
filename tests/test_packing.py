"""Packed batches: every pair once, and the losses of padded ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from conftest import small_model
from seq2see.data.batching import Batches, PackedBatch, PackedBatches, Ragged, sizes_of, spans_of
from seq2see.decoding.both_ways import turned
from seq2see.training.learner import memory_and_logits


def corpus(seed: int = 0, pairs: int = 60, longer: int = 1) -> tuple[Ragged, Ragged]:
    random = np.random.default_rng(seed)
    return tuple(
        Ragged.of([[1, *random.integers(3, 11, times * random.integers(1, 9)).tolist(), 2] for _ in range(pairs)])
        for times in (1, longer)
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

    packed = PackedBatches(source, target, (0, 0), 640, seed=0).batch(np.random.default_rng(1).permutation(60))
    loss = F.cross_entropy(memory_and_logits(model, packed, packed.masks())[1], packed.target_out, ignore_index=0)
    loss.backward()
    assert packed.tokens == padded.tokens
    torch.testing.assert_close(loss, expected, atol=1e-5, rtol=1e-5)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name], atol=1e-5, rtol=1e-4)


def test_turned_batches_are_those_of_turned_texts() -> None:
    """Tokens between start and end are turned, and each still belongs to its source token."""
    sources, targets = ([[1, 5, 6, 7, 2], [1, 8, 2], [1, 3, 4, 9, 5, 2]], [[1, 4, 6, 2], [1, 7, 8, 9, 2], [1, 2]])
    places = [[-1, 1, 3, 4], [-1, 1, -1, 1, 2], [-1, 5]]

    def both(turn: bool) -> tuple[Ragged, Ragged]:
        rows, known = [], []
        for source, target, place in zip(sources, targets, places, strict=True):
            last = len(source) - 1
            moved = [last - one if 0 < one < last else one for one in place]
            rows.append((turned(source), turned(target)) if turn else (source, target))
            known += turned(moved) if turn else place
        source, target = (Ragged.of(side) for side in zip(*rows, strict=True))
        return source, Ragged(target.values, target.offsets, np.array(known, dtype=np.int32))

    as_given, expected = (PackedBatches(*both(turn), (0, 0), 128, seed=1) for turn in (False, True))
    assert torch.equal(as_given.at(0).turned().rows, expected.at(0).rows)
    for rows in ([0], [0, 1, 2]):
        found, right = (Batches(*both(turn), (0, 0), 10**6, 0).batch(np.array(rows)) for turn in (False, True))
        found = found.turned(0)
        for name in ("source", "target_in", "target_out", "places"):
            if name == "target_in":  # what is told after the end does not matter
                real = right.target_out != 0
                assert torch.equal(found.target_in[real], right.target_in[real])
            else:
                assert torch.equal(getattr(found, name), getattr(right, name)), name
        assert found.tokens == right.tokens


@pytest.mark.parametrize("causal", [True, False])
def test_spans_say_what_the_sentences_say(causal: bool) -> None:
    source, target = corpus(pairs=150, longer=3)
    batch = PackedBatches(source, target, (0, 0), 1024, seed=0).at(0)
    assert len(batch.source) < len(batch.target_in) == 1024
    masks = batch.masks()
    mask = masks.target if causal else masks.cross
    assert mask.sentences is not None
    T, S = map(len, mask.sentences)
    plain = mask.allowed(T, S, torch.device("cpu"))
    assert plain is not None
    first_key, end_key, first_query, end_query = spans_of(*mask.sentences, causal)
    keys, queries = torch.arange(S), torch.arange(T)[:, None]
    assert torch.equal((keys >= first_key[:, None]) & (keys < end_key[:, None]), plain)
    seen = (queries >= first_query) & (queries < end_query)
    assert torch.equal(seen & (queries >= keys) if causal else seen, plain)
    for ends in (first_key, end_key, first_query, end_query):
        assert ends.dtype == torch.int32
        assert (ends.diff() >= 0).all()


def test_the_sides_of_a_batch_are_filled_alike() -> None:
    """The target has three times as many tokens here, so the source gets a third of the room, and no long tail."""
    source, target = corpus(pairs=3000, longer=3)
    batches = PackedBatches(source, target, (0, 0), 4096, seed=0)
    assert batches.sizes[1] == 4096
    assert batches.sizes[0] < 2048
    rows = batches.order(0)
    for side in (0, 1):
        filled = [batches.lengths[side, chosen].sum() / batches.sizes[side] for chosen in rows[:-1]]
        assert min(filled) > 0.85
        assert max(filled) < 1
    assert sizes_of(source, target, 4096, longest=3000) == (3072, 4096)
    assert sizes_of(source, target, 4096, longest=4095) == (4096, 4096)


def test_a_compiled_step_is_compiled_once() -> None:
    model = small_model()
    source, target = corpus(pairs=300)
    batches = PackedBatches(source, target, (0, 0), 256, seed=0)

    def logits_by(batch: PackedBatch) -> torch.Tensor:
        return memory_and_logits(model, batch, batch.masks())[1]

    compiled = torch.compile(logits_by, backend="eager", fullgraph=True, dynamic=False)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for step in range(3):
            batch = batches.at(step)
            torch.testing.assert_close(compiled(batch), logits_by(batch))
