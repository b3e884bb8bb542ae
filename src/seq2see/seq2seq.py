"""The one object that people hold: a trained model that answers, scores, traces, and saves itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import exp
from pathlib import Path
from typing import Any

from seq2see import folder
from seq2see.config import Config, ModelConfig, TrainingConfig
from seq2see.config import preset as find_preset
from seq2see.data import dates
from seq2see.data.pairs import hold_out
from seq2see.decoding.search import Hypothesis, Special, beam_search, greedy
from seq2see.errors import FolderError, InputError, RefusedInputs, UserError
from seq2see.evaluate import Evaluation, Pair, evaluate
from seq2see.folder import Tokenizers
from seq2see.inspection.trace import Trace, trace_text
from seq2see.model.transformer import Transformer
from seq2see.model.weights import read_model, weights_bytes, weights_of
from seq2see.text.tokenizer import Tokenizer
from seq2see.training.card import model_card
from seq2see.training.loop import Step, Trainer

BATCH = 512  # inputs decoded together

#: What a task asks of its inputs beyond their characters.
CHECKS: dict[str, Callable[[str], None]] = {"dates": dates.check}


@dataclass(frozen=True)
class Token:
    """One token of an answer and how sure the model was of it."""

    token: str
    probability: float


@dataclass(frozen=True)
class Alternative:
    """A less likely answer."""

    output: str
    log_probability: float


@dataclass(frozen=True)
class Answer:
    """What the model says to one input, or why it was refused."""

    input: str
    output: str | None
    log_probability: float | None = None
    tokens: list[Token] = field(default_factory=list)
    alternatives: list[Alternative] = field(default_factory=list)
    ids: list[int] = field(default_factory=list, repr=False)
    error: str | None = None

    @property
    def probability(self) -> float | None:
        """Probability of the whole answer."""
        return None if self.log_probability is None else exp(self.log_probability)


class Seq2Seq:
    """A trained text-to-text model.

    >>> import seq2see
    >>> model = seq2see.load("dates")
    >>> model("1845-01-05")
    'January 5, 1845'
    """

    def __init__(
        self, config: Config, tokenizers: Tokenizers, transformer: Transformer, card: str = ""
    ) -> None:
        self.config = config
        self.tokenizers = tokenizers
        self.transformer = transformer
        self.card = card

    @classmethod
    def load(cls, name: str | os.PathLike[str], device: str = "cpu") -> Seq2Seq:
        """Load a model that ships, by name, or any model folder."""
        path = folder.find(name)
        config, tokenizers = folder.read_config(path), folder.read_tokenizers(path)
        for side, tokenizer, size in (
            ("source", tokenizers.source, config.model.source_vocabulary),
            ("target", tokenizers.target, config.model.target_vocabulary),
        ):
            if tokenizer.size != size:
                raise FolderError(
                    f"{path.name} does not fit together: its config says {size} {side} tokens, "
                    f"its tokenizer has {tokenizer.size}."
                )
        transformer = read_model(config.model, folder.weights_path(path), device)
        card = path / folder.CARD
        return cls(
            config, tokenizers, transformer, card.read_text(encoding="utf-8") if card.is_file() else ""
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a model folder that ``load`` reads."""
        data = weights_bytes(weights_of(self.transformer))
        folder.write(Path(path), self.config, self.tokenizers, data, self.card)

    def check(self, text: str) -> None:
        """Raise an InputError if the model cannot take this text, saying why."""
        if self.config.task in CHECKS:
            CHECKS[self.config.task](text)
        if not text.strip():
            raise InputError("The line is empty: a text was expected.")
        self.tokenizers.source.check(text)
        length, longest = len(self.tokenizers.source.encode(text)), self.config.model.max_length
        if length > longest:
            raise InputError(
                f"The text has {length:,} tokens, but this model takes at most {longest:,}: cut it up."
            )

    def __call__(self, text: str) -> str:
        """Answer one text."""
        self.check(text)
        return str(self.answers([text])[0].output)

    def predict(self, texts: Sequence[str], beam: int = 1) -> list[str]:
        """Answer many texts, in order; if some are refused, RefusedInputs holds the others' answers."""
        answers = self.answers(texts, beam=beam)
        reasons = {index: answer.error for index, answer in enumerate(answers) if answer.error is not None}
        if reasons:
            raise RefusedInputs(reasons, [answer.output for answer in answers])
        return [str(answer.output) for answer in answers]

    def answers(self, texts: Sequence[str], beam: int = 1, n_best: int = 1) -> list[Answer]:
        """Answer many texts with probabilities and alternatives; a bad text is refused, the others are answered."""
        if isinstance(texts, str):
            raise UserError("A list of texts was expected, but one text was given: put it into [ ].")
        if beam < 1 or n_best < 1:
            raise UserError(f"beam is {beam} and n_best is {n_best}: both must be at least 1.")
        if n_best > beam:
            raise UserError(f"n_best {n_best} needs a beam of at least {n_best}, but beam is {beam}.")
        results: list[Answer | None] = [None] * len(texts)
        good: list[int] = []
        for index, text in enumerate(texts):
            try:
                self.check(text)
                good.append(index)
            except InputError as error:
                results[index] = Answer(text, None, error=str(error))
        encoded = dict(zip(good, self.tokenizers.source.encode_batch([texts[i] for i in good]), strict=True))
        good.sort(key=lambda i: len(encoded[i]))  # neighbours of one length need no padding
        for first in range(0, len(good), BATCH):
            rows = good[first : first + BATCH]
            for row, hypotheses in zip(rows, self._search([encoded[i] for i in rows], beam), strict=True):
                results[row] = self._answer(texts[row], hypotheses[:n_best])
        return [answer for answer in results if answer is not None]

    def _search(self, sources: list[list[int]], beam: int) -> list[list[Hypothesis]]:
        target = self.tokenizers.target
        special = Special(target.start, target.end, self.tokenizers.source.pad)
        if beam == 1:
            return [[hypothesis] for hypothesis in greedy(self.transformer, sources, special)]
        return beam_search(self.transformer, sources, special, beam)

    def _answer(self, text: str, hypotheses: list[Hypothesis]) -> Answer:
        target, best = self.tokenizers.target, hypotheses[0]
        tokens = zip(target.tokens(best.ids), best.log_probabilities, strict=True)
        return Answer(
            input=text,
            output=target.decode(best.ids),
            log_probability=best.log_probability,
            tokens=[Token(token, exp(value)) for token, value in tokens],
            alternatives=[Alternative(target.decode(h.ids), h.log_probability) for h in hypotheses[1:]],
            ids=best.ids,
        )

    def raw(self, answer: Answer) -> str:
        """Write an answer as the documents do: ``<sos>January 5, 1845<eos><pad><pad>``."""
        length = dates.RAW_LENGTH if self.config.task == "dates" else 0
        return self.tokenizers.target.raw([self.tokenizers.target.start, *answer.ids], length)

    def evaluate(
        self, pairs: Sequence[Pair], progress: Callable[[int], None] = lambda done: None
    ) -> Evaluation:
        """Score the model on pairs: exact match, character error rate, loss, every miss."""
        return evaluate(self.transformer, self.tokenizers, pairs, progress=progress)

    def trace(self, text: str, target: str | None = None, edit: dict[str, Any] | None = None) -> Trace:
        """Answer one text and keep every number on the way; ``edit`` replaces values by name."""
        self.check(text)
        return trace_text(self.transformer, self.tokenizers, text, target, edit)


def load(name: str | os.PathLike[str], device: str = "cpu") -> Seq2Seq:
    """Load a model: ``load("dates")`` for one that ships, ``load("path/")`` for any model folder."""
    return Seq2Seq.load(name, device)


def fit(
    pairs: Iterable[Pair],
    validation: Sequence[Pair] | None = None,
    preset: str = "tiny",
    model: dict[str, Any] | None = None,
    training: dict[str, Any] | None = None,
    device: str = "cpu",
    progress: Callable[[Step], None] = lambda step: None,
) -> Seq2Seq:
    """Train a model on pairs of texts, one token a character.

    Some pairs are held out for the scores in the card unless ``validation`` is given.
    ``model`` and ``training`` override settings of the preset.

    >>> import seq2see
    >>> pairs = [(f"{n:03}", f"{n:03}"[::-1]) for n in range(1000)]
    >>> reverse = seq2see.fit(pairs, training={"steps": 2})
    >>> len(reverse.predict(["123", "456"]))
    2
    """
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
            **(model or {}),
        }),
        training=TrainingConfig.of(**{**recipe.training, **(training or {})}),
    )  # fmt: skip
    trainer = Trainer(config, tokenizers, train, validation, device=device)
    for step in trainer.steps():
        progress(step)
    fitted = Seq2Seq(config, tokenizers, trainer.finish())
    scores = fitted.evaluate(validation)
    fitted.card = model_card(
        config, fitted.transformer.parameter_count(), len(train), scores, trainer.seconds, "seq2see.fit"
    )
    return fitted
