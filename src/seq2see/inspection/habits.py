"""Measures what a head does: how much of its attention goes to the token itself, to a neighbour, to the copied token.

The page measures the same (``page/static/habits.js``), over the same texts. So a head has one name and one number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from seq2see.inspection.tables import ATTENTIONS
from seq2see.inspection.trace import Trace

ENOUGH = 0.35  # share of the attention from which it is a habit
MORE = 0.2  # ratio to uniform attention from which it is a habit
MIXED = "mixed"

Key = tuple[str, int, int]  # attention, layer, head


@dataclass(frozen=True)
class Habit:
    """The most distinct habit of a head."""

    name: str
    share: float  # mean share of its attention that goes there; 0 if there is no habit
    even: float  # the share under uniform attention

    def __str__(self) -> str:
        return f"{self.name}, {100 * self.share:.0f} %" if self.share else self.name


@dataclass
class _Measure:
    """Attention to such positions, its share under uniform attention, and the number of rows with such a position."""

    sum: float = 0.0
    even: float = 0.0
    rows: int = 0


def some_dates() -> list[str]:
    """Return 100 dates spread over all years, months and days, by which the heads of the date model are measured."""
    return [f"{1000 + 90 * n}-{1 + n % 12:02}-{1 + n * 5 % 28:02}" for n in range(100)]


def habits(traces: Iterable[Trace]) -> dict[Key, Habit]:
    """Measure every head over some traces of one model."""
    sums: dict[Key, dict[str, _Measure]] = {}
    for trace in traces:
        for kind, path in ATTENTIONS.items():
            for layer, name in enumerate(trace.match(f"{path.format('*')}.weights")):
                for head, weights in enumerate(trace[name].tolist()):
                    _measure(sums.setdefault((kind, layer, head), {}), trace, kind, weights)
    return {key: _habit(found) for key, found in sums.items()}


def _measure(into: dict[str, _Measure], trace: Trace, kind: str, weights: list[list[float]]) -> None:
    """Add what a head does in one trace; ``weights`` is (T, S)."""
    for name, places in _places(trace, kind, len(weights), len(weights[0])).items():
        found = into.setdefault(name, _Measure())
        for row, shares in enumerate(weights):
            columns = places(row)
            if columns:
                found.sum += sum(shares[column] for column in columns)
                found.even += len(columns) / (row + 1 if kind == "decoder" else len(shares))
                found.rows += 1


def _places(trace: Trace, kind: str, rows: int, cols: int) -> dict[str, Callable[[int], list[int]]]:
    """Return which columns belong to a habit, by row."""
    keys = trace.target_tokens if kind == "decoder" else trace.source_tokens
    signs = [
        place for place, token in enumerate(keys) if not any(one.isalnum() or one == "<" for one in token)
    ]
    ends = [
        place for place, token in enumerate(keys) if len(token) > 2 and token[0] == "<" and token[-1] == ">"
    ]

    def within(*places: int) -> list[int]:
        return [place for place in places if 0 <= place < cols]

    def seen(places: list[int]) -> Callable[[int], list[int]]:
        return lambda t: [place for place in places if kind != "decoder" or place <= t]

    marks = {"looks at signs": seen(signs), "looks at signs and ends": seen([*signs, *ends])}
    if kind != "cross":
        return {
            **marks,
            "looks two back": lambda t: within(t - 2),
            "looks three back": lambda t: within(t - 3),
            "looks at what is near": lambda t: (
                within(t - 1, t, t + 1) if kind == "encoder" else within(t - 2, t - 1, t)
            ),
            "looks at itself": lambda t: [t],
            "looks at the previous token": lambda t: within(t - 1),
            "looks at the next token": lambda t: within(t + 1),
            "looks at the start": lambda t: [0] if t > 1 else [],
            "looks at the end": lambda t: [cols - 1] if kind == "encoder" and t < cols - 2 else [],
        }

    def along(t: int) -> int:
        return int(t / max(1, rows - 1) * (cols - 1) + 0.5)

    def copied(t: int) -> list[int]:
        return [place for place, token in enumerate(trace.source_tokens) if token == trace.output_tokens[t]]

    return {
        **marks,
        "copies": copied,
        "looks at the start": lambda _: [0],
        "looks at the end": lambda _: [cols - 1],
        "aligns": lambda t: within(along(t) - 1, along(t), along(t) + 1),
    }


def _habit(found: dict[str, _Measure]) -> Habit:
    """Return the most distinct habit; the first of several."""
    best, most = Habit(MIXED, 0.0, 0.0), MORE
    for name, one in found.items():
        if one.rows >= 2 and one.sum / one.rows >= ENOUGH and (one.sum - one.even) / one.rows > most:
            best, most = Habit(name, one.sum / one.rows, one.even / one.rows), (one.sum - one.even) / one.rows
    return best
