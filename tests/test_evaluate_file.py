"""`seq2see evaluate` on a small file, as a user meets it: the worst answers, what is refused, two models compared."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import seq2see
from seq2see.cli import app
from seq2see.errors import UserError
from seq2see.evaluation.evaluate import Evaluation, differences

DATES = [("1845-01-05", "January 5, 1845"), ("1845-01-06", "January 7, 1845"), ("2025-09-03", "September 3, 2025")]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["evaluate", *arguments])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "dates.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in DATES))
    return path


def test_the_worst_answer_stands_beside_the_right_one(file: Path) -> None:
    done = run(str(file))
    assert done.exit_code == 0, done.output
    assert "exact match           2 of 3 (66.67%)" in done.output
    assert "1845-01-06 → January 6, 1845   (right: January 7, 1845)" in done.output
    assert "nats a token" in done.output
    assert "worst" not in run(str(file), "--worst", "0").output


def test_texts_are_shown_as_they_are(file: Path) -> None:
    with file.open("a") as more:
        more.write("1845-01-08\t:cat: [bold]\n")
    assert "(right: :cat: [bold])" in run(str(file)).output  # neither an emoji nor a style


def test_the_loss_is_of_the_pairs_that_can_be_scored(file: Path) -> None:
    whole = json.loads(run(str(file), "--json").stdout)
    with file.open("a", encoding="utf-8") as more:
        more.write("2025-09-04\tle 4 août\n")
    done = run(str(file))
    assert "nats a token, teacher-forced, of 3 of 4 pairs\n" in done.stdout
    left_out = "seq2see: The loss leaves out 1 pair that cannot be scored. The first, pair 4: 'le 4 août' has 'û'"
    assert left_out in done.stderr.replace("\n", " ")
    said = json.loads(run(str(file), "--json").stdout)
    assert (said["pairs"], said["loss_pairs"]) == (4, 3)
    assert (whole["pairs"], whole["loss_pairs"]) == (3, 3)
    scores = seq2see.load("dates").evaluate(file)
    assert scores.loss_pairs == 3
    assert scores.loss == pytest.approx(said["loss"]) == pytest.approx(whole["loss"])
    file.write_text("2025-09-04\tle 4 août\n", encoding="utf-8")
    assert "loss                  unknown: no pair can be scored" in run(str(file)).stdout
    said = json.loads(run(str(file), "--json").stdout)
    assert (said["loss"], said["loss_pairs"]) == (None, 0)


def test_sentences_stand_one_under_the_other(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seq2see.data.cuts.are_sentences", lambda pairs: True)
    done = run(str(file))
    assert "  1845-01-06\n    →  January 6, 1845\nright  January 7, 1845\n" in done.output
    assert "BLEU" in done.output
    assert "BLEU" in run(str(file), "--compare", "dates", "dates").output


def test_two_models_are_compared(file: Path) -> None:
    done = run(str(file), "--compare", "dates", "dates")
    assert done.exit_code == 0, done.output
    assert "3 pairs; A is dates, B is dates." in done.output
    assert "may be chance" in done.output
    said = json.loads(run(str(file), "--compare", "dates", "dates", "--json").stdout)
    assert (said["results"][0]["p_value"], said["results"][0]["interval"]) == (1.0, [0.0, 0.0])


@pytest.mark.parametrize(
    ("rows", "arguments", "message"),
    [
        (["a\tb", "c\td"], [], r"dates takes none of 2 sources\. The first, pair 1: 'a' is not of the form"),
        (["1845-01-05\tx"], ["--compare", "dates", "dates", "--at-least", "0.5"], "--at-least is for one model"),
        (["1845-01-05\tx"], ["--sample", "2"], "--sample is 2, but the file has 1 pair"),
        (["1845-01-05\tx"], ["--years", "1845"], "--years is for dates"),
        (["1845-01-05\tx"], ["--compare", "dates", "dates", "--worst", "3"], "--worst is for one model"),
    ],
)
def test_what_makes_no_sense_is_refused(rows: list[str], arguments: list[str], message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("\n".join(rows) + "\n")
    done = run(str(path), *arguments)
    assert isinstance(done.exception, UserError)
    assert re.search(message, str(done.exception)), done.exception


@pytest.mark.parametrize("option", ["--beam", "--worst"])
@pytest.mark.parametrize("data", [["dates"], []])
def test_what_is_for_files_is_refused_for_dates(option: str, data: list[str]) -> None:
    done = run(*data, option, "3")
    assert isinstance(done.exception, UserError)
    assert f"{option} is for a file of pairs" in str(done.exception)


def test_a_refused_pair_says_why_in_json(file: Path) -> None:
    file.write_text("1845-01-05\tJanuary 5, 1845\ncafé\tx\n" + "à\tx\n" * 11, encoding="utf-8")
    done = CliRunner().invoke(app, ["score", str(file), "--json"])
    assert done.exit_code == 1, done.output
    assert "café" in done.stdout
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert rows[0]["tokens"][-1]["token"] == "<eos>"
    assert rows[1]["error"].startswith("'café' has 'é' (U+00E9) at character 4")
    assert f"seq2see: pair 2: {rows[1]['error']}\n" in done.stderr
    assert done.stderr.endswith(
        "… and 2 more pairs were refused; the answers say why.\nseq2see: 1 scored, 12 refused.\n"
    )


def test_an_evaluation_shows_its_counts_and_not_every_answer() -> None:
    found = Evaluation.of([("a", "b", "c"), ("d", "e", "e")])
    assert repr(found).startswith("Evaluation(pairs=2, exact=1, ")
    assert "'" not in repr(found)
    assert found.misses == [("a", "b", "c")]


def test_any_target_of_a_source_counts_and_symbols_are_cut_at_their_separator() -> None:
    found = Evaluation.of([("a", "K AE", "K EH T"), ("a", "K EH", "K EH T"), ("b", "B IY", "B IY"), ("b", "X", "B IY")])
    assert (found.exact_match, found.by_source().exact_match, found.by_source().pairs) == (0.25, 0.5, 2)
    assert found.by_source().token_error_rate == 1 / 4  # one insertion against the nearer of two
    dashes = Evaluation.of([("a", "K-AE", "K-EH")], separator="-")
    assert dashes.token_error_rate == 1 / 2


def test_confusions_say_what_was_said_instead_of_what_and_where() -> None:
    found = Evaluation.of(
        [("ab", "a b c", "a x c"), ("ac", "a b", "a x"), ("ad", "a b", "a"), ("ae", "b", "b q"), ("af", "c", "c")],
        separator=" ",
    )
    first, *others = found.confusions(" ")
    assert (first.expected, first.given, first.times) == ("b", "x", 2)
    assert first.place == pytest.approx((0.5 + 0.75) / 2)
    assert {(one.expected, one.given, one.times) for one in others} == {("b", "", 1), ("", "q", 1)}
    assert Evaluation.of([("x", "abc", "adc")]).confusions() == [("b", "d", 1, 0.5)]
    assert differences("kitten", "sitting") == [(0, ("k", "s")), (4, ("e", "i")), (6, ("", "g"))]


def test_single_words_are_counted_in_characters_and_phones_by_phones() -> None:
    found = Evaluation.of([("abc", "x y", "x"), ("abcdefg", "x", "x"), ("abcdefgh", "x y z", "y")], separator=" ")
    assert found.are_words
    assert [name for name, _ in found.by_length()] == ["1-4", "7-8"]
    assert found.worst(1, " ") == [(pytest.approx(100 / 3), "abcdefgh", "x y z", "y")]
    assert not Evaluation.of([("a b", "x", "x")]).are_words


def test_the_columns_of_a_wider_table_do_not_apply_to_a_file_of_two(tmp_path: Path) -> None:
    (tmp_path / "two.tsv").write_text("1845-01-05\tJanuary 5, 1845\n")
    assert seq2see.load("dates").evaluate(tmp_path / "two.tsv", columns=("3", "2")).exact_match == 1.0
