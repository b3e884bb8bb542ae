"""Workers that draw tasks and lay them end to end in a ring of shared memory, so that the GPU never waits for them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from itertools import islice
from multiprocessing.context import SpawnProcess
from typing import Any

import numpy as np
import torch
import torch.multiprocessing as mp
from torch import Tensor

from seq2see.data.batching import Batch, PackedBatch
from shipped.examples.world import END, LONGEST, LONGEST_ANSWER, PAD, START, Task, bytes_of, serialised, tasks

Row = tuple[int, list[int], list[int]]  # family, source, answer


def rows(stream: Iterator[Task]) -> Iterator[Row]:
    """Yield each task that fits as tokens."""
    for task in stream:
        source = serialised(task.pairs, task.question)
        answer = bytes_of(task.answer)
        if len(source) <= LONGEST and len(answer) < LONGEST_ANSWER:
            yield task.family, source, answer


class Packer:
    """Lays tasks end to end: S tokens of sources, T of answers, as ``PackedBatch`` has them, and their families."""

    def __init__(self, stream: Iterator[Row], size: int, answers: int) -> None:
        self.stream, self.size, self.answers = stream, size, answers
        self.held: Row | None = None

    @property
    def width(self) -> int:
        """Numbers of one batch."""
        return 3 * self.size + 5 * self.answers

    def fill(self, out: np.ndarray) -> tuple[int, int, list[int]]:
        """Write a batch, and return its tasks, its answer tokens and the family of each task."""
        source, target = out[: 3 * self.size].reshape(3, -1), out[3 * self.size :].reshape(5, -1)
        source[0], source[1], target[:2], target[2], target[3] = PAD, 0, PAD, -1, 0
        s = t = number = 0
        families: list[int] = []
        while True:
            row = self.held or next(self.stream)
            self.held = None
            family, read, told = row
            n, m = len(read), len(told) + 1
            if s + n >= self.size or t + m >= self.answers:  # one token stays free on either side, for the padding
                self.held = row
                break
            source[0, s : s + n], source[1, s : s + n], source[2, s : s + n] = read, _PLACES[:n], number
            target[0, t], target[0, t + 1 : t + m] = START, told
            target[1, t : t + m - 1], target[1, t + m - 1] = told, END
            target[3, t : t + m], target[4, t : t + m] = _PLACES[:m], number
            s, t, number = s + n, t + m, number + 1
            families.append(family)
        source[2, s:], target[4, t:] = number, number
        source[1, s:], target[3, t:] = _PLACES[np.arange(self.size - s) % LONGEST], 0
        return number, t, families


_PLACES = np.arange(max(LONGEST, LONGEST_ANSWER) + 2)


def _work(worker: int, seed: int, ring: Tensor, size: int, answers: int, free: Any, full: Any) -> None:
    torch.set_num_threads(1)
    with contextlib.suppress(OSError):
        os.nice(5)  # the process that feeds the GPU goes first
    packer = Packer(rows(tasks(seed, worker)), size, answers)
    while True:
        slot = free.get()
        if slot is None:
            return
        full.put((slot, *packer.fill(ring[slot].numpy())))


class Stream:
    """Packed batches from some processes; without processes, from this one."""

    def __init__(self, workers: int, size: int, answers: int, seed: int, slots: int = 64) -> None:
        self.size, self.answers, self.drawn = size, answers, 0
        self.packer = Packer(rows(tasks(seed)), size, answers)
        self.processes: list[SpawnProcess] = []
        if workers:
            context = mp.get_context("spawn")
            self.ring = torch.zeros(slots, self.packer.width, dtype=torch.int16).share_memory_()  # type: ignore[no-untyped-call]
            self.free, self.full = context.SimpleQueue(), context.SimpleQueue()
            for slot in range(slots):
                self.free.put(slot)
            for worker in range(workers):
                given = (worker + 1, seed, self.ring, size, answers, self.free, self.full)
                process = context.Process(target=_work, args=given, daemon=True)
                process.start()
                self.processes.append(process)

    def next(self) -> tuple[PackedBatch, int]:
        """Return a batch and the number of its tasks."""
        if not self.processes:
            numbers = torch.zeros(self.packer.width, dtype=torch.int64)
            count, tokens, _ = self.packer.fill(numbers.numpy())
        else:
            slot, count, tokens, _ = self.full.get()
            numbers = self.ring[slot].long()
            self.free.put(slot)
        self.drawn += count
        return PackedBatch(numbers, self.size, tokens), count

    def close(self) -> None:
        """End the processes that were started here."""
        for process in self.processes:
            process.terminate()
        self.processes = []


def padded(rows: Sequence[Row], tokens: int) -> Iterator[tuple[Batch, list[int]]]:
    """Yield some tasks in padded batches of neighbours in length, and their families: where our kernel does not run."""
    some = sorted(rows, key=lambda row: len(row[1]))
    first = 0
    for at in range(1, len(some) + 1):
        if at == len(some) or (at + 1 - first) * len(some[at][1]) > tokens:
            few = some[first:at]
            answers = [[START, *told, END] for _, _, told in few]
            yield Batch.of([read for _, read, _ in few], answers, (PAD, PAD)), [family for family, _, _ in few]
            first = at


def rows_of(batch: PackedBatch) -> list[Row]:
    """Return the tasks of a packed batch, without their families."""
    source, target = batch.source_rows, batch.target_rows
    count = int(source[2, -1])
    lengths = torch.bincount(source[2], minlength=count + 1)[:count].tolist()
    answers = torch.bincount(target[4], minlength=count + 1)[:count].tolist()
    reads, told = torch.split(source[0, : sum(lengths)], lengths), torch.split(target[0, : sum(answers)], answers)
    return [(0, a.tolist(), b.tolist()[1:]) for a, b in zip(reads, told, strict=True)]


def held_out(count: int, seed: int) -> list[Row]:
    """Return the same tasks each time: none of a training's stream, whose workers have other numbers."""
    return list(islice(rows(tasks(seed, -1)), count))
