"""The learning rate at every step (section 5.3)."""

from __future__ import annotations

import math

from seq2see.config import TrainingConfig


def peak(config: TrainingConfig, d_model: int) -> float:
    """Return the highest learning rate: the paper's at the end of its warm-up, unless another is set."""
    return config.learning_rate if config.learning_rate is not None else (d_model * config.warmup) ** -0.5


def learning_rate(step: int, config: TrainingConfig, d_model: int) -> float:
    """Return the rate of a step, counted from 1.

    paper: d_model^-0.5 · min(step^-0.5, step · warmup^-1.5)  (eq. 3), written here as peak · min(√(w/step), step/w)
    """
    rise = step / config.warmup
    if rise <= 1:
        return peak(config, d_model) * rise
    if config.schedule == "paper":
        return peak(config, d_model) / math.sqrt(rise)
    if config.schedule == "constant":
        return peak(config, d_model)
    remaining = (step - config.warmup) / max(1, config.steps - config.warmup)
    return peak(config, d_model) * 0.5 * (1 + math.cos(math.pi * min(1.0, remaining)))
