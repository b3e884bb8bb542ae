"""The names of a model's weights in all formats, in one table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from seq2see.config import ModelConfig
from seq2see.errors import FolderError, shown

if TYPE_CHECKING:
    from torch import Tensor

    from seq2see.interchange.imported import Renamed


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
    import torch

    from seq2see.interchange.imported import Renamed

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
    from seq2see.kernels.layers import table_of

    ours = table_of(len(table), config.d_model, config.positions)
    if table.shape != ours.shape or (table.float() - ours).abs().max() > 1e-3:
        raise FolderError("The position table does not contain the sines and cosines of this family of models.")
