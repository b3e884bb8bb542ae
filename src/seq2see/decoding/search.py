"""Greedy and beam search over batches, with key/value caches (section 6.1).

Each sentence is searched on its own terms, so its answer does not depend on what else is in the batch.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import inf

import torch
from torch import Tensor

from seq2see.decoding.columns import fitting_cache
from seq2see.decoding.hypothesis import LENGTH_PENALTY, limit
from seq2see.decoding.hypothesis import Hypothesis as Hypothesis
from seq2see.decoding.hypothesis import Special as Special
from seq2see.decoding.hypothesis import length_penalty as length_penalty
from seq2see.model.fused import HAS_TRITON
from seq2see.model.masks import EVERYTHING, Mask
from seq2see.model.transformer import Transformer

CROWDED = 0.5  # of a batch's rows that are still open, below which the others are dropped; each drop copies the caches
PART = 128  # of a row of the vocabulary, in the search for its largest numbers


def padded(
    rows: Sequence[Sequence[int]], pad: int, device: torch.device | None = None
) -> tuple[Tensor, Mask]:
    """Stack rows of ids into (B, S), with the mask that hides the padding."""
    lengths = [len(row) for row in rows]
    longest = max(lengths)
    ids = stacked(rows, longest, pad).to(device)
    if min(lengths) == longest:
        return ids, EVERYTHING
    return ids, Mask(
        keys=torch.arange(longest, device=device) < torch.tensor(lengths, device=device)[:, None]
    )


def stacked(rows: Sequence[Sequence[int]], width: int, pad: int) -> Tensor:
    """Stack rows of ids into (B, width); an array in between is faster than a tensor of lists."""
    flat = array("q")
    for row in rows:
        flat.extend(row)
        flat.extend([pad] * (width - len(row)))
    return torch.frombuffer(flat, dtype=torch.long).view(len(rows), width)


def limits_of(
    model: Transformer, sources: Sequence[Sequence[int]], device: torch.device | None = None
) -> Tensor:
    """Return for each source the most tokens that its answer may have, (B,)."""
    lengths = [len(source) for source in sources]
    by_length = {length: limit(length, model.config.max_length) for length in set(lengths)}
    return torch.tensor([by_length[length] for length in lengths], device=device)


def greedy(model: Transformer, sources: Sequence[Sequence[int]], special: Special) -> list[Hypothesis]:
    """Take the likeliest token at each step."""
    ids, log_probabilities, lengths, finished = greedy_tensors(model, sources, special)
    return [
        Hypothesis(row[:n], values[:n], sum(values[:n]) / length_penalty(n), done)
        for row, values, n, done in zip(
            ids.tolist(), log_probabilities.tolist(), lengths.tolist(), finished.tolist(), strict=True
        )
    ]


@torch.inference_mode()
def greedy_tensors(
    model: Transformer, sources: Sequence[Sequence[int]], special: Special, values: bool = True
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Search greedily; return ids (B, L) padded, their log-probabilities (B, L), lengths (B,), finished (B,).

    Without ``values`` the log-probabilities are not computed: they cost more than finding the likeliest token.
    """
    device = next(model.parameters()).device
    source, mask = padded(sources, special.pad, device)
    memory = model.encode(source, mask)
    limits = limits_of(model, sources, device)
    B, longest = len(sources), int(limits.max())
    ids = torch.full((B, longest), special.pad, device=device)
    log_probabilities = torch.zeros(B, longest, device=device)
    lengths = torch.zeros(B, dtype=torch.long, device=device)
    finished = torch.zeros(B, dtype=torch.bool, device=device)

    alive = torch.arange(B, device=device)  # which sentence each row of the shrinking batch is
    over = torch.zeros(B, dtype=torch.bool, device=device)  # rows of it that have stopped
    last = torch.full((B,), special.start, device=device)
    cache = fitting_cache(model, B, source.shape[1])
    for t in range(longest):
        logits = model.decode(last[:, None], memory, mask, cache)[:, -1].float()  # (rows, V)
        best, last = logits.max(-1)
        ids[alive, t] = last.masked_fill(over, special.pad)
        if values:
            surprise = (logits - best[:, None]).logsumexp(-1)  # this way nothing is lost where it is nearly 0
            log_probabilities[alive, t] = -surprise.masked_fill(over, 0.0)
        ended = (last == special.end) & ~over
        stopped = ended | ((limits[alive] == t + 1) & ~over)
        if stopped.any():
            lengths[alive[stopped]] = t + 1
            finished[alive[ended]] = True
            over = over | stopped
            rows = (~over).nonzero()[:, 0]
            if not len(rows):
                break
            if len(rows) <= CROWDED * len(over):
                alive, over, last = alive[rows], over[rows], last[rows]
                memory, mask = memory[rows], mask.select(rows)
                cache.select(rows)
    return ids, log_probabilities, lengths, finished


@dataclass(frozen=True)
class Beams:
    """The open and the finished prefixes of B sentences, k each, as tensors."""

    total: Tensor  # (B, k): log-probability of each open prefix
    ids: Tensor  # (B, k, L)
    values: Tensor  # (B, k, L): the log-probability of each token
    done_score: Tensor  # (B, k): finished answers, best first; −∞ where there is none yet
    done_ids: Tensor  # (B, k, L)
    done_values: Tensor  # (B, k, L)
    done_length: Tensor  # (B, k)
    done_ended: Tensor  # (B, k): whether it ended by itself, not at the limit
    settled: Tensor  # (B,): whether one was the likeliest of all prefixes when it ended: none of them will be likelier
    limits: Tensor  # (B,)

    @classmethod
    def start(cls, limits: Tensor, longest: int, beam: int, pad: int) -> Beams:
        """Begin with one empty prefix a sentence; its copies must not be counted."""
        shape, device = (len(limits), beam), limits.device
        total = torch.full(shape, -inf, device=device)
        total[:, 0] = 0.0
        ids = torch.full((*shape, longest), pad, device=device)
        values = torch.zeros(*shape, longest, device=device)
        return cls(
            total, ids, values, torch.full(shape, -inf, device=device), ids.clone(), values.clone(),
            torch.zeros(shape, dtype=torch.long, device=device), torch.zeros(shape, dtype=torch.bool, device=device),
            torch.zeros_like(limits, dtype=torch.bool), limits,
        )  # fmt: skip

    def advance(self, logits: Tensor, t: Tensor, end: int, alpha: float) -> tuple[Beams, Tensor, Tensor]:
        """Grow by the t-th token, t (1,): return the new beams, and each one's parent and token, (B, k)."""
        B, k = self.total.shape
        V = logits.shape[-1]
        # 2k candidates leave k open ones even if k of them end; none comes from beyond its own beam's best 2k
        values, tokens = likeliest(logits.view(B, k, V), min(2 * k, V))  # (B, k, 2k)
        total, index = (self.total[:, :, None] + values).flatten(1).topk(min(2 * k, k * V))  # (B, 2k)
        parent, token = index // values.shape[-1], tokens.flatten(1).gather(1, index)
        ids = _grown(self.ids, parent, t, token)
        grown_values = _grown(self.values, parent, t, values.flatten(1).gather(1, index))
        ends = token == end
        likely = torch.arange(ends.shape[1], device=ends.device) < k  # an end counts among the k likeliest
        stops = (ends & likely) | (self.limits == t + 1)[:, None]
        stops = stops & ~self.finished(t - 1)[:, None]  # who is done stays so, even if others are not

        # what ends here, or must stop here, competes with what ended before
        score = torch.where(stops, total / length_penalty(t + 1, alpha), -inf)
        done_score, chosen = torch.cat([self.done_score, score], 1).topk(k)
        lengths = torch.cat([self.done_length, (t + 1).expand_as(token)], 1)
        done = {
            "done_score": done_score,
            "done_ids": _chosen(torch.cat([self.done_ids, ids], 1), chosen),
            "done_values": _chosen(torch.cat([self.done_values, grown_values], 1), chosen),
            "done_length": lengths.gather(1, chosen),
            "done_ended": torch.cat([self.done_ended, ends], 1).gather(1, chosen),
            "settled": self.settled | stops[:, 0],
        }
        # what goes on
        total, chosen = torch.where(ends, -inf, total).topk(k)
        grown = Beams(total, _chosen(ids, chosen), _chosen(grown_values, chosen), **done, limits=self.limits)
        return grown, parent.gather(1, chosen), token.gather(1, chosen)

    def finished(self, t: Tensor) -> Tensor:
        """Whether each sentence is done after the t-th token, (B,): k answers have ended, the likeliest of all among
        them, or the limit is reached.
        """
        return (self.settled & (self.done_score[:, -1] > -inf)) | (self.limits <= t + 1)

    def select(self, rows: Tensor | slice) -> Beams:
        """Keep these sentences."""
        return Beams(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    def hypotheses(self) -> list[list[Hypothesis]]:
        """Return each sentence's answers, best first."""
        columns = (self.done_ids, self.done_values, self.done_score, self.done_length, self.done_ended)
        return [
            [
                Hypothesis(ids[:length], values[:length], score, ended)
                for ids, values, score, length, ended in zip(*sentence, strict=True)
                if score != -inf  # broken weights give NaN, and an answer all the same
            ]
            for sentence in zip(*(column.tolist() for column in columns), strict=True)
        ]


@torch.inference_mode()
def beam_search(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    special: Special,
    beam: int = 4,
    alpha: float = LENGTH_PENALTY,
) -> list[list[Hypothesis]]:
    """Keep the ``beam`` likeliest prefixes of each sentence; return its answers, best first.

    A sentence is done when ``beam`` answers have come to an end, one of them as the likeliest of all prefixes: else a
    model that is sure would be taken at the word of answers that broke off. A beam of 1 is greedy search.
    """
    device = next(model.parameters()).device
    limits = limits_of(model, sources, device)
    source, mask = padded(sources, special.pad, device)
    spread = torch.arange(len(sources), device=device).repeat_interleave(beam)  # rows are sentences × beams
    memory, mask = model.encode(source, mask)[spread], mask.select(spread)
    beams = Beams.start(limits, int(limits.max()), beam, special.pad)
    cache = fitting_cache(model, len(spread), source.shape[1])

    results: list[list[Hypothesis]] = [[] for _ in sources]
    sentence = torch.arange(
        len(sources), device=device
    )  # which sentence each row of the shrinking tensors is
    last = torch.full((len(spread), 1), special.start, device=device)
    for t in torch.arange(int(limits.max()), device=device)[:, None]:
        logits = model.decode(last, memory, mask, cache)[:, -1]  # (rows·k, V)
        beams, parent, token = beams.advance(logits, t, special.end, alpha)
        finished = beams.finished(t)
        rows = (~finished).nonzero()[:, 0]
        if len(rows) < len(sentence):
            done = finished.nonzero()[:, 0]
            for index, hypotheses in zip(
                sentence[done].tolist(), beams.select(done).hypotheses(), strict=True
            ):
                results[index] = hypotheses
            if not len(rows):
                break
            beams, sentence, parent, token = beams.select(rows), sentence[rows], parent[rows], token[rows]
        flat = (rows[:, None] * beam + parent).flatten()  # (rows·k,)
        cache.select(flat)
        memory, mask, last = memory[flat], mask.select(flat), token.flatten()[:, None]
    return results


def likeliest(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the largest log-probabilities of each row of logits (…, V), in float32, and their tokens, (…, count).

    ``topk`` is slow on long rows. So they are cut into parts: the largest ``count`` numbers are in the ``count`` parts
    whose maxima are largest, and only those are looked at closely.
    """
    V = logits.shape[-1]
    if V < 8 * PART or count >= V // PART:
        values, tokens = logits.float().topk(count)
        best = values[
            ..., :1
        ]  # taken off first: where it is nearly certain, the rest would be lost in rounding
        return (values - best) - (logits.float() - best).logsumexp(-1, keepdim=True), tokens
    maxima, logs = _by_parts(logits)  # (…, parts)
    chosen = _top(maxima, count)[1][..., None]  # (…, count, 1)
    near = (chosen * PART + torch.arange(PART, device=logits.device)).flatten(-2)  # (…, count · PART): tokens
    values, place = _top(logits.gather(-1, near.clamp(max=V - 1)).masked_fill(near >= V, -inf), count)
    return values.float() - logs.logsumexp(-1, keepdim=True), near.gather(-1, place).clamp(max=V - 1)


def _by_parts(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the maximum and log Σ exp of each part of each row of x (…, V), (…, parts), in float32."""
    if x.is_cuda and HAS_TRITON:
        from seq2see.model.kernels import scan

        return scan(x, PART)
    whole = x.shape[-1] // PART * PART
    parts = [x[..., :whole].view(*x.shape[:-1], -1, PART).float(), x[..., None, whole:].float()]
    maxima, logs = zip(*((p.amax(-1), p.logsumexp(-1)) for p in parts if p.numel()), strict=True)
    return torch.cat(maxima, -1), torch.cat(logs, -1)


def _top(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the largest numbers of each row, and their places; one alone is found faster than by ``topk``."""
    values, places = x.max(-1, keepdim=True) if count == 1 else x.topk(count)
    return values, places


def _chosen(x: Tensor, index: Tensor) -> Tensor:
    """Pick beams: x (B, n, L), index (B, k) to (B, k, L)."""
    return x.gather(1, index[:, :, None].expand(-1, -1, x.shape[-1]))


def _grown(x: Tensor, parent: Tensor, t: Tensor, new: Tensor) -> Tensor:
    """Copy each candidate's parent and write its new entry at t."""
    return _chosen(x, parent).index_copy(2, t, new[:, :, None])
