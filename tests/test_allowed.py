"""Answers held to a list, a pattern, a beginning or phrases: against all answers there are, on small cases."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterable
from functools import cache

import pytest
import torch

from conftest import small_model
from seq2see.config import DecodingConfig
from seq2see.decoding import allowed, patterns, rule
from seq2see.decoding.allowed import Automaton
from seq2see.decoding.graphs import GraphDecoder
from seq2see.decoding.hypothesis import PAPER, Phrase, with_beam
from seq2see.decoding.search import Hypothesis, Special, beam_search, greedy
from seq2see.errors import UserError
from seq2see.model.transformer import Transformer
from seq2see.stopping import Stopped, stopped_when
from seq2see.tokenizers.tokenizer import Tokenizer

LETTERS = "abcde"
TOKENIZER = Tokenizer.characters(["<pad>", "<sos>", "<eos>", *LETTERS])
SPECIAL = Special(start=1, end=2, pad=0)
SOURCES = [[1, 3, 4, 5, 2], [1, 7, 2], [1, 9, 9, 8, 7, 6, 5, 2]]
LONGEST = 4  # letters of the answers that are all tried
SHORT = dict(length_ratio=0.0, length_offset=LONGEST + 1)


@cache
def model(seed: int = 0) -> Transformer:
    return small_model(seed, target_vocabulary=TOKENIZER.size)


def texts() -> list[str]:
    return ["".join(row) for n in range(LONGEST + 1) for row in itertools.product("abc", repeat=n)]


def log_probabilities(network: Transformer, source: list[int], answers: Iterable[str]) -> dict[str, float]:
    """Return what each answer costs, by reading it as a whole."""
    found = {}
    for answer in answers:
        ids = TOKENIZER.encode(answer)
        with torch.inference_mode():
            values = network(torch.tensor([source]), torch.tensor([ids[:-1]]))[0].log_softmax(-1)
        found[answer] = float(values[range(len(ids) - 1), ids[1:]].sum())
    return found


def best(network: Transformer, source: list[int], answers: Iterable[str], rules: DecodingConfig) -> tuple[str, float]:
    scores = {
        answer: value / rules.divisor(len(answer) + 1)
        for answer, value in log_probabilities(network, source, answers).items()
    }
    return max(scores.items(), key=lambda one: one[1])


def stepwise(network: Transformer, source: list[int], answers: list[str]) -> str:
    """Take the likeliest letter by which an allowed answer goes on, or its end."""
    so_far = ""
    while True:
        with torch.inference_mode():
            ids = TOKENIZER.encode(so_far)[:-1]
            logits = network(torch.tensor([source]), torch.tensor([ids]))[0, -1]
        options = {
            answer[len(so_far)] if len(answer) > len(so_far) else "" for answer in answers if answer.startswith(so_far)
        }
        letter = max(options, key=lambda one: float(logits[TOKENIZER.encode(one)[1]]))
        if not letter:
            return so_far
        so_far += letter


CASES: dict[str, tuple[Automaton, list[str]]] = {
    "list": (allowed.one_of(["a", "ab", "abc", "cab", "bb"], TOKENIZER), ["a", "ab", "abc", "cab", "bb"]),
    "pattern": (allowed.matching("(ab|c)+b?", TOKENIZER), [t for t in texts() if re.fullmatch("(ab|c)+b?", t)]),
    "beginning": (
        allowed.beginning("ca", TOKENIZER),
        ["ca" + "".join(row) for n in range(LONGEST - 1) for row in itertools.product(LETTERS, repeat=n)],
    ),
}


@pytest.fixture(params=["rows for the vocabulary", "lists of tokens"])
def both_layouts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "lists of tokens":
        monkeypatch.setattr(rule, "DENSE", 0)
        monkeypatch.setattr(rule, "WIDE", 4)


@pytest.mark.usefixtures("both_layouts")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("graphs", [False, True])
def test_a_wide_beam_finds_the_likeliest_allowed_answer_of_all(case: str, graphs: bool) -> None:
    automaton, answers = CASES[case]
    rules = PAPER.but(beam=35, **SHORT)
    network = model()
    found = (
        GraphDecoder(network, SPECIAL).search(SOURCES, rules, automaton)
        if graphs
        else beam_search(network, SOURCES, SPECIAL, rules, automaton)
    )
    for source, hypotheses in zip(SOURCES, found, strict=True):
        text, score = best(network, source, answers, rules)
        assert TOKENIZER.decode(hypotheses[0].ids) == text
        assert hypotheses[0].score == pytest.approx(score, abs=1e-4)
        assert all(TOKENIZER.decode(one.ids) in answers and one.finished for one in hypotheses)
        if case != "beginning":
            assert len(hypotheses) == len(answers)  # each allowed answer is there, once


@pytest.mark.usefixtures("both_layouts")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("graphs", [False, True])
def test_greedy_takes_the_likeliest_allowed_step(case: str, graphs: bool) -> None:
    automaton, answers = CASES[case]
    network = model(1)
    rules = PAPER.but(**SHORT)
    if graphs:
        found = [row[0] for row in GraphDecoder(network, SPECIAL).search(SOURCES, rules, automaton)]
    else:
        found = greedy(network, SOURCES, SPECIAL, rules, automaton)
    for source, one in zip(SOURCES, found, strict=True):
        text = TOKENIZER.decode(one.ids)
        assert text == stepwise(network, source, answers)
        assert one.finished
        assert one.log_probability == pytest.approx(log_probabilities(network, source, [text])[text], abs=1e-4)


def test_an_answer_comes_to_its_end_within_its_limit() -> None:
    """The pattern allows any length, and the model would go on: the last tokens lead to the end."""
    automaton = allowed.matching("(abc)+", TOKENIZER)
    for most in (4, 5, 6, 7):
        rules = PAPER.but(max_length=most, length_ratio=0.0, length_offset=50)
        for one in greedy(model(2), SOURCES, SPECIAL, rules, automaton):
            assert one.finished
            assert re.fullmatch("(abc)+", TOKENIZER.decode(one.ids))
    with pytest.raises(UserError, match="has 4 tokens, but an answer may have at most 3"):
        greedy(model(2), SOURCES, SPECIAL, PAPER.but(max_length=3), automaton)


def holds(text: str, phrases: Iterable[str]) -> bool:
    return all(phrase in text for phrase in phrases)


NEEDS = [["ab", "c"], [], ["bb"]]


def phrase_of(*ways: str) -> Phrase:
    return Phrase([TOKENIZER.encode(way)[1:-1] for way in ways])


@pytest.mark.parametrize("graphs", [False, True])
def test_phrases_are_held_and_a_wide_beam_finds_the_likeliest_answer_with_them(graphs: bool) -> None:
    automaton = allowed.holding([[phrase_of(one) for one in row] for row in NEEDS], SPECIAL.end)
    network, every = (model(3), ["".join(row) for n in range(4) for row in itertools.product(LETTERS, repeat=n)])
    rules = PAPER.but(beam=24, length_ratio=0.0, length_offset=4)

    def search(rules: DecodingConfig) -> list[list[Hypothesis]]:
        if graphs:
            return GraphDecoder(network, SPECIAL).search(SOURCES, rules, automaton)
        return beam_search(network, SOURCES, SPECIAL, rules, automaton)

    for source, row, hypotheses in zip(SOURCES, NEEDS, search(rules), strict=True):
        expected, _ = best(network, source, [one for one in every if holds(one, row)], rules)
        ended = [one for one in hypotheses if one.finished]
        assert TOKENIZER.decode(ended[0].ids) == expected
        assert all(holds(TOKENIZER.decode(one.ids), row) for one in hypotheses)
    # A narrow beam holds them too, within a sentence of its own length.
    for row, hypotheses in zip(NEEDS, search(with_beam(4).but(max_length=12)), strict=True):
        assert holds(TOKENIZER.decode(hypotheses[0].ids), row)


def test_one_of_two_spellings_is_enough_and_one_phrase_twice_is_needed_twice() -> None:
    twice = [phrase_of("e"), phrase_of("e")]
    at_start = Phrase([[3, 4]], [[5]])
    automaton = allowed.holding([[phrase_of("ab", "cd")], twice, [at_start]], SPECIAL.end)
    rules = with_beam(6).but(max_length=8)
    first, second, third = beam_search(model(4), SOURCES, SPECIAL, rules, automaton)
    assert all(re.search("^c|ab", TOKENIZER.decode(one.ids)) for one in third)
    assert all(re.search("ab|cd", TOKENIZER.decode(one.ids)) for one in first)
    assert all(TOKENIZER.decode(one.ids).count("e") >= 2 for one in second)


def accepts(automaton: allowed.Automaton, row: int, text: str) -> bool:
    """Whether an answer may be a text, by walking through the states."""
    at = int(automaton.starts_of(row + 1)[row])
    for token in [*TOKENIZER.encode(text)[1:-1], SPECIAL.end]:
        place = slice(automaton.first[at], automaton.first[at] + automaton.count[at])
        listed = dict(zip(automaton.tokens[place].tolist(), automaton.states[place].tolist(), strict=True))
        at = int(listed.get(token, automaton.other[at]))
        if at == allowed.NOWHERE:
            return False
    return at == allowed.ENDED


def test_a_phrase_may_begin_or_end_another_one() -> None:
    """3 and 30, digit by digit: 3 30 and 30 3 hold both, and 30 alone does not."""
    needs = [["a", "ab"], ["b", "ab"], ["b", "abc"], ["a", "ab", "abb"]]
    automaton = allowed.holding([[phrase_of(one) for one in row] for row in needs], SPECIAL.end)
    good = [["aab", "aba", "abba", "acab"], ["bab", "abb", "abcb"], ["babc", "abcb"], ["aababb", "abbaba", "abaabb"]]
    bad = [["ab", "a", "", "abb"], ["ab", "ba", "b"], ["abc", "abcc", "bab"], ["abba", "abab", "abb"]]
    for row in range(len(needs)):
        assert [text for text in good[row] if not accepts(automaton, row, text)] == []
        assert [text for text in bad[row] if accepts(automaton, row, text)] == []


def test_phrases_of_all_kinds_can_be_held_and_what_is_accepted_holds_them() -> None:
    draw = random.Random(1)
    texts = ["".join(row) for size in range(7) for row in itertools.product("abc", repeat=size)]
    for _ in range(60):
        row = ["".join(draw.choices("abc", k=draw.randint(1, 3))) for _ in range(draw.randint(1, 3))]
        automaton = allowed.holding([[phrase_of(one) for one in row]], SPECIAL.end)
        assert automaton.shortest <= sum(map(len, row)) + 1, row
        taken = [text for text in texts if accepts(automaton, 0, text)]
        assert all(text.count(one) for text in taken for one in row), row
        assert automaton.shortest > 7 or min(map(len, taken)) + 1 == automaton.shortest


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("graphs", [False, True])
def test_no_tokens_in_a_row_occur_twice(beam: int, graphs: bool) -> None:
    network = small_model(5, target_vocabulary=TOKENIZER.size)
    with torch.no_grad():
        network.output.bias[2] -= 9.0  # it would never end
    rules = with_beam(beam).but(no_repeat=2, max_length=30)
    found = (
        GraphDecoder(network, SPECIAL).search(SOURCES, rules)
        if graphs
        else beam_search(network, SOURCES, SPECIAL, rules)
        if beam > 1
        else [[h] for h in greedy(network, SOURCES, SPECIAL, rules)]
    )
    for hypotheses in found:
        for one in hypotheses:
            pairs = list(itertools.pairwise(one.ids))
            assert len(pairs) == len(set(pairs))
    free = greedy(network, SOURCES, SPECIAL, PAPER.but(max_length=30))
    assert any(len(set(itertools.pairwise(one.ids))) < len(one.ids) - 1 for one in free)


BPE = Tokenizer.bpe(["January February March the then there banana bandana"] * 50, 560)


def runs(automaton: Automaton, ids: list[int]) -> bool:
    """Whether an automaton allows these tokens, one after the other."""
    state = int(automaton.starts[0])
    for token in ids:
        place = slice(automaton.first[state], automaton.first[state] + automaton.count[state])
        listed = dict(zip(automaton.tokens[place].tolist(), automaton.states[place].tolist(), strict=True))
        state = listed.get(token, int(automaton.other[state]))
    return state > allowed.NOWHERE


@pytest.mark.parametrize("prefix", ["Janu", "the", "b", "ban", "é"])
def test_a_beginning_may_end_within_a_token(prefix: str) -> None:
    """All ways to cut texts are allowed that begin so, and no others."""
    automaton = allowed.beginning(prefix, BPE)
    for text in (f"{prefix}ana there", prefix, f"{prefix}{prefix}"):
        assert runs(automaton, BPE.encode(text)[1:])
        assert runs(automaton, [*BPE.parts_of([text])[0], BPE.end])
    for text in (f"x{prefix}", prefix[:-1], f" {prefix}", ""):
        assert not runs(automaton, BPE.encode(text)[1:])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: allowed.one_of(["a", "xyz"], TOKENIZER), "'xyz' of the list cannot be written"),
        (lambda: allowed.matching("(ab", TOKENIZER), "cannot be used"),
        (lambda: allowed.matching("x+", TOKENIZER), "No text that this model can write matches"),
        (lambda: allowed.beginning("ax", TOKENIZER), "lacks a character"),
    ],
)
def test_what_cannot_be_is_refused(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(UserError, match=message):
        make()


def test_words_are_held_to_a_pattern_with_the_spaces_between_them() -> None:
    words = Tokenizer.words(["one two three four"] * 3)
    automaton = allowed.matching("one( two)+", words)
    network = small_model(0, target_vocabulary=words.size)
    special = Special(words.start, words.end, words.pad)
    for one in greedy(network, SOURCES, special, PAPER.but(max_length=5), automaton):
        assert re.fullmatch("one( two)+", words.decode(one.ids))


# --- patterns --------------------------------------------------------------------------------------------


def matched(machine: patterns.Machine, text: str) -> bool:
    state = patterns.FIRST
    for sign in text:
        state = int(machine.table[state, machine.classes.get(sign, -1)])
    return state in machine.finals


def random_pattern(draw: random.Random, depth: int = 3) -> str:
    def inner() -> str:
        return random_pattern(draw, depth - 1)

    leaf = draw.choice(["a", "b", "c", ".", "[ab]", "[^a]", r"\w", r"\W", r"\s", "", "[a-c]", r"\d", "(?i:A)", "é"])
    if depth == 0:
        return leaf
    kind = draw.randrange(7)
    if kind < 2:
        return inner() + inner()
    if kind == 2:
        return f"(?:{inner()}|{inner()})"
    if kind == 3:
        most = draw.choice(["*", "+", "?", "{2}", "{1,2}", "{2,}", "{0,3}?", "*?"])
        return f"(?:{inner()}){most}"
    if kind == 4:
        return f"(?s:{inner()})"
    return leaf


@pytest.mark.parametrize("seed", range(300))
def test_a_pattern_means_what_it_means_to_python(seed: int) -> None:
    draw = random.Random(seed)
    pattern = draw.choice(["", "", "^"]) + random_pattern(draw) + draw.choice(["", "", "$"])
    machine = patterns.machine_of(pattern, "", "abcAé \n1")
    for length in range(5):
        for row in itertools.product("abA\n", repeat=length):
            text = "".join(row) + draw.choice(["", "", "c", "é", "1", " "])
            assert matched(machine, text) is (re.fullmatch(pattern, text) is not None), (pattern, text)


#: Patterns of few characters that would need very many states, or very long to find them.
HOSTILE = [
    "((((a{1,50}){1,50}){1,50}){1,50})", ".*a.{16}", "a{100000}", "(a?){0,5000}", "(.{0,90}){0,90}",
    "((a*)*)*b{9999}c{9999}",
]  # fmt: skip


@pytest.mark.parametrize("pattern", HOSTILE)
def test_a_pattern_with_too_many_states_is_refused_while_they_are_counted(
    pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = 0
    step = patterns._Build.step

    def counted(self: patterns._Build) -> None:
        nonlocal taken
        taken += 1
        assert taken <= patterns.MOST_STEPS + 1
        step(self)

    monkeypatch.setattr(patterns._Build, "step", counted)
    monkeypatch.setattr(patterns, "MOST_STEPS", 20_000)
    with pytest.raises(UserError, match="write a simpler one"):
        allowed.matching(pattern, TOKENIZER)


def test_the_tokens_of_a_pattern_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allowed, "MOST_LISTED", 100)
    with pytest.raises(UserError, match="allows more than 100 tokens in its 102 states"):
        allowed.matching(".{1,100}", TOKENIZER)
    monkeypatch.setattr(allowed, "MOST_CELLS", 400)
    with pytest.raises(UserError, match="needs 102 states, and a model with 8 tokens has room for 50"):
        allowed.matching(".{1,100}", TOKENIZER)


@pytest.mark.parametrize(
    "pattern",
    [
        "(a)b\\1", "(?<=a)b", "\\ba", "a^b", "(?m)^a$", "(?(1)a|b)", "(?=a)b", "(?!a)b", "a++", "(?>a)b",
        "(" * 495 + ")" * 495, "(a", "a" * 1001,
    ],
)  # fmt: skip
def test_a_pattern_that_cannot_be_used_says_why(pattern: str) -> None:
    with pytest.raises(UserError, match=r"^The pattern '.*cannot be used \(.+\): a regular|characters: at most"):
        allowed.matching(pattern, TOKENIZER)


def test_a_pattern_is_given_up_when_nobody_waits_for_it() -> None:
    with stopped_when(lambda: True), pytest.raises(Stopped):
        allowed.matching("a{1,2000}", TOKENIZER)
    assert allowed.matching("a{1,2000}", TOKENIZER).shortest == 2


def test_a_character_that_no_token_writes_is_written_in_bytes_if_it_is_named() -> None:
    for pattern, text in (("é+", "éé"), ("[à-ü]", "ü"), ("(?i:É)", "é"), ("a€?", "a€")):
        assert runs(allowed.matching(pattern, BPE), BPE.encode(text)[1:]), pattern
    assert not runs(allowed.matching("a.", BPE), BPE.encode("a€")[1:])
