"""The page of a training, in a real browser: what it shows is what the log says, during the run and afterwards."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import torch
from fastapi.testclient import TestClient
from playwright.sync_api import BrowserContext, Page, expect
from typer.testing import CliRunner

import seq2see
from conftest import PATIENCE
from seq2see.cli import app
from seq2see.errors import FolderError
from seq2see.inspection.alignment import sharpness
from seq2see.inspection.trace import record
from seq2see.serve import live
from seq2see.serve.live import RunFolder, create_live_app, find_run, watched
from seq2see.storage.folder import LOG, SHIPPED, Tokenizers
from seq2see.tokenizers.tokenizer import Tokenizer
from test_training import small_trainer

SETTINGS: dict[str, Any] = dict(steps=12, evaluate_every=3, checkpoint_every=12, average=1)
Open = Callable[..., Page]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of a few steps."""
    out = tmp_path_factory.mktemp("runs") / "few"
    trainer = small_trainer(out, **SETTINGS)
    for _ in trainer.steps():
        pass
    trainer.finish()
    trainer.write("card")
    return out


def log_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / LOG).read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def open_page(context_of: Callable[..., BrowserContext]) -> Iterator[Open]:
    """Open a page with eyes on it: no request may leave its server, nothing may be complained of."""
    faults: list[str] = []
    pages = []

    def open_(address: str, expected: str = "-", **settings: Any) -> Page:
        page = context_of(**{"viewport": {"width": 1280, "height": 900}, **settings}).new_page()
        pages.append(page)
        page.set_default_timeout(PATIENCE)
        home = address.partition("/live/")[0]

        def follow(request: Any) -> None:
            if not request.url.startswith((home, "data:")):
                faults.append(f"a request left the machine: {request.url}")

        def listen_to(message: Any) -> None:
            if message.type in {"error", "warning"} and expected not in message.text:
                faults.append(f"console: {message.text}")

        page.on("request", follow)
        page.on("console", listen_to)
        page.on("pageerror", lambda error: faults.append(f"error: {error}"))
        page.goto(address)
        return page

    yield open_
    for page in pages:
        page.close()
    assert not faults


def said(page: Page, chart: str, series: str) -> float:
    text = page.locator(f'#chart-{chart} [data-series="{series}"]').inner_text()
    return float(text.replace("−", "-").removesuffix("%").removesuffix(" tokens"))


def assert_shows(page: Page, line: dict[str, Any]) -> None:
    """Every number on the page is that line's of the log."""
    assert said(page, "loss", "training") == pytest.approx(line["loss"], abs=1e-5)
    assert said(page, "loss", "held out") == pytest.approx(line["validation_loss"], abs=1e-5)
    assert said(page, "score", "exact match") == pytest.approx(100 * line["exact_match"], abs=0.01)
    assert said(page, "rate", "learning rate") == pytest.approx(line["learning_rate"], rel=1e-3)
    for name, kind in (("cross-attention", "cross"), ("encoder", "encoder"), ("decoder", "decoder")):
        spread = torch.tensor(line["attention"]["tokens"][kind]).mean()
        assert said(page, "spread", name) == pytest.approx(float(spread), abs=0.01)
    rows = page.locator("#answers tbody tr")
    for number, (source, expected, given) in enumerate(line["samples"]):
        cells = rows.nth(number).locator("td").all_text_contents()
        assert cells[:3] == [source, given.rstrip(), expected]


# --- afterwards ----------------------------------------------------------------------------------------


def test_the_page_shows_what_the_log_says(open_page: Open, run: Path) -> None:
    log = log_of(run)
    assert [line["step"] for line in log] == [3, 6, 9, 12]
    with watched(run) as address:
        page = open_page(address)
        expect(page.locator("#state")).to_contain_text("Finished: step 12 of 12")
        expect(page.locator("#name")).to_have_text("few")
        assert_shows(page, log[-1])
        steps = page.locator("#chart-loss text").all_text_contents()
        assert [text for text in steps if text in {"0", "1", "2", "5", "10", "12"}] == ["1", "2", "5", "10"]
        points = page.locator(".curve").evaluate_all("curves => curves.map(curve => Number(curve.dataset.points))")
        assert points == [4] * 7  # two losses, one score, one rate, three attentions
        for index, line in enumerate(log):
            page.locator("#line").fill(str(index))
            expect(page.locator("#where")).to_contain_text(f"step {line['step']},")
            assert_shows(page, line)
        assert page.url.endswith("#step=12")


def test_no_label_of_an_axis_is_cut(open_page: Open) -> None:
    model = seq2see.load("dates").path  # its loss goes down to 10⁻⁷
    assert model
    with watched(model) as address:
        page = open_page(address, viewport={"width": 1400, "height": 900})
        expect(page.locator("#chart-loss svg")).to_be_visible()
        for width in (1400, 390):
            page.set_viewport_size({"width": width, "height": 900})
            begins = page.locator(".chart text").evaluate_all("texts => texts.map(text => text.getBBox().x)")
            assert min(begins) >= 0
        assert "1e−5" in page.locator("#chart-loss text").all_text_contents()
        assert "includes label smoothing and R-Drop" in page.locator("#chart-loss").inner_text()


@pytest.mark.heavy
def test_by_pointer_and_by_keyboard(open_page: Open, run: Path) -> None:
    log = log_of(run)
    with watched(run) as address:
        page = open_page(f"{address}#step=6")
        expect(page.locator("#where")).to_contain_text("step 6")
        chart = page.locator("#chart-loss svg")
        box = chart.bounding_box()
        assert box
        chart.hover(position={"x": box["width"] - 12, "y": 50})
        assert_shows(page, log[3])
        page.locator("h1").hover()
        assert_shows(page, log[1])
        page.focus("#line")
        page.keyboard.press("ArrowLeft")
        assert_shows(page, log[0])
        page.keyboard.press("Escape")
        assert_shows(page, log[3])
        expect(page.locator("#latest")).to_have_attribute("aria-pressed", "true")
        page.locator("#play").focus()
        page.keyboard.press("Enter")
        expect(page.locator("#play")).to_have_attribute("aria-label", "Pause")
        expect(page.locator("#play")).to_have_attribute("aria-label", "Play")  # it ends by itself, at the end
        assert_shows(page, log[3])


@pytest.mark.parametrize(
    "settings",
    [{"color_scheme": "dark"}, {"viewport": {"width": 390, "height": 844}, "reduced_motion": "reduce"}],
    ids=["dark", "narrow"],
)
def test_dark_and_narrow(open_page: Open, run: Path, settings: dict[str, Any]) -> None:
    with watched(run) as address:
        page = open_page(address, **settings)
        page.wait_for_selector(".curve")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        paper, ink = page.evaluate(
            "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
        )
    light, dark = (sum(map(int, re.findall(r"\d+", colour))) for colour in (paper, ink))
    assert (light > dark) == (settings.get("color_scheme") != "dark")


def test_a_log_without_attention_leaves_no_hole(open_page: Open) -> None:
    with watched(SHIPPED / "dates") as address:
        page = open_page(address)
        expect(page.locator(".chart:visible")).to_have_count(3)
        boxes = [chart.bounding_box() for chart in page.locator(".chart:visible").all()]
        assert boxes[2]["width"] > 1.8 * boxes[0]["width"]


# --- meanwhile -----------------------------------------------------------------------------------------


def test_lines_appear_while_the_run_goes_on(open_page: Open, tmp_path: Path) -> None:
    out = tmp_path / "running"
    trainer = small_trainer(out, **SETTINGS)
    with watched(out) as address:
        page = open_page(address)
        expect(page.locator("#state")).to_contain_text("the first line of the log follows after 3 steps")
        expect(page.locator("#waiting .facts div")).to_have_count(6)  # nothing to draw yet, but the page is not blank
        for step in trainer.steps():
            if step.line is not None:
                expect(page.locator("#where")).to_contain_text(f"step {step.step},")
        expect(page.locator("#state")).to_contain_text("all 12 steps are done")
        trainer.finish()
        trainer.write("card")
    # the end of the block waited until the page had heard of it
    expect(page.locator("#state")).to_contain_text("Finished: step 12 of 12")
    assert_shows(page, log_of(out)[-1])


def test_a_page_whose_server_has_gone_says_so(open_page: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "PATIENCE", 0)
    out = tmp_path / "stopped"
    small_trainer(out, **SETTINGS)
    with watched(out) as address:
        page = open_page(address, expected="ERR_CONNECTION")
        expect(page.locator("#state")).to_contain_text("the first line")
    expect(page.locator("#error")).to_contain_text("seq2see watch FOLDER")


@pytest.mark.heavy
def test_train_watch_prints_the_address(tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "seq2see", "train", "dates", "--watch", "--out", str(tmp_path / "w"), "--steps", "3",
        "--years", "2000-2003", "--count", "200", "--set", "training.batch_tokens=400", "--set",
        "training.evaluate_on=5",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert re.search(r"watch it at http://127\.0\.0\.1:\d+/live/", done.stderr)
    assert [line["step"] for line in log_of(tmp_path / "w")] == [1, 2, 3]  # the first steps can be seen too


@pytest.mark.parametrize(("host", "warned"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_watch_says_its_address_and_who_can_reach_it(host: str, warned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    ports = []

    def run(sockets: list[socket.socket]) -> None:
        (listener,) = sockets
        ports.append(listener.getsockname()[1])
        listener.close()

    monkeypatch.setattr(live, "_server", lambda folder, host: SimpleNamespace(run=run))
    done = CliRunner().invoke(app, ["watch", "dates", "--host", host, "--port", "0"])
    assert done.exit_code == 0
    assert f" at http://{host}:{ports[0]}/live/ " in done.stderr
    assert ("other machines can reach this page" in done.stderr) is warned


# --- the server ----------------------------------------------------------------------------------------


def test_new_lines_only_and_a_resumed_log_from_its_start(run: Path) -> None:
    with TestClient(create_live_app(RunFolder(run)), base_url="http://127.0.0.1") as client:
        told = client.get("/api/run").json()
        assert told["lines"] == log_of(run)
        assert (told["name"], told["steps"], told["finished"]) == ("few", 12, True)
        assert [line["step"] for line in client.get("/api/run?known=3").json()["lines"]] == [12]
        shrunk = client.get("/api/run?known=9").json()
        assert (shrunk["first"], len(shrunk["lines"])) == (0, 4)
        assert client.get("/api/run?known=-1").status_code == 422
        assert client.get("/", follow_redirects=False).headers["location"] == "/live/"
        page = client.get("/live/")
        assert "script-src 'self'" in page.headers["content-security-policy"]
        assert str(run) not in client.get("/api/run").text
    with TestClient(create_live_app(RunFolder(run)), base_url="http://elsewhere.example") as client:
        assert client.get("/api/run").status_code == 400


def test_half_a_line_and_a_loss_that_is_no_number(tmp_path: Path, run: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(run, broken)
    (broken / LOG).write_text('{"step": 1, "loss": NaN}\n{"step": 2, "lo', encoding="utf-8")
    assert RunFolder(broken).since(0)["lines"] == [{"step": 1, "loss": None}]


def test_a_folder_without_a_log_is_refused(tmp_path: Path, run: Path) -> None:
    assert find_run(run) == run
    assert find_run(Path("dates")).name == "dates"
    with pytest.raises(FolderError, match="nowhere"):
        find_run(tmp_path / "nowhere")
    shutil.copy(run / "config.toml", tmp_path)
    with pytest.raises(FolderError, match=r"no log\.jsonl"):
        find_run(tmp_path)


def test_the_model_that_ships_has_a_log_to_show(open_page: Open) -> None:
    """Its lines are older than some of the fields; what is not there is left out."""
    with watched(find_run(Path("dates"))) as address:
        page = open_page(address)
        expect(page.locator("#chart-loss .curve")).to_have_count(2)
        expect(page.locator("#state")).to_contain_text("Finished")
        httpx.get(address).raise_for_status()


# --- sharpness -----------------------------------------------------------------------------------------


def test_sharpness_counts_tokens_and_leaves_the_run_alone() -> None:
    tokenizers = Tokenizers.one(Tokenizer.characters())
    model = small_trainer(steps=1).model
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)  # every score is 0: each head spreads evenly
    model.train()
    before = torch.get_rng_state()
    seen = sharpness(model, tokenizers, "1845-01-05", "May 5, 1845")
    assert seen is not None
    assert model.training
    assert torch.equal(before, torch.get_rng_state())
    assert seen.tokens["cross"] == [[pytest.approx(12, abs=0.01)] * 4]  # of one layer
    assert seen.tokens["encoder"] == [[pytest.approx(12, abs=0.01)] * 4]
    rows = torch.arange(1, 13.0).log().mean().exp()  # row t of the decoder sees t + 1 tokens
    assert seen.tokens["decoder"][0] == [pytest.approx(float(rows), abs=0.01)] * 4
    trace = record(model, tokenizers, "1845-01-05", "May 5, 1845")
    assert (seen.source, seen.target) == (trace.source_tokens, trace.output_tokens)
    assert sharpness(model, tokenizers, "☃", "May") is None
