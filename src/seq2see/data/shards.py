"""Corpora larger than memory: surveyed in one pass, turned into ids in a second one, and read from disk when needed.

``survey`` reads all pairs and keeps a bounded random sample and the held-out pairs. ``write`` reads them
again and writes ids end to end into memory-mapped files; batches are made from them as from any ``Ragged``.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from seq2see.data.batching import Ragged
from seq2see.data.pairs import Corpus, Fault, Pair, hub_size, is_hub, name_of, stream
from seq2see.errors import FolderError, InputError, UserError, counted
from seq2see.files import parsed, plain_file, read_text, write_atomically, writing
from seq2see.tokenizers.tokenizer import Tokenizer

LARGE = 256 * 2**20  # bytes of text from which a corpus is not read into memory
PACKED_KINDS = (".gz", ".xz", ".parquet")
PACKED = 4  # estimated ratio of a text to its packed file
SAMPLE = 200_000  # pairs to choose and train the tokenizers
HELD_OUT = 1000  # sources for validation, and as many for the final test
PER_SOURCE = 20  # targets that are kept for one held-out source
NAMED_ROWS = 1000  # bad rows that are kept with their line numbers
CHUNK = 10_000  # pairs that are cut at a time
MANIFEST, FORMAT = "manifest.json", 1
LARGEST_MANIFEST = 2**20  # bytes
SIDES = ("source", "target")


def is_large(paths: Sequence[Path]) -> bool:
    """Whether files are too large to be read into memory."""
    total = 0
    for path in paths:
        if is_hub(path):
            total += hub_size(str(path))
        elif path.is_file():
            total += path.stat().st_size * (PACKED if path.suffix.lower() in PACKED_KINDS else 1)
    return total >= LARGE


# --- the first pass ------------------------------------------------------------------------------------------------


@dataclass
class Survey:
    """The results of one pass over a corpus: its size, a random sample, its characters, and the held-out pairs."""

    paths: list[Path]
    seed: int
    corpus: Corpus  # the sample and the first bad rows, for the doctor
    count: int = 0  # usable pairs
    bad: int = 0  # rows that cannot
    letters: tuple[set[str], set[str]] = field(default_factory=lambda: (set(), set()))
    validation: list[Pair] = field(default_factory=list)
    test: list[Pair] = field(default_factory=list)
    below: int = 0  # a source with a smaller hash is held out
    given: frozenset[int] = frozenset()  # hashes of the sources of given parts
    columns: tuple[str, str] | None = None

    @property
    def alphabet(self) -> list[Pair]:
        """All characters of both sides, as one pair: what a tokenizer of characters learns from."""
        source, target = map("".join, self.letters)
        return [(source, target)]

    def is_held_out(self, source: str) -> bool:
        """Whether this source is not in the training."""
        number = hash_of(source, self.seed)
        return number < self.below or number in self.given


def survey(
    paths: Sequence[Path],
    seed: int = 1,
    validation: Sequence[Pair] | None = None,
    test: Sequence[Pair] | None = None,
    strict: bool = False,
    progress: Callable[[int], None] = lambda count: None,
    columns: tuple[str, str] | None = None,
    unseen: bool = False,
) -> Survey:
    """Read all pairs once, in bounded memory; parts that are not given are split off by the hash of the source.

    ``unseen`` removes the sources of given parts from the training.
    """
    held_back = [*(validation or ()), *(test or ())] if unseen else []
    given = frozenset(hash_of(source, seed) for source, _ in held_back)
    found = Survey(list(paths), seed, Corpus(name_of(paths)), given=given, columns=columns)
    random, held = Random(seed), _Smallest(2 * HELD_OUT + 1)
    corpus = found.corpus
    rows = stream(paths, corpus, columns=columns)
    while chunk := list(islice(rows, CHUNK)):
        good = [(line, pair) for line, pair in chunk if isinstance(pair, tuple)]
        _note_bad(found, [(line, why) for line, why in chunk if isinstance(why, str)], strict)
        for side, letters in enumerate(found.letters):
            letters |= _letters_of("".join([pair[side] for _, pair in good]))
        for line, pair in good:
            number = hash_of(pair[0], seed)
            if number <= held.largest and number not in given:
                held.add(number, pair)
            place = found.count if found.count < SAMPLE else random.randrange(found.count + 1)
            if place == len(corpus.pairs):
                corpus.pairs.append(pair)
                corpus.lines.append(line)
            elif place < SAMPLE:
                corpus.pairs[place], corpus.lines[place] = pair, line
            found.count += 1
        progress(found.count)
    if not found.count:
        raise UserError(f"{corpus.name} has no pair that can be used ({counted(found.bad, 'bad row')}).")
    _hold_out(found, held, validation, test)
    # Tokenizers and the doctor see only training pairs.
    kept = [(p, n) for p, n in zip(corpus.pairs, corpus.lines, strict=True) if not found.is_held_out(p[0])]
    if not kept:
        raise UserError(f"{corpus.name} has no pairs left for training after validation and test are split off.")
    corpus.pairs, corpus.lines = [pair for pair, _ in kept], [line for _, line in kept]
    return found


def _note_bad(found: Survey, rows: list[tuple[int, str]], strict: bool) -> None:
    """Count bad rows, and keep the first of them."""
    corpus = found.corpus
    if rows and strict:
        line, why = rows[0]
        raise UserError(f"{corpus.name}, line {line:,}: {why}. Correct it, or leave `strict` out to skip such rows.")
    corpus.faults += [Fault(line, why) for line, why in rows[: max(0, NAMED_ROWS - found.bad)]]
    found.bad += len(rows)


def _letters_of(text: str) -> set[str]:
    """Return the characters of a text: as ``set`` does, four times as fast."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    return {chr(code) for code in np.flatnonzero(np.bincount(codes)).tolist()}


def hash_of(source: str, seed: int) -> int:
    """Return a number that depends on a source and the seed alone, evenly spread over 64 bits."""
    hashed = _hash(seed).copy()
    hashed.update(source.encode())
    return int.from_bytes(hashed.digest(), "little")


@cache
def _hash(seed: int) -> Any:
    """Return the hash of an empty text. Copying it for each source is faster than making one."""
    return hashlib.blake2b(digest_size=8, salt=seed.to_bytes(8, "little"))


class _Smallest:
    """The pairs of the sources with the smallest hashes: a random choice of sources that needs no list of all."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.pairs: dict[int, list[Pair]] = {}
        self.heap: list[int] = []  # negative, so that the largest kept hash is on top
        self.largest = 2**64  # a larger hash is not kept

    def add(self, number: int, pair: Pair) -> None:
        """Add a pair."""
        if number in self.pairs:
            if len(self.pairs[number]) < PER_SOURCE:
                self.pairs[number].append(pair)
        elif len(self.heap) < self.count:
            heapq.heappush(self.heap, -number)
            self.pairs[number] = [pair]
        elif number < -self.heap[0]:
            del self.pairs[-heapq.heapreplace(self.heap, -number)]
            self.pairs[number] = [pair]
        if len(self.heap) == self.count:
            self.largest = -self.heap[0]

    def distinct(self) -> int:
        """Estimate how many different sources there are: exactly, if they are few."""
        if len(self.heap) < self.count:
            return len(self.heap)
        return int((self.count - 1) * 2**64 / -self.heap[0])


def _hold_out(found: Survey, held: _Smallest, validation: Sequence[Pair] | None, test: Sequence[Pair] | None) -> None:
    """Take validation (5 %, at most 1,000 sources) and test (10 %) from the smallest hashes, unless they are given."""
    numbers, distinct, first = sorted(held.pairs), held.distinct(), 0
    for part, given, share in ((found.test, test, 0.1), (found.validation, validation, 0.05)):
        if given is not None:
            part += given
            continue
        last = first + min(HELD_OUT, max(1, int(distinct * share)))
        part += [pair for number in numbers[first:last] for pair in held.pairs[number]]
        first = last
        found.below = numbers[min(last, len(numbers)) - 1] + 1


# --- the second pass -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shards:
    """The ids of a corpus on disk; ``len`` gives the number of pairs."""

    source: Ragged
    target: Ragged
    digest: str  # of all ids, in order
    longest: int  # tokens
    dropped: int  # pairs that were too long
    dropped_lines: list[int]  # the first of them

    def __len__(self) -> int:
        return len(self.source.offsets) - 1


def write(
    folder: Path,
    found: Survey,
    tokenizers: tuple[Tokenizer, Tokenizer],
    limit: int,
    progress: Callable[[int], None] = lambda count: None,
) -> Shards:
    """Write the ids of all pairs that are not held out and have at most ``limit`` tokens per side, unless the
    folder has them.
    """
    key = _key(found, tokenizers, limit)
    if (there := _opened(folder, key)) is not None:
        return there
    shutil.rmtree(folder, ignore_errors=True)  # incomplete, or of other data
    try:
        note = _written(folder, found, tokenizers, limit, progress)
        # The manifest comes last, when everything else is on the disk: files without it are not used.
        write_atomically(folder / MANIFEST, json.dumps({"format": FORMAT, "key": key, **note}).encode())
    except Exception:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    if not note["pairs"]:
        raise UserError(f"Nearly all pairs are longer than {limit} tokens: split the texts, or raise model.max_length.")
    written = _opened(folder, key)
    assert written is not None
    return written


def _written(
    folder: Path, found: Survey, tokenizers: tuple[Tokenizer, Tokenizer], limit: int, progress: Callable[[int], None]
) -> dict[str, Any]:
    """Write all files but the manifest, and return what it says."""
    kinds = ["uint16" if tokenizer.size <= 2**16 else "int32" for tokenizer in tokenizers]
    digest = hashlib.blake2b(digest_size=16)
    ends, pairs, longest, dropped = [0, 0], 0, 1, 0
    lines: list[int] = []
    with ExitStack() as stack:
        ids, offsets = (
            [stack.enter_context(writing(folder / f"{side}.{kind}")) for side in SIDES] for kind in ("ids", "offsets")
        )
        for file in offsets:
            file.write(np.zeros(1, dtype=np.int64).tobytes())
        for chunk, rows in _ahead(found, tokenizers):
            sides = [Ragged.of(side) for side in rows]
            most = np.maximum(sides[0].lengths, sides[1].lengths)
            kept = np.flatnonzero(most <= limit)
            if len(kept) < len(chunk):
                dropped += len(chunk) - len(kept)
                lines += [chunk[place][0] for place in np.flatnonzero(most > limit)[: NAMED_ROWS - len(lines)]]
                sides = [side.taken(kept) for side in sides]
            if not len(kept):
                continue
            longest = max(longest, int(most[kept].max()))
            for side, ragged in enumerate(sides):
                for file, array in (
                    (ids[side], ragged.values.astype(kinds[side])),
                    (offsets[side], ragged.offsets[1:] + ends[side]),
                ):
                    data = array.tobytes()
                    digest.update(data)
                    file.write(data)
                ends[side] += len(ragged.values)
            pairs += len(kept)
            progress(pairs)
    return {
        "pairs": pairs, "ids": ends, "kinds": kinds, "digest": digest.hexdigest(), "longest": longest,
        "dropped": dropped, "dropped_lines": lines,
    }  # fmt: skip


def _ahead(
    found: Survey, tokenizers: tuple[Tokenizer, Tokenizer]
) -> Iterator[tuple[list[tuple[int, Pair]], list[list[list[int]]]]]:
    """Yield pairs that are not held out, with their lines and the ids of both sides.

    Meanwhile the library tokenizes the next pairs on all cores, and Python reads those after them.
    """

    def cut(chunk: list[tuple[int, Pair]]) -> list[list[list[int]]]:
        name = found.corpus.name
        return [_cut(name, tokenizer, chunk, side) for side, tokenizer in enumerate(tokenizers)]

    learned = (
        (line, pair)
        for line, pair in stream(found.paths, Corpus(""), columns=found.columns)
        if isinstance(pair, tuple) and not found.is_held_out(pair[0])
    )
    before = None
    with ThreadPoolExecutor(1) as worker:
        while chunk := list(islice(learned, CHUNK)):
            now = chunk, worker.submit(cut, chunk)
            if before is not None:
                yield before[0], before[1].result()
            before = now
        if before is not None:
            yield before[0], before[1].result()


def _cut(name: str, tokenizer: Tokenizer, chunk: list[tuple[int, Pair]], side: int) -> list[list[int]]:
    """Turn texts into ids; the error for an unknown character names the line."""
    if not tokenizer.has_bytes and tokenizer.unknown is None:
        for line, pair in chunk:
            try:
                tokenizer.check(pair[side])
            except InputError as error:
                raise UserError(f"{name}, line {line:,}: {error}") from None
    return tokenizer.encode_batch([pair[side] for _, pair in chunk])


def _key(found: Survey, tokenizers: tuple[Tokenizer, Tokenizer], limit: int) -> str:
    """Return a key of files, tokenizers and split: if any of them changes, the shards are written again."""
    files = [
        (str(path), 0, 0) if is_hub(path) else (path.name, path.stat().st_size, path.stat().st_mtime_ns)
        for path in found.paths
    ]
    parts = [files, found.count, found.seed, found.below, sorted(found.given), limit, found.columns]
    texts = [json.dumps(parts), tokenizers[0].to_json(), tokenizers[1].to_json()]
    return hashlib.blake2b("\0".join(texts).encode(), digest_size=16).hexdigest()


def _opened(folder: Path, key: str) -> Shards | None:
    """Map the files of a folder; None if it is not complete, or of something else."""
    try:
        note = parsed(read_text(folder / MANIFEST, LARGEST_MANIFEST), MANIFEST)
        if (note["format"], note["key"]) != (FORMAT, key):
            return None
        sides = []
        for side, kind, count in zip(SIDES, note["kinds"], note["ids"], strict=True):
            files = (folder / f"{side}.ids", kind, count), (folder / f"{side}.offsets", "int64", note["pairs"] + 1)
            if any(plain_file(path) != size * np.dtype(of).itemsize for path, of, size in files):
                return None
            ids, offsets = (np.asarray(np.memmap(path, dtype=of, mode="r")) for path, of, _ in files)
            sides.append(Ragged(ids, offsets))
        source, target = sides
        return Shards(source, target, note["digest"], note["longest"], note["dropped"], note["dropped_lines"])
    except (FolderError, OSError, ValueError, KeyError, TypeError):
        return None
