"""Benchmarks: turns are taken, ratios are ours over theirs, and the peers do the same work."""

from __future__ import annotations

import json

import pytest

from seq2see.benchmarks import cpu
from seq2see.benchmarks.measure import Line, take_turns
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
    assert json.loads(json.dumps(line.record()))["machine"]["cores"] >= 1


def test_the_peers_answer_the_same_dates() -> None:
    line = cpu.dates_10000(rounds=1, count=50)
    assert line.agree == "all answers right"
    assert "nn.Transformer, plain loop" in line.seconds


def test_unknown_benchmarks_are_named() -> None:
    done = run("bench", "cold-strat")
    assert done.returncode == 2
    assert "Did you mean 'cold-start'" in done.stderr


@pytest.mark.parametrize("name", ["cold-start", "dates-10000", "base-batch32", "base-batch1"])
def test_every_promised_line_exists(name: str) -> None:
    assert name in cpu.LINES
