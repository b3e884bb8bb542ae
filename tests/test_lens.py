"""What each layer would say."""

from __future__ import annotations

import pytest
import torch

from conftest import small_model
from seq2see.inspection.trace import Trace, logit_lens, record
from seq2see.storage.folder import Tokenizers
from seq2see.tokenizers.tokenizer import Tokenizer

TEXT, TARGET_TEXT = "bad cab", "abcba"


def traced(norm: str) -> Trace:
    letters = Tokenizer.characters(["<pad>", "<sos>", "<eos>", "<unk>", *"abcd "])
    tokenizers = Tokenizers(letters, letters)
    model = small_model(
        source_vocabulary=tokenizers.source.size, target_vocabulary=tokenizers.target.size, norm=norm
    ).double()
    return record(model, tokenizers, TEXT, TARGET_TEXT)


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
