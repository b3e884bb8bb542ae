"""The one object that people hold: a trained model that answers, scores, traces, and saves itself.

Answering through CTranslate2 needs no torch, and importing torch takes longer than answering. So the methods that need
torch import their modules when they are called.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, overload

from seq2see import folder
from seq2see.confidence import Confidence
from seq2see.config import Config, DecodingConfig
from seq2see.data import dates, human_dates
from seq2see.decoding import engines, trial
from seq2see.decoding.engines import Engine
from seq2see.decoding.hypothesis import Hypothesis, Phrase, Special
from seq2see.errors import FolderError, InputError, RefusedInputs, UserError, shown
from seq2see.folder import Tokenizers
from seq2see.text import documents
from seq2see.text.documents import Document
from seq2see.text.folding import fold_unknown
from seq2see.text.runs import Sentence
from seq2see.text.terms import Glossary
from seq2see.text.tokenizer import fold
from seq2see.translation import MOST_TOKENS, Means, Translated, translate

if TYPE_CHECKING:
    from torch import Tensor

    from seq2see.config import ModelConfig, TrainingConfig
    from seq2see.decoding.allowed import Automaton
    from seq2see.decoding.torch_engine import TorchEngine
    from seq2see.evaluate import Evaluation, Pair
    from seq2see.inspection.alignment import Alignment
    from seq2see.inspection.trace import Trace
    from seq2see.model.transformer import Transformer
    from seq2see.training.loop import Step

BATCH_NUMBERS = 2**18  # inputs × d_model decoded together: a small model needs many rows for a step to pay
LARGEST_BATCH = 16384
LONGEST_TEXT = 1_000_000  # characters; no model reads as many, and a longer text is refused unread
LONGEST_DOCUMENT = 2**28  # characters; it is held in memory
WORTH_TORCH = 100_000  # from so many inputs on, it is worth importing torch, in case that it is faster
WORTH_EXPORT = 2**27  # parameters × inputs from which a model without an export gets one in the user's cache
ALWAYS_EXPORTED = (
    2**24
)  # parameters from which even one input is worth it: the next start is faster by seconds
CHECKED, CHECKED_TOKENS = (
    4,
    24,
)  # random inputs on which such an export is compared with torch; tokens of each answer

#: What a task asks of its inputs beyond their characters.
CHECKS: dict[str, Callable[[str], None]] = {"dates": dates.check, "human-dates": human_dates.check}


@dataclass(frozen=True)
class Token:
    """One token of an answer and how sure the model was of it."""

    token: str
    probability: float


@dataclass(frozen=True)
class Alternative:
    """A less likely answer."""

    output: str
    log_probability: float


@dataclass(frozen=True)
class Answer:
    """What the model says to one input, or why it was refused.

    >>> import seq2see
    >>> right, wrong = seq2see.load("dates").answers(["1845-01-05", "no date"])
    >>> right.output, right.tokens[0].token, right.probability > 0.99
    ('January 5, 1845', 'J', True)
    >>> wrong.output, wrong.error.split(":")[0]
    (None, "'no date' is not of the form YYYY-MM-DD")
    """

    input: str
    output: str | None
    log_probability: float | None = None
    tokens: list[Token] = field(default_factory=list)
    alternatives: list[Alternative] = field(default_factory=list)
    ids: list[int] = field(default_factory=list, repr=False)
    finished: bool = (
        True  # whether it came to its end, and was not cut at the most tokens that an answer may have
    )
    error: str | None = None
    #: The calibrated probability that the answer is right; None where nothing is known of it.
    confidence: float | None = None
    remark: str | None = None  # how the input was read, or why it is unlike those that were trained on
    withheld: str | None = None  # the answer that is not given, because it is less sure than was asked for
    repairs: list[str] = field(default_factory=list)  # what had to be done, so that it holds what it must
    parts: list[Answer] = field(default_factory=list, repr=False)  # of its sentences, if it was cut into some

    @property
    def probability(self) -> float | None:
        """Probability of the whole answer."""
        return None if self.log_probability is None else exp(self.log_probability)


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
        compiled: bool = False,
        confidence: Confidence | None = None,
    ) -> None:
        assert transformer is not None or path is not None
        self.config = config
        self.tokenizers = tokenizers
        self.card = card
        self.confidence = (
            confidence  # how sure its answers are, fitted by a training or by `seq2see calibrate`
        )
        self.engine = engines.known(engine)
        self.device, self._compiled = device, compiled
        self._path = path
        self._export: Path | None = None  # the CTranslate2 export of these weights
        self._tried_export = False  # whether one was to be written
        self._transformer = transformer
        self._as_read: object = None  # what the network was when it was read, once somebody else holds it
        self._ctranslate2: Engine | None = None
        self._torch: TorchEngine | None = None

    @classmethod
    def load(
        cls,
        name: str | os.PathLike[str],
        device: str = "cpu",
        engine: str = "auto",
        compiled: bool = False,
    ) -> Seq2Seq:
        """Load a model that ships, by name, or any model folder."""
        if compiled and not device.startswith("cuda"):
            raise UserError(f"`compiled` is for a GPU, but `device` is {device}: set `device` to cuda.")
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
            compiled=compiled,
            confidence=folder.read_confidence(path),
        )
        if model.engine == "ctranslate2" or (model.engine == "auto" and device == "cpu"):
            model._export, reason = engines.found_export(path, config.model, tokenizers)
            if model.engine == "ctranslate2" and (reason or device != "cpu"):
                raise UserError(
                    f"`engine` is ctranslate2, but {reason or f'it answers on the cpu, not on {device}'}."
                )
        if model._export is None:
            model._network()
        return model

    def __repr__(self) -> str:
        shape = self.config.model
        return (
            f"<Seq2Seq {self._path.name if self._path else self.config.task}: {shape.parameters:,} parameters, "
            f"{shape.encoder_layers}+{shape.decoder_layers} layers, {shape.heads} heads, d_model {shape.d_model}, "
            f"{self.tokenizers.source.kind} → {self.tokenizers.target.kind}, on {self.device}>"
        )

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the engines: they cannot be copied or sent to another process, and are made again when needed."""
        return {**self.__dict__, "_ctranslate2": None, "_torch": None}

    @property
    def transformer(self) -> Transformer:
        """The network itself. It may be edited: an edited network answers for itself, through torch."""
        network = self._network()
        if self._path is not None and self._as_read is None:
            self._as_read = _fingerprint(network)
        return network

    def _network(self) -> Transformer:
        """Return the network to compute with, which nobody outside gets to hold."""
        if self._transformer is None:
            from seq2see.model.weights import read_model

            assert self._path is not None
            self._transformer = read_model(self.config.model, folder.weights_path(self._path), self.device)
        return self._transformer

    def view(self) -> Transformer:
        """Return a network that shares the weights of this model, to be watched while the model answers others."""
        from seq2see.inspection.trace import view_of

        return view_of(self._network())

    def to(self, device: str) -> Seq2Seq:
        """Move the model to a device, ``cpu`` or ``cuda``, and return it.

        >>> import seq2see
        >>> seq2see.load("dates").to("cpu")("1845-01-05")
        'January 5, 1845'
        """
        from seq2see.model.weights import check_device

        check_device(device)
        edited = self._is_edited()
        self.device = device
        if self._transformer is not None:
            self._transformer.to(device)
            if self._as_read is not None and not edited:
                self._as_read = _fingerprint(self._transformer)
        return self

    @property
    def path(self) -> Path | None:
        """The folder that it was read from, if it was."""
        return self._path

    def engine_for(self, inputs: int, beam: int = 1, n_best: int = 1, held: bool = False) -> Engine:
        """Return the engine that answers so many inputs: by the weights, the device and the request, and by what this
        machine has found to be faster. Which one it is does not change an answer.

        ``held`` says that the answers are held to something.
        """
        obstacle = engines.cannot(beam, n_best, self.config.model.target_vocabulary, held)
        if self.device != "cpu":
            obstacle = f"it answers on the cpu, not on {self.device}"
        elif self.engine != "torch" and self._is_edited():
            obstacle = "the network was edited since it was exported"
        if self.engine == "ctranslate2" and obstacle:
            raise UserError(f"CTranslate2 cannot answer this ({obstacle}): use the engine auto or torch.")
        if self.engine == "auto" and not obstacle and self._export is None:
            self._keep_export(inputs)
        if self.engine == "torch" or obstacle or self._export is None:
            return self._through_torch(self._network())
        if self._may_choose(inputs, beam) and trial.fastest(self.config.model) == "torch":
            return self._through_torch(self._network())
        return self._through_ctranslate2(inputs)

    def _through_ctranslate2(self, inputs: int) -> Engine:
        if self._ctranslate2 is None:
            from seq2see.decoding.ctranslate2_engine import CTranslate2Engine

            assert self._export is not None
            vocabularies = self.tokenizers.source.vocabulary(), self.tokenizers.target.vocabulary()
            self._ctranslate2 = CTranslate2Engine(
                self._export, vocabularies, self._special(), self.config.model, inputs=inputs
            )
        return self._ctranslate2

    def _is_edited(self) -> bool:
        """Whether the network is no longer what it was when it was read from its folder."""
        return self._as_read is not None and self._as_read != _fingerprint(self._network())

    def _through_torch(self, transformer: Transformer) -> TorchEngine:
        """Return the torch engine; on a GPU the last one, which is ready, if it is for this network."""
        if self._torch is None or not self._torch.on_gpu or not self._torch.fits(transformer):
            from seq2see.decoding.torch_engine import TorchEngine

            self._torch = TorchEngine(transformer, self._special(), self._compiled)
        return self._torch

    def _keep_export(self, inputs: int) -> None:
        """Keep an export of a model folder that has none in the user's cache, if the request pays for it."""
        size = self.config.model.parameters
        if self._path is None or self._as_read is not None or self._tried_export:
            return
        if size < ALWAYS_EXPORTED and size * inputs < WORTH_EXPORT:
            return
        self._tried_export, log = True, logging.getLogger("seq2see")
        try:
            from seq2see.interchange.to_ctranslate2 import export

            log.info("%s is prepared for this machine, once.", self._path.name)
            kept = engines.kept_in(self._path, self.config.model)
            network, rules = self._network(), self.config.decoding.but(max_length=CHECKED_TOKENS)
            export(self._path, network, self.tokenizers, rules=rules, place=kept, count=CHECKED)
            engines.make_room(kept)
            self._export = kept / engines.FORMAT
        except (ImportError, UserError, OSError) as error:
            log.info("No export could be kept, so that torch answers: %s", error)

    def _may_choose(self, inputs: int, beam: int) -> bool:
        """Whether either engine may answer a request, so large that the faster one matters.

        An export of fewer bits gives answers of its own, and torch does not take its place.
        """
        worth = trial.WORTH if "torch" in sys.modules else WORTH_TORCH
        if self.engine != "auto" or beam > 1 or inputs < worth:
            return False
        return self._export is not None and engines.is_exact(self._export)

    def _special(self) -> Special:
        return Special.of(self.tokenizers)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a model folder that ``load`` reads, with the CTranslate2 export if it is still of these weights."""
        from seq2see.model.weights import weights_bytes, weights_of

        export = None if self._is_edited() else self._export
        data = weights_bytes(weights_of(self._network()))

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
        self._checked(text, anyway)

    def _checked(self, text: str, anyway: bool = False) -> list[int]:
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
        ids = self.tokenizers.source.encode(text)
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
        if terms is not None or (rules.sentences and n_best == 1 and held is None and not whole):
            if n_best > 1:
                raise UserError("`glossary` gives one answer to each text: leave `n_best` out.")
            answers = self._answers_to_texts(texts, rules, sure, terms)
        else:
            answers = self._answers(texts, rules, n_best, sure, held)
        return [or_withheld(self._read(answer, order), min_confidence) for answer in answers]

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
        for engine, rows in self._batches(encoded, rules, n_best, held is not None):
            sources = [encoded[i] for i in rows]
            options = (None if held is None else held.select(rows),)
            if probabilities or n_best > 1:
                for row, hypotheses in zip(
                    rows, engine.search(sources, rules, n_best, *options), strict=True
                ):
                    results[row] = self._answer(texts[row], hypotheses, len(encoded[row]))
            else:
                found, end = engine.ids(sources, rules, *options), self.tokenizers.target.end
                for row, ids, output in zip(
                    rows, found, self.tokenizers.target.decode_batch(found), strict=True
                ):
                    remark = self._remark(texts[row], len(encoded[row]), False)[0]
                    results[row] = Answer(texts[row], output, ids=ids, finished=ids[-1] == end, remark=remark)
        return [answer for answer in results if answer is not None]

    def _read(self, answer: Answer, order: str | None) -> Answer:
        """Return an answer as its task reads it: a human date that is none, or that can be two, is refused."""
        if self.config.task != "human-dates" or answer.output is None:
            return answer
        try:
            return replace(answer, output=human_dates.read(answer.input, answer.output, order))
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

        def fits(text: str) -> bool:
            return (
                len(text) < longest // 4 or len(self.tokenizers.source.encode(self.folded(text))) <= longest
            )

        def answer(texts: list[str], rules: DecodingConfig, phrases: list[list[Phrase]] | None) -> list[Any]:
            held = None
            if phrases is not None:
                from seq2see.decoding import allowed

                most = self.config.model.max_length - 1
                most = most if rules.max_length is None else min(most, rules.max_length)
                held = allowed.holding(phrases, self.tokenizers.target.end, most)
            return self._answers(texts, rules, 1, probabilities, held)

        def links(pairs: list[tuple[str, str]]) -> list[list[tuple[tuple[int, int], tuple[int, int]]]]:
            return [
                [(link.source_span, link.target_span) for link in alignment.links]
                for alignment in self.align(pairs)
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
                    self._checked(text)  # raises
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
        encoded: dict[int, list[int]] = {}
        reasons: dict[int, str] = {}
        for index, text in enumerate(texts):
            try:
                encoded[index] = self._checked(text)
            except InputError as error:
                reasons[index] = str(error)
        return encoded, reasons

    def _batches(
        self, encoded: dict[int, list[int]], rules: DecodingConfig, n_best: int, held: bool = False
    ) -> Iterator[tuple[Engine, list[int]]]:
        """Say which places are answered together, and by which engine."""
        if not encoded:
            return
        engine = self.engine_for(len(encoded), rules.beam, n_best, held)
        good = sorted(encoded, key=lambda i: len(encoded[i]))  # neighbours of one length need no padding
        size = min(LARGEST_BATCH, max(1, BATCH_NUMBERS // (self.config.model.d_model * rules.beam)))
        choose = engine is self._ctranslate2 and self._may_choose(len(encoded), rules.beam)
        if choose and trial.fastest(self.config.model) is None:
            both = {"ctranslate2": lambda: engine, "torch": lambda: self._through_torch(self._network())}
            lengths = {i: len(encoded[i]) for i in good}
            yield from trial.turns(both, good, lengths, self.config.model)
            good = good[trial.taken(len(both), len(good)) :]
            engine = self.engine_for(len(encoded), rules.beam, n_best, held)
        for first in range(0, len(good), size):
            yield engine, good[first : first + size]

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
            unlike = self.confidence.familiar.why_not(self.read(text), real, thorough)
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
        """Write an answer as the documents do: ``<sos>January 5, 1845<eos><pad><pad>``."""
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
        from seq2see.evaluate import evaluate

        pairs = list(tidied(pairs, self.folded))
        rules = self.rules(beam)
        engine = self.engine_for(len(pairs), rules.beam)
        return evaluate(
            self._network(), self.tokenizers, pairs, progress=progress, engine=engine, rules=rules
        )

    def score(self, pairs: Iterable[Pair]) -> list[list[float]]:
        """Return the log-probability of each token of each target, ``<eos>`` included, given its source.

        >>> import seq2see
        >>> [tokens] = seq2see.load("dates").score([("1845-01-05", "January 5, 1845")])
        >>> len(tokens), sum(tokens) > -0.01
        (16, True)
        """
        from seq2see.data.pairs import tidied
        from seq2see.evaluate import score

        return score(self._network(), self.tokenizers, tidied(pairs, self.folded))

    def align(self, pairs: Iterable[Pair | Answer]) -> list[Alignment]:
        """Say which word of its source each word of a target comes from, by cross-attention, with places in both.

        Places are those in the texts as the model reads them (``folded``).

        >>> import seq2see
        >>> model = seq2see.load("dates")
        >>> model.align([("1845-01-05", "January 5, 1845")])[0].pharaoh
        '2-0 4-1 4-2 0-3'
        """
        from seq2see.data.pairs import tidied
        from seq2see.evaluate import check_pair
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
        return align(self._network(), self.tokenizers, sources, targets)

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


def _fingerprint(network: Transformer) -> object:
    """Return what changes when a network is edited: its parts, its weights, and whoever watches it.

    An edit through ``parameter.data`` leaves no trace but the numbers, so those are summed up. That takes milliseconds,
    and is done only for a network that somebody outside holds.
    """
    parts = [
        (name, type(part), getattr(part, "recorder", None), len(part._forward_hooks), len(part._forward_pre_hooks))
        for name, part in network.named_modules()
    ]  # fmt: skip
    tensors = (*network.named_parameters(), *network.named_buffers())
    return parts, [(name, tensor.dtype, tensor._version, *_sums(tensor)) for name, tensor in tensors]


def _sums(tensor: Tensor) -> tuple[int, int]:
    """Return two sums over a tensor's bits that depend on the order of its rows and of its columns."""
    import torch

    whole = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    bits = tensor.detach().view(whole).view(-1, tensor.shape[-1])
    rows, columns = bits.sum(1), bits.sum(0)
    first, second = ((x * torch.arange(1, len(x) + 1, device=x.device)).sum() for x in (rows, columns))
    return int(first), int(second)


def or_withheld(answer: Answer, least: float | None) -> Answer:
    """Return an answer, or the refusal to give it if it is less sure than was asked for."""
    if (
        least is None
        or answer.error is not None
        or (answer.confidence is not None and answer.confidence >= least)
    ):
        return answer
    why = (
        f"{answer.remark} How sure its answer is cannot be said."
        if answer.confidence is None
        else f"The answer has a confidence of {answer.confidence:.3f}, and {least:g} was asked for."
    )
    return replace(answer, output=None, withheld=answer.output, error=f"{why} It was withheld.")


def put_together(text: str, document: Document, found: Sequence[Translated]) -> Answer:
    """Put the answers to the sentences of a text together."""
    error = next((one.error for one in found if one.error is not None), None)
    if error is not None:
        return Answer(text, None, error=error)
    output = document.written([one.text for one in found])
    parts = [cast(Answer, part.reply) for one in found for part in one.parts]
    if not parts:
        return Answer(text, output, repairs=["there are no words in it, so it was left as it is"])
    repairs = [remark for one in found for remark in one.remarks]
    if len(parts) == 1 and parts[0].output == output:
        return replace(parts[0], input=text, repairs=repairs)
    values, sure = [part.log_probability for part in parts], [part.confidence for part in parts]
    return Answer(
        text,
        output,
        log_probability=None if None in values else sum(value for value in values if value is not None),
        tokens=[token for part in parts for token in part.tokens],
        ids=[number for part in parts for number in part.ids],
        finished=all(part.finished for part in parts),
        repairs=repairs,
        parts=parts,
        remark=" ".join(part.remark for part in parts if part.remark) or None,
        confidence=None if None in sure else min(one for one in sure if one is not None),
    )


def _check_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"The line is not UTF-8 text (from character {error.start + 1} on).") from None


def _listed(texts: Iterable[str]) -> list[str]:
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise UserError(f"A list of texts was expected, but {texts!r:.60} was given: put one text into [ ].")
    return list(texts)


def load(
    name: str | os.PathLike[str], device: str = "cpu", engine: str = "auto", compiled: bool = False
) -> Seq2Seq:
    """Load a model: ``load("dates")`` for one that ships, ``load("path/")`` for any model folder.

    ``engine`` is ``torch``, ``ctranslate2`` (of an exported folder), or ``auto`` for the faster one. ``compiled`` is for
    millions of texts on a GPU: each shape that occurs is compiled first, for half a minute.

    >>> import seq2see
    >>> seq2see.load("dates").predict(["1845-01-05", "2025-09-03"])
    ['January 5, 1845', 'September 3, 2025']
    """
    return Seq2Seq.load(name, device, engine, compiled)


def fit(
    data: Any,
    validation: Any = None,
    test: Any = None,
    *,
    columns: tuple[str, str] | None = None,
    tokenizer: str | tuple[str, str] | None = None,
    vocabulary: int | None = None,
    preset: str | None = None,
    model: ModelConfig | dict[str, Any] | None = None,
    training: TrainingConfig | dict[str, Any] | None = None,
    device: str = "cpu",
    start: Seq2Seq | str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    progress: bool = True,
    on_step: Callable[[Step], None] | None = None,
) -> Seq2Seq:
    """Train a model on pairs of texts, and test it on pairs that it has not seen.

    >>> import seq2see
    >>> pairs = [(f"{n:03}", f"{n:03}"[::-1]) for n in range(1000)]
    >>> reverse = seq2see.fit(pairs, training={"steps": 2})
    >>> len(reverse.predict(["123", "456"]))
    2

    A table needs two columns, or ``columns`` says which two are meant:

    >>> table = {"id": range(9), "en": [f"day {n}" for n in range(9)], "fr": [f"jour {n}" for n in range(9)]}
    >>> seen = []
    >>> model = seq2see.fit(table, columns=("en", "fr"), training={"steps": 2}, on_step=seen.append)
    >>> [step.step for step in seen]
    [1, 2]

    Args:
        data: pairs (source, target) in a list, a tuple or a generator; a dict of columns, a list of dicts, a frame of
            pandas or polars, a ``datasets.Dataset``; a path to a file that ``seq2see train`` reads, or a pair of paths
            to parallel files.
        validation: pairs that are watched while training, in any of these forms; 5 % of the sources if not given.
        test: pairs for the scores in the card; 10 % of the sources if not given. No source is in two parts.
        columns: the columns of the source and of the target, for data with more than two.
        tokenizer: characters, symbols (with a separator: ``symbols:-``), features, words, bpe, unigram, bytes, or a file
            of the tokenizers library, FILE.json; or a pair of them, for the source and the target. The data decide if it
            is not given, as they do for the following.
        vocabulary: the largest number of tokens.
        preset: the shape and the recipe, by name; ``seq2see presets`` lists them.
        model: settings that override the preset's; or a ``ModelConfig``, which is taken whole except that the
            vocabularies are those of the tokenizers.
        training: settings that override the preset's, such as ``{"steps": 500}`` or ``{"seconds": 60}``; or a
            ``TrainingConfig``, which is taken whole.
        device: cpu or cuda.
        start: a model to train further, or its folder: its tokenizers, shape and weights, with a lower learning rate.
        out: a folder for checkpoints and for the finished model.
        resume: go on with the unfinished training in ``out``, to the same weights as without the interruption; a
            finished one is loaded.
        progress: show a bar on a terminal.
        on_step: called with each ``Step``; its ``line`` holds the scores of a line of the table.

    Ctrl-C ends the training early: the model is returned as it is then, with a warning, and its card says after how many
    steps. An exception in ``on_step`` is raised, with the model so far as its attribute ``model``. Both leave a
    checkpoint in ``out``.
    """
    from seq2see.model.weights import weights_of
    from seq2see.training import run as runs

    before = None
    if isinstance(start, Seq2Seq):
        before = runs.Start(start.config, start.tokenizers, weights_of(start.transformer))
    elif start is not None:
        before = runs.Start.read(Path(start))
    folder_of_run = None if out is None else Path(out)
    request = runs.Request(
        folder_of_run,
        resume,
        tokenizer,
        vocabulary,
        preset,
        model or {},
        training or {},
        None,
        device,
        before,
    )
    if request.finished("pairs"):
        return load(Path(out or ""), device)
    said = logging.getLogger("seq2see").warning
    ready = runs.prepare(runs.Data.read(data, validation, test, request.seed, columns), request)
    for remark in ready.remarks:
        said(remark)
    run = runs.Run(ready, request, said)

    def so_far(scores: Evaluation | None = None) -> Seq2Seq:
        network = run.trainer.finish() if scores is None else run.trainer.model
        card, sure = run.card(scores, "seq2see.fit"), run.confidence
        return Seq2Seq(
            run.trainer.config, run.trainer.tokenizers, network, card, device=device, confidence=sure
        )

    failed = False
    with runs.progress_bar(run, progress) as show:

        def after(step: Step) -> None:
            nonlocal failed
            show(step)
            failed = True
            if on_step is not None:
                on_step(step)
            failed = False

        try:
            ended = run.train(after, signal.SIGINT)
        except Exception as error:
            if failed:
                error.model = so_far()  # type: ignore[attr-defined]
                error.add_note("The model as trained so far is the attribute `model` of this exception.")
            raise
    try:
        scores = run.test() if ended else None
    except KeyboardInterrupt:
        scores = None
    if scores is None:
        message = f"fit was interrupted after step {run.trainer.step:,}: the model is not tested."
        warnings.warn(message, stacklevel=2)
    fitted = so_far(scores)
    if scores is not None:
        run.write(fitted.card)
    return fitted
