"""The encoder: every source position looks at all others, N times over (section 3.1, left half of Figure 1)."""

from __future__ import annotations

from torch import Tensor, nn

from seq2see.config import ModelConfig
from seq2see.model.attention import MultiHeadAttention
from seq2see.model.masks import Mask
from seq2see.model.positions import Embedding
from seq2see.model.sublayers import AddNorm, FeedForward, Observable


class EncoderLayer(Observable):
    """Self-attention, then feed-forward, each within Add & Norm."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config)
        self.self_attention_norm = AddNorm(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = AddNorm(config)

    def forward(self, x: Tensor, mask: Mask) -> Tensor:
        """Map (…, S, D) to (…, S, D)."""
        x = self.self_attention_norm(x, lambda x: self.self_attention(x, x, mask))
        x = self.feed_forward_norm(x, self.feed_forward)
        return x


class Encoder(Observable):
    """Source ids to memory, the vectors that the decoder attends to."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embedding = Embedding(config, config.source_vocabulary)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.norm = nn.LayerNorm(config.d_model) if config.norm == "pre" else nn.Identity()

    def forward(self, source: Tensor, mask: Mask) -> Tensor:
        """Map source ids (…, S) to memory (…, S, D)."""
        x = self.embedding(source)
        for layer in self.layers:
            x = layer(x, mask)
        return self.keep("memory", self.norm(x))
