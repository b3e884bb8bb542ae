"""What all exports share: random inputs for the comparison, and the comparison itself."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from seq2see.config import DecodingConfig, ModelConfig
from seq2see.decoding.hypothesis import Special
from seq2see.errors import FolderError
from seq2see.storage.folder import Tokenizers

if TYPE_CHECKING:
    from torch import Tensor

    from seq2see.model.transformer import Transformer

TOLERANCE = 1e-4  # of a logit, as a share of the largest


def made_up(config: ModelConfig, tokenizers: Tokenizers, count: int) -> list[list[int]]:
    """Draw random sources of all lengths from the ordinary tokens. They are the same at each call."""
    source, draw = tokenizers.source, random.Random(1)
    around = {*source.before, *source.after, source.pad}
    ordinary = [i for i in range(source.size) if i not in around]
    longest = min(config.max_length, 100) - len(source.before) - len(source.after)
    return [
        [*source.before, *draw.choices(ordinary, k=1 + number * (longest - 1) // (count - 1)), *source.after]
        for number in range(count)
    ]


class Compared:
    """Compares another program's numbers with ours: every logit and every token of our greedy answers."""

    def __init__(self, inputs: int, tolerance: float) -> None:
        self.inputs, self.tolerance = inputs, tolerance
        self.largest, self.tokens, self.same_tokens = 0.0, 0, 0

    def logits(self, ours: Tensor, theirs: Tensor) -> None:
        """Compare the logits of an answer, (T, V)."""
        from seq2see.interchange.imported import NEVER

        largest = ours.masked_fill(ours <= NEVER, 0.0).abs().max()
        difference = float((ours - theirs).abs().max() / largest)
        self.largest = max(self.largest, difference) if difference == difference else float("inf")

    def answer(self, ours: list[int], theirs: list[int]) -> None:
        """Compare the tokens of an answer."""
        self.tokens += len(ours)
        self.same_tokens += sum(a == b for a, b in zip(ours, theirs, strict=False))

    @property
    def same(self) -> bool:
        """Whether both agree: a token may differ only where the logits say that two are equally likely."""
        return self.largest <= self.tolerance and self.tokens - self.same_tokens <= self.tokens // 1000

    def __str__(self) -> str:
        return (
            f"{self.same_tokens:,} of {self.tokens:,} tokens of {self.inputs} answers agree, and the logits differ by "
            f"at most {self.largest:.1e} of the largest"
        )


def compared(
    model: Transformer,
    sources: list[list[int]],
    special: Special,
    rules: DecodingConfig,
    longest: int,
    logits_of: Callable[[list[list[int]]], Tensor],
) -> Compared:
    """Compare every logit and every token of our greedy answers of up to ``longest`` tokens; a difference is an error.

    ``logits_of`` runs the exported model on the tokens before each token of the answers, and returns (B, T, V).
    """
    import torch

    from seq2see.decoding.readers import padded
    from seq2see.decoding.rule import LogitsRules
    from seq2see.decoding.search import greedy

    limit = min(longest, model.config.max_length - 1)
    rules = rules.but(beam=1, length_ratio=0.0, length_offset=limit)
    ours = greedy(model, sources, special, rules)
    rows = [[special.start, *answer.ids[:-1]] for answer in ours]
    source, mask = padded(sources, special.pad)
    target, _ = padded(rows, special.pad)
    with torch.no_grad():
        expected, theirs = model(source, target, mask), logits_of(rows)
    rule, found = LogitsRules(special, rules, theirs.device), Compared(len(sources), TOLERANCE)
    for row, answer in enumerate(ours):
        logits = theirs[row, : len(answer.ids)]
        found.logits(expected[row, : len(answer.ids)], logits)
        allowed = rule.along(logits, answer.ids, limit, sources[row])
        found.answer(answer.ids, allowed.argmax(-1).tolist())
    if not found.same:
        raise FolderError(
            f"The exported model does not answer like this one ({found}): nothing was written. Please report this "
            "with the config.toml."
        )
    return found
