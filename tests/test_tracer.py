"""What is traced is what the network says, whoever answered first; the last trace is remembered."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import seq2see
from conftest import several_models
from seq2see.decoding.ctranslate2_engine import CTranslate2Engine
from seq2see.errors import UserError
from seq2see.evaluation.confidence import Confidence, Measured
from seq2see.evaluation.familiar import Familiar
from seq2see.seq2seq import Seq2Seq
from seq2see.serve.forms import HeadName, Patch, TraceRequest
from seq2see.serve.traces import Tracer, describe_trace


@pytest.fixture(scope="module")
def model() -> Seq2Seq:
    return seq2see.load("dates")


def asked(text: str, **more: Any) -> TraceRequest:
    return TraceRequest(input=text, **more)


@pytest.fixture(scope="module")
def tracer(model: Seq2Seq) -> Tracer:
    return Tracer(model)


def test_the_values_are_those_of_a_trace(tracer: Tracer, model: Seq2Seq) -> None:
    found, expected = tracer.trace(asked("1845-01-05")), model.trace("1845-01-05")
    assert found.names == expected.names
    assert found.output_ids == expected.output_ids
    for name in expected.names:
        torch.testing.assert_close(found[name], expected[name], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("cut", "put"), [(16, []), (7, []), (3, [9, 9, 9]), (0, [2])], ids=["right", "short", "wrong", "empty"]
)
def test_a_quick_answer_is_held_against_the_numbers(
    model: Seq2Seq, monkeypatch: pytest.MonkeyPatch, cut: int, put: list[int]
) -> None:
    right = model.trace("1845-01-05").output_ids
    drafts = []

    def ids(self: CTranslate2Engine, sources: list[list[int]], rules: object = None) -> list[list[int]]:
        drafts.append(sources)
        return [[*right[:cut], *put]]

    monkeypatch.setattr(CTranslate2Engine, "ids", ids)
    found = Tracer(model).trace(asked("1845-01-05"))
    assert drafts
    assert found.output_ids == right == found["logits"].argmax(-1).tolist()


def test_more_of_the_last_trace_is_not_traced_again(tracer: Tracer) -> None:
    last = tracer.trace(asked("1845-01-05"))
    assert tracer.trace(asked("1845-01-05")) is last
    assert tracer.trace(asked("1845-01-05", prefix=last.output_ids)) is last  # as the page asks for more
    off = [HeadName(attention="cross", layer=1, head=3)]
    without = tracer.trace(asked("1845-01-05", prefix=last.output_ids, muted=off))
    assert without is not last
    assert without["decoder.layers.1.cross_attention.z"][:, 3].abs().max() == 0
    forced = tracer.trace(asked("1845-01-05", prefix=last.output_ids[:1]))
    assert forced is not without
    assert forced.output == last.output
    assert tracer.trace(asked("1845-01-06")).output == "January 6, 1845"


def test_threads_are_left_as_they_were(tracer: Tracer) -> None:
    before = torch.get_num_threads()
    tracer.trace(asked("1999-12-31"))
    assert torch.get_num_threads() == before


def test_a_trace_of_a_member_says_what_all_members_answer() -> None:
    model = several_models()
    tracer, together = Tracer(model), model.predict(["bcd"])[0]
    for member in (0, 1):
        told = describe_trace(tracer, TraceRequest(input="bcd", names=[], member=member))
        assert told["output"] == model.trace("bcd", member=member).output
        assert told["ensemble"] == {"member": member, "members": 3, "traceable": 2, "output": together}
    head = HeadName(attention="cross", layer=0, head=1)
    edited = describe_trace(tracer, TraceRequest(input="bcd", names=[], member=1, muted=[head]))
    assert edited["ensemble"] == {"member": 1, "members": 3, "traceable": 2}
    # what is taken over is of the same member
    patch = Patch(input="ee", name="decoder.out")
    taken = describe_trace(tracer, TraceRequest(input="ee", names=[], member=1, patches=[patch]))
    assert taken["output"] == model.trace("ee", member=1).output
    for member, message in ((2, "Member 2 reads and writes from right to left"), (3, "members 0 to 2")):
        with pytest.raises(UserError, match=message):
            describe_trace(tracer, TraceRequest(input="bcd", names=[], member=member))
    plain = Tracer(seq2see.load("dates"))
    with pytest.raises(UserError, match="this model is no ensemble"):
        describe_trace(plain, TraceRequest(input="1845-01-05", names=[], member=1))
    assert "ensemble" not in describe_trace(plain, TraceRequest(input="1845-01-05", names=[]))


def test_the_confidence_of_an_ensemble_is_that_of_its_own_answer() -> None:
    model, texts = several_models(), ["bcd", "ee", "bcde"] * 5
    measured = Measured.of([0.9, 0.4], [True, False])
    familiar = Familiar.learn(texts, 50, texts)
    model.confidence = Confidence("exact", 50.0, [0.0, 1, 0, 0, 0, 0], 99, measured, familiar)
    tracer, [answer] = Tracer(model), model.answers(["ee"])
    told = describe_trace(tracer, TraceRequest(input="ee", names=[], member=1))
    assert told["ensemble"]["confidence"] == answer.confidence
    assert answer.confidence
    assert "confidence" not in told
    [answer] = model.answers(["j" * 10])
    told = describe_trace(tracer, TraceRequest(input="j" * 10, names=[]))
    assert told["remark"] == answer.remark is not None
    assert "confidence" not in told["ensemble"]


@pytest.mark.parametrize(
    ("more", "times"),
    [
        ({"prefix": [5] * 63}, 1.0),
        ({"beam": 16}, 3.0),
        ({"patches": [Patch(input="1999-12-31", name="encoder.memory")]}, 5.0),
        ({"patches": [Patch(input="1999-12-31", name="encoder.memory")], "beam": 8}, 60.0),
        ({"glossary": {"a": "b"}}, 5.0),
    ],
)
def test_work_is_counted_by_what_will_run(more: dict[str, Any], times: float) -> None:
    """The prefix counts, each path of a beam, and the steps that read all positions again."""
    tracer = Tracer(seq2see.load("dates"))
    plain = tracer.size(TraceRequest(input="1845-01-05", names=[]))
    assert tracer.size(TraceRequest(input="1845-01-05", names=[], **more)) > times * plain
