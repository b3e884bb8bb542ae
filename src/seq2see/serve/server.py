"""Run the application until it is told to stop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping

import uvicorn

from seq2see.errors import UserError
from seq2see.seq2seq import Seq2Seq
from seq2see.serve.app import create_app
from seq2see.serve.limits import Limits
from seq2see.serve.metrics import Metrics

LOOPBACK = {"127.0.0.1", "::1", "localhost"}
FAREWELL = 0.5  # seconds in which clients that are busy asking are told to leave


def listen(host: str, port: int) -> socket.socket:
    """Open the port, or say why not; port 0 is any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        raise UserError(
            f"Port {port} of {host} cannot be opened ({error}): choose another with --port, or 0 for any."
        ) from None
    return listener


def address_of(listener: socket.socket, host: str) -> str:
    """Return the address under which a browser finds an open port."""
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{listener.getsockname()[1]}/"


def hosts_of(host: str) -> list[str]:
    """Return the names under which a server on a host may be asked.

    On loopback no other name leads there, unless some page on the web pretends that it does.
    """
    return [*LOOPBACK, "[::1]"] if host in LOOPBACK else ["*"]


class Server(uvicorn.Server):
    """Lets its clients go one by one: each is told to leave with its next answer, so that no question is lost."""

    def __init__(self, config: uvicorn.Config, metrics: Metrics, ended: Callable[[int, int], None]) -> None:
        super().__init__(config)
        self.metrics = metrics
        self.ended = ended

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take nobody new, say goodbye, finish what was taken, close."""
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
    """Serve until SIGINT or SIGTERM, then finish what was taken.

    ``ready`` is told the address; ``ended`` how many requests were taken and how many were answered.
    """
    listener = listen(host, port)
    app = create_app(models, limits, hosts_of(host))
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, proxy_headers=False,
        timeout_graceful_shutdown=int(limits.seconds),
    )  # fmt: skip
    ready(address_of(listener, host))
    Server(config, app.state.metrics, ended).run(sockets=[listener])
