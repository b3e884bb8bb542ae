"""The estimator for scikit-learn does what scikit-learn asks of one."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pandas
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks

from seq2see.sklearn import TextToText

NUMBERS = [f"{n:03}" for n in range(90)]
BACKWARDS = [n[::-1] for n in NUMBERS]
#: scikit-learn's own checks that do not need numbers for X.
CHECKS = (
    "check_estimator_cloneable", "check_estimator_tags_renamed", "check_valid_tag_types", "check_estimator_repr",
    "check_no_attributes_set_in_init", "check_parameters_default_constructible", "check_get_params_invariance",
    "check_set_params", "check_mixin_order",
)  # fmt: skip


def small(**settings: object) -> TextToText:
    return TextToText(model={"d_model": 16, "d_ff": 32, "heads": 2}, training={"steps": 3}, device="cpu", **settings)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def fitted() -> TextToText:
    return small(random_state=3).fit(NUMBERS, BACKWARDS)


@pytest.mark.parametrize("name", CHECKS)
def test_checks_of_scikit_learn(name: str) -> None:
    getattr(estimator_checks, name)("TextToText", TextToText())


def test_a_clone_has_the_settings_and_not_the_model(fitted: TextToText) -> None:
    again = clone(fitted)
    assert again.get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        again.predict(["123"])
    assert again.set_params(budget="10s").budget == "10s"


def test_the_seed_repeats_the_answers(fitted: TextToText) -> None:
    again = clone(fitted).fit(np.array(NUMBERS), pandas.Series(BACKWARDS))
    assert again.predict(NUMBERS).tolist() == fitted.predict(pandas.DataFrame({"number": NUMBERS})).tolist()


def test_a_pickle_is_the_folder_and_no_code(fitted: TextToText) -> None:
    data = pickle.dumps(fitted)
    assert b"PK" in data
    assert b"seq2see.seq2seq" not in data
    assert b"torch" not in data
    back = pickle.loads(data)
    assert back.predict(NUMBERS[:9]).tolist() == fitted.predict(NUMBERS[:9]).tolist()
    assert pickle.loads(pickle.dumps(back)).get_params() == fitted.get_params()


def test_the_score_is_the_share_of_right_answers(fitted: TextToText) -> None:
    found = fitted.predict(NUMBERS[:4])
    wrong = ["another", "another"]
    assert fitted.score(NUMBERS[:4], [*found[:2], *wrong]) == 0.5


def test_cross_validation_and_a_search_for_settings() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores = cross_val_score(small(), NUMBERS, BACKWARDS, cv=2)
        assert scores.shape == (2,)
        search = GridSearchCV(small(), {"tokenizer": ["characters", "bytes"]}, cv=2).fit(NUMBERS, BACKWARDS)
    assert search.best_params_["tokenizer"] in ("characters", "bytes")
    assert len(search.predict(["123"])) == 1


def test_it_ends_a_pipeline() -> None:
    strip = FunctionTransformer(lambda texts: [text.strip() for text in texts])
    piped = make_pipeline(strip, small()).fit([f" {n} " for n in NUMBERS], BACKWARDS)
    assert len(piped.predict([" 123 "])) == 1


def test_what_it_cannot_take() -> None:
    with pytest.raises(ValueError, match=r"X has 90 texts and y 1: as many were expected\."):
        small().fit(NUMBERS, ["1"])
    with pytest.raises(ValueError, match="X has 2 dimensions"):
        small().fit(np.zeros((3, 2)), ["a", "b", "c"])
