"""Settings of PyTorch on a CPU while some work runs: the number of threads, and whether oneDNN multiplies."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

import torch

_without, _lock, _found_on = 0, Lock(), True


@contextmanager
def threads_of(count: int) -> Iterator[None]:
    """Run every matrix product on this number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def without_onednn() -> Iterator[None]:
    """Turn oneDNN off on ARM, where it prepares each product again, which takes longer.

    All threads share one switch. The first thread that enters turns it off; the last that leaves turns it on again.
    """
    global _without, _found_on
    if platform.machine() not in ("aarch64", "arm64"):
        yield
        return
    with _lock:
        if _without == 0:
            _found_on = bool(torch.backends.mkldnn.enabled)
            torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
        _without += 1
    try:
        yield
    finally:
        with _lock:
            _without -= 1
            if _without == 0:
                torch.backends.mkldnn.enabled = _found_on  # type: ignore[assignment]
