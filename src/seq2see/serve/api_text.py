"""``/api/text``: translates one text or document and sends each sentence when it is done, as a line of JSON."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any, Literal

from pydantic import Field

from seq2see.answering.translation import Translated, put_together, read, translate
from seq2see.documents.formats import Document
from seq2see.documents.runs import Sentence
from seq2see.documents.terms import Glossary
from seq2see.errors import UserError
from seq2see.seq2seq import Seq2Seq
from seq2see.serve.api_predict import READING, check_tags, cost_of, glossary_of
from seq2see.serve.batching import Batcher, Busy, Client, Left, Limits
from seq2see.serve.forms import Request_, Terms, in_json, known, message_of
from seq2see.serve.guard import Metrics

FEW, MANY = 4, 128  # sentences that are translated together: few at first, for a fast start


class TextRequest(Request_):
    """A text or a document to translate."""

    input: str = Field(description="The text.")
    format: Literal["text", "html", "markdown", "srt", "po", "json"] = Field(
        "text", description="The format of the text; only its words change."
    )
    glossary: Terms | None = Field(None, description="The translation of each term; a term with null stays as it is.")


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
        model = self.models[name]
        if not request.input.strip():
            model.texts.check(request.input)  # raises
        reader = partial(_read, name, request.format)
        cost = READING * len(request.input)
        ((first, sentences),) = await self.reading.do(object(), [request.input], reader, client, [cost])
        return self._lines(name, first, sentences, terms, client)

    async def _lines(
        self, name: str, first: bytes, sentences: list[Sentence], terms: Glossary | None, client: Client
    ) -> AsyncIterator[bytes]:
        yield first
        model = self.models[name]
        rules = model.config.decoding
        key = (name, rules, True, None if terms is None else tuple(terms.terms.items()))
        work = partial(translate, texts=model.texts, rules=rules, glossary=terms, probabilities=True)
        at, count = 0, FEW
        while at < len(sentences):
            some = sentences[at : at + count]
            costs = [cost_of(model, rules, len(one.text) // 2) for one in some]
            try:
                found = await self.batcher.do(key, some, work, client, costs)
            except Left:
                return
            except (UserError, Busy, TimeoutError) as error:
                yield in_json({"error": message_of(error, self.limits)}) + b"\n"
                return
            refused = sum(one.error is not None for one in found)
            self.metrics.inputs["refused"] += refused
            self.metrics.inputs["answered"] += len(found) - refused
            shown = [_shown(sentence, one, terms) for sentence, one in zip(some, found, strict=True)]
            yield in_json({"sentences": shown}) + b"\n"
            at, count = at + len(some), min(2 * count, MANY)


def _read(name: str, form: str, texts: list[str]) -> list[tuple[bytes, list[Sentence]]]:
    """Read a document; return the first line of the answer, and the sentences."""
    document = read(texts[0], form)
    parts = [part if isinstance(part, str) else {"source": part.text} for part in document.parts]
    return [(in_json({"model": name, "parts": parts, "notes": document.notes}) + b"\n", document.sentences)]


def _shown(sentence: Sentence, found: Translated, terms: Glossary | None) -> dict[str, Any]:
    """Describe the result of a sentence; ``parts`` holds what the model read and wrote."""
    if found.error is not None:
        return {"output": found.text, "error": found.error}
    answer = put_together(sentence.text, Document([sentence]), [found])
    shown: dict[str, Any] = {"output": found.text, "finished": answer.finished}
    shown["parts"] = [{"read": part.read.text, "ids": part.reply.ids} for part in found.parts]
    known = {"confidence": answer.confidence, "remark": answer.remark, "repairs": answer.repairs or None}
    known["terms"] = None if terms is None else len(terms.found(sentence.text))
    return shown | {name: value for name, value in known.items() if value is not None}
