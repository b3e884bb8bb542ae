"""All that a model folder can be used for beyond answering, and all that imports torch for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from seq2see import folder
from seq2see.config import Config, ModelConfig, TrainingConfig
from seq2see.config import preset as find_preset
from seq2see.data.pairs import hold_out
from seq2see.decoding.torch_engine import TorchEngine as TorchEngine
from seq2see.errors import UserError
from seq2see.evaluate import Pair
from seq2see.evaluate import evaluate as evaluate
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


def train(
    pairs: Iterable[Pair],
    validation: Sequence[Pair] | None,
    preset: str,
    model: dict[str, Any],
    training: dict[str, Any],
    device: str,
    progress: Callable[[Step], None],
) -> tuple[Config, Tokenizers, Transformer, str]:
    """Train on pairs of texts, one token a character; return all that makes a model folder."""
    train = list(pairs)
    if validation is None:
        train, validation = hold_out(train)
    if not train or not validation:
        raise UserError(
            f"{len(train)} pairs to learn from and {len(validation)} held out are too few: give at least 2."
        )
    tokenizers = Tokenizers(
        Tokenizer.characters_of(source for source, _ in (*train, *validation)),
        Tokenizer.characters_of(target for _, target in (*train, *validation)),
    )
    recipe = find_preset(preset)
    longest = max(len(text) for pair in (*train, *validation) for text in pair) + 2
    config = Config(
        task="pairs",
        model=ModelConfig.of(**{
            "max_length": max(64, 2 * longest),
            **recipe.model,
            "share_embeddings": False,
            "source_vocabulary": tokenizers.source.size,
            "target_vocabulary": tokenizers.target.size,
            **model,
        }),
        training=TrainingConfig.of(**{**recipe.training, **training}),
    )  # fmt: skip
    trainer = Trainer(config, tokenizers, train, validation, device=device)
    for step in trainer.steps():
        progress(step)
    transformer = trainer.finish()
    scores = evaluate(transformer, tokenizers, validation)
    card = model_card(
        config, transformer.parameter_count(), len(train), scores, trainer.seconds, "seq2see.fit"
    )
    return config, tokenizers, transformer, card
