"""Builds the kernels of a training step in parallel, before the first step needs them.

Triton builds a kernel at its first call: a second or two each, once per machine. Here each is called in its own thread
on small dummy tensors of the types of the step. A kernel that was built for other types is built again at its call, so
this cannot change a result.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress

import torch
from torch import Tensor

from seq2see.config import ModelConfig
from seq2see.kernels.operators import HAS_TRITON, SMALL

ROWS = 128  # tokens of a batch are a multiple of this


def preload(config: ModelConfig, smoothing: float, pad: int, dtype: torch.dtype, device: torch.device) -> Future[None]:
    """Begin to build all kernels for the training of a model of this shape; return what is done when they are built."""
    pool = ThreadPoolExecutor(1, thread_name_prefix="seq2see-kernels")
    built = pool.submit(_build, config, smoothing, pad, dtype, device)
    pool.shutdown(wait=False)
    return built


def _build(config: ModelConfig, smoothing: float, pad: int, dtype: torch.dtype, device: torch.device) -> None:
    if not HAS_TRITON or device.type != "cuda":
        return
    with suppress(Exception):  # a failure, here or below, is reported by the step
        import triton

        triton.runtime.driver.active.get_current_device()  # before many threads ask for it
    calls = calls_of(config, smoothing, pad, dtype, device)

    def build(call: Callable[[], object]) -> None:
        with torch.cuda.device(device), torch.no_grad():
            call()

    with ThreadPoolExecutor(len(calls)) as pool:
        wait([pool.submit(build, call) for call in calls])


def calls_of(
    config: ModelConfig, smoothing: float, pad: int, dtype: torch.dtype, device: torch.device
) -> list[Callable[[], object]]:
    """Return a call for each kernel."""
    from seq2see.kernels import packed

    assert config.d_k is not None
    assert config.d_v is not None
    H, K, V = config.heads, config.d_k, config.d_v

    def rows(width: int) -> Tensor:
        return torch.zeros(ROWS, width, dtype=dtype, device=device)

    def heads() -> list[Tensor]:
        """Return q, k and v, or their gradients, side by side as a product gives them."""
        parts = torch.split(rows(H * (2 * K + V)), [H * K, H * K, H * V], dim=1)
        return [part.view(ROWS, H, -1) for part in parts]

    (q, k, v), (dq, dk, dv) = heads(), heads()
    z, dz = (rows(H * V).view(ROWS, H, V) for _ in range(2))
    first, end = (torch.zeros(ROWS, dtype=torch.int32, device=device) for _ in range(2))
    logs, shares = (torch.zeros(H, ROWS, device=device) for _ in range(2))
    calls: list[Callable[[], object]] = [
        lambda: packed.attend(q, k, v, first, end),
        lambda: packed.to_queries(q, k, v, first, end, z, logs, dz, shares, dq),
        lambda: packed.to_keys(q, k, v, first, end, first, end, logs, dz, shares, dk, dv),
    ]
    if config.d_model <= SMALL:
        return calls
    # The kernels that only wide models have: the loss, relu, Add & Norm.
    from seq2see.kernels import add_norm, loss, relu_gradient

    x, hidden, logits = rows(config.d_model), rows(config.d_ff), rows(config.target_vocabulary)
    each, right = torch.zeros(ROWS, device=device), torch.zeros(ROWS, dtype=torch.int64, device=device)
    weight, bias = x[:2]
    calls += [
        lambda: loss.losses(logits, right, pad, smoothing),
        lambda: loss.gradient(logits, right, each, each, pad, smoothing),
    ]
    if config.activation == "relu":
        calls.append(lambda: relu_gradient.masked(hidden, hidden))
    if config.norm == "post":
        calls += [
            lambda: add_norm.normed(x, x, weight, bias, right[:1], config.dropout, 1e-5),
            lambda: add_norm.backward(x, x, each, each, right[:1], weight, config.dropout),
        ]
    return calls
