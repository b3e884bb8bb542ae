"""Eleven functions as one Transformer: it answers with the shipped weights, and is trained from nothing."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from seq2see.seq2seq import Seq2Seq, load
from seq2see.tasks.dates import splits

Function = Callable[..., Any]
DATES = ["1845-01-05", "1845-01-06", "1426-08-10", "2025-09-03"]
#: The learning rate, the share of the time in which it rises, and the pairs in a batch.
PEAK, WARM_UP, BATCH = 0.01, 0.1, 64


class ToldError(Exception):
    """A mistake that is told in these words."""


@cache
def shipped() -> Seq2Seq:
    """Return the model whose weights and values the parts are compared with."""
    return load("dates")


def ids_of(pairs: Sequence[tuple[str, str]], side: int) -> Tensor:
    """Return the ids of the sources (0) or the targets (1) of pairs, padded to one length."""
    letters = shipped().tokenizers.target  # which are those of the sources
    rows = [torch.tensor(letters.encode(pair[side])) for pair in pairs]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=letters.pad)


class Built:
    """A Transformer of eleven functions and a table of weights, in the sizes of ``dates``."""

    def __init__(self, parts: Mapping[str, Function], weights: Mapping[str, Tensor]) -> None:
        self.parts, self.weights, self.letters = parts, weights, shipped().tokenizers.target

    def __call__(self, source: Tensor, target: Tensor) -> Tensor:
        """Map source ids (…, S) and target ids (…, T) to logits (…, T, V)."""
        return self.decode(target, self.encode(source))

    def encode(self, ids: Tensor) -> Tensor:
        """Map source ids to the memory."""
        return self.stack("encoder", ids)

    def decode(self, ids: Tensor, memory: Tensor) -> Tensor:
        """Map target ids and the memory to logits."""
        matrix, bias = self.linear("output")
        return self.stack("decoder", ids, memory) @ matrix + bias

    def linear(self, name: str) -> tuple[Tensor, Tensor]:
        """Return a matrix for x·W, and its bias; or the gain and the bias of a norm."""
        weight = self.weights[f"{name}.weight"]
        return weight.mT if weight.dim() == 2 else weight, self.weights[f"{name}.bias"]

    def stack(self, side: str, ids: Tensor, *memory: Tensor) -> Tensor:
        """Map ids to vectors with their positions, and send these through two layers."""
        p, table = self.parts, self.weights[f"{side}.embedding.table.weight"]
        x: Tensor = table[ids] * math.sqrt(table.shape[1]) + p["positions"](ids.shape[-1], table.shape[1]).to(table)
        mask = p["mask"](ids, self.letters.pad).unsqueeze(-3) if memory else None
        masks = {"self_attention": mask, "cross_attention": None} if memory else {"self_attention": None}
        for name in (f"{side}.layers.0.", f"{side}.layers.1."):
            attends = [self.attend(f"{name}{kind}.", mask) for kind, mask in masks.items()]
            w = [x for n in (1, 2) for x in self.linear(f"{name}feed_forward.w_{n}")]
            pairs = [self.linear(f"{name}{kind}_norm.norm") for kind in (*masks, "feed_forward")]
            norms = [lambda x, pair=pair: p["layer_norm"](x, *pair) for pair in pairs]
            x = p[f"{side}_layer"](x, *memory, *attends, lambda x, w=w: p["feed_forward"](x, *w), *norms)
        return x

    def attend(self, name: str, mask: Tensor | None) -> Function:
        """Return an attention that has its weights and its mask."""
        p, w = self.parts, {}
        for letter in "qkvo":
            w[letter], w[f"b_{letter}"] = self.linear(f"{name}w_{letter}")
        return lambda x, source: p["multi_head"](
            x, source, mask, w, 4, lambda q, k, v, mask: p["attention"](q, k, v, mask, p["softmax"])
        )

    def written(self, text: str, search: Function, longest: int = 40) -> list[int]:
        """Let a search write the answer to a text, as ids; it may ask 60 times."""
        left = 60

        def decode(ids: Tensor, memory: Tensor) -> Tensor:
            nonlocal left
            left -= 1
            if left < 0:
                raise ToldError("it does not come to an end: it has called decode more than 60 times.")
            return self.decode(ids, memory)

        with torch.no_grad():
            source = self.letters.encode(text)
            return [int(n) for n in search(source, self.encode, decode, self.letters.start, self.letters.end, longest)]

    def answer(self, text: str) -> str:
        """Write a date in words."""
        return self.letters.decode(self.written(text, self.parts["greedy_search"]))


def train(parts: Mapping[str, Function], seconds: float) -> Iterator[str]:
    """Train the functions on dates from nothing, and tell ten times how it goes.

    The seconds are those of the processor, so that a busy machine teaches as much. Positions are computed once.
    """
    parts = {**parts, "positions": cache(parts["positions"])}
    torch.manual_seed(1)
    pairs, held_out, _ = splits(10_000, 50, 0, seed=1, years=(1000, 2025))
    network = shipped().transformer
    model = Built(parts, dict(type(network)(network.config).named_parameters()))  # weights that know nothing
    source, target = ids_of(pairs, 0), ids_of(pairs, 1)
    optimiser = torch.optim.Adam(list(model.weights.values()), betas=(0.9, 0.98), eps=1e-9)
    start, told, step = time.process_time(), 0, 0
    while (passed := (time.process_time() - start) / seconds) < 1:
        after = max(0.0, passed - WARM_UP) / (1 - WARM_UP)
        optimiser.param_groups[0]["lr"] = PEAK * min(passed / WARM_UP, (1 + math.cos(math.pi * after)) / 2)
        batch = torch.randint(len(pairs), (BATCH,))
        loss = parts["training_step"](model, optimiser, source[batch], target[batch], model.letters.pad)
        step += 1
        cut = [name for name, weight in model.weights.items() if weight.grad is None]
        if cut:
            raise ToldError(f"no gradient reaches {cut[0]}: .item(), .detach(), numpy and torch.tensor(x) cut it off.")
        if passed * 10 >= told:
            yield f"  {passed:4.0%}  step {step:5,}  loss {float(loss):.4f}  {DATES[0]} → {model.answer(DATES[0])!r}"
            told = int(passed * 10) + 1
    right = sum(model.answer(text) == words for text, words in held_out)
    yield f"{step:,} steps. Of {len(held_out)} dates that it has never seen it writes {right} right."
