"""BPE-dropout: words cut anew each epoch, by the seed alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from seq2see.data.batching import Batches, Ragged
from seq2see.data.epochs import FreshBatches, Side, cut_words
from seq2see.errors import UserError
from seq2see.tokenizers.tokenizer import Tokenizer

TEXTS = [
    "the cat sat on the mat", "the dog sat on the log", "a cat and a dog sat there", "the mat and the log are there",
    "Ω≈ç√ naïve <sos> 😀 the <0x41>", "matlog catdog thereon",
] * 4  # fmt: skip


@pytest.fixture(scope="module")
def bpe() -> Tokenizer:
    return Tokenizer.bpe(TEXTS, 600)


def rows_of(ragged: Ragged) -> list[list[int]]:
    return [ragged.values[a:b].tolist() for a, b in zip(ragged.offsets, ragged.offsets[1:], strict=False)]


def test_without_dropout_words_are_cut_as_the_library_does(bpe: Tokenizer) -> None:
    words = sorted({word for text in TEXTS for word in bpe.words_of(text)})
    cut = rows_of(cut_words(words, bpe, 0.0, np.random.default_rng(0)))
    assert cut == [bpe.engine.encode(word, add_special_tokens=False).ids for word in words]


def test_dropout_cuts_finer_and_says_the_same(bpe: Tokenizer) -> None:
    words = ["the", " there", " mat", "😀"] * 200
    usual, some, all_ = (cut_words(words, bpe, p, np.random.default_rng(1)) for p in (0.0, 0.1, 1.0))
    assert len(usual.values) < len(some.values) < len(all_.values)
    assert [bpe.decode(row) for row in rows_of(some)] == words
    assert bpe.tokens(rows_of(all_)[1]) == list(" there")
    with pytest.raises(UserError, match="'unigram'"):
        cut_words(["a"], Tokenizer.unigram(TEXTS, 600), 0.1, np.random.default_rng(0))


def test_a_side_says_the_same_sentences_each_epoch_in_other_cuts(bpe: Tokenizer) -> None:
    side = Side(TEXTS, bpe, 0.3, seed=1, longest=1000)
    first, second = (rows_of(side.at(np.random.default_rng(n))) for n in (1, 2))
    assert first != second
    for rows in (first, second):
        assert all(row[0] == bpe.start and row[-1] == bpe.end for row in rows)
        assert [bpe.decode(row) for row in rows] == TEXTS
    short = Side(TEXTS, bpe, 0.9, seed=1, longest=8)  # nothing fits: all sentences are cut as usual
    assert rows_of(short.at(np.random.default_rng(1))) == bpe.encode_batch(TEXTS)


def test_batches_depend_on_seed_and_step_alone(bpe: Tokenizer) -> None:
    def batches() -> FreshBatches:
        sides = Side(TEXTS, bpe, 0.2, 1, 100), Side(TEXTS, bpe, 0.2, 1, 100)

        def make(epoch: int) -> tuple[Ragged, Ragged]:
            first, second = (side.at(np.random.default_rng([1, epoch, n])) for n, side in enumerate(sides))
            return first, second

        return FreshBatches(make, lambda a, b: Batches(a, b, (0, 0), 200, seed=1))

    forward, other = batches(), batches()
    seen = [forward.at(step) for step in range(3 * forward.per_epoch)]
    for step in (len(seen) - 1, 2, len(seen) // 2, 0):
        assert torch.equal(other.at(step).target_in, seen[step].target_in)
    assert not all(
        a.target_in.shape == b.target_in.shape and torch.equal(a.target_in, b.target_in)
        for a, b in zip(seen, seen[forward.per_epoch :], strict=False)
    )
