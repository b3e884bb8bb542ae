"""Greedy and beam search over batches, with key/value caches (section 6.1).

Each sentence is searched on its own terms, so its answer does not depend on what else is in the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from seq2see.model.attention import EVERYTHING, Mask
from seq2see.model.transformer import Transformer

LENGTH_PENALTY = 0.6  # α of section 6.1
EXTRA_LENGTH = 50  # "maximum output length during inference to input length + 50"


@dataclass(frozen=True)
class Special:
    """The ids that start, end and pad a sequence."""

    start: int
    end: int
    pad: int


@dataclass(frozen=True)
class Hypothesis:
    """One answer: its ids after ``<sos>`` (``<eos>`` included if it came to an end) and their log-probabilities."""

    ids: list[int]
    log_probabilities: list[float]
    score: float  # what beam search ranks by: log-probability ÷ length penalty
    finished: bool

    @property
    def log_probability(self) -> float:
        """Log-probability of the whole answer."""
        return sum(self.log_probabilities)


def padded(
    rows: Sequence[Sequence[int]], pad: int, device: torch.device | None = None
) -> tuple[Tensor, Mask]:
    """Stack rows of ids into (B, S), with the mask that hides the padding."""
    lengths = [len(row) for row in rows]
    longest = max(lengths)
    ids = torch.tensor([[*row, *[pad] * (longest - len(row))] for row in rows], device=device)
    if min(lengths) == longest:
        return ids, EVERYTHING
    return ids, Mask(
        keys=torch.arange(longest, device=device) < torch.tensor(lengths, device=device)[:, None]
    )


def length_penalty(length: int | Tensor, alpha: float) -> float | Tensor:
    """Return ((5 + length) / 6)^α, by which a log-probability is divided (Wu et al., 2016, eq. 14)."""
    penalty: float | Tensor = ((5 + length) / 6) ** alpha
    return penalty


def limits_of(
    model: Transformer, sources: Sequence[Sequence[int]], device: torch.device | None = None
) -> Tensor:
    """Return for each source the most tokens that its answer may have, (B,)."""
    longest = model.config.max_length - 1
    return torch.tensor([min(len(source) + EXTRA_LENGTH, longest) for source in sources], device=device)


def greedy(model: Transformer, sources: Sequence[Sequence[int]], special: Special) -> list[Hypothesis]:
    """Take the likeliest token at each step."""
    ids, log_probabilities, lengths, finished = greedy_tensors(model, sources, special)
    return [
        Hypothesis(row[:n], values[:n], sum(values[:n]) / float(length_penalty(n, LENGTH_PENALTY)), done)
        for row, values, n, done in zip(
            ids.tolist(), log_probabilities.tolist(), lengths.tolist(), finished.tolist(), strict=True
        )
    ]


@torch.inference_mode()
def greedy_tensors(
    model: Transformer, sources: Sequence[Sequence[int]], special: Special
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Search greedily; return ids (B, L) padded, their log-probabilities (B, L), lengths (B,), finished (B,)."""
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
    last = torch.full((B,), special.start, device=device)
    cache = model.new_cache()
    for t in range(longest):
        logits = model.decode(last[:, None], memory, mask, cache)[:, -1].float()  # (rows, V)
        best, last = logits.max(-1)
        ids[alive, t] = last
        log_probabilities[alive, t] = best - logits.logsumexp(-1)
        ended = last == special.end
        stopped = ended | (limits[alive] == t + 1)
        if stopped.any():
            lengths[alive[stopped]] = t + 1
            finished[alive[ended]] = True
            rows = (~stopped).nonzero()[:, 0]
            if not len(rows):
                break
            alive, last, memory = alive[rows], last[rows], memory[rows]
            mask = EVERYTHING if mask.keys is None else Mask(keys=mask.keys[rows])
            cache.select(rows)
    return ids, log_probabilities, lengths, finished


@torch.inference_mode()
def beam_search(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    special: Special,
    beam: int = 4,
    alpha: float = LENGTH_PENALTY,
) -> list[list[Hypothesis]]:
    """Keep the ``beam`` likeliest prefixes of each sentence; return its answers, best first.

    A sentence is done when ``beam`` answers have come to an end; a beam of 1 is greedy search.
    """
    device = next(model.parameters()).device
    B, k, V = len(sources), beam, model.config.target_vocabulary
    limits = limits_of(model, sources, device)  # (B,)
    longest = int(limits.max())
    source, mask = padded(sources, special.pad, device)
    spread = torch.arange(B, device=device).repeat_interleave(k)  # rows are sentences × beams
    memory = model.encode(source, mask)[spread]
    mask = EVERYTHING if mask.keys is None else Mask(keys=mask.keys[spread])
    cache = model.new_cache()

    nothing = float("-inf")
    open_total = torch.full((B, k), nothing, device=device)
    open_total[:, 0] = 0.0  # one empty prefix; its copies must not be counted
    open_ids = torch.full((B, k, longest), special.pad, device=device)
    open_values = torch.zeros(B, k, longest, device=device)
    done_score = torch.full((B, k), nothing, device=device)
    done_ids, done_values = open_ids.clone(), open_values.clone()
    done_length = torch.zeros(B, k, dtype=torch.long, device=device)
    done_ended = torch.zeros(B, k, dtype=torch.bool, device=device)

    results: list[list[Hypothesis]] = [[] for _ in range(B)]
    sentence = torch.arange(B, device=device)  # which sentence each row of the shrinking tensors is
    last = torch.full((B * k, 1), special.start, device=device)
    for t in range(longest):
        logits = model.decode(last, memory, mask, cache)[:, -1].float()  # (rows·k, V)
        values = logits.log_softmax(-1).view(-1, k, V)
        totals = (open_total[:, :, None] + values).flatten(1)  # (rows, k·V)
        # 2k candidates leave k open ones even if k of them end
        total, index = totals.topk(min(2 * k, k * V))  # (rows, 2k)
        parent, token = index // V, index % V
        grown_ids = _grown(open_ids, parent, t, token)
        grown_values = _grown(open_values, parent, t, values.flatten(1).gather(1, index))
        ends = (token == special.end) & (
            torch.arange(token.shape[1], device=device) < k
        )  # among the k likeliest
        at_limit = (limits[sentence] == t + 1)[:, None]

        # what ends here (or must stop here) competes with what ended before
        score = torch.where(ends | at_limit, total / length_penalty(t + 1, alpha), nothing)
        done_score, chosen = torch.cat([done_score, score], 1).topk(k)
        done_ids = _chosen(torch.cat([done_ids, grown_ids], 1), chosen)
        done_values = _chosen(torch.cat([done_values, grown_values], 1), chosen)
        done_length = torch.cat([done_length, torch.full_like(token, t + 1)], 1).gather(1, chosen)
        done_ended = torch.cat([done_ended, ends], 1).gather(1, chosen)

        # what goes on
        open_total, chosen = torch.where(token == special.end, nothing, total).topk(k)
        open_ids, open_values = _chosen(grown_ids, chosen), _chosen(grown_values, chosen)
        parent, token = parent.gather(1, chosen), token.gather(1, chosen)

        finished = (done_score[:, -1] > nothing) | at_limit[:, 0]
        rows = torch.arange(len(sentence), device=device)
        if finished.any():
            for row in finished.nonzero()[:, 0].tolist():
                results[int(sentence[row])] = _hypotheses(
                    done_ids[row], done_values[row], done_score[row], done_length[row], done_ended[row]
                )
            rows = (~finished).nonzero()[:, 0]
            if not len(rows):
                break
            sentence, parent, token = sentence[rows], parent[rows], token[rows]
            open_total, open_ids, open_values = open_total[rows], open_ids[rows], open_values[rows]
            done_score, done_ids, done_values = done_score[rows], done_ids[rows], done_values[rows]
            done_length, done_ended = done_length[rows], done_ended[rows]
        flat = (rows[:, None] * k + parent).flatten()  # (rows·k,)
        cache.select(flat)
        memory, last = memory[flat], token.flatten()[:, None]
        mask = EVERYTHING if mask.keys is None else Mask(keys=mask.keys[flat])
    return results


def _chosen(x: Tensor, index: Tensor) -> Tensor:
    """Pick beams: x (B, n, L), index (B, k) to (B, k, L)."""
    return x.gather(1, index[:, :, None].expand(-1, -1, x.shape[-1]))


def _grown(x: Tensor, parent: Tensor, t: int, new: Tensor) -> Tensor:
    """Copy each candidate's parent and write its new entry at t."""
    x = _chosen(x, parent)
    x[:, :, t] = new
    return x


def _hypotheses(
    ids: Tensor, values: Tensor, scores: Tensor, lengths: Tensor, ended: Tensor
) -> list[Hypothesis]:
    return [
        Hypothesis(row[:n], value[:n], score, end)
        for row, value, score, n, end in zip(
            ids.tolist(), values.tolist(), scores.tolist(), lengths.tolist(), ended.tolist(), strict=True
        )
        if score > float("-inf")
    ]
