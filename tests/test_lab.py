"""The laboratory of the lessons: what holds of the paper's encoding, and what fails of the others."""

from __future__ import annotations

import math
import subprocess
import sys
from functools import cache

import pytest
import torch

import seq2see
from seq2see.config import ModelConfig
from seq2see.errors import ConfigError, UserError
from seq2see.kernels.layers import table_of
from seq2see.learn import lab


def by_hand(position: int, dim: int, d_model: int, variant: str) -> float:
    """Each variant's definition, written once more and on its own."""
    i, odd = divmod(dim, 2)
    if variant == "halves":
        odd, i = divmod(dim, d_model // 2)
    exponent = {"paper": 2 * i, "halves": 2 * i, "doubled": 2 * (2 * i), "odd-cosine": 2 * i + odd}[variant]
    return (math.cos if odd else math.sin)(position / 10000 ** (exponent / d_model))


@pytest.mark.parametrize("variant", lab.VARIANTS)
@pytest.mark.parametrize("d_model", [2, 16, 512])
def test_any_value_of_any_variant(variant: str, d_model: int) -> None:
    for position in (0, 1, 3, 10, 4999):
        for dim in {0, 1, d_model // 2, d_model - 1}:
            expected = by_hand(position, dim, d_model, variant)
            assert lab.value(position, dim, d_model, variant) == pytest.approx(expected, abs=1e-12)
            formula = lab.formula(position, dim, d_model, variant).replace("^", "**")
            names = {"sin": math.sin, "cos": math.cos}
            assert eval(formula, names) == pytest.approx(expected, abs=1e-12)


def test_the_laboratory_shows_what_models_use() -> None:
    for variant in ("paper", "halves"):
        table = table_of(20, 16, variant)
        assert table.dtype == torch.float32
        torch.testing.assert_close(table, lab.encoding(torch.arange(20), 16, variant).float(), rtol=0, atol=0)


@pytest.mark.parametrize("variant", ["doubled", "odd-cosine"])
def test_no_model_takes_a_wrong_formula(variant: str) -> None:
    with pytest.raises(ConfigError, match=f"{variant}', .*Known: fairseq, halves, learned, opennmt, paper"):
        ModelConfig.of(positions=variant)


def test_halves_is_the_paper_in_another_order() -> None:
    paper, halves = (lab.encoding([0, 5, 99], 16, variant) for variant in ("paper", "halves"))
    assert torch.equal(paper[:, 0::2], halves[:, :8])
    assert torch.equal(paper[:, 1::2], halves[:, 8:])


@pytest.mark.parametrize("d_model", [2, 16, 512])
@pytest.mark.parametrize("offset", [1, 7, 100])
def test_an_offset_is_one_linear_map_of_the_papers_encoding(offset: int, d_model: int) -> None:
    assert lab.offset_map_error(offset, d_model) < 1e-11
    turn = lab.offset_map(offset, d_model)
    torch.testing.assert_close(turn @ turn.T, torch.eye(d_model, dtype=torch.float64))  # a rotation
    assert not torch.allclose(turn, torch.eye(d_model, dtype=torch.float64))
    here, there = lab.encoding([3, 3 + offset], d_model)
    torch.testing.assert_close(turn @ here, there)


@pytest.mark.parametrize("variant", ["paper", "doubled", "halves"])
def test_least_squares_finds_that_map(variant: str) -> None:
    assert lab.best_linear_map_error(5, 32, variant) < 1e-10


@pytest.mark.parametrize("d_model", [16, 32, 64])
def test_no_linear_map_fits_the_odd_cosine(d_model: int) -> None:
    assert lab.best_linear_map_error(5, d_model, "odd-cosine") > 0.5


@pytest.mark.parametrize("variant", lab.VARIANTS)
def test_every_position_is_unique_and_within_one(variant: str) -> None:
    assert lab.smallest_distance(1000, 64, variant) > 0.1
    assert lab.encoding(torch.arange(1000), 64, variant).abs().max() <= 1


def test_raw_i_drowns_the_words() -> None:
    counts = {count.position: count for count in lab.counting()}
    assert abs(counts[0].word_cosine_counted) < 0.1  # two words that have nothing to do with each other …
    assert counts[10].word_cosine_counted > 0.98  # … look the same at position 10
    assert counts[1000].word_cosine_counted > 0.99999
    assert all(abs(count.word_cosine_paper) < 0.4 for count in counts.values())


def test_a_step_of_i_over_n_depends_on_the_length() -> None:
    fractions = lab.fractions()
    assert [fraction.step for fraction in fractions] == [1 / 6, 1 / 12, 1 / 100, 1 / 1000]
    assert [fraction.half_way for fraction in fractions] == [3, 6, 50, 500]  # one code, four positions
    assert {round(fraction.paper_step, 9) for fraction in fractions} == {round(fractions[0].paper_step, 9)}


def test_mistakes_are_explained() -> None:
    with pytest.raises(UserError, match=r"no positional encoding 'papper'. Did you mean 'paper'"):
        lab.encoding(1, 16, "papper")
    with pytest.raises(UserError, match="d_model is 15: it must be even"):
        lab.encoding(1, 15)
    with pytest.raises(UserError, match="no dimension 16: at d_model 16 they are 0 to 15"):
        lab.value(1, 16, 16)
    with pytest.raises(UserError, match="-1 is no position"):
        lab.value(-1, 0, 16)


def test_the_command_writes_out_a_number_of_every_variant() -> None:
    done = subprocess.run([sys.executable, lab.__file__, "3", "0", "16"], capture_output=True, text=True, check=True)
    first, doubled, *_ = done.stdout.splitlines()
    assert first == "paper       sin(3 / 10000^(0/16)) = 0.1411200081"
    assert doubled.startswith("doubled ")


# --- words -------------------------------------------------------------------------------------------------


VECTORS = {"king": [3.0, 4.0, 0.0, 0.0], "queen": [4.0, 3.0, 0.0, 0.0]}  # their cosine is 24/25


@cache
def dates() -> seq2see.Seq2Seq:
    return seq2see.load("dates")


def cosine(a: list[float], b: list[float]) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)


def test_the_three_cosines() -> None:
    king, queen = VECTORS.values()
    assert lab.similarities((torch.tensor(king), torch.tensor(queen))).words == pytest.approx(0.96)
    two, ten = (lab.encoding(position, 4).tolist() for position in (2, 10))
    result = lab.similarities((torch.tensor(king), torch.tensor(queen)), (torch.tensor(two), torch.tensor(ten)))
    assert result.positions == pytest.approx(cosine(two, ten))
    sums = [[y * math.sqrt(4) + pe for y, pe in zip(*pair, strict=True)] for pair in ((king, two), (queen, ten))]
    assert result.sums == pytest.approx(cosine(*sums))


def test_a_word_of_several_tokens_is_their_mean() -> None:
    table = dates().transformer.encoder.embedding.table.weight
    vector = lab.word_vector(dates().transformer, dates().tokenizers.source, "May")
    torch.testing.assert_close(vector, (table[22] + table[36] + table[60]) / 3)


def test_a_models_sums_are_what_its_encoder_reads() -> None:
    model, tokenizer = dates().transformer, dates().tokenizers.source
    text = "1845-01-05"
    read = dates().trace(text)["encoder.embedding.sum"]
    result = lab.model_similarities(model, tokenizer, (text[1], text[3]), at=(2, 4))
    assert result.sums == pytest.approx(cosine(read[2].tolist(), read[4].tolist()), abs=1e-6)
    assert lab.model_similarities(model, tokenizer, ("8", "8")).words == pytest.approx(1)
    torch.testing.assert_close(lab.position_vector(model, 3), model.encoder.embedding.positions[3])
