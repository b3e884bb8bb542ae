"""The student's functions as one Transformer: it answers with the shipped weights, and is trained from nothing."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from seq2see.learn.cases import Function, ToldError, seen
from seq2see.tasks.dates import splits

DATES = ["1845-01-05", "1845-01-06", "1426-08-10", "2025-09-03"]
#: The learning rate, the share of the time in which it rises, and the pairs in a batch.
PEAK, WARM_UP, BATCH = 0.01, 0.1, 64


class Built:
    """A Transformer of eleven functions and a table of weights, in the sizes of ``dates``."""

    def __init__(self, parts: Mapping[str, Function], weights: Mapping[str, Tensor]) -> None:
        self.parts, self.weights, self.ids = parts, weights, seen().ids

    def __call__(self, source: Tensor, target: Tensor) -> Tensor:
        """Map source ids (…, S) and target ids (…, T) to logits (…, T, V)."""
        return self.decode(target, self.encode(source))

    def linear(self, name: str) -> tuple[Tensor, Tensor]:
        """Return a matrix for x·W, and its bias; or the gain and the bias of a norm."""
        weight = self.weights[f"{name}.weight"]
        return weight.T if weight.dim() == 2 else weight, self.weights[f"{name}.bias"]

    def embedded(self, side: str, ids: Tensor) -> Tensor:
        """Map ids to vectors with their positions."""
        vectors = self.weights[f"{side}.embedding.table.weight"][ids]
        positions: Tensor = self.parts["positions"](ids.shape[-1], vectors.shape[-1])
        return vectors * math.sqrt(vectors.shape[-1]) + positions.to(vectors)

    def attend(self, name: str, mask: Tensor | None = None) -> Function:
        """Return an attention that has its weights and its mask."""
        parts, w = self.parts, {}
        for letter in "qkvo":
            w[letter], w[f"b_{letter}"] = self.linear(f"{name}.w_{letter}")

        def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Any:
            return parts["attention"](q, k, v, mask, parts["softmax"])

        return lambda x, source: parts["multi_head"](x, source, mask, w, 4, attention)

    def rest(self, name: str, *sublayers: str) -> list[Function]:
        """Return the feed-forward network of a layer and its norms, with their weights."""
        first, second = (self.linear(f"{name}.feed_forward.w_{n}") for n in (1, 2))
        norms = [self.linear(f"{name}.{sublayer}_norm.norm") for sublayer in (*sublayers, "feed_forward")]
        return [
            lambda x: self.parts["feed_forward"](x, *first, *second),
            *(lambda x, pair=pair: self.parts["layer_norm"](x, *pair) for pair in norms),
        ]

    def encode(self, ids: Tensor) -> Tensor:
        """Map source ids to the memory."""
        x = self.embedded("encoder", ids)
        for name in ("encoder.layers.0", "encoder.layers.1"):
            x = self.parts["encoder_layer"](
                x, self.attend(f"{name}.self_attention"), *self.rest(name, "self_attention")
            )
        return x

    def decode(self, ids: Tensor, memory: Tensor) -> Tensor:
        """Map target ids and the memory to logits."""
        x, mask = self.embedded("decoder", ids), self.parts["mask"](ids, self.ids.pad).unsqueeze(-3)
        for name in ("decoder.layers.0", "decoder.layers.1"):
            attends = self.attend(f"{name}.self_attention", mask), self.attend(f"{name}.cross_attention")
            x = self.parts["decoder_layer"](x, memory, *attends, *self.rest(name, "self_attention", "cross_attention"))
        matrix, bias = self.linear("output")
        return x @ matrix + bias

    def answer(self, text: str) -> str:
        """Write a date in words."""
        source = seen().model.tokenizers.source.encode(text)
        with torch.no_grad():
            written = self.parts["greedy_search"](source, self.encode, self.decode, self.ids.start, self.ids.end, 40)
        return self.ids.decode([int(number) for number in written])


def fresh_weights() -> dict[str, Tensor]:
    """Return weights that know nothing, with the names and the shapes of the shipped ones."""
    network = seen().network
    return dict(type(network)(network.config).named_parameters())


def train(parts: Mapping[str, Function], seconds: float) -> Iterator[str]:
    """Train the functions on dates from nothing, and tell ten times how it goes."""
    torch.manual_seed(1)
    pairs, held_out, _ = splits(10_000, 50, 0, seed=1, years=(1000, 2025))
    model = Built(parts, fresh_weights())
    source = torch.tensor([seen().model.tokenizers.source.encode(text) for text, _ in pairs])
    target = seen().padded([text for _, text in pairs])
    optimiser = torch.optim.Adam(list(model.weights.values()), betas=(0.9, 0.98), eps=1e-9)
    start, told, step = time.monotonic(), 0, 0
    while (passed := (time.monotonic() - start) / seconds) < 1:
        after = max(0.0, passed - WARM_UP) / (1 - WARM_UP)
        rate = min(passed / WARM_UP, (1 + math.cos(math.pi * after)) / 2)
        for group in optimiser.param_groups:
            group["lr"] = PEAK * rate
        batch = torch.randint(len(pairs), (BATCH,))
        loss = parts["training_step"](model, optimiser, source[batch], target[batch], model.ids.pad)
        step += 1
        cut = [name for name, weight in model.weights.items() if weight.grad is None]
        if cut:
            raise ToldError(f"no gradient reaches {cut[0]}: .item(), .detach(), numpy and torch.tensor(x) cut it off.")
        if passed * 10 >= told:
            yield f"  {passed:4.0%}  step {step:5,}  loss {float(loss):.4f}  {DATES[0]} → {model.answer(DATES[0])!r}"
            told = int(passed * 10) + 1
    right = sum(model.answer(text) == words for text, words in held_out)
    yield f"{step:,} steps. Of {len(held_out)} dates that it has never seen it writes {right} right."
