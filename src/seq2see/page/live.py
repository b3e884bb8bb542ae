"""A page whose model runs in the page itself: weights, tokenizers and the code of its worker, as text for a file."""

from __future__ import annotations

import copy
import json
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from seq2see.answering.answerer import Answerer
from seq2see.answering.network import Network
from seq2see.config import DISTANCES, Config, DecodingConfig
from seq2see.documents import sentences
from seq2see.files import plain_file
from seq2see.inspection.glossary import GLOSSARY
from seq2see.inspection.trace import record
from seq2see.kernels.ensemble import member_of
from seq2see.model.transformer import Transformer
from seq2see.page import SMALL, STATIC, WORKER
from seq2see.page.describe import describe_ensemble, describe_model
from seq2see.page.single_file import Inside, bare, single_file
from seq2see.storage.folder import WEIGHTS, Tokenizers, weights_head
from seq2see.storage.weights import in_eight_bits, put_weights, weights_bytes, weights_of, whole
from seq2see.tokenizers.tokenizer import Tokenizer

DIGITS = np.frombuffer(
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%()*+,-./:;=?@[]^_{}", np.uint8
)  # those of weights.js
PART = (
    5 * 2**18
)  # characters of one part of the weights; the page sends them to its worker part by part, so that it stays responsive


#: The kinds of tokenizers that tokenizer.js implements.
CUT = ("characters", "symbols", "features", "words", "small words", "bpe", "unigram", "wordpiece")
SENTENCEPIECE = "sentencepiece.js"  # only a page of such a model has it
#: The steps of a normaliser that sentencepiece.js implements.
STEPS = ("Precompiled", "Strip", "Replace")


class Model(Protocol):
    """The parts of a ``Seq2Seq`` that are needed here; the class itself is on a higher floor."""

    config: Config
    card: str

    @property
    def tokenizers(self) -> Tokenizers:
        """The tokenizers."""

    @property
    def path(self) -> Path | None:
        """Its folder, if it has one."""

    @property
    def network(self) -> Network:
        """The network and its engines."""

    @property
    def answerer(self) -> Answerer:
        """How texts are checked and prepared."""


@dataclass(frozen=True)
class Weights:
    """The weights that a page holds: a safetensors file, and the network that it describes."""

    file: bytes
    network: Transformer


def live_page(
    name: str, model: Model, text: str, bits: int | None = None, home: str | None = None, member: int = 0
) -> str:
    """Return the page as one file that answers any text, with the answer to one text to show at first.

    Weights have this number of ``bits``; by default 32 for a small model and 8 for others. On a site the page
    links to its ``home``. Of an ensemble the page holds one ``member``, and says so.
    """
    shape = model.config.model
    weights = weights_in(model, bits or (32 if shape.parameters <= SMALL else 8), member)
    model.answerer.check(text)
    trace = record(weights.network, model.tokenizers, model.answerer.folded(text), rules=model.config.decoding)
    description = describe_model(name, model.config, model.card, model.path)
    if shape.members > 1:
        description["ensemble"] = describe_ensemble(shape, member)
    size, parts = packed(weights.file)
    is_own = model.tokenizers.source.own and model.tokenizers.target.own
    modules = tuple(module for module in WORKER if not (is_own and module == SENTENCEPIECE))
    inside = Inside({**described(model), "packed": size}, parts, bundle(modules))
    return single_file(description, trace, inside, home)


#: Settings of the search that search.js does not implement, with the values that switch them off.
RULES: dict[str, Any] = {"first_suppressed": (), "other_ends": (), "min_length": 0, "no_repeat": 0, "no_repeat_source": 0,
                         "repetition_penalty": 1.0}  # fmt: skip


def why_not(tokenizers: Tokenizers, rules: DecodingConfig, positions: str = "paper") -> str | None:
    """Say why a model cannot run in the page, or return None if it can: it must tokenize and search as Python does."""
    if positions in DISTANCES:
        return f"the page does not compute {positions} positions"
    for name, idle in RULES.items():
        if getattr(rules, name) != idle:
            return f"the search of the page does not know decoding.{name}"
    for tokenizer in (tokenizers.source, tokenizers.target):
        if not (
            tokenizer.kind.partition(":")[0] in CUT if tokenizer.own else _is_sentencepiece(tokenizer_json(tokenizer))
        ):
            return f"the page cannot cut text into {tokenizer.kind}"
    return None


def _is_sentencepiece(form: dict[str, Any]) -> bool:
    """Whether sentencepiece.js implements this imported tokenizer: unigram or BPE, with SentencePiece's normaliser."""
    model, cutter, frame = form["model"], form["pre_tokenizer"] or {}, form["post_processor"] or {}
    plain = not any(
        token[how] for token in form["added_tokens"] for how in ("normalized", "lstrip", "rstrip", "single_word")
    )
    merges = model["type"] == "Unigram" or (
        model["type"] == "BPE"
        and bool(model["fuse_unk"])
        and not any(
            model[how] for how in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "ignore_merges")
        )
    )
    framed = frame.get("type") == "TemplateProcessing" and cutter.get("type") == "Metaspace"
    return plain and merges and framed and all(step["type"] in STEPS for step in _steps(form["normalizer"]))


def _steps(normalizer: dict[str, Any] | None) -> list[dict[str, Any]]:
    if normalizer is None:
        return []
    if normalizer["type"] != "Sequence":
        return [normalizer]
    return [step for each in normalizer["normalizers"] for step in _steps(each)]


def described(model: Model) -> dict[str, Any]:
    """Describe a model for its worker: its shape, its search settings and its tokenizers."""
    tokenizers = model.tokenizers
    both = (tokenizers.source,) if tokenizers.shared else (tokenizers.source, tokenizers.target)
    return {
        "config": vars(model.config.model),
        "decoding": vars(model.config.decoding),
        "task": model.config.task,
        "tokenizers": dict(zip(("source", "target"), map(tokenizer_json, both), strict=False)),
        "words": sentences.WORDS if model.config.decoding.sentences else None,
        "glossary": {entry.pattern: [entry.symbol, entry.sentence] for entry in GLOSSARY},
    }


def tokenizer_json(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the parts of a tokenizer.json that the page reads."""
    form = json.loads(tokenizer.to_json())
    others = () if tokenizer.own else ("post_processor",)
    return {
        key: form[key]
        for key in ("padding", "added_tokens", "normalizer", "pre_tokenizer", "decoder", "model", *others)
    }


def weights_in(model: Model, bits: int, member: int = 0) -> Weights:
    """Return the weights of a model, or of a member, in this number of bits, and a network with exactly these weights."""
    network = member_of(model.network.inner(), member)
    if bits == 8 and model.path is not None and is_rounded(model) and model.config.model.members == 1:
        plain_file(model.path / WEIGHTS)
        return Weights((model.path / WEIGHTS).read_bytes(), network)
    weights = weights_of(network)
    if bits == 32:
        return Weights(weights_bytes(weights), network)
    small = in_eight_bits(weights) if bits == 8 else {key: value.half() for key, value in weights.items()}
    network = copy.deepcopy(network)
    put_weights(network, whole(small), "the rounded weights")
    return Weights(weights_bytes(small), network)


def is_rounded(model: Model) -> bool:
    """Whether the folder of a model has its weights in eight bits already."""
    head = weights_head(model.path / WEIGHTS) if model.path else {}
    return any(kind == "I8" for kind, _ in head.values())


def bundle(modules: tuple[str, ...] = WORKER) -> str:
    """Return the worker's modules as one script: a worker that is made from a string cannot import files."""
    plain = [re.sub(r"^import .*\n", "", bare(STATIC / name), flags=re.MULTILINE) for name in modules]
    return "\n".join(re.sub(r"^export ", "", text, flags=re.MULTILINE) for text in plain)


def base85(data: bytes) -> str:
    """Write bytes in base 85, four in five characters, filled up with zeros: shorter than base 64."""
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
    return len(small), [text[place : place + PART] for place in range(0, len(text), PART)]
