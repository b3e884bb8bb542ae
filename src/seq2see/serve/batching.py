"""One worker for all requests: what waits while it is busy is answered together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from seq2see.serve.limits import Limits


class Busy(Exception):  # noqa: N818 - a state, not a fault
    """More requests wait than the server takes."""


@dataclass(frozen=True)
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
        self.queue: asyncio.Queue[Job] = asyncio.Queue(limits.queue)
        self.batches = 0
        self.items = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="seq2see-model")
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to take jobs."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Finish what was taken, then end."""
        await self.queue.join()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        self._thread.shutdown()

    async def do(self, key: Hashable, items: list[Any], work: Callable[[list[Any]], list[Any]]) -> list[Any]:
        """Have some items worked on, within the time that a request may take."""
        future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        try:
            self.queue.put_nowait(Job(key, items, work, future))
        except asyncio.QueueFull:
            raise Busy from None
        return await asyncio.wait_for(future, self.limits.seconds)

    async def _run(self) -> None:
        waiting: list[Job] = []
        while True:
            waiting.append(await self.queue.get())
            while not self.queue.empty():
                waiting.append(self.queue.get_nowait())
            taken = len(waiting)
            for jobs in self._grouped([job for job in waiting if not job.future.done()]):
                await self._work(jobs)
            waiting.clear()
            for _ in range(taken):
                self.queue.task_done()

    def _grouped(self, jobs: list[Job]) -> list[list[Job]]:
        """Put jobs of one key together, as many as a batch takes."""
        groups: list[list[Job]] = []
        open_groups: dict[Hashable, list[Job]] = {}
        for job in jobs:
            group = open_groups.get(job.key)
            if group is None or sum(len(x.items) for x in group) + len(job.items) > self.limits.batch:
                open_groups[job.key] = group = []
                groups.append(group)
            group.append(job)
        return groups

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
