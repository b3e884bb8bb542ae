"""Tasks: pairs of one hidden rule, a question and its answer; and how they are written for the model.

``tasks(seed, worker)`` is an endless stream that the seed decides. A rule is drawn as often as people wish for it, so
where the examples leave two readings the question is answered by the more ordinary one more often.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from tokenizers import Tokenizer as Engine
from tokenizers import models, processors

from seq2see.answering import examples
from seq2see.tokenizers.tokenizer import BYTES_TO_TEXT, EVERY_CHARACTER, Tokenizer
from shipped.examples.rules import FAMILIES, NEEDS, Maker, Pair
from shipped.examples.words import pick, weighted

#: The tokens: padding, begin, end, unknown, then those between input and output, before the next example and before the
#: question; the bytes of UTF-8 follow.
PAD, START, END, UNKNOWN, BECOMES, NEXT, QUESTION, BYTES = 0, 1, 2, 3, 4, 5, 6, 8
VOCABULARY = BYTES + 256
LONGEST = 1500  # tokens of examples and question
LONGEST_ANSWER = 160  # tokens of an answer that is learned
LONGEST_TEXT = 400  # characters of an input that is drawn
COUNTS = (1, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 6, 7, 8, 10, 12, 16, 20)  # examples of a task
WRONG = 0.1  # of the tasks with six examples or more, those with a wrong one among them

_family = weighted(*[(weight, number) for number, (weight, _, _) in enumerate(FAMILIES)])


@dataclass(slots=True)
class Task:
    """Some examples of a rule, a question and its answer."""

    family: int
    pairs: list[Pair]
    question: str
    answer: str


def bytes_of(text: str) -> list[int]:
    """Return a text as tokens."""
    return [x + BYTES for x in text.encode("utf-8", "replace")]


def serialised(pairs: Sequence[Pair], question: str) -> list[int]:
    """Return examples and question as ``tokenizer`` cuts them: input BECOMES output NEXT … QUESTION question."""
    ids = [START]
    for number, (a, b) in enumerate(pairs):
        if number:
            ids.append(NEXT)
        ids += [*bytes_of(a), BECOMES, *bytes_of(b)]
    return [*ids, QUESTION, *bytes_of(question), END]


def tokenizer() -> Tokenizer:
    """Return the tokenizer of the model's folder: a character of ASCII is one token, any other character is its bytes."""
    signs = {PAD: "<pad>", START: "<sos>", END: "<eos>", UNKNOWN: "<unk>", BECOMES: examples.BECOMES}
    signs |= {NEXT: examples.NEXT, QUESTION: examples.QUESTION, BYTES - 1: "␜"}  # the last one is not used
    names = [signs.get(n) or (chr(n - BYTES) if n < BYTES + 128 else f"<0x{n - BYTES:02X}>") for n in range(VOCABULARY)]
    engine = Engine(models.BPE({name: n for n, name in enumerate(names)}, [], unk_token="<unk>", byte_fallback=True))
    engine.pre_tokenizer = EVERY_CHARACTER
    engine.decoder = BYTES_TO_TEXT
    engine.post_processor = processors.TemplateProcessing(
        single="<sos> $A <eos>", special_tokens=[("<sos>", START), ("<eos>", END)]
    )
    return Tokenizer(engine)


def text_of(ids: Sequence[int]) -> str:
    """Return the text that some tokens write, up to the end."""
    found = bytearray()
    for i in ids:
        if i == END:
            break
        if i >= BYTES:
            found.append(i - BYTES)
    return found.decode("utf-8", "replace")


def pairs_of(make: Maker, r: Random, count: int) -> list[Pair] | None:
    """Return some different pairs of a rule, or None if it has too few or they teach nothing."""
    found: dict[str, str] = {}
    tries, most = 0, 2 * count + 4
    room = LONGEST - 60
    while len(found) < count:
        tries += 1
        if tries > most or (tries == 4 and not found):
            break
        pair = make(r)
        if pair is None:
            continue
        a, b = pair[0], pair[1]
        if not b or not a or len(a) > LONGEST_TEXT or len(b) > LONGEST_ANSWER - 2 or not b.strip() or a in found:
            continue
        size = len(a) + len(b) if a.isascii() and b.isascii() else len(a.encode()) + len(b.encode())
        if len(b.encode()) > LONGEST_ANSWER - 2:
            continue
        room -= size + 2
        if room < 0:
            break
        found[a] = b
    if len(found) < 2:
        return None
    return [*found.items()]


def is_dull(pairs: Sequence[Pair]) -> bool:
    """Whether a task teaches nothing: all outputs are the same, or each is its input."""
    first = pairs[0][1]
    return all(b == first for _, b in pairs) or all(a == b for a, b in pairs)


def _answerable(make: Maker, pairs: Sequence[Pair], at: int) -> int:
    """Return the pair from ``at`` on whose question the others answer, or −1 if there is none."""
    if (needs := NEEDS.get(make)) is None:
        return at
    needed: list[set[str]] = [needs(pair) for pair in pairs]
    order: list[int] = [*range(at, len(pairs)), *range(at)]
    for n in order:
        if needed[n] <= set().union(*needed[:n], *needed[n + 1 :]):
            return n
    return -1


def task(r: Random) -> Task:
    """Draw a task."""
    while True:
        number = _family(r)
        make = FAMILIES[number][2](r)
        pairs = pairs_of(make, r, pick(r, COUNTS) + 1)
        if pairs is None or (is_dull(pairs) and r.random() < 0.97):
            continue
        at = _answerable(make, pairs, int(r.random() * len(pairs)))
        if at < 0:
            continue
        question, answer = pairs.pop(at)
        if len(pairs) >= 6 and r.random() < WRONG:
            spoilt = int(r.random() * len(pairs))
            pairs[spoilt] = pairs[spoilt][0], pairs[spoilt - 1][1]
        return Task(number, pairs, question, answer)


def tasks(seed: int, worker: int = 0) -> Iterator[Task]:
    """Yield tasks without end; seed and worker decide them."""
    r = Random(f"examples {seed} {worker}")
    while True:
        yield task(r)
