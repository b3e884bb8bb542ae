"""A page that watches a training: it reads the run's folder and nothing else, while the run goes on or afterwards."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import uvicorn
from fastapi import FastAPI, Query
from fastapi.responses import RedirectResponse
from fastapi.staticfiles import StaticFiles
from starlette.middleware.trustedhost import TrustedHostMiddleware

from seq2see import folder
from seq2see.errors import FolderError
from seq2see.serve.guard import Guard
from seq2see.serve.limits import Limits
from seq2see.serve.metrics import Metrics
from seq2see.serve.server import address_of, hosts_of, listen
from seq2see.training.loop import LOG

STATIC = Path(__file__).parent / "static"
HERE = "127.0.0.1"
LOOKED = 6.0  # seconds since a page last asked, within which somebody is taken to be watching
PATIENCE = 4.0  # seconds that the end of a training waits for its watchers to hear of it


class Run:
    """The folder of a training, as its watchers see it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.asked = -LOOKED
        self.told_of_end = threading.Event()

    def since(self, known: int) -> dict[str, Any]:
        """Tell the lines of the log from number ``known`` on, and whether the training has finished."""
        config = folder.read_config(self.path)
        finished = (self.path / folder.WEIGHTS).exists()  # looked at first: the log is then whole
        lines = self._lines()
        first = known if known <= len(lines) else 0  # a resumed run drops lines that it will write again
        return {
            "name": self.path.resolve().name,
            "task": config.task,
            "steps": config.training.steps,
            "evaluate_every": config.training.evaluate_every,
            "finished": finished,
            "quiet": time.time() - max(path.stat().st_mtime for path in (self.path, self.path / LOG)),
            "first": first,
            # A loss that is not a number is a thing to see, but not one that JSON can say.
            "lines": [json.loads(line, parse_constant=lambda name: None) for line in lines[first:]],
        }

    def _lines(self) -> list[str]:
        log = self.path / LOG
        text = log.read_text(encoding="utf-8") if log.exists() else ""
        return [line for line in text.split("\n")[:-1] if line]  # what has no end yet is still being written


def find_run(name: Path) -> Path:
    """Find the folder of a training, running or finished; a shipped model's by its name."""
    path = folder.find(name)
    if not (path / LOG).is_file():
        raise FolderError(f"{name} has no {LOG}: nothing says how it was trained.")
    return path


def create_live_app(run: Run, host: str = HERE) -> FastAPI:
    """Make the application that shows one run."""
    app = FastAPI(title="seq2see, training", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=hosts_of(host))
    app.add_middleware(Guard, limits=Limits(), metrics=Metrics())

    @app.get("/")
    async def home() -> RedirectResponse:
        return RedirectResponse("/live/")

    @app.get("/api/run")
    async def told(known: Annotated[int, Query(ge=0)] = 0) -> dict[str, Any]:
        """Tell what has happened in the run since line ``known``."""
        run.asked = time.monotonic()
        told = run.since(known)
        if told["finished"]:
            run.told_of_end.set()
        return told

    app.mount("/", StaticFiles(directory=STATIC, html=True), name="page")
    return app


def watch(path: Path, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Show a run until SIGINT or SIGTERM; ``ready`` is told the address."""
    listener = listen(host, port)
    ready(address_of(listener, host) + "live/")
    _server(Run(path), host).run(sockets=[listener])


@contextmanager
def watched(path: Path) -> Iterator[str]:
    """Show a run beside what is done in this block; what is given is the address of the page.

    At the end, those who are watching are given a moment to hear of it.
    """
    listener, run = listen(HERE, 0), Run(path)
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


def _server(run: Run, host: str) -> uvicorn.Server:
    config = uvicorn.Config(
        create_live_app(run, host), log_level="warning", access_log=False, server_header=False,
        timeout_graceful_shutdown=2,
    )  # fmt: skip
    return uvicorn.Server(config)
