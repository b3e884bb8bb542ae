"""Describes models and traces as JSON: tokens, steps, the beam tree, lens, and every number as bytes."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seq2see.answering.answer import Answer
from seq2see.config import Config, ModelConfig
from seq2see.errors import UserError
from seq2see.files import digest, parsed, read_text
from seq2see.page import SMALL
from seq2see.storage import folder

if TYPE_CHECKING:
    from seq2see.inspection.trace import Trace

TOP = 20  # likeliest tokens listed at each step
#: Inputs that the page suggests for the shipped models.
EXAMPLES = {
    "dates": ["1845-01-05", "2025-09-03", "1426-08-10", "1999-12-31", "2000-02-29"],
    "human-dates": ["le 3 janvier 1845", "the 29th of August 1958", "5 Jan '45", "03/04/2020", "2024年2月29日"],
    "en-de": [
        "Where is the train station?",
        "She doesn't want to go home.",
        "Could you speak more slowly?",
        "We have known each other for years.",
    ],
    "fr-en": [
        "Où est la gare ?",
        "Je suis très fier de toi.",
        "Pourriez-vous parler plus lentement ?",
        "Nous nous connaissons depuis des années.",
    ],
    "en-fr": [
        "Where is the train station?",
        "I'm very proud of you.",
        "She doesn't want to go home.",
        "Could you speak more slowly?",
        "We have known each other for years.",
    ],
}


def describe_model(name: str, config: Config, card: str, path: Path | None) -> dict[str, Any]:
    """Describe a model. The path of its folder serves to find examples and is not part of the description."""
    return {
        **describe_network(config.model),
        "name": name,
        "task": config.task,
        "card": card,
        "does": what_it_does(card),
        "examples": EXAMPLES.get(config.task) or EXAMPLES.get(name) or _samples(path),
        **({"puzzles": True} if config.task == "dates" and _is_shipped(path) else {}),
        "sentences": config.decoding.sentences,
    }


def what_it_does(card: str) -> str:
    """Return the first sentence of a card, or nothing where the card says only how large the model is."""
    said = next((part for part in card.split("\n\n") if part.strip() and not part.startswith("#")), "")
    first = re.split(r"(?<=[.!?])\s+(?=[A-Z])", re.sub(r"[*`]", "", " ".join(said.split())))[0]
    return "" if first.startswith(("A Transformer", "|")) else first


def _is_shipped(path: Path | None) -> bool:
    """Whether a folder has the weights of the shipped date model, for which the puzzles were measured."""
    if path is None or not (path / folder.WEIGHTS).is_file():
        return False
    return digest(path / folder.WEIGHTS) == digest(folder.SHIPPED / "dates" / folder.WEIGHTS)


def _samples(path: Path | None) -> list[str]:
    """Return the sample inputs of the last line of a model's training log, if there is a log."""
    try:
        last = read_text(path / "log.jsonl", folder.LARGEST_LOG).splitlines()[-1] if path else "{}"
        return [str(source) for source, *_ in parsed(last, "log.jsonl").get("samples", [])]
    except (UserError, AttributeError, TypeError, ValueError, IndexError):
        return []


def describe_network(config: ModelConfig) -> dict[str, Any]:
    """Describe a network: its shape, and whether it is small enough to send whole."""
    parameters = config.parameters
    return {"config": vars(config), "parameters": parameters, "small": parameters <= SMALL}


def describe_ensemble(config: ModelConfig, member: int, answer: Answer | None = None) -> dict[str, Any]:
    """Say which member of an ensemble is shown and, if it is known, what all members together answer."""
    found: dict[str, Any] = {"member": member, "members": config.members, "traceable": config.members - config.backward}
    if answer is not None and answer.output is not None:
        found["output"] = answer.output
        if answer.confidence is not None:  # it was fitted on the answers of all members together
            found["confidence"] = answer.confidence
    return found


def describe(
    traced: Trace,
    names: Sequence[str] = ("*",),
    beam: int = 1,
    compact: bool = False,
    head: int | None = None,
    also: Collection[str] = (),
    column: int | None = None,
    closed: Sequence[str] = (),
) -> dict[str, Any]:
    """Describe a trace.

    ``names`` holds globs of the values and parameters to send. ``compact``, ``head`` and ``column`` choose how ``packed``
    writes them. ``also`` may hold ``lens``. A ``beam`` above 1 adds the tree of a beam search. ``closed`` names heads
    (``cross.1.3``, ``cross.1``, ``cross``) to close while the answer is held.
    """
    from seq2see.inspection.effect import effects
    from seq2see.page.tree import beam_nodes
    from seq2see.page.wire import packed

    transformer, tokenizers = traced.transformer, traced.tokenizers
    wanted: dict[str, Any] = {"lens": _lens(traced)} if "lens" in also else {}
    if closed:
        wanted["effects"] = effects(traced, closed)
    return {
        "text": traced.text,
        "output": traced.output,
        "finished": traced.output_ids[-1] == tokenizers.target.end,
        "forced": 0,
        "muted": [],
        "d_model": transformer.config.d_model,
        "positions": transformer.config.positions,
        "scale_embeddings": transformer.config.scale_embeddings,
        "embedding_norm": transformer.config.embedding_norm,
        "norm": transformer.config.norm,
        "activation": transformer.config.activation,
        "source": _tokens(traced.source_tokens, traced.source_ids, _source_spans(traced)),
        "target": _tokens(traced.target_tokens, traced.target_ids, _target_spans(traced)),
        "steps": _steps(traced, compact),
        "beams": beam_nodes(transformer, tokenizers, traced.source_ids, traced.rules.but(beam=beam), traced.edit)
        if beam > 1
        else [],
        **wanted,
        **packed(traced, names, compact, head, column),
    }


def _tokens(tokens: list[str], ids: list[int], spans: list[tuple[int, int]]) -> list[dict[str, Any]]:
    return [
        {"token": token, "id": number, "span": list(span)}
        for token, number, span in zip(tokens, ids, spans, strict=True)
    ]


def _source_spans(traced: Trace) -> list[tuple[int, int]]:
    """Return the range of characters that each source token covers."""
    encoding = traced.tokenizers.source.engine.encode(traced.text)
    assert len(encoding.ids) == len(traced.source_ids)
    return [(int(first), int(last)) for first, last in encoding.offsets]


def _target_spans(traced: Trace) -> list[tuple[int, int]]:
    """Return the range of characters of the answer that each target token covers."""
    ids = traced.target_ids
    ends = [len(traced.tokenizers.target.decode(ids[:n])) for n in range(len(ids) + 1)]
    return list(pairwise(ends))


def _steps(traced: Trace, compact: bool) -> list[dict[str, Any]]:
    """Describe each step: the chosen token and the likeliest tokens. All steps share one pass over the vocabulary."""
    import torch

    def rounded(x: float) -> float:
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
            "log_probability": rounded(log_probability),
            "entropy": rounded(entropy),
            "top": [
                {"id": one, "token": name, "probability": rounded(share), "logit": rounded(logit)}
                for one, name, share, logit in zip(ids, target.tokens(ids), likely, values, strict=True)
            ],
        }
        for number, token, log_probability, entropy, ids, likely, values in zip(
            traced.output_ids, traced.output_tokens, chosen, entropies, best.indices.tolist(),
            shares.gather(1, best.indices).tolist(), best.values.tolist(), strict=True,
        )
    ]  # fmt: skip


def _lens(traced: Trace) -> list[dict[str, Any]]:
    """Describe the token that each layer would choose at each step."""
    from seq2see.inspection.trace import logit_lens

    return [
        {
            "after": layer.after,
            "ids": layer.ids.tolist(),
            "tokens": traced.tokenizers.target.tokens(layer.ids.tolist()),
            "probabilities": layer.probabilities.tolist(),
        }
        for layer in logit_lens(traced)
    ]
