"""``seq2see serve`` under load, beside the same model in a handler that does not batch."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.clients import Pair, Service, Tally, besiege, dates, ours, plain
from benchmarks.measure import Line

ROOT = Path(__file__).parent.parent  # where ``python -m benchmarks`` is found
CLIENTS = 200
TURN = 12.0  # seconds; five turns make a minute
CROWD, MANY = 1_500, 32  # clients, and dates in each of their requests, that are more than the queue takes
ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)/")


@dataclass(frozen=True)
class Server:
    """A server in a process of its own."""

    process: subprocess.Popen[str]
    port: int

    def cpu(self) -> float:
        """Return the seconds of processor time that it has used; 0 where the system does not say."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def running(*module: str) -> Iterator[Server]:
    """Start a server and wait until it answers."""
    with subprocess.Popen(
        [sys.executable, "-m", *module], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            found = ADDRESS.search(line)
            assert found, f"the server said no address: {line}"
            server = Server(process, int(found[1]))
            wait_for(server.port)
            yield server
        finally:
            process.kill()


def wait_for(port: int) -> None:
    """Wait until somebody listens on a port."""
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except ConnectionRefusedError:
            time.sleep(0.05)
    raise TimeoutError(f"nobody listens on port {port}")


def serve_load(rounds: int, turn: float = TURN, clients: int = CLIENTS, crowd: int = CROWD) -> Line:
    """Measure requests a second and latencies; then more clients than the queue takes; then an end under load."""
    pairs = dates(20_000)
    tallies: dict[str, Tally] = {}
    seconds: dict[str, list[float]] = {}
    cpu: dict[str, float] = {}
    with ExitStack() as stack:
        mine = stack.enter_context(running("seq2see", "serve", "--port", "0"))
        module = "benchmarks.plain_server"
        peers = {
            "FastAPI handler, model(text)": stack.enter_context(running(module, "threads")),
            "the same, async def": stack.enter_context(running(module)),
        }
        contestants: dict[str, tuple[Server, Service]] = {
            "seq2see serve": (mine, ours(mine.port)),
            "seq2see serve, probabilities": (mine, ours(mine.port, probabilities=True)),
            **{who: (server, plain(server.port)) for who, server in peers.items()},
        }
        asked = 0  # of ours, all told
        for server, service in contestants.values():
            warm = besiege(service, pairs, clients, min(turn, 1.0))
            asked += warm.answered if server is mine else 0
        for _ in range(rounds):
            for who, (server, service) in contestants.items():
                before = server.cpu()
                tally = besiege(service, pairs, clients, turn)
                cpu[who] = cpu.get(who, 0.0) + server.cpu() - before
                seconds.setdefault(who, []).append(1000 * tally.seconds / max(1, tally.answered))
                tallies.setdefault(who, Tally()).add(tally)
                asked += tally.answered if server is mine else 0
        overload = besiege(ours(mine.port, MANY), pairs, crowd, min(turn, 6.0))
        ended, said = _ended_under_load(mine, pairs, clients, min(turn, 6.0))
    asked += overload.answered + ended.answered
    return _line(seconds, tallies, cpu, overload, ended, said, asked, clients, crowd)


def _ended_under_load(server: Server, pairs: list[Pair], clients: int, seconds: float) -> tuple[Tally, str]:
    """Terminate a server while its clients ask; return what they saw and what it said."""
    tally = besiege(ours(server.port), pairs, clients, seconds, lambda: server.process.send_signal(signal.SIGTERM))
    out, _ = server.process.communicate(timeout=60)
    return tally, out


def _line(
    seconds: dict[str, list[float]],
    tallies: dict[str, Tally],
    cpu: dict[str, float],
    overload: Tally,
    ended: Tally,
    said: str,
    asked: int,
    clients: int,
    crowd: int,
) -> Line:
    counts = [int(text.replace(",", "")) for text in re.findall(r"([\d,]+) requests accepted, ([\d,]+)", said)[-1]]
    all_right = not any(tally.wrong or set(tally.statuses) != {200} for tally in tallies.values())
    faults = sum(count for status, count in overload.statuses.items() if status >= 500)
    details: dict[str, Any] = {
        "clients": clients,
        "served": {
            who: {**tally.record(), "server_cpu_us": 1e6 * cpu[who] / max(1, tally.answered)}
            for who, tally in tallies.items()
        },
        "overload": {"clients": crowd, **overload.record(), "without_retry_after": overload.unpromising},
        "terminated": {
            **ended.record(),
            "server_taken": counts[0],
            "server_answered": counts[1],
            "clients_received": asked,
        },
    }
    notes = [
        f"{who}: p50 {tally.latency(0.5):.0f} ms, p99 {tally.latency(0.99):.0f} ms, "
        f"{1e6 * cpu[who] / max(1, tally.answered):.0f} µs of the server's CPU a request; "
        f"{tally.answered:,} answers, {tally.answered - tally.statuses[200]:,} not 200, {tally.wrong:,} wrong"
        for who, tally in tallies.items()
    ]
    notes.append(
        f"overload, {crowd:,} clients with {MANY} dates each: {overload.statuses[200]:,} "
        f"answered, {overload.statuses[429]:,} told 429 ({overload.unpromising} without Retry-After), {faults} 5xx, "
        f"{overload.wrong} wrong, {overload.cut + overload.untaken} without an answer"
    )
    notes.append(
        f"kill -TERM with {clients} clients asking: {counts[0]:,} requests taken since the start, "
        f"{counts[1]:,} answered, {asked:,} answers received; {ended.wrong} wrong, "
        f"{ended.cut} cut, {ended.untaken} sent but never taken"
    )
    return Line(
        "serve-load", f"{clients} clients ask one date after the other, keep-alive", "requests", 1000, seconds,
        "more than the handler", agree="all answers right, each with its question, all 200" if all_right else "FAULTS",
        notes=notes, details=details,
    )  # fmt: skip


LINES: dict[str, Callable[[int], Line]] = {"serve-load": serve_load}
