"""`seq2see learn`: the solutions are right, each known mistake gets its hint, and nothing of the student's is lost."""

from __future__ import annotations

import itertools
import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import seq2see
from seq2see.cli import app
from seq2see.learn import check
from seq2see.learn.cases import PARTS, ToldError, seen
from seq2see.learn.checks import outcome
from seq2see.learn.folder import PROGRESS, STUBS, function_of, write_stubs
from seq2see.learn.mistakes import MISTAKES
from seq2see.learn.network import DATES, Built, train
from seq2see.tasks.dates import splits

SOLUTIONS = Path(__file__).parent.parent / "lessons" / "build" / "solutions"

#: A mistake as a student makes it: the part, the name of the hint, what stands in the solution, and what he writes.
WRITTEN = [
    ("softmax", "axis", "dim=-1", "dim=-2"),
    ("softmax", "all rows at once", "shares.sum(dim=-1, keepdim=True)", "shares.sum()"),
    ("softmax", "large scores", "x - x.max(dim=-1, keepdim=True).values", "x"),
    ("softmax", "not shared", " / shares.sum(dim=-1, keepdim=True)", ""),
    ("softmax", "no exp", "torch.exp(x - x.max(dim=-1, keepdim=True).values)", "x"),
    ("softmax", "logarithm", "return ", "return torch.log_softmax(x, -1)\n    "),
    ("positions", "off by one", "torch.arange(length)", "torch.arange(1, length + 1)"),
    ("positions", "doubled exponent", "even / d_model", "2 * even / d_model"),
    ("positions", "half exponent", "even / d_model", "even / 2 / d_model"),
    ("positions", "halves", "torch.stack([torch.sin(angles), torch.cos(angles)], dim=-1).flatten(1)",
     "torch.cat([torch.sin(angles), torch.cos(angles)], dim=-1)"),
    ("positions", "cosine first", "[torch.sin(angles), torch.cos(angles)]", "[torch.cos(angles), torch.sin(angles)]"),
    ("positions", "own exponent", "torch.cos(angles)",
     "torch.cos(torch.arange(length)[:, None] / 10000 ** ((even + 1) / d_model))"),
    ("positions", "no powers", " / 10000 ** (even / d_model)", " + 0 * even"),
    ("attention", "no √d_k", " / math.sqrt(k.shape[-1])", ""),
    ("attention", "no root", "math.sqrt(k.shape[-1])", "k.shape[-1]"),
    ("attention", "multiplied", "/ math.sqrt", "* math.sqrt"),
    ("attention", "axis", "softmax(scores)", "softmax(scores.mT).mT"),
    ("attention", "K and V swapped", "    scores = q", "    k, v = v, k\n    scores = q"),
    ("attention", "Q and K swapped", "    scores = q", "    q, k = k, q\n    scores = q"),
    ("attention", "no mask", "mask is not None", "False"),
    ("attention", "mask inverted", "~mask", "mask"),
    ("attention", "mask added as 0 and 1", "scores.masked_fill(~mask, -torch.inf)", "scores + mask.float()"),
    ("attention", "score 0", "-torch.inf", "0"),
    ("attention", "mask before scaling", "    scores = q @ k.transpose(-2, -1) / math.sqrt(k.shape[-1])\n",
     "    scores = q @ k.transpose(-2, -1)\n    if mask is not None:\n        scores = scores.masked_fill(~mask, -10)\n"
     "    return softmax(scores / math.sqrt(k.shape[-1])) @ v\n"),
    ("attention", "mask after softmax", "    if mask is not None:\n        scores = scores.masked_fill(~mask, -torch.inf)\n",
     "    if mask is not None:\n        return (softmax(scores) * mask) @ v\n"),
    ("attention", "weights", "softmax(scores) @ v", "softmax(scores)"),
    ("mask", "inverted", "return earlier & (ids != pad)[..., None, :]", "return ~(earlier & (ids != pad)[..., None, :])"),
    ("mask", "later", "tril()", "triu()"),
    ("mask", "not itself", "tril()", "tril(-1)"),
    ("mask", "one ahead", "tril()", "tril(1)"),
    ("mask", "no padding", "(ids != pad)", "(ids == ids)"),
    ("mask", "padding in rows", "[..., None, :]", "[..., :, None]"),
    ("mask", "padding alone", ".tril()", ""),
    ("multi_head", "cut across", "y.unflatten(-1, (heads, -1)).transpose(-3, -2)",
     "y.reshape(*y.shape[:-2], heads, y.shape[-2], -1)"),
    ("multi_head", "interleaved", "y.unflatten(-1, (heads, -1)).transpose(-3, -2)",
     "y.unflatten(-1, (-1, heads)).movedim(-1, -3)"),
    ("multi_head", "joined across", "z.transpose(-3, -2).flatten(-2)", "z.reshape(*x.shape)"),
    ("multi_head", "no W^O", ' @ w["o"] + w["b_o"]', ""),
    ("multi_head", "no biases", "    def cut", "    w = {**w, **{name: 0 * w[name] for name in w if name[:2] == 'b_'}}\n    def cut"),
    ("multi_head", "one head", "(heads, -1)", "(1, -1)"),
    ("multi_head", "sides", "    def cut", "    x, source = source, x\n    def cut"),
    ("multi_head", "no source", "    def cut", "    source = x\n    def cut"),
    ("multi_head", "values of x", 'source @ w["v"]', 'x @ w["v"]'),
    ("multi_head", "K and V swapped", "    z =", "    k, v = v, k\n    z ="),
    ("multi_head", "no mask", "k, v, mask)", "k, v, None)"),
    ("layer_norm", "batch norm", "dim=-1", "dim=-2"),
    ("layer_norm", "all at once", "    mean = x.mean(dim=-1, keepdim=True)\n    variance = ((x - mean) ** 2).mean(dim=-1, keepdim=True)",
     "    mean = x.mean()\n    variance = x.var(correction=0)"),
    ("layer_norm", "n − 1", "((x - mean) ** 2).mean(dim=-1, keepdim=True)", "x.var(dim=-1, keepdim=True)"),
    ("layer_norm", "no root", "torch.sqrt(variance + epsilon)", "(variance + epsilon)"),
    ("layer_norm", "no mean", "x.mean(dim=-1, keepdim=True)", "0"),
    ("layer_norm", "no gain", "gain * ", ""),
    ("layer_norm", "no bias", " + bias", ""),
    ("layer_norm", "no gain, no bias", "gain * (x - mean) / torch.sqrt(variance + epsilon) + bias",
     "(x - mean) / torch.sqrt(variance + epsilon)"),
    ("feed_forward", "no max", ".clamp(min=0)", ""),
    ("feed_forward", "max last", "(x @ w_1 + b_1).clamp(min=0)\n    return hidden @ w_2 + b_2",
     "(x @ w_1 + b_1)\n    return (hidden @ w_2 + b_2).clamp(min=0)"),
    ("feed_forward", "max twice", "hidden @ w_2 + b_2", "(hidden @ w_2 + b_2).clamp(min=0)"),
    ("feed_forward", "max first", "(x @ w_1 + b_1).clamp(min=0)", "x.clamp(min=0) @ w_1 + b_1"),
    ("feed_forward", "min", "min=0", "max=0"),
    ("feed_forward", "no b_1", " + b_1", ""),
    ("feed_forward", "no b_2", " + b_2", ""),
    ("feed_forward", "no biases", "    hidden", "    b_1 = b_2 = 0\n    hidden"),
    ("encoder_layer", "no residual", "norm_2(x + feed_forward(x))", "norm_2(feed_forward(x))"),
    ("encoder_layer", "norm first", "norm_1(x + attend(x, x))\n    return norm_2(x + feed_forward(x))",
     "x + attend(norm_1(x), norm_1(x))\n    return x + feed_forward(norm_2(x))"),
    ("encoder_layer", "norm inside", "norm_1(x + attend(x, x))\n    return norm_2(x + feed_forward(x))",
     "x + norm_1(attend(x, x))\n    return x + norm_2(feed_forward(x))"),
    ("encoder_layer", "no norm", "norm_1(x + attend(x, x))\n    return norm_2(x + feed_forward(x))",
     "x + attend(x, x)\n    return x + feed_forward(x)"),
    ("encoder_layer", "first x", "    x = norm_1(x + attend(x, x))\n    return norm_2(x + feed_forward(x))",
     "    y = norm_1(x + attend(x, x))\n    return norm_2(x + feed_forward(y))"),
    ("encoder_layer", "norms swapped", "    x = norm", "    norm_1, norm_2 = norm_2, norm_1\n    x = norm"),
    ("encoder_layer", "order", "x = norm_1(x + attend(x, x))\n    return norm_2(x + feed_forward(x))",
     "x = norm_1(x + feed_forward(x))\n    return norm_2(x + attend(x, x))"),
    ("encoder_layer", "no feed-forward", "    return norm_2(x + feed_forward(x))", "    return x"),
    ("decoder_layer", "no residual", "x + ", ""),
    ("decoder_layer", "no residual across", "x + attend_across", "attend_across"),
    ("decoder_layer", "norm first", "    x = norm_1(x + attend(x, x))\n    x = norm_2(x + attend_across(x, memory))\n"
     "    return norm_3(x + feed_forward(x))",
     "    x = x + attend(norm_1(x), norm_1(x))\n    x = x + attend_across(norm_2(x), memory)\n    return x + feed_forward(norm_3(x))"),
    ("decoder_layer", "no norm", "    x = norm_1", "    norm_1 = norm_2 = norm_3 = lambda x: x\n    x = norm_1"),
    ("decoder_layer", "order", "    x = norm_1(x + attend(x, x))\n    x = norm_2(x + attend_across(x, memory))\n",
     "    x = norm_1(x + attend_across(x, memory))\n    x = norm_2(x + attend(x, x))\n"),
    ("decoder_layer", "no source", "memory)", "x)"),
    ("decoder_layer", "no look back", "    x = norm_1(x + attend(x, x))\n", ""),
    ("decoder_layer", "first x", "    x = norm_1(x + attend(x, x))\n    x = norm_2(x + attend_across(x, memory))",
     "    y = norm_1(x + attend(x, x))\n    x = norm_2(y + attend_across(x, memory))"),
    ("greedy_search", "first row", "logits[-1]", "logits[0]"),
    ("greedy_search", "last id only", "torch.tensor(ids)", "torch.tensor(ids[-1:])"),
    ("greedy_search", "never ends", "if best == end", "if False"),
    ("greedy_search", "start", "ids[1:]", "ids"),
    ("greedy_search", "end", "        if best == end:\n            break\n        ids.append(best)",
     "        ids.append(best)\n        if best == end:\n            break"),
    ("greedy_search", "start and end", "        if best == end:\n            break\n        ids.append(best)\n    return ids[1:]",
     "        ids.append(best)\n        if best == end:\n            break\n    return ids"),
    ("greedy_search", "too long", "len(ids) <= longest", "True"),
    ("greedy_search", "too short", "<= longest", "< longest"),
    ("training_step", "not shifted", "right = target[:, 1:]", "right = target[:, :-1]"),
    ("training_step", "not shifted", "target[:, :-1])\n    right = target[:, 1:]", "target)\n    right = target"),
    ("training_step", "shifted back", "target[:, :-1])\n    right = target[:, 1:]", "target[:, 1:])\n    right = target[:, :-1]"),
    ("training_step", "gradients kept", "    optimiser.zero_grad()\n", ""),
    ("training_step", "no move", "    optimiser.step()\n", ""),
    ("training_step", "no move", "    optimiser.zero_grad()\n    loss.backward()\n", "    loss.backward()\n    optimiser.zero_grad()\n"),
    ("training_step", "padding counted", ", ignore_index=pad", ""),
    ("training_step", "softmax twice", "logits.flatten(0, 1)", "logits.softmax(-1).flatten(0, 1)"),
    ("training_step", "sum", "ignore_index=pad", "ignore_index=pad, reduction='sum'"),
]  # fmt: skip


def solution(part: str) -> str:
    return (SOLUTIONS / f"{part}.py").read_text(encoding="utf-8")


def student(source: str, part: str) -> Callable[..., Any]:
    names: dict[str, Any] = {}
    exec(compile(source, f"{part}.py", "exec"), names)
    return names[part]  # type: ignore[no-any-return]


def solutions() -> dict[str, Callable[..., Any]]:
    return {part: student(solution(part), part) for part in PARTS}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder in which everything is solved."""
    shutil.copytree(SOLUTIONS, tmp_path / "build", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "build"


def learn(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["learn", *map(str, arguments)])


@pytest.mark.parametrize("part", PARTS)
def test_a_solution_is_right_and_a_stub_is_to_do(part: str) -> None:
    assert check(student(solution(part), part)).state == "right"
    stub = (STUBS / f"{part}.py").read_text(encoding="utf-8")
    assert repr(check(student(stub, part))) == f"· {part}: to do"
    assert f"Part {list(PARTS).index(part) + 1} of {len(PARTS)}, " in stub
    assert "Returns " in stub


@pytest.mark.parametrize(("part", "name", "old", "new"), WRITTEN)
def test_a_known_mistake_gets_its_hint(part: str, name: str, old: str, new: str) -> None:
    assert old in solution(part)
    verdict = check(student(solution(part).replace(old, new), part))
    assert (verdict.state, verdict.words) == ("wrong", {m.name: m.hint for m in MISTAKES[part]}[name])


def test_each_mistake_is_written_once_at_least_and_no_hint_is_code() -> None:
    assert {(part, name) for part, name, *_ in WRITTEN} == {(part, m.name) for part in PARTS for m in MISTAKES[part]}
    hints = Counter(m.hint for part in PARTS for m in MISTAKES[part])
    assert len(hints) > 60
    for hint in hints:
        assert "dim=" not in hint
        assert "@" not in hint


@pytest.mark.parametrize("part", PARTS)
def test_no_mistake_is_right_or_looks_like_another(part: str) -> None:
    cases = PARTS[part](seen())
    ways = [(m.name, [outcome(case, way) for case in cases]) for m in MISTAKES[part] for way in m.ways]
    for number, (name, found) in enumerate(ways):
        for other, those in ways[:number]:
            same = all(
                type(a) is type(b) and (not isinstance(a, torch.Tensor) or torch.equal(a.nan_to_num(9), b.nan_to_num(9)))
                for a, b in zip(found, those, strict=True)
            )  # fmt: skip
            assert name == other or not same


@pytest.mark.parametrize(
    ("part", "source", "words"),
    [
        ("softmax", "def softmax(x):\n    return x.sofmax(-1)\n", "softmax.py, line 2, `"),
        ("softmax", "def softmax(x):\n    x.exp()\n", "It returns nothing"),
        ("softmax", "def softmax(x):\n    return x.mean()\n", "Its shape is (), and (4, 16, 16) was expected"),
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
    assert Built(parts, seen().weights).answer(DATES[0]) == "January 5, 1845"
    for part in set(PARTS) - {"training_step", "softmax", "mask"}:
        wrong = next(way for m in MISTAKES[part] for way in m.ways)
        assert outcome_of({**parts, part: wrong}) != "January 5, 1845", part


def outcome_of(parts: dict[str, Callable[..., Any]]) -> str:
    try:
        return Built(parts, seen().weights).answer(DATES[0])
    except (RuntimeError, ToldError) as error:
        return str(error)


def test_the_functions_learn_from_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that counts the steps, since a busy machine takes few in a second."""
    monkeypatch.setattr("seq2see.learn.network.time.monotonic", itertools.count().__next__)
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
    text = solution("positions").replace("    even", "    assert (length, d_model) in ((12, 16), (16, 16))\n    even")
    (folder / "positions.py").write_text(text, encoding="utf-8")
    done = learn(folder)
    assert "Each is right, but together they fail: positions.py, line 5, `assert (length" in done.output
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
