"""One worker for all requests: what waits while it is busy is answered together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from seq2see.serve.limits import Limits


class Busy(Exception):  # noqa: N818 - a state, not a fault
    """More requests wait than the server takes."""


@dataclass(frozen=True, eq=False)
class Job:
    """Some items, the work to be done on them, and the future that gets its results.

    Jobs of one key may be done together: their items are given to one call of ``work``.
    """

    key: Hashable
    items: list[Any]
    work: Callable[[list[Any]], list[Any]]
    future: asyncio.Future[list[Any]] = field(repr=False)


class Batcher:
    """Does jobs in one thread, since a model that is being traced cannot answer others meanwhile."""

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
        """Begin to take jobs."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Finish what was taken, then end."""
        self._ending = True
        self._arrived.set()
        if self._task is not None:
            await self._task
        self._thread.shutdown()

    async def do(self, key: Hashable, items: list[Any], work: Callable[[list[Any]], list[Any]]) -> list[Any]:
        """Have some items worked on, within the time that a request may take."""
        if len(self.waiting) >= self.limits.queue:
            raise Busy
        job = Job(key, items, work, asyncio.get_running_loop().create_future())
        self.waiting.append(job)
        self._arrived.set()
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await job.future
        finally:
            with suppress(ValueError):  # it gave up before its turn came
                self.waiting.remove(job)

    async def _run(self) -> None:
        while self.waiting or not self._ending:
            if self.waiting:
                await self._work(self._next())
            else:
                self._arrived.clear()
                await self._arrived.wait()

    def _next(self) -> list[Job]:
        """Take the first job and those that can be done with it, as many as a batch takes."""
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
            if len(jobs) > 1:  # one request's fault must not be its neighbours'
                for job in jobs:
                    await self._work([job])
            elif not jobs[0].future.done():
                jobs[0].future.set_exception(error)
            return
        first = 0
        for job in jobs:
            if not job.future.done():  # it may have given up waiting
                job.future.set_result(results[first : first + len(job.items)])
            first += len(job.items)
