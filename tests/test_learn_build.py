"""`seq2see learn`: the solutions are right, each known mistake gets its hint, and nothing of the student's is lost."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import seq2see
from seq2see.cli import app
from seq2see.learn import check
from seq2see.learn.cases import MISTAKES, PARTS, texts_of, written
from seq2see.learn.folder import PROGRESS, function_of, write_stubs
from seq2see.learn.network import DATES, Built, ToldError, shipped, train
from seq2see.tasks.dates import splits

#: Each known mistake as a change of the solution: the part, the mistake, the hint, old text, new text.
CHANGES = [
    (part, name, hint, old, new)
    for part, mistakes in MISTAKES.items()
    for name, (hint, *changes) in mistakes.items()
    for old, new in changes
]
#: Mistakes in other words than those of the table: the part, the name of the mistake, and the whole body.
IN_OTHER_WORDS = [
    ("softmax", "axis", "return x.softmax(0)"),
    ("softmax", "large scores", "return x.exp() / x.exp().sum(-1, keepdim=True)"),
    ("softmax", "all rows at once", "return x.flatten().softmax(0).view_as(x)"),
    ("positions", "off by one", "import math\n    return torch.tensor([[(math.cos if n % 2 else math.sin)(p / 10000 ** "
     "((n - n % 2) / d_model)) for n in range(d_model)] for p in range(1, length + 1)])"),
    ("positions", "doubled exponent", "import math\n    return torch.tensor([[(math.cos if n % 2 else math.sin)(p / 10000 "
     "** (2 * (n - n % 2) / d_model)) for n in range(d_model)] for p in range(length)])"),
    ("attention", "no √d_k", "s = torch.einsum('...td,...sd->...ts', q, k)\n    s = s if mask is None else "
     "torch.where(mask, s, -torch.inf)\n    return s.softmax(-1) @ v"),
    ("attention", "no mask", "return F.scaled_dot_product_attention(q, k, v)"),
    ("attention", "mask inverted", "s = q @ k.mT / k.shape[-1] ** 0.5\n    return softmax(s if mask is None else torch.where(mask, -torch.inf, s)) @ v"),
    ("mask", "one ahead", "n = ids.shape[-1]\n    r = torch.arange(n)\n    return (r <= r[:, None] + 1) & (ids != pad)[..., None, :]"),
    ("mask", "no padding", "n = ids.shape[-1]\n    r = torch.arange(n)\n    return (r <= r[:, None]).expand(*ids.shape, n)"),
    ("layer_norm", "batch norm", "m, v = x.mean(-2, keepdim=True), x.var(-2, keepdim=True, correction=0)\n"
     "    return gain * (x - m) / (v + epsilon) ** 0.5 + bias"),
    ("layer_norm", "n − 1", "return gain * (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True) + bias"),
    ("feed_forward", "no max", "return x @ (w_1 @ w_2) + b_1 @ w_2 + b_2"),
    ("encoder_layer", "no residual", "return norm_2(feed_forward(norm_1(attend(x, x))))"),
    ("decoder_layer", "no source", "x = norm_1(attend(x, x) + x)\n    return norm_3(feed_forward(x) + x)"),
    ("greedy_search", "never ends", "m, ids = encode(torch.tensor(source)), []\n    for _ in range(longest):\n"
     "        ids += [decode(torch.tensor([start, *ids]), m)[-1].argmax().item()]\n    return ids"),
    ("training_step", "gradients kept", "loss = F.cross_entropy(model(source, target[:, :-1]).mT, target[:, 1:], "
     "ignore_index=pad)\n    loss.backward()\n    optimiser.step()\n    return float(loss)"),
    ("training_step", "not shifted", "loss = F.cross_entropy(model(source, target).mT, target, ignore_index=pad)\n"
     "    optimiser.zero_grad()\n    loss.backward()\n    optimiser.step()\n    return float(loss)"),
]  # fmt: skip


def solution(part: str) -> str:
    return "".join(texts_of(part))


def student(source: str, part: str) -> Callable[..., Any]:
    names: dict[str, Any] = {}
    exec(compile(source, f"{part}.py", "exec"), names)
    return names[part]  # type: ignore[no-any-return]


def solutions() -> dict[str, Callable[..., Any]]:
    return {part: student(solution(part), part) for part in PARTS}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder in which everything is solved."""
    (tmp_path / "build").mkdir()
    for part in PARTS:
        (tmp_path / "build" / f"{part}.py").write_text(solution(part), encoding="utf-8")
    return tmp_path / "build"


def learn(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["learn", *map(str, arguments)])


@pytest.mark.parametrize("part", PARTS)
def test_a_solution_is_right_and_a_stub_is_to_do(part: str) -> None:
    assert check(student(solution(part), part)).state == "right"
    stub = texts_of(part)[0] + "    raise NotImplementedError\n"
    assert repr(check(student(stub, part))) == f"· {part}: to do"
    assert f"Part {list(PARTS).index(part) + 1} of {len(PARTS)}, " in stub
    assert "Returns " in stub


@pytest.mark.parametrize(("part", "name", "hint", "old", "new"), CHANGES)
def test_a_known_mistake_gets_its_hint(part: str, name: str, hint: str, old: str, new: str) -> None:
    head, body = texts_of(part)
    assert old in body
    verdict = check(student(head + body.replace(old, new), part))
    assert (verdict.state, verdict.words) == ("wrong", hint)


@pytest.mark.parametrize(("part", "name", "body"), IN_OTHER_WORDS)
def test_a_known_mistake_in_other_words_gets_its_hint(part: str, name: str, body: str) -> None:
    head = texts_of(part)[0].replace("import torch\n", "import torch\nimport torch.nn.functional as F\n")
    verdict = check(student(f"{head}    {body}\n", part))
    assert (verdict.state, verdict.words) == ("wrong", MISTAKES[part][name][0])


def test_a_hint_is_no_code_and_belongs_to_one_mistake() -> None:
    hints = Counter((part, hint) for part, mistakes in MISTAKES.items() for hint, *_ in mistakes.values())
    assert len(hints) > 80
    assert set(hints.values()) == {1}
    for _, hint in hints:
        assert "dim=" not in hint
        assert "@" not in hint


def test_a_student_makes_twenty_mistakes_one_after_the_other_and_is_told_each(tmp_path: Path) -> None:
    """From an empty folder, by the command, as he would: each part wrong in two ways at least, then right."""
    done = learn(tmp_path)
    for turn in range(3):
        for part, mistakes in MISTAKES.items():
            old, new = list(mistakes.values())[turn - 1][1]
            head, body = texts_of(part)
            (tmp_path / f"{part}.py").write_text(head + (body.replace(old, new) if turn else body), encoding="utf-8")
        done = learn(tmp_path)
        for part, mistakes in MISTAKES.items():
            hint = list(mistakes.values())[turn - 1][0]
            assert (f"✗ {part}: {hint}" in done.output) == bool(turn)
        assert done.exit_code == bool(turn)
    assert "(try 3)" in done.output


@pytest.mark.parametrize(
    ("part", "source", "words"),
    [
        ("softmax", "def softmax(x):\n    return x.sofmax(-1)\n", "softmax.py, line 2, `"),
        ("softmax", "def softmax(x):\n    x.exp()\n", "It returns nothing"),
        ("softmax", "def softmax(x):\n    return x.mean()\n", "Its shape is (), and (4, 12, 12) was expected"),
        ("softmax", "def softmax(x):\n    x[x < 0] = 0\n    return x\n", "changes its argument 1 in place"),
        ("softmax", "def softmax(x):\n    return x / 0\n", "It gives nan or inf"),
        ("softmax", "def softmax(x):\n    return x.softmax(-1) + 1\n", "Not yet: at ["),
        ("softmax", "def softmax(x):\n    return 'a'\n", "TypeError"),
        ("softmax", "def softmax(x, y):\n    return x\n", "It could not be called: TypeError"),
        ("softmax", "def softmax(x):\n    raise SystemExit(3)\n", "SystemExit: 3"),
        ("softmax", "def softmax(x):\n    return softmax(x)\n", "RecursionError"),
        ("mask", "def mask(ids, pad):\n    return (ids * 0.0)[..., None] + (ids * 0.0)[..., None, :]\n", "bool was expected"),
        ("greedy_search", "def greedy_search(source, encode, decode, start, end, longest):\n    import torch\n"
         "    m = encode(torch.tensor(source))\n    while True:\n        decode(torch.tensor([start]), m)\n", "does not come to an end"),
        ("training_step", "def training_step(*given):\n    pass\n", "it returns nothing"),
    ],
)  # fmt: skip
def test_other_mistakes_are_told_in_a_sentence(part: str, source: str, words: str) -> None:
    verdict = check(student(source, part))
    assert verdict.state == "wrong"
    assert words in verdict.words
    assert "Traceback" not in verdict.words
    assert len(verdict.words.splitlines()) == 1


def test_a_function_of_another_name_is_refused() -> None:
    with pytest.raises(seq2see.UserError, match="Did you mean 'softmax'"):
        check(student("def softmx(x): return x", "softmx"))


def test_the_first_call_writes_stubs_and_no_call_overwrites_a_file(tmp_path: Path) -> None:
    done = learn(tmp_path / "new" / "build")
    assert done.exit_code == 0
    assert "New in " in done.output
    assert done.output.count(": to do") == len(PARTS)
    assert "0 of 11 are right. Next: write " in done.output
    mine = tmp_path / "new" / "build" / "softmax.py"
    mine.write_text(solution("softmax"), encoding="utf-8")
    (tmp_path / "new" / "build" / "mask.py").unlink()
    done = learn(tmp_path / "new" / "build")
    assert "New in" in done.output
    assert "mask.py." in done.output.splitlines()[0]
    assert "1 of 11 are right. Next: write " in done.output
    assert "positions.py" in done.output
    assert mine.read_text(encoding="utf-8") == solution("softmax")
    assert write_stubs(tmp_path / "new" / "build") == []


def test_tries_are_kept_and_damaged_progress_begins_anew(folder: Path) -> None:
    for wrong in ("x.softmax(-2)", "x.softmax(-2)", "x.softmax(0)"):
        (folder / "softmax.py").write_text(f"def softmax(x):\n    return {wrong}\n", encoding="utf-8")
        done = learn(folder)
        assert done.exit_code == 1
    assert "(try 2)" in done.output
    assert json.loads((folder / PROGRESS).read_text())["softmax"]["tries"] == 2
    for damage in ("{", "[]", '{"softmax": 3}', '{"softmax": {}}'):
        (folder / PROGRESS).write_text(damage)
        assert "try" not in learn(folder).output
    assert json.loads((folder / PROGRESS).read_text())["mask"]["state"] == "right"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def softmax(x)\n    return x\n", "softmax.py, line 1, is not Python: expected ':'."),
        ("import nothing_like_it\n", "softmax.py, line 1, `import nothing_like_it` ends with ModuleNotFoundError"),
        ("def soft_max(x):\n    return x\n", "softmax.py has no function softmax: was it renamed?"),
        ("import sys\nsys.exit(2)\n", "softmax.py, line 2, `sys.exit(2)` ends with SystemExit: 2"),
        ("a = '\0'\n", "softmax.py"),
    ],
)
def test_a_file_that_cannot_be_read_is_told(folder: Path, text: str, words: str) -> None:
    (folder / "softmax.py").write_text(text, encoding="utf-8")
    done = learn(folder)
    assert done.exit_code == 1
    assert words in done.output
    assert "Traceback" not in done.output
    assert "10 of 11 are right" in done.output


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(seq2see.UserError, match="is a file: a folder was expected"):
        write_stubs(tmp_path / "file")


def test_the_solutions_write_the_four_dates_with_the_shipped_weights(folder: Path) -> None:
    done = learn(folder)
    assert done.exit_code == 0
    for date, words in zip(
        DATES, ("January 5, 1845", "January 6, 1845", "August 10, 1426", "September 3, 2025"), strict=True
    ):
        assert f"  {date} → {words}\n" in done.output


def test_the_students_functions_answer_and_not_the_shipped_ones() -> None:
    parts = solutions()
    assert Built(parts, shipped().transformer.state_dict()).answer(DATES[0]) == "January 5, 1845"
    for part in set(PARTS) - {"training_step", "softmax", "mask"}:
        wrong = written(part, *next(iter(MISTAKES[part].values()))[1])
        assert outcome_of({**parts, part: wrong}) != "January 5, 1845", part


def outcome_of(parts: dict[str, Callable[..., Any]]) -> str:
    try:
        return Built(parts, shipped().transformer.state_dict()).answer(DATES[0])
    except (RuntimeError, ToldError) as error:
        return str(error)


def test_the_functions_learn_from_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that counts the steps, since a busy machine takes few in a second."""
    monkeypatch.setattr("seq2see.learn.network.time.process_time", itertools.count().__next__)
    monkeypatch.setattr(
        "seq2see.learn.network.splits", lambda train, held_out, *rest, **years: splits(train, 5, *rest, **years)
    )
    done = learn(folder, "--train", "--seconds", 60)
    losses = [float(line.split("loss ")[1].split()[0]) for line in done.output.splitlines() if "loss " in line]
    assert losses[0] > 3.5
    assert losses[-1] < losses[0] - 1
    assert "Of 5 dates that it has never seen it writes" in done.output


@pytest.mark.heavy
def test_two_minutes_teach_the_dates() -> None:
    *_, last = train(solutions(), 110)
    assert int(last.split("writes ")[1].split()[0]) >= 45


def test_a_function_through_which_no_gradient_passes_is_told(folder: Path) -> None:
    text = solution("feed_forward").replace(
        "    hidden = ", "    x = x.detach()\n    w_1 = w_1.detach()\n    hidden = "
    )
    (folder / "feed_forward.py").write_text(text, encoding="utf-8")
    done = learn(folder, "--train", "--seconds", 2)
    assert "together they fail: no gradient reaches encoder." in done.output


def test_functions_that_fail_only_together_are_told(folder: Path) -> None:
    text = solution("positions").replace("    even =", "    assert length > 11\n    even =")
    (folder / "positions.py").write_text(text, encoding="utf-8")
    done = learn(folder)
    assert "Each is right, but together they fail: positions.py, line 16, `assert length" in done.output
    assert "Traceback" not in done.output


def test_an_error_in_a_cell_of_a_notebook_names_the_cell() -> None:
    names: dict[str, Any] = {}
    exec(compile("def softmax(x):\n    return 1 / 0\n", "/x/ipykernel_12/345.py", "exec"), names)
    assert check(names["softmax"]).words.startswith("The cell, line 2")


def test_the_stubs_of_a_folder_are_read_as_they_are(tmp_path: Path) -> None:
    write_stubs(tmp_path)
    for part in PARTS:
        found = function_of(tmp_path, part)
        assert callable(found)
