"""The rules that choose a recipe: frozen as a golden file, without cliffs, and each with its evidence."""

from __future__ import annotations

import itertools
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from seq2see.config import PRESETS, TrainingConfig
from seq2see.data.batching import BLOCK
from seq2see.data.cuts import Cuts, cuts_of
from seq2see.data.recipe import FEW, RULES, Facts, Recipe, Rule, choose, config_of, in_minutes, seconds_in, with_length
from seq2see.errors import UserError
from seq2see.tokenizers.tokenizer import Tokenizer

#: What `train FILE` does for people who give no options: `python tests/test_recipe.py > tests/recipe.txt` writes it anew.
GOLDEN = Path(__file__).with_name("recipe.txt")
TOKENS = (2_000, 12_000, 24_999, 25_000, 60_000, 150_000, 299_999, 300_000, 700_000, 2_000_000, 10_000_000, 100_000_000)
KINDS = {
    "characters": {}, "features": {"features": True}, "sub-words": {"subwords": True, "recut": True},
    "ensemble of 5": {"members": 5}, "pupil": {"taught": True}, "sub-words on disk": {"subwords": True},
    "copied words": {"copied": 0.9},
}  # fmt: skip


def facts(tokens: int, device: str = "cpu", **others: object) -> Facts:
    return Facts(pairs=tokens // 10, tokens=tokens, longest=40, device=device, **others)  # type: ignore[arg-type]


def told(recipe: Recipe) -> str:
    fast = ("layout", "precision")  # these depend on the machine, too
    settings = {**recipe.model, **{name: value for name, value in recipe.training.items() if name not in fast}}
    return " ".join(f"{name}={value}" for name, value in settings.items())


def points() -> list[str]:
    return [
        f"{kind} {tokens} {device}: {told(choose(facts(tokens, device, **others)))}"
        for kind, others in KINDS.items()
        for tokens, device in itertools.product(TOKENS, ("cpu", "cuda"))
    ]


def test_the_choice_is_frozen() -> None:
    assert points() == GOLDEN.read_text().splitlines()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("kind", KINDS)
def test_more_data_never_get_less_work(kind: str, device: str) -> None:
    """Neither the model nor the batch nor the time becomes smaller, and dropout never grows."""
    recipes = [choose(facts(int(1000 * 1.1**n), device, **KINDS[kind])) for n in range(130)]
    for name in ("d_model", "d_ff", "encoder_layers", "decoder_layers"):
        sizes = [recipe.model[name] for recipe in recipes]
        assert kind.startswith("sub-words") or sizes == sorted(sizes), name
    for name in ("batch_tokens", "budget", "warmup"):
        sizes = [recipe.training[name] for recipe in recipes]
        assert sizes == sorted(sizes), name
    if kind != "features":
        dropouts = [recipe.model["dropout"] for recipe in recipes]
        assert dropouts == sorted(dropouts, reverse=True)
    batches = [recipe.training["batch_tokens"] for recipe in recipes]
    assert max(b / a for a, b in itertools.pairwise(batches)) < 1.3  # no cliff


def test_packed_batches_are_made_of_whole_blocks() -> None:
    for tokens in range(1000, 3_000_000, 7919):
        assert choose(facts(tokens, "cuda")).training["batch_tokens"] % BLOCK == 0


def test_every_rule_is_used_and_names_its_evidence() -> None:
    used = {
        reason.rule.name
        for tokens, device, others in itertools.product(TOKENS, ("cpu", "cuda"), KINDS.values())
        for reason in choose(facts(tokens, device, **others)).reasons
    }
    assert used == {rule.name for rule in RULES}
    root = Path(__file__).parents[1]
    for rule in RULES:
        name = rule.evidence.partition(":")[0]
        assert not name.endswith(".md") or (root / name).is_file(), f"{rule.name}: there is no {name}"


def test_a_recipe_says_why_and_where_nobody_measured() -> None:
    recipe = choose(facts(50_000_000, "cuda", subwords=True))
    assert "not measured for so many tokens" in str(recipe)
    known = choose(facts(50_000))
    assert "not measured" not in str(known)
    assert {reason.setting for reason in known.reasons} >= {"model.dropout", "training.batch_tokens"}
    assert all(reason.told()["measured"] for reason in known.reasons)


def test_another_rule_overrules() -> None:
    mine = Rule("mine", lambda facts: {"model.dropout": 0.4}, "my notes", lambda facts: facts.tokens < FEW)
    assert choose(facts(5000), rules=(*RULES, mine)).model["dropout"] == 0.4
    assert choose(facts(50_000), rules=(*RULES, mine)).model["dropout"] == 0.3


def test_facts_count_the_longer_side_of_each_pair() -> None:
    found = Facts.of([np.array([3, 9]), np.array([5, 2])], Cuts(("features", "characters"), False, None, ""))
    assert (found.pairs, found.tokens, found.longest, found.features, found.subwords) == (2, 14, 9, True, False)


def test_only_bpe_in_memory_can_be_cut_anew() -> None:
    lengths = [np.array([9]), np.array([9])]
    kinds = (("bpe", "bpe"), ("unigram", "unigram"), ("bpe", "characters"))
    assert [Facts.of(lengths, Cuts(one, False, None, "")).recut for one in kinds] == [True, False, False]
    assert not Facts.of(lengths, Cuts(("bpe", "bpe"), True, None, ""), on_disk=True).recut


@pytest.mark.parametrize(("kind", "learned"), [
    ("characters", False), ("symbols:-", False), ("features", False), ("bytes", False), ("bpe", True), ("words", True),
    ("sentencepiece bpe", True), ("list", True),
])  # fmt: skip
def test_imported_tokenizers_cut_into_sub_words(kind: str, learned: bool) -> None:
    cuts = Cuts((kind, kind), False, None, "")
    assert (cuts.learned, Facts.of([np.array([9])] * 2, cuts).subwords) == (learned, learned)


def test_a_preset_is_taken_as_it_is() -> None:
    recipe = choose(facts(5000), "document")
    assert recipe.model == PRESETS["document"].model
    assert str(recipe).startswith("preset document, for 500 pairs")
    size = config_of(recipe, (Tokenizer.characters(),) * 2, {"d_ff": 32}, {"steps": 7})
    assert (size.model.d_ff, size.training.steps, size.training.schedule) == (32, 7, "cosine")


def test_steps_and_a_budget_set_the_length() -> None:
    chosen = choose(facts(5000)).training
    watched = TrainingConfig.of(**with_length(chosen, {}))
    assert (watched.schedule, watched.budget) == ("watched", 900.0)
    exact = TrainingConfig.of(**with_length(chosen, {"steps": 50}))
    assert (exact.schedule, exact.steps, exact.warmup, exact.evaluate_every, exact.budget) == ("cosine", 50, 5, 5, None)
    assert with_length(chosen, {"steps": 50, "warmup": 9})["warmup"] == 9
    dates = PRESETS["document"].training
    timed = TrainingConfig.of(**with_length(dates, {"budget": 60.0}))
    assert (timed.schedule, timed.budget, timed.steps) == ("watched", 60.0, TrainingConfig().steps)
    assert with_length(dates, {"steps": 50}) == {**dates, "steps": 50}


@pytest.mark.parametrize(("written", "seconds"), [("90", 90), ("90s", 90), ("30m", 1800), ("1.5h", 5400), (45, 45)])
def test_a_time_is_read(written: str, seconds: float) -> None:
    assert seconds_in(written) == seconds
    assert seconds_in(in_minutes(seconds)) == pytest.approx(seconds, abs=30)


@pytest.mark.parametrize("written", ["", "soon", "1d", "-5", "1h30m"])
def test_what_is_no_time_is_refused(written: str) -> None:
    with pytest.raises(UserError, match="a time was expected, such as 90s, 30m or 1h"):
        seconds_in(written)


SENTENCES = [(f"the small cat sees {n} dogs today", f"le petit chat voit {n} chiens ce jour") for n in range(60)]


@pytest.mark.parametrize(("pairs", "kinds"), [
    (SENTENCES, ("bpe", "bpe")),
    ([(source, f"count(cat, {n}) >= 3") for n, (source, _) in enumerate(SENTENCES)], ("bpe", "bpe")),
    ([(source, "tag") for source, _ in SENTENCES], ("characters", "characters")),
    ([(f"今天我们在学校里学习数学和语文{n}", target) for n, (_, target) in enumerate(SENTENCES)], ("bpe", "bpe")),
    ([("walk twice and look left then run", "WALK WALK LOOK LEFT RUN")] * 60, ("symbols", "symbols")),
    ([(f"CC(=O)OC{n}=CC=C", f"C{n}CCO") for n in range(60)], ("characters", "characters")),
    ([("Bill O. Grant", "Grant, Bill O.")] * 9 + [(f"Ann J{n}", f"J{n}, Ann") for n in range(60)],
     ("characters", "characters")),
    ([(f"kat{n}", f"k a t {n}") for n in range(60)], ("characters", "characters")),
])  # fmt: skip
def test_the_texts_choose_how_they_are_cut(pairs: list[tuple[str, str]], kinds: tuple[str, str]) -> None:
    found = cuts_of(pairs)
    assert found.kinds == kinds
    assert found.shared == (kinds == ("bpe", "bpe"))


def test_an_asked_tokenizer_is_taken() -> None:
    assert cuts_of(SENTENCES, "characters").kinds == ("characters", "characters")
    assert replace(cuts_of(SENTENCES, "bpe,bpe")).shared is False


if __name__ == "__main__":
    sys.stdout.write("\n".join(points()) + "\n")
