"""Reads a model.bin of CTranslate2, and checks an export before CTranslate2 reads it, since CTranslate2
trusts any file.
"""

from __future__ import annotations

import struct
from math import prod
from pathlib import Path
from typing import IO, NamedTuple

from seq2see.config import ModelConfig
from seq2see.errors import FolderError, shown
from seq2see.files import parsed, plain_file, read_text
from seq2see.storage.folder import Tokenizers

WEIGHTS, SETTINGS = "model.bin", "config.json"
VERSION, SPECIFICATION, REVISION = 6, "TransformerSpec", 7
FLOAT32, INT8, INT16 = 0, 1, 2
SIZES = {FLOAT32: 4, INT8: 1, INT16: 2, 3: 4, 4: 2, 5: 2}  # bytes; then int32, float16 and bfloat16
LARGEST_SETTINGS, LARGEST_VOCABULARY = 2**16, 2**28  # bytes
ACTIVATIONS = {"relu": 0, "gelu": 3, "swish": 2}  # CTranslate2's numbers, checked by a test

LAYER_NORM_EPSILON = 1e-5  # torch.nn.LayerNorm's

Shape = tuple[int, ...]


class Array(NamedTuple):
    """An array of a model.bin: its type, its shape, and the byte at which it begins."""

    kind: int
    shape: Shape
    place: int


class Contents(NamedTuple):
    """The table of contents of a model.bin: its arrays, its aliases, and the end of the last array."""

    version: int
    specification: str
    revision: int
    arrays: dict[str, Array]
    aliases: dict[str, str]
    end: int


def contents(path: Path, name: str) -> Contents:
    """Read the table of contents of a model.bin; every length is checked. Messages call the file ``name``."""
    plain_file(path)
    with path.open("rb") as file:
        try:
            return _contents(file, path.stat().st_size)
        except (UnicodeDecodeError, FolderError) as error:
            raise FolderError(
                f"{name} is not a model of CTranslate2 ({error}): copy or download it again."
            ) from None


def _contents(file: IO[bytes], size: int) -> Contents:
    def taken(length: int) -> bytes:
        data = file.read(length)
        if len(data) != length:
            raise FolderError("it ends too early")
        return data

    def take(form: str) -> tuple[int, ...]:
        return struct.unpack(f"<{form}", taken(struct.calcsize(f"<{form}")))

    def text() -> str:
        return taken(take("H")[0]).decode().removesuffix("\0")

    (version,) = take("I")
    if not 2 <= version <= VERSION:
        raise FolderError(f"it has version {version}, but 2 to {VERSION} are supported")
    specification, (revision, count) = text(), take("II")
    arrays: dict[str, Array] = {}
    for _ in range(count):
        name = text()
        shape = take(f"{take('B')[0]}I")
        kind, length = take("BI")
        if version < 4:  # the size of a number, and how many there are
            kind, length = {4: FLOAT32, 1: INT8, 2: INT16}.get(kind, -1), kind * length
        known = kind in SIZES and length == prod(shape) * SIZES[kind] and file.tell() + length <= size
        if not known or name in arrays:
            raise FolderError(f"{shown(name)} has a size that does not match its shape, or occurs twice")
        arrays[name] = Array(kind, shape, file.tell())
        file.seek(length, 1)
    aliases: dict[str, str] = {}
    for _ in range(take("I")[0] if version >= 3 else 0):
        alias = text()
        aliases[alias] = text()
    return Contents(version, specification, revision, arrays, aliases, file.tell())


def largest(config: ModelConfig) -> int:
    """Return the largest size of a file of an export: a sparse file of a terabyte is not read."""
    positions = 2 * config.max_length * config.d_model
    return LARGEST_VOCABULARY + 2 * SIZES[FLOAT32] * (config.parameters + positions)


def expected(config: ModelConfig) -> tuple[dict[str, Shape], dict[str, int]]:
    """Return the shape of every array of an export, and the value of every single number."""
    d, f = config.d_model, config.d_ff
    shapes: dict[str, Shape] = {
        "encoder/embeddings_0/weight": (config.source_vocabulary, d),
        "decoder/embeddings/weight": (config.target_vocabulary, d),
        "decoder/projection/weight": (config.target_vocabulary, d),
    }
    if not config.share_output or config.output_bias:
        shapes["decoder/projection/bias"] = (config.target_vocabulary,)

    def norm(name: str) -> None:
        shapes[f"{name}/gamma"] = shapes[f"{name}/beta"] = (d,)

    def linear(name: str, outputs: int, inputs: int) -> None:
        shapes[f"{name}/weight"], shapes[f"{name}/bias"] = (outputs, inputs), (outputs,)

    for side, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        shapes[f"{side}/position_encodings/encodings"] = (config.max_length, d)
        if config.embedding_norm:
            norm(f"{side}/layernorm_embedding")
        if config.norm == "pre":
            norm(f"{side}/layer_norm")
        for number in range(layers):
            layer = f"{side}/layer_{number}"
            norm(f"{layer}/self_attention/layer_norm")
            linear(f"{layer}/self_attention/linear_0", 3 * d, d)
            linear(f"{layer}/self_attention/linear_1", d, d)
            if side == "decoder":
                norm(f"{layer}/attention/layer_norm")
                linear(f"{layer}/attention/linear_0", d, d)
                linear(f"{layer}/attention/linear_1", 2 * d, d)
                linear(f"{layer}/attention/linear_2", d, d)
            norm(f"{layer}/ffn/layer_norm")
            linear(f"{layer}/ffn/linear_0", f, d)
            linear(f"{layer}/ffn/linear_1", d, f)
    numbers = {"decoder/alignment_heads": 1, "decoder/alignment_layer": -1, "decoder/start_from_zero_embedding": 0,
               "decoder/alibi": 0, "decoder/alibi_use_positive_positions": 0, "decoder/scale_alibi": 0,
               "encoder/embeddings_merge": 0, "encoder/multi_query_attention": 0}  # fmt: skip
    for side in ("encoder", "decoder"):
        numbers |= {
            f"{side}/activation": ACTIVATIONS[config.activation],
            f"{side}/num_heads": config.heads,
            f"{side}/pre_norm": int(config.norm == "pre"),
            f"{side}/scale_embeddings": int(config.scale_embeddings),
        }
    return shapes, numbers


def settings_of(tokenizers: Tokenizers) -> dict[str, str | bool | float]:
    """Return the settings of an export.

    Our ids include start and end already. A vocabulary without an unknown token must name another one, or
    CTranslate2 would add it.
    """
    target, unknown = tokenizers.target, tokenizers.target.unknown
    if unknown is None or tokenizers.source.unknown is None:
        unknown = target.pad
    start, end, other = target.tokens([target.start, target.end, unknown])
    return {"bos_token": start, "eos_token": end, "decoder_start_token": start, "unk_token": other,
            "add_source_bos": False, "add_source_eos": False, "layer_norm_epsilon": LAYER_NORM_EPSILON}  # fmt: skip


def check(export: Path, config: ModelConfig, tokenizers: Tokenizers) -> None:
    """Raise a FolderError unless an export has the shape, settings and vocabulary of a model."""
    if not config.d_k == config.d_v == config.d_model / config.heads:
        raise FolderError("CTranslate2 cannot express the heads of this model.")
    settings = settings_of(tokenizers) | {"multi_query_attention": False}
    if parsed(read_text(export / SETTINGS, LARGEST_SETTINGS), SETTINGS) != settings:
        raise FolderError(f"{SETTINGS} has other settings.")
    _check_vocabularies(export, tokenizers)
    shapes, numbers = expected(config)
    size = plain_file(export / WEIGHTS)
    read = contents(export / WEIGHTS, WEIGHTS)
    if (read.version, read.specification, read.revision) != (VERSION, SPECIFICATION, REVISION):
        raise FolderError(f"{WEIGHTS} has another version.")
    if read.end != size:
        raise FolderError(f"{WEIGHTS} is longer than its arrays.")
    found = read.arrays
    for name, target in read.aliases.items():
        if name in found or target not in found:
            raise FolderError(f"{WEIGHTS} has an alias without a target, {shown(name)}.")
        found[name] = found[target]
        if f"{target}_scale" in found:
            found.setdefault(f"{name}_scale", found[f"{target}_scale"])
    nothing = Array(-1, (-1,), 0)
    for name, shape in shapes.items():
        array, scale = found.pop(name, nothing), found.pop(f"{name}_scale", None)
        scaled = (
            array.kind == INT8 and len(shape) == 2 and scale is not None and scale[:2] == (FLOAT32, shape[:1])
        )
        if array.shape != shape or not (scaled or (array.kind == FLOAT32 and scale is None)):
            raise FolderError(f"{WEIGHTS} has another {name} than the model.")
    with (export / WEIGHTS).open("rb") as file:
        for name, value in numbers.items():
            if _number(file, found.pop(name, nothing)) != value:
                raise FolderError(f"{WEIGHTS} has another {name} than the model.")
    if found:
        raise FolderError(f"{WEIGHTS} has {shown(next(iter(found)))}, which the model does not have.")


def _number(file: IO[bytes], array: Array) -> int | None:
    """Return a single whole number; None if the array is something else."""
    if array.shape or array.kind not in (INT8, INT16):
        return None
    file.seek(array.place)
    return int.from_bytes(file.read(SIZES[array.kind]), "little", signed=True)


def _check_vocabularies(export: Path, tokenizers: Tokenizers) -> None:
    sides = {"source": tokenizers.source, "target": tokenizers.target}
    shared = (export / "shared_vocabulary.json").exists()
    for side, tokenizer in sides.items():
        name = "shared_vocabulary.json" if shared else f"{side}_vocabulary.json"
        if parsed(read_text(export / name, LARGEST_VOCABULARY), name) != tokenizer.vocabulary():
            raise FolderError(f"{name} has other tokens than the tokenizer.")
