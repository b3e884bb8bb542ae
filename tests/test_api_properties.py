"""Anything may be sent to the interface: by its own description or against it, no answer is a fault of ours."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import httpx
import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.specs.openapi.checks import positive_data_acceptance

import seq2see
from benchmarks.load import wait_for
from conftest import examples
from seq2see.serve.app import create_app
from seq2see.serve.batching import Limits
from seq2see.serve.server import listen

APP = create_app({"dates": seq2see.load("dates")}, Limits(characters=200, inputs=8, body=20_000, beam=4))


FEW = settings(
    max_examples=examples(60), deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
#: Any text that JSON can write, halves of characters among them.
TEXTS = st.text(st.characters(exclude_categories=()), max_size=250)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
KEYS = st.sampled_from([
    "inputs", "input", "model", "beam", "n_best", "align", "probabilities", "prefix", "muted", "names", "compact", "head",
    "also", "step",
])  # fmt: skip


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    listener = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(APP, log_level="critical"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    wait_for(listener.getsockname()[1])
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=address, timeout=60) as client:
        yield client


@schemathesis.openapi.from_dict(APP.openapi()).parametrize()
@FEW
def test_the_interface_does_as_it_says(address: str, case: schemathesis.Case) -> None:
    # A text may have the right form and yet be nothing that the model can answer.
    response = case.call(base_url=address)
    if response.status_code == 413:  # too long to be read; the library does not take this for a refusal
        assert "which is the limit" in response.json()["error"]
    else:
        case.validate_response(response, excluded_checks=[positive_data_acceptance])


def sent(client: httpx.Client, path: str, body: bytes, kind: str = "application/json") -> httpx.Response:
    """Send a body; what comes back is JSON, guarded, and never a fault of ours."""
    response = client.post(f"/api/{path}", content=body, headers={"content-type": kind})
    assert response.status_code < 500
    assert "content-security-policy" in response.headers
    response.json()
    return response


@pytest.mark.parametrize("path", ["predict", "trace", "text"])
@FEW
@given(body=st.binary(max_size=100), kind=st.sampled_from(["application/json", "text/plain", "x"]))
def test_bytes(client: httpx.Client, path: str, body: bytes, kind: str) -> None:
    assert sent(client, path, body, kind).status_code in {400, 422}


@pytest.mark.parametrize("path", ["predict", "trace", "text"])
@FEW
@given(body=st.dictionaries(KEYS, JSON) | JSON)
def test_json_of_any_form(client: httpx.Client, path: str, body: object) -> None:
    assert sent(client, path, json.dumps(body).encode()).status_code in {200, 400, 422}


@FEW
@given(texts=st.lists(TEXTS, min_size=1, max_size=4), align=st.booleans(), n_best=st.integers(1, 2))
def test_texts_of_any_kind_are_answered_or_refused_one_by_one(
    client: httpx.Client, texts: list[str], align: bool, n_best: int
) -> None:
    body = {"inputs": ["1845-01-05", *texts], "align": align, "n_best": n_best}
    response = sent(client, "predict", json.dumps(body).encode())
    if any("\ud800" <= character <= "\udfff" for text in texts for character in text):
        assert response.status_code == 422
        assert "half a character" in response.json()["error"]
        return
    assert response.status_code == 200
    answers = response.json()["answers"]
    assert [answer["input"] for answer in answers] == body["inputs"]
    assert answers[0]["output"] == "January 5, 1845"
    assert all(("error" in answer) != ("output" in answer) for answer in answers)


@FEW
@given(name=TEXTS)
def test_models_that_are_not_there(client: httpx.Client, name: str) -> None:
    body = json.dumps({"inputs": "1845-01-05", "model": name}).encode()
    assert sent(client, "predict", body).status_code == (200 if name == "dates" else 422)


@pytest.mark.parametrize("path", ["predict", "trace", "text"])
@pytest.mark.parametrize("size", [20_001, 3_000_000])
def test_huge_bodies(client: httpx.Client, path: str, size: int) -> None:
    response = sent(client, path, b'{"inputs": "' + b"9" * size + b'"}')
    assert response.status_code == 413
    assert "20,000 bytes" in response.json()["error"]
