"""The weights of other libraries: what each format calls them, and how they are read by name, without running code.

Files of safetensors and of PyTorch are memory-mapped.
"""

from __future__ import annotations

import argparse
import pickle
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy._core import multiarray
from safetensors import SafetensorError, safe_open
from torch import Tensor

from seq2see.config import ModelConfig
from seq2see.errors import FolderError, shown
from seq2see.interchange.imported import LARGEST_WEIGHTS, Renamed, foreign, read_json


class Part(NamedTuple):
    """A matrix or a norm of a layer, as each format calls it."""

    ours: str
    fairseq: str  # and Hugging Face
    marian: str  # {} is W for a matrix and b for its bias
    ctranslate2: str
    part: int = 0  # of CTranslate2's matrix, which may hold several
    of: int = 1


SELF = (
    Part("self_attention.w_q", "self_attn.q_proj", "self_{}q", "self_attention/linear_0", 0, 3),
    Part("self_attention.w_k", "self_attn.k_proj", "self_{}k", "self_attention/linear_0", 1, 3),
    Part("self_attention.w_v", "self_attn.v_proj", "self_{}v", "self_attention/linear_0", 2, 3),
    Part("self_attention.w_o", "self_attn.out_proj", "self_{}o", "self_attention/linear_1"),
    Part("self_attention_norm.norm", "self_attn_layer_norm", "self_Wo_ln", "self_attention/layer_norm"),
)
CROSS = (
    Part("cross_attention.w_q", "encoder_attn.q_proj", "context_{}q", "attention/linear_0"),
    Part("cross_attention.w_k", "encoder_attn.k_proj", "context_{}k", "attention/linear_1", 0, 2),
    Part("cross_attention.w_v", "encoder_attn.v_proj", "context_{}v", "attention/linear_1", 1, 2),
    Part("cross_attention.w_o", "encoder_attn.out_proj", "context_{}o", "attention/linear_2"),
    Part("cross_attention_norm.norm", "encoder_attn_layer_norm", "context_Wo_ln", "attention/layer_norm"),
)
FEED_FORWARD = (
    Part("feed_forward.w_1", "fc1", "ffn_{}1", "ffn/linear_0"),
    Part("feed_forward.w_2", "fc2", "ffn_{}2", "ffn/linear_1"),
    Part("feed_forward_norm.norm", "final_layer_norm", "ffn_ffn_ln", "ffn/layer_norm"),
)
HALVES = {"encoder": SELF + FEED_FORWARD, "decoder": SELF + CROSS + FEED_FORWARD}
KINDS = ("weight", "bias")
TABLES = ("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
#: Entries of a checkpoint that are not weights: version numbers and computed tables.
IDLE = ("version", "embed_positions._float_tensor", "embed_positions.weights")


def parts_of(layers: Mapping[str, int]) -> Iterator[tuple[str, int, Part]]:
    """Yield each part of each layer with its half; ``layers`` has the number of layers of each half."""
    for half, count in layers.items():
        for number in range(count):
            for part in HALVES[half]:
                yield half, number, part


def layers_of(config: ModelConfig) -> dict[str, int]:
    """Return the number of layers of each half."""
    return {"encoder": config.encoder_layers, "decoder": config.decoder_layers}


def unexpected(name: str) -> FolderError:
    """Return the error of weights that have no place in a model."""
    return FolderError(f"The model has weights that this architecture does not have: {shown(name)}.")


def renamed(
    theirs: Mapping[str, Tensor],
    config: ModelConfig,
    tables: tuple[str, str, str],
    bias: Tensor | None = None,
    skipped: int = 0,
) -> Renamed:
    """Return the weights of fairseq or Hugging Face under our names.

    ``tables`` names the two embeddings and the output projection, and ``bias`` is that of the logits. The first
    ``skipped`` rows of learned positions belong to no position.
    """
    found: dict[str, Callable[[], Tensor]] = {}
    used = {*tables, *TABLES}

    def put(ours: str, name: str) -> None:
        if name not in theirs:
            raise FolderError(f"The model has no weights {name!r}: the file may be incomplete.")
        found[ours] = lambda: theirs[name]
        used.add(name)

    source, target, output = tables
    put("encoder.embedding.table.weight", source)
    if not config.share_embeddings:
        put("decoder.embedding.table.weight", target)
    if not config.share_output:
        put("output.weight", output)
    if config.output_bias or not config.share_output:
        numbers = torch.zeros(config.target_vocabulary) if bias is None else bias.reshape(-1)
        found["output.bias"] = lambda: numbers
    pairs = [(f"{half}.layers.{number}.{part.ours}", f"{half}.layers.{number}.{part.fairseq}")
             for half, number, part in parts_of(layers_of(config))]  # fmt: skip
    for half in HALVES:
        pairs += [(f"{half}.norm", f"{half}.layer_norm")] if config.norm == "pre" else []
        pairs += [(f"{half}.embedding.norm", f"{half}.layernorm_embedding")] if config.embedding_norm else []
    for ours, name in pairs:
        for kind in KINDS:
            put(f"{ours}.{kind}", f"{name}.{kind}")
    for half in HALVES:
        name = f"{half}.embed_positions.weight"
        if config.positions == "learned":
            put(f"{half}.embedding.positions", name)
            found[f"{half}.embedding.positions"] = lambda name=name: theirs[name][skipped:]  # type: ignore[misc]
        elif name in theirs:
            _same_positions(theirs[name], config)
            used.add(name)
    for name in theirs:
        if name not in used and name.removeprefix("encoder.").removeprefix("decoder.") not in IDLE:
            raise unexpected(name)
    return Renamed(found)


def _same_positions(table: Tensor, config: ModelConfig) -> None:
    """Refuse a table of positions that differs from the one that this kind of model computes."""
    from seq2see.kernels.positions import table_of

    ours = table_of(len(table), config.d_model, config.positions)
    if table.shape != ours.shape or (table.float() - ours).abs().max() > 1e-3:
        raise FolderError("The position table does not contain the sines and cosines of this family of models.")


# --- files ------------------------------------------------------------------------------------------------------


#: The types in fairseq's checkpoints beside tensors: settings, and numbers of NumPy. None of them runs code.
PLAIN: list[Any] = [
    argparse.Namespace,
    (multiarray._reconstruct, "numpy.core.multiarray._reconstruct"),
    (multiarray.scalar, "numpy.core.multiarray.scalar"),
    np.ndarray,
    np.dtype,
    *(type(np.dtype(kind)) for kind in ("f2", "f4", "f8", "i1", "i4", "i8", "u1", "u4", "u8", "?")),
]


def from_safetensors(paths: Iterable[Path]) -> Renamed:
    """Return the tensors of one or several safetensors files, mapped into memory."""
    readers: dict[str, Callable[[], Tensor]] = {}
    for path in paths:
        try:
            file: Any = safe_open(foreign(path, LARGEST_WEIGHTS), framework="pt")
            readers |= {name: partial(file.get_tensor, name) for name in file.keys()}  # noqa: SIM118 (it is no dict)
        except (SafetensorError, OSError) as error:
            raise FolderError(
                f"{path.name} cannot be read as safetensors ({error}): copy or download it again."
            ) from None
    return Renamed(readers)


def from_pytorch(path: Path) -> Any:
    """Read a file that ``torch.save`` wrote, without running what is pickled in it."""
    try:
        real = foreign(path, LARGEST_WEIGHTS)
        mapped = zipfile.is_zipfile(real)  # the older format cannot be mapped
        with torch.serialization.safe_globals(PLAIN):
            return torch.load(real, map_location="cpu", weights_only=True, mmap=mapped)
    except pickle.UnpicklingError as error:
        what = str(error).split("GLOBAL ")[-1].split(" ")[0] if "GLOBAL " in str(error) else "unknown objects"
        raise FolderError(
            f"{path.name} contains more than tensors and settings ({shown(what, 100)}). Reading that would run code, so "
            "it is refused: save only the weights, preferably as safetensors."
        ) from None
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, AttributeError) as error:
        reason = shown(str(error), 200) if str(error) else type(error).__name__
        raise FolderError(f"{path.name} cannot be read ({reason}): copy or download it again.") from None


def of_folder(path: Path) -> Mapping[str, Tensor]:
    """Return the weights of a Hugging Face folder: safetensors if there are some, else PyTorch's files."""
    for name in ("model.safetensors", "pytorch_model.bin"):
        if (path / name).is_file():
            return _files([path / name])
        index = path / f"{name}.index.json"
        if index.is_file():
            homes = read_json(index).get("weight_map")
            if not isinstance(homes, dict) or not all(isinstance(home, str) and home for home in homes.values()):
                raise FolderError(f"{index.name} has no weight_map: download it again.")
            files = [path / Path(home).name for home in sorted(set(homes.values()))]
            for file in files:
                if not file.is_file():
                    raise FolderError(f"{path.name} has no {shown(file.name)}: the folder is incomplete.")
            return _files(files)
    raise FolderError(f"{path.name} has no weights: neither model.safetensors nor pytorch_model.bin was found.")


def _files(paths: list[Path]) -> Mapping[str, Tensor]:
    if paths[0].suffix == ".safetensors":
        return from_safetensors(paths)
    found: dict[str, Tensor] = {}
    for path in paths:
        read = from_pytorch(path)
        if not isinstance(read, dict) or not all(isinstance(value, Tensor) for value in read.values()):
            raise FolderError(
                f"{path.name} does not contain named tensors only: save only the weights, preferably as safetensors."
            )
        found |= read
    return found
