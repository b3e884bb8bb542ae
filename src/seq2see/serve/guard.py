"""What stands before every request: limits on its body, headers on its answer, a count of both."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from seq2see.serve.limits import Limits
from seq2see.serve.metrics import Metrics

#: Scripts and styles are files of ours; nothing is fetched from elsewhere, nothing inline is run.
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
    """Say in one sentence why a request was not answered."""
    return JSONResponse({"error": message}, status, headers)


class Guard:
    """Reads a request's body whole, within its limits, before anything else sees it."""

    def __init__(self, app: ASGIApp, limits: Limits, metrics: Metrics) -> None:
        self.app = app
        self.limits = limits
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take one request."""
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
        """Return the headers that an answer lacks; a server that is about to end asks its clients to leave."""
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
            message = (
                f"The request is longer than {self.limits.body:,} bytes, the most that is taken: cut it up."
            )
            await refusal(413, message, {"connection": "close"})(scope, receive, send)
            return
        await self.app(scope, replayed(body, receive), send)

    async def _body(self, receive: Receive) -> bytes | None:
        """Read the whole body; None if it is too long."""
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
    """Hand out a body that has been read."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
