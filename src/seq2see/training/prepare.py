"""From pairs and options to all that a training needs: the splits, the tokenizers, the recipe, the ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from random import Random
from typing import Any

import numpy as np

from seq2see import devices
from seq2see.config import Config, DecodingConfig, ModelConfig, TrainingConfig
from seq2see.config import preset as find_preset
from seq2see.data.batching import Encoded, Ragged
from seq2see.data.cuts import Cuts, cuts_of, tokenizers_of
from seq2see.data.doctor import lines_named
from seq2see.data.pairs import Corpus, Pair, Splits, corpus_of, paths_in, seen_in, split
from seq2see.data.recipe import LONGEST, RULES, Facts, Recipe, choose, config_of, fast_on, most_tokens, with_length
from seq2see.data.shards import Shards, Survey, is_large, survey
from seq2see.data.shards import write as write_shards
from seq2see.data.variation import copied_share, made_up
from seq2see.decoding.both_ways import engine_of
from seq2see.decoding.hypothesis import Special
from seq2see.devices import CPU, Choice
from seq2see.errors import InputError, UserError, counted, shown
from seq2see.machine import uncollected
from seq2see.storage.folder import Tokenizers
from seq2see.tasks import dates
from seq2see.tokenizers.tokenizer import Tokenizer
from seq2see.training import distributed
from seq2see.training.checkpoint import SHARDS
from seq2see.training.options import TrainOptions

HELD_OUT_DATES = 10_000  # for validation, and as many for the test
MORE_LENGTH = 1.25  # limit of answers, relative to the longest of the training data
NAMED = 10  # bad rows that are listed; the others are counted
MADE_UP = 10  # invented sources for a teacher, per pair
#: the most of them, and how many are answered at a time; five deep models answer 400,000 words on an H200 in 100 s
MADE_ON_A_CPU, MADE_ON_A_GPU = (40_000, 2048), (400_000, 16_384)


@dataclass(frozen=True)
class RawSplits:
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
    ) -> RawSplits:
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
class TrainingSetup:
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
    parts: int = 0  # of few pairs: nothing is set aside, and each part was answered by a model that learned from others

    @property
    def device(self) -> str:
        """The device that trains."""
        return self.where.device

    @property
    def counts(self) -> str:
        """The number of pairs of each part, in words."""
        taught = f" and {self.taught:,} that the teacher answered" if self.taught else ""
        if self.parts:
            given = f", {len(self.test):,} for the test" if "test" in self.given else ""
            return f"all {self.own or len(self.train):,} for training{taught}{given}"
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
        if self.parts and "test" not in self.given:
            return 0
        return seen_in(self.sources, self.test) if self.given or self.unlabelled else 0

    @cached_property
    def watched(self) -> int:
        """How many test pairs have a validation source."""
        return seen_in({source for source, _ in self.validation}, self.test)

    @property
    def apart(self) -> str:
        """Which parts share sources, in words; only given parts can."""
        if self.parts:
            own = self.own or len(self.train)
            return f"each of the {own:,} was answered by one of {self.parts} models that learned from others"
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
        if len(self.given) == 1 and not self.parts:
            other = {"validation": "test", "test": "validation"}[self.given[0]]
            return f"the {self.given[0]} as given, the {other} split off by source with seed {seed}"
        return "as given" if self.given else f"split by source with seed {seed}"


def prepare_dates(options: TrainOptions, years: tuple[int, int], count: int) -> TrainingSetup:
    """Make dates for training, validation and test."""
    available = len(dates.all_ordinals(*years))
    held_out = min(HELD_OUT_DATES, available // 10)
    if count > available - 2 * held_out:
        raise UserError(
            f"`count` is {count:,}, but the years {years[0]}-{years[1]} leave {available - 2 * held_out:,} dates to "
            f"learn from ({held_out:,} each are held out for validation and test)."
        )
    tokenizers = Tokenizers.one(Tokenizer.characters())
    recipe = find_preset(options.preset or "document")
    sizes = {"source_vocabulary": tokenizers.source.size, "target_vocabulary": tokenizers.target.size}
    model = ModelConfig.of(**{**recipe.model, **sizes, **options.settings["model"]})
    where = devices.choose(options.device, devices.Work(model.d_model, pairs=count), devices.found)
    config = Config(
        "dates",
        model,
        TrainingConfig.of(
            **with_length({**recipe.training, **fast_on(where.device, recipe.model)}, options.settings["training"])
        ),
    )
    train, validation, test = dates.splits(count, held_out, held_out, options.seed, years)
    ids = Encoded.within((tokenizers.source, tokenizers.target), train, LONGEST).ids
    return TrainingSetup("dates", config, tokenizers, train, validation, test, ids, where=where)


@uncollected()
def prepare(data: RawSplits, options: TrainOptions, show: Callable[[str], None] = lambda text: None) -> TrainingSetup:
    """Choose the settings that are not given, train the tokenizers unless they are given, and leave out pairs that are
    too long. What takes long goes to ``show``.

    The ids of a corpus larger than memory are written to disk. Under torchrun the first process makes the tokenizers
    and these ids, and the others wait for it.
    """
    found = data.survey
    if found is None:
        parts = split(data.corpus.pairs, data.validation, data.test, options.seed, options.unseen)
    else:
        if options.out is None:
            raise UserError(f"{found.corpus.name} is larger than memory: name a folder for its ids with `out`.")
        parts = Splits(found.corpus.pairs, found.validation, found.test)
    cuts = cuts_of(parts.train, options.tokenizer, options.vocabulary, found is None)
    model, training = options.settings["model"], options.settings["training"]
    guess = choose(Facts(len(parts.train), len(parts.train), 1), options.preset)
    config_of(guess, (Tokenizer.characters(),) * 2, model, training)  # a wrong setting is an error at once
    tokenizers = _tokenizers(options, cuts, parts.train, found)
    cuts = replace(cuts, kinds=(tokenizers.source.kind, tokenizers.target.kind))  # of a file or another model too
    both, limit = (tokenizers.source, tokenizers.target), min(LONGEST, int(model.get("max_length", LONGEST)))
    learned = Encoded.within(both, parts.train if found is None else [], limit)
    validation, test = (_held_out(both, part, limit) for part in (parts.validation, parts.test))
    train: list[Pair] | Shards = learned.pairs
    ids, taught = learned.ids, 0
    if found is not None:
        assert options.out is not None
        train = write_shards(options.out / SHARDS, found, both, limit)
        ids = train.source, train.target
    if not train or not validation.pairs or not test.pairs:
        raise UserError(f"Nearly all pairs are longer than {limit} tokens: split the texts, or raise model.max_length.")
    copied = copied_share(learned.pairs)
    lengths = [side.lengths for side in ids]
    recipe, where = _chosen(
        options, cuts, lengths, max(validation.longest, test.longest), on_disk=found is not None, copied=copied
    )
    config = config_of(recipe, both, model, training)
    unlabelled: list[str] = []
    remarks: list[str] = []
    if options.teacher is not None and found is None:
        held = [*validation.pairs, *test.pairs]
        unlabelled, remarks = _unlabelled(options, tokenizers.source, held)
        train, ids, taught = _with_taught(options, learned, unlabelled, cuts, where.device, show)
    rules = limits_by(ids[0].lengths, ids[1].lengths, config.decoding.but(sentences=cuts.prose))
    config = replace(config, decoding=rules.but(**options.decoding))
    remarks += _remarks(data.corpus, [*learned.dropped, *validation.dropped, *test.dropped], train)
    given = tuple(name for name, part in (("validation", data.validation), ("test", data.test)) if part is not None)
    sample = [] if found is None else [source for source, _ in parts.train]
    return TrainingSetup(
        data.corpus.name, config, tokenizers, train, validation.pairs, test.pairs, ids, cuts, recipe, remarks, sample,
        taught, len(learned.pairs), frozenset(unlabelled), given, where,
    )  # fmt: skip


def _tokenizers(options: TrainOptions, cuts: Cuts, pairs: Sequence[Pair], found: Survey | None) -> Tokenizers:
    """Return the tokenizers that are given, or train them; the first process does it for all."""
    tokenizers = None
    if distributed.first():
        everything, tokenizers = pairs if found is None else found.alphabet, options.tokenizers()
        if tokenizers is not None:
            _check_characters(tokenizers, everything)
        else:
            if cuts.kinds != ("characters", "characters"):
                everything = pairs
            count = None if found is None else found.count
            tokenizers = Tokenizers(*tokenizers_of(cuts, pairs, everything, count))
    tokenizers = distributed.from_first(tokenizers)
    assert tokenizers is not None
    return tokenizers


def _chosen(
    options: TrainOptions, cuts: Cuts, lengths: Sequence[np.ndarray], longest: int, **others: Any
) -> tuple[Recipe, Choice]:
    """Choose the settings that are not given, and the device by the size of the model that a GPU would train."""

    def recipe(device: str) -> Recipe:
        facts = Facts.of(lengths, cuts, device, members=options.members, taught=options.teacher is not None, **others)
        return choose(replace(facts, longest=max(facts.longest, longest)), options.preset, RULES + options.rules)

    first = recipe("cuda" if options.device == "auto" else options.device)
    width = ModelConfig.of(**{"share_embeddings": False, **first.model, **options.settings["model"]}).d_model
    pairs = first.facts.pairs
    where = devices.choose(options.device, devices.Work(width, pairs=pairs), devices.found)
    return recipe(where.device), where


def _held_out(tokenizers: tuple[Tokenizer, Tokenizer], pairs: Sequence[Pair], limit: int) -> Encoded:
    """Cut held-out pairs. A pair with an unknown character stays, without ids: it counts as wrong."""
    cut = Encoded.within(tokenizers, [pair for pair in pairs if all(map(Tokenizer.knows, tokenizers, pair))], limit)
    dropped = set(cut.dropped)
    return replace(cut, pairs=[pair for pair in pairs if pair not in dropped])


def _unlabelled(options: TrainOptions, tokenizer: Tokenizer, held: Sequence[Pair]) -> tuple[list[str], list[str]]:
    """Return the given sources that a teacher can answer, and remarks about the others."""
    left = {source for source, _ in held} if options.unseen else set()
    texts = [text for text in options.unlabelled if text not in left]
    known: list[str] = []
    unknown: list[str] = []
    for text in texts:
        (known if tokenizer.knows(text) else unknown).append(text)
    remarks = []
    if left and len(texts) < len(options.unlabelled):
        fewer = counted(len(options.unlabelled) - len(texts), "unlabelled source")
        remarks.append(f"{fewer} of validation and test: left out.")
    if unknown:
        remarks.append(
            f"{len(unknown):,} of {counted(len(texts), 'unlabelled source')} with tokens that the teacher does not know, "
            f"such as {shown(unknown[0])}: left out."
        )
    return known, remarks


def _with_taught(
    options: TrainOptions,
    learned: Encoded,
    unlabelled: Sequence[str],
    cuts: Cuts,
    device: str,
    show: Callable[[str], None],
) -> tuple[list[Pair], tuple[Ragged, Ragged], int]:
    """Add sources without targets to the training pairs: given ones, and for short texts invented ones.

    Their targets are the teacher's answers. The pairs of the data are repeated, to keep their weight. Return the number
    of answers, too.
    """
    assert options.teacher is not None
    tokenizers = options.teacher.tokenizers
    most, at_once = MADE_ON_A_GPU if devices.is_cuda(device) else MADE_ON_A_CPU
    source, target = tokenizers.source, tokenizers.target
    sources = source.encode_batch(unlabelled)
    if not cuts.learned:
        count = min(MADE_UP * len(learned.pairs), most)
        show(f"Inventing {count:,} sources …")
        sources += made_up(learned.ids[0], count, Random(options.seed))
    if not sources:
        return learned.pairs, learned.ids, 0
    engine = engine_of(options.teacher.network(device), Special.of(tokenizers))
    rules = options.teacher.config.decoding
    answers = []
    for first in range(0, len(sources), at_once):
        show(f"The teacher has answered {first:,} of {len(sources):,} sources …")
        answers += engine.ids(sources[first : first + at_once], rules)
    texts = zip(source.decode_batch(sources), target.decode_batch(answers), strict=True)
    longest = most_tokens(max(int(side.lengths.max()) for side in learned.ids))
    more = Encoded.within((source, target), [pair for pair in texts if all(pair)], longest)
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
