"""Two engines, one answer: which is chosen, that both agree, and that the light one never imports torch."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import seq2see
from seq2see import machine
from seq2see.answering import network
from seq2see.answering.network import cannot
from seq2see.config import DecodingConfig
from seq2see.decoding import ctranslate2_engine, engines, torch_engine
from seq2see.decoding.ctranslate2_engine import CTranslate2Engine
from seq2see.decoding.hypothesis import with_beam
from seq2see.errors import UserError
from seq2see.model.transformer import Transformer
from seq2see.storage import folder
from seq2see.tasks.dates import all_ordinals, pairs_of

PAIRS = pairs_of(np.random.default_rng(4).choice(all_ordinals(), 300))
TEXTS = [source for source, _ in PAIRS]


def without_torch(code: str) -> str:
    check = "\nimport sys\nfor name in ('torch', 'numpy'): assert name not in sys.modules, name"
    done = subprocess.run([sys.executable, "-c", code + check], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_prediction_on_the_command_line_imports_neither_torch_nor_numpy() -> None:
    code = (
        "import sys\nsys.argv = ['seq2see', 'predict', '1845-01-05']\nfrom seq2see.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code"
    )
    assert without_torch(code) == "January 5, 1845\n"


def test_a_model_that_has_answered_can_be_forked_copied_and_pickled() -> None:
    code = (
        "import copy, os, pickle, sys\nimport seq2see\nmodel = seq2see.load('dates')\nmodel('1845-01-05')\n"
        "for answers in (True, False):\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        sys.exit(answers and model('2025-09-03') != 'September 3, 2025')\n"
        "    assert os.waitpid(child, 0)[1] == 0\n"
        "print(pickle.loads(pickle.dumps(model))('1845-01-06'), copy.deepcopy(model)('1845-01-07'))"
    )
    assert without_torch(code) == "January 6, 1845 January 7, 1845\n"


@pytest.mark.parametrize("beam", [1, 4])
def test_both_engines_give_the_same_answers(beam: int) -> None:
    through_torch = seq2see.load("dates", engine="torch").answers(TEXTS, beam=beam)
    through_ctranslate2 = seq2see.load("dates", engine="ctranslate2").answers(TEXTS, beam=beam)
    assert [answer.output for answer in through_torch] == [target for _, target in PAIRS]
    for a, b in zip(through_torch, through_ctranslate2, strict=True):
        assert (a.input, a.output, a.ids) == (b.input, b.output, b.ids)
        assert a.log_probability == pytest.approx(b.log_probability, abs=1e-4)
        assert [token.token for token in a.tokens] == [token.token for token in b.tokens]
        assert [token.probability for token in a.tokens] == pytest.approx(
            [token.probability for token in b.tokens], abs=1e-4
        )


@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
def test_an_answer_does_not_depend_on_its_neighbours(engine: str) -> None:
    model = seq2see.load("dates", engine=engine)
    together = model.answers(TEXTS)
    for answer in together[::60]:
        (alone,) = model.answers([answer.input])
        assert alone.ids == answer.ids
        assert alone.log_probability == pytest.approx(answer.log_probability, abs=1e-4)
    assert model.predict(TEXTS) == [answer.output for answer in together]


def test_auto_takes_what_the_folder_holds_and_what_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # in which nothing was found out yet
    model = seq2see.load("dates")
    assert model.network.engine_for(1).name.startswith("ctranslate2")
    assert model.network.engine_for(10_000, beam=4).name.startswith("ctranslate2")
    assert model.network.engine_for(10_000).name.startswith("ctranslate2")
    assert seq2see.load("dates").network.engine_for(1, beam=2, n_best=2).name == "torch, float32"
    assert seq2see.load("dates").network.engine_for(1, beam=40).name == "torch, float32"  # 80 candidates of 68 tokens
    assert seq2see.load("dates", engine="torch").network.engine_for(1).name == "torch, float32"


def test_an_edited_model_answers_for_itself() -> None:
    model = seq2see.load("dates")
    assert model("1845-01-05") == "January 5, 1845"
    with torch.no_grad():
        model.transformer.output.bias[model.tokenizers.target.end] += 100.0
    assert model("1845-01-05") == ""


def swap(x: torch.Tensor) -> None:
    x[[3, 4]] = x[[4, 3]].clone()


EDITS: dict[str, Callable[[Transformer], object]] = {
    "scaled": lambda network: network.output.weight.data.mul_(1.5),
    "rows swapped": lambda network: swap(network.output.weight.data),
    "columns swapped": lambda network: swap(network.encoder.layers[0].self_attention.w_q.weight.data.T),
    "replaced": lambda network: setattr(network.decoder, "norm", torch.nn.Dropout(0.0)),
    "hooked": lambda network: network.output.register_forward_hook(lambda *values: None),
}


@pytest.mark.parametrize("edit", EDITS)
def test_any_edit_of_the_network_is_noticed(edit: str) -> None:
    model = seq2see.load("dates")
    EDITS[edit](model.transformer)
    assert model.network.engine_for(1).name == "torch, float32"
    model.network.engine = "ctranslate2"
    with pytest.raises(UserError, match="the network was edited since it was exported"):
        model.network.engine_for(1)


PAIR = ("1845-01-05", "January 5, 1845")
MUTED = {"decoder.layers.1.cross_attention.z": torch.zeros_like}
LOOKS: dict[str, Callable[[seq2see.Seq2Seq, Path], object]] = {
    "trace": lambda model, place: model.trace(PAIR[0], edit=MUTED),
    "save": lambda model, place: model.save(place / "copy"),
    "log_probabilities": lambda model, place: model.log_probabilities([PAIR]),
    "evaluate": lambda model, place: model.evaluate([PAIR]),
    "align": lambda model, place: model.align([PAIR]),
    "to": lambda model, place: model.to("cpu"),
    "many": lambda model, place: model.predict([PAIR[0]] * 3000),
}


@pytest.mark.parametrize("look", LOOKS)
def test_looking_at_a_model_does_not_change_it(look: str, tmp_path: Path) -> None:
    model = seq2see.load("dates")
    before, weights = model.network.engine_for(1).name, [w.clone() for w in model.transformer.parameters()]
    LOOKS[look](model, tmp_path)
    assert model.network.engine_for(1).name == before == "ctranslate2, float32"
    assert model("1845-01-05") == "January 5, 1845"
    assert all(torch.equal(a, b) for a, b in zip(model.transformer.parameters(), weights, strict=True))


def test_a_saved_model_answers_with_its_own_weights(tmp_path: Path) -> None:
    model = seq2see.load("dates")
    model.save(tmp_path / "same")
    saved = seq2see.load(tmp_path / "same", engine="ctranslate2")
    assert saved("1845-01-05") == "January 5, 1845"
    with torch.no_grad():
        model.transformer.output.bias[model.tokenizers.target.end] += 100.0
    model.save(tmp_path / "same", overwrite=True)
    for engine in ("auto", "ctranslate2"):
        assert seq2see.load(tmp_path / "same", engine=engine)("1845-01-05") == ""


def test_an_edit_in_one_thread_does_not_reach_the_answers_of_another() -> None:
    model, stop, wrong = seq2see.load("dates", engine="torch"), threading.Event(), []

    def ask() -> None:
        while not stop.is_set():
            if (answer := model("1845-01-05")) != "January 5, 1845":
                wrong.append(answer)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        for _ in range(10):
            trace = model.trace("1845-01-05", edit={"decoder.layers.1.cross_attention.z": torch.zeros_like})
            assert trace.output != "January 5, 1845"
    finally:
        stop.set()
        thread.join()
    assert not wrong


def test_what_an_engine_cannot_do_is_said() -> None:
    model = seq2see.load("dates", engine="ctranslate2")
    with pytest.raises(UserError, match="2 answers to each input were requested"):
        model.answers(["1845-01-05"], beam=2, n_best=2)
    with pytest.raises(UserError, match="Did you mean 'ctranslate2'"):
        seq2see.load("dates", engine="ctranslate")


def test_without_ctranslate2_torch_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    model = seq2see.load("dates")
    assert model.network.engine_for(1).name == "torch, float32"
    monkeypatch.setitem(sys.modules, "seq2see.interchange.to_ctranslate2", None)
    with pytest.raises(UserError, match="the package ctranslate2 is not installed"):
        seq2see.load("dates", engine="ctranslate2")
    assert model("1845-01-05") == "January 5, 1845"


# --- exports in the user's cache, and the faster engine ------------------------------------------------------------


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model folder without an export, and a user whose cache is empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = shutil.copytree(folder.find("dates"), tmp_path / "bare")
    shutil.rmtree(path / "ctranslate2")
    return path


def test_a_folder_without_an_export_gets_one_in_the_cache_when_that_pays(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = seq2see.load(bare)
    assert model.network.engine_for(100).name == "torch, float32"
    monkeypatch.setattr("seq2see.answering.network.WORTH_EXPORT", 100 * model.config.model.parameters)
    assert model.network.engine_for(99).name == "torch, float32"
    assert model.network.engine_for(100).name == "ctranslate2, float32"
    assert model("1845-01-05") == "January 5, 1845"
    assert not (bare / "ctranslate2").exists()
    again = seq2see.load(bare)
    assert again.network._transformer is None  # torch is not needed any more
    assert again.network.engine_for(1).name == "ctranslate2, float32"


def test_a_cache_that_cannot_be_written_costs_nothing(
    bare: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("seq2see.answering.network.WORTH_EXPORT", 1)
    assert seq2see.load(bare).predict(["1845-01-05"]) == ["January 5, 1845"]
    with pytest.raises(UserError, match=r"cannot be kept in .* set XDG_CACHE_HOME"):
        seq2see.load(bare, engine="ctranslate2")


def test_the_cache_keeps_the_exports_that_were_used_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "MOST_KEPT", 2)
    for number in range(4):
        (tmp_path / str(number)).mkdir()
        os.utime(tmp_path / str(number), (number, number))
    engines.make_room(tmp_path / "0")
    assert sorted(place.name for place in tmp_path.iterdir()) == ["0", "2", "3"]


def test_eight_bits_are_used_where_they_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    bare = shutil.copytree(folder.find("human-dates"), tmp_path / "bare")
    shutil.rmtree(bare / "ctranslate2", ignore_errors=True)
    model = seq2see.load(bare, engine="int8")
    assert model.network.engine_for(1).name.startswith("ctranslate2, int8")
    assert model.network.engine_for(10_000).name.startswith("ctranslate2, int8")
    assert model.predict(["5 janvier 1845"]) == ["1845-01-05"]
    assert model.network.engine_for(1, constrained=True).name == "torch, float32"  # which it cannot answer
    (kept,) = (tmp_path / "cache" / "seq2see" / "exports").iterdir()
    written = {path: path.stat().st_mtime_ns for path in kept.rglob("*") if path.is_file()}
    assert seq2see.load(bare, engine="int8").network.engine_for(1).name.startswith("ctranslate2, int8")
    assert {path: path.stat().st_mtime_ns for path in kept.rglob("*") if path.is_file()} == written  # once
    assert seq2see.load(bare).network.engine_for(1).name == "torch, float32"  # nobody else gets it
    assert seq2see.load("human-dates", engine="int8").network.engine_for(1).name.startswith("ctranslate2, int8")
    with pytest.raises(UserError, match="int8, but it answers on the cpu, not on meta"):
        seq2see.load(bare, device="meta", engine="int8")


def test_eight_bits_that_answer_wrongly_are_refused(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether they do depends on the CPU, so any difference counts as one here."""
    monkeypatch.setattr("seq2see.interchange.to_ctranslate2.WRONG", 0.0)
    with pytest.raises(UserError, match="`engine` is int8, but in eight bits this model answers wrongly on this CPU"):
        seq2see.load(bare, engine="int8")
    kept = bare.parent / "cache" / "seq2see" / "exports"
    assert not [path for path in kept.rglob("*") if path.is_file()]
    assert seq2see.load(bare).predict(["1845-01-05"]) == ["January 5, 1845"]


def test_the_processor_tells_what_it_can_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = tmp_path / "cpuinfo"
    monkeypatch.setattr(machine, "Path", lambda name: told if name == "/proc/cpuinfo" else Path(name))
    assert machine.instructions() == frozenset()
    told.write_text("model name\t: X amx_bf16\nflags\t\t: fpu avx2\n\nflags\t\t: fpu avx2\n")
    assert machine.instructions() == {"fpu", "avx2"}
    told.write_text("Features\t: fp asimddp\n")
    assert machine.instructions() == {"fp", "asimddp"}


def test_threads_leave_the_cores_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "cores", lambda: 8)
    for all_cores, others, free in ((8, 0, 8), (8, 3, 5), (8, 8, 1), (8, 50, 1), (64, 50, 8), (64, 60, 4)):
        monkeypatch.setattr(machine.os, "cpu_count", lambda all_cores=all_cores: all_cores)
        monkeypatch.setattr(machine, "_others", lambda others=others: others)
        assert machine.free_cores() == free
    monkeypatch.setattr(machine.os, "cpu_count", lambda: 8)
    seen = iter([6, 1, 4])  # the quietest moment counts
    monkeypatch.setattr(machine, "_others", lambda: next(seen))
    assert machine.free_cores() == 7
    assert machine.workers() == 8  # they do not wait for each other
    machine.use(3)
    try:
        assert machine.free_cores() == machine.workers() == 3
    finally:
        machine.use(None)


@pytest.mark.parametrize("beam", [1, 2, 4])
def test_both_engines_cut_an_answer_at_its_limit(beam: int) -> None:
    through_torch, through_ctranslate2 = (seq2see.load("dates", engine=e) for e in ("torch", "ctranslate2"))
    for most in (1, 3, 16):
        answers = through_torch.predict(TEXTS[:5], beam=beam, max_length=most)
        assert through_ctranslate2.predict(TEXTS[:5], beam=beam, max_length=most) == answers


@pytest.mark.parametrize("forced_end", [False, True])
def test_both_engines_end_when_as_many_answers_have_ended_as_the_beam_is_wide(
    forced_end: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seq2see.answering.network.WORTH_EXPORT", 1)  # the folder has no export
    both = [seq2see.load("human-dates", engine=e) for e in ("torch", "auto")]
    names = [model.network.engine_for(3).name for model in both]
    assert names == ["torch, float32", "ctranslate2, float32"]
    texts = ["le 3 janvier 1845", "may 5, 1999", "1.2.2003", "saturday, the 26th of december 1980"]
    for ratio, offset in ((1.0, 50), (0.3, 1), (0.0, 1)):
        rules = DecodingConfig.of(beam=3, stopping="full", penalty="length", length_penalty=1.0,
                                  length_ratio=ratio, length_offset=offset, forced_end=forced_end)  # fmt: skip
        assert not cannot(3, 1, 30, rules=rules)
        sources = [both[0].tokenizers.source.encode(text) for text in texts]
        one, other = (model.network.engine_for(3).ids(sources, rules) for model in both)
        assert one == other
        assert [len(ids) <= rules.limit(len(source), 99) for ids, source in zip(one, sources, strict=True)] == [
            True
        ] * 4


@pytest.mark.parametrize("kind", ["graphs", "bfloat16"])
@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")
def test_an_edit_by_a_recorder_reaches_the_answer_wherever_a_copy_would_give_it(kind: str) -> None:
    model = seq2see.load("dates", engine="torch")
    engine = model.network.engine_for(1)
    assert isinstance(engine, torch_engine.TorchEngine)
    engine.on_gpu, engine.narrow = kind == "graphs", kind == "bfloat16"
    sources = [model.tokenizers.source.encode("1845-01-05")]
    right = engine.ids(sources)
    muted = {"decoder.layers.1.cross_attention.out": torch.zeros_like}
    with seq2see.trace(model.transformer, muted):
        assert engine.ids(sources) != right
        assert [h.ids for h in engine.search(sources)[0]] != right
    assert engine.ids(sources) == right


def test_the_threads_of_a_small_model_take_parts_of_their_own_and_leave_the_settings_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used = []
    search = torch_engine.greedy_ids

    def watched(model: object, sources: list[object], *rest: object, **named: object) -> object:
        used.append((len(sources), torch.get_num_threads()))
        return search(model, sources, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(torch_engine, "greedy_ids", watched)
    before = torch.get_num_threads(), torch.backends.mkldnn.enabled
    torch.set_num_threads(2)
    machine.use(2)
    try:
        model = seq2see.load("dates", engine="torch")
        model.predict(["1845-01-05"])
        assert used == [(1, 1)]
        assert set(model.predict(["1845-01-05"] * 2047 + ["2025-09-03"])[-2:]) == {
            "January 5, 1845",
            "September 3, 2025",
        }
        assert used[1:] == [(1024, 1)] * 2
        assert (torch.get_num_threads(), torch.backends.mkldnn.enabled) == (2, before[1])
    finally:
        machine.use(None)
        torch.set_num_threads(before[0])


def test_a_search_that_fails_leaves_the_settings_alone() -> None:
    engine = seq2see.load("dates", engine="torch").network.engine_for(1)
    before = torch.get_num_threads(), torch.backends.mkldnn.enabled
    with pytest.raises(IndexError):
        engine.ids([[10_000]])
    assert (torch.get_num_threads(), torch.backends.mkldnn.enabled) == before


LIKELIER = [("suppressed", (3,)), ("no_repeat", 2), ("min_length", 3), ("other_ends", (4,))]


def test_what_ctranslate2_would_answer_otherwise_goes_through_torch() -> None:
    assert cannot(1, 1, 30) == cannot(4, 1, 30) == cannot(1, 1, 1) == ""
    assert "2 answers" in cannot(2, 2, 30)
    assert "too wide" in cannot(2, 1, 3)
    assert "restrict" in cannot(1, 1, 30, constrained=True)
    assert cannot(2, 1, 4) == ""
    # What it lacks; what it lacks in a beam only; what is right greedily, and in a beam that ends by the paper's rule.
    for beam, stopping, setting, said in (
        (1, "likeliest", {"repetition_penalty": 1.1}, "does not support decoding.repetition_penalty"),
        (1, "likeliest", {"no_repeat_source": 2}, "does not support decoding.no_repeat_source"),
        (1, "likeliest", {"first_suppressed": (3,)}, "does not support decoding.first_suppressed"),
        (1, "likeliest", {"no_repeat": 1}, "decoding.no_repeat is 1"),
        (1, "beaten", {}, ""),
        (2, "beaten", {}, "decoding.stopping = 'beaten'"),
        (2, "full", {}, ""),
        *((2, "full", {name: value}, f"other probabilities with decoding.{name}") for name, value in LIKELIER),
        *((1, "full", {name: value}, "") for name, value in LIKELIER),
        *((2, "likeliest", {name: value}, "") for name, value in LIKELIER),
    ):
        found = cannot(beam, 1, 30, rules=DecodingConfig.of(stopping=stopping, **setting))
        assert said in found
        assert bool(said) == bool(found)


@pytest.mark.parametrize("by", ["a GPU", "CTranslate2"])
def test_batches_overlap_and_keep_their_order(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second batch is under way before the first one is there; a failure is raised, and the rest is left out."""
    model, both = seq2see.load("dates", engine="torch" if by == "a GPU" else "auto"), threading.Barrier(2)
    engine, interval = model.network.engine_for(4), sys.getswitchinterval()
    if by == "a GPU":
        monkeypatch.setattr(model.network, "device", "cuda")
    batches = [(engine, [number]) for number in range(20)]

    def search(engine: object, rows: list[int]) -> int:
        if rows[0] < 2:
            both.wait(60)
        assert sys.getswitchinterval() < interval
        if rows == [7]:
            raise UserError("no 7")
        return 10 * rows[0]

    assert [*model.network.searched(batches[:7], search)] == [([number], 10 * number) for number in range(7)]
    assert sys.getswitchinterval() == interval
    with pytest.raises(UserError, match="no 7"):
        list(model.network.searched(batches, search))
    assert sys.getswitchinterval() == interval


def test_two_batches_at_a_time_share_one_translator(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = seq2see.load("dates", engine="ctranslate2").network.engine_for(1)
    assert isinstance(engine, CTranslate2Engine)
    engine.translators, made, make = {}, [], ctranslate2_engine.ctranslate2.Translator

    def slow(*given: Any, **options: Any) -> object:
        made.append(make(*given, **options))
        time.sleep(0.2)  # until the other thread asks, too
        return made[-1]

    monkeypatch.setattr(ctranslate2_engine.ctranslate2, "Translator", slow)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(engine._translator, [1000, 1000])
    assert first is second
    assert made == [first]


def test_many_texts_of_a_gpu_are_answered_window_by_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two windows at once, the first ones small; order and refusals are as without windows."""
    model, both = seq2see.load("human-dates", engine="torch"), threading.Barrier(2)
    texts = [f"{'May' if number % 3 else 'September'} {number % 28 + 1}, 19{number}" for number in range(60, 95)]
    texts[7] = "\0"
    expected = model.answers(texts, probabilities=False)
    monkeypatch.setattr(model.network, "device", "cuda")
    monkeypatch.setattr(network, "WINDOW_OF_A_GPU", 10)
    windows, encoded = list[list[str]](), model.answerer._encoded

    def watched(part: list[str]) -> object:
        windows.append(part)
        if len(windows) < 3:
            both.wait(60)
        return encoded(part)

    monkeypatch.setattr(model.answerer, "_encoded", watched)
    assert model.answers(texts, probabilities=False) == expected
    assert expected[7].error is not None
    places = [0, 1, 3, 7, 15, 25, 35]
    assert sorted(windows, key=lambda window: texts.index(window[0])) == [texts[a:b] for a, b in pairwise(places)]
    with pytest.raises(UserError, match="is of type int"):
        model.answers([*texts, 3])  # type: ignore[list-item]


def test_load_and_answers_import_neither_torch_nor_numpy() -> None:
    code = (
        "import seq2see\nmodel = seq2see.load('dates')\nanswer = model.answers(['2025-09-03'], beam=2)[0]\n"
        "print(answer.output, answer.probability > 0.99, len(answer.tokens))"
    )
    assert without_torch(code) == "September 3, 2025 True 18\n"


def test_an_edited_network_is_not_exported(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seq2see.answering.network.WORTH_EXPORT", 1)
    model = seq2see.load(bare)
    with torch.no_grad():
        model.transformer.output.bias[model.tokenizers.target.end] += 100.0
    assert model.network.engine_for(1000).name == "torch, float32"
    assert not (bare.parent / "cache" / "seq2see" / "exports").exists()


@pytest.mark.parametrize("beam", [1, 4])
def test_the_answer_does_not_depend_on_how_ctranslate2_shares_the_work(beam: int) -> None:
    model = seq2see.load("dates", engine="ctranslate2")
    engine = model.network.engine_for(1)
    assert isinstance(engine, CTranslate2Engine)
    sources = model.tokenizers.source.encode_batch(TEXTS[:40])
    ours = engine.ids(sources, with_beam(beam))
    # As with a large model on two cores: workers for many inputs, threads for few.
    engine.small, engine.workers, engine.threads = False, 2, 2
    engine.translators.clear()
    assert engine.ids(sources, with_beam(beam)) == ours
    assert [engine.ids([source], with_beam(beam))[0] for source in sources[:3]] == ours[:3]
    assert sorted(engine.translators) == [1, 2]
