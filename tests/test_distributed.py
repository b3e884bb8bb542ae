"""Two processes under torchrun are as good as one, and outlive the death of one of them.

The file is also the program that torchrun starts: a start takes seconds, so that one runs many cases.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from seq2see import cli
from seq2see.config import PRESETS, Config, ModelConfig, TrainingConfig
from seq2see.errors import UserError
from seq2see.storage.folder import LOG, Tokenizers
from seq2see.tasks import dates
from seq2see.tokenizers.tokenizer import Tokenizer
from seq2see.training import checkpoint, distributed
from seq2see.training.checkpoint import CHECKPOINTS
from seq2see.training.loop import Step, Trainer

PACKED = {"layout": "packed", "batch_tokens": 256}
NARROW = {"precision": "bfloat16", "steps": 5}
#: What two processes do, with the settings by which one process does the same.
CASES: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "padded": ({}, {"accumulate": 2}),
    "packed": ({**PACKED, "accumulate": 2}, {**PACKED, "accumulate": 4}),
    "patient": ({"patience": 1}, {"patience": 1, "accumulate": 2}),
    "narrow": (NARROW, {**NARROW, "accumulate": 2}),
}  # fmt: skip
#: Two processes start, compile and train for half a minute.
pytestmark = pytest.mark.heavy
STEPS, STOP, DEATH = 9, 5, 13
LITTLE = ["--steps", "20", "--set", "training.batch_tokens=300", "--set", "training.evaluate_every=4",
          "--set", "training.evaluate_on=5", "--set", "training.checkpoint_every=5", "--set", "training.average=2",
          "--set", "model.d_model=16", "--set", "model.d_ff=16"]  # fmt: skip


def trainer_of(
    out: Path | None = None, resume: bool = False, dropout: float = 0.0, pairs: int = 150, **training: object
) -> Trainer:
    """A small run. Clipping bites, and ε is so large that Adam does not hide gradients of a wrong size."""
    settings = dict(
        steps=STEPS, batch_tokens=120, schedule="cosine", warmup=3, learning_rate=0.02, epsilon=0.05, clip=0.7,
        average=2, checkpoint_every=3, evaluate_every=3, evaluate_on=5, label_smoothing=0.1,
    )  # fmt: skip
    model = {**PRESETS["document"].model, "encoder_layers": 1, "decoder_layers": 1, "dropout": dropout}
    train, validation, _ = dates.splits(pairs, 10, 10, seed=1)
    # of very different lengths: were each process to divide by its own tokens, the loss would be another
    train = [(source * (1 + number % 3), target * (1 + number % 3)) for number, (source, target) in enumerate(train)]
    config = Config(
        "dates",
        ModelConfig.of(source_vocabulary=68, target_vocabulary=68, **model),
        TrainingConfig.of(**{**settings, **training}),
    )
    return Trainer(config, Tokenizers.one(Tokenizer.characters()), train, validation, out, resume)


def losses_of(trainer: Trainer, stop: int | None = None) -> list[float]:
    losses = []
    for step in trainer.steps():
        losses.append(float(step.loss))
        if step.step == stop:
            trainer.save(at_once=True)
            break
    return losses


def result(trainer: Trainer, losses: list[float]) -> dict[str, torch.Tensor]:
    weights = {name: parameter.detach() for name, parameter in trainer.finish().named_parameters()}
    return {"losses": torch.tensor(losses), **weights}


# --- what runs in each of the processes ----------------------------------------------------------------------------


def run_cases(where: Path) -> None:
    distributed.join("cpu")
    for name, (settings, _) in CASES.items():
        ended(trainer_of(where / f"{name}-run", **settings), where / name)
    ended(trainer_of(dropout=0.2), where / "all-at-once")
    losses_of(trainer_of(where / "half", dropout=0.2), STOP)
    ended(trainer_of(where / "half", resume=True, dropout=0.2), where / "resumed")
    losses_of(trainer_of(where / "left"), STOP)
    (where / f"exchanges-{distributed.rank()}").write_text(json.dumps([exchanges(1), exchanges(3)]))
    try:
        trainer_of(pairs=150 - distributed.rank())
    except UserError as error:
        (where / f"error-{distributed.rank()}").write_text(str(error))


def exchanges(accumulate: int) -> int:
    """Count how often gradients are sent in one step."""
    trainer, sent = trainer_of(accumulate=accumulate), []

    def count(group, bucket):  # type: ignore[no-untyped-def]  # PyTorch cannot read annotations of the future
        sent.append(bucket.index())
        return allreduce_hook(group, bucket)

    assert isinstance(trainer.learner.losses[0], DistributedDataParallel)
    trainer.learner.losses[0].register_comm_hook(None, count)
    trainer.learner.learn([trainer.batches.at(number) for number in range(accumulate)], 0.01)
    return len(sent)


def ended(trainer: Trainer, where: Path) -> None:
    losses = losses_of(trainer)
    if distributed.first():
        save_file(result(trainer, losses), where)


def run_command(mode: str, arguments: list[str]) -> None:
    """Run the command line, in which process 1 dies once or each step takes long."""
    steps, first_start = Trainer.steps, os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"

    def watched(self: Trainer) -> Iterator[Step]:
        for step in steps(self):
            if mode == "deadly" and step.step == DEATH and first_start and distributed.rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            if mode == "slow":
                time.sleep(0.1)
            yield step

    Trainer.steps = watched  # type: ignore[method-assign]
    sys.argv = ["seq2see", *arguments]
    cli.main()


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "cases":
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*bf16.*")  # some CPUs have no bfloat16 and say so
        arguments = sys.argv[1:]
        with contextlib.suppress(SystemExit):
            run_command("quiet", arguments[2:])
        run_cases(Path(arguments[1]))
    else:
        run_command(sys.argv[1], sys.argv[2:])


# --- what pytest runs ----------------------------------------------------------------------------------------------


def launched(*arguments: str, restarts: int = 0) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
         "--max-restarts", str(restarts), __file__, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pairs") / "mine.tsv"
    path.write_text("".join(f"{n}\t{n * 7 % 1000:03} items{' or so' * (n % 3)}\n" for n in range(300)))
    return path


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> Path:
    """The results of all cases, and of a whole training by the command line."""
    where = tmp_path_factory.mktemp("cases")
    process = launched("cases", str(where), "train", str(corpus), "--out", str(where / "whole"), *LITTLE)
    said, complaints = process.communicate(timeout=300)
    assert process.returncode == 0, (said, complaints)
    assert said.count("Written to") == 1  # by the first process alone
    assert said.count("mine.tsv: ") == 1
    return where


def assert_close(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor], by: float = 1e-5) -> None:
    assert ours.keys() == theirs.keys()
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], atol=by, rtol=by)


@pytest.mark.filterwarnings("ignore:.*bf16.*:UserWarning")
@pytest.mark.parametrize("name", CASES)
def test_two_processes_equal_one_with_the_same_batches(name: str, cases: Path) -> None:
    """The loss of every step and the final weights: one process that adds up the gradients of twice as many batches."""
    alone = trainer_of(**CASES[name][1])
    expected = result(alone, losses_of(alone))
    found = load_file(cases / name)
    assert_close(found, expected, 1e-5 if "narrow" not in name else 0.03)
    assert expected["losses"][-1] < expected["losses"][0] - 0.1
    lines = [json.loads(line) for line in (cases / f"{name}-run" / LOG).read_text().splitlines()]
    assert len({line["step"] for line in lines}) == len(lines) > 1  # written by the first process alone


def test_resumed_equals_uninterrupted_to_the_bit(cases: Path) -> None:
    """With dropout, which is drawn anew in each step and process."""
    whole, resumed = load_file(cases / "all-at-once"), load_file(cases / "resumed")
    assert torch.equal(whole.pop("losses")[STOP:], resumed.pop("losses"))
    assert all(torch.equal(whole[weight], resumed[weight]) for weight in whole)


def test_what_two_processes_left_one_can_go_on_with(cases: Path) -> None:
    trainer = trainer_of(cases / "left", resume=True, accumulate=2)
    assert (trainer.step, trainer.taken) == (STOP, 2 * STOP)
    found, expected = result(trainer, losses_of(trainer)), load_file(cases / "padded")
    expected["losses"] = expected["losses"][STOP:]
    assert_close(found, expected)


def test_gradients_travel_once_a_step(cases: Path) -> None:
    once, of_three = json.loads((cases / "exchanges-0").read_text())
    assert once == of_three > 0


def test_processes_with_other_data_are_told_so(cases: Path) -> None:
    assert "Process 1 has other pairs than process 0" in (cases / "error-1").read_text()


def test_a_killed_worker_is_restarted_and_the_result_is_right(cases: Path, corpus: Path, tmp_path: Path) -> None:
    """kill -9 of process 1 after step 13; torchrun starts both again, and they go on from a checkpoint, with dropout."""
    out = tmp_path / "run"
    process = launched("deadly", "train", str(corpus), "--out", str(out), *LITTLE, restarts=1)
    said, complaints = process.communicate(timeout=300)
    assert process.returncode == 0, (said, complaints)
    assert "exitcode: -9" in complaints
    assert any(f"Resuming from step {step}." in complaints for step in (10, 12))  # 12 if its line is the best so far
    assert not (out / CHECKPOINTS).exists()
    found, whole = load_file(out / "model.safetensors"), load_file(cases / "whole" / "model.safetensors")
    assert found.keys() == whole.keys()
    assert all(torch.equal(found[name], whole[name]) for name in whole)
    lines = [json.loads(line) for line in (out / LOG).read_text().splitlines()]
    assert [line["step"] for line in lines] == [4, 8, 12, 16, 20]
    assert "torchrun --nproc-per-node 2 -m seq2see train" in (out / "card.md").read_text()


def test_an_ended_run_leaves_one_good_checkpoint(corpus: Path, tmp_path: Path) -> None:
    """SIGTERM, as a cluster sends it when the time is up; it reaches the processes at different steps."""
    out = tmp_path / "run"
    process = launched("slow", "train", str(corpus), "--out", str(out), *LITTLE, "--steps", "200")
    assert process.stdout is not None
    for line in process.stdout:
        if line.split()[:1] == ["4"]:
            process.terminate()
            break
    _, complaints = process.communicate(timeout=120)
    assert process.returncode != 0
    assert complaints.count("the same command with --resume continues") == 1
    step = checkpoint.steps_in(out / CHECKPOINTS)[-1]
    assert f"Stopped after step {step}" in complaints
    assert 4 <= step < 200
    assert int(checkpoint.read(out / CHECKPOINTS, step).notes["batches"]) == 2 * step
    assert not list((out / CHECKPOINTS).glob(".*"))
