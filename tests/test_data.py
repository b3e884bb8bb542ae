"""Dates, splits and batches."""

from __future__ import annotations

from datetime import date

import numpy as np
import pytest

from seq2see.data.batching import Batches, Ragged
from seq2see.data.pairs import hold_out
from seq2see.errors import InputError
from seq2see.tasks import dates


def test_there_are_3287182_dates() -> None:
    ordinals = dates.all_ordinals()
    assert len(ordinals) == 3_287_182
    assert dates.pairs_of(ordinals[[0, -1]]) == [("1000-01-01", "January 1, 1000"), ("9999-12-31", "December 31, 9999")]


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


def test_a_pair_longer_than_the_budget_is_a_batch_of_its_own() -> None:
    batches = Batches(ragged([100, 3, 3]), ragged([3, 3, 3]), (0, 0), batch_tokens=10, seed=0)
    assert sorted(len(rows) for rows in batches.order(0)) == [1, 2]


def test_splits_are_disjoint_seeded_and_within_years() -> None:
    parts = dates.splits(500, 100, 100, seed=3, years=(1990, 1999))
    everything = [pair for part in parts for pair in part]
    assert [len(part) for part in parts] == [500, 100, 100]
    assert len(set(everything)) == 700
    assert all("1990" <= source[:4] <= "1999" for source, _ in everything)
    assert parts == dates.splits(500, 100, 100, seed=3, years=(1990, 1999))
    assert parts != dates.splits(500, 100, 100, seed=4, years=(1990, 1999))


def test_targets_are_shifted_by_one_and_counted() -> None:
    batch = Batches(Ragged.of([[1, 2]]), Ragged.of([[5, 6, 7, 8]]), (0, 0), 100, 0).everything()
    assert batch.target_in.tolist() == [[5, 6, 7]]
    assert batch.target_out.tolist() == [[6, 7, 8]]
    assert batch.tokens == 3
    assert batch.source_mask.keys is None


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
