"""A teacher that grew from its pupil, the answers that it gives, and what the pupil learns from."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch

import seq2see
from benchmarks import distil
from seq2see.errors import UserError
from seq2see.storage.weights import weights_of


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with the layer norm first, trained for a few steps."""
    path = tmp_path_factory.mktemp("small") / "model"
    pairs = [(f"{a} {b}", f"{b}-{a}") for a in "abcdef" for b in "uvwxyz"]
    model = seq2see.fit(
        pairs, model={"norm": "pre", "d_model": 16, "heads": 2, "d_ff": 24, "encoder_layers": 2, "decoder_layers": 1},
        training={"steps": 60}, seed=1,
    )  # fmt: skip
    model.save(path)
    return path


def test_a_grown_model_computes_the_same(small: Path, tmp_path: Path) -> None:
    count = distil.grow(str(small), tmp_path / "grown", 5, 2, 40)
    before, after = seq2see.load(small), seq2see.load(tmp_path / "grown")
    shape = after.config.model
    assert (shape.encoder_layers, shape.decoder_layers, shape.d_ff) == (5, 2, 40)
    assert count == after.transformer.parameter_count() > before.transformer.parameter_count()
    pairs = [("a u", "u-a"), ("f z", "x-a")]
    for old, new in zip(before.log_probabilities(pairs), after.log_probabilities(pairs), strict=True):
        assert new == pytest.approx(old, abs=1e-4)


def test_a_model_cannot_grow_smaller_or_with_its_norm_last(small: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="at least as much"):
        distil.grow(str(small), tmp_path / "grown", 1, 1, 24)
    with pytest.raises(UserError, match="layer norm first"):
        distil.grow("dates", tmp_path / "grown", 9, 9, 999)
    assert not (tmp_path / "grown").exists()


def test_weights_are_averaged_by_their_share(small: Path, tmp_path: Path) -> None:
    other = seq2see.load(small)
    with torch.no_grad():
        for parameter in other.transformer.parameters():
            parameter += 1
    other.save(tmp_path / "other")
    distil.blend(str(tmp_path / "other"), str(small), tmp_path / "mean", 0.75)
    mean, old = (weights_of(seq2see.load(path).transformer) for path in (tmp_path / "mean", small))
    for part, tensor in old.items():
        torch.testing.assert_close(mean[part], tensor + 0.75)
    with pytest.raises(UserError, match="different shapes"):
        distil.blend("dates", str(small), tmp_path / "no", 0.5)


def test_the_nearest_answer_is_kept() -> None:
    texts = ["The cat sat.", "A cat was sitting there.", "The dog sat."]
    assert distil.nearest(texts, "A cat is sitting there.") == texts[1]
    assert distil.nearest(texts, "") == texts[0]


def test_every_source_gets_the_answer_of_the_model(small: Path) -> None:
    pairs = [("a u", ""), ("b v", ""), ("c w x", "")]
    found = [*distil.answers(str(small), pairs, "cpu", 60)]
    assert {source for source, _, _ in found} == {source for source, _ in pairs}
    model = seq2see.load(small, engine="torch")
    assert {source: answer for source, answer, _ in found} == {
        source: model.predict([source], beam=4, length_penalty=model.config.decoding.length_penalty)[0]
        for source, _ in pairs
    }
    assert not any(other for _, _, other in found)


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A folder of benchmarks.mixture."""
    rows = ["once\tune fois"] + ["twice\tdeux fois"] * 2 + ["phrase\tlocution"] * 10 + ["left\tà gauche"]
    (tmp_path / "train.tsv").write_text("\n".join([*rows, ""]), encoding="utf-8")
    (tmp_path / "news.tsv").write_text("news\tnouvelles\n", encoding="utf-8")
    for name in ("validation", "test"):
        (tmp_path / f"{name}.tsv").write_text(f"A {name}\tx\n", encoding="utf-8")
    return tmp_path


def test_what_a_pupil_learns_from(mixed: Path) -> None:
    taught = [("once", "une seule fois"), ("twice", "deux coups"), ("phrase", "phrase"), ("news", "les news")]
    taught += [("other", "autre"), ("long", "a b a b a b a b a b"), ("left", "")]
    assert Counter(distil.pupil(mixed, taught)) == {
        ("once", "une seule fois"): 1,
        ("twice", "deux coups"): 1, ("twice", "deux fois"): 1,
        ("phrase", "locution"): 10,  # a copy is not learned
        ("news", "les news"): 2, ("news", "nouvelles"): 3,
        ("other", "autre"): 1,
        ("left", "à gauche"): 1,  # without a sound answer
    }  # fmt: skip


def test_other_sources_are_new_and_not_held_out(mixed: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "train.tsv").write_text("once\teinmal\nanew\tneu\na TEST\tx\nA validation\tx\n", encoding="utf-8")
    (other / "news.tsv").write_text("more\tmehr\n", encoding="utf-8")
    own = {("once", "une fois"), ("twice", "deux fois"), ("phrase", "locution"), ("left", "à gauche")}
    own |= {("news", "nouvelles")}
    assert {*distil.sources(mixed, None, 0)} == own
    assert {*distil.sources(mixed, other, 99)} == own | {("anew", ""), ("more", "")}
    assert len(distil.sources(mixed, other, 1)) == len(own) + 1
