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
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from fastapi.routing import APIRoute
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.routing import Match, Mount
from starlette.types import Scope

from seq2see import __version__
from seq2see.errors import UserError
from seq2see.seq2seq import Seq2Seq
from seq2see.serve.batching import Batcher, Busy
from seq2see.serve.guard import Guard, refusal
from seq2see.serve.limits import Limits
from seq2see.serve.metrics import Metrics
from seq2see.serve.predicting import (
    PATH,
    REFUSALS,
    Predictor,
    PredictRequest,
    Request_,
    Shortcut,
    Text,
    check_beam,
    told,
    too_long,
)
from seq2see.serve.tracer import Tracer
from seq2see.serve.tracing import describe_model, describe_trace, known

STATIC = Path(__file__).parent / "static"


class Head(BaseModel):
    """One head of one attention."""

    model_config = ConfigDict(extra="forbid", strict=True)

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
    compact: bool = Field(
        False, description="Attention as uint8 (255 is 1), all else as float16, the bytes deflated."
    )
    head: int | None = Field(None, ge=0, description="Of what is by head, this head only.")
    column: int | None = Field(None, ge=0, description="Of W^O, W₁ and W₂, this column only, with its bias.")
    also: list[Literal["lens", "saliency"]] = Field(
        [], description="What each layer would say; what the answer owes to each token.", max_length=2
    )
    step: int | None = Field(None, ge=0, description="Saliency of this step only.")


class Page(Mount):
    """The files of the page, at every path but the interface's, which knows best what it does not have."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Say whether a path is the page's."""
        return (Match.NONE, {}) if scope["path"].startswith("/api/") else super().matches(scope)


def create_app(
    models: Mapping[str, Seq2Seq], limits: Limits | None = None, hosts: Sequence[str] = ("*",)
) -> FastAPI:
    """Make the application; ``hosts`` are the names under which it may be asked."""
    assert models
    limits = limits or Limits()
    metrics, batcher = Metrics(), Batcher(limits)
    predictor = Predictor(models, limits, batcher, metrics)
    # A model answers by its network once somebody holds that; so copies are traced, and the faster engine answers.
    tracers = {name: Tracer(copy(model), quick=model) for name, model in models.items()}
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
    app.state.batcher, app.state.metrics = batcher, metrics
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

    @app.post(PATH, responses=REFUSALS)
    async def predict(request: PredictRequest) -> dict[str, Any]:
        """Answer texts; one that is refused has its error, the others are answered."""
        return await predictor(request)

    @app.post("/api/trace", responses=REFUSALS, response_model=dict[str, Any])
    async def trace(request: TraceRequest) -> Response:
        """Answer one text and tell every number on the way.

        ``data`` holds the tensors of the manifest end to end, in base64.
        """
        name = known(models, request.model)
        if len(request.input) > limits.characters:
            raise UserError(too_long(request.input, limits))
        check_beam(request.beam, limits)
        muted = [(head.attention, head.layer, head.head) for head in request.muted]
        wanted = partial(
            describe_trace, tracers[name], prefix=request.prefix, muted=muted, names=request.names,
            beam=request.beam, compact=request.compact, head=request.head, also=request.also, step=request.step,
            column=request.column,
        )  # fmt: skip
        (described,) = await batcher.do(object(), [request.input], lambda texts: [wanted(texts[0])])
        # not by the framework, which would look at every one of these numbers first
        return Response(to_json({"model": name, **described}), media_type="application/json")

    app.router.routes.append(Page("/", StaticFiles(directory=STATIC, html=True), name="page"))
    (route,) = (route for route in app.routes if isinstance(route, APIRoute) and route.path == PATH)
    # The last is the first to see a request.
    app.add_middleware(Shortcut, predict=predictor, route=route)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))
    app.add_middleware(Guard, limits=limits, metrics=metrics)
    return app


def _add_errors(app: FastAPI, limits: Limits) -> None:
    """Give every refusal one form: {"error": "…"}."""

    async def of_ours(request: Request, error: Exception) -> JSONResponse:
        return told(error, limits)

    for kind in (UserError, Busy, TimeoutError):
        app.add_exception_handler(kind, of_ours)

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
        message = "The body is not JSON in UTF-8." if error.status_code == 400 else str(error.detail)
        return refusal(error.status_code, message, error.headers)
