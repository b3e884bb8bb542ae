"""Weights in and out of safetensors files: plain numbers with names, nothing that could run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from seq2see import devices
from seq2see.config import ModelConfig
from seq2see.errors import FolderError, printable
from seq2see.files import STEP, writing
from seq2see.kernels.registry import network_of
from seq2see.model.transformer import Transformer
from seq2see.storage.folder import weights_head


def weights_of(model: Transformer) -> dict[str, Tensor]:
    """Return the model's parameters by name, shared ones once, as copies on the CPU."""
    return {name: parameter.detach().to("cpu", copy=True) for name, parameter in model.named_parameters()}


def weights_bytes(weights: dict[str, Tensor]) -> bytes:
    """Write weights in the safetensors format."""
    data: bytes = save({name: tensor.contiguous() for name, tensor in weights.items()})
    return data


def write_weights(path: Path, weights: Mapping[str, Tensor]) -> None:
    """Write a safetensors file atomically and tensor by tensor: only one tensor of a large model is in memory."""
    kinds = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
    head, place = {}, 0
    for name, tensor in weights.items():
        size = tensor.numel() * tensor.element_size()
        head[name] = {"dtype": kinds[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [place, place + size]}
        place += size
    written = json.dumps(head).encode()
    written += b" " * (-len(written) % 8)
    with writing(path) as file:
        file.write(len(written).to_bytes(8, "little") + written)
        for tensor in weights.values():
            file.write(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().data)


def in_eight_bits(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Round each row of each matrix to 255 steps and keep the size of the step beside it: a quarter of the bytes."""
    small = {}
    for name, tensor in weights.items():
        if tensor.ndim < 2:
            small[name] = tensor
            continue
        step = tensor.abs().amax(-1, keepdim=True).clamp(min=1e-12) / 127  # (rows, 1)
        small[name] = (tensor / step).round().to(torch.int8)
        small[name + STEP] = step
    return small


def whole(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return rounded weights as floating-point numbers."""
    return {
        name: tensor.float() * weights[name + STEP] if tensor.dtype == torch.int8 else tensor
        for name, tensor in weights.items()
        if not name.endswith(STEP)
    }


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file; rounded weights become floating-point numbers.

    ``weights_head`` checks the file before the library reads it.
    """
    weights_head(path)
    try:
        weights: dict[str, Tensor] = load_file(path)
        for name, tensor in weights.items():
            if tensor.dtype == torch.int8 and weights[name + STEP].shape != (*tensor.shape[:-1], 1):
                raise FolderError(f"{path.name} has {name + STEP!r}, which is not one step for each row.")
        return whole(weights)
    except KeyError as error:
        raise FolderError(f"{path.name} lacks {error.args[0]}: copy or train it again.") from None
    except (SafetensorError, OSError) as error:
        raise FolderError(f"{path.name} cannot be read as safetensors ({error}): copy or train it again.") from None


def put_weights(model: Transformer, weights: dict[str, Tensor], origin: str) -> None:
    """Copy weights into a model after checking names and shapes."""
    expected = dict(model.named_parameters())
    for name in (*expected, *weights):
        if name not in weights:
            raise FolderError(f"{origin} does not fit its config: {name} is missing.")
        if name not in expected:
            raise FolderError(
                f"{origin} does not fit its config: it holds {printable(name)}, which the model does not have."
            )
        if expected[name].shape != weights[name].shape:
            raise FolderError(
                f"{origin} does not fit its config: {name} is {tuple(weights[name].shape)} in the file, "
                f"but {tuple(expected[name].shape)} by the config."
            )
    with torch.no_grad():
        for name, parameter in expected.items():
            parameter.copy_(weights[name])


def read_model(config: ModelConfig, path: Path, device: torch.device | str = "cpu") -> Transformer:
    """Build a model and fill it from a file."""
    devices.check(str(device))
    model = network_of(config)
    put_weights(model, read_weights(path), path.name)
    return placed(model, device).eval()


def placed(model: Transformer, device: torch.device | str) -> Transformer:
    """Move a model to a device, or raise if there is no room for it."""
    try:
        return model.to(device)
    except RuntimeError as error:
        if not devices.is_full(error):
            raise
        raise devices.full(f"a model of {model.parameter_count():,} parameters") from None
