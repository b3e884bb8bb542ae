"""How long the page takes to show a trace, in a real browser: from opening it, and from asking another text."""

from __future__ import annotations

import shutil
import statistics
import string
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from benchmarks.load import Server, running
from benchmarks.measure import Line
from seq2see.config import Config, ModelConfig, TrainingConfig
from seq2see.kernels.registry import network_of
from seq2see.seq2seq import Seq2Seq
from seq2see.storage.folder import Tokenizers
from seq2see.tokenizers.tokenizer import END, PAD, START, Tokenizer

TOKENS, VOCABULARY = 64, 37_000
LETTERS = string.ascii_letters + string.digits  # 62 of them: 64 tokens with <sos> and <eos>
TARGET = "0.2 s for a date, 1 s at base size"
#: The shell without windows takes 40 % of the processor time of the others.
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run",
]  # fmt: skip

#: Tells when the trace of a text is on the screen: the title names it, its answer stands there, no panel within the
#: window (``whole``: none at all) waits for its numbers, and a frame with all this has been painted.
WATCH = """
window.shown = (text, whole = false) => new Promise((done) => {
  const waits = (panel) => {
    const { top, bottom } = panel.getBoundingClientRect();
    return whole || (top < innerHeight && bottom > 0);
  };
  const look = () => {
    const ready = document.title.startsWith(`${text} →`) && document.querySelector(".panel")
      && document.querySelector("#answer").textContent && ![...document.querySelectorAll("[data-waiting]")].some(waits);
    if (ready) requestAnimationFrame(() => setTimeout(() => done(performance.now() / 1000)));
    else requestAnimationFrame(look);
  };
  look();
});
"""
ASK = """async ([text, panel]) => {
  performance.clearResourceTimings();
  if (panel) document.getElementById(panel).scrollIntoView();
  const input = document.querySelector("#text");
  input.value = text;
  const before = performance.now() / 1000;
  input.form.requestSubmit();
  const after = await window.shown(text);
  const whole = await window.shown(text, true);
  const calls = performance.getEntriesByType("resource").filter((entry) => entry.name.includes("/api/trace"));
  const [longest] = calls.sort((a, b) => b.duration - a.duration);
  return [after - before, whole - before, longest.duration / 1000, longest.encodedBodySize];
}"""


def browser_here() -> str | None:
    """Return the path of an installed Chromium, if there is one."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def missing_here() -> list[str]:
    """Name what this machine lacks to open a page."""
    needed = (("playwright", find_spec("playwright")), ("chromium", browser_here()))
    return [name for name, there in needed if not there]


def page(rounds: int) -> Line:
    """Measure a date, and a base-size model with 64 tokens on both sides, whose answers never end by themselves."""
    missing = missing_here()
    work = "from opening the page, and from asking, to the painted trace: all that is in the window"
    if missing:
        return Line("page", work, "pages", 1, {}, TARGET, missing)
    from playwright.sync_api import sync_playwright

    seconds: dict[str, list[float]] = {}
    notes = []
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser_here(), args=FLAGS)
        base = Path(name) / "base"
        _random_model(base)
        texts = {
            "dates": ["1845-01-05", "2025-09-03", "1426-08-10"],
            "base": [LETTERS, LETTERS[::-1], LETTERS[31:] + LETTERS[:31]],
        }
        with running("seq2see", "serve", "--model", "dates", "--model", str(base), "--port", "0") as server:
            for _ in range(rounds + 1):  # the first warms up
                for model, both in texts.items():
                    times, call, size = _turn(chromium, server, model, *both)
                    for what, spent in times.items():
                        seconds.setdefault(f"{model}, {what}", []).append(spent)
                    notes.append((model, call, size))
        chromium.close()
    told = [
        f"{model}: the server takes {statistics.median(call for name, call, _ in notes[2:] if name == model):.3f} s of "
        f"it and sends {max(size for name, _, size in notes if name == model) / 1e6:.2f} MB"
        for model in texts
    ]
    seconds = {who: times[1:] for who, times in seconds.items()}
    return Line("page", work, "pages", 1, seconds, TARGET, notes=told)


def _turn(
    browser: Any, server: Server, model: str, text: str, other: str, third: str
) -> tuple[dict[str, float], float, int]:
    """Open the page on a text, ask another, and one more while looking at heads; tell how the second was called."""
    with _new_page(browser) as page:
        page.goto(f"http://127.0.0.1:{server.port}/#all=true&model={model}&text={text}", wait_until="commit")
        opened = page.evaluate("text => window.shown(text)", text)
        page.wait_for_load_state("networkidle")  # some panels ask for more once they are there
        asked, whole, call, size = page.evaluate(ASK, [other, ""])
        page.wait_for_load_state("networkidle")
        at_heads = page.evaluate(ASK, [third, "cross"])[0]
        times = {"opened": opened, "asked": asked, "at heads": at_heads, "whole page": whole}
        return times, call, size


@contextmanager
def _new_page(browser: Any) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.add_init_script(WATCH)
    page = context.new_page()
    page.set_default_timeout(60_000)
    try:
        yield page
    finally:
        context.close()


def _random_model(path: Path) -> None:
    tokenizer = Tokenizer.characters([
        PAD, START, END, *LETTERS, *(f"t{n}" for n in range(VOCABULARY - 3 - len(LETTERS)))
    ])  # fmt: skip
    shape = ModelConfig(
        source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY, max_length=TOKENS, share_output=False, dropout=0.0
    )
    torch.manual_seed(1)
    transformer = network_of(shape).eval()
    with torch.no_grad():
        torch.nn.init.normal_(transformer.output.weight, std=0.2)
        transformer.output.bias[tokenizer.end] = -1e9
    Seq2Seq(Config("pairs", shape, TrainingConfig()), Tokenizers.one(tokenizer), transformer).save(path)


LINES: dict[str, Callable[[int], Line]] = {"page": page}
