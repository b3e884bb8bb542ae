"""``python -m shipped.examples.release WEIGHTS --tasks TASKS --out FOLDER``: trained weights become the model folder.

The weights get eight bits a number. The confidence is fitted on made tasks, and measured on others and on TASKS, which
are other people's. All answers are the package's own.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from seq2see.answering import examples
from seq2see.answering.answer import Answer
from seq2see.answering.answerer import Answerer
from seq2see.config import Config, DecodingConfig, TrainingConfig
from seq2see.evaluation.calibrate import calibrated, section, with_section
from seq2see.evaluation.confidence import Confidence, Measured, figures_of
from seq2see.evaluation.familiar import Familiar
from seq2see.inspection.plots import plot_reliability
from seq2see.inspection.style import png
from seq2see.model.transformer import Transformer
from seq2see.seq2seq import Seq2Seq
from seq2see.storage import folder
from seq2see.storage.folder import Tokenizers
from seq2see.storage.weights import in_eight_bits, weights_bytes, weights_of, whole
from shipped.examples.answers import ANSWER, at_precision, load, read_tasks, share
from shipped.examples.rules import NAMES
from shipped.examples.world import LONGEST, tasks, tokenizer

FITTED, MEASURED = 3000, 2000  # made tasks
PARTS = 512  # questions that are answered together
Asked = tuple[examples.Pairs, str]


class Noted:
    """Stands where a confidence stands, and keeps what it is asked."""

    def __init__(self) -> None:
        self.figures: list[tuple[list[float], bool]] = []

    def __call__(self, log_probabilities: Sequence[float], finished: bool) -> float:
        """Keep the figures of an answer, and return their number."""
        self.figures.append((figures_of(log_probabilities), finished))
        return len(self.figures) - 1.0


def folded(transformer: Transformer, device: str) -> Seq2Seq:
    """Return a model with weights as eight bits keep them."""
    kept = whole(in_eight_bits(weights_of(transformer)))
    with torch.no_grad():
        for name, parameter in transformer.named_parameters():
            parameter.copy_(kept[name])
    rules = DecodingConfig(beam=1, length_ratio=0.0, length_offset=ANSWER)
    shape = replace(transformer.config, max_length=LONGEST)
    config = Config(task=examples.TASK, model=shape, training=TrainingConfig(), decoding=rules)
    made = Seq2Seq(config, Tokenizers.one(tokenizer()), transformer)
    return made.to(device) if device != "cpu" else made


def answered(answerer: Answerer, asked: Sequence[Asked]) -> list[Answer]:
    """Answer questions by their examples, some hundreds together."""
    config, found = answerer.config, list[Answer]()
    for first in range(0, len(asked), PARTS):
        some = asked[first : first + PARTS]
        search = partial(answerer.search, rules=config.decoding)
        found += examples.answered(some, config.model.max_length, search, answerer.confidence)
    return found


def observed(model: Seq2Seq, asked: Sequence[Asked], rights: Sequence[str]) -> list[tuple[list[float], bool, bool]]:
    """Return the figures of each answer, whether it is complete, and whether it is right."""
    noted = Noted()
    model.answerer.confidence = noted  # type: ignore[assignment]
    told = answered(model.answerer, asked)
    model.answerer.confidence = None
    return [
        (*noted.figures[int(answer.confidence)], answer.output == right)
        for answer, right in zip(told, rights, strict=True)
        if answer.confidence is not None
    ]


def same(answer: str | None, right: str) -> bool:
    """Whether an answer is right, but for case and outer blanks."""
    return answer is not None and answer.strip().lower() == right.strip().lower()


def made_tasks(seed: int, count: int) -> tuple[list[Asked], list[str], list[str]]:
    """Return questions with their examples, the right answers, and the families of the rules."""
    some = [*islice(tasks(seed), count)]
    asked = [(examples.pairs_of(dict(one.pairs)), one.question) for one in some]
    return asked, [one.answer for one in some], [NAMES[one.family] for one in some]


def on_others(model: Seq2Seq, sets: dict[str, list[dict[str, Any]]], shown: int) -> dict[str, Any]:
    """Score sets of tasks as ``answers.scores`` does, by the package's answers and confidence."""
    asked, of = list[Asked](), []
    for name, some in sets.items():
        for number, task in enumerate(some):
            for question, right in task["pairs"][shown:]:
                asked.append((tuple((a, b) for a, b in dict(task["pairs"][:shown]).items()), question))
                of.append((name, number, right))
    start = time.perf_counter()
    told = answered(model.answerer, asked)
    seconds = (time.perf_counter() - start) / max(1, len(asked))
    rows = [
        (answer.confidence or 0.0, same(answer.output, right)) for answer, (*_, right) in zip(told, of, strict=True)
    ]
    solved: dict[tuple[str, int], bool] = {}
    for (name, number, _), (_, good) in zip(of, rows, strict=True):
        solved[name, number] = solved.get((name, number), True) and good
    found: dict[str, Any] = {name: share([good for (one, _), good in solved.items() if one == name]) for name in sets}
    return found | {
        "rows": share([good for _, good in rows]), "answered at 95 %": at_precision(rows, 0.95),
        "sure": [(sure, good) for sure, good in rows], "seconds": round(seconds, 4),
    }  # fmt: skip


CARD = """# examples

Reads two to twenty examples of a rule and a question, and writes what the question becomes: after
*Bill O. Grant → Grant, Bill* and two more, *Ann Jones* becomes *Jones, Ann*. No weight changes for that: the examples
are a part of the text that the model reads. A Transformer encoder-decoder made by seq2see: {parameters:,} parameters,
d_model {d_model}, {heads} heads, d_ff {d_ff}, {layers} layers, {norm}-norm, rotary positions; a byte is a token. The
weights have eight bits.

| other people's tasks, all their rows right, from | 1 example | 2 | 3 | 5 |
|---|---|---|---|---|
{rows}

A row counts as right but for case and outer blanks. Of the tasks that the same program made, but not for the training,
{made} % are right.

## What it cannot do

- Arithmetic of more than a few digits, and units whose factor is not in the examples.
- One example has many readings: two or more are needed for most rules.
- It reads {longest:,} bytes of examples and question together; of more examples several selections vote.

## Data

{tasks:,} made tasks of `shipped/examples` of the repository, {steps:,} steps. No text of people is in them but lists
of words, names and places. The tasks of other people above were not used for the training.
"""


def main() -> None:
    """Write the folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("weights", type=Path, metavar="WEIGHTS", help="folder that shipped.examples.train wrote")
    parser.add_argument("--tasks", type=Path, required=True, metavar="TASKS", help="folder of tasks of other people")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="model folder to write")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--made", type=int, default=FITTED, help="made tasks on which the confidence is fitted")
    asked = parser.parse_args()
    transformer, about = load(asked.weights)
    model = folded(transformer, asked.device)
    questions, rights, families = made_tasks(-1, asked.made + min(asked.made, MEASURED))
    seen = observed(model, questions, rights)
    familiar = Familiar(LONGEST, frozenset(), bytes(256), 100.0)  # any text is familiar
    confidence = calibrated(seen[: asked.made], seen[asked.made :], familiar, None)
    assert confidence is not None, "too few answers end: train for longer"
    model.confidence = confidence
    for name in NAMES:
        good = [right for (*_, right), family in zip(seen, families, strict=False) if family == name]
        print(f"{name:12} {share(good):5.1f} % of {len(good):,}", flush=True)
    sets = read_tasks(asked.tasks)
    found = {shown: on_others(model, sets, shown) for shown in (1, 2, 3, 5)}
    lines = [
        f"| {name} ({len(some)}) | " + " | ".join(f"{found[shown][name]} %" for shown in found) + " |"
        for name, some in sets.items()
    ]
    for key in ("rows", "answered at 95 %"):
        lines.append(f"| {key}, all sets | " + " | ".join(f"{one[key]} %" for one in found.values()) + " |")
    sure = found[3]["sure"]
    real = Measured.of([value for value, _ in sure], [good for _, good in sure])
    shape = transformer.config
    card = CARD.format(
        parameters=shape.parameters, d_model=shape.d_model, heads=shape.heads, d_ff=shape.d_ff, norm=shape.norm,
        layers=f"{shape.encoder_layers}+{shape.decoder_layers}", rows="\n".join(lines), longest=LONGEST,
        made=share([right for *_, right in seen[asked.made :]]), tasks=about.get("tasks", 0),
        steps=about.get("steps", 0),
    )  # fmt: skip
    above = [(value, good) for value, good in sure if value >= 0.9]
    part = section(confidence, True, "python -m shipped.examples.release WEIGHTS --tasks TASKS --out FOLDER")
    part += (
        f"\nOn the {len(sure):,} rows of other people's tasks, from three examples, the expected calibration error is "
        f"{real.error:.2%}, and of the {len(above):,} answers with a confidence of 0.9 or more "
        f"{share([good for _, good in above])} % are right.\n"
    )
    write(asked.out, model, with_section(card, part), confidence)
    for shown, one in found.items():
        print(shown, {key: value for key, value in one.items() if key != "sure"}, flush=True)


def write(out: Path, model: Seq2Seq, card: str, confidence: Confidence) -> None:
    """Write the folder, whole."""
    data = weights_bytes(in_eight_bits(weights_of(model.network.inner())))

    def also(new: Path) -> None:
        folder.write_atomically(new / folder.PICTURE, png(plot_reliability(confidence)))

    folder.write(out, model.config, model.tokenizers, data, card, also, confidence)
    (out / folder.CHECKSUMS).write_text(folder.checksums(out), encoding="utf-8")


if __name__ == "__main__":
    main()
