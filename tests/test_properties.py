"""What holds for every text, corpus, mask and model: Hypothesis looks for a counterexample.

The examples are the same in every run, so that a run can be repeated.
"""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from conftest import examples, small_model
from seq2see.config import DecodingConfig
from seq2see.data.batching import Batches, PackedBatches, Ragged
from seq2see.decoding.hypothesis import PAPER
from seq2see.decoding.search import Hypothesis, Special, beam_search, greedy, greedy_ids
from seq2see.errors import InputError
from seq2see.kernels.shared import PackedMask
from seq2see.model.masks import Mask
from seq2see.model.transformer import Transformer
from seq2see.tokenizers.compare import SAMPLE
from seq2see.tokenizers.tokenizer import BYTES, UNKNOWN, Tokenizer

few = settings(derandomize=True, database=None, deadline=None, max_examples=examples(40))
many = settings(few, max_examples=examples(150))

# --- tokenizers ----------------------------------------------------------------------------------------------------

TEXTS = [*SAMPLE, "The cat sat on the mat, and it's 1999 again!", "L'homme était là ; où ?"] * 2
ALPHABET = "abc XYZ-,0é日"


@cache
def tokenizer(kind: str) -> Tokenizer:
    if kind == "characters":
        return Tokenizer.characters_of([ALPHABET])
    if kind == "words":
        return Tokenizer.words(TEXTS, min_frequency=1)
    return getattr(Tokenizer, kind)(TEXTS, 600)


#: Any text, and texts whose characters and words some tokenizer knows.
texts = st.one_of(
    st.text(max_size=40),
    st.text(ALPHABET, max_size=40),
    st.lists(st.sampled_from([word for text in TEXTS for word in text.split()]), max_size=8).map(" ".join),
)
every_kind = pytest.mark.parametrize("kind", ["characters", "words", "bpe", "unigram", "wordpiece"])


@every_kind
@many
@given(text=texts)
@example(text="<sos> <eos><pad><unk> <0x41>")
def test_any_text_is_read_or_refused(kind: str, text: str) -> None:
    known = tokenizer(kind)
    try:
        known.check(text)
    except InputError:
        assert kind == "characters"
        assert not set(text) <= set(ALPHABET)
        return
    ids = known.encode(text)
    assert (ids[0], ids[-1]) == (known.start, known.end)
    assert not {known.start, known.end, known.pad} & set(ids[1:-1])  # no text can spell them
    assert all(0 <= number < known.size for number in ids)
    assert known.encode_batch(["a", text, text]) == [known.encode("a"), ids, ids]


@every_kind
@many
@given(text=texts)
def test_what_is_read_can_be_written_again(kind: str, text: str) -> None:
    known = tokenizer(kind)
    assume(kind != "characters" or set(text) <= set(ALPHABET))
    ids = known.encode(text)
    decoded = known.decode(ids)
    if kind in ("characters", "bpe", "unigram"):
        assert decoded == text
    elif known.unknown not in ids:
        assert re.sub(r"\s", "", decoded) == re.sub(r"\s", "", known.plain(text))
    assert known.decode_batch([ids, [known.start, known.end, known.pad]]) == [decoded, ""]


@every_kind
@many
@given(text=texts)
def test_every_token_knows_its_place(kind: str, text: str) -> None:
    known = tokenizer(kind)
    assume(kind != "characters" or set(text) <= set(ALPHABET))
    ids, offsets = known.encode(text), known.offsets(text)
    assert len(ids) == len(offsets)
    assert (offsets[0], offsets[-1]) == ((0, 0), (len(text), len(text)))
    assert all(0 <= first <= last <= len(text) for first, last in offsets)
    assert [first for first, _ in offsets] == sorted(first for first, _ in offsets)
    for token, (first, last) in zip(known.tokens(ids)[1:-1], offsets[1:-1], strict=True):
        if token not in (UNKNOWN, *BYTES):
            assert token.removeprefix("##") == (text[first:last].lower() if kind == "words" else text[first:last])


# --- batches -------------------------------------------------------------------------------------------------------

rows = st.lists(st.integers(3, 10), max_size=12).map(lambda body: [1, *body, 2])
corpora = st.lists(st.tuples(rows, rows), min_size=1, max_size=40)
PADS = (0, 11)


def sides(pairs: list[tuple[list[int], list[int]]]) -> tuple[Ragged, Ragged]:
    return Ragged.of([source for source, _ in pairs]), Ragged.of([target for _, target in pairs])


@many
@given(pairs=corpora, budget=st.integers(5, 120), seed=st.integers(0, 3), epoch=st.integers(0, 2))
def test_an_epoch_of_batches_has_every_pair_once(
    pairs: list[tuple[list[int], list[int]]], budget: int, seed: int, epoch: int
) -> None:
    batches = Batches(*sides(pairs), PADS, budget, seed)
    first, seen = epoch * batches.per_epoch, []
    for step in reversed(range(first, first + batches.per_epoch)):
        batch = batches.at(step)
        B, S = batch.source.shape
        longest = max(S, batch.target_in.shape[1] + 1)
        assert B == 1 or B * longest <= budget
        keys = batch.source_mask.keys
        real = torch.ones(B, S, dtype=torch.bool) if keys is None else keys
        assert real.all(0).any()
        assert batch.tokens == int((batch.target_out != PADS[1]).sum())
        assert torch.equal(batch.target_in[:, 1:], batch.target_out[:, :-1])
        for row in range(B):
            assert (batch.source[row][~real[row]] == PADS[0]).all()
            ids = [*batch.target_in[row, :1].tolist(), *batch.target_out[row].tolist()]
            target = [number for number in ids if number != PADS[1]]
            assert ids[: len(target)] == target  # the padding comes last
            seen.append((batch.source[row][real[row]].tolist(), target))
        again = Batches(*sides(pairs), PADS, budget, seed).at(step)  # depends on the step alone
        assert torch.equal(again.source, batch.source)
        assert torch.equal(again.target_out, batch.target_out)
    assert sorted(seen) == sorted(pairs)


@few
@given(pairs=corpora, seed=st.integers(0, 3), epoch=st.integers(0, 2))
def test_an_epoch_of_packed_batches_has_every_pair_once(
    pairs: list[tuple[list[int], list[int]]], seed: int, epoch: int
) -> None:
    batches, seen = PackedBatches(*sides(pairs), PADS, 128, seed), []
    first = sum(len(batches.order(before)) for before in range(epoch))
    for step in reversed(range(first, first + len(batches.order(epoch)))):
        batch = batches.at(step)
        assert max(len(batch.source), len(batch.target_in)) == 128
        ((source, source_place, source_number), (target_in, target_out, belongs, target_place, target_number)) = (
            batch.source_rows,
            batch.target_rows,
        )
        tail = int(source_number[-1])  # what is left over is a sentence of its own, of padding
        assert tail == int(target_number[-1])
        assert (belongs == -1).all()  # nobody said where
        assert (source[source_number == tail] == PADS[0]).all()
        assert (target_out[target_number == tail] == PADS[1]).all()
        assert batch.tokens == int((target_number != tail).sum())
        for number in range(tail):
            read, written = source_number == number, target_number == number
            assert source_place[read].tolist() == list(range(int(read.sum())))
            assert target_place[written].tolist() == list(range(int(written.sum())))
            target = [int(target_in[written][0]), *target_out[written].tolist()]
            assert target_in[written].tolist() == target[:-1]
            seen.append((source[read].tolist(), target))
        again = PackedBatches(*sides(pairs), PADS, 128, seed).at(step)
        assert torch.equal(again.rows, batch.rows)
        masks = batch.masks()
        cross = masks.cross.allowed(len(target_in), len(source), torch.device("cpu"))
        assert torch.equal(cross, target_number[:, None] == source_number)
    assert sorted(seen) == sorted(pairs)


@many
@given(pairs=corpora, chosen=st.lists(st.integers(0, 10**6), max_size=20))
def test_rows_that_are_taken_are_those_rows(pairs: list[tuple[list[int], list[int]]], chosen: list[int]) -> None:
    source, _ = sides(pairs)
    places = [number % len(pairs) for number in chosen]
    taken = source.taken(np.array(places, dtype=int))
    found = [taken.values[first:last].tolist() for first, last in zip(taken.offsets, taken.offsets[1:], strict=False)]
    assert found == [pairs[place][0] for place in places]


# --- masks ---------------------------------------------------------------------------------------------------------


@many
@given(data=st.data(), T=st.integers(1, 6), S=st.integers(1, 6), B=st.integers(1, 3), causal=st.booleans())
def test_a_mask_allows_what_each_of_its_parts_allows(data: st.DataObject, T: int, S: int, B: int, causal: bool) -> None:
    assume(not causal or S >= T)
    flags, numbers = st.booleans(), st.integers(0, 2)
    keys = data.draw(st.none() | st.lists(st.lists(flags, min_size=S, max_size=S), min_size=B, max_size=B))
    of = data.draw(st.none() | st.tuples(*(st.lists(numbers, min_size=n, max_size=n) for n in (T, S))))
    hidden = None if keys is None else torch.tensor(keys)
    mask = Mask(causal, hidden)
    if of is not None:
        mask = PackedMask(causal, hidden, sentences=(torch.tensor(of[0]), torch.tensor(of[1])))
    found = mask.allowed(T, S, torch.device("cpu"))
    whole = torch.ones(B, 1, T, S, dtype=torch.bool) if found is None else found.expand(B, 1, T, S)
    for b in range(B):
        for t in range(T):
            for s in range(S):
                allowed = not causal or s <= t + S - T  # the last query stands at the last key
                allowed = allowed and (keys is None or keys[b][s])
                allowed = allowed and (of is None or of[0][t] == of[1][s])
                assert bool(whole[b, 0, t, s]) == allowed


# --- search --------------------------------------------------------------------------------------------------------

SPECIAL = Special(start=1, end=2, pad=0)
SHORT = PAPER.but(length_offset=2)
sources = st.lists(st.integers(3, 10), min_size=1, max_size=5).map(lambda body: [1, *body, 2])


@cache
def model_of(seed: int) -> Transformer:
    """A random model whose answers end now and then; before the norm, few answers score the same."""
    model = small_model(seed, norm="pre")
    with torch.no_grad():
        model.output.bias[SPECIAL.end] += 3.0
    return model


def assert_same(one: Hypothesis, other: Hypothesis) -> None:
    assert (one.ids, one.finished) == (other.ids, other.finished)
    assert one.log_probabilities == pytest.approx(other.log_probabilities, abs=1e-4)
    assert one.score == pytest.approx(other.score, abs=1e-4)


def assert_well_formed(answer: Hypothesis, source: list[int], rules: DecodingConfig) -> None:
    limit = rules.limit(len(source), 40)
    assert len(answer.ids) == len(answer.log_probabilities)
    assert SPECIAL.end not in answer.ids[:-1]
    assert answer.finished == (answer.ids[-1] == SPECIAL.end)
    assert len(answer.ids) == limit or (answer.finished and len(answer.ids) < limit)
    assert answer.score == pytest.approx(sum(answer.log_probabilities) / rules.divisor(len(answer.ids)), abs=1e-4)


@few
@given(asked=st.lists(sources, min_size=1, max_size=5), seed=st.integers(0, 3))
def test_greedy_answers_each_source_on_its_own_terms(asked: list[list[int]], seed: int) -> None:
    model = model_of(seed)
    together = greedy(model, asked, SPECIAL, SHORT)
    assert greedy_ids(model, asked, SPECIAL, SHORT) == [answer.ids for answer in together]
    for answer, source in zip(together, asked, strict=True):
        assert_same(answer, greedy(model, [source], SPECIAL, SHORT)[0])
        assert_well_formed(answer, source, SHORT)
    for (found, *_), answer in zip(beam_search(model, asked, SPECIAL, SHORT), together, strict=True):
        assert_same(found, answer)  # a beam of 1


@few
@given(asked=st.lists(sources, min_size=1, max_size=4), seed=st.integers(0, 3), beam=st.integers(2, 4))
def test_beam_search_answers_each_source_on_its_own_terms(asked: list[list[int]], seed: int, beam: int) -> None:
    model, rules = model_of(seed), SHORT.but(beam=beam)
    together = beam_search(model, asked, SPECIAL, rules)
    for answers, source in zip(together, asked, strict=True):
        (alone,) = beam_search(model, [source], SPECIAL, rules)
        for one, other in zip(answers, alone, strict=True):
            assert_same(one, other)
            assert_well_formed(one, source, rules)
        scores = [answer.score for answer in answers]
        assert scores == sorted(scores, reverse=True)
        assert len({tuple(answer.ids) for answer in answers}) == len(answers) == beam
    backwards = beam_search(model, asked[::-1], SPECIAL, rules)
    assert [[a.ids for a in row] for row in backwards[::-1]] == [[a.ids for a in row] for row in together]


@few
@given(source=sources, seed=st.integers(0, 30), beam=st.integers(1, 8))
def test_a_beam_that_holds_all_prefixes_is_beaten_by_none(source: list[int], seed: int, beam: int) -> None:
    model = small_model(seed, target_vocabulary=4)
    rules = PAPER.but(max_length=4)  # so that 1, 3, 9 and 27 prefixes are open
    (everything,) = beam_search(model, [source], SPECIAL, rules.but(beam=32))
    (some,) = beam_search(model, [source], SPECIAL, rules.but(beam=beam))
    (first,) = greedy(model, [source], SPECIAL, rules)
    assert everything[0].score >= max(some[0].score, first.score) - 1e-5
