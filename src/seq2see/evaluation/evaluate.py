"""The scores of a model: its teacher-forced loss and its free answers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import torch

from seq2see.config import DecodingConfig, ModelConfig
from seq2see.decoding.both_ways import engine_of, log_probabilities
from seq2see.decoding.engines import Engine
from seq2see.decoding.hypothesis import PAPER, Special
from seq2see.decoding.rule import power_of_two
from seq2see.errors import InputError, installed
from seq2see.evaluation.metrics import Score, bleu, chrf, compare_bleu, compare_exact, sentence_chrf
from seq2see.model.transformer import Transformer
from seq2see.storage.folder import Tokenizers
from seq2see.tokenizers.folding import fold_unknown, in_slots, out_of_slots
from seq2see.tokenizers.tokenizer import Tokenizer

Pair = tuple[str, str]
Answered = tuple[str, str, str]  # source, expected, given
ROOM = 1.25  # times its target's tokens that an answer has, at least, if it is stopped
#: Largest probability of chance with which the best line of a training replaces the average: it is one of many lines.
CHANCE = 0.003
EDGES = (5, 10, 20, 40)  # words of the source at which the length buckets end
LETTER_EDGES = (4, 6, 8, 12)  # the same in characters, if most sources are single words


class Confusion(NamedTuple):
    """A symbol or character that was answered instead of another; empty for a missing or an extra one."""

    expected: str
    given: str
    times: int
    place: float  # mean position in the answer: 0 is its beginning, 1 its end


@dataclass
class Evaluation:
    """Scores over some pairs: its free answers and its teacher-forced loss.

    >>> import seq2see
    >>> pairs = [("1845-01-05", "January 5, 1845"), ("1845-01-06", "January 7, 1845")]
    >>> scores = seq2see.load("dates").evaluate(pairs)
    >>> scores.pairs, scores.exact_match, round(scores.character_error_rate, 3)
    (2, 0.5, 0.033)
    >>> scores.misses
    [('1845-01-06', 'January 7, 1845', 'January 6, 1845')]
    """

    pairs: int = 0
    exact: int = 0
    edits: int = 0  # of characters
    characters: int = 0
    token_edits: int = 0
    expected_tokens: int = 0
    loss_total: float = 0.0
    tokens: int = 0  # of the summed loss
    loss_pairs: int = 0  # pairs of the summed loss: those that can be scored
    misses: list[Answered] = field(default_factory=list, repr=False)
    answers: list[Answered] = field(default_factory=list, repr=False)

    @classmethod
    def of(
        cls,
        answers: Sequence[Answered],
        loss_total: float = 0.0,
        tokens: int = 0,
        separator: str | None = None,
        loss_pairs: int = 0,
    ) -> Evaluation:
        """Count right and wrong answers; the ``separator`` is between their words or symbols."""
        misses = [(source, expected, given) for source, expected, given in answers if given != expected]
        return cls(
            pairs=len(answers),
            exact=len(answers) - len(misses),
            edits=sum(edit_distance(expected, given) for _, expected, given in misses),
            characters=sum(len(expected) for _, expected, _ in answers),
            token_edits=sum(
                edit_distance(expected.split(separator), given.split(separator)) for _, expected, given in misses
            ),
            expected_tokens=sum(len(expected.split(separator)) for _, expected, _ in answers),
            loss_total=loss_total,
            tokens=tokens,
            loss_pairs=loss_pairs,
            misses=misses,
            answers=list(answers),
        )

    @property
    def given(self) -> list[str]:
        """The answers."""
        return [given for _, _, given in self.answers]

    @property
    def expected(self) -> list[str]:
        """The right answers."""
        return [expected for _, expected, _ in self.answers]

    def frame(self) -> Any:
        """The answers as a frame of pandas: source, expected, given, and whether it is right."""
        installed("pandas", "A frame")
        import pandas

        found = pandas.DataFrame(self.answers, columns=["source", "expected", "given"])
        return found.assign(right=found["expected"] == found["given"])

    @property
    def exact_match(self) -> float:
        """Share of pairs answered to the letter."""
        return self.exact / max(1, self.pairs)

    @property
    def character_error_rate(self) -> float:
        """Insertions, deletions and substitutions per expected character."""
        return self.edits / max(1, self.characters)

    @property
    def token_error_rate(self) -> float:
        """Insertions, deletions and substitutions of words (or of symbols with spaces between) per expected word."""
        return self.token_edits / max(1, self.expected_tokens)

    def of_others(self, sources: Collection[str], separator: str | None = None) -> Evaluation:
        """The scores of the pairs whose source is not among these, such as those of the training."""
        others = [answer for answer in self.answers if answer[0] not in sources]
        return Evaluation.of(others, separator=separator)

    def by_source(self, separator: str | None = None) -> Evaluation:
        """The scores with each source once: its answer is compared with the nearest of its targets."""
        targets: dict[str, dict[str, None]] = {}
        for source, expected, _ in self.answers:
            targets.setdefault(source, {})[expected] = None
        nearest = []
        for source, given in {source: given for source, _, given in self.answers}.items():
            cut = given.split(separator)
            best = min(targets[source], key=lambda one: (one != given, edit_distance(one.split(separator), cut)))
            nearest.append((source, best, given))
        return Evaluation.of(nearest, separator=separator)

    @property
    def loss(self) -> float:
        """Mean −log P(token) in nats over ``loss_pairs``, teacher-forced, without label smoothing."""
        return self.loss_total / max(1, self.tokens)

    def bleu(self) -> Score:
        """Corpus BLEU."""
        return bleu(self.given, self.expected)

    def chrf(self) -> Score:
        """Corpus chrF."""
        return chrf(self.given, self.expected)

    def worst(self, count: int, separator: str | None = None) -> list[tuple[float, str, str, str]]:
        """The wrong answers that resemble their references least: (score, source, expected, given).

        The score is chrF; of symbols, with a ``separator`` between them, it is the share that is right, in percent.
        """
        if separator is None:
            return sorted((sentence_chrf(g, e), s, e, g) for s, e, g in self.misses)[:count]
        found = []
        for source, expected, given in self.misses:
            right = expected.split(separator)
            wrong = edit_distance(right, given.split(separator))
            found.append((100 * max(0.0, 1 - wrong / len(right)), source, expected, given))
        return sorted(found)[:count]

    @property
    def are_words(self) -> bool:
        """Whether most sources are single words, so that their lengths are counted in characters."""
        return 2 * sum(" " not in source for source, _, _ in self.answers) > len(self.answers)

    def by_length(self) -> list[tuple[str, Evaluation]]:
        """The scores by the length of the source: in words, or in characters of single words. Empty ones are left out."""
        buckets, edges = [], LETTER_EDGES if self.are_words else EDGES
        for low, high in zip((0, *edges), (*edges, 10**9), strict=True):
            part = [
                answer
                for answer in self.answers
                if low < max(1, len(answer[0] if self.are_words else answer[0].split())) <= high
            ]
            if part:
                buckets.append((f"{low + 1}-{high}" if high < 10**9 else f"over {low}", Evaluation.of(part)))
        return buckets

    def confusions(self, separator: str | None = None) -> list[Confusion]:
        """The confusions, most frequent first: of characters, or of symbols with a ``separator``."""
        counts: Counter[tuple[str, str]] = Counter()
        places: dict[tuple[str, str], list[float]] = defaultdict(list)
        for _, expected, given in self.misses:
            right, wrong = (
                (list(text) if separator is None else text.split(separator) if text else [])
                for text in (expected, given)
            )
            for place, change in differences(right, wrong):
                counts[change] += 1
                places[change].append((place + 0.5) / max(1, len(right)))
        return [Confusion(*change, count, sum(places[change]) / count) for change, count in counts.most_common()]

    def add(self, other: Evaluation) -> None:
        """Add the scores of another part."""
        for entry in fields(self):
            setattr(self, entry.name, getattr(self, entry.name) + getattr(other, entry.name))


def is_clearly_better(new: Evaluation, old: Evaluation, sentences: bool) -> bool:
    """Whether chance does not explain that ``new`` has better answers to the same pairs (paired bootstrap)."""
    compare = compare_bleu if sentences else compare_exact
    found = compare(old.given, new.given, old.expected)
    return found.b > found.a and found.p_value < CHANCE


def evaluate(
    model: Transformer,
    tokenizers: Tokenizers,
    pairs: Sequence[Pair],
    batch: int = 4096,
    progress: Callable[[int], None] = lambda done: None,
    engine: Engine | None = None,
    rules: DecodingConfig = PAPER,
    answer: Callable[[list[str]], list[str]] | None = None,
    in_brief: bool = False,
) -> Evaluation:
    """Score a model on pairs; ``progress`` gets the number of finished pairs, ``engine`` answers for the model.

    Sources are read as ``predict`` reads them: unknown characters are replaced by similar known ones, or put into
    slots. A source that the model cannot take counts as wrong. The loss is over the ``loss_pairs`` that can be scored.
    ``answer`` is given if more than the network answers: a model of sentences splits a text, and mends numbers.
    ``in_brief`` stops an answer that is much longer than its target: a model that has learned little writes to the end
    of its room.
    """
    special = Special.of(tokenizers)
    engine = engine or engine_of(model, special)
    total = Evaluation()
    for part in parts(pairs, batch):
        given = None if answer is None else answer([source for source, _ in part])
        total.add(_evaluate_batch(model, tokenizers, part, engine, rules, given, in_brief))
        progress(total.pairs)
    return total


def parts(pairs: Sequence[Pair], size: int) -> Iterator[Sequence[Pair]]:
    """Cut a sequence into parts of at most ``size``."""
    for first in range(0, len(pairs), size):
        yield pairs[first : first + size]


@torch.inference_mode()
def _evaluate_batch(
    model: Transformer,
    tokenizers: Tokenizers,
    pairs: Sequence[Pair],
    engine: Engine,
    rules: DecodingConfig,
    given: list[str] | None,
    in_brief: bool,
) -> Evaluation:
    both = tokenizers.source, tokenizers.target
    found = [in_slots(*both, fold_unknown(tokenizers.source, source)) for source, _ in pairs]
    read = [(text, target) for (text, _), (_, target) in zip(found, pairs, strict=True)]
    takable = [row for row, (source, _) in enumerate(read) if _takes(model.config, tokenizers, source)]
    if given is None:
        given = [""] * len(pairs)
        for most, rows in _by_room(tokenizers, read, takable).items() if in_brief else [(None, takable)]:
            sources = tokenizers.source.encode_batch([read[row][0] for row in rows])
            ids = engine.ids(sources, rules if most is None else rules.but(max_length=most)) if sources else []
            for row, answer in zip(rows, tokenizers.target.decode_batch(ids), strict=True):
                given[row] = out_of_slots(answer, found[row][1])
    scored, _ = score_what_can_be(model, tokenizers, [read[row] for row in takable])
    return Evaluation.of(
        [(source, target, answer) for (source, target), answer in zip(pairs, given, strict=True)],
        loss_total=-sum(map(sum, scored)),
        tokens=sum(map(len, scored)),
        separator=tokenizers.target.separator,
        loss_pairs=len(scored),
    )


def _by_room(tokenizers: Tokenizers, pairs: Sequence[Pair], rows: Sequence[int]) -> dict[int, list[int]]:
    """Return the rows by the room of their answers: a power of two of tokens, at least ``ROOM`` times the target's."""
    found: dict[int, list[int]] = {}
    for row in rows:
        found.setdefault(power_of_two(int(ROOM * _length(tokenizers.target, pairs[row][1])) + 1), []).append(row)
    return found


def _length(tokenizer: Tokenizer, text: str) -> int:
    """Return the number of tokens of a text, also of one with unknown characters."""
    return len(tokenizer.encode(text)) if tokenizer.knows(text) else len(text) + 2


def differences(a: Sequence[str], b: Sequence[str]) -> list[tuple[int, tuple[str, str]]]:
    """Return the fewest changes that turn a into b: the position in a, the old and the new item; "" is none."""
    costs = [list(range(len(b) + 1))]
    for i, x in enumerate(a, 1):
        row = [i]
        for j, y in enumerate(b, 1):
            row.append(min(costs[-1][j] + 1, row[-1] + 1, costs[-1][j - 1] + (x != y)))
        costs.append(row)
    found, i, j = [], len(a), len(b)
    while i or j:
        if i and j and costs[i][j] == costs[i - 1][j - 1] + (a[i - 1] != b[j - 1]):
            i, j = i - 1, j - 1
            if a[i] != b[j]:
                found.append((i, (a[i], b[j])))
        elif i and costs[i][j] == costs[i - 1][j] + 1:
            i -= 1
            found.append((i, (a[i], "")))
        else:
            j -= 1
            found.append((i, ("", b[j])))
    return found[::-1]


def edit_distance(a: Sequence[str], b: Sequence[str]) -> int:
    """Count the insertions, deletions and substitutions that turn a into b (Levenshtein)."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (x != y))
    return row[-1]


def score(model: Transformer, tokenizers: Tokenizers, pairs: Sequence[Pair]) -> list[list[float]]:
    """Return the log-probability of each token of each target, ``<eos>`` included, given its source."""
    for pair in pairs:
        check_pair(model.config, tokenizers, pair)
    sources = tokenizers.source.encode_batch([source for source, _ in pairs])
    targets = tokenizers.target.encode_batch([target for _, target in pairs])
    return log_probabilities(model, sources, targets, Special.of(tokenizers))


def score_what_can_be(
    model: Transformer, tokenizers: Tokenizers, pairs: Sequence[Pair]
) -> tuple[list[list[float]], dict[int, str]]:
    """Score the pairs that the model can take, in order; return also why it cannot take the others, by their place."""
    good, refused = [], {}
    for place, pair in enumerate(pairs):
        try:
            check_pair(model.config, tokenizers, pair)
        except InputError as error:
            refused[place] = str(error)
        else:
            good.append(pair)
    return (score(model, tokenizers, good) if good else []), refused


def check_pair(config: ModelConfig, tokenizers: Tokenizers, pair: Pair, number: int | None = None) -> None:
    """Raise an InputError if the model cannot take this pair; ``number`` says which of many it is."""
    try:
        for side, text in enumerate(pair):
            _check_side(config, tokenizers, side, text)
    except InputError as error:
        raise InputError(str(error) if number is None else f"Pair {number:,}: {error}") from None


def _check_side(config: ModelConfig, tokenizers: Tokenizers, side: int, text: str) -> None:
    """Raise an InputError if the model cannot take this text as its source (0) or target (1)."""
    tokenizer = (tokenizers.source, tokenizers.target)[side]
    tokenizer.check(text)
    longest = config.max_length + side  # the last token of a target is not read
    if len(text.encode()) + 2 > longest and (length := len(tokenizer.encode(text))) > longest:
        raise InputError(
            f"The {('source', 'target')[side]} has {length:,} tokens, but this model takes at most {longest:,}: "
            "cut it up."
        )


def _takes(config: ModelConfig, tokenizers: Tokenizers, source: str) -> bool:
    try:
        _check_side(config, tokenizers, 0, source)
    except InputError:
        return False
    return True
