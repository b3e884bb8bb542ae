"""Families of hidden rules. Each draws a rule: a function that makes a pair, or None where the rule has no answer."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from random import Random
from weakref import WeakKeyDictionary

from shipped.examples import fields as f
from shipped.examples import words as w
from shipped.examples.words import between, digits, pick, some_of, weighted

Pair = tuple[str, str]
Maker = Callable[[Random], Pair | None]
Text = Callable[[str], str | None]

#: What of a pair its rule does not tell, such as a word of a table: of a question, some example must show it.
NEEDS: WeakKeyDictionary[Maker, Callable[[Pair], set[str]]] = WeakKeyDictionary()

# --- records: parts of known kinds, and what is wanted of them ------------------------------------------------------

SEPARATORS = (
    " | ", " | ", " | ", ", ", ", ", ",", ";", "; ", " - ", "-", "_", " ", " ", " ", "|", ":", ": ", "/", "\t", ". ", " / ", " (", "=",
    " -> ", " at ", " by ", " from ", " in ", "@", "#", "&", " & ", " and ", "\n", "~", "*",
)  # fmt: skip
JOINTS = (
    " ", " ", " ", ", ", ", ", "-", "-", "_", "", "", "/", ".", ": ", " - ", " (", ", ", ";", "|", " | ", "@", " & ", " and ", "=", ":",
    ",", " of ", " in ", "+", "#", " by ", "\n",
)  # fmt: skip
BEFORE = ("", "", "", "", "", "", "", "", "(", "[", '"', "<", "#", "- ", "Dr. ", "ID ", "Re: ", "@", "* ", "$")
CLOSE = {"(": ")", "[": "]", '"': '"', "<": ">"}


def constant(r: Random) -> str:
    """Return a text that a rule puts before what it takes."""
    x = r.random()
    if x < 0.75:
        return pick(r, BEFORE)
    if x < 0.93:
        return w.any_case(r) + pick(r, (" ", ": ", "-", "_", " "))
    return some_of(r, w.MIXED, 1, 4)


def record(r: Random) -> tuple[list[f.Field], str, list[str], str, float]:
    """Return some fields, what is before, between and after them, and how often one is missing."""
    count = pick(r, (1, 1, 1, 2, 2, 2, 3, 3, 4))
    parts = [f.KIND(r)(r) for _ in range(count)]
    same = r.random() < 0.75
    sep = pick(r, SEPARATORS)
    seps = [sep if same else pick(r, SEPARATORS) for _ in range(count - 1)]
    wrapped = r.random()
    before, after = "", ""
    if wrapped < 0.1:
        before = pick(r, ("[", "(", "<", '"', "{", "'"))
        after = {"[": "]", "(": ")", "<": ">", '"': '"', "{": "}", "'": "'"}[before]
    elif wrapped < 0.2:
        before = constant(r)
    elif wrapped < 0.25:
        after = pick(r, (".", ";", "!", " ", "…", " " + w.plain(r)))
    return parts, before, seps, after, (0.2 if count > 1 and r.random() < 0.12 else 0.0)


def fields(r: Random) -> Maker:
    """A text of fields, and some views of them with constants between."""
    parts, before, seps, after, missing = record(r)
    count = len(parts)
    wanted = pick(r, (1, 1, 1, 1, 2, 2, 2, 3)) if count > 1 else pick(r, (1, 1, 1, 1, 2))
    chosen: list[int] = []
    for _ in range(wanted):
        left = [n for n in range(count) if n not in chosen]
        chosen.append(pick(r, left) if left and r.random() < 0.85 else int(r.random() * count))
    views = [parts[n].view(r) for n in chosen]
    lead = constant(r) if r.random() < 0.3 else ""
    tail = CLOSE.get(lead, pick(r, (".", "!", ";", " " + w.plain(r), "?")) if r.random() < 0.08 else "")
    joints = [pick(r, JOINTS) for _ in views]
    joints = [j if " (" not in j else " (" for j in joints]
    opened = ")" if any(j == " (" for j in joints[1:]) else ""
    default = pick(r, ("", "", "N/A", "-", "?", "none", "unknown")) if r.random() < 0.2 else None
    simple = list(zip(chosen, views, joints, strict=True))

    def make(q: Random) -> Pair | None:
        values = [part.draw(q) for part in parts]
        shown = [part.show(v) for part, v in zip(parts, values, strict=True)]
        gone = int(q.random() * count) if missing and q.random() < missing else -1
        if gone >= 0:
            shown[gone] = ""
        text = shown[0]
        for sep, part in zip(seps, shown[1:], strict=True):
            if part or sep == " | ":
                text = f"{text}{sep}{part}" if text or sep == " | " else part
        found = ""
        for number, (n, view, joint) in enumerate(simple):
            out = (default if gone == n else None) if gone == n else view(values[n])
            if out is None:
                if default is None:
                    return None
                out = default
            found = out if not number else f"{found}{joint}{out}"
        return before + text + after, lead + found + opened + tail

    return make


# --- texts: what is done with them as they stand ---------------------------------------------------------------------

TOKENS = [
    re.compile(p) for p in (r"[^\W\d_]+", r"\d+", r"\w+", r"\S+", r"[^,;|_/\-:]+", r"[A-Z][a-z]*", r"\d+(?:[.,]\d+)?")
]
TOKENS_OF = weighted((3, 0), (2.5, 1), (1.5, 2), (3, 3), (2, 4), (0.7, 5), (0.6, 6))
NTH = (0, 0, 0, 1, 1, 2, 3, -1, -1, -1, -2)
SIGNS = " ,-/.@:;|_()[]=#\\'\"&+*"


def signs_in(sample: str) -> list[str]:
    """Return the signs that occur in a text, or the space."""
    return [sign for sign in SIGNS if sign in sample] or [" "]


def without_accents(s: str) -> str:
    """Return a text without accents."""
    return "".join([c for c in unicodedata.normalize("NFD", s) if not unicodedata.combining(c)])


def camel(s: str, first: bool) -> str:
    """Return words as one, each with a capital, the first only if wanted."""
    parts = [p for p in re.split(r"[\W_]+", s) if p]
    return "".join([p.capitalize() if first or k else p.lower() for k, p in enumerate(parts)])


def piece(r: Random, sample: str) -> Text:
    """Return something that can be taken from a text."""
    x = r.random()
    if x < 0.34:
        pattern, n = TOKENS[TOKENS_OF(r)], pick(r, NTH)
        return lambda s: t[n].strip() if -len(t := pattern.findall(s)) <= n < len(t) else None
    if x < 0.46:
        sign, last, after = pick(r, signs_in(sample)), r.random() < 0.35, r.random() < 0.5

        def cut(s: str) -> str | None:
            if sign not in s:
                return None
            a, _, b = s.rpartition(sign) if last else s.partition(sign)
            return (b if after else a).strip() or None

        return cut
    if x < 0.54:
        a, n, back = pick(r, (0, 0, 0, 1, 2, 3, 4)), between(r, 1, 6), r.random() < 0.4
        return (lambda s: s[max(0, len(s) - a - n) : len(s) - a] or None) if back else (lambda s: s[a : a + n] or None)
    if x < 0.6:
        pattern, joint = TOKENS[pick(r, (0, 3, 3, 5))], pick(r, ("", "", "", ".", " ", "-"))
        return lambda s: joint.join([t[0] for t in pattern.findall(s)]) or None
    if x < 0.66:
        pattern, joint = TOKENS[TOKENS_OF(r)], pick(r, ("", "", " ", "-", ", ", "_", "/", ".", "+"))
        return lambda s: joint.join([t.strip() for t in pattern.findall(s)]) or None
    if x < 0.72:
        sign, n = pick(r, signs_in(sample)), pick(r, NTH)
        return lambda s: t[n].strip() or None if -len(t := s.split(sign)) <= n < len(t) else None
    if x < 0.77:
        one, two = pick(
            r, (("(", ")"), ("[", "]"), ("<", ">"), ('"', '"'), (pick(r, signs_in(sample)), pick(r, signs_in(sample))))
        )

        def inside(s: str) -> str | None:
            _, found, rest = s.partition(one)
            middle, ended, _ = rest.partition(two)
            return middle.strip() or None if found and ended else None

        return inside
    if x < 0.84:
        i, j = pick(r, ((0, 2), (1, None), (None, -1), (1, -1), (0, 3), (1, 3), (-2, None), (2, None)))
        return lambda s: " ".join(s.split()[i:j]) or None
    return str


DROPS: tuple[Text, ...] = (
    lambda s: "".join([c for c in s if not c.isdigit()]).strip() or None,
    lambda s: "".join([c for c in s if c.isdigit()]) or None,
    lambda s: "".join([c for c in s if c.isalnum() or c == " "]).strip() or None,
    lambda s: "".join([c for c in s if c.isalnum()]) or None,
    lambda s: "".join([c for c in s if c.isalpha()]) or None,
    lambda s: "".join([c for c in s if c.lower() not in "aeiou"]) or None,
    lambda s: "".join([c for c in s if c.isupper()]) or None,
    lambda s: s.replace(" ", "") or None,
    lambda s: re.sub(r"\s*[\(\[<{].*?[\)\]>}]", "", s).strip() or None,
    lambda s: " ".join(s.split()),
    lambda s: s.strip("\"'()[]<>{}.,;:!? ") or None,
    lambda s: re.sub(r"(.)\1+", r"\1", s),
    lambda s: s.lstrip("0") or "0",
)


def change(r: Random, sample: str) -> Text:
    """Return something that can be done with a whole text."""
    x, signs = r.random(), signs_in(sample)
    if x < 0.16:
        return pick(r, DROPS)
    if x < 0.32:
        one, two = pick(r, signs), pick(r, ("", "", "-", " ", "_", ".", "/", ",", ", ", " | ", "+", "&"))
        if r.random() < 0.25:
            return lambda s: s.replace(one, two, 1)
        return lambda s: s.replace(one, two)
    if x < 0.37:
        return without_accents
    if x < 0.45:
        first = r.random() < 0.4
        sep, how = pick(r, ("-", "_", "-", ".", "")), pick(r, (str.lower, str.lower, str.upper))
        if r.random() < 0.5:
            return lambda s: camel(s, first) or None
        return lambda s: how(sep.join([p for p in re.split(r"[\W_]+", s) if p])) or None
    if x < 0.48:
        sep = pick(r, (" ", "_", "-"))
        return lambda s: re.sub(r"(?<=[a-z0-9])(?=[A-Z])", sep, s).lower()
    if x < 0.54:
        sign = pick(r, signs)
        glue = sign if r.random() < 0.6 else pick(r, JOINTS)

        def swapped(s: str) -> str | None:
            a, found, b = s.partition(sign)
            return f"{b.strip()}{glue}{a.strip()}" if found and a and b else None

        return swapped
    if x < 0.59:
        k, sep, back = pick(r, (2, 3, 3, 4, 4)), pick(r, ("-", " ", ":", ".", ",")), r.random() < 0.4
        if back:
            return lambda s: sep.join([s[max(0, i - k) : i] for i in range(len(s), 0, -k)][::-1])
        return lambda s: sep.join([s[i : i + k] for i in range(0, len(s), k)])
    if x < 0.64:
        k, fill = pick(r, (5, 6, 8, 10, 12)), pick(r, ("0", "0", "0", " ", "*", "x", "."))
        return (lambda s: s.rjust(k, fill)) if r.random() < 0.7 else (lambda s: s.ljust(k, fill))
    if x < 0.69:
        keep, mask = pick(r, (1, 2, 3, 4, 4)), pick(r, ("*", "*", "X", "x", "#", "•"))
        if r.random() < 0.6:
            return lambda s: mask * max(0, len(s) - keep) + s[-keep:]
        return pick(r, (lambda s: re.sub(r"\d", mask, s), lambda s: s[:keep] + mask * max(0, len(s) - keep)))
    if x < 0.74:
        sign = pick(r, signs)
        return pick(
            r,
            (
                lambda s: str(len(s)), lambda s: str(len(s.split())), lambda s: str(s.count(sign)),
                lambda s: str(sum(c.isdigit() for c in s)), lambda s: str(sum(c.lower() in "aeiou" for c in s)),
            ),
        )  # fmt: skip
    if x < 0.8:
        joint = pick(r, (" ", ", ", "-", "_"))
        return pick(
            r,
            (
                lambda s: joint.join(sorted(s.split())), lambda s: joint.join(s.split()[::-1]), lambda s: s[::-1],
                lambda s: joint.join(dict.fromkeys(s.split())), lambda s: max(s.split(), key=len, default=None),
                lambda s: min(s.split(), key=len, default=None), lambda s: "".join(sorted(s)),
                lambda s: joint.join([t[::-1] for t in s.split()]), lambda s: s + s[::-1],
            ),
        )  # fmt: skip
    if x < 0.86:
        sep = pick(r, ("-", " ", ".", ", ", "_", "|"))
        return pick(r, (sep.join, lambda s: sep.join(s.split()), lambda s: s + sep + s))
    if x < 0.91:
        return pick(r, (str.swapcase, str.title, str.upper, str.lower, str.capitalize, lambda s: s[:1].lower() + s[1:]))
    if x < 0.94:  # what is missing is added
        end = pick(r, (".", "!", "/", ";", ", " + w.capitalised(r), " " + w.plain(r), "." + w.plain(r), "%", ":"))
        start = pick(r, ("#", "+", "the ", "www.", "http://", w.plain(r) + " ", "@", "0", "$", "/"))
        if r.random() < 0.5:
            return lambda s: s if s.endswith(end) else s + end
        return lambda s: s if s.startswith(start) else start + s
    if x < 0.97:
        n = pick(r, (1, 2, 3, 4))
        return pick(
            r, (lambda s: s[n:] or None, lambda s: s[:-n] or None, lambda s: s[n:] + s[:n], lambda s: s[:: n + 1])
        )
    one, two = pick(r, w.SMALL), pick(r, w.SMALL + "013457@$*")
    return lambda s: s.replace(one, two)


def input_of(r: Random) -> Callable[[Random], str]:
    """Return a kind of texts: a record, without views."""
    parts, before, seps, after, missing = record(r)
    if r.random() < 0.06:
        letters = pick(r, (w.SMALL, w.BOTH, w.MIXED, w.DIGITS, pick(r, w.ALPHABETS)))
        low = between(r, 1, 6)
        return lambda q: some_of(q, letters, low, low + 6)
    spaced = r.random() < 0.04

    def draw(q: Random) -> str:
        shown = [part.show(part.draw(q)) for part in parts]
        if missing and q.random() < missing:
            shown.pop(int(q.random() * len(shown)))
        text = shown[0]
        for sep, part in zip(seps, shown[1:], strict=False):
            text += sep + part
        if spaced:
            text = " " * between(q, 0, 2) + text.replace(" ", " " * between(q, 1, 3)) + " " * between(q, 0, 2)
        return before + text + after

    return draw


def program(r: Random, sample: str) -> Text:
    """Return pieces of a text with constants between them, or a change of the whole, or one after the other."""
    x = r.random()
    if x < 0.3:
        return change(r, sample)
    if x < 0.42:
        one, two = piece(r, sample), change(r, sample)
        return lambda s: two(t) if (t := one(s)) else None
    if x < 0.5:
        one, two = change(r, sample), change(r, sample)
        return lambda s: two(t) if (t := one(s)) else None
    count = pick(r, (1, 1, 1, 1, 2, 2, 2, 3, 3))
    taken = [(piece(r, sample), f.of_word(r) if r.random() < 0.35 else str, pick(r, JOINTS)) for _ in range(count)]
    lead = constant(r) if r.random() < 0.3 else ""
    tail = CLOSE.get(lead, pick(r, (".", "!", ")", " " + w.plain(r), "%")) if r.random() < 0.12 else "")

    def run(s: str) -> str | None:
        found = ""
        for number, (one, how, joint) in enumerate(taken):
            t = one(s)
            if not t:
                return None
            found = how(t) if not number else f"{found}{joint}{how(t)}"
        return lead + found + tail

    return run


def text(r: Random) -> Maker:
    """A program over the text as it stands."""
    draw = input_of(r)
    do = program(r, draw(r))

    def make(q: Random) -> Pair | None:
        s = draw(q)
        t = do(s)
        return None if t is None else (s, t)

    return make


# --- conditions --------------------------------------------------------------------------------------------------------


def question(r: Random, sample: str) -> Callable[[str], bool]:
    """Return a question about a text that is answered by yes or no."""
    x, sign = r.random(), pick(r, signs_in(sample))
    if x < 0.22:
        return lambda s: sign in s
    if x < 0.32:
        return lambda s: any(c.isdigit() for c in s)
    if x < 0.5:
        k = max(1, len(sample.split()) + pick(r, (-1, 0, 0, 1)))
        return lambda s: len(s.split()) > k
    if x < 0.6:
        k = max(1, len(sample) + between(r, -3, 3))
        return lambda s: len(s) > k
    if x < 0.68:
        return lambda s: s[:1].isupper()
    if x < 0.74:
        return lambda s: s[:1].lower() in "aeiou"
    if x < 0.8:
        return lambda s: s[:1].isdigit()
    if x < 0.86:
        return lambda s: s.count(sign) > 1
    if x < 0.92:
        return lambda s: s[-1:].isdigit()
    c = pick(r, "eaiorst")
    return lambda s: c in s.lower()


LABELS = (
    ("yes", "no"), ("Yes", "No"), ("true", "false"), ("TRUE", "FALSE"), ("1", "0"), ("Y", "N"), ("valid", "invalid"), ("ok", "error"),
    ("x", "-"), ("A", "B"), ("✓", "✗"), ("long", "short"),
)  # fmt: skip


def condition(r: Random) -> Maker:
    """A question decides between two programs, or between two labels."""
    draw = input_of(r)
    if r.random() < 0.2:
        return belongs(r)
    if r.random() < 0.6:  # two forms of rows
        one, two = draw, input_of(r)
        draw = lambda q: one(q) if q.random() < 0.5 else two(q)
    sample = draw(r)
    ask = question(r, sample)
    if r.random() < 0.35:
        names = pick(r, LABELS) if r.random() < 0.8 else (w.plain(r), w.plain(r))
        yes: Text = lambda s: names[0]
        no: Text = lambda s: names[1]
    else:
        yes = program(r, sample)
        label = pick(r, ("", "-", "N/A", "none", "?"))
        x = r.random()
        no = str if x < 0.3 else (lambda s: label or s) if x < 0.5 else program(r, sample)

    def make(q: Random) -> Pair | None:
        s = draw(q)
        t = yes(s) if ask(s) else no(s)
        return None if t is None else (s, t)

    NEEDS[make] = lambda pair: {str(ask(pair[0]))}
    return make


def belongs(r: Random) -> Maker:
    """Whether a row is of a kind: the others are of another kind, or have a sign too many or too few."""
    kind, other, names = f.KIND(r)(r), f.KIND(r)(r), pick(r, LABELS)
    spoilt = r.random() < 0.5

    def make(q: Random) -> Pair | None:
        s = kind.show(kind.draw(q))
        if q.random() < 0.5:
            return s, names[0]
        places = [n for n, c in enumerate(s) if not c.isalnum()]
        if not spoilt:
            s = other.show(other.draw(q))
        elif not places:
            return None
        else:
            n = pick(q, places)
            s = s[:n] + s[n] * (2 if q.random() < 0.5 else 0) + s[n + 1 :]
        return s, names[1]

    NEEDS[make] = lambda pair: {pair[1]}
    return make


# --- tables: what a word stands for is shown, or known --------------------------------------------------------------------


def lookup(r: Random) -> Maker:
    """A word stands for another: one that the examples show, or one that people know."""
    known = True
    if r.random() < 0.6:
        table = pick(r, w.TABLES)
        if r.random() < 0.3:
            table = {b: a for a, b in table.items()}
    else:
        speak, other = w.speech(r), w.speech(r)
        table = {speak(r): other(r) if r.random() < 0.9 else digits(r, 1, 3) for _ in range(between(r, 2, 4))}
        known = False
    keys, how = [*table], f.cased(r)
    x, rest, sep = r.random(), f.KIND(r)(r), pick(r, SEPARATORS)
    joint, view = pick(r, JOINTS), rest.view(r)
    if not known:  # a word alone, which no example shows, has no answer
        x = 0.4 + 0.6 * x

    def make(q: Random) -> Pair | None:
        key = keys[int(q.random() * len(keys))]
        if x < 0.4:
            return key, how(table[key])
        v = rest.draw(q)
        shown = rest.show(v)
        if x < 0.65:
            return f"{shown}{sep}{key}", how(table[key])
        if x < 0.85:
            return f"{shown}{sep}{key}", f"{shown}{joint}{how(table[key])}"
        t = view(v)
        return None if t is None else (f"{key}{sep}{shown}", f"{how(table[key])}{joint}{t}")

    if not known:
        NEEDS[make] = lambda pair: {key for key in keys if pair[0].startswith(key) or pair[0].endswith(key)}
    return make


# --- numbers and units -----------------------------------------------------------------------------------------------------

UNITS = (
    ("mm", "inch", 393701, 7), ("cm", "in", 393701, 6), ("m", "ft", 328084, 5), ("km", "mi", 621371, 6), ("inch", "cm", 254, 2),
    ("in", "mm", 254, 1), ("ft", "m", 3048, 4), ("yd", "m", 9144, 4), ("mile", "km", 1609344, 6), ("kg", "lb", 220462, 5),
    ("g", "oz", 35274, 6), ("lb", "kg", 45359237, 8), ("oz", "g", 2834952, 5), ("l", "gal", 264172, 6), ("gal", "l", 378541, 5),
    ("min", "s", 60, 0), ("h", "min", 60, 0), ("days", "hours", 24, 0), ("weeks", "days", 7, 0), ("km", "m", 1000, 0),
    ("m", "cm", 100, 0), ("kg", "g", 1000, 0), ("MB", "KB", 1024, 0), ("GB", "MB", 1000, 0), ("m", "km", 1, 3), ("g", "kg", 1, 3),
    ("cm", "m", 1, 2), ("mm", "cm", 1, 1), ("min", "h", 16667, 6), ("dozen", "pieces", 12, 0), ("acre", "m²", 404686, 2),
)  # fmt: skip


def written(n: int, places: int, form: int, k: int) -> str:
    """Return n / 10^places with k places (form 0), without zeros at its end (1), or with k + 2 figures (2)."""
    if form == 0:
        return f.fixed(f.rounded(n, places, k), k)
    if form == 2:
        length = len(str(abs(n)))
        places_kept = max(0, min(places, k + 2 - (length - places)))
        n, places = f.rounded(n, places, places_kept), places_kept
    else:
        n, places = f.rounded(n, places, min(places, k + 2)), min(places, k + 2)
    text = f.fixed(n, places)
    return text.rstrip("0").rstrip(".") if "." in text else text


def linear(r: Random) -> Maker:
    """A number times something plus something: units, currencies, taxes."""
    x, form, k, decimals = r.random(), pick(r, (0, 1, 1, 2)), between(r, 0, 3), pick(r, (0, 0, 0, 0, 0, 1, 2))
    before, unit, after, other, offset = "", "", "", "", 0
    if x < 0.45:
        unit, other, factor, places = pick(r, UNITS)
        offset = 0
        gap = pick(r, (" ", " ", ""))
        unit, other = gap + unit, gap + other
        if r.random() < 0.2:
            unit = other = ""
    elif x < 0.53:
        factor, places, offset = pick(r, ((18, 1, 320), (18, 1, 320), (1, 0, 273), (10, 1, 2732)))
        unit, other = pick(r, ((" C", " F"), ("°C", "°F"), (" Celsius", " Fahrenheit"), (" °C", " °F")))
        if factor != 18:
            other = pick(r, (" K", " Kelvin"))
    elif x < 0.75:
        factor, places = between(r, 2, 12), 0
        offset = pick(r, (0, 0, 0, 1, -1, 10, 5, 100))
    else:
        factor, places = between(r, 1, 999), pick(r, (1, 2, 2, 3))
        if r.random() < 0.6:
            before, after = pick(r, (("$", "€"), ("€", "$"), ("£", "€"), ("USD ", "EUR "), ("", "")))
    # Small numbers first: a product of three figures is learned long after those of one.
    high = pick(r, (9, 9, 12, 12, 20, 20, 50, 99, 99, 999))
    round_ones = r.random() < 0.3

    def make(q: Random) -> Pair | None:
        n = between(q, 1, high * 10**decimals)
        if round_ones and q.random() < 0.6:
            n = pick(q, (1, 2, 3, 5, 10, 15, 20, 25, 50, 100)) * 10**decimals
        y = n * factor + offset * 10 ** (
            decimals if x >= 0.53 else max(0, decimals + places - 1 if factor == 18 else decimals)
        )
        if factor == 18:
            y = n * 18 + 320 * 10**decimals
        return f"{before}{f.fixed(n, decimals)}{unit}", f"{after}{written(y, places + decimals, form, k)}{other}"

    return make


def arithmetic(r: Random) -> Maker:
    """Two or three numbers, and their sum, product, difference, mean, share or order."""
    high, sep = (
        pick(r, (9, 9, 12, 20, 20, 50, 99, 99, 999)),
        pick(r, (" | ", ", ", " + ", " ", "-", "/", " x ", ":", "+", "*", " - ")),
    )
    how: Callable[[int, int], str | None] = pick(
        r,
        (
            lambda a, b: str(a + b), lambda a, b: str(a + b), lambda a, b: str(a - b), lambda a, b: str(abs(a - b)),
            lambda a, b: str(a * b) if a < 100 and b < 13 else None, lambda a, b: str(max(a, b)), lambda a, b: str(min(a, b)),
            lambda a, b: f"{a}" if a > b else f"{b}", lambda a, b: ">" if a > b else "<" if a < b else "=",
            lambda a, b: str(a // b) if b and a % b == 0 else None, lambda a, b: str(a % b) if 0 < b < 13 else None,
            lambda a, b: f"{100 * a // b}%" if 0 < a <= b else None,
        ),
    )  # fmt: skip

    def make(q: Random) -> Pair | None:
        a, b = between(q, 0, high), between(q, 0, high)
        y = how(a, b)
        return None if y is None else (f"{a}{sep}{b}", y)

    return make


def expression(r: Random) -> Maker:
    """A sum, difference, product or share that the row itself names."""
    high, gap, signs = pick(r, (9, 9, 20, 50)), pick(r, ("", "", " ")), pick(r, ("+-", "+-*", "+-*/", "+-×÷"))
    braces, tail = r.random() < 0.3, pick(r, ("", "", "", "=", " = ?"))

    def make(q: Random) -> Pair | None:
        a, b, c = (between(q, 1, high) for _ in range(3))
        sign = pick(q, signs)
        if sign in "*×":
            b = between(q, 1, 9)
        if sign in "/÷":
            a *= b
        y = a + b if sign == "+" else a - b if sign == "-" else a * b if sign in "*×" else a // b
        text = f"{a}{gap}{sign}{gap}{b}"
        if braces and q.random() < 0.5:
            text, y = f"({text}){gap}+{gap}{c}", y + c
        return text + tail, str(y)

    return make


def scales(r: Random) -> Maker:
    """Sizes and large numbers: 1.5K, 20 MB, 3 million."""
    if r.random() < 0.5:
        steps = pick(r, (("", "K", "M", "B"), ("", "k", "m", "bn"), ("", " thousand", " million", " billion")))
        factor = 1000
    else:
        steps = pick(r, (("B", "KB", "MB", "GB"), (" B", " KB", " MB", " GB"), (" bytes", " kB", " MB", " GB")))
        factor = pick(r, (1000, 1024, 1024))
    unit, sep, back = pick(r, ("", "", " Bytes", " bytes", " B")), pick(r, ("", "", ",", " ")), r.random() < 0.7
    decimals = pick(r, (0, 0, 1))

    def make(q: Random) -> Pair | None:
        k = between(q, 0, 2 if factor == 1024 else 3)
        n = between(q, 1, 999 * 10**decimals if k else 999)
        if not k:
            small, whole = str(n), n
        else:
            small, whole = f.fixed(n, decimals), n * factor**k
            if whole % 10**decimals:
                return None
            whole //= 10**decimals
        short, long = f"{small}{steps[k]}", f"{f.grouped(whole, sep) if sep else whole}{unit}"
        return (short, long) if back else (long, short)

    return make


# --- languages, also made-up ones -------------------------------------------------------------------------------------------


def plural(s: str) -> str:
    """Return an English plural."""
    if re.search(r"(s|x|z|ch|sh)$", s):
        return s + "es"
    return s[:-1] + "ies" if re.search(r"[^aeiou]y$", s) else s + "s"


def past(s: str) -> str:
    """Return a regular English past."""
    if s.endswith("e"):
        return s + "d"
    return s[:-1] + "ied" if re.search(r"[^aeiou]y$", s) else s + "ed"


def going(s: str) -> str:
    """Return an English present participle."""
    return s[:-1] + "ing" if re.search(r"[^aeiouy]e$", s) else s + "ing"


def morphology(r: Random) -> Maker:
    """Forms of words: of a made-up language with its own rules, or of English."""
    x = r.random()
    vowels, consonants = "aeiouäöü"[: pick(r, (3, 5, 5, 8))], some_of(r, "bdfghklmnprstvzjwxq", 6, 10)
    tail = r.random() < 0.5

    def stem(q: Random) -> str:
        found = "".join([pick(q, consonants) + pick(q, vowels) for _ in range(between(q, 1, 3))])
        return found + pick(q, consonants) if tail and q.random() < 0.7 else found

    speak = stem if r.random() < 0.7 else w.plain
    affix = "".join([pick(r, consonants) + pick(r, vowels) for _ in range(between(r, 1, 2))])
    if x < 0.14:
        how: Text = pick(r, (plural, plural, past, going, lambda s: f"{'an' if s[0] in 'aeiou' else 'a'} {s}"))
        speak = w.plain
    elif x < 0.26:
        how = pick(r, (lambda s: s + affix, lambda s: affix + s, lambda s: affix[:2] + s + affix[-1]))
    elif x < 0.44:  # harmony: the suffix has the kind of the last vowel
        front, back = pick(r, (("e", "a"), ("ü", "u"), ("ö", "o"), ("i", "u"), ("e", "o")))
        c, end = pick(r, consonants), pick(r, ("", "", *consonants[:2]))

        def how(s: str) -> str | None:
            last = next((v for v in reversed(s) if v in "aeiouäöü"), None)
            return None if last is None else s + c + (front if last in "eiäöü" else back) + end
    elif x < 0.58:
        how = pick(
            r,
            (
                lambda s: s[:2] + s, lambda s: s + s, lambda s: f"{s}-{s}", lambda s: s + s[-2:], lambda s: s[0] + "e" + s,
                lambda s: s[:2] + affix[:2] + s[2:],
            ),
        )  # fmt: skip
    elif x < 0.72:
        one, two = pick(r, vowels), pick(r, "aeiouy")
        if r.random() < 0.5:
            how = lambda s: s.replace(one, two)
        else:
            how = lambda s: s[: s.rfind(one)] + two + s[s.rfind(one) + 1 :] if one in s else s + affix
    elif x < 0.86:  # the affix depends on whether the word ends in a vowel
        c = pick(r, consonants)
        how = lambda s: s + (c + affix[1:] if s[-1] in "aeiouäöü" else affix[1:])
    else:
        voiced = dict(zip("ptkfs", "bdgvz", strict=True))
        how = lambda s: s[:-1] + voiced.get(s[-1], s[-1]) + affix[1:]
    tagged, gloss = r.random() < 0.2, pick(r, ("{} PL", "{}+PL", "{} (pl.)", "{} → 2", "2 {}", "{} PST"))

    def make(q: Random) -> Pair | None:
        s = speak(q)
        t = how(s)
        return None if t is None or t == "" else (gloss.format(s) if tagged else s, t)

    return make


GREEK = dict(zip("αβγδεζηθικλμνξοπρστυφχψως",
                 "a b g d e z i th i k l m n x o p r s t y f ch ps o s".split(), strict=True))  # fmt: skip
CYRILLIC = dict(zip("абвгдежзийклмнопрстуфхцчшщъыьэюя",
                    "a b v g d e zh z i y k l m n o p r s t u f kh ts ch sh shch _ y ' e yu ya".split(), strict=True))  # fmt: skip
CYRILLIC["ъ"] = ""
KANA = dict(zip("アイウエオカキクケコサシスセソタチツテトナニヌネノハヒフヘホマミムメモ",
                "a i u e o ka ki ku ke ko sa shi su se so ta chi tsu te to na ni nu ne no ha hi fu he ho ma mi mu me mo".split(),
                strict=True))  # fmt: skip
LEET = {"a": "4", "e": "3", "i": "1", "o": "0", "s": "5", "t": "7"}
UMLAUTS = {"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss", "å": "aa", "ø": "oe", "æ": "ae"}


def letters(r: Random) -> Maker:
    """Letters for letters: known transliterations, or a table that the examples show; also shifts of the alphabet."""
    x = r.random()
    if x < 0.4:
        table = pick(r, (GREEK, CYRILLIC, CYRILLIC, KANA))
        keys = [*table]
        case = table is not KANA and r.random() < 0.5
        back = table is KANA and r.random() < 0.4

        def make(q: Random) -> Pair | None:
            some = [pick(q, keys) for _ in range(between(q, 2, 7))]
            a, b = "".join(some), "".join([table[c] for c in some])
            if case:
                a, b = a.capitalize(), b.capitalize()
            return (b, a) if back else (a, b)

        return make
    speak = w.speech(r) if x < 0.6 else w.plain
    if x < 0.5:
        return lambda q: (
            s := speak(q) + pick(q, ("ä", "é", "ö", "ß", "ñ", "ç", "å", "ü")) + w.invented(q),
            without_accents(s),
        )
    if x < 0.56:
        return lambda q: (
            s := w.invented(q) + pick(q, [*UMLAUTS]) + w.invented(q),
            "".join([UMLAUTS.get(c, c) for c in s]),
        )
    if x < 0.68:
        few = "".join(dict.fromkeys(some_of(r, w.SMALL, 3, 6)))
        other = pick(r, (w.SMALL, w.DIGITS, w.LETTERS, pick(r, w.ALPHABETS)))
        table = {c: pick(r, other) for c in few}

        def shown(q: Random) -> Pair | None:
            s = some_of(q, few, 2, 8)
            return s, "".join([table[c] for c in s])

        NEEDS[shown] = lambda pair: set(pair[0])
        return shown
    if x < 0.76:
        return lambda q: (s := speak(q), "".join([LEET.get(c, c) for c in s]))
    k = pick(r, (1, 1, 1, 2, 3, 13, -1))
    if x < 0.9:
        return lambda q: (
            s := speak(q),
            "".join([chr((ord(c) - 97 + k) % 26 + 97) if "a" <= c <= "z" else c for c in s]),
        )
    sep = pick(r, ("-", " ", ", ", "."))
    return lambda q: (s := some_of(q, w.SMALL, 1, 5), sep.join([str(ord(c) - 96) for c in s]))


FAMILIES: tuple[tuple[float, str, Callable[[Random], Maker]], ...] = (
    (0.44, "fields", fields),
    (0.25, "text", text),
    (0.09, "condition", condition),
    (0.06, "lookup", lookup),
    (0.055, "linear", linear),
    (0.03, "arithmetic", lambda r: expression(r) if r.random() < 0.3 else arithmetic(r)),
    (0.015, "scales", scales),
    (0.03, "morphology", morphology),
    (0.03, "letters", letters),
)
NAMES: Sequence[str] = [name for _, name, _ in FAMILIES]
