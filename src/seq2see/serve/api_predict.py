"""``/api/predict``: its requests, and how they are answered together."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Annotated, Any, cast

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from seq2see.answering.answer import Answer
from seq2see.answering.answerer import Answerer, Reading, parts_of
from seq2see.answering.examples import ORDERS
from seq2see.answering.options import HTTP, Options, named_for
from seq2see.answering.translation import BEAM
from seq2see.config import Config, DecodingConfig
from seq2see.documents.formats import Document
from seq2see.documents.runs import Sentence
from seq2see.documents.terms import Glossary
from seq2see.errors import UserError
from seq2see.seq2seq import Seq2Seq
from seq2see.serve.batching import Batcher, Client, Limits
from seq2see.serve.forms import known, options_of, with_options
from seq2see.serve.guard import Metrics


def _plainly(given: Any) -> Any:
    """Refuse the first input of a wrong form: pydantic would name every form that it might have had."""
    if not isinstance(given, str | list):
        raise PydanticCustomError("inputs", "a text or a list of inputs was expected")
    for number, one in enumerate(given if isinstance(given, list) else (), 1):
        parts = one.values() if isinstance(one, dict) else one if isinstance(one, list) else [one]
        if not all(isinstance(part, str) for part in parts):
            told = f"input {number} is not a text, nor a word and its features as a list or an object of texts"
            raise PydanticCustomError("inputs", told)
    return given


class PredictRequest(with_options(*named_for(HTTP))):  # type: ignore[misc]
    """Texts to answer."""

    inputs: Annotated[str | list[str | list[str] | dict[str, str]], BeforeValidator(_plainly)] = Field(
        description="One text or many. For a model of words with features, each of many may be a list or an object: the "
        "word first, then its features."
    )
    align: bool = Field(False, description="Return which word of the input each word of the answer attends to.")


class Predictor:
    """Answers the texts of a request together with the texts of other waiting requests."""

    def __init__(
        self, models: Mapping[str, Seq2Seq], limits: Limits, batcher: Batcher, reading: Batcher, metrics: Metrics
    ) -> None:
        self.models, self.limits, self.metrics = models, limits, metrics
        self.batcher, self.reading = batcher, reading

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
        texts = [model.answerer.text_of(one) for one in inputs]
        self._check_limits(request)
        options = options_of(request)
        check_beam(max(request.beam or 1, request.n_best), self.limits)
        options = replace(options, glossary=await glossary_of(request.glossary, self.reading, client))
        model.answerer.check_options(options)
        check_tags(texts, options.format, self.limits)
        if options.format is not None and request.align:
            raise UserError("A document has no alignment: leave format or align out.")
        shown = await self._shown(name, texts, options, request.align, client)
        refused = sum("error" in answer for answer in shown)
        self.metrics.inputs["refused"] += refused
        self.metrics.inputs["answered"] += len(shown) - refused
        return {"model": name, "answers": shown}

    def _check_limits(self, request: PredictRequest) -> None:
        """Refuse lists and prefixes that are longer than the limits, before they are used."""
        listed, most = len(request.only or ()), self.limits.listed
        if listed > most:
            raise UserError(f"The list has {listed:,} answers: it may have at most {most:,}.")
        if len(request.like or ()) > most:
            raise UserError(f"There may be at most {most:,} examples.")
        if len(request.glossary or ()) > most:
            raise UserError(f"The glossary may have at most {most:,} terms.")
        if len(request.prefix or "") > self.limits.characters:
            raise UserError(too_long(request.prefix or "", self.limits.characters))

    async def _shown(
        self, name: str, texts: list[str], options: Options, align: bool, client: Client | None
    ) -> list[dict[str, Any]]:
        """Answer texts: long ones are read, and put together, beside the event loop."""
        answerer = self.models[name].answerer
        reader = _Reader(answerer, options, align, self.limits)
        is_short = sum(map(len, texts)) <= SHORT
        if is_short or not answerer.splits(options):
            readings = reader(texts)
        else:
            lengths = [READING * len(text) for text in texts]
            readings = await self.reading.do(object(), texts, reader, client, lengths)
        parts, work = parts_of(readings), partial(answerer.searched, options=options)
        found = await self.batcher.do((name, options), parts, work, client, reader.costs) if parts else []

        def joined(_: list[Any]) -> list[tuple[list[Answer], list[dict[str, Any]]]]:
            answers = answerer.joined(texts, readings, found, options)
            return [(answers, [_described(*one, options) for one in zip(answers, readings, strict=True)])]

        ((answers, shown),) = joined(texts) if is_short else await self.reading.do(object(), [object()], joined, client)
        if not align:
            return shown
        (aligned,) = await self.batcher.do(
            object(), [object()], lambda _: [_with_alignments(self.models[name], answers, shown)], client
        )
        return cast(list[dict[str, Any]], aligned)


MOST_SEARCHES = 4  # for a text with a glossary: the first, one without what is wrong, and again for each
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
    """Reads the texts of a request, and estimates what each of their parts costs."""

    def __init__(self, answerer: Answerer, options: Options, align: bool, limits: Limits) -> None:
        self.answerer, self.options, self.align, self.limits = answerer, options, align, limits
        self.rules = options.rules(answerer.config.decoding)
        self.most = limits.document if answerer.splits(options) else limits.characters
        self.costs: list[float] = []

    def __call__(self, texts: list[str]) -> list[Reading]:
        """Read texts; too much work is refused before all are read."""
        read: list[Reading] = []
        for text in texts:
            is_long = len(text) > self.most
            refused = Answer(text, None, error=too_long(text, self.most)) if is_long else None
            read.append(refused or self.answerer.reading(text, self.options))
            self.costs += map(self._cost, parts_of(read[-1:]))
            check_work(sum(self.costs), self.limits)
        return read

    def _cost(self, part: Sentence | str) -> float:
        text = part if isinstance(part, str) else part.text
        if self.answerer.config.decoding.sentences:  # a token has some characters
            return cost_of(self.answerer.config, self.rules, len(text) // 2, self.align)
        times = 1 if self.options.terms is None else MOST_SEARCHES * BEAM
        if self.options.like is not None:
            times, text = ORDERS, text + "".join(map("".join, self.options.like))
        return times * cost_of(self.answerer.config, self.rules, len(text), self.align)


def cost_of(config: Config, rules: DecodingConfig, characters: int, again: bool = False) -> float:
    """Return an upper bound of the multiplications of an answer; ``again`` reads both texts once more."""
    longest = config.model.max_length
    source = min(characters + 2, longest)
    target = rules.limit(source, longest)
    return float(config.model.parameters) * (source + target * rules.beam + again * (source + target))


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
        raise UserError(f"The request has {tags:,} tags: it may have at most {limits.tags:,}. Send it in parts.")


def check_beam(beam: int, limits: Limits) -> None:
    """Refuse a beam that is wider than the limit."""
    if beam > limits.beam:
        raise UserError(f"The beam is {beam:,}: it may be at most {limits.beam}.")


def too_long(text: str, most: int) -> str:
    """Return the message that a text is longer than the limit."""
    return f"The text has {len(text):,} characters: it may have at most {most:,}. Send it in parts."


def _with_alignments(model: Seq2Seq, answers: list[Answer], shown: list[dict[str, Any]]) -> list[dict[str, Any]]:
    good = [number for number, answer in enumerate(answers) if answer.error is None]
    for number, alignment in zip(good, model.align([answers[i] for i in good]), strict=True):
        if alignment.source != answers[number].input:
            shown[number]["read"] = alignment.source  # the text that the spans refer to
        shown[number]["alignment"] = [asdict(link) for link in alignment.links]
    return shown


def _described(answer: Answer, reading: Reading, options: Options) -> dict[str, Any]:
    probabilities = options.probabilities and options.format is None
    shown = _told(answer, probabilities)
    if isinstance(reading, Document) and reading.notes:
        shown["notes"] = [*reading.notes]
    return shown


def _told(answer: Answer, probabilities: bool) -> dict[str, Any]:
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
