"""The journey of a training: read, prepare, train, test, report. ``seq2see.fit`` and ``seq2see train`` both make it.

Of few pairs none is set aside: each is answered by one of several models that have not seen it, and the last model learns
from all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from seq2see.data.pairs import Corpus, Pair
from seq2see.evaluation.calibrate import Observed
from seq2see.evaluation.evaluate import Evaluation
from seq2see.files import parsed, read_text, write_atomically
from seq2see.storage import folder
from seq2see.training import distributed, report
from seq2see.training.job import Display, TrainingJob
from seq2see.training.options import LoadedModel, TrainOptions
from seq2see.training.prepare import RawSplits, prepare
from seq2see.training.schedule import is_watched, steps_of

FEW, FEWEST = 500, 50  # pairs, below and from which there are parts
PARTS = 5
KEPT = ".parts.json"  # what they found, in the folder of a training that is not finished
SHARE = 0.5  # of the budget that the parts take together; the last model has the rest


@dataclass(frozen=True)
class Estimate:
    """What the models of the parts tell of the last one."""

    scores: Evaluation  # of every pair, answered by a model that has not seen it
    observed: list[Observed]
    steps: int  # that the last model takes


def carry_out(
    read: Callable[[], RawSplits], options: TrainOptions, display: Display, by_parts: bool = True
) -> TrainingJob | None:
    """Read, prepare, train, test and write; return None if the folder to resume holds a finished model.

    Few pairs are tested ``by_parts``, so that none is set aside.

    With ``distil`` the ensemble is trained first, beside the folder, and then teaches one model. A training that was
    stopped has no ``result``.
    """
    read = cache(read)  # the data may be a generator
    if options.distil:
        several = options.of_ensemble()
        first = carry_out(read, several, display, by_parts=False)
        if first is not None and first.result is None:
            return first
        display.say(f"One model learns from the ensemble{f' in {several.out}' if several.out else ''}.")
        options = options.of_pupil(first.as_teacher() if first else LoadedModel.read(several.out or Path()))
    if options.finished("pairs"):
        return None
    data, estimate = read(), None
    given = () if data.test is None else ("test",)
    if by_parts and is_few(data, options):
        estimate = known(options) or estimated(data, options, display)
        data, options = with_all(data, options, estimate)
    with display.busy("Preparing …") as show:
        setup = prepare(data, options, show)
        if estimate is not None:
            setup = replace(setup, parts=PARTS, given=given)
        for remark in [*([setup.where.said] if setup.where.said else []), *setup.remarks]:
            display.say(remark)
        job = TrainingJob(setup, options, display.say)
    return finish(job, display, estimate)


def finish(job: TrainingJob, display: Display, estimate: Estimate | None = None) -> TrainingJob:
    """Train, test and write what is prepared."""
    display.introduce(job)
    with display.steps(job) as show:
        ended = job.train(show, *display.signals)
    if ended and distributed.first():
        try:
            with display.busy("Testing …"):
                job.test() if estimate is None else job.estimated(estimate.scores, estimate.observed)
        except KeyboardInterrupt:
            return job
        job.write(report.card(job, display.command))
        forget(job.options)
        display.tested(job)
    return job


# --- few pairs -------------------------------------------------------------------------------------------------------


def is_few(data: RawSplits, options: TrainOptions) -> bool:
    """Whether there are so few pairs that none is set aside; parts that are given are used as they are."""
    asked = options.settings["training"]
    free = data.validation is None and options.preset is None and "steps" not in asked and "schedule" not in asked
    sources = {source for source, _ in data.corpus.pairs}
    return free and data.survey is None and len(sources) >= FEWEST and len(data.corpus.pairs) < FEW


def parts_of(corpus: Corpus, seed: int) -> Iterator[tuple[Corpus, list[Pair]]]:
    """Return, for each part of the pairs, all others and the part; all pairs of one source are in one part."""
    sources = [*dict.fromkeys(source for source, _ in corpus.pairs)]
    order = np.random.default_rng(seed).permutation(len(sources))
    for number in range(PARTS):
        held = {sources[place] for place in order[number::PARTS].tolist()}
        kept = [place for place, (source, _) in enumerate(corpus.pairs) if source not in held]
        rest = replace(
            corpus,
            pairs=[corpus.pairs[place] for place in kept],
            lines=[corpus.lines[place] for place in kept],
            faults=[],
        )
        yield rest, [pair for pair in corpus.pairs if pair[0] in held]


def estimated(data: RawSplits, options: TrainOptions, display: Display) -> Estimate:
    """Train a model for each part on the others, and let it answer the part."""
    scores, observed, jobs = Evaluation(), list[Observed](), list[TrainingJob]()
    for number, (rest, held) in enumerate(parts_of(data.corpus, options.split_seed), 1):
        some = replace(options, out=None, resume=False)
        setup = prepare(RawSplits(rest, held, held), some)
        config = setup.config
        assert config.training.budget is not None
        budget = max(1.0, config.training.budget * SHARE / PARTS)
        setup = replace(setup, config=replace(config, training=config.training.but(budget=budget)))
        with display.busy(f"Part {number} of {PARTS}: training …"):
            job = TrainingJob(setup, some, lambda said: None)
            if not job.train(lambda step: None, *display.signals):
                raise KeyboardInterrupt
            found = job.score()
            observed += job.observe(held)
        scores.add(found)
        jobs.append(job)
        display.say(f"Part {number} of {PARTS}: {found.exact:,} of {found.pairs:,} are right.")
    made = Estimate(scores, observed, _steps(jobs))
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        write_atomically(options.out / KEPT, json.dumps(asdict(made)).encode())
    return made


def known(options: TrainOptions) -> Estimate | None:
    """Return the estimate of the training to resume."""
    if options.out is None or not options.resume or not (options.out / KEPT).is_file():
        return None
    found = parsed(read_text(options.out / KEPT, folder.LARGEST_LOG), KEPT)
    scores: dict[str, Any] = {
        name: [tuple(one) for one in value] if isinstance(value, list) else value
        for name, value in found["scores"].items()
    }
    observed = [(figures, ended, right) for figures, ended, right in found["observed"]]
    return Estimate(Evaluation(**scores), observed, found["steps"])


def forget(options: TrainOptions) -> None:
    """Remove the estimate of a finished training from its folder."""
    if options.out is not None:
        (options.out / KEPT).unlink(missing_ok=True)


def with_all(data: RawSplits, options: TrainOptions, estimate: Estimate) -> tuple[RawSplits, TrainOptions]:
    """Return the data and the options of the model that learns from all pairs, for as long as the others did."""
    *_, (_, last) = parts_of(data.corpus, options.split_seed)
    asked = {name: value for name, value in options.settings["training"].items() if name != "budget"}
    some = replace(options, training={**asked, "steps": estimate.steps})
    return replace(data, validation=last, test=data.test or last), some


def _steps(jobs: Sequence[TrainingJob]) -> int:
    """Return how long the last model learns: as long as the others did, or if they did not end, as its time allows."""
    settings = jobs[0].setup.config.training
    assert settings.budget is not None
    if sum(job.trainer.course.why == "budget" for job in jobs) <= len(jobs) / 2 and is_watched(settings):
        return int(median(job.trainer.step for job in jobs))
    each = median(job.trainer.seconds / job.trainer.step for job in jobs)
    return steps_of(settings.budget * PARTS * (1 - SHARE) / SHARE, each)
