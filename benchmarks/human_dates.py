"""Dates as people write them: the model that ships beside ``dateparser`` and ``python-dateutil``."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from datetime import date
from functools import partial
from importlib import import_module
from importlib.util import find_spec

from benchmarks.measure import Line, take_turns
from seq2see.errors import UserError
from seq2see.seq2seq import load
from shipped.written_dates import pairs

Read = Callable[[str], str | None]
PARTS = {
    "formats": "formats that the training did not have for their language",
    "spellings": "regions that were not in the training",
}
COUNT = 500  # of each part
PEERS = ("dateparser", "dateutil")


def human_dates(rounds: int, count: int = COUNT) -> Line:
    """Read written dates of many languages: how many are right, and how many a second."""
    if find_spec("babel") is None:
        raise UserError("The dates are made from the data of the package babel: pip install babel.")
    sets = {part: [pair for pair in pairs(2 * count, seed=7, part=part) if _is_date(pair[1])][:count] for part in PARTS}
    texts = [text for found in sets.values() for text, _ in found]
    model = load("human-dates")
    contestants: dict[str, Callable[[], list[str | None]]] = {
        "seq2see": lambda: [answer.output for answer in model.answers(texts, probabilities=False)]
    }
    left_out = [peer for peer in PEERS if find_spec(peer) is None]
    for peer in PEERS:
        if peer not in left_out:
            contestants[peer] = partial(_all, _reader(peer), texts)
    right = {}
    for who, run in contestants.items():
        answers = iter(run())
        right[who] = {
            part: sum(next(answers) == target for _, target in found) / len(found) for part, found in sets.items()
        }
    notes = [
        f"{part} ({about}): " + ", ".join(f"{who} {shares[part]:.1%}" for who, shares in right.items())
        for part, about in PARTS.items()
    ]
    return Line("human-dates", f"{len(texts):,} written dates of many languages, texts in and ISO 8601 out", "dates",
                len(texts), take_turns(contestants, rounds), "right more often than both, 10× of dateparser", left_out,
                "shares that are right: see the notes", notes=notes, details={"right": right})  # fmt: skip


def _all(read: Read, texts: list[str]) -> list[str | None]:
    return [read(text) for text in texts]


def _is_date(target: str) -> bool:
    try:
        return bool(date.fromisoformat(target))
    except ValueError:
        return False


def _reader(peer: str) -> Read:
    """Return a peer as its manual calls it."""
    modules = {"dateutil": lambda: import_module("dateutil.parser"), "dateparser": lambda: import_module("dateparser")}
    parse = modules[peer]().parse

    def read(text: str) -> str | None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = parse(text)
        except (ValueError, OverflowError, TypeError, AttributeError, KeyError, IndexError):
            return None
        return None if found is None else f"{found.year:04}-{found.month:02}-{found.day:02}"

    return read


LINES: dict[str, Callable[[int], Line]] = {"human-dates": human_dates}
