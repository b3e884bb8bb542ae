"""A model folder is everything: config.toml, model.safetensors, the tokenizers, card.md. No pickle, no code."""

from __future__ import annotations

import hashlib
import logging
import os
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import Protocol

from seq2see.config import LARGEST_CONFIG, RETIRED, Config, ModelConfig
from seq2see.errors import FolderError, shown, suggest
from seq2see.files import STEP, carry_over, parsed, plain_file, read_text, replacing, whole_or_nothing
from seq2see.files import write_atomically as write_atomically
from seq2see.tokenizers.tokenizer import Tokenizer

CONFIG, WEIGHTS, CARD = "config.toml", "model.safetensors", "card.md"
TOKENIZER, SOURCE_TOKENIZER, TARGET_TOKENIZER = ("tokenizer.json", "source-tokenizer.json", "target-tokenizer.json")
TOKENIZER_FILES = {TOKENIZER, SOURCE_TOKENIZER, TARGET_TOKENIZER}
CONFIDENCE, PICTURE = "confidence.json", "reliability.png"
LOG, CURVES = "log.jsonl", "curves.png"  # the table of the training, and its picture
TRAINED = "training.json"
CHECKSUMS = "SHA256SUMS"  # in the form of sha256sum
EXPORT = "ctranslate2"  # the folder of an exported engine
SHIPPED = Path(__file__).parent.parent / "models"
LARGEST_HEAD, LARGEST_CARD, LARGEST_SUMS, LARGEST_LOG = 2**24, 2**20, 2**16, 2**26  # bytes
SLACK = 2**20  # parameters that a config may have beyond those of its weights
BYTES_OF = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I8": 1}


class Storable(Protocol):
    """A part of a model that a folder keeps as JSON."""

    def to_json(self) -> str:
        """Return the text of its file."""
        ...


def shipped_models() -> list[str]:
    """Name the models that come with the package."""
    return sorted(path.parent.name for path in SHIPPED.glob(f"*/{CONFIG}"))


def find(name: str | os.PathLike[str]) -> Path:
    """Find a model by the name of a shipped one or by its folder."""
    shipped = shipped_models()
    if str(name) in shipped:
        return SHIPPED / str(name)
    path = Path(name)
    if not path.exists():
        raise FolderError(f"There is no model {str(name)!r}: neither a folder nor a model that ships. "
                          f"{suggest(str(name), shipped)}")  # fmt: skip
    if not (path / CONFIG).is_file():
        raise FolderError(
            f"{str(name)!r} is not a model folder: it has no {CONFIG}. `seq2see train` makes such folders."
        )
    return path


@dataclass(frozen=True)
class Tokenizers:
    """The tokenizers of both sides; one object if they share a vocabulary."""

    source: Tokenizer
    target: Tokenizer

    @property
    def shared(self) -> bool:
        """Whether both sides are one tokenizer."""
        return self.source is self.target

    @property
    def named(self) -> str:
        """The kinds of the tokenizers: ``characters``, or ``characters → symbols``."""
        source, target = self.source.kind, self.target.kind
        return source if source == target else f"{source} → {target}"

    @classmethod
    def one(cls, tokenizer: Tokenizer) -> Tokenizers:
        """Use one tokenizer for both sides."""
        return cls(tokenizer, tokenizer)


def read_config(path: Path) -> Config:
    """Read the config of a model folder."""
    return Config.read(path / CONFIG)


def read_tokenizers(path: Path) -> Tokenizers:
    """Read the tokenizers of a model folder."""
    found = _tokenizers(path)
    if not (found.source.own and found.target.own) and (path / CONFIG).is_file():
        model = read_config(path).model
        found.source.keep_to(model.source_vocabulary)
        found.target.keep_to(model.target_vocabulary)
    return found


def _tokenizers(path: Path) -> Tokenizers:
    if (path / TOKENIZER).is_file():
        return Tokenizers.one(Tokenizer.load(path / TOKENIZER))
    for name in (SOURCE_TOKENIZER, TARGET_TOKENIZER):
        if not (path / name).is_file():
            raise FolderError(f"{path.name} has no {TOKENIZER} and no {name}: the folder is incomplete.")
    return Tokenizers(Tokenizer.load(path / SOURCE_TOKENIZER), Tokenizer.load(path / TARGET_TOKENIZER))


@cache
def _name_retired(path: Path) -> None:
    """Say once which settings of an earlier version a folder has."""
    table = tomllib.loads(read_text(path / CONFIG, LARGEST_CONFIG))
    if gone := [f"{part}.{name}" for part, names in RETIRED.items() for name in table.get(part, {}) if name in names]:
        told = "%s has settings of an earlier version, which are passed over; no answer changes: %s."
        logging.getLogger("seq2see").warning(told, path.name, ", ".join(gone))


def opened(name: str | os.PathLike[str]) -> tuple[Path, Config, Tokenizers]:
    """Find a model folder, and read all of it but its weights. Every reader of a whole model begins here.

    A folder whose parts do not fit together is refused, before a network of the size that its config says is made.
    """
    path = find(name)
    config, tokenizers = read_config(path), read_tokenizers(path)
    if path.parent != SHIPPED:
        _name_retired(path)
    for side, tokenizer, size in (
        ("source", tokenizers.source, config.model.source_vocabulary),
        ("target", tokenizers.target, config.model.target_vocabulary),
    ):
        if tokenizer.size != size:
            raise FolderError(
                f"{path.name} does not fit together: its config says {size} {side} tokens, "
                f"its tokenizer has {tokenizer.size}."
            )
    check_weights(path, config.model)
    return path, config, tokenizers


def weights_path(path: Path) -> Path:
    """Return the path of a model folder's weights, or raise if they are missing."""
    weights = path / WEIGHTS
    if not weights.is_file():
        raise FolderError(f"{path.name} has no {WEIGHTS}: the folder is incomplete, or its training has not finished "
                          "(`seq2see train … --resume` goes on).")  # fmt: skip
    return weights


def parameter_count(path: Path) -> int:
    """Count the numbers in a model folder's weights from the header of the file."""
    return sum(prod(shape) for name, (_, shape) in weights_head(weights_path(path)).items() if not is_step(name))


def is_step(name: str) -> bool:
    """Whether a tensor holds the scales of a compressed matrix, which are not parameters."""
    return name.endswith(STEP)


def weights_head(path: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Read the header of a safetensors file: the type and shape of each tensor.

    The header must account for every byte of the file, so that no memory is allocated for missing numbers.
    """
    size = plain_file(path)

    def refuse(why: str) -> FolderError:
        return FolderError(f"{path.name} cannot be read as safetensors ({why}): copy or train it again.")

    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, LARGEST_HEAD):
            raise refuse(f"its header would have {length:,} bytes" if size >= 8 else "it is too short")
        text = file.read(length)
    head = parsed(text, f"the header of {path.name}")
    if not isinstance(head, dict):
        raise refuse("its header is not a table")
    head.pop("__metadata__", None)
    found: dict[str, tuple[str, tuple[int, ...]]] = {}
    places: list[tuple[int, int]] = []
    for name, entry in head.items():
        try:
            kind, shape, (first, last) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
            good = all(type(number) is int and 0 <= number < 2**48 for number in (*shape, first, last))
        except (TypeError, KeyError, ValueError):
            raise refuse(f"its header describes {shown(name)} wrongly") from None
        if not isinstance(kind, str) or kind not in BYTES_OF:
            raise refuse(f"{shown(name)} has numbers of type {shown(str(kind))}, and {', '.join(BYTES_OF)} are known")
        if not good or prod(shape) * BYTES_OF[kind] != last - first:
            raise refuse(f"the size of {shown(name)} in the header does not match its shape")
        found[name] = kind, shape
        places.append((first, last))
    places.sort()
    ends = [0, *(last for _, last in places)]
    if [first for first, _ in places] != ends[:-1] or ends[-1] != size - 8 - length:
        raise refuse("its header does not match the number of bytes in the file")
    for name, (kind, shape) in found.items():
        if kind == "I8" and found.get(name + STEP) != ("F32", (*shape[:-1], 1)):
            raise FolderError(f"{path.name} lacks {shown(name + STEP, 100)}, one for each row: copy or train it again.")
    return found


def check_weights(path: Path, config: ModelConfig) -> None:
    """Refuse a file with far fewer weights than the config describes, before a network of that size is made."""
    stored = parameter_count(path)
    if config.parameters > stored + SLACK:
        raise FolderError(
            f"{path.name} does not fit together: its config describes a model of {config.parameters:,} parameters, "
            f"its {WEIGHTS} holds {stored:,}."
        )


def read_card(path: Path) -> str:
    """Read the card of a model folder; a link out of the folder or a file that is not text counts as no card."""
    try:
        plain_file(path / CARD, LARGEST_CARD)
        return (path / CARD).read_text(encoding="utf-8", errors="replace")
    except (FolderError, OSError):
        return ""


def checksums(path: Path) -> str:
    """Write the sha256 of each file of a model folder in the form that `sha256sum -c` reads."""
    rows = []
    for file in sorted(path.rglob("*")):
        if file.is_file() and not file.is_symlink() and file.name != CHECKSUMS:
            plain_file(file)
            with file.open("rb") as data:
                value = hashlib.file_digest(data, "sha256").hexdigest()
            rows.append(f"{value}  {file.relative_to(path).as_posix()}\n")
    return "".join(rows)


def check_sums(path: Path) -> int:
    """Compare a folder with its list of checksums, and return how many files it lists; 0 if there is no list."""
    if not (path / CHECKSUMS).exists():
        return 0
    listed = read_text(path / CHECKSUMS, LARGEST_SUMS).splitlines()
    real = set(checksums(path).splitlines())
    for row in listed:
        if row not in real:
            raise FolderError(
                f"{shown(row[66:])} of {path.name} is not the file that {CHECKSUMS} lists: it was damaged or changed. "
                f"Copy the folder again; if you changed it yourself, remove {CHECKSUMS}."
            )
    return len(listed)


def refuse_finished(path: Path) -> None:
    """Refuse to write where a finished model is."""
    if (path / WEIGHTS).exists():
        raise FolderError(f"{path} already holds a finished model: name another folder with `out`, or remove it.")


def write(
    path: Path,
    config: Config,
    tokenizers: Tokenizers,
    weights: bytes,
    card: str,
    also: Callable[[Path], None] | None = None,
    confidence: Storable | None = None,
) -> None:
    """Write a whole model folder, new or in the place of another model; ``also`` adds files to it.

    A new folder gets its name when it is complete; the folder of a training gets its weights last. Another
    model is replaced in one step, so that the folder is the old model or the new one at every moment; other
    files of the folder stay.
    """
    if path.exists() and not path.is_dir():
        raise FolderError(f"{path} is a file: a folder for the model was expected.")
    if path.is_dir() and any(path.iterdir()) and not (path / CONFIG).is_file():
        raise FolderError(f"{path} is not empty, and holds no model: choose a folder that does not exist yet.")

    def fill(place: Path) -> None:
        write_tokenizers(place, tokenizers)
        write_atomically(place / CONFIG, config.to_toml().encode())
        write_atomically(place / CARD, card.encode())
        if confidence is None:
            (place / CONFIDENCE).unlink(missing_ok=True)
        else:
            write_atomically(place / CONFIDENCE, confidence.to_json().encode())
        write_atomically(place / WEIGHTS, weights)
        if also is not None:
            also(place)

    if not path.exists() or not any(path.iterdir()):
        with whole_or_nothing(path) as new:
            fill(new)
    elif not (path / WEIGHTS).exists():
        fill(path)
    else:
        with replacing(path) as new:
            fill(new)
            left = {CONFIG, WEIGHTS, CARD, EXPORT, CONFIDENCE, PICTURE, CURVES, CHECKSUMS, TRAINED, *TOKENIZER_FILES}
            carry_over(path, new, left)


def write_tokenizers(path: Path, tokenizers: Tokenizers) -> None:
    """Write one tokenizer file, or two, and remove those of another model."""
    files = {TOKENIZER: tokenizers.source} if tokenizers.shared else {}
    if not files:
        files = {SOURCE_TOKENIZER: tokenizers.source, TARGET_TOKENIZER: tokenizers.target}
    for name in TOKENIZER_FILES - files.keys():
        (path / name).unlink(missing_ok=True)
    for name, tokenizer in files.items():
        write_atomically(path / name, tokenizer.to_json().encode())
