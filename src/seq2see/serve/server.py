"""Opens the port and runs the application until a signal stops it."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from seq2see import machine
from seq2see.errors import UserError
from seq2see.seq2seq import Seq2Seq
from seq2see.serve.app import create_app
from seq2see.serve.batching import Batcher, Limits
from seq2see.serve.guard import Metrics, raw_refusal

LOOPBACK = {"127.0.0.1", "::1", "localhost"}
FAREWELL = 0.5  # seconds in which active clients must disconnect
OTHER_FILES = 96  # files that the process opens beside its connections
SOON, UNCOLLECTED = 1.0, 600.0  # seconds between full garbage collections, in an idle moment and otherwise
TICKS = 10  # ticks of uvicorn's clock per second


def listen(host: str, port: int) -> socket.socket:
    """Open a port, or raise if it cannot be opened; port 0 means any free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        raise UserError(
            f"Port {port} of {host} cannot be opened ({error}): choose another with --port; 0 takes any free port."
        ) from None
    return listener


def address_of(listener: socket.socket, host: str) -> str:
    """Return the address at which a browser finds an open port."""
    name = f"[{host}]" if ":" in host else host.lower()
    return f"http://{name}:{listener.getsockname()[1]}/"


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address. The short forms that a socket takes, such as 127.1, count too."""
    if host.lower() == "localhost":
        return True
    try:
        address = host if ":" in host else socket.inet_ntoa(socket.inet_aton(host))
        return ipaddress.ip_address(address).is_loopback
    except (OSError, ValueError):
        return False


def hosts_of(host: str) -> list[str]:
    """Return the host names that a request to a server may use.

    On loopback these are the names of loopback only: another name would come from a web page that points a name of its
    own at this machine (DNS rebinding).
    """
    return [*LOOPBACK, "[::1]", f"[{host}]" if ":" in host else host] if is_loopback(host) else ["*"]


class Connection(HttpToolsProtocol):
    """One connection, within limits that the protocol lacks; work for a client that left is stopped.

    The head of a request is limited in bytes and in time. A client that does not read its answer is disconnected. If
    there are too many connections, the one that has been idle longest is closed.
    """

    limits = Limits()

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.since = self.loop.time()  # from when it waits for a head, or for its client to read
        self.in_head, self.head = True, 0  # and the bytes of an unfinished head

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, and close another one if there are too many."""
        super().connection_made(transport)
        if len(self.connections) <= self.limits.connections:
            return
        others = [one for one in self.connections if isinstance(one, Connection) and one.idle and one is not self]
        if others:
            min(others, key=lambda one: one.since).transport.abort()
        else:
            self._refuse(503, f"{self.limits.connections:,} clients are connected already: try again in a second.")

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop the requests of clients that have disconnected."""
        for cycle in (self.cycle, *(cycle for cycle, _ in self.pipeline)):
            if cycle is not None and not cycle.response_complete and "asker" in cycle.scope:
                cycle.scope["asker"].leave()  # type: ignore[typeddict-item]
        super().connection_lost(exc)

    @property
    def idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def data_received(self, data: bytes) -> None:
        """Read some bytes, and refuse a head that is too long; those in which it begins do not count."""
        self.head += len(data)
        super().data_received(data)
        if self.in_head and self.head > self.limits.head:
            self._refuse(431, f"The head of the request is longer than {self.limits.head:,} bytes.")

    def on_message_begin(self) -> None:
        """Begin to count the bytes of a head."""
        super().on_message_begin()
        self.in_head, self.head = True, 0

    def on_headers_complete(self) -> None:
        """Accept a whole head."""
        self.in_head = False
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """Wait for the next head from now on."""
        self.since = self.loop.time()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Wait for the client to read from now on."""
        self.since = self.loop.time()
        super().pause_writing()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP in the form of every other refusal."""
        self._refuse(400, msg)

    def look_after(self, now: float) -> None:
        """Close the connection if its client has been too slow."""
        if self.idle:
            if now - self.since > self.limits.idle_seconds + self.limits.head_seconds:
                self._refuse(408, f"The head of a request did not arrive within {self.limits.head_seconds:g} s.")
        elif self.flow.write_paused and now - self.since > self.limits.seconds:
            self.transport.abort()

    def _refuse(self, status: int, message: str) -> None:
        if not self.transport.is_closing():
            self.transport.write(raw_refusal(status, message))
            self.transport.close()


class Server(uvicorn.Server):
    """Shuts down without losing a request: each client is asked to disconnect with its next answer."""

    def __init__(
        self,
        config: uvicorn.Config,
        metrics: Metrics,
        ended: Callable[[int, int], None] = lambda taken, answered: None,
        workers: Sequence[Batcher] = (),
    ) -> None:
        super().__init__(config)
        self.workers = workers
        self.metrics = metrics
        self.ended = ended
        self.collected = time.monotonic()

    async def on_tick(self, counter: int) -> bool:
        """Check the connections and the memory once a second."""
        if counter % TICKS == 0:
            now = asyncio.get_running_loop().time()
            for connection in list(self.server_state.connections):
                if isinstance(connection, Connection):
                    connection.look_after(now)
        self.collect(time.monotonic())
        return await super().on_tick(counter)

    def collect(self, now: float) -> None:
        """Collect garbage once a second, but not while a thread works, unless for long.

        A document or a pattern in progress has a million objects, for which all clients would wait.
        """
        is_idle = not any(worker.working for worker in self.workers)
        if now - self.collected > (SOON if is_idle else UNCOLLECTED):
            self.collected = now
            if gc.get_count()[2]:  # some objects have become old since the last time
                gc.collect()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no new connection, ask the clients to disconnect, finish the accepted requests, close."""
        self.metrics.ending = True
        for server in self.servers:
            server.close()
        if self.server_state.connections:
            await asyncio.sleep(FAREWELL)
        await super().shutdown(sockets)
        self.ended(self.metrics.taken, self.metrics.requests.total())


def configured(app: ASGIApp, limits: Limits, proxy: str | None = None, **settings: Any) -> uvicorn.Config:
    """Return uvicorn's settings. The addresses of clients are taken from a proxy at the address ``proxy`` only.

    There are no more connections than files may be open.
    """
    most = max(8, min(limits.connections, machine.open_files() - OTHER_FILES))
    kind = type("Connection", (Connection,), {"limits": replace(limits, connections=most)})
    return uvicorn.Config(
        app, http=kind, ws="none", log_level="error", access_log=False, server_header=False,
        proxy_headers=proxy is not None, forwarded_allow_ips=proxy, timeout_keep_alive=int(limits.idle_seconds),
        **settings,
    )  # fmt: skip


def serve(
    models: Mapping[str, Seq2Seq],
    host: str,
    port: int,
    ready: Callable[[str], None],
    limits: Limits,
    ended: Callable[[int, int], None] = lambda taken, answered: None,
    token: str | None = None,
    log: Callable[[str], None] | None = None,
    proxy: str | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM, then finish the accepted requests.

    ``ready`` gets the address. ``ended`` gets the number of requests accepted and the number answered. ``token`` is what
    clients must send, ``log`` gets a line for each request, and ``proxy`` is the address of a trusted proxy.
    """
    listener = listen(host, port)
    app = create_app(models, limits, hosts_of(host), token, log)
    config = configured(app, limits, proxy, timeout_graceful_shutdown=int(limits.seconds))
    with machine.collected_by_hand():
        ready(address_of(listener, host))
        Server(config, app.state.metrics, ended, app.state.workers).run(sockets=[listener])
