"""Which token of a source each token of its target belongs to, if both have the same order.

Pronunciations, spellings, numbers and dates go from left to right on both sides. Hard EM finds which tokens
belong together, in order. Training shows them to one head of the model (``training.guided``), which learns
much sooner from few pairs. Some tasks, such as reversing a text, have no such order: ``_is_clear`` finds out.

A lemma and its form share most letters, and ``with_copies`` finds these. They are shown to the head, too, and
``training.invented`` replaces them by others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from seq2see.data.batching import Ragged

MOVES = ((1, 1), (1, 0), (1, 2), (2, 1))  # tokens of the source and of the target that belong together
ROUNDS = 6  # of EM; later ones hardly change an alignment
UNSEEN = 0.01  # count of a piece that never occurred
FIRST_COST = 0.6  # of a piece that is not one to one, in the first round
LONGEST = 32  # tokens of a side; longer texts are not aligned
AT_ONCE = 4096  # pairs that are aligned together
#: pieces of one form, such as two letters with one sound; with more, as of thousands of Chinese characters, there are no
#: pieces of this form, since their counts would fill the memory
MOST_PIECES = 2**24
#: share of source tokens with their most frequent target: 0.59 to 0.87 in eight sets of pronunciations, 0.15
#: to 0.23 where texts are reversed, sorted or drawn at random
CLEAR = 0.4


Move = tuple[int, int]


class Block(NamedTuple):
    """B pairs of similar lengths, without start and end, one in each column; below a shorter one are other tokens."""

    rows: np.ndarray  # the numbers of the pairs
    lengths: np.ndarray  # of both sides, (2, B)
    source: np.ndarray  # (N, B)
    target: np.ndarray  # (M, B)


def with_places(source: Ragged, target: Ragged) -> Ragged:
    """Return the target with the position of each token's source token, if that is clear.

    The first round of EM prefers the diagonal; later rounds prefer pieces that the round before found often.
    """
    sizes = int(source.values.max()) + 1, int(target.values.max()) + 1
    moves = [(i, j) for i, j in MOVES if sizes[0] ** i * sizes[1] ** j <= MOST_PIECES]
    if (1, 1) not in moves:
        return target
    blocks = [*_blocks(source, target, max(j for _, j in moves))]
    costs: dict[Move, np.ndarray | None] = dict.fromkeys(moves)
    for _ in range(ROUNDS):
        paths = [_best(block, costs) for block in blocks]
        counts = {(i, j): np.full([sizes[0]] * i + [sizes[1]] * j, UNSEEN) for i, j in moves}
        for block, path in zip(blocks, paths, strict=True):
            _count(counts, block, path)
        total = sum(float(part.sum()) for part in counts.values())
        costs = {move: -np.log(part / total) for move, part in counts.items()}
    if not _is_clear(counts):
        return target
    places = np.full(len(target.values), -1, dtype=np.int32)
    for block, path in zip(blocks, paths, strict=True):
        begin = target.offsets[block.rows] + 1  # after the start
        places[begin + block.lengths[1]] = block.lengths[0] + 1  # the end belongs to the end
        for cut, before in pairwise(path):
            for token in range(2):  # a piece has at most two of the target
                within = before[1] + token < cut[1]
                places[(begin + before[1] + token)[within]] = cut[0][within]  # the last token of the piece
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


def _blocks(source: Ragged, target: Ragged, most: int = 2) -> Iterator[Block]:
    """Put pairs that can be aligned into blocks, sorted by their lengths; a source token has ``most`` of the target."""
    n, m = source.lengths - 2, target.lengths - 2
    rows = np.flatnonzero((n > 0) & (n <= LONGEST) & (m > 0) & (m <= LONGEST) & (m <= most * n))
    rows = rows[np.lexsort((m[rows], n[rows]))]
    for first in range(0, len(rows), AT_ONCE):
        some = rows[first : first + AT_ONCE]
        yield Block(some, np.stack([n[some], m[some]]), _columns(source, some), _columns(target, some))


def _inner(side: Ragged, row: int) -> np.ndarray:
    """Return the tokens of a row between start and end."""
    return side.values[side.offsets[row] + 1 : side.offsets[row + 1] - 1]


def _columns(side: Ragged, rows: np.ndarray) -> np.ndarray:
    """Return the tokens of some rows between start and end, a row in each column."""
    longest = side.lengths[rows].max() - 2
    at = side.offsets[rows] + 1 + np.arange(longest)[:, None]
    found: np.ndarray = side.values[np.minimum(at, len(side.values) - 1)]
    return found


def _best(block: Block, costs: Mapping[Move, np.ndarray | None]) -> np.ndarray:
    """Find the cheapest way through each pair by Viterbi's algorithm; without costs, one near the diagonal.

    Return its cuts from the end to the start, (L, 2, B): how many tokens of the source and of the target come before
    them. The start may occur several times.
    """
    source, target, (n, m) = block.source, block.target, block.lengths
    B = len(n)
    cost = np.full((len(source) + 1, len(target) + 1, B), np.inf)
    move_to = np.zeros(cost.shape, dtype=np.int8)
    cost[0, 0] = 0.0
    for i, j in np.ndindex(cost.shape[:2]):
        for number, (move, known) in enumerate(costs.items()):
            before = i - move[0], j - move[1]
            if min(before) < 0:
                continue
            if known is None:
                step = abs(i / n - j / m) + (0.0 if move == (1, 1) else FIRST_COST)
            else:
                step = known[(*source[before[0] : i], *target[before[1] : j])]
            whole = cost[before] + step
            better = whole < cost[i, j]
            cost[i, j][better] = whole[better]
            move_to[i, j][better] = number
    cuts, moves = [block.lengths], np.array([*costs]).T  # (2, 4)
    while cuts[-1].any():
        i, j = cuts[-1]
        cuts.append(np.maximum(cuts[-1] - moves[:, move_to[i, j, np.arange(B)]], 0))
    return np.stack(cuts)


def _count(counts: Mapping[Move, np.ndarray], block: Block, path: np.ndarray) -> None:
    """Count the pieces of these ways."""
    columns = np.arange(path.shape[2])
    for cut, before in pairwise(path):
        for move, found in counts.items():
            here = (cut - before == np.array(move)[:, None]).all(0)
            of, (i, j) = columns[here], cut[:, here]
            tokens = [block.source[i - back, of] for back in range(move[0], 0, -1)]
            tokens += [block.target[j - back, of] for back in range(move[1], 0, -1)]
            np.add.at(found, tuple(tokens), 1.0)


def _is_clear(counts: Mapping[Move, np.ndarray]) -> bool:
    """Whether most source tokens have their most frequent target, by the counts of the pieces."""
    pieces = usual = 0.0
    for length in (1, 2):  # of the source
        found = [
            (part - UNSEEN).reshape(*part.shape[:length], -1) for move, part in counts.items() if move[0] == length
        ]
        pieces += sum(float(part.sum()) for part in found)
        usual += float(np.concatenate(found, -1).max(-1).sum()) if found else 0.0
    return pieces > 0.5 and usual >= CLEAR * pieces
