"""The operations of a decoding step as kernels of our own, in Triton; ``step_written`` defines their results.

The time of a step of few rows is the start of its kernels, so there are few of them: a product normalises its input and
adds the residual to its output. On Hopper and later GPUs, each kernel starts while the last one still runs, reads its
weights, and only then waits for its input.
"""

from __future__ import annotations

import math
from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

EARLY = True  # whether a kernel starts before the last one has ended, if the GPU can
TILE = 8192  # weights that one program of a product reads; fewer if the GPU would be idle
FILLS_A_GPU = 128  # programs of a product
OUTPUT_PART = 16  # logits that one program of the output projection computes
PRODUCT_WARPS, OUTPUT_WARPS = 4, 4
#: Keys that a program of attention reads at a time, and its warps: with few programs, and with many.
FEW_KEYS, MANY_KEYS = (64, 4), (32, 1)
MANY_PROGRAMS = 1024


@cache
def _can_start_early(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device)[0] >= 9


def _early(x: Tensor) -> dict[str, bool]:
    """Return the options of a launch, for an early start if the GPU can."""
    early = EARLY and _can_start_early(x.device)
    return {"PDL": True, "launch_pdl": True} if early else {"PDL": False}


@triton.jit  # type: ignore[untyped-decorator]
def _started(PDL: tl.constexpr):  # type: ignore[no-untyped-def]
    """Let the next kernel start; it waits before it reads this one's output."""
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit  # type: ignore[untyped-decorator]
def _wait(PDL: tl.constexpr):  # type: ignore[no-untyped-def]
    """Wait until the last kernel has written its output."""
    if PDL:
        tl.extra.cuda.gdc_wait()


@triton.jit
def _normalised(x, weight, bias, inside, WIDTH, EPS):  # type: ignore[no-untyped-def]
    """Normalise one row; numbers beyond its width are 0."""
    centred = tl.where(inside, x - tl.sum(x, 0) / WIDTH, 0.0)
    return centred * tl.rsqrt(tl.sum(centred * centred, 0) / WIDTH + EPS) * weight + bias


@triton.jit  # type: ignore[untyped-decorator]
def _embed(  # type: ignore[no-untyped-def]
    ids, position, table, places, weight, bias, out, D, SCALE, EPS, D_ALL: tl.constexpr, NORM: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    _started(PDL)
    row, inner = tl.program_id(0), tl.arange(0, D_ALL)
    inside = inner < D
    _wait(PDL)
    token, place = tl.load(ids + row), tl.load(position)
    x = tl.load(table + token * D + inner, mask=inside, other=0.0).to(tl.float32) * SCALE
    x += tl.load(places + place * D + inner, mask=inside, other=0.0).to(tl.float32)
    if NORM:
        scale = tl.load(weight + inner, mask=inside, other=0.0).to(tl.float32)
        shift = tl.load(bias + inner, mask=inside, other=0.0).to(tl.float32)
        x = _normalised(x, scale, shift, inside, D, EPS)
    tl.store(out + row * D + inner, x.to(out.dtype.element_ty), mask=inside)


def embed(
    ids: Tensor, position: Tensor, table: Tensor, places: Tensor, scale: float, norm: nn.LayerNorm | None
) -> Tensor:
    """Map ids (R,), all at one position (1,), to vectors (R, D)."""
    R, D = len(ids), table.shape[1]
    out = torch.empty(R, D, dtype=table.dtype, device=table.device)
    weight, bias, eps = _of(norm, table)
    _embed[(R,)](
        ids, position, table, places, weight, bias, out, D, scale, eps, triton.next_power_of_2(D), norm is not None,
        **_early(table),
    )  # fmt: skip
    return out


def _of(norm: nn.LayerNorm | None, other: Tensor) -> tuple[Tensor, Tensor, float]:
    """Return a norm's parameters; without a norm, a dummy pointer."""
    return (other, other, 0.0) if norm is None else (norm.weight, norm.bias, norm.eps)


@triton.jit  # type: ignore[untyped-decorator]
def _product(  # type: ignore[no-untyped-def]
    x, weight, bias, scale, shift, residual, residual_scale, residual_shift, out, maxima, logs, R, N, K, EPS,
    RESIDUAL_EPS, parts, K_ALL: tl.constexpr, N_ALL: tl.constexpr, BLOCK: tl.constexpr, BIAS: tl.constexpr,
    NORM: tl.constexpr, ACTIVATION: tl.constexpr, RESIDUAL: tl.constexpr, RESIDUAL_NORM: tl.constexpr,
    PARTS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Compute BLOCK columns of all rows: the weights are read once, before the input."""
    _started(PDL)
    column, inner, wide = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, K_ALL), tl.arange(0, N_ALL))
    here, inside, in_row = column < N, inner < K, wide < N
    w = tl.load(weight + column[:, None] * K + inner[None, :], mask=here[:, None] & inside[None, :], other=0.0)
    if BIAS:
        b = tl.load(bias + column, mask=here, other=0.0).to(tl.float32)
    if NORM:
        norm_scale = tl.load(scale + inner, mask=inside, other=0.0).to(tl.float32)
        norm_shift = tl.load(shift + inner, mask=inside, other=0.0).to(tl.float32)
    if RESIDUAL_NORM:
        r_scale = tl.load(residual_scale + column, mask=here, other=0.0).to(tl.float32)
        r_shift = tl.load(residual_shift + column, mask=here, other=0.0).to(tl.float32)
    _wait(PDL)
    for row in range(R):
        given = tl.load(x + row * K + inner, mask=inside, other=0.0).to(tl.float32)
        if NORM:
            given = _normalised(given, norm_scale, norm_shift, inside, K, EPS)
        y = tl.sum(w.to(tl.float32) * given[None, :], 1)
        if BIAS:
            y += b
        if ACTIVATION == "relu":
            y = tl.maximum(y, 0.0)
        elif ACTIVATION == "gelu":
            y = 0.5 * y * (1.0 + tl.erf(y * 0.7071067811865476))
        elif ACTIVATION == "swish":
            y = y * tl.sigmoid(y)
        if RESIDUAL:
            r = tl.load(residual + row * N + column, mask=here, other=0.0).to(tl.float32)
            if RESIDUAL_NORM:
                whole = tl.load(residual + row * N + wide, mask=in_row, other=0.0).to(tl.float32)
                mean = tl.sum(whole, 0) / N
                centred = tl.where(in_row, whole - mean, 0.0)
                r = (r - mean) * tl.rsqrt(tl.sum(centred * centred, 0) / N + RESIDUAL_EPS) * r_scale + r_shift
            y += r
        rounded = y.to(out.dtype.element_ty)
        tl.store(out + row * N + column, rounded, mask=here)
        if PARTS:  # as ``scan``, of the columns of this program
            values = tl.where(here, rounded.to(tl.float32), -float("inf"))
            largest = tl.max(values, 0)
            tl.store(maxima + row * parts + tl.program_id(0), largest)
            total = tl.sum(tl.exp(values - largest), 0)
            tl.store(logs + row * parts + tl.program_id(0), largest + tl.log(total))


def product(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    norm: nn.LayerNorm | None = None,
    activation: str = "",
    residual: Tensor | None = None,
    residual_norm: nn.LayerNorm | None = None,
) -> Tensor:
    """Return activation(norm(x)·Wᵀ + b) + residual_norm(residual), (R, N); what is not given is left out."""
    N, K = weight.shape
    k_all = triton.next_power_of_2(K)
    block = max(1, min(TILE // k_all, triton.next_power_of_2(triton.cdiv(N, FILLS_A_GPU))))
    return _multiplied(x, weight, bias, norm, activation, residual, residual_norm, block, PRODUCT_WARPS, None)


def logits_and_parts(
    x: Tensor, weight: Tensor, bias: Tensor | None, norm: nn.LayerNorm | None
) -> tuple[Tensor, tuple[Tensor, Tensor, int]]:
    """Return norm(x)·Wᵀ + b, (R, V), the maximum and log Σ exp of each part of a row, and the size of a part."""
    shape = (len(x), triton.cdiv(len(weight), OUTPUT_PART))
    maxima, logs = (torch.empty(shape, device=x.device) for _ in range(2))
    found = _multiplied(x, weight, bias, norm, "", None, None, OUTPUT_PART, OUTPUT_WARPS, (maxima, logs))
    return found, (maxima, logs, OUTPUT_PART)


def _multiplied(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    norm: nn.LayerNorm | None,
    activation: str,
    residual: Tensor | None,
    residual_norm: nn.LayerNorm | None,
    block: int,
    warps: int,
    parts: tuple[Tensor, Tensor] | None,
) -> Tensor:
    N, K = weight.shape
    out = torch.empty(len(x), N, dtype=x.dtype, device=x.device)
    scale, shift, eps = _of(norm, weight)
    r_scale, r_shift, r_eps = _of(residual_norm, weight)
    programs = triton.cdiv(N, block)
    maxima, logs = (out, out) if parts is None else parts
    _product[(programs,)](
        x, weight, weight if bias is None else bias, scale, shift, out if residual is None else residual, r_scale,
        r_shift, out, maxima, logs, len(x), N, K, eps, r_eps, programs, triton.next_power_of_2(K),
        triton.next_power_of_2(N) if residual_norm is not None else 1, block, bias is not None, norm is not None,
        activation, residual is not None, residual_norm is not None, parts is not None, num_warps=warps, **_early(x),
    )  # fmt: skip
    return out


@triton.jit  # type: ignore[untyped-decorator]
def _add_norm(  # type: ignore[no-untyped-def]
    x, y, weight, bias, total, out, D, EPS, D_ALL: tl.constexpr, PDL: tl.constexpr
):
    _started(PDL)
    row, inner = tl.program_id(0).to(tl.int64), tl.arange(0, D_ALL)
    inside = inner < D
    scale = tl.load(weight + inner, mask=inside, other=0.0).to(tl.float32)
    shift = tl.load(bias + inner, mask=inside, other=0.0).to(tl.float32)
    _wait(PDL)
    place = row * D + inner
    one = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    both = one + tl.load(y + place, mask=inside, other=0.0).to(tl.float32)
    both = both.to(total.dtype.element_ty)
    tl.store(total + place, both, mask=inside)
    normed = _normalised(both.to(tl.float32), scale, shift, inside, D, EPS)
    tl.store(out + place, normed.to(out.dtype.element_ty), mask=inside)


def add_norm(x: Tensor, y: Tensor, norm: nn.LayerNorm) -> tuple[Tensor, Tensor]:
    """Return x + y and norm(x + y), (R, D) each."""
    D = x.shape[-1]
    total, out = torch.empty_like(y), torch.empty_like(y)
    warps = max(1, min(8, D // 256))
    _add_norm[(x.numel() // D,)](
        x, y, norm.weight, norm.bias, total, out, D, norm.eps, triton.next_power_of_2(D), num_warps=warps, **_early(x)
    )  # fmt: skip
    return total, out


@triton.jit  # type: ignore[untyped-decorator]
def _attend(  # type: ignore[no-untyped-def]
    q, k, v, rows, real, position, z, S, heads, q_row, real_row, SCALE, BEAM: tl.constexpr, PAST: tl.constexpr,
    K: tl.constexpr, V: tl.constexpr, K_ALL: tl.constexpr, V_ALL: tl.constexpr, BLOCK: tl.constexpr,
    MANY: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Let one row's head gather from its past, to which it adds the new position first, or from its source."""
    _started(PDL)
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    in_k, in_v = tl.arange(0, K_ALL), tl.arange(0, V_ALL)
    is_k, is_v = in_k < K, in_v < V
    _wait(PDL)
    mine = q + row * q_row + head * K
    query = tl.load(mine + in_k, mask=is_k, other=0.0).to(tl.float32) * SCALE
    if PAST:
        count = tl.load(position).to(tl.int32)
        new_k = tl.load(mine + heads * K + in_k, mask=is_k, other=0.0)
        new_v = tl.load(q + row * q_row + 2 * heads * K + head * V + in_v, mask=is_v, other=0.0)
        new = (row * S + count) * heads + head
        tl.store(k + new * K + in_k, new_k, mask=is_k)
        tl.store(v + new * V + in_v, new_v, mask=is_v)
        largest, total = tl.sum(query * new_k.to(tl.float32), 0), 1.0
        gathered = new_v.to(tl.float32)
    else:
        count = S
        largest, total = -float("inf"), 0.0
        gathered = tl.zeros([V_ALL], tl.float32)
    for start in range(0, count, BLOCK):
        place = start + tl.arange(0, BLOCK)
        seen = place < count
        if PAST:
            if BEAM == 1:
                at = row * S + place
            else:
                at = tl.load(rows + row * S + place, mask=seen, other=0).to(tl.int64) * S + place
        else:
            at = (row // BEAM) * S + place
            seen = tl.load(real + (row // BEAM) * real_row + place, mask=seen, other=0) != 0
        # With many programs, masked keys are not read; with few, that would only delay the others.
        wanted = seen if MANY else place < count
        key = tl.load(
            k + (at[:, None] * heads + head) * K + in_k[None, :], mask=wanted[:, None] & is_k[None, :], other=0.0
        )
        value = tl.load(
            v + (at[:, None] * heads + head) * V + in_v[None, :], mask=wanted[:, None] & is_v[None, :], other=0.0
        )
        scores = tl.where(seen, tl.sum(query[None, :] * key.to(tl.float32), 1), -float("inf"))
        larger = tl.maximum(largest, tl.max(scores, 0))
        weights, old = tl.exp(scores - larger), tl.exp(largest - larger)
        total = total * old + tl.sum(weights, 0)
        gathered = gathered * old + tl.sum(weights[:, None] * value.to(tl.float32), 0)
        largest = larger
    out = z + (row * heads + head) * V + in_v
    tl.store(out, (gathered / total).to(z.dtype.element_ty), mask=is_v)


def attend_past(qkv: Tensor, k: Tensor, v: Tensor, position: Tensor, rows: Tensor, beam: int) -> Tensor:
    """Put the new keys and values into the buffers (R, L, H, K), and let each row gather from its past: (R, H·V).

    qkv (R, H·(2K + V)) holds the new queries, keys and values; rows (R, L) says in which row each position lies.
    """
    return _attended(qkv, k, v, rows, position, position, beam, past=True)


def attend_source(q: Tensor, k: Tensor, v: Tensor, real: Tensor, beam: int) -> Tensor:
    """Let each row (R, H·K) gather from its sentence's source (B, S, H, K), where it is real (B, S): (R, H·V)."""
    return _attended(q, k, v, q, real, q, beam, past=False)


def _attended(
    q: Tensor, k: Tensor, v: Tensor, rows: Tensor, real: Tensor, position: Tensor, beam: int, past: bool
) -> Tensor:
    R, (_, S, H, K), V = len(q), k.shape, v.shape[-1]
    z = torch.empty(R, H * V, dtype=q.dtype, device=q.device)
    many = R * H >= MANY_PROGRAMS
    block, warps = MANY_KEYS if many else FEW_KEYS
    _attend[(R, H)](
        q, k, v, rows, real, position, z, S, H, q.stride(0), real.stride(0), 1 / math.sqrt(K), beam, past, K, V,
        triton.next_power_of_2(K), triton.next_power_of_2(V), block, many, num_warps=warps, **_early(q),
    )  # fmt: skip
    return z
