"""The page as one file with its model inside: opened from disk, with the network off, it answers whatever is typed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

import seq2see
from seq2see.inspection.attribution import saliency
from seq2see.inspection.tables import array_of
from seq2see.inspection.trace import mute_head
from seq2see.page.live import live_page, why_not
from seq2see.seq2seq import Seq2Seq

Open = Callable[..., Page]
LONG = """
window.longest = 0;
new PerformanceObserver((list) => { for (const { duration } of list.getEntries()) window.longest = Math.max(window.longest, duration); })
  .observe({ type: "longtask", buffered: true });
"""


@pytest.fixture(scope="module")
def model() -> Seq2Seq:
    return seq2see.load("dates")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, model: Seq2Seq) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    pages = {
        "dates": live_page("dates", model, "1845-01-05"),
        "en-fr": live_page("en-fr", seq2see.load("en-fr"), "Where is the train station?"),
    }
    for name, text in pages.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in pages}


@pytest.fixture
def open_file(browser: Browser, files: dict[str, Path]) -> Iterator[Open]:
    """Open a file with the network off; nothing may be complained of."""
    faults: list[str] = []
    contexts = []

    def open_(name: str = "dates", view: str = "", **settings: Any) -> Page:
        context = browser.new_context(
            **{"viewport": {"width": 1280, "height": 900}, "offline": True, **settings}
        )
        contexts.append(context)
        context.add_init_script(LONG)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on(
            "console",
            lambda message: message.type in {"error", "warning"} and faults.append(message.text),
        )
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.goto(f"{files[name].as_uri()}#{view}")
        page.wait_for_selector("#answer:not(:empty)")
        page.wait_for_function("() => !document.querySelector('[data-waiting]')")
        return page

    yield open_
    for context in contexts:
        context.close()
    assert not faults


def number(text: str) -> float:
    return float(text.replace("−", "-").replace("∞", "inf"))


def answer(page: Page) -> Any:
    return expect(page.locator("#answer"))


def table(page: Page, title: str) -> np.ndarray:
    figure = page.locator("#head figure").filter(has=page.get_by_text(title, exact=True))
    figure.get_by_role("button", name=f"view {title} as table").click()
    cells = figure.locator("tbody").evaluate(
        "body => [...body.rows].map(row => [...row.querySelectorAll('td')].map(cell => cell.textContent))"
    )
    return np.array([[number(cell) for cell in row] for row in cells])


# --- answers -------------------------------------------------------------------------------------------


def test_the_files_are_small(files: dict[str, Path]) -> None:
    assert files["dates"].stat().st_size <= 400_000
    assert files["en-fr"].stat().st_size <= 35_000_000


def test_what_is_typed_is_answered_while_it_is_typed(open_file: Open, model: Seq2Seq) -> None:
    page = open_file(view="kind=cross&layer=1&head=2&step=4")
    answer(page).to_have_text("January 5, 1845")
    page.focus("#text")
    page.keyboard.press("Control+A")
    page.keyboard.type("2025-09-0")
    page.keyboard.press("3")  # no Enter
    answer(page).to_have_text("September 3, 2025")
    expect(page.locator("#error")).to_be_empty()
    trace = model.trace("2025-09-03")
    page.locator("#head").scroll_into_view_if_needed()
    for title, role in {"Q": "q", "K": "k", "Q·Kᵀ": "scores", "A": "weights", "V": "v", "Z = A·V": "z"}.items():
        value = array_of(trace, f"decoder.layers.1.cross_attention.{role}")
        expected = value[:, 2] if role in "qkvz" else value[2]
        np.testing.assert_allclose(table(page, title), expected, atol=6e-5, rtol=0.06, err_msg=role)
    page.evaluate("location.hash += '&pin=decoder.layers.0.feed_forward.hidden~-1~5~40'")
    expect(page.locator("#arithmetic .result")).to_have_count(3)
    said = number(page.locator("#arithmetic .result b").last.inner_text())
    assert said == pytest.approx(float(trace["decoder.layers.0.feed_forward.hidden"][5, 40]), abs=2e-6)
    page.locator("#saliency").scroll_into_view_if_needed()
    page.locator("#saliency summary").click()
    shares = page.locator("#saliency tbody").first.locator("td:nth-child(2)").all_inner_texts()
    found = [number(text.rstrip("%")) / (100 if "%" in text else 1) for text in shares]
    step = int(page.locator(".chip[aria-current]").get_attribute("data-step"))
    np.testing.assert_allclose(found, saliency(trace).source[step], atol=1e-3)


def test_heads_tokens_beams_and_another_text(open_file: Open, model: Seq2Seq) -> None:
    page = open_file()
    page.get_by_role("switch", name="cross layer 1, head 3").click()
    off = model.trace("1845-01-05", edit={"decoder.layers.1.cross_attention.z": mute_head(3)})
    answer(page).to_have_text(off.output)
    expect(page.locator("#versus")).to_contain_text("1 head off: January 5, 1845")  # stays in sight
    expect(page.locator("#versus")).to_contain_text(off.output)
    page.go_back()  # undoes it
    answer(page).to_have_text("January 5, 1845")
    page.locator("#probabilities li button").nth(1).click()
    expect(page.locator("#remark")).to_contain_text("1 token forced")
    page.get_by_role("button", name="undo").click()
    answer(page).to_have_text("January 5, 1845")
    page.locator("#beams").scroll_into_view_if_needed()  # there is a tree from the beginning
    expect(page.locator("#beams .node.answer")).to_have_count(16)
    page.fill("#against", "1945-01-05")
    page.keyboard.press("Enter")
    expect(page.locator("#difference .said").nth(1)).to_have_text("January 5, 1945")


def test_what_is_refused_can_be_shown_anyway(open_file: Open) -> None:
    page = open_file()
    page.fill("#text", "2000-02-30")
    page.keyboard.press("Enter")
    expect(page.locator("#error")).to_contain_text("February 2000 has 29 days")
    page.get_by_role("button", name="Show the model anyway").click()
    answer(page).to_have_text(re.compile("^[A-Z][a-z]+ .*2000"))
    expect(page.locator("#error")).to_be_empty()
    page.fill("#text", "über")
    page.keyboard.press("Enter")
    expect(page.locator("#error")).to_contain_text("is not of the form")
    assert page.get_by_role("button", name="Show the model anyway").count() == 0


def test_english_to_french_from_disk(open_file: Open) -> None:
    page = open_file("en-fr", "kind=cross&layer=1&head=7&step=3")
    answer(page).to_have_text("Où est la gare ?")
    model, text = seq2see.load("en-fr"), "She doesn't want to go home."
    page.fill("#text", text)
    page.keyboard.press("Enter")
    trace = model.trace(text)
    expect(page.locator("#answer")).to_have_text(trace.output, timeout=20_000)
    page.locator("#head").scroll_into_view_if_needed()
    page.wait_for_selector("#head .stage")
    weights = array_of(trace, "decoder.layers.1.cross_attention.weights")[7]
    np.testing.assert_allclose(table(page, "A"), weights, atol=6e-5, rtol=0.06)
    page.evaluate("location.hash += '&pin=encoder.layers.3.feed_forward.hidden~-1~2~700'")
    expect(page.locator("#arithmetic .result")).to_have_count(3)
    said = number(page.locator("#arithmetic .result b").last.inner_text())
    assert said == pytest.approx(float(trace["encoder.layers.3.feed_forward.hidden"][2, 700]), abs=2e-5)


def test_a_model_that_cannot_run_in_the_page_says_why() -> None:
    from seq2see.folder import Tokenizers
    from seq2see.text.tokenizer import Tokenizer

    assert why_not(seq2see.load("en-fr").tokenizers) is None
    unigram = Tokenizer.unigram(["the cat sees the small cat", "a dog"] * 9, 560)
    assert why_not(Tokenizers.one(unigram)) == "the page cannot cut text into unigram"


# --- what was mended -----------------------------------------------------------------------------------


def test_names_say_what_a_position_reads_and_writes(open_file: Open) -> None:
    page = open_file(view="kind=cross&layer=1&head=3&step=11")
    plane = page.locator('#cross .plane[data-name="decoder.layers.1.cross_attention.weights"][data-head="3"]')
    plane.hover(position={"x": 30, "y": 3})
    said = page.locator("#arithmetic").inner_text()
    assert "reads ‘<sos>’, writes ‘J’ ×" in said
    assert "null" not in said
    rows = page.locator("#head .rows").last.locator("span").all_inner_texts()
    assert rows[:4] == ["<sos> → J", "J → a", "a₂ → n", "n → u"]
    keys = page.locator("#head .arcs .key").all_text_contents()
    assert len(keys) == len(set(keys))  # a token that occurs again carries its position


def test_long_sentences_stay_legible(open_file: Open) -> None:
    text = " ".join(["The old man who lived near the river sold bread and milk to the children."] * 4)
    page = open_file("en-fr", "kind=cross&layer=0&head=0&step=40")
    page.evaluate("window.longest = 0")
    page.fill("#text", text)
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelectorAll('.chip').length > 40", timeout=30_000)
    page.wait_for_function("() => !document.querySelector('[data-waiting]')", timeout=20_000)
    tokens = page.locator("#tokens ol").first.locator("li").count()
    assert tokens > 60
    small = page.locator("#encoder .plane").first.bounding_box()
    assert small["width"] == pytest.approx(small["height"])
    assert small["width"] / tokens >= 2
    assert page.evaluate("document.documentElement.scrollHeight") < 22_000
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.locator(".chip").nth(40).click()
    page.wait_for_selector("#head .arcs .query.strong")
    strong, frame = (page.locator(place).bounding_box() for place in ("#head .arcs .query.strong", "#head .arcs"))
    assert frame["x"] <= strong["x"] <= frame["x"] + frame["width"]  # the arcs follow
    page.keyboard.press("Space")  # on the token that was clicked
    expect(page.locator("#play")).to_have_attribute("aria-label", "Pause")
    page.keyboard.press("Space")
    assert page.locator("#text").evaluate("text => text.scrollHeight <= text.clientHeight + 2")  # nothing is cut


def test_few_stops_of_the_tab_key(open_file: Open) -> None:
    page = open_file(view="kind=decoder&layer=1&head=2")
    stops = page.evaluate(
        "[...document.querySelectorAll('a, button, input, select, textarea, summary, [tabindex]')]"
        ".filter(e => e.tabIndex >= 0 && e.getClientRects().length).length"
    )
    assert stops < 115  # there were 259
    page.locator('[data-head="decoder.1.2"] .switch').focus()
    page.keyboard.press(".")
    expect(page.locator('[data-head="decoder.1.3"] .switch')).to_be_focused()


def test_on_a_telephone_the_pinned_cell_stays_in_sight(open_file: Open) -> None:
    page = open_file(viewport={"width": 390, "height": 844}, has_touch=True)
    page.locator("#contents summary").click()
    page.locator("#contents").get_by_role("button", name="Cross-attention", exact=True).click()
    expect(page.locator("#cross h2")).to_be_in_viewport()
    plane = page.locator("#cross .plane").last
    plane.scroll_into_view_if_needed()
    box = plane.bounding_box()
    plane.click(position={"x": box["width"] / 2, "y": box["height"] - 4})
    page.wait_for_function("() => document.querySelector('.mark.pinned:not([hidden])')")
    page.wait_for_timeout(100)
    mark = page.locator("#cross .mark.pinned:visible").bounding_box()
    assert mark["y"] + mark["height"] < page.locator("#arithmetic").bounding_box()["y"]
