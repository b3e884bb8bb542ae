"""At home where people work: columns of tables, notebooks, trackers, lists of trainings."""

from __future__ import annotations

import datetime
import json
import shutil
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pandas
import polars
import pyarrow
import pytest
from typer.testing import CliRunner, Result

import seq2see
from seq2see.answering.answer import Alternative, Answer, Token
from seq2see.cli import app

LITTLE = ["--steps", "4", "--device", "cpu", "--set", "training.evaluate_every=2", "--set", "model.d_model=16",
          "--set", "model.heads=2"]  # fmt: skip


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("trained")
    (place / "numbers.tsv").write_text("".join(f"{n}\t{n * 7}\n" for n in range(600)), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        done = run("train", "numbers.tsv", *LITTLE, "--log", "tensorboard")
        assert done.exit_code == 0, (done.output, done.exception)
        yield place


# --- tables ---


def test_a_column_comes_back_with_its_name_and_index() -> None:
    model = seq2see.load("dates")
    column = pandas.Series(["1845-01-05", None, "2025-09-03"], index=["a", "b", "c"], name="day")
    with pytest.warns(UserWarning, match="input 2: There is no text: the value is missing"):
        found = model.predict(column)
    expected = pandas.Series(
        ["January 5, 1845", None, "September 3, 2025"], index=["a", "b", "c"], name="day", dtype=object
    )
    pandas.testing.assert_series_equal(found, expected)
    with pytest.warns(UserWarning, match="1 of 2"):
        assert model.predict(polars.Series("day", ["1845-01-05", None])).to_list() == ["January 5, 1845", None]
    found = model.predict(pyarrow.array(["1845-01-05"]))
    assert found.to_pylist() == ["January 5, 1845"]


@pytest.mark.parametrize("none", [None, float("nan"), pandas.NA, pandas.NaT])
def test_a_missing_value_refuses_its_row_alone(none: object) -> None:
    with pytest.warns(UserWarning, match="There is no text"):
        assert seq2see.load("dates").predict(["1845-01-05", none]) == ["January 5, 1845", None]  # type: ignore[list-item]


def test_numbers_and_dates_of_a_table_are_read_as_text() -> None:
    days = [datetime.date(1845, 1, day) for day in range(1, 29)]
    tables = (
        pandas.DataFrame({"id": range(28), "day": pandas.to_datetime(days).astype("datetime64[s]")}),
        polars.DataFrame({"id": range(28), "day": days}),
        pyarrow.table({"id": [*range(28)], "day": days}),
        [{"id": n, "day": day} for n, day in enumerate(days)],
    )
    from seq2see.data.pairs import corpus_of

    for table in tables:
        pairs = corpus_of(table, ("id", "day")).pairs
        assert pairs[:2] == [("0", "1845-01-01"), ("1", "1845-01-02")]
    column = pandas.Series([7, 8])
    with pytest.warns(UserWarning, match="'7' is not of the form"):
        seq2see.load("dates").predict(column)


def test_an_evaluation_becomes_a_frame() -> None:
    found = seq2see.load("dates").evaluate([("1845-01-05", "January 5, 1845"), ("1845-01-06", "wrong")]).frame()
    assert found.columns.tolist() == ["source", "expected", "given", "right"]
    assert found["right"].tolist() == [True, False]


# --- notebooks ---


class Checked(HTMLParser):
    """Notes whether all tags are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: object) -> None:
        assert tag != "script"
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_answers_models_and_histories_are_shown_in_notebooks(trained: Path) -> None:
    model = seq2see.load(trained / "runs" / "numbers")
    [sure] = seq2see.load("dates").answers(["1845-01-05"])
    assert "January 5, 1845" in "".join(Checked(sure._repr_html_()).words)
    [refused] = seq2see.load("dates").answers(["<b>&"])
    assert "'<b>&' is not of the form" in "".join(Checked(refused._repr_html_()).words)
    unsure = Answer(
        "a<", "<i>b", -1.0, [Token("<i>", 0.4), Token("b", 0.6)], [Alternative("c&", -2.0)], confidence=0.25
    )
    shown = unsure._repr_html_()
    assert "rgba(235,120,20,0.40)" in shown
    assert "right with a probability of 25.0%" in "".join(Checked(shown).words)
    assert "c&" in "".join(Checked(shown).words)
    assert "parameters" in Checked(model._repr_html_()).words
    assert len(model.history) == 2
    assert "<polyline" in model.history._repr_html_()
    assert seq2see.load("en-de").history == []


def test_the_history_is_that_of_the_folder(trained: Path) -> None:
    lines = (trained / "runs" / "numbers" / "log.jsonl").read_text().splitlines()
    assert seq2see.load(trained / "runs" / "numbers").history == [json.loads(line) for line in lines]
    assert (trained / "runs" / "numbers" / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "(curves.png)" in (trained / "runs" / "numbers" / "card.md").read_text()


# --- trackers ---


def test_tensorboard_has_the_table_and_the_settings(trained: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = EventAccumulator(str(trained / "runs" / "numbers" / "tensorboard")).Reload()
    lines = seq2see.load(trained / "runs" / "numbers").history
    for name in ("loss", "validation_loss", "exact_match", "learning_rate"):
        events = board.Scalars(name)
        assert [event.step for event in events] == [2, 4]
        assert [event.value for event in events] == pytest.approx([line[name] for line in lines])
    assert "settings/text_summary" in board.Tags()["tensors"]


def test_wandb_and_mlflow_get_the_table(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded by stand-ins with the functions that are called; `make verify` asks the real ones."""
    said: list[tuple[object, ...]] = []
    for name in ("wandb", "mlflow"):
        made = ModuleType(name)
        made.__spec__ = SimpleNamespace(name=name)  # type: ignore[assignment]
        for function in ("set_experiment", "start_run", "log_params", "log_metrics", "end_run", "log", "finish"):
            setattr(
                made,
                function,
                lambda *given, name=name, function=function, **more: said.append((name, function, given, more)),
            )
        made.init = lambda made=made, **settings: said.append(("wandb", "init", (), settings)) or made  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, name, made)
        done = run("train", "numbers.tsv", *LITTLE, "--out", trained / name, "--log", name)
        assert done.exit_code == 0, (done.output, done.exception)
    assert [one[1] for one in said] == ["init", "log", "log", "finish", "set_experiment", "start_run", "log_params",
                                        "log_metrics", "log_metrics", "end_run"]  # fmt: skip
    assert [one[3]["step"] for one in said if one[1].startswith("log") and one[1] != "log_params"] == [2, 4, 2, 4]
    [settings] = [one[3]["config"] for one in said if one[1] == "init"]
    assert settings["model.d_model"] == 16


def test_an_unknown_tracker_and_one_that_is_not_installed(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "There is no tracker 'tensorbord'. Did you mean 'tensorboard'?" in str(
        run("train", "numbers.tsv", "--out", "x", "--log", "tensorbord").exception
    )
    monkeypatch.setattr("seq2see.errors.find_spec", lambda name: None if name == "wandb" else True)
    done = run("train", "numbers.tsv", "--out", "x", "--log", "wandb")
    assert str(done.exception) == "--log wandb needs the package wandb, which is not installed: pip install wandb."
    assert not Path("x").exists()


# --- runs ---


def test_runs_lists_what_was_trained_here(trained: Path) -> None:
    done = run("runs", trained / "runs")
    assert done.exit_code == 0, done.exception
    assert "numbers" in done.stdout
    assert "pairs" in done.stdout
    [one] = [json.loads(line) for line in run("runs", trained / "runs", "--json").stdout.splitlines()]
    assert one["right"].endswith("%")
    assert one["data"].startswith("numbers.tsv")
    assert one["recipe"]
    other = trained / "names" / "[red]a[/bold]"
    shutil.copytree(trained / "runs" / "numbers", other)
    (other / "log.jsonl").write_text('{"step": 1, "loss": 1, "validation_loss": 1, "exact_match": 0.5}\n'
                                     '{"step": 2, "loss": "x", "validation_loss": [], "exact_match": "y"}\n')  # fmt: skip
    assert str(other) in run("runs", trained / "names").stdout.replace("\n", "")
    assert [line["step"] for line in seq2see.load(other).history] == [1]
    (trained / "empty").mkdir()
    assert "No trained model lies below" in str(run("runs", trained / "empty").exception)
    assert "is no folder" in str(run("runs", trained / "nowhere").exception)


def test_two_runs_are_compared_by_their_settings(trained: Path) -> None:
    one = trained / "runs" / "numbers"
    done = run("runs", "--compare", one, "dates")
    assert "model.d_model" not in done.stdout
    assert "model.heads" in done.stdout
    assert "2 → 4" in done.stdout
    assert run("runs", "--compare", one, one).stdout == "Their settings are the same.\n"
