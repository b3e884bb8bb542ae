"""What a head does is measured once, in one way: the page, the lesson and the package say the same.

``python tests/test_habits.py`` measures the shipped date model anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Browser

import seq2see
from seq2see.inspection.habits import Habit, habits, some_dates
from seq2see.inspection.tables import ATTENTIONS
from seq2see.page.describe import HABITS
from seq2see.page.live import live_page


def measured() -> dict[str, Habit]:
    torch.set_num_threads(1)
    model = seq2see.load("dates")
    found = habits(model.trace(date) for date in some_dates())
    return {".".join(map(str, key)): habit for key, habit in found.items()}


def written(found: dict[str, Habit]) -> str:
    lines = ",\n".join(
        f'  "{key}": {json.dumps([one.name, round(one.share, 4)])}' for key, one in found.items()
    )
    return f"{{\n{lines}\n}}\n"


@pytest.mark.heavy
def test_the_page_says_what_the_package_measures(browser: Browser, tmp_path: Path) -> None:
    found = measured()
    assert HABITS.read_text(encoding="utf-8") == written(found)
    page = browser.new_page(offline=True)
    path = tmp_path / "dates.html"
    path.write_text(live_page("dates", seq2see.load("dates"), "1845-01-05"), encoding="utf-8")
    page.goto(path.as_uri())
    page.wait_for_function("() => document.querySelectorAll('.card').length === 24")
    labels = {key: page.locator(f'.card[data-head="{key}"] .label').text_content() for key in found}
    assert labels == {key: str(one) for key, one in found.items()}
    # The page measures the same itself, over the same dates.
    page.get_by_role("button", name="Read 100 texts").click()
    page.wait_for_function(
        "() => document.querySelector('#ranking .progress').textContent.includes('over 100 texts')"
    )
    again = {key: page.locator(f'.card[data-head="{key}"] .label').text_content() for key in found}
    assert again == labels
    page.close()


def test_dates_that_measure_heads_are_spread() -> None:
    dates = some_dates()
    assert len(set(dates)) == 100
    assert all(first < second for first, second in pairwise(dates))
    assert {date[5:7] for date in dates} == {f"{month:02}" for month in range(1, 13)}


class Traced:
    """One head, whose row t has nine tenths of its attention at one place."""

    source_tokens = ("1", "8", "4", "-", "0", "5", "<eos>")
    target_tokens = ("<sos>", "J", "a", ",", " ", "8", "1")
    output_tokens = ("J", "a", ",", " ", "8", "1", "<eos>")

    def __init__(self, kind: str, at: Callable[[int], int]) -> None:
        self.path = f"{ATTENTIONS[kind].format('*')}.weights"
        self.weights = torch.zeros(1, 7, 7)
        for row in range(7):
            seen = row + 1 if kind == "decoder" else 7
            self.weights[0, row, :seen] += 0.1 / seen
            self.weights[0, row, at(row) % seen] += 0.9

    def match(self, path: str) -> list[str]:
        return ["found"] if path == self.path else []

    def __getitem__(self, name: str) -> torch.Tensor:
        return self.weights


@pytest.mark.parametrize(
    ("kind", "at", "habit"),
    [
        ("encoder", lambda t: t, "looks at itself, 91 %"),
        ("encoder", lambda t: max(t - 1, 0), "looks at the previous token, 91 %"),
        ("encoder", lambda t: max(t - 2, 0), "looks two back, 91 %"),
        ("encoder", lambda t: max(t - 3, 0), "looks three back, 91 %"),
        ("encoder", lambda t: min(t + 1, 6), "looks at the next token, 91 %"),
        ("encoder", lambda t: 0, "looks at the start, 91 %"),
        ("encoder", lambda t: 6, "looks at the end, 91 %"),
        ("encoder", lambda t: 3, "looks at signs, 91 %"),
        ("encoder", lambda t: 3 if t % 2 else 6, "looks at signs and ends, 93 %"),
        ("encoder", lambda t: t + (t % 3 - 1) * (0 < t < 6), "looks at what is near, 94 %"),
        ("encoder", lambda t: [2, 5, 1, 6, 3, 0, 4][t], "mixed"),
        ("decoder", lambda t: max(t - 1, 0), "looks at the previous token, 93 %"),
        ("decoder", lambda t: 0, "looks at the start, 92 %"),
        ("decoder", lambda t: max(t - t % 3, 0), "looks at signs, 71 %"),
        ("decoder", lambda t: 3 if t > 2 else 0, "looks at signs, 93 %"),
        ("cross", lambda t: [0, 0, 0, 0, 1, 0, 6][t], "copies, 91 %"),
        ("cross", lambda t: t, "aligns, 94 %"),
        ("cross", lambda t: 0, "looks at the start, 91 %"),
        ("cross", lambda t: 6, "looks at the end, 91 %"),
        ("cross", lambda t: 3, "looks at signs, 91 %"),
    ],
)
def test_a_head_is_named_after_what_it_does(kind: str, at: Callable[[int], int], habit: str) -> None:
    (found,) = habits([Traced(kind, at)]).values()  # type: ignore[list-item]
    assert str(found) == habit


if __name__ == "__main__":
    HABITS.write_text(written(measured()), encoding="utf-8")
