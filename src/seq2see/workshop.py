"""All that a model folder can be used for beyond answering, and all that imports torch for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from seq2see import folder
from seq2see.config import Config, ModelConfig
from seq2see.data.pairs import Splits, hold_out
from seq2see.data.pairs import tidied as tidied
from seq2see.data.plan import LONGEST, Plan, choose, config_of, tokenizers_of, within
from seq2see.data.shards import Shards, Survey
from seq2see.data.shards import write as write_shards
from seq2see.decoding.torch_engine import TorchEngine as TorchEngine
from seq2see.errors import FolderError, InputError, UserError
from seq2see.evaluate import Pair
from seq2see.evaluate import check_pair as check_pair
from seq2see.evaluate import evaluate as evaluate
from seq2see.evaluate import score as score
from seq2see.folder import Tokenizers
from seq2see.inspection.alignment import align as align
from seq2see.inspection.trace import trace_text as trace_text
from seq2see.model.transformer import Transformer
from seq2see.model.weights import read_model, weights_bytes, weights_of
from seq2see.page.single_file import PageTrace as PageTrace
from seq2see.text.tokenizer import Tokenizer
from seq2see.training.card import model_card
from seq2see.training.loop import Step, Trainer
from seq2see.training.schedule import peak

FURTHER = 0.3  # of the learning rate that a model was trained with, to learn on from it


def read(path: Path, config: ModelConfig, device: str) -> Transformer:
    """Read the network of a model folder onto a device."""
    check_device(device)
    return read_model(config, folder.weights_path(path), device)


def check_device(device: str) -> None:
    """Refuse a device that is not there."""
    kind = device.split(":")[0]
    if kind not in ("cpu", "cuda"):
        raise UserError(f"device is {device!r}: 'cpu' or 'cuda' was expected.")
    if kind == "cuda" and not torch.cuda.is_available():
        raise UserError(f"device is {device!r}, but PyTorch sees no GPU here: use 'cpu'.")


def write(path: Path, config: Config, tokenizers: Tokenizers, transformer: Transformer, card: str) -> None:
    """Write a model folder: a new one, or in the place of another model."""
    if path.exists() and not path.is_dir():
        raise FolderError(f"{path} is a file: a folder for the model was expected.")
    if path.is_dir() and any(path.iterdir()) and not (path / folder.CONFIG).is_file():
        raise FolderError(f"{path} is not empty, and holds no model: choose a folder that is not there yet.")
    folder.write(path, config, tokenizers, weights_bytes(weights_of(transformer)), card)


@dataclass(frozen=True)
class Prepared:
    """Pairs made ready for training."""

    plan: Plan
    config: Config
    tokenizers: Tokenizers
    splits: Splits
    dropped: list[Pair]  # too long to be learned from
    shards: Shards | None = None  # the training part, where it is larger than memory

    @property
    def train(self) -> list[Pair] | Shards:
        """What is learned from."""
        return self.splits.train if self.shards is None else self.shards


def prepare(
    splits: Splits,
    tokenizer: str | None = None,
    vocabulary: int | None = None,
    preset: str | None = None,
    model: dict[str, Any] | None = None,
    training: dict[str, Any] | None = None,
    tokenizers: Tokenizers | None = None,
    device: str = "cpu",
) -> Prepared:
    """Choose what is not given, train the tokenizers unless they are, and leave out pairs that are too long."""
    plan = choose(splits.train, tokenizer, vocabulary, preset, device=device)
    model, training = model or {}, training or {}
    # Characters are no secret of the test set; sub-words and words are learned from the training part alone.
    everything = [*splits.train, *splits.validation, *splits.test]
    if tokenizers is not None:
        _check_characters(tokenizers, everything)
    known = everything if plan.tokenizer == "characters" else splits.train
    tokenizers, limit = _cutting(plan, known, vocabulary is not None, model, training, tokenizers)
    both = tokenizers.source, tokenizers.target
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
    config = config_of(plan, both, longest, model, training)
    return Prepared(plan, config, tokenizers, Splits(*parts), dropped)


def _check_characters(tokenizers: Tokenizers, pairs: Sequence[Pair]) -> None:
    """Refuse texts that tokenizers which are given cannot cut."""
    for pair in pairs:
        for tokenizer, text in zip((tokenizers.source, tokenizers.target), pair, strict=True):
            try:
                tokenizer.check(text)
            except InputError as error:
                raise UserError(
                    f"{error} The tokenizer is that of the model or the run that is to learn on: leave such texts out, "
                    "or train a new model on them."
                ) from None


def _cutting(
    plan: Plan,
    known: Sequence[Pair],
    asked: bool,
    model: dict[str, Any],
    training: dict[str, Any],
    tokenizers: Tokenizers | None,
) -> tuple[Tokenizers, int]:
    """Return the tokenizers, trained on what may be known unless they are given, and the most tokens of a side."""
    config_of(plan, (Tokenizer.characters(),) * 2, 1, model, training)  # a wrong setting is told at once
    if tokenizers is None:
        tokenizers = Tokenizers(*tokenizers_of(plan, known, asked=asked))
    return tokenizers, min(LONGEST, int(model.get("max_length", LONGEST)))


def prepare_large(
    found: Survey,
    where: Path,
    tokenizer: str | None = None,
    vocabulary: int | None = None,
    preset: str | None = None,
    model: dict[str, Any] | None = None,
    training: dict[str, Any] | None = None,
    tokenizers: Tokenizers | None = None,
    device: str = "cpu",
) -> Prepared:
    """Do as ``prepare`` does for a corpus larger than memory: choose by a sample of it, and write its ids to disk."""
    sample = found.corpus.pairs
    plan = choose(sample, tokenizer, vocabulary, preset, found.count, device)
    model, training = model or {}, training or {}
    letters = ["".join(side) for side in found.letters]
    if tokenizers is not None:
        _check_characters(tokenizers, [(letters[0], letters[1])])
    known = [(letters[0], letters[1])] if plan.tokenizer == "characters" else sample
    tokenizers, limit = _cutting(plan, known, vocabulary is not None, model, training, tokenizers)
    both = tokenizers.source, tokenizers.target
    shards = write_shards(where, found, both, limit)
    validation, _, most = within(both, found.validation, limit)
    test, _, last = within(both, found.test, limit)
    if not validation or not test:
        raise UserError(f"Nearly all held-out pairs are longer than {limit} tokens: raise model.max_length.")
    config = config_of(plan, both, max(shards.longest, most, last), model, training)
    return Prepared(plan, config, tokenizers, Splits([], validation, test), [], shards)


def further(
    config: Config, model: dict[str, Any], training: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return settings to learn on from a model: its shape, and a lower learning rate than it had."""
    lower = FURTHER * peak(config.training, config.model.d_model)
    return {**asdict(config.model), **model}, {"learning_rate": lower, **training}


def train(
    pairs: Iterable[Pair],
    validation: Iterable[Pair] | None,
    tokenizer: str | None,
    vocabulary: int | None,
    preset: str | None,
    model: dict[str, Any],
    training: dict[str, Any],
    device: str,
    progress: Callable[[Step], None],
    start: tuple[Config, Tokenizers, Transformer] | None = None,
) -> tuple[Config, Tokenizers, Transformer, str]:
    """Train on pairs of texts, or train a model further on them; return all that makes a model folder."""
    check_device(device)
    train = tidied(pairs)
    held = None if validation is None else tidied(validation)
    if held is None:
        train, held = hold_out(train)
    if not train or not held:
        raise UserError(
            f"{len(train)} pairs to learn from and {len(held)} held out are too few: give at least 2 pairs, of different "
            "sources, since none is held out that is also learned from."
        )
    splits = Splits(train, held, held)
    tokenizers = weights = None
    if start is not None:
        config, tokenizers, transformer = start
        weights = weights_of(transformer)
        model, training = further(config, model, training)
    ready = prepare(splits, tokenizer, vocabulary, preset, model, training, tokenizers, device)
    trainer = Trainer(
        ready.config,
        ready.tokenizers,
        ready.splits.train,
        ready.splits.validation,
        device=device,
        start=weights,
    )
    for step in trainer.steps():
        progress(step)
    transformer = trainer.finish()
    scores = evaluate(transformer, ready.tokenizers, ready.splits.test)
    card = model_card(
        trainer.config, transformer.parameter_count(), len(train), scores, trainer.seconds, "seq2see.fit"
    )
    return trainer.config, ready.tokenizers, transformer, card
