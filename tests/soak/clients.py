"""Slow, endless, malformed and greedy clients, while a patient one asks: it gets every answer, and in time."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import threading
import time
from pathlib import Path

from soak.server import JSON, Server, drained, request
from soak.tally import Tally

MESSAGES = 20_000  # malformed ones
FILES = 300  # that the server may open
CROWD = 400  # silent connections
SHORT = 0.01  # the scale up to which little is asked
SLACK = 20  # seconds by which an answer may be late; more on a machine that others keep busy
ROOM = 200  # MiB by which the server may grow
ENDLESS = 20_000_000  # bytes that an endless request may not bring in
GOOD = {"inputs": ["1845-01-05"], "probabilities": False}
HEAD = f"POST /api/predict HTTP/1.1\r\nHost: localhost\r\n{JSON}".encode()
LETTERS = "no " * 600


def slack() -> float:
    """Return the seconds by which an answer may be late now."""
    return SLACK * max(1.0, os.getloadavg()[0] / (2 * (os.cpu_count() or 1)))


class Patient:
    """A client that behaves, in a thread: it asks, checks the answer, and measures how long it waited."""

    def __init__(self, server: Server, tally: Tally) -> None:
        self.server, self.tally, self.longest, self.during = server, tally, 0.0, ""
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        while not self.stopped.wait(0.03 if self.tally.scale > SHORT else 0.3):
            began = time.monotonic()
            try:
                status, body = self.server.post("/api/predict", GOOD)
            except OSError as error:
                self.tally.fault("lost", f"{self.during}: a patient client got no answer ({error})")
                continue
            waited = time.monotonic() - began
            self.longest = max(self.longest, waited)
            if status == 503 and b"took longer" in body and slack() > self.server.limits.seconds:
                self.tally.add("answers of a patient client", "asked to come again on a busy machine")
                continue
            if status != 200 or json.loads(body)["answers"][0]["output"] != "January 5, 1845":
                self.tally.fault("lost", f"{self.during}: a patient client got {status} {body[:200]!r}")
            elif waited > slack():
                self.tally.fault("hung", f"{self.during}: a patient client waited {waited:.0f} s")
            self.tally.add("answers of a patient client", "answered beside them")

    def stop(self) -> None:
        self.stopped.set()
        self.thread.join()


def run(tally: Tally, root: Path) -> None:
    """Let all sorts of clients loose on one server, then end it with some of them connected."""
    server = Server(root, "dates", quick=tally.scale < 0.5, files=FILES)
    for _ in range(tally.share(20, 3)):
        server.post("/api/predict", GOOD)
        server.post("/api/trace", {"input": "1845-01-05"})
    memory, files, threads = server.memory, server.files, server.threads
    patient = Patient(server, tally)
    try:
        for act in (_slow, _endless, _malformed, _greedy, _crowd):
            patient.during = act.__name__.strip("_")
            act(server, tally)
    finally:
        patient.stop()
    time.sleep(2)
    grown = server.memory - memory
    if grown > ROOM or server.files > files + 8 or server.threads > threads + 8:
        tally.fault(
            "leaked",
            f"{memory} → {memory + grown} MiB, {files} → {server.files} files, {threads} → {server.threads} threads",
        )
    tally.remarks.append(
        f"clients: the server grew from {memory} to {memory + grown} MiB; the longest wait of a patient client was "
        f"{patient.longest:.1f} s"
    )
    _end(server, tally)


# --- the clients -------------------------------------------------------------------------------------------------


def _slow(server: Server, tally: Tally) -> None:
    """Open connections that say little or nothing: each is closed in time."""
    kinds = {
        "silence": (b"", b""),
        "half a head": (b"POST /api/predict HTTP/1.1\r\nHost: local", b"h"),
        "a head without end": (HEAD, b"X-a: b\r\n"),
        "half a body": (HEAD + b"Content-Length: 100\r\n\r\n{", b" "),
        "half a chunk": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{", b""),
        "no second request": (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", b""),
    }
    limits = server.limits
    most = limits.seconds + limits.head_seconds + limits.idle_seconds + slack()
    began, open_ = time.monotonic(), {}
    for name, (first, _) in kinds.items():
        open_[name] = server.connect()
        open_[name].sendall(first)
    while open_ and time.monotonic() - began < most:
        time.sleep(0.2)
        for name, one in list(open_.items()):
            if _is_closed(one, kinds[name][1]):
                open_.pop(name).close()
                tally.add("slow and endless clients", "closed")
    for name, one in open_.items():
        tally.fault("hung", f"a slow client with {name} is connected after {most:.0f} s")
        one.close()


def _is_closed(one: socket.socket, more: bytes) -> bool:
    try:
        readable, _, _ = select.select([one], [], [], 0)
        if readable and one.recv(1 << 16) == b"":
            return True
        if more:
            one.sendall(more)
    except OSError:
        return True
    return False


def _endless(server: Server, tally: Tally) -> None:
    """Send heads and bodies without end: each is refused before it fills the memory."""
    start = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
    kinds = {
        "a header line": (start + b"X: ", b"a" * 262_144),
        "a target": (b"GET /", b"a" * 262_144),
        "header lines": (start, b"X-a: b\r\n" * 32_768),
        "chunks": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + b"a" * 65536 + b"\r\n"),
        "a body": (HEAD + b"Content-Length: 999999999\r\n\r\n", b"a" * 262_144),
    }
    for name, (first, more) in kinds.items():
        sent = 0
        with server.connect() as one:
            try:
                one.sendall(first)
                while sent < 2 * ENDLESS:
                    one.sendall(more)
                    sent += len(more)
            except OSError:
                pass
        if sent > ENDLESS:
            tally.fault("leaked", f"the server takes {sent:,} bytes of {name}")
        tally.add("slow and endless clients", "refused")


def _malformed(server: Server, tally: Tally) -> None:
    """Send requests with some bytes changed, and bytes that are no request."""
    draw, good = tally.draw, request("/api/predict", GOOD, "Connection: close\r\n")
    bodies = [
        b"", b"[" * 100_000, b"9" * 5000, b'{"inputs": "\\ud800"}', b"\xff\xfe{}", b'{"inputs": NaN}', b"nul",
        b'{"inputs": ["1845-01-05"], "beam": 1e400}', json.dumps({"inputs": [1] * 100_000}).encode(),
    ]  # fmt: skip
    for _ in range(tally.share(MESSAGES, 50)):
        data = bytearray(good)
        way = draw.random()
        if way < 0.1:
            data = bytearray(draw.randbytes(draw.randint(1, 3000)))
        elif way < 0.2:
            data = bytearray(request(draw.choice(["/api/predict", "/api/trace"]), draw.choice(bodies)))
        else:
            for _ in range(draw.randint(1, 6)):
                at = draw.randrange(len(data))
                data[at : at + draw.randint(0, 3)] = draw.randbytes(draw.randint(0, 4))
        answer = server.ask(bytes(data), more=False)
        if answer and not answer.startswith((b"HTTP/1.1 2", b"HTTP/1.1 4", b"HTTP/1.1 307")):
            tally.fault("crashed", f"{bytes(data)[:300]!r} is answered with {answer[:200]!r}")
        tally.add("malformed messages", "refused or answered")


def _greedy(server: Server, tally: Tally) -> None:
    """Ask for as much as the limits allow, and more; hang up on some of it."""
    kinds = {
        "256 texts, beam 16": (
            "/api/predict",
            {"inputs": ["1845-01-05"] * 256, "beam": 16, "n_best": 16, "align": True},
        ),
        "200,000 numbers": ("/api/predict", {"inputs": [1] * 200_000}),
        "long texts": ("/api/predict", {"inputs": [LETTERS] * 256}),
        "80,000 keys": ("/api/predict", {"inputs": "1845-01-05", **{str(n): 1 for n in range(80_000)}}),
        "globs of brackets": ("/api/trace", {"input": "1845-01-05", "names": ["[" * (15_000 - n) for n in range(60)]}),
        "globs of stars": ("/api/trace", {"input": "1845-01-05", "names": ["*a" * 7000 + str(n) for n in range(60)]}),
        "everything of a trace": ("/api/trace", {"input": "1845-01-05", "also": ["lens"], "beam": 16}),
        "wrong heads": ("/api/trace", {"input": "1845-01-05", "muted": [1] * 200_000}),
    }
    for name in tally.draw.sample(list(kinds), len(kinds) if tally.scale > SHORT else 2):
        path, body = kinds[name]
        began = time.monotonic()
        status, answer = server.post(path, body)
        if status == 0 or status == 500 or time.monotonic() - began > server.limits.seconds + slack():
            tally.fault("hung", f"{name}: {status} after {time.monotonic() - began:.0f} s, {answer[:200]!r}")
        tally.add("greedy clients", "answered" if status == 200 else "refused")
        with server.connect() as one:
            one.sendall(request(path, body))  # nobody waits for this one


def _crowd(server: Server, tally: Tally) -> None:
    """Open more connections than the server may have; each says half a word."""
    crowd = []
    for _ in range(CROWD):
        one = server.connect()
        try:
            one.sendall(b"GET /healthz HTTP/1.1\r\n")
        except OSError:
            one.close()
            continue
        crowd.append(one)
    if server.get("/healthz")[0] != 200:
        tally.fault("hung", f"{len(crowd)} silent connections keep everybody else out")
    time.sleep(1)
    for one in crowd:
        one.close()
    tally.add("slow and endless clients", "in a crowd", CROWD)


def _end(server: Server, tally: Tally) -> None:
    """Ask the server to end while one client is idle, one is half done, and one waits for an answer."""
    idle, half, waiting = (server.connect(60) for _ in range(3))
    half.sendall(HEAD + b"Content-Length: 100\r\n\r\n{")
    waiting.sendall(request("/api/predict", {"inputs": ["2025-09-03"] * 256}))
    time.sleep(0.05)
    began = time.monotonic()
    ended = server.end()
    seconds = time.monotonic() - began
    if seconds > server.limits.seconds + slack():
        tally.fault("hung", f"the server ended {seconds:.0f} s after SIGTERM")
    if ended.status not in (0, -signal.SIGTERM) or "Traceback" in ended.said:
        tally.fault("crashed", f"the server ended with {ended.status}: {ended.said[-400:]}")
    if drained(waiting).count(b"September 3, 2025") < 256:
        tally.fault("lost", "a request that was taken before SIGTERM was not answered")
    for one in (idle, half, waiting):
        one.close()
    tally.add("ends", "ended in time")
