"""``seq2see runs``: the models that were trained here."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from seq2see.cli.output import in_json, say
from seq2see.errors import FolderError, UserError

DEPTH = 4  # folders below this one in which models are looked for


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(runs)


def runs(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to look for trained models.")] = Path(),
    compare: Annotated[
        tuple[Path, Path] | None, typer.Option("--compare", metavar="A B", help="Show the settings that differ.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """List the models that were trained here, the newest first: score, time, data and recipe of each.

    `--compare` shows where two of them differ; `seq2see evaluate FILE --compare A B` compares their answers, with a
    paired test.

    [dim]seq2see runs[/dim]

    [dim]seq2see runs --compare runs/mine runs/other[/dim]
    """
    if compare is not None:
        rows = _differences(*compare)
        for name, one, two in rows:
            print(in_json({"setting": name, "values": [one, two]})) if as_json else say(f"{name:32} {one} → {two}")
        if not rows and not as_json:
            say("Their settings are the same.")
        return
    if not folder.is_dir():
        raise UserError(f"{folder} is no folder: one with trained models below it was expected.")
    found = [
        _described(place.parent) for depth in range(1, DEPTH + 1) for place in folder.glob("*/" * depth + "config.toml")
    ]
    found = sorted((one for one in found if one), key=lambda one: -float(one.pop("when")))
    if not found:
        raise UserError(f"No trained model lies below {folder}: `seq2see train FILE` makes one.")
    for one in found:
        if as_json:
            print(in_json(one))
        else:
            say(one["folder"], style="bold")
            say("  " + "; ".join(f"{name} {value}" for name, value in one.items() if name != "folder" and value))


def _described(place: Path) -> dict[str, Any]:
    """Return what is known of the model in a folder; empty if it was not trained there."""
    from seq2see.inspection.notebook import History
    from seq2see.storage.folder import LOG, read_card

    try:
        history, card = History.read(place), read_card(place)
    except FolderError:
        return {}
    if not history:
        return {}

    def told(pattern: str) -> str:
        match = re.search(pattern, card, re.MULTILINE)
        return match[1] if match else ""

    return {
        "folder": str(place),
        "right": told(r"^\| exact match, free-running \| (.+?) \|")
        or f"{history[-1]['exact_match']:.1%} held out, not finished",
        "trained on": told(r"^\| trained on \| (.+?) \|"),
        "data": told(r"^Data: (.+?); tokenizer"),
        "recipe": told(r"^Data: .+?; tokenizer (.+)$").rstrip("."),
        "when": (place / LOG).stat().st_mtime,
    }


def _differences(one: Path, two: Path) -> list[tuple[str, object, object]]:
    """Return the settings in which two models differ."""
    from seq2see.storage import folder

    first, second = ({**asdict(folder.read_config(folder.find(str(place))))} for place in (one, two))
    return [
        (f"{section}.{name}", value, second[section][name])
        for section in ("model", "training", "decoding")
        for name, value in first[section].items()
        if value != second[section][name]
    ]
