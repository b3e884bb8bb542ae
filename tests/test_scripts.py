"""Texts in scripts without capitals, from the training to the answer."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import seq2see
from seq2see.answering.answer import Answer
from seq2see.answering.answerer import Answerer
from seq2see.answering.repairs import proven
from seq2see.config import REPAIRS
from seq2see.decoding.hypothesis import PAPER
from seq2see.documents.kept import Read
from seq2see.errors import isolated, shown

#: Words of four scripts: (subjects, verbs, adverbs).
WORDS = {
    "Arabic": ("القط الكلب الولد المعلم", "ينام يأكل يلعب يقرأ", "اليوم غدا هنا كثيرا"),
    "Hangul": ("고양이는 개는 소년은 선생님은", "잡니다 먹습니다 놉니다 읽습니다", "오늘 내일 여기서 많이"),
    "Devanagari": ("बिल्ली कुत्ता लड़का शिक्षक", "सोता खाता खेलता पढ़ता", "आज कल यहाँ बहुत"),
    "Thai": ("แมว สุนัข เด็กชาย ครู", "นอน กิน เล่น อ่าน", "วันนี้ พรุ่งนี้ ที่นี่ มาก"),
}
ENGLISH = ("cat dog boy teacher", "sleeps eats plays reads", "today tomorrow here often")


def pairs_in(script: str) -> list[tuple[str, str]]:
    sides = [itertools.product(*(words.split() for words in side)) for side in (WORDS[script], ENGLISH)]
    return [(f"{' '.join(one)}.", f"The {' '.join(other)}.") for one, other in zip(*sides, strict=True)]


@pytest.mark.parametrize("script", WORDS)
def test_a_sentence_without_capitals_is_not_shouted(script: str) -> None:
    for source, _ in pairs_in(script)[::9]:
        for text in (source, f"NASA {source}"):
            read = Read.of(text)
            assert (read.text, read.shouts, read.cased("Ab")) == (text, False, "Ab")


@pytest.mark.parametrize("script", WORDS)
def test_the_test_of_a_training_counts_the_answers_of_predict(script: str, tmp_path: Path) -> None:
    pairs = pairs_in(script)
    shape = {"d_model": 32, "heads": 2, "d_ff": 32, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.0}
    model = seq2see.fit(
        pairs, validation=pairs[::7], test=pairs, tokenizer="bpe", model=shape,
        training={"steps": 60, "warmup": 20, "learning_rate": 0.01, "evaluate_every": 60},
        decoding={"sentences": True}, out=tmp_path / "model", progress=False,
    )  # fmt: skip
    read = seq2see.load(tmp_path / "model")
    assert read.config.decoding.repairs == model.config.decoding.repairs
    answers = read.predict([source for source, _ in pairs])
    right = sum(answer == target for answer, (_, target) in zip(answers, pairs, strict=True))
    assert right > 0.5 * len(pairs)
    assert f"exact match, free-running | {right / len(pairs):.2%} |" in read.card
    assert read.evaluate(pairs).exact == right


class Known(Answerer):
    """Its answers are those of a dictionary; an unknown text is answered by itself."""

    def __init__(self, answers: dict[str, str]) -> None:
        network = seq2see.load("en-fr").network
        super().__init__(network.config, network.tokenizers, network, None)
        self.answers = answers

    def search(self, texts: Sequence[str], *_: Any) -> list[Answer]:
        return [Answer.plain(text, self.answers.get(text, text), [], True, None) for text in texts]

    def fits(self, text: str) -> bool:
        return True


def held_out(kind: str) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """What a model knows, and held-out pairs."""
    sources = [source for source, _ in pairs_in("Arabic")[:12]]
    if kind == "capitals":
        known = {target: source for source, target in pairs_in("Arabic")}
        return known, [(target.upper(), source.upper()) for source, target in pairs_in("Arabic")]
    digits = str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩") if kind == "Arabic digits" else {}
    pairs = [(f"{n + 13} {source}", f"{n + 13} It is so.".translate(digits)) for n, source in enumerate(sources)]
    if kind == "lost numbers":
        return {source: "It is so." for source, _ in pairs}, pairs
    return dict(pairs), pairs


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("capitals", ("capitals",)),
        ("lost numbers", ("numbers",)),
        ("Arabic digits", ()),
        ("numbers", ()),  # no answer changes
    ],
)
def test_a_repair_is_kept_if_held_out_answers_gain_by_it(kind: str, expected: tuple[str, ...]) -> None:
    known, pairs = held_out(kind)
    texts = Known(known)
    assert proven(texts, pairs, PAPER.but(sentences=True)) == expected
    assert proven(texts, pairs[:3], PAPER.but(sentences=True)) == ()  # three pairs may be chance


def test_a_model_without_repairs_reads_and_answers_texts_as_they_are() -> None:
    for text in ("SEE THIS: https://a.org/b_c 12 “x”", "LOUD WORDS"):
        read = Read.of(text, repairs=())
        assert (read.text, read.items, read.missing(""), read.has_lost_quotes("“")) == (text, (), [], False)
    assert Read.of("See x_y.", [(4, 7)], repairs=()).missing("Voir.") == ["{1}"]  # what a document holds stays
    assert seq2see.load("en-fr").config.decoding.repairs == REPAIRS


@pytest.mark.parametrize("script", [*WORDS, "Hebrew"])
def test_letters_from_right_to_left_do_not_turn_the_message_around_them(script: str) -> None:
    text = "שלום" if script == "Hebrew" else pairs_in(script)[0][0]
    marks = ("\u2068", "\u2069") if script in ("Arabic", "Hebrew") else ("", "")
    assert shown(text) == repr(text).join(marks)
    assert shown(20 * text) == f"{repr((20 * text)[:30]).join(marks)}… ({20 * len(text):,} characters)"
    assert (isolated(text), isolated("plain")) == (text.join(marks), "plain")
