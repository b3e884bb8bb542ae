"""Corrupt data files: every command that reads pairs says in a sentence what is wrong, and where."""

from __future__ import annotations

import csv
import gzip
import io
import json
import lzma
import random
import shutil
from pathlib import Path

from soak.child import run as run_command
from soak.tally import Tally

FILES = 300
WORDS = ("the", "a", "one", "red", "cat", "dog", "runs", "sleeps", "under", "near", "house", "tree", "river", "slowly")
NASTY = [
    "\ud800", "\x00", "\u2028", "\u0301" * 300, "\x1b]0;owned\x07", "🏳️\u200d🌈", "\ufeff", '"', "'", "\t", "\r", ",",
    ";", "\\", "a" * 30_000, " ", "\u00a0", "<eos>", "NaN", "1e999", "[red]", "\x85",
]  # fmt: skip
ROWS = [
    "[" * 15_000, '{"a":' * 3000, "null", "1", '{"source":1,"target":2}', '{"source":"a"}', "{", "9" * 5000, "{}",
    '{"source":"\\ud800","target":"x"}', '{"source":{"a":"b"},"target":["x"]}', '{"source": NaN, "target": "x"}',
]  # fmt: skip
TRAINING = ("--steps", 2, "--preset", "tiny", "--set", "training.batch_tokens=256", "--set", "training.evaluate_on=1")


def run(tally: Tally, root: Path) -> None:
    """Give each file to `doctor`, and to a command that learns from it or measures with it."""
    for number in range(tally.share(FILES, 3)):
        seed = tally.draw.random()
        path = _made(random.Random(seed), root)
        kinds = ([], ["--tokenizer", "bpe"], ["--tokenizer", "words"], ["--strict"])
        out = root / "run"
        shutil.rmtree(out, ignore_errors=True)
        second = [
            ("train", path, "--out", out, *TRAINING, *tally.draw.choice(kinds)),
            ("evaluate", path, "--model", "dates"),
            ("score", path, "--model", "dates"),
        ][number % 3]
        for arguments in (("doctor", path), second):
            ended = run_command(*arguments, log=root / "log")
            if ended.fault is not None:
                sort, message = ended.fault
                tally.fault(sort, f"{arguments[0]} {path.name} (seed {seed}): {message}")
            tally.add("commands", "accepted" if ended.status == 0 else "refused")
        tally.tried["files"] += 1
        path.unlink()


def _made(draw: random.Random, root: Path) -> Path:
    """Write a file of pairs with faults in its texts, in its form, and in its packing."""
    kind = draw.choice(["tsv", "csv", "jsonl", "txt"])
    data = _changed(draw, _pairs(draw, kind))
    packing = draw.choice(["", "", "", ".gz", ".xz"])
    if packing:
        data = (gzip if packing == ".gz" else lzma).compress(data)
        data = _changed(draw, data) if draw.random() < 0.7 else data
    path = root / f"pairs.{kind}{packing}"
    path.write_bytes(data)
    return path


def _pairs(draw: random.Random, kind: str) -> bytes:
    pairs = []
    for _ in range(draw.choice([0, 1, 3, 60, 600])):
        source = " ".join(draw.choices(WORDS, k=draw.randint(1, 6)))
        pairs.append([source, " ".join(reversed(source.upper().split()))])
    for _ in range(draw.choice([0, 0, 1, 3, 10]) if pairs else 0):
        pair, side = draw.choice(pairs), draw.randrange(2)
        at = draw.randint(0, len(pair[side]))
        pair[side] = pair[side][:at] + draw.choice(NASTY) + pair[side][at:]
    if kind == "jsonl":
        lines = [json.dumps(dict(zip(("source", "target"), pair, strict=True))) for pair in pairs]
        for _ in range(draw.choice([0, 0, 1, 2])):
            lines.insert(draw.randint(0, len(lines)), draw.choice(ROWS))
        return "\n".join(lines).encode("utf-8", "surrogatepass")
    text = io.StringIO()
    if kind == "csv":
        csv.writer(text).writerows(pairs)
    else:
        text.write("\n".join("\t".join(pair) for pair in pairs))
    return text.getvalue().encode("utf-8", "surrogatepass")


def _changed(draw: random.Random, given: bytes) -> bytes:
    """Change, drop, repeat or add some bytes."""
    data = bytearray(given)
    for _ in range(draw.choice([0, 0, 1, 2, 10, 50])):
        at = draw.randint(0, len(data))
        way = draw.randrange(6)
        if way == 0:
            data[at : at + 1] = draw.randbytes(1)
        elif way == 1:
            data[at : at + draw.randint(1, 40)] = b""
        elif way == 2:
            data[at:at] = draw.randbytes(draw.randint(1, 20))
        elif way == 3:
            data[at:at] = draw.choice([b"\t", b"\n", b"\r\n", b'"', b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b","])
        elif way == 4:
            data[at:at] = data[at : at + 200]
        elif draw.random() < 0.3:
            del data[at:]
    return bytes(data)
