"""The student's functions as one Transformer: it answers with the shipped weights, and is trained from nothing."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from seq2see.learn.cases import Function, ToldError, seen
from seq2see.tasks.dates import splits

DATES = ["1845-01-05", "1845-01-06", "1426-08-10", "2025-09-03"]
PEAK, WARM_UP, BATCH = (
    0.01,
    0.1,
    64,
)  # the learning rate, the share of the time in which it rises, and pairs in a batch


class Built:
    """A Transformer of eleven functions and a table of weights, in the sizes of ``dates``."""

    def __init__(self, parts: Mapping[str, Function], weights: Mapping[str, Tensor]) -> None:
        self.parts, self.weights, self.ids = parts, weights, seen().ids

    def __call__(self, source: Tensor, target: Tensor) -> Tensor:
        """Map source ids (…, S) and target ids (…, T) to logits (…, T, V)."""
        return self.decode(target, self.encode(source))

    def linear(self, name: str) -> tuple[Tensor, Tensor]:
        """Return a matrix for x·W, and its bias."""
        return self.weights[f"{name}.weight"].T, self.weights[f"{name}.bias"]

    def embedded(self, side: str, ids: Tensor) -> Tensor:
        """Map ids to vectors with their positions."""
        vectors = self.weights[f"{side}.embedding.table.weight"][ids]
        width = vectors.shape[-1]
        positions: Tensor = self.parts["positions"](ids.shape[-1], width)
        return vectors * math.sqrt(width) + positions.to(vectors)

    def attend(self, name: str, mask: Tensor | None = None) -> Function:
        """Return an attention that has its weights and its mask."""
        w = {
            x: part
            for x in "qkvo"
            for x, part in zip((x, f"b_{x}"), self.linear(f"{name}.w_{x}"), strict=True)
        }
        parts = self.parts

        def one(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
            found: Tensor = parts["attention"](q, k, v, mask, parts["softmax"])
            return found

        return lambda x, source: parts["multi_head"](x, source, mask, w, 4, one)

    def rest(self, name: str, *sublayers: str) -> list[Function]:
        """Return the feed-forward network of a layer and its norms, with their weights."""
        weights = [*self.linear(f"{name}.feed_forward.w_1"), *self.linear(f"{name}.feed_forward.w_2")]
        names = [f"{name}.{sublayer}_norm.norm" for sublayer in (*sublayers, "feed_forward")]
        norms = [(self.weights[f"{norm}.weight"], self.weights[f"{norm}.bias"]) for norm in names]
        return [
            lambda x: self.parts["feed_forward"](x, *weights),
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
            x = self.parts["decoder_layer"](
                x, memory, *attends, *self.rest(name, "self_attention", "cross_attention")
            )
        matrix, bias = self.linear("output")
        return x @ matrix + bias

    def answer(self, text: str) -> str:
        """Write a date in words."""
        source = seen().model.tokenizers.source.encode(text)
        with torch.no_grad():
            written = self.parts["greedy_search"](
                source, self.encode, self.decode, self.ids.start, self.ids.end, 40
            )
        return self.ids.decode([int(number) for number in written])


def fresh_weights() -> dict[str, Tensor]:
    """Return random weights in the shapes of the shipped ones."""
    weights = {
        name: torch.zeros_like(old) for name, old in seen().weights.items() if not name.endswith("positions")
    }
    for name, weight in weights.items():
        if "table" in name:
            torch.nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
        elif weight.dim() == 2:
            torch.nn.init.xavier_uniform_(weight)
        elif "norm.weight" in name:
            weight.fill_(1)
    return {name: weight.requires_grad_() for name, weight in weights.items()}


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
            raise ToldError(
                f"no gradient reaches {cut[0]}: .item(), .detach(), numpy and torch.tensor(x) cut it off."
            )
        if passed * 10 >= told:
            yield f"  {passed:4.0%}  step {step:5,}  loss {float(loss):.4f}  {DATES[0]} → {model.answer(DATES[0])!r}"
            told = int(passed * 10) + 1
    right = sum(model.answer(text) == words for text, words in held_out)
    yield f"{step:,} steps. Of {len(held_out)} dates that it has never seen it writes {right} right."
