"""What holds for every text, corpus, mask and model: Hypothesis looks for a counterexample.

The examples are the same in every run, so that a run can be repeated.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from functools import cache
from random import Random

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from conftest import examples, small_model
from seq2see.config import DecodingConfig, TrainingConfig
from seq2see.data import variation
from seq2see.data.batching import Batches, Ragged
from seq2see.data.packing import PackedBatches
from seq2see.decoding.hypothesis import PAPER
from seq2see.decoding.search import Hypothesis, Special, beam_search, greedy, greedy_ids
from seq2see.errors import InputError
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
            assert token.removeprefix("##") == (
                text[first:last].lower() if kind == "words" else text[first:last]
            )


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
        (
            (source, source_place, source_number),
            (target_in, target_out, belongs, target_place, target_number),
        ) = (
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
def test_rows_that_are_taken_are_those_rows(
    pairs: list[tuple[list[int], list[int]]], chosen: list[int]
) -> None:
    source, _ = sides(pairs)
    places = [number % len(pairs) for number in chosen]
    taken = source.taken(np.array(places, dtype=int))
    found = [
        taken.values[first:last].tolist()
        for first, last in zip(taken.offsets, taken.offsets[1:], strict=False)
    ]
    assert found == [pairs[place][0] for place in places]


# --- masks ---------------------------------------------------------------------------------------------------------


@many
@given(data=st.data(), T=st.integers(1, 6), S=st.integers(1, 6), B=st.integers(1, 3), causal=st.booleans())
def test_a_mask_allows_what_each_of_its_parts_allows(
    data: st.DataObject, T: int, S: int, B: int, causal: bool
) -> None:
    assume(not causal or S >= T)
    flags, numbers = st.booleans(), st.integers(0, 2)
    keys = data.draw(st.none() | st.lists(st.lists(flags, min_size=S, max_size=S), min_size=B, max_size=B))
    of = data.draw(st.none() | st.tuples(*(st.lists(numbers, min_size=n, max_size=n) for n in (T, S))))
    mask = Mask(
        causal=causal,
        keys=None if keys is None else torch.tensor(keys),
        sentences=None if of is None else (torch.tensor(of[0]), torch.tensor(of[1])),
    )
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
    assert answer.score == pytest.approx(
        sum(answer.log_probabilities) / rules.divisor(len(answer.ids)), abs=1e-4
    )


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
def test_beam_search_answers_each_source_on_its_own_terms(
    asked: list[list[int]], seed: int, beam: int
) -> None:
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


# --- variation -----------------------------------------------------------------------------------------------------

PAIRS = [
    ('He said: "Tom isn\'t in Paris — yet…"', "Il a dit : « Tom n'est pas à Paris — encore… »"),
    ("We need 12 chairs, 3.5 kg and 07:30!", "Il faut 12 chaises, 3.5 kg et 07:30 !"),
    ("Where is the station?", "Où est la gare ?"),
    ("no mark here", "pas de point ici"),
    ("Anna paid 1999 to Anna.", "Anna a payé 1999."),
]


@pytest.mark.parametrize(
    ("change", "digest"),
    [
        ("carried", "12aab34b47bad462"),
        ("mistyped", "3d364c73675141de"),
        ("retyped", "c7428faebb88d994"),
        ("repunctuated", "3fbeddc4c5dd84e6"),
        ("recased", "f690e3b9325b5df9"),
    ],
)
def test_a_seed_repeats_the_changes_of_a_text(change: str, digest: str) -> None:
    """A training that is repeated or resumed must see the same texts."""
    random = Random(1)
    found = [variation.CHANGES[change](pair, random) for pair in PAIRS for _ in range(300)]
    found += [variation.joined(PAIRS, random) for _ in range(20)]
    assert hashlib.sha256(repr(found).encode()).hexdigest()[:16] == digest


seeds = st.integers(0, 10**6).map(Random)
WORDS = [
    "Paris", "Anna", "12", "3,5", "1999", "10:45", "the", "a", "house", "l'été", "well-known", "«oui»", "–", "no!", "is",
    ".", "?", "…", "Ünal", "007",
]  # fmt: skip
lines = st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join)


@pytest.mark.parametrize("change", ["carried", "recased", "repunctuated"])
@many
@given(text=st.one_of(lines, st.text(max_size=20)), random=seeds)
def test_what_is_done_to_one_side_is_done_to_the_other(change: str, text: str, random: Random) -> None:
    """A pair of two equal texts stays one, whatever is carried over, cased or punctuated."""
    source, target = variation.CHANGES[change]((text, text), random)
    assert source == target


@many
@given(numbers=st.lists(st.integers(0, 10**7), max_size=5), names=st.sets(st.sampled_from(["Anna", "Bob", "Oslo"])),
       random=seeds)  # fmt: skip
def test_both_sides_carry_the_same_new_numbers_and_names(
    numbers: list[int], names: set[str], random: Random
) -> None:
    carried = [*map(str, numbers), *sorted(names)]
    pair = " ".join(["we", *carried, "saw."]), " ".join([*carried, "nous", "vu !"])
    source, target = variation.carried(pair, random)

    def kept(text: str, own: list[str]) -> list[str]:
        """What the sentence does not say by itself."""
        return [word for word in re.findall(r"\w+", text) if word not in own]

    assert kept(source, ["we", "saw"]) == kept(target, ["nous", "vu"])
    assert [word for word in re.findall(r"\w+", source) if word in ("we", "saw")] == ["we", "saw"]
    assert [word for word in re.findall(r"\w+", target) if word in ("nous", "vu")] == ["nous", "vu"]


@many
@given(text=st.text("abcdefgh ", min_size=1, max_size=30), random=seeds)
def test_nothing_is_lost_where_something_is_added(text: str, random: Random) -> None:
    source, target = variation.carried((f"{text}.", f"{text[::-1]}!"), random)
    assert len(source) > len(text) + 1
    assert text in source
    assert text[::-1] in target


@many
@given(text=lines, random=seeds)
def test_mistakes_are_made_in_the_source_alone(text: str, random: Random) -> None:
    for change in (variation.mistyped, variation.retyped):
        source, target = change((text, "unchanged – “so”"), random)
        assert target == "unchanged – “so”"
        before, after = text.split(" "), source.split(" ")
        assert len(before) == len(after)
        if change is variation.mistyped:
            told_apart = zip(before, after, strict=True)
            as_in_a_chat = source in (without := re.sub(r"\b'\b", "", text), without.lower())
            assert as_in_a_chat or sum(one != other for one, other in told_apart) <= 2
        else:
            assert re.sub(r"\W", "", source) == re.sub(r"\W", "", text)  # no letter changes


def test_signs_are_exchanged_for_signs_and_names_are_names() -> None:
    for sign, others in variation.SIGNS.items():
        assert re.fullmatch(r"\W", sign)
        assert all(re.fullmatch(r"\W+", other) for other in others)
        random = Random(1)
        assert {variation.retyped((sign, sign), random) for _ in range(200)} == {
            (other, sign) for other in others
        }
    kinds = {
        r"[A-Z][a-z]+": [*variation.FIRST_NAMES, *variation.SURNAMES, *variation.PLACES],
        r"[a-z]*": [*variation.ONSETS, *variation.VOWELS, *variation.CODAS],
        r"[a-z.]+": variation.DOMAINS,
        r"\W+": variation.EMOJI,
        r"[^a-zA-Z].*": variation.PLACEHOLDERS,
        r"[€$£]|[A-Z]{3}": variation.CURRENCIES,
    }
    assert not [word for kind, words in kinds.items() for word in words if not re.fullmatch(kind, word)]


def test_some_sources_with_apostrophes_are_written_as_in_a_chat() -> None:
    random = Random(1)
    pair = ("I don't know Tom's aunt.", "Je ne sais pas.")
    found = Counter(variation.mistyped(pair, random) for _ in range(1000))
    for source in ("I dont know Toms aunt.", "i dont know toms aunt."):
        assert 150 < found[(source, pair[1])] < 250
    assert all(target == pair[1] for _, target in found)
    assert variation.mistyped(("'No.'", "Non."), random) == ("'No.'", "Non.")  # quotes stay


@many
@given(old=st.from_regex(r"[0-9]+([.,:][0-9]+){0,2}", fullmatch=True).filter(str.isascii), random=seeds)
def test_another_number_has_the_same_form(old: str, random: Random) -> None:
    new = variation.number_like(old, random)
    assert re.sub(r"\d", "", new) == re.sub(r"\d", "", old)
    if not old.isdigit() or len(old) == 4:
        assert re.sub(r"\d", "9", new) == re.sub(r"\d", "9", old)


@many
@given(count=st.integers(1, 9), random=seeds)
def test_joined_pairs_stay_in_step(count: int, random: Random) -> None:
    source, target = variation.joined([(f"s{n}", f"t{n}") for n in range(count)], random)
    assert source.replace("s", "t") == target
    assert 2 <= len(source.split()) <= variation.MOST_JOINED
    assert all(int(word[1:]) < count for word in source.split())


def shares(**given: float) -> st.SearchStrategy[TrainingConfig]:
    names = ("joined", *variation.CHANGES)
    some = st.sampled_from([0.0, 0.3, 1.0])
    return st.builds(
        lambda seed, **drawn: TrainingConfig.of(seed=seed, **{**drawn, **given}),
        st.integers(0, 9),
        **dict.fromkeys(names, some),
    )


def texts_of(side: Ragged, known: Tokenizer) -> list[str]:
    rows = [
        side.values[first:last].tolist() for first, last in zip(side.offsets, side.offsets[1:], strict=False)
    ]
    return known.decode_batch(rows)


@few
@given(pairs=st.lists(st.tuples(lines, lines).filter(all), min_size=1, max_size=12), asked=shares(),
       epoch=st.integers(0, 3), longest=st.integers(5, 60))  # fmt: skip
def test_an_epochs_pairs_depend_on_seed_and_epoch_alone(
    pairs: list[tuple[str, str]], asked: TrainingConfig, epoch: int, longest: int
) -> None:
    known = tokenizer("bpe")
    before = tuple(Ragged.of(known.encode_batch(side)) for side in zip(*pairs, strict=True))
    longest = max(longest, *(int(side.lengths.max()) for side in before))
    found, again = (variation.varied(before, (known, known), asked, epoch, longest) for _ in range(2))
    for one, other in zip(found, again, strict=True):
        assert np.array_equal(one.values, other.values)
        assert np.array_equal(one.offsets, other.offsets)
    count = len(found[0].lengths)
    assert count == len(found[1].lengths)
    assert len(pairs) <= count <= len(pairs) + int(asked.joined * len(pairs))
    assert max(int(side.lengths.max()) for side in found) <= longest
    assert min(int(side.lengths.min()) for side in found) > 2
    if not variation.varies(asked):
        assert found == before


@few
@given(
    pairs=st.lists(lines.filter(bool), min_size=1, max_size=12),
    seed=st.integers(0, 9),
    epoch=st.integers(0, 3),
)
def test_pairs_of_equal_texts_stay_equal(pairs: list[str], seed: int, epoch: int) -> None:
    """Each side of a varied corpus has the rows of the other: none is left behind, none changes places."""
    known = tokenizer("bpe")
    side = Ragged.of(known.encode_batch(pairs))
    asked = TrainingConfig.of(seed=seed, joined=1.0, carried=0.5, recased=0.3, repunctuated=0.3)
    source, target = variation.varied((side, side), (known, known), asked, epoch, longest=10**6)
    assert texts_of(source, known) == texts_of(target, known)
    assert len(source.lengths) == 2 * len(pairs)


def test_another_epoch_brings_other_pairs() -> None:
    known = tokenizer("bpe")
    side = Ragged.of(known.encode_batch([f"Anna has {n} houses." for n in range(30)]))
    asked = TrainingConfig.of(seed=1, joined=0.5, carried=0.5)
    epochs = [
        texts_of(variation.varied((side, side), (known, known), asked, n, 200)[0], known) for n in (0, 1)
    ]
    others = texts_of(variation.varied((side, side), (known, known), asked.but(seed=2), 0, 200)[0], known)
    assert epochs[0] != epochs[1]
    assert epochs[0] != others
