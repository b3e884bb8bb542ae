"""Defaults for some pairs: the tokenizer, the size of the model, the length of the training. Each can be set."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from seq2see.config import Config, ModelConfig, TrainingConfig
from seq2see.config import preset as find_preset
from seq2see.data.pairs import Pair
from seq2see.devices import is_cuda
from seq2see.errors import UserError, counted, suggest
from seq2see.machine import instructions
from seq2see.tokenizers import symbols
from seq2see.tokenizers.tokenizer import Tokenizer, decomposed

SUBWORDS = ("bpe", "unigram")
FOR_WORDS = ("words", "lexicon")  # presets
LEARNED = ("words", *SUBWORDS)  # kinds whose vocabulary has a size
KINDS = ("characters", "decomposed", "symbols", "features", "bytes", *LEARNED)
LOOKED_AT = 2000  # pairs from which the kind of text is found
LEARNED_FROM = 500_000  # most pairs: more take minutes and hardly change the sub-words
LONGEST = 512  # tokens of a side; a longer pair is left out, because it alone would fill a batch
WIDE = 256  # a d_model for which 16 bits pay on a CPU with AMX: 1.3 times as fast there, and 0.6 times at 16
#: Pairs of short texts below which the model is small, below which it overfits soon (at 3,600 words R-Drop 5 and dropout
#: 0.3 did better than 1 and 0.2), and from which on it is deep. The bounds themselves were not measured.
FEW_WORDS, SOME_WORDS, MANY_WORDS = 2500, 20_000, 100_000
FEWER = 2  # ratio of characters to their parts from which a text is split into the parts
ROOM = 2  # limit of later inputs, relative to the longest one of the training


@dataclass(frozen=True)
class Plan:
    """The settings for some pairs, and the reason."""

    kinds: tuple[str, str]  # of the tokenizers, for the source and for the target
    shared: bool  # whether both sides have one vocabulary
    vocabulary: int | None  # most tokens; None for all that occur
    preset: str
    model: dict[str, Any]
    training: dict[str, Any]
    why: str
    prose: bool = False  # whether texts are translated sentence by sentence
    both_ways: bool = False  # whether half of an ensemble should read and write from right to left

    @property
    def tokenizer(self) -> str:
        """Both kinds: ``characters``, or ``characters → symbols``."""
        source, target = self.kinds
        return source if source == target else f"{source} → {target}"

    def for_pupil(self) -> Plan:
        """Return the plan for a model that learns from a teacher: it trains longer.

        The teacher's probabilities prevent overfitting; R-Drop 5 slowed the training down.
        """
        if self.preset not in (*FOR_WORDS, "deep"):
            return self
        less = {"r_drop": min(1.0, self.training.get("r_drop", 0.0))}
        return replace(
            self, training=self.training | less | self._times(8 / 3 if self.preset == "deep" else 1.5)
        )

    def for_ensemble(self, members: int) -> Plan:
        """Return the plan for several models that learn together.

        Deep ones take more steps without R-Drop in the same time, which made a better ensemble (RESULTS.md).
        """
        if self.both_ways:
            return replace(self, model=self.model | {"backward": members // 2})
        if self.preset != "deep":
            return self
        return replace(self, training=self.training | {"r_drop": 0.0} | self._times(1.2))

    def _times(self, factor: float) -> dict[str, int]:
        """Return the settings of a training that is longer by a factor."""
        return {
            name: int(self.training[name] * factor)
            for name in ("steps", "checkpoint_every", "evaluate_every")
        }

    def __str__(self) -> str:
        size = f" of at most {self.vocabulary:,} tokens" if self.vocabulary else ""
        return f"tokenizer {self.tokenizer}{size}, preset {self.preset}: {self.why}."


def are_sentences(pairs: Sequence[Pair]) -> bool:
    """Whether both sides mostly have three words of letters or more."""
    step = max(1, len(pairs) // LOOKED_AT)
    sides = zip(*pairs[::step], strict=True)
    return all(median(_words(text) for text in side) >= 3 for side in sides)


def are_prose(pairs: Sequence[Pair]) -> bool:
    """Whether both sides mostly end like sentences, so that a longer text can be split into sentences."""
    step = max(1, len(pairs) // LOOKED_AT)
    sides = zip(*pairs[::step], strict=True)
    ended = (
        median(text.rstrip("\"'”’»)] ").endswith((".", "!", "?", "…", "。")) for text in side)
        for side in sides
    )
    return are_sentences(pairs) and all(share > 0.5 for share in ended)


def _words(text: str) -> int:
    return sum(word.strip(".,;:!?\"'«»()…").replace("'", "").isalpha() for word in text.split())


Asked = str | tuple[str, str] | None  # a tokenizer for both sides, or one for each


def kinds_asked(tokenizer: Asked) -> tuple[str, str] | None:
    """Read the requested kinds: ``bpe``, ``characters,symbols``, ``symbols:-``, or a file of the tokenizers library."""
    if tokenizer is None:
        return None
    if isinstance(tokenizer, str):
        found = re.fullmatch(r"(symbols:.|[^,]+)(?:,(symbols:.|[^,]+))?", tokenizer)
        tokenizer = (found[1], found[2] or found[1]) if found else (tokenizer, tokenizer)
    if len(tokenizer) != 2:
        raise UserError(f"`tokenizer` is {tokenizer!r}: one for both sides was expected, or two.")
    for kind in tokenizer:
        name = kind.partition(":")[0]
        if kind.endswith(".json"):
            if not Path(kind).is_file():
                raise UserError(f"There is no file {kind!r}: a file of the tokenizers library was expected.")
        elif kind not in KINDS and (name != "symbols" or len(kind) != len("symbols:x")):
            raise UserError(
                f"There is no tokenizer {kind!r}. {suggest(kind, [*KINDS, 'symbols:X', 'FILE.json'])}"
            )
    return tokenizer


def fitting(texts: Sequence[str]) -> str:
    """Choose the tokenizer of one side without sub-words: symbols if it consists of them."""
    if symbols.have_features(texts):
        return "features"
    separator = symbols.separator_of(texts)
    if separator is None:
        return "decomposed" if _made_of_few(texts) else "characters"
    return "symbols" if separator == " " else f"symbols:{separator}"


def _made_of_few(texts: Sequence[str]) -> bool:
    """Whether the characters are made of far fewer parts: syllables of jamo, or letters with many marks."""
    characters = set().union(*texts)
    return len(characters) >= FEWER * len(set(decomposed("".join(sorted(characters)))))


def choose(
    pairs: Sequence[Pair],
    tokenizer: Asked = None,
    vocabulary: int | None = None,
    preset: str | None = None,
    count: int | None = None,
    device: str = "cpu",
) -> Plan:
    """Choose what is not given by the pairs, which may be a sample of ``count`` pairs."""
    kinds, sentences, whole = kinds_asked(tokenizer), are_sentences(pairs), count is None
    count = count or len(pairs)
    if kinds is None and sentences:
        kinds = ("bpe", "bpe")
    elif kinds is None:
        # A sample may lack some symbols.
        sides = zip(*pairs, strict=True)
        source, target = (fitting(side) for side in sides) if whole else ("characters", "characters")
        kinds = source, target
    learned = [kind for kind in kinds if kind in LEARNED]
    if vocabulary is not None and not learned:
        what = "character or symbol" if kinds != ("characters", "characters") else "character"
        raise UserError(
            f"`vocabulary` is {vocabulary:,}, but the tokenizer has one token for each {what} that occurs: leave it "
            "out, or set `tokenizer` to words, bpe or unigram."
        )
    long = median(max(map(len, pair)) for pair in pairs) > 80
    if not learned and not long and count < MANY_WORDS:
        suited, size = "words" if count < FEW_WORDS or not is_cuda(device) else "lexicon", 2000
    elif count < 10_000:
        suited, size = "tiny", 2000
    elif count < 300_000:
        on_gpu = "medium" if sentences else "deep" if not learned and not long else "small"
        suited, size = on_gpu if is_cuda(device) else "small", 8000
    else:
        suited, size = "base", 32_000
    what = "sentences" if sentences else "long texts" if long else "short texts"
    given = [name for name, value in (("tokenizer", tokenizer), ("preset", preset)) if value is not None]
    why = f"{counted(count, 'pair')} of {what}" + (f" ({' and '.join(given)} as given)" if given else "")
    name = preset or suited
    recipe = find_preset(name)
    return Plan(
        kinds=kinds,
        shared=kinds[0] == kinds[1]
        and (kinds[0] in SUBWORDS or kinds[0].endswith(".json"))
        and not _two(tokenizer),
        vocabulary=vocabulary or (size if set(kinds) & set(SUBWORDS) else None),
        preset=name,
        model={**recipe.model, **_model(name, kinds, count, device)},
        training={
            **recipe.training,
            **_training(name, pairs, kinds, count, device),
            **fast_on(device, recipe.model),
        },
        why=why,
        prose=kinds[0] in SUBWORDS and are_prose(pairs),
        # measured with 800 and 3,600 words (RESULTS.md)
        both_ways=name in FOR_WORDS and count < SOME_WORDS and "features" not in kinds,
    )


def _two(tokenizer: Asked) -> bool:
    """Whether each side was given a tokenizer of its own: ``bpe,bpe``."""
    return tokenizer is not None and (not isinstance(tokenizer, str) or "," in tokenizer)


def fast_on(device: str, model: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that make training fast on a device: with our kernels no padding, and 16 bits.

    A CPU with AMX is fast with 16 bits, too, if the matrices are large.
    """
    if is_cuda(device):
        return {"layout": "packed", "precision": "bfloat16"}
    if device != "cpu":
        return {}
    wide = model.get("d_model", ModelConfig().d_model) >= WIDE
    return {"precision": "bfloat16"} if wide and "amx_bf16" in instructions() else {}


def _model(preset: str, kinds: tuple[str, str], count: int, device: str) -> dict[str, Any]:
    """Return more dropout for little data, against overfitting, and a smaller model for few words on a CPU.

    That one takes nearly twice as many steps in the same time as one of d_model 128. Forms have less dropout on a CPU:
    their texts are long, so that the steps are few passes, and the stems are invented.
    """
    if preset == "words" and not is_cuda(device):
        if count < FEW_WORDS:
            return {"d_model": 96, "d_ff": 384}
        return {"dropout": 0.15} if "features" in kinds else {}
    few = count < (SOME_WORDS if preset == "lexicon" else 100_000)
    return {"dropout": 0.3} if preset in ("small", "medium", "lexicon") and few else {}


def _training(
    preset: str, pairs: Sequence[Pair], kinds: tuple[str, str], count: int, device: str
) -> dict[str, Any]:
    """Return the number of steps for the data: few for little of it, else about 15 epochs, counted in characters."""
    if preset in FOR_WORDS:
        return _for_words(preset, kinds, count, device)
    if preset == "tiny" and count < 10_000:
        return {"steps": 1200, "checkpoint_every": 100, "evaluate_every": 100}
    if preset == "document":
        return {}
    step = max(1, len(pairs) // LOOKED_AT)
    looked_at = pairs[::step]
    characters = sum(max(map(len, pair)) for pair in looked_at) * count // len(looked_at)
    short = not set(kinds) & set(LEARNED)
    tokens = characters if short else characters // 4
    if preset == "tiny":
        steps = min(10_000, max(2000, 15 * tokens // 2048))
        return {"steps": steps, "checkpoint_every": steps // 10, "evaluate_every": steps // 10}
    if preset == "medium":  # measured: see RESULTS.md
        steps = max(5000, 25 * tokens // 8192)
        cut_anew = {"bpe_dropout": 0.1} if kinds == ("bpe", "bpe") else {}
        return {
            "steps": steps,
            "checkpoint_every": steps // 20,
            "evaluate_every": steps // 10,
            "evaluate_on": 200,
        } | cut_anew
    if preset == "deep":  # the best of seven recipes for pronunciations: see RESULTS.md
        steps = min(100_000, max(2000, 60 * tokens // 8192))
        return {
            "steps": steps,
            "warmup": min(1000, steps // 10),
            "checkpoint_every": steps // 60,
            "evaluate_every": steps // 20,
            "evaluate_on": 200,
        }
    batch, passes = 4096 if preset == "small" else 16_384, 15
    # a GPU is fast enough for what still helps such texts
    if short and preset == "small" and is_cuda(device):
        batch, passes = 8192, 60
    steps = min(100_000, max(2000, passes * tokens // batch))
    every = max(100, steps // 20)
    return {
        "steps": steps, "batch_tokens": batch, "schedule": "cosine", "warmup": max(200, steps // 20),
        "learning_rate": 0.001 if preset == "small" else 0.0007, "checkpoint_every": every, "evaluate_every": every,
        "evaluate_on": 200,
    }  # fmt: skip


def _for_words(preset: str, kinds: tuple[str, str], count: int, device: str) -> dict[str, Any]:
    """Return the settings for words: more steps and larger batches for more words.

    Joined words and a guided head were the best recipe on development sets of 800 words, invented stems and less
    R-Drop on those of 10,000 forms (RESULTS.md).
    """
    forms = "features" in kinds
    settings: dict[str, Any] = {"guided": 0.5} | ({"invented": 0.5} if forms else {"chained": 1.0})
    if not is_cuda(device):
        if count < FEW_WORDS:
            steps, batch = 1200 + count // 2, 512
        else:
            steps, batch = min(20_000, count) * 4 // 9, 1024
        settings["r_drop"] = 0.0  # it reads every batch twice
    elif preset == "words":
        steps, batch = 4000, 768
    else:
        steps, batch = min(30_000, 3000 + count // 3), 1536 if count < 8000 else 2048
        settings["r_drop"] = 5.0 if count < SOME_WORDS and not forms else 1.0
    if preset == "words" or not is_cuda(device):  # for more words a GPU learns as well by Adam (RESULTS.md)
        settings["muon"] = 7.5
    if is_cuda(device) and count < SOME_WORDS and not forms:
        # It helped with 800 words. With 3,600 and on a CPU it changed nothing; the rest was not measured (RESULTS.md).
        settings["guided_memory"] = 0.5
    return settings | {
        "steps": steps, "batch_tokens": batch, "warmup": min(1000, steps // 10), "solved": 2,
        "checkpoint_every": max(1, steps // 40), "evaluate_every": max(1, steps // 10),
    }  # fmt: skip


def tokenizers_of(
    plan: Plan, pairs: Sequence[Pair], asked: bool = False, everything: Sequence[Pair] | None = None
) -> tuple[Tokenizer, Tokenizer]:
    """Train the tokenizers of both sides; ``asked`` if the vocabulary was given.

    Sub-words and words are learned from some of ``pairs``. Characters and symbols come from ``everything``:
    from all pairs of the training, if ``pairs`` is a sample.
    """
    everything = pairs if everything is None else everything
    pairs = pairs[:: max(1, -(-len(pairs) // LEARNED_FROM))]
    if plan.shared:
        both = (
            _tokenizer(plan.kinds[0], plan, [text for side in zip(*pairs, strict=True) for text in side]),
        ) * 2
    else:
        source, target = (
            _tokenizer(kind, plan, [pair[side] for pair in (pairs if kind in LEARNED else everything)])
            for side, kind in enumerate(plan.kinds)
        )
        both = source, target
    sizes = [one.size for one, kind in zip(both, plan.kinds, strict=True) if kind in LEARNED]
    if asked and plan.vocabulary is not None and max(sizes) < 0.9 * plan.vocabulary:
        raise UserError(
            f"`vocabulary` is {plan.vocabulary:,}, but {counted(len(pairs), 'pair')} have only "
            f"{max(sizes):,} different tokens (tokenizer {plan.tokenizer}): leave it out, or give less."
        )
    return both


def _tokenizer(kind: str, plan: Plan, texts: Sequence[str]) -> Tokenizer:
    """Make the tokenizer of one side, or of both."""
    if kind in SUBWORDS:
        assert plan.vocabulary is not None
        return (Tokenizer.bpe if kind == "bpe" else Tokenizer.unigram)(texts, plan.vocabulary)
    if kind == "words":
        return Tokenizer.words(texts, 2 if len(texts) >= 1000 else 1, plan.vocabulary)
    if kind == "bytes":
        return Tokenizer.bytes()
    if kind.startswith("symbols"):
        return Tokenizer.symbols(texts, kind[8:] or " ")
    if kind == "features":
        return Tokenizer.features(texts)
    if kind == "decomposed":
        return Tokenizer.decomposed_of(texts)
    return Tokenizer.characters_of(texts) if kind == "characters" else Tokenizer.of_file(Path(kind))


def most_tokens(longest: int) -> int:
    """Return the most tokens of a text, if the longest one of the training has ``longest``."""
    return max(64, ROOM * longest)


def config_of(
    plan: Plan,
    tokenizers: tuple[Tokenizer, Tokenizer],
    longest: int,
    model: dict[str, Any],
    training: dict[str, Any],
) -> Config:
    """Make the config of a plan; ``model`` and ``training`` override it, and ``longest`` is counted in tokens."""
    source, target = tokenizers
    recipe = TrainingConfig.of(**{**plan.training, **training})
    return Config(
        task="pairs",
        model=ModelConfig.of(**{
            **plan.model,
            "max_length": most_tokens(longest),
            "share_embeddings": plan.shared,
            "source_vocabulary": source.size,
            "target_vocabulary": target.size,
            **model,
        }),
        training=recipe,
    )  # fmt: skip
