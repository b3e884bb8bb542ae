"""An estimator for scikit-learn: pairs of texts in pipelines, cross-validation and searches for settings.

>>> from seq2see.sklearn import TextToText
>>> numbers = [f"{n:03}" for n in range(60)]
>>> model = TextToText(training={"steps": 2}).fit(numbers, [n[::-1] for n in numbers])
>>> len(model.predict(["123"]))
1
"""

from __future__ import annotations

import io
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seq2see.errors import installed
from seq2see.seq2seq import Seq2Seq, load
from seq2see.training.fitting import fit

installed("sklearn", "This estimator")
from sklearn.base import BaseEstimator  # noqa: E402
from sklearn.utils.validation import check_is_fitted  # noqa: E402

if TYPE_CHECKING:
    from sklearn.utils import Tags

SETTINGS = ("tokenizer", "vocabulary", "preset", "budget", "model", "training", "decoding", "device", "ensemble")


class TextToText(BaseEstimator):  # type: ignore[misc]
    """Learns to turn one text into another. Its parameters are those of ``seq2see.fit``; none is needed.

    After ``fit`` the model is ``model_``. A pickle holds the bytes of its folder, and no code.
    """

    def __init__(
        self,
        tokenizer: str | tuple[str, str] | None = None,
        vocabulary: int | None = None,
        preset: str | None = None,
        budget: float | str | None = None,
        model: dict[str, Any] | None = None,
        training: dict[str, Any] | None = None,
        decoding: dict[str, Any] | None = None,
        device: str = "auto",
        ensemble: int = 1,
        random_state: int | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.vocabulary = vocabulary
        self.preset = preset
        self.budget = budget
        self.model = model
        self.training = training
        self.decoding = decoding
        self.device = device
        self.ensemble = ensemble
        self.random_state = random_state

    def fit(self, X: Sequence[str], y: Sequence[str]) -> TextToText:
        """Train a model on texts and their targets."""
        sources, targets = _texts(X, "X"), _texts(y, "y")
        if len(sources) != len(targets):
            raise ValueError(f"X has {len(sources):,} texts and y {len(targets):,}: as many were expected.")
        settings = {name: getattr(self, name) for name in SETTINGS}
        pairs = zip(sources, targets, strict=True)
        self.model_: Seq2Seq = fit([*pairs], **settings, seed=self.random_state, progress=False)
        return self

    def predict(self, X: Sequence[str]) -> np.ndarray:
        """Answer texts; a text that the model refuses has None."""
        check_is_fitted(self)
        return np.array([answer.output for answer in self.model_.answers(_texts(X, "X"))], dtype=object)

    def score(self, X: Sequence[str], y: Sequence[str]) -> float:
        """Return the share of answers that are right, letter by letter."""
        expected = map(self.model_.answerer.folded, _texts(y, "y")) if hasattr(self, "model_") else ()
        found = self.predict(X)
        right = [one == other for one, other in zip(found, expected, strict=True)]
        return float(sum(right) / len(right))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.string, tags.input_tags.two_d_array, tags.input_tags.one_d_array = True, False, True
        tags.no_validation = True
        tags.non_deterministic = False
        return tags

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if "model_" in state:
            with tempfile.TemporaryDirectory() as place:
                state["model_"].save(Path(place) / "model")
                packed = io.BytesIO()
                with zipfile.ZipFile(packed, "w") as archive:
                    for file in sorted((Path(place) / "model").iterdir()):
                        archive.writestr(zipfile.ZipInfo(file.name), file.read_bytes())
            state["model_"] = packed.getvalue()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if isinstance(packed := state.get("model_"), bytes):
            with tempfile.TemporaryDirectory() as place:
                with zipfile.ZipFile(io.BytesIO(packed)) as archive:
                    archive.extractall(place)
                state = {**state, "model_": load(place, engine="torch")}
                state["model_"].network.inner()  # read before the folder goes
                state["model_"].network.path = None
                state["model_"].network.engine = "auto"
        super().__setstate__(state)


def _texts(given: Any, name: str) -> list[Any]:
    """Return the texts of a list, an array, a column, or a frame of one column."""
    array = np.asarray(given, dtype=object)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise ValueError(f"{name} has {array.ndim} dimensions: one text for each row was expected.")
    return list(array)
