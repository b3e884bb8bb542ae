"""Every intermediate by name, and what becomes of the answer when one is changed."""

from __future__ import annotations

import math
from functools import cache

import pytest
import torch
from torch import Tensor

import seq2see
from conftest import small_model
from seq2see.config import DecodingConfig
from seq2see.decoding.search import Special, greedy
from seq2see.errors import InputError, UserError
from seq2see.inspection.trace import TakeOver, Trace, mute_head, names_of, record, trace
from seq2see.model.sublayers import Observable
from seq2see.model.transformer import Transformer
from seq2see.page.tree import beam_nodes
from seq2see.storage.folder import Tokenizers
from seq2see.tokenizers.tokenizer import Tokenizer

SOURCE, TARGET = torch.tensor([[1, 2, 3, 4, 5]]), torch.tensor([[6, 7, 8]])
TOKENIZERS = Tokenizers(Tokenizer.characters_of(["abcdefgh"]), Tokenizer.characters_of(["ABCDEFGHIJ"]))


@cache
def model() -> Transformer:
    return small_model(seed=5)


@cache
def dates() -> seq2see.Seq2Seq:
    return seq2see.load("dates")


def same(a: Trace, b: Trace) -> bool:
    return a.names == b.names and all(torch.equal(a[name], b[name]) for name in a.names)


def test_names_are_module_paths_and_roles_in_the_order_of_computation() -> None:
    names = names_of(model())
    assert names[:5] == [f"encoder.embedding.{role}" for role in ("ids", "embedded", "scaled", "positions", "sum")]
    attention = [name for name in names if name.startswith("decoder.layers.2.cross_attention.")]
    roles = ["q", "k", "v", "scores", "scaled", "masked", "weights", "z", "out"]
    assert attention == [f"decoder.layers.2.cross_attention.{role}" for role in roles]
    assert names[-1] == "logits"
    assert len(names) == len(set(names))


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_traced_model_computes_the_same(norm: str) -> None:
    model = small_model(norm=norm)
    plain = model(SOURCE, TARGET)
    with trace(model) as t:
        traced = model(SOURCE, TARGET)
    torch.testing.assert_close(traced, plain, rtol=1e-5, atol=1e-5)
    assert torch.equal(t["logits"], traced)
    assert not t["logits"].requires_grad
    assert traced.requires_grad  # only what is kept is detached: gradients still flow


def test_the_recorder_is_taken_off_again_even_after_an_error() -> None:
    def fail() -> None:
        with trace(model()) as outer:
            with trace(model()) as inner:
                model()(SOURCE, TARGET)
            assert all(m.recorder is outer for m in model().modules() if isinstance(m, Observable))
            assert inner.names
            assert not outer.names
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert all(m.recorder is None for m in model().modules() if isinstance(m, Observable))


def test_an_empty_edit_changes_nothing_bit_for_bit() -> None:
    plain = record(model(), TOKENIZERS, "abc")
    assert same(plain, record(model(), TOKENIZERS, "abc", edit={}))
    assert same(plain, record(model(), TOKENIZERS, "abc", edit={"*": lambda x: x}))
    # A beam would weigh repetitions otherwise. A trace is greedy, edited or not.
    greedily, wide = (DecodingConfig.of(repetition_penalty=2.0, beam=beam) for beam in (1, 4))
    for edit in (None, {"*": lambda x: x}):
        found = (record(small_model(seed=7), TOKENIZERS, "abc", edit=edit, rules=r) for r in (greedily, wide))
        assert same(*found)


def test_traced_output_is_the_untraced_output() -> None:
    special = Special(TOKENIZERS.target.start, TOKENIZERS.target.end, TOKENIZERS.source.pad)
    for text in ("", "a", "abc", "hgfedcba"):
        (hypothesis,) = greedy(model(), [TOKENIZERS.source.encode(text)], special)
        traced = record(model(), TOKENIZERS, text)
        assert traced.output_ids == hypothesis.ids
        assert traced.output == TOKENIZERS.target.decode(hypothesis.ids)
        steps = traced.steps()
        assert [step.log_probability for step in steps] == pytest.approx(hypothesis.log_probabilities, abs=1e-4)
    texts = ["1845-01-05", "9999-12-31", "2024-02-29", "1426-08-10"]
    assert [dates().trace(text).output for text in texts] == dates().predict(texts)


def test_numbers_of_another_run_are_taken_over_where_both_have_a_place() -> None:
    here, there = torch.zeros(2, 4), torch.arange(12.0).reshape(3, 4)

    def memory(**place: int) -> list[list[float]]:
        return TakeOver(there, "encoder.memory", **place)(here.clone()).tolist()

    none, first, second, third = [0.0] * 4, [0.0, 1, 2, 3], [4.0, 5, 6, 7], [8.0, 9, 10, 11]
    assert memory() == [first, second]
    assert memory(row=1) == [none, second]
    assert memory(row=1, from_row=2) == [none, third]
    assert memory(row=0, col=2) == [[0, 0, 2, 0], none]
    assert memory(row=1, col=2, from_row=0) == [none, [0, 0, 2, 0]]
    assert memory(row=2) == memory(row=0, from_row=3) == memory(col=4) == [none, none]
    wide = TakeOver(there[:1, :3], "decoder.layers.0.cross_attention.out")(here.clone())
    assert wide.tolist() == [[0, 1, 2, 0], none]  # a run with fewer rows and columns
    q = TakeOver(torch.ones(3, 2, 4), "decoder.layers.0.cross_attention.q", head=1, row=0)  # (T, H, K)
    assert q(torch.zeros(3, 2, 4)).nonzero().tolist() == [[0, 1, n] for n in range(4)]
    weights = TakeOver(torch.ones(2, 3, 4), "decoder.layers.0.cross_attention.weights", head=1, row=0)  # (H, T, S)
    assert weights(torch.zeros(2, 3, 4)).nonzero().tolist() == [[1, 0, n] for n in range(4)]


def test_the_tree_of_a_beam_holds_its_answers_whatever_it_keeps_of_what_it_has_read() -> None:
    """An edit that may depend on the position makes the search read all prefixes again at each step."""
    model, rules = dates(), DecodingConfig.of(beam=3)
    source = model.tokenizers.source.encode("1845-01-05")
    plain, again = (
        beam_nodes(model.transformer, model.tokenizers, source, rules, edit)
        for edit in ({}, {"encoder.memory": lambda x: x})
    )
    best = model.answers(["1845-01-05"], beam=3, n_best=3)[0]
    for nodes in (plain, again):
        ended = max((node for node in nodes if "score" in node), key=lambda node: node["score"])
        assert (ended["id"], ended["token"], ended["step"]) == (66, "<eos>", len(best.ids) - 1)
        assert ended["log_probability"] == pytest.approx(best.log_probability, abs=1e-4)
        assert ended["score"] == pytest.approx(ended["log_probability"] / rules.divisor(len(best.ids)), abs=1e-4)
        assert [node["step"] for node in nodes if node["parent"] is None] == [0, 0, 0]
        assert all(nodes[node["parent"]]["step"] == node["step"] - 1 for node in nodes if node["step"])
    assert [(node["parent"], node["id"]) for node in plain] == [(node["parent"], node["id"]) for node in again]
    values = [[node["log_probability"] for node in nodes] for nodes in (plain, again)]
    assert values[0] == pytest.approx(values[1], abs=1e-4)


def test_every_query_shares_out_exactly_one() -> None:
    t = dates().trace("1845-01-05")
    for name in t.match("*.weights"):
        torch.testing.assert_close(t[name].sum(-1), torch.ones(t[name].shape[:-1]))
    own = t["decoder.layers.1.self_attention.weights"]
    assert (own.triu(1) == 0).all()
    assert (t["decoder.layers.1.self_attention.masked"].triu(1)[..., 0, 1:] == -math.inf).all()


def test_each_step_says_what_was_chosen_how_surely_and_what_else() -> None:
    t = record(model(), TOKENIZERS, "abc")
    torch.testing.assert_close(t.probabilities, t["logits"].softmax(-1))
    torch.testing.assert_close(t.probabilities.sum(-1), torch.ones(len(t.output_ids)))
    for row, step in zip(t.probabilities, t.steps(top=3), strict=True):
        assert step.probability == pytest.approx(float(row[step.id]))
        assert step.log_probability == pytest.approx(math.log(row[step.id]), abs=1e-5)
        assert step.entropy == pytest.approx(-sum(p * math.log(p) for p in row.tolist() if p), abs=1e-5)
        assert step.top[0] == (step.token, pytest.approx(step.probability))  # greedy takes the likeliest
        assert [share for _, share in step.top] == row.sort(descending=True).values[:3].tolist()


def test_target_leads_the_model_through_another_answer() -> None:
    t = dates().trace("1845-01-05", target="July 5, 1845")
    assert t.output == "July 5, 1845"
    steps = t.steps()
    assert steps[1].token == "u"
    assert steps[1].probability < 0.5 < steps[0].probability  # J is right, u is not
    assert steps[1].top[0][0] == "a"


# --- edits -----------------------------------------------------------------------------------------------


def test_muting_a_head_is_taking_its_columns_out_of_w_o() -> None:
    model = small_model(seed=5)
    muted = record(model, TOKENIZERS, "abcd", edit={"encoder.layers.1.self_attention.z": mute_head(2)})
    plain = record(model, TOKENIZERS, "abcd")
    w_o = model.get_submodule("encoder.layers.1.self_attention.w_o")
    d_v = model.config.d_v
    assert isinstance(w_o, torch.nn.Linear)
    assert d_v is not None
    with torch.no_grad():
        w_o.weight[:, 2 * d_v :] = 0
    cut = record(model, TOKENIZERS, "abcd")
    assert muted.output_ids == cut.output_ids
    torch.testing.assert_close(muted["encoder.memory"], cut["encoder.memory"])
    assert not torch.allclose(muted["encoder.memory"], plain["encoder.memory"])


def test_several_heads_and_layers_by_one_glob() -> None:
    t = record(model(), TOKENIZERS, "abc", edit={"decoder.layers.*.cross_attention.z": mute_head(0, 2)})
    for layer in range(3):
        z = t[f"decoder.layers.{layer}.cross_attention.z"]
        assert (z[..., [0, 2], :] == 0).all()
        assert (z[..., 1, :] != 0).all()


def test_a_value_is_replaced_by_a_tensor_and_all_after_it_follows() -> None:
    other = record(model(), TOKENIZERS, "hgf", target="ABC")
    plain = record(model(), TOKENIZERS, "abc", target="ABC")
    patched = record(model(), TOKENIZERS, "abc", target="ABC", edit={"encoder.memory": other["encoder.memory"]})
    assert torch.equal(patched["encoder.layers.0.self_attention.q"], plain["encoder.layers.0.self_attention.q"])
    torch.testing.assert_close(patched["logits"], other["logits"])  # the decoder sees nothing but the memory
    free = record(model(), TOKENIZERS, "abc", edit={"encoder.memory": other["encoder.memory"]})
    assert free.output == record(model(), TOKENIZERS, "hgf").output


def test_an_edit_sees_the_same_values_in_answering_and_in_the_trace() -> None:
    shapes = []

    def first_to_zero(x: Tensor) -> Tensor:
        shapes.append(tuple(x.shape))
        x[0] = 0  # the first position: there is no batch dimension
        return x

    t = dates().trace("1845-01-05", edit={"encoder.memory": first_to_zero})
    assert t["logits"].argmax(-1).tolist() == t.output_ids
    assert set(shapes) == {(12, 16)}
    shapes.clear()
    t = dates().trace("1845-01-05", edit={"decoder.layers.1.cross_attention.z": first_to_zero})
    assert t["logits"].argmax(-1).tolist() == t.output_ids
    assert [shape[0] for shape in shapes] == [*range(1, len(t.output_ids) + 1), len(t.output_ids)]


def test_an_edit_that_is_another_each_time_is_refused() -> None:
    def last_to_zero(z: Tensor) -> Tensor:
        z[-1] = 0
        return z

    edit = {"decoder.layers.1.cross_attention.z": last_to_zero}
    with pytest.raises(UserError, match="it would choose other tokens, first at step 0"):
        dates().trace("1845-01-05", edit=edit)
    assert dates().trace("1845-01-05", target="May 5, 1845", edit=edit).output == "May 5, 1845"


def test_arrays_and_numbers_replace_too() -> None:
    name = "encoder.layers.0.self_attention.z"
    muted = record(model(), TOKENIZERS, "abc", edit={name: mute_head(0, 1, 2)})
    assert same(muted, record(model(), TOKENIZERS, "abc", edit={name: 0}))
    assert same(muted, record(model(), TOKENIZERS, "abc", edit={name: muted[name].numpy()}))


def test_an_edit_in_place_leaves_the_values_before_it_alone() -> None:
    name = "encoder.layers.0.self_attention"
    plain = record(model(), TOKENIZERS, "abc", target="A")
    t = record(model(), TOKENIZERS, "abc", target="A", edit={f"{name}.masked": lambda x: x.fill_(0)})
    assert torch.equal(t[f"{name}.scaled"], plain[f"{name}.scaled"])  # one and the same tensor without a mask
    torch.testing.assert_close(t[f"{name}.weights"], torch.full((3, 5, 5), 1 / 5))


def test_training_mode_is_restored_and_dropout_is_off() -> None:
    model = small_model(dropout=0.5).train()
    first, second = (record(model, TOKENIZERS, "abc") for _ in range(2))
    assert same(first, second)
    assert model.training


# --- what cannot be --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"encoder.memry": mute_head(0)}, "No value is named 'encoder.memry'. Did you mean 'encoder.memory'?"),
        ({"probabilities": mute_head(0)}, "No value is named 'probabilities'"),
        ({"encoder.layers.7.*.z": mute_head(0)}, r"No value is named 'encoder.layers.7.\*.z'"),
        ({"encoder.layers.0.self_attention.z": mute_head(3)}, "no head 3 to mute: heads are 0 to 2."),
        ({"encoder.layers.0.self_attention.z": mute_head(-1)}, "no head -1 to mute: heads are 0 to 2."),
        ({"encoder.memory": torch.zeros(4, 12)}, r"edit of 'encoder.memory' does not fit its value, .* \(5, 12\)"),
        ({"encoder.memory": lambda x: None}, "it returned a NoneType, not a tensor"),
        ({"decoder.out": lambda x: x[:, 3]}, "with `target` all positions are there at once"),
        ({"encoder.memory": "nothing"}, "does not fit its value"),
    ],
)
def test_edits_that_do_not_fit_are_explained(edit: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        record(model(), TOKENIZERS, "abc", edit=edit)  # type: ignore[arg-type]
    assert all(m.recorder is None for m in model().modules() if isinstance(m, Observable))


def test_unknown_names_are_suggested() -> None:
    t = record(model(), TOKENIZERS, "abc")
    with pytest.raises(UserError, match=r"Did you mean 'encoder.layers.0.self_attention.weights'"):
        t["encoder.layers.0.self_attention.weight"]
    with pytest.raises(
        UserError,
        match=r"Names begin with encoder, decoder, logits, probabilities. Layers are encoder.layers.0 to 1 and dec",
    ):
        t["?"]
    with pytest.raises(UserError, match=r"No value is named 'encoder.\*.weihgts'"):
        t.match("encoder.*.weihgts")
    assert t.match("encoder.*.weights") == [f"encoder.layers.{n}.self_attention.weights" for n in range(2)]


def test_texts_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="'x'"):
        record(model(), TOKENIZERS, "abx")
    with pytest.raises(InputError, match="'a'"):
        record(model(), TOKENIZERS, "abc", target="a")
    with pytest.raises(InputError, match="The text has 42 tokens, but this model takes at most 40"):
        record(model(), TOKENIZERS, "a" * 40)
    with pytest.raises(InputError, match="The target has 41 tokens"):
        record(model(), TOKENIZERS, "a", target="A" * 40)
