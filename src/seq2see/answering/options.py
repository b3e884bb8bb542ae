"""The options of an answer, each declared once: Python's keywords, the command's options and the request's schema.

A declaration has the type and the default of a field, what it means, its bounds, and which surfaces have it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast, get_type_hints

from seq2see.answering import examples
from seq2see.answering.answer import NoText
from seq2see.config import WIDEST_BEAM, DecodingConfig
from seq2see.errors import UserError

if TYPE_CHECKING:
    from seq2see.decoding.allowed import Automaton
    from seq2see.documents.terms import Glossary

PYTHON, COMMAND, HTTP = "Python", "command", "HTTP"
FORMATS = ("text", "html", "markdown", "srt", "po", "json")


@dataclass(frozen=True, kw_only=True)
class Declared:
    """What the surfaces say of an option."""

    help: str
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    short: str | None = None  # of the command: -b
    sign: str | None = None  # of its value in the command's help
    file: str = ""  # of the command: what the lines of the file are that it reads instead
    surfaces: tuple[str, ...] = (PYTHON, COMMAND, HTTP)


def _option(default: Any, help: str, **more: Any) -> Any:
    return field(default=default, metadata={"declared": Declared(help=help, **more)})


@dataclass(frozen=True, kw_only=True)
class Options:
    r"""How texts are answered. It checks itself; None leaves an option to the model.

    >>> import seq2see
    >>> wide = seq2see.Options(beam=4, pattern=r"\w+ \d+, \d{4}")
    >>> seq2see.load("dates").predict(["1845-01-05"], wide)
    ['January 5, 1845']
    """

    beam: int | None = _option(
        None, "Width of the beam search; 1 is greedy. Default: the model's own.", least=1, short="-b"
    )
    length_penalty: float | None = _option(
        None, "Larger values prefer longer answers in a beam. Default: the model's own.", least=-10, most=10, sign="A"
    )
    max_length: int | None = _option(
        None, "Most tokens of an answer. Default: the model's own limit.", least=1, sign="N"
    )
    n_best: int = _option(
        1, "Answers to each input, best first, each with the score that ranks it.", least=1, short="-n"
    )
    only: Iterable[str] | Automaton | None = _option(  # noqa: RUF009 - a field
        None, "Allow only these answers.", file="In each line of FILE is one."
    )
    pattern: str | None = _option(
        None, "Allow only answers that this regular expression matches as a whole.", sign="REGEX"
    )
    prefix: str | None = _option(None, "Allow only answers that begin with this text.", sign="TEXT")
    glossary: Glossary | Mapping[str, str | None] | None = _option(  # noqa: RUF009 - a field
        None,
        "The translation of each term; a term without one stays as it is.",
        file="In each line of FILE is a term, a tab and its translation, or a term alone.",
    )
    min_confidence: float | None = _option(
        None,
        "Give only answers whose probability to be right is at least P; withhold the others.",
        least=0, most=1, sign="P",
    )  # fmt: skip
    order: str | None = _option(
        None, "With human-dates: whether 03/04/2020 begins with the day or the month.", choices=("day", "month")
    )
    strict: bool = _option(
        False, "Refuse a text with characters that the model has never seen, instead of copying them."
    )
    like: Any = _option(  # noqa: RUF009 - a field
        None,
        "Answer as these examples show: pairs of an input and its output, for the model examples.",
        sign="INPUT => OUTPUT",
    )
    whole: bool = _option(False, "Do not split texts into sentences, even if the model translates sentences.")
    format: str | None = _option(
        None, "The format of a whole document, of which only the words change.", choices=FORMATS
    )
    probabilities: bool = _option(
        True, "Return the probability of each token. False is faster.", surfaces=(HTTP,)
    )  # the command returns them with --json, and Python in ``answers``

    def __post_init__(self) -> None:
        if not isinstance(self.n_best, int) or not 1 <= self.n_best <= WIDEST_BEAM:
            raise UserError(f"n_best is {self.n_best!r}: a whole number was expected, from 1 to {WIDEST_BEAM}.")
        least = self.min_confidence
        if least is not None and (not isinstance(least, int | float) or not 0 <= least <= 1):
            raise UserError(f"`min_confidence` is {least!r}: a probability from 0 to 1 was expected.")
        if self.order is not None and self.order not in declared("order").choices:
            raise UserError(f"`order` is {self.order!r}: 'day' or 'month' was expected, whichever is written first.")
        if self.only is not None and not hasattr(self.only, "starts"):  # no automaton
            self._set("only", tuple(listed(self.only)))
        for name in ("pattern", "prefix"):
            text = getattr(self, name)
            if text is not None and (not isinstance(text, str) or not text):
                raise UserError(f"`{name}` is {text!r}: a text was expected.")
        if sum(one is not None for one in (self.only, self.pattern, self.prefix)) > 1:
            raise UserError("More than one of `only`, `pattern` and `prefix` was given: use one of them.")
        if self.like is not None:
            self._set("like", examples.pairs_of(self.like))
            if self.glossary is not None:
                raise UserError("`glossary` does not apply to answers by examples: leave it or `like` out.")
        if self.format is not None:
            self._check_document(self.format)
        if self.glossary is None:
            return
        from seq2see.documents.terms import Glossary

        if not isinstance(self.glossary, Glossary):
            self._set("glossary", Glossary(dict(self.glossary)))
        if self.is_constrained:
            raise UserError("`glossary` cannot be used together with `only`, `pattern` or `prefix`: leave one out.")
        if self.n_best > 1:
            raise UserError("`glossary` gives one answer to each text: leave `n_best` out.")

    def _check_document(self, form: str) -> None:
        from seq2see.documents.formats import check_format

        check_format(form)
        for name in ("n_best", "only", "pattern", "prefix", "min_confidence", "order", "strict", "like", "whole"):
            if getattr(self, name) != getattr(Options, name):
                raise UserError(f"`{name}` does not apply to a document: leave it or `format` out.")

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    @classmethod
    def of(cls, options: object, given: Mapping[str, Any]) -> Options:
        """Return the options of a call: an ``Options``, or its fields as keywords."""
        known = named_for(PYTHON)
        if unknown := given.keys() - set(known):
            raise TypeError(f"There is no option {min(unknown)!r}. The options are: {', '.join(known)}.")
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
        return cast("Glossary | None", self.glossary)

    def rules(self, own: DecodingConfig) -> DecodingConfig:
        """Return the rules of the search: the model's own, with the given options."""
        given = {"beam": self.beam, "length_penalty": self.length_penalty, "max_length": self.max_length}
        if self.max_length is not None:  # the limit, whatever the length of the source
            given |= {"length_ratio": 0.0, "length_offset": self.max_length}
        rules = own.but(**{name: value for name, value in given.items() if value is not None})
        return rules if rules.beam >= self.n_best else rules.but(beam=self.n_best)


def named_for(surface: str) -> list[str]:
    """Return the names of the options that a surface has."""
    return [one.name for one in fields(Options) if surface in one.metadata["declared"].surfaces]


def types_of() -> dict[str, Any]:
    """Return the types of the options; a surface reads a list of answers and a glossary in its own way."""
    return get_type_hints(Options, localns={"Automaton": object, "Glossary": object})


def declared(name: str) -> Declared:
    """Return what the surfaces say of an option."""
    found: Declared = Options.__dataclass_fields__[name].metadata["declared"]
    return found


def listed(texts: Any) -> list[str]:
    """Return texts as a list. A single text is an error: its characters would be taken as texts."""
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise UserError(f"A list of texts was expected, but {texts!r:.60} was given: put one text into [ ].")
    return list(texts)


def inputs_of(texts: Any) -> list[Any]:
    """Return the inputs of a call. A missing one is refused alone; numbers and dates of a column are read as text."""
    found = listed(texts)
    if hasattr(texts, "dtype") or type(texts).__module__.startswith("pyarrow"):
        from seq2see.data.pairs import as_text

        found = [as_text(value) for value in found]
    return [NoText("There is no text: the value is missing.") if is_missing(value) else value for value in found]


def is_missing(value: object) -> bool:
    """Whether a value of a table stands for none: None, NaN, or that of pandas."""
    return (
        value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)
    )


def as_given(texts: Any, outputs: list[str | None]) -> Any:
    """Return outputs in the form in which the texts were given: a column with its name and index, or a list."""
    home = type(texts).__module__.partition(".")[0]
    if home == "pandas" and hasattr(texts, "index"):
        return type(texts)(outputs, index=texts.index, name=texts.name, dtype=object)
    if home == "polars":
        return type(texts)(texts.name, outputs, dtype=import_module("polars").String)
    if home == "pyarrow":
        return import_module("pyarrow").array(outputs)
    return outputs
