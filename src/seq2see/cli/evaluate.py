"""``seq2see evaluate``."""

from __future__ import annotations

import json
import re
import time
from typing import Annotated

import typer

from seq2see.cli.output import complain, console, progress_bar
from seq2see.cli.predict import ModelName
from seq2see.errors import UserError

PART = 20_000  # dates made and scored at a time


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(evaluate)


def parse_years(text: str) -> tuple[int, int]:
    """Read ``1000-2025`` or ``1845``."""
    match = re.fullmatch(r"([0-9]{4})(?:-([0-9]{4}))?", text)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1000 <= first <= last <= 9999:
        raise UserError(f"--years is {text!r}: two years from 1000 to 9999 were expected, such as 1000-2025.")
    return first, last


def evaluate(
    data: Annotated[
        str, typer.Argument(metavar="dates", help="What to score on: dates are generated.")
    ] = "dates",
    model: ModelName = "dates",
    years: Annotated[
        str, typer.Option("--years", metavar="A-B", help="Only dates of these years.")
    ] = "1000-9999",
    sample: Annotated[
        int | None, typer.Option("--sample", metavar="N", min=1, help="A random N of them instead of all.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Which random N.")] = 0,
    at_least: Annotated[
        float | None,
        typer.Option("--at-least", metavar="SHARE", min=0, max=1, help="Exit with 1 below this match."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Score a model: exact match, character error rate, loss, and every miss.

    [dim]seq2see evaluate dates --years 1000-2025 --sample 10000[/dim]
    """
    if data != "dates":
        raise UserError(f"{data!r} cannot be scored on: 'dates' was expected.")
    first, last = parse_years(years)
    import numpy as np

    from seq2see.data.dates import all_ordinals, pairs_of
    from seq2see.evaluate import Evaluation
    from seq2see.seq2seq import load

    loaded = load(model)
    ordinals = all_ordinals(first, last)
    if sample is not None:
        if sample > len(ordinals):
            raise UserError(
                f"--sample is {sample:,}, but the years {first}-{last} have {len(ordinals):,} dates."
            )
        ordinals = np.random.default_rng(seed).choice(ordinals, sample, replace=False)
    scores, started = Evaluation(), time.perf_counter()
    with progress_bar("dates") as bar:
        task = bar.add_task("evaluating", total=len(ordinals), speed="")
        for begin in range(0, len(ordinals), PART):
            scores.add(loaded.evaluate(pairs_of(ordinals[begin : begin + PART])))
            bar.update(
                task, completed=scores.pairs, speed=f"{scores.pairs / (time.perf_counter() - started):,.0f}/s"
            )
    seconds = time.perf_counter() - started
    if as_json:
        print(json.dumps({
            "data": data, "years": [first, last], "pairs": scores.pairs, "exact": scores.exact,
            "exact_match": scores.exact_match, "character_error_rate": scores.character_error_rate,
            "loss": scores.loss, "seconds": seconds,
            "misses": [{"input": s, "expected": e, "output": g} for s, e, g in scores.misses],
        }))  # fmt: skip
    else:
        for source, expected, given in scores.misses:
            console.print(f"miss: {source} → {given!r}, expected {expected!r}", markup=False)
        console.print(
            f"exact match           {scores.exact:,} of {scores.pairs:,} ({scores.exact_match:.4%})"
        )
        console.print(f"character error rate  {scores.character_error_rate:.4%}")
        console.print(f"loss                  {scores.loss:.3g} nats a token, teacher-forced")
        console.print(f"time                  {seconds:.1f} s, {scores.pairs / seconds:,.0f} dates/s")
    if at_least is not None and scores.exact_match < at_least:
        complain(f"The exact match is below {at_least}.")
        raise typer.Exit(1)
