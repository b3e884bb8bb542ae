"""Batches without padding: sentences end to end, kept apart by masks.

All packed batches have the same size, so a step is compiled only once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from seq2see.data.batching import Ragged, turns
from seq2see.errors import UserError
from seq2see.kernels.shared import PackedMask, PackedMasks, Spans

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
