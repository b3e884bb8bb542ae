"""Greedy and beam search, step by step on any device (section 6.1).

There is one loop, ``steps``. A reader computes the logits of the next token; a choice selects tokens by them.
The answer to a sentence does not depend on the rest of the batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import count
from math import inf

import torch
from torch import Tensor

from seq2see.config import DecodingConfig
from seq2see.decoding.allowed import Automaton
from seq2see.decoding.hypothesis import PAPER
from seq2see.decoding.hypothesis import Hypothesis as Hypothesis
from seq2see.decoding.hypothesis import Special as Special
from seq2see.decoding.readers import Reader, reader_of, stacked
from seq2see.decoding.rule import LogitsRules, TokenMask
from seq2see.kernels.operators import HAS_TRITON
from seq2see.model.transformer import Transformer
from seq2see.stopping import go_on

OPEN_SHARE = 0.5  # stopped rows are dropped when no more than this share is open: each drop copies the caches
LOGITS_PART = 128  # logits per part, in the search for the largest
IN_CACHE = 2**18  # logits that a core's cache holds: a CPU searches a large vocabulary in groups of so many

#: The rows of the batch that continue, in order (None: all of them), and their new tokens (R, 1); None: all
#: are done.
GoingOn = tuple[Tensor | None, Tensor] | None


def limits_of(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    device: torch.device | None = None,
    rules: DecodingConfig = PAPER,
    allowed: Automaton | None = None,
) -> Tensor:
    """Return the most tokens of the answer to each source, (B,): no fewer than an allowed answer needs."""
    lengths, longest = [len(source) for source in sources], model.config.max_length
    by_length = {length: rules.limit(length, longest) for length in set(lengths)}
    limits = torch.tensor([by_length[length] for length in lengths], device=device)
    return limits if allowed is None else limits.clamp(min=allowed.room(rules, longest))


def source_of(sources: Sequence[Sequence[int]], rules: DecodingConfig, device: torch.device | None) -> Tensor | None:
    """Return the sources for the rules, (B, S), padded with −1; None if no rule needs them."""
    return stacked(sources, max(map(len, sources)), -1).to(device) if rules.no_repeat_source else None


def gate_of(
    allowed: Automaton | None, model: Transformer, limits: Tensor, rules: DecodingConfig
) -> tuple[TokenMask | None, Tensor | None]:
    """Return the constraints as tensors, and the first state of each answer."""
    if allowed is None:
        return None, None
    states = torch.from_numpy(allowed.starts_of(len(limits))).to(limits.device)
    vocabulary, near = model.config.target_vocabulary, allowed.must_hurry(rules, model.config.max_length)
    key = (limits.device, near)
    if key not in allowed.made:  # other batches have the same constraints
        allowed.made[key] = TokenMask(allowed, vocabulary, limits.device, near)
    return allowed.made[key], states


def steps(reader: Reader, choice: Greedy | Beam, new: Tensor) -> Iterator[int]:
    """Search until all answers are done; yield each step's number when its tokens are chosen.

    ``new`` (R, n) are the first tokens of every answer: the start token, then forced ones.
    """
    for t in count(new.shape[1] - 1):
        go_on()
        going_on = choice.take(reader.read(new), t)
        yield t
        if going_on is None:
            return
        rows, new = going_on
        if rows is not None:
            reader.select(rows)


class Greedy:
    """Takes the likeliest token of each row.

    Without ``values`` the log-probabilities are not computed: they cost more than finding the likeliest token.
    """

    def __init__(
        self,
        limits: Tensor,
        special: Special,
        rules: DecodingConfig = PAPER,
        values: bool = True,
        gate: TokenMask | None = None,
        states: Tensor | None = None,
        source: Tensor | None = None,
    ) -> None:
        shape, device = (len(limits), int(limits.max())), limits.device
        self.limits, self.special, self.rule = limits, special, LogitsRules(special, rules, device, gate)
        self.state = torch.zeros_like(limits) if states is None else states  # of the gate, for each row
        self.source = source  # (B, S), for rules that need it
        self.ids = torch.full(shape, special.pad, device=device)  # (B, L)
        self.log_probabilities = torch.zeros(shape, device=device) if values else None  # (B, L)
        self.lengths = torch.zeros(len(limits), dtype=torch.long, device=device)
        self.finished = torch.zeros(len(limits), dtype=torch.bool, device=device)
        self.alive = torch.arange(len(limits), device=device)  # the sentence of each row of the shrinking batch
        self.over = torch.zeros(len(limits), dtype=torch.bool, device=device)  # its rows that have ended

    def take(self, logits: Tensor, t: int) -> GoingOn:
        """Take the likeliest token of each row."""
        logits, alive, over = logits.float(), self.alive, self.over  # (R, V)
        total = None
        if not self.rule.idle:
            step = torch.tensor([t], device=logits.device)
            so_far = self.ids[alive] if self.rule.looks_back else None
            source = None if self.source is None else self.source[alive]
            totals = self.log_probabilities is not None
            logits, total = self.rule.allowed(logits, step, self.limits[alive], self.state, so_far, source, totals)
        best, token = logits.max(-1)
        if self.rule.gate is not None:
            self.state = self.rule.after(self.state, token, step)
        self.ids[alive, t] = token.masked_fill(over, self.special.pad)
        if self.log_probabilities is not None:
            # The first form is exact also where it is nearly 0.
            surprise = (logits - best[:, None]).logsumexp(-1) if total is None else total[:, 0] - best
            self.log_probabilities[alive, t] = -surprise.masked_fill(over, 0.0)
        ended = self.rule.ended(token) & ~over
        stopped = ended | ((self.limits[alive] == t + 1) & ~over)
        if not stopped.any():
            return None, token[:, None]
        self.lengths[alive[stopped]] = t + 1
        self.finished[alive[ended]] = True
        self.over = over | stopped
        rows = (~self.over).nonzero()[:, 0]
        if not len(rows):
            return None
        if len(rows) > OPEN_SHARE * len(over):
            return None, token[:, None]
        self.alive, self.over, self.state = alive[rows], self.over[rows], self.state[rows]
        return rows, token[rows, None]

    def answers(self) -> list[list[int]]:
        """Return the ids of each answer."""
        return [row[:n] for row, n in zip(self.ids.tolist(), self.lengths.tolist(), strict=True)]


def greedy(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    special: Special,
    rules: DecodingConfig = PAPER,
    allowed: Automaton | None = None,
) -> list[Hypothesis]:
    """Take the likeliest allowed token at each step."""
    choice = _greedy(model, sources, special, rules, allowed, values=True)
    assert choice.log_probabilities is not None
    return [
        Hypothesis(ids, values[: len(ids)], sum(values[: len(ids)]) / rules.divisor(len(ids)), finished)
        for ids, values, finished in zip(
            choice.answers(), choice.log_probabilities.tolist(), choice.finished.tolist(), strict=True
        )
    ]


def greedy_ids(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    special: Special,
    rules: DecodingConfig = PAPER,
    allowed: Automaton | None = None,
) -> list[list[int]]:
    """Return only the ids of greedy answers, which is faster."""
    return _greedy(model, sources, special, rules, allowed, values=False).answers()


@torch.inference_mode()
def _greedy(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    special: Special,
    rules: DecodingConfig,
    allowed: Automaton | None,
    values: bool,
) -> Greedy:
    reader, starts = reader_of(model, sources, special)
    limits = limits_of(model, sources, reader.memory.device, rules, allowed)
    gate, states = gate_of(allowed, model, limits, rules)
    choice = Greedy(limits, special, rules, values, gate, states, source_of(sources, rules, limits.device))
    for _ in steps(reader, choice, starts):
        pass
    return choice


def continued(
    reader: Reader,
    special: Special,
    limit: Tensor,
    prefix: Sequence[int] = (),
    rules: DecodingConfig = PAPER,
    source: Sequence[int] = (),
) -> list[int]:
    """Answer one source greedily after some forced ids; limit (1,) is the most tokens of an answer."""
    if len(prefix) >= int(limit) or {special.end, *rules.other_ends} & {*prefix[-1:]}:
        return [*prefix]
    rules = rules.but(beam=1)
    choice = Greedy(limit, special, rules, values=False, source=source_of([source], rules, limit.device))
    choice.ids[0, : len(prefix)] = torch.tensor([*prefix], dtype=torch.long)
    for _ in steps(reader, choice, torch.tensor([[special.start, *prefix]], device=limit.device)):
        pass
    return [*prefix, *choice.answers()[0][len(prefix) :]]


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
    settled: Tensor  # (B,): whether the stopping rule was met: the likeliest of all prefixes has ended
    limits: Tensor  # (B,)
    state: Tensor  # (B, k): what may follow each open prefix, as a state of the rule's gate

    @classmethod
    def start(cls, limits: Tensor, longest: int, beam: int, pad: int, states: Tensor | None = None) -> Beams:
        """Begin with one empty prefix per sentence. The other k − 1 have probability 0, so that it counts once."""
        shape, device = (len(limits), beam), limits.device
        total = torch.full(shape, -inf, device=device)
        total[:, 0] = 0.0
        ids = torch.full((*shape, longest), pad, device=device)
        values = torch.zeros(*shape, longest, device=device)
        return cls(
            total, ids, values, torch.full(shape, -inf, device=device), ids.clone(), values.clone(),
            torch.zeros(shape, dtype=torch.long, device=device), torch.zeros(shape, dtype=torch.bool, device=device),
            torch.zeros_like(limits, dtype=torch.bool), limits,
            (torch.zeros_like(limits) if states is None else states)[:, None].repeat(1, beam),
        )  # fmt: skip

    def advance(
        self, logits: Tensor, t: Tensor, rules: DecodingConfig, rule: LogitsRules, source: Tensor | None = None
    ) -> tuple[Beams, Tensor, Tensor]:
        """Grow by the t-th token, t (1,): return the new beams, and each one's parent and token, (B, k).

        ``source`` (B, S) is for rules that need it.
        """
        k, V, count = self.total.shape[1], logits.shape[-1], rule.candidates(self.total.shape[1])
        values, tokens = self._candidates(logits, t, rule, source)  # (B, k, 2k)
        sums = (self.total[:, :, None] + values).flatten(1)
        order = self._in_turns(sums, tokens, rule, t) if rule.levels else sums
        index = order.topk(min(count, k * V))[1]  # (B, 2k)
        total = sums.gather(1, index)
        parent, token = index // values.shape[-1], tokens.flatten(1).gather(1, index)
        state = rule.after(self.state.gather(1, parent).flatten(), token.flatten(), t).view_as(token)
        ids = _grown(self.ids, parent, t, token)
        grown_values = _grown(self.values, parent, t, values.flatten(1).gather(1, index))
        ends = rule.ended(token)
        likely = torch.arange(ends.shape[1], device=ends.device) < k  # an end counts among the k likeliest
        stops = (ends & likely) | (self.limits == t + 1)[:, None]
        stops = stops & ~self.finished(t - 1)[:, None]  # a finished sentence accepts no more answers

        # A prefix that ends here, or must stop here, competes with those that ended before.
        score = torch.where(stops, total / rules.divisor(t + 1), -inf)
        done_score, chosen = torch.cat([self.done_score, score], 1).topk(k)
        lengths = torch.cat([self.done_length, (t + 1).expand_as(token)], 1)
        done = {
            "done_score": done_score,
            "done_ids": _chosen(torch.cat([self.done_ids, ids], 1), chosen),
            "done_values": _chosen(torch.cat([self.done_values, grown_values], 1), chosen),
            "done_length": lengths.gather(1, chosen),
            "done_ended": torch.cat([self.done_ended, ends], 1).gather(1, chosen),
        }
        # The others stay open.
        rest = torch.where(ends, -inf, total)
        turn = torch.arange(total.shape[1], 0, -1, device=total.device)
        chosen = (torch.where(rest > -inf, turn, 0) if rule.levels else rest).topk(k)[1]
        total = rest.gather(1, chosen)
        settled = {
            "likeliest": stops[:, 0],
            "beaten": total.amax(1) / rules.divisor(t + 1) <= done_score[:, 0 if rule.levels else -1],
            "full": done_score[:, -1] > -inf,
        }["beaten" if rule.levels else rules.stopping]
        done["settled"] = self.settled | settled
        grown = Beams(
            total, _chosen(ids, chosen), _chosen(grown_values, chosen), **done, limits=self.limits,
            state=state.gather(1, chosen),
        )  # fmt: skip
        return grown, parent.gather(1, chosen), token.gather(1, chosen)

    def _candidates(self, logits: Tensor, t: Tensor, rule: LogitsRules, source: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the log-probabilities of the likeliest next tokens of each prefix, and these tokens, (B, k, 2k)."""
        B, k = self.total.shape
        V, total_of_row = logits.shape[-1], None
        each = max(1, IN_CACHE // (k * V)) if logits.device.type == "cpu" else B
        if each < B:
            # The rules and the search read all logits several times. From the cache that is several times as fast.
            groups = [slice(first, first + each) for first in range(0, B, each)]
            found = [
                self.select(group)._candidates(
                    logits[group.start * k : group.stop * k], t, rule, None if source is None else source[group]
                )
                for group in groups
            ]
            values, tokens = (torch.cat(parts) for parts in zip(*found, strict=True))
            return values, tokens
        if not rule.idle:
            limits = self.limits.repeat_interleave(k, output_size=B * k)
            own = None if source is None else source.repeat_interleave(k, 0, output_size=B * k)
            logits, total_of_row = rule.allowed(logits, t, limits, self.state.flatten(), self.ids.flatten(0, 1), own)
            total_of_row = total_of_row.view(B, k, 1)
        # 2k candidates leave k open ones even if k of them end. Each is among the best 2k of its own beam.
        values, tokens = likeliest(logits.view(B, k, V), min(rule.candidates(k), V), total_of_row)
        if rule.levels:
            assert total_of_row is not None
            values, tokens = _with_needed(values, tokens, logits.view(B, k, V), total_of_row, self.state, rule)
        return values, tokens

    def _in_turns(self, sums: Tensor, tokens: Tensor, rule: LogitsRules, t: Tensor) -> Tensor:
        """Rank candidates so that only those with equally many required phrases compete.

        The best of each group come first, then the second best. Without this a beam would keep the likeliest prefixes,
        which contain no phrase, until only the end is left (Post and Vilar 2018). sums (B, C), tokens (B, k, C / k).
        """
        assert rule.gate is not None
        spread = self.state[:, :, None].expand_as(tokens).flatten()
        group = rule.gate.level[rule.after(spread, tokens.flatten(), t)].view_as(sums)  # (B, C)
        better = sums[:, None] > sums[:, :, None]  # (B, C, C): whether the second is better than the first
        tied = (sums[:, None] == sums[:, :, None]) & torch.ones_like(better).tril(-1)
        rank = ((better | tied) & (group[:, None] == group[:, :, None])).sum(2)
        order = -(rank * (rule.gate.most_levels + 1) - group).float()
        return torch.where(sums > -inf, order, -inf)

    def finished(self, t: Tensor) -> Tensor:
        """Whether each sentence is done after the t-th token, (B,): k answers have ended, the likeliest of all among
        them; or the limit is reached; or no prefix is open, since all that is allowed has ended.
        """
        full = self.settled & (self.done_score[:, -1] > -inf)
        return full | (self.limits <= t + 1) | (self.total == -inf).all(1)

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
                if score != -inf  # not true of NaN, so broken weights give an answer, too
            ]
            for sentence in zip(*(column.tolist() for column in columns), strict=True)
        ]


class Beam:
    """Keeps the k likeliest prefixes of each sentence. Rows are sentences × k."""

    def __init__(
        self,
        limits: Tensor,
        special: Special,
        rules: DecodingConfig,
        gate: TokenMask | None = None,
        states: Tensor | None = None,
        source: Tensor | None = None,
    ) -> None:
        longest = int(limits.max())
        self.rules, self.beam, self.source = rules, rules.beam, source
        self.beams = Beams.start(limits, longest, self.beam, special.pad, states)
        self.rule = LogitsRules(special, rules, limits.device, gate)
        self.numbers = torch.arange(longest, device=limits.device)[:, None]  # of the steps
        self.sentence = torch.arange(len(limits), device=limits.device)  # of each row of the shrinking tensors
        self.results: list[list[Hypothesis]] = [[] for _ in limits]

    def take(self, logits: Tensor, t: int) -> GoingOn:
        """Grow the prefixes by a token, and store the answers of finished sentences."""
        self.beams, parent, token = self.beams.advance(logits, self.numbers[t], self.rules, self.rule, self.source)
        finished = self.beams.finished(self.numbers[t])
        rows = (~finished).nonzero()[:, 0]
        if len(rows) < len(self.sentence):
            done = finished.nonzero()[:, 0]
            found = self.beams.select(done).hypotheses()
            for index, hypotheses in zip(self.sentence[done].tolist(), found, strict=True):
                self.results[index] = hypotheses
            if not len(rows):
                return None
            self.beams, self.sentence = self.beams.select(rows), self.sentence[rows]
            self.source = None if self.source is None else self.source[rows]
            parent, token = parent[rows], token[rows]
        return (rows[:, None] * self.beam + parent).flatten(), token.flatten()[:, None]


@torch.inference_mode()
def beam_search(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    special: Special,
    rules: DecodingConfig,
    allowed: Automaton | None = None,
) -> list[list[Hypothesis]]:
    """Keep the ``rules.beam`` likeliest prefixes of each sentence; return its answers, best first.

    A sentence is done when ``rules.beam`` answers have ended, and one of them was the likeliest of all
    prefixes when it ended. Without the second condition, answers that break off early would win over a longer
    answer of high probability. A beam of 1 is greedy search.
    """
    reader, starts = reader_of(model, sources, special, rules.beam)
    limits = limits_of(model, sources, reader.memory.device, rules, allowed)
    source = source_of(sources, rules, limits.device)
    choice = Beam(limits, special, rules, *gate_of(allowed, model, limits, rules), source)
    for _ in steps(reader, choice, starts):
        pass
    return choice.results


def likeliest(logits: Tensor, count: int, total: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the largest log-probabilities of each row of logits (…, V), in float32, and their tokens, (…, count).

    ``total`` (…, 1) is log Σ exp of the row, if some of its tokens were excluded since.

    ``topk`` is slow on long rows. So they are cut into parts: the largest ``count`` numbers are in the
    ``count`` parts with the largest maxima, and only those parts are searched.
    """
    V = logits.shape[-1]
    if V < 8 * LOGITS_PART or count >= V // LOGITS_PART:
        values, tokens = logits.float().topk(count)
        # The largest is subtracted first. If it is nearly certain, rounding would lose the rest.
        best = values[..., :1]
        if total is not None:
            return values - total, tokens
        return (values - best) - (logits.float() - best).logsumexp(-1, keepdim=True), tokens
    maxima, logs = _by_parts(logits, sums=total is None)  # (…, parts)
    chosen = _top(maxima, count)[1][..., None]  # (…, count, 1)
    within = torch.arange(LOGITS_PART, device=logits.device)
    near = (chosen * LOGITS_PART + within).flatten(-2)  # (…, count · LOGITS_PART): tokens
    values, place = _top(logits.gather(-1, near.clamp(max=V - 1)).masked_fill(near >= V, -inf), count)
    if total is None:
        assert logs is not None
        total = logs.logsumexp(-1, keepdim=True)
    return values.float() - total, near.gather(-1, place).clamp(max=V - 1)


def _with_needed(
    values: Tensor, tokens: Tensor, logits: Tensor, total: Tensor, state: Tensor, rule: LogitsRules
) -> tuple[Tensor, Tensor]:
    """Add the tokens that an answer needs next to its likeliest ones, (B, k, 2k + W), each once."""
    assert rule.gate is not None
    needed = rule.gate.further(state.flatten()).view(*state.shape, -1)  # (B, k, W)
    first = torch.ones_like(needed, dtype=torch.bool)
    first[..., 1:] = needed[..., 1:] != needed[..., :-1]  # they are sorted, and the last is repeated
    new = first & (needed[..., None] != tokens[:, :, None]).all(-1)
    value = torch.where(new, logits.gather(-1, needed) - total, -inf)
    return torch.cat([values, value], -1), torch.cat([tokens, needed], -1)


def _by_parts(x: Tensor, sums: bool = True) -> tuple[Tensor, Tensor | None]:
    """Return the maximum of each part of each row of x (…, V), (…, parts), in float32; with ``sums`` also log Σ exp."""
    if x.is_cuda and HAS_TRITON:
        from seq2see.kernels.choose_kernels import scan

        return scan(x, LOGITS_PART)
    whole = x.shape[-1] // LOGITS_PART * LOGITS_PART
    parts = [x[..., :whole].view(*x.shape[:-1], -1, LOGITS_PART).float(), x[..., None, whole:].float()]
    parts = [part for part in parts if part.numel()]
    maxima = torch.cat([part.amax(-1) for part in parts], -1)
    return maxima, torch.cat([part.logsumexp(-1) for part in parts], -1) if sums else None


def _top(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the largest numbers of each row and their positions; a single one is found faster than by ``topk``."""
    values, places = x.max(-1, keepdim=True) if count == 1 else x.topk(count)
    return values, places


def _chosen(x: Tensor, index: Tensor) -> Tensor:
    """Pick beams: x (B, n, L), index (B, k) to (B, k, L)."""
    return x.gather(1, index[:, :, None].expand(-1, -1, x.shape[-1]))


def _grown(x: Tensor, parent: Tensor, t: Tensor, new: Tensor) -> Tensor:
    """Copy each candidate's parent and write its new entry at t."""
    return _chosen(x, parent).index_copy(2, t, new[:, :, None])
