"""Which word of the source each word of an answer looked at, from cross-attention, with places in both texts.

Attention is the mean of all heads of all decoder layers, in the row that writes a token. Much of it always goes to full
stops and ``<eos>``, so each source token is weighted by its excess over its average in the answer. A source word counts
as its best token. Both rules were chosen by trial on models with known links. A log of a training keeps how sharply the
heads attend.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from seq2see.data.batching import Batch
from seq2see.devices import in_halves
from seq2see.errors import InputError
from seq2see.inspection.tables import ATTENTIONS
from seq2see.inspection.trace import attached, record
from seq2see.model.transformer import Transformer, at_rest
from seq2see.stopping import wanted
from seq2see.storage.folder import Tokenizers
from seq2see.tokenizers.tokenizer import BYTES, Tokenizer

Span = tuple[int, int]  # first character, one past the last
ROWS = 32  # pairs in one batch; the weights of every head of a layer are in memory at once
CONTINUED = frozenset(BYTES[0x80:0xC0])  # bytes that continue a UTF-8 character
SHOWN = 64  # tokens of each side whose attention a log of a training keeps, because people read it
LITTLE = 0.01  # share of uniform attention added to the average, so that an answer of one token has an order, too
WITHIN_WORDS = "'’"  # signs that are part of a word if letters are on both sides


@dataclass(frozen=True)
class Link:
    """A word of the target and the source word to which it attends most."""

    source: int  # the number of the word, from 0
    target: int
    source_span: Span
    target_span: Span
    weight: float  # share of the target word's excess attention that goes to the source word


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

    def words(self) -> list[tuple[str, str]]:
        """The links as words: (of the source, of the target)."""
        return [(self.source[slice(*link.source_span)], self.target[slice(*link.target_span)]) for link in self.links]


def align(
    transformer: Transformer, tokenizers: Tokenizers, sources: Sequence[str], targets: Sequence[Sequence[int]]
) -> list[Alignment]:
    """Run the model on texts and their answers, given as ids from ``<sos>`` to ``<eos>``, and align them."""
    read = tokenizers.source.encode_batch(sources)
    pads = (tokenizers.source.pad, tokenizers.target.pad)
    device = next(transformer.parameters()).device
    found: dict[int, Alignment] = {}

    def attended(rows: Sequence[int]) -> list[Tensor]:
        batch = Batch.of([read[i] for i in rows], [targets[i] for i in rows], pads).to(device)
        weights = _Weights()
        with at_rest(transformer), attached(transformer.decoder, weights):
            transformer(batch.source, batch.target_in, batch.source_mask)
        return [*weights.mean().cpu()]  # (T, S) each

    # Texts of similar length together need little padding.
    order = sorted(range(len(sources)), key=lambda i: len(read[i]))
    for first in wanted(range(0, len(order), ROWS)):
        rows = order[first : first + ROWS]
        for i, row in zip(wanted(rows), in_halves(attended, rows, "the attention of a pair"), strict=True):
            source, written = sources[i], targets[i][1:]
            target = tokenizers.target.decode(written)
            # The row that reads token t writes token t + 1, so the spans are those of the tokens written.
            spans = tokenizers.source.offsets(source), spans_of(tokenizers.target, written)
            words = _words(tokenizers.source, source, spans[0]), _words(tokenizers.target, target, spans[1])
            real = row[: len(written), : len(read[i])]
            found[i] = Alignment(source, target, links_of(real, *spans, *words))
    return [found[i] for i in range(len(sources))]


class _Weights:
    """A recorder that keeps only cross-attention weights: the mean of the heads of each layer, summed over the layers."""

    def __init__(self) -> None:
        self.total: Tensor | None = None
        self.layers = 0

    def __call__(self, path: str, x: Tensor) -> Tensor:
        if path.endswith("cross_attention.weights"):
            mean = x.float().mean(-3)  # (…, T, S)
            self.total = mean if self.total is None else self.total + mean
            self.layers += 1
        return x

    def mean(self) -> Tensor:
        """The mean of all heads of all layers."""
        assert self.total is not None
        return self.total / self.layers


def spans_of(tokenizer: Tokenizer, ids: Sequence[int]) -> list[Span]:
    """Return the span of each id in the decoded text. A byte token has the span of its character."""
    names = tokenizer.tokens(ids)
    ends = [end for end in range(1, len(names) + 1) if end == len(names) or names[end] not in CONTINUED]
    lengths = [len(text) for text in tokenizer.decode_batch([ids[:end] for end in ends])]
    spans: list[Span] = []
    for end, before, after in zip(ends, [0, *lengths], lengths, strict=False):
        spans += [(before, after)] * (end - len(spans))
    return spans


def _words(tokenizer: Tokenizer, text: str, tokens: Sequence[Span]) -> list[Span]:
    """Return the spans of the units that are linked: words, if texts have several.

    If tokens are words or symbols, they are the units. So are characters if no text has a space.
    """
    if tokenizer.kind == "small words" or tokenizer.separator is not None:
        between = tokenizer.separator
        return [(last - len(text[first:last].lstrip(between)), last) for first, last in tokens if last > first]
    if tokenizer.kind == "characters" and " " not in (tokenizer.letters or " "):
        return [(place, place + 1) for place in range(len(text))]
    return words_of(text)


def words_of(text: str) -> list[Span]:
    """Return the spans of the words of a text: runs of letters and digits. Each sign and each ideograph is one word."""
    spans: list[Span] = []
    within = False
    for place, character in enumerate(text):
        letter = _is_letter(character) or (
            within and character in WITHIN_WORDS and _is_letter(text[place + 1 : place + 2])
        )
        if letter and within:
            spans[-1] = (spans[-1][0], place + 1)
        elif not character.isspace():
            spans.append((place, place + 1))
        within = letter
    return spans


def _is_letter(character: str) -> bool:
    """Whether a character can be part of a longer word: letters, digits and their marks, but no ideographs."""
    if character.isascii():
        return character.isalnum() or character == "_"
    ideograph = unicodedata.name(character, "").startswith(("CJK", "HIRAGANA", "KATAKANA"))
    return not ideograph and (character.isalnum() or unicodedata.category(character).startswith("M"))


def links_of(
    weights: Tensor,
    source_tokens: Sequence[Span],
    target_tokens: Sequence[Span],
    source_words: Sequence[Span],
    target_words: Sequence[Span],
) -> list[Link]:
    """Link words by attention (T, S): the largest of a source word's tokens, the mean over a target word's tokens."""
    if not source_words:
        return []
    usual = weights.mean(0) + LITTLE / weights.shape[1]
    above = weights / usual  # (T, S)
    words = torch.stack([above[:, _tokens_of(word, source_tokens)].amax(1) for word in source_words], 1)
    links = []
    for number, word in enumerate(target_words):
        shares = words[_tokens_of(word, target_tokens)].mean(0)  # one for each word of the source
        best = int(shares.argmax())
        links.append(Link(best, number, source_words[best], word, float(shares[best] / shares.sum())))
    return links


def _tokens_of(word: Span, tokens: Sequence[Span]) -> list[int]:
    """Return the indices of the tokens that share a character with a word."""
    return [i for i, (first, last) in enumerate(tokens) if first < word[1] and word[0] < last]


# --- how sharply heads attend --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sharpness:
    """What the heads attend to while the model reads one given target."""

    source: list[str]  # tokens attended to
    target: list[str]  # tokens written, one for each row
    tokens: dict[str, list[list[float]]]  # for each attention, layer and head: over how many tokens it spreads
    cross: list[list[float]]  # target × source: the mean of all heads of all decoder layers


def sharpness(transformer: Transformer, tokenizers: Tokenizers, source: str, target: str) -> Sharpness | None:
    """Measure one pair of a source and its target; return None if the model cannot take it.

    A head that spreads evenly over n tokens counts n; one that looks at a single token counts 1.
    """
    try:
        seen = record(transformer, tokenizers, source, target)
    except InputError:
        return None
    found = {
        kind: [seen[name].float() for name in seen.match(f"{path.format('*')}.weights")]
        for kind, path in ATTENTIONS.items()
    }
    cross = torch.stack(found["cross"]).mean((0, 1))[:SHOWN, :SHOWN]  # (T, S)
    return Sharpness(
        source=seen.source_tokens[:SHOWN],
        target=seen.output_tokens[:SHOWN],
        tokens={kind: [_spread(weights) for weights in layers] for kind, layers in found.items()},
        cross=[[round(share, 3) for share in row] for row in cross.tolist()],
    )


def _spread(weights: Tensor) -> list[float]:
    """Return e to the mean entropy of the rows of each head, from weights (H, T, S)."""
    entropy = torch.special.entr(weights).sum(-1).mean(-1)  # (H,)
    return [round(value, 3) for value in entropy.exp().tolist()]
