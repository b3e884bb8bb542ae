"""How much the server accepts at once, and the one worker that answers waiting requests together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Limits:
    """What one request may ask for, and how many requests may wait."""

    characters: int = 2_000  # in one input
    inputs: int = 256  # in one request
    batch: int = 1_024  # inputs in one batch
    beam: int = 16
    body: int = 1_000_000  # bytes of one request
    queue: int = 512  # requests waiting for the model
    seconds: float = 30.0  # the longest time for a request


class Busy(Exception):  # noqa: N818 - a state, not a fault
    """The queue of requests is full."""


@dataclass(frozen=True, eq=False)
class Job:
    """Some items, the work to do on them, and the future that receives the results.

    Jobs with the same key may run together: one call of ``work`` then gets the items of all of them.
    """

    key: Hashable
    items: list[Any]
    work: Callable[[list[Any]], list[Any]]
    future: asyncio.Future[list[Any]] = field(repr=False)


class Batcher:
    """Runs jobs in one thread, because a model that is being traced cannot answer other requests at the same time."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.waiting: deque[Job] = deque()
        self.batches = 0
        self.items = 0
        self._arrived = asyncio.Event()
        self._ending = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="seq2see-model")
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to accept jobs."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Finish the accepted jobs, then stop."""
        self._ending = True
        self._arrived.set()
        if self._task is not None:
            await self._task
        self._thread.shutdown()

    async def do(self, key: Hashable, items: list[Any], work: Callable[[list[Any]], list[Any]]) -> list[Any]:
        """Queue some items and return their results; raise TimeoutError after the time limit of a request."""
        if len(self.waiting) >= self.limits.queue:
            raise Busy
        job = Job(key, items, work, asyncio.get_running_loop().create_future())
        self.waiting.append(job)
        self._arrived.set()
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await job.future
        finally:
            with suppress(ValueError):  # the job is still in the queue only if it timed out before its turn
                self.waiting.remove(job)

    async def _run(self) -> None:
        while self.waiting or not self._ending:
            if self.waiting:
                await self._work(self._next())
            else:
                self._arrived.clear()
                await self._arrived.wait()

    def _next(self) -> list[Job]:
        """Take the first job and every job that can run with it, up to the size of a batch."""
        first = self.waiting.popleft()
        jobs, left, size = [first], deque[Job](), len(first.items)
        for job in self.waiting:
            fits = job.key == first.key and size + len(job.items) <= self.limits.batch
            (jobs if fits else left).append(job)
            size += len(job.items) if fits else 0
        self.waiting = left
        return jobs

    async def _work(self, jobs: list[Job]) -> None:
        items = [item for job in jobs for item in job.items]
        self.batches += 1
        self.items += len(items)
        loop = asyncio.get_running_loop()
        try:
            results = await loop.run_in_executor(self._thread, jobs[0].work, items)
        except Exception as error:
            if len(jobs) > 1:  # one bad request must not make the others fail
                for job in jobs:
                    await self._work([job])
            elif not jobs[0].future.done():
                jobs[0].future.set_exception(error)
            return
        first = 0
        for job in jobs:
            if not job.future.done():  # the request may have timed out
                job.future.set_result(results[first : first + len(job.items)])
            first += len(job.items)
