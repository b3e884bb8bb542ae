"""Resources of this machine: cores, free cores, memory, instructions; and helpers for threads."""

from __future__ import annotations

import gc
import math
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

A = TypeVar("A")
B = TypeVar("B")

AT_ONCE = (
    2  # parts of the work of a GPU or of CTranslate2 at a time: one is searched, the other is prepared or finished
)
SAMPLES = 3  # samples, since a single one is unreliable
PAUSE = 0.001  # seconds between them
NEVER = 2**31 - 1  # collections of young objects before one of all objects
_asked: int | None = None  # how many threads the user wants
BRISK = 0.0002  # seconds after which a thread of Python gives way to another
_brisk: list[float] = []  # its value before the first change, and the number of users
_brisk_lock = Lock()


def use(threads: int | None) -> None:
    """Set the number of threads for all later work; None lets this module decide."""
    global _asked
    _asked = threads


def cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def workers() -> int:
    """Count the workers for independent inputs: all cores, or as many as the user requested.

    They do not wait for each other, so a busy core slows down only one of them.
    """
    return cores() if _asked is None else _asked


def free_cores() -> int:
    """Count the cores that are free, at least one; or return the number that the user requested.

    Threads that share a matrix product wait for each other. If other processes use the same cores, two
    threads take several times as long as one.
    """
    total, busy = cores(), 0
    if _asked is not None:
        return _asked
    if total == 1:
        return 1
    for number in range(SAMPLES):
        found = _others()
        busy = found if number == 0 else min(busy, found)
        if busy == 0:
            break
        time.sleep(PAUSE)
    everywhere = max(total, os.cpu_count() or 1)  # other processes may have further cores
    return min(total, max(1, everywhere - busy))


def memory() -> int | None:
    """Return the bytes of memory; None if the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def open_files() -> int:
    """Return how many files this process may have open; Windows sets no limit that matters to a server."""
    try:
        import resource
    except ImportError:
        return sys.maxsize
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def processor() -> dict[str, str]:
    """Return the system's description of its first core ("model name", "flags", …), or an empty dict."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    told = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in told}


def instructions() -> frozenset[str]:
    """Name what the processor can do (amx_bf16, avx2, asimddp)."""
    told = processor()
    return frozenset((told.get("flags") or told.get("Features") or "").split())


def _others() -> int:
    """Count the other threads that run or wait for a core now; 0 if the system does not tell."""
    try:
        text = Path("/proc/loadavg").read_text(encoding="ascii")
        return max(0, int(text.split()[3].split("/")[0]) - 1)
    except (OSError, ValueError, IndexError):
        return 0


class _Pauses:
    """How many threads want no garbage collection now, and whether it was on before the first of them."""

    lock, count, was_on = Lock(), 0, True


@contextmanager
def uncollected() -> Iterator[None]:
    """Pause garbage collection, for all threads, until the last that asked for it has ended.

    It would scan millions of texts and ids, which form no cycles. And it may free a CUDA graph while another one is
    captured, which CUDA does not allow.
    """
    with _Pauses.lock:
        if _Pauses.count == 0:
            _Pauses.was_on = gc.isenabled()
        _Pauses.count += 1
        gc.disable()
    try:
        yield
    finally:
        with _Pauses.lock:
            _Pauses.count -= 1
            if _Pauses.count == 0 and _Pauses.was_on:
                gc.enable()


@contextmanager
def collected_by_hand() -> Iterator[None]:
    """Leave long-lived objects to ``gc.collect()``: all threads wait while a collection visits them.

    Existing objects are not visited again. New objects are still collected while they are few.
    """
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*before[:2], NEVER)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if not frozen:
            gc.unfreeze()


@contextmanager
def brisk() -> Iterator[None]:
    """Switch between Python threads more often: the one that feeds a GPU must not wait long for the others."""
    with _brisk_lock:
        _brisk.append(_brisk[0] if _brisk else sys.getswitchinterval())
        sys.setswitchinterval(BRISK)
    try:
        yield
    finally:
        with _brisk_lock:
            before = _brisk.pop()
            if not _brisk:
                sys.setswitchinterval(before)


def ahead(
    function: Callable[[A], B], parts: Iterable[A], shared: ThreadPoolExecutor | None = None
) -> Iterator[tuple[A, B]]:
    """Run parts of some work in threads, a few at a time; yield each part and its result in order.

    Threads that are ``shared`` by several callers get all parts at once, and take those of the first caller first.
    """
    from concurrent.futures import Future, ThreadPoolExecutor

    most = 2 * AT_ONCE if shared is None else math.inf
    with brisk(), ThreadPoolExecutor(AT_ONCE) if shared is None else nullcontext(shared) as pool:
        waiting: deque[tuple[A, Future[B]]] = deque()
        try:
            for part in parts:
                waiting.append((part, pool.submit(function, part)))
                if len(waiting) > most:
                    first, done = waiting.popleft()
                    yield first, done.result()
            while waiting:
                first, done = waiting.popleft()
                yield first, done.result()
        finally:
            for _, left_out in waiting:
                left_out.cancel()
