"""The scripts of the lessons, in Python and JavaScript: both say the same, what the introduction (001) prints."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parent.parent / "lessons" / "scripts"
NODE = shutil.which("node")
LANGUAGES = ["py", pytest.param("js", marks=pytest.mark.skipif(not NODE, reason="no node"))]
VECTORS = {"king": [3.0, 4.0], "queen": [4.0, 3.0], "black": [1.0, 0.0] * 256, "brown": [1.0, 1.0] * 256}
KEY = "sk-test-1"


def run(name: str, language: str, folder: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run a script in an empty folder, without the settings of this machine."""
    path = next(path for path in (SCRIPTS / f"{name}.{language}", SCRIPTS / f"{name}_node.{language}") if path.exists())
    call = [*([sys.executable] if language == "py" else [str(NODE)]), str(path), *arguments]
    known = {key: value for key, value in os.environ.items() if not key.startswith("OPENAI")}
    return subprocess.run(call, cwd=folder, env={**known, **settings}, capture_output=True, text=True, check=False)


def test_these_are_the_scripts_of_the_introduction() -> None:
    stems = {path.stem.removesuffix("_node") for path in SCRIPTS.glob("*.js")}
    assert stems == {path.stem for path in SCRIPTS.glob("*.py")}
    assert stems - {"vectors"} == {
        "input_embedding", "cosine_similarity", "positional_encoding_simple", "positional_encoding_simple_2",
        "positional_encoding_similarity_1", "positional_encoding_similarity_2", "adding_positional_encoding",
        "adding_positional_encoding_2",
    }  # fmt: skip


@pytest.mark.parametrize("language", LANGUAGES)
def test_positions_2_and_10(language: str, tmp_path: Path) -> None:
    said = run("positional_encoding_simple_2", language, tmp_path).stdout
    paper, doubled = said.split("With the exponent taken twice:\n")
    for number in ("9.09297427e-01", "-4.16146837e-01", "9.58144376e-01", "-2.86285442e-01", "-4.08766567e-02"):
        assert number in doubled.splitlines()[0]
    for number in ("-5.44021111e-01", "1.33352143e-07", "1.24093776e-07", "1.15478198e-07", "1.07460783e-07"):
        assert number in doubled.splitlines()[1]
    assert "9.36414739e-01, -3.50895194e-01" in paper
    alike = run("positional_encoding_similarity_2", language, tmp_path).stdout.splitlines()
    assert alike == [
        "cosine_similarity(pos(2), pos(10)) = 0.7225200832 with the paper's exponent",
        "cosine_similarity(pos(2), pos(10)) = 0.8600013331 with the exponent taken twice",
    ]


@pytest.mark.parametrize("language", LANGUAGES)
def test_sums_without_a_key_say_that_their_words_are_made(language: str, tmp_path: Path) -> None:
    done = run("adding_positional_encoding_2", language, tmp_path)
    assert "There is no OPENAI_API_KEY" in done.stderr
    assert "Made vectors" in done.stderr
    lines = done.stdout.splitlines()
    assert [line.split("  sums")[0] for line in lines] == [
        "words 0.5690  positions 0.7225",
        "words 0.5690  positions 0.8600",
        "words 0.5690  positions 1.0000",
    ]
    one = run("adding_positional_encoding", language, tmp_path)
    assert re.fullmatch(r"pc\(black\) = \[(-?\d\.\d{8}e[+-]\d\d, ){4}…(, -?\d\.\d{8}e[+-]\d\d){4}\]\n", one.stdout)


@pytest.mark.parametrize("language", LANGUAGES)
def test_king_is_near_to_queen_and_far_from_bread(language: str, tmp_path: Path) -> None:
    said = run("cosine_similarity", language, tmp_path).stdout
    assert said.startswith("There is no OPENAI_API_KEY")
    assert "Counted in the lines of words.txt instead" in said
    near, far = (float(number) for number in re.findall(r"'king' and '\w+': ([\d.]+)", said))
    assert near > 0.9
    assert far < 0.3
    unknown = run("cosine_similarity", language, tmp_path, "king", "emperor")
    assert unknown.returncode == 1
    assert "words.txt has no 'emperor'" in unknown.stderr


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_picture_of_the_positions(language: str, tmp_path: Path) -> None:
    name = "a.png" if language == "py" else "a.svg"
    assert run("positional_encoding_simple", language, tmp_path, name).stdout == f"Written: {name}\n"
    assert (tmp_path / name).read_bytes()[:4] in (b"\x89PNG", b"<svg")


@pytest.mark.skipif(not NODE, reason="no node")
@pytest.mark.parametrize(
    "name",
    ["cosine_similarity", "positional_encoding_simple_2", "positional_encoding_similarity_2",
     "adding_positional_encoding", "adding_positional_encoding_2"],
)  # fmt: skip
def test_both_languages_say_the_same(name: str, tmp_path: Path) -> None:
    assert run(name, "py", tmp_path).stdout == run(name, "js", tmp_path).stdout


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", ["input_embedding", "positional_encoding_similarity_1"])
def test_without_a_key_a_clear_word(name: str, language: str, tmp_path: Path) -> None:
    done = run(name, language, tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("There is no OPENAI_API_KEY, neither in the environment nor in a file .env here")
    assert len(done.stderr.splitlines()) == 1


class Api(BaseHTTPRequestHandler):
    """The documented embeddings API; other texts than VECTORS have a vector of threes."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        right = self.headers["Authorization"] == f"Bearer {KEY}" and self.path == "/v1/embeddings"
        data = [{"index": n, "embedding": VECTORS.get(text, [3.0] * 4)} for n, text in enumerate(body["input"])]
        answer = json.dumps({"data": data[::-1]}).encode()
        self.send_response(200 if right else 401)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def api() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Api) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()


@pytest.mark.parametrize("language", LANGUAGES)
def test_with_a_key_the_vectors_are_those_of_the_api(language: str, api: str, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(f'export OPENAI_API_KEY="{KEY}"\nOPENAI_BASE_URL={api}\n')
    assert (
        run("cosine_similarity", language, tmp_path).stdout == "Cosine similarity between 'king' and 'queen': 0.9600\n"
    )
    said = run("positional_encoding_similarity_1", language, tmp_path).stdout
    assert said == "cosine_similarity(black, brown) = 0.7071\n"
    assert run("input_embedding", language, tmp_path).stdout.startswith("4 numbers: [3.00000000e+00, ")
    sums = run("adding_positional_encoding_2", language, tmp_path)
    assert (sums.stderr, sums.stdout.split("  positions")[0]) == ("", "words 0.7071")


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_fails_at_the_api_is_told(language: str, api: str, tmp_path: Path) -> None:
    wrong = run("cosine_similarity", language, tmp_path, OPENAI_API_KEY="sk-no", OPENAI_BASE_URL=api)
    assert (wrong.returncode, wrong.stderr) == (1, f"{api}/embeddings refused the request: status 401.\n")
    away = "http://127.0.0.1:9/v1"
    gone = run("cosine_similarity", language, tmp_path, OPENAI_API_KEY=KEY, OPENAI_BASE_URL=away)
    assert gone.returncode == 1
    assert gone.stderr.startswith(f"{away}/embeddings cannot be reached: ")
    assert KEY not in gone.stderr
