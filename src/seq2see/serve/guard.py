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

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                names = {name for name, _ in message["headers"]}
                extra = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *(pair for pair in extra if pair[0] not in names)]
            await send(message)

        try:
            body = await asyncio.wait_for(self._body(receive), self.limits.seconds)
        except TimeoutError:
            await refusal(408, f"The request did not arrive within {self.limits.seconds:g} s.")(
                scope, receive, answer
            )
        else:
            if body is None:
                message = f"The request is longer than {self.limits.body:,} bytes, the most that is taken: cut it up."
                await refusal(413, message, {"connection": "close"})(scope, receive, answer)
            else:
                await self.app(scope, _replayed(body, receive), answer)
        route = scope.get("route")
        path = getattr(route, "path", "other") or "other"
        self.metrics.request(path, status, time.perf_counter() - started)

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


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Hand out a body that has been read."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
