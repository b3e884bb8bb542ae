"""A trace as one JSON document: tokens, steps, beams, what layers would say, and every number as bytes."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch

from seq2see.config import ModelConfig
from seq2see.errors import UserError
from seq2see.inspection.lens import logit_lens
from seq2see.inspection.saliency import saliency
from seq2see.inspection.trace import Trace
from seq2see.model.transformer import Transformer
from seq2see.seq2seq import Seq2Seq
from seq2see.serve.figure import code
from seq2see.serve.tracer import Head, Tracer
from seq2see.serve.tree import beam_nodes
from seq2see.serve.wire import SMALL, packed

TOP = 20  # alternatives told at each step
#: What the models that ship may be asked, for a start.
EXAMPLES = {
    "dates": ["1845-01-05", "2025-09-03", "1426-08-10", "1999-12-31", "2000-02-29"],
    "en-fr": [
        "Where is the train station?",
        "I'm very proud of you.",
        "She doesn't want to go home.",
        "Could you speak more slowly?",
        "We have known each other for years.",
    ],
}


def describe_model(name: str, model: Seq2Seq) -> dict[str, Any]:
    """Say what a model is, without where it lies."""
    return {
        **describe_network(model.config.model),
        "name": name,
        "task": model.config.task,
        "card": model.card,
        "examples": EXAMPLES.get(model.config.task) or EXAMPLES.get(name) or _samples(model),
    }


def _samples(model: Seq2Seq) -> list[str]:
    """Return what a model was asked in the course of its training, as its log has it."""
    try:
        last = (model.path / "log.jsonl").read_text(encoding="utf-8").splitlines()[-1] if model.path else "{}"
        return [str(source) for source, *_ in json.loads(last).get("samples", [])]
    except (OSError, ValueError, IndexError):
        return []


def describe_network(config: ModelConfig) -> dict[str, Any]:
    """Say what a network is, whether it is small enough to send whole, and where each part of it is computed."""
    parameters = config.parameters
    return {"config": vars(config), "parameters": parameters, "small": parameters <= SMALL, "code": code()}


def describe_trace(
    tracer: Tracer,
    text: str,
    prefix: Sequence[int] = (),
    muted: Sequence[Head] = (),
    names: Sequence[str] = ("*",),
    beam: int = 1,
    compact: bool = False,
    head: int | None = None,
    also: Collection[str] = (),
    step: int | None = None,
    column: int | None = None,
) -> dict[str, Any]:
    """Answer a text and tell all about it.

    ``prefix`` holds ids that the answer must begin with; ``muted`` names heads as (attention, layer, head); the rest is
    for ``describe``.
    """
    _check_head(tracer.model.transformer, head)
    traced = tracer.trace(text, prefix, muted)
    return {
        **describe(traced, names, beam, compact, head, also, step, column),
        "forced": len(prefix),
        "muted": [list(key) for key in muted],
    }


def describe(
    traced: Trace,
    names: Sequence[str] = ("*",),
    beam: int = 1,
    compact: bool = False,
    head: int | None = None,
    also: Collection[str] = (),
    step: int | None = None,
    column: int | None = None,
) -> dict[str, Any]:
    """Tell all about a trace.

    ``names`` are globs of the values and parameters that are wanted; ``compact``, ``head`` and ``column`` say how those
    are packed; ``also`` may hold ``lens`` and ``saliency``, which ``step`` limits to one step; ``beam`` adds the tree of
    a search.
    """
    transformer, tokenizers = traced.transformer, traced.tokenizers
    wanted: dict[str, Any] = {}
    if "lens" in also:
        wanted["lens"] = _lens(traced)
    if "saliency" in also:
        wanted["saliency"] = _saliency(traced, step)
    return {
        "text": traced.text,
        "output": traced.output,
        "finished": traced.output_ids[-1] == tokenizers.target.end,
        "forced": 0,
        "muted": [],
        "d_model": transformer.config.d_model,
        "positions": transformer.config.positions,
        "norm": transformer.config.norm,
        "activation": transformer.config.activation,
        "source": _tokens(traced.source_tokens, traced.source_ids, _source_spans(traced)),
        "target": _tokens(traced.target_tokens, traced.target_ids, _target_spans(traced)),
        "steps": _steps(traced, compact),
        "beams": beam_nodes(transformer, tokenizers, traced.source_ids, beam, traced.edit)
        if beam > 1
        else [],
        **wanted,
        **packed(traced, names, compact, head, column),
    }


def _check_head(transformer: Transformer, head: int | None) -> None:
    heads = transformer.config.heads
    if head is not None and head >= heads:
        raise UserError(f"There is no head {head}: heads are 0 to {heads - 1}.")


def _tokens(tokens: list[str], ids: list[int], spans: list[tuple[int, int]]) -> list[dict[str, Any]]:
    return [
        {"token": token, "id": number, "span": list(span)}
        for token, number, span in zip(tokens, ids, spans, strict=True)
    ]


def _source_spans(traced: Trace) -> list[tuple[int, int]]:
    """Return which characters each token stands for."""
    encoding = traced.tokenizers.source.engine.encode(traced.text)
    assert encoding.ids == traced.source_ids
    return [(int(first), int(last)) for first, last in encoding.offsets]


def _target_spans(traced: Trace) -> list[tuple[int, int]]:
    ids = traced.target_ids
    ends = [len(traced.tokenizers.target.decode(ids[:n])) for n in range(len(ids) + 1)]
    return list(pairwise(ends))


def _steps(traced: Trace, compact: bool) -> list[dict[str, Any]]:
    """Tell each step's choice and the likeliest tokens; the vocabulary may be large, so it is gone through once."""

    def told(x: float) -> float:
        return float(f"{x:.6g}") if compact else x

    logits, shares = traced["logits"].float(), traced.probabilities  # (T, V)
    logs = logits.log_softmax(-1)
    chosen = logs.gather(1, torch.tensor(traced.output_ids)[:, None])[:, 0].tolist()
    entropies = (-torch.linalg.vecdot(shares, logs.clamp_min(torch.finfo(logs.dtype).min))).tolist()
    best = logits.topk(min(TOP, logits.shape[-1]))
    target = traced.tokenizers.target
    return [
        {
            "id": number,
            "token": token,
            "log_probability": told(log_probability),
            "entropy": told(entropy),
            "top": [
                {"id": one, "token": name, "probability": told(share), "logit": told(logit)}
                for one, name, share, logit in zip(ids, target.tokens(ids), likely, values, strict=True)
            ],
        }
        for number, token, log_probability, entropy, ids, likely, values in zip(
            traced.output_ids, traced.output_tokens, chosen, entropies, best.indices.tolist(),
            shares.gather(1, best.indices).tolist(), best.values.tolist(), strict=True,
        )
    ]  # fmt: skip


def _lens(traced: Trace) -> list[dict[str, Any]]:
    """Tell what each layer would say at each step."""
    return [
        {
            "after": layer.after,
            "ids": layer.ids.tolist(),
            "tokens": traced.tokenizers.target.tokens(layer.ids.tolist()),
            "probabilities": layer.probabilities.tolist(),
        }
        for layer in logit_lens(traced)
    ]


def _saliency(traced: Trace, step: int | None) -> dict[str, Any]:
    shares = saliency(traced, step)
    first = 0 if step is None else step
    return {"first": first, "source": shares.source.tolist(), "target": shares.target.tolist()}


def known(models: Mapping[str, Seq2Seq], name: str | None) -> str:
    """Return the name of the model that is meant; without one, the first."""
    if name is None:
        return next(iter(models))
    if name not in models:
        raise UserError(f"There is no model {name!r} here. Known are: {', '.join(models)}.")
    return name
