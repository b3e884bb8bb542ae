"""Dates, splits, batches, and the recipes of the presets."""

from __future__ import annotations

from datetime import date

import numpy as np
import pytest

from seq2see.config import PRESETS
from seq2see.data.batching import Batches, Ragged
from seq2see.data.pairs import hold_out
from seq2see.data.plan import _training, choose
from seq2see.errors import InputError
from seq2see.tasks import dates

#: What is chosen for pairs by their kind, number and device, on both sides of each bound: the preset, the size of the
#: vocabulary, dropout, and the settings of the training that differ from the preset.
CHOSEN = """
words 2499 cpu: words None 0.3 batch=512 warmup=244 r_drop=0.0 guided=0.5 chained=1.0 muon=7.5 steps=2449 solved=2 saved=61 scored=244
words 2499 cuda: words None 0.3 guided=0.5 chained=1.0 muon=7.5 guided_memory=0.5 steps=4000 solved=2 saved=100 scored=400
words 2500 cpu: words None 0.3 batch=1024 warmup=111 r_drop=0.0 guided=0.5 chained=1.0 muon=7.5 steps=1111 solved=2 saved=27 scored=111
words 2500 cuda: lexicon None 0.3 batch=1536 warmup=383 r_drop=5.0 guided=0.5 chained=1.0 guided_memory=0.5 steps=3833 solved=2 saved=95 scored=383
words 7999 cuda: lexicon None 0.3 batch=1536 warmup=566 r_drop=5.0 guided=0.5 chained=1.0 guided_memory=0.5 steps=5666 solved=2 saved=141 scored=566
words 8000 cuda: lexicon None 0.3 warmup=566 r_drop=5.0 guided=0.5 chained=1.0 guided_memory=0.5 steps=5666 solved=2 saved=141 scored=566
words 19999 cuda: lexicon None 0.3 warmup=966 r_drop=5.0 guided=0.5 chained=1.0 guided_memory=0.5 steps=9666 solved=2 saved=241 scored=966
words 20000 cuda: lexicon None 0.2 warmup=966 guided=0.5 chained=1.0 steps=9666 solved=2 saved=241 scored=966
words 99999 cpu: words None 0.3 batch=1024 warmup=888 r_drop=0.0 guided=0.5 chained=1.0 muon=7.5 steps=8888 solved=2 saved=222 scored=888
words 99999 cuda: lexicon None 0.2 guided=0.5 chained=1.0 steps=30000 solved=2 saved=750 scored=3000
words 100000 cpu: small None None steps=2000 batch=4096 cosine warmup=200 rate=0.001 saved=100 scored=100 on=200
words 100000 cuda: deep None 0.2 warmup=219 steps=2197 saved=36 scored=109 on=200
words 299999 cuda: deep None 0.2 warmup=659 steps=6591 saved=109 scored=329 on=200
words 300000 cpu: base None None steps=2000 batch=16384 cosine warmup=200 rate=0.0007 saved=100 scored=100 on=200
words 9000000 cuda: base None None steps=24719 batch=16384 cosine warmup=1235 rate=0.0007 saved=1235 scored=1235 on=200
sentences 9999 cpu: tiny 2000 None steps=1200 saved=100 scored=100
sentences 10000 cpu: small 8000 0.3 steps=2000 batch=4096 cosine warmup=200 rate=0.001 saved=100 scored=100 on=200
sentences 10000 cuda: medium 8000 0.3 steps=5000 saved=250 scored=500 on=200 bpe_dropout=0.1
sentences 99999 cuda: medium 8000 0.3 steps=5000 saved=250 scored=500 on=200 bpe_dropout=0.1
sentences 100000 cuda: medium 8000 0.2 steps=5000 saved=250 scored=500 on=200 bpe_dropout=0.1
sentences 299999 cpu: small 8000 None steps=7141 batch=4096 cosine warmup=357 rate=0.001 saved=357 scored=357 on=200
sentences 299999 cuda: medium 8000 0.2 steps=5950 saved=297 scored=595 on=200 bpe_dropout=0.1
sentences 300000 cpu: base 32000 None steps=2000 batch=16384 cosine warmup=200 rate=0.0007 saved=100 scored=100 on=200
sentences 3000000 cuda: base 32000 None steps=17852 batch=16384 cosine warmup=892 rate=0.0007 saved=892 scored=892 on=200
long 9999 cpu: tiny None None steps=1200 saved=100 scored=100
long 10000 cpu: small None 0.3 steps=4394 batch=4096 cosine warmup=219 rate=0.001 saved=219 scored=219 on=200
long 10000 cuda: small None 0.3 steps=8789 batch=8192 cosine warmup=439 rate=0.001 saved=439 scored=439 on=200
long 299999 cpu: small None None steps=100000 batch=4096 cosine warmup=5000 rate=0.001 saved=5000 scored=5000 on=200
long 3000000 cpu: base None None steps=100000 batch=16384 cosine warmup=5000 rate=0.0007 saved=5000 scored=5000 on=200
"""  # noqa: E501


SHORT = {
    "checkpoint_every": "saved",
    "evaluate_every": "scored",
    "evaluate_on": "on",
    "learning_rate": "rate",
    "batch_tokens": "batch",
    "schedule=": "",
}


@pytest.mark.parametrize("line", CHOSEN.strip().split("\n"))
def test_the_choice_for_pairs_is_frozen(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever changes this table changes what `train FILE` does for people who give no options."""
    monkeypatch.setattr("seq2see.data.plan.instructions", frozenset)  # a CPU without 16 bits
    kind, count, device = line.partition(":")[0].split()
    pair = {
        "words": ("abc", "cba"),
        "sentences": ("The cat is red today.", "Le chat est rouge ce jour."),
        "long": ("x1" * 50, "y2" * 60),
    }[kind]
    found = choose([pair] * 40, count=int(count), device=device)
    assert found.kinds == (("bpe", "bpe") if kind == "sentences" else ("characters", "characters"))
    assert found.shared == found.prose == (kind == "sentences")
    what = {"words": "short texts", "long": "long texts"}.get(kind, kind)
    assert found.why == f"{int(count):,} pairs of {what}"
    own = {
        name: value
        for name, value in found.training.items()
        if PRESETS[found.preset].training.get(name) != value
    }
    fast = {name: own.pop(name, None) for name in ("layout", "precision")}
    assert [*fast.values()] == (["packed", "bfloat16"] if device == "cuda" else [None, None])
    settings = " ".join(f"{name}={value}" for name, value in own.items())
    for name, short in SHORT.items():
        settings = settings.replace(name, short)
    assert (
        f"{kind} {count} {device}: {found.preset} {found.vocabulary} {found.model.get('dropout')} {settings}"
        == line
    )


def test_few_words_get_a_smaller_model_on_a_cpu() -> None:
    shapes = [
        choose([("abc", "cba")] * 40, count=count, device=device).model
        for count, device in ((2499, "cpu"), (2500, "cpu"), (2499, "cuda"))
    ]
    assert [(shape["d_model"], shape["d_ff"]) for shape in shapes] == [(96, 384), (128, 512), (128, 512)]


def test_a_pupil_trains_longer_with_less_r_drop() -> None:
    plan = choose([("abc", "cba")] * 40, count=3000, device="cuda")
    pupil = plan.for_pupil()
    assert (plan.training["r_drop"], pupil.training["r_drop"]) == (5.0, 1.0)
    for name in ("steps", "checkpoint_every", "evaluate_every"):
        assert pupil.training[name] == plan.training[name] * 3 // 2
    many = choose([("abc", "cba")] * 40, count=120_000, device="cuda")
    assert many.preset == "deep"
    for name in ("steps", "checkpoint_every", "evaluate_every"):
        assert many.for_pupil().training[name] == many.training[name] * 8 // 3
    assert many.for_pupil().training["r_drop"] == 1.0
    sentences = choose([("The cat is red today.", "Le chat est rouge ce jour.")] * 40)
    assert sentences.for_pupil() == sentences


def test_an_ensemble_of_deep_models_trains_longer_without_r_drop() -> None:
    deep, few = (choose([("abc", "cba")] * 40, count=count, device="cuda") for count in (120_000, 3000))
    found = deep.for_ensemble(5).training
    assert (found["r_drop"], found["layout"]) == (0.0, "packed")
    for name in ("steps", "checkpoint_every", "evaluate_every"):
        assert found[name] == deep.training[name] * 6 // 5
    assert "backward" not in deep.for_ensemble(5).model
    assert few.for_ensemble(5).training == few.training


def test_half_of_an_ensemble_for_words_reads_from_right_to_left() -> None:
    words = [("abc", "cba")] * 40
    for device in ("cpu", "cuda"):
        for count in (300, 3000, 19_999):
            plan = choose(words, count=count, device=device)
            assert [plan.for_ensemble(size).model["backward"] for size in (2, 3, 5)] == [1, 1, 2]
    others = [
        choose(words, count=20_000),
        choose([("walk <V> <PST>", "walked")] * 40, tokenizer=("features", "characters")),
        choose([("The cat is red today.", "Le chat est rouge ce jour.")] * 40),
    ]
    assert [plan.for_ensemble(5) for plan in others] == others


def test_dates_in_words() -> None:
    assert dates.in_words(date(1845, 1, 5)) == "January 5, 1845"
    assert dates.in_words(date(9999, 12, 31)) == "December 31, 9999"


def test_there_are_3287182_dates() -> None:
    ordinals = dates.all_ordinals()
    assert len(ordinals) == 3_287_182
    assert dates.pairs_of(ordinals[[0, -1]]) == [
        ("1000-01-01", "January 1, 1000"),
        ("9999-12-31", "December 31, 9999"),
    ]


def test_splits_are_disjoint_seeded_and_within_years() -> None:
    parts = dates.splits(500, 100, 100, seed=3, years=(1990, 1999))
    everything = [pair for part in parts for pair in part]
    assert [len(part) for part in parts] == [500, 100, 100]
    assert len(set(everything)) == 700
    assert all("1990" <= source[:4] <= "1999" for source, _ in everything)
    assert parts == dates.splits(500, 100, 100, seed=3, years=(1990, 1999))
    assert parts != dates.splits(500, 100, 100, seed=4, years=(1990, 1999))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("2023-02-30", "February 2023 has 28 days"),
        ("1900-02-29", "February 1900 has 28 days"),
        ("2023-13-01", "months go from 01 to 12"),
        ("2023-04-00", "April 2023 has 30 days"),
        ("1845/01/05", "'/' between its parts"),
        ("845-01-05", "3-2-2 digits"),
        ("12845-01-05", "5-2-2 digits"),
        ("0999-01-05", "the year 999"),
        ("", "The line is empty"),
        ("   ", "The line is empty"),
        (" 1845-01-05", "white space around"),
        ("1845-01-05\n", "white space around"),
        ("١٨٤٥-٠١-٠٥", r"digit ١ \(U\+0661\)"),
        ("1845-01-0²", r"digit ² \(U\+00B2\)"),
        ("9" * 10_000, "too long"),
        ("9" * 41, "too long"),
        ("9" * 40, "not of the form"),
        ("yesterday", "not of the form YYYY-MM-DD"),
        ("1845-01-05-06", "not of the form"),
    ],
)
def test_bad_dates_get_one_clear_sentence(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why) as caught:
        dates.check(text)
    message = str(caught.value)
    assert "such as 1845-01-05" in message
    assert "\n" not in message
    assert len(message) < 200


def test_good_dates_pass() -> None:
    for ordinal in dates.all_ordinals()[::9973]:
        dates.check(date.fromordinal(int(ordinal)).isoformat())
    for text in ("2000-02-29", "1000-01-01", "9999-12-31"):
        dates.check(text)


def test_hold_out_splits_by_source() -> None:
    pairs = [(f"s{n % 50}", f"t{n}") for n in range(200)]
    train, held = hold_out(pairs)
    assert sorted(train + held) == sorted(pairs)
    assert held
    assert not {source for source, _ in train} & {source for source, _ in held}


def ragged(lengths: list[int]) -> Ragged:
    return Ragged.of([[10 * row + column for column in range(length)] for row, length in enumerate(lengths)])


def test_ragged_pads_any_rows() -> None:
    values, real = ragged([2, 0, 3]).padded(np.array([2, 0]), pad=-1)
    assert values.tolist() == [[20, 21, 22], [0, 1, -1]]
    assert real.tolist() == [[True] * 3, [True, True, False]]


@pytest.mark.parametrize("sorted_by_length", [True, False])
def test_an_epoch_holds_every_pair_once_within_the_budget(sorted_by_length: bool) -> None:
    random = np.random.default_rng(0)
    lengths = random.integers(2, 40 if sorted_by_length else 3, 500).tolist()
    source, target = ragged(lengths), ragged(lengths[::-1])
    batches = Batches(source, target, (0, 0), batch_tokens=400, seed=1)
    assert batches.sorted == sorted_by_length
    for epoch in range(2):
        rows = batches.order(epoch)
        assert sorted(np.concatenate(rows).tolist()) == list(range(500))
        assert len(rows) == batches.per_epoch
        for chosen in rows:
            assert len(chosen) * batches.longest[chosen].max() <= 400


def test_batches_depend_on_seed_and_step_alone() -> None:
    def make(seed: int) -> Batches:
        return Batches(ragged([5] * 100), ragged([5] * 100), (0, 0), batch_tokens=50, seed=seed)

    forward = [make(1).at(step).source for step in range(25)]
    one = make(1)
    for step in (24, 3, 11, 3):  # any order, across epochs
        assert (one.at(step).source == forward[step]).all()
    assert any((make(2).at(step).source != forward[step]).any() for step in range(10))
    assert any((forward[step] != forward[step + 10]).any() for step in range(10))  # epochs differ


def test_targets_are_shifted_by_one_and_counted() -> None:
    batch = Batches(Ragged.of([[1, 2]]), Ragged.of([[5, 6, 7, 8]]), (0, 0), 100, 0).everything()
    assert batch.target_in.tolist() == [[5, 6, 7]]
    assert batch.target_out.tolist() == [[6, 7, 8]]
    assert batch.tokens == 3
    assert batch.source_mask.keys is None


def test_a_pair_longer_than_the_budget_is_a_batch_of_its_own() -> None:
    batches = Batches(ragged([100, 3, 3]), ragged([3, 3, 3]), (0, 0), batch_tokens=10, seed=0)
    assert sorted(len(rows) for rows in batches.order(0)) == [1, 2]


def of_words(batch: int, warmup: int, **others: float) -> dict[str, object]:
    return {"guided": 0.5, "batch_tokens": batch, "warmup": warmup, "solved": 2, **others}


def cosine(batch: int, warmup: int, rate: float = 0.001) -> dict[str, object]:
    return {
        "schedule": "cosine",
        "evaluate_on": 200,
        "batch_tokens": batch,
        "warmup": warmup,
        "learning_rate": rate,
    }


@pytest.mark.parametrize(("preset", "kind", "count", "device", "every", "others"), [
    ("tiny", "characters", 9_999, "cpu", (1200, 100, 100), {}),
    ("tiny", "characters", 10_000, "cpu", (2343, 234, 234), {}),
    ("tiny", "characters", 1_000_000, "cpu", (10_000, 1000, 1000), {}),
    ("medium", "bpe", 10_000, "cpu", (5000, 250, 500), {"evaluate_on": 200, "bpe_dropout": 0.1}),
    ("medium", "unigram", 10_000_000, "cpu", (244_140, 12_207, 24_414), {"evaluate_on": 200}),
    ("deep", "characters", 10_000, "cpu", (2343, 39, 117), {"warmup": 234, "evaluate_on": 200}),
    ("deep", "characters", 1_000_000, "cpu", (100_000, 1666, 5000), {"warmup": 1000, "evaluate_on": 200}),
    ("small", "bpe", 100_000, "cpu", (2929, 146, 146), cosine(4096, 200)),
    ("small", "characters", 1000, "cpu", (2000, 100, 100), cosine(4096, 200)),
    ("small", "characters", 100_000, "cuda", (23_437, 1171, 1171), cosine(8192, 1171)),
    ("base", "bpe", 10_000_000, "cuda", (73_242, 3662, 3662), cosine(16_384, 3662, 0.0007)),
    ("words", "characters", 800, "cpu", (1600, 40, 160), of_words(512, 160, chained=1.0, r_drop=0.0, muon=7.5)),
    ("words", "characters", 3600, "cpu", (1600, 40, 160), of_words(1024, 160, chained=1.0, r_drop=0.0, muon=7.5)),
    ("words", "features", 10_000, "cpu", (4444, 111, 444),
     of_words(1024, 444, invented=0.5, r_drop=0.0, muon=7.5)),
    ("words", "characters", 800, "cuda", (4000, 100, 400),
     of_words(768, 400, chained=1.0, guided_memory=0.5, muon=7.5)),
    ("words", "characters", 30_000, "cpu", (8888, 222, 888),
     of_words(1024, 888, chained=1.0, r_drop=0.0, muon=7.5)),
    ("lexicon", "characters", 3000, "cuda", (4000, 100, 400),
     of_words(1536, 400, chained=1.0, guided_memory=0.5, r_drop=5.0)),
    ("lexicon", "characters", 20_000, "cuda", (9666, 241, 966), of_words(2048, 966, chained=1.0, r_drop=1.0)),
    ("lexicon", "features", 20_000, "cuda", (9666, 241, 966), of_words(2048, 966, invented=0.5, r_drop=1.0)),
])  # fmt: skip
def test_a_preset_trains_by_the_recipe_that_was_measured(
    preset: str, kind: str, count: int, device: str, every: tuple[int, int, int], others: dict[str, object]
) -> None:
    """RESULTS.md has the measurements. ``every`` has the steps, and how often a training is saved and evaluated."""
    steps = dict(zip(("steps", "checkpoint_every", "evaluate_every"), every, strict=True))
    pairs = [("a" * 32, "b" * 20)] * 100
    assert _training(preset, pairs, (kind, kind), count, device) == steps | others
