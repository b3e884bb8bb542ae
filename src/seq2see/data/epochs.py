"""The pairs of a training as ids, and their batches, epoch after epoch: words cut anew, pairs changed and joined."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import numpy as np

from seq2see.config import Config, TrainingConfig
from seq2see.data.batching import Batch, Batches, PackedBatch, PackedBatches, Ragged, sizes_of
from seq2see.data.pairs import Pair
from seq2see.data.places import with_copies, with_places
from seq2see.data.shards import Shards
from seq2see.data.variation import Copies, Vary, varied
from seq2see.errors import UserError
from seq2see.tokenizers.folding import slots_of
from seq2see.tokenizers.tokenizer import Tokenizer

WAYS = 16  # ways to split each distinct word; every occurrence takes a random one in each epoch
WORDS_AT_ONCE = 4000  # words that are cut together
NEVER = np.iinfo(np.int64).max


def cut_words(
    words: Sequence[str], tokenizer: Tokenizer, dropout: float, random: np.random.Generator, ways: int = 1
) -> Ragged:
    """Split words as BPE does, best merge first, but skip each possible merge with probability ``dropout``.

    All words are split ``ways`` times, one round after the other. Words sorted by length are fastest.
    """
    if tokenizer.kind != "bpe":
        raise UserError(
            f"training.bpe_dropout leaves out merges of BPE, but the tokenizer is {tokenizer.kind!r}: set it to 0."
        )
    merges = np.array(tokenizer.merges(), dtype=np.int64).reshape(-1, 3)
    pairs = merges[:, 0] * tokenizer.size + merges[:, 1]
    ranks = np.argsort(pairs)
    table = pairs[ranks], merges[ranks, 2], ranks
    parts = tokenizer.parts_of(words)
    cut = [
        _cut(_padded(parts[first : first + WORDS_AT_ONCE]), table, tokenizer.size, dropout, random)
        for _ in range(ways)
        for first in range(0, len(parts), WORDS_AT_ONCE)
    ]
    lengths = np.concatenate([[0], *((ids >= 0).sum(1) for ids in cut)])
    return Ragged(np.concatenate([ids[ids >= 0] for ids in cut]).astype(np.int32), np.cumsum(lengths))


def _padded(rows: list[list[int]]) -> np.ndarray:
    """Return rows of ids as one array, with at least one -1 after each."""
    ids = np.full((len(rows), 1 + max(map(len, rows))), -1, dtype=np.int64)
    for row, parts in zip(ids, rows, strict=True):
        row[: len(parts)] = parts
    return ids


def _cut(
    ids: np.ndarray,
    table: tuple[np.ndarray, np.ndarray, np.ndarray],
    size: int,
    dropout: float,
    random: np.random.Generator,
) -> np.ndarray:
    """Merge all rows at once, one merge per row and round; ``table`` has the pairs, their merged ids and their ranks."""
    pairs, merged, ranks = table
    open_ = np.arange(len(ids))
    while len(open_) and len(pairs):
        x = ids[open_]
        keys = np.where(x[:, 1:] >= 0, x[:, :-1] * size + x[:, 1:], -1)
        place = np.minimum(np.searchsorted(pairs, keys), len(pairs) - 1)
        possible = pairs[place] == keys
        if dropout:
            possible &= random.random(keys.shape) >= dropout
        rank = np.where(possible, ranks[place], NEVER)
        best = rank.argmin(1)  # the left-most of the best, as the library does
        here = np.flatnonzero(rank[np.arange(len(x)), best] < NEVER)
        open_, x, best, whole = open_[here], x[here], best[here], merged[place[here, best[here]]]
        columns = np.arange(x.shape[1] - 1)
        x[:, :-1] = np.take_along_axis(x, columns + (columns > best[:, None]), axis=1)
        x[np.arange(len(x)), best] = whole
        ids[open_] = x
    return ids


class Side:
    """One side of a corpus as words, each with several splits; the first split is the usual one."""

    def __init__(self, texts: Sequence[str], tokenizer: Tokenizer, dropout: float, seed: int, longest: int) -> None:
        self.tokenizer, self.longest = tokenizer, longest
        sentences = [tokenizer.words_of(text) for text in texts]
        words = sorted({word for sentence in sentences for word in sentence}, key=lambda word: (len(word), word))
        numbers = {word: number for number, word in enumerate(words)}
        self.words = Ragged.of([[numbers[word] for word in sentence] for sentence in sentences])
        usual = cut_words(words, tokenizer, 0.0, np.random.default_rng(seed))
        others = cut_words(words, tokenizer, dropout, np.random.default_rng([seed, 1]), WAYS)
        self.kinds = len(words)
        self.ways = Ragged(
            np.concatenate([usual.values, others.values]),
            np.concatenate([usual.offsets, usual.offsets[-1] + others.offsets[1:]]),
        )
        self.lengths = self.ways.lengths

    def at(self, random: np.random.Generator) -> Ragged:
        """Draw a split for every word; a sentence that would become too long is split as usual."""
        way = random.integers(1, WAYS + 1, len(self.words.values))
        lengths = self.lengths[self.words.values + way * self.kinds]
        first = self.words.offsets
        of_sentence = np.diff(np.concatenate([[0], np.cumsum(lengths)])[first])
        way[np.repeat(of_sentence + 2 > self.longest, self.words.lengths)] = 0

        cut = self.ways.taken(self.words.values + way * self.kinds)
        offsets = cut.offsets[first] + 2 * np.arange(len(first))  # <sos> and <eos> go around each sentence
        values = np.empty(offsets[-1], dtype=np.int32)
        inside = np.ones(len(values), dtype=bool)
        inside[offsets[:-1]] = inside[offsets[1:] - 1] = False
        values[inside] = cut.values
        values[offsets[:-1]], values[offsets[1:] - 1] = self.tokenizer.start, self.tokenizer.end
        return Ragged(values, offsets)


# --- BPE-dropout: words are split differently in each epoch (Provilkov et al., 2020) ----------------------------------


Sides = tuple[Ragged, Ragged]
#: Pairs that are varied at a time. The first step waits only for these; the others are varied in the background.
VARIED_AT_ONCE = 100_000


class TrainingPairs:
    """The pairs of a training as ids; ``batches`` arranges them, so that a batch depends on settings and step alone."""

    def __init__(
        self,
        config: Config,
        tokenizers: tuple[Tokenizer, Tokenizer],
        pairs: Sequence[Pair] | Shards,
        ids: Sides | None = None,
        vary: Vary | None = None,
    ) -> None:
        """Check that the model can take the pairs; ``ids`` are theirs, if they are cut already."""
        settings, self.most = config.training, config.model.max_length
        self.tokenizers, self.vary = tokenizers, vary
        if config.model.backward and any((len(one.before), len(one.after)) != (1, 1) for one in tokenizers):
            raise UserError(
                "model.backward turns texts between their start and end tokens, but this tokenizer has others: set it "
                "to 0."
            )
        on_disk = isinstance(pairs, Shards)
        if on_disk and settings.bpe_dropout:
            raise UserError(
                "training.bpe_dropout splits the texts differently in each epoch, but this corpus is on disk as ids: "
                "set it to 0."
            )
        if isinstance(pairs, Shards):
            source, target = pairs.source, pairs.target
        else:
            texts = [[pair[side] for pair in pairs] for side in (0, 1)]
            source, target = ids or (Ragged.cut(tokenizers[0], texts[0]), Ragged.cut(tokenizers[1], texts[1]))
        for side, rows in (("source", source), ("target", target)):
            if rows.lengths.max() > self.most:
                raise UserError(
                    f"The longest {side} text has {rows.lengths.max():,} tokens, but model.max_length is "
                    f"{self.most:,}: set it higher, or leave such texts out."
                )
        self.digest = pairs.digest if isinstance(pairs, Shards) else _digest(source, target)
        if settings.invented:
            target = with_copies(source, target, (tokenizers[0].vocabulary(), tokenizers[1].vocabulary()))
        elif settings.guided or settings.guided_memory:
            target = with_places(source, target)
        self.sides = source, target
        self.recut = [
            Side(part, tokenizer, settings.bpe_dropout, settings.seed, self._fitting(settings))
            for part, tokenizer in zip([] if on_disk else texts, tokenizers, strict=False)
            if settings.bpe_dropout
        ]
        #: of the words that are exchanged in each epoch
        self.copies = Copies(pairs) if settings.swapped and not isinstance(pairs, Shards) else None

    @property
    def are_aligned(self) -> bool:
        """Whether it is known to which source token each target token belongs."""
        return self.sides[1].places is not None

    def _fitting(self, settings: TrainingConfig) -> int:
        """Return the most tokens of a text after pairs are changed, joined or split differently."""
        return min(self.most, settings.batch_tokens - 1)

    def longest(self, settings: TrainingConfig) -> int:
        """Return the tokens of the longest text that is trained on."""
        if settings.bpe_dropout or settings.chained or self.copies or self.vary:
            return self._fitting(settings)
        return int(max(side.lengths.max() for side in self.sides))

    def batches(self, settings: TrainingConfig) -> Batches | PackedBatches | FreshBatches:
        """Arrange the pairs by these settings."""
        count, both = len(self.sides[0].lengths), self.tokenizers
        pads = both[0].pad, both[1].pad
        # One size for the whole run, since a step is compiled for it.
        sizes = sizes_of(*self.sides, settings.batch_tokens, self._fitting(settings))

        def arranged(source: Ragged, target: Ragged) -> Batches | PackedBatches:
            if settings.layout == "padded":
                return Batches(source, target, pads, settings.batch_tokens, settings.seed)
            return PackedBatches(source, target, pads, settings.batch_tokens, settings.seed, sizes)

        slots = settings.unseen and slots_of(both[0]) and slots_of(both[1])
        if not (settings.bpe_dropout or settings.chained or settings.invented or self.copies or slots or self.vary):
            return arranged(*self.sides)
        parts = 1 if self.recut else -(-count // VARIED_AT_ONCE)
        return FreshBatches(partial(self._part, settings, parts), arranged, parts)

    def _part(self, settings: TrainingConfig, parts: int, number: int) -> Sides:
        """Return the pairs of a part of an epoch: some are changed, and others are joined.

        With BPE-dropout an epoch has one part, and its words are split first.
        """
        source, target = self.sides
        if self.recut:
            source, target = (
                side.at(np.random.default_rng([settings.seed, number, place])) for place, side in enumerate(self.recut)
            )
        elif parts > 1:
            epoch, part = divmod(number, parts)
            rows = np.random.default_rng([settings.seed, epoch, 3]).permutation(len(source.lengths))[part::parts]
            source, target = source.taken(rows), target.taken(rows)
        longest = self._fitting(settings)
        return varied((source, target), self.tokenizers, settings, number, longest, self.vary, self.copies)


def _digest(source: Ragged, target: Ragged) -> str:
    arrays = (source.values, source.offsets, target.values, target.offsets)
    return hashlib.blake2b(b"".join(array.tobytes() for array in arrays), digest_size=16).hexdigest()


class FreshBatches:
    """The batches of a corpus that changes in each epoch; ``at(step)`` is still a pure function.

    An epoch has one part or several. ``make`` returns the two sides of a part, and ``arrange`` makes batches
    of them. The next part is made in the background.
    """

    def __init__(
        self, make: Callable[[int], Sides], arrange: Callable[[Ragged, Ragged], Batches | PackedBatches], parts: int = 1
    ) -> None:
        self.make, self.arrange, self.parts = make, arrange, parts
        self._first = [0]  # the first step of each part
        self._part = -1
        self._worker = ThreadPoolExecutor(1)
        self._ahead: tuple[int, Future[tuple[Batches | PackedBatches, list[np.ndarray]]]] | None = None

    @property
    def per_epoch(self) -> int:
        """About how many batches contain every pair once."""
        if len(self._first) == 1:
            self.at(0)
        return self._first[1] * self.parts

    def at(self, step: int) -> Batch | PackedBatch:
        """Return the batch of a step, counted from 0."""
        while self._first[-1] <= step:  # the number of batches of a part depends on what is drawn
            self._turn(len(self._first) - 1)
            self._first.append(self._first[-1] + len(self._order))
        part = int(np.searchsorted(self._first, step, side="right")) - 1
        self._turn(part)
        return self._batches.batch(self._order[step - self._first[part]])

    def largest(self, step: int) -> Batch | PackedBatch:
        """Return the largest batch of the part of a step."""
        self.at(step)
        return self._batches.largest(0)

    def _turn(self, part: int) -> None:
        if part == self._part:
            return
        if self._ahead is not None and self._ahead[0] == part:
            self._batches, self._order = self._ahead[1].result()
        else:
            self._batches, self._order = self._made(part)
        self._part = part
        self._ahead = (part + 1, self._worker.submit(self._made, part + 1))

    def _made(self, part: int) -> tuple[Batches | PackedBatches, list[np.ndarray]]:
        batches = self.arrange(*self.make(part))
        return batches, batches.order(part)
