"""The learning rate at every step (section 5.3), and when a training that is watched ends."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from seq2see.config import TrainingConfig

FIRST_LINE = 100  # the step of the first line of a watched training, or a tenth of its steps if they are few
FURTHER = 1.25  # ratio of the steps of two lines: how long a model learns is seen on a logarithmic scale
SHORTEST_RISE = 20  # part of the steps that the rate may rise in a watched training, at most
STALE = 1.6  # times the steps of the best answers and of the lowest loss, after which nothing more is expected
SETTLED, FEWEST_LINES = 3, 4  # warm-ups and lines before that is said
LANDING = 1.0  # length of the fall of the rate, in the steps before it: the second half of the training
SOLVED_LANDING = 0.1  # the same if all held-out pairs are right
ALL_RIGHT = 2  # lines in a row with all held-out pairs right, after which the task is solved
NOT_AVERAGED = 0.75  # first share of the steps, whose checkpoints are not part of the final average
SNAPSHOTS = 20  # weights kept while the rate of a watched training falls; the last `average` ones are averaged
ENOUGH_RIGHT = 100  # held-out pairs; if all of fewer are right, more than one of thirty others may be wrong


def peak(config: TrainingConfig, d_model: int) -> float:
    """Return the highest learning rate: the paper's at the end of its warm-up, unless another is set."""
    return config.learning_rate if config.learning_rate is not None else (d_model * config.warmup) ** -0.5


def warmup(config: TrainingConfig) -> int:
    """Return the steps over which the rate rises."""
    return max(1, min(config.warmup, config.steps // SHORTEST_RISE)) if is_watched(config) else config.warmup


def is_watched(config: TrainingConfig) -> bool:
    """Whether the held-out answers decide when the training ends."""
    return config.schedule == "watched"


@dataclass(frozen=True)
class Course:
    """How far a training has come: its best line, and when the rate begins to fall and reaches zero."""

    step: int = 0  # of the best line
    score: float = -1.0
    low: int = 0  # the step of the line with the lowest held-out loss
    loss: float = math.inf  # that loss
    lines: int = 0
    lines_since: int = 0  # the best one
    all_right: int = 0  # lines in a row, up to the last one, with every held-out pair right
    falls: int = 0  # the step after which the rate falls; 0: not yet
    last: int = 0  # the last step, once it is known
    why: str = ""  # why the rate falls: solved, stale or budget

    def after(self, step: int, score: float, loss: float, right: bool, config: TrainingConfig) -> Course:
        """Return the course after one more line; of equal lines the later one is the best.

        ``right`` says whether every held-out pair is right, and whether these are enough to believe it.
        """
        better, lower = score >= self.score, loss < self.loss
        now = replace(
            self,
            step=step if better else self.step,
            score=max(score, self.score),
            low=step if lower else self.low,
            loss=min(loss, self.loss),
            lines=self.lines + 1,
            lines_since=0 if better else self.lines_since + 1,
            all_right=self.all_right + 1 if right else 0,
        )
        return now._ending(step, config) if is_watched(config) else now

    def _ending(self, step: int, config: TrainingConfig) -> Course:
        """Let the rate fall if the task is solved, or if neither the answers nor the loss become better any more.

        The loss alone says too little: it rises while answers improve. The answers alone do too: for a while a model
        that will learn to copy has a falling loss and no right answer.
        """
        if self.all_right >= ALL_RIGHT and self.why != "solved":
            end = step + max(1, round(SOLVED_LANDING * step))
            return self._falling(self.falls or step, min(end, self.last or config.steps), "solved")
        settled = self.lines >= FEWEST_LINES and step >= SETTLED * warmup(config)
        if not self.falls and settled and step >= STALE * max(self.step, self.low):
            return self._falling(step, min(config.steps, step + round(LANDING * step)), "stale")
        return self

    def _falling(self, first: int, last: int, why: str) -> Course:
        return replace(self, falls=first, last=last, why=why)

    def at(self, step: int, config: TrainingConfig) -> Course:
        """Return the course at a step: the rate falls in time for the last one."""
        if is_watched(config) and not self.falls and step >= int(config.steps / (1 + LANDING)):
            return self._falling(step, config.steps, "budget")
        return self

    def end(self, config: TrainingConfig) -> int:
        """Return the last step, as far as it is known."""
        return self.last or config.steps

    def told(self, step: int, pairs: int) -> str:
        """Say after a step why a training with so many held-out pairs ends soon."""
        why = (
            f"all {pairs:,} held-out pairs are right"
            if self.why == "solved"
            else "neither the answers to the held-out pairs nor their loss have become better since step "
            f"{max(self.step, self.low):,}"
        )
        return f"At step {step:,} {why}: the learning rate falls to zero until step {self.last:,}."

    def averages(self, step: int, config: TrainingConfig) -> bool:
        """Whether the weights after a step are part of the final average."""
        last = self.end(config)
        if config.patience:
            return step == self.step
        if is_watched(config):
            every = max(1, (last - self.falls) // SNAPSHOTS)
            return 0 < self.falls < step and (last - step) % every == 0 and step > last - config.average * every
        before = (last - 1) // config.checkpoint_every  # checkpoints before the last
        others = min(config.average - 1, before)
        earliest = (before - others + 1) * config.checkpoint_every if others else last
        # In a short run the last few checkpoints may include an untrained model.
        regular = step % config.checkpoint_every == 0 or step == last
        return regular and step >= max(earliest, NOT_AVERAGED * last)


def learning_rate(step: int, config: TrainingConfig, d_model: int, course: Course | None = None) -> float:
    """Return the rate of a step, counted from 1. ``course`` is that of a watched training.

    paper: d_model^-0.5 · min(step^-0.5, step · warmup^-1.5)  (eq. 3), written here as peak · min(√(w/step), step/w)
    """
    rise = step / warmup(config)
    highest = peak(config, d_model)
    if rise <= 1:
        return highest * rise
    if config.schedule == "paper":
        return highest / math.sqrt(rise)
    if config.schedule == "constant":
        return highest
    if is_watched(config):
        if course is None or not course.falls:
            return highest
        return highest * max(0.0, course.last - step) / max(1, course.last - course.falls)
    remaining = (step - config.warmup) / max(1, config.steps - config.warmup)
    return highest * 0.5 * (1 + math.cos(math.pi * min(1.0, remaining)))


def has_line(step: int, config: TrainingConfig) -> bool:
    """Whether the table has a line after this step; those of a watched training come at growing distances."""
    if not is_watched(config):
        return step % config.evaluate_every == 0
    first = max(1, min(FIRST_LINE, config.steps // 10))
    if step < first:
        return False
    number = round(math.log(step / first, FURTHER))
    return step == round(first * FURTHER**number)


def between_checkpoints(config: TrainingConfig) -> int:
    """Return how many steps lie between two checkpoints."""
    if is_watched(config):
        return max(1, config.steps // SNAPSHOTS)
    return config.evaluate_every if config.patience else config.checkpoint_every


def steps_of(budget: float, each: float) -> int:
    """Return the number of steps for some seconds, to two digits: a measured speed is no more exact."""
    steps = max(1.0, budget / each)
    unit = 10 ** max(0, math.floor(math.log10(steps)) - 1)
    return int(max(1, round(steps / unit) * unit))
