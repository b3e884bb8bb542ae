"""Batches of about equal numbers of tokens, in an order that depends on the seed and the step alone (section 5.1).

They are padded, or packed: sentences end to end, kept apart by masks, in batches of one size, so that a step is compiled
only once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from seq2see.data.pairs import Pair
from seq2see.errors import UserError
from seq2see.kernels.shared import PackedMask, PackedMasks, Spans
from seq2see.model.masks import EVERYTHING, Mask
from seq2see.tokenizers.tokenizer import Tokenizer

TEXTS_AT_ONCE = 20_000


class Ragged:
    """Rows of ids of different lengths, end to end in one array."""

    def __init__(self, values: np.ndarray, offsets: np.ndarray, places: np.ndarray | None = None) -> None:
        self.values = values
        self.offsets = offsets  # row n is values[offsets[n] : offsets[n + 1]]
        #: of a target: the position of the source token that each id belongs to; -1: unknown
        self.places = places

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> Ragged:
        """Gather rows of ids."""
        offsets = np.cumsum([0, *map(len, rows)])
        values = np.fromiter(chain.from_iterable(rows), dtype=np.int32, count=int(offsets[-1]))
        return cls(values, offsets)

    @classmethod
    def cut(cls, tokenizer: Tokenizer, texts: Sequence[str]) -> Ragged:
        """Turn texts into ids, some at a time: Python lists take ten times the memory."""
        parts = [
            cls.of(tokenizer.encode_batch(texts[first : first + TEXTS_AT_ONCE]))
            for first in range(0, len(texts), TEXTS_AT_ONCE)
        ]
        lengths = [part.lengths for part in parts]
        offsets = np.cumsum(np.concatenate([[0], *lengths]), dtype=np.int64)
        return cls(np.concatenate([np.zeros(0, np.int32), *(part.values for part in parts)]), offsets)

    @property
    def lengths(self) -> np.ndarray:
        """The length of each row."""
        return np.diff(self.offsets)

    def taken(self, rows: np.ndarray) -> Ragged:
        """Return some rows, in this order."""
        lengths = self.lengths[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        where = np.arange(offsets[-1]) - np.repeat(offsets[:-1] - self.offsets[rows], lengths)
        return Ragged(self.values[where], offsets, None if self.places is None else self.places[where])

    def and_then(self, other: Ragged) -> Ragged:
        """Return all rows of this object, then all of the other."""
        offsets = np.concatenate([self.offsets, self.offsets[-1] + other.offsets[1:]])
        places = None
        if self.places is not None or other.places is not None:
            places = np.concatenate([self.known_places, other.known_places])
        return Ragged(np.concatenate([self.values, other.values]), offsets, places)

    @property
    def known_places(self) -> np.ndarray:
        """The places; -1 for each id if there are none."""
        return np.full(len(self.values), -1, dtype=np.int32) if self.places is None else self.places

    def padded(self, rows: np.ndarray, pad: int) -> tuple[np.ndarray, np.ndarray]:
        """Return some rows padded to (B, longest), and a mask of the real tokens."""
        starts, lengths = self.offsets[rows], self.offsets[rows + 1] - self.offsets[rows]
        columns = np.arange(lengths.max())
        real = columns < lengths[:, None]  # (B, longest)
        taken = self.values[np.where(real, starts[:, None] + columns, 0)]
        return np.where(real, taken, pad), real


@dataclass(frozen=True)
class Encoded:
    """The pairs within a limit of length, with their ids."""

    pairs: list[Pair]
    ids: tuple[Ragged, Ragged]  # of the sources, of the targets
    dropped: list[Pair]  # the longer pairs

    @classmethod
    def within(cls, tokenizers: tuple[Tokenizer, Tokenizer], pairs: Sequence[Pair], limit: int) -> Encoded:
        """Turn pairs into ids, and leave out those with more tokens than the limit."""
        source, target = (
            Ragged.cut(tokenizer, [pair[side] for pair in pairs]) for side, tokenizer in enumerate(tokenizers)
        )
        fits = np.maximum(source.lengths, target.lengths) <= limit
        if fits.all():
            return cls(list(pairs), (source, target), [])
        rows = np.flatnonzero(fits)
        kept = [pairs[row] for row in rows.tolist()]
        dropped = [pairs[row] for row in np.flatnonzero(~fits).tolist()]
        return cls(kept, (source.taken(rows), target.taken(rows)), dropped)

    @property
    def longest(self) -> int:
        """The number of tokens of the longest text that was kept."""
        return int(max(side.lengths.max(initial=0) for side in self.ids))


@dataclass(frozen=True)
class Batch:
    """The inputs and expected outputs of the model: source (B, S), target_in and target_out (B, T)."""

    source: Tensor
    target_in: Tensor
    target_out: Tensor
    source_mask: Mask
    tokens: int  # real tokens in target_out
    #: (B, T): the source token that each token of target_out belongs to; -1: unknown
    places: Tensor | None = None

    @classmethod
    def of(cls, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], pads: tuple[int, int]) -> Batch:
        """Pad some pairs of ids into a batch, in order."""
        return Batches(Ragged.of(sources), Ragged.of(targets), pads, batch_tokens=10**12, seed=0).everything()

    def twice(self) -> Batch:
        """Return the same sentences twice in one batch."""
        keys = self.source_mask.keys
        mask = self.source_mask if keys is None else Mask(keys=keys.repeat(2, 1))
        source, target_in, target_out = (x.repeat(2, 1) for x in (self.source, self.target_in, self.target_out))
        places = None if self.places is None else self.places.repeat(2, 1)
        return Batch(source, target_in, target_out, mask, 2 * self.tokens, places)

    def turned(self, pad: int) -> Batch:
        """Return the same sentences from right to left; start, end and padding stay where they are."""
        keys = self.source_mask.keys
        width = self.source.new_full((len(self.source), 1), self.source.shape[1])
        end = width if keys is None else keys.sum(-1, keepdim=True)
        source = turns(torch.ones_like(end), end - 1, self.source.shape[1])
        end = (self.target_out != pad).sum(-1, keepdim=True)
        first, length = torch.zeros_like(end), self.target_out.shape[1]
        target_in, target_out = turns(first + 1, end, length), turns(first, end - 1, length)
        places = self.places
        if places is not None:
            moved = source.gather(1, places.gather(1, target_out).clamp(min=0))
            places = moved.masked_fill(places.gather(1, target_out) < 0, -1)
        return replace(
            self,
            source=self.source.gather(1, source),
            target_in=self.target_in.gather(1, target_in),
            target_out=self.target_out.gather(1, target_out),
            places=places,
        )

    def to(self, device: torch.device) -> Batch:
        """Move to a device."""
        mask = self.source_mask
        if mask.keys is not None:
            mask = Mask(keys=mask.keys.to(device, non_blocking=True))
        source, target_in, target_out = (
            x.to(device, non_blocking=True) for x in (self.source, self.target_in, self.target_out)
        )
        places = None if self.places is None else self.places.to(device, non_blocking=True)
        return Batch(source, target_in, target_out, mask, self.tokens, places)


def turns(first: Tensor, end: Tensor, size: int) -> Tensor:
    """Return where each of ``size`` ids comes from if those from ``first`` to ``end`` (…, 1 or T) are turned, (…, T)."""
    here = torch.arange(size, device=first.device)
    return torch.where((here >= first) & (here < end), first + end - 1 - here, here)


class Batches:
    """All batches of a corpus, epoch after epoch; ``at(step)`` is a pure function, so a run resumes exactly."""

    def __init__(self, source: Ragged, target: Ragged, pads: tuple[int, int], batch_tokens: int, seed: int) -> None:
        self.source, self.target, self.pads, self.seed = source, target, pads, seed
        self.longest = np.maximum(source.lengths, target.lengths)
        # Sorting by length saves padding, but groups similar texts. If it saves little, mixed batches train
        # better.
        self.sorted = bool(self.longest.mean() < 0.8 * self.longest.max())
        keys = np.sort(self.longest) if self.sorted else np.full(len(self.longest), self.longest.max())
        self.cuts = _cuts(keys, batch_tokens)
        self._epoch = -1
        self._order: list[np.ndarray] = []

    @property
    def per_epoch(self) -> int:
        """The number of batches in which every pair occurs once."""
        return len(self.cuts) + 1

    def at(self, step: int) -> Batch:
        """Return the batch of a step, counted from 0."""
        epoch, index = divmod(step, self.per_epoch)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, self.order(epoch)
        return self.batch(self._order[index])

    def order(self, epoch: int) -> list[np.ndarray]:
        """Return the rows of each batch of an epoch."""
        random = np.random.default_rng([self.seed, epoch])
        order = random.permutation(len(self.longest))
        if self.sorted:
            order = order[np.lexsort((self.source.lengths[order], self.longest[order]))]
        batches = np.split(order, self.cuts)
        return [batches[i] for i in random.permutation(len(batches))]

    def largest(self, step: int) -> Batch:
        """Return the batch with most tokens, padding included, of a step's epoch."""
        order = self.order(step // self.per_epoch)
        rows, starts = np.concatenate(order), np.cumsum([0, *map(len, order[:-1])])
        widths = sum(np.maximum.reduceat(side.lengths[rows], starts) for side in (self.source, self.target))
        return self.batch(order[int(np.argmax(widths * [len(one) for one in order]))])

    def everything(self) -> Batch:
        """Return all pairs, in order, as one batch."""
        return self.batch(np.arange(len(self.longest)))

    def batch(self, rows: np.ndarray) -> Batch:
        """Pad some pairs into a batch."""
        source, real = self.source.padded(rows, self.pads[0])
        target, target_real = self.target.padded(rows, self.pads[1])
        ids = torch.from_numpy(target).long()
        places = None
        if self.target.places is not None:
            of_target, _ = Ragged(self.target.places, self.target.offsets).padded(rows, -1)
            places = torch.from_numpy(of_target[:, 1:]).long()
        return Batch(
            source=torch.from_numpy(source).long(),
            target_in=ids[:, :-1],
            target_out=ids[:, 1:],
            source_mask=EVERYTHING if real.all() else Mask(keys=torch.from_numpy(real)),
            tokens=int(target_real[:, 1:].sum()),
            places=places,
        )


def _cuts(lengths: np.ndarray, batch_tokens: int) -> np.ndarray:
    """Split a list of non-decreasing lengths where count × longest would exceed the budget."""
    cuts, first = [], 0
    for index, length in enumerate(lengths.tolist()):
        if index > first and (index + 1 - first) * length > batch_tokens:
            cuts.append(index)
            first = index
    return np.array(cuts, dtype=int)


# --- packed batches ---------------------------------------------------------------------------------------------------


BLOCK = 128  # a side of a batch is a multiple of this, for fast products on a GPU


@dataclass(frozen=True)
class PackedBatch:
    """Many sentences end to end in one tensor, so that one copy brings them to the device.

    It has ids, places and sentence numbers of the source, then input ids, output ids, the source tokens that
    these belong to (-1: unknown), places and sentence numbers of the target.
    """

    rows: Tensor  # (3·S + 5·T,)
    size: int  # S
    tokens: int  # real tokens in target_out

    @property
    def source_rows(self) -> Tensor:
        """Ids, places and sentence numbers, (3, S)."""
        return self.rows[: 3 * self.size].view(3, -1)

    @property
    def target_rows(self) -> Tensor:
        """Input ids, output ids, where they belong in the source, places and sentence numbers, (5, T)."""
        return self.rows[3 * self.size :].view(5, -1)

    @property
    def source(self) -> Tensor:
        """Input ids of the encoder, (S,)."""
        return self.source_rows[0]

    @property
    def target_in(self) -> Tensor:
        """Input ids of the decoder, (T,)."""
        return self.target_rows[0]

    @property
    def target_out(self) -> Tensor:
        """Expected output ids, (T,)."""
        return self.target_rows[1]

    @property
    def places(self) -> Tensor:
        """The source token, of the whole batch, that each output belongs to, (T,); -1: unknown."""
        return self.target_rows[2]

    def twice(self) -> PackedBatch:
        """Return the same sentences twice in one batch, with different sentence numbers."""
        source, target = self.source_rows.repeat(1, 2), self.target_rows.repeat(1, 2)  # (3, 2·S), (5, 2·T)
        for side in (source, target):
            half = side.shape[1] // 2
            side[-1, half:] += side[-1, half - 1] + 1
        second = target[2, target.shape[1] // 2 :]
        second += self.size * (second >= 0)
        return PackedBatch(torch.cat([source.flatten(), target.flatten()]), 2 * self.size, 2 * self.tokens)

    def turned(self) -> PackedBatch:
        """Return the same sentences from right to left; start and end of each stay where they are.

        Places and sentence numbers stay, and so do the masks.
        """
        (read, *of_source), (told, right, belongs, *of_target) = self.source_rows, self.target_rows
        (first, end), (first_out, end_out) = (_found(side[-1], side[-1]) for side in (of_source, of_target))
        source = turns(first + 1, end - 1, len(read))
        target_in, target_out = (turns(first_out + 1, end_out, len(told)), turns(first_out, end_out - 1, len(told)))
        belongs = belongs[target_out]
        moved = torch.where(belongs < 0, -1, source[belongs.clamp(min=0)])
        laid = [read[source], *of_source, told[target_in], right[target_out], moved, *of_target]
        return PackedBatch(torch.cat(laid), self.size, self.tokens)

    def to(self, device: torch.device) -> PackedBatch:
        """Move to a device."""
        return PackedBatch(self.rows.to(device, non_blocking=True), self.size, self.tokens)

    def masks(self) -> PackedMasks:
        """Return the masks that keep the sentences apart; on a GPU with what its kernel needs."""
        (_, source_place, source), (_, _, _, target_place, target) = self.source_rows, self.target_rows
        return PackedMasks(
            source=_mask(source, source),
            target=_mask(target, target, causal=True),
            cross=_mask(target, source),
            source_place=source_place,
            target_place=target_place,
        )


def _mask(of_query: Tensor, of_key: Tensor, causal: bool = False) -> PackedMask:
    spans = spans_of(of_query, of_key, causal) if of_query.is_cuda else None
    return PackedMask(causal=causal, sentences=(of_query, of_key), spans=spans)


def spans_of(of_query: Tensor, of_key: Tensor, causal: bool) -> Spans:
    """Return which keys each query sees, and which queries see each key."""
    first_key, end_key = _found(of_query, of_key)
    first_query, end_query = (first_key, end_key) if of_query is of_key else _found(of_key, of_query)
    if causal:
        first_query = torch.arange(len(of_key), dtype=torch.int32, device=of_key.device)
        end_key = first_query + 1
    return Spans(first_key, end_key, first_query, end_query)


def _found(sought: Tensor, among: Tensor) -> tuple[Tensor, Tensor]:
    """Return where each sentence begins, and the place after its end."""
    return (
        torch.searchsorted(among, sought, out_int32=True),
        torch.searchsorted(among, sought, out_int32=True, right=True),
    )


def sizes_of(source: Ragged, target: Ragged, batch_tokens: int, longest: int) -> tuple[int, int]:
    """Return the sizes of both sides in proportion to their tokens: the longer side has ``batch_tokens``.

    So neither side ends in long padding. A text of ``longest`` tokens fits on either side.
    """
    totals = np.array([source.lengths.sum(), (target.lengths - 1).sum()], dtype=float)
    shares = np.maximum(batch_tokens * totals / totals.max(), longest + 1)
    blocks = np.minimum(np.ceil(shares / BLOCK), batch_tokens // BLOCK).astype(int)
    return int(blocks[0]) * BLOCK, int(blocks[1]) * BLOCK


class PackedBatches:
    """All packed batches of a corpus, epoch after epoch; ``at(step)`` is a pure function of the seed and the step."""

    def __init__(
        self,
        source: Ragged,
        target: Ragged,
        pads: tuple[int, int],
        batch_tokens: int,
        seed: int,
        sizes: tuple[int, int] | None = None,
    ) -> None:
        self.source, self.target, self.pads, self.seed = source, target, pads, seed
        self.lengths = np.stack([source.lengths, target.lengths - 1])  # tokens of each pair on both sides
        if self.lengths.max() >= batch_tokens:
            raise UserError(
                f"The longest text has {self.lengths.max():,} tokens, but training.batch_tokens is {batch_tokens:,}: "
                "set it higher."
            )
        if batch_tokens % BLOCK:
            raise UserError(f"training.batch_tokens is {batch_tokens:,}: packed batches need a multiple of {BLOCK}.")
        self.sizes = sizes or sizes_of(source, target, batch_tokens, int(self.lengths.max()))
        self._first = [0]  # the first step of each epoch
        self._epoch = -1
        self._batches: list[np.ndarray] = []

    @property
    def per_epoch(self) -> int:
        """About how many batches hold every pair once."""
        return max(1, int(np.ceil((self.lengths.sum(1) / (np.array(self.sizes) - 1)).max())))

    def at(self, step: int) -> PackedBatch:
        """Return the batch of a step, counted from 0."""
        while self._first[-1] <= step:  # the number of batches of an epoch depends on its order
            self._first.append(self._first[-1] + len(self.order(len(self._first) - 1)))
        epoch = int(np.searchsorted(self._first, step, side="right")) - 1
        if epoch != self._epoch:
            self._epoch, self._batches = epoch, self.order(epoch)
        return self.batch(self._batches[step - self._first[epoch]])

    def largest(self, step: int) -> PackedBatch:
        """Return the batch of a step: all have the same size."""
        return self.at(step)

    def order(self, epoch: int) -> list[np.ndarray]:
        """Return the rows of each batch of an epoch."""
        order = np.random.default_rng([self.seed, epoch]).permutation(self.lengths.shape[1])
        ends = np.cumsum(self.lengths[:, order], axis=1)
        cuts, first = [], 0
        while first < len(order):
            before = ends[:, first] - self.lengths[:, order[first]]
            # one token stays free on either side, for the padding
            first = min(
                int(np.searchsorted(ends[side], before[side] + self.sizes[side] - 1, side="right")) for side in (0, 1)
            )
            cuts.append(first)
        return np.split(order, cuts[:-1])

    def batch(self, rows: np.ndarray) -> PackedBatch:
        """Lay some pairs end to end, and fill the rest with padding, as one more sentence."""
        number, place, (read,) = self._laid(self.source, rows, 0, shifts=(0,))
        of_target, target_place, (told, right) = self._laid(self.target, rows, 1, shifts=(0, 1))
        belongs = np.full(self.sizes[1], -1, dtype=np.int64)
        if self.target.places is not None:
            known = Ragged(self.target.places, self.target.offsets)
            _, _, (found,) = self._laid(known, rows, 1, shifts=(1,))
            used = int(self.lengths[1, rows].sum())
            begins = np.cumsum(self.lengths[0, rows]) - self.lengths[0, rows]
            absolute = found[:used] + np.repeat(begins, self.lengths[1, rows])
            belongs[:used] = np.where(found[:used] >= 0, absolute, -1)
        laid = np.concatenate([read, place, number, told, right, belongs, target_place, of_target])
        return PackedBatch(torch.from_numpy(laid), self.sizes[0], int(self.lengths[1, rows].sum()))

    def _laid(
        self, ragged: Ragged, rows: np.ndarray, side: int, shifts: tuple[int, ...]
    ) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
        """Return sentence numbers, places, and the ids read from each shift on, each (size,)."""
        size, pad = self.sizes[side], self.pads[side]
        lengths = self.lengths[side, rows]
        ends = np.cumsum(lengths)
        used = int(ends[-1])
        sentence = np.full(size, len(rows))
        sentence[:used] = np.repeat(np.arange(len(rows)), lengths)
        place = np.zeros(size, dtype=np.int64)
        place[:used] = np.arange(used) - np.repeat(ends - lengths, lengths)
        where = np.repeat(ragged.offsets[rows], lengths) + place[:used]
        ids = np.full((len(shifts), size), pad, dtype=np.int64)
        for row, shift in zip(ids, shifts, strict=True):
            row[:used] = ragged.values[where + shift]
        return sentence, place, list(ids)
