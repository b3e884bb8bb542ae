"""The page as a file: size, first paint, time from a key press; beside the frozen file and ONNX Runtime Web."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.measure import Line
from benchmarks.page import FLAGS, WATCH, browser_here, missing_here
from seq2see.page.describe import describe_model
from seq2see.page.live import live_page
from seq2see.page.single_file import single_file
from seq2see.seq2seq import load

TEXTS = {
    "dates": ("1845-01-05", ["2025-09-03", "1426-08-10"]),
    "en-fr": ("Where is the train station?", ["She doesn't want to go home.", "Could you speak more slowly?"]),
}
SENTENCE = "The old man who lived near the river sold bread and milk to the children ,"
LONG = (60, 120)  # words
LONGEST = """
window.longest = 0;
new PerformanceObserver((list) => {
  for (const { duration } of list.getEntries()) window.longest = Math.max(window.longest, duration);
}).observe({ type: "longtask", buffered: true });
"""
#: From the key press that submits a text to the answer, and to every panel of the page.
ASK = """async (text) => {
  const input = document.querySelector("#text");
  const before = document.querySelector("#answer").textContent;
  input.value = text;
  const start = performance.now();
  input.form.requestSubmit();
  const answer = document.querySelector("#answer");
  const waits = () => answer.textContent === before || answer.matches(".writing, :has(.coming)");
  while (waits()) await new Promise(requestAnimationFrame);
  const answered = performance.now() - start;
  await window.shown(text, true);
  return [answered / 1000, (performance.now() - start) / 1000];
}"""
#: Plays the answer from its first token to its last; the milliseconds from each frame to the next, and the longest task.
PLAY = """async () => {
  const [slider, play, frames] = [document.querySelector("#step"), document.querySelector("#play"), []];
  slider.value = 0;
  slider.dispatchEvent(new Event("input"));
  await new Promise((resolve) => setTimeout(resolve, 2000)); // the page is at rest
  window.longest = 0;
  play.click();
  for (let last = 0; play.ariaLabel === "Pause";) {
    const now = await new Promise(requestAnimationFrame);
    if (last) frames.push(now - last);
    last = now;
  }
  return [frames, window.longest];
}"""
#: Starts ONNX Runtime Web and answers greedily by the files that `seq2see export --to onnx` writes.
ONNX = """async ({ source, start, end, limit }) => {
  const begun = performance.now();
  const ort = await import("/ort/ort.wasm.min.mjs");
  ort.env.wasm.numThreads = 1;
  ort.env.wasm.wasmPaths = "/ort/";
  const [encoder, decoder] = await Promise.all(["encoder", "decoder"].map((name) => ort.InferenceSession.create(`/model/${name}.onnx`)));
  const started = performance.now() - begun;
  const ids = (numbers, shape) => new ort.Tensor("int64", BigInt64Array.from(numbers, BigInt), shape);
  const answer = async () => {
    const real = new ort.Tensor("bool", new Uint8Array(source.length).fill(1), [1, source.length]);
    const keys = await encoder.run({ source: ids(source, [1, source.length]), real });
    let past = {};
    for (const name of decoder.inputNames.filter((each) => each.startsWith("past"))) {
      const [, , heads, width] = keys[name.replace("past", "source")].dims;
      past[name] = new ort.Tensor("float32", new Float32Array(0), [1, 0, heads, width]);
    }
    const found = [start];
    while (found.at(-1) !== end && found.length <= limit) {
      const { logits, ...all } = await decoder.run({ token: ids(found.slice(-1), [1, 1]), position: ids([found.length - 1], [1]), real, ...keys, ...past });
      found.push(logits.data.indexOf(logits.data.reduce((a, b) => Math.max(a, b))));
      past = Object.fromEntries(Object.entries(all).map(([name, value]) => [name.replace("all", "past"), value]));
    }
    return found.slice(1);
  };
  await answer();
  const before = performance.now();
  const found = await answer();
  return { started: started / 1000, seconds: (performance.now() - before) / 1000, found };
}"""  # noqa: E501


def page_file(rounds: int) -> Line:
    """Open each file afresh, ask two more texts by key press, and answer the same text by ONNX Runtime Web."""
    work = "the page as a file: from opening it to its first paint, and from a key press to all panels"
    missing = missing_here()
    line = Line("page-file", work, "pages", 1, {}, "dates 400 KB, en-fr 35 MB; no task over 100 ms", missing)
    if missing:
        return line
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        sizes = _write(folder)
        line.details["bytes"] = sizes
        chromium = playwright.chromium.launch(executable_path=browser_here(), args=FLAGS)
        longest: dict[str, float] = {}
        for turn in range(rounds + 1):  # the first warms up
            for file in sizes:
                found, task = _opened(chromium, folder / file, *TEXTS[file.split()[0]])
                for what, seconds in found.items() if turn else ():
                    line.seconds.setdefault(f"{file.removesuffix('.html')}, {what}", []).append(seconds)
                longest[file] = max(longest.get(file, 0), task)
        line.details["longest_task_ms"] = longest
        for words in LONG:
            _long(chromium, folder / "en-fr live.html", words, line)
        _onnx(chromium, folder, rounds, line)
        chromium.close()
    line.notes += [
        f"{file}: {line.details['bytes'][file] / 1e6:.3g} MB, longest task {longest[file]:.0f} ms" for file in sizes
    ]
    return line


def page_play(rounds: int) -> Line:
    """Play the answer of the date model's file; keep the seconds of a frame and the longest task of the page's thread."""
    missing = missing_here()
    work = "the flight of the date model's page while its answer is played: seconds of a frame"
    line = Line("page-play", work, "frames", 1, {}, "60 frames a second; no task over 50 ms", missing)
    if missing:
        return line
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        file = Path(name) / "dates.html"
        file.write_text(live_page("dates", load("dates"), TEXTS["dates"][0]), encoding="utf-8")
        chromium = playwright.chromium.launch(executable_path=browser_here(), args=FLAGS)
        for _ in range(rounds):
            context = chromium.new_context(viewport={"width": 1280, "height": 900}, offline=True)
            context.add_init_script(LONGEST)
            page = context.new_page()
            page.goto(f"{file.as_uri()}#step=0")
            page.wait_for_function("() => document.querySelector('#play') && !document.querySelector('[data-waiting]')")
            frames, longest = page.evaluate(PLAY)
            context.close()
            line.seconds.setdefault("a frame", []).append(statistics.mean(frames) / 1000)
            line.notes.append(
                f"{1000 / statistics.mean(frames):.1f} frames a second, the longest {max(frames):.0f} ms; "
                f"{'no task over 50 ms' if not longest else f'longest task {longest:.0f} ms'}"
            )
        chromium.close()
    return line


def _long(browser: Any, file: Path, words: int, line: Line) -> None:
    """Ask a long text, scroll through all panels, compare it; keep the seconds and the longest task of the page's thread.

    The processor time of a task does not depend on what else the machine does; its duration does.
    """
    text = " ".join((SENTENCE.split() * words)[:words])
    context = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True)
    context.add_init_script(WATCH)
    page = context.new_page()
    page.set_default_timeout(120_000)
    record = file.with_name("trace.json")
    try:
        page.goto(f"{file.as_uri()}#all=true&step=0", wait_until="commit")
        page.evaluate("text => window.shown(text, true)", TEXTS["en-fr"][0])
        browser.start_tracing(page=page, path=record, categories=["toplevel", "blink.user_timing"])
        page.evaluate("performance.mark('here')")
        seconds = page.evaluate(ASK, text)
        height = page.evaluate("document.documentElement.scrollHeight")
        for _ in range(0, height, 700):
            page.mouse.wheel(0, 700)
            page.wait_for_timeout(50)
        page.fill("#against", text.replace("milk", "cheese"))
        page.keyboard.press("Enter")
        page.wait_for_selector("#difference tbody tr:nth-child(2)")
        browser.stop_tracing()
    finally:
        context.close()
    events = json.loads(record.read_bytes())["traceEvents"]
    here = next((one["pid"], one["tid"]) for one in events if one["name"] == "here")
    tasks = [
        one for one in events if one["name"] == "ThreadControllerImpl::RunTask" and (one["pid"], one["tid"]) == here
    ]
    for what, value in zip(("answer", "all panels"), seconds, strict=True):
        line.seconds.setdefault(f"en-fr live, {words} words to {what}", []).append(value)
    busy, wall = (max(one.get(key, 0) for one in tasks) / 1000 for key in ("tdur", "dur"))
    line.details[f"longest_task_of_{words}_words_ms"] = {"processor": busy, "duration": wall}
    line.notes.append(
        f"en-fr, {words} words: {height:,} px high, longest task {busy:.0f} ms of processor time ({wall:.0f} ms in all)"
    )


def _write(folder: Path) -> dict[str, int]:
    """Write the file of each model with the model inside, and frozen as it was before, and return their sizes."""
    for name, (text, _) in TEXTS.items():
        model = load(name)
        description = describe_model(name, model.config, model.card, model.path)
        (folder / f"{name} live.html").write_text(live_page(name, model, text), encoding="utf-8")
        (folder / f"{name} frozen.html").write_text(single_file(description, model.trace(text)), encoding="utf-8")
    return {path.name: path.stat().st_size for path in sorted(folder.glob("*.html"))}


def _opened(browser: Any, file: Path, text: str, others: list[str]) -> tuple[dict[str, float], float]:
    """Open a file, and ask more texts if it answers; return the seconds of each part, and the longest task in ms."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True)
    context.add_init_script(WATCH + LONGEST)
    page = context.new_page()
    page.set_default_timeout(60_000)
    try:
        page.goto(f"{file.as_uri()}#all=true&step=0&text={text}", wait_until="commit")
        opened = page.evaluate("text => window.shown(text)", text)
        paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime / 1000")
        found = {"first paint": paint, "opened": opened}
        if "live" in file.name:
            page.evaluate(ASK, others[0])  # the weights are read by then
            found["key press to answer"], found["key press to all panels"] = page.evaluate(ASK, others[1])
        return found, page.evaluate("window.longest")
    finally:
        context.close()


def _onnx(browser: Any, folder: Path, rounds: int, line: Line) -> None:
    """Answer the same texts by ONNX Runtime Web, if npm can bring it and the model can be exported."""
    npm = shutil.which("npm")
    if npm is None or not find_spec("onnxruntime"):
        line.left_out.append("ONNX Runtime Web (npm and the extra onnx)")
        return
    install = [npm, "install", "--silent", "--no-fund", "--no-audit", "--prefix", str(folder), "onnxruntime-web"]
    if subprocess.run(install, capture_output=True, check=False).returncode:
        line.left_out.append("ONNX Runtime Web (npm cannot bring it)")
        return
    from seq2see.interchange.to_onnx import export

    package = folder / "node_modules" / "onnxruntime-web" / "dist"
    line.details["onnx_runtime_bytes"] = (package / "ort-wasm-simd-threaded.wasm").stat().st_size
    for name, (_, others) in TEXTS.items():
        model, served = load(name), folder / f"onnx {name}"
        served.mkdir()
        (served / "ort").symlink_to(package)
        export(served / "model", model.config, model.transformer, model.tokenizers, [others[0]])
        line.details[f"onnx_{name}_bytes"] = sum(path.stat().st_size for path in (served / "model").glob("*.onnx"))
        (served / "index.html").write_text("<!doctype html><title>onnx</title>", encoding="utf-8")
        source = model.tokenizers.source.encode(others[1])
        rules = model.config.decoding
        body = {
            "source": source, "start": model.tokenizers.target.start, "end": model.tokenizers.target.end,
            "limit": rules.limit(len(source), model.config.model.max_length),
        }  # fmt: skip
        with _serving(served) as address:
            for _ in range(rounds):
                page = browser.new_page()
                page.goto(address)
                told = page.evaluate(ONNX, body)
                page.close()
                line.seconds.setdefault(f"{name} ONNX Runtime Web, start", []).append(told["started"])
                line.seconds.setdefault(f"{name} ONNX Runtime Web, answer", []).append(told["seconds"])
                assert model.tokenizers.target.decode(told["found"]) == model(others[1])
        size = (line.details["onnx_runtime_bytes"] + line.details[f"onnx_{name}_bytes"]) / 1e6
        start = statistics.median(line.seconds[f"{name} ONNX Runtime Web, start"])
        line.notes.append(
            f"{name} by ONNX Runtime Web: {size:.3g} MB, starts in {start:.2f} s; it shows no number inside"
        )


@contextmanager
def _serving(folder: Path) -> Iterator[str]:
    """Serve a folder on this machine: a module and WebAssembly cannot be fetched from a disk."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


LINES: dict[str, Callable[[int], Line]] = {"page-file": page_file, "page-play": page_play}
