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
from seq2see.model.attention import Mask, PackedMasks

BLOCK = 128  # rows and columns that FlexAttention computes at a time


@dataclass(frozen=True)
class PackedBatch:
    """Many sentences end to end: source (S,), target_in and target_out (T,), and what keeps them apart."""

    source: Tensor
    target_in: Tensor
    target_out: Tensor
    masks: PackedMasks
    tokens: int  # real tokens in target_out


class PackedBatches:
    """All packed batches of a corpus, epoch after epoch; ``at(step)`` is a pure function of the seed and the step."""

    def __init__(
        self,
        source: Ragged,
        target: Ragged,
        pads: tuple[int, int],
        batch_tokens: int,
        seed: int,
        device: torch.device | None = None,
    ) -> None:
        self.source, self.target, self.pads, self.size, self.seed = source, target, pads, batch_tokens, seed
        self.device = device or torch.device("cpu")
        self.lengths = np.stack([source.lengths, target.lengths - 1])  # what each pair takes on either side
        if self.lengths.max() >= batch_tokens:
            raise ValueError(
                f"a sentence of {self.lengths.max()} tokens does not fit a batch of {batch_tokens}"
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
            self._first.append(self._first[-1] + len(self._shuffled(len(self._first) - 1)))
        epoch = int(np.searchsorted(self._first, step, side="right")) - 1
        if epoch != self._epoch:
            self._epoch, self._batches = epoch, self._shuffled(epoch)
        return self.batch(self._batches[step - self._first[epoch]])

    def _shuffled(self, epoch: int) -> list[np.ndarray]:
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
        source, source_place, source_sentence = self._laid(self.source, rows, 0, self.pads[0])
        target_in, target_place, target_sentence = self._laid(self.target, rows, 1, self.pads[1])
        target_out, _, _ = self._laid(self.target, rows, 1, self.pads[1], shift=1)
        masks = PackedMasks(
            source=self._mask(source_sentence, source_sentence),
            target=self._mask(target_sentence, target_sentence, causal=True),
            cross=self._mask(target_sentence, source_sentence),
            source_place=self._on_device(source_place),
            target_place=self._on_device(target_place),
        )
        return PackedBatch(
            source=self._on_device(source),
            target_in=self._on_device(target_in),
            target_out=self._on_device(target_out),
            masks=masks,
            tokens=int(self.lengths[1, rows].sum()),
        )

    def _laid(
        self, ragged: Ragged, rows: np.ndarray, side: int, pad: int, shift: int = 0
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return ids, places and sentence numbers, each (size,)."""
        lengths = self.lengths[side, rows]
        ends = np.cumsum(lengths)
        used = int(ends[-1])
        sentence = np.full(self.size, len(rows))
        sentence[:used] = np.repeat(np.arange(len(rows)), lengths)
        place = np.zeros(self.size, dtype=np.int64)
        place[:used] = np.arange(used) - np.repeat(ends - lengths, lengths)
        ids = np.full(self.size, pad, dtype=np.int64)
        ids[:used] = ragged.values[np.repeat(ragged.offsets[rows], lengths) + place[:used] + shift]
        return ids, place, sentence

    def _on_device(self, values: np.ndarray) -> Tensor:
        tensor = torch.from_numpy(values)
        if self.device.type == "cuda":
            return tensor.pin_memory().to(self.device, non_blocking=True)
        return tensor

    def _mask(self, of_query: np.ndarray, of_key: np.ndarray, causal: bool = False) -> Mask:
        query, key = self._on_device(of_query), self._on_device(of_key)
        blocks = self._blocks(of_query, of_key, query, key, causal) if self.device.type == "cuda" else None
        return Mask(causal=causal, sentences=(query, key), blocks=blocks)

    def _blocks(
        self, of_query: np.ndarray, of_key: np.ndarray, query: Tensor, key: Tensor, causal: bool
    ) -> BlockMask:
        """Say which blocks of keys each block of queries needs: sentences are in order, so they are neighbours."""
        count = self.size // BLOCK
        first = np.searchsorted(of_key, of_query[::BLOCK], side="left") // BLOCK  # (count,)
        last = (np.searchsorted(of_key, of_query[BLOCK - 1 :: BLOCK], side="right") - 1) // BLOCK
        if causal:
            last = np.minimum(last, np.arange(count))
        number = (last - first + 1).astype(np.int32)
        indices = np.minimum(first[:, None] + np.arange(count), count - 1).astype(np.int32)  # (count, count)

        def allowed(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            same = query[q] == key[k]
            return same & (q >= k) if causal else same

        return BlockMask.from_kv_blocks(
            self._on_device(number)[None, None],
            self._on_device(indices)[None, None],
            BLOCK_SIZE=BLOCK,
            mask_mod=allowed,
        )
