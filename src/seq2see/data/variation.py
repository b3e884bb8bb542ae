"""Data augmentation: the pairs of an epoch are changed by a function of the caller, chained, given new
stems, and some of their symbols are put into slots.

It depends only on the seed and the epoch, so a resumed run sees what an uninterrupted one sees.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from random import Random

import numpy as np

from seq2see.config import TrainingConfig
from seq2see.data.batching import Ragged
from seq2see.errors import UserError
from seq2see.tokenizers.folding import slots_of
from seq2see.tokenizers.tokenizer import Tokenizer

Pair = tuple[str, str]
#: Returns the pairs of an epoch, changed, in order, and perhaps more of them. It draws from the given generator alone.
Vary = Callable[[list[Pair], Random], Sequence[Pair]]

#: A copied word stands in so many of the sources of its targets, and in so many of the targets of its sources.
FROM_SOURCE, TO_TARGET = 0.9, 0.7
COUNTED = 300_000  # pairs in which copied words are counted, at most
OFTEN = 50  # pairs of a word from which it is learned as it is
MADE_OF_TWO = 0.5  # share of the exchanged words that are made of two others
_WORD = re.compile(r"\w{2,}")
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


class Copies:
    """Words that targets copy from their sources, such as names and numbers; ``exchanged`` puts others in their place.

    So a model learns to copy any word. A word that is seen often is learned without that, and stays.
    """

    def __init__(self, pairs: Sequence[Pair]) -> None:
        seen, written, copied = Counter[str](), Counter[str](), Counter[str]()
        cut = [({*_WORD.findall(source.lower())}, {*_WORD.findall(target.lower())}) for source, target in pairs]
        for read, wrote in cut:
            seen.update(read)
            written.update(wrote)
            copied.update(read & wrote)
        self.words = {
            word
            for word, count in copied.items()
            if count < OFTEN and count >= FROM_SOURCE * written[word] and count >= TO_TARGET * seen[word]
        }
        self.alike: dict[tuple[bool, bool, int], list[str]] = defaultdict(list)
        for word in sorted(self.words):
            self.alike[self._form(word)].append(word)
        #: The share of the pairs that have such a word.
        self.share = sum(bool(read & wrote & self.words) for read, wrote in cut) / max(1, len(cut))

    @staticmethod
    def _form(word: str) -> tuple[bool, bool, int]:
        """Return what words have in common that stand for each other; numbers have the same number of digits."""
        return word.isalpha(), word.isdigit(), len(word) if word.isdigit() else 0

    def _other(self, word: str, random: Random) -> str:
        """Return another such word, or the first half of one with the second half of another."""
        one, other = (random.choice(self.alike[self._form(word)]) for _ in range(2))
        return one[: len(one) // 2] + other[len(other) // 2 :] if random.random() < MADE_OF_TWO else one

    def exchanged(self, pair: Pair, random: Random) -> Pair:
        """Replace the copied words of a pair, on both sides alike; each keeps its capitals."""
        read, wrote = ({*_WORD.findall(text.lower())} for text in pair)
        others = {word: self._other(word, random) for word in sorted(read & wrote & self.words)}

        def replaced(found: re.Match[str]) -> str:
            new = others.get(found[0].lower())
            if new is None:
                return found[0]
            return new.upper() if found[0].isupper() else new.capitalize() if found[0].istitle() else new

        source, target = (_WORD.sub(replaced, text) for text in pair)
        return source, target


def copied_share(pairs: Sequence[Pair]) -> float:
    """Return the share of the pairs whose target copies a rare word; of very many pairs it is not counted, and 0."""
    return Copies(pairs).share if len(pairs) <= COUNTED else 0.0


def swapped(
    sides: tuple[Ragged, Ragged],
    tokenizers: tuple[Tokenizer, Tokenizer],
    copies: Copies,
    share: float,
    drawn: np.random.Generator,
    longest: int,
) -> tuple[Ragged, Ragged]:
    """Exchange the copied words of some pairs."""
    random = Random(int(drawn.integers(2**62)))
    rows = np.flatnonzero(drawn.random(len(sides[0].lengths)) < share)
    before = _texts(sides, rows, tokenizers)
    after = [copies.exchanged(pair, random) for pair in before]
    kept = [
        number
        for number, (old, new) in enumerate(zip(before, after, strict=True))
        if old != new and _known(new, tokenizers)
    ]
    return _changed(sides, tokenizers, rows[kept], [after[one] for one in kept], longest) if kept else sides


def in_slots(
    sides: tuple[Ragged, Ragged], tokenizers: tuple[Tokenizer, Tokenizer], share: float, drawn: np.random.Generator
) -> tuple[Ragged, Ragged]:
    """Put symbols of some sources into slots, in their targets too, as symbols are that were never seen.

    The rarer a symbol, the more often it is chosen. A pair has one slot, or with the same ``share`` one more, and so on.
    """
    slots = [slots_of(tokenizer) for tokenizer in tokenizers]
    if share == 0 or not slots[0] or slots[0] != slots[1]:
        return sides
    known = [tokenizer.letters or {} for tokenizer in tokenizers]
    same = np.full(tokenizers[0].size, -1)  # the target's id of each source symbol
    for name, number in known[0].items():
        same[number] = known[1].get(name, -1)
    source, target = (Ragged(side.values.copy(), side.offsets, side.places) for side in sides)
    held = [np.array([one[slot] for slot in slots[0]]) for one in known]
    fixed = [tokenizers[0].start, tokenizers[0].end, tokenizers[0].pad, *held[0]]
    rarity = -np.log(np.maximum(1, np.bincount(source.values, minlength=tokenizers[0].size)))
    rarity[fixed] = -np.inf
    rows = np.flatnonzero(drawn.random(len(source.lengths)) < share)
    while len(rows):
        slot = drawn.integers(0, len(held[0]), len(rows))
        for row, number in zip(rows, slot, strict=True):
            read = source.values[source.offsets[row] : source.offsets[row + 1]]
            written = target.values[target.offsets[row] : target.offsets[row + 1]]
            weights = rarity[read] + drawn.gumbel(size=len(read))
            one = read[weights.argmax()]
            if weights.max() > -np.inf and not (read == held[0][number]).any():
                read[read == one] = held[0][number]
                if same[one] >= 0:
                    written[written == same[one]] = held[1][number]
        rows = rows[drawn.random(len(rows)) < share]
    return source, target


def varied(
    sides: tuple[Ragged, Ragged],
    tokenizers: tuple[Tokenizer, Tokenizer],
    settings: TrainingConfig,
    number: int,
    longest: int,
    vary: Vary | None = None,
    copies: Copies | None = None,
) -> tuple[Ragged, Ragged]:
    """Return pairs of ids, some of them changed, followed by new and by chained ones.

    ``number`` is the number of the epoch, or of its part if it has several: each has other random changes. A result
    longer than ``longest`` is dropped, and the pair stays as it was.
    """
    drawn = np.random.default_rng([settings.seed, number, 2])
    random = Random(int(drawn.integers(2**62)))
    found = sides if vary is None else _by(vary, sides, tokenizers, random, longest)
    if settings.swapped and copies is not None:
        found = swapped(found, tokenizers, copies, settings.swapped, drawn, longest)
    if settings.invented:
        found = invented(found, settings.invented, drawn)
    if settings.chained:
        pairs = chained(found, int(settings.chained * len(sides[0].lengths)), longest, drawn)
        found = found[0].and_then(pairs[0]), found[1].and_then(pairs[1])
    return in_slots(found, tokenizers, settings.unseen, drawn)


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
    old, new = np.flatnonzero(kept), np.flatnonzero(fits)
    return sides[0].taken(old).and_then(source.taken(new)), sides[1].taken(old).and_then(target.taken(new))


def _known(pair: Pair, tokenizers: tuple[Tokenizer, Tokenizer]) -> bool:
    """Whether the vocabularies have every character of a pair."""
    return all(tokenizer.knows(text) for tokenizer, text in zip(tokenizers, pair, strict=True))


def _texts(sides: tuple[Ragged, Ragged], rows: np.ndarray, tokenizers: tuple[Tokenizer, Tokenizer]) -> list[Pair]:
    source, target = (
        tokenizer.decode_batch([side.values[side.offsets[row] : side.offsets[row + 1]].tolist() for row in rows])
        for tokenizer, side in zip(tokenizers, sides, strict=True)
    )
    return list(zip(source, target, strict=True))


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
