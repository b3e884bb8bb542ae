"""The main object of the package: a trained model that answers, scores, traces and saves itself.

Answering through CTranslate2 needs no torch, and importing torch takes longer than answering. So the methods
that need torch, or whole documents, import their modules when they are called.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from seq2see import devices
from seq2see.answering.answer import Answer
from seq2see.answering.answerer import Answerer, Input
from seq2see.answering.network import Network
from seq2see.answering.options import Options, as_given, inputs_of
from seq2see.config import Config
from seq2see.errors import InputError, RefusedInputs, UserError
from seq2see.evaluation.confidence import Confidence, read_confidence
from seq2see.storage import folder
from seq2see.storage.folder import Tokenizers

if TYPE_CHECKING:
    from seq2see.evaluation.evaluate import Evaluation, Pair
    from seq2see.inspection.alignment import Alignment
    from seq2see.inspection.notebook import History
    from seq2see.inspection.trace import Trace
    from seq2see.model.transformer import Transformer
    from seq2see.storage.trained import Trained

#: A warning of an evaluation.
SEEN = "%s of %s pairs have a source that the model was trained on: it answers new texts less well."


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
        self.tokenizers = tokenizers
        self.card = card
        self._history: History | None = None
        #: What its training has seen, of a model that ``fit`` made; ``trained_of`` reads that of a folder.
        self.trained: Trained | None = None
        self.network = Network(config, tokenizers, transformer, path, device, engine)
        self.answerer = Answerer(config, tokenizers, self.network, confidence)

    @classmethod
    def load(cls, name: str | os.PathLike[str], device: str = "cpu", engine: str = "auto") -> Seq2Seq:
        """Load a model that ships, by name, or any model folder."""
        model = without_weights(name, device, engine, cls)
        model.network.find_export()
        return model

    def _repr_html_(self) -> str:
        from seq2see.inspection.notebook import model

        return model(self)

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
        return self.network.editable()

    @property
    def history(self) -> History:
        """The course of its training, in ``fit`` or in its folder: lines with a step, losses and scores.

        >>> import seq2see
        >>> seq2see.load("dates").history[-1]["exact_match"]
        1.0
        """
        from seq2see.inspection.notebook import History

        if self._history is None:
            self._history = History() if self.path is None else History.read(self.path)
        return self._history

    @history.setter
    def history(self, lines: list[dict[str, Any]]) -> None:
        from seq2see.inspection.notebook import History

        self._history = History(lines)

    def to(self, device: str) -> Seq2Seq:
        """Move the model to a device, ``cpu``, ``cuda`` or ``mps``, and return it.

        >>> import seq2see
        >>> seq2see.load("dates").to("cpu")("1845-01-05")
        'January 5, 1845'
        """
        self.network.to(device)
        return self

    @property
    def config(self) -> Config:
        """The content of its config.toml."""
        return self.answerer.config

    @config.setter
    def config(self, config: Config) -> None:
        self.answerer.config = config

    @property
    def confidence(self) -> Confidence | None:
        """The confidence of its answers, fitted by a training or by `seq2see calibrate`."""
        return self.answerer.confidence

    @confidence.setter
    def confidence(self, confidence: Confidence | None) -> None:
        self.answerer.confidence = confidence

    @property
    def device(self) -> str:
        """The device of the model."""
        return self.network.device

    @property
    def path(self) -> Path | None:
        """The folder that the model was read from, if any."""
        return self.network.path

    def save(self, path: str | os.PathLike[str], overwrite: bool = False, eight_bits: bool = False) -> None:
        """Write a model folder that ``load`` reads, perhaps with weights of ``eight_bits``, a quarter of the size.

        A folder that holds a model is refused, unless ``overwrite`` is set.
        """
        if not overwrite:
            folder.refuse_finished(Path(path))
        from seq2see.storage.weights import in_eight_bits, weights_bytes, weights_of

        weights, trained = weights_of(self.network.inner()), trained_of(self)
        data = weights_bytes(in_eight_bits(weights) if eight_bits else weights)

        def copied(new: Path) -> None:
            if trained is not None:
                folder.write_atomically(new / folder.TRAINED, trained.to_json().encode())

        folder.write(Path(path), self.config, self.tokenizers, data, self.card, copied, self.confidence)

    def __call__(self, text: Input) -> str:
        """Answer one text."""
        [answer] = self.answers([text], probabilities=False)
        if answer.error is not None:
            raise InputError(answer.error)
        return str(answer.output)

    def predict(self, texts: Iterable[Input], options: Options | None = None, **given: Any) -> list[str | None]:
        """Answer many texts, in order.

        For a model of words with features, an input may be a tuple, a list or a dict: ``("walk", "V;PST")`` or
        ``{"lemma": "walk", "tags": "V;PST"}``. The word is the first value of a dict, whatever the names are.

        Options are the fields of ``Options`` as keywords, or one such object. A model of sentences translates texts
        sentence by sentence, unless ``whole`` is set. A text that is refused, or whose confidence is below
        ``min_confidence``, has None for an answer, and one warning gives the reasons; with ``strict`` they are raised as
        ``RefusedInputs``. ``answers`` gives the reason for each text, and several answers to it. A column of pandas,
        polars or Arrow is answered by one of the same kind, with its name and index.

        >>> import seq2see
        >>> seq2see.load("dates").predict(["1845-01-05", "2025-09-03"], beam=4)
        ['January 5, 1845', 'September 3, 2025']
        >>> seq2see.load("dates").predict(["1845-01-05"], only=["June 5, 1845", "January 5, 1854"])
        ['January 5, 1854']
        """
        asked = Options.of(options, given)
        if asked.n_best > 1:
            raise UserError(
                f"`n_best` is {asked.n_best}, but `predict` gives one answer to each text: call "
                f"`model.answers(texts, n_best={asked.n_best})`, whose answers have the others as `alternatives`."
            )
        answers = self.answers(texts, asked, probabilities=False)
        outputs = [answer.output for answer in answers]
        reasons = {place: answer.error for place, answer in enumerate(answers) if answer.error is not None}
        if reasons and asked.strict:
            raise RefusedInputs(reasons, outputs)
        if reasons:
            warnings.warn(str(RefusedInputs(reasons, outputs)), stacklevel=2)
        return cast("list[str | None]", as_given(texts, outputs))

    def answers(
        self, texts: Iterable[Input], options: Options | None = None, *, probabilities: bool = True, **given: Any
    ) -> list[Answer]:
        """Answer many texts with probabilities and alternatives; a bad text is refused, the others are answered.

        Without ``probabilities`` the answers hold texts and ids only, which is faster. An answer with a confidence
        below ``min_confidence`` is withheld: its text is in ``withheld``, its confidence in ``error``.

        >>> import seq2see
        >>> [answer] = seq2see.load("dates").answers(["1845-01-05"])
        >>> answer.output, answer.finished, answer.probability > 0.999
        ('January 5, 1845', True, True)
        """
        asked = Options.of(options, given)
        if asked.format is not None:
            raise UserError("`format` is for one document: use `translate`.")
        return [*self.answerer.answer(inputs_of(texts), replace(asked, probabilities=probabilities))]

    def translate(self, text: str, options: Options | None = None, **given: Any) -> str:
        """Translate a whole document, sentence by sentence; everything but its words is kept.

        The options of a document are ``format`` (text, html, markdown, srt, po or json), ``beam``,
        ``length_penalty``, ``max_length`` and ``glossary``. Repairs are logged as warnings.

        >>> import seq2see
        >>> model = seq2see.load("en-fr")
        >>> model.translate("<p>The <b>red</b> car is new.</p>", format="html")
        '<p>La voiture <b>rouge</b> est neuve.</p>'
        """
        from seq2see.answering import translation

        asked = Options.of(options, given)
        asked = replace(asked, format=asked.format or "text", probabilities=False)
        document, log = translation.read(text, str(asked.format)), logging.getLogger("seq2see")
        found = self.answerer.searched(document.sentences, asked)
        for note in document.notes:
            log.warning(note)
        for number, one in enumerate(found, 1):
            for said in [*one.remarks, *([one.error] if one.error else [])]:
                log.warning("sentence %s: %s", f"{number:,}", said)
        return document.written([one.text for one in found])

    def evaluate(
        self,
        pairs: Any,
        beam: int | None = None,
        progress: Callable[[int], None] = lambda done: None,
        columns: tuple[str, str] | None = None,
    ) -> Evaluation:
        """Score the answers of ``predict`` to pairs: exact match, error rates, BLEU, chrF, loss, every miss.

        The pairs may be in anything that ``fit`` takes: a list, a table, a file. A source may be in any form that
        ``predict`` takes; one that the model cannot take counts as wrong.

        >>> import seq2see
        >>> scores = seq2see.load("dates").evaluate([("1845-01-05", "January 5, 1845")])
        >>> scores.exact_match, scores.character_error_rate, scores.token_error_rate
        (1.0, 0.0, 0.0)
        >>> round(scores.chrf().score)
        100
        """
        from seq2see.data.pairs import corpus_of
        from seq2see.evaluation.evaluate import evaluate

        pairs = corpus_of(pairs, columns, or_two=True, prepare=self.answerer.folded, join=self.answerer.text_of).pairs
        if seen := trained_on(self, [source for source, _ in pairs]):
            logging.getLogger("seq2see").warning(SEEN, f"{seen:,}", f"{len(pairs):,}")
        rules = Options(beam=beam).rules(self.config.decoding)
        engine = self.network.engine_for(len(pairs), rules.beam)

        def answer(sources: list[str]) -> list[str]:
            return [one.output or "" for one in self.answers(sources, beam=beam, probabilities=False)]

        return evaluate(
            self.network.inner(),
            self.tokenizers,
            pairs,
            progress=progress,
            engine=engine,
            rules=rules,
            answer=None if self.config.task == "dates" else answer,
        )

    def log_probabilities(self, pairs: Iterable[Pair]) -> list[list[float]]:
        """Return the log-probability of each token of each target, ``<eos>`` included, given its source.

        >>> import seq2see
        >>> [tokens] = seq2see.load("dates").log_probabilities([("1845-01-05", "January 5, 1845")])
        >>> len(tokens), sum(tokens) > -0.01
        (16, True)
        """
        from seq2see.data.pairs import tidied
        from seq2see.evaluation.evaluate import score

        return score(self.network.inner(), self.tokenizers, tidied(pairs, self.answerer.folded))

    def align(self, pairs: Iterable[Pair | Answer]) -> list[Alignment]:
        """Return which word of its source each word of a target comes from, by cross-attention, with their positions.

        Positions are those in the texts as the model reads them.

        >>> import seq2see
        >>> model = seq2see.load("dates")
        >>> model.align([("1845-01-05", "January 5, 1845")])[0].pharaoh
        '2-0 4-1 4-2 0-3'
        """
        from seq2see.answering.links import align

        return align(self.answerer, pairs)

    def trace(
        self, text: Input, target: str | None = None, edit: dict[str, Any] | None = None, member: int = 0
    ) -> Trace:
        """Answer one text and keep every number on the way; ``edit`` replaces values by name.

        Of an ensemble, one ``member`` is traced and answers alone. The model itself does not change: the
        trace uses a view of it that shares its weights.

        >>> import seq2see
        >>> trace = seq2see.load("dates").trace("1845-01-05")
        >>> trace["decoder.layers.1.cross_attention.weights"].shape
        torch.Size([4, 16, 12])
        """
        from seq2see.inspection.trace import record
        from seq2see.kernels.ensemble import member_of
        from seq2see.page.single_file import PageTrace

        text = self.answerer.text_of(text)
        self.answerer.check(text)
        target = None if target is None else self.answerer.folded(target)
        return record(
            member_of(self.transformer, member),
            self.tokenizers,
            self.answerer.read(text),
            target,
            edit,
            PageTrace,
            self.config.decoding,
        )


def trained_of(model: Seq2Seq) -> Trained | None:
    """Return what the training of a model has seen, if its folder says it."""
    from seq2see.storage.trained import Trained

    return model.trained or (None if model.path is None else Trained.read(model.path))


def trained_on(model: Seq2Seq, sources: Sequence[str]) -> int:
    """Return how many of these sources the training of a model has seen, about; 0 if its folder does not say it."""
    if (trained := trained_of(model)) is None:
        return 0
    known, tokenizer = [], model.tokenizers.source
    for source in map(model.answerer.read, sources):
        with suppress(InputError):
            tokenizer.check(source)
            known.append(source)
    return trained.seen(tokenizer.encode_batch(known))


def without_weights(name: str | os.PathLike[str], device: str, engine: str, kind: type[Seq2Seq] = Seq2Seq) -> Seq2Seq:
    """Load all of a model but its weights, which are read when they are needed."""
    path, config, tokenizers = folder.opened(name)
    if device == "auto":
        device = devices.choose(device, devices.lasting(config.model), devices.found).device
    card = folder.read_card(path)
    return kind(
        config, tokenizers, card=card, path=path, device=device, engine=engine, confidence=read_confidence(path)
    )


def load(name: str | os.PathLike[str], device: str = "cpu", engine: str = "auto") -> Seq2Seq:
    """Load a model: ``load("dates")`` for one that ships, ``load("path/")`` for any model folder.

    ``device`` is ``cpu``, ``cuda``, ``mps``, or ``auto`` for a GPU if there is one and the model is large.
    ``engine`` is ``torch``, ``ctranslate2`` (of an exported folder), or ``auto`` for the faster one: they give the same
    answers, and so does ``written``, slowly, by what stands in ``model/``. ``int8`` is CTranslate2 with eight bits,
    faster for large models; its answers may differ.

    >>> import seq2see
    >>> seq2see.load("dates").predict(["1845-01-05", "2025-09-03"])
    ['January 5, 1845', 'September 3, 2025']
    """
    return Seq2Seq.load(name, device, engine)
