"""The human-dates model that ships, and the written dates that it learned from."""

from __future__ import annotations

import hashlib
import json

import babel.localedata
import pytest
from typer.testing import CliRunner

import seq2see
from seq2see.cli import app
from seq2see.errors import InputError, RefusedInputs, UserError
from seq2see.storage.folder import find
from seq2see.tasks import human_dates
from shipped import date_forms, written_dates

#: Written by hand, not by the generator.
DATES = {
    "5 Jan '45": "2045-01-05",
    "le 3 janvier 1845": "1845-01-03",
    "3.1.1845": "1845-01-03",
    "January 5th, 1845": "1845-01-05",
    "the 29th of August 1958": "1958-08-29",
    "31/12/1999": "1999-12-31",
    "12/31/1999": "1999-12-31",
    "Sunday, 3rd March 2019": "2019-03-03",
    "1er avril 2020": "2020-04-01",
    "den 24. Dezember 1944": "1944-12-24",
    "10 de mayo de 1810": "1810-05-10",
    "2024年2月29日": "2024-02-29",
    "٥ يناير ٢٠٢٠": "2020-01-05",
    "५ जनवरी २०२०": "2020-01-05",
    "5 ЯНВАРЯ 1845 Г.": "1845-01-05",
    "12th of Apr., 1961": "1961-04-12",
    "July the 4th, 1776": "1776-07-04",
    "6 aout 1945": "1945-08-06",
    "the sixth of August, 1945": "1945-08-06",
    "2001-09-11T08:46:00Z": "2001-09-11",
    "2 grudnia 1970 r.": "1970-12-02",
    "20200403": "2020-04-03",
    "12 0ct 1987": "1987-10-12",
    "N0vember 3 1920": "1920-11-03",
}
REFUSED = {
    "03/04/2020": "can be 2020-04-03 (day first) or 2020-03-04 (month first)",
    "2020-02-30": "does not exist",
    "February 29, 1900": "does not exist",
    "hello world": "is not a date",
    "March 2020": "names no single day",
    "5 March": "has no year",
    "3rd of Octember 1933": "would be 1933-10-03, but that month is not in the text",
    "5 foo 1999": "that month is not in the text",
    "5 hello 1999 10:15": "that month is not in the text",
    "": "empty",
    "9" * 100: "too long",
}


@pytest.fixture(scope="module")
def model() -> seq2see.Seq2Seq:
    return seq2see.load("human-dates")


def test_reads_dates_as_people_write_them(model: seq2see.Seq2Seq) -> None:
    assert dict(zip(DATES, model.predict(DATES), strict=True)) == DATES
    size = sum(file.stat().st_size for file in find("human-dates").iterdir())
    assert size <= 3_000_000


def test_abstains_with_the_reason(model: seq2see.Seq2Seq) -> None:
    answers = model.answers([*REFUSED, "5 May 1999"])
    for answer, reason in zip(answers[:-1], REFUSED.values(), strict=True):
        assert answer.output is None
        assert isinstance(answer.error, str)
        assert f" {reason}" in answer.error
    assert answers[-1].output == "1999-05-05"
    with pytest.raises(RefusedInputs):
        model.predict(["03/04/2020"], strict=True)
    with pytest.raises(InputError, match="day first"):
        model("03/04/2020")


def test_the_order_resolves_what_can_be_read_in_two_ways(model: seq2see.Seq2Seq) -> None:
    assert model.predict(["03/04/2020", "5 May 1999"], order="day") == ["2020-04-03", "1999-05-05"]
    assert model.predict(["03/04/2020"], order="month") == ["2020-03-04"]
    with pytest.raises(UserError, match="'day' or 'month'"):
        model.predict(["03/04/2020"], order="year")
    with pytest.raises(UserError, match="task of this model is dates"):
        seq2see.load("dates").predict(["1845-01-05"], order="day")


def test_the_command_takes_an_order() -> None:
    run = CliRunner().invoke(app, ["predict", "-m", "human-dates", "03/04/2020", "--order", "month", "--json"])
    assert run.exit_code == 0
    assert json.loads(run.stdout)["output"] == "2020-03-04"
    run = CliRunner().invoke(app, ["predict", "-m", "human-dates", "03/04/2020", "5 May 1999"])
    assert run.exit_code == 1
    assert run.stdout == "\n1999-05-05\n"


@pytest.mark.parametrize("answer", ["", "1845-01", "1845-01-05 or ", "1845-01-05 or 1845-05-01 or 1845-05-01", "x"])
def test_an_answer_that_is_no_date_is_refused(answer: str) -> None:
    with pytest.raises(InputError, match="could not be read"):
        human_dates.read("text", answer)


def test_held_out_forms_and_regions_are_read(model: seq2see.Seq2Seq) -> None:
    for part, least in (("formats", 0.98), ("spellings", 0.97)):
        pairs = [p for p in written_dates.pairs(150, seed=5, part=part) if p[1][-2:] <= "28"]
        answers = [one.output for one in model.answers([text for text, _ in pairs], probabilities=False)]
        right = sum(answer == target for answer, (_, target) in zip(answers, pairs, strict=True))
        assert right >= least * len(pairs), (part, right, len(pairs))


def test_the_month_is_looked_for_in_the_text() -> None:
    """One typing mistake, a lost accent, a space or a digit that was misread does not hide it; another word does."""
    good = [("5 Jnauary 1999", 1), ("5 Januarry 1999", 1), ("5 janury 1999", 1), ("5 fevrier 1999", 2), ("5jjul1999", 7),
            ("5 de mayo de 1999", 5), ("5ofjanuary1999", 1), ("“sep-13-5892”", 9), ("5.VI.1999", 6), ("12 mya 1999", 5),
            ("5/l2/1999 at 8am", 12), ("1622年z月5日", 2), ("1-มค-34", 1), ("1 ม-ค 34", 1), ("5 ในมค34", 1),
            ("2كانون_الأول2009", 12), ("الكانونالأول 5 1999", 12), ("5 במאי 1999", 5), ("5degendel1999", 1),
            ("20240229T00:00Z", 2), ("6 May 2009 utc", 5), ("Mon 06/06/2009", 6), ("5 Decemb. 1688", 12)]  # fmt: skip
    for text, month in good:
        assert human_dates.names_month(text, month, 6), text
    bad = [("5 octember 1933", 10), ("5 octobre 1999", 2), ("5 foo 1999", 2), ("6 foo 1999 10:15", 6), ("2 foo 1999", 2),
           ("5 foo 1999 02:15", 2), ("foo 5/7/1999", 2), ("5 summary 1999", 3),
           ("5 septober 1999", 9), ("12 mai 1999", 6)]  # fmt: skip
    for text, month in bad:
        assert not human_dates.names_month(text, month, 6), text


def test_every_name_of_a_month_is_found_in_a_text() -> None:
    for month, line in enumerate(human_dates.NAMES.read_text(encoding="utf-8").splitlines(), 1):
        for name in line.split("\t"):
            assert human_dates.names_month(f"5 {name} 1999", month, 6), name
            assert human_dates.names_month(f"5{name.replace(' ', '')}1999", month, 6), name


def test_hardly_a_right_date_is_refused_for_its_month(model: seq2see.Seq2Seq, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = written_dates.pairs(600, seed=8)
    with monkeypatch.context() as patched:
        patched.setattr(human_dates, "names_month", lambda *texts: True)
        answers = [one.output for one in model.answers([text for text, _ in pairs], probabilities=False)]
    right = [
        (text, *map(int, str(found).split("-")[1:]))
        for (text, target), found in zip(pairs, answers, strict=True)
        if found == target
    ]
    refused = [text for text, month, day in right if not human_dates.names_month(text, month, day)]
    assert len(right) > 450
    assert len(refused) <= 0.005 * len(right), refused


@pytest.mark.parametrize("regions", [("de_AT", "fil", "zu"), pytest.param(None, marks=pytest.mark.heavy)])
def test_the_names_of_the_months_are_those_of_babel(
    regions: tuple[str, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = [line.split("\t") for line in human_dates.NAMES.read_text(encoding="utf-8").splitlines()]
    if regions is None:
        assert listed == written_dates.month_names()
        return
    monkeypatch.setattr(babel.localedata, "locale_identifiers", lambda: regions)
    found = written_dates.month_names()
    assert all(set(some) <= set(names) for some, names in zip(found, listed, strict=True))
    # Austria's name of the month, the Filipino one, a Roman number; Zulu is not learned.
    assert found[0] == ["ene", "enero", "i", "jän", "jänner"]


@pytest.mark.parametrize(
    ("part", "first", "digest"),
    [
        ("train", ("30 month9. 1922", "1922-10-30"), "fbb1aadef25c5ae6"),
        ("formats", ("kn month7 13 1844", "1844-08-13"), "bdc3544cc18ebf17"),
        ("spellings", ("ms_bn day6 28 ms_bn month8 7575", "7575-09-28"), "de45c6e3542c9a0d"),
    ],
)
def test_a_seed_writes_the_dates_that_the_shipped_model_has_learned(
    part: str, first: tuple[str, str], digest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names are made up here, since those of babel change with its versions."""

    def names(locale: str) -> written_dates.Names:
        months, short, days = (
            [[f"{locale} {kind}{number}", f"{kind}{number}."] for number in range(count)]
            for kind, count in (("month", 12), ("mon", 12), ("day", 7))
        )
        templates = [*date_forms.OWN.get(locale[:2], ()), *date_forms.COMMON]
        return written_dates.Names(locale, months, short, days, templates, [f"word {locale}"])

    written_dates._templates.cache_clear()
    monkeypatch.setattr(written_dates, "names_of", names)
    found = written_dates.pairs(1500, 1, part)
    written_dates._templates.cache_clear()
    assert found[0] == first
    assert hashlib.sha256(repr(found).encode()).hexdigest()[:16] == digest
    tables = sorted((name, table) for name, table in vars(date_forms).items() if name.isupper())
    assert hashlib.sha256(repr(tables).encode()).hexdigest()[:16] == "a672ba3e4a4adf59"


def test_what_is_held_out_is_never_learned() -> None:
    learned = set(written_dates._templates("fr", False))
    assert learned
    assert learned.isdisjoint(written_dates._templates("fr", True))
    assert set(written_dates.LANGUAGES).isdisjoint(written_dates.HELD_LOCALES)
    assert written_dates.pairs(50, seed=1) == written_dates.pairs(50, seed=1) != written_dates.pairs(50, seed=2)


def test_a_text_is_folded_alike_whatever_is_in_it() -> None:
    assert human_dates.fold("  5\tJAN  1845 ") == "5 jan 1845"
    assert human_dates.fold("٥\u200f ЯНВАРЯ １８４５ é") == human_dates.fold("5 января 1845 e\u0301")


def test_days_in_english_words() -> None:
    found = [written_dates.in_words(day) for day in (1, 12, 19, 20, 21, 29, 30, 31)]
    words = "first twelfth nineteenth twentieth twenty-first twenty-ninth thirtieth thirty-first"
    assert found == words.split()
