"""Translate whole texts with a model of sentences: check each answer, search again if it is wrong, and repair it.

If an answer lacks a number, an address or a placeholder, or repeats itself, a second search is made to
contain what was missing. What is still missing after that is inserted. A remark reports each of these steps.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Protocol, cast

from seq2see.answering.answer import Answer, Reading, check_unicode
from seq2see.answering.links import Links
from seq2see.config import DecodingConfig, Repair
from seq2see.decoding.hypothesis import MOST_PHRASES, Phrase
from seq2see.documents import formats
from seq2see.documents.formats import Document
from seq2see.documents.kept import Read, loops, regrouped, repaired, spellings
from seq2see.documents.runs import Sentence
from seq2see.documents.terms import Glossary
from seq2see.errors import MissingPackageError, UserError, shown
from seq2see.tokenizers.tokenizer import Tokenizer

LONGEST_DOCUMENT = 2**28  # characters; a document is kept in memory
BEAM = 6  # narrowest beam of a second search
HALF = "\ufffd"  # what an invalid byte is read as
NO_REPEAT = 4  # an answer that was a loop may not repeat this many tokens


class Searcher(Protocol):
    """What answers single sentences: an ``Answerer``."""

    @property
    def target(self) -> Tokenizer:
        """How answers are cut."""

    def fits(self, text: str) -> bool:
        """Whether a sentence is short enough to be read in one piece."""

    def replies(
        self, texts: Sequence[str], rules: DecodingConfig, phrases: list[list[Phrase]] | None, probabilities: bool
    ) -> list[Answer]:
        """Search for the answers to single sentences; each answer must contain the given phrases."""

    def links(self, pairs: list[tuple[str, str]]) -> Links:
        """Return which span of a text each span of its answer comes from."""


@dataclass(frozen=True)
class Attempt:
    """One text that a model has read, and its reply."""

    read: Read
    reply: Answer
    output: str  # the answer, repaired if need be
    remarks: tuple[str, ...] = ()

    @property
    def faults(self) -> int:
        """The number of faults; a broken answer counts as three."""
        return len(self.read.missing(self.output)) + 3 * self.is_broken + self.has_lost_quotes

    @property
    def is_broken(self) -> bool:
        """Whether it repeats itself, was cut, or contains an invalid character."""
        if "loops" not in self.read.repairs:
            return False
        return not self.reply.finished or loops(self.output, self.read.text) or self.is_garbled

    @property
    def is_garbled(self) -> bool:
        """Whether it contains bytes that form no character."""
        return "loops" in self.read.repairs and HALF in self.output and HALF not in self.read.text

    @property
    def has_lost_quotes(self) -> bool:
        """Whether a quotation has lost its marks."""
        return self.read.has_lost_quotes(self.output)


@dataclass(frozen=True)
class Translated:
    """A translated sentence, with its tags and line ends, and its repairs."""

    text: str
    parts: tuple[Attempt, ...] = ()
    remarks: tuple[str, ...] = ()
    error: str | None = None


def read(text: str, format: str = "text") -> Document:
    """Read a document of a format, or raise a UserError that says what is wrong with it."""
    if not isinstance(text, str):
        raise UserError(f"A text was expected, but {text!r:.60} is of type {type(text).__name__}.")
    if len(text) > LONGEST_DOCUMENT:
        raise UserError(f"The document has more than {LONGEST_DOCUMENT:,} characters: cut it up.")
    check_unicode(text)
    return formats.read(text, format)


def put_together(texts: Sequence[str], readings: Sequence[Reading], found: Iterable[Translated]) -> list[Answer]:
    """Put the answers to the sentences of texts together; a text without a document was refused."""
    remaining = iter(found)
    return [
        _whole(text, one, [next(remaining) for _ in one.sentences]) if isinstance(one, Document) else cast(Answer, one)
        for text, one in zip(texts, readings, strict=True)
    ]


def _whole(text: str, document: Document, found: Sequence[Translated]) -> Answer:
    error = next((one.error for one in found if one.error is not None), None)
    if error is not None:
        return Answer(text, None, error=error)
    output = document.written([one.text for one in found])
    parts = [part.reply for one in found for part in one.parts]
    if not parts:
        return Answer(text, output, repairs=["there are no words in it, so it was left as it is"])
    repairs = [remark for one in found for remark in one.remarks]
    if len(parts) == 1 and parts[0].output == output:
        return parts[0].said_of(text, repairs)
    values, sure = [part.log_probability for part in parts], [part.confidence for part in parts]
    return Answer(
        text,
        output,
        log_probability=None if None in values else sum(value for value in values if value is not None),
        tokens=[token for part in parts for token in part.tokens],
        ids=[number for part in parts for number in part.ids],
        finished=all(part.finished for part in parts),
        repairs=repairs,
        parts=parts,
        remark=" ".join(part.remark for part in parts if part.remark) or None,
        confidence=None if None in sure else min(one for one in sure if one is not None),
    )


def translate(
    sentences: Sequence[Sentence],
    answerer: Searcher,
    rules: DecodingConfig,
    glossary: Glossary | None = None,
    probabilities: bool = False,
) -> list[Translated]:
    """Translate sentences. Equal ones are answered once."""
    means = _Means(answerer, probabilities)
    cut = [_fitting(sentence, answerer, rules.repairs) for sentence in sentences]
    works = [_Work.of(part, glossary, rules.repairs) for parts in cut for part in parts]
    different = list({work.key: work for work in works}.values())
    found = dict(zip([work.key for work in different], _answered(different, means, rules, glossary), strict=True))
    tagged = [work for work in works if work.sentence.pairs and found[work.key].reply.error is None]
    links = dict(
        zip(
            map(id, tagged),
            answerer.links([(found[work.key].read.text, found[work.key].output) for work in tagged]) if tagged else [],
            strict=True,
        )
    )
    remaining, results = iter(works), []
    for sentence, parts in zip(sentences, cut, strict=True):
        mine = [next(remaining) for _ in parts]
        done = [found[work.key] for work in mine]
        error = next((part.reply.error for part in done if part.reply.error is not None), None)
        if error is not None:
            results.append(Translated(sentence.unchanged(), tuple(done), (), error))
            continue
        written = [
            work.sentence.written(part.output, part.read, links.get(id(work), ()))
            for work, part in zip(mine, done, strict=True)
        ]
        remarks = tuple(remark for part in done for remark in part.remarks)
        results.append(Translated(_joined(written, cut=len(parts) > 1), tuple(done), remarks))
    return results


def _joined(texts: list[str], cut: bool) -> str:
    return " ".join(text.strip(" ") for text in texts) if cut else texts[0]


def _fitting(sentence: Sentence, answerer: Searcher, repairs: tuple[Repair, ...]) -> list[Sentence]:
    """Cut a sentence into parts that the model can read."""
    if len(sentence.text) < 2 or answerer.fits(sentence.read(repairs).text):
        return [sentence]
    halves = (half for half in sentence.halves() if half.text.strip())
    return [part for half in halves for part in _fitting(half, answerer, repairs)]


@dataclass(frozen=True)
class _Means:
    """How sentences are answered."""

    answerer: Searcher
    probabilities: bool


@dataclass(frozen=True, eq=False)
class _Work:
    """A sentence, what the model reads of it, and the terms that its answer must hold.

    The model reads the translation in the place of the term, so that the words around it may agree with it.
    If no good answer contains it, the term is hidden, as a name is, and inserted afterwards.
    """

    sentence: Sentence
    read: Read
    terms: tuple[str, ...] = ()  # their translations

    @classmethod
    def of(
        cls, sentence: Sentence, glossary: Glossary | None, repairs: tuple[Repair, ...], hidden: bool = False
    ) -> _Work:
        plain = sentence.read(repairs)
        if glossary is None:
            return cls(sentence, plain)
        found = [
            term
            for term in glossary.found(sentence.text)
            if not any(first < term.last and term.first < last for first, last in plain.places)
        ]
        kept = [(term.first, term.last) for term in found if term.target is None or hidden]
        written = {(term.first, term.last): term.target for term in found if term.target is not None}
        breaks = [one.place for one in sentence.breaks]
        read = Read.of(sentence.text, [*sentence.fixed, *kept], {} if hidden else written, breaks, repairs)
        items = tuple(written.get(place) or item for place, item in zip(read.places, read.items, strict=True))
        fixed = frozenset(n for n in read.fixed if read.places[n] in sentence.fixed)
        return cls(
            sentence, replace(read, items=items, fixed=fixed), () if hidden else tuple(filter(None, written.values()))
        )

    @property
    def key(self) -> tuple[object, ...]:
        return self.read, self.terms

    def missing_terms(self, answer: str) -> list[str]:
        """Return the translations of terms that an answer lacks as separate words."""
        lacking = []
        for target in dict.fromkeys(self.terms):
            alone = re.findall(rf"(?<!\w){re.escape(target)}(?!\w)", answer, re.IGNORECASE)
            lacking += [target] * (self.terms.count(target) - len(alone))
        return lacking


def _answered(works: Sequence[_Work], means: _Means, rules: DecodingConfig, glossary: Glossary | None) -> list[Attempt]:
    """Answer the texts, then search again for the wrong answers."""
    results: dict[int, Attempt] = {}
    wide = rules.but(beam=max(rules.beam, BEAM))
    free = [number for number, work in enumerate(works) if not work.terms]
    bound = [number for number, work in enumerate(works) if work.terms]
    for number, reply in zip(free, _replies([works[n] for n in free], means, rules, None), strict=True):
        results[number] = Attempt(works[number].read, reply, reply.output or "")
    wanted = [_phrases(works[number], works[number].terms, means.answerer.target) for number in bound]
    for number, reply in zip(bound, _replies([works[n] for n in bound], means, wide, wanted), strict=True):
        results[number] = Attempt(works[number].read, reply, reply.output or "")
    failed = [n for n in bound if results[n].reply.error is not None or _is_wrong(works[n], results[n])]
    if failed:
        hidden = [_Work.of(works[n].sentence, glossary, rules.repairs, hidden=True) for n in failed]
        results |= zip(failed, _answered(hidden, means, rules, None), strict=True)

    wrong = [n for n in free if results[n].reply.error is None and _is_wrong(works[n], results[n])]
    again = _searched_again(wrong, works, results, means, wide)
    return [_mended(again.get(n, results[n])) for n in range(len(works))]


def _is_wrong(work: _Work, part: Attempt) -> bool:
    return part.faults > 0 or bool(work.missing_terms(part.output))


def _replies(
    works: Sequence[_Work], means: _Means, rules: DecodingConfig, phrases: list[list[Phrase]] | None
) -> list[Answer]:
    if not works:
        return []
    return means.answerer.replies([work.read.text for work in works], rules, phrases, means.probabilities)


def _searched_again(
    numbers: Sequence[int], works: Sequence[_Work], before: dict[int, Attempt], means: _Means, rules: DecodingConfig
) -> dict[int, Attempt]:
    """Search for answers that contain what the first ones lacked and do not loop; keep the better of the two.

    If they lack nothing, any engine may answer.
    """
    found = {}
    lacking = {n: before[n].read.missing(before[n].output) for n in numbers}
    for broken, lacks in product((False, True), repeat=2):
        some = [n for n in numbers if (before[n].is_broken, bool(lacking[n])) == (broken, lacks)]
        phrases = [_phrases(works[n], lacking[n], means.answerer.target) for n in some] if lacks else None
        guarded = rules.but(no_repeat=NO_REPEAT) if broken else rules
        try:
            replies = _replies([works[n] for n in some], means, guarded, phrases)
        except (
            MissingPackageError
        ):  # only PyTorch searches for phrases; what is missing is inserted, and a remark says it
            continue
        for n, reply in zip(some, replies, strict=True):
            new = Attempt(works[n].read, reply, reply.output or "")
            if reply.error is None and new.faults < before[n].faults:
                found[n] = replace(new, remarks=_said(before[n]))
    return found


def _said(before: Attempt) -> tuple[str, ...]:
    """Return the remarks that explain a second search."""
    missing = [_shown(item, before.read) for item in before.read.missing(before.output)]
    said = []
    if missing:
        said.append(
            f"the first answer lacked {', '.join(missing[:5])}, so a second search was made for an answer with it"
        )
    if before.has_lost_quotes:
        said.append("the first answer lacked a quotation mark, so a second search was made")
    if before.is_garbled:
        said.append("the first answer had an invalid character, so a second search was made")
    elif before.is_broken:
        said.append("the first answer was cut off or repeated itself, so a second search was made")
    return tuple(said)


def _mended(part: Attempt) -> Attempt:
    """Insert what is still missing, and group the digits of large numbers in one way."""
    output = regrouped(part.output, part.read.text) if "numbers" in part.read.repairs else part.output
    output = part.read.closed_up(output)
    if output != part.output:
        part = replace(part, output=output)
    if part.reply.error is not None:
        return part
    if part.is_garbled:
        said = "the answer had an invalid character, which was removed: check it"
        part = replace(part, output=part.output.replace(HALF, ""), remarks=(*part.remarks, said))
    if part.has_lost_quotes:
        part = replace(part, remarks=(*part.remarks, "the answer lacks a quotation mark: check it"))
    missing = part.read.missing(part.output)
    if not missing:
        return part
    named = ", ".join(_shown(item, part.read) for item in missing[:5])
    said = f"the answer lacked {named}, which was inserted: check it"
    return replace(part, output=repaired(part.output, missing, part.read), remarks=(*part.remarks, said))


def _shown(item: str, read: Read) -> str:
    """Return an item as a reader sees it, without its mark."""
    number = item[1:-1]
    return shown(read.items[int(number) - 1] if item.startswith("{") and number.isdigit() else item)


def _phrases(work: _Work, items: Sequence[str], target: Tokenizer) -> list[Phrase]:
    """Return the ways to write each item in an answer, as ids: at its start, or after a space."""
    found: list[Phrase] = []
    for item in items[:MOST_PHRASES]:
        ways = spellings(item, work.read.text)
        if item in work.terms:  # at the start with a capital; after l' and the like without a space
            ways = [item, item[0].upper() + item[1:]]
            found.append(Phrase(_rows([f" {item}", item], target), _rows(ways, target)))
        else:
            found.append(Phrase(_rows([f" {way}" for way in ways], target), _rows(ways, target)))
    return found


def _rows(texts: Sequence[str], target: Tokenizer) -> list[list[int]]:
    """Return the ids of some texts, without those around them."""
    rows = [row[len(target.before) : len(row) - len(target.after)] for row in target.encode_batch(list(texts))]
    return [list(row) for row in dict.fromkeys(map(tuple, rows)) if row]
