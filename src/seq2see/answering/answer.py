"""The answer to one text, its probabilities, its confidence, and remarks about it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import exp
from typing import TYPE_CHECKING, Any, Union

from seq2see.errors import InputError

if TYPE_CHECKING:
    from seq2see.documents.formats import Document


class NoText(str):
    """An input without a text, and the reason: it is empty, so every model refuses it, with this reason."""

    reason: str

    def __new__(cls, reason: str) -> NoText:
        """Store the reason in the empty text."""
        made = super().__new__(cls)
        made.reason = reason
        return made


#: A text that was read: a document of sentences, a text that is not split, or the reason why it is refused.
Reading = Union["Document", str, "Answer"]


@dataclass(frozen=True)
class Token:
    """One token of an answer and how sure the model was of it."""

    token: str
    probability: float


@dataclass(frozen=True)
class Alternative:
    """A less likely answer."""

    output: str
    log_probability: float
    score: float | None = None  # by which answers are ranked: the log-probability over a power of the length


@dataclass(frozen=True)
class Answer:
    """The answer to one input, or the reason why the input was refused.

    >>> import seq2see
    >>> right, wrong = seq2see.load("dates").answers(["1845-01-05", "no date"])
    >>> right.output, right.tokens[0].token, right.probability > 0.99
    ('January 5, 1845', 'J', True)
    >>> wrong.output, wrong.error.split(":")[0]
    (None, "'no date' is not of the form YYYY-MM-DD")
    """

    input: str
    output: str | None
    log_probability: float | None = None
    tokens: list[Token] = field(default_factory=list)
    alternatives: list[Alternative] = field(default_factory=list)
    ids: list[int] = field(default_factory=list, repr=False)
    finished: bool = True  # False: it was cut at the limit of tokens
    error: str | None = None
    #: The calibrated probability that the answer is right; None if it is not known.
    confidence: float | None = None
    remark: str | None = None  # how the input was read, or how it differs from the training inputs
    withheld: str | None = None  # an answer that is not given, because its confidence is too low
    repairs: list[str] = field(default_factory=list)  # what was repaired in the answer
    parts: list[Answer] = field(default_factory=list, repr=False)  # the answers to its sentences
    #: By which it ranks before its alternatives; None without probabilities, and if its sentences were answered.
    score: float | None = None

    @classmethod
    def plain(cls, input: str, output: str, ids: list[int], finished: bool, remark: str | None) -> Answer:
        """Make an answer without probabilities; for many answers this is faster than the constructor."""
        made = cls.__new__(cls)
        made.__dict__.update(
            input=input, output=output, log_probability=None, tokens=[], alternatives=[], ids=ids, finished=finished,
            error=None, confidence=None, remark=remark, withheld=None, repairs=[], parts=[],
            score=None,
        )  # fmt: skip
        return made

    def said_of(self, text: str, repairs: list[str]) -> Answer:
        """Return the same answer to another text; for many of them this is faster than ``replace``."""
        made = self.__class__.__new__(self.__class__)
        made.__dict__.update(self.__dict__, input=text, repairs=repairs)
        return made

    def _repr_html_(self) -> str:
        from seq2see.inspection.notebook import answer

        return answer(self)

    @property
    def probability(self) -> float | None:
        """Probability of the whole answer."""
        return None if self.log_probability is None else exp(self.log_probability)


def told(answer: Answer, probabilities: bool, several: bool) -> dict[str, Any]:
    """Return an answer as an object of JSON, as the command and the server give it."""
    if answer.error is not None:
        refusal = {"input": answer.input.encode(errors="replace").decode(), "error": answer.error}
        withheld = {"withheld": answer.withheld, "confidence": answer.confidence}
        return refusal if answer.withheld is None else refusal | withheld
    found: dict[str, Any] = {"input": answer.input, "output": answer.output, "finished": answer.finished}
    known = {"confidence": answer.confidence, "remark": answer.remark, "repairs": answer.repairs or None}
    found |= {name: value for name, value in known.items() if value is not None}
    if probabilities:
        tokens = [vars(token) for token in answer.tokens]
        found |= {"log_probability": answer.log_probability, "tokens": tokens}
    if several:
        found |= {"score": answer.score, "alternatives": [vars(alternative) for alternative in answer.alternatives]}
    return found


def or_withheld(answer: Answer, least: float | None) -> Answer:
    """Return an answer, or withhold it if its confidence is below ``least``."""
    if least is None or answer.error is not None or (answer.confidence is not None and answer.confidence >= least):
        return answer
    why = (
        f"{answer.remark} The confidence of its answer is unknown."
        if answer.confidence is None
        else f"The answer has a confidence of {answer.confidence:.3f}, below the requested {least:g}."
    )
    return replace(answer, output=None, withheld=answer.output, error=f"{why} It was withheld.")


def as_date(answer: Answer, order: str | None) -> Answer:
    """Return an answer as its task reads it: a human date that is invalid or ambiguous is refused."""
    if answer.output is None:
        return answer
    from seq2see.tasks import human_dates

    try:
        date = human_dates.read(answer.input, answer.output, order)
        return answer if date == answer.output else replace(answer, output=date)
    except InputError as error:
        return replace(answer, output=None, error=str(error))


def check_unicode(text: str) -> None:
    """Refuse half a character, which UTF-8 cannot write."""
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"The line is not UTF-8 text (from character {error.start + 1} on).") from None
