"""One training: prepare, train, test, write. ``seq2see.fit`` and ``seq2see train`` both use it."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seq2see import devices
from seq2see.answering.repairs import proven
from seq2see.config import Config, DecodingConfig, ModelConfig, TrainingConfig
from seq2see.config import preset as find_preset
from seq2see.data.batching import Cut, Ragged
from seq2see.data.cuts import LEARNED, Asked, Cuts, are_sentences, cuts_of, kinds_asked, tokenizers_of
from seq2see.data.doctor import lines_named
from seq2see.data.pairs import Corpus, Pair, Splits, corpus_of, paths_in, seen_in, split, without
from seq2see.data.recipe import LONGEST, Facts, Recipe, choose, config_of, fast_on, in_minutes, most_tokens, with_length
from seq2see.data.shards import Shards, Survey, is_large, survey
from seq2see.data.shards import write as write_shards
from seq2see.data.variation import Vary, copied_share, made_up
from seq2see.decoding.both_ways import engine_of
from seq2see.decoding.hypothesis import Special
from seq2see.devices import CPU, Choice
from seq2see.errors import InputError, UserError, counted, shown
from seq2see.evaluation import calibrate
from seq2see.evaluation.confidence import FEWEST, GOOD_CHRF, Confidence
from seq2see.evaluation.evaluate import Evaluation, evaluate
from seq2see.evaluation.familiar import Familiar
from seq2see.files import given_text
from seq2see.kernels.ensemble import Ensemble
from seq2see.kernels.registry import network_of
from seq2see.machine import uncollected
from seq2see.model.transformer import Transformer
from seq2see.seq2seq import Seq2Seq
from seq2see.storage import folder
from seq2see.storage.folder import Tokenizers
from seq2see.storage.trained import Trained
from seq2see.storage.weights import placed, put_weights, read_weights
from seq2see.tasks import dates
from seq2see.tokenizers.tokenizer import Tokenizer, fold
from seq2see.training import distributed
from seq2see.training.loop import SHARDS, Step, Trainer, check_out, continued, tidy
from seq2see.training.schedule import is_watched, peak

LOWER_RATE = 0.3  # factor of the learning rate when a model is trained further
HELD_OUT_DATES = 10_000  # for validation, and as many for the test
MORE_LENGTH = 1.25  # limit of answers, relative to the longest of the training data
STILL = 1.2  # times the steps after which the rate fell, beyond which the best line says that more would come
OVERFITS, POOR = 0.3, 0.2  # a gap in shares of right answers, and a score
NAMED = 10  # bad rows that are listed; the others are counted
MADE_UP = 10  # invented sources for a teacher, per pair
#: the most of them, and how many are answered at a time; five deep models answer 400,000 words on an H200 in 100 s
MADE_ON_A_CPU, MADE_ON_A_GPU = (40_000, 2048), (400_000, 16_384)
PRESET_SHAPE = ("d_model", "heads", "d_ff", "encoder_layers", "decoder_layers")  # the same for all data


@dataclass(frozen=True)
class Start:
    """A model to train further."""

    config: Config
    tokenizers: Tokenizers
    weights: dict[str, Tensor]

    @classmethod
    def read(cls, name: Path) -> Start:
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
class Request:
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
    start: Start | None = None
    teacher: Start | None = None
    unlabelled: Sequence[str] = ()  # more sources, which the teacher answers
    members: int = 1  # of an ensemble
    vary: Vary | None = None  # changes the pairs of each epoch

    def __post_init__(self) -> None:
        devices.check(self.device)
        if self.out is not None and distributed.first():
            check_free(self.out, self.resume)
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
        if self.unlabelled and self.teacher is None:
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

    def finished(self, task: str) -> bool:
        """Whether the training to resume has finished; then the request must match it.

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


# --- prepare -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Data:
    """Training pairs, and validation and test pairs if they are given."""

    corpus: Corpus  # a sample, if the corpus is larger than memory
    validation: list[Pair] | None = None
    test: list[Pair] | None = None
    survey: Survey | None = None  # of a corpus larger than memory

    @classmethod
    @uncollected()
    def read(
        cls,
        data: Any,
        validation: Any = None,
        test: Any = None,
        seed: int = 1,
        columns: tuple[str, str] | None = None,
        strict: bool = False,
        unseen: bool = False,
    ) -> Data:
        """Read all parts; each may be files, a table, or pairs."""
        watched, tested = (
            None if part is None else corpus_of(part, columns, strict, or_two=True).pairs for part in (validation, test)
        )
        paths = paths_in(data)
        if paths and is_large(paths):
            found = survey(paths, seed, watched, tested, strict, columns=columns, unseen=unseen)
            return cls(found.corpus, watched, tested, found)
        return cls(corpus_of(data, columns, strict), watched, tested)


@dataclass(frozen=True)
class Prepared:
    """All that a training needs."""

    name: str  # of the data
    config: Config
    tokenizers: Tokenizers
    train: list[Pair] | Shards
    validation: list[Pair]
    test: list[Pair]
    ids: tuple[Ragged, Ragged]  # of the training pairs
    cuts: Cuts | None = None  # dates have none
    recipe: Recipe | None = None
    remarks: list[str] = field(default_factory=list)  # about rows and pairs that were left out
    sample: list[str] = field(default_factory=list)  # sources of a training larger than memory
    taught: int = 0  # training pairs whose targets are a teacher's answers
    own: int = 0  # training pairs of the data; with a teacher's answers they are repeated
    unlabelled: frozenset[str] = frozenset()  # given sources that a teacher answered
    given: tuple[str, ...] = ()  # the held-out parts that were given, not split off by source
    where: Choice = CPU

    @property
    def device(self) -> str:
        """The device that trains."""
        return self.where.device

    @property
    def counts(self) -> str:
        """The number of pairs of each part, in words."""
        taught = f" and {self.taught:,} that the teacher answered" if self.taught else ""
        return (
            f"{self.own or len(self.train):,} for training{taught}, {len(self.validation):,} for validation, "
            f"{len(self.test):,} for the test"
        )

    @property
    def different(self) -> int:
        """The number of training pairs, each counted once."""
        return (self.own or len(self.train)) + self.taught

    @property
    def labelled(self) -> list[Pair]:
        """The training pairs of the data; none of a corpus larger than memory."""
        return self.train[: self.own or None] if isinstance(self.train, list) else []

    @property
    def sources(self) -> set[str]:
        """The training sources, without those that were invented."""
        return {source for source, _ in self.labelled} | self.unlabelled

    @cached_property
    def seen(self) -> int:
        """How many test pairs have a training source, which is possible only if files were given."""
        return seen_in(self.sources, self.test) if self.given or self.unlabelled else 0

    @cached_property
    def watched(self) -> int:
        """How many test pairs have a validation source."""
        return seen_in({source for source, _ in self.validation}, self.test)

    @property
    def apart(self) -> str:
        """Which parts share sources, in words; only given parts can."""
        if not self.given and not self.unlabelled:
            return "no source in two parts"
        if isinstance(self.train, Shards):
            return "parts as they were given"
        sources = self.sources
        shared = [
            f"{counted(count, f'{what} pair')} ({count / len(part):.1%})"
            for what, part in (("validation", self.validation), ("test", self.test))
            if (count := seen_in(sources, part))
        ]
        told = "no validation or test source is in the training"
        if shared:
            told = f"{' and '.join(shared)} with a training source (--unseen removes those from the training)"
        return f"{told}; {counted(self.watched, 'test pair')} with a validation source" if self.watched else told

    def origin(self, seed: int) -> str:
        """Where the held-out parts come from, in words."""
        if len(self.given) == 1:
            other = {"validation": "test", "test": "validation"}[self.given[0]]
            return f"the {self.given[0]} as given, the {other} split off by source with seed {seed}"
        return "as given" if self.given else f"split by source with seed {seed}"


def prepare_dates(request: Request, years: tuple[int, int], count: int) -> Prepared:
    """Make dates for training, validation and test."""
    available = len(dates.all_ordinals(*years))
    held_out = min(HELD_OUT_DATES, available // 10)
    if count > available - 2 * held_out:
        raise UserError(
            f"`count` is {count:,}, but the years {years[0]}-{years[1]} leave {available - 2 * held_out:,} dates to "
            f"learn from ({held_out:,} each are held out for validation and test)."
        )
    tokenizers = Tokenizers.one(Tokenizer.characters())
    recipe = find_preset(request.preset or "document")
    sizes = {"source_vocabulary": tokenizers.source.size, "target_vocabulary": tokenizers.target.size}
    model = ModelConfig.of(**{**recipe.model, **sizes, **request.settings["model"]})
    where = devices.choose(request.device, devices.Work(model.d_model, pairs=count), devices.found)
    config = Config(
        "dates",
        model,
        TrainingConfig.of(
            **with_length({**recipe.training, **fast_on(where.device, recipe.model)}, request.settings["training"])
        ),
    )
    train, validation, test = dates.splits(count, held_out, held_out, request.seed, years)
    ids = Cut.within((tokenizers.source, tokenizers.target), train, LONGEST).ids
    return Prepared("dates", config, tokenizers, train, validation, test, ids, where=where)


@uncollected()
def prepare(data: Data, request: Request, show: Callable[[str], None] = lambda text: None) -> Prepared:
    """Choose the settings that are not given, train the tokenizers unless they are given, and leave out pairs that are
    too long. What takes long goes to ``show``.

    The ids of a corpus larger than memory are written to disk. Under torchrun the first process makes the tokenizers
    and these ids, and the others wait for it.
    """
    found, tokenizers = data.survey, request.tokenizers()
    if not distributed.first():
        tokenizers = distributed.from_first(None)
    if found is None:
        parts = split(data.corpus.pairs, data.validation, data.test, request.seed, request.unseen)
        everything = parts.train
    else:
        if request.out is None:
            raise UserError(f"{found.corpus.name} is larger than memory: name a folder for its ids with `out`.")
        parts = Splits(found.corpus.pairs, found.validation, found.test)
        everything = found.alphabet
    cuts = cuts_of(parts.train, request.tokenizer, request.vocabulary, found is None)
    model, training = request.settings["model"], request.settings["training"]
    guess = choose(Facts(len(parts.train), len(parts.train), 1), request.preset)
    config_of(guess, (Tokenizer.characters(),) * 2, model, training)  # a wrong setting is an error at once
    if tokenizers is None:
        if found is not None and cuts.kinds != ("characters", "characters"):
            everything = parts.train
        count = None if found is None else found.count
        tokenizers = Tokenizers(*tokenizers_of(cuts, parts.train, everything, count))
    else:
        _check_characters(tokenizers, parts.train if found is None else everything)
    if distributed.first():
        distributed.from_first(tokenizers)
    cuts = replace(cuts, kinds=(tokenizers.source.kind, tokenizers.target.kind))  # of a file or another model too
    both, limit = (tokenizers.source, tokenizers.target), min(LONGEST, int(model.get("max_length", LONGEST)))
    learned = Cut.within(both, parts.train if found is None else [], limit)
    validation, test = (Held.within(both, part, limit) for part in (parts.validation, parts.test))
    train: list[Pair] | Shards = learned.pairs
    ids, taught = learned.ids, 0
    if found is not None:
        assert request.out is not None
        train = write_shards(request.out / SHARDS, found, both, limit)
        ids = train.source, train.target
    if not train or not validation.pairs or not test.pairs:
        raise UserError(f"Nearly all pairs are longer than {limit} tokens: split the texts, or raise model.max_length.")
    longest = max(validation.longest, test.longest)
    copied = copied_share(learned.pairs)
    lengths = [side.lengths for side in ids]
    recipe, where = _chosen(request, cuts, lengths, longest, on_disk=found is not None, copied=copied)
    config = config_of(recipe, both, model, training)
    unlabelled: list[str] = []
    remarks: list[str] = []
    if request.teacher is not None and found is None:
        held = [*validation.pairs, *test.pairs]
        unlabelled, remarks = _unlabelled(request, tokenizers.source, held)
        train, ids, taught = _with_taught(request, learned, unlabelled, cuts, where.device, show)
    rules = limits_by(ids[0].lengths, ids[1].lengths, config.decoding.but(sentences=cuts.prose))
    config = replace(config, decoding=rules.but(**request.decoding))
    remarks += _remarks(data.corpus, [*learned.dropped, *validation.dropped, *test.dropped], train)
    given = tuple(name for name, part in (("validation", data.validation), ("test", data.test)) if part is not None)
    sample = [] if found is None else [source for source, _ in parts.train]
    return Prepared(
        data.corpus.name, config, tokenizers, train, validation.pairs, test.pairs, ids, cuts, recipe, remarks, sample,
        taught, len(learned.pairs), frozenset(unlabelled), given, where,
    )  # fmt: skip


def _chosen(
    request: Request, cuts: Cuts, lengths: Sequence[np.ndarray], longest: int, **others: Any
) -> tuple[Recipe, Choice]:
    """Choose the settings that are not given, and the device by the size of the model that a GPU would train."""

    def recipe(device: str) -> Recipe:
        facts = Facts.of(lengths, cuts, device, members=request.members, taught=request.teacher is not None, **others)
        return choose(replace(facts, longest=max(facts.longest, longest)), request.preset)

    first = recipe("cuda" if request.device == "auto" else request.device)
    width = ModelConfig.of(**{"share_embeddings": False, **first.model, **request.settings["model"]}).d_model
    pairs = first.facts.pairs
    where = devices.choose(request.device, devices.Work(width, pairs=pairs), devices.found)
    return recipe(where.device), where


@dataclass(frozen=True)
class Held:
    """Held-out pairs that are not too long. A pair with an unknown character stays: it counts as wrong."""

    pairs: list[Pair]
    dropped: list[Pair]
    longest: int  # tokens of a side

    @classmethod
    def within(cls, tokenizers: tuple[Tokenizer, Tokenizer], pairs: Sequence[Pair], limit: int) -> Held:
        """Leave out pairs with more tokens than the limit."""
        known = [pair for pair in pairs if all(map(_is_known, tokenizers, pair))]
        cut = Cut.within(tokenizers, known, limit)
        dropped = set(cut.dropped)
        return cls([pair for pair in pairs if pair not in dropped], cut.dropped, cut.longest)


def _is_known(tokenizer: Tokenizer, text: str) -> bool:
    try:
        tokenizer.check(text)
    except InputError:
        return False
    return True


def _unlabelled(request: Request, tokenizer: Tokenizer, held: Sequence[Pair]) -> tuple[list[str], list[str]]:
    """Return the given sources that a teacher can answer, and remarks about the others."""
    left = {source for source, _ in held} if request.unseen else set()
    texts = [text for text in request.unlabelled if text not in left]
    known: list[str] = []
    unknown: list[str] = []
    for text in texts:
        (known if _is_known(tokenizer, text) else unknown).append(text)
    remarks = []
    if left and len(texts) < len(request.unlabelled):
        fewer = counted(len(request.unlabelled) - len(texts), "unlabelled source")
        remarks.append(f"{fewer} of validation and test: left out.")
    if unknown:
        remarks.append(
            f"{len(unknown):,} of {counted(len(texts), 'unlabelled source')} with tokens that the teacher does not know, "
            f"such as {shown(unknown[0])}: left out."
        )
    return known, remarks


def _with_taught(
    request: Request, learned: Cut, unlabelled: Sequence[str], cuts: Cuts, device: str, show: Callable[[str], None]
) -> tuple[list[Pair], tuple[Ragged, Ragged], int]:
    """Add sources without targets to the training pairs: given ones, and for short texts invented ones.

    Their targets are the teacher's answers. The pairs of the data are repeated, to keep their weight. Return the number
    of answers, too.
    """
    assert request.teacher is not None
    tokenizers = request.teacher.tokenizers
    most, at_once = MADE_ON_A_GPU if devices.is_cuda(device) else MADE_ON_A_CPU
    source, target = tokenizers.source, tokenizers.target
    sources = source.encode_batch(unlabelled)
    if not cuts.learned:
        count = min(MADE_UP * len(learned.pairs), most)
        show(f"Inventing {count:,} sources …")
        sources += made_up(learned.ids[0], count, Random(request.seed))
    if not sources:
        return learned.pairs, learned.ids, 0
    engine = engine_of(request.teacher.network(device), Special.of(tokenizers))
    rules = request.teacher.config.decoding
    answers = []
    for first in range(0, len(sources), at_once):
        show(f"The teacher has answered {first:,} of {len(sources):,} sources …")
        answers += engine.ids(sources[first : first + at_once], rules)
    texts = zip(source.decode_batch(sources), target.decode_batch(answers), strict=True)
    longest = most_tokens(max(int(side.lengths.max()) for side in learned.ids))
    more = Cut.within((source, target), [pair for pair in texts if all(pair)], longest)
    times = max(1, len(more.pairs) // len(learned.pairs))
    repeated = np.tile(np.arange(len(learned.pairs)), times)
    ids = tuple(one.taken(repeated).and_then(other) for one, other in zip(learned.ids, more.ids, strict=True))
    return [*learned.pairs * times, *more.pairs], (ids[0], ids[1]), len(more.pairs)


def limits_by(source: np.ndarray, target: np.ndarray, rules: DecodingConfig) -> DecodingConfig:
    """Raise the paper's limit of answers if those of the training data are longer.

    The paper allows source + 50 tokens. A few source tokens may have many target tokens, as digits have in words.
    ``source`` and ``target`` are the lengths of all pairs, in tokens.
    """
    ratio = max(1.0, float(np.quantile(target / source, 0.99)))
    beyond = float((target - ratio * source).max())
    offset = max(rules.length_offset, int(np.ceil(MORE_LENGTH * max(beyond, 0.0))) + rules.length_offset // 2)
    return rules.but(length_ratio=round(MORE_LENGTH * ratio, 2) if ratio > 1 else 1.0, length_offset=offset)


def _remarks(corpus: Corpus, dropped: Sequence[Pair], train: Sequence[Pair] | Shards) -> list[str]:
    """Return messages about rows and pairs that are left out."""
    remarks = [f"{corpus.name}, {fault}: skipped." for fault in corpus.faults[:NAMED]]
    if len(corpus.faults) > NAMED:
        remarks.append(f"{counted(len(corpus.faults) - NAMED, 'more bad row')} in {corpus.name}: skipped.")
    line_of = dict(zip(corpus.pairs, corpus.lines, strict=True))
    lines = sorted(line_of[pair] for pair in dropped if pair in line_of)
    count = len(dropped)
    if isinstance(train, Shards):
        count, lines = count + train.dropped, train.dropped_lines
    if count:
        named = f" ({lines_named(lines)})" if lines else ""
        remarks.append(f"{counted(count, 'pair')} {'is' if count == 1 else 'are'} too long and left out{named}.")
    return remarks


def _check_characters(tokenizers: Tokenizers, pairs: Sequence[Pair]) -> None:
    """Refuse texts with characters that the given tokenizers do not know."""
    for pair in pairs:
        for tokenizer, text in zip((tokenizers.source, tokenizers.target), pair, strict=True):
            try:
                tokenizer.check(text)
            except InputError as error:
                raise UserError(
                    f"{error} The tokenizer is that of the model or the run that is trained further: leave such texts "
                    "out, or train a new model on them."
                ) from None


# --- train, test, write --------------------------------------------------------------------------------------------


class Run:
    """One training: ``train`` it, then ``test`` and ``write`` its model.

    Messages about pairs that are left out and about checkpoints go to ``say``.
    """

    def __init__(self, ready: Prepared, request: Request, say: Callable[[str], None]) -> None:
        self.ready, self.request = ready, request
        self.confidence: Confidence | None = None
        #: validation pairs that were answered completely, once they were tried
        self.complete: int | None = None
        self.trainer = Trainer(
            ready.config,
            ready.tokenizers,
            ready.train,
            ready.validation,
            request.out,
            request.resume,
            ready.device,
            say,
            None if request.start is None else request.start.weights,
            ready.ids,
            None if request.teacher is None else request.teacher.network(ready.device),
            request.vary,
        )
        source, own = ready.ids[0], ready.own or len(ready.train)
        teacher = "" if request.teacher is None else request.teacher.digest()
        self.trained = Trained.of(source.values, source.offsets[: own + 1], teacher)
        if request.out is not None and distributed.first():
            folder.write_atomically(request.out / folder.TRAINED, self.trained.to_json().encode())

    def train(self, show: Callable[[Step], None], *signals: signal.Signals) -> bool:
        """Take all steps and ``show`` each; return False if a signal or Ctrl-C stopped it earlier.

        A run that is stopped, or ends by an exception in ``show``, leaves a checkpoint in its folder.
        """
        with _noted(signals) as asked_to_stop:
            for step in self.trainer.steps():
                stop = False
                try:
                    show(step)
                except KeyboardInterrupt:
                    stop = True
                except Exception:
                    if distributed.size() == 1:
                        self.trainer.save(at_once=True)
                    raise
                if distributed.any_of(stop or asked_to_stop()) and not self.trainer.ended:
                    self.trainer.save(at_once=True)
                    return False
        return True

    def test(self) -> Evaluation:
        """Put the final weights into the model, choose its repairs, and score its answers to the test pairs."""
        network, trainer = self.trainer.finish(), self.trainer
        model = Seq2Seq(trainer.config, trainer.tokenizers, network, device=self.ready.device)
        rules = trainer.config.decoding
        if rules.sentences and "repairs" not in self.request.decoding:
            rules = rules.but(repairs=proven(model.answerer, self.ready.validation, rules))
            model.config = trainer.config = replace(trainer.config, decoding=rules)
        found = model.evaluate(self.ready.test)
        self.confidence = self._calibrated()
        return found

    def unseen(self, scores: Evaluation) -> Evaluation | None:
        """Return the scores of the test pairs whose source is not in the training, if there are others too."""
        if not self.ready.seen:
            return None
        return scores.of_others(self.ready.sources, self.trainer.tokenizers.target.separator)

    def tested(self, scores: Evaluation) -> str:
        """Say how many test pairs are right, and how many of those whose source is not in the training."""
        what, others = "dates" if self.ready.recipe is None else "pairs", self.unseen(scores)
        what = what if self.ready.seen else self.unseen_pairs(what)
        told = (
            f"Test: {scores.exact:,} of {scores.pairs:,} {what} are right ({scores.exact_match:.2%}), "
            f"after {self.trainer.seconds:.0f} s of training."
        )
        if others is not None:
            told += (
                f"\nOf the {others.pairs:,} whose source is not in the training, {others.exact:,} "
                f"({others.exact_match:.2%})."
            )
        return told

    def outcome(self) -> str:
        """Say how a watched training ended, and what would help; empty for others."""
        trainer = self.trainer
        course, settings = trainer.course, trainer.config.training
        if not is_watched(settings) or settings.budget is None:
            return ""
        if course.why == "solved":
            return "Learned: every held-out pair is right."
        if course.why == "budget" and course.step > STILL * course.falls:
            return (
                f"Still learning when the budget ended: --budget {in_minutes(3 * settings.budget)} would let it go on."
            )
        gap = self._memorised()
        if gap > OVERFITS:
            return f"It has learned its own pairs better than others ({gap:.0%} more are right): more data would help."
        if course.score < POOR:
            return (
                "Nothing more came, and few answers are right: the targets may not follow from the sources "
                "(`seq2see doctor`), or the data are too few."
            )
        return f"Learned: nothing more came after step {course.step:,}."

    def _memorised(self) -> float:
        """Return how much larger the share of right answers is on training pairs than on held-out ones."""
        own = self.ready.labelled[: len(self.trainer.validation)]
        if not own:
            return 0.0
        rules, answers = self.ready.config.decoding, []
        for pairs in (own, self.trainer.validation):
            answers.append(evaluate(self.trainer.model, self.trainer.tokenizers, pairs, rules=rules).exact_match)
        return answers[0] - answers[1]

    def unseen_pairs(self, what: str) -> str:
        """Name test pairs whose sources are not in the training."""
        # A model to start from or a teacher may have learned from them, and the validation chooses the weights.
        known = self.request.start or self.request.teacher or self.ready.watched
        return f"{what} whose sources are not in this training" if known else f"{what} never seen"

    def members(self) -> list[float]:
        """Return the exact match of each member of an ensemble on the validation pairs."""
        found, rules = self.trainer.model, self.ready.config.decoding
        if not isinstance(found, Ensemble):
            return []
        return [
            evaluate(member, self.trainer.tokenizers, self.trainer.validation, rules=rules).exact_match
            for member in found.all
        ]

    def _calibrated(self) -> Confidence | None:
        """Fit the confidence on the validation pairs, and measure it on the test pairs that are not among them."""
        ready, tokenizers = self.ready, self.trainer.tokenizers
        if ready.recipe is None or len({source for source, _ in ready.validation}) < FEWEST:
            return None
        engine = engine_of(self.trainer.model, Special.of(tokenizers))
        chrf = GOOD_CHRF if are_sentences(ready.validation) else None
        seen, others = (
            calibrate.observe(
                engine,
                tokenizers,
                ready.config.decoding,
                [pair for pair in pairs if _is_known(tokenizers.source, pair[0])],
                chrf,
            )
            for pairs in (ready.validation, without(ready.test, ready.validation))
        )
        self.complete = sum(ended for _, ended, _ in seen)
        return calibrate.calibrated(seen, others or None, self._familiar(), chrf)

    def _familiar(self) -> Familiar:
        """Compute the statistics of the training sources."""
        ready, source = self.ready, self.trainer.tokenizers.source
        texts = ready.sample if isinstance(ready.train, Shards) else [text for text, _ in ready.train]
        longest = int(ready.ids[0].lengths.max()) - len(source.before) - len(source.after)
        if self.request.vary is not None:  # its texts may be longer
            longest = ready.config.model.max_length
        return Familiar.learn(texts, longest, [text for text, _ in ready.validation])

    @property
    def unfitted(self) -> str:
        """Why the confidence is not fitted; empty if it is, or if the data are dates."""
        if self.confidence is not None or self.ready.recipe is None:
            return ""
        return (
            f"The confidence is not fitted: this needs complete answers to {FEWEST} validation sources or more, and the "
            f"validation has {counted(len(self.ready.validation), 'pair')}"
            f"{'' if self.complete is None else f', of which {self.complete:,} were answered completely'}. "
            "`seq2see calibrate` fits it on other pairs."
        )

    def write(self, card: str) -> None:
        """Write the model folder, if one was requested."""
        if self.request.out is not None:
            self.trainer.write(card, self.confidence)
            if self.confidence is not None and find_spec("matplotlib") is not None:
                # slow to import
                from seq2see.inspection.reliability import reliability_png

                picture = reliability_png(self.confidence)
                folder.write_atomically(self.request.out / folder.PICTURE, picture)

    def _of_unseen(self, scores: Evaluation) -> list[str]:
        found = self.unseen(scores)
        if found is None:
            return []
        return [
            f"| exact match on the {found.pairs:,} pairs whose source is not in the training | {found.exact_match:.2%} |"
        ]

    def _scores(self, scores: Evaluation) -> list[str]:
        """Write the rows of the measured figures; BLEU and chrF with their signatures, if the pairs are sentences."""
        rows = [
            f"| measured on {'test pairs' if self.ready.seen else self.unseen_pairs('test pairs')} | |",
            "|---|---|",
            f"| pairs | {scores.pairs:,} |",
            f"| exact match, free-running | {scores.exact_match:.2%} |",
            f"| character error rate | {scores.character_error_rate:.4%} |",
        ]
        if self.trainer.tokenizers.target.separator is not None:
            rows.append(f"| symbol error rate (PER, where symbols are phones) | {scores.token_error_rate:.2%} |")
        if scores.answers and are_sentences([(source, expected) for source, expected, _ in scores.answers]):
            for found in (scores.bleu(), scores.chrf()):
                rows.append(f"| {found.signature.replace('|', ' ')} | {found.score:.2f} |")
        return [*rows, f"| loss, teacher-forced (nats a token) | {scores.loss:.3g} |"]

    def card(self, scores: Evaluation | None, command: str) -> str:
        """Return the model card: what the model is, its scores, and how to repeat them."""
        trainer, ready = self.trainer, self.ready
        shape, steps = trainer.config.model, f"{trainer.step:,} steps"
        if not trainer.ended:
            steps = f"{trainer.step:,} of {trainer.last_step:,} steps, then it was stopped"
        made = "A Transformer encoder-decoder made by seq2see"
        if isinstance(trainer.model, Ensemble):
            made = f"An ensemble of {len(trainer.model.all)} Transformers made by seq2see, of one shape"
            if shape.backward:
                last = (
                    "the last of which reads and writes"
                    if shape.backward == 1
                    else f"the last {shape.backward} of which read and write"
                )
                made += f", {last} from right to left"
        lines = [
            f"# {trainer.config.task if ready.recipe is None or trainer.out is None else trainer.out.name}",
            "",
            f"{made}: {trainer.model.parameter_count():,} parameters, d_model "
            f"{shape.d_model}, {shape.heads} heads, d_ff {shape.d_ff}, {shape.encoder_layers}+{shape.decoder_layers} "
            f"layers, {shape.norm}-norm.",
            "",
            *(["| not tested | |", "|---|---|"] if scores is None else self._scores(scores)),
            *([] if scores is None else self._of_unseen(scores)),
            f"| trained on | {counted(ready.different, 'pair')}, {steps}, {trainer.seconds:.0f} s |",
            f"| validated on | {counted(len(ready.validation), 'pair')}, {ready.apart} |",
            "",
            "Made by:",
            "",
            f"    {command}",
            "",
        ]
        if ready.recipe is not None:
            lines += [
                f"Data: {ready.name}, {ready.counts}, "
                f"{ready.origin(self.request.seed)}; tokenizer "
                f"{trainer.tokenizers.named}; {ready.recipe}.",
                "",
            ]
        if scores is not None and self.unfitted:
            lines += [self.unfitted, ""]
        if self.confidence is not None:
            lines += [calibrate.section(self.confidence, picture=self.request.out is not None)]
        return "\n".join(lines)


@contextmanager
def _noted(signals: Sequence[signal.Signals]) -> Iterator[Callable[[], bool]]:
    """Record signals, so that a step is not interrupted; a second one ends a process that trains alone."""
    noted = False

    def note(number: int, frame: object) -> None:
        nonlocal noted
        # torchrun itself ends processes that take too long to stop.
        if noted and distributed.size() == 1:
            raise KeyboardInterrupt
        noted = True

    if threading.current_thread() is not threading.main_thread():
        signals = ()  # only the main thread may handle them
    before = {sort: signal.signal(sort, note) for sort in signals}
    try:
        yield lambda: noted
    finally:
        for sort, handler in before.items():
            signal.signal(sort, handler)


@contextmanager
def progress_bar(run: Run, visible: bool) -> Iterator[Callable[[Step], None]]:
    """Return a function that shows each step on standard error: as a bar, or only the scores without a terminal."""
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = ("training", MofNCompleteColumn(), "steps", TextColumn("{task.description}"), TimeElapsedColumn(), "left")
    console = Console(stderr=True)
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True,
                  disable=not (visible and sys.stderr.isatty())) as bar:  # fmt: skip
        task = bar.add_task(run.trainer.waits, total=run.trainer.last_step, completed=run.trainer.step)
        told = ""

        def show(step: Step) -> None:
            nonlocal told
            steps = run.trainer.last_step
            bar.update(task, description=told, total=steps, completed=step.step)
            if step.line is not None:
                told = f"validation loss {step.line.validation_loss:.4f}, {step.line.exact_match:.1%} right"
                bar.update(task, description=told)
                if visible and not sys.stderr.isatty():
                    print(f"step {step.step:,} of {steps:,}: {told}", file=sys.stderr, flush=True)

        yield show
