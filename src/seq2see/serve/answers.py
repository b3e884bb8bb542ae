"""``/api/predict`` answers texts; ``/api/text`` sends the sentences of one text as they are done, a line of JSON each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import chain
from typing import Any

from seq2see.answering.answer import Answer, Reading, told
from seq2see.answering.answerer import Answerer, parts_of
from seq2see.answering.examples import ORDERS
from seq2see.answering.options import Options
from seq2see.answering.translation import BEAM, Translated
from seq2see.documents.formats import Document
from seq2see.documents.runs import Sentence
from seq2see.documents.terms import Glossary
from seq2see.errors import UserError
from seq2see.seq2seq import Seq2Seq
from seq2see.serve.batching import Batcher, Busy, Client, Left, Limits, too_long
from seq2see.serve.forms import PredictRequest, TextRequest, in_json, known, message_of, options_of
from seq2see.serve.guard import Metrics

MOST_SEARCHES = 4  # for a text with a glossary: the first, one without what is wrong, and again for each
READING = 1e6  # cost of reading a character of a document, in multiplications
FEW, MANY = 4, 128  # sentences of a text that are translated together: few at first, for a fast start


class Cost:
    """An upper bound of the multiplications of a search; ``again`` reads the text and its answer once more."""

    def __init__(self, answerer: Answerer, options: Options, again: bool = False) -> None:
        self.config, self.rules, self.again = answerer.config, options.rules(answerer.config.decoding), again
        self.times = 1 if options.terms is None or self.rules.sentences else MOST_SEARCHES * BEAM
        self.before = 0  # characters of the examples that stand before each text
        if options.like is not None:
            self.times, self.before = ORDERS, sum(map(len, chain.from_iterable(options.like)))

    def __call__(self, text: str) -> float:
        """Return the cost of a text."""
        longest = self.config.model.max_length
        source = min(
            (self.before + len(text)) // (2 if self.rules.sentences else 1) + 2, longest
        )  # there, a token has some characters
        target = self.rules.limit(source, longest)
        tokens = source + target * self.rules.beam + self.again * (source + target)
        return float(self.config.model.parameters) * tokens * self.times


class Answering:
    """Answers the texts of a request together with those of others that wait; between its pieces others have turns."""

    def __init__(
        self, models: Mapping[str, Seq2Seq], limits: Limits, batcher: Batcher, reading: Batcher, metrics: Metrics
    ) -> None:
        self.models, self.limits, self.metrics = models, limits, metrics
        self.batcher, self.reading = batcher, reading

    async def _asked(
        self, request: Any, inputs: Sequence[Any], client: Client
    ) -> tuple[str, Answerer, list[str], Options]:
        """Return the model, the texts and the options of a request; what is beyond the limits is refused unread."""
        name, limits, options = known(self.models, request.model), self.limits, options_of(request)
        answerer = self.models[name].answerer
        limits.check("inputs", len(inputs), limits.inputs)
        texts = [answerer.text_of(one) for one in inputs]
        limits.check("tags", sum(text.count("<") for text in texts if options.format == "html"), limits.tags)
        limits.check("terms in its glossary", len(request.glossary or ()), limits.listed)
        limits.check("allowed answers", len(options.only or ()), limits.listed)  # type: ignore[arg-type]
        limits.check("examples", len(options.like or ()), limits.listed)
        limits.check("paths in its beam", max(options.beam or 1, options.n_best), limits.beam)
        if options.prefix is not None and (why := too_long(options.prefix, limits.characters)):
            raise UserError(why)
        if request.glossary is not None:
            terms = await self.reading.one(partial(Glossary, request.glossary), client)
            options = replace(options, glossary=terms)
        return name, answerer, texts, options

    def _count(self, answers: Sequence[Answer | Translated]) -> None:
        refused = sum(one.error is not None for one in answers)
        self.metrics.inputs["refused"] += refused
        self.metrics.inputs["answered"] += len(answers) - refused

    async def predict(self, request: PredictRequest, client: Client) -> dict[str, Any]:
        """Answer texts. A text that is refused gets an error; the others are still answered."""
        inputs = [request.inputs] if isinstance(request.inputs, str) else request.inputs
        name, answerer, texts, options = await self._asked(request, inputs, client)
        answerer.check_options(options)
        if options.format is not None and request.align:
            raise UserError("A document has no alignment: leave format or align out.")
        reader, at_once = Reader(answerer, options, request.align, self.limits), not answerer.splits(options)
        costs = [READING * len(text) for text in texts]
        readings = reader(texts) if at_once else await self.reading.do(object(), texts, reader, client, costs)
        parts, work = parts_of(readings), partial(answerer.searched, options=options)
        found = await self.batcher.do((name, options), parts, work, client, reader.costs) if parts else []

        def joined() -> tuple[list[Answer], list[dict[str, Any]]]:
            answers = answerer.joined(texts, readings, found, options)
            return answers, [_shown(*one, options) for one in zip(answers, readings, strict=True)]

        answers, shown = joined() if at_once else await self.reading.one(joined, client)
        if request.align:
            await self.batcher.one(partial(_align, self.models[name], answers, shown), client)
        self._count(answers)
        return {"model": name, "answers": shown}

    async def text(self, request: TextRequest, client: Client) -> AsyncIterator[bytes]:
        """Read a text of any length, or refuse it; return the lines of the answer.

        The first one holds the parts of the text: a string stays, and an object is a sentence. Each other line holds
        the results of the next ``sentences``, or the ``error`` that ends the answer.
        """
        name, answerer, [text], options = await self._asked(request, [request.input], client)
        document = partial(_document, name, answerer, text, replace(options, format=request.format or "text"))
        first, sentences = await self.reading.one(document, client, READING * len(text))
        return self._lines(name, first, sentences, replace(options, format="text"), client)  # sentences are alike

    async def _lines(
        self, name: str, first: bytes, sentences: list[Sentence], options: Options, client: Client
    ) -> AsyncIterator[bytes]:
        yield first
        answerer, at, count = self.models[name].answerer, 0, FEW
        work, cost = partial(answerer.searched, options=options), Cost(answerer, options)
        while at < len(sentences):
            some = sentences[at : at + count]
            try:
                found = await self.batcher.do((name, options), some, work, client, [cost(one.text) for one in some])
            except Left:
                return
            except (UserError, Busy, TimeoutError) as error:
                yield in_json({"error": message_of(error, self.limits)}) + b"\n"
                return
            self._count(found)
            shown = [_sentence(answerer, sentence, one, options) for sentence, one in zip(some, found, strict=True)]
            yield in_json({"sentences": shown}) + b"\n"
            at, count = at + len(some), min(2 * count, MANY)


class Reader:
    """Reads the texts of a request, and estimates what each of their parts costs."""

    def __init__(self, answerer: Answerer, options: Options, align: bool, limits: Limits) -> None:
        self.answerer, self.options, self.limits = answerer, options, limits
        self.most = limits.document if answerer.splits(options) else limits.characters
        self.cost, self.costs = Cost(answerer, options, align), list[float]()

    def __call__(self, texts: list[str]) -> list[Reading]:
        """Read texts; too much work is refused before all are read."""
        read: list[Reading] = []
        for text in texts:
            why = too_long(text, self.most)
            read.append(Answer(text, None, error=why) if why else self.answerer.reading(text, self.options))
            self.costs += [self.cost(part if isinstance(part, str) else part.text) for part in parts_of(read[-1:])]
            self.limits.check_work(sum(self.costs))
        return read


def _shown(answer: Answer, reading: Reading, options: Options) -> dict[str, Any]:
    """Describe an answer."""
    probabilities = options.probabilities and options.format is None
    shown = told(answer, probabilities, options.n_best > 1)
    if probabilities and answer.error is None:
        shown.setdefault("alternatives", [])
    if isinstance(reading, Document) and reading.notes:
        shown["notes"] = [*reading.notes]
    return shown


def _align(model: Seq2Seq, answers: list[Answer], shown: list[dict[str, Any]]) -> None:
    """Add to each description which words belong together."""
    good = [number for number, answer in enumerate(answers) if answer.error is None]
    for number, alignment in zip(good, model.align([answers[i] for i in good]), strict=True):
        if alignment.source != answers[number].input:
            shown[number]["read"] = alignment.source  # the text that the spans refer to
        shown[number]["alignment"] = [asdict(link) for link in alignment.links]


def _document(name: str, answerer: Answerer, text: str, options: Options) -> tuple[bytes, list[Sentence]]:
    """Read a document; return the first line of the answer, and the sentences."""
    document = answerer.reading(text, options)
    if not isinstance(document, Document):
        raise UserError(str(document.error if isinstance(document, Answer) else ""))
    parts = [part if isinstance(part, str) else {"source": part.text} for part in document.parts]
    return in_json({"model": name, "parts": parts, "notes": document.notes}) + b"\n", document.sentences


def _sentence(answerer: Answerer, sentence: Sentence, found: Translated, options: Options) -> dict[str, Any]:
    """Describe the result of a sentence; ``parts`` holds what the model read and wrote."""
    if found.error is not None:
        return {"output": found.text, "error": found.error}
    [answer] = answerer.joined([sentence.text], [Document([sentence])], [found], options)
    shown = {**told(answer, probabilities=False, several=False), "output": found.text}
    del shown["input"]
    shown["parts"] = [{"read": part.read.text, "ids": part.reply.ids} for part in found.parts]
    return shown if options.terms is None else {**shown, "terms": len(options.terms.found(sentence.text))}
