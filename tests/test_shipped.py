"""The variation of sentences of the translators that ship, and how a training takes it."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from functools import partial
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import seq2see
from seq2see.config import TrainingConfig
from seq2see.data.batching import Ragged
from seq2see.data.variation import varied
from seq2see.errors import UserError
from seq2see.tokenizers.tokenizer import Tokenizer
from shipped import sentences
from test_properties import few, many, tokenizer

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
    found = [sentences.CHANGES[change](pair, random) for pair in PAIRS for _ in range(300)]
    found += [sentences.join(PAIRS, random) for _ in range(20)]
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
    source, target = sentences.CHANGES[change]((text, text), random)
    assert source == target


@many
@given(numbers=st.lists(st.integers(0, 10**7), max_size=5), names=st.sets(st.sampled_from(["Anna", "Bob", "Oslo"])),
       random=seeds)  # fmt: skip
def test_both_sides_carry_the_same_new_numbers_and_names(numbers: list[int], names: set[str], random: Random) -> None:
    carried = [*map(str, numbers), *sorted(names)]
    pair = " ".join(["we", *carried, "saw."]), " ".join([*carried, "nous", "vu !"])
    source, target = sentences.carried(pair, random)

    def kept(text: str, own: list[str]) -> list[str]:
        """What the sentence does not say by itself."""
        return [word for word in re.findall(r"\w+", text) if word not in own]

    assert kept(source, ["we", "saw"]) == kept(target, ["nous", "vu"])
    assert [word for word in re.findall(r"\w+", source) if word in ("we", "saw")] == ["we", "saw"]
    assert [word for word in re.findall(r"\w+", target) if word in ("nous", "vu")] == ["nous", "vu"]


@many
@given(text=st.text("abcdefgh ", min_size=1, max_size=30), random=seeds)
def test_nothing_is_lost_where_something_is_added(text: str, random: Random) -> None:
    source, target = sentences.carried((f"{text}.", f"{text[::-1]}!"), random)
    assert len(source) > len(text) + 1
    assert text in source
    assert text[::-1] in target


@many
@given(text=lines, random=seeds)
def test_mistakes_are_made_in_the_source_alone(text: str, random: Random) -> None:
    for change in (sentences.mistyped, sentences.retyped):
        source, target = change((text, "unchanged – “so”"), random)
        assert target == "unchanged – “so”"
        before, after = text.split(" "), source.split(" ")
        assert len(before) == len(after)
        if change is sentences.mistyped:
            told_apart = zip(before, after, strict=True)
            as_in_a_chat = source in (without := re.sub(r"\b'\b", "", text), without.lower())
            assert as_in_a_chat or sum(one != other for one, other in told_apart) <= 2
        else:
            assert re.sub(r"\W", "", source) == re.sub(r"\W", "", text)  # no letter changes


def test_signs_are_exchanged_for_signs_and_names_are_names() -> None:
    for sign, others in sentences.SIGNS.items():
        assert re.fullmatch(r"\W", sign)
        assert all(re.fullmatch(r"\W+", other) for other in others)
        random = Random(1)
        assert {sentences.retyped((sign, sign), random) for _ in range(200)} == {(other, sign) for other in others}
    kinds = {
        r"[A-Z][a-z]+": [*sentences.FIRST_NAMES, *sentences.SURNAMES, *sentences.PLACES],
        r"[a-z]*": [*sentences.ONSETS, *sentences.VOWELS, *sentences.CODAS],
        r"[a-z.]+": sentences.DOMAINS,
        r"\W+": sentences.EMOJI,
        r"[^a-zA-Z].*": sentences.PLACEHOLDERS,
        r"[€$£]|[A-Z]{3}": sentences.CURRENCIES,
    }
    assert not [word for kind, words in kinds.items() for word in words if not re.fullmatch(kind, word)]


def test_some_sources_with_apostrophes_are_written_as_in_a_chat() -> None:
    random = Random(1)
    pair = ("I don't know Tom's aunt.", "Je ne sais pas.")
    found = Counter(sentences.mistyped(pair, random) for _ in range(1000))
    for source in ("I dont know Toms aunt.", "i dont know toms aunt."):
        assert 150 < found[(source, pair[1])] < 250
    assert all(target == pair[1] for _, target in found)
    assert sentences.mistyped(("'No.'", "Non."), random) == ("'No.'", "Non.")  # quotes stay


@many
@given(old=st.from_regex(r"[0-9]+([.,:][0-9]+){0,2}", fullmatch=True).filter(str.isascii), random=seeds)
def test_another_number_has_the_same_form(old: str, random: Random) -> None:
    new = sentences.number_like(old, random)
    assert re.sub(r"\d", "", new) == re.sub(r"\d", "", old)
    if not old.isdigit() or len(old) == 4:
        assert re.sub(r"\d", "9", new) == re.sub(r"\d", "9", old)


@many
@given(count=st.integers(1, 9), random=seeds)
def test_joined_pairs_stay_in_step(count: int, random: Random) -> None:
    source, target = sentences.join([(f"s{n}", f"t{n}") for n in range(count)], random)
    assert source.replace("s", "t") == target
    assert 2 <= len(source.split()) <= sentences.MOST_JOINED
    assert all(int(word[1:]) < count for word in source.split())


def texts_of(side: Ragged, known: Tokenizer) -> list[str]:
    rows = [side.values[a:b].tolist() for a, b in zip(side.offsets, side.offsets[1:], strict=False)]
    return known.decode_batch(rows)


@few
@given(pairs=st.lists(lines.filter(bool), min_size=1, max_size=12), share=st.sampled_from([0.0, 0.3, 1.0]),
       seed=st.integers(0, 9), epoch=st.integers(0, 3), longest=st.integers(5, 60))  # fmt: skip
def test_an_epochs_pairs_depend_on_seed_and_epoch_alone(
    pairs: list[str], share: float, seed: int, epoch: int, longest: int
) -> None:
    """Each side has the rows of the other: none is left behind, none changes places."""
    known = tokenizer("bpe")
    side = Ragged.of(known.encode_batch(pairs))
    longest = max(longest, int(side.lengths.max()))
    both, asked = (known, known), TrainingConfig.of(seed=seed)
    change = partial(
        sentences.vary, joined=share, carried=share, recased=share, repunctuated=share, retyped=0, mistyped=0
    )
    found, again = (varied((side, side), both, asked, epoch, longest, change) for _ in range(2))
    for one, other in zip(found, again, strict=True):
        assert np.array_equal(one.values, other.values)
        assert np.array_equal(one.offsets, other.offsets)
    assert texts_of(found[0], known) == texts_of(found[1], known)
    assert len(pairs) <= len(found[0].lengths) <= len(pairs) + int(share * len(pairs))
    assert 2 < int(found[0].lengths.min()) <= int(found[0].lengths.max()) <= longest


def test_another_epoch_and_another_seed_bring_other_pairs() -> None:
    known = tokenizer("bpe")
    side = Ragged.of(known.encode_batch([f"Anna has {n} houses." for n in range(30)]))
    found = [
        texts_of(varied((side, side), (known, known), TrainingConfig.of(seed=seed), n, 200, sentences.vary)[0], known)
        for seed, n in ((1, 0), (1, 1), (2, 0))
    ]
    assert found[0] != found[1]
    assert found[0] != found[2]


def test_a_change_that_loses_pairs_is_an_error_and_unknown_characters_stay_out() -> None:
    known = Tokenizer.characters(["<pad>", "<sos>", "<eos>", *"abc"])
    side, asked = Ragged.of(known.encode_batch(["a", "b"])), TrainingConfig.of()
    with pytest.raises(UserError, match="`vary` returned 1 of 2 pairs"):
        varied((side, side), (known, known), asked, 0, 9, lambda pairs, random: pairs[1:])
    found, _ = varied((side, side), (known, known), asked, 0, 9, lambda pairs, random: [("c", "c"), ("é", "é")])
    assert texts_of(found, known) == ["b", "c"]  # the changed ones come last


def test_fit_gives_each_epoch_to_vary() -> None:
    seen = []

    def vary(pairs: list[tuple[str, str]], random: Random) -> list[tuple[str, str]]:
        seen.append([random.random(), len(pairs)])
        return [(source, target.upper()) for source, target in pairs]

    pairs = [(f"{n:02}", f"{n:02}"[::-1] + "aA") for n in range(40)]
    shape = {"d_model": 8, "heads": 2, "d_ff": 8, "encoder_layers": 1, "decoder_layers": 1}
    model = seq2see.fit(pairs, vary=vary, model=shape, training={"steps": 4, "batch_tokens": 200}, progress=False)
    assert len(seen) > 1
    assert seen[0][0] != seen[1][0]
    assert model.config.training.steps == 4
