"""Without its extras the package answers with every shipped model, and names what is missing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import seq2see
from seq2see.errors import EXTRAS
from seq2see.interchange.to_ctranslate2 import numbers_in, numbers_of
from seq2see.storage import folder

ROOT = Path(__file__).parent.parent
#: A program in which packages are not installed, as far as Python can see.
PLAIN = """
import sys
for name in {missing!r}:
    sys.modules[name] = None
{rest}
"""
TEXTS = {
    "dates": "1845-01-05",
    "human-dates": "le 3 janvier 1845",
    "en-fr": "Where is the train station?",
    "en-de": "Where is the train station?",
    "fr-en": "Où est la gare ?",
}
ANSWER = """
import json, seq2see
print(json.dumps({{name: seq2see.load(name).predict([text]) for name, text in {texts!r}.items()}}))
"""
COMMAND = "from seq2see.cli import main; sys.argv = ['seq2see', *{words!r}]; main()"


def plain(rest: str, cache: Path) -> subprocess.CompletedProcess[str]:
    missing = [*EXTRAS["train"], *EXTRAS["tables"], *EXTRAS["huggingface"], "triton", "pandas"]
    env = os.environ | {"XDG_CACHE_HOME": str(cache)}
    program = PLAIN.format(missing=missing, rest=rest)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env, check=False)


def test_every_shipped_model_answers_as_it_does_with_torch(tmp_path: Path) -> None:
    done = plain(ANSWER.format(texts=TEXTS), tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(TEXTS) == sorted(path.name for path in folder.SHIPPED.iterdir() if path.is_dir())
    expected = {name: seq2see.load(name, engine="torch").predict([text]) for name, text in TEXTS.items()}
    assert json.loads(done.stdout) == expected


@pytest.mark.parametrize("name", ["dates", "human-dates", "en-fr"])
def test_the_numbers_of_a_folder_are_those_of_its_network(name: str) -> None:
    model = seq2see.load(name, engine="torch")
    expected = numbers_of(model.transformer)
    found = numbers_in(folder.SHIPPED / name, model.config.model)
    assert found.keys() == expected.keys()
    for one, numbers in expected.items():
        np.testing.assert_allclose(found[one], numbers, rtol=0, atol=1e-7, err_msg=one)


@pytest.mark.parametrize(
    ("words", "package", "extra"),
    [
        (["trace", "1845-01-05"], "torch", "train"),
        (["train", "dates"], "torch", "train"),
        (["predict", "1845-01-05", "--n-best", "2"], "torch", "train"),
        (["plot", "attention"], "torch", "train"),
        (["doctor", "hf:somebody/something"], "torch", "train"),
    ],
)
def test_what_is_missing_is_named_in_a_sentence(words: list[str], package: str, extra: str, tmp_path: Path) -> None:
    done = plain(COMMAND.format(words=words), tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert re.search(
        rf"needs the package {package}, which is not installed: pip install 'seq2see\[{extra}\]'", done.stderr
    )


def test_the_names_of_the_package_say_it_too(tmp_path: Path) -> None:
    for asked, said in (("seq2see.fit([])", "Training"), ("seq2see.Transformer", "`Transformer`")):
        program = f"import seq2see\ntry:\n    {asked}\nexcept seq2see.UserError as error:\n    print(error)"
        assert plain(program, tmp_path).stdout.startswith(f"{said} needs the package torch")


def test_the_extras_are_those_of_the_package() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    named = {
        extra: {re.split(r"[\[><=]", one)[0] for one in brings}
        for extra, brings in project["optional-dependencies"].items()
        if extra not in ("dev", "bench")
    }
    assert named == {extra: set(brings) for extra, brings in EXTRAS.items()}
    required = {re.split(r"[\[><=]", one)[0] for one in project["dependencies"]}
    assert not required & set().union(*EXTRAS.values())


SERVED = """
import json, seq2see
from fastapi.testclient import TestClient
from seq2see.serve.app import create_app
with TestClient(create_app({"dates": seq2see.load("dates")}), base_url="http://127.0.0.1") as client:
    print(client.post("/api/predict", json={"inputs": ["1845-01-05"]}).json()["answers"][0]["output"])
    print(client.get("/api/models").json()["models"][0]["name"])
    refused = client.post("/api/trace", json={"input": "1845-01-05"})
    print(refused.status_code, refused.json()["error"])
"""


def test_the_server_answers_and_says_what_it_cannot_show(tmp_path: Path) -> None:
    done = plain(SERVED, tmp_path)
    missing = "A trace needs the package torch, which is not installed: pip install 'seq2see[train]'."
    assert done.stdout.splitlines() == ["January 5, 1845", "dates", f"422 {missing}"], done.stderr
