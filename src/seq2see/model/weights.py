"""Weights in and out of safetensors files: plain numbers with names, nothing that could run."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from seq2see.config import ModelConfig
from seq2see.errors import FolderError
from seq2see.model.transformer import Transformer


def weights_of(model: Transformer) -> dict[str, Tensor]:
    """Return the model's parameters by name, shared ones once, as copies on the CPU."""
    return {name: parameter.detach().to("cpu", copy=True) for name, parameter in model.named_parameters()}


def weights_bytes(weights: dict[str, Tensor]) -> bytes:
    """Write weights in the safetensors format."""
    data: bytes = save({name: tensor.contiguous() for name, tensor in weights.items()})
    return data


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file."""
    try:
        weights: dict[str, Tensor] = load_file(path)
        return weights
    except (SafetensorError, OSError) as error:
        raise FolderError(
            f"{path.name} cannot be read as safetensors ({error}): copy or train it again."
        ) from None


def put_weights(model: Transformer, weights: dict[str, Tensor], origin: str) -> None:
    """Copy weights into a model after checking that they are the ones that it has."""
    expected = dict(model.named_parameters())
    for name in (*expected, *weights):
        if name not in weights:
            raise FolderError(f"{origin} does not fit its config: {name} is missing.")
        if name not in expected:
            raise FolderError(
                f"{origin} does not fit its config: it holds {name}, which the model does not have."
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
    model = Transformer(config)
    put_weights(model, read_weights(path), path.name)
    return model.to(device).eval()
