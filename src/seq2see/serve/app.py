"""The HTTP application: answers and traces of some models, and the page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, get_type_hints

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from fastapi.routing import APIRoute
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match, Mount
from starlette.types import Scope

from seq2see import __version__
from seq2see.answering.network import has_torch
from seq2see.errors import FullMemoryError, UserError, installed
from seq2see.page import SMALL, STATIC
from seq2see.page.describe import describe_model
from seq2see.seq2seq import Seq2Seq
from seq2see.serve.answers import Answering
from seq2see.serve.batching import Batcher, Busy, Left, Limits
from seq2see.serve.forms import (
    REFUSALS,
    PredictRequest,
    Request_,
    TextRequest,
    TraceRequest,
    in_json,
    known,
    message_of,
    read_form,
)
from seq2see.serve.guard import LEFT, Guard, Metrics, refusal

JSON = "application/json"
SHORT = 4_000  # bytes of a request that is checked at once; a longer one is checked in a thread


class JsonRoute(APIRoute):
    """A route that reads its requests within the limits and beside the event loop, on which FastAPI would do it."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of a request; its form is the type of the endpoint's first parameter."""
        form = get_type_hints(self.endpoint)["request"]

        async def handle(http: Request) -> Response:
            state, client = http.app.state, http.scope["asker"]
            if [kind.split(";")[0].strip() for kind in http.headers.getlist("content-type")] != [JSON]:
                raise UserError(f"The request does not have the expected form: send JSON, as content-type: {JSON}.")
            body = await _body(http, state.limits)
            async with asyncio.timeout(state.limits.seconds):
                reader = partial(read_form, form, body)
                request = reader() if len(body) <= SHORT else await state.checking.one(reader, client)
                answer: Response = await self.endpoint(request, http)
                return answer

        return handle


async def _body(http: Request, limits: Limits) -> bytes:
    """Read the body of a request within the limits. A connection whose request is not read to its end is closed."""
    body = bytearray()
    try:
        async with asyncio.timeout(limits.seconds):
            async for part in http.stream():
                body += part
                if len(body) > limits.body:
                    message = f"The request is longer than {limits.body:,} bytes, which is the limit: send it in parts."
                    raise HTTPException(413, message, {"connection": "close"})
    except TimeoutError:
        message = f"The request did not arrive within {limits.seconds:g} s."
        raise HTTPException(408, message, {"connection": "close"}) from None
    except ClientDisconnect:
        raise Left from None
    return bytes(body)


class Page(Mount):
    """The files of the page, at every path outside ``/api/``: the interface reports its own unknown paths."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match every path outside ``/api/``."""
        return (Match.NONE, {}) if scope["path"].startswith("/api/") else super().matches(scope)


def _trainable(model: Seq2Seq) -> dict[str, Any]:
    """Return what the page must know to train a network like a small model, or nothing."""
    if not has_torch():
        return {}
    from seq2see.page import live
    from seq2see.page.live import why_not

    config = model.config
    why = why_not(model.tokenizers, config.decoding, config.model.positions)
    return {"inside": live.described(model)} if config.model.parameters <= SMALL and why is None else {}


def _any_text(model: Seq2Seq) -> str:
    """Return the shortest text that a model can read: its first token that can be seen."""
    source = model.tokenizers.source
    texts = (source.decode([number]) for number in range(source.size))
    return next(text for text in texts if text.isprintable() and text.strip())


def create_app(
    models: Mapping[str, Seq2Seq],
    limits: Limits | None = None,
    hosts: Sequence[str] = ("*",),
    token: str | None = None,
    log: Callable[[str], None] | None = None,
) -> FastAPI:
    """Make the application; ``hosts``, ``token`` and ``log`` are as in ``Guard``."""
    assert models
    limits = limits or Limits()
    # A trace may take seconds, so traces have their own thread, which works on views of the models. Documents are read
    # in a third one, and long requests checked in a fourth: neither the model nor the event loop waits for them.
    metrics = Metrics()
    workers = checking, reading, batcher, tracing = [Batcher(limits) for _ in range(4)]

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        for worker in workers:
            worker.start()
        yield
        for worker in workers:
            await worker.stop()

    # The framework's own documentation pages load scripts from other servers, so they are switched off.
    app = FastAPI(
        title="seq2see", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None,
        openapi_url="/api/openapi.json",
    )  # fmt: skip
    app.state.batcher, app.state.metrics, app.state.limits = batcher, metrics, limits
    app.state.workers, app.state.checking = workers, checking

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        """Report that the server is running."""
        return {"status": "ok"}

    @app.get("/metrics", response_class=PlainTextResponse)
    async def counters() -> str:
        """Return the counters, for Prometheus."""
        return metrics.text(batcher)

    _add_refusals(app, limits)
    _add_interface(app, models, Answering(models, limits, batcher, reading, metrics), tracing)
    app.router.routes.append(Page("/", StaticFiles(directory=STATIC, html=True), name="page"))
    app.add_middleware(Guard, metrics=metrics, hosts=hosts, token=token, log=log)
    return app


def _add_refusals(app: FastAPI, limits: Limits) -> None:
    """Let every refusal be {"error": "…"}, those of the framework, too."""

    @app.exception_handler(AnyHTTPException)
    async def refused(request: Request, error: AnyHTTPException) -> JSONResponse:
        told, path = str(error.detail), request.url.path[:80]
        if error.status_code == 404:
            told = f"There is nothing at {path}: /api/openapi.json lists all addresses."
        elif error.status_code == 405:
            told = f"{request.method} is not for {path}: {(error.headers or {}).get('Allow')} was expected."
        return refusal(error.status_code, told, error.headers)

    async def failed(request: Request, error: Exception) -> Response:
        """Return why a request is not answered; a client that has left gets nothing."""
        if isinstance(error, Left):
            return Response(status_code=LEFT)
        if isinstance(error, UserError) and not isinstance(error, FullMemoryError):
            return refusal(422, message_of(error, limits))
        return refusal(429 if isinstance(error, Busy) else 503, message_of(error, limits), {"retry-after": "1"})

    for kind in (UserError, Busy, TimeoutError, Left):
        app.add_exception_handler(kind, failed)


def _add_interface(app: FastAPI, models: Mapping[str, Seq2Seq], answering: Answering, tracing: Batcher) -> None:
    """Add the routes under /api/."""
    limits: Limits = app.state.limits
    if has_torch():  # without it there are answers, and no look inside
        from seq2see.page.live import live_page
        from seq2see.serve.traces import Tracer, describe_trace

        tracers = {name: Tracer(model, limits) for name, model in models.items()}
    described = [
        describe_model(name, model.config, model.card, model.path) | _trainable(model) for name, model in models.items()
    ]

    @app.get("/api/models")
    async def list_models() -> dict[str, Any]:
        """List the models and the limits."""
        return {"models": described, "limits": vars(limits)}

    app.router.route_class = JsonRoute

    # A refusal is JSON, so the route itself must not say that every answer is HTML.
    html: dict[int | str, dict[str, Any]] = {200: {"content": {"text/html": {}}}}

    @app.post("/api/page", responses=REFUSALS | html, response_class=Response)
    async def page(request: Request_, http: Request) -> Response:
        """Return the page of a small model as one file that runs in a browser."""
        name = known(models, request.model)
        about = next(one for one in described if one["name"] == name)
        if "inside" not in about:
            raise UserError(f"{name} is too large for this, or cannot run in a page: use `seq2see see --html`.")
        texts = about["examples"] or [_any_text(models[name])]
        return HTMLResponse(await tracing.one(partial(live_page, name, models[name], texts[0]), http.scope["asker"]))

    @app.post("/api/predict", responses=REFUSALS, response_model=dict[str, Any])
    async def predict(request: PredictRequest, http: Request) -> Response:
        """Answer texts. A text that is refused gets an error; the others are still answered."""
        return Response(in_json(await answering.predict(request, http.scope["asker"])), media_type=JSON)

    @app.post("/api/trace", responses=REFUSALS, response_model=dict[str, Any])
    async def trace(request: TraceRequest, http: Request) -> Response:
        """Answer one text and return every number on the way.

        ``data`` holds the tensors of the manifest as one block of bytes, in base64.
        """
        installed("torch", "A trace")
        name = known(models, request.model)

        def described() -> bytes:
            return in_json({"model": name, **describe_trace(tracers[name], request)})

        return Response(await tracing.one(described, http.scope["asker"]), media_type=JSON)

    @app.post("/api/text", responses=REFUSALS, response_class=StreamingResponse)
    async def text(request: TextRequest, http: Request) -> StreamingResponse:
        """Translate one text or document; its sentences are sent as they are done, each line a JSON object."""
        lines = await answering.text(request, http.scope["asker"])
        return StreamingResponse(lines, media_type="application/x-ndjson")
