"""Which token of a source each token of its target belongs to, if both have the same order.

Pronunciations, spellings, numbers and dates go from left to right on both sides. Hard EM finds which tokens
belong together, in order. Training shows them to one head of the model (``training.guided``), which learns
much sooner from few pairs. Some tasks, such as reversing a text, have no such order: ``is_clear`` finds out.

A lemma and its form share most letters, and ``with_copies`` finds these. They are shown to the head, too, and
``training.invented`` replaces them by others.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from difflib import SequenceMatcher
from itertools import pairwise

import numpy as np

from seq2see.data.batching import Ragged

MOVES = ((1, 1), (1, 0), (1, 2), (2, 1))  # tokens of the source and of the target that belong together
ROUNDS = 6  # of EM; later ones hardly change an alignment
UNSEEN = 0.01  # count of a piece that never occurred
FIRST_COST = 0.6  # of a piece that is not one to one, in the first round
LONGEST = 32  # tokens of a side; longer texts are not aligned
#: share of source tokens with their most frequent target: 0.59 to 0.87 in eight sets of pronunciations, 0.15
#: to 0.23 where texts are reversed, sorted or drawn at random
CLEAR = 0.4

Cut = tuple[int, int]  # how many tokens of the source and of the target come before it


def with_places(source: Ragged, target: Ragged) -> Ragged:
    """Return the target with the position of each token's source token, if that is clear."""
    pairs = [(_inner(source, row), _inner(target, row)) for row in range(len(source.lengths))]
    cuts = aligned(pairs)
    if not is_clear(pairs, cuts):
        return target
    places = np.full(len(target.values), -1, dtype=np.int32)
    for row, path in enumerate(cuts):
        begin = target.offsets[row] + 1  # after the start
        for before, cut in pairwise(path):
            places[begin + before[1] : begin + cut[1]] = cut[
                0
            ]  # the last token of the piece; the start is token 0
        if path:
            places[begin + path[-1][1]] = path[-1][0] + 1  # the end belongs to the end
    return Ragged(target.values, target.offsets, places)


def with_copies(source: Ragged, target: Ragged, vocabularies: tuple[list[str], list[str]]) -> Ragged:
    """Return the target with the position of each token that is copied from the source, in stretches of two or more."""
    numbers = {token: number for number, token in enumerate(vocabularies[1])}
    same = np.array([numbers.get(token, -1) for token in vocabularies[0]])  # as ids of the target
    places = np.full(len(target.values), -1, dtype=np.int32)
    for row in range(len(source.lengths)):
        read, written = same[_inner(source, row)].tolist(), _inner(target, row).tolist()
        begin = target.offsets[row] + 1  # after the start
        for here, there, count in SequenceMatcher(None, read, written, False).get_matching_blocks():
            if count > 1:
                places[begin + there : begin + there + count] = np.arange(here + 1, here + 1 + count)
    return Ragged(target.values, target.offsets, places)


def is_clear(pairs: list[tuple[np.ndarray, np.ndarray]], cuts: list[list[Cut]]) -> bool:
    """Whether most source tokens have their most frequent target."""
    found: dict[bytes, Counter[bytes]] = defaultdict(Counter)
    for (source, target), path in zip(pairs, cuts, strict=True):
        for before, cut in pairwise(path):
            found[source[before[0] : cut[0]].tobytes()][target[before[1] : cut[1]].tobytes()] += 1
    pieces = sum(count.total() for count in found.values())
    usual = sum(count.most_common(1)[0][1] for count in found.values())
    return pieces > 0 and usual >= CLEAR * pieces


def _inner(side: Ragged, row: int) -> np.ndarray:
    return side.values[side.offsets[row] + 1 : side.offsets[row + 1] - 1]


def aligned(pairs: list[tuple[np.ndarray, np.ndarray]]) -> list[list[Cut]]:
    """Return the cuts of each pair, from (0, 0) to its end; empty if its sides cannot be aligned.

    Pairs of the same lengths are aligned together. The first round prefers the diagonal; later rounds prefer
    pieces that the round before found often.
    """
    groups: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row, (source, target) in enumerate(pairs):
        n, m = len(source), len(target)
        if 0 < n <= LONGEST and 0 < m <= LONGEST and m <= 2 * n:
            groups[n, m].append(row)
    stacks = {
        size: (np.stack([pairs[row][0] for row in rows]), np.stack([pairs[row][1] for row in rows]))
        for size, rows in groups.items()
    }
    cuts: list[list[Cut]] = [[] for _ in pairs]
    costs: list[np.ndarray] | None = None
    sizes = (
        1 + max((int(source.max()) for source, _ in stacks.values()), default=0),
        1 + max((int(target.max()) for _, target in stacks.values()), default=0),
    )
    for _ in range(ROUNDS):
        counts = [np.full(_kinds(move, sizes), UNSEEN) for move in MOVES]
        for size, rows in groups.items():
            found = _best(*stacks[size], costs, sizes)
            for row, path in zip(rows, found, strict=True):
                cuts[row] = path
            _count(counts, *stacks[size], found, sizes)
        total = sum(float(part.sum()) for part in counts)
        costs = [-np.log(part / total) for part in counts]
    return cuts


def _kinds(move: tuple[int, int], sizes: tuple[int, int]) -> int:
    """Return how many different pieces of this form there are."""
    return int(sizes[0] ** move[0] * sizes[1] ** move[1])


def _piece(
    source: np.ndarray, target: np.ndarray, at: Cut, move: tuple[int, int], sizes: tuple[int, int]
) -> np.ndarray:
    """Number the piece that ends at a cut, in each row: (B,)."""
    number = np.zeros(len(source), dtype=np.int64)
    for side, width in ((0, sizes[0]), (1, sizes[1])):
        for place in range(at[side] - move[side], at[side]):
            number = number * width + (source if side == 0 else target)[:, place]
    return number


def _best(
    source: np.ndarray, target: np.ndarray, costs: list[np.ndarray] | None, sizes: tuple[int, int]
) -> list[list[Cut]]:
    """Find the cheapest way through each of these pairs, all of one size, by Viterbi's algorithm."""
    (B, n), m = source.shape, target.shape[1]
    cost = np.full((n + 1, m + 1, B), np.inf)
    move_to = np.zeros((n + 1, m + 1, B), dtype=np.int8)
    cost[0, 0] = 0.0
    for i in range(n + 1):
        for j in range(m + 1):
            for number, move in enumerate(MOVES):
                if i < move[0] or j < move[1]:
                    continue
                if costs is None:
                    step: np.ndarray | float = abs(i / n - j / m) + (0.0 if move == (1, 1) else FIRST_COST)
                else:
                    step = costs[number][_piece(source, target, (i, j), move, sizes)]
                whole = cost[i - move[0], j - move[1]] + step
                better = whole < cost[i, j]
                cost[i, j][better] = whole[better]
                move_to[i, j][better] = number
    paths = []
    for row in range(B):
        path, (i, j) = [(n, m)], (n, m)
        while (i, j) != (0, 0):
            move = MOVES[move_to[i, j, row]]
            i, j = i - move[0], j - move[1]
            path.append((i, j))
        paths.append(path[::-1])
    return paths


def _count(
    counts: list[np.ndarray],
    source: np.ndarray,
    target: np.ndarray,
    paths: list[list[Cut]],
    sizes: tuple[int, int],
) -> None:
    """Count the pieces of these paths."""
    for row, path in enumerate(paths):
        one, other = source[row : row + 1], target[row : row + 1]
        for before, cut in pairwise(path):
            move = cut[0] - before[0], cut[1] - before[1]
            counts[MOVES.index(move)][_piece(one, other, cut, move, sizes)] += 1
