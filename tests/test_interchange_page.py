"""Imported SentencePiece models in the page: texts are cut, written and answered there as here."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import unicodedata
from pathlib import Path
from typing import Any

import pytest
import sentencepiece

import seq2see
from conftest import sweep
from seq2see.interchange.reading import import_model
from seq2see.page import live, web
from seq2see.tokenizers import sentencepiece as spm
from seq2see.tokenizers.tokenizer import Tokenizer
from test_interchange import FAMILIES, LANGUAGES, LINES, TEXTS

TOKEN_FORMS = ("normalized", "lstrip", "rstrip", "single_word")


ACCEPTS = """
import { readFileSync } from "node:fs";
const { module, forms } = JSON.parse(readFileSync(0, "utf-8"));
const { SentencePiece } = await import(module);
console.log(JSON.stringify(forms.map((form) => {
  try {
    new SentencePiece(form, 10);
    return true;
  } catch (error) {
    if (String(error).includes("cannot tokenize text as this model does")) return false;
    throw error;
  }
})));
"""


#: A part of tokenizer.json, and what it is replaced by.
OTHER_FORMS: list[tuple[tuple[str | int, ...], Any]] = [
    *((("added_tokens", 0, how), True) for how in TOKEN_FORMS),
    (("pre_tokenizer",), None),
    (("pre_tokenizer", "type"), "ByteLevel"),
    (("pre_tokenizer", "prepend_scheme"), "never"),
    (("post_processor", "type"), "BertProcessing"),
    (("normalizer",), None),
    (("normalizer",), {"type": "Strip", "strip_left": True, "strip_right": False}),
    (("normalizer",), {"type": "Replace", "pattern": {"String": "a"}, "content": "b"}),
    (("normalizer",), {"type": "Lowercase"}),
    (("normalizer",), {"type": "Sequence", "normalizers": []}),
    (("normalizer",), {"type": "Sequence", "normalizers": [{"type": "Sequence", "normalizers": [{"type": "NFKC"}]}]}),
    (("model", "type"), "WordPiece"),
    (("model", "fuse_unk"), False),
    (("model", "dropout"), 0.1),
    (("model", "continuing_subword_prefix"), "##"),
    (("model", "end_of_word_suffix"), "</w>"),
    (("model", "ignore_merges"), True),
    (("model", "byte_fallback"), True),
]  # fmt: skip


NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="Node is not installed")

ASK = """
import { readFileSync } from "node:fs";
const { module, tokenizer, size, texts } = JSON.parse(readFileSync(0, "utf-8"));
const { tokenizerOf } = await import(module);
const made = tokenizerOf(tokenizer, size);
console.log(JSON.stringify(texts.map((text) => {
  const { ids, spans } = made.encode(text);
  return { ids, spans, text: made.decode(ids) };
})));
"""

CHALLENGE = [
    json.loads(line)["text"]
    for line in (Path(__file__).parent / "challenge-en-fr.jsonl").read_text(encoding="utf-8").splitlines()
]


def some_texts(count: int) -> list[str]:
    """Sentences of people, then characters of every script among marks, spaces and names of special tokens."""
    draw = random.Random(7)
    known = [chr(code) for code in range(0x20, 0x1F000) if unicodedata.category(chr(code)) not in {"Cn", "Cs", "Co"}]
    near = [
        *"  abcdeéE\u0301\u0327ﬁ½Ⅻ５ｶﾞ①\u00a0\u200b\u3000\ufeff…“”’",
        "▁",
        "</s>",
        "<unk>",
        "the",
        "<0x41>",
        "\r\n",
        "\t",
        "👍🏽",
    ]
    made = [
        "".join(draw.choice(draw.choice([near, near, known])) for _ in range(draw.randint(0, 24))) for _ in range(count)
    ]
    return [*CHALLENGE, *LINES[:8], *known[:: max(1, 8 * len(known) // count)], *made][:count]


def trained(place: Path, kind: str, **settings: Any) -> Tokenizer:
    """Train a SentencePiece model with its usual normaliser, and number its pieces as Marian does."""
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*LINES, *CHALLENGE]), model_prefix=str(place / kind), model_type=kind, vocab_size=700,
        hard_vocab_limit=False, minloglevel=2, character_coverage=0.999, **settings,
    )  # fmt: skip
    model = spm.read(place / f"{kind}.model")
    names = [*(piece.text for piece in model.pieces), "<pad>"]
    engine = spm.engine_of(model, names, "<unk>", ["<unk>", "<s>", "</s>", "<pad>"])
    return Tokenizer.of_others(engine, ["<s>"], ["</s>"], "<pad>", len(names))


KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "unigram": ("unigram", {}),
    "bpe": ("bpe", {}),
    "unigram with bytes": ("unigram", dict(byte_fallback=True)),
    "bpe with bytes": ("bpe", dict(byte_fallback=True)),
    "unigram as it is": ("unigram", dict(normalization_rule_name="identity", add_dummy_prefix=False,
                         remove_extra_whitespaces=False)),
    "bpe, small letters": ("bpe", dict(normalization_rule_name="nmt_nfkc_cf")),
}  # fmt: skip


def in_node(tokenizer: Tokenizer, texts: list[str], place: Path) -> list[dict[str, Any]]:
    module = place / "tokenizer.mjs"
    module.write_text(web.joined(("tokenizer.js", "sentencepiece.js"), ("tokenizerOf",)), encoding="utf-8")
    asked = {
        "module": module.as_uri(),
        "tokenizer": live.tokenizer_json(tokenizer),
        "size": tokenizer.size,
        "texts": texts,
    }
    assert NODE is not None
    run = subprocess.run(
        [NODE, "--input-type=module", "--eval", ASK], input=json.dumps(asked), capture_output=True, encoding="utf-8"
    )
    assert run.returncode == 0, run.stderr
    found: list[dict[str, Any]] = json.loads(run.stdout)
    return found


@pytest.mark.parametrize("count", sweep([200, 5000], 1))
@pytest.mark.parametrize("name", KINDS)
def test_texts_are_cut_in_the_page_as_here(name: str, count: int, tmp_path: Path) -> None:
    kind, settings = KINDS[name]
    tokenizer, texts = trained(tmp_path, kind, **settings), some_texts(count)
    assert len(texts) == count
    expected = tokenizer.encode_batch(texts)
    found = in_node(tokenizer, texts, tmp_path)
    wrong = [text for text, ids, one in zip(texts, expected, found, strict=True) if one["ids"] != ids]
    assert wrong == []
    decoded = tokenizer.decode_batch(expected)
    assert [one["text"] for one in found] == decoded
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / f"{kind}.model"))
    plain = [*CHALLENGE, *LINES[:8]]
    for text, ids in zip(plain, tokenizer.encode_batch(plain), strict=True):
        own = theirs.encode(text)
        if ids[1:-1] != own:  # two ways are equally likely, and ``tokenizers`` chooses the other one
            assert kind == "unigram"
            scores = [sum(map(theirs.get_score, some)) for some in (ids[1:-1], own)]
            assert scores[0] == pytest.approx(scores[1], rel=1e-6), text


@pytest.mark.parametrize("name", sweep(["marian", "m2m100", "mbart", "pegasus"], 2))
def test_an_imported_model_answers_in_node_as_here(name: str, tmp_path: Path) -> None:
    """The export compares the answers itself, and refuses what differs: greedy, and by the beam that the model has."""
    (tmp_path / "theirs").mkdir()
    FAMILIES[name](tmp_path / "theirs").save_pretrained(tmp_path / "theirs")
    import_model(str(tmp_path / "theirs"), tmp_path / "ours", LANGUAGES.get(name, (None, None)))
    model = seq2see.load(tmp_path / "ours", engine="torch")
    assert live.why_not(model.tokenizers, model.config.decoding) is None
    texts = [*TEXTS, *LINES[:8], "a </s> b", "ﬁne ½ cafe\u0301s"]
    said = web.export(
        tmp_path / "web",
        name,
        model,
        lambda asked: [answer.output for answer in model.answers(asked, whole=True)],
        inputs=texts,
    )
    assert f"{len(texts)} of {len(texts)} answers in Node the same" in said
    page = live.live_page(name, model, TEXTS[0])
    assert "Precompiled" in page
    assert "class CharacterMap" in page


def test_what_the_page_cannot_cut_is_said(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    FAMILIES["bart"](tmp_path / "theirs").save_pretrained(tmp_path / "theirs")
    import_model(str(tmp_path / "theirs"), tmp_path / "ours")
    model = seq2see.load(tmp_path / "ours", engine="torch")
    assert live.why_not(model.tokenizers, model.config.decoding) == "the page cannot cut text into byte-level bpe"


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_python_and_javascript_accept_the_same_tokenizers(kind: str, tmp_path: Path) -> None:
    form = live.tokenizer_json(trained(tmp_path, kind))
    forms = [form]
    for places, value in OTHER_FORMS:
        other = part = json.loads(json.dumps(form))
        for place in places[:-1]:
            part = part[place]
        part[places[-1]] = value
        forms.append(other)
    module = tmp_path / "tokenizer.mjs"
    module.write_text(web.joined(("tokenizer.js", "sentencepiece.js"), ("SentencePiece",)), encoding="utf-8")
    assert NODE is not None
    run = subprocess.run(
        [NODE, "--input-type=module", "--eval", ACCEPTS],
        input=json.dumps({"module": module.as_uri(), "forms": forms}),
        capture_output=True,
        encoding="utf-8",
    )
    assert run.returncode == 0, run.stderr
    here = [live._is_sentencepiece(one) for one in forms]
    asked = [None, *OTHER_FORMS]
    there = json.loads(run.stdout)
    assert [one for one, a, b in zip(asked, here, there, strict=True) if a != b] == []
    assert here[0]
    assert len({*here}) == 2
