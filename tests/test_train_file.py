"""From a file of pairs to a measured model: train, evaluate, score, compare, and what is refused."""

from __future__ import annotations

import json
import random
import re
import shlex
import signal
from contextlib import chdir
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import seq2see
from seq2see.cli import app
from seq2see.errors import UserError
from seq2see.evaluation.evaluate import Evaluation
from seq2see.evaluation.metrics import compare_bleu, compare_exact
from seq2see.tokenizers.folding import SLOTS
from seq2see.training.loop import Line

LITTLE = ["--steps", "4", "--set", "training.batch_tokens=300", "--set", "training.evaluate_every=2",
          "--set", "training.evaluate_on=5", "--set", "model.d_model=16", "--set", "model.d_ff=16",
          "--set", "model.encoder_layers=1", "--set", "model.decoder_layers=1"]  # fmt: skip


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def refused(*arguments: str) -> str:
    result = run(*arguments)
    assert isinstance(result.exception, UserError), result.output
    return str(result.exception)


def numbers(path: Path, count: int = 300) -> Path:
    path.write_text("".join(f"{n:03}\t{n * 7 % 1000:03} items\n" for n in range(count)))
    return path


def sentences(count: int) -> list[tuple[str, str]]:
    what, place = ("cat", "dog", "bird", "horse"), ("house", "garden", "street")
    return [
        (f"The {what[n % 4]} was in the {place[n % 3]} on day {n}.", f"Le {what[n % 4]} était dans {place[n % 3]} {n}.")
        for n in range(count)
    ]


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return numbers(tmp_path / "mine.tsv")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """A folder with a file of numbers and a model of them in runs/mine, and what the training said."""
    here = tmp_path_factory.mktemp("trained")
    with chdir(here):
        done = run("train", str(numbers(here / "mine.tsv")), *LITTLE)
    assert done.exit_code == 0, (done.output, done.exception)
    return here, done


def test_a_file_needs_no_other_option_but_to_be_quick(trained: tuple[Path, Result]) -> None:
    here, done = trained
    assert "mine.tsv: 257 for training, 13 for validation, 30 for the test, no source in two parts." in done.output
    said = " ".join(done.output.split())
    assert "Cut into characters (both sides are short, or of signs). Chosen: d_model 96, 3+3 layers, " in said
    assert "`seq2see doctor --why` gives the reasons." in said
    assert "(right: " in done.output  # samples under each line
    assert "exact match" in done.output
    assert "BLEU" not in done.output
    out = here / "runs" / "mine"
    card = (out / "card.md").read_text()
    assert "30 for the test, split by source with seed 1" in card
    assert "exact match, free-running" in card
    log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in log] == [2, 4]
    assert len(log[0]["samples"]) == 3
    model = seq2see.load(out)
    assert model.config.model.source_vocabulary == 13 + len(SLOTS)
    assert isinstance(model("012"), str)
    with chdir(here):
        assert "already holds a finished model" in refused("train", "mine.tsv", *LITTLE)


def test_what_a_training_prints_can_be_copied_and_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my words.tsv").write_text("".join(f"-a{n:03}\tb {'c ' * (n % 5)}d\n" for n in range(200)))
    arguments = ["train", "my words.tsv", *LITTLE]
    monkeypatch.setattr("sys.argv", ["seq2see", *arguments])
    done = run(*arguments)
    assert done.exit_code == 0, (done.output, done.exception)
    assert "It has learned nothing that can be used" in done.output  # in four steps
    assert "Use it" not in done.output
    monkeypatch.setattr("seq2see.training.report.USELESS", 1e9)
    done = run(*arguments, "--out", "again/my words")
    words = shlex.split(done.output.splitlines()[-1])
    assert words[:4] == ["seq2see", "predict", "--model", "again/my words"]
    assert run(*words[1:]).exit_code == 0  # the word begins with a dash
    card = Path("runs/my words/card.md").read_text()
    made = next(line for line in card.splitlines() if line.startswith("    seq2see"))
    assert shlex.split(made) == ["seq2see", *arguments]
    assert card.startswith("# my words\n")
    assert "| symbol error rate (PER, where symbols are phones) | " in card
    for text in (card, " ".join(done.output.split())):
        assert "The confidence is not fitted" in text
        assert "the validation has 9 pairs. `seq2see calibrate` fits it on other pairs." in text


def test_sentences_get_sub_words_and_bleu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pairs = sentences(120)
    for name, side in (("train.en", 0), ("train.fr", 1)):
        Path(name).write_text("".join(pair[side] + "\n" for pair in pairs))
    Path("test.jsonl").write_text(json.dumps({"source": pairs[0][0], "target": pairs[0][1]}) + "\n")
    done = run("train", "train.en,train.fr", "--test", "test.jsonl", "--out", "model", *LITTLE)
    assert done.exit_code == 0, (done.output, done.exception)
    assert "114 for training, 6 for validation, 1 for the test" in done.output
    assert "Cut into bpe (both sides are text of several words)." in " ".join(done.output.split())
    assert "BLEU|nrefs:1" in done.output
    assert "BLEU nrefs:1" in Path("model/card.md").read_text()
    assert Path("model/tokenizer.json").is_file()
    done = run("evaluate", "train.en", "train.fr", "--model", "model", "--sample", "9")
    assert "nrefs:1|case:mixed|eff:no|tok:13a" in done.output
    assert "BLEU" in run("evaluate", "train.en,train.fr", "--compare", "model", "model", "--sample", "9").output
    model = seq2see.load("model")
    assert isinstance(model("What about 日本?"), str)


def test_evaluate_score_and_compare_a_file(corpus: Path, trained: tuple[Path, Result]) -> None:
    one = str(trained[0] / "runs" / "mine")
    run("train", str(corpus), "--out", "b", "--seed", "2", *LITTLE)
    done = run("evaluate", str(corpus), "--model", one, "--sample", "40", "--worst", "2")
    assert done.exit_code == 0, (done.output, done.exception)
    assert "of 40 (" in done.output
    assert "nrefs:1|case:mixed|eff:yes|nc:6" in done.output
    assert "BLEU" not in done.output  # of single words it says nothing
    assert done.output.count("(right: ") == 2
    said = json.loads(run("evaluate", str(corpus), "--model", one, "--json", "--beam", "2", "--sample", "20").stdout)
    assert (said["pairs"], len(said["worst"])) == (20, 5)
    assert said["bleu"] is None
    assert {"chrf", "loss", "character_error_rate", "by_length"} <= said.keys()
    missed = run("evaluate", str(corpus), "--model", one, "--at-least", "0.99", "--sample", "20")
    assert missed.exit_code == 1
    compared = run("evaluate", str(corpus), "--compare", one, "b", "--sample", "40")
    assert compared.exit_code == 0, (compared.output, compared.exception)
    assert "may be chance" in compared.output
    lines = run("score", str(corpus), "--model", one).stdout.splitlines()
    assert len(lines) == 300
    total, mean, source, target = lines[3].split("\t")
    assert (source, target) == ("003", "021 items")
    assert float(total) == pytest.approx(10 * float(mean), abs=0.01)


def test_score_is_the_loss_of_the_pairs(corpus: Path, trained: tuple[Path, Result]) -> None:
    one = trained[0] / "runs" / "mine"
    model = seq2see.load(one)
    pairs = [("003", "021 items"), ("100", "700"), ("7", "1 item 2 items")]
    rows = model.log_probabilities(pairs)
    assert [len(row) for row in rows] == [10, 4, 15]
    evaluation = model.evaluate(pairs)
    assert -sum(map(sum, rows)) == pytest.approx(evaluation.loss_total, rel=1e-4)
    (answer,) = model.answers(["003"])
    if answer.ids[-1] == model.tokenizers.target.end:
        assert sum(model.log_probabilities([("003", str(answer.output))])[0]) == pytest.approx(
            answer.log_probability, abs=1e-3
        )
    Path("x.tsv").write_text("003\t021 items\n00?\t021 items\n")
    done = run("score", "x.tsv", "--model", str(one), "--json")
    assert done.exit_code == 1
    first, second = map(json.loads, done.stdout.splitlines())
    assert (first["input"], first["target"]) == ("003", "021 items")
    assert first["log_probability"] == pytest.approx(sum(token["log_probability"] for token in first["tokens"]))
    assert [token["token"] for token in first["tokens"]][-2:] == ["s", "<eos>"]
    assert "has '?' (U+003F)" in second["error"]


def test_an_interrupted_training_on_a_file_goes_on_to_the_bit(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = [*LITTLE, "--set", "training.checkpoint_every=2"]
    assert run("train", str(corpus), "--out", "whole", *settings).exit_code == 0

    def fault(line: Line) -> str:
        raise ZeroDivisionError

    def asked(line: Line) -> str:
        signal.raise_signal(signal.SIGTERM)  # as a cluster does when the time is up
        return "a row"

    with monkeypatch.context() as patched:
        patched.setattr("seq2see.cli.train._row", fault)
        assert isinstance(run("train", str(corpus), "--out", "half", *settings).exception, ZeroDivisionError)
    before = signal.signal(signal.SIGTERM, lambda *_: pytest.fail("the training did not take the signal"))
    try:
        ours = signal.getsignal(signal.SIGTERM)
        with monkeypatch.context() as patched:
            patched.setattr("seq2see.cli.train._row", asked)
            ended = run("train", str(corpus), "--out", "asked", *settings)
        assert signal.getsignal(signal.SIGTERM) is ours
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended.exit_code == 130
    assert ended.stderr.endswith("Stopped after step 2; the same command with --resume continues.\n")
    for out in ("half", "asked"):
        assert "unfinished training" in refused("train", str(corpus), "--out", out, *settings)
        assert run("train", str(corpus), "--out", out, "--resume", *settings).exit_code == 0
        assert Path(out, "model.safetensors").read_bytes() == Path("whole/model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (b"", [], "is empty"),
        (b"one\ntwo\n", [], "one side only"),
        (b"a\tb\n", [], "at least 3 different sources"),
        (b"x" * 100_000, [], "has more than 20,000 characters"),
        (b"caf\xe9\tx\nb\tc\n", ["--strict"], "line 1: is not UTF-8"),
        (b"a\nb\tc\n", ["--strict"], "line 1: has one side only"),
        (b"a\tb\nc\td\ne\tf\ng\th\n", ["--tokenizer", "bpe", "--vocabulary", "9999"], "have only .* different tokens"),
        (b"a\tb\nc\td\ne\tf\ng\th\n", ["--tokenizer", "words", "--vocabulary", "600"], "have only .* different tokens"),
        (b"a\tb\nc\td\ne\tf\ng\th\n", ["--tokenizer", "bpe", "--vocabulary", "99"], "too small for sub-words"),
        (b"a\tb\nc\td\ne\tf\ng\th\n", ["--vocabulary", "99"], "--vocabulary is 99, but .* each character"),
        (b"a\tb\nc\td\ne\tf\ng\th\n", ["--tokenizer", "bp"], "Did you mean 'bpe'"),
        (b"a\tb\nc\td\ne\tf\ng\th\n", ["--set", "model.hedas=3"], "Did you mean 'heads'"),
        (b"a\tb\nc\td\ne\tf\ng\th\n", ["--years", "2000"], "are for dates"),
        (b"en\tfr\n" + b"Il est dans la maison.\tHe is in the house.\n" * 9, [], "seem to be swapped"),
    ],
)
def test_what_cannot_be_trained_on_is_refused_and_leaves_nothing(
    data: bytes, options: list[str], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.tsv"
    path.write_bytes(data)
    out = tmp_path / "out"
    with pytest.raises(UserError, match=message):
        raise UserError(refused("train", str(path), "--out", str(out), *options))
    assert not out.exists()


def test_bad_rows_and_long_pairs_are_named_and_left_out(tmp_path: Path) -> None:
    path = numbers(tmp_path / "a.tsv")
    path.write_bytes(path.read_bytes() + b"one side\n" + b"1" * 600 + b"\tlong\n" + b"2" * 100_000 + b"\tlonger\n")
    done = run("train", str(path), "--out", str(tmp_path / "out"), *LITTLE)
    assert done.exit_code == 0, (done.output, done.exception)
    said = " ".join(done.output.split())
    assert "a.tsv, line 301: has one side only" in said
    assert "1 pair is too long and left out (line 302)" in said
    assert "a.tsv, line 303: has more than 20,000 characters: skipped." in said


def test_answers_are_scored_by_length_and_by_their_worst() -> None:
    found = Evaluation.of(
        [("a b", "x y", "x y"), ("a b c d e f", "one two three four", "one two four four"), ("b c", "no", "yes")]
    )
    assert (found.exact, [name for name, _ in found.by_length()]) == (1, ["1-5", "6-10"])
    assert [source for _, source, _, _ in found.worst(5)] == ["b c", "a b c d e f"]
    assert found.character_error_rate == pytest.approx(8 / 23)
    assert found.token_error_rate == pytest.approx(2 / 7)


def test_paired_bootstrap_tells_a_difference_from_chance() -> None:
    references = [f"this is sentence number {n} of the test" for n in range(100)]
    bad = [text.replace("sentence", "thing") for text in references]
    result = compare_bleu(bad, references, references)
    assert (result.b, result.clear) == (pytest.approx(100), True)
    assert result.interval[0] > 0
    assert not compare_bleu(references, references, references).clear
    nearly = [*references[:-1], "no"]
    result = compare_exact(nearly, references, references, seed=7)
    assert (result.a, result.b, result.clear) == (99, 100, False)
    # These two are what `evaluate --compare` prints.
    assert (result.metric, result.signature) == ("exact match", "exact match|bs:1000|rs:7")


def test_a_model_learns_on_from_another(corpus: Path, trained: tuple[Path, Result]) -> None:
    """The shape, the tokenizer and the weights are the other's; the learning rate is lower."""
    one = str(trained[0] / "runs" / "mine")
    done = run("train", str(corpus), "--from", one, "--steps", "2", "--set", "training.learning_rate=0.0",
               "--set", "training.evaluate_on=5", "--out", "second")  # fmt: skip
    assert done.exit_code == 0, (done.output, done.exception)
    first, second = seq2see.load(one), seq2see.load("second")
    assert second.config.model == first.config.model
    for a, b in zip(first.transformer.parameters(), second.transformer.parameters(), strict=True):
        assert bool((a == b).all())  # nothing was learned at a rate of 0
    further = seq2see.fit([(f"00{n}", f"00{n} items") for n in range(3)], start=first, training={"steps": 1})
    assert further.config.model == first.config.model
    assert further.config.training.learning_rate == pytest.approx(0.3 * 0.002)
    said = refused("train", str(corpus), "--from", one, "--tokenizer", "bpe")
    assert said == "--tokenizer is 'bpe', but --from has a tokenizer: leave it out."
    assert "give one of them" in refused("train", str(corpus), "--steps", "3", "--budget", "9")
    assert "give one of them" in refused("train", str(corpus), "--steps", "3", "--set", "training.budget=9")


def spoken(word: str) -> str:
    """Say a word of a made-up language: sh is one sound, x is two, c depends on what follows, an e at the end is mute."""
    parts = re.findall("sh|.", word.removesuffix("e"))
    following = [*parts[1:], "e" if word.endswith("e") else ""]
    sounds = {"sh": "ʃ", "x": "k s"}
    return " ".join(
        ("s" if after in ("e", "i") else "k") if part == "c" else sounds.get(part, part)
        for part, after in zip(parts, following, strict=True)
    )


@pytest.mark.heavy
def test_the_default_plan_learns_the_rules_of_a_made_up_language(tmp_path: Path) -> None:
    """No option is given: the plan for a few hundred words has to find rules that need context."""
    drawn = random.Random(1)
    parts = ("a", "e", "i", "o", "b", "c", "d", "sh", "s", "h", "x", "m")
    words = {"b" + "".join(drawn.choices(parts, k=drawn.randint(2, 7))) for _ in range(900)}
    pairs = [(word, spoken(word)) for word in sorted(words)]
    drawn.shuffle(pairs)
    model = seq2see.fit(pairs[:600], device="cpu", progress=False)
    scores = model.evaluate(pairs[600:])
    assert scores.pairs == 232
    assert scores.exact > 215  # 220, and 222 with the plan before; they drop one of two equal letters


def test_what_a_training_expects_is_told(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of all members, a warm-up without an end, a typing mistake in the folder to resume."""
    monkeypatch.setattr("seq2see.data.doctor.seconds_of", lambda config: 200.0)
    done = run(
        "train", str(corpus), "--resume", "--out", "new", "--ensemble", "3", "--set", "training.warmup=4", *LITTLE
    )
    assert done.exit_code == 0, (done.output, done.exception)
    assert "new has no training to resume: a new one starts." in done.stderr
    assert "The learning rate rises for 4 steps, so it does not fall in 4: set training.warmup lower" in done.stderr
    assert "4 steps, about 10 minutes." in done.output
    whole = run("train", str(corpus), "--out", "other", "--set", "training.warmup=3", *LITTLE)
    assert "4 steps, about 3 minutes." in whole.output
    assert "to resume" not in whole.stderr
    assert "rises" not in whole.stderr


def test_a_model_of_pairs_is_not_scored_on_dates(trained: tuple[Path, Result]) -> None:
    one = str(trained[0] / "runs" / "mine")
    assert refused("evaluate", "--model", one) == f"Only dates are generated: give a file of pairs to score {one} on."
    told = refused("evaluate", "dates", "--model", one, "--sample", "9")
    assert told.startswith(f"{one} takes no dates: ")
    assert told.endswith("Give a file of pairs to score it on.")


def test_words_have_two_dictionaries_and_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s.tsv"
    path.write_text("".join(f"{s}\t{t}\n" for s, t in sentences(90)))
    out = tmp_path / "model"
    done = run("train", str(path), "--tokenizer", "words", "--out", str(out), *LITTLE)
    assert done.exit_code == 0, (done.output, done.exception)
    assert (out / "source-tokenizer.json").is_file()
    assert "(right: Le " in done.output
    result = run("evaluate", str(path), "--model", str(out), "--json")
    assert json.loads(result.stdout)["worst"][0]["expected"].startswith("Le ")
