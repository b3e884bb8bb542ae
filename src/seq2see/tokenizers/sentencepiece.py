"""SentencePiece models read into the ``tokenizers`` library, without the sentencepiece package.

A ``.model`` or ``.spm`` file is a protocol buffer: numbered fields, each of a known wire type. Only the few fields that
decide how text is split are read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Engine

from seq2see.errors import FolderError
from seq2see.files import plain_file
from seq2see.tokenizers import limits

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
UNIGRAM, BPE = 1, 2
LONGEST_PIECE = 500  # characters
UNREACHABLE = " "  # prefix of a name that no text can spell, since a space becomes ▁ before pieces are looked up


@dataclass(frozen=True)
class Piece:
    """One entry of the vocabulary."""

    text: str
    score: float = 0.0
    kind: int = NORMAL


@dataclass
class SentencePiece:
    """The content of a SentencePiece model."""

    pieces: list[Piece] = field(default_factory=list)
    model: int = UNIGRAM
    charsmap: bytes = b""  # how characters are normalised
    dummy_prefix: bool = True
    folds_spaces: bool = True


def read(path: Path) -> SentencePiece:
    """Read a ``.model`` or ``.spm`` file."""
    plain_file(path, limits.LARGEST)
    try:
        found = parsed(path.read_bytes())
    except (ValueError, struct.error, UnicodeDecodeError, IndexError) as error:
        raise FolderError(f"{path.name} is not a SentencePiece model ({error}): copy it again.") from None
    if not found.pieces or found.model not in (UNIGRAM, BPE):
        raise FolderError(f"{path.name} is not a SentencePiece model of the kind unigram or bpe.")
    if any(len(piece.text) > LONGEST_PIECE or not abs(piece.score) < 1e30 for piece in found.pieces):
        raise FolderError(
            f"{path.name} has a piece of more than {LONGEST_PIECE} characters, or a score that is no number."
        )
    if found.charsmap and not limits.is_character_map(found.charsmap):
        raise FolderError(f"{path.name} has a damaged map of characters: copy it again.")
    return found


def parsed(data: bytes) -> SentencePiece:
    """Read the protocol buffer."""
    found = SentencePiece()
    for count, (number, value) in enumerate(_fields(data)):
        if count > 2 * limits.TOKENS:
            raise ValueError("it has too many parts")
        if number == 1:
            parts = dict(_fields(_bytes(value)))
            score = struct.unpack("<f", _bytes(parts[2]))[0] if 2 in parts else 0.0
            kind = parts.get(3, NORMAL)
            found.pieces.append(Piece(_bytes(parts.get(1, b"")).decode(), score, _number(kind)))
        elif number == 2:
            found.model = _number(dict(_fields(_bytes(value))).get(3, UNIGRAM))
        elif number == 3:
            parts = dict(_fields(_bytes(value)))
            found.charsmap = _bytes(parts.get(2, b""))
            found.dummy_prefix = bool(parts.get(3, 1))
            found.folds_spaces = bool(parts.get(4, 1))
    return found


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("a field has another type than expected")
    return value


def _number(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise ValueError("a field has another type than expected")
    return value


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and the value of each field: a number, or the bytes of anything else."""
    place = 0

    def whole() -> int:
        nonlocal place
        value = shift = 0
        while True:
            if place >= len(data) or shift > 63:
                raise ValueError("it ends within a number")
            byte = data[place]
            place += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    while place < len(data):
        tag = whole()
        wire = tag & 7
        if wire == 0:
            yield tag >> 3, whole()
            continue
        if wire not in (1, 2, 5):
            raise ValueError(f"it has a field of the unknown wire type {wire}")
        length = {1: 8, 5: 4}.get(wire) or whole()
        if length > len(data) - place:
            raise ValueError("it ends within a field")
        yield tag >> 3, data[place : place + length]
        place += length


def engine_of(model: SentencePiece, names: Sequence[str], unknown: str, special: Sequence[str]) -> Engine:
    """Make a tokenizer that splits as the model does and numbers the pieces in the order of ``names``.

    A name that the model cannot produce is replaced by one that no text can spell. Pieces that are not in ``names``
    come last: their ids are beyond the vocabulary, and become unknown.
    """
    cutting = {piece.text: piece for piece in model.pieces if piece.kind in (NORMAL, USER_DEFINED, BYTE)}
    known = set(names)
    listed = [*names, *(text for text in cutting if text not in known)]
    bytes_too = any(piece.kind == BYTE for piece in model.pieces)
    seen: set[str] = set()
    texts = []
    for name in listed:
        text = name if name in cutting or name in special or name == unknown else UNREACHABLE + name
        while text in seen:
            text += UNREACHABLE
        seen.add(text)
        texts.append(text)
    lowest = min((piece.score for piece in cutting.values()), default=0.0)
    if model.model == UNIGRAM:
        scores = [cutting[text].score if text in cutting else lowest for text in texts]
        engine = Engine(
            models.Unigram(list(zip(texts, scores, strict=True)), unk_id=texts.index(unknown), byte_fallback=bytes_too)
        )
    else:
        ids = {text: number for number, text in enumerate(texts)}
        engine = Engine(models.BPE(ids, _merges(cutting), unk_token=unknown, fuse_unk=True, byte_fallback=bytes_too))
    steps: list[normalizers.Normalizer] = []
    if model.charsmap:
        steps.append(normalizers.Precompiled(model.charsmap))
    if model.folds_spaces:
        steps += [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
    if steps:
        engine.normalizer = normalizers.Sequence(steps)
    scheme = "always" if model.dummy_prefix else "never"
    engine.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    spaces = decoders.Metaspace(prepend_scheme=scheme)
    from_bytes = [decoders.ByteFallback()] if bytes_too else []
    engine.decoder = decoders.Sequence([decoders.Replace(UNREACHABLE, ""), *from_bytes, spaces])
    given = [piece.text for piece in model.pieces if piece.kind == USER_DEFINED and piece.text in seen]
    engine.add_tokens([AddedToken(text, normalized=False) for text in given if text not in special])
    engine.add_special_tokens([AddedToken(text, normalized=False) for text in special])
    return engine


def _merges(cutting: Mapping[str, Piece]) -> list[tuple[str, str]]:
    """Return BPE's merges, best first: every two pieces that make a third, by the score of the third."""
    rank = {text: number for number, text in enumerate(cutting)}
    found = []
    for text, piece in cutting.items():
        if piece.kind == BYTE:
            continue
        ways = [(text[:cut], text[cut:]) for cut in range(1, len(text))]
        ways = [(a, b) for a, b in ways if a in cutting and b in cutting]
        found += [(-piece.score, rank[a], rank[b], a, b) for a, b in ways]
    return [(a, b) for *_, a, b in sorted(found)]
