"""The bytes of each token, to restrict an answer to a text or a pattern while it is written."""

from __future__ import annotations

from seq2see.errors import UserError
from seq2see.tokenizers.folding import SLOTS
from seq2see.tokenizers.tokenizer import BYTES, Tokenizer


def pieces_of(tokenizer: Tokenizer) -> tuple[list[bytes | None], str]:
    """Return the bytes of each token (None: it writes no text), and the prefix of every answer.

    Some tokenizers write a space before each word and drop the first one: with them, all texts have a space in front.
    """
    names = tokenizer.vocabulary()
    special = {*tokenizer.before, *tokenizer.after, tokenizer.start, tokenizer.end, tokenizer.pad, tokenizer.unknown}
    written: list[bytes | None]
    front = ""
    if tokenizer.kind == "small words":
        written, front = [b" " + name.encode() for name in names], " "
    elif tokenizer.own and tokenizer.kind in ("characters", "words", "bpe", "unigram"):
        written = [name.encode() for name in names]
    elif tokenizer.spaces:
        written, front = [name.replace("▁", " ").encode() for name in names], " "
    elif "ByteLevel" in repr(tokenizer.engine.decoder):
        table = _byte_level()
        written = [
            bytes(table[sign] for sign in name) if all(sign in table for sign in name) else None for name in names
        ]
    else:
        raise UserError(
            f"A model with a tokenizer of the kind {tokenizer.kind} does not support `pattern` and `prefix`: give a "
            "list of answers with `only`."
        )
    for number, name in enumerate(names):
        if number in special or name in SLOTS:
            written[number] = None
        elif tokenizer.has_bytes and name in _NUMBERS:
            written[number] = bytes([_NUMBERS[name]])
    return written, front


_NUMBERS = {name: number for number, name in enumerate(BYTES)}


def _byte_level() -> dict[str, int]:
    """Return the byte of each character of a byte-level vocabulary: visible ones stand for themselves."""
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [number for number in range(256) if number not in visible]
    return {chr(n): n for n in visible} | {chr(256 + place): n for place, n in enumerate(others)}
