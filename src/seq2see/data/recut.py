"""BPE-dropout: words are split differently in each epoch, so that a model sees the parts of rare words
(Provilkov et al., 2020).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seq2see.data.batching import Ragged
from seq2see.errors import UserError
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

        rows = self.words.values + way * self.kinds
        lengths = self.lengths[rows]
        ends = np.concatenate([[0], np.cumsum(lengths)])
        where = np.arange(ends[-1]) - np.repeat(ends[:-1] - self.ways.offsets[rows], lengths)
        offsets = ends[first] + 2 * np.arange(len(first))  # <sos> and <eos> go around each sentence
        values = np.empty(offsets[-1], dtype=np.int32)
        inside = np.ones(len(values), dtype=bool)
        inside[offsets[:-1]] = inside[offsets[1:] - 1] = False
        values[inside] = self.ways.values[where]
        values[offsets[:-1]], values[offsets[1:] - 1] = self.tokenizer.start, self.tokenizer.end
        return Ragged(values, offsets)
