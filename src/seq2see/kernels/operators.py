"""Every operator of ours: its schema, the shapes of its results and its gradient, registered in one place.

A compiled step from the compiler's cache on disk calls operators by name, without importing them. So all
of them are registered when ``fast`` is imported, with or without Triton. Each runs a kernel of its own module, which is
imported at the first call.

The cache does not depend on the code of these functions. So ``mark_cache`` puts a digest of this folder into its key:
a changed kernel or gradient is compiled again.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from seq2see.kernels.dropout import drops

HAS_TRITON = find_spec("triton") is not None
#: A d_model up to which a training step is captured as it is written: compiling it, and building more kernels than those
#: of attention, takes longer than they save.
SMALL = 256


@cache
def version() -> str:
    """Return a digest of all code of this folder."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.blake2b(b"\0".join(file.read_bytes() for file in files), digest_size=8).hexdigest()


def mark_cache() -> None:
    """Put our version into the key of the compiler's cache; call it before something is compiled."""
    import torch.compiler.config as config

    mark = f"seq2see-{version()}"
    if mark not in config.cache_key_tag:
        config.cache_key_tag = f"{config.cache_key_tag} {mark}".strip()


# --- attention of packed sentences ---------------------------------------------------------------------------------


@torch.library.custom_op("seq2see::attend_packed", mutates_args=())
def attend_packed(
    q: Tensor, k: Tensor, v: Tensor, first: Tensor, end: Tensor, first_query: Tensor, end_query: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the answers (T, H, V) and the log₂ of the softmax's sums (H, T)."""
    from seq2see.kernels.packed import attend

    return attend(q, k, v, first, end)


@attend_packed.register_fake
def _attend_packed_shapes(
    q: Tensor, k: Tensor, v: Tensor, first: Tensor, end: Tensor, first_query: Tensor, end_query: Tensor
) -> tuple[Tensor, Tensor]:
    T, H, _ = q.shape
    return q.new_empty(T, H, v.shape[-1]), q.new_empty(H, T, dtype=torch.float32)


@torch.library.custom_op("seq2see::attend_packed_backward", mutates_args=())
def attend_packed_backward(
    q: Tensor, k: Tensor, v: Tensor, first: Tensor, end: Tensor, first_query: Tensor, end_query: Tensor,
    z: Tensor, logs: Tensor, dz: Tensor,
) -> list[Tensor]:  # fmt: skip
    """Return the gradients of q, k and v, side by side as the products of ``projections`` are.

    So the gradient of a product that was cut into q, k and v, or into k and v, need not be put together again.
    """
    return _gradients_packed(q, k, v, first, end, first_query, end_query, z, logs, dz)


@attend_packed_backward.register_fake
def _attend_packed_backward_shapes(
    q: Tensor, k: Tensor, v: Tensor, first: Tensor, end: Tensor, first_query: Tensor, end_query: Tensor,
    z: Tensor, logs: Tensor, dz: Tensor,
) -> list[Tensor]:  # fmt: skip
    return [q.new_empty(shape) for shape in _pieces(q, k, v)]


def _gradients_packed(q: Tensor, k: Tensor, v: Tensor, *others: Tensor) -> list[Tensor]:
    from seq2see.kernels.packed import backward

    pieces = [q.new_empty(shape) for shape in _pieces(q, k, v)]
    backward(q, k, v, *others, *_cut(pieces, q, k, v))
    return pieces


def _pieces(q: Tensor, k: Tensor, v: Tensor) -> list[tuple[int, int]]:
    """Return the shapes of the gradients: of q, k and v in one piece, or of q alone where k has another length."""
    T, S, (of_q, of_k, of_v) = len(q), len(k), (x.shape[1] * x.shape[2] for x in (q, k, v))
    return [(T, of_q + of_k + of_v)] if T == S else [(T, of_q), (S, of_k + of_v)]


def _cut(pieces: list[Tensor], q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
    """Cut the pieces into the gradients of q (T, H, K), k (S, H, K) and v (S, H, V)."""
    widths = [x.shape[1] * x.shape[2] for x in (q, k, v)]
    if len(pieces) == 1:
        parts = torch.split_with_sizes(pieces[0], widths, 1)
    else:
        parts = (pieces[0], *torch.split_with_sizes(pieces[1], widths[1:], 1))
    return [part.view(-1, *x.shape[1:]) for part, x in zip(parts, (q, k, v), strict=True)]


def _attend_packed_remember(ctx: FunctionCtx, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs, *output)


def _attend_packed_gradient(ctx: FunctionCtx, dz: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    saved: tuple[Tensor, ...] = ctx.saved_tensors  # type: ignore[attr-defined]
    return (*_cut(attend_packed_backward(*saved, dz), *saved[:3]), None, None, None, None)


attend_packed.register_autograd(_attend_packed_gradient, setup_context=_attend_packed_remember)


class AttendPacked(torch.autograd.Function):
    """The answers of ``attend_packed`` in code that is not compiled.

    Calling a registered operator imports PyTorch's compiler, which takes seconds.
    """

    @staticmethod
    def forward(ctx: FunctionCtx, *inputs: Tensor) -> Tensor:
        """Return the answers (T, H, V) of q, k and v and their spans."""
        from seq2see.kernels.packed import attend

        z, logs = attend(*inputs[:5])
        ctx.save_for_backward(*inputs, z, logs)
        return z

    @staticmethod
    def backward(ctx: FunctionCtx, *back: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of q, k and v."""
        saved: tuple[Tensor, ...] = ctx.saved_tensors  # type: ignore[attr-defined]
        return (*_cut(_gradients_packed(*saved, *back), *saved[:3]), None, None, None, None)


# --- Add & Norm ----------------------------------------------------------------------------------------------------


@torch.library.custom_op("seq2see::add_norm", mutates_args=())
def add_norm(
    x: Tensor, h: Tensor, weight: Tensor, bias: Tensor, dropout: float, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return LayerNorm(x + Dropout(h)) for x and h (T, D), and what its gradients need.

    This is the sum (T, D), its rows' means and 1/deviations (T,), and the seed. It is drawn by PyTorch's generator.
    """
    from seq2see.kernels.add_norm import forward

    return forward(x, h, weight, bias, dropout, eps)


@add_norm.register_fake
def _add_norm_shapes(
    x: Tensor, h: Tensor, weight: Tensor, bias: Tensor, dropout: float, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    means, scales = (x.new_empty(len(x), dtype=torch.float32) for _ in range(2))
    return x.new_empty(x.shape), x.new_empty(x.shape), means, scales, x.new_empty(1, dtype=torch.int64)


@torch.library.custom_op("seq2see::add_norm_backward", mutates_args=())
def add_norm_backward(
    back: Tensor, total: Tensor, means: Tensor, scales: Tensor, seed: Tensor, weight: Tensor, dropout: float
) -> list[Tensor]:
    """Return the gradients of x (T, D), of h if it is another one, and of weight and bias in one piece (2, D)."""
    from seq2see.kernels.add_norm import backward

    return backward(back, total, means, scales, seed, weight, dropout)


@add_norm_backward.register_fake
def _add_norm_backward_shapes(
    back: Tensor, total: Tensor, means: Tensor, scales: Tensor, seed: Tensor, weight: Tensor, dropout: float
) -> list[Tensor]:
    of_rows = [back.new_empty(back.shape) for _ in range(2 if drops(dropout) else 1)]
    return [*of_rows, weight.new_empty(2, back.shape[1])]


def _add_norm_remember(ctx: FunctionCtx, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*output[1:], inputs[2])
    ctx.dropout = inputs[4]  # type: ignore[attr-defined]


def _add_norm_gradient(ctx: FunctionCtx, back: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    *of_rows, of_weights = add_norm_backward(back, *ctx.saved_tensors, ctx.dropout)  # type: ignore[attr-defined]
    return of_rows[0], of_rows[-1], of_weights[0], of_weights[1], None, None


add_norm.register_autograd(_add_norm_gradient, setup_context=_add_norm_remember)


# --- the loss ------------------------------------------------------------------------------------------------------


@torch.library.custom_op("seq2see::smoothed_loss", mutates_args=())
def smoothed_loss(x: Tensor, right: Tensor, pad: int, smoothing: float) -> tuple[Tensor, Tensor]:
    """Return the loss of each row of logits (T, V) and the log of its softmax's sum, (T,) each."""
    from seq2see.kernels.loss import losses

    return losses(x, right, pad, smoothing)


@smoothed_loss.register_fake
def _smoothed_loss_shapes(x: Tensor, right: Tensor, pad: int, smoothing: float) -> tuple[Tensor, Tensor]:
    return x.new_empty(len(x), dtype=torch.float32), x.new_empty(len(x), dtype=torch.float32)


@torch.library.custom_op("seq2see::smoothed_loss_backward", mutates_args=())
def smoothed_loss_backward(x: Tensor, right: Tensor, logs: Tensor, back: Tensor, pad: int, smoothing: float) -> Tensor:
    """Return the gradient of the logits (T, V); ``back`` (T,) is that of the losses."""
    from seq2see.kernels.loss import gradient

    return gradient(x, right, logs, back, pad, smoothing)


@smoothed_loss_backward.register_fake
def _smoothed_loss_backward_shapes(
    x: Tensor, right: Tensor, logs: Tensor, back: Tensor, pad: int, smoothing: float
) -> Tensor:
    return x.new_empty(x.shape)


def _smoothed_loss_remember(ctx: FunctionCtx, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, right, *settings = inputs
    ctx.save_for_backward(x, right, output[1])
    ctx.settings = settings  # type: ignore[attr-defined]


def _smoothed_loss_gradient(ctx: FunctionCtx, back: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    return (
        smoothed_loss_backward(*ctx.saved_tensors, back, *ctx.settings),  # type: ignore[attr-defined]
        None,
        None,
        None,
    )


smoothed_loss.register_autograd(_smoothed_loss_gradient, setup_context=_smoothed_loss_remember)


# --- relu of a product ---------------------------------------------------------------------------------------------


@torch.library.custom_op("seq2see::linear_relu", mutates_args=())
def linear_relu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return max(0, x·Wᵀ + b) for x (T, D), by a product that writes its result once."""
    return torch._addmm_activation(bias, x, weight.t())


@linear_relu.register_fake
def _linear_relu_shape(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return x.new_empty(len(x), len(weight))


@torch.library.custom_op("seq2see::relu_gradient", mutates_args=())
def relu_gradient(hidden: Tensor, back: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``back`` (T, F) where ``hidden`` is above 0 and else 0, and its sum over the rows (F,)."""
    from seq2see.kernels.relu_gradient import masked

    return masked(hidden, back)


@relu_gradient.register_fake
def _relu_gradient_shapes(hidden: Tensor, back: Tensor) -> tuple[Tensor, Tensor]:
    return back.new_empty(back.shape), back.new_empty(back.shape[1])


def _linear_relu_remember(ctx: FunctionCtx, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2], output)


def _linear_relu_gradient(ctx: FunctionCtx, back: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    x, weight, hidden = ctx.saved_tensors  # type: ignore[attr-defined]
    if HAS_TRITON and back.is_cuda:
        back, of_bias = relu_gradient(hidden, back)
    else:
        back = torch.where(hidden > 0, back, 0.0)  # (T, F)
        of_bias = back.sum(0)
    return back @ weight, back.t() @ x, of_bias


linear_relu.register_autograd(_linear_relu_gradient, setup_context=_linear_relu_remember)
