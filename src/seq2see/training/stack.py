"""The members of an ensemble as one: their weights are in one tensor, and one product computes for all of them.

A small model does not fill a GPU, and each of its kernels takes little longer for five models than for one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from seq2see.data.batching import Batch
from seq2see.model.attention import MultiHeadAttention, strayed
from seq2see.model.ensemble import Ensemble
from seq2see.model.masks import Mask

ALIGNED = 8  # numbers of 16 bits in 16 bytes
#: Not cuDNN's kernel: it uses one block of threads per processor, and there are thousands of short texts.
FOR_SHORT_TEXTS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
STEP = 4  # widths of batches are multiples of this, so that few graphs serve all of them


class Rows(NamedTuple):
    """A padded batch with one width for both sides: ids (B, W), and which of the source are real."""

    source: Tensor
    keys: Tensor
    target_in: Tensor
    target_out: Tensor
    places: Tensor

    @classmethod
    def of(cls, batch: Batch, batch_tokens: int, pads: tuple[int, int]) -> Rows:
        """Widen a batch to a multiple of ``STEP``, and to as many rows as a batch of this width can have."""
        longest = max(batch.source.shape[1], batch.target_in.shape[1] + 1)
        width = -(-longest // STEP) * STEP
        rows = max(len(batch.source), batch_tokens // max(1, width - STEP + 1))
        source = _widened(batch.source, rows, width, pads[0])
        real = batch.source_mask.keys
        if real is None:
            real = torch.ones_like(batch.source, dtype=torch.bool)
        keys = _widened(real, rows, width, 0)
        keys[len(real) :, 0] = True  # every query must see a key, even in an empty row
        target_in, target_out = (
            _widened(ids, rows, width, pads[1]) for ids in (batch.target_in, batch.target_out)
        )
        known = torch.full_like(batch.target_out, -1) if batch.places is None else batch.places
        return cls(source, keys, target_in, target_out, _widened(known, rows, width, -1))

    def twice(self) -> Rows:
        """Return the same texts twice in one batch."""
        return Rows(*(part.repeat(2, 1) for part in self))


def _widened(ids: Tensor, rows: int, width: int, fill: int) -> Tensor:
    return nn.functional.pad(ids, (0, width - ids.shape[1], 0, rows - len(ids)), value=fill)


def _attention(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, causal: bool) -> Tensor:
    """Attend in all members, (M, B, H, T, K) each: for PyTorch's kernel they are one larger batch."""
    M, B = q.shape[:2]
    if allowed is not None:
        allowed = allowed.expand(M, B, *allowed.shape[2:]).flatten(0, 1)
    q, k, v = (x.flatten(0, 1) for x in (q, k, v))
    with sdpa_kernel(FOR_SHORT_TEXTS):
        found = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed, is_causal=causal)
    return found.view(M, -1, *found.shape[1:])


def _normed(x: Tensor, shape: list[int], weight: Tensor, bias: Tensor, epsilon: float) -> Tensor:
    """Normalise x (M, …, D), with a gain and a bias (M, D) of each member."""
    gain, shift = (part.view(len(x), *[1] * (x.dim() - 2), -1) for part in (weight, bias))
    return F.layer_norm(x, shape, eps=epsilon) * gain + shift


class _Products(torch.autograd.Function):
    """Multiply x (M, …, D) by the matrix of each member, (M, E, D): (M, …, E).

    The gradients have the layout of the weights, so they are not copied.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        flat = x.flatten(1, -2)
        ctx.save_for_backward(flat, weight)
        found = (
            torch.bmm(flat, weight.mT) if bias is None else torch.baddbmm(bias.unsqueeze(1), flat, weight.mT)
        )
        ctx.biased = bias is not None
        return found.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        flat, weight = ctx.saved_tensors
        rows = gradient.flatten(1, -2)
        of_bias = rows.sum(1) if ctx.biased else None
        of_x = torch.bmm(rows, weight).view(*gradient.shape[:-1], -1)
        return of_x, torch.bmm(rows.mT, flat), of_bias


class _ForAllMembers(torch.autograd.Function):
    """A function of one member, replaced by one for all members, since ``vmap`` would take many kernels."""

    @staticmethod
    def forward(one: Callable[..., Tensor], every: Callable[..., Tensor], *inputs: Any) -> Tensor:
        return one(*inputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep nothing: the derivative is that of ``every``."""

    @staticmethod
    def vmap(
        info: Any,
        dims: Sequence[int | None],
        one: Callable[..., Tensor],
        every: Callable[..., Tensor],
        *inputs: Any,
    ) -> tuple[Tensor, int]:
        physical = [
            value if not isinstance(value, Tensor)
            else value.unsqueeze(0).expand(info.batch_size, *value.shape) if dim is None
            else value.movedim(dim, 0)
            for value, dim in zip(inputs, dims[2:], strict=True)
        ]  # fmt: skip
        return every(*physical), 0


class Together(TorchFunctionMode):
    """Computes products, attention, norms and dropout for all members at once, by one or two kernels each."""

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Replace four functions of PyTorch."""
        kwargs = kwargs or {}
        given: Sequence[Any]
        every: Callable[..., Tensor]
        if function is F.linear:
            every, given = _Products.apply, (*args, kwargs.get("bias"))[:3]
        elif function is F.scaled_dot_product_attention:
            every, given = _attention, (*args, kwargs.get("attn_mask"), kwargs.get("is_causal", False))
        elif function is F.layer_norm:
            every, given = _normed, (*args, kwargs["weight"], kwargs["bias"], kwargs["eps"])
        elif function is F.dropout:
            every, given = F.dropout, (*args, kwargs["p"], kwargs["training"])
        else:
            return function(*args, **kwargs)
        return _ForAllMembers.apply(function, every, *given)  # type: ignore[no-untyped-call]


class Stack:
    """The weights of all members in one piece, (M, P). The members' own weights become views of it.

    So all of them are cast, clipped and updated by one kernel each.
    """

    def __init__(self, ensemble: Ensemble, dtype: torch.dtype = torch.float32) -> None:
        self.dtype = dtype
        self.guided: MultiHeadAttention | None = None  # in ``one``
        # the code of all members; its own weights are never read
        self.one = copy.deepcopy(ensemble.all[0]).to(dtype)
        named = [dict(member.named_parameters()) for member in ensemble.all]
        # Matrices must begin at multiples of 16 bytes, so tensors of odd sizes come last.
        names = sorted(named[0], key=lambda name: named[0][name].numel() % ALIGNED != 0)
        self.shapes = {name: named[0][name].shape for name in names}
        self.sizes = [shape.numel() for shape in self.shapes.values()]
        filled = -sum(self.sizes) % ALIGNED
        rows = [torch.cat([member[name].detach().flatten() for name in names]) for member in named]
        self.weights = nn.functional.pad(torch.stack(rows), (0, filled)).requires_grad_()
        self.sizes.append(filled)
        for member, row in zip(named, self.weights.detach(), strict=True):
            for parameter, part in zip(
                (member[name] for name in names), torch.split(row, self.sizes), strict=False
            ):
                parameter.data = part.view_as(parameter)

    def logits(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Return the logits of all members, (M, B·W, V), and the losses of their guided heads, (M,)."""

        def of_one(weights: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
            mask = Mask(keys=rows.keys)
            logits: Tensor = functional_call(self.one, weights, (rows.source, rows.target_in, mask))
            astray = torch.zeros((), device=logits.device)
            if self.guided is not None and self.guided.asked is not None:
                astray = strayed(*self.guided.asked, mask, rows.places)
            return logits.flatten(0, 1), astray

        parts = torch.split(self.weights.to(self.dtype), self.sizes, dim=1)
        named = {
            name: part.view(-1, *shape)
            for (name, shape), part in zip(self.shapes.items(), parts, strict=False)
        }
        with Together():
            found: tuple[Tensor, Tensor] = torch.vmap(of_one, randomness="different")(named)
        if self.guided is not None:
            self.guided.asked = None  # these tensors are invalid outside
        return found

    def clip(self, most: float) -> None:
        """Scale the gradients of each member so that their norm is at most ``most``."""
        assert self.weights.grad is not None
        norms = self.weights.grad.norm(dim=1, keepdim=True)  # (M, 1)
        self.weights.grad.mul_((most / (norms + 1e-6)).clamp(max=1.0))
