"""The variation of sentences with which the translators that ship were trained.

Pairs are joined, written in capitals, and given typing mistakes, other signs, numbers, names, addresses and emoji:

    from functools import partial
    import seq2see
    from shipped.sentences import vary

    seq2see.fit("mine.tsv", vary=partial(vary, joined=0.08, carried=0.1, recased=0.06))
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random

Pair = tuple[str, str]

MOST_JOINED = 6  # pairs in one text
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


def join(pairs: Sequence[Pair], random: Random) -> Pair:
    """Join some pairs into one text."""
    chosen = [random.choice(pairs) for _ in range(random.randint(2, MOST_JOINED))]
    return " ".join(source for source, _ in chosen), " ".join(target for _, target in chosen)


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
    places = [place for place, word in enumerate(words) if len(word) > 3 and word.isalpha() and word.islower()]
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
                    text[:at] + new + text[at + len(old) :] for text, (at,) in ((source, here), (target, there))
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
        random.choice(ONSETS) + random.choice(VOWELS) + random.choice(CODAS) for _ in range(random.randint(1, 3))
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
        return (f"{source[: ends[0].start()]} {thing}{ends[0][0]}", f"{target[: ends[1].start()]} {thing}{ends[1][0]}")
    if way < 0.85:
        return f"{source} {thing}", f"{target} {thing}"
    mark = random.choice((" ", ": ", " - "))
    return f"{thing}{mark}{source}", f"{thing}{mark}{target}"


CHANGES: dict[str, Callable[[Pair, Random], Pair]] = {
    "carried": carried,
    "mistyped": mistyped,
    "retyped": retyped,
    "repunctuated": repunctuated,
    "recased": recased,
}


def vary(
    pairs: Sequence[Pair],
    random: Random,
    joined: float = 0.08,
    carried: float = 0.1,
    mistyped: float = 0.08,
    retyped: float = 0.05,
    repunctuated: float = 0.04,
    recased: float = 0.06,
) -> list[Pair]:
    """Return the pairs of an epoch: a share of them changed in each way, and ``joined`` texts more per pair.

    The shares are those of `en-fr`, unless others are given.
    """
    shares = dict(zip(CHANGES, (carried, mistyped, retyped, repunctuated, recased), strict=True))
    found = []
    for pair in pairs:
        for name, share in shares.items():
            if random.random() < share:
                pair = CHANGES[name](pair, random)
        found.append(pair)
    return found + [join(pairs, random) for _ in range(int(joined * len(pairs)))]
