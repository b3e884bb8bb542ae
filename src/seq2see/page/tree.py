"""A beam search as a tree: every prefix that the search kept, and every answer that it finished."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from math import inf
from typing import Any

import torch

from seq2see.config import DecodingConfig
from seq2see.decoding.readers import WrittenReader, reading
from seq2see.decoding.search import Beam, Beams, Special, limits_of, steps
from seq2see.inspection.trace import Edit, everywhere
from seq2see.inspection.trace import trace as recording_of
from seq2see.model.transformer import Transformer
from seq2see.storage.folder import Tokenizers


class _Tree:
    """The nodes, in the order in which the search reached them."""

    def __init__(self, tokenizers: Tokenizers) -> None:
        self.target = tokenizers.target
        self.nodes: list[dict[str, Any]] = []
        self.places: dict[tuple[int, ...], int] = {}  # the index of the node of each prefix

    def add(self, ids: list[int], log_probability: float, **more: Any) -> None:
        """Add a prefix as a child of the prefix that it continues."""
        if tuple(ids) not in self.places:
            self.places[tuple(ids)] = len(self.nodes)
            self.nodes.append({
                "step": len(ids) - 1, "parent": self.places.get(tuple(ids[:-1])), "id": ids[-1],
                "token": self.target.tokens(ids[-1:])[0], "log_probability": log_probability, **more,
            })  # fmt: skip

    def grow(self, beams: Beams, step: int) -> None:
        """Add the prefixes that one step kept and the answers that ended at it."""
        for ids, total in zip(beams.ids[0, :, : step + 1].tolist(), beams.total[0].tolist(), strict=True):
            if total > -inf:
                self.add(ids, total)
        for row, score in enumerate(beams.done_score[0].tolist()):
            if score > -inf and beams.done_ended[0, row] and int(beams.done_length[0, row]) == step + 1:
                values = beams.done_values[0, row, : step + 1]
                self.add(beams.done_ids[0, row, : step + 1].tolist(), float(values.sum()), score=score)


@torch.no_grad()
def beam_nodes(
    transformer: Transformer,
    tokenizers: Tokenizers,
    source_ids: list[int],
    rules: DecodingConfig,
    edit: Mapping[str, Edit],
) -> list[dict[str, Any]]:
    """Run a beam search and describe every prefix: its parent, its last token, its log-probability.

    A node with a ``score`` is a finished answer. The score ranks the answers: it is the log-probability divided by the
    length penalty.
    """
    special = Special.of(tokenizers)
    limits, beam = limits_of(transformer, [source_ids], rules=rules), rules.beam
    tree, choice = _Tree(tokenizers), Beam(limits, special, rules)
    with recording_of(transformer, edit) if edit else nullcontext():
        memory = transformer.encode(torch.tensor([source_ids])).expand(beam, -1, -1)
        whole = edit and not everywhere(edit)
        reader = WrittenReader(transformer, memory) if whole else reading(transformer, memory)
        for t in steps(reader, choice, torch.full((beam, 1), special.start)):
            tree.grow(choice.beams, t)
    return tree.nodes
