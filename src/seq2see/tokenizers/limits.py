"""Tokenizer files are read after checks: with some foreign files the library would run for hours or crash."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable
from functools import lru_cache
from math import isfinite
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Engine

from seq2see.errors import FolderError, shown
from seq2see.files import parsed, read_text

LARGEST = 2**26  # bytes of a file
TOKENS = 2**21
PARTS = 16  # in a sequence of normalizers, pre-tokenizers or decoders
PATTERN = 500  # characters of a regular expression
REPLACEMENTS = 4  # in one tokenizer
PADDING = 2**16  # largest padding of each text
CONTENT = 4  # most characters of a replacement
LARGEST_MAP, LONGEST_KEY, LONGEST_MAPPED = 2**22, 64, 128  # bytes of a map of characters, and of what it maps

MODELS = {"WordLevel", "BPE", "Unigram", "WordPiece"}
#: The kinds that we write, and that the converters of well-known models write.
KINDS = {
    "normalizer": {"Sequence", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Nmt", "Strip", "StripAccents",
                   "BertNormalizer", "Prepend", "Replace", "Precompiled", "ByteLevel"},
    "pre_tokenizer": {"Sequence", "Split", "Whitespace", "WhitespaceSplit", "Metaspace", "ByteLevel",
                      "BertPreTokenizer", "Punctuation", "Digits"},
    "decoder": {"Sequence", "Fuse", "ByteFallback", "ByteLevel", "Metaspace", "WordPiece", "BPEDecoder", "Strip",
                "Replace"},
    "post_processor": {"TemplateProcessing", "BertProcessing", "RobertaProcessing", "ByteLevel", "Sequence"},
}  # fmt: skip
INSIDE = dict(zip(KINDS, ("normalizers", "pretokenizers", "decoders", "processors"), strict=True))
_ENDINGS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
#: Well-known patterns with several consecutive repetitions.
KNOWN_PATTERNS = {rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}|{_REST}" for digits in ("", "{1,3}")}


def read_engine(path: Path) -> Engine:
    """Read the library's own JSON format, after checking that it is safe."""
    text = read_text(path, LARGEST)
    size = check(parsed(text, path.name), path.name)
    try:
        engine = Engine.from_str(text)
        engine.no_truncation()
        ids = engine.encode("").ids
    except BaseException as error:  # the library raises bare Exception, and what Rust calls a panic is none
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        why = shown(str(error), 200)
        raise FolderError(f"{path.name} is not a tokenizer that can be read ({why}).") from None
    if engine.get_vocab_size() != size or any(not 0 <= number < size for number in ids):
        raise FolderError(f"{path.name} is not a tokenizer that can be read (some ids are beyond its vocabulary).")
    return engine


def unknown_of(engine: Engine) -> int | None:
    """Return the unknown id of an imported tokenizer."""
    state = json.loads(engine.model.__getstate__())
    if state.get("unk_id") is not None:
        return int(state["unk_id"])
    for name in (state.get("unk_token"), "<unk>"):
        number: int | None = engine.token_to_id(name) if name else None
        if number is not None:
            return number
    return None


Refusal = Callable[[str], FolderError]


def check(form: Any, name: str) -> int:
    """Refuse a tokenizer that is not safe for the library; return the number of its tokens."""

    def refuse(why: str) -> FolderError:
        return FolderError(f"{name} is not a tokenizer that can be read ({why}).")

    try:
        return _checked(form, refuse)
    except (TypeError, AttributeError, KeyError, ValueError, OverflowError):
        raise refuse("a part of it has the wrong type") from None


def _checked(form: Any, refuse: Refusal) -> int:
    if not isinstance(form, dict) or not isinstance(form.get("model"), dict):
        raise refuse("it describes no model")
    size = _check_model(form["model"], form.get("added_tokens"), refuse)
    padding = form.get("padding") or {}
    strategy = padding.get("strategy")
    lengths = (padding.get("pad_to_multiple_of"), strategy.get("Fixed") if isinstance(strategy, dict) else None)
    if any(number is not None and number > PADDING for number in lengths):
        raise refuse(f"every text would be padded to more than {PADDING:,} tokens")
    for part, kinds in KINDS.items():
        found = _flat(form.get(part), INSIDE[part], refuse)
        for one in found:
            if one.get("type") not in kinds:
                raise refuse(f"a {part} of the kind {shown(str(one.get('type')))} is not known here")
            _check_part(one, refuse)
        if sum(one["type"] in ("Replace", "Prepend") for one in found) > REPLACEMENTS:
            raise refuse(f"more than {REPLACEMENTS} replacements")
    return size


def _flat(part: Any, inside: str, refuse: Refusal) -> list[dict[str, Any]]:
    """Return the parts of a sequence, or the single part, or none. A nested sequence is refused."""
    if part is None:
        return []
    parts = part.get(inside) if isinstance(part, dict) and part.get("type") == "Sequence" else [part]
    if not isinstance(parts, list) or len(parts) > PARTS or not all(isinstance(one, dict) for one in parts):
        raise refuse(f"a sequence of {inside} is no list of at most {PARTS}")
    if any(one.get("type") == "Sequence" for one in parts):
        raise refuse("a sequence within a sequence")
    return parts


def _check_model(model: dict[str, Any], added: Any, refuse: Refusal) -> int:
    kind, vocabulary = model.get("type", "WordLevel"), model.get("vocab")
    if kind not in MODELS:
        raise refuse(f"a model of the kind {shown(str(kind))} is not known here")
    if kind == "Unigram":
        ids = list(range(len(vocabulary))) if isinstance(vocabulary, list) else []
        if not all(
            isinstance(one, list) and len(one) == 2 and isinstance(one[0], str) and _is_number(one[1])
            for one in vocabulary or []
        ):
            raise refuse("a piece is no text with a finite score")
        tokens = {one[0] for one in vocabulary or []}
        unknown = model.get("unk_id")
        if unknown is not None and unknown not in range(len(ids)):
            raise refuse("the unknown token is beyond the vocabulary")
    else:
        ids = list(vocabulary.values()) if isinstance(vocabulary, dict) else []
        tokens = set(vocabulary) if isinstance(vocabulary, dict) else set()
        if kind == "WordPiece" and model.get("unk_token") not in tokens:
            raise refuse("the unknown token is not in the vocabulary")
    if not 3 <= len(ids) <= TOKENS:
        raise refuse(f"a vocabulary of {len(ids):,} tokens, and 3 to {TOKENS:,} were expected")
    for token in added or []:
        if not isinstance(token, dict) or not isinstance(token.get("content"), str):
            raise refuse("an added token is no text")
        if token["content"] not in tokens:
            ids.append(token.get("id", -1))
    if any(type(number) is not int for number in ids) or sorted(ids) != list(range(len(ids))):
        raise refuse("the ids of its tokens are not 0, 1, 2, … each once")
    return len(ids)


def _check_part(part: dict[str, Any], refuse: Refusal) -> None:
    pattern = part.get("pattern")
    if isinstance(pattern, dict) and "Regex" in pattern and not _is_quick(pattern["Regex"]):
        raise refuse("a regular expression that may take very long")
    content = part.get("content" if part["type"] == "Replace" else "prepend", "")
    if part["type"] in ("Replace", "Prepend") and (not isinstance(content, str) or len(content) > CONTENT):
        raise refuse(f"a replacement by more than {CONTENT} characters")
    if part["type"] == "Precompiled" and not _is_character_map(part.get("precompiled_charsmap")):
        raise refuse("a damaged map of characters")
    if part["type"] == "TemplateProcessing":
        template = part.get("single")
        if not isinstance(template, list) or len(template) > PARTS:
            raise refuse(f"a template that is no list of at most {PARTS} parts")
        if sum("Sequence" in one for one in template if isinstance(one, dict)) != 1:
            raise refuse("a template that does not contain the text once")
        known = part.get("special_tokens")
        used = [one["SpecialToken"] for one in template if isinstance(one, dict) and "SpecialToken" in one]
        if not isinstance(known, dict) or any(not isinstance(one, dict) or one.get("id") not in known for one in used):
            raise refuse("a template with a token that it does not define")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e30 and isfinite(value)


def _is_quick(pattern: Any) -> bool:
    """Whether a regular expression cannot backtrack long: it has at most one repetition per alternative."""
    if not isinstance(pattern, str) or len(pattern) > PATTERN:
        return False
    if pattern in KNOWN_PATTERNS:
        return True
    plain = re.sub(r"\\[pP]\{\^?\w+\}|\\.", "x", pattern, flags=re.DOTALL)  # an escape is one character
    plain = re.sub(r"\[\^?\]?[^\]\[]*\]", "x", plain)  # so is a set of characters
    if re.search(r"\)[*+?{]|[*+?}][*+{]|[\[\]]|\(\?[^:!=i]", plain):  # groups are not repeated, nor repetitions
        return False
    return all(len(re.findall(r"[*+{]", one)) <= 1 for one in plain.split("|"))


def _is_character_map(text: Any) -> bool:
    try:
        return is_character_map(base64.b64decode(text, validate=True))
    except (TypeError, ValueError, binascii.Error):
        return False


@lru_cache(maxsize=2)  # the tokenizers of a model, and of most models, share one
def is_character_map(data: bytes) -> bool:
    """Whether a compiled map of characters is valid: a trie of 4-byte words, then the texts of its leaves.

    The library follows the trie without bounds checks. So all of it is checked here first: every step stays within the
    words, every leaf points to the beginning of a text, and no text is long.
    """
    import numpy as np  # imported here: few tokenizers have such a map, and the import is slow

    size = int.from_bytes(data[:4], "little")
    if not 1024 <= size <= min(len(data) - 4, LARGEST_MAP) or size % 1024 or not data.endswith(b"\0"):
        return False
    words, texts = np.frombuffer(data[4 : 4 + size], "<u4").astype(np.int64), data[4 + size :]
    try:
        texts.decode()
    except UnicodeDecodeError:
        return False
    if max(map(len, texts.split(b"\0"))) > LONGEST_MAPPED:
        return False
    letters = np.frombuffer(texts, np.uint8)
    labels = np.arange(1, 256)

    def offset(units: Any) -> Any:
        return (units >> 10) << ((units & 512) >> 6)

    seen = np.zeros(len(words), bool)
    bases = offset(words[:1])
    for _ in range(LONGEST_KEY):
        if (bases | 255 >= len(words)).any():
            return False
        bases = np.unique(bases[~seen[bases]])
        seen[bases] = True
        places = bases[:, None] ^ labels
        units = words[places]
        known = (units & 0x800000FF) == labels
        places, units = places[known], units[known]
        after = places ^ offset(units)
        leaves = after[(units >> 8 & 1) == 1]
        if (leaves >= len(words)).any():
            return False
        values = words[leaves] & 0x7FFFFFFF
        if (values >= len(texts)).any() or (letters[values] & 0xC0 == 0x80).any():
            return False
        bases = after
        if not len(bases):
            return True
    return False
