"""The whole Transformer: encoder, decoder, output projection (section 3, Figure 1)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from seq2see.config import ModelConfig
from seq2see.model.decoder import Decoder
from seq2see.model.encoder import Encoder
from seq2see.model.masks import EVERYTHING, Mask
from seq2see.model.positions import Embedding
from seq2see.model.sublayers import Observable


class Transformer(Observable):
    """P(next target token | source, target so far) for every target position at once.

    >>> from seq2see import ModelConfig
    >>> model = Transformer(ModelConfig(d_model=16, heads=4, source_vocabulary=9, target_vocabulary=9))
    >>> model(torch.tensor([[1, 2, 3]]), torch.tensor([[4, 5]])).shape  # 2 positions, 9 logits each
    torch.Size([1, 2, 9])
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        if config.positions not in ("paper", "learned") or config.embedding_norm or not config.scale_embeddings:
            raise ValueError("The paper has no such embedding: seq2see.kernels.registry.network_of makes it.")
        self.config = config
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        bias = config.output_bias or not config.share_output
        self.output = nn.Linear(config.d_model, config.target_vocabulary, bias=bias)
        if config.share_embeddings:
            self.encoder.embedding.table.weight = self.decoder.embedding.table.weight
        if config.share_output:
            self.output.weight = self.decoder.embedding.table.weight
        self.initialise()
        for path, module in self.named_modules():
            if isinstance(module, Observable):
                module.path = path

    def initialise(self) -> None:
        """Draw the weights: Xavier for matrices, and a variance of 1 for the scaled embedding."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for module in self.modules():
            if isinstance(module, Embedding):  # after the matrices: the output projection may share its table
                nn.init.normal_(module.table.weight, std=self.config.d_model**-0.5)
                if isinstance(module.positions, nn.Parameter):
                    nn.init.normal_(module.positions, std=0.02)

    def encode(self, source: Tensor, mask: Mask = EVERYTHING) -> Tensor:
        """Map source ids (…, S) to memory (…, S, D)."""
        memory: Tensor = self.encoder(source, mask)
        return memory

    def decode(self, target: Tensor, memory: Tensor, memory_mask: Mask = EVERYTHING) -> Tensor:
        """Map target ids (…, T) and memory (…, S, D) to logits (…, T, V) for the token after each position."""
        x = self.decoder(target, memory, memory_mask)
        return self.keep("logits", self.output(x))  # (…, T, V)

    def forward(self, source: Tensor, target: Tensor, source_mask: Mask = EVERYTHING) -> Tensor:
        """Map source ids (…, S) and target ids (…, T) to logits (…, T, V)."""
        return self.decode(target, self.encode(source, source_mask), source_mask)

    def parameter_count(self) -> int:
        """Count the trainable numbers, shared ones once."""
        return sum(parameter.numel() for parameter in self.parameters())


@contextmanager
def at_rest(model: Transformer) -> Iterator[None]:
    """Switch dropout and gradients off."""
    awake = [module for module in model.modules() if module.training]
    for module in awake:
        module.training = False
    try:
        with torch.no_grad():
            yield
    finally:
        for module in awake:
            module.training = True
