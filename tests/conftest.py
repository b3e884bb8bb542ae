"""Small models, pairs and a browser that many tests share."""

from __future__ import annotations

import gc
import os
import re
import resource
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import typer.testing
from hypothesis import settings
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect, sync_playwright

from seq2see.cli import output
from seq2see.config import Config, ModelConfig, TrainingConfig
from seq2see.kernels.ensemble import Ensemble
from seq2see.kernels.registry import network_of
from seq2see.model.transformer import Transformer
from seq2see.seq2seq import Seq2Seq
from seq2see.storage.folder import Tokenizers
from seq2see.tokenizers.tokenizer import Tokenizer

os.environ["OMP_NUM_THREADS"] = "1"  # for the commands that tests run beside each other
#: Exports of large models are kept for the next run, but not among those of the user.
os.environ["XDG_CACHE_HOME"] = str(Path(__file__).parent.parent / "build" / "cache")

# Torch and the packages of the tests are millions of objects that live to the end: they are not looked through again and
# again while tests are imported, nor by each collection of garbage afterwards.
gc.disable()

# A test that calls a command builds all commands first, which takes a tenth of a second: they are built once.
typer.testing._get_command = cache(typer.testing._get_command)  # type: ignore[attr-defined]

# A busy machine takes longer over an example: that is no fault of the code.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
THOROUGH = bool(os.environ.get("THOROUGH"))  # as in `make verify`
PATIENCE = 60_000  # milliseconds that a page may take over anything
expect.set_options(timeout=PATIENCE / 2)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Try a test that fails in the browser once more, since a busy machine may draw a page late.

    The last lines of a run name each test that needed it (RERUN).
    """
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True, scope="module")
def _kept() -> None:
    """What earlier files have imported stays, too: no collection of garbage visits it again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def _few_threads() -> None:
    torch.set_num_threads(1)  # small models: a second thread costs more than it brings


@pytest.fixture(autouse=True)
def _new_consoles() -> None:
    """A console measures its terminal when it is made; each test has a terminal of its own."""
    output._made.cache_clear()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    # Not at the top: `python tests/test_folder.py` does not find it.
    from benchmarks.page import FLAGS, browser_here

    path = browser_here()
    assert path, "The page is tested in Chromium, which is not installed: apt-get install chromium."
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def context_of(browser: Browser) -> Callable[..., BrowserContext]:
    """One context for each group of settings: a page opens there in half the time of a page in a new context.

    Our pages keep nothing in the browser's storage, so no test sees what another one did.
    """
    made: dict[str, BrowserContext] = {}

    def context(**settings: Any) -> BrowserContext:
        key = repr(sorted(settings.items()))
        if key not in made:
            made[key] = browser.new_context(**settings)
        return made[key]

    return context


def forgotten(page: Page) -> Locator:
    """Let the page of dates forget everything and take one step of training; return its panel."""
    page.locator("#learn-start").click()
    learn = page.locator("#learn")
    learn.get_by_role("button", name="Forget everything", exact=True).click()
    expect(learn.locator("[role=status]")).to_contain_text("Everything is forgotten")
    expect(page.locator("#answer")).not_to_have_text("January 5, 1845")
    learn.get_by_role("button", name="One step").click()
    expect(learn.locator("[role=status]")).to_contain_text(re.compile(r"Step 1 of 800, loss \d"))
    return learn


def downloaded(page: Page, button: str, path: Path) -> Path:
    """Press a button of the training's panel, and keep what it downloads."""
    with page.expect_download() as saved:
        page.locator("#learn").get_by_role("button", name=button).click()
    saved.value.save_as(path)
    return path


def examples(count: int) -> int:
    """Return how many examples Hypothesis makes up: all of them in `make verify`, a fourth in `make test`."""
    return count if THOROUGH else count // 4


def sweep(values: Iterable[Any], keep: int) -> list[Any]:
    """Return the parameters of a test: `make test` tries the first ``keep`` of them, `make verify` tries all."""
    return [
        value
        if number < keep
        else pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.heavy)
        for number, value in enumerate(values)
    ]


def small_model(seed: int = 0, **settings: object) -> Transformer:
    """A random model in which every size differs, so that a mix-up of dimensions cannot go unseen."""
    torch.manual_seed(seed)
    shape: dict[str, object] = dict(
        source_vocabulary=11, target_vocabulary=13, d_model=12, heads=3, d_k=5, d_v=7, d_ff=17, encoder_layers=2,
        decoder_layers=3, max_length=40, share_embeddings=False, share_output=False,
    )  # fmt: skip
    model = network_of(ModelConfig.of(**{**shape, **settings}))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return model.eval()


def several_models() -> Seq2Seq:
    """A random ensemble for the letters a to j, the last of three members from right to left.

    Its members answer bcd otherwise than all together. Member 0 answers ee as all do, member 1 does not.
    """
    letters = Tokenizer.characters(["<pad>", "<sos>", "<eos>", "<unk>", *"abcdefghij"])
    config = ModelConfig.of(
        source_vocabulary=letters.size, target_vocabulary=letters.size, d_model=16, heads=2, d_ff=16, encoder_layers=1,
        decoder_layers=1, max_length=12, members=3, backward=1, share_embeddings=False, share_output=False,
    )  # fmt: skip
    torch.manual_seed(3)
    network = network_of(config)
    assert isinstance(network, Ensemble)
    for member in network.all:
        member.output.weight.data *= 2
        member.output.bias.data[letters.end] += 1.2  # some answers come to their end
    made = Seq2Seq(Config("pairs", config, TrainingConfig()), Tokenizers.one(letters), network.eval())
    together = made.predict(["bcd", "ee"])
    each = [[made.trace(text, member=number).output for text in ("bcd", "ee")] for number in (0, 1)]
    assert together[0] not in (each[0][0], each[1][0])
    assert together[1] == each[0][1] != each[1][1]
    return made


@contextmanager
def small_disk(size: int) -> Iterator[None]:
    """Let no file grow beyond a size: a write is cut there, and the next one fails, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
