"""A real server in a fork, its memory, files and threads, and the least of a client: raw sockets."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import socket
import time
from pathlib import Path
from typing import Any

from soak.child import Ended, Fork

QUICK = dict(seconds=15.0, head_seconds=1.0, idle_seconds=1.0)  # limits for a short form
JSON = "Content-Type: application/json\r\n"


class Server:
    """`seq2see serve`: the same function with the same limits, or with quicker ones."""

    def __init__(self, root: Path, *models: str, quick: bool = False, files: int | None = None) -> None:
        from seq2see.serve.batching import Limits

        self.limits = Limits(**QUICK) if quick else Limits()
        self.port, self.log = 0, root / "server.log"

        def action() -> int:
            import seq2see
            from seq2see.serve.server import serve

            loaded = {name: seq2see.load(name) for name in models}
            serve(loaded, "127.0.0.1", 0, lambda address: print(address, flush=True), self.limits)
            return 0

        def few_files() -> None:
            if files is not None:
                resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

        self.fork = Fork(action, self.log, few_files, patience=7200)
        until = time.monotonic() + 180
        while not (
            found := re.search(r"http://127\.0\.0\.1:(\d+)/", self.log.read_text() if self.log.exists() else "")
        ):
            assert time.monotonic() < until, f"the server does not begin: {self.log.read_text()}"
            time.sleep(0.02)
        self.port = int(found[1])
        while self.get("/healthz")[0] != 200:
            assert time.monotonic() < until, "the server does not answer"
            time.sleep(0.02)

    # --- what it holds -----------------------------------------------------------------------------------

    def _status(self, name: str) -> int:
        text = Path(f"/proc/{self.fork.pid}/status").read_text()
        found = re.search(rf"{name}:\s+(\d+)", text)
        assert found is not None
        return int(found[1])

    @property
    def memory(self) -> int:
        """MiB in memory."""
        return self._status("VmRSS") // 1024

    @property
    def worked(self) -> float:
        """Seconds of processor time of all its threads."""
        return time.clock_gettime((~self.fork.pid << 3) | 2)  # what clock_getcpuclockid(3) returns

    @property
    def threads(self) -> int:
        """Threads at work."""
        return self._status("Threads")

    @property
    def files(self) -> int:
        """Open files and connections."""
        return len(os.listdir(f"/proc/{self.fork.pid}/fd"))  # noqa: PTH208 - names alone

    # --- what it is asked ----------------------------------------------------------------------------------

    def connect(self, timeout: float = 30) -> socket.socket:
        """Open a connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout)

    def ask(self, data: bytes, timeout: float = 30, more: bool = True) -> bytes:
        """Send bytes, and read to the end of the answer; with ``more`` False say that no more will come."""
        with self.connect(timeout) as one:
            try:
                one.sendall(data)
                if not more:
                    one.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            return drained(one)

    def get(self, path: str) -> tuple[int, bytes]:
        """Ask for a page."""
        try:
            return parted(self.ask(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()))
        except OSError:
            return 0, b""

    def post(self, path: str, body: Any, timeout: float = 120) -> tuple[int, bytes]:
        """Ask with JSON."""
        return parted(self.ask(request(path, body, "Connection: close\r\n"), timeout))

    def end(self, sort: signal.Signals = signal.SIGTERM) -> Ended:
        """Ask it to end, and wait for that."""
        os.kill(self.fork.pid, sort)
        return self.fork.wait()


def request(path: str, body: Any, headers: str = "") -> bytes:
    """Write a request with JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{JSON}{headers}Content-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


def drained(one: socket.socket) -> bytes:
    """Read until the other side closes, or is silent for too long."""
    parts = []
    try:
        while part := one.recv(1 << 16):
            parts.append(part)
    except OSError:
        pass
    return b"".join(parts)


def parted(answer: bytes) -> tuple[int, bytes]:
    """Return the status and the body of an answer; status 0 if there is none."""
    head, _, body = answer.partition(b"\r\n\r\n")
    words = head.split()
    return (int(words[1]) if len(words) > 1 and words[0].startswith(b"HTTP/") else 0), body
