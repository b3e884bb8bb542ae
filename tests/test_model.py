"""The model against the paper, against itself and against torch.nn.Transformer."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from conftest import small_model
from seq2see.config import PAPER_VOCABULARY, PRESETS, ModelConfig
from seq2see.model.attention import MultiHeadAttention, written_attention
from seq2see.model.masks import CAUSAL, EVERYTHING, Mask
from seq2see.model.positions import Embedding, position_table
from seq2see.model.sublayers import AddNorm, FeedForward
from seq2see.model.transformer import Transformer


def test_causal_mask_hides_all_above_the_diagonal() -> None:
    seen = {}

    def keep(name: str, x: torch.Tensor) -> torch.Tensor:
        seen[name] = x
        return x

    x = torch.randn(1, 6, 2, 4)
    written_attention(x, x, x, CAUSAL, keep)
    above = torch.ones(6, 6).triu(1).bool()
    assert (seen["masked"][0, 0][above] == -math.inf).all()
    assert (seen["weights"][0, 0][above] == 0).all()
    torch.testing.assert_close(seen["weights"].sum(-1), torch.ones(1, 2, 6))


def test_a_single_query_sees_every_cached_key() -> None:
    assert CAUSAL.allowed(1, 7, torch.device("cpu")) is None
    allowed = CAUSAL.allowed(2, 5, torch.device("cpu"))
    assert allowed is not None
    assert allowed.tolist() == [[True] * 4 + [False], [True] * 5]


def test_padding_does_not_change_the_answer() -> None:
    model = small_model()
    source, target = torch.tensor([[1, 2, 3, 4]]), torch.tensor([[1, 5, 6]])
    alone = model(source, target)
    longer = torch.cat([source, torch.full((1, 3), 9)], dim=1)
    masked = model(longer, target, Mask(keys=torch.tensor([[True] * 4 + [False] * 3])))
    torch.testing.assert_close(alone, masked, atol=1e-5, rtol=1e-4)
    assert not torch.allclose(alone, model(longer, target), atol=1e-3)  # unmasked padding would be seen


def test_later_targets_do_not_change_earlier_logits() -> None:
    model = small_model()
    source = torch.tensor([[1, 2, 3]])
    a, b = model(source, torch.tensor([[1, 5, 6, 7]])), model(source, torch.tensor([[1, 5, 8, 9]]))
    torch.testing.assert_close(a[:, :2], b[:, :2])
    assert not torch.allclose(a[:, 2:], b[:, 2:])


# --- torch.nn.Transformer as the oracle ------------------------------------------------------------------------------


def copy_attention(ours: MultiHeadAttention, theirs: nn.MultiheadAttention) -> None:
    theirs.in_proj_weight.copy_(torch.cat([ours.w_q.weight, ours.w_k.weight, ours.w_v.weight]))
    theirs.in_proj_bias.copy_(torch.cat([ours.w_q.bias, ours.w_k.bias, ours.w_v.bias]))
    theirs.out_proj.load_state_dict(ours.w_o.state_dict())


def copy_layer(ours: nn.Module, theirs: nn.Module, norms: list[AddNorm]) -> None:
    copy_attention(ours.self_attention, theirs.self_attn)
    if hasattr(ours, "cross_attention"):
        copy_attention(ours.cross_attention, theirs.multihead_attn)
    theirs.linear1.load_state_dict(ours.feed_forward.w_1.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.w_2.state_dict())
    for index, norm in enumerate(norms, 1):
        getattr(theirs, f"norm{index}").load_state_dict(norm.norm.state_dict())


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_equals_torch_nn_transformer(norm: str, activation: str) -> None:
    model = small_model(d_k=4, d_v=4, norm=norm, activation=activation, dropout=0.3)
    c = model.config
    pre = norm == "pre"
    arguments = dict(activation=activation, batch_first=True, norm_first=pre, dropout=0.3)
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(c.d_model, c.heads, c.d_ff, **arguments),
        c.encoder_layers,
        nn.LayerNorm(c.d_model) if pre else None,
        enable_nested_tensor=False,
    ).eval()
    decoder = nn.TransformerDecoder(
        nn.TransformerDecoderLayer(c.d_model, c.heads, c.d_ff, **arguments),
        c.decoder_layers,
        nn.LayerNorm(c.d_model) if pre else None,
    ).eval()
    with torch.no_grad():
        for ours, theirs in zip(model.encoder.layers, encoder.layers, strict=True):
            copy_layer(ours, theirs, [ours.self_attention_norm, ours.feed_forward_norm])
        for ours, theirs in zip(model.decoder.layers, decoder.layers, strict=True):
            copy_layer(ours, theirs, [ours.self_attention_norm, ours.cross_attention_norm, ours.feed_forward_norm])
        if pre:
            encoder.norm.load_state_dict(model.encoder.norm.state_dict())
            decoder.norm.load_state_dict(model.decoder.norm.state_dict())

        source, target = torch.randint(0, 11, (2, 6)), torch.randint(0, 13, (2, 5))
        keys = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
        memory = encoder(model.encoder.embedding(source), src_key_padding_mask=~keys)
        hidden = decoder(
            model.decoder.embedding(target),
            memory,
            tgt_mask=~torch.ones(5, 5).tril().bool(),
            memory_key_padding_mask=~keys,
        )
        expected = model.output(hidden)
        torch.testing.assert_close(model(source, target, Mask(keys=keys)), expected, atol=1e-5, rtol=1e-5)


# --- sizes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, preset in PRESETS.items() if preset.paper_millions])
def test_parameters_of_table_3(name: str) -> None:
    preset = PRESETS[name]
    config = ModelConfig.of(source_vocabulary=PAPER_VOCABULARY, target_vocabulary=PAPER_VOCABULARY, **preset.model)
    assert config.parameters == pytest.approx(preset.paper_millions * 1e6, rel=0.05)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("shared", [(True, True), (True, False), (False, True), (False, False)])
def test_parameters_are_counted_as_they_are(norm: str, shared: tuple[bool, bool]) -> None:
    config = ModelConfig.of(
        source_vocabulary=20, target_vocabulary=20 if shared[0] else 31, d_model=8, heads=3, d_k=5, d_v=2, d_ff=7,
        encoder_layers=2, decoder_layers=3, max_length=9, norm=norm, share_embeddings=shared[0],
        share_output=shared[1], positions="learned" if norm == "pre" else "paper",
    )  # fmt: skip
    assert config.parameters == Transformer(config).parameter_count()


def test_every_row_of_table_3_has_a_preset() -> None:
    rows = {name[0] for name in PRESETS if name[1] == "-"}
    assert rows == set("ABCDE")
    printed = {
        "big": 213, "B-d_k-16": 58, "B-d_k-32": 60, "C-2-layers": 36, "C-4-layers": 50, "C-8-layers": 80,
        "C-d_model-256": 28, "C-d_model-1024": 168, "C-d_ff-1024": 53, "C-d_ff-4096": 90,
    }  # fmt: skip
    found = {name: preset.paper_millions for name, preset in PRESETS.items() if preset.paper_millions}
    assert found == {name: printed.get(name, 65) for name in found}  # the paper leaves out those of the base model
    assert len(found) == 20


def test_document_preset_is_about_as_large_as_the_document_says() -> None:
    config = ModelConfig.of(source_vocabulary=68, target_vocabulary=68, **PRESETS["document"].model)
    assert config.parameters == 18_692


def test_shared_tables_are_one_parameter() -> None:
    shared = Transformer(ModelConfig.of(source_vocabulary=20, target_vocabulary=20, d_model=8, heads=2, d_ff=8))
    assert shared.output.weight is shared.decoder.embedding.table.weight
    assert shared.output.weight is shared.encoder.embedding.table.weight
    separate = Transformer(shared.config.but(share_embeddings=False, share_output=False))
    assert separate.parameter_count() - shared.parameter_count() == 2 * 20 * 8 + 20


def test_layers_have_weights_of_their_own() -> None:
    first, second = small_model().encoder.layers
    assert not torch.equal(first.self_attention.w_q.weight, second.self_attention.w_q.weight)


# --- details of the paper --------------------------------------------------------------------------------------------


def test_embedding_is_scaled_and_positions_added() -> None:
    model = small_model()
    embedding = model.encoder.embedding
    ids = torch.tensor([[3, 1]])
    expected = embedding.table.weight[ids] * math.sqrt(12) + position_table(2, 12)
    torch.testing.assert_close(embedding(ids), expected)
    torch.testing.assert_close(embedding(ids[:, 1:], place=1), expected[:, 1:])


def test_dropout_falls_on_sublayer_outputs_and_embedding_sums_only() -> None:
    model = small_model(dropout=0.5)
    where = {path for path, module in model.named_modules() if isinstance(module, nn.Dropout)}
    assert where == {
        *(f"{side}.embedding.dropout" for side in ("encoder", "decoder")),
        *(f"encoder.layers.{n}.{s}_norm.dropout" for n in range(2) for s in ("self_attention", "feed_forward")),
        *(
            f"decoder.layers.{n}.{s}_norm.dropout"
            for n in range(3)
            for s in ("self_attention", "cross_attention", "feed_forward")
        ),
    }
    model.train()
    source, target = torch.tensor([[1, 2, 3]]), torch.tensor([[1, 5]])
    assert not torch.equal(model(source, target), model(source, target))


@pytest.mark.parametrize(("norm", "sum_of"), [("post", "sum"), ("pre", "out")])
def test_dropout_falls_on_what_the_sublayer_says(norm: str, sum_of: str) -> None:
    torch.manual_seed(0)
    layer, seen = AddNorm(ModelConfig(d_model=4000, heads=2, dropout=0.25, norm=norm)), {}
    layer.recorder = lambda path, x: seen.setdefault(path, x)
    x = torch.randn(4000)
    layer(x, lambda x: torch.ones(4000))
    added = seen[sum_of] - x  # 0 where the ones are dropped, and else 1 / (1 - 0.25)
    dropped = added.abs() < 1e-5
    assert 0.2 < dropped.float().mean() < 0.3
    torch.testing.assert_close(added[~dropped], torch.full_like(added[~dropped], 1 / 0.75))
    layer.eval()
    seen.clear()
    layer(x, lambda x: torch.ones(4000))
    torch.testing.assert_close(seen[sum_of], x + 1)


def test_dropout_falls_on_the_sum_of_embedding_and_position() -> None:
    torch.manual_seed(0)
    embedding = Embedding(ModelConfig(d_model=4000, heads=2, dropout=0.25), 5)
    ids = torch.tensor([3])
    expected = embedding.eval()(ids)
    found = embedding.train()(ids)
    assert 0.2 < (found == 0).float().mean() < 0.3
    torch.testing.assert_close(found[found != 0], expected[found != 0] / 0.75)


@pytest.mark.parametrize(("name", "function"), [("relu", F.relu), ("gelu", F.gelu), ("swish", F.silu)])
def test_the_feed_forward_network_is_two_products_around_an_activation(
    name: str, function: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    layer, x = FeedForward(ModelConfig(d_model=8, heads=2, d_ff=12, activation=name)), torch.randn(3, 8)
    hidden = function(x @ layer.w_1.weight.T + layer.w_1.bias)
    torch.testing.assert_close(layer(x), hidden @ layer.w_2.weight.T + layer.w_2.bias)


def test_packed_rank_is_attended_like_padded_rank() -> None:
    q, k, v = torch.randn(5, 3, 4), torch.randn(6, 3, 4), torch.randn(6, 3, 6)
    alone = written_attention(q, k, v, EVERYTHING)
    torch.testing.assert_close(alone, written_attention(q[None], k[None], v[None], EVERYTHING)[0])


def test_learned_positions_are_trained() -> None:
    model = small_model(positions="learned")
    model(torch.tensor([[1, 2]]), torch.tensor([[1]])).sum().backward()
    assert model.encoder.embedding.positions.grad is not None


def test_keep_costs_no_graph_break() -> None:
    model = small_model()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    source, target = torch.tensor([[1, 2, 3]]), torch.tensor([[1, 5]])
    torch.testing.assert_close(compiled(source, target), model(source, target))
