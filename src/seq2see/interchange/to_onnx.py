"""Exports a model folder to ONNX, an encoder and a decoder with cached keys and values, and checks it in ``onnxruntime``.

``encoder.onnx`` maps ``source`` (B, S) and ``real`` (B, S; False is padding) to the keys and values of the source for
each layer of the decoder. ``decoder.onnx`` maps one ``token`` (B, 1), its ``position`` (1), ``real``, these keys and
values and those of the answer so far (B, P, H, K) to ``logits`` (B, 1, V) and the keys and values of one token more.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seq2see.config import Config
from seq2see.decoding.hypothesis import Special
from seq2see.decoding.readers import padded
from seq2see.files import whole_or_nothing
from seq2see.interchange.checks import Compared, compared, made_up
from seq2see.kernels.layers import FastAttention
from seq2see.kernels.shared import Cache
from seq2see.model.decoder import DecoderLayer
from seq2see.model.masks import Mask
from seq2see.model.transformer import Transformer, at_rest
from seq2see.storage.folder import Tokenizers, write_tokenizers

INPUTS = 16
LONGEST = 30  # tokens of an answer in the check


class _Encoder(nn.Module):
    """Maps source ids to the keys and values of each layer's cross-attention."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, real: Tensor) -> list[Tensor]:
        """Map (B, S) to k and v (B, S, H, K) of each layer."""
        memory = self.model.encode(source, Mask(keys=real))
        found: list[Tensor] = []
        for layer in self.model.decoder.layers:
            assert isinstance(layer, DecoderLayer)
            assert isinstance(layer.cross_attention, FastAttention)
            found += layer.cross_attention.keys_values(memory)
        return found


class _Decoder(nn.Module):
    """Maps one more token to the logits of the next token and to all keys and values so far."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, token: Tensor, position: Tensor, real: Tensor, source: list[Tensor], past: list[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """Map (B, 1) to (B, 1, V); ``source`` and ``past`` hold k and v of each layer."""
        layers = []
        for number in range(len(past) // 2):
            own, cross = Cache(), Cache()
            own.k, own.v = past[2 * number], past[2 * number + 1]
            cross.k, cross.v = source[2 * number], source[2 * number + 1]
            layers.append((own, cross))
        decoder = self.model.decoder
        x = decoder.embedding(token, position)
        for layer, caches in zip(decoder.layers, layers, strict=True):
            x = layer(x, token, Mask(causal=True), Mask(keys=real), caches)
        grown: list[Tensor] = []
        for own, _ in layers:
            assert own.k is not None
            assert own.v is not None
            grown += [own.k, own.v]
        logits: Tensor = self.model.output(decoder.norm(x))
        return logits, grown


def export(
    out: Path, config: Config, model: Transformer, tokenizers: Tokenizers, inputs: Sequence[str] = ()
) -> Compared:
    """Write a folder with encoder.onnx, decoder.onnx, the tokenizers and onnx.json, whole and checked, or not at all."""
    sources = tokenizers.source.encode_batch(list(inputs)) if inputs else made_up(config.model, tokenizers, INPUTS)
    special = Special.of(tokenizers)
    with whole_or_nothing(out) as place, at_rest(model):
        _write(place, model)
        write_tokenizers(place, tokenizers)
        about = {
            "start": special.start,
            "end": special.end,
            "pad": special.pad,
            "forced": list(special.forced),
            "suppressed": list(config.decoding.suppressed),
            "decoder_layers": config.model.decoder_layers,
            "heads": config.model.heads,
            "d_k": config.model.d_k,
            "d_v": config.model.d_v,
            "max_length": config.model.max_length,
        }
        (place / "onnx.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
        exported = OnnxModel(place)
        return compared(model, sources, special, config.decoding, LONGEST, lambda rows: exported.logits(sources, rows))


def _write(place: Path, model: Transformer) -> None:
    """Export both graphs, with free sizes of the batch, the source and the past."""
    c, B, S, P = model.config, 2, 5, 3
    assert c.d_k is not None
    assert c.d_v is not None
    source, real = torch.ones(B, S, dtype=torch.long), torch.ones(B, S, dtype=torch.bool)
    real[1, 3:] = False
    widths = [c.d_k, c.d_v] * c.decoder_layers
    read = [torch.randn(B, S, c.heads, width) for width in widths]
    past = [torch.randn(B, P, c.heads, width) for width in widths]
    batch, length, so_far = (torch.export.Dim(name) for name in ("batch", "source_length", "past"))
    names = [f"{kind}_{number}" for number in range(c.decoder_layers) for kind in ("k", "v")]
    rows: dict[int, Any] = {0: batch, 1: length}
    arguments: dict[str, Any] = dict(dynamo=True, external_data=False, verbose=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter warns about its own code
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        torch.onnx.export(
            _Encoder(model),
            (source, real),
            str(place / "encoder.onnx"),
            input_names=["source", "real"],
            output_names=[f"source_{name}" for name in names],
            dynamic_shapes=(rows, rows),
            **arguments,
        )
        torch.onnx.export(
            _Decoder(model),
            (torch.ones(B, 1, dtype=torch.long), torch.tensor([P]), real, read, past),
            str(place / "decoder.onnx"),
            input_names=["token", "position", "real", *(f"source_{n}" for n in names), *(f"past_{n}" for n in names)],
            output_names=["logits", *(f"all_{name}" for name in names)],
            dynamic_shapes=({0: batch}, None, rows, [rows] * len(names), [{0: batch, 1: so_far}] * len(names)),
            **arguments,
        )


class OnnxModel:
    """The exported graphs in onnxruntime: greedy answers, and their logits."""

    def __init__(self, place: Path) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        self.encoder, self.decoder = (
            onnxruntime.InferenceSession(str(place / name), options, providers=["CPUExecutionProvider"])
            for name in ("encoder.onnx", "decoder.onnx")
        )
        self.about = json.loads((place / "onnx.json").read_text(encoding="utf-8"))

    def logits(self, sources: list[list[int]], answers: list[list[int]]) -> Tensor:
        """Feed answers token by token and return the logits of each step, (B, T, V)."""
        ids, mask = padded(sources, self.about["pad"])
        real = np.ones(ids.shape, bool) if mask.keys is None else mask.keys.numpy()
        layers = range(self.about["decoder_layers"])
        names = [f"{kind}_{number}" for number in layers for kind in ("k", "v")]
        read = self.encoder.run(None, {"source": ids.numpy(), "real": real})
        feeds = {"real": real, **{f"source_{name}": x for name, x in zip(names, read, strict=True)}}
        widths = [self.about["d_k"], self.about["d_v"]] * len(layers)
        past = [np.zeros((len(sources), 0, self.about["heads"], width), np.float32) for width in widths]
        rows, _ = padded(answers, self.about["pad"])
        found = []
        for t in range(rows.shape[1]):
            now = {"token": rows[:, t : t + 1].numpy(), "position": np.array([t])}
            logits, *past = self.decoder.run(
                None, {**feeds, **now, **{f"past_{name}": x for name, x in zip(names, past, strict=True)}}
            )
            found.append(torch.from_numpy(logits))
        return torch.cat(found, 1)
