"""Sure or silent: a calibrated confidence, answers withheld, inputs unlike the training, characters folded."""

from __future__ import annotations

import json
import math
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

import seq2see
from seq2see.answering.answerer import Answerer
from seq2see.answering.options import Options
from seq2see.cli import app
from seq2see.errors import FolderError, RefusedInputs, UserError
from seq2see.evaluation import calibrate
from seq2see.evaluation.confidence import Confidence, Measured, figures_of, fit, probability, read_confidence
from seq2see.evaluation.familiar import Familiar
from seq2see.serve.app import create_app
from seq2see.storage import folder
from seq2see.tokenizers.folding import fold_unknown
from seq2see.tokenizers.tokenizer import Tokenizer

TINY = {"d_model": 16, "d_ff": 32, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}
WORDS = [f"{a}{b}{c}" for a in ("ka", "lo", "mi", "te") for b in ("ra", "no", "su", "pe") for c in ("la", "ti", "go")]


def confidence(constant: float = 0.0) -> Confidence:
    """The model's own probability, moved by a constant."""
    measured = Measured.of([0.9, 0.4], [True, False])
    return Confidence("exact", 50.0, [constant, 1, 0, 0, 0, 0], 99, measured, Familiar.learn(WORDS, 10, WORDS))


# --- the fit ---------------------------------------------------------------------------------------------------------


def drawn(count: int, seed: int) -> tuple[list[list[float]], list[bool]]:
    """Answers whose real probability of being right is far from the model's own."""
    random = Random(seed)
    figures, right = [], []
    for _ in range(count):
        tokens = [-random.expovariate(8) for _ in range(random.randint(2, 9))]
        one = figures_of(tokens)
        real = 1 / (1 + math.exp(-(0.5 * one[0] + 0.3 * one[1] - 1.5)))
        figures.append(one)
        right.append(random.random() < real)
    return figures, right


def test_the_fit_mends_probabilities_that_are_too_high() -> None:
    weights = fit(*drawn(2000, 1))
    figures, right = drawn(4000, 2)
    mended = Measured.of([probability(weights, one) for one in figures], right)
    own = Measured.of([probability([0, 1, 0, 0, 0, 0], one) for one in figures], right)
    assert mended.error < 0.03
    assert own.error > 0.1
    assert mended.risk[0][1] < mended.risk[-1][1]  # the surest are wrong less often
    assert mended.risk[-1] == (1.0, pytest.approx(1 - mended.right))


def test_the_expected_calibration_error_by_hand() -> None:
    found = Measured.of([0.05, 0.05, 0.95, 0.95, 1.0], [False, True, True, True, False])
    assert [(count, round(share, 3)) for _, share, count in found.bins] == [(2, 0.5), (3, 0.667)]
    assert found.error == pytest.approx((2 * abs(0.05 - 0.5) + 3 * abs(2.9 / 3 - 2 / 3)) / 5)
    half = math.log(0.5)
    assert figures_of([half, half]) == pytest.approx([math.log(1 / 3), 0, half, math.log(2), 0])
    assert figures_of([half - 0.1, half])[4] == 0.5
    assert all(map(math.isfinite, figures_of([0.0, -1e9])))


def test_an_answer_that_was_cut_is_not_right() -> None:
    assert confidence()([-0.1, -0.1], finished=False) == 0.0
    assert confidence()([-0.1, -0.1]) == pytest.approx(math.exp(-0.2))


def test_what_is_written_is_read_again_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / folder.CONFIDENCE
    path.write_text(confidence().to_json())
    found = read_confidence(tmp_path)
    assert found == confidence()
    assert read_confidence(tmp_path / "nowhere") is None
    good = json.loads(path.read_text())
    for key, value in (
        ("weights", [1, 2]), ("weights", [float("nan")] * 6), ("weights", "x"), ("criterion", "luck"), ("format", 9),
        ("measured", None), ("familiar", None), ("familiar", {**good["familiar"], "table": "§"}), ("threshold", []),
        ("familiar", {**good["familiar"], "longest": "9"}),
    ):  # fmt: skip
        path.write_text(json.dumps({**good, key: value}))
        with pytest.raises(FolderError, match=r"confidence\.json"):
            read_confidence(tmp_path)
    path.write_text("[" * 100_000)
    with pytest.raises(FolderError):
        read_confidence(tmp_path)


def test_answers_by_exact_match_or_by_chrf_and_any_target_counts() -> None:
    model = seq2see.load("dates")
    pairs = [
        ("1845-01-05", "January 5, 1845"),
        ("1845-01-06", "January 7, 1845"),
        ("1845-01-06", "January 6, 1845"),
        ("1845-01-07", "January 9, 1845"),
        ("1845-01-08", "nothing like it"),
    ]
    engine, rules = model.network.engine_for(4), model.config.decoding
    exact = calibrate.observe(engine, model.tokenizers, rules, pairs, None)
    assert [right for _, _, right in exact] == [True, True, False, False]
    close = calibrate.observe(engine, model.tokenizers, rules, pairs, 60.0)
    assert [right for _, _, right in close] == [True, True, True, False]


# --- answers ---------------------------------------------------------------------------------------------------------


def test_answers_that_are_less_sure_are_withheld() -> None:
    model = seq2see.load("dates")
    with pytest.raises(
        UserError,
        match=r"`min_confidence` is 0\.9, but the confidence of this model is not fitted.* `seq2see calibrate`",
    ):
        model.predict(["1845-01-05"], min_confidence=0.9)
    model.confidence = confidence()
    with pytest.raises(UserError, match=r"`min_confidence` is 2: a probability"):
        model.predict(["1845-01-05"], min_confidence=2)
    assert model.predict(["1845-01-05"], min_confidence=0.9) == ["January 5, 1845"]
    [answer] = model.answers(["1845-01-05"])
    assert answer.confidence == pytest.approx(answer.probability, abs=1e-4)
    model.confidence = confidence(-20)
    with pytest.raises(RefusedInputs, match="has a confidence of 0"):
        model.predict(["1845-01-05"], min_confidence=0.9, strict=True)
    [answer] = model.answers(["1845-01-05"], min_confidence=0.9, probabilities=False)
    assert (answer.output, answer.withheld) == (None, "January 5, 1845")
    assert model.answers(["1845-01-05"])[0].output == "January 5, 1845"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of small letters, trained for a second, with enough held-out pairs to know how sure it is."""
    out = tmp_path_factory.mktemp("sure") / "model"
    pairs = [(word + other, (word + other).upper()) for word in WORDS for other in ("", "da", "fo", "uv", "eb")]
    held = [(word + "vu", (word + "vu").upper()) for word in WORDS] + [(w + "be", (w + "be").upper()) for w in WORDS]
    made = seq2see.fit(
        pairs,
        validation=held[:60],
        test=held[60:],
        training={
            "steps": 120,
            "warmup": 10,
            "learning_rate": 0.01,
            "batch_tokens": 2048,
            "label_smoothing": 0.0,
            "muon": 0.0,
            "guided": 0.0,
            "chained": 0.0,
        },
        model=TINY | {"dropout": 0.1},
        out=out,
        tokenizer="characters",
    )
    assert made.confidence is not None
    return out


def test_the_confidence_is_not_measured_on_what_it_is_fitted_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Test pairs that are in the validation are left out; if all are, each fifth is measured by the others."""
    pairs = [(word, word[::-1]) for word in (*WORDS, *(f"{one}la" for one in WORDS))]
    asked: list[int] = []
    observe = calibrate.observe

    def noted(engine: Any, tokenizers: Any, rules: Any, given: Any, chrf: Any) -> Any:
        asked.append(len(given))
        return [(figures, True, right) for figures, _, right in observe(engine, tokenizers, rules, given, chrf)]

    monkeypatch.setattr(calibrate, "observe", noted)
    given: dict[str, Any] = dict(model=TINY, training={"steps": 2, "warmup": 1})
    some = seq2see.fit(pairs[:50], pairs[:60], pairs[40:90], **given)
    assert asked == [60, 30]
    assert some.confidence is not None
    assert (some.confidence.fitted_on, some.confidence.measured.pairs) == (60, 30)
    same = seq2see.fit(pairs[:50], pairs[:60], pairs[:60], **given)
    assert same.confidence is not None
    assert (same.confidence.fitted_on, same.confidence.measured.pairs) == (60, 60)


def test_a_training_ends_with_a_confidence_a_picture_and_a_card(trained: Path) -> None:
    model = seq2see.load(trained)
    assert model.confidence is not None
    assert (model.confidence.fitted_on, model.confidence.criterion) == (60, "exact")
    assert model.confidence.measured.pairs == 36
    assert (trained / "reliability.png").read_bytes().startswith(b"\x89PNG")
    assert f"| expected calibration error, 10 bins | {model.confidence.measured.error:.2%} |" in model.card
    assert "![How often answers are right, by their confidence](reliability.png)" in model.card


def test_inputs_are_flagged_folded_and_said_so(trained: Path) -> None:
    model = seq2see.load(trained)
    plain, capital, accented, long = model.answers(["karala", "KaRaLa", "kárala", "karala" * 4])
    assert plain.remark is None
    assert plain.confidence is not None
    assert capital.remark == accented.remark == "The input was read as 'karala'."
    assert capital.output == plain.output
    assert capital.confidence == pytest.approx(plain.confidence)
    assert long.remark == "The input has 24 tokens, but the longest of the training has 8."
    assert long.confidence is None
    [strange] = model.answers(["lllttt"])
    assert strange.remark is not None
    assert strange.remark.startswith("The input differs from those of the training")
    [withheld] = model.answers(["karala" * 4], min_confidence=0.0)
    assert withheld.error is not None
    assert "is unknown" in withheld.error
    assert model.answers(["karala" * 4], probabilities=False)[0].remark == long.remark
    assert model.align([capital])[0].source == "karala"
    assert model.trace("KARALA").text == "karala"


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["predict", *arguments])


def test_the_command_withholds_lists_and_remarks(trained: Path, tmp_path: Path) -> None:
    listed = tmp_path / "withheld.tsv"
    done = run("karala", "KARALA", "--model", str(trained), "--min-confidence", "0.99999", "--withheld", str(listed))
    assert done.exit_code == 0
    assert done.stdout == "\n\n"
    assert "0 of 2 answers have a confidence of 0.99999 or more; 2 were withheld" in done.stderr.replace("\n", " ")
    rows = [row.split("\t") for row in listed.read_text().splitlines()]
    assert [(row[0], row[2]) for row in rows] == [("1", "karala"), ("2", "KARALA")]
    assert 0 <= float(rows[0][1]) < 0.99999
    done = run("KARALA", "--model", str(trained), "--json")
    record = json.loads(done.stdout)
    assert 0 <= record["confidence"] <= 1
    assert record["remark"] == "The input was read as 'karala'."
    assert "input 1: The input was read as 'karala'." in done.stderr
    record = json.loads(run("karala", "--model", str(trained), "--json", "--min-confidence", "0.99999").stdout)
    assert set(record) == {"input", "error", "withheld", "confidence"}
    assert "give both" in str(run("karala", "--withheld", str(listed)).exception)


def test_an_existing_folder_is_calibrated_by_a_file(trained: Path, tmp_path: Path) -> None:
    copy, file = tmp_path / "copy", tmp_path / "pairs.tsv"
    model = seq2see.load(trained)
    model.confidence = None
    model.save(copy)
    words = [word + other for word in WORDS for other in ("ka", "lo", "mi")]
    file.write_text("".join(f"{word}\t{word.upper()}\n" for word in words) + "日本\tX\n")
    done = CliRunner().invoke(app, ["calibrate", str(copy), "--file", str(file)])
    assert done.exit_code == 0, (done.output, done.exception)
    said = "1 pair left out, since the model does not take the source. The first: The model has never seen '日', '本'."
    assert said in done.stderr.replace("\n", " ")
    assert "fitted on                    144 sources" in done.stdout
    loaded = seq2see.load(copy)
    assert loaded.confidence is not None
    assert loaded.confidence.measured.pairs == 144
    assert loaded.card.count("## Confidence") == 1
    first = loaded.card
    done = CliRunner().invoke(app, ["calibrate", str(copy), "--file", str(file), "--chrf", "30", "--json"])
    assert json.loads(done.stdout)["criterion"] == "chrf"
    again = seq2see.load(copy)
    assert again.card.count("## Confidence") == 1
    assert again.card.partition("## Confidence")[0] == first.partition("## Confidence")[0]
    assert "a chrF of at least 30" in again.card
    file.write_text("karala\tKARALA\n")
    refused = CliRunner().invoke(app, ["calibrate", str(copy), "--file", str(file)])
    assert "1 source that the model takes, and 1 of the answers are complete: 50 or more" in str(refused.exception)


# --- what resembles the training -------------------------------------------------------------------------------------


def test_a_text_unlike_the_others_is_told_by_length_characters_and_likelihood() -> None:
    learned = Familiar.learn(WORDS[::2], 6, WORDS[1::2])
    assert all(learned.why_not(word, 6) == "" for word in WORDS)
    assert "has 7 tokens, but the longest of the training has 6" in learned.why_not(WORDS[0], 7)
    assert "'z' (U+007A)" in learned.why_not("karazu", 6)
    assert "differs from those" in learned.why_not("aaakkk", 6)
    assert learned.why_not("aaakkk", 6, surprise=False) == ""
    assert Familiar.of_json(json.loads(json.dumps(learned.to_json()))) == learned
    # Where held-out texts have new characters all the time, a new one says nothing.
    assert Familiar.learn(["aa", "ab"], 9, ["ac", "ad"]).letters == frozenset()


@pytest.mark.parametrize(
    ("tokenizer", "text", "read"),
    [
        (Tokenizer.characters_of(["abcdef' -"]), "Ábc’D–é", "abc'd-e"),
        (Tokenizer.characters_of(["ABC"]), "abC", "ABC"),
        (Tokenizer.characters_of(["abcABC"]), "aBc", "aBc"),  # nothing is unknown
        (Tokenizer.characters_of(["stra"]), "straß", "strass"),
        (Tokenizer.characters_of(["fi12"]), "ﬁ①２", "fi12"),
        (Tokenizer.characters_of(["abc"]), "ab日", "ab日"),
        (Tokenizer.symbols(["K AE T"]), "k ae t", "K AE T"),
        (Tokenizer.features(["walk <V>"]), "WALK <v>", "walk <V>"),
        (Tokenizer.bytes(), "É", "É"),
    ],
)
def test_unknown_characters_are_written_in_known_ones(tokenizer: Tokenizer, text: str, read: str) -> None:
    assert fold_unknown(tokenizer, text) == read


def test_en_fr_knows_how_sure_it_is_and_what_is_no_english() -> None:
    model = seq2see.load("en-fr")
    assert model.confidence is not None
    assert model.confidence.criterion == "chrf"
    assert model.confidence.measured.error < 0.03
    assert f"| expected calibration error, 10 bins | {model.confidence.measured.error:.2%} |" in model.card
    sure, remark = model.answerer.judged("Where is the station?", [-0.01] * 8, True)
    unsure, _ = model.answerer.judged("Where is the station?", [-1.5] * 8, True)
    assert (sure or 0) > 0.7 > 0.3 > (unsure or 1)
    assert remark is None
    for text in ("ʇxǝʇ uʍop ǝpᴉsdn", "私は学生です", "¿Dónde está la estación?"):
        assert model.answerer.judged(text, [-0.01] * 8, True)[0] is None


@pytest.mark.parametrize(("fitted", "least", "warns"), [(499, 0.5, True), (500, 0.5, False), (499, 0.0, False)])
def test_a_confidence_that_was_fitted_on_few_pairs_is_used_with_a_warning(
    fitted: int, least: float, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    model: Any = SimpleNamespace(config=SimpleNamespace(task="pairs"), confidence=SimpleNamespace(fitted_on=fitted))
    Answerer.check_options(model, Options(min_confidence=least))
    assert [f"fitted on only {fitted} pairs" in line for line in caplog.messages] == [True] * warns


@pytest.mark.parametrize("right", [[True] * 3 + [False], [True] * 5, [False] * 2, [True, False, False]])
def test_the_targets_are_those_of_platt(right: list[bool]) -> None:
    """Figures that never change say nothing: what is left is the mean of the targets, n+1 of n+2 and 1 of n+2."""
    count = len(figures_of([-0.1]))
    good, bad = sum(right), len(right) - sum(right)
    mean = (good * (good + 1) / (good + 2) + bad / (bad + 2)) / len(right)
    weights = fit([[0.0] * count] * len(right), right, believed=False)
    assert probability(weights, [0.0] * count) == pytest.approx(mean, abs=1e-6)


def test_saving_keeps_it_and_another_model_loses_it(trained: Path, tmp_path: Path) -> None:
    model = seq2see.load(trained)
    model.save(tmp_path / "copy")
    assert seq2see.load(tmp_path / "copy").confidence == model.confidence
    model.confidence = None
    model.save(tmp_path / "copy", overwrite=True)
    assert seq2see.load(tmp_path / "copy").confidence is None
    few = seq2see.fit([("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")], training={"steps": 1}, model=TINY)
    assert few.confidence is None


def test_the_server_withholds_too(trained: Path) -> None:
    with TestClient(create_app({"mine": seq2see.load(trained)}), base_url="http://localhost") as client:
        form = {"inputs": ["karala", "KARALA"], "min_confidence": 0.99999}
        [one, other] = client.post("/api/predict", json=form).json()["answers"]
        assert one["withheld"] == other["withheld"]
        assert "It was withheld." in one["error"]
        [given] = client.post("/api/predict", json={"inputs": "KARALA"}).json()["answers"]
        assert given["remark"] == "The input was read as 'karala'."
        assert given["confidence"] == pytest.approx(one["confidence"], rel=1e-4)
        assert client.post("/api/predict", json={"inputs": "x", "min_confidence": 2}).status_code == 422
        traced = client.post("/api/trace", json={"input": "KARALA", "names": []}).json()
        assert traced["remark"] == given["remark"]
        assert traced["confidence"] == pytest.approx(given["confidence"], abs=1e-3)
