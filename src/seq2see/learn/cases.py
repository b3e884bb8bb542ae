"""What each part must compute: values that the shipped model records of real dates, by their names."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from seq2see.model.masks import CAUSAL
from seq2see.seq2seq import load

Function = Callable[..., Any]
ENCODER, DECODER = "encoder.layers.0.", "decoder.layers.0."
OWN, CROSS = f"{DECODER}self_attention.", f"{DECODER}cross_attention."
SHARE = partial(torch.softmax, dim=-1)


class ToldError(Exception):
    """A mistake that is told in these words: it needs no comparison."""


class Case(NamedTuple):
    """A value with a name, and how a function is called that should give it."""

    name: str
    call: Callable[[Function], Any]
    expected: Tensor


def called(given: tuple[Any, ...], function: Function) -> Any:
    """Call a function with copies of some values, which it must leave as they are."""
    copies = [x.clone() if isinstance(x, Tensor) else x for x in given]
    result = function(*copies)
    for number, (before, after) in enumerate(zip(given, copies, strict=True), 1):
        if isinstance(before, Tensor) and not torch.equal(before, after):
            raise ToldError(
                f"it changes its argument {number} in place, and others still need it as it was: += and x[…] = do so."
            )
    return result


class Seen:
    """What the shipped model records of two dates: of the first alone, and of both as a batch."""

    def __init__(self) -> None:
        self.model = load("dates")
        self.traces = [self.model.trace(text) for text in ("1845-01-05", "1845-01-06")]
        self.network: Any = self.traces[0].transformer
        self.weights: dict[str, Tensor] = {n: x.detach() for n, x in self.network.state_dict().items()}
        self.ids = self.model.tokenizers.target

    def values(self, name: str) -> list[Tensor]:
        """Return a value of one date, and of both; heads stand before positions."""
        found = [trace[name] for trace in self.traces]
        first, second = [x.transpose(0, 1) for x in found] if name[-2:] in (".q", ".k", ".v", ".z") else found
        return [first, torch.stack([first, second])]

    def cases(self, name: str, *inputs: Any) -> list[Case]:
        """Return the cases of a value; an input that is a text is the name of a value."""
        given = zip(*(self.values(x) if isinstance(x, str) else [x, x] for x in inputs), strict=True)
        labels = name, f"{name} of two dates at once"
        rows = zip(labels, given, self.values(name), strict=True)
        return [Case(label, partial(called, arguments), expected) for label, arguments, expected in rows]

    def matrices(self, name: str) -> dict[str, Tensor]:
        """Return the weights of an attention as part 5 takes them, for x·W."""
        names = {letter: f"{name}w_{letter}" for letter in "qkvo"}
        products = {letter: self.weights[f"{path}.weight"].T for letter, path in names.items()}
        return products | {f"b_{letter}": self.weights[f"{path}.bias"] for letter, path in names.items()}

    def padded(self, texts: list[str]) -> Tensor:
        """Return the ids of target texts, padded to one length."""
        rows = [torch.tensor(self.ids.encode(text)) for text in texts]
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=self.ids.pad)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Attention as part 5 is given it: unlike PyTorch's it refuses keys and values of different lengths."""
    scores = q @ k.mT / k.shape[-1] ** 0.5
    return SHARE(scores if mask is None else scores.masked_fill(~mask, -torch.inf)) @ v


@cache
def seen() -> Seen:
    """Return what the model records, made once."""
    return Seen()


def softmax(s: Seen) -> list[Case]:
    """Shares of masked scores, which hold −∞, and of large ones."""
    name, scores = f"{OWN}weights", f"{OWN}masked"
    large, expected = (s.values(scores)[0] + 1000,), s.values(name)[0]
    return [*s.cases(name, scores), Case(f"{name}, with 1,000 more for each score", partial(called, large), expected)]


def positions(s: Seen) -> list[Case]:
    """The positions of both sides."""
    tables = {name: s.traces[0][name] for name in ("encoder.embedding.positions", "decoder.embedding.positions")}
    return [Case(name, partial(called, tuple(x.shape)), x) for name, x in tables.items()]


def attention(s: Seen) -> list[Case]:
    """With a mask, and with other queries than keys."""
    look_back = torch.ones(16, 16, dtype=torch.bool).tril()
    own, cross = ([f"{path}{letter}" for letter in "qkv"] for path in (OWN, CROSS))
    return s.cases(f"{OWN}z", *own, look_back, SHARE) + s.cases(f"{CROSS}z", *cross, None, SHARE)


def mask(s: Seen) -> list[Case]:
    """The model's mask of a date, and that of two dates of which one is padded."""
    alone = torch.tensor(s.traces[0].target_ids), s.ids.pad
    ids = s.padded(["January 5, 1845", "September 3, 2025"])
    both = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril() & (ids != s.ids.pad)[:, None]
    name = f"{OWN}masked, where it is not −∞"
    first = Case(name, partial(called, alone), s.values(f"{OWN}masked")[0][0].isfinite())
    return [first, Case("the mask of two dates, one of them padded", partial(called, (ids, s.ids.pad)), both)]


def multi_head(s: Seen) -> list[Case]:
    """Attention of the source on itself, of the target on the source, and of the target on itself."""
    look_back = torch.ones(16, 16, dtype=torch.bool).tril()
    x, y, z = "encoder.embedding.sum", f"{DECODER}self_attention_norm.out", "decoder.embedding.sum"
    first, own, cross = (s.matrices(name) for name in (f"{ENCODER}self_attention.", OWN, CROSS))
    return [
        *s.cases(f"{ENCODER}self_attention.out", x, x, None, first, 4, attend),
        *s.cases(f"{CROSS}out", y, "encoder.memory", None, cross, 4, attend),
        *s.cases(f"{OWN}out", z, z, look_back, own, 4, attend),
    ]


def layer_norm(s: Seen) -> list[Case]:
    """The first normalisation of the encoder."""
    name = f"{ENCODER}self_attention_norm."
    return s.cases(f"{name}out", f"{name}sum", s.weights[f"{name}norm.weight"], s.weights[f"{name}norm.bias"])


def feed_forward(s: Seen) -> list[Case]:
    """The first feed-forward network of the encoder."""
    name = f"{ENCODER}feed_forward."
    weights = [s.weights[f"{name}w_{n}.{kind}"] for n in (1, 2) for kind in ("weight", "bias")]
    matrices = [x.T if x.dim() == 2 else x for x in weights]
    return s.cases(f"{name}out", f"{ENCODER}self_attention_norm.out", *matrices)


def encoder_layer(s: Seen) -> list[Case]:
    """The first layer of the encoder."""
    layer = s.network.encoder.layers[0]
    norms = layer.self_attention_norm.norm, layer.feed_forward_norm.norm
    name, inputs = f"{ENCODER}feed_forward_norm.out", "encoder.embedding.sum"
    return s.cases(name, inputs, layer.self_attention, layer.feed_forward, *norms)


def decoder_layer(s: Seen) -> list[Case]:
    """The first layer of the decoder."""
    layer = s.network.decoder.layers[0]
    norms = (getattr(layer, f"{n}_norm").norm for n in ("self_attention", "cross_attention", "feed_forward"))
    attend = partial(layer.self_attention, mask=CAUSAL)
    inputs = "decoder.embedding.sum", "encoder.memory", attend, layer.cross_attention, layer.feed_forward
    return s.cases(f"{DECODER}feed_forward_norm.out", *inputs, *norms)


def greedy_search(s: Seen) -> list[Case]:
    """The whole answer to a date, and its first five letters."""
    trace, special = s.traces[0], (s.ids.start, s.ids.end)

    def run(longest: int, function: Function) -> list[int]:
        calls = 0

        def decode(ids: Tensor, memory: Tensor) -> Any:
            nonlocal calls
            calls += 1
            if calls > 60:
                raise ToldError("it does not come to an end: it has called decode more than 60 times.")
            return s.network.decode(ids, memory)

        return list(function(list(trace.source_ids), s.network.encode, decode, *special, longest))

    answer = torch.tensor(trace.output_ids[:-1])
    short = Case("the answer to 1845-01-05, if 5 tokens are the longest", partial(run, 5), answer[:5])
    return [Case("the answer to 1845-01-05, as ids", partial(run, 40), answer), short]


def training_step(s: Seen) -> list[Case]:
    """The losses of two steps, and all weights after them; weights of four fifths make mistakes to learn from."""
    sources = torch.tensor([s.model.tokenizers.source.encode(text) for text in ("1845-01-05", "2025-09-03")])
    target = s.padded(["January 5, 1845", "September 3, 2025"])

    def run(function: Function) -> Tensor:
        network = copy.deepcopy(s.network)
        with torch.no_grad():
            weights = [weight.mul_(0.8).requires_grad_() for weight in network.parameters()]
        optimiser = torch.optim.SGD(weights, lr=0.02)
        losses = [function(network, optimiser, sources, target.clone(), s.ids.pad) for _ in range(2)]
        if None in losses:
            raise ToldError("it returns nothing: the loss was expected, as a number.")
        return torch.cat(
            [torch.stack([torch.as_tensor(x).detach() for x in losses]), *(w.detach().flatten() for w in weights)]
        )

    def right(model: Function, optimiser: Any, source: Tensor, target: Tensor, pad: int) -> float:
        loss = F.cross_entropy(model(source, target[:, :-1]).mT, target[:, 1:], ignore_index=pad)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        return loss.item()

    return [Case("the losses of two steps, and all weights after them", run, run(right))]


#: The parts, in the order in which they are best written.
PARTS: dict[str, Callable[[Seen], list[Case]]] = {
    part.__name__: part
    for part in (
        softmax, positions, attention, mask, multi_head, layer_norm, feed_forward, encoder_layer, decoder_layer,
        greedy_search, training_step,
    )
}  # fmt: skip
