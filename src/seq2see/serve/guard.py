"""Handles every request before the application does: checks who asks, limits the body, adds headers, counts."""

from __future__ import annotations

import asyncio
import hmac
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus

from fastapi.responses import JSONResponse
from pydantic_core import to_json
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from seq2see.serve.batching import Batcher, Client, Left, Limits

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
HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]@/\s]+)(:\d{1,5})?", re.IGNORECASE)  # a name or address, and a port
OPEN = {"/healthz"}  # answered without a token, for monitoring


def refusal(status: int, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Return the answer to a request that is refused: one sentence that says why."""
    return JSONResponse({"error": message}, status, headers)


def raw_refusal(status: int, message: str) -> bytes:
    """Return a refusal as the bytes of a whole HTTP answer, for a request that never reaches the application."""
    body = to_json({"error": message})
    head = {**HEADERS, "content-type": "application/json", "content-length": len(body), "connection": "close"}
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    return f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n{lines}\r\n".encode() + body


LEFT = 499  # the status that is counted for a client that left before its answer


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
    """Checks the host and the token of a request, and reads its whole body within its limits.

    ``hosts`` holds the names that a request may use for this server, or ``*``. ``log`` gets one line for each request.
    """

    def __init__(
        self,
        app: ASGIApp,
        limits: Limits,
        metrics: Metrics,
        hosts: Sequence[str] = ("*",),
        token: str | None = None,
        log: Callable[[str], None] | None = None,
    ) -> None:
        self.app = app
        self.limits = limits
        self.metrics = metrics
        self.hosts = {host.lower() for host in hosts}
        self.expected = None if token is None else f"Bearer {token}".encode()
        self.log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), LEFT
        self.metrics.taken += 1
        client = (scope.get("client") or ("", 0))[0]
        scope["asker"] = Client(client)

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *self._extra(message["headers"])]
            await send(message)

        try:
            refused = self._refusal(scope)
            if refused is not None:
                await refused(scope, receive, answer)
            else:
                await self._guarded(scope, receive, answer)
        except Exception:
            status = 500
            raise
        finally:
            path = getattr(scope.get("route"), "path", "other") or "other"
            seconds = time.perf_counter() - started
            self.metrics.request(path, status, seconds)
            if self.log is not None:
                asked = ascii(f"{scope['method']} {scope['path'][:200]}")
                now = time.strftime("%Y-%m-%dT%H:%M:%S%z")
                self.log(f"{now} {client or '-'} {asked} {status} {1000 * seconds:.1f} ms")

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        """Return the refusal of a request for another server or without a valid token."""
        named = [value for name, value in scope["headers"] if name == b"host"]
        host = HOST.fullmatch(named[0].decode("latin-1").strip()) if len(named) == 1 else None
        if host is None:
            return refusal(400, "A request names its server in exactly one Host header.")
        if "*" not in self.hosts and host[1].lower() not in self.hosts:
            return refusal(400, f"This server has another name: it answers to {', '.join(sorted(self.hosts))}.")
        if self.expected is None or scope["path"] in OPEN:
            return None
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(given) == 1 and hmac.compare_digest(given[0], self.expected):
            return None
        return refusal(401, "This server requires a token: send it as `Authorization: Bearer TOKEN`.",
                       {"www-authenticate": "Bearer"})  # fmt: skip

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
            await refusal(408, message, {"connection": "close"})(scope, receive, send)
            return
        except Left:
            return
        if body is None:
            message = f"The request is longer than {self.limits.body:,} bytes, which is the limit: send it in parts."
            await refusal(413, message, {"connection": "close"})(scope, receive, send)
            return
        # Only UTF-8 is JSON for us: a reader that guesses an encoding may read something different from a proxy before
        # it.
        if body and (body.startswith(b"\xef\xbb\xbf") or b"\0" in body or not _is_utf8(body)):
            await refusal(400, "The body is not JSON in UTF-8.")(scope, receive, send)
            return
        await self.app(scope, replayed(body, receive), send)

    async def _body(self, receive: Receive) -> bytes | None:
        """Read the whole body; return None if it is too long."""
        body: bytes = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Left
            body += message.get("body", b"")
            if len(body) > self.limits.body:
                return None
            if not message.get("more_body", False):
                return body


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


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
