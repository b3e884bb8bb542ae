"""The torch engine: every device, every beam, any number of answers, and models edited in memory."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from seq2see.decoding.engines import LARGE
from seq2see.decoding.graphs import GraphDecoder
from seq2see.decoding.hypothesis import Hypothesis, Special
from seq2see.decoding.search import beam_search, greedy, greedy_tensors
from seq2see.model.transformer import Transformer

LITTLE = 2**14  # rows × d_model of one step below which one thread is faster than two


class TorchEngine:
    """Searches with the model itself."""

    def __init__(self, transformer: Transformer, special: Special) -> None:
        self.original, self.special = transformer, special
        weight = next(transformer.parameters())
        self.narrow = (
            weight.device.type == "cpu"
            and weight.dtype == torch.float32
            and transformer.config.d_model >= LARGE
            and multiplies_bfloat16()
        )
        self.version: list[tuple[int, int]] = []
        self.graphs = GraphDecoder(transformer, special) if weight.device.type == "cuda" else None
        self.name = f"torch, {'bfloat16' if self.narrow else str(weight.dtype).removeprefix('torch.')}"

    @property
    def transformer(self) -> Transformer:
        """The model in the precision that is fastest here; copied anew whenever the original was edited."""
        if not self.narrow:
            return self.original
        version = [(id(weight), weight._version) for weight in self.original.parameters()]
        if version != self.version:
            self.version, self.copy = version, copy.deepcopy(self.original).bfloat16()
        return self.copy

    def ids(self, sources: Sequence[Sequence[int]], beam: int = 1) -> list[list[int]]:
        """Return the best answer's ids to each source."""
        if beam > 1 or self.graphs is not None:
            return [hypotheses[0].ids for hypotheses in self.search(sources, beam)]
        with _fitting_threads(self.original, len(sources)):
            ids, _, lengths, _ = greedy_tensors(self.transformer, sources, self.special)
        return [row[:length] for row, length in zip(ids.tolist(), lengths.tolist(), strict=True)]

    def search(
        self, sources: Sequence[Sequence[int]], beam: int = 1, n_best: int = 1
    ) -> list[list[Hypothesis]]:
        """Return the ``n_best`` answers to each source, best first, with the log-probability of each token."""
        if self.graphs is not None:
            return [hypotheses[:n_best] for hypotheses in self.graphs.search(sources, beam)]
        with _fitting_threads(self.original, len(sources) * beam):
            if beam == 1:
                return [[hypothesis] for hypothesis in greedy(self.transformer, sources, self.special)]
            found = beam_search(self.transformer, sources, self.special, beam)
        return [hypotheses[:n_best] for hypotheses in found]


def multiplies_bfloat16() -> bool:
    """Whether this CPU multiplies bfloat16 in hardware; others imitate it, slowly."""
    return bool(torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported())


@contextmanager
def _fitting_threads(transformer: Transformer, rows: int) -> Iterator[None]:
    """Use one thread for little work on the CPU: sharing it out costs more than it brings."""
    before = torch.get_num_threads()
    little = rows * transformer.config.d_model < LITTLE
    if not little or next(transformer.parameters()).device.type != "cpu":
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
