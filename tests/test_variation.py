"""Copied words are exchanged, and symbols go through slots: in training and in answers."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace

import numpy as np
import pytest

import seq2see
from seq2see.data.batching import Ragged
from seq2see.data.cuts import cuts_of, tokenizers_of
from seq2see.data.variation import Copies, Pair, copied_share, in_slots, swapped
from seq2see.decoding.hypothesis import Hypothesis
from seq2see.tokenizers.folding import SLOTS, out_of_slots, slots_of
from seq2see.tokenizers.folding import in_slots as text_in_slots
from seq2see.tokenizers.pieces import pieces_of
from seq2see.tokenizers.tokenizer import Tokenizer

FIRST, LAST = ["Ada", "Bill", "Carla", "Dan", "Elena", "Felix"], ["Grant", "Haas", "Ito", "Jones", "Khan", "Lopez"]
NAMES = [(f"{one} {other}", f"{other}, {one}") for one in FIRST for other in LAST]


def cut(pairs: list[Pair], tokenizer: Tokenizer, target: Tokenizer | None = None) -> tuple[Ragged, Ragged]:
    sources, targets = zip(*pairs, strict=True)
    return Ragged.of(tokenizer.encode_batch(sources)), Ragged.of((target or tokenizer).encode_batch(targets))


def texts(sides: tuple[Ragged, Ragged], *tokenizers: Tokenizer) -> list[Pair]:
    rows = (
        tokenizer.decode_batch(
            [side.values[a:b].tolist() for a, b in zip(side.offsets, side.offsets[1:], strict=False)]
        )
        for side, tokenizer in zip(sides, tokenizers, strict=True)
    )
    return list(zip(*rows, strict=True))


def test_copied_words_are_found_and_others_are_not() -> None:
    questions = [(f"flights to {city} please", f"SELECT flights WHERE city = '{city.upper()}'") for city in FIRST]
    other = [("show flights", "SELECT flights"), ("to or from", "SELECT all WHERE please IS NULL")]
    found = Copies(questions + other)
    assert found.words == {*map(str.lower, FIRST), "flights"}  # "to" is not copied, "please" stands in targets alone
    assert found.share == 7 / 8
    assert copied_share([("abc", "cba"), ("xyz", "zyx")]) == 0.0
    often = [(f"take {name}", name) for name in FIRST for _ in range(50)]
    assert not Copies(often).words  # a word that is seen often is learned as it is


def test_other_words_stand_on_both_sides_in_the_same_place_with_their_capitals() -> None:
    pairs = [("from Boston on 12", "BOSTON 12 boston"), ("from Denver on 34", "DENVER 34 denver")]
    copies, random = Copies(pairs), Random(1)
    found = {copies.exchanged(pairs[0], random) for _ in range(50)}
    assert len(found) > 3
    for source, target in found:
        _, city, _, number = source.split()
        assert city.istitle()
        assert len(number) == 2
        assert number.isdigit()
        assert target == f"{city.upper()} {number} {city.lower()}"


def test_pairs_of_an_epoch_get_other_names() -> None:
    tokenizer = Tokenizer.characters_of([text for pair in NAMES for text in pair])
    sides, copies = cut(NAMES, tokenizer), Copies(NAMES)
    found = texts(swapped(sides, (tokenizer,) * 2, copies, 0.5, np.random.default_rng(1), 64), tokenizer, tokenizer)
    assert len(found) == len(NAMES)
    assert 10 < len(set(found) - set(NAMES)) < 30
    assert all(target == ", ".join(source.split()[::-1]) for source, target in found)
    again = swapped(sides, (tokenizer,) * 2, copies, 0.5, np.random.default_rng(1), 64)
    assert texts(again, tokenizer, tokenizer) == found


@pytest.mark.parametrize("kind", ["characters", "symbols", "features", "decomposed"])
def test_closed_vocabularies_have_slots_and_others_do_not(kind: str) -> None:
    pairs = [("a b <X>", "b a"), ("한 b <Y>", "b 한")]
    both = tokenizers_of(cuts_of(pairs, kind), pairs)
    assert [slots_of(one) for one in both] == [SLOTS, SLOTS]


def test_a_symbol_goes_into_a_slot_on_both_sides_and_the_rare_ones_most() -> None:
    pairs = [("aaab", "baaa")] * 50 + [("aaaz", "zaaa")]
    letters = [*"abz", "".join(SLOTS)]
    tokenizer = Tokenizer.characters_of(letters)
    found = texts(
        in_slots(cut(pairs, tokenizer), (tokenizer,) * 2, 0.6, np.random.default_rng(1)), tokenizer, tokenizer
    )
    assert 15 < len(set(enumerate(found)) - set(enumerate(pairs))) < 45
    for source, target in found:
        assert target == source[3:] + source[:3]
    slots = [sum(source[place] in SLOTS for source, _ in found) for place in (0, 3)]
    assert slots[1] > slots[0]  # there are 151 of a, 50 of b
    same = in_slots(cut(pairs, tokenizer), (tokenizer,) * 2, 0.0, np.random.default_rng(1))
    assert texts(same, tokenizer, tokenizer) == pairs


def test_a_text_with_unknown_symbols_is_read_through_slots_and_answered_with_them() -> None:
    known = Tokenizer.characters_of(["abc", "".join(SLOTS)])
    read, held = text_in_slots(known, known, "aßbñß")
    assert read == f"a{SLOTS[0]}b{SLOTS[1]}{SLOTS[0]}"
    assert out_of_slots(f"{SLOTS[1]}c{SLOTS[0]}{SLOTS[5]}", held) == "ñcß"
    assert text_in_slots(known, known, "abc") == ("abc", {})
    assert text_in_slots(known, Tokenizer.characters_of(["abc"]), "aß") == ("aß", {})  # there is no way back
    many = "".join(chr(0x4E00 + number) for number in range(len(SLOTS) + 1))
    assert text_in_slots(known, known, many) == (many, {})
    phones = Tokenizer.symbols(["a b", " ".join(SLOTS)])
    assert text_in_slots(phones, phones, "a tʃ b tʃ")[0] == f"a {SLOTS[0]} b {SLOTS[0]}"


@pytest.fixture(scope="module")
def copier() -> seq2see.Seq2Seq:
    """A model whose search returns what it reads."""
    pairs = [(text, text) for n in range(60) if (text := f"{n:06b}".replace("0", "a").replace("1", "b"))]
    shape = {"d_model": 16, "heads": 2, "d_ff": 16, "encoder_layers": 1, "decoder_layers": 1}
    model = seq2see.fit(pairs, model=shape, training={"steps": 1}, device="cpu", progress=False)
    engine = SimpleNamespace(
        ids=lambda rows, rules, allowed: [row[1:] for row in rows],
        search=lambda rows, *others: [[Hypothesis(row[1:], [-0.1] * len(row[1:]), -0.3, True)] for row in rows],
    )
    model.network.searched = lambda batches, ask: ((rows, ask(engine, rows)) for _, rows in batches)  # type: ignore
    return model


def test_unseen_characters_are_answered_and_a_remark_says_so(copier: seq2see.Seq2Seq) -> None:
    assert copier.predict(["ab☃", "a☃b日☃"]) == ["ab☃", "a☃b日☃"]
    plain, unseen, folded = copier.answers(["ab", "ab☃", "AB☃"])
    assert (plain.output, plain.remark) == ("ab", None)
    assert unseen.output == "ab☃"
    assert unseen.remark == "The model has never seen '☃', and copies what it does not know."
    assert (folded.output, unseen.confidence) == ("ab☃", None)
    assert folded.remark == f"The input was read as 'ab☃'. {unseen.remark}"
    assert copier.evaluate([("ab☃", "ab☃"), ("ab日", "日")]).exact_match == 0.5


def test_strict_refuses_them_and_raises(copier: seq2see.Seq2Seq) -> None:
    plain, refused = copier.answers(["ab", "ab☃"], strict=True)
    assert (plain.output, refused.output) == ("ab", None)
    assert refused.error == "The model has never seen '☃': leave `strict` out to have it copied."
    with pytest.raises(seq2see.RefusedInputs) as caught:
        copier.predict(["ab", "ab☃"], strict=True)
    assert caught.value.outputs == ["ab", None]


def test_no_pattern_allows_a_slot() -> None:
    tokenizer = Tokenizer.characters_of(["ab", "".join(SLOTS)])
    pieces, _ = pieces_of(tokenizer)
    assert {one for one in pieces if one is not None} == {b"a", b"b"}
