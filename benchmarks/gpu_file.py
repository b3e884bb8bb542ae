"""A large file through `seq2see predict --file`, beside the bare search: ids in, ids out, on the same GPU.

    python -m benchmarks gpu-file [--lines 1000000] [--beams 1,4] [--store]        prints one JSON object a line

Lines of 5 to 40 words out of the vocabulary of a shipped model, each answered as one input. The command is timed from its
start to its end, captures and all, with the most memory that it held. The bare search is timed, warm, on some of
the lines, batched as `predict` batches them. Status 1: a figure has fallen by a fifth against gpu_figures.json.
"""

from __future__ import annotations

import random
import resource
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import figures
from seq2see.answering.options import Options
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
        return sum(len(ids) for engine, part in batches for ids in engine.ids([rows[row] for row in part], rules))

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
