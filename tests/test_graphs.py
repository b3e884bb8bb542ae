"""The GPU's search, run on a CPU without graphs: the same answers as the plain search."""

from __future__ import annotations

import pytest
import torch

from seq2see.decoding.graphs import GraphDecoder
from seq2see.decoding.search import beam_search, greedy
from test_search import SOURCES, SPECIAL, chatty_model


@pytest.mark.parametrize("seed", range(4))
def test_greedy_equals_the_plain_search(seed: int) -> None:
    model = chatty_model(seed)
    decoder = GraphDecoder(model, SPECIAL)
    for sources in (SOURCES, SOURCES[:1], SOURCES[::-1]):  # the same buffers again
        for (found,), plain in zip(decoder.search(sources), greedy(model, sources, SPECIAL), strict=True):
            assert found.ids == plain.ids
            assert found.log_probabilities == pytest.approx(plain.log_probabilities, abs=1e-4)
            assert found.score == pytest.approx(plain.score, abs=1e-4)
            assert found.finished == plain.finished


@pytest.mark.parametrize("beam", [2, 4])
@pytest.mark.parametrize("seed", range(4))
def test_beams_by_ancestor_equal_beams_by_copy(seed: int, beam: int) -> None:
    model = chatty_model(seed, norm="pre")
    decoder = GraphDecoder(model, SPECIAL)
    for sources in (SOURCES, SOURCES[1:3]):
        for found, plain in zip(
            decoder.search(sources, beam), beam_search(model, sources, SPECIAL, beam), strict=True
        ):
            assert [h.ids for h in found] == [h.ids for h in plain]
            assert [h.score for h in found] == pytest.approx([h.score for h in plain], abs=1e-4)
            assert [h.finished for h in found] == [h.finished for h in plain]


@pytest.mark.parametrize("beam", [1, 3])
def test_a_step_compiles_whole(beam: int) -> None:
    model = chatty_model(1)
    decoder = GraphDecoder(model, SPECIAL)
    decoder.search(SOURCES, beam)
    (search,) = decoder.searches.values()
    search.step = torch.compile(search.step, backend="eager", fullgraph=True, dynamic=False)
    expected = beam_search(model, SOURCES, SPECIAL, beam)
    assert [h[0].ids for h in decoder.search(SOURCES, beam)] == [h[0].ids for h in expected]
