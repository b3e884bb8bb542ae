"""From a file of pairs to ids that can be trained on, beside the package ``tokenizers`` used directly."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer as Engine
from tokenizers import models, trainers

from benchmarks.measure import Line, take_turns
from seq2see.tokenizers.tokenizer import PIECES
from seq2see.training.options import TrainOptions
from seq2see.training.prepare import RawSplits, prepare

WORDS = 50_000  # different ones of each language
VOCABULARY = 10_000
SYLLABLES = [first + second for first in "bcdfghjklmnprstv" for second in "aeiouéàü"]


def preparation(rounds: int, count: int = 100_000) -> Line:
    """Read so many pairs, learn sub-words, cut every text."""
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "pairs.tsv"
        write_pairs(path, count)
        contestants: dict[str, Callable[[], object]] = {
            "seq2see, all that a training does before its first step": partial(_ours, path),
            "tokenizers directly": partial(_direct, path),
        }
        seconds = take_turns(contestants, rounds)
    return Line("preparation", f"{count:,} pairs of sentences from a file to ids, BPE of {VOCABULARY:,}", "pairs",
                count, seconds, "2,000,000 pairs in 2 minutes on 16 cores, below 2 GiB", details=memory())  # fmt: skip


def memory() -> dict[str, float]:
    """Return the most memory that this process has had, in GiB, where the system tells it."""
    if sys.platform == "win32":
        return {}
    import resource

    unit = 2**30 if sys.platform == "darwin" else 2**20
    return {"most_memory_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit, 2)}


def write_pairs(path: Path, count: int) -> None:
    """Write sentences of made-up words that are as frequent as real ones: few of them often, most of them seldom."""
    random = np.random.default_rng(1)
    sides = [
        np.array(["".join(random.choice(SYLLABLES, random.integers(1, 5))) + f"{n:x}"[-1:] for n in range(WORDS)])
        for _ in range(2)
    ]
    with path.open("w", encoding="utf-8") as file:
        for _ in range(count):
            length = int(random.integers(4, 40))
            drawn = random.zipf(1.3, 2 * length) % WORDS
            first, second = (" ".join(words[part]) for words, part in zip(sides, np.split(drawn, 2), strict=True))
            file.write(f"{first}.\t{second}.\n")


def _ours(path: Path) -> None:
    with tempfile.TemporaryDirectory() as out:  # a large corpus keeps its ids there
        request = TrainOptions(Path(out), tokenizer="bpe", vocabulary=VOCABULARY, preset="small", training={"steps": 1})
        prepare(RawSplits.read(path), request)


def _direct(path: Path) -> None:
    """Do the least that gives ids: no checks, no held-out pairs, no limits."""
    pairs = [line.rstrip("\n").split("\t") for line in path.open(encoding="utf-8")]
    texts = [side for pair in pairs for side in pair]
    engine = Engine(models.BPE())
    engine.pre_tokenizer = PIECES
    engine.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=VOCABULARY, show_progress=False))
    [encoding.ids for encoding in engine.encode_batch_fast(texts)]


LINES: dict[str, Callable[[int], Line]] = {"preparation": preparation}
