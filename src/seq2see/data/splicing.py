"""New pairs made of two: the beginning of one and the end of another, where both are cut at the same sounds.

Words are spoken from left to right, and so are spellings, numbers and dates. Hard EM finds which tokens of a source
belong to which of its target, in order. Two pairs that have the same piece before a cut, and the same source token
after it, can be crossed there: *na|tion* and *sta|te* become *nate* and *station*. With few pairs, such new ones teach
more than the same pairs once more.

That is so where the parts of a text stand for themselves and come in order. Texts that are reversed, for example, cannot
be crossed. Some crossed sources are in the data, and their targets tell: ``is_right``.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from random import Random

import numpy as np

from seq2see.data.batching import Ragged

MOVES = ((1, 1), (1, 0), (1, 2), (2, 1))  # tokens of the source and of the target that belong together
ROUNDS = 6  # of EM; after these hardly any alignment changes
UNSEEN = 0.01  # what a piece that never occurred counts
FIRST_COST = 0.6  # of a piece that is not one to one, in the first round
LONGEST = 32  # tokens of a side; longer texts are not aligned
ENDS = 2  # tokens around each text: its start and its end

TRIED = 20_000  # crossed pairs that are made to see whether they are right
ENOUGH = 10  # of them that are in the data, from which on these decide
RIGHT = 0.6  # share of those whose target is one that the data has

Cut = tuple[int, int]  # how many tokens of the source and of the target come before it
Junction = tuple[
    tuple[int, ...], tuple[int, ...], int
]  # the piece before a cut, and the source token after it


class Splicer:
    """Pairs of ids, aligned; ``drawn`` crosses some of them."""

    def __init__(self, source: Ragged, target: Ragged) -> None:
        self.pairs = [
            (_inner(source, row), _inner(target, row)) for row in range(len(source.lengths))
        ]  # without their ends
        self.ends = [
            (tuple(side.values[:1].tolist()), tuple(side.values[-1:].tolist())) for side in (source, target)
        ]
        self.at: dict[Junction, list[tuple[int, Cut]]] = defaultdict(list)
        for row, cuts in enumerate(aligned(self.pairs)):
            for before, cut in pairwise(cuts[:-1]):
                self.at[self._junction(row, before, cut)].append((row, cut))
        #: every cut at which another pair can go on
        self.places = [
            (junction, place)
            for junction, places in self.at.items()
            if len({row for row, _ in places}) > 1
            for place in places
        ]

    def _junction(self, row: int, before: Cut, cut: Cut) -> Junction:
        source, target = self.pairs[row]
        return (
            tuple(source[before[0] : cut[0]].tolist()),
            tuple(target[before[1] : cut[1]].tolist()),
            int(source[cut[0]]),
        )

    def drawn(self, count: int, longest: int, random: Random) -> tuple[Ragged, Ragged]:
        """Return so many new pairs at most, none longer than ``longest``; fewer where pairs have little in common."""
        rows: tuple[list[list[int]], list[list[int]]] = ([], [])
        for _ in range(count):
            if (made := self._crossed(random)) is None:
                continue
            if max(map(len, made)) + ENDS <= longest and min(map(len, made)) > 0:
                for side, ids, (start, stop) in zip(rows, made, self.ends, strict=True):
                    side.append([*start, *ids, *stop])
        return Ragged.of(rows[0]), Ragged.of(rows[1])

    def _crossed(self, random: Random) -> tuple[list[int], list[int]] | None:
        """Cross two random pairs; return the new one without its ends, or nothing where both are the same."""
        if not self.places:
            return None
        junction, (one, cut) = random.choice(self.places)
        other, from_there = random.choice(self.at[junction])
        if other == one:
            return None
        source, target = (
            [*first[:end].tolist(), *second[begin:].tolist()]
            for first, second, end, begin in zip(
                self.pairs[one], self.pairs[other], cut, from_there, strict=True
            )
        )
        return source, target

    def is_right(self) -> bool:
        """Whether crossed pairs are mostly right, by those whose source is in the data.

        Where there are hardly any such, nothing speaks against them.
        """
        known: dict[tuple[int, ...], set[tuple[int, ...]]] = defaultdict(set)
        for source, target in self.pairs:
            known[tuple(source.tolist())].add(tuple(target.tolist()))
        random, right, met = Random(0), 0, 0
        for _ in range(TRIED):
            made = self._crossed(random)
            if made is None or tuple(made[0]) not in known:
                continue
            met += 1
            right += tuple(made[1]) in known[tuple(made[0])]
        return met < ENOUGH or right >= RIGHT * met


def _inner(side: Ragged, row: int) -> np.ndarray:
    return side.values[side.offsets[row] + 1 : side.offsets[row + 1] - 1]


def aligned(pairs: list[tuple[np.ndarray, np.ndarray]]) -> list[list[Cut]]:
    """Return where each pair can be cut, from (0, 0) to its end; nothing where its sides cannot be aligned.

    Pairs of the same lengths are aligned together. The first round prefers the diagonal, and the others what the round
    before found often.
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


ORDER = 3  # tokens of a made-up source that decide on the next


def made_up(sources: Ragged, count: int, random: Random) -> list[list[int]]:
    """Make up sources that look like these and are not among them, by an n-gram model; fewer where few are new.

    They have their ends. A teacher can answer them, so that a pupil sees more of what the teacher knows.
    """
    rows = [
        sources.values[first:last].tolist()
        for first, last in zip(sources.offsets[:-1], sources.offsets[1:], strict=True)
    ]
    after: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for row in rows:
        for place in range(1, len(row)):
            after[tuple(row[max(0, place - ORDER) : place])].append(row[place])
    longest, end = max(map(len, rows)), rows[0][-1]
    seen, found = {tuple(row) for row in rows}, []
    for _ in range(4 * count):
        row = rows[0][:1]
        while row[-1] != end and len(row) < longest:
            row.append(random.choice(after[tuple(row[-ORDER:])]))
        if row[-1] == end and len(row) > ENDS and tuple(row) not in seen:
            seen.add(tuple(row))
            found.append(row)
            if len(found) == count:
                break
    return found
