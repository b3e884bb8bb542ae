"""Settings that check themselves."""

from __future__ import annotations

import shutil
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

import pytest

import seq2see
from seq2see.config import (
    LARGEST_POSITIONS,
    PRESETS,
    Config,
    DecodingConfig,
    ModelConfig,
    Schema,
    TrainingConfig,
    parse_overrides,
)
from seq2see.errors import ConfigError
from seq2see.storage.folder import SHIPPED

#: Each setting, its default and its bounds.
DEFAULTS = {
    "model": """
        source_vocabulary 37000 [4, 16777216]; target_vocabulary 37000 [4, 16777216]; members 1 [1, 64];
        backward 0 [0, 63];
        d_model 512 [1, 65536]; heads 8 [1, 4096]; d_k None [1, 65536]; d_v None [1, 65536]; d_ff 2048 [1, 1048576];
        encoder_layers 6 [1, 1024]; decoder_layers 6 [1, 1024]; dropout 0.1 [0.0, 0.9]; norm 'post';
        activation 'relu'; positions 'paper'; max_length 1024 [2, 1048576]; share_embeddings True; share_output True;
        scale_embeddings True; embedding_norm False; output_bias False
    """,
    "training": """
        steps 100000 [1, 1000000000]; budget None [1.0, …]; batch_tokens 25000 [8, 1000000000]; layout 'padded';
        precision 'float32'; schedule 'paper'; warmup 4000 [1, 1000000000]; learning_rate None [0.0, …]; beta1 0.9
        [0.0, 0.99999]; beta2 0.98 [0.0, 0.99999]; epsilon 1e-09 [0.0, …]; muon 0.0 [0.0, 1000.0]; clip 1.0 [0.0, …];
        accumulate 1 [1, 1000000000]; bpe_dropout 0.0 [0.0, 0.9]; chained 0.0 [0.0, 4.0];
        invented 0.0 [0.0, 1.0]; swapped 0.0 [0.0, 1.0]; unseen 0.05 [0.0, 0.9];
        guided 0.0 [0.0, 10.0]; guided_memory 0.0 [0.0, 10.0]; r_drop 0.0
        [0.0, …]; taught 0.5 [0.0, 1.0]; label_smoothing 0.1 [0.0, 0.99]; average 5 [1, 1000000000]; patience 0 [0,
        1000000000]; checkpoint_every 1000 [1, 1000000000]; evaluate_every 1000 [1,
        1000000000]; evaluate_on 1000 [1, 1000000000]; seed 1 [0, 9223372036854775807]
    """,
    "decoding": """
        beam 1 [1, 100]; length_penalty 0.6 [-10.0, 10.0]; penalty 'paper'; length_ratio 1.0 [0.0, 1000.0];
        length_offset 50 [1, 1000000000]; max_length None [1, 1000000000]; stopping 'likeliest'; suppressed ();
        first_suppressed (); other_ends (); min_length 0 [0, 1000000000]; forced_end False; no_repeat 0 [0, 1000];
        no_repeat_source 0 [0, 1000]; repetition_penalty 1.0 [0.01, 100.0]; sentences False;
        repairs ()
    """,
}


@pytest.mark.parametrize("schema", [ModelConfig, TrainingConfig, DecodingConfig])
def test_defaults_and_bounds_are_frozen(schema: type[Schema]) -> None:
    """Whoever changes this list changes trainings and answers that people repeat."""

    def shown(setting: Field[Any]) -> str:
        low, high = setting.metadata["low"], setting.metadata["high"]
        bounds = "" if low is None else f" [{low}, {'…' if high is None else high}]"
        return f"{setting.name} {setting.default!r}{bounds}"

    assert "; ".join(map(shown, fields(schema))) == " ".join(DEFAULTS[schema.section].split())


def test_presets_are_what_they_say() -> None:
    """The description of a preset names its shape; the paper's are compared with its Table 3 elsewhere."""
    entry, model = PRESETS["document"], ModelConfig.of(**PRESETS["document"].model)
    shape = (f"d_model {model.d_model}, {model.heads} heads, d_ff {model.d_ff}, "
             f"{model.encoder_layers}+{model.decoder_layers} layers")  # fmt: skip
    assert entry.about.partition(": ")[2] == shape
    assert {name: (entry.model.get("norm"), entry.model.get("dropout"), *entry.training.values())
            for name, entry in PRESETS.items() if entry.training} == {
        "document": (None, 0.0, 2000, 5120, "cosine", 300, 0.005, 0.0, 200, 200),
        "D-smoothing-0.0": (None, None, 0.0),
        "D-smoothing-0.2": (None, None, 0.2),
    }  # fmt: skip


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
        "dates", ModelConfig.of(d_model=16, heads=4, positions="learned"), TrainingConfig.of(steps=7, epsilon=1e-9)
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


def test_a_setting_of_another_section_is_found_there() -> None:
    with pytest.raises(ConfigError, match=r"no setting training\.dropout\. .*another section: model\.dropout\."):
        TrainingConfig.of(dropout=0.1)
    with pytest.raises(ConfigError, match=r"no setting model\.beam\. .*another section: decoding\.beam\."):
        ModelConfig.of(beam=5)
    assert parse_overrides(["decoding.beam=5"])["decoding"] == {"beam": 5}


def test_a_setting_that_is_gone_is_read_over_in_a_file_and_unknown_elsewhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Model folders of earlier versions have training.tuned."""
    text = Config("pairs", ModelConfig(), TrainingConfig()).to_toml()
    old = text.replace("[training]\n", "[training]\ntuned = true  # gone\n")
    assert old != text
    assert Config.from_toml(old, "config.toml") == Config.from_toml(text, "config.toml")
    assert "tuned" not in Config.from_toml(old, "config.toml").to_toml()
    shutil.copytree(SHIPPED / "dates", tmp_path / "mine")
    settings = (tmp_path / "mine" / "config.toml").read_text(encoding="utf-8")
    settings = settings.replace("[training]\n", "[training]\ntuned = true\n")
    (tmp_path / "mine" / "config.toml").write_text(settings, encoding="utf-8")
    for _ in range(2):
        seq2see.load(tmp_path / "mine")
    assert [one.getMessage() for one in caplog.records if "earlier version" in one.getMessage()] == [
        "mine has settings of an earlier version, which are passed over; no answer changes: training.tuned."
    ]
    spliced = text.replace("[training]\n", "[training]\nspliced = 1.0\n")  # models of words before the guided head
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


def test_heads_are_free_of_d_model() -> None:
    config = ModelConfig.of(d_model=10, heads=3, d_k=7, d_v=2)
    assert (config.d_k, config.d_v) == (7, 2)
    assert ModelConfig().d_k == 64
