"""How sharply the heads of a model attend to one pair of texts, in few enough numbers for each line of a training log."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from seq2see.errors import InputError
from seq2see.inspection.tables import ATTENTIONS
from seq2see.inspection.trace import record
from seq2see.model.transformer import Transformer
from seq2see.storage.folder import Tokenizers

SHOWN = 64  # the most tokens kept of each side, because people read the log


@dataclass(frozen=True)
class Sharpness:
    """What the heads attend to while the model reads one given target."""

    source: list[str]  # tokens attended to
    target: list[str]  # tokens written, one for each row
    tokens: dict[str, list[list[float]]]  # for each attention, layer and head: over how many tokens it spreads
    cross: list[list[float]]  # target × source: the mean of all heads of all decoder layers


def sharpness(transformer: Transformer, tokenizers: Tokenizers, source: str, target: str) -> Sharpness | None:
    """Measure one pair of a source and its target; return None if the model cannot take it.

    A head that spreads evenly over n tokens counts n; one that looks at a single token counts 1.
    """
    try:
        seen = record(transformer, tokenizers, source, target)
    except InputError:
        return None
    found = {
        kind: [seen[name].float() for name in seen.match(f"{path.format('*')}.weights")]
        for kind, path in ATTENTIONS.items()
    }
    cross = torch.stack(found["cross"]).mean((0, 1))[:SHOWN, :SHOWN]  # (T, S)
    return Sharpness(
        source=seen.source_tokens[:SHOWN],
        target=seen.output_tokens[:SHOWN],
        tokens={kind: [_spread(weights) for weights in layers] for kind, layers in found.items()},
        cross=[[round(share, 3) for share in row] for row in cross.tolist()],
    )


def _spread(weights: Tensor) -> list[float]:
    """Return e to the mean entropy of the rows of each head, from weights (H, T, S)."""
    entropy = torch.special.entr(weights).sum(-1).mean(-1)  # (H,)
    return [round(value, 3) for value in entropy.exp().tolist()]
