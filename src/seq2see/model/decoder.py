"""The decoder: each target position looks back, then at the source, N times over (section 3.1, right half)."""

from __future__ import annotations

from torch import Tensor, nn

from seq2see.config import ModelConfig
from seq2see.model.attention import MultiHeadAttention
from seq2see.model.masks import CAUSAL, Mask
from seq2see.model.positions import Embedding
from seq2see.model.sublayers import AddNorm, FeedForward, Observable


class DecoderLayer(Observable):
    """Masked self-attention, cross-attention to the memory, then feed-forward, each within Add & Norm."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config)
        self.self_attention_norm = AddNorm(config)
        self.cross_attention = MultiHeadAttention(config)
        self.cross_attention_norm = AddNorm(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = AddNorm(config)

    def forward(self, x: Tensor, memory: Tensor, mask: Mask, memory_mask: Mask) -> Tensor:
        """Map (…, T, D), with memory (…, S, D), to (…, T, D)."""
        x = self.self_attention_norm(x, lambda x: self.self_attention(x, x, mask))
        x = self.cross_attention_norm(x, lambda x: self.cross_attention(x, memory, memory_mask))
        x = self.feed_forward_norm(x, self.feed_forward)
        return x


class Decoder(Observable):
    """Target ids so far and memory to one vector for each position, from which the next token is predicted."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embedding = Embedding(config, config.target_vocabulary)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        self.norm = nn.LayerNorm(config.d_model) if config.norm == "pre" else nn.Identity()

    def forward(self, target: Tensor, memory: Tensor, memory_mask: Mask) -> Tensor:
        """Map target ids (…, T) and memory (…, S, D) to (…, T, D)."""
        x = self.embedding(target)
        for layer in self.layers:
            x = layer(x, memory, CAUSAL, memory_mask)
        return self.keep("out", self.norm(x))
