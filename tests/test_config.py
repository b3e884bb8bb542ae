"""Settings that check themselves."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import seq2see
from seq2see.config import (
    LARGEST_POSITIONS,
    PRESETS,
    Config,
    ModelConfig,
    TrainingConfig,
    parse_overrides,
    preset,
)
from seq2see.errors import ConfigError
from seq2see.storage.folder import SHIPPED


def test_heads_are_free_of_d_model() -> None:
    config = ModelConfig.of(d_model=10, heads=3, d_k=7, d_v=2)
    assert (config.d_k, config.d_v) == (7, 2)
    assert ModelConfig().d_k == 64


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"d_modle": 3}, "Did you mean 'd_model'"),
        ({"d_model": "wide"}, "a whole number was expected"),
        ({"d_model": 0}, "at least 1"),
        ({"d_model": True}, "a whole number was expected"),
        ({"d_model": 10, "heads": 3}, "cannot be split into 3 equal heads"),
        ({"d_model": 9, "heads": 3}, "must be even"),
        ({"dropout": 1.5}, "between 0.0 and 0.9"),
        ({"norm": "past"}, "Did you mean 'post'"),
        ({"dropout": float("nan")}, "a finite number was expected"),
        ({"dropout": 10**400}, "a number was expected"),
        ({"source_vocabulary": 10, "target_vocabulary": 20}, "share_embeddings needs one vocabulary"),
    ],
)
def test_bad_settings_are_explained(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ModelConfig.of(**settings)


def test_toml_round_trip() -> None:
    config = Config(
        "dates",
        ModelConfig.of(d_model=16, heads=4, positions="learned"),
        TrainingConfig.of(steps=7, epsilon=1e-9),
    )
    assert Config.from_toml(config.to_toml(), "config.toml") == config


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[model", "not valid TOML"),
        ("[modle]\n", "unknown section 'modle'"),
        ("model = 3\n", "task is a text, the others are sections"),
        ("[model]\nd_k = 'x'\n", r"config\.toml: model\.d_k"),
    ],
)
def test_bad_toml_is_explained(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Config.from_toml(text, "config.toml")


@pytest.mark.parametrize("name", ["suppressed", "first_suppressed", "other_ends"])
@pytest.mark.parametrize("number", [68, 10**12])
def test_the_id_of_a_token_that_is_not_there_is_refused_when_a_model_is_loaded(
    tmp_path: Path, name: str, number: int
) -> None:
    copy = Path(shutil.copytree(SHIPPED / "dates", tmp_path / "copy"))
    path = copy / "config.toml"
    text = path.read_text()
    size = Config.read(path).model.target_vocabulary
    assert size == 68
    for good in (0, size - 1):
        path.write_text(f"{text}[decoding]\n{name} = [{good}]\n")
        assert getattr(Config.read(path).decoding, name) == (good,)
    path.write_text(f"{text}[decoding]\n{name} = [3, {number}]\n")
    said = f"decoding.{name} has the id {number}, but the model has 68 target tokens: an id from 0 to 67 was expected."
    with pytest.raises(ConfigError) as error:
        seq2see.load(copy)
    assert str(error.value) == f"config.toml: {said}"


def test_overrides() -> None:
    sections = parse_overrides(
        ["model.norm=pre", "training.steps = 5", "training.clip=0.5", "model.share_output=false"]
    )
    assert sections == {
        "model": {"norm": "pre", "share_output": False},
        "training": {"steps": 5, "clip": 0.5},
        "decoding": {},
    }
    for bad, message in (("steps=5", "SECTION.NAME=VALUE"), ("modle.d_ff=1", "Did you mean 'model'")):
        with pytest.raises(ConfigError, match=message):
            parse_overrides([bad])


def test_every_preset_is_valid() -> None:
    for name, entry in PRESETS.items():
        ModelConfig.of(**entry.model)
        TrainingConfig.of(**entry.training)
        assert preset(name) is entry
    with pytest.raises(ConfigError, match="Did you mean 'base'"):
        preset("bse")


def test_a_setting_of_another_section_is_found_there() -> None:
    with pytest.raises(
        ConfigError, match=r"no setting training\.dropout\. .*another section: model\.dropout\."
    ):
        TrainingConfig.of(dropout=0.1)
    with pytest.raises(ConfigError, match=r"no setting model\.beam\. .*another section: decoding\.beam\."):
        ModelConfig.of(beam=5)
    assert parse_overrides(["decoding.beam=5"])["decoding"] == {"beam": 5}


def test_a_setting_that_is_gone_is_read_over_in_a_file_and_unknown_elsewhere() -> None:
    """Model folders of earlier versions have training.tuned."""
    text = Config("pairs", ModelConfig(), TrainingConfig()).to_toml()
    old = text.replace("[training]\n", "[training]\ntuned = true  # gone\n")
    assert old != text
    assert Config.from_toml(old, "config.toml") == Config.from_toml(text, "config.toml")
    assert "tuned" not in Config.from_toml(old, "config.toml").to_toml()
    spliced = text.replace(
        "[training]\n", "[training]\nspliced = 1.0\n"
    )  # models of words before the guided head
    assert Config.from_toml(spliced, "config.toml") == Config.from_toml(text, "config.toml")
    with pytest.raises(ConfigError, match=r"no setting training\.tuned"):
        TrainingConfig.of(tuned=True)
    with pytest.raises(ConfigError, match=r"no setting model\.tuned"):
        Config.from_toml(text.replace("[model]\n", "[model]\ntuned = true\n"), "config.toml")


def test_the_table_of_positions_has_a_largest_size() -> None:
    most = LARGEST_POSITIONS // 1024
    assert ModelConfig.of(source_vocabulary=9, target_vocabulary=9, d_model=1024, heads=2, max_length=most)
    with pytest.raises(ConfigError, match=r"choose a smaller max_length"):
        ModelConfig.of(source_vocabulary=9, target_vocabulary=9, d_model=1024, heads=2, max_length=most + 1)
