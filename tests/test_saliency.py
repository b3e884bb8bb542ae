"""What each layer would say, and what each token read is worth to each token written."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from conftest import small_model, sweep
from seq2see.errors import UserError
from seq2see.inspection.attribution import SOURCE, TARGET, logit_lens, saliency
from seq2see.inspection.trace import Trace, mute_head, trace_text
from seq2see.storage.folder import Tokenizers
from seq2see.tokenizers.tokenizer import Tokenizer

TEXT, TARGET_TEXT = "bad cab", "abcba"


def traced(norm: str = "post", edit: dict[str, object] | None = None) -> Trace:
    letters = Tokenizer.characters(["<pad>", "<sos>", "<eos>", "<unk>", *"abcd "])
    tokenizers = Tokenizers(letters, letters)
    model = small_model(
        source_vocabulary=tokenizers.source.size, target_vocabulary=tokenizers.target.size, norm=norm
    ).double()
    return trace_text(model, tokenizers, TEXT, TARGET_TEXT, edit)  # type: ignore[arg-type]


def log_probability(trace: Trace, name: str, row: int, by: float) -> Tensor:
    """Every step's log-probability with one token's embedding made a little longer."""

    def scaled(x: Tensor) -> Tensor:
        x[..., row, :] *= 1 + by
        return x

    again = trace_text(trace.transformer, trace.tokenizers, TEXT, TARGET_TEXT, {**trace.edit, name: scaled})
    chosen = torch.tensor(again.output_ids)[:, None]
    return again["logits"].log_softmax(-1).gather(1, chosen)[:, 0]


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize(
    "edit", sweep([{"decoder.layers.1.cross_attention.z": mute_head(2)}, {}], 1), ids=["muted", ""]
)
def test_saliency_is_what_a_longer_embedding_would_do(norm: str, edit: dict[str, object]) -> None:
    """|∇·x| is the slope of log P along x, which two small steps measure."""
    trace, small = traced(norm, edit), 1e-5
    slopes = torch.stack(
        [
            (log_probability(trace, name, row, small) - log_probability(trace, name, row, -small)).abs()
            for name, ids in ((SOURCE, trace.source_ids), (TARGET, trace.target_ids))
            for row in range(len(ids))
        ],
        dim=1,
    )  # (T, S + T)
    shares = slopes / slopes.sum(-1, keepdim=True)
    found = saliency(trace)
    torch.testing.assert_close(torch.cat([found.source, found.target], 1), shares, atol=1e-6, rtol=1e-5)
    assert found.target.triu(1).eq(0).all()  # what is not written yet is worth nothing
    one = saliency(trace, step=2)
    torch.testing.assert_close(one.source, found.source[2:3])
    torch.testing.assert_close(one.target, found.target[2:3])


def test_saliency_leaves_the_model_as_it_was() -> None:
    trace = traced()
    trace.transformer.train()
    saliency(trace, step=0)
    assert trace.transformer.training
    assert all(parameter.grad is None for parameter in trace.transformer.parameters())
    assert all(getattr(module, "recorder", None) is None for module in trace.transformer.modules())


def test_what_an_edit_has_cut_off_matters_nothing() -> None:
    memory = traced()["encoder.memory"]
    found = saliency(traced(edit={"encoder.memory": memory}))
    assert found.source.eq(0).all()
    torch.testing.assert_close(found.target.sum(-1), torch.ones(len(TARGET_TEXT) + 1).double())


def test_a_step_that_is_not_there() -> None:
    with pytest.raises(UserError, match="There is no step 6: the answer has 6"):
        saliency(traced(), step=6)


def test_saliency_of_a_sure_model_does_not_drown_in_rounding() -> None:
    """Where P is 1 to seven digits, the gradient of log P itself would be rounding alone."""
    import seq2see

    model = seq2see.load("dates")
    trace = model.trace("1845-01-05")
    single = saliency(trace)
    trace.transformer.double()
    double = saliency(trace)
    trace.transformer.float()
    torch.testing.assert_close(single.source.double(), double.source, atol=1e-3, rtol=0)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_the_last_layer_of_the_lens_is_the_model(norm: str) -> None:
    trace = traced(norm)
    layers = logit_lens(trace)
    assert [layer.after for layer in layers] == [None, 0, 1, 2]
    best = trace["logits"].softmax(-1).max(-1)
    assert layers[-1].ids.tolist() == best.indices.tolist()
    torch.testing.assert_close(layers[-1].probabilities, best.values.float(), atol=1e-6, rtol=0)
    x = trace["decoder.layers.0.feed_forward_norm.out"]
    first = trace.transformer.output(trace.transformer.decoder.norm(x)).softmax(-1).max(-1)
    assert layers[1].ids.tolist() == first.indices.tolist()
    torch.testing.assert_close(layers[1].probabilities, first.values.float().detach(), atol=1e-6, rtol=0)
