"""The one object that people hold: a trained model that answers, scores, traces, and saves itself.

Answering through CTranslate2 needs no torch, and importing torch takes longer than answering. So everything that needs
torch is imported when it is first used, through ``workshop``.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from seq2see import folder
from seq2see.config import Config
from seq2see.data import dates
from seq2see.decoding import engines
from seq2see.decoding.engines import Engine
from seq2see.decoding.hypothesis import Hypothesis, Special
from seq2see.errors import FolderError, InputError, RefusedInputs, UserError
from seq2see.folder import Tokenizers
from seq2see.text.tokenizer import fold

if TYPE_CHECKING:
    from seq2see.config import ModelConfig, TrainingConfig
    from seq2see.decoding.torch_engine import TorchEngine
    from seq2see.evaluate import Evaluation, Pair
    from seq2see.inspection.alignment import Alignment
    from seq2see.inspection.trace import Trace
    from seq2see.model.transformer import Transformer
    from seq2see.training.loop import Step


class _Workshop:
    """Everything that needs torch, by the module that it is in; a module is imported when it is first used."""

    HOMES: ClassVar = {
        "TorchEngine": "decoding.torch_engine",
        "align": "inspection.alignment",
        "check_pair": "evaluate",
        "evaluate": "evaluate",
        "read_model": "model.weights",
        "run": "training.run",
        "score": "evaluate",
        "tidied": "data.pairs",
        "trace_text": "inspection.trace",
        "weights_bytes": "model.weights",
        "weights_of": "model.weights",
    }

    def __getattr__(self, name: str) -> Any:
        if name not in self.HOMES:
            raise AttributeError(name)
        home = import_module(f"seq2see.{self.HOMES[name]}")
        return home if self.HOMES[name].endswith(f".{name}") else getattr(home, name)

    def read(self, path: Path, config: ModelConfig, device: str) -> Transformer:
        """Read the network of a model folder onto a device."""
        network: Transformer = self.read_model(config, folder.weights_path(path), device)
        return network

    def write(
        self, path: Path, config: Config, tokenizers: Tokenizers, transformer: Transformer, card: str
    ) -> None:
        """Write a model folder."""
        folder.write(path, config, tokenizers, self.weights_bytes(self.weights_of(transformer)), card)


workshop = _Workshop()

BATCH_NUMBERS = 2**18  # inputs × d_model decoded together: small models need many rows to be worth a step
LARGEST_BATCH = 16384
FEW = 16  # inputs from which torch's bfloat16 products are faster, where the CPU has them
WORTH_TORCH = 256  # inputs from which it is worth importing torch for them
THOUSANDS = 2048  # inputs from which torch answers faster with a tiny model, once it is imported

#: What a task asks of its inputs beyond their characters.
CHECKS: dict[str, Callable[[str], None]] = {"dates": dates.check}


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
    """What the model says to one input, or why it was refused."""

    input: str
    output: str | None
    log_probability: float | None = None
    tokens: list[Token] = field(default_factory=list)
    alternatives: list[Alternative] = field(default_factory=list)
    ids: list[int] = field(default_factory=list, repr=False)
    error: str | None = None

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
    ) -> None:
        assert transformer is not None or path is not None
        self.config = config
        self.tokenizers = tokenizers
        self.card = card
        self.engine = engines.known(engine)
        self.device, self._compiled = device, compiled
        self._path = path
        self._transformer = transformer
        self._engines: dict[str, Engine] = {}
        self._torch: TorchEngine | None = None
        self._reader: Transformer | None = None  # for losses and attention, where another engine answers

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
            raise UserError(f"--compile is for a GPU, but the device is {device}: add --device cuda.")
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
        folder.weights_path(path)
        card = path / folder.CARD
        text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
        model = cls(config, tokenizers, card=text, path=path, device=device, engine=engine, compiled=compiled)
        if model.engine == "ctranslate2" or (model.engine == "auto" and device == "cpu"):
            reason = engines.why_not_exported(path, config.model)
            if model.engine == "ctranslate2" and (reason or device != "cpu"):
                raise UserError(
                    f"--engine ctranslate2: {reason or f'it answers on the cpu, not on {device}'}."
                )
            if not reason:
                return model
        model._transformer = workshop.read(path, config.model, device)
        return model

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what cannot be copied or sent to another process, and is made again when it is needed."""
        return {**self.__dict__, "_engines": {}, "_torch": None}

    @property
    def transformer(self) -> Transformer:
        """The network itself. Who holds it may edit it, so from then on it is what answers."""
        if self._transformer is None:
            assert self._path is not None
            self._transformer = workshop.read(self._path, self.config.model, self.device)
        return self._transformer

    @property
    def path(self) -> Path | None:
        """The folder that it was read from, if it was."""
        return self._path

    def engine_for(self, inputs: int, beam: int = 1, n_best: int = 1) -> Engine:
        """Return the engine that answers so many inputs."""
        obstacle = engines.cannot(beam, n_best, self.config.model.target_vocabulary)
        if self.engine == "ctranslate2" and obstacle:
            raise UserError(f"CTranslate2 cannot answer this ({obstacle}): use --engine auto or torch.")
        if self.engine == "torch" or obstacle or (self.engine == "auto" and self._transformer is not None):
            return self._through_torch(self.transformer)
        if self.engine == "auto" and self._torch_is_faster(inputs, beam):
            return self._through_torch(self._network())
        if "ctranslate2" not in self._engines:
            from seq2see.decoding.ctranslate2_engine import CTranslate2Engine

            assert self._path is not None
            vocabularies = self.tokenizers.source.vocabulary(), self.tokenizers.target.vocabulary()
            self._engines["ctranslate2"] = CTranslate2Engine(
                self._path / engines.FORMAT, vocabularies, self._special(), self.config.model, inputs=inputs
            )
        return self._engines["ctranslate2"]

    def _through_torch(self, transformer: Transformer) -> TorchEngine:
        """Return the torch engine: on a GPU the last one, which has made itself ready, if it is for this network."""
        if self._torch is None or not self._torch.on_gpu or not self._torch.fits(transformer):
            self._torch = workshop.TorchEngine(transformer, self._special(), self._compiled)
        return self._torch

    def _torch_is_faster(self, inputs: int, beam: int) -> bool:
        """Whether torch is faster than CTranslate2, as benchmarks/README.md measures it."""
        width, imported = self.config.model.d_model, "torch" in sys.modules
        if width <= engines.TINY:
            return imported and beam == 1 and inputs >= THOUSANDS
        return (
            width >= engines.LARGE and inputs >= (FEW if imported else WORTH_TORCH) and engines.has_bfloat16()
        )

    def _special(self) -> Special:
        return Special(self.tokenizers.target.start, self.tokenizers.target.end, self.tokenizers.source.pad)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a model folder that ``load`` reads."""
        workshop.write(Path(path), self.config, self.tokenizers, self.transformer, self.card)

    def folded(self, text: str) -> str:
        """Return a text as the model reads it: as it was trained, in NFC with white space folded; dates as they are."""
        return text if self.config.task in CHECKS else fold(text)

    def check(self, text: str) -> None:
        """Raise an InputError if the model cannot take this text, saying why."""
        self._checked(text)

    def _checked(self, text: str) -> list[int]:
        if not isinstance(text, str):
            raise UserError(f"A text was expected, but {text!r} is of type {type(text).__name__}.")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InputError(f"The line is not UTF-8 text (from character {error.start + 1} on).") from None
        text = self.folded(text)
        if self.config.task in CHECKS:
            CHECKS[self.config.task](text)
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
        return str(self.answers([text], probabilities=False)[0].output)

    def predict(self, texts: Iterable[str], beam: int = 1) -> list[str]:
        """Answer many texts, in order; if some are refused, RefusedInputs holds the others' answers."""
        texts = _listed(texts)
        encoded, reasons = self._encoded(texts, beam)
        outputs: list[str | None] = [None] * len(texts)
        for engine, rows in self._batches(encoded, beam):
            found = engine.ids([encoded[i] for i in rows], beam)
            for row, output in zip(rows, self.tokenizers.target.decode_batch(found), strict=True):
                outputs[row] = output
        if reasons:
            raise RefusedInputs(reasons, outputs)
        return [str(output) for output in outputs]

    def answers(
        self, texts: Iterable[str], beam: int = 1, n_best: int = 1, probabilities: bool = True
    ) -> list[Answer]:
        """Answer many texts with probabilities and alternatives; a bad text is refused, the others are answered.

        A beam is at least as wide as ``n_best``, the number of answers to each text.
        Without ``probabilities`` the answers hold texts and ids only, which is faster.
        """
        texts = _listed(texts)
        encoded, reasons = self._encoded(texts, beam, n_best)
        results: list[Answer | None] = [None] * len(texts)
        for index, reason in reasons.items():
            results[index] = Answer(texts[index], None, error=reason)
        beam = max(beam, n_best)
        for engine, rows in self._batches(encoded, beam, n_best):
            sources = [encoded[i] for i in rows]
            if probabilities or n_best > 1:
                for row, hypotheses in zip(rows, engine.search(sources, beam, n_best), strict=True):
                    results[row] = self._answer(texts[row], hypotheses)
            else:
                found = engine.ids(sources, beam)
                for row, ids, output in zip(
                    rows, found, self.tokenizers.target.decode_batch(found), strict=True
                ):
                    results[row] = Answer(texts[row], output, ids=ids)
        return [answer for answer in results if answer is not None]

    def _encoded(
        self, texts: Sequence[str], beam: int, n_best: int = 1
    ) -> tuple[dict[int, list[int]], dict[int, str]]:
        """Return the ids of each text that the model can take, by its place, and why the others are refused."""
        if not all(isinstance(number, int) and number >= 1 for number in (beam, n_best)):
            raise UserError(
                f"beam is {beam!r} and n_best is {n_best!r}: both must be whole numbers, at least 1."
            )
        encoded: dict[int, list[int]] = {}
        reasons: dict[int, str] = {}
        for index, text in enumerate(texts):
            try:
                encoded[index] = self._checked(text)
            except InputError as error:
                reasons[index] = str(error)
        return encoded, reasons

    def _batches(
        self, encoded: dict[int, list[int]], beam: int, n_best: int = 1
    ) -> Iterator[tuple[Engine, list[int]]]:
        """Say which places are answered together, and by which engine."""
        if not encoded:
            return
        engine = self.engine_for(len(encoded), beam, n_best)
        good = sorted(encoded, key=lambda i: len(encoded[i]))  # neighbours of one length need no padding
        size = min(LARGEST_BATCH, max(1, BATCH_NUMBERS // (self.config.model.d_model * beam)))
        for first in range(0, len(good), size):
            yield engine, good[first : first + size]

    def _answer(self, text: str, hypotheses: list[Hypothesis]) -> Answer:
        target, best = self.tokenizers.target, hypotheses[0]
        tokens = zip(target.tokens(best.ids), best.log_probabilities, strict=True)
        return Answer(
            input=text,
            output=target.decode(best.ids),
            log_probability=best.log_probability,
            tokens=[Token(token, exp(value)) for token, value in tokens],
            alternatives=[Alternative(target.decode(h.ids), h.log_probability) for h in hypotheses[1:]],
            ids=best.ids,
        )

    def raw(self, answer: Answer) -> str:
        """Write an answer as the documents do: ``<sos>January 5, 1845<eos><pad><pad>``."""
        length = dates.RAW_LENGTH if self.config.task == "dates" else 0
        return self.tokenizers.target.raw([self.tokenizers.target.start, *answer.ids], length)

    def evaluate(
        self, pairs: Iterable[Pair], progress: Callable[[int], None] = lambda done: None
    ) -> Evaluation:
        """Score the model on pairs: exact match, character error rate, loss, every miss."""
        pairs = list(workshop.tidied(pairs, self.folded))
        engine = self.engine_for(len(pairs))
        found: Evaluation = workshop.evaluate(
            self._network(), self.tokenizers, pairs, progress=progress, engine=engine
        )
        return found

    def _network(self) -> Transformer:
        """Return the network to read with; unlike ``transformer`` it does not become what answers."""
        if self._transformer is None and self._reader is None:
            assert self._path is not None
            self._reader = workshop.read(self._path, self.config.model, self.device)
        network = self._transformer or self._reader
        assert network is not None
        return network

    def score(self, pairs: Iterable[Pair]) -> list[list[float]]:
        """Return the log-probability of each token of each target, ``<eos>`` included, given its source."""
        found: list[list[float]] = workshop.score(
            self._network(), self.tokenizers, workshop.tidied(pairs, self.folded)
        )
        return found

    def align(self, pairs: Iterable[Pair | Answer]) -> list[Alignment]:
        """Say which word of its source each word of a target comes from, by cross-attention, with places in both.

        Places are those in the texts as the model reads them (``folded``).

        >>> import seq2see
        >>> model = seq2see.load("dates")
        >>> model.align([("1845-01-05", "January 5, 1845")])[0].pharaoh
        '2-0 4-1 4-2 0-3'
        """
        sources, targets = [], []
        for number, pair in enumerate(pairs, 1):
            if isinstance(pair, Answer):
                if pair.error is not None:
                    raise UserError(f"Answer {number:,} cannot be aligned, since there is none: {pair.error}")
                sources.append(self.folded(pair.input))
                targets.append([self.tokenizers.target.start, *pair.ids])
            else:
                ((source, target),) = workshop.tidied([pair], self.folded, number)
                workshop.check_pair(self.config.model, self.tokenizers, (source, target), number)
                sources.append(source)
                targets.append(self.tokenizers.target.encode(target))
        found: list[Alignment] = workshop.align(self._network(), self.tokenizers, sources, targets)
        return found

    def trace(self, text: str, target: str | None = None, edit: dict[str, Any] | None = None) -> Trace:
        """Answer one text and keep every number on the way; ``edit`` replaces values by name."""
        self.check(text)
        target = None if target is None else self.folded(target)
        found: Trace = workshop.trace_text(self.transformer, self.tokenizers, self.folded(text), target, edit)
        return found


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
    """
    return Seq2Seq.load(name, device, engine, compiled)


def fit(
    data: Any,
    validation: Any = None,
    test: Any = None,
    *,
    columns: tuple[str, str] | None = None,
    tokenizer: str | None = None,
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
        tokenizer: characters, words, bpe or unigram. The data decide if it is not given, as they do for the following.
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
    runs = workshop.run
    if isinstance(start, str | os.PathLike):
        start = runs.Start.read(Path(start))
    elif start is not None:
        start = runs.Start(start.config, start.tokenizers, workshop.weights_of(start.transformer))
    folder_of_run = None if out is None else Path(out)
    request = runs.Request(
        folder_of_run, resume, tokenizer, vocabulary, preset, model or {}, training or {}, None, device, start
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
        card = run.card(scores, "seq2see.fit")
        return Seq2Seq(run.trainer.config, run.trainer.tokenizers, network, card, device=device)

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
