"""The laboratory of the lessons: PE(pos, dim), how alike two positions and two words are (sections 3.4, 3.5).

`python -m seq2see.learn.lab POS DIM [D_MODEL]` writes out PE(pos, dim) in all variants.

Everything is float64: a property that holds shows an error near 1e-12, and one that fails shows a large one.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from math import sqrt

import torch
from torch import Tensor

from seq2see.errors import InputError, UserError, shown, suggest
from seq2see.kernels.layers import foreign_sinusoids
from seq2see.model.positions import sinusoids
from seq2see.model.transformer import Transformer
from seq2see.tokenizers.tokenizer import Tokenizer

#: What others have made of the paper's formula. ``doubled`` and ``odd-cosine`` are wrong, and only shown here: a model
#: takes ``paper`` or ``halves``.
VARIANTS: dict[str, str] = {
    "paper": "sin and cos of pos / 10000^(2i/d), in turn",
    "doubled": "the exponent taken twice: 2·(2i)/d, as if the paper's i were already even",
    "odd-cosine": "the cosine with an exponent of its own: (2i+1)/d",
    "halves": "the paper's numbers, all sines before all cosines",
}


def encoding(positions: int | list[int] | Tensor, d_model: int = 512, variant: str = "paper") -> Tensor:
    """Encode one position, (D,), or several, (N, D)."""
    if variant not in VARIANTS:
        raise UserError(f"There is no positional encoding {variant!r}. {suggest(variant, VARIANTS)}")
    if d_model < 2 or d_model % 2:
        raise UserError(f"d_model is {d_model}: it must be even and at least 2, since sines and cosines come in pairs.")
    at = torch.as_tensor(positions)
    if (at < 0).any():
        raise UserError(f"{int(at.min())} is no position: they count from 0.")
    if variant == "paper":
        return sinusoids(at, d_model)
    if variant == "halves":
        return foreign_sinusoids(at, d_model, variant)
    return _wrong(at.double(), d_model, variant)


def _wrong(position: Tensor, d_model: int, variant: str) -> Tensor:
    """Encode positions (…) by a formula that is not the paper's: (…, D)."""
    dim = torch.arange(d_model, dtype=torch.float64)  # (D,)
    exponent = {"doubled": 2 * (dim - dim % 2), "odd-cosine": dim}[variant]
    angles = position[..., None] / 10000 ** (exponent / d_model)  # (…, D)
    return torch.where(dim % 2 == 0, angles.sin(), angles.cos())


def value(position: int, dim: int, d_model: int = 512, variant: str = "paper") -> float:
    """Return PE(pos, dim), both counted from 0."""
    vector = encoding(position, d_model, variant)
    if not 0 <= dim < d_model:
        raise UserError(f"There is no dimension {dim}: at d_model {d_model} they are 0 to {d_model - 1}.")
    return float(vector[dim])


def formula(position: int, dim: int, d_model: int = 512, variant: str = "paper") -> str:
    """Write out how PE(pos, dim) comes about: ``sin(3 / 10000^(0/16))``."""
    pair, odd = divmod(dim, 2)
    exponent = 2 * pair
    if variant == "halves":
        odd, pair = divmod(dim, d_model // 2)
        exponent = 2 * pair
    elif variant == "doubled":
        exponent = 4 * pair
    elif variant == "odd-cosine":
        exponent = dim
    return f"{'cos' if odd else 'sin'}({position} / 10000^({exponent}/{d_model}))"


def cosine(a: Tensor, b: Tensor) -> float:
    """Return how alike two vectors are: 1 same direction, 0 at right angles."""
    return float(torch.nn.functional.cosine_similarity(a.double(), b.double(), dim=0))


def position_cosine(a: int, b: int, d_model: int = 512, variant: str = "paper") -> float:
    """Return the cosine of two positions' encodings."""
    return cosine(encoding(a, d_model, variant), encoding(b, d_model, variant))


# --- an offset is a linear map -------------------------------------------------------------------------


def offset_map(offset: int, d_model: int = 512) -> Tensor:
    """Build the matrix M with PE(pos + offset) = M·PE(pos) for every position at once, (D, D), for ``paper``.

    Each pair (sin ωp, cos ωp) is a point on a circle, and moving on by φ turns it by the angle ωφ:

        sin ω(p+φ) =  cos ωφ · sin ωp + sin ωφ · cos ωp
        cos ω(p+φ) = −sin ωφ · sin ωp + cos ωφ · cos ωp
    """
    sine, cosine = sinusoids(torch.tensor(offset), d_model).view(-1, 2).T  # of ωφ, for each ω: (D/2,)
    even = torch.arange(0, d_model, 2)
    turn = torch.zeros(d_model, d_model, dtype=torch.float64)
    turn[even, even], turn[even, even + 1] = cosine, sine
    turn[even + 1, even], turn[even + 1, even + 1] = -sine, cosine
    return turn


def offset_map_error(offset: int, d_model: int = 512) -> float:
    """Return the largest |PE(pos + offset) − M·PE(pos)| over many positions, for ``paper``."""
    at = _many(d_model)
    moved = encoding(at, d_model) @ offset_map(offset, d_model).T
    return float((encoding(at + offset, d_model) - moved).abs().max())


def best_linear_map_error(offset: int, d_model: int = 512, variant: str = "paper") -> float:
    """Return the largest error of the best linear map from PE(pos) to PE(pos + offset), by least squares."""
    at = _many(d_model)
    here, there = encoding(at, d_model, variant), encoding(at + offset, d_model, variant)  # (N, D)
    # the driver that tolerates columns which are nearly alike, as those of the lowest frequencies are
    fitted = torch.linalg.lstsq(here, there, rcond=1e-13, driver="gelsd").solution  # (D, D)
    return float((here @ fitted - there).abs().max())


def _many(d_model: int) -> Tensor:
    """Return positions, far more than dimensions: with fewer, a linear map could be fitted to anything."""
    return torch.arange(max(1000, 4 * d_model))


# --- why not simply count? -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Counting:
    """What becomes of two unrelated words at one position if every dimension simply gets the number i."""

    position: int
    word_cosine_counted: float  # of the two words with i added: 1 if the words are drowned out
    word_cosine_paper: float  # of the two words with the paper's encoding added


def counting(positions: tuple[int, ...] = (0, 1, 10, 100, 1000), d_model: int = 512, seed: int = 1) -> list[Counting]:
    """Show that raw i drowns the words: two random ones grow alike with i, but not with the paper's PE(i)."""
    random = torch.Generator().manual_seed(seed)
    a, b = torch.randn(2, d_model, generator=random, dtype=torch.float64)  # variance 1, like E·√d_model
    return [
        Counting(i, cosine(a + i, b + i), cosine(a + encoding(i, d_model), b + encoding(i, d_model))) for i in positions
    ]


@dataclass(frozen=True)
class Fractions:
    """What one step to the right is worth in a sentence of a given length."""

    length: int
    step: float  # (i + 1)/N − i/N
    half_way: int  # the position whose code is 0.5
    paper_step: float  # ‖PE(i + 1) − PE(i)‖, the same for every i and every length


def fractions(lengths: tuple[int, ...] = (6, 12, 100, 1000), d_model: int = 512) -> list[Fractions]:
    """Show that i/N has no fixed meaning: a step differs with the length, a code names many positions."""
    return [
        Fractions(n, 1 / n, n // 2, float((encoding(n, d_model) - encoding(n - 1, d_model)).norm())) for n in lengths
    ]


def smallest_distance(positions: int = 1000, d_model: int = 512, variant: str = "paper") -> float:
    """Return the distance of the two most similar of many positions; above 0, each is unique."""
    table = encoding(torch.arange(positions), d_model, variant)
    return float(torch.pdist(table).min())


# --- how alike two words are, alone and at positions ---------------------------------------------------


@dataclass(frozen=True)
class Similarities:
    """Three cosines. Those of positions and sums exist only if positions were given."""

    words: float
    positions: float | None = None
    sums: float | None = None


def similarities(words: tuple[Tensor, Tensor], positions: tuple[Tensor, Tensor] | None = None) -> Similarities:
    """Compare two word vectors y, two position vectors pe, and the sums y·√d + pe."""
    if positions is None:
        return Similarities(cosine(*words))
    scale = sqrt(len(words[0]))
    a, b = (y.double() * scale + pe.double() for y, pe in zip(words, positions, strict=True))
    return Similarities(cosine(*words), cosine(*positions), cosine(a, b))


# --- a model's own embeddings ---


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


if __name__ == "__main__":
    position, dim, d_model = [*map(int, sys.argv[1:]), 512][:3]
    for variant in VARIANTS:
        said = formula(position, dim, d_model, variant), value(position, dim, d_model, variant)
        print(f"{variant:11} {said[0]} = {said[1]:.10g}")
