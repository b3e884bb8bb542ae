"""Handles every request before the application does: limits its body, adds headers to the answer, counts both."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Mapping

from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from seq2see.serve.batching import Batcher, Limits

#: Scripts and styles come from this server only. Nothing inline runs.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}
ALWAYS = [(name.encode(), value.encode()) for name, value in HEADERS.items()]


def refusal(status: int, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Return the answer to a request that is refused: one sentence that says why."""
    return JSONResponse({"error": message}, status, headers)


class Metrics:
    """Counts what the server has done since it started, in the text format of Prometheus."""

    def __init__(self) -> None:
        self.taken = 0
        self.ending = False  # the server is shutting down
        self.requests: Counter[tuple[str, int]] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.inputs: Counter[str] = Counter()

    def request(self, path: str, status: int, seconds: float) -> None:
        """Count one request."""
        self.requests[path, status] += 1
        self.seconds[path] += seconds

    def text(self, batcher: Batcher) -> str:
        """Return all counters as text."""
        lines = ["# TYPE seq2see_requests_total counter"]
        for (path, status), count in sorted(self.requests.items()):
            lines.append(f'seq2see_requests_total{{path="{path}",status="{status}"}} {count}')
        lines.append("# TYPE seq2see_request_seconds_total counter")
        for path, seconds in sorted(self.seconds.items()):
            lines.append(f'seq2see_request_seconds_total{{path="{path}"}} {seconds:.6f}')
        lines.append("# TYPE seq2see_inputs_total counter")
        for result, count in sorted(self.inputs.items()):
            lines.append(f'seq2see_inputs_total{{result="{result}"}} {count}')
        lines += [
            "# TYPE seq2see_batches_total counter",
            f"seq2see_batches_total {batcher.batches}",
            "# TYPE seq2see_batched_inputs_total counter",
            f"seq2see_batched_inputs_total {batcher.items}",
            "# TYPE seq2see_queue_length gauge",
            f"seq2see_queue_length {len(batcher.waiting)}",
        ]
        return "\n".join(lines) + "\n"


class Guard:
    """Reads the whole body of a request, within its limits, before anything else sees it."""

    def __init__(self, app: ASGIApp, limits: Limits, metrics: Metrics) -> None:
        self.app = app
        self.limits = limits
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500
        self.metrics.taken += 1

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *self._extra(message["headers"])]
            await send(message)

        try:
            await self._guarded(scope, receive, answer)
        finally:
            path = getattr(scope.get("route"), "path", "other") or "other"
            self.metrics.request(path, status, time.perf_counter() - started)

    def _extra(self, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """Return the headers that an answer lacks. A server that is shutting down asks its clients to disconnect."""
        names = {name for name, _ in headers}
        extra = [pair for pair in ALWAYS if pair[0] not in names]
        return [*extra, (b"connection", b"close")] if self.metrics.ending else extra

    async def _guarded(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with asyncio.timeout(self.limits.seconds):
                body = await self._body(receive)
        except TimeoutError:
            message = f"The request did not arrive within {self.limits.seconds:g} s."
            await refusal(408, message)(scope, receive, send)
            return
        if body is None:
            message = f"The request is longer than {self.limits.body:,} bytes, which is the limit: send it in parts."
            await refusal(413, message, {"connection": "close"})(scope, receive, send)
            return
        await self.app(scope, replayed(body, receive), send)

    async def _body(self, receive: Receive) -> bytes | None:
        """Read the whole body; return None if it is too long."""
        body: bytes = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return body
            body += message.get("body", b"")
            if len(body) > self.limits.body:
                return None
            if not message.get("more_body", False):
                return body


def replayed(body: bytes, receive: Receive) -> Receive:
    """Return a ``receive`` that delivers a body which has already been read."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
