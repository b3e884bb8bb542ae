"""What suits some pairs: the tokenizer, the size of the model, the length of the training; each can be set instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from seq2see.config import Config, ModelConfig, TrainingConfig
from seq2see.config import preset as find_preset
from seq2see.data.pairs import Pair
from seq2see.errors import UserError, counted, suggest
from seq2see.text.tokenizer import Tokenizer

KINDS = ("characters", "words", "bpe", "unigram")
SUBWORDS = ("bpe", "unigram")
LOOKED_AT = 2000  # pairs that tell what kind of text it is
LONGEST = 512  # tokens of a side; a longer pair is left out, because it alone would fill a batch
ROOM = 2  # an input may be so many times as long as the longest one of the training


@dataclass(frozen=True)
class Plan:
    """How to learn from some pairs, and why."""

    tokenizer: str
    vocabulary: int | None  # tokens at most; None for all that occur
    preset: str
    model: dict[str, Any]
    training: dict[str, Any]
    why: str
    prose: bool = False  # whether texts are translated sentence by sentence

    @property
    def shared(self) -> bool:
        """Whether both sides have one vocabulary."""
        return self.tokenizer in SUBWORDS

    def __str__(self) -> str:
        size = f" of at most {self.vocabulary:,} tokens" if self.vocabulary else ""
        return f"tokenizer {self.tokenizer}{size}, preset {self.preset}: {self.why}."


def are_sentences(pairs: Sequence[Pair]) -> bool:
    """Whether both sides mostly have three words of letters or more."""
    step = max(1, len(pairs) // LOOKED_AT)
    sides = zip(*pairs[::step], strict=True)
    return all(median(_words(text) for text in side) >= 3 for side in sides)


def are_prose(pairs: Sequence[Pair]) -> bool:
    """Whether both sides are sentences that mostly end as sentences do: a longer text can then be cut into such."""
    step = max(1, len(pairs) // LOOKED_AT)
    sides = zip(*pairs[::step], strict=True)
    ended = (
        median(text.rstrip("\"'”’»)] ").endswith((".", "!", "?", "…", "。")) for text in side)
        for side in sides
    )
    return are_sentences(pairs) and all(share > 0.5 for share in ended)


def _words(text: str) -> int:
    return sum(word.strip(".,;:!?\"'«»()…").replace("'", "").isalpha() for word in text.split())


def choose(
    pairs: Sequence[Pair],
    tokenizer: str | None = None,
    vocabulary: int | None = None,
    preset: str | None = None,
    count: int | None = None,
    device: str = "cpu",
) -> Plan:
    """Choose whatever is not given by looking at the pairs, which may be a sample of ``count`` pairs."""
    if tokenizer is not None and tokenizer not in KINDS:
        raise UserError(f"There is no tokenizer {tokenizer!r}. {suggest(tokenizer, KINDS)}")
    count, sentences = count or len(pairs), are_sentences(pairs)
    kind = tokenizer or ("bpe" if sentences else "characters")
    if vocabulary is not None and kind == "characters":
        raise UserError(
            f"`vocabulary` is {vocabulary:,}, but the tokenizer has one token for each character that occurs: leave it "
            "out, or set `tokenizer` to words, bpe or unigram."
        )
    long = median(max(map(len, pair)) for pair in pairs) > 80
    if count < 10_000 or (kind == "characters" and count < 100_000 and not long):
        fitting, size = "tiny", 2000
    elif count < 300_000:
        fitting, size = "medium" if sentences and device != "cpu" else "small", 8000
    else:
        fitting, size = "base", 32_000
    what = "sentences" if sentences else "long texts" if long else "short texts"
    given = [name for name, value in (("tokenizer", tokenizer), ("preset", preset)) if value is not None]
    why = f"{counted(count, 'pair')} of {what}" + (f" ({' and '.join(given)} as given)" if given else "")
    name = preset or fitting
    recipe = find_preset(name)
    return Plan(
        tokenizer=kind,
        vocabulary=vocabulary or (size if kind in SUBWORDS else None),
        preset=name,
        model={**recipe.model, **_model(name, count)},
        training={**recipe.training, **_training(name, pairs, kind, count), **fast_on(device)},
        why=why,
        prose=kind in SUBWORDS and are_prose(pairs),
    )


def fast_on(device: str) -> dict[str, Any]:
    """Return the settings that make training fast on a device: on a GPU no padding, and numbers of 16 bits."""
    return {} if device == "cpu" else {"layout": "packed", "precision": "bfloat16"}


def _model(preset: str, count: int) -> dict[str, Any]:
    """Return more dropout for little data, which a model would soon know by heart."""
    return {"dropout": 0.3} if preset in ("small", "medium") and count < 100_000 else {}


def _training(preset: str, pairs: Sequence[Pair], kind: str, count: int) -> dict[str, Any]:
    """Return steps that suit the data: few for little of it, else about 15 passes."""
    if preset == "tiny":
        return {"steps": 1200, "checkpoint_every": 100, "evaluate_every": 100} if count < 10_000 else {}
    if preset == "document":
        return {}
    step = max(1, len(pairs) // LOOKED_AT)
    looked_at = pairs[::step]
    characters = sum(max(map(len, pair)) for pair in looked_at) * count // len(looked_at)
    tokens = characters if kind == "characters" else characters // 4
    if preset == "medium":  # measured: see RESULTS.md
        steps = max(5000, 25 * tokens // 8192)
        cut_anew = {"bpe_dropout": 0.1} if kind == "bpe" else {}
        return {
            "steps": steps,
            "checkpoint_every": steps // 20,
            "evaluate_every": steps // 10,
            "evaluate_on": 200,
        } | cut_anew
    batch = 4096 if preset == "small" else 16_384
    steps = min(100_000, max(2000, 15 * tokens // batch))
    every = max(100, steps // 20)
    return {
        "steps": steps, "batch_tokens": batch, "schedule": "cosine", "warmup": max(200, steps // 20),
        "learning_rate": 0.001 if preset == "small" else 0.0007, "checkpoint_every": every, "evaluate_every": every,
        "evaluate_on": 200,
    }  # fmt: skip


def tokenizers_of(plan: Plan, pairs: Sequence[Pair], asked: bool = False) -> tuple[Tokenizer, Tokenizer]:
    """Train the tokenizers of both sides, which are one for sub-words; ``asked`` if the vocabulary was given."""
    sides = [source for source, _ in pairs], [target for _, target in pairs]
    if plan.tokenizer == "characters":
        return Tokenizer.characters_of(sides[0]), Tokenizer.characters_of(sides[1])
    if plan.tokenizer == "words":
        rare = 2 if len(pairs) >= 1000 else 1
        both = tuple(Tokenizer.words(side, rare, plan.vocabulary) for side in sides)
        largest = max(both[0].size, both[1].size)
    else:
        assert plan.vocabulary is not None
        train = Tokenizer.bpe if plan.tokenizer == "bpe" else Tokenizer.unigram
        one = train([*sides[0], *sides[1]], plan.vocabulary)
        both, largest = (one, one), one.size
    if asked and plan.vocabulary is not None and largest < 0.9 * plan.vocabulary:
        raise UserError(
            f"`vocabulary` is {plan.vocabulary:,}, but {counted(len(pairs), 'pair')} hold {largest:,} different tokens "
            f"only (tokenizer {plan.tokenizer}): leave it out, or give less."
        )
    return both[0], both[1]


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
            "max_length": max(64 if recipe.joined == 0 else LONGEST, ROOM * longest),
            "share_embeddings": plan.shared,
            "source_vocabulary": source.size,
            "target_vocabulary": target.size,
            **model,
        }),
        training=recipe,
    )  # fmt: skip


def within(
    tokenizers: tuple[Tokenizer, Tokenizer], pairs: Sequence[Pair], limit: int = LONGEST
) -> tuple[list[Pair], list[int], int]:
    """Leave out pairs with more tokens than the limit; return those kept, the places of the others, the longest kept."""
    sources = tokenizers[0].encode_batch([source for source, _ in pairs])
    targets = tokenizers[1].encode_batch([target for _, target in pairs])
    lengths = [max(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
    dropped = [place for place, length in enumerate(lengths) if length > limit]
    kept = [pair for pair, length in zip(pairs, lengths, strict=True) if length <= limit]
    return kept, dropped, max((length for length in lengths if length <= limit), default=0)
