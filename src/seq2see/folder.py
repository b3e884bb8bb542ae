"""A model folder is everything: config.toml, model.safetensors, the tokenizers, card.md. No pickle, no code."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from math import prod
from pathlib import Path

from seq2see.config import Config
from seq2see.errors import FolderError, suggest
from seq2see.text.tokenizer import Tokenizer

CONFIG, WEIGHTS, CARD = "config.toml", "model.safetensors", "card.md"
TOKENIZER, SOURCE_TOKENIZER, TARGET_TOKENIZER = (
    "tokenizer.json",
    "source-tokenizer.json",
    "target-tokenizer.json",
)
TOKENIZER_FILES = {TOKENIZER, SOURCE_TOKENIZER, TARGET_TOKENIZER}
SHIPPED = Path(__file__).parent / "models"


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
    """How the two sides are cut; one and the same object where they share a vocabulary."""

    source: Tokenizer
    target: Tokenizer

    @property
    def shared(self) -> bool:
        """Whether both sides are one tokenizer."""
        return self.source is self.target

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
    if not found.source.own and (path / CONFIG).is_file():
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


def weights_path(path: Path) -> Path:
    """Return where a model folder's weights are, or say that they are missing."""
    weights = path / WEIGHTS
    if not weights.is_file():
        raise FolderError(f"{path.name} has no {WEIGHTS}: the folder is incomplete, or its training has not finished "
                          "(`seq2see train … --resume` goes on).")  # fmt: skip
    return weights


def parameter_count(path: Path) -> int:
    """Count the numbers in a model folder's weights by the head of the file alone."""
    with weights_path(path).open("rb") as file:
        head = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return sum(
        prod(entry["shape"])
        for name, entry in head.items()
        if name != "__metadata__"
        and not name.endswith("/step")  # the step of a compressed matrix is no parameter
    )


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that it is either whole or not there, even if the power goes."""
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        temporary = Path(name)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise FolderError(
                f"{path.name} could not be written to {path.parent}: {error.strerror}."
            ) from error
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def write(path: Path, config: Config, tokenizers: Tokenizers, weights: bytes, card: str) -> None:
    """Write a whole model folder, new or in the place of another model; with weights, written last, it is complete."""
    if path.exists() and not path.is_dir():
        raise FolderError(f"{path} is a file: a folder for the model was expected.")
    if path.is_dir() and any(path.iterdir()) and not (path / CONFIG).is_file():
        raise FolderError(f"{path} is not empty, and holds no model: choose a folder that is not there yet.")
    write_tokenizers(path, tokenizers)
    write_atomically(path / CONFIG, config.to_toml().encode())
    write_atomically(path / CARD, card.encode())
    write_atomically(path / WEIGHTS, weights)


def write_tokenizers(path: Path, tokenizers: Tokenizers) -> None:
    """Write one tokenizer file, or two, and remove what another model may have left in their place."""
    for name in (SOURCE_TOKENIZER, TARGET_TOKENIZER) if tokenizers.shared else (TOKENIZER,):
        (path / name).unlink(missing_ok=True)
    if tokenizers.shared:
        write_atomically(path / TOKENIZER, tokenizers.source.to_json().encode())
    else:
        write_atomically(path / SOURCE_TOKENIZER, tokenizers.source.to_json().encode())
        write_atomically(path / TARGET_TOKENIZER, tokenizers.target.to_json().encode())
