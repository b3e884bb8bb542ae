"""How much the server accepts at once, and a worker that answers waiting requests together and in a fair order."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from seq2see.errors import UserError
from seq2see.stopping import stopped_when

Done = TypeVar("Done")


@dataclass(frozen=True)
class Limits:
    """The limits of one request, and of the number of requests and connections."""

    characters: int = 2_000  # in one input
    document: int = 100_000  # characters of one input that is translated sentence by sentence
    tags: int = 50_000  # of the HTML documents of one request
    listed: int = 10_000  # answers that a request may allow, and terms of its glossary
    inputs: int = 256  # in one request
    batch: int = 1_024  # inputs in one batch
    beam: int = 16
    body: int = 1_000_000  # bytes of one request
    queue: int = 512  # requests waiting for the model
    seconds: float = 30.0  # the longest time for a request
    work: float = 3e12  # multiplications of one request, estimated before it is accepted
    piece: float = 1e11  # multiplications after which a request gives way to others, and may be cancelled
    numbers: int = 2**27  # that one trace may record
    answer: int = 64_000_000  # bytes of one trace
    head: int = 65_536  # bytes of the head of a request
    head_seconds: float = 10.0  # the longest time for the head of a request
    idle_seconds: float = 5.0  # that a connection may stay open without a request
    connections: int = 1_024

    def check(self, what: str, count: int, most: int) -> None:
        """Refuse a request that has too many of something."""
        if count > most:
            raise UserError(f"The request has {count:,} {what}: it may have at most {most:,}. Send it in parts.")

    def check_work(self, cost: float) -> None:
        """Refuse a request that would take too long, before any of it is done."""
        if cost > self.work:
            raise UserError(
                f"The request may take {cost:.1e} multiplications, and {self.work:.0e} is the limit: send it in parts, "
                "or request a narrower beam, shorter answers or fewer values."
            )


def too_long(text: str, most: int) -> str | None:
    """Return why a text is not answered, if it is longer than the limit."""
    return (
        f"The text has {len(text):,} characters: it may have at most {most:,}. Send it in parts."
        if len(text) > most
        else None
    )


class Busy(Exception):  # noqa: N818 - a state, not a fault
    """The queue of requests is full."""


class Left(Exception):  # noqa: N818 - a state, not a fault
    """The client has disconnected, so its answer is not needed."""


class Client:
    """Who sent a request. Requests of different clients take turns; one whose client leaves is dropped."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.future: asyncio.Future[list[Any]] | None = None

    def leave(self) -> None:
        """Drop the request that this client is waiting for."""
        if self.future is not None and not self.future.done():
            self.future.set_exception(Left())


@dataclass(eq=False)
class Job:
    """Some items, the work to do on them, and the future that receives the results.

    Jobs with the same key may run together: one call of ``work`` then gets items of all of them. A job whose items cost
    much is done in several pieces.
    """

    key: Hashable
    items: list[Any]
    work: Callable[[list[Any]], list[Any]]
    client: Client
    costs: Sequence[float]
    future: asyncio.Future[list[Any]] = field(repr=False)
    taken: int = 0  # items that are done or being done
    results: list[Any] = field(default_factory=list)


Piece = tuple[Job, list[Any]]  # a job, and those of its items that are done now


class Batcher:
    """Runs jobs in one thread. Clients take turns, and a costly job gives way to others after each of its pieces."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.waiting: list[Job] = []
        self.batches = 0
        self.items = 0
        self.working = False  # whether its thread is at work now
        self._turns: dict[str, int] = {}  # the last batch in which each waiting client was served
        self._arrived = asyncio.Event()
        self._ending = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="seq2see-model")
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to accept jobs."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Finish the accepted jobs, then stop. Each job ends at the time limit of its request at the latest."""
        self._ending = True
        self._arrived.set()
        if self._task is not None:
            await self._task
        self._thread.shutdown()

    async def one(self, work: Callable[[], Done], client: Client | None = None, cost: float = 0.0) -> Done:
        """Queue one piece of work, which cannot be done together with others, and return its result."""
        [result] = await self.do(object(), [None], lambda _: [work()], client, [cost])
        return cast(Done, result)

    async def do(
        self,
        key: Hashable,
        items: list[Any],
        work: Callable[[list[Any]], list[Any]],
        client: Client | None = None,
        costs: Sequence[float] = (),
    ) -> list[Any]:
        """Queue some items and return their results; raise TimeoutError after the time limit of a request."""
        client = client or Client()
        if len(self.waiting) >= self.limits.queue:
            self._make_room(client)
        job = Job(key, items, work, client, costs or [0.0] * len(items), asyncio.get_running_loop().create_future())
        client.future = job.future
        self.waiting.append(job)
        self._arrived.set()
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await job.future
        finally:
            job.future.cancel()  # no piece of it starts any more, if it timed out
            if job in self.waiting:
                self.waiting.remove(job)

    def _make_room(self, client: Client) -> None:
        """Refuse a request, or the last one of a client that holds more of the full queue than this client does."""
        counts = Counter(job.client.name for job in self.waiting)
        name, most = counts.most_common(1)[0]
        if counts[client.name] + 1 >= most:
            raise Busy
        last = next(job for job in reversed(self.waiting) if job.client.name == name)
        self.waiting.remove(last)
        last.future.set_exception(Busy())

    async def _run(self) -> None:
        while self.waiting or not self._ending:
            if self.waiting:
                await self._work(self._next())
            else:
                self._turns.clear()
                self._arrived.clear()
                await self._arrived.wait()

    def _next(self) -> list[Piece]:
        """Take the first job of the client that has waited longest for a turn, and what can run with it."""
        self.waiting.sort(key=lambda job: self._turns.get(job.client.name, 0))  # keeps the order of arrival
        first = self.waiting[0]
        pieces, left, size, cost = list[Piece](), list[Job](), 0, 0.0
        for job in self.waiting:
            start = job.taken
            if job.key == first.key and (job is first or size + len(job.items) - start <= self.limits.batch):
                while job.taken < len(job.items) and (not size or cost + job.costs[job.taken] <= self.limits.piece):
                    cost += job.costs[job.taken]
                    size += 1
                    job.taken += 1
            if job.taken > start or job is first:
                pieces.append((job, job.items[start : job.taken]))
                self._turns[job.client.name] = self.batches + 1
            if job.taken < len(job.items):
                left.append(job)
        self.waiting = left
        return pieces

    async def _work(self, pieces: list[Piece]) -> None:
        items = [item for _, some in pieces for item in some]
        self.batches += 1
        self.items += len(items)
        loop = asyncio.get_running_loop()

        def work() -> list[Any]:
            with stopped_when(lambda: all(job.future.done() for job, _ in pieces)):
                return pieces[0][0].work(items)

        try:
            self.working = True
            try:
                results = await loop.run_in_executor(self._thread, work)
            finally:
                self.working = False
        except Exception as error:
            if len(pieces) > 1:  # one bad request must not make the others fail
                for piece in pieces:
                    if not piece[0].future.done():
                        await self._work([piece])
            elif not pieces[0][0].future.done():
                if isinstance(error, UserError):  # its traceback may refer to a million objects
                    error.__traceback__ = error.__context__ = None
                pieces[0][0].future.set_exception(error)
            return
        first = 0
        for job, some in pieces:
            job.results += results[first : first + len(some)]
            first += len(some)
            # The request may have timed out, or its client may have left.
            if len(job.results) == len(job.items) and not job.future.done():
                job.future.set_result(job.results)
