"""What replaces the classes of ``model/``: packed batches, caches, joined products, guided heads, oddities.

Each has the weights and the names of the class that it replaces, and gives the same numbers: ``tests/test_kernels.py``
holds them together. With a recorder attached, the written attention runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seq2see.config import DISTANCES, ModelConfig
from seq2see.kernels.operators import SMALL, fast_attention, has_own_norm, linear_relu, normed_sum
from seq2see.kernels.shared import Cache, DecoderCache
from seq2see.model.attention import MultiHeadAttention, written_attention
from seq2see.model.decoder import Decoder, DecoderLayer
from seq2see.model.encoder import Encoder
from seq2see.model.masks import CAUSAL, EVERYTHING, Mask
from seq2see.model.positions import Embedding, sinusoids
from seq2see.model.sublayers import AddNorm, FeedForward
from seq2see.model.transformer import Transformer

FIRST_POSITION = {"fairseq": 2, "opennmt": 1}  # the number of the first position
FOREIGN = ("halves", *FIRST_POSITION)


class SideBySide:
    """Some matrices as views of one piece of memory, not for training."""

    def __init__(self, *matrices: nn.Linear) -> None:
        self.widths = [matrix.out_features for matrix in matrices]
        self.weight = self._laid(matrices, "weight")
        self.bias = self._laid(matrices, "bias")

    def _laid(self, matrices: Sequence[nn.Linear], name: str) -> Tensor:
        whole = torch.cat([getattr(matrix, name).detach() for matrix in matrices])
        for matrix, part in zip(matrices, torch.split(whole, self.widths), strict=True):
            setattr(matrix, name, nn.Parameter(part, requires_grad=False))
        return whole


def products(
    x: Tensor, matrices: Sequence[nn.Linear], training: bool, whole: SideBySide | None = None
) -> Sequence[Tensor]:
    """Multiply x (…, D) by each matrix and add its bias: (…, H·K) each.

    In decoding with few rows a product takes little longer than its launch: one product if the matrices are adjacent in
    memory. In training there are many more rows than columns, and one wide product is faster than several narrow ones.
    """
    if whole is not None and len(matrices) == len(whole.widths):
        return torch.split(F.linear(x, whole.weight, whole.bias), whole.widths, dim=-1)
    if not training or len(matrices) == 1:
        return [matrix(x) for matrix in matrices]
    weight = torch.cat([matrix.weight for matrix in matrices])
    bias = torch.cat([matrix.bias for matrix in matrices])
    return torch.split(F.linear(x, weight, bias), [matrix.out_features for matrix in matrices], dim=-1)


class FastAttention(MultiHeadAttention):
    """Attention by a fast body of equation 1."""

    guided: bool = False  # whether training guides its first head: then ``asked`` keeps q and k
    asked: tuple[Tensor, Tensor] | None = None
    whole: SideBySide | None = None  # W^Q, W^K and W^V in one piece of memory, for decoding on a GPU

    def project(self, x: Tensor, *matrices: nn.Linear) -> list[Tensor]:
        """Multiply (…, T, D) by some matrices, add their biases and cut into heads, (…, T, H, K) each."""
        return [self.split(product) for product in products(x, matrices, self.training, self.whole)]

    def keys_values(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Project the source of attention, (…, S, D), to keys and values (…, S, H, K)."""
        k, v = self.project(source, self.w_k, self.w_v)
        return k, v

    def gathered(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        """Map q (…, T, H, K) and k, v (…, S, H, K) to (…, T, D)."""
        q, k, v = self.keep("q", q), self.keep("k", k), self.keep("v", v)
        if self.guided and self.training:
            self.asked = q, k
        if self.recorder is None:
            z = fast_attention(q, k, v, mask)  # (…, T, H, K)
        else:
            z = self.keep("z", written_attention(q, k, v, mask, self.keep))
        return self.keep("out", self.w_o(z.flatten(-2)))  # (…, T, D)


class SelfAttention(FastAttention):
    """Attention of positions to themselves and to those in the cache; ``source`` is x."""

    def forward(self, x: Tensor, source: Tensor, mask: Mask = EVERYTHING, cache: Cache | None = None) -> Tensor:
        """Let each position of x (…, T, D) gather from all: (…, T, D)."""
        q, k, v = self.project(x, self.w_q, self.w_k, self.w_v)  # (…, T, H, K)
        k, v = (k, v) if cache is None else cache.extended(k, v)  # (…, S, H, K)
        return self.gathered(q, k, v, mask)


class CrossAttention(FastAttention):
    """Attention of target positions to the memory, whose keys and values a cache keeps."""

    def forward(self, x: Tensor, source: Tensor, mask: Mask = EVERYTHING, cache: Cache | None = None) -> Tensor:
        """Let each position of x (…, T, D) gather from source (…, S, D): (…, T, D)."""
        (q,) = self.project(x, self.w_q)
        k, v = self.keys_values(source) if cache is None else cache.once(self.keys_values, source)
        return self.gathered(q, k, v, mask)


def alignment_loss(q: Tensor, k: Tensor, mask: Mask, places: Tensor) -> Tensor:
    """Return -log of the weight that the first head gives to the key at ``places`` (…, T), summed; -1 is ignored."""
    scores = torch.einsum("...tk,...sk->...ts", q[..., 0, :], k[..., 0, :]) / math.sqrt(q.shape[-1])
    allowed = mask.allowed(q.shape[-3], k.shape[-3], q.device)
    if allowed is not None:
        scores = scores.masked_fill(~(allowed.squeeze(-3) if allowed.dim() > 2 else allowed), -math.inf)
    weights = scores.float().log_softmax(-1).gather(-1, places.clamp(min=0)[..., None]).squeeze(-1)
    return -weights.masked_fill(places < 0, 0.0).sum()


class FastAddNorm(AddNorm):
    """Add & Norm by our own kernel in training on a GPU."""

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Map (…, T, D) to (…, T, D)."""
        if self.post and self.recorder is None and has_own_norm(x, self.training):
            return normed_sum(x, sublayer(x), self.norm, self.dropout.p)
        return super().forward(x, sublayer)


class FastFeedForward(FeedForward):
    """The feed-forward network; in training of packed batches on a GPU relu is a part of the product, if D is large."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (…, T, D) to (…, T, D)."""
        own = self.training and x.is_cuda and x.dim() == 2 and x.shape[-1] > SMALL
        if not own or self.activation is not F.relu:
            return super().forward(x)
        hidden = self.keep("hidden", linear_relu(x, self.w_1.weight, self.w_1.bias))  # (T, F)
        return self.keep("out", self.w_2(hidden))  # (T, D)


def foreign_sinusoids(position: Tensor, d_model: int, order: str) -> Tensor:
    """Encode positions (…) as (…, D): all sines before all cosines.

    ``halves``, as in Marian, are the paper's numbers. ``fairseq`` and ``opennmt`` have the exponent i / (d_model/2 − 1).
    They count positions from 2 and from 1, in float32.
    """
    if order not in FIRST_POSITION:
        ours = sinusoids(position, d_model)
        return torch.cat([ours[..., 0::2], ours[..., 1::2]], dim=-1)  # (…, D)
    rate = math.log(10000) / (d_model // 2 - 1)
    frequencies = torch.exp(torch.arange(d_model // 2, dtype=torch.float32) * -rate)  # (D/2,)
    angles = (position + FIRST_POSITION[order]).float()[..., None] * frequencies  # (…, D/2)
    return torch.cat([torch.sin(angles), torch.cos(angles)], dim=-1)  # (…, D)


def table_of(length: int, d_model: int, order: str = "paper") -> Tensor:
    """Return the encoding of positions 0 … length−1 in any order, (length, D), in float32."""
    at = torch.arange(length)
    return (foreign_sinusoids(at, d_model, order) if order in FOREIGN else sinusoids(at, d_model)).float()


class FreeEmbedding(Embedding):
    """An embedding of tokens at any place, which imported models may leave unscaled, or normalise."""

    foreign: bool = False  # whether it has what the paper has not
    norm: nn.LayerNorm | None  # of the sum of embedding and position

    def become_foreign(self, config: ModelConfig) -> None:
        """Take on what the paper does not have."""
        self.foreign = True
        self.scale = math.sqrt(config.d_model) if config.scale_embeddings else 1.0
        self.norm = nn.LayerNorm(config.d_model) if config.embedding_norm else None
        if config.positions in DISTANCES:
            self.positions = torch.zeros(config.max_length, config.d_model)
        elif config.positions in FOREIGN:
            self.positions = table_of(config.max_length, config.d_model, config.positions)

    def forward(self, ids: Tensor, place: int | Tensor = 0) -> Tensor:
        """Map ids (…, T) to (…, T, D); ``place`` is the position of the first, or of each (T,) in a packed batch."""
        ids = self.keep("ids", ids)
        embedded = self.keep("embedded", self.table(ids))  # (…, T, D)
        scaled = self.keep("scaled", embedded * self.scale)
        places = place if isinstance(place, Tensor) else slice(place, place + ids.shape[-1])
        positions = self.keep("positions", self.positions[places])  # (T, D)
        if self.norm is None:
            return self.keep("sum", self.dropout(scaled + positions))
        x = self.keep("sum", scaled + positions)
        return self.keep("normed", self.dropout(self.norm(x)))


class FastEncoder(Encoder):
    """An encoder of packed batches, too."""

    def forward(self, source: Tensor, mask: Mask, place: int | Tensor = 0) -> Tensor:
        """Map source ids (…, S) to memory (…, S, D)."""
        x = self.embedding(source, place)
        for layer in self.layers:
            x = layer(x, mask)
        return self.keep("memory", self.norm(x))


class CachedDecoderLayer(DecoderLayer):
    """A decoder layer whose attentions have a cache each."""

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        mask: Mask,
        memory_mask: Mask,
        caches: tuple[Cache | None, Cache | None] = (None, None),
    ) -> Tensor:
        """Map (…, T, D), with memory (…, S, D), to (…, T, D)."""
        own, cross = caches
        x = self.self_attention_norm(x, lambda x: self.self_attention(x, x, mask, own))
        x = self.cross_attention_norm(x, lambda x: self.cross_attention(x, memory, memory_mask, cross))
        x = self.feed_forward_norm(x, self.feed_forward)
        return x


class CachedDecoder(Decoder):
    """A decoder of packed batches, and with a cache of one step."""

    def forward(
        self,
        target: Tensor,
        memory: Tensor,
        memory_mask: Mask,
        cache: DecoderCache | None = None,
        mask: Mask = CAUSAL,
        place: int | Tensor = 0,
    ) -> Tensor:
        """Map target ids (…, T) to (…, T, D). With a cache, ``target`` has only the ids since the last call."""
        x = self.embedding(target, place if cache is None else cache.length)
        for index, layer in enumerate(self.layers):
            x = layer(x, memory, mask, memory_mask, (None, None) if cache is None else cache.layers[index])
        if cache is not None:
            cache.length += target.shape[-1]
        return self.keep("out", self.norm(x))


class FastTransformer(Transformer):
    """A Transformer of packed batches and of single steps."""

    def empty_cache(self) -> DecoderCache:
        """Begin to decode with nothing remembered."""
        return DecoderCache.empty(len(self.decoder.layers))

    def encode(self, source: Tensor, mask: Mask = EVERYTHING, place: int | Tensor = 0) -> Tensor:
        """Map source ids (…, S) to memory (…, S, D). ``place`` is the position of the first id, or that of each."""
        memory: Tensor = self.encoder(source, mask, place)
        return memory

    def decode(
        self,
        target: Tensor,
        memory: Tensor,
        memory_mask: Mask = EVERYTHING,
        cache: DecoderCache | None = None,
        mask: Mask = CAUSAL,
        place: int | Tensor = 0,
    ) -> Tensor:
        """Map target ids (…, T) and memory (…, S, D) to logits (…, T, V) for the token after each position."""
        x = self.decoder(target, memory, memory_mask, cache, mask, place)
        return self.keep("logits", self.output(x))  # (…, T, V)
