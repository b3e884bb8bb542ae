"""A Python regular expression as a finite automaton over characters, built within limits.

Python's own parser reads the pattern, so it means the same as in ``re``. The automaton is built by
derivatives (Brzozowski 1964, Antimirov 1996): a state is the set of what may still follow, and a character
leads to the set of what may follow after it. A repetition is a counter and is never written out, so no
pattern takes much memory before its states do; these are counted while they are made.

Two libraries were measured instead (results/patterns.md): they understand fewer patterns of Python, and cannot tell how
far the end of an answer is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np

from seq2see.errors import UserError, shown
from seq2see.stopping import go_on

LONGEST = 1000  # characters of a pattern
MOST_STATES = 5_000
MOST_STEPS = 100_000  # most steps while the states are made
MOST_NAMED = 512  # most characters of a range that count as named
WITHOUT = "a regular expression without look-arounds, back-references and word boundaries was expected"

#: Parts of a pattern: characters, alternatives and so on. Each has a number.
NOTHING, END = 0, 1  # the empty text; the end of the whole text
DONE = 0  # the end: nothing follows
NOWHERE, FIRST = 0, 1  # two states of every automaton

State = frozenset[int]  # what may follow, by its numbers

_parser: Any = import_module("re._parser")
_names: Any = import_module("re._constants")


@dataclass(frozen=True)
class Machine:
    """States over classes of characters: state 0 is the dead state, state 1 is the first."""

    classes: dict[str, int]  # the class of each character that some part of the pattern matches
    table: np.ndarray  # (states, classes + 1): the next state of each class; the last class has all other characters
    finals: frozenset[int]
    named: frozenset[str]  # characters that the pattern names


def machine_of(pattern: str, front: str, characters: Iterable[str]) -> Machine:
    """Return the automaton of a pattern after a literal prefix, over these ``characters`` and those that the
    pattern names.

    A pattern is refused as soon as it needs too many states.
    """
    if len(pattern) > LONGEST:
        raise UserError(f"The pattern has {len(pattern):,} characters: at most {LONGEST:,} were expected.")
    try:
        re.compile(pattern)  # finds errors that the parser misses
        return _Build(pattern, _parser.parse(pattern), front, characters).machine()
    except RecursionError:
        raise _refused(pattern, "it is nested too deeply") from None
    except (re.error, OverflowError, ValueError) as error:
        raise _refused(pattern, str(error)) from None


def _refused(pattern: str, why: str) -> UserError:
    return UserError(f"The pattern {shown(pattern)} cannot be used ({why[:200]}): {WITHOUT}.")


@dataclass
class _Build:
    pattern: str
    tree: Any
    front: str
    characters: Iterable[str]
    parts: list[tuple[Any, ...]] = field(default_factory=lambda: [("nothing",), ("end",)])
    numbers: dict[tuple[Any, ...], int] = field(default_factory=dict)
    follows: list[tuple[int, int]] = field(default_factory=lambda: [(NOTHING, DONE)])  # a part, and what follows it
    follow_numbers: dict[tuple[int, int], int] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)
    sets: list[re.Pattern[str]] = field(default_factory=list)  # the characters that a part matches
    steps: int = 0
    heads_of: dict[int, tuple[list[tuple[int, int]], bool]] = field(default_factory=dict)

    def step(self) -> None:
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise self.too_large(f"more than {MOST_STEPS:,} steps to find its states")
        if self.steps % 256 == 0:
            go_on()

    def too_large(self, what: str) -> UserError:
        return UserError(
            f"The pattern {shown(self.pattern)} needs {what}: write a simpler one, with fewer or "
            "smaller repetitions of repetitions, and without `.*` before a long rest."
        )

    # --- the parts of a pattern

    def part(self, *key: Any) -> int:
        if key not in self.numbers:
            self.numbers[key] = len(self.parts)
            self.parts.append(key)
        return self.numbers[key]

    def sequence(self, parts: Sequence[int]) -> int:
        parts = [part for part in parts if part != NOTHING]
        return NOTHING if not parts else parts[0] if len(parts) == 1 else self.part("sequence", tuple(parts))

    def literal(self, sign: str, flags: int) -> int:
        self.name([sign], flags)
        return self.one(_escaped(ord(sign)), flags)

    def name(self, signs: Iterable[str], flags: int) -> None:
        for sign in signs:
            cases = [sign.lower(), sign.upper()] if flags & re.IGNORECASE else []
            self.named |= {one for one in [sign, *cases] if len(one) == 1}

    def one(self, written: str, flags: int) -> int:
        """Return the part that matches one character of a set."""
        key = ("one", written, flags & (re.IGNORECASE | re.DOTALL | re.ASCII))
        if key not in self.numbers:
            self.numbers[key] = len(self.parts)
            self.parts.append(("one", len(self.sets)))
            self.sets.append(re.compile(written, key[2]))
        return self.numbers[key]

    def read(self, tree: Iterable[tuple[Any, Any]], flags: int, first: bool) -> int:
        """Read a sequence; ``first``: it is at the very beginning."""
        parts = []
        for kind, value in tree:
            parts.append(self._read(str(kind), value, flags, first))
            first = first and parts[-1] == NOTHING
        return self.sequence(parts)

    def _read(self, kind: str, value: Any, flags: int, first: bool) -> int:
        if kind == "LITERAL":
            return self.literal(chr(value), flags)
        if kind == "NOT_LITERAL":
            return self.one(f"[^{_escaped(value)}]", flags)
        if kind == "ANY":
            return self.one(".", flags)
        if kind == "IN":
            return self.one(self._set(value, flags), flags)
        if kind == "BRANCH":
            return self.part("either", tuple(self.read(one, flags, first) for one in value[1]))
        if kind == "SUBPATTERN":
            _, added, removed, inner = value
            return self.read(inner, (flags | added) & ~removed, first)
        if kind in ("MAX_REPEAT", "MIN_REPEAT"):
            least, most, inner = value
            return self._repeated(self.read(inner, flags, False), least, None if most == _names.MAXREPEAT else most)
        if kind == "AT" and not flags & re.MULTILINE:
            if str(value) in ("AT_BEGINNING", "AT_BEGINNING_STRING") and first:
                return NOTHING
            if str(value) in ("AT_END", "AT_END_STRING"):  # an answer has no line feed after its end
                return END
        said = {
            "GROUPREF": "a back-reference", "GROUPREF_EXISTS": "a condition", "ASSERT": "a look-around",
            "ASSERT_NOT": "a look-around", "AT": f"the anchor {str(value).removeprefix('AT_').lower().replace('_', ' ')}",
            "ATOMIC_GROUP": "an atomic group", "POSSESSIVE_REPEAT": "a possessive repetition",
        }  # fmt: skip
        raise _refused(self.pattern, f"it has {said.get(kind, kind.lower())}")

    def _set(self, items: Iterable[tuple[Any, Any]], flags: int) -> str:
        written = ""
        for kind, value in items:
            if str(kind) == "NEGATE":
                written += "^"
            elif str(kind) == "LITERAL":
                written += _escaped(value)
                self.named |= {chr(value)} if not flags & re.IGNORECASE else {chr(value).lower(), chr(value).upper()}
            elif str(kind) == "RANGE":
                written += f"{_escaped(value[0])}-{_escaped(value[1])}"
                if len(self.named) + value[1] - value[0] < MOST_NAMED:
                    self.name(map(chr, range(value[0], value[1] + 1)), flags)
            else:
                written += CATEGORIES[str(value)]
        return f"[{written}]"

    def _repeated(self, inner: int, least: int, most: int | None) -> int:
        if inner == NOTHING or most == 0:
            return NOTHING
        if self.may_be_empty(inner):
            least = 0
        return inner if (least, most) == (1, 1) else self.part("repeated", inner, least, most)

    def may_be_empty(self, part: int) -> bool:
        """Whether a part may match the empty text anywhere."""
        kind, *value = self.parts[part]
        if kind == "sequence":
            return all(map(self.may_be_empty, value[0]))
        if kind == "either":
            return any(map(self.may_be_empty, value[0]))
        return bool(kind == "nothing" or (kind == "repeated" and value[1] == 0))

    # --- what may follow

    def follow(self, part: int, rest: int) -> int:
        if part == NOTHING:
            return rest
        key = (part, rest)
        if key not in self.follow_numbers:
            self.follow_numbers[key] = len(self.follows)
            self.follows.append(key)
        return self.follow_numbers[key]

    def heads(self, start: int) -> tuple[list[tuple[int, int]], bool]:
        """Return the sets of characters that may come next, each with what follows, and whether the text may end here."""
        if start in self.heads_of:
            return self.heads_of[start]
        next_ones: list[tuple[int, int]] = []
        may_end = False
        seen = {(start, False)}
        waiting = [(start, False)]  # with whether the text must end
        while waiting:
            self.step()
            at, ended = waiting.pop()
            if at == DONE:
                may_end = True
                continue
            part, rest = self.follows[at]
            kind, *value = self.parts[part]
            further: list[tuple[int, bool]] = []
            if kind == "one":
                if not ended:
                    next_ones.append((value[0], rest))
            elif kind == "end":
                further = [(rest, True)]
            elif kind == "sequence":
                for one in reversed(value[0]):
                    rest = self.follow(one, rest)
                further = [(rest, ended)]
            elif kind == "either":
                further = [(self.follow(one, rest), ended) for one in value[0]]
            else:
                inner, least, most = value
                again = self._repeated(inner, max(least - 1, 0), None if most is None else most - 1)
                further = [(self.follow(inner, self.follow(again, rest)), ended)]
                if least == 0:
                    further.append((rest, ended))
            for one in further:
                if one not in seen:
                    seen.add(one)
                    waiting.append(one)
        self.heads_of[start] = (next_ones, may_end)
        return next_ones, may_end

    def after(self, state: State, taken: frozenset[int]) -> State:
        """Return what may follow a character that is in the sets ``taken``."""
        found = set()
        for at in state:
            for number, rest in self.heads(at)[0]:
                self.step()
                if number in taken:
                    found.add(rest)
        return frozenset(found)

    def machine(self) -> Machine:
        """Build the states."""
        start = self.read(self.tree, self.tree.state.flags, True)
        for sign in reversed(self.front):
            start = self.sequence([self.literal(sign, 0), start])
        alphabet = sorted({*self.characters, *self.named})
        taken: dict[str, set[int]] = {sign: set() for sign in alphabet}
        joined = "".join(alphabet)
        for number, one in enumerate(self.sets):
            go_on()
            for sign in one.findall(joined):
                taken[sign].add(number)
        kinds: dict[frozenset[int], int] = {}
        classes = {sign: kinds.setdefault(frozenset(numbers), len(kinds)) for sign, numbers in taken.items() if numbers}
        first: State = frozenset([self.follow(start, DONE)])
        numbers: dict[State, int] = {frozenset(): NOWHERE, first: FIRST}
        states = [frozenset(), first]
        rows = [[NOWHERE] * (len(kinds) + 1)]
        while len(rows) < len(states):
            row = []
            for kind in kinds:
                to = self.after(states[len(rows)], kind)
                if to not in numbers:
                    numbers[to] = len(states)
                    states.append(to)
                    if len(states) > MOST_STATES:
                        raise self.too_large(f"more than {MOST_STATES:,} states")
                row.append(numbers[to])
            rows.append([*row, NOWHERE])
        finals = frozenset(number for number, state in enumerate(states) if any(self.heads(at)[1] for at in state))
        return Machine(classes, np.array(rows, np.int32), finals, frozenset(self.named))


CATEGORIES = {
    "CATEGORY_DIGIT": r"\d", "CATEGORY_NOT_DIGIT": r"\D", "CATEGORY_SPACE": r"\s", "CATEGORY_NOT_SPACE": r"\S",
    "CATEGORY_WORD": r"\w", "CATEGORY_NOT_WORD": r"\W",
}  # fmt: skip


def _escaped(number: int) -> str:
    return f"\\U{number:08x}"
