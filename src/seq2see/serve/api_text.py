"""``/api/text``: translates one text or document and sends each sentence when it is done, as a line of JSON."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from pydantic import Field

from seq2see.answering.answer import Answer
from seq2see.answering.answerer import Answerer
from seq2see.answering.options import Options
from seq2see.answering.translation import Translated
from seq2see.documents.formats import Document
from seq2see.documents.runs import Sentence
from seq2see.errors import UserError
from seq2see.seq2seq import Seq2Seq
from seq2see.serve.api_predict import READING, check_tags, cost_of, glossary_of
from seq2see.serve.batching import Batcher, Busy, Client, Left, Limits
from seq2see.serve.forms import in_json, known, message_of, options_of, with_options
from seq2see.serve.guard import Metrics

FEW, MANY = 4, 128  # sentences that are translated together: few at first, for a fast start


class TextRequest(with_options("format", "glossary")):  # type: ignore[misc]
    """A text or a document to translate."""

    input: str = Field(description="The text.")


class Texts:
    """Translates texts of any length, some sentences at a time; between them, other requests have their turns."""

    def __init__(
        self, models: Mapping[str, Seq2Seq], limits: Limits, batcher: Batcher, reading: Batcher, metrics: Metrics
    ) -> None:
        self.models, self.limits, self.metrics = models, limits, metrics
        self.batcher, self.reading = batcher, reading

    async def __call__(self, request: TextRequest, client: Client) -> AsyncIterator[bytes]:
        """Read a text, or refuse it; return the lines of the answer.

        The first one holds the parts of the text: a string stays, and an object is a sentence. Each other line holds
        the results of the next ``sentences``, or the ``error`` that ends the answer.
        """
        name = known(self.models, request.model)
        if len(request.glossary or ()) > self.limits.listed:
            raise UserError(f"The glossary may have at most {self.limits.listed:,} terms.")
        check_tags([request.input], request.format, self.limits)
        terms = await glossary_of(request.glossary, self.reading, client)
        options = options_of(request, terms, format=request.format or "text")
        reader = partial(_read, name, self.models[name].answerer, options)
        cost = READING * len(request.input)
        ((first, sentences),) = await self.reading.do(object(), [request.input], reader, client, [cost])
        return self._lines(name, first, sentences, replace(options, format="text"), client)  # sentences are alike

    async def _lines(
        self, name: str, first: bytes, sentences: list[Sentence], options: Options, client: Client
    ) -> AsyncIterator[bytes]:
        yield first
        answerer = self.models[name].answerer
        work = partial(answerer.searched, options=options)
        at, count = 0, FEW
        while at < len(sentences):
            some = sentences[at : at + count]
            costs = [cost_of(answerer.config, answerer.config.decoding, len(one.text) // 2) for one in some]
            try:
                found = await self.batcher.do((name, options), some, work, client, costs)
            except Left:
                return
            except (UserError, Busy, TimeoutError) as error:
                yield in_json({"error": message_of(error, self.limits)}) + b"\n"
                return
            refused = sum(one.error is not None for one in found)
            self.metrics.inputs["refused"] += refused
            self.metrics.inputs["answered"] += len(found) - refused
            shown = [_shown(answerer, sentence, one, options) for sentence, one in zip(some, found, strict=True)]
            yield in_json({"sentences": shown}) + b"\n"
            at, count = at + len(some), min(2 * count, MANY)


def _read(name: str, answerer: Answerer, options: Options, texts: list[str]) -> list[tuple[bytes, list[Sentence]]]:
    """Read a document; return the first line of the answer, and the sentences."""
    document = answerer.reading(texts[0], options)
    if not isinstance(document, Document):
        raise UserError(str(document.error if isinstance(document, Answer) else ""))
    parts = [part if isinstance(part, str) else {"source": part.text} for part in document.parts]
    return [(in_json({"model": name, "parts": parts, "notes": document.notes}) + b"\n", document.sentences)]


def _shown(answerer: Answerer, sentence: Sentence, found: Translated, options: Options) -> dict[str, Any]:
    """Describe the result of a sentence; ``parts`` holds what the model read and wrote."""
    if found.error is not None:
        return {"output": found.text, "error": found.error}
    [answer] = answerer.joined([sentence.text], [Document([sentence])], [found], options)
    shown: dict[str, Any] = {"output": found.text, "finished": answer.finished}
    shown["parts"] = [{"read": part.read.text, "ids": part.reply.ids} for part in found.parts]
    known = {"confidence": answer.confidence, "remark": answer.remark, "repairs": answer.repairs or None}
    known["terms"] = None if options.terms is None else len(options.terms.found(sentence.text))
    return shown | {name: value for name, value in known.items() if value is not None}
