"""Corpora larger than memory: the same ids as in memory, no leak, whole or not there, and batches as from memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from conftest import small_disk
from seq2see.data import shards
from seq2see.data.batching import Batches, PackedBatches, Ragged
from seq2see.data.pairs import Pair
from seq2see.data.shards import Shards, is_large, survey, write
from seq2see.errors import FolderError, UserError
from seq2see.tokenizers.tokenizer import Tokenizer
from seq2see.training.checkpoint import SHARDS
from seq2see.training.options import TrainOptions
from seq2see.training.prepare import RawSplits, prepare

ALL = [(f"number {n % 700} is here", f"la {n} est là") for n in range(900)]  # 200 sources twice


@pytest.fixture
def large(tmp_path: Path) -> Path:
    rows = [f"{source}\t{target}" for source, target in ALL]
    rows.insert(5, "no tab")
    rows[10:10] = ["number 3 " + "x" * 300 + "\tlong"]
    path = tmp_path / "large.tsv"
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def tokenizer() -> Tokenizer:
    return Tokenizer.characters_of([side for pair in ALL for side in (*pair, "x", "long")])


def texts_of(ragged: Ragged, tokenizer: Tokenizer) -> list[str]:
    rows = [ragged.values[a:b].tolist() for a, b in zip(ragged.offsets, ragged.offsets[1:], strict=False)]
    assert all(row[0] == tokenizer.start and row[-1] == tokenizer.end for row in rows)
    return tokenizer.decode_batch(rows)


def pairs_of(found: Shards, tokenizer: Tokenizer) -> list[Pair]:
    return list(zip(texts_of(found.source, tokenizer), texts_of(found.target, tokenizer), strict=True))


def test_all_pairs_are_in_exactly_one_part_and_no_source_in_two(
    large: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    found = survey([large])
    assert (found.count, found.bad, [fault.line for fault in found.corpus.faults]) == (901, 1, [6])
    written = write(tmp_path / "shards", found, (tokenizer, tokenizer), limit=100)
    assert (written.dropped, written.dropped_lines) == (1, [11])
    train = pairs_of(written, tokenizer)
    assert sorted([*train, *found.validation, *found.test]) == sorted(ALL)
    sources = [{source for source, _ in part} for part in (train, found.validation, found.test)]
    assert [len(part) for part in sources[1:]] == [35, 70]  # 5 % and 10 % of 701 sources
    assert len(set.union(*sources)) == sum(map(len, sources)) == 700
    assert [pair for pair in ALL if pair in set(train)] == train  # in the order of the file
    assert len(written) == len(train)
    assert written.longest == max(len(side) + 2 for pair in [*train] for side in pair)
    assert not {source for source, _ in found.corpus.pairs} & (sources[1] | sources[2])
    assert found.letters[1] == {letter for _, target in [*ALL, ("", "long")] for letter in target}


def test_another_seed_is_another_split_and_given_parts_are_kept(large: Path) -> None:
    first, again, other = survey([large]), survey([large]), survey([large], seed=2)
    assert (first.validation, first.test) == (again.validation, again.test)
    assert first.test != other.test
    test = [("number 7 is here", "x"), ("new", "y")]
    assert not survey([large], test=test, validation=[("a", "b")]).is_held_out("number 7 is here")
    given = survey([large], test=test, unseen=True)
    assert given.test == test
    assert given.is_held_out("number 7 is here")
    assert not {source for source, _ in given.validation} & {source for source, _ in test}
    assert all(given.is_held_out(source) for source, _ in given.validation)


def test_the_sample_is_bounded_and_random(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "SAMPLE", 100)
    found = survey([large])
    places = [ALL.index(pair) for pair in found.corpus.pairs if pair in ALL]
    assert 70 <= len(places) <= 100  # what is held out is taken away
    assert 300 < np.mean(places) < 600
    assert found.corpus.pairs == survey([large]).corpus.pairs


def written_files(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}


def test_written_once_and_again_if_half_written_or_of_something_else(
    large: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    folder, both, found = tmp_path / "shards", (tokenizer, tokenizer), survey([large])
    digest = write(folder, found, both, 100).digest
    before = written_files(folder)
    assert write(folder, found, both, 100).digest == digest
    assert written_files(folder) == before
    for harm in ("manifest.json", "target.ids"):
        (folder / harm).unlink()
        assert write(folder, found, both, 100).digest == digest
    with (folder / "source.offsets").open("ab") as file:
        file.write(b"x")
    (folder / "stray").touch()
    assert write(folder, found, both, 100).digest == digest
    assert "stray" not in written_files(folder)
    (folder / "manifest.json").write_text('{"format": 1}')
    assert write(folder, found, both, 100).digest == digest
    assert write(folder, found, both, 19).digest != digest
    assert write(folder, survey([large], seed=2), both, 100).digest != digest


@pytest.mark.parametrize("room", [0, 1000])  # bytes, of the first file or in the middle of one
def test_a_full_disk_leaves_nothing_half_written(large: Path, tokenizer: Tokenizer, tmp_path: Path, room: int) -> None:
    found = survey([large])
    with (
        small_disk(room),
        pytest.raises(FolderError, match=r"\.(ids|offsets) could not be written to .*: File too large"),
    ):
        write(tmp_path / "shards", found, (tokenizer, tokenizer), 100)
    assert not (tmp_path / "shards").exists()


@pytest.mark.parametrize("kind", [Batches, PackedBatches])
def test_batches_are_those_of_memory(
    kind: type[Batches] | type[PackedBatches], large: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    written = write(tmp_path / "shards", survey([large]), (tokenizer, tokenizer), 100)
    assert written.source.values.dtype == np.uint16
    train = pairs_of(written, tokenizer)
    sides = [Ragged.of(tokenizer.encode_batch([pair[side] for pair in train])) for side in (0, 1)]
    pads = (tokenizer.pad, tokenizer.pad)
    mapped = kind(written.source, written.target, pads, 1024, 3)
    memory = kind(sides[0], sides[1], pads, 1024, 3)
    assert mapped.per_epoch == memory.per_epoch
    for step in (0, 1, mapped.per_epoch):
        a, b = mapped.at(step), memory.at(step)
        assert a.tokens == b.tokens
        for x, y in ((a.source, b.source), (a.target_in, b.target_in), (a.target_out, b.target_out)):
            assert x.dtype == y.dtype
            assert x.equal(y)


def test_ids_that_need_more_than_16_bits(large: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    names = [*tokenizer.vocabulary(), *map(chr, range(0x20000, 0x30000))]
    wide = Tokenizer.characters(names)
    assert wide.size > 2**16
    written = write(tmp_path / "shards", survey([large]), (tokenizer, wide), 100)
    assert (written.source.values.dtype, written.target.values.dtype) == (np.uint16, np.int32)
    assert texts_of(written.target, wide)[0].startswith("la ")


@pytest.mark.parametrize("kind", ["characters", "bpe"])
def test_all_is_made_ready_from_a_survey(kind: str, large: Path, tmp_path: Path) -> None:
    found = survey([large])
    data = RawSplits(found.corpus, survey=found)
    ready = prepare(data, TrainOptions(tmp_path / "out", tokenizer=kind, training={"steps": 7}))
    assert isinstance(ready.train, Shards)
    assert ready.config.training.steps == 7
    assert ready.cuts.named == kind
    assert not ready.recipe.facts.recut
    assert ready.config.model.source_vocabulary == ready.tokenizers.source.size
    assert len(ready.train) + len(ready.validation) + len(ready.test) + ready.train.dropped == 901
    before = written_files(tmp_path / "out" / SHARDS)
    again = prepare(data, TrainOptions(tmp_path / "out", tokenizer=kind, training={"steps": 7}))
    assert isinstance(again.train, Shards)
    assert again.train.digest == ready.train.digest
    assert written_files(tmp_path / "out" / SHARDS) == before
    with pytest.raises(UserError, match="name a folder for its ids with `out`"):
        prepare(data, TrainOptions(tokenizer=kind))


def test_a_text_that_older_tokenizers_do_not_know_is_named(large: Path, tmp_path: Path) -> None:
    older = Tokenizer.characters_of(["number is here 0123456789", "la est x 0123456789"])
    with pytest.raises(UserError, match=r"large\.tsv, line 1: 'la 0 est là' has 'à'"):
        write(tmp_path / "shards", survey([large]), (older, older), 100)


def test_nothing_to_learn_from_is_said(tmp_path: Path, tokenizer: Tokenizer) -> None:
    bad, one = tmp_path / "bad.tsv", tmp_path / "one.tsv"
    bad.write_text("a\nb\n")
    one.write_text("a\tb\n")
    with pytest.raises(UserError, match=r"no pair that can be used \(2 bad rows"):
        survey([bad])
    with pytest.raises(UserError, match="has no pairs left for training"):
        survey([one])
    with pytest.raises(UserError, match=r"bad\.tsv, line 1: has one side only"):
        survey([bad], strict=True)
    one.write_text("".join(f"a{n}\tb\n" for n in range(30)))
    with pytest.raises(UserError, match="longer than 2 tokens"):
        write(tmp_path / "shards", survey([one]), (tokenizer, tokenizer), 2)


def test_large_is_told_by_the_size(large: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert not is_large([large])
    packed = tmp_path / "large.tsv.gz"
    packed.write_bytes(b"x" * 10_000)
    monkeypatch.setattr(shards, "LARGE", 39_000)
    assert is_large([packed])
    assert not is_large([large])
    assert is_large([large, large])


def test_a_survey_in_many_chunks_is_that_in_one(large: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    whole = survey([large])
    ids = write(tmp_path / "whole", whole, (Tokenizer.bytes(),) * 2, 100)
    monkeypatch.setattr(shards, "CHUNK", 7)
    parts = survey([large])
    again = write(tmp_path / "parts", parts, (Tokenizer.bytes(),) * 2, 100)
    assert parts == whole
    assert np.array_equal(again.source.values, ids.source.values)
    assert np.array_equal(again.target.offsets, ids.target.offsets)
    assert (again.dropped, again.dropped_lines) == (ids.dropped, ids.dropped_lines)
