"""The GPU's search, run on a CPU without graphs: the same answers as the plain search."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import pytest
import torch

from conftest import small_model, sweep
from seq2see import machine
from seq2see.config import ModelConfig
from seq2see.decoding import graphs
from seq2see.decoding.graphs import GraphDecoder
from seq2see.decoding.hypothesis import PAPER, Hypothesis, with_beam
from seq2see.decoding.search import Special, beam_search, greedy
from seq2see.errors import UserError
from seq2see.kernels import step
from seq2see.model.transformer import Transformer
from test_search import SOURCES, SPECIAL, chatty_model


def check_same(found: list[list[Hypothesis]], expected: list[list[Hypothesis]]) -> None:
    for row, right in zip(found, expected, strict=True):
        assert [(one.ids, one.finished) for one in row] == [(one.ids, one.finished) for one in right]
        assert [one.score for one in row] == pytest.approx([one.score for one in right], abs=1e-4)
        for one, other in zip(row, right, strict=True):
            assert one.log_probabilities == pytest.approx(other.log_probabilities, abs=1e-4)


@pytest.mark.parametrize("beam", [1, 2, 4])
@pytest.mark.parametrize("seed", sweep(range(4), 1))
def test_the_search_equals_the_plain_one(seed: int, beam: int) -> None:
    model = chatty_model(seed, norm="pre" if beam > 1 else "post")
    decoder = GraphDecoder(model, SPECIAL)
    for sources in (SOURCES, SOURCES[:1], SOURCES[::-1]):  # the same buffers again
        found = decoder.search(sources, with_beam(beam))
        check_same(found, beam_search(model, sources, SPECIAL, with_beam(beam)))


def test_ids_alone_and_weights_that_change() -> None:
    model = chatty_model(3, norm="pre")
    decoder = GraphDecoder(model, SPECIAL)
    for seed in (4, 5):
        for beam in (1, 3):
            expected = [h[0].ids for h in beam_search(model, SOURCES, SPECIAL, with_beam(beam))]
            assert decoder.ids(SOURCES, with_beam(beam)) == expected
        model.load_state_dict(chatty_model(seed, norm="pre").state_dict())


def test_a_padding_that_is_no_target_token() -> None:
    rules = PAPER.but(length_offset=1)  # some are done while others go on
    torch.manual_seed(0)
    model = Transformer(ModelConfig.of(
        source_vocabulary=20, target_vocabulary=13, d_model=16, heads=2, d_ff=32, encoder_layers=1, decoder_layers=1,
        max_length=40, share_embeddings=False,
    )).eval()  # fmt: skip
    special = Special(start=1, end=2, pad=19)
    expected = [h.ids for h in greedy(model, SOURCES, special, rules)]
    assert GraphDecoder(model, special).ids(SOURCES, rules) == expected


def test_broken_weights_still_give_an_answer() -> None:
    model = chatty_model(3)
    with torch.no_grad():
        model.output.bias.fill_(torch.nan)
    assert all(GraphDecoder(model, SPECIAL).search(SOURCES))


@pytest.mark.parametrize("beam", [1, 4])
def test_what_is_done_is_left_behind(beam: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "SMALLEST_SEARCH", 1)
    monkeypatch.setattr(graphs, "LOOK_EVERY", 1)
    rules = PAPER.but(beam=beam, length_offset=1)
    endless = replace(SPECIAL, end=-1)  # so that each stops at a limit of its own
    model = chatty_model(0, norm="pre")
    decoder = GraphDecoder(model, endless)
    sources = [[3 + (i * j) % 7 for j in range(1, 2 + i)] for i in range(16)]
    found = decoder.search(sources, rules)
    check_same(found, beam_search(model, sources, endless, rules))
    assert len({sentences for sentences, *_ in decoder.searches}) > 2


def test_what_goes_on_shares_shapes_with_longer_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "SMALLEST_SEARCH", 1)
    monkeypatch.setattr(graphs, "LOOK_EVERY", 1)
    monkeypatch.setattr(graphs, "SHARED_WIDTH", 32)
    rules = PAPER.but(beam=2, length_offset=1)
    endless = replace(SPECIAL, end=-1)
    model = chatty_model(0, norm="pre")
    decoder = GraphDecoder(model, endless)
    for longest in (24, 8, 16, 20):  # the shorter ones find in the buffers what longer ones have left there
        sources = [[3 + (i * j) % 7 for j in range(1, 2 + i)] for i in range(longest - 8, longest)]
        check_same(decoder.search(sources, rules), beam_search(model, sources, endless, rules))
    shapes = [(sentences, width) for sentences, width, *_ in decoder.searches]
    assert {width for sentences, width in shapes if sentences == 8} == {8, 16, 24}
    assert {width for sentences, width in shapes if sentences < 8} == {32}
    assert len({(width, length) for _, width, length, *_ in decoder.searches}) == 4


def test_no_thread_collects_before_the_last_pause_has_ended() -> None:
    gc.enable()
    one, other = machine.uncollected(), machine.uncollected()
    for begin in (one, other):
        begin.__enter__()
        assert not gc.isenabled()
    one.__exit__(None, None, None)  # the first thread ends before the second
    assert not gc.isenabled()
    other.__exit__(None, None, None)
    assert gc.isenabled()
    gc.disable()
    with machine.uncollected():
        pass
    assert not gc.isenabled()  # as it was
    gc.enable()


def test_a_missing_compiler_is_said_and_any_other_error_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = GraphDecoder(chatty_model(1), SPECIAL)
    for message, kind in (("Failed to find C compiler", UserError), ("out of memory", RuntimeError)):

        def failing(*arguments: object, message: str = message) -> None:
            raise RuntimeError(message)

        monkeypatch.setattr(graphs.GraphSearch, "start", failing)
        with pytest.raises(kind, match="install gcc" if kind is UserError else message):
            decoder.ids(SOURCES)


@pytest.mark.parametrize("few", [0, 1000])
@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"norm": "pre"},
        {"activation": "gelu", "embedding_norm": True},
        {"norm": "pre", "activation": "swish", "d_k": 3, "d_v": 5, "output_bias": True},
    ],
)
def test_a_step_of_few_or_many_rows_is_a_step_of_the_layers(
    shape: dict[str, Any], few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step, "FEW_ROWS", few)
    model = small_model(2, **shape)
    with torch.no_grad():
        assert model.output.bias is not None
        model.output.bias[SPECIAL.end] += 3.0
        for parameter in model.parameters():
            if parameter.dim() == 1:  # biases and norms that do nothing could be left out
                parameter.add_(0.3 * torch.randn_like(parameter))
    for beam in (1, 3):
        decoder = GraphDecoder(model, SPECIAL)
        found = decoder.search(SOURCES, with_beam(beam))
        search = next(iter(decoder.searches.values()))
        assert search.step is not None
        assert search.step.form == ("few rows" if few else "many rows")
        check_same(found, beam_search(model, SOURCES, SPECIAL, with_beam(beam)))
