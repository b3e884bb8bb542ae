"""The same work beside six busy loops: ours as it decides by itself, with one thread, and peers with their defaults."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.util import find_spec

import numpy as np

from benchmarks.measure import Line, take_turns
from seq2see import machine
from seq2see.decoding.engines import FORMAT, ready_export
from seq2see.seq2seq import Seq2Seq, load
from seq2see.storage import folder
from seq2see.tasks.dates import all_ordinals, pairs_of

LOOPS = 6
LOOP = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    for _ in range(10**6): pass"
WANTED = "1× of one thread"
SENTENCES = [
    "The train to the coast leaves at nine in the morning.",
    "She has been waiting for an answer for three weeks.",
    "Where can I buy a ticket for the museum?",
    "We did not know that the shop was closed on Mondays.",
    "The children are playing in the garden behind the house.",
    "I would like a cup of coffee, please.",
    "He told me that he would come back in the evening.",
    "This book is more interesting than the other one.",
]


@contextmanager
def beside(loops: int = LOOPS) -> Iterator[None]:
    """Keep so many processes busy; they end with this one, however it ends."""
    started = [subprocess.Popen([sys.executable, "-c", LOOP]) for _ in range(loops)]
    try:
        time.sleep(0.5 if loops else 0)  # until they run
        yield
    finally:
        for one in started:
            one.kill()
            one.wait()


def with_threads(threads: int | None, work: Callable[[], object]) -> object:
    """Do some work with so many threads; None lets seq2see decide."""
    machine.use(threads)
    try:
        return work()
    finally:
        machine.use(None)


def _predictions(name: str, model: str, texts: list[str], unit: str, rounds: int, loops: int) -> Line:
    with beside(loops):
        ours, alone = load(model), load(model)
        rules = ours.config.decoding
        contestants: dict[str, Callable[[], object]] = {
            "seq2see": lambda: ours.predict(texts),
            "seq2see, one thread": lambda: with_threads(1, lambda: alone.predict(texts)),
        }
        answers = [str(run()) for run in contestants.values()]
        left_out = []
        if find_spec(FORMAT) is None:
            left_out.append(FORMAT)
        else:
            direct = partial(_directly, ours, rules.beam, texts)
            cores = machine.cores()
            contestants["CTranslate2 directly, its own threads"] = direct(1, 0)
            contestants[f"CTranslate2 directly, {cores} × 1 threads"] = direct(cores, 1)
        seconds = take_turns(contestants, rounds)
        taken = machine.free_cores()
    return Line(name, f"{len(texts):,} {unit} beside {loops} busy loops", unit, len(texts), seconds, WANTED, left_out,
                "same answers" if len(set(answers)) == 1 else "ANSWERS DIFFER",
                notes=[f"ours finds {taken} of {machine.cores()} cores free"])  # fmt: skip


def _directly(model: Seq2Seq, beam: int, texts: list[str], workers: int, threads: int) -> Callable[[], object]:
    """CTranslate2 as its manual calls it, with the tokens of our texts."""
    import ctranslate2

    assert model.path is not None
    export = ready_export(model.path, model.config.model)
    assert export is not None
    source, target = model.tokenizers.source, model.tokenizers.target
    named = source.vocabulary()
    translator = ctranslate2.Translator(str(export), inter_threads=workers, intra_threads=threads)

    def run() -> list[str]:
        rows = [[named[i] for i in source.encode(model.answerer.read(text))] for text in texts]
        size = 256 if workers == 1 else -(-len(rows) // workers)
        results = translator.translate_batch(rows, beam_size=beam, max_batch_size=min(256, size))
        ids = {token: number for number, token in enumerate(target.vocabulary())}
        return target.decode_batch([[ids[token] for token in result.hypotheses[0]] for result in results])

    return run


def busy_dates(rounds: int, count: int = 400, loops: int = LOOPS) -> Line:
    """Dates through the model that ships."""
    pairs = pairs_of(np.random.default_rng(3).choice(all_ordinals(), count, replace=False))
    return _predictions("busy-dates", "dates", [source for source, _ in pairs], "dates", rounds, loops)


def busy_en_fr(rounds: int, count: int = 8, loops: int = LOOPS) -> Line:
    """English sentences through the model that ships."""
    texts = (SENTENCES * -(-count // len(SENTENCES)))[:count]
    return _predictions("busy-en-fr", "en-fr", texts, "sentences", rounds, loops)


def busy_training(rounds: int, steps: int = 3, loops: int = LOOPS) -> Line:
    """Steps of the dates model from scratch, each beside the same step of ``torch.nn.Transformer``."""
    import torch

    from benchmarks.training import PlainLearner, without_looks
    from seq2see.data.batching import Batch
    from seq2see.tasks.dates import splits
    from seq2see.training.loop import Trainer
    from seq2see.training.schedule import learning_rate

    path = folder.find("dates")
    config = folder.read_config(path)
    config = replace(config, training=without_looks(config.training))
    train, held_out, _ = splits(20_000, 200, 1, config.training.seed)

    def trainer() -> Trainer:
        return Trainer(config, folder.read_tokenizers(path), train, held_out)

    with beside(loops):
        ours = trainer()
        machine.use(1)
        alone = trainer()
        machine.use(None)
        plain, threads = PlainLearner(ours), torch.get_num_threads()

        def steps_of(one: Trainer) -> Callable[[], object]:
            running = one.steps()
            return lambda: [float(next(running).loss) for _ in range(steps)]

        def plain_steps() -> None:
            torch.set_num_threads(threads)
            for number in range(steps):
                batch = ours.batches.at(number)
                assert isinstance(batch, Batch)
                plain.learn(batch, learning_rate(number + 1, config.training, config.model.d_model))

        contestants = {
            "seq2see": steps_of(ours),
            "seq2see, one thread": steps_of(alone),
            f"nn.Transformer, {threads} threads": plain_steps,
        }
        seconds = take_turns(contestants, rounds)
        taken = ours.threads
    return Line("busy-training", f"{steps} steps of the dates model beside {loops} busy loops", "steps", steps, seconds,
                WANTED, notes=[f"ours takes {taken} of {threads} threads"])  # fmt: skip


LINES: dict[str, Callable[[int], Line]] = {
    "busy-training": busy_training,
    "busy-dates": busy_dates,
    "busy-en-fr": busy_en_fr,
}
