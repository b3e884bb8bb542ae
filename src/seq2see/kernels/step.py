"""The encoder and the decoding steps on a GPU in few kernels, with the same results as the model's layers.

A test compares them with the layers in ``model``. There are two forms. With few rows each product is a kernel
of ours that normalises its input and adds the residual, so that a layer is 8 kernels. With many rows
PyTorch's products are faster; residual and norm between them are one kernel.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from seq2see.kernels import step_written
from seq2see.kernels.layers import FastAttention, FreeEmbedding, SideBySide
from seq2see.kernels.operators import HAS_TRITON, fast_attention
from seq2see.kernels.registry import with_kernels
from seq2see.kernels.shared import Pair
from seq2see.model.decoder import DecoderLayer
from seq2see.model.encoder import EncoderLayer
from seq2see.model.masks import Mask
from seq2see.model.transformer import Transformer

FEW_ROWS = 8  # with more, PyTorch's products are faster than ours

StepForm = Literal["few rows", "many rows"]
Parts = tuple[Tensor, Tensor, int]  # maxima and sums of the parts of each row of logits, and a part's size


def operations(device: torch.device) -> Any:
    """Return the module with the operations of a step: our kernels on a GPU, PyTorch's elsewhere."""
    if HAS_TRITON and device.type == "cuda":
        from seq2see.kernels import step_kernels

        return step_kernels
    return step_written


def form_of(rows: int) -> StepForm:
    """Return the form of a step with this number of rows."""
    return "few rows" if rows <= FEW_ROWS else "many rows"


def prepare(model: Transformer) -> None:
    """Merge the products for q, k and v of every self-attention."""
    with_kernels(model)
    for layer in (*model.encoder.layers, *model.decoder.layers):
        assert isinstance(layer, (EncoderLayer, DecoderLayer))
        own = layer.self_attention
        assert isinstance(own, FastAttention)
        own.whole = SideBySide(own.w_q, own.w_k, own.w_v)


class DecoderStep:
    """A decoder prepared for steps (``prepare``): it maps the tokens of a position to the logits of the next."""

    def __init__(self, model: Transformer, form: StepForm) -> None:
        self.model, self.form, config = model, form, model.config
        self.pre, self.activation = config.norm == "pre", config.activation
        self.do = operations(next(model.parameters()).device)

    def __call__(
        self, ids: Tensor, position: Tensor, caches: list[tuple[Pair, Pair]], rows: Tensor, real: Tensor, beam: int
    ) -> tuple[Tensor, Parts | None]:
        """Map ids (R,) to logits (R, V) and the maxima and sums of their parts.

        rows (R, L) gives the row of each position of a row's past; real (B, S) marks the source tokens that
        are not padding.
        """
        embedding = self.model.decoder.embedding
        assert isinstance(embedding, FreeEmbedding)
        x = self.do.embed(ids, position, embedding.table.weight, embedding.positions, embedding.scale, embedding.norm)
        layers = self._few if self.form == "few rows" else self._many
        return layers(x, caches, position, rows, real, beam)

    def encode(self, source: Tensor, mask: Mask) -> Tensor:
        """Map source ids (B, S) to memory (B, S, D): the encoder with its sums and norms in one."""
        layers: list[EncoderLayer] = [*self.model.encoder.layers]
        shape = source.shape
        x = self.model.encoder.embedding(source).flatten(0, 1)  # (B·S, D)
        y = layers[0].self_attention_norm.norm(x) if self.pre and layers else x
        for number, layer in enumerate(layers):
            norms = [layer.self_attention_norm.norm, layer.feed_forward_norm.norm]
            if self.pre:  # the norm after a sum is that of the next sub-layer
                last = number + 1 == len(layers)
                end = self.model.encoder.norm if last else layers[number + 1].self_attention_norm.norm
                norms = [norms[1], end]  # type: ignore[list-item]
            attention = layer.self_attention
            assert isinstance(attention, FastAttention)
            q, k, v = attention.project(y.view(*shape, -1), attention.w_q, attention.w_k, attention.w_v)  # (B, S, H, K)
            z = fast_attention(q, k, v, mask).flatten(-2).flatten(0, 1)
            x, y = self._added(x, attention.w_o(z), norms[0])
            x, y = self._added(x, layer.feed_forward.w_2(self._hidden(y, layer.feed_forward.w_1)), norms[1])
        memory: Tensor = y.view(*shape, -1)
        return memory

    def _few(
        self, x: Tensor, caches: list[tuple[Pair, Pair]], position: Tensor, rows: Tensor, real: Tensor,
        beam: int,
    ) -> tuple[Tensor, Parts | None]:  # fmt: skip
        """Leave each norm to the next product: x is a sum, and ``last`` is the norm that it still needs."""
        do, last = self.do, None
        for layer, (own, cross) in zip(self.model.decoder.layers, caches, strict=True):
            assert isinstance(layer, DecoderLayer)
            w = _joined(layer)
            norms = [part.norm for part in _norms(layer)]
            before = norms if self.pre else [last, norms[0], norms[1]]  # of what each sub-layer reads
            kept: list[nn.LayerNorm | None] = [None, None, None] if self.pre else before  # and of its residual
            qkv = do.product(x, w.weight, w.bias, before[0])
            z = do.attend_past(qkv, *own, position, rows, beam)
            o = layer.self_attention.w_o
            x = do.product(z, o.weight, o.bias, residual=x, residual_norm=kept[0])
            w_q, o = layer.cross_attention.w_q, layer.cross_attention.w_o
            q = do.product(x, w_q.weight, w_q.bias, before[1])
            z = do.attend_source(q, *cross, real, beam)
            x = do.product(z, o.weight, o.bias, residual=x, residual_norm=kept[1])
            w_1, w_2 = layer.feed_forward.w_1, layer.feed_forward.w_2
            hidden = do.product(x, w_1.weight, w_1.bias, before[2], self.activation)
            x = do.product(hidden, w_2.weight, w_2.bias, residual=x, residual_norm=kept[2])
            last = norms[2]
        if self.pre:
            last = self.model.decoder.norm
        output = self.model.output
        if do is step_written:
            return do.product(x, output.weight, output.bias, last), None
        logits, parts = do.logits_and_parts(x, output.weight, output.bias, last)
        return logits, parts

    def _many(
        self, x: Tensor, caches: list[tuple[Pair, Pair]], position: Tensor, rows: Tensor, real: Tensor,
        beam: int,
    ) -> tuple[Tensor, Parts | None]:  # fmt: skip
        """Add and normalise in one kernel: x is the residual of a sub-layer, y its input."""
        do, layers = self.do, [*self.model.decoder.layers]
        first = layers[0] if layers else None
        assert isinstance(first, DecoderLayer)
        y = first.self_attention_norm.norm(x) if self.pre else x
        for number, (layer, (own, cross)) in enumerate(zip(layers, caches, strict=True)):
            assert isinstance(layer, DecoderLayer)
            w = _joined(layer)
            norms = [part.norm for part in _norms(layer)]
            if self.pre:  # the norm after a sum is that of the next sub-layer
                following = layers[number + 1] if number + 1 < len(layers) else None
                assert following is None or isinstance(following, DecoderLayer)
                end = self.model.decoder.norm if following is None else following.self_attention_norm.norm
                norms = [norms[1], norms[2], end]
            z = do.attend_past(torch.addmm(w.bias, y, w.weight.T), *own, position, rows, beam)
            x, y = self._added(x, layer.self_attention.w_o(z), norms[0])
            q = layer.cross_attention.w_q(y)
            z = do.attend_source(q, *cross, real, beam)
            x, y = self._added(x, layer.cross_attention.w_o(z), norms[1])
            x, y = self._added(x, layer.feed_forward.w_2(self._hidden(y, layer.feed_forward.w_1)), norms[2])
        return self.model.output(y), None

    def _added(self, x: Tensor, y: Tensor, norm: nn.LayerNorm) -> tuple[Tensor, Tensor]:
        """Return the residual and the input of the next sub-layer."""
        total, normed = self.do.add_norm(x, y, norm)
        return (total if self.pre else normed), normed

    def _hidden(self, y: Tensor, w_1: nn.Linear) -> Tensor:
        if self.activation == "relu" and y.is_cuda:  # as a part of the product
            hidden: Tensor = torch._addmm_activation(w_1.bias, y, w_1.weight.T)
            return hidden
        return step_written.ACTIVATIONS[self.activation](w_1(y))


def _norms(layer: DecoderLayer) -> tuple[Any, Any, Any]:
    return layer.self_attention_norm, layer.cross_attention_norm, layer.feed_forward_norm


def _joined(layer: DecoderLayer) -> SideBySide:
    """Return the matrices of q, k and v in one."""
    assert isinstance(layer.self_attention, FastAttention)
    assert layer.self_attention.whole is not None
    return layer.self_attention.whole
