"""The translation model that ships: what it says, what it weighs, and that it is a model as any other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import seq2see
from seq2see.seq2seq import Seq2Seq
from seq2see.storage import folder

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def french() -> Seq2Seq:
    return seq2see.load("en-fr")


def test_it_says_what_a_french_speaker_would(french: Seq2Seq) -> None:
    said = {
        "I've lost my passport.": "J'ai perdu mon passeport.",
        "Please call the doctor.": "Veuillez appeler le médecin.",
        "The cat is sleeping on the table.": "Le chat dort sur la table.",
        "My brother is taller than my sister.": "Mon frère est plus grand que ma sœur.",
        "It's raining cats and dogs.": "Il pleut des cordes.",
        "I would like a glass of water, please.": "Je voudrais un verre d'eau, s'il vous plaît.",
        "If it rains tomorrow, we will stay at home.": "S'il pleut demain, nous resterons à la maison.",
    }
    assert french.predict([*said], beam=5) == [*said.values()]


def test_it_takes_more_than_tidy_short_sentences(french: Seq2Seq) -> None:
    capitals, price, mail, emoji, name, paragraph = french.predict(
        [
            "WHERE IS THE HOSPITAL?",
            "The bill comes to $23.50.",
            "Write to anna.smith@example.com.",
            "See you tomorrow! 😀",
            "Do you know Zbigniew?",
            "My name is Anna. I live in London with my two brothers. I work in a hospital.",
        ]
    )
    assert capitals.isupper()
    assert "HÔPITAL" in capitals
    assert re.search(r"(?<!\d)23[.,]50(?!\d)", price)
    assert "anna.smith@example.com" in mail
    assert "😀" in emoji
    assert "Zbigniew" in name
    assert len(re.findall(r"[.!?](?=\s|$)", paragraph)) == 3
    assert all(part in paragraph for part in ("Anna", "Londres", "deux frères", "hôpital"))


def test_the_readme_shows_what_it_says(french: Seq2Seq) -> None:
    text = "Where is the train station?"
    (alignment,) = french.align(french.answers([text]))
    assert f"{french(text)}\t{alignment.pharaoh}\n" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_no_text_is_outside_its_vocabulary(french: Seq2Seq) -> None:
    assert all(french.predict(["Ω ≈ 3.14 😀", "日本語", "<eos>"]))


def test_it_fits_into_the_repository_and_credits_its_authors(french: Seq2Seq) -> None:
    where = folder.find("en-fr")
    assert sum(path.stat().st_size for path in where.iterdir()) < 30e6
    assert folder.parameter_count(where) == french.transformer.parameter_count()
    assert f"{french.transformer.parameter_count():,} parameters" in french.card
    for credit in ("CC BY 2.0 FR", "Europarl", "Project Gutenberg", "CC BY 4.0", "Open Government Licence – Canada"):
        assert credit in french.card
    assert "sacredceltic" in (where / "credits.txt").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "en-de",
            {
                "Where is the train station?": "Wo ist der Bahnhof?",
                "WHERE IS THE HOSPITAL?": "WO IST DAS KRANKENHAUS?",
                "i dont know waht to do": "Ich weiß nicht, was ich tun soll",
            },
        ),
        ("fr-en", {"Où est la gare ?": "Where's the station?", "OÙ EST L'HÔPITAL ?": "WHERE'S THE HOSPITAL?"}),
    ],
)
def test_its_siblings_translate_too(name: str, said: dict[str, str]) -> None:
    model = seq2see.load(name)
    assert model.predict([*said]) == [*said.values()]
    path = folder.find(name)
    assert sum(file.stat().st_size for file in path.iterdir()) <= 30_000_000
    assert "CC BY 2.0 FR" in model.card


def test_evaluate_scores_what_predict_answers(french: Seq2Seq) -> None:
    sources = ["THE CAT SLEEPS HERE.", "I live in Paris. I work at night. Call 555-123-4567."]
    scores = french.evaluate([(source, "Le chat dort ici.") for source in sources])
    assert scores.given == french.predict(sources)
    assert scores.loss > 0


def test_the_same_sentence_in_capitals_and_in_a_tag_has_answers_of_its_own(french: Seq2Seq) -> None:
    small, large = "The doctor forgot the keys.", "THE DOCTOR FORGOT THE KEYS."
    answer = french(small)
    for texts in ([small, large, small], [large, small, small], [small, small, large]):
        expected = [answer.upper() if text == large else answer for text in texts]
        assert french.predict(texts) == expected
    page = "<p>See <code>a&lt;b@x.org</code> now.</p><p>See a&lt;b@x.org now.</p>"
    one, other = (french.translate(f"<p>{part}", format="html") for part in page.split("<p>")[1:])
    assert french.translate(page, format="html") == one + other


def test_no_space_comes_between_a_picture_and_its_words(french: Seq2Seq) -> None:
    picture = "<p><img src='a'><a href='x'>The cat sleeps.</a></p>"  # no space between them
    assert french.translate(picture, format="html") == "<p><img src='a'><a href='x'>Le chat dort.</a></p>"
