"""Where sentences end, and what must come through a translation."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st
from playwright.sync_api import Browser

from conftest import examples
from seq2see.documents import kept
from seq2see.documents.kept import Read, loops, needed, regrouped, repaired, spellings
from seq2see.documents.sentences import MARKS, STOPS, WORDS, around_quotes, split
from seq2see.page.live import bundle

HARD = [
    "Dr. A. B. Smith paid $3.50.|He left at 5 p.m. on Jan. 3.",
    "“Stop!” he said.|“Why?”|She left.",
    'She said, "I am going."|Then she went.',
    "(He left.)|She stayed.",
    "He lives in the U.S.|The weather is good.",
    "J. R. R. Tolkien wrote it.|It is long.",
    "I met John F. Kennedy.|He was kind.",
    "I take vitamin C.|The doctor said so.",
    "Wait... what?|Well…|Maybe.",
    "He paused... and went on.",
    "See No. 5.|No.|I will not.",
    "He works at Acme Inc. in Paris.|He likes it.",
    "1. First item.|2. Second item.",
    "hello.|how are you?|i am fine, mr. smith.",
    "Visit www.example.com.|It is good.",
    "It costs 3.14, not 3.15.",
    "今天很好。|我们走吧！",
    "Er kam am 3. Mai.|Dann ging er z.B. nach Hause.",
    "The meeting is at 10 a.m.|Please come.",
    "What?!|No way!!!|Really...",
    "He got his Ph.D. in 1990.|She got hers later.",
    "Mr. and Mrs. Smith vs. the State of N.Y. went on.|It ended.",
    "Version 2.0.1 is out!|Get it now.",
    "The end",
]


@pytest.mark.parametrize("text", HARD)
def test_hard_cases(text: str) -> None:
    parts = text.split("|")
    together = " ".join(parts) if "。" not in text else "".join(parts)
    assert [together[first:last] for first, last in split(together)] == parts


@pytest.mark.parametrize(
    "text",
    [
        "كيف حالك؟|أنا بخير.|ذهب د. أحمد إلى السوق.|قال: «نعم!»|عاد في المساء",
        "کجا بودی؟|من در خانه بودم.",
        "آپ کیسے ہیں؟|میں ٹھیک ہوں۔|شکریہ۔",
        "מה שלומך?|אני בסדר.|הוא בא מחר!",
        "आप कैसे हैं?|मैं ठीक हूँ।|धन्यवाद।",
        "እንዴት ነህ፧|ደህና ነኝ።|አመሰግናለሁ።",
        "နေကောင်းလား။|ကျေးဇူးတင်ပါတယ်။",
        "Τι κάνεις;|Είμαι καλά.|Ευχαριστώ!",
        "Как дела?|А. С. Пушкин родился в 1799 г. в Москве.",
        "คุณสบายดีไหม?|ขอบคุณ!",
        "He came; she left.",
    ],
)
def test_sentences_end_in_every_script(text: str) -> None:
    parts = text.split("|")
    together = " ".join(parts)
    assert [together[first:last] for first, last in split(together)] == parts


def test_the_marks_are_those_of_unicode() -> None:
    every = {one for one in map(chr, range(0x110000)) if regex.fullmatch(r"\p{Sentence_Terminal}", one)}
    assert {one for one in every if not re.fullmatch(f"[{MARKS}{STOPS}]", one)} == set()
    assert {one for one in map(chr, range(0x110000)) if re.fullmatch(f"[{MARKS}{STOPS}]", one)} - every == {"…"}


def test_the_page_finds_the_same_sentences(browser: Browser) -> None:
    texts = [text.replace("|", "" if "。" in text else " ") for text in HARD]
    texts += ["  Hi.  “No.” (Yes!)  a. b.", "It is 5.30 p.m. The end.", "3. Mai war schön. 4. Juni auch.", "a.b. C d."]
    page = browser.new_page()
    page.add_script_tag(content=bundle(("sentences.js",)))
    found = page.evaluate("([texts, words]) => texts.map((text) => split(text, words))", [texts, WORDS])
    assert found == [[list(span) for span in split(text)] for text in texts]
    text = "  - One. Two!\r\n\r\n1) 12:30\n> Three"
    parts = page.evaluate("([text, words]) => partsOf(text, words)", [text, WORDS])
    assert "".join(part if isinstance(part, str) else part["source"] for part in parts) == text
    assert [part["source"] for part in parts if not isinstance(part, str)] == ["One.", "Two!", "Three"]
    page.close()


@given(st.text(alphabet="aB1 .!?…\"')\n。", max_size=60))
@settings(max_examples=examples(200))
def test_nothing_is_lost_between_sentences(text: str) -> None:
    spans = split(text)
    at = 0
    for first, last in spans:
        assert not text[at:first].strip()
        assert text[first:last].strip() == text[first:last] != ""
        at = last
    assert not text[at:].strip()


HIDDEN = {
    "See https://a.b/c_d?e=f(1), or http://x.org.": ["https://a.b/c_d?e=f(1)", "http://x.org"],
    "Write to me.you+x@mail.co.uk now.": ["me.you+x@mail.co.uk"],
    "Visit example.com/path or www.x.fr!": ["example.com/path", "www.x.fr"],
    "Hello {name}, {{count}} of ${total}, %s %d %1$s %(x)s %.2f": [
        "{name}", "{{count}}", "${total}", "%s", "%d", "%1$s", "%(x)s", "%.2f",
    ],
    "A 50% discount, 100 % sure.": [],
    "Press <enter> or </0>, but 2 < 3 and 5 > 4.": ["<enter>", "</0>"],
    "Use `git push` in /usr/local/bin with my_name and run().": ["`git push`", "/usr/local/bin", "my_name", "run()"],
    "Call +44 20 7946 0958 on 2024-05-12, room 12-34.": ["+44 20 7946 0958", "2024-05-12"],
    "Ask @anna about #news and C# at 3.": ["@anna", "#news"],
    "and/or, 3/4, well-known, e.g. this": [],
    "1½ cups for 45 m² at ¥15,000 | CO₂": ["1½", "m²", "¥15,000", "|", "CO₂"],
    "Gate B12, code SAVE10, an MP3 of Q2 at 5PM or 6H30 on the 2ND of May; COVID-19, A-Z": ["B12", "SAVE10"],
}  # fmt: skip


@pytest.mark.parametrize("text", HIDDEN)
def test_what_is_hidden_from_the_model(text: str) -> None:
    read = Read.of(text)
    assert list(read.items) == HIDDEN[text]
    assert all(f"{{{n}}}" in read.text for n in range(1, len(read.items) + 1))
    parts, at = [], 0
    for first, last, item, _ in read.marks(read.text):
        parts += [read.text[at:first], item]
        at = last
    assert "".join([*parts, read.text[at:]]) == text


def test_an_hour_of_the_afternoon_is_put_in_the_place_of_the_morning() -> None:
    read = Read.of("Open 9 am to 6 pm.")
    assert repaired("Ouvert de 9 à 6.", read.missing("Ouvert de 9 à 6."), read) == "Ouvert de 9 à 18."
    assert repaired("Ouvert de 9 à 15.", read.missing("Ouvert de 9 à 15."), read) == "Ouvert de 9 à 18."
    assert spellings("6", read.text) == ["18", "6"]


def test_a_picture_beside_words_stays_beside_them() -> None:
    picture = "<img>"
    close, apart = f"{picture}{picture}Hello.", f"{picture} Hello."
    read = Read.of(close, [(0, 5), (5, 10)])
    assert read.text == "{1}{2}Hello."
    assert read.closed_up("{1}{2} Bonjour.") == "{1}{2}Bonjour."
    assert read.closed_up("Bonjour {1}{2}.") == "Bonjour {1}{2}."
    assert Read.of(apart, [(0, 5)]).closed_up("{1} Bonjour.") == "{1} Bonjour."
    assert Read.of(f"Hello{picture}", [(5, 10)]).closed_up("Bonjour {1}") == "Bonjour{1}"
    assert Read.of("a@b.org: hello").closed_up("{1} : bonjour") == "{1} : bonjour"  # not of the document


def test_quotations_keep_their_marks() -> None:
    read = Read.of('"Yes," she said.')
    assert not any(map(read.has_lost_quotes, ("«Oui», dit-elle.", "„Ja“, sagte sie.", "‘Oui’, dit-elle.")))
    assert all(map(read.has_lost_quotes, ("Oui, dit-elle.", "„Ja, sagte sie.")))
    assert not Read.of('A 5" disk.').has_lost_quotes("Un disque de 5 pouces.")


def test_numbers_count_whatever_separates_their_digits() -> None:
    read = Read.of("We paid $1,234.50 for 3 tickets 😀.")
    assert read.missing("Nous avons payé 1 234,50 $ pour 3 billets 😀.") == []
    assert read.missing("Nous avons payé 250 $ pour 3 billets.") == ["123450", "😀"]
    assert Read.of("2 and 2 and 2").missing("2") == ["2", "2"]
    assert Read.of("At 6 pm or at 6 pm.").missing("À 18 h ou à 18 h.") == []
    assert Read.of("At 6 pm or at 6 pm.").missing("À 18 h.") == ["6"]
    assert Read.of("Le train part à 18h30.").missing("The train leaves at 6:30.") == ["18"]
    assert Read.of("Le train part à 18h30.").missing("The train leaves at 6:30 p.m.") == []
    assert Read.of("Le train part à 18h30.").missing("The train leaves at 18:30.") == []
    assert Read.of("Call me at 5 pm.").missing("Ruf mich um fünf Uhr an.") == ["17"]
    assert Read.of("Call me at 5 pm.").missing("Ruf mich um fünf Uhr nachmittags an.") == []
    assert Read.of("Call me at 5 am.").missing("Ruf mich um fünf Uhr an.") == []
    for text, good, bad in (
        (
            "Come at 3:30 pm.",
            ("Viens à 15 h 30.", "Komm um 15.30 Uhr.", "Komm um 15:30 Uhr.", "3 h 30 de l'après-midi"),
            ("À 14 h 30.", "3 h 30"),
        ),
        (
            "It is 5 p.m.",
            ("Il est 17 heures.", "Es ist 17 Uhr.", "Es ist fünf Uhr nachmittags."),
            ("Il est 7 heures.", "Il est 18 h.", "Es ist 5."),
        ),
        ("Il est 15 h 30.", ("It is 3:30 p.m.", "It is 15:30."), ("It is 4:30.",)),
        ("À 15h30.", ("At 3:30 in the afternoon.",), ("At 3:30.", "At 4:30.")),
        ("At 8:00.", ("À 8 heures.", "À huit heures.", "Um 8.00 Uhr."), ("À 9 heures.",)),
        ("À 02h30, à 9 h 00.", ("At 2:30, at 9 o'clock.",), ("At 2:30.",)),
        ("At 2:30.", ("À deux heures et demie.", "Um halb drei."), ("À deux heures.", "Um halb vier.")),
        ("At 2:45.", ("À trois heures moins le quart.", "Um Viertel vor drei."), ("À trois heures.",)),
        ("It has 3 rooms.", ("Il a trois pièces.", "Es hat drei Zimmer."), ("Il a des pièces.",)),
        ("He is 6'2 tall.", ("Il mesure 6'2.",), ("Il a 62 ans.",)),
        ("1\u202f250 people in 2023 10 times", ("1,250 in 2023, 10",), ("250 in 2023, 10",)),
        ("It costs €5.", ("5 €", "5 Euro", "5 euros"), ("Es kostet 5.",)),
        ("He paid £5 and $6.", ("5 livres et 6 dollars",), ("5 et 6 dollars",)),
        ("Um 22.15 Uhr.", ("At 10:15 p.m.",), ("At 10:50 p.m.",)),
        ("He is 15 and 3 came.", (), ("He is 3 and 3 came.",)),
    ):
        assert [one for one in good if Read.of(text).missing(one)] == []
        assert [one for one in bad if not Read.of(text).missing(one)] == []
    assert regrouped("12.345,678 und 1.234,50", "12,345,678 and 1,234.50") == "12.345.678 und 1.234,50"
    assert regrouped("12 345 678", "12,345,678") == "12 345 678"
    assert needed("{1} of 2", 1) == ["{1}", "2"]
    assert spellings("123450", "$1,234.50") == ["1,234.50", "1 234,50", "1.234,50"]


@pytest.mark.parametrize(
    ("text", "answer", "expected"),
    [
        ("The bill is $23.50.", "La note est de 250 dollars.", "La note est de 23.50 dollars."),
        ("Call 911 now!", "Appelez maintenant !", "Appelez 911 maintenant !"),
        ("I am tired 😴", "Je suis fatigué", "Je suis fatigué 😴"),
        ("Go to https://x.com.", "Allez-y.", "Allez-y {1}."),
    ],
)
def test_what_is_missing_is_put_in(text: str, answer: str, expected: str) -> None:
    read = Read.of(text)
    mended = repaired(answer, read.missing(answer), read)
    assert mended == expected
    assert read.missing(mended) == []


@given(st.text(alphabet="ab 12{}.,!", max_size=30), st.text(alphabet="ab 12{}.,!", max_size=30))
@settings(max_examples=examples(200))
def test_after_a_repair_nothing_is_missing(text: str, answer: str) -> None:
    read = Read.of(text)
    assert not set(read.missing(repaired(answer, read.missing(answer), read))) & {
        f"{{{n}}}" for n in range(1, len(read.items) + 1)
    }


def test_loops_are_seen_unless_the_source_loops_too() -> None:
    assert loops("le TBBBBBB ?")
    assert loops("il va et il va et il va et")
    assert loops("oui oui oui oui")
    assert not loops("non, non, c'est bon")
    assert not loops("ha ha ha", "ha ha ha")
    assert not loops("Rien à faire ici ... 111 000 000")


def test_capitals_are_read_as_small_letters_and_written_as_capitals() -> None:
    read = Read.of("I AM AT www.x.com NOW!")
    assert read.text == "I am at {1} now!"
    assert read.cased("je suis") == "JE SUIS"
    for text in ("NATO", "He said NO WAY", "OK!"):
        assert Read.of(text).text == text
        assert not Read.of(text).shouts
    assert kept.MARK.findall("{1} { 2 }") == ["1", "2"]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ('He said: "I am tired. I want to sleep." He left.', ['He said: "I am tired. I want to sleep."', "He left."]),
        ('"I am tired. I want to sleep," he said.', ['"I am tired. I want to sleep," he said.']),
        ("“I came. I saw.” She laughed.", ["I came.", "I saw.", "She laughed."]),
        ('"Yes." "No."', ["Yes.", "No."]),
        ("« Je suis venu. » Il dort.", ["Je suis venu.", "Il dort."]),
        ("„Ja. Nein.“ Er ging.", ["Ja.", "Nein.", "Er ging."]),
        ('"Open. Never closed.', ['"Open.', "Never closed."]),
        (f'He said, "{"It was long. " * 40}It ended."', None),
    ],
)  # fmt: skip
def test_no_quotation_loses_one_of_its_marks(text: str, parts: list[str] | None) -> None:
    spans = around_quotes(text, split(text))
    assert all(first < last for first, last in spans)
    assert all(one[1] <= other[0] for one, other in pairwise(spans))
    if parts is None:  # too long to be one
        assert spans == split(text)
    else:
        assert [text[first:last] for first, last in spans] == parts


@pytest.mark.parametrize("text", [
    "No. | I do not.", "He said no. | They left.", "He lives at No. 5 there.", "It was in Oct. | The sun shone.",
    "It was in Oct. Green leaves fell.", "It was on Oct. 5 or so.", "At 5 p.m. | The cat came.", "At 5 p.m. Tom came.",
    "See vol. The end.", "Ask J. Tolkien.", "It is vitamin C. | The doctor knows.", "(1. The first one.",
    "Am 3. Mai war es.", "It was 1999. | Tom came.",
])  # fmt: skip
def test_a_full_stop_after_a_short_word_ends_a_sentence_before_a_usual_beginning(text: str) -> None:
    whole = text.replace("| ", "")
    assert [whole[first:last] for first, last in split(whole)] == text.split(" | ")
