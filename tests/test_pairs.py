"""Pairs from files: every format, every kind of bad row named by its line, splits that do not leak."""

from __future__ import annotations

import gzip
import json
import lzma
import sys
import types
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seq2see.cli import app
from seq2see.data import formats, shards
from seq2see.data.formats import LONGEST_LINE
from seq2see.data.pairs import read_pairs, seen_in, split
from seq2see.errors import UserError

GOOD = [("one", "un"), ("two", "deux"), ("three, or 3", 'trois "ou" 3')]


def write(path: Path, data: str | bytes) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def as_tsv() -> str:
    return "".join(f"{source}\t{target}\n" for source, target in GOOD)


def as_csv() -> str:
    return 'one,un\r\ntwo,deux\r\n"three, or 3","trois ""ou"" 3"\r\n'


def as_json() -> str:
    return "".join(json.dumps({"target": target, "source": source}) + "\n" for source, target in GOOD)


@pytest.mark.parametrize(
    ("name", "data"), [("a.tsv", as_tsv()), ("a.csv", as_csv()), ("a.jsonl", as_json()), ("a.txt", as_tsv())]
)
def test_every_format_packed_and_not(name: str, data: str, tmp_path: Path) -> None:
    assert read_pairs([write(tmp_path / name, data)]).pairs == GOOD
    assert read_pairs([write(tmp_path / f"{name}.gz", gzip.compress(data.encode()))]).pairs == GOOD
    assert read_pairs([write(tmp_path / f"{name}.xz", lzma.compress(data.encode()))]).pairs == GOOD
    assert read_pairs([write(tmp_path / name, data.removesuffix("\n"))], strict=True).lines == [1, 2, 3]


def test_two_parallel_files(tmp_path: Path) -> None:
    source = write(tmp_path / "train.en.gz", gzip.compress(b"one\n\ntwo\nthree\n"))
    target = write(tmp_path / "train.fr", "un\nrien\ndeux\ntrois")
    corpus = read_pairs([source, target])
    assert corpus.pairs == [("one", "un"), ("two", "deux"), ("three", "trois")]
    assert corpus.lines == [1, 3, 4]
    assert [str(fault) for fault in corpus.faults] == ["line 2: has an empty source ('rien' is the other side)"]
    write(tmp_path / "short.fr", "un\n")
    with pytest.raises(UserError, match=r"short\.fr ends after line 1, but train\.en\.gz has more"):
        read_pairs([source, tmp_path / "short.fr"])


def test_the_tatoeba_export_and_other_further_columns(tmp_path: Path) -> None:
    notes = "CC-BY 2.0 (France) Attribution: tatoeba.org #1 (CM) & #2 (sacredceltic)"
    corpus = read_pairs([write(tmp_path / "fra.txt", f"Go.\tVa !\t{notes}\nHi.\tSalut.\t{notes}\nRun!\tCours !\n")])
    assert corpus.pairs == [("Go.", "Va !"), ("Hi.", "Salut.")]
    assert corpus.columns == 3
    assert [str(fault) for fault in corpus.faults] == ["line 3: has 2 columns where most rows have 3"]


@pytest.mark.parametrize(
    ("first", "header"),
    [("source\ttarget", True), ("English\tfrench", True), ("en\tfr", True), ("source\tsource", False),
     ("to\tà", False), ("1\tI", False)],
)  # fmt: skip
def test_a_header_is_one_only_if_it_clearly_is(first: str, header: bool, tmp_path: Path) -> None:
    corpus = read_pairs([write(tmp_path / "a.tsv", f"{first}\nx\ty\n")])
    assert corpus.header == (first.split("\t") if header else [])
    assert len(corpus.pairs) == (1 if header else 2)  # "x y" could head a file, but not in the second row


BAD = [
    (b"only one side", "has one side only ('only one side')"),
    (b"a\tb\tc", "has 3 columns where most rows have 2"),
    (b"a\t", "has an empty target ('a' is the other side)"),
    ("\u00a0\tb".encode(), "has an empty source ('b' is the other side)"),
    (b"", "is empty"),
    (b"caf\xe9\tcoffee", "is not UTF-8 text (byte 4 is 0xE9)"),
    (b"x" * 100_000 + b"\ty", f"has more than {LONGEST_LINE:,} characters"),
    (b"x" * 200_000, f"has more than {LONGEST_LINE:,} characters"),
]


@pytest.mark.parametrize(("row", "reason"), BAD)
def test_a_bad_row_is_skipped_and_named_or_refused(row: bytes, reason: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", b"one\tun\ntwo\tdeux\n" + row + b"\nthree\ttrois\n")
    corpus = read_pairs([path])
    assert corpus.pairs == [("one", "un"), ("two", "deux"), ("three", "trois")]
    assert [(fault.line, fault.reason) for fault in corpus.faults] == [(3, reason)]
    with pytest.raises(UserError, match=r"a\.tsv, line 3: "):
        read_pairs([path], strict=True)


def test_bad_csv_and_json_rows(tmp_path: Path) -> None:
    corpus = read_pairs([write(tmp_path / "a.csv", b'a,b\n"x" y,z\nc\nd,\xff\n"e\nf",g\nh,"never closed\ni,j\n')])
    assert corpus.pairs == [("a", "b"), ("e f", "g")]
    assert [fault.line for fault in corpus.faults] == [2, 3, 4, 8]
    assert "never closed" in corpus.faults[-1].reason
    assert read_pairs([write(tmp_path / "b.csv", "a;b\nc, d;e\n")]).pairs == [("a", "b"), ("c, d", "e")]
    assert read_pairs([write(tmp_path / "c.csv", "a;b,c\n")]).pairs == [("a;b", "c")]
    lines = ['{"en": "a", "fr": "b", "id": 3}', "[1]", "nonsense", '{"en": "c"}', '{"fr": "e", "en": "d"}', ""]
    corpus = read_pairs([write(tmp_path / "c.jsonl", "\n".join(lines) + "\n\n")])
    assert corpus.pairs == [("a", "b"), ("d", "e")]
    assert [fault.line for fault in corpus.faults] == [2, 3, 4, 6, 7]
    assert corpus.faults[2].reason == "has an empty target ('c' is the other side)"


def test_texts_are_folded_unless_told_otherwise(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "\ufeff cafe\u0301\u00a0 noir \t x\u202f!\r\n")
    assert read_pairs([path]).pairs == [("caf\u00e9 noir", "x !")]
    assert read_pairs([path], prepare=str).pairs == [(" cafe\u0301\u00a0 noir ", " x\u202f!")]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "a.tsv is empty"),
        (b"\n\n", "no pair that can be used .2 bad rows: line 1: is empty"),
        (b"one\ntwo\n", "no pair .* has one side only"),
        (b"source\ttarget\n", "only a header"),
        ("a\tb\n".encode("utf-16"), "UTF-16"),
        (b"PK\x03\x04rest", "zip archive"),
        (gzip.compress(b"a\tb\n" * 9999, mtime=0)[:-20], "cannot be read beyond"),
        (b"\xfd7zXZ\x00rest", "cannot be read beyond"),
    ],
)
def test_a_file_without_pairs_is_refused(data: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        read_pairs([write(tmp_path / "a.tsv", data)])


def test_a_file_that_unpacks_to_far_more_than_its_size_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "LONGEST_LINE", 10)
    monkeypatch.setattr(formats, "UNPACKED", 1000)
    monkeypatch.setattr(formats, "UNPACKED_TIMES", 2)
    for data in (b"a\tb\n" * 2000, b"a\t" + b"b" * 8000):  # many lines, or one that is read in parts
        with pytest.raises(UserError, match=r"a\.tsv unpacks to more than 2 times its size \(at line"):
            read_pairs([write(tmp_path / "a.tsv", gzip.compress(data))])
    assert len(read_pairs([write(tmp_path / "a.tsv", gzip.compress(b"a\tb\n" * 250))]).pairs) == 250  # 1,000 bytes


def test_a_missing_file_and_too_many_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="There is no file"):
        read_pairs([tmp_path / "nothing.tsv"])
    with pytest.raises(UserError, match="is a folder"):
        read_pairs([tmp_path])
    with pytest.raises(UserError, match="3 files"):
        read_pairs([tmp_path] * 3)


def test_three_parts_share_no_source() -> None:
    pairs = [(f"s{n % 300}", f"t{n}") for n in range(900)]
    parts = split(pairs, seed=2)
    everything = [parts.train, parts.validation, parts.test]
    assert sorted(pair for part in everything for pair in part) == sorted(pairs)
    sources = [{source for source, _ in part} for part in everything]
    assert [len(part) for part in sources] == [257, 13, 30]
    assert len(set.union(*sources)) == 300
    assert parts == split(pairs, seed=2)
    assert parts != split(pairs, seed=3)


def test_given_parts_are_taken_as_they_are() -> None:
    pairs = [(f"s{n}", f"t{n}") for n in range(100)]
    given = {"validation": pairs[:7], "test": [("s7", "another"), ("new", "x")]}
    parts = split([*pairs, pairs[0]], **given)
    assert (parts.validation, parts.test) == (given["validation"], given["test"])
    assert parts.train == [*pairs, pairs[0]]  # equal rows count as often as they are there
    assert [seen_in({source for source, _ in parts.train}, part) for part in (parts.validation, parts.test)] == [7, 1]
    assert split(pairs, **given, unseen=True).train == pairs[8:]
    part = split(pairs, validation=pairs[:7])
    assert not {source for source, _ in part.train} & {source for source, _ in part.test}
    with pytest.raises(UserError, match="Nothing is left to learn from: of 2 pairs"):
        split(pairs[:2])


# --- Hugging Face datasets, by a stand-in for the library, which is large and reaches for the network ------------------


BOOKS = [{"id": str(n), "translation": {"fr": f"chat {n}", "en": f"cat {n}"}} for n in range(4)]
FLAT = [{"question": None, "answer": "a", "n": 1}, {"question": "q", "answer": "a", "n": 2}]
NAMED = [{"note": "x", "target": "t", "source": " s  s "}]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """A stand-in for ``datasets`` that notes what it was asked for."""
    asked: list[tuple[object, ...]] = []
    known: dict[str, object] = {
        "books": {"train": BOOKS, "test": BOOKS[:1]},
        "flat": {"validation": FLAT},
        "named": {"train": NAMED},
        "empty": {"train": []},
        "numbers": {"train": [{"a": 1, "b": 2}]},
        "three": {"train": [{"a": "x", "b": "y", "c": "z"}]},
    }

    def load_dataset(name: str, config: str | None) -> object:
        asked.append((name, config))
        if name not in known:
            raise ConnectionError(f"Couldn't reach '{name}'\non the Hub")
        return known[name]

    def load_from_disk(name: str) -> object:
        asked.append((name,))
        return BOOKS  # one split alone has no names of splits

    module = types.ModuleType("datasets")
    module.__spec__ = ModuleSpec("datasets", None)
    module.load_dataset, module.load_from_disk = load_dataset, load_from_disk  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", module)
    return asked


def test_a_dataset_for_translation_goes_the_way_of_its_config(hub: list[tuple[object, ...]]) -> None:
    corpus = read_pairs([Path("hf:books:en-fr")])
    assert corpus.pairs == [(f"cat {n}", f"chat {n}") for n in range(4)]
    assert (corpus.name, corpus.header, corpus.lines) == ("hf:books:en-fr", ["en", "fr"], [1, 2, 3, 4])
    assert hub == [("books", "en-fr")]
    assert read_pairs([Path("hf:books:fr-en:test")]).pairs == [("chat 0", "cat 0")]
    assert read_pairs([Path("hf:books:en-fr:test:fr:en")]).pairs == [("chat 0", "cat 0")]


def test_a_dataset_of_two_columns_and_bad_rows(hub: list[tuple[object, ...]]) -> None:
    corpus = read_pairs([Path("hf:flat")])
    assert (corpus.header, corpus.pairs, corpus.lines) == (["question", "answer"], [("q", "a")], [2])
    assert [str(fault) for fault in corpus.faults] == ["line 1: has no texts under 'question' and 'answer'"]
    assert read_pairs([Path("hf:named")]).pairs == [("s s", "t")]
    assert hub == [("flat", None), ("named", None)]


def test_a_dataset_that_was_saved_in_a_folder(hub: list[tuple[object, ...]], tmp_path: Path) -> None:
    (tmp_path / "dataset_info.json").touch()
    assert len(read_pairs([Path(f"hf:{tmp_path}:en-fr")]).pairs) == 4
    assert hub == [(str(tmp_path),)]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hf:", "'hf:' names no dataset: hf:NAME:CONFIG:SPLIT:SOURCE:TARGET"),
        ("hf:books:en-fr:train:en", "names no dataset"),
        ("hf:books:a:b:c:d:e", "names no dataset"),
        ("hf:nowhere", r"could not be loaded \(Couldn't reach 'nowhere' on the Hub\).*network"),
        ("hf:books:en-fr:tset", "has no split 'tset'. Did you mean 'test'"),
        ("hf:books:en-fr:test:en:de", "has no texts 'de'. Known: en, fr"),
        ("hf:three", r"3 columns of text \(a, b, c\).*hf:three:::a:b"),
        ("hf:numbers", r"0 columns of text \(none\)"),
        ("hf:empty", "has no rows"),
    ],
)
def test_a_dataset_that_cannot_be_used(name: str, message: str, hub: list[tuple[object, ...]]) -> None:
    with pytest.raises(UserError, match=message):
        read_pairs([Path(name)])


def test_two_datasets_are_too_many(hub: list[tuple[object, ...]], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds both sides"):
        read_pairs([Path("hf:books:en-fr"), tmp_path / "a.fr"])


def test_the_library_is_asked_for_if_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r"pip install 'seq2see\[huggingface\]'"):
        read_pairs([Path("hf:books:en-fr")])


def test_the_commands_take_a_dataset(hub: list[tuple[object, ...]]) -> None:
    done = CliRunner().invoke(app, ["doctor", "hf:books:en-fr", "--test", "hf:books:en-fr:test"])
    assert done.exit_code == 1  # four pairs are few, and one of them is tested on
    assert "4 in hf:books:en-fr" in done.output
    assert "'en' and 'fr'" in done.output
    assert "1 of 1 test sources are also in the training" in done.output


def test_a_large_dataset_is_told_by_its_rows(hub: list[tuple[object, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    assert not shards.is_large([Path("hf:books:en-fr")])
    monkeypatch.setattr(shards, "LARGE", 700)
    assert shards.is_large([Path("hf:books:en-fr")])
