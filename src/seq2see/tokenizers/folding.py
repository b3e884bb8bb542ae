"""Replaces characters that a model does not know by similar known ones: capitals, accents, compatibility forms."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

from seq2see.tokenizers.tokenizer import Tokenizer, decomposed, fold

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


def _others(part: str) -> Iterator[str]:
    """Yield other ways to write a character or a symbol, the nearest first."""
    compatible = unicodedata.normalize("NFKC", part)
    for one in (part, compatible, without_accents(compatible), SAME.get(part, part)):
        yield from (one, one.lower(), one.upper(), one.casefold())


def without_accents(text: str) -> str:
    """Return a text without accents and other marks."""
    apart = unicodedata.normalize("NFKD", text)
    return unicodedata.normalize("NFC", "".join(one for one in apart if not unicodedata.combining(one)))
