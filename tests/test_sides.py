"""A tokenizer for each side: symbols, features, bytes, files of others; and which one the data choose."""

from __future__ import annotations

import pickle
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Engine
from tokenizers import models, pre_tokenizers, trainers
from typer.testing import CliRunner

import seq2see
from seq2see.answering.answerer import Answerer
from seq2see.cli import app
from seq2see.data.cuts import cuts_of, fitting, kinds_asked, tokenizers_of
from seq2see.errors import InputError, UserError
from seq2see.storage.folder import Tokenizers, find, read_tokenizers
from seq2see.tokenizers.folding import SLOTS
from seq2see.tokenizers.symbols import features_of
from seq2see.tokenizers.tokenizer import Tokenizer

PHONES = {"a": "AE1", "b": "B", "c": "K", "d": "D", "e": "EH0", "f": "F", "g": "JH", "o": "OW1"}
TINY = {"d_model": 16, "d_ff": 32, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}


def words(count: int = 400) -> list[tuple[str, str]]:
    """Made-up words and their phones, as in a dictionary of pronunciations."""
    letters = list(PHONES)
    spelled = ["".join(letters[(n // 8**k) % 8] for k in range(2 + n % 4)) for n in range(count)]
    return [(word, " ".join(PHONES[letter] for letter in word)) for word in dict.fromkeys(spelled)]


def test_the_data_choose_a_tokenizer_for_each_side() -> None:
    pairs = words()
    cuts = cuts_of(pairs)
    assert cuts.kinds == ("characters", "symbols")
    assert str(cuts) == "characters → symbols (the sides are short, or of signs)"
    source, target = tokenizers_of(cuts, pairs)
    assert (source.kind, target.kind, target.size) == ("characters", "symbols", 3 + len(PHONES) + len(SLOTS))
    assert target.tokens(target.encode("K AE1")) == ["<sos>", "K", "AE1", "<eos>"]
    assert cuts_of([(t, s) for s, t in pairs]).kinds == ("symbols", "characters")


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["N;PL;ACC", "V;PST;SG", "N;SG;ACC", "V;PST;PL"] * 50, "symbols:;"),
        (["K-AE-T", "T-AE-K", "AE-T-T"] * 50, "symbols:-"),
        (["2001-01-05", "2002-02-06"] * 50, "characters"),  # there are more numbers than any data have
        ([f"name{n} surname{n}" for n in range(100)], "characters"),  # each occurs once: there are more
        (["K AE T", "T  AE"] * 50, "characters"),  # would not come back as it was
        ([f"{word} <V> <PST>" for word in ("walk", "talk")] * 50, "features"),
        (["one", "two"] * 50, "characters"),
        (["h e l l o", "e h l o"] * 50, "symbols"),
    ],
)
def test_what_a_side_is_made_of(texts: list[str], kind: str) -> None:
    assert fitting(texts) == kind


@pytest.mark.parametrize(
    ("tokenizer", "texts", "kind"),
    [
        (Tokenizer.symbols(["K AE T"]), ["T K", "AE"], "symbols"),
        (Tokenizer.symbols(["K-A E-T"], "-"), ["T-K", "A E-T"], "symbols:-"),
        (Tokenizer.features(["walk <V> <PST>"]), ["klaw <PST>", "ak", " <V>"], "features"),
        (Tokenizer.bytes(), ["né 日本", "<eos>"], "bytes"),
    ],
)
def test_they_come_back_from_ids_from_a_file_and_from_another_process(
    tokenizer: Tokenizer, texts: list[str], kind: str, tmp_path: Path
) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(tokenizer.to_json())
    for one in (tokenizer, Tokenizer.load(path), pickle.loads(pickle.dumps(tokenizer)), Tokenizer.of_file(path)):
        assert one.kind == kind
        for text in texts:
            ids = one.encode(text)
            assert one.decode(ids) == text
            assert ids == one.engine.encode(text).ids == tokenizer.encode(text)
            assert len(one.offsets(text)) == len(ids)
            one.check(text)


def test_an_unknown_symbol_is_named() -> None:
    for tokenizer, text, named in (
        (Tokenizer.symbols(["K AE T"]), "K ZH", "the symbol 'ZH'"),
        (Tokenizer.symbols(["K AE T"]), "K <pad>", "the symbol '<pad>'"),
        (Tokenizer.features(["walk <V>"]), "walk <N>", "the symbol '<N>'"),
        (Tokenizer.features(["walk <V>"]), "wälk <V>", "'ä' (U+00E4) at character 2"),
    ):
        with pytest.raises(InputError) as error:
            tokenizer.check(text)
        assert named in str(error.value)
    with pytest.raises(UserError, match="name of a special token"):
        Tokenizer.symbols(["K <eos>"])


def test_what_can_be_asked_for(tmp_path: Path) -> None:
    assert kinds_asked("bpe,symbols") == ("bpe", "symbols")
    for kind in ("characters", "decomposed", "symbols", "features", "bytes", "words", "bpe", "unigram"):
        assert kinds_asked(kind) == (kind, kind)
    assert kinds_asked("symbols:,,characters") == ("symbols:,", "characters")
    assert kinds_asked(("words", "symbols:|")) == ("words", "symbols:|")
    pairs = words(200)
    assert cuts_of(pairs, "bpe").shared
    assert not cuts_of(pairs, "bpe,bpe").shared
    assert cuts_of(pairs, "characters,bpe", 600).vocabulary == 600
    for asked, message in (
        ("symbol", "Did you mean 'symbols'"),
        ("symbols:--", "There is no tokenizer"),
        ("characters,nothing.json", "There is no file 'nothing.json'"),
        (("a", "b", "c"), "one for both sides was expected, or two"),
    ):
        with pytest.raises(UserError, match=message):
            kinds_asked(asked)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="one token for each character or symbol"):
        cuts_of(pairs, None, 99)


def own_file(path: Path) -> Path:
    """A byte-level BPE as others train one, without the tokens of a sequence-to-sequence model."""
    engine = Engine(models.BPE())
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    from tokenizers import decoders

    engine.decoder = decoders.ByteLevel()
    engine.train_from_iterator([word for word, _ in words(100)], trainer)
    engine.save(str(path))
    return path


def test_a_model_is_trained_with_any_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    own_file(Path("mine.json"))
    asked: list[tuple[str | tuple[str, str] | None, str]] = [
        (None, "characters → symbols"),
        (("mine.json", "symbols"), "byte-level bpe → symbols"),
        ("symbols,bytes", "symbols → bytes"),
        ("mine.json", "byte-level bpe"),
    ]
    for number, (tokenizer, named) in enumerate(asked):
        pairs = words(60)
        if tokenizer == "symbols,bytes":
            pairs = [(t, s) for s, t in pairs]
        out = f"run-{number}"
        made = seq2see.fit(pairs, tokenizer=tokenizer, training={"steps": 2}, model=TINY, out=out)
        loaded = seq2see.load(out)
        assert loaded.tokenizers.named == made.tokenizers.named == named
        assert f"tokenizer {named}" in loaded.card
        source, target = pairs[3]
        assert loaded.predict([source]) == made.predict([source])
        assert len(loaded.log_probabilities([(source, target)])[0]) == len(loaded.tokenizers.target.encode(target)) - 1
        assert loaded.tokenizers.target.decode(loaded.tokenizers.target.encode(target)) == target
    assert read_tokenizers(Path("run-3")).shared
    resumed = dict(training={"steps": 2}, model=TINY, resume=True)
    with pytest.raises(UserError, match="with tokenizer = characters → symbols, but now it is bpe"):
        seq2see.fit(words(60), tokenizer="bpe", out="run-0", **resumed)  # type: ignore[arg-type]
    seq2see.fit(words(60), tokenizer="mine.json", out="run-3", **resumed)  # type: ignore[arg-type]
    shutil.copy(find("en-fr") / "tokenizer.json", "other.json")
    with pytest.raises(UserError, match=r"with tokenizer = byte-level bpe, but now it is other\.json"):
        seq2see.fit(words(60), tokenizer="other.json", out="run-3", **resumed)  # type: ignore[arg-type]
    seq2see.fit(sentences := [(f"w{n} {text}", text) for n, (text, _) in enumerate(words(60))], tokenizer="words",
                training={"steps": 2}, model=TINY, out="run-4")  # fmt: skip
    with pytest.raises(UserError, match=r"with a vocabulary of \d+ tokens, but now `vocabulary` is 10"):
        seq2see.fit(sentences, tokenizer="words", vocabulary=10, out="run-4", **resumed)  # type: ignore[arg-type]


def test_symbols_and_single_words_are_aligned_by_symbols_and_letters() -> None:
    made = seq2see.fit(words(60), training={"steps": 2}, model=TINY)
    other = Tokenizer.symbols(["AE1 B. K' x y z <1> <2>", " ".join(SLOTS)])
    made = seq2see.Seq2Seq(made.config, replace(made.tokenizers, target=other), made.transformer)
    assert made.tokenizers.target.size == made.config.model.target_vocabulary
    [found] = made.align([("abc", "AE1 B. K'")])
    assert [link.target_span for link in found.links] == [(0, 3), (4, 6), (7, 9)]
    assert {target for _, target in found.words()} == {"AE1", "B.", "K'"}
    assert all(last - first == 1 for first, last in (link.source_span for link in found.links))
    assert {link.source for link in found.links} <= {0, 1, 2}


def test_the_choice_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "phones.tsv"
    path.write_text("".join(f"{word}\t{phones}\n" for word, phones in words()))
    said = CliRunner().invoke(app, ["doctor", str(path)]).output
    assert "cut into         characters (19 tokens) → symbols (19 tokens)" in said
    said = CliRunner().invoke(app, ["tokenize", "K AE1", "--data", str(path), "--target"]).output
    assert "symbols, as chosen" in said
    assert "K|AE1" in said


def test_features_may_follow_a_word_after_a_tab() -> None:
    source = Tokenizer.features(["walk <V> <PST> <(> <)> <2>", "x <N>"])
    model = seq2see.load("dates")
    texts = Answerer(
        replace(model.config, task="pairs"), Tokenizers(source, model.tokenizers.target), model.network, None
    )
    assert texts.read("walk\tV;PST") == texts.read("walk <V> <PST>") == "walk <V> <PST>"
    assert texts.read("walk\tV(2;PST)\tN") == "walk <V> <(> <2> <PST> <)> <N>"
    letters = Tokenizer.characters_of(["walk VPST;"])
    others = Answerer(texts.config, Tokenizers(letters, letters), model.network, None)
    assert others.read("walk\tV;PST") == "walk V;PST", "a tab is white space for any other model"


FORMS = [
    (stem, tags, stem + ending)
    for stem in ("walk", "talk", "jump", "look", "play", "bark", "kick", "rest", "lift", "melt")
    for tags, ending in (("V;PST", "ed"), ("V;PRS;3", "s"), ("V;PTCP", "ing"))
]


def inflecting(**given: Any) -> seq2see.Seq2Seq:
    """A barely trained model of words with features, from tuples of three texts."""
    little: dict[str, Any] = dict(training={"steps": 1}, model=TINY, decoding={"max_length": 4}, progress=False)
    return seq2see.fit(FORMS, columns=("1+2", "3"), **little, **given)


def test_a_model_of_features_takes_them_in_a_tuple_a_list_and_a_dict() -> None:
    model = inflecting()
    assert model.tokenizers.source.kind == "features"
    inputs: list[Any] = [("walk", "V;PST"), ["walk", "V;PST"], {"lemma": "walk", "tags": "V;PST"}, "walk\tV;PST"]
    assert [answer.input for answer in model.answers(inputs)] == ["walk <V> <PST>"] * 3 + ["walk\tV;PST"]
    assert model.predict(inputs) == model.predict(["walk <V> <PST>"]) * 4 == [model(inputs[0])] * 4
    assert model.trace(("walk", "V;PST")).text == "walk <V> <PST>"
    scores = model.evaluate([(("walk", "V;PST"), "walked"), ("talk <V> <PST>", "talked")])
    assert [source for source, _, _ in scores.answers] == ["walk <V> <PST>", "talk <V> <PST>"]
    assert model.evaluate(FORMS, columns=("1+2", "3")).pairs == len(FORMS)
    bad: Any
    for bad in (("walk",), ["walk", None], {}):
        with pytest.raises(UserError, match=r"a word and its features were expected, such as \('walk', 'V;PST'\)"):
            model.predict([bad])


def test_a_model_without_features_takes_one_text() -> None:
    model = seq2see.load("dates")
    message = (
        r"expected, but \('x', 'N'\) is of type tuple: give one text\. Only a model that was trained on words with"
    )
    with pytest.raises(UserError, match=message):
        model.predict([("x", "N")])
    with pytest.raises(UserError, match=message):
        model.evaluate([(("x", "N"), "y")])
    with pytest.raises(UserError, match="is of type dict: give one text"):
        model({"lemma": "x", "tags": "N"})


def test_a_refused_text_is_quoted_as_it_was_given(tmp_path: Path) -> None:
    model = inflecting(out=tmp_path / "model")
    for text in ("Walk;V;PST", "walk V;PST"):
        with pytest.raises(InputError) as refused:
            model(text)
        assert str(refused.value) == (
            f"'{text}' has no features: the model reads a word and its features, with a tab between them, as in "
            "walk<TAB>V;PST."
        )
    with pytest.raises(InputError, match="'WALK% <V>', read with similar characters: 'walk% <V>' has '%'"):
        model("WALK%\tV")
    letters = seq2see.fit(words(60), training={"steps": 1}, model=TINY, progress=False)
    with pytest.raises(InputError, match=r"^'ab\\tc' has a tab, which separates columns, .*predict --columns 1` reads"):
        letters("ab\tc")
    said = CliRunner().invoke(app, ["tokenize", "walk\tV;PST", "--model", str(tmp_path / "model")])
    assert said.exit_code == 0, said.exception
    assert "features: 6 tokens" in said.output
    table = tmp_path / "forms.tsv"
    table.write_text("".join("\t".join(row) + "\n" for row in FORMS))
    said = CliRunner().invoke(app, ["tokenize", "walk\tV;PST", "--data", str(table), "--columns", "1+2,3"])
    assert "w|a|l|k|␣<V>|␣<PST>" in said.output, said.exception


def test_features_follow_a_text() -> None:
    assert "walk" + features_of(" V;PST|3 SG ") == "walk <V> <PST> <3> <SG>"
    assert features_of("") == ""
