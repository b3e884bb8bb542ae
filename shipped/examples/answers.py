"""The model ``examples`` at work: weights from a folder, answers to questions, and scores by a protocol."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from seq2see.config import ModelConfig
from seq2see.kernels.layers import FastTransformer
from seq2see.kernels.registry import network_of
from seq2see.model.masks import Mask
from seq2see.model.transformer import Transformer, at_rest
from seq2see.storage.weights import write_weights
from shipped.examples.world import END, LONGEST, PAD, START, VOCABULARY, serialised, text_of

CONFIG, LARGEST_FILE = "config.json", 15_000_000  # bytes of a file of weights
ANSWER = 128  # most tokens of an answer
ORDERS = 3  # of the examples, which vote
Pair = tuple[str, str]


def shape_of(width: int, layers: tuple[int, int], positions: str, heads: int, wide: int, norm: str) -> ModelConfig:
    """Return the shape of the model."""
    return ModelConfig(
        source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY, d_model=width, heads=heads, d_ff=wide,
        encoder_layers=layers[0], decoder_layers=layers[1], dropout=0.0, norm=norm, max_length=LONGEST + 36,  # type: ignore[arg-type]
        positions="paper" if positions == "sinusoid" else positions,  # type: ignore[arg-type]
    )  # fmt: skip


def save(folder: Path, model: Transformer, about: dict[str, Any]) -> None:
    """Write the weights in 16 bits, in files that are small enough to travel, and what belongs to them."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("weights.*.safetensors"):
        old.unlink()
    files: list[dict[str, Tensor]] = [{}]
    used = 0
    for name, parameter in model.named_parameters():
        half = parameter.detach().to("cpu", torch.float16)
        size = half.numel() * 2
        if used + size > LARGEST_FILE and files[-1]:
            files.append({})
            used = 0
        files[-1][name], used = half, used + size
    for number, some in enumerate(files):
        write_weights(folder / f"weights.{number}.safetensors", some)
    (folder / CONFIG).write_text(
        json.dumps({"model": asdict(model.config), **about}, indent=1) + "\n", encoding="utf-8"
    )


def load(folder: Path) -> tuple[Transformer, dict[str, Any]]:
    """Read a folder that ``save`` wrote."""
    about = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    model = network_of(ModelConfig.of(**about["model"]))
    weights: dict[str, Tensor] = {}
    for file in sorted(folder.glob("weights.*.safetensors")):
        weights |= load_file(file)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])
    return model, about


def written(model: Transformer, sources: Sequence[Sequence[int]], most: int = ANSWER) -> list[tuple[str, float]]:
    """Return the greedy answer to each source and the mean log-probability of its tokens."""
    assert isinstance(model, FastTransformer)
    device = next(model.parameters()).device
    found: list[tuple[str, float]] = [("", -math.inf)] * len(sources)
    room = 2**19 if device.type == "cuda" else 2**13
    order = sorted(range(len(sources)), key=lambda n: len(sources[n]))
    with at_rest(model), torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        while order:
            longest, some = 1, list[int]()
            for n in order:
                longest = max(longest, len(sources[n]))
                if some and (len(some) + 1) * longest > room:
                    break
                some.append(n)
            order = order[len(some) :]
            for n, answer in zip(some, _written(model, [sources[n] for n in some], most, device), strict=True):
                found[n] = answer
    return found


def _written(
    model: FastTransformer, sources: Sequence[Sequence[int]], most: int, device: torch.device
) -> list[tuple[str, float]]:
    width = max(map(len, sources))
    ids = torch.tensor([[*s, *[PAD] * (width - len(s))] for s in sources], device=device)
    mask = Mask(keys=ids != PAD)
    memory, cache = model.encode(ids, mask), model.empty_cache()
    last = torch.full((len(sources), 1), START, device=device)
    done, total, count = (torch.zeros(len(sources), device=device) for _ in range(3))
    steps = []
    for t in range(most):
        logits = model.decode(last, memory, mask, cache)[:, -1].float()
        value, token = logits.log_softmax(-1).max(-1)
        total, count = total + value * (1 - done), count + (1 - done)
        steps.append(token)
        done = torch.maximum(done, (token == END).float())
        if t % 4 == 3 and bool(done.all()):
            break
        last = token[:, None]
    told = torch.stack(steps, 1).tolist()
    return [(text_of(row), v) for row, v in zip(told, (total / count).tolist(), strict=True)]


def answers(
    model: Transformer, asked: Sequence[tuple[Sequence[Pair], str]], orders: int = ORDERS
) -> list[tuple[str, float]]:
    """Return the answer to each question from its examples, and how sure it is, from 0 to 1.

    Several orders of the examples vote; where they do not fit, later ones are left out.
    """
    sources, owner = [], []
    for number, (pairs, question) in enumerate(asked):
        for order in orders_of(pairs, orders):
            while len(order) > 1 and len(serialised(order, question)) > LONGEST:
                order = order[:-1]
            source = serialised(order, question)
            if len(source) <= LONGEST:
                sources.append(source)
                owner.append(number)
    votes: list[Counter[str]] = [Counter() for _ in asked]
    count = Counter(owner)
    for number, (text, value) in zip(owner, written(model, sources), strict=True):
        votes[number][text] += math.exp(value) / count[number]  # type: ignore[assignment]
    return [vote.most_common(1)[0] if vote else ("", 0.0) for vote in votes]


def orders_of(pairs: Sequence[Pair], count: int) -> list[list[Pair]]:
    """Return some orders of the examples: as they are, from the end, and turned round by one, two …"""
    some = [[*pairs], [*pairs][::-1], *[[*pairs[k:], *pairs[:k]] for k in range(1, len(pairs))]]
    different = list({tuple(order): order for order in some}.values())
    return different[:count]


def scores(
    model: Transformer, tasks: dict[str, list[dict[str, Any]]], shown: int = 3, orders: int = ORDERS
) -> dict[str, Any]:
    """Score sets of tasks: solved if all rows after the shown ones are right, but for case and outer blanks."""
    asked, of = [], []
    for name, some in tasks.items():
        for number, task in enumerate(some):
            pairs = [(a, b) for a, b in task["pairs"]]
            for question, right in pairs[shown:]:
                asked.append((pairs[:shown], question))
                of.append((name, number, right))
    told = answers(model, asked, orders)
    rows: dict[str, list[tuple[float, bool]]] = {name: [] for name in tasks}
    whole: dict[tuple[str, int], bool] = {}
    for (name, number, right), (text, sure) in zip(of, told, strict=True):
        good = text.strip().lower() == right.strip().lower()
        rows[name].append((sure, good))
        whole[name, number] = whole.get((name, number), True) and good
    found: dict[str, Any] = {}
    for name in tasks:
        solved = [good for (of_set, _), good in whole.items() if of_set == name]
        found[name] = {"tasks": len(solved), "solved": share(solved), "rows": share([good for _, good in rows[name]])}
    everything = [row for some in rows.values() for row in some]
    found["all"] = {
        "tasks": len(whole), "solved": share(list(whole.values())), "rows": share([good for _, good in everything]),
        "answered at 95 %": at_precision(everything, 0.95),
    }  # fmt: skip
    return found


def share(some: Sequence[bool]) -> float:
    """Return the share that is true, in per cent."""
    return round(100 * sum(some) / max(1, len(some)), 1)


def at_precision(rows: Sequence[tuple[float, bool]], wanted: float) -> float:
    """Return the largest share of rows, the surest first, of which at least ``wanted`` are right, in per cent."""
    best = right = 0
    for number, (_, good) in enumerate(sorted(rows, key=lambda row: -row[0]), 1):
        right += good
        if right >= wanted * number:
            best = number
    return round(100 * best / max(1, len(rows)), 1)


def read_tasks(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Read every .jsonl file of a folder, by name."""
    return {
        file.stem: [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
        for file in sorted(folder.glob("*.jsonl"))
    }
