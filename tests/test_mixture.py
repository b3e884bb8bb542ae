"""The data of a translator: what is in the mixture, and that nothing of a validation or test set is."""

from __future__ import annotations

import lzma
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from benchmarks import mixture
from seq2see.data import pairs
from seq2see.errors import UserError

YEARS = (*mixture.NEWS, *mixture.VALIDATION.values(), "newstest2015")


def put(path: Path, rows: Iterable[tuple[str, ...]], *header: str) -> None:
    path.parent.mkdir(exist_ok=True)
    lines = ["\t".join(row) for row in ([header] if header else []) + [*rows]]
    path.write_bytes(lzma.compress(("\n".join(lines) + "\n").encode()))


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Pairs of each kind, with some that must not be learned."""
    phrases = tmp_path / "phrases.tsv"
    phrases.write_text(
        "en\tfr\tde\nBest regards\tCordialement\tViele Grüße\nNewstest2013, 4.\tRien.\tNichts.\n"
        "Hello 0.\tSalut 0.\tHallo 0.\nHello 5!\tBonjour 5.\tHallo 5.\n",
        encoding="utf-8",
    )
    monkeypatch.setattr(mixture, "PHRASES", phrases)
    put(
        tmp_path / "tatoeba" / "eng-fra.tsv.xz",
        [(f"Hello {n}.", f"Salut {n}.", "1", "me", "2", "you") for n in range(300)],
        "en", "fr", "en_id", "en_user", "fr_id", "fr_user",
    )  # fmt: skip
    web = [(f"Page {n}.", f"Page n° {n}.", "fsfe_web") for n in range(100)]
    web += [(f"Press key {n}.", f"Appuyez sur {n}.", "mdn") for n in range(400)]
    web += [("newstest2013 5", "Autre chose.", "mdn"), ("Something.", "FLORES-DEV, 7 FR!", "mdn")]
    web += [("Newstest2015, 3.", "Encore autre chose.", "fsfe_web")]
    put(tmp_path / "web" / "en-fr.tsv.xz", web, "en", "fr", "source")
    general = [(f"Mr President, {n}.", f"Monsieur le Président, {n}.", "europarl7") for n in range(200)]
    general += [("Page 1.", "Page n° 1.", "europarl7"), ("in writing. - Yes.", "par écrit. - (EN) Oui.", "europarl7")]
    general += [("(EN) So.", "(EN) Donc.", "europarl7")]
    put(tmp_path / "general" / "en-fr.tsv.xz", general, "en", "fr", "source")
    for year in YEARS:
        put(tmp_path / "dev" / f"{year}.en-fr.tsv.xz", [(f"{year} {n}", f"{year} {n} fr") for n in range(20)])
    news = [("newstest2012 1", "x"), ("newstest2013 1", "y"), ("newstest2012 1", "x")]
    put(tmp_path / "dev" / "newstest2012.en-fr.tsv.xz", news)
    return tmp_path


def test_nothing_of_a_validation_or_test_set_is_learned(data: Path) -> None:
    made = mixture.mix("en-fr", data)
    held = [name for name in made.files if name.startswith("validation-")]
    assert held == ["validation-news", "validation-flores", "validation-tatoeba"]
    kept = [pair for name in (*held, "test") for pair in made.files[name]]
    kept += [(f"newstest2015 {n}", f"newstest2015 {n} fr") for n in range(20)]
    for part in ("train", "news"):
        for side in (0, 1):
            assert not {mixture.key(pair[side]) for pair in made.files[part]} & {
                mixture.key(pair[side]) for pair in kept
            }
    assert made.counts["mdn"].held == 2
    assert made.counts["newstest2012"] == mixture.Count(3, held=1, double=1, taken=1)
    assert made.counts["europarl7"] == mixture.Count(203, marked=1, double=1, taken=201)
    assert len(made.files["news"]) == 5 * 20 + 1
    assert len(made.files["validation"]) == 20 + 20 + len(made.files["validation-tatoeba"])


def test_everyday_sentences_are_split_as_in_a_training(data: Path) -> None:
    made = mixture.mix("en-fr", data)
    whole = pairs.read_pairs([data / "tatoeba" / "eng-fra.tsv.xz"], columns=("en", "fr")).pairs
    parts = pairs.split(whole)
    assert made.files["test"] == parts.test
    assert made.files["validation-tatoeba"] == parts.validation
    assert len(parts.test) == 30
    counts = Counter(made.files["train"])
    assert {pair for pair in counts if pair[0].startswith("Hello")} == set(parts.train)


def test_shares_are_kept(data: Path) -> None:
    made = mixture.mix("en-fr", data, {"europarl7": 0.5})
    counts = Counter(made.files["train"])
    phrases = {("Best regards", "Cordialement"), ("Hello 0.", "Salut 0.")}
    assert {pair: counts.pop(pair) for pair in phrases} == dict.fromkeys(phrases, 10)
    assert {counts[pair] for pair in counts if pair[0].startswith("Hello")} == {2}
    assert {counts[pair] for pair in counts if not pair[0].startswith("Hello")} == {1}
    assert made.counts["europarl7"].taken == 100
    assert made.counts["tatoeba"].taken == 2 * (300 - 30 - 13 - 1)
    others = len(counts) + 256 + 20 - made.counts["mdn"].taken
    assert others / 5 - 1 < made.counts["mdn"].taken <= others / 5  # a sixth of the whole
    assert mixture.mix("en-fr", data, {"mdn": 0, "tatoeba": 1}).counts["mdn"].taken == 0
    assert mixture.mix("en-fr", data, technical=0.9).counts["mdn"].taken == 400
    with pytest.raises(UserError, match=r"no source 'europarl'.*europarl7"):
        mixture.mix("en-fr", data, {"europarl": 2})


def test_phrases_come_in_the_languages_of_the_translator(data: Path) -> None:
    """And the counts tell of them: one is in newstest2013, one in the test of Tatoeba, one in Tatoeba's training."""
    made = mixture.mix("en-fr", data)
    assert made.counts["phrases"] == mixture.Count(4, held=2, taken=20)
    assert made.counts["tatoeba"].double == 1
    assert "phrases                        4         2         0         0        20" in str(made)
    assert ("Cordialement", "Best regards") in mixture.mix("fr-en", data).files["train"]
    assert ("Best regards", "Cordialement") not in mixture.mix("en-fr", data, {"phrases": 0}).files["train"]
    for path in [*data.glob("*/*en-fr.tsv.xz"), *data.glob("*/eng-fra.tsv.xz")]:
        path.rename(path.with_name(path.name.replace("en-fr", "en-de").replace("eng-fra", "eng-deu")))
    assert ("Best regards", "Viele Grüße") in mixture.mix("en-de", data).files["train"]


def test_the_phrasebook_is_well_formed() -> None:
    rows = [*mixture.rows_of(mixture.PHRASES, header=False)]
    assert rows.pop(0) == ["en", "fr", "de"]
    assert all(len(row) == 3 and all(row) for row in rows)
    assert len({row[0] for row in rows}) == len(rows) > 700
    lines = mixture.PHRASES.read_text(encoding="utf-8").splitlines()[1:]
    assert [line.split("\t") for line in lines] == rows  # folded already
    for english, french, german in rows:
        assert not re.search(r"\S[?!:;]", french), french  # as in Tatoeba: "Où vas-tu ?"
        assert not re.search(r"\s[?!:;]", english + german), english


def test_the_command_writes_files_that_a_training_reads(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def call(*words: str) -> None:
        monkeypatch.setattr("sys.argv", ["mixture", *words])
        mixture.main()

    out = tmp_path / "out"
    call("fr-en", str(out), "--data", str(data), "--share", "mdn=0", "--share", "tatoeba=1.5")
    told = capsys.readouterr().out
    made = mixture.mix("fr-en", data, {"mdn": 0.0, "tatoeba": 1.5})
    assert told.strip() == str(made)
    for part, rows in made.files.items():
        assert f"{part}.tsv has {len(rows):,} pairs." in told
        assert pairs.read_pairs([out / f"{part}.tsv"]).pairs == rows
    assert ("Salut 0.", "Hello 0.") in (*made.files["train"], *made.files["test"], *made.files["validation-tatoeba"])
    for words, message in (
        (["en-de", str(out), "--data", str(data)], "eng-deu.tsv.xz is missing"),
        (["en-fr", str(out)], "required: --data"),
        (["en-fr", str(out), "--data", str(data), "--share", "mdn"], "--share is 'mdn'"),
    ):
        with pytest.raises(SystemExit) as ended:
            call(*words)
        assert message in capsys.readouterr().err + str(ended.value)
    (data / "dev" / "newstest2010.en-fr.tsv.xz").unlink()
    with pytest.raises(SystemExit, match="lacks newstest2010 of en-fr"):
        call("en-fr", str(out), "--data", str(data))
