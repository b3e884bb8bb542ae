"""A text in another language than a model reads is noticed, and its answer has no confidence."""

from __future__ import annotations

import re

import pytest

import seq2see
from seq2see.documents.languages import WORDS, other_than, read_by
from seq2see.page.describe import EXAMPLES

FOREIGN = {
    "German": ["Ich möchte heute Abend ins Kino gehen.", "Wo ist der Bahnhof?", "Der Hund schläft im Garten."],
    "French": ["Où est la gare ?", "Je voudrais aller au cinéma ce soir.", "Elle ne veut pas rentrer chez elle."],
    "Spanish": ["Ella no quiere ir a casa.", "¿Dónde está la estación?"],
    "Italian": ["Dove è la stazione?", "Non voglio andare a casa."],
    "Portuguese": ["Onde está a estação?", "Eu não quero ir para casa."],
    "Dutch": ["Waar is het station?", "Ik heb geen tijd voor dit boek."],
}  # fmt: skip


@pytest.mark.parametrize("language", FOREIGN)
def test_foreign_sentences_are_told(language: str) -> None:
    assert [other_than("English", text) for text in FOREIGN[language]] == [language] * len(FOREIGN[language])


def test_own_sentences_and_names_are_not() -> None:
    own = [*EXAMPLES["en-de"], "My name is Wolfgang Schäuble.", "Die Hard", "Viva La Vida", "Tom", "", "42!"]
    assert not [text for text in own if other_than("English", text)]
    assert not [text for text in EXAMPLES["fr-en"] if other_than("French", text)]


def test_texts_that_the_page_suggests_are_sentences_and_dates() -> None:
    translated = [text for name in ("en-fr", "en-de", "fr-en") for text in EXAMPLES[name]]
    for text in translated:
        assert re.match(r"[A-Z]", text), text
        assert re.search(r"[.!?]$", text), text
        assert not re.search(r"[A-Z]{2}|  ", text), text
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", text) for text in EXAMPLES["dates"])
    assert [answer.output for answer in seq2see.load("human-dates").answers(EXAMPLES["human-dates"])] == [
        "1845-01-03", "1958-08-29", "2045-01-05", None, "2024-02-29",
    ]  # fmt: skip


def test_a_model_tells_its_language_by_what_surprises_it_least() -> None:
    for name, language in (("en-fr", "English"), ("en-de", "English"), ("fr-en", "French")):
        confidence = seq2see.load(name).answerer.confidence
        assert confidence
        assert read_by(confidence.familiar.surprise) == language
    assert read_by(lambda _: 1.0) is None
    assert all(word == word.lower() for words in WORDS.values() for word in words)


def test_a_german_sentence_has_no_confidence_in_english_to_french() -> None:
    model = seq2see.load("en-fr")
    german, english = model.answers(["Ich möchte heute Abend ins Kino gehen.", "Where is the train station?"])
    assert german.confidence is None
    assert german.remark == "The input does not look like English: its words are German."
    assert english.confidence is not None
    assert english.remark is None
