"""What a head does is measured once, in one way: the page, the lesson and the package say the same.

``python tests/test_habits.py`` measures the shipped date model anew.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Browser

import seq2see
from seq2see.inspection.habits import Habit, habits, some_dates
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


if __name__ == "__main__":
    HABITS.write_text(written(measured()), encoding="utf-8")
