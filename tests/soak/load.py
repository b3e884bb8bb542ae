"""Many clients ask all sorts of things for a long time: every answer is its question's own, and nothing grows."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import time
from pathlib import Path
from statistics import median
from typing import Any

from soak.inputs import drawn, right
from soak.server import Server, request
from soak.tally import Tally

MINUTES = 20
CLIENTS = 12
PAUSE = 0.12  # seconds between two questions of a client, on average: other proofs run beside this one
SAMPLES = 24  # of the memory
ROOM = 40  # MiB by which the memory may grow from the first half to the second
ENGLISH = ("Where is the train station?", "I lost my keys.", "It is raining.", "What time is it?", "Thank you.")


def run(tally: Tally, root: Path) -> None:
    """Ask for as long as the scale says, and look at the memory all the while."""
    seconds = max(3.0, MINUTES * 60 * tally.scale)
    models = ("dates", "en-fr") if seconds > 60 else ("dates",)
    server = Server(root, *models)
    french = {}
    if "en-fr" in models:
        for text in ENGLISH:
            _, body = server.post("/api/predict", {"model": "en-fr", "inputs": text})
            french[text] = json.loads(body)["answers"][0]["output"]
    for body in ({"beam": 3}, {"align": True}, {"beam": 2, "n_best": 2}, {}):  # what is made once is no leak
        server.post("/api/predict", {"inputs": ["1845-01-05"] * 20, **body})
        server.post("/api/trace", {"input": "1845-01-05", "also": ["lens"], "beam": 3})
    curve = asyncio.run(_crowd(server, tally, seconds, french))
    files, threads = server.files, server.threads
    tally.remarks.append(
        f"load: memory of the server in MiB, every {seconds / SAMPLES:.0f} s: {' '.join(map(str, curve))}; "
        f"{files} files and {threads} threads at the end"
    )
    early, late = median(curve[SAMPLES // 4 : SAMPLES // 2]), median(curve[-SAMPLES // 4 :])
    if late - early > ROOM or files > 64 or threads > 64:
        tally.fault("leaked", f"{early} → {late} MiB, {files} files and {threads} threads")
    if tally.outcomes["asked again"] > 10 + 0.005 * tally.tried["requests"]:
        tally.fault("lost", f"{tally.outcomes['asked again']} connections were closed before their answer")
    ended = server.end()
    if ended.status not in (0, -signal.SIGTERM) or "Traceback" in ended.said:
        tally.fault("crashed", f"the server ended with {ended.status}: {ended.said[-400:]}")


async def _crowd(server: Server, tally: Tally, seconds: float, french: dict[str, str]) -> list[int]:
    until, curve = time.monotonic() + seconds, list[int]()
    clients = [
        asyncio.create_task(_client(server.port, tally, random.Random(tally.draw.random()), until, french))
        for _ in range(CLIENTS)
    ]
    for _ in range(SAMPLES):
        await asyncio.sleep(seconds / SAMPLES)
        curve.append(server.memory)
    await asyncio.gather(*clients)
    return curve


async def _client(port: int, tally: Tally, draw: random.Random, until: float, french: dict[str, str]) -> None:
    writer: asyncio.StreamWriter | None = None
    while time.monotonic() < until:
        await asyncio.sleep(draw.uniform(0, 2 * PAUSE))
        try:
            if writer is None or draw.random() < 0.02 or writer.is_closing():
                if writer is not None:
                    writer.close()
                reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 26)
            path, body, expected = _question(draw, french)
            data = request(path, body)
            if draw.random() < 0.01:  # hang up in the middle
                writer.write(data[: len(data) // 2])
                writer.close()
                tally.add("requests", "hung up on")
                continue
            writer.write(data)
            status, answer = await asyncio.wait_for(_answer(reader), 120)
        except TimeoutError:
            tally.fault("hung", "a request was not answered within 120 s")
            writer = None
            continue
        except (OSError, asyncio.IncompleteReadError):  # an idle connection may be closed at any time
            tally.add("requests", "asked again")
            writer = None
            continue
        _judge(tally, path, body, expected, status, answer)
    if writer is not None:
        writer.close()


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length:")[1].split()[0])
    return int(head.split()[1]), await reader.readexactly(length)


def _question(draw: random.Random, french: dict[str, str]) -> tuple[str, dict[str, Any], list[str | None]]:
    """Draw a request, and the answers that are right."""
    way = draw.random()
    if way < 0.02:
        return "/api/trace", {"input": "1845-01-05", "names": ["encoder.*weights"]}, []
    if way < 0.03:
        return "/api/trace", {"input": "1845-01-05", "also": ["lens"], "beam": 3}, []
    if way < 0.04:
        return "/api/predict", {"inputs": [1, 2], "nonsense": True}, []
    if way < 0.043 and french:
        text = draw.choice(list(french))
        return "/api/predict", {"model": "en-fr", "inputs": [text]}, [french[text]]
    texts = [drawn(draw) for _ in range(draw.choice([1, 1, 1, 4, 20]))]
    texts = [text for text in texts if len(text) <= 2000 and text.isprintable()] or ["2025-09-03"]
    body: dict[str, Any] = {"inputs": texts, "probabilities": draw.random() < 0.3}
    if draw.random() < 0.05:
        body |= {"beam": draw.choice([2, 3])}
    if draw.random() < 0.03:
        body |= {"align": True}
    return "/api/predict", body, [right(text) for text in texts]


def _judge(
    tally: Tally, path: str, body: dict[str, Any], expected: list[str | None], status: int, answer: bytes
) -> None:
    wanted = 422 if "nonsense" in body else 200
    if status != wanted:
        tally.fault("lost", f"{path} {str(body)[:200]} got {status} {answer[:200]!r}")
        return
    tally.add("requests", "refused" if status == 422 else "answered")
    if not expected:
        return
    for text, should, one in zip(body["inputs"], expected, json.loads(answer)["answers"], strict=True):
        if one["input"] != text or one.get("output") != should or (should is None) != bool(one.get("error")):
            tally.fault("wrong", f"{text!r} became {one}")
    tally.tried["texts"] += len(expected)
