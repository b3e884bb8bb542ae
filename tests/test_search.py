"""Greedy and beam search against slow, obvious versions of themselves."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from conftest import small_model, sweep
from seq2see.config import WIDEST_BEAM, DecodingConfig
from seq2see.decoding import search
from seq2see.decoding.hypothesis import PAPER, with_beam
from seq2see.decoding.readers import CachedReader, WholeReader, WrittenReader
from seq2see.decoding.rule import LogitsRules
from seq2see.decoding.search import Beams, Greedy, Special, beam_search, continued, greedy, likeliest, limits_of
from seq2see.kernels.shared import DecoderCache
from seq2see.model.masks import EVERYTHING
from seq2see.model.transformer import Transformer

SPECIAL = Special(start=1, end=2, pad=0)
SOURCES = [[1, 3, 4, 5, 2], [1, 7, 2], [1, 9, 9, 8, 7, 6, 5, 2], [1, 4, 2], [1, 3, 10, 2]]


def chatty_model(seed: int, norm: str = "post") -> Transformer:
    """A random model whose answers end now and then."""
    model = small_model(seed, norm=norm)
    with torch.no_grad():
        model.output.bias[SPECIAL.end] += 3.0
    return model


def plain_greedy(model: Transformer, source: list[int]) -> tuple[list[int], list[float]]:
    """No cache, no batch: the whole prefix again at each step."""
    ids, values = [SPECIAL.start], []
    limit = min(len(source) + 50, model.config.max_length - 1)
    with torch.inference_mode():
        for _ in range(limit):
            logits = model(torch.tensor([source]), torch.tensor([ids]))[0, -1].log_softmax(-1)
            values.append(float(logits.max()))
            ids.append(int(logits.argmax()))
            if ids[-1] == SPECIAL.end:
                break
    return ids[1:], values


@pytest.mark.parametrize("seed", sweep(range(6), 2))
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_cached_batched_greedy_equals_plain(seed: int, norm: str) -> None:
    model = chatty_model(seed, norm)
    for answer, source in zip(greedy(model, SOURCES, SPECIAL), SOURCES, strict=True):
        ids, values = plain_greedy(model, source)
        assert answer.ids == ids
        assert answer.log_probabilities == pytest.approx(values, abs=1e-4)
        assert answer.finished == (ids[-1] == SPECIAL.end)


@pytest.mark.parametrize(
    "rules",
    [PAPER, PAPER.but(no_repeat=2), PAPER.but(no_repeat_source=1, suppressed=(5,)), PAPER.but(min_length=4)],
    ids=["no rule", "the answer", "the source", "the step"],
)
def test_groups_of_sentences_are_searched_as_all_at_once(
    rules: DecodingConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = chatty_model(3, norm="pre")
    vocabulary, beam = model.config.target_vocabulary, 3
    whole = beam_search(model, SOURCES, SPECIAL, rules.but(beam=beam))
    sizes, wrapped = [], search.likeliest

    def counted(logits: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
        sizes.append(len(logits))
        return wrapped(logits, *rest)

    monkeypatch.setattr(search, "likeliest", counted)
    monkeypatch.setattr(search, "IN_CACHE", 2 * beam * vocabulary)
    assert beam_search(model, SOURCES, SPECIAL, rules.but(beam=beam)) == whole
    assert sizes[:3] == [2, 2, 1]


def test_a_beam_reads_each_source_once_and_moves_it_only_to_drop_others(monkeypatch: pytest.MonkeyPatch) -> None:
    model, moved = small_model(1, max_length=12), []
    select = DecoderCache.select

    def counted(cache: DecoderCache, rows: Tensor, sources: bool = True) -> None:
        moved.append((len(rows), sources))
        select(cache, rows, sources)

    monkeypatch.setattr(DecoderCache, "select", counted)
    projected = []
    for layer in model.decoder.layers:
        layer.cross_attention.w_k.register_forward_hook(lambda _, given, __: projected.append(len(given[0])))
    with torch.no_grad():
        model.output.bias[SPECIAL.end] = -100.0  # every answer ends at the limit
    beam_search(model, SOURCES, SPECIAL, with_beam(4))
    assert projected == [len(SOURCES)] * len(model.decoder.layers)
    assert moved == [(20, True), *[(20, False)] * 10]  # the first spreads the beams; the rest are 11 steps


@pytest.mark.parametrize("seed", sweep(range(5), 2))
def test_a_wide_beam_finds_the_best_of_all_answers(seed: int) -> None:
    """With 4 tokens and at most 5 steps all answers can be scored; a beam wide enough must find the best."""
    torch.manual_seed(seed)
    model = small_model(seed, target_vocabulary=4, max_length=6)
    source = [1, 3, 2]
    scores = {}
    with torch.inference_mode():
        for length in range(1, 6):
            bodies = itertools.product([0, 1, 3], repeat=length - 1)
            answers = [(*body, last) for body in bodies for last in ([2] if length < 5 else [0, 1, 2, 3])]
            read = torch.tensor([[1, *ids[:-1]] for ids in answers])
            logits = model(torch.tensor([source] * len(answers)), read).log_softmax(-1)
            for ids, row in zip(answers, logits.tolist(), strict=True):
                total = sum(row[t][token] for t, token in enumerate(ids))
                scores[ids] = total / PAPER.divisor(length)
    ranked = sorted(scores.items(), key=lambda item: -item[1])
    (found,) = beam_search(model, [source], SPECIAL, with_beam(WIDEST_BEAM))
    assert [tuple(h.ids) for h in found[:5]] == [ids for ids, _ in ranked[:5]]
    assert [h.score for h in found[:5]] == pytest.approx([score for _, score in ranked[:5]], abs=1e-4)


class Sure(Transformer):
    """Writes 5 6 7 8 9 and the end, and is sure of it; what comes second is always the end."""

    def decode(self, target: Tensor, memory: Tensor, *rest: Any) -> Tensor:
        logits = torch.full((len(target), 1, self.config.target_vocabulary), -20.0)
        right = [5, 6, 7, 8, 9, SPECIAL.end][min(target.shape[1] - 1, 5)]
        logits[:, :, SPECIAL.end], logits[:, :, right] = 2.0, 10.0
        return logits


@pytest.mark.parametrize("beam", [2, 3, 4])
def test_answers_that_broke_off_do_not_end_the_search_for_a_likelier_one(beam: int) -> None:
    model = Sure(small_model().config)
    (answers,) = beam_search(model, [[1, 4, 2]], SPECIAL, with_beam(beam))
    assert answers[0].ids == [5, 6, 7, 8, 9, SPECIAL.end]
    assert len(answers) == beam
    assert [answer.score for answer in answers] == sorted((answer.score for answer in answers), reverse=True)


@pytest.mark.parametrize("seed", sweep(range(3), 1))
def test_an_answer_goes_on_after_what_is_forced(seed: int) -> None:
    model, source = chatty_model(seed), SOURCES[2]
    limit = limits_of(model, [source], rules=PAPER.but(max_length=9))
    with torch.no_grad():
        memory = model.encode(torch.tensor(source))
        ids = plain_greedy(model, source)[0][:9]

        def answers(prefix: list[int]) -> list[list[int]]:
            readers = (CachedReader(model, memory[None], EVERYTHING), WholeReader(model, memory))
            return [continued(reader, SPECIAL, limit, prefix) for reader in readers]

        for length in range(len(ids) + 1):
            assert answers(ids[:length]) == [ids] * 2
        other = [(ids[0] - 2) % 10 + 3]  # neither the end nor what the model would say
        first, second = answers(other)
        assert first == second
        assert first[:1] == other
        assert len(first) > 1
        for full in ([3] * int(limit), [3] * (int(limit) + 2)):
            assert answers(full) == [full] * 2


def test_every_reader_says_what_the_whole_model_says() -> None:
    model, source = small_model(), SOURCES[2]
    with torch.no_grad():
        memory = model.encode(torch.tensor(source))
        readers = CachedReader(model, memory[None], EVERYTHING), WrittenReader(model, memory[None])
        for reader in (*readers, WholeReader(model, memory)):
            so_far: list[int] = []
            for new in ([1, 3], [5], [7]):
                so_far += new
                expected = model(torch.tensor(source), torch.tensor(so_far))[-1:]
                torch.testing.assert_close(reader.read(torch.tensor([new])), expected)


def test_stopped_rows_are_dropped_when_half_of_them_have_stopped() -> None:
    choice = Greedy(torch.tensor([9, 9, 9, 9]), SPECIAL)

    def take(tokens: list[int], t: int) -> list[list[int] | None] | None:
        going_on = choice.take(torch.eye(13)[tokens], t)
        return going_on and [None if x is None else x.flatten().tolist() for x in going_on]

    assert take([2, 5, 6, 7], 0) == [None, [2, 5, 6, 7]]
    assert take([4, 2, 8, 9], 1) == [[2, 3], [8, 9]]
    assert take([2, 2], 2) is None
    assert choice.answers() == [[2], [5, 2], [6, 8, 2], [7, 9, 2]]
    assert choice.finished.all()


def test_length_penalty_is_the_papers() -> None:
    assert PAPER.length_penalty == 0.6
    assert PAPER.divisor(1) == 1.0
    assert PAPER.divisor(7) == pytest.approx(2**0.6)
    assert PAPER.but(length_penalty=0.0).divisor(10) == 1.0
    assert PAPER.but(penalty="length", length_penalty=2.0).divisor(10) == 100.0


@pytest.mark.parametrize(("settings", "source", "most"), [
    ({}, 10, 60), ({"length_ratio": 6.5, "length_offset": 3}, 10, 68), ({"max_length": 20}, 10, 20), ({}, 90, 99),
])  # fmt: skip
def test_the_rules_say_how_long_an_answer_may_be(settings: dict[str, float], source: int, most: int) -> None:
    assert PAPER.but(**settings).limit(source, longest=100) == most


@pytest.mark.parametrize("beam", [1, 3])
def test_an_answer_is_cut_where_the_rules_say(beam: int) -> None:
    model = chatty_model(2)
    endless = Special(SPECIAL.start, 10**6, SPECIAL.pad)
    rules = PAPER.but(beam=beam, length_ratio=2.0, length_offset=3)
    for hypotheses, source in zip(beam_search(model, SOURCES, endless, rules), SOURCES, strict=True):
        assert {len(h.ids) for h in hypotheses} == {2 * len(source) + 3}
    for answer in greedy(model, SOURCES, endless, PAPER.but(max_length=5)):
        assert (len(answer.ids), answer.finished) == (5, False)


@pytest.mark.parametrize("size", [100, 5000])
def test_what_is_nearly_certain_is_not_rounded_to_certain(size: int) -> None:
    logits = torch.randn(3, size, generator=torch.Generator().manual_seed(1))
    logits[:, 7] = torch.tensor([24.0, 25.0, 26.0])
    exact = logits.double().log_softmax(-1)[:, 7]
    assert exact.max() < -1e-10
    tolerance = 1.5e-7 if size < 1024 else 2e-6  # of long rows, whose parts are summed up
    torch.testing.assert_close(likeliest(logits, 1)[0][:, 0].double(), exact, atol=tolerance, rtol=0)


@pytest.mark.parametrize(
    ("size", "count"), [(10, 4), (1024, 1), (1024, 8), (1500, 8), (37_000, 1), (37_000, 8), (1100, 9)]
)
def test_the_likeliest_tokens_are_those_of_topk(size: int, count: int) -> None:
    logits = 3 * torch.randn(3, 2, size, generator=torch.Generator().manual_seed(size))
    logits[0, 0, 5:9] = logits[0, 0].max()  # neighbours in one part
    logits[0, 1, size - 1] = 20.0
    values, tokens = likeliest(logits, count)
    expected = logits.log_softmax(-1)
    assert torch.allclose(values, expected.topk(count).values, atol=1e-5)
    assert torch.allclose(expected.gather(-1, tokens), values, atol=1e-5)
    assert all(len(set(row)) == count for row in tokens.flatten(0, 1).tolist())


def test_a_beam_stays_full_however_many_ends_there_are() -> None:
    rules, special = PAPER.but(beam=2, other_ends=(3, 4)), Special(start=1, end=2, pad=0)
    rule = LogitsRules(special, rules, torch.device("cpu"))
    logits = torch.tensor([[0.0, 0.0, 9.0, 8.0, 7.0, 3.0, 2.0, 1.0]] * 2)  # the three ends are the likeliest tokens
    beams = Beams.start(torch.tensor([10]), 10, 2, special.pad)
    beams, _, token = beams.advance(logits, torch.tensor([0]), rules, rule)
    assert token.tolist() == [[5, 6]]
    assert (beams.total > -torch.inf).all()
    assert beams.done_ids[0, :, 0].tolist() == [2, 3]


@pytest.mark.parametrize("beam", [1, 2, 4])
@pytest.mark.parametrize("seed", sweep(range(4), 1))
def test_batch_of_one_equals_batch_of_many(beam: int, seed: int) -> None:
    model = chatty_model(seed, norm="pre")  # post-norm repeats itself, and then many answers score the same
    together = beam_search(model, SOURCES, SPECIAL, with_beam(beam))
    for hypotheses, source in zip(together, SOURCES, strict=True):
        (alone,) = beam_search(model, [source], SPECIAL, with_beam(beam))
        assert [h.ids for h in hypotheses] == [h.ids for h in alone]
        assert [h.score for h in hypotheses] == pytest.approx([h.score for h in alone], abs=1e-4)


@pytest.mark.parametrize("seed", sweep(range(6), 2))
def test_beam_of_one_is_greedy(seed: int) -> None:
    model = chatty_model(seed)
    for (first, *_), answer in zip(
        beam_search(model, SOURCES, SPECIAL, with_beam(1)), greedy(model, SOURCES, SPECIAL), strict=True
    ):
        assert first.ids == answer.ids
        assert first.score == pytest.approx(answer.score, abs=1e-4)


def test_answers_come_best_first_and_differ() -> None:
    for hypotheses in beam_search(chatty_model(3), SOURCES, SPECIAL, with_beam(4)):
        scores = [h.score for h in hypotheses]
        assert scores == sorted(scores, reverse=True)
        assert len({tuple(h.ids) for h in hypotheses}) == len(hypotheses) == 4


def test_an_answer_has_at_most_source_plus_50_tokens() -> None:
    model = small_model(0, max_length=200)
    with torch.no_grad():
        model.output.bias[SPECIAL.end] = -1e9
    for answer, source in zip(greedy(model, SOURCES, SPECIAL), SOURCES, strict=True):
        assert len(answer.ids) == len(source) + 50
        assert not answer.finished
    for hypotheses, source in zip(beam_search(model, SOURCES, SPECIAL, with_beam(3)), SOURCES, strict=True):
        assert all(len(h.ids) == len(source) + 50 for h in hypotheses)


def test_probability_of_an_answer_is_the_product_of_its_tokens() -> None:
    answer = greedy(chatty_model(1), SOURCES, SPECIAL)[0]
    assert answer.log_probability == pytest.approx(math.log(math.prod(map(math.exp, answer.log_probabilities))))
