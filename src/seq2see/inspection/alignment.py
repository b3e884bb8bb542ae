"""Which word of the source each word of an answer looked at, from cross-attention, with places in both texts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from seq2see.folder import Tokenizers
from seq2see.inspection.trace import trace_text
from seq2see.model.transformer import Transformer

Span = tuple[int, int]  # first character, one past the last
WORD = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")


@dataclass(frozen=True)
class Link:
    """A word of the target and the word of the source that it attends to most."""

    source: int  # the number of the word, from 0
    target: int
    source_span: Span
    target_span: Span
    weight: float  # attention from the one to the other, as a share of that to all words


@dataclass(frozen=True)
class Alignment:
    """The links of one pair of texts, one for each word of the target."""

    source: str
    target: str
    links: list[Link]

    @property
    def pharaoh(self) -> str:
        """The links as ``source-target`` word numbers, as alignment tools write them: ``0-0 1-2``."""
        return " ".join(f"{link.source}-{link.target}" for link in self.links)


def align(
    transformer: Transformer, tokenizers: Tokenizers, source: str, target: str | None = None
) -> Alignment:
    """Align a source with its target, or with the model's own answer if no target is given.

    The weights are the mean of all heads of all decoder layers, read while the model is led through the target.
    """
    if target is None:
        target = trace_text(transformer, tokenizers, source).output
    seen = trace_text(transformer, tokenizers, source, target)
    layers = seen.match("decoder.layers.*.cross_attention.weights")
    weights = sum((seen[name].mean(-3) for name in layers[1:]), seen[layers[0]].mean(-3)) / len(
        layers
    )  # (T, S)
    # The row that reads token t writes token t + 1, so the places are those of what is written.
    spans = tokenizers.source.offsets(source), tokenizers.target.offsets(target)[1:]
    return Alignment(
        source, target, links_of(weights, spans[0], spans[1], words_of(source), words_of(target))
    )


def words_of(text: str) -> list[Span]:
    """Return the places of the words and signs of a text."""
    return [match.span() for match in WORD.finditer(text)]


def links_of(
    weights: Tensor,
    source_tokens: Sequence[Span],
    target_tokens: Sequence[Span],
    source_words: Sequence[Span],
    target_words: Sequence[Span],
) -> list[Link]:
    """Link words from attention between tokens (T, S): summed over a source word, averaged over a target word."""
    if not source_words:
        return []
    columns = [_tokens_of(word, source_tokens) for word in source_words]
    links = []
    for number, word in enumerate(target_words):
        row = weights[_tokens_of(word, target_tokens)].mean(0)  # (S,)
        shares = [float(row[tokens].sum()) for tokens in columns]
        best = max(range(len(shares)), key=lambda index: shares[index])
        links.append(Link(best, number, source_words[best], word, shares[best] / max(sum(shares), 1e-9)))
    return links


def _tokens_of(word: Span, tokens: Sequence[Span]) -> list[int]:
    """Return the numbers of the tokens that share a character with a word."""
    return [i for i, (first, last) in enumerate(tokens) if first < word[1] and word[0] < last]
