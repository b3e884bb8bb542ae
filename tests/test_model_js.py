"""The model in JavaScript computes what PyTorch computes, by every named value; in Chromium and in Node."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import unicodedata
from base64 import b64decode
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import seq2see
from conftest import small_model, sweep
from seq2see.answering.answerer import CHECKS, Answerer
from seq2see.config import TrainingConfig
from seq2see.data.batching import Batch
from seq2see.errors import InputError
from seq2see.inspection.trace import Recording, attached, mute_head
from seq2see.model.transformer import Transformer, at_rest
from seq2see.page import WORKER, live
from seq2see.page.describe import EXAMPLES
from seq2see.serve.batching import Limits
from seq2see.serve.forms import TraceRequest
from seq2see.serve.traces import Tracer, describe_trace
from seq2see.storage.folder import Tokenizers
from seq2see.storage.weights import in_eight_bits, put_weights, read_weights, weights_bytes, weights_of
from seq2see.tasks.dates import in_words
from seq2see.tokenizers.tokenizer import Tokenizer
from seq2see.training.learner import Objective
from seq2see.training.schedule import learning_rate

Run = Callable[[str, Any], Any]

#: What the tests ask of the modules. Numbers come back in base 64.
HARNESS = """
const written = ({ shape, data }) => {
  const bytes = new Uint8Array(Float32Array.from(data).buffer);
  let text = "";
  for (let i = 0; i < bytes.length; i += 8192) text += String.fromCharCode(...bytes.subarray(i, i + 8192));
  return { shape, data: btoa(text) };
};
const right = ({ tried, answerer }) => tried.filter(([text, answer]) => answerer.says(text) === answer).length;
const weightsOf = async ({ packed, parts }) => {
  const bytes = new Uint8Array(await new Blob(parts.map(fromBase85)).arrayBuffer()).slice(0, packed);
  return readWeights(await inflate(bytes));
};
const asked = {
  async forward({ config, weights, source, target, edits, cached }) {
    const model = new Transformer(config, await weightsOf(weights));
    const values = new Map();
    model.keep = recorder(edits, values);
    const memory = model.encode(source);
    let last = model.decode(target.slice(0, cached || target.length), memory);
    if (cached) last = model.decode(target.slice(cached), memory, last.cache);
    return [...values].map(([name, value]) => ({ name, ...written(value) }));
  },
  async load({ name, model, weights }) {
    globalThis.models ??= {};
    globalThis.models[name] = new Answerer(model, await weightsOf(weights));
  },
  async describe({ name, request }) {
    const json = await globalThis.models[name].describe(request, async () => {});
    return { ...json, tensors: json.tensors.map((tensor) => ({ ...tensor, ...written(tensor) })) };
  },
  products({ sizes }) {
    let seed = 1;
    const next = () => (seed = (seed * 48271) % 2147483647) / 2147483647 - 0.5;
    const random = (size, Numbers) => Numbers.from({ length: size }, next);
    return sizes.map(([rows, out, width, mine, bits]) => {
      const Numbers = bits === 64 ? Float64Array : Float32Array;
      const x = { shape: [rows, width], data: random(rows * width, Numbers) };
      const bias = { shape: [out], data: random(out, Float32Array) };
      const weight = { shape: [out, width], data: random(out * width, mine ? Float32Array : Numbers) };
      const other = { shape: [64, 512], data: random(2 ** 15, Float32Array) };
      const plain = linear(x, weight, bias);
      const known = new Map([["other", other], ...(mine ? [["weight", weight]] : [])]);
      const fast = fastLinear(known);
      const found = fast(x, weight, bias);
      const far = found.data.reduce((most, value, index) => Math.max(most, Math.abs(value - plain.data[index])), 0);
      const exact = found.data.constructor === Numbers;
      return { moved: other.data.byteOffset > 0, shape: found.shape, far, exact, plain: far === 0 };
    });
  },
  encode({ tokenizer, texts }) {
    const made = new Tokenizer(tokenizer);
    return texts.map((text) => {
      const { ids, spans } = made.encode(fold(text));
      return { ids, spans, text: made.decode(ids), folded: fold(text) };
    });
  },
  fault({ tokenizer, texts }) {
    return texts.map((text) => new Tokenizer(tokenizer).fault(text));
  },
  async learn({ config, weights, settings, batches, pad, rates }) {
    const numbers = await weightsOf(weights);
    const learner = new Learner(config, numbers, settings);
    const made = batches.map(([sources, targets]) => batchOf(sources, targets, pad));
    if (rates) return rates.map((rate, n) => learner.step(made[n], pad, rate));
    const loss = learner.gradients(made[0], pad);
    const flat = (data) => written({ shape: [data.length], data });
    return { loss, gradients: [...learner.parameters].map(([name, { grad }]) => ({ name, ...flat(grad) })) };
  },
  train({ about, plan, steps, counted }) {
    const trainer = new Trainer(about, plan);
    const losses = Array.from({ length: steps }, () => (trainer.step(), trainer.loss));
    return { losses, right: counted && right(trainer), tried: trainer.tried, learned: trainer.pairs };
  },
  drawn({ config, seed }) {
    return [...drawn(config, randomOf(seed))].map(([name, value]) => ({ name, ...written(value) }));
  },
  read({ task, tokenizer, texts }) {
    const made = new Tokenizer(tokenizer);
    return texts.map((text) => ({ read: prepared(task, made, text), fit: !faultOf(task, text) }));
  },
};
"""
NODE = """
const lines = require("node:readline").createInterface({ input: process.stdin });
lines.on("line", async (line) => {
  const { what, argument } = JSON.parse(line);
  console.log(JSON.stringify((await asked[what](argument)) ?? null));
});
"""


#: Where the scripts run. Both are tried by `make verify`; a browser takes longer to hand over its answers.
PLACES = sweep(["node", "chromium"], 1) if shutil.which("node") else ["chromium"]


@pytest.fixture(scope="module", params=PLACES)
def where(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def run(where: str, request: pytest.FixtureRequest) -> Iterator[Run]:
    """Call a function of the harness, in the browser or in Node."""
    script = live.bundle(WORKER[:-1]) + HARNESS
    if where == "chromium":
        page = request.getfixturevalue("browser").new_page()
        page.add_script_tag(content=script)
        yield lambda what, argument: page.evaluate("([what, argument]) => asked[what](argument)", [what, argument])
        page.close()
        return
    with subprocess.Popen(
        ["node", "--eval", script + NODE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin
        assert process.stdout

        def ask(what: str, argument: Any) -> Any:
            process.stdin.write(json.dumps({"what": what, "argument": argument}) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield ask
        process.stdin.close()


def numbers(value: dict[str, Any]) -> np.ndarray:
    return np.frombuffer(b64decode(value["data"]), np.float32).reshape(value["shape"])


def packed(weights: bytes) -> dict[str, Any]:
    size, parts = live.packed(weights)
    return {"packed": size, "parts": parts}


# --- the network ---------------------------------------------------------------------------------------

SOURCE, TARGET = [1, 5, 3, 10, 2, 2], [4, 7, 12, 1, 3]
SHAPES: list[dict[str, Any]] = [
    {},
    {"norm": "pre", "positions": "learned"},
    {"activation": "gelu", "share_output": True, "output_bias": True},
    {"share_embeddings": True, "source_vocabulary": 13, "positions": "halves", "scale_embeddings": False},
    {"share_embeddings": True, "share_output": True, "source_vocabulary": 13, "embedding_norm": True},
    {"activation": "swish", "norm": "pre", "positions": "fairseq"},
    {"positions": "opennmt", "norm": "pre", "embedding_norm": True},
]


def recorded(model: Transformer, edit: dict[str, Any] | None = None) -> dict[str, torch.Tensor]:
    recording = Recording(edit)
    with at_rest(model), attached(model, recording):
        model(torch.tensor(SOURCE), torch.tensor(TARGET))
    return recording.values


def assert_same(found: list[dict[str, Any]], expected: dict[str, torch.Tensor], atol: float = 1e-5) -> None:
    assert [value["name"] for value in found] == list(expected)
    for value in found:
        theirs = expected[value["name"]].numpy()
        np.testing.assert_allclose(numbers(value), theirs, atol=atol, rtol=1e-5, err_msg=value["name"])


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "-".join(map(str, shape.values())) or "paper")
def test_every_value_of_random_networks(run: Run, shape: dict[str, Any]) -> None:
    model = small_model(**shape)
    argument = {
        "config": vars(model.config), "weights": packed(weights_bytes(weights_of(model))), "source": SOURCE,
        "target": TARGET, "edits": [],
    }  # fmt: skip
    expected = recorded(model)
    assert_same(run("forward", argument), expected)
    cached = {value["name"]: numbers(value) for value in run("forward", {**argument, "cached": 3})}
    np.testing.assert_allclose(cached["logits"], expected["logits"][3:], atol=1e-5)
    keys = "decoder.layers.1.self_attention.k"
    np.testing.assert_allclose(cached[keys], expected[keys], atol=1e-5)


# --- learning ------------------------------------------------------------------------------------------

LEARN = {"beta1": 0.9, "beta2": 0.98, "epsilon": 1e-9, "clip": 1.0, "label_smoothing": 0.1}


def some_batches(count: int, vocabulary: tuple[int, int] = (11, 13)) -> list[tuple[list[list[int]], list[list[int]]]]:
    """Random ids in texts of different lengths; 0 fills up."""
    draw = random.Random(3)

    def texts(size: int) -> list[list[int]]:
        return [[draw.randrange(1, size) for _ in range(draw.randint(2, 9))] for _ in range(5)]

    return [(texts(vocabulary[0]), texts(vocabulary[1])) for _ in range(count)]


def torch_loss(model: Transformer, pairs: tuple[list[list[int]], list[list[int]]]) -> torch.Tensor:
    batch = Batch.of(*pairs, (0, 0))
    objective = Objective(model, TrainingConfig.of(label_smoothing=LEARN["label_smoothing"]), 0, written=True)
    return objective(batch, None, (batch.target_out != 0).sum())


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "-".join(map(str, shape.values())) or "paper")
def test_gradients_are_those_of_pytorch_on_every_parameter(run: Run, shape: dict[str, Any]) -> None:
    model = small_model(**shape, dropout=0.0).train()
    [pairs] = some_batches(1, (model.config.source_vocabulary, 13))
    argument = {
        "config": vars(model.config),
        "weights": packed(weights_bytes(weights_of(model))),
        "settings": LEARN,
        "batches": [pairs],
        "pad": 0,
    }
    found = run("learn", argument)
    model.double()  # what PyTorch rounds is no fault of ours
    loss = torch_loss(model, pairs)
    loss.backward()
    assert found["loss"] == pytest.approx(loss.item(), rel=1e-5)
    ours = {one["name"]: numbers(one) for one in found["gradients"]}
    theirs = {name: value.grad.numpy().ravel() for name, value in model.named_parameters() if value.grad is not None}
    assert {*ours} == {*weights_of(model)}
    for name, expected in theirs.items():
        if name not in ours:
            continue  # a table that is shared has one name here
        scale = max(np.abs(expected).max(), 1e-4)  # the gradient of a key's bias is 0, but for rounding
        np.testing.assert_allclose(ours[name] / scale, expected / scale, atol=1e-4, err_msg=name)


def test_fifty_steps_have_the_losses_of_pytorch(run: Run) -> None:
    model = small_model(dropout=0.0).train()
    batches = some_batches(50)
    argument = {
        "config": vars(model.config),
        "weights": packed(weights_bytes(weights_of(model))),
        "settings": LEARN,
        "batches": batches,
        "pad": 0,
    }
    plan = TrainingConfig.of(steps=50, warmup=10, schedule="cosine", learning_rate=0.01)
    rates = [learning_rate(step, plan, model.config.d_model) for step in range(1, 51)]
    found = run("learn", {**argument, "rates": rates})
    adam = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    losses = []
    for rate, pairs in zip(rates, batches, strict=True):
        adam.zero_grad()
        loss = torch_loss(model, pairs)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.param_groups[0]["lr"] = rate
        adam.step()
        losses.append(loss.item())
    np.testing.assert_allclose(found, losses, rtol=1e-3)
    assert len({round(loss, 6) for loss in losses}) > 40


def test_a_network_is_drawn_as_pytorch_draws_it(run: Run) -> None:
    config = seq2see.load("dates").config.model
    torch.manual_seed(1)
    theirs = dict(Transformer(config).named_parameters())
    ours = {one["name"]: numbers(one) for one in run("drawn", {"config": vars(config), "seed": 1})}
    assert [*ours] == [*theirs]
    for name, value in theirs.items():
        assert ours[name].shape == value.shape, name
        assert ours[name].std() == pytest.approx(value.std().item(), rel=0.2, abs=1e-9), name


PLAN = {"heads": 4, "rate": 0.005, "steps": 800, "examples": 0, "pairs": None, "seed": 3}


def test_a_trainer_keeps_some_pairs_apart_and_its_loss_falls(run: Run) -> None:
    about = live.described(seq2see.load("dates"))
    found = run("train", {"about": about, "plan": {**PLAN, "steps": 20, "examples": 300}, "steps": 20})
    assert np.mean(found["losses"][-5:]) < 0.9 * np.mean(found["losses"][:5])
    tried, learned = ({text for text, _ in found[part]} for part in ("tried", "learned"))
    assert len(found["tried"]) == 200
    assert len(found["learned"]) == 300
    assert not tried & learned
    assert all(in_words(date.fromisoformat(text)) == answer for text, answer in found["tried"])
    pairs = [[str(n), str(n)[::-1]] for n in range(100, 160)]
    found = run("train", {"about": about, "plan": {**PLAN, "steps": 8, "heads": 2, "pairs": pairs}, "steps": 8})
    assert found["losses"][-1] < found["losses"][0]
    assert len(found["tried"]) == 6


@pytest.mark.heavy
def test_dates_are_learned_from_nothing(run: Run) -> None:
    found = run(
        "train", {"about": live.described(seq2see.load("dates")), "plan": PLAN, "steps": PLAN["steps"], "counted": True}
    )
    assert found["right"] >= 190


def test_edits_act_where_they_say(run: Run) -> None:
    model = small_model()
    giver = torch.randn(5, 12, generator=torch.manual_seed(1))

    def patch(x: torch.Tensor) -> torch.Tensor:
        x[2] = giver[3]
        return x

    def cell(x: torch.Tensor) -> torch.Tensor:
        x[1, 4, 2] = 0.5
        return x

    theirs = {
        "encoder.layers.0.self_attention.z": mute_head(2),
        "decoder.layers.1.cross_attention.weights": cell,
        "decoder.layers.0.feed_forward_norm.out": patch,
    }
    edits = [
        {"name": "encoder.layers.0.self_attention.z", "head": 2, "row": -1, "col": -1, "value": 0},
        {"name": "decoder.layers.1.cross_attention.weights", "head": 1, "row": 4, "col": 2, "value": 0.5},
        {"name": "decoder.layers.0.feed_forward_norm.out", "head": -1, "row": 2, "col": -1, "fromRow": 3,
         "from": {"shape": [5, 12], "data": giver.flatten().tolist()}},
    ]  # fmt: skip
    found = run(
        "forward",
        {"config": vars(model.config), "weights": packed(weights_bytes(weights_of(model))), "source": SOURCE,
         "target": TARGET, "edits": edits},
    )  # fmt: skip
    assert_same(found, recorded(model, theirs))
    assert not torch.allclose(recorded(model, theirs)["logits"], recorded(model)["logits"], atol=1e-4)


def test_the_fast_products_are_the_written_ones(run: Run) -> None:
    """Rows, columns of the result, width, whether the matrix is a weight, bits; some are no multiples of 4 or 64."""
    fast = [
        [1, 258, 512, 1, 32],
        [130, 66, 512, 1, 32],
        [64, 96, 512, 1, 64],
        [67, 90, 70, 0, 32],
        [130, 64, 31, 0, 32],
    ]
    plain = [[2, 31, 12, 0, 32], [67, 90, 70, 0, 64], [4, 3000, 1200, 0, 32]]  # small, of 64 bits, too large
    for size, found in zip(fast + plain, run("products", {"sizes": fast + plain}), strict=True):
        assert found["moved"], "the program does not run"
        assert found["shape"] == size[:2]
        assert found["exact"]  # 64 bits stay 64
        assert found["far"] < (1e-12 if size[4] == 64 else 2e-5), size
        assert found["plain"] == (size in plain), size  # other sums, in another order


@pytest.mark.parametrize("bits", [16, 8])
def test_smaller_weights_are_the_numbers_that_they_stand_for(run: Run, bits: int, tmp_path: Path) -> None:
    model = small_model()
    weights = weights_of(model)
    small = in_eight_bits(weights) if bits == 8 else {name: value.half() for name, value in weights.items()}
    data = weights_bytes(small)
    (tmp_path / "model.safetensors").write_bytes(data)
    put_weights(model, read_weights(tmp_path / "model.safetensors"), "weights")
    argument = {"config": vars(model.config), "weights": packed(data), "source": SOURCE, "target": TARGET, "edits": []}
    assert_same(run("forward", argument), recorded(model))


# --- text ----------------------------------------------------------------------------------------------

TEXTS = [
    "1845-01-05", "Where is the train station?", "  I\u00a0 m…  ", "naïve cafe\u0301 42 km/h <eos> <0x41> <",
    "日本語 😀 Ω", "", "don't—you?!  “quoted”", "A\tB\x85C\ufeffD", "ΑΣ ÉTÉ ß", "x" * 40,
    "cats see the dogs, don't they? small " + "c" * 101, "catcatsmall dogthe cafés日本 sees 42a_b",
]  # fmt: skip


def test_texts_are_cut_alike(run: Run) -> None:
    corpus = ["the cat sees the small cat", "a small cat sees the dog, don't it?", "naïve cafés"] * 4
    made = {
        "en-fr": seq2see.load("en-fr").tokenizers.source,
        "bpe": Tokenizer.bpe(corpus, 600),
        "words": Tokenizer.words(corpus),
        "unigram": Tokenizer.unigram(corpus, 600),
        "wordpiece": Tokenizer.wordpiece(corpus, 60),
    }
    for name, tokenizer in made.items():
        found = run("encode", {"tokenizer": live.tokenizer_json(tokenizer), "texts": TEXTS})
        for text, one in zip(TEXTS, found, strict=True):
            folded = seq2see.tokenizers.tokenizer.fold(text)
            assert one["folded"] == folded, name
            assert one["ids"] == tokenizer.encode(folded), (name, text)
            assert one["text"] == tokenizer.decode(one["ids"]), (name, text)
            spans = tokenizer.engine.encode(folded).offsets
            assert [tuple(span) for span in one["spans"]] == spans, (name, text)


def test_symbols_and_features_are_cut_alike(run: Run) -> None:
    """Linguists' models: phones after any separator, and features after a word."""
    cases = [
        (Tokenizer.symbols(["a ŋ ɟ e l o s", "t͡ʃ aː"]), ["a t͡ʃ aː", "e  l", " ŋ ", "", "a"]),
        *[
            (Tokenizer.symbols([f"a{mark}bc{mark}d"], mark), [f"d{mark}{mark}a", f"{mark}bc", "a", ""])
            for mark in "|;,-_/+·."
        ],
        (Tokenizer.features(["walk <V> <PST> <(> <2>"]), ["walk <2>", "kl <V> <(>", "w"]),
    ]
    for tokenizer, texts in cases:
        found = run("encode", {"tokenizer": live.tokenizer_json(tokenizer), "texts": texts})
        for text, one in zip(texts, found, strict=True):
            assert one["ids"] == tokenizer.encode(one["folded"]), (tokenizer.kind, text)
            assert one["text"] == tokenizer.decode(one["ids"]), (tokenizer.kind, text)
            assert [tuple(span) for span in one["spans"]] == tokenizer.engine.encode(one["folded"]).offsets
    # what has no token is named as Python names it, but for its quotes
    strange = [(cases[0][0], "a x e"), (cases[-1][0], "walk <X> <V>"), (cases[-1][0], "walß <V>")]
    for tokenizer, text in strange:
        (fault,) = run("fault", {"tokenizer": live.tokenizer_json(tokenizer), "texts": [text]})
        with pytest.raises(InputError) as refused:
            tokenizer.check(text)
        assert re.sub("[‘’']", "'", fault) == re.sub("[‘’']", "'", str(refused.value))


def some_texts(count: int) -> list[str]:
    """Characters of every script that this Python and the browser know alike, in words with spaces and marks."""
    draw = random.Random(5)
    known = [
        chr(code)
        for code in range(0x20, 0x1F000)
        if unicodedata.category(chr(code)) not in {"Cn", "Cs", "Co"}
        # Newer versions of Unicode give these other cases and names: browsers are ahead of Python.
        and not (0x1C80 <= code <= 0x1C8F or 0xA7C0 <= code <= 0xA7FF or 0x10500 <= code <= 0x105FF)
    ]
    near = [*"0123456789 -./,'’abcxyzABCÉéßİıΣσςŒœ\u00a0\u200b\u202f\u0301\u0327\ufeff", "ﬁ", "Ⅻ", "５", "٣"]
    pools = [near, near, known]
    made = ["".join(draw.choice(draw.choice(pools)) for _ in range(draw.randint(1, 24))) for _ in range(count)]
    return [*made, *known[::7], "the 29th of August 1958", "5 Jan '45", "May 5 2010", "x" * 81, "  ", "𝟏𝟐 ΟΔΟΣ"]


@pytest.mark.parametrize("count", sweep([800, 4000], 1))
def test_texts_are_prepared_alike(run: Run, tracers: dict[str, Tracer], count: int) -> None:
    texts = some_texts(count)
    letters = Tokenizer.characters(["<pad>", "<sos>", "<eos>", *"abcxyz 0123456789-.,'ΣσABCäß", '"'])
    features = Tokenizer.features([f"{''.join(letters.vocabulary()[3:])} <V> <PST> <(> <)> <2>"])
    texts += ["walk\tV;PST", "x\t N(2;PST) |‹V\u2003<2>", "\tV", "abc\t", "a b\tc;d\t(e)", "\t\t"]
    phones = Tokenizer.symbols(["a b c x AB é ß -", "ae"])
    texts += ["a  B AB", "é ae É Ae", "x\u00a0a", "AE ß - –", "abc"]
    network = tracers["dates"].model.network
    others = {
        "phones": Answerer(replace(network.config, task="phones"), Tokenizers(phones, letters), network, None),
        "features": Answerer(replace(network.config, task="features"), Tokenizers(features, letters), network, None),
        "human-dates": seq2see.load("human-dates").answerer,
        "dates": tracers["dates"].model.answerer,
        "letters": Answerer(replace(network.config, task="letters"), Tokenizers(letters, letters), network, None),
        "imported": Answerer(replace(network.config, task="imported"), Tokenizers(letters, letters), network, None),
    }
    for task, ours in others.items():
        source = ours.tokenizers.source
        found = run("read", {"task": task, "tokenizer": live.tokenizer_json(source), "texts": texts})
        for text, one in zip(texts, found, strict=True):
            assert one["read"] == ours.read(text), (task, text)
            fit = True
            try:
                CHECKS.get(task, lambda _: None)(text)
            except InputError:
                fit = False
            assert one["fit"] == fit, (task, text)


@pytest.mark.parametrize("name", sweep(sorted(EXAMPLES, key=lambda name: "dates" not in name), 2))
def test_every_suggested_text_is_answered_alike_by_file_and_server(
    where: str, loaded: Run, tracers: dict[str, Tracer], name: str
) -> None:
    if "-" in name and name != "human-dates" and where == "chromium":
        pytest.skip("handing 33 MB to a browser takes long: Node reads them here")
    for text in EXAMPLES[name]:
        expected = describe_trace(tracers[name], TraceRequest(input=text, names=[]))
        found = loaded(name, {"input": text, "names": []})
        assert (found["text"], found["output"]) == (expected["text"], expected["output"])
        if name == "human-dates":
            assert not found["output"].startswith("no ")


def test_an_unfit_text_that_is_answered_anyway_is_called_so(loaded: Run, tracers: dict[str, Tracer]) -> None:
    for text, unfit in (("hello", True), ("2000-02-30", True), ("2000-02-29", False)):
        ours = describe_trace(tracers["dates"], TraceRequest(input=text, names=[], anyway=True))
        theirs = loaded("dates", {"input": text, "names": [], "anyway": True})
        assert ("unfit" in ours, "unfit" in theirs) == (unfit, unfit)


# --- answers -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tracers() -> dict[str, Tracer]:
    return {name: Tracer(seq2see.load(name), Limits(answer=2**30)) for name in EXAMPLES}


@pytest.fixture(scope="module")
def loaded(run: Run, tracers: dict[str, Tracer]) -> Run:
    """Answer requests; a model is handed over when it is asked for the first time."""
    known: set[str] = set()

    def describe(name: str, request: dict[str, Any]) -> Any:
        model = tracers[name].model
        if name not in known:
            assert model.path
            weights = (model.path / "model.safetensors").read_bytes()
            run("load", {"name": name, "model": live.described(model), "weights": packed(weights)})
            known.add(name)
        return run("describe", {"name": name, "request": request})

    return describe


#: All values, and no parameters.
VALUES = [
    *(f"*.{role}" for role in ("ids", "embedded", "scaled", "positions", "sum", "normed", "q", "k", "v", "scores")),
    *("*.masked", "*.weights", "*.z", "*.out", "*.hidden", "encoder.memory", "logits", "probabilities"),
]  # fmt: skip
CELL = {
    "input": "2025-09-28",
    "name": "decoder.layers.1.cross_attention.z",
    "head": 3,
    "row": 12,
    "col": 1,
    "fromRow": 14,
}
ROWS = {"input": "2025-09-28", "name": "decoder.layers.0.cross_attention.weights", "head": 2}
MEMORY = {"input": "2025-09-28", "name": "encoder.memory", "row": 4, "fromRow": 6}
DRAWN = {"attention": "cross", "layer": 1, "head": 3, "row": 9, "shares": [0, 0.05, 0.1, 0, 0, 0, 0, 0.85, 0, 0, 0, 0]}
REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("dates", {"input": "1845-01-05", "beam": 4, "also": ["lens"], "effects": ["cross.1.3", "encoder.0", "cross"]}),
    ("dates", {"input": "2025-09-03", "muted": [("cross", 1, 3), ("encoder", 0, 1)], "beam": 2}),
    ("dates", {"input": "1426-08-10", "prefix": [22, 36], "also": ["lens"]}),
    ("dates", {"input": "1845-01-05", "patches": [CELL, ROWS], "muted": [("cross", 1, 3)], "beam": 2, "also": ["lens"]}),
    ("dates", {"input": "1845-01-05", "patches": [MEMORY], "beam": 2}),
    ("dates", {"input": "1845-07-05", "drawn": DRAWN, "beam": 2, "effects": ["cross.1.3", "encoder.0.1"]}),
    ("en-fr", {"input": "Where is the train station?", "beam": 3, "also": ["lens"], "names": VALUES}),
    ("en-fr", {"input": "  She doesn’t want 😀 to go. ", "muted": [("cross", 1, 2)], "names": ["*.weights", "logits"]}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "request_"), REQUESTS, ids=lambda value: str(value)[:30])
def test_an_answer_is_described_as_the_server_describes_it(
    where: str, loaded: Run, tracers: dict[str, Tracer], name: str, request_: dict[str, Any]
) -> None:
    if name == "en-fr" and where == "chromium" and shutil.which("node"):
        pytest.skip("handing 33 MB to a browser takes long: Node reads them here, the browser in tests of the file")
    muted = [dict(zip(("attention", "layer", "head"), head, strict=True)) for head in request_.get("muted", [])]
    asked = TraceRequest.model_validate_json(json.dumps({**request_, "muted": muted}))
    expected = describe_trace(tracers[name], asked)
    patches = [patch.model_dump() for patch in asked.patches]
    found = loaded(name, {**request_, "muted": muted, "patches": patches})
    if patches:
        assert found["patches"] == expected["patches"]
    if "drawn" in request_:
        assert found["drawn"] == expected["drawn"]
        assert found["output"] == "July 5, 1745"
    for key in ("text", "output", "finished", "forced", "muted", "d_model", "norm", "source", "target"):
        assert found[key] == expected[key], key
    data = b64decode(expected["data"])
    by_name = {value["name"]: value for value in found["tensors"]}
    assert [*by_name] == [entry["name"] for entry in expected["tensors"]] or {*by_name} == {
        entry["name"] for entry in expected["tensors"]
    }
    for entry in expected["tensors"]:
        value = by_name[entry["name"]]
        assert (value["symbol"], value["sentence"]) == (entry["symbol"], entry["sentence"])
        theirs = np.frombuffer(data, np.float32, int(np.prod(entry["shape"])), entry["offset"]).reshape(entry["shape"])
        np.testing.assert_allclose(numbers(value), theirs, atol=1e-4, rtol=1e-4, err_msg=entry["name"])
    for ours, theirs in zip(found["steps"], expected["steps"], strict=True):
        assert ours["id"] == theirs["id"]
        assert ours["log_probability"] == pytest.approx(theirs["log_probability"], abs=1e-4, rel=1e-3)
        assert ours["entropy"] == pytest.approx(theirs["entropy"], abs=1e-4, rel=1e-3)
        assert [one["token"] for one in ours["top"][:5]] == [one["token"] for one in theirs["top"][:5]]
    assert_alike(found["beams"], expected["beams"])
    if "effects" in request_:
        assert_alike(found["effects"], expected["effects"])
    if "lens" in request_.get("also", ()):
        assert_alike(found["lens"], expected["lens"])


def assert_alike(found: Any, expected: Any) -> None:
    """The same lists, keys and words; numbers to a few digits."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key in expected:
            assert_alike(found[key], expected[key])
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_alike(one, other)
    else:
        assert found == (pytest.approx(expected, abs=1e-4, rel=1e-3) if isinstance(expected, float) else expected)
