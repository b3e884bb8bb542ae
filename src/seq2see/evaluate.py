"""How good a model is: its loss when led by the right answer, and its answers when left alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F

from seq2see.data.batching import Batches, Ragged
from seq2see.decoding.engines import Engine
from seq2see.decoding.hypothesis import Special
from seq2see.decoding.torch_engine import TorchEngine
from seq2see.folder import Tokenizers
from seq2see.model.transformer import Transformer

Pair = tuple[str, str]


@dataclass
class Evaluation:
    """Scores over some pairs, and every pair that was answered wrong."""

    pairs: int = 0
    exact: int = 0
    edits: int = 0
    characters: int = 0
    loss_total: float = 0.0
    tokens: int = 0
    misses: list[tuple[str, str, str]] = field(default_factory=list)  # source, expected, given

    @property
    def exact_match(self) -> float:
        """Share of pairs answered to the letter."""
        return self.exact / max(1, self.pairs)

    @property
    def character_error_rate(self) -> float:
        """Insertions, deletions and substitutions per expected character."""
        return self.edits / max(1, self.characters)

    @property
    def loss(self) -> float:
        """Mean −log P(token) in nats, teacher-forced, without label smoothing."""
        return self.loss_total / max(1, self.tokens)

    def add(self, other: Evaluation) -> None:
        """Count another part in."""
        self.pairs += other.pairs
        self.exact += other.exact
        self.edits += other.edits
        self.characters += other.characters
        self.loss_total += other.loss_total
        self.tokens += other.tokens
        self.misses += other.misses


def evaluate(
    model: Transformer,
    tokenizers: Tokenizers,
    pairs: Sequence[Pair],
    batch: int = 4096,
    progress: Callable[[int], None] = lambda done: None,
    engine: Engine | None = None,
) -> Evaluation:
    """Score a model on pairs; ``progress`` is told the number of pairs done, ``engine`` answers in its stead."""
    special = Special(tokenizers.target.start, tokenizers.target.end, tokenizers.source.pad)
    engine = engine or TorchEngine(model, special)
    total = Evaluation()
    for part in parts(pairs, batch):
        total.add(_evaluate_batch(model, tokenizers, part, engine))
        progress(total.pairs)
    return total


def parts(pairs: Sequence[Pair], size: int) -> Iterator[Sequence[Pair]]:
    """Cut a sequence into parts of at most ``size``."""
    for first in range(0, len(pairs), size):
        yield pairs[first : first + size]


@torch.inference_mode()
def _evaluate_batch(
    model: Transformer, tokenizers: Tokenizers, pairs: Sequence[Pair], engine: Engine
) -> Evaluation:
    training = model.training
    model.eval()
    device = next(model.parameters()).device
    sources = tokenizers.source.encode_batch([source for source, _ in pairs])
    targets = tokenizers.target.encode_batch([target for _, target in pairs])
    answers = tokenizers.target.decode_batch(engine.ids(sources))

    pads = (tokenizers.source.pad, tokenizers.target.pad)
    whole = (
        Batches(Ragged.of(sources), Ragged.of(targets), pads, batch_tokens=10**12, seed=0)
        .everything()
        .to(device)
    )
    logits = model(whole.source, whole.target_in, whole.source_mask)  # (B, T, V)
    loss = F.cross_entropy(
        logits.flatten(0, 1).float(), whole.target_out.flatten(), ignore_index=pads[1], reduction="sum"
    )
    model.train(training)

    misses = [(s, t, answer) for (s, t), answer in zip(pairs, answers, strict=True) if answer != t]
    return Evaluation(
        pairs=len(pairs),
        exact=len(pairs) - len(misses),
        edits=sum(edit_distance(expected, given) for _, expected, given in misses),
        characters=sum(len(target) for _, target in pairs),
        loss_total=float(loss),
        tokens=whole.tokens,
        misses=misses,
    )


def edit_distance(a: str, b: str) -> int:
    """Count the insertions, deletions and substitutions that turn a into b (Levenshtein)."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (x != y))
    return row[-1]
