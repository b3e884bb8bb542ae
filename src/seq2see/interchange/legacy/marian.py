"""Reads Marian's own files, in which OPUS-MT publishes its models: weights in .npz, settings and vocabularies in YAML."""

from __future__ import annotations

import math
import re
import zipfile
from collections.abc import Callable
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
    with_zeros,
)
from seq2see.interchange.names import HALVES, KINDS, layers_of, parts_of, unexpected
from seq2see.storage.folder import Tokenizers
from seq2see.tokenizers.tokenizer import Tokenizer

Settings = dict[str, str | list[str]]  # of YAML, as texts
SETTINGS = "special:model.yml"  # the array with the settings, as bytes
END, UNKNOWN, PAD = "</s>", "<unk>", "<pad>"
SIMPLE = re.compile(r"([\w-]{1,100}):(?: (.*))?")
ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)")
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "e": "\x1b",
           "N": "\x85", "_": "\xa0", "L": "\u2028", "P": "\u2029"}  # fmt: skip
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
NORMS: dict[tuple[object, ...], str] = {("", "dan", ""): "post", ("n", "da", "n"): "pre"}


def read_marian(path: Path, languages: Languages = (None, None)) -> Imported:
    """Read a folder with decoder.yml, model.npz, vocab.yml, source.spm and target.spm."""
    decoder = simple_yaml(foreign_lines(path / "decoder.yml")) if (path / "decoder.yml").is_file() else {}
    arrays = Arrays(_weights_file(path, decoder))
    settings = arrays.settings()
    for name, values in EXPECTED.items():
        if (value := settings.get(name, values[0])) not in values:
            wanted = " or ".join(shown(one) for one in values)
            raise FolderError(f"The model has {name} = {brief(value)}, which is not supported: {wanted} was expected.")
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


def simple_yaml(lines: list[str]) -> Settings:
    """Read names with a value or a list of values each, all as texts; deeper levels are ignored."""
    found: Settings = {}
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
    ids: dict[str, int] = {}
    key = ""
    for line in filter(str.strip, foreign_lines(file)):
        if line.startswith("? "):
            key = line[2:]
            continue
        token, _, number = line.rpartition(":")
        token = unquoted((token or key).strip())
        number = number.strip()
        if not number.isdecimal() or len(number) > 9 or token in ids:
            raise FolderError(f"{shown(file.name)} does not give each token one id: {brief(line)}.")
        ids[token] = int(number)
    names = sorted(ids, key=ids.__getitem__)
    if [ids[name] for name in names] != list(range(len(names))) or not {END, UNKNOWN} <= ids.keys():
        raise FolderError(
            f"{shown(file.name)} does not number its tokens from 0 without gaps, with {END} and {UNKNOWN} among them."
        )
    return names


def _named(path: Path, decoder: Settings, key: str) -> list[Path]:
    """Return the files that decoder.yml names, without the folders that it names them in."""
    value = decoder.get(key, [])
    names = value if isinstance(value, list) else [value] if value else []
    return [path / Path(name).name for name in names]


def _weights_file(path: Path, decoder: Settings) -> Path:
    """Return the file that decoder.yml names, or the only one of its kind."""
    found = _named(path, decoder, "models") or sorted(path.glob("*.npz"))
    if len(found) != 1:
        raise FolderError(
            f"{path.name} has {len(found)} models ({', '.join(shown(one.name) for one in found[:4])}): one was "
            "expected. Import the models of an ensemble one by one: leave one name in decoder.yml."
        )
    return found[0]


def _vocabularies(path: Path, decoder: Settings) -> tuple[Path, Path]:
    """Return the files of both vocabularies, which may be one."""
    found = _named(path, decoder, "vocabs")
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
        return FolderError(f"{shown(self.file.name)} cannot be read ({brief(str(why))}): copy or download it again.")

    def array(self, name: str) -> np.ndarray:
        """Return an array."""
        if name not in self.sizes:
            raise FolderError(f"The model has no weights {shown(name)}: the file may be incomplete.")
        try:
            with np.load(self.file, allow_pickle=False) as packed:
                found: np.ndarray = packed[name]
            if min(found.shape, default=1) < 1:
                raise ValueError("an array without numbers")
            return found
        except (ValueError, KeyError, OSError, EOFError, MemoryError, RuntimeError, zipfile.BadZipFile) as error:
            raise self._damaged(f"{name}: {error}") from None

    def settings(self) -> Settings:
        """Return the settings of the model."""
        if self.sizes[SETTINGS] > MOST_SETTINGS:
            raise self._damaged("its settings are too long")
        return simple_yaml(self.array(SETTINGS).tobytes().rstrip(b"\0").decode("utf-8", errors="replace").split("\n"))

    def tensor(self, name: str, turned: bool = False) -> Tensor:
        """Return an array as a tensor; ``turned``: with rows and columns exchanged."""
        found = self.array(name)
        if found.dtype not in (np.float32, np.float16):
            raise FolderError(
                f"The weights {shown(name)} are {found.dtype}: 16-bit or 32-bit floats were expected. Import "
                "the model as it was before quantization."
            )
        return torch.from_numpy((found.T if turned else found).copy())

    def flat(self, name: str) -> Tensor:
        """Return a matrix, which Marian stores transposed, or a vector, which it stores as a matrix of one row."""
        found = self.tensor(name, turned=True)
        return found.reshape(-1) if min(found.shape, default=1) == 1 else found.contiguous()


def _number(settings: Settings, name: str) -> int:
    value = settings.get(name)
    if not isinstance(value, str) or not value.isdecimal() or len(value) > 9:
        raise FolderError(f"The model has {name} = {brief(value)}: a whole number was expected.")
    return int(value)


def _feed_forward(settings: Settings) -> dict[str, int]:
    """Return d_ff of each half. A 0 for the decoder means that it is the encoder's."""
    own = "transformer-decoder-dim-ffn"
    size = _number(settings, "transformer-dim-ffn")
    return {"encoder": size, "decoder": (_number(settings, own) if own in settings else 0) or size}


def _model(settings: Settings, arrays: Arrays) -> ModelConfig:
    places = tuple(settings.get(f"transformer-{at}", "") for at in ("preprocess", "postprocess", "postprocess-top"))
    if places not in NORMS:
        raise FolderError(
            f"The model's norms are {brief(places)}: '', 'dan', '' (after each sublayer) or 'n', 'da', 'n' (before "
            "it) were expected."
        )
    shared = "Wemb" in arrays.sizes
    # and a row for the token before an answer
    rows = [arrays.tensor("Wemb" if shared else f"{half}_Wemb").shape[0] + 1 for half in HALVES]
    dropout = str(settings.get("transformer-dropout"))
    return model_config(
        source_vocabulary=rows[0],
        target_vocabulary=rows[1],
        d_model=_number(settings, "dim-emb"),
        heads=_number(settings, "transformer-heads"),
        d_ff=max(_feed_forward(settings).values()),
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
    return next((name for name in ("decoder_ff_logit_out_Wt", "decoder_ff_logit_out_W") if name in arrays.sizes), None)


def _weights(arrays: Arrays, model: ModelConfig, widths: dict[str, int]) -> Renamed:
    readers: dict[str, Callable[[], Tensor]] = {}
    used = {SETTINGS, "Wpos", "decoder_ff_logit_out_b"}

    def put(ours: str, theirs: str, read: Callable[[str], Tensor]) -> None:
        readers[ours] = partial(read, theirs)
        used.add(theirs)

    def put_norm(ours: str, theirs: str) -> None:
        for ours_, kind in (("weight", "scale"), ("bias", "bias")):
            names = (f"{theirs}_{kind}_pre", f"{theirs}_{kind}")
            put(f"{ours}.{ours_}", next((one for one in names if one in arrays.sizes), names[1]), arrays.flat)

    for half in HALVES:
        if half == "encoder" or not model.share_embeddings:
            table = "Wemb" if model.share_embeddings else f"{half}_Wemb"
            put(f"{half}.embedding.table.weight", table, lambda name: with_zeros(arrays.tensor(name)))
        computed = partial(positions, model.max_length, model.d_model)
        readers[f"{half}.embedding.positions"] = (
            (lambda: arrays.tensor("Wpos")[: model.max_length]) if "Wpos" in arrays.sizes else computed
        )
        if model.embedding_norm:
            put_norm(f"{half}.embedding.norm", f"{half}_emb_ln")
        if model.norm == "pre":
            put_norm(f"{half}.norm", f"{half}_top_ln")
    for half, number, part in parts_of(layers_of(model)):
        ours, theirs = f"{half}.layers.{number}.{part.ours}", f"{half}_l{number + 1}_{part.marian}"
        if part.ours.endswith("norm"):
            put_norm(ours, theirs)
        else:
            for kind, letter in zip(KINDS, "Wb", strict=True):
                put(f"{ours}.{kind}", theirs.format(letter), arrays.flat)
    if (own := _own_output(arrays)) is not None:
        put("output.weight", own, lambda name: with_zeros(arrays.tensor(name, turned=name.endswith("_W"))))
    if unknown := arrays.sizes.keys() - used:
        raise unexpected(min(unknown))
    bias = arrays.tensor("decoder_ff_logit_out_b").reshape(-1).float()
    readers["output.bias"] = lambda: torch.cat([bias, torch.tensor([NEVER])])
    return Renamed(readers).widened(widths, model)


def _decoding(decoder: Settings, model: ModelConfig, out: list[int]) -> DecodingConfig:
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
