"""A guess at what a text is written in: its script, and for Latin letters its language, by frequent small words."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import cache

#: Words that are frequent in one language and rare in the others.
SMALL_WORDS = {
    "English": "the and is are was were you he she it's they we this that of to have not with for do what my",
    "French": "le la les est et une des du je tu il elle nous vous ne pas que qui dans pour sur avec c'est j'ai ce cette",
    "German": "der die das und ist nicht ein eine ich du er sie wir ihr zu den dem mit auf für von im auch sich",
    "Spanish": "el los las y es una del yo tú ella nosotros que en por con para su al lo como más pero está muy",
    "Italian": "il gli di è e un una che non per con sono io lui lei noi del della questo questa ho ha",
    "Dutch": "de het een en is van ik je hij zij wij niet dat met op voor zijn er aan ook heeft",
    "Portuguese": "o os as é e um uma não que em por com para eu ele ela nós você do da no na se",
}
LANGUAGES_OF = {  # the languages that have each of these words
    word: [language for language, words in SMALL_WORDS.items() if word in words.split()]
    for words in SMALL_WORDS.values()
    for word in words.split()
}
SCRIPTS = (
    "LATIN", "CYRILLIC", "GREEK", "ARABIC", "HEBREW", "CJK", "HIRAGANA", "KATAKANA", "HANGUL", "DEVANAGARI", "THAI",
)  # fmt: skip


@cache
def _script(character: str) -> str:
    """Return the script of one character; empty for a sign or another script."""
    if not character.isalnum():
        return ""
    if character.isdigit():
        return "digits"
    name = unicodedata.name(character, "").split(" ")[0].split("-")[0]
    return name if name in SCRIPTS else ""


def script_of(text: str) -> str:
    """Return the script of most characters: a Unicode script, digits, or empty."""
    counts = Counter(map(_script, text[:200]))
    del counts[""]
    return max((count, name) for name, count in counts.items())[1] if counts else ""


def guess(text: str) -> str:
    """Guess the language of a text by its small words, else its script; empty if neither is clear."""
    script = script_of(text)
    if script != "LATIN":
        return script
    hits: Counter[str] = Counter()
    words = _words(text)
    if sum(len(word) == 1 for word in words) > len(words) / 2:
        return script  # phones: a single letter, such as e, is a word only among longer ones
    for word in words:
        hits.update(LANGUAGES_OF.get(word, ()))
    best = hits.most_common(2)
    return best[0][0] if best and (len(best) == 1 or best[0][1] > best[1][1]) else script


def _words(text: str) -> list[str]:
    """Return the words of a text in small letters, without the signs around them."""
    return [word.strip('.,;:!?"«»()…') for word in text.lower().replace("’", "'").split()]


def guess_all(texts: Iterable[str]) -> str:
    """Guess the language of most texts; a language that a fifth of them show has priority over the script."""
    counts = Counter(guess(text) for text in texts)
    total = counts.total()
    languages = Counter({name: count for name, count in counts.items() if name in SMALL_WORDS})
    if languages and languages.total() > 0.2 * total:
        name, count = languages.most_common(1)[0]
        if count > 0.6 * languages.total():
            return name
    return counts.most_common(1)[0][0] if counts else ""


def swapped(pair: tuple[str, str], languages: tuple[str, str]) -> bool:
    """Whether a pair's sides seem to be swapped, in a corpus with these ``languages``."""
    one, other = languages
    if one == other:
        return False
    # Nearly all pairs end here, which is much faster than a guess.
    if other in SMALL_WORDS and not any(other in LANGUAGES_OF.get(word, ()) for word in _words(pair[0])):
        return False
    return guess(pair[0]) == other and guess(pair[1]) == one


NAMED = {
    code: language
    for language, codes in {
        "English": "en eng english", "French": "fr fra fre french", "German": "de deu ger german",
        "Spanish": "es spa spanish", "Italian": "it ita italian", "Dutch": "nl nld dutch",
        "Portuguese": "pt por portuguese",
        "CYRILLIC": "ru rus russian",
    }.items()
    for code in codes.split()
}  # fmt: skip
