"""All that a model folder can be used for beyond answering, and all that imports torch for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seq2see import folder
from seq2see.config import Config, ModelConfig
from seq2see.data.pairs import Splits, hold_out
from seq2see.data.plan import LONGEST, Plan, choose, config_of, tokenizers_of, within
from seq2see.decoding.torch_engine import TorchEngine as TorchEngine
from seq2see.errors import UserError
from seq2see.evaluate import Pair
from seq2see.evaluate import evaluate as evaluate
from seq2see.evaluate import score as score
from seq2see.folder import Tokenizers
from seq2see.inspection.trace import trace_text as trace_text
from seq2see.model.transformer import Transformer
from seq2see.model.weights import read_model, weights_bytes, weights_of
from seq2see.text.tokenizer import Tokenizer
from seq2see.training.card import model_card
from seq2see.training.loop import Step, Trainer


def read(path: Path, config: ModelConfig, device: str) -> Transformer:
    """Read the network of a model folder."""
    return read_model(config, folder.weights_path(path), device)


def write(path: Path, config: Config, tokenizers: Tokenizers, transformer: Transformer, card: str) -> None:
    """Write a model folder."""
    folder.write(path, config, tokenizers, weights_bytes(weights_of(transformer)), card)


@dataclass(frozen=True)
class Prepared:
    """Pairs made ready for training."""

    plan: Plan
    config: Config
    tokenizers: Tokenizers
    splits: Splits
    dropped: list[Pair]  # too long to be learned from


def prepare(
    splits: Splits,
    tokenizer: str | None = None,
    vocabulary: int | None = None,
    preset: str | None = None,
    model: dict[str, Any] | None = None,
    training: dict[str, Any] | None = None,
    tokenizers: Tokenizers | None = None,
) -> Prepared:
    """Choose what is not given, train the tokenizers unless they are, and leave out pairs that are too long."""
    plan = choose(splits.train, tokenizer, vocabulary, preset)
    model = model or {}
    config_of(
        plan, (Tokenizer.characters(),) * 2, 1, model, training or {}
    )  # a wrong setting is told at once
    if tokenizers is None:
        # Characters are no secret of the test set; sub-words and words are learned from the training part alone.
        everything = [*splits.train, *splits.validation, *splits.test]
        known = everything if plan.tokenizer == "characters" else splits.train
        tokenizers = Tokenizers(*tokenizers_of(plan, known, asked=vocabulary is not None))
    both = tokenizers.source, tokenizers.target
    limit = min(LONGEST, int(model.get("max_length", LONGEST)))
    parts, dropped, longest = [], [], 1
    for part in (splits.train, splits.validation, splits.test):
        kept, places, most = within(both, part, limit)
        dropped += [part[place] for place in places]
        longest = max(longest, most)
        parts.append(kept)
    if not all(parts):
        raise UserError(
            f"Nearly all pairs are longer than {limit} tokens: cut the texts up, or raise model.max_length."
        )
    config = config_of(plan, both, longest, model, training or {})
    return Prepared(plan, config, tokenizers, Splits(*parts), dropped)


def train(
    pairs: Iterable[Pair],
    validation: Sequence[Pair] | None,
    tokenizer: str | None,
    vocabulary: int | None,
    preset: str | None,
    model: dict[str, Any],
    training: dict[str, Any],
    device: str,
    progress: Callable[[Step], None],
) -> tuple[Config, Tokenizers, Transformer, str]:
    """Train on pairs of texts; return all that makes a model folder."""
    train = list(pairs)
    if validation is None:
        train, validation = hold_out(train)
    if not train or not validation:
        raise UserError(
            f"{len(train)} pairs to learn from and {len(validation)} held out are too few: give at least 2."
        )
    splits = Splits(train, list(validation), list(validation))
    ready = prepare(splits, tokenizer, vocabulary, preset, model, training)
    trainer = Trainer(
        ready.config, ready.tokenizers, ready.splits.train, ready.splits.validation, device=device
    )
    for step in trainer.steps():
        progress(step)
    transformer = trainer.finish()
    scores = evaluate(transformer, ready.tokenizers, ready.splits.test)
    card = model_card(
        ready.config, transformer.parameter_count(), len(train), scores, trainer.seconds, "seq2see.fit"
    )
    return ready.config, ready.tokenizers, transformer, card
