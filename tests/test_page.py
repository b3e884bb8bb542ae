"""The page in a real browser: what it shows is what the model computed, by mouse and by keyboard, offline."""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvicorn
from playwright.sync_api import Browser, Page, expect, sync_playwright

import seq2see
from seq2see.inspection.tables import array_of
from seq2see.inspection.trace import Trace
from seq2see.seq2seq import Seq2Seq
from seq2see.serve.app import create_app
from seq2see.serve.export import single_file
from seq2see.serve.server import listen

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run",
]  # fmt: skip
Open = Callable[..., Page]


@pytest.fixture(scope="module")
def model() -> Seq2Seq:
    return seq2see.load("dates")


@pytest.fixture(scope="module")
def trace(model: Seq2Seq) -> Trace:
    return model.trace("1845-01-05")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    listener = listen("127.0.0.1", 0)
    app = create_app({"dates": seq2see.load("dates")})  # its own: a model is traced by one thread at a time
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert path, "The page is tested in Chromium, which is not installed: apt-get install chromium."
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Browser, address: str) -> Iterator[Open]:
    """Open the page with eyes on it: no request may leave this machine, nothing may be complained of."""
    faults: list[str] = []
    contexts = []

    def open_(view: str = "", url: str | None = None, expected: str = "-", **settings: Any) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **settings})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(8000)

        def guard(route: Any) -> None:
            target = route.request.url
            if target.startswith((url or address, "data:")):
                route.continue_()
            else:
                faults.append(f"a request left the machine: {target}")
                route.abort()

        page.route("**/*", guard)

        def listen_to(message: Any) -> None:
            if message.type in {"error", "warning"} and expected not in message.text:
                faults.append(f"console: {message.text}")

        page.on("console", listen_to)
        page.on("pageerror", lambda error: faults.append(f"error: {error}"))
        page.goto(f"{url or address}#{view}")
        page.wait_for_selector("#probabilities .bar")
        return page

    yield open_
    for context in contexts:
        context.close()
    assert not faults


def answer(page: Page) -> Any:
    return expect(page.locator("#answer"))


def number(text: str) -> float:
    return float(text.replace("−", "-").replace("∞", "inf"))


def table(page: Page, title: str) -> np.ndarray:
    """Open a matrix of the head in detail as a table and read it."""
    figure = page.locator("#head figure").filter(has=page.get_by_text(title, exact=True))
    button = figure.get_by_role("button", name=f"view {title} as table")
    if button.get_attribute("aria-expanded") == "false":
        button.click()
    cells = figure.locator("tbody").evaluate(
        "body => [...body.rows].map(row => [...row.querySelectorAll('td')].map(cell => cell.textContent))"
    )
    return np.array([[number(cell) for cell in row] for row in cells])


def plane(page: Page, name: str, head: int, panel: str = "#head") -> Any:
    return page.locator(f'{panel} .plane[data-name="{name}"][data-head="{head}"]')


def arithmetic(page: Page) -> tuple[float, str]:
    """Return the number that the arithmetic ends in, and all of its text."""
    results = page.locator("#arithmetic .result b").all_inner_texts()
    return number(results[-1]), page.locator("#arithmetic").inner_text()


# --- answers -------------------------------------------------------------------------------------------


def test_type_a_date_and_read_the_answer(open_page: Open) -> None:
    page = open_page()
    answer(page).to_have_text("January 5, 1845")
    page.fill("#text", "2025-09-03")
    page.keyboard.press("Enter")
    answer(page).to_have_text("September 3, 2025")
    assert "text=2025-09-03" in page.url
    page.get_by_role("button", name="1426-08-10").click()
    answer(page).to_have_text("August 10, 1426")


def test_what_is_refused_is_explained_and_the_page_goes_on(open_page: Open) -> None:
    page = open_page(expected="status of 422")  # the browser itself notes a refusal in the console
    page.fill("#text", "2023-02-30")
    page.keyboard.press("Enter")
    expect(page.locator("#error")).to_contain_text("February 2023 has 28 days")
    page.fill("#text", "1845-01-06")
    page.keyboard.press("Enter")
    answer(page).to_have_text("January 6, 1845")
    expect(page.locator("#error")).to_be_empty()


def test_tokens_have_their_numbers(open_page: Open, trace: Trace) -> None:
    page = open_page()
    ids = page.locator("#tokens ol").nth(0).locator("small").all_inner_texts()
    assert [int(text) for text in ids] == trace.source_ids
    ids = page.locator("#tokens ol").nth(1).locator("small").all_inner_texts()
    assert [int(text) for text in ids] == trace.target_ids


# --- numbers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "layer", "head", "name"),
    [
        ("cross", 1, 2, "decoder.layers.1.cross_attention"),
        ("decoder", 0, 1, "decoder.layers.0.self_attention"),
    ],
)
def test_every_number_of_a_head_is_the_models(
    open_page: Open, trace: Trace, kind: str, layer: int, head: int, name: str
) -> None:
    page = open_page(f"kind={kind}&layer={layer}&head={head}&step=4")
    roles = {
        "Q": "q",
        "K": "k",
        "Q·Kᵀ": "scores",
        "Q·Kᵀ/√d_k": "scaled",
        "A": "weights",
        "V": "v",
        "Z = A·V": "z",
    }
    if kind == "decoder":
        roles["masked"] = "masked"
    for title, role in roles.items():
        value = array_of(trace, f"{name}.{role}")
        expected = value[:, head] if role in {"q", "k", "v", "z"} else value[head]
        np.testing.assert_allclose(table(page, title), expected, atol=6e-5, rtol=0.06, err_msg=role)


def test_the_picture_has_the_colours_of_the_numbers(open_page: Open, trace: Trace) -> None:
    page = open_page("kind=decoder&layer=0&head=1")
    name = "decoder.layers.0.self_attention.weights"
    pixels = plane(page, name, 1).evaluate(
        "e => { const c = e.querySelector('canvas');"
        " return [c.width, c.height, [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data]]; }"
    )
    image = np.array(pixels[2]).reshape(pixels[1], pixels[0], 4)
    weights = array_of(trace, name)[1]
    allowed = np.tril(np.ones_like(weights)) > 0
    assert (image[..., 3] == np.where(allowed, 255, 0)).all()  # masked cells are clear: the hatching shows
    order = np.argsort(weights[allowed])
    assert (np.diff(image[..., 0][allowed][order].astype(int)) <= 0).all()  # the more weight, the darker


CELLS = [
    ("decoder.layers.1.cross_attention.weights", 1, 7, 9),
    ("decoder.layers.0.self_attention.weights", 2, 9, 3),
    ("decoder.layers.0.self_attention.weights", 2, 3, 9),
    ("decoder.layers.0.self_attention.masked", 2, 3, 9),
    ("encoder.layers.1.self_attention.scores", 3, 2, 5),
    ("encoder.layers.0.self_attention.scaled", 0, 4, 4),
    ("encoder.layers.1.self_attention.q", 1, 6, 2),
    ("decoder.layers.1.cross_attention.k", 1, 6, 3),
    ("decoder.layers.1.cross_attention.q", 0, 6, 3),
    ("decoder.layers.1.self_attention.v", 3, 6, 0),
    ("decoder.layers.0.cross_attention.z", 1, 5, 2),
    ("encoder.embedding.scaled", -1, 3, 7),
    ("encoder.embedding.positions", -1, 3, 7),
    ("decoder.embedding.sum", -1, 2, 4),
]


def test_the_arithmetic_ends_in_the_cells_value(open_page: Open, trace: Trace) -> None:
    page = open_page()
    for name, head, row, col in CELLS:
        page.evaluate("pin => { location.hash = `pin=${pin}`; }", f"{name}~{head}~{row}~{col}")
        expect(page.locator("#arithmetic code")).to_contain_text(name)
        value = array_of(trace, name)
        if head >= 0:
            value = value[:, head] if name.rpartition(".")[2] in {"q", "k", "v", "z"} else value[head]
        ends, text = arithmetic(page)
        assert ends == pytest.approx(float(value[row, col]), abs=2e-6), name
        assert "head is off" not in text  # what is written out comes to what was recorded


def test_hover_previews_click_pins_escape_clears(open_page: Open, trace: Trace) -> None:
    page = open_page()
    name = "encoder.layers.0.self_attention.weights"
    map_ = plane(page, name, 1, "#encoder")
    box = map_.bounding_box()
    weights = array_of(trace, name)[1]
    n = len(weights)

    def at(row: int, col: int) -> dict[str, float]:
        return {"x": (col + 0.5) * box["width"] / n, "y": (row + 0.5) * box["height"] / n}

    map_.hover(position=at(5, 7))
    assert arithmetic(page)[0] == pytest.approx(float(weights[5, 7]), abs=2e-6)
    assert "pin=" not in page.url
    map_.click(position=at(6, 2))
    page.locator("h1").hover()
    assert arithmetic(page)[0] == pytest.approx(float(weights[6, 2]), abs=2e-6)
    assert f"pin={name}%7E1%7E6%7E2" in page.url
    expect(page.locator('[data-head="encoder.0.1"]')).to_have_class(re.compile("chosen"))
    page.keyboard.press("Escape")
    assert "Point at any cell" in page.locator("#arithmetic").inner_text()


# --- steps, alternatives, heads ------------------------------------------------------------------------


def test_the_scrubber_moves_everything(open_page: Open, trace: Trace) -> None:
    page = open_page()
    page.locator("#step").fill("8")
    expect(page.locator(".chip[aria-current]")).to_have_text("5")
    assert page.locator("#probabilities .so-far b").inner_text() == trace.output_tokens[8]
    page.keyboard.press("Escape")
    page.locator("h2").first.click()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".chip[aria-current]")).to_have_attribute("data-step", "9")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".chip[aria-current]")).to_have_attribute("data-step", "7")
    marks = page.locator("#cross .row-mark").evaluate_all("marks => marks.map(mark => mark.style.top)")
    assert set(marks) == {f"{100 * 7 / 16:.2f}%".rstrip("0")}
    page.keyboard.press("]")
    page.keyboard.press(".")
    expect(page.locator('[data-head="cross.1.1"]')).to_have_class(re.compile("chosen"))
    page.keyboard.press(",")
    page.keyboard.press("[")
    expect(page.locator('[data-head="cross.0.0"]')).to_have_class(re.compile("chosen"))
    page.keyboard.press("Space")
    expect(page.locator("#play")).to_have_attribute("aria-label", "Pause")
    expect(page.locator(".chip[aria-current]")).to_have_attribute("data-step", "9")
    page.keyboard.press("Space")
    expect(page.locator("#play")).to_have_attribute("aria-label", "Play")


def test_another_token_by_mouse_and_the_difference(open_page: Open) -> None:
    page = open_page()
    page.locator("#probabilities li button").nth(1).click()
    expect(page.locator("#remark")).to_contain_text("1 token forced")
    expect(page.locator("#difference .compare")).to_contain_text("January 5, 1845")
    forced = page.locator("#answer").inner_text()
    assert forced != "January 5, 1845"
    expect(page.locator("#difference .moved-heads li")).to_have_count(6)
    page.get_by_role("button", name="undo").click()
    answer(page).to_have_text("January 5, 1845")


def test_a_head_is_switched_off_and_on(open_page: Open, model: Seq2Seq) -> None:
    from seq2see.inspection.trace import mute_head

    page = open_page()
    page.get_by_role("switch", name="cross layer 1, head 3").click()
    expected = model.trace("1845-01-05", edit={"decoder.layers.1.cross_attention.z": mute_head(3)})
    answer(page).to_have_text(expected.output)
    log_p = number(page.locator("#difference tbody tr").nth(1).locator(".n").inner_text())
    assert log_p == pytest.approx(sum(step.log_probability for step in expected.steps()), abs=1e-3)
    page.get_by_role("switch", name="cross layer 1, head 3").click()
    answer(page).to_have_text("January 5, 1845")


def test_edit_and_compare(open_page: Open) -> None:
    page = open_page()
    page.fill("#against", "1945-01-05")
    page.keyboard.press("Enter")
    expect(page.locator("#difference .said").nth(1)).to_have_text("January 5, 1945")
    assert page.locator("#difference tr").nth(2).locator(".moved").all_inner_texts() == ["9"]


def test_by_keyboard_alone(open_page: Open, trace: Trace) -> None:
    """Type, reach a matrix, walk in it, pin, choose a token, switch a head: no mouse."""
    page = open_page()
    page.focus("#text")
    page.keyboard.press("Control+A")
    page.keyboard.type("1845-01-05")
    page.keyboard.press("Enter")
    for _ in range(60):  # every matrix and every switch is a stop of the Tab key
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.closest('#encoder .plane') !== null"):
            break
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    weights = array_of(trace, "encoder.layers.0.self_attention.weights")
    said = page.locator("#live").inner_text()
    assert said == f"layer 0, head 0: '1' attends to '1', {weights[0, 1, 1]:.2f}"
    page.keyboard.press("Enter")
    assert "pin=encoder.layers.0.self_attention.weights%7E0%7E1%7E1" in page.url
    page.keyboard.press("Escape")
    assert "pin=" not in page.url
    page.keyboard.press("Tab")  # from the map to the next head
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('role')") == "switch"
    page.keyboard.press("Space")
    expect(page.locator("#remark")).to_contain_text("1 head off")
    assert page.evaluate("document.activeElement.getAttribute('aria-checked')") == "false"  # still there
    page.locator("#remark button").focus()
    page.keyboard.press("Enter")
    answer(page).to_have_text("January 5, 1845")
    page.locator("#probabilities li button").nth(2).focus()
    page.keyboard.press("Enter")
    expect(page.locator("#remark")).to_contain_text("1 token forced")


def test_a_view_can_be_linked(open_page: Open) -> None:
    page = open_page(
        "text=2000-02-29&kind=decoder&layer=1&head=3&step=5&pin=decoder.layers.1.self_attention.weights~3~5~2"
    )
    answer(page).to_have_text("February 29, 2000")
    expect(page.locator('[data-head="decoder.1.3"]')).to_have_class(re.compile("chosen"))
    expect(page.locator(".chip[aria-current]")).to_have_attribute("data-step", "5")
    before = arithmetic(page)
    again = open_page(page.url.partition("#")[2])
    assert arithmetic(again) == before
    beyond = open_page("layer=99&head=99&step=99&query=99&pin=nonsense~1~1~1")
    expect(beyond.locator('[data-head="cross.1.3"]')).to_have_class(re.compile("chosen"))


def test_the_beam_is_a_tree_whose_branches_can_be_followed(open_page: Open, model: Seq2Seq) -> None:
    page = open_page()
    page.locator("#beams").get_by_role("button", name="3", exact=True).click()
    expect(page.locator("#beams .node.answer")).to_have_count(15)  # the answer without its <eos>
    other = page.locator("#beams .node:not(.answer)").nth(5)
    label = str(other.get_attribute("aria-label"))
    other.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#remark")).to_contain_text("forced")
    beginning = label.removeprefix("follow ").partition(":")[0]
    assert page.locator("#answer").inner_text().startswith(beginning)


def test_the_last_layer_of_the_lens_says_the_answer(open_page: Open, trace: Trace) -> None:
    page = open_page()
    rows = page.locator("#lens tbody tr")
    assert rows.count() == 3
    last = [text.replace("␣", " ") for text in rows.nth(2).locator("td").all_inner_texts()]
    assert last == trace.output_tokens
    shares = rows.nth(2).locator("td").evaluate_all("cells => cells.map(cell => cell.title)")
    assert shares == ["100%"] * len(last)


# --- how it looks --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"color_scheme": "dark"},
        {"viewport": {"width": 390, "height": 844}},
        {"reduced_motion": "reduce"},
    ],
    ids=["dark", "narrow", "reduced-motion"],
)
def test_dark_narrow_and_still(open_page: Open, settings: dict[str, Any]) -> None:
    page = open_page("pin=decoder.layers.1.cross_attention.weights~1~7~9", **settings)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.locator("#arithmetic").is_visible()
    paper, ink = page.evaluate(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    )
    light, dark = (sum(map(int, re.findall(r"\d+", colour))) for colour in (paper, ink))
    assert (light > dark) == (settings.get("color_scheme") != "dark")
    moves = page.locator(".row-mark").first.evaluate("e => getComputedStyle(e).transitionDuration")
    assert (moves in {"0s", ""}) == ("reduced_motion" in settings)


def test_what_can_be_pressed_has_a_name(open_page: Open) -> None:
    page = open_page()
    nameless = page.evaluate(
        "[...document.querySelectorAll('button, input, select, .plane')]"
        ".filter(e => !(e.textContent.trim() || e.getAttribute('aria-label') || e.labels?.length)).length"
    )
    assert nameless == 0
    assert page.evaluate("document.querySelectorAll('[id]').length") == page.evaluate(
        "new Set([...document.querySelectorAll('[id]')].map(e => e.id)).size"
    )


# --- the single file -----------------------------------------------------------------------------------


def test_the_single_file_opens_from_disk_with_the_same_numbers(
    open_page: Open, model: Seq2Seq, trace: Trace, tmp_path: Path
) -> None:
    path = tmp_path / "january.html"
    path.write_text(single_file("dates", model, "1845-01-05"), encoding="utf-8")
    assert str(tmp_path) not in path.read_text(encoding="utf-8")
    page = open_page("kind=cross&layer=1&head=2&step=4", url=path.as_uri())
    answer(page).to_have_text("January 5, 1845")
    weights = array_of(trace, "decoder.layers.1.cross_attention.weights")[2]
    np.testing.assert_allclose(table(page, "A"), weights, atol=6e-5, rtol=0.06)
    plane(page, "decoder.layers.1.cross_attention.weights", 2).click(position={"x": 5, "y": 5})
    assert arithmetic(page)[0] == pytest.approx(float(weights[0, 0]), abs=2e-6)
    page.keyboard.press("Escape")
    page.evaluate("document.activeElement.blur()")  # within a matrix the arrows move from cell to cell
    page.keyboard.press("ArrowRight")
    expect(page.locator(".chip[aria-current]")).to_have_attribute("data-step", "1")
    assert page.get_by_role("switch").count() == 0
    assert not page.locator("#go").is_visible()


def test_a_token_cannot_break_out_of_the_single_file(model: Seq2Seq) -> None:
    page = single_file("</script><script>alert(1)</script>", model, "1845-01-05")
    assert "</script><script>alert" not in page


def test_the_last_of_many_quick_changes_stays(open_page: Open) -> None:
    page = open_page()
    with page.expect_response(lambda response: "1426-08-10" in (response.request.post_data or "")):
        for text in ("1999-12-31", "2000-02-29", "1426-08-10"):
            page.evaluate("text => { location.hash = `text=${text}`; }", text)
    answer(page).to_have_text("August 10, 1426")
