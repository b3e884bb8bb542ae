"""CPU decoding: the base size in batches of 32 and 1, ten thousand dates, and a cold start."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from benchmarks.measure import Line, take_turns
from benchmarks.peers import PlainTransformer, hugging_face
from seq2see import machine
from seq2see.config import Config, ModelConfig, TrainingConfig
from seq2see.decoding.engines import FORMAT
from seq2see.kernels.registry import network_of
from seq2see.seq2seq import Seq2Seq, load
from seq2see.storage import folder
from seq2see.storage.folder import Tokenizers
from seq2see.tasks.dates import all_ordinals, pairs_of
from seq2see.tokenizers.tokenizer import END, PAD, START, Tokenizer

Translate = Callable[[list[list[str]]], list[list[str]]]
SOURCE, OUTPUT, VOCABULARY = 24, 40, 37_000
#: Chinese and Korean letters, so that a text of so many different tokens can be written.
LETTERS = [*map(chr, range(0x4E00, 0xA000)), *map(chr, range(0xAC00, 0xD7A4)), *map(chr, range(0x3400, 0x4DB6))][
    : VOCABULARY - 3
]
PLAIN_BATCH = 4000  # dates that the plain loop answers at a time: the best of 250, 1,000 and 4,000


def cold_start(rounds: int) -> Line:
    """A whole process: ``seq2see predict 1845-01-05``, with the engine that ships and through torch."""

    def run(engine: str) -> str:
        command = [sys.executable, "-m", "seq2see", "predict", "1845-01-05", "--engine", engine]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    same = run("auto") == run("torch") == "January 5, 1845\n"
    seconds = take_turns({"seq2see": lambda: run("auto"), "through torch": lambda: run("torch")}, rounds)
    return Line("cold-start", "seq2see predict 1845-01-05, a new process", "answers", 1, seconds,
                "4× of torch, under 0.7 s", agree="same answer" if same else "ANSWERS DIFFER")  # fmt: skip


def dates_10000(rounds: int, count: int = 10_000) -> Line:
    """The model that ships on ten thousand dates, texts in and texts out."""
    model = load("dates", engine="torch")
    pairs = pairs_of(np.random.default_rng(3).choice(all_ordinals(), count, replace=False))
    texts = [source for source, _ in pairs]
    plain, tokens = PlainTransformer(model.transformer), model.tokenizers.source

    def through_plain() -> list[str]:
        source = torch.tensor(tokens.encode_batch(texts))
        rows: list[list[int]] = []
        for first in range(0, count, PLAIN_BATCH):
            part = source[first : first + PLAIN_BATCH]
            rows += plain.greedy(part, tokens.start, tokens.end, 63).tolist()
        cut = [row[: row.index(tokens.end)] if tokens.end in row else row for row in rows]
        return tokens.decode_batch(cut)

    ours = load("dates")
    contestants: dict[str, Callable[[], Sequence[str | None]]] = {
        "seq2see": lambda: ours.predict(texts),
        "seq2see, torch": lambda: model.predict(texts),
        "nn.Transformer, plain loop": through_plain,
    }
    left_out = []
    if find_spec(FORMAT) is None:
        left_out.append(FORMAT)
    else:
        named, cores = tokens.vocabulary(), machine.cores()

        def through_ctranslate2(translate: Translate) -> list[str]:
            sources = [[named[i] for i in row] for row in tokens.encode_batch(texts)]
            return ["".join(answer) for answer in translate(sources)]

        for workers, threads in ((1, cores), (cores, 1)):
            translate = _direct(folder.find("dates"), 63, workers=workers, threads=threads)
            who = f"CTranslate2 directly, {workers} × {threads} threads"
            contestants[who] = partial(through_ctranslate2, translate)
    answers = [target for _, target in pairs]
    flops = float_speed()
    mean = round(sum(map(len, answers)) / count) + 1  # tokens of an answer, with its end
    wrong = [who for who, run in contestants.items() if run() != answers]
    return Line("dates-10000", f"{count:,} dates, greedy, texts in and out (plain loop: batches of {PLAIN_BATCH:,})",
                "dates", count, take_turns(contestants, rounds), "20× of nn.Transformer, 1× of CTranslate2",
                left_out, "all answers right" if not wrong else f"WRONG ANSWERS: {wrong}",
                limit=products(model.config.model, count, len(tokens.encode(texts[0])), mean) / flops,
                notes=[f"ours is answered by {ours.network.engine_for(count).name}; the limit is that of "
                       "products in float32, "
                       f"{flops / 1e9:.0f} GFLOP/s at 1024³"])  # fmt: skip


def base(rounds: int, batch: int, name: str, target: str) -> Line:
    """The paper's base size with random weights: every answer has 40 tokens."""
    with random_model() as (model, path):
        random = np.random.default_rng(5)
        sources: list[list[int]] = random.integers(3, VOCABULARY, (batch, SOURCE)).tolist()
        through_torch = load(path, engine="torch")
        contestants: dict[str, Callable[[], object]] = {
            "seq2see": lambda: model.network.engine_for(batch).ids(sources),
            "seq2see, torch": lambda: through_torch.network.engine_for(batch).ids(sources),
        }
        left_out = []
        generate = hugging_face(model.config.model, OUTPUT)
        if generate is None:
            left_out.append("transformers")
        else:
            contestants["HF generate, float32"] = lambda: generate(sources)
        named = model.tokenizers.source.vocabulary()
        tokens = [[named[i] for i in row] for row in sources]
        if find_spec(FORMAT) is None:
            left_out.append(FORMAT)
        else:
            for kind in ("float32", "int8"):
                contestants[f"CTranslate2 {kind}"] = partial(_direct(path, OUTPUT, kind), tokens)
        ours = model.network.engine_for(batch).ids(sources)
        forced = all(len(row) == OUTPUT for row in ours)
        exact = _agreement(through_torch.network.engine_for(batch).ids(sources), ours)
        seconds = take_turns(contestants, rounds)
        config, answered_by, flops = model.config.model, model.network.engine_for(batch).name, float_speed()
    return Line(name, f"base size, batch {batch}, greedy, {SOURCE} source tokens, {OUTPUT} output tokens forced",
                "tokens", batch * OUTPUT, seconds, target, left_out,
                f"{'all answers have' if forced else 'NOT ALL ANSWERS HAVE'} {OUTPUT} tokens; auto and torch share "
                f"{exact:.1%} of them", limit=products(config, batch, SOURCE, OUTPUT) / flops,
                notes=[f"ours is answered by {answered_by}; the limit is that of float32 products, "
                       f"{flops / 1e9:.0f} GFLOP/s at 1024³"])  # fmt: skip


def _agreement(a: Sequence[Sequence[int]], b: Sequence[Sequence[int]]) -> float:
    pairs = [pair for x, y in zip(a, b, strict=True) for pair in zip(x, y, strict=False)]
    return sum(x == y for x, y in pairs) / len(pairs)


def _direct(path: Path, tokens: int, kind: str = "default", workers: int = 1, threads: int = 0) -> Translate:
    """CTranslate2 as its manual calls it."""
    import ctranslate2

    # An export can be computed in float32 whatever it is kept in, and in int8 likewise.
    translator = ctranslate2.Translator(
        str(path / FORMAT), compute_type=kind, inter_threads=workers, intra_threads=threads or machine.cores()
    )

    def translate(sources: list[list[str]]) -> list[list[str]]:
        results = translator.translate_batch(sources, beam_size=1, max_decoding_length=tokens, max_batch_size=256)
        return [result.hypotheses[0] for result in results]

    return translate


@contextmanager
def random_model(quantization: str = "int8") -> Iterator[tuple[Seq2Seq, Path]]:
    """Make a model folder of the base size whose answers never end by themselves, with an export."""
    tokenizer = Tokenizer.characters([PAD, START, END, *LETTERS])
    shape = ModelConfig(max_length=OUTPUT + 1, share_output=False, dropout=0.0)
    torch.manual_seed(1)
    transformer = network_of(shape).eval()
    with torch.no_grad():
        torch.nn.init.normal_(transformer.output.weight, std=0.2)  # so that the likeliest token is one of its own
        transformer.output.bias[tokenizer.end] = -1e9
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "base"
        Seq2Seq(Config("pairs", shape, TrainingConfig()), Tokenizers.one(tokenizer), transformer).save(path)
        if find_spec(FORMAT) is not None:
            from seq2see.interchange.to_ctranslate2 import export

            export(path, transformer, Tokenizers.one(tokenizer), quantization)
        yield load(path), path


def products(config: ModelConfig, sentences: int, source: int, target: int) -> float:
    """Count the operations of all matrix products that read and write so many sentences, attention left out."""
    d, f, layers = config.d_model, config.d_ff, config.decoder_layers
    encoder = config.encoder_layers * (4 * d * d + 2 * d * f) + layers * 2 * d * d  # keys and values once a sentence
    decoder = layers * (6 * d * d + 2 * d * f) + d * config.target_vocabulary
    return 2.0 * sentences * (source * encoder + target * decoder)


def float_speed(size: int = 1024) -> float:
    """Measure float32 products of this machine, in FLOP/s."""
    a = torch.randn(size, size)
    best = float("inf")
    for _ in range(5):
        started = time.perf_counter()
        a @ a
        best = min(best, time.perf_counter() - started)
    return 2.0 * size**3 / best


LINES: dict[str, Callable[[int], Line]] = {
    "cold-start": cold_start,
    "dates-10000": dates_10000,
    "base-batch32": lambda rounds: base(rounds, 32, "base-batch32", "1.5× of the better of CTranslate2 int8 and HF"),
    "base-batch1": lambda rounds: base(rounds, 1, "base-batch1", "3× of HF"),
}
