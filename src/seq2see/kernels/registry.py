"""The one place where something stands in for a class of ``model/``: the table, and how a network gets what is in it."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from seq2see.config import ModelConfig
from seq2see.kernels import layers
from seq2see.kernels.distances import DISTANCES, RelativeAttention, RotaryAttention
from seq2see.kernels.ensemble import Ensemble
from seq2see.model.sublayers import Observable
from seq2see.model.transformer import Transformer

#: For each class of ``model/``, or for a place in it, what replaces it.
REPLACEMENTS: dict[str, type[Observable]] = {
    "Transformer": layers.FastTransformer,
    "Encoder": layers.FastEncoder,
    "Decoder": layers.CachedDecoder,
    "DecoderLayer": layers.CachedDecoderLayer,
    "self_attention": layers.SelfAttention,
    "cross_attention": layers.CrossAttention,
    "AddNorm": layers.FastAddNorm,
    "FeedForward": layers.FastFeedForward,
    "Embedding": layers.FreeEmbedding,
}

WRITTEN = "seq2see.model."
N = TypeVar("N", bound=Transformer)


def with_kernels(network: N) -> N:
    """Let the replacements compute what a network computes, and return it. Its weights and their names stay."""
    for path, module in [*network.named_modules()]:
        if type(module).__module__.startswith(WRITTEN):
            place, kind = path.rpartition(".")[2], type(module).__name__
            new = REPLACEMENTS.get(place) or REPLACEMENTS.get(kind)
            if new is not None:
                module.__class__ = new
            if isinstance(module, layers.FreeEmbedding):
                module.norm = None
    return network


def without_kernels(network: N) -> N:
    """Let a network compute as it stands in ``model/``, but for what its config has and the paper has not."""
    for module in network.modules():
        if type(module) in REPLACEMENTS.values() and not (isinstance(module, layers.FreeEmbedding) and module.foreign):
            module.__class__ = next(kind for kind in type(module).__mro__ if kind.__module__.startswith(WRITTEN))
    return network


def _place_distances(
    network: Transformer, kind: type[RotaryAttention | RelativeAttention], config: ModelConfig
) -> None:
    """Let self-attention know the distances."""
    for part in (network.encoder, network.decoder):
        for layer in part.layers:
            attention = layer.self_attention
            attention.__class__ = kind
            assert isinstance(attention, RotaryAttention | RelativeAttention)
            attention.causal = part is network.decoder
            attention.begin(config)


def network_of(config: ModelConfig) -> Transformer:
    """Make the network of a config: a Transformer, or several."""
    if config.members > 1:
        alone = replace(config, members=1, backward=0)
        return Ensemble(config, [network_of(alone) for _ in range(config.members)])
    ours = config.positions if config.positions == "learned" else "paper"
    plain = replace(config, positions=ours, scale_embeddings=True, embedding_norm=False)
    network = with_kernels(Transformer(plain))
    if plain != config:
        network.config = config
        for embedding in (network.encoder.embedding, network.decoder.embedding):
            assert isinstance(embedding, layers.FreeEmbedding)
            embedding.become_foreign(config)
        if config.positions in DISTANCES:
            _place_distances(network, DISTANCES[config.positions], config)
    return network
