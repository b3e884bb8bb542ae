"""One training of what is prepared: train, test, write."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Protocol

from seq2see.answering.repairs import proven
from seq2see.config import Config
from seq2see.data.cuts import are_sentences
from seq2see.data.pairs import Pair, without
from seq2see.data.shards import Shards
from seq2see.decoding.both_ways import engine_of
from seq2see.decoding.hypothesis import Special
from seq2see.evaluation import calibrate
from seq2see.evaluation.confidence import FEWEST, GOOD_CHRF, Confidence
from seq2see.evaluation.evaluate import Evaluation, evaluate
from seq2see.evaluation.familiar import Familiar
from seq2see.inspection.notebook import History
from seq2see.kernels.ensemble import Ensemble
from seq2see.seq2seq import Seq2Seq
from seq2see.storage import folder
from seq2see.storage.trained import Trained
from seq2see.storage.weights import weights_of
from seq2see.training import distributed
from seq2see.training.loop import Step, Trainer
from seq2see.training.options import LoadedModel, TrainOptions
from seq2see.training.prepare import TrainingSetup
from seq2see.training.schedule import is_watched


@dataclass(frozen=True)
class Result:
    """What the test of a finished training found."""

    scores: Evaluation
    confidence: Confidence | None = None
    complete: int | None = None  # validation pairs that were answered completely, if they were tried
    own: float | None = None  # the share of right answers to its own pairs, if it is asked for
    held: float | None = None  # and to validation pairs
    members: list[float] = field(default_factory=list)  # the same of each member of an ensemble, on validation pairs


class TrainingJob:
    """One training: ``train`` it, then ``test`` it and ``write`` its model.

    Messages about pairs that are left out and about checkpoints go to ``say``.
    """

    def __init__(self, setup: TrainingSetup, options: TrainOptions, say: Callable[[str], None]) -> None:
        self.setup, self.options = setup, options
        self.result: Result | None = None
        self.trainer = Trainer(
            setup.config,
            setup.tokenizers,
            setup.train,
            setup.validation,
            options.out,
            options.resume,
            setup.device,
            say,
            None if options.start is None else options.start.weights,
            setup.ids,
            None if options.teacher is None else options.teacher.network(setup.device),
            options.vary,
        )
        source, own = setup.ids[0], setup.own or len(setup.train)
        teacher = "" if options.teacher is None else options.teacher.digest()
        self.trained = Trained.of(source.values, source.offsets[: own + 1], teacher)
        if options.out is not None and distributed.first():
            folder.write_atomically(options.out / folder.TRAINED, self.trained.to_json().encode())

    @property
    def config(self) -> Config:
        """The config of the model that is trained."""
        return self.trainer.config

    def train(self, show: Callable[[Step], None], *signals: signal.Signals) -> bool:
        """Take all steps and ``show`` each; return False if a signal or Ctrl-C stopped it earlier.

        A run that is stopped, or ends by an exception in ``show``, leaves a checkpoint in its folder.
        """
        with _noted(signals) as asked_to_stop:
            for step in self.trainer.steps():
                stop = False
                try:
                    show(step)
                except KeyboardInterrupt:
                    stop = True
                except Exception:
                    if distributed.size() == 1:
                        self.trainer.save(at_once=True)
                    raise
                if distributed.any_of(stop or asked_to_stop()) and not self.trainer.ended:
                    self.trainer.save(at_once=True)
                    return False
        return True

    def score(self) -> Evaluation:
        """Put the final weights into the model, choose its repairs, and score its answers to the test pairs."""
        network, trainer, setup = self.trainer.finish(), self.trainer, self.setup
        model = Seq2Seq(trainer.config, trainer.tokenizers, network, device=setup.device)
        rules = trainer.config.decoding
        if rules.sentences and "repairs" not in self.options.decoding:
            rules = rules.but(repairs=proven(model.answerer, setup.validation, rules))
            model.config = trainer.config = replace(trainer.config, decoding=rules)
        return model.evaluate(setup.test)

    def test(self) -> Result:
        """Score the finished model, and fit its confidence."""
        trainer, setup = self.trainer, self.setup
        scores = self.score()
        confidence, complete = self._calibrated()
        own, held, members = None, None, []
        labelled = setup.labelled[: len(trainer.validation)]
        ends = is_watched(trainer.config.training) and trainer.course.why != "solved" and not trainer.would_go_on
        if labelled and ends and trainer.config.training.budget is not None:
            own, held = self._right(labelled), self._right(trainer.validation)
        if isinstance(trainer.model, Ensemble):
            members = [self._right(trainer.validation, member) for member in trainer.model.all]
        self.result = Result(scores, confidence, complete, own, held, members)
        return self.result

    def estimated(self, scores: Evaluation, seen: list[calibrate.Observed]) -> Result:
        """Take over what others have found that learned from parts of the pairs; given test pairs are answered."""
        if "test" in self.setup.given:
            scores = self.score()
        self.trainer.finish()
        chrf = GOOD_CHRF if are_sentences(self.setup.labelled) else None
        confidence = calibrate.calibrated(seen, None, self._familiar(), chrf)
        self.result = Result(scores, confidence, sum(ended for _, ended, _ in seen))
        return self.result

    def _right(self, pairs: Sequence[Pair], network: object = None) -> float:
        """Return the share of right answers to some pairs."""
        network = self.trainer.model if network is None else network
        rules = self.setup.config.decoding
        return evaluate(network, self.trainer.tokenizers, pairs, rules=rules).exact_match  # type: ignore[arg-type]

    def _calibrated(self) -> tuple[Confidence | None, int | None]:
        """Fit the confidence on the validation pairs, and measure it on the test pairs that are not among them.

        Return also how many validation pairs were answered completely.
        """
        setup = self.setup
        if setup.recipe is None or len({source for source, _ in setup.validation}) < FEWEST:
            return None, None
        seen, others = map(self.observe, (setup.validation, without(setup.test, setup.validation)))
        chrf = GOOD_CHRF if are_sentences(setup.validation) else None
        return calibrate.calibrated(seen, others or None, self._familiar(), chrf), sum(ended for _, ended, _ in seen)

    def observe(self, pairs: Sequence[Pair]) -> list[calibrate.Observed]:
        """Answer pairs, and return how sure each answer is and whether it is right."""
        tokenizers = self.trainer.tokenizers
        return calibrate.observe(
            engine_of(self.trainer.model, Special.of(tokenizers)),
            tokenizers,
            self.setup.config.decoding,
            [pair for pair in pairs if tokenizers.source.knows(pair[0])],
            GOOD_CHRF if are_sentences(self.setup.validation) else None,
        )

    def _familiar(self) -> Familiar:
        """Compute the statistics of the training sources."""
        setup, source = self.setup, self.trainer.tokenizers.source
        texts = setup.sample if isinstance(setup.train, Shards) else [text for text, _ in setup.train]
        longest = int(setup.ids[0].lengths.max()) - len(source.before) - len(source.after)
        if self.options.vary is not None:  # its texts may be longer
            longest = setup.config.model.max_length
        return Familiar.learn(texts, longest, [text for text, _ in setup.validation])

    def model(self, card: str) -> Seq2Seq:
        """Return the model as trained so far."""
        trainer, result = self.trainer, self.result
        network = trainer.finish() if result is None else trainer.model
        sure = None if result is None else result.confidence
        made = Seq2Seq(trainer.config, trainer.tokenizers, network, card, device=self.setup.device, confidence=sure)
        made.trained = self.trained
        return made

    def as_teacher(self) -> LoadedModel:
        """Return the trained model as one that teaches."""
        return LoadedModel(self.config, self.trainer.tokenizers, weights_of(self.trainer.model))

    def write(self, card: str) -> None:
        """Write the model folder, if one was requested."""
        if self.options.out is None or self.result is None:
            return
        self.trainer.write(card, self.result.confidence)
        if find_spec("matplotlib") is None:
            return
        from seq2see.inspection.plots import plot_reliability, plot_training  # slow to import
        from seq2see.inspection.style import png

        if self.result.confidence is not None:
            folder.write_atomically(self.options.out / folder.PICTURE, png(plot_reliability(self.result.confidence)))
        if history := History.read(self.options.out):
            folder.write_atomically(self.options.out / folder.CURVES, png(plot_training(history)))


class Display(Protocol):
    """Shows how a training goes: a command on a terminal, ``fit`` on standard error."""

    command: str  # that makes the model again, for its card
    signals: tuple[signal.Signals, ...]  # which end a training early

    def say(self, text: str) -> None:
        """Show a message."""

    def busy(self, text: str) -> AbstractContextManager[Callable[[str], None]]:
        """Show what goes on, while it does; the function changes the text."""

    def introduce(self, job: TrainingJob) -> None:
        """Show what will be trained."""

    def steps(self, job: TrainingJob) -> AbstractContextManager[Callable[[Step], None]]:
        """Show each step with the function."""

    def tested(self, job: TrainingJob) -> None:
        """Show what the test found."""


@contextmanager
def _noted(signals: Sequence[signal.Signals]) -> Iterator[Callable[[], bool]]:
    """Record signals, so that a step is not interrupted; a second one ends a process that trains alone."""
    noted = False

    def note(number: int, frame: object) -> None:
        nonlocal noted
        # torchrun itself ends processes that take too long to stop.
        if noted and distributed.size() == 1:
            raise KeyboardInterrupt
        noted = True

    if threading.current_thread() is not threading.main_thread():
        signals = ()  # only the main thread may handle them
    before = {sort: signal.signal(sort, note) for sort in signals}
    try:
        yield lambda: noted
    finally:
        for sort, handler in before.items():
            signal.signal(sort, handler)
