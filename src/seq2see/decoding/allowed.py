"""The allowed answers as an automaton over tokens: a list, a pattern, a prefix, or phrases that an answer must contain.

Each state says which tokens may follow and to which states they lead: some are listed, and all others lead to
one state or are not allowed. States without a way to an end are removed, so no search runs into a dead end.
The shortest way to an end is known, so an answer can end within its limit.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from seq2see.config import DecodingConfig
from seq2see.decoding.hypothesis import MOST_PHRASES, Phrase
from seq2see.decoding.patterns import FIRST, Machine, machine_of
from seq2see.errors import InputError, UserError, shown
from seq2see.stopping import go_on
from seq2see.tokenizers.pieces import pieces_of
from seq2see.tokenizers.tokenizer import Tokenizer

NOWHERE, ENDED = 0, 1  # two states of every automaton: "not allowed" and "after the end"
FAR = 10**6  # distance to an end that cannot be reached
MOST_CELLS = 2**24  # most states × vocabulary of a pattern
MOST_LISTED = 2**22  # most listed tokens of all states of a pattern


@dataclass
class State:
    """The next states of the listed tokens, and of all others."""

    listed: dict[int, int] = field(default_factory=dict)
    other: int = NOWHERE
    level: int = 0  # how many of the required phrases are there


Row = tuple[np.ndarray, np.ndarray]  # the listed tokens of a state, and their next states


@dataclass(frozen=True)
class Automaton:
    """All states as arrays, and the state in which each answer starts."""

    other: np.ndarray  # (S,)
    first: np.ndarray  # (S,): index of the first listed token of a state
    count: np.ndarray  # (S,): number of listed tokens
    tokens: np.ndarray  # (E,)
    states: np.ndarray  # (E,): their next states
    distance: np.ndarray  # (S,): fewest tokens to an end, including the end
    level: np.ndarray  # (S,)
    starts: np.ndarray  # (B,), one for each source
    made: dict[object, Any] = field(default_factory=dict, compare=False, repr=False)  # tensors that searches made of it

    @classmethod
    def of(cls, states: Sequence[State], starts: Sequence[int]) -> Automaton:
        """Lay out states, without those that cannot reach an end."""
        rows = [(np.fromiter(one.listed, np.int64), np.fromiter(one.listed.values(), np.int64)) for one in states]
        return cls.laid_out(rows, [one.other for one in states], [one.level for one in states], starts)

    @classmethod
    def laid_out(
        cls, rows: Sequence[Row], others: Sequence[int], levels: Sequence[int], starts: Sequence[int]
    ) -> Automaton:
        """Lay out states, each with its listed tokens and their next states; all other tokens lead to ``others``."""
        other = np.array(others, np.int64)
        distance = _distances(rows, other)
        good = distance < FAR
        other = np.where(good[other], other, NOWHERE)
        kept = [_kept(row, good, to != NOWHERE) for row, to in zip(rows, others, strict=True)]
        count = np.array([len(tokens) for tokens, _ in kept], np.int64)
        tokens, after = (np.concatenate(column) for column in zip(*kept, strict=True))
        first = np.concatenate([[0], np.cumsum(count)[:-1]])
        if not len(tokens):
            tokens, after = np.zeros((2, 1), np.int64)
        level = np.array(levels, np.int64)
        return cls(other, first, count, tokens, after, distance, level, np.array(starts, np.int64))

    def select(self, rows: Sequence[int]) -> Automaton:
        """Return the automaton for some of the sources."""
        starts = self.starts if len(self.starts) == 1 else self.starts[list(rows)]
        return replace(self, starts=starts)

    def starts_of(self, sources: int) -> np.ndarray:
        """Return the first state of each answer, (B,)."""
        return np.repeat(self.starts, sources) if len(self.starts) == 1 else self.starts

    @property
    def shortest(self) -> int:
        """The fewest tokens of any allowed answer, including its end."""
        return int(self.distance[self.starts].max())

    def room(self, rules: DecodingConfig, longest: int) -> int:
        """Return how many tokens an answer must be allowed, whatever its source.

        Answers of a list may be as long as its longest text; others need the length of the shortest allowed answer.
        """
        most = min(longest - 1, FAR if rules.max_length is None else rules.max_length)
        if self.shortest > most:
            raise UserError(
                f"The shortest allowed answer has {self.shortest:,} tokens, but an answer may have at most "
                f"{most:,}: allow a shorter one, or set `max_length` higher."
            )
        return min(self.longest or self.shortest, most)

    def must_hurry(self, rules: DecodingConfig, longest: int) -> bool:
        """Whether an answer may run out of tokens before its end; a list has room for all its texts."""
        return self.longest is None or self.longest > self.room(rules, longest)

    @cached_property
    def longest(self) -> int | None:
        """The most tokens of an allowed answer; None if there is no limit or it is unknown."""
        if (self.other[2:] != NOWHERE).any():
            return None
        depth = np.zeros(len(self.other), np.int64)
        # A trie lists its states before their successors, so one pass is enough.
        for state in range(2, len(self.other)):
            place = slice(self.first[state], self.first[state] + self.count[state])
            after = self.states[place]
            if (after[after > ENDED] <= state).any():
                return None
            depth[after] = np.maximum(depth[after], depth[state] + 1)
        return int(depth.max())


def _kept(row: Row, good: np.ndarray, others: bool) -> Row:
    """Return the tokens of a state in order. A token that leads to no end is listed only if there are ``others``."""
    go_on()
    order = row[0].argsort()
    tokens, after = row[0][order], np.where(good[row[1][order]], row[1][order], NOWHERE)
    return (tokens, after) if others else (tokens[after != NOWHERE], after[after != NOWHERE])


def _distances(rows: Sequence[Row], other: np.ndarray) -> np.ndarray:
    """Return the number of tokens on the shortest way from each state to an end."""
    before: list[list[int]] = [[] for _ in rows]
    for number, (_, after) in enumerate(rows):
        go_on()
        for to in {*np.unique(after).tolist(), int(other[number])}:
            before[to].append(number)
    distance = np.full(len(rows), FAR, np.int64)
    distance[ENDED] = 0
    ring = [ENDED]
    while ring:
        further = []
        for to in ring:
            for number in before[to]:
                if number > ENDED and distance[number] == FAR:
                    distance[number] = distance[to] + 1
                    further.append(number)
        ring = further
    return distance


def _fixed() -> list[State]:
    return [State(), State(other=ENDED)]


class Automata:
    """The automata of the last constraints, since many requests have the same ones; their total size is limited."""

    def __init__(self, target: Tokenizer, cells: int = MOST_CELLS) -> None:
        self.target, self.states = target, cells // target.size
        self.known: OrderedDict[tuple[object, ...], Automaton] = OrderedDict()

    def of(self, only: Sequence[str] | None, pattern: str | None, prefix: str | None) -> Automaton:
        """Return the automaton of the constraint that is not None."""
        key = (only, pattern, prefix)
        if key not in self.known:
            if only is not None:
                self.known[key] = one_of(list(dict.fromkeys(only)), self.target)
            elif pattern is not None:
                self.known[key] = matching(pattern, self.target)
            else:
                self.known[key] = beginning(str(prefix), self.target)
        self.known.move_to_end(key)
        while len(self.known) > 1 and sum(len(one.count) for one in self.known.values()) > self.states:
            self.known.popitem(last=False)
        return self.known[key]


def one_of(texts: Sequence[str], tokenizer: Tokenizer) -> Automaton:
    """Allow the texts of a list, each as the tokenizer splits it."""
    states = [*_fixed(), State()]
    if not texts:
        raise UserError("The list of `only` is empty: at least one answer was expected.")
    for text in texts:
        _check(text, tokenizer)
    for text, ids in zip(texts, tokenizer.encode_batch(list(texts)), strict=True):
        inner = ids[len(tokenizer.before) :]
        if tokenizer.end not in inner[-1:]:
            inner = [*inner, tokenizer.end]
        if tokenizer.decode(inner[:-1]) != tokenizer.plain(text) or tokenizer.unknown in inner:
            raise UserError(f"The answer {shown(text)} of the list {UNWRITABLE}")
        at = 2
        for token in inner[:-1]:
            if token not in states[at].listed:
                states.append(State())
                states[at].listed[token] = len(states) - 1
            at = states[at].listed[token]
        states[at].listed[tokenizer.end] = ENDED
    return Automaton.of(states, [2])


UNWRITABLE = "cannot be written with this model's vocabulary: remove it from `only`."


def _check(text: str, tokenizer: Tokenizer) -> None:
    try:
        tokenizer.check(text)
    except InputError:
        raise UserError(f"The answer {shown(text)} of the list {UNWRITABLE}") from None


def beginning(prefix: str, tokenizer: Tokenizer) -> Automaton:
    """Allow answers that begin with a text, in any split into tokens."""
    pieces, front = pieces_of(tokenizer)
    text = (front + prefix).encode()
    by_first: dict[int, list[tuple[int, bytes]]] = {}
    for token, piece in enumerate(pieces):
        if piece:
            by_first.setdefault(piece[0], []).append((token, piece))
    free = 2 + len(text)
    states = _fixed()
    for place in range(len(text)):
        go_on()
        rest, listed = text[place:], {}
        for token, piece in by_first.get(rest[0], ()):
            if rest.startswith(piece):
                listed[token] = 2 + place + len(piece)
            elif piece.startswith(rest):
                listed[token] = free
        states.append(State(listed))
    silent = {token: NOWHERE for token, piece in enumerate(pieces) if piece is None}
    states.append(State(silent | {tokenizer.end: ENDED}, free))
    made = Automaton.of(states, [2])
    if made.shortest >= FAR:
        raise UserError(f"No answer of this model can begin with {shown(prefix)}: its vocabulary lacks a character.")
    return made


def matching(pattern: str, tokenizer: Tokenizer) -> Automaton:
    """Allow what a Python regular expression matches as a whole.

    A character without a token is written in bytes only if the pattern names it; "." does not.
    """
    pieces, front = pieces_of(tokenizer)
    texts = [_decoded(piece) for piece in pieces]
    machine = machine_of(pattern, front, {sign for text in texts for sign in text})
    size = len(machine.table)
    if size * len(pieces) > MOST_CELLS:
        raise UserError(
            f"The pattern {shown(pattern)} needs {size:,} states, and a model with {len(pieces):,} tokens has room for "
            f"{MOST_CELLS // len(pieces):,}: write a simpler one."
        )
    rows: list[Row] = [(np.zeros(0, np.int64),) * 2] * (ENDED + 1)
    listed = 0
    for place, (tokens, after) in enumerate(_walked(machine, texts), ENDED + 1):
        listed += len(tokens)
        if listed > MOST_LISTED:
            raise UserError(
                f"The pattern {shown(pattern)} allows more than {MOST_LISTED:,} tokens in its {size:,} states together: "
                "write a simpler one, with smaller repetitions."
            )
        ends = ([tokenizer.end], [ENDED]) if place - ENDED in machine.finals else ([], [])
        rows.append((np.append(tokens, ends[0]).astype(np.int64), np.append(after + ENDED, ends[1]).astype(np.int64)))
    _add_bytes(rows, machine, pieces)
    others = [NOWHERE, ENDED, *[NOWHERE] * (len(rows) - 2)]
    made = Automaton.laid_out(rows, others, [0] * len(rows), [FIRST + ENDED])
    if made.shortest >= FAR:
        raise UserError(f"No text that this model can write matches the pattern {shown(pattern)}.")
    return made


def _walked(machine: Machine, texts: Sequence[str]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Return for each state the tokens that may follow, and the states to which they lead.

    Tokens that look the same to the pattern share one row of character classes; rows are processed column by column.
    """
    rows: dict[tuple[int, ...], int] = {}
    row_of = np.full(len(texts), -1)
    for token, text in enumerate(texts):
        if text and all(sign in machine.classes for sign in text):
            row_of[token] = rows.setdefault(tuple(machine.classes[sign] for sign in text), len(rows))
    tokens = (row_of >= 0).nonzero()[0]
    row_of = row_of[tokens]
    by_length: dict[int, list[tuple[int, ...]]] = {}
    for row in rows:
        by_length.setdefault(len(row), []).append(row)
    columns = [
        (np.array([rows[row] for row in some]), np.array(some).T) for some in by_length.values()
    ]  # (R,) and (length, R) for each length
    for state in range(FIRST, len(machine.table)):
        go_on()
        reached = np.zeros(len(rows), np.int64)
        for numbers, signs in columns:
            at = machine.table[state, signs[0]]
            for column in signs[1:]:
                at = machine.table[at, column]
            reached[numbers] = at
        after = reached[row_of]
        here = after.nonzero()[0]
        yield tokens[here], after[here]


def _decoded(piece: bytes | None) -> str:
    """Return the text of a token if it consists of whole characters."""
    try:
        return (piece or b"").decode()
    except UnicodeDecodeError:
        return ""


def _add_bytes(rows: list[Row], machine: Machine, pieces: Sequence[bytes | None]) -> None:
    """Allow bytes for characters that a pattern names and that have no token."""
    whole = {piece for piece in pieces if piece}
    token_of = {piece: token for token, piece in enumerate(pieces) if piece and len(piece) == 1}
    added: dict[int, dict[int, int]] = {}  # by state: the added tokens, and their next states
    size = len(rows)
    for sign in sorted(machine.named):
        if sign not in machine.classes or "\ud800" <= sign <= "\udfff" or sign.encode() in whole:
            continue
        tokens = [token_of.get(bytes([byte]), -1) for byte in sign.encode()]
        if -1 in tokens:
            continue
        go_on()
        for state, to in enumerate(machine.table[FIRST:, machine.classes[sign]].tolist(), FIRST + ENDED):
            if to == NOWHERE:
                continue
            at = state
            for token in tokens[:-1]:
                if token not in added.setdefault(at, {}):
                    added[at][token] = size
                    size += 1
                at = added[at][token]
            added.setdefault(at, {})[tokens[-1]] = to + ENDED
    empty = np.zeros(0, np.int64)
    rows += [(empty, empty)] * (size - len(rows))
    for state, more in added.items():
        rows[state] = tuple(  # type: ignore[assignment]
            np.append(column, np.fromiter(new, np.int64))
            for column, new in zip(rows[state], (more, more.values()), strict=True)
        )


def holding(needs: Sequence[Sequence[Phrase]], end: int, most: int = FAR) -> Automaton:
    """Let each answer end only when it contains the phrases of its source, in any order.

    An answer has at most ``most`` tokens. Phrases that do not fit are left out.
    """
    states = [*_fixed(), State({end: ENDED}, 2)]  # the third allows everything, for a source without phrases
    states[ENDED].level = 2 * MOST_PHRASES + 1  # ends compete with ends
    starts = []
    for wanted in needs:
        phrases = list(wanted[:MOST_PHRASES])
        while phrases and sum(min(map(len, phrase.anywhere)) for phrase in phrases) + 1 > most:
            phrases.pop()
        if not phrases:
            starts.append(2)
            continue
        starts.append(len(states))
        _add_phrases(states, phrases, end)
    return Automaton.of(states, starts)


def _add_phrases(states: list[State], phrases: Sequence[Phrase], end: int) -> None:
    """Add the states of one answer: the progress of the current phrases, and which phrases are complete."""
    anywhere = _Words([ids for phrase in phrases for ids in phrase.anywhere])
    at_start = _Words([ids for phrase in phrases for ids in (*phrase.anywhere, *phrase.at_start)])
    owners: dict[tuple[int, ...], list[int]] = {}
    for number, phrase in enumerate(phrases):
        for ids in (*phrase.anywhere, *phrase.at_start):
            owners.setdefault(tuple(ids), []).append(number)
    whole = (1 << len(phrases)) - 1
    numbers: dict[_Way, int] = {}
    waiting: list[_Way] = []

    def state_of(way: _Way) -> int:
        if way not in numbers:
            numbers[way] = len(states)
            states.append(State(level=2 * way.done.bit_count() + (way.node > 0 and way.done != whole)))
            waiting.append(way)
        return numbers[way]

    def needed(rows: Sequence[tuple[int, ...] | None], done: int) -> list[int]:
        """Return the missing phrases among those that these rows of ids write."""
        return [owner for row in rows if row is not None for owner in owners[row] if not done >> owner & 1]

    def leave(way: _Way) -> tuple[dict[int, int], int]:
        """Return the next states of the listed tokens, and of all others."""
        node, done, first, counted = way
        if done == whole:  # nothing more is needed
            return {end: ENDED}, state_of(_Way(0, done))
        words = at_start if first else anywhere
        if counted is None:
            listed, other = {end: NOWHERE}, state_of(_Way(0, done))
        else:  # a phrase ended here; it counts unless a longer one continues
            listed, other = leave(_Way(0, counted))
        for token, to in (words.children[node] if first or counted is not None else words.after(node)).items():
            ended = needed([words.whole[to]], done)
            if not ended:
                listed[token] = state_of(_Way(to, done, first))
            elif needed(words.through[to], done):
                listed[token] = state_of(_Way(to, done, first, done | 1 << ended[0]))
            else:
                listed[token] = state_of(_Way(0, done | 1 << ended[0]))
        if first and node and counted is None:  # a phrase for any position may begin within one for the start
            for token, to in anywhere.after(0).items():
                if token not in listed:
                    listed[token] = state_of(_Way(to, done))
        return listed, other

    state_of(_Way(0, 0, True))
    while waiting:
        way = waiting.pop()
        state = states[numbers[way]]
        state.listed, state.other = leave(way)


class _Way(NamedTuple):
    """The progress of the phrases of an answer."""

    node: int  # node of ``_Words``: the current phrase
    done: int  # the complete phrases, one bit for each
    first: bool = False  # whether the current phrase began with the answer
    counted: int | None = None  # the complete phrases if the one that ends here does not continue


class _Words:
    """Finds some rows of ids in a stream of ids (Aho and Corasick)."""

    def __init__(self, rows: Sequence[Sequence[int]]) -> None:
        self.children: list[dict[int, int]] = [{}]
        self.whole: list[tuple[int, ...] | None] = [None]  # the row that ends at a node
        self.through: list[list[tuple[int, ...]]] = [[]]  # the rows that continue there
        for row in rows:
            node = 0
            for token in row:
                if token not in self.children[node]:
                    self.children.append({})
                    self.whole.append(None)
                    self.through.append([])
                    self.children[node][token] = len(self.children) - 1
                self.through[node].append(tuple(row))
                node = self.children[node][token]
            self.whole[node] = tuple(row)
        self.fail = [0] * len(self.children)
        queue = list(self.children[0].values())
        for node in queue:
            for token, child in self.children[node].items():
                queue.append(child)
                self.fail[child] = self.after(self.fail[node]).get(token, 0)
                if self.whole[child] is None:
                    self.whole[child] = self.whole[self.fail[child]]

    def after(self, node: int) -> dict[int, int]:
        """Return the next node of each token that does not lead back to the start."""
        found: dict[int, int] = {}
        while True:
            for token, child in self.children[node].items():
                found.setdefault(token, child)
            if node == 0:
                return found
            node = self.fail[node]
