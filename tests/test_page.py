"""The page in a real browser: what it shows is what the model computed, by mouse and by keyboard, offline."""

from __future__ import annotations

import io
import operator
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import uvicorn
from axe_playwright_python.sync_playwright import Axe
from PIL import Image
from playwright.sync_api import BrowserContext, Page, expect

import seq2see
from conftest import PATIENCE, downloaded, forgotten, several_models, sweep
from seq2see.answering.translation import read, translate
from seq2see.config import Config, ModelConfig, TrainingConfig
from seq2see.evaluation.confidence import Confidence, Measured
from seq2see.evaluation.familiar import Familiar
from seq2see.inspection.tables import array_of
from seq2see.inspection.trace import Trace, logit_lens, mute_head
from seq2see.kernels.registry import network_of
from seq2see.model.transformer import Transformer
from seq2see.page import WORKER
from seq2see.page.describe import describe_model
from seq2see.page.single_file import single_file
from seq2see.seq2seq import Seq2Seq
from seq2see.serve.app import create_app
from seq2see.serve.server import listen
from seq2see.storage.folder import Tokenizers
from seq2see.tokenizers.tokenizer import Tokenizer

Open = Callable[..., Page]


@pytest.fixture(scope="module")
def model() -> Seq2Seq:
    return seq2see.load("dates")


@pytest.fixture(scope="module")
def trace(model: Seq2Seq) -> Trace:
    return model.trace("1845-01-05")


SENTENCE = "the cat sees the small cat"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All that the model of the dates is not: norms before, sub-words, too large to be sent whole; untrained."""
    tokenizer = Tokenizer.bpe([SENTENCE, "a small cat sees the dog", "the dog sees a cat"] * 4, 512)
    config = ModelConfig.of(
        source_vocabulary=tokenizer.size, target_vocabulary=tokenizer.size, d_model=64, heads=2, d_ff=96,
        encoder_layers=3, decoder_layers=2, norm="pre", activation="gelu", positions="learned", max_length=14,
    )  # fmt: skip
    torch.manual_seed(3)
    network = Transformer(config).eval()
    path = tmp_path_factory.mktemp("models") / "pre"
    Seq2Seq(Config("words", config, TrainingConfig()), Tokenizers(tokenizer, tokenizer), network).save(path)
    return path


@pytest.fixture(scope="module")
def other(folder: Path) -> Trace:
    return seq2see.load(folder).trace(SENTENCE)


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    listener = listen("127.0.0.1", 0)
    # models of its own: a model is traced by one thread at a time
    models = {"dates": seq2see.load("dates"), "pre": seq2see.load(folder), "en-fr": seq2see.load("en-fr")}
    several = models["several"] = several_models()
    by_sentences = replace(several.config, decoding=several.config.decoding.but(sentences=True))
    models["sentences"] = Seq2Seq(by_sentences, several.tokenizers, several.transformer)
    known, measured = ["bcd", "ee", "bcde"] * 5, Measured.of([0.9, 0.4], [True, False])
    familiar = Familiar.learn(known, 50, known)
    several.confidence = Confidence("exact", 50.0, [0.0, 1, 0, 0, 0, 0], 99, measured, familiar)
    models["en-fr"].answers(["Hello."])  # its engine is there before a browser waits for it
    app = create_app(models)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    server.should_exit = True
    thread.join()


@pytest.fixture
def open_page(context_of: Callable[..., BrowserContext], address: str) -> Iterator[Open]:
    """Open the page with eyes on it: no request may leave this machine, nothing may be complained of."""
    faults: list[str] = []
    pages = []

    def open_(view: str = "", url: str | None = None, expected: str = "-", **settings: Any) -> Page:
        page = context_of(
            **{"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce", **settings}
        ).new_page()
        pages.append(page)
        page.set_default_timeout(PATIENCE)

        def guard(request: Any) -> None:
            if not request.url.startswith((url or address, "data:", "blob:")):
                faults.append(f"a request left the machine: {request.url}")

        page.on("request", guard)

        def listen_to(message: Any) -> None:
            if message.type in {"error", "warning"} and expected not in message.text:
                faults.append(f"console: {message.text}")

        page.on("console", listen_to)
        page.on("pageerror", lambda error: faults.append(f"error: {error}"))
        folded = view.startswith(("puzzle", "tour", "claim")) or expected == "folded"
        page.goto(f"{url or address}#{view}" if folded else f"{url or address}#all=true&{view}")
        page.wait_for_selector(".chip")
        # all comes without being looked at; a function, since the page's policy forbids to evaluate text
        page.wait_for_function("() => !document.querySelector('[data-waiting]')")
        return page

    yield open_
    for page in pages:
        page.close()
    assert not faults


def filled(page: Page) -> None:
    """Wait until every panel shows what it has to show."""
    expect(page.locator("[data-waiting]")).to_have_count(0, timeout=15_000)


def answer(page: Page) -> Any:
    return expect(page.locator("#answer"))


def number(text: str) -> float:
    return float(text.replace("−", "-").replace("∞", "inf").lstrip("<> "))


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
    page.fill("#text", "")
    page.keyboard.press("Enter")
    expect(page.locator("#error")).to_contain_text("The line is empty")
    expect(page.locator("body")).to_have_class("stale")
    page.locator("#beams").get_by_role("button", name="2", exact=True).click()  # of the answer that is shown
    expect(page.locator("#beams .node.answer")).to_have_count(16)
    page.fill("#text", "1845-01-06")
    page.keyboard.press("Enter")
    answer(page).to_have_text("January 6, 1845")
    expect(page.locator("#error")).to_be_empty()
    page.route("**/api/trace", lambda route: route.fulfill(status=422, json={"error": "Too wide."}))
    page.locator("#beams").get_by_role("button", name="3", exact=True).click()
    expect(page.locator("#beams [role=alert]")).to_have_text("Too wide.")


def test_tokens_have_their_numbers(open_page: Open, trace: Trace) -> None:
    page = open_page()
    ids = page.locator("#tokens ol").nth(0).locator("small").all_inner_texts()
    assert [int(text) for text in ids] == trace.source_ids
    ids = page.locator("#tokens ol").nth(1).locator("small").all_inner_texts()
    assert [int(text) for text in ids] == trace.target_ids


# --- numbers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "layer", "head", "name"),
    sweep(
        [("cross", 1, 2, "decoder.layers.1.cross_attention"), ("decoder", 0, 1, "decoder.layers.0.self_attention")], 1
    ),
)
def test_every_number_of_a_head_is_the_models(
    open_page: Open, trace: Trace, kind: str, layer: int, head: int, name: str
) -> None:
    page = open_page(f"kind={kind}&layer={layer}&head={head}&step=4")
    roles = {"Q": "q", "K": "k", "Q·Kᵀ": "scores", "Q·Kᵀ/√d_k": "scaled", "A": "weights", "V": "v", "Z = A·V": "z"}
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


def test_an_equation_has_one_scale(open_page: Open, trace: Trace) -> None:
    page = open_page()
    said = page.locator("#embedding .scale").inner_text()
    values = {role: array_of(trace, f"encoder.embedding.{role}") for role in ("scaled", "positions", "sum")}
    largest = max(np.abs(value).max() for value in values.values())
    assert f"±{largest:.2f}" in said
    painted = page.locator("#embedding canvas").evaluate_all(
        "all => all.map(c => [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data])"
    )
    pixels = np.concatenate([np.reshape(each, (-1, 4)) for each in painted])
    numbers = np.concatenate([values[role].ravel() for role in ("scaled", "positions", "sum")])
    order = np.argsort(numbers)[: int((numbers < 0).sum())]
    assert (np.diff(pixels[order, 0]) >= 0).all()  # the more below 0, the darker, in all three together


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
    ("encoder.layers.1.self_attention.out", -1, 2, 4),
    ("encoder.layers.0.self_attention_norm.sum", -1, 3, 4),
    ("decoder.layers.1.cross_attention_norm.out", -1, 3, 4),
    ("decoder.layers.0.feed_forward.hidden", -1, 5, 40),
    ("encoder.layers.1.feed_forward.out", -1, 5, 3),
    ("decoder.layers.1.feed_forward_norm.out", -1, 5, 3),
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
        assert_adds_up(page)


NUMBER = r"(−?[\d.]+(?:e−?\d+)?)"


def assert_adds_up(page: Page) -> None:
    """Every sum, product and quotient that is written out is right, and each line goes on with the one before it."""
    written = page.locator("#arithmetic .sum").evaluate_all(
        "sums => sums.map(sum => [...sum.querySelectorAll('p:first-child, .result > *')].map(e => e.textContent)"
        ".concat(sum.querySelector('.result').textContent.includes(' ≈ ')))"
    )
    assert written
    for (_, _, before, _), (says, formula, _, _) in pairwise(written):
        assert not says.startswith(("Divided", "Plus")) or formula.startswith(f"{before} ")
    for _, formula, result, about in written:
        if found := re.fullmatch(f"{NUMBER} ([+/·]) {NUMBER}(?: \\+ {NUMBER})?", formula):
            a, b, c = (number(text) for text in (found[1], found[3], found[4] or "0"))
            value = {"+": operator.add, "·": operator.mul, "/": operator.truediv}[found[2]](a, b) + c
            error = 1e-5 if about else 2e-6  # what stands there is rounded to six digits
            assert number(result) == pytest.approx(value, abs=error, rel=error), formula


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
    expect(page.locator("#probabilities .so-far b")).to_have_text(trace.output_tokens[8])
    page.keyboard.press("Escape")
    page.locator("h1").first.click()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".chip[aria-current]")).to_have_attribute("data-step", "9")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".chip[aria-current]")).to_have_attribute("data-step", "7")
    for mark in page.locator("#cross .row-mark").all():
        expect(mark).to_have_attribute("style", re.compile(rf"top: {100 * 7 / 16:.2f}".rstrip("0") + "%"))
    page.keyboard.press("]")
    page.keyboard.press(".")
    expect(page.locator('[data-head="cross.1.1"]')).to_have_class(re.compile("chosen"))
    page.keyboard.press(",")
    page.keyboard.press("[")
    expect(page.locator('[data-head="cross.0.0"]')).to_have_class(re.compile("chosen"))
    page.keyboard.press("Space")
    expect(page.locator("#play")).to_have_attribute("aria-label", "Pause")
    expect(page.locator(".chip[aria-current]")).not_to_have_attribute("data-step", "7")  # it goes on by itself
    page.keyboard.press("Space")
    expect(page.locator("#play")).to_have_attribute("aria-label", "Play")
    end = page.locator(".chip.special")
    for width, brief in ((1280, False), (800, True), (390, True), (1280, False)):
        page.set_viewport_size({"width": width, "height": 900})
        expect(page.locator("#scrub .brief")).to_have_count(int(brief))
        assert end.evaluate("chip => chip.scrollWidth <= chip.clientWidth")  # nothing is cut
        assert (end.evaluate("chip => getComputedStyle(chip, '::after').content") == '"∎"') == brief


def test_another_token_by_mouse_and_the_difference(open_page: Open) -> None:
    page = open_page()
    page.locator("#probabilities li button").nth(1).click()
    expect(page.locator("#remark")).to_contain_text("1 token forced")
    said = page.locator("#difference .said")
    expect(said).to_have_count(2)
    assert said.first.inner_text().replace("·", "") == "January 5, 1845"  # a dot where the other has a token more
    forced = page.locator("#answer").inner_text()
    assert forced != "January 5, 1845"
    page.get_by_role("button", name="undo").click()
    answer(page).to_have_text("January 5, 1845")


def test_a_head_is_switched_off_and_on(open_page: Open, model: Seq2Seq) -> None:
    page = open_page()
    page.get_by_role("switch", name="cross layer 1, head 3").click()
    expected = model.trace("1845-01-05", edit={"decoder.layers.1.cross_attention.z": mute_head(3)})
    answer(page).to_have_text(expected.output)
    edit = {"decoder.layers.1.cross_attention.z": mute_head(3)}
    held = model.trace("1845-01-05", target="January 5, 1845", edit=edit)
    log_p = sum(step.log_probability for step in held.steps())  # of the original answer, as everywhere
    expect(page.locator("#versus")).to_contain_text(f"of January 5, 1845: 0.00 → −{-log_p:.2f})")
    page.get_by_role("switch", name="cross layer 1, head 3").click()
    answer(page).to_have_text("January 5, 1845")


def test_edit_and_compare(open_page: Open) -> None:
    page = open_page("beam=1000", expected="status of 422")
    expect(page.locator("#beams [aria-pressed=true]")).to_have_text("8")  # the widest there is
    page.fill("#against", "2023-02-30")
    page.keyboard.press("Enter")
    expect(page.locator("#compare-error")).to_contain_text("February 2023")
    page.fill("#against", "")
    page.keyboard.press("Enter")
    expect(page.locator("#compare-error")).to_be_empty()
    page.fill("#against", "1945-01-05")
    page.keyboard.press("Enter")
    expect(page.locator("#difference .said").nth(1)).to_have_text("January 5, 1945")
    assert page.locator("#difference tr").nth(2).locator(".moved").all_inner_texts() == ["9"]


def test_numbers_are_taken_over_from_another_run(open_page: Open) -> None:
    page = open_page("against=1945-01-05")
    page.get_by_label("Value to take over").select_option("encoder.memory")
    page.get_by_role("button", name="Take over").click()
    expect(page.locator("#answer")).to_have_text("January 5, 1945")
    expect(page.locator("#versus")).to_contain_text("numbers taken over: January 5, 1845")
    page.get_by_role("button", name="undo").first.click()
    expect(page.locator("#answer")).to_have_text("January 5, 1845")


def test_by_keyboard_alone(open_page: Open, trace: Trace) -> None:
    """Type, reach a matrix, walk in it, pin, choose a token, switch a head: no mouse."""
    page = open_page()
    page.focus("#text")
    page.keyboard.press("Control+A")
    page.keyboard.type("1845-01-05")
    page.keyboard.press("Enter")
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.closest('#encoder .plane') !== null"):
            break
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    weights = array_of(trace, "encoder.layers.0.self_attention.weights")
    said = page.locator("#live").inner_text()
    assert said == f"layer 0, head 0: ‘1₁’, attends to ‘1₁’, {weights[0, 1, 1]:.2f}"
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(re.escape("pin=encoder.layers.0.self_attention.weights%7E0%7E1%7E1")))
    page.keyboard.press("Escape")
    expect(page).not_to_have_url(re.compile("pin="))
    page.keyboard.press("Shift+Tab")  # from the map to the switch of its head
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


def test_the_reader_chooses_the_member_that_is_looked_into(open_page: Open) -> None:
    model = several_models()
    together = model.predict(["bcd"])[0]
    muted = {"decoder.layers.0.cross_attention.z": mute_head(1)}
    page = open_page("model=several&text=bcd&muted=cross.0.1")
    answer(page).to_have_text(model.trace("bcd", edit=muted).output)
    remark, member = page.locator("#remark"), page.locator("#member")
    expect(remark).to_contain_text("This is member 0 of 3; the ensemble may answer otherwise.")
    member.select_option("1")
    answer(page).to_have_text(model.trace("bcd", edit=muted, member=1).output)
    page.get_by_role("button", name="undo").click()
    alone = model.trace("bcd", member=1)
    answer(page).to_have_text(alone.output)
    expect(remark).to_contain_text(f"Member 1 writes this. All 3 members together answer: {together}")
    assert "member=1" in page.url
    filled(page)
    page.locator("#probabilities").scroll_into_view_if_needed()
    expect(page.locator("#probabilities .chosen")).to_contain_text(f"{100 * alone.steps()[0].probability:.1f}")
    page.locator("#lens").scroll_into_view_if_needed()  # what is fetched later is of the same member
    expect(page.locator("#lens tbody tr").last.locator("td span")).to_have_text(alone.output_tokens)
    page.go_back()
    page.go_back()
    expect(member).to_have_value("0")
    beyond = open_page("model=several&text=ee&member=2")  # it cannot be looked into
    answer(beyond).to_have_text(model.predict(["ee"])[0])
    said, same = beyond.locator("#remark"), model.predict(["ee"])[0]
    expect(said).to_contain_text("Member 0 of 3; together they give the same answer.confidence 6.2%: of 100")
    beyond.locator("#member").select_option("1")
    answer(beyond).to_have_text(model.trace("ee", member=1).output)
    expect(said).to_contain_text(f"All 3 members together answer: {same}, with confidence 6.2%.")
    beyond.locator("#model").select_option("dates")
    answer(beyond).to_have_text("January 5, 1845")
    expect(beyond.locator("#member")).to_be_hidden()
    expect(beyond.locator("#remark")).not_to_contain_text("ember")
    assert "member=" not in beyond.url


def test_a_member_reads_the_sentences_that_all_members_have_written(open_page: Open) -> None:
    page, model = open_page("model=sentences&text=ee&member=1"), several_models()
    answer(page).to_have_text(model.predict(["ee"])[0])
    expect(page.locator("#remark")).to_contain_text(
        "The numbers are those of member 1, which reads what all 3 members together have answered."
    )
    shares = model.trace("ee", target=model.predict(["ee"])[0], member=1).steps()
    for step in (0, 1):
        page.locator("#step").fill(str(step))
        expect(page.locator("#probabilities .chosen")).to_contain_text(f"{100 * shares[step].probability:.1f}")


def test_the_beam_is_a_tree_whose_branches_can_be_followed(open_page: Open, model: Seq2Seq) -> None:
    page = open_page()
    page.locator("#beams").scroll_into_view_if_needed()
    expect(page.locator("#beams .node.answer")).to_have_count(16)
    best = model.answers(["1845-01-05"], beam=3, n_best=3)[0]
    ends = page.locator("#beams .node.end")
    assert page.locator("#beams .node.answer.end").count() == 1
    said = ends.evaluate_all("ends => ends.map(end => end.getAttribute('aria-label'))")
    for output in (best.output, *(alternative.output for alternative in best.alternatives)):
        assert any(label.startswith(f"follow {output}<eos>: ") and label.endswith("an end") for label in said)
    other = page.locator("#beams .node:not(.answer):not(.end)").nth(5)
    label = str(other.get_attribute("aria-label"))
    other.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#remark")).to_contain_text("forced")
    beginning = label.removeprefix("follow ").partition(":")[0]
    assert page.locator("#answer").inner_text().startswith(beginning)


def test_the_last_layer_of_the_lens_says_the_answer(open_page: Open, trace: Trace) -> None:
    page = open_page()
    page.locator("#lens").scroll_into_view_if_needed()
    rows = page.locator("#lens tbody tr")
    expect(rows).to_have_count(3)
    last = [text.replace("␣", " ") for text in rows.nth(2).locator("td span").all_inner_texts()]
    assert last == trace.output_tokens
    shares = rows.nth(2).locator("td").evaluate_all("cells => cells.map(cell => cell.title)")
    assert set(shares) == {"> 99.9%"}


# --- how it looks --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"color_scheme": "dark", "reduced_motion": "no-preference"},
        {"viewport": {"width": 390, "height": 844}, "reduced_motion": "no-preference"},
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
    moves = page.locator("#probabilities .bar i").first.evaluate("e => getComputedStyle(e).transitionDuration")
    assert (moves in {"0s", ""}) == (settings["reduced_motion"] == "reduce")


@pytest.mark.parametrize(
    ("view", "settings"),
    sweep(
        [
            ("zoom=1.3.2&step=12", {"color_scheme": "dark", "viewport": {"width": 390, "height": 844}}),
            ("beam=3&muted=cross.1.3&pin=decoder.layers.1.cross_attention.weights~1~7~9", {}),
            ("step=12&shows=looks", {"color_scheme": "dark"}),
            ("step=4", {"viewport": {"width": 390, "height": 844}}),
        ],
        1,
    ),
    ids=["dark-narrow", "light", "dark", "narrow"],
)
def test_axe_finds_no_fault(open_page: Open, view: str, settings: dict[str, Any]) -> None:
    page = open_page(view, **settings)
    page.locator("#lens").scroll_into_view_if_needed()
    page.wait_for_selector("#lens td")
    page.locator("#head").get_by_role("button", name="view Q as table").click()
    found = Axe().run(page).response
    assert len(found["passes"]) > 20  # it has looked
    assert [(fault["id"], fault["nodes"][0]["html"]) for fault in found["violations"]] == []


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


# --- pictures to keep ----------------------------------------------------------------------------------


def saved(page: Page, panel: str, text: str = "1845-01-05") -> bytes:
    with page.expect_download() as waiting:
        page.locator(f"#{panel} .save button").click()
    assert waiting.value.suggested_filename.endswith(f"{text}-{panel}.png")
    return Path(waiting.value.path()).read_bytes()


@pytest.mark.heavy
def test_panels_can_be_kept_as_png(open_page: Open) -> None:
    page = open_page("beam=3&muted=cross.1.3")
    page.locator("#lens").scroll_into_view_if_needed()
    page.wait_for_selector("#lens td")
    assert page.locator(".panel .save").count() == page.locator(".panel").count() == 11
    for panel in ("head", "tokens", "lens", "compare"):
        image = Image.open(io.BytesIO(saved(page, panel))).convert("RGB")
        assert image.width >= 2 * page.locator(f"#{panel}").bounding_box()["width"]
        assert len(image.reduce(4).getcolors(1_000_000)) > 100, panel  # something is painted


def test_a_kept_matrix_has_the_colours_of_the_page(open_page: Open) -> None:
    page = open_page("kind=cross&layer=1&head=1&step=15", color_scheme="dark")
    image = Image.open(io.BytesIO(saved(page, "embedding"))).convert("RGB")
    painted = page.locator("#embedding canvas").first.evaluate(
        "c => [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data]"
    )
    colours = {tuple(painted[i : i + 3]) for i in range(0, len(painted), 4)}
    assert colours <= {colour for _, colour in image.getcolors(image.width * image.height)}
    assert image.getpixel((2, 2)) == (0x13, 0x14, 0x17)  # the paper of the dark theme


# --- norms before, sub-words, too large to be sent whole -----------------------------------------------


def test_a_large_model_sends_little_at_first_and_the_rest_when_it_is_looked_at(open_page: Open, other: Trace) -> None:
    page = open_page(f"model=pre&text={SENTENCE}&kind=cross&layer=1&head=1")
    answer(page).to_have_text(other.output)
    base = "decoder.layers.1.cross_attention"
    page.wait_for_selector(f'#head .plane[data-name="{base}.q"]')
    for title, role in {"Q": "q", "K": "k", "Q·Kᵀ": "scores", "A": "weights", "V": "v"}.items():
        value = array_of(other, f"{base}.{role}")
        expected = value[:, 1] if role in {"q", "k", "v"} else value[1]
        np.testing.assert_allclose(table(page, title), expected, atol=2e-3, rtol=2e-3, err_msg=role)
    for role in ("weights", "q", "k", "v", "z", "scaled"):
        page.evaluate("pin => { location.hash = pin; }", pinned(f"{base}.{role}~1~2~1", "kind=cross&layer=1&head=1"))
        value = array_of(other, f"{base}.{role}")
        expected = value[2, 1, 1] if role in {"q", "k", "v", "z"} else value[1, 2, 1]
        expect(page.locator("#arithmetic code")).to_contain_text(f"{base}.{role}")
        ends, text = arithmetic(page)
        assert ends == pytest.approx(float(expected), abs=3e-3), role
        assert "shades" not in text
        assert "head is off" not in text
    plane(page, "encoder.layers.2.self_attention.weights", 0, "#encoder").hover(position={"x": 5, "y": 5})
    assert "256 shades" in page.locator("#arithmetic").inner_text()
    plane(page, "encoder.layers.2.self_attention.weights", 0, "#encoder").click(position={"x": 5, "y": 5})
    expect(page.locator("#arithmetic")).to_contain_text("Softmax over the row")
    expected = array_of(other, "encoder.layers.2.self_attention.weights")[0, 0, 0]
    assert arithmetic(page)[0] == pytest.approx(float(expected), abs=1e-3)


def pinned(pin: str, rest: str = "") -> str:
    return f"model=pre&text={SENTENCE.replace(' ', '+')}&pin={pin}&{rest}"


#: What is not sent at first, and how many lines it takes to write it out.
FETCHED = [
    ("decoder.layers.1.cross_attention.z", 1, 2, 1, 1),
    ("encoder.memory", -1, 2, 7, 4),
    ("encoder.layers.1.self_attention_norm.normed", -1, 3, 7, 4),
    ("decoder.layers.0.cross_attention_norm.out", -1, 3, 5, 1),
    ("encoder.layers.2.feed_forward.hidden", -1, 1, 90, 3),
    ("decoder.layers.1.feed_forward.out", -1, 2, 60, 2),
    ("decoder.layers.0.self_attention.out", -1, 2, 33, 2),
    ("decoder.embedding.sum", -1, 1, 9, 1),
    ("logits", -1, 2, 3, 1),
]


@pytest.mark.heavy
def test_a_pin_outlives_the_page_though_its_numbers_come_later(open_page: Open, other: Trace) -> None:
    name, head, row, col, _ = FETCHED[0]
    page = open_page(pinned(f"{name}~{head}~{row}~{col}"))
    for name, head, row, col, lines in FETCHED:
        page.evaluate("view => { location.hash = view; }", pinned(f"{name}~{head}~{row}~{col}"))
        expect(page.locator("#arithmetic code")).to_contain_text(name)
        expect(page.locator("#arithmetic .result")).to_have_count(lines)
        expect(page.locator("#arithmetic")).not_to_contain_text("Fetching")
        value = array_of(other, name)[row, head, col] if head >= 0 else array_of(other, name)[row, col]
        ends, text = arithmetic(page)
        assert ends == pytest.approx(float(value), abs=5e-6), name
        assert "head is off" not in text
        assert_adds_up(page)
        assert name in page.url
    for beyond in ("decoder.layers.1.feed_forward.hidden~-1~2~96", "encoder.layers.0.nothing~-1~0~0", "*~-1~0~0"):
        page.evaluate("view => { location.hash = view; }", pinned(beyond))
        expect(page).not_to_have_url(re.compile("pin="))
    expect(page.locator("#error")).to_be_empty()


def test_norms_before_are_told_as_such(open_page: Open, other: Trace) -> None:
    page = open_page(f"model=pre&text={SENTENCE}&part=decoder.feed_forward_norm&layer=1")
    page.locator("#layer").scroll_into_view_if_needed()
    expect(page.locator("#layer figcaption b")).to_have_text(["x", "LN(x)", "y", "x + y"])
    for part, name, row, col in [
        ("decoder.feed_forward_norm", "decoder.layers.1.feed_forward_norm.out", 3, 5),
        ("decoder.norm", "decoder.out", 2, 7),
    ]:
        page.evaluate("view => { location.hash = view; }", pinned(f"{name}~-1~{row}~{col}", f"part={part}&layer=1"))
        page.wait_for_selector(f'#layer .plane[data-name="{name}"]')
        page.locator(f'#layer .plane[data-name="{name}"]').focus()
        for key in ["ArrowDown"] * row + ["ArrowRight"] * col + ["Enter"]:
            page.keyboard.press(key)
        expect(page.locator("#arithmetic code")).to_contain_text(name)
        assert arithmetic(page)[0] == pytest.approx(float(other[name][row, col]), abs=5e-6)
        assert_adds_up(page)


@pytest.mark.heavy
def test_the_lens_of_a_large_pre_norm_model(open_page: Open, other: Trace) -> None:
    page = open_page(f"model=pre&text={SENTENCE}&step=2")
    expect(page.locator("#remark")).to_have_text("The answer was cut: it did not come to its end.")
    page.locator("#lens").scroll_into_view_if_needed()
    rows = page.locator("#lens tbody tr")
    expect(rows).to_have_count(3)
    for shown, layer in zip(rows.all(), logit_lens(other), strict=True):
        said = [text.replace("␣", " ") for text in shown.locator("td span").all_inner_texts()]
        assert said == other.tokenizers.target.tokens(layer.ids.tolist())


# --- the other model that ships ------------------------------------------------------------------------


def test_english_to_french(open_page: Open) -> None:
    page = open_page("layer=1&head=2&step=3")
    page.select_option("#model", "en-fr")
    question = "Where is the train station?"
    answer(page).to_have_text("Où se trouve la gare ?", timeout=20_000)
    filled(page)
    assert page.locator("#text").input_value() == question == page.locator("#examples button").first.inner_text()
    assert page.locator("#examples button").count() == 5
    assert page.evaluate("(e => e.scrollWidth <= e.clientWidth)(document.querySelector('#text'))")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    tokens = page.locator("#tokens ol").first.locator(".token").all_inner_texts()
    assert tokens == ["<sos>", "Where", "␣is", "␣the", "␣train", "␣station", "?", "<eos>"]
    rows = page.locator("#cross .cards").evaluate_all(
        "rows => rows.map(row => new Set([...row.children].map(card => card.offsetTop)).size)"
    )
    assert rows == [1, 1]  # eight heads side by side
    words = page.locator("#head .arcs .key").evaluate_all(
        "words => words.map(word => [word.getBBox().x, word.getBBox().x + word.getBBox().width])"
    )
    assert all(before[1] < after[0] for before, after in pairwise(words))
    plane(page, "encoder.layers.4.self_attention.weights", 7, "#encoder").click(position={"x": 5, "y": 5})
    expect(page.locator("#arithmetic")).to_contain_text("Softmax over the row")
    results = [number(text) for text in page.locator("#arithmetic .result b").all_inner_texts()]
    assert results[1] == pytest.approx(results[0] / 8, abs=2e-6)  # not in half precision
    assert_adds_up(page)
    name = "encoder.layers.1.feed_forward_norm.out"
    page.evaluate("pin => { location.hash += `&part=encoder.feed_forward_norm&pin=${pin}`; }", f"{name}~-1~1~44")
    page.reload()
    expect(page.locator("#arithmetic code")).to_contain_text(name)
    expect(page.locator("#arithmetic .result")).to_have_count(1)
    assert_adds_up(page)
    value = float(seq2see.load("en-fr").trace(question)[name][1, 44])
    assert arithmetic(page)[0] == pytest.approx(value, abs=5e-6)
    filled(page)
    page.get_by_role("switch", name="cross layer 1, head 3").click()
    expect(page.locator("#difference .compare")).to_contain_text("Où se trouve la gare ?")
    page.locator("#probabilities li button").nth(1).click()
    expect(page.locator("#remark")).to_contain_text("forced")
    page.select_option("#model", "dates")
    answer(page).to_have_text("January 5, 1845")
    expect(page.locator("#remark")).to_be_empty()


@pytest.mark.heavy
def test_a_glossary_holds_the_answer(open_page: Open) -> None:
    page = open_page("model=dates", expected="422")
    expect(page.locator("#glossary")).to_be_hidden()
    page.select_option("#model", "en-fr")
    answer(page).to_have_text("Où se trouve la gare ?", timeout=20_000)
    page.locator("#glossary summary").click()
    use = page.get_by_role("button", name="Answer with these terms")
    page.locator("#terms").fill("train station = aérogare\nhospital")
    use.click()
    answer(page).to_have_text("Où est l'aérogare ?")
    expect(page.locator("#remark")).to_contain_text("1 term of the glossary")
    filled(page)
    chosen = page.locator("#scrub .chip").all_inner_texts()
    assert "".join(chosen) == "Oùestl'aérogare?<eos>"  # what is traced is this answer
    page.reload()
    answer(page).to_have_text("Où est l'aérogare ?")
    for terms, said in (("gare = a\ngare = b", "“gare” twice"), ("gare = a\nGare = b", "contradicts an earlier one")):
        page.locator("#terms").fill(terms)
        use.click()
        expect(page.locator("#error")).to_contain_text(said)
    page.locator("#terms").fill("")
    use.click()
    answer(page).to_have_text("Où se trouve la gare ?", timeout=20_000)
    expect(page.locator("#error")).to_be_empty()


LETTER = (
    "Dear Tom,\n\nWhere is the station?  The bill comes to $23.50.\n - Call 555-123-4567!\n\nRegards,\nXqzvw Wkjh\n"
)


def test_a_whole_text_is_shown_sentence_by_sentence_and_each_can_be_looked_into(open_page: Open) -> None:
    page = open_page("model=en-fr")
    page.locator("#text").fill(LETTER)
    page.keyboard.press("Enter")
    sentences = page.locator("#answer .phrase")
    expect(sentences).to_have_count(6, timeout=20_000)
    expect(page.locator("#progress")).to_contain_text("6 sentences")
    # what stands between the sentences is that of the text, and each sentence is what the library says
    model = seq2see.load("en-fr")
    found = translate(read(LETTER).sentences, model.answerer, model.config.decoding, probabilities=True)
    assert sentences.all_inner_texts() == [one.text for one in found]
    assert page.locator("#answer").evaluate("answer => answer.textContent") == model.translate(LETTER)
    assert page.locator("#answer").inner_text().count("\n") == LETTER.count("\n")  # and it is seen so
    # a sentence is chosen by mouse, then by keyboard: the numbers are those of what the model read and wrote
    sentences.nth(1).click()
    expect(page.locator("#remark")).to_contain_text("Sentence 2 of 6")
    sure = found[1].parts[0].reply.confidence  # type: ignore[attr-defined]
    expect(page.locator("#remark")).to_contain_text(f"confidence {100 * sure:.1f}%")
    assert sentences.nth(1).get_attribute("aria-pressed") == "true"
    expect(page.locator("#scrub .chip").first).to_have_text("Où")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.locator("#remark")).to_contain_text("The model reads “Call {1}!”.")
    expect(page.locator("#scrub .chip").first).to_have_text("App")
    filled(page)
    tokens = page.locator("#tokens ol").first.locator(".token").all_inner_texts()
    assert "".join(tokens).replace("␣", " ") == "<sos>Call <0x7B>1<0x7D>!<eos>"  # braces, by their bytes
    # the address holds the choice; the buttons go on; a head that is off changes this sentence alone
    assert "sentence=3" in page.url
    page.get_by_role("button", name="Sentence before").click()
    page.get_by_role("button", name="Sentence before").click()
    expect(page.locator("#remark")).to_contain_text("Sentence 2 of 6")
    filled(page)
    page.locator("#probabilities li button").nth(1).click()
    expect(page.locator("#remark")).to_contain_text("1 token forced")
    expect(sentences.nth(1)).not_to_have_text(found[1].text)
    expect(sentences.nth(0)).to_have_text(found[0].text)
    expect(page.locator("#versus s")).to_have_text(found[1].parts[0].output)
    # sentences to look at again are marked, with the reason
    unsure = page.locator("#answer .unsure")
    assert 0 < unsure.count() < 6
    assert "differs from those of the training" in str(sentences.nth(5).get_attribute("aria-description"))
    # another text, another model: nothing of it stays
    page.locator("#text").fill("I'm very proud of you.")
    page.keyboard.press("Enter")
    expect(sentences).to_have_count(1)
    expect(page.locator("#remark")).not_to_contain_text("Sentence")
    page.select_option("#model", "dates")
    answer(page).to_have_text("January 5, 1845")
    expect(page.locator("#tools")).to_be_hidden()


def test_sentences_come_while_others_are_awaited_and_a_break_is_said(open_page: Open) -> None:
    page = open_page("model=en-fr")
    lines = [
        '{"model": "en-fr", "parts": [{"source": "One."}, "  ", {"source": "Two."}], "notes": []}',
        '{"sentences": [{"output": "Un.", "finished": true, "confidence": 0.3, "parts": [{"read": "One.", "ids": []}]}]}',
    ]

    def half(route: Any) -> None:
        route.fulfill(body="".join(line + "\n" for line in lines), content_type="application/x-ndjson")

    page.route("**/api/text", half)
    page.locator("#text").fill("One.  Two.")
    page.keyboard.press("Enter")
    expect(page.locator("#answer .coming")).to_have_text("Two.")
    expect(page.locator("#answer .unsure")).to_have_text("Un.")
    expect(page.locator("#progress")).to_contain_text("1 of 2 sentences")
    expect(page.locator("#progress")).to_contain_text("The server broke the answer off: ask again.")
    expect(page.locator("#download")).to_be_hidden()
    expect(page.locator("#remark")).to_contain_text("Sentence 1 of 2")
    found = Axe().run(page, options={"resultTypes": ["violations"]})
    assert found.violations_count == 0, found.generate_report()


@pytest.mark.heavy
def test_no_text_is_too_long(open_page: Open) -> None:
    page = open_page("model=en-fr")
    text = "The list.\n" + "\n".join(f"{number:,}.50" for number in range(2000)) + "\nThat is all."
    page.locator("#text").evaluate("(field, text) => { field.value = text; field.focus(); }", text)
    page.keyboard.press("Enter")
    expect(page.locator("#progress")).to_have_text(re.compile("^2 sentences"), timeout=20_000)
    assert page.locator("#answer").inner_text().count("\n") == 2001
    expect(page.locator("#linked")).to_contain_text("not the text")
    assert "text=" not in page.url
    expect(page.locator("#error")).to_be_empty()
    box = page.locator("#answer").bounding_box()
    assert box is not None
    assert box["height"] < 600  # it scrolls
    page.locator("#text").fill("123 456")
    page.keyboard.press("Enter")
    expect(page.locator("#error")).to_contain_text("no words")
    answer(page).to_have_text("123 456")


def test_a_file_goes_in_and_comes_out(open_page: Open, tmp_path: Path) -> None:
    page = open_page("model=en-fr", expected="422")
    html = "<p>Where is the <b>train station</b>?</p>\n<code>x = 1</code>\n"

    def choose(name: str, data: bytes) -> None:
        page.locator("#file").set_input_files({"name": name, "mimeType": "", "buffer": data})

    choose("page.html", html.encode())
    expect(page.locator("#kind")).to_contain_text("page.html, read as HTML")
    answer(page).to_contain_text("<b>gare</b>", timeout=20_000)
    with page.expect_download() as download:
        page.locator("#download").click()
    assert download.value.suggested_filename == "page.fr.html"
    assert Path(download.value.path()).read_text() == seq2see.load("en-fr").translate(html, format="html")
    page.get_by_role("button", name="read as plain text").click()
    expect(page.locator("#kind")).to_be_empty()
    for name, data, said in (
        ("x.html", b"<p>Hello <b", "the HTML is broken."),
        ("x.srt", b"Hello.\n", "subtitles begin with a number"),
        ("x.txt", b"a\0b", "x.txt is binary data, not text"),
        ("x.txt", b"caf\xe9", "x.txt is not UTF-8 text: convert it first."),
        ("x.png", b"x", "x.png cannot be translated"),
        ("x.txt", b"x" * 1_000_001, "x.txt has 1,000,001 bytes, and this server takes 1,000,000 at most"),
    ):
        choose(name, data)
        expect(page.locator("#error")).to_contain_text(said)
    # a file that is dropped on the text
    page.evaluate(
        """() => {
          const files = new DataTransfer();
          files.items.add(new File(["1\\n00:00:01,000 --> 00:00:02,000\\nThank you.\\n"], "film.srt"));
          const drop = new DragEvent("drop", { dataTransfer: files, bubbles: true, cancelable: true });
          document.querySelector("#text").dispatchEvent(drop);
        }"""
    )
    expect(page.locator("#kind")).to_contain_text("film.srt, read as subtitles")
    answer(page).to_contain_text("00:00:01,000 --> 00:00:02,000\nMerci.")
    expect(page.locator("#error")).to_be_empty()


@pytest.mark.heavy
def test_a_selection_that_does_not_fit_the_next_answer_disturbs_nothing(open_page: Open) -> None:
    page = open_page()
    page.select_option("#model", "en-fr")
    answer(page).to_have_text("Où se trouve la gare ?", timeout=20_000)
    filled(page)
    page.locator("#head").get_by_role("button", name="attention encoder").click()
    page.locator("#head").get_by_role("button", name="layer 5").click()
    page.locator("#head").get_by_role("button", name="head 7").click()
    expect(page.locator("#head .steps canvas").first).to_be_visible()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.post_data or ""))
    page.select_option("#model", "dates")  # which has two layers of four heads
    answer(page).to_have_text("January 5, 1845")
    filled(page)
    expect(page.locator("#head .choosers [aria-pressed=true]")).to_have_text(["encoder", "1", "3"])
    more = [body for body in asked if '"names":[]' not in body]  # without the ranking of heads
    assert not [body for body in more if '"head":' in body]  # by a panel of the old answer
    page.evaluate("location.hash = 'model=en-fr&text=I+am+hungry.'")
    answer(page).to_have_text("J'ai faim.")
    assert page.locator("#model").input_value() == "en-fr"
    expect(page.locator("#examples button").first).to_have_text("Where is the train station?")


# --- what is seen first --------------------------------------------------------------------------------


def _at_rest(page: Page, selector: str) -> float:
    """Return how far down a panel is, when two looks in a row see it at one place."""
    before = -1.0
    for _ in range(50):
        now = page.locator(selector).bounding_box()["y"]
        if now == before:
            break
        before = now
        page.wait_for_timeout(100)
    return before


def test_what_is_in_sight_comes_first_and_the_rest_when_it_comes_near(open_page: Open) -> None:
    page = open_page()
    page.evaluate("window.requestIdleCallback = () => 0")  # there is never time
    page.fill("#text", "1845-01-06")
    page.keyboard.press("Enter")
    answer(page).to_have_text("January 6, 1845")
    waiting = page.locator("[data-waiting]").evaluate_all("panels => panels.map(panel => panel.id)")
    assert {"cross", "probabilities", "lens"} <= set(waiting)
    tall = _at_rest(page, "#lens")
    page.locator("#cross").scroll_into_view_if_needed()
    expect(page.locator("#cross .plane")).to_have_count(8)
    page.evaluate("document.getElementById('probabilities').scrollIntoView()")
    expect(page.locator("#probabilities .so-far b")).to_have_text("J")
    page.evaluate("scrollTo(0, 0)")
    # nothing has moved, once the panels between are drawn
    page.wait_for_function(
        "tall => Math.abs(document.getElementById('lens').getBoundingClientRect().top - tall) <= 2", arg=tall
    )


def saved_page(name: str, model: Seq2Seq, text: str) -> str:
    return single_file(describe_model(name, model.config, model.card, model.path), model.trace(text))


def test_every_module_is_fetched_ahead_and_none_by_the_single_file(model: Seq2Seq) -> None:
    static = Path(seq2see.__file__).parent / "page" / "static"
    ahead = re.findall(r'"modulepreload" href="(.*)"', (static / "index.html").read_text(encoding="utf-8"))
    mine = {path.name for path in static.glob("*.js")} - {*WORKER} | {"weights.js"}
    assert {*ahead, "main.js"} == mine
    page = saved_page("dates", model, "1845-01-05")
    assert "<link" in page  # the icon
    assert not re.search(r'<link rel="(modulepreload|preload|stylesheet)"', page)


# --- the single file -----------------------------------------------------------------------------------


def test_the_single_file_opens_from_disk_with_the_same_numbers(
    open_page: Open, model: Seq2Seq, trace: Trace, tmp_path: Path
) -> None:
    path = tmp_path / "january.html"
    path.write_text(saved_page("dates", model, "1845-01-05"), encoding="utf-8")
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
    expect(page.locator(".lead")).not_to_contain_text("Type a text of your own", use_inner_text=True)


def test_a_token_cannot_break_out_of_the_single_file(model: Seq2Seq) -> None:
    page = saved_page("</script><script>alert(1)</script>", model, "1845-01-05")
    assert "</script><script>alert" not in page


def test_the_last_of_many_quick_changes_stays(open_page: Open) -> None:
    page = open_page()
    with page.expect_response(lambda response: "1426-08-10" in (response.request.post_data or "")):
        for text in ("1999-12-31", "2000-02-29", "1426-08-10"):
            page.evaluate("text => { location.hash = `text=${text}`; }", text)
    answer(page).to_have_text("August 10, 1426")


@pytest.mark.heavy
def test_a_large_models_file_holds_every_head(open_page: Open, folder: Path, other: Trace, tmp_path: Path) -> None:
    path = tmp_path / "large.html"
    path.write_text(saved_page("pre", seq2see.load(folder), SENTENCE), encoding="utf-8")
    page = open_page("kind=encoder&layer=2&head=1&step=3", url=path.as_uri())
    answer(page).to_have_text(other.output)
    weights = array_of(other, "encoder.layers.2.self_attention.weights")[1]
    np.testing.assert_allclose(table(page, "A"), weights, atol=2e-4, rtol=2e-3)
    expect(page.locator("#lens tbody tr")).to_have_count(3)
    for name, head, row, col, lines in [
        *FETCHED[:4],
        ("decoder.embedding.sum", -1, 1, 9, 1),
        ("encoder.layers.2.self_attention.weights", 1, 2, 1, 3),
        ("encoder.layers.2.feed_forward.hidden", -1, 1, 90, 1),
    ]:
        page.evaluate("pin => { location.hash = `pin=${pin}`; }", f"{name}~{head}~{row}~{col}")
        expect(page.locator("#arithmetic code")).to_contain_text(name)
        expect(page.locator("#arithmetic .result")).to_have_count(lines)
        values = array_of(other, name)
        value = (
            values[row, col] if head < 0 else values[head, row, col] if "weights" in name else values[row, head, col]
        )
        assert arithmetic(page)[0] == pytest.approx(float(value), abs=2e-6), name
        assert_adds_up(page)
    expect(page.locator("#arithmetic")).to_contain_text("left out of a saved file")


def test_a_notebook_shows_the_page_in_a_frame(open_page: Open, model: Seq2Seq, tmp_path: Path) -> None:
    edit = {"decoder.layers.1.cross_attention.z": mute_head(3)}
    trace = model.trace("1845-01-05", edit=edit)
    path = tmp_path / "notebook.html"
    path.write_text(f"<!doctype html><p class='chip'>.</p>{trace._repr_html_()}", encoding="utf-8")
    frame = open_page(url=path.as_uri()).frame_locator("iframe")
    expect(frame.locator("#answer")).to_have_text(trace.output)
    frame.locator("#all > summary").click()
    expect(frame.locator("#lens tbody tr")).to_have_count(3)
    assert str(Path(seq2see.__file__).parent) not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("positions", sweep(["fairseq", "opennmt", "halves"], 1))
def test_the_arithmetic_of_models_of_others(open_page: Open, tmp_path: Path, positions: str) -> None:
    """A norm of the embedding, embeddings that are not scaled, other positions: written out."""
    tokenizer = Tokenizer.characters_of(["abcdefgh"])
    config = ModelConfig.of(
        source_vocabulary=tokenizer.size, target_vocabulary=tokenizer.size, d_model=16, heads=2, d_ff=24,
        encoder_layers=1, decoder_layers=1, positions=positions, embedding_norm=True, scale_embeddings=False,
        output_bias=True, max_length=14,
    )  # fmt: skip
    torch.manual_seed(5)
    model = Seq2Seq(Config("words", config, TrainingConfig()), Tokenizers.one(tokenizer), network_of(config).eval())
    traced = model.trace("abc")
    path = tmp_path / "page.html"
    path.write_text(single_file(describe_model("small", model.config, "", None), traced), encoding="utf-8")
    page = open_page(url=path.as_uri())
    cells = [("scaled", 1, 3), ("positions", 3, 2), ("positions", 3, 11), ("sum", 2, 5), ("normed", 2, 5)]
    for role, row, col in cells:
        name = f"encoder.embedding.{role}"
        page.evaluate("pin => { location.hash = `pin=${pin}`; }", f"{name}~-1~{row}~{col}")
        expect(page.locator("#arithmetic code")).to_contain_text(name)
        ends, text = arithmetic(page)
        assert ends == pytest.approx(float(traced[name][row, col]), abs=2e-6), name
        assert "head is off" not in text
        if role == "normed":
            assert "variance" in text


@pytest.mark.heavy
def test_long_work_is_done_in_slices_and_given_up_for_newer_work(open_page: Open) -> None:
    page = open_page()
    told = page.evaluate(
        """async () => {
          const { inSlices } = await import("/section.js");
          const seen = [];
          const busy = (name) => () => {  // longer than what may be done at once
            for (const end = performance.now() + 40; performance.now() < end;);
            seen.push(name);
            return document.createTextNode(name);
          };
          const place = document.createElement("div");
          setTimeout(() => seen.push("between"));
          await inSlices(place, [busy("a"), busy("b")], true);
          const old = inSlices(place, [busy("c"), busy("never")], true);
          const last = inSlices(place, [busy("d"), busy("e")], true);
          await Promise.all([old, last]);
          return { seen, text: place.textContent };
        }"""
    )
    assert told["seen"] == ["a", "between", "b", "c", "d", "e"]
    assert told["text"] == "de"


# --- puzzles -------------------------------------------------------------------------------------------


def test_a_server_has_the_puzzles_too(open_page: Open) -> None:
    page = open_page("puzzle=10")
    card = page.locator("#puzzle")
    expect(card).to_contain_text("10 of 12")
    page.evaluate("() => { location.hash += '&muted=encoder.1.0~encoder.1.1~cross.1.1~cross.0.0~encoder.0.3'; }")
    expect(card.locator(".done")).to_contain_text("all ten dates are right", timeout=30_000)


def test_a_row_is_drawn_on_a_servers_page(open_page: Open) -> None:
    page = open_page("puzzle=3")
    slider = page.get_by_role("slider", name="Share of ‘7’, position 7")
    slider.focus()
    page.keyboard.press("End")
    answer(page).to_have_text("July 5, 1745")
    expect(page.locator("#puzzle .done")).to_contain_text("July 5, 1745")
    expect(slider).to_be_focused()
    expect(page.locator("#remark")).to_contain_text("a row drawn")


# --- training ------------------------------------------------------------------------------------------


def test_a_servers_page_trains_a_small_model_and_brings_the_servers_back(
    open_page: Open, context_of: Callable[..., BrowserContext], tmp_path: Path
) -> None:
    page = open_page()
    learn = forgotten(page)
    sent = context_of(offline=True).new_page()
    sent.goto(downloaded(page, "Download as a page", tmp_path / "model.html").as_uri())
    sent.wait_for_selector(".chip")
    filled(sent)
    answer(page).to_have_text(sent.locator("#answer").inner_text())
    answer(sent).not_to_have_text("January 5, 1845")
    sent.close()
    learn.get_by_role("button", name="Back to the trained model").click()
    answer(page).to_have_text("January 5, 1845")
    # a model that is too large for it is not offered to be trained, and choosing it ends a training
    page.locator("#learn-start").click()
    learn.get_by_role("button", name="Forget everything", exact=True).click()
    answer(page).not_to_have_text("January 5, 1845")
    page.locator("#model").select_option("en-fr")
    expect(learn).to_be_hidden()
    expect(page.locator("#learn-start")).to_be_hidden()
    page.locator("#model").select_option("dates")
    expect(page.locator("#learn-start")).to_be_visible()
    answer(page).to_have_text("January 5, 1845")
