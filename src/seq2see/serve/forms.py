"""Requests in JSON: what all of them share, how they are checked, and how they are refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Mapping
from typing import Annotated, Any, TypeVar, get_type_hints

from fastapi import Request
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute
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
from seq2see.documents.terms import Glossary
from seq2see.errors import FullMemoryError, UserError
from seq2see.serve.batching import Busy, Limits
from seq2see.serve.guard import refusal

JSON = "application/json"
SHORT = 4_000  # bytes of a request that is checked at once; a longer one is checked in a thread
VALUES = 50_000  # most values in the lists and objects of a request

Checked = TypeVar("Checked", bound="Form")


class NotJsonError(UserError):
    """The body of a request is not JSON."""


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


def options_of(request: Form, glossary: Glossary | None = None, **more: Any) -> Options:
    """Return the options of an answer that a request has; its glossary is read beside the event loop."""
    given = {name: getattr(request, name) for name in named_for(HTTP) if name in type(request).model_fields}
    return Options(**{**given, "glossary": glossary, **more})


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


class JsonRoute(APIRoute):
    """A route that FastAPI describes, but that checks its requests itself: FastAPI would do it on the event loop."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of a request; its form is the type of the endpoint's first parameter."""
        form: type[Form] = get_type_hints(self.endpoint)["request"]

        async def handle(http: Request) -> Response:
            kinds = http.headers.getlist("content-type")
            if [kind.split(";")[0].strip() for kind in kinds] != [JSON]:
                raise UserError(f"The request does not have the expected form: send JSON, as content-type: {JSON}.")
            body, asker = await http.body(), http.scope["asker"]
            if len(body) <= SHORT:
                request = read_form(form, body)
            else:
                (request,) = await http.app.state.checking.do(
                    object(), [body], lambda bodies: [read_form(form, bodies[0])], asker
                )
            answer: Response = await self.endpoint(request, http)
            return answer

        return handle


def read_form(form: type[Checked], body: bytes) -> Checked:
    """Read a request, or say what is wrong with it. What was sent is not repeated, because that may be anything."""
    try:
        value = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        if re.search("surrogate|hex escape", str(error)):
            raise UserError("The request has a text with half a character (a lone surrogate).") from None
        raise NotJsonError("The body is not JSON in UTF-8.") from None
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


def refusal_of(error: Exception, limits: Limits) -> JSONResponse:
    """Return the answer to a request that failed with an error."""
    message = message_of(error, limits)
    if isinstance(error, UserError) and not isinstance(error, FullMemoryError):
        return refusal(400 if isinstance(error, NotJsonError) else 422, message)
    return refusal(429 if isinstance(error, Busy) else 503, message, {"retry-after": "1"})


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
