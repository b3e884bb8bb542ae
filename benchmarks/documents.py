"""A document of 100,000 words with ``en-fr``, beside CTranslate2 called directly with the same weights."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from random import Random

from benchmarks.measure import Line, take_turns
from seq2see.decoding.engines import FORMAT
from seq2see.documents.sentences import split
from seq2see.machine import cores
from seq2see.seq2seq import Seq2Seq, load
from seq2see.storage import folder

TURNS = 5  # so many rounds of other benchmarks are one here: it takes minutes
TOLD = 10_000  # words from which on each turn is told as it ends
CHECKED = 8  # inputs on which the export is compared with the model: it was checked before it shipped
PARTS = [
    ["My sister", "The old doctor", "Our neighbour", "The young teacher", "A tall policeman", "The farmer's wife",
     "His best friend", "The new driver", "Every child", "The mayor of the town", "Nobody here", "The tired nurse"],
    ["bought", "found", "lost", "wanted to see", "never forgot", "sold", "was looking for", "talked about", "painted"],
    ["a red car", "an old book", "the small house", "three white horses", "a letter from Paris", "the last photograph",
     "her father's watch", "a box of apples", "the keys of the office", "some very good wine"],
    ["in the garden", "near the station", "at the market", "on the way home", "behind the church", "in a quiet street"],
    ["last summer", "on Monday morning", "before the war", "after dinner", "when it was raining", "during the holidays"],
]  # fmt: skip


def different_sentences() -> list[str]:
    """Make all sentences of these parts, in an order of chance."""
    sentences = [" ".join(parts) + "." for parts in product(*PARTS)]
    Random(7).shuffle(sentences)
    return sentences


def text_of(words: int) -> str:
    """Make paragraphs of sentences, all of them different, with so many words."""
    paragraphs, count = list[list[str]](), 0
    for number, sentence in enumerate(different_sentences()):
        if number % 6 == 0:
            paragraphs.append([])
        paragraphs[-1].append(sentence)
        count += len(sentence.split())
        if count >= words:
            break
    return "\n\n".join(" ".join(paragraph) for paragraph in paragraphs) + "\n"


def documents(rounds: int, words: int = 100_000) -> Line:
    """Translate a text: paragraphs in, paragraphs out; the peer gets its sentences ready cut."""
    name = f"a text of {words:,} words, English to French, greedy"
    wanted = "as fast as CTranslate2"
    if find_spec(FORMAT) is None:
        return Line("documents", name, "words", words, {}, wanted, [FORMAT])
    text = text_of(words)
    with tempfile.TemporaryDirectory() as temporary:
        path = exported(Path(temporary) / "en-fr")
        model = load(path)
        ready: dict[str, Callable[[str], Callable[[], str]]] = {
            "seq2see": lambda text: partial(model.translate, text),
            "CTranslate2, one product on all cores": _direct(model, path, 1),
            "CTranslate2, a worker a core": _direct(model, path, cores()),
        }
        answered_by = model.network.engine_for(words).name
        # A short text warms them up: the whole one would take as long as a round.
        ours, theirs, _ = (prepare(text_of(600))().split("\n") for prepare in ready.values())
        same = sum(a == b for a, b in zip(ours, theirs, strict=True)) / len(ours)
        contestants = {who: prepare(text) for who, prepare in ready.items()}
        seconds = take_turns(contestants, max(1, rounds // TURNS), warm=True, telling=words >= TOLD)
    return Line(
        "documents", name, "words", len(text.split()), seconds, wanted, [],
        f"{same:.0%} of the lines of a short text agree",
        notes=[f"ours is answered by {answered_by}, finds the sentences, and checks numbers and loops; CTranslate2 "
               "gets the sentences cut by us, and its time includes tokenization"],
    )  # fmt: skip


def exported(path: Path) -> Path:
    """Copy the shipped model with an int8 export."""
    from seq2see.interchange.to_ctranslate2 import export

    shutil.copytree(folder.find("en-fr"), path)
    model = load(path, engine="torch")
    export(path, model.transformer, model.tokenizers, "int8", count=CHECKED)
    return path


def _direct(model: Seq2Seq, path: Path, workers: int) -> Callable[[str], Callable[[], str]]:
    """CTranslate2 as its manual calls it, on the sentences of each paragraph, which are cut before the clock starts."""
    import ctranslate2

    translator = ctranslate2.Translator(
        str(path / FORMAT), inter_threads=workers, intra_threads=1 if workers > 1 else cores()
    )
    source, target = model.tokenizers.source, model.tokenizers.target
    names = source.vocabulary()
    ids_of = {name: number for number, name in enumerate(target.vocabulary())}

    def translate(paragraphs: list[list[str]]) -> str:
        rows = source.encode_batch([sentence for paragraph in paragraphs for sentence in paragraph])
        results = translator.translate_batch(
            [[names[number] for number in row] for row in rows],
            beam_size=1, max_decoding_length=256, max_batch_size=2048, batch_type="tokens",
        )  # fmt: skip
        found = iter(target.decode_batch([[ids_of[token] for token in one.hypotheses[0]] for one in results]))
        return "\n".join(" ".join(next(found) for _ in paragraph) for paragraph in paragraphs)

    return lambda text: partial(
        translate, [[line[first:last] for first, last in split(line)] for line in text.split("\n")]
    )


LINES: dict[str, Callable[[int], Line]] = {"documents": documents}
