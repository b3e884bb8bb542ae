"""Training: the schedule, exact resume after any death, damaged checkpoints."""

from __future__ import annotations

import copy
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from conftest import small_model, sweep
from seq2see.config import PRESETS, Config, DecodingConfig, ModelConfig, TrainingConfig
from seq2see.data import epochs as training_pairs
from seq2see.data.batching import Batch
from seq2see.errors import FolderError, UserError
from seq2see.evaluation.evaluate import Evaluation
from seq2see.kernels.registry import network_of
from seq2see.storage import folder
from seq2see.storage.folder import LOG, Tokenizers
from seq2see.storage.weights import put_weights
from seq2see.tasks import dates
from seq2see.tokenizers.tokenizer import Tokenizer
from seq2see.training import checkpoint, loop
from seq2see.training.checkpoint import CHECKPOINTS
from seq2see.training.learner import Learner, Objective
from seq2see.training.loop import Trainer
from seq2see.training.optimisers import ROUNDS, Adam, Muon, is_matrix, orthogonal
from seq2see.training.schedule import learning_rate
from test_shards import texts_of

STEPS = 40


def small_config(**training: object) -> Config:
    """A run with everything that must survive a restart: dropout, Adam, a schedule, an average.

    An untrained model does not end its answers: they are cut.
    """
    model = {**PRESETS["document"].model, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.1}
    settings = dict(
        steps=STEPS, batch_tokens=200, schedule="cosine", warmup=5, learning_rate=0.01, average=3, checkpoint_every=8,
        evaluate_every=10, evaluate_on=5,
    )  # fmt: skip
    return Config(
        "dates",
        ModelConfig.of(source_vocabulary=68, target_vocabulary=68, **model),
        TrainingConfig.of(**{**settings, **training}),
        DecodingConfig(max_length=5),
    )


def small_trainer(
    out: Path | None = None,
    resume: bool = False,
    said: list[str] | None = None,
    tokenizers: Tokenizers | None = None,
    **training: object,
) -> Trainer:
    train, validation, _ = dates.splits(200, 20, 20, seed=1)
    return Trainer(
        small_config(**training),
        tokenizers or Tokenizers.one(Tokenizer.characters()),
        train,
        validation,
        out,
        resume,
        say=(said if said is not None else []).append,
    )


def test_texts_with_other_tokens_around_them_cannot_be_turned() -> None:
    dates_tokens = Tokenizer.characters()
    other = Tokenizer.of_others(dates_tokens.engine, ["<sos>", "A"], ["<eos>"], "<pad>", dates_tokens.size)
    config, (train, validation, _) = small_config(), dates.splits(200, 20, 20, seed=1)
    config = replace(config, model=config.model.but(members=2, backward=1))
    with pytest.raises(UserError, match=r"model\.backward turns texts between their start and end tokens"):
        Trainer(config, Tokenizers.one(other), train, validation)


def finished(trainer: Trainer) -> dict[str, torch.Tensor]:
    for _ in trainer.steps():
        pass
    trainer.finish()
    return {name: parameter.detach().clone() for name, parameter in trainer.model.named_parameters()}


@pytest.fixture(scope="module")
def uninterrupted() -> dict[str, torch.Tensor]:
    return finished(small_trainer())


def assert_identical(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


def test_the_paper_is_the_default() -> None:
    config = TrainingConfig()
    assert (config.beta1, config.beta2, config.epsilon, config.label_smoothing) == (0.9, 0.98, 1e-9, 0.1)
    assert (config.warmup, config.schedule, config.average) == (4000, "paper", 5)


def test_label_smoothing_is_the_papers() -> None:
    """Cross-entropy against (1 − ε) of the truth and ε spread over the vocabulary."""
    trainer = small_trainer(label_smoothing=0.1)
    batch = trainer.batches.at(0)
    trainer.model.eval()  # no dropout
    with torch.no_grad():
        logs = trainer.model(batch.source, batch.target_in, batch.source_mask).log_softmax(-1)
    real = batch.target_out != 67
    truth = logs.gather(-1, batch.target_out[..., None])[..., 0]
    expected = -(0.9 * truth + 0.1 * logs.mean(-1))[real].mean()
    assert float(trainer.learner.losses[0](batch, None, real.sum()).detach()) == pytest.approx(
        float(expected), rel=1e-5
    )


@pytest.mark.parametrize("clip", [0.0, 0.05])
def test_a_step_is_adams_after_clipping(clip: float) -> None:
    """Kingma and Ba's algorithm 1, with settings that are not PyTorch's, on gradients that are cut to a norm of 0.05."""
    settings = dict(beta1=0.3, beta2=0.6, epsilon=0.01, clip=clip, label_smoothing=0.1)
    trainer = small_trainer(**settings)
    plain, learner = copy.deepcopy(trainer.model).train(), trainer.learner
    objective = Objective(plain, trainer.config.training, 67)
    first = {name: torch.zeros_like(p) for name, p in plain.named_parameters()}
    second = {name: torch.zeros_like(p) for name, p in plain.named_parameters()}
    norms = []
    for step, rate in enumerate((0.1, 0.02, 0.3), 1):
        batch = trainer.batches.at(step)
        torch.manual_seed(step)  # of the dropout
        found = learner.learn([batch], rate)
        torch.manual_seed(step)
        plain.zero_grad()
        loss = objective(batch, None, (batch.target_out != 67).sum())
        loss.backward()
        assert float(found) == pytest.approx(float(loss.detach()))
        norm = torch.stack([p.grad.norm() for p in plain.parameters()]).norm()
        norms.append(float(norm))
        with torch.no_grad():
            for name, p in plain.named_parameters():
                gradient = p.grad * min(1.0, clip / float(norm)) if clip else p.grad
                first[name] = 0.3 * first[name] + 0.7 * gradient
                second[name] = 0.6 * second[name] + 0.4 * gradient**2
                p -= rate * (first[name] / (1 - 0.3**step)) / ((second[name] / (1 - 0.6**step)).sqrt() + 0.01)
        for (name, ours), theirs in zip(trainer.model.named_parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4, msg=lambda text, n=name: f"{n}: {text}")
    assert min(norms) > 0.1  # so that clipping changes each of them


@torch.no_grad()
def test_r_drop_adds_the_divergence_of_two_passes() -> None:
    """Liang et al.: the mean of both passes' losses, and α/2 times the mean of both divergences."""
    trainer = small_trainer(r_drop=5.0, label_smoothing=0.0)
    batch = trainer.batches.at(0).twice()
    real = batch.target_out != 67
    trainer.model.train()
    torch.manual_seed(3)
    loss = trainer.learner.losses[0](batch, None, real.sum())
    torch.manual_seed(3)
    logs = trainer.model(batch.source, batch.target_in, batch.source_mask).log_softmax(-1)
    one, two = logs.chunk(2)
    truth = logs.gather(-1, batch.target_out[..., None])[..., 0][real]
    divergences = [torch.nn.functional.kl_div(p, q, reduction="none", log_target=True).sum(-1)[real.chunk(2)[0]].mean()
                   for p, q in ((one, two), (two, one))]  # fmt: skip
    expected = -truth.mean() + 5.0 / 2 * sum(divergences) / 2
    assert float(divergences[0]) > 1e-4
    assert float(loss) == pytest.approx(float(expected), rel=1e-4)


@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_batches_added_up_equal_one_large_batch(layout: str) -> None:
    """Two batches of different numbers of tokens, each weighted by its tokens."""
    trainer = small_trainer(layout=layout, batch_tokens=256, accumulate=2)
    trainer.model.eval()
    small = [trainer.batches.at(0), trainer.batches.at(trainer.batches.per_epoch - 1)]
    tokens = torch.tensor(sum(batch.tokens for batch in small))
    losses = [
        trainer.learner.losses[0](batch, batch.masks() if layout == "packed" else None, tokens).detach()
        for batch in small
    ]
    alone = [
        trainer.learner.losses[0](
            batch, batch.masks() if layout == "packed" else None, torch.tensor(batch.tokens)
        ).detach()
        for batch in small
    ]
    assert small[0].tokens != small[1].tokens
    expected = sum(float(loss) * batch.tokens for loss, batch in zip(alone, small, strict=True)) / int(tokens)
    assert float(sum(losses)) == pytest.approx(expected, rel=1e-5)
    before = [parameter.clone() for parameter in trainer.model.parameters()]
    assert float(trainer.learner.learn(small, 0.01)) > 0
    assert any(not torch.equal(a, b) for a, b in zip(before, trainer.model.parameters(), strict=True))


def answered(right: range, pairs: int, text: str = "un deux trois quatre cinq {}") -> Evaluation:
    """Some of the answers are right, the others lack their last word."""
    rows = [(str(n), text.format(n), text.format(n if n in right else "")) for n in range(pairs)]
    return Evaluation(pairs=pairs, exact=len(right), answers=rows)


@pytest.mark.parametrize("sentences", [True, False])
@pytest.mark.parametrize(("before", "best", "pairs", "kept"), [
    (range(70), range(76), 100, False),  # the best of twenty lines is often that much above the others
    (range(70), range(30, 108), 200, False),  # other answers are right: chance decides more
    (range(70), range(85), 100, True),
    (range(700), range(760), 1000, True),
    (range(70), range(50), 100, False),
])  # fmt: skip
def test_the_best_line_is_kept_where_chance_does_not_explain_it(
    before: range, best: range, pairs: int, kept: bool, sentences: bool
) -> None:
    assert loop.is_clearly_better(answered(best, pairs), answered(before, pairs), sentences) == kept


@pytest.mark.parametrize("better", [True, False])
def test_the_average_gives_way_only_to_a_model_that_is_clearly_better(
    better: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line in the middle has a better score than the average: chance decides whether its weights are kept."""
    said: list[str] = []
    trainer = small_trainer(evaluate_every=4, checkpoint_every=4, steps=12)
    trainer.say = said.append
    seen = {}
    real, scores = loop.evaluate, {4: 10, 8: 60, 12: 20}

    def scored(*arguments: object, **options: object) -> object:
        found = real(*arguments, **options)  # type: ignore[arg-type]
        found.exact, found.pairs = scores[trainer.step], 100
        return found

    monkeypatch.setattr(loop, "evaluate", scored)
    monkeypatch.setattr(loop, "is_clearly_better", lambda new, old, sentences: better)
    for step in trainer.steps():
        seen[step.step] = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    kept = {name: p.detach() for name, p in trainer.finish().named_parameters()}
    assert_identical(kept, seen[8] if better else seen[12])
    assert ("The model of step 8 is better on the held-out pairs, and is kept." in said) == better


def steps_with_scores(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch, right: Callable[[int], int], stop: int = 99
) -> Iterator[loop.Step]:
    """Train with given scores, so many of 100 held-out pairs after a step; save and stop after step ``stop``."""
    real = loop.evaluate

    def scored(*arguments: object, **options: object) -> object:
        found = real(*arguments, **options)  # type: ignore[arg-type]
        found.exact, found.pairs, found.edits = right(trainer.step), 100, 0
        return found

    with monkeypatch.context() as patched:
        patched.setattr(loop, "evaluate", scored)
        for step in trainer.steps():
            yield step
            if step.step == stop:
                trainer.save(at_once=True)
                return


def test_patience_stops_and_keeps_the_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores rise to step 8 and then fall: the run stops three lines later with the weights of step 8, resumed or not."""
    scores = {4: 0.1, 8: 0.6, 12: 0.5, 16: 0.55, 20: 0.4, 24: 0.9}

    def run(
        out: Path | None, resume: bool = False, stop: int = 99
    ) -> tuple[Trainer, dict[int, dict[str, torch.Tensor]]]:
        trainer = small_trainer(out, resume, evaluate_every=4, checkpoint_every=7, patience=3)
        seen = {}
        for step in steps_with_scores(trainer, monkeypatch, lambda step: int(100 * scores[step]), stop):
            seen[step.step] = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
        return trainer, seen

    whole, seen = run(None)
    assert whole.step == 20
    best = dict(whole.finish().named_parameters())
    assert_identical({name: p.detach() for name, p in best.items()}, seen[8])
    run(tmp_path / "run", stop=14)
    resumed, _ = run(tmp_path / "run", resume=True)
    assert resumed.step == 20
    assert_identical({n: p.detach() for n, p in resumed.finish().named_parameters()}, seen[8])


def test_a_solved_task_ends_soon_with_a_rate_of_zero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every held-out pair is right at the lines of steps 8 and 10, so the run of 40 ends at 11, resumed or not."""
    said: list[str] = []

    def run(
        out: Path | None, resume: bool = False, stop: int = 99, pairs: int = 100
    ) -> tuple[Trainer, list[loop.Line]]:
        trainer = small_trainer(out, resume, steps=40, schedule="watched", warmup=2, average=2)
        trainer.validation = trainer.validation[:1] * pairs
        monkeypatch.setattr(trainer, "say", said.append)
        taken = steps_with_scores(trainer, monkeypatch, lambda step: 100 if step in (8, 10) else 50, stop)
        return trainer, [step.line for step in taken if step.line is not None]

    whole, lines = run(None)
    assert [line.step for line in lines] == [4, 5, 6, 8, 10, 11]
    assert whole.ended
    assert (whole.step, whole.last_step, whole.course.why) == (11, 11, "solved")
    assert said == ["At step 10 all 100 held-out pairs are right: the learning rate falls to zero until step 11."]
    assert lines[-2].learning_rate == lines[0].learning_rate  # before the end was known
    assert lines[-1].learning_rate == pytest.approx(0.0)
    finished = {name: p.detach() for name, p in whole.finish().named_parameters()}
    for stop in (9, 10):  # before the end is known, and after
        run(tmp_path / str(stop), stop=stop)
        resumed, _ = run(tmp_path / str(stop), resume=True)
        assert resumed.step == 11
        assert_identical({n: p.detach() for n, p in resumed.finish().named_parameters()}, finished)
    assert run(None, pairs=99)[0].step != 11  # all of so few say nothing


def test_the_end_of_a_watched_run_is_averaged() -> None:
    trainer = small_trainer(steps=60, schedule="watched", warmup=2, average=4)
    seen = {}
    for step in trainer.steps():
        seen[step.step] = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    last = trainer.step
    averaged = sorted(step for step in trainer.snapshots if trainer._in_average(step))
    assert averaged[-1] == last
    assert len(averaged) == 4
    assert averaged[0] >= 0.75 * last
    finished = {name: p.detach() for name, p in trainer.finish().named_parameters()}
    mean = {name: torch.stack([seen[step][name] for step in averaged]).mean(0) for name in finished}
    for name, weight in finished.items():
        torch.testing.assert_close(weight, mean[name], msg=name)


def test_a_budget_becomes_steps_that_the_folder_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The speed is measured once: nothing has been learned by that, and a resumed run does not measure again."""
    settings = {"steps": TrainingConfig().steps, "budget": 100.0, "schedule": "watched", "evaluate_on": 1}
    timed = []

    def seconds_of(learner: Learner, batches: Callable[[int], object], count: int) -> float:
        real(learner, batches, count)  # type: ignore[arg-type]
        timed.append(count)
        return 2.0

    real = Learner.seconds_of
    monkeypatch.setattr(Learner, "seconds_of", seconds_of)
    trainer = small_trainer(tmp_path / "run", **settings)
    for step in trainer.steps():
        if step.step == 20:
            trainer.save(at_once=True)
            break
    assert (timed, trainer.config.training.steps) == ([loop.TIMED], 45)  # nine tenths of 100 s, 2 s each
    assert "steps = 45 " in (tmp_path / "run" / "config.toml").read_text()
    weights = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    plain = small_trainer(**{**settings, "steps": 45})
    for step in plain.steps():
        if step.step == 20:
            break
    assert_identical({name: p.detach() for name, p in plain.model.named_parameters()}, weights)
    resumed = small_trainer(tmp_path / "run", resume=True, **settings)
    assert (resumed.step, resumed.config.training) == (20, trainer.config.training)
    assert max(step.step for step in resumed.steps()) <= 45
    assert timed == [loop.TIMED]


@pytest.mark.parametrize("harm", ["loss", "weights"])
def test_a_training_that_diverges_says_so_and_keeps_the_last_good_checkpoint(
    harm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = small_trainer(tmp_path)
    learn = trainer.learner.learn

    def diverging(*arguments: object) -> torch.Tensor:
        loss = learn(*arguments)  # type: ignore[arg-type]
        if harm == "weights" and trainer.step == 16:  # the loss of this step is still a number
            with torch.no_grad():
                next(trainer.model.parameters()).fill_(float("nan"))
        return loss * float("nan") if harm == "loss" and trainer.step == 12 else loss

    monkeypatch.setattr(trainer.learner, "learn", diverging)
    what = "the loss is nan" if harm == "loss" else "some weights are not finite"
    message = rf"diverged: at step 16 {what}\. .*lower training\.learning_rate .*keeps the checkpoint of step 10\."
    with pytest.raises(UserError, match=message):
        for _ in trainer.steps():
            pass
    assert checkpoint.steps_in(tmp_path / CHECKPOINTS) == [8, 10]
    assert [json.loads(line)["step"] for line in (tmp_path / LOG).read_text().splitlines()] == [10]


@pytest.mark.filterwarnings("ignore:.*bf16.*:UserWarning")  # some CPUs have no bfloat16 and say so
@pytest.mark.parametrize("settings", sweep([
    {"chained": 0.5, "muon": 5.0},
    {"layout": "packed", "batch_tokens": 256, "r_drop": 1.0, "accumulate": 2},
    {"layout": "packed", "batch_tokens": 256}, {"accumulate": 2}, {"r_drop": 1.0}, {"precision": "bfloat16"},
    {"chained": 0.5, "layout": "packed", "batch_tokens": 256},
], 1))  # fmt: skip
def test_other_runs_resume_too(settings: dict[str, object], tmp_path: Path) -> None:
    settings = {"steps": 12, "checkpoint_every": 3, **settings}
    whole = finished(small_trainer(**settings))
    first = small_trainer(tmp_path, **settings)
    for step in first.steps():
        if step.step == 5:
            first.save(at_once=True)
            break
    assert_identical(finished(small_trainer(tmp_path, resume=True, **settings)), whole)


@pytest.mark.filterwarnings("ignore:.*bf16.*:UserWarning")  # some CPUs have no bfloat16 and say so
def test_bfloat16_keeps_float32_weights_and_learns() -> None:
    trainer = small_trainer(steps=20, learning_rate=0.02, precision="bfloat16")
    losses = [float(step.loss) for step in trainer.steps()]
    assert sum(losses[-5:]) / 5 < 0.9 * losses[0]
    assert {parameter.dtype for parameter in trainer.model.parameters()} == {torch.float32}
    for ours, theirs in zip(trainer.model.parameters(), trainer.learner.worker.parameters(), strict=True):
        assert torch.equal(ours.bfloat16(), theirs)


@pytest.mark.parametrize("stop", sweep([13, 33, 1, 8, 24, 39], 1))
def test_stopped_and_resumed_equals_uninterrupted(
    stop: int, tmp_path: Path, uninterrupted: dict[str, torch.Tensor]
) -> None:
    first = small_trainer(tmp_path)
    for step in first.steps():
        if step.step == stop:
            first.save(at_once=True)  # what Ctrl-C does
            break
    torch.manual_seed(12345)  # whatever happened in between
    second = small_trainer(tmp_path, resume=True)
    assert second.step == stop
    assert float(second.total) == float(first.total)  # the losses since the last line of the log
    assert second.count == first.count == stop % 10
    assert_identical(finished(second), uninterrupted)


def test_a_training_of_an_earlier_version_is_refused(tmp_path: Path) -> None:
    first = small_trainer(tmp_path)
    for step in first.steps():
        if step.step == 3:
            first.save(at_once=True)
            break
    kept = checkpoint.read(tmp_path / CHECKPOINTS, 3)
    notes = {name: value for name, value in kept.notes.items() if name != "course"}
    checkpoint.write(tmp_path / CHECKPOINTS, replace(kept, notes=notes))
    with pytest.raises(UserError, match="was begun by an earlier version of seq2see"):
        small_trainer(tmp_path, resume=True)


def test_the_average_is_of_the_last_checkpoints() -> None:
    trainer = small_trainer()
    seen = {}
    for step in trainer.steps():
        seen[step.step] = {n: p.detach().clone() for n, p in trainer.model.named_parameters()}
    assert [step for step in trainer.snapshots if trainer._in_average(step)] == [32, 40]
    trainer.finish()
    for name, parameter in trainer.model.named_parameters():
        torch.testing.assert_close(parameter, (seen[32][name] + seen[40][name]) / 2)


@pytest.mark.parametrize("harm", sweep(["flip", "truncate", "empty", "garbage"], 2))
def test_a_damaged_checkpoint_is_noticed_and_the_one_before_used(
    harm: str, tmp_path: Path, uninterrupted: dict[str, torch.Tensor]
) -> None:
    first = small_trainer(tmp_path)
    for step in first.steps():
        if step.step == 25:
            break
    where = tmp_path / CHECKPOINTS
    before, last = checkpoint.steps_in(where)[-2:]
    newest = checkpoint.path_of(where, last)
    data = bytearray(newest.read_bytes())
    if harm == "flip":
        data[-100] ^= 1
    newest.write_bytes({"truncate": data[: len(data) // 2], "flip": data, "empty": b"", "garbage": b"x" * 999}[harm])
    said: list[str] = []
    second = small_trainer(tmp_path, resume=True, said=said)
    assert second.step == before
    assert checkpoint.steps_in(where)[-1] == before  # what is damaged does not stay
    assert any(newest.name in text and "damaged" in text for text in said)
    assert_identical(finished(second), uninterrupted)


def test_all_checkpoints_lost_starts_over(tmp_path: Path, uninterrupted: dict[str, torch.Tensor]) -> None:
    first = small_trainer(tmp_path)
    for step in first.steps():
        if step.step == 20:
            break
    for path in (tmp_path / CHECKPOINTS).iterdir():
        path.write_bytes(b"")
    said: list[str] = []
    second = small_trainer(tmp_path, resume=True, said=said)
    assert second.step == 0
    assert "beginning" in said[-1]
    assert_identical(finished(second), uninterrupted)


SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
import torch
from test_training import small_trainer
torch.set_num_threads(1)  # as in the tests: the order of a sum depends on it
trainer = small_trainer(Path(sys.argv[1]), resume=True)
for step in trainer.steps():
    print(step.step, flush=True)
trainer.finish()
trainer.write("card")
"""


@pytest.mark.heavy  # tests/soak kills trainings in `make test` too
def test_killed_at_any_moment_and_resumed_equals_uninterrupted(tmp_path: Path) -> None:
    """kill -9 at random moments, several times in one run, some while a checkpoint is being written."""
    out, whole, here = tmp_path / "run", tmp_path / "whole", str(Path(__file__).parent)
    command = [sys.executable, "-c", SCRIPT]
    subprocess.run([*command, str(whole), here], stdout=subprocess.DEVNULL, check=True)
    moments = random.Random(7)
    kills = 0
    while not (out / "model.safetensors").exists():
        process = subprocess.Popen([*command, str(out), here], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for _ in range(moments.randint(5, 14)):
            if not process.stdout.readline():
                break
        killed = kills < 3
        if killed:
            time.sleep(moments.random() * 0.02)
            process.kill()
            kills += process.wait() == -signal.SIGKILL
            if (out / CHECKPOINTS).exists():  # what a kill in the middle of a write leaves behind
                (out / CHECKPOINTS / ".checkpoint-000000008.safetensors.left").write_bytes(b"half")
        assert process.stdout.read() is not None
        assert process.wait() == 0 or killed
        process.stdout.close()
    assert kills >= 2
    assert not (out / CHECKPOINTS).exists()
    assert_identical(load_file(out / "model.safetensors"), load_file(whole / "model.safetensors"))
    lines = [json.loads(line) for line in (out / LOG).read_text().splitlines()]
    assert [line["step"] for line in lines] == [10, 20, 30, 40]


def test_a_kill_while_the_folder_is_opened_can_be_resumed(
    tmp_path: Path, uninterrupted: dict[str, torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between any two files: those of two tokenizers, the config, the log."""
    two = Tokenizers(Tokenizer.characters(), Tokenizer.characters())
    real = folder.write_atomically
    for alive in range(4):
        out, written = tmp_path / str(alive), []

        def dying(path: Path, data: bytes, alive: int = alive, written: list[Path] = written) -> None:
            if len(written) == alive:
                raise KeyboardInterrupt
            written.append(path)
            real(path, data)

        with monkeypatch.context() as patched:
            patched.setattr(folder, "write_atomically", dying)
            with pytest.raises(KeyboardInterrupt):
                small_trainer(out, tokenizers=two)
        assert len(written) == alive
        if (out / folder.CONFIG).exists():
            with pytest.raises(FolderError, match="unfinished training: continue it with `resume`"):
                small_trainer(out, tokenizers=two)
        else:  # nothing was learned: the same command begins anew
            assert small_trainer(out, tokenizers=two).step == 0
        resumed = small_trainer(out, resume=True, tokenizers=two)
        assert folder.read_config(out) == resumed.config
        assert not folder.read_tokenizers(out).shared
    assert_identical(finished(resumed), uninterrupted)


def test_folders_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    with pytest.raises(FolderError, match="not empty"):
        small_trainer(tmp_path / "full")
    (tmp_path / "file").write_text("x")
    with pytest.raises(FolderError, match="is a file"):
        small_trainer(tmp_path / "file")
    trainer = small_trainer(tmp_path / "run", steps=2)
    with pytest.raises(FolderError, match="unfinished training"):
        small_trainer(tmp_path / "run", steps=2)
    with pytest.raises(UserError, match=r"training\.steps = 2, but now it is 3"):
        small_trainer(tmp_path / "run", resume=True, steps=3)
    finished(trainer)
    trainer.write("card")
    with pytest.raises(FolderError, match="finished model"):
        small_trainer(tmp_path / "run", resume=True, steps=2)
    assert not (tmp_path / "run" / CHECKPOINTS).exists()


def test_other_data_is_noticed_at_resume(tmp_path: Path) -> None:
    first = small_trainer(tmp_path)
    for step in first.steps():
        if step.step == 8:
            break
    train, validation, _ = dates.splits(150, 20, 20, seed=1)
    with pytest.raises(UserError, match="other data"):
        Trainer(small_config(), Tokenizers.one(Tokenizer.characters()), train, validation, tmp_path, resume=True)


def test_texts_longer_than_the_model_are_refused() -> None:
    train, validation, _ = dates.splits(50, 5, 5, seed=1)
    config = small_config()
    short = Config(config.task, config.model.but(max_length=15), config.training)
    with pytest.raises(UserError, match=r"longest target text has \d+ tokens, but model.max_length is 15"):
        Trainer(short, Tokenizers.one(Tokenizer.characters()), train, validation)


def test_the_name_of_a_shipped_model_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FolderError, match="a model that ships"):
        small_trainer(Path("dates"))


def test_a_damaged_note_is_noticed(tmp_path: Path) -> None:
    first = small_trainer(tmp_path)
    for step in first.steps():
        if step.step == 17:
            break
    newest = checkpoint.path_of(tmp_path / CHECKPOINTS, 16)
    newest.write_bytes(newest.read_bytes().replace(b"seconds", b"secomds"))
    assert small_trainer(tmp_path, resume=True).step == 10


def test_a_restored_learner_computes_with_the_restored_weights() -> None:
    """In half precision a copy of the weights computes: it must not stay behind."""
    settings = TrainingConfig.of(precision="bfloat16")
    batch = Batch.of([[1, 5, 6, 2], [1, 7, 2]], [[1, 4, 2], [1, 5, 6, 2]], (0, 0))
    learner, other = (Learner(small_model(seed), settings, 0) for seed in (0, 1))
    learner.learn([batch], 0.01)
    assert other.worker is not other.model
    put_weights(other.model, learner.weights(), "the other")
    other.restore(learner.state())
    for ours, theirs in zip(other.worker.parameters(), learner.worker.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_no_half_written_file_stays_when_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = small_trainer(tmp_path)
    for step in trainer.steps():
        if step.step == 9:
            break

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    before = sorted(path.name for path in (tmp_path / CHECKPOINTS).iterdir())
    with pytest.raises(FolderError, match="No space left on device"):
        trainer.save(at_once=True)
    assert sorted(path.name for path in (tmp_path / CHECKPOINTS).iterdir()) == before


def test_a_resumed_run_keeps_its_number_of_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of another number of threads could differ in their last bits."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    used: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", used.append)
    monkeypatch.setattr(loop, "free_cores", lambda: 3)
    first = small_trainer(tmp_path)
    next(first.steps())
    assert used == [3, 4]  # for the step alone
    first.save(at_once=True)
    del first
    monkeypatch.setattr(loop, "free_cores", lambda: 1)
    second = small_trainer(tmp_path, resume=True)
    assert second.threads == 3
    assert small_trainer().threads == 1


def test_the_parts_of_an_epoch_hold_every_pair_once_and_depend_on_the_step_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pairs of a large corpus are varied a part at a time."""
    monkeypatch.setattr(training_pairs, "VARIED_AT_ONCE", 64)
    trainer, other = (small_trainer(chained=1e-9, batch_tokens=400) for _ in range(2))
    tokenizer = trainer.tokenizers.source
    made = [trainer.batches.make(number) for number in range(8)]  # 200 pairs are four parts
    epochs = [
        [text for source, _ in made[first : first + 4] for text in texts_of(source, tokenizer)] for first in (0, 4)
    ]
    train, _, _ = dates.splits(200, 20, 20, seed=1)
    assert sorted(epochs[0]) == sorted(epochs[1]) == sorted(source for source, _ in train)
    assert epochs[0] != epochs[1]
    seen = [trainer.batches.at(step) for step in range(2 * trainer.batches.per_epoch)]
    for step in (len(seen) - 1, 3, 0):
        assert torch.equal(other.batches.at(step).source, seen[step].source)
    assert sum(len(batch.source) for batch in seen[: trainer.batches.per_epoch]) == pytest.approx(200, abs=30)


def test_muon_is_pytorchs_and_moves_the_matrices_of_the_layers_alone() -> None:
    torch.manual_seed(0)
    shapes = {"layers.0.w_1": (12, 6), "layers.0.w_2": (6, 12), "layers.1.w_1": (12, 6), "layers.1.w_q": (6, 6)}
    begun = {name: torch.randn(shape) for name, shape in shapes.items()}
    others = {"layers.0.bias": torch.randn(6), "embedding": torch.randn(9, 6)}
    ours = {name: weight.clone().requires_grad_() for name, weight in (begun | others).items()}
    theirs = {name: weight.clone().requires_grad_() for name, weight in (begun | others).items()}
    mine = Muon(ours, 5.0, 0.01, (0.9, 0.98), 1e-9)
    muon = torch.optim.Muon([theirs[name] for name in begun], lr=0.05, ns_steps=ROUNDS)
    adam = Adam([theirs[name] for name in others], 0.01, (0.9, 0.98), 1e-9)
    for number in range(5):
        for name, weight in ours.items():
            weight.grad = torch.randn_like(weight) if number or name != "layers.1.w_q" else None  # it comes in later
            theirs[name].grad = None if weight.grad is None else weight.grad.clone()
        rate = 0.01 / (number + 1)
        mine.learning_rate, muon.param_groups[0]["lr"], adam.learning_rate = rate, 5 * rate, rate
        for optimiser in (mine, muon, adam):
            optimiser.step()
        mine.zero_grad()
        assert all(weight.grad is None for weight in ours.values())
    for name, weight in begun.items():
        moved = (theirs[name] - weight).norm()
        assert (ours[name] - theirs[name]).norm() < 0.02 * moved, name  # PyTorch's computes in bfloat16
    assert all(torch.equal(ours[name], theirs[name]) for name in others)
    assert mine.state[ours["layers.0.w_1"]].keys() == {"momentum"}


def test_muon_learns_the_matrices_of_all_layers() -> None:
    trainer = small_trainer(muon=5.0)
    next(iter(trainer.steps()))
    learner = trainer.learner
    by_muon = {name for name, weight in learner.trained.items() if "momentum" in learner.optimiser.state[weight]}
    assert {name.split(".")[-2] for name in by_muon} == {"w_q", "w_k", "w_v", "w_o", "w_1", "w_2"}
    assert len(by_muon) == 16  # 6 of the encoder's layer, 10 of the decoder's
    several = network_of(small_config().model.but(members=2))
    assert sum(is_matrix(name, weight) for name, weight in several.named_parameters()) == 2 * 16


def test_adam_is_pytorchs_and_a_training_does_not_import_its_compiler() -> None:
    torch.manual_seed(0)
    ours = [torch.randn(5, 3, requires_grad=True), torch.randn(7, requires_grad=True)]
    theirs = [weight.detach().clone().requires_grad_() for weight in ours]
    mine = Adam(ours, 0.01, (0.9, 0.98), 1e-9)
    other = torch.optim.Adam(theirs, lr=0.01, betas=(0.9, 0.98), eps=1e-9, fused=True)
    for number in range(5):
        for a, b in zip(ours, theirs, strict=True):
            a.grad = torch.randn_like(a) if number or a is ours[0] else None  # one comes in later
            b.grad = None if a.grad is None else a.grad.clone()
        mine.learning_rate = other.param_groups[0]["lr"] = 0.01 / (number + 1)
        mine.step()
        other.step()
        mine.zero_grad()
        assert all(weight.grad is None for weight in ours)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    code = (
        "import sys\nsys.path.insert(0, 'tests')\nimport seq2see\n"
        "pairs = [(f'{n:03}', f'{n:03}') for n in range(30)]\n"
        "short = {'max_length': 4}\n"
        "seq2see.fit(pairs, training={'steps': 2}, decoding=short, device='cpu')\n"
        "assert 'torch' in sys.modules\nassert 'torch._dynamo' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_papers_schedule() -> None:
    config = TrainingConfig()
    for step in (1, 100, 4000, 4001, 100_000):
        expected = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
        assert learning_rate(step, config, 512) == pytest.approx(expected)


def test_cosine_ends_at_zero() -> None:
    config = TrainingConfig.of(schedule="cosine", steps=100, warmup=10, learning_rate=1.0)
    assert learning_rate(5, config, 1) == pytest.approx(0.5)
    assert learning_rate(10, config, 1) == 1.0
    assert learning_rate(55, config, 1) == pytest.approx(0.5)
    assert learning_rate(100, config, 1) == pytest.approx(0.0)


@pytest.mark.parametrize(("steps", "every", "average", "expected"), [
    (40, 8, 1, [40]), (41, 8, 2, [40, 41]), (5, 8, 3, [5]), (16, 8, 5, [16]), (17, 8, 9, [16, 17]),
    (800, 200, 5, [600, 800]), (2000, 200, 2, [1800, 2000]),
])  # fmt: skip
def test_which_checkpoints_are_averaged(steps: int, every: int, average: int, expected: list[int]) -> None:
    trainer = small_trainer(steps=steps, checkpoint_every=every, average=average)
    assert [step for step in range(1, steps + 1) if trainer._in_average(step)] == expected


def test_a_single_number_of_a_checkpoint_that_has_changed_is_noticed(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path, checkpoint_every=5)
    steps = trainer.steps()
    while next(steps).step < 6:
        pass
    steps.close()
    (step,) = checkpoint.steps_in(tmp_path / CHECKPOINTS)
    path = checkpoint.path_of(tmp_path / CHECKPOINTS, step)
    data = bytearray(path.read_bytes())
    data[-3] ^= 1  # the tensors are at the end
    path.write_bytes(data)
    with pytest.raises(FolderError, match="do not match their digest"):
        checkpoint.read(tmp_path / CHECKPOINTS, step)


@pytest.mark.heavy
def test_a_damaged_part_of_the_average_is_made_again(tmp_path: Path) -> None:
    settings = {"checkpoint_every": 2, "average": 5}
    first = small_trainer(tmp_path, **settings)
    for step in first.steps():
        if step.step == 35:
            first.save(at_once=True)
            break
    where = tmp_path / CHECKPOINTS
    assert set(checkpoint.steps_in(where)) == {32, 34, 35, first.best.step}
    checkpoint.path_of(where, 34).write_bytes(b"")
    second = small_trainer(tmp_path, resume=True, **settings)
    assert second.step == 32  # 35 is whole, but 34 is needed for the average
    assert_identical(finished(second), finished(small_trainer(**settings)))


@pytest.mark.heavy
def test_ctrl_c_leaves_a_checkpoint_that_resumes(tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = [sys.executable, "-m", "seq2see", "train", "dates", "--out", str(out), "--count", "300",
               "--steps", "60", "--years", "2000-2004",
               "--set", "training.batch_tokens=400", "--set", "training.checkpoint_every=50",
               "--set", "training.evaluate_every=10", "--set", "training.evaluate_on=10"]  # fmt: skip
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip().startswith("10"):
            process.send_signal(signal.SIGINT)
            break
    _, errors = process.communicate()
    assert process.returncode == 130
    assert "--resume continues" in errors
    assert "Traceback" not in errors
    *_, stopped = checkpoint.steps_in(out / CHECKPOINTS)  # the best so far may be kept beside it
    assert 10 <= stopped < 60
    again = subprocess.run([*command, "--resume"], capture_output=True, text=True, check=True)
    assert f"Resuming from step {stopped}" in again.stderr
    assert (out / "model.safetensors").exists()
    whole = tmp_path / "whole"
    command[command.index(str(out))] = str(whole)
    subprocess.run(command, capture_output=True, check=True)
    assert_identical(load_file(out / "model.safetensors"), load_file(whole / "model.safetensors"))


def test_muon_makes_every_direction_equally_long() -> None:
    torch.manual_seed(0)
    made = orthogonal(torch.randn(3, 16, 64))
    assert made.shape == (3, 16, 64)
    lengths = torch.linalg.svdvals(made)
    assert lengths.min() > 0.6
    assert lengths.max() < 1.3
