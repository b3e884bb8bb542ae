"""Many processes that train one model, started by torchrun: what they agree on, and how they divide the work.

PyTorch's DDP averages the gradients. In a single process every function here does nothing, so that the training loop
is the same for one process and for many.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from seq2see.errors import UserError

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

T = TypeVar("T")
WAIT = timedelta(hours=2)  # time for the first process to evaluate; if it dies, torchrun ends the others at once


def join(device: str) -> tuple[str, bool]:
    """Join the processes of torchrun, if there are any; return this process's device, and whether this is a restart.

    torchrun restarts all processes when one has died, and when a machine joins or leaves. With ``auto``, either each
    process has its own GPU, or none has one.
    """
    if not (dist.is_available() and dist.is_torchelastic_launched()) or dist.is_initialized():
        return device, False
    local, count = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
    if device == "auto":
        device = "cuda" if int(os.environ["LOCAL_WORLD_SIZE"]) <= count else "cpu"
    if device != "cpu":
        if local >= count:
            raise UserError(
                f"torchrun has started {os.environ['LOCAL_WORLD_SIZE']} processes here, but PyTorch sees {count} "
                f"GPUs: use --nproc-per-node {count}, or --device cpu."
            )
        device = f"cuda:{local}"
        torch.cuda.set_device(local)
    store, number, count = next(dist.rendezvous("env://", timeout=WAIT))  # type: ignore[attr-defined]
    start = _start(store, number, count)
    dist.init_process_group(
        "gloo" if device == "cpu" else "cpu:gloo,cuda:nccl",
        store=dist.PrefixStore(f"start {start}", store),  # type: ignore[attr-defined]
        rank=number,
        world_size=count,
        timeout=WAIT,
    )
    # The store may be new at each start, so torchrun's own count is used too; it counts the deaths on this machine only.
    return device, any_of(start > 1 or os.environ["TORCHELASTIC_RESTART_COUNT"] != "0")


def _start(store: Store, number: int, count: int) -> int:
    """Agree on how many times the processes have been started by now.

    torchrun's store outlives the processes, and a new process could take the address of a dead one from it (PyTorch
    issues 135712 and 167288). So each start uses its own part of the store. The first process numbers the starts. It
    answers every request for the number until all living processes have confirmed it; a request may also be left over
    from a dead process, which never confirms.
    """
    if number:
        place = store.add("knocks", 1)
        start = int(store.get(f"answer {place}"))  # waits for it
        store.add(f"heard {start}", 1)
        return start
    start, answered = store.add("starts", 1), 0
    while store.add(f"heard {start}", 0) < count - 1:
        for place in range(answered + 1, store.add("knocks", 0) + 1):
            store.set(f"answer {place}", str(start))
            answered = place
        time.sleep(0.01)
    return start


def leave() -> None:
    """Leave the group, after all processes have reached this point."""
    if dist.is_available() and dist.is_initialized():
        wait()
        dist.destroy_process_group()


def size() -> int:
    """Return the number of processes."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Return the number of this process, counted from 0."""
    return dist.get_rank() if size() > 1 else 0


def first() -> bool:
    """Whether this is the process that writes files, prints and evaluates."""
    return rank() == 0


def seed(start: int, step: int) -> None:
    """Seed each process differently, by the step alone, so that a resumed run has the same dropout."""
    if size() > 1:
        torch.manual_seed(int(np.random.SeedSequence([start, step, rank()]).generate_state(1)[0]))


# --- what all agree on ---------------------------------------------------------------------------------------------


def mean(value: Tensor) -> Tensor:
    """Return the mean over the processes; gradients are averaged in the same way."""
    if size() == 1:
        return value
    value = value / size()
    dist.all_reduce(value)
    return value


def any_of(flag: bool) -> bool:
    """Whether the flag is true in any process."""
    if size() == 1:
        return flag
    seen = torch.tensor(int(flag))
    dist.all_reduce(seen, dist.ReduceOp.MAX)
    return bool(seen)


def from_first(value: T) -> T:
    """Return the value of the first process."""
    if size() == 1:
        return value
    told = [value]
    try:
        dist.broadcast_object_list(told, src=0)
    except RuntimeError:
        if first():
            raise
        raise UserError("The first process has ended: its message says why.") from None
    return told[0]


def wait() -> None:
    """Wait until all processes have reached this point."""
    any_of(False)


# --- how the work is divided ------------------------------------------------------------------------------------


def averaging(objective: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Keep the whole model in every process, and let backward average the gradients (DDP)."""
    if size() == 1:
        return objective
    assert isinstance(objective, nn.Module)
    averaged = DistributedDataParallel(objective)
    averaged.broadcast_buffers = False  # they never change; as an argument it warns from PyTorch 2.13 on
    return averaged


def exchange(loss: object, now: bool) -> None:
    """Set whether the next backward exchanges gradients with the others, or only adds them up in this process."""
    if isinstance(loss, DistributedDataParallel):
        loss.require_backward_grad_sync = now  # what its no_sync() does


def gathered(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return copies on the CPU in the first process, and nothing in the others."""
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items() if first()}
