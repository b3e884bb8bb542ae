"""Reads CTranslate2 folders."""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import count
from math import prod
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import torch
from tokenizers import Tokenizer as Engine
from tokenizers import models, pre_tokenizers
from torch import Tensor

from seq2see.config import DecodingConfig
from seq2see.errors import FolderError, UserError, shown
from seq2see.files import parsed
from seq2see.interchange.huggingface_text import Languages, language_of, marian_engine
from seq2see.interchange.imported import (
    LARGEST_WEIGHTS,
    NEVER,
    Imported,
    Renamed,
    brief,
    fitting,
    foreign,
    foreign_lines,
    model_config,
    one_number_of_heads,
    read_json,
    with_zeros,
)
from seq2see.interchange.names import HALVES, KINDS, parts_of
from seq2see.kernels.layers import table_of
from seq2see.storage.folder import Tokenizers
from seq2see.tokenizers import sentencepiece
from seq2see.tokenizers.tokenizer import Tokenizer

ACTIVATIONS = {0: "relu", 2: "swish", 3: "gelu"}  # 1 is an approximation of gelu
MOST_LENGTH = 1024  # positions, if the file has no table of them
PAD = "<pad>"
VERSION = 6  # the newest model.bin that is read
#: Bytes of a number, by its type in the file: float32, int8, int16, int32, float16 and bfloat16.
SIZES = {0: 4, 1: 1, 2: 2, 3: 4, 4: 2, 5: 2}
TYPES = {0: np.float32, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16, 5: np.int16}
BFLOAT16 = 5


class Array(NamedTuple):
    """An array of a model.bin: its type, its shape, and the byte at which it begins."""

    kind: int
    shape: tuple[int, ...]
    place: int


class Variables:
    """The named arrays of a model.bin, CTranslate2's file of weights, mapped into memory. Every length is checked."""

    def __init__(self, path: Path) -> None:
        real = foreign(path, LARGEST_WEIGHTS)
        self.places: dict[str, Array] = {}
        self.aliases: dict[str, str] = {}
        try:
            with real.open("rb") as file:
                self._read(file, real.stat().st_size)
        except (UnicodeDecodeError, FolderError) as error:
            raise FolderError(
                f"{path.name} is not a model of CTranslate2 ({error}): copy or download it again."
            ) from None
        self.data = np.memmap(real, dtype=np.uint8, mode="r")

    def _read(self, file: IO[bytes], size: int) -> None:
        """Read the table of contents."""

        def taken(length: int) -> bytes:
            data = file.read(length)
            if len(data) != length:
                raise FolderError("it ends too early")
            return data

        def take(form: str) -> tuple[int, ...]:
            return struct.unpack(f"<{form}", taken(struct.calcsize(f"<{form}")))

        def text() -> str:
            # A source may have several embeddings. Those of the paper's model have one.
            return taken(take("H")[0]).decode().removesuffix("\0").replace("embeddings_0", "embeddings")

        (version,) = take("I")
        if not 2 <= version <= VERSION:
            raise FolderError(f"it has version {version}, but 2 to {VERSION} are supported")
        self.spec, (_, arrays) = text(), take("II")
        for _ in range(arrays):
            name = text()
            shape = take(f"{take('B')[0]}I")
            kind, length = take("BI")
            if version < 4:  # the size of a number, and how many there are
                kind, length = {4: 0, 1: 1, 2: 2}.get(kind, -1), kind * length
            known = kind in SIZES and length == prod(shape) * SIZES[kind] and file.tell() + length <= size
            if not known or name in self.places:
                raise FolderError(f"{shown(name)} has a size that does not match its shape, or occurs twice")
            self.places[name] = Array(kind, shape, file.tell())
            file.seek(length, 1)
        for _ in range(take("I")[0] if version >= 3 else 0):
            alias = text()
            self.aliases[alias] = text()

    def __contains__(self, name: str) -> bool:
        return name in self.places or name in self.aliases

    def array(self, name: str) -> Tensor:
        """Return an array in its stored type."""
        name = self.aliases.get(name, name)
        if name not in self.places:
            raise FolderError(f"The model has no {name!r}: a Transformer with an encoder and a decoder was expected.")
        kind, shape, place = self.places[name]
        raw = self.data[place : place + SIZES[kind] * prod(shape)].copy()
        found = torch.from_numpy(raw.view(TYPES[kind])).reshape(shape)
        return found.view(torch.bfloat16) if kind == BFLOAT16 else found

    def numbers(self, name: str) -> Tensor:
        """Return a matrix or a vector in floating point; quantized numbers are converted back."""
        name = self.aliases.get(name, name)
        x = self.array(name)
        if x.is_floating_point():
            return x
        scale = self.array(f"{name}_scale").float()
        return x.float() / (scale.reshape(-1, *[1] * (x.ndim - 1)) if x.dtype == torch.int8 else scale)

    def setting(self, name: str, default: int) -> int:
        """Return a setting, which the file stores as an array of one number, or else the default."""
        return int(self.array(name).reshape(-1)[0]) if name in self else default


def read_ctranslate2(
    path: Path, spm: sentencepiece.SentencePiece | None = None, languages: Languages = (None, None)
) -> Imported:
    """Read a folder with model.bin and vocabularies.

    ``spm`` cuts the texts, where it is known. A folder of a Marian model may hold source.spm and target.spm.
    """
    found = Variables(path / "model.bin")
    if not found.spec.startswith("Transformer") or "encoder/embeddings/weight" not in found:
        raise FolderError(
            f"{path.name} contains a {shown(found.spec)}: a Transformer with an encoder and a decoder was expected."
        )
    config = read_json(path / "config.json") if (path / "config.json").is_file() else {}
    if config.get("layer_norm_epsilon") not in (None, 1e-5):
        raise FolderError(f"The layer norms use ε = {brief(config['layer_norm_epsilon'])}: only 0.00001 is supported.")
    # Marian's decoder starts with a vector of zeros. Here it is the embedding of a token that no answer contains.
    from_zero = found.setting("decoder/start_from_zero_embedding", 0) == 1
    weights, model = _weights(found, from_zero)
    added = (int(from_zero and model.share_embeddings), int(from_zero))
    sizes = model.source_vocabulary - added[0], model.target_vocabulary - added[1]
    names = _vocabularies(path, sizes, config)
    if from_zero and any(PAD in listed for listed in names):
        raise FolderError(
            f"The decoder starts with a vector of zeros. The import adds the token {PAD} for it, but the vocabulary "
            "already has this token: convert the model again with a CTranslate2 converter, which removes the token."
        )
    names = [[*listed, *[PAD] * more] for listed, more in zip(names, added, strict=True)]
    begin, end = str(config.get("bos_token") or "<s>"), str(config.get("eos_token") or "</s>")
    start = PAD if from_zero else str(config.get("decoder_start_token") or begin)
    unknown = str(config.get("unk_token") or "<unk>")
    source_start = [begin] if config.get("add_source_bos") or found.setting("with_source_bos", 0) else []
    source_end = [end] if config.get("add_source_eos") or found.setting("with_source_eos", 0) else []
    longest = min(256, model.max_length - 1)
    marian = spm is None and all((path / f"{side}.spm").is_file() for side in ("source", "target"))
    engines = [
        marian_engine(path, side, listed, "its vocabulary") if marian else _engine(listed, special, unknown, spm)
        for side, listed, special in zip(
            ("source", "target"), names, ([*source_start, *source_end], [start, end]), strict=True
        )
    ]
    if any(languages) and (not marian or languages[1] is None):
        raise UserError(
            f"{path.name} is a CTranslate2 folder, which does not list its languages: leave out --from-language and "
            "--to-language. If the model has language tokens, begin each text with one."
        )
    if marian and languages[1] is not None:
        source_start = [language_of(languages[1], engines[0], "--to-language"), *source_start]
    return Imported(
        "CTranslate2",
        model,
        DecodingConfig(beam=2, length_penalty=1.0, penalty="length", length_ratio=0.0, length_offset=longest,
                       stopping="full", suppressed=(len(names[1]) - 1,) if from_zero else ()),
        Tokenizers(
            Tokenizer.of_others(engines[0], source_start, source_end, _pad(names[0], unknown), len(names[0])),
            Tokenizer.of_others(engines[1], [start], [end], _pad(names[1], unknown), len(names[1])),
        ),
        weights,
        notes=[] if spm or marian else [
            "The folder has a vocabulary but no tokenizer: give tokens separated by spaces, split as in the model's "
            "training."],
    )  # fmt: skip


def _layers(found: Variables, counts: dict[str, int], d_model: int) -> dict[str, Callable[[], Tensor]]:
    """Return what reads the weights of the layers and the norms, by our names."""
    readers: dict[str, Callable[[], Tensor]] = {}

    def put(ours: str, name: str, rows: slice = slice(None)) -> None:
        readers[ours] = lambda: found.numbers(name)[rows].contiguous()

    def put_norm(ours: str, theirs: str) -> None:
        put(f"{ours}.weight", f"{theirs}/gamma")
        put(f"{ours}.bias", f"{theirs}/beta")

    for half in HALVES:
        for ours, theirs in (("norm", "layer_norm"), ("embedding.norm", "layernorm_embedding")):
            if f"{half}/{theirs}/gamma" in found:
                put_norm(f"{half}.{ours}", f"{half}/{theirs}")
    for half, number, part in parts_of(counts):
        ours, theirs = f"{half}.layers.{number}.{part.ours}", f"{half}/layer_{number}/{part.ctranslate2}"
        if part.ours.endswith("norm"):
            put_norm(ours, theirs)
            continue
        rows = slice(part.part * d_model, (part.part + 1) * d_model) if part.of > 1 else slice(None)
        for kind in KINDS:
            put(f"{ours}.{kind}", f"{theirs}/{kind}", rows)
    return readers


def _weights(found: Variables, from_zero: bool) -> tuple[Renamed, Any]:
    """Return the weights under our names, and the model's config.

    ``from_zero`` adds a row of zeros to the tables of the target, which is the vector that the decoder starts with.
    """
    table, target = "encoder/embeddings/weight", "decoder/embeddings/weight"
    d_model = found.numbers(table).shape[1]
    counts = {
        half: next(n for n in count() if f"{half}/layer_{n}/self_attention/linear_0/weight" not in found)
        for half in HALVES
    }
    readers = _layers(found, counts, d_model)

    def put(ours: str, name: str, change: Callable[[Tensor], Tensor] = Tensor.contiguous) -> None:
        readers[ours] = lambda: change(found.numbers(name))

    heads = found.setting("num_heads", found.setting("encoder/num_heads", 16 if "Big" in found.spec else 8))
    activation = found.setting("activation", found.setting("encoder/activation", 0))
    if activation not in ACTIVATIONS or found.setting("encoder/multi_query_attention", 0):
        raise FolderError("The model has an activation or a kind of attention that is not supported.")
    positions, longest = _positions(found, d_model, readers)
    same = _same(found, table, target)
    tied = _same(found, "decoder/projection/weight", target)
    longer = with_zeros if from_zero else Tensor.contiguous
    put("encoder.embedding.table.weight", table, longer if same else Tensor.contiguous)
    if not same:
        put("decoder.embedding.table.weight", target, longer)
    if not tied:
        put("output.weight", "decoder/projection/weight", longer)
    size = found.numbers(target).shape[0] + from_zero
    has_bias = "decoder/projection/bias" in found
    if has_bias or from_zero or not tied:
        readers["output.bias"] = lambda: _bias(found, size, from_zero)
    widths = {half: found.numbers(f"{half}/layer_0/ffn/linear_0/weight").shape[0] for half in HALVES}
    model = model_config(
        source_vocabulary=found.numbers(table).shape[0] + (from_zero and same),
        target_vocabulary=size,
        d_model=d_model,
        heads=one_number_of_heads(heads, found.setting("decoder/num_heads", heads)),
        d_ff=max(widths.values()),
        encoder_layers=counts["encoder"],
        decoder_layers=counts["decoder"],
        norm="pre" if found.setting("encoder/pre_norm", 1) else "post",
        activation=ACTIVATIONS[activation],
        positions=positions,
        max_length=longest,
        share_embeddings=same,
        share_output=tied,
        scale_embeddings=bool(found.setting("encoder/scale_embeddings", 1)),
        embedding_norm="encoder/layernorm_embedding/gamma" in found,
        output_bias=(has_bias or from_zero) and tied,
    )
    return Renamed(readers).widened(widths, model), model


def _bias(found: Variables, size: int, from_zero: bool) -> Tensor:
    """Return the bias of the logits, (V,)."""
    name = "decoder/projection/bias"
    bias = found.numbers(name).float() if name in found else torch.zeros(size - from_zero)
    return torch.cat([bias, torch.tensor([NEVER])]) if from_zero else bias


def _same(found: Variables, a: str, b: str) -> bool:
    """Whether two tables are equal."""
    if found.aliases.get(a, a) == found.aliases.get(b, b):
        return True
    x, y = found.numbers(a), found.numbers(b)
    return x.shape == y.shape and bool(torch.equal(x, y))


def _positions(found: Variables, d_model: int, readers: dict[str, Callable[[], Tensor]]) -> tuple[str, int]:
    """Return the kind of positions and their number. A table that no formula gives becomes ``learned``."""
    name = "position_encodings/encodings"
    if f"encoder/{name}" not in found:
        return "opennmt", MOST_LENGTH  # CTranslate2 computes these by itself
    tables = [found.numbers(f"{half}/{name}").float() for half in ("encoder", "decoder")]
    longest = min(len(table) for table in tables)
    for order in ("paper", "halves", "fairseq", "opennmt"):
        ours = table_of(longest, d_model, order)
        if all(torch.allclose(table[:longest], ours, atol=1e-5) for table in tables):
            return order, longest
    for half, table in zip(("encoder", "decoder"), tables, strict=True):
        readers[f"{half}.embedding.positions"] = lambda table=table: table[:longest]  # type: ignore[misc]
    return "learned", longest


def _vocabularies(path: Path, sizes: tuple[int, int], config: dict[str, Any]) -> list[list[str]]:
    found = []
    for side, size in zip(("source", "target"), sizes, strict=True):
        for name in (f"{side}_vocabulary", "shared_vocabulary"):
            if (path / f"{name}.json").is_file():
                names = parsed("\n".join(foreign_lines(path / f"{name}.json")), f"{name}.json")
                break
            if (path / f"{name}.txt").is_file():
                names = foreign_lines(path / f"{name}.txt")
                names = names[:-1] if names and names[-1] == "" else names
                break
        else:
            raise FolderError(
                f"{path.name} has neither {side}_vocabulary nor shared_vocabulary: the folder is incomplete."
            )
        if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
            raise FolderError(f"The {side} vocabulary is not a list of tokens.")
        unknown = str(config.get("unk_token") or "<unk>")
        if unknown not in names:
            names = [*names, unknown]  # CTranslate2 adds it in the same place
        fitting(len(names), size, f"the {side} vocabulary")
        found.append([*names, *(f"unused {number}" for number in range(size - len(names)))])
    return found


def _pad(names: list[str], unknown: str) -> str:
    return next((name for name in (PAD, "<blank>", "<s>", unknown) if name in names), names[0])


def _engine(names: list[str], special: list[str], unknown: str, spm: sentencepiece.SentencePiece | None) -> Engine:
    """Cut texts by a SentencePiece model, or else at spaces."""
    if spm is not None:
        around = [name for name in dict.fromkeys([*special, _pad(names, unknown), unknown]) if name in names]
        return sentencepiece.engine_of(spm, names, unknown, around)
    engine = Engine(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token=unknown))
    engine.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return engine
