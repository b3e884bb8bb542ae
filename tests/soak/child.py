"""Attempts in forks of one process that has everything imported: a crash, a hang or a flood stays in the fork."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FAILED = 99  # the status of a fork that ended by an exception
PATIENCE = 180  # seconds of an attempt; the machine may be busy
MEMORY = 8 << 30  # bytes of addresses
ROOM = 1200  # MiB that an attempt may take beyond what its parent has
MiB = 1 << 20


def warm() -> None:
    """Import all that the attempts need. What a fork does not import, it need not wait for."""
    import torch

    torch.set_num_threads(1)
    torch.optim.Adam([torch.zeros(1, requires_grad=True)])  # imports torch._dynamo
    import seq2see.cli
    import seq2see.decoding.ctranslate2_engine
    import seq2see.inspection.plots
    import seq2see.interchange.to_ctranslate2
    import seq2see.seq2seq
    import seq2see.serve.server
    import seq2see.training.job

    for name in dict.fromkeys(seq2see.cli.HOMES.values()):
        __import__(f"seq2see.cli.{name}")


@dataclass(frozen=True)
class Ended:
    """How an attempt ended."""

    status: int  # of the process; negative for a signal
    said: str  # on both outputs
    returned: Any  # by the action, if it came so far
    peak: int  # MiB beyond those of the parent
    seconds: float

    @property
    def fault(self) -> tuple[str, str] | None:
        """What is wrong whatever was tried: a hang, a signal, a traceback, a flood, an order to the terminal."""
        tail = self.said[-500:]
        if self.status == -signal.SIGALRM:
            return "hung", f"after {self.seconds:.0f} s: {tail}"
        if self.status < 0:
            return "crashed", f"{signal.Signals(-self.status).name}: {tail}"
        if self.status == FAILED or "Traceback (most recent call last)" in self.said or "panicked" in self.said:
            return "crashed", tail
        if self.status not in (0, 1, 2, 130):
            return "crashed", f"status {self.status}: {tail}"
        if "\x1b]" in self.said:
            return "wrong", f"an order reaches the terminal: {self.said[:200]!r}"
        return ("leaked", f"{self.peak} MiB: {tail}") if self.peak > ROOM else None


class Fork:
    """An attempt under way. ``prepare`` runs in the fork before its action, and may replace parts of the product."""

    def __init__(
        self,
        action: Callable[[], Any],
        log: Path,
        prepare: Callable[[], None] = lambda: None,
        patience: float = PATIENCE,
        memory: int = MEMORY,
    ) -> None:
        self.log, self.began, self.before = log, time.monotonic(), _resident()
        sys.stdout.flush()
        sys.stderr.flush()
        self.read, write = os.pipe()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        self.pid = os.fork()
        if self.pid == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # until the command has a handler of its own
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            self._be(action, prepare, write, patience, memory)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(write)

    def _be(
        self, action: Callable[[], Any], prepare: Callable[[], None], write: int, patience: float, memory: int
    ) -> None:
        status = FAILED
        try:
            output = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(output, 1)
            os.dup2(output, 2)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, patience)
            prepare()
            returned = action()
            os.write(write, json.dumps(returned).encode())
            status = returned if isinstance(returned, int) else 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def wait(self) -> Ended:
        """Wait for its end."""
        parts = []
        while part := os.read(self.read, 1 << 16):
            parts.append(part)
        os.close(self.read)
        _, status, usage = os.wait4(self.pid, 0)
        returned = json.loads(b"".join(parts)) if parts else None
        said = self.log.read_bytes()[:200_000].decode(errors="replace")
        peak = usage.ru_maxrss // 1024 - self.before
        code = os.waitstatus_to_exitcode(status)
        return Ended(code, said, returned, peak, time.monotonic() - self.began)


def _resident() -> int:
    """Return the MiB that this process has in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // MiB


def command(*arguments: object) -> Callable[[], int]:
    """Return an action that does what `seq2see …` does, and returns its status."""

    def action() -> int:
        import seq2see.cli

        sys.argv = ["seq2see", *map(str, arguments)]
        try:
            seq2see.cli.main()
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else 1 if end.code else 0
        return 0

    return action


def run(*arguments: object, log: Path, **settings: Any) -> Ended:
    """Do what `seq2see …` does, in a fork."""
    return Fork(command(*arguments), log, **settings).wait()
