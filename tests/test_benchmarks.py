"""Benchmarks: turns are taken, ratios are ours over theirs, and the peers do the same work."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from benchmarks import busy, cpu, figures, gpu_file, grid, growth, training
from benchmarks.__main__ import bench
from benchmarks.growth_picture import plot_growth
from benchmarks.measure import Line, take_turns
from seq2see import machine
from seq2see.errors import UserError
from seq2see.seq2seq import load
from test_cli import run


def test_contestants_take_turns() -> None:
    calls: list[str] = []
    seconds = take_turns({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, rounds=2)
    assert calls == ["a", "b", "a", "b", "a", "b"]  # the first pair warms up
    assert [len(rounds) for rounds in seconds.values()] == [2, 2]


def test_a_ratio_is_how_many_times_faster_ours_is() -> None:
    line = Line("x", "work", "tokens", 100, {"ours": [1, 2, 9], "peer": [4, 4, 4]}, "1×", limit=1.0)
    ours, peer = line.rows()
    assert (ours["ours_is"], peer["ours_is"]) == (1, 2)
    assert (ours["per_second"], ours["spread"], ours["of_limit"]) == (50, 4, 0.5)
    assert (ours["ours_is_at_best"], peer["ours_is_at_best"]) == (1, 4)  # of rounds that nobody disturbed
    assert json.loads(json.dumps(line.record()))["machine"]["cores"] >= 1


def test_warm_contestants_do_no_work_beside_their_turns(capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[str] = []
    contestants = {"ours": lambda: calls.append("a"), "peer": lambda: calls.append("b")}
    assert [len(rounds) for rounds in take_turns(contestants, 2, warm=True, telling=True).values()] == [2, 2]
    assert "".join(calls) == "abab"
    assert [line.split(":")[0].strip() for line in capsys.readouterr().err.splitlines()] == ["ours", "peer"] * 2
    take_turns(contestants, 1)
    assert "".join(calls) == "abab" + "ab" + "ab"
    assert not capsys.readouterr().err


@pytest.mark.heavy
def test_the_peers_answer_the_same_dates() -> None:
    line = cpu.dates_10000(rounds=1, count=50)
    assert line.agree == "all answers right"
    assert "nn.Transformer, plain loop" in line.seconds


def test_unknown_benchmarks_are_named() -> None:
    with pytest.raises(UserError, match="Did you mean 'cold-start'"):
        bench("cold-strat")


@pytest.mark.heavy
def test_both_trainings_take_the_same_steps() -> None:
    threads = torch.get_num_threads()
    line = training.dates_training(rounds=1, block=2, steps=4, count=2000)
    assert line.details["loss"]["seq2see"] == pytest.approx(line.details["loss"]["nn.Transformer"], abs=1e-5)
    assert [len(blocks) for blocks in line.details["block_seconds"].values()] == [2, 2]
    assert all("after 4 steps" in note and "99.9% NOT REACHED" in note for note in line.notes)
    assert torch.get_num_threads() == threads
    assert line.rows()[0]["of_limit"] > 0


def test_a_training_ends_when_its_goal_is_reached() -> None:
    scores = iter([0.5, 0.9995, 1.0])
    done = list(training._blocks(lambda: 0.25, lambda: next(scores), threads=1, goal=0.999, block=3, most=100))
    assert [(score, loss) for _, score, loss in done] == [(0.5, 0.25), (0.9995, 0.25)]


@pytest.mark.heavy
def test_growth_is_measured_one_size_at_a_time_and_drawn() -> None:
    points = list(growth.growth(1, {"batch": (1, 2), "d_model": (16, 32)}))
    assert [(p.axis, p.kind) for p in points[:3]] == [
        ("batch", "decoding"), ("batch", "training step"), ("batch", "decoding"),
    ]  # fmt: skip
    assert [(p.size.source, p.size.batch, p.size.d_model) for p in points[::2]] == [
        (32, 1, 128), (32, 2, 128), (32, 32, 16), (32, 32, 32),
    ]  # fmt: skip
    assert all(point.seconds > 0 for point in points)
    told = json.loads(json.dumps(growth.record(points)))
    assert told["a_doubling_costs"]["training step, d_model"]["megabytes"] > 1
    figure = plot_growth(points)
    assert [len(ax.lines) for ax in figure.axes] == [4, 2, 2, 2]  # two kinds, and two names for the first
    assert [ax.get_xlabel() for ax in figure.axes[2:]] == ["sentences in a batch", "d_model"]


def test_the_tally_counts_what_is_alive_at_the_peak() -> None:
    with growth.Tally() as tally:
        kept = torch.zeros(1000)  # 4,000 bytes
        view = kept[:10]
        for _ in range(3):
            gone = torch.ones(500)  # 2,000 bytes, one at a time but for the moment of the exchange
        del gone
    assert view.shape == (10,)
    assert tally.peak == 4000 + 2 * 2000
    assert tally.now == 4000


def test_a_doubling_is_taken_from_the_last_two_sizes() -> None:
    sizes = [growth.Size(batch=batch) for batch in (1, 2, 8)]
    points = [
        growth.Point("batch", "decoding", size, seconds, 1.0) for size, seconds in zip(sizes, (1, 1, 9), strict=True)
    ]
    assert growth.doubling(points, lambda point: point.seconds) == pytest.approx(3)  # two doublings, nine times as long


def test_what_cannot_be_drawn_is_said() -> None:
    assert (
        "--plot draws growth, but 'cold-start' is measured"
        in run("cold-start", "--plot", "x.png", module="benchmarks").stderr
    )
    assert "a .png, .svg or .pdf file" in run("growth", "--plot", "x.bmp", module="benchmarks").stderr


@pytest.mark.parametrize("name", ["cold-start", "dates-10000", "dates-training", "base-batch32", "base-batch1"])
def test_every_promised_line_exists(name: str) -> None:
    assert name in {**cpu.LINES, **training.LINES}


def test_busy_loops_run_beside_the_work_and_end_with_it() -> None:
    before = set(children())
    with busy.beside(2):
        loops = set(children()) - before
        assert len(loops) == 2
    assert not set(children()) & loops


def children() -> list[int]:
    text = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return [int(number) for number in text.split()]


def test_the_busy_line_compares_the_same_answers() -> None:
    line = busy.busy_dates(rounds=1, count=20, loops=0)
    assert line.agree == "same answers"
    first, second, *peers = line.seconds
    assert (first, second) == ("seq2see", "seq2see, one thread")
    assert all("CTranslate2 directly" in peer for peer in peers)
    assert machine._asked is None


def test_the_grid_tells_how_auto_compares_with_the_best_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    took = {"auto": [3.0, 2.0], "torch": [9.0, 8.0], "ctranslate2": [1.6, 5.0]}
    monkeypatch.setattr(grid, "take_turns", lambda contestants, rounds: {who: took[who] for who in contestants})
    before = os.environ.get("XDG_CACHE_HOME")
    found = grid.grid(2, most=10, models=("dates",))
    assert os.environ.get("XDG_CACHE_HOME") == before
    assert [(cell["inputs"], cell["auto_to_best"]) for cell in found["cells"]] == [(1, 2 / 1.6), (10, 2 / 1.6)]
    assert found["worst"]["per_second"]["auto"] == 1 / 2.5
    assert found["cells"][0]["answered_by"] == "ctranslate2, float32"
    assert "takes 1.25 of the best's seconds" in next(grid.shown(found))


def test_an_engine_that_takes_too_long_is_asked_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "take_turns", lambda who, rounds: {one: [9.0 * (one == "torch") + 1] for one in who})
    found = grid.grid(1, most=100, models=("dates",))
    assert [sorted(cell["per_second"]) for cell in found["cells"]] == [
        ["auto", "ctranslate2", "torch"], ["auto", "ctranslate2"], ["auto", "ctranslate2"],
    ]  # fmt: skip


@pytest.mark.heavy
def test_the_small_preset_takes_steps_beside_its_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "float_speed", lambda: 1e9)
    line = training.small_training(rounds=1, sentences=2, length=5, vocabulary=50)
    assert list(line.seconds) == ["seq2see", "nn.Transformer"]
    assert line.amount == 2 * 4  # every token but the first is predicted


# --- the figures of a GPU ------------------------------------------------------------------------------------------

KNOWN = {
    "speed": {"figure": 1000.0, "better": "more", "device": "made-up", "measured": "today"},
    "step": {"figure": 100.0, "better": "less", "device": "made-up", "measured": "today"},
}


@pytest.mark.parametrize(
    ("found", "worse"),
    [
        ({"speed": 800.0, "step": 125.0}, []),
        ({"speed": 5000.0, "step": 0.0}, []),
        ({"speed": 799.0}, ["speed: 799, but 1,000 is stored (today)."]),
        ({"step": 125.1}, ["step: 125.1, but 100 is stored (today)."]),
        ({"speed": float("nan")}, ["speed: nan, but 1,000 is stored (today)."]),
        ({"other": 1.0}, []),
    ],
)
def test_a_figure_that_has_fallen_by_a_fifth_is_named(found: dict[str, float], worse: list[str]) -> None:
    assert figures.fallen(found, KNOWN, "made-up") == worse
    assert figures.fallen(found, KNOWN, "another device") == []


def test_a_report_compares_or_stores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "figures.json"

    def ended(speed: float, store: bool = False, device: str = "made-up") -> int:
        report = figures.Report(device, store, path)
        report.add({"benchmark": "x", "rate": float("nan")}, speed=("speed", speed, "more"))
        with pytest.raises(SystemExit) as end:
            report.end()
        first, last = map(json.loads, capsys.readouterr().out.splitlines())
        assert (first["benchmark"], first["rate"], first["device"]) == ("x", None, device)
        assert isinstance(last["fallen by a fifth"], list)
        return int(end.value.code or 0)

    assert ended(10.0) == 0  # nothing is stored yet
    assert ended(10.0, store=True) == 0
    assert (ended(8.0), ended(7.9), ended(12.0)) == (0, 1, 0)
    assert ended(1.0, device="a slower one") == 0
    assert ended(5.0, store=True) == 0
    assert ended(4.1) == 0


def test_the_stored_figures_are_whole() -> None:
    stored = json.loads(figures.STORED.read_text())
    for one in stored.values():
        assert one["figure"] > 0
        assert one["better"] in ("more", "less")
        assert one["device"]
        assert one["measured"]


@pytest.mark.parametrize("name", ["gpu_check", "gpu_decoding", "gpu_file", "gpu_training"])
def test_the_gpu_benchmarks_print_by_the_same_way(name: str) -> None:
    """Each ends with the check; none prints JSON by itself."""
    text = (figures.STORED.parent / f"{name}.py").read_text(encoding="utf-8")
    assert ("figures.show(" in text) == (name != "gpu_file")
    assert "json.dumps" not in text
    assert ("report.end()" in text) == (name != "gpu_check")


def test_the_file_of_a_gpu_has_words_of_the_model(tmp_path: Path) -> None:
    model = load(gpu_file.MODEL)
    words = set(gpu_file.words_of(model))
    assert len(words) > 1000
    gpu_file.write_lines(tmp_path / "lines", model, 40)
    lines = (tmp_path / "lines").read_text(encoding="utf-8").splitlines()
    counts = [len(line.split()) for line in lines]
    assert len(lines) == 40
    assert 5 <= min(counts) < max(counts) <= 40
    assert words.issuperset(word for line in lines for word in line.split())


def test_the_speeds_of_imports_are_written_between_the_marks_of_the_documentation(tmp_path: Path) -> None:
    from benchmarks import interchange

    of_import = {"cpu_seconds": 5.7, "own_megabytes": 301}
    beside = {"answered_by": "torch, float32", "ratio": 1.5, "ratios": [1.4, 1.6], "same": 20}
    records = [
        {"what": "import", "parameters": 74e6, "seconds": 9.0, "own_memory_of_weights": 1.02, "megabytes": 295.8,
         **of_import},
        {"what": "answers", "sentences": 20, "beam": 4, "cpu_seconds": 4.3, "generate_cpu_seconds": 6.4,
         "most_possible": 2.0, **beside},
        {"what": "setting", "family": "Bart", "setting": "several ends", **of_import,
         **{f"{key}_{count}": value for key, value in beside.items() for count in (20, 500)}},
    ]  # fmt: skip
    document = tmp_path / "page.md"
    document.write_text("before\n{}\nan old table\n{}\nafter\n".format(*interchange.MARKS), encoding="utf-8")
    interchange.store(records, document)
    text = document.read_text(encoding="utf-8")
    assert "an old table" not in text
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "| 20 sentences, beam 4 | torch, float32 | 4.3 | 6.4 | 1.5× (1.4 – 1.6) | 20 of 20 | 2.0× |" in text
    assert "| Bart, several ends | 5.7 | 301 | 1.5× (1.4 – 1.6) | 1.5× (1.4 – 1.6) | 20 of 500 |" in text
    document.write_text("no marks\n", encoding="utf-8")
    with pytest.raises(UserError, match="between which a table belongs"):
        interchange.store(records, document)
    assert all(mark in interchange.DOCUMENT.read_text(encoding="utf-8") for mark in interchange.MARKS)


def test_a_file_for_a_gpu_needs_one() -> None:
    if not torch.cuda.is_available():
        done = run("gpu-file", module="benchmarks")
        assert done.returncode == 2
        assert "gpu-file needs a GPU" in done.stderr


@pytest.mark.heavy
def test_the_best_shortlist_changes_no_answer() -> None:
    pytest.importorskip("ctranslate2")
    from benchmarks.shortlist import measure

    told = measure(["Where is the station?", "I am hungry.", "He lost his keys."], 2, rounds=1)
    assert told.startswith("3 lines, 2 at once, CPU time: all words ")
