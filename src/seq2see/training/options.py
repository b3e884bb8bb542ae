"""What a training is asked to do, and the models that it may begin with."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seq2see import devices
from seq2see.config import Config, DecodingConfig, ModelConfig, TrainingConfig
from seq2see.config import preset as find_preset
from seq2see.data.cuts import LEARNED, Asked, kinds_asked
from seq2see.data.recipe import Rule
from seq2see.data.variation import Vary
from seq2see.errors import UserError
from seq2see.files import given_text
from seq2see.kernels.registry import network_of
from seq2see.model.transformer import Transformer
from seq2see.storage import folder
from seq2see.storage.folder import Tokenizers
from seq2see.storage.trained import Trained
from seq2see.storage.weights import placed, put_weights, read_weights
from seq2see.tokenizers.tokenizer import Tokenizer, fold
from seq2see.training import distributed
from seq2see.training.checkpoint import check_out, continued, tidy
from seq2see.training.schedule import peak

LOWER_RATE = 0.3  # factor of the learning rate when a model is trained further
PRESET_SHAPE = ("d_model", "heads", "d_ff", "encoder_layers", "decoder_layers")  # the same for all data


@dataclass(frozen=True)
class LoadedModel:
    """A model to train further."""

    config: Config
    tokenizers: Tokenizers
    weights: dict[str, Tensor]

    @classmethod
    def read(cls, name: Path) -> LoadedModel:
        """Read a model folder, or a model that ships."""
        path, config, tokenizers = folder.opened(name)
        return cls(config, tokenizers, read_weights(folder.weights_path(path)))

    def digest(self) -> str:
        """Return a digest of all that its answers depend on."""
        found = hashlib.blake2b(repr((self.config.model, self.config.decoding)).encode(), digest_size=16)
        for tokenizer in (self.tokenizers.source, self.tokenizers.target):
            found.update(tokenizer.to_json().encode())
        for name in sorted(self.weights):
            found.update(name.encode())
            found.update(self.weights[name].contiguous().cpu().view(torch.uint8).numpy().data)
        return found.hexdigest()

    def network(self, device: str) -> Transformer:
        """Make its network."""
        made = network_of(self.config.model)
        put_weights(made, self.weights, "the model")
        return placed(made, device).eval()


@dataclass
class TrainOptions:
    """The options of a training; the data decide what is None.

    A dict of settings overrides the preset's. A whole config is used as it is, with the vocabularies of the tokenizers.
    """

    out: Path | None = None
    resume: bool = False
    tokenizer: Asked = None
    vocabulary: int | None = None
    preset: str | None = None
    model: ModelConfig | dict[str, Any] = field(default_factory=dict)
    training: TrainingConfig | dict[str, Any] = field(default_factory=dict)
    decoding: dict[str, Any] = field(default_factory=dict)
    split_seed: int = 1
    unseen: bool = False  # remove the sources of given validation and test pairs from the training
    device: str = "auto"
    start: LoadedModel | None = None
    teacher: LoadedModel | None = None
    unlabelled: Sequence[str] = ()  # more sources, which the teacher answers
    members: int = 1  # of an ensemble
    distil: bool = False  # train one model on the ensemble, which is written beside it
    vary: Vary | None = None  # changes the pairs of each epoch
    rules: tuple[Rule, ...] = ()  # which overrule the recipe's

    def __post_init__(self) -> None:
        devices.check(self.device)
        if self.distil and self.members < 2:
            raise UserError(
                f"`distil` trains one model on an ensemble, but `ensemble` is {self.members}: give 2 or more, such as 5."
            )
        if self.out is not None and distributed.first():
            for out in (self.out, beside_of(self.out)) if self.distil else (self.out,):
                check_free(out, self.resume)
        if self.preset is not None:
            find_preset(self.preset)
        if self.vocabulary is not None and self.vocabulary < 8:
            raise UserError(f"`vocabulary` is {self.vocabulary}: at least 8 tokens were expected.")
        if self.resume and self.out is None:
            raise UserError("`resume` continues the training of a folder: name the folder with `out`.")
        self.settings = {"model": _settings(self.model), "training": _settings(self.training)}
        steps, budget = (self.settings["training"].get(name) for name in ("steps", "budget"))
        if steps is not None and budget is not None:
            raise UserError(f"steps ({steps}) and budget ({budget:g} s) both say how long to train: give one of them.")
        self.seed = self.split_seed
        DecodingConfig.of(**self.decoding)  # a wrong setting is an error at once
        if self.members > 1:
            self.settings["model"]["members"] = self.members
        if self.unlabelled and self.teacher is None and not self.distil:
            raise UserError("`unlabelled` are sources that a teacher answers: give a `teacher` too.")
        # A pupil reads and writes from left to right, as its teacher does for it.
        if self.teacher is not None:
            backward = self.settings["model"].pop("backward", 0)  # that of the ensemble which is distilled
            if backward and self.members > 1:
                raise UserError(
                    f"model.backward is {backward}, but what a teacher teaches reads and writes from left to right: "
                    "leave it out."
                )
        for role in ("start", "teacher"):
            for name in ("tokenizer", "vocabulary"):
                if getattr(self, role) is not None and (value := getattr(self, name)) is not None:
                    raise UserError(f"`{name}` is {value!r}, but `{role}` has a tokenizer: leave it out.")
        if self.start is not None:
            before = self.start.config
            rate = LOWER_RATE * peak(before.training, before.model.d_model)
            self.settings["model"] = asdict(before.model) | self.settings["model"]
            self.settings["training"] = {"learning_rate": rate} | self.settings["training"]

    def of_ensemble(self) -> TrainOptions:
        """Return the options of the ensemble that will teach."""
        return replace(self, distil=False, unlabelled=(), out=None if self.out is None else beside_of(self.out))

    def of_pupil(self, teacher: LoadedModel) -> TrainOptions:
        """Return the options of the model that learns from the ensemble, with its tokenizers."""
        resume = self.resume and self.out is not None and self.out.exists()
        return replace(
            self, distil=False, members=1, start=None, tokenizer=None, vocabulary=None, teacher=teacher, resume=resume
        )

    def finished(self, task: str) -> bool:
        """Whether the training to resume has finished; then the options must match it.

        A script that resumes may be started once more than needed. The folder does not record the data.
        """
        found = distributed.first() and self.resume and self.out is not None and (self.out / folder.WEIGHTS).is_file()
        if found:
            assert self.out is not None
            before, model = folder.read_config(self.out), self.settings["model"]
            if self.preset is not None and self.start is None:
                shape = ModelConfig.of(**find_preset(self.preset).model)
                model = {name: getattr(shape, name) for name in PRESET_SHAPE} | model
            training = before.training.but(**self.settings["training"])
            continued(self.out, before, Config(task, before.model.but(**model), training))
            self._same_tokenizer(folder.read_tokenizers(self.out))
            self._same_teacher(self.out)
            tidy(self.out)  # if the training was killed at its very end
        return distributed.from_first(found)

    def tokenizers(self) -> Tokenizers | None:
        """Return the tokenizers of the training to resume, of the model to start from, or of the teacher."""
        if self.resume and self.out is not None and (self.out / folder.CONFIG).is_file():
            found = folder.read_tokenizers(self.out)
            self._same_tokenizer(found)
            self._same_teacher(self.out)
            return found
        other = self.start or self.teacher
        return None if other is None else other.tokenizers

    def _same_teacher(self, out: Path) -> None:
        """Refuse another teacher than that of the run; a folder of an older version does not name it."""
        begun, teacher = Trained.read(out), self.teacher
        if begun is None or begun.teacher == ("" if teacher is None else teacher.digest()):
            return
        before = "with another teacher" if begun.teacher else "without a teacher"
        raise UserError(
            f"{out} was started {before}, but now there is {'none' if teacher is None else 'this one'}: resume with the "
            "teacher of the start, or train into another folder."
        )

    def _same_tokenizer(self, found: Tokenizers) -> None:
        asked, both = kinds_asked(self.tokenizer), (found.source, found.target)
        if asked is not None and not all(_is_as_asked(*pair) for pair in zip(asked, both, strict=True)):
            given = self.tokenizer if isinstance(self.tokenizer, str) else ",".join(asked)
            raise UserError(
                f"{self.out} was started with tokenizer = {found.named}, but now it is {given}: "
                "leave it out, or train into another folder."
            )
        sizes = [one.size for one in both if one.kind in LEARNED]
        if self.vocabulary is not None and max(sizes, default=0) > self.vocabulary:
            raise UserError(
                f"{self.out} was started with a vocabulary of {max(sizes):,} tokens, but now `vocabulary` is "
                f"{self.vocabulary:,}: leave it out, or train into another folder."
            )


def beside_of(out: Path) -> Path:
    """Return the folder of the ensemble that teaches the model of another folder."""
    return out.with_name(f"{out.name}-ensemble")


def check_free(out: Path, resume: bool) -> None:
    """Refuse a folder at once that cannot be trained into; a finished training may be resumed, without effect."""
    if not (resume and (out / folder.WEIGHTS).is_file()):
        check_out(out, resume)


def sources_of(given: Sequence[str] | str | os.PathLike[str]) -> list[str]:
    """Return sources without targets; a path is a file with one per line."""
    if not isinstance(given, str | os.PathLike):
        return [fold(text) for text in given]
    lines = given_text(Path(given), "a text file with one source in each line").splitlines()
    if not (texts := [text for line in lines if (text := fold(line))]):
        raise UserError(f"{given} is empty: sources were expected, one per line.")
    return texts


def _is_as_asked(asked: str, tokenizer: Tokenizer) -> bool:
    """Whether a tokenizer is of the requested kind, or equals that of the requested file."""
    if asked.endswith(".json"):
        return Tokenizer.of_file(Path(asked)).vocabulary() == tokenizer.vocabulary()
    return asked == tokenizer.kind


def _settings(given: ModelConfig | TrainingConfig | dict[str, Any]) -> dict[str, Any]:
    if isinstance(given, dict):
        return dict(given)
    unset = ("source_vocabulary", "target_vocabulary")
    if isinstance(given, TrainingConfig) and given.budget is not None:
        unset = ("steps", "")
    return {name: value for name, value in asdict(given).items() if name not in unset}
