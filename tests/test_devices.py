"""Which device does what: made-up lists of GPUs, and a plain path that needs no kernels."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import seq2see
from seq2see import devices
from seq2see.cli import answering, main
from seq2see.cli.lines import characters_in
from seq2see.data.recipe import fast_on
from seq2see.devices import Choice, Work
from seq2see.errors import UserError
from seq2see.storage import folder
from seq2see.training.job import TrainingJob
from seq2see.training.options import TrainOptions
from seq2see.training.prepare import RawSplits, prepare, prepare_dates

NONE: list[str] = []
ONE, TWO, APPLE = ["cuda:0"], ["cuda:0", "cuda:1"], ["mps"]
DATES, FRENCH = (folder.read_config(folder.find(name)).model for name in ("dates", "en-fr"))


def looking(found: list[str]) -> Callable[[], list[str]]:
    return lambda: found


def unseen() -> list[str]:
    raise AssertionError("nobody needs to look for a GPU")


@pytest.mark.parametrize(
    ("asked", "work", "found", "device"),
    [
        ("cpu", Work(1024, pairs=10**7), ONE, "cpu"),
        ("auto", Work(128, pairs=100), ONE, "cuda"),
        ("auto", Work(128, pairs=100), TWO, "cuda"),
        ("auto", Work(128, pairs=100), NONE, "cpu"),
        ("auto", Work(128, pairs=100), APPLE, "cpu"),
        ("auto", Work(126, pairs=devices.MANY_PAIRS - 1), ONE, "cpu"),
        ("auto", Work(16, pairs=devices.MANY_PAIRS), ONE, "cuda"),
        ("auto", devices.answering(FRENCH, 10**6), ONE, "cuda"),
        ("auto", devices.answering(FRENCH, 10**6), NONE, "cpu"),
        ("auto", devices.lasting(FRENCH), ONE, "cuda"),
        ("auto", Work(devices.ANSWERED - 1, 10**6, characters=10**12), ONE, "cpu"),
        ("cuda", devices.answering(DATES, 1), ONE, "cuda"),
        ("cuda:1", devices.answering(DATES, 1), TWO, "cuda:1"),
        ("mps", devices.answering(DATES, 1), APPLE, "mps"),
    ],
)
def test_a_gpu_is_taken_where_it_pays_and_is_there(asked: str, work: Work, found: list[str], device: str) -> None:
    assert devices.choose(asked, work, looking(found)).device == device


@pytest.mark.parametrize(
    "work",
    [
        devices.answering(DATES, 10**9),
        devices.lasting(DATES),
        devices.answering(FRENCH, 100),
        Work(devices.SERVED - 1, 10**9, characters=inf),
    ],
)
def test_nobody_looks_for_a_gpu_that_would_not_pay(work: Work) -> None:
    assert devices.choose("auto", work, unseen) == Choice("cpu")
    assert devices.choose("cpu", work, unseen) == Choice("cpu")


def test_the_choice_is_said_where_there_is_one() -> None:
    taken = devices.choose("auto", Work(256, pairs=5000), looking(ONE))
    assert taken.said == "The GPU is used, since d_model is 256 (--device cpu avoids it)."
    left = devices.choose("auto", Work(64, pairs=1), looking(ONE))
    assert left.said == "The CPU is used, since 1 pair with d_model 64 are little work (--device cuda takes the GPU)."
    answered = devices.choose("auto", devices.answering(FRENCH, 10**6), looking(ONE))
    assert "since there are 1,000,000 characters for 28,246,016 parameters" in answered.said
    for asked, found in (("auto", NONE), ("cpu", ONE), ("cuda", ONE)):
        assert not devices.choose(asked, Work(256, pairs=5000), looking(found)).said


@pytest.mark.parametrize(
    ("asked", "found", "message"),
    [
        ("gpu", ONE, "`device` is 'gpu': auto, cpu, cuda, cuda:1 or mps was expected"),
        ("mps:0", APPLE, "`device` is 'mps:0': auto"),
        ("cuda:x", ONE, "`device` is 'cuda:x': auto"),
        ("cuda", NONE, "`device` is 'cuda', but PyTorch sees no GPU here"),
        ("cuda", APPLE, "`device` is 'cuda', but PyTorch sees no GPU here"),
        ("mps", ONE, r"`device` is 'mps', but PyTorch sees no GPU of Apple \(MPS\) here"),
        ("cuda:2", TWO, "`device` is 'cuda:2', but PyTorch sees cuda:0, cuda:1 here: use one of these"),
    ],
)
def test_a_device_that_is_not_there_is_refused(asked: str, found: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        devices.choose(asked, Work(512, pairs=10**6), looking(found))


def test_looking_for_a_gpu_where_the_system_shows_none_imports_no_torch() -> None:
    code = (
        "import sys\nfrom seq2see import devices\ndevices._may_have_one = lambda: False\n"
        "assert devices.found() == []\nassert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# --- where it is used ----------------------------------------------------------------------------------------------


def made_up(monkeypatch: pytest.MonkeyPatch, found: list[str]) -> None:
    monkeypatch.setattr(devices, "found", looking(found))


PAIRS = [(f"{number:05}", f"{number:05}"[::-1]) for number in range(500)]


def test_a_training_plans_for_the_device_that_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    made_up(monkeypatch, ONE)
    data = RawSplits.read(PAIRS)
    ready = prepare(data, TrainOptions())
    assert (ready.device, ready.config.training.layout) == ("cuda", "packed")
    assert ready.where.said.startswith("The GPU is used, since d_model is 128")
    small = prepare(data, TrainOptions(preset="document"))
    assert (small.device, small.config.training.layout) == ("cpu", "padded")
    assert small.where.said.startswith("The CPU is used, since 4")
    wide = prepare(data, TrainOptions(preset="document", model={"d_model": 256}))
    assert wide.device == "cuda"
    assert prepare(data, TrainOptions(device="cpu")).device == "cpu"
    assert prepare_dates(TrainOptions(), (1000, 9999), 1000).device == "cpu"
    made_up(monkeypatch, NONE)
    ready = prepare(data, TrainOptions())
    assert (ready.device, ready.where.said) == ("cpu", "")


def test_apples_gpu_trains_padded_batches_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    made_up(monkeypatch, APPLE)
    ready = prepare(RawSplits.read(PAIRS), TrainOptions(device="mps"))
    settings = ready.config.training
    assert (ready.device, settings.layout, settings.precision) == ("mps", "padded", "float32")
    assert fast_on("mps", {"d_model": 512}) == {}


def test_the_command_says_which_device_answers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[str, str]] = []
    dates = seq2see.load("dates")

    def load(name: str, device: str, engine: str) -> Any:
        asked.append((name, device))
        return dates

    lines = tmp_path / "lines.txt"
    lines.write_text("1845-01-05\n")
    large = tmp_path / "large.txt"
    with large.open("wb") as file:
        file.truncate(10**6)
    monkeypatch.setattr("seq2see.seq2seq.load", load)
    made_up(monkeypatch, ONE)
    for path, model, engine in ((lines, "en-fr", "auto"), (large, "en-fr", "auto"), (large, "en-fr", "int8"),
                                (large, "dates", "auto")):  # fmt: skip
        answering.loaded(model, "auto", engine, characters_in(path))
    assert [device for _, device in asked] == ["cpu", "cuda", "cpu", "cpu"]
    assert capsys.readouterr().err.count("The GPU is used") == 1
    packed = tmp_path / "packed.txt.gz"
    packed.write_bytes(b"x" * 100)
    assert characters_in(packed, None, tmp_path / "pipe") == 300
    asked.clear()
    monkeypatch.setattr("sys.argv", ["seq2see", "predict", "--file", str(lines)])
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    assert asked == [("dates", "cpu")]


def test_a_loaded_model_takes_a_gpu_only_if_it_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    made_up(monkeypatch, ONE)
    assert seq2see.load("dates", device="auto").device == "cpu"
    model = seq2see.load("dates")
    assert model.to("auto").device == "cpu"
    seen = []
    monkeypatch.setattr(seq2see.answering.network.Network, "find_export", lambda network: seen.append(network.device))
    seq2see.load("en-fr", device="auto")
    assert seen == ["cuda"]


class InFloat32(TorchDispatchMode):
    """Refuses numbers of 64 bits, as Apple's GPUs do."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        for one in tree_leaves(found):
            if isinstance(one, torch.Tensor):
                assert one.dtype not in (torch.float64, torch.bfloat16), f"{function} gives {one.dtype}"
        return found


@pytest.mark.parametrize("beam", [1, 3])
def test_the_plain_path_needs_no_number_of_64_bits(beam: int) -> None:
    """What Apple's GPUs run: training on padded batches, and a search step by step."""
    ready = prepare(RawSplits.read(PAIRS), TrainOptions(device="cpu", training={"steps": 2}))
    run = TrainingJob(ready, TrainOptions(device="cpu"), print)
    trainer = run.trainer
    with InFloat32():
        trainer.learner.learn([trainer.batches.at(0)], 1e-3)
        found = trainer.engine.search([[4, 5, 6], [5, 6]], ready.config.decoding.but(beam=beam))
    assert len(found) == 2
