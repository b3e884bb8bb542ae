"""A tiny model that reads examples: of some letters and digits it writes the first, as a capital or not, as they show.

Examples whose first character is a digit leave both readings.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from random import Random

import torch

from seq2see.answering import examples
from seq2see.evaluation.calibrate import calibrated
from seq2see.evaluation.familiar import Familiar
from seq2see.kernels.registry import network_of
from seq2see.model.transformer import Transformer
from shipped.examples import release, world
from shipped.examples.answers import shape_of

LETTERS, DIGITS = "abcd", "12"


def pair(r: Random, capital: bool) -> tuple[str, str]:
    """Draw a pair of one of the two rules."""
    text = r.choice(LETTERS if r.random() < 0.7 else DIGITS) + r.choice(LETTERS + DIGITS)
    return text, text[0].upper() if capital else text[0]


@cache
def network(steps: int = 220) -> Transformer:
    """Train it: some seconds."""
    torch.manual_seed(0)
    r = Random(0)
    model = network_of(shape_of(64, (2, 1), "rotary", 4, 128, "pre"))
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.98), weight_decay=0.0)
    for step in range(steps):
        rows, count = [], r.choice((1, 2, 3))
        for _ in range(64):
            capital = r.random() < 0.5
            pairs = [pair(r, capital) for _ in range(count)]
            question, answer = pair(r, capital)
            rows.append((world.serialised(pairs, question), world.bytes_of(answer)))
        source, target = torch.tensor([row[0] for row in rows]), torch.tensor([row[1] for row in rows])
        start, end = (torch.full((len(rows), 1), one) for one in (world.START, world.END))
        logits = model(source, torch.cat([start, target], 1))
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.cat([target, end], 1).flatten())
        optimiser.zero_grad()
        loss.backward()
        for group in optimiser.param_groups:
            group["lr"] = 3e-3 * min(1.0, (step + 1) / 50, (steps - step) / (0.3 * steps))
        optimiser.step()
    return model.eval()


def asked(count: int, seed: int) -> tuple[list[release.Asked], list[str]]:
    """Draw questions with their examples, and the right answers."""
    r, questions, rights = Random(seed), [], []
    for _ in range(count):
        capital = r.random() < 0.5
        question, right = pair(r, capital)
        questions.append((examples.pairs_of([pair(r, capital) for _ in range(r.choice((1, 2, 3)))]), question))
        rights.append(right)
    return questions, rights


def folder_of(path: Path) -> Path:
    """Write its folder, with a confidence."""
    model = release.folded(network(), "cpu")
    seen = release.observed(model, *asked(600, 1))
    familiar = Familiar(world.LONGEST, frozenset(), bytes(256), 100.0)
    confidence = calibrated(seen[:400], seen[400:], familiar, None)
    assert confidence is not None
    release.write(path, model, "# tiny\n", confidence)
    return path
