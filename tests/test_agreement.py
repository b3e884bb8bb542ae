"""Python, the command and HTTP give the same answers, the same refusals and the same words to the same question."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

import seq2see
from seq2see import Seq2Seq
from seq2see.cli import app
from seq2see.errors import UserError
from seq2see.serve.app import create_app

TEXTS = {
    "dates": ["1845-01-05", "2025-9-3", "1999-02-31"],
    "human-dates": ["le 3 janvier 1845", "31 February 2020", "03/04/2021"],
    "en-fr": ["Where is the train station?", "I AM TIRED. It rains!", " "],
}
OPTIONS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "beam": {"beam": 3},
    "several": {"n_best": 2},
    "short": {"max_length": 4},
    "penalty": {"beam": 2, "length_penalty": 1.5},
    "prefix": {"prefix": "2"},
    "pattern": {"pattern": r"\d{4}-\d\d-\d\d"},
    "only": {"only": ["January 5, 1854", "1845-01-03", "Il pleut."]},
    "glossary": {"glossary": {"train": "train", "3": "3"}},
    "sure": {"min_confidence": 0.9},
    "order": {"order": "day"},
    "whole": {"whole": True},
    "both constraints": {"prefix": "J", "pattern": "J.*"},
    "too many": {"n_best": 101},
    "glossary and prefix": {"glossary": {"a": "b"}, "prefix": "J"},
    "unreadable pattern": {"pattern": "(("},
    "order that is none": {"order": "year"},
}


@pytest.fixture(scope="module")
def models() -> dict[str, Seq2Seq]:
    return {name: seq2see.load(name) for name in TEXTS}


Told = list[tuple[str, Any]] | str  # for each text its answer or why it is refused; or why all are


def of_answer(answer: dict[str, Any]) -> tuple[str, Any]:
    if "error" in answer:
        return "refused", answer["error"]
    return "answered", [answer["output"], *(one["output"] for one in answer.get("alternatives", []))]


def by_python(model: Seq2Seq, texts: list[str], options: dict[str, Any]) -> Told:
    try:
        answers = model.answers(texts, probabilities=False, **options)
    except UserError as error:
        return str(error)
    return [
        ("refused", one.error)
        if one.error is not None
        else ("answered", [one.output, *(other.output for other in one.alternatives)])
        for one in answers
    ]


def by_command(name: str, texts: list[str], options: dict[str, Any], folder: Path) -> Told:
    command = ["predict", "--model", name, "--json"]
    for option, value in options.items():
        flag = f"--{option.replace('_', '-')}"
        if option in ("only", "glossary"):
            file = folder / option
            rows = value if option == "only" else [f"{term}\t{other}" for term, other in value.items()]
            file.write_text("".join(f"{row}\n" for row in rows))
            value = str(file)
        command += [flag] if value is True else [flag, str(value)]
    done = CliRunner().invoke(app, [*command, "--", *texts])
    if isinstance(done.exception, UserError):
        return str(done.exception)
    if done.exit_code == 2 and not done.stdout:
        return done.stderr
    return [of_answer(json.loads(line)) for line in done.stdout.splitlines()]


def by_http(client: TestClient, name: str, texts: list[str], options: dict[str, Any]) -> Told:
    reply = client.post("/api/predict", json={"model": name, "inputs": texts, "probabilities": False, **options})
    if reply.status_code != 200:
        return str(reply.json()["error"])
    return [of_answer(one) for one in reply.json()["answers"]]


def plain(told: Told) -> Told:
    """Say an option alike: the command writes --n-best, Python `n_best`."""
    return told.replace("--", "").replace("`", "").replace("-", "_") if isinstance(told, str) else told


@pytest.mark.parametrize(("name", "option"), list(itertools.product(TEXTS, OPTIONS)))
def test_three_doors_lead_to_one_answer(name: str, option: str, models: dict[str, Seq2Seq], tmp_path: Path) -> None:
    texts, options = TEXTS[name], OPTIONS[option]
    python = by_python(models[name], texts, options)
    command = by_command(name, texts, options, tmp_path)
    with TestClient(create_app({name: models[name]})) as client:
        http = by_http(client, name, texts, options)
    assert isinstance(python, str) == isinstance(command, str) == isinstance(http, str), (python, command, http)
    if not isinstance(python, str):
        assert command == python
        assert http == python
    else:
        assert plain(command) == plain(python)
        assert plain(http) == plain(python)


@pytest.mark.parametrize(
    ("name", "text", "most"), [("dates", "1845-01-05", 12), ("en-fr", "Where is the station?", 16)]
)
def test_an_answer_enters_few_files(name: str, text: str, most: int) -> None:
    """Who reads how a text becomes its answer reads these files of the package, and no others."""
    model, home, entered = seq2see.load(name), str(Path(seq2see.__file__).parent), set[str]()
    model.predict([text])

    def watch(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(home):
            entered.add(frame.f_code.co_filename.removeprefix(home))

    sys.setprofile(watch)
    try:
        model.predict([text])
    finally:
        sys.setprofile(None)
    assert "/answering/answerer.py" in entered
    assert len(entered) <= most, sorted(entered)
