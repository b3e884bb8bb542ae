"""Words, positions and their sums compared, by a model's own vectors and by OpenAI's."""

from __future__ import annotations

import json
import math
import socket
import sys
import threading
from collections.abc import Iterator
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner

import seq2see
from seq2see.cli import inspect
from seq2see.errors import InputError, UserError
from seq2see.inspection import similarity
from seq2see.inspection.lab import encoding
from seq2see.inspection.similarity import (
    model_similarities,
    openai_similarities,
    openai_vectors,
    position_vector,
    similarities,
    word_vector,
)

VECTORS = {"king": [3.0, 4.0, 0.0, 0.0], "queen": [4.0, 3.0, 0.0, 0.0]}  # their cosine is 24/25
KEY = "sk-test-0123456789"


@cache
def dates() -> seq2see.Seq2Seq:
    return seq2see.load("dates")


def cosine(a: list[float], b: list[float]) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)


# --- a model's own ---------------------------------------------------------------------------------------


def test_the_three_cosines() -> None:
    king, queen = VECTORS.values()
    assert similarities((torch.tensor(king), torch.tensor(queen))).words == pytest.approx(0.96)
    two, ten = (encoding(position, 4).tolist() for position in (2, 10))
    result = similarities((torch.tensor(king), torch.tensor(queen)), (torch.tensor(two), torch.tensor(ten)))
    assert result.positions == pytest.approx(cosine(two, ten))
    sums = [
        [y * math.sqrt(4) + pe for y, pe in zip(*pair, strict=True)] for pair in ((king, two), (queen, ten))
    ]
    assert result.sums == pytest.approx(cosine(*sums))


def test_a_word_of_several_tokens_is_their_mean() -> None:
    table = dates().transformer.encoder.embedding.table.weight
    vector = word_vector(dates().transformer, dates().tokenizers.source, "May")
    torch.testing.assert_close(vector, (table[22] + table[36] + table[60]) / 3)


def test_a_models_sums_are_what_its_encoder_reads() -> None:
    model, tokenizer = dates().transformer, dates().tokenizers.source
    text = "1845-01-05"
    read = dates().trace(text)["encoder.embedding.sum"]
    result = model_similarities(model, tokenizer, (text[1], text[3]), at=(2, 4))
    assert result.sums == pytest.approx(cosine(read[2].tolist(), read[4].tolist()), abs=1e-6)
    assert model_similarities(model, tokenizer, ("8", "8")).words == pytest.approx(1)
    torch.testing.assert_close(position_vector(model, 3), model.encoder.embedding.positions[3])


def test_words_and_positions_that_a_model_does_not_have() -> None:
    model, tokenizer = dates().transformer, dates().tokenizers.source
    with pytest.raises(InputError, match="'é'"):
        model_similarities(model, tokenizer, ("été", "a"))
    with pytest.raises(InputError, match="no tokens"):
        model_similarities(model, tokenizer, ("", "a"))
    with pytest.raises(UserError, match="no position 64: this model has 0 to 63"):
        model_similarities(model, tokenizer, ("a", "b"), at=(0, 64))


# --- OpenAI's --------------------------------------------------------------------------------------------


class Api(BaseHTTPRequestHandler):
    """The documented embeddings API, with the failures that it documents."""

    requests: list[dict[str, object]]
    failures: list[tuple[int, dict[str, str]]]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).requests.append(body)
        if type(self).failures:
            status, headers = type(self).failures.pop(0)
            return self.answer(status, {"error": {"message": "we cannot do that"}}, headers)
        if self.path != "/v1/embeddings":
            return self.answer(404, {"error": {"message": "no such path"}})
        if self.headers["Authorization"] != f"Bearer {KEY}":
            return self.answer(
                401, {"error": {"message": "Incorrect API key provided", "code": "invalid_api_key"}}
            )
        if not body["model"].startswith("text-embedding-"):
            return self.answer(
                404, {"error": {"message": "The model does not exist", "code": "model_not_found"}}
            )
        data = [
            {"object": "embedding", "index": index, "embedding": VECTORS[word][: body.get("dimensions", 4)]}
            for index, word in enumerate(body["input"])
        ]
        usage = {"prompt_tokens": 2, "total_tokens": 2}
        return self.answer(
            200, {"object": "list", "data": data[::-1], "model": body["model"], "usage": usage}
        )

    def answer(self, status: int, content: object, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[type[Api]]:
    """Start the API on this machine, with the key and the address in the environment, and nothing in .env."""
    handler = type("Handler", (Api,), {"requests": [], "failures": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{server.server_port}/v1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield handler
    server.shutdown()
    thread.join()
    server.server_close()


def test_openai_vectors_come_in_the_order_of_the_words(api: type[Api]) -> None:
    assert [vector.tolist() for vector in openai_vectors(["king", "queen"])] == list(VECTORS.values())
    assert api.requests[0]["model"] == "text-embedding-3-small"
    assert "dimensions" not in api.requests[0]
    assert api.requests[0]["encoding_format"] == "float"
    assert openai_similarities(("king", "queen")).words == pytest.approx(0.96)


def test_openai_model_and_dimensions_are_chosen(api: type[Api]) -> None:
    result = openai_similarities(
        ("king", "queen"), (2, 10), "doubled", "text-embedding-3-large", dimensions=2
    )
    assert api.requests[0]["model"] == "text-embedding-3-large"
    assert api.requests[0]["dimensions"] == 2
    assert result.positions == pytest.approx(math.cos(8))  # two dimensions turn by one radian a step
    result = openai_similarities(("king", "queen"), (2, 10), "doubled")
    turned = (math.cos(8) + math.cos(8 / 10_000)) / 2  # the other two turn by a ten-thousandth
    assert (result.words, result.positions) == (pytest.approx(0.96), pytest.approx(turned))
    # (6, 8, 0, 0) + (sin 2, cos 2, 0, 1) and (8, 6, 0, 0) + (sin 10, cos 10, 0, 1)
    assert result.sums == pytest.approx(0.974664, abs=1e-6)


def test_the_key_and_the_address_come_from_dot_env(
    api: type[Api], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    address = similarity.setting("OPENAI_BASE_URL")
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.delenv("OPENAI_BASE_URL")
    lines = ["# ours", "", "OTHER=1", f'export OPENAI_API_KEY="{KEY}"', f"OPENAI_BASE_URL = {address}"]
    (tmp_path / ".env").write_text("\n".join(lines))
    assert openai_similarities(("king", "queen")).words == pytest.approx(0.96)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-wrong")  # the environment goes first
    with pytest.raises(UserError, match="refused the OPENAI_API_KEY"):
        openai_vectors(["king"])


def test_an_address_that_is_given_goes_before_the_environment(
    api: type[Api], monkeypatch: pytest.MonkeyPatch
) -> None:
    address = similarity.setting("OPENAI_BASE_URL")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    assert openai_similarities(("king", "queen"), base_url=address).words == pytest.approx(0.96)


def test_no_key_is_explained(api: type[Api], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(UserError, match=r"no OPENAI_API_KEY, neither in the environment nor in a .env"):
        openai_vectors(["king"])


def test_a_refused_key_is_explained_without_showing_it(
    api: type[Api], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    with pytest.raises(UserError, match=r"refused the OPENAI_API_KEY \(401\)") as caught:
        openai_vectors(["king"])
    assert "sk-secret" not in str(caught.value)
    assert len(api.requests) == 1  # asking again would not help


def test_a_wrong_model_is_explained(api: type[Api]) -> None:
    with pytest.raises(UserError, match=r"knows no model 'gpt-9' \(404\): text-embedding-3-small and"):
        openai_vectors(["king"], model="gpt-9")


def test_a_rate_limit_is_waited_for(api: type[Api]) -> None:
    api.failures[:] = [(429, {"retry-after-ms": "1"})]
    assert openai_vectors(["king"])[0].tolist() == VECTORS["king"]
    assert len(api.requests) == 2


def test_a_lasting_rate_limit_is_explained(api: type[Api]) -> None:
    api.failures[:] = [(429, {"retry-after-ms": "1"})] * 3
    with pytest.raises(UserError, match=r"too many requests or that the quota is spent \(429\)"):
        openai_vectors(["king"])
    assert len(api.requests) == 3


def test_other_refusals_say_what_the_server_said(api: type[Api]) -> None:
    api.failures[:] = [(400, {})]
    with pytest.raises(UserError, match=r"refused the request \(400\): we cannot do that"):
        openai_vectors(["king"])


def test_no_network_is_explained(api: type[Api], monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    monkeypatch.setattr(similarity, "RETRIES", 0)
    with pytest.raises(UserError, match=f"127.0.0.1:{port}/v1 cannot be reached: check the network"):
        openai_vectors(["king"], base_url=f"http://127.0.0.1:{port}/v1")


def test_a_silent_server_is_explained(api: type[Api], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(similarity, "RETRIES", 0)
    monkeypatch.setattr(similarity, "TIMEOUT", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        with pytest.raises(UserError, match=r"did not answer within 0.2 seconds"):
            openai_vectors(["king"], base_url=address)


def test_a_missing_sdk_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(UserError, match=r"pip install 'seq2see\[openai\]'"):
        openai_vectors(["king"])


def test_an_empty_word_is_not_sent(api: type[Api]) -> None:
    with pytest.raises(InputError, match="empty"):
        openai_vectors(["king", " "])
    assert not api.requests


# --- the command -----------------------------------------------------------------------------------------


def printed(*arguments: str) -> str:
    app = typer.Typer(pretty_exceptions_enable=False)
    inspect.register(app)
    result = CliRunner().invoke(app, ["similarity", *arguments], env={"COLUMNS": "100"})
    if result.exception is not None:
        raise result.exception
    return result.stdout


def test_the_command_with_a_model() -> None:
    text = printed("May", "June", "--at", "2", "10")
    result = model_similarities(dates().transformer, dates().tokenizers.source, ("May", "June"), (2, 10))
    for value in (result.words, result.positions, result.sums):
        assert f"{value:.10f}" in text
    assert "'May' is 3 tokens, M a y: its vector is their mean." in text
    assert "positions" not in printed("May", "June")


def test_the_command_with_openai(api: type[Api]) -> None:
    assert "0.9600000000" in printed("king", "queen", "--provider", "openai")
    with pytest.raises(UserError, match=r"no provider 'opnai'. Did you mean 'openai'"):
        printed("king", "queen", "--provider", "opnai")
