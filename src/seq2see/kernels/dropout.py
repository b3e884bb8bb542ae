"""Rounds a dropout rate to 16 random bits per number, for the kernels and their operators."""

from __future__ import annotations

CHANCES = 2**16  # each number is kept or not by 16 random bits


def kept_chances(dropout: float) -> int:
    """Return in how many of ``CHANCES`` cases a number is kept."""
    return round((1 - dropout) * CHANCES)


def drops(dropout: float) -> bool:
    """Whether this rate drops anything, so that h has another gradient than x."""
    return kept_chances(dropout) < CHANCES
