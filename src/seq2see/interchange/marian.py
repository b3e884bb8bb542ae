"""Reads Marian's own files, in which OPUS-MT publishes its models: weights in .npz, settings and vocabularies in YAML."""

from __future__ import annotations

import math
import re
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from seq2see.config import DecodingConfig, ModelConfig
from seq2see.errors import FolderError, shown
from seq2see.interchange.huggingface_text import Languages, language_of, marian_engine
from seq2see.interchange.imported import (
    LARGEST_SETTING,
    LARGEST_WEIGHTS,
    NEVER,
    Imported,
    Renamed,
    brief,
    decoding_config,
    foreign,
    foreign_lines,
    model_config,
)
from seq2see.interchange.names import renamed
from seq2see.storage.folder import Tokenizers
from seq2see.tokenizers.tokenizer import Tokenizer

SETTINGS = "special:model.yml"  # the array with the settings, as bytes
END, UNKNOWN, PAD = "</s>", "<unk>", "<pad>"
LONGEST = 1024  # positions
MOST_SETTINGS = 2**20  # bytes
#: The values that these settings of Marian must have, if they are present: those of the paper's Transformer.
EXPECTED = {
    "type": ("transformer",), "transformer-decoder-autoreg": ("self-attention",), "transformer-no-projection": ("false",),
    "transformer-ffn-depth": ("2",), "transformer-decoder-ffn-depth": ("0", "2"), "transformer-tied-layers": ("", "[]"),
    "transformer-postprocess-emb": ("", "d", "n", "nd"), "transformer-no-bias": ("false",), "right-left": ("false",),
    "transformer-no-affine": ("false",), "ulr": ("false",), "layer-normalization": ("false",), "lemma-dim-emb": ("0",),
    "transformer-ffn-activation": ("relu", "swish"), "input-types": ("", "[]", "sequence"), "factors-combine": ("sum",),
}  # fmt: skip
#: Where the norms are, by three settings: before, after and above the sublayers.
NORMS = {("", "dan", ""): "post", ("n", "da", "n"): "pre"}
PARTS = {
    "self": "self_attn",
    "context": "encoder_attn",
    **{f"{kind}{letter}": f"{letter}_proj.{name}"
       for kind, name in (("W", "weight"), ("b", "bias")) for letter in "qkv"},
    "Wo": "out_proj.weight", "bo": "out_proj.bias", "W1": "fc1.weight", "b1": "fc1.bias", "W2": "fc2.weight",
    "b2": "fc2.bias",
}  # fmt: skip
LAYER = re.compile(r"(encoder|decoder)_l([1-9]\d{0,3})_(self|context|ffn)_(\w{1,20})")
NORM = re.compile(r"(?:Wo|ffn)_ln_(scale|bias)(?:_pre)?")
SIMPLE = re.compile(r"([\w-]{1,100}):(?: (.*))?")
ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)")
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "e": "\x1b",
           "N": "\x85", "_": "\xa0", "L": "\u2028", "P": "\u2029"}  # fmt: skip


def is_marian(path: Path) -> bool:
    """Whether a folder holds a model of Marian."""
    return any(path.glob("*.npz"))


def read_marian(path: Path, languages: Languages = (None, None)) -> Imported:
    """Read a folder with decoder.yml, model.npz, vocab.yml, source.spm and target.spm."""
    decoder = simple_yaml(foreign_lines(path / "decoder.yml")) if (path / "decoder.yml").is_file() else {}
    arrays = Arrays(_file(path, decoder, "models", "*.npz"))
    settings = simple_yaml(arrays.settings())
    for name, values in EXPECTED.items():
        if (value := settings.get(name, values[0])) not in values:
            wanted = " or ".join(shown(one) for one in values)
            raise FolderError(
                f"The model has {name} = {brief(value)}, which is not supported: {wanted} was expected."
            )
    model = _model(settings, arrays)
    names = [vocabulary(file) for file in _vocabularies(path, decoder)]
    sizes = model.source_vocabulary, model.target_vocabulary
    for side, listed, size in zip(("source", "target"), names, sizes, strict=True):
        if len(listed) + 1 != size:
            raise FolderError(
                f"The vocabulary does not match: the {side} has {len(listed):,} tokens, but the embedding table has "
                f"{size - 1:,} rows."
            )
    engines = [
        marian_engine(path, side, [*listed, PAD], "its vocabulary")
        for side, listed in zip(("source", "target"), names, strict=True)
    ]
    first = [] if languages[1] is None else [language_of(languages[1], engines[0], "--to-language")]
    known = {name: number for number, name in enumerate(names[1])}
    out = [len(known)] if decoder.get("allow-unk") == "true" else [known[UNKNOWN], len(known)]
    return Imported(
        "Marian",
        model,
        _decoding(decoder, model, out),
        Tokenizers(
            Tokenizer.of_others(engines[0], first, [END], PAD, sizes[0]),
            Tokenizer.of_others(engines[1], [PAD], [END], PAD, sizes[1]),
        ),
        _weights(arrays, model, _feed_forward(settings)),
    )


# --- YAML, as far as Marian writes it -----------------------------------------------------------------------------


def simple_yaml(lines: list[str]) -> dict[str, str | list[str]]:
    """Read names with a value or a list of values each, all as texts; deeper levels are ignored."""
    found: dict[str, str | list[str]] = {}
    name = ""
    for line in lines:
        if simple := SIMPLE.fullmatch(line.rstrip()):
            name = simple[1]
            found[name] = unquoted((simple[2] or "").strip())
        elif (item := line.strip()).startswith("- ") and name:
            before = found[name]
            found[name] = [*(before if isinstance(before, list) else []), unquoted(item[2:].strip())]
    return found


def unquoted(text: str) -> str:
    """Read a text of YAML on one line: in double quotes with escapes, in single quotes, or plain."""
    if len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1].replace("''", "'")
    if len(text) > 1 and text[0] == text[-1] == '"':
        return ESCAPE.sub(_escaped, text[1:-1])
    return text


def _escaped(found: re.Match[str]) -> str:
    what = found[1]
    if len(what) > 1:
        number = int(what[1:], 16)
        if number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
            raise FolderError(f"A vocabulary has the escape {shown(found[0])}, which is not a character.")
        return chr(number)
    return ESCAPES.get(what, what)


def vocabulary(file: Path) -> list[str]:
    """Read a vocabulary: ``"token": number`` on each line, or ``? token`` and ``: number`` on two."""
    if file.suffix not in (".yml", ".yaml"):
        raise FolderError(
            f"The vocabulary {shown(file.name)} cannot be read: a .yml with tokens and their ids was expected."
        )
    ids: dict[str, int] = {}
    key = ""
    for line in foreign_lines(file):
        line = line.rstrip("\r")
        if not line.strip():
            continue
        if line.startswith("? "):
            key = line[2:]
            continue
        token, _, number = line.rpartition(":")
        token = unquoted((token or key).strip())
        if not number.strip().isdecimal() or len(number) > 10 or token in ids:
            raise FolderError(f"{shown(file.name)} does not give each token one id: {brief(line)}.")
        ids[token] = int(number)
    names = sorted(ids, key=ids.__getitem__)
    if [ids[name] for name in names] != list(range(len(names))) or not {END, UNKNOWN} <= ids.keys():
        raise FolderError(
            f"{shown(file.name)} does not number its tokens from 0 without gaps, with {END} and {UNKNOWN} among them."
        )
    return names


# --- files ---------------------------------------------------------------------------------------------------------


def _listed(settings: dict[str, str | list[str]], name: str) -> list[str]:
    value = settings.get(name, [])
    return value if isinstance(value, list) else [value] if value else []


def _file(path: Path, decoder: dict[str, str | list[str]], key: str, pattern: str) -> Path:
    """Return the file that decoder.yml names, or the only one of its kind."""
    named = [path / Path(name).name for name in _listed(decoder, key)]
    found = named or sorted(path.glob(pattern))
    if len(found) != 1:
        raise FolderError(
            f"{path.name} has {len(found)} models ({', '.join(shown(one.name) for one in found[:4])}): one was "
            "expected. Import the models of an ensemble one by one: leave one name in decoder.yml."
        )
    return found[0]


def _vocabularies(path: Path, decoder: dict[str, str | list[str]]) -> tuple[Path, Path]:
    """Return the files of both vocabularies, which may be one."""
    found = [path / Path(name).name for name in _listed(decoder, "vocabs")]
    found = found or [*sorted(path.glob("*src.vocab.yml")), *sorted(path.glob("*trg.vocab.yml"))]
    found = found or sorted(path.glob("*vocab.yml"))
    if len(found) not in (1, 2):
        raise FolderError(
            f"{path.name} has {len(found)} vocabularies: decoder.yml was expected to name one or two files under vocabs."
        )
    return found[0], found[-1]


class Arrays:
    """The arrays of an .npz file. Each is read when it is needed, and no code in the file runs."""

    def __init__(self, file: Path) -> None:
        self.file = foreign(file, LARGEST_WEIGHTS)
        try:
            with zipfile.ZipFile(self.file) as packed:
                self.sizes = {one.filename.removesuffix(".npy"): one.file_size for one in packed.infolist()}
        except zipfile.BadZipFile as error:
            raise self._damaged(error) from None
        if SETTINGS not in self.sizes:
            raise FolderError(f"{shown(file.name)} has no {SETTINGS}: it is not a Marian model.")

    def _damaged(self, why: object) -> FolderError:
        return FolderError(
            f"{shown(self.file.name)} cannot be read ({brief(str(why))}): copy or download it again."
        )

    def array(self, name: str) -> np.ndarray:
        """Return an array."""
        if name not in self.sizes:
            raise FolderError(f"The model has no weights {shown(name)}: the file may be incomplete.")
        try:
            with zipfile.ZipFile(self.file) as packed, packed.open(f"{name}.npy") as file:
                version = np.lib.format.read_magic(file)
                read = (
                    np.lib.format.read_array_header_1_0
                    if version == (1, 0)
                    else np.lib.format.read_array_header_2_0
                )
                shape, by_columns, kind = read(file)
                wanted = math.prod(shape) * kind.itemsize
                if kind.hasobject or min(shape, default=1) < 1 or wanted > self.sizes[name]:
                    raise ValueError("an array of another kind or size")
                data = file.read(wanted)
            return np.frombuffer(data, kind).reshape(shape, order="F" if by_columns else "C")
        except (
            ValueError,
            KeyError,
            OSError,
            EOFError,
            zipfile.BadZipFile,
            NotImplementedError,
            RuntimeError,
        ) as error:
            raise self._damaged(f"{name}: {error}") from None

    def settings(self) -> list[str]:
        """Return the lines of the settings."""
        if self.sizes[SETTINGS] > MOST_SETTINGS:
            raise self._damaged("its settings are too long")
        return self.array(SETTINGS).tobytes().rstrip(b"\0").decode("utf-8", errors="replace").split("\n")

    def tensor(self, name: str, turned: bool = False) -> Tensor:
        """Return an array as a tensor; ``turned``: with rows and columns exchanged."""
        found = self.array(name)
        if found.dtype not in (np.float32, np.float16):
            raise FolderError(
                f"The weights {shown(name)} are {found.dtype}: 16-bit or 32-bit floats were expected. Import "
                "the model as it was before quantization."
            )
        return torch.from_numpy((found.T if turned else found).copy())


# --- the model ------------------------------------------------------------------------------------------------------


def _number(settings: dict[str, str | list[str]], name: str) -> int:
    value = settings.get(name)
    if not isinstance(value, str) or not value.isdecimal() or len(value) > 9:
        raise FolderError(f"The model has {name} = {brief(value)}: a whole number was expected.")
    return int(value)


def _feed_forward(settings: dict[str, str | list[str]]) -> tuple[int, int]:
    """Return d_ff of the encoder and of the decoder. A 0 for the decoder means that it is the encoder's."""
    own = "transformer-decoder-dim-ffn"
    size = _number(settings, "transformer-dim-ffn")
    return size, (_number(settings, own) if own in settings else 0) or size


def _model(settings: dict[str, str | list[str]], arrays: Arrays) -> ModelConfig:
    before, after, above = (
        str(settings.get(f"transformer-{place}", ""))
        for place in ("preprocess", "postprocess", "postprocess-top")
    )
    places = (before, after, above)
    if places not in NORMS:
        raise FolderError(
            f"The model's norms are {brief(places)}: '', 'dan', '' (after each sublayer) or 'n', 'da', 'n' (before "
            "it) were expected."
        )
    shared = "Wemb" in arrays.sizes
    rows = [
        arrays.tensor("Wemb" if shared else f"{half}_Wemb").shape[0] + 1 for half in ("encoder", "decoder")
    ]  # and a row for the token before an answer
    dropout = str(settings.get("transformer-dropout"))
    return model_config(
        source_vocabulary=rows[0],
        target_vocabulary=rows[1],
        d_model=_number(settings, "dim-emb"),
        heads=_number(settings, "transformer-heads"),
        d_ff=max(_feed_forward(settings)),
        encoder_layers=_number(settings, "enc-depth"),
        decoder_layers=_number(settings, "dec-depth"),
        dropout=float(dropout) if re.fullmatch(r"0(\.\d{1,9})?", dropout) else 0.1,
        activation=settings.get("transformer-ffn-activation", "swish"),
        norm=NORMS[places],
        positions="learned",  # a table: see `positions`
        max_length=min(LONGEST, len(arrays.tensor("Wpos"))) if "Wpos" in arrays.sizes else LONGEST,
        share_embeddings=shared,
        share_output=not _own_output(arrays),
        embedding_norm="n" in settings.get("transformer-postprocess-emb", "d"),
        output_bias=True,
    )


def positions(length: int, d_model: int) -> Tensor:
    """Return Marian's own table, (length, D): sines before cosines, the exponent i / (D/2 − 1), counted from 0.

    Converters of others compute it with the exponent 2i / D.
    """
    rate = math.log(10000) / (d_model // 2 - 1)
    frequencies = torch.exp(torch.arange(d_model // 2, dtype=torch.float64) * -rate)  # (D/2,)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * frequencies  # (length, D/2)
    return torch.cat([torch.sin(angles), torch.cos(angles)], dim=-1).float()  # (length, D)


def _own_output(arrays: Arrays) -> str | None:
    """Return the name of the output projection, if it is not the target's table."""
    return next(
        (name for name in ("decoder_ff_logit_out_Wt", "decoder_ff_logit_out_W") if name in arrays.sizes), None
    )


def _with_row(read: Tensor) -> Tensor:
    """Add a row of zeros for the start token: Marian's decoder starts with a vector of zeros."""
    return torch.cat([read, read.new_zeros(1, *read.shape[1:])])


def _weights(arrays: Arrays, model: ModelConfig, widths: tuple[int, int]) -> Renamed:
    theirs = Renamed({})
    put = theirs.readers
    tables = (
        ["shared.weight"] * 2
        if model.share_embeddings
        else [f"{half}.embed_tokens.weight" for half in ("encoder", "decoder")]
    )
    for half, table in zip(("encoder", "decoder"), tables, strict=True):
        name = "Wemb" if model.share_embeddings else f"{half}_Wemb"
        put[table] = lambda name=name: _with_row(arrays.tensor(name))  # type: ignore[misc]
        if "Wpos" in arrays.sizes:
            put[f"{half}.embed_positions.weight"] = partial(arrays.tensor, "Wpos")
        else:
            put[f"{half}.embed_positions.weight"] = partial(positions, model.max_length, model.d_model)
        for kind, ours in (("scale", "weight"), ("bias", "bias")):
            if model.embedding_norm:
                put[f"{half}.layernorm_embedding.{ours}"] = _flat(arrays, f"{half}_emb_ln_{kind}_pre")
            if model.norm == "pre":
                put[f"{half}.layer_norm.{ours}"] = _flat(arrays, f"{half}_top_ln_{kind}")
    used = {SETTINGS, "Wemb", "Wpos", "encoder_Wemb", "decoder_Wemb", "decoder_ff_logit_out_b"}
    used |= {f"{half}_{part}_ln_{kind}{end}" for half in ("encoder", "decoder") for kind in ("scale", "bias")
             for part, end in (("emb", "_pre"), ("top", ""))}  # fmt: skip
    last = tables[1]
    if (own := _own_output(arrays)) is not None:
        last = "lm_head.weight"
        put[last] = lambda: _with_row(arrays.tensor(own, turned=own.endswith("_W")))
        used.add(own)
    for name in arrays.sizes.keys() - used:
        put[_layer_name(name)] = _flat(arrays, name)
    bias = torch.cat([arrays.tensor("decoder_ff_logit_out_b").reshape(-1).float(), torch.tensor([NEVER])])
    weights = renamed(theirs, model, (tables[0], tables[1], last), bias)
    return weights.widened("encoder", widths[0], model).widened("decoder", widths[1], model)


def _flat(arrays: Arrays, name: str) -> partial[Tensor]:
    return partial(_read_flat, arrays, name)


def _read_flat(arrays: Arrays, name: str) -> Tensor:
    """Read a matrix, which Marian stores transposed, or a vector, which it stores as a matrix of one row."""
    found = arrays.tensor(name, turned=True)
    return found.reshape(-1) if min(found.shape, default=1) == 1 else found.contiguous()


def _layer_name(theirs: str) -> str:
    """Translate the name of a weight of a layer into fairseq's."""
    found = LAYER.fullmatch(theirs)
    norm = NORM.fullmatch(found[4]) if found else None
    if found is None or (norm is None and found[4] not in PARTS):
        raise FolderError(f"The model has weights that this architecture does not have: {shown(theirs)}.")
    half, number, part, name = found.groups()
    layer = f"{half}.layers.{int(number) - 1}"
    if norm is not None:
        above = "final" if part == "ffn" else PARTS[part]
        return f"{layer}.{above}_layer_norm.{'weight' if norm[1] == 'scale' else 'bias'}"
    return f"{layer}.{PARTS[name]}" if part == "ffn" else f"{layer}.{PARTS[part]}.{PARTS[name]}"


def _decoding(decoder: dict[str, str | list[str]], model: ModelConfig, out: list[int]) -> DecodingConfig:
    """Return the rules of Marian's search: full beams, scores by length, no unknown words."""

    def real(name: str, default: float) -> float:
        value = decoder.get(name, "")
        text = value if isinstance(value, str) and re.fullmatch(r"\d{1,9}(\.\d{1,9})?", value) else ""
        if value and not text:
            raise FolderError(f"decoder.yml has {name} = {brief(value)}: a number was expected.")
        return float(text) if text else default

    beam = int(real("beam-size", 12))
    return decoding_config(
        beam=max(1, min(beam, LARGEST_SETTING)),
        length_penalty=real("normalize", 0.0),
        penalty="length",
        length_ratio=real("max-length-factor", 3.0),
        length_offset=1,
        stopping="full",
        suppressed=tuple(sorted(out)),
    )
