"""``seq2see calibrate``."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated

import typer

from seq2see.cli.answering import characters_in
from seq2see.cli.answering import loaded as load_for
from seq2see.cli.data import Columns, read
from seq2see.cli.output import aside, complain, console, in_json, say
from seq2see.cli.predict import Device
from seq2see.errors import FolderError, InputError, UserError, counted

if TYPE_CHECKING:
    from seq2see.seq2seq import Seq2Seq


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(calibrate)


def calibrate(
    model: Annotated[str, typer.Argument(metavar="DIR", help="The model folder to calibrate.")],
    file: Annotated[
        str, typer.Option("--file", "-f", metavar="FILE", help="Pairs that were not in the training; A,B if parallel.")
    ],
    columns: Columns = None,
    like: Annotated[
        str | None,
        typer.Option(
            "--like", metavar="FILE", help="The pairs of the training, to recognise inputs that differ from them."
        ),
    ] = None,
    chrf: Annotated[
        float | None,
        typer.Option(
            "--chrf", metavar="N", min=1, max=100, help="Least chrF of a right answer; the default for sentences is 40."
        ),
    ] = None,
    exact: Annotated[bool, typer.Option("--exact", help="An answer is right only if it equals a target.")] = False,
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="Seed of the choice of sources that are measured together.")
    ] = 1,
    device: Device = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Fit the confidence of a model's answers on pairs that were not in its training, and store it in the folder.

    Each fifth of the sources is measured with a fit on the other four. `train` does this by itself, with the
    validation and the test pairs. The folder gets confidence.json, reliability.png and a part of its card;
    then `predict --min-confidence P` withholds answers with a lower confidence.

    [dim]seq2see calibrate runs/mine --file held-out.tsv[/dim]
    """
    from seq2see.data.cuts import are_sentences
    from seq2see.data.pairs import hold_out
    from seq2see.evaluation import calibrate as work
    from seq2see.evaluation.confidence import FEWEST, GOOD_CHRF, read_confidence
    from seq2see.evaluation.familiar import Familiar
    from seq2see.inspection.reliability import plot_reliability
    from seq2see.inspection.style import png
    from seq2see.storage import folder

    if exact and chrf is not None:
        raise UserError("--exact and --chrf were both given: an answer is right by one of them.")
    path = folder.find(model)
    try:
        read_confidence(path)
    except FolderError:  # a damaged one, or one of another version, is fitted again
        (path / folder.CONFIDENCE).unlink()
    loaded = load_for(model, device, characters=characters_in(*map(Path, file.split(","))))
    pairs = _answerable(loaded, read(file, columns=columns).pairs)
    if not pairs:
        raise UserError(f"The model takes no source of {file}: pairs like those of its training were expected.")
    threshold = None if exact else chrf or (GOOD_CHRF if are_sentences(pairs) else None)
    known = pairs if like is None else read(like, columns=columns, or_two=True).pairs
    source = loaded.tokenizers.source
    with aside.status("Answering …"):
        engine = loaded.network.engine_for(len(pairs))
        seen = work.observe(engine, loaded.tokenizers, loaded.config.decoding, pairs, threshold)
        Random(seed).shuffle(seen)
        texts = [loaded.answerer.folded(text) for text, _ in known]
        lengths = [len(row) - len(source.before) - len(source.after) for row in source.encode_batch(texts)]
        # Without the training pairs, one half shows how surprising a text of the other half can be.
        one, other = hold_out(pairs, 0.5, len(pairs), seed)
        learned = texts if like is not None else [text for text, _ in one]
        familiar = Familiar.learn(learned, max(lengths), [text for text, _ in other])
        found = work.calibrated(seen, None, familiar, threshold)
    if found is None:
        raise UserError(
            f"{file} has {counted(len(seen), 'source')} that the model takes, and {sum(one[1] for one in seen):,} of the "
            f"answers are complete: {FEWEST} or more were expected."
        )
    command = " ".join(["seq2see", *sys.argv[1:]])
    card = work.with_section(loaded.card, work.section(found, True, command))
    picture = png(plot_reliability(found))
    folder.write_atomically(path / folder.PICTURE, picture)
    folder.write_atomically(path / folder.CARD, card.encode())
    folder.write_atomically(path / folder.CONFIDENCE, found.to_json().encode())
    if as_json:
        print(in_json({"criterion": found.criterion, "fitted_on": found.fitted_on, **vars(found.measured)}))
        return
    say(f"Confidence is {found.meaning}.")
    console.print(f"fitted on                    {found.fitted_on:,} sources")
    console.print(
        f"measured on {found.measured.pairs:,} answers that were not used for the fit, {found.measured.right:.2%} right"
    )
    console.print(f"expected calibration error   {found.measured.error:.2%}  (10 bins)")
    if rows := work.answered_above(found):
        console.print("\nconfidence    answered    right")
    else:
        console.print(f"no answer has a confidence of {work.THRESHOLDS[0]:.2f} or more")
    for least, share, right in rows:
        console.print(f"{least:10.2f} {share:11.1%} {right:8.1%}")
    say(f"Written to {path}: {folder.CONFIDENCE}, {folder.PICTURE} and the card.")


def _answerable(model: Seq2Seq, given: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the pairs as the model reads them; report those whose source it refuses.

    A target that the model cannot write stays: its answer is wrong.
    """
    pairs, reasons = [], []
    for source, target in given:
        try:
            model.answerer.check(source)
            if why := model.answerer.unseen(source):  # its answer has no confidence
                raise InputError(f"{why}.")
        except InputError as error:
            reasons.append(str(error))
        else:
            pairs.append((model.answerer.read(source), model.answerer.folded(target)))
    if reasons:
        left = f"{counted(len(reasons), 'pair')} left out, since the model does not take the source."
        complain(f"{left} The first: {reasons[0]}")
    return pairs
