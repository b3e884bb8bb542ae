"""The public names, and the object that people hold."""

from __future__ import annotations

import doctest
import signal
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
from seq2see.tokenizers.folding import SLOTS

FOUR = ["1845-01-05", "1845-01-06", "1426-08-10", "2025-09-03"]
ANSWERS = ["January 5, 1845", "January 6, 1845", "August 10, 1426", "September 3, 2025"]


@pytest.fixture(scope="module")
def model() -> seq2see.Seq2Seq:
    return seq2see.load("dates")


def test_public_names_are_frozen() -> None:
    assert seq2see.__all__ == [
        "Answer", "Config", "Evaluation", "ModelConfig", "Options", "RefusedInputs", "Seq2Seq", "Trace", "TrainingConfig",
        "Transformer", "UserError", "fill", "fit", "like", "load", "trace",
    ]  # fmt: skip
    for name in seq2see.__all__:
        assert getattr(seq2see, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = seq2see.nothing


def test_methods_of_a_model_are_frozen() -> None:
    assert [name for name in vars(seq2see.Seq2Seq) if not name.startswith("_")] == [
        "load", "transformer", "history", "to", "config", "confidence", "device", "path", "save", "predict", "answers",
        "translate", "evaluate", "log_probabilities", "align", "trace",
    ]  # fmt: skip


def test_options_are_one_object_or_keywords(model: seq2see.Seq2Seq) -> None:
    options = seq2see.Options(only=["June 5, 1845", "January 5, 1854"])
    assert model.predict(["1845-01-05"], options) == ["January 5, 1854"]
    assert model.answers(["1845-01-05"], options)[0].output == "January 5, 1854"
    assert options == seq2see.Options(only=("June 5, 1845", "January 5, 1854"))
    with pytest.raises(UserError, match="`beam` was given beside an Options object"):
        model.predict(["1845-01-05"], options, beam=3)
    with pytest.raises(TypeError, match=r"no option 'bean'\. The options are: beam, length_penalty"):
        model.predict(["1845-01-05"], bean=3)
    with pytest.raises(UserError, match="`options` is 2: an Options object was expected"):
        model.predict(["1845-01-05"], 2)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="`format` is for one document"):
        model.predict(["1845-01-05"], format="html")
    for name, value in {"n_best": 2, "min_confidence": 0.5, "order": "day", "whole": True, "prefix": "J"}.items():
        with pytest.raises(UserError, match=f"`{name}` does not apply to a document"):
            model.translate("One.", **{name: value})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (dict(n_best=0), "n_best is 0"),
        (dict(only="one text"), "A list of texts was expected"),
        (dict(pattern=""), "`pattern` is ''"),
        (dict(pattern="a", prefix="b"), "More than one of"),
        (dict(glossary={"a": "b"}, prefix="b"), "`glossary` cannot be used together"),
        (dict(glossary={"a": "b"}, n_best=2), "leave `n_best` out"),
    ],
)
def test_options_check_themselves(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        seq2see.Options(**given)


def test_importing_the_package_does_not_import_torch() -> None:
    code = "import sys, seq2see; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("name", seq2see.__all__)
def test_every_public_name_has_an_example_that_runs(name: str) -> None:
    found = getattr(seq2see, name)
    finder = doctest.DocTestFinder(recurse=False)
    (example,) = finder.find(found, name, module=sys.modules[found.__module__])
    assert example.examples, f"the docstring of {name} has no example"
    assert doctest.DocTestRunner().run(example).failed == 0


def test_the_examples_of_methods_run() -> None:
    result = doctest.testmod(seq2seq)
    assert result.attempted > 3
    assert result.failed == 0


def test_the_documents_dates(model: seq2see.Seq2Seq) -> None:
    assert model.predict(FOUR) == ANSWERS
    assert model.predict(FOUR, beam=4) == ANSWERS
    assert [model(text) for text in FOUR] == ANSWERS


def test_an_answer_says_how_sure_it_is(model: seq2see.Seq2Seq) -> None:
    (answer,) = model.answers(["1845-01-05"], beam=3, n_best=3)
    assert answer.output == "".join(token.token for token in answer.tokens[:-1]) == "January 5, 1845"
    assert answer.tokens[-1].token == "<eos>"
    assert answer.probability is not None
    assert 0.99 < answer.probability <= 1
    assert len(answer.alternatives) == 2
    assert all(alternative.log_probability < answer.log_probability for alternative in answer.alternatives)


def test_the_first_answer_has_the_score_that_ranks_it_too(model: seq2see.Seq2Seq) -> None:
    for penalty in (0.0, 0.6):
        (answer,) = model.answers(["1845-01-05"], n_best=4, length_penalty=penalty)
        ranks = [answer.score, *(other.score for other in answer.alternatives)]
        assert None not in ranks
        assert ranks == sorted(ranks, key=lambda rank: -(rank or 0.0))
        assert (answer.score == pytest.approx(answer.log_probability)) == (penalty == 0)
        assert model.answers(["1845-01-05"], n_best=4, length_penalty=penalty, probabilities=False) == [answer]


def test_predict_gives_one_answer_and_names_what_gives_several(model: seq2see.Seq2Seq) -> None:
    with pytest.raises(
        UserError, match=r"`n_best` is 3, but `predict` gives one .* `model\.answers\(texts, n_best=3\)`"
    ):
        model.predict(["1845-01-05"], beam=5, n_best=3)


def test_bad_inputs_do_not_keep_the_others_from_being_answered(model: seq2see.Seq2Seq) -> None:
    texts = ["1845-01-05", "2023-02-30", "x" * 10_000, "2025-09-03"]
    right = ["January 5, 1845", None, None, "September 3, 2025"]
    with pytest.warns(UserWarning, match="2 of 4 inputs were refused:\ninput 2: .*\ninput 3: ") as warned:
        assert model.predict(texts) == right
    assert len(warned) == 1
    with pytest.raises(RefusedInputs, match="2 of 4 inputs were refused") as caught:
        model.predict(texts, strict=True)
    assert caught.value.outputs == right
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
    expected = trained.predict(FOUR), trained.predict(FOUR, beam=2), trained.log_probabilities(pair)
    network.train()
    assert (trained.predict(FOUR), trained.predict(FOUR, beam=2), trained.log_probabilities(pair)) == expected
    assert network.training


def test_texts_are_read_as_they_were_trained_on() -> None:
    model = seq2see.load("en-fr")
    untidy = ["I love\u00a0you.", "I\tlove you.", " I love  you. "]
    assert model.predict(untidy) == [model("I love you.")] * 3
    assert [answer.input for answer in model.answers(untidy)] == untidy
    assert model.trace(untidy[0]).text == "I love you."
    pair = ("I love you.", "Je t'aime.")
    assert model.log_probabilities([(untidy[1], "Je  t'aime.\n")]) == model.log_probabilities([pair])
    assert model.align([(untidy[2], "Je t'aime.")]) == model.align(model.answers(untidy[2:])) == model.align([pair])


def test_generators_and_iterators_do(model: seq2see.Seq2Seq) -> None:
    assert model.predict(date for date in FOUR) == ANSWERS
    assert [answer.output for answer in model.answers(iter(FOUR))] == ANSWERS
    assert model.evaluate(zip(FOUR, ANSWERS, strict=True)).exact == 4


@pytest.mark.parametrize(("pairs", "message"), [
    ({"a", "b"}, "Pair 1 is '[ab]': two texts were expected"), (["ab", "cd"], "Pair 1 is 'ab': two texts were expected"),
    ([("a", "b"), ("a", "b", "c")], "Pair 2 is"), ([("a", None)], "Pair 1 holds None of"),
    ([(1, 2)], "Pair 1 holds 1 of type int"),
    ([("a", "\ud800")], "half a character"),
    ([(" ", "b")], "Pair 1 has an empty source"), (None, "Pairs of texts were expected, but"),
])  # fmt: skip
def test_what_is_no_pair_is_named(model: seq2see.Seq2Seq, pairs: Any, message: str) -> None:
    for use in (model.log_probabilities, model.evaluate, seq2see.fit):
        with pytest.raises(UserError, match=message):
            use(pairs)


def test_fit_says_what_is_wrong(model: seq2see.Seq2Seq) -> None:
    pairs = [("a", "b")] * 9
    with pytest.raises(UserError, match=r"of 9 pairs .* at least 3 different sources"):
        seq2see.fit(pairs)
    with pytest.raises(UserError, match="auto, cpu, cuda, cuda:1 or mps was expected"):
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
    with pytest.raises(UserError, match="already holds a finished model"):
        model.save(tmp_path / "new")
    model.save(tmp_path / "new", overwrite=True)
    assert seq2see.load(tmp_path / "new")("1845-01-05") == "January 5, 1845"


def test_order_and_answers_do_not_depend_on_the_batch(model: seq2see.Seq2Seq) -> None:
    from seq2see.tasks.dates import all_ordinals, pairs_of

    pairs = pairs_of(all_ordinals()[::4001])
    assert model.predict([source for source, _ in pairs]) == [target for _, target in pairs]
    assert model.predict([]) == []


def test_a_beam_is_as_wide_as_the_answers_asked_for(model: seq2see.Seq2Seq) -> None:
    answer = model.answers(["1845-01-05"], n_best=3)[0]
    assert answer.output == "January 5, 1845"
    assert answer.alternatives == model.answers(["1845-01-05"], beam=3, n_best=3)[0].alternatives
    assert len(answer.alternatives) == 2


def test_a_pair_that_the_model_cannot_take_counts_as_wrong(model: seq2see.Seq2Seq) -> None:
    good = ("1845-01-05", "January 5, 1845")
    alone = model.evaluate([good])
    for other in (("1845-08-05", "août"), ("1845-08-05", "M" * 100), ("1845年", "x"), ("1" * 99, "x")):
        scores = model.evaluate([good, other])
        assert (scores.pairs, scores.exact) == (2, 1)
        assert scores.loss == pytest.approx(alone.loss)  # that of the pairs that can be written in the vocabulary
    assert model.evaluate([("1845年", "x")]).given == [""]


@pytest.mark.parametrize(("arguments", "message"), [
    ({"beam": 0}, "at least 1"), ({"n_best": 0}, "from 1 to 100"),
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


@pytest.mark.parametrize("beam", [1, 3])
def test_answers_are_restricted_with_any_beam(model: seq2see.Seq2Seq, beam: int) -> None:
    texts = ["1845-01-05", "2025-09-03"]
    assert all(found.startswith("May") for found in model.predict(texts, beam=beam, prefix="May"))
    answers = model.answers(texts, beam=beam, only=["July 4, 1776", "May 1, 1999"])
    assert {answer.output for answer in answers} <= {"July 4, 1776", "May 1, 1999"}


def test_a_model_says_what_it_is() -> None:
    model = seq2see.load("dates")
    assert model.network.engine == seq2see.Seq2Seq.load("dates").network.engine == "auto"
    assert repr(model) == (
        "<Seq2Seq dates: 18,692 parameters, 2+2 layers, 4 heads, d_model 16, characters → characters, on cpu>"
    )


def test_fit_learns_something_new() -> None:
    pairs = [(f"{n:02}", f"{n:02}"[::-1]) for n in range(100)]
    quick = {"steps": 120, "batch_tokens": 640, "warmup": 30, "learning_rate": 0.003, "muon": 0.0,
             "chained": 0.0, "guided": 0.0, "label_smoothing": 0.0}  # fmt: skip
    shape = {"d_model": 64, "d_ff": 256, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.1}
    fitted = seq2see.fit(pairs, model=shape, training=quick)
    assert fitted.evaluate(pairs).exact_match > 0.9
    assert "exact match" in fitted.card
    with pytest.raises(InputError, match="'α'"):
        fitted("αβγδεζηθικ")  # more unknown characters than there are slots


def test_fit_refuses_what_cannot_be_learned_from() -> None:
    with pytest.raises(UserError, match=r"of 1 pair some are set aside .* at least 3 different sources"):
        seq2see.fit([("a", "b")])
    with pytest.raises(UserError, match="Did you mean 'steps'"):
        seq2see.fit([("a", "b"), ("c", "d"), ("e", "f")], training={"stesp": 3})


LITTLE = {"steps": 6, "batch_tokens": 200, "checkpoint_every": 2, "evaluate_every": 3, "evaluate_on": 3}
SMALL = {"d_model": 8, "heads": 2, "d_ff": 8, "encoder_layers": 1, "decoder_layers": 1}
PAIRS = [(f"{n:02}", f"{n:02}"[::-1]) for n in range(40)]


def little(data: Any = PAIRS, **arguments: Any) -> seq2see.Seq2Seq:
    """Train for a few steps. An untrained model does not end its answers: they are cut."""
    return seq2see.fit(data, **{"model": SMALL, "training": LITTLE, "decoding": {"max_length": 4}, **arguments})


def same(a: seq2see.Seq2Seq, b: seq2see.Seq2Seq) -> bool:
    ours, theirs = dict(a.transformer.named_parameters()), dict(b.transformer.named_parameters())
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


class Columns:
    """A stand-in for a table: ``columns`` as frames have it, or ``column_names`` as a dataset."""

    def __init__(self, name: str, **columns: list[Any]) -> None:
        setattr(self, name, list(columns))
        self.held = columns

    def __getitem__(self, name: str) -> list[Any]:
        return self.held[name]


def test_fit_takes_pairs_in_every_form(tmp_path: Path) -> None:
    import pandas
    import polars

    sources, targets = ([pair[side] for pair in PAIRS] for side in (0, 1))
    table = {"en": sources, "fr": targets}
    for name, side in table.items():
        (tmp_path / f"x.{name}").write_text("\n".join(side) + "\n")
    tsv = tmp_path / "x.tsv"
    tsv.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS))
    short = {**LITTLE, "steps": 1, "evaluate_every": 1}
    expected = little(training=short)
    with_id = {"id": list(range(40)), **table}
    for data, columns in (
        (tuple(PAIRS), None), ((pair for pair in PAIRS), None), (table, None), (with_id, ("en", "fr")),
        ([{"en": a, "fr": b} for a, b in PAIRS], None), ([{"x": 1, "source": a, "target": b} for a, b in PAIRS], None),
        (str(tsv), None), (tsv, None), ((tmp_path / "x.en", tmp_path / "x.fr"), None),
        (pandas.DataFrame(table), None), (pandas.DataFrame(with_id), ("en", "fr")),
        (polars.DataFrame(table), None), (polars.DataFrame(with_id), ("en", "fr")),
        (Columns("column_names", **table), None), (Columns("columns", **with_id), ("en", "fr")),
        (Columns("column_names", translation=[{"en": a, "fr": b} for a, b in PAIRS]), None),
    ):  # fmt: skip
        assert same(little(data, columns=columns, training=short), expected), type(data)


@pytest.mark.parametrize(("data", "columns", "message"), [
    ({"id": ["1"], "en": ["a"], "fr": ["b"]}, None, r"3 columns \(id, en, fr\), and two .* columns=\('id', 'en'\)"),
    ({"en": ["a"]}, None, r"1 column \(en\), and two"),
    ({"en": ["a"], "fr": ["b"]}, ("en", "de"), "`columns` names 'de', which the data does not have. Known: en, fr"),
    ({"en": ["a"], "fr": ["b"]}, ("en",), "two names or numbers were expected"),
    ({"en": ["a", "b"], "fr": ["b"]}, None, "2 and 1 rows"),
    ([{"en": "a", "fr": "b"}, {"en": "a"}], None, "Pair 2 holds None"),
    ([("a", "b")], ("en", "fr"), "no named columns"),
    (Path("no-such-file.tsv"), None, "no file"),
    ({"train": Columns("column_names"), "test": Columns("column_names")}, None, "the splits train, test: give one"),
])  # fmt: skip
def test_fit_says_what_is_wrong_with_a_table(data: Any, columns: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        little(data, columns=columns)


def test_validation_and_test_are_kept_apart() -> None:
    seen: list[Any] = []
    fitted = little(on_step=seen.append)
    assert "| measured on test pairs never seen | |\n|---|---|\n| pairs | 4 |" in fitted.card
    assert "| validated on | 1 pair, no source in two parts |" in fitted.card
    assert "35 for training, 1 for validation, 4 for the test" in fitted.card
    assert "| trained on | 35 pairs, 6 steps" in fitted.card
    assert [step.step for step in seen] == [1, 2, 3, 4, 5, 6]
    assert [step.line is not None for step in seen] == [False, False, True] * 2
    given = little(validation=PAIRS[:3], test={"a": ["01", "77"], "b": ["10", "77"]})
    assert "40 for training, 3 for validation, 2 for the test, as given" in given.card
    told = "3 pairs, 3 validation pairs (100.0%) and 1 test pair (50.0%) with a training source"
    assert told in given.card
    assert "| exact match on the 1 pairs whose source is not in the training |" in given.card
    assert "never seen" not in given.card
    half = little(validation=PAIRS[:3])
    assert (
        "3 for validation, 4 for the test, the validation as given, the test split off by source with seed 1;"
        in half.card
    )
    same = little(validation=PAIRS[:3], test=PAIRS[1:4], unseen=True)
    assert "no validation or test source is in the training; 2 test pairs with a validation source |" in same.card
    assert "| measured on test pairs whose sources are not in this training | |" in same.card
    apart = little(validation=PAIRS[:3], test={"a": ["01", "77"], "b": ["10", "77"]}, unseen=True)
    assert "37 for training, 3 for validation, 2 for the test, as given" in apart.card
    assert "no validation or test source is in the training; 1 test pair with a validation source |" in apart.card


@pytest.mark.parametrize(("arguments", "message"), [
    ({"vocabulary": 5}, "^`vocabulary` is 5: at least 8"),
    ({"vocabulary": 50}, "^`vocabulary` is 50, but .* set `tokenizer` to"),
    ({"tokenizer": "words", "vocabulary": 600}, "^`vocabulary` is 600, but 35 pairs have"),
    ({"training": {"steps": 5, "budget": 3}}, r"^steps \(5\) and budget \(3 s\) both say how long"),
    ({"resume": True}, "^`resume` .* with `out`"), ({"device": "gpu"}, "^`device` is 'gpu'"),
    ({"preset": "bse"}, "Did you mean 'base'"), ({"start": "dates", "tokenizer": "bpe"}, "but `start` has a tokenizer"),
])  # fmt: skip
def test_fit_names_the_argument(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        little(**arguments)


def test_fit_takes_typed_configs() -> None:
    shape = seq2see.ModelConfig.of(**SMALL, share_embeddings=False, share_output=False)
    fitted = little(model=shape, training=seq2see.TrainingConfig.of(**LITTLE, warmup=2))
    assert fitted.config.training.warmup == 2
    assert fitted.config.model.max_length == 1024
    assert fitted.config.model.source_vocabulary == fitted.tokenizers.source.size == 13 + len(SLOTS)
    short = seq2see.TrainingConfig.of(budget=1.0, batch_tokens=200)
    assert little(model=shape, training=short).config.training.steps > 1


def test_fit_writes_and_resumes_a_folder(tmp_path: Path) -> None:
    whole = little(out=tmp_path / "whole")
    assert same(seq2see.load(tmp_path / "whole"), whole)
    assert seq2see.load(tmp_path / "whole").card == whole.card
    assert same(little(out=tmp_path / "whole", resume=True), whole)  # nothing is left to do
    with pytest.raises(UserError, match="name another folder with `out`"):
        little(out=tmp_path / "whole")

    def fail(step: Any) -> None:
        if step.step == 3:
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine") as caught:
        little(out=str(tmp_path / "half"), on_step=fail)
    broken = caught.value.model  # type: ignore[attr-defined]
    assert "3 of 6 steps, then it was stopped" in broken.card
    assert "not tested" in broken.card
    assert isinstance(broken("12"), str)
    assert not same(broken, whole)
    resumed = little(out=tmp_path / "half", resume=True)
    assert same(resumed, whole)


@pytest.mark.parametrize("how", ["signal", "exception"])
def test_an_interrupted_fit_returns_the_model_so_far(how: str, tmp_path: Path) -> None:
    def interrupt(step: Any) -> None:
        if step.step == 3:
            if how == "exception":
                raise KeyboardInterrupt
            signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with pytest.warns(UserWarning, match="interrupted after step 3: the model is not tested"):
        stopped = little(out=tmp_path / "run", on_step=interrupt)
    assert signal.getsignal(signal.SIGINT) is before
    assert "3 of 6 steps, then it was stopped" in stopped.card
    assert isinstance(stopped("12"), str)
    assert same(little(out=tmp_path / "run", resume=True), little())


def test_the_shipped_model_is_right_far_beyond_the_documents_years(model: seq2see.Seq2Seq) -> None:
    """Theirs: 99.6 % of 1000-2025, 41 % of 2026-2999, 0.6 % of 3000-9999. `make verify` tries all 3,287,182."""
    import numpy as np

    from seq2see.tasks.dates import all_ordinals, pairs_of

    for years in ((1000, 2025), (2026, 2999), (3000, 9999)):
        sample = np.random.default_rng(5).choice(all_ordinals(*years), 1000, replace=False)
        assert model.evaluate(pairs_of(sample)).exact == 1000


def test_002_cd9bd9446ef9fb85_raw_form_of_the_predictions(model: seq2see.Seq2Seq) -> None:
    assert [model.answerer.raw(answer) for answer in model.answers(FOUR)] == [
        "<sos>January 5, 1845<eos><pad><pad>",
        "<sos>January 6, 1845<eos><pad><pad>",
        "<sos>August 10, 1426<eos><pad><pad>",
        "<sos>September 3, 2025<eos>",
    ]


def test_edit_distance() -> None:
    from seq2see.evaluation.evaluate import edit_distance

    assert [edit_distance(*pair) for pair in (("", ""), ("a", ""), ("kitten", "sitting"), ("ab", "ba"))] == [0, 1, 3, 2]
