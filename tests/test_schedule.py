"""The learning rate of every step, and when a watched training ends, in numbers."""

from __future__ import annotations

import pytest

from seq2see.config import TrainingConfig
from seq2see.training.schedule import Course, has_line, learning_rate, steps_of, warmup


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


WATCHED = TrainingConfig.of(schedule="watched", steps=10_000, warmup=100, learning_rate=1.0)


def course(
    scores: dict[int, float],
    right: tuple[int, ...] = (),
    config: TrainingConfig = WATCHED,
    losses: dict[int, float] | None = None,
) -> Course:
    """The course after lines with these scores; ``right`` are those with every held-out pair right."""
    found = Course()
    for step, score in scores.items():
        found = found.at(step, config).after(step, score, (losses or {}).get(step, 1.0), step in right, config)
    return found


def test_a_watched_rate_is_constant_and_then_falls_to_zero() -> None:
    assert [learning_rate(step, WATCHED, 1, Course()) for step in (50, 100, 4000)] == [0.5, 1.0, 1.0]
    falling = Course(falls=400, last=800)
    assert [learning_rate(step, WATCHED, 1, falling) for step in (400, 600, 800, 900)] == [1.0, 0.5, 0.0, 0.0]


def test_the_rise_is_a_part_of_a_short_training() -> None:
    assert warmup(WATCHED) == 100
    assert warmup(WATCHED.but(steps=200)) == 10
    assert warmup(WATCHED.but(steps=200, schedule="cosine")) == 100


def test_answers_that_improve_let_a_training_go_on_until_half_of_its_budget() -> None:
    rising = course({step: step / 1e5 for step in range(100, 4900, 300)})
    assert (rising.falls, rising.end(WATCHED)) == (0, 10_000)
    assert not rising.at(4999, WATCHED).falls
    ending = rising.at(5000, WATCHED)
    assert (ending.falls, ending.last, ending.why) == (5000, 10_000, "budget")


def test_answers_that_no_longer_improve_end_it_after_as_many_steps_again() -> None:
    scores = {200: 0.1, 400: 0.5, 600: 0.4, 639: 0.4}
    assert not course(scores).falls
    stale = course(scores | {640: 0.4})
    assert (stale.step, stale.falls, stale.last, stale.why) == (400, 640, 1280, "stale")
    later = course(scores | {640: 0.4, 800: 0.9})  # the fall helps, as it should
    assert (later.step, later.falls, later.last) == (800, 640, 1280)


def test_a_falling_loss_lets_a_training_go_on_that_has_no_right_answer_yet() -> None:
    worse = {step: 0.5 - step / 1e5 for step in (100, 200, 400, 640, 1023)}
    losses = {100: 1.0, 200: 0.9, 400: 0.8, 640: 0.7}
    assert not course(worse, losses=losses).falls
    assert course(worse | {1024: 0.1}, losses=losses).falls == 1024  # 1.6 times 640


def test_a_rising_loss_alone_does_not_end_a_training() -> None:
    rising = {step: step / 1e3 for step in range(100, 4900, 300)}
    assert not course(rising, losses={step: step / 1e2 for step in rising}).falls


def test_nothing_is_said_before_the_rate_is_up_and_some_lines_are_there() -> None:
    assert not course({10: 0.5, 20: 0.4, 40: 0.4, 80: 0.4, 299: 0.4}).falls  # 3 warm-ups are 300 steps
    assert course({10: 0.5, 20: 0.4, 40: 0.4, 80: 0.4, 300: 0.4}).falls == 300
    assert not course({100: 0.5, 200: 0.4, 900: 0.4}).falls  # three lines


def test_a_solved_task_ends_soon() -> None:
    assert not course({100: 1.0, 200: 0.9, 300: 1.0}, right=(100, 300)).falls  # not two in a row
    solved = course({100: 1.0, 200: 1.0}, right=(100, 200))
    assert (solved.falls, solved.last, solved.why) == (200, 220, "solved")
    while_falling = course(dict.fromkeys((100, 200, 300, 480), 0.1) | {500: 1.0, 520: 1.0}, right=(500, 520))
    assert (while_falling.falls, while_falling.last) == (while_falling.falls, 572)
    late = course({9000: 1.0, 9990: 1.0}, right=(9000, 9990))
    assert late.last == 10_000  # never beyond the budget


def test_lines_come_at_growing_distances() -> None:
    lines = [step for step in range(1, 1001) if has_line(step, WATCHED)]
    assert lines == [100, 125, 156, 195, 244, 305, 381, 477, 596, 745, 931]
    assert [step for step in range(1, 61) if has_line(step, WATCHED.but(steps=60))][:4] == [6, 8, 9, 12]
    plain = WATCHED.but(schedule="paper", evaluate_every=10)
    assert [step for step in range(1, 31) if has_line(step, plain)] == [10, 20, 30]


@pytest.mark.parametrize(("budget", "each", "steps"), [
    (900.0, 0.5, 1800), (900.0, 0.0123, 73_000), (900.0, 0.0124, 73_000), (10.0, 3.0, 3), (1.0, 60.0, 1),
])  # fmt: skip
def test_a_budget_is_turned_into_steps_of_two_digits(budget: float, each: float, steps: int) -> None:
    assert steps_of(budget, each) == steps
