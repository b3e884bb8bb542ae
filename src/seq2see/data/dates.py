"""The default task, generated offline: ISO dates of the years 1000 to 9999 into words, ``May 1, 1845``."""

from __future__ import annotations

from datetime import date

import numpy as np

from seq2see.data.calendar import FIRST_YEAR as FIRST_YEAR
from seq2see.data.calendar import LAST_YEAR as LAST_YEAR
from seq2see.data.calendar import MONTHS as MONTHS
from seq2see.data.calendar import RAW_LENGTH as RAW_LENGTH
from seq2see.data.calendar import TARGET_LENGTH as TARGET_LENGTH
from seq2see.data.calendar import check as check
from seq2see.data.calendar import in_words as in_words


def pairs_of(ordinals: np.ndarray) -> list[tuple[str, str]]:
    """Turn proleptic Gregorian day numbers into pairs (1845-01-05, January 5, 1845)."""
    days = [date.fromordinal(number) for number in ordinals.tolist()]
    return [(day.isoformat(), in_words(day)) for day in days]


def all_ordinals(first_year: int = FIRST_YEAR, last_year: int = LAST_YEAR) -> np.ndarray:
    """Return the day numbers of all dates of some years, in order."""
    return np.arange(date(first_year, 1, 1).toordinal(), date(last_year, 12, 31).toordinal() + 1)


def splits(
    train: int, validation: int, test: int, seed: int, years: tuple[int, int] = (FIRST_YEAR, LAST_YEAR)
) -> tuple[list[tuple[str, str]], list[tuple[str, str]], list[tuple[str, str]]]:
    """Draw three disjoint sets of dates."""
    ordinals = all_ordinals(*years)
    chosen = np.random.default_rng(seed).choice(ordinals, train + validation + test, replace=False)
    first, second, third = np.split(chosen, [train, train + validation])
    return pairs_of(first), pairs_of(second), pairs_of(third)
