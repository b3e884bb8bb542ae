"""What an answer needs: how much less likely each of its tokens is when heads are closed and the answer is held."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from seq2see.errors import InputError
from seq2see.inspection.glossary import Head
from seq2see.inspection.tables import attention_name
from seq2see.inspection.trace import Edit, Trace, all_of, attached, globbed
from seq2see.model.transformer import Transformer, at_rest

NAME = re.compile(r"(encoder|decoder|cross)(?:\.(\d+))?(?:\.(\d+))?")
AT_ONCE = 16  # names that one batch tries
NUMBERS = 2**24  # the most logits of one batch


def heads_of(transformer: Transformer, name: str) -> list[Head]:
    """Return the heads that a name stands for: ``cross.1.3`` is one, ``cross.1`` a layer of them, ``cross`` all."""
    found, config = NAME.fullmatch(name), transformer.config
    if found is None:
        raise InputError(f"{name!r} names no heads: a name such as cross.1.3, cross.1 or cross was expected.")
    depth = config.encoder_layers if found[1] == "encoder" else config.decoder_layers
    layers, heads = (range(n) if at is None else [int(at)] for n, at in ((depth, found[2]), (config.heads, found[3])))
    if any(layer >= depth for layer in layers) or any(head >= config.heads for head in heads):
        raise InputError(f"There is no {name}: layers are 0 to {depth - 1}, heads 0 to {config.heads - 1}.")
    return [(found[1], layer, head) for layer in layers for head in heads]


def names_of_gates(transformer: Transformer) -> list[str]:
    """Name each head of the decoder, and all heads that look at the text together."""
    config = transformer.config
    return ["cross", *(
        f"{kind}.{layer}.{head}"
        for layer in range(config.decoder_layers) for kind in ("decoder", "cross") for head in range(config.heads)
    )]  # fmt: skip


@torch.no_grad()
def effects(traced: Trace, names: Sequence[str]) -> dict[str, list[float]]:
    """Return for each name how much the log-probability of each token of the answer falls when its heads are closed.

    The answer is held: the model reads it once more, all positions at once, with the heads of a name at 0. What was
    edited in the trace stays edited. A negative fall means that the token is likelier without these heads.

    >>> import seq2see
    >>> seen = seq2see.load("dates").trace("1845-01-05")
    >>> [round(fall, 2) for fall in effects(seen, ["cross.0.2", "cross.1.3"])["cross.1.3"]][:3]
    [8.75, 0.0, 0.0]
    """
    transformer = traced.transformer
    closed = {name: heads_of(transformer, name) for name in names}
    ids = torch.tensor(traced.output_ids)
    before = _chosen(traced["logits"].cpu(), ids)
    count = max(1, min(AT_ONCE, NUMBERS // traced["logits"].numel()))
    found: dict[str, list[float]] = {}
    for some in _batches(list(closed), count):
        logits = _logits(traced, [closed[name] for name in some])
        falls = before - _chosen(logits, ids.expand(len(some), -1))
        found |= {name: [round(fall, 6) for fall in row] for name, row in zip(some, falls.tolist(), strict=True)}
    return found


def _batches(names: list[str], count: int) -> Iterator[list[str]]:
    for first in range(0, len(names), count):
        yield names[first : first + count]


def _chosen(logits: Tensor, ids: Tensor) -> Tensor:
    """Return the log-probability of each token of the answer, (…, T)."""
    return logits.float().log_softmax(-1).gather(-1, ids[..., None])[..., 0]


def _logits(traced: Trace, closed: Sequence[Sequence[Head]]) -> Tensor:
    """Read the answer in a batch, (B, T, V): each row without some heads."""
    transformer, rows = traced.transformer, len(closed)
    edit: dict[str, list[Edit]] = {name: [one] for name, one in traced.edit.items()}
    outs: dict[str, list[tuple[int, int]]] = {}
    for row, heads in enumerate(closed):
        for kind, layer, head in heads:
            outs.setdefault(f"{attention_name(traced.names, kind, layer)}.z", []).append((row, head))
    for name, places in outs.items():
        edit.setdefault(name, []).append(_closing(places))
    with at_rest(transformer), attached(transformer, _Editor({name: all_of(*some) for name, some in edit.items()})):
        device = next(transformer.parameters()).device
        source = torch.tensor(traced.source_ids, device=device).expand(rows, -1)
        target = torch.tensor(traced.target_ids, device=device).expand(rows, -1)
        logits: Tensor = transformer.decode(target, transformer.encode(source))
    return logits.cpu()


def _closing(places: Sequence[tuple[int, int]]) -> Edit:
    """Return an edit that sets heads of some rows of a batch of z, (B, T, H, K), to 0."""

    def close(z: Tensor) -> Tensor:
        for row, head in places:
            z[row, :, head] = 0
        return z

    return close


class _Editor:
    """Applies edits and keeps nothing."""

    def __init__(self, edit: Mapping[str, Edit]) -> None:
        self.edit = [(globbed([pattern]), one) for pattern, one in edit.items()]

    def __call__(self, path: str, x: Tensor) -> Tensor:
        for matches, one in self.edit:
            if matches(path):
                x = one(x.clone()) if callable(one) else torch.as_tensor(one).to(x).broadcast_to(x.shape)
        return x
