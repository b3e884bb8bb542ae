"""``python -m benchmarks.shortlist FILE``: the most that a lexical shortlist can gain in int8 on one thread.

A shortlist leaves only some words to the output layer. The one here is the best that can be: of each batch it has the
words of the answers and no other, so that no answer changes. A list that is learned has more words and gains less.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

import ctranslate2

from benchmarks.documents import exported
from seq2see.decoding.engines import FORMAT
from seq2see.seq2seq import load

LINES = 500
SPECIAL = ("<pad>", "<sos>", "<eos>")


def measure(texts: list[str], batch: int, rounds: int = 3) -> str:
    """Translate with ``en-fr`` with all words and with the best shortlist, in turns, and describe the gain."""
    with tempfile.TemporaryDirectory() as temporary:
        model = exported(Path(temporary) / "en-fr")
        tokenizer = load(model).tokenizers.source
        # A file of candidates separates them by spaces, and tokens of ours have spaces: so they get other names.
        names = [name if name in SPECIAL else str(number) for number, name in enumerate(tokenizer.vocabulary())]
        (model / FORMAT / "shared_vocabulary.json").write_text(json.dumps(names))
        sources = [[names[token] for token in row] for row in tokenizer.encode_batch(texts)]

        def answer(path: Path, short: bool) -> tuple[float, list[list[str]]]:
            translator = ctranslate2.Translator(str(path), inter_threads=1, intra_threads=1)
            start = time.process_time()
            found = translator.translate_batch(
                sources, beam_size=1, max_batch_size=batch, max_input_length=0, use_vmap=short
            )
            return time.process_time() - start, [one.hypotheses[0] for one in found]

        whole, listed = model / FORMAT, Path(temporary) / "listed"
        _, right = answer(whole, False)
        shutil.copytree(whole, listed)
        words: dict[str, set[str]] = {}
        for source, tokens in zip(sources, right, strict=True):
            words.setdefault(source[1], set()).update(tokens)  # its first token stands for a source
        lines = "".join(f"{first}\t{' '.join(sorted(tokens))}\n" for first, tokens in words.items())
        (listed / "vmap.txt").write_text(lines)
        pairs = [(answer(whole, False), answer(listed, True)) for _ in range(rounds)]
    assert all(short == right for _, (_, short) in pairs)
    full, least = (min(seconds) for seconds in zip(*((a[0], b[0]) for a, b in pairs), strict=True))
    gain = f"all words {full:.2f} s, the best list {least:.2f} s, {1 - least / full:.1%} less"
    return f"{len(texts)} lines, {batch} at once, CPU time: {gain}"


if __name__ == "__main__":
    given = Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()[:LINES]
    for size in (128, 1):
        print(measure(given, size), flush=True)
