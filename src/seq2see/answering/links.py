"""Which words of an answer come from which words of its text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from seq2see.answering.answer import Answer
from seq2see.data.pairs import tidied
from seq2see.errors import UserError

if TYPE_CHECKING:
    from seq2see.answering.network import Network
    from seq2see.config import Config
    from seq2see.data.pairs import Pair
    from seq2see.inspection.alignment import Alignment
    from seq2see.storage.folder import Tokenizers

Span = tuple[int, int]
Links = list[list[tuple[Span, Span]]]


class Reader(Protocol):
    """What has read the texts: an ``Answerer``."""

    config: Config
    tokenizers: Tokenizers
    network: Network

    def folded(self, text: str) -> str:
        """Return a text in the form of the training."""

    def read(self, text: str) -> str:
        """Return a text as the model reads it."""


def links(answerer: Reader, pairs: list[tuple[str, str]]) -> Links:
    """Return which span of a text each span of its answer comes from.

    A nonsensical answer may be too long to be read again; it has no links.
    """
    good = [number for number, pair in enumerate(pairs) if _can_align(answerer, pair)]
    found = dict(zip(good, align(answerer, [pairs[number] for number in good]), strict=True))
    return [
        [(link.source_span, link.target_span) for link in found[number].links] if number in found else []
        for number in range(len(pairs))
    ]


def _can_align(answerer: Reader, pair: Pair) -> bool:
    from seq2see.evaluation.evaluate import check_pair

    try:
        check_pair(answerer.config.model, answerer.tokenizers, tidied([pair], answerer.folded)[0])
    except UserError:
        return False
    return True


def align(answerer: Reader, pairs: Iterable[Pair | Answer]) -> list[Alignment]:
    """Return which word of its source each word of a target comes from, by cross-attention, with their positions.

    Positions are those in the texts as the model reads them (``folded``).
    """
    from seq2see.evaluation.evaluate import check_pair
    from seq2see.inspection.alignment import align as alignments

    sources, targets = [], []
    for number, pair in enumerate(pairs, 1):
        if isinstance(pair, Answer):
            if pair.error is not None:
                raise UserError(f"Answer {number:,} cannot be aligned, since there is none: {pair.error}")
            if pair.parts or not pair.ids:
                pair = (pair.input, str(pair.output))
            else:
                sources.append(answerer.read(pair.input))
                targets.append([answerer.tokenizers.target.start, *pair.ids])
        if not isinstance(pair, Answer):
            ((source, target),) = tidied([pair], answerer.folded, number)
            check_pair(answerer.config.model, answerer.tokenizers, (source, target), number)
            sources.append(source)
            targets.append(answerer.tokenizers.target.encode(target))
    return alignments(answerer.network.inner(), answerer.tokenizers, sources, targets)
