"""The doctor on a deliberately broken file: it finds each planted fault, and nothing in a sound one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seq2see.cli import app
from seq2see.config import ModelConfig
from seq2see.data import language, shards
from seq2see.data.cuts import cuts_of, tokenizers_of
from seq2see.data.doctor import Report, examine, in_words, inspect, memory_of
from seq2see.data.pairs import Corpus, read_pairs, split
from seq2see.data.recipe import Facts, choose, config_of

ANIMALS = [("cat", "chat"), ("dog", "chien"), ("bird", "oiseau"), ("horse", "cheval"), ("fish", "poisson")]
PLACES = [("house", "maison"), ("garden", "jardin"), ("street", "rue"), ("forest", "forêt"), ("kitchen", "cuisine")]
VERBS = [
    ("is", "est"),
    ("was", "était"),
    ("sleeps", "dort"),
    ("plays", "joue"),
    ("waits", "attend"),
    ("sings", "chante"),
]
WHEN = [("today", "aujourd'hui"), ("now", "maintenant"), ("always", "toujours"), ("at night", "la nuit")]


def sentences() -> list[tuple[str, str]]:
    return [
        (f"The {a} {v} in the {p} {w}.", f"Le {b} {u} dans la {q} {x}.")
        for a, b in ANIMALS
        for v, u in VERBS
        for p, q in PLACES
        for w, x in WHEN
    ]


def tsv(path: Path, rows: list[bytes]) -> Path:
    path.write_bytes(b"".join(row + b"\n" for row in rows))
    return path


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    return tsv(tmp_path / "sound.tsv", [f"{s}\t{t}".encode() for s, t in sentences()])


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    rows = [f"{s}\t{t}".encode() for s, t in sentences()]
    rows[10] = b"no tab here"
    rows[20] = b"Empty target.\t"
    rows[30] = b"a\tb\tc"
    rows[40] = b"caf\xe9 is not the same\tle caf\xe9 est l\xe0"
    rows[50] = b"y" * 100_000 + b"\tlong"
    rows[60] = b""
    rows[70] = rows[71]
    for n in (80, 81, 82, 83, 84):
        rows[n] = b"The same %d here is not what was meant.\tThe same %d here is not what was meant." % (n, n)
    rows[90] = b"Il est dans la maison et je ne dors pas.\tHe is in the house and I am not sleeping."
    rows[100] = b"Yes, it is.\t" + "Oui, le chat est là dans la rue et il ne dort pas, ".encode() * 8
    rows[110] = b"The word " + b"again " * 600 + b"\tLe mot " + b"encore " * 600
    return tsv(tmp_path / "broken.tsv", rows)


PLANTED = [
    "line 11): has one side only", "line 21): has an empty target", "line 31): has 3 columns where most rows have 2",
    "line 41): is not UTF-8 text", "line 51): has more than 20,000 characters", "line 61): is empty",
    "two identical sides (lines 81, 82, 83, 84, 85)", "with swapped sides: French → English (line 91; a guess)",
    "more than 512 tokens (line 111)",
]  # fmt: skip
#: What `train` uses as given, on purpose.
REMARKED = [
    "equal to an earlier one (line 72)",
    "test sources are also in the training (lines 1, 2 of test.tsv)",
    "very different length (line 101)",
]


def test_every_planted_fault_is_found(broken: Path, tmp_path: Path) -> None:
    test = tsv(tmp_path / "test.tsv", [f"{s}\t{t}".encode() for s, t in sentences()[:2]] + [b"Another one.\tUn autre."])
    report = examine(read_pairs([broken]), read_pairs([test]))
    faults = [finding.text for finding in report.faults]
    for planted in PLANTED:
        assert any(planted in text for text in faults), planted
    assert len(faults) == len(PLANTED) + 1  # the long pair has two long sides
    assert all(finding.advice for finding in report.faults)
    remarks = [finding.text for finding in report.findings if not finding.fault]
    for planted in REMARKED:
        assert any(planted in text for text in remarks), planted
    assert ("written in", "English → French (a guess)") in report.facts


def facts_of(report: Report) -> dict[str, str]:
    return dict(report.facts)


def test_a_sound_file_has_no_fault(sound: Path) -> None:
    report = examine(read_pairs([sound]))
    assert report.faults == []
    facts = facts_of(report)
    assert facts["pairs"] == "600 in sound.tsv"
    assert facts["source coverage"] == "100.0% of held-out words occur in training"
    assert facts["split"] == "513 for training, 27 for validation, 60 for the test"
    assert facts["recipe"].startswith("d_model 96, 3+3 layers, dropout 0.3, ")
    assert facts["cut into"].startswith("bpe (")
    assert "tokens (median)" in facts["source length"]
    assert {"memory", "time", "model"} <= facts.keys()


def test_swapped_columns_are_told_by_the_header_by_file_names_and_by_the_test(tmp_path: Path) -> None:
    rows = [f"{t}\t{s}".encode() for s, t in sentences()]
    corpus = read_pairs([tsv(tmp_path / "a.tsv", [b"en\tfr", *rows])])
    assert any("'en' and 'fr', but they look like French and English" in f.text for f in examine(corpus).faults)
    french = tsv(tmp_path / "train.en", [t.encode() for _, t in sentences()])
    english = tsv(tmp_path / "train.fr", [s.encode() for s, _ in sentences()])
    assert any("seem to be swapped" in f.text for f in examine(read_pairs([french, english])).faults)
    right = Corpus("right.tsv", sentences(), list(range(1, 601)))
    other = Corpus("other.tsv", [(f"{t} !", s) for s, t in sentences()[:50]], list(range(50)))
    assert any("goes the other way" in finding.text for finding in examine(right, other).faults)


@pytest.mark.parametrize(("text", "guess"), [
    ("The cat is on the mat.", "English"), ("Le chat est sur le tapis.", "French"),
    ("Die Katze ist auf dem Tisch.", "German"),
    ("Привет", "CYRILLIC"), ("日本語", "CJK"), ("1234", "digits"), ("?!", ""), ("XIV", "LATIN"),
    ("t u ɾ o", "LATIN"), ("Eu e ela", "Portuguese"),  # phones, and a word of one letter
    ("the", "English"), ("le", "French"), ("der", "German"), ("el", "Spanish"), ("il gli", "Italian"), ("de", "Dutch"),
    ("o gli", "LATIN"), ("Γειά", "GREEK"), ("مرحبا", "ARABIC"), ("שלום", "HEBREW"), ("ひらがな", "HIRAGANA"),
    ("カタカナ", "KATAKANA"), ("한국어", "HANGUL"), ("नमस्ते", "DEVANAGARI"), ("สวัสดี", "THAI"), ("Ⴀ", ""),
])  # fmt: skip
def test_guesses(text: str, guess: str) -> None:
    assert language.guess(text) == guess


def test_memory_grows_with_the_batch_and_time_is_said_roughly() -> None:
    pairs = sentences()
    recipe, both = choose(Facts(len(pairs), 9 * len(pairs), 30)), tokenizers_of(cuts_of(pairs), pairs)
    config, larger = config_of(recipe, both), config_of(recipe, both, None, {"batch_tokens": 99_999})
    assert isinstance(config.model, ModelConfig)
    assert memory_of(config, 30) < memory_of(larger, 30)
    assert [in_words(s) for s in (3, 600, 36_000, 999_999)] == ["10 seconds", "10 minutes", "10 hours", "12 days"]


def test_the_command_says_it_and_exits_with_1_only_for_faults(sound: Path, broken: Path) -> None:
    runner = CliRunner()
    done = runner.invoke(app, ["doctor", str(sound)])
    assert done.exit_code == 0, done.output
    assert "No fault was found" in done.output
    done = runner.invoke(app, ["doctor", str(broken)])
    assert done.exit_code == 1
    assert "fault: " in done.output
    done = runner.invoke(app, ["doctor", str(broken), "--json"])
    assert done.exit_code == 1
    said = json.loads(done.stdout)
    assert any("one side only" in finding["text"] for finding in said["findings"])


def test_what_training_has_never_seen_is_said() -> None:
    test = Corpus("new.tsv", [("The zebra yawns in the house ö.", "Le zèbre bâille dans la maison.")], [1])
    report = examine(Corpus("a.tsv", sentences(), list(range(1, 601))), test)
    facts = facts_of(report)
    assert facts["source coverage"] == "57.1% of held-out words occur in training"
    assert facts["target coverage"] == "66.7% of held-out words occur in training"
    said = "2 characters of held-out sources do not occur in training: 'z' 'ö'"
    assert said in [finding.text for finding in report.findings]


#: Syllables of 14 jamo; those with a sum that 5 divides are not in the training.
SYLLABLES = {chr(0xAC00 + 588 * a + 28 * b + c): (a + b + c) % 5 for a in range(5) for b in range(5) for c in range(5)}
KNOWN = [syllable for syllable, rest in SYLLABLES.items() if rest]
JAMO = [(KNOWN[n % 100] + KNOWN[7 * n % 93], f"t{n % 7} a s{n % 5}") for n in range(600)]


def test_held_out_texts_are_judged_by_the_tokens_of_the_training() -> None:
    """A new syllable of known jamo is no alarm, and a new symbol of known characters is one."""
    new = "".join(syllable for syllable, rest in SYLLABLES.items() if not rest)
    held = [(new, "t1 a s9"), (KNOWN[3], "t1 as s2")]
    report = examine(corpus_of(JAMO), corpus_of(held, "test.tsv"), validation=corpus_of(JAMO[:9], "dev.tsv"))
    facts = facts_of(report)
    assert facts["cut into"].startswith("decomposed (")
    assert facts["source coverage"] == "100.0% of held-out tokens occur in training"
    assert facts["target coverage"] == "93.9% of held-out symbols occur in training"  # 31 of 33, with dev.tsv
    said = {finding.text: finding.advice for finding in report.findings}
    symbols = "2 symbols of held-out targets do not occur in training: 'as' 's9'"
    assert said[symbols].startswith("the model cannot write them, so these answers will be wrong")
    assert not any("held-out source" in text for text in said)


def test_given_parts_are_described_as_train_uses_them(tmp_path: Path) -> None:
    """With both parts given all pairs train, so that no character that occurs in them is unknown."""
    pairs = [(f"s{n % 7}{n}", f"t{n}") for n in range(600)]
    splits = split(pairs, test=[("s1", "t1")])
    rare = pairs.index(splits.validation[0])  # without --validation it would be set aside
    pairs[rare] = (pairs[rare][0], "tõ")
    names = {"train": pairs, "dev": [pairs[0], ("s", "tx")], "test": [("s1", "tõ")]}
    for name, rows in names.items():
        tsv(tmp_path / f"{name}.tsv", [f"{s}\t{t}".encode() for s, t in rows])
    train, dev, test = (str(tmp_path / f"{name}.tsv") for name in names)

    def said(*arguments: str) -> tuple[dict[str, str], list[str]]:
        done = CliRunner().invoke(app, ["doctor", train, *arguments, "--json"])
        assert done.exit_code == 0, done.output
        found = json.loads(done.stdout)
        return found["facts"], [finding["text"] for finding in found["findings"]]

    unknown = "character of held-out targets does not occur in training: {}"
    facts, texts = said("--test", test)
    assert facts["split"] == "570 for training, 30 for validation, 1 for the test"
    assert f"1 {unknown.format(repr('õ'))}" in texts
    facts, texts = said("--validation", dev, "--test", test)
    assert facts["split"] == "600 for training, 2 for validation, 1 for the test"
    assert (facts["validation"], facts["test"]) == ("2 pairs in dev.tsv", "1 pair in test.tsv")
    assert f"1 {unknown.format(repr('x'))}" in texts
    assert "1 of 2 validation sources are also in the training (line 1 of dev.tsv)" in texts
    assert facts["recipe"].startswith("d_model 96, 3+3 layers, dropout 0.3, ")
    assert facts["time"] == "at most 15 minutes on a CPU (--budget), less when nothing more comes"
    facts, _ = said("--preset", "base")
    assert facts["preset"].startswith("preset base, for 5")
    assert "recipe" not in facts


def test_pairs_that_cannot_be_split_are_described_without_held_out_texts() -> None:
    report = examine(corpus_of([("same", f"t{n}") for n in range(50)]))
    assert facts_of(report)["split"] == "50 for training, 0 for validation, 0 for the test"
    assert "source coverage" not in facts_of(report)


def corpus_of(pairs: list[tuple[str, str]], name: str = "a.tsv") -> Corpus:
    return Corpus(name, pairs, list(range(1, len(pairs) + 1)))


def test_a_batch_that_this_machine_cannot_hold_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = Corpus("a.tsv", sentences(), list(range(1, 601)))
    assert not examine(corpus).faults
    monkeypatch.setattr("seq2see.data.doctor.memory_of", lambda config, longest: 2.0**50)
    (fault,) = examine(corpus).faults
    assert fault.text.startswith("the worst batch needs about 1048576.0 GiB, but this machine has ")
    assert "train with --set training.batch_tokens=" in fault.advice


def test_a_file_larger_than_memory_is_looked_at_by_a_sample(sound: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "LARGE", 1000)
    monkeypatch.setattr(shards, "SAMPLE", 550)
    done = CliRunner().invoke(app, ["doctor", str(sound)])
    assert done.exit_code in (0, 1), done.exception
    assert "600 in sound.tsv; the following is about a random " in done.output
    assert "tokens a batch, for 600 pairs, " in done.output


def test_contradictions_constant_targets_and_control_characters_are_faults(tmp_path: Path) -> None:
    rows = [f"s{n % 10}\tt{n}".encode() for n in range(500)]
    [fault] = examine(read_pairs([tsv(tmp_path / "a.tsv", rows)])).faults
    assert fault.text == (
        "10 sources with more than one target ('s0' has 50), so that at most 2.0% of the rows can be answered right"
    )
    rows = [f"s{n}\t{'same' if n % 20 else n}".encode() for n in range(600)]
    assert [f.text for f in examine(read_pairs([tsv(tmp_path / "b.tsv", rows)])).faults] == [
        "95.0% of the rows have the same target, 'same'"
    ]
    rows = [f"s{n}\tall".encode() for n in range(600)]
    assert "all rows have the same target, 'all'" in texts(examine(read_pairs([tsv(tmp_path / "c.tsv", rows)])))
    rows = [f"s{n}\tt{n}".encode() for n in range(600)]
    rows[4], rows[7] = b"s\x00\tt", "s7\t\ufffd7".encode()
    assert "2 rows with characters that do not belong in a text, U+0000, U+FFFD (lines 5, 8)" in texts(
        examine(read_pairs([tsv(tmp_path / "d.tsv", rows)]))
    )
    few = examine(read_pairs([tsv(tmp_path / "e.tsv", [b"a\tb"])]), read_pairs([tmp_path / "e.tsv"]))
    assert facts_of(few)["test"] == "1 pair in e.tsv"
    assert "1 pairs" not in str(few)


def texts(report: Report) -> list[str]:
    return [fault.text for fault in report.faults]


def test_few_pairs_are_advised_on_by_what_can_be_learned_from_them(sound: Path) -> None:
    def said(count: int) -> tuple[bool, str, str]:
        first = inspect(read_pairs([tsv(sound, sound.read_bytes().splitlines()[:count])])).findings[0]
        return first.fault, first.text, first.advice.partition(";")[0]

    assert said(600) == (False, "600 pairs are few for sentences", "a fixed pattern can be learned from them")
    assert said(500) == (False, "500 pairs are few for sentences", "a fixed pattern can be learned from them")
    assert said(499) == (True, "499 pairs are too few to train on", "collect at least 500")


def test_the_rule_and_the_evidence_of_each_setting_are_told(sound: Path) -> None:
    told = " ".join(CliRunner().invoke(app, ["doctor", str(sound), "--why"]).output.split())
    assert "twelve batches an epoch (results/recipe.md: batches) training.batch_tokens = " in told
    found = json.loads(CliRunner().invoke(app, ["doctor", str(sound), "--why", "--json"]).output)
    assert {"setting": "model.norm", "value": "pre", "rule": "layer norm first"}.items() <= found["why"][0].items()
    assert "why" not in json.loads(CliRunner().invoke(app, ["doctor", str(sound), "--json"]).output)
