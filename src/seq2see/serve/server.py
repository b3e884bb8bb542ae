"""Opens the port and runs the application until it is told to stop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping

import uvicorn

from seq2see.errors import UserError
from seq2see.seq2seq import Seq2Seq
from seq2see.serve.app import create_app
from seq2see.serve.batching import Limits
from seq2see.serve.guard import Metrics

LOOPBACK = {"127.0.0.1", "::1", "localhost"}
FAREWELL = 0.5  # seconds in which active clients are asked to disconnect


def listen(host: str, port: int) -> socket.socket:
    """Open a port, or say why it cannot be opened; port 0 means any free port."""
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
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{listener.getsockname()[1]}/"


def hosts_of(host: str) -> list[str]:
    """Return the host names that a request to a server may use.

    On loopback these are the names of loopback only: another name would come from a web page that points a name of its
    own at this machine (DNS rebinding).
    """
    return [*LOOPBACK, "[::1]"] if host in LOOPBACK else ["*"]


class Server(uvicorn.Server):
    """Shuts down without losing a request: each client is asked to disconnect with its next answer."""

    def __init__(self, config: uvicorn.Config, metrics: Metrics, ended: Callable[[int, int], None]) -> None:
        super().__init__(config)
        self.metrics = metrics
        self.ended = ended

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no new connection, ask the clients to disconnect, finish the accepted requests, close."""
        self.metrics.ending = True
        for server in self.servers:
            server.close()
        if self.server_state.connections:
            await asyncio.sleep(FAREWELL)
        await super().shutdown(sockets)
        self.ended(self.metrics.taken, self.metrics.requests.total())


def serve(
    models: Mapping[str, Seq2Seq],
    host: str,
    port: int,
    ready: Callable[[str], None],
    limits: Limits,
    ended: Callable[[int, int], None] = lambda taken, answered: None,
) -> None:
    """Serve until SIGINT or SIGTERM, then finish the accepted requests.

    ``ready`` gets the address. ``ended`` gets the number of requests accepted and the number answered.
    """
    listener = listen(host, port)
    app = create_app(models, limits, hosts_of(host))
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, proxy_headers=False,
        timeout_graceful_shutdown=int(limits.seconds),
    )  # fmt: skip
    ready(address_of(listener, host))
    Server(config, app.state.metrics, ended).run(sockets=[listener])
