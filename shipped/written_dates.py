"""Dates as people write them, with their ISO form: the training data of the human-dates model.

Names and patterns come from Unicode's CLDR through the package ``babel``.
"""

from __future__ import annotations

import random
import re
import unicodedata
from calendar import monthrange
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from typing import Any

from seq2see.errors import UserError
from seq2see.tasks.human_dates import LONGEST, NO_DATE, NO_DAY, NO_YEAR, PIVOT, fold
from shipped.date_forms import (
    AFTER,
    BEFORE,
    COMMON,
    FIRST,
    HELD_LOCALES,
    LANGUAGES,
    LIKE,
    NUMERIC,
    OWN,
    ROMAN,
    TENS,
    UNSURE,
    WEIGHTS,
    WORDS,
)


@dataclass(frozen=True)
class Day:
    """The numbers of a date. The day may not exist in its month."""

    year: int
    month: int
    day: int

    def iso(self) -> str:
        """Write it as ISO 8601 does."""
        return f"{self.year:04}-{self.month:02}-{self.day:02}"


@dataclass
class Names:
    """What one language calls months and days, and how it writes dates."""

    locale: str
    full: list[list[str]]  # for each month, its names
    short: list[list[str]]
    weekdays: list[list[str]]
    templates: list[str]
    words: list[str] = field(default_factory=list)  # that are not dates: names of languages


def _letters(name: str) -> str:
    return fold(name).strip()


def _template(pattern: str) -> str | None:
    """Turn a pattern of CLDR into a template, or return None if its numbers can be read in two ways."""
    quoted = re.findall(r"'([^']*)'|([A-Za-z]+)|([^A-Za-z']+)", pattern)
    written, months = "", False
    for text, letters, signs in quoted:
        if not letters:
            written += text + signs
            continue
        kind = {"y": "y", "d": "d", "M": "n", "L": "n", "E": "w", "c": "w", "G": "G"}.get(letters[0])
        if kind in (None, "G") or letters == "yy":
            return None
        if kind == "n" and len(letters) > 2:
            kind, months = "b" if len(letters) == 3 else "m", True
        written += f"%{kind.upper() if letters in ('dd', 'MM') else kind}"
    if "%y" not in written or "%d" not in written.lower():
        return None
    plain = months or written.startswith("%y") or "." in written or "年" in written or "년" in written
    return written if plain else None


@cache
def names_of(locale: str) -> Names:
    """Read the names and patterns of CLDR for a language."""
    try:
        from babel import Locale, localedata
    except ImportError:
        raise UserError(
            "Written dates are made from the data of the package babel, which is missing: pip install babel."
        ) from None
    # Babel resolves aliases within data that languages share, so a name of the language before could be
    # found.
    localedata._cache.clear()
    found = Locale.parse(locale)
    chinese = locale[:2] in ("zh", "ja", "ko")

    def named(table: Any, width: str, numbers: range) -> list[list[str]]:
        names = []
        for number in numbers:
            both = {_letters(str(table[context][width][number])) for context in ("format", "stand-alone")}
            names.append(sorted(name for name in both if name))
        return names

    months, days = found.months, found.days
    full, short = (named(months, width, range(1, 13)) for width in ("wide", "abbreviated"))
    shorter = [sorted({*names, *(name.rstrip(".") for name in names)} - {""}) for names in short]
    if locale.startswith("en"):
        shorter[8] = sorted({*shorter[8], "sept", "sep", "sept."})
        shorter = [sorted({*names, f"{names[0]}."}) for names in shorter]
    patterns = [str(found.date_formats[width].pattern) for width in ("full", "long", "medium", "short")]
    patterns += [
        str(getattr(pattern, "pattern", pattern))
        for skeleton, pattern in found.datetime_skeletons.items()
        if skeleton in ("yMMMd", "yMMMEd", "yMMMMd", "yMMMMEEEEd", "yMEd", "yMd")
    ]
    of_cldr = [template for pattern in patterns if (template := _template(pattern))]
    weekdays = [
        sorted({*wide, *abbreviated})
        for wide, abbreviated in zip(named(days, "wide", range(7)), named(days, "abbreviated", range(7)), strict=True)
    ]
    weekdays = [names or [""] for names in weekdays]
    words = [_letters(str(name)) for name in [*found.languages.values()][:200]]
    templates = [*of_cldr, *of_cldr, *OWN.get(locale[:2], ()), *OWN.get(locale[:2], ())]
    common = () if chinese else COMMON
    return Names(locale, full, shorter, weekdays, [*templates, *common], [word for word in words if word])


def month_names() -> list[list[str]]:
    """Return for each month its names in the learned languages, in all their regions, and its Roman number."""
    from babel import localedata

    learned = {locale[:2] for locale in LANGUAGES} | {"fil"}
    found: list[set[str]] = [{roman} for roman in ROMAN]
    for locale in localedata.locale_identifiers():
        if locale.split("_")[0] in learned:
            names = names_of(locale)
            for month, several in enumerate(found):
                both = (*names.full[month], *names.short[month])
                several.update(name.strip(".") for name in both if not re.fullmatch(r"m\d\d", name))
    return [sorted(names) for names in found]


def ordinal(day: int, locale: str) -> str:
    """Write the number of a day as an ordinal, if the language has one."""
    language = locale[:2]
    if language == "en":
        ending = "th" if day in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
        return f"{day}{ending}"
    if language in ("fr", "it", "es", "pt", "ro", "ca"):
        first = {"fr": "1er", "it": "1º", "es": "1º", "pt": "1º", "ro": "1", "ca": "1r"}[language]
        return first if day == 1 else str(day)
    return {"nl": f"{day}e", "ga": f"{day}ú", "sv": f"{day}:e"}.get(language, f"{day}.")


def in_words(day: int) -> str:
    """Write the number of a day as an English ordinal in words."""
    if day < 20:
        return FIRST[day]
    tens, ones = divmod(day, 10)
    return f"{TENS[tens]}-{FIRST[ones]}" if ones else {2: "twentieth", 3: "thirtieth"}.get(tens, str(day))


def written(template: str, day: Day, names: Names, draw: random.Random) -> str:
    """Fill a template with a date."""
    fill: dict[str, Callable[[], str]] = {
        "y": lambda: str(day.year),
        "z": lambda: f"{day.year % 100:02}",
        "m": lambda: draw.choice(names.full[day.month - 1]),
        "b": lambda: draw.choice(names.short[day.month - 1]),
        "w": lambda: draw.choice(names.weekdays[_weekday(day, draw)]),
        "n": lambda: str(day.month),
        "N": lambda: f"{day.month:02}",
        "d": lambda: str(day.day),
        "D": lambda: f"{day.day:02}",
        "o": lambda: ordinal(day.day, names.locale),
        "x": lambda: in_words(day.day).replace("-", draw.choice("- ")),
        "r": lambda: ROMAN[day.month - 1],
        "T": lambda: draw.choice(("t10:15:30", "t10:15:30z", "t00:00:00+01:00", "10:15", "23:59:59")),
    }
    return re.sub("%(.)", lambda found: fill[found[1]](), template)


def _weekday(day: Day, draw: random.Random) -> int:
    if draw.random() < 0.05:
        return draw.randrange(7)  # sometimes the weekday is wrong
    last = monthrange(day.year, day.month)[1]
    return date(day.year, day.month, min(day.day, last)).weekday()


def noisy(text: str, draw: random.Random) -> str:
    """Add typing mistakes or OCR errors to a text."""
    kind = draw.randrange(9)
    places = [place for place, letter in enumerate(text) if letter.isalpha()]
    if kind == 0 and len(places) > 4:  # a letter is left out
        place = draw.choice(places)
        return text[:place] + text[place + 1 :]
    if kind == 1 and len(places) > 4:  # two are swapped
        place = draw.choice(places[:-1])
        return text[:place] + text[place + 1 : place + 2] + text[place] + text[place + 2 :]
    if kind == 2 and places:  # one is typed twice
        place = draw.choice(places)
        return text[:place] + text[place] + text[place:]
    if kind == 3:  # no accents
        plain = unicodedata.normalize("NFD", text)
        return "".join(letter for letter in plain if unicodedata.category(letter) != "Mn" or ord(letter) > 0x36F)
    if kind == 4:
        return text.replace(",", draw.choice(("", " ,", ". ", ";")))
    if kind == 5:
        return text.replace(" ", draw.choice(("", "  ", " ", "-", "_", ".", ", ")))
    if kind == 6:
        return text.replace("'", draw.choice("’‘`´")) if "'" in text else text.replace(".", "")
    if kind == 7:
        digits = [place for place, letter in enumerate(text) if letter in LIKE]
        if digits:
            place = draw.choice(digits)
            return text[:place] + draw.choice(LIKE[text[place]]) + text[place + 1 :]
    return draw.choice(("", "(", "[", "“", '"')) + text + draw.choice((".", ",", ")", "]", "”", '"', " .", ""))


class Written:
    """A stream of written dates.

    ``part`` is "train" for the training, "formats" for templates that the language never has in training, or
    "spellings" for regional spellings.
    """

    def __init__(self, seed: int, part: str = "train") -> None:
        self.draw = random.Random(f"{seed} {part}")
        self.part = part
        self.locales = HELD_LOCALES if part == "spellings" else LANGUAGES
        self.weights = [WEIGHTS.get(locale, 1) for locale in self.locales]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        while True:
            text, target = self._pair()
            text = fold(text)
            if text and len(text) <= LONGEST:
                yield text, target

    def _pair(self) -> tuple[str, str]:
        draw = self.draw
        names = names_of(draw.choices(self.locales, self.weights)[0])
        chance = draw.random()
        if self.part == "train" and chance < 0.08:
            return self._no_date(names)
        if chance < 0.14 and self.part != "formats":
            return self._numeric(names, draw.choice(NUMERIC))
        if chance < 0.24 and self.part == "train":
            return self._unsure(draw.choice(UNSURE))
        templates = _templates(names.locale, self.part == "formats")
        if not templates:
            return self._pair()
        day = self._day()
        template = draw.choice(templates)
        day = self._two_digits(day, template)
        return self._around(written(template, day, names, draw)), day.iso()

    def _around(self, text: str) -> str:
        draw = self.draw
        if draw.random() < 0.03:
            text = draw.choice(BEFORE) + text
        if draw.random() < 0.04:
            text += draw.choice(AFTER)
        return noisy(text, draw) if draw.random() < 0.15 else text

    def _day(self) -> Day:
        draw = self.draw
        year = draw.randrange(1000, 10000) if draw.random() < 0.5 else draw.randrange(1750, 2100)
        month = draw.randrange(1, 13)
        last = monthrange(year, month)[1]
        return Day(year, month, draw.randrange(last + 1, 40) if draw.random() < 0.02 else draw.randint(1, last))

    def _two_digits(self, day: Day, template: str) -> Day:
        if "%z" not in template:
            return day
        short = self.draw.randrange(100)
        return Day(short + (1900 if short >= PIVOT else 2000), day.month, min(day.day, 28))

    def _numeric(self, names: Names, template: str) -> tuple[str, str]:
        day = self._two_digits(self._day(), template)
        text = written(template, day, names, self.draw)
        if self.draw.random() < 0.06:
            text = f"{self.draw.choice(names.weekdays[_weekday(day, self.draw)])}{self.draw.choice((' ', ', '))}{text}"
        return self._around(text), day.iso()

    def _unsure(self, template: str) -> tuple[str, str]:
        """Write a date in numbers only, the day or the month first."""
        draw, english = self.draw, names_of("en")
        day = self._two_digits(self._day(), template)
        if draw.random() < 0.5 and day.day > 12:
            day = Day(day.year, day.month, draw.randint(1, 12))
        if draw.random() < 0.02:
            day = Day(day.year, draw.randint(1, 12), day.month)
        # A month first is the same template with the numbers swapped: 12/31/1845 is day 12 of month 31.
        first, second = (day.day, day.month) if draw.random() < 0.5 else (day.month, day.day)
        text = written(template, Day(day.year, second, first), english, draw)
        if first == second or second > 12 or first > 12:
            return self._around(text), day.iso()
        by_day, by_month = Day(day.year, second, first), Day(day.year, first, second)
        return self._around(text), f"{by_day.iso()} or {by_month.iso()}"

    def _no_date(self, names: Names) -> tuple[str, str]:
        draw = self.draw
        day, kind = self._day(), draw.randrange(10)
        month = draw.choice(draw.choice((names.full, names.short))[day.month - 1])
        if kind < 2:
            forms: tuple[str, ...]
            forms = (f"{day.day} {month}", f"{month} {day.day}", f"{day.day}. {month}", f"{day.day}-{month}",
                     f"{day.month}/{day.day}", f"{day.day}.{day.month}.", f"{ordinal(day.day, names.locale)} {month}",
                     f"{draw.choice(names.weekdays[_weekday(day, self.draw)])} {day.day} {month}")  # fmt: skip
            return draw.choice(forms), NO_YEAR
        if kind < 4:
            forms = (f"{month} {day.year}", f"{month} {day.year}", f"{day.year}", f"{day.month:02}/{day.year}",
                     f"{day.year}-{day.month:02}", f"{month}-{day.year}", f"{month}, {day.year}", f"{day.year}年",
                     f"{day.year}-{draw.randrange(1000, 2100)}", f"summer {day.year}",
                     f"q{draw.randint(1, 4)} {day.year}", f"{day.year} {month}", f"{day.year}年{day.month}月",
                     f"{day.year}년 {day.month}월")  # fmt: skip
            return draw.choice(forms), NO_DAY
        words = [*WORDS, *names.words, month, draw.choice(names.weekdays[0])]
        number = draw.choice((draw.randrange(10), draw.randrange(1000), draw.randrange(10**7)))
        parts = [draw.randrange(10 ** draw.randint(1, 3)) for _ in range(4)]
        forms = (
            draw.choice(words), " ".join(draw.choices(words, k=draw.randint(2, 5))), f"{draw.choice(words)} {number}",
            str(number), f"{parts[0]}.{parts[1]}.{parts[2]}.{parts[3]}", f"{number}.{parts[0]:02} €", f"${number}",
            f"{parts[0]}:{parts[1] % 60:02}", f"+{parts[0]} {parts[1]} {parts[2]} {parts[3]}", f"{parts[0]}/{parts[1]}",
            f"{draw.randrange(32, 100)}/{draw.randrange(13, 100)}/{day.year}", f"v{parts[0] % 20}.{parts[1] % 20}",
            "".join(draw.choices("abcdefghijklmnopqrstuvwxyz ", k=draw.randint(3, 20))), f"{draw.choice(words)} {month}",
            f"{draw.randrange(13, 100)}-{draw.randrange(32, 100)}-{day.year}", f"{number} {draw.choice(words)}",
        )  # fmt: skip
        return self._around(draw.choice(forms)), NO_DATE


@cache
def _templates(locale: str, kept_from_training: bool) -> list[str]:
    return [t for t in names_of(locale).templates if held_out(locale, t) == kept_from_training]


def held_out(locale: str, template: str) -> bool:
    """Whether a template of a language is not in the training: about one in twenty."""
    return random.Random(f"{locale} {template}").random() < 0.05


def pairs(count: int, seed: int = 1, part: str = "train") -> list[tuple[str, str]]:
    """Draw different texts with their targets."""
    found: dict[str, str] = {}
    for text, target in Written(seed, part):
        found.setdefault(text, target)
        if len(found) >= count:
            break
    return list(found.items())
