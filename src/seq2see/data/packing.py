"""Batches without padding: sentences end to end, kept apart by masks.

A packed batch has one fixed size, whatever the sentences, so that a compiled step is compiled once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

from seq2see.data.batching import Ragged
from seq2see.errors import UserError
from seq2see.masks import Mask, PackedMasks

BLOCK = 128  # rows and columns that FlexAttention computes at a time
SMALL_BLOCK = 64  # wastes less on short sentences, but only a tuned backward kernel supports it


@dataclass(frozen=True)
class PackedBatch:
    """Many sentences end to end, as rows of one tensor, so that one copy brings them to the device.

    The rows are ids, places and sentence numbers of the source, then input ids, output ids, places and sentence
    numbers of the target.
    """

    rows: Tensor  # (7, size)
    tokens: int  # real tokens in target_out

    @property
    def source(self) -> Tensor:
        """What the encoder reads, (S,)."""
        return self.rows[0]

    @property
    def target_in(self) -> Tensor:
        """What the decoder reads, (T,)."""
        return self.rows[3]

    @property
    def target_out(self) -> Tensor:
        """What it should say, (T,)."""
        return self.rows[4]

    def twice(self) -> PackedBatch:
        """Return the same sentences twice in one batch, with sentence numbers of their own."""
        rows = self.rows.repeat(1, 2)  # (7, 2·size)
        size = self.rows.shape[1]
        rows[2, size:] += self.rows[2, -1] + 1
        rows[6, size:] += self.rows[6, -1] + 1
        return PackedBatch(rows, 2 * self.tokens)

    def to(self, device: torch.device) -> PackedBatch:
        """Move to a device."""
        return PackedBatch(self.rows.to(device, non_blocking=True), self.tokens)

    def masks(self, block: int = BLOCK) -> PackedMasks:
        """Return the masks that keep the sentences apart; on a GPU with the blocks that FlexAttention needs."""
        source, target = self.rows[2], self.rows[6]
        return PackedMasks(
            source=_mask(source, source, block),
            target=_mask(target, target, block, causal=True),
            cross=_mask(target, source, block),
            source_place=self.rows[1],
            target_place=self.rows[5],
        )


def _mask(of_query: Tensor, of_key: Tensor, block: int, causal: bool = False) -> Mask:
    blocks = blocks_of(of_query, of_key, block, causal) if of_query.is_cuda else None
    return Mask(causal=causal, sentences=(of_query, of_key), blocks=blocks)


def blocks_of(of_query: Tensor, of_key: Tensor, block: int, causal: bool) -> BlockMask:
    """Say which blocks of keys each block of queries needs; they are neighbours, because the sentences are in order."""
    count = len(of_query) // block
    numbers = torch.arange(count, device=of_query.device)
    first = torch.searchsorted(of_key, of_query[::block].contiguous()) // block  # (count,)
    last = (torch.searchsorted(of_key, of_query[block - 1 :: block].contiguous(), right=True) - 1) // block
    if causal:
        last = torch.minimum(last, numbers)
    indices = (first[:, None] + numbers).clamp(
        max=count - 1
    )  # (count, count), of which the first few are used

    def allowed(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        same = of_query[q] == of_key[k]
        return same & (q >= k) if causal else same

    return BlockMask.from_kv_blocks(
        (last - first + 1).int()[None, None], indices.int()[None, None], BLOCK_SIZE=block, mask_mod=allowed
    )


class PackedBatches:
    """All packed batches of a corpus, epoch after epoch; ``at(step)`` is a pure function of the seed and the step."""

    def __init__(
        self,
        source: Ragged,
        target: Ragged,
        pads: tuple[int, int],
        batch_tokens: int,
        seed: int,
    ) -> None:
        self.source, self.target, self.pads, self.size, self.seed = source, target, pads, batch_tokens, seed
        self.lengths = np.stack([source.lengths, target.lengths - 1])  # what each pair takes on either side
        if self.lengths.max() >= batch_tokens:
            raise UserError(
                f"The longest text has {self.lengths.max():,} tokens, but training.batch_tokens is {batch_tokens:,}: "
                "set it higher."
            )
        if batch_tokens % BLOCK:
            raise UserError(
                f"training.batch_tokens is {batch_tokens:,}: packed batches need a multiple of {BLOCK}."
            )
        self._first = [0]  # the step with which each epoch begins
        self._epoch = -1
        self._batches: list[np.ndarray] = []

    @property
    def per_epoch(self) -> int:
        """About how many batches hold every pair once."""
        return max(1, int(np.ceil(self.lengths.sum(1).max() / (self.size - 1))))

    def at(self, step: int) -> PackedBatch:
        """Return the batch of a step, counted from 0."""
        while self._first[-1] <= step:  # how many batches an epoch has depends on its order
            self._first.append(self._first[-1] + len(self.order(len(self._first) - 1)))
        epoch = int(np.searchsorted(self._first, step, side="right")) - 1
        if epoch != self._epoch:
            self._epoch, self._batches = epoch, self.order(epoch)
        return self.batch(self._batches[step - self._first[epoch]])

    def order(self, epoch: int) -> list[np.ndarray]:
        """Return the rows of each batch of an epoch."""
        order = np.random.default_rng([self.seed, epoch]).permutation(self.lengths.shape[1])
        ends = np.cumsum(self.lengths[:, order], axis=1)
        cuts, first = [], 0
        while first < len(order):
            before = ends[:, first] - self.lengths[:, order[first]]
            # one place stays free on either side, for the tail
            first = min(
                int(np.searchsorted(ends[side], before[side] + self.size - 1, side="right"))
                for side in (0, 1)
            )
            cuts.append(first)
        return np.split(order, cuts[:-1])

    def batch(self, rows: np.ndarray) -> PackedBatch:
        """Lay some pairs end to end, and fill up with a tail that is a sentence of its own."""
        laid = np.empty((7, self.size), dtype=np.int64)
        laid[2], laid[1], (laid[0],) = self._laid(self.source, rows, 0, self.pads[0], shifts=(0,))
        laid[6], laid[5], (laid[3], laid[4]) = self._laid(self.target, rows, 1, self.pads[1], shifts=(0, 1))
        return PackedBatch(torch.from_numpy(laid), int(self.lengths[1, rows].sum()))

    def _laid(
        self, ragged: Ragged, rows: np.ndarray, side: int, pad: int, shifts: tuple[int, ...]
    ) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
        """Return sentence numbers, places, and the ids read from each shift on, each (size,)."""
        lengths = self.lengths[side, rows]
        ends = np.cumsum(lengths)
        used = int(ends[-1])
        sentence = np.full(self.size, len(rows))
        sentence[:used] = np.repeat(np.arange(len(rows)), lengths)
        place = np.zeros(self.size, dtype=np.int64)
        place[:used] = np.arange(used) - np.repeat(ends - lengths, lengths)
        where = np.repeat(ragged.offsets[rows], lengths) + place[:used]
        ids = np.full((len(shifts), self.size), pad, dtype=np.int64)
        for row, shift in zip(ids, shifts, strict=True):
            row[:used] = ragged.values[where + shift]
        return sentence, place, list(ids)
