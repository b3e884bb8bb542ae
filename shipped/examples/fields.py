"""Kinds of fields: what people write into tables, how it is written, and what may be asked of it.

A kind is drawn for a task. It says how to draw a value, how to show it, and how to draw a *view*, a function from the
value to the text that is wanted of it, or to None where it has none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from random import Random
from typing import Any

from shipped.examples import words as w
from shipped.examples.words import Draw, between, digits, pick, some_of, weighted

View = Callable[[Any], str | None]


@dataclass(slots=True)
class Field:
    """A kind of field, for one task."""

    name: str
    draw: Callable[[Random], Any]
    show: Callable[[Any], str]
    view: Callable[[Random], View]


# --- what may be done with any text ---------------------------------------------------------------------------------


CASES: Callable[[Random], Callable[[str], str]] = weighted((4, str), (1, str.upper), (1, str.lower))


def cased(r: Random) -> Callable[[str], str]:
    """Return a change of case, or none."""
    x = r.random()
    if x < 0.62:
        return str
    return str.upper if x < 0.75 else str.lower if x < 0.88 else str.capitalize if x < 0.93 else str.title


def cut(r: Random) -> Callable[[str], str]:
    """Return a part of a word: its beginning, its end, or it without them."""
    x, n = r.random(), pick(r, (1, 1, 1, 2, 2, 3, 3, 4))
    if x < 0.6:
        return lambda s: s[:n]
    if x < 0.82:
        return lambda s: s[-n:]
    return (lambda s: s[n:]) if x < 0.92 else (lambda s: s[:-n])


def of_word(r: Random) -> Callable[[str], str]:
    """Return what may be asked of a word."""
    x = r.random()
    if x < 0.62:
        return cased(r)
    part, case = cut(r), cased(r)
    if x < 0.93:
        return lambda s: case(part(s))
    if x < 0.95:
        return lambda s: s[::-1]
    if x < 0.97:
        return lambda s: str(len(s))
    if x < 0.985:
        return lambda s: "".join([c for c in s if c.lower() not in "aeiou"])
    return lambda s: s[:1] + "*" * (len(s) - 1)


def word(r: Random) -> Field:
    """A word."""
    return Field("word", w.speech(r), str, of_word)


def phrase(r: Random) -> Field:
    """A few words."""
    speak, low = w.speech(r), between(r, 1, 3)
    high = low + between(r, 0, 2)
    drawn: Draw = lambda q: " ".join([speak(q) for _ in range(between(q, low, high))])
    if r.random() < 0.25:
        drawn = lambda q: " ".join([speak(q) for _ in range(between(q, low, high))]).capitalize()

    def view(r: Random) -> View:
        x, n, case = r.random(), pick(r, (0, 0, 0, 1, 1, 2, -1, -1, -2)), cased(r)
        if x < 0.3:
            return case
        if x < 0.55:
            return lambda s: case(t[n]) if -len(t := s.split()) <= n < len(t) else None
        if x < 0.72:
            joint = pick(r, ("", "", "", ".", "-", " "))
            after = joint.strip() if r.random() < 0.5 else ""
            return lambda s: joint.join([t[0] for t in s.split()]).upper() + after
        if x < 0.82:
            joint = pick(r, ("-", "_", "", ".", "+", ", ", "/"))
            return lambda s: case(joint.join(s.split()))
        if x < 0.86:
            return lambda s: "".join([t if not k else t.capitalize() for k, t in enumerate(s.lower().split())])
        if x < 0.9:
            return lambda s: " ".join(s.split()[1:]) or None
        if x < 0.94:
            return lambda s: " ".join(reversed(s.split()))
        return (lambda s: str(len(s.split()))) if x < 0.96 else str.title

    return Field("phrase", drawn, str, view)


# --- people ---------------------------------------------------------------------------------------------------------

TITLES = ("Mr.", "Ms.", "Mrs.", "Dr.", "Prof.", "Mr", "Dr", "Sir", "Herr", "Frau", "Mme", "Don")
SUFFIXES = ("Jr.", "Sr.", "III", "PhD", "MD", "II")


def name(r: Random) -> Field:
    """A person: title, first name, middle name or initial, family name, suffix."""
    titled, middled, suffixed = (
        pick(r, (0, 0, 0, 0.5, 1)),
        pick(r, (0, 0, 0.3, 0.6, 1)),
        pick(r, (0, 0, 0, 0, 0, 0.4)),
    )
    initial = pick(r, (0, 0.5, 1))
    foreign = None if r.random() < 0.88 else w.speech(r)
    order, case = pick(r, ("fl", "fl", "fl", "fl", "l,f", "lf")), CASES(r)
    titles = [pick(r, TITLES) for _ in range(3)]

    def draw(q: Random) -> tuple[str, str, str, str, str]:
        random = q.random
        first, last = (foreign(q), foreign(q)) if foreign else (w.first_name(q), w.last_name(q))
        middle = ""
        if random() < middled:
            middle = pick(q, w.LETTERS) + "." if random() < initial else w.first_name(q)
        title = pick(q, titles) if random() < titled else ""
        return title, first, middle, last, pick(q, SUFFIXES) if random() < suffixed else ""

    mixed = r.random() < 0.22  # rows in both orders

    def show(v: tuple[str, str, str, str, str]) -> str:
        title, first, middle, last, suffix = v
        if order == "l,f" or (mixed and (len(first) + len(last)) % 2):
            whole = f"{last}, {title + ' ' if title else ''}{first}{' ' + middle if middle else ''}"
        elif order == "lf":
            whole = f"{last} {first}{' ' + middle if middle else ''}"
        else:
            whole = " ".join([part for part in (title, first, middle, last) if part])
        return case(f"{whole}, {suffix}" if suffix else whole)

    def view(r: Random) -> View:
        return _of_name(r, case)

    return Field("name", draw, show, view)


def _of_name(r: Random, case: Callable[[str], str]) -> View:
    x, dot, change = r.random(), pick(r, (".", ".", "")), cased(r)
    as_is = change if change is not str else case
    if x < 0.16:
        return lambda v: as_is(v[1])
    if x < 0.34:
        return lambda v: as_is(v[3])
    if x < 0.42:
        return lambda v: as_is(f"{v[1][0]}{dot} {v[3]}")
    if x < 0.5:
        return lambda v: as_is(f"{v[3]}, {v[1]}")
    if x < 0.56:
        return lambda v: as_is(f"{v[3]}, {v[1][0]}{dot}")
    if x < 0.6:
        return lambda v: as_is(f"{v[1]} {v[3][0]}{dot}")
    if x < 0.66:
        joint = pick(r, ("", ".", " ", ". ", "-"))
        return lambda v: (v[1][0] + joint + v[3][0] + (joint.strip() if joint != "-" else "")).upper()
    if x < 0.7:
        return lambda v: "".join([p[0] + dot for p in (v[1], v[2], v[3]) if p]).upper()
    if x < 0.76:
        joint = pick(r, (".", "_", "", "-"))
        return lambda v: f"{v[1]}{joint}{v[3]}".lower()
    if x < 0.82:
        joint = pick(r, ("", "", ".", "_"))
        return lambda v: f"{v[1][0]}{joint}{v[3]}".lower()
    if x < 0.85:
        return lambda v: as_is(f"{v[1]} {v[3]}")
    if x < 0.88:
        return lambda v: as_is(v[2].rstrip(".")) if v[2] else None
    if x < 0.91:
        none = pick(r, ("", "-", "none", "N/A", "?"))
        return lambda v: v[2].rstrip(".") or none
    if x < 0.94:
        return lambda v: as_is(f"{v[3]}, {v[1]}{' ' + v[2][0] + dot if v[2] else ''}")
    if x < 0.96:
        return lambda v: v[0] or None
    if x < 0.98:
        return lambda v: f"{v[0]} {v[3]}".strip()
    return lambda v: as_is(f"{v[3]} {v[1]}")


# --- dates and times -------------------------------------------------------------------------------------------------

SPLIT = ("-", "-", "/", "/", ".", " ", "")
LANGUAGES = ("en", "en", "en", "en", "en", "de", "fr", "es", "it", "pt", "nl", "sv", "pl", "cs", "tr", "ru", "el")
Day = tuple[int, int, int]


def ordinal(n: int) -> str:
    """Return 1st, 2nd, 3rd, 4th …"""
    return f"{n}{'th' if n % 100 in (11, 12, 13) else {1: 'st', 2: 'nd', 3: 'rd'}.get(n % 10, 'th')}"


def date_form(r: Random) -> Callable[[Day], str]:
    """Return a way to write a date."""
    x = r.random()
    if x < 0.5:
        sep, order, short = pick(r, SPLIT), pick(r, ("ymd", "ymd", "dmy", "dmy", "mdy")), r.random() < 0.15 and True
        bare = sep != "" and r.random() < 0.2
        if order == "ymd":
            if bare:
                return lambda v: f"{v[0]}{sep}{v[1]}{sep}{v[2]}"
            return lambda v: f"{v[0]:04d}{sep}{v[1]:02d}{sep}{v[2]:02d}"
        a, b = (2, 1) if order == "dmy" else (1, 2)
        if short:
            return lambda v: f"{v[a]:02d}{sep}{v[b]:02d}{sep}{v[0] % 100:02d}"
        if bare:
            return lambda v: f"{v[a]}{sep}{v[b]}{sep}{v[0]}"
        return lambda v: f"{v[a]:02d}{sep}{v[b]:02d}{sep}{v[0]:04d}"
    language = pick(r, LANGUAGES)
    months = w.MONTHS[language]
    if x < 0.66:
        months = [m[:3] for m in months]
        if r.random() < 0.3:
            months = [m.upper() for m in months]
    sep = pick(r, (" ", " ", " ", "-", " "))
    if language == "en" and x < 0.8:
        kind = pick(r, (0, 0, 1, 2, 3))
        if kind == 0:
            return lambda v: f"{months[v[1] - 1]} {v[2]}, {v[0]}"
        if kind == 1:
            return lambda v: f"{months[v[1] - 1]} {ordinal(v[2])}, {v[0]}"
        if kind == 2:
            return lambda v: f"the {ordinal(v[2])} of {months[v[1] - 1]} {v[0]}"
        return lambda v: f"{months[v[1] - 1]} {v[2]:02d} {v[0]}"
    if x > 0.9 and language in w.DAYS:
        days = w.DAYS[language]
        return lambda v: f"{days[date(*v).weekday()]}, {v[2]} {months[v[1] - 1]} {v[0]}"
    if language == "de":
        return lambda v: f"{v[2]}. {months[v[1] - 1]} {v[0]}"
    if language in ("es", "pt"):
        return lambda v: f"{v[2]} de {months[v[1] - 1]} de {v[0]}"
    if x < 0.57:
        return lambda v: f"{v[0]}{sep}{months[v[1] - 1]}{sep}{v[2]:02d}"
    return lambda v: f"{v[2]}{sep}{months[v[1] - 1]}{sep}{v[0]}"


def day(r: Random) -> Field:
    """A date, in one form or in several."""
    forms = [date_form(r) for _ in range(pick(r, (1, 1, 1, 1, 1, 2, 3, 4)))]
    low, high = pick(r, ((1950, 2030), (1950, 2030), (2000, 2030), (1700, 2100), (2015, 2026)))

    def draw(q: Random) -> tuple[Day, int]:
        return (between(q, low, high), between(q, 1, 12), between(q, 1, 28)), int(q.random() * len(forms))

    def view(r: Random) -> View:
        v = _of_date(r)
        return lambda pair: v(pair[0])

    return Field("date", draw, lambda pair: forms[pair[1]](pair[0]), view)


def _of_date(r: Random) -> Callable[[Day], str]:
    x = r.random()
    if x < 0.52:
        return date_form(r)
    language = pick(r, LANGUAGES)
    months, case = w.MONTHS[language], CASES(r)
    if x < 0.62:
        return lambda v: case(months[v[1] - 1])
    if x < 0.66:
        return lambda v: case(months[v[1] - 1][:3])
    if x < 0.72:
        return lambda v: str(v[0])
    if x < 0.75:
        return lambda v: str(v[2])
    if x < 0.78:
        return pick(r, (lambda v: str(v[1]), lambda v: f"{v[1]:02d}"))
    if x < 0.84:
        sep = pick(r, ("-", "/", " ", ". "))
        return pick(
            r,
            (
                lambda v: f"{v[1]:02d}{sep}{v[0]}",
                lambda v: f"{months[v[1] - 1]} {v[0]}",
                lambda v: f"{v[0]}{sep}{v[1]:02d}",
                lambda v: f"{months[v[1] - 1]} {v[2]}",
                lambda v: f"{v[2]} {months[v[1] - 1][:3]}",
            ),
        )
    if x < 0.89:
        days = w.DAYS[language if language in w.DAYS else "en"]
        short = r.random() < 0.4
        return lambda v: days[date(*v).weekday()][: 3 if short else None]
    if x < 0.92:
        q = pick(r, ("Q{q} {y}", "{y}-Q{q}", "Q{q}", "{y}Q{q}"))
        return lambda v: q.format(q=(v[1] + 2) // 3, y=v[0])
    if x < 0.94:
        return lambda v: f"'{v[0] % 100:02d}"
    if x < 0.96:
        return lambda v: f"{v[0] // 10 * 10}s"
    shown, ahead = date_form(r), pick(r, (1, 1, -1, 7, 2))
    if x < 0.98:
        return lambda v: shown((v[0] + ahead, v[1], v[2]))

    def moved(v: Day) -> str:
        then = date.fromordinal(date(*v).toordinal() + ahead)
        return shown((then.year, then.month, then.day))

    return moved


def time_form(r: Random) -> Callable[[tuple[int, int, int]], str]:
    """Return a way to write a time of day."""
    x, half = r.random(), pick(r, (" AM, PM", " am, pm", "am,pm", " a.m., p.m.")).split(",")
    if half[0].startswith(" "):
        half = [half[0], " " + half[1].strip()]
    if x < 0.3:
        return lambda v: f"{v[0]:02d}:{v[1]:02d}"
    if x < 0.5:
        return lambda v: f"{v[0]:02d}:{v[1]:02d}:{v[2]:02d}"
    if x < 0.75:
        return lambda v: f"{(v[0] + 11) % 12 + 1}:{v[1]:02d}{half[v[0] >= 12]}"
    if x < 0.83:
        return lambda v: f"{v[0]}h{v[1]:02d}"
    if x < 0.88:
        return lambda v: f"{v[0]:02d}.{v[1]:02d}"
    if x < 0.94:
        return lambda v: f"{v[0]:02d}{v[1]:02d}"
    return lambda v: f"{v[0]}h {v[1]}m {v[2]}s" if v[0] else f"{v[1]}m {v[2]}s"


def clock(r: Random) -> Field:
    """A time of day."""
    form = time_form(r)

    def view(r: Random) -> View:
        x, other = r.random(), time_form(r)
        if x < 0.55:
            return other
        if x < 0.65:
            return lambda v: str(v[0])
        if x < 0.72:
            return lambda v: f"{v[1]:02d}"
        if x < 0.78:
            return lambda v: str(v[0] * 60 + v[1])
        if x < 0.84:
            return pick(r, (lambda v: "PM" if v[0] >= 12 else "AM", lambda v: "morning" if v[0] < 12 else "afternoon"))
        if x < 0.94:
            ahead = pick(r, (1, 1, 2, -1, 3, 6, 8, -5))
            return lambda v: other(((v[0] + ahead) % 24, v[1], v[2]))
        step = pick(r, (15, 30, 60, 60, 10))
        return lambda v: other((v[0], v[1] // step * step if step < 60 else 0, 0))

    return Field("time", lambda q: (between(q, 0, 23), between(q, 0, 59), between(q, 0, 59)), form, view)


# --- numbers ---------------------------------------------------------------------------------------------------------

ROMAN = ((1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40, "XL"), (10, "X"),
         (9, "IX"), (5, "V"), (4, "IV"), (1, "I"))  # fmt: skip
MONEY = ("$", "€", "£", "¥", "USD ", "EUR ", "CHF ", "")
AFTER = (" €", " USD", " EUR", " kg", " km", "%", " %", " pcs", "", "")


def roman(n: int) -> str:
    """Return a number in Roman figures."""
    found = ""
    for value, sign in ROMAN:
        while n >= value:
            found, n = found + sign, n - value
    return found


def grouped(n: int, sep: str) -> str:
    """Return a number with a sign between thousands."""
    return f"{n:,}".replace(",", sep) if sep != "," else f"{n:,}"


def integer_form(r: Random, most: int) -> Callable[[int], str]:
    """Return a way to write a whole number."""
    x = r.random()
    if x < 0.45:
        return str
    if x < 0.7:
        sep = pick(r, (",", ",", ".", " ", "'", "\u202f", "_"))
        before, after = (pick(r, MONEY), "") if r.random() < 0.3 else ("", pick(r, AFTER))
        return lambda n: f"{before}{grouped(n, sep)}{after}"
    if x < 0.82:
        width = len(str(most)) + pick(r, (0, 1, 1, 2, 3))
        sign = pick(r, ("", "", "#", "No. ", "N"))
        return lambda n: f"{sign}{n:0{width}d}"
    if x < 0.87:
        return pick(r, ("{}.", "#{}", "({})", "No. {}", "+{}", "-{}", "{}.00", "{}.0", "~{}")).format
    if x < 0.91:
        return ordinal
    if x < 0.94 and most < 4000:
        return roman
    base = pick(r, ("x", "X", "b", "o", "#x", "#b"))
    if base == "b" and most > 999:
        base = "x"
    return lambda n: format(n, base)


def integer(r: Random) -> Field:
    """A whole number."""
    length = pick(r, (1, 2, 2, 3, 3, 4, 4, 5, 6, 7, 9))
    most = 10**length - 1
    form = str if r.random() < 0.55 else integer_form(r, most)
    low = 0 if r.random() < 0.5 else max(1, most // 10)

    def draw(q: Random) -> int:
        return between(q, 1, 10 ** between(q, 1, length) - 1) if not low else between(q, low, most)

    def view(r: Random) -> View:
        x, other = r.random(), integer_form(r, most)
        if x < 0.68:
            return other
        if x < 0.74:
            k = pick(r, (1, 1, 10, 2, 5, 100, -1))
            return lambda n: other(n + k) if n + k >= 0 else None
        if x < 0.79:
            k = pick(r, (2, 10, 10, 100, 1000, 3, 5))
            return lambda n: other(n * k)
        if x < 0.85:
            step = pick(r, (10, 10, 100, 1000, 5))
            return pick(r, (lambda n: other((n + step // 2) // step * step), lambda n: other(n // step * step)))
        if x < 0.89:
            return pick(
                r, (lambda n: str(n)[-1], lambda n: str(n)[0], lambda n: str(n)[::-1], lambda n: str(len(str(n))))
            )
        if x < 0.92:
            return lambda n: str(sum(map(int, str(n))))
        if x < 0.95:
            names = pick(r, (("even", "odd"), ("yes", "no"), ("0", "1")))
            return lambda n: names[n % 2]
        k = 10 ** between(r, 1, max(1, length - 1))
        names = pick(r, (("small", "large"), ("low", "high"), ("no", "yes"), ("under", "over")))
        return lambda n: names[n >= k]

    return Field("number", draw, form, view)


def fixed(n: int, places: int, point: str = ".", sep: str = "") -> str:
    """Return n / 10^places, written with that many places."""
    sign, n = ("-", -n) if n < 0 else ("", n)
    whole = grouped(n // 10**places, sep) if sep else str(n // 10**places)
    return f"{sign}{whole}{point}{n % 10**places:0{places}d}" if places else f"{sign}{whole}"


def rounded(n: int, places: int, to: int) -> int:
    """Round n / 10^places half up to fewer places, or add zeros; the result has ``to`` places."""
    if to >= places:
        return int(n * 10 ** (to - places))
    step = int(10 ** (places - to))
    found = (abs(n) + step // 2) // step
    return -found if n < 0 else found


def decimal_form(r: Random, places: int) -> Callable[[int], str]:
    """Return a way to write n / 10^places."""
    x = r.random()
    point, sep = pick(r, ((".", ""), (".", ""), (".", ","), (",", ""), (",", "."), (",", " ")))
    before, after = ("", "") if x < 0.5 else (pick(r, MONEY), "") if x < 0.75 else ("", pick(r, AFTER))
    return lambda n: before + fixed(n, places, point, sep) + after


def decimal(r: Random) -> Field:
    """A number with decimals, money or a measure."""
    places, length, negative = pick(r, (1, 2, 2, 2, 3, 4)), pick(r, (1, 2, 3, 4, 5, 6)), r.random() < 0.15
    form, mixed = decimal_form(r, places), r.random() < 0.12

    def shown(n: int) -> str:
        """Write some rows without zeros at the end, or as powers of ten, if the rows are mixed."""
        if not mixed or n % 3 == 0:
            return form(n)
        plain = fixed(n, places)
        return (plain.rstrip("0").rstrip(".") if "." in plain else plain) if n % 3 == 1 else f"{n / 10**places:.3E}"

    def draw(q: Random) -> int:
        n = between(q, 1, 10 ** (between(q, 1, length) + places) - 1)
        return -n if negative and q.random() < 0.4 else n

    def view(r: Random) -> View:
        x, to = r.random(), between(r, 0, places + (r.random() < 0.2))
        if x < 0.3:
            return decimal_form(r, places)
        if x < 0.6:
            other = decimal_form(r, to)
            return lambda n: other(rounded(n, places, to))
        if x < 0.7:
            return lambda n: str(abs(n) // 10**places)
        if x < 0.75:
            return lambda n: str(n % 10**places).zfill(places)
        if x < 0.8:
            return lambda n: fixed(-n, places)
        if x < 0.86:
            return lambda n: f"({fixed(-n, places)})" if n < 0 else fixed(n, places)
        if x < 0.91:
            return lambda n: fixed(n, max(0, places - 2)) + "%"
        if x < 0.925:  # some figures
            figures = between(r, 1, 4)
            return lambda n: f"{n / 10**places:.{figures}g}".replace("e+0", "E+0").replace("e-0", "E-0")
        if x < 0.955:
            marks = pick(r, (("-", "+"), ("debit", "credit"), ("minus", "plus"), ("loss", "gain")))
            return lambda n: marks[n >= 0]
        k = pick(r, (0, 1, 2, 2, 3))
        e = pick(r, ("E", "e", "E", "E+", "e+"))
        return lambda n: (
            f"{n / 10**places:.{k}e}".replace("e+0", e).replace("e+", e).replace("e-0", e.rstrip("+") + "-")
        )

    return Field("decimal", draw, shown, view)


# --- codes, addresses of all kinds -------------------------------------------------------------------------------------


def code(r: Random) -> Field:
    """A code of letters and digits in groups."""
    groups = []
    for _ in range(pick(r, (1, 2, 2, 2, 3, 3, 4, 5))):
        letters = pick(r, (w.LETTERS, w.LETTERS, w.DIGITS, w.DIGITS, w.DIGITS, w.SMALL, w.MIXED, "0123456789abcdef"))
        low = between(r, 1, 5)
        groups.append((letters, low, low + pick(r, (0, 0, 0, 1, 3)), some_of(r, letters, low, low)))
    sep = pick(r, ("-", "-", "_", "/", ".", " ", ":", "", "", "#", "|"))
    constant = [r.random() < 0.12 for _ in groups]

    def draw(q: Random) -> list[str]:
        return [g[3] if same else some_of(q, g[0], g[1], g[2]) for g, same in zip(groups, constant, strict=True)]

    def view(r: Random) -> View:
        x, n, change = r.random(), int(r.random() * len(groups)), of_word(r)
        if x < 0.55:
            return lambda v: change(v[n])
        if x < 0.75:
            other = pick(r, ("", "-", " ", "/", ".", "_", ":"))
            return lambda v: other.join(v)
        if x < 0.83:
            return lambda v: sep.join(reversed(v))
        if x < 0.9:
            return lambda v: sep.join(v[1:]) or None
        if x < 0.95:
            return lambda v: sep.join(v[:-1]) or None
        return lambda v: "".join([c for c in "".join(v) if c.isdigit()]) or None

    return Field("code", draw, sep.join, view)


DOMAINS = ("com", "com", "com", "org", "net", "edu", "co.uk", "de", "fr", "io", "gov")


def mail(r: Random) -> Field:
    """An address of electronic mail."""
    joint, numbered, case = pick(r, (".", ".", "_", "-", "")), pick(r, (0, 0, 0.5)), r.random() < 0.85
    domain = w.plain(r) + "." + pick(r, DOMAINS)
    same = r.random() < 0.3

    def draw(q: Random) -> tuple[str, str, str, str]:
        first, last = w.first_name(q), w.last_name(q)
        user = f"{first}{joint}{last}" + (digits(q, 1, 3) if q.random() < numbered else "")
        host = domain if same else f"{w.plain(q)}.{pick(q, DOMAINS)}"
        return first, last, user.lower() if case else user, host

    def view(r: Random) -> View:
        x, change = r.random(), cased(r)
        if x < 0.3:
            return lambda v: change(v[2])
        if x < 0.5:
            return lambda v: v[3]
        if x < 0.62:
            return lambda v: change(v[3].partition(".")[0])
        if x < 0.68:
            return lambda v: v[3].partition(".")[2]
        if x < 0.8 and joint:
            names = pick(r, ("{0} {1}", "{1}, {0}", "{0}", "{1}"))
            return lambda v: names.format(v[0].title(), v[1].title())
        if x < 0.86:
            return lambda v: f"{v[2][0]}***@{v[3]}"
        other = w.plain(r) + "." + pick(r, DOMAINS)
        return (lambda v: f"{v[2]}@{other}") if x < 0.94 else (lambda v: f"{v[2]} at {v[3]}")

    return Field("mail", draw, lambda v: f"{v[2]}@{v[3]}", view)


def url(r: Random) -> Field:
    """An address of the web."""
    scheme = pick(r, ("https://", "http://", "https://www.", "www.", "", "ftp://"))
    depth, queried, sub = between(r, 0, 3), pick(r, (0, 0, 0.6, 1)), pick(r, (0, 0, 0.4))

    def draw(q: Random) -> tuple[str, list[str], str, str, str]:
        path = [w.plain(q) if q.random() < 0.8 else digits(q, 1, 5) for _ in range(between(q, min(1, depth), depth))]
        query = f"{pick(q, ('id', 'q', 'page', 'user', 'ref'))}={w.plain(q) if q.random() < 0.4 else digits(q, 1, 5)}"
        under = w.plain(q) + "." if q.random() < sub else ""
        return under, path, query if q.random() < queried else "", w.plain(q), pick(q, DOMAINS)

    def show(v: tuple[str, list[str], str, str, str]) -> str:
        tail = "/".join(["", *v[1]]) + (f"?{v[2]}" if v[2] else "")
        return f"{scheme}{v[0]}{v[3]}.{v[4]}{tail}"

    def view(r: Random) -> View:
        x, change, n = r.random(), cased(r), pick(r, (0, 0, -1, -1, 1))
        if x < 0.25:
            return lambda v: f"{v[0]}{v[3]}.{v[4]}"
        if x < 0.45:
            return lambda v: change(v[3])
        if x < 0.55:
            return lambda v: v[4]
        if x < 0.75:
            return lambda v: change(v[1][n]) if -len(v[1]) <= n < len(v[1]) else None
        if x < 0.8:
            return lambda v: "/" + "/".join(v[1])
        if x < 0.88:
            return lambda v: v[2].partition("=")[2] or None
        if x < 0.91:
            return lambda v: v[2] or None
        other = pick(r, ("https://", "http://", "", "www."))
        return lambda v: f"{other}{v[0]}{v[3]}.{v[4]}"

    return Field("url", draw, show, view)


def file_name(r: Random) -> Field:
    """A file and its folders."""
    slash, root = pick(r, (("/", "/"), ("/", ""), ("/", "~/"), ("\\", "C:\\"), ("\\", "D:\\"), ("/", "./")))
    depth, joint = pick(r, (0, 0, 1, 2, 3)), pick(r, ("_", "-", " ", "", "_"))
    endings = [
        pick(r, ("txt", "csv", "xlsx", "jpg", "png", "pdf", "docx", "mp3", "zip", "tar.gz", "py", "md", "JPG"))
        for _ in range(3)
    ]
    length, numbered = between(r, 1, 3), pick(r, (0, 0.5, 1))

    def draw(q: Random) -> tuple[list[str], list[str], str]:
        stem = [w.any_case(q) if q.random() > numbered * 0.5 else digits(q, 1, 8) for _ in range(length)]
        return [w.plain(q) for _ in range(depth)], stem, pick(q, endings)

    def show(v: tuple[list[str], list[str], str]) -> str:
        return (root + slash.join(v[0]) + slash if v[0] else "") + f"{joint.join(v[1])}.{v[2]}"

    def view(r: Random) -> View:
        x, change, n = r.random(), cased(r), int(r.random() * length)
        if x < 0.22:
            return lambda v: change(joint.join(v[1]))
        if x < 0.38:
            return lambda v: change(v[2])
        if x < 0.52:
            return lambda v: f"{joint.join(v[1])}.{v[2]}"
        if x < 0.68:
            return lambda v: change(v[1][n])
        if x < 0.76:
            return lambda v: v[0][-1] if v[0] else None
        if x < 0.82:
            return lambda v: root + slash.join(v[0]) if v[0] else None
        other = pick(r, ("txt", "csv", "bak", "html", "pdf", "json"))
        if x < 0.9:
            return lambda v: f"{joint.join(v[1])}.{other}"
        sign = pick(r, ("_", "-", ""))
        return lambda v: f"{sign.join(v[1]).lower()}.{v[2].lower()}"

    return Field("file", draw, show, view)


PHONES = (
    "({0}) {1}-{2}", "{0}-{1}-{2}", "{0}.{1}.{2}", "{0} {1} {2}", "{0}{1}{2}", "+{3} {0} {1} {2}", "+{3}-{0}-{1}-{2}",
    "+{3}{0}{1}{2}", "00{3} {0} {1} {2}", "0{0}/{1}{2}", "{0}/{1}-{2}", "{3}-{0}-{1}-{2}", "+{3} ({0}) {1}-{2}",
    "({0}){1}-{2}", "tel: {0} {1}{2}",
)  # fmt: skip


def phone(r: Random) -> Field:
    """A telephone number."""
    forms = [pick(r, PHONES) for _ in range(pick(r, (1, 1, 1, 1, 2, 3)))]
    last, plus, same = pick(r, (4, 4, 4, 3, 2)), between(r, 1, 3), pick(r, ("1", "44", "49", "33", "39", "81"))

    def draw(q: Random) -> tuple[str, str, str, str, str]:
        country = same if plus == 1 else digits(q, 1, plus)
        return digits(q, 3, 3), digits(q, 3, 3), digits(q, last, last), country, pick(q, forms)

    def view(r: Random) -> View:
        x = r.random()
        if x < 0.6:
            other = pick(r, PHONES)
            if "{3}" in other and not all("{3}" in form for form in forms):
                return lambda v: other.format(v[0], v[1], v[2], same)
            return lambda v: other.format(*v)
        if x < 0.92:
            n = pick(r, (0, 0, 1, 2, 2, 3))
            return lambda v: v[n] if f"{{{n}}}" in v[4] else None
        return pick(r, (lambda v: f"***-***-{v[2]}", lambda v: v[0] + v[1], lambda v: f"{v[0]}-XXX-{v[2]}"))

    return Field("phone", draw, lambda v: v[4].format(*v[:4]), view)


STREETS = ("Street", "St", "St.", "Ave", "Avenue", "Road", "Rd.", "Lane", "Blvd", "Drive", "Way", "Square", "Place")


def address(r: Random) -> Field:
    """A postal address."""
    unit, sep, last = pick(r, (0, 0, 0.4)), pick(r, (", ", ", ", " ", "; ")), pick(r, ("zip", "zip", "", "country"))
    states = [*w.STATES.values()] if r.random() < 0.7 else [*w.STATES]
    glued, mixed = (
        r.random() < 0.5,
        r.random() < 0.35,
    )  # rows with other signs, with and without a street type or an end

    def draw(q: Random) -> tuple[str, str, str, str, str, str]:
        street = f"{w.capitalised(q)} {pick(q, STREETS)}"
        apartment = f"{pick(q, ('Apt', 'Suite', 'Room', 'Unit', '#'))} {digits(q, 1, 3)}" if q.random() < unit else ""
        end = digits(q, 5, 5) if last == "zip" else pick(q, w.COUNTRIES) if last else ""
        if mixed and q.random() < 0.3:
            end = ""
        if mixed and q.random() < 0.3:
            street = f"{w.capitalised(q)} {street}"
        return digits(q, 1, 4), street, apartment, w.city(q), pick(q, states), end

    def show(v: tuple[str, str, str, str, str, str]) -> str:
        head = f"{v[0]} {v[1]}" + (f"{', ' if mixed and len(v[1]) % 2 else ' '}{v[2]}" if v[2] else "")
        tail = f"{v[4]} {v[5]}".strip() if glued else sep.join([part for part in v[4:] if part])
        return sep.join((head, v[3], tail))

    def view(r: Random) -> View:
        x, change = r.random(), cased(r)
        n = 3 if x < 0.25 else 4 if x < 0.4 else 5 if x < 0.55 else 0 if x < 0.62 else 1 if x < 0.72 else 2
        if x < 0.76:
            return lambda v: change(v[n]) or None
        if x < 0.88:
            return lambda v: f"{v[0]} {v[1]}"
        form = pick(r, ("{3}, {4}", "{3} ({4})", "{4}: {3}", "{5} {3}", "{1} {0}", "{0} {1}, {3}"))
        return lambda v: form.format(*v)

    return Field("address", draw, show, view)


def internet(r: Random) -> Field:
    """An internet address, a version, or other numbers between dots."""
    count, most, sep = pick(r, ((4, 255, "."), (4, 255, "."), (3, 20, "."), (3, 59, ":"), (2, 9, "."), (3, 99, "-")))
    before = pick(r, ("", "", "", "v", "V", "version "))

    def view(r: Random) -> View:
        x, n = r.random(), int(r.random() * count)
        if x < 0.4:
            return lambda v: str(v[n])
        if x < 0.6:
            k = between(r, 1, count - 1)
            return pick(r, (lambda v: sep.join(map(str, v[:k])), lambda v: sep.join(map(str, v[k:]))))
        if x < 0.75:
            other = pick(r, ("-", " ", "_", "", ".", ":"))
            return lambda v: other.join(map(str, v))
        if x < 0.85:
            return lambda v: sep.join([f"{p:03d}" for p in v])
        if x < 0.9:
            return lambda v: sep.join(map(str, reversed(v)))
        return lambda v: sep.join([*map(str, v[:n]), str(v[n] + 1), *(["0"] * (count - n - 1))])

    return Field(
        "dotted", lambda q: [between(q, 0, most) for _ in range(count)], lambda v: before + sep.join(map(str, v)), view
    )


# --- lists, sentences, markup -------------------------------------------------------------------------------------------

INSIDE = weighted((4, word), (2, integer), (1.5, name), (1, code), (1, phrase))


def listing(r: Random) -> Field:
    """Several things of one kind."""
    kind = INSIDE(r)(r)
    sep, open_, close = pick(r, (", ", ",", "; ", ";", " ", "|", " - ", "/", "+", " and ")), "", ""
    if r.random() < 0.2:
        open_, close = pick(r, (("[", "]"), ("{", "}"), ("(", ")"), ("<", ">")))
    low = between(r, 1, 3)
    high = low + between(r, 0, 4)

    def draw(q: Random) -> list[str]:
        return [kind.show(kind.draw(q)) for _ in range(between(q, low, high))]

    def view(r: Random) -> View:
        x, n = r.random(), pick(r, (0, 0, 1, 1, 2, -1, -1, -2))
        change, other = cased(r), pick(r, (", ", ",", "; ", " ", "|", "/", "-", " and ", " & ", ""))
        if x < 0.4:
            return lambda v: change(v[n]) if -len(v) <= n < len(v) else None
        if x < 0.52:
            return lambda v: other.join(v)
        if x < 0.6:
            return lambda v: str(len(v))
        if x < 0.67:
            return lambda v: other.join(sorted(v))
        if x < 0.74:
            return lambda v: other.join(reversed(v))
        if x < 0.79:
            return lambda v: other.join(v[1:]) or None
        if x < 0.84:
            return lambda v: other.join([t[0] for t in v if t])
        if x < 0.88:
            return lambda v: other.join([t.upper() for t in v])
        if x < 0.93:
            return lambda v: f"{v[0]}{other}{v[-1]}"
        if kind.name == "number":
            how: int = pick(r, (0, 1, 2))
            return lambda v: str((max, min, sum)[how](map(int, v))) if all(t.isdigit() for t in v) else None
        return pick(r, (lambda v: max(v, key=len), lambda v: min(v), lambda v: other.join(dict.fromkeys(v))))

    return Field("list", draw, lambda v: open_ + sep.join(v) + close, view)


def sentence(r: Random) -> Field:
    """Words of a sentence, some of them in capitals or numbers, with its marks."""
    speak, low = (w.plain if r.random() < 0.85 else w.speech(r)), between(r, 3, 6)
    numbered, loud, marks = pick(r, (0, 0, 0.2)), pick(r, (0, 0, 0.2)), pick(r, ("", ".", ".", "!", "?", ".!?"))

    def draw(q: Random) -> list[str]:
        some = [speak(q) for _ in range(between(q, low, low + 5))]
        some[0] = some[0].capitalize()
        if q.random() < numbered * 4:
            some[between(q, 1, len(some) - 1)] = digits(q, 1, 4)
        if q.random() < loud * 4:
            k = between(q, 1, len(some) - 1)
            some[k] = some[k].upper()
        if q.random() < 0.2:
            k = between(q, 0, len(some) - 2)
            some[k] += ","
        return [*some[:-1], some[-1] + (pick(q, marks) if marks else "") * pick(q, (1, 1, 1, 2))]

    def view(r: Random) -> View:
        x, n, k = r.random(), pick(r, (0, 0, 1, 2, -1, -1)), between(r, 2, 4)
        if x < 0.22:
            return lambda v: v[n].strip(".,!?")
        if x < 0.36:
            return lambda v: " ".join(v[:k])
        if x < 0.46:
            return lambda v: str(len(v))
        if x < 0.54:
            return lambda v: " ".join([t.strip(".,!?") for t in v])
        if x < 0.62:
            return lambda v: next((t.strip(".,!?") for t in v if t[0].isdigit()), None)
        if x < 0.69:
            none = pick(r, ("", "-", "none"))
            return lambda v: ", ".join([u for t in v if (u := t.strip(".,!?")).isupper()]) or none or None
        if x < 0.76:
            return lambda v: "".join([t[0] for t in v]).upper()
        if x < 0.82:
            return lambda v: " ".join(v).title()
        if x < 0.88:
            end = pick(r, ("…", "...", " [...]"))
            return lambda v: " ".join(v[:k]) + end
        if x < 0.92:
            return lambda v: max([t.strip(".,!?") for t in v], key=len)
        if x < 0.96:
            return lambda v: "".join([c for c in " ".join(v) if c in ".,!?"]) or None
        return lambda v: "-".join([t.strip(".,!?").lower() for t in v])

    return Field("sentence", draw, " ".join, view)


MARKUP = (
    "[[{0}]]", "[[{0}|{1}]]", "{{{{{1}|{0}}}}}", "<b>{0}</b>", "<a href=\"{1}\">{0}</a>", "'''{0}'''", "''{0}''", "[{0}]({1})",
    "\"{1}\": \"{0}\"", "{{\"{1}\": \"{0}\"}}", "{1}={0}", "<{1}>{0}</{1}>", "**{0}**", "`{0}`", "\\{1}{{{0}}}", "{1}: {0};",
)  # fmt: skip


def markup(r: Random) -> Field:
    """Something with marks around it, and perhaps something before and after."""
    form, before, after = pick(r, MARKUP), pick(r, (0, 0.5, 1)), pick(r, (0, 0.5, 1))
    kind = pick(r, (phrase, phrase, name, integer, word))(r)
    lead = pick(r, ("* ", "# ", "- ", "| ", ""))

    def draw(q: Random) -> tuple[str, str, str, str]:
        return (
            kind.show(kind.draw(q)),
            w.plain(q) if q.random() < 0.7 else digits(q, 1, 4),
            (w.plain(q) if q.random() < 0.5 else digits(q, 1, 4)) + " " if q.random() < before else "",
            pick(q, (" ", " – ", ", ")) + w.plain(q) if q.random() < after else "",
        )

    def view(r: Random) -> View:
        x, change = r.random(), cased(r)
        if x < 0.7:
            return lambda v: change(v[0])
        if x < 0.85:
            return (lambda v: v[1]) if "{1}" in form else (lambda v: v[0])
        if x < 0.93:
            return lambda v: f"{v[2]}{v[0]}{v[3]}"
        other = pick(r, MARKUP)
        return lambda v: other.format(v[0], v[1])

    return Field("markup", draw, lambda v: lead + v[2] + form.format(v[0], v[1]) + v[3], view)


def pairs_of(r: Random) -> Field:
    """Names with values, as in records of programs, cookies and settings."""
    keys = list(dict.fromkeys([w.plain(r) for _ in range(between(r, 2, 5))]))
    quote, is_, sep, open_, close = pick(
        r,
        (
            ('"', ": ", ", ", "{", "}"), ("", "=", "; ", "", ""), ("", ": ", ", ", "", ""), ("'", ": ", ", ", "{", "}"),
            ("", "=", "&", "?", ""), ("", ":", " ", "", ""), ('"', ":", ",", "{", "}"),
        ),
    )  # fmt: skip
    numeric, shuffled, missing = r.random() < 0.6, r.random() < 0.3, pick(r, (0, 0, 0.2))

    def draw(q: Random) -> dict[str, str]:
        value = {k: digits(q, 1, 4) if numeric or q.random() < 0.3 else w.any_case(q) for k in keys}
        if q.random() < missing:
            value.pop(pick(q, keys))
        if shuffled:
            names = [*value]
            q.shuffle(names)
            value = {k: value[k] for k in names}
        return value

    def show(v: dict[str, str]) -> str:
        return open_ + sep.join([f"{quote}{k}{quote}{is_}{x}" for k, x in v.items()]) + close

    def view(r: Random) -> View:
        x, key = r.random(), pick(r, keys)
        if x < 0.7:
            none = pick(r, ("", "", "-", "0"))
            return lambda v: v.get(key, none) or None
        if x < 0.8:
            return lambda v: ", ".join(v)
        if x < 0.9:
            return lambda v: ", ".join(v.values())
        return lambda v: str(sum(int(x) for x in v.values() if x.isdigit())) if numeric else str(len(v))

    return Field("pairs", draw, show, view)


def formula(r: Random) -> Field:
    """A chemical formula."""
    elements = "H C N O S P F Cl Br Na K Ca Fe Cu Mg Al Si Zn".split()

    def draw(q: Random) -> list[tuple[str, int]]:
        return [(e, pick(q, (1, 1, 2, 2, 3, 4, 6, 12))) for e in q.sample(elements, between(q, 1, 3))]

    def view(r: Random) -> View:
        x, low = r.random(), str.maketrans(w.DIGITS, "₀₁₂₃₄₅₆₇₈₉")
        if x < 0.3:
            return lambda v: "".join([e + (str(n) if n > 1 else "") for e, n in v]).translate(low)
        if x < 0.5:
            return lambda v: " ".join([e for e, _ in v])
        if x < 0.65:
            return lambda v: str(sum(n for _, n in v))
        if x < 0.85:
            return lambda v: ", ".join([f"{e}: {n}" for e, n in v])
        return lambda v: "".join([f"{e}<sub>{n}</sub>" if n > 1 else e for e, n in v])

    return Field("formula", draw, lambda v: "".join([e + (str(n) if n > 1 else "") for e, n in v]), view)


NOTES = ("C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B")
GERMAN = ("Do", "Do#", "Re", "Re#", "Mi", "Fa", "Fa#", "Sol", "Sol#", "La", "La#", "Si")


def melody(r: Random) -> Field:
    """Some notes or chords."""
    sep, ends = pick(r, (" ", "-", ", ")), pick(r, (("",), ("", "m", "7"), ("4",), ("3", "4", "5")))

    def draw(q: Random) -> list[tuple[int, str]]:
        return [(between(q, 0, 11), pick(q, ends)) for _ in range(between(q, 2, 6))]

    def view(r: Random) -> View:
        x, up = r.random(), pick(r, (1, 2, 2, 3, 5, 7, -1, -2))
        if x < 0.6:
            return lambda v: sep.join([NOTES[(n + up) % 12] + e for n, e in v])
        if x < 0.8:
            return lambda v: sep.join([GERMAN[n] + e for n, e in v])
        return lambda v: sep.join([NOTES[n] + e for n, e in reversed(v)])

    return Field("notes", draw, lambda v: sep.join([NOTES[n] + e for n, e in v]), view)


def nested(r: Random) -> Field:
    """Lists within a list."""
    kind = pick(r, (word, integer, word, code))(r)
    outer, inner, open_, close = pick(
        r,
        (
            ("; ", ", ", "", ""), (", ", ", ", "{", "}"), (", ", ", ", "(", ")"), (", ", ", ", "[", "]"), ("|", ",", "", ""),
            (" / ", " ", "", ""), ("\n", "\t", "", ""), (" - ", ", ", "", ""),
        ),
    )  # fmt: skip
    around = open_ != "" and r.random() < 0.6
    groups, width = between(r, 1, 3), between(r, 1, 3)

    def draw(q: Random) -> list[list[str]]:
        return [
            [kind.show(kind.draw(q)) for _ in range(between(q, 1, width + 1))]
            for _ in range(between(q, groups, groups + 2))
        ]

    def show(v: list[list[str]]) -> str:
        text = outer.join([open_ + inner.join(some) + close for some in v])
        return open_ + text + close if around else text

    def view(r: Random) -> View:
        x, n, k = r.random(), pick(r, (0, 0, 1, 1, -1)), pick(r, (0, 0, 1, -1))
        if x < 0.5:
            return lambda v: v[n][k] if -len(v) <= n < len(v) and -len(v[n]) <= k < len(v[n]) else None
        if x < 0.7:
            return lambda v: inner.join(v[n]) if -len(v) <= n < len(v) else None
        if x < 0.85:
            return lambda v: inner.join([some[0] for some in v])
        return (lambda v: str(len(v))) if x < 0.92 else (lambda v: inner.join([t for some in v for t in some]))

    return Field("nested", draw, show, view)


def moment(r: Random) -> Field:
    """A date with a time."""
    on, at = date_form(r), time_form(r)
    glue = pick(r, (" ", " ", " ", ", ", "T", " at ", " - "))
    low, high = pick(r, ((1990, 2030), (2010, 2026)))

    def draw(q: Random) -> tuple[Day, tuple[int, int, int]]:
        when = between(q, 0, 23), between(q, 0, 59), between(q, 0, 59)
        return (between(q, low, high), between(q, 1, 12), between(q, 1, 28)), when

    def view(r: Random) -> View:
        x, other, time, joint = r.random(), _of_date(r), time_form(r), pick(r, (" ", ", ", "T", " - ", "/"))
        if x < 0.35:
            return lambda v: other(v[0])
        if x < 0.55:
            return lambda v: time(v[1])
        if x < 0.75:
            return lambda v: f"{other(v[0])}{joint}{time(v[1])}"
        if x < 0.82:
            return lambda v: str(v[1][0])
        hours, same = pick(r, (1, -1, 2, 3, -5, 12, 9)), r.random() < 0.6

        def moved(v: tuple[Day, tuple[int, int, int]]) -> str:
            days, hour = divmod(v[1][0] + hours, 24)
            then = date.fromordinal(date(*v[0]).toordinal() + days)
            day, when = (then.year, then.month, then.day), (hour, v[1][1], v[1][2])
            return f"{on(day)}{glue}{at(when)}" if same else f"{other(day)}{joint}{time(when)}"

        return moved

    return Field("moment", draw, lambda v: f"{on(v[0])}{glue}{at(v[1])}", view)


def embedded(r: Random) -> Field:
    """A field somewhere in a text, with other words around it."""
    kind = pick(r, (day, decimal, integer, mail, phone, url, code, clock, name, markup))(r)
    loose, mark = r.random() < 0.7, pick(r, ("", "", "", "(", '"', "#", "$", "["))
    close = {"(": ")", '"': '"', "[": "]"}.get(mark, "")
    lead, follow = w.plain(r), w.plain(r)

    def draw(q: Random) -> tuple[str, Any, str]:
        if not loose:
            return w.any_case(q) + f" {lead} ", kind.draw(q), f" {follow} " + w.plain(q)
        before = " ".join([w.plain(q) for _ in range(between(q, 0, 4))])
        after = " ".join([w.plain(q) for _ in range(between(q, 0, 4))])
        return (
            before.capitalize() + " " * bool(before),
            kind.draw(q),
            " " * bool(after) + after + pick(q, ("", ".", "!")),
        )

    def view(r: Random) -> View:
        if r.random() < 0.7:
            return lambda v: kind.show(v[1])
        inner = kind.view(r)
        return lambda v: inner(v[1])

    return Field("embedded", draw, lambda v: f"{v[0]}{mark}{kind.show(v[1])}{close}{v[2]}", view)


KIND = weighted(
    (2.2, word), (1.8, phrase), (2.6, name), (2.2, day), (0.9, clock), (1.6, integer), (1.3, decimal), (1.6, code), (0.8, mail),
    (0.8, url), (0.9, file_name), (1.0, phone), (0.8, address), (0.5, internet), (1.1, listing), (0.9, sentence),
    (0.8, markup), (0.7, pairs_of), (0.12, formula), (0.08, melody),
    (0.6, nested), (0.5, moment), (0.8, embedded),
)  # fmt: skip
