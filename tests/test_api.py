"""The public names, and the object that people hold."""

from __future__ import annotations

import doctest
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import seq2see
from seq2see import seq2seq
from seq2see.errors import InputError, RefusedInputs, UserError

FOUR = ["1845-01-05", "1845-01-06", "1426-08-10", "2025-09-03"]
ANSWERS = ["January 5, 1845", "January 6, 1845", "August 10, 1426", "September 3, 2025"]


@pytest.fixture(scope="module")
def model() -> seq2see.Seq2Seq:
    return seq2see.load("dates")


def test_public_names_are_frozen() -> None:
    assert seq2see.__all__ == [
        "Answer", "Config", "Evaluation", "ModelConfig", "RefusedInputs", "Seq2Seq", "Trace", "TrainingConfig",
        "Transformer", "UserError", "fit", "load", "trace",
    ]  # fmt: skip
    for name in seq2see.__all__:
        assert getattr(seq2see, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = seq2see.nothing


def test_importing_the_package_does_not_import_torch() -> None:
    code = "import sys, seq2see; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_docstring_examples_run() -> None:
    result = doctest.testmod(seq2seq)
    assert result.attempted > 3
    assert result.failed == 0


def test_the_documents_dates(model: seq2see.Seq2Seq) -> None:
    assert model.predict(FOUR) == ANSWERS
    assert model.predict(FOUR, beam=4) == ANSWERS
    assert [model(text) for text in FOUR] == ANSWERS


def test_002_cd9bd9446ef9fb85_raw_form_of_the_predictions(model: seq2see.Seq2Seq) -> None:
    assert [model.raw(answer) for answer in model.answers(FOUR)] == [
        "<sos>January 5, 1845<eos><pad><pad>",
        "<sos>January 6, 1845<eos><pad><pad>",
        "<sos>August 10, 1426<eos><pad><pad>",
        "<sos>September 3, 2025<eos>",
    ]


def test_an_answer_says_how_sure_it_is(model: seq2see.Seq2Seq) -> None:
    (answer,) = model.answers(["1845-01-05"], beam=3, n_best=3)
    assert answer.output == "".join(token.token for token in answer.tokens[:-1]) == "January 5, 1845"
    assert answer.tokens[-1].token == "<eos>"
    assert answer.probability is not None
    assert 0.99 < answer.probability <= 1
    assert len(answer.alternatives) == 2
    assert all(alternative.log_probability < answer.log_probability for alternative in answer.alternatives)


def test_bad_inputs_do_not_keep_the_others_from_being_answered(model: seq2see.Seq2Seq) -> None:
    texts = ["1845-01-05", "2023-02-30", "x" * 10_000, "2025-09-03"]
    with pytest.raises(RefusedInputs, match="2 of 4 inputs were refused") as caught:
        model.predict(texts)
    assert caught.value.outputs == ["January 5, 1845", None, None, "September 3, 2025"]
    assert set(caught.value.reasons) == {1, 2}
    assert [answer.error is None for answer in model.answers(texts)] == [True, False, False, True]
    with pytest.raises(InputError, match="February 2023 has 28 days"):
        model("2023-02-30")


def test_a_network_in_training_mode_answers_and_scores_all_the_same(model: seq2see.Seq2Seq) -> None:
    config = replace(model.config, model=model.config.model.but(dropout=0.5))
    network = seq2see.Transformer(config.model)
    trained = seq2see.Seq2Seq(config, model.tokenizers, network)
    network.eval()
    pair = [("1845-01-05", "May 1, 1999")]
    expected = trained.predict(FOUR), trained.predict(FOUR, beam=2), trained.score(pair)
    network.train()
    assert (trained.predict(FOUR), trained.predict(FOUR, beam=2), trained.score(pair)) == expected
    assert network.training


def test_texts_are_read_as_they_were_trained_on() -> None:
    model = seq2see.load("en-fr")
    untidy = ["I love\u00a0you.", "I\tlove you.", " I love  you. "]
    assert model.predict(untidy) == [model("I love you.")] * 3
    assert [answer.input for answer in model.answers(untidy)] == untidy
    assert model.trace(untidy[0]).text == "I love you."
    pair = ("I love you.", "Je t'aime.")
    assert model.score([(untidy[1], "Je  t'aime.\n")]) == model.score([pair])
    assert (
        model.align([(untidy[2], "Je t'aime.")])
        == model.align(model.answers(untidy[2:]))
        == model.align([pair])
    )


def test_generators_and_iterators_do(model: seq2see.Seq2Seq) -> None:
    assert model.predict(date for date in FOUR) == ANSWERS
    assert [answer.output for answer in model.answers(iter(FOUR))] == ANSWERS
    assert model.evaluate(zip(FOUR, ANSWERS, strict=True)).exact == 4


@pytest.mark.parametrize(("pairs", "message"), [
    ("ab", "Pairs of texts were expected, but"), (["ab", "cd"], "Pair 1 is 'ab': two texts were expected"),
    ([("a", "b"), ("a", "b", "c")], "Pair 2 is"), ([("a", None)], "Pair 1 holds None of"),
    ([(1, 2)], "Pair 1 holds 1 of type int"),
    ([("a", "\ud800")], "half a character"),
    ([(" ", "b")], "Pair 1 has an empty source"), (None, "Pairs of texts were expected, but"),
])  # fmt: skip
def test_what_is_no_pair_is_named(model: seq2see.Seq2Seq, pairs: Any, message: str) -> None:
    for use in (model.score, model.evaluate, seq2see.fit):
        with pytest.raises(UserError, match=message):
            use(pairs)


def test_fit_says_what_is_wrong(model: seq2see.Seq2Seq) -> None:
    pairs = [("a", "b")] * 9
    with pytest.raises(UserError, match="of different sources"):
        seq2see.fit(pairs)
    with pytest.raises(UserError, match="'cpu' or 'cuda' was expected"):
        seq2see.fit(pairs, device="gpu")
    with pytest.raises(UserError, match=r"has 'é' .* The tokenizer is that of the model"):
        seq2see.fit([(f"é{n}", "b") for n in range(9)], start="dates")
    with pytest.raises(UserError, match="Answer 1 cannot be aligned"):
        model.align(model.answers(["no date"]))
    with pytest.raises(UserError, match="Pair 2 is"):
        model.align([("1845-01-05", "May 1, 1999"), "1845-01-05"])


def test_a_model_is_not_saved_over_other_things(model: seq2see.Seq2Seq, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(UserError, match="is a file"):
        model.save(tmp_path / "thesis.txt")
    with pytest.raises(UserError, match="not empty, and holds no model"):
        model.save(tmp_path)
    model.save(tmp_path / "new")
    model.save(tmp_path / "new")
    assert seq2see.load(tmp_path / "new")("1845-01-05") == "January 5, 1845"


def test_scoring_does_not_change_what_answers() -> None:
    model = seq2see.load("dates")
    before = model.engine_for(1).name
    model.score([("1845-01-05", "January 5, 1845")])
    assert model.engine_for(1).name == before


def test_order_and_answers_do_not_depend_on_the_batch(model: seq2see.Seq2Seq) -> None:
    from seq2see.data.dates import all_ordinals, pairs_of

    pairs = pairs_of(all_ordinals()[::4001])
    assert model.predict([source for source, _ in pairs]) == [target for _, target in pairs]
    assert model.predict([]) == []


def test_a_beam_is_as_wide_as_the_answers_asked_for(model: seq2see.Seq2Seq) -> None:
    answer = model.answers(["1845-01-05"], n_best=3)[0]
    assert answer.output == "January 5, 1845"
    assert answer.alternatives == model.answers(["1845-01-05"], beam=3, n_best=3)[0].alternatives
    assert len(answer.alternatives) == 2


def test_a_pair_that_cannot_be_scored_is_named(model: seq2see.Seq2Seq) -> None:
    good = ("1845-01-05", "January 5, 1845")
    with pytest.raises(UserError, match="Pair 2: 'août' has 'û'"):
        model.evaluate([good, ("1845-08-05", "août")])
    with pytest.raises(UserError, match="Pair 3: The target has 102 tokens, but this model takes at most 65"):
        model.evaluate([good, good, ("1845-08-05", "M" * 100)])
    assert model.evaluate([good]).exact == 1


def test_a_device_that_is_not_there_is_said() -> None:
    if not torch.cuda.is_available():
        with pytest.raises(UserError, match="device is 'cuda', but PyTorch sees no GPU"):
            seq2see.load("dates", device="cuda")
    with pytest.raises(UserError, match="device is 'gpu'"):
        seq2see.load("dates", device="gpu")


@pytest.mark.parametrize(("arguments", "message"), [
    ({"beam": 0}, "at least 1"), ({"n_best": 0}, "at least 1"),
])  # fmt: skip
def test_bad_arguments_are_explained(model: seq2see.Seq2Seq, arguments: dict[str, int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        model.answers(["1845-01-05"], **arguments)
    with pytest.raises(UserError, match="A list of texts was expected"):
        model.predict("1845-01-05")


def test_evaluate_counts_misses(model: seq2see.Seq2Seq) -> None:
    scores = model.evaluate([("1845-01-05", "January 5, 1845"), ("1845-01-06", "January 7, 1845")])
    assert (scores.pairs, scores.exact, scores.edits) == (2, 1, 1)
    assert scores.character_error_rate == pytest.approx(1 / 30)
    assert scores.misses == [("1845-01-06", "January 7, 1845", "January 6, 1845")]
    assert scores.loss > 0.1


def test_a_model_says_what_it_is() -> None:
    model = seq2see.load("dates")
    assert repr(model) == (
        "<Seq2Seq dates: 18,692 parameters, 2+2 layers, 4 heads, d_model 16, characters → characters, on cpu>"
    )


def test_a_refused_text_may_be_none_instead_of_an_error(model: seq2see.Seq2Seq) -> None:
    with pytest.raises(seq2see.RefusedInputs) as refused:
        model.predict(["1845-01-05", "no date", "1845-01-06"])
    assert refused.value.outputs == ["January 5, 1845", None, "January 6, 1845"]
    assert list(refused.value.reasons) == [1]
    assert model.predict(["1845-01-05", "no date"], on_error="none") == ["January 5, 1845", None]
    with pytest.raises(UserError, match="on_error is 'ignore'"):
        model.predict(["1845-01-05"], on_error="ignore")


def test_edit_distance() -> None:
    from seq2see.evaluate import edit_distance

    assert [edit_distance(*pair) for pair in (("", ""), ("a", ""), ("kitten", "sitting"), ("ab", "ba"))] == [
        0,
        1,
        3,
        2,
    ]


def test_fit_learns_something_new() -> None:
    pairs = [(f"{n:02}", f"{n:02}"[::-1]) for n in range(100)]
    fitted = seq2see.fit(
        pairs, training={"steps": 120, "batch_tokens": 640, "warmup": 30, "evaluate_every": 120}
    )
    assert fitted.evaluate(pairs).exact_match > 0.9
    assert "exact match" in fitted.card
    with pytest.raises(InputError, match="'x'"):
        fitted("1x2")


def test_fit_refuses_what_cannot_be_learned_from() -> None:
    with pytest.raises(UserError, match="too few"):
        seq2see.fit([("a", "b")])
    with pytest.raises(UserError, match="Did you mean 'steps'"):
        seq2see.fit([("a", "b"), ("c", "d")], training={"stesp": 3})


def test_the_shipped_model_is_right_far_beyond_the_documents_years(model: seq2see.Seq2Seq) -> None:
    """Theirs: 99.6 % of 1000-2025, 41 % of 2026-2999, 0.6 % of 3000-9999. `make verify` tries all 3,287,182."""
    import numpy as np

    from seq2see.data.dates import all_ordinals, pairs_of

    for years in ((1000, 2025), (2026, 2999), (3000, 9999)):
        sample = np.random.default_rng(5).choice(all_ordinals(*years), 1000, replace=False)
        assert model.evaluate(pairs_of(sample)).exact == 1000
