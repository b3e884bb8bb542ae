"""The peers: PyTorch's own Transformer with a plain loop, Hugging Face Marian, CTranslate2 called directly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec

import torch
from torch import Tensor, nn

from seq2see.config import ModelConfig
from seq2see.model.attention import MultiHeadAttention
from seq2see.model.decoder import DecoderLayer
from seq2see.model.encoder import EncoderLayer
from seq2see.model.transformer import Transformer


class PlainTransformer:
    """``torch.nn.Transformer`` with our weights; decoding runs the whole prefix again at each step."""

    def __init__(self, model: Transformer) -> None:
        config = model.config
        self.model = model
        self.network = nn.Transformer(
            config.d_model, config.heads, config.encoder_layers, config.decoder_layers, config.d_ff,
            dropout=0.0, activation="relu", batch_first=True,
        ).eval()  # fmt: skip
        assert isinstance(self.network.encoder, nn.TransformerEncoder)
        assert isinstance(self.network.decoder, nn.TransformerDecoder)
        # The paper's stacks end with a layer; PyTorch's end with one more norm.
        self.network.encoder.norm = self.network.decoder.norm = None
        with torch.no_grad():
            for theirs, ours in zip(self.network.encoder.layers, model.encoder.layers, strict=True):
                assert isinstance(ours, EncoderLayer)
                _copy_attention(theirs.self_attn, ours.self_attention)
                _copy(theirs.norm1, ours.self_attention_norm.norm)
                _copy(theirs.norm2, ours.feed_forward_norm.norm)
                _copy(theirs.linear1, ours.feed_forward.w_1)
                _copy(theirs.linear2, ours.feed_forward.w_2)
            for theirs, layer in zip(self.network.decoder.layers, model.decoder.layers, strict=True):
                assert isinstance(layer, DecoderLayer)
                _copy_attention(theirs.self_attn, layer.self_attention)
                _copy_attention(theirs.multihead_attn, layer.cross_attention)
                _copy(theirs.norm1, layer.self_attention_norm.norm)
                _copy(theirs.norm2, layer.cross_attention_norm.norm)
                _copy(theirs.norm3, layer.feed_forward_norm.norm)
                _copy(theirs.linear1, layer.feed_forward.w_1)
                _copy(theirs.linear2, layer.feed_forward.w_2)

    @torch.inference_mode()
    def greedy(self, source: Tensor, start: int, end: int, longest: int) -> Tensor:
        """Answer sources of one length, (B, S): ids (B, L)."""
        memory = self.network.encoder(self.model.encoder.embedding(source))
        target = torch.full((len(source), 1), start)
        for _ in range(longest):
            mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
            x = self.network.decoder(self.model.decoder.embedding(target), memory, tgt_mask=mask)
            best = self.model.output(x[:, -1]).argmax(-1, keepdim=True)
            target = torch.cat([target, best], 1)
            if bool((target == end).any(1).all()):
                break
        return target[:, 1:]


def _copy(theirs: nn.Module, ours: nn.Module) -> None:
    theirs.load_state_dict(ours.state_dict())


def _copy_attention(theirs: nn.MultiheadAttention, ours: MultiHeadAttention) -> None:
    parts = (ours.w_q, ours.w_k, ours.w_v)
    theirs.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
    theirs.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
    _copy(theirs.out_proj, ours.w_o)


def hugging_face(config: ModelConfig, tokens: int) -> Callable[[Sequence[Sequence[int]]], Tensor] | None:
    """Return greedy ``generate`` of a Marian model of the same size and random weights, or nothing."""
    if find_spec("transformers") is None:
        return None
    transformers = import_module("transformers")
    shape = transformers.MarianConfig(
        vocab_size=config.target_vocabulary, d_model=config.d_model, max_position_embeddings=512,
        encoder_layers=config.encoder_layers, decoder_layers=config.decoder_layers,
        encoder_attention_heads=config.heads, decoder_attention_heads=config.heads,
        encoder_ffn_dim=config.d_ff, decoder_ffn_dim=config.d_ff, activation_function="relu", scale_embedding=True,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=0, forced_eos_token_id=None,
    )  # fmt: skip
    model = transformers.MarianMTModel(shape).eval()

    @torch.inference_mode()
    def generate(sources: Sequence[Sequence[int]]) -> Tensor:
        ids = torch.tensor(sources)
        found = model.generate(
            ids, attention_mask=torch.ones_like(ids), num_beams=1, do_sample=False,
            min_new_tokens=tokens, max_new_tokens=tokens, max_length=None,
        )  # fmt: skip
        assert isinstance(found, Tensor)
        return found

    return generate
