"""The journey of a training: read, prepare, train, test, report. ``seq2see.fit`` and ``seq2see train`` both make it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

from seq2see.training import distributed, few, report
from seq2see.training.job import Display, TrainingJob
from seq2see.training.options import LoadedModel, TrainOptions
from seq2see.training.prepare import RawSplits, prepare


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
    if by_parts and few.is_for(data, options):
        estimate = few.known(options) or few.estimated(data, options, display)
        data, options = few.with_all(data, options, estimate)
    with display.busy("Preparing …") as show:
        setup = prepare(data, options, show)
        if estimate is not None:
            setup = replace(setup, parts=few.PARTS, given=given)
        for remark in [*([setup.where.said] if setup.where.said else []), *setup.remarks]:
            display.say(remark)
        job = TrainingJob(setup, options, display.say)
    return finish(job, display, estimate)


def finish(job: TrainingJob, display: Display, estimate: few.Estimate | None = None) -> TrainingJob:
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
        few.forget(job.options)
        display.tested(job)
    return job
