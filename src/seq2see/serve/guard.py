"""Handles every request before the application does: checks who asks, adds headers, counts."""

from __future__ import annotations

import hmac
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus

from fastapi.responses import JSONResponse
from pydantic_core import to_json
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from seq2see.serve.batching import Batcher, Client

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
        asked = [(f'{{path="{path}",status="{status}"}}', count) for (path, status), count in self.requests.items()]
        counters: dict[str, list[tuple[str, object]]] = {
            "requests_total counter": sorted(asked),
            "request_seconds_total counter": [(f'{{path="{path}"}}', f"{s:.6f}") for path, s in self.seconds.items()],
            "inputs_total counter": [(f'{{result="{result}"}}', count) for result, count in self.inputs.items()],
            "batches_total counter": [("", batcher.batches)],
            "batched_inputs_total counter": [("", batcher.items)],
            "queue_length gauge": [("", len(batcher.waiting))],
        }
        lines = []
        for name, values in counters.items():
            lines.append(f"# TYPE seq2see_{name}")
            lines += [f"seq2see_{name.split()[0]}{labels} {value}" for labels, value in values]
        return "\n".join(lines) + "\n"


class Guard:
    """Checks the host and the token of a request, adds headers to its answer, and counts it.

    ``hosts`` holds the names that a request may use for this server, or ``*``. ``log`` gets one line for each request.
    """

    def __init__(
        self,
        app: ASGIApp,
        metrics: Metrics,
        hosts: Sequence[str] = ("*",),
        token: str | None = None,
        log: Callable[[str], None] | None = None,
    ) -> None:
        self.app = app
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
                await self.app(scope, receive, answer)
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
