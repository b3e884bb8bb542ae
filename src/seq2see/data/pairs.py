"""Pairs of texts: splitting them so that nothing leaks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Pair = tuple[str, str]


def hold_out(
    pairs: Sequence[Pair], share: float = 0.1, most: int = 1000, seed: int = 1
) -> tuple[list[Pair], list[Pair]]:
    """Split by source text, so that no held-out source occurs in training: (training, held out)."""
    sources = list(dict.fromkeys(source for source, _ in pairs))
    count = min(most, max(1, int(len(sources) * share)))
    chosen = np.random.default_rng(seed).permutation(len(sources))[:count]
    held = {sources[index] for index in chosen.tolist()}
    return [pair for pair in pairs if pair[0] not in held], [pair for pair in pairs if pair[0] in held]
