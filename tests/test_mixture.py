"""The data of a translator: what is in the mixture, and that nothing of a validation or test set is."""

from __future__ import annotations

import lzma
from collections.abc import Iterable
from pathlib import Path

import pytest

from benchmarks import mixture
from seq2see.data import pairs

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
