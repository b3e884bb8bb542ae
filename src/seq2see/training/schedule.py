"""The learning rate at every step (section 5.3), and the number of steps of a run with a time limit."""

from __future__ import annotations

import math

from seq2see.config import TrainingConfig

FIRST_STEPS = 5  # first steps, which compile kernels and fill caches: they do not count for the speed
TABLE_LINES = 5  # of a run with a time limit, unless they take too long
EXPECTED_ASIDE = 0.1  # share of the time that evaluations and checkpoints take, until one has been timed
LARGEST_ASIDE = 0.25  # share of the time that the lines of the table may take
TOLERATED = 0.02  # error of the expected end, as a share of the time, before the number of steps changes


def peak(config: TrainingConfig, d_model: int) -> float:
    """Return the highest learning rate: the paper's at the end of its warm-up, unless another is set."""
    return config.learning_rate if config.learning_rate is not None else (d_model * config.warmup) ** -0.5


def learning_rate(step: int, config: TrainingConfig, d_model: int, last: int | None = None) -> float:
    """Return the rate of a step, counted from 1. ``last`` is the last step, if it is not ``config.steps``.

    paper: d_model^-0.5 · min(step^-0.5, step · warmup^-1.5)  (eq. 3), written here as peak · min(√(w/step), step/w)
    """
    rise = step / config.warmup
    if rise <= 1:
        return peak(config, d_model) * rise
    if config.schedule == "paper":
        return peak(config, d_model) / math.sqrt(rise)
    if config.schedule == "constant":
        return peak(config, d_model)
    remaining = (step - config.warmup) / max(1, (last or config.steps) - config.warmup)
    return peak(config, d_model) * 0.5 * (1 + math.cos(math.pi * min(1.0, remaining)))


class Timekeeper:
    """Computes how many steps fit into a time limit; it measures the speed about once a second.

    Evaluations and checkpoints count too. They are timed separately, because they are rare and long.
    """

    def __init__(self, seconds: float, step: int) -> None:
        self.seconds = seconds
        self.next_look = step + 1
        self.steady_from = step + FIRST_STEPS
        self.last = (step, 0.0)  # the step of the last measurement, and the seconds of learning until then
        self.each: float | None = None  # seconds of one step
        self.aside = 0.0  # seconds of evaluations and checkpoints so far
        self.since_line = 0.0  # the part of them since the last line of the table
        self.line: float | None = None  # seconds of the last line, with the checkpoints before it

    def took(self, seconds: float, line: bool) -> None:
        """Add the seconds of a checkpoint or of a line of the table."""
        self.aside += seconds
        self.since_line += seconds
        if line:
            self.line, self.since_line = self.since_line, 0.0

    def look(self, step: int, now: float, plan: TrainingConfig) -> dict[str, int]:
        """Return the settings that change, given the seconds since the start; set the time of the next look."""
        learned = now - self.aside
        if step >= self.steady_from:
            each = max((learned - self.last[1]) / (step - self.last[0]), 1e-9)
            self.each = each if self.each is None else (self.each + each) / 2
        self.last = (step, learned)
        if self.each is None:
            self.next_look = step + 1
            return {"steps": step} if now >= self.seconds else {}
        self.next_look = step + max(1, int(min(1.0, self.seconds / 20) / self.each))
        return self._planned(step, self.seconds - now, self.each, plan)

    def _planned(self, step: int, left: float, each: float, plan: TrainingConfig) -> dict[str, int]:
        """Return the settings with which the run ends after the seconds that are left."""
        planned = -(-plan.steps // plan.evaluate_every)  # lines of the whole run
        lines, most, aside = planned - step // plan.evaluate_every, TABLE_LINES, EXPECTED_ASIDE * left
        if self.line is not None:
            most = max(1, min(most, int(LARGEST_ASIDE * left / max(self.line, 1e-9))))
        # Moving the lines may bring two of them close together, so a few more than the limit are kept.
        moves = lines > most + most // 2 or 2 * planned < most
        if self.line is not None:
            aside = self.line * (most if moves else lines)
        if not moves and abs(left - aside - (plan.steps - step) * each) <= TOLERATED * self.seconds:
            return {}
        steps = max(step, step + int((left - aside) / each))
        changes = {"steps": steps}
        if moves:
            changes["evaluate_every"] = -(-steps // most)
            changes["checkpoint_every"] = max(1, steps // (4 * most))
        return changes
