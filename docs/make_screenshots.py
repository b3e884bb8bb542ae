"""Take the pictures of the page again, in Chromium: ``python docs/make_screenshots.py``.

``python docs/make_screenshots.py DIR`` writes a picture of every panel and of every stop of the tour into a folder, to be
looked at: light, dark, and as wide as a telephone.
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote

import uvicorn
from PIL import Image
from playwright.sync_api import Page, sync_playwright

import seq2see
from seq2see.page.live import live_page
from seq2see.serve.app import create_app
from seq2see.serve.server import listen
from seq2see.storage.folder import write_atomically

PICTURES = Path(__file__).parent / "pictures"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
WIDE: dict[str, Any] = {"viewport": {"width": 1280, "height": 860}}
NARROW: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2}
CELL = "kind=cross&layer=1&head=1&step=7&pin=decoder.layers.1.cross_attention.weights~1~7~9"
SENTENCE = (
    "model=en-fr&text=Where+is+the+train+station?&kind=cross&layer=1&head=7&step=3"
    "&pin=decoder.layers.1.cross_attention.weights~7~3~5"
)

LETTER = (
    "Dear Mr. Miller,\n\nThank you for your letter of 3 May. The bill comes to $23.50. Please call 555-123-4567 "
    "if anything is not clear.\n\nWHERE IS THE HOSPITAL?\n\nBest regards,\nAnna"
)

#: Name of the picture, the view in the address, the panel at its top, the browser's settings.
SHOTS: list[tuple[str, str, str, dict[str, Any]]] = [
    ("top", "step=12", "", {**WIDE, "reduced_motion": "reduce"}),
    ("looks", "step=0&shows=looks", "", {**WIDE, "reduced_motion": "reduce"}),
    ("zoom", "step=12&zoom=1.3.2", "", {**WIDE, "reduced_motion": "reduce"}),
    ("embedding", "pin=encoder.embedding.sum~-1~3~4", "embedding", WIDE),
    ("heads", CELL, "cross", WIDE),
    ("head", CELL, "head", {"viewport": {"width": 1280, "height": 1250}}),
    ("layer", "part=decoder.feed_forward&pin=decoder.layers.0.feed_forward.hidden~-1~5~40", "layer", WIDE),
    ("probabilities", "all=true&step=3", "probabilities", WIDE),
    ("beams", "all=true&beam=4", "beams", WIDE),
    ("lens", "all=true&step=3", "lens", {"viewport": {"width": 1280, "height": 960}}),
    ("compare", "all=true&muted=cross.1.3", "compare", {"viewport": {"width": 1280, "height": 1000}}),
    ("tour", "tour=2", "", {**WIDE, "reduced_motion": "reduce"}),
    ("tour-off", "tour=6", "", {**WIDE, "reduced_motion": "reduce"}),
    ("en-fr", SENTENCE, "", WIDE),
    ("text", f"model=en-fr&sentence=2&text={quote(LETTER)}", "", WIDE),
    ("en-fr-head", SENTENCE, "head", {"viewport": {"width": 1280, "height": 1100}}),
    ("dark", "step=12&muted=cross.1.3", "", {**WIDE, "color_scheme": "dark", "reduced_motion": "reduce"}),
    ("narrow", "step=12", "", NARROW),
]


def shrunk(data: bytes) -> bytes:
    """Reduce a picture to 256 colours, so that the repository stays small."""
    out = io.BytesIO()
    Image.open(io.BytesIO(data)).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(out, "png", optimize=True)
    return out.getvalue()


def take(page: Page, address: str, view: str, panel: str) -> bytes:
    """Open a view, bring a panel to the top, and photograph the window."""
    page.goto(f"{address}#{view}")
    page.wait_for_selector(".chip")
    page.wait_for_selector("body:not(:has([data-waiting]))")
    page.wait_for_load_state("networkidle")
    if panel:
        page.evaluate("id => document.getElementById(id).scrollIntoView()", panel)
    if "tour" in view:  # the reader has guessed
        page.locator("#tour .guess").first.click()
    page.wait_for_timeout(1500)
    page.wait_for_load_state("networkidle")  # what comes into sight may be fetched first
    page.wait_for_timeout(300)
    return page.screenshot()


#: Each look at the page: the browser's settings.
LOOKS: dict[str, dict[str, Any]] = {
    "wide": {"viewport": {"width": 1440, "height": 900}},
    "light": {"viewport": {"width": 1280, "height": 720}},
    "dark": {"viewport": {"width": 1280, "height": 720}, "color_scheme": "dark"},
    "narrow": {"viewport": {"width": 390, "height": 844}},
}
STOPS = 6  # of the tour


def everything(out: Path) -> None:
    """Photograph every panel and every stop of the tour, of the file of ``dates``."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = Path(folder) / "dates.html"
        file.write_text(live_page("dates", seq2see.load("dates"), "1845-01-05"), encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for look, settings in LOOKS.items():
            context = browser.new_context(**settings, reduced_motion="reduce", offline=True)
            page = context.new_page()
            # on a telephone the arithmetic covers the lower part
            cell = CELL.split("&pin=")[0] if look == "narrow" else CELL
            page.goto(f"{file.as_uri()}#{cell}&against=2025-09-28")
            page.wait_for_selector("body:not(:has([data-waiting])) #difference tr")
            for panel in page.locator("#flow .panel").evaluate_all("panels => panels.map(({ id }) => id)"):
                page.evaluate("id => document.getElementById(id).scrollIntoView()", panel)
                page.wait_for_timeout(1500)
                page.screenshot(path=out / f"{look}-{panel}.png")
            for stop in range(1, STOPS + 1):
                page = context.new_page()
                page.goto(f"{file.as_uri()}#tour={stop}")
                page.wait_for_selector("#tour .guess")
                page.wait_for_timeout(1500)
                page.screenshot(path=out / f"{look}-tour-{stop}.png")
                page.locator("#tour .guess").first.click()
                page.wait_for_timeout(1500)
                page.screenshot(path=out / f"{look}-tour-{stop}-shown.png")
                page.close()
            context.close()
        browser.close()


def main() -> None:
    """Serve the models that ship, and take every picture."""
    listener = listen("127.0.0.1", 0)
    models = {name: seq2see.load(name) for name in ("dates", "en-fr")}
    server = uvicorn.Server(uvicorn.Config(create_app(models), log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    address = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
            for name, view, panel, settings in SHOTS:
                page = browser.new_context(**settings).new_page()
                write_atomically(PICTURES / f"page-{name}.png", shrunk(take(page, address, view, panel)))
            browser.close()
    finally:
        server.should_exit = True
        thread.join()


if __name__ == "__main__":
    everything(Path(sys.argv[1])) if len(sys.argv) > 1 else main()
