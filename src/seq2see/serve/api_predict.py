"""``/api/predict``: the form of a request, how requests are answered together, and a shortcut past the framework."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

from fastapi.responses import JSONResponse, Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import to_json
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from seq2see.errors import UserError
from seq2see.seq2seq import Answer, Seq2Seq
from seq2see.serve.batching import Batcher, Busy, Limits
from seq2see.serve.guard import Metrics, refusal, replayed

PATH = "/api/predict"


def _whole(text: str) -> str:
    """Refuse a lone surrogate (half a character): JSON can write one, but UTF-8 cannot, so no answer could repeat it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("the text has half a character (a lone surrogate)") from None
    return text


Text = Annotated[str, AfterValidator(_whole)]


class Request_(BaseModel):  # noqa: N801 - Request is the framework's
    """What all requests share. An unknown key is an error, and so is a text where a number belongs."""

    model_config = ConfigDict(extra="forbid", strict=True)

    model: str | None = Field(None, description="Name of a model. Without it, the first model answers.")


class Refusal(BaseModel):
    """The answer to a request that is refused."""

    error: str = Field(description="What was given, what was expected, what to do.")


#: The ways in which a request may be refused, for the OpenAPI description.
REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"model": Refusal, "description": "The request is not JSON."},
    408: {"model": Refusal, "description": "The request did not arrive in time."},
    413: {"model": Refusal, "description": "The request is longer than the limit."},
    422: {"model": Refusal, "description": "The request cannot be answered."},
    429: {"model": Refusal, "description": "Too many requests wait: ask again after Retry-After seconds."},
    503: {"model": Refusal, "description": "The answer took too long."},
}


class PredictRequest(Request_):
    """Texts to answer."""

    inputs: Text | list[Text] = Field(description="One text or many.")
    beam: int = Field(1, ge=1, description="Width of the beam search; 1 is greedy.")
    n_best: int = Field(1, ge=1, description="Answers to each input, best first.")
    probabilities: bool = Field(True, description="Return the probability of each token. False is faster.")
    align: bool = Field(
        False, description="Return which word of the input each word of the answer attends to."
    )


class Predictor:
    """Answers the texts of a request together with the texts of other waiting requests."""

    def __init__(
        self, models: Mapping[str, Seq2Seq], limits: Limits, batcher: Batcher, metrics: Metrics
    ) -> None:
        self.models, self.limits, self.batcher, self.metrics = models, limits, batcher, metrics

    async def __call__(self, request: PredictRequest) -> dict[str, Any]:
        """Answer texts. A text that is refused gets an error; the others are still answered."""
        texts = [request.inputs] if isinstance(request.inputs, str) else request.inputs
        name = known(self.models, request.model)
        self._check(request, len(texts))
        most = self.limits.characters
        good = [text for text in texts if len(text) <= most]
        wanted = (request.beam, request.n_best, request.probabilities, request.align)
        work = partial(_answers, self.models[name], *wanted)
        found = iter(await self.batcher.do((name, *wanted), good, work) if good else [])
        answers = [
            next(found) if len(text) <= most else {"input": text, "error": too_long(text, self.limits)}
            for text in texts
        ]
        refused = sum("error" in answer for answer in answers)
        self.metrics.inputs["refused"] += refused
        self.metrics.inputs["answered"] += len(answers) - refused
        return {"model": name, "answers": answers}

    def _check(self, request: PredictRequest, count: int) -> None:
        check_beam(max(request.beam, request.n_best), self.limits)
        if not 1 <= count <= self.limits.inputs:
            raise UserError(
                f"The request has {count:,} inputs: a request may have 1 to {self.limits.inputs:,}. Send them in parts."
            )


def known(models: Mapping[str, Seq2Seq], name: str | None) -> str:
    """Return the name of the model that a request asks for; without a name, the first model."""
    if name is None:
        return next(iter(models))
    if name not in models:
        raise UserError(f"There is no model {name!r} here. The models are: {', '.join(models)}.")
    return name


def check_beam(beam: int, limits: Limits) -> None:
    """Refuse a beam that is wider than the limit."""
    if beam > limits.beam:
        raise UserError(f"The beam is {beam:,}: it may be at most {limits.beam}.")


def too_long(text: str, limits: Limits) -> str:
    """Return the message that a text is longer than the limit."""
    return (
        f"The text has {len(text):,} characters: it may have at most {limits.characters:,}. Send it in parts."
    )


def _answers(
    model: Seq2Seq, beam: int, n_best: int, probabilities: bool, align: bool, texts: list[str]
) -> list[dict[str, Any]]:
    answers = model.answers(texts, beam=beam, n_best=n_best, probabilities=probabilities)
    shown = [_shown(answer, probabilities) for answer in answers]
    if align:
        good = [number for number, answer in enumerate(answers) if answer.error is None]
        for number, alignment in zip(good, model.align([answers[i] for i in good]), strict=True):
            if alignment.source != answers[number].input:
                shown[number]["read"] = alignment.source  # the text that the spans refer to
            shown[number]["alignment"] = [asdict(link) for link in alignment.links]
    return shown


def _shown(answer: Answer, probabilities: bool) -> dict[str, Any]:
    if answer.error is not None:
        return {"input": answer.input, "error": answer.error}
    shown: dict[str, Any] = {"input": answer.input, "output": answer.output}
    if probabilities:
        shown["log_probability"] = answer.log_probability
        shown["tokens"] = [vars(token) for token in answer.tokens]
    if probabilities or answer.alternatives:
        shown["alternatives"] = [vars(alternative) for alternative in answer.alternatives]
    return shown


def refusal_of(error: Exception, limits: Limits) -> JSONResponse:
    """Return the answer to a request that failed with an error."""
    if isinstance(error, UserError):
        return refusal(422, str(error))
    if isinstance(error, Busy):
        message = f"{limits.queue:,} requests are already waiting: ask again in a second."
        return refusal(429, message, {"retry-after": "1"})
    assert isinstance(error, TimeoutError)
    message = f"The answer took longer than {limits.seconds:g} s: ask for less at once."
    return refusal(503, message, {"retry-after": "1"})


class Shortcut:
    """Answers ``/api/predict`` without the framework, which takes longer over a request than a small model does.

    A request of another form goes through the framework, which says what is wrong with it.
    """

    def __init__(self, app: ASGIApp, predict: Predictor, route: BaseRoute) -> None:
        self.app, self.predict, self.route = app, predict, route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request; ``Guard`` has already read its whole body."""
        if scope["type"] != "http" or scope["path"] != PATH or scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        body: bytes = (await receive()).get("body", b"")
        try:
            if (b"content-type", b"application/json") not in scope["headers"]:
                raise ValueError
            request = PredictRequest.model_validate_json(body)
        except ValueError:  # pydantic's ValidationError is one
            await self.app(scope, replayed(body, receive), send)
            return
        scope["route"] = self.route
        response: Response
        try:
            response = Response(to_json(await self.predict(request)), media_type="application/json")
        except (UserError, Busy, TimeoutError) as error:
            response = refusal_of(error, self.predict.limits)
        await response(scope, receive, send)
