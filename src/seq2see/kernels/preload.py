"""Builds the kernels of a training step in parallel, before the first step needs them.

Triton builds a kernel at its first call: a second or two each, once per machine. Here each is called in its own thread
on small dummy tensors of the types of the step. A kernel that was built for other types is built again at its call, so
this cannot change a result.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

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
    calls = calls_of(config, smoothing, pad, dtype, device)

    def build(call: Callable[[], object]) -> None:
        with torch.cuda.device(device), torch.no_grad():
            call()

    with ThreadPoolExecutor(len(calls)) as pool:
        wait([pool.submit(build, _begin)])
        wait([pool.submit(build, call) for call in calls])  # a failure here is reported by the step


def _begin() -> None:
    """Initialise Triton before many threads use it."""
    import triton

    triton.runtime.driver.active.get_current_device()


def calls_of(
    config: ModelConfig, smoothing: float, pad: int, dtype: torch.dtype, device: torch.device
) -> list[Callable[[], object]]:
    """Return a call for each kernel."""
    from seq2see.kernels import packed

    assert config.d_k is not None
    assert config.d_v is not None
    H, K, V = config.heads, config.d_k, config.d_v

    def rows(width: int, kind: torch.dtype = dtype) -> Tensor:
        return torch.zeros(ROWS, width, dtype=kind, device=device)

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
    return [*calls, *_of_wide(config, smoothing, pad, rows)]


def _of_wide(
    config: ModelConfig, smoothing: float, pad: int, rows: Callable[..., Tensor]
) -> list[Callable[[], object]]:
    """Return the calls for the kernels that only wide models have: the loss, relu, Add & Norm."""
    from seq2see.kernels import add_norm, loss, relu_gradient

    D = config.d_model
    logits, right = rows(config.target_vocabulary), rows(1, torch.int64)[:, 0].contiguous()
    each = rows(1, torch.float32)[:, 0].contiguous()
    calls: list[Callable[[], object]] = [
        lambda: loss.losses(logits, right, pad, smoothing),
        lambda: loss.gradient(logits, right, each, each, pad, smoothing),
    ]
    if config.activation == "relu":
        hidden = rows(config.d_ff)
        calls.append(lambda: relu_gradient.masked(hidden, hidden))
    if config.norm == "post":
        x, (weight, bias) = rows(D), rows(D)[:2]
        seed = rows(1, torch.int64)[0]
        calls += [
            lambda: add_norm.normed(x, x, weight, bias, seed, config.dropout, 1e-5),
            lambda: add_norm.backward(x, x, each, each, seed, weight, config.dropout),
        ]
    return calls
