"""The similarity of two words, of two positions, and of the sums that a model reads: y·√d + pe (sections 3.4, 3.5)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path

import torch
from torch import Tensor

from seq2see.errors import InputError, UserError, shown
from seq2see.files import given_text
from seq2see.inspection.lab import cosine, encoding
from seq2see.model.transformer import Transformer
from seq2see.tokenizers.tokenizer import Tokenizer

OPENAI_MODEL = "text-embedding-3-small"
TIMEOUT, RETRIES = 20.0, 2  # seconds for one request, and the number of retries


@dataclass(frozen=True)
class Similarities:
    """Three cosines. Those of positions and sums exist only if positions were given."""

    words: float
    positions: float | None = None
    sums: float | None = None


def similarities(
    words: tuple[Tensor, Tensor], positions: tuple[Tensor, Tensor] | None = None
) -> Similarities:
    """Compare two word vectors y, two position vectors pe, and the sums y·√d + pe."""
    if positions is None:
        return Similarities(cosine(*words))
    scale = sqrt(len(words[0]))
    a, b = (y.double() * scale + pe.double() for y, pe in zip(words, positions, strict=True))
    return Similarities(cosine(*words), cosine(*positions), cosine(a, b))


# --- a model's own embeddings --------------------------------------------------------------------------


def word_tokens(tokenizer: Tokenizer, word: str) -> list[int]:
    """Return a word's ids without ``<sos>`` and ``<eos>``."""
    tokenizer.check(word)
    ids = [number for number in tokenizer.encode(word) if number not in (tokenizer.start, tokenizer.end)]
    if not ids:
        raise InputError(f"{shown(word)} has no tokens: give a word.")
    if tokenizer.unknown in ids:
        raise InputError(f"{shown(word)} is not in this model's vocabulary, so it has no vector there.")
    return ids


def word_vector(transformer: Transformer, tokenizer: Tokenizer, word: str) -> Tensor:
    """Return a word's vector (D,) from the source embeddings: the mean of its tokens' rows."""
    table = transformer.encoder.embedding.table.weight.detach()
    return table[word_tokens(tokenizer, word)].mean(0)


def position_vector(transformer: Transformer, position: int) -> Tensor:
    """Return the vector that the model adds at a source position, (D,): learned or sinusoidal."""
    table = transformer.encoder.embedding.positions.detach()
    if not 0 <= position < len(table):
        raise UserError(f"There is no position {position}: this model has 0 to {len(table) - 1}.")
    return table[position]


def model_similarities(
    transformer: Transformer, tokenizer: Tokenizer, words: tuple[str, str], at: tuple[int, int] | None = None
) -> Similarities:
    """Compare two words, at two positions if given, by the vectors of a model's encoder."""
    first, second = (word_vector(transformer, tokenizer, word) for word in words)
    if at is None:
        return similarities((first, second))
    here, there = (position_vector(transformer, position) for position in at)
    return similarities((first, second), (here, there))


# --- OpenAI's embeddings -------------------------------------------------------------------------------


def openai_similarities(
    words: tuple[str, str],
    at: tuple[int, int] | None = None,
    variant: str = "paper",
    model: str = OPENAI_MODEL,
    dimensions: int | None = None,
    base_url: str | None = None,
) -> Similarities:
    """Compare two words by OpenAI's vectors, with a positional encoding of the same width."""
    first, second = openai_vectors(words, model, dimensions, base_url)
    if at is None:
        return similarities((first, second))
    here, there = (encoding(position, len(first), variant) for position in at)
    return similarities((first, second), (here, there))


def openai_vectors(
    words: Sequence[str],
    model: str = OPENAI_MODEL,
    dimensions: int | None = None,
    base_url: str | None = None,
) -> list[Tensor]:
    """Ask OpenAI's embeddings API, or one with the same interface, for the vectors of some words.

    The key is OPENAI_API_KEY, from the environment or from a file ``.env`` in the current folder. If no address is
    given, it is OPENAI_BASE_URL, from the same places.
    """
    try:
        import openai
    except ImportError:
        raise UserError("OpenAI's SDK is not installed: `pip install 'seq2see[openai]'` adds it.") from None
    if not all(word.strip() for word in words):
        raise InputError("One of the words is empty: OpenAI's API gives vectors to texts only.")
    key = setting("OPENAI_API_KEY")
    if not key:
        raise UserError("There is no OPENAI_API_KEY, neither in the environment nor in a .env file here: "
                        "set it, or leave out --provider to use a model's own vectors.")  # fmt: skip
    address = base_url or setting("OPENAI_BASE_URL") or "https://api.openai.com/v1"
    try:
        with openai.OpenAI(api_key=key, base_url=address, timeout=TIMEOUT, max_retries=RETRIES) as client:
            answer = client.embeddings.create(
                input=list(words),
                model=model,
                dimensions=openai.omit if dimensions is None else dimensions,
                encoding_format="float",
            )
    except openai.OpenAIError as error:
        raise UserError(_reason(error, model, address)) from None
    by_index = sorted(answer.data, key=lambda item: item.index)
    if len(by_index) != len(words):
        raise UserError(f"{address} sent {len(by_index)} vectors for {len(words)} words.")
    return [torch.tensor(item.embedding, dtype=torch.float64) for item in by_index]


def _reason(error: Exception, model: str, address: str) -> str:
    """Say what went wrong at the API and what to do. The message never shows the key."""
    import openai

    if isinstance(error, openai.AuthenticationError | openai.PermissionDeniedError):
        return (
            f"{address} refused the OPENAI_API_KEY ({error.status_code}): "
            "check that it is complete, current, and allowed to embed."
        )
    if isinstance(error, openai.RateLimitError):
        return (
            f"{address} says that there were too many requests or that the quota is spent (429): "
            "wait, or look at the account's limits."
        )
    if isinstance(error, openai.NotFoundError):
        return f"{address} knows no model {model!r} (404): {OPENAI_MODEL} and text-embedding-3-large exist."
    if isinstance(error, openai.APITimeoutError):
        return f"{address} did not answer within {TIMEOUT:g} seconds, {RETRIES + 1} times: try again later."
    if isinstance(error, openai.APIConnectionError):
        return f"{address} cannot be reached: check the network, or the address if you set it."
    if isinstance(error, openai.APIStatusError):
        said = error.body.get("message") if isinstance(error.body, dict) else None
        return f"{address} refused the request ({error.status_code}): {said or 'it did not say why'}."
    return f"{address} gave an answer that is not of the embeddings API: {type(error).__name__}."


def setting(name: str, folder: Path | None = None) -> str | None:
    """Read a setting from the environment or ``.env``: lines NAME=value, quotes and ``export`` allowed."""
    if os.environ.get(name):
        return os.environ[name]
    try:
        text = given_text((folder or Path.cwd()) / ".env", "lines NAME=value", 2**20)
    except UserError:
        return None
    for line in text.splitlines():
        key, _, value = line.strip().removeprefix("export ").partition("=")
        if key.strip() == name:
            return value.strip().strip("'\"")
    return None
