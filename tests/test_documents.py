"""Every number of the five source documents, at the printed precision, in tests named by document."""

from __future__ import annotations

import math
from functools import cache

import pytest
import torch
from torch import Tensor

import documents
import seq2see
from seq2see.config import PRESETS, ModelConfig
from seq2see.data.cuts import cuts_of
from seq2see.data.recipe import Facts, choose, config_of
from seq2see.decoding.readers import padded
from seq2see.inspection.tables import tables_of
from seq2see.inspection.trace import Trace, record
from seq2see.learn import lab
from seq2see.learn.lab import similarities
from seq2see.model.attention import written_attention
from seq2see.model.masks import CAUSAL, EVERYTHING
from seq2see.model.positions import Embedding, position_table
from seq2see.model.sublayers import AddNorm
from seq2see.model.transformer import Transformer
from seq2see.storage.folder import Tokenizers
from seq2see.tasks.dates import pairs_of, splits
from seq2see.tokenizers.tokenizer import DOCUMENT_VOCABULARY, END, PAD, START, Tokenizer


@cache
def dates() -> seq2see.Seq2Seq:
    return seq2see.load("dates")


@cache
def traced() -> Trace:
    return dates().trace("1676-11-30")


def untrained(sentence: str, **settings: object) -> Trace:
    """What a model with random weights does with a sentence, word by word. Words are in small letters, as in 003."""
    tokenizer = Tokenizer.words([sentence], min_frequency=1)
    torch.manual_seed(1)
    config = ModelConfig.of(**{
        "source_vocabulary": tokenizer.size, "target_vocabulary": tokenizer.size, "dropout": 0.0, "d_ff": 64,
        "encoder_layers": 1, "decoder_layers": 1, **settings,
    })  # fmt: skip
    return record(Transformer(config).eval(), Tokenizers.one(tokenizer), sentence, target=sentence)


def steps_of(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> dict[str, Tensor]:
    """Run the model's own attention on matrices, one head, and keep its steps."""
    seen: dict[str, Tensor] = {}

    def keep(name: str, x: Tensor) -> Tensor:
        seen[name] = x.squeeze(0)
        return x

    z = written_attention(q[:, None], k[:, None], v[:, None], CAUSAL if causal else EVERYTHING, keep)
    return {**seen, "z": z[:, 0]}


# --- A. 000_a7b8c21641c3777c.txt and 002_cd9bd9446ef9fb85.txt: dates, end to end -----------------------


def test_000_a7b8c21641c3777c_vocabulary_of_68_tokens_in_order() -> None:
    tokenizer = dates().tokenizers.source
    order = [*"0123456789", *"ABCDEFGHIJKLMNOPQRSTUVWXYZ", *"abcdefghijklmnopqrstuvwxyz", *"-, ", START, END, PAD]
    assert tokenizer.size == len(DOCUMENT_VOCABULARY) == 68
    assert tokenizer.tokens(range(68)) == order
    assert [order.index(token) for token in ("9", "A", "Z", "a", "z")] == [9, 10, 35, 36, 61]
    assert [order.index(token) for token in ("-", ",", " ", START, END, PAD)] == [62, 63, 64, 65, 66, 67]
    assert (START, END, PAD) == ("<sos>", "<eos>", "<pad>")


def test_000_a7b8c21641c3777c_ids_of_1676_11_30_and_its_words() -> None:
    source, target = dates().tokenizers.source, dates().tokenizers.target
    assert source.encode("1676-11-30") == [65, 1, 6, 7, 6, 62, 1, 1, 62, 3, 0, 66]
    ids = target.encode("November 30, 1676")
    padded_ids = [*ids, *[target.pad] * (20 - len(ids))]
    assert padded_ids == [65, 23, 50, 57, 40, 48, 37, 40, 53, 64, 3, 0, 63, 64, 1, 6, 7, 6, 66, 67]


def test_000_a7b8c21641c3777c_lengths_12_and_20() -> None:
    assert {len(dates().tokenizers.source.encode(source)) for source, _ in splits(50, 1, 1, seed=1)[0]} == {12}
    every_day_of_a_year = pairs_of(torch.arange(721_000, 721_366).numpy())
    assert max(len(dates().tokenizers.target.encode(text)) for _, text in every_day_of_a_year) == 20


def test_000_a7b8c21641c3777c_embedding_of_68_by_16_scaled_by_its_root() -> None:
    table = dates().transformer.encoder.embedding.table.weight
    assert table.shape == (68, 16)
    assert table.requires_grad
    embedded, scaled = (traced()[f"encoder.embedding.{name}"] for name in ("embedded", "scaled"))
    assert torch.equal(embedded, table[[65, 1, 6, 7, 6, 62, 1, 1, 62, 3, 0, 66]])
    torch.testing.assert_close(scaled, embedded * 4)


def test_000_a7b8c21641c3777c_learned_positions_as_an_option() -> None:
    learned = Embedding(ModelConfig(d_model=16, heads=4, positions="learned", max_length=20), 68)
    fixed = Embedding(ModelConfig(d_model=16, heads=4, max_length=20), 68)
    assert [name for name, _ in learned.named_parameters()] == ["positions", "table.weight"]
    assert learned.positions.shape == (20, 16)
    assert [name for name, _ in fixed.named_parameters()] == ["table.weight"]


def test_000_a7b8c21641c3777c_before_after_table() -> None:
    before, after = torch.tensor(documents.BEFORE_POSITIONS), torch.tensor(documents.AFTER_POSITIONS)
    assert before.shape == after.shape == (4, 16)
    assert (before + position_table(4, 16) - after).abs().max() < 8e-5
    for variant in ("doubled", "odd-cosine", "halves"):  # the table tells them apart
        assert (before + lab.encoding([0, 1, 2, 3], 16, variant) - after).abs().max() > 0.1


def test_000_a7b8c21641c3777c_pe_0_0_and_pe_3_0() -> None:
    assert lab.value(0, 0, d_model=16) == 0
    assert round(lab.value(3, 0, d_model=16), 4) == 0.1411
    assert round(-1.0169 + lab.value(3, 0, d_model=16), 4) == -0.8758


def test_002_cd9bd9446ef9fb85_weights_are_softmax_of_scores_over_4() -> None:
    scores, weights = torch.tensor(documents.SCORES), torch.tensor(documents.WEIGHTS)
    q = torch.cat([scores, torch.zeros(12, 4)], dim=1)  # queries of 16 whose products with these keys are the table
    k = torch.eye(12, 16)
    steps = steps_of(q, k, torch.zeros(12, 16))
    assert torch.equal(steps["scores"], scores)
    torch.testing.assert_close(steps["scaled"], scores / 4)
    assert (steps["weights"] - weights).abs().max() < 6.5e-5
    assert round(steps["weights"][0, 7].item(), 4) == 0.9957
    torch.testing.assert_close(steps["weights"].sum(1), torch.ones(12))


def test_002_cd9bd9446ef9fb85_output_is_the_values_mean_under_the_weights() -> None:
    weights, output = torch.tensor(documents.WEIGHTS), torch.tensor(documents.OUTPUT)
    to_token_10 = weights[:, 10] > 0.999  # their outputs are all but the value of token 10
    assert to_token_10.nonzero()[:, 0].tolist() == [1, 4, 9]
    value = output[9]
    for row in (1, 4, 7):
        assert (output[row] - value).abs().max() < 10 * (1 - weights[row, 10]) + 2e-3
    assert (output[0] - value).abs().max() > 5


def test_002_cd9bd9446ef9fb85_the_walk_over_12_by_16_as_labelled_tables() -> None:
    attention = "encoder.layers.0.self_attention"
    (x,) = tables_of(traced(), "encoder.embedding.sum")
    assert (len(x.rows), x.columns) == (12, [f"Dim {n}" for n in range(1, 17)])
    for role, columns in (("q", 4), ("k", 4), ("v", 4), ("scores", 12), ("weights", 12), ("z", 4)):
        tables = tables_of(traced(), f"{attention}.{role}")
        assert [table.values.shape for table in tables] == [(12, columns)] * 4
    for table in tables_of(traced(), f"{attention}.scores"):
        assert table.rows == table.columns == ["<sos>", *"1676-11-30", "<eos>"]
    (out,) = tables_of(traced(), f"{attention}.out")
    assert out.values.shape == (12, 16)


def test_002_cd9bd9446ef9fb85_4_heads_of_size_4_concatenated_and_projected() -> None:
    attention = dates().transformer.get_submodule("encoder.layers.0.self_attention")
    q, k, v, z, out = (traced()[f"encoder.layers.0.self_attention.{role}"] for role in ("q", "k", "v", "z", "out"))
    assert q.shape == k.shape == v.shape == z.shape == (12, 4, 4)
    x = traced()["encoder.embedding.sum"]
    for head in range(4):
        rows = slice(4 * head, 4 * head + 4)
        torch.testing.assert_close(q[:, head], x @ attention.w_q.weight[rows].T + attention.w_q.bias[rows])
        steps = steps_of(q[:, head], k[:, head], v[:, head])
        torch.testing.assert_close(steps["z"], z[:, head])
    joined = torch.cat([z[:, head] for head in range(4)], dim=1)  # (12, 16)
    torch.testing.assert_close(joined @ attention.w_o.weight.T + attention.w_o.bias, out)


def test_002_cd9bd9446ef9fb85_residual_norm_and_feed_forward() -> None:
    x, attended = traced()["encoder.embedding.sum"], traced()["encoder.layers.0.self_attention.out"]
    summed = traced()["encoder.layers.0.self_attention_norm.sum"]
    torch.testing.assert_close(summed, x + attended)
    norm = dates().transformer.get_submodule("encoder.layers.0.self_attention_norm.norm")
    after = traced()["encoder.layers.0.self_attention_norm.out"]
    torch.testing.assert_close(after, norm(summed))
    feed_forward = dates().transformer.get_submodule("encoder.layers.0.feed_forward")
    hidden = (after @ feed_forward.w_1.weight.T + feed_forward.w_1.bias).clamp(min=0)
    assert hidden.shape == (12, 64)
    torch.testing.assert_close(traced()["encoder.layers.0.feed_forward.hidden"], hidden)


def test_002_cd9bd9446ef9fb85_a_decoder_block_is_stacked_as_a_whole() -> None:
    t = untrained("a b c", d_model=16, heads=4, encoder_layers=1, decoder_layers=5)
    for layer in range(5):
        for part in ("self_attention", "cross_attention", "feed_forward"):
            assert t.match(f"decoder.layers.{layer}.{part}.out")
    assert not any(".5." in name for name in t.names)
    weights = traced()["decoder.layers.1.cross_attention.weights"]
    assert weights.shape == (4, 18, 12)  # 18 tokens of the answer look at 12 of the date


def test_002_cd9bd9446ef9fb85_about_21_thousand_parameters() -> None:
    config = ModelConfig.of(**{**PRESETS["document"].model, "source_vocabulary": 68, "target_vocabulary": 68})
    assert (config.d_model, config.heads, config.d_ff) == (16, 4, 64)
    assert (config.encoder_layers, config.decoder_layers) == (2, 2)
    assert config.parameters == 18_692  # the document does not itemise its own
    assert config.parameters == pytest.approx(21_000, rel=0.15)
    assert dates().transformer.parameter_count() == config.parameters


def test_002_cd9bd9446ef9fb85_predictions_in_raw_form() -> None:
    answers = dates().answers(["1845-01-05", "1845-01-06", "1426-08-10", "2025-09-03"])
    assert [dates().answerer.raw(answer) for answer in answers] == [
        "<sos>January 5, 1845<eos><pad><pad>",
        "<sos>January 6, 1845<eos><pad><pad>",
        "<sos>August 10, 1426<eos><pad><pad>",
        "<sos>September 3, 2025<eos>",
    ]


def test_002_cd9bd9446ef9fb85_loss_below_the_last_of_its_table() -> None:
    theirs = {10: 0.6455, 20: 0.3487, 30: 0.1395, 40: 0.0537, 50: 0.0244}
    _, _, test = splits(1, 1, 500, seed=7, years=(1000, 2025))
    assert dates().evaluate(test).loss < min(theirs.values())


@pytest.mark.parametrize(("years", "theirs"), [((1000, 2025), 0.996), ((2026, 2999), 0.41), ((3000, 9999), 0.006)])
def test_002_cd9bd9446ef9fb85_accuracy_above_its_weights(years: tuple[int, int], theirs: float) -> None:
    _, _, test = splits(1, 1, 500, seed=7, years=years)
    assert dates().evaluate(test).exact_match > theirs


# --- B. 001_4ba290f5064f991a.txt: embeddings, positions, attention from the ground up ------------------


def test_001_4ba290f5064f991a_6_layers_512_wide_8_heads_of_64() -> None:
    base = ModelConfig.of(**PRESETS["base"].model)
    assert (base.encoder_layers, base.decoder_layers, base.d_model, base.heads) == (6, 6, 512, 8)
    assert (base.d_k, base.d_v, base.norm) == (64, 64, "post")
    free = ModelConfig(d_model=20, heads=3, d_k=7, encoder_layers=1, d_v=2)  # a free choice
    assert (free.heads * (free.d_k or 0)) == 21


def test_001_4ba290f5064f991a_the_cat_sat_on_the_mat_word_by_word() -> None:
    t = untrained("The cat sat on the mat", d_model=16, heads=1)
    q, k = (t[f"encoder.layers.0.self_attention.{role}"][:, 0].tolist() for role in "qk")
    (scores,) = tables_of(t, "encoder.layers.0.self_attention.scores")
    assert scores.rows == scores.columns == ["<sos>", "the", "cat", "sat", "on", "the", "mat", "<eos>"]
    for i, j in ((2, 3), (3, 3), (6, 2)):
        assert scores.values[i, j] == pytest.approx(sum(a * b for a, b in zip(q[i], k[j], strict=True)), abs=1e-5)


def test_001_4ba290f5064f991a_43_characters() -> None:
    sentence = "the Transformer is an innovative NLP model!"
    ids = Tokenizer.characters_of([sentence]).encode(sentence)
    assert len(ids) - 2 == len(sentence) == 43


def test_001_4ba290f5064f991a_cosine_of_positions_2_and_10() -> None:
    assert round(lab.position_cosine(2, 10, 512, "doubled"), 10) == 0.8600013331
    assert round(lab.position_cosine(2, 10, 512, "paper"), 10) == 0.7225200832


def printed(x: float) -> float:
    """Round to nine digits, as numpy prints."""
    return float(f"{x:.8e}")


def test_001_4ba290f5064f991a_vectors_of_positions_2_and_10() -> None:
    two, ten = ([printed(x) for x in lab.encoding(position, 512, "doubled").tolist()] for position in (2, 10))
    assert [round(x, 8) for x in two[:4]] == [0.90929743, -0.41614684, 0.95814438, -0.28628544]
    assert two[:14] == [
        9.09297427e-01, -4.16146837e-01, 9.58144376e-01, -2.86285442e-01, 9.87046251e-01, -1.60435961e-01,
        9.99164200e-01, -4.08766567e-02, 9.97479998e-01, 7.09482514e-02, 9.84702998e-01, 1.74241229e-01,
        9.63226623e-01, 2.68690292e-01,
    ]  # fmt: skip
    tail_of_two = [2.66704286e-08, 1.0, 2.48187552e-08, 1.0, 2.30956397e-08, 1.0, 2.14921566e-08, 1.0]
    assert two[-8:] == tail_of_two
    assert ten[:15] == [
        -5.44021111e-01, -8.39071529e-01, 1.18776483e-01, -9.92921018e-01, 6.92634182e-01, -7.21289047e-01,
        9.79174779e-01, -2.03019092e-01, 9.37632744e-01, 3.47627440e-01, 6.40478017e-01, 7.67976503e-01,
        2.09077004e-01, 9.77899180e-01, -2.37917679e-01,
    ]  # fmt: skip
    assert ten[-8:] == [1.33352143e-07, 1.0, 1.24093776e-07, 1.0, 1.15478198e-07, 1.0, 1.07460783e-07, 1.0]
    assert ten[-8:] != tail_of_two  # which is what the document prints


def test_001_4ba290f5064f991a_black_is_at_2_and_brown_at_10_counted_from_1() -> None:
    sentence = "The black cat sat on the couch and the brown dog slept on the rug"
    t = untrained(sentence, d_model=16, heads=1)
    for word, position in (("black", 2), ("brown", 10)):
        assert t.source_tokens.index(word) == position  # <sos> stands at 0
        added = t["encoder.embedding.sum"][position] - t["encoder.embedding.scaled"][position]
        torch.testing.assert_close(added.double(), lab.encoding(position, 16), atol=1e-5, rtol=0)


def test_001_4ba290f5064f991a_sums_of_words_and_positions() -> None:
    torch.manual_seed(1)
    black = torch.nn.functional.normalize(torch.randn(512, dtype=torch.float64), dim=0)
    other = torch.nn.functional.normalize(torch.randn(512, dtype=torch.float64), dim=0)
    other -= (other @ black) * black
    brown = 0.5690 * black + math.sqrt(1 - 0.5690**2) * other / other.norm()  # as alike as the document's two
    two, ten = (lab.encoding(position, 512, "doubled") for position in (2, 10))
    apart, together = similarities((black, brown), (two, ten)), similarities((black, brown), (two, two))
    assert apart.words == together.words == pytest.approx(0.5690)
    assert apart.positions == pytest.approx(0.8600013331)
    assert together.positions == pytest.approx(1)
    by_hand = torch.nn.functional.cosine_similarity(black * math.sqrt(512) + two, brown * math.sqrt(512) + ten, dim=0)
    assert apart.sums == pytest.approx(by_hand.item())
    assert apart.sums < together.sums  # type: ignore[operator] # the document took one position for both words


def test_001_4ba290f5064f991a_512_into_8_heads_of_64_and_back() -> None:
    t = untrained("The dog is fine above the bed and it was cleaned", d_model=512, heads=8)
    attention = "encoder.layers.0.self_attention"
    for role in ("q", "k", "v", "z"):
        assert t[f"{attention}.{role}"].shape == (13, 8, 64)
    assert t[f"{attention}.z"].flatten(-2).shape == t[f"{attention}.out"].shape == (13, 512)
    tables, it = tables_of(t, f"{attention}.weights"), t.source_tokens.index("it")
    assert len(tables) == 8
    for head, table in enumerate(tables):  # what "it" attends to, per head
        q, k = (t[f"{attention}.{role}"][:, head] for role in "qk")
        weights = (k @ q[it] / 8).softmax(0)  # √64 is 8
        assert table.columns == t.source_tokens
        assert table.values[it].tolist() == pytest.approx(weights.tolist(), abs=1e-6)


INPUT = torch.tensor([[1.0, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]])
W_Q = torch.tensor([[1.0, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 1]])
W_K = torch.tensor([[0.0, 0, 1], [1, 1, 0], [0, 1, 0], [1, 1, 0]])
W_V = torch.tensor([[0.0, 2, 0], [0, 3, 0], [1, 0, 3], [1, 1, 0]])


def test_001_4ba290f5064f991a_worked_attention_example() -> None:
    steps = steps_of(INPUT @ W_Q, INPUT @ W_K, INPUT @ W_V)
    assert steps["scores"].tolist() == [[2, 4, 4], [4, 16, 12], [4, 12, 10]]
    assert [round(x, 4) for x in steps["z"][0].tolist()] == [1.8639, 6.3194, 1.7042]


def test_001_4ba290f5064f991a_worked_attention_example_all_rows() -> None:
    steps = steps_of(INPUT @ W_Q, INPUT @ W_K, INPUT @ W_V)
    values = (INPUT @ W_V).tolist()
    assert values == [[1, 2, 3], [2, 8, 0], [2, 6, 3]]
    for row, scores in enumerate([[2, 4, 4], [4, 16, 12], [4, 12, 10]]):
        powers = [math.exp(score / math.sqrt(3)) for score in scores]
        weights = [power / sum(powers) for power in powers]
        expected = [sum(w * v[n] for w, v in zip(weights, values, strict=True)) for n in range(3)]
        assert steps["weights"][row].tolist() == pytest.approx(weights, abs=1e-6)
        assert steps["z"][row].tolist() == pytest.approx(expected, abs=1e-5)


def test_001_4ba290f5064f991a_worked_attention_example_with_8_heads() -> None:
    torch.manual_seed(1)
    turns = [torch.eye(3), *torch.randn(7, 3, 3)]  # head 0 as it is, seven others
    q, k, v = (torch.stack([INPUT @ w @ turn for turn in turns], dim=1) for w in (W_Q, W_K, W_V))  # (3, 8, 3)
    z = written_attention(q, k, v, EVERYTHING)
    assert z.shape == (3, 8, 3)
    assert z.flatten(-2).shape == (3, 24)  # concatenated
    assert [round(x, 4) for x in z.flatten(-2)[0, :3].tolist()] == [1.8639, 6.3194, 1.7042]
    for head in range(8):
        torch.testing.assert_close(z[:, head], steps_of(q[:, head], k[:, head], v[:, head])["z"])


def test_001_4ba290f5064f991a_post_layer_normalisation() -> None:
    t = untrained("The cat sat on the mat", d_model=16, heads=2)
    x, y = t["encoder.embedding.sum"], t["encoder.layers.0.self_attention.out"]
    expected = torch.nn.functional.layer_norm(x + y, (16,))  # gain 1 and bias 0 before training
    torch.testing.assert_close(t["encoder.layers.0.self_attention_norm.out"], expected)


# --- C. 003_662979dacec68ce4.txt: English to French ----------------------------------------------------


def test_003_662979dacec68ce4_valid_lens_of_hi_is_3() -> None:
    texts = ["Hi.", "Go on then!"]
    tokenizer = Tokenizer.words(texts, min_frequency=1)
    rows = [ids[1:] for ids in tokenizer.encode_batch(texts)]  # its sources have no <sos>
    ids, mask = padded(rows, tokenizer.pad)
    assert tokenizer.tokens(ids[0].tolist()) == ["hi", ".", "<eos>", "<pad>", "<pad>"]
    torch.manual_seed(1)
    config = ModelConfig.of(source_vocabulary=tokenizer.size, target_vocabulary=tokenizer.size, d_model=16, heads=2)
    model = Transformer(config).eval()
    with seq2see.trace(model) as t:
        model(ids, ids[:, :1], mask)
    for name in ("encoder.layers.0.self_attention.weights", "decoder.layers.0.cross_attention.weights"):
        attended = (t[name] > 0).sum(-1)  # (B, H, T): keys that a query sees
        assert attended[0].unique().tolist() == [3]
        assert attended[1].unique().tolist() == [5]


def test_003_662979dacec68ce4_two_separate_dictionaries() -> None:
    pairs = [("go .", "va !"), ("hi .", "salut !"), ("run .", "cours !")]
    both = [Tokenizer.words(side, min_frequency=1) for side in zip(*pairs, strict=True)]
    assert not Tokenizers(*both).shared
    assert not cuts_of(pairs, "words").shared  # nor are those of a training
    assert [tokenizer.vocabulary()[4:] for tokenizer in both] == [
        [".", "go", "hi", "run"],
        ["!", "va", "salut", "cours"],
    ]
    assert both[0].tokens(both[0].encode("go away"))[2] == "<unk>"
    config = config_of(choose(Facts(3, 12, 5)), both)
    model = Transformer(config.model)
    assert model.encoder.embedding.table.weight is not model.decoder.embedding.table.weight


def test_003_662979dacec68ce4_embedding_is_a_trainable_look_up_table() -> None:
    torch.manual_seed(1)
    embedding = Embedding(ModelConfig(d_model=8, heads=2, dropout=0.0), 10)
    looked_up = embedding.table(torch.tensor([2]))
    assert torch.equal(looked_up[0], embedding.table.weight[2])
    x_plus_p = embedding(torch.tensor([2, 2]))
    torch.testing.assert_close(x_plus_p, looked_up * math.sqrt(8) + position_table(2, 8))
    x_plus_p.sum().backward()
    assert embedding.table.weight.grad is not None
    assert embedding.table.weight.grad[2].abs().sum() > 0
    assert embedding.table.weight.grad[3].abs().sum() == 0


def test_003_662979dacec68ce4_raw_i_dominates_at_10() -> None:
    (count,) = lab.counting(positions=(10,))
    a, b = torch.randn(2, 512, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert count.position == 10
    assert count.word_cosine_counted == pytest.approx(lab.cosine(a + 10, b + 10))
    assert count.word_cosine_counted > 0.98  # nearly all of the sum is the position
    assert abs(count.word_cosine_paper) < 0.5 < count.word_cosine_counted - abs(lab.cosine(a, b))


def test_003_662979dacec68ce4_i_over_n_changes_with_the_length() -> None:
    short, long = (next(f for f in lab.fractions() if f.length == length) for length in (6, 12))
    assert short.step == 2 * long.step
    assert short.paper_step == pytest.approx(long.paper_step)


def test_003_662979dacec68ce4_values_within_one_and_unique() -> None:
    for variant in ("paper", "odd-cosine"):
        assert lab.encoding(torch.arange(1000), 32, variant).abs().max() <= 1
        assert lab.smallest_distance(1000, 32, variant) > 0.1


def test_003_662979dacec68ce4_offset_is_a_linear_map_but_not_with_its_cosine() -> None:
    exponent = (2 * 3 + 1) / 16  # of the cosine at dimension 7, by its formula
    assert lab.value(5, 7, 16, "odd-cosine") == pytest.approx(math.cos(5 / 10000**exponent))
    for offset in (1, 5):
        assert lab.offset_map_error(offset, 16) < 1e-12
        assert lab.best_linear_map_error(offset, 16, "paper") < 1e-11
        assert lab.best_linear_map_error(offset, 16, "odd-cosine") > 0.1


# --- D. 004_b93687b5e259067f.txt: the Transformer itself -----------------------------------------------


def test_004_b93687b5e259067f_embeddings_of_512() -> None:
    t = untrained("YOUR CAT IS A LOVELY CAT", d_model=512, heads=8)
    assert t["encoder.embedding.embedded"].shape == (8, 512)  # six words, <sos> and <eos>


def test_004_b93687b5e259067f_positions_are_computed_once_and_reused() -> None:
    embedding = Embedding(ModelConfig(max_length=50, dropout=0.0), 10)
    before = embedding.positions.data_ptr()
    embedding(torch.arange(6))
    assert embedding.positions.data_ptr() == before
    assert "positions" not in embedding.state_dict()  # nor are they weights
    assert torch.equal(embedding.positions, position_table(50, 512))


def test_004_b93687b5e259067f_pe_0_10_on_request() -> None:
    assert lab.value(0, 10) == 0
    assert lab.formula(0, 10) == "sin(0 / 10000^(10/512))"
    assert lab.value(0, 11) == 1
    assert lab.value(1, 10) == pytest.approx(math.sin(1 / 10000 ** (10 / 512)))


def test_004_b93687b5e259067f_shapes_of_attention() -> None:
    torch.manual_seed(1)
    q, k, v = torch.randn(3, 6, 512)
    steps = steps_of(q, k, v)
    assert (steps["scores"].shape, steps["weights"].shape, steps["z"].shape) == ((6, 6), (6, 6), (6, 512))
    torch.testing.assert_close(steps["z"], (q @ k.T / math.sqrt(512)).softmax(1) @ v)


def test_004_b93687b5e259067f_heads_are_slices_of_d_model() -> None:
    torch.manual_seed(1)
    q, k, v = torch.randn(3, 6, 512)
    together = written_attention(*(x.unflatten(-1, (8, 64)) for x in (q, k, v)), EVERYTHING).flatten(-2)
    assert together.shape == (6, 512)
    for head in range(8):
        part = slice(64 * head, 64 * head + 64)
        torch.testing.assert_close(together[:, part], steps_of(q[:, part], k[:, part], v[:, part])["z"])


def test_004_b93687b5e259067f_mask_of_your_cat_is_a_lovely_cat() -> None:
    t = untrained("YOUR CAT IS A LOVELY CAT", d_model=16, heads=2)
    above = torch.ones(7, 7).triu(1).bool()  # <sos> and the six words
    masked, weights = (t[f"decoder.layers.0.self_attention.{role}"] for role in ("masked", "weights"))
    assert tables_of(t, "decoder.layers.0.self_attention.masked")[0].rows == [
        "<sos>",
        *["your", "cat", "is", "a", "lovely", "cat"],
    ]
    assert (masked[:, above] == -math.inf).all()
    assert masked[:, ~above].isfinite().all()
    assert (weights[:, above] == 0).all()
    assert (weights[:, ~above] > 0).all()
    allowed = CAUSAL.allowed(6, 6, torch.device("cpu"))
    assert allowed is not None
    assert allowed.int().tolist() == [[1] * (row + 1) + [0] * (5 - row) for row in range(6)]


def test_004_b93687b5e259067f_query_key_value_as_a_search() -> None:
    #             romance, war, space
    keys = torch.tensor([[6.0, 0, 0], [0, 6, 0], [0, 0, 6]])  # romantic, action, science fiction
    values = torch.eye(3)  # Titanic, Gladiator, Solaris
    love = torch.tensor([[3.0, 0.2, 0.1]])
    steps = steps_of(love, keys, values)
    assert steps["weights"].argmax().item() == 0
    assert steps["z"][0, 0] > 0.99  # what comes back is Titanic


def test_004_b93687b5e259067f_layer_norm_is_per_sample_mean_0_variance_1() -> None:
    torch.manual_seed(1)
    x = torch.randn(3, 5, 512) * torch.tensor([1.0, 10, 100])[:, None, None] + 7
    y = AddNorm(ModelConfig(dropout=0.0))(x, lambda x: 2 * x)  # before training its gain is 1 and its bias 0
    torch.testing.assert_close(y.mean(-1), torch.zeros(3, 5), atol=1e-5, rtol=0)
    torch.testing.assert_close(y.var(-1, unbiased=False), torch.ones(3, 5), atol=1e-4, rtol=0)
    torch.testing.assert_close(y[1, 2], AddNorm(ModelConfig(dropout=0.0))(x[1, 2], lambda x: 2 * x))
    assert y.min() < -1  # so the values are not between 0 and 1, as the document says
    assert y.max() > 1
