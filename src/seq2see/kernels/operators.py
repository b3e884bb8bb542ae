"""The fast bodies of equation 1, of a norm and of the loss, which one runs when, and their operators.

``model.attention.written_attention`` defines the result of attention. Each body computes the same numbers faster in some
cases, and a test compares it with the written equation in all its cases.

Every operator of ours is here: its schema, the shapes of its results and its gradient, registered in one place.

A compiled step from the compiler's cache on disk calls operators by name, without importing them. So all
of them are registered when this module is imported, with or without Triton. Each runs a kernel of ``training_kernels``,
which is imported at the first call.

The cache does not depend on the code of these functions. So ``mark_cache`` puts a digest of this folder into its key:
a changed kernel or gradient is compiled again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx

from seq2see.config import ModelConfig
from seq2see.kernels.shared import PackedMask, drops
from seq2see.model.masks import Mask

HAS_TRITON = find_spec("triton") is not None
#: A d_model up to which a training step is captured as it is written: compiling it, and building more kernels than those
#: of attention, takes longer than they save.
SMALL = 256
ROWS = 128  # tokens of a batch are a multiple of this


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
    from seq2see.kernels.training_kernels import attend

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
    from seq2see.kernels.training_kernels import attend_backward

    pieces = [q.new_empty(shape) for shape in _pieces(q, k, v)]
    attend_backward(q, k, v, *others, *_cut(pieces, q, k, v))
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
        from seq2see.kernels.training_kernels import attend

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
    from seq2see.kernels.training_kernels import norm_forward

    return norm_forward(x, h, weight, bias, dropout, eps)


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
    from seq2see.kernels.training_kernels import norm_backward

    return norm_backward(back, total, means, scales, seed, weight, dropout)


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
    from seq2see.kernels.training_kernels import losses

    return losses(x, right, pad, smoothing)


@smoothed_loss.register_fake
def _smoothed_loss_shapes(x: Tensor, right: Tensor, pad: int, smoothing: float) -> tuple[Tensor, Tensor]:
    return x.new_empty(len(x), dtype=torch.float32), x.new_empty(len(x), dtype=torch.float32)


@torch.library.custom_op("seq2see::smoothed_loss_backward", mutates_args=())
def smoothed_loss_backward(x: Tensor, right: Tensor, logs: Tensor, back: Tensor, pad: int, smoothing: float) -> Tensor:
    """Return the gradient of the logits (T, V); ``back`` (T,) is that of the losses."""
    from seq2see.kernels.training_kernels import loss_gradient

    return loss_gradient(x, right, logs, back, pad, smoothing)


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
    from seq2see.kernels.training_kernels import masked

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


# --- which body runs when ---------------------------------------------------------------------------------------------


def fast_attention(q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
    """Map q (…, T, H, K) and k, v (…, S, H, K) to (…, T, H, K), by our own kernel or by PyTorch's."""
    return (span_attention if has_own_kernel(q, mask) else pytorch_attention)(q, k, v, mask)


def has_own_kernel(q: Tensor, mask: Mask) -> bool:
    """Whether ``span_attention`` is for this: sentences end to end, (T, H, K), on a GPU with Triton."""
    if not HAS_TRITON or not q.is_cuda or q.dim() != 3 or mask.keys is not None:
        return False
    return isinstance(mask, PackedMask) and mask.spans is not None


def pytorch_attention(q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
    """Map q (…, T, H, K) and k, v (…, S, H, K) to (…, T, H, K) by PyTorch's function, in every case."""
    T, S = q.shape[-3], k.shape[-3]
    # PyTorch has a faster kernel for a mask that is causal and nothing else. It places the first query at the first key.
    alone = mask.causal and mask.keys is None and not isinstance(mask, PackedMask)
    causal = alone and T > 1 and T == S  # T first: an export leaves S open
    allowed = None if causal else mask.allowed(T, S, q.device)
    q, k, v = (x.transpose(-3, -2) for x in (q, k, v))  # (…, H, T, K)
    z = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed, is_causal=causal)
    return z.transpose(-3, -2)  # (…, T, H, K)


def span_attention(q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
    """Map q (T, H, K) and k, v (S, H, K) to (T, H, K) by our own kernel."""
    assert isinstance(mask, PackedMask)
    assert mask.spans is not None
    if torch.compiler.is_compiling():
        z: Tensor = attend_packed(q, k, v, *mask.spans)[0]
        return z
    found: Tensor = AttendPacked.apply(q, k, v, *mask.spans)  # type: ignore[no-untyped-call]
    return found


def summed_loss(logits: Tensor, right: Tensor, pad: int, smoothing: float, written: bool = False) -> Tensor:
    """Return the sum of the cross-entropies of logits (T, V) with smoothed labels (T,), leaving out padding.

    ``written`` uses no kernel of ours.
    """
    if HAS_TRITON and logits.is_cuda and not written:
        each: Tensor = smoothed_loss(logits, right, pad, smoothing)[0]  # (T,)
        return each.sum()
    return F.cross_entropy(logits.float(), right, ignore_index=pad, label_smoothing=smoothing, reduction="sum")


def has_own_norm(x: Tensor, training: bool) -> bool:
    """Whether ``normed_sum`` is for x: in training of packed batches (T, D) on a GPU with Triton, if D is large."""
    return HAS_TRITON and training and x.is_cuda and x.dim() == 2 and x.shape[-1] > SMALL


def normed_sum(x: Tensor, h: Tensor, norm: nn.LayerNorm, dropout: float) -> Tensor:
    """Return LayerNorm(x + Dropout(h)) by our own kernel."""
    out: Tensor = add_norm(x, h, norm.weight, norm.bias, dropout, norm.eps)[0]
    return out


# --- kernels are built before the first step --------------------------------------------------------------------------
#
# Triton builds a kernel at its first call: a second or two each, once per machine. Here each is called in its own thread
# on small dummy tensors of the types of the step. A kernel that was built for other types is built again at its call, so
# this cannot change a result.


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
    from seq2see.kernels import training_kernels as kernels

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
        lambda: kernels.attend(q, k, v, first, end),
        lambda: kernels.to_queries(q, k, v, first, end, z, logs, dz, shares, dq),
        lambda: kernels.to_keys(q, k, v, first, end, first, end, logs, dz, shares, dk, dv),
    ]
    if config.d_model <= SMALL:
        return calls
    # The kernels that only wide models have: the loss, relu, Add & Norm.
    x, hidden, logits = rows(config.d_model), rows(config.d_ff), rows(config.target_vocabulary)
    each, right = torch.zeros(ROWS, device=device), torch.zeros(ROWS, dtype=torch.int64, device=device)
    weight, bias = x[:2]
    calls += [
        lambda: kernels.losses(logits, right, pad, smoothing),
        lambda: kernels.loss_gradient(logits, right, each, each, pad, smoothing),
    ]
    if config.activation == "relu":
        calls.append(lambda: kernels.masked(hidden, hidden))
    if config.norm == "post":
        calls += [
            lambda: kernels.normed(x, x, weight, bias, right[:1], config.dropout, 1e-5),
            lambda: kernels.norm_backward(x, x, each, each, right[:1], weight, config.dropout),
        ]
    return calls
