"""Kernels in Triton by which a search chooses and stores tokens.

They do the same as ``GraphSearch`` with PyTorch's operations, in one kernel instead of twenty small ones, if no rule
restricts the answers. A row of logits is cut into parts, whose maxima and log Σ exp are known already.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from seq2see.kernels.step_kernels import _early, _started, _wait

Parts = tuple[Tensor, Tensor, int]  # maxima and log Σ exp, (R, parts), and how many logits a part has
FEW_ROWS = 8  # most rows for which one program chooses and counts the step
LOWEST = tl.constexpr(-1e30)  # in place of −∞, to distinguish chosen entries from impossible ones
STOPPING = {"likeliest": 0, "beaten": 1, "full": 2}
WIDEST_BEAM, LARGEST_TILE = 16, 4096  # limits of one program: beams of a sentence, and their tokens
GROUP = 8  # parts of a row of logits that one program reads


@triton.jit  # type: ignore[untyped-decorator]
def _scan(x, maxima, logs, V, parts, PART: tl.constexpr, GROUP: tl.constexpr):  # type: ignore[no-untyped-def]
    """Find the maximum and log Σ exp of some parts of a row."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1) * GROUP + tl.arange(0, GROUP)
    place = part[:, None] * PART + tl.arange(0, PART)[None, :]
    values = tl.load(x + row * V + place, mask=place < V, other=-float("inf")).to(tl.float32)
    maximum = tl.max(values, 1)
    finite = tl.where(maximum == -float("inf"), 0.0, maximum)  # a whole part may be excluded
    log = finite + tl.log(tl.sum(tl.exp(values - finite[:, None]), 1))
    tl.store(maxima + row * parts + part, maximum, mask=part < parts)
    tl.store(logs + row * parts + part, log, mask=part < parts)


def scan(x: Tensor, part: int) -> tuple[Tensor, Tensor]:
    """Cut each row of x (…, V) into parts; return the maximum and log Σ exp of each, (…, parts), in float32."""
    V = x.shape[-1]
    rows, parts = x.numel() // V, triton.cdiv(V, part)
    maxima, logs = (torch.empty(*x.shape[:-1], parts, device=x.device) for _ in range(2))
    _scan[rows, triton.cdiv(parts, GROUP)](x.contiguous(), maxima, logs, V, parts, part, GROUP, num_warps=1)
    return maxima, logs


@triton.jit
def _log_total(maxima, logs, inside, parts_of_row):  # type: ignore[no-untyped-def]
    """Return log Σ exp of a whole row, of its parts'."""
    log = tl.load(logs + parts_of_row, mask=inside, other=-float("inf"))
    largest = tl.max(log, 0)
    return largest + tl.log(tl.sum(tl.exp(log - largest), 0))


@triton.jit  # type: ignore[untyped-decorator]
def _choose_one(  # type: ignore[no-untyped-def]
    logits, maxima, logs, position, last, ids, values, sums, scores, lengths, ended, settled, limits, divisors, R, V,
    parts, L, END, PAD, PARTS_ALL: tl.constexpr, PART: tl.constexpr, ALONE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Take the likeliest token of each row."""
    _started(PDL)
    _wait(PDL)
    t = tl.load(position)
    divisor = tl.load(divisors + t)
    part = tl.arange(0, PARTS_ALL)
    for row in range(tl.program_id(0), R, tl.num_programs(0)):
        best = tl.load(maxima + row * parts + part, mask=part < parts, other=-float("inf"))
        place = tl.argmax(best, 0) * PART + tl.arange(0, PART)
        near = tl.load(logits + tl.cast(row, tl.int64) * V + place, mask=place < V, other=-float("inf"))
        near = near.to(tl.float32)
        log = _log_total(maxima, logs, part < parts, row * parts + part)
        token = tl.minimum(tl.argmax(best, 0) * PART + tl.argmax(near, 0), V - 1).to(tl.int64)
        value = tl.max(near, 0) - log
        score, limit = tl.load(scores + row), tl.load(limits + row)
        is_open = score == -float("inf")
        tl.store(last + row, token)
        token, value = tl.where(is_open, token, PAD), tl.where(is_open, value, 0.0)
        total = tl.load(sums + row) + value
        ends = is_open & (token == END)
        stops = ends | (is_open & (limit <= t + 1))
        tl.store(ids + row * L + t, token)
        tl.store(values + row * L + t, value)
        tl.store(sums + row, total)
        tl.store(lengths + row, tl.load(lengths + row) + is_open.to(tl.int64))
        tl.store(ended + row, tl.load(ended + row) | ends.to(tl.uint8))
        tl.store(settled + row, tl.load(settled + row) | stops.to(tl.uint8))
        tl.store(scores + row, tl.where(stops, total / divisor, score))
    if ALONE:
        tl.store(position, t + 1)


def choose_one(
    logits: Tensor, parts: Parts, position: Tensor, last: Tensor, beams: Any, divisors: Tensor, end: int, pad: int
) -> None:
    """Take the likeliest token of each row of logits (B, V), note it in the beams, and count the step."""
    maxima, logs, part = parts
    R, V = logits.shape
    alone = R <= FEW_ROWS
    width = triton.next_power_of_2(maxima.shape[-1])
    _choose_one[(1 if alone else R,)](
        logits, maxima, logs, position, last, beams.done_ids, beams.done_values, beams.total, beams.done_score,
        beams.done_length, beams.done_ended.view(torch.uint8), beams.settled.view(torch.uint8), beams.limits, divisors,
        R, V, maxima.shape[-1], beams.done_ids.shape[-1], end, pad, width, part, alone,
        num_warps=8 if width > 1024 else 4, **_early(logits),
    )  # fmt: skip
    if not alone:
        position.add_(1)


@triton.jit  # type: ignore[untyped-decorator]
def _likeliest(  # type: ignore[no-untyped-def]
    logits, maxima, logs, values, tokens, V, parts, PARTS_ALL: tl.constexpr, PART: tl.constexpr, COUNT: tl.constexpr,
    COUNT_ALL: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Find the COUNT likeliest tokens of a row: they are in the COUNT parts whose maxima are largest."""
    _started(PDL)
    _wait(PDL)
    row = tl.program_id(0).to(tl.int64)
    part, number = tl.arange(0, PARTS_ALL), tl.arange(0, COUNT_ALL)
    best = tl.load(maxima + row * parts + part, mask=part < parts, other=-float("inf"))
    log = _log_total(maxima, logs, part < parts, row * parts + part)
    chosen = tl.zeros([COUNT_ALL], tl.int32)
    for i in tl.static_range(COUNT):
        place = tl.argmax(best, 0)
        chosen = tl.where(number == i, place, chosen)
        best = tl.where(part == place, -float("inf"), best)
    near = chosen[:, None] * PART + tl.arange(0, PART)[None, :]
    seen = (near < V) & (number < COUNT)[:, None]
    found = tl.load(logits + row * V + near, mask=seen, other=-float("inf")).to(tl.float32)
    found, near = tl.reshape(found, [COUNT_ALL * PART]), tl.reshape(near, [COUNT_ALL * PART])
    every = tl.arange(0, COUNT_ALL * PART)
    for i in tl.static_range(COUNT):
        place = tl.argmax(found, 0)
        value = tl.max(found, 0) - log
        token = tl.sum(tl.where(every == place, near, 0), 0)
        tl.store(values + row * COUNT + i, value)
        tl.store(tokens + row * COUNT + i, tl.minimum(token, V - 1).to(tl.int64))
        found = tl.where(every == place, -float("inf"), found)


def likeliest(logits: Tensor, parts: Parts, count: int) -> tuple[Tensor, Tensor]:
    """Return the largest log-probabilities of each row of logits (R, V), and their tokens, (R, count)."""
    maxima, logs, part = parts
    R, V = logits.shape
    values = torch.empty(R, count, device=logits.device)
    tokens = torch.empty(R, count, dtype=torch.long, device=logits.device)
    _likeliest[(R,)](
        logits, maxima, logs, values, tokens, V, maxima.shape[-1], triton.next_power_of_2(maxima.shape[-1]), part,
        count, triton.next_power_of_2(count), num_warps=4, **_early(logits),
    )  # fmt: skip
    return values, tokens


def can_grow(beam: int, length: int, vocabulary: int, part: int) -> bool:
    """Whether the vocabulary has enough parts for this number of tokens, and one program has room for a sentence."""
    room = triton.next_power_of_2(beam) * triton.next_power_of_2(length)
    return beam <= WIDEST_BEAM and room <= LARGEST_TILE and 2 * beam < vocabulary // part


@triton.jit
def _picked(vector, number, chosen):  # type: ignore[no-untyped-def]
    """Return the entries of a vector at chosen places."""
    return tl.sum(tl.where(number[None, :] == chosen[:, None], vector[None, :], 0), 1)


@triton.jit  # type: ignore[untyped-decorator]
def _largest(keys, number, COUNT: tl.constexpr, COUNT_ALL: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return the places of the COUNT largest keys, each once; −∞ marks what may not be taken."""
    order = tl.arange(0, COUNT_ALL)
    chosen = tl.zeros([COUNT_ALL], tl.int32)
    for i in tl.static_range(COUNT):
        place = tl.argmax(keys, 0)
        chosen = tl.where(order == i, place, chosen)
        keys = tl.where(number == place, -float("inf"), keys)
    return chosen


@triton.jit  # type: ignore[untyped-decorator]
def _grow(  # type: ignore[no-untyped-def]
    new_values, new_tokens, position, last, ancestors, rows, totals, ids, values, done_scores, done_ids, done_values,
    done_lengths, done_ended, settled, limits, divisors, L, END, STOPPING: tl.constexpr, BEAM: tl.constexpr,
    BEAMS: tl.constexpr, CANDIDATES: tl.constexpr, ALL: tl.constexpr, BOTH: tl.constexpr, L_ALL: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Grow the beams of one sentence by a token each, as ``Beams.advance`` does; each beam has 2·BEAM candidates.

    BEAMS, CANDIDATES and BOTH are powers of two that have room for BEAM, 2·BEAM and 3·BEAM entries, ALL for all
    candidates.
    """
    _started(PDL)
    _wait(PDL)
    b = tl.program_id(0).to(tl.int64)
    t = tl.load(position)
    divisor, limit, was_settled = tl.load(divisors + t), tl.load(limits + b), tl.load(settled + b)
    beam, two, every = tl.arange(0, BEAMS), tl.arange(0, CANDIDATES), tl.arange(0, ALL)
    is_beam, is_two, is_one = beam < BEAM, two < 2 * BEAM, every < 2 * BEAM * BEAM
    minus = -float("inf")

    # The likeliest 2·BEAM of all candidates, in order.
    total = tl.load(totals + b * BEAM + beam, mask=is_beam, other=minus)
    of_parent = tl.load(totals + b * BEAM + every // (2 * BEAM), mask=is_one, other=minus)
    value = tl.load(new_values + b * 2 * BEAM * BEAM + every, mask=is_one, other=minus)
    token = tl.load(new_tokens + b * 2 * BEAM * BEAM + every, mask=is_one, other=0)
    sums = of_parent + value
    sums = tl.where(sums == sums, sums, LOWEST / 2)  # broken weights give NaN, but still an answer
    keys = tl.where(is_one, tl.maximum(sums, LOWEST), minus)
    chosen = _largest(keys, every, 2 * BEAM, CANDIDATES)
    summed = tl.sum(tl.where(every[None, :] == chosen[:, None], tl.maximum(sums, LOWEST)[None, :], 0.0), 1)
    summed = tl.where(is_two & (summed > LOWEST), summed, minus)
    token = tl.where(is_two, _picked(token, every, chosen), -1)
    value = _picked(tl.maximum(value, LOWEST), every, chosen)
    parent = chosen // (2 * BEAM)

    # Those that end here, or must stop here, compete with those that ended before.
    ends = token == END
    old_scores = tl.load(done_scores + b * BEAM + beam, mask=is_beam, other=float("inf"))
    full = tl.min(old_scores, 0) > minus
    possible = tl.max(total, 0) > minus
    finished = ((was_settled != 0) & full) | (limit <= t) | (possible == 0)
    stops = is_two & ((ends & (two < BEAM)) | (limit == t + 1)) & (finished == 0)
    score = tl.where(stops, summed / divisor, minus)
    both = tl.arange(0, BOTH)  # first what was done, then the candidates
    old = tl.load(done_scores + b * BEAM + both, mask=both < BEAM, other=minus)
    at = both - BEAM
    new = tl.sum(tl.where(at[:, None] == two[None, :], tl.maximum(score, LOWEST)[None, :], 0.0), 1)
    is_new = (both >= BEAM) & (both < 3 * BEAM)
    keys = tl.where(both < BEAM, tl.maximum(old, LOWEST), tl.where(is_new, new, minus))
    done = _largest(keys, both, BEAM, BEAMS)
    done_score = tl.sum(tl.where(both[None, :] == done[:, None], tl.maximum(keys, LOWEST)[None, :], 0.0), 1)
    done_score = tl.where(is_beam & (done_score > LOWEST), done_score, minus)
    done_is_new, done_at = done >= BEAM, done - BEAM
    was = b * BEAM + tl.where(done_is_new, 0, done)
    length = tl.where(done_is_new, t + 1, tl.load(done_lengths + was, mask=is_beam, other=0))
    end_of = _picked(ends.to(tl.int32), two, done_at)
    ended = tl.where(done_is_new, end_of, tl.load(done_ended + was, mask=is_beam, other=0).to(tl.int32))

    # The others stay open.
    rest = tl.where(ends, minus, summed)
    chosen = _largest(tl.where(is_two, tl.maximum(rest, LOWEST), minus), two, BEAM, BEAMS)
    open_total = _picked(tl.maximum(rest, LOWEST), two, chosen)
    open_total = tl.where(is_beam & (open_total > LOWEST), open_total, minus)
    open_token, open_parent = _picked(token, two, chosen), _picked(parent, two, chosen)
    open_value = _picked(value, two, chosen)
    if STOPPING == 0:
        settles = tl.sum((stops & (two == 0)).to(tl.int32), 0) > 0
    elif STOPPING == 1:
        worst = tl.min(tl.where(is_beam, done_score, float("inf")), 0)
        settles = tl.max(open_total, 0) / divisor <= worst
    else:
        settles = tl.min(tl.where(is_beam, done_score, float("inf")), 0) > minus

    # All that is read of the past is read before anything is written.
    column = tl.arange(0, L_ALL)
    inside = is_beam[:, None] & (column < L)[None, :]
    here = column[None, :] == t
    from_open = (b * BEAM + open_parent)[:, None] * L + column[None, :]
    done_parent = _picked(parent, two, done_at)
    from_done = (b * BEAM + tl.where(done_is_new, done_parent, done))[:, None] * L + column[None, :]
    grown, taken = inside & done_is_new[:, None], inside & (done_is_new == 0)[:, None]
    ids_open = tl.load(ids + from_open, mask=inside, other=0)
    values_open = tl.load(values + from_open, mask=inside, other=0.0)
    past = tl.load(ancestors + from_open, mask=inside, other=0)
    ids_done = tl.load(ids + from_done, mask=grown, other=0) + tl.load(done_ids + from_done, mask=taken, other=0)
    values_done = tl.load(values + from_done, mask=grown, other=0.0) + tl.load(
        done_values + from_done, mask=taken, other=0.0
    )
    done_token, done_value = _picked(token, two, done_at), _picked(value, two, done_at)
    ids_open = tl.where(here, open_token[:, None], ids_open)
    values_open = tl.where(here, open_value[:, None], values_open)
    ids_done = tl.where(here & done_is_new[:, None], done_token[:, None], ids_done)
    values_done = tl.where(here & done_is_new[:, None], done_value[:, None], values_done)
    past = tl.where(column[None, :] <= t, past, beam[:, None])
    tl.debug_barrier()
    to = (b * BEAM + beam)[:, None] * L + column[None, :]
    tl.store(ids + to, ids_open, mask=inside)
    tl.store(values + to, values_open, mask=inside)
    tl.store(done_ids + to, ids_done, mask=inside)
    tl.store(done_values + to, values_done, mask=inside)
    tl.store(ancestors + to, past, mask=inside)
    tl.store(rows + to, past + (b * BEAM).to(tl.int32), mask=inside)
    mine = b * BEAM + beam
    tl.store(totals + mine, open_total, mask=is_beam)
    tl.store(last + mine, open_token, mask=is_beam)
    tl.store(done_scores + mine, done_score, mask=is_beam)
    tl.store(done_lengths + mine, length, mask=is_beam)
    tl.store(done_ended + mine, ended.to(tl.uint8), mask=is_beam)
    tl.store(settled + b, was_settled | settles.to(tl.uint8))


def grow(
    logits: Tensor,
    parts: Parts,
    position: Tensor,
    last: Tensor,
    ancestors: Tensor,
    rows: Tensor,
    beams: Any,
    divisors: Tensor,
    end: int,
    stopping: str,
) -> None:
    """Grow the beams by the likeliest tokens of logits (B·k, V), store each one's parent, and count the step."""
    B, beam, L = beams.ids.shape
    values, tokens = likeliest(logits, parts, 2 * beam)
    power = triton.next_power_of_2
    _grow[(B,)](
        values, tokens, position, last, ancestors, rows, beams.total, beams.ids, beams.values, beams.done_score,
        beams.done_ids, beams.done_values, beams.done_length, beams.done_ended.view(torch.uint8),
        beams.settled.view(torch.uint8), beams.limits, divisors, L, end, STOPPING[stopping], beam, power(beam),
        power(2 * beam), power(2 * beam * beam), power(3 * beam), power(L), num_warps=4, **_early(logits),
    )  # fmt: skip
    position.add_(1)
