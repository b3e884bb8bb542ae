"""Patterns and documents that are made to take long: each is answered or refused in time, and nobody else waits."""

from __future__ import annotations

import json
import random
import threading
import time
from pathlib import Path
from typing import Any

from soak.clients import slack
from soak.server import Server
from soak.tally import Tally

REQUESTS = 600
TIMES = 10  # that each known one is sent
HELD = 0.1  # seconds of the server's own work in which one in a hundred may wait for its health
ROOM = 700  # MiB by which the server may grow
#: Those that were found by hand.
KNOWN: list[dict[str, Any]] = [
    {"pattern": "((((a{1,50}){1,50}){1,50}){1,50})"},
    {"pattern": ".*a.{12}"},
    {"format": "html", "inputs": ["<b>" * 33_000] * 9},
    {"format": "html", "inputs": ["<p>a" + " " * 30_000 + "b</p>"]},
    {"format": "html", "inputs": ["<p>a" + " \t" * 30_000 + "b</p>"]},
    {"format": "markdown", "inputs": ["a" + " " * 60_000 + "b"]},
    {"format": "markdown", "inputs": ["![" * 30_000]},
    {"format": "markdown", "inputs": ["[^" * 30_000]},
    {"format": "markdown", "inputs": ["x".join("`" * size for size in range(1, 400))]},
    {"format": "markdown", "inputs": ["---\n" + "a: b\n" * 19_000]},
]
PIECES = {
    "text": [
        "a ",
        " ",
        "\t",
        "> ",
        "- ",
        "1. ",
        "a. ",
        '"',
        "“",
        ". ",
        "a\n",
        "\n",
        "<b>",
        "</b>",
        "a_",
        "a.",
        "a@",
        "\\",
        "/a",
        "{",
        "[",
        "$",
        "%",
        "&",
        "'",
        "A1",
        "1 ",
        "...",
        "`",
        "http://",
        "é",
        "\ufeff",
        "\x0b",
    ],
    "html": [
        "<b>",
        "</b>",
        "<p>",
        "</p>",
        "<li>",
        "<",
        "</",
        "<!--",
        "<!",
        "<?",
        "<?php ",
        "&",
        "&#",
        "&a",
        " \t",
        "\n ",
        "a ",
        "a. ",
        "<a b=",
        "<a b='",
        "<script>",
        "<code>",
        "</code>",
        "<li translate=no>",
        "&eacute;",
        "&copy;",
        "&nbsp;",
        "<title>",
        "<br>",
    ],
    "markdown": [
        "a",
        " ",
        "a ",
        "a. ",
        "`",
        "![",
        "[^",
        "[",
        "]",
        "](",
        "*",
        "**",
        "_",
        "~~",
        "$",
        "<a",
        "> ",
        "- ",
        "  - ",
        "1. ",
        "#",
        "|",
        "|a|b|\n",
        "|-|-|\n",
        "\\",
        "[a]: b\n",
        "a\n",
        "\n",
        "```\n",
        "<div>\n",
        "&a",
        "a  \n",
        "(",
        ")",
        "=\n",
    ],
    "srt": ["1\n00:00:01,000 --> 00:00:02,000\n", "a\n", "- a\n", "\n", "{\\b1}", "<i>", "1\n"],
    "po": [
        'msgid "a b"\n',
        'msgstr ""\n',
        '""\n',
        '"a b"\n',
        "#\n",
        'msgid_plural "c"\n',
        'msgstr[0] ""\n',
        '"\\n"\n',
        "\n",
    ],
    "json": [
        '"a b", ',
        '"\\u00e9 b", ',
        '"\\ud800", ',
        "[], ",
        '"a b\\n", ',
        '"<b>a b</b>", ',
        '{"a": "b c"}, ',
        "0, ",
    ],
}


def pattern(draw: random.Random, depth: int = 4) -> str:
    """Draw a pattern, mostly of repetitions of repetitions."""
    if depth == 0:
        return draw.choice(["a", "b", ".", "[ab]", r"\d", r"\w", "", "é", "(?=a)", "(?!.*b)"])
    inner = [pattern(draw, depth - 1) for _ in range(draw.randint(1, 3))]
    most = draw.choice([2, 9, 50, 300, 9999])
    times = draw.choice(["*", "+", "?", f"{{1,{most}}}", f"{{{most}}}", "{0,}", f"{{0,{most}}}?", ""])
    return f"(?:{draw.choice(['', '|']).join(inner)}){times}"


def body(draw: random.Random) -> dict[str, Any]:
    """Draw a request."""
    if draw.random() < 0.4:
        return {"inputs": ["1845-01-05"], "pattern": pattern(draw)[:1000]}
    form = draw.choice(list(PIECES))
    texts = []
    for _ in range(draw.choice([1, 1, 3, 9])):
        some = draw.sample(PIECES[form], draw.randint(1, 3))
        size = draw.choice([100, 2000, 30_000, 99_000])
        text = draw.choice(["", "a", some[0]]) + ("".join(some) * (size // len("".join(some)) + 1))[:size]
        texts.append(f"[{text.rpartition(', ')[0]}]" if form == "json" else text)
    return {"inputs": texts, "format": form}


class Watch:
    """Asks for the health of a server, again and again, and notes how long each answer takes.

    ``held`` has the processor time of the server in each wait: others may keep the machine busy.
    """

    def __init__(self, server: Server) -> None:
        self.server, self.waits, self.held, self.stopped = (server, list[float](), list[float](), threading.Event())
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        while not self.stopped.wait(0.005):
            began, worked = time.monotonic(), self.server.worked
            status, _ = self.server.get("/healthz")
            self.waits.append(time.monotonic() - began if status == 200 else 1e9)
            self.held.append(min(self.waits[-1], self.server.worked - worked))

    def stop(self) -> None:
        self.stopped.set()
        self.thread.join()


def run(tally: Tally, root: Path) -> None:
    """Send hostile requests one after the other to a server whose health is watched."""
    server = Server(root, "dates", quick=True)
    server.post("/api/predict", {"inputs": ["1845-01-05"], "pattern": "May [0-9]+, 2000"})
    memory, waits, held = server.memory, list[float](), list[float]()
    for one in KNOWN:
        known = {"inputs": ["1845-01-05"]} | one
        ways = [("/api/predict", known)]
        if "format" in known and len(known["inputs"]) == 1:
            ways.append(("/api/text", {"input": known["inputs"][0], "format": known["format"]}))
        for path, asked in ways:
            found = [_ask(tally, server, path, asked) for _ in range(tally.share(TIMES))]
            took, health = max(one[0] for one in found), [wait for one in found for wait in one[1].waits]
            tally.remarks.append(
                f"hostile: {path} {json.dumps(asked)[:60]}: {took:.2f} s at most, /healthz {_told(health)}"
            )
            waits += health
            held += [wait for one in found for wait in one[1].held]
    for asked in [body(tally.draw) for _ in range(tally.share(REQUESTS, 10))]:
        path = "/api/predict"
        if "format" in asked and len(asked["inputs"]) == 1 and tally.draw.random() < 0.5:
            path, asked = "/api/text", {"input": asked["inputs"][0] or "a", "format": asked["format"]}
        _, watch = _ask(tally, server, path, asked)
        waits += watch.waits
        held += watch.held
    tally.remarks.append(f"hostile: /healthz waited {_told(waits)}")
    tally.remarks.append(f"hostile: the server was at work in these waits {_told(held)}")
    if late(held) > HELD:
        tally.fault("hung", f"the server keeps /healthz waiting for {_told(held)}")
    if server.memory > memory + ROOM:
        tally.fault("leaked", f"the server grew from {memory} to {server.memory} MiB")
    began = time.monotonic()
    ended = server.end()
    if ended.status not in (0, -15) or "Traceback" in ended.said:
        tally.fault("crashed", f"the server ended with {ended.status}: {ended.said[-400:]}")
    if time.monotonic() - began > server.limits.seconds + slack():
        tally.fault("hung", f"the server ended {time.monotonic() - began:.0f} s after SIGTERM")


#: Of a request, by its status; 413 is for one of more than a million bytes.
OUTCOMES = {200: "answered", 413: "refused", 422: "refused", 503: "out of time"}


def _ask(tally: Tally, server: Server, path: str, asked: dict[str, Any]) -> tuple[float, Watch]:
    """Send one request; return how long it took, and how the server's health was meanwhile."""
    watch, began = Watch(server), time.monotonic()
    status, answer = server.post(path, asked)
    seconds = time.monotonic() - began
    watch.stop()
    told = f"{json.dumps(asked)[:150]} got {status} {answer[:150]!r} after {seconds:.1f} s"
    if status not in OUTCOMES or (path == "/api/predict" and not answer.startswith(b"{")):
        tally.fault("crashed", told)
    elif seconds > server.limits.seconds + slack() and path == "/api/predict":
        tally.fault("hung", told)
    if max(watch.waits, default=0) > slack() / 10:
        tally.fault("hung", f"/healthz waited {max(watch.waits):.1f} s while {told}")
    tally.add("hostile requests", OUTCOMES.get(status, "faulty"))
    return seconds, watch


def late(waits: list[float]) -> float:
    """Return the 99th percentile."""
    return sorted(waits)[int(0.99 * len(waits))] if waits else 0.0


def _told(waits: list[float]) -> str:
    """Say how long waits were."""
    if not waits:
        return "was not asked"
    return (
        f"{1000 * sorted(waits)[len(waits) // 2]:.0f} ms in the median, {1000 * late(waits):.0f} ms at the 99th "
        f"percentile, {1000 * max(waits):.0f} ms at most, of {len(waits):,}"
    )
