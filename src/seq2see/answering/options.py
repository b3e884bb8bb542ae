"""The options of an answer, in one object that Seq2Seq, the command and the server share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypedDict

from seq2see.config import WIDEST_BEAM, DecodingConfig
from seq2see.documents.terms import Glossary
from seq2see.errors import UserError

if TYPE_CHECKING:
    from seq2see.decoding.allowed import Automaton


class Given(TypedDict, total=False):
    """The fields of ``Options`` as keywords: ``model.predict(texts, beam=4)``."""

    beam: int | None
    length_penalty: float | None
    max_length: int | None
    n_best: int
    only: Iterable[str] | Automaton | None
    pattern: str | None
    prefix: str | None
    glossary: Glossary | Mapping[str, str | None] | None
    min_confidence: float | None
    order: str | None
    whole: bool
    format: str | None


@dataclass(frozen=True, kw_only=True)
class Options:
    r"""How texts are answered. It checks itself; None leaves an option to the model.

    >>> import seq2see
    >>> wide = seq2see.Options(beam=4, pattern=r"\w+ \d+, \d{4}")
    >>> seq2see.load("dates").predict(["1845-01-05"], wide)
    ['January 5, 1845']
    """

    beam: int | None = None  # width of the beam search; 1 is greedy
    length_penalty: float | None = None  # α, by which a beam prefers longer answers
    max_length: int | None = None  # most tokens of an answer, fewer or more than the model's own limit
    n_best: int = 1  # answers to each text; a beam is at least as wide
    only: Iterable[str] | Automaton | None = None  # the answers that are allowed
    pattern: str | None = None  # a regular expression that matches each answer as a whole
    prefix: str | None = None  # what each answer begins with
    # the translation of each term; None keeps a term as it is
    glossary: Glossary | Mapping[str, str | None] | None = None
    min_confidence: float | None = None  # an answer with a lower confidence is withheld
    order: str | None = None  # for human dates: whether 03/04/2020 begins with the day or the month
    whole: bool = False  # do not split a text into sentences
    format: str | None = None  # format of a document: text, html, markdown, srt, po or json

    def __post_init__(self) -> None:
        if not isinstance(self.n_best, int) or not 1 <= self.n_best <= WIDEST_BEAM:
            raise UserError(f"n_best is {self.n_best!r}: a whole number was expected, from 1 to {WIDEST_BEAM}.")
        least = self.min_confidence
        if least is not None and (not isinstance(least, int | float) or not 0 <= least <= 1):
            raise UserError(f"`min_confidence` is {least!r}: a probability from 0 to 1 was expected.")
        if self.only is not None and not hasattr(self.only, "starts"):  # no automaton
            self._set("only", tuple(listed(self.only)))
        for name in ("pattern", "prefix"):
            text = getattr(self, name)
            if text is not None and (not isinstance(text, str) or not text):
                raise UserError(f"`{name}` is {text!r}: a text was expected.")
        if sum(one is not None for one in (self.only, self.pattern, self.prefix)) > 1:
            raise UserError("More than one of `only`, `pattern` and `prefix` was given: use one of them.")
        if self.glossary is None:
            return
        if not isinstance(self.glossary, Glossary):
            self._set("glossary", Glossary(dict(self.glossary)))
        if self.is_constrained:
            raise UserError("`glossary` cannot be used together with `only`, `pattern` or `prefix`: leave one out.")
        if self.n_best > 1:
            raise UserError("`glossary` gives one answer to each text: leave `n_best` out.")

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    @classmethod
    def of(cls, options: object, given: Mapping[str, Any]) -> Options:
        """Return the options of a call: an ``Options``, or its fields as keywords."""
        unknown = given.keys() - {field.name for field in fields(cls)}
        if unknown:
            known = ", ".join(field.name for field in fields(cls))
            raise TypeError(f"There is no option {min(unknown)!r}. The options are: {known}.")
        if options is None:
            return cls(**given)
        if isinstance(options, Options):
            if given:
                raise UserError(f"`{next(iter(given))}` was given beside an Options object: put it into the object.")
            return options
        raise UserError(
            f"`options` is {options!r:.60}: an Options object was expected, or options as keywords, as in beam=4."
        )

    @property
    def is_constrained(self) -> bool:
        """Whether only some answers are allowed."""
        return not (self.only is None and self.pattern is None and self.prefix is None)

    @property
    def terms(self) -> Glossary | None:
        """The glossary."""
        assert self.glossary is None or isinstance(self.glossary, Glossary)
        return self.glossary

    def rules(self, own: DecodingConfig) -> DecodingConfig:
        """Return the rules of the search: the model's own, with the given options."""
        given = {"beam": self.beam, "length_penalty": self.length_penalty, "max_length": self.max_length}
        if self.max_length is not None:  # the limit, whatever the length of the source
            given |= {"length_ratio": 0.0, "length_offset": self.max_length}
        rules = own.but(**{name: value for name, value in given.items() if value is not None})
        return rules if rules.beam >= self.n_best else rules.but(beam=self.n_best)


def listed(texts: Any) -> list[str]:
    """Return texts as a list. A single text is an error: its characters would be taken as texts."""
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise UserError(f"A list of texts was expected, but {texts!r:.60} was given: put one text into [ ].")
    return list(texts)
