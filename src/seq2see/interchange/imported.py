"""What every reader returns: an imported model, the checks on it, and how it becomes a model folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seq2see.config import Config, DecodingConfig, ModelConfig, TrainingConfig
from seq2see.errors import ConfigError, FolderError, InputError, printable, shown
from seq2see.files import parsed, plain_file, read_text, whole_or_nothing
from seq2see.kernels.registry import network_of
from seq2see.storage import folder
from seq2see.storage.folder import Tokenizers
from seq2see.storage.weights import write_weights

TASK = "imported"  # texts are given to such a model as they are
LFS = b"version https://git-lfs.github.com/spec"
LARGEST_SETTING = 10**9  # the largest whole number that is accepted in a setting
LARGEST_LIST, LARGEST_WEIGHTS = 2**26, 2**37  # bytes of a file
NEVER = -100.0  # the logit of a token that is here but not in the original model: its probability is 0
PADDING = 256  # most rows of an embedding table without a token: more mean that the vocabulary is another one


@dataclass
class Imported:
    """A model that was read, with its weights under our names."""

    family: str
    model: ModelConfig
    decoding: DecodingConfig
    tokenizers: Tokenizers
    weights: Mapping[str, Tensor]
    licence: str = ""
    notes: list[str] = field(default_factory=list)  # shown to the user and written into the card

    def write(self, out: Path, origin: str) -> None:
        """Write a model folder, whole or not at all."""
        config = Config(TASK, self.model, TrainingConfig(), self.decoding)
        checked = check(self)
        with whole_or_nothing(out) as made:
            folder.write_tokenizers(made, self.tokenizers)
            folder.write_atomically(made / folder.CONFIG, config.to_toml().encode())
            folder.write_atomically(made / folder.CARD, self.card(out.name, origin, checked).encode())
            write_weights(made / folder.WEIGHTS, self.weights)
            try_out(made)

    def card(self, name: str, origin: str, checked: str) -> str:
        """Return the text of card.md."""
        lines = [
            f"# {name}",
            "",
            f"Imported from {origin} ({self.family}) by `seq2see import`.",
            "",
            f"- Licence: {self.licence or 'not stated in its files; ask its authors'}.",
            f"- Parameters: {self.model.parameters:,}.",
            f"- Checked: {checked}",
            *(f"- {note}" for note in self.notes),
        ]
        return "\n".join(lines) + "\n"


#: Texts that the tokenizers of a new folder must process before the folder is kept.
TRIED = (
    "",
    "a",
    "The cat  sat.",
    "\u00e9\u1e9e \u6f22\u5b57 \U0001f642\u200d\u0301",
    "<s></s> <unk>\n\t\x00",
    "x" * 300,
)


def try_out(path: Path) -> None:
    """Read a new folder as it will be read later, and encode some texts with its tokenizers."""
    _, _, tokenizers = folder.opened(path)
    for tokenizer in (tokenizers.source, tokenizers.target):
        for text in TRIED:
            try:
                tokenizer.check(text)
            except InputError:
                continue
            ids = tokenizer.encode(text)
            if any(not 0 <= number < tokenizer.size for number in ids):
                raise FolderError("The tokenizer produces ids that are not in the model's vocabulary.")
            tokenizer.decode(ids)


def check(found: Imported) -> str:
    """Raise a FolderError if the weights do not fit the config; return what was checked."""
    with torch.device("meta"):
        expected = {name: tuple(p.shape) for name, p in network_of(found.model).named_parameters()}
    for name, shape in expected.items():
        if name not in found.weights:
            raise FolderError(f"The model has no weights for {name}: the file may be incomplete.")
        tensor = found.weights[name]
        if tuple(tensor.shape) != shape:
            raise FolderError(
                f"The weights do not match the config: {name} has the shape {tuple(tensor.shape)}, and {shape} was "
                "expected."
            )
        if tensor.dtype not in (torch.float32, torch.float16, torch.bfloat16):
            raise FolderError(f"The weights for {name} are {tensor.dtype}: 16-bit or 32-bit floats were expected.")
        if tensor.untyped_storage().nbytes() < tensor.numel() * tensor.element_size():
            raise FolderError(f"There are fewer weights for {name} than its shape requires: the file is damaged.")
    for name, tensor in found.weights.items():
        if name not in expected:
            raise FolderError(f"The model has weights that this architecture does not have: {shown(name)}.")
        if not torch.isfinite(tensor).all():
            raise FolderError(f"The weights for {name} are not all finite: the file is damaged.")
    for side, tokenizer, size in (
        ("source", found.tokenizers.source, found.model.source_vocabulary),
        ("target", found.tokenizers.target, found.model.target_vocabulary),
    ):
        if tokenizer.size != size:
            raise FolderError(
                f"The vocabulary does not match: the model has {size:,} {side} tokens, and its tokenizer "
                f"{tokenizer.size:,}."
            )
        ids = [*tokenizer.before, *tokenizer.after, tokenizer.pad]
        if max(ids) >= size:
            raise FolderError(
                f"The vocabulary does not match: the {side} needs token {max(ids)}, but the model has only {size:,}."
            )
    return (
        f"all {len(expected)} tensors are there, with the shapes that the config gives, finite, and there are no "
        "others."
    )


def fitting(count: int, size: int, what: str) -> None:
    """Raise a FolderError if the number of tokens does not fit the number of rows of the table."""
    if abs(size - count) > min(PADDING, size // 4):
        raise FolderError(
            f"The vocabulary does not match: {what} has {count:,} tokens, but the embedding table has {size:,} rows."
        )


def model_config(**settings: Any) -> ModelConfig:
    """Make the config of a model. An impossible value is an error of the imported model, not of the user's config."""
    try:
        return ModelConfig.of(**settings)
    except ConfigError as error:
        raise FolderError(f"A model of this shape cannot be imported: {error}") from None


def one_number_of_heads(encoder: int, decoder: int) -> int:
    """Return the number of heads, which both halves must have."""
    if encoder != decoder:
        raise FolderError(
            f"The encoder has {encoder} heads and the decoder {decoder}: only equal numbers are supported, as in the "
            "paper. Run this model with its own library."
        )
    return encoder


def brief(value: object) -> str:
    """Return a value of an imported file for a message: on one line, shortened."""
    text = printable(repr(value))
    return text if len(text) <= 80 else f"{text[:60]}… ({len(text):,} characters)"


def decoding_config(**settings: Any) -> DecodingConfig:
    """Make the rules of a search. An impossible value is an error of the imported model."""
    try:
        return DecodingConfig.of(**settings)
    except ConfigError as error:
        raise FolderError(f"The generation settings cannot be followed: {error}") from None


def ids_of(settings: dict[str, Any], name: str) -> list[int]:
    """Return the ids of a setting that is one id, a list of them, or nothing."""
    value = settings.get(name)
    return checked_ids([] if value is None else value if isinstance(value, list) else [value], name)


def checked_ids(values: list[Any], name: str) -> list[int]:
    """Return ids that a setting lists, each once."""
    if any(type(number) is not int or not 0 <= number < LARGEST_SETTING for number in values):
        raise FolderError(f"The settings have {name} = {brief(values)}: token ids were expected.")
    return list(dict.fromkeys(values))


def foreign(path: Path, most: int) -> Path:
    """Return the real path of a file in an imported folder, or refuse the file.

    A link out of the folder is refused, unless it leads into the cache of the Hugging Face Hub that the folder is a part
    of (``snapshots/REVISION`` beside ``blobs``). So are devices, pipes, files of more than ``most`` bytes, and Git LFS
    pointers.
    """
    hub = path.parent.resolve().parent
    real = path.resolve() if path.is_symlink() and hub.name == "snapshots" else path
    real = real if real.parent == hub.parent / "blobs" else path
    if not real.exists():
        raise FolderError(f"{path.parent.name} has no {path.name}: the folder is incomplete.")
    if plain_file(real, most) < 1024:
        with real.open("rb") as file:
            if file.read(len(LFS)) == LFS:
                raise FolderError(
                    f"{path.name} is a Git LFS pointer, not the file itself: run `git lfs pull` in its folder, or "
                    "download it."
                )
    return real


def foreign_lines(path: Path) -> list[str]:
    """Read a list of tokens, one a line."""
    return read_text(foreign(path, LARGEST_LIST), LARGEST_LIST).split("\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds an object."""
    try:
        found = parsed(read_text(foreign(path, LARGEST_LIST), LARGEST_LIST), path.name)
    except FolderError as error:
        if "not JSON" in str(error):
            raise FolderError(f"{path.name} is not valid JSON: copy or download it again.") from None
        raise
    if not isinstance(found, dict):
        raise FolderError(f"{path.name} does not contain a JSON object: copy or download it again.")
    return found


class Renamed(Mapping[str, Tensor]):
    """Weights under our names. Each is read from its file when it is needed."""

    def __init__(self, readers: dict[str, Callable[[], Tensor]]) -> None:
        self.readers = readers

    def __getitem__(self, name: str) -> Tensor:
        return self.readers[name]()

    def __iter__(self) -> Any:
        return iter(self.readers)

    def __len__(self) -> int:
        return len(self.readers)

    def widened(self, widths: Mapping[str, int], config: ModelConfig) -> Renamed:
        """Extend the feed-forward networks of the half that has fewer units to d_ff, the width of the other.

        The new units read nothing and write nothing: relu, gelu and swish of 0 are 0. So no answer changes.
        """
        half = min(widths, key=widths.__getitem__)
        size = widths[half]
        if size == config.d_ff:
            return self
        other = "decoder" if half == "encoder" else "encoder"
        _expect(self, f"{other}.layers.0.feed_forward.w_1.weight", (config.d_ff, config.d_model))
        shapes = {"w_1.weight": (size, config.d_model), "w_1.bias": (size,), "w_2.weight": (config.d_model, size)}
        filled = {
            name: partial(_filled, self, name, shapes[kind], config.d_ff - size)
            for name in self.readers
            if name.startswith(f"{half}.layers.") and (kind := ".".join(name.split(".")[-2:])) in shapes
        }
        return Renamed({**self.readers, **filled})


def with_zeros(x: Tensor) -> Tensor:
    """Add a row of zeros to a table: Marian's decoder starts with such a vector."""
    return torch.cat([x, x.new_zeros(1, *x.shape[1:])])


def _expect(weights: Renamed, name: str, shape: tuple[int, ...]) -> Tensor:
    """Return weights if they have this shape and as many numbers; zeros are added only to weights that were checked."""
    tensor = weights[name] if name in weights else torch.empty(0)
    if tuple(tensor.shape) != shape or tensor.untyped_storage().nbytes() < tensor.nbytes:
        raise FolderError(
            f"The weights do not match the config: {name} has the shape {tuple(tensor.shape)}, and {shape} was expected."
        )
    return tensor


def _filled(weights: Renamed, name: str, shape: tuple[int, ...], more: int) -> Tensor:
    """Add rows of zeros to W_1 and its bias, columns of zeros to W_2."""
    tensor = _expect(weights, name, shape)
    below = (0, 0, 0, more) if name.endswith("w_1.weight") else (0, more)
    return torch.nn.functional.pad(tensor, below)
