"""A GPU whose memory is full, played on a CPU: a network that has no room for more than so many rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from seq2see.decoding.graphs import Captured, GraphDecoder, GraphSearch
from seq2see.decoding.hypothesis import PAPER
from seq2see.decoding.torch_engine import TorchEngine
from seq2see.errors import FullMemoryError, UserError
from seq2see.evaluation.evaluate import score
from seq2see.inspection.alignment import align
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


def test_what_had_no_room_is_not_tried_again_at_once_but_later(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = on_a_gpu(chatty_model(2), False, monkeypatch)
    monkeypatch.setattr(torch_engine, "TRIED_AGAIN", 4)
    memory = Small(monkeypatch, 4)
    sources = [[3, 4, 5]] * 16
    engine.ids(sources)
    first = memory.full
    assert first == 3  # 16, and both halves
    engine.ids(sources)
    assert memory.full == first
    memory.rows = 100
    del memory.sizes[:]
    for _ in range(2):
        engine.ids(sources)
    assert memory.sizes == [4, 4, 4, 4, 16]


def test_the_room_counts_the_tokens_and_the_beams_and_each_answer_keeps_what_it_is_held_to() -> None:
    class Held:
        def __init__(self, rows: Sequence[object]) -> None:
            self.rows = rows

        def select(self, rows: Sequence[int]) -> Held:
            return Held([self.rows[row] for row in rows])

    engine, tried = TorchEngine(chatty_model(2), SPECIAL), list[int]()

    def found(part: Sequence[Sequence[int]], held: Any) -> list[tuple[object, object]]:
        tried.append(len(part))
        if len(part) > 4:
            raise torch.OutOfMemoryError
        return list(zip(part, held.rows, strict=True))

    def sizes(tokens: int, beam: int) -> list[int]:
        del tried[:]
        sources, held = [[row] * tokens for row in range(10)], Held(range(10))
        answers = engine._in_room(found, sources, beam, held)  # type: ignore[arg-type]
        assert answers == list(zip(sources, range(10), strict=True))
        return tried

    assert sizes(tokens=4, beam=3) == [10, 5, 3, 2, 5, 3, 2]
    assert engine.room == 5 * 4 * 3 / 2
    assert sizes(tokens=4, beam=3) == [2, 2, 2, 2, 2]
    assert sizes(tokens=2, beam=5) == [3, 3, 3, 1]
    assert sizes(tokens=20, beam=3) == [1] * 10


def test_graphs_that_are_forgotten_leave_a_new_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch stops with an internal error if a graph is captured into a pool whose graphs are all gone."""

    class Pool:
        full = False

        def __call__(self, function: Callable[[], None]) -> Callable[[], None]:
            return function

    monkeypatch.setattr(graphs, "Captured", Pool)
    decoder = GraphDecoder(chatty_model(2), SPECIAL)
    decoder.captured = first = Pool()
    for count in (1, 2):
        decoder.ids([[3, 4, 5]] * count)
    assert decoder.captured is first
    assert decoder.forget()
    assert isinstance(decoder.captured, Pool)
    assert decoder.captured is not first
    assert not decoder.forget()


def test_other_shapes_make_room_before_a_batch_is_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    """The buffers of shapes that were used before go first."""
    engine = on_a_gpu(chatty_model(2), True, monkeypatch)
    for count in (1, 2, 3):
        engine.ids([[3, 4, 5]] * count)
    assert len(engine.lanes[0].graphs.searches) == 3
    made, tried = GraphSearch.__init__, list[int]()

    def limited(self: GraphSearch, *given: Any, **named: Any) -> None:
        tried.append(len(engine.lanes[0].graphs.searches))
        if engine.lanes[0].graphs.searches:
            raise torch.OutOfMemoryError
        made(self, *given, **named)

    monkeypatch.setattr(GraphSearch, "__init__", limited)
    assert len(engine.ids([[3, 4, 5]] * 8)) == 8
    assert tried == [3, 0]
    assert engine.room == torch.inf


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


def test_weights_that_moved_in_memory_get_new_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    model = chatty_model(2)
    engine = on_a_gpu(model, True, monkeypatch)
    with engine._lane() as before:
        pass
    for weight in model.parameters():
        weight.data = weight.data.clone()
    with engine._lane() as after:
        assert after is not before
    assert len(engine.lanes) == 1


@pytest.mark.heavy
def test_answers_that_are_held_to_something_keep_their_own_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    model = seq2see.load("dates", engine="torch")
    all_on_a_gpu(monkeypatch)
    only = ["May 5, 1845", "June 6, 1900", "July 7, 2000"]
    expected = model.predict(["1845-05-05", "1900-06-06", "2000-07-07"] * 4, only=only)
    memory = Small(monkeypatch, 2)
    assert model.predict(["1845-05-05", "1900-06-06", "2000-07-07"] * 4, only=only) == expected
    assert memory.full


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


@pytest.mark.heavy
def test_scores_and_alignments_are_the_same_in_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    model = seq2see.load("dates")
    network, tokenizers = model.network.inner(), model.tokenizers
    wrong = [(source, target.replace("1", "2")) for source, target in PAIRS]
    expected, tokens = model.evaluate(wrong), score(network, tokenizers, wrong)
    ids = tokenizers.target.encode_batch([target for _, target in PAIRS])
    links = [one.pharaoh for one in align(network, tokenizers, [source for source, _ in PAIRS], ids)]
    memory = Small(monkeypatch, 7)
    found = model.evaluate(wrong)
    assert found.exact == expected.exact
    assert found.loss == pytest.approx(expected.loss, rel=1e-5)
    full = memory.full
    for row, other in zip(score(network, tokenizers, wrong), tokens, strict=True):
        assert row == pytest.approx(other, abs=1e-5)
    assert memory.full > full > 0
    found_links = align(network, tokenizers, [source for source, _ in PAIRS], ids)
    assert [one.pharaoh for one in found_links] == links


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


def test_an_error_of_another_kind_during_a_capture_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        torch.cuda, "CUDAGraph", lambda: SimpleNamespace(capture_begin=lambda **given: None, capture_end=lambda: None)
    )
    made = Captured.__new__(Captured)
    made.pool, made.full = (0, 0), False

    def function() -> None:
        raise RuntimeError("shapes")

    with pytest.raises(RuntimeError, match="shapes"):
        made._graph(function)


def test_a_decoder_that_had_no_room_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, prepare, tries = on_a_gpu(chatty_model(2), True, monkeypatch), graphs.prepare, list[int]()

    def full_once(model: Transformer) -> None:
        tries.append(0)
        if len(tries) == 1:
            raise torch.OutOfMemoryError
        prepare(model)

    monkeypatch.setattr(graphs, "prepare", full_once)
    assert len(engine.ids([[3, 4, 5]] * 4)) == 4
    assert len(tries) == 2


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


def test_a_step_of_smaller_batches_learns_from_as_much(tmp_path: Path) -> None:
    """Two batches whose gradients are summed up give the gradient of both as one."""
    trainer = small_trainer(tmp_path)
    settings = halved(trainer.config.training)
    assert (2 * settings.batch_tokens, settings.accumulate) == (trainer.config.training.batch_tokens, 2)
    packed = settings.but(layout="packed", batch_tokens=640)
    assert [halved(packed).batch_tokens, halved(halved(packed)).batch_tokens] == [256, 128]


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
