"""``/api/predict``: its requests, and how they are answered together; the route class of all requests in JSON."""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from functools import cached_property, partial
from typing import Annotated, Any, Literal, get_type_hints

from fastapi import Request
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    FailFast,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic_core import PydanticCustomError, to_json
from starlette.types import ASGIApp, Receive, Scope, Send

from seq2see.answering.answer import Answer, or_withheld
from seq2see.answering.options import Options
from seq2see.answering.translation import Translated, put_together, translate
from seq2see.answering.translation import read as read_document
from seq2see.config import DecodingConfig
from seq2see.decoding.allowed import MOST_CELLS, Automaton
from seq2see.documents.formats import Document
from seq2see.documents.runs import Sentence
from seq2see.documents.terms import Glossary
from seq2see.errors import FullMemoryError, UserError
from seq2see.seq2seq import Seq2Seq
from seq2see.serve.batching import Batcher, Busy, Client, Left, Limits
from seq2see.serve.guard import Metrics, refusal

PATH = "/api/predict"
JSON = "application/json"


def _whole(text: str) -> str:
    """Refuse a lone surrogate (half a character): JSON can contain one, but UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("the text has half a character (a lone surrogate)") from None
    return text


Text = Annotated[str, AfterValidator(_whole)]


def _plainly(given: Any, checked: ValidatorFunctionWrapHandler) -> Any:
    """Check the inputs of a request; the error names the first bad one, and not every form that it might have had."""
    try:
        return checked(given)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
    number = next((part + 1 for fault in faults for part in fault["loc"] if isinstance(part, int)), None)
    told = (
        "a text or a list of inputs was expected"
        if number is None
        else f"input {number} is not a text, nor a word and its features as a list or an object of texts"
    )
    raise PydanticCustomError("inputs", told)


class Hasty(FailFast):
    """Stops validating a list at its first error: nobody needs 100,000 messages."""

    __hash__ = object.__hash__  # pydantic requires it of a union's member


class Request_(BaseModel):  # noqa: N801 - Request is the framework's
    """The common part of all requests. An unknown key is an error, and so is a text instead of a number."""

    model_config = ConfigDict(extra="forbid", strict=True)

    model: str | None = Field(None, description="Name of a model. Without it, the first model answers.")


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


class PredictRequest(Request_):
    """Texts to answer."""

    inputs: Annotated[
        Text | Annotated[list[Text | Annotated[list[Text], Hasty()] | dict[Text, Text]], Hasty()],
        WrapValidator(_plainly),
    ] = Field(
        description="One text or many. For a model of words with features, each of many may be a list or an object: the "
        "word first, then its features."
    )
    beam: int | None = Field(
        None, ge=1, description="Width of the beam search; 1 is greedy. Without it, the model's own."
    )
    length_penalty: float | None = Field(
        None, ge=-10, le=10, allow_inf_nan=False,
        description="α, by which a beam prefers longer answers. Without it, the model's own.",
    )  # fmt: skip
    max_length: int | None = Field(
        None, ge=1, description="Most tokens of an answer. Without it, the model's own."
    )
    min_confidence: float | None = Field(
        None, ge=0, le=1, allow_inf_nan=False,
        description="Withhold answers with a lower confidence: they get an error.",
    )  # fmt: skip
    order: Literal["day", "month"] | None = Field(
        None, description="With human-dates: whether the day or the month comes first in 03/04/2020."
    )
    n_best: int = Field(1, ge=1, description="Answers to each input, best first, each with its score.")
    probabilities: bool = Field(True, description="Return the probability of each token. False is faster.")
    align: bool = Field(
        False, description="Return which word of the input each word of the answer attends to."
    )
    format: Literal["text", "html", "markdown", "srt", "po", "json"] | None = Field(
        None, description="Each input is a document of this format; only its words change."
    )
    glossary: dict[Text, Text | None] | None = Field(
        None, description="The translation of each term; a term with null stays as it is."
    )
    only: Annotated[list[Text], Hasty()] | None = Field(None, description="The answers that are allowed.")
    pattern: Text | None = Field(
        None, description="A regular expression that matches each answer as a whole."
    )
    prefix: Text | None = Field(None, description="What each answer begins with.")
    whole: bool = Field(
        False, description="Do not split inputs into sentences, even if the model translates sentences."
    )

    def options(self) -> Options:
        """Return the options of the answers."""
        return Options(**{field.name: getattr(self, field.name) for field in fields(Options)})


class Predictor:
    """Answers the texts of a request together with the texts of other waiting requests."""

    def __init__(
        self,
        models: Mapping[str, Seq2Seq],
        limits: Limits,
        batcher: Batcher,
        reading: Batcher,
        metrics: Metrics,
    ) -> None:
        self.models, self.limits, self.metrics = models, limits, metrics
        self.batcher, self.reading = batcher, reading
        self.automata = Automata()

    async def __call__(self, request: PredictRequest, client: Client | None = None) -> dict[str, Any]:
        """Answer texts. A text that is refused gets an error; the others are still answered."""
        async with asyncio.timeout(self.limits.seconds):
            return await self._answered(request, client)

    async def _answered(self, request: PredictRequest, client: Client | None) -> dict[str, Any]:
        inputs = [request.inputs] if isinstance(request.inputs, str) else request.inputs
        name = known(self.models, request.model)
        if not 1 <= len(inputs) <= self.limits.inputs:
            raise UserError(
                f"The request has {len(inputs):,} inputs: a request may have 1 to {self.limits.inputs:,}. "
                "Send them in parts."
            )
        model = self.models[name]
        texts = [model.texts.text_of(one) for one in inputs]
        check_beam(max(request.beam or 1, request.n_best), self.limits)
        self._check_limits(request)
        options = request.options()
        rules = options.rules(model.config.decoding)
        plain = request.n_best > 1 or options.is_constrained or request.whole
        if request.format is not None or request.glossary is not None or (rules.sentences and not plain):
            answers = await self._texts(name, texts, request, options, client)
        else:
            answers = await self._inputs(name, texts, request, options, client)
        refused = sum("error" in answer for answer in answers)
        self.metrics.inputs["refused"] += refused
        self.metrics.inputs["answered"] += len(answers) - refused
        return {"model": name, "answers": answers}

    def _check_limits(self, request: PredictRequest) -> None:
        """Refuse lists and prefixes that are longer than the limits, before they are used."""
        listed, most = len(request.only or ()), self.limits.listed
        if listed > most:
            raise UserError(f"The list has {listed:,} answers: it may have at most {most:,}.")
        if len(request.glossary or ()) > most:
            raise UserError(f"The glossary may have at most {most:,} terms.")
        if len(request.prefix or "") > self.limits.characters:
            raise UserError(too_long(request.prefix or "", self.limits.characters))

    async def _inputs(
        self,
        name: str,
        texts: list[str],
        request: PredictRequest,
        options: Options,
        client: Client | None,
    ) -> list[dict[str, Any]]:
        """Answer unsplit texts."""
        model, most = self.models[name], self.limits.characters
        rules = options.rules(model.config.decoding)
        good = [text for text in texts if len(text) <= most]
        costs = [cost_of(model, rules, len(text), request.align) for text in good]
        check_work(sum(costs), self.limits)
        made = partial(self.automata.of, name, model, options) if options.is_constrained else None
        work = partial(_answers, model, options, request.probabilities, request.align, made)
        key = (name, options, request.probabilities, request.align)
        found = iter(await self.batcher.do(key, good, work, client, costs) if good else [])
        return [
            next(found) if len(text) <= most else {"input": text, "error": too_long(text, most)}
            for text in texts
        ]

    async def _texts(
        self,
        name: str,
        texts: list[str],
        request: PredictRequest,
        options: Options,
        client: Client | None,
    ) -> list[dict[str, Any]]:
        """Answer texts sentence by sentence, together with the sentences of other requests."""
        if request.n_best > 1 or request.only or request.pattern or request.prefix:
            raise UserError("A format cannot be used with n_best, only, pattern or prefix: leave one out.")
        check_tags(texts, request.format, self.limits)
        if request.format is not None and request.align:
            raise UserError("A document has no alignment: leave format or align out.")
        model, rules = self.models[name], options.rules(self.models[name].config.decoding)
        terms = await glossary_of(request.glossary, self.reading, client)
        reader = _Reader(model, rules, request.format, request.align, self.limits)
        is_short = sum(map(len, texts)) <= SHORT  # it is read before another thread starts
        if is_short:
            read = reader(texts)
        else:
            lengths = [READING * len(text) for text in texts]
            read = await self.reading.do(object(), texts, reader, client, lengths)
        items, costs = reader.sentences, reader.costs
        least = request.min_confidence
        sure = request.probabilities or least is not None
        wanted = (rules, sure, None if terms is None else tuple(terms.terms.items()))
        work = partial(translate, texts=model.texts, rules=rules, glossary=terms, probabilities=sure)
        found = await self.batcher.do((name, *wanted), items, work, client, costs) if items else []
        told = partial(_told, found, least, request.probabilities and request.format is None)
        done = [(texts, read)]
        ((answers, shown),) = told(done) if is_short else await self.reading.do(object(), done, told, client)
        if request.align:
            (shown,) = await self.batcher.do(
                object(), [(answers, shown)], lambda items: [_with_alignments(model, *items[0])], client
            )
        return shown


READING = 1e6  # cost of reading a character of a document, in multiplications
SHORT = 2_000  # characters of texts that are read at once


async def glossary_of(
    given: Mapping[str, str | None] | None, reading: Batcher, client: Client | None
) -> Glossary | None:
    """Read the glossary of a request."""
    if given is None:
        return None
    (made,) = await reading.do(object(), [given], lambda items: [Glossary(items[0])], client)
    return made if isinstance(made, Glossary) else None


class _Reader:
    """Reads the documents of a request, and collects their sentences with their costs."""

    def __init__(
        self, model: Seq2Seq, rules: DecodingConfig, form: str | None, align: bool, limits: Limits
    ) -> None:
        self.model, self.rules, self.form, self.align, self.limits = model, rules, form, align, limits
        self.sentences: list[Sentence] = []
        self.costs: list[float] = []

    def __call__(self, texts: list[str]) -> list[Document | str]:
        """Read documents; a refused one is replaced by the reason. Too much work is refused before all are read."""
        read: list[Document | str] = []
        for text in texts:
            try:
                document = self._read(text)
            except UserError as error:
                read.append(str(error))
                continue
            read.append(document)
            self.sentences += (found := document.sentences)
            self.costs += [cost_of(self.model, self.rules, len(one.text) // 2, self.align) for one in found]
            check_work(sum(self.costs), self.limits)
        return read

    def _read(self, text: str) -> Document:
        if len(text) > self.limits.document:
            raise UserError(too_long(text, self.limits.document))
        if not text.strip():
            self.model.texts.check(text)  # raises
        return read_document(text if self.form else text.strip(), self.form or "text")


def _told(
    found: list[Translated],
    least: float | None,
    probabilities: bool,
    given: list[tuple[list[str], list[Document | str]]],
) -> list[tuple[list[Answer], list[dict[str, Any]]]]:
    """Join the sentences of documents again, and describe the answers."""
    ((texts, read),) = given
    remaining = iter(found)
    answers = [
        Answer(text, None, error=document)
        if isinstance(document, str)
        else or_withheld(put_together(text, document, [next(remaining) for _ in document.sentences]), least)
        for text, document in zip(texts, read, strict=True)
    ]
    shown = [_shown(answer, probabilities) for answer in answers]
    for one, document in zip(shown, read, strict=True):
        if isinstance(document, Document) and document.notes:
            one["notes"] = list(document.notes)
    return [(answers, shown)]


class Automata:
    """The automata of the last requests, since many requests have the same constraints; their total size is limited."""

    def __init__(self, cells: int = 2 * MOST_CELLS) -> None:
        self.cells = cells  # states × tokens of a vocabulary
        self.known: OrderedDict[tuple[object, ...], tuple[Automaton | None, int]] = OrderedDict()

    def of(self, name: str, model: Seq2Seq, options: Options) -> Automaton | None:
        """Return the automaton of the constraints."""
        key = (name, options.only, options.pattern, options.prefix)
        if key not in self.known:
            made = model.texts.allowed(options)
            states = 0 if made is None else len(made.count)
            self.known[key] = made, states * model.config.model.target_vocabulary
        self.known.move_to_end(key)
        while len(self.known) > 1 and sum(cells for _, cells in self.known.values()) > self.cells:
            self.known.popitem(last=False)
        return self.known[key][0]


def cost_of(model: Seq2Seq, rules: DecodingConfig, characters: int, again: bool = False) -> float:
    """Return an upper bound of the multiplications of an answer; ``again`` reads both texts once more."""
    longest = model.config.model.max_length
    source = min(characters + 2, longest)
    target = rules.limit(source, longest)
    return float(model.config.model.parameters) * (source + target * rules.beam + again * (source + target))


def check_work(cost: float, limits: Limits) -> None:
    """Refuse a request that would take too long, before any of it is done."""
    if cost > limits.work:
        raise UserError(
            f"The request may take {cost:.1e} multiplications, and {limits.work:.0e} is the limit: send it in parts, or "
            "request a narrower beam, shorter answers or fewer values."
        )


def check_tags(texts: Sequence[str], form: str | None, limits: Limits) -> None:
    """Refuse HTML with more tags than the limit, before it is read: a tag takes as long as many words."""
    tags = sum(text.count("<") for text in texts) if form == "html" else 0
    if tags > limits.tags:
        raise UserError(
            f"The request has {tags:,} tags: it may have at most {limits.tags:,}. Send it in parts."
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


def too_long(text: str, most: int) -> str:
    """Return the message that a text is longer than the limit."""
    return f"The text has {len(text):,} characters: it may have at most {most:,}. Send it in parts."


def _answers(
    model: Seq2Seq,
    options: Options,
    probabilities: bool,
    align: bool,
    made: Callable[[], Automaton | None] | None,
    texts: list[str],
) -> list[dict[str, Any]]:
    options = replace(options, whole=True)
    if made is not None:
        options = replace(options, only=made(), pattern=None, prefix=None)
    answers = model.answers(texts, options, probabilities=probabilities)
    shown = [_shown(answer, probabilities) for answer in answers]
    return _with_alignments(model, answers, shown) if align else shown


def _with_alignments(
    model: Seq2Seq, answers: list[Answer], shown: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    good = [number for number, answer in enumerate(answers) if answer.error is None]
    for number, alignment in zip(good, model.align([answers[i] for i in good]), strict=True):
        if alignment.source != answers[number].input:
            shown[number]["read"] = alignment.source  # the text that the spans refer to
        shown[number]["alignment"] = [asdict(link) for link in alignment.links]
    return shown


def _shown(answer: Answer, probabilities: bool) -> dict[str, Any]:
    if answer.error is not None:
        return {"input": answer.input, "error": answer.error} | withheld_of(answer)
    shown: dict[str, Any] = {"input": answer.input, "output": answer.output, "finished": answer.finished}
    if answer.confidence is not None:
        shown["confidence"] = answer.confidence
    if answer.remark is not None:
        shown["remark"] = answer.remark
    if answer.repairs:
        shown["repairs"] = answer.repairs
    if probabilities:
        shown["log_probability"] = answer.log_probability
        shown["tokens"] = [vars(token) for token in answer.tokens]
    if answer.alternatives:
        shown["score"] = answer.score
    if probabilities or answer.alternatives:
        shown["alternatives"] = [vars(alternative) for alternative in answer.alternatives]
    return shown


def withheld_of(answer: Answer) -> dict[str, Any]:
    """Return the text and confidence of a withheld answer."""
    if answer.withheld is None:
        return {}
    return {"withheld": answer.withheld, "confidence": answer.confidence}


def refusal_of(error: Exception, limits: Limits) -> JSONResponse:
    """Return the answer to a request that failed with an error."""
    if isinstance(error, UserError) and not isinstance(error, FullMemoryError):
        return refusal(422, message_of(error, limits))
    return refusal(429 if isinstance(error, Busy) else 503, message_of(error, limits), {"retry-after": "1"})


def message_of(error: Exception, limits: Limits) -> str:
    """Return why a request is not answered."""
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, Busy):
        return f"{limits.queue:,} requests are already waiting: try again in a second."
    assert isinstance(error, TimeoutError)
    return f"The answer took longer than {limits.seconds:g} s: ask for less at once."


def refusal_of_form(error: ValidationError) -> JSONResponse:
    """Return the answer to an invalid request. It does not repeat what was sent, because that may be anything."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    if faults[0]["type"] == "json_invalid" and re.search("surrogate|hex escape", faults[0]["msg"]):
        return refusal(422, "The request has a text with half a character (a lone surrogate).")
    if faults[0]["type"] == "json_invalid":
        return refusal(400, "The body is not JSON in UTF-8.")
    said = [
        f"{'.'.join(str(part)[:80] for part in fault['loc'][:8])}: {fault['msg']}" for fault in faults[:5]
    ]
    text = "; ".join(said).encode("ascii", "backslashreplace").decode()
    return refusal(422, f"The request does not have the expected form. {text[:500]}")


def in_json(value: object) -> bytes:
    """Write JSON. A number that JSON cannot express, NaN or an infinity, becomes null."""
    return to_json(value, inf_nan_mode="null")


class JsonRoute(APIRoute):
    """A route that FastAPI describes, but that handles requests itself.

    FastAPI would parse the body, validate it, solve dependencies and open two context stacks for each request, which
    takes longer than a small model. So ``Directly`` brings each POST here.
    """

    @cached_property
    def form(self) -> type[BaseModel]:
        """The class of a request: the type of the endpoint's first parameter."""
        form: type[BaseModel] = get_type_hints(self.endpoint)["request"]
        return form

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; ``Guard`` has already read its whole body."""
        if scope["method"] != "POST":
            await super().handle(scope, receive, send)  # which refuses it
            return
        response: Response
        kinds = [value for name, value in scope["headers"] if name == b"content-type"]
        try:
            if [kind.split(b";")[0].strip() for kind in kinds] != [JSON.encode()]:
                raise UserError(
                    f"The request does not have the expected form: send JSON, as content-type: {JSON}."
                )
            request = self.form.model_validate_json((await receive()).get("body", b""))
            response = await self.endpoint(request, Request(scope))
        except ValidationError as error:
            response = refusal_of_form(error)
        except Left:
            return
        except (UserError, Busy, TimeoutError) as error:
            response = refusal_of(error, scope["app"].state.limits)
        await response(scope, receive, send)


class Directly:
    """Passes a POST to the route of its path, without the layers of the framework that it does not use."""

    def __init__(self, app: ASGIApp, routes: Mapping[str, JsonRoute]) -> None:
        self.app, self.routes = app, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        route = (
            self.routes.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        )
        if route is None:
            await self.app(scope, receive, send)
        else:
            scope["route"] = route
            await route.handle(scope, receive, send)
