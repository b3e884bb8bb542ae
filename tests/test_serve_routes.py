"""The largest requests that the checks accept, on every route: each ends in its time, and nothing is left at work."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute

import seq2see
from benchmarks.load import wait_for
from seq2see.answering.options import Options
from seq2see.seq2seq import Seq2Seq
from seq2see.serve.answers import Cost
from seq2see.serve.app import create_app
from seq2see.serve.batching import Limits
from seq2see.serve.server import Server, configured, listen


def silent(address: str, body: dict[str, Any]) -> None:
    """Ask, and take whatever comes."""
    with suppress(httpx.HTTPError):
        httpx.post(address, json=body, timeout=120)


LIMITS = Limits(seconds=2.0)
LATE = 25.0  # seconds that the last piece of work may take on a busy machine
WORDS = "the cat saw a dog and "


@pytest.fixture(scope="module")
def models() -> dict[str, Seq2Seq]:
    return {"en-fr": seq2see.load("en-fr"), "dates": seq2see.load("dates")}


@contextmanager
def served(models: dict[str, Seq2Seq]) -> Iterator[tuple[FastAPI, str]]:
    """Serve in a thread; at the end the server is told to end, and must do so in its time."""
    app, listener = create_app(models, LIMITS), listen("127.0.0.1", 0)
    settings = configured(app, LIMITS, timeout_graceful_shutdown=int(LIMITS.seconds))
    server = Server(settings, app.state.metrics, workers=app.state.workers)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    wait_for(listener.getsockname()[1])
    try:
        yield app, f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True  # what SIGTERM sets
        thread.join(LIMITS.seconds + LATE)
        assert not thread.is_alive(), "the server goes on after SIGTERM"


def largest(model: Seq2Seq) -> dict[str, list[dict[str, Any]]]:
    """Return large requests by path: as much work as the checks accept, in each way to ask for it."""
    long = (WORDS * 100)[:2000]
    cost = Cost(model.answerer, Options(beam=16), again=True)(long * 2)
    many = [f"{number} {long}"[:2000] for number in range(int(LIMITS.work / cost))]
    patched = {"patches": [{"input": WORDS * 25, "name": "encoder.memory", "row": 1}]}
    page = "<p>It is late." * 1300
    return {
        "/api/page": [{"model": "dates"}],
        "/api/predict": [
            {"inputs": many, "beam": 16, "align": True, "pattern": ".{300,400}"},
            {"inputs": many, "beam": 16, "whole": True},
            {"inputs": [page], "format": "html", "glossary": {f"cat{n}": "chat" for n in range(9000)}},
        ],
        "/api/text": [
            *[{"input": "It is late. " * times} for times in (3000, 80_000)],
            {"input": "<p>a" * 50_000, "format": "html"},
        ],
        "/api/trace": [
            {"input": "a", "prefix": [5] * 613, "beam": 16, "names": ["x"]},
            {"input": WORDS * 60, "muted": [{"attention": "cross", "layer": 1, "head": 3}], "beam": 16, "names": ["x"]},
            {"input": WORDS * 25, "prefix": [5], "names": ["x"], **patched},
            {"input": long[:600], "glossary": {"cat": "chat"}, "names": ["x"]},
        ],
    }  # fmt: skip


def ask(address: str, body: dict[str, Any]) -> int:
    """Ask, and leave an answer that comes piece by piece when a request's time is over."""
    began = time.monotonic()
    with httpx.stream("POST", address, json=body, timeout=120) as reply:
        for _ in reply.iter_bytes():
            if time.monotonic() - began > LIMITS.seconds and "ndjson" in reply.headers["content-type"]:
                break
        return reply.status_code


def test_on_every_route_the_largest_request_ends_in_its_time(models: dict[str, Seq2Seq]) -> None:
    slowest, asked = 0.0, largest(models["en-fr"])
    with served(models) as (app, address), httpx.Client(base_url=address, timeout=120) as client:
        posts = [route for route in app.routes if isinstance(route, APIRoute) and "POST" in route.methods]
        assert {route.path for route in posts} == {*asked}
        for path in ("/", "/healthz", "/metrics", "/api/models", "/api/openapi.json"):
            assert client.get(path).status_code == 200
        for path, body in [(path, body) for path, bodies in asked.items() for body in bodies]:
            with ThreadPoolExecutor(1) as pool:
                began, which = time.monotonic(), f"{path} {str(body)[:80]}"
                reply = pool.submit(ask, address + path, body)
                while not reply.done() or any(worker.working for worker in app.state.workers):
                    before = time.monotonic()
                    assert client.get("/healthz").status_code == 200
                    slowest = max(slowest, time.monotonic() - before)
                    assert before - began < LIMITS.seconds + LATE, f"a thread goes on: {which}"
                    time.sleep(0.05)
                assert reply.result() in {200, 503}, which
    assert slowest < 3


MANY = {f"{number:x}": 0 for number in range(90_000)}


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        *[(path, MANY, "values") for path in ("/api/predict", "/api/page", "/api/text", "/api/trace")],
        ("/api/predict", dict(list(MANY.items())[:40_000]), "0: there is no such key"),
        ("/api/predict", {"inputs": "a", "glossary": dict(list(MANY.items())[:40_000])}, "term 1 has neither"),
        ("/api/predict", {"inputs": [""] * 300_000}, "values"),
        ("/api/trace", {"input": "a", "drawn": dict(list(MANY.items())[:40_000])}, "0: there is no such key"),
    ],
)
def test_a_request_of_many_values_is_refused_at_once(
    models: dict[str, Seq2Seq], path: str, body: dict[str, Any], message: str
) -> None:
    """Eight clients sent an object of 124,000 keys: /healthz waited 5 to 10 s for a list of as many messages."""
    data, slowest = json.dumps(body, separators=(",", ":")).encode(), 0.0
    headers = {"content-type": "application/json"}
    with served({"dates": models["dates"]}) as (_, address), ThreadPoolExecutor(8) as pool:
        replies = [pool.submit(httpx.post, address + path, content=data, headers=headers, timeout=60) for _ in range(8)]
        with httpx.Client(base_url=address, timeout=60) as client:
            while not all(reply.done() for reply in replies):
                before = time.monotonic()
                assert client.get("/healthz").status_code == 200
                slowest = max(slowest, time.monotonic() - before)
        for reply in replies:
            assert reply.result().status_code in {422, 503}
            if reply.result().status_code == 422:
                assert message in reply.result().json()["error"]
                assert len(reply.result().json()["error"]) < 200
    assert slowest < 3


def test_a_server_with_long_work_under_way_ends(models: dict[str, Seq2Seq]) -> None:
    with served(models) as (app, address):
        for body in largest(models["en-fr"])["/api/trace"][1:3]:
            threading.Thread(target=silent, args=(f"{address}/api/trace", body), daemon=True).start()
        while not any(worker.working for worker in app.state.workers):
            time.sleep(0.01)
