"""A trace as one JSON document: tokens, steps, beams, what layers would say, and every number as bytes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from itertools import pairwise
from typing import Any

import torch

from seq2see.config import ModelConfig
from seq2see.decoding.search import Special, limits_of
from seq2see.errors import InputError, UserError
from seq2see.folder import Tokenizers
from seq2see.inspection.lens import logit_lens
from seq2see.inspection.saliency import saliency
from seq2see.inspection.tables import attention_name
from seq2see.inspection.trace import Edit, Trace, mute_head, names_of
from seq2see.inspection.trace import trace as recording_of
from seq2see.model.attention import EVERYTHING
from seq2see.model.transformer import Transformer, count_parameters
from seq2see.seq2seq import Seq2Seq
from seq2see.serve.figure import code
from seq2see.serve.tree import beam_nodes
from seq2see.serve.wire import SMALL, packed

TOP = 20  # alternatives told at each step
EXAMPLES = {"dates": ["1845-01-05", "2025-09-03", "1426-08-10", "1999-12-31", "2000-02-29"]}


def describe_model(name: str, model: Seq2Seq) -> dict[str, Any]:
    """Say what a model is, without where it lies."""
    return {
        **describe_network(model.config.model),
        "name": name,
        "task": model.config.task,
        "card": model.card,
        "examples": EXAMPLES.get(model.config.task, []),
    }


def describe_network(config: ModelConfig) -> dict[str, Any]:
    """Say what a network is, whether it is small enough to send whole, and where each part of it is computed."""
    parameters = count_parameters(config)
    return {"config": vars(config), "parameters": parameters, "small": parameters <= SMALL, "code": code()}


def describe_trace(
    model: Seq2Seq,
    text: str,
    prefix: Sequence[int] = (),
    muted: Sequence[tuple[str, int, int]] = (),
    names: Sequence[str] = ("*",),
    beam: int = 1,
    compact: bool = False,
    head: int | None = None,
    also: Collection[str] = (),
    step: int | None = None,
) -> dict[str, Any]:
    """Answer a text and tell all about it.

    ``prefix`` holds ids that the answer must begin with; ``muted`` names heads as (attention, layer, head); the rest is
    for ``describe``.
    """
    model.check(text)
    transformer, tokenizers = model.transformer, model.tokenizers
    _check_head(transformer, head)
    edit = _muting(transformer, muted)
    source_ids = tokenizers.source.encode(text)
    _check_prefix(model, prefix)
    ids = _continued(transformer, source_ids, prefix, _special(tokenizers), edit)
    traced = _trace(model, text, source_ids, [tokenizers.target.start, *ids], edit)
    return {
        **describe(traced, names, beam, compact, head, also, step),
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
) -> dict[str, Any]:
    """Tell all about a trace.

    ``names`` are globs of the values and parameters that are wanted, ``compact`` and ``head`` say how they are packed;
    ``also`` may hold ``lens`` and ``saliency``, which ``step`` limits to one step; ``beam`` adds the tree of a search.
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
        **packed(traced, names, compact, head),
    }


def _special(tokenizers: Tokenizers) -> Special:
    return Special(tokenizers.target.start, tokenizers.target.end, tokenizers.source.pad)


def _check_head(transformer: Transformer, head: int | None) -> None:
    heads = transformer.config.heads
    if head is not None and head >= heads:
        raise UserError(f"There is no head {head}: heads are 0 to {heads - 1}.")


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
    traced = Trace(model.transformer, model.tokenizers, text, source_ids, answer_ids, edit)
    with recording_of(model.transformer, edit) as recording:
        logits = model.transformer(torch.tensor(source_ids), torch.tensor(traced.target_ids))  # (T, V)
    traced.values = {**recording.values, "probabilities": logits.float().softmax(-1)}
    return traced


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
    def told(x: float) -> float:
        return float(f"{x:.6g}") if compact else x

    best = traced.probabilities.topk(min(TOP, traced.probabilities.shape[-1])).indices
    logits = traced["logits"].float().gather(1, best)
    return [
        {
            "id": step.id,
            "token": step.token,
            "log_probability": told(step.log_probability),
            "entropy": told(step.entropy),
            "top": [
                {"id": number, "token": token, "probability": told(share), "logit": told(logit)}
                for number, (token, share), logit in zip(numbers, step.top, values, strict=True)
            ],
        }
        for numbers, values, step in zip(best.tolist(), logits.tolist(), traced.steps(TOP), strict=True)
    ]


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
