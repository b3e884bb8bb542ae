"""A GPU whose memory is full, played on a CPU: a network that has no room for more than so many rows."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient

import seq2see
from conftest import sweep
from seq2see import devices
from seq2see.cli import main
from seq2see.data.batching import Batches, Ragged
from seq2see.decoding import both_ways, graphs, torch_engine
from seq2see.decoding.graphs import Captured, GraphSearch
from seq2see.decoding.hypothesis import PAPER
from seq2see.decoding.torch_engine import TorchEngine
from seq2see.errors import FullMemoryError, UserError
from seq2see.evaluation.evaluate import score
from seq2see.kernels.layers import FastTransformer
from seq2see.model.transformer import Transformer
from seq2see.serve.app import create_app
from seq2see.tasks.dates import pairs_of
from seq2see.training.checkpoint import continued, halved
from seq2see.training.job import TrainingJob
from seq2see.training.loop import Trainer
from seq2see.training.options import TrainOptions
from seq2see.training.prepare import RawSplits, prepare
from test_search import SOURCES, SPECIAL, chatty_model
from test_training import small_trainer

PAIRS = pairs_of(np.arange(700_000, 700_040))


class Small:
    """Raises PyTorch's error for batches of more rows than there is room for, and notes the others."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, rows: int, error: type[Exception] = torch.OutOfMemoryError
    ) -> None:
        self.rows, self.sizes, self.full, encode = rows, list[int](), 0, FastTransformer.encode

        def limited(model: FastTransformer, source: torch.Tensor, *more: Any) -> torch.Tensor:
            if source.dim() > 1 and len(source) > self.rows:
                self.full += 1
                raise error("CUDA error: out of memory")
            self.sizes.append(len(source))
            return encode(model, source, *more)

        monkeypatch.setattr(FastTransformer, "encode", limited)


@pytest.mark.parametrize("error", [torch.OutOfMemoryError, RuntimeError])
def test_what_has_no_room_is_done_in_halves(error: type[Exception]) -> None:
    done: list[int] = []

    def work(items: Sequence[int]) -> list[int]:
        if len(items) > 3:
            raise error("CUBLAS_STATUS_ALLOC_FAILED")
        done.append(len(items))
        return [-item for item in items]

    assert devices.in_halves(work, range(10), "a number") == [-item for item in range(10)]
    assert done == [3, 2, 3, 2]


def test_one_that_has_no_room_is_said_and_other_errors_are_raised() -> None:
    def full(items: Sequence[int]) -> list[int]:
        raise torch.OutOfMemoryError

    said = r"The GPU's memory is full: there is no room for a number\. End other programs"
    with pytest.raises(FullMemoryError, match=said) as told:
        devices.in_halves(full, [1, 2], "a number")
    assert told.value.__cause__ is None

    def wrong(items: Sequence[int]) -> list[int]:
        raise RuntimeError("shapes do not fit")

    with pytest.raises(RuntimeError, match="shapes"):
        devices.in_halves(wrong, [1, 2], "a number")


# --- answering -----------------------------------------------------------------------------------------------------


def on_a_gpu(model: Transformer, graphs: bool, monkeypatch: pytest.MonkeyPatch) -> TorchEngine:
    """Make the engine of a GPU, with or without graphs."""
    engine = TorchEngine(model, SPECIAL)
    engine.has_graphs = graphs
    if not graphs:
        engine.kind = (torch.float32, SimpleNamespace(type="mps"))  # type: ignore[assignment]
    return engine


def all_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    init = TorchEngine.__init__

    def as_on_a_gpu(self: TorchEngine, *given: Any) -> None:
        init(self, *given)
        self.kind = (torch.float32, SimpleNamespace(type="mps"))  # type: ignore[assignment]

    monkeypatch.setattr(TorchEngine, "__init__", as_on_a_gpu)


@pytest.mark.parametrize("beam", sweep([3, 1], 1))
@pytest.mark.parametrize("by_graphs", [False, True])
def test_a_search_that_has_no_room_is_halved(by_graphs: bool, beam: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, rules = chatty_model(2, norm="pre"), PAPER.but(beam=beam)
    sources = [source for source in SOURCES for _ in range(2)]
    expected = TorchEngine(model, SPECIAL).search(sources, rules)
    engine = on_a_gpu(model, by_graphs, monkeypatch)
    sizes: list[int] = []
    if by_graphs:
        made = GraphSearch.__init__

        def limited(self: GraphSearch, model: Any, special: Any, sentences: int, *more: Any, **named: Any) -> None:
            if sentences > 4:
                raise torch.OutOfMemoryError
            sizes.append(sentences)
            made(self, model, special, sentences, *more, **named)

        monkeypatch.setattr(GraphSearch, "__init__", limited)
        monkeypatch.setattr(graphs, "SMALLEST_SEARCH", 1)
    else:
        sizes = Small(monkeypatch, 4).sizes
    found = engine.search(sources, rules)
    assert [[h.ids for h in row] for row in found] == [[h.ids for h in row] for row in expected]
    assert engine.ids(sources, rules) == [row[0].ids for row in expected]
    assert max(sizes) == 4 or max(sizes) == 3
    assert engine.room < len(sources) * beam * max(map(len, sources))


def test_a_search_beside_another_has_graphs_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a long piece of work two searches run at a time; a third waits for one of them."""
    engine = on_a_gpu(chatty_model(2), True, monkeypatch)
    with engine._lane() as first, engine._lane() as other:
        assert other is first
    engine.batches = torch_engine.WORTH_A_LANE
    with engine._lane() as again, engine._lane() as second, engine._lane() as third:
        assert again is first
        assert second is not first
        assert third in (first, second)
        assert sum(lane.users for lane in engine.lanes) == 3
        assert [lane.graphs.share for lane in engine.lanes] == [graphs.MEMORY_SHARE / 2] * 2
    assert [lane.users for lane in engine.lanes] == [0, 0]
    expected = engine.ids(SOURCES)
    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(engine.ids, [SOURCES] * 8)] == [expected] * 8
    engine.ids(SOURCES[:1])
    assert engine._forget()
    assert not any(lane.graphs.searches for lane in engine.lanes)


def test_the_command_goes_on_and_one_text_without_room_is_a_message(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(f"{source}\n" for source, _ in PAIRS))
    all_on_a_gpu(monkeypatch)
    memory = Small(monkeypatch, 5)
    monkeypatch.setattr("sys.argv", ["seq2see", "predict", "--engine", "torch", "--file", str(lines)])
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    assert capsys.readouterr().out == "".join(f"{target}\n" for _, target in PAIRS)
    assert memory.full
    memory.rows = 0
    with pytest.raises(SystemExit) as end:
        main()
    told = capsys.readouterr().err
    assert end.value.code == 2
    assert told.startswith(
        "seq2see: The GPU's memory is full: there is no room for the search for an answer to 12 tokens"
    )
    assert "use --device cpu" in told
    assert "Traceback" not in told


def test_a_server_goes_on_and_says_when_it_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    model = seq2see.load("dates", engine="torch")
    all_on_a_gpu(monkeypatch)
    memory = Small(monkeypatch, 5)
    with TestClient(create_app({"dates": model})) as client:
        asked = {"inputs": [source for source, _ in PAIRS]}
        answer = client.post("/api/predict", json=asked)
        assert [one["output"] for one in answer.json()["answers"]] == [target for _, target in PAIRS]
        assert memory.full
        memory.rows = 0
        answer = client.post("/api/predict", json=asked)
        assert answer.status_code == 503
        assert "The GPU's memory is full" in answer.json()["error"]


def test_each_pair_is_scored_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = seq2see.load("dates")
    monkeypatch.setattr(both_ways, "AT_ONCE", 16)
    memory = Small(monkeypatch, 16)
    assert len(score(model.network.inner(), model.tokenizers, PAIRS)) == 40
    assert memory.sizes == [16, 16, 8]


def test_a_graph_that_has_no_room_leaves_the_function_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    ended, done = list[str](), list[str]()

    class Graph:
        def capture_begin(self, **settings: object) -> None:
            done.append("begin")

        def capture_end(self) -> None:
            ended.append("end")

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    made = Captured.__new__(Captured)
    made.pool, made.full = (0, 0), False

    def function() -> None:
        if done[-1:] == ["begin"]:
            done.append("full")
            raise torch.OutOfMemoryError
        done.append("done")

    assert made._graph(function) is None
    assert (made.full, ended) == (True, ["end"])


def test_weights_that_have_no_room_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Transformer, device: object) -> Transformer:
        raise torch.OutOfMemoryError

    model = seq2see.load("dates", engine="torch")
    monkeypatch.setattr(devices, "found", lambda: ["cuda:0"])
    monkeypatch.setattr(Transformer, "to", full)
    with pytest.raises(FullMemoryError, match=r"no room for a model of 18,692 parameters"):
        model.to("cuda")


# --- training ------------------------------------------------------------------------------------------------------


def test_the_largest_batch_is_found() -> None:
    lengths = [(3, 4), (5, 5), (9, 2), (2, 9), (1, 1), (4, 4), (3, 3)]
    sides = [Ragged.of([[7] * pair[side] for pair in lengths]) for side in (0, 1)]
    batches = Batches(sides[0], sides[1], (0, 0), 18, 1)
    sizes = [
        batch.source.numel() + len(batch.source) * (batch.target_in.shape[1] + 1)
        for batch in map(batches.at, range(batches.per_epoch))
    ]
    found = batches.largest(0)
    assert found.source.numel() + len(found.source) * (found.target_in.shape[1] + 1) == max(sizes) > min(sizes)


def test_trying_a_batch_leaves_all_as_it_was(tmp_path: Path) -> None:
    """The trained weights are the same to the bit as without it."""
    weights = []
    for name in ("plain", "tried"):
        trainer = small_trainer(tmp_path / name)
        trainer.tries = name == "tried"
        for step in trainer.steps():
            if step.step == 5:
                break
        weights.append(trainer.learner.weights())
    assert all(torch.equal(weights[0][name], weight) for name, weight in weights[1].items())
    trainer.learner.try_out([trainer.batches.largest(0)])
    assert all(weight.grad is None for weight in trainer.model.parameters())


def largest_of(trainer: Trainer) -> int:
    return max(len(trainer.batches.at(number).source) for number in range(trainer.batches.per_epoch))


def test_a_training_takes_smaller_batches_where_there_is_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    trainer = small_trainer(tmp_path, said=said)
    before, rows = trainer.config.training, largest_of(trainer)
    memory = Small(monkeypatch, rows // 3)
    monkeypatch.setattr(Trainer, "_line", lambda trainer, loss: None)
    trainer.tries = True
    for step in trainer.steps():
        if step.step == 3:
            trainer.save(at_once=True)
            break
    now = trainer.config.training
    assert (now.batch_tokens, now.accumulate) == (before.batch_tokens // 4, 4)
    assert memory.full == 2  # nothing but the trials
    tokens = before.batch_tokens
    assert said == [
        f"A batch of {tokens:,} tokens does not fit the GPU's memory: a step takes 2 of {tokens // 2:,}.",
        f"A batch of {tokens // 2:,} tokens does not fit the GPU's memory: a step takes 4 of {tokens // 4:,}.",
    ]
    assert trainer.taken == 12
    del trainer, step
    again = small_trainer(tmp_path, resume=True)  # by the command of the start
    assert again.config.training == now
    assert (again.step, again.taken) == (3, 12)
    assert largest_of(again) <= rows // 3


def test_a_training_without_room_for_one_pair_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = small_trainer(tmp_path)
    Small(monkeypatch, 0)
    trainer.tries = True
    with pytest.raises(FullMemoryError, match=r"no room for a batch of .* Set training\.batch_tokens or the"):
        next(trainer.steps())
    assert all(parameter.grad is None for parameter in trainer.model.parameters())


def test_a_memory_that_fills_up_later_ends_a_training_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = small_trainer(tmp_path)
    steps = trainer.steps()
    next(steps)
    Small(monkeypatch, 0, RuntimeError)
    with pytest.raises(FullMemoryError, match=r"no room for step 2\. End other programs there and continue"):
        next(steps)


def test_settings_that_differ_otherwise_are_still_refused(tmp_path: Path) -> None:
    config = small_trainer(tmp_path).config
    other = config.training.but(batch_tokens=config.training.batch_tokens * 2)
    with pytest.raises(UserError, match=r"was started with training\.batch_tokens"):
        continued(tmp_path, config, replace(config, training=other))
    less = replace(config, training=halved(other))
    assert continued(tmp_path, less, replace(config, training=other)).training == less.training


@pytest.mark.parametrize("words", [40, 31])  # 31 words are 128 tokens
def test_a_packed_training_stops_halving_at_its_longest_text(words: int, monkeypatch: pytest.MonkeyPatch) -> None:
    long = [(" ".join("abc" for _ in range(words)), "x") for _ in range(40)]
    pairs = [(f"{number} {source}", target + str(number)) for number, (source, target) in enumerate(long)]
    options = TrainOptions(
        tokenizer="characters",
        device="cpu",
        training={"layout": "packed", "batch_tokens": 512, "steps": 2, "chained": 0.0},
    )
    trainer = TrainingJob(prepare(RawSplits.read(pairs), options), options, lambda said: None).trainer
    trainer.tries = True

    def full(batches: object) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(trainer.learner, "try_out", full)
    with pytest.raises(FullMemoryError, match="no room for a batch of 256 tokens"):
        next(trainer.steps())
