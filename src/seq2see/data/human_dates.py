"""The task of the human-dates model: a date as people write it, in any of many languages, into ISO 8601.

This module reads what the model answers. ``written_dates.py`` makes the pairs that it learns from. The model writes one
of these:

- ``1845-01-05``: the date. Whether that day exists is checked here.
- ``2020-04-03 or 2020-03-04``: 03/04/2020 can be read in two ways; the first has the day first, the second the month.
- ``no year``, ``no day``, ``no date``: what the text lacks.
"""

from __future__ import annotations

import re
import unicodedata
from calendar import monthrange

from seq2see.errors import InputError, UserError, shown

ORDERS = ("day", "month")
NO_YEAR, NO_DAY, NO_DATE = "no year", "no day", "no date"
REASONS = {
    NO_YEAR: "has no year",
    NO_DAY: "names no single day",
    NO_DATE: "is not a date",
}
PIVOT = 69  # '69 to '99 are of the 20th century, '00 to '68 of the 21st, as in POSIX and in Python's strptime
LONGEST = 80  # characters
REMEMBERED = 10_000  # characters of which it is known what they become
_ISO = re.compile(r"(\d{4})-(\d{2})-(\d{2})")


class _Plain(dict[int, str]):
    """What a character becomes: a digit 0 to 9, nothing if it is invisible, or itself; each is found out once."""

    def __missing__(self, code: int) -> str:
        letter = chr(code)
        if unicodedata.category(letter) == "Cf":
            letter = ""
        elif letter.isdigit():
            letter = str(unicodedata.digit(letter))
        if len(self) < REMEMBERED:
            self[code] = letter
        return letter


PLAIN = _Plain()


def fold(text: str) -> str:
    """Write a text as the model reads it: small letters, digits 0 to 9, no invisible marks, white space folded."""
    text = text[: 4 * LONGEST]
    if not text.isascii():
        letters = unicodedata.normalize("NFKC", text).lower().translate(PLAIN)
        return " ".join(unicodedata.normalize("NFC", letters).split())
    return " ".join(text.lower().split())


def check(text: str) -> None:
    """Raise an InputError if a text cannot be a date."""
    if not text.strip():
        raise InputError("The line is empty: a date was expected, such as 5 January 1845.")
    if len(text) > LONGEST:
        raise InputError(f"{shown(text)} is too long for a date: at most {LONGEST} characters are read.")


def known(order: str | None) -> str | None:
    """Check an order of day and month, and return it."""
    if order is not None and order not in ORDERS:
        raise UserError(f"`order` is {order!r}: 'day' or 'month' was expected, whichever is written first.")
    return order


def read(text: str, answer: str, order: str | None = None) -> str:
    """Return the date that the model's answer stands for; raise an InputError with the reason if there is none."""
    if answer in REASONS:
        raise InputError(f"{shown(text)} {REASONS[answer]}: a date was expected, such as 5 January 1845.")
    readings = answer.split(" or ")
    dates = [parts.groups() for reading in readings if (parts := _ISO.fullmatch(reading))]
    if len(dates) != len(readings) or len(dates) > len(ORDERS):
        raise InputError(f"{shown(text)} could not be read as a date.")
    if len(dates) == len(ORDERS) and order is None:
        raise InputError(
            f"{shown(text)} can be {readings[0]} (day first) or {readings[1]} (month first): "
            "give the order, day or month."
        )
    chosen = ORDERS.index(order) if order is not None and len(dates) == len(ORDERS) else 0
    year, month, day = (int(part) for part in dates[chosen])
    if not (1 <= month <= 12 and 1 <= day <= monthrange(year, month)[1]):
        raise InputError(f"{shown(text)} would be {readings[chosen]}, a day that does not exist.")
    return readings[chosen]
