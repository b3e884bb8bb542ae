"""Texts of every sort: each is answered rightly or refused with a reason, in its place, whatever stands beside it."""

from __future__ import annotations

import json
import random
import threading
from calendar import month_name
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any

from soak.child import Ended, Fork
from soak.child import run as run_command
from soak.tally import Tally

TEXTS, LINES = 1_000_000, 100_000  # through the API; through the command
OTHERS = {"human-dates": 2000, "en-fr": 40}  # through the API, of models that take any text
THREADED = 20_000  # in threads that share a model
THREADS = 3
FEW = 8  # texts for which these models are not loaded
AT_ONCE = 25_000  # texts of a process
WORDS = (
    "I", "you", "he", "the", "house", "is", "was", "not", "want", "to", "go", "home", "where", "5th", "March", "1999",
)  # fmt: skip
ODD = [
    "", " ", "\u00a0", "\u200b", "\ufeff", "\u2028", "\u2029", "\x85", "\x0b", "\u202e1845-01-05", "\r", "\t", "<sos>",
    "<eos><pad>", "<0x00>", "%s%n", "${x}", "[bold]x[/bold]", ":cat:", "\x1b[31m", "\x1b]0;t\x07", "NaN", "null", "-1",
    "--help", "\U000e0001", "\U0010ffff", "\ufffd", "\ufffe", "１８４５-０１-０５", "٢٠٢٤-٠١-٠١", "1845–01–05",
    "1845-02-30", "0999-01-01", "10000-01-01", "1845-1-5", "1845-01-05 ", " 1845-01-05", "1845-01-05\x00",
    "1900-02-29", "2000-02-29",
]  # fmt: skip
CLUSTERS = [
    "🏳️\u200d🌈", "👨\u200d👩\u200d👧\u200d👦", "กำ", "ǆ", "ﷺ", "Ⅷ", "İ", "ß", "ﬃ", "한글", "Ω", "Å", "מְזוּזָה",
    "नमस्ते", "ཀྵ",
]  # fmt: skip


def drawn(draw: random.Random) -> str:
    """Make a text: three of ten are dates, the others nearly dates, odd, long, or of any characters."""
    kind = draw.randrange(20)
    if kind < 6:
        return date.fromordinal(draw.randrange(365243, 3652059)).isoformat()
    if kind < 10:
        near = list(date.fromordinal(draw.randrange(365243, 3652059)).isoformat())
        for _ in range(draw.randint(1, 2)):
            near[draw.randrange(10)] = draw.choice(["", _character(draw), str(draw.randrange(10)), "-"])
        return "".join(near)
    if kind < 12:
        return "".join(_character(draw) for _ in range(draw.randint(0, 40)))
    if kind == 12:
        return chr(draw.randrange(0xD800, 0xE000)) + "1845-01-05"
    if kind == 13:
        return "a" + "".join(chr(draw.randrange(0x300, 0x370)) for _ in range(draw.randint(1, 200)))
    if kind == 14:
        return "".join(chr(draw.randrange(32)) for _ in range(draw.randint(0, 20)))
    if kind == 15:
        return draw.choice(CLUSTERS) * draw.randint(1, 30)
    if kind == 16:
        return "a" * draw.choice([39, 40, 41, 63, 64, 65, 170, 171, 500, 5000])
    if kind == 17:
        return " ".join(draw.choices(WORDS, k=draw.randint(1, 12))) + "."
    return draw.choice(ODD)


def _character(draw: random.Random) -> str:
    return chr(draw.choice((draw.randrange(0x80), draw.randrange(0x800), draw.randrange(0x110000))))


def right(text: str) -> str | None:
    """Return the answer to a date, or None where a refusal is right."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return None
    if day.isoformat() != text or day.year < 1000:
        return None
    return f"{month_name[day.month]} {day.day}, {day.year}"


def run(tally: Tally, root: Path) -> None:
    """Answer texts by the library, then lines by the command."""

    def try_(action: Callable[[int, float], dict[str, Any]], count: int) -> None:
        seed = tally.draw.random()
        _judge(tally, Fork(lambda: action(count, seed), root / "log", patience=900).wait())

    for count in _parts(tally.share(TEXTS)):
        try_(_by_library, count)
    for name, full in OTHERS.items():
        if (count := tally.share(full, 0)) >= FEW:
            try_(partial(_twice, name), count)
    try_(_in_threads, tally.share(THREADED, 3 * 20))
    for count in _parts(tally.share(LINES)):
        _by_command(tally, root, count)


def _parts(count: int) -> list[int]:
    """Cut a number of texts into those of one process each."""
    return [min(AT_ONCE, count - start) for start in range(0, count, AT_ONCE)]


def _judge(tally: Tally, ended: Ended) -> None:
    if ended.fault is not None:
        tally.fault(*ended.fault)
        return
    for name, count in ended.returned["outcomes"].items():
        tally.add("texts", name, count)
    for message in ended.returned["wrong"]:
        tally.fault("wrong", message)


# --- the library -------------------------------------------------------------------------------------------------


def _by_library(count: int, seed: float) -> dict[str, Any]:
    """Answer texts in batches of any size, with and without probabilities, and one by one."""
    import seq2see

    model, draw = seq2see.load("dates"), random.Random(seed)
    outcomes: Counter[str] = Counter()
    wrong: list[str] = []
    while count > 0:
        texts = [drawn(draw) for _ in range(min(count, draw.choice([1, 2, 3, 50, 400, 2000])))]
        count -= len(texts)
        if len(texts) == 1:
            found = [_single(model, texts[0])]
        elif draw.random() < 0.1:
            found = [_read(answer, wrong) for answer in model.answers(texts)]
        else:
            wanted = [text for text in texts if right(text) is not None]
            refused = [answer.output for answer in model.answers([t for t in texts if right(t) is None])]
            given, rest = iter(model.predict(wanted) if wanted else []), iter(refused)
            found = [next(given) if right(text) is not None else next(rest) for text in texts]
        for text, answer in zip(texts, found, strict=True):
            outcomes["refused" if answer is None else "answered"] += 1
            if answer != right(text):
                wrong.append(f"dates: {text!r} became {answer!r}")
    return {"outcomes": outcomes, "wrong": wrong[:50]}


def _single(model: Any, text: str) -> str | None:
    from seq2see.errors import InputError

    try:
        return model(text)
    except InputError:
        return None


def _read(answer: Any, wrong: list[str]) -> str | None:
    """Return an answer's text; numbers of it that are none, and a refusal without a reason, are wrong."""
    if answer.output is None:
        if not answer.error:
            wrong.append(f"{answer.input!r} is refused without a reason")
    elif not isfinite(answer.log_probability or 0) or not all(0 <= one.probability <= 1 for one in answer.tokens):
        wrong.append(f"{answer.input!r} has probabilities that are none")
    return answer.output


def _twice(name: str, count: int, seed: float) -> dict[str, Any]:
    """Answer texts that the model was never meant for, then again in other company: the answers are the same."""
    import seq2see

    model, draw = seq2see.load(name), random.Random(seed)
    texts, wrong = [drawn(draw) for _ in range(count)], list[str]()
    first = [_read(answer, wrong) for answer in model.answers(texts)]
    order = draw.sample(range(count), count)
    second = [_read(answer, wrong) for answer in model.answers([texts[place] for place in order])]
    for place, answer in zip(order, second, strict=True):
        if answer != first[place]:
            wrong.append(f"{name}: {texts[place]!r} became {first[place]!r}, and in other company {answer!r}")
    refused = sum(answer is None for answer in first)
    return {"outcomes": {"answered": count - refused, "refused": refused}, "wrong": wrong[:50]}


def _in_threads(count: int, seed: float) -> dict[str, Any]:
    """Let threads share a model while one of them traces and mutes heads: nobody else gets to see that."""
    import seq2see
    from seq2see.inspection.trace import mute_head

    model, wrong, ended = seq2see.load("dates"), list[str](), threading.Event()

    def ask(number: int) -> None:
        draw = random.Random(f"{seed} {number}")
        for _ in range(count // (THREADS * 20)):
            texts = [date.fromordinal(draw.randrange(365243, 3652059)).isoformat() for _ in range(20)]
            for text, answer in zip(texts, model.predict(texts), strict=True):
                if answer != right(text):
                    wrong.append(f"beside a trace {text!r} became {answer!r}")

    def trace() -> None:
        while not ended.is_set():
            model.trace("1845-01-05", edit={"decoder.layers.0.cross_attention.z": mute_head(0)})

    tracer = threading.Thread(target=trace)
    tracer.start()
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(ask, range(THREADS)))
    ended.set()
    tracer.join()
    return {"outcomes": {"answered in threads": count // (THREADS * 20) * THREADS * 20}, "wrong": wrong[:50]}


# --- the command -------------------------------------------------------------------------------------------------


def _line(draw: random.Random) -> bytes:
    """Make a line of a file: a text, sometimes with bytes that are not UTF-8, without a break within."""
    data = drawn(draw).encode("utf-8", "surrogatepass")
    if draw.random() < 0.1:
        at = draw.randint(0, len(data))
        data = data[:at] + draw.randbytes(draw.randint(1, 4)) + data[at:]
    return data.replace(b"\n", b"?")


def _by_command(tally: Tally, root: Path, count: int) -> None:
    lines, out = [_line(tally.draw) for _ in range(count)], root / "answers.jsonl"
    lines[tally.draw.randrange(count)] = tally.draw.choice([b"1", "é".encode(), b"\0", b"\xff", b"no "]) * 300_000
    out.unlink(missing_ok=True)
    (root / "lines.txt").write_bytes(b"\n".join(lines) + b"\n")
    arguments = ("predict", "--file", root / "lines.txt", "--json", "--out", out)
    ended = run_command(*arguments, log=root / "log", patience=900)
    if ended.fault is not None:
        tally.fault(*ended.fault)
        return
    found = [json.loads(line) for line in out.read_bytes().decode().split("\n")[:-1]] if out.exists() else []
    if len(found) != count:
        tally.fault("lost", f"{len(found):,} answers to {count:,} lines")
        return
    for number, (data, record) in enumerate(zip(lines, found, strict=True)):
        data = data.removesuffix(b"\r")
        text = (data.removeprefix(b"\xef\xbb\xbf") if number == 0 else data).decode("utf-8", "surrogateescape")
        if record["input"] != text.encode(errors="replace").decode():
            tally.fault("wrong", f"line {number + 1} is answered in the place of another: {record}")
        if record.get("output") != right(text) or ("output" in record) == bool(record.get("error")):
            tally.fault("wrong", f"dates by the command: {text!r} became {record}")
    answered = sum("output" in record for record in found)
    tally.add("lines", "answered", answered)
    tally.add("lines", "refused", count - answered)
