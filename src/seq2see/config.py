"""Every setting of a model and of its training: one typed schema, with named presets.

Plain dataclasses, so that reading a model folder costs no heavy import. A value is checked when
it is set; an unknown key is an error that names the nearest known one.
"""

from __future__ import annotations

import difflib
import json
import math
import tomllib
import types
from dataclasses import Field, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args, get_origin, get_type_hints

from seq2see.errors import ConfigError, FolderError, counted, printable, suggest
from seq2see.files import read_text

type_names = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}

LARGEST_POSITIONS = 2**28
WIDEST_BEAM = 100  # also the most answers to a text
MOST = 10**9  # steps, pairs or tokens
LARGEST_CONFIG = 2**20  # bytes
LONGEST_LINE = 8_000  # characters
Norm = Literal["post", "pre"]
Activation = Literal["relu", "gelu", "swish"]
Positions = Literal["paper", "halves", "fairseq", "opennmt", "learned", "rotary", "relative"]
DISTANCES = ("rotary", "relative")  # positions that self-attention has, and the embedding has not
RELATIVE_BUCKETS = 64
Layout = Literal["padded", "packed"]
Precision = Literal["float32", "bfloat16"]
Schedule = Literal["paper", "cosine", "constant", "watched"]
Penalty = Literal["paper", "length"]
Stopping = Literal["likeliest", "beaten", "full"]
Repair = Literal["marks", "capitals", "numbers", "quotes", "loops"]
REPAIRS: tuple[Repair, ...] = get_args(Repair)

#: Settings of earlier versions that are ignored in a config.toml. None changed an answer.
RETIRED: dict[str, tuple[str, ...]] = {
    "model": (),
    "training": (
        "tuned", "spliced", "sharded", "seconds", "solved", "joined", "recased", "repunctuated", "retyped", "mistyped",
        "carried",
    ),
    "decoding": (),
}  # fmt: skip


def option(default: Any, help: str, low: float | None = None, high: float | None = None) -> Any:
    """Declare a setting: its default, one sentence for the help texts, and its bounds (both inclusive)."""
    return field(default=default, metadata={"help": help, "low": low, "high": high})


@dataclass(frozen=True)
class Schema:
    """A group of settings that checks itself."""

    section: ClassVar[str]

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for setting in fields(self):
            value = _checked(self.section, setting, hints[setting.name], getattr(self, setting.name))
            object.__setattr__(self, setting.name, value)

    @classmethod
    def of(cls, **settings: Any) -> Self:
        """Build from keyword settings; an error names an unknown key and the nearest known one."""
        known = {setting.name for setting in fields(cls)}
        for key in settings:
            if key not in known:
                near = _elsewhere(key, cls.section) or suggest(key, known)
                raise ConfigError(f"There is no setting {cls.section}.{printable(key)}. {near}")
        return cls(**settings)

    def but(self, **settings: Any) -> Self:
        """Return a copy with some settings changed."""
        return type(self).of(**{**asdict(self), **settings})


def _elsewhere(key: str, section: str) -> str:
    """Return a sentence that names the setting of another section that has this name, or nearly."""
    named = {
        setting.name: schema.section
        for schema in (DecodingConfig, TrainingConfig, ModelConfig)
        for setting in fields(schema)
    }
    if key in named:
        return f"It is in another section: {named[key]}.{key}."
    near = difflib.get_close_matches(key, named, n=1, cutoff=0.8)
    return f"Did you mean {named[near[0]]}.{near[0]}?" if near and named[near[0]] != section else ""


def _checked(section: str, setting: Field[Any], hint: Any, value: Any) -> Any:
    name = f"{section}.{setting.name}"
    if get_origin(hint) is types.UnionType:
        if value is None:
            return None
        hint = get_args(hint)[0]
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            known = suggest(str(value)[:100], get_args(hint))
            raise ConfigError(f"{name} is {_told(value)}, which is not one of its values. {known}")
        return value
    if get_origin(hint) is tuple:
        inner = get_args(hint)[0]
        ids = inner is int and isinstance(value, list | tuple) and all(type(one) is int and one >= 0 for one in value)
        if not isinstance(value, list | tuple) or (inner is int and not ids):
            what = "a list of ids" if inner is int else "a list"
            raise ConfigError(f"{name} is {_told(value)}; {what} was expected ({setting.metadata['help']}).")
        return tuple(value if ids else [_checked(section, setting, inner, one) for one in value])
    if hint is float and type(value) is int and abs(value) < 1e300:
        value = float(value)
    if hint is float and type(value) is float and not math.isfinite(value):
        raise ConfigError(f"{name} is {value}; a finite number was expected ({setting.metadata['help']}).")
    if type(value) is not hint:
        raise ConfigError(f"{name} is {_told(value)}; {type_names[hint]} was expected ({setting.metadata['help']}).")
    low, high = setting.metadata["low"], setting.metadata["high"]
    if (low is not None and value < low) or (high is not None and value > high):
        below = type(value) is int and value < low
        bounds = f"at least {low}" if high is None or below else f"between {low} and {high:,}"
        raise ConfigError(f"{name} is {_told(value)}; it must be {bounds} ({setting.metadata['help']}).")
    return value


def _told(value: Any) -> str:
    """Return a value for a message, shortened: a file may contain a number of thousands of digits."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:60]}… ({len(text):,} characters)"


@dataclass(frozen=True)
class ModelConfig(Schema):
    """The shape of a Transformer, in the paper's names (sections 3 and 6.2).

    >>> import seq2see
    >>> base = seq2see.ModelConfig()
    >>> base.d_model, base.heads, base.d_k, base.parameters
    (512, 8, 64, 63082496)
    >>> base.but(d_model=100, d_k=None, d_v=None)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    seq2see.errors.ConfigError: model.d_model 100 cannot be split into 8 equal heads: choose a multiple of 8, ...
    """

    section: ClassVar[str] = "model"

    source_vocabulary: int = option(37_000, "number of source tokens", 4, 2**24)
    target_vocabulary: int = option(37_000, "number of target tokens", 4, 2**24)
    members: int = option(1, "models of this shape whose probabilities are averaged at each step", 1, 64)
    backward: int = option(0, "how many of the members read and write from right to left", 0, 63)
    d_model: int = option(512, "width of every vector between sub-layers", 1, 2**16)
    heads: int = option(8, "attention heads, h", 1, 2**12)
    d_k: int | None = option(None, "width of a query and a key in one head; d_model / heads if not given", 1, 2**16)
    d_v: int | None = option(None, "width of a value in one head; d_model / heads if not given", 1, 2**16)
    d_ff: int = option(2048, "width of the feed-forward hidden layer", 1, 2**20)
    encoder_layers: int = option(6, "encoder layers, N", 1, 2**10)
    decoder_layers: int = option(6, "decoder layers", 1, 2**10)
    dropout: float = option(0.1, "probability of dropping a sub-layer's output or an embedding sum", 0.0, 0.9)
    norm: Norm = option("post", "layer norm after the residual sum, as in the paper, or before the sub-layer")
    activation: Activation = option("relu", "the feed-forward layer's non-linearity")
    positions: Positions = option(
        "paper",
        "positional encoding: the paper's sinusoids, all sines before all cosines (halves), those of fairseq, those of "
        "OpenNMT, learned, or distances within self-attention: rotary, or relative biases as in T5",
    )
    max_length: int = option(1024, "longest sequence, in tokens", 2, 2**20)
    share_embeddings: bool = option(True, "one embedding table for source and target (section 3.4)")
    share_output: bool = option(True, "the output projection is the target embedding (section 3.4)")
    scale_embeddings: bool = option(True, "embeddings are multiplied by √d_model (section 3.4)")
    embedding_norm: bool = option(False, "layer norm of the sum of embedding and position, as in BART")
    output_bias: bool = option(
        False, "a bias on the logits of a shared output projection, as in Marian; one of its own always has it"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("d_k", "d_v"):
            if getattr(self, name) is None:
                if self.d_model % self.heads:
                    raise ConfigError(
                        f"model.d_model {self.d_model} cannot be split into {self.heads} equal heads: "
                        f"choose a multiple of {self.heads}, or set model.d_k and model.d_v."
                    )
                object.__setattr__(self, name, self.d_model // self.heads)
        if self.max_length * self.d_model > LARGEST_POSITIONS:
            raise ConfigError(
                f"model.max_length {self.max_length:,} with model.d_model {self.d_model:,} makes a table of positions of "
                f"more than {LARGEST_POSITIONS:,} numbers: choose a smaller max_length."
            )
        if self.positions == "rotary" and self.d_k is not None and self.d_k % 2:
            raise ConfigError(
                f"A head's d_k is {self.d_k}; rotary positions turn pairs of numbers, so it must be even: choose other "
                "model.heads or model.d_k."
            )
        if self.d_model % 2 and self.positions != "learned":
            raise ConfigError(
                f"model.d_model is {self.d_model}; sines and cosines come in pairs, so it must be even "
                "(or set model.positions to 'learned')."
            )
        if self.positions in ("fairseq", "opennmt") and self.d_model < 4:
            raise ConfigError(f"model.d_model is {self.d_model}; positions {self.positions!r} need at least 4.")
        if self.backward >= self.members:
            raise ConfigError(
                f"model.backward is {self.backward}, but of {counted(self.members, 'member')} at least one must read "
                "from left to right: choose a smaller number."
            )
        if self.share_embeddings and self.source_vocabulary != self.target_vocabulary:
            raise ConfigError(
                f"model.share_embeddings needs one vocabulary, but source has {self.source_vocabulary} tokens "
                f"and target {self.target_vocabulary}: set it to false, or use one tokenizer for both."
            )

    @property
    def parameters(self) -> int:
        """The number of trainable parameters, computed from the shape; a test compares it with a real model."""
        assert self.d_k is not None
        assert self.d_v is not None
        d, wide = self.d_model, self.heads * (self.d_k + self.d_v)
        norm = 2 * d
        # W^Q, W^K, W^V, W^O with their biases
        attention = 2 * d * wide + wide + self.heads * self.d_k + d + norm
        feed_forward = 2 * d * self.d_ff + self.d_ff + d + norm
        encoder = self.encoder_layers * (attention + feed_forward)
        decoder = self.decoder_layers * (2 * attention + feed_forward)
        tables = (0 if self.share_embeddings else self.source_vocabulary) + self.target_vocabulary
        positions = 2 * self.max_length if self.positions == "learned" else 0
        layers = self.encoder_layers + self.decoder_layers
        biases = layers * RELATIVE_BUCKETS * self.heads if self.positions == "relative" else 0
        output = 0 if self.share_output else d * self.target_vocabulary
        bias = self.target_vocabulary if self.output_bias or not self.share_output else 0
        other_norms = 2 * norm * ((self.norm == "pre") + self.embedding_norm)
        return self.members * (encoder + decoder + d * (tables + positions) + output + bias + biases + other_norms)


@dataclass(frozen=True)
class TrainingConfig(Schema):
    """How a model is trained (section 5).

    >>> import seq2see
    >>> paper = seq2see.TrainingConfig()
    >>> paper.warmup, paper.label_smoothing, paper.schedule
    (4000, 0.1, 'paper')
    >>> paper.but(steps=500, schedule="cosine").steps
    500
    """

    section: ClassVar[str] = "training"

    steps: int = option(100_000, "optimiser steps in all", 1, MOST)
    budget: float | None = option(
        None, "seconds that the steps may take; their speed, measured before the first one, decides their number", 1.0
    )
    batch_tokens: int = option(25_000, "sentences × longest side in one batch, at most", 8, MOST)
    layout: Layout = option("padded", "sentences padded to one length, or end to end without padding (for a GPU)")
    precision: Precision = option("float32", "of the arithmetic; the weights are kept in float32")
    schedule: Schedule = option(
        "paper",
        "learning rate after the warm-up: step^-0.5, a cosine to zero, constant, or constant until the answers to "
        "held-out pairs stop improving and then falling to zero (watched)",
    )
    warmup: int = option(4000, "steps over which the learning rate rises", 1, MOST)
    learning_rate: float | None = option(
        None, "peak learning rate; the paper's, (d_model·warmup)^-0.5, if not given", 0.0
    )
    beta1: float = option(0.9, "Adam's first moment decay", 0.0, 0.99999)
    beta2: float = option(0.98, "Adam's second moment decay", 0.0, 0.99999)
    epsilon: float = option(1e-9, "Adam's ε", 0.0)
    muon: float = option(
        0.0,
        "the matrices of the layers are changed by Muon instead of Adam, with this many times the learning rate; "
        "0 for Adam alone",
        0.0,
        1000.0,
    )
    clip: float = option(1.0, "largest norm of a gradient; 0 for no clipping", 0.0)
    accumulate: int = option(1, "batches whose gradients are summed for one step", 1, MOST)
    bpe_dropout: float = option(
        0.0, "probability of skipping a BPE merge, so that words are cut differently in each epoch", 0.0, 0.9
    )
    chained: float = option(
        0.0, "pairs joined end to end, with an end-of-text token between them, added to each epoch, per pair", 0.0, 4.0
    )
    invented: float = option(
        0.0, "share of the pairs whose shared letters are replaced by those of other pairs, as stems are", 0.0, 1.0
    )
    swapped: float = option(
        0.0, "share of the pairs whose rare copied words, such as names and numbers, are replaced by others", 0.0, 1.0
    )
    unseen: float = option(
        0.05,
        "share of the pairs in which a symbol is replaced by a slot, as symbols are that were never seen",
        0.0,
        0.9,
    )
    guided: float = option(
        0.0,
        "weight of the loss that trains one decoder head to attend to the source token of each target "
        "token; used if both sides have the same order",
        0.0,
        10.0,
    )
    guided_memory: float = option(
        0.0,
        "weight of the loss that trains the encoder to predict each target token by the memory of its source "
        "token alone, without the decoder; used as guided is",
        0.0,
        10.0,
    )
    r_drop: float = option(0.0, "R-Drop's weight: two passes with different dropout should agree; 0 for one pass", 0.0)
    taught: float = option(0.5, "with a teacher, the weight of its probabilities against the right tokens", 0.0, 1.0)
    label_smoothing: float = option(0.1, "probability spread over the whole vocabulary, ε_ls", 0.0, 0.99)
    average: int = option(
        5, "checkpoints averaged into the final weights, at most those of the last quarter of the run", 1, MOST
    )
    patience: int = option(
        0, "stop after this many lines of the table without a better score, and keep the best; 0 for never", 0, MOST
    )
    checkpoint_every: int = option(1000, "steps between checkpoints", 1, MOST)
    evaluate_every: int = option(1000, "steps between lines of the table", 1, MOST)
    evaluate_on: int = option(1000, "held-out pairs answered freely for each line", 1, MOST)
    seed: int = option(1, "seed of every random choice", 0, 2**63 - 1)


@dataclass(frozen=True)
class DecodingConfig(Schema):
    """How answers are searched for, unless a request says otherwise (section 6.1)."""

    section: ClassVar[str] = "decoding"

    beam: int = option(1, "width of the beam search; 1 is greedy", 1, WIDEST_BEAM)
    length_penalty: float = option(0.6, "α, by which a beam prefers longer answers", -10.0, 10.0)
    penalty: Penalty = option(
        "paper", "divisor of a log-probability: ((5 + length) / 6)^α as in the paper, or length^α"
    )
    length_ratio: float = option(
        1.0, "an answer has at most length_ratio × source tokens + length_offset tokens", 0.0, 1000.0
    )
    length_offset: int = option(50, "see length_ratio; the paper has 1 and 50", 1, 10**9)
    max_length: int | None = option(None, "most tokens of an answer, whatever its source", 1, MOST)
    stopping: Stopping = option(
        "likeliest",
        "a beam search ends when it has as many finished answers as its width and the likeliest is among "
        "them (full), or when no open prefix scores better than any of them (beaten)",
    )
    suppressed: tuple[int, ...] = option((), "ids of tokens that no answer contains")
    first_suppressed: tuple[int, ...] = option((), "ids of tokens that no answer begins with")
    other_ends: tuple[int, ...] = option((), "ids of further tokens that end an answer")
    min_length: int = option(0, "fewest tokens of an answer, forced ones included", 0, 10**9)
    forced_end: bool = option(False, "an answer that reaches its limit ends with the end token")
    no_repeat: int = option(0, "an answer repeats no sequence of this many tokens; 0 turns the rule off", 0, 1000)
    no_repeat_source: int = option(
        0, "an answer copies no sequence of this many tokens from the source; 0 turns the rule off", 0, 1000
    )
    repetition_penalty: float = option(
        1.0,
        "factor by which tokens that are already in the answer become less likely; 1 turns the rule off",
        0.01,
        100.0,
    )
    sentences: bool = option(False, "texts are translated sentence by sentence")
    repairs: tuple[Repair, ...] = option(
        (),
        "changes of such texts and answers: marks in the place of addresses and code, small letters in the place of "
        "capitals, a second search for lost numbers and quotes and after loops; a training keeps those by which its "
        "held-out answers become better",
    )

    def limit(self, source_length: int, longest: int) -> int:
        """Return the most tokens of an answer to a source, by a model whose sequences have at most ``longest``."""
        most = int(self.length_ratio * source_length) + self.length_offset
        return min(most, longest - 1, *([] if self.max_length is None else [self.max_length]))

    def divisor(self, length: Any) -> Any:
        """Return the divisor of the log-probability of an answer; its length is a number or a tensor."""
        return ((5 + length) / 6 if self.penalty == "paper" else length) ** self.length_penalty


@dataclass(frozen=True)
class Config:
    """The content of a model folder's config.toml.

    >>> import seq2see
    >>> config = seq2see.Config("copying", seq2see.ModelConfig(d_model=64, heads=4), seq2see.TrainingConfig(steps=100))
    >>> print(config.to_toml()[:16])
    task = "copying"
    >>> config.decoding.beam
    1
    """

    task: str
    model: ModelConfig
    training: TrainingConfig
    decoding: DecodingConfig = DecodingConfig()

    def __post_init__(self) -> None:
        """Refuse ids of tokens that the model does not have."""
        size = self.model.target_vocabulary
        for name in ("suppressed", "first_suppressed", "other_ends"):
            wrong = [number for number in getattr(self.decoding, name) if number >= size]
            if wrong:
                raise ConfigError(
                    f"decoding.{name} has the id {wrong[0]}, but the model has {size:,} target tokens: an id from 0 to "
                    f"{size - 1:,} was expected."
                )

    def to_toml(self) -> str:
        """Write as TOML, each setting with its help text."""
        lines = [f"task = {json.dumps(self.task)}"]
        for group in (self.model, self.training, self.decoding):
            lines += ["", f"[{group.section}]"]
            for setting in fields(group):
                value = getattr(group, setting.name)
                if value is not None:
                    lines.append(f"{setting.name} = {json.dumps(value)}  # {setting.metadata['help']}")
        return "\n".join(lines) + "\n"

    @classmethod
    def from_toml(cls, text: str, origin: str) -> Config:
        """Read what ``to_toml`` wrote; ``origin`` names the file in errors."""
        try:
            if max(map(len, text.split("\n"))) > LONGEST_LINE:  # reading a key of 20,000 parts takes half a minute
                raise ValueError(f"it has a line of more than {LONGEST_LINE:,} characters")
            table = tomllib.loads(text)
        except (ValueError, RecursionError) as error:  # also raised for nesting and for huge numbers
            raise ConfigError(f"{origin} is not valid TOML: {printable(str(error)[:200])}.") from None
        known = {"task", "model", "training", "decoding"}
        for key in table:
            if key not in known:
                raise ConfigError(f"{origin} has an unknown section {key!r}. {suggest(key, known)}")
            if (key == "task") != isinstance(table[key], str) or (key != "task") != isinstance(table[key], dict):
                raise ConfigError(f"{origin} has a {key} of another kind: task is a text, the others are sections.")
        try:
            groups = {
                section: {key: value for key, value in table.get(section, {}).items() if key not in gone}
                for section, gone in RETIRED.items()
            }
            return cls(
                task=str(table.get("task", "pairs")),
                model=ModelConfig.of(**groups["model"]),
                training=TrainingConfig.of(**groups["training"]),
                decoding=DecodingConfig.of(**groups["decoding"]),
            )
        except ConfigError as error:
            raise ConfigError(f"{origin}: {error}") from None

    @classmethod
    def read(cls, path: Path) -> Config:
        """Read a config.toml."""
        try:
            return cls.from_toml(read_text(path, LARGEST_CONFIG), path.name)
        except FolderError as error:
            raise ConfigError(str(error)) from None


@dataclass(frozen=True)
class Preset:
    """A named model shape, with its size in Table 3 of the paper, if it has a row there."""

    about: str
    model: dict[str, Any]
    training: dict[str, Any] = field(default_factory=dict)
    paper_millions: int | None = None


def _paper(about: str, millions: int, training: dict[str, Any] | None = None, **model: Any) -> Preset:
    return Preset(about, model, training or {}, millions)


#: Section 5.1 says "about 37000 tokens", but the size column of Table 3 grows by 7.33 million a layer from
#: 20.9 million, which is a vocabulary of 41,000 at d_model 512: The comparison uses that one.
PAPER_VOCABULARY = 41_000

PRESETS: dict[str, Preset] = {
    "document": Preset(
        "the small model of dates that ships: d_model 16, 4 heads, d_ff 64, 2+2 layers",
        dict(d_model=16, heads=4, d_ff=64, encoder_layers=2, decoder_layers=2, dropout=0.0,
             share_embeddings=False, share_output=False, max_length=64),
        dict(steps=2000, batch_tokens=5120, schedule="cosine", warmup=300, learning_rate=0.005, label_smoothing=0.0,
             checkpoint_every=200, evaluate_every=200),
    ),
    "base": _paper("the paper's base model", 65),
    "big": _paper("the paper's big model", 213, d_model=1024, d_ff=4096, heads=16, dropout=0.3),
    "A-1-head": _paper("Table 3 (A): one head of 512", 65, heads=1),
    "A-4-heads": _paper("Table 3 (A): 4 heads of 128", 65, heads=4),
    "A-16-heads": _paper("Table 3 (A): 16 heads of 32", 65, heads=16),
    "A-32-heads": _paper("Table 3 (A): 32 heads of 16", 65, heads=32),
    "B-d_k-16": _paper("Table 3 (B): keys of 16", 58, d_k=16),
    "B-d_k-32": _paper("Table 3 (B): keys of 32", 60, d_k=32),
    "C-2-layers": _paper("Table 3 (C): 2+2 layers", 36, encoder_layers=2, decoder_layers=2),
    "C-4-layers": _paper("Table 3 (C): 4+4 layers", 50, encoder_layers=4, decoder_layers=4),
    "C-8-layers": _paper("Table 3 (C): 8+8 layers", 80, encoder_layers=8, decoder_layers=8),
    "C-d_model-256": _paper("Table 3 (C): d_model 256, heads of 32", 28, d_model=256),
    "C-d_model-1024": _paper("Table 3 (C): d_model 1024, heads of 128", 168, d_model=1024),
    "C-d_ff-1024": _paper("Table 3 (C): d_ff 1024", 53, d_ff=1024),
    "C-d_ff-4096": _paper("Table 3 (C): d_ff 4096", 90, d_ff=4096),
    "D-dropout-0.0": _paper("Table 3 (D): no dropout", 65, dropout=0.0),
    "D-dropout-0.2": _paper("Table 3 (D): dropout 0.2", 65, dropout=0.2),
    "D-smoothing-0.0": _paper("Table 3 (D): no label smoothing", 65, {"label_smoothing": 0.0}),
    "D-smoothing-0.2": _paper("Table 3 (D): label smoothing 0.2", 65, {"label_smoothing": 0.2}),
    "E-learned-positions": _paper("Table 3 (E): learned positions", 65, positions="learned"),
}  # fmt: skip


def preset(name: str) -> Preset:
    """Look a preset up by name."""
    if name not in PRESETS:
        raise ConfigError(f"There is no preset {name!r}. {suggest(name, PRESETS)}")
    return PRESETS[name]


def parse_overrides(assignments: list[str]) -> dict[str, dict[str, Any]]:
    """Turn ``["model.d_ff=128", "training.steps=500"]`` into settings by section."""
    known = {schema.section for schema in (ModelConfig, TrainingConfig, DecodingConfig)}
    sections: dict[str, dict[str, Any]] = {section: {} for section in known}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        section, dot, name = key.strip().partition(".")
        if not equals or not dot or not name:
            raise ConfigError(f"{assignment!r} is not of the form SECTION.NAME=VALUE, such as model.d_ff=128.")
        if section not in known:
            raise ConfigError(f"There is no section {section!r} in {assignment!r}. {suggest(section, known)}")
        try:
            value = tomllib.loads(f"value = {text.strip()}")["value"]
        except tomllib.TOMLDecodeError:
            value = text.strip()
        sections[section][name] = value
    return sections
