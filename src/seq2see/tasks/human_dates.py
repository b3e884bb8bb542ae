"""The task of the human-dates model: a date as people write it, in any of many languages, into ISO 8601.

This module reads what the model answers. ``shipped/written_dates.py`` makes the pairs that it learns from. The model
writes one of these:

- ``1845-01-05``: the date. Whether that day exists is checked here.
- ``2020-04-03 or 2020-03-04``: 03/04/2020 can be read in two ways; the first has the day first, the second the month.
- ``no year``, ``no day``, ``no date``: what the text lacks.

The model takes any word in the place of a month for the nearest one. So a date is returned only if its month is in the
text: as a number, or as a name of it, cut short or with one typing mistake.
"""

from __future__ import annotations

import re
import unicodedata
from calendar import monthrange
from functools import cache
from pathlib import Path

from seq2see.errors import InputError, shown
from seq2see.tokenizers.folding import without_accents

ORDERS = ("day", "month")
NO_YEAR, NO_DAY, NO_DATE = "no year", "no day", "no date"
REASONS = {NO_YEAR: "has no year", NO_DAY: "names no single day", NO_DATE: "is not a date"}
PIVOT = 69  # '69 to '99 are of the 20th century, '00 to '68 of the 21st, as in POSIX and in Python's strptime
LONGEST = 80  # characters
REMEMBERED = 10_000  # most characters in the table
_ISO = re.compile(r"(\d{4})-(\d{2})-(\d{2})")
NAMES = Path(__file__).with_name("month_names.txt")  # of the learned languages, by `shipped.written_dates.month_names`
_LETTER = r"[^\W\d_]"
_ANY_LETTER = re.compile(_LETTER)
_DOUBLED = re.compile(r"(.)\1")
_WORDS = re.compile(r"[^\s\d!-/:-@\[-`{-~\u00a1-\u00bf\u2000-\u206f\u3000-\u303f]+")
#: Words in which OCR read a digit instead of a letter: 0ct, n0vember, ju1y.
_MISREAD = re.compile(r"(?<!\w)(?=[\d_]*+[^\W\d_](?:[\d_]++[^\W\d_])*+[^\W\d_])(?=[^\W\d]*+\d)\w++")
_AS_LETTERS = str.maketrans("01358", "olesb")
_TIME = re.compile(r"\d?\d:\d\d(?::\d\d)?")
#: Numbers, also those in which OCR read a letter instead of a digit: l2, 2o20, s.
_NUMBERS = re.compile(r"(?<![a-zа-я\d])(?:\d[\doоl|izsbg]*|[oоl|izsbg](?:\d[\doоl|izsbg]*)?)(?![a-zа-я])|\d+")


class _Plain(dict[int, str]):
    """The replacement of a character, computed once: a digit 0 to 9, empty if it is invisible, or itself."""

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
    """Return a text as the model reads it: small letters, digits 0 to 9, no invisible marks, white space folded."""
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
            f"{shown(text)} can be {readings[0]} (day first) or {readings[1]} (month first): give the "
            "order, day or month (--order day)."
        )
    chosen = ORDERS.index(order) if order is not None and len(dates) == len(ORDERS) else 0
    year, month, day = (int(part) for part in dates[chosen])
    if not (1 <= month <= 12 and 1 <= day <= monthrange(year, month)[1]):
        raise InputError(f"{shown(text)} would be {readings[chosen]}, a day that does not exist.")
    if not names_month(text, month, day):
        raise InputError(
            f"{shown(text)} would be {readings[chosen]}, but that month is not in the text, neither by a "
            "known name nor as a number."
        )
    return readings[chosen]


def names_month(text: str, month: int, day: int) -> bool:
    """Whether a month is in the text of a date: as a number beside the day and the year, or by one of its names."""
    text = fold(text)
    if not _ANY_LETTER.search(text):
        return True
    if not text.isascii():
        text = without_accents(text)
    names, within = _months()[month - 1]
    words = _WORDS.findall(text) + [word.translate(_AS_LETTERS) for word in _MISREAD.findall(text)]
    if not names.isdisjoint(words) or within.search(text):
        return True
    numbers = _NUMBERS.findall(_TIME.sub(" ", text))
    whole = [number for number in numbers if number.isdecimal()]
    if any(len(number) >= 6 for number in whole):  # 20240229
        return True
    misread, here = len(whole) < len(numbers), sum(int(number) == month for number in whole)
    if len(numbers) >= 3 and (misread or here > (month == day)):
        return True
    return any(_resembles(word, name) for word in words for name in names)


@cache
def _months() -> list[tuple[frozenset[str], re.Pattern[str]]]:
    """Return for each month its names, and a pattern that finds them within other words."""
    found = []
    for line in NAMES.read_text(encoding="utf-8").splitlines():
        names = frozenset(without_accents(name) for name in line.split("\t"))
        # Only scripts with capitals always separate words. A sign or a space within a name may be missing.
        forms = [
            re.sub(r"\\?[ .]", r"[\\s._-]*", re.escape(name))
            for name in sorted(names)
            if name == name.upper() or not name.isalpha()
        ]
        found.append((names, re.compile("|".join(forms))))
    return found


def _resembles(word: str, name: str) -> bool:
    """Whether a word is a name cut short, or with one mistake: a letter missing, more or other, or two swapped."""
    if name.startswith(word) and len(word) >= 3:  # Decemb.
        return True
    if len(name) >= 5 and name in word:  # the space is missing
        return True
    if abs(len(word) - len(name)) > 1:
        return False
    if len(word) > len(name) and _DOUBLED.sub(r"\1", word) == _DOUBLED.sub(r"\1", name):
        return True
    if len(name) < 3:
        return False
    first = 0
    while first < min(len(word), len(name)) and word[first] == name[first]:
        first += 1
    a, b = word[first:], name[first:]
    if a[:2] == b[1::-1] and a[2:] == b[2:]:
        return True
    return len(name) >= 4 and (a[1:] == b[1:] or a[1:] == b or a == b[1:])
