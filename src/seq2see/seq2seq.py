"""The one object that people hold: a trained model that answers, scores, traces, and saves itself.

Answering through CTranslate2 needs no torch, and importing torch takes longer than answering. So the methods that need
torch import their modules when they are called.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from seq2see import machine
from seq2see.answer import Alternative, Answer, Token, or_withheld, put_together
from seq2see.config import Config, DecodingConfig
from seq2see.decoding import engines
from seq2see.decoding.engines import Engine
from seq2see.decoding.hypothesis import Hypothesis, Phrase
from seq2see.documents import formats as documents
from seq2see.documents.formats import Document
from seq2see.documents.kept import unmarked
from seq2see.documents.runs import Sentence
from seq2see.documents.terms import Glossary
from seq2see.documents.translation import MOST_TOKENS, Means, Translated, translate
from seq2see.errors import FolderError, InputError, RefusedInputs, UserError, shown
from seq2see.evaluation.confidence import Confidence, read_confidence
from seq2see.network import Network
from seq2see.storage import folder
from seq2see.storage.folder import Tokenizers
from seq2see.tasks import dates, human_dates
from seq2see.tokenizers.folding import fold_unknown
from seq2see.tokenizers.tokenizer import fold

if TYPE_CHECKING:
    from seq2see.decoding.allowed import Automaton
    from seq2see.evaluation.evaluate import Evaluation, Pair
    from seq2see.inspection.alignment import Alignment
    from seq2see.inspection.trace import Trace
    from seq2see.model.transformer import Transformer

MANY = 256  # texts from which Python takes long to look for cycles among their answers
WINDOW = 8192  # texts that a GPU answers together, while others are cut into tokens or put together
LONGEST_TEXT = 1_000_000  # characters; no model reads as many, and a longer text is refused unread
LONGEST_DOCUMENT = 2**28  # characters; it is held in memory

#: What a task asks of its inputs beyond their characters.
CHECKS: dict[str, Callable[[str], None]] = {"dates": dates.check, "human-dates": human_dates.check}


class Seq2Seq:
    """A trained text-to-text model.

    >>> import seq2see
    >>> model = seq2see.load("dates")
    >>> model("1845-01-05")
    'January 5, 1845'
    """

    def __init__(
        self,
        config: Config,
        tokenizers: Tokenizers,
        transformer: Transformer | None = None,
        card: str = "",
        path: Path | None = None,
        device: str = "cpu",
        engine: str = "auto",
        confidence: Confidence | None = None,
    ) -> None:
        self.config = config
        self.tokenizers = tokenizers
        self.card = card
        self.confidence = (
            confidence  # how sure its answers are, fitted by a training or by `seq2see calibrate`
        )
        self.network = Network(config, tokenizers, transformer, path, device, engine)

    @classmethod
    def load(cls, name: str | os.PathLike[str], device: str = "cpu", engine: str = "auto") -> Seq2Seq:
        """Load a model that ships, by name, or any model folder."""
        path = folder.find(name)
        config, tokenizers = folder.read_config(path), folder.read_tokenizers(path)
        for side, tokenizer, size in (
            ("source", tokenizers.source, config.model.source_vocabulary),
            ("target", tokenizers.target, config.model.target_vocabulary),
        ):
            if tokenizer.size != size:
                raise FolderError(
                    f"{path.name} does not fit together: its config says {size} {side} tokens, "
                    f"its tokenizer has {tokenizer.size}."
                )
        folder.check_weights(path, config.model)
        card = folder.read_card(path)
        model = cls(
            config,
            tokenizers,
            card=card,
            path=path,
            device=device,
            engine=engine,
            confidence=read_confidence(path),
        )
        model.network.find_export()
        return model

    def __repr__(self) -> str:
        shape = self.config.model
        return (
            f"<Seq2Seq {self.path.name if self.path else self.config.task}: {shape.parameters:,} parameters, "
            f"{shape.encoder_layers}+{shape.decoder_layers} layers, {shape.heads} heads, d_model {shape.d_model}, "
            f"{self.tokenizers.source.kind} → {self.tokenizers.target.kind}, on {self.device}>"
        )

    @property
    def transformer(self) -> Transformer:
        """The network itself. It may be edited: an edited network answers for itself, through torch."""
        return self.network.held()

    def view(self) -> Transformer:
        """Return a network that shares the weights of this model, to be watched while the model answers others."""
        from seq2see.inspection.trace import view_of

        return view_of(self.network.inner())

    def to(self, device: str) -> Seq2Seq:
        """Move the model to a device, ``cpu`` or ``cuda``, and return it.

        >>> import seq2see
        >>> seq2see.load("dates").to("cpu")("1845-01-05")
        'January 5, 1845'
        """
        self.network.to(device)
        return self

    @property
    def device(self) -> str:
        """The device that it answers on."""
        return self.network.device

    @property
    def path(self) -> Path | None:
        """The folder that it was read from, if it was."""
        return self.network.path

    def engine_for(self, inputs: int, beam: int = 1, n_best: int = 1, held: bool = False) -> Engine:
        """Return the engine that answers so many inputs; ``held`` says that the answers are held to something."""
        return self.network.engine_for(inputs, beam, n_best, held)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a model folder that ``load`` reads, with the CTranslate2 export if it is still of these weights."""
        from seq2see.storage.weights import weights_bytes, weights_of

        export = None if self.network.is_edited() or self.network.engine == "int8" else self.network.export
        data = weights_bytes(weights_of(self.network.inner()))

        def copied(new: Path) -> None:
            if export is not None:
                engines.copy_export(export, new, self.config.model)

        folder.write(Path(path), self.config, self.tokenizers, data, self.card, copied, self.confidence)

    def folded(self, text: str) -> str:
        """Return a text as the model reads it: as it was trained, in NFC with white space folded.

        Dates stay as they are, and so do texts for an imported model: its tokenizer does what its makers meant.
        """
        if self.config.task == "human-dates":
            return human_dates.fold(text)
        return text if self.config.task in CHECKS or self.config.task == "imported" else fold(text)

    def read(self, text: str) -> str:
        """Return a text as the model reads it: folded, and characters that it has never seen in those that it knows.

        A model of small letters reads ``Café`` as ``cafe``, unless it knows the others.
        """
        text = self.folded(text)
        return text if self.config.task in CHECKS else fold_unknown(self.tokenizers.source, text)

    def check(self, text: str, anyway: bool = False) -> None:
        """Raise an InputError if the model cannot take this text, saying why.

        ``anyway`` lets texts through that the model can read, but was not made for, such as a February 30.
        """
        self._fitting(self.tokenizers.source.encode(self._readable(text, anyway)))

    def _readable(self, text: str, anyway: bool = False) -> str:
        """Return a text as the model reads it."""
        if not isinstance(text, str):
            raise UserError(f"A text was expected, but {text!r} is of type {type(text).__name__}.")
        if len(text) > LONGEST_TEXT:
            raise InputError(f"The text has more than {LONGEST_TEXT:,} characters: cut it up.")
        _check_unicode(text)
        if self.config.task in CHECKS and not anyway:
            CHECKS[self.config.task](text)
        text = self.read(text)
        if not text.strip():
            raise InputError("The line is empty: a text was expected.")
        self.tokenizers.source.check(text)
        return text

    def _fitting(self, ids: list[int]) -> list[int]:
        """Return the ids of a text if they are not too many."""
        length, longest = len(ids), self.config.model.max_length
        if length > longest:
            raise InputError(
                f"The text has {length:,} tokens, but this model takes at most {longest:,}: cut it up."
            )
        return ids

    def __call__(self, text: str) -> str:
        """Answer one text."""
        self.check(text)
        [answer] = self.answers([text], probabilities=False)
        if answer.error is not None:
            raise InputError(answer.error)
        return str(answer.output)

    @overload
    def predict(
        self,
        texts: Iterable[str],
        beam: int | None = None,
        *,
        length_penalty: float | None = None,
        max_length: int | None = None,
        order: str | None = None,
        min_confidence: float | None = None,
        whole: bool = False,
        only: Iterable[str] | None = None,
        pattern: str | None = None,
        prefix: str | None = None,
        glossary: Glossary | dict[str, str | None] | None = None,
        on_error: Literal["raise"] = "raise",
    ) -> list[str]: ...
    @overload
    def predict(
        self,
        texts: Iterable[str],
        beam: int | None = None,
        *,
        length_penalty: float | None = None,
        max_length: int | None = None,
        order: str | None = None,
        min_confidence: float | None = None,
        whole: bool = False,
        only: Iterable[str] | None = None,
        pattern: str | None = None,
        prefix: str | None = None,
        glossary: Glossary | dict[str, str | None] | None = None,
        on_error: Literal["none"],
    ) -> list[str | None]: ...
    def predict(
        self,
        texts: Iterable[str],
        beam: int | None = None,
        *,
        length_penalty: float | None = None,
        max_length: int | None = None,
        order: str | None = None,
        min_confidence: float | None = None,
        whole: bool = False,
        only: Iterable[str] | None = None,
        pattern: str | None = None,
        prefix: str | None = None,
        glossary: Glossary | dict[str, str | None] | None = None,
        on_error: str = "raise",
    ) -> list[str] | list[str | None]:
        """Answer many texts, in order.

        ``beam``, ``length_penalty`` and ``max_length`` (the most tokens of an answer) are the model's own if they are
        not given. A model of sentences translates texts sentence by sentence, unless ``whole`` says otherwise. Answers
        are held to the texts of ``only``, to a regular expression (``pattern``) or to a beginning (``prefix``), if one is
        given; ``glossary`` says what terms become, and None lets a term stay. If some texts are refused,
        ``RefusedInputs`` is raised, which holds the answers to the others; with ``on_error="none"`` a refused text has
        None in its place. An answer that is less sure than ``min_confidence`` counts as refused. ``order`` is for human
        dates: whether the day or the month comes first in 03/04/2020, which is refused without it.

        >>> import seq2see
        >>> seq2see.load("dates").predict(["1845-01-05", "no date"], on_error="none")
        ['January 5, 1845', None]
        >>> seq2see.load("dates").predict(["1845-01-05"], only=["June 5, 1845", "January 5, 1854"])
        ['January 5, 1854']
        """
        if on_error not in ("raise", "none"):
            raise UserError(f"on_error is {on_error!r}: 'raise' or 'none' was expected.")
        answers = self.answers(
            texts,
            beam,
            probabilities=False,
            length_penalty=length_penalty,
            max_length=max_length,
            order=order,
            min_confidence=min_confidence,
            whole=whole,
            only=only,
            pattern=pattern,
            prefix=prefix,
            glossary=glossary,
        )
        outputs = [answer.output for answer in answers]
        reasons = {place: answer.error for place, answer in enumerate(answers) if answer.error is not None}
        if reasons and on_error == "raise":
            raise RefusedInputs(reasons, outputs)
        return outputs

    def answers(
        self,
        texts: Iterable[str],
        beam: int | None = None,
        n_best: int = 1,
        probabilities: bool = True,
        *,
        length_penalty: float | None = None,
        max_length: int | None = None,
        order: str | None = None,
        min_confidence: float | None = None,
        whole: bool = False,
        only: Iterable[str] | Automaton | None = None,
        pattern: str | None = None,
        prefix: str | None = None,
        glossary: Glossary | dict[str, str | None] | None = None,
    ) -> list[Answer]:
        """Answer many texts with probabilities and alternatives; a bad text is refused, the others are answered.

        A beam is at least as wide as ``n_best``, the number of answers to each text. Without ``probabilities`` the
        answers hold texts and ids only, which is faster. The rest is as in ``predict``. An answer that is less sure than
        ``min_confidence`` is withheld: its text is in ``withheld``, and ``error`` says how sure it is.

        >>> import seq2see
        >>> [answer] = seq2see.load("dates").answers(["1845-01-05"])
        >>> answer.output, answer.finished, answer.probability > 0.999
        ('January 5, 1845', True, True)
        """
        if human_dates.known(order) and self.config.task != "human-dates":
            raise UserError(
                f"`order` is for dates that people write, but the task of this model is {self.config.task}."
            )
        self._check_confidence(min_confidence)
        texts, terms = _listed(texts), self._glossary(glossary)
        rules = self.rules(beam, length_penalty, max_length, n_best)
        held = self.allowed(only, pattern, prefix)
        if held is not None and terms is not None:
            raise UserError(
                "`glossary` cannot be used together with `only`, `pattern` or `prefix`: leave one out."
            )
        sure = probabilities or min_confidence is not None
        by_sentences = rules.sentences and n_best == 1 and held is None and not whole
        if terms is not None and n_best > 1:
            raise UserError("`glossary` gives one answer to each text: leave `n_best` out.")

        def answered(part: Sequence[str]) -> list[Answer]:
            if terms is not None or by_sentences:
                return self._answers_to_texts(part, rules, sure, terms)
            return self._answers(part, rules, n_best, sure, held)

        with machine.uncollected() if len(texts) > MANY else nullcontext():
            if self.device == "cpu" or len(texts) <= WINDOW:
                answers = answered(texts)
            else:
                self.engine_for(len(texts), rules.beam, n_best, held is not None)  # made once
                answers = _by_windows(texts, answered)
            if self.config.task == "human-dates":
                answers = [self._read(answer, order) for answer in answers]
            if min_confidence is None:
                return answers
            return [or_withheld(answer, min_confidence) for answer in answers]

    def _answers(
        self,
        texts: Sequence[str],
        rules: DecodingConfig,
        n_best: int = 1,
        probabilities: bool = True,
        held: Automaton | None = None,
    ) -> list[Answer]:
        """Answer texts as they are, one by one."""
        encoded, reasons = self._encoded(texts)
        results: list[Answer | None] = [None] * len(texts)
        for index, reason in reasons.items():
            results[index] = Answer(texts[index], None, error=reason)
        lengths = {place: len(ids) for place, ids in encoded.items()}
        batches = self.network.batches(lengths, rules, n_best, held is not None)

        def given(rows: list[int]) -> tuple[list[list[int]], Automaton | None]:
            return [encoded[row] for row in rows], None if held is None else held.select(rows)

        def best(engine: Engine, rows: list[int]) -> tuple[list[list[int]], list[str]]:
            sources, allowed = given(rows)
            found = engine.ids(sources, rules, allowed)
            return found, self.tokenizers.target.decode_batch(found)

        def several(engine: Engine, rows: list[int]) -> list[list[Hypothesis]]:
            sources, allowed = given(rows)
            return engine.search(sources, rules, n_best, allowed)

        if probabilities or n_best > 1:
            for rows, answers in self.network.searched(batches, several):
                for row, hypotheses in zip(rows, answers, strict=True):
                    results[row] = self._answer(texts[row], hypotheses, lengths[row])
        else:
            end = self.tokenizers.target.end
            for rows, found in self.network.searched(batches, best):
                for row, ids, output in zip(rows, *found, strict=True):
                    remark = self._remark(texts[row], lengths[row], False)[0]
                    results[row] = Answer.plain(texts[row], output, ids, ids[-1] == end, remark)
        return [answer for answer in results if answer is not None]

    def _read(self, answer: Answer, order: str | None) -> Answer:
        """Return an answer as its task reads it: a human date that is none, or that can be two, is refused."""
        if answer.output is None:
            return answer
        try:
            date = human_dates.read(answer.input, answer.output, order)
            return answer if date == answer.output else replace(answer, output=date)
        except InputError as error:
            return replace(answer, output=None, error=str(error))

    def allowed(
        self,
        only: Iterable[str] | Automaton | None = None,
        pattern: str | None = None,
        prefix: str | None = None,
    ) -> Automaton | None:
        """Return what answers are held to, to be used as ``only`` again and again: it is made once."""
        if sum(one is not None for one in (only, pattern, prefix)) > 1:
            raise UserError("More than one of `only`, `pattern` and `prefix` was given: use one of them.")
        if only is None and pattern is None and prefix is None:
            return None
        from seq2see.decoding import allowed

        target = self.tokenizers.target
        if isinstance(only, allowed.Automaton):
            return only
        if only is not None:
            return allowed.one_of(list(dict.fromkeys(self.folded(text) for text in _listed(only))), target)
        for name, text in (("pattern", pattern), ("prefix", prefix)):
            if text is not None and (not isinstance(text, str) or not text):
                raise UserError(f"`{name}` is {text!r}: a text was expected.")
        if pattern is not None:
            return allowed.matching(pattern, target)
        return allowed.beginning(str(prefix), target)

    @staticmethod
    def _glossary(glossary: Any) -> Glossary | None:
        return glossary if glossary is None or isinstance(glossary, Glossary) else Glossary(glossary)

    def translate(
        self,
        text: str,
        format: str = "text",
        beam: int | None = None,
        *,
        length_penalty: float | None = None,
        max_length: int | None = None,
        glossary: Glossary | dict[str, str | None] | None = None,
    ) -> str:
        """Translate a whole document, sentence by sentence; all but its words stays.

        ``format`` is text, html, markdown, srt, po or json. ``glossary`` says what terms must become; a term with None
        stays as it is. What had to be repaired is logged as a warning.

        >>> import seq2see
        >>> model = seq2see.load("en-fr")
        >>> model.translate("<p>The <b>red</b> car is new.</p>", format="html")
        '<p>La voiture <b>rouge</b> est nouvelle.</p>'
        """
        document, log = self.document(text, format), logging.getLogger("seq2see")
        rules, terms = self.rules(beam, length_penalty, max_length), self._glossary(glossary)
        found = self.sentences(document.sentences, rules, terms)
        for note in document.notes:
            log.warning(note)
        for number, one in enumerate(found, 1):
            for said in [*one.remarks, *([one.error] if one.error else [])]:
                log.warning("sentence %s: %s", f"{number:,}", said)
        return document.written([one.text for one in found])

    def document(self, text: str, format: str = "text") -> Document:
        """Read a document of a format, or raise a UserError that says what is wrong with it."""
        if not isinstance(text, str):
            raise UserError(f"A text was expected, but {text!r:.60} is of type {type(text).__name__}.")
        if len(text) > LONGEST_DOCUMENT:
            raise UserError(f"The document has more than {LONGEST_DOCUMENT:,} characters: cut it up.")
        _check_unicode(text)
        return documents.read(text, format)

    def sentences(
        self,
        sentences: Sequence[Sentence],
        rules: DecodingConfig | None = None,
        glossary: Glossary | None = None,
        probabilities: bool = False,
    ) -> list[Translated]:
        """Translate sentences of documents."""
        longest = min(MOST_TOKENS, self.config.model.max_length)
        source = self.tokenizers.source
        sure = longest - 3 if source.own else longest // 4  # a token of ours has at least one byte

        def fits(text: str) -> bool:
            if len(text.encode()) <= sure:
                return True
            folded = self.folded(text)
            try:
                source.check(folded)
            except InputError:  # it is refused in its place, as a whole
                return True
            return len(source.encode(folded)) <= longest

        def answer(texts: list[str], rules: DecodingConfig, phrases: list[list[Phrase]] | None) -> list[Any]:
            held = None
            if phrases is not None:
                from seq2see.decoding import allowed

                most = self.config.model.max_length - 1
                most = most if rules.max_length is None else min(most, rules.max_length)
                held = allowed.holding(phrases, self.tokenizers.target.end, most)
            return self._answers(texts, rules, 1, probabilities, held)

        def links(pairs: list[tuple[str, str]]) -> list[list[tuple[tuple[int, int], tuple[int, int]]]]:
            # An answer that is nonsense may be longer when it is read again: it has no links.
            good = [number for number, pair in enumerate(pairs) if self._can_align(pair)]
            found = dict(zip(good, self.align([pairs[number] for number in good]), strict=True))
            return [
                [(link.source_span, link.target_span) for link in found[number].links]
                if number in found
                else []
                for number in range(len(pairs))
            ]

        means = Means(answer, links, fits, self.tokenizers.target)
        return translate(sentences, means, rules or self.config.decoding, glossary)

    def _answers_to_texts(
        self, texts: Sequence[str], rules: DecodingConfig, probabilities: bool, glossary: Glossary | None
    ) -> list[Answer]:
        """Answer texts sentence by sentence."""
        read: list[Document | str] = []
        for text in texts:
            try:
                if not isinstance(text, str) or not text.strip():
                    self._readable(text)  # raises
                read.append(self.document(text.strip()))
            except UserError as error:
                if not isinstance(text, str):
                    raise
                read.append(str(error))
        sentences = [one for document in read if isinstance(document, Document) for one in document.sentences]
        found = iter(self.sentences(sentences, rules, glossary, probabilities))
        return [
            Answer(text, None, error=document)
            if isinstance(document, str)
            else put_together(text, document, [next(found) for _ in document.sentences])
            for text, document in zip(texts, read, strict=True)
        ]

    def rules(
        self,
        beam: int | None = None,
        length_penalty: float | None = None,
        max_length: int | None = None,
        n_best: int = 1,
    ) -> DecodingConfig:
        """Return how a request is searched for: the model's own rules, but for what is given."""
        if not isinstance(n_best, int) or n_best < 1:
            raise UserError(f"n_best is {n_best!r}: a whole number was expected, at least 1.")
        given = {"beam": beam, "length_penalty": length_penalty, "max_length": max_length}
        rules = self.config.decoding.but(
            **{name: value for name, value in given.items() if value is not None}
        )
        return rules if rules.beam >= n_best else rules.but(beam=n_best)

    def _encoded(self, texts: Sequence[str]) -> tuple[dict[int, list[int]], dict[int, str]]:
        """Return the ids of each text that the model can take, by its place, and why the others are refused."""
        read: dict[int, str] = {}
        encoded: dict[int, list[int]] = {}
        reasons: dict[int, str] = {}
        for index, text in enumerate(texts):
            try:
                read[index] = self._readable(text)
            except InputError as error:
                reasons[index] = str(error)
        rows = self.tokenizers.source.encode_batch(
            list(read.values())
        )  # on all cores, if it is the library's
        for index, ids in zip(read, rows, strict=True):
            try:
                encoded[index] = self._fitting(ids)
            except InputError as error:
                reasons[index] = str(error)
        return encoded, reasons

    def _check_confidence(self, least: float | None) -> None:
        if least is None:
            return
        if not isinstance(least, int | float) or not 0 <= least <= 1:
            raise UserError(f"`min_confidence` is {least!r}: a probability from 0 to 1 was expected.")
        if self.confidence is None:
            raise UserError(
                f"`min_confidence` is {least}, but nothing is known of how sure this model's answers are: "
                "`seq2see calibrate` fits it on pairs that were not trained on."
            )

    def _remark(self, text: str, length: int, thorough: bool = True) -> tuple[str | None, bool]:
        """Say how a text was read and whether it is unlike those that were trained on; and whether it is."""
        if self.config.task in CHECKS:
            return None, False
        source, remarks, unlike = self.tokenizers.source, [], ""
        if source.letters is not None and (read := self.read(text)) != self.folded(text):
            remarks.append(f"The input was read as {shown(read)}.")
        if self.confidence is not None:
            real = length - len(source.before) - len(source.after)
            told = self.read(unmarked(text) if self.config.decoding.sentences else text)
            unlike = self.confidence.familiar.why_not(told, real, thorough)
            remarks += [unlike] if unlike else []
        return " ".join(remarks) or None, bool(unlike)

    def judged(
        self, text: str, log_probabilities: Sequence[float], finished: bool, length: int | None = None
    ) -> tuple[float | None, str | None]:
        """Return the confidence of an answer, by the log-probabilities of its tokens, and the remark about its input.

        The confidence is None where nothing is known of it: it was not fitted, or the input is unlike those that were
        trained on. ``length`` is that of the input's ids, if it is known.
        """
        if length is None:
            length = len(self.tokenizers.source.encode(self.read(text)))
        remark, unlike = self._remark(text, length)
        if self.confidence is None or unlike:
            return None, remark
        return self.confidence(log_probabilities, finished), remark

    def _answer(self, text: str, hypotheses: list[Hypothesis], length: int) -> Answer:
        target, best = self.tokenizers.target, hypotheses[0]
        sure, remark = self.judged(text, best.log_probabilities, best.finished, length)
        tokens = zip(target.tokens(best.ids), best.log_probabilities, strict=True)
        return Answer(
            input=text,
            output=target.decode(best.ids),
            log_probability=best.log_probability,
            tokens=[Token(token, exp(value)) for token, value in tokens],
            alternatives=[Alternative(target.decode(h.ids), h.log_probability) for h in hypotheses[1:]],
            ids=best.ids,
            finished=best.finished,
            confidence=sure,
            remark=remark,
        )

    def raw(self, answer: Answer) -> str:
        """Write an answer with its special tokens: ``<sos>January 5, 1845<eos><pad><pad>``."""
        if answer.parts:
            return "".join(map(self.raw, answer.parts))
        length = dates.RAW_LENGTH if self.config.task == "dates" else 0
        return self.tokenizers.target.raw([self.tokenizers.target.start, *answer.ids], length)

    def evaluate(
        self,
        pairs: Iterable[Pair],
        beam: int | None = None,
        progress: Callable[[int], None] = lambda done: None,
    ) -> Evaluation:
        """Score the model on pairs: exact match, error rates, BLEU, chrF, loss, every miss.

        >>> import seq2see
        >>> scores = seq2see.load("dates").evaluate([("1845-01-05", "January 5, 1845")])
        >>> scores.exact_match, scores.character_error_rate, scores.token_error_rate
        (1.0, 0.0, 0.0)
        >>> round(scores.chrf().score)
        100
        """
        from seq2see.data.pairs import tidied
        from seq2see.evaluation.evaluate import evaluate

        pairs = list(tidied(pairs, self.folded))
        rules = self.rules(beam)
        engine = self.engine_for(len(pairs), rules.beam)
        return evaluate(
            self.network.inner(), self.tokenizers, pairs, progress=progress, engine=engine, rules=rules
        )

    def score(self, pairs: Iterable[Pair]) -> list[list[float]]:
        """Return the log-probability of each token of each target, ``<eos>`` included, given its source.

        >>> import seq2see
        >>> [tokens] = seq2see.load("dates").score([("1845-01-05", "January 5, 1845")])
        >>> len(tokens), sum(tokens) > -0.01
        (16, True)
        """
        from seq2see.data.pairs import tidied
        from seq2see.evaluation.evaluate import score

        return score(self.network.inner(), self.tokenizers, tidied(pairs, self.folded))

    def _can_align(self, pair: Pair) -> bool:
        from seq2see.data.pairs import tidied
        from seq2see.evaluation.evaluate import check_pair

        try:
            check_pair(self.config.model, self.tokenizers, tidied([pair], self.folded)[0])
        except UserError:
            return False
        return True

    def align(self, pairs: Iterable[Pair | Answer]) -> list[Alignment]:
        """Say which word of its source each word of a target comes from, by cross-attention, with places in both.

        Places are those in the texts as the model reads them (``folded``).

        >>> import seq2see
        >>> model = seq2see.load("dates")
        >>> model.align([("1845-01-05", "January 5, 1845")])[0].pharaoh
        '2-0 4-1 4-2 0-3'
        """
        from seq2see.data.pairs import tidied
        from seq2see.evaluation.evaluate import check_pair
        from seq2see.inspection.alignment import align

        sources, targets = [], []
        for number, pair in enumerate(pairs, 1):
            if isinstance(pair, Answer):
                if pair.error is not None:
                    raise UserError(f"Answer {number:,} cannot be aligned, since there is none: {pair.error}")
                if pair.parts or not pair.ids:
                    pair = (pair.input, str(pair.output))
                else:
                    sources.append(self.read(pair.input))
                    targets.append([self.tokenizers.target.start, *pair.ids])
            if not isinstance(pair, Answer):
                ((source, target),) = tidied([pair], self.folded, number)
                check_pair(self.config.model, self.tokenizers, (source, target), number)
                sources.append(source)
                targets.append(self.tokenizers.target.encode(target))
        return align(self.network.inner(), self.tokenizers, sources, targets)

    def trace(self, text: str, target: str | None = None, edit: dict[str, Any] | None = None) -> Trace:
        """Answer one text and keep every number on the way; ``edit`` replaces values by name.

        The model itself is left alone: what is watched and edited is a view of it that shares its weights.

        >>> import seq2see
        >>> trace = seq2see.load("dates").trace("1845-01-05")
        >>> trace["decoder.layers.1.cross_attention.weights"].shape
        torch.Size([4, 16, 12])
        """
        from seq2see.inspection.trace import trace_text
        from seq2see.page.single_file import PageTrace

        self.check(text)
        target = None if target is None else self.folded(target)
        return trace_text(
            self.transformer,
            self.tokenizers,
            self.read(text),
            target,
            edit,
            PageTrace,
            self.config.decoding,
        )


def _check_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"The line is not UTF-8 text (from character {error.start + 1} on).") from None


def _by_windows(texts: Sequence[str], answered: Callable[[Sequence[str]], list[Answer]]) -> list[Answer]:
    """Answer texts of about one length together, and cut the next ones meanwhile."""
    order = sorted(range(len(texts)), key=lambda place: len(str(texts[place])))
    windows = [order[first : first + WINDOW] for first in range(0, len(order), WINDOW)]
    found: dict[int, Answer] = {}
    for window, answers in machine.ahead(
        lambda window: answered([texts[place] for place in window]), windows
    ):
        found.update(zip(window, answers, strict=True))
    return [found[place] for place in range(len(texts))]


def _listed(texts: Iterable[str]) -> list[str]:
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise UserError(f"A list of texts was expected, but {texts!r:.60} was given: put one text into [ ].")
    return list(texts)


def load(name: str | os.PathLike[str], device: str = "cpu", engine: str = "auto") -> Seq2Seq:
    """Load a model: ``load("dates")`` for one that ships, ``load("path/")`` for any model folder.

    ``engine`` is ``torch``, ``ctranslate2`` (of an exported folder), or ``auto`` for the faster one: they give the same
    answers. ``int8`` is CTranslate2 with eight bits, faster for large models; its answers may differ.

    >>> import seq2see
    >>> seq2see.load("dates").predict(["1845-01-05", "2025-09-03"])
    ['January 5, 1845', 'September 3, 2025']
    """
    return Seq2Seq.load(name, device, engine)
