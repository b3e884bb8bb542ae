"""What is said about a training: how it ended, what its test found, and the card of its model."""

from __future__ import annotations

from importlib.util import find_spec
from math import sqrt
from typing import TYPE_CHECKING

from seq2see.data.cuts import are_sentences
from seq2see.data.recipe import in_minutes
from seq2see.errors import counted
from seq2see.evaluation import calibrate
from seq2see.evaluation.confidence import FEWEST
from seq2see.evaluation.evaluate import Evaluation
from seq2see.kernels.ensemble import Ensemble
from seq2see.storage.folder import CURVES
from seq2see.training.schedule import is_watched

if TYPE_CHECKING:
    from seq2see.training.job import TrainingJob

OVERFITS, POOR = 0.3, 0.2  # a gap in shares of right answers, and a score
UNSURE = 0.05  # the width of a score's 95 % interval from which it is told
USELESS = 0.95  # character error rate of answers that share nothing with the right ones


def scores_of(job: TrainingJob) -> Evaluation:
    """Return the scores of a finished training."""
    assert job.result is not None
    return job.result.scores


def of_others(job: TrainingJob) -> Evaluation | None:
    """Return the scores of the test pairs whose source is not in the training, if there are others too."""
    if not job.setup.seen:
        return None
    return scores_of(job).of_others(job.setup.sources, job.trainer.tokenizers.target.separator)


def tested(job: TrainingJob) -> str:
    """Say how many test pairs are right, and how many of those whose source is not in the training."""
    scores, others = scores_of(job), of_others(job)
    what = "dates" if job.setup.recipe is None else "pairs"
    what = what if job.setup.seen else unseen_pairs(job, what)
    low, high = interval(scores.exact, scores.pairs)
    sure = f"; of all such pairs {low:.0%} to {high:.0%} may be" if high - low > UNSURE else ""
    told = (
        f"Test: {scores.exact:,} of {scores.pairs:,} {what} are right ({scores.exact_match:.2%}{sure}), "
        f"after {job.trainer.seconds:.0f} s of training."
    )
    if others is not None:
        count = f"{others.exact:,} ({others.exact_match:.2%})"
        told += f"\nOf the {others.pairs:,} whose source is not in the training, {count}."
    return told


def interval(right: int, count: int) -> tuple[float, float]:
    """Return the 95 % interval of a share, by Wilson's formula."""
    z, n = 1.96, max(1, count)
    middle, root = right / n + z * z / (2 * n), z * sqrt(right / n * (1 - right / n) / n + z * z / (4 * n * n))
    return max(0.0, (middle - root) / (1 + z * z / n)), min(1.0, (middle + root) / (1 + z * z / n))


def outcome(job: TrainingJob) -> str:
    """Say how a watched training ended, and what would help; empty for others."""
    course, settings = job.trainer.course, job.config.training
    if job.result is None or settings.budget is None or not is_watched(settings):
        return ""
    if course.why == "solved":
        return "Learned: every held-out pair is right."
    if job.trainer.would_go_on:
        return f"Still learning when the budget ended: --budget {in_minutes(3 * settings.budget)} would let it go on."
    gap = 0.0 if job.result.own is None else job.result.own - (job.result.held or 0.0)
    if gap > OVERFITS:
        return f"It has learned its own pairs better than others ({gap:.0%} more are right): more data would help."
    if course.score < POOR:
        return (
            "Nothing more came, and few answers are right: the targets may not follow from the sources "
            "(`seq2see doctor`), or the data are too few."
        )
    return f"Learned: nothing more came after step {course.step:,}."


def is_useless(job: TrainingJob) -> bool:
    """Whether a model has learned nothing that can be used."""
    return not scores_of(job).exact and scores_of(job).character_error_rate > USELESS


def unseen_pairs(job: TrainingJob, what: str) -> str:
    """Name test pairs whose sources are not in the training."""
    # A model to start from or a teacher may have learned from them, and the validation chooses the weights.
    known = job.options.start or job.options.teacher or job.setup.watched
    return f"{what} whose sources are not in this training" if known else f"{what} never seen"


def unfitted(job: TrainingJob) -> str:
    """Say why the confidence is not fitted; empty if it is, or if the data are dates."""
    assert job.result is not None
    if job.result.confidence is not None or job.setup.recipe is None:
        return ""
    complete, asked = job.result.complete, job.setup.different if job.setup.parts else len(job.setup.validation)
    return (
        f"The confidence is not fitted: this needs complete answers to {FEWEST} validation sources or more, and the "
        f"validation has {counted(asked, 'pair')}"
        f"{'' if complete is None else f', of which {complete:,} were answered completely'}. "
        "`seq2see calibrate` fits it on other pairs."
    )


def _rows(job: TrainingJob) -> list[str]:
    """Return the rows of the measured figures; BLEU and chrF with their signatures, if the pairs are sentences."""
    scores, others = scores_of(job), of_others(job)
    rows = [
        f"| measured on {'test pairs' if job.setup.seen else unseen_pairs(job, 'test pairs')} | |",
        "|---|---|",
        f"| pairs | {scores.pairs:,} |",
        f"| exact match, free-running | {scores.exact_match:.2%} |",
        f"| character error rate | {scores.character_error_rate:.4%} |",
    ]
    if job.trainer.tokenizers.target.separator is not None:
        rows.append(f"| symbol error rate (PER, where symbols are phones) | {scores.token_error_rate:.2%} |")
    if scores.answers and are_sentences([(source, expected) for source, expected, _ in scores.answers]):
        for found in (scores.bleu(), scores.chrf()):
            rows.append(f"| {found.signature.replace('|', ' ')} | {found.score:.2f} |")
    rows.append(f"| loss, teacher-forced (nats a token) | {scores.loss:.3g} |")
    if others is not None:
        of = f"the {others.pairs:,} pairs whose source is not in the training"
        rows.append(f"| exact match on {of} | {others.exact_match:.2%} |")
    return rows


def card(job: TrainingJob, command: str) -> str:
    """Return the model card: what the model is, its scores, and how to repeat them."""
    trainer, setup = job.trainer, job.setup
    shape, steps = job.config.model, f"{trainer.step:,} steps"
    if not trainer.ended:
        steps = f"{trainer.step:,} of {trainer.last_step:,} steps, then it was stopped"
    made = "A Transformer encoder-decoder made by seq2see"
    if isinstance(trainer.model, Ensemble):
        made = f"An ensemble of {len(trainer.model.all)} Transformers made by seq2see, of one shape"
        if shape.backward:
            last = (
                "the last of which reads and writes"
                if shape.backward == 1
                else f"the last {shape.backward} of which read and write"
            )
            made += f", {last} from right to left"
    lines = [
        f"# {job.config.task if setup.recipe is None or trainer.out is None else trainer.out.name}",
        "",
        f"{made}: {trainer.model.parameter_count():,} parameters, d_model "
        f"{shape.d_model}, {shape.heads} heads, d_ff {shape.d_ff}, {shape.encoder_layers}+{shape.decoder_layers} "
        f"layers, {shape.norm}-norm.",
        "",
        *(["| not tested | |", "|---|---|"] if job.result is None else _rows(job)),
        f"| trained on | {counted(setup.different, 'pair')}, {steps}, {trainer.seconds:.0f} s |",
        f"| validated on | {'all' if setup.parts else counted(len(setup.validation), 'pair')}, {setup.apart} |",
        "",
        "Made by:",
        "",
        f"    {command}",
        "",
    ]
    if trainer.out is not None and job.result is not None and find_spec("matplotlib") is not None:
        lines += [f"![The course of the training: losses and the share of right answers]({CURVES})", ""]
    if setup.recipe is not None:
        lines += [
            f"Data: {setup.name}, {setup.counts}, {setup.origin(job.options.seed)}; tokenizer "
            f"{trainer.tokenizers.named}; {setup.recipe}.",
            "",
        ]
    if job.result is not None and (why := unfitted(job)):
        lines += [why, ""]
    if job.result is not None and job.result.confidence is not None:
        lines += [calibrate.section(job.result.confidence, picture=job.options.out is not None)]
    return "\n".join(lines)
