"""The known mistakes: what a wrong function computes, and the hint that the student gets for it, never the solution."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from seq2see.learn.cases import Function


class Mistake(NamedTuple):
    """A name, a hint, and the ways of making the mistake."""

    name: str
    hint: str
    ways: tuple[Function, ...]


def mistake(name: str, hint: str, *ways: Function) -> Mistake:
    """Put a mistake together."""
    return Mistake(name, hint, ways)


def waves(length: int, width: int, start: int = 0, power: float = 1, cosine: float = 0, order: str = "") -> Tensor:
    """Positions with a mistake in them."""
    place, even = torch.arange(start, start + length)[:, None], torch.arange(0, width, 2)
    sines = (place / 10000 ** (power * even / width)).sin()
    cosines = (place / 10000 ** ((power * even + cosine) / width)).cos()
    if order == "halves":
        return torch.cat([sines, cosines], -1)
    return torch.stack([cosines, sines] if order == "cosine first" else [sines, cosines], -1).flatten(1)


def hidden(scores: Tensor, mask: Tensor) -> Tensor:
    """Hide scores as is right."""
    return scores.masked_fill(~mask, -math.inf)


def attends(edit: Function = hidden, scale: float = 2, axis: int = -1, **letters: str) -> Function:
    """Attention with a mistake in it: how scores are hidden, divided, made shares; which input takes which place."""

    def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, softmax: Function) -> Any:
        given = {"q": q, "k": k, "v": v}
        q, k, v = (given[letters.get(letter, letter)] for letter in "qkv")
        scores = q @ k.mT / scale
        return (scores if mask is None else edit(scores, mask)).softmax(axis) @ v

    return attention


def earlier(ids: Tensor, diagonal: int = 0) -> Tensor:
    """Return what lies before a diagonal."""
    return torch.ones(ids.shape[-1], ids.shape[-1], dtype=torch.bool).tril(diagonal)


def cut(y: Tensor, heads: int) -> Tensor:
    """Cut vectors into heads, as is right."""
    return y.view(*y.shape[:-1], heads, -1).transpose(-3, -2)


def heads_with(order: str = "qkv", cut: Function = cut, join: Function = lambda z: z.transpose(-3, -2).flatten(-2),
               sides: str = "xss", bias: float = 1, last: bool = True, masked: bool = True) -> Function:  # fmt: skip
    """Many heads with a mistake in them."""

    def multi_head(x: Tensor, source: Tensor, mask: Any, w: dict[str, Tensor], heads: int, attention: Function) -> Any:
        read = {"x": x, "s": source}
        rows = [read[side] @ w[letter] + bias * w[f"b_{letter}"] for side, letter in zip(sides, order, strict=True)]
        z = join(attention(*(cut(y, heads) for y in rows), mask if masked else None))
        return z @ w["o"] + bias * w["b_o"] if last else z

    return multi_head


def normed(
    mean: Any = -1, spread: Any = -1, root: float = 0.5, n: int = 0, centre: float = 1, gains: str = "gb"
) -> Function:
    """Layer normalisation with a mistake in it."""

    def layer_norm(x: Tensor, gain: Tensor, bias: Tensor, epsilon: float = 1e-5) -> Tensor:
        y = x - centre * x.mean(mean, keepdim=True)
        size = (y**2).mean(spread, keepdim=True) if not centre else x.var(spread, keepdim=True, correction=n)
        y = y / (size + epsilon) ** root
        return y * (gain if "g" in gains else 1) + (bias if "b" in gains else 0)

    return layer_norm


def writes(
    row: int = -1, whole: bool = True, ends: bool = True, begin: int = 1, more: int = 0, last: bool = False
) -> Function:
    """Greedy search with a mistake in it."""

    def greedy_search(source: Any, encode: Any, decode: Any, start: int, end: int, longest: int) -> list[int]:
        ids, memory = [start], encode(torch.tensor(source))
        while len(ids) <= longest + more:
            ids.append(int(decode(torch.tensor(ids if whole else ids[-1:]), memory)[row].argmax()))
            if ends and ids[-1] == end:
                return ids[begin:] if last else ids[begin:-1]
        return ids[begin:]

    return greedy_search


def steps(reads: slice, right: slice, zero: bool = True, moves: bool = True, padded: bool = False, edit: Any = lambda x: x,
          **options: Any) -> Function:  # fmt: skip
    """A step of training with a mistake in it."""

    def training_step(model: Function, optimiser: Any, source: Tensor, target: Tensor, pad: int) -> float:
        logits, goal = edit(model(source, target[:, reads])), target[:, right]
        loss = F.cross_entropy(logits.mT, goal, ignore_index=-100 if padded else pad, **options)
        if zero:
            optimiser.zero_grad()
        if moves:
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        return loss.item()

    return training_step


ALL, FIRST, REST = slice(None), slice(None, -1), slice(1, None)
# fmt: off
MISTAKES: dict[str, list[Mistake]] = {
    "softmax": [
        mistake("axis", "Its shares add up to 1 in another direction than along the last dimension: which numbers belong "
                "to one row?", lambda x: x.softmax(-2), lambda x: x.softmax(0)),
        mistake("all rows at once", "All rows together add up to 1: each row needs a sum of its own.",
                lambda x: x.exp() / x.exp().sum(), lambda x: x.flatten().softmax(0).view_as(x),
                lambda x: (y := (x - x.amax(-1, keepdim=True)).exp()) / y.sum()),
        mistake("large scores", "It is right for small scores, but exp of a large one is infinite, and ∞/∞ is no number: read the "
                "last paragraph of its docstring.", lambda x: x.exp() / x.exp().sum(-1, keepdim=True)),
        mistake("not shared", "Its numbers are positive, but a row does not add up to 1: what are they to be divided by?",
                lambda x: x.exp(), lambda x: (x - x.amax(-1, keepdim=True)).exp()),
        mistake("no exp", "Scores are divided by their sum as they are, so negative ones make negative shares: what makes every "
                "number positive?", lambda x: x / x.sum(-1, keepdim=True)),
        mistake("logarithm", "These are the logarithms of the shares.", lambda x: x.log_softmax(-1)),
    ],
    "positions": [
        mistake("off by one", "The rows are those of the positions 1, 2, 3, …: which is the first position?",
                lambda n, d: waves(n, d, start=1)),
        mistake("doubled exponent", "Its waves slow down twice as fast as the paper's: if your i already goes 0, 2, 4, …, it is the 2i of "
                "the equation.", lambda n, d: waves(n, d, power=2)),
        mistake("half exponent", "Its waves slow down half as fast as the paper's: if your i goes 0, 1, 2, …, what is 2i?",
                lambda n, d: waves(n, d, power=0.5)),
        mistake("halves", "All sines stand before all cosines: where does the equation put the cosine of a sine?",
                lambda n, d: waves(n, d, order="halves")),
        mistake("cosine first", "Sines and cosines have changed places: which columns are even?",
                lambda n, d: waves(n, d, order="cosine first")),
        mistake("own exponent", "The cosine has an exponent of its own: in the equation it has that of the sine beside it.",
                lambda n, d: waves(n, d, cosine=1)),
        mistake("no powers", "All columns turn equally fast: what does the exponent depend on?", lambda n, d: waves(n, d, power=0)),
    ],
    "attention": [
        mistake("no √d_k", "The scores go into the softmax as they are, so the shares are too sharp: what are they divided by?",
                attends(scale=1)),
        mistake("no root", "The scores are divided by too much: is it d_k itself, or d_model?", attends(scale=4)),
        mistake("multiplied", "The scores are multiplied where they are to be divided.", attends(scale=0.5)),
        mistake("axis", "The shares of a key add up to 1 over the queries: each query has one share to give to its keys.",
                attends(axis=-2)),
        mistake("K and V swapped", "K and V have changed places: which of them is compared with Q, and which is gathered?",
                attends(k="v", v="k")),
        mistake("Q and K swapped", "Q and K have changed places: row t of the scores belongs to query t.", attends(q="k", k="q")),
        mistake("no mask", "The mask changes nothing: a query sees what it may not.", attends(lambda s, m: s)),
        mistake("mask inverted", "It hides what may be seen, and shows what may not: True means that a query may look.",
                attends(lambda s, m: hidden(s, ~m))),
        mistake("mask added as 0 and 1", "The mask is added as 0 and 1, which changes a score by 1 and hides nothing: which number has "
                "the exponential 0?", attends(lambda s, m: s + m), attends(lambda s, m: s + ~m), attends(lambda s, m: s - 1.0 * ~m)),
        mistake("score 0", "A hidden score becomes 0, but exp(0) is 1: that is no small share. Which score has the share 0?",
                attends(lambda s, m: s * m)),
        mistake("mask before scaling", "Hidden keys still get a share: the number for them is not low enough, and dividing by √d_k after it "
                "raises it. Which score has the share 0, whatever it is divided by?",
                *(attends(lambda s, m, low=low: s.masked_fill(~m, low)) for low in (-10.0, -5.0, -1.0, -0.5))),
        mistake("mask after softmax", "The mask comes after the softmax, so the shares that are left no longer add up to 1.",
                lambda q, k, v, m, share: share(q @ k.mT / 2) * (1 if m is None else m) @ v),
        mistake("weights", "These are the shares: what is gathered with them?",
                lambda q, k, v, m, share: share(q @ k.mT / 2 if m is None else hidden(q @ k.mT / 2, m))),
    ],
    "mask": [
        mistake("inverted", "True and False have changed places: True means that a token may be looked at.",
                lambda ids, pad: ~(earlier(ids) & (ids != pad)[..., None, :])),
        mistake("later", "Each token sees what comes after it, not what came before.",
                lambda ids, pad: earlier(ids).mT & (ids != pad)[..., None, :], lambda ids, pad: earlier(ids).mT),
        mistake("not itself", "A token does not see itself, and the first one sees nothing at all: is s = t allowed?",
                lambda ids, pad: earlier(ids, -1) & (ids != pad)[..., None, :]),
        mistake("one ahead", "Each token also sees the next one, which it is to predict.",
                lambda ids, pad: earlier(ids, 1) & (ids != pad)[..., None, :]),
        mistake("no padding", "Padding can be seen: which columns must be False for every token?", lambda ids, pad: earlier(ids),
                lambda ids, pad: earlier(ids).expand(*ids.shape, ids.shape[-1])),
        mistake("padding in rows", "The rows of padding are hidden, but its columns are what others look at.",
                lambda ids, pad: earlier(ids) & (ids != pad)[..., :, None]),
        mistake("padding alone", "Padding is hidden, but later tokens are not.",
                lambda ids, pad: (ids != pad)[..., None, :].expand(*ids.shape, ids.shape[-1])),
    ],
    "multi_head": [
        mistake("cut across", "The heads are cut across positions: first cut the columns of each position, then bring heads before "
                "positions.", heads_with(cut=lambda y, h: y.reshape(*y.shape[:-2], h, y.shape[-2], -1))),
        mistake("interleaved", "A head takes every fourth column: its columns are neighbours.",
                heads_with(cut=lambda y, h: y.unflatten(-1, (-1, h)).movedim(-1, -3))),
        mistake("joined across", "The heads are joined while they stand before positions: bring them back first.",
                heads_with(join=lambda z: z.flatten(-3).unflatten(-1, (z.shape[-2], -1)))),
        mistake("no W^O", "The heads stand beside each other, but the last product is missing.", heads_with(last=False)),
        mistake("no biases", "The biases are missing.", heads_with(bias=0)),
        mistake("one head", "All columns are in one head.", heads_with(cut=lambda y, h: cut(y, 1))),
        mistake("sides", "Queries come from the source, and keys and values from x: who looks at whom?", heads_with(sides="sxx")),
        mistake("no source", "It looks at x only, and never at the source: right in an encoder, not in cross-attention.",
                heads_with(sides="xxx")),
        mistake("values of x", "The values come from x, the keys from the source: what is found where the keys are?",
                heads_with(sides="xsx")),
        mistake("K and V swapped", "W^K and W^V have changed places.", heads_with("qvk")),
        mistake("no mask", "The mask does not reach the attention.", heads_with(masked=False)),
    ],
    "layer_norm": [
        mistake("batch norm", "Each column has mean 0 over the positions: that is batch normalisation. Here each position has its own "
                "mean.", normed(-2, -2), normed(0, 0), normed((0, 1), (0, 1))),
        mistake("all at once", "All positions have one mean together: each needs its own.", normed(None, None)),
        mistake("n − 1", "The variance is divided by D − 1, as std() and var() do unless told otherwise.", normed(n=1)),
        mistake("no root", "It divides by the variance: the equation has its root.", normed(root=1)),
        mistake("no mean", "The mean is not subtracted.", normed(centre=0)),
        mistake("no gain", "The gain is missing.", normed(gains="b")),
        mistake("no bias", "The bias is missing.", normed(gains="g")),
        mistake("no gain, no bias", "Mean 0 and variance 1 are right, and the gain and the bias are missing.", normed(gains="")),
    ],
    "feed_forward": [
        mistake("no max", "Nothing is set to 0, so two products are one: where does the equation have its max?",
                lambda x, a, b, c, d: (x @ a + b) @ c + d),
        mistake("max last", "The max comes at the end: the equation has it between the products.",
                lambda x, a, b, c, d: ((x @ a + b) @ c + d).relu()),
        mistake("max twice", "The result is set to 0 where it is negative, too: the equation has one max.",
                lambda x, a, b, c, d: ((x @ a + b).relu() @ c + d).relu()),
        mistake("max first", "The max is taken of x: the equation takes it of the first product.",
                lambda x, a, b, c, d: (x.relu() @ a + b) @ c + d),
        mistake("min", "What is positive is set to 0: the equation has a max.", lambda x, a, b, c, d: (x @ a + b).clamp(max=0) @ c + d),
        mistake("no b_1", "The first bias is missing.", lambda x, a, b, c, d: (x @ a).relu() @ c + d),
        mistake("no b_2", "The second bias is missing.", lambda x, a, b, c, d: (x @ a + b).relu() @ c),
        mistake("no biases", "Both biases are missing.", lambda x, a, b, c, d: (x @ a).relu() @ c),
    ],
    "encoder_layer": [
        mistake("no residual", "x itself is lost: what does LayerNorm(x + Sublayer(x)) add to the sub-layer?",
                lambda x, att, ff, m, n: n(ff(m(att(x, x)))), lambda x, att, ff, m, n: n(m(x + att(x, x)) * 0 + ff(m(x + att(x, x)))),
                lambda x, att, ff, m, n: n(m(att(x, x)) + ff(m(att(x, x))))),
        mistake("norm first", "The norm comes before the sub-layer, as in later models: in the paper it comes after the sum.",
                lambda x, att, ff, m, n: (y := x + att(m(x), m(x))) + ff(n(y))),
        mistake("norm inside", "The norm is taken of the sub-layer alone: it is to be of the sum.",
                lambda x, att, ff, m, n: (y := x + m(att(x, x))) + n(ff(y))),
        mistake("no norm", "The sums are not normalised.", lambda x, att, ff, m, n: (y := x + att(x, x)) + ff(y)),
        mistake("first x", "The second sum adds the x of the beginning: by then x is what the first norm gave.",
                lambda x, att, ff, m, n: n(x + ff(m(x + att(x, x))))),
        mistake("norms swapped", "The norms have changed places.", lambda x, att, ff, m, n: m((y := n(x + att(x, x))) + ff(y))),
        mistake("order", "Feed-forward comes before attention.", lambda x, att, ff, m, n: n((y := m(x + ff(x))) + att(y, y))),
        mistake("no feed-forward", "It ends after attention.", lambda x, att, ff, m, n: m(x + att(x, x))),
    ],
    "decoder_layer": [
        mistake("no residual", "x itself is lost: what does LayerNorm(x + Sublayer(x)) add to the sub-layer?",
                lambda x, y, att, cross, ff, k, m, n: n(ff(m(cross(k(att(x, x)), y))))),
        mistake("no residual across", "After cross-attention, what the target had found before is lost: the sum is missing there.",
                lambda x, y, att, cross, ff, k, m, n: n((z := m(cross(k(x + att(x, x)), y))) + ff(z))),
        mistake("norm first", "The norm comes before the sub-layer, as in later models: in the paper it comes after the sum.",
                lambda x, y, att, cross, ff, k, m, n: (w := (z := x + att(k(x), k(x))) + cross(m(z), y)) + ff(n(w))),
        mistake("no norm", "The sums are not normalised.",
                lambda x, y, att, cross, ff, k, m, n: (w := (z := x + att(x, x)) + cross(z, y)) + ff(w)),
        mistake("order", "Cross-attention comes before the look back: which one is lower in Figure 1?",
                lambda x, y, att, cross, ff, k, m, n: n((w := m((z := k(x + cross(x, y))) + att(z, z))) + ff(w)),
                lambda x, y, att, cross, ff, k, m, n: n((w := k((z := m(x + cross(x, y))) + att(z, z))) + ff(w))),
        mistake("no source", "It never looks at the memory, so its answer cannot depend on the source.",
                lambda x, y, att, cross, ff, k, m, n: n((z := k(x + att(x, x))) + ff(z)),
                lambda x, y, att, cross, ff, k, m, n: n((w := m((z := k(x + att(x, x))) + cross(z, z))) + ff(w))),
        mistake("no look back", "It never looks at what was written before.",
                lambda x, y, att, cross, ff, k, m, n: n((z := m(x + cross(x, y))) + ff(z))),
        mistake("first x", "Cross-attention asks with the x of the beginning: by then x is what the first norm gave.",
                lambda x, y, att, cross, ff, k, m, n: n((w := m(k(x + att(x, x)) + cross(x, y))) + ff(w))),
    ],
    "greedy_search": [
        mistake("first row", "It takes the token after the first id again and again: which row belongs to the last id?", writes(0)),
        mistake("last id only", "The decoder is given the last id alone, so it forgets what was written before.", writes(whole=False)),
        mistake("never ends", "It writes on after the end.", writes(ends=False)),
        mistake("start", "Its list begins with the start token.", writes(begin=0)),
        mistake("end", "Its list ends with the end token.", writes(last=True)),
        mistake("start and end", "Its list holds the start and the end token.", writes(begin=0, last=True)),
        mistake("too long", "It writes more than the longest answer has, if the end does not come.", writes(more=1), writes(more=100)),
        mistake("too short", "It stops one token before the longest answer: the start is not one of them.", writes(more=-1)),
    ],
    "training_step": [
        mistake("not shifted", "The model is to predict what it has just read, which it learns by copying: by how much is the right answer "
                "shifted?", steps(FIRST, FIRST), steps(ALL, ALL), steps(REST, REST)),
        mistake("shifted back", "The model is to predict the token before the one it reads: the shift goes the other way.", steps(REST, FIRST)),
        mistake("gradients kept", "The first step is right, and the second is not: gradients add up until they are set to zero.",
                steps(FIRST, REST, zero=False)),
        mistake("no move", "The loss is right, but the weights stay as they are: are backward() and step() both called, and zero_grad() not "
                "between them?", steps(FIRST, REST, moves=False)),
        mistake("padding counted", "Padding counts in the loss, so the model learns to write it.", steps(FIRST, REST, padded=True)),
        mistake("softmax twice", "The loss is that of shares: F.cross_entropy takes logits, and does the softmax itself.",
                steps(FIRST, REST, edit=lambda x: x.softmax(-1))),
        mistake("sum", "The loss is a sum over the tokens: it is to be their mean.", steps(FIRST, REST, reduction="sum")),
    ],
}
