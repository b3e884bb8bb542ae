"""Columns and formats as people have them: named, numbered, asked about; JSON of every shape, Parquet, Excel."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import seq2see
from seq2see.cli import app
from seq2see.data import cuts, shards
from seq2see.data.pairs import corpus_of, read_pairs
from seq2see.errors import UserError

ROWS = [("1", "one", "un"), ("2", "two", "deux"), ("3", "three", "trois")]
PAIRS = [(english, french) for _, english, french in ROWS]
TINY = {"d_model": 16, "d_ff": 32, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}


class Dataset(dict[str, list[str]]):
    """A stand-in for ``datasets.Dataset``."""

    @property
    def column_names(self) -> list[str]:
        return list(self)


def write(path: Path, data: str) -> Path:
    path.write_text(data, encoding="utf-8")
    return path


def with_ids(path: Path, header: str = "id,english,french") -> Path:
    rows = "".join(",".join(row) + "\n" for row in ROWS)
    return write(path, (header + "\n" if header else "") + rows)


def test_a_third_column_is_asked_about(tmp_path: Path) -> None:
    path = with_ids(tmp_path / "a.csv")
    with pytest.raises(UserError) as asked:
        read_pairs([path])
    assert str(asked.value) == (
        "a.csv has 3 columns (id, english, french), and two were expected: say which are the source and the target, by "
        "name or number, as in `columns` english,french."
    )
    with pytest.raises(UserError, match=r"3 columns \(the first row is 1 \| one \| un\)"):
        read_pairs([with_ids(tmp_path / "b.csv", "")])


def test_an_inflection_table_is_told_how_its_features_are_named(tmp_path: Path) -> None:
    rows = "walk,V;PST,walked\ngo,V;PRS;3;SG,goes\nbe,V;NFIN,be\n"
    with pytest.raises(UserError, match=r"as in `columns` lemma\+tags,form\.$"):
        read_pairs([write(tmp_path / "named.csv", "lemma,tags,form\n" + rows)])
    with pytest.raises(UserError, match=r"as in `columns` 1\+2,3\.$"):
        read_pairs([write(tmp_path / "plain.csv", rows)])
    with pytest.raises(UserError, match=r"as in `columns` 1\+2,3\.$"):
        read_pairs([write(tmp_path / "bars.csv", rows.replace(";", "|"))])
    last = "".join("\t".join(row.split(",")[::2] + row.split(",")[1:2]) + "\n" for row in rows.split())
    with pytest.raises(UserError, match=r"as in `columns` 1\+3,2\.$"):
        read_pairs([write(tmp_path / "last.tsv", last)])
    with pytest.raises(UserError, match=r"as in `columns` 1,2\.$"):  # no more than half of the rows have features
        read_pairs([write(tmp_path / "half.csv", "walk,V;PST,walked\ngo,then,goes\n")])


@pytest.mark.parametrize("columns", [("english", "french"), ("2", "3"), ("english", "3"), [2, 3]])
def test_columns_by_name_and_by_number(columns: tuple[str, str], tmp_path: Path) -> None:
    corpus = read_pairs([with_ids(tmp_path / "a.csv")], columns=columns)
    assert corpus.pairs == PAIRS  # the header is no pair
    assert corpus.header == ["english", "french"]
    assert corpus.taken == "'english' → 'french'"
    assert corpus.lines == [2, 3, 4]


def test_a_header_is_known_by_its_words_by_numbers_below_and_by_what_is_asked_for(tmp_path: Path) -> None:
    words = write(tmp_path / "a.tsv", "lemma\tform\ngo\twent\n")
    assert (read_pairs([words]).header, read_pairs([words]).pairs) == (["lemma", "form"], [("go", "went")])
    below = write(tmp_path / "b.tsv", "figure\tspelled\n1\tone\n2\ttwo\n3\tthree\n")
    assert read_pairs([below]).pairs == [("1", "one"), ("2", "two"), ("3", "three")]
    asked = write(tmp_path / "c.tsv", "dog\tcat\nhund\tkatt\n")
    assert len(read_pairs([asked]).pairs) == 2
    assert read_pairs([asked], columns=("cat", "dog")).pairs == [("katt", "hund")]
    assert read_pairs([asked], columns=("2", "1")).pairs == [("cat", "dog"), ("katt", "hund")]


@pytest.mark.parametrize(
    ("columns", "header", "message"),
    [
        (("english", "frnch"), True, "'frnch', which a.csv does not have. Did you mean 'french'"),
        (("1", "4"), True, "names column 4, but a.csv has 3, counted from 1"),
        (("english", "french"), False, "'english', but a.csv has no header: give numbers, 1 to 3"),
        (("english",), True, "two names or numbers were expected"),
        ("english", True, "two names or numbers were expected"),
        (("english", ""), True, "two names or numbers were expected"),
    ],
)
def test_columns_that_are_not_there(columns: tuple[str, str], header: bool, message: str, tmp_path: Path) -> None:
    path = with_ids(tmp_path / "a.csv", "id,english,french" if header else "")
    with pytest.raises(UserError, match=message):
        read_pairs([path], columns=columns)


def test_columns_of_features_follow_a_text_as_symbols(tmp_path: Path) -> None:
    rows = "".join(f"{verb}\t{verb}ed\tV;PST\n{verb}\t{verb}s\tV;PRS;3\n" for verb in ("walk", "talk"))
    path = write(tmp_path / "verbs.tsv", rows)
    corpus = read_pairs([path], columns=("1+3", "2"))
    assert corpus.pairs[:2] == [("walk <V> <PST>", "walked"), ("walk <V> <PRS> <3>", "walks")]
    assert corpus.taken == "1+3 → 2"
    back = read_pairs([path], columns=("2", "1+3"))
    assert back.pairs[0] == ("walked", "walk <V> <PST>")
    assert cuts.fitting([source for source, _ in corpus.pairs]) == "features"


RECORDS = [{"id": n, "en": english, "fr": french} for n, english, french in ROWS]


@pytest.mark.parametrize(
    "data",
    [
        json.dumps(RECORDS),
        json.dumps(RECORDS, indent=1),
        "".join(json.dumps({**row, "id": int(row["id"])}) + "\n" for row in RECORDS),
        "".join(json.dumps([row["en"], row["fr"]]) + "\n" for row in RECORDS),
        json.dumps([[row["en"], row["fr"]] for row in RECORDS]),
        json.dumps([[row["en"], row["fr"]] for row in RECORDS], indent=2),
        "\n".join(json.dumps({"translation": {"en": row["en"], "fr": row["fr"]}, "id": 3}) for row in RECORDS),
        json.dumps({"data": [{"translation": {"en": row["en"], "fr": row["fr"]}} for row in RECORDS]}, indent=1),
        json.dumps({"en": [row["en"] for row in RECORDS], "fr": [row["fr"] for row in RECORDS]}),
    ],
)
def test_json_of_every_shape(data: str, tmp_path: Path) -> None:
    columns = ("en", "fr") if '"id": "1"' in data else None
    assert read_pairs([write(tmp_path / "a.json", data)], columns=columns).pairs == PAIRS
    packed = tmp_path / "a.jsonl.gz"
    packed.write_bytes(gzip.compress(data.encode()))
    assert read_pairs([packed], columns=columns).pairs == PAIRS


def test_numbers_in_json_are_texts_as_they_are_written(tmp_path: Path) -> None:
    data = '{"n": 12, "words": "twelve"}\n{"n": 1.50, "words": "one and a half"}\n{"n": NaN, "words": "none"}\n'
    corpus = read_pairs([write(tmp_path / "a.jsonl", data)])
    assert corpus.pairs == [("12", "twelve"), ("1.50", "one and a half")]
    assert [fault.line for fault in corpus.faults] == [3]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ('{"a": 1}\n[', "no pair that can be used"),
        ('[\n{"a": "x", "b":', "is not JSON that can be read"),
        ('{\n"a": "x"\n}', "has no array of records"),
        ('{"a": "x", "b": "y", "c": "z"}', r"3 columns \(a, b, c\)"),
        ('[["x"], ["y"]]', "is not an array of texts"),
    ],
)
def test_json_that_cannot_be_used(data: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        read_pairs([write(tmp_path / "a.json", data)])


def test_parquet_and_excel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    polars = pytest.importorskip("polars")
    pytest.importorskip("fastexcel")
    frame = polars.DataFrame({"id": [1, 2, 3], "en": [row[1] for row in ROWS], "fr": [row[2] for row in ROWS]})
    frame.write_parquet(tmp_path / "a.parquet")
    assert read_pairs([tmp_path / "a.parquet"]).pairs == PAIRS  # the only two columns of texts
    assert read_pairs([tmp_path / "a.parquet"], columns=("id", "fr")).pairs[0] == ("1", "un")
    nested = polars.DataFrame({"translation": [{"en": english, "fr": french} for english, french in PAIRS]})
    nested.write_parquet(tmp_path / "b.parquet")
    assert read_pairs([tmp_path / "b.parquet"]).pairs == PAIRS
    sheet(tmp_path / "a.xlsx", [("id", "en", "fr"), *ROWS])
    corpus = read_pairs([tmp_path / "a.xlsx"], columns=("en", "fr"))
    assert (corpus.pairs, corpus.lines) == (PAIRS, [2, 3, 4])
    for name in ("bad.parquet", "bad.xlsx"):
        write(tmp_path / name, "nonsense")
        with pytest.raises(UserError, match=f"{name} cannot be read as"):
            read_pairs([tmp_path / name])
    write(tmp_path / "polars.py", "raise ImportError")  # the process that parses finds it first
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match=r"pip install 'seq2see\[tables\]'"):
        read_pairs([tmp_path / "a.parquet"])


def sheet(path: Path, rows: list[tuple[str, ...]]) -> None:
    """Write the smallest workbook that Excel would open."""
    from zipfile import ZipFile

    cells = "".join(
        "<row>" + "".join(f'<c t="inlineStr"><is><t>{cell}</t></is></c>' for cell in row) + "</row>" for row in rows
    )
    base = "http://schemas.openxmlformats.org"
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{base}/package/2006/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        '<Override PartName="/xl/workbook.xml" ContentType="application/vnd.openxmlformats-officedocument.'
        'spreadsheetml.sheet.main+xml"/><Override PartName="/xl/worksheets/sheet1.xml" ContentType="application/'
        'vnd.openxmlformats-officedocument.spreadsheetml.worksheet+xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{base}/package/2006/relationships"><Relationship Id="r1" '
        f'Type="{base}/officeDocument/2006/relationships/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{base}/package/2006/relationships"><Relationship '
        f'Id="r1" Type="{base}/officeDocument/2006/relationships/worksheet" Target="worksheets/sheet1.xml"/>'
        "</Relationships>",
        "xl/workbook.xml": f'<workbook xmlns="{base}/spreadsheetml/2006/main" xmlns:r="{base}/officeDocument/2006/'
        'relationships"><sheets><sheet name="one" sheetId="1" r:id="r1"/></sheets></workbook>',
        "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{base}/spreadsheetml/2006/main"><sheetData>{cells}'
        "</sheetData></worksheet>",
    }
    with ZipFile(path, "w") as file:
        for name, text in parts.items():
            file.writestr(name, f'<?xml version="1.0" encoding="UTF-8"?>{text}')


def test_a_large_file_keeps_to_its_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "id,en,fr\n" + "".join(f"{n},word {n},mot {n}\n" for n in range(60)))
    found = shards.survey([path], columns=("en", "fr"))
    assert found.count == 60
    assert all(source.startswith("word") for source, _ in found.corpus.pairs)
    other = shards.survey([path], columns=("fr", "en"))
    limits = (seq2see.tokenizers.tokenizer.Tokenizer.bytes(),) * 2
    assert shards._key(found, limits, 9) != shards._key(other, limits, 9)
    written = shards.write(tmp_path / "ids", found, limits, 99)
    first = written.source.values[: written.source.offsets[1]].tolist()
    assert limits[0].decode(first).startswith("word")


def test_the_commands_take_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("a.csv"), "id,en,fr\n" + "".join(f"{n},word {n},mot {n}\n" for n in range(30)))
    write(Path("test.tsv"), "word 1\tmot 1\nword 99\tmot 99\n")
    run = CliRunner().invoke
    done = run(app, ["doctor", "a.csv"])
    assert isinstance(done.exception, UserError)
    done = run(app, ["doctor", "a.csv", "--columns", "en,fr", "--test", "test.tsv"])
    assert "3: 'en' → 'fr' are used" in done.output
    assert "2 pairs in test.tsv" in done.output
    sizes = [word for name, value in TINY.items() for word in ("--set", f"model.{name}={value}")]
    options = ["--columns", "2,3", "--test", "test.tsv", "--out", "run", "--steps", "2", *sizes]
    done = run(app, ["train", "a.csv", *options])
    assert done.exit_code == 0, (done.output, done.exception)
    assert "29 for training, 1 for validation, 2 for the test" in done.output
    assert "1 test pair (50.0%) with a training source" in " ".join(done.output.split())
    done = run(app, ["evaluate", "a.csv", "--columns", "en,fr", "--model", "run", "--json"])
    assert json.loads(done.stdout)["pairs"] == 30
    done = run(app, ["score", "a.csv", "--columns", "en,fr", "--model", "run"])
    assert done.stdout.splitlines()[0].endswith("word 0\tmot 0")
    done = run(app, ["train", "dates", "--columns", "1,2"])
    assert "is for files of pairs" in str(done.exception)


def test_columns_of_features_in_memory() -> None:
    import pandas
    import polars

    rows = [("walk", "V;PST", "walked"), ("talk", "V;PRS;3", "talks")]
    names = ("lemma", "tags", "form")
    table = {name: [row[place] for row in rows] for place, name in enumerate(names)}
    expected = [("walk <V> <PST>", "walked"), ("talk <V> <PRS> <3>", "talks")]
    forms: list[Any] = [table, [dict(zip(names, row, strict=True)) for row in rows], pandas.DataFrame(table),
                        polars.DataFrame(table), Dataset(table)]  # fmt: skip
    for data in forms:
        assert corpus_of(data, ("lemma+tags", "form")).pairs == expected, type(data)
        assert corpus_of(data, ("1+2", "3")).pairs == expected, type(data)
        with pytest.raises(UserError, match=r"columns=\('lemma\+tags', 'form'\)\.$"):
            corpus_of(data)
        with pytest.raises(UserError, match=r"names 'tag', which the data does not have\. Did you mean 'tags'"):
            corpus_of(data, ("lemma+tag", "form"))
    for data in (rows, iter(rows), list(map(list, rows))):
        assert corpus_of(data, ("1+2", "3")).pairs == expected
    assert corpus_of([row[:1] + row[2:] for row in rows], ("2", "1")).pairs[0] == ("walked", "walk")
    assert corpus_of({"a+b": ["x"], "c": ["y"]}, ("a+b", "c")).pairs == [("x", "y")]


@pytest.mark.parametrize(
    ("rows", "columns", "message"),
    [
        ([("walk", "V;PST", "walked")], None, r"two texts were expected.*columns=\('1\+2', '3'\) adds features"),
        ([("walk", "walked", "V;PST")], None, r"columns=\('1\+3', '2'\) adds features"),
        ([("a", "b", "c")], ("a+b", "c"), r"no named columns: give numbers from 1 to 3, such as"),
        ([("a", "b", "c")], ("1+4", "3"), "names column 4, but the first row has 3, counted from 1"),
        ([("a", "b", "c"), ("a", "b")], ("1+2", "3"), r"Pair 2 is \('a', 'b'\): 3 texts were expected"),
        ([("a", None, "c")], ("1+2", "3"), r"Pair 1 holds \['a', None\] of type list: a text was expected"),
    ],
)
def test_rows_in_memory_that_cannot_be_used(rows: Any, columns: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        corpus_of(rows, columns)
