"""Data augmentation: pairs are joined, written in capitals, given typos, new numbers, new names and new stems.

It depends only on the seed and the epoch, so a resumed run sees what an uninterrupted one sees.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from random import Random

import numpy as np

from seq2see.config import TrainingConfig
from seq2see.data.batching import Ragged
from seq2see.errors import InputError
from seq2see.tokenizers.tokenizer import Tokenizer

Pair = tuple[str, str]

MOST_JOINED = 6  # pairs in one text
KEPT = 3  # last letters of a copied stretch that no other replaces
TRIES = 4  # numbers and names of a pair that may be replaced

NUMBER = re.compile(r"(?<![\w.,])\d+(?:[.,:]\d+)*(?![\w])")
NAME = re.compile(r"(?<![\w'’-])[^\W\d_a-zß-öø-ÿ][^\W\d_]{2,}(?![\w-])")
LAST_MARKS = re.compile(r"\s?(?<![.!?…])[.!?…]++$")

FIRST_NAMES = (
    "Ada Adam Agnes Ahmed Aiko Alan Alice Amina Ana Andrei Anna Anton Aisha Bea Ben Boris Bruno Carla Carlos Chen Chiara "
    "Chloe Clara Dan Daniel David Diego Dina Dmitri Elena Eli Elif Emil Emma Erik Esther Eva Fatima Felix Finn Fiona Georg "
    "Grace Hana Hans Hassan Helen Hugo Ian Ibrahim Igor Ines Ingrid Iris Ivan Jack Jan Jin John Jonas Jorge Julia Kai Karim "
    "Kate Kenji Klaus Kofi Lars Laura Lea Leo Li Lina Linh Lisa Luca Lucy Luis Maja Marco Maria Marta Max Maya Mehmet Mia "
    "Mila Mina Mohamed Nadia Nam Nina Noah Nora Nuria Olga Oliver Omar Oscar Otto Pablo Paul Pedro Petra Priya Rafael Rana "
    "Ravi Rita Rosa Ruth Samir Sara Sergei Sofia Sven Tariq Theo Thomas Tim Vera Viktor Wei Yara Yuki Yusuf Zoe"
).split()
SURNAMES = (
    "Abe Adler Ali Bauer Becker Bell Berg Brown Castro Chang Clark Costa Cruz Dahl Diaz Duarte Evans Fischer Ford Garcia "
    "Gomez Gray Haas Hall Hansen Hill Ito Jansen Jones Kaya Keller Khan Kim King Klein Kovacs Kumar Lee Lopez Maier Mann "
    "Martin Meyer Mori Moreau Nagy Nguyen Novak Okafor Olsen Park Patel Perez Petrov Popescu Reyes Ricci Romano Rossi Ruiz "
    "Sato Schmidt Silva Singh Smith Sokolov Suzuki Tanaka Torres Tran Vogel Wagner Walker Wang Weber White Wilson Wolf Wong "
    "Wright Yamada Yilmaz Young Zhang"
).split()
PLACES = (
    "Accra Adelaide Ankara Austin Bergen Bilbao Bogota Bristol Bucharest Calgary Cardiff Cork Dakar Dallas Denver Dublin "
    "Durban Florida Glasgow Graz Haifa Hanoi Havana Jakarta Karachi Kigali Kyoto Lagos Leeds Leipzig Lima Lyon Madrid Malmo "
    "Manila Miami Milan Mumbai Nairobi Nevada Osaka Oslo Ottawa Perth Porto Prague Quito Rabat Riga Rio Rotterdam Salford "
    "Santiago Seattle Seoul Sofia Split Sydney Tampere Texas Toledo Toronto Tulsa Tunis Turin Utrecht Valencia York Zagreb"
).split()
ONSETS = "b br c ch cl d dr f fr g gl h j k kr l m n p pl qu r s sh st t th tr v w z".split()
VOWELS = "a e i o u ai ea io ou".split()
CODAS = "n r s l t k m x nd rt ck ll".split() + [""] * 6
DOMAINS = "com org net io dev eu co.uk info".split()
EMOJI = "😀 😂 😅 😉 😊 😍 😎 😢 😭 😡 👍 👎 🙏 👏 💪 🎉 🎂 🔥 ❤️ 💔 ⭐ ☀️ 🌧️ 🚀 🚗 ✈️ 🏠 📚 📧 📅 ☕ 🍕 🐶 🐱 ✅ ❌ ⚠️ 🤔 🙂 🇫🇷".split()
PLACEHOLDERS = "{name} {0} {count} %s %d %1$s {{user}} $NAME <0> <1> [LINK] __X__ &amp;".split()
CURRENCIES = "€ $ £ EUR USD CHF".split()

#: An apostrophe within a word.
APOSTROPHE = re.compile(r"(?<=\w)['’](?=\w)")

#: The signs of the corpus, and what other writers use instead.
SIGNS: dict[str, Sequence[str]] = {
    "'": "’‘`´", "’": "'", '"': "“”„«»″", "«": '"“', "»": '"”', "“": '"«', "”": '"»', "-": "–‐", "–": "-—", "—": "–-", "…": ["..."],
}  # fmt: skip


def joined(pairs: list[Pair], random: Random) -> Pair:
    """Join some pairs into one text."""
    chosen = [random.choice(pairs) for _ in range(random.randint(2, MOST_JOINED))]
    return " ".join(source for source, _ in chosen), " ".join(target for _, target in chosen)


def chained(
    sides: tuple[Ragged, Ragged], count: int, longest: int, drawn: np.random.Generator
) -> tuple[Ragged, Ragged]:
    """Join two random pairs end to end, ``count`` times; results longer than ``longest`` are left out.

    The end token of the first pair stays between them on both sides, so that the second begins like a new
    text. So each word occurs at many positions and with many unrelated neighbours.
    """
    rows = drawn.integers(0, len(sides[0].lengths), (2, count))
    lengths = np.stack([side.lengths[rows].sum(0) - 1 for side in sides])  # without the start of the second
    rows = rows[:, lengths.max(0) <= longest]
    (one, one_target), (other, other_target) = ([side.taken(which) for side in sides] for which in rows)
    if other_target.places is not None:
        moved = np.repeat(one.lengths - 1, other_target.lengths) * (other_target.places >= 0)
        other_target.places = other_target.places + moved
    return _end_to_end(one, other), _end_to_end(one_target, other_target)


def _end_to_end(one: Ragged, other: Ragged) -> Ragged:
    """Return each row of one followed by the same row of the other, without its first token."""
    count = len(one.lengths)
    both = one.and_then(other).taken(
        np.arange(2 * count).reshape(2, count).T.ravel()
    )  # one, other, one, other, …
    kept = np.ones(len(both.values), dtype=bool)
    kept[both.offsets[1:-1:2]] = False
    places = None if both.places is None else both.places[kept]
    return Ragged(both.values[kept], both.offsets[::2] - np.arange(count + 1), places)


def invented(sides: tuple[Ragged, Ragged], share: float, drawn: np.random.Generator) -> tuple[Ragged, Ragged]:
    """Replace the copied letters of some pairs by those of other pairs, on both sides alike.

    So the model learns to copy any stem, not only those of the data (Anastasopoulos and Neubig, 2019). The first
    letter of a copied stretch and its last ``KEPT`` letters stay, because the endings depend on them.
    """
    source, target = sides
    assert target.places is not None
    # whether the next token is copied from the next one of the source
    goes_on = np.zeros(len(target.values) + KEPT, dtype=bool)
    goes_on[: -KEPT - 1] = (target.places[:-1] >= 0) & (target.places[1:] == target.places[:-1] + 1)
    inside = np.zeros(len(target.values), dtype=bool)
    inside[1:] = np.all(np.lib.stride_tricks.sliding_window_view(goes_on[:-1], KEPT + 1), axis=-1)
    rows = np.repeat(np.arange(len(target.lengths)), target.lengths)
    pool = np.flatnonzero(inside)
    chosen = np.flatnonzero(inside & (drawn.random(len(target.lengths)) < share)[rows])
    if not len(chosen):
        return sides
    # Letters in a row come from letters in a row, so that the new stem can be pronounced.
    first = np.concatenate([[0], 1 + np.flatnonzero(np.diff(chosen) > 1)])
    counts = np.diff([*first, len(chosen)])
    within = np.arange(len(chosen)) - np.repeat(first, counts)
    taken = pool[(np.repeat(drawn.integers(0, len(pool), len(first)), counts) + within) % len(pool)]
    at = source.offsets[rows] + target.places  # where each copied token is read
    read, written = source.values.copy(), target.values.copy()
    read[at[chosen]], written[chosen] = source.values[at[taken]], target.values[taken]
    return Ragged(read, source.offsets), Ragged(written, target.offsets, target.places)


def recased(pair: Pair, random: Random) -> Pair:
    """Write both sides in capitals, or both in small letters."""
    source, target = pair
    return (source.upper(), target.upper()) if random.random() < 0.6 else (source.lower(), target.lower())


def repunctuated(pair: Pair, random: Random) -> Pair:
    """Leave out the last mark of both sides, or write it twice or three times."""
    source, target = pair
    ends = LAST_MARKS.search(source), LAST_MARKS.search(target)
    if not ends[0] or not ends[1]:
        return pair
    if random.random() < 0.6:
        return source[: ends[0].start()], target[: ends[1].start()]
    more = random.randint(1, 2)
    return source + source[-1] * more, target + target[-1] * more


def retyped(pair: Pair, random: Random) -> Pair:
    """Replace the quotes, apostrophes and dashes of the source by other common ones; the target does not change."""
    table = {sign: random.choice(others) for sign, others in SIGNS.items()}
    return "".join(table.get(character, character) for character in pair[0]), pair[1]


def mistyped(pair: Pair, random: Random) -> Pair:
    """Make one or two typing mistakes in small words of the source, or write it as in a chat.

    Of the sources with apostrophes 40 % lose all of them (dont, cest), and half of these are in small letters.
    """
    if APOSTROPHE.search(pair[0]) and random.random() < 0.4:
        source = APOSTROPHE.sub("", pair[0])
        return source.lower() if random.random() < 0.5 else source, pair[1]
    words = pair[0].split(" ")
    places = [
        place for place, word in enumerate(words) if len(word) > 3 and word.isalpha() and word.islower()
    ]
    for place in random.sample(places, min(len(places), random.choice((1, 1, 1, 2)))):
        word, at = words[place], random.randrange(1, len(words[place]) - 1)
        words[place] = random.choice(
            (
                word[:at] + word[at + 1] + word[at] + word[at + 2 :],  # two letters change places
                word[:at] + word[at + 1 :],  # one is missing
                word[:at] + word[at] + word[at:],  # one is doubled
                word[:at] + random.choice("abcdefghijklmnopqrstuvwxyz") + word[at + 1 :],  # one is replaced
            )
        )
    return " ".join(words), pair[1]


def carried(pair: Pair, random: Random) -> Pair:
    """Insert items that a translation must copy into both sides: other numbers and names, addresses, emoji, codes."""
    source, target = pair
    found = False
    for pattern, make in ((NUMBER, number_like), (NAME, lambda old, random: _name(random))):
        for old in dict.fromkeys(pattern.findall(source)[:TRIES]):
            here, there = _places(old, source), _places(old, target)
            if len(here) == len(there) == 1 and random.random() < 0.8:
                new, found = make(old, random), True
                source, target = (
                    text[:at] + new + text[at + len(old) :]
                    for text, (at,) in ((source, here), (target, there))
                )
    if not found or random.random() < 0.25:
        return _added((source, target), random)
    return source, target


def _places(word: str, text: str) -> list[int]:
    """Return the positions of a word in a text."""
    found, at = [], text.find(word)
    while at >= 0:
        around = text[at - 1 : at] + text[at + len(word) : at + len(word) + 1]
        if not any(sign.isalnum() for sign in around):
            found.append(at)
        at = text.find(word, at + 1)
    return found


def number_like(old: str, random: Random) -> str:
    """Return a random number of the same form; a plain one may have more or fewer digits."""
    if old.isdigit() and len(old) != 4 and random.random() < 0.5:
        return str(random.randrange(10 ** random.randint(1, 7)))
    first = str(random.randint(1, 9)) if old[0] != "0" else "0"
    return first + "".join(random.choice("0123456789") if sign.isdigit() else sign for sign in old[1:])


def _word(random: Random) -> str:
    """Invent a word that is in no vocabulary."""
    return "".join(
        random.choice(ONSETS) + random.choice(VOWELS) + random.choice(CODAS)
        for _ in range(random.randint(1, 3))
    )


def _name(random: Random) -> str:
    kind = random.randrange(6)
    if kind == 5:
        return _word(random).capitalize()
    name = random.choice((FIRST_NAMES, FIRST_NAMES, SURNAMES, PLACES, FIRST_NAMES)[kind])
    return f"{name} {random.choice(SURNAMES)}" if kind == 4 else name


def _thing(random: Random) -> str:
    """Invent an item that is the same in every language."""
    word, digits = _word(random), str(random.randrange(10 ** random.randint(1, 5)))
    kinds: tuple[Callable[[], str], ...] = (
        lambda: f"https://{random.choice(('www.', ''))}{word}.{random.choice(DOMAINS)}/{_word(random)}",
        lambda: f"{random.choice(('www.', ''))}{word}.{random.choice(DOMAINS)}",
        lambda: f"{random.choice(FIRST_NAMES).lower()}.{word}@{_word(random)}.{random.choice(DOMAINS)}",
        lambda: random.choice(EMOJI) * random.choice((1, 1, 1, 2, 3)),
        lambda: random.choice(EMOJI),
        lambda: random.choice(PLACEHOLDERS),
        lambda: f"#{word}",
        lambda: f"@{word}{digits}",
        lambda: f"{word.upper()[:3]}-{digits}",
        lambda: f"+{random.randint(1, 99)} {random.randrange(100, 999)} {random.randrange(10**3, 10**4)}",
        lambda: f"{random.randint(1, 28):02}/{random.randint(1, 12):02}/{random.randint(1900, 2099)}",
        lambda: f"{random.randint(1000, 2099)}-{random.randint(1, 12):02}-{random.randint(1, 28):02}",
        lambda: f"{random.randint(0, 23)}:{random.randint(0, 59):02}",
        lambda: f"{digits} {random.choice(CURRENCIES)}",
        lambda: f"v{random.randint(0, 9)}.{random.randint(0, 20)}.{random.randint(0, 9)}",
        lambda: f"{random.randint(1, 100)}%",
        lambda: f"({_name(random)})",
    )
    return random.choice(kinds)()


def _added(pair: Pair, random: Random) -> Pair:
    """Put an item after both sides, before their last punctuation marks, or in front."""
    (source, target), thing = pair, _thing(random)
    ends = LAST_MARKS.search(source), LAST_MARKS.search(target)
    way = random.random()
    if way < 0.4 and ends[0] and ends[1]:
        return (
            f"{source[: ends[0].start()]} {thing}{ends[0][0]}",
            f"{target[: ends[1].start()]} {thing}{ends[1][0]}",
        )
    if way < 0.85:
        return f"{source} {thing}", f"{target} {thing}"
    mark = random.choice((" ", ": ", " - "))
    return f"{thing}{mark}{source}", f"{thing}{mark}{target}"


#: The settings of how many pairs are changed, and the functions that change them.
CHANGES: dict[str, Callable[[Pair, Random], Pair]] = {
    "carried": carried,
    "mistyped": mistyped,
    "retyped": retyped,
    "repunctuated": repunctuated,
    "recased": recased,
}


def varies(settings: TrainingConfig) -> bool:
    """Whether any pair is to be changed."""
    return settings.joined + settings.chained + settings.invented > 0 or any(
        getattr(settings, name) > 0 for name in CHANGES
    )


def varied(
    sides: tuple[Ragged, Ragged],
    tokenizers: tuple[Tokenizer, Tokenizer],
    settings: TrainingConfig,
    number: int,
    longest: int,
) -> tuple[Ragged, Ragged]:
    """Return pairs of ids, some of them changed, followed by joined and chained ones.

    ``number`` is the number of the epoch, or of its part if it has several: each has other random changes. Only changed
    pairs are turned into text and back. A result longer than ``longest`` is dropped, and the pair stays as it was.
    """
    drawn = np.random.default_rng([settings.seed, number, 2])
    random = Random(int(drawn.integers(2**62)))
    count = len(sides[0].offsets) - 1
    shares = np.array([getattr(settings, name) for name in CHANGES])
    applied = drawn.random((count, len(CHANGES))) < shares  # (pairs, changes)
    rows = np.flatnonzero(applied.any(1))
    more = int(settings.joined * count)
    partners = drawn.integers(0, count, more * 2)  # a pool that is small enough to be read as text

    changed = []
    for pair, which in zip(_texts(sides, rows, tokenizers), applied[rows], strict=True):
        for change, wanted in zip(CHANGES.values(), which.tolist(), strict=True):
            if wanted and _known(new := change(pair, random), tokenizers):
                pair = new
        changed.append(pair)
    pool = _texts(sides, partners, tokenizers) if more else []
    changed += [joined(pool, random) for _ in range(more)]
    found = sides if not changed else _changed(sides, tokenizers, rows, changed, longest)
    if settings.invented:
        found = invented(found, settings.invented, drawn)
    if settings.chained:
        pairs = chained(found, int(settings.chained * count), longest, drawn)
        found = found[0].and_then(pairs[0]), found[1].and_then(pairs[1])
    return found


def _changed(
    sides: tuple[Ragged, Ragged],
    tokenizers: tuple[Tokenizer, Tokenizer],
    rows: np.ndarray,
    changed: list[Pair],
    longest: int,
) -> tuple[Ragged, Ragged]:
    """Replace some rows by texts, and append the remaining texts."""
    count = len(sides[0].lengths)
    source, target = (
        Ragged.of(tokenizer.encode_batch(texts))
        for tokenizer, texts in zip(tokenizers, zip(*changed, strict=True), strict=True)
    )
    fits = np.maximum(source.lengths, target.lengths) <= longest
    fits &= np.minimum(source.lengths, target.lengths) > 2  # only start and end are left
    kept = np.ones(count, dtype=bool)
    kept[rows[fits[: len(rows)]]] = False
    return (
        _put_together(sides[0], np.flatnonzero(kept), source, np.flatnonzero(fits)),
        _put_together(sides[1], np.flatnonzero(kept), target, np.flatnonzero(fits)),
    )


def _known(pair: Pair, tokenizers: tuple[Tokenizer, Tokenizer]) -> bool:
    """Whether the vocabularies have every character of a pair."""
    try:
        for tokenizer, text in zip(tokenizers, pair, strict=True):
            tokenizer.check(text)
    except InputError:
        return False
    return True


def _texts(
    sides: tuple[Ragged, Ragged], rows: np.ndarray, tokenizers: tuple[Tokenizer, Tokenizer]
) -> list[Pair]:
    source, target = (
        tokenizer.decode_batch(
            [side.values[side.offsets[row] : side.offsets[row + 1]].tolist() for row in rows]
        )
        for tokenizer, side in zip(tokenizers, sides, strict=True)
    )
    return list(zip(source, target, strict=True))


def _put_together(old: Ragged, old_rows: np.ndarray, new: Ragged, new_rows: np.ndarray) -> Ragged:
    """Return some rows of one array, then some of another."""
    return old.taken(old_rows).and_then(new.taken(new_rows))


#: Tokens before each, in the n-gram models that invent sources: the longest first, because their words are the most real.
#: Of 8,000 held-out words of CMUdict, 100,000 words by the orders 2, 3, 4 and 5 include 473, 667, 838 and 1,099.
ORDERS = (5, 4, 3, 2)
TRIED = 4  # words tried for each that is missing; a long order repeats the data


def made_up(sources: Ragged, count: int, random: Random) -> list[list[int]]:
    """Invent new sources that resemble these, by n-gram models; fewer if few are new.

    They include start and end. A teacher can answer them, so that a student learns more of what the teacher knows.
    """
    rows = [
        sources.values[first:last].tolist()
        for first, last in zip(sources.offsets[:-1], sources.offsets[1:], strict=True)
    ]
    longest, end = max(map(len, rows)), rows[0][-1]
    seen = {tuple(row) for row in rows}
    found: list[list[int]] = []
    for order in ORDERS:
        after: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for row in rows:
            for place in range(1, len(row)):
                after[tuple(row[max(0, place - order) : place])].append(row[place])
        for _ in range(TRIED * (count - len(found))):
            row = rows[0][:1]
            while row[-1] != end and len(row) < longest:
                row.append(random.choice(after[tuple(row[-order:])]))
            if row[-1] == end and len(row) > 2 and tuple(row) not in seen:
                seen.add(tuple(row))
                found.append(row)
                if len(found) == count:
                    return found
    return found
