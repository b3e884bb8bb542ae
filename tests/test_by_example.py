"""Answers by examples: a tiny model, which is trained here, answers as the pairs show, fills tables, and asks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner, Result

import seq2see
import tiny_examples
from seq2see.answering import examples
from seq2see.by_example import Like, fill
from seq2see.cli import app
from seq2see.errors import InputError, UserError
from seq2see.serve.app import create_app
from shipped.examples import release, world

CAPITALS = [("ab", "A"), ("ca", "C"), ("1b", "1")]
SMALL = [("ab", "a"), ("ca", "c")]
EITHER = [("1b", "1"), ("2b", "2")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_examples.folder_of(tmp_path_factory.mktemp("models") / "tiny")


def test_the_examples_decide(folder: Path) -> None:
    asked = ["ba", "da", "2b"]
    assert seq2see.like(CAPITALS, str(folder)).predict(asked) == ["B", "D", "2"]
    assert seq2see.like(dict(SMALL), str(folder)).predict(asked) == ["b", "d", "2"]
    assert seq2see.like(SMALL, str(folder))("bb") == "b"
    model = seq2see.load(folder)
    assert model.predict(["ba"], like=CAPITALS) == ["B"]
    assert model.predict(["ba"], seq2see.Options(like=SMALL)) == ["b"]


def test_their_order_does_not_matter_and_engines_agree(folder: Path) -> None:
    for pairs in (CAPITALS, EITHER):
        forward, backward = (seq2see.like(some, str(folder), engine="torch") for some in (pairs, pairs[::-1]))
        asked = ["ba", "dd", "1a"]
        assert forward.answers(asked) == backward.answers(asked)
        for one, other in zip(forward.answers(asked), seq2see.like(pairs, str(folder)).answers(asked), strict=True):
            assert (one.output, one.confidence) == (other.output, pytest.approx(other.confidence, abs=1e-3))


def test_a_trace_reads_the_examples_before_the_question(folder: Path) -> None:
    model = seq2see.like(CAPITALS, str(folder))
    trace = model.trace("ba")
    assert trace.output == "B"
    assert "".join(trace.source_tokens[1:-1]).endswith(f"{examples.QUESTION}ba")
    assert trace.source_tokens.count(examples.BECOMES) == 3
    assert model.trace("ba", target="b").output == "b"


def test_doubt_is_told_and_has_a_low_confidence(folder: Path) -> None:
    [one] = seq2see.like(CAPITALS[:1], str(folder)).answers(["ba"])
    assert one.remark == examples.DOUBT
    clear, either = (seq2see.like(pairs, str(folder)).answers(["ba"], n_best=2)[0] for pairs in (CAPITALS, EITHER))
    assert clear.remark is None
    assert clear.confidence > 0.9 > 0.8 > either.confidence
    assert {either.output, either.alternatives[0].output} == {"B", "b"}
    assert str(either.remark).startswith("Another reading of the examples gives ")
    assert either.score is not None
    assert either.score > either.alternatives[0].score
    [withheld] = seq2see.like(EITHER, str(folder)).answers(["ba"], min_confidence=0.9)
    assert withheld.output is None
    assert withheld.withheld in {"B", "b"}


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ("ab", "`like` is 'ab': pairs of texts were expected"),
        ([], "There is no example"),
        ([("a", "b", "c")], r"Example 1 is \('a', 'b', 'c'\)"),
        ([("a", "b"), ("a", " ")], r"Example 2 is \('a', ' '\)"),
        ([("a", "b"), ("a", "c")], "The example 'a' becomes 'b', and then 'c': keep one of them"),
        ([("a", f"b{examples.NEXT}")], "has the sign ␞"),
    ],
)
def test_bad_examples_are_refused(pairs: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        examples.pairs_of(pairs)


def test_more_examples_than_fit_are_read_in_several_draws() -> None:
    pairs = tuple((f"{number:04}" * 20, "x" * 20) for number in range(60))  # 100 bytes each
    found = examples.draws(pairs, "0000", 1500)
    assert len(found) == examples.ORDERS
    shown = [{part.partition(examples.BECOMES)[0] for part in one.split(examples.NEXT)} for one in found]
    assert all(len(one) == 14 for one in shown)
    assert len(set.union(*shown)) == 42  # each draw has others
    assert all(len(world.tokenizer().encode(one)) <= 1500 for one in found)
    assert examples.draws(pairs[::-1], "0000", 1500) == found
    few = examples.draws(tuple(EITHER), "q", 1500)
    assert [len(one) for one in few] == [11, 11]
    exact = examples.draws((("é" * 100, "ü"),), "ñ", 207 + 2)  # 202 + 2 bytes, three signs, two ends
    assert len(world.tokenizer().encode(exact[0])) == 208
    with pytest.raises(InputError, match="give shorter ones"):
        examples.draws((("é" * 100, "ü"),), "ñ", 207)


def test_the_tokenizer_cuts_as_the_world_does() -> None:
    tokenizer = world.tokenizer()
    for task in islice(world.tasks(11), 300):
        ids = world.serialised(task.pairs, task.question)
        assert tokenizer.encode(examples.source(task.pairs, task.question)) == ids
        assert tokenizer.decode([*world.bytes_of(task.answer), world.END]) == task.answer
    assert tokenizer.encode("<pad><0x41>")[1:-1] == world.bytes_of("<pad><0x41>")


# --- tables --------------------------------------------------------------------------------------------------------


def table(**more: Any) -> dict[str, list[Any]]:
    return {"code": ["1b", "2b", "ba", "ca", "da", "1d"], "x": ["1", "2", None, "", " ", float("nan")], **more}


def test_a_table_is_filled_where_it_is_sure_and_a_row_is_asked_for(folder: Path) -> None:
    given = table()
    found = fill(given, model=str(folder))
    assert found.table == {**given, "x": ["1", "2", None, None, None, "1"]}
    assert [one.row for one in found.unsure] == [3, 4, 5]
    assert {str(found.unsure[0].answer.withheld)} <= {"b", "B"}
    assert found.question.startswith("Is 'ba' 'B' or 'b'? Fill in row 3: 2 of 2 others") or "Is '" in found.question
    assert found.question.endswith("2 of 2 others would then be sure.")
    given["x"][int(found.question.split("row ")[1][0]) - 1] = "B"  # the answer
    again = fill(given, model=str(folder))
    assert again.question == ""
    assert again.unsure == []
    assert fill(table(), model=str(folder), min_confidence=None).unsure == []


def test_frames_are_filled_and_do_not_change(folder: Path) -> None:
    import pandas
    import polars

    pairs = {"code": ["ab", "ca", "da"], "n": [1, 2, 3], "x": ["A", "C", None]}
    for kind in (pandas.DataFrame, polars.DataFrame):
        frame = kind(pairs)
        found = fill(frame, "x", ["code"], model=str(folder))
        assert type(found.table) is type(frame)
        assert list(found.table["x"]) == ["A", "C", "D"]
        assert list(frame["x"])[2] in (None, "") or list(frame["x"])[2] != list(frame["x"])[2]


@pytest.mark.parametrize(
    ("given", "column", "using", "message"),
    [
        (table(), "y", (), "The table has no column 'y'. Did you mean 'x'|Known: code, x"),
        (table(), "code", (), "The column 'code' has no empty cell"),
        (table(z=[None] * 6), "z", (), "The column 'z' has no filled cell"),
        (table(z=["a", *[None] * 5]), None, (), r"but 2 columns have \(x, z\): name it"),
        ({"a": ["1"], "b": ["2"]}, None, (), "but no column has"),
        (table(), "x", ["x"], "cannot be filled in from itself"),
    ],
)
def test_a_table_that_cannot_be_filled_says_why(given: Any, column: Any, using: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        fill(given, column, using)


# --- the command and the server ----------------------------------------------------------------------------------------


def run(*words: str, status: int = 0) -> Result:
    done = CliRunner().invoke(app, words)
    if isinstance(done.exception, UserError):  # main prints it, with status 2
        assert status == 2, done.exception
        done.stderr_bytes = str(done.exception).encode()
    else:
        assert done.exit_code == status, done.stderr
    return done


def test_the_command_answers_by_examples(folder: Path, tmp_path: Path) -> None:
    words = ["predict", "--model", str(folder), "--like", "ab => A", "--like", "ca => C"]
    assert run(*words, "ba", "1a").stdout == "B\n1\n"
    listed = tmp_path / "like.txt"
    listed.write_text("ab => a\nca\tc\n\n", encoding="utf-8")
    done = run("predict", "--model", str(folder), "--like", str(listed), "--json", "ba")
    assert json.loads(done.stdout)["output"] == "b"
    assert run(*words[:5], "ba").stderr.endswith("input 1: One example has many readings: show two or more.\n")


@pytest.mark.parametrize(
    ("like", "message"),
    [
        (["ab"], "--like is 'ab', which has no arrow and is no file"),
        (["ab => A => B"], "which has 2 arrows"),
        (["ab => A", "ab => B"], "'ab' becomes 'A', and then 'B'"),
        ([" => A"], "Example 1 is ('', 'A')"),
    ],
)
def test_the_command_refuses_bad_examples(folder: Path, like: list[str], message: str) -> None:
    done = run("predict", "--model", str(folder), *[word for one in like for word in ("--like", one)], "ba", status=2)
    assert message in done.stderr
    assert done.stdout == ""


def test_the_command_fills_a_file(folder: Path, tmp_path: Path) -> None:
    people, out = tmp_path / "people.csv", tmp_path / "out.csv"
    text = 'code,x,other\nab,A,"a, b"\nca,C,é\nba,,\nda,,3\n'
    people.write_text(text, encoding="utf-8")
    words = ["fill", str(people), "--column", "x", "--using", "code", "--model", str(folder)]
    done = run(*words, "--out", str(out))
    assert out.read_text(encoding="utf-8") == 'code,x,other\nab,A,"a, b"\nca,C,é\nba,B,\nda,D,3\n'
    assert "2 of 2 empty cells of 'x' are filled" in done.stdout + done.stderr
    assert people.read_text(encoding="utf-8") == text
    assert "no table is overwritten" in run(*words, "--out", str(people), status=2).stderr
    assert "ends in .csv, .tsv, .parquet" in run(*words, "--out", str(tmp_path / "x.xlsx"), status=2).stderr
    people.write_text("code,x\n1b,1\n2b,2\nba,\n\nca,\n", encoding="utf-8")
    done = run(*words, "--out", str(tmp_path / "half.csv"))
    assert (tmp_path / "half.csv").read_text(encoding="utf-8") == "code,x\n1b,1\n2b,2\nba,\nca,\n"
    assert "row 4: 'ba' stays empty, perhaps '" in done.stderr
    assert "row 6: 'ca' stays empty, perhaps '" in done.stderr  # as the file counts them
    assert "1 of 1 other would then be sure" in done.stderr


def test_the_command_keeps_the_types_of_other_columns(folder: Path, tmp_path: Path) -> None:
    import polars

    path, out = tmp_path / "in.parquet", tmp_path / "out.parquet"
    polars.DataFrame({"code": ["ab", "ca", "da"], "n": [1, 2, 3], "x": ["A", "C", None]}).write_parquet(path)
    run("fill", str(path), "--using", "code", "--model", str(folder), "--out", str(out))
    filled = polars.read_parquet(out)
    assert filled["x"].to_list() == ["A", "C", "D"]
    assert filled.schema["n"] == polars.Int64


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[TestClient]:
    models = {"tiny": seq2see.load(folder), "dates": seq2see.load("dates")}
    with TestClient(create_app(models), raise_server_exceptions=False) as client:
        yield client


def test_the_server_answers_by_examples(client: TestClient) -> None:
    for like, answer in ((CAPITALS, "B"), (SMALL, "b")):
        body = {"inputs": ["ba"], "like": [list(pair) for pair in like]}
        assert client.post("/api/predict", json=body).json()["answers"][0]["output"] == answer
    for body, message in (
        ({"inputs": "ba", "like": [["a"]]}, "Example 1 is ['a']"),
        ({"inputs": "ba", "like": ["ab"]}, "like.0: Input should be a valid list"),
        ({"inputs": "1845-01-05", "model": "dates", "like": [["a", "b"]]}, "the task of this model is dates"),
        ({"inputs": "ba", "like": [[str(n), "b"] for n in range(11_000)]}, "at most"),
    ):
        answer = client.post("/api/predict", json=body)
        assert answer.status_code == 422
        assert message in answer.json()["error"]


# --- the folder that ships ---------------------------------------------------------------------------------------------


def test_the_folder_is_made_of_trained_weights(folder: Path, tmp_path: Path) -> None:
    model = seq2see.load(folder)
    assert model.config.task == examples.TASK
    assert model.config.model.max_length == world.LONGEST
    asked, rights = tiny_examples.asked(200, 5)
    told = release.answered(model.answerer, asked)
    sure = [(answer.confidence, answer.output == right) for answer, right in zip(told, rights, strict=True)]
    mean = sum(value for value, _ in sure if value is not None) / len(sure)
    assert abs(mean - sum(good for _, good in sure) / len(sure)) < 0.08  # calibrated
    pairs = [["ab", "A"], ["ca", "C"], ["ba", "B"], ["da", "D"], ["1a", "x"]]
    sets = {"one": [{"pairs": pairs}, {"pairs": pairs[:4]}]}
    found = release.on_others(model, sets, 2)
    assert (found["one"], found["rows"], len(found["sure"])) == (50.0, 80.0, 5)
    assert (folder / "SHA256SUMS").is_file()
    assert isinstance(seq2see.like(SMALL, str(folder)), Like)
