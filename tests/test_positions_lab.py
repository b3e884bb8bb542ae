"""The positions laboratory: what holds of the paper's encoding, and what fails of the others."""

from __future__ import annotations

import math

import pytest
import torch
import typer
from typer.testing import CliRunner

from seq2see.cli import inspect
from seq2see.config import ModelConfig
from seq2see.errors import ConfigError, UserError
from seq2see.inspection import lab
from seq2see.kernels.positions import table_of


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


def printed(*arguments: str) -> str:
    app = typer.Typer(pretty_exceptions_enable=False)
    inspect.register(app)
    result = CliRunner().invoke(app, ["positions", *arguments], env={"COLUMNS": "100"})
    if result.exception is not None:
        raise result.exception
    return result.stdout


def test_the_command() -> None:
    text = printed()
    for expected in (
        "0.7225200832",
        "0.8600013331",
        "no: no linear map fits",
        "adding PE(i)",
        "one step in i/N",
    ):
        assert expected in text
    assert text.count("yes") == 3
    assert max(len(line) for line in text.splitlines()) <= 100
    assert "0.8600013331" not in printed("--variant", "paper")
    assert printed("--pe", "3", "0", "--d-model", "16", "--variant", "paper") == (
        "paper       PE(3, 0) = sin(3 / 10000^(0/16)) = 0.1411200081\n"
    )
