"""``/api/predict``: its requests, and how they are answered together."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from seq2see.answering.answer import Answer, or_withheld
from seq2see.answering.options import Options
from seq2see.answering.translation import BEAM, Translated, put_together, translate
from seq2see.answering.translation import read as read_document
from seq2see.config import DecodingConfig
from seq2see.decoding.allowed import MOST_CELLS, Automaton
from seq2see.documents.formats import Document
from seq2see.documents.runs import Sentence
from seq2see.documents.terms import Glossary
from seq2see.errors import UserError
from seq2see.seq2seq import Seq2Seq
from seq2see.serve.batching import Batcher, Client, Limits
from seq2see.serve.forms import Hasty, Request_, Terms, known
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


class PredictRequest(Request_):
    """Texts to answer."""

    inputs: Annotated[str | list[str | list[str] | dict[str, str]], BeforeValidator(_plainly)] = Field(
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
    max_length: int | None = Field(None, ge=1, description="Most tokens of an answer. Without it, the model's own.")
    min_confidence: float | None = Field(
        None, ge=0, le=1, allow_inf_nan=False,
        description="Withhold answers with a lower confidence: they get an error.",
    )  # fmt: skip
    order: str | None = Field(
        None, description="With human-dates: whether the day or the month comes first in 03/04/2020.",
        json_schema_extra={"enum": ["day", "month"]},
    )  # fmt: skip
    n_best: int = Field(1, ge=1, description="Answers to each input, best first, each with its score.")
    probabilities: bool = Field(True, description="Return the probability of each token. False is faster.")
    align: bool = Field(False, description="Return which word of the input each word of the answer attends to.")
    format: Literal["text", "html", "markdown", "srt", "po", "json"] | None = Field(
        None, description="Each input is a document of this format; only its words change."
    )
    glossary: Terms | None = Field(None, description="The translation of each term; a term with null stays as it is.")
    only: Annotated[list[str], Hasty()] | None = Field(None, description="The answers that are allowed.")
    pattern: str | None = Field(None, description="A regular expression that matches each answer as a whole.")
    prefix: str | None = Field(None, description="What each answer begins with.")
    whole: bool = Field(
        False, description="Do not split inputs into sentences, even if the model translates sentences."
    )

    def options(self) -> Options:
        """Return the options of the answers, without the glossary, which is read beside the event loop."""
        given = {field.name: getattr(self, field.name) for field in fields(Options)}
        return Options(**{**given, "glossary": None})


class Predictor:
    """Answers the texts of a request together with the texts of other waiting requests."""

    def __init__(
        self, models: Mapping[str, Seq2Seq], limits: Limits, batcher: Batcher, reading: Batcher, metrics: Metrics
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
        self._check_limits(request)
        options = request.options()
        check_beam(max(request.beam or 1, request.n_best), self.limits)
        terms = await glossary_of(request.glossary, self.reading, client)
        options = replace(options, glossary=terms, format=None)  # raises if they do not go together
        plain = request.n_best > 1 or options.is_constrained or (request.whole and terms is None)
        if request.format is not None or (model.config.decoding.sentences and not plain):
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
        self, name: str, texts: list[str], request: PredictRequest, options: Options, client: Client | None
    ) -> list[dict[str, Any]]:
        """Answer unsplit texts."""
        model, most = self.models[name], self.limits.characters
        rules = options.rules(model.config.decoding)
        good = [text for text in texts if len(text) <= most]
        times = 1 if options.terms is None else MOST_SEARCHES * BEAM
        costs = [times * cost_of(model, rules, len(text), request.align) for text in good]
        check_work(sum(costs), self.limits)
        made = partial(self.automata.of, name, model, options) if options.is_constrained else None
        work = partial(_answers, model, options, request.probabilities, request.align, made)
        key = (name, options, request.probabilities, request.align)
        found = iter(await self.batcher.do(key, good, work, client, costs) if good else [])
        return [next(found) if len(text) <= most else {"input": text, "error": too_long(text, most)} for text in texts]

    async def _texts(
        self, name: str, texts: list[str], request: PredictRequest, options: Options, client: Client | None
    ) -> list[dict[str, Any]]:
        """Answer texts sentence by sentence, together with the sentences of other requests."""
        if request.n_best > 1 or request.only or request.pattern or request.prefix:
            raise UserError("A format cannot be used with n_best, only, pattern or prefix: leave one out.")
        check_tags(texts, request.format, self.limits)
        if request.format is not None and request.align:
            raise UserError("A document has no alignment: leave format or align out.")
        model, rules = self.models[name], options.rules(self.models[name].config.decoding)
        model._check(options)
        terms = options.terms
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
    """Reads the documents of a request, and collects their sentences with their costs."""

    def __init__(self, model: Seq2Seq, rules: DecodingConfig, form: str | None, align: bool, limits: Limits) -> None:
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
        raise UserError(f"The request has {tags:,} tags: it may have at most {limits.tags:,}. Send it in parts.")


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


def _with_alignments(model: Seq2Seq, answers: list[Answer], shown: list[dict[str, Any]]) -> list[dict[str, Any]]:
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
