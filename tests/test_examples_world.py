"""The world of rules of the model ``examples``."""

import json
import time
from itertools import islice
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch

from seq2see.model.masks import Mask
from seq2see.training.learner import memory_and_logits
from shipped.examples import answers, fields, rules, world
from shipped.examples.stream import PackedBatch, Packer, Stream, padded, rows, rows_of


def test_the_seed_decides_the_tasks() -> None:
    one, same, other = (list(islice(world.tasks(7, worker), 60)) for worker in (1, 1, 2))
    assert one == same
    assert one != other


@pytest.mark.parametrize("family", range(len(rules.FAMILIES)), ids=rules.NAMES)
def test_a_family_makes_pairs_of_one_rule(family: int) -> None:
    """The hidden rule gives one answer to one input, however often it is asked."""
    r = Random(f"family {family}")
    found = 0
    for _ in range(60):
        make = rules.FAMILIES[family][2](r)
        known: dict[str, str] = {}
        for k in range(24):
            pair = make(Random(k % 8))  # the same eight draws, three times
            if pair is not None:
                assert known.setdefault(pair[0], pair[1]) == pair[1] or len(set(known)) < 8
        again = [make(Random(k)) for k in range(8)]
        assert again == [make(Random(k)) for k in range(8)]
        found += len(known) >= 2
    assert found > 30


def test_tasks_are_within_their_limits_and_teach_something() -> None:
    lengths, families, counts, dull = [], set(), set(), 0
    for task in islice(world.tasks(3), 1500):
        source = world.serialised(task.pairs, task.question)
        lengths.append(len(source))
        families.add(task.family)
        counts.add(len(task.pairs))
        assert task.answer.strip()
        assert len(task.answer.encode()) <= world.LONGEST_ANSWER
        assert len({a for a, _ in task.pairs} | {task.question}) == len(task.pairs) + 1
        assert max(source) < world.VOCABULARY
        dull += world.is_dull([*task.pairs, (task.question, task.answer)])
    assert max(lengths) <= world.LONGEST
    assert families == set(range(len(rules.FAMILIES)))
    assert {1, 2, 3, 5} <= counts
    assert max(counts) >= 12
    assert dull < 60


def test_any_text_is_written_and_read_again() -> None:
    text = "Žluťoučký kůň 東京 👩‍👩‍👧 \n\t ½"
    assert world.text_of([*world.bytes_of(text), world.END, 99]) == text
    assert world.serialised([("a", "b"), ("c", "")], "d") == [
        world.START, 97 + 8, world.BECOMES, 98 + 8, world.NEXT, 99 + 8, world.BECOMES, world.QUESTION, 100 + 8, world.END,
    ]  # fmt: skip


def test_views_follow_from_the_value() -> None:
    """What people would compute by hand."""
    assert fields.roman(1994) == "MCMXCIV"
    assert [fields.ordinal(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 102, 111)] == [
        "1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "102nd", "111th",
    ]  # fmt: skip
    assert fields.fixed(-1234567, 2, ",", ".") == "-12.345,67"
    assert (fields.rounded(2345, 3, 1), fields.rounded(-25, 1, 0), fields.rounded(5, 0, 2)) == (23, -3, 500)
    assert rules.without_accents("Åsa Müller ç") == "Asa Muller c"
    assert rules.camel("first_name of-all", False) == "firstNameOfAll"
    assert [rules.plural(s) for s in ("cat", "box", "city", "day")] == ["cats", "boxes", "cities", "days"]
    assert [rules.written(45359237, 8, form, 3) for form in (0, 1, 2)] == ["0.454", "0.45359", "0.45359"]
    celsius = {
        pair for seed in range(4000) if (pair := rules.linear(Random(seed))(Random(1))) and pair[0].endswith("°C")
    }
    for a, b in celsius:
        if b.endswith("°F"):
            assert abs(float(a[:-2]) * 1.8 + 32 - float(b[:-2].strip())) < 0.51
    assert celsius


def test_a_packed_batch_has_the_tasks_end_to_end() -> None:
    expected = list(islice(rows(world.tasks(5)), 40))
    packer = Packer(rows(world.tasks(5)), 4096, 512)
    for _ in range(2):  # the task that did not fit begins the next batch
        numbers = torch.zeros(packer.width, dtype=torch.int64)
        count, tokens, families = packer.fill(numbers.numpy())
        batch = PackedBatch(numbers, 4096, tokens)
        some, expected = expected[:count], expected[count:]
        assert [(0, *row[1:]) for row in some] == rows_of(batch)
        assert families == [row[0] for row in some]
        assert tokens == sum(len(row[2]) + 1 for row in some) == int((batch.target_out != world.PAD).sum())
        assert (batch.source_rows[2].diff() >= 0).all()
        assert (batch.target_rows[4].diff() >= 0).all()


@pytest.mark.parametrize("positions", ["sinusoid", "rotary", "relative"])
def test_packed_padded_and_lone_tasks_give_the_same_numbers(positions: str) -> None:
    torch.manual_seed(1)
    model = answers.network_of(answers.shape_of(32, (1, 1), positions, 2, 64, "pre")).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("distances"):
            torch.nn.init.normal_(parameter)
    packer = Packer(rows(world.tasks(6)), 2048, 384)
    numbers = torch.zeros(packer.width, dtype=torch.int64)
    count, tokens, _ = packer.fill(numbers.numpy())
    batch = PackedBatch(numbers, 2048, tokens)
    with torch.no_grad():
        _, logits = memory_and_logits(model, batch, batch.masks())
        for number, (_, source, answer) in enumerate(rows_of(batch)):
            alone = model(torch.tensor([source]), torch.tensor([[world.START, *answer]]))[0]
            torch.testing.assert_close(logits[batch.target_rows[4] == number], alone, atol=1e-4, rtol=1e-3)
        assert sum(len(families) for _, families in padded(rows_of(batch), 2048)) == count


def test_the_stream_of_processes_is_that_of_their_seeds() -> None:
    stream = Stream(1, 2048, 384, seed=9, slots=2)
    try:
        first, count = stream.next()
        second, _ = stream.next()
    finally:
        stream.close()
    expected = list(islice(rows(world.tasks(9, 1)), count))
    assert [row[1:] for row in rows_of(first)] == [row[1:] for row in expected]
    assert rows_of(second) != rows_of(first)


def test_drawing_keeps_up() -> None:
    """A core draws thousands of tasks a second; a tenth of that is left to a busy machine."""
    packer, began, drawn = Packer(rows(world.tasks(8)), 16384, 1536), time.process_time(), 0
    out = np.zeros(packer.width, dtype=np.int16)
    while time.process_time() - began < 0.5:
        drawn += packer.fill(out)[0]
    assert drawn / (time.process_time() - began) > 250


def test_weights_travel_in_small_files_and_answer_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "LARGEST_FILE", 30_000)
    torch.manual_seed(2)
    model = answers.network_of(answers.shape_of(32, (1, 1), "rotary", 2, 64, "pre"))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.half().float())
    answers.save(tmp_path, model, {"tasks": 5})
    assert len(list(tmp_path.glob("weights.*.safetensors"))) > 1
    again, about = answers.load(tmp_path)
    assert about["tasks"] == 5
    asked = [([("ab", "b"), ("cd", "d")], "ef"), ([("1", "2")], "3" * 40)]
    assert answers.answers(again, asked) == answers.answers(model, asked)


def test_one_batch_answers_as_each_alone_and_the_confidence_is_that_of_the_tokens() -> None:
    torch.manual_seed(3)
    model = answers.network_of(answers.shape_of(32, (1, 1), "rotary", 2, 64, "pre")).eval()
    sources = [world.serialised([("ab", "b")], q) for q in ("x", "a longer question", "ü")]
    together = answers.written(model, sources, 6)
    for source, (text, value) in zip(sources, together, strict=True):
        ((alone, its_value),) = answers.written(model, [source], 6)
        assert (text, pytest.approx(its_value, abs=1e-4)) == (alone, value)
    ids = [world.START]
    with torch.no_grad():
        values = []
        for _ in range(6):
            logits = model(torch.tensor([sources[0]]), torch.tensor([ids]), Mask())[0, -1]
            values.append(float(logits.log_softmax(-1).max()))
            ids.append(int(logits.argmax()))
            if ids[-1] == world.END:
                break
    assert together[0][1] == pytest.approx(sum(values) / len(values), abs=1e-4)


def test_tasks_are_scored_by_the_protocol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = {"name": "n", "about": "", "pairs": [["a", "A"], ["b", "B"], ["c", "C"], ["d", "D"], ["e", "E"]]}
    (tmp_path / "set.jsonl").write_text(
        json.dumps(task) + "\n" + json.dumps({**task, "pairs": task["pairs"][:4]}) + "\n"
    )
    tasks = answers.read_tasks(tmp_path)
    told = {"d": (" d ", 0.9), "e": ("X", 0.2)}
    monkeypatch.setattr(answers, "answers", lambda model, asked, orders: [told[question] for _, question in asked])
    found = answers.scores(None, tasks)  # type: ignore[arg-type]
    assert found["set"] == {"tasks": 2, "solved": 50.0, "rows": 66.7}
    assert found["all"]["answered at 95 %"] == 66.7


def test_orders_are_different_ones() -> None:
    pairs = [("a", "1"), ("b", "2"), ("c", "3")]
    assert answers.orders_of(pairs, 3) == [pairs, pairs[::-1], [*pairs[1:], pairs[0]]]
    assert len(answers.orders_of(pairs[:1], 3)) == 1


def test_no_question_asks_what_no_example_shows() -> None:
    """A word of a made-up table, a letter of a made-up alphabet, a branch of a condition: some example has it."""
    pairs = [("x a", "1"), ("y a", "1"), ("z b", "2")]

    def made(q: Random) -> None:
        """Make nothing."""

    rules.NEEDS[made] = lambda pair: {pair[0][-1]}
    assert [world._answerable(made, pairs, at) for at in (0, 1, 2)] == [0, 1, 0]
    assert world._answerable(made, [pairs[0], pairs[2]], 0) == -1
    del rules.NEEDS[made]
    assert world._answerable(made, pairs, 2) == 2
    r, checked = Random("needs"), 0
    for _ in range(400):
        make = rules.condition(r)
        needs = rules.NEEDS.get(make)
        some = world.pairs_of(make, r, 4)
        if some and needs and (at := world._answerable(make, some, 1)) >= 0:
            assert needs(some[at]) <= set().union(*[needs(pair) for n, pair in enumerate(some) if n != at])
            checked += 1
    assert checked > 100


def test_expressions_are_right() -> None:
    r = Random("sums")
    for _ in range(50):
        make = rules.expression(r)
        for _ in range(10):
            text, value = make(r) or ("", "")
            plain = text.partition("=")[0].replace("×", "*").replace("÷", "/")
            assert float(eval(plain)) == float(value)
