"""A large file through `seq2see predict --file`, beside the bare search: ids in, ids out, on the same GPU.

    python -m benchmarks gpu-file [--lines 1000000] [--beams 1,4] [--store]        prints one JSON object a line
    python -m benchmarks gpu-file --stub [--lines 20000]                           without a GPU

Lines of 5 to 40 words out of the vocabulary of a shipped model, each answered as one input. The command is timed from its
start to its end, captures and all, with the most memory that it held. The bare search is timed, warm, on some of
the lines, batched as `predict` batches them. Status 1: a figure has fallen by a fifth against gpu_figures.json.

With --stub an engine that answers at once takes the place of the search. What is left is CPU time a line: all of it
in one process, as for a small file, and with the search in a process of its own.
"""

from __future__ import annotations

import random
import resource
import subprocess
import sys
import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import figures
from seq2see.answering.options import Options
from seq2see.cli.answering import Asked, Unsure, Writer, answer_all, lines_of
from seq2see.cli.apart import Apart
from seq2see.seq2seq import Seq2Seq, load

MODEL = "en-fr"
WORDS = (5, 40)  # of a line
SAMPLE = 40_000  # lines of the bare search


def words_of(model: Seq2Seq) -> list[str]:
    """Return the whole words among the tokens of a model's source."""
    tokens = (model.tokenizers.source.plain(token) for token in model.tokenizers.source.vocabulary())
    return sorted({token.strip() for token in tokens if token.strip().isalpha() and len(token.strip()) > 2})


def write_lines(path: Path, model: Seq2Seq, count: int, seed: int = 0) -> None:
    """Write random lines."""
    draw, words = random.Random(seed), words_of(model)
    with path.open("w", encoding="utf-8") as file:
        for _ in range(count):
            file.write(" ".join(draw.choices(words, k=draw.randint(*WORDS))) + "\n")


def bare_seconds(model: Seq2Seq, lines: list[str], beam: int) -> tuple[float, float]:
    """Return the seconds that a line takes in the search alone, and its tokens a second."""
    import torch

    rows = dict(enumerate(model.tokenizers.source.encode_batch(lines)))
    rules = Options(beam=beam).rules(model.config.decoding)
    lengths = {place: len(ids) for place, ids in rows.items()}

    def search() -> int:
        batches = model.network.batches(lengths, rules, 1)
        return sum(
            len(ids) for engine, part in batches for ids in engine.ids([rows[row] for row in part], rules)
        )

    for _ in range(2):  # the second use of a shape captures it
        search()
    torch.cuda.synchronize()
    started = time.perf_counter()
    tokens = search()
    seconds = time.perf_counter() - started
    return seconds / len(lines), tokens / seconds


def measure(count: int, beams: list[int], store: bool, device: str = "cuda") -> None:
    """Time the command and the bare search, and compare with the stored figures."""
    report = figures.Report(figures.gpu(), store)
    with TemporaryDirectory() as place:
        source, out = Path(place) / "lines.txt", Path(place) / "answers.txt"
        write_lines(source, load(MODEL), count)
        for beam in beams:
            command = [sys.executable, "-m", "seq2see", "predict", "--model", MODEL, "--file", str(source), "--out",
                       str(out), "--whole", "--device", device, "--beam", str(beam)]  # fmt: skip
            started = time.perf_counter()
            done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
            seconds = time.perf_counter() - started
            written = sum(1 for _ in out.open("rb")) if out.exists() else 0
            model = load(MODEL, device)
            with source.open(encoding="utf-8") as file:
                lines = [line.rstrip("\n") for _, line in zip(range(min(SAMPLE, count)), file, strict=False)]
            each, speed = bare_seconds(model, lines, beam)
            percent = 100 * each * count / seconds
            report.add({
                "benchmark": f"gpu-file beam {beam}", "lines": count, "written": written, "status": done.returncode,
                "seconds": seconds, "lines/s": count / seconds, "the bare search, lines/s": 1 / each,
                "the bare search, tokens/s": speed, "percent of the bare search": percent,
                "most memory of a command so far, MB": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024,
                "said": done.stderr[-500:],
            }, percent=(f"file of {count:,} lines, beam {beam}, percent of bare search", percent, "more"))  # fmt: skip
            del model
    report.end()


class Stub:
    """Answers each source with as many tokens, at once."""

    name = "stub"

    def __init__(self, size: int, end: int) -> None:
        self.rows = [[number % (size - 8) + 4 for number in range(n, 2 * n)] + [end] for n in range(512)]
        self.began = time.process_time()

    def ids(self, sources: list[Any], *more: Any) -> list[list[int]]:
        """Return made-up answers."""
        rows = self.rows
        return [rows[len(source)] for source in sources]

    def seconds(self) -> float:
        """Return the CPU time of this process since it began to answer."""
        return time.process_time() - self.began


def profile(count: int) -> None:
    """Say how much CPU time a line costs without a search, in one process and with the search apart."""
    with TemporaryDirectory() as place:
        source, out = Path(place) / "lines.txt", Path(place) / "answers.txt"
        model = load(MODEL)
        write_lines(source, model, count)
        stub: Any = partial(Stub, model.tokenizers.target.size, model.tokenizers.target.end)
        for search in (stub(), Apart(stub)):
            job = Asked(MODEL, Options(beam=1, whole=True), "cpu").job()
            job.model.network.apart = search
            job.model.network.device = "cuda"  # so that windows overlap
            with Writer(out, False) as writer:
                started, cpu = time.perf_counter(), time.process_time()
                answered, _ = answer_all(
                    job, lines_of(source), "line", writer, nullcontext(), Unsure(None, None)
                )
                wall, here = time.perf_counter() - started, time.process_time() - cpu
            there = search.call("seconds") if isinstance(search, Apart) else here
            figures.show({
                "benchmark": "gpu-file, without a search", "lines": answered,
                "µs a line, CPU of the process that searches": 1e6 * there / count,
                "µs a line, CPU of the process that reads and writes": 1e6 * here / count,
                "µs a line, wall clock": 1e6 * wall / count,
            })  # fmt: skip
