"""The requests in JSON: their forms, how they are read, and how they are refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from fastapi import HTTPException
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    ValidationError,
    create_model,
    model_validator,
)
from pydantic_core import PydanticCustomError, from_json, to_json

from seq2see.answering.options import HTTP, Options, declared, named_for, types_of
from seq2see.errors import UserError
from seq2see.inspection.glossary import Head
from seq2see.serve.batching import Busy, Limits

VALUES = 50_000  # most values in the lists and objects of a request

Checked = TypeVar("Checked", bound="Form")


class Hasty(FailFast):
    """Stops validating a list at its first error: nobody needs 100,000 messages."""

    __hash__ = object.__hash__  # pydantic requires it of a union's member


class Form(BaseModel):
    """An object in a request. An unknown key is an error, and so is a text instead of a number."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _known(cls, given: Any) -> Any:
        """Refuse the first unknown key: pydantic would write a message about each."""
        for key in given if isinstance(given, dict) else ():
            if key not in cls.model_fields:
                raise PydanticCustomError("unknown", "{key}: there is no such key", {"key": str(key)[:80]})
        return given


class Request_(Form):  # noqa: N801 - Request is the framework's
    """The common part of all requests."""

    model: str | None = Field(None, description="Name of a model. Without it, the first model answers.")


def _terms(given: Any) -> Any:
    """Refuse the first term that has neither a translation nor null."""
    for number, term in enumerate(given.values() if isinstance(given, dict) else (), 1):
        if not (term is None or isinstance(term, str)):
            raise PydanticCustomError("terms", f"term {number} has neither a text nor null")
    return given


#: The translation of each term.
Terms = Annotated[dict[str, str | None], BeforeValidator(_terms)]


#: How a request gives the options whose type is another one in Python.
IN_JSON: dict[str, Any] = {
    "only": Annotated[list[str], Hasty()] | None,
    "glossary": Terms | None,
    "like": Annotated[list[list[str]], Hasty()] | None,
}


def with_options(*names: str) -> Any:
    """Return a form that has these options of an answer, as they are declared."""
    types, defaults = types_of(), Options.__dataclass_fields__
    found: dict[str, Any] = {}
    for name in names:
        told = declared(name)
        bounds: dict[str, Any] = {} if told.least is None else {"ge": told.least, "le": told.most}
        extra: Any = {"enum": [*told.choices]} if told.choices else None
        field = Field(defaults[name].default, description=told.help, json_schema_extra=extra, **bounds)
        found[name] = (IN_JSON.get(name, types[name]), field)
    return create_model("WithOptions", __base__=Request_, **found)


def options_of(request: Form) -> Options:
    """Return the options of an answer that a request has, but for its glossary, which is read beside the event loop."""
    names = set(named_for(HTTP)) & type(request).model_fields.keys() - {"glossary"}
    return Options(**{name: getattr(request, name) for name in names})


def _inputs(given: Any) -> Any:
    """Refuse the first input of a wrong form: pydantic would name every form that it might have had."""
    if not isinstance(given, str | list) or given == []:
        raise PydanticCustomError("inputs", "a text or a list of inputs was expected")
    for number, one in enumerate(given if isinstance(given, list) else (), 1):
        parts = one.values() if isinstance(one, dict) else one if isinstance(one, list) else [one]
        if not all(isinstance(part, str) for part in parts):
            told = f"input {number} is not a text, nor a word and its features as a list or an object of texts"
            raise PydanticCustomError("inputs", told)
    return given


class PredictRequest(with_options(*named_for(HTTP))):  # type: ignore[misc]
    """Texts to answer."""

    inputs: Annotated[str | list[str | list[str] | dict[str, str]], BeforeValidator(_inputs)] = Field(
        description="One text or many. For a model of words with features, each of many may be a list or an object: the "
        "word first, then its features."
    )
    align: bool = Field(False, description="Return which word of the input each word of the answer attends to.")


class TextRequest(with_options("format", "glossary")):  # type: ignore[misc]
    """A text or a document to translate."""

    input: str = Field(description="The text.")


Name = Annotated[str, Field(max_length=100)]  # of a value, or a glob of names


class HeadName(Form):
    """One head of one attention."""

    attention: Literal["encoder", "decoder", "cross"]
    layer: int = Field(ge=0)
    head: int = Field(ge=0)


class Patch(Form):
    """Values to copy from the run on another text."""

    model_config = ConfigDict(frozen=True)

    input: str = Field(description="The other text.")
    name: Name = Field(description="Name of the value.")
    head: int = Field(-1, ge=-1, description="Which head; −1 is all.")
    row: int = Field(-1, ge=-1, description="Which position; −1 is all.")
    col: int = Field(-1, ge=-1, description="Which column; −1 is all.")
    fromRow: int = Field(-1, ge=-1, description="The position in the other run; −1 is the same.")  # noqa: N815 - the page's name


class Drawn(HeadName):
    """A row of a head's attention to the source, with shares of the caller's choice."""

    attention: Literal["encoder", "cross"]  # a row of the decoder's own attention grows with the answer
    row: int = Field(ge=0, description="Which position looks.")
    shares: Annotated[list[Annotated[float, Field(ge=0, le=1)]], Hasty()] = Field(
        description="The share of each token that it looks at."
    )


class TraceRequest(Request_):
    """A text to answer, with every number on the way."""

    input: str = Field(description="The text.")
    member: int = Field(0, ge=0, description="Of an ensemble, which member to look into; it answers alone.")
    prefix: Annotated[list[Annotated[int, Field(ge=0)]], Hasty()] = Field(
        [], description="Ids that the answer must begin with."
    )
    muted: Annotated[list[HeadName], Hasty()] = Field([], description="Heads to switch off.")
    patches: Annotated[list[Patch], Hasty()] = Field(
        [], description="Values to copy from runs on other texts.", max_length=8
    )
    drawn: Drawn | None = Field(None, description="One row of attention to replace.")
    names: list[Name] = Field(["*"], description="Globs of the values to send.", max_length=64)
    beam: int = Field(1, ge=1, description="Width of a beam search whose tree is sent; 1 sends none.")
    compact: bool = Field(
        False, description="Send attention as uint8 (255 is 1), everything else as float16, compressed."
    )
    head: int | None = Field(None, ge=0, description="Of values that have heads, send this head only.")
    column: int | None = Field(None, ge=0, description="Of W^O, W₁ and W₂, send this column only, with its bias.")
    also: list[Literal["lens"]] = Field([], description="lens: the token that each layer would choose.", max_length=1)
    effects: Annotated[list[Name], Hasty()] = Field(
        [],
        max_length=1024,
        description="Heads to close, the answer held: cross.1.3 is one, cross.1 a layer, cross all. For each name the "
        "answer has how much the log-probability of each token falls.",
    )
    anyway: bool = Field(False, description="Answer a text that the model was not made for, such as a February 30.")
    glossary: Terms | None = Field(
        None, description="The translation of each term, as for /api/predict; the answer with them is traced."
    )

    @property
    def heads(self) -> tuple[Head, ...]:
        """The heads to switch off, each once."""
        return tuple(dict.fromkeys((one.attention, one.layer, one.head) for one in self.muted))

    @property
    def edits(self) -> tuple[Any, ...]:
        """What is changed inside of the model."""
        return self.heads, tuple(self.patches), self.drawn

    @property
    def is_edited(self) -> bool:
        """Whether the answer is not the model's own."""
        return bool(self.prefix or self.muted or self.patches or self.drawn)


class Refusal(BaseModel):
    """The answer to a request that is refused."""

    error: str = Field(description="What was given, what was expected, what to do.")


#: The ways in which a request may be refused, for the OpenAPI description.
REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"model": Refusal, "description": "The request is not JSON, or names another server."},
    401: {"model": Refusal, "description": "The server requires a token."},
    408: {"model": Refusal, "description": "The request did not arrive in time."},
    413: {"model": Refusal, "description": "The request is longer than the limit."},
    422: {"model": Refusal, "description": "The request cannot be answered."},
    429: {"model": Refusal, "description": "Too many requests wait: try again after Retry-After seconds."},
    503: {"model": Refusal, "description": "The answer took too long, or the memory of the GPU is full."},
}


def read_form(form: type[Checked], body: bytes) -> Checked:
    """Read a request, or say what is wrong with it. What was sent is not repeated, because that may be anything."""
    try:
        value = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        if re.search("surrogate|hex escape", str(error)):
            raise UserError("The request has a text with half a character (a lone surrogate).") from None
        raise HTTPException(400, "The body is not JSON in UTF-8.") from None
    if not _is_small(value):
        raise UserError(f"The lists and objects of a request may have {VALUES:,} values: send it in parts.")
    try:
        return form.model_validate(value)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
    said = [
        ": ".join([*filter(None, [".".join(str(part)[:80] for part in fault["loc"][:8])]), fault["msg"]])
        for fault in faults[:5]
    ]
    text = "; ".join(said).encode("ascii", "backslashreplace").decode()
    raise UserError(f"The request does not have the expected form. {text[:500]}")


def _is_small(value: object) -> bool:
    """Whether the lists and objects of a value have few values in all."""
    count, waiting = 0, [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, list | dict):
            count += len(one)
            if count > VALUES:
                return False
            waiting += one.values() if isinstance(one, dict) else one
    return True


def message_of(error: Exception, limits: Limits) -> str:
    """Return why a request is not answered."""
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, Busy):
        return f"{limits.queue:,} requests are already waiting: try again in a second."
    return f"The answer took longer than {limits.seconds:g} s: ask for less at once."


def in_json(value: object) -> bytes:
    """Write JSON. A number that JSON cannot express, NaN or an infinity, becomes null."""
    return to_json(value, inf_nan_mode="null")


def known(models: Mapping[str, Any], name: str | None) -> str:
    """Return the name of the model that a request asks for; without a name, the first model."""
    if name is None:
        return next(iter(models))
    if name not in models:
        raise UserError(f"There is no model {name!r} here. The models are: {', '.join(models)}.")
    return name
