"""The same sentence, cut by each kind of tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seq2see.tokenizers.tokenizer import Tokenizer

#: The default training texts: few, so that sub-words can be seen.
SAMPLE = [
    "The Transformer is a model of sequences, and it is built on attention alone.",
    "A tokenizer cuts a text into tokens, and each token has a number.",
    "The model reads the tokens of a sentence and writes the tokens of another.",
    "Rare words are cut into parts that occur more often, so that no word is unknown.",
    "An innovative idea transforms what was known into something new.",
    "The translation of a sentence depends on the words before it and after it.",
    "Natural language processing, or NLP, is about texts that people write.",
    "The cat sat on the mat, and the dog was sleeping on the rug.",
    "Where is the station? It is at the end of the street, near the market.",
    "Training a model takes time; using it takes a moment!",
    "Attention weights are positive, and they sum to one.",
    "The encoder and the decoder have six layers each in the paper.",
    "Longer words are transformed into several tokens: tokenization, innovation, information.",
    "The same words are often used in the same places of the same sentences.",
]
VOCABULARY = 512


@dataclass(frozen=True)
class Cut:
    """The tokens of a text by one tokenizer."""

    kind: str
    tokens: list[str]
    characters: int
    vocabulary: int


def cut(tokenizer: Tokenizer, text: str) -> Cut:
    """Tokenize a text, without start and end."""
    tokenizer.check(text)
    ids = tokenizer.encode(text)
    ids = ids[len(tokenizer.before) : len(ids) - len(tokenizer.after)]
    return Cut(tokenizer.kind, tokenizer.tokens(ids), len(text), tokenizer.size)


def compare(text: str, learned_from: Sequence[str] = SAMPLE, vocabulary: int = VOCABULARY) -> list[Cut]:
    """Train each kind of tokenizer on some texts and tokenize another with it; characters need no training."""
    return [
        cut(Tokenizer.characters_of([*learned_from, text]), text),
        cut(Tokenizer.words([*learned_from], min_frequency=1), text),
        cut(Tokenizer.bpe(learned_from, vocabulary), text),
        cut(Tokenizer.wordpiece(learned_from, vocabulary - 256), text),  # it has no bytes to keep room for
        cut(Tokenizer.unigram(learned_from, vocabulary), text),
    ]
