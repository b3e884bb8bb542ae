"""One training from its request to its card: what is chosen, what is refused, what is said."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from seq2see.config import DecodingConfig
from seq2see.data.pairs import Corpus
from seq2see.data.recipe import rules_in
from seq2see.errors import UserError
from seq2see.storage.folder import LOG, Tokenizers
from seq2see.tokenizers.tokenizer import Tokenizer
from seq2see.training import report
from seq2see.training.checkpoint import CHECKPOINTS, continued
from seq2see.training.job import TrainingJob
from seq2see.training.journey import KEPT, PARTS, carry_out, is_few, parts_of
from seq2see.training.loop import Step
from seq2see.training.options import LoadedModel, TrainOptions
from seq2see.training.prepare import HELD_OUT_DATES, MORE_LENGTH, RawSplits, limits_by, prepare, prepare_dates
from seq2see.training.report import interval
from seq2see.training.search import TABLE, searched
from test_training import small_config, small_trainer


def test_dates_are_made_to_learn_to_watch_and_to_test() -> None:
    ready = prepare_dates(TrainOptions(training={"steps": 7, "seed": 3}, model={"d_ff": 32}), (2000, 2009), 500)
    assert (len(ready.train), len(ready.validation), len(ready.test)) == (500, 365, 365)  # a tenth of 3,653 days
    parts = [{source for source, _ in part} for part in (ready.train, ready.validation, ready.test)]
    assert [len(part) for part in parts] == [500, 365, 365]
    assert not parts[0] & parts[1] | parts[0] & parts[2] | parts[1] & parts[2]
    assert all("2000" <= source[:4] <= "2009" for part in parts for source in part)
    model, training = ready.config.model, ready.config.training
    assert (ready.name, ready.config.task, ready.recipe, ready.remarks) == ("dates", "dates", None, [])
    assert (model.d_model, model.d_ff, model.source_vocabulary, model.target_vocabulary) == (16, 32, 68, 68)
    assert (training.steps, training.seed, training.layout) == (7, 3, "padded")
    again, other = (prepare_dates(TrainOptions(split_seed=seed), (2000, 2009), 500) for seed in (1, 4))
    assert again.test == ready.test
    assert other.test != ready.test


def test_no_more_dates_are_learned_from_than_there_are() -> None:
    with pytest.raises(UserError, match=r"`count` is 2,924, but the years 2000-2009 leave 2,923 dates"):
        prepare_dates(TrainOptions(), (2000, 2009), 2924)
    assert len(prepare_dates(TrainOptions(), (2000, 2009), 2923).train) == 2923
    assert len(prepare_dates(TrainOptions(), (1000, 2999), 10).test) == HELD_OUT_DATES == 10_000


def test_a_line_of_the_table_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    first = small_trainer(tmp_path)
    for step in first.steps():
        if step.step == 31:
            break
    first.checkpoints.finish()
    log = tmp_path / LOG
    assert [json.loads(line)["step"] for line in log.read_text().splitlines()] == [10, 20, 30]
    with log.open("a") as file:
        file.write('{"step": 40, "los')  # a machine that lost its power
    again = small_trainer(tmp_path, resume=True)
    assert again.step == 30  # the last checkpoint
    assert [json.loads(line)["step"] for line in log.read_text().splitlines()] == [10, 20, 30]
    assert (tmp_path / CHECKPOINTS).is_dir()


def test_a_run_of_some_seconds_goes_on_with_the_steps_that_it_has_fitted() -> None:
    before, now = small_config(budget=10.0, steps=93), small_config(budget=10.0)
    assert continued(Path("run"), before, now).training.steps == 93
    with pytest.raises(UserError, match=r"started with training.steps = 93, but now it is 40: resume with"):
        continued(Path("run"), small_config(steps=93), small_config())


@pytest.mark.parametrize(("changed", "message"), [
    ({"learning_rate": 0.5}, r"run was started with training.learning_rate = 0.01, but now it is 0.5"),
    ({"seed": 9}, r"training.seed = 1, but now it is 9"),
    ({"accumulate": 4}, ""),
])  # fmt: skip
def test_a_run_goes_on_with_the_settings_of_its_start(changed: dict[str, object], message: str) -> None:
    before, now = small_config(), small_config(**changed)
    if message:
        with pytest.raises(UserError, match=message):
            continued(Path("run"), before, now)
    else:  # it depends on the number of processes
        assert continued(Path("run"), before, now) == now
    with pytest.raises(UserError, match=r"task = dates, but now it is pairs"):
        continued(Path("run"), before, replace(now, task="pairs"))
    with pytest.raises(UserError, match=r"model.d_ff = 64, but now it is 32"):
        continued(Path("run"), before, replace(now, model=now.model.but(d_ff=32)))


def test_a_model_is_trained_further_at_a_lower_rate() -> None:
    config = small_config()  # with a rate of 0.01
    start = LoadedModel(config, Tokenizers.one(Tokenizer.characters()), {})
    request = TrainOptions(start=start, model={"dropout": 0.2})
    assert request.settings["training"] == {"learning_rate": pytest.approx(0.003)}
    assert request.settings["model"] == {**asdict(config.model), "dropout": 0.2}
    assert TrainOptions(start=start, training={"learning_rate": 0.5}).settings["training"] == {"learning_rate": 0.5}
    for given in ({"tokenizer": "bpe"}, {"vocabulary": 600}):
        with pytest.raises(UserError, match="but `start` has a tokenizer: leave it out"):
            TrainOptions(start=start, **given)


def test_a_training_cuts_each_text_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [(f"number {n}", f"nombre {n}") for n in range(60)]
    texts: list[str] = []
    cut = Tokenizer.encode_batch

    def counted(self: Tokenizer, given: Sequence[str]) -> list[list[int]]:
        texts.extend(given)
        return cut(self, given)

    monkeypatch.setattr(Tokenizer, "encode_batch", counted)
    request = TrainOptions(tokenizer="characters", training={"steps": 1})
    ready = prepare(RawSplits.read(pairs), request)
    TrainingJob(ready, request, lambda text: None)
    learned = {source for source, _ in ready.train}
    assert learned
    assert all(texts.count(source) == 1 for source in learned)


def test_what_is_asked_for_wrongly_is_refused_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="smal"):
        TrainOptions(preset="smal")
    pairs = [(f"number {n}", f"nombre {n}") for n in range(60)]
    monkeypatch.setattr(
        "seq2see.training.prepare.tokenizers_of", lambda *given: pytest.fail("tokenizers were trained first")
    )
    with pytest.raises(UserError, match="heads"):
        prepare(RawSplits.read(pairs), TrainOptions(model={"d_model": 64, "heads": 5}, training={"steps": 1}))


def test_answers_may_be_as_long_as_those_of_the_data() -> None:
    rules = DecodingConfig(length_offset=50)
    as_long = np.array([10, 20, 30])
    assert limits_by(as_long, as_long, rules) == rules  # nothing is longer than the paper allows
    doubled = limits_by(as_long, 2 * as_long, rules)
    assert (doubled.length_ratio, doubled.length_offset) == (round(2 * MORE_LENGTH, 2), 50)
    # One target of a thousand is 400 tokens longer than its source: the ratio leaves it alone, the offset covers it.
    source = np.full(1000, 10)
    target = np.append(source[1:], 410)
    far = limits_by(source, target, rules)
    assert (far.length_ratio, far.length_offset) == (1.0, int(np.ceil(400 * MORE_LENGTH)) + 25)


class Silent:
    """A display that keeps what is said."""

    command, signals = "test", ()

    def __init__(self) -> None:
        self.said: list[str] = []
        self.say = self.said.append

    def busy(self, text: str) -> AbstractContextManager[Callable[[str], None]]:
        return nullcontext(lambda text: None)

    def introduce(self, job: TrainingJob) -> None:
        pass

    def steps(self, job: TrainingJob) -> AbstractContextManager[Callable[[Step], None]]:
        return nullcontext(lambda step: None)

    def tested(self, job: TrainingJob) -> None:
        self.said.append(report.tested(job))


def test_a_search_carries_the_best_trial_to_its_end_and_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    pairs = [(f"{n:03}", f"{n:03}"[::-1]) for n in range(400)]
    small = {"heads": 2, "encoder_layers": 1, "decoder_layers": 1}
    asked, display = TrainOptions(tmp_path / "m", model=small, device="cpu"), Silent()
    begun = Silent()
    begun.say = lambda text: (_ for _ in ()).throw(OSError("a full disk")) if "12%" in text else None  # type: ignore
    with pytest.raises(OSError, match="full"):
        searched(3.0, lambda: RawSplits.read(pairs), asked, begun, 3)
    with pytest.raises(UserError, match="m-search holds the trials of a search"):
        searched(3.0, lambda: RawSplits.read(pairs), asked, display, 3)
    job = searched(3.0, lambda: RawSplits.read(pairs), replace(asked, resume=True), display, 3)
    assert job is not None
    assert job.trainer.ended
    assert sum("held-out loss" in text for text in display.said) == 2  # the first three were done before
    rows = json.loads((tmp_path / "m" / TABLE).read_text())
    assert [row["part"] for row in rows].count(0.25) == 1
    assert rows[0]["changes"] == {}
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
    best = max(rows, key=lambda row: row["part"])
    reasons = {one.setting: one.value for one in job.setup.recipe.reasons if one.rule.name == "search"}
    assert reasons.keys() <= {*best["changes"], "model.d_ff", "model.encoder_layers", "model.decoder_layers"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (TrainOptions(), "name a folder"), (TrainOptions(Path("x"), preset="document"), "leave `preset` out"),
        (TrainOptions(Path("x"), members=2), "leave `ensemble` out"),
        (TrainOptions(Path("x"), training={"steps": 2}), "leave `steps` and `budget` out"),
    ],
)  # fmt: skip
def test_what_a_search_cannot_do_is_said(options: TrainOptions, message: str) -> None:
    with pytest.raises(UserError, match=message):
        searched(1.0, lambda: RawSplits.read([("a", "b")] * 9), options, Silent())


def test_rules_of_the_user_overrule_ours(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("""
[[rule]]
name = "narrow for my codes"
when = {pairs = [10, 500], subwords = false}
settings = {"model.d_model" = 64, "model.d_ff" = 128}
evidence = "my notes"

[[rule]]
name = "not for these"
when = {gpu = true}
settings = {"model.d_model" = 512}
""")
    with pytest.raises(UserError, match="there is no fact 'gpu'"):
        rules_in(path)
    path.write_text(path.read_text().replace("gpu = true", 'device = "cuda"'))
    setup = prepare(
        RawSplits.read([(f"{n:03}", f"{n:03}"[::-1]) for n in range(200)]),
        TrainOptions(device="cpu", rules=rules_in(path)),
    )
    assert (setup.config.model.d_model, setup.config.model.d_ff) == (64, 128)
    assert ("model.d_model", "narrow for my codes", "my notes") in [
        (one.setting, one.rule.name, one.rule.evidence) for one in setup.recipe.reasons
    ]
    for text, message in (
        ("[rule", "no TOML file"),
        ("[[rule]]\nname = 1", "expected to have"),
        ("x = 1", "expected to"),
    ):
        path.write_text(text)
        with pytest.raises(UserError, match=message):
            rules_in(path)


def test_how_sure_a_score_is() -> None:
    assert interval(23, 25) == pytest.approx((0.750, 0.978), abs=1e-3)  # Wilson's, as statsmodels gives it
    assert interval(0, 10) == pytest.approx((0.0, 0.278), abs=1e-3)
    assert interval(10, 10) == pytest.approx((0.722, 1.0), abs=1e-3)


def test_of_few_pairs_none_is_set_aside_and_each_is_answered_once(tmp_path: Path) -> None:
    pairs = [(f"{n % 40:03}", f"{n % 40:03}"[::-1]) for n in range(80)] + [(f"{n:03}", "x") for n in range(100, 140)]
    small = {"d_model": 16, "heads": 2, "d_ff": 16, "encoder_layers": 1, "decoder_layers": 1}
    options, display = TrainOptions(tmp_path / "m", model=small, training={"budget": 4.0}, device="cpu"), Silent()
    for rest, held in parts_of(Corpus("pairs", pairs, [*range(120)]), 1):
        assert sorted([*rest.pairs, *held]) == sorted(pairs)
        assert not {source for source, _ in rest.pairs} & {source for source, _ in held}
        assert [pairs[line] for line in rest.lines] == rest.pairs
    display.introduce = lambda job: (_ for _ in ()).throw(OSError("a full disk"))  # type: ignore
    with pytest.raises(OSError, match="full"):
        carry_out(lambda: RawSplits.read(pairs), options, display)
    assert sum(text.startswith("Part ") for text in display.said) == PARTS
    again = Silent()
    job = carry_out(lambda: RawSplits.read(pairs), replace(options, resume=True), again)
    assert job is not None
    assert job.result is not None
    assert not [text for text in again.said if text.startswith("Part ")]  # they are known
    assert sorted((source, target) for source, target, _ in job.result.scores.answers) == sorted(pairs)
    assert job.trainer.config.training.budget is None
    assert sorted(job.setup.train) == sorted(pairs)
    card = (tmp_path / "m" / "card.md").read_text()
    assert "| validated on | all, each of the 120 was answered by one of 5 models that learned from others |" in card
    assert "all 120 for training, split" in card
    assert not (tmp_path / "m" / KEPT).exists()


def test_few_pairs_with_a_test_of_their_own_are_scored_on_that() -> None:
    pairs = [(f"{n:03}", "x") for n in range(60)]
    small = {"d_model": 16, "heads": 2, "d_ff": 16, "encoder_layers": 1, "decoder_layers": 1}
    options = TrainOptions(model=small, training={"budget": 2.0}, device="cpu")
    job = carry_out(lambda: RawSplits.read(pairs, test=[("999", "x"), ("001", "x")]), options, Silent())
    assert job is not None
    assert job.result is not None
    assert [source for source, *_ in job.result.scores.answers] == ["999", "001"]
    assert (job.setup.seen, "all 60 for training, 2 for the test" in job.setup.counts) == (1, True)
    for given in ({"validation": pairs[:5]}, {}):
        for asked in (TrainOptions(training={"steps": 2}), TrainOptions(preset="document")):
            assert not is_few(RawSplits.read(pairs, **given), asked)
    assert not is_few(RawSplits.read(pairs[:40]), options)
    assert not is_few(RawSplits.read(pairs, validation=pairs[:5]), options)
