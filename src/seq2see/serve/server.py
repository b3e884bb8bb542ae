"""Run the application until it is told to stop."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping

import uvicorn

from seq2see.errors import UserError
from seq2see.seq2seq import Seq2Seq
from seq2see.serve.app import create_app
from seq2see.serve.limits import Limits

LOOPBACK = {"127.0.0.1", "::1", "localhost"}


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


def serve(
    models: Mapping[str, Seq2Seq], host: str, port: int, ready: Callable[[str], None], limits: Limits
) -> None:
    """Serve until SIGINT or SIGTERM, then finish what was taken; ``ready`` is told the address."""
    listener = listen(host, port)
    name = f"[{host}]" if ":" in host else host
    address = f"http://{name}:{listener.getsockname()[1]}/"
    # On loopback no other name leads here, unless some page on the web pretends that it does.
    hosts = [*LOOPBACK, "[::1]"] if host in LOOPBACK else ["*"]
    config = uvicorn.Config(
        create_app(models, limits, hosts), log_level="warning", access_log=False, server_header=False,
        timeout_graceful_shutdown=int(limits.seconds),
    )  # fmt: skip
    ready(address)
    uvicorn.Server(config).run(sockets=[listener])
