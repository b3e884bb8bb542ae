"""The data of a translator: sources mixed by their shares, without a sentence of any validation or test set.

    python -m benchmarks.mixture en-fr OUT --data DATA [--share SOURCE=X …] [--technical 0.1667]

The folder of the data has ``tatoeba/eng-fra.tsv.xz``, ``web/en-fr.tsv.xz`` and ``general/en-fr.tsv.xz`` (a header, then
the columns en, fr and, in the last two, source), and ``dev/NAME.en-fr.tsv.xz`` (two columns, no header); German alike.
The source ``phrases`` is ``phrases.tsv`` beside this module: greetings, polite requests, signs, idioms.
"""

from __future__ import annotations

import argparse
import lzma
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from seq2see.data.pairs import split
from seq2see.errors import UserError, suggest
from seq2see.files import write_atomically
from seq2see.tokenizers.tokenizer import fold

Pair = tuple[str, str]

#: Each translator with the name of its files, that of Tatoeba's, and whether it translates into English.
TRANSLATORS = {
    "en-fr": ("en-fr", "eng-fra", False),
    "en-de": ("en-de", "eng-deu", False),
    "fr-en": ("en-fr", "eng-fra", True),
}
#: News to learn from at the end. No sentence of the other files of dev/ is learned.
NEWS = ("news-test2008", "newssyscomb2009", "newstest2009", "newstest2010", "newstest2011", "newstest2012")
VALIDATION = {"news": "newstest2013", "flores": "flores-dev"}
TECHNICAL = frozenset({
    "android_settings", "debian_descriptions", "debian_mo", "debian_web", "decidim_ui", "discourse_ui", "docs",
    "firefox_ui", "kubernetes", "loomio_ui", "manpages", "mdn", "openfoodfacts", "php_manual",
})  # fmt: skip
PHRASES = Path(__file__).with_name("phrases.tsv")  # columns en, fr, de
SHARES = {"tatoeba": 2.0, "phrases": 10.0}  # of a source's pairs; 1 for the others
MOST_TECHNICAL = 1 / 6  # of the mixture
#: Europarl's note of the language of a speech.
LANGUAGE = re.compile(r"\((?:BG|CS|DA|DE|EL|EN|ES|ET|FI|FR|GA|HU|IT|LT|LV|MT|NL|PL|PT|RO|SK|SL|SV)\)")
TOGETHER = 500  # pairs of each set in the validation of a training


@dataclass
class Count:
    """What became of the pairs of a source."""

    read: int = 0
    held: int = 0  # left out: a side is in a validation or test set
    marked: int = 0  # left out: one side alone names the language of the speech, such as (EN)
    double: int = 0  # left out: the pair was there before
    taken: int = 0  # lines of the mixture


@dataclass
class Mixture:
    """The pairs of a translator, by file, and how many each source gave."""

    files: dict[str, list[Pair]] = field(default_factory=dict)
    counts: dict[str, Count] = field(default_factory=dict)

    def __str__(self) -> str:
        """Tables of the sources and of the files."""
        lines = [f"{'source':<22}{'read':>10}{'held out':>10}{'marked':>10}{'double':>10}{'taken':>10}"]
        lines += [
            f"{source:<22}{count.read:>10,}{count.held:>10,}{count.marked:>10,}{count.double:>10,}{count.taken:>10,}"
            for source, count in sorted(self.counts.items(), key=lambda one: -one[1].taken)
        ]
        return "\n".join([*lines, *(f"{name}.tsv has {len(rows):,} pairs." for name, rows in self.files.items())])


def key(text: str) -> str:
    """Return what two spellings of a sentence have in common: its words, in small letters."""
    return " ".join(re.findall(r"\w+", text.casefold())) or text


def rows_of(path: Path, header: bool) -> Iterator[list[str]]:
    """Yield the cells of each row."""
    try:
        unpack = lzma.open if path.suffix == ".xz" else open
        with unpack(path, "rt", encoding="utf-8", newline="\n") as file:
            if header:
                next(file)
            for line in file:
                yield [fold(cell) for cell in line.rstrip("\r\n").split("\t")]
    except FileNotFoundError:
        raise UserError(
            f"{path.name} is missing in {path.parent}: the data of a translator were expected there."
        ) from None


def mix(
    name: str, data: Path, shares: Mapping[str, float] | None = None, technical: float = MOST_TECHNICAL, seed: int = 1
) -> Mixture:
    """Mix the sources of a translator.

    A share of 0.5 takes half of a source's pairs, 2 takes each of them twice, 0 leaves the source out. The technical
    sources together are cut to a part of the mixture.
    """
    both, tatoeba, reverse = TRANSLATORS[name]
    everyday = [(row[0], row[1]) for row in rows_of(data / "tatoeba" / f"{tatoeba}.tsv.xz", True)]
    parts = split(everyday)  # as `seq2see train` splits them
    test, validation = parts.test, parts.validation
    dev = {
        path.name.removesuffix(f".{both}.tsv.xz"): [(row[0], row[1]) for row in rows_of(path, False)]
        for path in sorted((data / "dev").glob(f"*.{both}.tsv.xz"))
    }
    if missing := {*VALIDATION.values(), *NEWS} - dev.keys():
        raise UserError(f"{data / 'dev'} lacks {', '.join(sorted(missing))} of {both}.")
    kept = [test, validation, *(pairs for year, pairs in dev.items() if year not in NEWS)]
    held = tuple({key(pair[side]) for pairs in kept for pair in pairs} for side in (0, 1))

    counts: dict[str, Count] = {}
    taken: dict[str, list[Pair]] = {}
    seen: set[Pair] = set()

    def take(source: str, pair: Pair) -> None:
        count = counts.setdefault(source, Count())
        count.read += 1
        if key(pair[0]) in held[0] or key(pair[1]) in held[1]:
            count.held += 1
        elif bool(LANGUAGE.search(pair[0])) != bool(LANGUAGE.search(pair[1])):
            count.marked += 1
        elif pair in seen:
            count.double += 1
        else:
            seen.add(pair)
            taken.setdefault(source, []).append(pair)

    # First: a phrase that another source has too gets the share of the phrases.
    for english, french, german in rows_of(PHRASES, True):
        take("phrases", (english, german if both == "en-de" else french))
    for pair in parts.train:
        take("tatoeba", pair)
    for folder in ("web", "general"):
        for first, second, source in rows_of(data / folder / f"{both}.tsv.xz", True):
            take(source, (first, second))
    shares = SHARES | dict(shares or {})
    for source in shares:
        if source not in taken:
            raise UserError(f"There is no source {source!r} for {name}. {suggest(source, [*taken])}")
    for source, pairs in taken.items():
        Random(f"{seed} {source}").shuffle(pairs)
        times, rest = divmod(shares.get(source, 1.0), 1)
        taken[source] = pairs * int(times) + pairs[: round(rest * len(pairs))]
    cut = {source for source in taken if source in TECHNICAL}
    others = sum(len(pairs) for source, pairs in taken.items() if source not in cut)
    there = sum(len(taken[source]) for source in cut)
    if there > (most := others * technical / (1 - technical)):
        for source in cut:
            taken[source] = taken[source][: int(len(taken[source]) * most / there)]
    for source, pairs in taken.items():
        counts[source].taken = len(pairs)
    train = [pair for pairs in taken.values() for pair in pairs]

    seen.clear()
    for year in NEWS:
        for pair in dev[year]:
            take(year, pair)
    news = [pair for year in NEWS for pair in taken[year]]
    for year in NEWS:
        counts[year].taken = len(taken[year])
    sets = {**{which: dev[year] for which, year in VALIDATION.items()}, "tatoeba": validation}
    some = [Random(seed).sample(pairs, min(TOGETHER, len(pairs))) for pairs in sets.values()]
    files = {
        "train": train,
        "news": news,
        "validation": [pair for part in some for pair in part],
        **{f"validation-{which}": pairs for which, pairs in sets.items()},
        "test": test,
    }
    for part in ("train", "news"):
        Random(seed).shuffle(files[part])
    if reverse:
        files = {part: [(second, first) for first, second in pairs] for part, pairs in files.items()}
    return Mixture(files, counts)


def write(mixture: Mixture, out: Path) -> None:
    """Write a file for each part of a mixture."""
    for part, pairs in mixture.files.items():
        text = "".join(f"{first}\t{second}\n" for first, second in pairs)
        write_atomically(out / f"{part}.tsv", text.encode())


def shares_in(texts: Iterable[str]) -> dict[str, float]:
    """Read shares such as ``tatoeba=2``."""
    found = {}
    for text in texts:
        source, _, share = text.partition("=")
        if not re.fullmatch(r"\d+(\.\d+)?|\.\d+", share):
            raise UserError(f"--share is {text!r}: a source and its share were expected, such as tatoeba=2.")
        found[source] = float(share)
    return found


def main() -> None:
    """Write the files of one translator."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=TRANSLATORS)
    parser.add_argument("out", type=Path, help="the folder to write to")
    parser.add_argument("--data", type=Path, required=True, help="the folder with tatoeba, web, general and dev")
    parser.add_argument(
        "--share", action="append", default=[], metavar="SOURCE=X",
        help="0.5 takes half of a source's pairs, 2 each of them twice, 0 none; default: tatoeba=2, phrases=10, else 1",
    )  # fmt: skip
    parser.add_argument(
        "--technical", type=float, default=MOST_TECHNICAL,
        help="the largest part of the mixture that is technical; default: a sixth",
    )  # fmt: skip
    given = parser.parse_args()
    try:
        made = mix(given.name, given.data, shares_in(given.share), given.technical)
        write(made, given.out)
    except UserError as error:
        sys.exit(f"mixture: {error}")
    print(made)


if __name__ == "__main__":
    main()
