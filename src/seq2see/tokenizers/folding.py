"""What a model reads in the place of characters that it does not know: similar known ones, or slots.

A slot is a token that stands for any unknown character or symbol of a text. Training puts symbols of the data into
slots at random (``seq2see.data.variation.in_slots``), so that the model learns to copy them; an answer gets its symbols
back.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping

from seq2see.tokenizers.tokenizer import Tokenizer, decomposed, fold

#: Characters of a private plane that no text has.
SLOTS = tuple(chr(0xF0000 + number) for number in range(8))

#: Signs that mean the same, as keyboards and word processors write them.
SAME = {
    **dict.fromkeys("’‘‛`´ʼ′", "'"),
    **dict.fromkeys("“”„‟«»″", '"'),
    **dict.fromkeys("‐‑‒–—―−", "-"),
    "…": "...",
    "'": "’",
    '"': "”",
    "-": "–",
}


def fold_unknown(tokenizer: Tokenizer, text: str) -> str:
    """Replace characters or symbols that are not in a vocabulary by similar ones; the others stay."""
    known = tokenizer.letters
    if known is None or tokenizer.unknown is not None or known.keys() >= set(tokenizer.cut(text)):
        return text
    parts = []
    for part in tokenizer.cut(text):
        if part not in known:
            part = next((one for one in _others(part) if known.keys() >= set(tokenizer.cut(one))), part)
        parts.append(part)
    text = (tokenizer.separator or "").join(parts)
    return fold(text) if tokenizer.cut is decomposed else text


def slots_of(tokenizer: Tokenizer) -> tuple[str, ...]:
    """Return the slots in a vocabulary."""
    known = tokenizer.letters
    return () if known is None else tuple(slot for slot in SLOTS if slot in known)


def in_slots(source: Tokenizer, target: Tokenizer, text: str) -> tuple[str, dict[str, str]]:
    """Put each unknown symbol of a text into a slot that both vocabularies have; return what each slot holds.

    A text with more unknown symbols than there are slots stays as it is.
    """
    known = source.letters
    free = [slot for slot in slots_of(source) if slot in slots_of(target) and slot not in text]
    if known is None or not free or known.keys() >= set(source.cut(text)):
        return text, {}
    parts = list(source.cut(text))
    unknown = list(dict.fromkeys(part for part in parts if part not in known))
    if len(unknown) > len(free):
        return text, {}
    slots = dict(zip(unknown, free, strict=False))
    text = (source.separator or "").join(slots.get(part, part) for part in parts)
    return text, {slot: part for part, slot in slots.items()}


def out_of_slots(answer: str, held: Mapping[str, str]) -> str:
    """Put the symbols back into an answer; a slot that holds nothing is left out."""
    if answer.isascii() or not any(slot in answer for slot in SLOTS):
        return answer
    return fold("".join(held.get(one, "" if one in SLOTS else one) for one in answer))


def _others(part: str) -> Iterator[str]:
    """Yield other ways to write a character or a symbol, the nearest first."""
    compatible = unicodedata.normalize("NFKC", part)
    for one in (part, compatible, without_accents(compatible), SAME.get(part, part)):
        yield from (one, one.lower(), one.upper(), one.casefold())


def without_accents(text: str) -> str:
    """Return a text without accents and other marks."""
    apart = unicodedata.normalize("NFKD", text)
    return unicodedata.normalize("NFC", "".join(one for one in apart if not unicodedata.combining(one)))
