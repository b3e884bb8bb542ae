"""The HTTP application: answers and traces of some models, and the page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from fastapi.routing import APIRoute
from fastapi.staticfiles import StaticFiles
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.routing import Match, Mount
from starlette.types import Scope

from seq2see import __version__
from seq2see.errors import UserError
from seq2see.page import STATIC
from seq2see.page.describe import describe_model
from seq2see.seq2seq import Seq2Seq
from seq2see.serve.api_predict import (
    PATH,
    REFUSALS,
    Predictor,
    PredictRequest,
    Shortcut,
    check_beam,
    known,
    refusal_of,
    too_long,
)
from seq2see.serve.api_trace import Tracer, TraceRequest, describe_trace
from seq2see.serve.batching import Batcher, Busy, Limits
from seq2see.serve.guard import Guard, Metrics, refusal


class Page(Mount):
    """The files of the page, at every path outside ``/api/``: the interface reports its own unknown paths."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match every path outside ``/api/``."""
        return (Match.NONE, {}) if scope["path"].startswith("/api/") else super().matches(scope)


def create_app(
    models: Mapping[str, Seq2Seq], limits: Limits | None = None, hosts: Sequence[str] = ("*",)
) -> FastAPI:
    """Make the application; ``hosts`` holds the host names that a request may use."""
    assert models
    limits = limits or Limits()
    metrics, batcher = Metrics(), Batcher(limits)
    predictor = Predictor(models, limits, batcher, metrics)
    tracers = {name: Tracer(model) for name, model in models.items()}
    described = [describe_model(name, model.config, model.card, model.path) for name, model in models.items()]

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        batcher.start()
        yield
        await batcher.stop()

    # The framework's own documentation pages load scripts from other servers, so they are switched off.
    app = FastAPI(
        title="seq2see", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None,
        openapi_url="/api/openapi.json",
    )  # fmt: skip
    app.state.batcher, app.state.metrics = batcher, metrics
    _add_errors(app, limits)

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        """Say that the server is running."""
        return {"status": "ok"}

    @app.get("/metrics", response_class=PlainTextResponse)
    async def counters() -> str:
        """Return the counters, for Prometheus."""
        return metrics.text(batcher)

    @app.get("/api/models")
    async def list_models() -> dict[str, Any]:
        """List the models and the limits."""
        return {"models": described, "limits": vars(limits)}

    @app.post(PATH, responses=REFUSALS)
    async def predict(request: PredictRequest) -> dict[str, Any]:
        """Answer texts. A text that is refused gets an error; the others are still answered."""
        return await predictor(request)

    @app.post("/api/trace", responses=REFUSALS, response_model=dict[str, Any])
    async def trace(request: TraceRequest) -> Response:
        """Answer one text and return every number on the way.

        ``data`` holds the tensors of the manifest as one block of bytes, in base64.
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
        # The framework would check every one of these numbers first.
        return Response(to_json({"model": name, **described}), media_type="application/json")

    app.router.routes.append(Page("/", StaticFiles(directory=STATIC, html=True), name="page"))
    (route,) = (route for route in app.routes if isinstance(route, APIRoute) and route.path == PATH)
    # The middleware that is added last sees a request first.
    app.add_middleware(Shortcut, predict=predictor, route=route)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))
    app.add_middleware(Guard, limits=limits, metrics=metrics)
    return app


def _add_errors(app: FastAPI, limits: Limits) -> None:
    """Give every refusal the same form: {"error": "…"}."""

    async def of_ours(request: Request, error: Exception) -> JSONResponse:
        return refusal_of(error, limits)

    for kind in (UserError, Busy, TimeoutError):
        app.add_exception_handler(kind, of_ours)

    @app.exception_handler(RequestValidationError)
    async def of_form(request: Request, error: RequestValidationError) -> JSONResponse:
        # The message does not repeat what was sent, because that may be anything.
        faults = [
            f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}" for fault in error.errors()
        ]
        text = "; ".join(faults[:5]).encode("ascii", "backslashreplace").decode()
        return refusal(422, f"The request does not have the expected form. {text[:500]}")

    @app.exception_handler(HTTPException)
    async def of_http(request: Request, error: HTTPException) -> JSONResponse:
        message = "The body is not JSON in UTF-8." if error.status_code == 400 else str(error.detail)
        return refusal(error.status_code, message, error.headers)
