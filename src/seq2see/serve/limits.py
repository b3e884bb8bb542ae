"""How much the server takes on at once."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What a request may ask for, and how many may wait."""

    characters: int = 2_000  # in one input
    inputs: int = 256  # in one request
    batch: int = 1_024  # inputs answered together
    beam: int = 16
    body: int = 1_000_000  # bytes of one request
    queue: int = 512  # requests that wait for the model
    seconds: float = 30.0  # that a request may take
