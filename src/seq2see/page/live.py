"""A model that runs in the page itself: its weights, its tokenizers and the code of its worker, as text for a file."""

from __future__ import annotations

import json
import re
import zlib
from typing import Any, Protocol

import numpy as np

from seq2see.config import Config
from seq2see.folder import Tokenizers
from seq2see.inspection.glossary import GLOSSARY
from seq2see.page import STATIC

#: The modules of the worker: each imports only from those before it.
MODULES = (
    "tensors.js",
    "model.js",
    "weights.js",
    "tokenizer.js",
    "search.js",
    "edits.js",
    "checks.js",
    "attribution.js",
    "answer.js",
    "worker.js",
)
DIGITS = np.frombuffer(
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%()*+,-./:;=?@[]^_{}", np.uint8
)  # those of weights.js
PART = 2**20  # characters of a part of the weights: the page hands over one after the other, lest it freeze


class Model(Protocol):
    """What is needed of a model: a ``Seq2Seq``, which stands on a floor above."""

    @property
    def config(self) -> Config:
        """All settings."""

    @property
    def tokenizers(self) -> Tokenizers:
        """How text is cut."""


def bundle(modules: tuple[str, ...] = MODULES) -> str:
    """Return the worker's modules as one script: a worker that is made of a text cannot import others."""
    texts = [(STATIC / name).read_text(encoding="utf-8") for name in modules]
    plain = [re.sub(r"^import .*\n", "", text, flags=re.MULTILINE) for text in texts]
    return "\n".join(re.sub(r"^export ", "", text, flags=re.MULTILINE) for text in plain)


def base85(data: bytes) -> str:
    """Write bytes in base 85, four in five characters, filled up with zeros: a quarter longer, where base 64 is a third."""
    words = np.frombuffer(data + bytes(-len(data) % 4), ">u4").astype(np.uint32)
    text = np.empty((len(words), 5), np.uint8)
    for place in range(4, -1, -1):
        words, digit = np.divmod(words, np.uint32(85))
        text[:, place] = DIGITS[digit]
    return text.tobytes().decode("ascii")


def packed(weights: bytes) -> tuple[int, list[str]]:
    """Compress a safetensors file and write it as text: return the number of compressed bytes, and the text in parts."""
    small = zlib.compress(weights, 9)
    text = base85(small)
    return len(small), [text[place : place + PART * 5] for place in range(0, len(text), PART * 5)]


def glossary() -> dict[str, list[str]]:
    """Return the symbol and the sentence of every value, by its name with ``*`` for the number of a layer."""
    return {entry.pattern: [entry.symbol, entry.sentence] for entry in GLOSSARY}


def tokenizer_json(text: str) -> Any:
    """Return a tokenizer.json without what the page does not read."""
    form = json.loads(text)
    kept = ("padding", "added_tokens", "normalizer", "pre_tokenizer", "decoder", "model")
    return {key: form[key] for key in kept}


def described(model: Model) -> dict[str, Any]:
    """Describe a model for its worker: its shape, its rules, and how it cuts text."""
    tokenizers = model.tokenizers
    both = (tokenizers.source,) if tokenizers.shared else (tokenizers.source, tokenizers.target)
    cut = [tokenizer_json(tokenizer.to_json()) for tokenizer in both]
    return {
        "config": vars(model.config.model),
        "decoding": vars(model.config.decoding),
        "task": model.config.task,
        "tokenizers": dict(zip(("source", "target"), cut, strict=False)),
        "glossary": glossary(),
    }
