"""The HTTP interface: right answers, refusals in one sentence, limits, batching, and an end that loses nothing."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
import torch
import typer
import uvicorn
from fastapi import FastAPI
from fastapi.testclient import TestClient
from typer.testing import CliRunner
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.server import ServerState

import seq2see
from benchmarks.clients import besiege, dates, ours
from benchmarks.load import running, wait_for
from conftest import several_models
from seq2see.cli import app
from seq2see.cli.output import complain
from seq2see.config import Config, ModelConfig, TrainingConfig
from seq2see.errors import UserError
from seq2see.inspection.tables import array_of
from seq2see.inspection.trace import TakeOver, mute_head
from seq2see.model.transformer import Transformer
from seq2see.seq2seq import Seq2Seq
from seq2see.serve.app import create_app
from seq2see.serve.batching import Batcher, Busy, Client, Left, Limits
from seq2see.serve.guard import Metrics
from seq2see.serve.server import Connection, Server, configured, hosts_of, is_loopback, listen
from seq2see.stopping import go_on
from seq2see.storage.folder import Tokenizers
from seq2see.tokenizers.tokenizer import Tokenizer

LIMITS = Limits(characters=50, inputs=5, body=4000, beam=4)


@pytest.fixture(scope="module")
def model() -> Seq2Seq:
    return seq2see.load("dates")


@pytest.fixture(scope="module")
def client(model: Seq2Seq) -> Iterator[TestClient]:
    with TestClient(create_app({"dates": model}, LIMITS), raise_server_exceptions=False) as client:
        yield client


def tensors(trace: dict[str, Any]) -> dict[str, np.ndarray]:
    data = base64.b64decode(trace["data"])
    return {
        entry["name"]: np.frombuffer(data, "<f4", int(np.prod(entry["shape"])), offset=entry["offset"]).reshape(
            entry["shape"]
        )
        for entry in trace["tensors"]
    }


def error_of(response: httpx.Response) -> str:
    assert set(response.json()) == {"error"}
    return str(response.json()["error"])


# --- answers -------------------------------------------------------------------------------------------


def test_one_text_and_many_are_answered(client: TestClient) -> None:
    one = client.post("/api/predict", json={"inputs": "1845-01-05"}).json()
    assert one["model"] == "dates"
    assert one["answers"][0]["output"] == "January 5, 1845"
    body = {"model": "dates", "inputs": ["2025-09-03", "2023-02-30", "1426-08-10"], "beam": 3, "n_best": 2}
    first, second, third = client.post("/api/predict", json=body).json()["answers"]
    assert (first["output"], third["output"]) == ("September 3, 2025", "August 10, 1426")
    assert first["alternatives"][0]["score"] < first["score"] < 0
    assert "score" not in one["answers"][0]
    assert len(first["alternatives"]) == 1
    assert set(second) == {"input", "error"}
    assert "February 2023 has 28 days" in second["error"]


def test_features_are_taken_as_a_list_and_as_an_object() -> None:
    source = Tokenizer.features(["walk <V> <PST>"])
    shape = ModelConfig.of(
        source_vocabulary=source.size, target_vocabulary=source.size, d_model=16, heads=2, d_ff=16, encoder_layers=1,
        decoder_layers=1, max_length=20, share_embeddings=False, share_output=False,
    )  # fmt: skip
    network = Transformer(shape).eval()
    inflecting = Seq2Seq(Config("pairs", shape, TrainingConfig()), Tokenizers.one(source), network)
    with TestClient(create_app({"walk": inflecting}, LIMITS)) as client:
        body = {"inputs": [["walk", "V;PST"], {"lemma": "walk", "tags": "V;PST"}, "walk\tV;PST"], "max_length": 3}
        answers = client.post("/api/predict", json=body).json()["answers"]
        assert [one["input"] for one in answers] == ["walk <V> <PST>"] * 2 + ["walk\tV;PST"]
        assert answers[0]["output"] == answers[1]["output"] == answers[2]["output"]
        refused = client.post("/api/predict", json={"inputs": ["walk", ["walk"]]})
        assert (refused.status_code, "a word and its features" in error_of(refused)) == (422, True)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([["x", "N;DAT"]], "A text was expected, but ['x', 'N;DAT'] is of type list: give one text."),
        ([{"lemma": "x", "tags": "N"}], "is of type dict: give one text."),
        ([["x", None]], "inputs: input 1 is not a text, nor a word"),
        (7, "inputs: a text or a list of inputs was expected"),
    ],
)
def test_inputs_of_a_wrong_form_are_refused_in_plain_words(client: TestClient, inputs: Any, message: str) -> None:
    refused = client.post("/api/predict", json={"inputs": inputs})
    assert refused.status_code == 422
    assert message in error_of(refused)
    assert not re.search(r"function-after|\[_whole|list\[|union|Input should", error_of(refused))


def test_models_health_and_the_description_of_the_interface(client: TestClient) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    answer = client.get("/api/models").json()
    assert answer["models"][0]["name"] == "dates"
    assert answer["models"][0]["parameters"] == 18_692
    assert answer["limits"]["inputs"] == LIMITS.inputs
    assert "/api/trace" in client.get("/api/openapi.json").json()["paths"]


def test_a_trace_holds_the_models_numbers(client: TestClient, model: Seq2Seq) -> None:
    trace = client.post("/api/trace", json={"input": "1845-01-05"}).json()
    ours = model.trace("1845-01-05")
    assert trace["output"] == "January 5, 1845"
    assert [token["span"] for token in trace["source"]][:3] == [[0, 0], [0, 1], [1, 2]]
    found = tensors(trace)
    for name in ours.names:
        np.testing.assert_allclose(found[name], array_of(ours, name), atol=1e-5, err_msg=name)
    for step, expected in zip(trace["steps"], ours.steps(20), strict=True):
        assert step["token"] == expected.token
        assert step["log_probability"] == pytest.approx(expected.log_probability, abs=1e-5)
        assert step["entropy"] == pytest.approx(expected.entropy, abs=1e-5)
        assert len(step["top"]) == 20
        assert step["top"][0]["id"] == step["id"]


def test_a_trace_looks_into_a_member_and_names_the_answer_of_all() -> None:
    model = several_models()
    with TestClient(create_app({"several": model})) as client:
        shape = client.get("/api/models").json()["models"][0]["config"]
        assert (shape["members"], shape["backward"]) == (3, 1)
        together = client.post("/api/predict", json={"inputs": "bcd"}).json()["answers"][0]["output"]
        for member in (1, 0):
            told = client.post("/api/trace", json={"input": "bcd", "names": [], "member": member}).json()
            assert told["output"] == model.trace("bcd", member=member).output != together
            assert told["ensemble"] == {"member": member, "members": 3, "traceable": 2, "output": together}
        for member, message in ((2, "from right to left"), (3, "members 0 to 2"), (-1, "member: Input should be")):
            refused = client.post("/api/trace", json={"input": "bcd", "member": member})
            assert refused.status_code == 422
            assert message in error_of(refused)


def test_the_page_of_a_small_model_is_sent_as_one_file() -> None:
    model = seq2see.load("dates")
    with TestClient(create_app({"dates": model}, LIMITS)) as client:
        page = client.post("/api/page", json={})
        about = client.get("/api/models").json()["models"][0]
        refused = client.post("/api/page", json={"model": "nobody"})
    assert model.network._as_read is None  # otherwise each answer would compare the weights with the folder's
    assert page.headers["content-type"].startswith("text/html")
    assert 'class="weights"' in page.text
    assert about["inside"]["task"] == "dates"
    assert (refused.status_code, "There is no model" in refused.json()["error"]) == (422, True)


def test_only_the_wanted_tensors_are_sent(client: TestClient) -> None:
    body = {"input": "1845-01-05", "names": ["*.cross_attention.weights"]}
    assert list(tensors(client.post("/api/trace", json=body).json())) == [
        "decoder.layers.0.cross_attention.weights",
        "decoder.layers.1.cross_attention.weights",
    ]


def test_another_token_is_forced_and_the_model_goes_on(client: TestClient, model: Seq2Seq) -> None:
    m = model.tokenizers.target.encode("M")[1]
    forced = client.post("/api/trace", json={"input": "1845-01-05", "prefix": [m]}).json()
    assert forced["forced"] == 1
    assert forced["output"].startswith("M")
    assert forced["steps"][0]["log_probability"] < -5
    whole = model.tokenizers.target.encode("May 5, 1845")[1:]
    again = client.post("/api/trace", json={"input": "1845-01-05", "prefix": whole}).json()
    assert again["output"] == "May 5, 1845"
    longest = model.config.model.max_length
    full = client.post("/api/trace", json={"input": "1845-01-05", "prefix": [m] * longest})
    assert (full.status_code, full.json()["output"]) == (200, "M" * longest)
    over = client.post("/api/trace", json={"input": "1845-01-05", "prefix": [m] * (longest + 1)})
    assert over.status_code == 422
    assert f"takes at most {longest}" in over.json()["error"]


def test_a_muted_head_changes_what_the_library_says_it_changes(client: TestClient, model: Seq2Seq) -> None:
    muted = [{"attention": "cross", "layer": 1, "head": 3}]
    trace = client.post("/api/trace", json={"input": "1845-01-05", "muted": muted}).json()
    name = "decoder.layers.1.cross_attention.z"
    ours = model.trace("1845-01-05", edit={name: mute_head(3)})
    assert trace["output"] == ours.output
    np.testing.assert_allclose(tensors(trace)["logits"], array_of(ours, "logits"), atol=1e-4)
    assert not tensors(trace)[name][:, 3].any()


def test_a_drawn_row_and_numbers_of_another_text_change_what_the_library_says_they_change(
    client: TestClient, model: Seq2Seq
) -> None:
    name, memory = "decoder.layers.0.cross_attention.weights", "encoder.memory"
    drawn = {"attention": "cross", "layer": 0, "head": 2, "row": 5, "shares": [0, 0, 0.25, 0, 0.75, *[0] * 7]}
    patch = {"input": "1945-01-05", "name": memory, "head": -1, "row": 2, "col": -1, "fromRow": 3}
    body = {"input": "1845-01-05", "drawn": drawn, "patches": [patch]}
    row = torch.tensor([0, 0, 0.25, 0, 0.75, *[0] * 7]).expand(4, 1, -1)
    other = TakeOver(model.trace("1945-01-05")[memory], memory, row=2, from_row=3)
    edit = {name: TakeOver(row, name, head=2, row=5, from_row=0), memory: other}
    expected, told = model.trace("1845-01-05", edit=edit), client.post("/api/trace", json=body).json()
    assert told["output"] == expected.output
    for one in (name, memory, "decoder.out"):
        np.testing.assert_allclose(tensors(told)[one], array_of(expected, one), atol=1e-5)


def test_beam_nodes_lead_to_the_beams_answer(client: TestClient, model: Seq2Seq) -> None:
    nodes = client.post("/api/trace", json={"input": "1845-01-05", "beam": 3}).json()["beams"]
    best = model.answers(["1845-01-05"], beam=3)[0]
    (found,) = [node for node in nodes if node["step"] == len(best.ids) - 2 and node["id"] == best.ids[-2]][:1]
    path = []
    while found is not None:
        path.append(found["id"])
        found = None if found["parent"] is None else nodes[found["parent"]]
    assert path[::-1] == best.ids[:-1]


# --- refusals and limits -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("predict", {"inputs": []}, 422, "a text or a list of inputs was expected"),
        (
            "predict",
            {"inputs": ["1845-01-05"] * 6},
            422,
            "The request has 6 inputs: it may have at most 5. Send it in parts.",
        ),
        ("predict", {"inputs": "x", "beam": 5}, 422, "at most 4"),
        ("predict", {"inputs": "x", "model": "../../etc"}, 422, "The models are: dates"),
        ("predict", {"inputs": "x", "colour": 1}, 422, "colour"),
        ("trace", {"input": "9" * 51}, 422, "at most 50. Send it in parts"),
        ("trace", {"input": "1845-01-05", "prefix": [999]}, 422, "ids are 0 to 67"),
        ("trace", {"input": "1845-01-05", "prefix": [66, 1]}, 422, "after its <eos>"),
        ("trace", {"input": "1845-01-05", "muted": [{"attention": "cross", "layer": 0, "head": 9}]}, 422, "head 9"),
        ("predict", {"inputs": "x" * 5000}, 413, "longer than 4,000 bytes"),
        ("nothing", {}, 404, "There is nothing at /api/nothing: /api/openapi.json lists all addresses."),
        ("models", {}, 405, "POST is not for /api/models: GET was expected."),
    ],
)
def test_refusals_say_what_was_expected(client: TestClient, path: str, body: Any, status: int, message: str) -> None:
    response = client.post(f"/api/{path}", json=body)
    assert response.status_code == status
    assert message in error_of(response)


def test_the_page_is_at_the_root(client: TestClient) -> None:
    found = client.get("/")
    assert (found.status_code, found.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "</html>" in found.text
    assert client.get("/nothing").status_code == 404


#: What a client may send: each field with its default, if it may be left out, and its bounds.
REQUESTS = {
    "Drawn": "attention ['encoder', 'cross']; layer >=0.0; head >=0.0; row >=0.0; shares >=0.0 <=1.0",
    "HeadName": "attention ['encoder', 'decoder', 'cross']; layer >=0.0; head >=0.0",
    "Patch": "input; name length<=100; head=-1 >=-1.0; row=-1 >=-1.0; col=-1 >=-1.0; fromRow=-1 >=-1.0",
    "PredictRequest": """
        model=null; beam=null >=1.0; length_penalty=null >=-10.0 <=10.0; max_length=null >=1.0; n_best=1 >=1.0;
        only=null; pattern=null; prefix=null; glossary=null; min_confidence=null >=0.0 <=1.0;
        order=null ['day', 'month']; strict=false; like=null; whole=false;
        format=null ['text', 'html', 'markdown', 'srt', 'po', 'json'];
        probabilities=true; inputs; align=false
    """,
    "TextRequest": "model=null; format=null ['text', 'html', 'markdown', 'srt', 'po', 'json']; glossary=null; input",
    "TraceRequest": """
        model=null; input; member=0 >=0.0; prefix=[] >=0.0; muted=[]; patches=[] items<=8; drawn=null;
        names=["*"] length<=100 items<=64; beam=1 >=1.0; compact=false; head=null >=0.0; column=null >=0.0;
        also=[] items<=1; effects=[] length<=100 items<=1024; anyway=false; glossary=null
    """,
}


@pytest.mark.parametrize("name", REQUESTS)
def test_what_a_client_may_send_is_frozen(client: Any, name: str) -> None:
    """Whoever changes this table changes what people's programs send and get."""
    schema = client.app.openapi()["components"]["schemas"][name]
    signs = {"minimum": ">=", "maximum": "<=", "maxLength": "length<=", "maxItems": "items<=", "enum": ""}

    def shown(field: str, told: dict[str, Any]) -> str:
        left_out = "" if field in schema.get("required", ()) else f"={json.dumps(told.get('default'))}"
        within = [told, *told.get("anyOf", []), *([told["items"]] if "items" in told else [])]
        bounds = [f" {sign}{one[key]}" for key, sign in signs.items() for one in within if key in one]
        return f"{field}{left_out}{''.join(bounds)}"

    found = "; ".join(shown(*one) for one in schema["properties"].items())
    assert found == " ".join(REQUESTS[name].split())


def test_a_text_that_is_too_long_is_refused_alone(client: TestClient) -> None:
    answers = client.post("/api/predict", json={"inputs": ["9" * 51, "1845-01-05"]}).json()["answers"]
    assert "at most 50. Send it in parts" in answers[0]["error"]
    assert answers[1]["output"] == "January 5, 1845"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"inputs": "\\ud800"}',
        b"\xff\xfe",
        b'{"inputs": "\\u0000\\u001b"}',
        b"[" * 1500,
        b'{"inputs": "x", "beam": 1e400}',
    ],
)
@pytest.mark.parametrize("path", ["predict", "trace"])
def test_rubbish_is_never_a_fault_of_ours(client: TestClient, path: str, body: bytes) -> None:
    response = client.post(f"/api/{path}", content=body, headers={"content-type": "application/json"})
    assert response.status_code in {200, 400, 422}
    if response.status_code == 200:
        assert "error" in response.json()["answers"][0]


def test_no_answer_names_a_path_and_every_answer_is_guarded(client: TestClient) -> None:
    from pathlib import Path

    root = str(Path(seq2see.__file__).parent)
    for path in ("/", "/api/models", "/api/openapi.json", "/metrics", "/main.js", "/no/such", "/../app.py"):
        response = client.get(path)
        assert root not in response.text
        assert "script-src 'self'" in response.headers["content-security-policy"]
        assert "unsafe-inline" not in response.headers["content-security-policy"]
        assert "access-control-allow-origin" not in response.headers
    assert client.get("/../app.py").status_code == 404


def test_metrics_count(client: TestClient) -> None:
    client.post("/api/predict", json={"inputs": "1845-01-05"})
    text = client.get("/metrics").text
    counts = dict(re.findall(r"^(seq2see_\S+) (\S+)$", text, re.MULTILINE))
    assert int(counts['seq2see_requests_total{path="/api/predict",status="200"}']) >= 1
    assert int(counts['seq2see_inputs_total{result="answered"}']) >= 1
    assert counts["seq2see_queue_length"] == "0"


# --- the worker ----------------------------------------------------------------------------------------


def test_what_waits_is_done_together_and_each_gets_its_own() -> None:
    calls: list[list[int]] = []
    release = threading.Event()

    def work(items: list[int]) -> list[int]:
        release.wait(10)
        calls.append(items)
        return [item * 10 for item in items]

    async def scenario() -> list[list[int]]:
        batcher = Batcher(Limits(queue=8, batch=4))
        batcher.start()
        first = asyncio.create_task(batcher.do("a", [0], work))
        await asyncio.sleep(0.05)
        rest = [asyncio.create_task(batcher.do("a", [n], work)) for n in range(1, 6)]
        other = asyncio.create_task(batcher.do("b", [9], work))
        await asyncio.sleep(0.05)
        release.set()
        results = await asyncio.gather(first, *rest, other)
        await batcher.stop()
        return results

    assert asyncio.run(scenario()) == [[0], [10], [20], [30], [40], [50], [90]]
    assert calls == [[0], [1, 2, 3, 4], [5], [9]]


def test_a_full_queue_a_fault_and_a_slow_answer() -> None:
    release = threading.Event()

    def work(items: list[str]) -> list[str]:
        release.wait(10)
        if "bad" in items:
            raise UserError("bad")
        return items

    async def scenario() -> None:
        batcher = Batcher(Limits(queue=2, seconds=5))
        batcher.start()
        tasks = [asyncio.create_task(batcher.do("a", ["first"], work))]
        await asyncio.sleep(0.05)
        tasks += [asyncio.create_task(batcher.do("a", [item], work)) for item in ("bad", "good")]
        await asyncio.sleep(0.05)
        with pytest.raises(Busy):
            await batcher.do("a", ["too many"], work)
        release.set()
        first, bad, good = await asyncio.gather(*tasks, return_exceptions=True)
        assert (first, str(bad), good) == (["first"], "bad", ["good"])
        await batcher.stop()

        release.clear()
        hurried = Batcher(Limits(seconds=0.05))
        hurried.start()
        with pytest.raises(TimeoutError):
            await hurried.do("a", ["slow"], work)
        release.set()
        await hurried.stop()

    asyncio.run(scenario())


def test_a_taken_port_is_a_users_error() -> None:
    with listen("127.0.0.1", 0) as taken:
        taken.listen()
        with pytest.raises(UserError, match="choose another with --port"):
            listen("127.0.0.1", taken.getsockname()[1])


def test_terminated_under_load_it_finishes_what_it_took() -> None:
    """Every request that was taken is answered, each with its own date; then nobody listens and the process ends."""
    with running("seq2see", "serve", "--port", "0") as server:

        def terminate() -> None:
            server.process.send_signal(signal.SIGTERM)

        tally = besiege(ours(server.port), dates(500), clients=40, seconds=2, event=terminate)
        said, _ = server.process.communicate(timeout=60)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", server.port))
    assert server.process.returncode in {0, -signal.SIGTERM}
    assert set(tally.statuses) == {200}
    assert (tally.wrong, tally.cut) == (0, 0)
    assert f"Stopped: {tally.answered:,} requests accepted, {tally.answered:,} answered" in said
    assert "Traceback" not in said
    assert "ERROR" not in said


def test_more_than_the_queue_takes_is_told_to_come_back(model: Seq2Seq) -> None:
    """A crowd before a short queue: refusals say when to come back, what is answered is right, nothing fails."""
    app = create_app({"dates": model}, Limits(queue=4))
    listener = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        wait_for(listener.getsockname()[1])
        tally = besiege(ours(listener.getsockname()[1], inputs=20), dates(500), clients=40, seconds=1)
    finally:
        server.should_exit = True
        thread.join()
    assert set(tally.statuses) == {200, 429}
    assert (tally.wrong, tally.unpromising, tally.cut, tally.untaken) == (0, 0, 0, 0)


def test_without_probabilities_only_the_texts_are_told(client: TestClient) -> None:
    body = {"inputs": "1845-01-05", "probabilities": False}
    (answer,) = client.post("/api/predict", json=body).json()["answers"]
    assert answer == {"input": "1845-01-05", "output": "January 5, 1845", "finished": True}
    body["n_best"] = 2
    (answer,) = client.post("/api/predict", json=body).json()["answers"]
    assert set(answer) == {"input", "output", "finished", "score", "alternatives"}


# --- under fire ----------------------------------------------------------------------------------------


def test_an_answer_says_whether_it_came_to_its_end(client: TestClient) -> None:
    body = {"inputs": "1845-01-05", "max_length": 3, "length_penalty": 1.0, "beam": 2}
    (answer,) = client.post("/api/predict", json=body).json()["answers"]
    assert (answer["output"], answer["finished"]) == ("Jan", False)


def test_a_request_for_too_much_work_is_refused_before_it_begins(model: Seq2Seq) -> None:
    with TestClient(create_app({"dates": model}, Limits(work=1e8))) as client:
        body = {"inputs": ["1845-01-05"] * 256, "beam": 16, "n_best": 16, "align": True}
        response = client.post("/api/predict", json=body)
        assert response.status_code == 422
        assert "multiplications" in error_of(response)


def test_the_size_of_a_trace_is_known_before_it_is_made(model: Seq2Seq) -> None:
    with TestClient(create_app({"dates": model}, Limits(answer=200_000))) as client:
        response = client.post("/api/trace", json={"input": "1845-01-05"})
        assert response.status_code == 422
        assert "request fewer values" in error_of(response)
        names = {"input": "1845-01-05", "names": ["*.weights"]}
        assert len(client.post("/api/trace", json=names).content) < 200_000
    with TestClient(create_app({"dates": model}, Limits(numbers=1000))) as client:
        assert "shorter text" in error_of(client.post("/api/trace", json={"input": "1845-01-05"}))


def test_a_number_that_json_lacks_is_null() -> None:
    broken = seq2see.load("dates", engine="torch")
    for parameter in broken.transformer.parameters():
        parameter.data.fill_(float("nan"))
    with TestClient(create_app({"dates": broken})) as client:
        for path, body in (("predict", {"inputs": "1845-01-05"}), ("trace", {"input": "1845-01-05"})):
            response = client.post(f"/api/{path}", json=body)
            assert b"NaN" not in response.content
            response.json()


def test_the_command_says_who_can_reach_the_server_and_passes_its_options_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    begun: list[Any] = []
    monkeypatch.delenv("SEQ2SEE_TOKEN", raising=False)
    monkeypatch.setattr(typer, "launch", begun.append)

    def run(
        models: dict[str, Seq2Seq], host: str, port: int, ready: Any, limits: Limits, ended: Any, *more: Any
    ) -> None:
        begun.append((list(models), host, port, limits, *more))
        ready("http://there/")
        ended(1234, 1233)

    monkeypatch.setattr("seq2see.serve.server.serve", run)

    def said(*options: str) -> list[str]:
        begun.clear()
        done = CliRunner().invoke(app, ["serve", *options])
        return [str(done.exception)] if done.exception else done.stderr.splitlines()

    serving, stopped = (
        "Serving dates at http://there/ (Ctrl-C ends it)",
        "Stopped: 1,234 requests accepted, 1,233 answered.",
    )
    assert said() == [f"seq2see: {line}" for line in (serving, stopped)]
    assert begun == [(["dates"], "127.0.0.1", 8000, Limits(), None, None, None)]
    careful = "Careful: other machines can reach this server, and it requires"
    assert said("--host", "0.0.0.0", "--port", "0", "--proxy", "10.0.0.1", "--open")[1].endswith(f"{careful} no token.")
    assert begun == [(["dates"], "0.0.0.0", 0, Limits(), None, None, "10.0.0.1"), "http://there/"]
    (path := tmp_path / "token").write_text("a" * 8 + "\n")
    assert said("--host", "0.0.0.0", "--token-file", str(path))[1].endswith(
        f"{careful} a token, which HTTP sends unencrypted."
    )
    assert begun[0][4] == "aaaaaaaa"
    monkeypatch.setenv("SEQ2SEE_TOKEN", "b" * 1000)
    assert len(said("--access-log", "--token-file", str(path))) == 2
    assert begun[0][4:6] == ("aaaaaaaa", complain)
    assert len(said()) == 2
    assert begun[0][4] == "b" * 1000
    for wrong in ("c" * 7, "c" * 1001, "two words"):
        monkeypatch.setenv("SEQ2SEE_TOKEN", wrong)
        assert "SEQ2SEE_TOKEN contains no token: 8 to 1,000" in said()[0]
    path.write_text("é" * 9)
    assert f"{path} contains no token" in said("--token-file", str(path))[0]
    monkeypatch.delenv("SEQ2SEE_TOKEN")
    assert said("--model", "dates", "--model", "dates") == ["Two models are called 'dates': rename one of the folders."]


def test_a_token_opens_the_server(model: Seq2Seq) -> None:
    lines: list[str] = []
    app = create_app({"dates": model}, token="let-me-in", log=lines.append)
    with TestClient(app) as client:
        assert client.get("/healthz").status_code == 200
        assert client.get("/api/models").status_code == 401
        assert client.get("/", headers={"authorization": "Bearer let-me-out"}).status_code == 401
        right = {"authorization": "Bearer let-me-in"}
        for other in ("Bearer let-me-out", "Bearer let-me-in"):  # two headers: nobody knows which one counts
            for both in ([other, right["authorization"]], [right["authorization"], other]):
                twice = [("authorization", one) for one in both]
                assert client.get("/api/models", headers=twice).status_code == 401
        assert client.post("/api/predict", json={"inputs": "1845-01-05"}, headers=right).status_code == 200
        client.get("/%0aforged%1b[31m", headers=right)
    assert [line.split(" ms")[0].rsplit(" ", 2)[1] for line in lines] == [
        *["200", "401", "401"],
        *["401"] * 4,
        *["200", "404"],
    ]
    assert not any("\n" in line or "\x1b" in line or "let-me" in line for line in lines)


def test_a_request_names_one_server(model: Seq2Seq) -> None:
    with TestClient(create_app({"dates": model}, hosts=hosts_of("127.0.0.1"))) as client:
        for hosts in (["evil.example"], ["localhost", "evil.example"], ["localhost@evil.example"], ["127.0.0.2"]):
            response = client.get("/healthz", headers=[("host", host) for host in hosts])
            assert response.status_code == 400
            assert "error" in response.json()
        for host in ("localhost", "LOCALHOST:80", "127.0.0.1:8000", "[::1]:1"):
            assert client.get("/healthz", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("127.0.0.1", True), ("127.0.0.2", True), ("127.1", True), ("LOCALHOST", True), ("::1", True),
        ("0.0.0.0", False), ("0", False), ("::", False), ("192.0.2.1", False), ("example.org", False),
    ],
)  # fmt: skip
def test_every_address_of_loopback_is_guarded(host: str, own: bool) -> None:
    assert is_loopback(host) is own
    assert ("*" not in hosts_of(host)) is own


def test_clients_take_turns_and_a_costly_job_gives_way() -> None:
    calls: list[list[str]] = []
    release = threading.Event()

    def work(items: list[str]) -> list[str]:
        release.wait(10)
        calls.append(items)
        return items

    async def scenario() -> None:
        batcher = Batcher(Limits(piece=2.0, queue=4))
        batcher.start()
        big, small = Client("big"), Client("small")
        first = asyncio.create_task(batcher.do("k", ["a1", "a2", "a3", "a4", "a5"], work, big, [1.0] * 5))
        await asyncio.sleep(0.05)
        rest = [asyncio.create_task(batcher.do("other", [f"b{n}"], work, Client("big"))) for n in range(3)]
        await asyncio.sleep(0.05)
        # The queue is full, and `big` holds all of it: its last request gives way.
        mine = asyncio.create_task(batcher.do("k", ["s"], work, small, [1.0]))
        await asyncio.sleep(0.05)
        with pytest.raises(Busy):
            await rest[-1]
        with pytest.raises(Busy):
            await batcher.do("k", ["b9"], work, Client("big"))
        release.set()
        assert await mine == ["s"]
        assert await first == ["a1", "a2", "a3", "a4", "a5"]
        await asyncio.gather(*rest[:-1])
        await batcher.stop()

    asyncio.run(scenario())
    assert calls[0] == ["a1", "a2"]
    assert calls[1][0] == "s"  # it waited for one piece only, not for the whole job


def test_the_work_of_a_client_that_left_is_dropped() -> None:
    calls: list[list[int]] = []
    began, release = threading.Event(), threading.Event()

    def work(items: list[int]) -> list[int]:
        calls.append(items)
        began.set()
        release.wait(10)
        return items

    async def scenario() -> None:
        batcher, client = Batcher(Limits(piece=1.0)), Client("one")
        batcher.start()
        job = asyncio.create_task(batcher.do("k", [1, 2, 3], work, client, [1.0] * 3))
        await asyncio.to_thread(began.wait, 10)
        client.leave()
        with pytest.raises(Left):
            await job
        release.set()
        await batcher.stop()

    asyncio.run(scenario())
    assert calls == [[1]]


@contextmanager
def served(model: Seq2Seq, limits: Limits) -> Iterator[tuple[int, Server]]:
    """A server, and its port."""
    app, listener = create_app({"dates": model}, limits), listen("127.0.0.1", 0)
    server = Server(configured(app, limits), app.state.metrics)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        wait_for(listener.getsockname()[1])
        yield listener.getsockname()[1], server
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture
def guarded(model: Seq2Seq) -> Iterator[tuple[int, Server]]:
    """A server with short patience, and its port."""
    with served(model, Limits(head=4000, head_seconds=0.5, idle_seconds=0.5, connections=8)) as found:
        yield found


def all_of(connection: socket.socket) -> bytes:
    """Read until the server closes."""
    connection.settimeout(20)
    data = b""
    try:
        while part := connection.recv(65536):
            data += part
    except ConnectionError:
        pass
    return data


def test_a_head_may_grow_to_its_limit(model: Seq2Seq) -> None:
    with served(model, Limits(head=4000)) as (port, server):
        for more, end, status in ((4000, b"\r\nConnection: close\r\n\r\n", b" 200 "), (4001, b"", b" 431 ")):
            with socket.create_connection(("127.0.0.1", port)) as one:
                one.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ")
                while not any(
                    getattr(c, "scope", None) for c in list(server.server_state.connections)
                ):  # the head has begun
                    time.sleep(0.01)
                one.sendall(b"a" * more)
                while any(isinstance(c, Connection) and c.head < more for c in list(server.server_state.connections)):
                    time.sleep(0.01)
                one.sendall(end)
                assert status in all_of(one).partition(b"\r\n")[0]


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nHost: local", b"\r\n"])
def test_a_silent_connection_is_closed(guarded: tuple[int, Server], sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", guarded[0])) as one:
        one.sendall(sent)
        assert b" 408 " in all_of(one)


def test_a_crowd_of_silent_connections_keeps_nobody_out(guarded: tuple[int, Server]) -> None:
    crowd = [socket.create_connection(("127.0.0.1", guarded[0])) for _ in range(20)]
    assert httpx.get(f"http://127.0.0.1:{guarded[0]}/healthz").status_code == 200
    for one in crowd:
        one.close()


def test_what_is_not_http_is_refused_in_json(guarded: tuple[int, Server]) -> None:
    with socket.create_connection(("127.0.0.1", guarded[0])) as one:
        one.sendall(b"\x16\x03\x01\x02")
        head, _, body = all_of(one).partition(b"\r\n\r\n")
    assert b" 400 " in head
    assert b"content-security-policy" in head
    assert b'{"error":' in body


def test_the_connection_tells_the_worker_that_its_client_left(
    guarded: tuple[int, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    left = threading.Event()
    monkeypatch.setattr(Client, "leave", lambda self: left.set())
    body = b'{"inputs": ["' + b"1" * 20
    head = (
        b"POST /api/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", guarded[0])) as one:
        one.sendall(head + body)
        while not any(isinstance(c, Connection) and c.cycle for c in list(guarded[1].server_state.connections)):
            pass
    assert left.wait(10)
    while not (counted := guarded[1].metrics.requests):
        pass
    assert list(counted) == [("/api/predict", 499)]  # no fault of the server


# --- work that a stranger sends ----------------------------------------------------------------------------


def test_work_stops_when_its_time_is_over_or_its_client_has_left() -> None:
    """The thread is free again at once, so that others are answered and the server can end."""
    ended = threading.Event()

    def endless(items: list[str]) -> list[str]:
        try:
            while True:
                go_on()
        finally:
            ended.set()

    async def scenario() -> None:
        batcher = Batcher(Limits(seconds=0.1))
        batcher.start()
        with pytest.raises(TimeoutError):
            await batcher.do("a", ["late"], endless)
        assert await batcher.do("b", ["next"], lambda items: items) == ["next"]
        assert ended.is_set()
        ended.clear()
        client = Client()
        waiting = asyncio.create_task(batcher.do("a", ["left"], endless, client))
        other = asyncio.create_task(batcher.do("a", ["left, too"], endless, Client()))
        await asyncio.sleep(0.02)
        client.leave()
        with pytest.raises(Left):
            await waiting
        with pytest.raises(TimeoutError):
            await other
        await batcher.stop()
        assert ended.is_set()

    asyncio.run(scenario())


def test_a_pattern_that_needs_too_many_states_is_refused(client: TestClient) -> None:
    for pattern in ("((((a{1,50}){1,50}){1,50}){1,50})", "a{99999}", "(a?){0,900}"):
        refused = client.post("/api/predict", json={"inputs": ["1845-01-05"], "pattern": pattern})
        assert refused.status_code == 422
        assert "write a simpler one" in error_of(refused)
    answer = client.post("/api/predict", json={"inputs": ["1845-01-05"], "pattern": "June [0-9]+, 1[0-9]{3}"})
    assert re.fullmatch("June [0-9]+, 1[0-9]{3}", answer.json()["answers"][0]["output"])


def test_documents_are_read_beside_the_loop_and_stop_with_their_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a document is read for ever, the server answers others; the reader stops when the request's time is over.

    The model is a new one. Other tests have the network of the shared model, so each of its answers looks for edits
    first, in hundreds of calls of torch that each wait for the busy reader.
    """
    model = seq2see.load("dates")
    ended = threading.Event()

    def endless(text: str, format: str = "text") -> None:
        try:
            while True:
                go_on()
        finally:
            ended.set()

    monkeypatch.setattr("seq2see.answering.translation.read", endless)
    with TestClient(create_app({"dates": model}, Limits(seconds=3.0))) as client:
        for path, body in (("/api/predict", {"inputs": ["a" * 3000], "format": "html"}), ("/api/text", {"input": "a"})):
            ended.clear()
            asked: list[httpx.Response] = []
            waiting = threading.Thread(
                target=lambda path=path, body=body, asked=asked: asked.append(client.post(path, json=body))
            )
            waiting.start()
            assert client.get("/healthz").status_code == 200
            assert client.post("/api/predict", json={"inputs": "1845-01-05"}).status_code == 200
            assert not asked
            waiting.join()
            assert asked[0].status_code == 503
            assert "took longer than 3 s" in error_of(asked[0])
            assert ended.wait(30)


def test_html_of_too_many_tags_is_refused_before_it_is_read(model: Seq2Seq, monkeypatch: pytest.MonkeyPatch) -> None:
    def unread(text: str, format: str = "text") -> None:
        raise AssertionError("it was read")

    most = Limits().tags
    with TestClient(create_app({"dates": model})) as client:
        few = client.post("/api/predict", json={"inputs": ["<b>" * 10] * 9, "format": "html"})
        assert few.status_code == 200
        monkeypatch.setattr("seq2see.answering.translation.read", unread)
        nine = client.post("/api/predict", json={"inputs": ["<b>" * 33_000] * 9, "format": "html"})
        one = client.post("/api/text", json={"input": "<b>" * (most + 1), "format": "html"})
    for refused, tags in ((nine, 297_000), (one, most + 1)):
        assert refused.status_code == 422
        assert error_of(refused) == f"The request has {tags:,} tags: it may have at most {most:,}. Send it in parts."


@pytest.mark.parametrize(("limits", "sends", "status"), [
    (Limits(body=10), [{"body": b"x" * 11, "more_body": True}], 413),
    (Limits(seconds=0.01), [], 408),
])  # fmt: skip
def test_a_connection_whose_request_is_not_read_to_its_end_is_closed(
    model: Seq2Seq, limits: Limits, sends: list[dict[str, Any]], status: int
) -> None:
    """What is left of the request would be taken for the next one."""
    said: list[Any] = []

    async def receive() -> Any:
        if not sends:
            await asyncio.sleep(60)
        return {"type": "http.request", **sends.pop()}

    async def send(message: Any) -> None:
        said.append(message)

    scope = {"type": "http", "method": "POST", "path": "/api/predict", "query_string": b"", "client": ("127.0.0.1", 1),
             "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")]}  # fmt: skip
    asyncio.run(create_app({"dates": model}, limits)(scope, receive, send))
    assert said[0]["status"] == status
    assert (b"connection", b"close") in said[0]["headers"]


def test_other_names_do_not_lead_to_a_server_on_loopback(model: Seq2Seq) -> None:
    with TestClient(create_app({"dates": model}, hosts=["127.0.0.1"])) as strict:
        assert strict.get("/healthz", headers={"host": "evil.example"}).status_code == 400
        assert strict.get("/healthz", headers={"host": "127.0.0.1:8000"}).status_code == 200


@pytest.mark.parametrize(
    ("name", "asked", "message"),
    [
        ("human-dates", {"inputs": "31 February 2020", "glossary": {"x": "y"}}, "a day that does not exist"),
        ("human-dates", {"inputs": "31 February 2020"}, "a day that does not exist"),
        (
            "dates",
            {"inputs": "1845-01-05", "glossary": {"x": "y"}, "min_confidence": 0.5},
            "the confidence of this model is not fitted",
        ),
        ("dates", {"inputs": "1845-01-05", "order": "day"}, "`order` is for dates that people write"),
        ("dates", {"inputs": "1845-01-05", "prefix": "J", "glossary": {"x": "y"}}, "leave one out"),
    ],
)
def test_a_request_is_refused_as_python_refuses_it(name: str, asked: dict[str, Any], message: str) -> None:
    model = seq2see.load(name)
    options = {key: value for key, value in asked.items() if key != "inputs"}
    try:
        [answer] = model.answers([asked["inputs"]], **options)
        refused = answer.error
    except UserError as error:
        refused = str(error)
    assert message in str(refused)
    with TestClient(create_app({name: model})) as client:
        response = client.post("/api/predict", json=asked)
    if response.status_code == 200:
        assert response.json()["answers"] == [{"input": asked["inputs"], "error": refused}]
    else:
        assert (response.status_code, error_of(response)) == (422, refused)


def test_an_endless_head_is_refused(guarded: tuple[int, Server]) -> None:
    with socket.create_connection(("127.0.0.1", guarded[0])) as one:
        one.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ")
        with pytest.raises(OSError):  # noqa: PT011 - a reset or a broken pipe
            one.sendall(b"a" * 100_000_000)


async def no_app(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("the request reached the application")


def test_a_client_has_its_time_to_read_from_when_it_stops_reading() -> None:
    """The time that the answer took does not count."""
    config, closed = configured(no_app, Limits(seconds=30)), list[int]()
    clock = iter([0.0, 100.0])  # when it connects, and when it stops reading
    loop, transport = (SimpleNamespace(time=lambda: next(clock)), SimpleNamespace(abort=lambda: closed.append(1)))
    config.load()
    connection: Any = config.http_protocol_class(config, ServerState(), {}, loop)  # type: ignore[call-arg]
    connection.transport, connection.flow = transport, FlowControl(transport)  # type: ignore[arg-type]
    connection.cycle = SimpleNamespace(response_complete=False)
    connection.look_after(1000.0)  # it is being answered, however long that takes
    connection.pause_writing()
    connection.look_after(130.0)
    assert not closed
    connection.look_after(130.1)
    assert closed


def test_an_ending_server_accepts_nobody_while_its_clients_are_asked_to_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    metrics = Metrics()
    ending = Server(configured(FastAPI(), Limits()), metrics, ended=lambda *counts: told.append(f"ended {counts}"))

    class Listener:
        def close(self) -> None:
            told.append("closed")

    async def wait(seconds: float) -> None:
        told.append(f"waited, ending {metrics.ending}")

    async def rest(self: object, sockets: object = None) -> None:
        told.append("rest")

    ending.servers = [Listener(), Listener()]  # type: ignore[list-item]
    ending.server_state.connections = {object()}  # type: ignore[arg-type]
    monkeypatch.setattr(asyncio, "sleep", wait)
    monkeypatch.setattr(uvicorn.Server, "shutdown", rest)
    asyncio.run(ending.shutdown())
    assert told == ["closed", "closed", "waited, ending True", "rest", "ended (0, 0)"]
    told.clear()
    ending.server_state.connections = set()
    asyncio.run(ending.shutdown())
    assert told == ["closed", "closed", "rest", "ended (0, 0)"]  # nobody is there to wait for
