"""Word alignments from cross-attention: what belongs to what, and where it stands in both texts."""

from __future__ import annotations

import json

import pytest
import torch
from starlette.testclient import TestClient
from typer.testing import CliRunner

import seq2see
from conftest import small_model
from seq2see.cli import app
from seq2see.errors import UserError
from seq2see.inspection.alignment import align, links_of, words_of
from seq2see.inspection.trace import record
from seq2see.serve.app import create_app
from seq2see.storage.folder import Tokenizers
from seq2see.tasks.dates import all_ordinals, pairs_of
from seq2see.tokenizers.tokenizer import Tokenizer

SENTENCES = ["the little cat sleeps there", "le petit chat dort là-bas", "the cats slept here"] * 20


def test_spans_are_of_the_text_that_was_read() -> None:
    model = seq2see.load("en-fr")
    asked = {"inputs": ["  The   cat  sleeps.", "The cat sleeps."], "whole": True, "align": True}
    with TestClient(create_app({"en-fr": model})) as client:
        answer, tidy = client.post("/api/predict", json=asked).json()["answers"]
    assert answer["read"] == "The cat sleeps."
    words = {answer["read"][slice(*link["source_span"])] for link in answer["alignment"]}
    assert words <= {"The", "cat", "sleeps", "."}
    assert "read" not in tidy


def test_words_are_letters_in_a_row_and_signs_stand_alone() -> None:
    def cut(text: str) -> list[str]:
        return [text[first:last] for first, last in words_of(text)]

    assert words_of("l'homme, là") == [(0, 7), (7, 8), (9, 11)]
    assert cut("1845-01-05") == ["1845", "-", "01", "-", "05"]
    assert cut("'tis  Tom’s' …") == ["'", "tis", "Tom’s", "'", "…"]
    assert cut("हिन्दी भाषा") == ["हिन्दी", "भाषा"]  # vowel signs are marks, not letters
    assert cut("我吃3个りんご") == ["我", "吃", "3", "个", "り", "ん", "ご"]
    assert cut(" ") == []


def test_tokens_are_gathered_into_words() -> None:
    source, target = "a big cat", "un chat"
    source_tokens = [(0, 0), (0, 1), (1, 5), (5, 7), (7, 9), (9, 9)]  # <sos> a| big| c|at <eos>
    target_tokens = [(0, 2), (2, 5), (5, 7), (7, 7)]  # un| ch|at <eos>
    weights = torch.tensor([
        [0.1, 0.4, 0.1, 0.0, 0.0, 0.4],
        [0.1, 0.0, 0.2, 0.3, 0.0, 0.4],
        [0.1, 0.1, 0.1, 0.0, 0.3, 0.4],
        [0.1, 0.0, 0.0, 0.0, 0.0, 0.9],
    ])  # fmt: skip
    links = links_of(weights, source_tokens, target_tokens, words_of(source), words_of(target))
    assert [(link.source, link.target) for link in links] == [(0, 0), (2, 1)]
    assert (links[1].source_span, links[1].target_span) == ((6, 9), (3, 7))
    assert 0.7 < links[0].weight < 0.8  # 0.4 where 0.125 is usual, beside 0.1 where it is 0.1
    assert links_of(weights, source_tokens, target_tokens, [], words_of(target)) == []


def test_what_always_gets_attention_counts_for_little() -> None:
    tokens = [(0, 1), (2, 3), (3, 4)]  # a b .
    weights = torch.tensor([[0.3, 0.1, 0.6], [0.1, 0.3, 0.6], [0.05, 0.05, 0.9]])
    links = links_of(weights, tokens, tokens, words_of("a b."), words_of("b a."))
    assert [link.source for link in links] == [0, 1, 2]
    assert [link.source for link in links_of(weights[:1], tokens, [(0, 1)], words_of("a b."), [(0, 1)])] == [2]


def test_a_model_of_words_has_its_own_words() -> None:
    texts = ["Le vieux chat dort-il ?", "l'ami est là"]
    tokenizer = Tokenizer.words(texts, min_frequency=1)
    ids = tokenizer.encode("Le gros  chat dort-il?")
    target = tokenizer.decode(ids)
    assert target == "le <unk> chat dort-il ?"
    torch.manual_seed(0)
    model = small_model(source_vocabulary=tokenizer.size, target_vocabulary=tokenizer.size)
    found = align(model, Tokenizers.one(tokenizer), ["Le gros  chat dort-il?"], [ids])[0]
    assert [link.target for link in found.links] == [0, 1, 2, 3, 4]
    assert [word for _, word in found.words()] == ["le", "<unk>", "chat", "dort-il", "?"]
    assert {word for word, _ in found.words()} <= {"Le", "gros", "chat", "dort-il", "?"}


def test_sub_words_and_padding_change_nothing() -> None:
    """Texts of many lengths at once are aligned as each alone by its trace, words of several tokens included."""
    tokenizer = Tokenizer.bpe(SENTENCES, 520)
    both = Tokenizers.one(tokenizer)
    model = small_model(source_vocabulary=tokenizer.size, target_vocabulary=tokenizer.size, max_length=90)
    sources = ["the cat", "the little cat sleeps there, unbelievably", "cats", "slept here"]
    targets = ["le petit chat incroyable", "là-bas", "le chat dort là-bas très longtemps", "dort"]
    found = align(model, both, sources, tokenizer.encode_batch(targets))
    for source, target, alignment in zip(sources, targets, found, strict=True):
        assert (alignment.source, alignment.target) == (source, target)
        seen = record(model, both, source, target)
        layers = [seen[name] for name in seen.match("decoder.layers.*.cross_attention.weights")]
        weights = torch.stack(layers).mean((0, 1))  # (T, S)
        spans = tokenizer.offsets(source), tokenizer.offsets(target)[1:]
        links = links_of(weights, *spans, words_of(source), words_of(target))
        assert [(a.source, a.target_span) for a in links] == [(b.source, b.target_span) for b in alignment.links]
        assert [a.weight for a in links] == pytest.approx([b.weight for b in alignment.links], abs=1e-5)
        words = [target[first:last] for first, last in words_of(target)]
        assert [word for _, word in alignment.words()] == words
    assert len(tokenizer.encode("incroyable")) > 6  # several tokens, one word


def test_the_parts_of_a_date_are_found_where_they_stand() -> None:
    model = seq2see.load("dates")
    pairs = pairs_of(all_ordinals()[::70_000])
    found = model.align(model.answers([source for source, _ in pairs], probabilities=False))
    assert len(found) == 47
    right = 0
    for (source, target), alignment in zip(pairs, found, strict=True):
        assert (alignment.source, alignment.target) == (source, target)
        year, month, day = source.split("-")
        words = {written: read for read, written in alignment.words()}
        name, number, _, written_year = (target[first:last] for first, last in words_of(target))
        assert words[written_year] == year == written_year
        right += (words[name] == month) + (words[number] == day)
        assert all(0 < link.weight <= 1 for link in alignment.links)
    assert right >= 0.97 * 2 * len(pairs)
    assert model.align(pairs) == found  # given as texts, and in another order of batches
    assert model.network.engine_for(1).name.startswith("ctranslate2")  # what answers is still the faster engine


def test_a_pair_that_cannot_be_read_is_named() -> None:
    model = seq2see.load("dates")
    with pytest.raises(UserError, match="Pair 2: 'août' has 'û'"):
        model.align([("1845-01-05", "May"), ("1845-08-05", "août")])


def command(*arguments: str, stdin: str | None = None) -> tuple[int, list[str]]:
    done = CliRunner().invoke(app, ["predict", "--align", *arguments], input=stdin)
    return done.exit_code, done.stdout.splitlines()


def test_the_command_writes_numbers_or_words_with_places() -> None:
    code, lines = command("1845-01-05", "2023-02-30", "2025-11-30")
    assert code == 1
    assert [line.split("\t")[0] for line in lines] == ["January 5, 1845", "", "November 30, 2025"]
    links = lines[0].split("\t")[1].split()
    assert (links[0], links[1], links[3]) == ("2-0", "4-1", "0-3")
    assert lines[1] == ""
    code, lines = command("--file", "-", "--json", "--n-best", "2", stdin="nonsense\n1845-01-05\n")
    bad, good = map(json.loads, lines)
    assert "alignment" not in bad
    assert len(good["alternatives"]) == 1
    last = good["alignment"][-1]
    assert last["source"] == {"number": 0, "word": "1845", "span": [0, 4]}
    assert last["target"] == {"number": 3, "word": "1845", "span": [11, 15]}
    assert 0 < last["weight"] <= 1
    text = command("1845-01-05", "--n-best", "2")[1][0].split("\t")
    assert [text[0], text[4].split()[3]] == ["January 5, 1845", "0-3"]


def test_an_answer_that_cannot_be_read_again_has_no_links() -> None:
    texts = seq2see.load("dates").answerer
    found = texts.links([("1845-01-05", "January 5, 1845"), ("1845-01-05", "x" * 100), ("1845-01-05", "May 5, 1845")])
    assert [bool(links) for links in found] == [True, False, True]
