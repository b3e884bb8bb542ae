"""Serves the page that shows a training. It reads the folder of the run and nothing else, during the run or later."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query
from fastapi.responses import RedirectResponse
from fastapi.staticfiles import StaticFiles

from seq2see.errors import FolderError
from seq2see.files import plain_file, read_text
from seq2see.page import STATIC
from seq2see.serve.batching import Limits
from seq2see.serve.guard import Guard, Metrics
from seq2see.serve.server import Server, address_of, configured, hosts_of, listen
from seq2see.storage import folder

HERE = "127.0.0.1"
LOOKED = 6.0  # seconds after its last request in which a page counts as open
PATIENCE = 4.0  # seconds that a finished training waits for open pages


class RunFolder:
    """The folder of a training, as the page shows it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.asked = -LOOKED
        self.told_of_end = threading.Event()

    def since(self, known: int) -> dict[str, Any]:
        """Return the lines of the log from number ``known`` on, and whether the training has finished."""
        config = folder.read_config(self.path)
        # This is checked before the log is read, so that the log of a finished run is complete.
        finished = (self.path / folder.WEIGHTS).exists()
        lines = self._lines()
        first = known if known <= len(lines) else 0  # a resumed run removes lines that it will write again
        return {
            "name": self.path.resolve().name,
            "task": config.task,
            "model": {**vars(config.model), "parameters": config.model.parameters},
            "steps": config.training.steps,
            "evaluate_every": config.training.evaluate_every,
            "finished": finished,
            "quiet": time.time() - max(path.stat().st_mtime for path in (self.path, self.path / folder.LOG)),
            "first": first,
            # A loss may be NaN or infinite, which JSON cannot express: it becomes null.
            "lines": [_record(line) for line in lines[first:]],
        }

    def _lines(self) -> list[str]:
        log = self.path / folder.LOG
        text = read_text(log, folder.LARGEST_LOG) if log.exists() else ""
        return [line for line in text.split("\n")[:-1] if line]  # a line without an end is still being written


def _record(line: str) -> dict[str, Any]:
    try:
        record = json.loads(line, parse_constant=lambda name: None)
    except (ValueError, RecursionError):
        return {}  # a line that was cut short when its writer was killed
    return record if isinstance(record, dict) else {}


def find_run(name: Path) -> Path:
    """Find the folder of a training, running or finished. A shipped model is found by its name."""
    path = folder.find(name)
    if not (path / folder.LOG).is_file():
        raise FolderError(f"{name} has no {folder.LOG}, so there is no training to show.")
    plain_file(path / folder.LOG, folder.LARGEST_LOG)
    return path


def create_live_app(run: RunFolder, host: str = HERE) -> FastAPI:
    """Make the application that shows one run."""
    app = FastAPI(title="seq2see, training", docs_url=None, redoc_url=None, openapi_url=None)
    app.state.metrics = metrics = Metrics()
    app.add_middleware(Guard, metrics=metrics, hosts=hosts_of(host))

    @app.get("/")
    async def home() -> RedirectResponse:
        return RedirectResponse("/live/")

    @app.get("/api/run")
    async def news(known: Annotated[int, Query(ge=0)] = 0) -> dict[str, Any]:
        """Return what has happened in the run since line ``known``."""
        run.asked = time.monotonic()
        found = run.since(known)
        if found["finished"]:
            run.told_of_end.set()
        return found

    app.mount("/", StaticFiles(directory=STATIC, html=True), name="page")
    return app


def watch(path: Path, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Show a run until SIGINT or SIGTERM; ``ready`` gets the address."""
    listener = listen(host, port)
    ready(address_of(listener, host) + "live/")
    _server(RunFolder(path), host).run(sockets=[listener])


@contextmanager
def watched(path: Path) -> Iterator[str]:
    """Show a run while this block runs; the value of the block is the address of the page.

    At the end the server stays for a moment, so that open pages learn that the training has finished.
    """
    listener, run = listen(HERE, 0), RunFolder(path)
    server = _server(run, HERE)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield address_of(listener, HERE) + "live/"
        if time.monotonic() - run.asked < LOOKED:
            run.told_of_end.wait(PATIENCE)
    finally:
        server.should_exit = True
        thread.join()


def _server(run: RunFolder, host: str) -> Server:
    app = create_live_app(run, host)
    return Server(configured(app, Limits(), timeout_graceful_shutdown=2), app.state.metrics)
