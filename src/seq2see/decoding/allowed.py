"""What an answer may be, as an automaton over tokens: a list, a pattern, a beginning, or phrases that it must hold.

Each state says which tokens may follow and to which states they lead: some are listed, and all others lead to one state
or are not allowed. A state from which no allowed answer can be reached does not exist, so that no search runs into a dead
end; how many tokens the shortest way to an end has is known, so that an answer comes to its end within its limit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from seq2see.config import DecodingConfig
from seq2see.decoding.hypothesis import MOST_PHRASES, Phrase
from seq2see.errors import InputError, UserError, shown
from seq2see.tokenizers.pieces import pieces_of
from seq2see.tokenizers.tokenizer import Tokenizer

NOWHERE, ENDED = 0, 1  # two states of every automaton: not allowed, and after the end
FAR = 10**6  # tokens to an end that is never reached
LONGEST_PATTERN = 1000  # characters
MOST_STEPS = 200_000  # from states to states, while the states of a pattern are made


@dataclass
class State:
    """Where the tokens lead that are listed, and where all others lead."""

    listed: dict[int, int] = field(default_factory=dict)
    other: int = NOWHERE
    level: int = 0  # how much of what an answer must hold is there


@dataclass(frozen=True)
class Automaton:
    """All states as arrays, and the state in which each answer starts."""

    other: np.ndarray  # (S,)
    first: np.ndarray  # (S,): where the listed tokens of a state begin
    count: np.ndarray  # (S,): how many they are
    tokens: np.ndarray  # (E,)
    states: np.ndarray  # (E,): where they lead
    distance: np.ndarray  # (S,): fewest tokens to an end, the end among them
    level: np.ndarray  # (S,)
    starts: np.ndarray  # (B,), one for each source
    made: dict[object, Any] = field(
        default_factory=dict, compare=False, repr=False
    )  # what searches made of it

    @classmethod
    def of(cls, states: Sequence[State], starts: Sequence[int]) -> Automaton:
        """Lay out states; those from which no end can be reached are taken out."""
        distance = _distances(states)
        good = distance < FAR
        listed = [
            sorted((token, to if good[to] else NOWHERE) for token, to in state.listed.items()
                   if good[to] or state.other != NOWHERE)
            for state in states
        ]  # fmt: skip
        count = np.array([len(row) for row in listed], np.int64)
        flat = np.array([pair for row in listed for pair in row], np.int64).reshape(-1, 2)
        other = np.array([state.other if good[state.other] else NOWHERE for state in states], np.int64)
        level = np.array([state.level for state in states], np.int64)
        first = np.concatenate([[0], np.cumsum(count)[:-1]])
        if not len(flat):
            flat = np.zeros((1, 2), np.int64)
        return cls(other, first, count, flat[:, 0], flat[:, 1], distance, level, np.array(starts, np.int64))

    def select(self, rows: Sequence[int]) -> Automaton:
        """Return the automaton for some of the sources."""
        starts = self.starts if len(self.starts) == 1 else self.starts[list(rows)]
        return replace(self, starts=starts)

    def starts_of(self, sources: int) -> np.ndarray:
        """Return the first state of each answer, (B,)."""
        return np.repeat(self.starts, sources) if len(self.starts) == 1 else self.starts

    @property
    def shortest(self) -> int:
        """The fewest tokens of any allowed answer, its end among them."""
        return int(self.distance[self.starts].max())

    def room(self, rules: DecodingConfig, longest: int) -> int:
        """Return how many tokens an answer must be let have, however short its source is.

        Those of a list may be as long as its longest text; others need as many as the shortest allowed answer has.
        """
        most = min(longest - 1, FAR if rules.max_length is None else rules.max_length)
        if self.shortest > most:
            raise UserError(
                f"The shortest answer that is allowed has {self.shortest:,} tokens, but an answer may have at most "
                f"{most:,}: allow a shorter one, or set `max_length` higher."
            )
        return min(self.longest or self.shortest, most)

    def must_hurry(self, rules: DecodingConfig, longest: int) -> bool:
        """Whether an answer may run out of tokens before its end; those of a list have room for all its texts."""
        return self.longest is None or self.longest > self.room(rules, longest)

    @cached_property
    def longest(self) -> int | None:
        """The most tokens of an allowed answer; None if there is no limit, or it is not known."""
        if (self.other[2:] != NOWHERE).any():
            return None
        depth = np.zeros(len(self.other), np.int64)
        # A trie lists its states before those that they lead to, so that one pass is enough.
        for state in range(2, len(self.other)):
            place = slice(self.first[state], self.first[state] + self.count[state])
            after = self.states[place]
            if (after[after > ENDED] <= state).any():
                return None
            depth[after] = np.maximum(depth[after], depth[state] + 1)
        return int(depth.max())


def _distances(states: Sequence[State]) -> np.ndarray:
    """Return how many tokens the shortest way from each state to an end has."""
    before: list[list[int]] = [[] for _ in states]
    for number, state in enumerate(states):
        for to in {*state.listed.values(), state.other}:
            before[to].append(number)
    distance = np.full(len(states), FAR, np.int64)
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


def one_of(texts: Sequence[str], tokenizer: Tokenizer) -> Automaton:
    """Allow the texts of a list, each as the tokenizer cuts it."""
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
    """Allow what begins with a text, however it is cut."""
    pieces, front = pieces_of(tokenizer)
    text = (front + prefix).encode()
    by_first: dict[int, list[tuple[int, bytes]]] = {}
    for token, piece in enumerate(pieces):
        if piece:
            by_first.setdefault(piece[0], []).append((token, piece))
    free = 2 + len(text)
    states = _fixed()
    for place in range(len(text)):
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
        raise UserError(
            f"No answer of this model can begin with {shown(prefix)}: its vocabulary lacks a character."
        )
    return made


def matching(pattern: str, tokenizer: Tokenizer) -> Automaton:
    """Allow what a regular expression of Python matches from end to end; interegular makes states of it.

    A character for which the vocabulary has no token is written in bytes only if the pattern names it: "." does not.
    """
    pieces, front = pieces_of(tokenizer)
    machine = _machine(pattern, front)
    initial, final, table, classes = machine.initial, machine.finals, machine.map, machine.alphabet
    # Tokens that the pattern cannot tell apart are walked once.
    alike: dict[tuple[object, ...], list[int]] = {}
    for token, piece in enumerate(pieces):
        text = _decoded(piece)
        if text:
            alike.setdefault(tuple(classes[sign] for sign in text), []).append(token)
    number = {state: place for place, state in enumerate(table, 2)}
    states = [*_fixed(), *(State() for _ in number)]
    for state, place in number.items():
        listed = states[place].listed
        for row, tokens in alike.items():
            at: Any = state
            for one in row:
                at = table.get(at, {}).get(one)
                if at is None:
                    break
            else:
                listed.update(dict.fromkeys(tokens, number[at]))
        if state in final:
            listed[tokenizer.end] = ENDED
    _add_bytes(states, number, machine, pieces)
    made = Automaton.of(states, [number[initial]])
    if made.shortest >= FAR:
        raise UserError(f"No text that this model can write matches the pattern {shown(pattern)}.")
    return made


def _decoded(piece: bytes | None) -> str:
    """Return what a token writes if these are whole characters."""
    try:
        return (piece or b"").decode()
    except UnicodeDecodeError:
        return ""


def _add_bytes(
    states: list[State], number: Mapping[Any, int], machine: Any, pieces: Sequence[bytes | None]
) -> None:
    """Let the characters that a pattern names, and that no token writes, be written byte by byte."""
    whole = {piece for piece in pieces if piece}
    token_of = {piece: token for token, piece in enumerate(pieces) if piece and len(piece) == 1}
    for sign, kind in machine.alphabet.items():
        if not isinstance(sign, str) or sign.encode() in whole:
            continue
        row = [token_of.get(bytes([byte]), -1) for byte in sign.encode()]
        if -1 in row:
            continue
        for state, place in number.items():
            to, at = machine.map[state].get(kind), place
            if to is None:
                continue
            for token in row[:-1]:
                if token not in states[at].listed:
                    states.append(State())
                    states[at].listed[token] = len(states) - 1
                at = states[at].listed[token]
            states[at].listed[row[-1]] = number[to]


_building = Lock()


def _machine(pattern: str, front: str) -> Any:
    """Return the states of a pattern over characters; one that needs too many is refused before it takes long."""
    try:
        from interegular import fsm, parse_pattern
    except ImportError:
        raise UserError("A pattern needs the package interegular: pip install 'seq2see[pattern]'.") from None
    if len(pattern) > LONGEST_PATTERN:
        raise UserError(
            f"The pattern has {len(pattern):,} characters: at most {LONGEST_PATTERN:,} were expected."
        )
    inner = re.sub(r"(?<!\\)\$$", "", pattern.removeprefix("^"))
    crawl: Any = fsm.crawl
    made = 0

    def bounded(alphabet: Any, initial: Any, final: Any, follow: Any) -> Any:
        def counted(state: Any, key: Any) -> Any:
            nonlocal made
            made += 1
            if made > MOST_STEPS:
                raise UserError(f"The pattern {shown(pattern)} needs too many states: write a simpler one.")
            return follow(state, key)

        return crawl(alphabet, initial, final, counted)

    try:
        re.compile(inner)
        with _building:
            fsm.crawl = bounded
            try:
                return parse_pattern(f"{front}(?:{inner})").to_fsm()
            finally:
                fsm.crawl = crawl
    except UserError:
        raise
    except Exception as error:  # re's, and interegular's, which are bare Exceptions
        why = " ".join(str(error).split())[:200] or "its brackets do not match"
        raise UserError(
            f"The pattern {shown(pattern)} cannot be used ({why}): a regular expression without back-references and "
            "anchors was expected."
        ) from None


def holding(needs: Sequence[Sequence[Phrase]], end: int, most: int = FAR) -> Automaton:
    """Let each answer end only when it holds the phrases of its source, in any order.

    An answer has ``most`` tokens at most. Phrases that have no room are not asked for.
    """
    states = [*_fixed(), State({end: ENDED}, 2)]  # the third allows everything: a source without phrases
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
    """Add the states of one answer: how far the phrases under way have come, and which are there already."""
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
        """Return the phrases, of those that some rows of ids write, that are not there yet."""
        return [owner for row in rows if row is not None for owner in owners[row] if not done >> owner & 1]

    def leave(way: _Way) -> tuple[dict[int, int], int]:
        """Return where the listed tokens lead, and where all others do."""
        node, done, first, counted = way
        if done == whole:  # nothing more is needed
            return {end: ENDED}, state_of(_Way(0, done))
        words = at_start if first else anywhere
        if counted is None:
            listed, other = {end: NOWHERE}, state_of(_Way(0, done))
        else:  # a phrase ended here; it counts unless a longer one goes on
            listed, other = leave(_Way(0, counted))
        for token, to in (
            words.children[node] if first or counted is not None else words.after(node)
        ).items():
            ended = needed([words.whole[to]], done)
            if not ended:
                listed[token] = state_of(_Way(to, done, first))
            elif needed(words.through[to], done):
                listed[token] = state_of(_Way(to, done, first, done | 1 << ended[0]))
            else:
                listed[token] = state_of(_Way(0, done | 1 << ended[0]))
        if (
            first and node and counted is None
        ):  # one that may stand anywhere may begin within one of the start
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
    """How far the phrases of an answer have come."""

    node: int  # of the words: the phrase under way
    done: int  # the phrases that are there, a bit for each
    first: bool = False  # whether the one under way began with the answer
    counted: int | None = None  # what is done if a phrase that ends here is not the beginning of a longer one


class _Words:
    """Finds some rows of ids in a stream of ids (Aho and Corasick)."""

    def __init__(self, rows: Sequence[Sequence[int]]) -> None:
        self.children: list[dict[int, int]] = [{}]
        self.whole: list[tuple[int, ...] | None] = [None]  # the row that ends at a node
        self.through: list[list[tuple[int, ...]]] = [[]]  # the rows that go on there
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
        """Return where each token leads that does not lead back to the start."""
        found: dict[int, int] = {}
        while True:
            for token, child in self.children[node].items():
                found.setdefault(token, child)
            if node == 0:
                return found
            node = self.fail[node]
