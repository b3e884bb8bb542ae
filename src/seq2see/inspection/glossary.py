"""What every recorded value is: symbol, shape in the legend's letters, one sentence, section of the paper.

The legend is that of ``seq2see.model``: S source length, T target length, D d_model, H heads, K d_k, F d_ff,
V vocabulary; d_v stands for itself. ``…`` is B for a batch and nothing for a single text.
Tests hold names and shapes against what models record.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

Head = tuple[str, int, int]  # attention, layer, head


@dataclass(frozen=True)
class Entry:
    """One kind of value; ``pattern`` is a glob over names, ``*`` standing for the number of a layer."""

    pattern: str
    symbol: str
    shape: tuple[str, ...]  # the legend's letters
    sentence: str
    section: str

    @property
    def letters(self) -> str:
        """The shape as people write it: ``(…, H, T, S)``."""
        return f"({', '.join(self.shape)})"


Row = tuple[str, str, str, str, str]  # role, symbol, shape, sentence, section


def _entries(place: str, letters: dict[str, str], rows: tuple[Row, ...]) -> list[Entry]:
    """Make the entries of one place in the model, where the two lengths have letters of their own."""
    return [
        Entry(f"{place}.{role}", symbol, tuple(letters.get(x, x) for x in shape.split()), sentence, section)
        for role, symbol, shape, sentence, section in rows
    ]


# In the tables below T is the length of the text that attends, and S the length of the text attended to.

_EMBEDDING = (
    ("ids", "x", "… T", "The number of each token.", "3.4"),
    ("embedded", "E[x]", "… T D", "Each token's row of the embedding table.", "3.4"),
    ("scaled", "√d·E[x]", "… T D", "The embedding times √d_model, where the model scales it.", "3.4"),
    ("positions", "PE", "T D", "The encoding of each position.", "3.5"),
    ("sum", "X", "… T D", "Token plus position: what layer 0 reads.", "3.5"),
    ("normed", "LN(X)", "… T D", "Token plus position, normalised: what layer 0 reads in such a model.", "3.5"),
)

_ATTENTION = (
    ("q", "Q", "… T H K", "What each position looks for, by head.", "3.2.2"),
    ("k", "K", "… S H K", "What each position can be found by, by head.", "3.2.2"),
    ("v", "V", "… S H d_v", "What each position hands over, by head.", "3.2.2"),
    ("scores", "Q·Kᵀ", "… H T S", "The dot product of each query with each key.", "3.2.1"),
    ("scaled", "Q·Kᵀ/√d_k", "… H T S", "The scores divided by √d_k, lest softmax saturate.", "3.2.1"),
    ("masked", "M", "… H T S", "The scores, −∞ where a query may not look.", "3.2.3"),
    ("weights", "A", "… H T S", "Softmax of each row: a query's shares of the keys.", "3.2.1"),
    ("z", "Z", "… T H d_v", "The values' mean under these weights, A·V.", "3.2.1"),
    ("out", "Z·W^O", "… T D", "All heads side by side, mixed by W^O.", "3.2.2"),
)

_FEED_FORWARD = (
    ("hidden", "h", "… T F", "The wide inner layer, after its non-linearity.", "3.3"),
    ("out", "FFN(x)", "… T D", "The feed-forward network's output, h·W₂ + b₂.", "3.3"),
)

_NORM = (
    ("sum", "x + y", "… T D", "A sub-layer's input plus its output.", "3.1"),
    ("normed", "LN(x)", "… T D", "A sub-layer's input, normalised beforehand.", "3.1"),
    ("out", "x'", "… T D", "LayerNorm(x + y); x + y where the norm is before.", "3.1"),
)

_SOURCE, _TARGET, _CROSS = {"T": "S"}, {"S": "T"}, dict[str, str]()

GLOSSARY: list[Entry] = [
    *_entries("encoder.embedding", _SOURCE, _EMBEDDING),
    *_entries("encoder.layers.*.self_attention", _SOURCE, _ATTENTION),
    *_entries("encoder.layers.*.self_attention_norm", _SOURCE, _NORM),
    *_entries("encoder.layers.*.feed_forward", _SOURCE, _FEED_FORWARD),
    *_entries("encoder.layers.*.feed_forward_norm", _SOURCE, _NORM),
    Entry("encoder.memory", "memory", ("…", "S", "D"), "What the encoder says of each source token.", "3.1"),
    *_entries("decoder.embedding", _TARGET, _EMBEDDING),
    *_entries("decoder.layers.*.self_attention", _TARGET, _ATTENTION),
    *_entries("decoder.layers.*.self_attention_norm", _TARGET, _NORM),
    *_entries("decoder.layers.*.cross_attention", _CROSS, _ATTENTION),
    *_entries("decoder.layers.*.cross_attention_norm", _CROSS, _NORM),
    *_entries("decoder.layers.*.feed_forward", _TARGET, _FEED_FORWARD),
    *_entries("decoder.layers.*.feed_forward_norm", _TARGET, _NORM),
    Entry("decoder.out", "y", ("…", "T", "D"), "What the decoder says of each target token.", "3.1"),
    Entry("logits", "y·W", ("…", "T", "V"), "A number for each token that might come next.", "3.4"),
    Entry("probabilities", "P", ("…", "T", "V"), "Softmax of the logits: P(next token).", "3.4"),
]


def entry_of(name: str) -> Entry:
    """Return the entry of a recorded name."""
    found = [entry for entry in GLOSSARY if fnmatchcase(name, entry.pattern)]
    assert len(found) == 1, f"{name} has {len(found)} entries in the glossary"
    return found[0]
