"""The task of the dates model: ISO dates of the years 1000 to 9999 into words, ``May 1, 1845``, made without a network.

numpy is imported where dates are generated, since checking an input does not need it and importing it takes longer.
"""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import date
from typing import TYPE_CHECKING

from seq2see.errors import InputError, shown

if TYPE_CHECKING:
    import numpy as np

MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
FIRST_YEAR, LAST_YEAR = 1000, 9999
RAW_LENGTH = 19  # length of a padded raw answer: that of <sos>September 3, 2025<eos>
EXPECTED = "an ISO date of the years 1000 to 9999 was expected, such as 1845-01-05"


def in_words(day: date) -> str:
    """Write a date in English: January 5, 1845."""
    return f"{MONTHS[day.month - 1]} {day.day}, {day.year}"


def check(text: str) -> None:
    """Raise an InputError with the reason if a text is not a date."""
    if len(text) == 10 and text[4] == text[7] == "-" and text[0] != "0":
        try:
            date.fromisoformat(text)  # ten times faster than the checks below, which find the reason
            return
        except ValueError:
            pass
    if not text.strip():
        raise InputError(f"The line is empty: {EXPECTED}.")
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        raise InputError(f"{shown(text)} {_fault(text)}: {EXPECTED}.")
    year, month, day = int(text[:4]), int(text[5:7]), int(text[8:])
    if year < FIRST_YEAR:
        raise InputError(f"{shown(text)} is of the year {year}: {EXPECTED}.")
    if not 1 <= month <= 12:
        raise InputError(f"{shown(text)} has a month {month:02}, but months go from 01 to 12: {EXPECTED}.")
    last = monthrange(year, month)[1]
    if not 1 <= day <= last:
        raise InputError(f"{shown(text)} does not exist, {MONTHS[month - 1]} {year} has {last} days: {EXPECTED}.")


def _fault(text: str) -> str:
    if len(text) > 40:
        return "is too long"
    if text != text.strip():
        return "has white space around it"
    foreign = next((character for character in text if character.isdigit() and not character.isascii()), None)
    if foreign:
        return f"has the digit {foreign} (U+{ord(foreign):04X}) where 0 to 9 are known"
    if re.fullmatch(r"[0-9]{4}[^0-9][0-9]{2}[^0-9][0-9]{2}", text):
        return f"has {text[4]!r} between its parts instead of '-'"
    if re.fullmatch(r"[0-9]+-[0-9]+-[0-9]+", text):
        parts = "-".join(str(len(part)) for part in text.split("-"))
        return f"has {parts} digits instead of 4-2-2"
    return "is not of the form YYYY-MM-DD"


# --- generating --------------------------------------------------------------------------------------------------


def pairs_of(ordinals: np.ndarray) -> list[tuple[str, str]]:
    """Turn proleptic Gregorian day numbers into pairs (1845-01-05, January 5, 1845)."""
    days = [date.fromordinal(number) for number in ordinals.tolist()]
    return [(day.isoformat(), in_words(day)) for day in days]


def all_ordinals(first_year: int = FIRST_YEAR, last_year: int = LAST_YEAR) -> np.ndarray:
    """Return the day numbers of all dates of some years, in order."""
    import numpy as np

    return np.arange(date(first_year, 1, 1).toordinal(), date(last_year, 12, 31).toordinal() + 1)


def splits(
    train: int, validation: int, test: int, seed: int, years: tuple[int, int] = (FIRST_YEAR, LAST_YEAR)
) -> tuple[list[tuple[str, str]], list[tuple[str, str]], list[tuple[str, str]]]:
    """Draw three disjoint sets of dates."""
    import numpy as np

    ordinals = all_ordinals(*years)
    chosen = np.random.default_rng(seed).choice(ordinals, train + validation + test, replace=False)
    first, second, third = np.split(chosen, [train, train + validation])
    return pairs_of(first), pairs_of(second), pairs_of(third)
