"""The device for a piece of work: the requested one, or with ``auto`` a GPU if it pays; and what happens if
the GPU's memory is full.

Whether a GPU pays is decided before one is looked for, and the search begins without torch: importing torch
takes longer than a small model needs to answer.
"""

from __future__ import annotations

import gc
import os
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from math import inf
from pathlib import Path
from typing import TypeVar

from seq2see.config import ModelConfig
from seq2see.errors import FullMemoryError, UserError, counted

A = TypeVar("A")
B = TypeVar("B")

TRAINED = 128  # a d_model from which a GPU trains faster, its start included
MANY_PAIRS = 200_000  # from which it does so with any d_model
ANSWERED = 128  # a d_model below which a CPU answers faster, however many inputs there are
SERVED = 256  # a d_model from which a server takes a GPU: its start is paid once
#: Parameters × characters from which a GPU answers sooner, its start included: 300 kB of text for `en-fr`.
ENOUGH = 2**43


@dataclass(frozen=True)
class Work:
    """The amount of work: pairs to learn, or characters to answer."""

    d_model: int
    parameters: int = 0
    pairs: int = 0
    characters: float = 0  # infinite for a server

    @property
    def for_a_gpu(self) -> str:
        """Return why a GPU pays; empty if it does not."""
        if self.pairs:
            if self.d_model >= TRAINED:
                return f"d_model is {self.d_model}"
            return f"there are {self.pairs:,} pairs" if self.pairs >= MANY_PAIRS else ""
        if self.characters == inf:
            return f"d_model is {self.d_model}" if self.d_model >= SERVED else ""
        enough = self.d_model >= ANSWERED and self.parameters * self.characters >= ENOUGH
        return f"there are {self.characters:,.0f} characters for {self.parameters:,} parameters" * enough


def answering(shape: ModelConfig, characters: float) -> Work:
    """Return the work of answering some text."""
    return Work(shape.d_model, shape.parameters, characters=characters)


def lasting(shape: ModelConfig) -> Work:
    """Return the work of a model that stays loaded, for a server or a program."""
    return answering(shape, inf)


@dataclass(frozen=True)
class Choice:
    """A device, and a message about it; empty if there was no choice."""

    device: str
    said: str = ""


CPU = Choice("cpu")


def choose(asked: str, work: Work, look: Callable[[], Sequence[str]]) -> Choice:
    """Return the device for some work: the requested one, or with ``auto`` the one that suits the work.

    ``look`` returns the GPUs. ``auto`` takes the first NVIDIA GPU, and never MPS, which was not measured.
    """
    kind, _, number = asked.partition(":")
    if kind not in ("auto", "cpu", "cuda", "mps") or (number and not (kind == "cuda" and number.isdigit())):
        raise UserError(f"`device` is {asked!r}: auto, cpu, cuda, cuda:1 or mps was expected.")
    if kind == "cpu":
        return CPU
    if kind == "auto":
        why = work.for_a_gpu
        if (not why and not work.pairs) or not any(one.startswith("cuda") for one in look()):
            return CPU
        if why:
            return Choice("cuda", f"The GPU is used, since {why} (--device cpu avoids it).")
        few = f"{counted(work.pairs, 'pair')} with d_model {work.d_model}"
        return Choice("cpu", f"The CPU is used, since {few} are little work (--device cuda takes the GPU).")
    there = [one for one in look() if one.startswith(kind)]
    if not there:
        what = "GPU" if kind == "cuda" else "GPU of Apple (MPS)"
        raise UserError(f"`device` is {asked!r}, but PyTorch sees no {what} here: use 'cpu' or 'auto'.")
    if number and asked not in there:
        raise UserError(f"`device` is {asked!r}, but PyTorch sees {', '.join(there)} here: use one of these.")
    return Choice(asked)


def found() -> list[str]:
    """Return the GPUs that PyTorch can use here; torch is not imported if the system shows none."""
    if "torch" not in sys.modules and not _may_have_one():
        return []
    import torch

    mps = ["mps"] if torch.backends.mps.is_available() else []
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return [*(f"cuda:{number}" for number in range(count)), *mps]


def _may_have_one() -> bool:
    """Whether the system shows a GPU: a device of NVIDIA's or AMD's driver, that of WSL, or a Mac of Apple's make."""
    if find_spec("torch") is None:
        return False
    if sys.platform == "darwin":
        return platform.machine() == "arm64"
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return False
    if sys.platform == "win32":
        return (Path(os.environ.get("SYSTEMROOT", "")) / "System32" / "nvcuda.dll").exists()
    return any(Path(name).exists() for name in ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg"))


def check(device: str) -> None:
    """Refuse a device that is not there."""
    choose(device, Work(d_model=0), found)


def is_cuda(device: str) -> bool:
    """Whether our kernels and CUDA graphs run on the device."""
    return device.startswith("cuda")


# --- a full memory -------------------------------------------------------------------------------------------------


def is_full(error: BaseException) -> bool:
    """Whether an error says that the memory of a GPU is full: PyTorch's own, or one of CUDA's, cuBLAS's or Apple's."""
    if type(error).__name__ == "OutOfMemoryError":
        return True
    said = str(error).lower()
    return isinstance(error, RuntimeError) and ("out of memory" in said or "alloc_failed" in said)


def full(what: str, advice: str = "End other programs there, or use `device` cpu.") -> FullMemoryError:
    """Return the error for something that does not fit into a GPU's memory."""
    return FullMemoryError(f"The GPU's memory is full: there is no room for {what}{_room()}. {advice}")


def _room() -> str:
    """Return how much memory is free, for a message."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return ""
    free, total = (count / 2**30 for count in torch.cuda.mem_get_info())
    return f" ({free:.1f} of {total:.1f} GiB are free)"


def release() -> None:
    """Return unused memory to the GPU; call it after the error is no longer referenced."""
    gc.collect()  # graphs and their buffers refer to each other
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def in_halves(work: Callable[[Sequence[A]], Sequence[B]], items: Sequence[A], what: str) -> list[B]:
    """Process all items together; if the GPU's memory is full, process each half of them, down to single items.

    ``what`` names one item for the error.
    """
    try:
        return [*work(items)]
    except RuntimeError as error:
        if not is_full(error):
            raise
        if len(items) == 1:
            raise full(what) from None
    release()
    half = -(-len(items) // 2)
    return [*in_halves(work, items[:half], what), *in_halves(work, items[half:], what)]
