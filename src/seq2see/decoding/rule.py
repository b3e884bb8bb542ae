"""Which token may come next in an answer: one rule that every search applies to the logits of each step."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np
import torch
from torch import Tensor

from seq2see.config import DecodingConfig
from seq2see.decoding.allowed import NOWHERE, Automaton
from seq2see.decoding.hypothesis import MOST_PHRASES, Special

WIDE = 64  # listed tokens of a state from which a row for the whole vocabulary is faster
DENSE = 2**24  # states × vocabulary up to which every state has such a row


class TokenMask:
    """An automaton as tensors: which tokens may follow in a state, and to which state each leads.

    The sizes of the tensors are powers of two, so that a captured graph serves many automata.
    """

    def __init__(self, automaton: Automaton, vocabulary: int, device: torch.device, near: bool = True) -> None:
        self.near = near  # whether an end must be near enough; not for a list, since every text fits
        self.levels = bool(automaton.level.any())
        self.most_levels = 2 * MOST_PHRASES + 1  # the highest level of an automaton, that of the end
        self.sizes = sizes_of(automaton, vocabulary)
        states, edges, wide, listed = self.sizes

        def empty(*shape: int, dtype: torch.dtype = torch.long) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        self.other, self.first, self.count, self.distance = (empty(states) for _ in range(4))
        self.level, self.wide = empty(states), empty(states)
        self.tokens, self.states = empty(edges), empty(edges)
        self.rows = empty(wide, vocabulary, dtype=torch.int32)
        # −∞ for tokens that are not allowed
        self.out = empty(0 if near else wide, vocabulary, dtype=torch.float32)
        self.window = torch.arange(listed, device=device)
        self.put(automaton)

    def put(self, automaton: Automaton) -> None:
        """Copy an automaton of these sizes or smaller ones."""
        for name in ("other", "first", "count", "distance", "level", "tokens", "states"):
            values = torch.from_numpy(getattr(automaton, name))
            getattr(self, name)[: len(values)].copy_(values)
        self.wide.zero_()
        wide = _wide(automaton, self.rows.shape[1])
        if not wide:
            return
        row_of = np.full(len(automaton.count), -1)
        row_of[wide] = np.arange(len(wide))
        edge = np.repeat(row_of, automaton.count)  # the row of each listed token
        table = np.repeat(automaton.other[wide].astype(np.int32)[:, None], self.rows.shape[1], 1)
        kept = edge >= 0
        table[edge[kept], automaton.tokens[: len(edge)][kept]] = automaton.states[: len(edge)][kept]
        rows = torch.from_numpy(table)
        self.rows[1 : len(wide) + 1].copy_(rows)
        if not self.near:
            self.out[1 : len(wide) + 1].copy_(torch.zeros(rows.shape).masked_fill(rows == NOWHERE, -inf))
        self.wide[torch.tensor(wide, device=self.wide.device)] = torch.arange(1, len(wide) + 1, device=self.wide.device)

    def masked(self, logits: Tensor, state: Tensor, left: Tensor) -> Tensor:
        """Return logits (R, V) with −∞ for tokens that a state (R,) does not allow, or after which no end is
        near enough.

        ``left`` (R,) is how many more tokens the answer may have, including the next.
        """
        if len(self.window):
            allowed = self._reaches(self.other[state], left)  # (R,)
            found = torch.where(allowed[:, None], logits, -inf)
            token, after, listed = self._listed(state)  # (R, W)
            value = torch.where(self._reaches(after, left[:, None]), logits.gather(1, token), -inf)
            found = found.scatter(1, token, torch.where(listed, value, found.gather(1, token)))
        else:
            found = logits
        if len(self.rows) > 1:
            row = self.wide[state]
            if self.near:
                allowed = self._reaches(self.rows[row].long(), left[:, None])
                wide = torch.where(allowed, logits, -inf)
            else:
                wide = logits + self.out[row]
            found = torch.where((row > 0)[:, None], wide, found) if len(self.window) else wide
        return found

    def after(self, state: Tensor, token: Tensor) -> Tensor:
        """Return the state after a token; both (R,)."""
        if not len(self.window):  # every state has a row
            return self.rows[self.wide[state], token].long()
        tokens, after, listed = self._listed(state)
        here = listed & (tokens == token[:, None])
        to = torch.where(here.any(1), torch.where(here, after, -1).amax(1), self.other[state])
        if len(self.rows) > 1:
            row = self.wide[state]
            to = torch.where(row > 0, self.rows[row, token].long(), to)
        return to

    def further(self, state: Tensor) -> Tensor:
        """Return the listed tokens (R, W) of each state (R,): they bring an answer nearer to its phrases."""
        return self._listed(state)[0]

    def _listed(self, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the listed tokens of states, their next states, and whether there are any; the last is repeated."""
        count = self.count[state][:, None]
        place = self.first[state][:, None] + torch.minimum(self.window, (count - 1).clamp(min=0))
        return self.tokens[place], self.states[place], (count > 0).expand(-1, len(self.window))

    def _reaches(self, state: Tensor, left: Tensor) -> Tensor:
        return (state > NOWHERE) & (self.distance[state] < left) if self.near else state > NOWHERE


def _wide(automaton: Automaton, vocabulary: int) -> list[int]:
    """Return the states that have a row for the whole vocabulary."""
    if not automaton.level.any() and len(automaton.count) * vocabulary <= DENSE:
        return [*range(len(automaton.count))]
    wide: list[int] = (automaton.count > WIDE).nonzero()[0].tolist()
    return wide


def sizes_of(automaton: Automaton, vocabulary: int) -> tuple[int, int, int, int]:
    """Return the sizes for states, listed tokens, wide rows, and listed tokens of one state."""
    wide = _wide(automaton, vocabulary)
    narrow = automaton.count[automaton.count <= WIDE]
    listed = 0 if len(wide) == len(automaton.count) else power_of_two(int(narrow.max(initial=1)))
    return (
        power_of_two(len(automaton.count)),
        power_of_two(len(automaton.tokens)),
        power_of_two(len(wide) + 1),
        listed,
    )


def power_of_two(count: int) -> int:
    """Return the next power of two."""
    return 1 << max(count - 1, 0).bit_length()


class LogitsRules:
    """All constraints on an answer, applied to the logits of each step.

    An excluded token keeps its probability: the others do not become likelier. A forced token has probability
    1. The order is that of Hugging Face's ``generate``: penalties, excluded tokens, forced tokens.
    """

    def __init__(
        self, special: Special, rules: DecodingConfig, device: torch.device, gate: TokenMask | None = None
    ) -> None:
        def row(ids: Sequence[int]) -> Tensor:
            return torch.tensor(ids, dtype=torch.long, device=device)

        self.special, self.rules, self.gate = special, rules, gate
        self.out, self.first_out = row(rules.suppressed), row(rules.first_suppressed)
        self.ends = row([special.end, *rules.other_ends])
        self.first = row(special.forced)  # the forced tokens, step by step
        self.looks_back = bool(rules.no_repeat or rules.no_repeat_source or rules.repetition_penalty != 1.0)
        self.needs_source = rules.no_repeat_source > 0
        self.idle = gate is None and not (
            self.looks_back
            or special.forced
            or rules.suppressed
            or rules.first_suppressed
            or rules.other_ends
            or rules.min_length
            or rules.forced_end
        )

    @property
    def levels(self) -> bool:
        """Whether answers must contain phrases, so that a beam keeps prefixes with some of them."""
        return self.gate is not None and self.gate.levels

    def candidates(self, beam: int) -> int:
        """Return how many candidates leave ``beam`` open ones, even if ``beam`` of them take each end token."""
        return (1 + len(self.ends)) * beam

    def ended(self, token: Tensor) -> Tensor:
        """Whether tokens end an answer."""
        if len(self.ends) == 1:
            return token == self.special.end
        return (token[..., None] == self.ends).any(-1)

    def allowed(
        self,
        logits: Tensor,
        t: Tensor,
        limits: Tensor,
        state: Tensor | None = None,
        ids: Tensor | None = None,
        source: Tensor | None = None,
        totals: bool = True,
    ) -> tuple[Tensor, Tensor]:
        """Return logits (R, V) with −∞ for excluded tokens at step t, and log Σ exp of those that count, (R, 1).

        t is (1,) or (R,), limits (R,) is the most tokens of each answer, state (R,) is the gate's, ids (R, L)
        are the answers so far. Source (R, S) is needed if ``needs_source``; its padding is −1. Without
        ``totals`` the sums are 0. No branch depends on t, which the host does not know on a GPU.
        """
        rules, logits = self.rules, logits.float()
        by_probability = rules.repetition_penalty != 1.0 and rules.beam > 1
        # (R, 1): excluded tokens count too
        total = logits.logsumexp(-1, keepdim=True) if totals or by_probability else logits.new_zeros(len(logits), 1)
        if self.looks_back:
            assert ids is not None, "the rules of this search need the answer so far"
            past = torch.cat([torch.full_like(ids[:, :1], self.special.start), ids], 1)  # as it was read
            if rules.repetition_penalty != 1.0:
                seen = torch.where(torch.arange(past.shape[1], device=past.device) <= t[:, None], past, -1)
                # A beam compares log-probabilities, and ``generate`` changes those.
                zero = total if by_probability else torch.zeros_like(total)
                logits = _repelled(logits, seen, zero, rules.repetition_penalty)
            if rules.no_repeat:
                logits = without_repeats(logits, past, t + 1, rules.no_repeat)
            if rules.no_repeat_source:
                assert source is not None, "the rules of this search need the source"
                logits = without_repeats(logits, past, t + 1, rules.no_repeat_source, source)
        if len(self.out):
            logits = logits.index_fill(-1, self.out, -inf)
        if len(self.first_out):
            logits = self._at(logits, self.first_out, t == len(self.first))
        if rules.min_length:
            logits = self._at(logits, self.ends, t < rules.min_length)
        if self.gate is not None and state is not None:
            logits = self.gate.masked(logits, state, limits - t)
        return self._forced(logits, total, t, limits)

    @staticmethod
    def _at(logits: Tensor, tokens: Tensor, when: Tensor) -> Tensor:
        """Exclude tokens in the rows that a mask, (1,) or (R,), selects."""
        if _nowhere(when):
            return logits
        return torch.where(when[:, None], logits.index_fill(-1, tokens, -inf), logits)

    def _forced(self, logits: Tensor, total: Tensor, t: Tensor, limits: Tensor) -> tuple[Tensor, Tensor]:
        """Exclude all tokens but the forced one, at the beginning and at the limit."""
        count = len(self.first)
        if not count and not self.rules.forced_end:
            return logits, total
        tokens = torch.arange(logits.shape[-1], device=logits.device)
        must = torch.zeros_like(limits, dtype=torch.bool)  # (R,)
        token = torch.zeros_like(limits)
        if count:
            must = (t < count).expand_as(limits)
            token = self.first[t.clamp(max=count - 1)].expand_as(limits)
        if self.rules.forced_end:
            last = (limits == t + 1) & ~must
            token = torch.where(last, self.special.end, token)
            must = must | last
        if _nowhere(must):
            return logits, total
        other = must[:, None] & (tokens != token[:, None])  # (R, V)
        only = must[:, None] & (tokens == token[:, None])
        logits = logits.masked_fill(other, -inf).masked_fill(only, 0.0)
        return logits, total.masked_fill(must[:, None], 0.0)

    def along(self, logits: Tensor, answer: Sequence[int], limit: int, source: Sequence[int]) -> Tensor:
        """Return the logits of all steps of one answer, (T, V), with −∞ for excluded tokens."""
        if self.idle:
            return logits
        steps = torch.arange(len(logits), device=logits.device)
        ids, own = (torch.tensor([*row], device=logits.device).expand(len(steps), -1) for row in (answer, source))
        return self.allowed(logits, steps, torch.full_like(steps, limit), None, ids, own)[0]

    def after(self, state: Tensor, token: Tensor, t: Tensor) -> Tensor:
        """Return the gate's state after the t-th token; tokens forced before an answer do not count."""
        if self.gate is None:
            return state
        after = self.gate.after(state, token)
        return torch.where(t < len(self.first), state, after) if len(self.first) else after


def _nowhere(when: Tensor) -> bool:
    """Whether a condition holds in no row; False on a GPU, where the host would have to wait."""
    return when.device.type == "cpu" and not bool(when.any())


def without_repeats(logits: Tensor, ids: Tensor, t: Tensor, size: int, source: Tensor | None = None) -> Tensor:
    """Exclude each token that would repeat a sequence of ``size`` tokens of the t tokens so far, ids (R, L).

    With a ``source`` (R, S), sequences of the source are excluded instead; −1 is padding.
    """
    if ids.shape[1] < size or (source is not None and source.shape[1] < size):
        return logits
    windows = (ids if source is None else source).unfold(1, size, 1)  # (R, n, size)
    places = t[..., None] - size + 1 + torch.arange(size - 1, device=ids.device)  # (1 or R, size − 1)
    last = ids.gather(1, places.clamp(min=0).expand(len(ids), -1))
    same = (windows[:, :, :-1] == last[:, None]).all(-1) & (t[..., None] >= size - 1)
    if source is None:
        same = same & (torch.arange(windows.shape[1], device=ids.device) + size <= t[..., None])
    token = torch.where(same, windows[:, :, -1], -1)
    return _scattered(logits, token, torch.full_like(token, -inf, dtype=logits.dtype))


def _repelled(logits: Tensor, tokens: Tensor, zero: Tensor, penalty: float) -> Tensor:
    """Move the logits of tokens (R, n) away from ``zero`` (R, 1) if they are below it, and towards it if above."""
    own = logits.gather(1, tokens.clamp(min=0)) - zero
    return _scattered(logits, tokens, zero + torch.where(own < 0, own * penalty, own / penalty))


def _scattered(logits: Tensor, tokens: Tensor, values: Tensor) -> Tensor:
    """Write values for tokens, both (R, n), into logits; a negative token goes to a column that is cut off."""
    room = torch.cat([logits, logits.new_zeros(len(logits), 1)], 1)
    return room.scatter(1, torch.where(tokens < 0, logits.shape[1], tokens), values)[:, :-1]
