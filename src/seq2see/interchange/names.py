"""Translates fairseq's names of weights, which Hugging Face uses too, into ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from seq2see.config import ModelConfig
from seq2see.errors import FolderError, shown
from seq2see.interchange.imported import Renamed

ATTENTION = {"q_proj": "w_q", "k_proj": "w_k", "v_proj": "w_v", "out_proj": "w_o"}
SUBLAYERS = {
    "self_attn": "self_attention",
    "encoder_attn": "cross_attention",
    "self_attn_layer_norm": "self_attention_norm.norm",
    "encoder_attn_layer_norm": "cross_attention_norm.norm",
    "fc1": "feed_forward.w_1",
    "fc2": "feed_forward.w_2",
    "final_layer_norm": "feed_forward_norm.norm",
}
#: Entries of a checkpoint that are not weights: version numbers and computed tables.
IDLE = ("version", "embed_positions._float_tensor", "embed_positions.weights")


def layer_name(theirs: str) -> str | None:
    """Translate the name of a weight within a layer: ``encoder.layers.0.fc1.bias``; None if it is no such name."""
    parts = theirs.split(".")
    if len(parts) < 5 or parts[0] not in ("encoder", "decoder") or parts[1] != "layers":
        return None
    half, _, number, sublayer, *rest = parts
    if sublayer not in SUBLAYERS:
        return None
    ours = f"{half}.layers.{number}.{SUBLAYERS[sublayer]}"
    if sublayer in ("self_attn", "encoder_attn"):
        if rest[0] not in ATTENTION:
            return None
        ours, rest = f"{ours}.{ATTENTION[rest[0]]}", rest[1:]
    return f"{ours}.{rest[0]}" if rest and rest[0] in ("weight", "bias") else None


def renamed(
    theirs: Mapping[str, Tensor],
    config: ModelConfig,
    tables: tuple[str, str, str],
    bias: Tensor | None = None,
    skipped: int = 0,
) -> Renamed:
    """Return the weights under our names; ``tables`` names the two embeddings and the output projection.

    ``bias`` is that of the logits. The first ``skipped`` rows of learned positions belong to no position.
    """
    found: dict[str, Callable[[], Tensor]] = {}

    def put(ours: str, name: str) -> None:
        if name not in theirs:
            raise FolderError(f"The model has no weights {name!r}: the file may be incomplete.")
        found[ours] = lambda: theirs[name]

    source, target, output = tables
    put("encoder.embedding.table.weight", source)
    used = {source, target, output}
    if not config.share_embeddings:
        put("decoder.embedding.table.weight", target)
    if not config.share_output:
        put("output.weight", output)
    if config.output_bias or not config.share_output:
        numbers = torch.zeros(config.target_vocabulary) if bias is None else bias.reshape(-1)
        found["output.bias"] = lambda: numbers
    for half in ("encoder", "decoder"):
        norms = {f"{half}.layer_norm": f"{half}.norm"} if config.norm == "pre" else {}
        if config.embedding_norm:
            norms[f"{half}.layernorm_embedding"] = f"{half}.embedding.norm"
        for name, ours in norms.items():
            for kind in ("weight", "bias"):
                put(f"{ours}.{kind}", f"{name}.{kind}")
                used.add(f"{name}.{kind}")
        name = f"{half}.embed_positions.weight"
        if config.positions == "learned":
            put(f"{half}.embedding.positions", name)
            found[f"{half}.embedding.positions"] = lambda name=name: theirs[name][skipped:]  # type: ignore[misc]
            used.add(name)
        elif name in theirs:
            _same_positions(theirs[name], config)
            used.add(name)
    for name in theirs:
        if name in used or name in (
            "shared.weight",
            "encoder.embed_tokens.weight",
            "decoder.embed_tokens.weight",
        ):
            continue
        if name.removeprefix("encoder.").removeprefix("decoder.") in IDLE:
            continue
        ours_ = layer_name(name)
        if ours_ is None:
            raise FolderError(f"The model has weights that this architecture does not have: {shown(name)}.")
        put(ours_, name)
    return Renamed(found)


def _same_positions(table: Tensor, config: ModelConfig) -> None:
    """Refuse a table of positions that differs from the one that this kind of model computes."""
    from seq2see.kernels.positions import table_of

    ours = table_of(len(table), config.d_model, config.positions)
    if table.shape != ours.shape or (table.float() - ours).abs().max() > 1e-3:
        raise FolderError(
            "The position table does not contain the sines and cosines of this family of models."
        )
