"""A trace as one JSON document: tokens, steps, beams, and every number as bytes behind a manifest."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from fnmatch import fnmatchcase
from itertools import pairwise
from math import inf
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seq2see.decoding.hypothesis import LENGTH_PENALTY
from seq2see.decoding.search import Beams, Special, limits_of
from seq2see.errors import InputError, UserError
from seq2see.inspection.glossary import entry_of
from seq2see.inspection.tables import array_of, attention_name
from seq2see.inspection.trace import Edit, Trace, mute_head, names_of
from seq2see.inspection.trace import trace as recording_of
from seq2see.model.attention import EVERYTHING
from seq2see.model.transformer import Transformer, count_parameters
from seq2see.seq2seq import Seq2Seq

TOP = 20  # alternatives told at each step
EXAMPLES = {"dates": ["1845-01-05", "2025-09-03", "1426-08-10", "1999-12-31", "2000-02-29"]}


def describe_model(name: str, model: Seq2Seq) -> dict[str, Any]:
    """Say what a model is, without where it lies."""
    return {
        "name": name,
        "task": model.config.task,
        "config": vars(model.config.model),
        "parameters": count_parameters(model.config.model),
        "card": model.card,
        "vocabulary": model.tokenizers.target.vocabulary(),
        "examples": EXAMPLES.get(model.config.task, []),
    }


def describe_trace(
    model: Seq2Seq,
    text: str,
    prefix: Sequence[int] = (),
    muted: Sequence[tuple[str, int, int]] = (),
    names: Sequence[str] = ("*",),
    beam: int = 1,
) -> dict[str, Any]:
    """Answer a text and tell all about it.

    ``prefix`` holds ids that the answer must begin with; ``muted`` names heads as (attention, layer, head);
    ``names`` are globs of the values and parameters that are wanted.
    """
    model.check(text)
    transformer, special = model.transformer, _special(model)
    edit = _muting(transformer, muted)
    source_ids = model.tokenizers.source.encode(text)
    _check_prefix(model, prefix)
    ids = _continued(transformer, source_ids, prefix, special, edit)
    traced = _trace(model, text, source_ids, [special.start, *ids], edit)
    manifest, data = _packed(traced, transformer, names)
    return {
        "text": text,
        "output": traced.output,
        "finished": ids[-1] == special.end,
        "forced": len(prefix),
        "muted": [list(head) for head in muted],
        "d_model": transformer.config.d_model,
        "positions": transformer.config.positions,
        "norm": transformer.config.norm,
        "source": _tokens(traced.source_tokens, source_ids, _source_spans(model, text, source_ids)),
        "target": _tokens(traced.target_tokens, traced.target_ids, _target_spans(model, traced.target_ids)),
        "steps": _steps(traced),
        "beams": _beam_nodes(model, source_ids, beam, edit) if beam > 1 else [],
        "tensors": manifest,
        "data": b64encode(data).decode(),
    }


def _special(model: Seq2Seq) -> Special:
    target, source = model.tokenizers.target, model.tokenizers.source
    return Special(target.start, target.end, source.pad)


def _muting(transformer: Transformer, muted: Sequence[tuple[str, int, int]]) -> dict[str, Edit]:
    heads: dict[str, list[int]] = {}
    names = names_of(transformer) if muted else []
    for attention, layer, head in muted:
        heads.setdefault(f"{attention_name(names, attention, layer)}.z", []).append(head)
    return {name: mute_head(*numbers) for name, numbers in heads.items()}


def _check_prefix(model: Seq2Seq, prefix: Sequence[int]) -> None:
    target, longest = model.tokenizers.target, model.config.model.max_length
    if any(not 0 <= number < target.size for number in prefix):
        raise InputError(
            f"The forced beginning has ids beyond the vocabulary: 0 to {target.size - 1} were expected."
        )
    if target.end in prefix[:-1]:
        raise InputError("The forced beginning goes on after its <eos>: let it end there.")
    if len(prefix) > longest:
        raise InputError(
            f"The forced beginning has {len(prefix):,} tokens, but this model takes {longest:,}."
        )


@torch.no_grad()
def _continued(
    transformer: Transformer,
    source_ids: list[int],
    prefix: Sequence[int],
    special: Special,
    edit: Mapping[str, Edit],
) -> list[int]:
    """Answer greedily after a forced beginning; without an edit nothing is attached, as when anybody asks."""
    ids = list(prefix)
    new = [special.start, *ids]
    longest = int(limits_of(transformer, [source_ids]))
    with recording_of(transformer, edit) if edit else nullcontext():
        memory = transformer.encode(torch.tensor([source_ids]))
        cache = transformer.new_cache()
        while len(ids) < longest and (not ids or ids[-1] != special.end):
            logits = transformer.decode(torch.tensor([new]), memory, EVERYTHING, cache)[0, -1]  # (V,)
            new = [int(logits.argmax())]
            ids += new
    return ids


@torch.no_grad()
def _trace(
    model: Seq2Seq, text: str, source_ids: list[int], answer_ids: list[int], edit: Mapping[str, Edit]
) -> Trace:
    """Read a text and its answer, all positions at once, keeping every value."""
    traced = Trace(model.tokenizers, text, source_ids, answer_ids, edit)
    with recording_of(model.transformer, edit) as recording:
        logits = model.transformer(torch.tensor(source_ids), torch.tensor(traced.target_ids))  # (T, V)
    traced.values = {**recording.values, "probabilities": logits.float().softmax(-1)}
    return traced


def _tokens(tokens: list[str], ids: list[int], spans: list[tuple[int, int]]) -> list[dict[str, Any]]:
    return [
        {"token": token, "id": number, "span": list(span)}
        for token, number, span in zip(tokens, ids, spans, strict=True)
    ]


def _source_spans(model: Seq2Seq, text: str, ids: list[int]) -> list[tuple[int, int]]:
    """Return which characters each token stands for."""
    encoding = model.tokenizers.source.engine.encode(text)
    assert encoding.ids == ids
    return [(int(first), int(last)) for first, last in encoding.offsets]


def _target_spans(model: Seq2Seq, ids: list[int]) -> list[tuple[int, int]]:
    ends = [len(model.tokenizers.target.decode(ids[:n])) for n in range(len(ids) + 1)]
    return list(pairwise(ends))


def _steps(traced: Trace) -> list[dict[str, Any]]:
    best = traced.probabilities.topk(min(TOP, traced.probabilities.shape[-1])).indices.tolist()
    return [
        {
            "id": step.id,
            "token": step.token,
            "log_probability": step.log_probability,
            "entropy": step.entropy,
            "top": [
                {"id": number, "token": token, "probability": share}
                for number, (token, share) in zip(numbers, step.top, strict=True)
            ],
        }
        for numbers, step in zip(best, traced.steps(TOP), strict=True)
    ]


def _packed(
    traced: Trace, transformer: Transformer, names: Sequence[str]
) -> tuple[list[dict[str, Any]], bytes]:
    """Lay the wanted numbers end to end as little-endian float32, and say where each begins."""
    manifest: list[dict[str, Any]] = []
    chunks: list[bytes] = []
    offset = 0
    for name, array, symbol, sentence in _wanted(traced, transformer, names):
        data = np.ascontiguousarray(array, dtype="<f4").tobytes()
        manifest.append({
            "name": name, "shape": list(array.shape), "dtype": "float32", "offset": offset,
            "symbol": symbol, "sentence": sentence,
        })  # fmt: skip
        chunks.append(data)
        offset += len(data)
    return manifest, b"".join(chunks)


def _wanted(
    traced: Trace, transformer: Transformer, names: Sequence[str]
) -> Iterator[tuple[str, np.ndarray, str, str]]:
    def asked(name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in names)

    for name in filter(asked, traced.names):
        entry = entry_of(name)
        yield name, array_of(traced, name), entry.symbol, entry.sentence
    for name, parameter in transformer.named_parameters():
        if asked(name):
            array: np.ndarray = parameter.detach().cpu().float().numpy()
            yield name, array, name.rpartition(".")[2], "A parameter, learned in training."


@torch.no_grad()
def _beam_nodes(
    model: Seq2Seq, source_ids: list[int], beam: int, edit: Mapping[str, Edit]
) -> list[dict[str, Any]]:
    """Search with a beam and tell every prefix that was kept open: its parent, its token, its log-probability."""
    transformer, special = model.transformer, _special(model)
    limits = limits_of(transformer, [source_ids])
    beams = Beams.start(limits, int(limits), beam, special.pad)
    nodes: list[dict[str, Any]] = []
    above: list[int | None] = [None] * beam
    with recording_of(transformer, edit) if edit else nullcontext():
        memory = transformer.encode(torch.tensor([source_ids])).expand(beam, -1, -1)
        cache = transformer.new_cache()
        last = torch.full((beam, 1), special.start)
        for t in torch.arange(int(limits))[:, None]:
            logits = transformer.decode(last, memory, EVERYTHING, cache)[:, -1]  # (k, V)
            beams, parent, token = beams.advance(logits, t, special.end, LENGTH_PENALTY)
            above = _added(model, nodes, above, int(t), parent[0], token[0], beams.total[0])
            if bool(beams.finished(t)):
                break
            cache.select(parent[0])
            last = token[0][:, None]
    return nodes


def _added(
    model: Seq2Seq,
    nodes: list[dict[str, Any]],
    above: list[int | None],
    step: int,
    parents: Tensor,
    tokens: Tensor,
    totals: Tensor,
) -> list[int | None]:
    """Add one step's open prefixes, and return their places among the nodes."""
    places: list[int | None] = []
    for parent, number, total in zip(parents.tolist(), tokens.tolist(), totals.tolist(), strict=True):
        if total == -inf:
            places.append(None)
            continue
        nodes.append({
            "step": step, "parent": above[parent], "id": number,
            "token": model.tokenizers.target.tokens([number])[0], "log_probability": total,
        })  # fmt: skip
        places.append(len(nodes) - 1)
    return places


def known(models: Mapping[str, Seq2Seq], name: str | None) -> str:
    """Return the name of the model that is meant; without one, the first."""
    if name is None:
        return next(iter(models))
    if name not in models:
        raise UserError(f"There is no model {name!r} here. Known are: {', '.join(models)}.")
    return name
