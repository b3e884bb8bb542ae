"""The HTTP interface: answers, traces, and the page, for some models."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import copy
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.staticfiles import StaticFiles
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware

from seq2see import __version__
from seq2see.errors import UserError
from seq2see.seq2seq import Answer, Seq2Seq
from seq2see.serve.batching import Batcher, Busy
from seq2see.serve.guard import Guard, refusal
from seq2see.serve.limits import Limits
from seq2see.serve.metrics import Metrics
from seq2see.serve.tracing import describe_model, describe_trace, known

STATIC = Path(__file__).parent / "static"


def _whole(text: str) -> str:
    """Refuse half a character: JSON can write one, but no answer could repeat it."""
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("the text has half a character (a lone surrogate)")
    return text


Text = Annotated[str, AfterValidator(_whole)]


class Request_(BaseModel):  # noqa: N801 - Request is the framework's
    """What all requests share: a key that is not known is a mistake."""

    model_config = ConfigDict(extra="forbid")

    model: str | None = Field(None, description="Name of a model; the first if not given.")


class PredictRequest(Request_):
    """Texts to answer."""

    inputs: Text | list[Text] = Field(description="One text or many.")
    beam: int = Field(1, ge=1, description="Prefixes kept open; 1 is greedy.")
    n_best: int = Field(1, ge=1, description="Answers to each input, best first.")


class Head(BaseModel):
    """One head of one attention."""

    model_config = ConfigDict(extra="forbid")

    attention: Literal["encoder", "decoder", "cross"]
    layer: int = Field(ge=0)
    head: int = Field(ge=0)


class TraceRequest(Request_):
    """One text to answer with every number on the way."""

    input: Text = Field(description="The text.")
    prefix: list[Annotated[int, Field(ge=0)]] = Field([], description="Ids that the answer must begin with.")
    muted: list[Head] = Field([], description="Heads to switch off.")
    names: list[str] = Field(["*"], description="Globs of the values that are wanted.", max_length=64)
    beam: int = Field(1, ge=1, description="Beam whose prefixes are told; 1 tells none.")


def create_app(
    models: Mapping[str, Seq2Seq], limits: Limits | None = None, hosts: Sequence[str] = ("*",)
) -> FastAPI:
    """Make the application; ``hosts`` are the names under which it may be asked."""
    assert models
    limits = limits or Limits()
    metrics, batcher = Metrics(), Batcher(limits)
    # A model answers by its network once somebody holds that; so copies are traced, and the faster engine answers.
    traced = {name: copy(model) for name, model in models.items()}
    described = [describe_model(name, model) for name, model in models.items()]

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        batcher.start()
        yield
        await batcher.stop()

    # The framework's own documentation pages fetch scripts from elsewhere.
    app = FastAPI(
        title="seq2see", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None,
        openapi_url="/api/openapi.json",
    )  # fmt: skip
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))
    app.add_middleware(Guard, limits=limits, metrics=metrics)
    app.state.batcher = batcher
    _add_errors(app, limits)

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        """Say that the server is there."""
        return {"status": "ok"}

    @app.get("/metrics", response_class=PlainTextResponse)
    async def counters() -> str:
        """Tell what the server has done, for Prometheus."""
        return metrics.text(batcher)

    @app.get("/api/models")
    async def list_models() -> dict[str, Any]:
        """List the models and the limits."""
        return {"models": described, "limits": vars(limits)}

    @app.post("/api/predict")
    async def predict(request: PredictRequest) -> dict[str, Any]:
        """Answer texts; one that is refused has its error, the others are answered."""
        texts = [request.inputs] if isinstance(request.inputs, str) else request.inputs
        name = known(models, request.model)
        _check_predict(request, len(texts), limits)
        good = [text for text in texts if len(text) <= limits.characters]
        work = partial(_answers, models[name], request.beam, request.n_best)
        found = iter(
            await batcher.do((name, request.beam, request.n_best), good, work) if good else list[Answer]()
        )
        answers = [
            _shown(next(found)) if len(text) <= limits.characters else _too_long(text, limits)
            for text in texts
        ]
        metrics.inputs["refused"] += sum("error" in answer for answer in answers)
        metrics.inputs["answered"] += sum("error" not in answer for answer in answers)
        return {"model": name, "answers": answers}

    @app.post("/api/trace")
    async def trace(request: TraceRequest) -> dict[str, Any]:
        """Answer one text and tell every number on the way.

        ``data`` holds the tensors of the manifest end to end, in base64.
        """
        name = known(models, request.model)
        if len(request.input) > limits.characters:
            raise UserError(_too_long(request.input, limits)["error"])
        _check_beam(request.beam, limits)
        muted = [(head.attention, head.layer, head.head) for head in request.muted]
        wanted = partial(
            describe_trace, traced[name], prefix=request.prefix, muted=muted, names=request.names,
            beam=request.beam,
        )  # fmt: skip
        (described,) = await batcher.do(object(), [request.input], lambda texts: [wanted(texts[0])])
        return {"model": name, **described}

    app.mount("/", StaticFiles(directory=STATIC, html=True), name="page")
    return app


def _answers(model: Seq2Seq, beam: int, n_best: int, texts: list[str]) -> list[Answer]:
    return model.answers(texts, beam=beam, n_best=n_best)


def _check_beam(beam: int, limits: Limits) -> None:
    if beam > limits.beam:
        raise UserError(f"beam is {beam:,}: at most {limits.beam} is taken.")


def _check_predict(request: PredictRequest, count: int, limits: Limits) -> None:
    _check_beam(request.beam, limits)
    if request.n_best > request.beam:
        raise UserError(
            f"n_best {request.n_best} needs a beam of at least {request.n_best}, but beam is {request.beam}."
        )
    if not 1 <= count <= limits.inputs:
        raise UserError(
            f"The request has {count:,} inputs: 1 to {limits.inputs:,} are taken at once. Send them in parts."
        )


def _too_long(text: str, limits: Limits) -> dict[str, str]:
    return {
        "input": text,
        "error": f"The text has {len(text):,} characters: at most {limits.characters:,} are taken. Cut it up.",
    }


def _shown(answer: Answer) -> dict[str, Any]:
    if answer.error is not None:
        return {"input": answer.input, "error": answer.error}
    return {
        "input": answer.input,
        "output": answer.output,
        "log_probability": answer.log_probability,
        "tokens": [vars(token) for token in answer.tokens],
        "alternatives": [vars(alternative) for alternative in answer.alternatives],
    }


def _add_errors(app: FastAPI, limits: Limits) -> None:
    """Give every refusal one form: {"error": "…"}."""

    @app.exception_handler(UserError)
    async def of_user(request: Request, error: UserError) -> JSONResponse:
        return refusal(422, str(error))

    @app.exception_handler(Busy)
    async def of_queue(request: Request, error: Busy) -> JSONResponse:
        message = f"{limits.queue:,} requests wait already: ask again in a second."
        return refusal(429, message, {"retry-after": "1"})

    @app.exception_handler(TimeoutError)
    async def of_time(request: Request, error: TimeoutError) -> JSONResponse:
        message = f"The answer took longer than {limits.seconds:g} s: ask for less at once."
        return refusal(503, message, {"retry-after": "1"})

    @app.exception_handler(RequestValidationError)
    async def of_form(request: Request, error: RequestValidationError) -> JSONResponse:
        # What was sent is not repeated: it may be anything.
        faults = [
            f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}" for fault in error.errors()
        ]
        text = "; ".join(faults[:5]).encode("ascii", "backslashreplace").decode()
        return refusal(422, f"The request is not of the form that was expected. {text[:500]}")

    @app.exception_handler(HTTPException)
    async def of_http(request: Request, error: HTTPException) -> JSONResponse:
        return refusal(error.status_code, str(error.detail), error.headers)
