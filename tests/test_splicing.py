"""Pairs made of two, and sources that are made up."""

from __future__ import annotations

from random import Random

import numpy as np

from seq2see.data.batching import Ragged
from seq2see.data.splicing import Splicer, aligned, made_up

LETTERS = "abcdefgh"


def words(count: int) -> list[tuple[list[int], list[int]]]:
    """Random words of a language in which ``g h`` (9, 10) is one sound, and ``x`` (6) is two; others are one each."""
    random, found = Random(1), []
    for _ in range(count):
        source: list[int] = []
        target: list[int] = []
        for _ in range(random.randint(2, 5)):
            letter = random.choice((3, 4, 5, 6, 9))
            source += [9, 10] if letter == 9 else [letter]
            target += {6: [26, 27], 9: [29]}.get(letter, [letter + 20])
        found.append((source, target))
    return found


def spoken(source: list[int]) -> list[int]:
    """Say a source of that language."""
    target = []
    for letter in source:
        target += {6: [26, 27], 9: [], 10: [29]}.get(letter, [letter + 20])
    return target


def sides(pairs: list[tuple[list[int], list[int]]]) -> tuple[Ragged, Ragged]:
    return tuple(Ragged.of([[1, *pair[side], 2] for pair in pairs]) for side in (0, 1))  # type: ignore[return-value]


def rows(side: Ragged) -> list[list[int]]:
    return [side.values[a:b].tolist() for a, b in zip(side.offsets[:-1], side.offsets[1:], strict=True)]


def test_sounds_are_found_that_belong_to_letters() -> None:
    pairs = words(200)
    cuts = aligned([(np.array(source), np.array(target)) for source, target in pairs])
    right = 0
    for (source, target), path in zip(pairs, cuts, strict=True):
        assert path[0] == (0, 0)
        assert path[-1] == (len(source), len(target))
        right += all(target[:j] == spoken(source[:i]) for i, j in path if i == 0 or source[i - 1] != 9)
    assert right > 180
    assert aligned([(np.array([3]), np.array([23] * 5)), (np.zeros(0, int), np.array([23]))]) == [[], []]


def test_crossed_pairs_are_right_new_and_short_enough() -> None:
    pairs = words(60)
    splicer = Splicer(*sides(pairs))
    source, target = splicer.drawn(300, 12, Random(1))
    made = list(zip(rows(source), rows(target), strict=True))
    assert len(made) > 150
    assert all(max(len(a), len(b)) <= 12 and (a[0], a[-1], b[0], b[-1]) == (1, 2, 1, 2) for a, b in made)
    right = sum(b[1:-1] == spoken(a[1:-1]) for a, b in made)
    assert right > 0.9 * len(made)
    known = {tuple(source) for source, _ in pairs}
    assert sum(tuple(a[1:-1]) not in known for a, _ in made) > 0.3 * len(made)
    assert rows(splicer.drawn(50, 12, Random(2))[0]) == rows(splicer.drawn(50, 12, Random(2))[0])


def test_pairs_whose_parts_depend_on_each_other_are_not_crossed() -> None:
    """Words can be crossed. Texts that are reversed cannot, and the data tell it."""
    assert Splicer(*sides(words(400))).is_right()
    reversed_ = [
        ([3 + a, 3 + b, 3 + c], [23 + c, 23 + b, 23 + a])
        for a in range(6)
        for b in range(6)
        for c in range(6)
    ]
    assert not Splicer(*sides(reversed_)).is_right()
    assert Splicer(*sides([([3, 4], [23, 24]), ([5, 6], [25, 26])])).is_right()  # nothing speaks against it
    assert len(Splicer(*sides([([3], [23])])).drawn(10, 99, Random(1))[0].lengths) == 0


def test_made_up_sources_look_like_the_others_and_are_new() -> None:
    pairs = words(100)
    source, _ = sides(pairs)
    found = made_up(source, 50, Random(1))
    known = {tuple(row) for row in rows(source)}
    assert len(found) == len({tuple(row) for row in found}) == 50
    assert not known & {tuple(row) for row in found}
    threes = {tuple(row[place : place + 3]) for row in known for place in range(len(row) - 2)}
    assert all(tuple(row[place : place + 3]) in threes for row in found for place in range(len(row) - 2))
    assert made_up(Ragged.of([[1, 3, 2]]), 5, Random(1)) == []
