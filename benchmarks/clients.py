"""Many light clients: raw sockets with keep-alive that ask dates and check every answer."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from seq2see.tasks.dates import all_ordinals, pairs_of

Pair = tuple[str, str]


@dataclass
class Tally:
    """What the clients of one turn saw."""

    seconds: float = 0.0
    statuses: Counter[int] = field(default_factory=Counter)
    wrong: int = 0  # an answer that is not right, or another question's
    unpromising: int = 0  # a refusal that does not say when to come back
    cut: int = 0  # connections that ended in the middle of an answer
    untaken: int = 0  # requests that were sent while the server closed the connection; it never read them
    latencies: list[float] = field(default_factory=list)

    @property
    def answered(self) -> int:
        """All answers, whatever they say."""
        return self.statuses.total()

    def latency(self, share: float) -> float:
        """Return the latency in milliseconds that this share of the answers stayed under."""
        return 1000 * float(np.quantile(self.latencies, share)) if self.latencies else float("nan")

    def add(self, other: Tally) -> None:
        """Count another turn in."""
        self.seconds += other.seconds
        self.statuses += other.statuses
        self.wrong += other.wrong
        self.unpromising += other.unpromising
        self.cut += other.cut
        self.untaken += other.untaken
        self.latencies += other.latencies

    def record(self) -> dict[str, Any]:
        """Return the figures as JSON can hold them."""
        return {
            "requests": self.answered,
            "per_second": self.answered / self.seconds,
            "p50_ms": self.latency(0.5),
            "p99_ms": self.latency(0.99),
            "statuses": {str(status): count for status, count in sorted(self.statuses.items())},
            "wrong": self.wrong,
            "cut": self.cut,
            "untaken": self.untaken,
        }


@dataclass(frozen=True)
class Service:
    """Where to ask, and how a question is put."""

    port: int
    path: str
    body: Callable[[Sequence[str]], object]
    inputs: int = 1  # dates in one request


def ours(port: int, inputs: int = 1, probabilities: bool = False) -> Service:
    """Return how ``seq2see serve`` is asked."""

    def body(texts: Sequence[str]) -> dict[str, object]:
        return {"inputs": list(texts), "probabilities": probabilities}

    return Service(port, "/api/predict", body, inputs)


def plain(port: int) -> Service:
    """Return how the plain handler is asked."""
    return Service(port, "/predict", lambda texts: {"text": texts[0]})


def dates(count: int) -> list[Pair]:
    """Return some dates and what they should become."""
    return pairs_of(np.random.default_rng(7).choice(all_ordinals(), count, replace=False))


def besiege(
    service: Service, pairs: Sequence[Pair], clients: int, seconds: float, event: Callable[[], None] | None = None
) -> Tally:
    """Let clients ask one question after the other for some seconds; ``event`` happens half way."""
    return asyncio.run(_besiege(service, pairs, clients, seconds, event))


async def _besiege(
    service: Service, pairs: Sequence[Pair], clients: int, seconds: float, event: Callable[[], None] | None
) -> Tally:
    tally, started = Tally(), time.perf_counter()
    if event is not None:
        asyncio.get_running_loop().call_later(seconds / 2, event)
    await asyncio.gather(
        *(_client(service, pairs, number, clients, started + seconds, tally) for number in range(clients))
    )
    tally.seconds = time.perf_counter() - started
    return tally


async def _client(service: Service, pairs: Sequence[Pair], number: int, clients: int, end: float, tally: Tally) -> None:
    """Ask until the time is over or the server closes the door."""
    turn = number
    while time.perf_counter() < end:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
        except OSError:
            return  # it no longer listens
        try:
            while time.perf_counter() < end:
                chosen = [pairs[(turn + i) % len(pairs)] for i in range(service.inputs)]
                turn += clients
                if not await _ask(service, chosen, reader, writer, tally):
                    break
        finally:
            writer.close()


async def _ask(
    service: Service, pairs: Sequence[Pair], reader: asyncio.StreamReader, writer: asyncio.StreamWriter, tally: Tally
) -> bool:
    """Put one question and check its answer; False if the connection cannot be used again."""
    body = json.dumps(service.body([source for source, _ in pairs])).encode()
    head = (
        f"POST {service.path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    started = time.perf_counter()
    got = b""
    try:
        writer.write(head.encode() + body)
        got = await reader.readuntil(b"\r\n\r\n")
        headers = got.lower()
        length = int(headers.partition(b"content-length:")[2].partition(b"\r\n")[0])
        answer = await reader.readexactly(length)
    except asyncio.IncompleteReadError as error:
        tally.cut += bool(got or error.partial)
        tally.untaken += not (got or error.partial)
        return False
    except OSError:
        tally.cut += bool(got)
        tally.untaken += not got
        return False
    status = int(headers[9:12])
    tally.statuses[status] += 1
    tally.latencies.append(time.perf_counter() - started)
    if status == 200:
        tally.wrong += not _right(json.loads(answer), pairs)
    elif status == 429:
        tally.unpromising += b"retry-after:" not in headers
    return b"connection: close" not in headers


def _right(answer: dict[str, Any], pairs: Sequence[Pair]) -> bool:
    """Whether every question has its own answer, and the right one."""
    answers = answer.get("answers", [answer])
    return [(given["input"], given["output"]) for given in answers] == list(pairs)
