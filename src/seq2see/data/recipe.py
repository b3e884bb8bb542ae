"""The recipe of a training: facts about the data, and a table of rules that turns them into settings."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from math import log2, log10, sqrt
from pathlib import Path
from typing import Any

import numpy as np

from seq2see.config import Config, ModelConfig, TrainingConfig, parse_overrides
from seq2see.config import preset as find_preset
from seq2see.data.cuts import Cuts
from seq2see.devices import is_cuda
from seq2see.errors import UserError, counted, suggest
from seq2see.files import given_text
from seq2see.machine import instructions
from seq2see.tokenizers.tokenizer import Tokenizer

LONGEST = 512  # tokens of a side; a longer pair is left out, because it alone would fill a batch
ROOM = 2  # limit of later inputs, relative to the longest one of the training
WIDE = 256  # a d_model for which 16 bits pay on a CPU with AMX: 1.3 times as fast there, and 0.6 times at 16
MINUTES = {"cuda": 10, "cpu": 15}  # of a training, at most, unless another budget is asked
COPIED = 0.2  # share of the pairs with a rare copied word, from which others take its place
FEW, SOME, MANY, MOST = 25_000, 300_000, 3_000_000, 30_000_000  # tokens of an epoch


@dataclass(frozen=True)
class Facts:
    """What is known about the data and the machine before a training."""

    pairs: int
    tokens: int  # of an epoch: of each pair, those of its longer side
    longest: int  # tokens of a side
    device: str = "cpu"
    subwords: bool = False  # whether a side is cut into words or sub-words
    features: bool = False  # whether the sources end with features, as lemmas do
    members: int = 1  # of an ensemble
    taught: bool = False  # whether it learns from a teacher too
    copied: float = 0.0  # share of the pairs whose target copies a rare word, such as a name or a number
    recut: bool = False  # whether words can be cut anew: by BPE, and in memory

    @classmethod
    def of(
        cls, lengths: Sequence[np.ndarray], cuts: Cuts, device: str = "cpu", on_disk: bool = False, **others: Any
    ) -> Facts:
        """Count tokens by the lengths of both sides of all pairs, start and end included.

        ``on_disk`` says that the ids are on disk, because the data are larger than memory.
        """
        source, target = lengths
        return cls(
            pairs=len(source),
            tokens=int(np.maximum(source, target).sum()),
            longest=int(max(source.max(), target.max())),
            device=device,
            subwords=cuts.learned,
            features="features" in cuts.kinds,
            recut=cuts.kinds == ("bpe", "bpe") and not on_disk,
            **others,
        )

    @property
    def gpu(self) -> bool:
        """Whether an NVIDIA GPU trains."""
        return is_cuda(self.device)


@dataclass(frozen=True)
class Rule:
    """Settings for some data, with the experiment that shows them better, and the range in which it was measured."""

    name: str
    settings: Callable[[Facts], Mapping[str, Any]]  # by name, such as model.dropout
    evidence: str  # a file, and what stands there
    when: Callable[[Facts], bool] = lambda facts: True
    tokens: tuple[int, int] = (0, 2**60)  # of an epoch, in which it was measured


@dataclass(frozen=True)
class Reason:
    """A setting, with the rule that chose it."""

    setting: str
    value: Any
    rule: Rule
    measured: bool  # whether the data lie in the range in which the rule was measured

    def told(self) -> dict[str, Any]:
        """Return it for a table."""
        return {
            "setting": self.setting, "value": self.value, "rule": self.rule.name, "evidence": self.rule.evidence,
            "measured": self.measured,
        }  # fmt: skip


@dataclass(frozen=True)
class Recipe:
    """The settings for some facts, and the reason of each."""

    facts: Facts
    model: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    reasons: tuple[Reason, ...] = ()
    preset: str | None = None  # if it was asked

    def __str__(self) -> str:
        count = f"{counted(self.facts.pairs, 'pair')}, {self.facts.tokens:,} tokens"
        if self.preset:
            return f"preset {self.preset}, for {count}"
        shape = ModelConfig.of(**{"share_embeddings": False, **self.model})
        far = "" if all(reason.measured for reason in self.reasons) else "; not measured for so many tokens"
        return (
            f"d_model {shape.d_model}, {shape.encoder_layers}+{shape.decoder_layers} layers, dropout {shape.dropout:g}, "
            f"{self.training['batch_tokens']:,} tokens a batch, for {count}{far}"
        )


def _between(low: float, value: float, high: float) -> float:
    return max(low, min(high, value))


def _layers(facts: Facts) -> int:
    """Return 3 layers for 12,500 tokens, and three more for sixteen times as many."""
    return round(_between(3, 3 + 0.75 * log2(max(1, facts.tokens) / 12_500), 6))


def _dropout(facts: Facts) -> float:
    """Return 0.3 for 300,000 tokens, 0.2 for 3 million, 0.1 for 30 million."""
    return round(_between(0.1, 0.3 - 0.1 * log10(max(1, facts.tokens) / SOME), 0.3), 2)


def _batch(facts: Facts) -> dict[str, int]:
    """Return a twelfth of the data, within what trains well; then it grows with their root."""
    low, high, root = (512, 8192, 4_000_000) if facts.gpu else (512, 1024, 1_000_000)
    batch = _between(low, facts.tokens / 12, high) * _between(1, sqrt(facts.tokens / root), 4 if facts.gpu else 8)
    return {"training.batch_tokens": int(min(batch, 25_000)) // 128 * 128}


def _small_enough(facts: Facts) -> dict[str, Any]:
    """Return the shape on a CPU: a narrow model takes more steps in the same time."""
    width = 96 if facts.tokens < FEW else 128 if facts.tokens < MANY else 256
    return {"model.d_model": width, "model.d_ff": 4 * width, "model.encoder_layers": 3, "model.decoder_layers": 3}


def _large_enough(facts: Facts) -> dict[str, Any]:
    width, layers = (128 if facts.tokens < FEW else 256), _layers(facts)
    return {
        "model.d_model": width, "model.d_ff": 4 * width, "model.encoder_layers": layers, "model.decoder_layers": layers,
    }  # fmt: skip


def _agreement(facts: Facts) -> float:
    """Return R-Drop's weight: 5 for 100,000 tokens of characters, 1 for a million."""
    if facts.subwords or facts.features:
        return 1.0
    return round(_between(1.0, 5.0 - 4.0 * log10(max(1, facts.tokens) / 100_000), 5.0), 1)


def _time(facts: Facts) -> dict[str, Any]:
    """Return the time limit. Several models take longer, and so does one that learns from a teacher."""
    minutes = MINUTES["cuda" if facts.gpu else "cpu"] * (2 if facts.taught else 1)
    warmup = int(400 * _between(1, sqrt(facts.tokens / FEW), 2.5))
    return {
        "training.schedule": "watched",
        "training.budget": 60.0 * minutes * facts.members,
        "training.warmup": warmup,
    }


#: Later rules overrule earlier ones.
RULES: tuple[Rule, ...] = (
    Rule("layer norm first", lambda _: {"model.norm": "pre", "model.heads": 4}, "results/words.md: 800 words"),
    Rule("time limit", _time, "results/recipe.md: two fifths of it are enough for most sets"),
    Rule("as wide as a CPU can", _small_enough, "results/words.md: on a CPU", lambda facts: not facts.gpu, (0, MOST)),
    Rule("as deep as the data", _large_enough, "results/recipe.md: deep", lambda facts: facts.gpu, (0, MANY)),
    Rule(
        "wider for sentences",
        lambda _: {"model.d_model": 512, "model.heads": 8, "model.d_ff": 1024, "model.encoder_layers": 5,
                   "model.decoder_layers": 5},
        "results/translation.md: Multi30k",
        lambda facts: facts.gpu and facts.subwords and facts.tokens >= SOME,
        (SOME, MOST),
    ),
    Rule(
        "the paper's base model",
        lambda _: {"model.d_model": 512, "model.heads": 8, "model.d_ff": 2048, "model.encoder_layers": 6,
                   "model.decoder_layers": 6},
        "the paper, table 2",
        lambda facts: facts.gpu and facts.tokens >= MOST,
        (MOST, 2**60),
    ),
    Rule("dropout for little data", lambda facts: {"model.dropout": _dropout(facts)}, "results/recipe.md: dropout",
         tokens=(0, MOST)),
    Rule("less dropout for forms", lambda _: {"model.dropout": 0.15}, "results/words.md: forms on a CPU",
         lambda facts: facts.features and not facts.gpu and facts.tokens >= FEW, (FEW, SOME)),
    Rule("twelve batches an epoch", _batch, "results/recipe.md: batches", tokens=(0, MANY)),
    Rule(
        "learning rate by width",
        lambda facts: {"training.learning_rate": 0.002 if (not facts.gpu or facts.tokens < FEW) and facts.tokens < MANY
                       else 0.001 if facts.tokens < MOST else 0.0007},
        "results/words.md",
    ),
    Rule("two passes that agree", lambda facts: {"training.r_drop": _agreement(facts)}, "results/words.md: R-Drop",
         lambda facts: facts.gpu and facts.tokens < MOST, (0, MANY)),
    Rule(
        "Muon for little data",
        lambda _: {"training.muon": 7.5},
        "results/words.md: Muon",
        lambda facts: facts.tokens < (FEW if facts.gpu else MANY),
        (0, MANY),
    ),
    Rule(
        "one head follows the order",
        lambda facts: {"training.guided": 0.5, **({} if facts.features else {"training.chained": 1.0})},
        "results/words.md: guided head, joined words",
        lambda facts: not facts.subwords and facts.tokens < MANY,
        (0, 1_000_000),
    ),
    Rule("the encoder alone predicts", lambda _: {"training.guided_memory": 0.5}, "results/words.md: 800 words",
         lambda facts: facts.gpu and not facts.subwords and not facts.features and facts.tokens < SOME, (0, SOME)),
    Rule("other stems", lambda _: {"training.invented": 0.5}, "results/words.md: invented stems",
         lambda facts: facts.features and facts.tokens < MANY, (0, MANY)),
    Rule("other names and numbers", lambda _: {"training.swapped": 0.3}, "results/recipe.md: copied words",
         lambda facts: facts.copied >= COPIED and not facts.features and facts.tokens < MANY, (0, MANY)),
    Rule("words cut anew in each epoch", lambda _: {"training.bpe_dropout": 0.1}, "results/translation.md: Multi30k",
         lambda facts: facts.gpu and facts.recut and SOME <= facts.tokens < MOST, (SOME, MOST)),
    Rule(
        "both directions",
        lambda facts: {"model.members": facts.members, "model.backward": facts.members // 2},
        "results/words.md: both directions",
        lambda facts: facts.members > 1 and not (facts.taught or facts.subwords or facts.features)
        and facts.tokens < SOME,
        (0, SOME),
    ),
    Rule("less agreement with a teacher", lambda facts: {"training.r_drop": min(1.0, _agreement(facts))},
         "results/words.md: distillation", lambda facts: facts.taught and facts.gpu and facts.tokens < MOST),
    Rule("averages and lines", lambda facts: {"training.average": 3, "training.evaluate_on": 500 if facts.gpu else 200},
         "results/recipe.md: landing"),
)  # fmt: skip


def rules_in(path: Path) -> tuple[Rule, ...]:
    """Read rules of the user's own from a TOML file; they overrule ours.

    ``[[rule]]`` has a name, ``settings`` by name, ``when``: what facts must be (a value, or the least and the most), and
    perhaps ``evidence``.
    """
    try:
        given = tomllib.loads(given_text(path, "a TOML file of rules"))
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path} is no TOML file ({error}).") from None
    found, known = [], {one.name for one in fields(Facts)}
    for number, one in enumerate(given.get("rule", []) if given.keys() == {"rule"} else [{}], 1):
        settings, when = one.get("settings"), one.get("when", {})
        if not isinstance(settings, dict) or not settings or not isinstance(when, dict) or not one.get("name"):
            raise UserError(f"{path}: [[rule]] {number} was expected to have a `name`, `settings` and perhaps `when`.")
        for name in when.keys() - known:
            raise UserError(f"{path}: there is no fact {name!r}. {suggest(name, sorted(known))}")
        checked = parse_overrides([f"{name}={value}" for name, value in settings.items()])
        values = {f"{part}.{name}": value for part in ("model", "training") for name, value in checked[part].items()}
        said = str(one.get("evidence", path))
        found.append(Rule(str(one["name"]), partial(_given, values), said, partial(_holds, when)))
    return tuple(found)


def _given(values: Mapping[str, Any], facts: Facts) -> Mapping[str, Any]:
    return values


def _holds(when: Mapping[str, Any], facts: Facts) -> bool:
    """Whether facts are as a rule of the user's wants them."""
    for name, value in when.items():
        fact = getattr(facts, name)
        if not (value[0] <= fact <= value[1] if isinstance(value, list) else fact == value):
            return False
    return True


def choose(facts: Facts, preset: str | None = None, rules: Sequence[Rule] = RULES) -> Recipe:
    """Choose the settings by the rules; those of a preset are taken as they are."""
    if preset is not None:
        entry = find_preset(preset)
        training = {**entry.training, **fast_on(facts.device, entry.model)}
        return Recipe(facts, dict(entry.model), training, preset=preset)
    found: dict[str, Reason] = {}
    for rule in rules:
        if rule.when(facts):
            measured = rule.tokens[0] <= facts.tokens <= rule.tokens[1]
            for name, value in rule.settings(facts).items():
                found.pop(name, None)
                found[name] = Reason(name, value, rule, measured)
    model, training = (
        {name.partition(".")[2]: one.value for name, one in found.items() if name.startswith(section)}
        for section in ("model.", "training.")
    )
    return Recipe(facts, model, training | fast_on(facts.device, model), tuple(found.values()))


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


def most_tokens(longest: int) -> int:
    """Return the most tokens of a text, if the longest one of the training has ``longest``."""
    return max(64, ROOM * longest)


def config_of(
    recipe: Recipe,
    tokenizers: tuple[Tokenizer, Tokenizer],
    model: Mapping[str, Any] | None = None,
    training: Mapping[str, Any] | None = None,
) -> Config:
    """Make the config of a recipe; ``model`` and ``training`` overrule it."""
    source, target = tokenizers
    learned = TrainingConfig.of(**with_length(recipe.training, training or {}))
    return Config(
        task="pairs",
        model=ModelConfig.of(**{
            **recipe.model,
            "max_length": most_tokens(recipe.facts.longest),
            "share_embeddings": source is target,
            "source_vocabulary": source.size,
            "target_vocabulary": target.size,
            **(model or {}),
        }),
        training=learned,
    )  # fmt: skip


def seconds_in(time: str | float) -> float:
    """Read a time: ``90``, ``90s``, ``30m``, ``1.5h``."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|h)?", str(time).strip())
    if found is None:
        raise UserError(f"`budget` is {time!r}: a time was expected, such as 90s, 30m or 1h.")
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2] or "s"]


def in_minutes(seconds: float) -> str:
    """Write a time as ``seconds_in`` reads it."""
    return f"{seconds:.0f}s" if seconds < 120 else f"{seconds / 60:.0f}m"


def with_length(chosen: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a training: a number of steps or a budget that is asked sets its length."""
    settings = {**chosen, **asked}
    lengths: dict[str, Any] = {}
    if asked.get("steps") is not None and chosen.get("schedule") == "watched":
        steps = int(asked["steps"])
        lengths = {
            "schedule": "cosine", "budget": None, "warmup": max(1, min(1000, steps // 10)),
            "evaluate_every": max(1, steps // 10), "checkpoint_every": max(1, steps // 40),
        }  # fmt: skip
    elif asked.get("budget") is not None:
        settings.pop("steps", None)
        lengths = {"schedule": "watched"}
    return {**settings, **{name: value for name, value in lengths.items() if name not in asked}}
