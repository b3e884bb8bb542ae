"""The learning rate of every step, and how a run of some seconds is planned, in numbers."""

from __future__ import annotations

import pytest

from seq2see.config import TrainingConfig
from seq2see.training.schedule import Timekeeper, learning_rate, peak

PLAN = TrainingConfig.of(steps=10**6, evaluate_every=10, checkpoint_every=10)


def test_the_peak_is_the_papers_unless_another_is_set() -> None:
    assert peak(TrainingConfig.of(warmup=4000), 512) == pytest.approx(512**-0.5 * 4000**-0.5)
    assert peak(TrainingConfig.of(warmup=4000, learning_rate=0.25), 512) == 0.25


@pytest.mark.parametrize(("schedule", "rates"), [
    ("paper", {1: 0.1, 10: 1.0, 40: 0.5, 1000: 0.1}),
    ("constant", {1: 0.1, 10: 1.0, 11: 1.0, 1000: 1.0}),
    ("cosine", {1: 0.1, 10: 1.0, 40: 0.75, 55: 0.5, 70: 0.25, 100: 0.0, 130: 0.0}),
])  # fmt: skip
def test_the_rate_of_a_step(schedule: str, rates: dict[int, float]) -> None:
    config = TrainingConfig.of(schedule=schedule, steps=100, warmup=10, learning_rate=1.0)
    for step, rate in rates.items():
        assert learning_rate(step, config, 1) == pytest.approx(rate)


def test_a_warm_up_as_long_as_the_run() -> None:
    config = TrainingConfig.of(schedule="cosine", steps=10, warmup=10, learning_rate=1.0)
    assert learning_rate(10, config, 1) == 1.0
    assert learning_rate(11, config, 1) == pytest.approx(0.0)


def test_the_first_steps_say_nothing_about_the_speed() -> None:
    clock = Timekeeper(10.0, step=100)
    assert clock.next_look == 101
    for step in range(101, 105):
        assert clock.look(step, 0.5, PLAN) == {}
        assert (clock.each, clock.next_look) == (None, step + 1)
    assert clock.look(104, 9.99, PLAN) == {}
    assert clock.look(104, 10.0, PLAN) == {"steps": 104}  # but they end the run


def test_a_run_of_some_seconds_is_planned_by_the_speed() -> None:
    clock = Timekeeper(10.0, step=0)
    clock.look(1, 0.5, PLAN)
    # 4 steps in 0.5 s. A tenth of the 9 s that are left is put aside: 8.1 / 0.125 = 64 more steps.
    assert clock.look(5, 1.0, PLAN) == {"steps": 69, "evaluate_every": 14, "checkpoint_every": 3}
    assert clock.each == 0.125
    assert clock.next_look == 9  # half a second later, a twentieth of the run

    clock.took(0.2, line=False)
    clock.took(0.3, line=True)
    assert (clock.aside, clock.line, clock.since_line) == (0.5, 0.5, 0.0)
    plan = PLAN.but(steps=69, evaluate_every=14, checkpoint_every=3)
    # 4 steps in 0.5 s again, without the 0.5 s aside. 8 s are left, 2.5 s of them for 5 lines: 5.5 / 0.125 = 44 steps.
    assert clock.look(9, 2.0, plan) == {"steps": 53}
    assert clock.last == (9, 1.5)
    # 4 lines take 2 s, and 6 - 47 · 0.125 = 0.125 s are nearly nothing.
    assert clock._planned(9, 8.0, 0.125, plan.but(steps=56)) == {}
    assert clock._planned(9, 8.0, 0.125, plan.but(steps=55)) == {"steps": 57}
    # The fifth line, at the end, counts as a whole one: 5.5 · 64 = 352.
    assert clock._planned(9, 8.0, 1 / 64, plan) == {"steps": 9 + 352}
    # At step 28 two of the five lines have passed.
    assert clock._planned(28, 8.0, 0.125, plan) == {"steps": 28 + 52}


def test_the_speed_is_the_mean_of_what_was_and_what_is() -> None:
    clock = Timekeeper(100.0, step=0)
    clock.look(5, 1.0, PLAN)
    clock.look(10, 4.0, PLAN)  # 0.2 s a step, then 0.6
    assert clock.each == pytest.approx(0.4)
    assert clock.next_look == 12  # about a second later


@pytest.mark.parametrize(("a_line", "lines"), [(0.1, 5), (0.5, 4), (1.0, 2), (9.0, 1)])
def test_lines_take_a_quarter_of_the_time_at_most(a_line: float, lines: int) -> None:
    clock = Timekeeper(10.0, step=0)
    clock.took(a_line, line=True)
    changes = clock._planned(10, 8.0, 0.1, PLAN)
    steps = max(10, 10 + int((8.0 - lines * a_line) / 0.1))
    assert changes == {
        "steps": steps,
        "evaluate_every": -(-steps // lines),
        "checkpoint_every": max(1, steps // (4 * lines)),
    }


@pytest.mark.parametrize(("lines", "moved"), [(1, True), (2, True), (3, False), (7, False), (8, True)])
def test_lines_are_moved_if_they_are_far_too_many_or_too_few(lines: int, moved: bool) -> None:
    changes = Timekeeper(10.0, step=0)._planned(
        0, 10.0, 0.1, PLAN.but(steps=700, evaluate_every=700 // lines)
    )
    assert ("evaluate_every" in changes) == moved
    assert changes["steps"] == 90
