"""Data augmentation: the pairs of an epoch are changed by a function of the caller, chained, and given new stems.

It depends only on the seed and the epoch, so a resumed run sees what an uninterrupted one sees.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from random import Random

import numpy as np

from seq2see.config import TrainingConfig
from seq2see.data.batching import Ragged
from seq2see.errors import InputError, UserError
from seq2see.tokenizers.tokenizer import Tokenizer

Pair = tuple[str, str]
#: Returns the pairs of an epoch, changed, in order, and perhaps more of them. It draws from the given generator alone.
Vary = Callable[[list[Pair], Random], Sequence[Pair]]

KEPT = 3  # last letters of a copied stretch that no other replaces


def chained(
    sides: tuple[Ragged, Ragged], count: int, longest: int, drawn: np.random.Generator
) -> tuple[Ragged, Ragged]:
    """Join two random pairs end to end, ``count`` times; results longer than ``longest`` are left out.

    The end token of the first pair stays between them on both sides, so that the second begins like a new
    text. So each word occurs at many positions and with many unrelated neighbours.
    """
    rows = drawn.integers(0, len(sides[0].lengths), (2, count))
    lengths = np.stack([side.lengths[rows].sum(0) - 1 for side in sides])  # without the start of the second
    rows = rows[:, lengths.max(0) <= longest]
    (one, one_target), (other, other_target) = ([side.taken(which) for side in sides] for which in rows)
    if other_target.places is not None:
        moved = np.repeat(one.lengths - 1, other_target.lengths) * (other_target.places >= 0)
        other_target.places = other_target.places + moved
    return _end_to_end(one, other), _end_to_end(one_target, other_target)


def _end_to_end(one: Ragged, other: Ragged) -> Ragged:
    """Return each row of one followed by the same row of the other, without its first token."""
    count = len(one.lengths)
    both = one.and_then(other).taken(np.arange(2 * count).reshape(2, count).T.ravel())  # one, other, one, other, …
    kept = np.ones(len(both.values), dtype=bool)
    kept[both.offsets[1:-1:2]] = False
    places = None if both.places is None else both.places[kept]
    return Ragged(both.values[kept], both.offsets[::2] - np.arange(count + 1), places)


def invented(sides: tuple[Ragged, Ragged], share: float, drawn: np.random.Generator) -> tuple[Ragged, Ragged]:
    """Replace the copied letters of some pairs by those of other pairs, on both sides alike.

    So the model learns to copy any stem, not only those of the data (Anastasopoulos and Neubig, 2019). The first
    letter of a copied stretch and its last ``KEPT`` letters stay, because the endings depend on them.
    """
    source, target = sides
    assert target.places is not None
    # whether the next token is copied from the next one of the source
    goes_on = np.zeros(len(target.values) + KEPT, dtype=bool)
    goes_on[: -KEPT - 1] = (target.places[:-1] >= 0) & (target.places[1:] == target.places[:-1] + 1)
    inside = np.zeros(len(target.values), dtype=bool)
    inside[1:] = np.all(np.lib.stride_tricks.sliding_window_view(goes_on[:-1], KEPT + 1), axis=-1)
    rows = np.repeat(np.arange(len(target.lengths)), target.lengths)
    pool = np.flatnonzero(inside)
    chosen = np.flatnonzero(inside & (drawn.random(len(target.lengths)) < share)[rows])
    if not len(chosen):
        return sides
    # Letters in a row come from letters in a row, so that the new stem can be pronounced.
    first = np.concatenate([[0], 1 + np.flatnonzero(np.diff(chosen) > 1)])
    counts = np.diff([*first, len(chosen)])
    within = np.arange(len(chosen)) - np.repeat(first, counts)
    taken = pool[(np.repeat(drawn.integers(0, len(pool), len(first)), counts) + within) % len(pool)]
    at = source.offsets[rows] + target.places  # where each copied token is read
    read, written = source.values.copy(), target.values.copy()
    read[at[chosen]], written[chosen] = source.values[at[taken]], target.values[taken]
    return Ragged(read, source.offsets), Ragged(written, target.offsets, target.places)


def varied(
    sides: tuple[Ragged, Ragged],
    tokenizers: tuple[Tokenizer, Tokenizer],
    settings: TrainingConfig,
    number: int,
    longest: int,
    vary: Vary | None = None,
) -> tuple[Ragged, Ragged]:
    """Return pairs of ids, some of them changed, followed by new and by chained ones.

    ``number`` is the number of the epoch, or of its part if it has several: each has other random changes. A result
    longer than ``longest`` is dropped, and the pair stays as it was.
    """
    drawn = np.random.default_rng([settings.seed, number, 2])
    random = Random(int(drawn.integers(2**62)))
    found = sides if vary is None else _by(vary, sides, tokenizers, random, longest)
    if settings.invented:
        found = invented(found, settings.invented, drawn)
    if settings.chained:
        pairs = chained(found, int(settings.chained * len(sides[0].lengths)), longest, drawn)
        found = found[0].and_then(pairs[0]), found[1].and_then(pairs[1])
    return found


def _by(
    vary: Vary, sides: tuple[Ragged, Ragged], tokenizers: tuple[Tokenizer, Tokenizer], random: Random, longest: int
) -> tuple[Ragged, Ragged]:
    """Let a function change the pairs as texts; those that it leaves alone keep their ids."""
    count = len(sides[0].lengths)
    before = _texts(sides, np.arange(count), tokenizers)
    after = list(vary(list(before), random))
    if len(after) < count:
        raise UserError(f"`vary` returned {len(after):,} of {count:,} pairs: all were expected, in order.")
    rows = [
        row for row, (old, new) in enumerate(zip(before, after, strict=False)) if old != new and _known(new, tokenizers)
    ]
    changed = [after[row] for row in rows] + [pair for pair in after[count:] if _known(pair, tokenizers)]
    return _changed(sides, tokenizers, np.array(rows, dtype=int), changed, longest) if changed else sides


def _changed(
    sides: tuple[Ragged, Ragged],
    tokenizers: tuple[Tokenizer, Tokenizer],
    rows: np.ndarray,
    changed: list[Pair],
    longest: int,
) -> tuple[Ragged, Ragged]:
    """Replace some rows by texts, and append the remaining texts."""
    count = len(sides[0].lengths)
    source, target = (
        Ragged.of(tokenizer.encode_batch(texts))
        for tokenizer, texts in zip(tokenizers, zip(*changed, strict=True), strict=True)
    )
    fits = np.maximum(source.lengths, target.lengths) <= longest
    fits &= np.minimum(source.lengths, target.lengths) > 2  # only start and end are left
    kept = np.ones(count, dtype=bool)
    kept[rows[fits[: len(rows)]]] = False
    return (
        _put_together(sides[0], np.flatnonzero(kept), source, np.flatnonzero(fits)),
        _put_together(sides[1], np.flatnonzero(kept), target, np.flatnonzero(fits)),
    )


def _known(pair: Pair, tokenizers: tuple[Tokenizer, Tokenizer]) -> bool:
    """Whether the vocabularies have every character of a pair."""
    try:
        for tokenizer, text in zip(tokenizers, pair, strict=True):
            tokenizer.check(text)
    except InputError:
        return False
    return True


def _texts(sides: tuple[Ragged, Ragged], rows: np.ndarray, tokenizers: tuple[Tokenizer, Tokenizer]) -> list[Pair]:
    source, target = (
        tokenizer.decode_batch([side.values[side.offsets[row] : side.offsets[row + 1]].tolist() for row in rows])
        for tokenizer, side in zip(tokenizers, sides, strict=True)
    )
    return list(zip(source, target, strict=True))


def _put_together(old: Ragged, old_rows: np.ndarray, new: Ragged, new_rows: np.ndarray) -> Ragged:
    """Return some rows of one array, then some of another."""
    return old.taken(old_rows).and_then(new.taken(new_rows))


#: Tokens before each, in the n-gram models that invent sources: the longest first, because their words are the most real.
#: Of 8,000 held-out words of CMUdict, 100,000 words by the orders 2, 3, 4 and 5 include 473, 667, 838 and 1,099.
ORDERS = (5, 4, 3, 2)
TRIED = 4  # words tried for each that is missing; a long order repeats the data


def made_up(sources: Ragged, count: int, random: Random) -> list[list[int]]:
    """Invent new sources that resemble these, by n-gram models; fewer if few are new.

    They include start and end. A teacher can answer them, so that a student learns more of what the teacher knows.
    """
    rows = [
        sources.values[first:last].tolist()
        for first, last in zip(sources.offsets[:-1], sources.offsets[1:], strict=True)
    ]
    longest, end = max(map(len, rows)), rows[0][-1]
    seen = {tuple(row) for row in rows}
    found: list[list[int]] = []
    for order in ORDERS:
        after: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for row in rows:
            for place in range(1, len(row)):
                after[tuple(row[max(0, place - order) : place])].append(row[place])
        for _ in range(TRIED * (count - len(found))):
            row = rows[0][:1]
            while row[-1] != end and len(row) < longest:
                row.append(random.choice(after[tuple(row[-order:])]))
            if row[-1] == end and len(row) > 2 and tuple(row) not in seen:
                seen.add(tuple(row))
                found.append(row)
                if len(found) == count:
                    return found
    return found
